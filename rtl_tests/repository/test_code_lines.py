"""`bench/code_lines.py`: what counts as a line of code, counted by hand."""

from __future__ import annotations

import pytest
from code_lines import code_lines, main


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


@pytest.mark.parametrize(("most", "status"), [(4, 0), (3, 1)])
def test_a_budget_is_held(most, status, tmp_path, monkeypatch, capsys):
    (tmp_path / "hwgen").mkdir()
    (tmp_path / "hwgen" / "module.py").write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    monkeypatch.setattr("code_lines.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["code_lines.py", "--most", str(most)])
    assert main() == status
    assert ("1 lines of code more than the budget of 3" in capsys.readouterr().out) == bool(status)
