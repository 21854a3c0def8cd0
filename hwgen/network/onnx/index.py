"""Index of an ONNX graph: the node that computes each tensor, the nodes that read it, its constants and shapes.

A pass that changes a graph returns the index of a new model (`GraphIndex.with_nodes`), and leaves the old one as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.onnx.file import constant_array, copied, data_inputs, takes
from hwgen.network.onnx.infer import Shapes


class GraphIndex:
    """Index of an ONNX graph: for its tensors the producer, the readers, constant values and shapes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = [*model.graph.node]
        """List of all nodes of the graph, in topological order."""
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        """Dictionary by tensor name: node that computes each tensor."""
        self._positions = {id(node): position for position, node in enumerate(self.nodes)}
        self.initialisers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [value.name for value in data_inputs(model)]
        """List of names of the graph's inputs that are not initialisers."""
        self.outputs = [value.name for value in model.graph.output]
        self._arrays: dict[str, np.ndarray | None] = {}

    @cached_property
    def _readers(self) -> dict[str, list[onnx.NodeProto]]:
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in takes(node):
                readers.setdefault(name, []).append(node)
        return readers

    def readers(self, tensor: str) -> Sequence[onnx.NodeProto]:
        """Return the nodes that read a tensor; a node that reads it twice is listed twice."""
        return self._readers.get(tensor, ())

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is an initialiser, or the output of a Constant node."""
        return tensor in self.initialisers or (
            tensor in self.producers and self.producers[tensor].op_type == "Constant"
        )

    def constant(self, tensor: str) -> np.ndarray | None:
        """Return the array of an initialiser or a Constant node, perhaps after Identity; ``None`` for others."""
        if tensor not in self._arrays:
            initialiser, node = self.initialisers.get(tensor), self.producers.get(tensor)
            if initialiser is not None:
                self._arrays[tensor] = numpy_helper.to_array(initialiser)
            elif node is not None and node.op_type == "Identity":
                self._arrays[tensor] = self.constant(node.input[0])
            else:
                self._arrays[tensor] = constant_array(node) if node is not None and node.op_type == "Constant" else None
        return self._arrays[tensor]

    @cached_property
    def shapes(self) -> Shapes:
        """`Shapes`: element types and shapes of the graph's tensors."""
        return Shapes(self.model)

    @cached_property
    def needed(self) -> list[onnx.NodeProto]:
        """List of nodes that an output of the graph depends on; ONNX Runtime drops all other nodes."""
        return self.before(self.outputs)

    def before(self, tensors: Iterable[str], ends: Collection[str] = ()) -> list[onnx.NodeProto]:
        """Return a list of ``tensors``' producers and all nodes those depend on, not past the tensors ``ends``."""
        return self.in_order(self.backwards(tensors, ends))

    def in_order(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return nodes as a list in the graph's topological order."""
        return sorted(nodes, key=lambda node: self._positions[id(node)])

    def backwards(self, tensors: Iterable[str], ends: Collection[str] = ()) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that ``tensors`` depend on, from the outputs back, without going past ``ends``."""
        waiting, seen = [*tensors], set[int]()
        while waiting:
            name = waiting.pop()
            node = None if name in ends else self.producers.get(name)
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += takes(node)

    def with_dependents(self, tensors: Iterable[str]) -> set[str]:
        """Return the names ``tensors`` and the names of all tensors that depend on them, as a set."""
        found = {*filter(None, tensors)}
        for node in self.nodes:
            if not found.isdisjoint(takes(node)):
                found.update(filter(None, node.output))
        return found

    def with_nodes(self, nodes: Iterable[onnx.NodeProto], made: Iterable[onnx.TensorProto] = ()) -> GraphIndex:
        """Return the `GraphIndex` of a copy of the model with nodes ``nodes``, and added initialisers ``made``."""
        model = copied(self.model)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(made)
        return GraphIndex(model)

    def part(
        self,
        name: str,
        nodes: Iterable[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
    ) -> onnx.ModelProto:
        """Return an ONNX model called ``name`` with some of the graph's nodes, and the initialisers that these read."""
        nodes = [*nodes]
        used = {value.name for value in outputs}.union(*map(takes, nodes))
        constants = [tensor for tensor in self.model.graph.initializer if tensor.name in used]
        graph = helper.make_graph(nodes, name, inputs, outputs, constants)
        # Since IR version 4 initialisers need not be inputs.
        version, functions = max(self.model.ir_version, 4), [*self.model.functions]
        return helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=version, functions=functions)
