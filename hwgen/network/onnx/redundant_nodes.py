"""Removal of what is redundant in ONNX models: constant outputs, nodes that change nothing, repeated quantisers.

ONNX Runtime removes the same nodes before it chooses kernels. Some exporters give each reader of a tensor a
QuantizeLinear and a DequantizeLinear of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import defs

from hwgen.network.onnx.file import (
    DEFAULT_DOMAINS,
    DOMAINS,
    attribute,
    copied,
    named,
    opset,
    subgraphs,
    takes,
    text,
)
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, traits_of

_REPEATED = {"Clip", "DequantizeLinear", "QuantizeLinear"}
"""ONNX operators of which one node can stand for several equal ones."""
_SMALL = 4096
"""Largest size of a constant that is compared by its values, in bytes. Larger constants are compared by name."""


@dataclass(frozen=True)
class Replacement:
    """Tensor that replaces the output of a removed node, and the reason of the removal, as a verdict states it."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class Simplified:
    """ONNX model without its redundant nodes.

    Parameters
    ----------
    graph : GraphIndex
        Index of the model.
    replaced : dict of str to Replacement
        Tensors that replace the outputs of the removed nodes.
    float_tensors : set of str
        Tensors whose equal quantisers have constants of their own, so that ONNX Runtime does not see that they are
        equal, and computes the tensors in floats.
    """

    graph: GraphIndex
    replaced: dict[str, Replacement]
    float_tensors: set[str]


def without_constant_outputs(graph: GraphIndex) -> tuple[GraphIndex, tuple[str, ...]]:
    """Return an ONNX model without its constant outputs, and their names.

    Exporters of quantised tensors give such outputs: the scale, the zero point and the number of bits of another
    output. A model whose outputs are all constant is returned as it is.
    """
    drawn = (name for node in graph.nodes if traits_of(node).effect is Effect.RANDOM for name in node.output)
    variable = graph.behind([*graph.inputs, *drawn])
    kept = [value for value in graph.model.graph.output if value.name in variable]
    names = tuple(name for name in graph.outputs if name not in variable)
    if not names or not kept:
        return graph, ()
    rest = copied(graph.model)
    del rest.graph.output[:]
    rest.graph.output.extend(kept)
    return GraphIndex(rest), names


def without_redundant(graph: GraphIndex) -> Simplified:
    """Return an ONNX model without its redundant nodes.

    Constants of the model are folded. A node that computes an output of the model stays. Optional outputs that nobody
    reads, such as the mask of a Dropout, lose their names.
    """
    search = _Search(graph)
    kept = [node for node in graph.nodes if not search.is_redundant(node)]
    read = {*graph.outputs}.union(*map(takes, kept))
    nodes = [_adapted(node, search.replaced, read, opset(graph.model)) for node in kept]
    if all(node is old for node, old in zip(nodes, graph.nodes, strict=False)):
        return Simplified(graph, {}, set())
    return Simplified(graph.with_nodes(nodes), search.replaced, search.float_tensors)


def _adapted(
    node: onnx.NodeProto, replaced: Mapping[str, Replacement], read: Collection[str], version: int
) -> onnx.NodeProto:
    """Return a node that reads the tensors which replace others, and has no optional output but those read."""
    inputs = [replaced[name].tensor if name in replaced else name for name in node.input]
    outputs = [
        name if name in read or not _is_optional(node, index, version) else "" for index, name in enumerate(node.output)
    ]
    if inputs == [*node.input] and outputs == [*node.output]:
        return node
    result = copied(node)
    result.input[:] = inputs
    result.output[:] = outputs
    return result


def _is_optional(node: onnx.NodeProto, index: int, version: int) -> bool:
    """Return whether ONNX lets a node leave out one of its outputs."""
    if node.domain not in DEFAULT_DOMAINS or not defs.has(node.op_type, version):
        return False
    outputs = defs.get_schema(node.op_type, version).outputs
    return index < len(outputs) and outputs[index].option == defs.OpSchema.FormalParameterOption.Optional


class _Search:
    """Search of a graph for redundant nodes, node by node in the graph's order."""

    def __init__(self, graph: GraphIndex) -> None:
        self._graph = graph
        self.replaced: dict[str, Replacement] = {}
        """Tensors of the nodes found so far that are redundant, with what replaces them."""
        self.float_tensors: set[str] = set()
        """Tensors with equal quantisers that have different constants."""
        self._outputs = {*graph.outputs, *_read_inside(graph.nodes)}
        self._first: dict[Any, onnx.NodeProto] = {}
        """First node of several equal ones, by all that makes them equal."""

    def is_redundant(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is redundant, and note what replaces its output."""
        if not node.output or any(node.output[1:]) or not node.input or node.domain not in DOMAINS:
            return False
        replacement = self._replacement(node)
        if replacement is None or node.output[0] in self._outputs:
            return False
        self.replaced[node.output[0]] = replacement
        return True

    def _replacement(self, node: onnx.NodeProto) -> Replacement | None:
        """Return what can replace a node's output, or ``None`` if the node is not redundant."""
        source = self._name(node.input[0])
        if self._graph.is_constant(source):
            return None
        if self._changes_nothing(node):
            return Replacement(source, "changes nothing")
        if node.op_type not in _REPEATED:
            return None
        first = self._first.setdefault(self._identity(node), node)
        if first is node:
            return None
        if first.input[1:] != node.input[1:]:
            self.float_tensors.add(source)
        return Replacement(first.output[0], f"the same as {named(first)}")

    def _changes_nothing(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is a Pad by nothing, or a Cast to the type that its input has."""
        if node.op_type == "Pad":
            if text(node, "mode", "constant") != "constant":
                return False  # ONNX Runtime keeps such a node
            pads = attribute(node, "pads", None) if len(node.input) == 1 else self._graph.constant(node.input[1])
            return pads is not None and not np.any(pads)
        source = self._name(node.input[0])
        return node.op_type == "Cast" and self._graph.shapes.of(source).type == attribute(node, "to", 0)

    def _identity(self, node: onnx.NodeProto) -> Any:
        """Return all that makes a node compute what it does: its operator, attributes and inputs."""
        attributes = sorted(entry.SerializeToString(deterministic=True) for entry in node.attribute)
        inputs = [self._name(node.input[0]), *map(self._content, node.input[1:])]
        return node.op_type, node.domain, tuple(attributes), tuple(inputs)

    def _name(self, tensor: str) -> str:
        """Return the name of the tensor that replaces ``tensor``, or its own name."""
        return self.replaced[tensor].tensor if tensor in self.replaced else tensor

    def _content(self, tensor: str) -> Any:
        """Return the values of a small constant with their type and shape, or the tensor's name."""
        values = self._graph.constant(tensor)
        if values is None or values.nbytes > _SMALL:
            return self._name(tensor)
        return values.dtype.str, values.shape, values.tobytes()


def _read_inside(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    """Yield the names of the tensors that nodes with graphs in them (If, Loop, Scan) read."""
    for node in nodes:
        if subgraphs(node):
            yield from takes(node)
