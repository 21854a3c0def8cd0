"""Translation of an obligation's Verilog wrapper by Yosys: into AND-gate circuits (AIGER) and SMT-LIB formulas.

Logic that the assertions do not depend on is cut before words become bits.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.verdict import Deadline
from hwgen.prove.wrapper import COVER, PROOF, Wrapped

_READ = (
    "read_verilog -formal modules.v wrappers.v; hierarchy -top {top}; proc; flatten; {connect} {free} "
    "setundef -anyseq; opt_clean; {memories} opt -fast; chformal -lower; "
    "async2sync; opt -fast; setundef -anyseq; opt_clean; "
)
_FREE_MEMORIES = "cutpoint t:$memrd*; delete t:$memwr* t:$meminit*;"
"""Yosys commands that free the words read from memories, and remove the memories."""
_MAPPED = "memory -nomap; opt_clean; memory_map -formal;"
"""Yosys commands that turn memories into registers."""
_ARRAYS = "memory -nordff -nomap; memory_map -rom-only;"
"""Yosys commands that leave memories as arrays, for SMT solvers, and turn constant tables into selections."""
_GATES = (
    "formalff -clk2ff -ff2anyinit -hierarchy; dffunmap; opt_clean; write_rtlil {top}.il; techmap; opt -fast; aigmap; "
    "opt_clean; write_aiger -zinit -ywmap {top}.ywm {top}.aig"
)
_FORMULAS = "dffunmap; opt_clean; write_smt2 -wires {top}.smt2"
_SEARCHES = ("bmc3 -F 30 -T 5", "sim3 -F 20000 -W 4 -N 1 -T 10", "bmc3 -F 400 -T 60")
"""Tuple of ABC commands that search for a run that reaches a cover: briefly, at random, exhaustively."""
_GUIDED_SEARCHES = ("sim3 -F 200000 -W 1 -N 1 -T 60", *_SEARCHES)
"""Tuple of ABC commands that search for a run whose inputs the obligation fixes: a long simulation comes first."""
_SECONDS = 180.0
"""Maximum seconds that one search for a run to the cover may take."""


def to_gates(obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float) -> None:
    """Write the wrapper's modules as AND-gate circuits in AIGER format: ``proof.aig`` and ``cover_reached.aig``."""
    _write_both(obligation, wrapped, folder, seconds, _MAPPED, _GATES)


def to_formulas(obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float) -> None:
    """Write the property as SMT-LIB formulas, ``proof.smt2``, and the cover as AIGER, ``cover_reached.aig``."""
    _write_both(obligation, wrapped, folder, seconds, _ARRAYS, _FORMULAS)


def _write_both(
    obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float, memories: str, output: str
) -> None:
    connect = wrapped.written(folder)
    scripts = [
        _script(obligation, connect, PROOF, memories, output),
        _script(obligation, connect, COVER, _MAPPED, _GATES),
    ]
    tools.yosys("; design -reset; ".join(scripts), folder, seconds)


def _script(obligation: Obligation, connect: str, top: str, memories: str, output: str) -> str:
    """Return the Yosys commands that read the wrapper ``top`` and write it with the commands ``output``."""
    is_free = obligation.free_memories or (top == COVER and bool(obligation.probes))
    read = _READ.format(top=top, connect=connect, free=_FREE_MEMORIES if is_free else "", memories=memories)
    return read + output.format(top=top)


def translate(script: str, obligation: Obligation, wrapped: Wrapped, folder: Path, seconds: float) -> None:
    """Write, by Yosys, an obligation's assertions with the commands ``script``, and its cover, if any, as AIGER.

    The commands name the wrapper ``{top}``, and ``{connect}`` connects the seen signals. The cover's file is
    ``cover_reached.aig``. An obligation without assumptions and without a cover can't hold vacuously, and no cover is
    written.
    """
    connect = wrapped.written(folder)
    scripts = [script.format(top=PROOF, connect=connect)]
    if obligation.assumes or obligation.cover:
        scripts.append(_script(obligation, connect, COVER, _MAPPED, _GATES))
    tools.yosys("; design -reset; ".join(scripts), folder, seconds)


def is_covered(obligation: Obligation, folder: Path, deadline: Deadline) -> bool:
    """Return whether some run reaches the obligation's cover (example state), or none is needed."""
    return not (obligation.assumes or obligation.cover) or is_reached(obligation, folder, deadline)


def asserted_facts(wrapped: Wrapped, folder: Path) -> list[str]:
    """Return a list of the texts of the facts that a circuit's outputs assert, in order, from Yosys' map of outputs."""
    document = json.loads((folder / f"{PROOF}.ywm").read_text(encoding="utf-8"))
    lines = [re.search(r"wrappers\.v:(\d+)", path[-1]) for path in document["asserts"]]
    return [wrapped.fact_at(int(line[1])) if line else "" for line in lines]


def num_bad(content: bytes) -> int:
    """Return the number of assertions (bad state literals) in an AIGER file.

    The first line is ``aig M I L O A B C``, and B is the number. Fields at the end that are 0 can be missing.
    """
    counts = content.split(b"\n", 1)[0].split()
    return int(counts[6]) if len(counts) > 6 else 0


def mismatch(bad: int, obligation: Obligation) -> str:
    """Return a text why a circuit with ``bad`` assertions lacks some of the obligation's; empty if it has all."""
    expected = len({**obligation.invariants, **obligation.asserts})
    if expected == 0:
        return "the obligation asserts nothing"
    return "" if bad == expected else f"the circuit has {bad} assertions, not {expected}"


def is_reached(obligation: Obligation, folder: Path, deadline: Deadline) -> bool:
    """Return whether ABC finds a run from reset to the obligation's cover (example state).

    All searches end at the deadline. Each of them ends after `_SECONDS` at the latest.

    Raises
    ------
    subprocess.TimeoutExpired
        If the deadline ended the searches. A run may still exist.
    """
    for search in _GUIDED_SEARCHES if obligation.run else _SEARCHES:
        with suppress(subprocess.TimeoutExpired):
            if "was asserted in frame" in tools.abc(
                f"read_aiger {COVER}.aig; fold; {search}", folder, min(deadline.left, _SECONDS)
            ):
                return True
    if not deadline.left:
        raise subprocess.TimeoutExpired("abc", 0)
    return False
