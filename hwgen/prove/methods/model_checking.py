"""Method ``pdr``: an obligation's wrapper as a circuit of AND gates, on which ABC proves or refutes the assertions.

ABC merges registers that are equal in all runs (``scorr``), and searches for an inductive invariant (``pdr``,
property-directed reachability). Where induction gave up, a search of all short runs (``bmc3``) comes first. Invariants
of the obligation are asserted too, so that the search can begin with them.
"""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from hwgen.prove import tools, trace
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods.translation import asserted_facts, is_reached, num_bad, to_gates, unlike
from hwgen.prove.obligation import Obligation
from hwgen.prove.verdict import Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["check"]

_ENGINE = "ABC scorr, pdr"
#: Text that ABC prints before the cycle in which an assertion fails.
_ASSERTED = "was asserted in frame"
#: Number of cycles, and time limit in seconds, of the search for a short run that refutes.
_CYCLES, _SECONDS = 30, 20


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Prove or refute an obligation with ABC. The search of a refutation's trace has a time limit of its own."""
    to_gates(obligation, wrapped, folder, deadline.left)
    if reason := unlike(num_bad((folder / f"{PROOF}.aig").read_bytes()), obligation):
        return Verdict("undecided", _ENGINE, reason)
    text = ""
    if obligation.methods[0] == "induction":  # its invariants did not suffice, and a false one fails soon
        text = _abc(f"bmc3 -F {_CYCLES} -T {_SECONDS}", folder, deadline)
    if _ASSERTED not in text:
        text = _abc(f"scorr; orpos; pdr -T {math.ceil(deadline.left)}", folder, deadline)
    if "Property proved" in text:
        return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder, deadline))
    if frame := re.search(rf"{_ASSERTED} (\d+)", text):
        return _refuted(obligation, wrapped, folder, deadline, int(frame[1]))
    return Verdict("undecided", _ENGINE, "the solver gave up")


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
