"""Bounds of outputs that are not known before run time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Resources
from hwgen.gateware.lookup import delayed


@dataclass(frozen=True, kw_only=True)
class BoundConfig:
    """A lane of `Bound`.

    Parameters
    ----------
    bits : int
        Width of a whole part, signed.

    Raises
    ------
    ConfigError
        If the width is not positive.
    """

    bits: int

    #: Cycles after a whole part in which its bounds are taken.
    bounds_cycle = 1
    #: Cycles from a whole part to what becomes of it.
    latency = 2

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")

    @cached_property
    def resources(self) -> Resources:
        """An adder, two comparisons, and the choice of 8 bits."""
        return Resources(lut=3 * self.bits + 3, ff=self.bits + 9)

    def component(self) -> Bound:
        return Bound(self)


class Bound(wiring.Component):
    """``clip(whole + carry + zero_point, low, high)``.

    Parameters
    ----------
    config : BoundConfig

    Members
    -------
    whole, carry, zero_point : In
        Two's complement but for ``carry``, which is 0 or 1.
    low, high : In
        ``config.bounds_cycle`` cycles after what they bound.
    o : Out
        What becomes of it.

    Latency and throughput
        A value a cycle; it leaves ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: BoundConfig):
        self._config = config
        eight = signed(8)
        super().__init__(
            {
                "whole": In(signed(config.bits)),
                "carry": In(1),
                "zero_point": In(eight),
                "low": In(eight),
                "high": In(eight),
                "o": Out(eight),
            }
        )

    @property
    def config(self) -> BoundConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        moved = (Cat(Const(1, 1), self.whole).as_signed() + Cat(self.carry, self.zero_point).as_signed()) >> 1
        value = delayed(m, "unbounded", moved, 1)
        bounded = Mux(value < self.low, self.low, Mux(value > self.high, self.high, value))
        m.d.sync += self.o.eq(bounded)
        return m
