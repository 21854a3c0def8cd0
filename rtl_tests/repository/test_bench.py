"""Small tools of bench/ by hand-made examples, the published page, and the changelog with its entries."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import unchanged
from code_lines import code_lines, main
from fuzz import mutate
from fuzz.__main__ import outcome
from papers import engines, fused, schedules
from papers.rows import Figure, Row
from prose import findings
from unchanged import canonical, differences

import hwgen
from hwgen.api import design_of
from hwgen.explore import published, pyramid
from hwgen.network import load, shapes
from hwgen.network.shapes import load as load_shapes
from hwgen.schedule.solve import Cycles, Schedule


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", 0),
        ('"""A module.\n\nMore.\n"""\n\n# A comment.\n', 0),
        ('def f():\n    """Text."""\n\n    return 1  # why\n', 2),
        ("x = (\n    1,\n\n    # a comment\n    2,\n)\n", 4),
        ('class A:\n    b: int = 1\n    """A field."""\n', 2),
        ('text = """\nthree lines\n"""\n', 3),
    ],
)
def test_lines(source, expected):
    assert code_lines(source) == expected


@pytest.mark.parametrize(("most", "status"), [(4, 0), (3, 1)])
def test_a_budget_is_held(most, status, tmp_path, monkeypatch, capsys):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "module.py").write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    monkeypatch.setattr("code_lines.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["code_lines.py", "--most", str(most)])
    assert main() == status
    assert ("1 lines of code more than the budget of 3" in capsys.readouterr().out) == bool(status)


FAR = "    x = 1\n" * 12


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('"""Of a frame."""\n', "fragment"),
        ('class A:\n    """Text."""\n\n    b: int = 1\n    """By channel."""\n', "fragment"),
        ("#: Those of a layer.\nx = 1\n", "fragment"),
        ('def f(most):\n    """Return it."""\n', "bare name"),
        ("place = 3\n", "bare name"),
        (f"def _f():\n    found = 1\n{FAR}    return found\n", "bare name"),
        ('class A:\n    """Text."""\n\n    def f(self): ...\n', "no docstring"),
    ],
)
def test_finding(tmp_path: Path, source: str, rule: str):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "one.py").write_text(source)
    assert [finding.rule for finding in findings(["hwgen"], tmp_path)] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        '"""Words of a frame."""\n',
        "#: A comment\n#: of two lines.\nx = 1\n",
        "def _f(most):\n    found = most\n    return found\n",
        'class A:\n    """Text."""\n\n    def f(self):\n        """Return nothing."""\n\n\n'
        'class B(A):\n    """Text."""\n\n    def f(self): ...\n',
        'class A(wiring.Component):\n    """Text."""\n\n    def elaborate(self, platform): ...\n',
    ],
)
def test_no_finding(tmp_path: Path, source: str):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "one.py").write_text(source)
    assert not list(findings(["hwgen"], tmp_path))


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({"a/x.py": "class A: ...\n", "a/b/y.py": "class A: ...\n"}, ["same class"]),
        ({"a/x.py": "class A: ...\n", "b/y.py": "class A: ...\n"}, []),
        ({"a/x.py": "", "a/b/x.py": ""}, ["same file"]),
        ({"network/ops/x.py": "class A: ...\n", "network/onnx/x.py": "class A: ...\n"}, []),
    ],
)
def test_same_names(tmp_path: Path, files: dict[str, str], rules: list[str]):
    for name, source in files.items():
        path = tmp_path / "hwgen" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert [finding.rule for finding in findings(["hwgen"], tmp_path)] == rules


def test_names_and_build_hash_are_no_differences():
    before = "assign sum = left + 8'h0f; // both\nhash = 32'h1a; hash = 32'hdeadbeef;"
    after = "assign a  = b + 8'h0f;\nh = 32'h2b; h = 32'h77;"
    assert canonical(before, 0x1A_DEAD_BEEF) == canonical(after, 0x2B_0000_0077)
    assert canonical(before, 0x1A_DEAD_BEEF) != canonical(after, 0x2B_0000_0078)
    assert canonical("a = b + c;") != canonical("a = b + b;")


def test_only_luts_and_flip_flops_are_tolerated():
    before = {"resources": {"lut": 1000, "dsp": 4}, "cycles": [5, 6]}
    after = {"resources": {"lut": 1005, "dsp": 5}, "cycles": [5, 7]}
    assert [*differences(before, after, 0.005)] == [
        "resources.dsp: 4 before, 5 after",
        "cycles[1]: 6 before, 7 after",
    ]
    assert "resources.lut: 1000 before, 1005 after" in [*differences(before, after, 0.004)]


def test_renamed_keys_are_no_differences(monkeypatch, capsys):
    monkeypatch.setattr(unchanged, "RENAMED_KEYS", {"kind": "type"})
    before = {"case": {"layers": [{"kind": "conv"}]}}
    assert unchanged.compare(before, {"case": {"layers": [{"type": "conv"}]}}, plans=False, tolerance=0) == 0
    assert unchanged.compare(before, {"case": {"layers": [{"type": "pool"}]}}, plans=False, tolerance=0) == 1
    assert "case: layers[0].type: conv before, pool after" in capsys.readouterr().out


def test_renamed_values_are_no_differences():
    plan = {"groups": [{"template": "tile", "layers": [{"tile": "tile"}]}]}
    assert unchanged.renamed(plan) == {"groups": [{"template": "engine", "layers": [{"tile": "tile"}]}]}


def test_case_without_an_end_is_a_difference(capsys):
    before = json.loads('{"one": {"dsp": 1}, "two": {"dsp": 2}}')
    assert unchanged.compare(before, {"one": {"dsp": 1}}, plans=False, tolerance=0) == 1
    assert capsys.readouterr().out.endswith("2 cases, 1 differences\n")


BENCH = Path(__file__).resolve().parents[2] / "bench"


def _quote(rng: random.Random) -> int:
    print("hwgen: x.json: '<' not supported between instances of 'str' and 'int'")
    return 2


def _missing(rng: random.Random) -> int:
    raise TypeError("Model.plan: missing a required argument: 'board'")


@pytest.mark.parametrize(
    ("case", "begin"),
    [
        (lambda rng: 0, "status 0"),
        (lambda rng: 2, "status 2"),
        (lambda rng: 3, "exit status 3"),
        (lambda rng: {}["x"], "traceback: "),
        (lambda rng: sys.exit(2), "status 2"),
        (lambda rng: sys.exit(134), "exit status 134"),
        (_missing, "status 2"),
        (_quote, "quotes Python: hwgen: x.json"),
    ],
)
def test_outcomes(case, begin):
    assert outcome(case, 1).startswith(begin)


def test_mutations_are_repeatable_and_change_something():
    document = {"groups": [{"layers": [{"name": "conv", "depth": 3}], "tile": None}], "dsp": 20}
    made = [json.dumps(mutate.json_value(document, random.Random(seed))) for seed in range(300)]
    assert made == [json.dumps(mutate.json_value(document, random.Random(seed))) for seed in range(300)]
    assert document == {"groups": [{"layers": [{"name": "conv", "depth": 3}], "tile": None}], "dsp": 20}
    assert len(set(made)) > 200
    assert sum(text != json.dumps(document) for text in made) > 280


@pytest.mark.long
def test_a_few_cases_of_each():
    run = subprocess.run(
        [sys.executable, str(BENCH / "fuzz"), "--count", "60", "--seed", "100000"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert run.stdout.count("60 cases (seeds 100000 to 100059)") == 6


FILE = Path(__file__).resolve().parents[2] / "bench" / "decoilfnet.py"
_spec = importlib.util.spec_from_file_location("bench_decoilfnet", FILE)
assert _spec is not None
assert _spec.loader is not None
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

MULTIPLIERS = [27, 576, 576, 576, 1152]
#: At full size; three of the seven layers work 224 * 224 * 64 cycles a frame.
LATENCY, INTERVAL = 3_313_395, 3_211_264


@pytest.mark.long
def test_one_frame():
    """With the buffers of a smaller image; the sizing at full size takes long."""
    small = bench.make(load("vgg16:7@32x32"))
    assert bench.multipliers(small.configure()) == MULTIPLIERS
    assert small.interval == 32 * 32 * 64
    network = load("vgg16:7@224x224")
    plans = [
        replace(layer, line_rows=sized.line_rows, fifo_depths=sized.fifo_depths)
        for layer, sized in zip(bench.unrolled(network), small.layers, strict=True)
    ]
    config = bench.compose(network, plans)
    assert bench.multipliers(config) == MULTIPLIERS
    assert max(layer.cycles for layer in config.layers) == INTERVAL == 224 * 224 * 64
    assert Schedule(config, 1).cycles.latency == LATENCY <= bench.LIMIT


@pytest.mark.long
def test_full_size():
    made = bench.make(load("vgg16:7@224x224"))
    assert bench.multipliers(made.configure()) == MULTIPLIERS
    assert made.cycles == Cycles(latency=LATENCY, interval=INTERVAL, steady=True)
    assert made.latency <= bench.LIMIT < bench.PUBLISHED


@pytest.mark.long
def test_in_simulation():
    """conv1_1, conv1_2 and pool1 of a 2 x 2 image: 64 cycles a pixel."""
    model = hwgen.load("vgg16:3@2x2")
    design = design_of(model, bench.make(model.network))
    assert bench.multipliers(design.config) == MULTIPLIERS[:2]
    frames = np.random.default_rng(0).integers(0, 256, (3, 3, 2, 2), dtype=model.input.type.dtype)
    result = design.simulate(frames, simulator="amaranth")
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, 2 * 2 * 64)


def test_stall_without_a_fifo():
    """The paper's stall, where a pooled pixel has no place to wait; half a row of places is enough.

    By hand: conv2_2 takes 256 cycles a pixel and gets one every 128 in odd rows of conv1_2, none in even ones, so each
    pooled row costs 112 * 128 cycles more, but for a few at the ends.
    """
    layers = load_shapes("vgg16:7").layers
    alone, half, row = (bench.without_rings(layers, {"conv2_1": pixels}) for pixels in (0, 56, 112))
    assert 0.85 * 112 * 112 * 128 < alone - half < 112 * 112 * 128
    assert half == row
    assert half < LATENCY < half + 1000


def test_least_interval():
    """With one credit a value every ten cycles, by hand: line buffer 5, pipeline 2, FIFO 2, credit 1."""
    made = bench.make(load("vgg16:3@4x4"))
    config = made.configure()
    assert bench.min_interval(config) == 4 * 4 * 64 == made.interval
    shallow = bench.with_depths(config, {"pool1": 1})
    assert bench.min_interval(shallow) == 2 * 2 * 64 * 10 < Schedule(shallow, 3).cycles.interval


ROOT = Path(__file__).resolve().parents[2]


def test_the_newest_release_is_the_version_of_the_project():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## (.*) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)[0] == f"[{project['version']}]"


def test_a_release_moves_the_entries_to_the_changelog(tmp_path):
    """Also a check of every file in changes/: towncrier refuses one without a type in its name."""
    pytest.importorskip("towncrier")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    changes = tmp_path / "changes"
    shutil.copytree(ROOT / "changes", changes)
    (changes / "zy.removed.md").write_text("One line.\nAnother.\n")
    (changes / "zz.removed.md").write_text("A second entry.\n")
    words = ["build", "--yes", "--version", "1000.0.0", "--date", "2030-01-02"]
    done = subprocess.run([sys.executable, "-m", "towncrier", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = ((folder / "CHANGELOG.md").read_text(encoding="utf-8") for folder in (ROOT, tmp_path))
    head, mark, former = before.partition("<!-- towncrier release notes start -->\n")
    assert after.startswith(f"{head}{mark}\n## [1000.0.0] - 2030-01-02\n\n### ")
    assert after.endswith(f"\n### Removed\n\n- One line.\n  Another.\n- A second entry.\n{former}")
    assert {path.name for path in changes.iterdir()} == {"README.md", "template.jinja"}


ROWS = fused.rows()

#: Place, start of what is published, verdict, integers; worked out apart from hwgen.
EXPECTED = [
    ("T 3.1", "feature maps > 50 % of VGG-E", "exact", (20_647_424, 20_018_880)),
    ("T Fig. 3.1", "0.6 MB, 7 KB, 12.8 MB, 147 KB", "exact", (602_112, 6_912, 12_845_056, 147_456)),
    ("T 3.2.1", "AlexNet, two layers: 678", "exact", (164_682_000, 678_243_456)),
    ("T 3.2.1", "668 million more additions", "exact", (668_777_472,)),
    ("T 3.2.1", "an 80.46 %", "exact", (678_243_456, 842_925_456)),
    ("T 3.2.1", "55.86 KB", "fit", (14_304,)),
    ("T 3.4.5", "55.88 KB", "fit", (14_304, 17_215)),
    ("T 3.2.1", "VGG-E: 470 million", "exact", (19_508_428_800, 470_962_158_336)),
    ("T 3.2.1", "418 million", "exact", (418_633_029_632,)),
    ("T 3.2.1", "VGG-E: 1.4 MB", "exact", (378_368,)),
    ("T 3.4.5", "saves 2.08 MB", "exact", (2 * (48 * 55**2 + 48 * 27**2 + 128 * 27**2),)),
    ("T ch. 1", "saves 2.17 MB", "fit", (2 * (48 * 55**2 + 48 * 31**2 + 128 * 27**2),)),
    ("T 4.2", "1024 and 128", "exact", (1024, 128)),
    ("T Fig. 4.1 A", "", "exact", (29_184, 18_816_000)),
    ("T Fig. 4.1 B", "232 KB, 17.1 MB", "exact", (59_392, 4_365_312)),
    ("T Fig. 4.1 C", "701 KB, 1.37 MB", "exact", (179_568, 351_232)),
    ("T 4.2", "A to C: 53.6x", "exact", (18_816_000, 351_232, 29_184, 179_568)),
    ("T 4.2", "A to B: 4.31x", "exact", (18_816_000, 4_365_312, 29_184, 59_392)),
    # 105,415,200 operations over 1,268,844 B, and 223,948,800 over 1,377,160 B
    ("T 3.4.5", "operations per byte, layer by layer", "exact", (8_784_600, 105_737, 5_598_720, 34_429)),
    # 1,791,808 operations over 6,860 B
    ("T 3.4.5", "operations per byte, fused", "fit", (447_952, 1_715)),
    ("T 3.4.5", "1.61x", "exact", None),
    ("T Tab. 3.3", "726, 1610, 2336", "exact", (726, 1610, 2336, 2240)),
    ("D III-C", "45 and 63", "exact", (45, 63, 99, 108)),
    ("D Tab. IV", "2907 DSP", "exact", (2907, 27, 576, 576, 576, 1152)),
    ("D Tab. II", "up to conv1_1", "exact", (3_211_712,)),
    ("D Tab. II", "up to conv1_2", "fit", (3_240_384,)),
    ("D Tab. II", "up to pool1", "exact", (3_247_552,)),
    ("D Tab. II", "up to conv2_1", "fit", (3_304_896,)),
    ("D Tab. II", "up to conv2_2", "fit", (4_967_872,)),
    ("D Tab. II", "up to pool2", "fit", (4_975_040,)),
    ("D Tab. II", "up to conv3_1", "fit", (5_032_384,)),
    ("D Tab. III", "up to conv1_1", "exact", (3_211_712,)),
    ("D Tab. III", "up to conv1_2", "fit", (3_240_384,)),
    ("D Tab. III", "up to conv1_3", "exact", (3_269_056,)),
    ("D Tab. III", "up to conv1_4", "exact", (3_297_728,)),
    ("D Tab. IV", "5034k", "fit", (5_032_384,)),
    ("D Tab. IV", "Optimized: 10951k", "exact", (10_950_912, 2880)),
    ("D Tab. IV", "Fused: 3.64 MB", "exact", (19 * 224**2,)),
    ("D Tab. IV", "6.69 MB", "exact", (35 * 224**2,)),
    ("D Fig. 7 A", "23.54 MB", "exact", (123 * 224**2,)),
    ("D abstract", "11.5x", "exact", (7714, 669)),
    ("D Tab. IV", "2.6x and 2.78x", "exact", (1_314_120, 503_400, 1_398_600)),
]


@pytest.mark.parametrize(("where", "start", "verdict", "integers"), EXPECTED)
def test_integers(where, start, verdict, integers):
    (row,) = (row for row in ROWS if row.where == where and row.published.startswith(start))
    assert row.verdict == verdict
    assert integers is None or row.integers == integers


def test_every_exact_or_fit_row_is_held():
    held = {(where, start) for where, start, _, _ in EXPECTED}
    free = [
        (row.where, row.published)
        for row in ROWS
        if row.verdict != "no"
        and not any(row.where == where and row.published.startswith(start) for where, start in held)
    ]
    assert not free
    assert len(EXPECTED) == sum(row.verdict != "no" for row in ROWS)
    assert {row.verdict for row in ROWS} == {"exact", "fit", "no"}


@pytest.mark.parametrize("row", [row for row in ROWS if row.figures], ids=lambda row: f"{row.where}: {row.published}")
def test_printed_digits(row):
    for figure in row.figures:
        assert figure.agrees, f"{figure.printed} is not {float(figure.value)}, {figure.rounding}"
        assert figure.printed in row.published


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.verdict == "no"], ids=lambda row: f"{row.where}: {row.published}"
)
def test_figures_that_do_not_follow(row):
    assert not row.figures
    assert row.note


def test_a_figure_that_is_off_by_one_digit_disagrees():
    assert Figure("17.1", Fraction(17052, 1000)).agrees
    assert not Figure("17.1", Fraction(17052, 1000), "cut").agrees
    assert not Figure("2.09", Fraction(20867, 10000), "cut").agrees
    assert not Figure("80.45", Fraction(80463, 1000)).agrees


def test_every_place_has_a_row():
    places = {row.where for row in ROWS}
    assert {"T Fig. 4.4", "D Tab. I", "D conclusion", "D"} <= places
    (row,) = (row for row in ROWS if row.where == "T Fig. 4.4")
    assert row.integers == (1241, 1400, 3460, 1210, 3768, 1200, 3844)


def test_the_page_is_up_to_date():
    result = subprocess.run(
        [sys.executable, ROOT / "bench" / "published.py", "--check", "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.long
def test_the_whole_page_is_up_to_date():
    result = subprocess.run(
        [sys.executable, ROOT / "bench" / "published.py", "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


#: Place, start of what is published, verdict, integers; worked out apart from hwgen.
SCHEDULES = [
    ("P Tab. I", "set sizes", "exact", (31, 63, 127, 255, 495, 1023, 2030, 4040)),
    ("P Tab. I", "accesses", "exact", (308_216_800, 152_405_120, 94_796_512, 57_440_864, 40_113_184, 25_346_976)),
    ("P Tab. I", "tiles", "exact", (8,)),
    ("P Tab. II", "transfers", "exact", (866_384_000,)),
    ("P Tab. II", "compute", "fit", (866_384_000, 874_176_000)),
    ("P Fig. 8", "", "no", (16, 18, 15)),
    ("P Fig. 11", "", "no", ()),
    ("C 2.2", "96 MB", "exact", (24_045_952 + 4_800,)),
    ("C 4.3", "", "fit", None),
    ("Y Tab. 1", "", "no", (665_784_864,)),
    ("Y 3.5", "", "fit", (2880, 1_658_880)),
]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [*schedules.rows()]


@pytest.mark.parametrize(("where", "start", "verdict", "integers"), SCHEDULES)
def test_schedules(rows, where, start, verdict, integers):
    (row,) = (row for row in rows if row.where == where and row.published.startswith(start))
    assert row.verdict == verdict
    assert integers is None or row.integers[: len(integers)] == integers
    for figure in row.figures:
        assert figure.agrees
        assert figure.printed in row.published


# The papers' models.


@pytest.mark.parametrize(("width", "depth", "cycles"), [(3, 1, 45), (3, 3, 63), (3, 64, 99), (3, 128, 108)])
def test_decoilfnets_latency(width, depth, cycles):
    assert engines.convolution_latency(width, depth) == cycles


def test_decoilfnets_traffic():
    layers = shapes.load("vgg16:7").layers
    maps = [layers[0].input_words, *(layer.output_words for layer in layers)]
    assert [words / 224**2 for words in maps] == [3, 64, 64, 16, 32, 32, 8, 16]


def test_the_stall_is_a_map_of_conv2_2():
    """What conv2_2 adds beyond its fill: 112 rows of 112 pixels, 128 cycles each; 4,816,896 in all."""
    cycles = engines.prefix_cycles(shapes.load("vgg16:7").layers)
    step = cycles[4] - cycles[3] - 2 * 112 * 256
    assert step == 1_605_632
    assert 224**2 * 64 + step == 112 * (14_336 + 28_672) == 4_816_896


MACS = {
    "vgg16:7": (5_635_768_320, 554_688),
    "vgg16": (15_346_630_656, 14_710_464),
    "vgg19": (19_508_428_800, 20_018_880),
    "alexnet": (665_784_864, 2_332_704),
}


@pytest.mark.parametrize("name", MACS)
def test_work(name):
    network = shapes.load(name)
    assert (network.macs, network.weight_count) == MACS[name]


@pytest.mark.parametrize(
    ("name", "maps", "total"),
    [
        ("vgg16:7", 3_813_376, 6_032_128),
        ("vgg19:11", 1_404_928, 10_701_568),
        ("vgg16", 702_464, 59_544_320),
        ("vgg19", 702_464, 80_777_984),
        ("alexnet", 655_212, 9_986_028),
    ],
)
def test_least_traffic_in_bytes(name, maps, total):
    network = shapes.load(name)
    assert 4 * pyramid.map_traffic([network.layers]) == maps
    assert 4 * (pyramid.map_traffic([network.layers]) + network.weight_count) == total


def test_flownets_weights_and_maps():
    """Cecconi et al. 2017: 96 MB of weights (biases count), 32 MB of maps."""
    layers = shapes.load("flownets").layers
    assert round(4 * sum(layer.weight_count + layer.outputs for layer in layers) / 1e6, 2) == 96.2


def test_points_are_marked_for_the_networks_of_the_papers_only():
    assert {point.front for point in published.points(shapes.load("vgg16:7"))} == {"dsp_traffic", "dsp_cycles"}
    assert [point.label for point in published.points(shapes.load("vgg19:11"))] == ["B (thesis)", "C (thesis)"]
    assert not published.points(shapes.load("vgg19:10"))
    assert not published.points(shapes.load("vgg19:11@112x112"))
    assert list(published.depth_groups(shapes.load("vgg16:7")).values()) == [1, 1, 1, 1, 2, 1, 1]
    assert not published.depth_groups(shapes.load("vgg16:6"))
