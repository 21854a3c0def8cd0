"""docs/figures/published.md: every comparison, the fronts and the schedules behind them."""

from __future__ import annotations

from collections.abc import Sequence

from papers import fused, schedules
from papers.rows import Row

_INTRODUCTION = """\
# Published against computed

Which of the papers' figures can be derived, and what does hwgen compute for each? `python bench/published.py` writes
this page; `test_bench.py` checks every figure's integers.

T is Alwani's thesis (*Fused Convolutional Neural Network Accelerators*, 2015), D is DeCoILFNet (2018), P Peemen (2013),
C Cecconi (2017) and Y Yang (2016). Words have 32 bits (Y: 16); KB is 1,024 B.
[Exploration](../explanation/exploration.md) and [Blocking](../explanation/blocking.md) explain the computations.
`hwgen explore vgg19 --first 11` and `hwgen explore alexnet` print the fronts of the thesis.

- **exact**: the computation gives the printed digits, rounded or cut as noted.
- **fit**: it gives them, or nearly, by a rule that was chosen with the figure in sight.
- **no**: the printed digits do not follow from what is printed.
"""


def page(*, designed: bool = True) -> str:
    """Return docs/figures/published.md; ``designed`` adds memories made to measure (minutes)."""
    lines = [_INTRODUCTION, *_rows(fused.rows()), "", *fused.sections()]
    lines += ["", "## Schedules", "", *_rows(schedules.rows()), "", *schedules.tables(), ""]
    return "\n".join([*lines, *(schedules.designed() if designed else [])]) + "\n" * designed


def _rows(rows: Sequence[Row]) -> list[str]:
    """Return a table of the figures that are exact, and one of the others with what is computed for them."""
    lines = ["| exact: place | published | note |", "|---|---|---|"]
    lines += [f"| {row.where} | {row.published} | {row.note} |" for row in rows if row.verdict == "exact"]
    lines += ["", "| others: place | published | computed | verdict | note |", "|---|---|---|---|---|"]
    for row in rows:
        if row.verdict != "exact":
            lines.append(f"| {row.where} | {row.published} | {row.computed or '-'} | {row.verdict} | {row.note} |")
    return lines
