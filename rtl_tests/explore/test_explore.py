"""``hwgen explore`` and sweeps: fronts as a table, JSON and plots, against all pairs; what they refuse."""

import csv
import importlib.util
import io
import json
import os
import re
import sys
from itertools import product
from pathlib import Path

import html5lib
import numpy as np
import pytest
from chains import ALEXNET, VGG_11
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals_in

import hwgen
from hwgen import boards
from hwgen.cli import main as cli
from hwgen.errors import InputError, PlanError, ToolError
from hwgen.explore import published
from hwgen.explore.fronts import all_groupings, explore
from hwgen.explore.sweep import mark_front, require_pyarrow
from hwgen.network import shapes
from hwgen.options.kinds import numbers
from hwgen.report import fronts, notebook
from hwgen.report import sweep as report


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run ``hwgen explore`` in an empty folder; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        status = cli.main(["explore", *map(str, arguments)])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return command


@pytest.mark.parametrize(("arguments", "front"), [(("vgg19", "--first", 11), VGG_11), (("alexnet",), ALEXNET)])
def test_fronts_of_the_thesis(run, tmp_path, arguments, front):
    status, out, _ = run(*arguments, "--json", "fronts.json")
    assert status == 0
    written = json.loads((tmp_path / "fronts.json").read_text())
    points = written["fronts"]["storage_traffic"]
    kilobytes = [(p["storage_words"] * 4 / 1024, p["traffic_words"] * 4 / 1_024_000) for p in points]
    assert [(round(a, 2), round(b, 3)) for a, b in kilobytes] == front
    lines = [line.split() for line in out.splitlines()]
    for storage, traffic in front:
        assert any(line[:2] == [f"{storage:.2f}", f"{traffic:.3f}"] for line in lines)


def test_json(run, tmp_path):
    status, _, _ = run("vgg16:7", "--json", "fronts.json")
    assert status == 0
    written = json.loads((tmp_path / "fronts.json").read_text())
    names = [layer["name"] for layer in written["layers"]]
    assert names == ["conv1_1", "conv1_2", "pool1", "conv2_1", "conv2_2", "pool2", "conv3_1"]
    fronts = written["fronts"]
    keys = {
        "storage_traffic": {"groups", "storage_words", "traffic_words"},
        "storage_multiplications": {"groups", "overlap", "storage_words", "multiplications", "traffic_words"},
        "dsp_traffic": {"groups", "dsp", "traffic_words"},
        "dsp_cycles": {"dsp", "cycles", "unroll"},
    }
    assert fronts.keys() == keys.keys()
    for name, points in fronts.items():
        first = "dsp" if name.startswith("dsp") else "storage_words"
        assert [p[first] for p in points] == sorted(p[first] for p in points)
        for point in points:
            assert point.keys() == keys[name]
            if "groups" in point:
                assert [layer for group in point["groups"] for layer in group] == names
            else:
                assert [unroll["name"] for unroll in point["unroll"]] == names
    for name, (first, second) in {
        "storage_traffic": ("storage_words", "traffic_words"),
        "dsp_traffic": ("dsp", "traffic_words"),
        "dsp_cycles": ("dsp", "cycles"),
    }.items():
        values = [(point[first], point[second]) for point in fronts[name]]
        assert values == sorted(set(values), key=lambda value: (value[0], -value[1]))
        assert [value[1] for value in values] == sorted({value[1] for value in values}, reverse=True)


def test_unrolling_of_vggs_first_seven_layers():
    """published.md's optimum of the family, and below DeCoILFNet's 5,034,000 cycles with as many DSPs."""
    points = {point.dsp: point.cycles for point in explore(shapes.load("vgg16:7")).dsp_cycles}
    assert min(cycles for dsp, cycles in points.items() if dsp <= 3600) == 1_605_632
    assert min(cycles for dsp, cycles in points.items() if dsp <= 2907) <= 2_007_040


def test_unrolling_takes_what_it_says():
    network = shapes.load("alexnet")
    for point in explore(network).dsp_cycles:
        dsp, slowest = 0, 0
        for layer, unroll in zip(network.layers, point.unroll, strict=True):
            if layer.kind == "conv":
                dsp += unroll.tn * unroll.tm * unroll.tk * unroll.tp
                folds = -(-layer.channels // layer.groups // unroll.tn) * -(-layer.outputs // layer.groups // unroll.tm)
                work = layer.output_height * -(-layer.output_width // unroll.tp) * layer.groups * folds
                slowest = max(slowest, work * -(-layer.taps // unroll.tk))
        assert dsp == point.dsp
        assert slowest <= point.cycles


def test_a_board_marks_what_fits(run, tmp_path):
    status, out, _ = run("vgg16:7", "--board", "zedboard", "--json", "fronts.json")
    assert status == 0
    written = json.loads((tmp_path / "fronts.json").read_text())
    assert written["board"] == "zedboard"
    words = 140 * 36_864 // 32
    for points in (written["fronts"]["storage_traffic"], written["fronts"]["storage_multiplications"]):
        assert all(point["fits"] == (point["storage_words"] <= words) for point in points)
    for points in (written["fronts"]["dsp_traffic"], written["fronts"]["dsp_cycles"]):
        assert all(point["fits"] == (point["dsp"] <= 220) for point in points)
        assert {point["fits"] for point in points} == {True, False}
    assert "  fits  " in out


def test_a_layer_too_large_for_the_board_takes_depth_groups():
    layers = shapes.load("vgg16:7")
    groups = published.depth_groups(layers)
    result = explore(layers, boards.load("zedboard"), depth_groups=groups)
    # 220 slices hold 24 input channels of nine taps; 64 are three groups, 22 and 22 and 20
    assert result.multipliers == (27, 9 * 22, 0, 9 * 22, 9 * 22, 0, 9 * 22)
    assert explore(layers, depth_groups=groups).multipliers == (27, 576, 0, 576, 576, 0, 1152)


def test_a_board_too_small_for_one_channel(tmp_path):
    small = tmp_path / "small.toml"
    small.write_text(
        'device = "d"\npart = "p"\nlut = 1\nff = 1\ndsp = 100\nbram36 = 1\nclock_mhz = 1\nmemory_gb_s = 1\n'
        'description = "x"\n'
    )
    with pytest.raises(PlanError, match="conv1: 121 taps need more than the 100 DSP slices of small"):
        explore(shapes.load("alexnet"), boards.load(str(small)))


def test_what_is_left_out_is_told(run):
    status, out, _ = run("light_resnet50")
    assert status == 0
    assert "left out: a fork after MaxPool n3" in out
    assert "left out: 21 other linear parts" in out


def test_listing_is_every_grouping():
    layers = shapes.load("vgg19:11").layers
    listed = all_groupings(layers)
    assert len(listed) == 1024
    assert {(29_184, 18_816_000), (179_568, 351_232), (29_184, 28_449_792)} <= set(listed)


@pytest.mark.long
def test_plots(run, tmp_path):
    pytest.importorskip("matplotlib")
    for model, name, head in (("vgg16:7", "a.svg", b"<?xml"), ("vgg16:3", "b.png", b"\x89PNG")):
        status, _, _ = run(model, "--plot", name)
        assert status == 0
        assert (tmp_path / name).read_bytes().startswith(head)
    picture = (tmp_path / "a.svg").read_text()
    assert "Table IV (DeCoILFNet)" in picture  # published points, by name
    assert "every grouping" in picture
    run("vgg16:7", "--plot", "c.svg")
    assert (tmp_path / "c.svg").read_text() == picture


@pytest.mark.long
def test_published_points_only_where_they_belong():
    pytest.importorskip("matplotlib")
    for name, board in (("vgg19:11", None), ("vgg19:4", boards.load("vc709"))):
        network = shapes.load(name)
        found = explore(network, board, published=published.points(network))
        assert (b"thesis" in fronts.plot(found)) == (board is None)


def test_without_matplotlib(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run("vgg16:3", "--plot", "a.svg", "--json", "a.json")
    assert (status, out) == (2, "")
    assert err.startswith("hwgen: plots need matplotlib, which is not installed: ")
    assert err.endswith(" -m pip install 'matplotlib>=3.8'\n")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ToolError):
        fronts.plot(explore(shapes.load("vgg16:3")), "png")


def test_other_kinds_of_plots():
    with pytest.raises(InputError, match="a plot must be one of svg, png, not 'pdf'"):
        fronts.plot(explore(shapes.load("vgg16:3")), "pdf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vgg20",), "unknown model 'vgg20'"),
        (("vgg16", "--first", "19"), "vgg16 has 18 layers; the first must be 1 to that, not 19"),
        (("vgg16", "--first", "0"), "argument --first: must be a positive integer, not '0'"),
        (("vgg16", "--first", "-3"), "argument --first: must be a positive integer, not '-3'"),
        (("vgg16", "--first", "two"), "argument --first: must be a positive integer, not 'two'"),
        (("vgg16", "--board", "zedbord"), "unknown board 'zedbord'; did you mean 'zedboard'?"),
        (("vgg16", "--plot", "a.pdf"), "plot a.pdf must end in .svg or .png, not '.pdf'"),
        (("vgg16", "--plot", "a"), "plot a must end in .svg or .png, not ''"),
        (
            ("vgg16", "--plot", "no/a.svg"),
            "output no/a.svg can't be written: folder no does not exist; create it first",
        ),
        (
            ("vgg16", "--json", "no/a.json"),
            "output no/a.json can't be written: folder no does not exist; create it first",
        ),
        (("missing.onnx",), "missing.onnx: no such file"),
        ((), "the following arguments are required: MODEL"),
    ],
)
def test_refusals(run, tmp_path, arguments, message):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


DIGITS = str(Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx")
SMALL = "decoilfnet-example"


@pytest.fixture(scope="module")
def small():
    return hwgen.load(SMALL)


@pytest.fixture(scope="module")
def table(small):
    return hwgen.sweep(
        small,
        ["zedboard", "vc709"],
        dsp=[9, 40, 100, 300],
        multipliers="dsp",
        macs_per_dsp=[1, 2],
        template="stream",
        jobs=1,
    )


def test_every_row_is_the_planners(small, table):
    asked = list(product(["zedboard", "vc709"], [9, 40, 100, 300], [1, 2]))
    assert [(row["board"], row["asked_dsp"], row["asked_macs_per_dsp"]) for row in table.rows] == asked
    for row, (board, dsp, macs) in zip(table.rows, asked, strict=True):
        options = {"dsp": dsp, "multipliers": "dsp", "macs_per_dsp": macs, "template": "stream"}
        if row["refusal"] is not None:
            with pytest.raises(PlanError, match=f"^{re.escape(row['refusal'])}$"):
                small.plan(board, **options)
            assert row["interval"] is row["dsp"] is row["clock_mhz"] is None
            assert not row["front"]
            continue
        design = small.plan(board, **options)
        assert (row["latency"], row["interval"]) == (design.latency, design.interval)
        assert {name: row[name] for name in ("dsp", "bram36", "lut", "ff")} == design.resources
        assert row["interval_ms"] == pytest.approx(design.interval / design.board.clock_mhz / 1e3)
        assert row["fps"] == pytest.approx(design.board.clock_mhz * 1e6 / design.interval)
        assert (row["model"], row["templates"], row["groups"]) == (SMALL, "stream", 1)
        # One byte a value of input and output, as docs/reference/plan.md has it.
        maps = (*small.network.input_maps, *small.network.output_maps)
        assert row["map_bytes"] == sum(int(np.prod(each.shape)) * each.type.dtype.itemsize for each in maps)
    assert 0 < len(table.planned) < len(table.rows)  # 300 slices are more than the ZedBoard's 220


def beaten(row, rows, goals):
    """By the words of the documentation."""
    good = [other for other in rows if other["model"] == row["model"] and other["refusal"] is other["obstacle"] is None]
    return any(
        all(other[goal] <= row[goal] for goal in goals) and any(other[goal] < row[goal] for goal in goals)
        for other in good
    )


@given(st.data())
def test_the_front_is_what_nothing_beats(data):
    goals = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    costs = st.integers(0, 5)
    made = st.fixed_dictionaries(
        {
            "model": st.sampled_from(["one", "two"]),
            "refusal": st.sampled_from([None, None, None, "why"]),
            "obstacle": st.sampled_from([None, None, None, "why"]),
            **dict.fromkeys("abc", costs),
        }
    )
    rows = mark_front(data.draw(st.lists(made, max_size=30)), goals)
    for number, row in enumerate(rows):
        good = row["refusal"] is row["obstacle"] is None
        same = [each for each in rows[:number] if each["model"] == row["model"] and each["front"]]
        twin = any(all(each[goal] == row[goal] for goal in goals) for each in same)
        assert row["front"] == (good and not twin and not beaten(row, rows, goals))


def test_csv_says_the_same(table):
    rows = list(csv.DictReader(io.StringIO(table.csv().decode())))
    assert len(rows) == len(table.rows)
    for found, row in zip(rows, table.rows, strict=True):
        assert list(found) == list(row)
        assert found["front"] == ("yes" if row["front"] else "no")
        for name in ("asked_dsp", "interval", "dsp", "bram36", "fps"):
            assert found[name] == ("" if row[name] is None else str(row[name]))


def test_parquet_says_the_same(small):
    pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'hwgen[parquet]'")
    import pyarrow.parquet

    options = {"macs_per_dsp": [1, "auto"], "tile": [(4, 4), (2, 2)], "dsp": [100, 300]}
    table = hwgen.sweep(small, "zedboard", template="pyramid", jobs=1, **options)
    found = pyarrow.parquet.read_table(io.BytesIO(table.parquet())).to_pylist()
    assert [row["asked_macs_per_dsp"] for row in found] == ["1"] * 4 + ["auto"] * 4
    assert [row["asked_tile"] for row in found] == ["4x4", "4x4", "2x2", "2x2"] * 2
    for name in ("model", "asked_dsp", "interval", "interval_ms", "dsp", "bram36", "refusal", "front"):
        assert [row[name] for row in found] == [row[name] for row in table.rows]


def test_the_summary_counts(table):
    text = report.summary(table, "table.csv")
    assert (
        f"16 plans requested; {len(table.planned)} found; {16 - len(table.planned)} refused, the first because: "
        in text
    )
    best = table.best(SMALL)
    assert f"{SMALL}: Pareto front in interval and DSP, {len(best)} of 16 plans" in text
    assert [row["interval_ms"] for row in best] == sorted(row["interval_ms"] for row in best)


def test_a_notebook_shows_the_plans(table, monkeypatch):
    """All of them, those of the front marked and bold; of very many only the front."""
    page = html5lib.parseFragment(table._repr_html_(), namespaceHTMLElements=False)
    (head, *rows) = [list(row) for row in page.iter("tr")]
    assert [cell.text for cell in head][:5] == ["front", "board", "dsp", "macs_per_dsp", "interval"]
    assert len(rows) == len(table.planned)
    for row, plan in zip(rows, table.planned, strict=True):
        asked = [plan["board"], *(str(plan[f"asked_{name}"]) for name in ("dsp", "macs_per_dsp"))]
        assert [cell.text for cell in row[1:5]] == [*asked, f"{plan['interval']:,}"]
        assert (row[0].text == "*") == ("bold" in row[1].attrib["style"]) == plan["front"]
    assert f"16 plans requested; {len(table.planned)} found" in "".join(page.itertext())
    monkeypatch.setattr(notebook, "MAX_ROWS", 3)
    page = html5lib.parseFragment(table._repr_html_(), namespaceHTMLElements=False)
    assert len(list(page.iter("tr"))) == 1 + len(table.best(SMALL))


@pytest.mark.long
def test_processes_make_the_same_table(small, table):
    options = {"dsp": [9, 40, 100, 300], "multipliers": "dsp", "macs_per_dsp": [1, 2], "template": "stream"}
    assert hwgen.sweep(small, ["zedboard", "vc709"], jobs=2, **options) == table


@pytest.mark.parametrize(
    ("text", "integers", "expected"),
    [
        ("5", True, [5]),
        ("50:220:10", True, list(range(50, 221, 10))),
        ("50:219:10", True, list(range(50, 211, 10))),
        ("7,20:30:5,100", True, [7, 20, 25, 30, 100]),
        ("0.1:0.5:0.1", False, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("1e2", False, [100.0]),
        ("3:3:1", True, [3]),
    ],
)
def test_ranges(text, integers, expected):
    assert numbers(text, integers) == expected


def sweep(*arguments):
    return cli.main(["sweep", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *refusals_in("explore_refusals_of_a_sweep.txt"),
        (["-o", DIGITS], "would overwrite the model"),
    ],
)
def test_refusals_of_a_sweep(tmp_path, monkeypatch, capfd, arguments, said):
    monkeypatch.chdir(tmp_path)
    board = [] if "--board" in arguments else ["--board", "zedboard"]
    assert sweep(DIGITS, *board, *arguments) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_sweep_on_the_command_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    budgets = ["--board", "zedboard", "--dsp", "60:100:40", "--multipliers", "dsp"]
    assert sweep(SMALL, DIGITS, *budgets, "--front", "latency,lut") == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.endswith("4 plans requested; 4 found\nwrote sweep.csv: 4 rows\n")
    rows = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert [row["model"] for row in rows] == [SMALL] * 2 + ["digits"] * 2
    assert {row["front"] for row in rows} <= {"yes", "no"}
    assert os.listdir() == ["sweep.csv"]


@pytest.mark.long
def test_options_with_one_value(small, tmp_path, monkeypatch, capfd):
    """Groups, weights and the end of the model are the same for all points."""
    monkeypatch.chdir(tmp_path)
    assert sweep(SMALL, "--board", "zedboard", "--dsp", "60,100", "--groups", "conv1-conv2,pool1", "--in-turn") == 0
    assert "2 plans requested; 2 found" in capfd.readouterr().out
    for row in csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()):
        plan = small.plan("zedboard", dsp=int(row["asked_dsp"]), groups="conv1-conv2,pool1", in_turn=True).plan
        assert (row["asked_groups"], row["asked_in_turn"], row["groups"]) == ("conv1-conv2,pool1", "yes", "2")
        assert (int(row["latency"]), row["obstacle"]) == (plan.latency, plan.obstacle or "")
    assert (
        sweep(DIGITS, "--part", "xc7z010clg400-1", "--dsp", "40", "--weights", "runtime", "--until", "pool1_out") == 0
    )
    (row,) = csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines())
    design = hwgen.load(DIGITS, until="pool1_out").plan("xc7z010clg400-1", dsp=40, weights="runtime")
    assert (int(row["interval"]), int(row["lut"])) == (design.interval, design.resources["lut"])


@pytest.mark.long
def test_no_plan_at_all(tmp_path, monkeypatch, capfd):
    """The table says why, and the status that there is none."""
    monkeypatch.chdir(tmp_path)
    assert sweep(SMALL, "--board", "zedboard", "--dsp", "1,500") == 1
    assert capfd.readouterr().err == "hwgen: no plan was found; each row of the table states why\n"
    rows = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert rows[1]["refusal"] == "dsp must be between 1 and the 220 slices of zedboard, not 500"


def test_without_pyarrow_its_package_is_named(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hwgen.ToolError, match=r"^Parquet needs pyarrow, which is not installed: .* -m pip install "):
        require_pyarrow()


def test_two_networks_of_one_name_are_refused(small):
    with pytest.raises(InputError, match=rf"^networks of a sweep must have different names, not {SMALL} twice$"):
        hwgen.sweep([small, small], "zedboard")


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, "2"])
def test_jobs_that_make_no_sense(small, jobs):
    with pytest.raises(InputError, match=rf"^jobs must be a positive integer, not {jobs!r}$"):
        hwgen.sweep(small, "zedboard", jobs=jobs)


def test_options_without_a_value_are_refused(small):
    with pytest.raises(InputError, match=r"^dsp of a sweep must be one or more, not none$"):
        hwgen.sweep(small, "zedboard", dsp=[])
    with pytest.raises(InputError, match=r"^unknown option speed: a plan has "):
        hwgen.sweep(small, "zedboard", speed=[1])
