"""Shapes of an ONNX model's tensors for one batch, node by node, beyond operators that can't be built.

ONNX's shape inference stops at operators of other domains and at shapes that the model computes. Here each node's
outputs are inferred from its inputs alone, tensor sizes are evaluated, and ONNX Runtime's own operators have the shapes
of the ONNX operators that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.file import DOMAINS, attribute, data_inputs, opset, subgraphs, takes
from hwgen.network.onnx.operator_traits import MOVES, POINTWISE, TRAITS, Effect, traits_of, with_effect

Shape = tuple[int, ...]
"""Type of a tensor's shape: the sizes of all its dimensions."""

_SMALL = 64
"""Largest number of values of a tensor that is evaluated, because it can be a shape."""
_SIZES = with_effect(*POINTWISE, *MOVES, Effect.PARTS, Effect.SIZES, Effect.REDUCTION)
"""ONNX operators that models use to compute the sizes of tensors."""
_LIKE_FIRST = {name for name, traits in TRAITS.items() if traits.like == "Identity"} | with_effect(
    *(Effect.FUNCTION, Effect.QUANTISER, Effect.SOFTMAX, Effect.NORMALISATION, Effect.TOKEN_NORMALISATION)
)
"""Operators whose first output has the shape of the first input."""
_STAND_IN_OPSET = 13
"""Version of the ONNX operators that stand for others: axes are attributes, as ONNX Runtime's operators have them."""


class FrameShapes:
    """Shapes of the tensors of an ONNX model whose symbolic batch is one frame.

    A model with a fixed batch has this batch in its shapes.

    Parameters
    ----------
    model : ModelProto
    other : callable
        Function that returns a tensor's shape, as far as it is known otherwise, or ``None``. Unknown sizes are 0.
    """

    def __init__(self, model: onnx.ModelProto, other: Callable[[str], Shape | None]) -> None:
        self._opset, self._other = opset(model), other
        self._imports = [*model.opset_import]
        self._arrays: dict[str, TensorProto] = {}
        self._types: dict[str, onnx.TypeProto] = {}
        for value in data_inputs(model):
            dims = value.type.tensor_type.shape.dim
            sizes = [dim.dim_value if dim.dim_value > 0 else 1 - min(axis, 1) for axis, dim in enumerate(dims)]
            if value.type.tensor_type.HasField("shape") and all(sizes):
                self._note(value.name, value.type.tensor_type.elem_type, tuple(sizes))
        self._add(model.graph)

    def of(self, name: str) -> Shape | None:
        """Return the shape of the tensor ``name``; ``None`` if a size is not known."""
        if name not in self._types:
            return None
        return tuple(dim.dim_value for dim in self._types[name].tensor_type.shape.dim)

    def _add(self, graph: onnx.GraphProto) -> None:
        """Note the shapes of a graph's constants, and of all outputs of its nodes and of the graphs in them."""
        for tensor in graph.initializer:
            self._note(tensor.name, tensor.data_type, tuple(tensor.dims))
            if np.prod(tensor.dims) <= _SMALL:
                self._arrays[tensor.name] = tensor
        for node in graph.node:
            for inner in subgraphs(node):
                self._add(inner)
            self._visit(node)

    def _note(self, name: str, element_type: int, shape: Sequence[int]) -> None:
        self._types[name] = helper.make_tensor_type_proto(element_type or TensorProto.FLOAT, shape)

    def _visit(self, node: onnx.NodeProto) -> None:
        """Note the shapes of a node's outputs, and the values of an output that holds sizes."""
        self._evaluate(node)
        unknown = [name for name in node.output if name and name not in self._types]
        if not unknown:
            return
        for name, type_ in self._inferred(node).items():
            if name in unknown and _is_known(type_):
                self._types[name] = type_
        for name in unknown:
            shape = self._other(name)
            if name not in self._types and shape is not None:
                # ONNX's inference calls a symbolic batch 0.
                sizes = (shape[0] or 1, *shape[1:]) if shape else ()
                if all(sizes):
                    self._note(name, TensorProto.FLOAT, sizes)

    def _evaluate(self, node: onnx.NodeProto) -> None:
        """Note the output of a node that computes known sizes."""
        if node.domain not in DOMAINS or not node.output:
            return
        if node.op_type in ("Shape", "Size") and node.input:
            shape = self.of(node.input[0])
            if shape is None:
                return
            start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
            sizes = np.array(shape[start:end] if node.op_type == "Shape" else np.prod(shape), np.int64)
            self._keep(node.output[0], sizes)
        elif node.op_type in _SIZES and all(name in self._arrays for name in takes(node)):
            if node.op_type in ("ConstantOfShape", "Expand", "Range", "Tile"):
                output = self._inferred(node).get(node.output[0])
                if output is None or not _is_known(output) or _count(output) > _SMALL:
                    return
            feeds = {name: numpy_helper.to_array(self._arrays[name]) for name in takes(node)}
            try:
                results = ReferenceEvaluator(node).run(None, feeds)
            except Exception:  # operators raise many types of errors; the sizes are then unknown
                return
            for name, array in zip(node.output, results, strict=False):
                if name:
                    self._keep(name, np.asarray(array))

    def _keep(self, name: str, array: np.ndarray) -> None:
        """Note a tensor of known values."""
        tensor = numpy_helper.from_array(array, name)
        self._note(name, tensor.data_type, array.shape)
        if array.size <= _SMALL:
            self._arrays[name] = tensor

    def _inferred(self, node: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        """Return the types and shapes of a node's outputs, as far as they follow from its inputs."""
        if not node.output:
            return {}
        inputs = [self.of(name) if name else () for name in node.input]
        if node.op_type in _LIKE_FIRST and node.domain in DOMAINS and inputs and inputs[0] is not None:
            return {node.output[0]: self._output_type(node, inputs[0])}
        if node.op_type == "Compress" and node.domain in DOMAINS:
            return self._compressed(node)
        if node.domain in ("", "ai.onnx"):
            return self._by_onnx(node, self._opset)
        if node.domain != "com.microsoft":
            return {}
        if node.op_type in _RUNTIME and None not in inputs:
            shape = _RUNTIME[node.op_type](node, [shape or () for shape in inputs])
            return {} if shape is None else {node.output[0]: self._output_type(node, shape)}
        if node.op_type == "QLinearConcat":
            return self._by_stand_in(node, "Concat", range(2, len(node.input), 3))
        if like := traits_of(node).like:
            return self._by_stand_in(node, like, traits_of(node).operands)
        return self._by_onnx(node, self._opset) if defs.has(node.op_type) else {}

    def _output_type(self, node: onnx.NodeProto, shape: Shape) -> onnx.TypeProto:
        """Return the type of a node's first output, which has ``shape`` and, but for quantisers, its input's element.

        A quantiser's output has the element of the zero point.
        """
        element = self._types[node.input[0]].tensor_type.elem_type
        if node.op_type == "DequantizeLinear":
            element = TensorProto.FLOAT
        elif node.op_type == "QuantizeLinear":
            known = self._types.get(node.input[2]) if len(node.input) > 2 else None
            element = known.tensor_type.elem_type if known else attribute(node, "output_dtype", 0) or TensorProto.UINT8
        return helper.make_tensor_type_proto(element, shape)

    def _compressed(self, node: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        """Return the type of the output of a Compress along an axis, whose condition is a small constant."""
        shape, condition, axis = self.of(node.input[0]), self._arrays.get(node.input[1]), attribute(node, "axis", None)
        if shape is None or condition is None or axis is None or not -len(shape) <= axis < len(shape):
            return {}
        sizes = list(shape)
        sizes[axis] = int(numpy_helper.to_array(condition).sum())
        return {node.output[0]: self._output_type(node, tuple(sizes))}

    def _by_onnx(self, node: onnx.NodeProto, version: int) -> Mapping[str, onnx.TypeProto]:
        """Return what ONNX's shape inference of one node finds."""
        if any(name not in self._types for name in takes(node)):
            return {}
        types = {name: self._types[name] for name in takes(node)}
        data = {name: self._arrays[name] for name in node.input if name in self._arrays}
        plain = onnx.NodeProto()
        plain.CopyFrom(node)
        plain.domain = ""
        try:
            schema = defs.get_schema(node.op_type, version, "")
            return shape_inference.infer_node_outputs(schema, plain, types, data, opset_imports=self._imports)
        except Exception:  # shape inference raises many types of errors; the shapes are then unknown
            return {}

    def _by_stand_in(self, node: onnx.NodeProto, operator: str, inputs: Sequence[int]) -> Mapping[str, onnx.TypeProto]:
        """Return the shapes of one of ONNX Runtime's operators, from the ONNX operator that it stands for."""
        last = bool(attribute(node, "channels_last", 0)) or traits_of(node).channels_last
        shapes = [self.of(node.input[index]) for index in inputs if index < len(node.input)]
        if None in shapes or len(shapes) < len(inputs):
            return {}
        names = [f"input{index}" for index in range(len(shapes))]
        elements = [TensorProto.BOOL, *[TensorProto.FLOAT] * 2] if operator == "Where" else [TensorProto.FLOAT] * 99
        known = defs.get_schema(operator, _STAND_IN_OPSET, "").attributes
        stand_in = helper.make_node(operator, names, ["output"])
        stand_in.attribute.extend(entry for entry in node.attribute if entry.name in known)
        types = {}
        for index, (name, element, shape) in enumerate(zip(names, elements, shapes, strict=False)):
            assert shape is not None
            moved = (shape[0], shape[-1], *shape[1:-1]) if last and index == 0 else shape
            types[name] = helper.make_tensor_type_proto(element, moved)
        try:
            schema = defs.get_schema(operator, _STAND_IN_OPSET, "")
            output = shape_inference.infer_node_outputs(schema, stand_in, types)["output"]
        except Exception:  # shape inference raises many types of errors; the shapes are then unknown
            return {}
        if not _is_known(output):
            return {}
        shape = tuple(dim.dim_value for dim in output.tensor_type.shape.dim)
        return {node.output[0]: self._output_type(node, (shape[0], *shape[2:], shape[1]) if last else shape)}


def _is_known(type_: onnx.TypeProto) -> bool:
    """Return whether a type is a tensor's, and all sizes are known."""
    tensor = type_.tensor_type
    return (
        type_.HasField("tensor_type")
        and tensor.HasField("shape")
        and all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim)
    )


def _count(type_: onnx.TypeProto) -> int:
    """Return the number of values of a tensor of known shape."""
    return int(np.prod([dim.dim_value for dim in type_.tensor_type.shape.dim]))


def _attention(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output's shape of an Attention of ONNX Runtime, whose projections are one matrix."""
    columns = inputs[1][-1]
    sizes = attribute(node, "qkv_hidden_sizes", ())
    return (*inputs[0][:2], sizes[2] if sizes else columns // 3)


def _heads(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output's shape of a MultiHeadAttention: the query's tokens, and the value's channels."""
    shapes: list[Shape] = [*inputs, (), (), ()]
    query, key, value = shapes[:3]
    if len(query) == 5:  # (batch, tokens, heads, 3, channels)
        return (*query[:2], query[2] * query[4])
    if len(key) == 5:  # (batch, tokens, heads, 2, channels)
        return query
    return (*query[:2], value[1] * value[3] if len(value) == 4 else value[-1] if value else query[-1])


def _fused_product(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output's shape of a product of two matrices, either of which can be transposed."""
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0) or min(map(len, inputs[:2])) < 2:
        return None
    (*before, rows, summed), (*others, more, columns) = inputs[0], inputs[1]
    rows = summed if attribute(node, "transA", 0) else rows
    columns = more if attribute(node, "transB", 0) else columns
    try:
        batch = np.broadcast_shapes(tuple(before), tuple(others))
    except ValueError:
        return None
    return (*batch, rows, columns)


def _packed_product(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output's shape of a product with a matrix in blocks of few bits, whose size is an attribute."""
    columns = attribute(node, "N", 0)
    return (*inputs[0][:-1], columns) if columns and inputs[0] else None


def _recurrence(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the first output's shape of a DynamicQuantizeLSTM."""
    tokens, batch, _ = inputs[0]
    return tokens, inputs[2][0], batch, attribute(node, "hidden_size", 0) or inputs[2][1]


_RUNTIME: dict[str, Callable[[onnx.NodeProto, Sequence[Shape]], Shape | None]] = {
    "Attention": _attention,
    "DynamicQuantizeLSTM": _recurrence,
    "FusedMatMul": _fused_product,
    "MatMulBnb4": _packed_product,
    "MatMulNBits": _packed_product,
    "MultiHeadAttention": _heads,
    "QAttention": _attention,
    "TransposeMatMul": _fused_product,
}
"""Functions that return the first output's shape of ONNX Runtime's operators without an ONNX operator of this shape."""
