"""Fields of ``plan.json``, read with one clear line for whatever is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.errors import PlanError
from hwgen.fields import MOST, shown
from hwgen.network.graph import Network
from hwgen.templates.layers import LayerPlan

__all__ = ["bounded", "field", "read_input_pixels", "shown"]

#: JSON's names of Python's types.
_KINDS = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def bounded(document: Any, key: str, where: str, least: int, most: int, why: str) -> int:
    """An integer from ``least`` to ``most``; raises PlanError, with ``why``."""
    value = field(document, key, int, where)
    if not least <= value <= most:
        raise PlanError(f"{where}: {key} must be {least:,} to {most:,} ({why}), not {value:,}")
    return value


def field(document: Any, key: str, kind: type, where: str) -> Any:
    """The value of ``key``, which must be of this kind; raises PlanError."""
    if not isinstance(document, dict):
        raise PlanError(f"{where} must be an object, not {shown(document)}")
    if key not in document:
        raise PlanError(f"{where} lacks {key!r}")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanError(f"{where}: {key} must be {_KINDS[kind]}, not {shown(value)}")
    if kind is int and abs(value) > MOST:
        raise PlanError(f"{where}: {key} must be at most {MOST:,}, not {shown(value)}")
    return value


def read_input_pixels(group: Any, network: Network, layers: Sequence[LayerPlan]) -> int:
    """Neighbouring pixels of a beat of a group's input.

    Raises
    ------
    PlanError
        If there are more than in a row.
    """
    pixels = field(group, "input_pixels", int, "plan group") if "input_pixels" in group else 1
    most = max(network.input.width, layers[0].tp)  # padding may make rows of the output longer
    if not 1 <= pixels <= most:
        raise PlanError(f"plan group: input_pixels must be 1 to {most}, the width of its input, not {pixels!r}")
    return pixels
