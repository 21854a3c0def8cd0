"""Elementwise sum of two quantised feature maps, by lookup tables instead of multipliers.

Two tables store, for each of the up to 256 values of an operand, its share of the output in fixed point. A third table
stores, for each integer, the smallest fraction that is rounded up. The author of the tables (`hwgen.templates.joins`)
proves for all pairs of values that the result is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Shape, Signal, Value

from hwgen.devices import Device
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.lookup import bits_for_range, look_up
from hwgen.gateware.naming import named
from hwgen.gateware.value_tables import MAX_BITS, PairTables


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

    #: Cycles from a pair of input beats to their rounded and clamped sums.
    latency = 5

    def __post_init__(self) -> None:
        self.check_tables(self.fraction)

    @cached_property
    def total(self) -> Shape:
        """Amaranth shape of the fixed-point sum of two table entries."""
        return bits_for_range(sum(min(table) for table in self.tables), sum(max(table) for table in self.tables))

    @property
    def reach(self) -> tuple[int, int]:
        """Smallest and largest rounded sum, without zero point, that the width of the fixed-point sums allows."""
        low = -(1 << (self.total.width - 1)) if self.total.signed else 0
        return low >> self.fraction, (low + (1 << self.total.width) - 1 >> self.fraction) + 1

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(self.device), self.lanes * self.window.pixels
        for words in (self.words(0), self.words(1), list(self.rounding)):
            cost.table(words, bits_for_range(min(words), max(words)).width, copies=count)
        whole = bits_for_range(*self.reach).width
        cost.ff += count * (2 * self.total.width + whole + self.bits)
        # The rounding carry of an adder needs no LUTs. The comparison that computes the carry does.
        cost.lut += count * (self.total.width + self.fraction // 2 + self.bits)
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
        config, point = self.config, self.config.fraction
        shares = [
            _look_up(m, config.device, f"{name}_share_{index}", config.words(index), value)
            for index, value in enumerate(operands)
        ]
        total = Signal(config.total, name=f"{name}_sum", reset_less=True)
        delayed_total = Signal(config.total, name=f"{name}_sum_delayed", reset_less=True)
        m.d.sync += [total.eq(shares[0] + shares[1]), delayed_total.eq(total)]
        threshold = _look_up(m, config.device, f"{name}_rounding", config.rounding, (total >> point)[:MAX_BITS])
        rounded = Signal(bits_for_range(*config.reach), name=f"{name}_rounded_sum", reset_less=True)
        m.d.sync += rounded.eq((delayed_total >> point) + (delayed_total[:point] >= threshold))
        result = Signal(config.result, name=f"{name}_output", reset_less=True)
        zero, low, high = config.zero_point, config.low, config.high
        inside = named(Mux(rounded > high - zero, high, rounded + zero), "clamped_sum")
        m.d.sync += result.eq(Mux(rounded < low - zero, low, inside))
        return result


def _look_up(m: Module, device: Device, name: str, words: Sequence[int], index: Value) -> Value:
    """Add a constant table, and return its entry at ``index``, in the narrowest shape for all ``words``."""
    return look_up(m, device, name, bits_for_range(min(words), max(words)), words, index)
