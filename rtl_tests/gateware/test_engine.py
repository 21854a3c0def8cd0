"""The engine as a whole, in Verilator: networks from memory to memory, and every cycle."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs_compiler
from programs import (
    DIGITS,
    SMALL,
    alone,
    behind,
    clamped,
    conv,
    image,
    networks,
    normalised,
    scheduled,
    timings,
)

import hwgen
from hwgen.errors import PlanError
from hwgen.gateware.engine.axi import Response
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES, STUCK_CYCLES
from hwgen.gateware.engine.job import PARTS, Compute, Job, Load, Store, pack_jobs
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.network.maps import INT8
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import unpack_map
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine
from hwgen.simulate.engine import EngineMemory, EngineRun, Fault
from hwgen.verilog.emitted import engine_files

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def circuit():
    return engine_files(SMALL)


def check_values(found: ProgramSchedule, run: EngineRun, frames: list[np.ndarray]) -> None:
    """Of the last run, of one frame of each input."""
    assert run.error == Error.NONE
    expected = golden.outputs(found.network, frames)
    for place, each, wanted in zip(found.outputs, found.network.output_maps, expected, strict=True):
        packed = run.image[place.address : place.address + place.size]
        np.testing.assert_array_equal(unpack_map(packed, each), wanted[0])


@pytest.fixture(scope="module", params=[4, 16, 32, 64])
def other_bus(request):
    """An engine behind a bus of another width, and its circuit."""
    config = behind(request.param)
    return config, engine_files(config)


def check(circuit, found: ProgramSchedule, timing: MemoryTiming | None = None, seed: int = 0, **options) -> EngineRun:
    """Values are those of the golden model, cycles and bytes those of the schedule."""
    timing = timing or MemoryTiming()
    memory, frames = image(found, seed)
    run = engine.run(circuit, memory, memory=EngineMemory(timing=timing), limit=5_000_000, **options)
    check_values(found, run, frames)
    counted = EngineSchedule(found.engine, found.jobs, timing).run()
    assert set(run.cycles) == {START_CYCLES + counted.cycles + DONE_CYCLES}
    assert run.read == len(run.cycles) * (sum(counted.read) + counted.fetched)
    assert run.written == len(run.cycles) * sum(counted.written)
    return run


def test_a_convolution(circuit):
    """From memory to memory; twice, after a reset in the midst of a first attempt, and with traffic by regions."""
    found = schedule(alone(conv()), SMALL)
    place = found.outputs[0]
    regions = {
        "jobs": (0, len(found.jobs) * Job.BYTES),
        "input": (found.inputs[0].address, found.inputs[0].address + found.inputs[0].size),
        "output": (place.address, place.address + place.size),
    }
    run = check(circuit, found, runs=2, reset_at=1234, regions=regions)
    assert run.regions["jobs"] == (2 * len(found.jobs) * Job.BYTES, 0)
    assert run.regions["output"] == (0, 2 * place.size)
    assert run.regions["input"][0] >= 2 * found.inputs[0].size
    assert run.regions["input"][1] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "timing"),
    [
        ("lenet5", MemoryTiming(latency=0, write_latency=0)),
        ("lenet5", MemoryTiming(latency=200, write_latency=70, pace=3)),
        ("lenet5", MemoryTiming(latency=30, pace=1, pace_beats=2)),
        ("resnet8", MemoryTiming()),
        pytest.param("mobilenetv1-0.25", MemoryTiming(latency=60), marks=pytest.mark.long),
    ],
)
def test_networks(circuit, name, timing):
    check(circuit, schedule(hwgen.load(name).network, SMALL), timing)


def test_a_clamp(circuit):
    """A Relu with a quantiser of its own, whose products are exact."""
    check(circuit, schedule(clamped(0.61, 0), SMALL))


@pytest.mark.parametrize("size", [(20, 1, 1), (9, 4, 6)])
def test_a_local_response_normalisation(circuit, size):
    check(circuit, schedule(normalised(size, INT8, 5, 20_000), SMALL))


def test_port_and_array_in_turn(circuit):
    check(circuit, schedule(alone(conv()), SMALL, double_buffered=False))


@settings(max_examples=12)
@given(
    network=networks(),
    timing=timings(),
    seed=st.integers(0, 99),
)
def test_random_networks(circuit, network, timing, seed):
    check(circuit, scheduled(network, SMALL), timing, seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(3))
@settings(max_examples=60)
@given(
    network=networks(max_layers=4, max_side=30, max_channels=60),
    timing=timings(),
    seed=st.integers(0, 99),
)
def test_many_random_networks(block, circuit, network, timing, seed):
    """Others in each block."""
    check(circuit, scheduled(network, SMALL), timing, seed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "timing"),
    [
        (DIGITS / "digits.onnx", MemoryTiming()),
        ("resnet8", MemoryTiming(latency=7, write_latency=3, pace=2)),
        ("resnet8", MemoryTiming(latency=7, write_latency=3, pace=9, pace_beats=7)),
        ("mobilenetv1-0.25", MemoryTiming()),
    ],
)
def test_networks_behind_other_buses(other_bus, name, timing):
    """With a reset in the midst of a first attempt."""
    config, circuit = other_bus
    check(circuit, schedule(hwgen.load(name).network, config, pace=timing.beat_cycles), timing, reset_at=1234)


@pytest.mark.long
@settings(max_examples=32)
@given(
    network=networks(max_layers=4, max_side=30, max_channels=60),
    timing=timings(),
    seed=st.integers(0, 99),
)
def test_random_networks_behind_other_buses(other_bus, network, timing, seed):
    config, circuit = other_bus
    check(circuit, scheduled(network, config), timing, seed)


@pytest.mark.long
def test_gaps_behind_other_buses(other_bus):
    config, circuit = other_bus
    found = schedule(hwgen.load("lenet5").network, config)
    memory, frames = image(found, 3)
    for gap_every, gap in ((97, 13), (3, 1), (4, 3)):
        check_values(
            found, engine.run(circuit, memory, memory=EngineMemory(gap_every=gap_every, gap=gap), limit=10**6), frames
        )


@pytest.mark.parametrize(
    ("gap_every", "gap"), [(97, 13), (3, 1), (800, 300), pytest.param(4, 3, marks=pytest.mark.long)]
)
def test_gaps(circuit, gap_every, gap):
    """A memory that stalls changes no value."""
    found = schedule(hwgen.load("lenet5").network, SMALL)
    memory, frames = image(found, 3)
    check_values(
        found, engine.run(circuit, memory, memory=EngineMemory(gap_every=gap_every, gap=gap), limit=10**6), frames
    )


@pytest.mark.parametrize(
    ("what", "response", "error"),
    [
        ("jobs", Response.SLAVE_ERROR, Error.READ_SLAVE),
        ("weights", Response.DECODE_ERROR, Error.READ_DECODE),
        ("input", Response.SLAVE_ERROR, Error.READ_SLAVE),
        ("output", Response.SLAVE_ERROR, Error.WRITE_SLAVE),
        ("output", Response.DECODE_ERROR, Error.WRITE_DECODE),
    ],
)
def test_a_run_after_an_error(circuit, what, response, error):
    """What memory answers by an error ends the run in the midst of a layer, and the next run is right; with and without
    gaps, at times of their own for reads and writes."""
    found = schedule(alone(conv()), SMALL)
    output, jobs = found.outputs[0], len(found.jobs) * Job.BYTES
    begin = {
        "jobs": jobs // 2,
        "weights": found.jobs[-1].load.w_address + 64,
        "input": found.inputs[0].address + 512,
        "output": output.address + 640,
    }[what]
    memory, frames = image(found, 5)
    for timing in (EngineMemory(), EngineMemory(timing=MemoryTiming(latency=3, write_latency=90), gap_every=7, gap=3)):
        fault = Fault(begin=begin, end=begin + 8, response=response)
        run = engine.run(circuit, memory, memory=timing, fault=fault, runs=2, limit=10**6)
        assert run.errors == (error, Error.NONE)
        assert run.cycles[0] < run.cycles[1]
        check_values(found, run, frames)


def run_jobs(circuit, found: ProgramSchedule, program: bytes, seed: int = 1, **options) -> EngineRun:
    """The jobs of a schedule replaced by others, which may be damaged."""
    memory = bytearray(image(found, seed)[0])
    memory[: len(program)] = program
    return engine.run(circuit, bytes(memory), limit=20_000_000, **options)


def test_programs_that_are_refused(circuit):
    """Cut off, of another engine, from its second job on, and no program at all."""
    found = schedule(alone(conv()), SMALL)
    program, half = pack_jobs(SMALL, found.jobs), len(found.jobs) // 2 * Job.BYTES
    rest = len(program) - half
    whole = check(circuit, found, seed=1)
    for other, base, error in (
        (program[:half] + bytes(rest), 0, Error.DAMAGED),
        (program[:half] + np.random.default_rng(0).bytes(rest), 0, Error.DAMAGED),
        (program[:half] + program[: Job.BYTES], 0, Error.DAMAGED),
        (program, Job.BYTES, Error.DAMAGED),
        (program, 8, Error.DAMAGED),
        (bytes(len(program)), 0, Error.DAMAGED),
        (pack_jobs(replace(SMALL, queue=4), found.jobs), 0, Error.FOREIGN),
        (pack_jobs(behind(16), found.jobs), 0, Error.FOREIGN),
    ):
        run = run_jobs(circuit, found, other, program_base=base, runs=2)
        assert run.errors == (error, error)
        assert max(run.cycles) < whole.cycles[0]
        assert run.written <= 2 * whole.written


def test_jobs_that_wait_for_ever(circuit):
    """Sums that nobody drains keep all slots; what is under way ends, and some time later the run."""
    step = Compute(groups=2, folds=4, first=1, kernel_rows=1, kernel_columns=1, channels=1, stride=1)
    jobs = [Job(compute=step), Job(load=Load(end=1), compute=step)]
    with pytest.raises(PlanError, match="wait for each other: 1 of 2 are computed"):
        EngineSchedule(SMALL, jobs).run()
    run = engine.run(circuit, pack_jobs(SMALL, jobs).ljust(4096, b"\0"), limit=STUCK_CYCLES + 500, runs=2)
    assert run.errors == (Error.STUCK, Error.STUCK)
    assert min(run.cycles) > STUCK_CYCLES


def test_slow_memories_are_no_reason_to_stop(circuit):
    """Nothing moves for longer than it takes to call a run stuck, but memory was asked."""
    jobs = [Job(load=Load(w_steps=3)), Job(load=Load(end=1), store=Store(blocks=1, rows=1, words=2, address=2048))]
    timing = MemoryTiming(latency=2 * STUCK_CYCLES, write_latency=2 * STUCK_CYCLES)
    run = engine.run(circuit, pack_jobs(SMALL, jobs).ljust(4096, b"\0"), memory=EngineMemory(timing=timing))
    assert run.error == Error.NONE
    assert run.cycles == (START_CYCLES + EngineSchedule(SMALL, jobs, timing).run().cycles + DONE_CYCLES,)


@functools.cache
def corrupted() -> ProgramSchedule:
    return schedule(alone(conv(channels=9, size=(5, 5))), SMALL)


@settings(max_examples=20)
@given(data=st.data())
def test_bits_that_are_wrong(circuit, data):
    """A job with a wrong bit is refused; a wrong bit of weights or parameters changes no cycle of the run."""
    found = corrupted()
    jobs = len(found.jobs) * Job.BYTES
    within = data.draw(st.sampled_from([jobs, len(found.image)]))
    bits = data.draw(st.lists(st.integers(0, 8 * within - 1), min_size=1, max_size=3, unique=True))
    program = bytearray(found.image)
    for bit in bits:
        program[bit // 8] ^= 1 << bit % 8
    run = run_jobs(circuit, found, bytes(program))
    if min(bits) // 8 < jobs:
        assert run.error in (Error.DAMAGED, Error.FOREIGN)
    else:
        assert run.error == Error.NONE
        assert run.cycles[0] == START_CYCLES + EngineSchedule(SMALL, found.jobs).run().cycles + DONE_CYCLES


def check_fields(circuit, data) -> None:
    """Jobs with fields that are anything, under seals that are right: the run ends, by an error or not."""
    jobs = list(corrupted().jobs)
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(jobs) - 1))
        name = data.draw(st.sampled_from(list(PARTS)))
        part = getattr(jobs[number], name)
        field, _, width = data.draw(st.sampled_from(part.offsets()))
        signed = field.metadata["signed"]
        value = data.draw(
            st.one_of(st.integers(0, min(20, (1 << width - signed) - 1)), st.integers(0, (1 << width) - 1))
        )
        value -= (value >> width - 1 << width) if signed else 0
        jobs[number] = replace(jobs[number], **{name: replace(part, **{field.name: value})})
    run = run_jobs(circuit, corrupted(), pack_jobs(SMALL, jobs))
    fetched = next((count for count, job in enumerate(jobs, start=1) if job.load.end), len(jobs))
    told = [each for number, job in enumerate(jobs[:fetched]) for each in faults(SMALL, number, job)]
    assert not (told and run.error == Error.NONE)
    assert told or run.error != Error.FIELD


@settings(max_examples=20)
@given(data=st.data())
def test_fields_that_are_wrong(circuit, data):
    check_fields(circuit, data)


@pytest.mark.long
@settings(max_examples=1000)
@given(data=st.data())
def test_many_fields_that_are_wrong(circuit, data):
    check_fields(circuit, data)


def test_errors(circuit):
    """What memory refuses ends the run, and the next start begins anew."""
    read = [Job(load=Load(end=1, x_blocks=1, x_rows=1, x_words=4, x_address=4096))]
    written = [Job(), Job(load=Load(end=1), store=Store(blocks=1, rows=2, words=4, address=4096 - 32, row_stride=32))]
    for jobs, error in ((read, Error.READ_DECODE), (written, Error.WRITE_DECODE), ([], Error.READ_DECODE)):
        memory = pack_jobs(SMALL, jobs).ljust(4096, b"\0")
        run = engine.run(circuit, memory, program_base=0 if jobs else 4096, runs=3, limit=10_000)
        assert run.error == error
        assert len(set(run.cycles)) == 1


def test_a_job_that_waits_for_itself(circuit):
    memory = pack_jobs(SMALL, [Job(load=Load(end=1, wait_computed=1))]).ljust(4096, b"\0")
    assert engine.run(circuit, memory, limit=5000).error == Error.FIELD


def test_an_empty_job(circuit):
    """The fetch is granted 5 cycles after ``start``, its last word comes 1 + 20 + 17 later, parts are offered 3 later.

    The core's count of drained jobs is the last one that the store waits for, as docs/reference/engine.md has it.
    """
    jobs = [Job(load=Load(end=1))]
    run = engine.run(
        circuit, pack_jobs(SMALL, jobs).ljust(4096, b"\0"), memory=EngineMemory(timing=MemoryTiming(latency=20))
    )
    assert run.error == Error.NONE
    assert (run.read, run.written) == (Job.BYTES, 0)
    counted = EngineSchedule(SMALL, jobs, MemoryTiming(latency=20)).run()
    assert [*counted.loaded] == [3 + 1 + 20 + 17 + 3 + 3 + 1 + 1 + 3]
    assert run.cycles == (START_CYCLES + counted.cycles + DONE_CYCLES,)
