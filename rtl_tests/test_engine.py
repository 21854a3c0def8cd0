"""The engine as a whole, in Verilator: networks from memory to memory, and every cycle."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from accelerators import frames_for
from hypothesis import given, settings
from hypothesis import strategies as st
from test_program import SMALL, alone, conv, networks, scheduled

import hwgen
from hwgen.errors import CheckError
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.job import Job, Load, Store
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.program.compile import Schedule, schedule
from hwgen.program.layout import pack_map, unpack_map
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine
from hwgen.simulate.engine import EngineRun, Memory

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
)


@pytest.fixture(scope="module")
def circuit(tmp_path_factory):
    """Compiled once, in a cache of this module's own, so that a stale one can't hide a failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HWGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield engine.files(SMALL)


def image(found: Schedule, seed: int) -> tuple[bytes, np.ndarray]:
    """Memory with a random frame, and the frame."""
    (frame,) = frames_for(found.network, 1, seed)
    memory = bytearray(np.random.default_rng(seed).bytes(found.size))
    for address, content in ((0, found.image), (found.input.address, pack_map(frame, found.network.input.type))):
        memory[address : address + len(content)] = content
    return bytes(memory), frame


def check_values(found: Schedule, run: EngineRun, frame: np.ndarray) -> None:
    assert run.error == Error.NONE
    expected = golden.outputs(found.network, frame[None])
    for place, each, wanted in zip(found.outputs, found.network.output_maps, expected, strict=True):
        packed = run.image[place.address : place.address + place.size]
        np.testing.assert_array_equal(unpack_map(packed, each), wanted[0])


def check(circuit, found: Schedule, timing: MemoryTiming | None = None, seed: int = 0, **options) -> EngineRun:
    """Values are those of the golden model, cycles and bytes those of the schedule."""
    timing = timing or MemoryTiming()
    memory, frame = image(found, seed)
    run = engine.run(circuit, memory, memory=Memory(timing=timing), limit=5_000_000, **options)
    check_values(found, run, frame)
    counted = EngineSchedule(SMALL, found.jobs, timing).run()
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
        "input": (found.input.address, found.input.address + found.input.size),
        "output": (place.address, place.address + place.size),
    }
    run = check(circuit, found, runs=2, reset_at=1234, regions=regions)
    assert run.regions["jobs"] == (2 * len(found.jobs) * Job.BYTES, 0)
    assert run.regions["output"] == (0, 2 * place.size)
    assert run.regions["input"][0] >= 2 * found.input.size
    assert run.regions["input"][1] == 0


@pytest.mark.parametrize(
    ("name", "timing"),
    [
        ("lenet5", MemoryTiming(latency=1, write_latency=1)),
        ("lenet5", MemoryTiming(latency=200, write_latency=70, pace=3)),
        ("resnet8", MemoryTiming()),
        pytest.param("mobilenetv1-0.25", MemoryTiming(latency=60), marks=pytest.mark.long),
    ],
)
def test_networks(circuit, name, timing):
    check(circuit, schedule(hwgen.load(name).network, SMALL), timing)


def test_port_and_array_in_turn(circuit):
    check(circuit, schedule(alone(conv()), SMALL, double_buffered=False))


@settings(max_examples=12)
@given(
    network=networks(),
    timing=st.builds(
        MemoryTiming, latency=st.integers(1, 99), write_latency=st.integers(1, 50), pace=st.integers(1, 2)
    ),
    seed=st.integers(0, 99),
)
def test_random_networks(circuit, network, timing, seed):
    found = scheduled(network, SMALL)
    if found is not None:
        check(circuit, found, timing, seed)


@pytest.mark.long
@settings(max_examples=500)
@given(
    network=networks(most_layers=4, most_side=30, most_channels=60),
    timing=st.builds(
        MemoryTiming, latency=st.integers(1, 99), write_latency=st.integers(1, 50), pace=st.integers(1, 3)
    ),
    seed=st.integers(0, 99),
)
def test_many_random_networks(circuit, network, timing, seed):
    found = scheduled(network, SMALL)
    if found is not None:
        check(circuit, found, timing, seed)


@pytest.mark.parametrize(("gap_every", "gap"), [(97, 13), (3, 1), (4, 3), (800, 300)])
def test_gaps(circuit, gap_every, gap):
    """A memory that stalls changes no value."""
    found = schedule(hwgen.load("lenet5").network, SMALL)
    memory, frame = image(found, 3)
    check_values(found, engine.run(circuit, memory, memory=Memory(gap_every=gap_every, gap=gap), limit=10**6), frame)


def test_errors(circuit):
    """What memory refuses ends the run, and the next start begins anew."""
    read = [Job(load=Load(end=1, x_blocks=1, x_rows=1, x_words=4, x_address=4096))]
    written = [Job(), Job(load=Load(end=1), store=Store(blocks=1, rows=2, words=4, address=4096 - 32, row_stride=32))]
    for jobs, error in ((read, Error.READ_DECODE), (written, Error.WRITE_DECODE), ([], Error.READ_DECODE)):
        memory = b"".join(map(bytes, jobs)).ljust(4096, b"\0")
        run = engine.run(circuit, memory, program_base=0 if jobs else 4096, runs=3, limit=10_000)
        assert run.error == error
        assert len(set(run.cycles)) == 1


def test_a_job_that_waits_for_ever(circuit):
    memory = bytes(Job(load=Load(end=1, wait_computed=1))).ljust(4096, b"\0")
    with pytest.raises(CheckError, match="the engine does not come to an end, in cycle"):
        engine.run(circuit, memory, limit=5000)


def test_an_empty_job(circuit):
    """The fetch is granted 5 cycles after ``start``, its last word comes 1 + 20 + 17 later, parts are offered 3 later.

    The core's count of drained jobs is the last one that the store waits for, as docs/engine.md has it.
    """
    jobs = [Job(load=Load(end=1))]
    run = engine.run(circuit, bytes(jobs[0]).ljust(4096, b"\0"), memory=Memory(timing=MemoryTiming(latency=20)))
    assert run.error == Error.NONE
    assert (run.read, run.written) == (Job.BYTES, 0)
    counted = EngineSchedule(SMALL, jobs, MemoryTiming(latency=20)).run()
    assert counted.loaded == (3 + 1 + 20 + 17 + 3 + 3 + 1 + 1 + 3,)
    assert run.cycles == (START_CYCLES + counted.cycles + DONE_CYCLES,)
