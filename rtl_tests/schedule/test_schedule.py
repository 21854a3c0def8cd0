"""The exact schedule by itself, and what layers do in each cycle: by hand, order, bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import Case, cases, check, fifo_uses, frames_for, simulate, watched_fifos
from counted import cases_in_the_long_run
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import cases as pyramid_cases

import hwgen
from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.schedule.solve import MAX_FRAMES, Schedule, steady_cycles
from hwgen.schedule.timeline import BUFFER, DONE, INPUT, ROOM, WORK, State, Timeline, timelines
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan


def pool(channels: int, height: int, width: int, *, tn: int = 1, tk: int = 4, rows: int = 3, depth: int = 9) -> Case:
    """One 2 x 2 pool, stride 2."""
    before = FeatureMap(channels=channels, height=height, width=width, type=UINT8)
    after = replace(before, height=height // 2, width=width // 2)
    layer = MaxPool(name="pool", input=before, output=after, window=Window(kernel=(2, 2), stride=(2, 2)))
    network = Network(name="pool", layers=(layer,))
    plan = LayerPlan(name="pool", kind="maxpool", tn=tn, tm=tn, tk=tk, chain=1, line_rows=rows, fifo_depths=(depth,))
    return Case(network, compose(network, [plan]))


def test_by_hand_input_bound():
    """1 x 4 x 4, a whole window a cycle: the input's 16 beats are the frame.

    The last window needs beat 15 and starts in cycle 16. Line buffer 5 (two rows a patch), tree 2, FIFO 2: its maximum
    leaves in cycle 16 + 5 + 2 + 2 = 25. The others wait for beats 5, 7, 13.
    """
    case = pool(1, 4, 4)
    schedule = Schedule(case.config, 3)
    assert schedule.cycles.latency == 25
    assert schedule.cycles.interval == 16
    assert schedule.cycles.steady
    assert schedule.taken[0].tolist() == list(range(48))
    assert schedule.taken[1].tolist()[:4] == [15, 17, 23, 25]
    check(case, frames_for(case.network, 3, 1), schedule)


def test_by_hand_window_bound():
    """3 x 2 x 2, one channel and one tap a cycle: 12 cycles a frame for input and windows alike.

    The one window needs beat 11, so its folds start in cycles 12, 16 and 20. Line buffer 4, running maximum 1, FIFO
    2, four steps: maxima leave 4 - 1 + 4 + 1 + 2 = 10 later, in 22, 26, 30.
    """
    case = pool(3, 2, 2, tk=1, rows=8)
    schedule = Schedule(case.config, 3)
    assert schedule.cycles.latency == 30
    assert schedule.cycles.interval == 12
    assert schedule.taken[1].tolist()[:3] == [22, 26, 30]
    check(case, frames_for(case.network, 3, 1), schedule)


def test_by_hand_ring():
    """The same with the two rows of one window alone: a beat waits until the one it overwrites is read.

    The window ends with cycle 23; 3 cycles later, in 26, all of the second frame may come in: beats 12 to 23 take
    26 to 37, and the frame's last maximum leaves 37 + 1 + 8 + 10 = 56, 26 after the first's.
    """
    case = pool(3, 2, 2, tk=1, rows=2)
    schedule = Schedule(case.config, 3)
    assert schedule.cycles.latency == 30
    assert schedule.cycles.interval == 26
    assert schedule.taken[0].tolist()[12:24] == list(range(26, 38))
    check(case, frames_for(case.network, 3, 1), schedule)


def test_by_hand_credits():
    """1 x 4 x 4, one credit: a window starts 1 cycle after the maximum before it has left.

    Windows are due in 6, 8, 14 and 16; a maximum leaves 9 cycles after its window starts. So they start in
    6, 16, 26, 36, and the last leaves in 45. The next frame's first window starts in 46.
    """
    case = pool(1, 4, 4, depth=1, rows=8)
    schedule = Schedule(case.config, 3)
    schedule.solve()
    assert schedule.taken[1].tolist()[:5] == [15, 25, 35, 45, 55]
    assert schedule.cycles.latency == 45
    assert schedule.cycles.interval == 40
    check(case, frames_for(case.network, 3, 1), schedule)


def times(schedule: Schedule) -> list[np.ndarray]:
    schedule.solve()
    return [*schedule.taken, *schedule.left, *schedule.starts]


@cases_in_the_long_run(40)
@given(case=cases(), frames=st.integers(1, 4))
def test_bounds(case, frames):
    """No layer is faster than its own figure; nothing happens before its cause; frames keep their order."""
    schedule = Schedule(case.config, frames)
    schedule.solve()
    ends = schedule.frame_ends
    slowest = max(layer.cycles for layer in case.config.layers)
    assert len(ends) == frames
    assert schedule.taken[0][0] == 0
    assert ends[-1] >= (frames - 1) * slowest
    for number, layer in enumerate(case.config.layers):
        assert (np.diff(schedule.taken[number]) >= 1).all()
        assert (np.diff(schedule.left[number]) >= 1).all()
        assert (np.diff(schedule.starts[number]) >= layer.window.steps).all()
    cycles = schedule.cycles
    assert (cycles.interval is None) == (frames < 3)
    assert cycles.latency == ends[0]


@cases_in_the_long_run(40)
@given(case=cases(), data=st.data())
def test_less_is_never_earlier(case, data):
    """With a shallower FIFO or fewer rows no event is earlier; shrinking a solved schedule equals solving anew."""
    config = case.config
    schedule = Schedule(config, 3)
    before = times(schedule)
    number = data.draw(st.integers(0, len(config.layers) - 1))
    layer = config.layers[number]
    depths = [other.fifo_depths[0] for other in config.layers]
    rows = [other.window.rows for other in config.layers]
    depths[number] = data.draw(st.integers(max(layer.fold_beats), layer.fifo_depths[0]))
    rows[number] = data.draw(st.integers(layer.min_rows, layer.window.rows))
    before = [kept.copy() for kept in before]
    schedule.mark()
    schedule.shrink(number, depth=depths[number])
    schedule.shrink(number, rows=rows[number])
    after = times(schedule)
    for old, new in zip(before, after, strict=True):
        assert (new >= old).all()
    for new, anew in zip(after, times(Schedule(config, 3, depths=depths, rows=rows)), strict=True):
        np.testing.assert_array_equal(new, anew)
    schedule.revert()
    for old, same in zip(before, times(schedule), strict=True):
        np.testing.assert_array_equal(old, same)


@cases_in_the_long_run(40)
@given(case=cases(), data=st.data())
def test_more_frames_change_nothing_before(case, data):
    """The first frames of a longer run are those of a shorter one."""
    few, many = Schedule(case.config, 2), Schedule(case.config, 4)
    few.solve()
    many.solve()
    np.testing.assert_array_equal(few.frame_ends, many.frame_ends[:2])
    np.testing.assert_array_equal(few.taken[0], many.taken[0][: len(few.taken[0])])


@cases_in_the_long_run(40)
@given(case=cases(), late=st.integers(0, 3))
def test_deadline(case, late):
    """Solving stops, and says so, as soon as a frame is late."""
    schedule = Schedule(case.config, 3)
    schedule.solve()
    deadline = schedule.frame_ends.copy()
    assert Schedule(case.config, 3).solve(schedule.latest(deadline))
    if late < 3:
        deadline[late] -= 1
        assert not Schedule(case.config, 3).solve(schedule.latest(deadline))


@cases_in_the_long_run(40)
@given(case=cases())
def test_credits_used(case):
    """A FIFO as deep as the credits that were used changes nothing."""
    config = case.config
    depths: list[int | None] = [None] * len(config.layers)
    schedule = Schedule(config, 3, depths=depths)
    before = times(schedule)
    used = [max(schedule.credits_used(n), *layer.fold_beats, 1) for n, layer in enumerate(config.layers)]
    for old, new in zip(before, times(Schedule(config, 3, depths=used)), strict=True):
        np.testing.assert_array_equal(old, new)


@settings(max_examples=30)
@given(case=cases(max_layers=3, max_side=5), frames=st.integers(1, 40))
def test_steady(case, frames):
    """A settled interval stays: what is said of any number of frames is so, without covering all of them."""
    exact = Schedule(case.config, frames).cycles
    said = steady_cycles(case.config, frames)
    if frames < 3 or exact.steady:
        assert said == exact
    else:
        assert said.latency == exact.latency


def test_not_steady():
    """A row and a window's credits too few: two frames of 57 cycles and one of 62 take turns."""
    before = FeatureMap(channels=3, height=1, width=2, type=UINT8)
    window = Window(kernel=(2, 2), padding=(0, 1, 2, 2))
    layer = MaxPool(name="pool", input=before, output=replace(before, height=2, width=4), window=window)
    plan = LayerPlan(name="pool", kind="maxpool", tn=2, tm=2, tk=2, chain=1, line_rows=1, fifo_depths=(5,))
    config = compose(Network(name="pool", layers=(layer,)), [plan])
    schedule = Schedule(config, 8)
    schedule.solve()
    assert np.diff(schedule.frame_ends).tolist() == [57, 57, 62, 57, 57, 62, 57]
    for frames in range(3, 12):
        assert steady_cycles(config, frames) == Schedule(config, frames).cycles
    assert steady_cycles(config) == Schedule(config, MAX_FRAMES).cycles


@pytest.mark.parametrize("frames", [0, -1])
def test_errors(frames):
    with pytest.raises(ConfigError, match=f"^frames must be a positive integer, not {frames}$"):
        Schedule(pool(1, 4, 4).config, frames)


@cases_in_the_long_run(40)
@given(case=cases(), data=st.data())
def test_latest(case, data):
    """A deadline that is met asks for nothing that isn't so; what it asks for refuses only what misses it."""
    frames = data.draw(st.integers(1, 4))
    schedule = Schedule(case.config, frames)
    schedule.solve()
    ends = schedule.frame_ends
    assert Schedule(case.config, frames).solve(schedule.latest(ends))
    late = data.draw(st.integers(0, 5))
    assert Schedule(case.config, frames).solve(schedule.latest(ends - late)) == (late == 0)


def test_too_many_events_are_refused_at_once():
    """Ten frames of the largest map, 4,096 x 4,096 pixels: each pixel comes in, is a window, and leaves."""
    side = 4_096
    before = FeatureMap(channels=1, height=side, width=side, type=UINT8)
    layer = MaxPool(name="pool", input=before, output=before, window=Window(kernel=(1, 1)))
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=1, chain=1, line_rows=2, fifo_depths=(5,))
    config = compose(Network(name="pool", layers=(layer,)), [plan])
    with pytest.raises(PlanError, match=r"^pool: 10 frames are [\d,]{11} events .* at most 402,653,184 are scheduled"):
        Schedule(config, 10)


def test_windows_below_the_map():
    """Rows of windows that all end with the map's last row: a pixel that comes later moves those of each row.

    A map of 1 x 2 x 4 under a 2 x 2 pool with a row of padding below: the windows wait for beats 5, 6, 7 and again for
    5, 6, 7. A copy (a 1 x 1 pool) stands before it; with one credit its beats are 7 cycles apart: a step starts a cycle
    after the beat before was taken, which is 6 after that one's start.
    """
    before = FeatureMap(channels=1, height=2, width=4, type=UINT8)
    after = replace(before, width=3)
    layers = (
        MaxPool(name="copy", input=before, output=before, window=Window(kernel=(1, 1))),
        MaxPool(name="pool", input=before, output=after, window=Window(kernel=(2, 2), padding=(0, 0, 1, 0))),
    )
    network = Network(name="below", layers=layers)
    plans = [
        LayerPlan(name=layer.name, kind="maxpool", tn=1, tm=1, tk=1, chain=1, line_rows=4, fifo_depths=(9,))
        for layer in layers
    ]
    schedule = Schedule(compose(network, plans), 3)
    schedule.mark()
    schedule.shrink(0, depth=1)
    shallow = Case(network, compose(network, [replace(plans[0], fifo_depths=(1,)), plans[1]]))
    for moved, same in zip(times(schedule), times(Schedule(shallow.config, 3)), strict=True):
        np.testing.assert_array_equal(moved, same)
    assert (np.diff(schedule.taken[1]) >= 7).all()
    check(shallow, frames_for(network, 3, 1), schedule)


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
@given(pyramid_cases(max_layers=2), st.integers(1, 2))
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
