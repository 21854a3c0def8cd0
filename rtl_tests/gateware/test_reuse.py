"""The reuse buffer, and layers tile by tile: every tile whole and in order, in as many cycles as is stated."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from accelerators import frames_for as input_frames
from accelerators import integers
from chains import conv
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Pattern, patterns, run, stalls
from tiles import SEEDS as TILE_SEEDS
from tiles import (
    Case,
    beats_of,
    cases,
    new_lanes,
    new_parts,
    pools,
    reuse_buffers,
    simulate,
    walk_cycles,
    whole_masks,
    whole_parts,
)

from hwgen.errors import ConfigError
from hwgen.explore import pyramid
from hwgen.gateware.pyramid.reuse import PyramidReuseBuffer, PyramidReuseBufferConfig
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.gateware.stream import BeatFormat
from hwgen.network import shapes
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import in_tiles
from hwgen.templates.pyramid_tiles import RECOMPUTE, RELOAD, REUSE, axes

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
@given(config=reuse_buffers(max_cycles=1000), seed=SEEDS, ends=stalls())
def test_tiles(config, seed, ends):
    check_tiles(config, seed, ends)


@pytest.mark.long
@settings(max_examples=40)
@given(config=reuse_buffers(), seed=SEEDS, ends=stalls())
def test_many_tiles(config, seed, ends):
    check_tiles(config, seed, ends)


@settings(max_examples=5)
@given(config=reuse_buffers(overlap=None, max_cycles=1000), seed=SEEDS)
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
            "rows and columns must equal the map's, 4 x 5, not 4 x 4",
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


#: Windows whose first ones lie in the padding: between these a pixel is skipped; two of those bring four columns.
SKIPS = Window(kernel=(2, 2), stride=(3, 3), padding=(2, 2, 0, 0))
KEEPS = Window(kernel=(3, 3), stride=(2, 2), padding=(4, 4, 0, 0))


def check_layer_cycles(case: Case, seed: int) -> None:
    """Nobody stalls: tiles are read when `PyramidLayerConfig.walk_ends` says, and the last outputs follow at once."""
    (layer,) = case.config.layers
    frames = input_frames(case.network, 4, seed)
    trace, expected = simulate(case, frames)
    assert trace.words == expected
    count = len(layer.tiles.tiles)
    ends = layer.walk_ends(4)[count - 1 :: count]
    beats = len(expected) // 4
    lasts = trace.times[beats - 1 :: beats]
    assert np.diff(lasts).tolist() == np.diff(ends).tolist()
    assert np.diff(ends)[-1] == layer.cycles
    if not layer.regroups[0].needed:
        # From a fold's start, steps - 1 cycles before its last step, to its first beat; then its others.
        offered = ends[0] - (layer.window.steps - 1) + layer.pipeline_latency + layer.fifos[0].latency
        late = layer.reuse.start if layer.reuse.needed else 0
        assert lasts[0] == late + offered + layer.fold_beats[-1] - 1


@settings(max_examples=5)
@given(case=cases(max_layers=1, depth="deep", max_cycles=300), seed=TILE_SEEDS)
def test_cycles_of_a_layer(case, seed):
    check_layer_cycles(case, seed)


@pytest.mark.long
@settings(max_examples=32)
@given(case=cases(max_layers=1, depth="deep"), seed=TILE_SEEDS)
def test_cycles_of_many_layers(case, seed):
    check_layer_cycles(case, seed)


def check_group(case: Case, seed: int, ends: tuple[Pattern, Pattern]) -> None:
    """Any overlap, with stalls: equal to the golden model in tile order."""
    frames = input_frames(case.network, 2, seed)
    trace, expected = simulate(case, frames, offer=ends[0], accept=ends[1])
    assert trace.words == expected
    assert len(trace.taken) == len(case.beats_in(frames))


@pytest.mark.long
@settings(max_examples=5)
@given(case=cases(max_layers=3, max_cycles=300), seed=TILE_SEEDS, ends=stalls())
def test_groups(case, seed, ends):
    check_group(case, seed, ends)


@pytest.mark.long
@settings(max_examples=32)
@given(case=cases(max_layers=3), seed=TILE_SEEDS, ends=stalls())
def test_many_groups(case, seed, ends):
    check_group(case, seed, ends)


@pytest.mark.long
@settings(max_examples=13)
@given(case=cases(max_layers=2), seed=TILE_SEEDS, offer=patterns(), reset_at=st.integers(0, 400))
def test_reset_of_a_layer(case, seed, offer, reset_at):
    """The beat after a reset is a frame's first."""
    frames = input_frames(case.network, 2, seed)
    after = case.beats_in(frames[1:]), len(case.beats_out(frames[1:]))
    trace, expected = simulate(case, frames[:1], offer=offer, reset_at=reset_at, after=after)
    before = trace.reset[2]
    assert trace.words[:before] == expected[:before]
    assert trace.words[before:] == case.beats_out(frames[1:])


@cases_in_the_long_run(30)
@given(case=cases(max_layers=2))
def test_input_order(case):
    """The columns in every lane of every beat."""
    source, order = case.config.input, case.config.input_order
    lanes = [
        [
            column if column in range(*span) else None
            for first in firsts
            for column in range(first, first + source.pixels)
        ]
        for span, firsts in zip(order.columns, order.beat_columns(source.pixels), strict=True)
    ]
    assert lanes == [lanes for lanes in new_lanes(case.tiles[0][1], source.pixels) or [] if lanes]
    frame = input_frames(case.network, 1, 0)
    assert order.beats(source) == case.config.layers[0].reuse.beats_in == len(case.beats_in(frame))


@pytest.mark.parametrize(
    ("window", "tip", "overlap", "pixels"),
    [(SKIPS, (1, 1), REUSE, 1), (SKIPS, (1, 1), REUSE, 2), (KEEPS, (1, 2), REUSE, 4), (KEEPS, (1, 2), RECOMPUTE, 2)],
)
def test_cycles_with_tiles_in_the_padding(window, tip, overlap, pixels):
    """The first rows and columns of windows lie in the padding; pixels are skipped before tiles, or kept."""
    maps = [FeatureMap(channels=1, height=size, width=size, type=UINT8) for size in (8, 3 if window is SKIPS else 5)]
    layer = MaxPool(name="pool", input=maps[0], output=maps[1], window=window)
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=1, chain=1, line_rows=8, fifo_depths=(16,))
    network = Network(name="pool", layers=(layer,))
    tiles = axes([layer], tip, overlap)
    case = Case(network, in_tiles(compose(network, [plan], pixels), tiles))
    assert case.config.layers[0].tiles.fill_beats[0] == 0
    check_layer_cycles(case, 1)


def test_figures_of_a_layer():
    """By hand: 3 rows of pyramids; recomputed, each brings 6, and pool0 computes 4 for each."""
    reuse, again = pools(), pools(overlap=RECOMPUTE)
    assert [axis.pixels for axis, _ in reuse.tiles] == [10, 8]
    assert [axis.pixels for axis, _ in again.tiles] == [18, 12]
    assert [layer.tiles.windows for layer in reuse.config.layers] == [64, 36]
    assert [layer.tiles.windows for layer in again.config.layers] == [144, 36]
    assert [layer.reuse.words for layer in reuse.config.layers] == [2 * 10 + 2 * 2, 2 * 8 + 2 * 2]
    assert [layer.reuse.words for layer in again.config.layers] == [0, 0]
    # Nine steps a window, 36 a tile. With reuse pool0 waits at a frame's start. Let the frame before end with cycle 71:
    # the last tile but two ends with -1, so the last is taken from 2 to 17; 36 + 8 beats of pyramids without a window
    # and 16 of the first tile follow, to 77; the walk goes on in 78 instead of 72.
    assert [layer.cycles for layer in reuse.config.layers] == [64 * 9 + 6, 36 * 9]
    assert [layer.cycles for layer in again.config.layers] == [144 * 9, 36 * 9]


def test_figures_of_wider_beats():
    """By hand: with tips 6 wide there are two pyramids a row; they bring 4 and 6 columns, and the second keeps two.

    Of rows five pyramids bring two each, and hold 2, 4, 4, 4, 4.
    """
    one, four = (pools(tip=(2, 6), tk=9, pixels=pixels).config.layers for pixels in (1, 4))
    assert [layer.window.input.pixels for layer in (*one, *four)] == [1, 1, 4, 1]
    # Beats of 4 columns: one, and three of which one was kept; 2 rows of three are kept, and 2 rows of one.
    assert (four[0].reuse.beats_in, four[0].reuse.cycles) == (10 * 3, 18 * 4)
    assert four[0].reuse.memory_bits == (2 * 3 + 2 * 1) * 4 * 8
    assert walk_cycles(four[0].tiles) == (2 * 2, 2 * 6) * 4
    assert (one[0].reuse.beats_in, one[0].reuse.cycles) == (10 * 10, 18 * 12)
    assert four[1] == one[1]
    # One pixel a beat: all tiles' beats. Four: a row's larger tile is filled once that of the row before has been read,
    # 12 beats, and read, 12 windows, with release_delay - 1 cycles before it.
    assert [layers[0].cycles for layers in (one, four)] == [18 * 12, 4 * (12 + 12 + 2)]


@pytest.mark.parametrize("overlap", [REUSE, RELOAD, RECOMPUTE])
def test_layers_work_at_once(overlap):
    """The slowest layer walks without a pause from the second frame on, the other meanwhile."""
    case = pools(overlap=overlap)
    trace, expected = simulate(case, input_frames(case.network, 4, 1))
    assert trace.words == expected
    lasts = trace.times[35::36]
    assert np.diff(lasts)[1:].tolist() == [case.config.layers[0].cycles] * 2


def test_errors_of_a_layer():
    case = pools()
    first, second = case.config.layers
    with pytest.raises(ConfigError, match=rf"^pool0: tiles.window must be the layer's {re.escape(str(first.window))}"):
        replace(first, tiles=second.tiles)
