"""Axis that holds a batch's frames after operators that work along some axes of their first operand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hwgen.network.onnx.file import attribute, opset
from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError, Special
from hwgen.network.onnx.frames.rule import MAX_AXES, Position, Rule
from hwgen.network.onnx.operator_traits import Effect, with_effect


def _along(
    axes: Callable[[FrameOperands], Iterable[int]], then: Callable[[FrameOperands], Frames] | None = None
) -> Rule:
    """Return the rule of an operator that works along axes of its first input; its other inputs must be constants.

    Parameters
    ----------
    axes : callable
        Axes along which the node combines, selects or reorders values.
    then : callable, optional
        Position of the frames after the node; by default it stays the same.
    """

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants()
        position = operands.check_axes(axes(operands))
        return position if then is None else then(operands)

    return rule


def _axis(default: int) -> Callable[[FrameOperands], list[int]]:
    return lambda operands: [attribute(operands.node, "axis", default)]


def _from(axis: int) -> Callable[[FrameOperands], Iterable[int]]:
    return lambda operands: range(axis, MAX_AXES)


def _softmax(operands: FrameOperands) -> Iterable[int]:
    """Return the axes of a Softmax-like operator: one axis, or before version 13 that axis and all later axes."""
    if attribute(operands.node, "opset", opset(operands.tensors.graph.model)) >= 13:
        return _axis(-1)(operands)
    (first,) = _axis(1)(operands)
    return range(first if first >= 0 else first + operands.rank(0), MAX_AXES)


def _normalised(operands: FrameOperands) -> Iterable[int]:
    """Return the axes of a LayerNormalization: the axis that its attribute states and all later axes."""
    (first,) = _axis(-1)(operands)
    return range(first, 0) if first < 0 else range(first, MAX_AXES)


def _reduced_axes(operands: FrameOperands) -> Iterable[int]:
    axes = operands.constant("axes", 1)
    return axes or ([] if attribute(operands.node, "noop_with_empty_axes", 0) else range(MAX_AXES))


def _reduction(axes: Callable[[FrameOperands], Iterable[int]]) -> Rule:
    """Return the rule of an operator that reduces ``axes``, and keeps them as dimensions of 1 with ``keepdims``."""

    def then(operands: FrameOperands) -> Frames:
        position = operands.frames(0)
        assert position is not None
        if attribute(operands.node, "keepdims", 1):
            return position
        reduced = {axis if axis >= 0 else axis + operands.rank(0) for axis in axes(operands)}
        return replace(position, axis=position.axis - sum(axis < position.axis for axis in reduced))

    return _along(axes, then)


def _cumulated(operands: FrameOperands) -> Iterable[int]:
    return operands.constant("axis", 1) or []


def _of_rows(*indices: int) -> Rule:
    """Return the rule of an operator with frames along axis 0 of its inputs ``indices``, or a constant row for each."""

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants(indices)
        present = [index for index in indices if operands.name(index)]
        holding = [index for index in present if operands.frames(index) is not None]
        position = operands.common(operands.check_axes(range(1, MAX_AXES), index) for index in holding)
        for index in present:
            if index not in holding:
                operands.check_alike(index, 0, position, whole=True)
        return position

    return rule


def _pooled(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames after a max pool; refuse its second output, which indexes across frames."""
    if len(operands.node.output) > 1 and operands.node.output[1]:
        raise MixedError(f"its second output counts in all frames; leave it out{HELP}")
    return operands.check_axes(range(2, MAX_AXES))


def _batch_normalised(operands: FrameOperands) -> Position | Sequence[Position]:
    if attribute(operands.node, "training_mode", 0):
        raise MixedError(f"takes the mean of all frames in its training mode; set training_mode to 0{HELP}")
    return _of_rows(0)(operands)


def _recurrent(operands: FrameOperands) -> list[Frames]:
    """Return the axes of the batch's frames in the outputs of an RNN, GRU or LSTM, whose inputs have a batch axis."""
    first = 0 if attribute(operands.node, "layout", 0) else 1
    with_states = [index for index in (0, 4, 5, 6) if operands.name(index)]
    operands.check_constants(with_states)
    axes = {index: 0 if index == 4 else first for index in with_states}
    holding = {index: position for index in with_states if (position := operands.frames(index)) is not None}
    if 0 not in holding or any(position != Frames(axes[index]) for index, position in holding.items()):
        raise MixedError(f"must have the frames of a batch along axis {first} of its input; move them there{HELP}")
    for index in with_states:
        if index not in holding:
            operands.check_alike(index, axes[index], holding[0], whole=True)
    return [Frames(0)] * 3 if first == 0 else [Frames(2), Frames(1), Frames(1)]


def _reversed(operands: FrameOperands) -> Frames:
    batch_axis, time_axis = attribute(operands.node, "batch_axis", 1), attribute(operands.node, "time_axis", 0)
    position = operands.check_axes([time_axis])
    operands.check_constants()
    if position.axis == batch_axis:
        operands.check_alike(1, 0, position, whole=True)
    return position


def _compressed(operands: FrameOperands) -> Position | Sequence[Position]:
    """Return the axis of the batch's frames after a Compress, which selects as many values as its condition says."""
    if operands.frames(0) is None or operands.name(1) in operands.tensors.frames:
        return Special.RAGGED
    return _along(lambda _: [attribute(operands.node, "axis", None)] if _has_axis(operands) else range(MAX_AXES))(
        operands
    )


def _has_axis(operands: FrameOperands) -> bool:
    return attribute(operands.node, "axis", None) is not None


RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*with_effect(Effect.SOFTMAX), "Hardmax"), _along(_softmax)),
    **dict.fromkeys(with_effect(Effect.REDUCTION), _reduction(_reduced_axes)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _along(_normalised)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduction(_axis(0))),
    **dict.fromkeys(("LpNormalization", "TopK"), _along(_axis(-1))),
    "Split": _along(_axis(0)),
    "CumSum": _along(_cumulated),
    "CumProd": _along(_cumulated),
    **dict.fromkeys(("Det", "Trilu"), _along(lambda operands: [-1, -2])),
    "MeanVarianceNormalization": _along(lambda operands: attribute(operands.node, "axes", [0, 2, 3])),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool"), _along(_from(2))),
    "MaxPool": _pooled,
    "BatchNormalization": _batch_normalised,
    **dict.fromkeys(
        (
            *("Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace", "GroupNormalization"),
            *("InstanceNormalization", "LRN", "QLinearAveragePool", "QLinearConv", "QLinearGlobalAveragePool"),
            "SpaceToDepth",
        ),
        _of_rows(0),
    ),
    "FusedConv": _of_rows(0, 3),
    "DeformConv": _of_rows(0, 2, 4),
    "GridSample": _of_rows(0, 1),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "ReverseSequence": _reversed,
    "Compress": _compressed,
}
"""Rules for the axis of a batch's frames after operators that work along axes, by ONNX operator."""
