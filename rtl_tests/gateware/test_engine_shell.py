"""The shell of an engine by itself, with an engine that a test plays."""

from __future__ import annotations

from typing import Any

import pytest
from lite import Master, signals_of
from programs import SMALL
from testbench import Circuit

from hwgen.gateware.bus import engine_shell
from hwgen.gateware.bus.engine_shell import EngineShell, EngineShellConfig
from hwgen.gateware.engine.port import Error

CONFIG = EngineShellConfig(engine=SMALL, pace=3, build_hash=0x0123_4567_89AB_CDEF)
OFFSETS = {register.name: register.offset for register in CONFIG.registers}
START, STOP = 1, 2
BUSY, FAILED, INTERRUPT, DONE = 1, 2, 4, 8


class Bench:
    """The shell, its registers by their names, and the engine's side of it."""

    def __init__(self) -> None:
        with signals_of(engine_shell) as self.signals:
            self.shell: Any = EngineShell(CONFIG)
            self.circuit = Circuit(self.shell)
        self.master = Master(self.shell.control)

    async def write(self, ctx: Any, name: str, value: int) -> None:
        await self.master.write(ctx, OFFSETS[name], value)

    async def read(self, ctx: Any, name: str) -> int:
        return await self.master.read(ctx, OFFSETS[name])

    async def start(self, ctx: Any) -> None:
        """As an engine may: it is done with the run before until it sees the start, and its error stays."""
        await self.master.ask(ctx, OFFSETS["CONTROL"], START)
        await ctx.tick().until(self.shell.start)
        ctx.set(self.shell.done, 0)
        await self.master.answered(ctx)
        assert not ctx.get(self.shell.start)

    async def end(self, ctx: Any, error: Error = Error.NONE) -> None:
        ctx.set(self.shell.error, error)
        ctx.set(self.shell.done, 1)
        for _ in range(4):
            await ctx.tick()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_identity(bench):
    """The first registers name the map, its version and the design, as docs/reference/registers.md says."""

    async def drive(ctx):
        assert (await bench.read(ctx, "IDENTITY")).to_bytes(4, "big") == b"HWGE"
        assert await bench.read(ctx, "VERSION") >> 16 == 1
        assert await bench.read(ctx, "BUILD_HASH_LOW") == 0x89AB_CDEF
        assert await bench.read(ctx, "BUILD_HASH_HIGH") == 0x0123_4567

    bench.circuit.simulate(drive)


def test_stop_is_held(bench):
    """Until the run ends, as the engine may not look in the cycle in which it is asked; and no longer."""
    shell = bench.shell

    async def drive(ctx):
        await bench.write(ctx, "CONTROL", STOP)  # nothing runs
        assert not ctx.get(shell.stop)
        await bench.start(ctx)
        assert not ctx.get(shell.stop)
        await bench.write(ctx, "CONTROL", STOP)
        for _ in range(30):
            assert ctx.get(shell.stop)
            await ctx.tick()
        assert await bench.read(ctx, "STATUS") == BUSY
        await bench.end(ctx, Error.STOPPED)
        assert not ctx.get(shell.stop)
        assert await bench.read(ctx, "STATUS") == FAILED | DONE
        assert await bench.read(ctx, "ERROR") == Error.STOPPED.value
        await bench.start(ctx)
        for _ in range(5):
            assert not ctx.get(shell.stop)
            await ctx.tick()
        assert await bench.read(ctx, "STATUS") == BUSY

    bench.circuit.simulate(drive)


def test_pace(bench):
    """As it was planned, until it is written: cycles, and beats in the upper half."""

    async def drive(ctx):
        found = [ctx.get(bench.shell.pace.as_value())]
        for pace in (7, 0, 255, 0x203, 0xFFFF):
            await bench.write(ctx, "PACE", pace)
            found.append(ctx.get(bench.shell.pace.as_value()))
        assert found == [3, 7, 0, 255, 0x203, 0xFFFF]

    bench.circuit.simulate(drive)


def test_cycles_beyond_32_bits(bench):
    """CYCLES_HIGH is what it was as CYCLES_LOW was read, and CYCLES_LOW carries into it."""
    (cycles,) = (each for each in bench.signals if len(each) == 64)

    async def drive(ctx):
        ctx.set(cycles, 0x5_FFFF_FFFF)
        assert await bench.read(ctx, "CYCLES_LOW") == 0xFFFF_FFFF
        await bench.start(ctx)
        await bench.end(ctx)
        assert await bench.read(ctx, "CYCLES_HIGH") == 5
        last = await bench.read(ctx, "FRAME_CYCLES")
        assert 0 < last < 10
        assert await bench.read(ctx, "CYCLES_LOW") == last - 1
        assert await bench.read(ctx, "CYCLES_HIGH") == 6

    bench.circuit.simulate(drive)


def test_runs(bench):
    """How they are counted, and what they raise; one that is over at once, too."""

    async def drive(ctx):
        await bench.write(ctx, "INTERRUPT_ENABLE", 2)
        for number, (error, happened) in enumerate(((Error.NONE, 1), (Error.DAMAGED, 3), (Error.NONE, 1))):
            await bench.start(ctx)
            assert (await bench.read(ctx, "STATUS"), await bench.read(ctx, "ERROR")) == (BUSY, 0)
            await bench.end(ctx, error)
            assert await bench.read(ctx, "INTERRUPT_STATUS") == happened
            assert ctx.get(bench.shell.interrupt) == happened >> 1
            await bench.write(ctx, "INTERRUPT_STATUS", happened)
            await ctx.tick()
            assert not ctx.get(bench.shell.interrupt)
            counted = [await bench.read(ctx, name) for name in ("FRAMES", "FAILURES")]
            assert counted == [1 + number // 2, (1 + number) // 2]

    bench.circuit.simulate(drive)


def test_addresses(bench):
    """They count from PROGRAM_BASE as it was at the start; within a page they go on as they are."""
    shell = bench.shell

    async def drive(ctx):
        await bench.write(ctx, "PROGRAM_BASE", 0x1234_5FFF)
        await bench.start(ctx)
        await bench.write(ctx, "PROGRAM_BASE", 0xFFFF_F000)
        for name in ("araddr", "awaddr"):
            ctx.set(getattr(shell.m_axi, name), 0x0001_2ABC)
            assert ctx.get(getattr(shell.mem, name)) == 0x1234_5000 + 0x0001_2ABC
        await bench.end(ctx)
        await bench.start(ctx)
        assert ctx.get(shell.mem.araddr) == 0x0001_1ABC  # modulo 4 GiB

    bench.circuit.simulate(drive)


def test_traffic(bench):
    """Beats that move, and cycles in which something is offered and not taken, on each side."""
    shell = bench.shell
    names = [f"M_AXI_MEM_{name}" for name in ("READ", "READ_STALLED", "WRITTEN", "WRITE_STALLED")]
    steps = {
        "rvalid": 0b0000_0011, "rready": 0b0000_0110, "arvalid": 0b0001_1100, "arready": 0b0011_0000,
        "wvalid": 0b0111_1110, "wready": 0b0110_0000, "awvalid": 0b1100_0010, "awready": 0b0100_0000,
    }  # fmt: skip

    async def drive(ctx):
        for cycle in range(8):
            for name, pattern in steps.items():
                bus = shell.m_axi if name in ("rready", "arvalid", "wvalid", "awvalid") else shell.mem
                ctx.set(getattr(bus, name), pattern >> cycle & 1)
            await ctx.tick()
        for name in steps:
            bus = shell.m_axi if name in ("rready", "arvalid", "wvalid", "awvalid") else shell.mem
            ctx.set(getattr(bus, name), 0)
        await ctx.tick()
        # Write stalls: data in cycles 1 to 4, one of which is that of an address, and an address in cycle 7.
        assert [await bench.read(ctx, name) for name in names] == [1, 2, 2, 5]

    bench.circuit.simulate(drive)
