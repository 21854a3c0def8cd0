"""Tiles of pyramids, and tiles on chip: every tap of every window once, in its cycle, and nothing kept in vain."""

from __future__ import annotations

import re
from itertools import accumulate, product

import numpy as np
import pytest
from chains import chains, conv
from counted import cases_in_the_long_run
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from papers import thesis
from refusals import NOTHING_TO_DO, left_out_if
from testbench import ALWAYS, Pattern, Trace, patterns
from tiles import (
    beats_of,
    new_lanes,
    rectangles,
    tile_buffers,
    tilings,
    used_lanes,
    walk_cycles,
    whole_lanes,
    whole_parts,
    window_pixels,
)
from walks import frames_for, inside_windows, next_high, run_walk, step_words, steps_of, whole_windows

from hwgen.errors import ConfigError, PlanError
from hwgen.explore import pyramid
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.pyramid.buffer import HALVES, PyramidBuffer, PyramidBufferConfig
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.gateware.stream import BeatFormat
from hwgen.network import shapes
from hwgen.options import OVERLAPS
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
    for layer, pair, level in zip(layers, both, thesis.back_map(layers, tip), strict=True):
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
            "a span must keep the end of the previous one, Span(begin=0, fresh=0, end=3, window=0, windows=1), not",
        ),
    ],
)
def test_errors(spans, changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        make(*spans, **changes)


SEEDS = st.integers(0, 2**32)


def expected_steps(config: PyramidBufferConfig, frames: np.ndarray) -> list[int]:
    """The steps of a line buffer, pyramid by pyramid."""
    windows = _by_pyramid(config, whole_windows(config.window, frames))
    inside = _by_pyramid(config, np.repeat(inside_windows(config.window), len(frames), axis=0))
    return step_words(config.window, steps_of(config.window, windows), inside)


def _by_pyramid(config: PyramidBufferConfig, windows: np.ndarray) -> np.ndarray:
    """Windows of frames in the order in which pyramids have them."""
    parts = [
        windows[
            frame,
            row.window : row.window + row.windows,
            column.window : column.window + column.windows,
        ].reshape(-1, 1, *windows.shape[3:])
        for frame in range(len(windows))
        for row, column in rectangles(config.rows, config.columns)
    ]
    return np.concatenate(parts)


def tiles_of(config: PyramidBufferConfig, frames: np.ndarray) -> list[int]:
    source = config.window.input
    parts = [part for frame in frames for part in whole_parts(config.rows, config.columns, frame, source.pixels)]
    return beats_of(source, parts)


def simulate(config: PyramidBufferConfig, frames: np.ndarray, offer: Pattern, room: Pattern, **options) -> Trace:
    steps = len(expected_steps(config, frames))
    return run_walk(PyramidBuffer(config), tiles_of(config, frames), steps, offer=offer, room=room, **options)


def check_times(config: PyramidBufferConfig, trace: Trace, frames: int) -> None:
    """Every event as early as the docstring allows: beats taken, folds started, steps on the output."""
    window, watched = config.window, trace.watched
    starts = [cycle for cycle, start in enumerate(watched["start"]) if start]
    assert [watched["fold"][cycle] for cycle in starts] == list(range(window.output_folds)) * (config.windows * frames)
    taken, started = iter(trace.taken), iter(starts)
    filled, ends = [], []  # cycles in which tiles are complete; of their last steps
    writer = reader = 0  # earliest next cycle
    first = next(number for number, fill in enumerate(config.fill_beats) if fill)
    for number, (fill, walk) in enumerate(zip(config.fill_beats * frames, walk_cycles(config) * frames, strict=True)):
        if number >= HALVES:
            writer = max(writer, ends[number - HALVES] + config.release_delay)
        for _ in range(fill):
            cycle = next(taken)
            assert cycle == next_high(watched["offered"], writer), f"tile {number}"
            writer = cycle + 1
        if not fill:
            writer = (next_high(watched["offered"], writer) if number % len(config.fill_beats) < first else writer) + 1
        filled.append(writer - 1)
        reader = max(reader, filled[-1] + config.write_delay)
        for _ in range(walk // window.steps):
            cycle = next(started)
            assert cycle == next_high(watched["room"], reader), f"tile {number}"
            reader = cycle + window.steps
        ends.append(reader - 1)
    assert trace.times == [start + config.latency + step for start in starts for step in range(window.steps)]


def check_windows(config: PyramidBufferConfig, seed: int, offer: Pattern, room: Pattern) -> None:
    frames = frames_for(config.window, 2, seed)
    trace = simulate(config, frames, offer, room)
    assert trace.words == expected_steps(config, frames)
    assert len(trace.taken) == 2 * sum(config.fill_beats)
    check_times(config, trace, 2)


@settings(max_examples=5)
@given(config=tile_buffers(most=500), seed=SEEDS, offer=patterns(), room=patterns())
def test_windows(config, seed, offer, room):
    check_windows(config, seed, offer, room)


@pytest.mark.long
@settings(max_examples=52)
@given(config=tile_buffers(), seed=SEEDS, offer=patterns(), room=patterns())
def test_many_windows(config, seed, offer, room):
    check_windows(config, seed, offer, room)


@pytest.mark.long
@settings(max_examples=16)
@given(config=tile_buffers(), seed=SEEDS, offer=patterns(), room=patterns(), reset_at=st.integers(0, 300))
def test_reset(config, seed, offer, room, reset_at):
    """The beat after a reset is a frame's first."""
    frames = frames_for(config.window, 2, seed)
    before, after = expected_steps(config, frames[:1]), expected_steps(config, frames[1:])
    trace = simulate(
        config, frames[:1], offer, room, reset_at=reset_at, after=(tiles_of(config, frames[1:]), len(after))
    )
    sent = trace.reset[2]
    assert trace.words[:sent] == before[:sent]
    assert trace.words[sent:] == after


def small(**changes) -> PyramidBufferConfig:
    """3 x 3 windows over 3 x 6 x 6, tiles of 2 x 2 windows, 3 taps and 2 channels a cycle."""
    spans = tuple(Span(begin=begin, fresh=begin, end=begin + 4, window=begin, windows=2) for begin in (0, 2))
    axis = TiledAxis(size=6, extent=3, stride=1, padding=0, spans=spans)
    window = {
        "input": BeatFormat(channels=3, height=6, width=6, lanes=2, bits=8, signed=False),
        "kernel": (3, 3),
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "pad_value": 0,
        "taps": 3,
        "output_folds": 2,
        "channelwise": False,
    }
    fields = (*window, "pixels", "dilation")
    window |= {name: changes.pop(name) for name in list(changes) if name in fields}
    window["rows"] = 2 * 11  # more than any window covers; a pyramid has no ring
    return PyramidBufferConfig(**{"window": LineBufferConfig(**window), "rows": axis, "columns": axis} | changes)


def test_figures_of_tiles_on_chip():
    """By hand: tiles of 4 x 4, rows dealt out to 1 bank and columns to 3, two beats a pixel."""
    config = small()
    assert (config.row_banks, config.column_banks) == (1, 3)
    assert config.half_depth == 4 * 2 * 2
    assert (config.bank_depth, config.window.word_bits) == (2 * 16, 16)
    assert config.fill_beats == (32,) * 4
    # 4 windows of 2 output folds, 3 patches and 2 input folds
    assert walk_cycles(config) == (48,) * 4
    assert config.latency == 4
    assert small(taps=9).latency == 5
    assert small(taps=4).latency == 6


@pytest.mark.parametrize(("pixels", "cycles"), [(1, 529), (2, 276), (4, 138), (8, 69)])
def test_fill_of_alexnet(pixels, cycles):
    """By hand: a pyramid's 23 x 23 pixels of the image, kept ones included, three channels a beat."""
    (rows, columns), *_ = axes(shapes.load("alexnet").layers[:4], (1, 1))
    source = BeatFormat(channels=3, height=227, width=227, lanes=3, bits=8, signed=False, pixels=pixels)
    config = small(input=source, rows=rows, columns=columns, kernel=(11, 11), stride=(4, 4), taps=11)
    assert max(config.fill_beats) == cycles
    assert (config.row_banks, config.column_banks) == (1, 11)
    assert config.half_depth == 23 * 3


def test_beats_wider_than_a_patch():
    """A bank for each pixel of a beat: 2 x 2 windows over tiles of 4 x 4, a tap a cycle."""
    config = small(input=BeatFormat(channels=3, height=6, width=6, lanes=2, bits=8, signed=False, pixels=4), taps=1)
    assert (config.row_banks, config.column_banks) == (1, 4)
    assert config.half_depth == 4 * 2
    assert config.fill_beats == (4 * 2,) * 4


@pytest.mark.parametrize(
    ("pixels", "taps"),
    [
        pytest.param(*case, marks=pytest.mark.long if case in ((2, 1), (4, 1), (2, 25)) else ())
        for case in product((2, 4), (1, 5, 25))
    ],
)
def test_beats_that_begin_before_the_tile(pixels, taps):
    """5 x 5 windows with stride 2 over 12 x 12 and padding: tiles begin 4, 8 columns on, at columns 3 and 7."""
    ((rows, columns),) = axes([conv("a", 3, 1, 12, kernel=5, stride=2, padding=1)], (1, 2))
    source = BeatFormat(channels=3, height=12, width=12, lanes=2, bits=8, signed=False, pixels=pixels)
    config = small(
        input=source, rows=rows, columns=columns, kernel=(5, 5), stride=(2, 2), padding=(1,) * 4, taps=taps, pad_value=9
    )
    assert [cut.first for cut in config.column_cuts] == {2: [0, 2, 6], 4: [-2, 2, 6]}[pixels]
    assert [cut.span.begin for cut in config.column_cuts] == [0, 3, 7]
    frames = frames_for(config.window, 2, 1)
    assert simulate(config, frames, ALWAYS, ALWAYS).words == expected_steps(config, frames)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "taps", "banks", "registered"),
    [
        pytest.param(5, 5, (1, 5), True, marks=pytest.mark.long),
        pytest.param(5, 25, (5, 5), True, marks=pytest.mark.long),
        (3, 9, (3, 3), False),
    ],
)
def test_banks_in_block_ram(kernel, taps, banks, registered):
    """Words go through registers where more than four banks are turned, at once or before the columns."""
    ((rows, columns),) = axes([conv("a", 24, 1, 12, kernel=kernel, padding=1)], (5, 5))
    source = BeatFormat(channels=24, height=12, width=12, lanes=1, bits=8, signed=False)
    config = small(input=source, rows=rows, columns=columns, kernel=(kernel,) * 2, padding=(1,) * 4, taps=taps)
    assert (config.row_banks, config.column_banks) == banks
    assert config.bank_depth > config.memories.lut_depth
    assert (config.registers_words, config.latency) == (registered, 5)
    check_windows(config, 1, ALWAYS, ALWAYS)


_DILATIONS = [(2, 3, (1, 3)), (2, 9, (3, 3)), (3, 9, (4, 4)), (4, 4, (3, 3)), (3, 1, (1, 1))]
#: Cases of the default run; the others are in the long run.
_SHORT = [(2, 3, (1, 3), RECOMPUTE), (3, 9, (4, 4), REUSE)]


@pytest.mark.parametrize(
    ("dilation", "taps", "banks", "overlap"),
    [
        pytest.param(*case, marks=() if case in _SHORT else pytest.mark.long)
        for case in ((*sizes, overlap) for sizes in _DILATIONS for overlap in OVERLAPS)
    ],
)
def test_dilation(dilation, taps, banks, overlap):
    """As many banks as part the taps of a patch: of three with dilation 3 they would all meet in one of three."""
    layer = conv("a", 3, 1, 14, padding=dilation, dilation=dilation)
    ((rows, columns),) = axes([layer], (3, 4), overlap)
    source = BeatFormat(channels=3, height=14, width=14, lanes=2, bits=8, signed=False)
    window = {"padding": layer.window.padding, "dilation": layer.window.dilation, "taps": taps, "pad_value": 9}
    config = small(input=source, rows=rows, columns=columns, output_folds=1, **window)
    assert (config.row_banks, config.column_banks) == banks
    assert rows.kept == (2 * dilation if overlap == REUSE else 0)
    frames = frames_for(config.window, 2, 1)
    assert simulate(config, frames, ALWAYS, ALWAYS).words == expected_steps(config, frames)


def test_groups():
    """Four output folds for each of two groups of channels, two beats each."""
    source = BeatFormat(channels=6, height=6, width=6, lanes=2, bits=8, signed=False, groups=2)
    config = small(input=source, output_folds=8)
    frames = frames_for(config.window, 1, 1)
    assert walk_cycles(config) == (4 * 8 * 3 * 2,) * 4
    assert simulate(config, frames, ALWAYS, ALWAYS).words == expected_steps(config, frames)


def test_filled_while_read():
    """Walks of 48 cycles and fills of 32: after the first fill a step in every cycle."""
    config = small()
    frames = frames_for(config.window, 3, 1)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert trace.words == expected_steps(config, frames)
    begin = 32 + config.latency
    assert trace.times == list(range(begin, begin + 12 * 48))
    # The third tile comes when the first is read: 3 cycles after its last step.
    ends = list(accumulate([31, *[48] * 10]))
    assert trace.taken[64::32] == [end + config.release_delay for end in ends[1:]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pixels": 2}, "window.pixels must be 1 in a pyramid, not 2"),
        (
            {"input": BeatFormat(channels=3, height=6, width=6, lanes=2, bits=8, signed=False, pixels=2)}
            | dict.fromkeys(("rows", "columns"), axes([conv("a", 3, 1, 6)], (1, 1))[0][0]),
            "pixels must divide the 1 that come in from tile to tile where some are kept, not 2",
        ),
        (
            {"stride": (2, 1)},
            "rows must have the window's size, extent, stride and padding (6, 3, 2, 0), not (6, 3, 1, 0)",
        ),
        (
            {"padding": (0, 1, 0, 0)},
            "columns must have the window's size, extent, stride and padding (6, 3, 1, 1), not (6, 3, 1, 0)",
        ),
    ],
)
def test_errors_of_tiles_on_chip(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        small(**changes)
