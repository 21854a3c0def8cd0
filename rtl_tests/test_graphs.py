"""Networks that branch, in hardware: values, cycles, stalls, resets, and the least FIFOs."""

from __future__ import annotations

from accelerators import check, check_data, frames_for, simulate
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import stalls

from hwgen.network import golden

SEEDS = st.integers(0, 2**32)


@settings(max_examples=40)
@given(case=graph_cases(), seed=SEEDS)
def test_exact(case, seed):
    """Nobody stalls: all values, and the cycle of every input and output beat as the schedule has it."""
    check(case, frames_for(case.network, 3, seed))


@settings(max_examples=25)
@given(case=graph_cases(), seed=SEEDS, patterns=stalls())
def test_stalls(case, seed, patterns):
    """Stalls at either end: nothing is lost, and nothing gets stuck."""
    frames = frames_for(case.network, 3, seed)
    offer, accept = patterns
    trace = simulate(case.config, frames, offer=offer, accept=accept)
    check_data(case.config, trace.words, golden.run(case.network, frames))
