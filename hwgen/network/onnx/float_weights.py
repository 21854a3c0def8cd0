"""Quantisation of float weights as ONNX Runtime quantises them: of a Conv, ConvTranspose or Gemm between quantisers.

A quantiser can leave out an operator: ONNX Runtime's own has no ConvTranspose in its form QOperator. The operator then
stands between a DequantizeLinear and a QuantizeLinear, with float weights. ONNX Runtime's optimiser quantises these
weights to int8, all with one scale and zero point, before it computes anything. Results equal its own only if the
hardware has the same integers.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.onnx.file import DOMAINS, UnusedNames, copied
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_facts import PASSED

_OPERATORS = {"Conv", "ConvTranspose", "Gemm"}
"""ONNX operators whose float weights ONNX Runtime quantises."""
_BOUNDING = {"Clip", "Relu"}
"""ONNX operators that can stand between such an operator and its QuantizeLinear."""
_INT8 = np.iinfo(np.int8)


def with_quantised_weights(graph: GraphIndex) -> GraphIndex:
    """Return an ONNX model in which weights are quantised where ONNX Runtime's optimiser quantises them.

    A model without such weights is returned as it is.
    """
    unused, nodes, made = UnusedNames(graph.model), list[onnx.NodeProto](), list[onnx.TensorProto]()
    for node in graph.nodes:
        if (
            _has_float_weights(graph, node)
            and _is_dequantised(graph, node.input[0])
            and _is_quantised(graph, node.output[0])
        ):
            names = [unused(f"{node.input[1]}_{what}") for what in ("quantised", "scale", "zero_point", "dequantised")]
            values = by_runtime(numpy_helper.to_array(graph.initialisers[node.input[1]]))
            made += map(numpy_helper.from_array, map(np.asarray, values), names)
            nodes.append(helper.make_node("DequantizeLinear", names[:3], names[3:], name=names[3]))
            node = copied(node)
            node.input[1] = names[3]
        nodes.append(node)
    return graph.with_nodes(nodes, made) if made else graph


def _has_float_weights(graph: GraphIndex, node: onnx.NodeProto) -> bool:
    """Return whether a node's weights are constant floats, and its bias, if any, a constant of one dimension."""
    if node.op_type not in _OPERATORS or node.domain not in DOMAINS or len(node.input) < 2:
        return False
    weights, bias = graph.initialisers.get(node.input[1]), node.input[2] if len(node.input) > 2 else ""
    if weights is None or weights.data_type != onnx.TensorProto.FLOAT or 0 in weights.dims:
        return False
    return not bias or (bias in graph.initialisers and len(graph.initialisers[bias].dims) == 1)


def _is_dequantised(graph: GraphIndex, tensor: str) -> bool:
    """Return whether a tensor is the output of a DequantizeLinear with one scale, perhaps behind moves."""
    node = graph.producers.get(tensor)
    while node is not None and node.op_type in PASSED and len(graph.readers(tensor)) == 1:
        tensor = node.input[0]
        node = graph.producers.get(tensor)
        if len(graph.readers(tensor)) > 1:
            return False
    if node is None or node.op_type != "DequantizeLinear" or node.input[1] not in graph.initialisers:
        return False
    return numpy_helper.to_array(graph.initialisers[node.input[1]]).size == 1


def _is_quantised(graph: GraphIndex, tensor: str) -> bool:
    """Return whether a QuantizeLinear alone reads a tensor, perhaps behind Relu or Clip, and moves behind it."""
    passed = _BOUNDING | PASSED
    while len(following := graph.readers(tensor)) == 1:
        (node,) = following
        if node.op_type not in passed:
            return node.op_type == "QuantizeLinear"
        if node.op_type in PASSED:
            passed = PASSED
        tensor = node.output[0]
    return False


def by_runtime(weights: np.ndarray) -> tuple[np.ndarray, np.float32, np.int8]:
    """Return float weights as int8, with scale and zero point, as ONNX Runtime quantises them.

    The range of the weights, 0 included, becomes that of int8. All operations are in float32.
    """
    low, high = min(weights.min(), np.float32(0)), max(weights.max(), np.float32(0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(_INT8.max - _INT8.min)
    zero = np.rint(np.clip(np.float32(_INT8.min) - low / scale, _INT8.min, _INT8.max))
    integers = np.clip(np.rint(weights / scale) + zero, _INT8.min, _INT8.max).astype(np.int8)
    return integers, np.float32(scale), np.int8(zero)
