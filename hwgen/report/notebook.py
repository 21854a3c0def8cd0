"""Plans and results as HTML, for notebooks: tables and lines, plain as the notebook shows them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from hwgen.plan.plan import Plan
from hwgen.report import legend
from hwgen.report.plan import HEAD, rows, summary

__all__ = ["lines", "plan", "table"]


def table(head: Sequence[str], body: Sequence[Sequence[object]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns stand to the right, as numbers do."""
    under = "".join(_row("td", row, left) for row in body)
    return f"<table><thead>{_row('th', head, left)}</thead><tbody>{under}</tbody></table>"


def _row(kind: str, cells: Sequence[object], left: int) -> str:
    sides = ["left" if place < left else "right" for place in range(len(cells))]
    made = (
        f'<{kind} style="text-align: {side}">{escape(str(cell))}</{kind}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


def lines(found: Sequence[str]) -> str:
    """Some lines of text."""
    return f"<p>{'<br>'.join(map(escape, found))}</p>"


def plan(found: Plan) -> str:
    """A plan: a table for each way to compute groups, what its columns mean, and what it comes to."""
    parts = [f"<h4>{escape(found.network.name)} on {escape(found.board.name)}</h4>"]
    for (names, under), groups in groupby(found.groups, key=lambda group: legend.of(group.template.name)):
        body = [row for group in groups for row in rows(group)]
        parts += [
            table((*HEAD, *names), body, left=len(HEAD)),
            f"<details><summary>columns</summary>{lines(under)}</details>",
        ]
    return "".join([*parts, lines(summary(found))])
