"""Products in LUTs: two bits of the factor choose a row each, and a tree of registered adders joins the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed

from hwgen.gateware.cost import Cost, constant_adder_luts, trailing_zeros
from hwgen.gateware.lookup import delayed
from hwgen.gateware.naming import named
from hwgen.gateware.rounding import signed_bits


@dataclass(frozen=True, kw_only=True)
class ProductRows:
    """Multiplier in LUTs of a signed operand with an unsigned factor.

    Parameters
    ----------
    operand_bits : int
        Width of the operand, signed.
    factor_bits : int
        Width of the factor, unsigned.
    offset : int or None
        A constant that is added to each product.
    product_bits : int
        Width of the product with the offset, signed.
    unused_bits : int
        Lowest bits of the product at which nothing looks.
    """

    operand_bits: int
    factor_bits: int
    offset: int | None
    product_bits: int
    unused_bits: int

    @property
    def rows(self) -> int:
        """Rows that a product is added up of, one for two bits of the factor."""
        return -(-self.factor_bits // 2)

    @property
    def latency(self) -> int:
        """Cycles from an operand to its product."""
        return 1 + len(self.tree)

    @cached_property
    def tree(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """By level of the tree, its sums: place of the lowest bit, width, and bits of the adder; 0 where there is none.

        Rows begin two places apart; the offset, if it comes in here, is the last addend.
        """
        addends = [(2 * row, self.operand_bits + 2) for row in range(self.rows)]
        if self.offset is not None:
            addends.append((0, signed_bits(self.offset)))
        levels = []
        while len(addends) > 1:
            level = []
            for number in range(0, len(addends), 2):
                pair = addends[number : number + 2]
                low, high = min(place for place, _ in pair), max(place for place, _ in pair)
                top = min(max(place + width for place, width in pair) + len(pair) - 1, self.product_bits)
                level.append((low, top - low, (top - high) * (len(pair) - 1)))
            addends = [(place, width) for place, width, _ in level]
            levels.append(tuple(level))
        return tuple(levels)

    def count(self, cost: Cost, factors: Sequence[int], products: int) -> None:
        """Count so many products with a factor that takes these values: rows, and the tree that adds them up.

        Of a constant factor only what differs of its rows counts.
        """
        if len(set(factors)) == 1:
            luts, registers = self._constant_rows(factors[0])
        else:
            luts, registers = self._row_luts(factors), 0
            luts_saved, registers_saved = self._offset_saved
            luts += sum(max(added - 1, 0) for level in self.tree for *_, added in level) - luts_saved
            registers += self.rows * (self.operand_bits + 2) - registers_saved
            registers += sum(width for level in self.tree for width in self._level_registers(level))
            # The lowest bits of a product pass by, and where nothing looks at them they are none.
            registers -= sum(min(self.unused_bits, 2 << level) for level in range(len(self.tree) + 1))
        cost.ff += products * registers
        cost.lut += products * luts

    def _row_luts(self, factors: Sequence[int]) -> int:
        """Return the LUTs of all rows of a factor that varies: carry chains, and operands that a bit of it gates.

        A chain adds the operand gated by the row's lower bit to twice the one gated by the upper bit, which its LUTs
        gate themselves. Synthesis makes one of equal chains, and of operands gated by bits that are always equal.
        """
        bits, none, every = self.operand_bits, 0, (1 << len(factors)) - 1
        columns = [
            sum((factor >> place & 1) << number for number, factor in enumerate(factors))
            for place in range(2 * self.rows)
        ]
        gated, chains = set(), set()
        for low, high in zip(columns[::2], columns[1::2], strict=True):
            if none in (low, high):
                gated.add(low or high)
            else:
                gated.add(low)
                chains.add((low, high))
        # The lowest bit of a chain is the gated operand itself, and the highest one has a LUT for its sign.
        varying = sum(every not in chain for chain in chains)
        return bits * (len(gated - {none, every}) + len(chains)) + varying

    @property
    def _offset_saved(self) -> tuple[int, int]:
        """LUTs and registers that a row tree does not take, as the offset that comes in is constant."""
        if self.offset is None:
            return 0, 0
        # It waits, as the last of an odd number of addends, until it has a partner.
        count, level = self.rows + 1, 0
        while count % 2:
            count, level = (count + 1) // 2, level + 1
        low, width, added = self.tree[level][-1]
        place = low + width - added
        luts = added - 1 - constant_adder_luts(self.offset >> place, added)
        # The sum has its lowest bits of the offset, which are 0, and the next adder begins above them.
        zeros, count, waits = min(place, trailing_zeros(self.offset)), count // 2, 1
        while count > 1 and count % 2:
            count, waits = (count + 1) // 2, waits + 1
        return luts + zeros * (count > 1), zeros * waits

    def _constant_rows(self, factor: int) -> tuple[int, int]:
        """Return the LUTs and registers of a product with a constant.

        Rows that are 0 are none. Synthesis makes one of equal rows and of equal sums on a level of the tree, wherever
        they begin: an addend is known by how it is made, and by the place where it begins.
        """
        bits = self.operand_bits
        addends: list[_Addend | None] = []
        for row in range(self.rows):
            pair = factor >> 2 * row & 3
            place, triple = 2 * row + (pair == 2), pair == 3
            addends.append(_Addend(("row", triple), place, bits + 2 * triple, luts=bits * triple) if pair else None)
        if self.offset is not None:
            addends.append(_Addend(("offset",), 0, 0))
        while len(addends) > 1:
            pairs = [(*addends[first : first + 2], None)[:2] for first in range(0, len(addends), 2)]
            addends = [self._constant_sum(*pair) for pair in pairs]
        (last,) = addends
        assert last is not None
        needed: dict[tuple[Any, ...], tuple[_Addend, int]] = {}
        last.need(max(0, self.unused_bits - last.place), needed)
        luts = sum(addend.luts for addend, _ in needed.values())
        return luts, sum(addend.width - first for addend, first in needed.values())

    def _constant_sum(self, lower: _Addend | None, upper: _Addend | None) -> _Addend | None:
        """Return what two addends, either of which may be 0, become in a level of the tree."""
        if lower is None or upper is None:
            one = lower or upper
            return one and (replace(one, made=("wait", one.made), luts=0, terms=((one, 0),)) if one.width else one)
        if not upper.width:
            assert self.offset is not None  # it has no width yet
            top = min(lower.place + lower.width + 1, self.product_bits)
            luts = constant_adder_luts(self.offset >> lower.place, top - lower.place)
            place = min(lower.place, trailing_zeros(self.offset))
            made, terms = ("offset", lower.made, lower.place), ((lower, lower.place - place),)
            return _Addend(made, place, top - place, luts=luts, terms=terms)
        if lower.place > upper.place:
            lower, upper = upper, lower
        most = max(lower.place + lower.width, upper.place + upper.width)
        top, apart = min(most + 1, self.product_bits), upper.place - lower.place
        return _Addend(
            ("sum", lower.made, upper.made, apart),
            lower.place,
            top - lower.place,
            luts=min(most, top) - upper.place,  # both signs are above that: one LUT tells the last two bits
            terms=((lower, 0), (upper, apart)),
        )

    @staticmethod
    def _level_registers(level: Sequence[tuple[int, int, int]]) -> Iterator[int]:
        """Registers of a level of the tree; the offset has none as long as it waits for a row."""
        for number, (low, width, added) in enumerate(level):
            yield width if added or low or not number else 0

    def multiply(self, m: Module, lane: int, value: Value, factor: Value) -> Value:
        """Return the product of a lane, with the offset, ``latency`` cycles later."""
        addends: list[tuple[int, Value]] = []  # each with the place of its lowest bit
        for row in range(self.rows):
            ones, twos = (Mux(factor[bit : bit + 1], value, 0) for bit in (2 * row, 2 * row + 1))
            total = Signal(signed(len(value) + 2), name=f"row_{lane}_{row}", reset_less=True)
            m.d.sync += total.eq(ones + (twos << 1))
            addends.append((2 * row, total))
        if self.offset is not None:
            addends.append((0, Const(self.offset, signed(signed_bits(self.offset)))))
        for level, joined in enumerate(self.tree):
            following = []
            for number, (low, width, _) in enumerate(joined):
                total = extended(_add_rows(addends[2 * number : 2 * number + 2]), width)[:width].as_signed()
                if not isinstance(total, Const):
                    # With a reset: what passes by is no shift register, which would be too slow in front of an adder.
                    total = delayed(m, f"row_sum_{lane}_{level}_{number}", total, 1, reset_less=False)
                following.append((low, total))
            addends = following
        ((_, total),) = addends
        return extended(total, self.product_bits)[: self.product_bits].as_signed()


@dataclass(frozen=True)
class _Addend:
    """An addend of a product with a constant: how it is made, its lowest place and its width (0: the offset).

    ``luts`` make it of its ``terms``, each of which begins so many bits above it.
    """

    made: tuple[Any, ...]
    place: int
    width: int
    luts: int = 0
    terms: tuple[tuple[_Addend, int], ...] = ()

    def need(self, first: int, needed: dict[tuple[Any, ...], tuple[_Addend, int]]) -> None:
        """Note the first bits that are needed of this addend, if it is from ``first`` on, and of what it is made of."""
        if self.made in needed and needed[self.made][1] <= first:
            return
        needed[self.made] = self, first
        begin = max(above for _, above in self.terms) if self.terms else 0
        for term, above in self.terms:
            # A carry chain begins where the upper term does; the bits below pass by.
            term.need(max(min(first, begin) - above, 0), needed)


def _add_rows(pair: list[tuple[int, Value]]) -> Value:
    """The sum of one or two rows; bits below the other row's lowest one pass by."""
    (low, lower), *rest = sorted(pair, key=lambda row: row[0])
    if not rest:
        return lower
    ((high, upper),) = rest
    below = high - low
    lower = extended(lower, below + 1)
    return Cat(lower[:below], named(lower[below:].as_signed() + upper, "upper_sum")).as_signed()


def extended(value: Value, bits: int) -> Value:
    """``value``, at least ``bits`` bits wide, signed."""
    sign = value[-1] if value.shape().signed else Const(0)
    return Cat(value, sign.replicate(max(0, bits - len(value), not value.shape().signed))).as_signed()
