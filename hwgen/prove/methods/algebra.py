"""Method ``algebra``: two words of a pipeline are equal, because both are the same polynomial over bits of inputs.

The method follows registers back through the pipeline, and writes every word as a polynomial. It knows when a sum
fits its word, from the range of the polynomial, so that widths are checked as well. It proves sums of hundreds of
products in seconds, where solvers that work on bits give up. It never refutes.
"""

from __future__ import annotations

from pathlib import Path

from hwgen.prove import tools
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods.translation import cover_script, is_covered, unlike
from hwgen.prove.methods.words import Words
from hwgen.prove.obligation import Obligation
from hwgen.prove.verdict import Verdict
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["check"]

_ENGINE = "polynomials"
_SCRIPT = (
    "read_verilog -formal modules.v wrappers.v; hierarchy -top {top}; proc; flatten; {connect} "
    "setattr -unset init w:*; opt_expr; opt_clean; memory -nomap; opt_clean; memory_map -formal; "
    "chformal -lower; opt_expr; opt_clean; write_json {top}.json"
)


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Prove an obligation, whose assertions are equations that hold after ``structure["cycles"]`` cycles.

    ``structure["held"]`` names accumulators, with the number of cycles back to which each is followed.
    The computation takes at most as many seconds of the processor as are left, whatever else the machine does.
    """
    connect = wrapped.written(folder)
    cover = cover_script(obligation, wrapped, folder)
    tools.yosys(_SCRIPT.format(top=PROOF, connect=connect) + cover, folder, deadline.left)
    end, parameters = deadline.processor_end, obligation.structure
    try:
        words = Words.read(folder / f"{PROOF}.json", PROOF, parameters["cycles"], end, parameters.get("held", {}))
        if reason := unlike(len(words.assertions), obligation):
            return Verdict("undecided", _ENGINE, reason)
        for assertion in words.assertions:
            if not words.holds(assertion["A"][0]):
                return Verdict("undecided", _ENGINE, "the polynomials differ")
    except TimeoutError:
        return Verdict("undecided", _ENGINE, "the polynomials take too long")
    except ValueError as error:
        return Verdict("undecided", _ENGINE, f"the module has {error}")
    return Verdict("proved", _ENGINE, is_covered=is_covered(obligation, folder, deadline))
