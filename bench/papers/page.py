"""docs/figures/published.md: every comparison, the fronts and the schedules behind them."""

from __future__ import annotations

from collections.abc import Sequence

from papers import fused, schedules
from papers.rows import Row

_INTRODUCTION = """\
# Published against computed

Which of the papers' figures can be derived, and what does hwgen compute for each? `python bench/published.py` writes
this page; `rtl_tests/repository/test_bench.py` checks the words, cycles and operations that figures are made from.

The [papers](../explanation/papers.md) are T, Alwani's thesis on fused layers (2015), D, DeCoILFNet, a pipeline of fused
layers (2018), P, Peemen on tiles for one buffer (2013), C, Cecconi on tiles for a DMA (2017), and Y, Yang on loop
orders and their energy (2016). [Exploration](../explanation/exploration.md) and
[Blocking](../explanation/blocking.md) explain the computations. `hwgen explore vgg19 --first 11` and `hwgen explore
alexnet` print the fronts of the thesis.

Words have 32 bits (Y: 16, P: 8). KB is 1,024 B, and MB is 2^20 B (T Fig. 4.1: 1,000 KB) unless the note says otherwise.
In D's tables, *up to* a layer is the time of a frame through the fused layers up to and including it, at 120 MHz.

- **exact**: the computed figure has the published digits, rounded, or truncated if the note says *cut*; a statement
  without digits holds.
- **fit**: it has them, or nearly, by a rule that was chosen to match them; or the paper gives no number.
- **no**: the published figure cannot be derived from the paper's text.
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
