"""Search for the head of an ONNX model: the operators before the first quantisers, which the host runs.

Examples are a normalisation by mean and deviation, ``2 * x - 1``, and a Concat of float inputs. If only dimensions
change before a quantiser, there is no head: the host then sends the input in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper, numpy_helper

from hwgen.network.ends import Head, InputEnd
from hwgen.network.onnx.dimensions import MOVES
from hwgen.network.onnx.file import copied, data_inputs, input_shape, takes
from hwgen.network.onnx.frames import Frames, FrameSearch
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.tail import may_run

_QUANTISING = {"DequantizeLinear", "QuantizeLinear"}
"""Set of names of ONNX operators that end the head of a model: tensors after them no longer hold its floats."""


def without_head(graph: GraphIndex, where: str) -> tuple[GraphIndex, Head | None, dict[str, tuple[str, str]]]:
    """Return a triple: model after its first QuantizeLinears, `Head` before them or ``None``, removed nodes' verdicts.

    The inputs of the result are the tensors that these quantisers read. A model without operators before them, or with
    some that the host can't run, is returned unchanged. The mapping holds the verdict on each removed node, and the
    reason, by the node's output.
    """
    nodes, ends = _find_head(graph)
    values = _declared_inputs(graph, ends)
    if values is None or all(node.op_type in MOVES for node in nodes) or not all(map(may_run, nodes)):
        return graph, None, {}
    if not _keeps_frames(graph, nodes, ends, where):
        return graph, None, {}
    made = {name for node in nodes for name in node.output}
    kept = [node for node in graph.needed if made.isdisjoint(node.output)]
    rest = copied(graph.model)
    rest.ir_version = max(rest.ir_version, 4)
    for field in (rest.graph.node, rest.graph.input):
        del field[:]
    rest.graph.node.extend(kept)
    rest.graph.input.extend(values)
    sources = data_inputs(graph.model)
    read = {name for node in nodes for name in takes(node)}
    constants = [node for node in graph.nodes if node.op_type == "Constant" and read.intersection(node.output)]
    head = Head(
        inputs=tuple(_host_input(value, where) for value in sources),
        model=graph.part("head", [*constants, *nodes], sources, values).SerializeToString(),
        operators=tuple(node.op_type for node in nodes if node.op_type != "Identity"),
    )
    removed: dict[str, tuple[str, str]] = dict.fromkeys(graph.producers, ("folded", "no output depends on it"))
    removed |= dict.fromkeys(sorted(made), ("host", "before the first integer tensor"))
    for name in (name for node in kept for name in node.output):
        removed.pop(name, None)
    return GraphIndex(rest), head, removed


def _keeps_frames(graph: GraphIndex, nodes: Sequence[onnx.NodeProto], ends: Sequence[str], where: str) -> bool:
    """Return whether each row of the tensors ``ends``, where the head stops, is one frame of the inputs.

    Raises
    ------
    ModelError
        If one of the head's ``nodes`` mixes the frames of a batch.
    """
    sources = data_inputs(graph.model)
    batch = max(
        (max(dim.dim_value, 0) for source in sources for dim in source.type.tensor_type.shape.dim[:1]), default=0
    )
    constants = {name: numpy_helper.to_array(tensor) for name, tensor in graph.initialisers.items()}
    search = FrameSearch(graph, constants, batch or None)
    constant_nodes = [node for node in graph.nodes if node.op_type == "Constant"]
    for node, why in search.mixing(dict.fromkeys(graph.inputs, Frames(0)), [*constant_nodes, *nodes]):
        raise RefusalError(where, node, why)
    positions = [search.of(tensor) for tensor in ends]
    return all(isinstance(here, Frames) and here.are_rows for here in positions)


def _host_input(value: onnx.ValueInfoProto, where: str) -> InputEnd:
    """Return an `InputEnd` that describes an input of the model that only the host reads."""
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
    return InputEnd(name=value.name, shape=input_shape(value, where), taken=False, dtype=dtype)


def _find_head(graph: GraphIndex) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return a pair: the nodes before the first QuantizeLinears, and the names of the tensors that these read.

    Both are empty if other nodes read one of the nodes' tensors together with quantised ones, or it is an output.
    """
    floats, quantised = {*graph.inputs}, set[str]()
    nodes: list[onnx.NodeProto] = []
    ends: dict[str, None] = {}
    for node in graph.needed:
        variable = [name for name in takes(node) if name in floats or name in quantised]
        if not variable:
            continue
        if node.op_type in _QUANTISING or not floats.issuperset(variable):
            if node.op_type == "DequantizeLinear" and not floats.difference(graph.inputs).isdisjoint(variable):
                return [], []  # integers that were moved
            ends |= dict.fromkeys(name for name in variable if name in floats)
            quantised.update(node.output)
            if node.op_type not in _QUANTISING and not floats.isdisjoint(variable):
                return [], []
        elif node.op_type.startswith("QLinear"):
            return [], []  # the inputs are integers
        else:
            nodes.append(node)
            floats.update(node.output)
    if not floats.isdisjoint(graph.outputs):
        return [], []
    return nodes, [*ends]


def _declared_inputs(graph: GraphIndex, names: Sequence[str]) -> list[onnx.ValueInfoProto] | None:
    """Return a list of tensors declared as model inputs with types and shapes; ``None`` if one is unknown."""
    values = []
    for name in names:
        tensor = graph.shapes.of(name)
        if not tensor.type or not tensor.shape or 0 in tensor.shape[1:]:
            return None
        values.append(helper.make_tensor_value_info(name, tensor.type, [tensor.shape[0] or None, *tensor.shape[1:]]))
    return values or None
