"""Writer of texts about a sweep of plans: the number of plans, and the Pareto front of each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.explore.sweep import SweepTable
from hwgen.report.table import columns

MAX_ROWS = 12
"""Maximum number of a Pareto front's plans that are printed; with more, the text refers to the file of all plans."""

_TITLES = {
    "interval_ms": "interval",
    "latency_ms": "latency",
    "dsp": "DSP",
    "bram36": "BRAM36",
    "lut": "LUT",
    "ff": "FF",
    "map_bytes": "map bytes",
}


def summary(table: SweepTable, where: str) -> str:
    """Return a sweep as text: each model's Pareto front, and a line with the numbers of plans.

    ``where`` names the file with the whole table.
    """
    lines = []
    for model in table.models:
        if best := table.best(model):
            lines += [*_front_lines(table, model, best, where), ""]
    return "\n".join([*lines, counts(table)])


def counts(table: SweepTable) -> str:
    """Return one line of text with a sweep's numbers of plans: requested, found, not buildable and refused."""
    unbuilt = [row for row in table.planned if row["obstacle"] is not None]
    refused = len(table.rows) - len(table.planned)
    texts = [f"{len(table.rows):,} plans requested", f"{len(table.planned):,} found"]
    if unbuilt:
        texts.append(f"{len(unbuilt):,} of these can't be built")
    if refused:
        first = next(row["refusal"] for row in table.rows if row["refusal"] is not None)
        texts.append(f"{refused:,} refused, the first because: {first}")
    return "; ".join(texts)


def title(table: SweepTable, model: str) -> str:
    """Return the title of a Pareto front's table: its objectives, and the number of its plans."""
    goals = " and ".join(_TITLES[goal] for goal in table.front)
    count = sum(row["model"] == model for row in table.rows)
    return f"{model}: Pareto front in {goals}, {len(table.best(model)):,} of {count:,} plans"


def rows(table: SweepTable, which: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a list of rows of cells for a table of plans: titles, each plan's varying options, its figures."""
    options = [name for name in table.swept if len({row[f"asked_{name}"] for row in table.rows}) > 1]
    boards = ["board"] if len({row["board"] for row in table.rows}) > 1 else []
    head = [*boards, *(f"--{name.replace('_', '-')}" for name in options), "interval", "latency", "frames/s"]
    lines = [[*head, "DSP", "BRAM36", "LUT", "FF"]]
    for row in which:
        cells = [str(row[name]) for name in boards] + [_text(row[f"asked_{name}"]) for name in options]
        figures = [f"{row['interval']:,}", f"{row['latency']:,}", f"{row['fps']:,.0f}"]
        lines.append(
            [
                *cells,
                *figures,
                *(
                    f"{row[name]:,g}" if row[name] % 1 else f"{int(row[name]):,}"
                    for name in ("dsp", "bram36", "lut", "ff")
                ),
            ]
        )
    return lines


def _front_lines(table: SweepTable, model: str, best: list[dict[str, Any]], where: str) -> list[str]:
    lines = [title(table, model), *columns(rows(table, best[:MAX_ROWS]), left=(), rules=(1,))]
    if len(best) > MAX_ROWS:
        lines.append(f"and {len(best) - MAX_ROWS:,} more in {where}")
    return lines


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
