"""Import of ONNX operators on integers (QOperator models), such as QLinearConv."""

from __future__ import annotations

import numpy as np
import onnx

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.joins import qlinear_add
from hwgen.network.onnx.qdq import general_product
from hwgen.network.onnx.values import Reals


def _qlinear_conv(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX QLinearConv."""
    x_scale, _ = build.quantised_input(node, 1)
    weights = build.constants.integer_weights(node, 3, 0)
    output = build.constants.per_tensor(node, 6, build.map.type.dtype)
    bias = build.constants.integer_bias(node, 8, len(weights.values))
    build.requantise_sums(build.accumulate(node, weights, bias, x_scale), output)


def _qlinear_matmul(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX QLinearMatMul."""
    if node.input[0] in build.constants.arrays:
        raise build.refusal(node, "the constant matrix must be the second operand")
    x_scale, _ = build.quantised_input(node, 1)
    matrix = build.constants.integer_weights(node, 3, -1)
    output = build.constants.per_tensor(node, 6, build.map.type.dtype)
    bias = np.zeros(matrix.values.shape[-1], np.int64)
    sums = build.multiply(node, matrix._replace(values=matrix.values.T), bias, x_scale)
    build.requantise_sums(sums, output)


def _qgemm(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QGemm of com.microsoft."""
    x_scale, _ = build.quantised_input(node, 1)
    transposed, alpha, _ = general_product(build, node)
    matrix = build.constants.integer_weights(node, 3, 0 if transposed else 1)
    if not transposed:
        matrix = matrix._replace(values=matrix.values.T)
    if len(node.input) < 8 or not node.input[7]:
        raise build.refusal(node, "gives floats; its output must be quantised too (y_scale)")
    output = build.constants.per_tensor(node, 7, build.map.type.dtype)
    bias = build.constants.integer_bias(node, 6, len(matrix.values))
    build.requantise_sums(build.multiply(node, matrix, bias, alpha * x_scale), output)


def _conv_integer(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX ConvInteger, whose outputs are the accumulators."""
    zero = build.constants.read(node, 2, "zero point") if len(node.input) > 2 and node.input[2] else np.zeros(1, int)
    if zero.size != 1:
        raise build.refusal(node, f"a feature map must have one zero point, not {zero.size}")
    build.integer_input(node, None, int(zero.item()), build.map.type)
    values = build.constants.read(node, 1, "weights")
    w_zero = np.zeros(1, values.dtype)
    if len(node.input) > 3 and node.input[3]:
        w_zero = build.constants.read(node, 3, "weights' zero point")
    weights = build.constants.weights(node, values, np.ones(1, np.float32), w_zero, 0)
    sums = build.accumulate(node, weights, np.zeros(len(weights.values), np.int64), np.float32(1))
    build.emit_accumulators(sums)


def _qlinear_add(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QLinearAdd of com.microsoft, which equals DequantizeLinear, Add and QuantizeLinear."""
    sides = [side for side in (0, 3) if node.input[side] not in build.constants.arrays]
    if len(sides) == 2:
        qlinear_add(build, node)
        return
    if not sides:
        raise build.refusal(node, "must add a constant to a feature map, or two feature maps")
    scale, zero = build.quantised_input(node, sides[0] + 1)
    other = 3 - sides[0]
    integers = build.constants.read(node, other, "constant")
    c_scale, c_zero, _ = build.constants.per_tensor(node, other + 1, integers.dtype)
    values = (integers.astype(np.int64) - c_zero).astype(np.float32) * c_scale
    state = Reals(node, scale, zero, node.output[0])
    addend = build.addend(node, integers, np.array(c_scale), np.array(c_zero), first=other == 0)
    by_channel = build.constants.by_channel(node, values, build.view)
    build.add_reals(node, state, by_channel, addend)
    state.steps.append(node)
    build.requantise_reals(node, state, build.constants.per_tensor(node, 6, build.map.type.dtype))


OPERATORS = {
    "ConvInteger": _conv_integer,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear_add,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}
"""Functions that import operators on integers, by the ONNX operator's name."""
