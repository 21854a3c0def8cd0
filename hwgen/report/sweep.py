"""What people read of a sweep: how many plans there are, and the front of each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.explore.sweep import Table
from hwgen.report.table import columns

MOST_ROWS = 12
"""Of a front, before the rest is left to the table."""

_TITLES = {
    "interval_ms": "interval",
    "latency_ms": "latency",
    "dsp": "DSP",
    "bram36": "BRAM36",
    "lut": "LUT",
    "ff": "FF",
    "map_bytes": "map bytes",
}


def summary(table: Table, where: str) -> str:
    """Each model's front, and in one line what became of all plans; ``where`` the whole table is."""
    lines = []
    for model in table.models:
        if best := table.best(model):
            lines += [*_front(table, model, best, where), ""]
    return "\n".join([*lines, counts(table)])


def counts(table: Table) -> str:
    """What became of all plans, in a line."""
    unbuilt = [row for row in table.planned if row["obstacle"] is not None]
    refused = len(table.rows) - len(table.planned)
    parts = [f"{len(table.rows):,} plans asked for", f"{len(table.planned):,} found"]
    if unbuilt:
        parts.append(f"{len(unbuilt):,} of these can't be built")
    if refused:
        first = next(row["refusal"] for row in table.rows if row["refusal"] is not None)
        parts.append(f"{refused:,} refused, the first because: {first}")
    return "; ".join(parts)


def title(table: Table, model: str) -> str:
    """What is weighed, and how many of a model's plans are in the front."""
    goals = " and ".join(_TITLES[goal] for goal in table.front)
    count = sum(row["model"] == model for row in table.rows)
    return f"{model}: what nothing beats in {goals}, {len(table.best(model)):,} of {count:,} plans"


def rows(table: Table, which: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line of names, and a line for each of these plans: what was asked where it varies, and the figures."""
    asked = [name for name in table.asked if len({row[f"asked_{name}"] for row in table.rows}) > 1]
    boards = ["board"] if len({row["board"] for row in table.rows}) > 1 else []
    head = [*boards, *(f"--{name.replace('_', '-')}" for name in asked), "interval", "latency", "frames/s"]
    found = [[*head, "DSP", "BRAM36", "LUT", "FF"]]
    for row in which:
        given = [str(row[name]) for name in boards] + [_text(row[f"asked_{name}"]) for name in asked]
        figures = [f"{row['interval']:,}", f"{row['latency']:,}", f"{row['fps']:,.0f}"]
        found.append(
            [
                *given,
                *figures,
                *(
                    f"{row[name]:,g}" if row[name] % 1 else f"{int(row[name]):,}"
                    for name in ("dsp", "bram36", "lut", "ff")
                ),
            ]
        )
    return found


def _front(table: Table, model: str, best: list[dict[str, Any]], where: str) -> list[str]:
    lines = [title(table, model), *columns(rows(table, best[:MOST_ROWS]), left=(), rules=(1,))]
    if len(best) > MOST_ROWS:
        lines.append(f"and {len(best) - MOST_ROWS:,} more in {where}")
    return lines


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
