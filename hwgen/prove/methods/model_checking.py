"""Proof method ``pdr``: ABC decides an obligation's assertions on a circuit of AND gates.

ABC merges registers that are equal in all runs (``scorr``), and searches for an inductive invariant (``pdr``,
property-directed reachability). If that takes long, or if induction gave up, random runs (``sim3``) and all short ones
(``bmc3``) are searched for one that refutes. Invariants of the obligation are asserted too, so that the search can
start with them.
"""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools, trace
from hwgen.prove.methods.translation import asserted_facts, is_reached, mismatch, num_bad, to_gates
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

_ENGINE = "ABC scorr, pdr"
#: Texts that ABC prints for a proof, and before the index of the cycle whose assertion fails.
_PROVED, _ASSERTED = "Property proved", "was asserted in frame"
_INVARIANT = "scorr; orpos; pdr -T {}"
"""ABC commands that search for an inductive invariant for a number of seconds."""
_FIRST_SECONDS = 10
"""Seconds of search for an invariant, after which runs that refute are searched."""
_SECONDS = 20
"""Time limit in seconds of the search among all short runs."""
_RUNS = ("sim3 -F 64 -W 16 -N 1 -T 1", f"bmc3 -F 30 -T {_SECONDS}")
"""Tuple of ABC commands that search for a refuting run: 1,024 random runs of 64 cycles, then all of 30 cycles."""


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return ABC's `Verdict` on an obligation; a refutation's trace has its own time limit."""
    to_gates(obligation, wrapped, folder, deadline.left)
    if reason := mismatch(num_bad((folder / f"{PROOF}.aig").read_bytes()), obligation):
        return Verdict("undecided", _ENGINE, reason)
    text = _decision(obligation, folder, deadline)
    if _PROVED in text:
        return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder, deadline))
    if frame := re.search(rf"{_ASSERTED} (\d+)", text):
        return _refuted(obligation, wrapped, folder, deadline, int(frame[1]))
    return Verdict("undecided", _ENGINE, "the solver gave up")


def _decision(obligation: Obligation, folder: Path, deadline: Deadline) -> str:
    """Return the output (text) of the ABC run that decides the assertions, or of the last run if none does.

    If induction came first, runs that refute are searched at once: its invariants did not suffice, and a false one
    fails soon.
    """
    if obligation.methods[0] != "induction":
        text = _abc(_INVARIANT.format(_FIRST_SECONDS), folder, deadline.part(2))
        if _PROVED in text or _ASSERTED in text:
            return text
    for run in _RUNS:
        text = _abc(run, folder, deadline)
        if _ASSERTED in text:
            return text
    return _abc(_INVARIANT.format(math.ceil(deadline.left)), folder, deadline)


def _refuted(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline, cycle: int) -> Verdict:
    """Return the `Verdict` on an obligation with an assertion or invariant that fails in ``cycle``.

    If the fact only helps the proof, the property is decided without such facts.
    """
    text = _abc(f"bmc3 -F {cycle + 1} -T {_SECONDS}", folder, deadline)  # each fact is an output of its own here
    output = re.search(rf"Output (\d+) .*{_ASSERTED} (\d+)", text)
    fact = asserted_facts(wrapped, folder)[int(output[1])] if output else "a fact"
    if fact not in obligation.invariants:
        shown = trace.files(obligation, wrapped, folder, cycle + 1)
        return Verdict("refuted", _ENGINE, f"in cycle {cycle}: {fact}", files=shown)
    inner = folder / "without"
    inner.mkdir()
    without_invariants = replace(obligation, invariants={})
    verdict = check(without_invariants, wrapped.without(obligation.invariants), inner, deadline)
    if verdict.result != "undecided":
        return verdict
    detail = f"a fact that helps the proof fails in cycle {cycle}: {fact}; without such facts {verdict.detail}"
    return replace(verdict, detail=detail)


def _abc(commands: str, folder: Path, deadline: Deadline) -> str:
    """Run ABC commands on the circuit ``proof.aig``, and return what ABC prints; empty if the deadline ends it."""
    try:
        return tools.abc(f"read_aiger {PROOF}.aig; fold; {commands}", folder, deadline.left)
    except subprocess.TimeoutExpired:
        return ""
