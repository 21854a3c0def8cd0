"""Random tests that check too few of the cases that they draw fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from counted import counted
from hypothesis import assume, given, settings
from hypothesis import strategies as st

NUMBERS = st.integers(0, 10**9)


@settings(max_examples=20)
@given(NUMBERS)
def check_all(number):
    assert number >= 0


@settings(max_examples=20)
@given(NUMBERS)
def check_odd(number):
    assume(number % 2)


@settings(max_examples=20)
@given(st.booleans())
def check_two(flag):
    assert flag in (False, True)


@given(NUMBERS)
def check_none(number):
    assume(number < 0)


@pytest.mark.parametrize("check", [check_all, check_odd])
def test_cases_that_are_left_out_are_drawn_anew(check):
    with counted(check, 20):
        check()


def test_too_few_cases():
    """Of a truth value there are two cases, not 10; said so they are enough."""
    with (
        pytest.raises(AssertionError, match=r"^only 2 random cases were checked, not 10 at least$"),
        counted(check_two),
    ):
        check_two()
    with counted(check_two, 2):
        check_two()


def test_nothing_but_cases_that_are_left_out():
    with pytest.raises(Exception, match=r"filter|Unable to satisfy"), counted(check_none):
        check_none()


def test_a_count_ends_with_its_context():
    """Called again, the test counts from zero; outside of a context it counts nothing."""
    for _ in range(2):
        with counted(check_all, 20):
            check_all()
    with pytest.raises(AssertionError, match=r"^only 0 random cases"), counted(check_all, 20):
        pass
    check_all()


def returns_of(node: ast.AST) -> Iterator[int]:
    """Yield the lines of the ``return`` statements of a function, without those of functions inside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child.lineno
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from returns_of(child)


def test_no_random_test_returns():
    """A case that a random test can't check is left out by name (``assume``, ``reject``), so that it isn't counted."""
    found, tests = [], 0
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(ast.unparse(decorator).startswith("given(") for decorator in node.decorator_list):
                tests += 1
                found += [f"{path.name}:{line}: {node.name} returns" for line in returns_of(node)]
    assert found == []
    assert tests > 200
