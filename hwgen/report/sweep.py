"""What people read of a sweep: how many plans there are, and the front of each model."""

from __future__ import annotations

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
    for model in dict.fromkeys(row["model"] for row in table.rows):
        if best := table.best(model):
            lines += [*_front(table, model, best, where), ""]
    unbuilt = [row for row in table.planned if row["obstacle"] is not None]
    refused = len(table.rows) - len(table.planned)
    parts = [f"{len(table.rows):,} plans asked for", f"{len(table.planned):,} found"]
    if unbuilt:
        parts.append(f"{len(unbuilt):,} of these can't be built")
    if refused:
        first = next(row["refusal"] for row in table.rows if row["refusal"] is not None)
        parts.append(f"{refused:,} refused, the first because: {first}")
    return "\n".join([*lines, "; ".join(parts)])


def _front(table: Table, model: str, best: list[dict[str, Any]], where: str) -> list[str]:
    goals = " and ".join(_TITLES[goal] for goal in table.front)
    asked = [name for name in table.asked if len({row[f"asked_{name}"] for row in table.rows}) > 1]
    boards = ["board"] if len({row["board"] for row in table.rows}) > 1 else []
    head = [*boards, *(f"--{name.replace('_', '-')}" for name in asked), "interval", "latency", "frames/s"]
    rows = [[*head, "DSP", "BRAM36", "LUT", "FF"]]
    for row in best[:MOST_ROWS]:
        given = [str(row[name]) for name in boards] + [_text(row[f"asked_{name}"]) for name in asked]
        figures = [f"{row['interval']:,}", f"{row['latency']:,}", f"{row['fps']:,.0f}"]
        rows.append(
            [
                *given,
                *figures,
                *(
                    f"{row[name]:,g}" if row[name] % 1 else f"{int(row[name]):,}"
                    for name in ("dsp", "bram36", "lut", "ff")
                ),
            ]
        )
    count = sum(row["model"] == model for row in table.rows)
    lines = [f"{model}: what nothing beats in {goals}, {len(best):,} of {count:,} plans"]
    lines += columns(rows, left=(), rules=(1,))
    if len(best) > MOST_ROWS:
        lines.append(f"and {len(best) - MOST_ROWS:,} more in {where}")
    return lines


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
