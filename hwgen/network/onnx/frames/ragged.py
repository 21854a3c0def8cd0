"""Rows of all frames of a batch, as many as the frames' values make, and the nodes behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwgen.network.onnx.frames.operands import FrameOperands, Frames, Special
from hwgen.network.onnx.frames.rule import Position

RAGGED: Mapping[str, Special] = {
    "NonMaxSuppression": Special.ADDRESSES,
    "NonZero": Special.RAGGED,
    "Unique": Special.RAGGED,
}
"""ONNX operators whose output's size depends on the values of their inputs, so that no axis holds the frames."""


def behind_ragged(operands: FrameOperands, kinds: Sequence[Special | None]) -> Position:
    """Return the contents of a tensor behind rows of all frames, as many as the frames' values make.

    ``kinds``: contents of the node's inputs; ``None`` for others than such rows.
    """
    operator = operands.node.op_type
    if operator in ("Cast", "Identity"):
        return kinds[0] or Special.RAGGED
    if operator == "Shape":
        return Special.SIZES
    if operator == "ConstantOfShape" and kinds[0] is Special.SIZES:
        return Special.ALIKE
    if operator == "ScatterND" and [*kinds] == [None, Special.ADDRESSES, Special.ALIKE]:
        if operands.frames(0) is None:
            operands.check_alike(0, 0, Frames(0), whole=True)
        elif operands.frames(0) != Frames(0):
            return Special.RAGGED
        return Frames(0)
    return Special.RAGGED
