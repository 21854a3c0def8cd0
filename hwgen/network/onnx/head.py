"""Search for the operators of an ONNX model in front of the first quantisers, which the host runs: the head.

Examples are a normalisation by mean and deviation, ``2 * x - 1``, and a Concat of float inputs. Where only dimensions
change in front of a quantiser, there is no head: the host then sends the input in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
from onnx import helper, numpy_helper

from hwgen.network.ends import Head, InputEnd
from hwgen.network.onnx.check import needed
from hwgen.network.onnx.dimensions import MOVES
from hwgen.network.onnx.file import copied, data_inputs, input_shape, opset, takes
from hwgen.network.onnx.frames import Frames, FrameSearch
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.tail import may_run

_QUANTISING = {"DequantizeLinear", "QuantizeLinear"}
"""ONNX operators behind which a tensor is no float of the head any more."""


def without_head(model: onnx.ModelProto, where: str) -> tuple[onnx.ModelProto, Head | None, dict[str, tuple[str, str]]]:
    """Return an ONNX model without the operators that the host runs in front of the first quantisers, and these.

    The inputs of the result are the tensors that these quantisers read. A model without such operators, or with others
    among them than the host can run, is returned as it is. The mapping holds the verdict on each removed node, and the
    reason, by the node's output.
    """
    graph, used = model.graph, needed(model.graph)
    nodes, ends = _search(used, {value.name for value in data_inputs(model)}, {value.name for value in graph.output})
    values = _values(model, ends)
    if values is None or all(node.op_type in MOVES for node in nodes) or not all(map(may_run, nodes)):
        return model, None, {}
    if not _keeps_frames(model, nodes, ends, where):
        return model, None, {}
    made = {name for node in nodes for name in node.output}
    rest = copied(model)
    rest.ir_version = max(model.ir_version, 4)
    for field in (rest.graph.node, rest.graph.input):
        del field[:]
    rest.graph.node.extend(node for node in used if made.isdisjoint(node.output))
    rest.graph.input.extend(values)
    head = Head(
        inputs=tuple(_end(value, where) for value in data_inputs(model)),
        model=_cut(model, nodes, values),
        operators=tuple(node.op_type for node in nodes if node.op_type != "Identity"),
    )
    kept = {name for node in rest.graph.node for name in node.output}
    removed = {
        name: ("folded", "no output depends on it") for node in graph.node for name in node.output
    } | dict.fromkeys(sorted(made), ("host", "in front of the first integer tensor"))
    return rest, head, {name: verdict for name, verdict in removed.items() if name not in kept}


def _keeps_frames(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], ends: Sequence[str], where: str) -> bool:
    """Return whether each row of the tensors ``ends`` is one frame of the model's inputs.

    Raises
    ------
    ModelError
        If one of the head's ``nodes`` mixes the frames of a batch.
    """
    sources = data_inputs(model)
    batch = max(
        (max(dim.dim_value, 0) for source in sources for dim in source.type.tensor_type.shape.dim[:1]), default=0
    )
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    search = FrameSearch(Shapes(model), constants, batch or None, opset(model))
    constants_ = [node for node in model.graph.node if node.op_type == "Constant"]
    for node, why in search.mixing([source.name for source in sources], [*constants_, *nodes]):
        raise RefusalError(where, node, why)
    positions = [search.of(tensor) for tensor in ends]
    return all(isinstance(here, Frames) and here.are_rows for here in positions)


def _end(value: onnx.ValueInfoProto, where: str) -> InputEnd:
    """Return an input of the model, which only the host reads."""
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
    return InputEnd(name=value.name, shape=input_shape(value, where), taken=False, dtype=dtype)


def _cut(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], values: Sequence[onnx.ValueInfoProto]) -> bytes:
    """Return the serialised ONNX model of some nodes, and the constants that they read, with the outputs ``values``."""
    read = {name for node in nodes for name in takes(node)}
    constants = [node for node in model.graph.node if node.op_type == "Constant" and read.intersection(node.output)]
    initialisers = [tensor for tensor in model.graph.initializer if tensor.name in read]
    graph = helper.make_graph([*constants, *nodes], "head", data_inputs(model), values, initialisers)
    version = max(model.ir_version, 4)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=version).SerializeToString()


def _search(
    graph_nodes: Sequence[onnx.NodeProto], sources: set[str], outputs: Collection[str]
) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return the nodes in front of the first quantisers, and the tensors that the quantisers read, in order.

    There are none if other nodes read one of the nodes' tensors together with quantised ones, or an output is one.

    Parameters
    ----------
    graph_nodes : sequence of NodeProto
        Nodes that an output depends on, in topological order.
    sources, outputs : collection of str
        Inputs and outputs of the model.
    """
    floats, quantised = {*sources}, set[str]()
    nodes: list[onnx.NodeProto] = []
    ends: dict[str, None] = {}
    for node in graph_nodes:
        variable = [name for name in takes(node) if name in floats or name in quantised]
        if not variable:
            continue
        if node.op_type in _QUANTISING or not floats.issuperset(variable):
            if node.op_type == "DequantizeLinear" and not (floats - sources).isdisjoint(variable):
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
    if not floats.isdisjoint(outputs):
        return [], []
    return nodes, [*ends]


def _values(model: onnx.ModelProto, names: Sequence[str]) -> list[onnx.ValueInfoProto] | None:
    """Return tensors with types and shapes, as inputs of a model; ``None`` if one is not known, or there are none."""
    shapes = Shapes(model)
    values = []
    for name in names:
        tensor = shapes.of(name)
        if not tensor.type or not tensor.shape or 0 in tensor.shape[1:]:
            return None
        values.append(helper.make_tensor_value_info(name, tensor.type, [tensor.shape[0] or None, *tensor.shape[1:]]))
    return values or None
