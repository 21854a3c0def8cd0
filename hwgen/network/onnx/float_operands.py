"""Quantisation of floats that a quantiser tool left in a model: weights between quantisers, and operands of moves.

ONNX Runtime's own quantiser has no ConvTranspose in its form QOperator. The operator then stands between a
DequantizeLinear and a QuantizeLinear, with float weights. ONNX Runtime's optimiser quantises these weights to int8, all
with one scale and zero point, before it computes anything. Results equal its own only if the hardware has the same
integers.

A tool that leaves out some operators can write ``Conv, Concat, QuantizeLinear``. Quantising keeps the order of values,
so each operand of the Concat can be quantised by itself, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.onnx.file import DOMAINS, copied, takes, text
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import PASSED, Effect, with_effect
from hwgen.network.onnx.rewrite import Made, Rewrite, Rewriter, rule
from hwgen.network.onnx.windows import WHOLE_MAPS

_BOUNDING = {"Clip", "Relu"}
"""Set of names of ONNX operators that can stand between an operator with float weights and its QuantizeLinear."""
_MOVING = with_effect(Effect.SELECTION, Effect.RESIZE) | {"Concat", "Split"}
"""Set of names of ONNX operators that move values, and that the importer can build only for quantised maps."""
_RENAMING = with_effect(Effect.RENAMING) | {"MaxPool"}
"""Set of names of ONNX operators, other than `_MOVING`, whose output is a quantised map if their input is one."""
_SELECTING = WHOLE_MAPS | {"MaxPool"}
"""Set of the names of max operators on maps whose float operand is quantised first only if other nodes read it, too."""
_PASSED = _MOVING | _RENAMING | WHOLE_MAPS | {"Clip", "Relu"}
"""Set of names of ONNX operators that give the same integers whether their input or their output is quantised."""
_SUMS = with_effect(Effect.CONVOLUTION, Effect.PRODUCT) | {"LRN"}
"""Set of names of ONNX operators whose results depend on several values of a map, so that no table can list them."""
_INT8 = np.iinfo(np.int8)


@rule("float weights", "quantise weights in floats of operators between quantisers", {"Conv", "ConvTranspose", "Gemm"})
def _with_quantised_weights(at: Rewriter, node: onnx.NodeProto) -> Made:
    graph = at.graph
    if not (
        _has_float_weights(graph, node)
        and _is_dequantised(graph, node.input[0])
        and _is_quantised(graph, node.output[0])
    ):
        return None
    weights, result = node.input[1], copied(node)
    values = as_runtime_quantises(numpy_helper.to_array(graph.initialisers[weights]))
    label = [
        at.keep(f"{weights}_{what}", np.asarray(value))
        for what, value in zip(("quantised", "scale", "zero_point"), values, strict=True)
    ]
    result.input[1] = at.unused(f"{weights}_dequantised")
    return [helper.make_node("DequantizeLinear", label, [result.input[1]], name=result.input[1]), result]


def _has_float_weights(graph: GraphIndex, node: onnx.NodeProto) -> bool:
    """Return whether a node's weights are constant floats, and its bias, if any, a one-dimensional constant."""
    if len(node.input) < 2:
        return False
    weights, bias = graph.initialisers.get(node.input[1]), node.input[2] if len(node.input) > 2 else ""
    if weights is None or weights.data_type != onnx.TensorProto.FLOAT or 0 in weights.dims:
        return False
    return not bias or (bias in graph.initialisers and len(graph.initialisers[bias].dims) == 1)


def _is_dequantised(graph: GraphIndex, tensor: str) -> bool:
    """Return whether a tensor is a DequantizeLinear's output with one scale, or values moved from one."""
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
    """Return whether a tensor's only reader is a QuantizeLinear, perhaps after a Relu or Clip and moves."""
    passed = _BOUNDING | PASSED
    while len(following := graph.readers(tensor)) == 1:
        (node,) = following
        if node.op_type not in passed:
            return node.op_type == "QuantizeLinear"
        if node.op_type in PASSED:
            passed = PASSED
        tensor = node.output[0]
    return False


def as_runtime_quantises(weights: np.ndarray) -> tuple[np.ndarray, np.float32, np.int8]:
    """Return, as a triple, int8 weights (array), scale and zero point: float weights as ONNX Runtime quantises them.

    The range of the weights, 0 included, becomes the range of int8. All operations are in float32.
    """
    low, high = min(weights.min(), np.float32(0)), max(weights.max(), np.float32(0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(_INT8.max - _INT8.min)
    zero = np.rint(np.clip(np.float32(_INT8.min) - low / scale, _INT8.min, _INT8.max))
    integers = np.clip(np.rint(weights / scale) + zero, _INT8.min, _INT8.max).astype(np.int8)
    return integers, np.float32(scale), np.int8(zero)


def _interpolates(node: onnx.NodeProto) -> bool:
    """Return whether a node computes values between its input's values, so that quantising its input changes them."""
    return node.op_type in with_effect(Effect.RESIZE) and text(node, "mode", "nearest") != "nearest"


def _passes(node: onnx.NodeProto) -> bool:
    """Return whether a node gives the same integers whether its input or its output is quantised."""
    return node.op_type in _PASSED and node.domain in DOMAINS and not _interpolates(node)


class _OperandRewrite:
    """Rewrite of a graph that quantises float operands of operators that only move values.

    A new QuantizeLinear and DequantizeLinear have the scale and the zero point of the QuantizeLinear that follows the
    operator. `Rewriter.float_tensors` gets the operands that ONNX Runtime computes in floats, too.
    """

    def __init__(self, at: Rewriter) -> None:
        self._at, self._graph = at, at.graph
        self._varying = at.graph.with_dependents(at.graph.inputs)
        """Set of names of the tensors that depend on an input of the model."""
        self._made: dict[tuple[str, ...], str] = {}
        """Dictionary by float operand and its QuantizeLinear's inputs: name of the quantised operand."""

    def __call__(self, node: onnx.NodeProto) -> Made:
        """Return nodes: QuantizeLinear, DequantizeLinear per float operand, then ``node``; ``None`` if nothing changes.

        Nothing changes unless all readers quantise with one scale and zero point, and an operand is float.
        """
        passed = {node.op_type}
        label = self._following_quantiser(node.output, passed) if self._is_moving(node) else None
        if label is None:
            return None
        result, forks, made = copied(node), node.op_type not in _MOVING, list[onnx.NodeProto]()
        for index, name in enumerate(_moved_tensors(node)):
            if self._is_quantised(name, functions=node.op_type != "Concat"):
                continue
            key = (name, *label.input[1:])
            if key not in self._made:
                made += self._quantiser_pair(name, label)
                self._made[key] = made[-1].output[0]
                if forks or not passed <= PASSED:
                    self._at.float_tensors.add(name)
            result.input[index] = self._made[key]
        return None if result.input == node.input else [*made, result]

    def _quantiser_pair(self, name: str, label: onnx.NodeProto) -> tuple[onnx.NodeProto, onnx.NodeProto]:
        """Return a pair of new nodes: a QuantizeLinear with the parameters of ``label``, and its inverse."""
        integers, real = self._at.unused(f"{name}_integers"), self._at.unused(f"{name}_quantised")
        quantiser = copied(label)
        quantiser.name, quantiser.input[0], quantiser.output[0] = integers, name, integers
        inputs = [integers, *label.input[1:]]
        return quantiser, helper.make_node("DequantizeLinear", inputs, [real], name=real, domain=label.domain)

    def _is_moving(self, node: onnx.NodeProto) -> bool:
        """Return whether a node moves values, or selects maximum values of floats that other nodes read, too."""
        if node.op_type in _SELECTING:
            return len(self._graph.readers(node.input[0])) > 1
        return not _interpolates(node)

    def _following_quantiser(self, tensors: Sequence[str], passed: set[str]) -> onnx.NodeProto | None:
        """Return the QuantizeLinear that ends all paths; ``None`` if one ends elsewhere, or scale or zero point differ.

        Add the operators on these paths to ``passed``, and QuantizeLinear if ONNX Runtime computes floats anyway.
        """
        labels: list[onnx.NodeProto] = []
        waiting = [*filter(None, tensors)]
        while waiting:
            tensor = waiting.pop()
            readers = self._graph.readers(tensor)
            if tensor in self._at.float_tensors:
                passed.add("QuantizeLinear")
            if tensor in self._graph.outputs or not readers:
                return None
            for node in readers:
                if node.op_type == "QuantizeLinear" and len(node.input) == 3 and not node.attribute:
                    labels.append(node)
                elif _passes(node) and tensor in _moved_tensors(node):
                    passed.add(node.op_type)
                    waiting += filter(None, node.output)
                else:
                    return None
        return labels[0] if len({tuple(node.input[1:]) for node in labels}) == 1 else None

    def _is_quantised(self, tensor: str, *, functions: bool) -> bool:
        """Return whether a tensor is a quantised map (perhaps moved), or depends on no input of the model.

        With ``functions``, functions of one value may be applied to the map, too.
        """
        while (node := self._graph.producers.get(tensor)) is not None and node.op_type != "DequantizeLinear":
            variable = [name for name in dict.fromkeys(takes(node)) if name in self._varying]
            passes = node.op_type in _RENAMING | _MOVING | WHOLE_MAPS or (functions and node.op_type not in _SUMS)
            if len(variable) != 1 or node.op_type == "Concat" or _interpolates(node) or not passes:
                return not variable
            (tensor,) = variable
        return True


def _moved_tensors(node: onnx.NodeProto) -> Sequence[str]:
    """Return a sequence of the names of the input tensors whose values a node with an operator of `_PASSED` moves."""
    return node.input if node.op_type == "Concat" else node.input[:1]


WEIGHTS = (_with_quantised_weights,)
"""Tuple of rewrite rules that quantise weights of a model as ONNX Runtime's optimiser does."""
OPERANDS = (Rewrite("float operands", "quantise floats before they are moved", _OperandRewrite, _MOVING | _SELECTING),)
"""Tuple of rewrite rules that quantise the float operands of operators that only move values."""
