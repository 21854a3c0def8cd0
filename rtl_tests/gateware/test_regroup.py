"""Regroup: every channel once, pixels apart, no idle cycles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import counting, from_beats, integers, to_beats
from amaranth import Shape
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Trace, channel_lanes, pack, run, stalls

from hwgen.errors import ConfigError
from hwgen.gateware.regroup import Regroup, RegroupConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig


@st.composite
def regroups(draw, *, most: int = 9) -> RegroupConfig:
    """Between a layer's folds and any consumer, as in an accelerator."""
    channels = draw(st.integers(1, most))
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    lanes_in = draw(st.integers(1, channels // groups))
    lanes_out = draw(st.integers(1, lanes_in))
    unload = UnloadConfig(channels=channels, lanes_in=lanes_in, lanes_out=lanes_out, shape=Shape(1), groups=groups)
    return config_for([len(beat) for beat in unload.beats], lanes_out, draw)


@st.composite
def any_regroups(draw) -> RegroupConfig:
    """Any counts at all, and lanes that are never used."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    lanes = max(counts) + draw(st.integers(0, 1))
    return config_for(counts, lanes, draw, spare=1)


def config_for(counts: list[int], lanes: int, draw, spare: int = 0) -> RegroupConfig:
    channels = sum(counts)
    groups = draw(st.sampled_from([1, *(g for g in range(1, channels + 1) if channels % g == 0)]))
    output = BeatFormat(
        channels=channels,
        height=draw(st.integers(1, 3)),
        width=draw(st.integers(1, 4)),
        lanes=draw(st.integers(1, channels // groups + spare)),
        bits=draw(st.integers(2, 8)),
        signed=draw(st.booleans()),
        pixels=draw(st.sampled_from([1, 1, 2, 3])),
        groups=groups,
    )
    return RegroupConfig(counts=tuple(counts), lanes=lanes, output=output)


def frames_for(config: RegroupConfig, count: int, seed: int) -> np.ndarray:
    output = config.output
    low = -(1 << (output.bits - 1)) if output.signed else 0
    shape = (count, output.channels, output.height, output.width)
    return integers(np.random.default_rng(seed), low, low + (1 << output.bits) - 1, shape)


def beats_in(config: RegroupConfig, frames: np.ndarray) -> list[int]:
    """Beats of ``counts`` channels of ``output.pixels``; the lanes they leave and the ends of rows hold noise."""
    output = config.output
    noise = np.random.default_rng(1)
    frames = np.pad(frames, ((0, 0), (0, 0), (0, 0), (0, -output.width % output.pixels)), constant_values=1)
    words = []
    for frame in frames:
        places = frame.reshape(output.channels, -1, output.pixels).transpose(1, 0, 2)
        for number, place in enumerate(places):
            start = 0
            for beat, count in enumerate(config.counts):
                values = place[start : start + count].ravel().tolist()
                values += noise.integers(0, 2, (config.lanes - count) * output.pixels).tolist()
                last = number == len(places) - 1 and beat == len(config.counts) - 1
                words.append(pack(values, output.bits) | last << (config.lanes * output.pixels * output.bits))
                start += count
    return words


def simulate(config: RegroupConfig, frames: np.ndarray, **options) -> Trace:
    component = Regroup(config)
    watch = {"offered": component.i.valid, "accepted": component.o.ready}
    return run(component, beats_in(config, frames), len(frames) * config.output.beats, watch=watch, **options)


def check_times(config: RegroupConfig, trace: Trace) -> None:
    """Each beat as early as the configuration's own rules allow, which are the schedule's too."""
    counts, sizes = len(config.counts), len(config.sizes)

    def first_high(name: str, cycle: int) -> int:
        return next(c for c in range(cycle, trace.cycles) if trace.watched[name][c])

    for number, cycle in enumerate(trace.times):
        pixel, beat = divmod(number, sizes)
        earliest = trace.taken[pixel * counts + config.after[beat]] + config.latency
        if number:
            earliest = max(earliest, trace.times[number - 1] + 1)
        assert cycle == first_high("accepted", earliest), f"outgoing beat {number}"
    for number, cycle in enumerate(trace.taken):
        pixel, beat = divmod(number, counts)
        earliest = trace.taken[number - 1] + 1 if number else 0
        waits_for = pixel * sizes - 1 - config.waiting[beat]
        if waits_for >= 0:
            earliest = max(earliest, trace.times[waits_for])
        assert cycle == first_high("offered", earliest), f"incoming beat {number}"


def check(config: RegroupConfig, seed: int, pattern) -> None:
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer=pattern[0], accept=pattern[1])
    assert len(trace.words) == 3 * config.output.beats
    np.testing.assert_array_equal(from_beats(config.output, trace.words), frames)
    check_times(config, trace)


@cases_in_the_long_run(28)
@given(config=regroups(), seed=st.integers(0, 2**32), pattern=stalls())
def test_channels_and_cycles(config, seed, pattern):
    check(config, seed, pattern)


@cases_in_the_long_run(26)
@given(config=any_regroups(), seed=st.integers(0, 2**32), pattern=stalls())
def test_any_counts(config, seed, pattern):
    check(config, seed, pattern)


@cases_in_the_long_run(28)
@given(config=regroups(most=12), seed=st.integers(0, 2**32))
def test_rate(config, seed):
    """Nobody stalls: a pixel takes no more cycles than it has beats on the side that has more."""
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer=ALWAYS, accept=ALWAYS)
    period = max(len(config.counts), len(config.sizes))
    ends = trace.times[len(config.sizes) - 1 :: len(config.sizes)]
    assert max(np.diff(ends), default=0) <= period


@st.composite
def before_fifos(draw) -> RegroupConfig:
    """To fewer beats, all of which are taken at once."""
    config = draw(st.one_of(regroups(most=14), any_regroups()).filter(lambda config: config.widens))
    return replace(config, always_ready=True)


@cases_in_the_long_run(60)
@given(config=before_fifos(), seed=st.integers(0, 2**32), pattern=stalls())
def test_before_a_fifo(config, seed, pattern):
    """Beats that come in any cycles, each cycle among them: every channel once, in the cycle that is stated."""
    frames = frames_for(config, 3, seed)
    bits = config.lanes * config.output.pixels * config.output.bits
    words = [word & (1 << bits) - 1 for word in beats_in(config, frames)]
    for offer in (ALWAYS, pattern[0]):
        trace = run(Regroup(config), words, len(frames) * config.output.beats, offer=offer)
        last = 1 << config.output.data_bits
        ends = range(config.output.beats - 1, len(trace.words), config.output.beats)
        marked = [word | last * (index in ends) for index, word in enumerate(trace.words)]
        np.testing.assert_array_equal(from_beats(config.output, marked), frames)
        for number, cycle in enumerate(trace.times):
            pixel, beat = divmod(number, len(config.sizes))
            completed = trace.taken[pixel * len(config.counts) + config.after[beat]]
            assert cycle == completed + config.departures[beat]


@cases_in_the_long_run(200)
@given(config=before_fifos())
def test_a_beat_in_each_cycle(config):
    """A count of what is complete before each of three pixels' beats, one beat per cycle: never more than is stated."""
    held, most = 0, [0] * len(config.counts)
    for beat in 3 * [*range(len(config.counts))]:
        most[beat] = max(most[beat], held)
        held = max(held - 1, 0) + config.after.count(beat)
    assert config.pending == tuple(most)
    for beat, lanes in enumerate(config.output_lanes):
        left = max(config.pending[beat] - 1, 0) * config.output.lanes + lanes[0] % config.output.lanes
        assert left <= config.room[beat]


@cases_in_the_long_run(20)
@given(config=regroups(), seed=st.integers(0, 2**32), pattern=stalls(), reset_at=st.integers(0, 60))
def test_reset(config, seed, pattern, reset_at):
    frames = frames_for(config, 4, seed)
    trace = simulate(
        config,
        frames[:2],
        offer=pattern[0],
        accept=pattern[1],
        reset_at=reset_at,
        after=(beats_in(config, frames[2:]), 2 * config.output.beats),
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    before, after = (counting(config.output, to_beats(config.output, part)) for part in (frames[:2], frames[2:]))
    assert counting(config.output, trace.words[:sent]) == before[:sent]
    assert counting(config.output, trace.words[sent:]) == after


@settings(max_examples=200)
@given(config=any_regroups())
def test_needed(config):
    """A wire does where every beat carries the same channels either way."""
    output = config.output
    beats = [lane // output.lanes for lane in channel_lanes(output)]
    same = config.lanes == output.lanes and list(config.counts) == [beats.count(beat) for beat in sorted(set(beats))]
    assert config.needed == (not same)
    assert config.register_bits == config.held * output.pixels * output.bits


OUTPUT = BeatFormat(channels=7, height=3, width=5, lanes=3, bits=8, signed=True)


@pytest.mark.parametrize(
    ("counts", "lanes", "message"),
    [
        ((3, 3), 3, "counts must add up to 7 channels, not 6"),
        ((4, 4), 4, "counts must add up to 7 channels, not 8"),
        ((4, 3), 3, "counts must be between 1 and 3 lanes, not (4, 3)"),
        ((4, 0, 3), 4, "counts must be between 1 and 4 lanes, not (4, 0, 3)"),
    ],
)
def test_errors(counts, lanes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        RegroupConfig(counts=counts, lanes=lanes, output=OUTPUT)


def test_never_stalls():
    """Three input beats of a pixel with three output beats could not be taken as they come, whatever the lanes."""
    message = "counts must be more than the 3 output beats of a pixel if streams are always ready, not (3, 3, 1)"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        RegroupConfig(counts=(3, 3, 1), lanes=3, output=OUTPUT, always_ready=True)
