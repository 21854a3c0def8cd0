"""Quantisation of float weights as ONNX Runtime quantises them: of a Conv, ConvTranspose or Gemm between quantisers.

A quantiser can leave out an operator: ONNX Runtime's own has no ConvTranspose in its form QOperator. The operator then
stands between a DequantizeLinear and a QuantizeLinear, with float weights. ONNX Runtime's optimiser quantises these
weights to int8, all with one scale and zero point, before it computes anything. Results equal its own only if the
hardware has the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.onnx.file import DOMAINS, UnusedNames, copied, takes

_OPERATORS = {"Conv", "ConvTranspose", "Gemm"}
"""ONNX operators whose float weights ONNX Runtime quantises."""
_BOUNDING = {"Clip", "Relu"}
"""ONNX operators that can stand between such an operator and its QuantizeLinear."""
_MOVING = {"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""ONNX operators past which ONNX Runtime moves a DequantizeLinear, and a QuantizeLinear, that alone read the result."""
_INT8 = np.iinfo(np.int8)


def with_quantised_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an ONNX model in which weights are quantised where ONNX Runtime's optimiser quantises them.

    A model without such weights is returned as it is.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    producers = {name: node for node in model.graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in takes(node):
            readers.setdefault(name, []).append(node)
    chosen = {
        id(node)
        for node in model.graph.node
        if _has_float_weights(node, constants)
        and _is_dequantised(node.input[0], producers, readers, constants)
        and _is_quantised(node, readers)
    }
    if not chosen:
        return model
    result, unused = copied(model), UnusedNames(model)
    del result.graph.node[:]
    for node in model.graph.node:
        if id(node) in chosen:
            result.graph.node.append(_quantised(result, node, numpy_helper.to_array(constants[node.input[1]]), unused))
        result.graph.node.append(node)
        if id(node) in chosen:
            result.graph.node[-1].input[1] = result.graph.node[-2].output[0]
    return result


def _has_float_weights(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Return whether a node's weights are constant floats, and its bias, if any, a constant of one dimension."""
    if node.op_type not in _OPERATORS or node.domain not in DOMAINS or len(node.input) < 2:
        return False
    weights, bias = constants.get(node.input[1]), node.input[2] if len(node.input) > 2 else ""
    if weights is None or weights.data_type != onnx.TensorProto.FLOAT or 0 in weights.dims:
        return False
    return not bias or (bias in constants and len(constants[bias].dims) == 1)


def _is_dequantised(
    tensor: str,
    producers: Mapping[str, onnx.NodeProto],
    readers: Mapping[str, Sequence[onnx.NodeProto]],
    constants: Mapping[str, onnx.TensorProto],
) -> bool:
    """Return whether a tensor is the output of a DequantizeLinear with one scale, perhaps behind moves."""
    node = producers.get(tensor)
    while node is not None and node.op_type in _MOVING and len(readers[tensor]) == 1:
        tensor = node.input[0]
        node = producers.get(tensor)
        if len(readers[tensor]) > 1:
            return False
    if node is None or node.op_type != "DequantizeLinear" or node.input[1] not in constants:
        return False
    return numpy_helper.to_array(constants[node.input[1]]).size == 1


def _is_quantised(node: onnx.NodeProto, readers: Mapping[str, Sequence[onnx.NodeProto]]) -> bool:
    """Return whether a QuantizeLinear alone reads a node's output, perhaps behind Relu or Clip, and moves behind it."""
    passed = _BOUNDING | _MOVING
    while len(following := readers.get(node.output[0], ())) == 1:
        (node,) = following
        if node.op_type not in passed:
            return node.op_type == "QuantizeLinear"
        if node.op_type in _MOVING:
            passed = _MOVING
    return False


def _quantised(
    model: onnx.ModelProto, node: onnx.NodeProto, weights: np.ndarray, unused: UnusedNames
) -> onnx.NodeProto:
    """Add quantised weights to a model's constants, and return a DequantizeLinear node that reads them."""
    integers, scale, zero = by_runtime(weights)
    names = [unused(f"{node.input[1]}_{what}") for what in ("quantised", "scale", "zero_point", "dequantised")]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(values), name)
        for values, name in zip((integers, scale, zero), names, strict=False)
    )
    return helper.make_node("DequantizeLinear", names[:3], names[3:], name=names[3])


def by_runtime(weights: np.ndarray) -> tuple[np.ndarray, np.float32, np.int8]:
    """Return float weights as int8, with scale and zero point, as ONNX Runtime quantises them.

    The range of the weights, 0 included, becomes that of int8. All operations are in float32.
    """
    low, high = min(weights.min(), np.float32(0)), max(weights.max(), np.float32(0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(_INT8.max - _INT8.min)
    zero = np.rint(np.clip(np.float32(_INT8.min) - low / scale, _INT8.min, _INT8.max))
    integers = np.clip(np.rint(weights / scale) + zero, _INT8.min, _INT8.max).astype(np.int8)
    return integers, np.float32(scale), np.int8(zero)
