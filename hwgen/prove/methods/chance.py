"""Refutation by chance: random inputs of an obligation's wrapper, as a circuit of gates, over a few cycles.

Most faults of arithmetic show at once. A method that only proves asks here before it spends all of its time.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from hwgen.errors import ToolError
from hwgen.prove import tools
from hwgen.prove.deadline import Deadline
from hwgen.prove.methods.translation import asserted_facts, num_bad, to_gates, unlike
from hwgen.prove.obligation import Obligation
from hwgen.prove.wrapper import PROOF, Wrapped

__all__ = ["refutation"]

_SEARCH = "sim3 -F 64 -W 16 -N 1 -T 20"
"""Command of ABC that simulates 1,024 runs of 64 cycles with random inputs, for 20 seconds at most."""
_SECONDS = 60.0
"""Time limit of each program."""


def refutation(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> tuple[int, str] | None:
    """Return the cycle in which a fact fails in a random run, and the fact in words; ``None`` if none fails.

    Registers that no reset reaches begin with any value, and rules are kept, as in `hwgen.prove.methods.pdr`.
    """
    inner = folder / "chance"
    inner.mkdir()
    try:
        to_gates(obligation, wrapped, inner, min(deadline.left, _SECONDS))
        if unlike(num_bad((inner / f"{PROOF}.aig").read_bytes()), obligation):
            return None
        text = tools.abc(f"read_aiger {PROOF}.aig; fold; {_SEARCH}", inner, min(deadline.left, _SECONDS))
    except (subprocess.TimeoutExpired, ToolError):  # too large for gates
        return None
    found = re.search(r"Output (\d+) .*was asserted in frame (\d+)", text)
    return (int(found[2]), asserted_facts(wrapped, inner)[int(found[1])]) if found else None
