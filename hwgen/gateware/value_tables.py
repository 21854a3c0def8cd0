"""Base classes of elementwise arithmetic by lookup: a table has an entry for every value of an input type."""

from __future__ import annotations

from typing import Any

from amaranth import Shape

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.shares import MAX_BITS
from hwgen.gateware.layer import Weightless
from hwgen.gateware.lookup import by_bits


class ValueTables(Weightless):
    """Base class of configurations of elementwise lookups, which have one table per input map.

    An empty table keeps the values of its input.
    """

    operation = "table lookup"

    tables: Any
    bits: int
    signed: bool

    @property
    def result(self) -> Shape:
        """Amaranth shape of one value that the lookup outputs."""
        return Shape(self.bits, self.signed)

    @property
    def changes(self) -> bool:
        """Whether any input map has a table; without tables, all values pass unchanged."""
        return any(self.tables)

    def check_entries(self) -> None:
        """Raise ConfigError unless each table has an entry per input value; only inputs of the result's type need none.

        Raises
        ------
        ConfigError
            If a table does not fit its input.
        """
        for beat, table in zip(self.window.inputs, self.tables, strict=True):
            if not table and beat.shape != self.result:
                raise ConfigError(
                    f"tables must have entries for an input of type {beat.shape}, because the result is {self.result}; "
                    "the table is empty"
                )
            if table and len(table) != 1 << beat.bits:
                raise ConfigError(f"tables must have an entry for each of {1 << beat.bits} values, not {len(table)}")

    def words(self, index: int) -> list[int]:
        """Return the memory words (list of integers) of input map ``index``'s table, addressed by value bits."""
        return by_bits(self.tables[index], signed=self.window.inputs[index].signed)


class PairTables(ValueTables):
    """Base class of configurations of two-operand lookups: entries of two tables are added, and the sum is rounded.

    A third table, of fractions, decides the rounding.
    """

    operation = "addition"

    rounding: tuple[int, ...]

    def check_tables(self, fraction: int) -> None:
        """Raise ConfigError unless tables have an entry per input value, and ``rounding`` has 256 values in range.

        The fractions have ``fraction`` bits.

        Raises
        ------
        ConfigError
            If a table does not fit.
        """
        inputs = self.window.inputs
        if len(inputs) != 2 or self.window.in_turn or max(beat.bits for beat in inputs) > MAX_BITS:
            raise ConfigError(f"window must take two inputs of at most {MAX_BITS} bits at once, not {self.window!r}")
        sizes, wanted = [len(table) for table in self.tables], [1 << beat.bits for beat in inputs]
        if sizes != wanted:
            raise ConfigError(f"tables must have an entry for each value of their input, {wanted}, not {sizes}")
        if len(self.rounding) != 1 << MAX_BITS or not all(0 <= entry <= 1 << fraction for entry in self.rounding):
            raise ConfigError(
                f"rounding must have {1 << MAX_BITS} entries from 0 to {1 << fraction}, not {self.rounding!r}"
            )
