"""Axis that holds a batch's frames after operators that rename, reorder or join dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError, OneFrameError
from hwgen.network.onnx.frames.rule import MAX_AXES, Rule, data_position, nonnegative_axes


def _transposed(operands: FrameOperands) -> Frames:
    position = operands.check_axes([])
    order = list(attribute(operands.node, "perm", ())) or [*range(operands.rank(0))][::-1]
    return replace(position, axis=order.index(position.axis))


def _squeezed(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames after a Squeeze, which must keep the frames' axis.

    Raises
    ------
    OneFrameError
        If it drops the frames' axis, which must then be of size 1.
    """
    position = data_position(operands)
    axes = operands.constant("axes", 1)
    if axes is None:
        shape = operands.shape(0)
        if 0 in (*shape[: position.axis], *shape[position.axis + 1 :]):
            raise MixedError(f"drops all dimensions of 1, and not all sizes are known; give it axes{HELP}")
        axes = [axis for axis, size in enumerate(shape) if size == 1 and axis != position.axis]
        vanishes = not operands.tensors.is_fixed and position.size(1) == 1
        position = replace(position, vanishes=vanishes or position.vanishes)
    axes = {*nonnegative_axes(axes, operands)}
    if position.axis in axes:
        raise OneFrameError
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in axes))


def _unsqueezed(operands: FrameOperands) -> Frames:
    position = data_position(operands)
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
    """Return the axis of the batch's frames after a Reshape, or refuse one that divides a frame between dimensions.

    Raises
    ------
    OneFrameError
        If the shape fits one frame only.
    MixedError
        If a dimension begins or ends inside a frame, so that its contents depend on the number of frames.
    """
    position, targets = data_position(operands), operands.values(1, "sizes")
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
    """Return the positions that ``count`` frames can have after a Reshape to ``target``, each with the other sizes.

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
    """Return the rule of a concatenation of every ``step``-th input from ``first``; other inputs must be constants."""

    def rule(operands: FrameOperands) -> Frames:
        indices = [index for index in operands.present_inputs if index >= first and (index - first) % step == 0]
        operands.check_constants(indices)
        axis = attribute(operands.node, "axis", 0)
        holding = [index for index in indices if operands.frames(index) is not None]
        position = operands.common(operands.check_axes([axis], index) for index in holding)
        for index in indices:
            if index not in holding:
                operands.check_alike(index, position.axis, position, whole=True)
        return position

    return rule


RULES: Mapping[str, Rule] = {
    "Transpose": _transposed,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Flatten": _flattened,
    "Reshape": _reshaped,
    "Concat": _concat_rule(0, 1),
    "QLinearConcat": _concat_rule(2, 3),
}
"""Rules for the axis of a batch's frames after operators that rename, reorder or join dimensions, by ONNX operator."""
