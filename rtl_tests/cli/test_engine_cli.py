"""Engines in folders: built, compiled for, run in Verilator by the command line, and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from needs import needs_compiler
from onnx_models import pictures, siamese
from programs import SMALL
from refusals import refusals_in

import hwgen
from hwgen import boards, work
from hwgen.api import design_of
from hwgen.cli import main as cli
from hwgen.emit import engine as folder
from hwgen.emit import manifest
from hwgen.errors import InputError
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network import golden
from hwgen.plan.engine import on_engine
from hwgen.program.compile import schedule
from hwgen.program.file import Program
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import frames
from hwgen.simulate.check import Mismatch
from hwgen.simulate.engine import EngineMemory
from hwgen.templates.engine import engine_group
from hwgen.tools import synthesis

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
#: Options of a plan on an engine of one core, whose array fills the DSP slices of an XC7Z020.
ONE_CORE = ["--template", "engine", "--cores", "1", "--array", "8x13", "--bus-bits", "64"]
MODEL = str(DIGITS / "digits.onnx")
MEMORY = MemoryTiming(pace=2, latency=11)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A small engine with a program of the digits network, in front of a memory of 4 bytes a cycle."""
    model = hwgen.load(MODEL)
    plan = on_engine(model.network, boards.load("zedboard"), SMALL, MEMORY)
    return design_of(model, plan).build(tmp_path_factory.mktemp("built") / "engine")


@pytest.fixture
def engine(built, tmp_path, monkeypatch) -> Path:
    """A copy of it in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(built, tmp_path / "engine"))


@pytest.fixture
def refuse(capfd):
    """Run a command that must be refused: status 2 and one line, which is given back."""

    def run(*arguments: object) -> str:
        capfd.readouterr()
        assert cli.main([str(argument) for argument in arguments]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("hwgen: ")
        return line

    return run


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """``make lint``, with the Verilator of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["make", "lint"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def expected_cycles(name: str, timing: MemoryTiming) -> int:
    """From ``start`` to ``done``, by a program that is compiled here."""
    jobs = schedule(hwgen.load(name).network, SMALL, pace=MEMORY.pace).jobs
    return START_CYCLES + EngineSchedule(SMALL, jobs, timing).run().cycles + DONE_CYCLES


def test_folder(built):
    names = {"engine.proofs.json", "engine_axi.proofs.json"}
    names |= {"engine.v", "engine.json", "digits.program", "plan.json", "report.md", "report.html", "manifest.json"}
    names |= {"Makefile", "lint.vlt", "engine_axi.v", "registers.json", "engine_registers.h", "engine_registers.py"}
    names |= {
        "engine_driver.py",
        "engine_linux.py",
        "engine_ooc.xdc",
        "engine_driver.c",
        "engine_driver.h",
        "component.xml",
        "package_ip.tcl",
        "project.tcl",
    }
    assert {path.name for path in built.iterdir()} == names
    assert manifest.read(built).keys() == names - {"manifest.json"}
    script = (built / "package_ip.tcl").read_text()
    assert f"\nset part {boards.load('zedboard').part}\n" in script
    assert "    digits.program\n" in script
    report = (built / "report.md").read_text()
    assert "`digits.program`" in report
    assert "| conv2" not in report  # the table of the plan is text
    assert "conv2  conv     16x8x8" in report
    assert json.loads((built / "engine.json").read_text())["engine"]["maps"] == SMALL.maps


@pytest.mark.long
@needs_compiler
def test_make_lint(engine):
    """Verilator minds nothing in the engine; what it does mind fails."""
    run = lint(engine)
    assert run.returncode == 0, run.stdout
    (engine / "lint.vlt").write_text("`verilator_config\n")
    run = lint(engine)
    assert run.returncode != 0
    assert "PROCASSINIT" in run.stdout


@pytest.mark.long
@needs_compiler
def test_run_on_an_engine(engine, capfd):
    """Digits that were held out: what ONNX Runtime gives, in the cycles and bytes of the schedule."""
    images = np.load(DIGITS / "images.npy")[:3]
    np.save("x.npy", images)
    arguments = [
        "simulate",
        MODEL,
        "--engine",
        str(engine),
        "--input",
        "x.npy",
        "--output",
        "y.npy",
        "--json",
        "y.json",
    ]
    assert cli.main(arguments) == 0
    cycles = expected_cycles(MODEL, MEMORY)
    assert f"latency {cycles:,} cycles; predicted {cycles:,}; interval {cycles:,}" in capfd.readouterr().out
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {session.get_inputs()[0].name: images})
    np.testing.assert_array_equal(np.load("y.npy"), expected)
    assert json.loads(Path("y.json").read_text())["cycles"]["interval"] == cycles
    # The program from its file, a faster memory, waves.
    arguments = ["simulate", MODEL, "--engine", str(engine), "--program", str(engine / "digits.program")]
    assert (
        cli.main([*arguments, "--random", "1", "--bandwidth", "0.8", "--memory-latency", "30", "--waves", "w.vcd"]) == 0
    )
    assert f"predicted {expected_cycles(MODEL, MemoryTiming(latency=30)):,}" in capfd.readouterr().out
    assert Path("w.vcd").stat().st_size > 0


@pytest.mark.long
@needs_compiler
def test_several_inputs(engine, capfd):
    """Two pictures and a mask, by their names in any order: outputs of the golden model, in the cycles predicted."""
    onnx.save(siamese(), "siamese.onnx")
    np.savez("c.npz", **pictures(8))
    given = pictures(2, seed=1)
    np.savez("x.npz", **dict(reversed(given.items())))
    model = ["siamese.onnx", "--calibration", "c.npz"]
    ran = ["--engine", str(engine), "--input", "x.npz", "--output", "y.npy", "--json", "y.json"]
    assert cli.main(["simulate", *model, *ran]) == 0
    said = json.loads(Path("y.json").read_text())
    assert said["mismatches"] == 0
    assert said["cycles"]["latency"] == said["cycles"]["predicted_latency"]
    expected = hwgen.load("siamese.onnx", calibration=pictures(8)).golden(given)
    np.testing.assert_array_equal(np.load("y.npy"), expected)


@pytest.mark.long
@needs_compiler
def test_where_a_difference_begins(engine):
    """All maps of a network stay in memory; of one whose weights are changed the first that differs is named."""
    circuit, memory = folder.read(engine), EngineMemory(timing=MEMORY)
    network = hwgen.load("resnet8@8x8").network
    given = np.random.default_rng(5).integers(0, 100, (2, *network.input.shape)).astype(network.input.type.dtype)
    expected = {layer.name: values[1] for layer, values in golden.trace(network, (given,))}
    made = schedule(network, SMALL, pace=MEMORY.pace)
    maps = frames.maps_of(circuit.verilog, made, [given[1]], memory)
    assert len(maps) > 6
    for name, values in maps.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)

    place = next(place for place, layer in enumerate(network.layers) if layer.name == "stack2_conv1")
    changed = replace(network.layers[place], weights=-network.layers[place].weights)
    other = replace(network, layers=(*network.layers[:place], changed, *network.layers[place + 1 :]))
    first = Mismatch(count=3, size=20, layer="", frame=1, channel=0, row=0, column=0, value=1, expected=2)
    found = frames.locate(circuit.verilog, schedule(other, SMALL), network, [given], memory, first)
    assert (found.layer, found.frame, found.count, found.size) == ("stack2_conv1", 1, 3, 20)
    assert found.expected == expected["stack2_conv1"][found.channel, found.row, found.column] != found.value
    assert frames.locate(circuit.verilog, made, network, [given], memory, first) is first


@pytest.mark.long
@needs_compiler
def test_another_network_on_the_engine(engine, capfd):
    """A program that was compiled for it."""
    assert cli.main(["compile", "autoencoder", "--engine", str(engine)]) == 0
    assert f"wrote {engine}/autoencoder.program: " in capfd.readouterr().out
    arguments = ["simulate", "autoencoder", "--engine", str(engine), "--program", str(engine / "autoencoder.program")]
    assert cli.main([*arguments, "--random", "2", "--jobs", "2"]) == 0
    assert "every one of 1,280 output values equals the golden model" in capfd.readouterr().out


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("bandwidth", ["0.8", "0.25"])
def test_networks_on_the_default_engine(tmp_path, monkeypatch, capfd, bandwidth):
    """One circuit; each network's interval is that of its plan, which is that of a run of the folder."""
    monkeypatch.chdir(tmp_path)
    how = ["--board", "zedboard", *ONE_CORE, "--bandwidth", bandwidth]
    assert cli.main(["build", MODEL, *how, "-o", "engine"]) == 0
    for name in (MODEL, "resnet8", "autoencoder"):
        assert cli.main(["plan", name, *how, "-o", "plan.json"]) == 0
        interval = json.loads(Path("plan.json").read_text())["cycles"]["interval"]
        assert cli.main(["simulate", name, "--engine", "engine", "--random", "3", "--json", "y.json"]) == 0
        result = json.loads(Path("y.json").read_text())
        assert (result["cycles"]["interval"], result["mismatches"]) == (interval, 0)


def test_plan_of_the_engine(engine, capfd):
    """The same program again, byte by byte."""
    arguments = ["compile", MODEL, "--engine", str(engine), "--plan", str(engine / "plan.json"), "-o", "again.program"]
    assert cli.main(arguments) == 0
    assert Path("again.program").read_bytes() == (engine / "digits.program").read_bytes()
    assert "engine of 8 maps by 5 pixels" in capfd.readouterr().out
    assert cli.main([*arguments, "--jobs", "2"]) == 0
    assert "--jobs has no effect: --plan gives a finished plan, so nothing is searched\n" in capfd.readouterr().out


def test_programs_of_several_frames(engine, refuse):
    where = ["--engine", str(engine)]
    assert cli.main(["compile", MODEL, *where, "--batch", "3", "-o", "three.program"]) == 0
    made = Program.read(Path("three.program"), SMALL)
    assert (made.batch, made) == (3, schedule(hwgen.load(MODEL).network, SMALL, pace=MEMORY.pace, frames=3).program)
    line = refuse("compile", MODEL, *where, "--batch", "2", "--plan", engine / "plan.json")
    assert line == "hwgen: a given plan states its batch: give --batch or --plan, not both"
    assert refuse("compile", MODEL, *where, "--batch", 999) == "hwgen: batch must be from 1 to 255 frames, not 999"
    line = refuse("simulate", MODEL, *where, "--batch", 2, "--program", "three.program", "--random", 1)
    assert line == "hwgen: --program is compiled for a fixed number of frames: leave --batch out, or recompile it"


# What is refused


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize(("name", "old", "new", "message"), refusals_in("engine_cli_changed.txt"))
def test_engines_that_were_changed(engine, refuse, name, old, new, message):
    changed(engine / name, old.encode(), new.encode())
    for arguments in (["compile", MODEL], ["simulate", MODEL, "--random", "1"]):
        assert message in refuse(*arguments, "--engine", engine)


def test_no_engine(refuse, tmp_path):
    assert "nowhere is not an engine that " in refuse("compile", MODEL, "--engine", tmp_path / "nowhere")
    assert "is not an engine that " in refuse("simulate", MODEL, "--random", "1", "--engine", tmp_path)


def test_programs_that_do_not_fit(engine, refuse):
    """Cut off, changed, none at all, of another network, of another engine."""
    program = engine / "digits.program"
    whole = program.read_bytes()
    run = ["simulate", MODEL, "--random", "1", "--engine", engine, "--program", program]
    for content, message in (
        (whole[:-1], "digits.program: must have "),
        (whole[:20], "is not a program of hwgen"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "has been changed or damaged, its checksum differs"),
        (b"", "is not a program of hwgen"),
    ):
        program.write_bytes(content)
        assert message in refuse(*run)
    program.write_bytes(whole)
    other = ["simulate", "autoencoder", "--random", "1", "--engine", engine, "--program", program]
    assert "program of digits is for another network: its maps are 1x8x8 uint8" in refuse(*other)
    program.unlink()
    assert "digits.program" in refuse(*run)


def test_programs_and_plans_of_another_engine(engine, refuse):
    assert cli.main(["plan", MODEL, "--board", "zedboard", *ONE_CORE, "-o", "plan.json"]) == 0
    line = refuse("compile", MODEL, "--engine", engine, "--plan", "plan.json")
    assert "the plan is for another engine (" in line
    assert cli.main(["plan", MODEL, "--board", "zedboard", "-o", "stream.json"]) == 0
    line = refuse("compile", MODEL, "--engine", engine, "--plan", "stream.json")
    assert "plan: it is not for an engine: its only group must have the template 'engine'" in line


def test_network_that_the_engine_can_not_compute(engine, refuse):
    assert "the engine computes conv with values of at most 8 bits" in refuse(
        "compile", "lenet5,int16", "--engine", engine
    )
    assert not (engine / "lenet5,int16.program").exists()


@pytest.mark.parametrize(("arguments", "message"), refusals_in("engine_cli_options_that_do_not_go_together.txt"))
def test_options_that_do_not_go_together(engine, refuse, arguments, message):
    assert message in refuse("simulate", MODEL, "--random", "1", "--engine", engine, *arguments)


def test_files_of_the_engine_are_not_overwritten(engine, refuse):
    """They are read; programs and the page may lie beside them."""
    whole = (engine / "engine.json").read_bytes()
    for name in ("engine.json", "engine.v"):
        for arguments in (["compile", MODEL, "-o"], ["simulate", MODEL, "--random", "1", "--json"]):
            line = refuse(*arguments, engine / name, "--engine", engine)
            assert f"{engine / name} would overwrite what --engine reads: give another file" in line
    assert (engine / "engine.json").read_bytes() == whole
    (engine / "engine.program").touch()
    assert cli.main(["compile", MODEL, "--engine", str(engine), "-o", str(engine / "engine.program")]) == 0


def test_what_can_not_be_run(engine, refuse):
    """Also in Python: each has one line of its own."""
    run = ["simulate", MODEL, "--random", "1", "--engine", engine]
    assert "waves of verilator must end in .vcd or .fst, not 'w.txt'" in refuse(*run, "--waves", "w.txt")
    model = hwgen.load(MODEL)
    frames = model.random_frames(1)
    with pytest.raises(InputError, match=r"^program .*none\.program can't be read: No such file"):
        model.run(engine, engine / "none.program", frames)
    with pytest.raises(InputError, match=r"^memory_latency must be a number of cycles, 0 or more, not -1$"):
        model.compile(engine).simulate(frames, memory_latency=-1)


def test_an_array_is_planned_for_the_memory_that_it_is_run_with(monkeypatch, refuse):
    """As with the template's name: 0.2 GB/s are 8 bytes in 4 cycles of 100 MHz."""
    found = []

    def planned_only(design, *_, **__):
        found.append(design)
        raise InputError("planned")

    monkeypatch.setattr(hwgen.Design, "simulate", planned_only)
    for options in (ONE_CORE, ONE_CORE[2:]):
        assert "planned" in refuse(
            "simulate", MODEL, "--board", "zedboard", *options, "--bandwidth", "0.2", "--random", "1"
        )
    one, other = (engine_group(design.plan.groups[0]) for design in found)
    assert one.template.memory == other.template.memory == MemoryTiming(pace=4)
    assert one.schedule.jobs == other.schedule.jobs


def test_options_of_engines_alone(refuse):
    assert "no board or design is given: give --board, --design DIR or --engine DIR" in refuse(
        "simulate", MODEL, "--random", "1"
    )
    line = refuse("simulate", MODEL, "--random", "1", "--board", "zedboard", "--program", "p")
    assert "--program needs an engine to run on: give the engine's folder with --engine" in line


def test_synthesis_of_the_engine(tmp_path, monkeypatch, capsys):
    """Yosys is given each component of the planned engine, once; what it makes of them is tested in
    test_resources.py."""
    given = []

    def measure(parts, device):
        given.extend(type(part).__name__ for part in parts)
        return [Resources(lut=7, ff=5) for _ in parts]

    monkeypatch.setattr(synthesis, "measure", measure)
    monkeypatch.setattr(work, "pool", lambda *_: nullcontext())  # in this process
    sizes = ["--template", "engine", "--cores", "1", "--array", "8x5"]
    arguments = ["--board", "zedboard", *sizes, "--json", str(tmp_path / "s.json")]
    assert cli.main(["synth", MODEL, *arguments]) == 0
    names = ["memory_side", "steps", "lanes", "maps", "weights", "array", "drains", "finish"]
    document = json.loads((tmp_path / "s.json").read_text())
    assert [part["name"] for part in document["components"]] == [f"engine.{name}" for name in names]
    assert len(given) == len(set(given)) == len(names)
    assert document["total"] == {"dsp": 0, "bram36": 0, "lut": 8 * 7, "ff": 8 * 5}
    # 8 maps by 5 pixels by 4 channels, the weights of two maps in a slice, and eight lanes that requantise.
    assert document["estimate"]["dsp"] == 8 * 5 * 4 // 2 + 8
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == "total"
