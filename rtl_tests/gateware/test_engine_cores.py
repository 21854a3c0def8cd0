"""Engines of several cores, in Verilator: values, cycles and bytes of networks whose layers are divided among them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from engine_nests import problem
from hypothesis import given, settings
from hypothesis import strategies as st
from partitions import Partition, external_words
from programs import SMALL, alone, behind, conv, image, networks, tasks_of, timings
from refusals import left_out_if

import hwgen
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import unpack_map
from hwgen.program.split import Split
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine
from hwgen.simulate.engine import EngineMemory, EngineRun
from hwgen.verilog.emitted import engine_files

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
    ),
]


@pytest.fixture(scope="module", params=[2, 4])
def cores(request):
    """An engine of several cores, and its circuit."""
    config = replace(SMALL, cores=request.param)
    return config, engine_files(config)


def check(circuit, found: ProgramSchedule, timing: MemoryTiming | None = None, seed: int = 0, **options) -> EngineRun:
    """Values are those of the golden model, cycles and bytes those of the schedule."""
    timing = timing or MemoryTiming()
    memory, frames = image(found, seed)
    program = found.program
    run = engine.run(circuit, memory, memory=EngineMemory(timing=timing), limit=5_000_000, **options)
    assert run.error == Error.NONE
    for place, wanted in zip(program.outputs, golden.outputs(found.network, frames), strict=True):
        for number in range(found.frames):
            np.testing.assert_array_equal(unpack_map(run.image[place.at(number)], place.map), wanted[number])
    counted = EngineSchedule(found.engine, found.jobs, timing).run()
    assert set(run.cycles) == {START_CYCLES + counted.cycles + DONE_CYCLES}
    assert run.read == sum(counted.read) + counted.fetched
    assert run.written == sum(counted.written)
    return run


def divisions(found: ProgramSchedule) -> set[tuple[int, int, bool]]:
    return {(work.tiling.teams, work.tiling.members, work.tiling.split_rows) for work in found.tiled_passes}


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_convolution(cores, frames):
    config, circuit = cores
    check(circuit, schedule(alone(conv(maps=40)), config, frames=frames))


@pytest.mark.parametrize(("loop", "frames"), [("maps", 1), ("rows", 1), ("frames", 2)])
def test_traffic_is_that_of_yangs_model(cores, loop, frames):
    """What the circuit reads and writes, by regions of memory: broadcasts once, halos, and each output once."""
    config, circuit = cores
    layer = conv(channels=16, maps=32, size=(12, 10))
    network = alone(replace(layer, weights=np.maximum(layer.weights, -127)))
    (task,) = tasks_of(network)
    count = {"maps": config.cores, "rows": config.cores, "frames": frames}[loop]
    split = Split(
        teams=1 if loop == "maps" else count,
        members=count if loop == "maps" else 1,
        total_rows=task.rows if loop == "rows" else 0,
    )
    tiling = Tiling(
        rows=1, columns=10, box_rows=12 // count if loop == "rows" else 12, channels=16, taps=3, maps_stay=True
    )
    found = schedule(network, config, tilings={"conv": tiling.divided(split)}, frames=frames)
    partition = {"maps": Partition(kernels=count), "rows": Partition(rows=count), "frames": Partition(frames=count)}[
        loop
    ]
    expected = external_words(problem(task), partition)
    weights = found.tiled_passes[0].data.weights
    program = found.program
    regions = {
        "input": (program.inputs[0].address, program.inputs[0].at(frames - 1).stop),
        "weights": (weights, weights + expected["weights"]),
        "output": (program.outputs[0].address, program.outputs[0].at(frames - 1).stop),
    }
    run = check(circuit, found, regions=regions)
    assert run.regions == {
        "input": (expected["input"], 0),
        "weights": (expected["weights"], 0),
        "output": (0, expected["output"]),
    }


@pytest.mark.parametrize(("name", "frames"), [("lenet5", 1), ("resnet8", 1), ("resnet8", 3)])
def test_networks(cores, name, frames):
    config, circuit = cores
    found = schedule(hwgen.load(name).network, config, frames=frames)
    check(circuit, found, MemoryTiming(latency=33, write_latency=5))
    assert len(divisions(found)) > 1


def test_reads_and_writes_at_the_same_time(cores):
    """Memory of two beats per cycle; the same program takes longer where reads and writes take turns."""
    config, circuit = cores
    found = schedule(hwgen.load("resnet8").network, config, frames=2, pace=Fraction(1, 2))
    run = check(circuit, found, MemoryTiming(pace=1, pace_beats=2))
    in_turn = EngineSchedule(config, found.jobs, MemoryTiming()).run()
    assert max(run.cycles) < START_CYCLES + in_turn.cycles + DONE_CYCLES


@settings(max_examples=12)
@given(network=networks(), timing=timings(), frames=st.sampled_from([1, 1, 2, 3, 4]), seed=st.integers(0, 99))
def test_random_networks(cores, network, timing, frames, seed):
    config, circuit = cores
    with left_out_if(
        "buffers hold no tile",
        "too few for inputs",
        "no factor",
        "can't round",
        "so near a tie",
        "products of two maps",
    ):
        found = schedule(network, config, frames=frames)
    check(circuit, found, timing, seed)


@pytest.fixture(scope="module", params=[4, 16, 64])
def three_cores(request):
    """An engine of three cores behind another bus, and its circuit."""
    config = replace(behind(request.param), cores=3)
    return config, engine_files(config)


@settings(max_examples=25)
@given(
    network=networks(max_layers=3, max_side=20),
    timing=timings(),
    frames=st.sampled_from([1, 2, 3, 4, 5]),
    seed=st.integers(0, 99),
)
def test_random_networks_behind_other_buses(three_cores, network, timing, frames, seed):
    config, circuit = three_cores
    with left_out_if(
        "buffers hold no tile",
        "too few for inputs",
        "no factor",
        "can't round",
        "so near a tie",
        "products of two maps",
    ):
        found = schedule(network, config, frames=frames)
    check(circuit, found, timing, seed)
