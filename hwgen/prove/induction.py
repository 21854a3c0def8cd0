"""Method ``induction``: the assertions and invariants hold at first, and after each step if they held before it.

The solver is Yices 2, behind Yosys' ``smtbmc``. It works on words, which suits sums of counters. The method never
refutes: a step that fails can begin in a state that no run reaches.
"""

from __future__ import annotations

from pathlib import Path

from hwgen.prove import tools
from hwgen.prove.obligation import Obligation
from hwgen.prove.translation import is_reached, to_formulas, unlike
from hwgen.prove.verdict import Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["check"]

_ENGINE = "Yices induction"


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float) -> Verdict:
    """Prove an obligation by induction over one step, within ``seconds``."""
    to_formulas(obligation, wrapped, folder, seconds)
    formulas = (folder / f"{PROOF}.smt2").read_text(encoding="utf-8")
    if reason := unlike(formulas.count("\n; yosys-smt2-assert "), obligation):
        return Verdict("undecided", _ENGINE, reason)
    cycles = str(obligation.structure.get("cycles", 1))
    for options in (["-t", cycles], ["-i", "-t", f"{cycles}:{cycles}"]):  # no step with fewer cycles is tried
        text = tools.smtbmc([*options, f"{PROOF}.smt2"], folder, seconds)
        if "Status: PASSED" not in text:
            return Verdict("undecided", _ENGINE, "not inductive" if "FAILED" in text else "the solver gave up")
    return Verdict("proved", _ENGINE, is_covered=is_reached(obligation, folder))
