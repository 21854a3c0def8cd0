"""The engine in front of cocotbext-axi's memory: a bench that the simulator runs (`cocotb_bench`).

Its scenario:

- ``image``, ``result``: files with the memory's bytes before and after;
- ``runs``: for each start of the program the error that ends it;
- ``damaged``: bits of the memory, counted from its first byte's lowest one, that are wrong in the first run;
- ``pause``: how likely a channel pauses, on average;
- ``reset_at``: cycles after which a first attempt ends by a reset, 0 for none;
- ``forbidden``: for ``read`` and ``write`` the address from which on an access is answered by SLVERR.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotb_bench import scenario
from cocotbext.axi import AxiBus, AxiRam

PERIOD_NS = 10
#: Cycles after which a run is called stuck.
LIMIT = 400_000


def pauses(likely: float, seed: int) -> Iterator[bool]:
    """Whether a channel pauses in a cycle: for a cycle or two, or for long."""
    source = random.Random(seed)
    while True:
        pause = source.random() < likely
        yield from [pause] * source.choice((1, 1, 1, 2, 2, 30))


def forbid(access: Any, beyond: int) -> Any:
    """Return an access of the memory that fails from the address ``beyond`` on, which the model answers by SLVERR."""

    async def limited(address: int, what: Any) -> Any:
        if address >= beyond:
            raise PermissionError(f"{address:#x}")
        return await access(address, what)

    return limited


def memory(dut: Any, told: dict[str, Any], image: bytes) -> AxiRam:
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, size=len(image))
    ram.write(0, image)
    reads, writes = ram.read_if, ram.write_if
    channels = (reads.ar_channel, reads.r_channel, writes.aw_channel, writes.w_channel, writes.b_channel)
    for number, channel in enumerate(channels):
        channel.set_pause_generator(pauses(told["pause"], number))
    reads._read = forbid(reads._read, told["forbidden"]["read"])
    writes._write = forbid(writes._write, told["forbidden"]["write"])
    return ram


async def run(dut: Any, limit: int) -> bool:
    """Run the engine from ``start`` to ``done``, or for ``limit`` cycles, and return whether it ended."""
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    await RisingEdge(dut.clk)
    for _ in range(limit):
        await RisingEdge(dut.clk)
        if int(dut.done.value):
            return True
    return False


def flip(ram: AxiRam, bits: list[int]) -> None:
    for bit in bits:
        ram.write_byte(bit // 8, ram.read_byte(bit // 8) ^ 1 << bit % 8)


async def reset(dut: Any) -> None:
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


@cocotb.test
async def program(dut: Any) -> None:
    told = scenario()
    image = Path(told["image"]).read_bytes()
    for name, value in (("rst", 0), ("start", 0), ("stop", 0), ("program_base", 0), ("pace", 1)):
        getattr(dut, name).value = value
    Clock(dut.clk, PERIOD_NS, unit="ns").start()
    ram = memory(dut, told, image)
    await reset(dut)
    if told["reset_at"]:
        assert not await run(dut, told["reset_at"]), "ended before the reset"
        await reset(dut)
        ram.write(0, image)
    flip(ram, told["damaged"])
    for number, error in enumerate(told["runs"]):
        assert await run(dut, LIMIT), "stuck"
        assert int(dut.error.value) == error, f"run {number}"
        if number == 0:
            flip(ram, told["damaged"])
    Path(told["result"]).write_bytes(ram.read(0, len(image)))
