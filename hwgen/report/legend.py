"""Meanings of the columns of a plan's table, for ``--help``, docs/reference/plan.md and the lines under the table."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.options import ENGINE

COLUMNS = {
    "Tn": "input channels that the layer takes in a cycle",
    "Tm": "output channels that the layer computes in a cycle",
    "Tk": "kernel taps that the layer computes in a cycle",
    "Tp": "output pixels that the layer computes in a cycle, neighbours in a row",
    "DSP": "DSP slices, requantiser included (*: 2, **: 4 multiply-adds a slice)",
    "LUT": "estimated LUTs, of the layer with its buffers",
    "rows": "image rows in the layer's line buffer (pyramid: in its window)",
    "FIFO": "beats in the FIFO behind the layer or in flight at most, x bits",
    "cycles": "cycles per frame if nothing stalls the layer",
    "busy": "cycles of the layer as a share of the slowest layer's",
}
"""Meanings of columns of the plan's table, by column name in order, for templates that are not in `OWN`."""

UNDER_TABLE = (
    "In a cycle: Tn input channels, Tm output channels, Tk kernel taps, Tp output pixels. DSP, LUT: of the layer.",
    "rows: held by the line buffer. FIFO: beats x bits. cycles: of a frame. busy: of the slowest layer's cycles.",
)
"""Lines under the table that give the meanings in `COLUMNS` in short."""

OWN: Mapping[str, Mapping[str, str]] = {
    ENGINE: {
        "tile": "rows x columns of output pixels that are computed together",
        "order": "order of the outer loops: boxes of the input, folds of output maps",
        "steps": "cycles in which the array multiplies",
        "read": "bytes that are read from off-chip memory for a frame",
        "written": "bytes that are written to off-chip memory for a frame",
        "cycles": "cycles from the end of the previous layer to the end of this one",
        "MACs": "multiply-adds per cycle, of all layers that run side by side",
        "work": "share of the array's multipliers that these multiply-adds occupy",
    }
}
"""Meanings of columns of the plan's table, by column name, for each template with columns of its own."""

UNDER_OWN: Mapping[str, tuple[str, ...]] = {
    ENGINE: (
        "tile: rows x columns of the output at a time. order: outer loops. steps: cycles with multiply-adds.",
        "read, written: bytes. cycles: from the end of the layer before. MACs: in a cycle. work: of all multipliers.",
    )
}
"""Lines under the table that give the meanings in `OWN` in short, by the template's name."""


def of(template: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the meanings of a template's columns in the plan's table, and the lines under that table."""
    return OWN.get(template, COLUMNS), UNDER_OWN.get(template, UNDER_TABLE)


def text() -> str:
    """Return a text with the meaning of each column of the plan's table on a line, for the end of a help text."""
    lines = ["columns of the table:", *_lines(COLUMNS)]
    for template, columns in OWN.items():
        lines += [f"of the template {template}:", *_lines(columns)]
    return "\n".join(lines)


def _lines(columns: Mapping[str, str]) -> list[str]:
    width = max(map(len, columns))
    return [f"  {name:<{width}}  {said}" for name, said in columns.items()]
