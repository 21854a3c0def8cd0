"""Functions that read and check fields of ``plan.json``; a one-line error names the field and its fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.errors import PlanError
from hwgen.fields import MAX_INTEGER, shown
from hwgen.network.graph import Network
from hwgen.templates.layers import LayerPlan

__all__ = ["bounded", "field", "read_input_pixels", "shown"]

#: Names of Python's types in JSON, for messages.
_KINDS = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def bounded(document: Any, key: str, where: str, low: int, high: int, reason: str) -> int:
    """Check that the value of ``key`` in a JSON object is an integer from ``low`` to ``high``, and return the value.

    Raises
    ------
    PlanError
        If the value is missing, no integer or out of range; the message has ``reason`` for the range.
    """
    value = field(document, key, int, where)
    if not low <= value <= high:
        raise PlanError(f"{where}: {key} must be {low:,} to {high:,} ({reason}), not {value:,}")
    return value


def field(document: Any, key: str, expected: type, where: str) -> Any:
    """Check the type of the value of ``key`` in a JSON object, and return the value.

    Raises
    ------
    PlanError
        If the value is missing or is not of type ``expected``.
    """
    if not isinstance(document, dict):
        raise PlanError(f"{where} must be an object, not {shown(document)}")
    if key not in document:
        raise PlanError(f"{where} lacks {key!r}")
    value = document[key]
    if not isinstance(value, expected) or isinstance(value, bool):
        raise PlanError(f"{where}: {key} must be {_KINDS[expected]}, not {shown(value)}")
    if expected is int and abs(value) > MAX_INTEGER:
        raise PlanError(f"{where}: {key} must be at most {MAX_INTEGER:,}, not {shown(value)}")
    return value


def read_input_pixels(group: Any, network: Network, layers: Sequence[LayerPlan]) -> int:
    """Read the number of neighbouring pixels per beat of a group's input from the group's entry in ``plan.json``.

    Raises
    ------
    PlanError
        If the beat has more pixels than a row.
    """
    pixels = field(group, "input_pixels", int, "plan group") if "input_pixels" in group else 1
    max_pixels = max(network.input.width, layers[0].tp)  # with padding, output rows can be longer
    if not 1 <= pixels <= max_pixels:
        raise PlanError(f"plan group: input_pixels must be 1 to {max_pixels}, the width of its input, not {pixels!r}")
    return pixels
