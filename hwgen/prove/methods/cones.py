"""Logic cones of a sequential circuit: an output after some cycles, as a function of earlier inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

#: Literals of the constants 0 and 1. A literal is ``2 * node``, plus 1 if it is inverted.
FALSE, TRUE = 0, 1


@dataclass(frozen=True)
class Circuit:
    """Sequential circuit of AND gates and registers (AIGER numbering); registers start at 0.

    Parameters
    ----------
    registers : dict of int to int
        Next value of each register: a literal by the register's node.
    gates : dict of int to tuple of int
        Two operands, as literals, by the gate's node. Every other node is an input.
    bad, rules : list of int
        Literals that are true while an assertion fails, and while an assumption holds.
    """

    registers: Mapping[int, int]
    gates: Mapping[int, tuple[int, int]]
    bad: list[int]
    rules: list[int]

    @classmethod
    def read(cls, text: str) -> Circuit:
        """Return the `Circuit` that a text in AIGER's ASCII format describes."""
        lines = text.splitlines()
        counts = [*map(int, lines[0].split()[1:]), 0, 0, 0][:7]
        _, inputs, registers, outputs, gates, bad, rules = counts
        rows = iter(lines[1 + inputs :])

        def take(count: int) -> list[list[int]]:
            return [[int(word) for word in next(rows).split()] for _ in range(count)]

        nexts = {row[0] >> 1: row[1] for row in take(registers)}
        take(outputs)
        failing, kept = [row[0] for row in take(bad)], [row[0] for row in take(rules)]
        return cls(nexts, {out >> 1: (one, other) for out, one, other in take(gates)}, failing, kept)

    def failures(self, cycles: int) -> Iterator[tuple[Cone, int]]:
        """Yield (cone, literal) per assertion: true if it fails after ``cycles`` cycles that keep all assumptions."""
        whole = Cone()
        rules = [(rule, cycle) for cycle in range(cycles + 1) for rule in self.rules]
        literals = whole.unrolled(self, [*((bad, cycles) for bad in self.bad), *rules])
        kept = reduce(whole.both, literals[len(self.bad) :], TRUE)
        for failing in literals[: len(self.bad)]:
            yield whole.simplified(whole.both(failing, kept))


@dataclass
class Cone:
    """Combinational circuit of AND gates over variables, where equal gates are one; nodes are AIGER literals.

    Node 0 is the constant 0. The operands of a gate come before it. Nodes without operands are variables.
    """

    operands: list[tuple[int, int] | None] = field(default_factory=lambda: [None])
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def variable(self) -> int:
        """Add a variable to the circuit, and return its literal."""
        self.operands.append(None)
        return 2 * (len(self.operands) - 1)

    def both(self, one: int, other: int) -> int:
        """Return the literal (AIGER) of the AND of two literals, with a new gate if there is none yet."""
        one, other = min(one, other), max(one, other)
        if one == FALSE or one ^ 1 == other:
            return FALSE
        if one in (TRUE, other):
            return other
        if (one, other) not in self._known:
            self.operands.append((one, other))
            self._known[one, other] = 2 * (len(self.operands) - 1)
        return self._known[one, other]

    def unrolled(self, circuit: Circuit, roots: Sequence[tuple[int, int]]) -> list[int]:
        """Return a list of this cone's literals for a circuit's (literal, cycle) pairs ``roots``, over its inputs."""
        values: dict[tuple[int, int], int] = {}
        stack = [(literal >> 1, cycle) for literal, cycle in roots]
        while stack:
            node, now = point = stack[-1]
            if point in values:
                stack.pop()
                continue
            if node in circuit.gates:
                needs = [(literal, now) for literal in circuit.gates[node]]
            elif node in circuit.registers and now:
                needs = [(circuit.registers[node], now - 1)]
            else:
                # Registers start with 0. A register that starts with any value reads an input in the first cycle.
                values[point] = FALSE if node == 0 or node in circuit.registers else self.variable()
                continue
            missing = [(literal >> 1, at) for literal, at in needs if (literal >> 1, at) not in values]
            if missing:
                stack += missing
                continue
            operands = [values[literal >> 1, at] ^ literal & 1 for literal, at in needs]
            values[point] = self.both(*operands) if len(operands) == 2 else operands[0]
        return [values[literal >> 1, cycle] ^ literal & 1 for literal, cycle in roots]

    def conjuncts(self, literal: int) -> set[int]:
        """Return a set of literals whose AND equals a literal, by expanding all AND gates not inverted."""
        parts, stack = set(), [literal]
        while stack:
            part = stack.pop()
            operands = self.operands[part >> 1]
            if part & 1 or operands is None:
                parts.add(part)
            else:
                stack += operands
        return parts

    def simplified(self, literal: int) -> tuple[Cone, int]:
        """Return a pair: a new logic cone of one literal (node or inverse) without implied variables, and the literal.

        Nodes are numbered in the order of a walk from the literal, so that cones of the same structure are equal.
        """
        cone = self
        while True:
            fixed = {part >> 1: part & 1 for part in cone.conjuncts(literal) if cone.operands[part >> 1] is None}
            cone, literal = cone._rebuilt(literal, fixed)
            if literal in (FALSE, TRUE):
                return Cone(), literal  # it depends on no variable
            if not fixed:
                return cone, literal

    def _rebuilt(self, literal: int, fixed: Mapping[int, int]) -> tuple[Cone, int]:
        """Return a pair: a new cone of one literal, with the variables ``fixed`` constant, and the literal in it."""
        cone, values = Cone(), {node: TRUE ^ inverted for node, inverted in fixed.items()} | {0: FALSE}
        stack = [literal >> 1]
        while stack:
            node = stack[-1]
            operands = self.operands[node]
            missing = [] if operands is None else [operand >> 1 for operand in operands if operand >> 1 not in values]
            if missing and node not in values:
                stack += missing
                continue
            stack.pop()
            if node not in values and operands is None:
                values[node] = cone.variable()
            elif node not in values and operands is not None:
                one, other = (values[operand >> 1] ^ operand & 1 for operand in operands)
                values[node] = cone.both(one, other)
        return cone, values[literal >> 1] ^ literal & 1
