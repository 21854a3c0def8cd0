"""Type checks of the Python interface's arguments, before any work begins.

A parameter name means the same in every function of the interface, so that one table (`_CHECKS`) covers all functions.
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

Function = TypeVar("Function", bound=Callable[..., Any])
_SHOWN = 60
#: Largest length of a file or folder name that file systems accept, in bytes.
_LONGEST_NAME = 255
_OWN_CHECKS = {"sweep": ("board",)}
"""Dictionary by function name of the parameters whose types `checked` leaves to the function: `hwgen.sweep` also
accepts several boards."""


def checked(function: Function) -> Function:
    """Return a function of hwgen's Python interface that checks the types of its arguments before it runs.

    An argument that is its parameter's default is always accepted.

    Raises
    ------
    InputError
        When the decorated function is called with an argument that fails its check in `_CHECKS`.
    TypeError
        When the decorated function is called without a required argument, or with an unknown one.
    """
    signature = inspect.signature(function)
    own = _OWN_CHECKS.get(function.__name__, ())
    parameters = {
        name: parameter for name, parameter in signature.parameters.items() if name in _CHECKS and name not in own
    }

    @wraps(function)
    def check_and_call(*arguments: Any, **named: Any) -> Any:
        try:
            values = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}: {error}") from None
        for name, parameter in parameters.items():
            if name in values and values[name] is not parameter.default:
                _check(name, values[name])
        return function(*arguments, **named)

    return cast(Function, check_and_call)


def _check(name: str, value: Any) -> None:
    is_right, meaning = _CHECKS[name]
    if not is_right(value):
        raise InputError(f"{name} must be {meaning}, not {shown(value)}")


def shown(value: Any) -> str:
    """Return a value as a short text for an error message: strings and numbers as in Python code, others by type."""
    if not isinstance(value, str | bytes | int | float | None):
        type_name = type(value).__name__
        return f"{'an' if type_name[0].lower() in 'aeiou' else 'a'} {type_name}"
    try:
        text = repr(value)
    except ValueError:  # Python converts no integer of more than 4300 digits
        return "an integer that is too long"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _is_path(value: Any) -> bool:
    """Return whether a value is a path that file systems accept: not empty, no null byte, no name too long."""
    if not isinstance(value, str | os.PathLike):
        return False
    try:
        names = os.fsencode(value).split(b"/")
    except UnicodeEncodeError:
        return False
    return names != [b""] and b"\0" not in b"".join(names) and max(map(len, names)) <= _LONGEST_NAME


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_integer(value) and value >= 0


def _as_float(value: Any) -> float:
    """Return a real number as a float: infinity if it is too large, NaN for any other value."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_rate(value: Any) -> bool:
    return 0 < _as_float(value) < math.inf


def are_texts(value: Any) -> bool:
    """Return whether a value is a string, or a sequence of strings."""
    return isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(text, str) for text in value)


def _are_chances(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(0 <= _as_float(chance) < 1 for chance in value)


def _is_range(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_count, value))


def _are_frames(value: Any) -> bool:
    """Return whether a value can be the frames of a model's inputs: an array, a sequence, or a mapping from names.

    The number and types of the arrays are checked later, against the model's inputs.
    """
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value)
    return isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes)


def are_frames_or_path(value: Any) -> bool:
    """Return whether a value can be frames (an array, a sequence or a mapping from names), or the path of a file."""
    return _are_frames(value) or _is_path(value)


def _are_tensors(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor, or a non-empty list or tuple of tensors."""
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(hasattr(tensor, "detach") for tensor in values)


def _is_progress(value: Any) -> bool:
    return isinstance(value, bool) or callable(value)


def _is_board(value: Any) -> bool:
    return isinstance(value, Board) or _is_path(value)


_FOLDER = "the path of a folder that hwgen built"
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bandwidth": (_is_rate, "a positive number of GB/s"),
    "batch": (_is_integer, "a number of frames"),
    "board": (_is_board, "the name of a board, the path of a .toml file, or a Board"),
    "cluster": (_is_text, "the address of a Dask scheduler, or local:N"),
    "design": (_is_path, _FOLDER),
    "directory": (_is_path, "the path of a folder"),
    "engine": (_is_path, _FOLDER),
    "example": (_are_tensors, "a tensor, or a tuple of tensors, the inputs of one call"),
    "force": (lambda value: isinstance(value, bool), "True or False"),
    "front": (are_texts, "a sequence of figures' names"),
    "fuse": (_is_text, "auto or off"),
    "integers": (lambda value: isinstance(value, bool), "True or False"),
    "jobs": (_is_integer, "a positive integer"),
    "labels": (lambda value: isinstance(value, np.ndarray), "an array of integers, one per frame"),
    "maps": (_are_frames, "a sequence of arrays, one for each output of the hardware"),
    "module": (lambda value: hasattr(value, "state_dict"), "a torch.nn.Module"),
    "memory_latency": (_is_count, "a number of cycles, 0 or more"),
    "output": (_is_path, "the path of an .onnx file to write"),
    "plan": (_is_path, "the path of a plan.json"),
    "program": (_is_path, "the path of a program"),
    "progress": (_is_progress, "True, False, or a function that takes a Step"),
    "runtime": (lambda value: hasattr(value, "floats"), "what Model.runtime returns"),
    "say": (callable, "a function that takes a line"),
    "seed": (_is_count, "an integer, 0 or more"),
    "simulator": (_is_text, f"{', '.join(SIMULATORS[:-1])} or {SIMULATORS[-1]}"),
    "source": (_is_path, "the path of an .onnx file, or the name of a built-in network"),
    "stalls": (_are_chances, "a sequence of probabilities, each from 0 to below 1"),
    "wave_frames": (_is_range, "two integers, the first frame and the last one plus 1"),
    "wave_layers": (are_texts, "a sequence of layers' names"),
    "waves": (_is_path, "the path of a .vcd or .fst file"),
    "x": (_are_frames, "an array of frames, or one for each input in a sequence or by name"),
}
"""Dictionary by name of a Python parameter: its check function, and a description of accepted values."""
