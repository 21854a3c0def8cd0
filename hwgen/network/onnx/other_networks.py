"""Refusal of models with parts that no convolutional network has: attention, recurrence, three dimensions.

hwgen builds none of them. One refusal says so, in place of a refusal of each operator that such a part is made of, and
of what follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from hwgen.network.onnx.dimensions import MOVES
from hwgen.network.onnx.file import DOMAINS, named, takes
from hwgen.network.onnx.ledger import OtherNetworkError
from hwgen.network.onnx.operator_traits import PRODUCTS, Effect, traits_of
from hwgen.network.onnx.walk import ImportWalk

_PRODUCTS = PRODUCTS | {"Einsum": 1}
"""Dictionary by ONNX operator that multiplies matrices: input index of the second operand."""
_LOOPS = {"Loop", "Scan"}
"""Set of names of ONNX operators that run a graph repeatedly."""
_REARRANGING = {
    *("Add", "Cast", "Concat", "DequantizeLinear", "Div", "Gather", "Mul", "QuantizeLinear", "Slice", "Split"),
    *MOVES,
}
"""Set of names of ONNX operators that split a tensor into attention heads, or bring its time steps to the front.

They also append tokens to an image's tokens, and add positions.
"""
_THREE_DIMENSIONS = "three-dimensional convolutions or pools"


def note_other_networks(walk: ImportWalk) -> None:
    """Replace refusals of parts such as attention, and of nodes around them, by one refusal for all.

    Refusals of other operators stay.
    """
    kinds = _nodes_by_kind(walk) if walk.ledger.obstacles else {}
    if not kinds:
        return
    parts = {id(node) for nodes in kinds.values() for node in nodes}
    first = next(node for node in walk.graph.needed if id(node) in parts)
    later = walk.graph.with_dependents(name for nodes in kinds.values() for node in nodes for name in node.output)
    gone: set[int | str] = {id(node) for node in walk.graph.needed if not later.isdisjoint(node.output)}
    gone.update(_leading_to(walk.graph.needed, parts))
    if _THREE_DIMENSIONS in kinds:
        gone.update(walk.refused_inputs)
    why = f"contains {_listed(kinds)}, which hwgen does not build"
    walk.ledger.merge(gone, first, OtherNetworkError(walk.where, why))


def _nodes_by_kind(walk: ImportWalk) -> dict[str, list[onnx.NodeProto]]:
    """Return a dict by kind of part that no CNN has (attention, recurrence ..) of the part's nodes without a layer."""
    nodes = [node for node in walk.graph.needed if id(node) not in walk.constant and node.domain in DOMAINS]
    free = [node for node in nodes if id(node) not in walk.ledger.host_after and not walk.ledger.layers.get(id(node))]
    variable = _input_dependent(walk, nodes)
    products = [node for node in free if _multiplies_maps(node, variable)]
    attention = [node for node in free if "Attention" in node.op_type]
    kinds = {
        "recurrence": _having(free, Effect.RECURRENCE),
        "loops": [node for node in free if node.op_type in _LOOPS],
        _THREE_DIMENSIONS: [
            node for node in _having(free, Effect.CONVOLUTION, Effect.POOL, Effect.GLOBAL_POOL) if _is_deep(walk, node)
        ],
    }
    later = walk.graph.with_dependents(name for node in products for name in node.output)
    # In attention, a Softmax follows a product of two feature maps.
    softmax = (node for node in _having(nodes, Effect.SOFTMAX) if node.op_type != "LogSoftmax")
    if attention or any(node.output[0] in later for node in softmax):
        products += attention
        kinds["attention"] = products
    else:
        kinds["products of two feature maps"] = products
    kinds["layer normalisation"] = _having(free, Effect.TOKEN_NORMALISATION)
    return {kind: found for kind, found in kinds.items() if found}


def _having(nodes: Sequence[onnx.NodeProto], *effects: Effect) -> list[onnx.NodeProto]:
    """Return a list of the nodes whose operators have one of ``effects``."""
    return [node for node in nodes if traits_of(node).effect in effects]


def _input_dependent(walk: ImportWalk, nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Return a set of the names of the tensors whose values depend on an input of the model, not only on its sizes."""
    variable = {*walk.graph.inputs}
    for node in nodes:
        if node.op_type not in ("Shape", "Size") and not variable.isdisjoint(takes(node)):
            variable.update(filter(None, node.output))
    return variable


def _multiplies_maps(node: onnx.NodeProto, variable: set[str]) -> bool:
    """Return whether a node is a matrix product whose operands both depend on an input of the model."""
    second = _PRODUCTS.get(node.op_type, len(node.input))
    return second < len(node.input) and variable.issuperset((node.input[0], node.input[second]))


def _is_deep(walk: ImportWalk, node: onnx.NodeProto) -> bool:
    """Return whether a convolution or pool works on three-dimensional maps (C, D, H, W)."""
    shape = walk.graph.shapes.of(node.input[0]).shape
    return shape is not None and len(shape) > 4


def _leading_to(nodes: Sequence[onnx.NodeProto], parts: set[int]) -> set[int]:
    """Return the ``id`` of nodes that only rearrange values for the nodes ``parts``, as a set."""
    leading, wanted = set(), set()
    for node in reversed(nodes):
        if node.op_type in _REARRANGING and not wanted.isdisjoint(node.output):
            leading.add(id(node))
        if id(node) in parts | leading:
            wanted.update(takes(node))
    return leading - parts


def _listed(kinds: Mapping[str, Sequence[onnx.NodeProto]]) -> str:
    """Return the kinds of parts as text, each with its first node and the number of its other nodes."""
    texts = [
        f"{kind} ({named(nodes[0])}{f' and {len(nodes) - 1:,} more' if len(nodes) > 1 else ''})"
        for kind, nodes in kinds.items()
    ]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
