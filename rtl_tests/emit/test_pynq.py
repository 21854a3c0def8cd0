"""Programs that docs/ shows for a board and for a design of one's own, on what `hwgen build` wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from programs import SMALL, given_frame
from pynq_model import pynq_module

import hwgen
from hwgen.emit import driver, engine_wrapper
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.program.compile import schedule
from hwgen.program.layout import pack_map

ROOT = Path(__file__).resolve().parents[2]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples" / "digits"
NAME = "decoilfnet_example"


@pytest.fixture(scope="module")
def model() -> hwgen.Model:
    return hwgen.load("decoilfnet-example")


@pytest.fixture(scope="module")
def built(model, tmp_path_factory) -> Path:
    return model.plan("pynq-z2", dsp=20, multipliers="dsp").build(tmp_path_factory.mktemp("built") / "out")


def block(page: str, word: str, name: str = NAME) -> str:
    """The program on a page with a word in it; of this network in place of the digits."""
    found = re.findall(r"^```\w*\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    (text,) = (each for each in found if word in each)
    return text.replace("digits", name)


def test_the_program_on_the_board(model, built, tmp_path, monkeypatch, capsys):
    """docs/howto/pynq.md, from the folder that project.tcl makes; the golden model plays PYNQ and the hardware."""
    for name in (f"{NAME}_driver.py", "registers.json", "plan.json"):
        shutil.copy(built / name, tmp_path)
    frames = model.random_frames(5)
    expected = model.golden(frames)
    np.save(tmp_path / "images.npy", frames)
    np.save(tmp_path / "labels.npy", expected.argmax(axis=1))
    monkeypatch.setitem(sys.modules, "pynq", pynq_module(model, tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(block("howto/pynq.md", "digits_driver import connect"), "classify.py", "exec"), {})
    finally:
        sys.modules.pop(f"{NAME}_driver", None)
    said = capsys.readouterr().out
    assert said.startswith("100.00% of the ")
    assert "'S_AXIS_STARVED': 0" in said


class Played(dict[int, int]):
    """The engine's registers, and the golden model in its place: of a network, on a program's memory."""

    def __init__(self, document: dict[str, Any], network: Network):
        super().__init__({each["offset"]: each["reset"] for each in document["registers"]})
        self.offsets = {each["name"]: each["offset"] for each in document["registers"]}
        self.network, self.program = network, schedule(network, SMALL).program
        self.memories: dict[int, np.ndarray] = {}  # by address: the driver writes one while the engine reads another

    def allocate(self, shape: tuple[int], dtype: Any) -> np.ndarray:
        class Buffer(np.ndarray):
            physical_address = 0x1000_0000 * (len(self.memories) + 1)

        memory = np.zeros(shape, dtype).view(Buffer)
        self.memories[memory.physical_address] = memory
        return memory

    def write(self, offset: int, value: int) -> None:
        if (offset, value) != (self.offsets["CONTROL"], 1):
            self[offset] = value
            return
        (source, result), (output,) = (self.program.inputs[0], self.program.outputs[0]), self.network.output_maps
        memory = self.memories[self[self.offsets["PROGRAM_BASE"]]]
        packed = memory[source.address :][: source.size].tobytes()
        (values,) = golden.outputs(self.network, given_frame(packed, source)[None])
        content = np.frombuffer(pack_map(values[0], output.type), np.uint8)
        memory[result.address :][: len(content)] = content
        self[self.offsets["STATUS"]] = 8


def test_the_engine_on_the_board(tmp_path, monkeypatch):
    """docs/howto/pynq.md: the digits network, and a program of another one behind it."""
    digits = hwgen.load(EXAMPLES / "digits.onnx")
    document = engine_wrapper.to_json(EngineShellConfig(engine=SMALL), "engine_axi")
    played = Played(document, digits.network)
    (tmp_path / "registers.json").write_text(json.dumps(document))
    (tmp_path / "engine_driver.py").write_bytes(Path(driver.__file__).read_bytes())
    for name in ("digits.program", "resnet8.program"):
        (tmp_path / name).write_bytes(bytes(played.program))
    images = np.load(EXAMPLES / "images.npy")[:3]
    np.save(tmp_path / "images.npy", images)
    pynq: Any = ModuleType("pynq")
    pynq.__spec__ = ModuleSpec("pynq", None)
    control = SimpleNamespace(read=played.get, write=played.write)
    pynq.Overlay = lambda name: SimpleNamespace(engine_axi_0=control) if name == str(tmp_path / "engine.bit") else None
    pynq.allocate = played.allocate
    monkeypatch.setitem(sys.modules, "pynq", pynq)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    try:
        exec(compile(block("howto/pynq.md", "engine_driver import connect", "digits"), "classify.py", "exec"), found)
    finally:
        sys.modules.pop("engine_driver", None)
    np.testing.assert_array_equal(found["logits"], digits.golden(images))


@pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus: apt install iverilog")
def test_the_module_in_a_design(built, tmp_path):
    """docs/howto/vivado.md: every port of the wrapper, with its width; Icarus says nothing of it."""
    text = block("howto/vivado.md", "module system")
    (tmp_path / "system.v").write_text(text)
    sources = [tmp_path / "system.v", built / f"{NAME}_axi.v", built / f"{NAME}.v"]
    command = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-t", "null", "-s", "system", *map(str, sources)]
    done = subprocess.run(command, cwd=built, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (ports,) = re.findall(rf"^module {NAME}_axi \((.*?)^\);", sources[1].read_text(), re.MULTILINE | re.DOTALL)
    known = re.findall(r"wire (?:\[\d+:0\] )?(\w+),?$", ports, re.MULTILINE)
    assert sorted(re.findall(r"\.(\w+)\(", text)) == sorted(known)


def test_pages_name_what_is_there(built):
    """Files and addresses that both pages speak of."""
    there = {path.name.replace(NAME, "digits") for path in built.iterdir()}
    made = {"digits.bit", "digits.xsa", "digits.xpr", "digits.onnx", "images.npy", "labels.npy"}
    made |= {"digits.program"}  # of the engine
    for page in ("howto/pynq.md", "howto/vivado.md"):
        text = (DOCS / page).read_text()
        named = set(re.findall(r"\b((?:digits\w*|plan|registers|project|package_ip|images|labels)\.(?!md\b)\w+)", text))
        assert named <= there | made, page
        script = (built / "project.tcl").read_text()
        assert all(each in script for each in re.findall(r"0x4\d[0-9A-F]{6}", text))
