"""Compiled functions: loops over millions of events, in which each may depend on the one before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled", "inner"]

_PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by Numba when it is first called.

    Machine code is kept for the next process, if there is a folder for that. Numba looks only at the function's own
    file when it decides whether the code is stale. So a compiled function calls none of another file.
    """
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return njit(function)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled as a part of compiled functions of its file. Python can't call it."""
    return njit(**_PART)(function)
