"""The model of off-chip memory: the same in all simulators, its figures by hand and by NumPy."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from simple import Simple, SimpleConfig

from hwgen import simulate
from hwgen.errors import InputError
from hwgen.gateware.stream import BeatFormat
from hwgen.simulate.memory import Memory, TrafficModel

SIMULATORS = [
    name
    for name, tools in (("amaranth", ()), ("icarus", ("iverilog",)), ("verilator", ("g++", "make")))
    if all(map(shutil.which, tools))
]

#: 5 channels in beats of 2, of 12 bits: 4, 4 and 2 bytes a pixel.
FORMAT = BeatFormat(channels=5, height=3, width=7, lanes=2, bits=12, signed=True)
CONFIG = SimpleConfig(name="memory", input=FORMAT)
FRAMES = CONFIG.random_frames(4)
BYTES = FRAMES.size * 2


def run(memory, simulator="amaranth", frames=FRAMES, **options):
    if memory is not None:
        options["memory"] = memory
    result = simulate.run(CONFIG, frames, simulate.Options(simulator=simulator, component=Simple, **options))
    np.testing.assert_array_equal(result.outputs, CONFIG.golden(frames))
    assert (result.read_bytes, result.written_bytes) == (frames.size * 2, frames.size * 2)
    return result


SETTINGS = [
    (Memory(latency=5), {}),
    (Memory(latency=40, queue=1), {}),
    (Memory(bytes_per_cycle=2.7), {}),
    (Memory(latency=17, bytes_per_cycle=0.3, queue=2), {}),
    (Memory(latency=2, bytes_per_cycle=1.1, queue=1), {}),
    (Memory(latency=3, bytes_per_cycle=11.25, queue=1), {"one_by_one": True}),
    (Memory(latency=9, bytes_per_cycle=7, queue=3), {"stalls": (0.3, 0.4), "seed": 3}),
    (Memory(latency=4, bytes_per_cycle=1.5), {"reset_at": 61}),
    (Memory(), {"one_by_one": True}),
]


@pytest.mark.long
@pytest.mark.skipif(len(SIMULATORS) < 3, reason="needs Icarus and g++: apt install iverilog g++ make")
def test_all_simulators_agree():
    for memory, options in SETTINGS:
        first, *others = (run(memory, simulator, **options) for simulator in SIMULATORS)
        for other in others:
            assert (other.first_input, other.frame_ends) == (first.first_input, first.frame_ends)
            assert (other.written_ends, other.cycles) == (first.written_ends, first.cycles)
        assert first.cycles == first.written_ends[-1] + 1


def test_a_memory_without_limits_changes_nothing():
    beats = FORMAT.beats
    result = run(None)
    assert result.frame_ends == result.written_ends == tuple(beats * frame + beats + 1 for frame in range(4))
    assert run(Memory()).frame_ends == result.frame_ends
    # Enough for a beat in and one out in every cycle: the same.
    assert run(Memory(bytes_per_cycle=8)).frame_ends == result.frame_ends


@cases_in_the_long_run(8)
@given(latency=st.integers(0, 70), queue=st.integers(1, 5))
def test_ample_bandwidth_adds_the_latency(latency, queue):
    ends = run(None).frame_ends
    result = run(Memory(latency=latency, queue=queue, bytes_per_cycle=1000))
    assert result.first_input == latency
    assert result.frame_ends == tuple(end + latency for end in ends)
    assert result.written_ends == result.frame_ends


@pytest.mark.long
@settings(max_examples=8)
@given(rate=st.floats(0.2, 5.5), queue=st.integers(4, 9))
def test_scarce_bandwidth_is_used_up(rate, queue):
    """The memory moves 420 bytes a frame and never rests; a frame may end a beat or two earlier or later."""
    result = run(Memory(bytes_per_cycle=rate, queue=queue))
    assert result.interval == pytest.approx(2 * BYTES / 4 / rate, abs=2 + 4 / rate)
    assert result.cycles == pytest.approx(2 * BYTES / rate, abs=6 + 8 / rate)
    assert result.cycles >= 2 * BYTES / rate - 1


def test_latency_by_hand():
    """At half a byte a cycle, four bytes that are asked for in cycle 0 move in cycles 10 to 17."""
    assert run(Memory(latency=10, bytes_per_cycle=0.5)).first_input == 17


def test_one_by_one_by_hand():
    """A frame takes its beats, two cycles under way, and the latency; the next one is asked for in the cycle after."""
    result = run(Memory(latency=6), one_by_one=True)
    assert result.written_ends == tuple((FORMAT.beats + 2 + 6) * frame - 1 for frame in range(1, 5))


def test_side_by_side():
    """Each share has the memory for itself, and its bytes count."""
    frames = CONFIG.random_frames(35)
    memory = Memory(latency=3, bytes_per_cycle=6.5)
    if "verilator" not in SIMULATORS:
        pytest.skip("g++ or make is missing: apt install g++ make")
    alone = run(memory, "verilator", frames)
    assert run(memory, "verilator", frames, jobs=2).frame_ends == alone.frame_ends[:18]


def trace(traffic: TrafficModel, writes: dict[int, int], cycles: int) -> list[tuple[int, int]]:
    """Beats arrived and written by the end of each cycle: a source that is never taken from, these beats posted."""
    seen = []
    for cycle in range(cycles):
        traffic.begin_cycle(cycle, [0])
        for _ in range(writes.get(cycle, 0)):
            traffic.post(cycle)
        seen.append((traffic.arrived[0], traffic.written))
    return seen


def test_turns_by_hand():
    """Beats of 3 bytes in and 2 out, two bytes a cycle; two outputs come in cycle 1, one in cycle 5.

    The first input takes cycle 0 and half of 1. No output is there yet, so the second begins: half of 1, and 2. Then by
    turns: output in 3; input in 4 and half of 5; output in the other half and half of 6; input to the end of 7, the
    last that is asked for; output in 8.
    """
    memory = Memory(bytes_per_cycle=2, queue=4)
    seen = trace(TrafficModel(memory, [np.array([3])], [np.array([2])], 9), {1: 2, 5: 1}, 10)
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (4, 3)]


def test_rooms():
    traffic = TrafficModel(Memory(bytes_per_cycle=1, queue=2), [np.array([1])], [np.array([4])], 3)
    rooms = []
    for cycle in range(12):
        traffic.begin_cycle(cycle, [99])
        rooms.append(traffic.has_room)
        if traffic.has_room and cycle < 6:
            traffic.post(cycle)
    # 99 taken: nothing more is read than the three beats there are, in cycles 0, 5 and, by turns, 10.
    assert rooms == [True, True, False, False, False, True, False, False, False, False, True, True]
    assert traffic.bytes == [3, 8]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"latency": -1}, r"^memory latency must lie in 0 .. 1048576 cycles, not -1$"),
        ({"bytes_per_cycle": 0}, r"^memory bandwidth must lie in 1/65536 .. 65536 bytes per cycle, not 0$"),
        ({"bytes_per_cycle": float("nan")}, r"^memory bandwidth .* not nan$"),
        ({"queue": 0}, r"^memory queue must lie in 1 .. 1048576 beats, not 0$"),
    ],
)
def test_errors(options, words):
    with pytest.raises(InputError, match=words):
        Memory(**options)
