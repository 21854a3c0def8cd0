"""An engine's wrapper between cocotbext-axi's registers and memory: a bench that the simulator runs (`cocotb_bench`).

The top is a module with a second engine, which has no wrapper but a memory of its own (`test_engine_wrapper.bench`).
Its scenario:

- ``registers``: the contents of ``registers.json``;
- ``program``: a file with what lies in memory before the first frame, ``size``: bytes of memory that it takes;
- ``input``: where a frame lies in it;
- ``outputs``: for each output where it lies, and a file with a byte for each of its, which is not 0 if that counts;
- ``least_cycles``: cycles of the bus clock that all phases together take at least;
- ``phases``: one after the other, each with

  - ``base``: where the program is put in memory;
  - ``frames``: files with the bytes of each, ``expected``: for each of them the files of the outputs;
  - ``pause``: how likely each channel pauses, on average;
  - ``damaged``: bits of the program that are wrong in a run ahead of all, which ``error`` ends;
  - ``refused``: the address in the program from which on memory answers that run by SLVERR, if any;
  - ``reset_at``, ``stop_at``: cycles after which ``aresetn``, or ``CONTROL``, ends a first attempt; 0 for none;
  - ``alone``: whether the engine without a wrapper runs each frame, too, and takes as many cycles.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, First, RisingEdge
from cocotb.utils import get_sim_time
from cocotb_bench import scenario
from cocotb_engine import flip, forbid, pauses
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

PERIOD_NS = 10
#: Cycles after which a run is called stuck.
LIMIT = 4_000_000
#: Number of bytes of the memory.
SIZE = 1 << 20
START, STOP = 1, 2
BUSY, ERROR, INTERRUPT, DONE = 1, 2, 4, 8
STOPPED = 12


class Bench:
    """Bench with the buses of the wrapper, and of the same engine without a wrapper."""

    def __init__(self, dut: Any, told: dict[str, Any]):
        self.dut, self.told = dut, told
        clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
        self.control: Any = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
        first, *others = (AxiBus.from_prefix(dut, name) for name in told["ports"])
        self.ram: Any = AxiRam(first, **clocking, size=SIZE)
        self.rams = [self.ram, *(AxiRam(bus, **clocking, mem=self.ram.mem) for bus in others)]
        self.alone: Any = AxiRam(AxiBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, size=SIZE)
        self.offsets = {register["name"]: register["offset"] for register in told["registers"]["registers"]}
        self.resets = {register["name"]: register["reset"] for register in told["registers"]["registers"]}
        self.program = Path(told["program"]).read_bytes()
        self.memory = [
            channel
            for reads, writes in ((ram.read_if, ram.write_if) for ram in self.rams)
            for channel in (reads.ar_channel, reads.r_channel, writes.aw_channel, writes.w_channel, writes.b_channel)
        ]
        self.frames = self.failures = self.cycles = 0

    async def read(self, name: str) -> int:
        return await self.control.read_dword(self.offsets[name])

    async def write(self, name: str, value: int) -> None:
        await self.control.write_dword(self.offsets[name], value)

    def pause(self, likely: float) -> None:
        writes, reads = self.control.write_if, self.control.read_if
        channels = [writes.aw_channel, writes.w_channel, writes.b_channel, reads.ar_channel, reads.r_channel]
        for number, channel in enumerate([*self.memory, *channels]):
            channel.set_pause_generator(pauses(likely, number) if likely else None)
            channel.pause = False

    def place(self, base: int) -> None:
        """Write the program into memory at ``base``, and random bytes everywhere else."""
        self.ram.write(0, random.Random(base).randbytes(SIZE))
        self.ram.write(base, self.program)

    async def reset(self) -> None:
        """Reset the engine and the memory by ``aresetn``, and check that all registers have their reset values."""
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 3)
        for name in self.told["ports"]:
            for channel in ("ar", "aw", "w"):
                assert int(getattr(self.dut, f"{name}_{channel}valid").value) == 0
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 2)
        self.frames = self.failures = self.cycles = 0
        for name, value in self.resets.items():
            assert await self.read(name) == value, name

    async def meddle(self) -> None:
        """Read and write registers while a program runs. They must answer, and must not disturb the run."""
        choice = random.Random(1)
        await self.write("PROGRAM_BASE", choice.getrandbits(32))
        await self.write("CONTROL", START)  # one is running
        assert await self.read("CONTROL") == 0
        while True:
            name = choice.choice([name for name in self.resets if self.resets[name] and name != "PACE"])
            await self.write(name, choice.getrandbits(32))  # can't be written
            assert await self.read(name) == self.resets[name]
            await self.write("PROGRAM_BASE", choice.getrandbits(32))  # for the next run
            assert await self.control.read_dword(0xF00) == 0  # there is none
            await ClockCycles(self.dut.aclk, choice.randrange(200))

    async def start(self, base: int, bits: int = START) -> None:
        await self.write("INTERRUPT_ENABLE", 3)
        assert int(self.dut.interrupt.value) == 0
        await self.write("PROGRAM_BASE", base)
        await self.write("CONTROL", bits)

    async def end(self, error: int, *, meddles: bool) -> None:
        """Wait for the interrupt, and check the registers that describe the end of the run."""
        meddling = cocotb.start_soon(self.meddle()) if meddles else None
        if not int(self.dut.interrupt.value):
            ended = RisingEdge(self.dut.interrupt)
            assert await First(ended, ClockCycles(self.dut.aclk, LIMIT)) is ended, "stuck"
        assert all(channel.empty() for channel in self.memory), "memory has something to answer"
        if meddling is not None:
            meddling.cancel()
            await ClockCycles(self.dut.aclk, 400)  # what was asked for is answered
        self.frames, self.failures = self.frames + (not error), self.failures + bool(error)
        assert await self.read("STATUS") == (bool(error) * ERROR | INTERRUPT | DONE)
        assert await self.read("ERROR") == error
        assert (await self.read("FRAMES"), await self.read("FAILURES")) == (self.frames, self.failures)
        last, low = await self.read("FRAME_CYCLES"), await self.read("CYCLES_LOW")
        assert last > 0
        assert low | await self.read("CYCLES_HIGH") << 32 == self.cycles + last
        self.cycles += last

    async def interrupted(self, error: int) -> None:
        """Check that the interrupt is high until its events are cleared or not enabled."""
        happened = await self.read("INTERRUPT_STATUS")
        assert happened == 1 + 2 * bool(error)
        for enabled in (0, 3):
            await self.write("INTERRUPT_ENABLE", enabled)
            await ClockCycles(self.dut.aclk, 3)
            assert int(self.dut.interrupt.value) == bool(enabled)
        await self.write("INTERRUPT_STATUS", happened)
        await ClockCycles(self.dut.aclk, 3)
        assert int(self.dut.interrupt.value) == await self.read("INTERRUPT_STATUS") == 0

    async def without_a_wrapper(self, content: bytes) -> int:
        """Cycles of the other engine, whose memory has its program at 0, from its start to its end."""
        dut = self.dut
        self.alone.write(0, content)
        clock = Clock(dut.clk, PERIOD_NS, unit="ns")
        clock.start()
        for value in (1, 0):
            dut.rst.value = value
            await ClockCycles(dut.clk, 2)
        dut.start.value, cycles = 1, 0
        await RisingEdge(dut.clk)
        dut.start.value = 0
        while not (int(dut.done.value) and cycles > 1):
            await RisingEdge(dut.clk)
            cycles += 1
            assert cycles < LIMIT, "stuck"
        clock.stop()
        return cycles

    async def frame(self, phase: dict[str, Any], number: int) -> None:
        """Run a frame, and check its results and that memory before and behind the program stays unchanged."""
        base, told, ram = phase["base"], self.told, self.ram
        ram.write(base + told["input"], Path(phase["frames"][number]).read_bytes())
        before = ram.read(0, SIZE)
        await self.start(base)
        assert (await self.read("STATUS"), await self.read("ERROR")) == (BUSY, 0)
        await self.end(0, meddles=True)
        await self.interrupted(0)
        after = ram.read(0, SIZE)
        for (address, lanes), expected in zip(told["outputs"], phase["expected"][number], strict=True):
            content, counts = Path(expected).read_bytes(), Path(lanes).read_bytes()
            found = after[base + address : base + address + len(content)]
            rows = zip(found, content, counts, strict=True)
            assert all(one == other for one, other, counts in rows if counts), f"frame {number}"
        fixed = base + len(self.program)
        assert after[:fixed] == before[:fixed]
        assert after[base + told["size"] :] == before[base + told["size"] :]
        if phase["alone"]:
            assert await self.read("FRAME_CYCLES") == await self.without_a_wrapper(before[base : base + told["size"]])

    async def first_attempt(self, phase: dict[str, Any]) -> None:
        """Start a run that a reset or a stop ends, and check the registers.

        Start and stop bits written together start a run if the engine is idle, and stop it if the engine is running.
        """
        await self.start(phase["base"], START | STOP if phase["stop_at"] else START)
        await ClockCycles(self.dut.aclk, phase["reset_at"] or phase["stop_at"])
        assert await self.read("STATUS") == BUSY, "it ended by itself"
        if phase["reset_at"]:
            await self.reset()
        else:
            await self.write("CONTROL", START | STOP)
            await self.end(STOPPED, meddles=False)
            await self.interrupted(STOPPED)

    async def refused(self, phase: dict[str, Any]) -> None:
        """Run a program that must end with an error, and check the error."""
        accesses = [(ram.read_if._read, ram.write_if._write) for ram in self.rams]
        if phase["refused"]:
            beyond = phase["base"] + phase["refused"]
            for ram, both in zip(self.rams, accesses, strict=True):
                ram.read_if._read, ram.write_if._write = (forbid(access, beyond) for access in both)
        bits = [8 * phase["base"] + bit for bit in phase["damaged"]]
        flip(self.ram, bits)
        await self.start(phase["base"])
        await self.end(phase["error"], meddles=False)
        await self.interrupted(phase["error"])
        flip(self.ram, bits)
        for ram, both in zip(self.rams, accesses, strict=True):
            ram.read_if._read, ram.write_if._write = both

    async def run(self, phase: dict[str, Any]) -> None:
        self.pause(phase["pause"])
        self.place(phase["base"])
        if phase["reset_at"] or phase["stop_at"]:
            await self.first_attempt(phase)
        if phase["error"]:
            await self.refused(phase)
        for number in range(len(phase["frames"])):
            await self.frame(phase, number)


@cocotb.test()
async def phases(dut: Any) -> None:
    """All of them."""
    told = scenario()
    for name, value in (("aresetn", 0), ("clk", 0), ("rst", 1), ("start", 0), ("pace", told["pace"])):
        getattr(dut, name).value = value
    bench = Bench(dut, told)
    Clock(dut.aclk, PERIOD_NS, unit="ns").start()
    await ClockCycles(dut.aclk, 3)
    await bench.reset()
    for phase in told["phases"]:
        await bench.run(phase)
    assert get_sim_time("ns") >= PERIOD_NS * told["least_cycles"], "too few cycles"
