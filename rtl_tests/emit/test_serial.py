"""The top behind a serial port, whole in Verilator on a pseudo-terminal: exact outputs, and lost bytes as errors."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from amaranth.build import Attrs, Pins, Resource, Subsignal

import hwgen
from hwgen import boards
from hwgen.emit import serial
from hwgen.gateware.stream import BeatFormat, Port

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
PLL = """
module EHXPLLL #(
    parameter PLLRST_ENA = "", INTFB_WAKE = "", STDBY_ENABLE = "", DPHASE_SOURCE = "", OUTDIVIDER_MUXA = "",
    OUTDIVIDER_MUXB = "", OUTDIVIDER_MUXC = "", OUTDIVIDER_MUXD = "", CLKI_DIV = 1, CLKFB_DIV = 1, FEEDBK_PATH = "",
    CLKOP_ENABLE = "", CLKOP_DIV = 1, CLKOP_CPHASE = 0, CLKOP_FPHASE = 0
) (
    input wire RST, STDBY, CLKI, CLKFB, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG, PLLWAKESYNC, ENCLKOP,
    output wire CLKOP, output wire LOCK
);
    reg [3:0] count = 0;
    always @(posedge CLKI) count <= count + !LOCK;
    assign CLKOP = CLKI;
    assign LOCK = &count;
endmodule
"""
"""Model of the PLL: the clock itself, after some cycles."""


def port(name: str, channels: int, side: int, bits: int = 8) -> Port:
    beat = BeatFormat(channels=channels, height=side, width=side, lanes=1, bits=bits, signed=False)
    return Port(name, beat, beat.raster)


def test_the_board_decides():
    """Boards with an open flow and values of a byte have the top; its clock is that of the PLL's dividers."""
    config: Any = SimpleNamespace(name="net", input_ports=(port("i", 1, 8),), output_ports=(port("o", 3, 2),))
    assert serial.files(config, "net", boards.load("zedboard"), 0) == {}
    wide: Any = SimpleNamespace(name="net", input_ports=(port("i", 1, 8, 16),), output_ports=(port("o", 3, 2),))
    board = boards.load("ulx3s")
    assert serial.files(wide, "net", board, 0) == {}
    files = serial.files(config, "net", board, 0)
    assert sorted(files) == ["net_link.v", "net_serial.lpf", "net_serial.py", "net_serial.v"]
    pins = files["net_serial.lpf"].decode()
    for name, pin in (("clk", "G2"), ("rx", "M1"), ("tx", "L4")):  # ULX3S: clk_25mhz, ftdi_txd, ftdi_rxd
        assert f'LOCATE COMP "{name}" SITE "{pin}";' in pins
    assert serial.baud_of(100) == 2_000_000
    dividers = serial.dividers(board)
    assert dividers is not None
    divider, feedback, output = dividers
    assert 25 * feedback / divider == board.clock_mhz
    assert 400 <= board.clock_mhz * output <= 800


@pytest.mark.parametrize(("clock", "expected"), [(50, (1, 2, 8)), (62.5, (2, 5, 7)), (75, (1, 3, 6)), (100, (1, 4, 4))])
def test_dividers(clock, expected):
    assert serial.dividers(replace(boards.load("ulx3s"), clock_mhz=clock)) == expected


def test_phase_detector():
    """60 MHz of 25 MHz takes a phase detector at 5 MHz, which is too slow: there is no top, and a line says why."""
    config: Any = SimpleNamespace(name="net", input_ports=(port("i", 1, 8),), output_ports=(port("o", 3, 2),))
    board = replace(boards.load("ulx3s"), clock_mhz=60.0)
    assert serial.dividers(board) is None
    assert serial.link_of(config, "net", board, 0) is None
    assert "phase detector of at least 10 MHz" in str(serial.clock_remark(config, board))
    assert serial.clock_remark(config, boards.load("ulx3s")) is None


@pytest.mark.parametrize(
    "platform",
    ["amaranth_boards.orangecrab_r0_2:OrangeCrabR0_2Platform", "amaranth_boards.versa_ecp5:VersaECP5Platform"],
    ids=["without-uart", "differential-clock"],
)
def test_boards_without_the_pins(platform):
    config: Any = SimpleNamespace(name="net", input_ports=(port("i", 1, 8),), output_ports=(port("o", 3, 2),))
    board = replace(boards.load("ulx3s"), platform=platform, clock_mhz=100.0)
    assert serial.files(config, "net", board, 0) == {}
    assert serial.clock_remark(config, board) is None


def test_types_of_pins():
    """Pins have the I/O type that the platform states."""

    class Platform:
        default_clk, default_clk_frequency = "clk", 12e6
        resources: ClassVar = {
            ("clk", 0): Resource("clk", 0, Pins("A1", dir="i"), Attrs(IO_TYPE="LVCMOS18")),
            ("uart", 0): Resource(
                "uart",
                0,
                Subsignal("rx", Pins("B1", dir="i"), Attrs(IO_TYPE="LVCMOS25")),
                Subsignal("tx", Pins("B2", dir="o")),
                Attrs(IO_TYPE="LVCMOS12"),
            ),
        }

    pins = serial._pins(Platform())
    assert re.findall(r'"(\w+)" IO_TYPE=(\w+)', pins) == [("clk", "LVCMOS18"), ("rx", "LVCMOS25"), ("tx", "LVCMOS12")]


class Scripted:
    """A port that answers each HELLO by ``reply``, a function of its number, and each frame by the next of ``then``."""

    def __init__(self, module, reply, then=()):
        self.module, self.reply, self.then, self.queue = module, reply, list(then), []

    def write(self, data):
        for text in filter(None, data.split(b"\xc0")):
            packet_type, number, _ = self.module.parsed(text)
            if packet_type == self.module.HELLO:
                self.queue += self.reply(number)
            elif self.then:
                self.queue.append(self.then.pop(0))

    def read(self, size):
        answer = self.queue.pop(0) if self.queue else b""
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self):
        pass


@pytest.fixture
def small_folder(tmp_path) -> Path:
    """A folder with what the driver reads, of another driver whose tensors are bytes."""
    shutil.copy(Path(serial.__file__).with_name("serial_driver.py"), tmp_path / "digits_serial.py")
    (tmp_path / "registers.json").write_text(
        '{"module": "net_axi", "build_hash": "0x1", "inputs": [0], "outputs": [0]}'
    )
    (tmp_path / "plan.json").write_text('{"input": 0, "output": 0}')
    (tmp_path / "net_driver.py").write_text(SMALL_DRIVER)
    return tmp_path


SMALL_DRIVER = """
import numpy as np
class DriverError(Exception): pass
class Stream:
    dtype, frame_bytes = np.uint8, 4
    def __init__(self, described): pass
    def memory(self, make, count): return make((count, 4), np.uint8)
    def pack(self, maps, memory): memory[:] = maps
    def unpack(self, memory): return memory
class Tensor:
    def __init__(self, described, stream): self.stream = stream
    def check(self, frames): pass
    def to_maps(self, frames): return frames
    def from_maps(self, maps): return maps
"""


def test_stale_replies(small_folder):
    """A reply to an earlier HELLO, with a valid checksum, is skipped; so is what follows it before the right one."""
    module = driver(small_folder)
    mine = (1).to_bytes(8, "little")

    def reply(number):
        stale = [module.packet(module.HELLO, number - 1 + 256, mine), module.packet(module.FRAME, 0, b"\7" * 4)]
        return [*stale, module.packet(module.HELLO, number, mine)]

    x = np.arange(4, dtype=np.uint8)[None]
    line = Scripted(module, reply, [module.packet(module.FRAME, 0, b"\1\2\3\4")])
    accelerator = module.SerialAccelerator(line, folder=small_folder, timeout=0)
    assert accelerator.run(x, integers=True).tolist() == [[1, 2, 3, 4]]


def test_interrupted_runs(small_folder):
    """What the hardware sent is dropped when the user interrupts a run, and the next one has its own outputs."""
    module = driver(small_folder)
    frame = module.packet(module.FRAME, 0, b"\5\6\7\x08")
    line = Scripted(module, lambda number: [module.packet(module.HELLO, number, (1).to_bytes(8, "little"))])
    accelerator = module.SerialAccelerator(line, folder=small_folder, timeout=0)
    line.then = [KeyboardInterrupt(), module.packet(module.FRAME, 1, b"\0" * 4), frame]
    x = np.zeros((2, 4), np.uint8)
    with pytest.raises(KeyboardInterrupt):
        accelerator.run(x, integers=True)
    assert not line.queue
    assert accelerator.run(x[:1], integers=True).tolist() == [[5, 6, 7, 8]]


def test_missing_driver(small_folder):
    (small_folder / "net_driver.py").unlink()
    module = driver(small_folder)
    with pytest.raises(module.SerialError, match=r"has no net_driver\.py: copy the whole folder"):
        module.SerialAccelerator(Scripted(module, list), folder=small_folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> SimpleNamespace:
    """Digits with 46 multipliers, and its top in Verilator."""
    folder = tmp_path_factory.mktemp("serial") / "digits"
    design = hwgen.load(str(DIGITS / "digits.onnx")).plan("ulx3s", dsp=47, multipliers="dsp")
    design.build(folder)
    work = tmp_path_factory.mktemp("verilated")
    for path in (*folder.glob("*.v"), *folder.glob("*.mem")):
        shutil.copy(path, work)
    (work / "pll.v").write_text(PLL)
    sources = ["digits_serial.v", "digits_link.v", "digits.v", "pll.v"]
    verilator = (
        shutil.which("verilator") or shutil.which("verilator-cli") or str(Path(sys.executable).parent / "verilator-cli")
    )
    command = [verilator, "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint", "--prefix", "Vtop"]
    command += ["--top-module", "digits_serial", *sources, str(ROOT / "rtl_tests" / "support" / "serial_top.cpp")]
    run = subprocess.run([*command, "-o", "top"], cwd=work, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    divisor = round(design.plan.board.clock_mhz * 1e6 / serial.baud_of(design.plan.board.clock_mhz))
    return SimpleNamespace(folder=folder, work=work, divisor=divisor, design=design)


class Line:
    """A pseudo-terminal with the interface of pyserial that the driver uses."""

    def __init__(self, descriptor: int):
        self._descriptor, self.lost = descriptor, -1
        """Byte from the board, counted from now on, that the line loses."""

    def read(self, size: int) -> bytes:
        ready, _, _ = select.select([self._descriptor], [], [], 0.2)
        data = os.read(self._descriptor, size) if ready else b""
        lost, self.lost = self.lost, self.lost - len(data)
        return data[:lost] + data[lost + 1 :] if 0 <= lost < len(data) else data

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        pass


@contextmanager
def simulated(built: SimpleNamespace, dropped: int = -1) -> Iterator[tuple[Line, str]]:
    """A running simulation of the top, which loses a byte from the host: its line, and the name of that port."""
    board, host = pty.openpty()
    tty.setraw(host)
    tty.setraw(board)
    program = [built.work / "obj_dir" / "top", str(board), str(built.divisor), str(dropped)]
    process = subprocess.Popen(program, cwd=built.work, pass_fds=[board])
    try:
        yield Line(host), os.ttyname(host)
    finally:
        process.kill()
        process.wait()
        os.close(host)
        os.close(board)


def driver(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_serial", folder / "digits_serial.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Numbers of HELLO need no escape, so that lost bytes are where the tests say.
    vars(module)["randrange"] = lambda stop: 0
    return module


@pytest.mark.long
def test_digits(built):
    """Twenty images on the serial line have the outputs of the golden model."""
    images = np.load(DIGITS / "images.npy")[:20]
    with simulated(built) as (line, _):
        accelerator = driver(built.folder).SerialAccelerator(line, timeout=60)
        outputs = accelerator.run(images, integers=True)
    expected = built.design.golden(images, integers=True)
    assert np.array_equal(outputs.reshape(expected.shape), expected)


@pytest.mark.long
def test_session(built):
    """A session opens the port by pyserial, and computes what ONNX Runtime's sessions do."""
    images, model = np.load(DIGITS / "images.npy")[:4], str(DIGITS / "digits.onnx")
    expected: Any = hwgen.load(model).golden(images)
    with simulated(built) as (_, port):
        session = hwgen.Session(built.folder, device="serial", model=model, port=port, timeout=60)
        (outputs,) = session.run(None, {session.get_inputs()[0].name: images})
    assert np.array_equal(outputs.reshape(expected.shape), expected)


@pytest.mark.long
def test_bytes_lost_on_the_way_back(built):
    images = np.load(DIGITS / "images.npy")[:3]
    expected, module = built.design.golden(images, integers=True), driver(built.folder)
    with simulated(built) as (line, _):
        accelerator = module.SerialAccelerator(line, timeout=5)
        line.lost = 16 + 7  # behind the reply to HELLO, among the first outputs
        with pytest.raises(module.SerialError):
            accelerator.run(images, integers=True)
        outputs = accelerator.run(images, integers=True)
    assert np.array_equal(outputs.reshape(expected.shape), expected)


@pytest.mark.long
@pytest.mark.parametrize("dropped", [11, 40, 77, 85])
def test_lost_bytes(built, dropped):
    """A lost byte is an error, wherever it is; the next run is right again."""
    images = np.load(DIGITS / "images.npy")[:3]
    expected = built.design.golden(images, integers=True)
    module = driver(built.folder)
    with simulated(built, dropped + 18) as (line, _):  # two HELLO packets of 9 bytes with one END each come first
        accelerator = module.SerialAccelerator(line, timeout=5)
        with pytest.raises(module.SerialError):
            accelerator.run(images, integers=True)
        outputs = accelerator.run(images, integers=True)
    assert np.array_equal(outputs.reshape(expected.shape), expected)


@pytest.mark.long
def test_another_design(built, tmp_path):
    for path in built.folder.iterdir():
        shutil.copy(path, tmp_path)
    registers = json.loads((tmp_path / "registers.json").read_text())
    changed = {**registers, "build_hash": f"0x{int(registers['build_hash'], 16) ^ 1:016x}"}
    (tmp_path / "registers.json").write_text(json.dumps(changed))
    module = driver(tmp_path)
    with simulated(built) as (line, _), pytest.raises(module.SerialError, match="the hardware is another design"):
        module.SerialAccelerator(line, timeout=30)
