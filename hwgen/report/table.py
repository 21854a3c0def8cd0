"""Layout of text tables with aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hwgen import printable


def columns(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), rules: Collection[int] = ()) -> list[str]:
    """Return a list of rows of cells as lines of text with aligned columns, two spaces apart, without trailing spaces.

    Unprintable characters are escaped, so each row is one line.

    Parameters
    ----------
    rows : sequence of sequence of str
        Cells of each row.
    left : collection of int
        Indices of the left-aligned columns; all others are right-aligned, as for numbers.
    rules : collection of int
        Indices of the rows that a rule of dashes precedes.
    """
    rows = [[printable.line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join("-" * width for width in widths)
    lines = []
    for row_index, row in enumerate(rows):
        cells = zip(row, widths, strict=True)
        text = [
            cell.ljust(width) if column in left else cell.rjust(width) for column, (cell, width) in enumerate(cells)
        ]
        lines += [rule] * (row_index in rules) + ["  ".join(text).rstrip()]
    return lines
