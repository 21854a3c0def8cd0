"""Upper bound on the computing steps of an ONNX node on constants, from sizes and attributes alone.

ONNX Runtime can't be stopped inside a kernel, so the bound must be known before a kernel starts. The bound depends only
on the model, never on the machine. Operators whose steps grow with the size of their tensors alone are listed, and so
are products and pools. Every other operator has the bound of the worst kernel imaginable, which only small tensors
meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import helper

from hwgen.network.onnx.file import CONVOLUTIONS, PRODUCTS, attribute

Shape = Sequence[int]
"""Type of a tensor's shape: the sizes of its dimensions."""

MOST_WORK = 1 << 32
"""Largest number of computing steps for all constants of a model during import, which take some seconds."""
_LINEAR = {
    # Functions of each value.
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "BiasGelu"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh"),
    *("DequantizeLinear", "Div", "Dropout", "DynamicQuantizeLinear", "Elu", "Equal", "Erf", "Exp", "FastGelu", "Floor"),
    *("Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"),
    *("QLinearAdd", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QuantizeLinear", "QuickGelu", "Reciprocal"),
    *("Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub"),
    *("Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
    # Values in other places.
    *("Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "EyeLike", "Flatten", "Gather"),
    *("GatherElements", "GatherND", "OneHot", "Pad", "QLinearConcat", "Range", "Reshape", "ReverseSequence", "Scatter"),
    *("ScatterElements", "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
    *("Transpose", "Trilu", "Unsqueeze"),
    # Sums along dimensions, and what divides by them.
    *("ArgMax", "ArgMin", "CumSum", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "Hardmax"),
    *("InstanceNormalization", "LayerNormalization", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax"),
}
"""ONNX operators that read or write each value a bounded number of times."""
_POOLS = {"AveragePool": 1, "LpPool": 8, "MaxPool": 1}
"""ONNX pools, with the number of computing steps that one tap counts. A power is slow."""
_UNKNOWN_COST = 1 << 6
"""Number of computing steps that are assumed per value of an unknown ONNX operator.

Its kernel can be slow, or need memory.
"""


def work(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Return an upper bound on the steps that ONNX Runtime needs to compute an ONNX node.

    Parameters
    ----------
    node : NodeProto
    inputs, outputs : sequence
        Shapes of the tensors that the node reads and writes, without those that it leaves out.
    """
    sizes = [math.prod(shape) for shape in (*inputs, *outputs)]
    linear = sum(sizes)
    operator = node.op_type
    if operator in _LINEAR:
        return linear
    result = max((math.prod(shape) for shape in outputs), default=0)
    if operator in PRODUCTS and inputs:
        summed = inputs[0][-2:][0 if attribute(node, "transA", 0) else -1] if inputs[0] else 1
        return linear + result * summed
    if (weight_index := CONVOLUTIONS.get(operator)) is not None and len(inputs) > weight_index:
        weights = inputs[weight_index]
        pixels = math.prod(inputs[0]) if operator == "ConvTranspose" else result
        return linear + pixels * math.prod(weights[1:])
    if operator in _POOLS:
        return linear + result * _POOLS[operator] * math.prod(
            abs(int(size)) for size in attribute(node, "kernel_shape", ())
        )
    if operator == "Einsum" and len(inputs) == 2:
        # M * K * N, from M * K, K * N and M * N. A dimension of one operand alone is summed before.
        return linear + math.isqrt(math.prod(sorted(sizes)[-3:]))
    return _UNKNOWN_COST * math.prod(max(1, size) for size in (*sizes, *_magnitudes(node)))


def _magnitudes(node: onnx.NodeProto) -> list[int]:
    """Return the squares of all integers among an ONNX node's attributes, as factors of a bound on its work.

    These are lengths and windows, in two dimensions.
    """
    numbers = []
    for entry in node.attribute:
        value = helper.get_attribute_value(entry)
        entries = value if isinstance(value, list) else [value]
        numbers += [number * number for number in entries if isinstance(number, int)]
    return numbers


def column_bytes(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Return the size, in bytes, of the im2col columns of a convolution node for one frame; 0 for other operators."""
    weight_index = CONVOLUTIONS.get(node.op_type)
    if weight_index is None or len(inputs) <= weight_index or not outputs:
        return 0
    frame = inputs[0] if node.op_type == "ConvTranspose" else outputs[0]
    return 4 * math.prod(inputs[weight_index][1:]) * math.prod(frame[2:])
