"""Random tiles of random layers, and feature maps in tile order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from chains import chains
from hypothesis import assume
from hypothesis import strategies as st
from testbench import channel_lanes, pack

from hwgen.errors import PlanError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.reuse import ReuseBufferConfig
from hwgen.gateware.spans import Axis, Span
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.tile import TileBufferConfig
from hwgen.network.shapes import LayerShape
from hwgen.plan.tiles import RECOMPUTE, REUSE, axes


@st.composite
def tilings(draw, layers: Sequence[LayerShape], overlap: str | None = None) -> list[tuple[Axis, Axis]]:
    """Any tip, often not a divisor of the map."""
    last = layers[-1]
    tip = (
        draw(st.integers(1, min(4, last.output_height))),
        draw(st.integers(1, min(4, last.output_width))),
    )
    try:
        return axes(layers, tip, overlap or draw(st.sampled_from([REUSE, RECOMPUTE])))
    except PlanError:
        assume(False)
        raise


@st.composite
def reuse_buffers(draw, most_layers: int = 3, overlap: str | None = REUSE) -> ReuseBufferConfig:
    """Of any layer of a random group."""
    layers = draw(chains(most_layers))
    number = draw(st.integers(0, len(layers) - 1))
    rows, columns = draw(tilings(layers, overlap))[number]
    layer = layers[number]
    source = BeatFormat(
        channels=layer.channels,
        height=layer.height,
        width=layer.width,
        lanes=draw(st.integers(1, layer.channels // layer.groups)),
        bits=draw(st.integers(2, 9)),
        signed=draw(st.booleans()),
        groups=layer.groups,
    )
    config = ReuseBufferConfig(input=source, rows=rows, columns=columns)
    assume(config.cycles <= 2500)
    return config


def rectangles(rows: Axis, columns: Axis) -> list[tuple[Span, Span]]:
    """The pyramids in order."""
    return [(row, column) for row in rows.spans for column in columns.spans]


def window_pixels(axis: Axis, span: Span) -> slice:
    """The pixels of the map under the windows of a span, first to last."""
    if not span.windows:
        return slice(0, 0)
    first = span.window * axis.stride - axis.padding
    last = (span.window + span.windows - 1) * axis.stride - axis.padding + axis.kernel
    return slice(min(max(first, 0), axis.size), min(max(last, 0), axis.size))


def beats_of(beat: BeatFormat, parts: Sequence[np.ndarray]) -> list[int]:
    """Rectangles ``(C, h, w)`` of a map as payload bits, row by row, without ``last``."""
    words = []
    for part in parts:
        lanes = np.zeros((part.shape[1], part.shape[2], beat.folds * beat.lanes), np.int64)
        lanes[:, :, channel_lanes(beat)] = part.transpose(1, 2, 0)
        words += [pack(values, beat.bits) for values in lanes.reshape(-1, beat.lanes).tolist()]
    return words


def new_parts(rows: Axis, columns: Axis, frame: np.ndarray) -> list[np.ndarray]:
    """What comes in of a frame ``(C, H, W)``, pyramid by pyramid."""
    return [frame[:, row.fresh : row.end, column.fresh : column.end] for row, column in rectangles(rows, columns)]


def whole_parts(rows: Axis, columns: Axis, frame: np.ndarray) -> list[np.ndarray]:
    """The whole tile of each pyramid that has windows."""
    return [
        frame[:, window_pixels(rows, row), window_pixels(columns, column)]
        for row, column in rectangles(rows, columns)
        if row.windows and column.windows
    ]


def output_parts(rows: Axis, columns: Axis, frame: np.ndarray) -> list[np.ndarray]:
    """What a layer puts out of its map ``(C, H, W)``, pyramid by pyramid."""
    return [
        frame[:, row.window : row.window + row.windows, column.window : column.window + column.windows]
        for row, column in rectangles(rows, columns)
    ]


@st.composite
def tile_buffers(draw, most_layers: int = 2) -> TileBufferConfig:
    """Of any layer of a random group, with any walk."""
    layers = draw(chains(most_layers))
    number = draw(st.integers(0, len(layers) - 1))
    rows, columns = draw(tilings(layers))[number]
    layer = layers[number]
    bits, signed = draw(st.integers(2, 9)), draw(st.booleans())
    source = BeatFormat(
        channels=layer.channels,
        height=layer.height,
        width=layer.width,
        lanes=draw(st.integers(1, layer.channels // layer.groups)),
        bits=bits,
        signed=signed,
        groups=layer.groups,
    )
    depthwise = layer.groups == 1 and draw(st.booleans())
    low = -(1 << (bits - 1)) if signed else 0
    window = LineBufferConfig(
        input=source,
        kernel=layer.window.kernel,
        stride=layer.window.stride,
        padding=layer.window.padding,
        pad_value=draw(st.integers(low, low + (1 << bits) - 1)),
        taps=draw(st.integers(1, layer.taps)),
        output_folds=source.folds if depthwise else layer.groups * draw(st.integers(1, 3)),
        depthwise=depthwise,
        rows=layer.window.kernel[0],
    )
    config = TileBufferConfig(window=window, rows=rows, columns=columns)
    assume(sum(config.walks) <= 1200)
    assume(sum(config.fills) <= 1200)
    return config
