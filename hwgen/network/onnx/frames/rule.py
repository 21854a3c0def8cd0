"""Type of the rules of ONNX operators that keep the frames of a batch apart, and what the rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwgen.network.onnx.frames.operands import HELP, FrameOperands, Frames, MixedError, Special

Position = Frames | Special
"""Contents of a node's output: the position of the frames, or why it has none."""
Rule = Callable[[FrameOperands], Position | Sequence[Position]]
"""Function that returns the position of the frames in a node's outputs, one for all of them or one for each.

It raises MixedError for a node that mixes frames, with the reason.
"""
MAX_AXES = 64
"""Number of dimensions, more than any tensor has."""


def data_position(operands: FrameOperands) -> Frames:
    """Return the position of the frames in the first input; refuse a node that takes frames elsewhere."""
    position = operands.frames(0)
    if position is None or any(
        operands.name(index) in operands.tensors.frames for index in operands.present_inputs[1:]
    ):
        raise MixedError(f"takes sizes or positions that depend on the frames; give constants{HELP}")
    return position


def nonnegative_axes(axes: Sequence[int], operands: FrameOperands) -> list[int]:
    """Return axes of the first input, counted from its first dimension."""
    return [axis if axis >= 0 else axis + operands.rank(0) for axis in axes]
