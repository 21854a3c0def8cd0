"""The exact schedule of accelerators that work in tiles: the hardware keeps it to the cycle."""

from __future__ import annotations

import numpy as np
from accelerators import check_cycles, frames_for
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tile_layer import Case, cases, simulate
from testbench import Trace

from hwgen.plan.schedule import Schedule


def check(case: Case, frames: np.ndarray, schedule: Schedule | None = None) -> Trace:
    """Never stalled: every input beat and every output beat in the cycle that the schedule says."""
    trace, expected = simulate(case, frames)
    assert trace.words == expected
    check_cycles(schedule or Schedule(case.config, len(frames)), trace)
    return trace


@settings(max_examples=60)
@given(case=cases(most_layers=3), frames=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_groups(case, frames, seed):
    check(case, frames_for(case.network, frames, seed))
