"""`bench/code_lines.py`: what counts as a line of code, counted by hand."""

from __future__ import annotations

import pytest
from code_lines import code_lines


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", 0),
        ('"""A module.\n\nMore.\n"""\n\n# A comment.\n', 0),
        ('def f():\n    """Text."""\n\n    return 1  # why\n', 2),
        ("x = (\n    1,\n\n    # a comment\n    2,\n)\n", 4),
        ('class A:\n    b: int = 1\n    """A field."""\n', 2),
        ('text = """\nthree lines\n"""\n', 3),
    ],
)
def test_lines(source, expected):
    assert code_lines(source) == expected
