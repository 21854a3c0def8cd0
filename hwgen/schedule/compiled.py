"""Decorators that compile the scheduler's loops over millions of events with Numba, once that pays.

Importing Numba and compiling the loops takes some seconds, more than interpreting the loops for a small network.
Numba is therefore imported when the first function is compiled. Interpreted and compiled calls give the same results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

#: Maximum number of events of a call that is interpreted, and maximum CPU seconds of all interpreted calls together:
#: less than compiling the functions takes.
MAX_INTERPRETED_EVENTS, MAX_INTERPRETED_S = 1 << 17, 3.0


class _Compiled:
    """Wrapper of a function that Numba compiles to machine code when it is first called.

    Machine code is kept on disk for the next process, if there is a folder for that.

    Parameters
    ----------
    function : callable
        Function to compile.
    in_place : bool
        Whether the function makes no arrays.
    options
        Options of Numba's ``njit``.
    """

    def __init__(self, function: Callable[..., Any], *, in_place: bool = False, **options: Any):
        self.function, self._in_place, self._options = function, in_place, options

    def __call__(self, *arguments: Any) -> Any:
        return self.machine_code(*arguments)

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """Function wrapped in Numba's ``njit``, which compiles it at its first call."""
        from numba import njit
        from numba.core.options import DefaultOptions

        options: dict[str, Any] = dict(self._options)
        # Without reference counts of their arguments' rows functions take a tenth of the time. Numba does not document
        # the option, so that a version can lack it.
        if self._in_place and hasattr(DefaultOptions, "_nrt"):
            options["_nrt"] = False
        try:
            return njit(**options)(self.function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            options["cache"] = False
            return njit(**options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of the function, which lets other compiled functions call it."""
        from numba import types

        return types.Dispatcher(self.machine_code)


class _CompiledLater(_Compiled):
    """Wrapper of a function that Python runs as long as calls are short, unless machine code is on disk.

    The first argument is the array of all events' times, or a tuple that begins with it.
    """

    interpreted_s = 0.0
    """Total CPU seconds of all interpreted calls of functions of this class so far."""

    def __call__(self, *arguments: Any) -> Any:
        times = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
        if self._is_worth_compiling(times.size):
            return self.machine_code(*arguments)
        begin = time.process_time()
        try:
            return self.interpreted(*arguments)
        finally:
            _CompiledLater.interpreted_s += time.process_time() - begin

    def _is_worth_compiling(self, events: int) -> bool:
        """Return whether to run machine code: for many events, after long interpretation, or if it exists already."""
        short = events <= MAX_INTERPRETED_EVENTS and _CompiledLater.interpreted_s < MAX_INTERPRETED_S
        return not short or "machine_code" in vars(self) or self._is_on_disk

    @cached_property
    def _is_on_disk(self) -> bool:
        """Whether an earlier process has left the function's machine code in Numba's cache on disk."""
        source = Path(self.function.__code__.co_filename)
        kept = os.environ.get("NUMBA_CACHE_DIR")
        folders = Path(kept).glob(f"{source.parent.name}_*") if kept else [source.parent / "__pycache__"]
        return any(any(folder.glob(f"{source.stem}.{self.function.__qualname__}-*.nbi")) for folder in folders)

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """Python version of the function, which calls the Python versions of its module's other compiled functions."""
        names = dict(self.function.__globals__)
        for name, value in self.function.__globals__.items():
            if isinstance(value, _Compiled):
                names[name] = FunctionType(value.function.__code__, names, name)
        return names[self.function.__name__]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by Numba's ``njit``, with machine code cached on disk if possible.

    Numba looks only at the function's own file when it decides whether the code is stale. Therefore a compiled function
    calls no function of another file.
    """
    return _Compiled(function, cache=True)


def compiled_later(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `compiled` only once interpreting its calls has taken as long as compiling takes.

    Its first argument is the array of all events' times, or a tuple that begins with this array.
    """
    return _CompiledLater(function, cache=True)


def compiled_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `compiled` version of a function that only changes the arrays of its arguments and makes none."""
    return _Compiled(function, in_place=True, cache=True)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by Numba's ``njit`` that only other compiled functions of its file can call.

    Python can't call it. It makes no arrays.
    """
    return _Compiled(function, in_place=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
