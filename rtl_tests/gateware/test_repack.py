"""Values cut into other pieces: all of them, in order, and no cycle lost to the cutting."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth import unsigned
from counted import cases_in_the_long_run
from hypothesis import example, given
from hypothesis import strategies as st
from testbench import pack, run, stalls, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.bus.repack import Pieces, Repack, RepackConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.tools import synthesis


def cut(pieces: Pieces, values: list[int]) -> list[list[int]]:
    """Values of whole frames, piece by piece."""
    found = []
    for begin in range(0, len(values), pieces.values):
        frame = values[begin : begin + pieces.values]
        for number in range(pieces.count):
            last = number == pieces.count - 1
            size = pieces.final if last else pieces.sizes[number % len(pieces.sizes)]
            found.append(frame[:size])
            frame = frame[size:]
        assert not frame
    return found


def beats_of(channels: int, lanes: int, steps: int, groups: int = 1) -> Pieces:
    beat = BeatFormat(
        channels=channels * groups, height=1, width=steps, lanes=lanes, bits=8, signed=False, groups=groups
    )
    return Pieces.of_beats(beat, beat.beats)


@st.composite
def configs(draw) -> RepackConfig:
    channels = draw(st.integers(1, 12))
    beats = beats_of(channels, draw(st.integers(1, channels)), draw(st.integers(1, 6)), draw(st.integers(1, 2)))
    sides = [beats, Pieces.of_words(draw(st.sampled_from([1, 2, 4, 8, 16])), beats.values)]
    if draw(st.booleans()):
        sides.reverse()
    return RepackConfig(shape=unsigned(draw(st.integers(1, 9))), takes=sides[0], gives=sides[1])


def send(config: RepackConfig, frames: int, seed: int, **options):
    rng = np.random.default_rng(seed)
    bits = config.shape.width
    values = rng.integers(0, 1 << bits, frames * config.takes.values).tolist()
    noise = rng.integers(0, 1 << bits, (frames * config.takes.count, config.takes.max_values)).tolist()
    pieces = [
        pack([*piece, *above[len(piece) :]], bits)
        for piece, above in zip(cut(config.takes, values), noise, strict=True)
    ]
    return values, pieces, run(Repack(config), pieces, frames * config.gives.count, **options)


def check(config: RepackConfig, words: list[int], values: list[int]) -> None:
    bits, most = config.shape.width, config.gives.max_values
    expected = [piece + [0] * (most - len(piece)) for piece in cut(config.gives, values)]
    assert [unpack(word, bits, False, most) for word in words] == expected
    lasts = [number for number, word in enumerate(words) if word >> bits * most]
    assert lasts == list(range(config.gives.count - 1, len(words), config.gives.count))


@cases_in_the_long_run(25)
@given(config=configs(), seed=st.integers(0, 2**32), pattern=stalls())
def test_values(config, seed, pattern):
    values, _, trace = send(config, 3, seed, offer=pattern[0], accept=pattern[1])
    check(config, trace.words, values)


@cases_in_the_long_run(30)
@given(config=configs())
@example(RepackConfig(shape=unsigned(8), takes=Pieces.of_words(4, 9), gives=beats_of(3, 3, 3)))
@example(RepackConfig(shape=unsigned(8), takes=beats_of(9, 8, 5), gives=Pieces.of_words(16, 45)))
def test_cycles(config):
    """Never stalled: a piece a cycle on the side that has more of them, from some frame on."""
    _, _, trace = send(config, 24, 0)
    ends = trace.times[config.gives.count - 1 :: config.gives.count]
    assert set(np.diff(ends[-8:]).tolist()) == {config.interval}


@cases_in_the_long_run(15)
@given(config=configs(), pattern=stalls(), reset_at=st.integers(0, 60))
def test_reset(config, pattern, reset_at):
    values, pieces, _ = send(config, 2, 1)
    count = 2 * config.gives.count
    trace = run(
        Repack(config),
        pieces * 4,
        4 * count,
        offer=pattern[0],
        accept=pattern[1],
        reset_at=reset_at,
        after=(pieces, count),
    )
    assert trace.reset is not None
    check(config, trace.words[trace.reset[2] :], values)


def test_words_of_a_bus():
    """67 values, four a word: 16 words and one of three."""
    words = Pieces.of_words(4, 67)
    assert (words.count, words.final, words.values, words.min_values) == (17, 3, 67, 3)
    assert beats_of(10, 4, 3).sizes == (4, 4, 2)
    assert beats_of(8, 4, 3) == Pieces(sizes=(4,), count=6, final=4)


def test_refusals():
    with pytest.raises(ConfigError, match=r"^values of a frame must be 8 on either side, not 9$"):
        RepackConfig(shape=unsigned(8), takes=Pieces.of_words(4, 8), gives=Pieces.of_words(4, 9))
    with pytest.raises(ConfigError, match=r"^final must be at most 2, not 3$"):
        Pieces(sizes=(2,), count=2, final=3)
    with pytest.raises(ConfigError, match=r"^sizes, count and final must be positive integers"):
        Pieces(sizes=(2,), count=0, final=1)


@pytest.mark.long
def test_resources():
    shapes = (
        (4, 3, 3, 100),
        (4, 1, 1, 64),
        (4, 10, 4, 49),
        (16, 3, 3, 1024),
        (8, 8, 8, 100),
        (16, 64, 64, 64),
        (4, 4, 4, 9),
    )
    parts = []
    for size, channels, lanes, steps in shapes:
        beats = beats_of(channels, lanes, steps)
        words = Pieces.of_words(size, beats.values)
        parts += [RepackConfig(shape=unsigned(8), takes=words, gives=beats)]
        parts += [RepackConfig(shape=unsigned(8), takes=beats, gives=words)]
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        assert measured.ff == part.resources.ff, part
        assert abs(part.resources.lut / measured.lut - 1) <= 0.25, part
