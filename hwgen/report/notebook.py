"""Writers of models, plans, sweeps and comparisons as HTML for notebooks: plain tables and lines of text."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from itertools import groupby

from hwgen import printable
from hwgen.explore.sweep import SweepTable
from hwgen.network.graph import Network
from hwgen.plan.plan import Plan
from hwgen.printable import counted
from hwgen.report import compare, legend
from hwgen.report import sweep as sweeps
from hwgen.report.plan import HEAD, rows, summary

MAX_ROWS = 60
"""Maximum number of a model's plans in a sweep that are all shown; with more, only the front's plans are."""


def table(
    head: Sequence[str], body: Sequence[Sequence[object]], left: int | Collection[int] = 1, bold: Collection[int] = ()
) -> str:
    """Return rows of cells as an HTML table with left-aligned text and right-aligned numbers.

    Parameters
    ----------
    head : sequence of str
        Titles of the columns.
    body : sequence of sequence
        Cells of each row.
    left : int or collection of int
        Number of first columns, or indices of the columns, that are left-aligned.
    bold : collection of int
        Indices of the rows in bold type.
    """
    if isinstance(left, int):
        left = range(left)
    under = "".join(_row("td", row, left, "; font-weight: bold" * (index in bold)) for index, row in enumerate(body))
    return f"<table><thead>{_row('th', head, left)}</thead><tbody>{under}</tbody></table>"


def _row(kind: str, cells: Sequence[object], left: Collection[int], style: str = "") -> str:
    sides = ["left" if index in left else "right" for index in range(len(cells))]
    made = (
        f'<{kind} style="text-align: {side}{style}">{escape(str(cell))}</{kind}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


def escape(text: str) -> str:
    """Return ``text`` on one line, with escapes for HTML's special characters and for unprintable ones."""
    return html.escape(printable.line(text))


def lines(texts: Sequence[str]) -> str:
    """Return lines of text as one HTML paragraph with line breaks."""
    return f"<p>{'<br>'.join(map(escape, texts))}</p>"


def model(network: Network) -> str:
    """Return a network as HTML: a table with the output map, the weights and the MACs of each layer."""
    body = [
        (layer.name, layer.kind, str(layer.output), f"{layer.weight_count:,}", f"{layer.macs:,}")
        for layer in network.layers
    ]
    total = f"{counted(len(network.layers), 'layer')}, {network.macs:,} multiply-adds"
    ends = " and ".join(
        f"{name}: {source}" for name, source in zip(network.input_names, network.input_maps, strict=True)
    )
    head = ("layer", "kind", "output", "weights", "multiply-adds")
    return "".join([f"<h4>{escape(network.name)}</h4>", table(head, body, left=3), lines([f"input {ends}", total])])


def plan(chosen_plan: Plan) -> str:
    """Return a plan as HTML: tables with a row per layer, the meanings of their columns, and the summary."""
    sections = [f"<h4>{escape(chosen_plan.network.name)} on {escape(chosen_plan.board.name)}</h4>"]
    for (names, under), groups in groupby(chosen_plan.groups, key=lambda group: legend.of(group.template.name)):
        body = [row for group in groups for row in rows(group)]
        sections += [
            table((*HEAD, *names), body, left=len(HEAD)),
            f"<details><summary>columns</summary>{lines(under)}</details>",
        ]
    return "".join([*sections, lines(summary(chosen_plan))])


def sweep(results: SweepTable) -> str:
    """Return a sweep as HTML: for each model a table of plans, with plans on the Pareto front in bold."""
    sections = []
    for model in results.models:
        sections.append(f"<h4>{escape(sweeps.title(results, model))}</h4>")
        shown = plans = [row for row in results.planned if row["model"] == model]
        if len(plans) > MAX_ROWS:
            sections.append(lines([f"These are shown; rows, csv() and parquet() have all {len(plans):,}."]))
            shown = [row for row in plans if row["front"]]
        best = [index for index, row in enumerate(shown) if row["front"]]
        head, *body = sweeps.rows(results, shown)
        names = ("front", *(name.removeprefix("--").replace("-", "_") for name in head))
        marked = [("*" if index in best else "", *row) for index, row in enumerate(body)]
        sections.append(table(names, marked, bold=best))
    return "".join([*sections, lines([sweeps.counts(results)])])


def comparison(values: compare.ComparisonValues) -> str:
    """Return a comparison as HTML: a table with a row per layer and per output, and whether all sides agree."""
    layers, outputs = compare.rows(values)
    return table(compare.HEAD, [*layers, *outputs], left=compare.LEFT) + lines(
        [*compare.under(values), compare.verdict(values)]
    )
