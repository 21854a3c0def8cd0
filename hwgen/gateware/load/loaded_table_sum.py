"""Addition of two quantised feature maps by lookup tables that are loaded at run time.

`hwgen.gateware.table_sum` is the same with constant tables. The tables store shares in fixed point
(`hwgen.gateware.arithmetic.shares`). Their `FRACTION` fractional bits suffice for the same scales as in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from amaranth import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.shares import FRACTION, MAX_BITS, SHARE_BITS, WHOLE_BITS, WRITTEN_SUM
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.load.loaded_memory import LoadedMemory, add_store, writes_of
from hwgen.gateware.lookup import by_bits, delayed
from hwgen.gateware.value_tables import PairTables

_HALF = 1 << (MAX_BITS - 1)
"""Half of an 8-bit range (128), subtracted from unsigned outputs because the saturating adder is signed."""


@dataclass(frozen=True, kw_only=True)
class LoadedTableSumConfig(PairTables):
    """Configuration of an adder of two maps by loaded tables: ``round(tables[0][a] + tables[1][b]) + zero_point``.

    The result is saturated.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps: two inputs, one beat of each per step.
    tables : tuple of two tuples of int
        Initial tables: for each value of an input, in ascending order, its share in units of ``2**-FRACTION``, signed,
        `SHARE_BITS` bits.
    rounding : tuple of int
        Initial rounding table, indexed by the 8 low bits of the sum's integer part: the smallest fraction, in the same
        units, that is rounded up.
    zero_point, low, high : int
        Initial zero point, minimum and maximum of the output.
    bits, signed : int, bool
        Width of the output in bits, and its signedness.

    Raises
    ------
    ConfigError
        If there are not two inputs of at most 8 bits, each with a table of all its values, or a number is out of range.
    """

    window: JoinConfig
    tables: tuple[tuple[int, ...], ...]
    rounding: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool

    def __post_init__(self) -> None:
        self.check_tables(FRACTION)
        half = 1 << (SHARE_BITS - 1)
        if wrong := [share for table in self.tables for share in table if not -half <= share < half]:
            raise ConfigError(f"tables must have shares of {SHARE_BITS} bits where they are loaded, not {wrong[0]}")
        if not 1 <= self.bits <= MAX_BITS:
            raise ConfigError(f"bits must be from 1 to {MAX_BITS}, not {self.bits!r}")

    @property
    def bound(self) -> BoundConfig:
        """Configuration (`BoundConfig`) of each lane's saturating adder, which adds the zero point to the sum."""
        return BoundConfig(device=self.device, bits=WHOLE_BITS)

    @property
    def latency(self) -> int:
        """Number of cycles from a pair of input beats to their saturated sums on port ``o``."""
        return WRITTEN_SUM.latency + self.bound.latency

    # Loaded memories.

    @property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Tuple of each `LoadedMemory`: a table per operand, rounding table, and word of constants.

        Each exists once per lane and pixel, with the same contents.
        """
        return (
            *(
                LoadedMemory(device=self.device, name=f"share_{operand}", width=SHARE_BITS, depth=len(table))
                for operand, table in enumerate(self.tables)
            ),
            LoadedMemory(device=self.device, name="rounding", width=FRACTION + 1, depth=len(self.rounding)),
            LoadedMemory(device=self.device, name="rule", width=3 * MAX_BITS, depth=1),
        )

    @cached_property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Tuple of initial words (integers) of each memory of ``stores``, before anything is loaded."""
        shares = (
            tuple(by_bits(table, signed=beat.signed))
            for table, beat in zip(self.tables, self.window.inputs, strict=True)
        )
        offset = 0 if self.signed else _HALF
        rule = [(value - offset) % (1 << MAX_BITS) for value in (self.zero_point, self.low, self.high)]
        word = sum(value << (MAX_BITS * index) for index, value in enumerate(rule))
        return (*shares, self.rounding, (word,))

    @property
    def blank(self) -> LoadedTableSumConfig:
        """`LoadedTableSumConfig` with placeholder contents, equal for circuits that differ in contents only."""
        tables = tuple((0,) * len(table) for table in self.tables)
        return replace(self, tables=tables, rounding=(0,) * len(self.rounding), zero_point=0, low=0, high=0)

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(self.device), self.lanes * self.window.pixels
        *tables, rule = self.stores
        for store in tables:
            cost.ram(store.width, store.depth, copies=count)
        WRITTEN_SUM.count(cost, count)
        cost.ff += rule.width + self.latency  # valid bits
        return cost.resources + sum([self.bound.resources] * count, Resources())

    def component(self) -> LoadedTableSum:
        return LoadedTableSum(self)


class LoadedTableSum(Elementwise[LoadedTableSumConfig]):
    """Adder of two quantised maps by loaded tables: looks both operands up, adds, rounds and saturates.

    Parameters
    ----------
    config : LoadedTableSumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``.
    writes : In
        Write ports of ``config.stores``, by name. They are used between frames only.

    Latency and throughput
        One step per cycle. Its sums follow ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: LoadedTableSumConfig):
        super().__init__(config, writes=In(writes_of(config.stores)))

    def elaborate_shared(self, m: Module) -> None:
        self._rule = self._add_store(m, "", 3, Signal(0))

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        config = self.config
        operands = [self.i.payload[f"operand_{index}"][lane][pixel] for index in range(2)]
        m.submodules[f"{name}_bound"] = bound = config.bound.component()
        m.d.comb += [
            port.eq(self._rule.word_select(index, MAX_BITS).as_signed())
            for index, port in enumerate((bound.zero_point, bound.low, bound.high))
        ]

        def read(index: int, value: Value) -> Value:
            word = self._add_store(m, name, index, value)
            return word.as_signed() if index < len(operands) else word

        whole, carry = WRITTEN_SUM.add_to(m, f"{name}_sum", read, operands)
        m.d.comb += bound.whole.eq(delayed(m, f"{name}_whole", whole, 1))
        m.d.comb += bound.carry.eq(delayed(m, f"{name}_carry", carry, 1))
        output = bound.o if config.signed else bound.o.as_unsigned() ^ _HALF
        return output[: config.bits]

    def _add_store(self, m: Module, name: str, store_index: int, index: Value) -> Value:
        """Add the memory ``store_index`` that is loaded at run time; return its word at ``index``, two cycles later.

        The one-word memory of the zero point and the bounds is a register, and has no delay.
        """
        store, contents = self.config.stores[store_index], self.config.stored_contents[store_index]
        write: wiring.PureInterface = getattr(self.writes, store.name)
        word = add_store(m, store, contents, write, index, name=f"{name}_{store.name}" if name else store.name)
        return word if store.depth == 1 else delayed(m, f"{name}_{store.name}_value", word, 1)
