"""Tilings of the engine: what they move, by jobs and by counts of nests, and programs for slow memories."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import stationary
from counted import cases_in_the_long_run
from engine_bandwidth import bounds, draw
from engine_nests import problem, words
from engine_papers import as_tiling, band
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import REFUSALS, SMALL, alone, alone_chain, check, conv, engines, networks, tasks_of
from refusals import left_out_if, refusals_in

from hwgen.blocking import peemen
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.tiling import distinct, divisors
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.ops import Conv
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.given_tilings import box_words, tiling_cost
from hwgen.program.passes import Pass
from hwgen.program.tiles import Room, Tiling, best_tilings, candidates, steps
from hwgen.report.picture import picture
from hwgen.schedule.engine import EngineSchedule, MemoryTiming, group_steps

TILING = Tiling(rows=2, columns=5, box_rows=4, channels=8, taps=3, maps_stay=True)


def test_a_given_tiling_is_used():
    found = schedule(alone_chain(conv(), 2), SMALL, tilings={"conv1": TILING})
    assert [work.tiling == TILING for work in found.tiled_passes] == [False, True]
    assert found.groups == ((0,), (1,))
    check(found)


@given(networks(max_layers=1), engines(), st.data())
@cases_in_the_long_run(20)
def test_any_tiling_that_is_compared_may_be_given(network, engine, data):
    """Also with port and array in turn."""
    with left_out_if(*REFUSALS):
        tasks = tasks_of(network)
    assume(len(tasks) == 1)
    (task,) = tasks
    compared = candidates(task, engine, Room.whole(engine))
    assume(len(compared.rows))
    tiling = compared.tiling(data.draw(st.integers(0, len(compared.rows) - 1)))
    with left_out_if("don't fit the engine's"):
        tiling_cost(task, engine, tiling)
    check(schedule(network, engine, double_buffered=data.draw(st.booleans()), tilings={task.name: tiling}))


@pytest.mark.parametrize(("change", "message"), refusals_in("tilings.txt"))
def test_tilings_that_are_refused(change, message):
    with pytest.raises(PlanError, match=message):
        schedule(alone(conv()), SMALL, tilings={"conv": replace(TILING, **change)})


def test_a_tiling_of_no_layer():
    with pytest.raises(PlanError, match="tilings: 'cnov' is not a layer with a pass of its own; these have one: conv"):
        schedule(alone(conv()), SMALL, tilings={"cnov": TILING})


def cycles_of(found: ProgramSchedule, engine: EngineConfig = SMALL):
    return EngineSchedule(engine, found.jobs, MemoryTiming()).run()


def test_in_turn():
    """Nothing is loaded before all that came before is computed and stored, so that cycles add up."""
    network = alone_chain(conv(size=(12, 11)), 2)
    found = schedule(network, SMALL, double_buffered=False)
    cycles = cycles_of(found)
    loading = [number for number, job in enumerate(found.jobs) if job.load.x_blocks or job.load.w_steps]
    assert len(loading) > 20
    for number in loading[1:]:
        words = cycles.read[number] // 8
        assert cycles.loaded[number] > max(cycles.stored[number - 1], cycles.computed[number - 1]) + words
    moved = (sum(cycles.read) + sum(cycles.written)) // 8
    work = sum(job.compute.groups * job.compute.folds * group_steps(job.compute) for job in found.jobs)
    assert cycles.cycles > moved + work
    check(found)


def test_beside_each_other():
    """The same tiles, double-buffered: as many bytes of maps and weights, and fewer cycles."""
    network, engine = alone(conv(size=(20, 20))), replace(SMALL, weight_steps=256)
    (beside, turns) = (
        schedule(network, engine, double_buffered=double, tilings={"conv": TILING}) for double in (True, False)
    )
    fast, slow = cycles_of(beside, engine), cycles_of(turns, engine)
    assert ([*fast.read], [*fast.written]) == ([*slow.read], [*slow.written])
    assert fast.cycles < slow.cycles * 0.8


@st.composite
def cut(draw, task: Pass) -> Tiling:
    """Any tiling of a pass, of those that the compiler doesn't make by itself, too."""
    max_rows = 1 if task.has_single_rows else task.rows // task.edge
    kernel, rows = task.window.kernel, draw(st.integers(1, max_rows)) * task.edge
    kind = draw(st.sampled_from(["box", "by_taps", "rolling"]))
    boxes = draw(st.integers(1, -(-task.rows // rows))) if kind == "box" else 1
    parts = draw(st.integers(1, -(-task.channels // 8)))
    whole = task.maximum or draw(st.booleans())
    return Tiling(
        rows=rows,
        columns=draw(st.integers(1, task.columns // task.edge)) * task.edge,
        box_rows=rows * boxes,
        channels=task.channels if kind == "rolling" or parts * 8 > task.channels else 8 * parts,
        taps=kernel[0] if whole else draw(st.integers(1, kernel[0])),
        tap_columns=None if whole else draw(st.integers(1, kernel[1])),
        maps_stay=draw(st.booleans()),
        folds=draw(st.integers(1, 3)),
        by_taps=kind == "by_taps",
        rolling=kind == "rolling",
    )


def test_a_box_of_a_channelwise_layer_has_the_blocks_of_all_its_folds():
    """Boxes of one row of 9 columns, two blocks: 4 words of each of 5 banks. Three words hold no such box."""
    weights = np.random.default_rng(0).integers(-128, 128, (16, 1, 3, 3))
    layer = replace(conv(channels=16, maps=16, size=(6, 10)), weights=weights, groups=16)
    tiling = Tiling(
        rows=1, columns=8, box_rows=1, channels=8, taps=1, maps_stay=False, folds=2, tap_columns=3, by_taps=True
    )
    for map_words in (4, 3):
        arguments = {"tilings": {"conv": tiling}, "room": Room(map_words=map_words, weight_steps=128)}
        if map_words == 4:
            check(schedule(alone(layer), SMALL, **arguments))
        else:
            with pytest.raises(
                PlanError, match="conv: its boxes of 1 x 8 outputs don't fit the engine's map buffer of 3 words"
            ):
                schedule(alone(layer), SMALL, **arguments)


LARGER = replace(SMALL, map_words=256, weight_steps=512, output_words=256)


@given(networks(max_layers=1), st.data())
@cases_in_the_long_run(20)
def test_any_tiling_may_be_given(network, data):
    """Whatever tiling fits the buffers is exact; what jobs do is what the interpreter finds consistent."""
    with left_out_if(*REFUSALS):
        task, *_ = tasks_of(network)
    tiling, double = data.draw(cut(task)), data.draw(st.booleans())
    room = Room(map_words=data.draw(st.integers(4, 256)), weight_steps=data.draw(st.integers(64, 512)))
    with left_out_if("tile must have at most", "too wide", "don't fit the engine's", "folds must be"):
        found = schedule(network, LARGER, double_buffered=double, tilings={task.name: tiling}, room=room)
    check(found)


@pytest.mark.long
@settings(max_examples=700)
@given(networks(max_layers=1, max_side=24), st.data())
def test_many_tilings_that_are_given(network, data):
    test_any_tiling_may_be_given.hypothesis.inner_test(network, data)


def test_the_bound_of_one_job():
    """16 maps of 8 channels, 1x1, 4 x 5 pixels, on 5 lanes: 4 groups of 2 steps in 2 folds, but a word for each pixel.

    The port: the job's 18 words, 20 of the input, 16 of weights, 16 parameters, 40 of the output; twice at pace 2.
    """
    tiling = Tiling(rows=4, columns=5, box_rows=4, channels=8, taps=1, maps_stay=True, folds=2)
    layer = conv(kernel=1, channels=8, maps=16, size=(4, 5))
    found = schedule(alone(layer), replace(SMALL, output_words=256), tilings={"conv": tiling})
    assert len(found.jobs) == 1
    assert bounds(found, 1) == (40, 110, 110, 110)
    assert bounds(found, 2) == (40, 220, 220, 220)
    assert bounds(found, Fraction(4, 3)) == (40, 147, 147, 147)


@pytest.mark.parametrize("pace", [1, 2, 8])
def test_cycles_are_near_the_bound(pace):
    """Once a layer is long enough that its ends weigh little."""
    found = schedule(alone(conv(channels=32, maps=32, size=(40, 40))), EngineConfig(), pace=pace)
    *_, least = bounds(found, pace)
    cycles = EngineSchedule(found.engine, found.jobs, MemoryTiming(pace=pace)).run().cycles
    assert least < cycles < 1.15 * least


def test_slow_memories_ask_for_other_tiles():
    """A program made for its memory moves fewer bytes, and takes no more cycles there."""
    network = alone(conv(channels=24, maps=40, size=(12, 12)))
    timing = MemoryTiming(pace=8)
    runs = [EngineSchedule(SMALL, schedule(network, SMALL, pace=pace).jobs, timing).run() for pace in (1, 8)]
    other, own = (sum(run.read) + sum(run.written) + run.fetched for run in runs)
    assert own <= other
    assert runs[1].cycles <= runs[0].cycles
    check(schedule(network, SMALL, pace=8))


def test_the_plot():
    row = {"network": "net", "bus": 8, "array": 10, "port": 20, "by_layers": 25, "by_groups": 24, "cycles": 26}
    rows = [row | {"pace": pace} for pace in (1, 2, 4)]
    drawn = picture("title", lambda figure: draw(figure, rows), "svg", (6, 4))
    assert b"bytes a cycle" in drawn
    assert drawn == picture("title", lambda figure: draw(figure, rows), "svg", (6, 4))


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


def min_room(task: Pass, tiling: Tiling, engine: EngineConfig) -> Room:
    count = steps(task, tiling.channels, tiling.taps, tiling.tap_columns)
    return Room(map_words=box_words(task, engine, tiling), weight_steps=count)


@given(even())
@settings(max_examples=20)
def test_jobs_move_what_the_nest_counts(drawn):
    """With buffers that hold no more than a chunk and a tile."""
    network, tiling = drawn
    (task,) = tasks_of(network)
    room = min_room(task, tiling, ENGINE)
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
