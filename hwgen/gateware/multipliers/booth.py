"""Multiplier in LUTs for weights of any value: radix-4 Booth rows on carry chains, and ternary adders.

A product of 8 x 8 bits is the sum of four rows. Each row adds a multiple of one operand, from -2 to 2 times, that a
Booth digit of the other operand selects. One LUT per bit selects the multiple and adds it to a running sum
(`hwgen.gateware.arithmetic.booth_row`)::

    sum = addend + digit * multiplicand

A chain of rows serves several terms of a dot product. The rows of the lowest digit come first, one for each term. Then
the two lowest bits of the running sum are complete, and the next digit's rows add to the other bits. A row is therefore
hardly wider for three terms than for one, and a third of the sums remain for the adder tree. An adder tree of ternary
adders (`hwgen.gateware.arithmetic.adder_graph`) adds the chains' sums.

Short chains need few delays of operands. The digits can therefore be divided among several chains: with 27 terms of
8 x 8 bits, for example, each group of three terms has a chain for the lower two digits and a chain for the upper two.
`_layouts` lists the alternatives, and the multiplier takes the one with the fewest LUTs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from amaranth import Cat, Const, Module, Signal, Value, signed

from hwgen.gateware.arithmetic.adder_graph import AdderGraph, Operand, Term
from hwgen.gateware.arithmetic.booth_row import BoothRowConfig
from hwgen.gateware.cost import Cost
from hwgen.gateware.lookup import delayed_apart
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts, LutMultiplier, Terms
from hwgen.gateware.multipliers.multiplier import Operands

#: Number of layouts of Booth rows whose cost is computed; an estimate rules out the others.
CANDIDATES = 4
#: Maximum number of Booth rows between two registers: more take longer than 3.3 ns.
ROWS_PER_STAGE = 2
#: Number of flip-flops that weigh as much as a LUT in the choice of a layout. A slice has two for each LUT, and most
#: of them are unused.
FLIP_FLOPS_OF_A_LUT = 16
#: Maximum number of terms whose products one chain of Booth rows sums.
LARGEST_GROUP = 7


@dataclass(frozen=True)
class BoothMultiplier(LutMultiplier):
    """Multiplier in LUTs for weights and activations of any value and width, with one LUT per bit of a Booth row."""

    name = "booth"
    stores_weights = True
    shares_adders = False
    lut4_ratio = 3.7

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        return True

    def latency(self, dots: DotProducts) -> int:
        return _layout(dots).latency

    def sums(self, m: Module, dots: DotProducts, operands: DotOperands) -> list[Signal]:
        weights = [_flat(channel) for channel in operands.weights]
        return _layout(dots).add_to(m, _flat(operands.activations), weights, operands.names)

    def count(self, cost: Cost, dots: DotProducts) -> None:
        self.count_grid(cost, dots, 1)

    def count_grid(self, cost: Cost, dots: DotProducts, copies: int) -> None:
        """Add to ``cost`` the LUTs and flip-flops of ``copies`` circuits that multiply by the same weight signals.

        Synthesis merges the registers of their weights.
        """
        layout = _layout(dots)
        cost.add(layout.cost, copies)
        cost.add(layout.cost_of_weight_registers, 1 - copies)


@lru_cache(maxsize=1 << 10)
def _layout(dots: DotProducts) -> _Layout:
    """Return a `_Layout`: arrangement of Booth rows for dot products, chosen for the widest channel and used for all.

    It is the same for any number of output channels in a module: several channels in one module have the latency and
    the cost of separate modules. The circuit does not depend on constants.
    """
    circuit = replace(dots, constants=None)
    widest = max(range(dots.channels), key=dots.sum_bits.__getitem__)
    one_channel = replace(circuit, sum_bits=(dots.sum_bits[widest],), bias=dots.bias[widest : widest + 1])
    return replace(_best_layout(one_channel), dots=circuit)


def _flat(operands: Terms) -> list[Value]:
    return [operand for position in operands for operand in position]


@dataclass(frozen=True)
class _Number:
    """Operand of a Booth multiplication: smallest and largest value, and width in bits (two's complement)."""

    bits: int
    low: int
    high: int

    @property
    def digits(self) -> int:
        """Number of radix-4 Booth digits of the operand."""
        return -(-self.bits // 2)

    def range_of_digits(self, first: int, last: int) -> tuple[int, int]:
        """Return a pair: smallest and largest number that the Booth digits ``first`` to ``last`` can form."""
        if last < first:
            return 0, 0
        # The lowest digit also adds the upper bit of the digit below.
        if last == self.digits - 1:
            return self.low >> 2 * first, (self.high >> 2 * first) + (first > 0)
        half = 1 << (2 * (last - first) + 1)
        return -half, half - (first == 0)


@dataclass(frozen=True)
class _Row:
    """Adder in a chain: adds one Booth digit of a term, times the term's other operand, in a given cycle.

    ``bits`` is the width of its sum.
    """

    term: int
    digit: int
    cycle: int
    bits: int

    def bits_of(self, sum_bits: int) -> int:
        """Return the width in bits of the row's adder for sums of ``sum_bits`` bits; 0 if the row lies above them."""
        return max(min(self.bits, sum_bits - 2 * self.digit), 0)


@dataclass(frozen=True)
class _Chain:
    """Sequence of adders (Booth rows) over several terms and digits, with the range of their sum."""

    rows: tuple[_Row, ...]
    low: int
    high: int

    @property
    def first_digit(self) -> int:
        return self.rows[0].digit

    @property
    def end(self) -> int:
        """Cycle (integer) of the chain's registered sum, counted from the operands of the group's first term."""
        return self.rows[-1].cycle + 1

    def next_cycle(self, index: int) -> int:
        """Return the cycle when the sum of row ``index`` is read: the next row's cycle, or the chain's end."""
        return self.rows[index + 1].cycle if index + 1 < len(self.rows) else self.end

    def ends_digit(self, index: int) -> bool:
        """Return whether row ``index`` is the last row of its Booth digit but not of the chain."""
        return index + 1 < len(self.rows) and self.rows[index + 1].digit > self.rows[index].digit


@dataclass(frozen=True)
class _Group:
    """Consecutive terms of a dot product that share the same chains of Booth rows.

    Parameters
    ----------
    encoded : _Number
        Operand that is encoded as Booth digits.
    multiplicand : _Number
        Operand whose multiples the digits select.
    positions : tuple of int
        Position of each term, counted from the first term's: the cycle of its operands.
    digits : int
        Maximum number of digits of a chain.
    """

    encoded: _Number
    multiplicand: _Number
    positions: tuple[int, ...]
    digits: int

    @cached_property
    def chains(self) -> tuple[_Chain, ...]:
        """Tuple of `_Chain` objects: chains of Booth rows that sum the group's products for one output channel."""
        firsts = range(0, self.encoded.digits, self.digits)
        return tuple(self._chain(first, min(first + self.digits, self.encoded.digits) - 1) for first in firsts)

    def _chain(self, first: int, last: int) -> _Chain:
        """Return the `_Chain` of adders (Booth rows) of the digits ``first`` to ``last`` of all terms."""
        rows = []
        cycle, rows_of_cycle = 0, 0
        low, high = 0, 0
        for digit in range(first, last + 1):
            for term, position in enumerate(self.positions):
                if position > cycle:
                    cycle, rows_of_cycle = position, 0
                elif rows_of_cycle == ROWS_PER_STAGE:
                    cycle, rows_of_cycle = cycle + 1, 0
                rows_of_cycle += 1
                low, high = self._range(first, digit, term + 1)
                rows.append(_Row(term, digit, cycle, _bits(low, high)))
        return _Chain(tuple(rows), low << 2 * (last - first), high << 2 * (last - first))

    def _range(self, first: int, digit: int, num_added: int) -> tuple[int, int]:
        """Return a pair: the smallest and largest running sum of a chain after some rows, without bits below ``digit``.

        The digits from ``first`` to ``digit`` of ``num_added`` terms are added, and those below ``digit`` of the other
        terms.
        """
        num_others = len(self.positions) - num_added
        added = self._products(*self.encoded.range_of_digits(first, digit))
        others = self._products(*self.encoded.range_of_digits(first, digit - 1))
        shift = 2 * (digit - first)
        low, high = (num_added * one + num_others * other for one, other in zip(added, others, strict=True))
        return low >> shift, high >> shift

    def _products(self, low: int, high: int) -> tuple[int, int]:
        """Return a pair: the smallest and largest product of a multiplicand by a number from ``low`` to ``high``."""
        ends = [end * factor for end in (low, high) for factor in (self.multiplicand.low, self.multiplicand.high)]
        return min(ends), max(ends)

    # Operands

    @cached_property
    def multiplicand_delays(self) -> list[set[int]]:
        """List of a set per term: delays in cycles after which Booth rows read the term's multiplicand."""
        delays: list[set[int]] = [set() for _ in self.positions]
        for chain in self.chains:
            for row in chain.rows:
                delays[row.term].add(row.cycle - self.positions[row.term])
        return delays

    @cached_property
    def encoded_delays(self) -> list[dict[frozenset[int], list[int]]]:
        """List of a dict per term: set of delays in cycles, to the encoded operand's bits (indices) read so late."""
        delays: list[dict[int, set[int]]] = [defaultdict(set) for _ in self.positions]
        for chain in self.chains:
            for row in chain.rows:
                for bit in self.digit_bits(row.digit):
                    if bit is not None:
                        delays[row.term][bit].add(row.cycle - self.positions[row.term])
        bits: list[dict[frozenset[int], list[int]]] = [defaultdict(list) for _ in self.positions]
        for term, by_bit in enumerate(delays):
            for bit, cycles in sorted(by_bit.items()):
                bits[term][frozenset(cycles)].append(bit)
        return bits

    def digit_bits(self, digit: int) -> Iterator[int | None]:
        """Yield the indices of the three operand bits that form a Booth digit, lowest first; ``None`` below bit 0."""
        for bit in range(2 * digit - 1, 2 * digit + 2):
            yield None if bit < 0 else min(bit, self.encoded.bits - 1)

    # Resources

    def count_multiplicands(self, cost: Cost, channels: int) -> None:
        """Add to ``cost`` the registers that delay the group's multiplicands for ``channels`` output channels."""
        for delays in self.multiplicand_delays:
            _count_delay_line(cost, channels * self.multiplicand.bits, delays)

    def count_encoded(self, cost: Cost, channels: int) -> None:
        """Add to ``cost`` the registers that delay the group's encoded operands for ``channels`` output channels."""
        for by_delays in self.encoded_delays:
            for delays, bits in by_delays.items():
                _count_delay_line(cost, channels * len(bits), delays)

    def count_chains(self, cost: Cost, sum_bits: int) -> None:
        """Add to ``cost`` the Booth rows and registers of an output channel whose sums have ``sum_bits`` bits."""
        for chain in self.chains:
            for index, row in enumerate(chain.rows):
                bits = row.bits_of(sum_bits)
                if not bits:
                    break
                cost.lut += bits
                passed = 2 if chain.ends_digit(index) else 0
                _count_delay_line(cost, passed, [chain.end - row.cycle])
                _count_delay_line(cost, max(bits - passed, 1), [chain.next_cycle(index) - row.cycle])


@dataclass(frozen=True)
class _Layout:
    """Arrangement of the Booth rows of dot products in chains, which also builds and prices its circuit.

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
    def numbers(self) -> tuple[_Number, _Number]:
        """Pair of `_Number`s with range and width: operand that Booth digits encode, and operand they multiply."""
        bits = self.dots.operand.width + (not self.dots.operand.signed)
        activation = _Number(bits, -1 << (bits - 1), (1 << (bits - 1)) - 1)
        weight = _Number(self.dots.weight_bits, *self.dots.weight_range)
        return (weight, activation) if self.encodes_weights else (activation, weight)

    @cached_property
    def groups(self) -> list[tuple[int, int, _Group]]:
        """List of term groups that share chains of Booth rows: (first term's index, its position, `_Group`)."""
        positions = [position for position, count in enumerate(self.dots.terms) for _ in range(count)]
        groups = []
        for first in range(0, len(positions), self.group):
            start = positions[first]
            relative = tuple(position - start for position in positions[first : first + self.group])
            groups.append((first, start, _group(*self.numbers, relative, self.digits)))
        return groups

    @property
    def _chains(self) -> Iterator[tuple[int, _Chain]]:
        """Iterator of pairs for one output channel: (cycle that the chain's cycles count from, `_Chain`)."""
        return ((start, chain) for _, start, group in self.groups for chain in group.chains)

    def _graph(self, sums: Sequence[tuple[int, int]]) -> AdderGraph:
        """Return an `AdderGraph` that sums the chains of some output channels, from each sum's width and bias."""
        chains = list(self._chains)
        operands = [Operand(chain.low, chain.high, start + chain.end) for start, chain in chains]
        graph = AdderGraph(self.dots.device, operands * len(sums))
        for channel, (bits, bias) in enumerate(sums):
            first = channel * len(chains)
            terms = [Term(first + index, 2 * chain.first_digit, 1) for index, (_, chain) in enumerate(chains)]
            graph.add_sum(terms, bias, bits)
        return graph

    @cached_property
    def _sums(self) -> list[tuple[int, int]]:
        """List of pairs per output channel: width in bits and bias of its sum."""
        return list(zip(self.dots.sum_bits, self.dots.bias or (0,) * self.dots.channels, strict=True))

    @cached_property
    def latency(self) -> int:
        return max(self._graph([total]).latency for total in set(self._sums))

    # Resources

    @cached_property
    def cost(self) -> Cost:
        """`Cost` in LUTs and flip-flops of the dot products of all output channels."""
        cost = self._cost_of_chains
        for total, channels in Counter(self._sums).items():
            tree = Cost(self.dots.device)
            self._graph([total]).count(tree)
            cost.add(tree, channels)
        return cost

    @property
    def _cost_of_chains(self) -> Cost:
        """`Cost` in LUTs and flip-flops of all chains of Booth rows, without the adder trees."""
        cost = Cost(self.dots.device)
        encoded, multiplied = (self.dots.channels, 1) if self.encodes_weights else (1, self.dots.channels)
        for group, count in Counter(group for _, _, group in self.groups).items():
            chains = Cost(self.dots.device)
            group.count_encoded(chains, encoded)
            group.count_multiplicands(chains, multiplied)
            for bits, channels in Counter(self.dots.sum_bits).items():
                channel = Cost(self.dots.device)
                group.count_chains(channel, bits)
                chains.add(channel, channels)
            cost.add(chains, count)
        return cost

    @property
    def cost_of_weight_registers(self) -> Cost:
        """`Cost` in LUTs and flip-flops of the registers that delay the weights of all output channels."""
        cost = Cost(self.dots.device)
        for _, _, group in self.groups:
            (group.count_encoded if self.encodes_weights else group.count_multiplicands)(cost, self.dots.channels)
        return cost

    @property
    def rough_cost(self) -> float:
        """Quick estimate of the dot products' LUTs, with a share for flip-flops; adders as wide as the widest chain.

        A tree of ternary adders has half as many adders as operands.
        """
        chains = list(self._chains)
        width = max(_bits(chain.low, chain.high) for _, chain in chains)
        tree = self.dots.channels * (len(chains) - 1) / 2 * width
        return _weighted_luts(self._cost_of_chains) + _weighted_luts(Cost(self.dots.device, lut=tree, ff=round(tree)))

    # Circuit

    def add_to(
        self, m: Module, activations: Sequence[Value], weights: Sequence[Sequence[Value]], names: Sequence[str]
    ) -> list[Signal]:
        """Add the Booth multiplier of all output channels; return a list: the registered sum of each channel."""
        own_names = [f"{name}_weight" for name in names]
        by_channel: list[list[Value]] = []
        channels = list(zip(weights, own_names, strict=True))
        shared = [(activations, f"{names[0]}_activation")]
        encoded, multiplied = (channels, shared) if self.encodes_weights else (shared, channels)
        digits = [self._delay_digits(m, operands, name) for operands, name in encoded]
        multiplicands = [self._delay_multiplicands(m, operands, name) for operands, name in multiplied]
        for channel, name in enumerate(names):
            own_digits, own_multiplicands = digits[channel % len(digits)], multiplicands[channel % len(multiplicands)]
            by_channel.append([])
            for first, _, group in self.groups:
                for chain in group.chains:
                    adder = _ChainCircuit(
                        m, group, chain, self.dots.sum_bits[channel], f"{name}_chain_{len(by_channel[-1])}"
                    )
                    last = first + len(group.positions)
                    by_channel[-1].append(adder.add(own_digits[first:last], own_multiplicands[first:last]))
        sums = [total for totals in by_channel for total in totals]
        return self._graph(self._sums).add_to(m, sums, names[0], names)

    def _delay_multiplicands(self, m: Module, operands: Sequence[Value], name: str) -> list[Mapping[int, Value]]:
        """Add delay lines for the terms' multiplicands; return a dict per term, from delay in cycles to signal."""
        return [
            _add_delay_line(m, operands[first + term], delays, f"{name}_{first + term}")
            for first, _, group in self.groups
            for term, delays in enumerate(group.multiplicand_delays)
        ]

    def _delay_digits(self, m: Module, operands: Sequence[Value], name: str) -> list[Mapping[tuple[int, int], Value]]:
        """Add delay lines for the terms' encoded operands; return a dict per term, (bit index, delay) to signal."""
        terms = []
        for first, _, group in self.groups:
            for term, by_delays in enumerate(group.encoded_delays, start=first):
                bits: dict[tuple[int, int], Value] = {}
                for delays, members in by_delays.items():
                    value = Cat(operands[term][bit] for bit in members)
                    for delay, tap in _add_delay_line(m, value, delays, f"{name}_{term}_bits_{members[0]}").items():
                        bits |= {(bit, delay): tap[index] for index, bit in enumerate(members)}
                terms.append(bits)
        return terms


@dataclass(frozen=True)
class _ChainCircuit:
    """Chain of adders of radix-4 Booth partial products, for one output channel with ``sum_bits``-bit sums."""

    m: Module
    group: _Group
    chain: _Chain
    sum_bits: int
    name: str

    def add(
        self, digits: Sequence[Mapping[tuple[int, int], Value]], multiplicands: Sequence[Mapping[int, Value]]
    ) -> Value:
        """Add the chain's Booth rows and registers to the module, and return the registered sum.

        Parameters
        ----------
        digits : sequence of mapping
            Bits of the encoded operand of each term, by bit and delay.
        multiplicands : sequence of mapping
            Multiplicand of each term, by delay.
        """
        m, chain, name = self.m, self.chain, self.name
        running: Value = Const(0, signed(1))
        complete: list[Value] = []
        for index, row in enumerate(chain.rows):
            bits = row.bits_of(self.sum_bits)
            if not bits:
                break
            delay = row.cycle - self.group.positions[row.term]
            digit = Cat(
                Const(0, 1) if bit is None else digits[row.term][bit, delay] for bit in self.group.digit_bits(row.digit)
            )
            config = BoothRowConfig(bits=bits, multiplicand_bits=self.group.multiplicand.bits)
            running = config.add_to(m, digit, multiplicands[row.term][delay], running, f"{name}_row_{index}")
            if chain.ends_digit(index):
                low = Cat(running[min(bit, bits - 1)] for bit in range(2))
                complete.append(delayed_apart(m, f"{name}_low_{row.digit}", low, chain.end - row.cycle))
                running = running[min(2, bits - 1) :].as_signed()
            running = delayed_apart(m, f"{name}_sum_{index}", running, chain.next_cycle(index) - row.cycle)
        return Cat(*complete, running).as_signed()


def _bits(low: int, high: int) -> int:
    """Return the width of a signed signal for values from ``low`` to ``high``, in bits."""
    return 1 + max(high.bit_length() if high > 0 else 0, (~low).bit_length() if low < 0 else 0)


def _delay_steps(delays: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (delay, number of registers since the previous delay) for each delay above 0, ascending."""
    last = 0
    for delay in sorted(delays):
        if delay > last:
            yield delay, delay - last
            last = delay


def _add_delay_line(m: Module, value: Value, delays: Iterable[int], name: str) -> dict[int, Value]:
    """Add a delay line of registers to a module; return a dict from each of ``delays`` (cycles) to the signal."""
    taps = {0: value}
    for delay, length in _delay_steps(delays):
        value = taps[delay] = delayed_apart(m, f"{name}_cycle_{delay}", value, length)
    return taps


def _count_delay_line(cost: Cost, bits: int, delays: Iterable[int]) -> None:
    """Add to ``cost`` the registers of a delay line of ``bits`` bits that is read at some delays, in cycles."""
    for _, length in _delay_steps(delays):
        cost.delay_apart(bits, length)


def _weighted_luts(cost: Cost) -> float:
    """Return a cost as one number: LUTs plus flip-flops divided by `FLIP_FLOPS_OF_A_LUT`."""
    return cost.lut + cost.ff / FLIP_FLOPS_OF_A_LUT


@lru_cache(maxsize=1 << 12)
def _group(encoded: _Number, multiplicand: _Number, positions: tuple[int, ...], digits: int) -> _Group:
    """Return a cached `_Group` of terms that share Booth chains, so that its chains are computed only once."""
    return _Group(encoded, multiplicand, positions, digits)


def _layouts(dots: DotProducts) -> Iterator[_Layout]:
    """Yield each candidate `_Layout` of Booth rows: which operand to encode, terms and digits per chain."""
    terms = sum(dots.terms)
    for encodes_weights in (True, False):
        digits = _Layout(dots, encodes_weights, 1, 1).numbers[0].digits
        for group in range(1, min(terms, LARGEST_GROUP) + 1):
            for chain_digits in sorted({-(-digits // chains) for chains in range(1, digits + 1)}):
                yield _Layout(dots, encodes_weights, group, chain_digits)


@lru_cache(maxsize=1 << 10)
def _best_layout(dots: DotProducts) -> _Layout:
    """Return the `_Layout` of Booth rows with the lowest `_weighted_luts`, among the `CANDIDATES` best by estimate."""
    candidates = sorted(_layouts(dots), key=lambda layout: layout.rough_cost)[:CANDIDATES]
    return min(candidates, key=lambda layout: (_weighted_luts(layout.cost), layout.latency))
