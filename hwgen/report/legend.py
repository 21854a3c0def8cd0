"""What the columns of a plan's table mean: the words of ``--help``, of docs/plan.md, and of the lines under it."""

from __future__ import annotations

__all__ = ["COLUMNS", "UNDER_TABLE", "text"]

COLUMNS = {
    "Tn": "input channels that the layer takes in a cycle",
    "Tm": "output channels that it computes in a cycle",
    "Tk": "kernel taps that it computes in a cycle",
    "Tp": "output pixels that it computes in a cycle, neighbours in a row",
    "mult": "DSP slices, its requantiser's too (*: two multiply-adds a slice)",
    "rows": "image rows in its line buffer; in a pyramid, the rows of its window",
    "FIFO": "beats stored or in flight behind it at most, x the bits of a beat",
    "cycles": "cycles that it takes for a frame when nothing holds it up",
    "busy": "its cycles as a share of the slowest layer's",
}
"""Meaning of each column that is not plain from its name, in the order of the table."""

UNDER_TABLE = (
    "In a cycle: Tn input channels, Tm output channels, Tk kernel taps, Tp output pixels. mult: DSP slices.",
    "rows: held by the line buffer. FIFO: beats x bits. cycles: of a frame. busy: of the slowest layer's cycles.",
)
"""The same in short."""


def text() -> str:
    """One line a column, for the end of a help text."""
    width = max(map(len, COLUMNS))
    return "\n".join(["columns of the table:", *(f"  {name:<{width}}  {said}" for name, said in COLUMNS.items())])
