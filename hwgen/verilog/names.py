"""Names for results that have none in a netlist: those of the Python variables that they were assigned to."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cache

__all__ = ["statement", "variable"]


def variable(source: str) -> str:
    """The variable that the statement at ``file:line`` assigns to, or the function that returns it, if there is one."""
    return _found(source)[1]


def statement(source: str) -> tuple[str, int]:
    """The file and the first line of the statement at ``file:line`` that names what it makes, or ``("", 0)``."""
    file, _, _ = source.rpartition(":")
    line = _found(source)[0]
    return (file, line) if line else ("", 0)


def _found(source: str) -> tuple[int, str]:
    file, _, line = source.rpartition(":")
    return _variables(file).get(int(line), (0, "")) if line.isdigit() else (0, "")


@cache
def _variables(file: str) -> dict[int, tuple[int, str]]:
    """By line: where the statement begins, and its variable."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found: dict[int, tuple[int, str]] = {}
    for node, name in _named(tree, ""):
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found[line] = node.lineno, name
    return found


def _named(node: ast.AST, function: str) -> Iterator[tuple[ast.stmt, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            if len(targets) == 1 and (name := _name(targets[0])):
                yield child, name
        elif isinstance(child, ast.Return) and function:
            yield child, function
        inside = child.name.strip("_") if isinstance(child, ast.FunctionDef) else function
        yield from _named(child, "" if inside.startswith("elaborate") else inside)


def _name(target: ast.expr) -> str:
    name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
    return name.strip("_") if len(name.strip("_")) > 1 else ""
