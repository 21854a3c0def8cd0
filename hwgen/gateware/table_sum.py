"""Elementwise sum of two quantised feature maps, by lookup tables instead of multipliers.

Two tables store, for each of the up to 256 values of an operand, its share of the output in fixed point. A third table
stores, for each integer, the smallest fraction that is rounded up. The author of the tables (`hwgen.templates.joins`)
proves for all pairs of values that the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal, Value

from hwgen.gateware.arithmetic.shares import ShareSum
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.lookup import bits_for_range, look_up, named, registered
from hwgen.gateware.value_tables import PairTables


@dataclass(frozen=True, kw_only=True)
class TableSumConfig(PairTables):
    """Configuration of an elementwise sum of maps by tables: ``round(tables[0][a] + tables[1][b]) + zero_point``.

    The output is clamped to bounds.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps: two inputs, one beat of each per step.
    tables : tuple of two tuples of int
        Shares of all values of an input, from the smallest value to the largest, in units of ``2**-fraction``.
    fraction : int
        Number of fraction bits.
    rounding : tuple of int
        For each value of the 8 low bits of a sum's whole part: smallest fraction, in units of ``2**-fraction``, that is
        rounded up.
    zero_point : int
        Zero point, added after rounding.
    low, high : int
        Bounds of the output.
    bits, signed : int, bool
        Type of the output.

    Raises
    ------
    ConfigError
        If there are not two inputs of at most 8 bits; if a table does not have one entry per value; or if ``rounding``
        does not have 256 entries from 0 to 1.
    """

    window: JoinConfig
    tables: tuple[tuple[int, ...], ...]
    fraction: int
    rounding: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        self.check_tables(self.fraction)

    @cached_property
    def shares(self) -> ShareSum:
        """`ShareSum`: adder of two table entries in fixed point, with rounding by a third table."""
        ends = (sum(end(table) for table in self.tables) for end in (min, max))
        return ShareSum(bits_for_range(*ends), self.fraction, in_blocks=False)

    @property
    def latency(self) -> int:
        """Cycles from a pair of input beats to their rounded and clamped sums."""
        return self.shares.latency + 1

    @property
    def reach(self) -> tuple[int, int]:
        """Pair of integers: smallest and largest rounded sum (no zero point) that the fixed-point width allows."""
        total = self.shares.total
        low = -(1 << (total.width - 1)) if total.signed else 0
        return low >> self.fraction, (low + (1 << total.width) - 1 >> self.fraction) + 1

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(self.device), self.lanes * self.window.pixels
        for words in (self.words(0), self.words(1), list(self.rounding)):
            cost.table(words, bits_for_range(min(words), max(words)).width, copies=count)
        whole = bits_for_range(*self.reach).width
        self.shares.count(cost, count)
        cost.ff += count * (whole + self.bits)
        cost.lut += count * self.bits  # the addition of the rounding carry needs no LUTs
        cost.delay(1, self.latency)
        return cost.resources

    def component(self) -> TableSum:
        return TableSum(self)


class TableSum(Elementwise[TableSumConfig]):
    """Component that adds two quantised maps: a table lookup for each operand, an adder, and exact rounding.

    Parameters
    ----------
    config : TableSumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``.

    Latency and throughput
        One step per cycle. Sums leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        operands = [self.i.payload[f"operand_{index}"][lane][pixel] for index in range(2)]
        config = self.config

        def read(index: int, value: Value) -> Value:
            words, kind = (config.words(index), f"share_{index}") if index < 2 else (config.rounding, "rounding")
            return look_up(m, config.device, f"{name}_{kind}", bits_for_range(min(words), max(words)), words, value)

        whole, carry = config.shares.add_to(m, f"{name}_sum", read, operands)
        rounded = registered(m, f"{name}_rounded_sum", whole + carry, bits_for_range(*config.reach))
        result = Signal(config.result, name=f"{name}_output", reset_less=True)
        zero, low, high = config.zero_point, config.low, config.high
        inside = named(Mux(rounded > high - zero, high, rounded + zero), "clamped_sum")
        m.d.sync += result.eq(Mux(rounded < low - zero, low, inside))
        return result
