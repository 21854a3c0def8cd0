"""Tiles of pyramids: every window once, nothing missing, nothing kept that isn't needed."""

from __future__ import annotations

import re

import pytest
from chains import chains, conv
from counted import cases_in_the_long_run
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from refusals import NOTHING_TO_DO, left_out_if
from tiles import new_lanes, tilings, used_lanes, whole_lanes, window_pixels

from hwgen.errors import ConfigError, PlanError
from hwgen.explore import pyramid
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.network import shapes
from hwgen.templates.pyramid_tiles import RECOMPUTE, RELOAD, REUSE, axes

ALEXNET = shapes.load("alexnet-set").layers[:4]


@cases_in_the_long_run(150)
@given(data=st.data(), layers=chains(4))
def test_reuse(data, layers):
    """Every pixel comes in once, every window is computed once, and layers hand on just what the next one takes."""
    both = data.draw(tilings(layers, REUSE))
    for place in (0, 1):
        for number, layer in enumerate(layers):
            axis = both[number][place]
            ends = [0, *(span.end for span in axis.spans)]
            assert [span.fresh for span in axis.spans] == ends[:-1]
            done = 0
            for span in axis.spans:
                assert span.window == done
                done += span.windows
                needs = window_pixels(axis, span)
                assert not span.windows or (span.begin <= needs.start or needs.start == needs.stop)
                assert not span.windows or needs.stop == span.end
                # Kept is what later windows need of what was there.
                later = done - span.windows
                assert span.kept <= max(axis.extent - axis.stride, 0)
                if span.kept:
                    assert span.begin == max(later * axis.stride - axis.padding, 0)
            following = both[number + 1][place] if number + 1 < len(layers) else None
            if following is None:
                assert done == (layer.output_height, layer.output_width)[place]
            else:
                assert [(span.window, span.windows) for span in axis.spans] == [
                    (span.fresh, span.new) for span in following.spans
                ]


@settings(max_examples=100)
@given(data=st.data(), layers=chains(4))
def test_bands_are_no_larger_than_counted(data, layers):
    """``(K - S)`` rows, and new rows of at most the advance: the accounting of the thesis's exploration tool."""
    last = layers[-1]
    tip = (data.draw(st.integers(1, last.output_height)), data.draw(st.integers(1, last.output_width)))
    with left_out_if(NOTHING_TO_DO):
        both = axes(layers, tip)
    for layer, pair, level in zip(layers, both, pyramid.back_map(layers, tip), strict=True):
        for place, axis in enumerate(pair):
            overlap = max(layer.window.extent[place] - layer.window.stride[place], 0)
            assert axis.kept <= overlap
            assert axis.new <= level.advance[place]
            assert axis.tile <= level.advance[place] + axis.extent - axis.stride


@cases_in_the_long_run(150)
@given(data=st.data(), layers=chains(3))
def test_recomputation(data, layers):
    """As many values as the model of recomputation counts."""
    last = layers[-1]
    tip = (data.draw(st.integers(1, last.output_height)), data.draw(st.integers(1, last.output_width)))
    with left_out_if(NOTHING_TO_DO):
        both = axes(layers, tip, RECOMPUTE)
    work = pyramid.recomputation(layers, tip)
    rows, columns = both[0]
    assert rows.pixels * columns.pixels * layers[0].channels == work.input_words
    done = sum(
        rows.windows * columns.windows * layer.weight_count for layer, (rows, columns) in zip(layers, both, strict=True)
    )
    assert done == work.multiplications + work.extra_multiplications


@settings(max_examples=100)
@given(data=st.data(), layers=chains(3))
def test_reloading(data, layers):
    """As if the first layer were computed again and the others with reuse; its windows are what they take."""
    last = layers[-1]
    tip = (data.draw(st.integers(1, last.output_height)), data.draw(st.integers(1, last.output_width)))
    with left_out_if(NOTHING_TO_DO):
        both = axes(layers, tip, RELOAD)
    if len(layers) == 1:
        assert both == axes(layers, tip, RECOMPUTE)
        reject()
    assert both[1:] == axes(layers[1:], tip)
    for place in (0, 1):
        first, following = both[0][place], both[1][place]
        for span, after in zip(first.spans, following.spans, strict=True):
            assert (span.window, span.windows) == (after.fresh, after.new)
            assert (span.begin, span.end) == (span.fresh, span.end)
            if span.windows:
                assert slice(span.begin, span.end) == window_pixels(first, span)
            else:
                assert span.size == 0


@cases_in_the_long_run(150)
@given(data=st.data(), layers=chains(3), pixels=st.integers(2, 5))
def test_beats(data, layers, pixels):
    """Spans in beats of several columns, against columns dealt out to lanes."""
    for _, columns in data.draw(tilings(layers)):
        if new_lanes(columns, pixels) is None:
            with pytest.raises(ConfigError, match=f"^pixels must divide the .* where some are kept, not {pixels}$"):
                columns.cut(pixels)
            continue
        for cut, lanes, used in zip(
            columns.cut(pixels), whole_lanes(columns, pixels), used_lanes(columns, pixels), strict=True
        ):
            assert [column for column in range(cut.first, cut.first + cut.size * pixels) if column in lanes] == [
                column for column in lanes if column is not None
            ]
            assert cut.size == len(lanes) // pixels
            assert cut.used == len(used) // pixels
            assert cut.new == -(-cut.span.new // pixels)


def test_alexnet():
    """Advances 16, 4, 2, 2; tiles of 23, 5, 6 and 3 (thesis, section 3.1, without what the pyramids share)."""
    both = axes(ALEXNET, (1, 1))
    rows = [row for row, _ in both]
    assert [axis.new for axis in rows] == [16, 4, 2, 2]
    assert [axis.tile for axis in rows] == [23, 5, 6, 3]
    assert [axis.kept for axis in rows] == [7, 1, 4, 1]
    assert [axis.pixels for axis in rows] == [227, 55, 27, 27]
    # As in the thesis's implementation: the image's tiles come in whole, 14 rows of them, the first one 19 high.
    (reloaded, _), *others = axes(ALEXNET, (1, 1), RELOAD)
    assert (reloaded.kept, reloaded.tile, reloaded.pixels) == (0, 23, 19 + 13 * 23)
    assert [row.kept for row, _ in others] == [1, 4, 1]
    # Three rows of pyramids before the corner: the first reaches 3 rows into the map, 48 before the 51 of the corner's.
    assert [span.end for span in rows[0].spans[:4]] == [3, 19, 35, 51]


@pytest.mark.parametrize(
    ("tip", "overlap", "message"),
    [
        ((0, 1), REUSE, "pool2: tile must be between 1x1 and its output's 13x13, not 0x1"),
        ((1, 14), REUSE, "pool2: tile must be between 1x1 and its output's 13x13, not 1x14"),
        ((1, 1), "both", "overlap must be 'reuse', 'reload' or 'recompute', not 'both'"),
    ],
)
def test_plan_errors(tip, overlap, message):
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        axes(ALEXNET, tip, overlap)


@pytest.mark.parametrize("overlap", [REUSE, RELOAD, RECOMPUTE])
def test_windows_in_the_padding_alone(overlap):
    """A second layer of which only the padding above is needed."""
    layers = (conv("a", 1, 1, 4), conv("b", 1, 1, 2, kernel=1, stride=4, padding=1))
    message = "b: no window that is needed reaches into the map; a pyramid has nothing to do"
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        axes(layers, (1, 1), overlap)


@pytest.mark.parametrize("overlap", [REUSE, RELOAD, RECOMPUTE])
def test_windows_around_the_map(overlap):
    """Windows above and below a map that the stride skips: its pixels are in no window."""
    layers = (conv("a", 1, 1, 1, kernel=1, stride=2, padding=1),)
    assert layers[0].output_height == 2
    message = "a: no window that is needed reaches into the map; a pyramid has nothing to do"
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        axes(layers, (1, 1), overlap)


FIRST = Span(begin=0, fresh=0, end=3, window=0, windows=1)
SECOND = Span(begin=1, fresh=3, end=4, window=1, windows=1)


def make(*spans: Span, **changes) -> TiledAxis:
    return TiledAxis(**{"size": 4, "extent": 3, "stride": 1, "padding": 0, "spans": spans} | changes)


def test_figures():
    axis = make(FIRST, SECOND)
    assert (axis.kept, axis.new, axis.tile, axis.pixels, axis.windows) == (2, 3, 3, 4, 2)
    assert not axis.overlaps


@pytest.mark.parametrize(
    ("spans", "changes", "message"),
    [
        ((FIRST,), {"stride": 0}, "size, extent and stride must be positive and padding not negative, not 4, 3, 0"),
        (
            (Span(begin=0, fresh=0, end=2, window=0, windows=0),),
            {},
            "a span must have a pixel that its windows need, not",
        ),
        ((FIRST, Span(begin=1, fresh=3, end=5, window=1, windows=1)), {}, "a span must lie in order in the 4 pixels"),
        ((FIRST, Span(begin=2, fresh=3, end=4, window=1, windows=1)), {}, "a span must hold the 1 to 4 that its"),
        ((SECOND,), {}, "the first span must keep nothing, not"),
        (
            (FIRST, Span(begin=1, fresh=2, end=4, window=1, windows=1)),
            {},
            "a span must keep what the one before, Span(begin=0, fresh=0, end=3, window=0, windows=1), ends with, not",
        ),
    ],
)
def test_errors(spans, changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        make(*spans, **changes)
