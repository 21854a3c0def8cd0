"""Decorators that compile the scheduler's loops over millions of events with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled", "inner"]

_PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in Numba's ``njit``, with machine code cached on disk where possible.

    Machine code is kept for the next process, if there is a folder for that. Numba looks only at the function's own
    file when it decides whether the code is stale. So a compiled function calls none of another file.
    """
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return njit(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in Numba's ``njit`` such that only other compiled functions of its file can call the function.

    Python can't call it.
    """
    return njit(**_PART)(function)
