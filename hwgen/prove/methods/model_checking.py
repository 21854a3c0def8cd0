"""Method ``pdr``: an obligation's wrapper as a circuit of AND gates, on which ABC proves or refutes the assertions.

ABC merges registers that are equal in all runs (``scorr``), and searches for an inductive invariant (``pdr``,
property-directed reachability). Where induction gave up, a search of all short runs (``bmc3``) comes first. Invariants
of the obligation are asserted too, so that the search can begin with them.
"""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

from hwgen.prove import tools, trace
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods.translation import is_reached, num_bad, to_gates, unlike
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
        shown = trace.files(obligation, wrapped, folder, int(frame[1]) + 1)
        return Verdict("refuted", _ENGINE, f"in cycle {frame[1]}", files=shown)
    return Verdict("undecided", _ENGINE, "the solver gave up")


def _abc(commands: str, folder: Path, deadline: Deadline) -> str:
    """Run commands of ABC on the circuit, and return what ABC prints; nothing if the deadline ends it."""
    try:
        return tools.abc(f"read_aiger {PROOF}.aig; fold; {commands}", folder, deadline.left)
    except subprocess.TimeoutExpired:
        return ""
