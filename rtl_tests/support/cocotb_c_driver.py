"""The C driver on simulated hardware: a bench that the simulator runs (`cocotb_bench`).

AXI DMAs in simple mode are played on cocotbext-axi's streams. Its scenario:

- ``library``: the driver (`c_driver.compiled`); ``registers``: what ``registers.json`` holds;
- ``x``: files with the frames of each input, as maps ``(n, C, H, W)``; ``y``: a file for the outputs;
- ``weights``, if there are any: a file that is loaded before, behind one that is cut off and one that is damaged;
- ``begins_empty``, perhaps: whether the hardware has no weights before the first load;
- ``reloaded``, perhaps: files of weights that are loaded behind the frames, each with a file for the outputs;
- ``cut``: whether a frame goes ahead that is too short in the first input, as if a DMA sent too little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import c_driver
import cocotb
import numpy as np
from c_driver import MEMORY, REGISTERS, Driver
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb_bench import scenario
from cocotb_dma import Streams
from wrapper_model import Memory

PERIOD_NS = 10
#: Longest that an interrupt may take.
LIMIT_US = 20_000
FRAME, ERROR = 1, 2


class Line:
    """The interrupt, as a processor sees it that sleeps until it comes."""

    def __init__(self, dut: Any):
        self._dut = dut
        self.wait, self.is_high = resume(self._wait), resume(self._look)

    async def _wait(self) -> None:
        if not await self._look():
            await with_timeout(RisingEdge(self._dut.interrupt), LIMIT_US, "us")

    async def _look(self) -> bool:
        await ClockCycles(self._dut.aclk, 1)
        return bool(self._dut.interrupt.value)


class Hardware:
    """Hardware behind the driver's macros: the wrapper's registers, and DMAs at its streams."""

    def __init__(self, dut: Any, told: dict[str, Any]):
        self.memory = Memory()
        self.streams = Streams(dut, told["registers"], self.memory)
        self.line = Line(dut)
        reach = resume(self.streams.read), resume(self.streams.write)
        self.driver = Driver(Path(told["library"]), told["registers"], *reach, capacity=2)
        self.memory.add(MEMORY, self.driver.memory)
        self.wait, self._write = resume(self.streams.wait), reach[1]
        self._offsets = {each["name"]: each["offset"] for each in told["registers"]["registers"]}

    def load_words(self, content: bytes, count: int) -> None:
        """Write the first words of the load in a file of weights, as a program does that ends within it."""
        begin = 16 + int.from_bytes(content[8:12], "little")
        for word in np.frombuffer(content[begin : begin + 4 * count], "<u4"):
            self._write(REGISTERS + self._offsets["WEIGHTS"], int(word))


def interrupted(hardware: Hardware, frames: list[np.ndarray], events: int, status: str) -> list[np.ndarray]:
    """Compute a frame while the processor sleeps. Earlier events that are not enabled don't wake the processor."""
    driver, line = hardware.driver, hardware.line
    driver.enable_interrupt(events)
    assert not line.is_high()
    driver.pack_all(frames)
    assert driver.start() == "OK"
    line.wait()
    assert driver.handle_interrupt() == events
    assert not line.is_high()
    assert driver.handle_interrupt() == 0
    assert driver.finish() == status
    driver.enable_interrupt(0)
    return driver.unpack_all()


def program(told: dict[str, Any], hardware: Hardware) -> None:
    """Run a user's program: open the driver, load weights, compute frames, and provoke errors."""
    driver = hardware.driver
    assert driver.open(patience=100_000) == "OK"
    inputs = [np.load(each) for each in told["x"]]
    if "weights" in told:
        load_first(told, hardware, [each[0] for each in inputs])
    if told["cut"]:
        hardware.streams.cut = 1
        assert driver.infer([each[0] for each in inputs])[0] == "WRONG_FRAME"
        interrupted(hardware, [each[0] for each in inputs], ERROR, "WRONG_FRAME")
        hardware.streams.cut = 0
    driver.pack_all([each[-1] for each in inputs])
    assert driver.start() == "OK"  # and nobody finishes it: the next start drops it
    hardware.wait(50)
    *frames, last = zip(*inputs, strict=True)
    found = []
    for each in frames:
        status, outputs = driver.infer(list(each))
        assert status == "OK"
        found.append(outputs)
    assert not hardware.line.is_high()
    found.append(interrupted(hardware, list(last), FRAME, "OK"))
    assert driver.set_frames(2) == "OK"
    status, packet = driver.infer_packet([[each[index] for each in inputs] for index in (1, 0)])
    assert status == "OK"
    for outputs, expected in zip(packet, (found[1], found[0]), strict=True):
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output, wanted)
    np.savez(told["y"], *(np.stack(each) for each in zip(*found, strict=True)))
    assert driver.set_frames(1) == "OK"
    for path, y in told.get("reloaded", []):
        assert driver.load_weights(Path(path).read_bytes()) == "OK"
        found = [driver.infer(list(each)) for each in zip(*inputs, strict=True)]
        assert {status for status, _ in found} == {"OK"}
        np.savez(y, *(np.stack(each) for each in zip(*(outputs for _, outputs in found), strict=True)))


def load_first(told: dict[str, Any], hardware: Hardware, frames: list[np.ndarray]) -> None:
    """Load weights behind loads that go wrong. Frames are refused at once while the hardware has no whole weights."""
    driver, content = hardware.driver, Path(told["weights"]).read_bytes()
    before = "NO_WEIGHTS" if told.get("begins_empty") else "OK"
    assert driver.infer(frames)[0] == before
    for wrong in (content[:-3], b"h"):  # which the driver refuses itself
        assert driver.load_weights(wrong) == "WRONG_WEIGHTS"
        assert driver.infer(frames)[0] == before
    for wrong in (content[:-8], content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]):
        assert driver.load_weights(wrong) == "WRONG_WEIGHTS"
        assert driver.infer(frames)[0] == "NO_WEIGHTS"
        assert driver.start() == "NO_WEIGHTS"
    hardware.load_words(content, 20)
    assert driver.reset() == "OK"  # in the middle of a load, which it drops
    assert driver.infer(frames)[0] == "NO_WEIGHTS"
    assert driver.load_weights(content) == "OK"
    assert driver.reset() == "OK"  # which leaves whole weights


@cocotb.test()
async def run(dut: Any) -> None:
    """All frames, one after the other."""
    told = scenario()
    dut.aresetn.value = 0
    hardware = Hardware(dut, told)
    assert c_driver.NAMES[0] == "OK"
    cocotb.start_soon(Clock(dut.aclk, PERIOD_NS, unit="ns").start())
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    await bridge(program)(told, hardware)
