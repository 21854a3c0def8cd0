"""Credit counter of free FIFO entries: a pipeline that never stalls starts work only if its results fit the FIFO."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import dense_table


@dataclass(frozen=True, kw_only=True)
class CreditsConfig(OnDevice):
    """Configuration of a credit counter, which counts the free entries of a layer's output FIFO.

    Parameters
    ----------
    depth : int
        Depth of the FIFO, in beats.
    claims : tuple of int
        Number of credits that each output fold claims at its start: the number of beats that it writes.
    """

    depth: int
    claims: tuple[int, ...]

    @cached_property
    def resources(self) -> Resources:
        bits = counter_bits(self.depth + 1)
        # One LUT more if the lowest two bits of some claim are not 0; two more if one LUT cannot read all credits.
        low_bits = any(claim % 4 for claim in self.claims) and bits > 2
        return Cost(self.device, ff=bits, lut=2 * bits + low_bits + 2 * (bits > 8)).resources

    def component(self) -> Credits:
        return Credits(self)


class Credits(ConfiguredComponent[CreditsConfig]):
    """Counter of a layer's output FIFO credits: entries not yet claimed by an output that is being computed.

    It has no other logic. Layers use `count_credits` within their own.

    Parameters
    ----------
    config : CreditsConfig

    Members
    -------
    fold : In
        Index of the output fold that starts next.
    start : In(1)
        Whether the output fold starts in this cycle.
    offered, taken : In(1)
        Whether a beat is valid at the FIFO's output, and whether its reader accepts it. Both return one credit.
    room : Out(1)
        Whether there are enough credits for the output fold.
    """

    def __init__(self, config: CreditsConfig):
        super().__init__(
            config,
            {
                "fold": In(range(len(config.claims))),
                "start": In(1),
                "offered": In(1),
                "taken": In(1),
                "room": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        returned = self.offered & self.taken
        m.d.comb += self.room.eq(count_credits(m, self.config, fold=self.fold, start=self.start, returned=returned))
        return m


def count_credits(
    m: Module, config: CreditsConfig, *, fold: Value, start: Value, returned: Value, name: str = "credits"
) -> Value:
    """Add a counter of a FIFO's free entries; return a bit: the results of the next output fold (``Tm`` channels) fit.

    An output fold is a pass over ``Tm`` output channels; ``fold`` is its index. ``start`` claims the credits of the
    fold, and ``returned`` adds one credit.
    """
    credits = Signal(range(config.depth + 1), init=config.depth, name=name)
    claim = dense_table(m, name.replace("credits", "claim"), fold, config.claims)
    m.d.sync += credits.eq(credits + returned - Mux(start, claim, 0))
    return credits >= claim
