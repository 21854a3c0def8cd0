"""Axis that holds a batch's frames after operators that select or write values by indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError, OneFrameError
from hwgen.network.onnx.frames.rule import Position, Rule


def _gathered(operands: FrameOperands) -> Frames:
    axis = attribute(operands.node, "axis", 0)
    data, indices = operands.frames(0), operands.frames(1)
    if data is not None and indices is not None:
        raise MixedError(f"takes values of frames by indices of other frames, too; use GatherElements{HELP}")
    if data is None:
        operands.check_constants([1])
        assert indices is not None
        axis = axis if axis >= 0 else axis + operands.rank(0)
        return replace(indices, axis=indices.axis + axis)
    operands.check_axes([axis])
    operands.check_constants()
    axis = axis if axis >= 0 else axis + operands.rank(0)
    return replace(data, axis=data.axis + (operands.rank(1) - 1 if data.axis > axis else 0))


def _one_hot(operands: FrameOperands) -> Frames:
    operands.check_constants()
    position, axis = operands.check_axes([]), attribute(operands.node, "axis", -1)
    axis = axis if axis >= 0 else axis + operands.rank(0) + 1
    return replace(position, axis=position.axis + (axis <= position.axis))


def _elements(*indices: int) -> Rule:
    """Return the rule of a GatherElements or ScatterElements, whose inputs ``indices`` have the shape of the data.

    The first input is the data. The inputs ``indices`` have its shape except along the axis of the operator.
    """

    def rule(operands: FrameOperands) -> Frames:
        axis = attribute(operands.node, "axis", 0)
        considered = [0, *indices]
        holding = [index for index in considered if operands.frames(index) is not None]
        gathers = len(indices) == 1 and operands.frames(0) is None  # each frame takes values of one constant
        position = operands.common(operands.check_axes([] if gathers else [axis], index) for index in holding)
        if gathers and position.axis == (axis if axis >= 0 else axis + operands.rank(0)):
            operands.check_constant(0)
            return position
        for index in considered:
            if index not in holding:
                try:
                    operands.check_alike(index, position.axis, position, whole=True)
                except OneFrameError:  # ONNX Runtime takes fewer indices than frames
                    raise MixedError(operands.not_as_long(index, position.axis)) from None
        return position

    return rule


def _addressed_axes(operands: FrameOperands) -> range:
    """Return the axes of the data that the indices of a GatherND or ScatterND address."""
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
    "Gather": _gathered,
    "OneHot": _one_hot,
    "GatherElements": _elements(1),
    "ScatterElements": _elements(1, 2),
    "GatherND": _gathered_nd,
    "ScatterND": _scattered_nd,
}
"""Rules for the axis of a batch's frames after operators that select or write by indices, by ONNX operator."""
