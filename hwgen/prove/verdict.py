"""Verdict of one method on one obligation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RESULTS", "Verdict"]

#: Results of a proof: ``proved``; ``refuted``, with a run that shows it; ``vacuous``, if no run reaches the cover; and
#: ``undecided``.
RESULTS = ("proved", "refuted", "vacuous", "undecided")


@dataclass(frozen=True)
class Verdict:
    """Result of one method on one obligation.

    Parameters
    ----------
    result : str
        One of `RESULTS`.
    engine : str
        Name of the program that decided, with its algorithm.
    detail : str
        Reason in words, if the property is not proved.
    is_covered : bool
        Whether a run reaches the obligation's cover, or the method needs none.
    files : mapping of str to bytes
        Files that show a refutation, by name.
    """

    result: str
    engine: str
    detail: str = ""
    is_covered: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
