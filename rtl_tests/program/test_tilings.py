"""Tilings that are given to the engine's compiler, and port and array in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import REFUSALS, SMALL, alone, alone_chain, check, conv, engines, networks, tasks_of
from refusals import left_out_if

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.given_tilings import tiling_cost
from hwgen.program.passes import Pass
from hwgen.program.tiles import Room, Tiling, candidates
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.schedule.engine_core import group_steps

TILING = Tiling(rows=2, columns=5, box_rows=4, channels=8, taps=3, maps_stay=True)


def test_a_given_tiling_is_used():
    found = schedule(alone_chain(conv(), 2), SMALL, tilings={"conv1": TILING})
    assert [work.tiling == TILING for work in found.tiled_passes] == [False, True]
    assert found.groups == ((0,), (1,))
    check(found)


@given(networks(most_layers=1), engines(), st.data())
@cases_in_the_long_run(20)
def test_any_tiling_that_is_compared_may_be_given(network, engine, data):
    """Also with port and array in turn."""
    with left_out_if(*REFUSALS):
        tasks = tasks_of(network)
    assume(len(tasks) == 1)
    (task,) = tasks
    compared = candidates(task, engine, Room.whole(engine))
    assume(compared)
    tiling = data.draw(st.sampled_from(compared))
    with left_out_if("buffers don't hold"):
        tiling_cost(task, engine, tiling)
    check(schedule(network, engine, double_buffered=data.draw(st.booleans()), tilings={task.name: tiling}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "conv: rows of a tiling must be from 1 to 9, not 0"),
        ({"columns": 15}, "conv: columns of a tiling must be from 1 to 14, not 15"),
        ({"box_rows": 3}, "conv: box_rows of a tiling must be from 1 to 10, a multiple of 2 or all, not 3"),
        ({"channels": 12}, "conv: channels of a tiling must be from 1 to 24, a multiple of 8 or all, not 12"),
        ({"taps": 4}, "conv: taps of a tiling must be from 1 to 3, not 4"),
        ({"folds": 0}, "conv: folds of a tiling must be from 1 to 2, not 0"),
        ({"folds": 3}, "conv: folds of a tiling must be from 1 to 2, not 3"),
        ({"rows": 3, "box_rows": 3, "columns": 7}, "3 x 7 pixels is too large .*; 20 pixels at most fit"),
        ({"box_rows": 10, "columns": 8, "channels": 24}, "conv: the engine's buffers don't hold"),
    ],
)
def test_tilings_that_are_refused(change, message):
    with pytest.raises(PlanError, match=message):
        schedule(alone(conv()), SMALL, tilings={"conv": replace(TILING, **change)})


def test_a_tiling_of_no_layer():
    with pytest.raises(PlanError, match="a layer that is computed: conv; there is no 'cnov'"):
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
    most_rows = 1 if task.has_single_rows else task.rows // task.edge
    kernel, rows = task.window.kernel, draw(st.integers(1, most_rows)) * task.edge
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
            with pytest.raises(PlanError, match="conv: the engine's buffers don't hold"):
                schedule(alone(layer), SMALL, **arguments)


LARGER = replace(SMALL, map_words=256, weight_steps=512, output_words=256)


@given(networks(most_layers=1), st.data())
@cases_in_the_long_run(20)
def test_any_tiling_may_be_given(network, data):
    """Whatever tiling fits the buffers is exact; what jobs do is what the interpreter finds consistent."""
    with left_out_if(*REFUSALS):
        task, *_ = tasks_of(network)
    tiling, double = data.draw(cut(task)), data.draw(st.booleans())
    room = Room(map_words=data.draw(st.integers(4, 256)), weight_steps=data.draw(st.integers(64, 512)))
    with left_out_if("too large", "don't hold", "folds of a tiling"):
        found = schedule(network, LARGER, double_buffered=double, tilings={task.name: tiling}, room=room)
    check(found)


@pytest.mark.long
@settings(max_examples=700)
@given(networks(most_layers=1, most_side=24), st.data())
def test_many_tilings_that_are_given(network, data):
    test_any_tiling_may_be_given.hypothesis.inner_test(network, data)
