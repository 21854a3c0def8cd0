"""Unload: every channel of every fold, in its cycle."""

from __future__ import annotations

import re

import numpy as np
import pytest
from accelerators import integers
from amaranth import Shape
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import Pattern, pack, run, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.unload import Unload, UnloadConfig


@st.composite
def unloads(draw) -> UnloadConfig:
    channels = draw(st.integers(1, 11))
    lanes_in = draw(st.integers(1, channels))
    return UnloadConfig(
        channels=channels,
        lanes_in=lanes_in,
        lanes_out=draw(st.integers(1, lanes_in)),
        shape=Shape(draw(st.integers(2, 16)), draw(st.booleans())),
        clears=draw(st.booleans()),
    )


def results_for(config: UnloadConfig, pixels: int, seed: int) -> np.ndarray:
    """``(pixels, channels)``."""
    width, signed = config.shape.width, config.shape.signed
    low = -(1 << (width - 1)) if signed else 0
    return integers(np.random.default_rng(seed), low, low + (1 << width) - 1, (pixels, config.channels))


def fold_words(config: UnloadConfig, results: np.ndarray) -> list[int]:
    """The folds of each pixel; the lanes that a short last fold leaves hold noise."""
    words = []
    noise = np.random.default_rng(0)
    for row in results.tolist():
        for start in range(0, config.channels, config.lanes_in):
            lanes = row[start : start + config.lanes_in]
            lanes += noise.integers(0, 2, config.lanes_in - len(lanes)).tolist()
            words.append(pack(lanes, config.shape.width))
    return words


def expected_beats(config: UnloadConfig, results: np.ndarray) -> list[list[int]]:
    """``r`` channels a beat; a fold's last beat carries what is left of it."""
    beats = []
    for row in results.tolist():
        for start in range(0, config.channels, config.lanes_in):
            fold = row[start : start + config.lanes_in]
            beats += [fold[first : first + config.lanes_out] for first in range(0, len(fold), config.lanes_out)]
    return beats


def check_beats(config: UnloadConfig, words: list[int], expected: list[list[int]]) -> None:
    assert len(words) == len(expected)
    for word, wanted in zip(words, expected, strict=True):
        lanes = unpack(word, config.shape.width, config.shape.signed, config.lanes_out)
        assert lanes[: len(wanted)] == wanted
        if config.clears:
            assert not any(lanes[len(wanted) :])


def offers(config: UnloadConfig, gaps: list[int]) -> Pattern:
    """As close as the beats of each fold allow, and further apart."""
    cycle = []
    for gap in gaps:
        for beats in config.fold_beats:
            cycle += [True] + [False] * (beats - 1 + gap)
    return Pattern(tuple(cycle))


@settings(max_examples=60)
@given(config=unloads(), seed=st.integers(0, 2**32), gaps=st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_beats(config, seed, gaps):
    results = results_for(config, 9, seed)
    expected = expected_beats(config, results)
    trace = run(Unload(config), fold_words(config, results), len(expected), offer=offers(config, gaps))
    check_beats(config, trace.words, expected)
    beats = config.fold_beats * 9
    assert trace.times == [
        cycle + config.latency + beat for cycle, count in zip(trace.taken, beats, strict=True) for beat in range(count)
    ]


@settings(max_examples=20)
@given(config=unloads(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 30))
def test_reset(config, seed, reset_at):
    """What comes after a reset is a pixel's first fold."""
    results = results_for(config, 12, seed)
    before, after = expected_beats(config, results[:6]), expected_beats(config, results[6:])
    trace = run(
        Unload(config),
        fold_words(config, results[:6]),
        len(before),
        offer=offers(config, [0]),
        reset_at=reset_at,
        after=(fold_words(config, results[6:]), len(after)),
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    check_beats(config, trace.words[:sent], before[:sent])
    check_beats(config, trace.words[sent:], after)


@settings(max_examples=100)
@given(config=unloads())
def test_channels(config):
    """Every channel leaves once, in order."""
    assert [channel for beat in config.beats for channel in beat] == list(range(config.channels))
    assert sum(config.fold_beats) == len(config.beats)
    assert len(config.fold_channels) == -(-config.channels // config.lanes_in)


@pytest.mark.parametrize("numbers", [(4, 5, 1), (4, 2, 3), (4, 2, 0), (0, 0, 0)])
def test_errors(numbers):
    channels, lanes_in, lanes_out = numbers
    message = (
        "lanes_out, lanes_in and channels must not fall below 1 or each other, "
        f"not {lanes_out}, {lanes_in} and {channels}"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        UnloadConfig(channels=channels, lanes_in=lanes_in, lanes_out=lanes_out, shape=Shape(8, True))
