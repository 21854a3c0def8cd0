"""The guard: as many frames go on as come in, all of them whole, and whole ones as if it were not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import cases, check_data, frames_for, from_beats, to_beats
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from counted import cases_in_the_long_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, PATIENCE, Pattern, Trace, patterns, run, stalls

from hwgen.errors import ConfigError
from hwgen.gateware.accelerator import Accelerator
from hwgen.gateware.guard import Guard, GuardConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.simulate.testbench import patience
from hwgen.tools import synthesis


def guard_of(beats: int, bits: int = 8, lanes: int = 1) -> GuardConfig:
    return GuardConfig(
        beat=BeatFormat(channels=lanes, height=1, width=beats, lanes=lanes, bits=bits, signed=False), beats=beats
    )


def frames_of(config: GuardConfig, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Beats without ``last``, in which no bit is always the same."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 1 << config.beat.data_bits, length).tolist() for length in lengths]


def marked(config: GuardConfig, frames: list[list[int]]) -> list[int]:
    """Beats with ``last``."""
    top = 1 << config.beat.data_bits
    return [beat | top * (place == len(frame) - 1) for frame in frames for place, beat in enumerate(frame)]


def whole(config: GuardConfig, frames: list[list[int]]) -> list[list[int]]:
    """What the guard shall make of frames of any length."""
    return [(frame + [0] * config.beats)[: config.beats] for frame in frames]


def send(config: GuardConfig, frames: list[list[int]], clear: Pattern = Pattern((False,)), **options) -> Trace:  # noqa: B008
    guard = Guard(config)
    flags = {"short": guard.error.short, "long": guard.error.long, "clear": guard.error.clear}
    beats = marked(config, frames)
    return run(guard, beats, len(frames) * config.beats, drive=[(guard.error.clear, clear)], watch=flags, **options)


def check_flags(config: GuardConfig, frames: list[list[int]], trace: Trace) -> None:
    """Raised in the cycle after the beat that shows it, and high until they are cleared."""
    seen, number = {"short": set(), "long": set()}, 0
    for frame in frames:
        if len(frame) < config.beats:
            seen["short"].add(trace.taken[number + len(frame) - 1])
        elif len(frame) > config.beats:
            seen["long"].add(trace.taken[number + config.beats - 1])
        number += len(frame)
    for name, cycles in seen.items():
        flag = 0
        for cycle, (value, clear) in enumerate(zip(trace.watched[name], trace.watched["clear"], strict=True)):
            assert value == flag, (name, cycle)
            flag = cycle in cycles or (flag and not clear)


GUARDS = st.builds(guard_of, st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))
LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@pytest.mark.long
@settings(max_examples=40)
@given(config=GUARDS, lengths=LENGTHS, seed=st.integers(0, 2**32), pattern=stalls(), clear=patterns())
@example(guard_of(1), [1, 2, 1, 3, 1], 0, (ALWAYS, ALWAYS), Pattern((False,)))
@example(guard_of(4), [4, 3, 4, 5, 4, 2, 4, 6, 4, 1, 4, 8, 4], 0, (ALWAYS, ALWAYS), Pattern((False,) * 9 + (True,)))
def test_frames(config, lengths, seed, pattern, clear):
    frames = frames_of(config, lengths, seed)
    trace = send(config, frames, clear, offer=pattern[0], accept=pattern[1])
    assert trace.words == marked(config, whole(config, frames))
    check_flags(config, frames, trace)


@settings(max_examples=30)
@given(config=GUARDS, lengths=LENGTHS)
def test_cycles(config, lengths):
    """Without stalls: a beat goes on in the cycle in which it comes; short frames take as long as whole ones."""
    frames = frames_of(config, lengths)
    trace = send(config, frames)
    assert trace.taken[0] == trace.times[0]
    begins = np.cumsum([0, *(max(length, config.beats) for length in lengths)])[:-1]
    into = [begin + beat for begin, length in zip(begins, lengths, strict=True) for beat in range(length)]
    out = [begin + beat for begin in begins for beat in range(config.beats)]
    assert trace.taken == into
    assert trace.times == out


@cases_in_the_long_run(30)
@given(config=GUARDS, lengths=LENGTHS, pattern=stalls(), reset_at=st.integers(0, 40))
def test_reset(config, lengths, pattern, reset_at):
    """In whatever state: the next beat is the first of a frame, and no flag is raised."""
    before, after = frames_of(config, [*lengths, 20, 20]), frames_of(config, [config.beats] * 2, 1)
    expected = marked(config, after)
    trace = send(
        config, before, offer=pattern[0], accept=pattern[1], reset_at=reset_at, after=(expected, len(expected))
    )
    assert trace.reset is not None
    assert trace.words[trace.reset[2] :] == expected
    for name in ("short", "long"):
        assert not any(trace.watched[name][trace.reset[0] :])


class Packets(wiring.Component):
    """A guard whose packets have always the same number of frames."""

    def __init__(self, config: GuardConfig, frames: int):
        self.guard, self._frames = Guard(config), frames
        super().__init__({"i": In(config.beat.signature), "o": Out(config.beat.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.guard = guard = self.guard
        loaded, single = Signal(), self._frames == 1
        m.d.sync += loaded.eq(1)
        m.d.comb += [
            guard.packet.before_last.eq(self._frames - 2),
            guard.packet.single.eq(single),
            guard.packet.next_single.eq(single),
            guard.packet.load.eq(~loaded),
            guard.i.valid.eq(self.i.valid & loaded),
            guard.i.payload.eq(self.i.payload),
            self.i.ready.eq(guard.i.ready & loaded),
            guard.error.clear.eq(0),
        ]
        wiring.connect(m, wiring.flipped(self.o), guard.o)
        return m


@cases_in_the_long_run(40)
@given(
    config=GUARDS,
    count=st.integers(1, 5),
    changes=st.lists(st.integers(-12, 12), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    pattern=stalls(),
)
@example(guard_of(3), 4, [0, -5, 0, 3, -11], 0, (ALWAYS, ALWAYS))
@example(guard_of(1), 3, [0, -1, -2, 2], 0, (ALWAYS, ALWAYS))
def test_packets(config, count, changes, seed, pattern):
    """Each packet gives its frames, whole or completed with zeros, and one error if it was of another length."""
    config = replace(config, packets=True)
    size = count * config.beats
    lengths = [max(1, size + change) for change in changes]
    sent = frames_of(config, lengths, seed)
    component = Packets(config, count)
    flags = {"short": component.guard.error.short, "long": component.guard.error.long}
    trace = run(component, marked(config, sent), len(sent) * size, offer=pattern[0], accept=pattern[1], watch=flags)
    top, completed = 1 << config.beat.data_bits, [(packet + [0] * size)[:size] for packet in sent]
    expected = [
        beat | top * (place % config.beats == config.beats - 1)
        for packet in completed
        for place, beat in enumerate(packet)
    ]
    assert trace.words == expected
    assert trace.watched["short"][-1] == any(length < size for length in lengths)
    assert trace.watched["long"][-1] == any(length > size for length in lengths)


def wrong_frames(beats: int, change: int) -> int:
    """A length beside that of a frame: by a beat or by half, less or more; never 0."""
    by = 1 if change % 2 else max(1, beats // 2)
    return max(1, beats - by) if change < 2 else beats + by


@pytest.mark.long
@settings(max_examples=5)
@given(
    case=cases(max_layers=2, max_side=5),
    seed=st.integers(0, 2**32),
    pattern=st.one_of(st.just((ALWAYS, ALWAYS)), stalls()),
    change=st.integers(0, 3),
)
def test_accelerators(case, seed, pattern, change):
    """A frame that is too short is computed as if it ended with zeros, one that is too long without its end; the
    frames around it are right."""
    config, beat = case.config, case.config.input
    frames = frames_for(case.network, 3, seed)
    beats, count = to_beats(beat, frames), beat.beats
    length = wrong_frames(count, change)
    top = 1 << beat.data_bits
    spare = [word & (top - 1) for word in beats]
    middle = (spare[count : 2 * count] + spare[:count])[:length]
    middle[-1] |= top
    completed = (spare[count : count + min(length, count)] + [0] * count)[:count]
    completed[-1] |= top
    sent = from_beats(beat, beats[:count] + completed + beats[2 * count :])
    expected = golden.run(case.network, sent.astype(frames.dtype))
    accelerator = Accelerator(config)
    errors = accelerator.frame_error  # type: ignore[attr-defined]
    trace = run(
        accelerator,
        beats[:count] + middle + beats[2 * count :],
        3 * config.output.beats,
        offer=pattern[0],
        accept=pattern[1],
        watch={"short": errors.short, "long": errors.long},
        patience=max(PATIENCE, patience(config)),
    )
    check_data(config, trace.words, expected)
    assert trace.watched["short"][-1] == (length < count)
    assert trace.watched["long"][-1] == (length > count)


@pytest.mark.long
def test_resources():
    parts = [
        guard_of(1), guard_of(2), guard_of(100, 8, 3), guard_of(784), guard_of(4096, 8, 8), guard_of(50_176, 8, 3),
        guard_of(50_176, 8, 32), guard_of(77_283, 5, 8),
    ]  # fmt: skip
    parts += [replace(part, packets=True) for part in parts]
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        assert measured.ff == part.resources.ff, part
        assert abs(measured.lut - part.resources.lut) <= (10 if part.packets else 3), part
        assert (measured.dsp, measured.bram36) == (0, 0)


def test_refusal():
    with pytest.raises(ConfigError, match=r"^beats must be a positive integer, not 0$"):
        GuardConfig(beat=guard_of(3).beat, beats=0)
