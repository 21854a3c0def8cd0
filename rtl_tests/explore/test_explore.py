"""``hwgen explore``: fronts as a table, JSON and plots; what it refuses."""

from __future__ import annotations

import json
import sys

import pytest
from chains import ALEXNET, VGG_11

from hwgen import boards
from hwgen.cli import main as cli
from hwgen.errors import InputError, PlanError, ToolError
from hwgen.explore import published
from hwgen.explore.fronts import explore, listing
from hwgen.network import shapes
from hwgen.report import fronts


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
    with pytest.raises(PlanError, match="conv1: its 121 taps alone take more than the 100 DSP of small"):
        explore(shapes.load("alexnet"), boards.load(str(small)))


def test_what_is_left_out_is_told(run):
    status, out, _ = run("light_resnet50")
    assert status == 0
    assert "left out: a fork behind MaxPool n3" in out
    assert "left out: 21 other linear parts" in out


def test_listing_is_every_grouping():
    layers = shapes.load("vgg19:11").layers
    listed = listing(layers)
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
        (("vgg16", "--plot", "no/a.svg"), "output no/a.svg can't be written: there is no folder no"),
        (("vgg16", "--json", "no/a.json"), "output no/a.json can't be written: there is no folder no"),
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
