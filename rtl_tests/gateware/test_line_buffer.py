"""The line buffer: every tap of every window, and the cycle of everything it does."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from accelerators import to_beats
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals_in
from testbench import ALWAYS, Pattern, Trace, patterns
from walks import (
    frames_for,
    inside_windows,
    line_buffers,
    next_high,
    run_walk,
    step_mask,
    step_words,
    steps_of,
    together,
    whole_windows,
)

from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.stream import BeatFormat


def make(**changes) -> LineBufferConfig:
    """A 3 x 3 window over 3 x 5 x 7, two channels a beat, with changes; ``input`` may be part of them."""
    source = {"channels": 3, "height": 5, "width": 7, "lanes": 2, "bits": 8, "signed": True}
    source |= {name: changes.pop(name) for name in list(changes) if name in (*source, "groups")}
    if "input_pixels" in changes:
        source["pixels"] = changes.pop("input_pixels")
    fields = {
        "input": BeatFormat(**source),
        "kernel": (3, 3),
        "stride": (1, 1),
        "padding": (1, 1, 1, 1),
        "pad_value": -5,
        "taps": 3,
        "output_folds": 2,
        "channelwise": False,
        "rows": 3,
    }
    return LineBufferConfig(**fields | changes)


def expected_steps(config: LineBufferConfig, frames: np.ndarray) -> list[int]:
    windows, _ = together(config, whole_windows(config, frames))
    inside, _ = together(config, np.repeat(inside_windows(config), len(frames), axis=0))
    return masked(config, frames, step_words(config, steps_of(config, windows), inside))


def masked(config: LineBufferConfig, frames: np.ndarray, words: list[int]) -> list[int]:
    """Zero where a step is about pixels past the end of a row."""
    _, there = together(config, whole_windows(config, frames))
    return [word & mask for word, mask in zip(words, step_mask(config, there), strict=False)]


def simulate(config: LineBufferConfig, frames: np.ndarray, offer: Pattern, room: Pattern, **options) -> Trace:
    steps = len(expected_steps(config, frames))
    return run_walk(LineBuffer(config), to_beats(config.input, frames), steps, offer=offer, room=room, **options)


def check_times(config: LineBufferConfig, trace: Trace, frames: int) -> None:
    """Every event as early as the docstring allows: beats taken, folds started, steps on the output."""
    source, watched = config.input, trace.watched
    starts = [cycle for cycle, start in enumerate(watched["start"]) if start]
    folds = [watched["fold"][cycle] for cycle in starts]
    assert folds == list(range(config.output_folds)) * (config.windows * frames)

    row_beats = -(-source.width // source.pixels)
    places = [(row, step) for row in range(config.output_height) for step in range(config.grid.row_steps)]
    needed = []
    for frame in range(frames):
        for place in places:
            row, column = divmod(config.grid.needed(*place) - 1, source.width)
            beat = (frame * source.height + row) * row_beats + column // source.pixels
            needed.append((beat + 1) * source.folds - 1)
    free = 0
    for number, start in enumerate(starts):
        window, fold = divmod(number, config.output_folds)
        earliest = free if fold else max(free, trace.taken[needed[window]] + config.write_delay)
        assert start == next_high(watched["room"], earliest), f"output fold {number}"
        free = start + config.steps

    released = np.array([config.grid.released(*place) for place in places])
    ring = config.rows * source.width
    ends = [starts[window * config.output_folds + config.output_folds - 1] for window in range(len(needed))]
    free = 0
    for number, cycle in enumerate(trace.taken):
        row, step = divmod(number // source.folds, row_beats)
        pixel = row * source.width + min((step + 1) * source.pixels, source.width) - 1 - ring  # last one overwritten
        earliest = free
        if pixel >= 0:
            frame, pixel = divmod(pixel, source.frame_pixels)
            window = frame * len(places) + int(np.searchsorted(released, pixel, side="right"))
            if pixel < config.grid.skipped:
                window = frame * len(places) - 1
            if window >= 0:
                earliest = max(free, ends[window] + config.steps - 1 + config.release_delay)
        assert cycle == next_high(watched["offered"], earliest), f"beat {number}"
        free = cycle + 1

    steps = [start + config.latency + step for start in starts for step in range(config.steps)]
    assert trace.times == steps


@cases_in_the_long_run(28, share=0.3)
@given(config=line_buffers(inside=True, memories=True), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_windows(config, seed, offer, room):
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer, room)
    assert len(trace.words) == 3 * config.windows * config.window_cycles
    assert masked(config, frames, trace.words) == expected_steps(config, frames)
    assert len(trace.taken) == 3 * config.input.beats
    check_times(config, trace, 3)


@cases_in_the_long_run(15)
@given(config=line_buffers(cropped=True), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_windows_over_a_part(config, seed, offer, room):
    """Rows and columns that are in no window come in all the same, and hold nothing up."""
    frames = frames_for(config, 3, seed)
    trace = simulate(config, frames, offer, room)
    assert masked(config, frames, trace.words) == expected_steps(config, frames)
    assert len(trace.taken) == 3 * config.input.beats
    check_times(config, trace, 3)


@pytest.mark.parametrize(("taps", "pixels"), [(1, 1), (3, 1), (9, 1), (4, 1), (3, 2)])
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        pytest.param(shape, rows, marks=() if (place, rows) in ((0, 3), (2, 7)) else pytest.mark.long)
        for place, shape in enumerate(
            (
                {"channels": 3, "height": 5, "width": 7},
                {"channels": 5, "height": 3, "width": 6},
                {"channels": 4, "height": 3, "width": 4, "lanes": 1},
            )
        )
        for rows in (3, 4, 7)
    ],
)
def test_rate(shape, taps, pixels, rows):
    """Nobody stalls: a step a cycle from the second frame on, across padding, row ends and frame ends."""
    config = make(taps=taps, pixels=pixels, input_pixels=pixels, rows=rows, **shape)
    frames = frames_for(config, 3, 1)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert masked(config, frames, trace.words) == expected_steps(config, frames)
    check_times(config, trace, 3)
    steps = config.windows * config.window_cycles
    if rows > config.extent[0]:
        assert trace.times[-1] - trace.times[steps] == 2 * steps - 1


@cases_in_the_long_run(20)
@given(
    config=line_buffers(max_side=5),
    seed=st.integers(0, 2**32),
    offer=patterns(),
    room=patterns(),
    reset_at=st.integers(0, 150),
)
def test_reset(config, seed, offer, room, reset_at):
    """The beat after a reset is a frame's first."""
    frames = frames_for(config, 4, seed)
    before, after = expected_steps(config, frames[:2]), expected_steps(config, frames[2:])
    trace = simulate(
        config, frames[:2], offer, room, reset_at=reset_at, after=(to_beats(config.input, frames[2:]), len(after))
    )
    assert trace.reset is not None
    sent = trace.reset[2]
    assert masked(config, frames[:2], trace.words[:sent]) == before[:sent]
    assert len(trace.words[sent:]) == len(after)
    assert masked(config, frames[2:], trace.words[sent:]) == after


@cases_in_the_long_run(300)
@given(config=line_buffers())
def test_needed_and_released(config):
    """Against the pixels that each window touches: never too early, and never later than there is reason to."""
    source = config.input
    touched, all_touch = [], True
    places = [(row, step) for row in range(config.output_height) for step in range(config.grid.row_steps)]
    for row, step in places:
        top = row * config.stride[0] - config.padding[0]
        columns = range(step * config.pixels, min((step + 1) * config.pixels, config.output_width))
        lefts = [column * config.stride[1] - config.padding[1] for column in columns]
        single = [
            [
                y * source.width + x
                for y in range(max(top, 0), min(top + config.extent[0], source.height))
                for x in range(max(left, 0), min(left + config.extent[1], source.width))
            ]
            for left in lefts
        ]
        all_touch = all_touch and all(single)
        touched.append([pixel for window in single for pixel in window])
    released_before = 0
    for number, place in enumerate(places):
        if touched[number]:
            assert config.grid.needed(*place) == max(touched[number]) + 1
        later = [pixel for pixels in touched[number + 1 :] for pixel in pixels]
        released = config.grid.released(*place)
        assert released_before <= released <= min(later, default=source.frame_pixels)
        released_before = released
        below = (place[0] + 1) * config.stride[0] > config.padding[0] or place[0] < config.output_height - 1
        if all_touch and below:
            assert released == min(later, default=source.frame_pixels)
    assert released_before == source.frame_pixels


def test_windows_right_of_the_map_need_nothing():
    """The second of two windows begins at column 3 of three: it waits for no pixel but the first window's one."""
    config = make(height=1, width=3, kernel=(1, 1), stride=(1, 3), padding=(0, 0, 0, 1), taps=1, rows=1, pixels=2)
    assert config.output_width == 2
    assert config.grid.needed(0, 0) == 1


@cases_in_the_long_run(300)
@given(config=line_buffers(max_side=12, cropped=True))
def test_steps_from_window_to_window(config):
    """The tables add up to what each window needs and releases."""
    windows = [(row, step) for row in range(config.output_height) for step in range(config.grid.row_steps)]
    pixels = config.input.frame_pixels
    needs = [config.grid.needed(*window) for window in windows] + [pixels + config.grid.needed(0, 0)]
    releases = [config.grid.skipped] + [config.grid.released(*window) for window in windows]
    for steps, counts in ((config.grid.need_steps, needs), (config.grid.release_steps, releases)):
        assert len(steps.ends) == len(steps.counts) == config.output_height
        growth = [
            steps.ends[row] if step == config.grid.row_steps - 1 else steps.columns[step] * steps.counts[row]
            for row, step in windows
        ]
        assert growth == [after - before for before, after in pairwise(counts)]


@cases_in_the_long_run(300)
@given(config=line_buffers(max_side=12))
def test_cost(config):
    taps = [(row, column) for row in range(config.kernel[0]) for column in range(config.kernel[1])]
    assert sorted(tap for fold in config.patches.step_taps for tap in fold) == taps  # each once
    assert [len(fold) for fold in config.patches.step_taps[:-1]] == [config.taps] * (config.tap_folds - 1)
    assert len(config.patches.step_taps[-1]) == len(taps) - config.taps * (config.tap_folds - 1)
    assert config.tap_folds == -(-len(taps) // config.taps)
    if config.patches.chooses:
        assert config.patches.size == config.kernel
    else:
        assert config.patches.size[0] * config.patches.size[1] == config.taps
    assert config.windows == config.output_height * -(-config.output_width // config.pixels)
    assert config.window_cycles == config.steps * config.output_folds
    assert config.steps == config.tap_folds * (1 if config.channelwise else config.input.folds // config.input.groups)
    # Every pixel of the ring has its own word; banks are read side by side.
    words = config.banks.rows * config.banks.columns * config.banks.depth
    assert words >= config.rows * config.input.width * config.input.folds


@pytest.mark.parametrize(("changes", "message"), refusals_in("line_buffer_errors.txt"))
def test_errors(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        make(**changes)


def test_extreme_pad_values_are_values():
    for signed, value in ((True, 127), (True, -128), (False, 255), (False, 0)):
        assert make(signed=signed, pad_value=value).pad_value == value


def test_padding_above_a_map_much_higher_than_its_windows():
    """The only row of windows starts above the map: its rows must not wrap into it."""
    config = make(height=80, width=2, stride=(80, 1), padding=(1, 1, 0, 1))
    frames = frames_for(config, 2, 7)
    assert simulate(config, frames, ALWAYS, ALWAYS).words == expected_steps(config, frames)


@pytest.mark.parametrize(
    ("pixels", "kernel", "taps"), [(2, (3, 3), 9), (2, (3, 3), 3), (2, (1, 3), 3), (3, (4, 4), 16), (4, (5, 5), 5)]
)
@pytest.mark.parametrize("height", [5, pytest.param(6, marks=pytest.mark.long)])
def test_beats_across_the_ring_of_banks(pixels, kernel, taps, height):
    """Column banks that a beat's pixels do not divide: some of a beat lie a word further than its first."""
    shape = {"channels": 5, "height": height, "width": 11, "lanes": 2}
    config = make(input_pixels=pixels, kernel=kernel, taps=taps, rows=kernel[0] + 1, **shape)
    assert config.banks.columns % pixels
    assert config.input.folds > 1
    frames = frames_for(config, 3, 11)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert masked(config, frames, trace.words) == expected_steps(config, frames)
    check_times(config, trace, 3)


@pytest.mark.parametrize(
    ("dilation", "taps", "pixels", "columns", "banks"),
    [
        (2, 3, 1, [0, 2, 4], (1, 3)),  # banks 0, 2, 1
        (3, 3, 1, [0, 3, 6], (1, 4)),  # banks 0, 3, 2: with three banks all would lie in one
        (4, 9, 1, [0, 4, 8], (9, 3)),
        (2, 9, 2, [0, 1, 2, 3, 4, 5], (5, 6)),
        pytest.param(3, 9, 2, [0, 1, 3, 4, 6, 7], (7, 8), marks=pytest.mark.long),
        (3, 4, 1, [0, 3, 6], (7, 4)),  # taps are chosen behind the memory
        (2, 1, 3, [0, 1, 2], (1, 3)),
    ],
)
def test_dilation(dilation, taps, pixels, columns, banks):
    """The column banks are the fewest in which the columns that are read together never meet."""
    shape = {"height": 11, "width": 13, "padding": (dilation, dilation, dilation, 0), "input_pixels": pixels}
    config = make(dilation=(dilation,) * 2, taps=taps, pixels=pixels, rows=2 * dilation + 1, **shape)
    assert list(config.patches.read_columns) == columns
    assert (config.banks.rows, config.banks.columns) == banks
    frames = frames_for(config, 2, 5)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert masked(config, frames, trace.words) == expected_steps(config, frames)
    check_times(config, trace, 2)


def test_several_output_folds_a_group():
    """Four, for which counting down would not come to the same."""
    config = make(channels=4, lanes=1, groups=2, output_folds=8)
    frames = frames_for(config, 2, 3)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert trace.words == expected_steps(config, frames)
    check_times(config, trace, 2)


@pytest.mark.parametrize(
    ("changes", "pieces"),
    [
        # Five rows, with banks of their own each; four banks side by side in one row; a bank of two memories.
        ({"channels": 12, "height": 6, "width": 40, "taps": 9, "rows": 5}, 1),
        ({"channels": 4, "height": 4, "width": 48, "kernel": (3, 4), "taps": 4}, 1),
        ({"channels": 8, "lanes": 8, "height": 3, "width": 700, "kernel": (2, 1), "padding": (0,) * 4, "taps": 1}, 2),
        pytest.param(
            {"channels": 24, "lanes": 8, "height": 2, "width": 1400, "kernel": (2, 2), "padding": (0,) * 4, "taps": 4},
            2,
            marks=pytest.mark.long,
        ),
    ],
)
def test_words_in_output_registers(changes, pieces):
    """Where much is chosen behind block RAM its words are registered, and deep banks are made of several memories."""
    config = make(output_folds=1, **changes)
    assert config.banks.registers_words
    assert config.banks.pieces == pieces
    frames = frames_for(config, 2, 5)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert trace.words == expected_steps(config, frames)
    check_times(config, trace, 2)


@pytest.mark.parametrize(
    ("changes", "depth"),
    [
        # A bank for each row and column, one for each column, and one for all.
        ({"channels": 12, "lanes": 1, "width": 17, "taps": 9}, 72),
        ({"channels": 6, "lanes": 2, "width": 40, "taps": 3}, 126),
        ({"channels": 8, "lanes": 8, "height": 3, "width": 69, "kernel": (1, 1), "padding": (0,) * 4, "taps": 1}, 207),
    ],
)
def test_deep_banks_in_lut_ram(changes, depth):
    """Words come as if banks were shallow, whatever their depth."""
    config = make(output_folds=1, memory_in="lut", **changes)
    assert (config.banks.depth, config.banks.memory, config.banks.registers_words) == (depth, "lut", False)
    assert config.resources.bram36 == 0 < replace(config, memory_in=None).resources.bram36
    frames = frames_for(config, 2, 5)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert trace.words == expected_steps(config, frames)
    check_times(config, trace, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 12, "lanes": 1, "width": 17, "taps": 9},
        {"channels": 6, "lanes": 2, "width": 40, "taps": 3},
        {"channels": 8, "lanes": 8, "height": 3, "width": 69, "kernel": (1, 1), "padding": (0,) * 4, "taps": 1},
    ],
)
def test_banks_in_ultra_ram(changes):
    """Words pass the output registers of UltraRAM, whatever follows it."""
    config = make(output_folds=1, memory_in="ultra", device=ULTRASCALE_PLUS, **changes)
    assert (config.banks.memory, config.banks.registers_words) == ("ultra", True)
    assert config.resources.bram36 == 0
    assert config.resources.uram == config.banks.rows * config.banks.columns * -(-config.word_bits // 72)
    frames = frames_for(config, 2, 5)
    trace = simulate(config, frames, ALWAYS, ALWAYS)
    assert trace.words == expected_steps(config, frames)
    check_times(config, trace, 2)


def test_steps_are_shared():
    """A search for unroll factors computes the tables of a row of 65,535 columns once, not for each candidate."""
    wide = {"height": 3, "width": 65_535, "kernel": (1, 3), "stride": (1, 1), "padding": (0, 0, 0, 0), "rows": 1}
    one, other = make(taps=1, **wide), make(taps=3, **wide)
    assert one.grid.need_steps is other.grid.need_steps
    assert one.grid.release_steps is other.grid.release_steps
