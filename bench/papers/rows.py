"""One comparison: what a paper prints, beside what is computed.

A row holds the integers that it rests on, the figure in the paper's unit, and a verdict:

- ``exact``: the printed digits come out, rounded, or truncated where the row says "cut"; or a statement holds;
- ``fit``: they come out, or nearly, by a rule that was chosen to match the figure; or the paper gives no number;
- ``no``: they can't be derived from the paper's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

ROUNDINGS = {"rounded": ROUND_HALF_UP, "cut": ROUND_DOWN}


@dataclass(frozen=True)
class Figure:
    """A number as printed, and the exact one that it stands for. ``rounding`` is a key of `ROUNDINGS`."""

    printed: str
    value: Fraction
    rounding: str = "rounded"

    @property
    def agrees(self) -> bool:
        """Whether ``value``, brought to as many digits, is what is printed."""
        printed = Decimal(self.printed)
        return self.at(printed) == printed

    def at(self, like: Decimal) -> Decimal:
        """Return the value rounded to as many digits as ``like``."""
        value = Decimal(self.value.numerator) / Decimal(self.value.denominator)
        return value.quantize(like, rounding=ROUNDINGS[self.rounding])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    Parameters
    ----------
    where, published : str
        Place in the paper, and the figure as it is printed.
    computed : str
        The same figure, computed.
    integers : tuple of int
        What it was computed from; these are what tests hold.
    verdict : str
        ``exact``, ``fit`` or ``no``.
    figures : tuple of Figure
        Printed digits that must come out.
    note : str
        How it is rounded, or what is odd.
    """

    where: str
    published: str
    computed: str
    integers: tuple[int, ...]
    verdict: str
    figures: tuple[Figure, ...] = ()
    note: str = ""
