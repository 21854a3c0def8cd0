"""Multipliers in LUTs for weights of a few bits: adders that select and add two terms in one LUT per bit.

A bit of a weight multiplies an activation by 0 or 1. Bit ``j`` of the weights of two terms selects one of four values,
which all output channels share::

    weight bits     00   01   10   11
    selected value   0   x0   x1   x0 + x1

A LUT with six inputs selects one bit of this value and adds it to a partial sum: its inputs are two weight bits, three
bits of data and a bit of the partial sum. An adder of ``d`` LUTs, a *row*, so adds bit ``j`` of two products of ``d``
bits. Rows are computed from the lowest weight bit to the highest, because the low bits of the partial sum pass by the
rows of higher bits. The row of the sign bit is subtracted. The partial sum of a few rows is an operand of a tree of
adders (`hwgen.gateware.arithmetic.adder_graph`).

A selected value is signed if activations are signed. Its sign bit is then inverted, which makes it unsigned, and a
constant in the tree corrects the sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value

from hwgen.gateware.arithmetic.adder_graph import AdderGraph, Operand, Term
from hwgen.gateware.cost import Cost, constant_adder_luts
from hwgen.gateware.lookup import bits_for_range, delayed, delayed_fast
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts, LutMultiplier
from hwgen.gateware.multipliers.multiplier import Operands

#: Maximum width in bits of a weight that `NarrowMultiplier` multiplies.
WEIGHT_BITS = 4
#: Number of rows whose partial sum is one operand of the tree of adders.
GROUP_ROWS = 4
#: Number of rows between two registers: two rows of 9 bits take 2.8 ns, three take 3.5 ns (Yosys' delays of cells).
ROWS_PER_CYCLE = 2
#: Maximum width of an adder that Yosys builds without a carry chain, in bits.
NO_CARRY_CHAIN = 2


@dataclass(frozen=True)
class NarrowMultiplier(LutMultiplier):
    """Multiplier in LUTs of activations by weights of a few bits, two's complement, that are read from a memory."""

    name = "narrow"

    def offset(self, activation: Shape) -> int:
        return 0

    def operand(self, activation: Shape) -> Shape:
        return activation

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        """Return whether the multiplier can compute a layer's products: weights have at most `WEIGHT_BITS` bits."""
        return operands.weight_bits <= WEIGHT_BITS

    def latency(self, dots: DotProducts) -> int:
        return self._circuit(dots).graph.latency

    def sums(self, m: Module, dots: DotProducts, operands: DotOperands) -> list[Signal]:
        return self._circuit(dots).add_to(m, operands)

    def count(self, cost: Cost, dots: DotProducts) -> None:
        # Output channels of equal width have equal circuits, apart from the circuit that all channels share.
        biases = dots.bias or (0,) * dots.channels
        kinds = Counter(zip(dots.sum_bits, biases, strict=True))
        for index, ((bits, bias), channels) in enumerate(kinds.items()):
            one, two = (
                self._counted(replace(dots, sum_bits=(bits,) * copies, bias=(bias,) * copies)) for copies in (1, 2)
            )
            is_first = index == 0  # what all channels share is counted once
            cost.add(one, 2 * is_first - channels)
            cost.add(two, channels - is_first)

    def _counted(self, dots: DotProducts) -> Cost:
        """Return a `Cost`: the LUTs and flip-flops of dot products, with each output channel's circuit counted."""
        cost = Cost(dots.device)
        self._circuit(dots).count(cost)
        return cost

    def _circuit(self, dots: DotProducts) -> _Circuit:
        """Return the `_Circuit` of dot products by two's complement weights: a row per pair of terms and weight bit."""
        return _circuit(replace(dots, constants=None), dots.weight_bits, is_binary=False)


@dataclass(frozen=True)
class BinaryMultiplier(NarrowMultiplier):
    """Multiplier in LUTs of activations by weights of -1 and 1, stored as one bit each: 0 for -1.

    With bits ``b``, the sum of products ``(2 * b - 1) * x`` is twice the sum of ``b * x``, less the sum of activations,
    which all output channels share.
    """

    name = "binary"
    shares_terms = True

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        """Return whether the multiplier can compute a layer's products: all weights are -1 or 1."""
        smallest, largest = operands.weight_range
        return operands.weights_nonzero and smallest >= -1 and largest <= 1

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        return -1, 1

    def unit_bits(self, operands: Operands) -> int:
        return 1

    def stored(self, weights: np.ndarray, operands: Operands) -> np.ndarray:
        """Return one output channel's weights as an array of memory words: 0 for -1, and 1 for 1."""
        (lane,) = weights
        return (lane > 0).astype(int)

    def spread(self, stored: Value, weight_bits: int) -> Value:
        """Return the weight operand, which equals the word in the weight memory: one bit, 0 for -1 and 1 for 1."""
        return stored

    def weight_shape(self, dots: DotProducts) -> Shape:
        return Shape(1)

    def factor(self, weight: Value) -> Value:
        return Cat(Const(1, 1), ~weight).as_signed()

    def _circuit(self, dots: DotProducts) -> _Circuit:
        """Return the `_Circuit` of dot products by weights of -1 and 1: one row per pair of terms."""
        return _circuit(replace(dots, constants=None), 1, is_binary=True)


@dataclass(frozen=True)
class _Pair:
    """Pair of dot product terms, or a single one, that the same rows of adders process.

    Parameters
    ----------
    terms : tuple of (int, int)
        Position of each term, and index at the position.
    """

    terms: tuple[tuple[int, int], ...]

    @property
    def cycle(self) -> int:
        """First cycle (integer) that has the operands of both terms, counted from the first position's operands."""
        return max(position for position, _ in self.terms)


@dataclass(frozen=True)
class _Row:
    """Adder (row) that adds or subtracts a pair of terms, each multiplied by one of its weight bits.

    Parameters
    ----------
    pair : int
        Index of the pair.
    digit : int
        Index of the weight bit.
    cycle : int
        Cycle that computes the row.
    subtracts : bool
        Whether the row subtracts the products, because the weight bit is a sign.
    adds_one : bool
        Whether the row adds one more than the products. It then subtracts the complement of the selected value. Yosys
        swaps the operands of an adder whose first operand is the wider one, and a bit would take two LUTs.
    before, after : tuple of int
        Range of the partial sum before and after the row.
    waits : int
        Number of registers between the row and the next row of the group or the tree.
    """

    pair: int
    digit: int
    cycle: int
    subtracts: bool
    adds_one: bool
    before: tuple[int, int]
    after: tuple[int, int]
    waits: int


@dataclass(frozen=True)
class _Circuit:
    """Circuit of dot products by narrow weights: pairs of terms, rows (adders) in groups, and adder trees.

    Parameters
    ----------
    dots : DotProducts
        Dot products.
    digits : int
        Number of bits of a weight.
    is_binary : bool
        Whether a weight of one bit is 1 or -1; otherwise the highest bit is the sign.
    """

    dots: DotProducts
    digits: int
    is_binary: bool

    # Plan

    @property
    def is_signed(self) -> bool:
        """Whether activations are signed."""
        return self.dots.operand.signed

    @cached_property
    def pairs(self) -> tuple[_Pair, ...]:
        """Tuple of `_Pair` objects sorted by cycle: terms of one position, or odd terms of two."""
        pairs, single = [], None
        for position, count in enumerate(self.dots.terms):
            terms = [(position, index) for index in range(count)]
            if count % 2:
                odd = terms.pop()
                if single is None:
                    single = odd
                else:
                    pairs.append(_Pair((single, odd)))
                    single = None
            pairs += [_Pair((one, other)) for one, other in zip(terms[::2], terms[1::2], strict=True)]
        if single is not None:
            pairs.append(_Pair((single,)))
        return tuple(sorted(pairs, key=lambda pair: pair.cycle))

    def bits(self, pair: int) -> int:
        """Return the width in bits of what weight bits select for a pair: 0, an activation, or the pair's sum."""
        return self.dots.operand.width + len(self.pairs[pair].terms) - 1

    def largest(self, pair: int) -> int:
        """Return the largest value that weight bits can select for a pair of terms, as an unsigned number."""
        return len(self.pairs[pair].terms) * ((1 << self.dots.operand.width) - 1)

    @cached_property
    def groups(self) -> tuple[tuple[_Row, ...], ...]:
        """Tuple of groups of `_Row` objects (adders), equal for all channels; a group's sum enters the adder tree."""
        size = max(GROUP_ROWS // self.digits, 1)
        pairs = range(len(self.pairs))
        count = -(-len(pairs) // size)
        bounds = [len(pairs) * index // count for index in range(count + 1)]
        return tuple(self._pair_rows(pairs[first:last]) for first, last in pairwise(bounds))

    def _pair_rows(self, pairs: Sequence[int]) -> tuple[_Row, ...]:
        """Return a tuple of each `_Row` (adder) of all weight bits of a group of pairs, in order of computation.

        The first row adds nothing. It selects a value in the cycle that adds the pair's activations. Each other row
        reads this sum from a register.
        """
        order = [(digit, pair) for digit in range(self.digits) for pair in pairs]
        cycles: list[int] = []
        for index, (digit, pair) in enumerate(order):
            ready = self.pairs[pair].cycle
            if index == 0:
                cycles.append(ready)
                continue
            # Yosys joins two adders of equal bits to an adder of three numbers, which takes more LUTs.
            joins = index > 1 and digit > order[index - 1][0] and cycles.count(cycles[-1]) < ROWS_PER_CYCLE
            cycles.append(max(cycles[-1] + (not joins), ready + 1))
        rows: list[_Row] = []
        low = high = 0
        for (digit, pair), cycle, following in zip(order, cycles, [*cycles[1:], cycles[-1] + 1], strict=True):
            before = low, high
            subtracts = digit == self.digits - 1 and not self.is_binary
            adds_one = not subtracts and bits_for_range(*before).width - digit > self.bits(pair)
            if subtracts:
                low -= self.largest(pair) << digit
            else:
                low += adds_one << digit
                high += self.largest(pair) + adds_one << digit
            rows.append(_Row(pair, digit, cycle, subtracts, adds_one, before, (low, high), following - cycle))
        return tuple(rows)

    @cached_property
    def constant(self) -> int:
        """Integer to add to the sum of all rows, which corrects inverted sign bits and rows that add one too many."""
        total = 0
        for rows in self.groups:
            for row in rows:
                total -= row.adds_one << row.digit
                if self.is_signed:
                    total += (1 if row.subtracts else -1) << (self.bits(row.pair) - 1 + row.digit)
        return total

    @cached_property
    def graph(self) -> AdderGraph:
        """`AdderGraph`: trees of adders of each output channel's groups of rows and, if binary, the activations."""
        groups = [Operand(*rows[-1].after, rows[-1].cycle + 1) for rows in self.groups]
        operands = groups * self.dots.channels
        if self.is_binary:
            operands += [self._activations(index) for index in range(len(self.pairs))]
        graph = AdderGraph(self.dots.device, operands)
        own = [Term(index, int(self.is_binary), 1) for index in range(len(groups))]
        shared = self._sum_activations(graph, len(operands)) if self.is_binary else []
        biases = self.dots.bias or (0,) * self.dots.channels
        for channel, (bits, bias) in enumerate(zip(self.dots.sum_bits, biases, strict=True)):
            terms = [term._replace(node=term.node + channel * len(groups)) for term in own]
            graph.add_sum([*terms, *shared], bias if self.is_binary else self.constant + bias, bits)
        return graph

    def _activations(self, pair: int) -> Operand:
        """Return the sum of a pair's activations as an `Operand`: its range, and the cycle of its register.

        The first pair's sum includes the constant that corrects the sum of all rows, so that all channels share it.
        """
        size, bits = len(self.pairs[pair].terms), self.dots.operand.width
        low = (-size << (bits - 1) if self.is_signed else 0) - 2 * self.constant * (pair == 0)
        return Operand(low, low + self.largest(pair), self.pairs[pair].cycle + 1)

    def _sum_activations(self, graph: AdderGraph, end: int) -> list[Term]:
        """Add to the graph the adders that sum all activations; return the negated sum as a list of one term."""
        first = end - len(self.pairs)
        waiting = [(pair.cycle + 1, Term(first + index, 0, 1)) for index, pair in enumerate(self.pairs)]
        heapify(waiting)
        while len(waiting) > 1:
            taken = [heappop(waiting) for _ in range(min(3, len(waiting)))]
            heappush(waiting, (taken[-1][0] + 1, graph.add([term for _, term in taken])))
        ((_, total),) = waiting
        return [total._replace(sign=-total.sign)]

    @cached_property
    def data_cycles(self) -> tuple[tuple[int, ...], ...]:
        """Cycles, ascending, when rows (adders) read a pair's activations: a tuple for each pair of terms."""
        cycles: defaultdict[int, set[int]] = defaultdict(set)
        for rows in self.groups:
            for row in rows:
                cycles[row.pair].add(row.cycle)
        return tuple(tuple(sorted(cycles[index])) for index in range(len(self.pairs)))

    def selects_sum(self, pair: int) -> bool:
        """Return whether a pair's rows can select the sum of both activations; 1-bit activations don't need it."""
        return len(self.pairs[pair].terms) == 2 and self.dots.operand.width > 1

    # Circuit

    def add_to(self, m: Module, dot_operands: DotOperands) -> list[Signal]:
        """Add the circuit of the dot products to a module; return a list: each output channel's registered sum."""
        activations, weights, names, _ = dot_operands
        prefix = f"{names[0]}_shared"
        data, totals = [], []
        for index, pair in enumerate(self.pairs):
            values = [
                delayed(m, f"{prefix}_activation_{position}_{term}", activations[position][term], pair.cycle - position)
                for position, term in pair.terms
            ]
            total = Signal(Shape(self.bits(index), self.is_signed), name=f"{prefix}_pair_{index}")
            m.d.comb += total.eq(sum(values[1:], values[0]))
            totals.append(total)
            data.append(self._elaborate_data(m, index, [*values, total][: 2 + self.selects_sum(index)], prefix))
        operands = [
            self._elaborate_rows(m, rows, data, channel_weights, f"{name}_group_{index}")
            for channel_weights, name in zip(weights, names, strict=True)
            for index, rows in enumerate(self.groups)
        ]
        if self.is_binary:
            for index, total in enumerate(totals):
                low, high, _ = self._activations(index)
                register = Signal(range(min(low, -1), high + 1), name=f"{total.name}_sum", reset_less=True)
                m.d.sync += register.eq(total - 2 * self.constant if index == 0 else total)
                operands.append(register)
        return self.graph.add_to(m, operands, prefix, names)

    def _elaborate_data(self, m: Module, pair: int, values: list[Value], prefix: str) -> dict[int, list[Value]]:
        """Add delay lines for the values a pair selects among; return a dict from the cycle of a read to the values."""
        data, ready = {}, self.pairs[pair].cycle
        for cycle in self.data_cycles[pair]:
            names = [f"{prefix}_pair_{pair}_{index}_cycle_{cycle}" for index in range(len(values))]
            values = [_delayed(m, name, value, cycle - ready) for name, value in zip(names, values, strict=True)]
            data[cycle], ready = values, cycle
        return data

    def _elaborate_rows(
        self,
        m: Module,
        rows: Sequence[_Row],
        data: Sequence[dict[int, list[Value]]],
        weights: Sequence[Sequence[Value]],
        name: str,
    ) -> Value:
        """Add a group of rows (adders) for one output channel; return their registered signed sum."""
        total: Value = Const(0, 0)
        for index, row in enumerate(rows):
            bits = [
                self._elaborate_weight(m, row, weights, position, term, f"{name}_row_{index}")
                for position, term in self.pairs[row.pair].terms
            ]
            selected = self._select(bits, data[row.pair][row.cycle], self.bits(row.pair))
            upper = total[row.digit :] if len(total) > row.digit else Const(0, 1)
            upper = upper.as_signed() if row.before[0] < 0 else upper
            if row.adds_one:
                upper = upper - Cat(~selected, Const(1, 1)).as_signed()
            else:
                upper = upper - selected if row.subtracts else upper + selected if index else selected
            total = Cat(total[: row.digit], Const(0, max(row.digit - len(total), 0)), upper)
            shape = bits_for_range(*row.after)
            total = total[: shape.width]
            if row.waits:
                total = self._elaborate_register(m, total, row.waits, index == len(rows) - 1, f"{name}_row_{index}")
        return total.as_signed() if rows[-1].after[0] < 0 else Cat(total, Const(0, 1)).as_signed()

    def _elaborate_weight(
        self, m: Module, row: _Row, weights: Sequence[Sequence[Value]], position: int, term: int, name: str
    ) -> Value:
        """Return the weight bit of a row (adder) for one term, delayed until the row's cycle."""
        return _delayed(m, f"{name}_weight_{position}_{term}", weights[position][term][row.digit], row.cycle - position)

    def _select(self, bits: Sequence[Value], values: Sequence[Value], width: int) -> Value:
        """Return the value that a pair's weight bits select; a signed value has its sign bit inverted."""
        if self.dots.operand.width == 1:
            products = [bit & value[0] for bit, value in zip(bits, values, strict=False)]
            selected: Value = products[0]
            if len(bits) == 2:
                one, other = products
                # The sum of two numbers of 0 and -1 has the sum of 0 and 1 negated: 0, -1 or -2.
                selected = Cat(one ^ other, one | other if self.is_signed else one & other)
        else:
            extended = [value[:width] if len(value) >= width else self._extend(value) for value in values]
            selected = Mux(bits[0], extended[0], 0)
            if len(bits) == 2:
                one, other, both = extended
                selected = Mux(bits[1], Mux(bits[0], both, other), selected)
        return (selected ^ (1 << (width - 1)))[:width] if self.is_signed else selected[:width]

    def _extend(self, value: Value) -> Value:
        """Return an activation extended by one bit: its sign bit, or 0 if activations are unsigned."""
        return Cat(value, value[-1] if self.is_signed else Const(0, 1))

    def _elaborate_register(self, m: Module, value: Value, cycles: int, is_last: bool, name: str) -> Value:
        """Return a row's partial sum delayed by registers; a group's last row ends in a flip-flop.

        A shift register in LUTs, which the low bits that pass by the rows could share, is too slow there.
        """
        if is_last:
            return delayed_fast(m, name, value, cycles)
        return delayed(m, name, value, cycles)

    # Resources

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the LUTs and flip-flops of the dot products of all output channels."""
        for pair in range(len(self.pairs)):
            self._count_data(cost, pair)
        channel = Cost(self.dots.device)
        for rows in self.groups:
            for row in rows:
                self._count_row(channel, row)
        cost.add(channel, self.dots.channels)
        self.graph.count(cost)

    def _count_data(self, cost: Cost, pair: int) -> None:
        """Add to ``cost`` the adder of a pair's activations, and the delay lines of both activations and their sum."""
        bits, ready, terms = self.dots.operand.width, self.pairs[pair].cycle, self.pairs[pair].terms
        for position, _ in terms:
            _count_delay(cost, bits, ready - position)
        rows = self.data_cycles[pair]
        summed = (ready + 1,) * (self.is_binary and pair > 0)
        if self.is_binary and pair == 0:
            low, high, _ = self._activations(pair)
            width = bits_for_range(low, high).width
            cost.ff += width
            cost.lut += constant_adder_luts(-2 * self.constant, width)
        if len(terms) == 1:
            _count_delay_line(cost, bits, ready, rows + summed)
            return
        _count_delay_line(cost, 2 * bits, ready, rows)
        if self.selects_sum(pair) or self.is_binary:
            cost.lut += max(bits, 2)
            _count_delay_line(cost, self.bits(pair), ready, rows * self.selects_sum(pair) + summed)

    def _count_row(self, cost: Cost, row: _Row) -> None:
        """Add to ``cost`` a row of one output channel: a LUT per bit, its registers, and its weight bits' delays."""
        bits, after = self.bits(row.pair), bits_for_range(*row.after).width
        cost.lut += bits
        if row.before[0] < 0:
            # Bits of the partial sum above the selected value are inverted, because a row subtracts.
            cost.lut += max(bits_for_range(*row.before).width - row.digit - bits, 0)
        if row.waits == 0 and after - row.digit <= NO_CARRY_CHAIN:
            # Both rows of a cycle have LUTs without a carry chain, and a bit that has more than six inputs.
            cost.lut += 1
        cost.delay(after, row.waits)
        for position, _ in self.pairs[row.pair].terms:
            _count_delay(cost, 1, row.cycle - position)


def _delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Return a value delayed by ``cycles`` registers; the last one stays a flip-flop, not a shift register.

    A shift register in LUTs is too slow before two rows.
    """
    return delayed_fast(m, name, value, cycles) if cycles > 1 else delayed(m, name, value, cycles)


def _count_delay(cost: Cost, bits: int, cycles: int) -> None:
    """Add to ``cost`` the registers that delay ``bits`` bits by some cycles, the last of them a flip-flop."""
    fast = cycles > 1
    cost.delay(bits, cycles - fast)
    cost.ff += bits * fast


def _count_delay_line(cost: Cost, bits: int, ready: int, cycles: Iterable[int]) -> None:
    """Add to ``cost`` a delay line that starts in cycle ``ready`` and is read in several cycles."""
    for cycle in sorted(set(cycles)):
        _count_delay(cost, bits, cycle - ready)
        ready = cycle


@lru_cache(maxsize=512)
def _circuit(dots: DotProducts, digits: int, *, is_binary: bool) -> _Circuit:
    """Return the `_Circuit` of dot products by weights of ``digits`` bits, cached so that it is planned once."""
    return _Circuit(dots, digits, is_binary)
