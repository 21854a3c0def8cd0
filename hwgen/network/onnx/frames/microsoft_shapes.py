"""Shapes behind operators of com.microsoft on the host, which ONNX's shape inference does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.frames.operands import MixedError, Operands

_SHAPES: Mapping[str, Callable[[Operands], Sequence[int]]] = {
    **dict.fromkeys(
        (
            *("BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QLinearLeakyRelu", "QLinearSigmoid"),
            *("QLinearSoftmax", "QuantizeLinear", "QuickGelu"),
        ),
        lambda operands: operands.shape(0),
    ),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), lambda operands: _joint_shape(operands.shape(0), operands.shape(3))),
    "FusedMatMul": lambda operands: _product_shape(operands),
    "QGemm": lambda operands: (0, 0),
    "QLinearAveragePool": lambda operands: (*operands.shape(0)[:2], *[0] * (operands.rank(0) - 2)),
    "QLinearConcat": lambda operands: [0] * operands.rank(2),
    "QLinearGlobalAveragePool": lambda operands: _pooled_shape(operands),
}
"""Shapes behind operators of com.microsoft, which ONNX's shape inference does not know; 0 where a size is not known."""


def _joint_shape(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Return the shape behind an operator that aligns two operands at the last dimension."""
    rank = max(len(first), len(second))
    pairs = zip([1] * (rank - len(first)) + [*first], [1] * (rank - len(second)) + [*second], strict=True)
    return [0 if 0 in pair else max(pair) for pair in pairs]


def _pooled_shape(operands: Operands) -> list[int]:
    """Return the shape behind a QLinearGlobalAveragePool."""
    shape = list(operands.shape(0))
    last = attribute(operands.node, "channels_last", 0)
    return [shape[0], *[1] * (len(shape) - 2), shape[-1]] if last else [*shape[:2], *[1] * (len(shape) - 2)]


def _product_shape(operands: Operands) -> list[int]:
    """Return the shape behind a FusedMatMul of two matrices, or of batches of matrices."""
    first, second = operands.shape(0), operands.shape(1)
    if min(len(first), len(second)) < 2:
        raise MixedError("multiplies vectors")
    rows = first[-1 if attribute(operands.node, "transA", 0) else -2]
    columns = second[-2 if attribute(operands.node, "transB", 0) else -1]
    return [*_joint_shape(first[:-2], second[:-2]), rows, columns]


def note_shape(operands: Operands) -> None:
    """Note the shape of a node's output, if ONNX's shape inference does not know it."""
    shapes, node = operands.tensors.shapes, operands.node
    if node.op_type in _SHAPES and shapes.of(node.output[0]).shape is None:
        try:
            shape = _SHAPES[node.op_type](operands)
        except MixedError:  # the shape in front of the node is not known either
            return
        shapes.note(node.output[0], _element_type(operands), [size or None for size in shape[1:]])


def _element_type(operands: Operands) -> int:
    """Return ONNX's type of the elements behind an operator of com.microsoft; 0 if it is not known."""
    operator = operands.node.op_type
    if operator == "DequantizeLinear":
        return onnx.TensorProto.FLOAT
    if operator == "QuantizeLinear":
        zero_point = operands.name(2)
        return operands.tensors.shapes.of(zero_point).type if zero_point else onnx.TensorProto.UINT8
    return operands.tensors.shapes.of(operands.name(2 if operator == "QLinearConcat" else 0)).type
