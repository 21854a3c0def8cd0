"""Inference of the types and shapes of a model's tensors, for a batch with a given number of frames.

ONNX's shape inference comes first. It sees ONNX Runtime's own operators as the ONNX operators whose outputs have the
same shapes. It stops at operators of other domains and at shapes that the model computes. After these, each node's
outputs are inferred from its inputs, and sizes of tensors are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.file import DOMAINS, attribute, copied, data_inputs, opset, subgraphs, takes
from hwgen.network.onnx.operator_traits import MOVES, POINTWISE, Effect, operands_of, traits_of, with_effect

Shape = tuple[int, ...]
"""Type of a tensor's shape: the sizes of its dimensions, 0 for a size that is not known."""

BATCH = int(np.iinfo(np.int64).min)
"""Placeholder for a batch of any number of frames, in constants that hold tensor sizes."""
BATCHES = (2, 3)
"""Pair of batch sizes, in frames, that replace a symbolic batch in turn, to find sizes that depend on it."""
_SMALL = 64
"""Maximum number of values of a tensor that shape inference evaluates, because it may hold sizes."""
_SIZES = with_effect(*POINTWISE, *MOVES, Effect.PARTS, Effect.SIZES, Effect.REDUCTION)
"""Set of names of ONNX operators that models use on tensor shapes, to compute sizes of tensors."""
_LIKE_FIRST = with_effect(
    *(Effect.FUNCTION, Effect.QUANTISER, Effect.SOFTMAX, Effect.NORMALISATION, Effect.TOKEN_NORMALISATION)
)
"""Set of names of ONNX operators whose first output has the shape of the first input."""


@dataclass(frozen=True)
class InferredTensor:
    """Element type and shape of an ONNX tensor, as far as they are known.

    Parameters
    ----------
    type : int
        Element type of ONNX; 0 if it is not known, or the value is not a tensor.
    shape : tuple of int, optional
        Sizes with the batch; ``None`` if not even the rank is known.
    """

    type: int = TensorProto.UNDEFINED
    shape: Shape | None = None


class Shapes:
    """Element types and shapes of all tensors of an ONNX model, whose batch can be symbolic."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        dims = [value.type.tensor_type.shape.dim[:1] for value in data_inputs(model)]
        self._is_symbolic = any(dim.dim_value < 1 for batch in dims for dim in batch)
        self._walks: dict[int, BatchShapes] = {}

    def of(self, name: str) -> InferredTensor:
        """Return an `InferredTensor`: element type and shape, as far as known; 0 for sizes set by a symbolic batch.

        A size is 0 where it depends on a symbolic batch.
        """
        first, second = (self.for_batch(count).tensor(name) for count in BATCHES)
        if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
            return InferredTensor(first.type)
        sizes = zip(first.shape, second.shape, strict=True)
        return InferredTensor(first.type, tuple(one if one == other else 0 for one, other in sizes))

    def sizes(self, name: str) -> np.ndarray | None:
        """Return an array of the values of a tensor that depend only on tensors' sizes; ``None`` if they are not known.

        A symbolic batch of any number of frames is `BATCH`. A multiple of it is not known.
        """
        first, second = (self.for_batch(count).values(name) for count in BATCHES)
        if first is None or second is None or first.shape != second.shape:
            return None
        if np.array_equal(first, second):
            return first
        is_batch = (first == BATCHES[0]) & (second == BATCHES[1])
        return np.where(is_batch, BATCH, first) if (is_batch | (first == second)).all() else None

    def for_batch(self, count: int) -> BatchShapes:
        """Return `BatchShapes`: types and shapes for a batch of ``count`` frames; a fixed batch stays as it is."""
        count = count if self._is_symbolic else 0
        if count not in self._walks:
            self._walks[count] = BatchShapes(self._model, count)
        return self._walks[count]


class BatchShapes:
    """Element types and shapes of the tensors of an ONNX model for one batch.

    Parameters
    ----------
    model : ModelProto
    count : int
        Number of frames of a symbolic batch.
    """

    def __init__(self, model: onnx.ModelProto, count: int) -> None:
        self._model, self._opset = model, opset(model)
        self._small: dict[str, TensorProto] = {}
        self._types = _inferred(model, count)
        self._is_walked = False

    def tensor(self, name: str) -> InferredTensor:
        """Return an `InferredTensor`: the element type and shape of the tensor ``name``, as far as they are known."""
        if not self._is_known(name):
            self._walk_once()
        type_ = self._types.get(name, onnx.TypeProto())
        if not type_.HasField("tensor_type"):
            return InferredTensor()
        tensor = type_.tensor_type
        sizes = tuple(max(dim.dim_value, 0) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        return InferredTensor(tensor.elem_type, sizes)

    def of(self, name: str) -> Shape | None:
        """Return the shape of the tensor ``name``; ``None`` if any of its sizes is not known."""
        shape = self.tensor(name).shape
        return shape if self._is_known(name) else None

    def values(self, name: str) -> np.ndarray | None:
        """Return the values of a small tensor that depend only on tensors' sizes; ``None`` if they are not known."""
        self._walk_once()
        return numpy_helper.to_array(self._small[name]) if name in self._small else None

    def _is_known(self, name: str) -> bool:
        """Return whether all sizes of a tensor are known (0 among them, for a tensor without values)."""
        tensor = self._types.get(name, onnx.TypeProto()).tensor_type
        return tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)

    def _walk_once(self) -> None:
        """Infer what ONNX's shape inference does not, unless it has been done."""
        if not self._is_walked:
            self._is_walked = True
            self._walk(self._model.graph)

    def _walk(self, graph: onnx.GraphProto) -> None:
        """Note the shapes of a graph's constants and of all outputs of its nodes, also in subgraphs."""
        for tensor in graph.initializer:
            self._types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            if prod(tensor.dims) <= _SMALL:
                self._small[tensor.name] = tensor
        for node in graph.node:
            for inner in subgraphs(node):
                self._walk(inner)
            for known in _for_onnx(node, self._opset):
                self._visit(known)

    def _visit(self, node: onnx.NodeProto) -> None:
        """Note the shapes of a node's outputs, and the values of outputs that hold tensor sizes."""
        unknown = [name for name in node.output if name and not self._is_known(name)]
        if unknown:
            found = self._outputs(node)
            self._types |= {name: type_ for name, type_ in found.items() if name in unknown}
        for name, values in zip(node.output, self._sizes(node), strict=False):
            if name and values.size <= _SMALL:
                self._small[name] = numpy_helper.from_array(values, name)

    def _sizes(self, node: onnx.NodeProto) -> Sequence[np.ndarray]:
        """Return a node's output arrays if they follow from known tensor sizes; otherwise an empty list."""
        if node.domain not in DOMAINS or not node.output:
            return []
        if node.op_type in ("Shape", "Size") and node.input:
            shape = self.of(node.input[0])
            if shape is None:
                return []
            start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
            return [np.array(shape[start:end] if node.op_type == "Shape" else prod(shape), np.int64)]
        is_of_sizes = node.op_type in _SIZES and all(name in self._small for name in takes(node))
        shape = self.of(node.output[0]) if is_of_sizes else None
        if shape is None or prod(shape) > _SMALL:
            return []
        feeds = {name: numpy_helper.to_array(self._small[name]) for name in takes(node)}
        try:
            return [*map(np.asarray, ReferenceEvaluator(node).run(None, feeds))]
        except Exception:  # operators raise many types of errors; the sizes are then unknown
            return []

    def _outputs(self, node: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        """Return the ONNX types of a node's outputs by name, as far as they follow from its inputs."""
        if node.op_type == "Compress" and node.domain in DOMAINS:
            return self._first_output(node, self._compressed(node))
        if node.domain not in DOMAINS or any(name not in self._types for name in takes(node)):
            return {}
        if node.domain:
            shapes = [self.of(name) if name else () for name in node.input]
            rule = _RUNTIME.get(node.op_type)
            known = [shape for shape in shapes if shape is not None]
            return self._first_output(node, rule(node, known) if rule and len(known) == len(shapes) else None)
        types = {name: self._types[name] for name in takes(node)}
        data = {name: self._small[name] for name in node.input if name in self._small}
        try:
            schema = defs.get_schema(node.op_type, self._opset, "")
            return shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[*self._model.opset_import]
            )
        except Exception:  # shape inference raises many types of errors; the shapes are then unknown
            return {}

    def _first_output(self, node: onnx.NodeProto, shape: Shape | None) -> Mapping[str, onnx.TypeProto]:
        """Return the type of a node's first output, with ``shape`` and the first input's element type, by name."""
        if shape is None:
            return {}
        return {node.output[0]: helper.make_tensor_type_proto(self.tensor(node.input[0]).type, shape)}

    def _compressed(self, node: onnx.NodeProto) -> Shape | None:
        """Return the output shape of a Compress along an axis; ``None`` unless its condition is a small constant."""
        shape, condition, axis = self.of(node.input[0]), self._small.get(node.input[1]), attribute(node, "axis", None)
        if shape is None or condition is None or axis is None or not -len(shape) <= axis < len(shape):
            return None
        sizes = list(shape)
        sizes[axis] = int(numpy_helper.to_array(condition).sum())
        return tuple(sizes)


def _inferred(model: onnx.ModelProto, count: int) -> dict[str, onnx.TypeProto]:
    """Return a dict of the types that ONNX's shape inference finds for a batch of ``count`` frames, by tensor name.

    It runs on a copy of the model without weights, because it needs only their sizes.
    """
    graph, skeleton = model.graph, onnx.ModelProto()
    skeleton.ir_version = max(model.ir_version, 4)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    skeleton.graph.name = "skeleton"
    skeleton.graph.node.extend(known for node in graph.node for known in _for_onnx(node, opset(model)))
    skeleton.graph.input.extend(data_inputs(model))
    for value in skeleton.graph.input:
        for dim in value.type.tensor_type.shape.dim[:1]:
            dim.dim_value = dim.dim_value if dim.dim_value > 0 else count
    skeleton.graph.output.extend(graph.output)
    for tensor in graph.initializer:
        if prod(tensor.dims) <= _SMALL:
            skeleton.graph.initializer.append(tensor)
        else:
            skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    ends = {value.name for value in (*skeleton.graph.input, *graph.output)}
    skeleton.graph.value_info.extend(value for value in graph.value_info if value.name not in ends)
    try:
        inferred = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except (shape_inference.InferenceError, ValueError, RuntimeError, TypeError):
        inferred = skeleton.graph
    types = {tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer}
    return types | {value.name: value.type for value in (*inferred.input, *inferred.value_info, *inferred.output)}


def _for_onnx(node: onnx.NodeProto, version: int) -> Iterator[onnx.NodeProto]:
    """Yield standard ONNX nodes, with equal output shapes, in place of an operator of ONNX Runtime's own domain.

    ``version``: version of ONNX's own operators.
    """
    traits, is_inferred = traits_of(node), _is_inferred(node.op_type, version)
    like = traits.like or (node.op_type if is_inferred else "Identity" if node.op_type in _LIKE_FIRST else "")
    if node.domain not in DOMAINS or node.op_type in _RUNTIME or (is_inferred and not node.domain) or not like:
        yield node
        return
    made = copied(node)
    made.domain = ""
    if like != node.op_type:
        known = defs.get_schema(like, version).attributes
        made = helper.make_node(like, [node.input[index] for index in operands_of(node)], node.output[:1])
        made.attribute.extend(entry for entry in node.attribute if entry.name in known)
    if not traits.channels_last and not attribute(node, "channels_last", 0):
        yield made
        return
    made.input[0], made.output[0] = (f"{name} channels first" for name in (node.input[0], node.output[0]))
    yield helper.make_node("Einsum", [node.input[0]], [made.input[0]], equation="n...c->nc...")
    yield made
    yield helper.make_node("Einsum", [made.output[0]], [node.output[0]], equation="nc...->n...c")


@cache
def _is_inferred(operator: str, version: int) -> bool:
    """Return whether ONNX's shape inference has a rule for an operator of ONNX's own domain in a given version."""
    return defs.has(operator, version) and defs.get_schema(operator, version).has_type_and_shape_inference_function


def with_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an ONNX model whose outputs without a declared shape have the inferred one, if it is known."""
    bare = [
        index
        for index, value in enumerate(model.graph.output)
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape")
    ]
    if not bare:
        return model
    result, inferred = copied(model), Shapes(model)
    for index in bare:
        value = result.graph.output[index]
        tensor = inferred.of(value.name)
        element_type = value.type.tensor_type.elem_type or tensor.type
        if tensor.shape is not None and element_type:
            sizes = [size or None for size in tensor.shape]
            value.CopyFrom(helper.make_tensor_value_info(value.name, element_type, sizes))
    return result


def cause_without_shape(model: onnx.ModelProto, name: str) -> onnx.NodeProto | None:
    """Return the first node before ``name`` whose known input shapes don't give its output shape; ``None`` if none."""
    inferred = Shapes(model).for_batch(1)
    wanted, causes = {name}, []
    for node in reversed(model.graph.node):
        unknown = [tensor for tensor in node.output if tensor in wanted and inferred.of(tensor) is None]
        if unknown:
            wanted.update(takes(node))
            if all(inferred.of(tensor) is not None for tensor in takes(node)):
                causes.append(node)
    return causes[-1] if causes else None


def _attention(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output shape of ONNX Runtime's Attention, whose projections are one matrix."""
    columns = inputs[1][-1]
    sizes = attribute(node, "qkv_hidden_sizes", ())
    return (*inputs[0][:2], sizes[2] if sizes else columns // 3)


def _multi_head_attention(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output shape of a MultiHeadAttention: the query's tokens, and the value's channels."""
    shapes: list[Shape] = [*inputs, (), (), ()]
    query, key, value = shapes[:3]
    if len(query) == 5:  # (batch, tokens, heads, 3, channels)
        return (*query[:2], query[2] * query[4])
    if len(key) == 5:  # (batch, tokens, heads, 2, channels)
        return query
    return (*query[:2], value[1] * value[3] if len(value) == 4 else value[-1] if value else query[-1])


def _fused_product(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output shape of a FusedMatMul; ``None`` if it transposes batches or batch sizes don't match."""
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
    """Return the output shape of a product with a matrix stored in blocks; ``None`` without its attribute ``N``."""
    columns = attribute(node, "N", 0)
    return (*inputs[0][:-1], columns) if columns and inputs[0] else None


def _recurrence(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the first output's shape of a DynamicQuantizeLSTM."""
    tokens, batch, _ = inputs[0]
    return tokens, inputs[2][0], batch, attribute(node, "hidden_size", 0) or inputs[2][1]


def _mean(node: onnx.NodeProto, inputs: Sequence[Shape]) -> Shape | None:
    """Return the output shape of ONNX Runtime's own mean operator, whose axes are an attribute."""
    rank, keeps = len(inputs[0]), attribute(node, "keepdims", 1)
    axes = {axis % rank for axis in attribute(node, "axes", range(rank))}
    return tuple(1 if axis in axes else size for axis, size in enumerate(inputs[0]) if keeps or axis not in axes)


_RUNTIME: dict[str, Callable[[onnx.NodeProto, Sequence[Shape]], Shape | None]] = {
    "Attention": _attention,
    "DynamicQuantizeLSTM": _recurrence,
    "FusedMatMul": _fused_product,
    "MatMulBnb4": _packed_product,
    "MatMulNBits": _packed_product,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _attention,
    "QLinearReduceMean": _mean,
    "TransposeMatMul": _fused_product,
}
"""Dictionary by ONNX Runtime operator, without ONNX counterpart, of functions for the first output's shape."""
