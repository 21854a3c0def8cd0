"""Sums of two maps by tables that are loaded: what `hwgen.gateware.table_sum` does with constants.

The tables hold shares in fixed point (`hwgen.gateware.arithmetic.shares`). Their `FRACTION` bits tell the sums apart at
any two scales that the engine can add, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from amaranth import Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS, WHOLE_BITS
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Elementwise
from hwgen.gateware.load.store import Store, stored, writes_of
from hwgen.gateware.lookup import by_bits, delayed
from hwgen.gateware.value_tables import MOST_BITS, PairTables

_HALF = 1 << (MOST_BITS - 1)
"""What is subtracted of unsigned outputs, as `Bound`'s are signed."""


@dataclass(frozen=True, kw_only=True)
class LoadedTableSumConfig(PairTables):
    """``round(tables[0][a] + tables[1][b]) + zero_point``, between bounds, for any tables, zero point and bounds.

    Parameters
    ----------
    window : JoinConfig
        Where the steps come from: two inputs, a beat of each.
    tables : tuple of two tuples of int
        Before others are loaded: for each value of an input, from the least to the greatest, its share in units of
        ``2**-FRACTION``, of `SHARE_BITS` bits, signed.
    rounding : tuple of int
        By the 8 low bits of a sum's whole part: the least fraction, in the same units, with which it is rounded up.
    zero_point, low, high : int
        Of the output, likewise.
    bits, signed : int, bool
        Type of the output.

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
        if not 1 <= self.bits <= MOST_BITS:
            raise ConfigError(f"bits must be from 1 to {MOST_BITS}, not {self.bits!r}")

    @property
    def bound(self) -> BoundConfig:
        return BoundConfig(bits=WHOLE_BITS)

    @property
    def latency(self) -> int:
        """Cycles from a step to its sums: two for each table, four for the sum, and the bounds'."""
        return 6 + self.bound.latency

    # What is loaded.

    @property
    def stores(self) -> tuple[Store, ...]:
        """Each is one memory for each lane and pixel, all of which hold the same."""
        return (
            *(
                Store(name=f"share_{number}", width=SHARE_BITS, depth=len(table))
                for number, table in enumerate(self.tables)
            ),
            Store(name="rounding", width=FRACTION + 1, depth=len(self.rounding)),
            Store(name="rule", width=3 * MOST_BITS, depth=1),
        )

    @cached_property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Of each of ``stores``."""
        shares = (
            tuple(by_bits(table, signed=beat.signed))
            for table, beat in zip(self.tables, self.window.inputs, strict=True)
        )
        offset = 0 if self.signed else _HALF
        rule = [(value - offset) % (1 << MOST_BITS) for value in (self.zero_point, self.low, self.high)]
        word = sum(value << (MOST_BITS * number) for number, value in enumerate(rule))
        return (*shares, self.rounding, (word,))

    @property
    def blank(self) -> LoadedTableSumConfig:
        """The same hardware with contents that say nothing."""
        tables = tuple((0,) * len(table) for table in self.tables)
        return replace(self, tables=tables, rounding=(0,) * len(self.rounding), zero_point=0, low=0, high=0)

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(), self.lanes * self.window.pixels
        *tables, rule = self.stores
        for store in tables:
            for _ in range(count):
                cost.ram(store.width, store.depth)
        cost.ff += count * (sum(store.width for store in tables) + 3 * (SHARE_BITS + 1) + WHOLE_BITS + 1) + rule.width
        cost.lut += count * (SHARE_BITS + 1 + 17)
        cost.ff += self.latency  # what is valid
        return cost.resources + sum([self.bound.resources] * count, Resources())

    def component(self) -> LoadedTableSum:
        return LoadedTableSum(self)


class LoadedTableSum(Elementwise[LoadedTableSumConfig]):
    """Looks both operands up in tables that are loaded, adds, rounds, and bounds.

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
        By name of each of ``config.stores``, what writes it, between frames.

    Latency and throughput
        A step a cycle; sums ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: LoadedTableSumConfig):
        super().__init__(config, writes=In(writes_of(config.stores)))

    def elaborate_shared(self, m: Module) -> None:
        self._rule = self._stored(m, "", 3, Signal(0))

    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        config = self.config
        operands = [self.i.payload[f"operand_{index}"][lane][pixel] for index in range(2)]
        m.submodules[f"{name}_bound"] = bound = config.bound.component()
        m.d.comb += [
            port.eq(self._rule.word_select(index, MOST_BITS).as_signed())
            for index, port in enumerate((bound.zero_point, bound.low, bound.high))
        ]
        whole, carry = self._elaborate_sum(m, name, operands)
        m.d.comb += [bound.whole.eq(whole), bound.carry.eq(carry)]
        output = bound.o if config.signed else bound.o.as_unsigned() ^ _HALF
        return output[: config.bits]

    def _stored(self, m: Module, name: str, number: int, index: Value) -> Value:
        """An entry of one of the tables, two cycles later; of the rule, which is no table, what it is."""
        store, contents = self.config.stores[number], self.config.stored_contents[number]
        write: wiring.PureInterface = getattr(self.writes, store.name)
        word = stored(m, store, contents, write, index, name=f"{name}_{store.name}" if name else store.name)
        return word if store.depth == 1 else delayed(m, f"{name}_{store.name}_value", word, 1)

    def _elaborate_sum(self, m: Module, name: str, operands: Sequence[Value]) -> tuple[Value, Value]:
        """The whole part of a sum, and whether it is rounded up; 6 cycles."""
        shares = [self._stored(m, name, number, value).as_signed() for number, value in enumerate(operands)]
        total = Signal(signed(SHARE_BITS + 1), name=f"{name}_sum", reset_less=True)
        m.d.sync += total.eq(shares[0] + shares[1])
        least = self._stored(m, name, 2, total[FRACTION : FRACTION + MOST_BITS])
        # With a reset: a shift register would take LUTs, and more time than there is in front of the comparison.
        late = delayed(m, f"{name}_sum_delayed", total, 2, reset_less=False)
        whole, carry = late >> FRACTION, late[:FRACTION] >= least
        return delayed(m, f"{name}_whole", whole, 1), delayed(m, f"{name}_carry", carry, 1)
