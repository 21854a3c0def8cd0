"""Import of ONNX operators on integers (QOperator models), such as QLinearConv.

Each is imported as the operator on floats between DequantizeLinear and QuantizeLinear, whose result it equals. Refusals
name the operator that the model has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import Quantised
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.operator_traits import operands_of
from hwgen.network.onnx.qdq import factor_of
from hwgen.network.onnx.values import Reals

_BIASES = {"QGemm": 6, "QLinearConv": 8}
"""Index of the input that holds the bias, by the ONNX operator on integers."""
_OUTPUTS = {"QGemm": 7, "QLinearConcat": 0}
"""Input index of the output's scale, by operator, unless it follows the last operand's zero point."""
ON_INTEGERS = (
    *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid"),
)
"""ONNX operators on integers whose tensors to compute with are each followed by their scale and zero point."""


def between_quantisers(build: Builder, node: onnx.NodeProto, apply: Callable[[Builder, onnx.NodeProto], None]) -> None:
    """Import an operator on integers as the float operator between quantisers; ``apply`` imports the latter."""
    if attribute(node, "channels_last", 0):
        raise build.refusal(node, "channels_last 1 is not supported, 0 is")
    operands = operands_of(node)
    output = _OUTPUTS.get(node.op_type, operands[-1] + 3)
    if len(node.input) <= output or not node.input[output]:
        raise build.refusal(node, "gives floats; its output must be quantised too (y_scale)")
    name, result = node.name or node.output[0], f"{node.output[0]} in floats"
    plain = helper.make_node(node.op_type.removeprefix("QLinear").removeprefix("Q"), [], [result], name=name)
    plain.input.extend(node.input[index] for index in operands)
    plain.attribute.extend(entry for entry in node.attribute if entry.name != "alpha" or node.op_type != "QGemm")
    known, outer_operands = {**build.constants.quantised}, [*build.operands]
    build.constants.owner = node
    try:
        _dequantise(build, node, plain, operands)
        before = build.map.type
        apply(build, plain)
        apply(build, helper.make_node("QuantizeLinear", [result, *node.input[output : output + 2]], node.output, name))
        after = build.map.type
        if "Pool" in node.op_type and not (before == after and after.bits == 8):
            raise build.refusal(node, f"must take and give integers of one 8-bit type, not {before} and {after}")
    finally:
        build.constants.owner, build.constants.quantised, build.operands = None, known, outer_operands


def _dequantise(build: Builder, node: onnx.NodeProto, plain: onnx.NodeProto, operands: Sequence[int]) -> None:
    """Set the builder's operands to the dequantised maps of an operator on integers, and note dequantised constants.

    ``plain``: operator on floats in place of ``node``; its bias is added here.
    """
    constants, maps = build.constants, iter(build.operands)
    build.operands = []
    for index in operands:
        name = node.input[index]
        if name in constants.arrays:
            values = constants.read(node, index, "constant")
            scale, zero = constants.scale_and_zero(node, index + 1, values.dtype)
            if node.op_type == "QGemm" and scale.shape != zero.shape:
                shapes = f"{scale.shape}, not {zero.shape}"
                raise build.refusal(node, f"weights' zero point must have the shape of their scale, {shapes}")
            constants.quantised[name] = Quantised(values, scale, zero, _channel_axis(plain, values))
        else:
            build.enter(next(maps))
            scale, zero = build.quantised_input(node, index + 1)
            factor = factor_of(build, node, "alpha") if node.op_type == "QGemm" else np.float32(1)
            build.state = Reals(node, factor * scale, zero, name)
            build.operands.append(build.value)
    if not build.operands:
        raise build.refusal(node, "must take a feature map")
    build.enter(build.operands[0])
    if (index := _BIASES.get(node.op_type, 0)) and len(node.input) > index and node.input[index]:
        _note_bias(build, node, plain, index)


def _note_bias(build: Builder, node: onnx.NodeProto, plain: onnx.NodeProto, index: int) -> None:
    """Add the bias of an operator on integers, its input ``index``, to ``plain`` as a dequantised constant."""
    constants, state, name = build.constants, build.state, node.input[index]
    plain.input.append(name)
    weights = constants.quantised.get(plain.input[1])
    if name in constants.arrays and weights is not None and isinstance(state, Reals):
        bias = constants.read(node, index, "bias")
        if bias.dtype != np.int32:
            raise build.refusal(node, f"bias must be int32, not {bias.dtype}")
        constants.quantised[name] = Quantised(bias, state.scale * weights.scale, np.zeros(1, np.int64), 0)


def _channel_axis(node: onnx.NodeProto, values: np.ndarray) -> int:
    """Return the axis of a layer's weight array that indexes output channels."""
    return 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else max(0, values.ndim - 1)


def _conv_integer(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX ConvInteger as a convolution layer whose outputs are the accumulators."""
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


OPERATORS = {"ConvInteger": _conv_integer}
"""Functions that import operators on integers without a float counterpart, by the ONNX operator's name."""
