"""The folders of the tests: they mirror hwgen's, and what two tests need is a helper in rtl_tests/support."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def imports(path: Path) -> list[str]:
    """Return the names of the modules that a file imports, at its top or later."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def imported_tests(folder: Path) -> list[str]:
    """Return a line for each import of a test file in the files of ``folder``."""
    tests = {path.stem for path in folder.rglob("test_*.py")}
    return [
        f"{path.relative_to(folder)} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imports(path)
        if name.split(".")[-1] in tests
    ]


def test_no_test_imports_another_test():
    assert imported_tests(TESTS) == []


@pytest.mark.parametrize("line", ["from test_b import x", "import test_b", "def f():\n    from emit.test_b import x"])
def test_an_import_of_a_test_is_noticed(line, tmp_path):
    (tmp_path / "test_a.py").write_text(line)
    (tmp_path / "test_b.py").touch()
    assert imported_tests(tmp_path) == [f"test_a.py imports {'emit.' * ('emit' in line)}test_b"]


def test_files_have_names_of_their_own():
    """Tests and helpers are imported by their names alone."""
    names = Counter(path.name for path in TESTS.rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []
