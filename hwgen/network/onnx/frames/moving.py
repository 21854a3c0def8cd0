"""Axis that holds a batch's frames after operators that move values, such as Reshape, Slice and Gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from hwgen.network.onnx.file import attribute, opset, text
from hwgen.network.onnx.frames.operands import (
    COUNTED,
    HELP,
    MAX_AXES,
    FrameOperands,
    Frames,
    MixedError,
    OneFrameError,
    Position,
    Rule,
)

_LARGEST_AXIS = (1 << 31) - 1
"""Largest size of the frames' axis that a Slice must keep whole: exporters write this number as the end for "all"."""

# Operators that rename, reorder or join dimensions.


def _transposed(operands: FrameOperands) -> Frames:
    position = operands.check_axes([])
    order = list(attribute(operands.node, "perm", ())) or [*range(operands.rank(0))][::-1]
    return replace(position, axis=order.index(position.axis))


def _squeezed(operands: FrameOperands) -> Frames:
    """Return `Frames`: the axis of the batch's frames after a Squeeze, which must keep the frames' axis.

    Raises
    ------
    OneFrameError
        If it drops the frames' axis, which must then be of size 1.
    """
    position = operands.data_position()
    axes = operands.constant("axes", 1)
    if axes is None:
        shape = operands.shape(0)
        if 0 in (*shape[: position.axis], *shape[position.axis + 1 :]):
            raise MixedError(f"drops all dimensions of 1, and not all sizes are known; give it axes{HELP}")
        axes = [axis for axis, size in enumerate(shape) if size == 1 and axis != position.axis]
        vanishes = not operands.tensors.is_fixed and position.size(1) == 1
        position = replace(position, vanishes=vanishes or position.vanishes)
    axes = {*operands.nonnegative(axes)}
    if position.axis in axes:
        raise OneFrameError
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in axes))


def _unsqueezed(operands: FrameOperands) -> Frames:
    position = operands.data_position()
    axes = operands.constant("axes", 1) or []
    if min(axes, default=0) >= 0 and operands.tensors.shape(operands.name(0)) is None:
        rank = MAX_AXES
    else:
        rank = operands.rank(0) + len(axes)
    inserted = {axis % rank for axis in axes}
    left = [axis for axis in range(rank) if axis not in inserted]
    return replace(position, axis=left[position.axis])


def _flattened(operands: FrameOperands) -> Frames:
    position, axis = operands.check_axes([]), attribute(operands.node, "axis", 1)
    if axis == 1 and position.are_rows:
        return Frames(0)
    shape = operands.sizes(0)
    if shape is None:
        raise MixedError(f"flattens a tensor whose sizes are not all known; give it axis 1{HELP}")
    axis = axis if axis >= 0 else axis + len(shape)
    first, last = (0, axis) if position.axis < axis else (axis, len(shape))
    return Frames(
        int(position.axis >= axis),
        prod(shape[first : position.axis]) * position.before,
        position.behind * prod(shape[position.axis + 1 : last]),
    )


def _reshaped(operands: FrameOperands) -> Frames:
    """Return the `Frames` (axis of the batch's frames) after a Reshape; refuse one that divides a frame between axes.

    Raises
    ------
    OneFrameError
        If the shape fits one frame only.
    MixedError
        If a dimension begins or ends inside a frame, so that its contents depend on the number of frames.
    """
    position, targets = operands.data_position(), operands.values(1, "sizes")
    lists = [target.ravel().tolist() for target in targets]
    copies = not attribute(operands.node, "allowzero", 0)
    keeps_rows = position.are_rows and all(
        sizes and sizes[0] in ([0, count] if copies else [count]) and sizes[1:] == lists[0][1:]
        for sizes, count in zip(lists, operands.counts, strict=True)
    )
    shape = operands.sizes(0)
    if shape is None:
        if keeps_rows:
            return Frames(0)
        raise MixedError(f"reshapes a tensor whose sizes are not all known; begin its shape with 0{HELP}")
    fitting = [
        _fitting(position, shape, sizes, count, copies=copies)
        for sizes, count in zip(lists, operands.counts, strict=True)
    ]
    common = [here for here in fitting[0] if all(here in others for others in fitting)]
    if common:
        frames, _ = common[0 if keeps_rows else -1]
        return frames
    if keeps_rows:  # ONNX Runtime refuses the sizes
        return Frames(0)
    _check_one_frame(operands, lists, prod(shape) * position.size(1))
    shown = lists[0] if not operands.depends_on_count(1) else "that the model computes"
    raise MixedError(f"its shape {shown} depends on the number of frames; begin it with 0{HELP}")


def _check_one_frame(operands: FrameOperands, lists: Sequence[Sequence[int]], values: int) -> None:
    """Raise OneFrameError if a Reshape to a constant shape fits only one frame, in a model for any batch.

    ONNX Runtime refuses a shape that fits no number of frames.
    """
    sizes = lists[0]
    if operands.tensors.is_fixed or operands.depends_on_count(1) or min(sizes, default=1) < 1:
        return
    count, left = divmod(prod(sizes), values)
    if count > 1 and not left:
        raise MixedError(f"its shape {sizes} fits only a batch of {count} frames; begin it with 0{HELP}")
    raise OneFrameError


def _fitting(
    position: Frames, shape: Sequence[int], target: Sequence[int], count: int, *, copies: bool
) -> list[tuple[Frames, list[int]]]:
    """Return a list of pairs for ``count`` frames after a Reshape to ``target``: possible `Frames`, and other sizes.

    Parameters
    ----------
    shape : sequence of int
        Shape before the Reshape, 1 for the frames' axis.
    copies : bool
        Whether 0 stands for the size before the Reshape.
    """
    here = list(shape)
    here[position.axis] = position.size(count)
    sizes = [here[axis] if not size and copies and axis < len(here) else size for axis, size in enumerate(target)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = prod(here) // max(1, -prod(sizes))
    outside = prod(here[: position.axis]) * position.before
    inside = position.behind * prod(here[position.axis + 1 :])
    fitting = []
    for axis, size in enumerate(sizes):
        outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
        before, behind = outside // max(1, outer), inside // max(1, inner)
        if (before * outer, behind * inner, before * count * behind) == (outside, inside, size):
            fitting.append((Frames(axis, before, behind), sizes[:axis] + sizes[axis + 1 :]))
    return fitting


def _concat_rule(first: int, step: int) -> Rule:
    """Return a `Rule` that finds the batch's axis after a Concat of every ``step``-th input, starting at ``first``."""

    def rule(operands: FrameOperands) -> Frames:
        indices = [index for index in operands.present_inputs if index >= first and (index - first) % step == 0]
        return operands.shared(indices, [attribute(operands.node, "axis", 0)])

    return rule


# Operators that cut, repeat or resize axes.


def _unchanged(position: Frames, entries: Sequence[Mapping[int, object]], wholes: Sequence[Sequence[object]]) -> Frames:
    """Return ``position``, unchanged, or refuse a node that changes the frames' axis, as its effects per axis say.

    Parameters
    ----------
    entries : sequence of mapping
        Effect of the node on each axis, for each number of frames.
    wholes : sequence
        Effects on the frames' axis that change nothing, for each number of frames.
    """
    for effects, allowed in zip(entries, wholes, strict=True):
        if position.axis in effects and effects[position.axis] not in allowed:
            raise MixedError(f"works along axis {position.axis}, which holds the frames; give other axes{HELP}")
    others = [{axis: effect for axis, effect in effects.items() if axis != position.axis} for effects in entries]
    if any(effects != others[0] for effects in others):
        raise MixedError(COUNTED)
    return position


def _sliced(operands: FrameOperands) -> Frames:
    position, rank = operands.data_position(), operands.rank(0)
    starts, ends = operands.listed("starts", 1) or [], operands.listed("ends", 2) or []
    axes = operands.constant("axes", 3)
    steps = operands.listed("steps", 4) or [[1] * len(begins) for begins in starts]
    axes = operands.nonnegative(range(len(starts[0])) if axes is None else axes)
    sizes = [*operands.shape(0), *[0] * rank][:rank]
    counts, parameters = [*operands.counts], [*zip(starts, ends, steps, strict=True)]
    if not (
        operands.tensors.is_fixed or any(operands.depends_on_count(index) for index in operands.present_inputs[1:])
    ):
        counts.append(_LARGEST_AXIS // position.size(1))
        parameters.append(parameters[0])
    entries = []
    for count, spans in zip(counts, parameters, strict=True):
        sizes[position.axis] = position.size(count)
        cuts = zip(axes, *spans, strict=True)
        entries.append({axis: _span(sizes[axis], slice(start, end, step)) for axis, start, end, step in cuts})
    return _unchanged(position, entries, [[range(position.size(count))] for count in counts])


def _span(size: int, cut: slice) -> object:
    """Return the range of indices that a Slice selects from ``size`` values, or its parameters for an unknown size."""
    return range(size)[cut] if size else (cut.start, cut.stop, cut.step)


def _padded(operands: FrameOperands) -> Frames:
    position = operands.data_position()
    pads = operands.listed("pads", 1) or operands.listed("paddings", 1) or []
    axes = operands.constant("", 3)
    entries = []
    for numbers in pads:
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        entries.append(dict(zip(range(half) if axes is None else operands.nonnegative(axes), pairs, strict=True)))
    return _unchanged(position, entries, [[(0, 0)]] * len(entries))


def _tiled(operands: FrameOperands) -> Frames:
    position = operands.data_position()
    entries = [dict(enumerate(repeats)) for repeats in operands.listed("", 1) or []]
    return _unchanged(position, entries, [[1]] * len(entries))


def _expanded(operands: FrameOperands) -> Frames:
    position = operands.data_position()
    targets, rank = operands.listed("", 1) or [], operands.rank(0)
    position = replace(position, axis=position.axis + max(0, len(targets[0]) - rank))
    gap = max(0, rank - len(targets[0]))
    entries = [dict(enumerate(sizes, start=gap)) for sizes in targets]
    return _unchanged(position, entries, [[1, position.size(count)] for count in operands.counts])


def _resized(operands: FrameOperands) -> Frames:
    """Return the `Frames` (axis of the batch's frames) after a Resize or Upsample, which must not resize that axis."""
    position, node = operands.data_position(), operands.node
    if text(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise MixedError(f"crops and resizes at once; crop with a Slice{HELP}")
    versions = opset(operands.tensors.graph.model) >= 11
    scales = operands.listed("scales", 2 if versions else 1)
    sizes = operands.listed("sizes", 3) if versions else None
    axes = attribute(node, "axes", None)
    entries = [
        dict(zip(range(len(numbers)) if axes is None else operands.nonnegative(axes), numbers, strict=True))
        for numbers in (scales if scales and scales[0] else sizes or [])
    ]
    if sizes and any(sizes):
        if axes is None and text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
            raise MixedError(f"keeps the ratio of all axes, also of the frames' axis; give it axes{HELP}")
        return _unchanged(position, entries, [[position.size(count)] for count in operands.counts])
    return _unchanged(position, entries, [[1.0]] * len(entries))


# Operators that select or write values by indices.


def _gathered(operands: FrameOperands) -> Frames:
    axis = attribute(operands.node, "axis", 0)
    data, indices = operands.frames(0), operands.frames(1)
    if data is not None and indices is not None:
        raise MixedError(f"takes values of frames by indices of other frames, too; use GatherElements{HELP}")
    if data is None:
        operands.check_constants([1])
        assert indices is not None
        (axis,) = operands.nonnegative([axis])
        return replace(indices, axis=indices.axis + axis)
    operands.check_axes([axis])
    operands.check_constants()
    (axis,) = operands.nonnegative([axis])
    return replace(data, axis=data.axis + (operands.rank(1) - 1 if data.axis > axis else 0))


def _one_hot(operands: FrameOperands) -> Frames:
    operands.check_constants()
    position, axis = operands.check_axes([]), attribute(operands.node, "axis", -1)
    axis = axis if axis >= 0 else axis + operands.rank(0) + 1
    return replace(position, axis=position.axis + (axis <= position.axis))


def _elements(*indices: int) -> Rule:
    """Return a `Rule` that finds the batch's axis after a node like GatherElements, with the indices of its inputs.

    The first input is the data. The inputs ``indices`` have its shape except along the axis of the operator.
    """

    def rule(operands: FrameOperands) -> Frames:
        axis = attribute(operands.node, "axis", 0)
        gathers = len(indices) == 1 and operands.frames(0) is None  # each frame takes values of one constant
        if gathers and [operands.check_axes([], 1).axis] == operands.nonnegative([axis]):
            operands.check_constant(0)
            return operands.check_axes([], 1)
        try:
            return operands.shared([0, *indices], [] if gathers else [axis])
        except OneFrameError as error:  # ONNX Runtime takes fewer indices than frames
            raise MixedError(str(error)) from None

    return rule


def _addressed_axes(operands: FrameOperands) -> range:
    """Return the range of the data's axes that the indices of a GatherND or ScatterND address."""
    width = operands.shape(1)[-1]
    if not width:
        raise MixedError(f"addresses an unknown number of axes; give constant indices{HELP}")
    first = attribute(operands.node, "batch_dims", 0)
    return range(first, first + width)


def _listing_axis(operands: FrameOperands, axes: range, position: Frames) -> int:
    """Return the axis of a GatherND's or ScatterND's indices along which they list all frames in order.

    Raises
    ------
    MixedError
        If the indices don't address the same values in every frame.
    """
    column = axes.index(position.axis)
    common: set[int] | None = None
    same = None
    for count, indices in zip(operands.counts, operands.values(1, "indices"), strict=True):
        others = np.delete(indices, column, axis=-1)
        listed = {
            axis
            for axis in range(indices.ndim - 1)
            if indices.shape[axis] == count
            and (np.moveaxis(indices[..., column], axis, -1) == np.arange(count)).all()
            and (others == others.take([0], axis)).all()
        }
        common = listed if common is None else common & listed
        if common:
            once = others.take([0], min(common))
            same = once if same is None else same
            common = common if np.array_equal(once, same) else set()
    if not common or (position.before, position.behind) != (1, 1):
        raise MixedError(
            f"its indices address axis {position.axis}, which holds the frames; give indices of other axes{HELP}"
        )
    return min(common)


def _gathered_nd(operands: FrameOperands) -> Frames:
    axes, position, indices = _addressed_axes(operands), operands.frames(0), operands.frames(1)
    if position is None:
        assert indices is not None
        if indices.axis < axes.start:
            operands.check_alike(0, indices.axis, indices, whole=True)
        else:
            operands.check_constants([1])
        return operands.check_axes([-1], 1)
    if indices is not None and (indices != position or indices.axis >= axes.start):
        raise MixedError(f"takes values of frames by indices of other frames, too; give it batch_dims{HELP}")
    if position.axis < axes.start:
        if indices is None:
            operands.check_alike(1, position.axis, position, whole=True)
        return position
    if position.axis >= axes.stop:
        operands.check_constants()
        return replace(position, axis=position.axis - axes.stop + operands.rank(1) - 1)
    return Frames(_listing_axis(operands, axes, position))


def _scattered_nd(operands: FrameOperands) -> Position:
    """Return the axis of the batch's frames after a ScatterND: the same as in its data."""
    axes, position = _addressed_axes(operands), operands.frames(0)
    if operands.frames(1) is not None:
        raise MixedError(f"gives values to frames by indices that depend on frames; give constant indices{HELP}")
    if position is None:
        position = Frames(0)
        operands.check_alike(0, 0, position, whole=True)
    if position.axis >= axes.stop:
        operands.check_constants([0, 2])
        listed = operands.rank(1) - 1 + position.axis - axes.stop
    else:
        listed = _listing_axis(operands, axes, position)
    expected = replace(position, axis=listed)
    if operands.frames(2) is None:
        operands.check_alike(2, listed, expected, whole=True)
    else:
        operands.common([expected, operands.check_axes([], 2)])
    return position


RULES: Mapping[str, Rule] = {
    "Transpose": _transposed,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Flatten": _flattened,
    "Reshape": _reshaped,
    "Concat": _concat_rule(0, 1),
    "QLinearConcat": _concat_rule(2, 3),
    "Slice": _sliced,
    "Pad": _padded,
    "Tile": _tiled,
    "Expand": _expanded,
    **dict.fromkeys(("Resize", "Upsample"), _resized),
    "Gather": _gathered,
    "OneHot": _one_hot,
    "GatherElements": _elements(1),
    "ScatterElements": _elements(1, 2),
    "GatherND": _gathered_nd,
    "ScatterND": _scattered_nd,
}
"""Dictionary of rules for the axis of a batch's frames after operators that move values, by ONNX operator."""
