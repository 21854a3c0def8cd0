"""Published against computed: every integer behind the page, and the printed digits that come out."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from papers import engines, fused, schedules
from papers.rows import Figure, Row

from hwgen.explore import published, pyramid
from hwgen.network import shapes

ROOT = Path(__file__).resolve().parents[2]
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
    ("T 3.4.5", "operations a byte, layer by layer", "exact", (8_784_600, 105_737, 5_598_720, 34_429)),
    # 1,791,808 operations over 6,860 B
    ("T 3.4.5", "operations a byte, fused", "fit", (447_952, 1_715)),
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
