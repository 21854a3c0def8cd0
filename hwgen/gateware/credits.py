"""Credits: a writer that never stalls starts only what the FIFO behind it has room for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.cost import Resources, counter_bits
from hwgen.gateware.lookup import dense_table


@dataclass(frozen=True, kw_only=True)
class CreditsConfig:
    """A credit for each beat that the FIFO has room for.

    Parameters
    ----------
    depth : int
        Beats that the FIFO holds.
    claims : tuple of int
        Credits that each output fold takes when it starts: the beats it will put into the FIFO.
    """

    depth: int
    claims: tuple[int, ...]

    @cached_property
    def resources(self) -> Resources:
        bits = counter_bits(self.depth + 1)
        # One more where the claims' lowest two bits are not 0, two more where a LUT doesn't see all credits.
        low_bits = any(claim % 4 for claim in self.claims) and bits > 2
        return Resources(ff=bits, lut=2 * bits + low_bits + 2 * (bits > 8))

    def component(self) -> Credits:
        return Credits(self)


class Credits(wiring.Component):
    """The counter of credits as a component of its own; layers have it among their other logic (`count_credits`).

    Parameters
    ----------
    config : CreditsConfig

    Members
    -------
    fold : In
        Number of the output fold that starts next.
    start : In(1)
        It starts in this cycle.
    offered, taken : In(1)
        A beat is offered by the FIFO, and taken from it; with both it gives its credit back.
    room : Out(1)
        There are credits enough for that output fold.
    """

    def __init__(self, config: CreditsConfig):
        self._config = config
        super().__init__(
            {
                "fold": In(range(len(config.claims))),
                "start": In(1),
                "offered": In(1),
                "taken": In(1),
                "room": Out(1),
            }
        )

    @property
    def config(self) -> CreditsConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        returned = self.offered & self.taken
        m.d.comb += self.room.eq(count_credits(m, self.config, fold=self.fold, start=self.start, returned=returned))
        return m


def count_credits(
    m: Module, config: CreditsConfig, *, fold: Value, start: Value, returned: Value, name: str = "credits"
) -> Value:
    """Whether there are credits enough for the output fold that starts next; ``returned``: a credit comes back."""
    credits = Signal(range(config.depth + 1), init=config.depth, name=name)
    claim = dense_table(m, name.replace("credits", "claim"), fold, config.claims)
    m.d.sync += credits.eq(credits + returned - Mux(start, claim, 0))
    return credits >= claim
