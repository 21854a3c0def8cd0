"""Refusals that tests expect: reasons why a random case is left out, and tables of refusals in rtl_tests/refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import assume

from hwgen.errors import ConfigError, ModelError, PlanError

REFUSALS = Path(__file__).resolve().parents[1] / "refusals"
#: A budget of DSP slices that no unrolling keeps.
FEW_SLICES = "no unrolling fits"
#: A tip larger than the group's output.
LARGE_TILE = "tile must be between 1x1"
#: A layer all of whose windows lie in its padding.
NOTHING_TO_DO = "a pyramid has nothing to do"


@contextmanager
def left_out_if(*reasons: str) -> Iterator[None]:
    """Leave the case out where making, planning or compiling it is refused for one of these reasons."""
    try:
        yield
    except (ConfigError, ModelError, PlanError) as error:
        assert any(reason in str(error) for reason in reasons), f"refused for no known reason: {error}"  # noqa: PT017
        assume(False)


def refusals_in(name: str) -> list[tuple[Any, ...]]:
    """Return the refusals of a file in rtl_tests/refusals: what is given, in JSON, and below it what is said of it.

    What is given is a line of JSON, whose array has several things; arrays within are tuples. What is said is indented,
    and in backquotes.
    """
    lines = (REFUSALS / name).read_text(encoding="utf-8").splitlines()
    found = []
    for given, said in zip(lines[::2], lines[1::2], strict=True):
        fields = json.loads(given)
        found.append((*map(_frozen, fields if isinstance(fields, list) else [fields]), said.strip()[1:-1]))
    return found


def _frozen(value: Any) -> Any:
    """Return a value of JSON with tuples for arrays."""
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
