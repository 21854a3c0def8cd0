"""Layers divided among cores: programs, what they compute, and their traffic beside Yang's multi-core model."""

from __future__ import annotations

import json
from dataclasses import replace

import interpret
import numpy as np
import pytest
from accelerators import global_average_pool
from counted import cases_in_the_long_run
from engine_nests import problem
from graphs import graphs
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from partitions import Partition, external_words
from programs import SMALL, alone, conv, engines, group_of, inputs_for, networks, tamed, tasks_of
from refusals import left_out_if

import hwgen
from hwgen import boards, plan
from hwgen.errors import ConfigError, PlanError
from hwgen.fields import written
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job, digest, job_bytes
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.file import Program
from hwgen.program.layout import WORD
from hwgen.program.split import Split, frames_per_round, splits
from hwgen.program.tiles import Tiling, best_tilings
from hwgen.schedule.engine import EngineSchedule, map_bytes_read

LEFT_OUT = (
    "buffers hold no tile",
    "too few for inputs",
    "no factor",
    "can't round",
    "so near a tie",
    "products of two maps",
)


def check(found: ProgramSchedule, seed: int = 1) -> None:
    """Interpreted, the program gives what the golden model gives, for every frame; no engine refuses its jobs."""
    assert not [each for number, job in enumerate(found.jobs) for each in faults(found.engine, number, job)]
    frames = inputs_for(found.network, found.frames, seed)
    for got, expected in zip(
        interpret.run_outputs(found.program, *frames), golden.outputs(found.network, frames), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def a_layer(**sizes) -> Network:
    """A convolution alone, whose weights are one term."""
    layer = conv(**sizes)
    return alone(replace(layer, weights=np.maximum(layer.weights, -127)))


def traffic(found: ProgramSchedule) -> dict[str, int]:
    """Bytes of maps, weights and outputs that the hardware moves, by its exact schedule."""
    run = EngineSchedule(found.engine, found.jobs).run()
    maps = int(map_bytes_read(found.engine, found.jobs).sum())
    parameters = WORD * sum(job.load.p_words for job in found.jobs)
    return {"input": maps, "weights": int(run.read.sum()) - maps - parameters, "output": int(run.written.sum())}


@pytest.mark.parametrize("cores", [2, 4])
def test_weights_of_all_channels_are_stored_once(cores):
    """Averages of whole maps in several chunks, of blocks of channels that cores divide."""
    source = FeatureMap(channels=16, height=11, width=12, type=UINT8, zero_point=163)
    network = alone(global_average_pool(np.random.default_rng(0), "whole", source))
    found = schedule(network, replace(SMALL, map_words=64, cores=cores))
    assert found.tiled_passes[0].task.split.members == 2
    assert found.tiled_passes[0].tiling.taps < 11
    check(found)


@cases_in_the_long_run(40)
@given(
    network=networks(max_layers=3),
    engine=engines(),
    cores=st.integers(2, 8),
    frames=st.sampled_from([1, 1, 2, 3, 5]),
)
def test_random_networks(network, engine, cores, frames):
    with left_out_if(*LEFT_OUT):
        found = schedule(network, replace(engine, maps=8, cores=cores), frames=frames)
    check(found)


@given(
    graphs(max_steps=4, max_side=9, for_engine=True),
    engines(),
    st.sampled_from([2, 3, 4]),
    st.sampled_from([1, 1, 2]),
)
@cases_in_the_long_run(20)
def test_random_graphs(network, engine, cores, frames):
    """Graphs of all layers that the engine computes, on cores that may have nothing left of a layer."""
    with left_out_if(*LEFT_OUT, "no lookup tables with"):
        found = schedule(tamed(network), replace(engine, maps=8, cores=cores), frames=frames)
    check(found)


def test_tiles_of_padding_alone():
    """Behind a map of one pixel, all rows of a convolution's windows are padding."""
    first = replace(conv(kernel=1, channels=1, maps=1, size=(1, 1)), name="conv0")
    output = replace(first.output, height=2)
    window = Window(kernel=(1, 1), stride=(2, 1), padding=(1, 0, 1, 0))
    second = replace(first, name="conv1", input=first.output, output=output, window=window)
    network = tamed(Network(name="padded", layers=(first, second)))
    check(schedule(network, replace(SMALL, map_words=64, slots=2, cores=2), frames=2))


@pytest.mark.long
@settings(max_examples=400)
@given(
    network=networks(max_layers=5, max_side=24, max_channels=80),
    engine=engines(),
    cores=st.integers(2, 16),
    frames=st.sampled_from([1, 1, 2, 3, 4, 7]),
)
def test_many_random_networks(network, engine, cores, frames):
    with left_out_if(*LEFT_OUT):
        found = schedule(network, replace(engine, maps=8, cores=cores), frames=frames)
    check(found)


LARGE = EngineConfig(map_words=4096, weight_steps=8192, cores=16)


@settings(max_examples=30)
@given(data=st.data())
def test_traffic_is_that_of_yangs_model(data):
    """Of any layer, divided in any way, where buffers hold each core's input and weights."""
    kernel, stride = data.draw(st.sampled_from([(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)]))
    size = data.draw(st.integers(kernel, 30)), data.draw(st.integers(kernel, 30))
    channels, maps = 8 * data.draw(st.integers(1, 4)), 8 * data.draw(st.integers(1, 20))
    network = a_layer(kernel=kernel, stride=stride, channels=channels, maps=maps, size=size)
    (task,) = tasks_of(network)
    frames = data.draw(st.sampled_from([1, 2, 4]))
    split = data.draw(
        st.sampled_from(splits(LARGE, task.core_folds(LARGE), task.rows, task.edge, frames, by_rows=True))
    )
    assume(split.frames == frames)
    divided = task.divided(split)
    (tiling, _), *_ = best_tilings(divided, LARGE)
    found = schedule(network, LARGE, tilings={"conv": tiling}, frames=frames)
    partition = Partition(
        kernels=split.members, rows=split.teams if split.by_rows else 1, frames=1 if split.by_rows else split.teams
    )
    expected = external_words(problem(task), partition, box=(tiling.box_rows, tiling.columns))
    assert traffic(found) == expected


@pytest.mark.parametrize(("teams", "members", "by_rows"), [(1, 4, False), (4, 1, True), (2, 2, True), (1, 1, False)])
@pytest.mark.parametrize("maps_stay", [True, False])
def test_what_is_loaded_again_is_that_of_yangs_model(teams, members, by_rows, maps_stay):
    """Buffers hold two boxes and two folds: the outer loop's operand is loaded once, the other one for each pass."""
    engine = replace(SMALL, cores=4, map_words=64, weight_steps=64)
    network = a_layer(channels=8, maps=64, size=(48, 16))
    (task,) = tasks_of(network)
    split = Split(teams=teams, members=members, total_rows=task.rows if by_rows else 0)
    tiling = Tiling(rows=2, columns=16, box_rows=2, channels=8, taps=3, maps_stay=maps_stay).divided(split)
    found = schedule(network, engine, tilings={"conv": tiling})
    check(found)
    divided = task.divided(split)
    boxes, folds = -(-divided.rows // 2), divided.folds(engine)
    weights_fit = folds * 18 <= engine.weight_steps
    expected = external_words(
        problem(task),
        Partition(kernels=members, rows=teams),
        box=(2, 16),
        input_loads=1 if maps_stay else folds,
        weight_loads=boxes if maps_stay and not weights_fit else 1,
    )
    assert traffic(found) == expected


def test_what_is_broadcast_is_read_once():
    """By hand: input once for all kernels, weights once for all rows and frames, two rows of halo at each border."""
    task = problem(tasks_of(alone(conv(channels=8, maps=32, size=(12, 10))))[0])
    whole = {"input": 960, "weights": 9 * 8 * 32, "output": 12 * 10 * 32}
    assert external_words(task, Partition()) == whole
    assert external_words(task, Partition(kernels=4)) == whole
    assert external_words(task, Partition(rows=4)) == whole | {"input": 960 + 3 * 2 * 80}
    assert external_words(task, Partition(frames=4)) == {
        "input": 4 * 960,
        "weights": 9 * 8 * 32,
        "output": 4 * 12 * 10 * 32,
    }


def test_one_core_is_the_engine_as_it_was():
    assert digest(SMALL) == digest(replace(SMALL, cores=1))
    assert "cores" not in written(SMALL)
    assert job_bytes(SMALL) == Job.BYTES < job_bytes(replace(SMALL, cores=2))


@pytest.mark.parametrize("cores", [0, 17, True, 2.0])
def test_cores_out_of_range(cores):
    with pytest.raises(ConfigError, match="cores must be from 1 to 16"):
        EngineConfig(cores=cores)


def test_several_cores_have_arrays_of_8_maps():
    with pytest.raises(ConfigError, match="maps must be 8 with several cores, not 16"):
        EngineConfig(maps=16, cores=2)


def test_jobs_of_several_cores_keep_their_fields(tmp_path):
    """In a program's image, and in its file."""
    found = schedule(hwgen.load("resnet8").network, replace(SMALL, cores=4), frames=2)
    assert found.program.jobs == found.jobs
    path = tmp_path / "program"
    found.program.write(path)
    assert bytes(Program.read(path, found.engine)) == bytes(found.program)


def test_plans_of_several_cores_are_read_again():
    """plan.json says how each layer is divided, and gives the same jobs."""
    made = plan.make(
        hwgen.load("resnet8").network, boards.load("zc706"), template="engine", cores=4, array=(8, 11), batch=2
    )
    group = group_of(made)
    assert group.engine.cores == 4
    divided = {work.task.name: work.task.split for work in group.schedule.tiled_passes}
    text = plan.write(made)
    for entry in json.loads(text)["groups"][0]["layers"]:
        if entry["name"] in divided and "passes" not in entry:
            split = divided[entry["name"]]
            assert entry.get("teams", 1) == split.teams
            assert entry.get("members", 1) == split.members
    again = group_of(plan.read(text, made.network, made.board))
    assert again.schedule.jobs == group.schedule.jobs
    assert again.cycles == group.cycles


@pytest.mark.parametrize("boxes", ["by_taps", "rolling"])
def test_boxes_of_one_core(boxes):
    sizes = {"rows": 1, "columns": 1, "box_rows": 1, "channels": 24, "taps": 3, "members": 2, boxes: True}
    with pytest.raises(PlanError, match=f"conv: {boxes} must be false for a layer that several cores compute"):
        schedule(alone(conv()), replace(SMALL, cores=4), tilings={"conv": Tiling(maps_stay=True, **sizes)})


def test_a_division_that_the_cores_cannot_make():
    tiling = Tiling(rows=1, columns=1, box_rows=1, channels=24, taps=3, maps_stay=True, teams=3, members=2)
    with pytest.raises(
        PlanError,
        match="the 4 cores of the engine can't divide the layer into 3 teams of 2 cores; what works: 1 teams",
    ):
        schedule(alone(conv()), replace(SMALL, cores=4), tilings={"conv": tiling}, frames=3)


@pytest.mark.parametrize(
    ("frames", "at_once", "mean"), [(4, 4, 4), (4, 3, 2), (4, 2, 2), (3, 2, 1.5), (5, 4, 2.5), (1, 1, 1)]
)
def test_frames_of_a_round(frames, at_once, mean):
    """Three teams compute four frames in two rounds, as two teams do: the last round counts whole."""
    assert frames_per_round(frames, at_once) == mean
