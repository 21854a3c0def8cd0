"""Table of the methods that discharge obligations, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove.methods import algebra, exhaustive, induction, model_checking, parity, structure
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

__all__ = ["METHODS", "Method"]

Method = Callable[[Obligation, Wrapped, Path, Deadline], Verdict]
"""Type of a method: ``method(obligation, wrapped, folder, deadline)``, which writes its files into ``folder``."""

#: Methods by the name that an obligation gives. An addition is a new file and a line here.
METHODS: dict[str, Method] = {
    "structure": structure.check,
    "induction": induction.check,
    "pdr": model_checking.check,
    "exhaustive": exhaustive.check,
    "algebra": algebra.check,
    "parity": parity.check,
}
