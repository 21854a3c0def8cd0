"""Removal of redundant parts of ONNX models: constant outputs, nodes that change nothing, repeated quantisers.

ONNX Runtime removes the same nodes before it chooses kernels. Some exporters give each reader of a tensor a
QuantizeLinear and a DequantizeLinear of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import defs

from hwgen.network.onnx.file import DEFAULT_DOMAINS, attribute, copied, named, opset, text
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, traits_of
from hwgen.network.onnx.rewrite import Made, Replace, Rewrite, Rewriter, rule

_REPEATED = {"Clip", "DequantizeLinear", "QuantizeLinear"}
"""Set of names of ONNX operators whose equal nodes are merged into one."""
_SMALL = 4096
"""Maximum size, in bytes, of a constant that is compared by its values; larger ones are compared by name."""


def without_constant_outputs(graph: GraphIndex) -> tuple[GraphIndex, tuple[str, ...]]:
    """Return a pair: the `GraphIndex` of a model without its constant outputs, and a tuple of these outputs' names.

    Exporters of quantised tensors write such outputs: the scale, the zero point and the number of bits of another
    output. A model whose outputs are all constant is returned unchanged.
    """
    drawn = (name for node in graph.nodes if traits_of(node).effect is Effect.RANDOM for name in node.output)
    variable = graph.with_dependents([*graph.inputs, *drawn])
    kept = [value for value in graph.model.graph.output if value.name in variable]
    names = tuple(name for name in graph.outputs if name not in variable)
    if not names or not kept:
        return graph, ()
    rest = copied(graph.model)
    del rest.graph.output[:]
    rest.graph.output.extend(kept)
    return GraphIndex(rest), names


@rule("no effect", "drop a Pad by nothing, and a Cast to the type that its input has", {"Cast", "Pad"})
def _without_effect(at: Rewriter, node: onnx.NodeProto) -> Made:
    if at.graph.is_constant(node.input[0]):
        return None
    if node.op_type == "Cast":
        nothing = at.graph.shapes.of(node.input[0]).type == attribute(node, "to", 0)
    else:
        pads = attribute(node, "pads", None) if len(node.input) == 1 else at.graph.constant(node.input[1])
        # ONNX Runtime keeps a node of another mode.
        nothing = text(node, "mode", "constant") == "constant" and pads is not None and not np.any(pads)
    return at.instead(node, node.input[0], "changes nothing") if nothing else None


def _repeated(at: Rewriter) -> Replace:
    """Return a function for one pass over a graph that merges each node into an earlier equal one."""
    first_nodes: dict[Any, onnx.NodeProto] = {}

    def merged(node: onnx.NodeProto) -> Made:
        if at.graph.is_constant(node.input[0]):
            return None
        first = first_nodes.setdefault(_identity(at.graph, node), node)
        if first is node:
            return None
        if first.input[1:] != node.input[1:]:  # ONNX Runtime does not see that they are equal
            at.float_tensors.add(node.input[0])
        return at.instead(node, first.output[0], f"the same as {named(first)}")

    return merged


def _identity(graph: GraphIndex, node: onnx.NodeProto) -> Any:
    """Return a hashable key that is equal for nodes with the same operator, attributes and inputs."""
    attributes = sorted(entry.SerializeToString(deterministic=True) for entry in node.attribute)
    inputs = [node.input[0], *(_content(graph, name) for name in node.input[1:])]
    return node.op_type, node.domain, tuple(attributes), tuple(inputs)


def _content(graph: GraphIndex, tensor: str) -> Any:
    """Return a hashable key for a tensor: type, shape and bytes of a small constant, or else its name."""
    values = graph.constant(tensor)
    if values is None or values.nbytes > _SMALL:
        return tensor
    return values.dtype.str, values.shape, values.tobytes()


@rule("unread outputs", "drop optional outputs that nobody reads, such as the mask of a Dropout")
def _without_unread(at: Rewriter, node: onnx.NodeProto) -> Made:
    unread = [name for name in node.output if name and not at.graph.readers(name) and name not in at.graph.outputs]
    gone = {name for name in unread if _is_optional(node, [*node.output].index(name), opset(at.graph.model))}
    if not gone:
        return None
    result = copied(node)
    result.output[:] = ["" if name in gone else name for name in node.output]
    return [result]


def _is_optional(node: onnx.NodeProto, index: int, version: int) -> bool:
    """Return whether ONNX lets a node leave out the output with the index ``index``."""
    if node.domain not in DEFAULT_DOMAINS or not defs.has(node.op_type, version):
        return False
    outputs = defs.get_schema(node.op_type, version).outputs
    return index < len(outputs) and outputs[index].option == defs.OpSchema.FormalParameterOption.Optional


RULES = (
    _without_effect,
    Rewrite("equal nodes", "merge equal quantisers and Clips of one tensor", _repeated, _REPEATED),
    _without_unread,
)
"""Tuple of rewrite rules that remove redundant nodes, in the order of application."""
