"""A master of AXI4-Lite in Amaranth's simulator, and a look at the registers of what it drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from amaranth import Signal, Value

#: Cycles after which an access is called stuck.
PATIENCE = 50


class Master:
    """Reads and writes, one after the other.

    Parameters
    ----------
    bus : Any
        As its slave has it (`hwgen.gateware.bus.lite.LITE`).
    """

    def __init__(self, bus: Any):
        self.bus = bus

    async def ask(self, ctx: Any, offset: int, value: int, strobe: int = 0xF, late: tuple[int, int] = (0, 0)) -> None:
        """Address and data of a write, so many cycles late, until both are taken."""
        bus, cycle = self.bus, 0
        for name, what in (("awaddr", offset), ("wdata", value), ("wstrb", strobe)):
            ctx.set(getattr(bus, name), what)
        waiting = dict(zip(("aw", "w"), late, strict=True))
        while waiting:
            for name, begin in waiting.items():
                ctx.set(getattr(bus, f"{name}valid"), cycle >= begin)
            _, _, *ready = await ctx.tick().sample(bus.awready, bus.wready)
            for name, taken in zip(("aw", "w"), ready, strict=True):
                if taken and waiting.get(name, PATIENCE) <= cycle:
                    del waiting[name]
                    ctx.set(getattr(bus, f"{name}valid"), 0)
            cycle += 1
            assert cycle < PATIENCE, "a write is not taken"

    async def answered(self, ctx: Any) -> None:
        """Wait for the answer of a write."""
        await self._until(ctx, "b")

    async def write(self, ctx: Any, offset: int, value: int, strobe: int = 0xF, late: tuple[int, int] = (0, 0)) -> None:
        await self.ask(ctx, offset, value, strobe, late)
        await self.answered(ctx)

    async def read(self, ctx: Any, offset: int, late: int = 0) -> int:
        """Return the value of a register. The answer is accepted ``late`` cycles after the address."""
        bus = self.bus
        ctx.set(bus.araddr, offset)
        ctx.set(bus.arvalid, 1)
        await ctx.tick().until(bus.arready)
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.araddr, 0)
        for _ in range(late):
            await ctx.tick()
        return await self._until(ctx, "r")

    async def _until(self, ctx: Any, channel: str) -> int:
        bus = self.bus
        ctx.set(getattr(bus, f"{channel}ready"), 1)
        for _ in range(PATIENCE):
            _, _, valid, data, response = await ctx.tick().sample(
                getattr(bus, f"{channel}valid"), bus.rdata, getattr(bus, f"{channel}resp")
            )
            if valid:
                ctx.set(getattr(bus, f"{channel}ready"), 0)
                assert response == 0
                return int(data)
        raise AssertionError("no answer")


@contextmanager
def signals_of(module: ModuleType) -> Iterator[list[Value]]:
    """Signals that a module of gateware makes meanwhile: a test can set those that would take hours to count so far."""
    found: list[Value] = []

    def make(*arguments: Any, **options: Any) -> Any:
        made = Signal(*arguments, src_loc_at=1, **options)
        found.append(Value.cast(made))
        return made

    make.like = Signal.like  # type: ignore[attr-defined]
    with mock.patch.object(module, "Signal", make):
        yield found
