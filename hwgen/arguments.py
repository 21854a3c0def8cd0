"""Types of the Python interface's arguments, checked before any work begins.

A parameter's name means the same in every function of the interface, so that one table says what each must be.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from hwgen.boards import Board
from hwgen.errors import InputError
from hwgen.simulators import SIMULATORS

__all__ = ["checked", "shown"]

Function = TypeVar("Function", bound=Callable[..., Any])
_SHOWN = 60
#: Bytes of a file's name.
_LONGEST_NAME = 255
_OWN_CHECKS = {"sweep": ("board",)}
"""Parameters that a function checks itself, because they mean more there: one board or several."""


def checked(function: Function) -> Function:
    """Return a function that refuses arguments of a wrong type in one sentence; a decorator.

    An argument that is its parameter's default is right.

    Raises
    ------
    InputError
        By the function, if an argument is of another type than `_KINDS` has it.
    TypeError
        By the function, if an argument is missing or has no parameter, as by any function of Python's.
    """
    signature = inspect.signature(function)
    own = _OWN_CHECKS.get(function.__name__, ())
    parameters = {name: each for name, each in signature.parameters.items() if name in _KINDS and name not in own}

    @wraps(function)
    def check_and_call(*arguments: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}: {error}") from None
        for name, parameter in parameters.items():
            if name in given and given[name] is not parameter.default:
                _check(name, given[name])
        return function(*arguments, **named)

    return cast(Function, check_and_call)


def _check(name: str, value: Any) -> None:
    is_right, meaning = _KINDS[name]
    if not is_right(value):
        raise InputError(f"{name} must be {meaning}, not {shown(value)}")


def shown(value: Any) -> str:
    """Return a value for a message: text and numbers as they are, anything else by its type."""
    if not isinstance(value, str | bytes | int | float | None):
        kind = type(value).__name__
        return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
    try:
        text = repr(value)
    except ValueError:  # Python's own limit, which long integers meet
        return "an integer that is too long"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _is_path(value: Any) -> bool:
    """Whether files can have the path: no part of it is longer than file systems allow."""
    if not isinstance(value, str | os.PathLike):
        return False
    try:
        parts = os.fsencode(value).split(b"/")
    except UnicodeEncodeError:
        return False
    return parts != [b""] and b"\0" not in b"".join(parts) and max(map(len, parts)) <= _LONGEST_NAME


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_integer(value) and value >= 0


def _number(value: Any) -> float:
    """Return a real number, infinite if it is too large; NaN, which no range holds, for anything else."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_rate(value: Any) -> bool:
    return 0 < _number(value) < math.inf


def _are_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(text, str) for text in value)


def _are_chances(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(0 <= _number(chance) < 1 for chance in value)


def _is_range(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_count, value))


def _are_frames(value: Any) -> bool:
    """Whether a value is an array, or several of something; the model's inputs say how many arrays there must be."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value)
    return isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes)


def _are_frames_or_path(value: Any) -> bool:
    return _are_frames(value) or _is_path(value)


def _is_progress(value: Any) -> bool:
    return isinstance(value, bool) or callable(value)


def _is_board(value: Any) -> bool:
    return isinstance(value, Board) or _is_path(value)


_FOLDER = "the path of a folder that hwgen built"
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bandwidth": (_is_rate, "a positive number of GB/s"),
    "batch": (_is_integer, "a number of frames"),
    "bits": (_is_integer, "8 or 16"),
    "board": (_is_board, "the name of a board, the path of a .toml file, or a Board"),
    "calibration": (_are_frames_or_path, "an array, several of them, or the path of a .npy or .npz file"),
    "cluster": (_is_text, "the address of a Dask scheduler, or local:N"),
    "design": (_is_path, _FOLDER),
    "directory": (_is_path, "the path of a folder"),
    "engine": (_is_path, _FOLDER),
    "force": (lambda value: isinstance(value, bool), "True or False"),
    "front": (_are_texts, "a sequence of figures' names"),
    "integers": (lambda value: isinstance(value, bool), "True or False"),
    "jobs": (_is_integer, "a positive integer"),
    "labels": (lambda value: isinstance(value, np.ndarray), "an array of integers, one a frame"),
    "memory_latency": (_is_count, "a number of cycles, 0 or more"),
    "plan": (_is_path, "the path of a plan.json"),
    "program": (_is_path, "the path of a program"),
    "progress": (_is_progress, "True, False, or a function that takes a Step"),
    "runtime": (lambda value: hasattr(value, "floats"), "what Model.runtime returns"),
    "say": (callable, "a function that takes a line"),
    "seed": (_is_count, "an integer, 0 or more"),
    "simulator": (_is_text, f"{', '.join(SIMULATORS[:-1])} or {SIMULATORS[-1]}"),
    "source": (_is_path, "the path of an .onnx file, or the name of a built-in network"),
    "stalls": (_are_chances, "a sequence of probabilities, each from 0 to below 1"),
    "until": (_are_texts, "the name of a tensor, or a sequence of names"),
    "wave_frames": (_is_range, "two integers, the first frame and the one behind the last"),
    "wave_layers": (_are_texts, "a sequence of layers' names"),
    "waves": (_is_path, "the path of a .vcd or .fst file"),
    "x": (_are_frames, "an array of frames, or one for each input in a sequence or by name"),
}
"""Checks of the parameters by name, each with the description of a right value."""
