"""The C driver of an engine on simulated hardware: a bench that the simulator runs (`cocotb_bench`).

Its scenario:

- ``built``: the folder of the design; ``library``: that of the driver (`c_driver.compiled`);
- ``runs``: each with

  - ``program``, ``x``: files of the program and of frames of each input; ``y``: a file for the outputs;
  - ``base``: where the program is put in memory;
  - ``damaged``: a byte of the program that is wrong in memory, or -1;
  - ``refused``: the address in the program from which on memory answers by SLVERR, or -1;
  - ``patience``: how often the driver looks;
  - ``waits``: whether the processor sleeps until the interrupt comes;
  - ``status``: what it says of each run.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from c_driver import MEMORY, REGISTERS, EngineDriver
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles
from cocotb_bench import scenario
from cocotb_c_driver import ERROR, Line
from cocotb_engine import forbid
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

PERIOD_NS = 10
#: Bytes of memory.
SIZE = 1 << 20
DONE = 1


class Hardware:
    """Hardware behind the driver's macros: the wrapper's registers, and the memory that the engine accesses."""

    def __init__(self, dut: Any, told: dict[str, Any]):
        clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
        content = bytearray(random.Random(1).randbytes(SIZE))
        self.clock, self.line = dut.aclk, Line(dut)
        self.ram: Any = AxiRam(AxiBus.from_prefix(dut, "m_axi_mem"), **clocking, mem=content)
        self.accesses = self.ram.read_if._read, self.ram.write_if._write
        self.control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
        memory = np.frombuffer(content, np.uint8)
        self.driver = EngineDriver(
            Path(told["built"]), Path(told["library"]), resume(self._read), resume(self._write), memory
        )

    async def _read(self, address: int) -> int:
        await ClockCycles(self.clock, 20)  # a processor is not faster
        return await self.control.read_dword(address - REGISTERS)

    async def _write(self, address: int, value: int) -> None:
        await self.control.write_dword(address - REGISTERS, value)

    def refuse(self, beyond: int) -> None:
        """Let the memory refuse accesses at the address ``beyond`` and behind it."""
        self.ram.read_if._read, self.ram.write_if._write = (forbid(access, beyond) for access in self.accesses)


def interrupted(hardware: Hardware, frames: list[np.ndarray], status: str) -> tuple[str, list[np.ndarray]]:
    """Compute the frames of a run while the processor sleeps."""
    driver, line = hardware.driver, hardware.line
    driver.enable_interrupt(DONE | ERROR)
    assert not line.is_high()
    assert driver.start(*frames) == "OK"
    line.wait()
    assert driver.handle_interrupt() == (DONE if status == "OK" else DONE | ERROR)
    assert not line.is_high()
    assert driver.handle_interrupt() == 0
    driver.enable_interrupt(0)
    return driver.finish()


def program(told: dict[str, Any], hardware: Hardware) -> None:
    """Run a user's program: open the driver, load programs, compute frames, and provoke errors."""
    driver = hardware.driver
    for each in told["runs"]:
        base, content = each["base"], Path(each["program"]).read_bytes()
        assert driver.open(each["patience"]) == "OK"
        assert driver.load(content, base, SIZE - base) == "OK"
        if each["damaged"] >= 0:
            driver.memory[base + each["damaged"]] ^= 1
        hardware.refuse(MEMORY + base + each["refused"] if each["refused"] >= 0 else 1 << 32)
        x, found = list(np.load(each["x"]).values()), []
        for first in range(0, len(x[0]), driver.device.frames):
            frames = [values[first : first + driver.device.frames] for values in x]
            status, outputs = interrupted(hardware, frames, each["status"]) if each["waits"] else driver.run(*frames)
            assert status == each["status"]
            found.append(outputs)
        np.savez(each["y"], *(np.concatenate(maps) for maps in zip(*found, strict=True)))


@cocotb.test()
async def runs(dut: Any) -> None:
    """All of them."""
    told = scenario()
    for name, value in (("aresetn", 0), ("clk", 0), ("rst", 1), ("start", 0), ("pace", 1)):
        getattr(dut, name).value = value
    hardware = Hardware(dut, told)
    Clock(dut.aclk, PERIOD_NS, unit="ns").start()
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    await bridge(program)(told, hardware)
