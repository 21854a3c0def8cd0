"""Proof method ``parity``: both sides of an assertion have the same XOR of products of earlier inputs' bits.

The algebraic normal form is a sum, modulo 2, of products of bits (Zhegalkin, 1927). Each function of bits has exactly
one, so that two functions are equal if and only if their sums are. An exclusive or adds sums, which suits checksums:
there, each sum has few products. A solver that works on cases doubles them with each exclusive or.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove.methods import exhaustive
from hwgen.prove.methods.cones import Cone
from hwgen.prove.methods.translation import is_covered, mismatch
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

#: Maximum number of products of terms to compute for one gate.
MAX_TERMS = 1 << 20
_ENGINE = "sums modulo 2"
_ONE = 0
"""Product of no variables, which is 1; products are integers whose set bits are their variables."""


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return the `Verdict` on assertions after ``structure["cycles"]`` cycles, by algebraic normal forms.

    As with `hwgen.prove.methods.exhaustive`, all registers of the module start with any value. The sums take at most
    as many CPU seconds as are left.
    """
    circuit = exhaustive.circuit_of(obligation, wrapped, folder, deadline)
    if reason := mismatch(len(circuit.bad), obligation):
        return Verdict("undecided", _ENGINE, reason)
    end = deadline.processor_end
    undecided = False
    for index, (cone, failing) in enumerate(circuit.failures(obligation.structure["cycles"])):
        terms = parity(cone, failing, end)
        if terms or exhaustive.is_true_by_chance(cone, failing):
            return exhaustive.refuted(_ENGINE, obligation, wrapped, folder, index)
        undecided = undecided or terms is None
    if undecided:
        return Verdict("undecided", _ENGINE, f"a gate needs more than {MAX_TERMS:,} products, or too much time")
    return Verdict("proved", _ENGINE, is_covered=is_covered(obligation, folder, deadline))


def parity(cone: Cone, literal: int, deadline: float = math.inf) -> frozenset[int] | None:
    """Return a set of the products (bit masks) whose XOR equals an AIG literal; ``None`` if too many or too late.

    A product is a number: bit n is set if the variable of node n is a factor. The result is ``None`` if a gate needs
    too many products, or if the time is past ``deadline``, of ``time.thread_time``.
    """
    sums: dict[int, frozenset[int]] = {0: frozenset()}

    def value(part: int) -> frozenset[int]:
        return sums[part >> 1] ^ {_ONE} if part & 1 else sums[part >> 1]

    stack = [literal >> 1]
    while stack:
        node = stack[-1]
        gate = cone.operands[node]
        operands = () if gate is None else _xor_operands(cone, node) or gate
        missing = [part >> 1 for part in operands if part >> 1 not in sums]
        if node not in sums and missing:
            stack += missing
            continue
        stack.pop()
        if node in sums:
            continue
        if gate is None:
            sums[node] = frozenset({1 << node})
            continue
        one, other = map(value, operands)
        if operands != gate:
            sums[node] = one ^ other
        elif len(one) * len(other) > MAX_TERMS or time.thread_time() > deadline:
            return None
        else:
            sums[node] = _product(one, other)
    return value(literal)


def _xor_operands(cone: Cone, node: int) -> tuple[int, int] | None:
    """Return a pair: the two literals whose XOR a gate computes; ``None`` if it computes none."""
    gate = cone.operands[node]
    if gate is None or not (gate[0] & gate[1] & 1):
        return None
    one, other = (cone.operands[part >> 1] for part in gate)
    if one is None or other is None or {part ^ 1 for part in one} != set(other):
        return None
    return one


def _product(one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
    """Return the product of two XORs of products, as a set of products; one that occurs twice drops out.

    A term that occurs an even number of times is 0.
    """
    terms: set[int] = set()
    for first in one:
        for second in other:
            terms ^= {first | second}
    return frozenset(terms)
