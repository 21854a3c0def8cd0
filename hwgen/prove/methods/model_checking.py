"""Method ``pdr``: an obligation's wrapper as a circuit of AND gates, on which ABC proves or refutes the assertions.

ABC merges registers that are equal in all runs (``scorr``), and searches for an inductive invariant (``pdr``,
property-directed reachability). Where that takes long, or where induction gave up, random runs (``sim3``) and all
short ones (``bmc3``) are searched for one that refutes. Invariants of the obligation are asserted too, so that the
search can begin with them.
"""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools, trace
from hwgen.prove.methods.translation import asserted_facts, is_reached, num_bad, to_gates, unlike
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["check"]

_ENGINE = "ABC scorr, pdr"
#: Texts that ABC prints: of a proof, and before the cycle in which an assertion fails.
_PROVED, _ASSERTED = "Property proved", "was asserted in frame"
_INVARIANT = "scorr; orpos; pdr -T {}"
"""Commands of ABC that search an inductive invariant for a number of seconds."""
_FIRST_SECONDS = 10
"""Seconds of this search after which runs that refute are searched."""
_SECONDS = 20
"""Time limit of the search for all short runs."""
_RUNS = ("sim3 -F 64 -W 16 -N 1 -T 1", f"bmc3 -F 30 -T {_SECONDS}")
"""Commands of ABC that search a run that refutes: 1,024 random ones of 64 cycles, then all of 30 cycles."""


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Prove or refute an obligation with ABC. The search of a refutation's trace has a time limit of its own."""
    to_gates(obligation, wrapped, folder, deadline.left)
    if reason := unlike(num_bad((folder / f"{PROOF}.aig").read_bytes()), obligation):
        return Verdict("undecided", _ENGINE, reason)
    text = _decision(obligation, folder, deadline)
    if _PROVED in text:
        return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder, deadline))
    if frame := re.search(rf"{_ASSERTED} (\d+)", text):
        return _refuted(obligation, wrapped, folder, deadline, int(frame[1]))
    return Verdict("undecided", _ENGINE, "the solver gave up")


def _decision(obligation: Obligation, folder: Path, deadline: Deadline) -> str:
    """Return what ABC prints when it decides, or gives up.

    Where induction came first, runs that refute are searched at once: its invariants did not suffice, and a false one
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
    """Return the verdict of an obligation of which a fact fails in a cycle.

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
    alone = replace(obligation, invariants={})
    verdict = check(alone, wrapped.without(obligation.invariants), inner, deadline)
    if verdict.result != "undecided":
        return verdict
    detail = f"a fact that helps the proof fails in cycle {cycle}: {fact}; without such facts {verdict.detail}"
    return replace(verdict, detail=detail)


def _abc(commands: str, folder: Path, deadline: Deadline) -> str:
    """Run commands of ABC on the circuit, and return what ABC prints; nothing if the deadline ends it."""
    try:
        return tools.abc(f"read_aiger {PROOF}.aig; fold; {commands}", folder, deadline.left)
    except subprocess.TimeoutExpired:
        return ""
