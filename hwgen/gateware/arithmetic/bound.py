"""Circuit that adds a zero point to a scaled output and saturates the sum to bounds that are set at run time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, signed
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.lookup import delayed


@dataclass(frozen=True, kw_only=True)
class BoundConfig(OnDevice):
    """Configuration of `Bound`, the circuit that adds a zero point to a value and saturates the sum to 8 bits.

    Parameters
    ----------
    bits : int
        Width of the whole part, signed.

    Raises
    ------
    ConfigError
        If the width is not positive.
    """

    bits: int

    #: Cycles from the input of ``whole``, the integer to be saturated, to the input of its bounds ``low`` and ``high``.
    bounds_cycle = 1
    #: Cycles from the input of ``whole``, the integer to be saturated, to the saturated output.
    latency = 2

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")

    @cached_property
    def resources(self) -> Resources:
        """`Resources` (LUTs, flip-flops) of one `Bound`: an adder, two comparisons, and an 8-bit multiplexer."""
        return Cost(self.device, lut=3 * self.bits + 3, ff=self.bits + 9).resources

    def component(self) -> Bound:
        return Bound(self)


class Bound(ConfiguredComponent[BoundConfig]):
    """Saturating adder that computes the 8-bit output ``clip(whole + carry + zero_point, low, high)``.

    Parameters
    ----------
    config : BoundConfig

    Members
    -------
    whole, carry, zero_point : In
        Two's complement numbers, except ``carry``, which is 0 or 1.
    low, high : In
        Bounds, ``config.bounds_cycle`` cycles after their whole part.
    o : Out
        Output, signed, 8 bits.

    Latency and throughput
        One value per cycle, with a latency of ``config.latency`` cycles. Never stalls.
    """

    def __init__(self, config: BoundConfig):
        eight = signed(8)
        super().__init__(
            config,
            {
                "whole": In(signed(config.bits)),
                "carry": In(1),
                "zero_point": In(eight),
                "low": In(eight),
                "high": In(eight),
                "o": Out(eight),
            },
        )

    def elaborate(self, platform):
        m = Module()
        moved = (Cat(Const(1, 1), self.whole).as_signed() + Cat(self.carry, self.zero_point).as_signed()) >> 1
        value = delayed(m, "unbounded", moved, 1)
        bounded = Mux(value < self.low, self.low, Mux(value > self.high, self.high, value))
        m.d.sync += self.o.eq(bounded)
        return m
