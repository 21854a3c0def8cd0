"""The Python driver on simulated hardware: a bench that the simulator runs (`cocotb_bench`).

PYNQ's objects are those of `pynq_model`, on DMAs that cocotbext-axi's models play. Its scenario (`cocotb_bench`):

- ``driver``: the driver's file; ``design``: the folder of the design; ``registers``: what ``registers.json`` holds;
- ``runs``: each with the ``frames``, their files ``x`` for the inputs, ``integers``, a file ``y`` for the outputs,
  ``cut``, bytes that the DMA leaves out of each frame, and ``error``, what the driver must say, if anything;
  and perhaps ``weights``, a file that is loaded before, ``interrupted``, the access that Ctrl-C ends (then ``error`` is
  "interrupted"), and ``restarts``, whether another driver is opened behind it;
- ``linux``, perhaps: whether the DMAs are those of `hwgen.emit.linux` in place of PYNQ's.
"""

from __future__ import annotations

from importlib import util
from types import SimpleNamespace
from typing import Any

import cocotb
import numpy as np
from c_driver import DMA, REGISTERS
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles
from cocotb_bench import scenario
from cocotb_dma import Streams
from cocotbext.axi import AxiLiteMaster
from pynq_model import PynqDma
from wrapper_model import Memory

from hwgen.emit import linux

PERIOD_NS = 10


class Registers:
    """Stand-in for PYNQ's MMIO: registers that an AXI-Lite master reads and writes."""

    def __init__(self, master: AxiLiteMaster):
        self.read = resume(master.read_dword)
        self.write = resume(master.write_dword)


class Processor:
    """Processor that runs a program on PYNQ: its accesses to registers and DMAs, which Ctrl-C can interrupt."""

    def __init__(self, streams: Streams):
        self.streams = streams
        self._read, self._write = resume(streams.read), resume(streams.write)
        #: Number of accesses until one is interrupted; negative if none is.
        self.left = -1

    def _count(self) -> None:
        self.left -= self.left >= 0
        if self.left == 0:
            self.left = -1
            raise KeyboardInterrupt

    def read(self, address: int) -> int:
        self._count()
        return self._read(address)

    def write(self, address: int, value: int) -> None:
        self._count()
        self._write(address, value)

    def registers(self) -> Any:
        """Return a stand-in for PYNQ's MMIO on the wrapper's registers."""
        return SimpleNamespace(
            read=lambda offset: self.read(REGISTERS + offset),
            write=lambda offset, value: self.write(REGISTERS + offset, value),
        )

    def dmas(self, kind: Any) -> list[Any]:
        """Return objects of the DMAs: stand-ins for PYNQ's, or those for Linux."""
        return [
            kind(
                SimpleNamespace(
                    read=lambda offset, base=base: self.read(base + offset),
                    write=lambda offset, value, base=base: self.write(base + offset, value),
                ),
                sends=dma.channels[0x00] is not None,
                receives=dma.channels[0x30] is not None,
            )
            for base, dma in ((DMA + 0x10000 * number, dma) for number, dma in enumerate(self.streams.dmas))
        ]


def drive(told: dict[str, Any], processor: Processor, memory: Memory) -> None:
    """Run a user's program on the emitted Python driver: runs, weights, errors, counters and reset."""
    spec = util.spec_from_file_location("driver", told["driver"])
    assert spec is not None
    assert spec.loader is not None
    driver = util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    accelerator, frames = open_driver(driver, told, processor, memory), 0
    for each in told["runs"]:
        processor.streams.cut, processor.left, said = each["cut"], each.get("interrupted", -1), ""
        try:
            if "weights" in each:
                accelerator.load_weights(each["weights"])
            outputs = accelerator.run(*map(np.load, each["x"]), integers=each["integers"])
            np.savez(each["y"], *(outputs if isinstance(outputs, tuple) else [outputs]))
            frames += each["frames"]
        except driver.DriverError as error:
            said = str(error)
            frames *= "weights" in each  # where a load is refused by its file, nothing is reset
        except KeyboardInterrupt:
            said, frames = "interrupted", 0
        assert said == each["error"]
        if each.get("restarts"):
            accelerator, frames = open_driver(driver, told, processor, memory), 0
    counters = accelerator.counters()
    assert counters["FRAMES"] == frames
    assert counters["CYCLES"] > 0
    accelerator.reset()
    assert set(accelerator.counters().values()) == {0}


def open_driver(driver: Any, told: dict[str, Any], processor: Processor, memory: Memory) -> Any:
    """Open the emitted Python driver, as a user's program does at its start."""
    kind = linux.Dma if told.get("linux") else PynqDma
    return driver.Accelerator(
        processor.registers(), processor.dmas(kind), allocate=memory.allocate, folder=told["design"], timeout=600
    )


@cocotb.test()
async def runs(dut: Any) -> None:
    """Run the scenario's runs on the wrapper."""
    told = scenario()
    dut.aresetn.value = 0
    memory = Memory()
    processor = Processor(Streams(dut, told["registers"], memory))
    cocotb.start_soon(Clock(dut.aclk, PERIOD_NS, unit="ns").start())
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    await bridge(drive)(told, processor, memory)
