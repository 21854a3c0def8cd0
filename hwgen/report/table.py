"""Tables of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hwgen import printable

__all__ = ["columns"]


def columns(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), rules: Collection[int] = ()) -> list[str]:
    """The rows as lines of aligned columns, two spaces apart, without spaces at their ends.

    What is not printable in them is escaped: a row is one line.

    Parameters
    ----------
    left : collection of int
        The columns whose text stands to the left; all others stand to the right, as numbers do.
    rules : collection of int
        The rows before which a rule of dashes stands.
    """
    rows = [[printable.line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    lines = []
    for number, row in enumerate(rows):
        cells = zip(row, widths, strict=True)
        text = [cell.ljust(width) if place in left else cell.rjust(width) for place, (cell, width) in enumerate(cells)]
        lines += [rule] * (number in rules) + ["  ".join(text).rstrip()]
    return lines
