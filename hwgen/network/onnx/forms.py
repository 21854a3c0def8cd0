"""Conversion of unusual ONNX files to the usual form: float16, open sizes, weights in blocks, QONNX channels last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen.errors import InputError
from hwgen.network.onnx.file import attribute, copied, data_inputs, shape_text, subgraphs, with_inner
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.rewrite import Made, Rewriter, rule

_CHANNELS_LAST = "qonnx.custom_op.channels_last"
"""Domain of QONNX's Conv, MaxPool and BatchNormalization for maps (N, H, W, C)."""


def usual(model: onnx.ModelProto, where: str, sizes: Sequence[int] | None) -> onnx.ModelProto:
    """Return a model in the usual form: float32, known sizes, one weight scale per output channel, channels first.

    Parameters
    ----------
    where : str
        Path that starts error messages.
    sizes : sequence of int, optional
        Sizes for the symbolic sizes of the inputs after the batch.

    Raises
    ------
    InputError
        If the number of symbolic sizes differs from the length of ``sizes``.
    """
    if sizes is not None:
        model = _with_sizes(model, where, sizes)
    if has_float16(model):
        model = _in_float32(model)
    model = Rewriter(GraphIndex(model), where).apply(RULES).model
    kept = [entry for entry in model.opset_import if entry.domain != _CHANNELS_LAST]
    if len(kept) < len(model.opset_import):
        del model.opset_import[:]
        model.opset_import.extend(kept)
    return model


def has_float16(model: onnx.ModelProto) -> bool:
    """Return whether a model has inputs, constants or conversions of the type float16."""
    graph = model.graph
    inputs = (value.type.tensor_type.elem_type for value in graph.input)
    types = (*inputs, *(tensor.data_type for tensor in graph.initializer), *map(_target, graph.node))
    return TensorProto.FLOAT16 in types or any(
        entry.t.data_type == TensorProto.FLOAT16 for node in graph.node for entry in node.attribute
    )


def _target(node: onnx.NodeProto) -> int:
    """Return the ONNX element type that a Cast converts to; 0 for another operator."""
    return attribute(node, "to", 0) if node.op_type == "Cast" else 0


def _in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with every float16 tensor and constant converted to float32."""
    result, shapes = copied(model), Shapes(model)
    reals = (TensorProto.FLOAT, TensorProto.FLOAT16)
    inner = (graph for node in with_inner(result.graph.node) for graph in subgraphs(node))
    for graph in (result.graph, *inner):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        tensors = [*graph.initializer, *(entry.t for node in graph.node for entry in node.attribute)]
        for tensor in tensors:
            if tensor.data_type == TensorProto.FLOAT16:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
        for node in graph.node:
            if _target(node) in reals and shapes.of(node.input[0]).type in reals:
                node.CopyFrom(helper.make_node("Identity", node.input, node.output, name=node.name))
            for entry in node.attribute:
                if entry.name in ("to", "dtype", "output_dtype") and entry.i == TensorProto.FLOAT16:
                    entry.i = TensorProto.FLOAT
    return result


def _with_sizes(model: onnx.ModelProto, where: str, sizes: Sequence[int]) -> onnx.ModelProto:
    """Return a model whose inputs have ``sizes`` for their symbolic sizes after the batch, one per symbol."""
    result = copied(model)
    dims = [dim for source in data_inputs(result) for dim in source.type.tensor_type.shape.dim[1:]]
    is_open = [dim for dim in dims if dim.dim_value < 1]
    names = [*dict.fromkeys(dim.dim_param or index for index, dim in enumerate(is_open))]
    if len(names) != len(sizes):
        shown = "; ".join(
            f"{source.name}: {shape_text(source.type.tensor_type.shape.dim)}" for source in data_inputs(model)
        )
        raise InputError(f"{where}: --shape must have {len(names)} sizes, not {len(sizes)}, for the inputs ({shown})")
    known = dict(zip(names, sizes, strict=True))
    for index, dim in enumerate(is_open):
        dim.dim_value = known[dim.dim_param or index]
    del result.graph.value_info[:]
    for output in result.graph.output:
        for dim in output.type.tensor_type.shape.dim[1:]:
            if dim.dim_value < 1:
                dim.Clear()
    return result


@rule("channels first", "put QONNX operators on channels last between Transposes", (), {_CHANNELS_LAST})
def _with_channels_first(at: Rewriter, node: onnx.NodeProto) -> Made:
    graph = at.graph.model.graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.value_info, *graph.input)}
    rank = len(attribute(node, "kernel_shape", ())) + 2
    rank = rank if rank > 2 else ranks.get(node.input[0], 4)
    first, nodes, made = [0, rank - 1, *range(1, rank - 1)], list[onnx.NodeProto](), copied(node)
    made.domain = ""
    for index in range(2 if node.op_type == "Conv" else 1):
        made.input[index] = at.unused(f"{node.input[index]}_channels_first")
        nodes.append(helper.make_node("Transpose", [node.input[index]], [made.input[index]], perm=first))
    made.output[0] = at.unused(f"{node.output[0]}_channels_first")
    last = helper.make_node("Transpose", [made.output[0]], [node.output[0]], perm=[0, *range(2, rank), 1])
    return [*nodes, made, last]


@rule("whole channels", "give weights in blocks one scale per output channel, if that is exact", {"DequantizeLinear"})
def _with_whole_channels(at: Rewriter, node: onnx.NodeProto) -> Made:
    readers, block = at.graph.readers(node.output[0]), attribute(node, "block_size", 0)
    if not block or len(readers) != 1:
        return None
    values = [value for name in node.input if (value := at.graph.constant(name)) is not None]
    if len(values) < len(node.input):
        return None
    axis = _channel_axis(readers[0])
    whole = _without_blocks(values, attribute(node, "axis", 1), block, axis)
    if whole is None:
        return None
    names = [
        at.keep(f"{node.output[0]}_{what}", array) for what, array in zip(("integers", "scale"), whole, strict=True)
    ]
    return [helper.make_node("DequantizeLinear", names, node.output, name=node.name, axis=axis)]


RULES = (_with_channels_first, _with_whole_channels)
"""Tuple of rewrite rules that turn unusual forms of an operator into the usual one, in the order of application."""


def _channel_axis(node: onnx.NodeProto) -> int:
    """Return the axis of a layer's weight array that indexes output channels."""
    return 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1


def _without_blocks(
    values: Sequence[np.ndarray], block_axis: int, block: int, axis: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a pair: blocked weights as (int8 weights, scales per output channel), or ``None`` if that is inexact.

    ``values``: integers, scale and perhaps zero point of a DequantizeLinear.
    """
    integers = values[0].astype(np.int64)
    block_axis %= integers.ndim
    scales, *zeros = (
        np.repeat(each, block, block_axis).take(range(integers.shape[block_axis]), block_axis) for each in values[1:]
    )
    others = tuple(other for other in range(integers.ndim) if other != axis)
    least = scales.min(axis=others, keepdims=True)
    factors = np.rint(scales / least)
    whole = (integers - (zeros[0].astype(np.int64) if zeros else 0)) * factors.astype(np.int64)
    if not (factors * least == scales).all() or np.abs(whole).max() > np.iinfo(np.int8).max:
        return None
    return whole.astype(np.int8), least.reshape(-1).astype(np.float32)
