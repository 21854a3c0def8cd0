"""The reuse buffer: every tile whole and in order, in as many cycles and words as it states."""

from __future__ import annotations

import re
from itertools import cycle

import numpy as np
import pytest
from accelerators import integers
from chains import conv
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Pattern, patterns, run, stalls
from tiles import beats_of, new_parts, reuse_buffers, whole_masks, whole_parts

from hwgen.errors import ConfigError
from hwgen.explore import pyramid
from hwgen.gateware.pyramid.reuse import PyramidReuseBuffer, PyramidReuseBufferConfig
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.gateware.stream import BeatFormat
from hwgen.network import shapes
from hwgen.templates.pyramid_tiles import RECOMPUTE, RELOAD, axes

SEEDS = st.integers(0, 2**32)


def frames_for(source: BeatFormat, count: int, seed: int) -> np.ndarray:
    low = -(1 << (source.bits - 1)) if source.signed else 0
    shape = (count, source.channels, source.height, source.width)
    return integers(np.random.default_rng(seed), low, low + (1 << source.bits) - 1, shape)


def streams(config: PyramidReuseBufferConfig, frames: np.ndarray) -> tuple[list[int], list[int]]:
    """What comes in and what must leave; ``last`` on a frame's last beat out."""
    sent, expected = [], []
    for frame in frames:
        sent += beats_of(config.input, new_parts(config.rows, config.columns, frame, config.input.pixels))
        whole = beats_of(config.input, whole_parts(config.rows, config.columns, frame, config.input.pixels))
        whole[-1] |= 1 << config.input.data_bits
        expected += whole
    return sent, counting(config, expected)


def counting(config: PyramidReuseBufferConfig, words: list[int]) -> list[int]:
    """Beats, zero in lanes outside of the tiles."""
    masks = cycle(whole_masks(config.rows, config.columns, config.input))
    return [word & next(masks) for word in words]


def check_tiles(config: PyramidReuseBufferConfig, seed: int, ends: tuple[Pattern, Pattern]) -> None:
    frames = frames_for(config.input, 2, seed)
    sent, expected = streams(config, frames)
    assert len(sent) == 2 * config.beats_in
    assert len(expected) == 2 * config.beats_out
    trace = run(PyramidReuseBuffer(config), sent, len(expected), offer=ends[0], accept=ends[1])
    assert counting(config, trace.words) == expected
    assert len(trace.taken) == len(sent)


def check_cycles(config: PyramidReuseBufferConfig, seed: int) -> None:
    frames = frames_for(config.input, 3, seed)
    sent, expected = streams(config, frames)
    trace = run(PyramidReuseBuffer(config), sent, len(expected))
    assert counting(config, trace.words) == expected
    # Each frame's first beat in is its first cycle; after a reset nothing comes in for a while.
    assert np.diff(trace.taken[:: config.beats_in]).tolist() == [config.cycles] * 2
    assert trace.taken[0] == config.start
    assert max(trace.times[-1] - config.latency, trace.taken[-1]) < 3 * config.cycles + config.start


@cases_in_the_long_run(8)
@given(config=reuse_buffers(most_cycles=1000), seed=SEEDS, ends=stalls())
def test_tiles(config, seed, ends):
    check_tiles(config, seed, ends)


@pytest.mark.long
@settings(max_examples=40)
@given(config=reuse_buffers(), seed=SEEDS, ends=stalls())
def test_many_tiles(config, seed, ends):
    check_tiles(config, seed, ends)


@settings(max_examples=5)
@given(config=reuse_buffers(overlap=None, most_cycles=1000), seed=SEEDS)
def test_cycles(config, seed):
    """Nobody stalls: a beat of a tile a cycle, from the first frame's first to the last one's."""
    check_cycles(config, seed)


@pytest.mark.long
@settings(max_examples=26)
@given(config=reuse_buffers(overlap=None), seed=SEEDS)
def test_many_cycles(config, seed):
    check_cycles(config, seed)


@pytest.mark.long
@settings(max_examples=16)
@given(config=reuse_buffers(), seed=SEEDS, offer=patterns(), accept=patterns(), reset_at=st.integers(0, 400))
def test_reset(config, seed, offer, accept, reset_at):
    """The beat after a reset is a frame's first; what was kept before it is forgotten."""
    frames = frames_for(config.input, 3, seed)
    sent, expected = streams(config, frames[:2])
    after = streams(config, frames[2:])
    trace = run(
        PyramidReuseBuffer(config),
        sent,
        len(expected),
        offer=offer,
        accept=accept,
        reset_at=reset_at,
        after=(after[0], len(after[1])),
    )
    before = trace.reset[2]
    assert counting(config, trace.words[:before]) == expected[:before]
    assert counting(config, trace.words[before:]) == after[1]


@pytest.mark.parametrize(
    ("name", "sides", "all_words", "halo_words"),
    # 29,327 and 17,215 by the accounting of Alwani's exploration tool: both sets of channels, and one.
    [("alexnet", (227, 227), 29_327, 24_224), ("alexnet-set", (227, 227), 17_215, 12_112)],
)
def test_words_of_alexnet(name, sides, all_words, halo_words):
    layers = shapes.load(name).layers[:4]
    buffers = [
        PyramidReuseBufferConfig(
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


def input_of_alexnet(overlap: str, pixels: int) -> PyramidReuseBufferConfig:
    """Of the first convolution, tip 1 x 1 behind the second pool, all three channels a beat."""
    (rows, columns), *_ = axes(shapes.load("alexnet").layers[:4], (1, 1), overlap)
    source = BeatFormat(channels=3, height=227, width=227, lanes=3, bits=8, signed=False, pixels=pixels)
    return PyramidReuseBufferConfig(input=source, rows=rows, columns=columns)


@pytest.mark.parametrize(("pixels", "tile"), [(1, 23), (2, 12), (4, 6), (8, 3)])
def test_beats_of_alexnet(pixels, tile):
    """By hand: a pyramid brings 16 columns, the first one 3; it keeps 7. 7 rows of the map and 16 new rows are kept."""
    config = input_of_alexnet("reuse", pixels)
    first, kept, new = -(-3 // pixels), -(-7 // pixels), 16 // pixels
    row = first + 14 * new  # 227 = 3 + 14 x 16
    assert config.beats_in == 227 * row
    assert max(cut.size for cut in config.column_cuts) == tile
    assert config.memory_bits == (7 * row + 16 * kept) * pixels * 3 * 8
    assert config.words == 3 * 7 * (227 + 16)


@pytest.mark.parametrize(("pixels", "row"), [(1, 318), (4, 83)])
def test_reloaded_input_of_alexnet(pixels, row):
    """By hand: 14 tiles a row, one of 19 pixels and 13 of 23, nothing kept; every beat of a tile comes in."""
    config = input_of_alexnet(RELOAD, pixels)
    assert 19 + 13 * 23 == 318
    assert (config.beats_in, config.cycles) == (318 * row, 318 * row)
    assert (config.words, config.needed) == (0, False)
    # The same by slices of an image whose columns and rows are numbered.
    parts = new_parts(config.rows, config.columns, np.indices((227, 227)))
    assert sum(part[0].size for part in parts) == 318 * 318
    assert all((np.diff(part[0], axis=0) == 1).all() and (np.diff(part[1], axis=1) == 1).all() for part in parts)


def small(**changes) -> PyramidReuseBufferConfig:
    """3 x 3 windows over 3 x 4 x 4, two rows and columns of windows a pyramid."""
    spans = (Span(begin=0, fresh=0, end=3, window=0, windows=1), Span(begin=1, fresh=3, end=4, window=1, windows=1))
    axis = TiledAxis(size=4, extent=3, stride=1, padding=0, spans=spans)
    source = BeatFormat(channels=3, height=4, width=4, lanes=2, bits=8, signed=False)
    return PyramidReuseBufferConfig(**{"input": source, "rows": axis, "columns": axis} | changes)


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
        config = PyramidReuseBufferConfig(input=source, rows=rows, columns=columns)
        assert not config.needed
        assert config.words == config.memory_bits == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input": BeatFormat(channels=3, height=6, width=6, lanes=2, bits=8, signed=False, pixels=2)}
            | dict.fromkeys(("rows", "columns"), axes([conv("a", 3, 1, 6, kernel=4)], (1, 1))[0][0]),
            "pixels must divide the 1 that come in from tile to tile where some are kept, not 2",
        ),
        (
            {"input": BeatFormat(channels=3, height=4, width=5, lanes=2, bits=8, signed=False)},
            "rows and columns must be those of the 4 x 5 map, not 4 x 4",
        ),
        (
            {
                "columns": TiledAxis(
                    size=4,
                    extent=3,
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
    axis = TiledAxis(size=4, extent=2, stride=1, padding=0, spans=spans)
    config = small(
        input=BeatFormat(channels=1, height=4, width=4, lanes=1, bits=8, signed=False), rows=axis, columns=axis
    )
    frames = np.arange(32).reshape(2, 1, 4, 4)
    sent, expected = streams(config, frames)
    assert run(PyramidReuseBuffer(config), sent, len(expected), offer=ALWAYS, accept=ALWAYS).words == expected
