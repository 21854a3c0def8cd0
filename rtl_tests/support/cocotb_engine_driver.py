"""The Python driver of an engine on simulated hardware: a bench that the simulator runs (`cocotb_bench`).

PYNQ's objects are played by cocotbext-axi's models. Its scenario:

- ``driver``: the driver's file; ``design``: the folder of the design;
- ``runs``: each with

  - ``program``, ``x``, ``y``: files of the program, of frames of each input, and for the outputs, ``integers`` or not;
  - ``waits``: whether the interrupt is waited for;
  - ``damaged``: a byte of the program that is wrong in memory, or -1;
  - ``error``: how what the driver says begins, if it says anything.
"""

from __future__ import annotations

import asyncio
import random
from importlib import util
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, RisingEdge
from cocotb_bench import scenario
from cocotb_driver import PERIOD_NS, Registers
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

SIZE = 1 << 20


class Buffer(np.ndarray):
    """Stand-in for PYNQ's buffers: a cache in front of memory, which only ``flush`` and ``invalidate`` synchronise."""

    ram: Any = None
    physical_address = 0

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, Buffer) and obj.ram is not None:
            begins = [each.__array_interface__["data"][0] for each in (self, obj)]
            self.ram, self.physical_address = obj.ram, obj.physical_address + begins[0] - begins[1]

    def flush(self) -> None:
        self.ram.write(self.physical_address, self.tobytes())

    def invalidate(self) -> None:
        self[:] = np.frombuffer(self.ram.read(self.physical_address, self.nbytes), np.uint8)


class Allocator:
    """Stand-in for PYNQ's allocator: each buffer begins at a new page of the memory, with random contents."""

    def __init__(self, ram: Any):
        self.ram, self.next = ram, 0x3000

    def __call__(self, shape: tuple[int], dtype: Any) -> Buffer:
        assert dtype == np.uint8
        buffer = np.frombuffer(random.Random(self.next).randbytes(shape[0]), np.uint8).copy().view(Buffer)
        buffer.ram, buffer.physical_address = self.ram, self.next
        self.next += -(-shape[0] // 4096) * 4096
        return buffer


class Interrupt:
    """Stand-in for PYNQ's interrupt: waits until the signal is high, and counts its waits."""

    def __init__(self, dut: Any):
        self.dut, self.count = dut, 0
        self._high = resume(self._until_high)

    async def _until_high(self) -> None:
        if not int(self.dut.interrupt.value):
            await RisingEdge(self.dut.interrupt)

    async def wait(self) -> None:
        self._high()
        self.count += 1


def drive(told: dict[str, Any], registers: Any, allocate: Any, interrupt: Any) -> None:
    """Run a user's program on the emitted Python driver: loads, damaged programs, runs, errors and interrupts."""
    spec = util.spec_from_file_location("driver", told["driver"])
    assert spec is not None
    assert spec.loader is not None
    driver = util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    engine = driver.Engine(registers, allocate=allocate, folder=told["design"], timeout=600, interrupt=interrupt)
    frames = failures = 0
    for each in told["runs"]:
        engine.load(each["program"])
        if each["damaged"] >= 0:
            (memory,) = engine._memories
            memory[each["damaged"]] ^= 1
            memory.flush()
        x, said, waited = list(np.load(each["x"]).values()), "", interrupt.count
        try:
            if each["waits"]:
                outputs = asyncio.run(engine.run_async(*x, integers=each["integers"]))
            else:
                outputs = engine.run(*x, integers=each["integers"])
            np.savez(each["y"], *(outputs if isinstance(outputs, tuple) else [outputs]))
            frames += len(x[0])
        except driver.DriverError as error:
            said, failures = str(error), failures + 1
        assert said.startswith(each["error"]), said
        assert bool(said) == bool(each["error"])
        assert interrupt.count - waited == (len(x[0]) if each["waits"] else 0)
        assert engine.read("INTERRUPT_STATUS")
    counters = engine.counters()
    assert (counters["FRAMES"], counters["FAILURES"]) == (frames, failures)
    assert counters["CYCLES"] > counters["FRAME_CYCLES"] > 0
    assert counters["M_AXI_MEM_READ"] > 0


@cocotb.test()
async def runs(dut: Any) -> None:
    """All of them."""
    told = scenario()
    for name, value in (("aresetn", 0), ("clk", 0), ("rst", 1), ("start", 0), ("pace", 1)):
        getattr(dut, name).value = value
    clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi_mem"), **clocking, size=SIZE)
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
    Clock(dut.aclk, PERIOD_NS, unit="ns").start()
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    await bridge(drive)(told, Registers(control), Allocator(ram), Interrupt(dut))
