"""Meanings of the columns in a plan's table, for ``--help``, docs/reference/plan.md and the lines below the table."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.options import ENGINE

COLUMNS = {
    "Tn": "input channels read per cycle",
    "Tm": "output channels computed per cycle",
    "Tk": "kernel taps computed per cycle",
    "Tp": "output pixels computed per cycle, adjacent in a row",
    "DSP": "DSP slices, requantiser included (*: 2 MACs per slice, **: 4)",
    "LUT": "estimated LUTs of the layer, buffers included",
    "rows": "image rows in the layer's line buffer (pyramid: in its window)",
    "FIFO": "output FIFO: depth in beats, those in flight included, x bits",
    "cycles": "cycles per frame when nothing stalls the layer",
    "busy": "the layer's cycles as a share of the slowest layer's cycles",
}
"""Dictionary by column name, in order, of the meanings in a plan's table, for templates that are not in `OWN`."""

UNDER_TABLE = (
    "Per cycle: Tn input channels, Tm output channels, Tk kernel taps, Tp output pixels. Per layer: DSP, LUT.",
    "rows: in the line buffer. FIFO: beats x bits. cycles: per frame. busy: share of the slowest layer's cycles.",
)
"""Tuple of lines below a plan's table with the meanings in `COLUMNS` in brief."""

OWN: Mapping[str, Mapping[str, str]] = {
    ENGINE: {
        "tile": "rows x columns of output pixels computed together",
        "order": "order of the outer loops over input boxes and output folds",
        "steps": "cycles during which the array multiplies",
        "read": "bytes read from off-chip memory per frame",
        "written": "bytes written to off-chip memory per frame",
        "cycles": "cycles from the end of the previous layer to the end of this one",
        "MACs": "MACs per cycle, summed over layers that run concurrently",
        "work": "share of the array's multipliers that these MACs use",
    }
}
"""Mapping by template with columns of its own: dictionary of the columns' meanings in a plan's table."""

UNDER_OWN: Mapping[str, tuple[str, ...]] = {
    ENGINE: (
        "tile: rows x columns of output pixels. order: outer loops. steps: cycles with multiplications.",
        "read, written: bytes. cycles: from the previous layer's end. MACs: per cycle. work: multipliers in use.",
    )
}
"""Dictionary of lines below a plan's table with the meanings in `OWN` in brief, by the template's name."""


def of(template: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return a pair for a template's plan table: a mapping of the columns' meanings, and the lines below."""
    return OWN.get(template, COLUMNS), UNDER_OWN.get(template, UNDER_TABLE)


def text() -> str:
    """Return the meanings of all columns in a plan's table, one per line, for the end of a help text."""
    lines = ["columns of the table:", *_lines(COLUMNS)]
    for template, columns in OWN.items():
        lines += [f"of the template {template}:", *_lines(columns)]
    return "\n".join(lines)


def _lines(columns: Mapping[str, str]) -> list[str]:
    width = max(map(len, columns))
    return [f"  {name:<{width}}  {said}" for name, said in columns.items()]
