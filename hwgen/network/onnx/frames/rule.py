"""Type of the rules that say where an ONNX operator keeps the frames of a batch, and helpers that the rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError, Special

Position = Frames | Special
"""Type of what an output holds of a batch: frames along an axis (`Frames`), or no such axis (`Special`)."""
Rule = Callable[[FrameOperands], Position | Sequence[Position]]
"""Type of a function that returns the position of a batch's frames in a node's outputs, one for all or one for each.

It raises MixedError for a node that mixes frames, with the reason.
"""
MAX_AXES = 64
"""Upper limit of axis indices in rules: more dimensions than any tensor has."""


def data_position(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames in a node's first input; refuse a node with frames in other inputs."""
    position = operands.frames(0)
    if position is None or any(
        operands.name(index) in operands.tensors.frames for index in operands.present_inputs[1:]
    ):
        raise MixedError(f"takes sizes or positions that depend on the frames; give constants{HELP}")
    return position


def nonnegative_axes(axes: Sequence[int], operands: FrameOperands) -> list[int]:
    """Return axes of a node's first input as non-negative indices of its dimensions."""
    return [axis if axis >= 0 else axis + operands.rank(0) for axis in axes]
