"""Readers of maps at constant rows and columns: values, cycles, resets and refusals, against NumPy's indexing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_checks import maps, padded, words
from testbench import Pattern, patterns, run, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.resample import ResampleConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.tools import synthesis


@st.composite
def indices(draw, size: int) -> tuple[int, ...]:
    """Indices of a map that rise, as those of a Resize, or are reflected at both ends, as those of a Pad."""
    count = draw(st.integers(1, 2 * size + 3))
    if draw(st.booleans()):
        return tuple(sorted(draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count))))
    before, after = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
    return tuple(np.pad(np.arange(size), (before, after), mode="reflect").tolist())


@st.composite
def readers(draw) -> ResampleConfig:
    channels = draw(st.integers(1, 4))
    beat = BeatFormat(
        channels=channels,
        height=draw(st.integers(1, 4)),
        width=draw(st.integers(1, 4)),
        lanes=draw(st.integers(1, channels)),
        bits=draw(st.integers(2, 9)),
        signed=draw(st.booleans()),
    )
    rows, columns = draw(indices(beat.height)), draw(indices(beat.width))
    pairs = draw(st.booleans()), draw(st.booleans())
    phases = [[draw(st.integers(0, 4)) for _ in axis] if any(pairs) else [] for axis in (rows, columns)]
    return ResampleConfig(
        input=beat,
        source_rows=rows,
        source_columns=columns,
        pairs=pairs,
        row_phases=tuple(phases[0]),
        column_phases=tuple(phases[1]),
    )


def check_values(config: ResampleConfig, found: list[int], frames: np.ndarray) -> None:
    """All taps and phases of all steps, by NumPy's indexing of the frames; lanes past the last channel are noise."""
    source, (down, right) = config.input, config.pairs
    rows, columns = np.array(config.source_rows), np.array(config.source_columns)
    lanes = source.lanes
    taps = [
        frames[:, np.minimum(rows + (tap // 2 and down), source.height - 1)][
            :, :, np.minimum(columns + (tap % 2 and right), source.width - 1)
        ]
        for tap in range(4 if config.is_linear else 1)
    ]
    expected = np.stack(taps, axis=4).reshape(len(found), -1)  # by frame, row, column, fold, tap, lane
    bits = source.bits * lanes * len(taps)
    read = [unpack(word & (1 << bits) - 1, source.bits, source.signed, lanes * len(taps)) for word in found]
    np.testing.assert_array_equal(read, expected)
    if config.is_linear:
        layout = config.step_layout
        widths = [layout[name].width for name in ("row_phase", "column_phase")]
        pairs = np.array(np.meshgrid(config.row_phases, config.column_phases, indexing="ij")).reshape(2, -1)
        wanted = (pairs[0] + (pairs[1] << widths[0])).repeat(source.folds)
        assert [word >> bits for word in found] == np.tile(wanted, len(frames)).tolist()


@settings(max_examples=25)
@given(config=readers(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_the_component(config, seed, offer, room):
    """Every step and every beat in the first cycle in which it may come."""
    source = config.input
    frames, component = padded(source, maps(source, seed), seed), config.component()
    given_beats = words(source, frames)
    watch = {"start": component.start, "offered": component.i.valid, "room": component.room}
    count = len(frames) * len(config.source_rows) * config.output_row_steps
    trace = run(component, given_beats, count, offer=offer, drive=[(component.room, room)], watch=watch)
    check_values(config, trace.words, frames)
    starts = [cycle for cycle, start in enumerate(trace.watched["start"]) if start][:count]
    assert trace.times == [cycle + config.latency for cycle in starts]
    row_beats, free = source.width * source.folds, 0
    for number, start in enumerate(starts):
        frame, row = divmod(number // config.output_row_steps, len(config.source_rows))
        last = (frame * source.height + config.needed[row]) * row_beats - 1
        earliest = max(free, trace.taken[last] + config.write_delay)
        assert start == next(c for c in range(earliest, start + 1) if trace.watched["room"][c])
        free = start + 1
    free = 0
    for number, cycle in enumerate(trace.taken):
        # The output row that releases the ring's row, which an earlier row of the input is in.
        frame, row = divmod(number // row_beats - config.ring_rows, source.height)
        earliest = free
        if frame >= 0:
            if row < config.released[0]:
                last = frame * len(config.source_rows) - 1
            else:
                last = frame * len(config.source_rows) + next(
                    y for y, end in enumerate(config.released[1:]) if end > row
                )
            step = (last + 1) * config.output_row_steps - 1
            if step >= 0:
                earliest = max(free, starts[step] + config.release_delay)
        assert cycle == next(c for c in range(earliest, cycle + 1) if trace.watched["offered"][c])
        free = cycle + 1


@settings(max_examples=10)
@given(config=readers(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_after_a_reset(config, seed, reset_at):
    source = config.input
    frames, component = padded(source, maps(source, seed), seed), config.component()
    after = words(source, frames)
    before = words(source, padded(source, maps(source, seed + 1), seed)) * 4
    drive = [(component.room, Pattern())]
    count = len(frames) * len(config.source_rows) * config.output_row_steps
    trace = run(component, before, len(before), reset_at=reset_at, after=(after, count), drive=drive)
    assert trace.reset is not None
    check_values(config, trace.words[trace.reset[2] :], frames)


def near(size: int, count: int) -> tuple[int, ...]:
    return tuple(index * size // count for index in range(count))


def doubled(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows or columns, and their phases, of a linear Resize by 2 at half pixels."""
    return tuple(max(index - 1, 0) // 2 for index in range(2 * size)), (2, *(0, 1) * (size - 1), 3)


@pytest.mark.long
def test_resources() -> None:
    """Flip-flops and LUTs within a quarter, and paths as fast as those of other components."""
    beat = BeatFormat(channels=32, height=40, width=60, lanes=2, bits=8, signed=True)
    small, reflected = replace(beat, channels=8, height=8, width=8), tuple(np.pad(np.arange(8), 2, "reflect").tolist())
    (rows, row_phases), (columns, column_phases) = doubled(40), doubled(60)
    linear = {"row_phases": row_phases, "column_phases": column_phases, "pairs": (True, True)}
    parts = [
        ResampleConfig(input=beat, source_rows=near(40, 53), source_columns=near(60, 91)),
        ResampleConfig(input=beat, source_rows=near(40, 7), source_columns=near(60, 20)),
        ResampleConfig(input=replace(small, lanes=8), source_rows=reflected, source_columns=reflected),
        ResampleConfig(input=beat, source_rows=rows, source_columns=columns, **linear),
    ]
    for part, found, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36)
        assert abs(expected.ff - found.ff) <= 0.15 * found.ff + 2, part
        assert abs(expected.lut - found.lut) <= 0.25 * found.lut + 8, part
        assert path is None or path.delay <= 3.3


def test_what_configurations_refuse() -> None:
    beat = BeatFormat(channels=4, height=2, width=3, lanes=1, bits=8, signed=True)
    with pytest.raises(ConfigError, match=r"^input.pixels must be 1, not 2$"):
        ResampleConfig(input=replace(beat, pixels=2), source_rows=(0,), source_columns=(0,))
    with pytest.raises(ConfigError, match=r"^source_rows must have one or more indices from 0 to 1, not "):
        ResampleConfig(input=beat, source_rows=(0, 2), source_columns=(0,))
    with pytest.raises(ConfigError, match=r"^source_columns must have one or more indices from 0 to 2, not "):
        ResampleConfig(input=beat, source_rows=(0,), source_columns=())
    with pytest.raises(ConfigError, match=r"^row_phases must have \d+ numbers for 2 indices, not \d+$"):
        ResampleConfig(input=beat, source_rows=(0, 1), source_columns=(0,), pairs=(True, False), column_phases=(0,))
