"""Plans and results as HTML, for notebooks: tables and lines, plain as the notebook shows them."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from itertools import groupby

from hwgen import printable
from hwgen.explore.sweep import Table
from hwgen.plan.plan import Plan
from hwgen.report import compare, legend
from hwgen.report import sweep as sweeps
from hwgen.report.plan import HEAD, rows, summary

__all__ = ["comparison", "lines", "plan", "sweep", "table"]

MOST_ROWS = 60
"""Of a model's plans in a sweep, before only those of its front are shown."""


def table(
    head: Sequence[str], body: Sequence[Sequence[object]], left: int | Collection[int] = 1, bold: Collection[int] = ()
) -> str:
    """A table; all but the first ``left`` columns, or those of these numbers, stand to the right, as numbers do.

    ``bold`` has the numbers of the rows that stand out.
    """
    if isinstance(left, int):
        left = range(left)
    under = "".join(_row("td", row, left, "; font-weight: bold" * (n in bold)) for n, row in enumerate(body))
    return f"<table><thead>{_row('th', head, left)}</thead><tbody>{under}</tbody></table>"


def _row(kind: str, cells: Sequence[object], left: Collection[int], style: str = "") -> str:
    sides = ["left" if place in left else "right" for place in range(len(cells))]
    made = (
        f'<{kind} style="text-align: {side}{style}">{escape(str(cell))}</{kind}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


def escape(text: str) -> str:
    """Return ``text`` as a page shows it, on one line."""
    return html.escape(printable.line(text))


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


def sweep(found: Table) -> str:
    """A sweep: a table for each model, in which those plans that nothing beats stand out."""
    parts = []
    for model in found.models:
        parts.append(f"<h4>{escape(sweeps.title(found, model))}</h4>")
        shown = plans = [row for row in found.planned if row["model"] == model]
        if len(plans) > MOST_ROWS:
            parts.append(lines([f"These are shown; rows, csv() and parquet() have all {len(plans):,}."]))
            shown = [row for row in plans if row["front"]]
        best = [place for place, row in enumerate(shown) if row["front"]]
        head, *body = sweeps.rows(found, shown)
        names = ("front", *(name.removeprefix("--").replace("-", "_") for name in head))
        marked = [("*" if place in best else "", *row) for place, row in enumerate(body)]
        parts.append(table(names, marked, bold=best))
    return "".join([*parts, lines([sweeps.counts(found)])])


def comparison(found: compare.Found) -> str:
    """A comparison of ONNX Runtime, the golden model and the hardware: a row a layer, and what it comes to."""
    layers, outputs = compare.rows(found)
    return table(compare.HEAD, [*layers, *outputs], left=compare.LEFT) + lines(
        [*compare.under(found), compare.verdict(found)]
    )
