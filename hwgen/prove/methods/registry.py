"""Table of the proof methods, by the name that obligations use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hwgen.obligations.obligation import Obligation
from hwgen.prove.methods import algebra, exhaustive, induction, model_checking, parity, structure
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

Method = Callable[[Obligation, Wrapped, Path, Deadline], Verdict]
"""Type of a proof method, ``method(obligation, wrapped, folder, deadline)``, which returns a `Verdict`."""

#: Dictionary from the name that obligations use to the proof method. To add one, write a new file, and a line here.
METHODS: dict[str, Method] = {
    "structure": structure.check,
    "induction": induction.check,
    "pdr": model_checking.check,
    "exhaustive": exhaustive.check,
    "algebra": algebra.check,
    "parity": parity.check,
}
