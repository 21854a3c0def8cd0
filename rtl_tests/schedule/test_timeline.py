"""What layers do in each cycle: by hand, by what must add up, and beside the hardware's own FIFOs."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import Case, cases, fifo_uses, frames_for, simulate, watched_fifos
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import pool
from tiles import cases as pyramid_cases

import hwgen
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.schedule.solve import steady_cycles
from hwgen.schedule.timeline import BUFFER, DONE, INPUT, ROOM, WORK, State, Timeline, timelines

DIGITS = "examples/digits/digits.onnx"


def told(found: Timeline, number: int, begin: int, end: int) -> dict[State, int]:
    """The cycles of a layer in each state."""
    return {state: int(cycles.sum()) for state, cycles in found.window(begin, end, 7).states[number].items()}


def test_by_hand_input():
    """1 x 4 x 4, a window a cycle, one frame: windows start in 6, 8, 14 and 16 (test_schedule), and it ends in 25."""
    found = Timeline(pool(1, 4, 4).config, 1)
    assert found.end == 26
    assert told(found, 0, 0, 26) == {State(WORK): 4, State(INPUT, -1): 6 + 1 + 5 + 1, State(DONE): 26 - 17}
    assert told(found, 0, 8, 14) == {State(WORK): 1, State(INPUT, -1): 5}


def test_by_hand_room():
    """The same with one credit: windows start in 6, 16, 26 and 36, each a cycle after the maximum before has left."""
    found = Timeline(pool(1, 4, 4, depth=1).config, 1)
    assert told(found, 0, 0, 46) == {State(WORK): 4, State(INPUT, -1): 6, State(ROOM, 1): 27, State(DONE): 9}
    assert found.max_credits == [1]
    assert found.window(0, 46, 46).fills[0].tolist() == [0] * 6 + [1] * 40  # the last credit is back in cycle 46


def test_by_hand_buffer():
    """3 x 2 x 2, two rows: the window ends with cycle 23; the next frame comes in from 26 on and starts in 38."""
    found = Timeline(pool(3, 2, 2, tk=1, rows=2).config, 2)
    assert told(found, 0, 0, 24) == {State(WORK): 12, State(INPUT, -1): 12}
    assert told(found, 0, 24, 50) == {State(WORK): 12, State(BUFFER): 14}


def check_adds_up(config: AcceleratorConfig, frames: int) -> None:
    """Every cycle of a layer has one state, whatever the bins; all work is there; whom it waits for is beside it."""
    found = Timeline(config, frames)
    end = max(found.end, *(layer.end for layer in found.layers))  # some compute rows after the last one that is needed
    whole = found.window(0, end, 10)
    for number, (layer, states) in enumerate(zip(config.layers, whole.states, strict=True)):
        np.testing.assert_array_equal(sum(states.values()), np.diff(whole.edges))
        assert states[State(WORK)].sum() >= frames * layer.windows * layer.window_steps
        one_bin = found.window(0, end, 1).states[number]
        assert {state: cycles.sum() for state, cycles in states.items()} == {s: c.sum() for s, c in one_bin.items()}
        before = {*config.sources[number]}
        behind = {link.sink for link in config.links if link.source == number}
        assert {state.whom for state in states if state.kind == INPUT} <= before
        assert {state.whom for state in states if state.kind == ROOM} <= behind
    for fill, most, depth in zip(whole.fills, found.max_credits, config.fifo_depths, strict=True):
        assert fill.max() == most <= depth


@settings(max_examples=6)
@given(cases(), st.integers(1, 4))
def test_chains_add_up(case: Case, frames: int):
    check_adds_up(case.config, frames)


@settings(max_examples=6)
@given(graph_cases(), st.integers(1, 3))
def test_graphs_add_up(case: Case, frames: int):
    check_adds_up(case.config, frames)


@pytest.mark.long
@settings(max_examples=7)
@given(pyramid_cases(most_layers=2), st.integers(1, 2))
def test_pyramids_add_up(case: Case, frames: int):
    check_adds_up(case.config, frames)


@settings(max_examples=6)
@given(graph_cases(sized=True))
def test_depths_that_were_computed_are_used(case: Case):
    """A FIFO of the least depth gets full, or could not be shallower by its making."""
    found = timelines(case.config, steady_cycles(case.config)).steady
    assert found is not None
    for link, depth, most in zip(case.config.links, case.config.fifo_depths, found.max_credits, strict=True):
        least = max(case.config.layers[link.source].fold_beats)
        assert most == depth or depth <= max(2, least)


def check_fills(case: Case, seed: int) -> None:
    """In every cycle the credits that are out, counted at the ports of the FIFOs."""
    found = Timeline(case.config, 2)
    with watched_fifos(case.config) as watch:
        trace = simulate(case.config, frames_for(case.network, 2, seed), watch=watch)
    begin, bins = trace.taken[0], found.end
    for use, depth, fill in zip(
        fifo_uses(case.config, trace),
        case.config.fifo_depths,
        found.window(0, found.end, bins).fills,
        strict=True,
    ):
        np.testing.assert_array_equal(fill, (depth - use.credits)[begin : begin + bins])


@settings(max_examples=1)
@given(cases(), st.integers(0, 2**32 - 1))
def test_fills_are_the_hardware_s(case: Case, seed: int):
    check_fills(case, seed)


@pytest.mark.long
@settings(max_examples=20)
@given(cases(), st.integers(0, 2**32 - 1))
def test_many_fills_are_the_hardware_s(case: Case, seed: int):
    check_fills(case, seed)


@pytest.mark.long
def test_depths_of_shortcuts_are_used():
    """Of resnet8 every FIFO, those of its shortcuts too, gets full in some cycle."""
    design = hwgen.load("resnet8").plan("zedboard", multipliers="dsp")
    found = timelines(design.config, design.plan.cycles).steady
    assert found is not None
    assert found.max_credits == design.config.fifo_depths


@pytest.fixture(scope="module")
def digits() -> hwgen.Design:
    return hwgen.load(DIGITS).plan("zedboard", dsp=60, multipliers="dsp")


def test_steady_state_repeats(digits: hwgen.Design):
    """In an interval each layer does the work of one frame, and every FIFO gets as full as it is deep."""
    config = digits.config
    found = timelines(config, digits.plan.cycles)
    assert found.first is found.steady is not None
    steady = found.steady.steady(100)
    assert steady is not None
    assert steady.end - steady.begin == digits.interval
    for layer, states in zip(config.layers, steady.states, strict=True):
        assert states[State(WORK)].sum() == layer.windows * layer.window.window_cycles
        assert sum(cycles.sum() for cycles in states.values()) == digits.interval
    assert found.steady.max_credits == config.fifo_depths
    frame = found.first.frame(100)
    assert (frame.begin, frame.end) == (0, digits.latency + 1)
