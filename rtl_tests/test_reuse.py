"""The reuse buffer: every tile whole and in order, in as many cycles and words as it states."""

from __future__ import annotations

import re

import numpy as np
import pytest
from accelerators import integers
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, patterns, run, stalls
from tiles import beats_of, new_parts, reuse_buffers, whole_parts

from hwgen.errors import ConfigError
from hwgen.gateware.reuse import ReuseBuffer, ReuseBufferConfig
from hwgen.gateware.spans import Axis, Span
from hwgen.gateware.stream import BeatFormat
from hwgen.network import shapes
from hwgen.plan import pyramid
from hwgen.plan.tiles import RECOMPUTE, axes

pytestmark = pytest.mark.long  # minutes in all: components that no plan uses yet

SEEDS = st.integers(0, 2**32)


def frames_for(source: BeatFormat, count: int, seed: int) -> np.ndarray:
    low = -(1 << (source.bits - 1)) if source.signed else 0
    shape = (count, source.channels, source.height, source.width)
    return integers(np.random.default_rng(seed), low, low + (1 << source.bits) - 1, shape)


def streams(config: ReuseBufferConfig, frames: np.ndarray) -> tuple[list[int], list[int]]:
    """What comes in and what must leave; ``last`` on a frame's last beat out."""
    sent, expected = [], []
    for frame in frames:
        sent += beats_of(config.input, new_parts(config.rows, config.columns, frame))
        whole = beats_of(config.input, whole_parts(config.rows, config.columns, frame))
        whole[-1] |= 1 << config.input.data_bits
        expected += whole
    return sent, expected


@settings(max_examples=40)
@given(config=reuse_buffers(), seed=SEEDS, ends=stalls())
def test_tiles(config, seed, ends):
    frames = frames_for(config.input, 2, seed)
    sent, expected = streams(config, frames)
    assert len(sent) == 2 * config.beats_in
    assert len(expected) == 2 * config.beats_out
    trace = run(ReuseBuffer(config), sent, len(expected), offer=ends[0], accept=ends[1])
    assert trace.words == expected
    assert len(trace.taken) == len(sent)


@settings(max_examples=25)
@given(config=reuse_buffers(overlap=None), seed=SEEDS)
def test_cycles(config, seed):
    """Nobody stalls: a beat of a tile a cycle, from the first frame's first to the last one's."""
    frames = frames_for(config.input, 3, seed)
    sent, expected = streams(config, frames)
    trace = run(ReuseBuffer(config), sent, len(expected))
    assert trace.words == expected
    # Each frame's first beat in is its first cycle.
    assert np.diff(trace.taken[:: config.beats_in]).tolist() == [config.cycles] * 2
    assert trace.taken[0] == 0
    assert max(trace.times[-1] - config.latency, trace.taken[-1]) < 3 * config.cycles


@settings(max_examples=25)
@given(config=reuse_buffers(), seed=SEEDS, offer=patterns(), accept=patterns(), reset_at=st.integers(0, 400))
def test_reset(config, seed, offer, accept, reset_at):
    """The beat after a reset is a frame's first; what was kept before it is forgotten."""
    frames = frames_for(config.input, 3, seed)
    sent, expected = streams(config, frames[:2])
    after = streams(config, frames[2:])
    trace = run(
        ReuseBuffer(config),
        sent,
        len(expected),
        offer=offer,
        accept=accept,
        reset_at=reset_at,
        after=(after[0], len(after[1])),
    )
    before = trace.reset[2]
    assert trace.words[:before] == expected[:before]
    assert trace.words[before:] == after[1]


@pytest.mark.parametrize(
    ("name", "sides", "all_words", "halo_words"),
    # 29,327 and 17,215 by the accounting of Alwani's exploration tool: both sets of channels, and one.
    [("alexnet", (227, 227), 29_327, 24_224), ("alexnet-set", (227, 227), 17_215, 12_112)],
)
def test_words_of_alexnet(name, sides, all_words, halo_words):
    layers = shapes.load(name).layers[:4]
    buffers = [
        ReuseBufferConfig(
            input=BeatFormat(
                channels=layer.channels, height=layer.height, width=layer.width, lanes=1, bits=8, signed=False
            ),
            rows=rows,
            columns=columns,
        )
        for layer, (rows, columns) in zip(layers, axes(layers, (1, 1)), strict=True)
    ]
    assert [buffer.input.height for buffer in buffers[:1]] == [sides[0]]
    assert sum(buffer.words for buffer in buffers) == all_words == pyramid.reuse_words(layers)
    # With its halo read again the group's own input keeps nothing.
    assert sum(buffer.words for buffer in buffers[1:]) == halo_words
    # One channel a beat: no lane is empty, and the memories hold just those words.
    assert sum(buffer.memory_bits for buffer in buffers) == 8 * all_words


def small(**changes) -> ReuseBufferConfig:
    """3 x 3 windows over 3 x 4 x 4, two rows and columns of windows a pyramid."""
    spans = (Span(begin=0, fresh=0, end=3, window=0, windows=1), Span(begin=1, fresh=3, end=4, window=1, windows=1))
    axis = Axis(size=4, kernel=3, stride=1, padding=0, spans=spans)
    source = BeatFormat(channels=3, height=4, width=4, lanes=2, bits=8, signed=False)
    return ReuseBufferConfig(**{"input": source, "rows": axis, "columns": axis} | changes)


def test_figures():
    """By hand: 2 rows of 4 columns and 2 columns of 3 rows are kept of 3 channels; tiles of 9 pixels, 2 beats each."""
    config = small()
    assert (config.bottom_words, config.right_words) == (3 * 2 * 4, 3 * 2 * 3)
    assert config.memory_bits == (2 * 4 + 2 * 3) * 2 * 16
    assert (config.beats_in, config.beats_out, config.cycles) == (16 * 2, 4 * 9 * 2, 4 * 9 * 2)
    assert config.needed


def test_not_needed():
    """Windows that share nothing, and recomputation, keep nothing."""
    layers = [shapes.load("vgg16:7").layers[2]]
    for tip, overlap in (((3, 5), "reuse"), ((3, 5), RECOMPUTE)):
        ((rows, columns),) = axes(layers, tip, overlap)
        source = BeatFormat(channels=64, height=rows.size, width=columns.size, lanes=8, bits=8, signed=False)
        config = ReuseBufferConfig(input=source, rows=rows, columns=columns)
        assert not config.needed
        assert config.words == config.memory_bits == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input": BeatFormat(channels=3, height=4, width=4, lanes=2, bits=8, signed=False, pixels=2)},
            "input.pixels must be 1 in a pyramid, not 2",
        ),
        (
            {"input": BeatFormat(channels=3, height=4, width=5, lanes=2, bits=8, signed=False)},
            "rows and columns must be those of the 4 x 5 map, not 4 x 4",
        ),
        (
            {
                "columns": Axis(
                    size=4,
                    kernel=3,
                    stride=1,
                    padding=0,
                    spans=(
                        Span(begin=0, fresh=0, end=3, window=0, windows=1),
                        Span(begin=1, fresh=1, end=4, window=1, windows=1),
                    ),
                )
            },
            "columns must not come in twice where rows are kept: what is kept of them would be lost",
        ),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        small(**changes)


def test_reads_what_was_just_stored():
    """A map of one pixel a tile: what the last tile stored is read by the next in the very next cycle."""
    spans = tuple(
        Span(begin=max(0, n - 1), fresh=n, end=n + 1, window=max(0, n - 1), windows=int(n > 0)) for n in range(4)
    )
    axis = Axis(size=4, kernel=2, stride=1, padding=0, spans=spans)
    config = small(
        input=BeatFormat(channels=1, height=4, width=4, lanes=1, bits=8, signed=False), rows=axis, columns=axis
    )
    frames = np.arange(32).reshape(2, 1, 4, 4)
    sent, expected = streams(config, frames)
    assert run(ReuseBuffer(config), sent, len(expected), offer=ALWAYS, accept=ALWAYS).words == expected
