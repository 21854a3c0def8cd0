"""Base classes of configurations with a table of all values of an input."""

from __future__ import annotations

from typing import Any

from amaranth import Shape

from hwgen.errors import ConfigError
from hwgen.gateware.layer import Weightless
from hwgen.gateware.lookup import by_bits

__all__ = ["MAX_BITS", "PairTables", "ValueTables"]

MAX_BITS = 8
"""Largest width of a value with a table in `PairTables`, in bits."""


class ValueTables(Weightless):
    """Base of configurations with one table per input. An empty table keeps the values of its input."""

    tables: Any
    bits: int
    signed: bool

    @property
    def result(self) -> Shape:
        """Shape of an output."""
        return Shape(self.bits, self.signed)

    @property
    def changes(self) -> bool:
        """Whether any value is changed."""
        return any(self.tables)

    def words(self, index: int) -> list[int]:
        """Return the memory contents of an input's table, addressed by the bits of the value."""
        return by_bits(self.tables[index], signed=self.window.inputs[index].signed)


class PairTables(ValueTables):
    """Base of configurations that add entries of two tables, and round the sum by a table of fractions."""

    rounding: tuple[int, ...]

    def check_tables(self, fraction: int) -> None:
        """Check that the tables fit the inputs, and that ``rounding`` holds fractions of ``fraction`` bits.

        Raises
        ------
        ConfigError
            If a table does not fit.
        """
        inputs = self.window.inputs
        if len(inputs) != 2 or self.window.in_turn or max(beat.bits for beat in inputs) > MAX_BITS:
            raise ConfigError(f"window must take two inputs of at most {MAX_BITS} bits at once, not {self.window!r}")
        if [len(table) for table in self.tables] != [1 << beat.bits for beat in inputs]:
            raise ConfigError("tables must have an entry for each value of their input")
        if len(self.rounding) != 1 << MAX_BITS or not all(0 <= entry <= 1 << fraction for entry in self.rounding):
            raise ConfigError(f"rounding must be {1 << MAX_BITS} fractions from 0 to a whole, not {self.rounding!r}")
