"""Quantisation of floats in front of ONNX operators that only move or select values, not behind them.

A quantiser that leaves out some operators can write ``Conv, Concat, QuantizeLinear``. Quantising keeps the order of
values, so each operand of the Concat can be quantised by itself, with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx
from onnx import helper

from hwgen.network.onnx.file import DOMAINS, UnusedNames, copied, takes
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_facts import PASSED, Kind, of_kinds
from hwgen.network.onnx.windows import WHOLE_MAPS

_MOVING = of_kinds(Kind.SELECTION, Kind.RESIZE) | {"Concat", "Split"}
"""ONNX operators that move values, and that the importer builds of quantised maps only."""
_RENAMING = of_kinds(Kind.RENAMING) | {"MaxPool"}
"""ONNX operators, others than `_MOVING`, behind which a quantised map is still one."""
_PASSED = _MOVING | _RENAMING | WHOLE_MAPS | {"Clip", "Relu"}
"""ONNX operators behind which quantising gives the same integers as in front of them."""
_SUMS = of_kinds(Kind.CONVOLUTION, Kind.PRODUCT) | {"LRN"}
"""ONNX operators whose floats depend on several values of a map, so that no table holds them."""


def with_quantised_operands(graph: GraphIndex, float_tensors: Collection[str] = ()) -> tuple[GraphIndex, set[str]]:
    """Return an ONNX model with a QuantizeLinear and a DequantizeLinear for each float operand of moving operators.

    They have the scale and the zero point of the QuantizeLinear that follows the operator. The result holds the names
    of the operands that ONNX Runtime computes in floats, too. A model without such operands is returned as it is.

    Parameters
    ----------
    float_tensors : collection of str
        Tensors in front of a QuantizeLinear that ONNX Runtime computes in floats.
    """
    search = _Search(graph, float_tensors)
    nodes = [made for node in graph.nodes for made in search.with_quantisers(node)]
    return (graph, set()) if len(nodes) == len(graph.nodes) else (graph.with_nodes(nodes), search.operands)


class _Search:
    """Search of a graph for moving operators with float operands."""

    def __init__(self, graph: GraphIndex, float_tensors: Collection[str]) -> None:
        self._graph, self._float_tensors = graph, float_tensors
        self._unused = UnusedNames(graph.model)
        self._varying = graph.behind(graph.inputs)
        """Tensors that depend on an input of the model."""
        self._made: dict[tuple[str, ...], str] = {}
        """Quantised operands by the operand's name and the inputs of its QuantizeLinear."""
        self.operands: set[str] = set()
        """Names of the operands that ONNX Runtime computes in floats."""

    def with_quantisers(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield a node with new quantisers for its float operands in front."""
        passed = {node.op_type}
        label = self._label(node.output, passed) if self._is_moving(node) else None
        if label is None:
            yield node
            return
        result, forks = copied(node), node.op_type not in _MOVING
        for index, name in enumerate(self._moved(node)):
            if self._is_quantised(name, functions=node.op_type != "Concat"):
                continue
            if (name, *label.input[1:]) not in self._made:
                integers, real = self._unused(f"{name}_integers"), self._unused(f"{name}_quantised")
                quantiser = copied(label)
                quantiser.name, quantiser.input[0], quantiser.output[0] = integers, name, integers
                yield quantiser
                yield helper.make_node(
                    "DequantizeLinear", [integers, *label.input[1:]], [real], name=real, domain=label.domain
                )
                self._made[name, *label.input[1:]] = real
                if forks or not passed <= PASSED:
                    self.operands.add(name)
            result.input[index] = self._made[name, *label.input[1:]]
        yield result

    def _is_moving(self, node: onnx.NodeProto) -> bool:
        """Return whether a node moves values, or selects some of floats that other nodes read, too."""
        if node.domain not in DOMAINS:
            return False
        selects = node.op_type == "MaxPool" or node.op_type in WHOLE_MAPS
        return node.op_type in _MOVING or (selects and len(self._graph.readers(node.input[0])) > 1)

    def _label(self, tensors: Sequence[str], passed: set[str]) -> onnx.NodeProto | None:
        """Return the QuantizeLinear, with a scale and a zero point, that follows on all ways behind some tensors.

        Add the operators on these ways to ``passed``, and QuantizeLinear where ONNX Runtime computes floats anyway.
        """
        labels: list[onnx.NodeProto] = []
        waiting = [*filter(None, tensors)]
        while waiting:
            tensor = waiting.pop()
            readers = self._graph.readers(tensor)
            if tensor in self._float_tensors:
                passed.add("QuantizeLinear")
            if tensor in self._graph.outputs or not readers:
                return None
            for node in readers:
                if node.op_type == "QuantizeLinear" and len(node.input) == 3 and not node.attribute:
                    labels.append(node)
                elif node.op_type in _PASSED and node.domain in DOMAINS and tensor in self._moved(node):
                    passed.add(node.op_type)
                    waiting += filter(None, node.output)
                else:
                    return None
        return labels[0] if len({tuple(node.input[1:]) for node in labels}) == 1 else None

    def _moved(self, node: onnx.NodeProto) -> Sequence[str]:
        """Return the tensors whose values a node of `_PASSED` moves."""
        return node.input if node.op_type == "Concat" else node.input[:1]

    def _is_quantised(self, tensor: str, *, functions: bool) -> bool:
        """Return whether a tensor is a quantised map, with nothing but moves applied to it; or no map at all.

        With ``functions``, functions of one value may be applied to the map, too.
        """
        while (node := self._graph.producers.get(tensor)) is not None and node.op_type != "DequantizeLinear":
            variable = [name for name in dict.fromkeys(takes(node)) if name in self._varying]
            passes = node.op_type in _RENAMING | _MOVING | WHOLE_MAPS or (functions and node.op_type not in _SUMS)
            if len(variable) != 1 or node.op_type == "Concat" or not passes:
                return not variable
            (tensor,) = variable
        return True
