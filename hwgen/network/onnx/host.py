"""Where the hardware's part of an ONNX model ends, and the host's begins.

The host takes operators without weights: element by element, Softmax, reshaping, picking and reducing. It takes them
only behind the last integer tensor, where nothing else follows: what the hardware could compute stays an error of the
model that leaves it in floats, rather than to move to the host unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.maps import IntegerType
from hwgen.network.onnx.constants import NARROW
from hwgen.network.onnx.file import DOMAINS, UnusedNames, attribute, copied
from hwgen.network.onnx.values import Reals

_MOVING = {"DequantizeLinear", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""They leave values as they are, but for the type."""
_BUILT = {"Add", "Clip", "Relu"}
"""The hardware computes them between integers; behind other operators of the host they are the host's."""
_JOINING = {"Concat", "QLinearConcat"}
"""They put several tensors into one."""
_SOFTMAX = {"LogSoftmax", "QLinearSoftmax", "Softmax"}
_OPERATORS = {
    *(_MOVING | _BUILT | _SOFTMAX),
    *("Abs", "Cast", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Log", "Mish", "Neg", "Not", "Reciprocal", "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt"),
    *("Tanh", "ThresholdedRelu"),
    *("And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul", "Or"),
    *("Pow", "Sub", "Sum", "Where"),
    *("Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Gather", "Pad", "QuantizeLinear", "Range"),
    *("Shape", "Slice", "SpaceToDepth", "Split", "Tile"),
    *("ArgMax", "ArgMin", "CumSum", "Hardmax", "LpNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("QLinearConcat", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
    *("ReduceSumSquare", "TopK"),
}


def may_run(node: onnx.NodeProto) -> bool:
    """Whether the host takes ``node`` at all, if it stands behind the last integer tensor."""
    return node.op_type in _OPERATORS and node.domain in DOMAINS


def may_join(model: onnx.ModelProto, sources: Collection[str], nodes: Sequence[onnx.NodeProto]) -> bool:
    """Whether the host may run ``nodes``, in the graph's order, which make the model's outputs of some tensors."""
    return all(map(may_run, nodes)) and _Graph(model).checked(sources, nodes) is not None


@dataclass(frozen=True)
class Tail:
    """The nodes between a tensor and the model's output, in the graph's order: ``constants`` don't depend on it."""

    constants: tuple[onnx.NodeProto, ...]
    nodes: tuple[onnx.NodeProto, ...]


class _Graph:
    """What the host may run of a model's graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, graph = model, model.graph
        self._given = {tensor.name for tensor in graph.initializer}
        self._producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}

    def checked(self, sources: Collection[str], nodes: Iterable[onnx.NodeProto]) -> Tail | None:
        """The ``nodes``, behind some tensors, if the host may run them.

        ``None`` if there is something that the file means for integers: an activation, or a QuantizeLinear other than
        behind Softmax or what only moves values in a way that the hardware doesn't know.
        """
        depends, untouched = {*sources}, {*sources}
        rearranged: set[str] = set()
        behind_softmax: set[str] = set()
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
            if node.op_type == "QuantizeLinear" and node.input[0] not in rearranged | behind_softmax:
                return None
            joins = len(sources) > 1 and node.op_type in _JOINING and rearranged.union(untouched).issuperset(variable)
            if node.op_type == "QLinearConcat" and not joins:
                return None
            moves = node.op_type in _MOVING
            if moves and node.input[0] in untouched:
                untouched |= outputs
            keeps = moves or node.op_type == "QuantizeLinear"
            if joins or self._rearranges(node) or (keeps and node.input[0] in rearranged):
                rearranged |= outputs
            if node.op_type in _SOFTMAX or behind_softmax.intersection(variable):
                behind_softmax |= outputs
        return Tail(tuple(constants), tuple(depending))

    def _rearranges(self, node: onnx.NodeProto) -> bool:
        """Whether ``node`` moves values otherwise than by flattening a frame."""
        if node.op_type == "Reshape":
            return not any(shape.shape == (2,) for name in node.input[1:2] for shape in self._constants(name))
        return node.op_type in ("Squeeze", "Transpose", "Unsqueeze")

    def _constants(self, name: str) -> list[np.ndarray]:
        """The constant ``name``, if it is one."""
        graph = self._model.graph
        tensors = [tensor for tensor in graph.initializer if tensor.name == name]
        index = self._producers.get(name)
        if index is not None and graph.node[index].op_type == "Constant":
            tensors += filter(None, [attribute(graph.node[index], "value", None)])
        return [numpy_helper.to_array(tensor) for tensor in tensors]


def in_bytes(kind: IntegerType, name: str, unused: Callable[[str], str]) -> tuple[str, list[onnx.NodeProto]]:
    """The input that ONNX Runtime takes for the integers ``name``, and the nodes that make them of it: what ONNX has in
    fewer than 8 bits comes in bytes."""
    if kind.bits >= 8 or kind not in NARROW.values():
        return name, []
    (element,) = (element for element, other in NARROW.items() if other == kind)
    bytes_ = unused(f"{name}_bytes")
    return bytes_, [helper.make_node("Cast", [bytes_], [name], to=element)]


def dequantised(
    state: Reals,
    name: str,
    tensor: str,
    shape: Sequence[int],
    nodes: Sequence[onnx.NodeProto],
    unused: Callable[[str], str],
) -> list[onnx.NodeProto]:
    """Nodes that make floats of integers, as the DequantizeLinear of ``state`` does.

    Where ONNX Runtime computes what follows that in floats, they are others: behind a DequantizeLinear, right in front
    of it now, it would choose kernels of integers.

    Parameters
    ----------
    name, tensor : str
        Of the integers and of the floats.
    shape : sequence of int
        Theirs, without the batch.
    nodes : sequence of NodeProto
        What may take the floats.
    unused : callable
        Makes names of tensors that are not in use.
    """
    readers = [node for node in nodes if tensor in node.input]
    if not state.in_floats or (len(readers) == 1 and state.is_padded_by(readers[0])):
        dequantise = copied(state.node)
        dequantise.ClearField("name")  # the node itself may be left, too
        dequantise.input[0], dequantise.output[0] = name, tensor
        return [dequantise]
    real, zero, scale, centred = (unused(f"{tensor}_{what}") for what in ("cast", "zero", "scale", "centred"))
    # A product with one number would become part of a MatMul behind it.
    factors = np.full(shape[-1:], state.scale, np.float32)
    return [
        helper.make_node("Constant", [], [zero], value=numpy_helper.from_array(np.array(state.zero, np.float32))),
        helper.make_node("Constant", [], [scale], value=numpy_helper.from_array(factors)),
        helper.make_node("Cast", [name], [real], to=onnx.TensorProto.FLOAT),
        helper.make_node("Sub", [real, zero], [centred]),
        helper.make_node("Mul", [centred, scale], [tensor]),
    ]


class Ends(_Graph):
    """Looks for the tensor of ``model`` behind which all up to an output is the host's."""

    def __init__(self, model: onnx.ModelProto, output: onnx.ValueInfoProto) -> None:
        super().__init__(model)
        self._info, self._output = output, output.name

    def behind(self, tensor: str, constants: Sequence[str] = ()) -> Tail | None:
        """What stands between ``tensor`` and the output; ``None`` if the host can't or mustn't run all of it.

        It is ``None``, too, if the output does not depend on ``tensor``. What gives ``constants``, which the output may
        not need, is taken along.
        """
        nodes = self._model.graph.node
        found: set[int] = set()
        waiting = [self._output, *constants]
        while waiting:
            name = waiting.pop()
            if name == tensor or name in self._given:
                continue
            index = self._producers.get(name)
            if index is None or not may_run(nodes[index]):
                return None  # the model's input by another way, or what the host doesn't run
            if index not in found:
                found.add(index)
                waiting += filter(None, nodes[index].input)
        tail = self.checked({tensor}, [nodes[index] for index in sorted(found)])
        return tail if tensor == self._output or (tail and tail.nodes) else None

    @cached_property
    def unused(self) -> UnusedNames:
        """Names that no tensor of the model has."""
        return UnusedNames(self._model)

    def cut(
        self,
        tail: Tail,
        name: str,
        kind: IntegerType,
        shape: tuple[int | str, ...],
        first: Sequence[onnx.NodeProto] = (),
    ) -> bytes:
        """The ONNX model of ``tail``, serialised; it takes the tensor ``name``, and has the nodes ``first`` in front.

        What ONNX has in fewer than 8 bits it takes in bytes.
        """
        graph = self._model.graph
        name, nodes = in_bytes(kind, name, self.unused)
        nodes += [*tail.constants, *first, *tail.nodes]
        used = {tensor for node in nodes for tensor in node.input}
        cut = helper.make_graph(
            nodes,
            "tail",
            [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind.dtype), shape)],
            [self._info],
            [tensor for tensor in graph.initializer if tensor.name in used],
        )
        # From version 4 on initialisers need not be inputs.
        version = max(self._model.ir_version, 4)
        return helper.make_model(cut, opset_imports=self._model.opset_import, ir_version=version).SerializeToString()
