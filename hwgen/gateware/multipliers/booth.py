"""Multiplier in LUTs for weights of any value: radix-4 Booth rows on carry chains, and ternary adders.

A product of 8 x 8 bits is the sum of four rows. Each row adds a multiple of one operand, from -2 to 2 times, that a
Booth digit of the other operand selects. One LUT per bit selects the multiple and adds it to a running sum
(`hwgen.gateware.arithmetic.booth_row`)::

    sum = addend + digit * multiplicand

A chain of rows serves several terms of a dot product. The rows of the lowest digit come first, one for each term. Then
the two lowest bits of the running sum are complete, and the next digit's rows add to the other bits. So a row is hardly
wider for three terms than for one, and a third of the sums remain for the adder tree. An adder tree of ternary adders
(`hwgen.gateware.arithmetic.adder_graph`) adds the chains' sums.

Short chains need few delays of operands. The digits can therefore be divided among several chains: with 27 terms of
8 x 8 bits, for example, each group of three terms has a chain for the lower two digits and a chain for the upper two.
`_layouts` lists the alternatives, and the multiplier takes the one with the fewest LUTs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from amaranth import Cat, Const, Module, Signal, Value, signed

from hwgen.gateware.arithmetic.adder_graph import AdderGraph, Operand, Term
from hwgen.gateware.arithmetic.booth_row import BoothRowConfig
from hwgen.gateware.cost import LOGIC, Cost
from hwgen.gateware.lookup import delayed, delayed_fast
from hwgen.gateware.multipliers.lut_multiplier import DotProducts, LutMultiplier
from hwgen.gateware.multipliers.multiplier import Operands

__all__ = ["BoothMultiplier"]

#: Number of rows between two registers: more take longer than 3.3 ns.
ROWS_PER_STAGE = 2
#: Number of flip-flops that the choice of a layout weighs as one LUT. A slice has two beside each LUT, mostly unused.
FLIP_FLOPS_OF_A_LUT = 8
#: Largest number of terms that a chain of rows serves.
LARGEST_GROUP = 7


class BoothMultiplier(LutMultiplier):
    """Multiplier in LUTs for weights and activations of any value and width, with one LUT per bit of a Booth row."""

    name = "booth"
    stores_weights = True

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        return True

    def latency(self, dots: DotProducts) -> int:
        return _best_layout(_circuit(dots)).latency

    def sums(
        self,
        m: Module,
        dots: DotProducts,
        activations: Sequence[Sequence[Value]],
        weights: Sequence[Sequence[Sequence[Value]]],
        step: Value,
        names: Sequence[str],
    ) -> list[Signal]:
        layout = _best_layout(_circuit(dots))
        return layout.add_to(m, _flat(activations), [_flat(channel) for channel in weights], names)

    def count(self, cost: Cost, dots: DotProducts) -> None:
        found = _best_layout(_circuit(dots)).cost
        cost.lut += found.lut
        cost.ff += found.ff


def _circuit(dots: DotProducts) -> DotProducts:
    """Return dot products without the constants, on which the circuit does not depend."""
    return replace(dots, constants=None)


def _flat(operands: Sequence[Sequence[Value]]) -> list[Value]:
    return [operand for position in operands for operand in position]


@dataclass(frozen=True)
class _Number:
    """Range and width of an operand, two's complement."""

    bits: int
    low: int
    high: int

    @property
    def digits(self) -> int:
        """Number of Booth digits of the operand."""
        return -(-self.bits // 2)

    def part(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of the number that the digits ``first`` to ``last`` make."""
        if last < first:
            return 0, 0
        # The lowest digit also adds the upper bit of the digit below.
        if last == self.digits - 1:
            return self.low >> 2 * first, (self.high >> 2 * first) + (first > 0)
        half = 1 << (2 * (last - first) + 1)
        return -half, half - (first == 0)


@dataclass(frozen=True)
class _Row:
    """Row of a chain: the digit of a term's encoded operand, and the cycle of its operands.

    ``bits`` is the width of its sum.
    """

    term: int
    digit: int
    cycle: int
    bits: int


@dataclass(frozen=True)
class _Chain:
    """Rows of several terms and digits in order of their addition, and the range of their sum."""

    rows: tuple[_Row, ...]
    low: int
    high: int

    @property
    def first_digit(self) -> int:
        return self.rows[0].digit

    @property
    def end(self) -> int:
        """Cycle in which the chain's sum is in registers."""
        return self.rows[-1].cycle + 1

    def ends_digit(self, index: int) -> bool:
        """Return whether row ``index`` is the last one of its digit, but not of the chain."""
        return index + 1 < len(self.rows) and self.rows[index + 1].digit > self.rows[index].digit


@dataclass(frozen=True)
class _Layout:
    """Arrangement of the Booth rows of dot products.

    Parameters
    ----------
    dots : DotProducts
    encodes_weights : bool
        Whether the weights are encoded as Booth digits and the activations are multiplied, or the other way round.
    group : int
        Number of terms of a chain.
    digits : int
        Maximum number of digits of a chain.
    """

    dots: DotProducts
    encodes_weights: bool
    group: int
    digits: int

    @cached_property
    def _activation(self) -> _Number:
        bits = self.dots.operand.width + (not self.dots.operand.signed)
        return _Number(bits, -1 << (bits - 1), (1 << (bits - 1)) - 1)

    @cached_property
    def _weight(self) -> _Number:
        return _Number(self.dots.weight_bits, *self.dots.weight_range)

    @property
    def encoded(self) -> _Number:
        """Operand that is encoded as Booth digits."""
        return self._weight if self.encodes_weights else self._activation

    @property
    def multiplicand(self) -> _Number:
        """Operand of which the digits select multiples."""
        return self._activation if self.encodes_weights else self._weight

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Position of each term, which is the cycle of its operands."""
        return tuple(position for position, count in enumerate(self.dots.terms) for _ in range(count))

    @cached_property
    def chains(self) -> tuple[_Chain, ...]:
        """Chains of one output channel."""
        terms = range(len(self.positions))
        return tuple(
            self._chain(terms[first : first + self.group], digit, min(digit + self.digits, self.encoded.digits) - 1)
            for first in range(0, len(terms), self.group)
            for digit in range(0, self.encoded.digits, self.digits)
        )

    def _chain(self, terms: Sequence[int], first: int, last: int) -> _Chain:
        """Return the chain of the digits ``first`` to ``last`` of some terms."""
        rows = []
        cycle, rows_of_cycle = 0, 0
        low, high = 0, 0
        for digit in range(first, last + 1):
            for count, term in enumerate(terms, start=1):
                if self.positions[term] > cycle:
                    cycle, rows_of_cycle = self.positions[term], 0
                elif rows_of_cycle == ROWS_PER_STAGE:
                    cycle, rows_of_cycle = cycle + 1, 0
                rows_of_cycle += 1
                low, high = self._range(first, digit, count, len(terms) - count)
                rows.append(_Row(term, digit, cycle, _bits(low, high)))
        return _Chain(tuple(rows), low << 2 * (last - first), high << 2 * (last - first))

    def _range(self, first: int, digit: int, num_added: int, num_others: int) -> tuple[int, int]:
        """Return the range of a chain's running sum, without the bits below ``digit``.

        The digits from ``first`` to ``digit`` of ``num_added`` terms are added, and those below ``digit`` of the
        others.
        """
        added = self._products(*self.encoded.part(first, digit))
        others = self._products(*self.encoded.part(first, digit - 1))
        shift = 2 * (digit - first)
        low, high = (num_added * one + num_others * other for one, other in zip(added, others, strict=True))
        return low >> shift, high >> shift

    def _products(self, low: int, high: int) -> tuple[int, int]:
        """Return the range of the products of the multiplicand and a number of the given range."""
        ends = [end * factor for end in (low, high) for factor in (self.multiplicand.low, self.multiplicand.high)]
        return min(ends), max(ends)

    def row_bits(self, row: _Row, channel: int) -> int:
        """Return the width of a row in an output channel, whose sums wrap: 0 if all bits are beyond the sum."""
        return max(min(row.bits, self.dots.sum_bits[channel] - 2 * row.digit), 0)

    # Operands

    @cached_property
    def multiplicand_cycles(self) -> list[set[int]]:
        """Delays, in cycles, at which rows read the multiplicand of each term."""
        cycles: list[set[int]] = [set() for _ in self.positions]
        for chain in self.chains:
            for row in chain.rows:
                cycles[row.term].add(row.cycle - self.positions[row.term])
        return cycles

    @cached_property
    def encoded_cycles(self) -> list[dict[frozenset[int], list[int]]]:
        """Bits of the encoded operand of each term, by the set of delays, in cycles, at which rows read the bits."""
        cycles: list[dict[int, set[int]]] = [defaultdict(set) for _ in self.positions]
        for chain in self.chains:
            for row in chain.rows:
                for bit in self._digit_bits(row.digit):
                    if bit is not None:
                        cycles[row.term][bit].add(row.cycle - self.positions[row.term])
        groups: list[dict[frozenset[int], list[int]]] = [defaultdict(list) for _ in self.positions]
        for term, by_bit in enumerate(cycles):
            for bit, delays in sorted(by_bit.items()):
                groups[term][frozenset(delays)].append(bit)
        return groups

    def _digit_bits(self, digit: int) -> Iterator[int | None]:
        """Yield the bits of the encoded operand that make a digit, the lowest first; ``None`` below the lowest bit."""
        for bit in range(2 * digit - 1, 2 * digit + 2):
            yield None if bit < 0 else min(bit, self.encoded.bits - 1)

    # Sums

    @cached_property
    def _graph(self) -> AdderGraph:
        """Adder trees of all output channels, which add the sums of the channels' chains."""
        dots = self.dots
        operands = [Operand(chain.low, chain.high, chain.end) for chain in self.chains] * dots.channels
        graph = AdderGraph(operands)
        for channel, bits in enumerate(dots.sum_bits):
            first = channel * len(self.chains)
            terms = [Term(first + index, 2 * chain.first_digit, 1) for index, chain in enumerate(self.chains)]
            graph.add_sum(terms, dots.bias[channel] if dots.bias else 0, bits)
        return graph

    @property
    def latency(self) -> int:
        return self._graph.latency

    # Resources

    @cached_property
    def cost(self) -> Cost:
        """LUTs and flip-flops of the dot products."""
        cost, channels = Cost(), self.dots.channels
        shared, own = (1, channels) if self.encodes_weights else (channels, 1)
        for delays in self.multiplicand_cycles:
            _count_line(cost, shared * self.multiplicand.bits, delays)
        for groups in self.encoded_cycles:
            for delays, bits in groups.items():
                _count_line(cost, own * len(bits), delays)
        for channel in range(channels):
            for chain in self.chains:
                self._count_chain(cost, chain, channel)
        self._graph.count(cost)
        return cost

    def _count_chain(self, cost: Cost, chain: _Chain, channel: int) -> None:
        for index, row in enumerate(chain.rows):
            bits = self.row_bits(row, channel)
            if not bits:
                return
            cost.lut += bits
            passed = 2 if chain.ends_digit(index) else 0
            _count_line(cost, passed, [chain.end - row.cycle])
            after = chain.rows[index + 1].cycle if index + 1 < len(chain.rows) else chain.end
            _count_line(cost, max(bits - passed, 1), [after - row.cycle])

    # Circuit

    def add_to(
        self, m: Module, activations: Sequence[Value], weights: Sequence[Sequence[Value]], names: Sequence[str]
    ) -> list[Signal]:
        """Add the circuit to a module, and return the registered sum of each output channel."""
        shared = f"{names[0]}_activation"
        if self.encodes_weights:
            multiplicands = [self._multiplicands(m, activations, shared)] * len(names)
            digits = [self._digits(m, channel, f"{name}_weight") for channel, name in zip(weights, names, strict=True)]
        else:
            digits = [self._digits(m, activations, shared)] * len(names)
            multiplicands = [
                self._multiplicands(m, channel, f"{name}_weight") for channel, name in zip(weights, names, strict=True)
            ]
        sums = [
            self._add_chain(m, chain, channel, multiplicands[channel], digits[channel], f"{name}_chain_{index}")
            for channel, name in enumerate(names)
            for index, chain in enumerate(self.chains)
        ]
        return self._graph.add_to(m, sums, names[0], names)

    def _multiplicands(self, m: Module, operands: Sequence[Value], name: str) -> list[Mapping[int, Value]]:
        """Add the delays of the terms' multiplicands, and return each one's value at each delay that is read."""
        return [
            _line(m, operand, delays, f"{name}_{term}")
            for term, (operand, delays) in enumerate(zip(operands, self.multiplicand_cycles, strict=True))
        ]

    def _digits(self, m: Module, operands: Sequence[Value], name: str) -> list[Mapping[tuple[int, int], Value]]:
        """Add the delays of the terms' encoded operands, and return each one's bits, by bit and delay."""
        found = []
        for term, (operand, groups) in enumerate(zip(operands, self.encoded_cycles, strict=True)):
            bits: dict[tuple[int, int], Value] = {}
            for delays, members in groups.items():
                value = Cat(operand[bit] for bit in members)
                for delay, tap in _line(m, value, delays, f"{name}_{term}_bits_{members[0]}").items():
                    bits |= {(bit, delay): tap[index] for index, bit in enumerate(members)}
            found.append(bits)
        return found

    def _add_chain(
        self,
        m: Module,
        chain: _Chain,
        channel: int,
        multiplicands: Sequence[Mapping[int, Value]],
        digits: Sequence[Mapping[tuple[int, int], Value]],
        name: str,
    ) -> Value:
        """Add a chain of rows, and return its registered sum."""
        running: Value = Const(0, signed(1))
        complete: list[Value] = []
        for index, row in enumerate(chain.rows):
            bits = self.row_bits(row, channel)
            if not bits:
                break
            delay = row.cycle - self.positions[row.term]
            digit = Cat(
                Const(0, 1) if bit is None else digits[row.term][bit, delay] for bit in self._digit_bits(row.digit)
            )
            config = BoothRowConfig(bits=bits, multiplicand_bits=self.multiplicand.bits)
            running = config.add_to(m, digit, multiplicands[row.term][delay], running, f"{name}_row_{index}")
            if chain.ends_digit(index):
                low = Cat(running[min(bit, bits - 1)] for bit in range(2))
                complete.append(_delayed(m, f"{name}_low_{row.digit}", low, chain.end - row.cycle))
                running = running[min(2, bits - 1) :].as_signed()
            after = chain.rows[index + 1].cycle if index + 1 < len(chain.rows) else chain.end
            running = _delayed(m, f"{name}_sum_{index}", running, after - row.cycle)
        return Cat(*complete, running).as_signed()


def _bits(low: int, high: int) -> int:
    """Return the width of a signed signal for values from ``low`` to ``high``, in bits."""
    return 1 + max(high.bit_length() if high > 0 else 0, (~low).bit_length() if low < 0 else 0)


def _steps(delays: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield each delay above 0, in order, and the number of registers from the delay before."""
    last = 0
    for delay in sorted(delays):
        if delay > last:
            yield delay, delay - last
            last = delay


def _line(m: Module, value: Value, delays: Iterable[int], name: str) -> dict[int, Value]:
    """Add the registers of a delay line, and return the value at each delay."""
    taps = {0: value}
    for delay, length in _steps(delays):
        value = taps[delay] = _delayed(m, f"{name}_cycle_{delay}", value, length)
    return taps


def _delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Return a value, delayed by registers, of which the last one is a flip-flop and not part of a shift register.

    The register in front of the delay line, or one behind it, could make a shift register of two registers.
    """
    add = delayed_fast if cycles >= LOGIC.shortest_shift_register - 1 else delayed
    return add(m, name, value, cycles)


def _count_line(cost: Cost, bits: int, delays: Iterable[int]) -> None:
    """Count the registers of a delay line of ``bits`` bits that is read at some delays, in cycles."""
    for _, length in _steps(delays):
        fast = length >= LOGIC.shortest_shift_register
        cost.delay(bits, length - fast)
        cost.ff += bits * fast


def _layouts(dots: DotProducts) -> Iterator[_Layout]:
    """Yield the layouts among which the multiplier chooses."""
    terms = sum(dots.terms)
    for encodes_weights in (True, False):
        digits = _Layout(dots, encodes_weights, 1, 1).encoded.digits
        for group in range(1, min(terms, LARGEST_GROUP) + 1):
            for chain_digits in sorted({-(-digits // chains) for chains in range(1, digits + 1)}):
                yield _Layout(dots, encodes_weights, group, chain_digits)


@lru_cache(maxsize=1 << 10)
def _best_layout(dots: DotProducts) -> _Layout:
    """Return the layout with the fewest LUTs, where `FLIP_FLOPS_OF_A_LUT` more flip-flops outweigh a LUT."""
    return min(
        _layouts(dots), key=lambda layout: (layout.cost.lut + layout.cost.ff / FLIP_FLOPS_OF_A_LUT, layout.latency)
    )
