"""Search for the tensor of an ONNX model where the hardware ends; the host runs the nodes after it.

The host runs operators without weights: elementwise operators, Softmax, reshaping, selecting and reducing. It runs them
only after the last integer tensor, where no layer follows. A model that leaves a layer in floats thus stays an error,
and the layer does not move to the host unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.onnx.constants import NARROW
from hwgen.network.onnx.file import DOMAINS, UnusedNames, copied
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, traits_of, with_effect
from hwgen.network.onnx.values import Affine, Ended, Reals, Value
from hwgen.network.onnx.views import View

_MOVING = with_effect(Effect.SAME, Effect.RENAMING) | {"DequantizeLinear"}
"""Set of names of ONNX operators that keep all values, apart from their type, shape or order."""
_BUILT = {"Add", "Clip", "Relu", "Resize"}
"""Set of names of ONNX operators that the hardware computes if they are between integers.

After other operators of the host, the host runs them.
"""
_JOINING = {"Concat", "QLinearConcat"}
"""Set of names of ONNX operators that concatenate several tensors."""


def may_run(node: onnx.NodeProto) -> bool:
    """Return whether the host can run an ONNX node that comes after the last integer tensor."""
    return traits_of(node).on_host and node.domain in DOMAINS


def may_join(
    graph: GraphIndex, sources: Collection[str], nodes: Sequence[onnx.NodeProto], integers: Collection[str]
) -> bool:
    """Return whether the host can run ``nodes``, which compute the model's outputs from the tensors ``sources``.

    The nodes are in the graph's order. ``integers``: the sources that are feature maps.
    """
    return all(map(may_run, nodes)) and _tail_after(graph, sources, nodes, integers) is not None


@dataclass(frozen=True)
class Tail:
    """Nodes between one tensor and the model's output, which the host runs after the hardware.

    The nodes are in the graph's order; ``constants`` don't depend on the tensor.
    """

    constants: tuple[onnx.NodeProto, ...]
    nodes: tuple[onnx.NodeProto, ...]


def _tail_after(
    graph: GraphIndex, sources: Collection[str], nodes: Iterable[onnx.NodeProto], integers: Collection[str]
) -> Tail | None:
    """Return the `Tail` of those ``nodes`` that follow the tensors ``sources``; ``None`` if the host shouldn't run all.

    The result is ``None`` if the model means one of the nodes for integers. Such a node is an activation, or a
    QuantizeLinear in another position than these: after Softmax, or after operators that move values in a manner that
    the hardware doesn't know. ``integers``: the sources that are feature maps, not floats of a layer.
    """
    depends, untouched = {*sources}, {*integers}
    rearranged: set[str] = set()
    after_softmax: set[str] = set()
    constants: list[onnx.NodeProto] = []
    depending: list[onnx.NodeProto] = []
    for node in nodes:
        variable = [name for name in node.input if name in depends]
        if not variable:
            constants.append(node)
            continue
        outputs = set(node.output)
        depends |= outputs
        depending.append(node)
        if node.op_type in _BUILT and untouched.issuperset(variable):
            return None
        if node.op_type == "QuantizeLinear" and node.input[0] not in rearranged | after_softmax:
            return None
        joins = len(sources) > 1 and node.op_type in _JOINING and rearranged.union(untouched).issuperset(variable)
        if node.op_type == "QLinearConcat" and not joins:
            return None
        moves = node.op_type in _MOVING
        if moves and node.input[0] in untouched:
            untouched |= outputs
        keeps = moves or node.op_type == "QuantizeLinear"
        if joins or _rearranges(graph, node) or (keeps and node.input[0] in rearranged):
            rearranged |= outputs
        if traits_of(node).effect is Effect.SOFTMAX or after_softmax.intersection(variable):
            after_softmax |= outputs
    return Tail(tuple(constants), tuple(depending))


def _rearranges(graph: GraphIndex, node: onnx.NodeProto) -> bool:
    """Return whether an ONNX node moves values in another way than by flattening a frame."""
    if node.op_type == "Reshape":
        shape = graph.constant(node.input[1]) if len(node.input) > 1 else None
        return shape is None or shape.shape != (2,)
    return node.op_type in ("Squeeze", "TopK", "Transpose", "Unsqueeze")


def host_input(
    value: Value, name: str, batch: int | None, unused: Callable[[str], str]
) -> tuple[onnx.ValueInfoProto, list[onnx.NodeProto]]:
    """Return a pair: the input of a host model for the integers ``name`` of a map, and nodes that convert it.

    Each row of the input is a frame. Integers of ONNX types below 8 bits are passed in bytes. A batch can have any
    number of frames if ``batch`` is ``None``.
    """
    nodes, integer_type, view = list[onnx.NodeProto](), value.map.type, value.view
    if view.holds_batch:
        frames, shape = unused(f"{name}_frames"), unused(f"{name}_shape")
        rows = numpy_helper.from_array(np.array([-1, *view.shape[1:]]))
        nodes = [
            helper.make_node("Constant", [], [shape], value=rows),
            helper.make_node("Reshape", [frames, shape], [name]),
        ]
        name = frames
    narrow = [element for element, other in NARROW.items() if other == integer_type]
    if narrow:
        given = unused(f"{name}_bytes")
        nodes.insert(0, helper.make_node("Cast", [given], [name], to=narrow[0]))
        name = given
    element = helper.np_dtype_to_tensor_dtype(integer_type.dtype)
    return helper.make_tensor_value_info(name, element, [batch or "batch", *view.shape]), nodes


def reals_of(
    value: Value, name: str, tensor: str, nodes: Sequence[onnx.NodeProto], unused: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """Return a list of the nodes of a host model that compute the model's floats ``tensor`` from the integers ``name``.

    There are none if the tensor holds integers. ``nodes``: nodes that can read the floats.
    """
    if isinstance(value.state, Ended):
        return _of_accumulators(value.state.reals, value.view, name, tensor, unused)
    if not isinstance(value.state, Reals):
        return []
    readers = [node for node in nodes if tensor in node.input]
    return _dequantised(value.state, name, tensor, value.view, readers, unused)


def _dequantised(
    state: Reals, name: str, tensor: str, view: View, readers: Sequence[onnx.NodeProto], unused: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """Return a list of nodes that convert the hardware's integers to floats, as ``state``'s DequantizeLinear does.

    If ONNX Runtime computes the nodes after the DequantizeLinear in floats, other nodes replace the DequantizeLinear:
    directly after a DequantizeLinear, ONNX Runtime would choose integer kernels.

    Parameters
    ----------
    name, tensor : str
        Name of the integers, and name of the floats.
    view : View
        Layout of both.
    readers : sequence of NodeProto
        Nodes that read the floats.
    unused : callable
        Source of names of tensors that are not in use.
    """
    if not state.in_floats or (len(readers) == 1 and state.is_padded_by(readers[0])):
        dequantise = copied(state.node)
        dequantise.ClearField("name")  # the original node can remain in the model, too
        dequantise.input[0], dequantise.output[0] = name, tensor
        return [dequantise]
    real, zero, scale, centred = (unused(f"{tensor}_{what}") for what in ("cast", "zero", "scale", "centred"))
    # ONNX Runtime would fuse a product with one number into a MatMul after it.
    factors = np.full(view.shape[-1:], state.scale, np.float32)
    return [
        helper.make_node("Constant", [], [zero], value=numpy_helper.from_array(np.array(state.zero, np.float32))),
        helper.make_node("Constant", [], [scale], value=numpy_helper.from_array(factors)),
        helper.make_node("Cast", [name], [real], to=onnx.TensorProto.FLOAT),
        helper.make_node("Sub", [real, zero], [centred]),
        helper.make_node("Mul", [centred, scale], [tensor]),
    ]


def _of_accumulators(
    reals: Affine, view: View, name: str, tensor: str, unused: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """Return a list of ONNX nodes that compute the floats ``tensor`` from a last layer's accumulators ``name``.

    Parameters
    ----------
    reals : Affine
        Gain and offset of each channel of the layer's map.
    view : View
        Layout of the tensor on the map.
    name, tensor : str
        Name of the accumulators, and name of the floats.
    unused : callable
        Source of names of tensors that are not in use.
    """
    cast, gain, product, offset = (unused(f"{tensor}_{what}") for what in ("cast", "gain", "product", "offset"))
    spread = [np.broadcast_to(values[None, :, None, None], (1, *view.sizes)) for values in (reals.gain, reals.offset)]
    factors, summands = (
        numpy_helper.from_array(np.ascontiguousarray(view.layout.to_frames(values)).astype(np.float32))
        for values in spread
    )
    adds = bool(reals.offset.any())
    nodes = [
        helper.make_node("Constant", [], [gain], value=factors),
        helper.make_node("Cast", [name], [cast], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [cast, gain], [product if adds else tensor]),
    ]
    if adds:
        nodes += [
            helper.make_node("Constant", [], [offset], value=summands),
            helper.make_node("Add", [product, offset], [tensor]),
        ]
    return nodes


class TailSearch:
    """Search for the tensor of an ONNX model after which the host runs all nodes up to one output."""

    def __init__(self, graph: GraphIndex, output: onnx.ValueInfoProto) -> None:
        self._graph, self._info, self._output = graph, output, output.name

    def tail_after(self, tensor: str, constants: Sequence[str] = (), *, integers: bool = True) -> Tail | None:
        """Return a `Tail`: the nodes between ``tensor`` and the output; ``None`` if the host can't or must not run all.

        The result is also ``None`` if the output does not depend on ``tensor``. The nodes that compute the tensors
        ``constants`` are included, even if the output does not need them. ``integers``: whether ``tensor`` is a feature
        map, not floats of a layer.
        """
        nodes, inputs = list[onnx.NodeProto](), {*self._graph.inputs} - {tensor}
        for node in self._graph.backwards([self._output, *constants], {tensor}):
            if not may_run(node) or not inputs.isdisjoint(node.input):
                return None
            nodes.append(node)
        tail = _tail_after(self._graph, {tensor}, self._graph.in_order(nodes), {tensor} if integers else ())
        return tail if tensor == self._output or (tail and tail.nodes) else None

    @cached_property
    def unused(self) -> UnusedNames:
        """`UnusedNames`: source of names that no tensor of the model has."""
        return UnusedNames(self._graph.model)

    def cut(self, source: onnx.ValueInfoProto, nodes: Iterable[onnx.NodeProto]) -> bytes:
        """Return, as bytes, the ONNX model of the host's ``nodes`` between the input ``source`` and the output."""
        return self._graph.part("tail", nodes, [source], [self._info]).SerializeToString()
