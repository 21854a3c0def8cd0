"""Conversion of a feature map's values to another scale or type, by a table with an output for every value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Module, Value

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.lookup import delayed, look_up, registered
from hwgen.gateware.reorder import ReorderConfig
from hwgen.gateware.resample import ResampleConfig
from hwgen.gateware.select import SelectConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.value_tables import ValueTables


@dataclass(frozen=True, kw_only=True)
class RecodeConfig(ValueTables):
    """Configuration of a conversion of values by lookup: a table per input map; each cycle converts values of one map.

    Parameters
    ----------
    window : JoinConfig, UpsampleConfig, ResampleConfig, SelectConfig or ReorderConfig
        Source of the steps, which takes its inputs in turn.
    tables : tuple of tuple of int
        For each input: outputs of its values, from the smallest to the largest. An empty table keeps values that
        already have the output's type.
    bits, signed : int, bool
        Type of the output.

    Raises
    ------
    ConfigError
        If the inputs are not taken in turn; if a table does not have one entry per value; or if an input of another
        type has no table.
    """

    window: JoinConfig | UpsampleConfig | ResampleConfig | SelectConfig | ReorderConfig
    tables: tuple[tuple[int, ...], ...]
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        inputs = self.window.inputs
        if not self.window.in_turn or len(self.tables) != len(inputs):
            raise ConfigError(f"window must take {len(self.tables)} inputs in turn, not {self.window!r}")
        self.check_entries()

    @property
    def lanes(self) -> int:
        return self.window.lanes

    @property
    def latency(self) -> int:
        """Cycles from an input value to its table entry on ``o``; 0 if no input has a table."""
        return 2 if self.changes else 0

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        if self.changes:
            count = self.lanes * self.window.pixels
            for index, table in enumerate(self.tables):
                if not table:
                    cost.ff += count * self.bits
                    continue
                cost.table(self.words(index), self.bits, copies=count)
            cost.ff += count * self.bits + 4
            cost.multiplexer(count * self.bits, len(self.tables))
        return cost.resources

    def component(self) -> Recode:
        return Recode(self)


class Recode(Elementwise[RecodeConfig]):
    """Component that replaces each value by its entry in the lookup table of the input map that it belongs to.

    Parameters
    ----------
    config : RecodeConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` values, ``[lane][pixel]``.

    Latency and throughput
        One step per cycle. Values leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate_shared(self, m: Module) -> None:
        if self.config.changes:
            self._source = delayed(m, "input_index", self.i.payload.source, 1)

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        config, value = self.config, self.i.payload.operand[lane][pixel]
        if config.changes:
            looked_up = Array(
                self._look_up(m, f"{name}_input_{index}", index, value) for index in range(len(config.tables))
            )
            value = registered(m, f"{name}_output", looked_up[self._source], config.result)
        return value[: config.bits]

    def _look_up(self, m: Module, name: str, index: int, value: Value) -> Value:
        """Add a lookup of ``value`` in the table of input map ``index``, and return the entry, a cycle later.

        Without a table, the result is the value itself, a cycle later.
        """
        if not self.config.tables[index]:
            # A slice is unsigned. A multiplexer of an unsigned value and signed table entries would need one more bit.
            kept = value[: self.config.bits]
            return delayed(m, f"{name}_value", kept.as_signed() if self.config.signed else kept, 1)
        return look_up(m, self.config.device, f"{name}_table", self.config.result, self.config.words(index), value)
