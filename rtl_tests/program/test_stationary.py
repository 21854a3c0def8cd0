"""What tilings of the engine move: by the jobs that are made, by the counts of nests of loops, and by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import stationary
from engine_nests import problem, words
from engine_papers import as_tiling, band
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, alone, conv, tasks_of

from hwgen.blocking import peemen
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.tiling import distinct, divisors
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.ops import Conv
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.given_tilings import box_words
from hwgen.program.passes import Pass
from hwgen.program.tiles import Room, Tiling, best_tilings, steps

ENGINE = replace(SMALL, map_words=1024, weight_steps=4096, output_words=1024, slots=32)
#: An array of as many maps as `found_for` has.
WIDE = replace(SMALL, maps=16)


def emitted(found: ProgramSchedule) -> dict[str, int]:
    """Bytes that a schedule's jobs move."""
    loads, stores = [job.load for job in found.jobs], [job.store for job in found.jobs]
    return {
        "input": 8 * sum(load.x_blocks * load.x_rows * load.x_words for load in loads),
        "weights": 4 * found.engine.maps * sum(load.w_steps for load in loads),
        "output": 8 * sum(store.blocks * store.rows * store.words for store in stores),
    }


def valid(kernel: int, stride: int, rows: int, columns: int, channels: int, maps: int) -> Network:
    """A convolution without padding."""
    size = ((rows - 1) * stride + kernel, (columns - 1) * stride + kernel)
    layer = Conv.shaped(
        name="conv",
        channels=channels,
        outputs=maps,
        height=size[0],
        width=size[1],
        window=Window(kernel=(kernel, kernel), stride=(stride, stride)),
    )
    return alone(layer)


@st.composite
def even(draw) -> tuple[Network, Tiling]:
    """A convolution without padding, in tiles that are all of one size."""
    kernel = draw(st.integers(1, 5))
    stride, columns = draw(st.integers(1, min(kernel, 3))), draw(st.sampled_from([4, 6, 9]))
    channels, maps = 8 * draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([8, 16, 40]))
    kind = draw(st.sampled_from(["box", "by_taps", "rolling"]))
    rows, boxes = draw(st.sampled_from([1, 2, 3])), draw(st.integers(1 + (kind == "rolling"), 4))
    network = valid(kernel, stride, rows * boxes, columns, channels, maps)
    strips, taps = divisors(columns), list(range(1, kernel + 1))
    if kind == "by_taps":
        strips.pop()  # what a tile reads last is not what the one below reads first
        taps = [each for each in taps if (kernel % each or each) >= stride]
    tiling = Tiling(
        rows=rows,
        columns=draw(st.sampled_from(strips)),
        box_rows=rows,
        channels=channels if kind == "rolling" else 8 * draw(st.sampled_from(divisors(channels // 8))),
        taps=draw(st.sampled_from(taps)),
        tap_columns=draw(st.integers(1, kernel)),
        maps_stay=draw(st.booleans()),
        by_taps=kind == "by_taps",
        rolling=kind == "rolling",
    )
    return network, tiling


def least_room(task: Pass, tiling: Tiling, engine: EngineConfig) -> Room:
    count = steps(task, tiling.channels, tiling.taps, tiling.tap_columns)
    return Room(map_words=box_words(task, engine, tiling), weight_steps=count)


@given(even())
@settings(max_examples=20)
def test_jobs_move_what_the_nest_counts(drawn):
    """With buffers that hold no more than a chunk and a tile."""
    network, tiling = drawn
    (task,) = tasks_of(network)
    room = least_room(task, tiling, ENGINE)
    found = schedule(network, ENGINE, double_buffered=False, tilings={"conv": tiling}, room=room)
    assert emitted(found) == words(task, ENGINE, tiling)


@pytest.mark.parametrize(("size", "channels", "maps"), [((24, 26), 16, 32), ((12, 13), 64, 64), ((7, 7), 128, 32)])
def test_the_estimate_is_the_count(size, channels, maps):
    """The compiler's own choice, with whole buffers: estimated, emitted and at least as the nest of the most that stays
    has it."""
    rows, columns = size
    network = valid(3, 1, rows, columns, channels, maps)
    (task,) = tasks_of(network)
    engine = EngineConfig()
    ((tiling, cost),) = best_tilings(task, engine)
    found = schedule(network, engine, tilings={"conv": tiling})
    moved = emitted(found)
    parameters = sum(job.load.p_words for job in found.jobs) * 8
    assert abs(sum(moved.values()) + len(found.jobs) * 144 - 8 * cost.words) <= parameters
    assert all(moved[operand] >= once for operand, once in zip(OPERANDS, least(task), strict=True))


def least(task: Pass) -> tuple[int, ...]:
    """Each value moved once."""
    whole = problem(task)
    return whole.input_words, whole.weight_words, whole.output_words


def found_for(layer: Problem, memory: int, *, sums: bool) -> stationary.Tile | None:
    try:
        return stationary.optimise(layer, memory, stationary.Array(maps=16, channels=8, pixels=80), sums=sums)
    except PlanError:
        return None


@pytest.mark.parametrize(
    ("memory", "sums"),
    [
        (150, True),
        (300, True),
        *(pytest.param(memory, sums, marks=pytest.mark.long) for memory in (700, 2000, 6000) for sums in (True, False)),
    ],
)
def test_the_best_tile_is_the_best_of_all(memory, sums):
    """Compared with every tile that the engine takes, each counted as a nest."""
    network = valid(3, 1, 6, 8, 16, 24)
    (task,) = tasks_of(network)
    best = None
    rows, columns, booleans = distinct(6), distinct(8), [True, False]
    for y, x, part, taps, across, kind, stay in product(
        rows, columns, (8, 16), (1, 2, 3), (1, 2, 3), stationary.KINDS, booleans
    ):
        if kind == "rolling" and part < 16:
            continue
        height = y + (taps if kind == "row" else 3) - 1
        held = part * height * (x + 2) + 16 * part * taps * across + (16 * y * x if sums else 0)
        if held < memory and y * x <= 80:
            tiling = Tiling(
                rows=y,
                columns=x,
                box_rows=y,
                channels=part,
                taps=taps,
                maps_stay=stay,
                tap_columns=across,
                by_taps=kind == "row",
                rolling=kind == "rolling",
            )
            moved = sum(words(task, WIDE, tiling).values())
            best = moved if best is None else min(best, moved)
    found = found_for(Problem.of(network.layers[0]), memory, sums=sums)
    assert (found and found.words) == best
    if found:
        assert found.moved == words(task, WIDE, as_tiling(found))


def test_table_one_with_4096_words():
    """By hand: in two groups three folds of 16 maps (of 40), each in strips of 13 columns, of which 4 are read twice,
    down all rows; each weight once, those of 48 maps; each output once. The paper moves half as much again.
    """
    tile = stationary.optimise(peemen.layer(), 4096, stationary.Array(maps=16, channels=8, pixels=208))
    assert (tile.rows, tile.columns, tile.kind) == (1, 13, "rolling")
    assert tile.held == {"input": 8 * 5 * 17, "weights": 16 * 8 * 25, "sums": 16 * 13}
    strips = -(-313 // 13)
    moved = {"input": 6 * 8 * 177 * (313 + 4 * strips), "weights": 2 * 48 * 200, "output": 80 * 173 * 313}
    assert tile.moved == moved
    (paper,) = peemen.optimise(peemen.layer(), [4096])
    assert paper.accesses / tile.words == pytest.approx(1.525, abs=0.001)


@pytest.mark.parametrize("memory", [32, 152])
def test_memories_that_hold_no_tile(memory):
    """128 weights of a tap, 8 values of the input and 16 sums are 152 words; less than the memory is asked for."""
    with pytest.raises(
        PlanError, match=r"conv3: a memory of .* can't hold a tile of 16 maps and 8 channels.* needs 152"
    ):
        stationary.optimise(peemen.layer(), memory, stationary.Array(maps=16, channels=8, pixels=208))


def test_a_band_of_a_layer():
    """The first rows of a convolution without padding are those of the whole."""
    layer = replace(conv(kernel=1), window=Window(kernel=(1, 1)))
    part = band(alone(layer), 4)
    assert part.input.shape == (24, 4, 14)
    assert part.layers[0].output.shape == (40, 4, 14)
    (small,) = part.layers
    assert isinstance(small, Conv)
    np.testing.assert_array_equal(small.weights, layer.weights)
