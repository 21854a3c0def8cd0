"""Proof method ``induction``: assertions hold at first, and after a step if they held before; Yices decides.

The solver is Yices 2. It works on words, which suits sums of counters. It proves one fact at a time, from all facts in
the cycles before, so that each query has only the logic that this fact depends on. The method never refutes: a step
that fails can start in a state that no run reaches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.methods.translation import is_reached, mismatch, to_formulas
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

_ENGINE = "Yices induction"
#: Name of the file with the solver's commands, and the logic of the formulas: bit vectors and arrays.
_QUERIES, _LOGIC = "queries.smt2", "QF_AUFBV"
#: Pattern of an assertion in the formulas: its index, and the line of the wrapper that states it.
_ASSERTION = re.compile(r"^; yosys-smt2-assert (\d+) .*wrappers\.v:(\d+)", re.MULTILINE)


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return a `Verdict` by induction over one step, or ``structure["cycles"]`` steps: proved or undecided."""
    to_formulas(obligation, wrapped, folder, deadline.left)
    formulas = (folder / f"{PROOF}.smt2").read_text(encoding="utf-8")
    lines = {int(index): int(line) for index, line in _ASSERTION.findall(formulas)}
    if reason := mismatch(len(lines), obligation):
        return Verdict("undecided", _ENGINE, reason)
    cycles = obligation.structure.get("cycles", 1)
    facts = [wrapped.fact_at(line) for line in lines.values()]
    for queries, num_cycles in ((_first_cycles(lines, cycles), cycles), (_step(lines, cycles), 1)):
        commands = "\n".join([f"(set-logic {_LOGIC})", formulas, *queries])
        (folder / _QUERIES).write_text(commands, encoding="utf-8")
        answers = tools.yices(_QUERIES, folder, deadline.left).split()
        if answers != ["unsat"] * len(facts) * num_cycles:
            return Verdict("undecided", _ENGINE, _reason(answers, facts))
    return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder, deadline))


def _first_cycles(assertions: Iterable[int], cycles: int) -> Iterator[str]:
    """Yield SMT-LIB commands that ask whether an assertion can fail in one of the first ``cycles`` cycles."""
    for cycle in range(cycles):
        yield from _cycle(cycle, is_first=cycle == 0)
        yield from _is_false(assertions, cycle)
        yield f"(assert (|{PROOF}_a| s{cycle}))"


def _step(assertions: Iterable[int], cycles: int) -> Iterator[str]:
    """Yield SMT-LIB commands that ask whether an assertion can fail after ``cycles`` cycles without a failure."""
    for cycle in range(cycles + 1):
        yield from _cycle(cycle, is_first=False)
        if cycle < cycles:
            yield f"(assert (|{PROOF}_a| s{cycle}))"
    yield from _is_false(assertions, cycles)


def _cycle(cycle: int, *, is_first: bool) -> Iterator[str]:
    """Yield SMT-LIB commands that declare a cycle's state: the initial state, or the previous cycle's successor."""
    yield f"(declare-fun s{cycle} () |{PROOF}_s|)"
    yield f"(assert (|{PROOF}_h| s{cycle}))"
    yield f"(assert (|{PROOF}_u| s{cycle}))"
    if is_first:
        yield f"(assert (|{PROOF}_i| s{cycle}))"
        yield f"(assert (|{PROOF}_is| s{cycle}))"
        return
    yield f"(assert (not (|{PROOF}_is| s{cycle})))"
    if cycle:
        yield f"(assert (|{PROOF}_t| s{cycle - 1} s{cycle}))"


def _is_false(assertions: Iterable[int], cycle: int) -> Iterator[str]:
    """Yield one SMT-LIB query per assertion, which asks whether the assertion can be false in a cycle."""
    for index in assertions:
        yield f"(push 1)\n(assert (not (|{PROOF}_a {index}| s{cycle})))\n(check-sat)\n(pop 1)"


def _reason(answers: list[str], facts: list[str]) -> str:
    """Return a text why the solver's answers prove nothing: the first assertion that isn't inductive or decided."""
    refuted = next((position for position, answer in enumerate(answers) if answer == "sat"), None)
    return "the solver gave up" if refuted is None else f"not inductive: {facts[refuted % len(facts)]}"
