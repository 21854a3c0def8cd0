"""Registers of a bus wrapper, cycle by cycle, and the shell of an engine, with an engine that a test plays."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lite import Master, signals_of
from programs import SMALL
from testbench import Circuit

from hwgen.gateware.bus import engine_shell
from hwgen.gateware.bus.engine_shell import EngineShell, EngineShellConfig
from hwgen.gateware.bus.lite import Bank, BankConfig
from hwgen.gateware.bus.registers import Access, Field, Register, read_only
from hwgen.gateware.engine.port import Error


def register(name: str, offset: int, access: Access, reset: int = 0) -> Register:
    """Of two fields with a gap between them."""
    fields = (
        Field(name="LOW", low=1, bits=10, about="", reset=reset),
        Field(name="HIGH", low=14, bits=18, about=""),
    )
    return Register(name=name, offset=offset, access=access, about="", fields=fields)


MASK = 0xFFFFC7FE
KEEPS, CLEARS, DOES, TAKES, SHOWS = 0x10, 0x24, 0x08, 0xFFC, 0x00
REGISTERS = (
    read_only("SHOWS", SHOWS, ""),
    register("DOES", DOES, "w1s"),
    register("KEEPS", KEEPS, "rw", reset=0x155),
    register("CLEARS", CLEARS, "w1c"),
    Register(name="TAKES", offset=TAKES, access="w", about=""),
)


def bank() -> tuple[Any, Master, Circuit]:
    made: Any = Bank(BankConfig(registers=REGISTERS))
    return made, Master(made.bus), Circuit(made)


def test_accesses():
    """Random ones, with bytes that don't count, early and late, against a model."""
    part, master, circuit = bank()
    rng = random.Random(3)
    held = {KEEPS: 0x155 << 1, CLEARS: 0}

    async def bench(ctx):
        ctx.set(part.shows, 0xDEADBEEF)
        for _ in range(150):
            offset = rng.choice([SHOWS, KEEPS, KEEPS, CLEARS, CLEARS, DOES, TAKES, 0x14, 0x410])
            if rng.random() < 0.3:
                raised = rng.getrandbits(32)
                ctx.set(part.clears_raise, raised)
                await ctx.tick()
                ctx.set(part.clears_raise, 0)
                held[CLEARS] |= raised & MASK
            if rng.random() < 0.5:
                value, strobe = rng.getrandbits(32), rng.randrange(16)
                counts = sum(0xFF << 8 * place for place in range(4) if strobe >> place & 1)
                await master.write(ctx, offset, value, strobe, (rng.randrange(4), rng.randrange(4)))
                if offset == KEEPS:
                    held[KEEPS] = (held[KEEPS] & ~counts | value & counts) & MASK
                elif offset == CLEARS:
                    held[CLEARS] &= ~(value & counts)
            found = await master.read(ctx, offset, rng.randrange(4))
            assert found == {SHOWS: 0xDEADBEEF, **held}.get(offset, 0)
            assert (ctx.get(part.keeps), ctx.get(part.clears)) == (held[KEEPS], held[CLEARS])
        ctx.set(part.clear, 1)
        await ctx.tick()
        assert (ctx.get(part.keeps), ctx.get(part.clears)) == (held[KEEPS], 0)

    circuit.simulate(bench)


def test_what_is_done_once():
    """In the cycle after address and data have come, and in no other one; also while an answer waits."""
    part, master, circuit = bank()
    seen: list[tuple[int, int, int]] = []

    async def bench(ctx):
        async def tick() -> None:
            _, _, does, takes, written = await ctx.tick().sample(part.does, part.takes, part.takes_written)
            seen.append((int(does), int(takes) if written else 0, int(written)))

        await master.ask(ctx, DOES, 0xFFFFFFFF, 0b0011)
        for _ in range(3):
            await tick()
        assert seen == [(0xC7FE, 0, 0), (0, 0, 0), (0, 0, 0)]
        seen.clear()
        # The answer is not taken yet: what is written now waits for it.
        await master.ask(ctx, TAKES, 0x12345678, 0b1110)
        for _ in range(3):
            await tick()
        assert seen == [(0, 0, 0)] * 3
        seen.clear()
        ctx.set(part.bus.bready, 1)
        await ctx.tick().until(part.bus.bvalid)
        ctx.set(part.bus.bready, 0)
        for _ in range(3):
            await tick()
        assert [each for each in seen if any(each)] == [(0, 0x12345600, 1)]
        await master.answered(ctx)
        assert not ctx.get(part.bus.bvalid)

    circuit.simulate(bench)


def test_raising_goes_before_clearing():
    """A bit that is raised in the cycle in which it is cleared stays; one that was raised before goes."""
    part, master, circuit = bank()

    async def bench(ctx):
        for cycle, stays in enumerate((False, True, True)):
            await master.write(ctx, CLEARS, 0xFFFFFFFF)
            ctx.set(part.bus.awaddr, CLEARS)
            ctx.set(part.bus.wdata, 2)
            ctx.set(part.bus.wstrb, 15)
            for number in range(4):  # taken in the first one, written in the second one
                ctx.set(part.bus.awvalid, number == 0)
                ctx.set(part.bus.wvalid, number == 0)
                ctx.set(part.clears_raise, 2 * (number == cycle))
                await ctx.tick()
            assert ctx.get(part.clears) == 2 * stays, cycle
            await master.answered(ctx)

    circuit.simulate(bench)


def test_a_read_at_a_time():
    """No other one is taken before the answer, which holds; a register is told when it is read, once."""
    part, _, circuit = bank()
    told = []

    async def bench(ctx):
        bus = part.bus
        ctx.set(part.shows, 7)
        ctx.set(bus.araddr, SHOWS)
        ctx.set(bus.arvalid, 1)
        for number in range(4):
            _, _, ready, read = await ctx.tick().sample(bus.arready, part.shows_read)
            told.append((int(ready), int(read)))
            ctx.set(part.shows, 8 + number)
            ctx.set(bus.araddr, KEEPS)
        assert told == [(1, 1), (0, 0), (0, 0), (0, 0)]
        assert (ctx.get(bus.rvalid), ctx.get(bus.rdata)) == (1, 7)

    circuit.simulate(bench)


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
