"""Elementwise maximum or minimum of several feature maps, whose values may first be converted by lookup tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal, Value

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.lookup import look_up
from hwgen.gateware.value_tables import ValueTables


@dataclass(frozen=True, kw_only=True)
class ExtremeConfig(ValueTables):
    """Configuration of an elementwise maximum or minimum of feature maps: ``max(tables[0][a], tables[1][b], ..)``.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps: at least two inputs, one beat of each per step.
    tables : tuple of tuple of int
        For each input: outputs of its values, from the smallest to the largest. An empty table keeps values that
        already have the output's type.
    greatest : bool
        Whether to compute the maximum, not the minimum.
    bits, signed : int, bool
        Type of the output.

    Raises
    ------
    ConfigError
        If inputs are read in turn or are fewer than two; if a table does not have one entry per value; or if an input
        of another type has no table.
    """

    operation = "maximum or minimum"

    window: JoinConfig
    tables: tuple[tuple[int, ...], ...]
    greatest: bool
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        inputs = self.window.inputs
        if self.window.in_turn or self.window.spread or not 2 <= len(inputs) == len(self.tables):
            raise ConfigError(f"window must take {len(self.tables)} inputs at once, two at least, not {self.window!r}")
        self.check_entries()

    @property
    def levels(self) -> int:
        """Number of levels of the tree of comparators that finds the maximum or minimum, with a register per level.

        A comparator reads one or two values.
        """
        return (len(self.tables) - 1).bit_length()

    @property
    def latency(self) -> int:
        """Cycles from the operands (one value of each map) at ``i`` to their maximum or minimum at ``o``."""
        return self.changes + self.levels

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(self.device), self.lanes * self.window.pixels
        for index, table in enumerate(self.tables):
            if table:
                cost.table(self.words(index), self.bits, copies=count)
            elif self.changes:
                cost.ff += count * self.bits
        left = len(self.tables)
        while left > 1:
            # Per bit: half a LUT of a carry chain for the comparison, and one LUT for the multiplexer.
            cost.lut += count * (left // 2) * (self.bits / 2 + self.bits)
            left -= left // 2
            cost.ff += count * left * self.bits
        cost.delay(1, self.latency)
        return cost.resources

    def component(self) -> Extreme:
        return Extreme(self)


class Extreme(Elementwise[ExtremeConfig]):
    """Component that computes the elementwise maximum or minimum of maps: lookup tables, then a tree of comparators.

    Parameters
    ----------
    config : ExtremeConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` values, ``[lane][pixel]``.

    Latency and throughput
        One step per cycle. Values leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        operands = [self.i.payload[f"operand_{index}"][lane][pixel] for index in range(len(self.config.tables))]
        left = [self._converted(m, f"{name}_input_{index}", index, value) for index, value in enumerate(operands)]
        for level in range(self.config.levels):
            after = []
            for index in range(0, len(left), 2):
                chosen = Signal(self.config.result, name=f"{name}_extreme_{level}_{index // 2}", reset_less=True)
                m.d.sync += chosen.eq(self._choice(left[index : index + 2]))
                after.append(chosen)
            left = after
        (only,) = left
        return only

    def _choice(self, values: Sequence[Value]) -> Value:
        if len(values) == 1:
            return values[0]
        first, second = values
        return Mux(first > second if self.config.greatest else first < second, first, second)

    def _converted(self, m: Module, name: str, index: int, value: Value) -> Value:
        """Add the lookup table of input map ``index``, if any; return a `Value`: converted or unchanged ``value``.

        If any map has a table, the values of all maps are one cycle later.
        """
        config = self.config
        if config.tables[index]:
            return look_up(m, config.device, f"{name}_table", config.result, config.words(index), value)
        kept = Signal(config.result, name=f"{name}_value", reset_less=True)
        if config.changes:
            m.d.sync += kept.eq(value)
        else:
            m.d.comb += kept.eq(value)
        return kept
