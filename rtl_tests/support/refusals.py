"""Refusals that a test expects: for another reason than these a refused plan or program fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import assume

from hwgen.errors import ConfigError, ModelError, PlanError

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
