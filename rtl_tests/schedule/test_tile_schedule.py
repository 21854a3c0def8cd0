"""The exact schedule of accelerators that work in tiles: by hand, against the hardware, and how it is settled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import check_cycles, frames_for, frames_that_show, size_buffers, with_less
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import SEEDS, Case, cases, simulate

from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.timing import HALVES, TileTiming, walk_tiles
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.schedule.solve import Schedule, enough_frames, steady_cycles
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import in_tiles
from hwgen.templates.pyramid_tiles import axes


def check(case: Case, frames: np.ndarray) -> None:
    """Never stalled: every input beat and every output beat in the cycle that the schedule says."""
    trace, expected = simulate(case, frames)
    assert trace.words == expected
    check_cycles(Schedule(case.config, len(frames)), trace)


@cases_in_the_long_run(10)
@given(case=cases(max_layers=3, max_cycles=300), frames=st.integers(1, 4), seed=SEEDS)
def test_groups(case, frames, seed):
    check(case, frames_for(case.network, frames, seed))


@pytest.mark.long
@settings(max_examples=64)
@given(case=cases(max_layers=4), frames=st.integers(1, 4), seed=SEEDS)
def test_many_groups(case, frames, seed):
    check(case, frames_for(case.network, frames, seed))


@pytest.mark.long
@settings(max_examples=6)
@given(case=cases(max_layers=3, max_cycles=200), seed=SEEDS)
def test_sized_groups(case, seed):
    check(sized(case), frames_for(case.network, 3, seed))


def pool(
    size: int, stride: int, *, tk: int = 4, depth: int = 9, padding: tuple[int, int, int, int] = (0, 0, 0, 0)
) -> Case:
    """One 2 x 2 pool of a channel, with a pyramid for each of its outputs."""
    window = Window(kernel=(2, 2), stride=(stride, stride), padding=padding)
    before = FeatureMap(channels=1, height=size, width=size, type=UINT8)
    height, width = window.output_size(size, size)
    layer = MaxPool(name="pool", input=before, output=replace(before, height=height, width=width), window=window)
    network = Network(name="pool", layers=(layer,))
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=tk, chain=1, line_rows=2, fifo_depths=(depth,))
    return Case(network, in_tiles(compose(network, [plan]), axes([layer], (1, 1))))


def check_by_hand(case: Case, taken: list[int], sent: list[int], interval: int) -> None:
    schedule = Schedule(case.config, 3)
    assert schedule.cycles.interval == interval
    assert schedule.taken[0].tolist()[: len(taken)] == taken
    assert schedule.taken[1].tolist()[: len(sent)] == sent
    assert schedule.cycles.latency == sent[len(schedule.taken[1]) // 3 - 1] - taken[0]
    check(case, frames_for(case.network, 3, 1))


def test_by_hand_tiles():
    """The table of `hwgen.gateware.pyramid.timing`."""
    tiles = [TileTiming(first=4 * n, last=4 * n + 3, filled=True, waits=False, walk=6) for n in range(4)]
    never = -100
    bounds, before = [(never, never, never)] * 4, {"lag": 0, "complete": never, "ends": [never] * HALVES}
    lags, complete, ends = walk_tiles(tiles, bounds, **before, write_delay=1, release_delay=3)
    assert lags == [0, 0, 4, 6]
    assert complete == [3, 7, 15, 21]
    assert ends == [9, 15, 21, 27]


def test_by_hand_nothing_kept():
    """Stride 2 over 4 x 4, a window a cycle: four tiles of four beats, which go straight in.

    A tile's window starts a cycle after its fourth beat. Tile 5 (two rows a patch), tree 2, FIFO 2: its maximum leaves
    10 after the beat.
    """
    check_by_hand(pool(4, 2), list(range(20)), [13, 17, 21, 25, 29], 16)


def test_by_hand_reuse():
    """Stride 1 over 3 x 3, a tap a cycle: 3 x 3 pyramids, the first row and column of them without a window.

    Their tiles have 1, 2, 2; 2, 4, 4; 2, 4, 4 beats, the last of each new: 25 steps, one a cycle. The first with a
    window has steps 7 to 10. They enter the tile a cycle later; the window takes cycles 12 to 15. The others start when
    theirs are there, 16, 22 and 26 (18 and 22 the first of their beats may overwrite what was read until 15 and 19).
    Three steps more, tile 4, maximum 1, FIFO 2: a maximum leaves 10 after its window's start.
    """
    taken = [0, 2, 4, 6, 10, 14, 16, 20, 24, 25]
    check_by_hand(pool(3, 1, tk=1), taken, [22, 26, 32, 36, 47], 25)


def test_by_hand_credits():
    """The same with one credit: a window starts a cycle after the maximum before has left.

    So they start in 12, 23, 34 and 45. The last tile waits for the second to be read, to 26, and is taken from 29 to
    32: the last step but three waits for that from 22 on, and so do the frame's last beat and the next one's first.
    """
    taken = [0, 2, 4, 6, 10, 14, 16, 20, 31, 32]
    check_by_hand(pool(3, 1, tk=1, depth=1), taken, [22, 33, 44, 55, 66], 44)


def test_by_hand_padding():
    """Stride 2 over 1 x 1, padded by two above and on the left: four windows, the first three without a pixel.

    A tile passes in cycles 0 and 1 each, as the frame's only beat is offered; their windows are read in 1 and 2. The
    other two may pass three cycles after that, in 4 and, with the beat, in 5. In the next frame it is 8, 9, 12 and 13.
    A window starts a cycle after its tile has passed; tile 5, tree 2 and FIFO 2: its maximum leaves 9 later.

    Padded on the left alone there are two tiles, which pass in 0 and 1, in 4 and 5, in 8 and 9.
    """
    check_by_hand(pool(1, 2, padding=(2, 2, 1, 1)), [5, 13], [10, 11, 14, 15, 18], 8)
    check_by_hand(pool(1, 2, padding=(0, 2, 1, 1)), [1, 5, 9], [10, 11, 14, 15, 18], 4)


def sized(case: Case) -> Case:
    _, depths = size_buffers(case.config)
    layers = [replace(layer, fifo_depths=depth) for layer, depth in zip(case.config.layers, depths, strict=True)]
    return Case(case.network, replace(case.config, layers=tuple(layers)))


def covered(config) -> int:
    """The frames that sizing looks at."""
    return enough_frames(config, Schedule(config, 3, depths=[None] * len(config.layers)).cycles)


@cases_in_the_long_run(10)
@given(case=cases(max_layers=3, max_cycles=400))
def test_nothing_lost_and_nothing_could_be_less(case):
    """Latency and intervals are those of FIFOs without end; with a credit less anywhere some run has greater ones."""
    config = sized(case).config
    frames = covered(config)
    schedule, unbounded = Schedule(config, frames), Schedule(config, frames, depths=[None] * len(config.layers))
    schedule.solve()
    unbounded.solve()
    assert schedule.frame_ends[0] == unbounded.frame_ends[0]
    np.testing.assert_array_equal(np.diff(schedule.frame_ends)[1:], np.diff(unbounded.frame_ends)[1:])
    for number, layer in enumerate(config.layers):
        if layer.fifo_depths[0] > max(layer.fold_beats):
            assert frames_that_show(with_less(schedule, number, depth=1), schedule), (
                f"{layer.name}: a FIFO of {layer.fifo_depths[0] - 1} would do"
            )


def times(schedule: Schedule) -> list[np.ndarray]:
    schedule.solve()
    return [*schedule.taken, *schedule.left, *schedule.starts]


@pytest.mark.long
@settings(max_examples=40)
@given(case=cases(max_layers=4), frames=st.integers(1, 4), data=st.data())
def test_shallower(case, frames, data):
    """Nothing is earlier with a shallower FIFO; it is the same solved anew or not, and can be taken back."""
    config = case.config
    number = data.draw(st.integers(0, len(config.layers) - 1))
    depths = [layer.fifo_depths[0] for layer in config.layers]
    schedule = Schedule(config, frames)
    before = [kept.copy() for kept in times(schedule)]
    depths[number] = data.draw(st.integers(max(config.layers[number].fold_beats), min(depths[number], 20)))
    schedule.mark()
    schedule.shrink(number, depth=depths[number])
    shrunk = times(schedule)
    for old, new, anew in zip(before, shrunk, times(Schedule(config, frames, depths=depths)), strict=True):
        assert (new >= old).all()
        np.testing.assert_array_equal(new, anew)
    schedule.revert()
    for one, other in zip(before, times(schedule), strict=True):
        np.testing.assert_array_equal(one, other)


@cases_in_the_long_run(40)
@given(case=cases(max_layers=3))
def test_bounds(case):
    """No layer is faster than its own figure; one alone needs no more, once FIFOs don't matter."""
    config = case.config
    cycles = Schedule(config, 6, depths=[None] * len(config.layers))
    cycles.solve()
    slowest = max(layer.cycles for layer in config.layers)
    assert cycles.frame_ends[-1] - cycles.frame_ends[0] >= 5 * slowest - slowest
    for number, layer in enumerate(config.layers):
        assert isinstance(layer, PyramidLayerConfig)
        assert len(cycles.taken[number]) == 6 * layer.reuse.beats_in
        assert len(cycles.taken[number + 1]) == 6 * layer.tiles.windows * layer.output.folds
    if len(config.layers) == 1:
        assert steady_cycles(config if config.layers[0].fifo_depths[0] > 50 else sized(case).config).interval == slowest
