"""Maps that travel rectangle by rectangle: beats, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.errors import ConfigError, InputError
from hwgen.gateware.stream import BeatFormat, Order
from hwgen.simulate import stimuli


@st.composite
def spans(draw, size: int) -> tuple[tuple[int, int], ...]:
    """Anywhere in ``size`` pixels, in any order."""
    span = st.integers(0, size - 1).flatmap(lambda begin: st.tuples(st.just(begin), st.integers(begin + 1, size)))
    return tuple(draw(st.lists(span, min_size=1, max_size=3)))


@st.composite
def travels(draw) -> tuple[BeatFormat, Order]:
    groups = draw(st.integers(1, 2))
    beat = BeatFormat(
        channels=groups * draw(st.integers(1, 4)),
        height=draw(st.integers(1, 5)),
        width=draw(st.integers(1, 7)),
        lanes=draw(st.integers(1, 5)),
        bits=draw(st.sampled_from([1, 7, 8, 12, 33])),
        signed=draw(st.booleans()),
        pixels=draw(st.integers(1, 4)),
        groups=groups,
    )
    columns = draw(spans(beat.width))
    grids = draw(st.sampled_from([(), tuple(draw(st.integers(-5, 9)) for _ in columns)]))
    return beat, Order(rows=draw(spans(beat.height)), columns=columns, grids=grids)


def walk(beat: BeatFormat, order: Order) -> list[list[tuple[int, int, int, int]]]:
    """By beat: (channel, row, column, place among the values) of what it carries."""
    result = []
    size = beat.channels // beat.groups
    for low, high in order.rows:
        for number, (begin, end) in enumerate(order.columns):
            grid = order.grids[number] if order.grids else 0
            for row in range(low, high):
                column = begin
                while column < end:
                    first = column
                    column += 1
                    while column < end and (column - grid) % beat.pixels:
                        column += 1
                    for group in range(beat.groups):
                        for fold in range(0, size, beat.lanes):
                            result.append(
                                [
                                    (group * size + channel, row, c, lane * beat.pixels + (c - grid) % beat.pixels)
                                    for lane, channel in enumerate(range(fold, min(fold + beat.lanes, size)))
                                    for c in range(first, column)
                                ]
                            )
    return result


def random_frames(beat: BeatFormat, count: int) -> np.ndarray:
    low = -(1 << beat.bits - 1) if beat.signed else 0
    shape = count, beat.channels, beat.height, beat.width
    return np.random.default_rng(1).integers(low, low + (1 << beat.bits), shape).astype(stimuli.dtype(beat))


@given(travels())
def test_beats_are_the_definition_of_an_order(travel):
    beat, order = travel
    frames = random_frames(beat, 2)
    carried = walk(beat, order)
    expected = []
    for frame in frames:
        for values in carried:
            word = 0
            for channel, row, column, place in values:
                word |= (int(frame[channel, row, column]) & (1 << beat.bits) - 1) << place * beat.bits
            expected.append(word)
        expected[-1] |= 1 << beat.data_bits
    payloads = stimuli.pack(frames, beat, order)
    assert stimuli.integers(payloads) == expected
    assert order.beats(beat) == len(carried)
    width = 1 if beat.bits <= 8 else 2 if beat.bits <= 16 else 8
    assert stimuli.beat_bytes(beat, order).tolist() == [len(values) * width for values in carried]
    # And back, whatever lies outside of the rectangles.
    for number, values in enumerate(carried * 2):
        outside = set(range(beat.lanes * beat.pixels)) - {place for *_, place in values}
        for place in outside:
            expected[number] |= (0x5A5A5A5A5 & (1 << beat.bits) - 1) << place * beat.bits
    pixels, last = stimuli.unpack(stimuli.words(expected, beat), beat, order)
    places = [
        (row, column)
        for rows in order.rows
        for columns in order.columns
        for row in range(*rows)
        for column in range(*columns)
    ]
    assert pixels.shape == (2, beat.channels, order.frame_pixels)
    for number, (row, column) in enumerate(places):
        np.testing.assert_array_equal(pixels[:, :, number], frames[:, :, row, column])
    assert np.flatnonzero(last).tolist() == [len(carried) - 1, 2 * len(carried) - 1]
    maps = stimuli.to_maps(pixels, beat, order)
    travelled = np.zeros((beat.height, beat.width), bool)
    travelled[tuple(np.transpose(places))] = True
    np.testing.assert_array_equal(maps, np.where(travelled, frames, 0))


@given(travels())
def test_raster_is_one_rectangle(travel):
    beat, _ = travel
    assert beat.raster.beats(beat) == beat.beats
    assert beat.raster.frame_pixels == beat.frame_pixels
    frames = random_frames(beat, 1)
    np.testing.assert_array_equal(stimuli.pack(frames, beat), stimuli.pack(frames, beat, beat.raster))


def test_by_hand():
    """Columns 1 to 5 of seven, in pairs from an odd one on, and in pairs from an even one on."""
    order = Order(rows=((0, 1),), columns=((1, 6), (1, 6)), grids=(1, -2))
    assert [list(firsts) for firsts in order.beat_columns(2)] == [[1, 3, 5], [0, 2, 4]]
    beat = BeatFormat(channels=3, height=1, width=7, lanes=2, bits=12, signed=False, pixels=2)
    # Two channels of two bytes, then one.
    assert stimuli.beat_bytes(beat, order).tolist() == [8, 4, 8, 4, 4, 2, 4, 2, 8, 4, 8, 4]


def test_errors():
    with pytest.raises(ConfigError, match=r"^rows must be spans of at least one pixel of the map, not \(\)$"):
        Order(rows=(), columns=((0, 1),))
    with pytest.raises(ConfigError, match=r"^columns must be spans .* not \(\(0, 2\), \(3, 3\)\)$"):
        Order(rows=((0, 1),), columns=((0, 2), (3, 3)))
    with pytest.raises(ConfigError, match=r"^grids must be as many as the 1 spans of columns, not \(0, 1\)$"):
        Order(rows=((0, 1),), columns=((0, 2),), grids=(0, 1))
    beat = BeatFormat(channels=1, height=2, width=3, lanes=1, bits=8, signed=False)
    order = Order(rows=((0, 2),), columns=((0, 4),))
    with pytest.raises(InputError, match=r"^an order must keep to the 2 x 3 map, not Order"):
        stimuli.pack(random_frames(beat, 1), beat, order)
    wide = replace(beat, bits=65)
    with pytest.raises(InputError, match="at most 64 bits"):
        stimuli.dtype(wide)
