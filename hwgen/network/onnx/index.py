"""Index of an ONNX graph: the node that gives each tensor, the nodes that read it, its constants, types and shapes.

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
    """Index of the graph of an ONNX model, which does not change meanwhile. Nodes are in topological order."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = [*model.graph.node]
        """All nodes. This list keeps them alive, so that each ``id`` stays unique."""
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        """Node that gives each tensor, by the tensor's name."""
        self._positions = {id(node): position for position, node in enumerate(self.nodes)}
        self.initialisers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [value.name for value in data_inputs(model)]
        """Names of the inputs that are not initialisers."""
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
        """Return the nodes that read a tensor, a node that reads it twice two times."""
        return self._readers.get(tensor, ())

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is an initialiser, or the output of a Constant node."""
        return tensor in self.initialisers or (
            tensor in self.producers and self.producers[tensor].op_type == "Constant"
        )

    def constant(self, tensor: str) -> np.ndarray | None:
        """Return the values of an initialiser or a Constant node's output; ``None`` if the tensor is neither."""
        if tensor not in self._arrays:
            initialiser, node = self.initialisers.get(tensor), self.producers.get(tensor)
            if initialiser is not None:
                self._arrays[tensor] = numpy_helper.to_array(initialiser)
            else:
                self._arrays[tensor] = constant_array(node) if node is not None and node.op_type == "Constant" else None
        return self._arrays[tensor]

    @cached_property
    def shapes(self) -> Shapes:
        """Types and shapes of the tensors."""
        return Shapes(self.model)

    @cached_property
    def needed(self) -> list[onnx.NodeProto]:
        """Nodes that an output depends on; ONNX Runtime drops all other nodes."""
        return self.before(self.outputs)

    def before(self, tensors: Iterable[str], ends: Collection[str] = ()) -> list[onnx.NodeProto]:
        """Return the nodes that compute ``tensors``, and all nodes before them, but not those before ``ends``."""
        return self.in_order(self.backwards(tensors, ends))

    def in_order(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return nodes of the graph in its order."""
        return sorted(nodes, key=lambda node: self._positions[id(node)])

    def backwards(self, tensors: Iterable[str], ends: Collection[str] = ()) -> Iterator[onnx.NodeProto]:
        """Yield the nodes of `before`, each after one that reads its output."""
        waiting, seen = [*tensors], set[int]()
        while waiting:
            name = waiting.pop()
            node = None if name in ends else self.producers.get(name)
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting += takes(node)

    def behind(self, tensors: Iterable[str]) -> set[str]:
        """Return ``tensors``, and all tensors that depend on them."""
        behind = {*tensors}
        for node in self.nodes:
            if not behind.isdisjoint(takes(node)):
                behind.update(node.output)
        return behind

    def with_nodes(self, nodes: Iterable[onnx.NodeProto], made: Iterable[onnx.TensorProto] = ()) -> GraphIndex:
        """Return the index of a model with other nodes, and with the initialisers ``made``, too."""
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
        """Return a model of some nodes, whose graph is called ``name``, with the initialisers that they read."""
        nodes = [*nodes]
        used = {value.name for value in outputs}.union(*map(takes, nodes))
        constants = [tensor for tensor in self.model.graph.initializer if tensor.name in used]
        graph = helper.make_graph(nodes, name, inputs, outputs, constants)
        # From IR version 4 on initialisers need not be inputs.
        version, functions = max(self.model.ir_version, 4), [*self.model.functions]
        return helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=version, functions=functions)
