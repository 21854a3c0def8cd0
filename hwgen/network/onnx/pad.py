"""Import of ONNX Pad: a constant, repeated pixels of the border, or pixels reflected at the border."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import onnx

from hwgen.network.float32 import quantize_linear
from hwgen.network.maps import MAX_SIDE, IntegerType, Window, check_window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, text, title
from hwgen.network.onnx.select import axis_of, check_operand, map_axis
from hwgen.network.onnx.values import Integers, Pending, Reals
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, Atom, View
from hwgen.network.ops import Crop, Pad, Resample
from hwgen.network.requantise import Requantisation

_FROM_INSIDE: dict[str, Callable[[int], int]] = {
    "reflect": lambda size: size - 1,
    "edge": lambda size: MAX_SIDE,
}
"""Maximum number of pixels that a mode of ONNX Pad can add at a side, given the map's size, by the mode's name."""


def _pad(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Pad that pads with a constant, or with the map's own pixels, as layers."""
    check_operand(build, node)
    mode = text(node, "mode", "constant")
    padding, index, view = _padding(build, node)
    if mode != "constant":
        _pad_from_inside(build, node, mode, padding, index, view)
        return
    window = Window(kernel=(1, 1), padding=padding)
    check_window(f"Pad node {title(node)!r}", window, 1, build.map.height, build.map.width)
    if min(window.output_size(build.map.height, build.map.width)) < 1:
        raise build.refusal(node, f"leaves nothing of a map of {build.map.height}x{build.map.width} pixels")
    state, value, build.view = build.state, _value(build, node), view
    if max(padding) <= 0 and None not in index:
        build.leave_in_floats()
        _emit_selection(build, node, index)
        if any(padding):
            _emit_window(build, node, window, None)
    elif isinstance(state, Reals):
        if state.steps:
            raise build.refusal(node, f"must take a quantised input, but {title(state.steps[-1])!r} gives floats")
        _pad_reals(build, node, state, window, index, np.float32(value))
    else:
        if not build.map.type.minimum <= value <= build.map.type.maximum:
            raise build.refusal(node, f"value must be {build.map.type}, not {value}")
        _emit(build, node, window, index, int(value))


def _pad_from_inside(
    build: Builder,
    node: onnx.NodeProto,
    mode: str,
    padding: tuple[int, int, int, int],
    index: Sequence[int | None],
    view: View,
) -> None:
    """Import a Pad whose padding repeats or reflects the map's own pixels.

    Negative padding removes rows and columns first, as in ONNX Runtime.
    """
    if mode not in _FROM_INSIDE:
        raise build.refusal(node, f"mode must be constant, {' or '.join(_FROM_INSIDE)}, not {mode}")
    here = build.map
    if list(index) != list(range(here.channels)):
        raise build.refusal(node, f"must pad only rows and columns with mode {mode}")
    top, left, bottom, right = padding
    indices = []
    for size, before, after in ((here.height, top, bottom), (here.width, left, right)):
        inner = np.arange(size)[max(-before, 0) : size - max(-after, 0)]
        most = _FROM_INSIDE[mode](inner.size)
        if inner.size < 1 or max(before, after) > most or inner.size + before + after > MAX_SIDE:
            raise build.refusal(node, f"pads {size} pixels by {before} and {after}; at most {most} can be with {mode}")
        indices.append(tuple(np.pad(inner, (max(before, 0), max(after, 0)), cast(Any, mode)).tolist()))
    build.leave_in_floats()
    build.view = view
    if any(padding):
        rows, columns = indices
        output = here.sized(here.channels, len(rows), len(columns))
        build.emit(node, Resample, Window(kernel=(1, 1)), output, rows=rows, columns=columns)


def _pad_reals(
    build: Builder,
    node: onnx.NodeProto,
    state: Reals,
    window: Window,
    index: Sequence[int | None],
    value: np.float32,
) -> None:
    """Import a Pad of a dequantised map: pad its integers with the one that represents ``value``.

    If no integer represents it, a quantiser equal to the map's must follow, and the padding is the rounded integer.
    """
    here = build.map
    integer = int(quantize_linear(np.array(value), state.scale, state.zero, here.type))
    if np.float32(integer - state.zero) * state.scale == value:
        fits = None not in index and (not state.in_floats or node.input[0] == state.padded)
        build.leave_in_floats()
        state.padded = node.output[0] if fits and value == 0 and min(window.padding) >= 0 else ""
        _emit(build, node, window, index, integer)
        return

    def make(scale: np.float32, zero: int, integer_type: IntegerType) -> None:
        if (scale, zero, integer_type) != (state.scale, state.zero, here.type):
            raise build.refusal(
                node,
                f"value {value:g} is not a multiple of its input's scale, so its output must be quantised as its input",
            )
        build.state = Integers()
        _emit(build, node, window, index, integer)

    build.state = Pending(node, make)


def _emit(build: Builder, node: onnx.NodeProto, window: Window, index: Sequence[int | None], value: int) -> None:
    """Append a Pad's layers, each only if needed: one for channels, and one for rows and columns."""
    _check_clipped(build, node, value)
    if None in index:
        _emit_channels(build, node, index, value)
    else:
        _emit_selection(build, node, index)
    if any(window.padding):
        _emit_window(build, node, window, value)


def _check_clipped(build: Builder, node: onnx.NodeProto, value: int) -> None:
    """Refuse a padding value outside the bounds that the model clips the builder's current map to."""
    made = build.computed_map()
    if made.bounds is not None and build.map.zero_point is not None:
        narrow = build.map.type.narrowed(*made.bounds, build.map.zero_point)
        if not narrow.minimum <= value <= narrow.maximum:
            raise build.refusal(
                node,
                f"value {value} is outside {narrow}, which its input is clipped to; pad with a value inside, or "
                "clip after the Pad",
            )


def _emit_window(build: Builder, node: onnx.NodeProto, window: Window, value: int | None) -> None:
    """Append the layer that pads rows and columns with ``value``; without ``value`` it only crops."""
    here = build.map
    size = window.output_size(here.height, here.width)
    output = here.sized(here.channels, *size)
    if value is None:
        build.emit(node, Crop, window, output)
        return
    lowest, highest = build.range()
    build.emit(node, Pad, window, output, value=value)
    build.steps[-1].low, build.steps[-1].high = min(lowest, value), max(highest, value)


def _emit_selection(build: Builder, node: onnx.NodeProto, index: Sequence[int | None]) -> None:
    """Append a layer that selects the channels ``index``, unless these are the current map's channels in order."""
    channels = [channel for channel in index if channel is not None]
    if channels != list(range(build.map.channels)):
        build.emit_select(node, channels)


def _emit_channels(build: Builder, node: onnx.NodeProto, index: Sequence[int | None], value: int) -> None:
    """Append a 1x1 convolution that copies channels of the builder's current map, and sets other channels to ``value``.

    Parameters
    ----------
    index : sequence of int or None
        Channel of the current map for each output channel; ``None`` for a channel that is padding.
    """
    here = build.map
    zero = here.zero_point
    if zero is None:
        raise build.refusal(node, "must take a dequantised input (DequantizeLinear), because it pads channels")
    lowest, highest = min(build.range()[0], value), max(build.range()[1], value)
    channels = np.array([-1 if channel is None else channel for channel in index])
    weights = (np.arange(here.channels) == channels[:, None]).astype(np.int64)
    bias = np.where(channels < 0, value - zero, 0).astype(np.int64)
    one = np.ones(len(index), np.int64)
    rule = Requantisation(significand=one << 23, shift=23 * one, zero_point=zero, low=lowest, high=highest)
    build.emit_mixture(node, weights, bias, rule, here.sized(len(index), here.height, here.width))


def _padding(build: Builder, node: onnx.NodeProto) -> tuple[tuple[int, int, int, int], Sequence[int | None], View]:
    """Return a Pad node's padding (top, left, bottom, right), its channels, and the layout of the padded tensor.

    The channels are indices of the current map's channels, and ``None`` for each channel that is padding.
    """
    if len(node.input) > 1:
        pads = [int(pad) for pad in build.constants.read(node, 1, "pads").ravel()]
    else:
        pads = list(attribute(node, "pads", ()))
    rank = 1 + len(build.view.dims)
    axes = list(range(rank))
    if len(node.input) > 3 and node.input[3]:
        axes = [axis_of(build, node, int(axis)) for axis in build.constants.read(node, 3, "axes").ravel()]
    if len(pads) != 2 * len(axes) or len(set(axes)) < len(axes):
        raise build.refusal(node, f"pads must be two for each axis of {axes}, not {pads}")
    pads_of_axis = {axis: (pads[dimension], pads[dimension + len(axes)]) for dimension, axis in enumerate(axes)}
    sides: dict[int, tuple[int, int]] = {ROWS: (0, 0), COLUMNS: (0, 0)}
    dims, sizes = list(build.view.dims), list(build.view.sizes)
    index: list[int | None] = list(range(build.map.channels))
    for dimension, both in pads_of_axis.items():
        if any(both):
            if dimension == 0:
                raise build.refusal(node, "must pad only channels, rows and columns, not frames")
            axis, order = map_axis(build, node, dimension)
            if axis == CHANNELS:
                index = _channels(build, node, order.tolist(), both)
            else:
                sides[axis] = both
            sizes[axis] = max(sizes[axis] + sum(both), 1)  # a map of no pixels is refused by the caller
            dims[dimension - 1] = (Atom(axis, sizes[axis]),)
    (top, bottom), (left, right) = sides[ROWS], sides[COLUMNS]
    return (top, left, bottom, right), index, View((sizes[0], sizes[1], sizes[2]), tuple(dims))


def _channels(build: Builder, node: onnx.NodeProto, order: list[int], both: tuple[int, int]) -> list[int | None]:
    """Return a Pad's output channels: the indices ``order``, with ``None`` for each padding channel around them.

    Negative numbers leave channels out. A channel that is padding is ``None``.
    """
    count = len(order) + sum(both)
    if count < 1:
        raise build.refusal(node, f"leaves nothing of {len(order)} channels")
    if count > MAX_SIDE:
        raise build.refusal(node, f"must have at most {MAX_SIDE:,} output channels, not {count:,}")
    sources = range(-both[0], len(order) + both[1])
    return [order[source] if 0 <= source < len(order) else None for source in sources]


def _value(build: Builder, node: onnx.NodeProto) -> float:
    """Return the real value that a Pad node pads with."""
    if len(node.input) > 2 and node.input[2]:
        constant = build.constants.quantised.get(node.input[2])
        values = constant.real() if constant else build.constants.read(node, 2, "value")
        if values.size != 1:
            raise build.refusal(node, f"value must be one number, not of shape {values.shape}")
        value = values.item()
    else:
        value = attribute(node, "value", 0)
    if np.isnan(value):
        raise build.refusal(node, "value must be a number, not NaN")
    return value


OPERATORS = {"Pad": _pad}
"""Functions that import Pad, by the ONNX operator's name."""
