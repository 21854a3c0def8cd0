"""Import of ONNX operators that move pixels or channels: selections, blocks of pixels, and Pad.

The Reshapes and Transposes that exporters write for DepthToSpace and SpaceToDepth are imported here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import onnx

from hwgen.network.float32 import quantize_linear
from hwgen.network.maps import MAX_SIDE, IntegerType, Window, check_window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, text, title
from hwgen.network.onnx.values import AccumulatorState, Integers, Pending, Reals
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, Atom, View
from hwgen.network.ops import Crop, DepthToSpace, Pad, Resample, SpaceToDepth
from hwgen.network.rescale import rule_of

AXES = {CHANNELS: "channels", ROWS: "rows", COLUMNS: "columns"}
"""Names of a feature map's axes for error messages, by index without batch axis: 0 channels, 1 rows, 2 columns."""
_ENDLESS = (1 << 31) - 1
"""Smallest ``ends`` value of an ONNX Slice that means the end of the axis, however long the axis is."""


def take(build: Builder, node: onnx.NodeProto, selected: Mapping[int, Sequence[int]]) -> None:
    """Append the layers that select the indices ``selected`` along dimensions of the builder's current value.

    Parameters
    ----------
    selected : mapping
        Selected indices, in their new order, by dimension as `axis_of` counts them.
    """
    here, dims = build.map, list(build.view.dims)
    wanted: dict[int, Sequence[int]] = {}
    for dimension, chosen in selected.items():
        if not dims[dimension - 1] and list(chosen) == [0]:
            continue  # the whole of a dimension of one value
        axis, order = map_axis(build, node, dimension)
        if not chosen:
            raise build.refusal(node, f"selects no {AXES[axis]}; it must keep at least one")
        wanted[axis] = [int(order[index]) for index in chosen]
        dims[dimension - 1] = (Atom(axis, len(chosen)),)
    rows, columns = wanted.get(ROWS, range(here.height)), wanted.get(COLUMNS, range(here.width))
    if CHANNELS in wanted:
        build.emit_select(node, wanted[CHANNELS])
    channels, height, width = len(wanted.get(CHANNELS, range(here.channels))), len(rows), len(columns)
    window, output = _crop((here.height, here.width), rows, columns), here.sized(channels, height, width)
    if window is None:
        build.emit(node, Resample, Window(kernel=(1, 1)), output, rows=tuple(rows), columns=tuple(columns))
    elif window != Window(kernel=(1, 1)):
        build.emit(node, Crop, window, output)
    build.view = View((channels, height, width), tuple(dims))


def map_axis(build: Builder, node: onnx.NodeProto, dimension: int) -> tuple[int, np.ndarray]:
    """Return a pair: the map axis that a tensor dimension consists of, and the axis index at each of its positions.

    ``dimension``: index of the tensor's dimension; 0 is the batch.
    """
    view = build.view
    dim = view.dims[dimension - 1]
    if not dim:
        axes = view.spatial_axes() if dimension > 1 else None
        free = axes[dimension - 2] if axes is not None else next((axis for axis in AXES if view.sizes[axis] == 1), None)
        if free is None:
            raise build.refusal(
                node,
                f"works along dimension {dimension}, whose size is 1, but its input is laid out as {view}; let it work "
                "along channels, rows or columns",
            )
        return free, np.zeros(1, np.int64)
    axis = dim[0].axis
    if any(atom.axis != axis for atom in dim) or view.shape[dimension - 1] != view.sizes[axis]:
        raise build.refusal(
            node, f"must work along channels, rows or columns, whole, but its input is laid out as {view}"
        )
    whole = View((view.sizes[axis], 1, 1), (tuple(replace(atom, axis=CHANNELS) for atom in dim),)).channel_order()
    assert whole is not None
    return axis, whole


def _crop(sizes: tuple[int, int], *selected: Sequence[int]) -> Window | None:
    """Return the `Window` of a crop that selects rows and columns; ``None`` unless they rise at equal distances.

    ``sizes``: rows and columns of the map.
    """
    steps = [chosen[1] - chosen[0] if len(chosen) > 1 else 1 for chosen in selected]
    for step, chosen in zip(steps, selected, strict=True):
        if step < 1 or list(chosen) != list(range(chosen[0], chosen[-1] + 1, step)):
            return None
    before = [-chosen[0] for chosen in selected]
    after = [chosen[-1] + 1 - size for size, chosen in zip(sizes, selected, strict=True)]
    return Window(kernel=(1, 1), stride=(steps[0], steps[1]), padding=(before[0], before[1], after[0], after[1]))


def axis_of(build: Builder, node: onnx.NodeProto, axis: int) -> int:
    """Return a node's axis as a non-negative index of dimensions of the builder's current value; 0 is the batch."""
    rank = 1 + len(build.view.dims)
    if not -rank <= axis < rank:
        raise build.refusal(node, f"axis must be {-rank} to {rank - 1}, not {axis}")
    return axis % rank


def axis_size(build: Builder, axis: int) -> int:
    """Return the size of the builder's current value along dimension ``axis``, 1 or more."""
    return build.view.shape[axis - 1]


def check_operand(build: Builder, node: onnx.NodeProto) -> None:
    """Refuse a node whose input is not one feature map of integers, dequantised or not."""
    if isinstance(build.state, AccumulatorState):
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear)")
    if len(build.operands) != 1:
        raise build.refusal(node, "must take one feature map, and constants")


def _split(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Split along an axis other than the batch, as one selection per output."""
    check_operand(build, node)
    axis = axis_of(build, node, int(attribute(node, "axis", 0)))
    if axis == 0:
        raise build.refusal(node, "axis must not be 0, which holds the frames")
    ends = np.cumsum([0, *_parts(build, node, axis_size(build, axis))]).tolist()
    build.leave_in_floats()
    whole, build.results = build.value, []
    for name, begin, end in zip(node.output, ends, ends[1:], strict=False):
        build.enter(whole)
        # A layer that reads one output must not change the map that the other outputs are selected from.
        build.shared |= len(node.output) > 1
        if name:
            take(build, node, {axis: range(begin, end)})
        build.results.append(build.value)


def _parts(build: Builder, node: onnx.NodeProto, size: int) -> list[int]:
    """Return the sizes of a Split node's outputs along its axis, as a list."""
    count = len(node.output)
    sizes = build.constants.listed(node, 1, "split")
    if sizes is None:
        wanted = int(attribute(node, "num_outputs", count))
        if wanted != count:
            raise build.refusal(node, f"num_outputs must be {count}, as it has outputs, not {wanted}")
        equal_size = -(-size // count)
        sizes = [min(equal_size, size - first) for first in range(0, size, equal_size)]
        if attribute(node, "num_outputs", None) is None and size % count:
            raise build.refusal(node, f"can't split {size} into {count} equal parts; give their sizes")
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != size:
        raise build.refusal(node, f"must split {size} into {count} parts of 1 or more, not {sizes}")
    return sizes


def _slice(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Slice with constant bounds, as a selection of channels, rows and columns."""
    check_operand(build, node)
    # ONNX Runtime moves a DequantizeLinear past a Slice, as past a MaxPool; but not past a Split or a Gather.
    starts, ends, axes, steps = _slices(build, node)
    selected: dict[int, Sequence[int]] = {}
    for start, end, node_axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(build, node, node_axis)
        if step == 0:
            raise build.refusal(node, "steps must not be 0")
        if axis == 0:
            if start != 0 or step != 1 or end < min(build.batch or _ENDLESS, _ENDLESS):
                raise build.refusal(node, "must leave all frames of a batch")
            continue
        selected[axis] = range(axis_size(build, axis))[slice(start, end, step)]
    take(build, node, selected)


def _slices(build: Builder, node: onnx.NodeProto) -> list[list[int]]:
    """Return the starts, ends, axes and steps of a Slice node, one list each."""
    starts, ends, axes, steps = (
        build.constants.listed(node, index, name) or []
        for index, name in enumerate(("starts", "ends", "axes", "steps"), start=1)
    )
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(set(axes)) < len(axes):
        raise build.refusal(
            node,
            f"starts, ends, axes and steps must be as many, and no axis twice, not {starts}, {ends}, {axes}, {steps}",
        )
    return [starts, ends, axes, steps]


def _gather(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Gather with a constant list of indices, as a selection along one axis."""
    check_operand(build, node)
    axis = axis_of(build, node, int(attribute(node, "axis", 0)))
    indices = build.constants.read(node, 1, "indices")
    if axis == 0:
        raise build.refusal(node, "axis must not be 0, which holds the frames")
    if indices.ndim != 1:
        raise build.refusal(node, f"indices must be a list, which keeps the axis, not of shape {indices.shape}")
    size = axis_size(build, axis)
    if not all(-size <= index < size for index in indices.tolist()):
        raise build.refusal(node, f"indices must be {-size} to {size - 1}, not {indices.tolist()}")
    build.leave_in_floats()
    take(build, node, {axis: [index % size for index in indices.tolist()]})


def _depth_to_space(build: Builder, node: onnx.NodeProto) -> None:
    size = _size(build, node)
    mode = text(node, "mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise build.refusal(node, f"mode must be DCR or CRD, not {mode}")
    channels = build.map.channels
    if channels % size**2:
        raise build.refusal(node, f"{channels} channels must be a multiple of the {size**2} pixels of a block")
    if mode == "CRD":  # the pixels of one output channel are neighbouring input channels
        build.emit_select(node, np.arange(channels).reshape(-1, size**2).T.ravel().tolist())
    emit_depth_to_space(build, node, (size, size))
    build.view = View.channels_first((channels // size**2, build.map.height, build.map.width))


def emit_depth_to_space(build: Builder, node: onnx.NodeProto, blocks: tuple[int, int]) -> None:
    """Append a DepthToSpace layer, which turns each pixel of the builder's current map into a block of pixels.

    Parameters
    ----------
    blocks : tuple of int
        Rows and columns of a block. The first pixel of a block gets the pixel's first channels, the next pixel the
        next.
    """
    here, (down, right) = build.map, blocks
    sizes = here.height * down, here.width * right
    if max(sizes) > MAX_SIDE:
        raise build.refusal(
            node, f"gives {sizes[0]:,} x {sizes[1]:,} pixels; at most {MAX_SIDE:,} per side are possible"
        )
    if blocks != (1, 1):
        output = here.sized(here.channels // (down * right), *sizes)
        build.emit(node, DepthToSpace, Window(kernel=(1, 1)), output, blocks=blocks)


def _space_to_depth(build: Builder, node: onnx.NodeProto) -> None:
    size, here = _size(build, node), build.map
    if here.height % size or here.width % size:
        raise build.refusal(node, f"{here.height}x{here.width} pixels must be whole blocks of {size}x{size}")
    if size > 1:
        _emit_space_to_depth(build, node, (size, size))
        build.view = View.channels_first((build.map.channels, build.map.height, build.map.width))


def _emit_space_to_depth(build: Builder, node: onnx.NodeProto, blocks: tuple[int, int]) -> None:
    """Append a SpaceToDepth layer, which turns each block of pixels of the builder's current map into one pixel."""
    here, (down, right) = build.map, blocks
    channels = here.channels * down * right
    if channels > MAX_SIDE:
        raise build.refusal(node, f"its output must have at most {MAX_SIDE:,} channels, not {channels:,}")
    output = here.sized(channels, here.height // down, here.width // right)
    build.emit(node, SpaceToDepth, Window(kernel=(1, 1)), output, blocks=blocks)


def open_blocks(build: Builder, node: onnx.NodeProto) -> None:
    """Append the DepthToSpace or SpaceToDepth layer, if any, that turns the current value into a plain map (C, H, W).

    Exporters write both as a Reshape, a Transpose and another Reshape, which are only another view of the map.
    """
    if not isinstance(build.state, Integers) and not (isinstance(build.state, Reals) and not build.state.steps):
        return
    if to_space := build.view.depth_to_space():
        order, blocks = to_space
        build.leave_in_floats()
        build.emit_select(node, order.tolist())
        emit_depth_to_space(build, node, blocks)
    elif to_depth := build.view.space_to_depth():
        order, blocks = to_depth
        build.leave_in_floats()
        _emit_space_to_depth(build, node, blocks)
        build.emit_select(node, order.tolist())
    else:
        return
    build.view = View.channels_first((build.map.channels, build.map.height, build.map.width))


def _size(build: Builder, node: onnx.NodeProto) -> int:
    """Return the block size of a DepthToSpace or SpaceToDepth node: its number of rows, and of columns, in pixels."""
    check_operand(build, node)
    if build.spatial_axes(node) != (ROWS, COLUMNS):
        raise build.refusal(node, f"must take (N, C, H, W), but its input is laid out as {build.view}")
    if isinstance(build.state, Reals) and build.state.steps:
        raise build.refusal(node, f"must take a quantised input, but {title(build.state.steps[-1])!r} gives floats")
    size = int(attribute(node, "blocksize", 0))
    if not 1 <= size <= MAX_SIDE:
        raise build.refusal(node, f"blocksize must be 1 to {MAX_SIDE:,}, not {size}")
    build.leave_in_floats()
    return size


_FROM_INSIDE: dict[str, Callable[[int], int]] = {
    "reflect": lambda size: size - 1,
    "edge": lambda size: MAX_SIDE,
}
"""Dictionary by ONNX Pad mode: a function from the map's size to the most pixels that it can add at a side."""


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
        raise build.refusal(node, f"crops away all of a map of {build.map.height}x{build.map.width} pixels")
    state, value, build.view = build.state, _value(build, node), view
    if max(padding) <= 0 and None not in index:
        build.leave_in_floats()
        build.emit_select(node, [channel for channel in index if channel is not None])
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
            raise build.refusal(
                node, f"mode {mode} can pad {size} pixels by at most {most}, not by {before} and {after}"
            )
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
        build.emit_select(node, [channel for channel in index if channel is not None])
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
    rule = rule_of(np.ones(len(index)), 1, (lowest, highest), zero)
    build.emit_mixture(node, weights, bias, rule, here.sized(len(index), here.height, here.width))


def _padding(build: Builder, node: onnx.NodeProto) -> tuple[tuple[int, int, int, int], Sequence[int | None], View]:
    """Return a triple: a Pad node's padding (top, left, bottom, right), channels, and the padded tensor's layout.

    The channels are indices of the current map's channels, and ``None`` for each channel that is padding.
    """
    pads, named = build.constants.listed(node, 1, "pads") or [], build.constants.listed(node, 3, "axes")
    axes = [*range(1 + len(build.view.dims))] if named is None else [axis_of(build, node, axis) for axis in named]
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
    """Return a list of a Pad's output channels: the indices ``order``, and ``None`` for each padding channel.

    Negative numbers leave channels out. A channel that is padding is ``None``.
    """
    count = len(order) + sum(both)
    if count < 1:
        raise build.refusal(node, f"drops all of {len(order)} channels")
    build.check_outputs(node, count)
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


OPERATORS = {
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Pad": _pad,
}
"""Dictionary of functions that import operators which move pixels or channels, by the ONNX operator's name."""
