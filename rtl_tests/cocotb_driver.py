"""The Python driver on simulated hardware: a bench that the simulator runs (`cocotb_bench`).

PYNQ's objects are played by cocotbext-axi's models. Its scenario (`cocotb_bench`):

- ``driver``: the driver's file; ``design``: the folder of the design; ``registers``: what ``registers.json`` holds;
- ``runs``: each with the ``frames``, their files ``x`` for the inputs, ``integers``, a file ``y`` for the outputs,
  ``cut``, bytes that the DMA leaves out of each frame, and ``error``, what the driver must say, if anything;
  and perhaps ``weights``, a file that is loaded before.
"""

from __future__ import annotations

from importlib import util
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles
from cocotb_bench import scenario
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamSink, AxiStreamSource

PERIOD_NS = 10


class Registers:
    """As PYNQ's MMIO."""

    def __init__(self, master: AxiLiteMaster):
        self.read = resume(master.read_dword)
        self.write = resume(master.write_dword)


class Channel:
    """As a channel of PYNQ's DMA: moves a buffer at a time; looking at it takes time."""

    def __init__(self, clock: Any, end: Any, sends: bool):
        self.clock, self.end, self.sends = clock, end, sends
        self.cut = 0
        self.task: Any = None

    @resume
    async def transfer(self, buffer: np.ndarray) -> None:
        assert self.task is None, "the channel is still busy"
        self.task = cocotb.start_soon(self._send(buffer) if self.sends else self._receive(buffer))

    async def _send(self, buffer: np.ndarray) -> None:
        content = buffer.tobytes()
        await self.end.send(content[: len(content) - self.cut])
        await self.end.wait()

    async def _receive(self, buffer: np.ndarray) -> None:
        frame = await self.end.recv()
        assert len(frame.tdata) == buffer.nbytes
        buffer[:] = np.frombuffer(bytes(frame.tdata), buffer.dtype)

    @property
    def idle(self) -> bool:
        return self._look()

    @resume
    async def _look(self) -> bool:
        await ClockCycles(self.clock, 20)
        return self.task is None or self.task.done()

    def wait(self) -> None:
        assert self.task.done()
        self.task = None


class Dma:
    """As PYNQ's, for one stream in and one out, as far as there are so many."""

    def __init__(self, send: Any, receive: Any):
        self.sendchannel, self.recvchannel = send, receive


def buses(dut: Any, told: dict[str, Any]) -> tuple[Registers, list[Dma]]:
    clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
    names = [[stream["name"] for stream in told[side]] for side in ("inputs", "outputs")]
    sends = [AxiStreamSource(AxiStreamBus.from_prefix(dut, name), **clocking) for name in names[0]]
    receives = [AxiStreamSink(AxiStreamBus.from_prefix(dut, name), **clocking) for name in names[1]]
    channels = [
        [Channel(dut.aclk, end, ends is sends) for end in ends] + [None] * (max(map(len, names)) - len(ends))
        for ends in (sends, receives)
    ]
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
    return Registers(control), [Dma(*pair) for pair in zip(*channels, strict=True)]


def drive(told: dict[str, Any], registers: Registers, dmas: list[Dma]) -> None:
    """What a user's program does."""
    spec = util.spec_from_file_location("driver", told["driver"])
    assert spec is not None
    assert spec.loader is not None
    driver = util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    accelerator = driver.Accelerator(registers, dmas, folder=told["design"], timeout=600)
    for each in told["runs"]:
        for dma in dmas:
            if dma.sendchannel is not None:
                dma.sendchannel.cut = each["cut"]
        said = ""
        try:
            if "weights" in each:
                accelerator.load_weights(each["weights"])
            outputs = accelerator.run(*map(np.load, each["x"]), integers=each["integers"])
            np.savez(each["y"], *(outputs if isinstance(outputs, tuple) else [outputs]))
        except driver.DriverError as error:
            said = str(error)
        assert said == each["error"]
    counters = accelerator.counters()
    refused = ("weights",)  # before any frame was sent
    assert counters["FRAMES"] == sum(
        each["frames"] for each in told["runs"] if not (each["error"] and each.keys() & refused)
    )
    assert counters["CYCLES"] > 0
    accelerator.reset()
    assert set(accelerator.counters().values()) == {0}


@cocotb.test()
async def runs(dut: Any) -> None:
    """All of them."""
    told = scenario()
    dut.aresetn.value = 0
    registers, dmas = buses(dut, told["registers"])
    cocotb.start_soon(Clock(dut.aclk, PERIOD_NS, unit="ns").start())
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    await bridge(drive)(told, registers, dmas)
