"""The registers of a bus wrapper by themselves, cycle by cycle."""

from __future__ import annotations

import random
from typing import Any

from lite import Master
from testbench import Circuit

from hwgen.gateware.bus.lite import Bank, BankConfig
from hwgen.gateware.bus.registers import Access, Field, Register, whole


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
    whole("SHOWS", SHOWS, ""),
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
