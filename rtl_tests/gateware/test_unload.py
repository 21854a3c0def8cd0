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
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    size = draw(st.integers(1, 11 if groups == 1 else 4))
    lanes_in = draw(st.integers(1, size))
    return UnloadConfig(
        channels=size * groups,
        lanes_in=lanes_in,
        lanes_out=draw(st.integers(1, lanes_in)),
        shape=Shape(draw(st.integers(2, 16)), draw(st.booleans())),
        clears=draw(st.booleans()),
        pixels=draw(st.sampled_from([1, 1, 2, 3])),
        groups=groups,
    )


def results_for(config: UnloadConfig, pixels: int, seed: int) -> np.ndarray:
    """``(pixels, channels, Tp)``."""
    width, signed = config.shape.width, config.shape.signed
    low = -(1 << (width - 1)) if signed else 0
    return integers(np.random.default_rng(seed), low, low + (1 << width) - 1, (pixels, config.channels, config.pixels))


def fold_words(config: UnloadConfig, results: np.ndarray) -> list[int]:
    """The folds of each pixel; the lanes that a short last fold leaves hold noise."""
    words = []
    noise = np.random.default_rng(0)
    for fold in folds_of(config, results):
        values = fold.ravel().tolist()
        values += noise.integers(0, 2, config.lanes_in * config.pixels - len(values)).tolist()
        words.append(pack(values, config.shape.width))
    return words


def folds_of(config: UnloadConfig, results: np.ndarray) -> list[np.ndarray]:
    """``(channels, Tp)`` of every fold, none of two groups."""
    size = config.channels // config.groups
    return [
        row[start : min(start + config.lanes_in, end)]
        for row in results
        for end in range(size, config.channels + 1, size)
        for start in range(end - size, end, config.lanes_in)
    ]


def expected_beats(config: UnloadConfig, results: np.ndarray) -> list[list[int]]:
    """``r`` channels a beat; a fold's last beat carries what is left of it."""
    return [
        fold[first : first + config.lanes_out].ravel().tolist()
        for fold in folds_of(config, results)
        for first in range(0, len(fold), config.lanes_out)
    ]


def check_beats(config: UnloadConfig, words: list[int], expected: list[list[int]]) -> None:
    assert len(words) == len(expected)
    for word, wanted in zip(words, expected, strict=True):
        lanes = unpack(word, config.shape.width, config.shape.signed, config.lanes_out * config.pixels)
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


@settings(max_examples=28)
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
    assert len(config.fold_channels) == config.groups * -(-config.channels // config.groups // config.lanes_in)


@pytest.mark.parametrize("numbers", [(4, 5, 1), (4, 2, 3), (4, 2, 0), (0, 0, 0)])
def test_errors(numbers):
    channels, lanes_in, lanes_out = numbers
    message = (
        "lanes_out, lanes_in and channels must not fall below 1 or each other, "
        f"not {lanes_out}, {lanes_in} and {channels}"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        UnloadConfig(channels=channels, lanes_in=lanes_in, lanes_out=lanes_out, shape=Shape(8, True))


def test_lanes_of_a_group():
    """A fold doesn't reach from one group into the next."""
    message = "lanes_out, lanes_in and channels must not fall below 1 or each other, not 1, 3 and 4"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        UnloadConfig(channels=4, lanes_in=3, lanes_out=1, shape=Shape(8, True), groups=2)
