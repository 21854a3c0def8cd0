"""Count of the cases that a random test has checked: a test that leaves nearly all of its draws out fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
from hypothesis import settings

SHARE = 0.5
"""Part of a test's ``max_examples`` that must be checked at least."""
DEFAULT_SHARE = 0.4
"""Part of the cases of an expensive random test that the default run draws."""


def cases_in_the_long_run(count: int, share: float = DEFAULT_SHARE) -> Callable[[Any], Any]:
    """Return a decorator of a random test that draws ``count`` cases in the long run, and a share in the default run.

    The long run (bench/long.py) selects the tests by their mark ``more_cases``. Its profile of hypothesis draws other
    cases each time.
    """
    is_long_run = not settings.default.derandomize
    max_examples = count if is_long_run else round(share * count)

    def decorate(test: Any) -> Any:
        return pytest.mark.more_cases(settings(max_examples=max_examples)(test))

    return decorate


@contextmanager
def counted(test: Callable[..., Any], least: int | None = None) -> Iterator[None]:
    """Run a ``@given`` test in this context: it fails if it checks too few cases.

    A case is checked when the test's body returns. A body that can't check its case ends it with ``assume`` or
    ``reject`` of hypothesis, never with ``return``; another case is then drawn in its place.

    Parameters
    ----------
    test : callable
        The decorated test.
    least : int, optional
        Number of cases that must be checked; `SHARE` of ``max_examples`` by default. To be given where there are fewer
        different cases than that.
    """
    handle: Any = test.hypothesis  # type: ignore[attr-defined]
    body, checked, wanted = handle.inner_test, 0, least

    @wraps(body)
    def counting(*arguments: Any, **named: Any) -> None:
        nonlocal checked, wanted
        if wanted is None:
            wanted = max(int(SHARE * settings.default.max_examples), 1)
        body(*arguments, **named)
        checked += 1

    handle.inner_test = counting
    try:
        yield
    finally:
        handle.inner_test = body
    assert checked >= (wanted or 1), f"only {checked} random cases were checked, not {wanted or 1} at least"
