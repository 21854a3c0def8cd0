"""Proof method ``algebra``: two pipeline words are equal because both are the same polynomial in input bits.

The method follows registers back through the pipeline, and writes every word as a polynomial. It knows when a sum
fits its word, from the range of the polynomial, so that widths are checked as well. It proves sums of hundreds of
products in seconds, where solvers that work on bits give up. It never refutes; random values of inputs do.
"""

from __future__ import annotations

import time
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove import trace
from hwgen.prove.methods import chance
from hwgen.prove.methods.translation import is_covered, mismatch, translate
from hwgen.prove.methods.words import Words
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

_ENGINE = "algebra"
_TOO_LONG = "the polynomials take too long"
_FIRST_SECONDS = 20
"""CPU seconds of polynomial algebra after which random inputs are tried."""
_TRACE_SECONDS = 20.0
"""Time limit in seconds of the search for a refutation's trace."""
_SCRIPT = (
    "read_verilog -formal modules.v wrappers.v; hierarchy -top {top}; proc; flatten; {connect} "
    "setattr -unset init w:*; opt_expr; opt_clean; memory -nomap; opt_clean; memory_map -formal; "
    "chformal -lower; opt_expr; opt_clean; write_json {top}.json"
)


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return the `Verdict` on assertions, equations of words after ``structure["cycles"]`` cycles, by polynomials.

    ``structure["held"]`` names accumulators, with the number of past cycles to follow each. What is not proved after
    some seconds is simulated with random inputs: the polynomials of a wrong circuit can grow and grow. The computation
    takes at most as many CPU seconds as are left, whatever else the machine does.
    """
    translate(_SCRIPT, obligation, wrapped, folder, deadline.left)
    reason = _reason(obligation, folder, min(deadline.processor_end, time.thread_time() + _FIRST_SECONDS))
    if reason and (found := chance.refutation(obligation, wrapped, folder, deadline)):
        cycle, fact = found
        files = trace.files(obligation, wrapped, folder, cycle + 1, _TRACE_SECONDS)
        return Verdict("refuted", "random values", f"in cycle {cycle}: {fact}", files=files)
    if reason == _TOO_LONG:
        reason = _reason(obligation, folder, deadline.processor_end)
    if reason:
        return Verdict("undecided", _ENGINE, reason)
    return Verdict("proved", _ENGINE, is_covered=is_covered(obligation, folder, deadline))


def _reason(obligation: Obligation, folder: Path, end: float) -> str:
    """Return a text why polynomials do not prove the assertions within CPU time ``end``; empty if they do."""
    parameters = obligation.structure
    try:
        words = Words.read(folder / f"{PROOF}.json", PROOF, parameters["cycles"], end, parameters.get("held", {}))
        if reason := mismatch(len(words.assertions), obligation):
            return reason
        return "" if all(words.holds(assertion["A"][0]) for assertion in words.assertions) else "the polynomials differ"
    except TimeoutError:
        return _TOO_LONG
    except ValueError as error:
        return f"the module has {error}"
