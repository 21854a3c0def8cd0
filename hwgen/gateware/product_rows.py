"""Multiplier in LUTs: every two bits of a factor add one partial product (row), and a pipelined tree sums the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amaranth import Cat, Const, Module, Mux, Value, signed

from hwgen.gateware.cost import Cost, constant_adder_luts, trailing_zeros
from hwgen.gateware.lookup import delayed, named, registered
from hwgen.gateware.rounding import signed_bits


@dataclass(frozen=True, kw_only=True)
class ProductRows:
    """Configuration of a multiplier in LUTs, signed by unsigned: every two bits of the factor add a partial product.

    Parameters
    ----------
    operand_bits : int
        Width of the operand, signed.
    factor_bits : int
        Width of the factor, unsigned.
    offset : int or None
        Constant that is added to every product; ``None`` for no addition.
    product_bits : int
        Width of the product with the offset, signed.
    unused_bits : int
        Number of lowest product bits that nothing reads.
    """

    operand_bits: int
    factor_bits: int
    offset: int | None
    product_bits: int
    unused_bits: int

    @property
    def rows(self) -> int:
        """Number of partial products (rows) that the multiplier sums, one for every two bits of the factor."""
        return -(-self.factor_bits // 2)

    @property
    def latency(self) -> int:
        """Cycles from operand and factor to the product: one for the partial products, one per level of the tree."""
        return 1 + len(self.tree)

    @cached_property
    def tree(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """Adder tree over partial products: per level, a tuple of triples (lowest bit, width, adder width of a sum).

        The width of the adder is 0 for a value that only passes by. Every row begins two bits above the previous row.
        The offset, if there is one, is the last addend.
        """
        addends = [(2 * row, self.operand_bits + 2) for row in range(self.rows)]
        if self.offset is not None:
            addends.append((0, signed_bits(self.offset)))
        levels = []
        while len(addends) > 1:
            level = []
            for first in range(0, len(addends), 2):
                pair = addends[first : first + 2]
                low, high = min(lowest for lowest, _ in pair), max(lowest for lowest, _ in pair)
                top = min(max(lowest + width for lowest, width in pair) + len(pair) - 1, self.product_bits)
                level.append((low, top - low, (top - high) * (len(pair) - 1)))
            addends = [(lowest, width) for lowest, width, _ in level]
            levels.append(tuple(level))
        return tuple(levels)

    def count(self, cost: Cost, factors: Sequence[int], products: int) -> None:
        """Add the resources of ``products`` multipliers in LUTs to ``cost``: their partial products and adder trees.

        Parameters
        ----------
        cost : Cost
            Count of resources that is increased.
        factors : sequence of int
            Values that the factor can have. Equal rows of a constant factor are counted once.
        products : int
            Number of multipliers.
        """
        if len(set(factors)) == 1:
            luts, registers = self._constant_rows(factors[0])
        else:
            luts, registers = self._row_luts(factors), 0
            luts_saved, registers_saved = self._offset_saved
            luts += sum(max(added - 1, 0) for level in self.tree for *_, added in level) - luts_saved
            registers += self.rows * (self.operand_bits + 2) - registers_saved
            registers += sum(width for level in self.tree for width in self._level_registers(level))
            # The lowest bits of a product pass by the adders. Bits that nothing reads need no register.
            registers -= sum(min(self.unused_bits, 2 << level) for level in range(len(self.tree) + 1))
        cost.ff += products * registers
        cost.lut += products * luts

    def _row_luts(self, factors: Sequence[int]) -> int:
        """Return the number of LUTs that form all partial products (rows) of a multiplier with a variable factor.

        They are carry chains, and operands that a factor bit gates. A row's chain adds the operand gated by the lower
        bit to twice the operand gated by the upper bit. The chain's LUTs gate the second operand themselves. Synthesis
        merges equal chains, and operands gated by equal bits.
        """
        bits, none, every = self.operand_bits, 0, (1 << len(factors)) - 1
        columns = [
            sum((factor >> bit & 1) << index for index, factor in enumerate(factors)) for bit in range(2 * self.rows)
        ]
        gated, chains = set(), set()
        for low, high in zip(columns[::2], columns[1::2], strict=True):
            if none in (low, high):
                gated.add(low or high)
            else:
                gated.add(low)
                chains.add((low, high))
        # The lowest bit of a chain is the gated operand's. The highest bit takes a LUT for the sign.
        varying = sum(every not in chain for chain in chains)
        return bits * (len(gated - {none, every}) + len(chains)) + varying

    @property
    def _offset_saved(self) -> tuple[int, int]:
        """Pair of numbers, of LUTs and of registers, that the adder tree saves because the offset is constant."""
        if self.offset is None:
            return 0, 0
        # The offset is the last addend. It waits on every level with an odd number of addends.
        count, level = self.rows + 1, 0
        while count % 2:
            count, level = (count + 1) // 2, level + 1
        low, width, added = self.tree[level][-1]
        lowest = low + width - added
        luts = added - 1 - constant_adder_luts(self.offset >> lowest, added)
        # The lowest bits of the sum equal the offset's. If these are 0, the next adder begins above them.
        zeros, count, waits = min(lowest, trailing_zeros(self.offset)), count // 2, 1
        while count > 1 and count % 2:
            count, waits = (count + 1) // 2, waits + 1
        return luts + zeros * (count > 1), zeros * waits

    def _constant_rows(self, factor: int) -> tuple[int, int]:
        """Return, as a pair, the number of LUTs and of registers of the multiplier if its factor is constant.

        A row of zeros costs nothing. Synthesis merges equal rows, and equal sums on a level of the tree, at whatever
        bit they begin. Two addends are equal if they are made in the same manner.
        """
        bits = self.operand_bits
        addends: list[_Addend | None] = []
        for row in range(self.rows):
            pair = factor >> 2 * row & 3
            lowest, triple = 2 * row + (pair == 2), pair == 3
            addends.append(_Addend(("row", triple), lowest, bits + 2 * triple, luts=bits * triple) if pair else None)
        if self.offset is not None:
            addends.append(_Addend(("offset",), 0, 0))
        while len(addends) > 1:
            pairs = [(*addends[first : first + 2], None)[:2] for first in range(0, len(addends), 2)]
            addends = [self._constant_sum(*pair) for pair in pairs]
        (last,) = addends
        if last is None:
            return 0, 0
        needed: dict[tuple[Any, ...], tuple[_Addend, int]] = {}
        last.mark_needed(max(0, self.unused_bits - last.lowest_bit), needed)
        luts = sum(addend.luts for addend, _ in needed.values())
        return luts, sum(addend.width - first for addend, first in needed.values())

    def _constant_sum(self, lower: _Addend | None, upper: _Addend | None) -> _Addend | None:
        """Return the `_Addend` that is two addends' sum, for a constant factor; ``None`` is an addend of 0."""
        if lower is None or upper is None:
            one = lower or upper
            return one and (replace(one, made=("wait", one.made), luts=0, terms=((one, 0),)) if one.width else one)
        if not upper.width:
            assert self.offset is not None  # an addend without a width is the offset
            top = min(lower.lowest_bit + lower.width + 1, self.product_bits)
            luts = constant_adder_luts(self.offset >> lower.lowest_bit, top - lower.lowest_bit)
            lowest = min(lower.lowest_bit, trailing_zeros(self.offset))
            made, terms = ("offset", lower.made, lower.lowest_bit), ((lower, lower.lowest_bit - lowest),)
            return _Addend(made, lowest, top - lowest, luts=luts, terms=terms)
        if lower.lowest_bit > upper.lowest_bit:
            lower, upper = upper, lower
        addends_top = max(lower.lowest_bit + lower.width, upper.lowest_bit + upper.width)
        top, distance = min(addends_top + 1, self.product_bits), upper.lowest_bit - lower.lowest_bit
        return _Addend(
            ("sum", lower.made, upper.made, distance),
            lower.lowest_bit,
            top - lower.lowest_bit,
            luts=min(addends_top, top) - upper.lowest_bit,  # one LUT computes the last two bits, from both signs
            terms=((lower, 0), (upper, distance)),
        )

    @staticmethod
    def _level_registers(level: Sequence[tuple[int, int, int]]) -> Iterator[int]:
        """Yield the number of register bits of each sum on one level of the adder tree.

        An offset that waits for a row has no register.
        """
        for index, (low, width, added) in enumerate(level):
            yield width if added or low or not index else 0

    def multiply(self, m: Module, lane: int, value: Value, factor: Value) -> Value:
        """Add a lane's multiplier; return a `Value`: ``value * factor + offset``, ``latency`` cycles later."""
        addends: list[tuple[int, Value]] = []  # position of the lowest bit, and value
        for row in range(self.rows):
            ones, twos = (Mux(factor[bit : bit + 1], value, 0) for bit in (2 * row, 2 * row + 1))
            total = registered(m, f"row_{lane}_{row}", ones + (twos << 1), signed(len(value) + 2))
            addends.append((2 * row, total))
        if self.offset is not None:
            addends.append((0, Const(self.offset, signed(signed_bits(self.offset)))))
        for level, joined in enumerate(self.tree):
            following = []
            for index, (low, width, _) in enumerate(joined):
                total = extended(_add_rows(addends[2 * index : 2 * index + 2]), width)[:width].as_signed()
                if not isinstance(total, Const):
                    # A register with a reset is not part of a shift register, which is too slow to feed an adder.
                    total = delayed(m, f"row_sum_{lane}_{level}_{index}", total, 1, reset_less=False)
                following.append((low, total))
            addends = following
        ((_, total),) = addends
        return extended(total, self.product_bits)[: self.product_bits].as_signed()


@dataclass(frozen=True)
class _Addend:
    """Addend in a constant multiplier's adder tree, described so that its LUTs and registers can be counted.

    Parameters
    ----------
    made : tuple
        Description of how the addend is made. Synthesis merges addends with the same description.
    lowest_bit : int
        Position of the lowest bit.
    width : int
        Width in bits; 0 for the offset.
    luts : int
        Number of LUTs that make the addend from its terms.
    terms : tuple of (_Addend, int)
        Terms of the sum, each with its lowest bit's distance from the addend's lowest bit.
    """

    made: tuple[Any, ...]
    lowest_bit: int
    width: int
    luts: int = 0
    terms: tuple[tuple[_Addend, int], ...] = ()

    def mark_needed(self, first: int, needed: dict[tuple[Any, ...], tuple[_Addend, int]]) -> None:
        """Record in ``needed`` that the addend's bits ``first`` and above are read, and so are bits of its terms."""
        if self.made in needed and needed[self.made][1] <= first:
            return
        needed[self.made] = self, first
        begin = max(above for _, above in self.terms) if self.terms else 0
        for term, above in self.terms:
            # A carry chain begins at the lowest bit of the upper term. The bits below pass by.
            term.mark_needed(max(min(first, begin) - above, 0), needed)


def _add_rows(pair: list[tuple[int, Value]]) -> Value:
    """Return the sum of one or two partial products, each given with its lowest bit position.

    Bits below the lowest bit of the upper row pass by the adder.
    """
    (low, lower), *rest = sorted(pair, key=lambda row: row[0])
    if not rest:
        return lower
    ((high, upper),) = rest
    below = high - low
    lower = extended(lower, below + 1)
    return Cat(lower[:below], named(lower[below:].as_signed() + upper, "upper_sum")).as_signed()


def extended(value: Value, bits: int) -> Value:
    """Return ``value`` as a signed value of at least ``bits`` bits, by sign extension (zeros if unsigned)."""
    sign = value[-1] if value.shape().signed else Const(0)
    return Cat(value, sign.replicate(max(0, bits - len(value), not value.shape().signed))).as_signed()
