"""Import of ONNX Split, Slice and Gather with constant indices, as selections along an axis of a feature map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx

from hwgen.network.maps import Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.values import AccumulatorState
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, Atom, View
from hwgen.network.ops import Crop, Resample

AXES = {CHANNELS: "channels", ROWS: "rows", COLUMNS: "columns"}
"""Names of a feature map's axes (channels, rows, columns) for error messages, by the axis's index."""
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
            raise build.refusal(node, f"leaves no {AXES[axis]}")
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
    """Return the map axis that a tensor dimension consists of, and the axis index at each of its positions.

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
    """Return the window of a crop that selects rows and columns; ``None`` unless they rise at equal distances.

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
    if len(node.input) > 1 and node.input[1]:
        sizes = [int(size_of_output) for size_of_output in build.constants.read(node, 1, "split").ravel()]
    elif attribute(node, "split", None) is not None:
        sizes = list(attribute(node, "split", ()))
    else:
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
    lists = [
        [int(value) for value in build.constants.read(node, index, name).ravel()]
        if len(node.input) > index and node.input[index]
        else list(attribute(node, name, ()))
        for index, name in enumerate(("starts", "ends", "axes", "steps"), start=1)
    ]
    starts, ends, axes, steps = lists
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


OPERATORS = {"Gather": _gather, "Slice": _slice, "Split": _split}
"""Functions that import Gather, Slice and Split, by the ONNX operator's name."""
