"""Decorators that compile the scheduler's loops over millions of events with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

__all__ = ["compiled", "compiled_in_place", "inner"]

#: Options of functions that make no arrays. Without reference counts of their arguments' rows they take a tenth of the
#: time. Numba does not document the option, so that a version can lack it.
_IN_PLACE: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
_PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} | _IN_PLACE


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in Numba's ``njit``, with machine code cached on disk where possible.

    Machine code is kept for the next process, if there is a folder for that. Numba looks only at the function's own
    file when it decides whether the code is stale. So a compiled function calls none of another file.
    """
    return _cached(function)


def compiled_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as `compiled` does, if it only changes the arrays of its arguments and makes none."""
    return _cached(function, **_IN_PLACE)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in Numba's ``njit`` such that only other compiled functions of its file can call the function.

    Python can't call it. It makes no arrays.
    """
    return njit(**_PART)(function)


def _cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return njit(**options)(function)
