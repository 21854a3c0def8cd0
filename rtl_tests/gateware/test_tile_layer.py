"""Layers and groups of layers, tile by tile: values by the golden model, cycles by their own cost."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import frames_for
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import Pattern, patterns, stalls
from tiles import SEEDS, Case, cases, new_lanes, pools, simulate

from hwgen.errors import ConfigError
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import in_tiles
from hwgen.templates.pyramid_tiles import RECOMPUTE, RELOAD, REUSE, axes

#: Windows whose first ones lie in the padding: between these a pixel is skipped; two of those bring four columns.
SKIPS = Window(kernel=(2, 2), stride=(3, 3), padding=(2, 2, 0, 0))
KEEPS = Window(kernel=(3, 3), stride=(2, 2), padding=(4, 4, 0, 0))


def check_cycles(case: Case, seed: int) -> None:
    """Nobody stalls: tiles are read when `PyramidLayerConfig.walk_ends` says, and the last outputs follow at once."""
    (layer,) = case.config.layers
    frames = frames_for(case.network, 4, seed)
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
@given(case=cases(most_layers=1, depth="deep", most_cycles=300), seed=SEEDS)
def test_cycles_of_a_layer(case, seed):
    check_cycles(case, seed)


@pytest.mark.long
@settings(max_examples=32)
@given(case=cases(most_layers=1, depth="deep"), seed=SEEDS)
def test_cycles_of_many_layers(case, seed):
    check_cycles(case, seed)


def check_group(case: Case, seed: int, ends: tuple[Pattern, Pattern]) -> None:
    """Any overlap, with stalls: equal to the golden model in tile order."""
    frames = frames_for(case.network, 2, seed)
    trace, expected = simulate(case, frames, offer=ends[0], accept=ends[1])
    assert trace.words == expected
    assert len(trace.taken) == len(case.beats_in(frames))


@pytest.mark.long
@settings(max_examples=5)
@given(case=cases(most_layers=3, most_cycles=300), seed=SEEDS, ends=stalls())
def test_groups(case, seed, ends):
    check_group(case, seed, ends)


@pytest.mark.long
@settings(max_examples=32)
@given(case=cases(most_layers=3), seed=SEEDS, ends=stalls())
def test_many_groups(case, seed, ends):
    check_group(case, seed, ends)


@pytest.mark.long
@settings(max_examples=13)
@given(case=cases(most_layers=2), seed=SEEDS, offer=patterns(), reset_at=st.integers(0, 400))
def test_reset(case, seed, offer, reset_at):
    """The beat after a reset is a frame's first."""
    frames = frames_for(case.network, 2, seed)
    after = case.beats_in(frames[1:]), len(case.beats_out(frames[1:]))
    trace, expected = simulate(case, frames[:1], offer=offer, reset_at=reset_at, after=after)
    before = trace.reset[2]
    assert trace.words[:before] == expected[:before]
    assert trace.words[before:] == case.beats_out(frames[1:])


@cases_in_the_long_run(30)
@given(case=cases(most_layers=2))
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
    frame = frames_for(case.network, 1, 0)
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
    assert case.config.layers[0].tiles.fills[0] == 0
    check_cycles(case, 1)


def test_figures():
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
    assert four[0].tiles.walks == (2 * 2, 2 * 6) * 4
    assert (one[0].reuse.beats_in, one[0].reuse.cycles) == (10 * 10, 18 * 12)
    assert four[1] == one[1]
    # One pixel a beat: all tiles' beats. Four: a row's larger tile is filled once that of the row before has been read,
    # 12 beats, and read, 12 windows, with release_delay - 1 cycles before it.
    assert [layers[0].cycles for layers in (one, four)] == [18 * 12, 4 * (12 + 12 + 2)]


@pytest.mark.parametrize("overlap", [REUSE, RELOAD, RECOMPUTE])
def test_layers_work_at_once(overlap):
    """The slowest layer walks without a pause from the second frame on, the other meanwhile."""
    case = pools(overlap=overlap)
    trace, expected = simulate(case, frames_for(case.network, 4, 1))
    assert trace.words == expected
    lasts = trace.times[35::36]
    assert np.diff(lasts)[1:].tolist() == [case.config.layers[0].cycles] * 2


def test_errors():
    case = pools()
    first, second = case.config.layers
    with pytest.raises(ConfigError, match=rf"^pool0: tiles.window must be the layer's {re.escape(str(first.window))}"):
        replace(first, tiles=second.tiles)
