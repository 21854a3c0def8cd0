"""Sum of two quantised values by table look-up: a table of rescaled values per operand, and a table for the rounding.

One table stores, for each value of an operand, its share of the sum: the rescaled value in fixed point. Another table
stores, for each value of the 8 low bits of a sum's whole part, the smallest fraction that is rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amaranth import Module, Shape, Value, signed, unsigned

from hwgen.gateware.cost import Cost
from hwgen.gateware.lookup import delayed, registered

#: Maximum width in bits of values that are looked up in tables.
MAX_BITS = 8
#: Number of fraction bits of an operand's share of a sum, for tables that are written at run time.
FRACTION = 24
#: Width of an operand's share of a sum, in bits with sign: the width of a block RAM.
SHARE_BITS = 36
#: Width of the integer part of the sum of two shares, in bits with sign.
WHOLE_BITS = SHARE_BITS + 1 - FRACTION
#: Shapes of the tables' entries, in the order of their indices: shares of the first and second operand, and rounding.
TABLES = (signed(SHARE_BITS), signed(SHARE_BITS), unsigned(FRACTION + 1))


@dataclass(frozen=True)
class ShareSum:
    """Circuit that adds two shares (operands rescaled to the output's scale, fixed point) and rounds to an integer.

    Parameters
    ----------
    total : Shape
        Shape of the sum.
    fraction : int
        Number of its fraction bits.
    in_blocks : bool
        Whether blocks of RAM store the tables, which have `TABLES` entries; whole part and carry are then registered.
    """

    total: Shape
    fraction: int
    in_blocks: bool

    @property
    def _read_cycles(self) -> int:
        """Cycles from the index of a table entry to the entry: one for LUTs, two for block RAM."""
        return 1 + self.in_blocks

    @property
    def latency(self) -> int:
        """Cycles from the operands to a register of the rounded sum: two table reads, the addition, the rounding."""
        return 2 * self._read_cycles + 2

    def count(self, cost: Cost, copies: int) -> None:
        """Add to ``cost`` the LUTs and flip-flops of ``copies`` sums, without the tables."""
        parts = sum(shape.width for shape in TABLES) + WHOLE_BITS + 1 if self.in_blocks else 0
        cost.ff += copies * ((1 + self._read_cycles) * self.total.width + parts)
        # Measured: it takes more LUTs to compare fractions from block RAM.
        cost.lut += copies * (self.total.width + self.fraction // 2 + 5 * self.in_blocks)

    def add_to(
        self, m: Module, name: str, read: Callable[[int, Value], Value], operands: Sequence[Value]
    ) -> tuple[Value, Value]:
        """Add a circuit that sums two operands' table entries; return a pair: the integer part and whether to round up.

        ``read`` adds a table and returns its entry, by the index of the table (2 for the rounding) and the index of the
        entry. ``name`` is the name of the sum. The caller adds the registers of both results.
        """
        shares = [read(index, operand) for index, operand in enumerate(operands)]
        total = registered(m, name, shares[0] + shares[1], self.total)
        if self.in_blocks:
            threshold = read(2, total[self.fraction : self.fraction + MAX_BITS])
            # With a reset, synthesis makes no shift register, whose output is too late for the comparison.
            late = delayed(m, f"{name}_delayed", total, self._read_cycles, reset_less=False)
        else:  # the whole part can be narrower than an index, and the shift extends its sign
            late = registered(m, f"{name}_delayed", total, self.total)
            threshold = read(2, (total >> self.fraction)[:MAX_BITS])
        return late >> self.fraction, late[: self.fraction] >= threshold


#: `ShareSum` of shares from tables in block RAM that are written at run time.
WRITTEN_SUM = ShareSum(signed(SHARE_BITS + 1), FRACTION, in_blocks=True)
