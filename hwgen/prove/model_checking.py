"""Method ``pdr``: an obligation's wrapper as a circuit of AND gates, on which ABC proves or refutes the assertions.

ABC merges registers that are equal in all runs (``scorr``), and searches for an inductive invariant (``pdr``,
property-directed reachability). Invariants of the obligation are asserted too, so that the search can begin with them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hwgen.prove import tools, trace
from hwgen.prove.obligation import Obligation
from hwgen.prove.translation import is_reached, num_bad, to_gates, unlike
from hwgen.prove.verdict import Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["check"]

_ENGINE = "ABC scorr, pdr"


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float) -> Verdict:
    """Prove or refute an obligation with ABC, within ``seconds``."""
    to_gates(obligation, wrapped, folder, seconds)
    if reason := unlike(num_bad((folder / f"{PROOF}.aig").read_bytes()), obligation):
        return Verdict("undecided", _ENGINE, reason)
    try:
        script = f"read_aiger {PROOF}.aig; fold; scorr; orpos; pdr -T {max(1, int(seconds))}"
        text = tools.abc(script, folder, 2 * seconds)
    except subprocess.TimeoutExpired:
        text = ""
    if "Property proved" in text:
        return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder))
    if frame := re.search(r"was asserted in frame (\d+)", text):
        shown = trace.files(obligation, wrapped, folder, int(frame[1]) + 1)
        return Verdict("refuted", _ENGINE, f"in cycle {frame[1]}", files=shown)
    return Verdict("undecided", _ENGINE, f"not decided within {seconds:g} s")
