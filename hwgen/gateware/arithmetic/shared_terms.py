"""Search for partial sums that several sums of constant multiples have in common, to compute each only once.

A weight is a sum of signed powers of two in canonical form: no two neighbouring digits are nonzero, which takes the
fewest digits. A product is then a sum of shifted operands, and a sum of products one long sum. If the same pair of
operands, with the same distance of their shifts and the same sign, is in several sums (or several times in one), the
pair becomes a node of the adder graph and a term in its own right, which can be part of further pairs. Each step
chooses the pair that saves the most LUTs (Hartley 1996; Hosangadi, Fallah and Kastner 2005; Sun et al., arXiv
2507.04535).

The search looks at all operands at once, or at as many at a time as have `MAX_PAIRS` pairs of terms, to take seconds.
Random 8-bit weights of 16 sums over 72 operands take 8 % fewer LUTs than in groups of 9 operands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hwgen.gateware.arithmetic.adder_graph import ARITY, AdderGraph, Term

#: Maximum number of pairs of terms that one search counts, which bounds its time.
MAX_PAIRS = 400_000
#: Maximum number of shared adders in a row. With more, sums take up to 2 % fewer LUTs, but more registers and a cycle.
MAX_DEPTH = 2
#: Bits of a pair's hash that the number of pairs does not have. With 3 fewer, equal hashes cost 7 % more LUTs.
_SPARE_BITS = 4
#: Estimate of how much wider an adder in a sum's tree is than an operand, in bits.
_MORE_BITS = 5
#: Width in bits of a term's shift, the lower field of the term's number; the upper field is the node.
_SHIFT_BITS = 6
#: Largest shift of a term.
_MAX_SHIFT = (1 << _SHIFT_BITS) - 1
#: Width in bits of the lower fields of a pair's number: distance of its terms' numbers, and whether signs are equal.
_PAIR_BITS = 32
#: Odd factor that spreads a pair's number over the upper bits of 64 (Fibonacci hashing).
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)

#: Terms of a sum, as a dictionary: number of the term (`_number`) to sign, 1 or -1.
_Terms = dict[int, int]


def digits(weight: int) -> Iterator[tuple[int, int]]:
    """Yield shift and sign of each nonzero digit of an integer in canonical signed-digit form, lowest first."""
    shift = 0
    while weight:
        if weight & 1:
            sign = 2 - (weight & 3)
            yield shift, sign
            weight -= sign
        weight >>= 1
        shift += 1


def shared_terms(graph: AdderGraph, weights: Sequence[Sequence[int]], sum_bits: Sequence[int]) -> list[list[Term]]:
    """Add to a graph the additions that several sums share; return a list: per sum, the terms that remain to be added.

    Parameters
    ----------
    graph : AdderGraph
        Graph whose nodes are the operands.
    weights : sequence of sequence of int
        Weights of the operands, for each sum.
    sum_bits : sequence of int
        Width of each sum, in bits.
    """
    products = [
        [
            [(_number(index, shift), sign) for shift, sign in digits(weight) if shift < bits]
            for index, weight in enumerate(row)
        ]
        for row, bits in zip(weights, sum_bits, strict=True)
    ]
    num_operands, num_pairs = len(weights[0]), sum(sum(map(len, row)) ** 2 for row in products) // 2
    # The pairs of a group are quadratic in its operands.
    group = max(1, int(num_operands * min(1, (MAX_PAIRS / max(num_pairs, 1)) ** 0.5)))
    remaining: list[list[Term]] = [[] for _ in weights]
    for first in range(0, num_operands, group):
        sums = [dict(term for terms in row[first : first + group] for term in terms) for row in products]
        _Search(graph, sums).run()
        for terms, left in zip(remaining, sums, strict=True):
            terms += [Term(number >> _SHIFT_BITS, number & _MAX_SHIFT, sign) for number, sign in left.items()]
    graph.merge_adders(term.node for terms in remaining for term in terms)
    return remaining


def _number(node: int, shift: int) -> int:
    """Return a number that stands for a node of the graph and a left shift of its value in bits."""
    return node << _SHIFT_BITS | shift


class _Search:
    """Greedy search for pairs of terms that sums share; it replaces them by graph nodes, in place.

    The fields of a pair's number are, highest first: node of the first term, distance of the terms' numbers, and
    whether the signs are equal. Pairs of equal hash share a counter, so that some seem to save more than they do;
    before a pair is replaced, its own occurrences are counted.

    Parameters
    ----------
    graph : AdderGraph
        Graph that gets the pairs.
    sums : list of dict
        Terms of each sum.
    """

    def __init__(self, graph: AdderGraph, sums: list[_Terms]):
        self._graph, self._sums = graph, sums
        #: Width in bits of each node's value, and number of shared adders in a row up to it.
        self._bits = np.array([graph.bits(node) for node in range(graph.size)])
        self._depths = np.zeros(graph.size, np.int64)
        self._max_shift = max((number & _MAX_SHIFT for terms in sums for number in terms), default=0)
        assert 2 * self._max_shift < _MAX_SHIFT, "a distance must tell by how many nodes and by how many bits"
        #: Numbers of pairs by what each saved when it was queued, in LUTs times `ARITY` - 1.
        self._queues: defaultdict[int, list[np.ndarray]] = defaultdict(list)
        pairs = np.concatenate([_pairs_within(terms) for terms in sums])
        hash_bits = len(pairs).bit_length() + _SPARE_BITS
        self._hash_shift = np.uint64(64 - hash_bits)
        #: Number of occurrences of the pairs of each hash; overlapping occurrences count separately.
        self._counts = np.zeros(1 << hash_bits, np.int32)
        self._count(1, pairs)
        self._queue(np.unique(pairs))

    def run(self) -> None:
        """Replace the pair of terms that saves the most LUTs by a shared adder, until no pair saves any."""
        while self._queues:
            saved = max(self._queues)
            pairs = np.concatenate(self._queues.pop(saved))
            is_current = self._saved(pairs) == saved  # most counts have changed since the pairs were queued
            self._queue(pairs[~is_current])
            if is_current.any():
                self._share(int(pairs[is_current].min()), saved, pairs[is_current])

    def _share(self, pair: int, saved: int, equal: np.ndarray) -> None:
        """Replace a pair by a shared adder if enough of its occurrences are disjoint, and queue the other pairs again.

        ``equal`` are all pairs that save as much, this one included.
        """
        if (others := equal[equal != pair]).size:
            self._queues[saved].append(others)
        occurrences = self._occurrences(pair)
        if self._saved(np.array([pair]), len(occurrences))[0] > 0:
            self._queue(self._replace(pair, occurrences))

    def _hashes(self, pairs: np.ndarray) -> np.ndarray:
        """Return the index of each pair's counter."""
        return (pairs.astype(np.uint64) * _HASH_FACTOR >> self._hash_shift).astype(np.int64)

    def _queue(self, pairs: np.ndarray) -> None:
        """Add the pairs that save LUTs to the queues."""
        saved = self._saved(pairs)
        for each in np.unique(saved[saved > 0]).tolist():
            self._queues[each].append(pairs[saved == each])

    def _saved(self, pairs: np.ndarray, counts: int | None = None) -> np.ndarray:
        """Return the estimated LUTs that each pair saves if it is computed once, times ``ARITY - 1``.

        Each occurrence is one term fewer in its sum's tree; the pair itself is an adder.
        """
        occurrences = self._counts[self._hashes(pairs)] if counts is None else counts
        node, other, distance = _members(pairs)
        width, other_width = self._bits[node], self._bits[other]
        adder = np.maximum(width, other_width + distance) - np.maximum(distance, 0)
        saved = occurrences * (np.minimum(width, other_width) + _MORE_BITS) - (ARITY - 1) * adder
        is_shallow = np.maximum(self._depths[node], self._depths[other]) < MAX_DEPTH
        return np.where(is_shallow & (occurrences > 1), saved, 0)

    def _occurrences(self, pair: int) -> list[tuple[int, int]]:
        """Return a list of a term pair's disjoint occurrences: (sum index, number of the first term)."""
        first, distance, is_same = _number(pair >> _PAIR_BITS, 0), _distance(pair), pair & 1
        occurrences = []
        for index, terms in enumerate(self._sums):
            used = set[int]()
            for number in range(first, first + self._max_shift + 1):
                pair_terms = {number, number + distance}
                if used & pair_terms or not pair_terms <= terms.keys():
                    continue
                if (terms[number] == terms[number + distance]) == is_same:
                    used |= pair_terms
                    occurrences.append((index, number))
        return occurrences

    def _replace(self, pair: int, occurrences: Sequence[tuple[int, int]]) -> np.ndarray:
        """Replace occurrences of a pair of terms by a new adder; return the pairs that its sum now is in."""
        node, other, distance = (int(each) for each in _members(np.array(pair)))
        base, sign = min(distance, 0), 1 if pair & 1 else -1
        new = self._graph.add([Term(node, -base, 1), Term(other, distance - base, sign)])
        self._bits = np.append(self._bits, self._graph.bits(new.node))
        self._depths = np.append(self._depths, 1 + max(self._depths[node], self._depths[other]))
        changed = []
        for index, first in occurrences:
            terms = self._sums[index]
            first_sign = terms[first]
            for old in (first, first + _distance(pair)):
                self._count(-1, _pairs_with(old, terms.pop(old), terms))
            added = _number(new.node, (first & _MAX_SHIFT) + base + new.shift)
            changed.append(_pairs_with(added, first_sign * new.sign, terms))
            self._count(1, changed[-1])
            terms[added] = first_sign * new.sign
            self._max_shift = max(self._max_shift, added & _MAX_SHIFT)
        return np.unique(np.concatenate(changed))

    def _count(self, more: int, pairs: np.ndarray) -> None:
        """Add ``more`` to the counters of some pairs."""
        np.add.at(self._counts, self._hashes(pairs), more)


def _distance(pair: Any) -> Any:
    """Return the difference of the terms' numbers of each pair, which is positive."""
    return pair >> 1 & (1 << _PAIR_BITS - 1) - 1


def _members(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the terms of each pair: first node, second node, and the second shift less the first, in bits."""
    nodes, distances = pairs >> _PAIR_BITS, _distance(pairs)
    between = (distances + (_MAX_SHIFT + 1) // 2) >> _SHIFT_BITS
    return nodes, nodes + between, distances - (between << _SHIFT_BITS)


def _pairs_with(number: int, sign: int, terms: _Terms) -> np.ndarray:
    """Return the numbers of the pairs of a term with each of the other ``terms``."""
    others = np.fromiter(terms.keys(), np.int64, len(terms))
    signs = np.fromiter(terms.values(), np.int64, len(terms))
    return _pair_numbers(np.minimum(others, number), np.maximum(others, number), signs == sign)


def _pairs_within(terms: _Terms) -> np.ndarray:
    """Return the numbers of all pairs of a sum's terms."""
    numbers = np.array(sorted(terms), np.int64)
    signs = np.array([terms[number] for number in numbers.tolist()], np.int64)
    first, second = np.triu_indices(len(numbers), 1)
    return _pair_numbers(numbers[first], numbers[second], signs[first] == signs[second])


def _pair_numbers(first: np.ndarray, second: np.ndarray, is_same_sign: np.ndarray) -> np.ndarray:
    """Return the number of each pair of terms, the one with the lower number first."""
    return (first >> _SHIFT_BITS) << _PAIR_BITS | (second - first) << 1 | is_same_sign
