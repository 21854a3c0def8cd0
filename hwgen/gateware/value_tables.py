"""Tables that give a value for each value of an input, as several layers have them."""

from __future__ import annotations

from typing import Any

from amaranth import Shape

from hwgen.errors import ConfigError
from hwgen.gateware.layer import Weightless
from hwgen.gateware.lookup import by_bits

__all__ = ["MOST_BITS", "PairTables", "ValueTables"]

MOST_BITS = 8
"""Bits of the widest value that has a table in `PairTables`."""


class ValueTables(Weightless):
    """Base of configurations with a table for each input, or none where its values stay."""

    tables: Any
    bits: int
    signed: bool

    @property
    def result(self) -> Shape:
        """Shape of an output."""
        return Shape(self.bits, self.signed)

    @property
    def changes(self) -> bool:
        """Whether any value becomes another one."""
        return any(self.tables)

    def words(self, index: int) -> list[int]:
        """Return the memory of an input's table, by the value's bits."""
        return by_bits(self.tables[index], signed=self.window.inputs[index].signed)


class PairTables(ValueTables):
    """Base of configurations that add up what two inputs' tables give, and round the sum by a table of fractions."""

    rounding: tuple[int, ...]

    def check_tables(self, fraction: int) -> None:
        """Check that the tables fit the inputs, and that ``rounding`` holds fractions of so many bits.

        Raises
        ------
        ConfigError
            If one of them doesn't.
        """
        inputs = self.window.inputs
        if len(inputs) != 2 or self.window.in_turn or max(beat.bits for beat in inputs) > MOST_BITS:
            raise ConfigError(f"window must take two inputs of at most {MOST_BITS} bits at once, not {self.window!r}")
        if [len(table) for table in self.tables] != [1 << beat.bits for beat in inputs]:
            raise ConfigError("tables must have an entry for each value of their input")
        if len(self.rounding) != 1 << MOST_BITS or not all(0 <= least <= 1 << fraction for least in self.rounding):
            raise ConfigError(f"rounding must be {1 << MOST_BITS} fractions from 0 to a whole, not {self.rounding!r}")
