"""Pipelined graph of adders that computes several sums of shifted operands and shares common partial sums.

The graph is planned first. `AdderGraph.count` then gives its resources, and `AdderGraph.add_to` adds its circuit to a
module. Every adder has a register. If a node's value is read in a later cycle, registers delay it, once for all
readers.

Adders normalise their results: a result has no common factor of two, and its lowest operand is positive. The reader of
a node shifts and subtracts the value instead, which costs nothing. The bits of the lowest operand that no other operand
overlaps bypass the adder::

      a5 a4 a3 a2 a1 a0
    + b3 b2 b1 b0           shifted by 2
    = s5 s4 s3 s2 a1 a0     an adder of four bits
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from amaranth import Cat, Const, Module, Signal, Value, signed

from hwgen.devices import Device
from hwgen.gateware.arithmetic.ternary_adder import TernaryAdderConfig
from hwgen.gateware.cost import Cost, constant_adder_luts, trailing_zeros

#: Maximum number of operands of an adder.
ARITY = 3
#: Maximum width of a sum, in bits, that Yosys computes without a carry chain.
WIDEST_LOGIC = 2

_T = TypeVar("_T")


class Term(NamedTuple):
    """Addend of a sum in an adder graph: index of a node, left shift in bits of its value, and sign, 1 or -1."""

    node: int
    """Index of the adder graph's node whose value is added."""
    shift: int
    """Left shift of the node's value, in bits."""
    sign: int
    """Integer factor of the value: 1, or -1 if the value is subtracted."""


class Operand(NamedTuple):
    """Input of an adder graph: smallest and largest value, and the cycle when the value arrives."""

    low: int
    high: int
    cycle: int = 0


@dataclass(frozen=True)
class _Node:
    """Node of an adder graph: an input, which has no terms, or a registered adder of terms and a constant."""

    bits: int
    cycle: int
    terms: tuple[Term, ...] = ()
    constant: int = 0
    owner: int | None = None
    """Index of the only output sum that uses the node; ``None`` for inputs and for nodes that sums share."""


class _Sum(NamedTuple):
    """Output of an adder graph: the term that is the sum, or ``None`` and a constant; and the width in bits."""

    term: Term | None
    constant: int
    bits: int


class _Tap(NamedTuple):
    """Value of a node after some cycles of delay, with the count of reset-less registers in a row before it."""

    value: Value
    registers: int


class AdderGraph:
    """Pipelined graph of adders over operands of known ranges, planned sum by sum, then counted or built.

    Parameters
    ----------
    device : Device
        Device family of the circuit.
    operands : sequence of Operand
        Operands, which become the first nodes. They come from registers.
    """

    def __init__(self, device: Device, operands: Sequence[Operand]):
        self.device = device
        self._ranges = [(operand.low, operand.high) for operand in operands]
        #: Linear form of each shareable node's value, by node index: mapping from operand index to coefficient.
        self._forms: dict[int, Mapping[int, int]] = {index: {index: 1} for index in range(len(operands))}
        self._nodes = [_Node(_signed_bits(low, high), cycle) for low, high, cycle in operands]
        self._sums: list[_Sum] = []

    @property
    def size(self) -> int:
        """Number of nodes so far."""
        return len(self._nodes)

    def bits(self, node: int) -> int:
        """Return the width of a node's value, in bits."""
        return self._nodes[node].bits

    @property
    def latency(self) -> int:
        """Cycles, at least 1, from operands that arrive in cycle 0 to the graph's sums, which are complete at once."""
        return max([1, *(self._nodes[total.term.node].cycle for total in self._sums if total.term)])

    # Planning

    def add(self, terms: Sequence[Term], *, owner: int | None = None, limit: int | None = None) -> Term:
        """Add an adder of two or three terms to the graph; return a `Term` that stands for their sum.

        Parameters
        ----------
        terms : sequence of Term
            Two to `ARITY` terms.
        owner : int, optional
            Index of the sum that the adder belongs to.
        limit : int, optional
            Number of lowest bits of the sum that matter.
        """
        sign = min(terms, key=_by_shift).sign
        new = self._add([term._replace(sign=sign * term.sign) for term in terms], 0, owner, limit)
        return new._replace(sign=sign)

    def _add(self, terms: Sequence[Term], constant: int, owner: int | None, limit: int | None) -> Term:
        """Add an adder of terms and a constant to the graph; return a `Term` that stands for its sum."""
        base = min(term.shift for term in terms)
        base = min(base, trailing_zeros(constant)) if constant else base
        terms = sorted((term._replace(shift=term.shift - base) for term in terms), key=_by_shift)
        constant >>= base
        form: defaultdict[int, int] = defaultdict(int)
        for node, shift, sign in terms:
            for operand, factor in self._forms[node].items():
                form[operand] += sign * factor << shift
        low, high = constant, constant
        for operand, factor in form.items():
            smallest, largest = sorted(factor * end for end in self._ranges[operand])
            low, high = low + smallest, high + largest
        bits = _signed_bits(low, high)
        if limit is not None:
            bits = max(min(bits, limit - base), 1)
        cycle = 1 + max(self._nodes[term.node].cycle for term in terms)
        self._forms[len(self._nodes)] = form
        self._nodes.append(_Node(bits, cycle, tuple(terms), constant, owner))
        return Term(len(self._nodes) - 1, base, 1)

    def add_sum(self, terms: Iterable[Term], constant: int, bits: int) -> None:
        """Add a tree of adders that computes the sum of any number of terms and a constant, wrapped at ``bits`` bits.

        A level of the tree adds terms that are ready in the same cycle, `ARITY` at a time. The last adder adds the
        constant.
        """
        owner, first_own, half = len(self._sums), len(self._nodes), 1 << (bits - 1)
        constant = (constant + half) % (2 * half) - half
        arrivals: defaultdict[int, list[Term]] = defaultdict(list)
        for term in terms:
            if term.shift < bits:
                arrivals[self._nodes[term.node].cycle].append(term)
        if not arrivals:
            self._sums.append(_Sum(None, constant, bits))
            return
        cycle, ready = min(arrivals), []
        while True:
            ready += arrivals.pop(cycle, [])
            more = bool(constant) or all(term.sign < 0 for term in ready)
            if not arrivals and len(ready) + more <= ARITY:
                break
            groups, ready = self._groups(ready, cycle, at_end=not arrivals)
            ready += [self.add(group, owner=owner, limit=bits) for group in groups]
            cycle += 1
        if len(ready) > 1 or more:
            ready = [self._add(ready, constant, owner, bits)]
        self._sums.append(_Sum(ready[0], 0, bits))
        for node in range(first_own, len(self._nodes)):
            del self._forms[node]

    def _groups(self, ready: list[Term], cycle: int, *, at_end: bool) -> tuple[list[list[Term]], list[Term]]:
        """Return a pair of the terms ready in a cycle: list of groups that one adder each adds, and list that waits.

        The widest of the new terms wait. Terms of neighbouring shifts are added, which keeps sums narrow.
        """
        if at_end and len(ready) == ARITY:
            *narrow, widest = sorted(ready, key=self._top)
            return [narrow], [widest]
        left_over = len(ready) % ARITY
        ready = sorted(ready, key=lambda term: (self._nodes[term.node].cycle == cycle, self._top(term)))
        added, waiting = ready[: len(ready) - left_over], ready[len(ready) - left_over :]
        added.sort(key=lambda term: (term.shift, self._top(term)))
        return [added[first : first + ARITY] for first in range(0, len(added), ARITY)], waiting

    def _top(self, term: Term) -> tuple[int, Term]:
        """Return a pair as sort key of a term: position of its highest bit after the shift, then the term."""
        return term.shift + self._nodes[term.node].bits, term

    def merge_adders(self, read: Iterable[int]) -> None:
        """Merge each two-operand adder into the two-operand adder that reads its sum, if nothing else reads it.

        ``read`` are the nodes that sums will read, once for each sum. No sum has been added yet.
        """
        readers = Counter(read)
        readers.update(term.node for node in self._nodes for term in node.terms)
        for index, node in enumerate(self._nodes):
            if not node.terms:
                continue
            terms = list(node.terms)
            for term in node.terms:
                inner = self._nodes[term.node].terms
                if readers[term.node] == 1 and len(terms) + len(inner) - 1 <= ARITY and inner:
                    terms.remove(term)
                    terms += [Term(part, term.shift + shift, term.sign * sign) for part, shift, sign in inner]
            cycle = 1 + max(self._nodes[term.node].cycle for term in terms)
            self._nodes[index] = replace(node, cycle=cycle, terms=tuple(sorted(terms, key=_by_shift)))

    # Delays

    def _uses(self) -> dict[int, set[int]]:
        """Return a dict from node index to the set of delays (cycles) after which adders or final sums read the node.

        Nodes that no sum needs have no entry.
        """
        uses: defaultdict[int, set[int]] = defaultdict(set)
        latency = self.latency
        for total in self._sums:
            if total.term:
                uses[total.term.node].add(latency - self._nodes[total.term.node].cycle)
        for index in reversed(range(len(self._nodes))):
            for term in self._nodes[index].terms if index in uses else ():
                uses[term.node].add(self._nodes[index].cycle - 1 - self._nodes[term.node].cycle)
        return uses

    def _segments(self, node: int, delays: set[int]) -> Iterator[int]:
        """Yield the number of registers in each piece of a node's delay line, between delays that are read.

        An adder's own register is the first register of its delay line.
        """
        last = -bool(self._nodes[node].terms)
        for delay in sorted(delays):
            if delay > last:
                yield delay - last
                last = delay

    # Circuit

    def add_to(self, m: Module, operands: Sequence[Value], prefix: str, names: Sequence[str]) -> list[Signal]:
        """Add the circuit of the adder graph to a module, and return, as a list, the signal of each sum.

        Parameters
        ----------
        m : Module
            Module that gets the circuit.
        operands : sequence of Value
            Operands, signed.
        prefix : str
            Prefix of the signal names of nodes that sums share.
        names : sequence of str
            Prefix of the signal names of each sum.
        """
        uses, latency = self._uses(), self.latency
        lines: list[dict[int, _Tap]] = []
        for index, node in enumerate(self._nodes):
            if index not in uses:
                lines.append({})
                continue
            name = f"{prefix if node.owner is None else names[node.owner]}_term_{index}"
            if node.terms:
                taps = [lines[term.node][node.cycle - 1 - self._nodes[term.node].cycle] for term in node.terms]
                value = _add(m, node, [tap.value for tap in taps], name)
                source = _Tap(value, taps[0].registers if _num_passed_bits(node) else 0)
            else:
                source = _Tap(operands[index], 1)
            lines.append(self._delay_line(m, index, source, uses[index], name))
        sums = []
        for total, name in zip(self._sums, names, strict=True):
            result = Signal(signed(total.bits), name=f"{name}_sum")
            if total.term is None:
                m.d.comb += result.eq(Const(total.constant, signed(total.bits)))
            else:
                tap = lines[total.term.node][latency - self._nodes[total.term.node].cycle]
                m.d.comb += result.eq(_shifted(tap.value, total.term.shift))
            sums.append(result)
        return sums

    def _delay_line(self, m: Module, index: int, source: _Tap, delays: set[int], name: str) -> dict[int, _Tap]:
        """Add the registers that delay a node's value; return a dict from each delay that is read to its `_Tap`.

        The last register before a reader has a reset if it would otherwise end a shift register in LUTs, whose output
        is slow.
        """
        node = self._nodes[index]
        line, delay, (value, registers) = {0: source}, -bool(node.terms), source
        for length in self._segments(index, delays):
            registers += length
            is_reset = registers >= self.device.logic.shortest_shift_register
            for last in [*[False] * (length - 1), True]:
                delay += 1
                register = Signal(
                    signed(node.bits), name=f"{name}_{delay}" if delay else name, reset_less=not (last and is_reset)
                )
                m.d.sync += register.eq(value)
                value = register
            registers *= not is_reset
            line[delay] = _Tap(value, registers)
        return line

    # Resources

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the LUTs and flip-flops of the adder graph's circuit."""
        cost.add(self._cost)

    @cached_property
    def _cost(self) -> Cost:
        """`Cost` in LUTs and flip-flops of the adder graph's circuit, computed once the graph is complete."""
        cost = Cost(self.device)
        uses = self._uses()
        passed: defaultdict[tuple[int, int], int] = defaultdict(int)
        for index, delays in uses.items():
            node = self._nodes[index]
            if node.terms:
                split = _num_passed_bits(node)
                first = node.terms[0].node
                delay = node.cycle - self._nodes[first].cycle
                passed[first, delay] = max(passed[first, delay], min(split, self._nodes[first].bits))
                cost.lut += _adder_luts(node, [self._nodes[term.node].bits for term in node.terms])
                cost.ff -= split
            for length in self._segments(index, delays):
                fast = length >= self.device.logic.shortest_shift_register
                cost.delay(node.bits, length - fast)
                cost.ff += node.bits * fast
        # Equal registers of passing bits are one register, and none if the node's own delay line has it.
        cost.ff += sum(bits for (node, delay), bits in passed.items() if delay > max(uses[node]))
        return cost


def _by_shift(term: Term) -> tuple[int, int]:
    """Return, as a pair, the key that sorts terms by shift, and terms of equal shift with positive ones first."""
    return term.shift, -term.sign


def _signed_bits(low: int, high: int) -> int:
    """Return the width of a signed signal for values from ``low`` to ``high``, in bits."""
    return 1 + max(high.bit_length() if high > 0 else 0, (~low).bit_length() if low < 0 else 0)


def _addends(node: _Node, values: Sequence[_T]) -> list[tuple[int, int, _T | None]]:
    """Return a list of triples (shift, sign, value) of an adder's addends, by shift; the constant's value is ``None``.

    An adder whose terms are all negative has a constant, which can be 0.
    """
    addends: list[tuple[int, int, _T | None]] = [
        (term.shift, term.sign, value) for term, value in zip(node.terms, values, strict=True)
    ]
    if node.constant or all(term.sign < 0 for term in node.terms):
        addends.append((trailing_zeros(node.constant), 1, None))
    return sorted(addends, key=lambda addend: (addend[0], -addend[1]))


def _num_passed_bits(node: _Node) -> int:
    """Return how many low bits of an adder's result are copies of its least shifted operand's bits."""
    (_, sign, _), (shift, _, _), *_ = _addends(node, node.terms)
    return min(shift, node.bits - 1) if sign > 0 else 0


def _add(m: Module, node: _Node, inputs: Sequence[Value], name: str) -> Value:
    """Add an adder to a module; return the sum of its terms and constant, `_Node.bits` bits wide."""
    split = _num_passed_bits(node)
    passed: Value = Const(0, 0)
    values, negative = [], []
    for shift, sign, value in _addends(node, inputs):
        if value is None:
            value = Const(node.constant >> shift, signed(node.bits - shift))
        if shift < split:  # the lowest operand, which is not shifted
            passed = Cat(value[:split], value[-1].replicate(max(split - len(value), 0)))
            value, shift = value[split:] if split < len(value) else value[-1], split
        values.append(_shifted(value, shift - split))
        negative.append(sign < 0)
    return Cat(passed, _total(m, node.bits - split, values, negative, name)).as_signed()


def _total(m: Module, bits: int, values: Sequence[Value], negative: Sequence[bool], name: str) -> Value:
    """Return the sum or difference of two or three signed values, correct in its lowest ``bits`` bits."""
    if len(values) == 2:
        (one, other), (first, second) = values, negative
        return other - one if first else one - other if second else one + other
    return TernaryAdderConfig(bits=bits, negative=(negative[0], negative[1], negative[2])).add_to(
        m, values, f"{name}_adder"
    )


def _adder_luts(node: _Node, widths: Sequence[int]) -> int:
    """Return the number of LUTs of an adder, at most one per bit, from the widths of its terms."""
    split = _num_passed_bits(node)
    bits = node.bits - split
    addends = _addends(node, widths)
    if len(addends) == ARITY:
        return bits
    # Two operands with a sign bit at the highest bit have it one bit lower as well, and the LUT is the same. The
    # narrowest adders have no carry chain.
    bits -= bits > WIDEST_LOGIC and bits > max(
        shift + width - split for shift, _, width in addends if width is not None
    )
    if all(width is not None for _, _, width in addends):
        return bits
    ones = constant_adder_luts(node.constant >> split, bits)
    return bits - ones if addends[0][1] < 0 or addends[1][1] < 0 else ones


def _shifted(value: Value, shift: int) -> Value:
    """Return a value as signed, shifted left by a constant number of bits."""
    return Cat(Const(0, shift), value).as_signed() if shift else value.as_signed()
