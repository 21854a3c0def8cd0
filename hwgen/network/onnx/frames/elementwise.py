"""Axis that holds a batch's frames after operators that align operands at the last dimension (also elementwise)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.frames.operands import FrameOperands, Frames
from hwgen.network.onnx.frames.rule import Rule
from hwgen.network.onnx.operator_traits import POINTWISE, TRAITS, Effect


def _aligned(*indices: int) -> Rule:
    """Return the rule of an operator that aligns the inputs ``indices``, or all inputs, at the last dimension.

    Its other inputs must be constants.
    """

    def rule(operands: FrameOperands) -> Frames:
        return _broadcast(operands, [index for index in operands.present_inputs if not indices or index in indices])

    return rule


def _broadcast(operands: FrameOperands, indices: Sequence[int]) -> Frames:
    operands.check_constants(indices)
    holding = {index: position for index in indices if (position := operands.frames(index)) is not None}
    others = [index for index in indices if index not in holding]
    if len(holding) == 1 and not any(map(operands.rank, others)):
        for index in others:
            operands.check_constant(index)
        return next(iter(holding.values()))
    ranks = {index: operands.rank(index) for index in indices}
    rank = max(ranks.values())
    position = operands.common(replace(here, axis=here.axis + rank - ranks[index]) for index, here in holding.items())
    for index in others:
        operands.check_alike(index, position.axis - rank + ranks[index], position)
    return position


def _quantised(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames after a QuantizeLinear or DequantizeLinear: the same as in its input."""
    operands.check_constants()
    position = operands.check_axes([])
    for index in operands.present_inputs[1:]:
        sizes = operands.shape(index)
        axis = attribute(operands.node, "axis", 1)
        axis += operands.rank(0) if axis < 0 else 0
        if len(sizes) == 1 and sizes != (1,) and axis == position.axis:
            operands.check_alike(index, 0, position)
        elif len(sizes) > 1:
            operands.check_alike(index, position.axis, position)
    return position


_ELEMENTWISE = _aligned()
"""Rule of operators that compute each value from the values at the same position of all operands."""

RULES: Mapping[str, Rule] = {
    name: _aligned(*traits.operands) if traits.operands else _ELEMENTWISE
    for name, traits in TRAITS.items()
    if traits.effect in (*POINTWISE, Effect.SAME)
} | dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantised)
"""Rules for the axis of a batch's frames after operators that align operands at the last dimension, by operator."""


def is_elementwise(operator: str) -> bool:
    """Return whether an ONNX operator computes each value from the values at the same position of all operands."""
    return RULES.get(operator) is _ELEMENTWISE
