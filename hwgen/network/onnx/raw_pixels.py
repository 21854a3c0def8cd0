"""Rewrite of an ONNX model so that its float inputs become raw pixels of 8 bits.

The preprocessing of an image becomes operators at the head of the model, in integers from the start. The import then
makes a table of them together with the first quantiser. If a quantised value is the pixel itself, or the pixel minus
128, there is no table: the model's first tensor gets the pixels' scale and zero point.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen.errors import InputError
from hwgen.network.onnx.file import UnusedNames, attribute, copied, data_inputs, input_shape
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.pixels import Pixels

_QUANTISED = {TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127)}
"""Dictionary by ONNX element type: lowest and highest value of each 8-bit integer type that a quantiser can output."""


def with_raw_pixels(model: onnx.ModelProto, pixels: Pixels, where: str) -> onnx.ModelProto:
    """Return an ONNX model that reads raw pixels of 8 bits at each of its inputs.

    A model that converts bytes to floats itself keeps its own preprocessing, which needs no mean and deviation.

    Raises
    ------
    InputError
        If an input is not of float32, or its channels do not fit the pixels' means and deviations.
    """
    result = copied(model)
    unused = UnusedNames(result)
    for source in data_inputs(result):
        kind, graph = source.type.tensor_type.elem_type, GraphIndex(result)
        if kind == TensorProto.UINT8 and pixels == Pixels() and _is_only_cast(graph, source.name):
            _dequantise(result, source.name, unused)
            continue
        if kind != TensorProto.FLOAT:
            name = helper.tensor_dtype_to_np_dtype(kind).name
            raise InputError(f"{where}: input {source.name!r} is of {name}; only float32 can be read from raw pixels")
        shape = input_shape(source, where)
        pixels.check_channels(shape[0], f"{where}: input {source.name!r}", last=shape[-1])
        _check_bits(graph, source.name, where)
        source.type.tensor_type.elem_type = TensorProto.UINT8
        if not _remove_pixel_quantisers(graph, source.name, pixels):
            _preprocess(result, source.name, pixels, (1, -1, *[1] * (len(shape) - 1)), unused)
    return result


def _check_bits(graph: GraphIndex, name: str, where: str) -> None:
    """Refuse an input that the model quantises to more than 8 bits, which no table of raw pixels can output."""
    for node in graph.readers(name):
        if node.op_type == "QuantizeLinear" and node.input[0] == name:
            zero_point = _zero_point(graph, node, np.dtype(np.uint8))
            if zero_point is not None and zero_point.dtype.itemsize > 1:
                raise InputError(
                    f"{where}: input {name!r} is quantised to {zero_point.dtype}; for raw pixels it must have 8 "
                    "bits at most: leave out the options for raw pixels"
                )


def _is_only_cast(graph: GraphIndex, name: str) -> bool:
    """Return whether all nodes that read an input convert it to float32."""
    return all(node.op_type == "Cast" and attribute(node, "to", 0) == TensorProto.FLOAT for node in graph.readers(name))


def _dequantise(model: onnx.ModelProto, name: str, unused: UnusedNames) -> None:
    """Replace the Casts of a byte input to floats by DequantizeLinears with scale 1, which give equal floats."""
    one, zero = unused(f"{name}_one"), unused(f"{name}_zero")
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), one))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.uint8), zero))
    for node in model.graph.node:
        if name in node.input:
            node.CopyFrom(helper.make_node("DequantizeLinear", [name, one, zero], node.output, name=node.name))


def _remove_pixel_quantisers(graph: GraphIndex, name: str, pixels: Pixels) -> bool:
    """Remove an input's quantisers if their results are the pixels plus an offset; return whether they were removed.

    The DequantizeLinear nodes after them then read the pixels.
    """
    readers = graph.readers(name)
    made = [output for node in readers for output in node.output]
    later = [node for output in made for node in graph.readers(output)]
    is_output = not set(made).isdisjoint(graph.outputs)
    if is_output or any(node.op_type != "QuantizeLinear" for node in readers) or not readers:
        return False
    scales = [graph.constant(node.input[1]) for node in later if node.op_type == "DequantizeLinear"]
    if len(scales) < len(later) or any(scale is None or scale.size != 1 for scale in scales):
        return False
    offsets = {_offset(graph, node, pixels) for node in readers}
    zero_points = [_zero_point(graph, node, np.dtype(np.uint8)) for node in later]
    if len(offsets) > 1 or None in offsets or any(zero is None or zero.size != 1 for zero in zero_points):
        return False
    (offset,) = offsets
    assert offset is not None
    for node, zero in zip(later, zero_points, strict=True):
        assert zero is not None
        zero_point = int(zero.item()) - offset
        tensor = f"{node.output[0]}_pixel_zero_point"
        graph.model.graph.initializer.append(numpy_helper.from_array(np.array(zero_point, np.uint8), tensor))
        node.input[:] = [name, node.input[1], tensor]
    for node in readers:
        graph.model.graph.node.remove(node)
    return True


def _offset(graph: GraphIndex, node: onnx.NodeProto, pixels: Pixels) -> int | None:
    """Return the integer that a quantiser adds to each pixel; ``None`` if the quantiser does anything else."""
    scale, output = graph.constant(node.input[1]), int(attribute(node, "output_dtype", 0))
    if output and output not in _QUANTISED:
        return None
    if attribute(node, "precision", 0) not in (TensorProto.UNDEFINED, TensorProto.FLOAT):
        return None
    default = helper.tensor_dtype_to_np_dtype(output) if output else np.dtype(np.uint8)
    zero_point = _zero_point(graph, node, default)
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1 or scale.dtype != np.float32:
        return None
    kind = helper.np_dtype_to_tensor_dtype(zero_point.dtype)
    if kind not in _QUANTISED:
        return None
    low, high = _QUANTISED[kind]
    integers = np.clip(np.rint(pixels.floats() / scale.reshape(())) + int(zero_point), low, high).astype(np.int64)
    return low if np.array_equal(integers, np.broadcast_to(np.arange(256) + low, integers.shape)) else None


def _zero_point(graph: GraphIndex, node: onnx.NodeProto, default: np.dtype) -> np.ndarray | None:
    """Return, as an array, a quantiser's zero point, its input 2; ``None`` if it is not a known constant.

    A node without this input has the zero point 0 of the type ``default``.
    """
    if len(node.input) > 2 and node.input[2]:
        return graph.constant(node.input[2])
    return np.zeros((), default)


def _preprocess(model: onnx.ModelProto, name: str, pixels: Pixels, shape: tuple[int, ...], unused: UnusedNames) -> None:
    """Insert the operators of the pixels' preprocessing between a model's input and its readers.

    ``shape``: shape of constants with a value for each channel.
    """
    graph, nodes = model.graph, list[onnx.NodeProto]()

    def constant(label: str, value: np.ndarray) -> str:
        tensor = unused(f"{name}_{label}")
        graph.initializer.append(numpy_helper.from_array(value, tensor))
        return tensor

    def step(operator: str, *operands: str) -> str:
        tensor = unused(f"{name}_{operator.lower()}")
        nodes.append(helper.make_node(operator, operands, [tensor], name=tensor))
        return tensor

    one, zero = constant("one", np.array(1, np.float32)), constant("zero", np.array(0, np.uint8))
    tensor = step("DequantizeLinear", name, one, zero)
    if pixels.range == 1:
        tensor = step("Div", tensor, constant("white", np.array(255, np.float32)))
    for operator, label, values, neutral in (
        ("Sub", "mean", pixels.mean, 0.0),
        ("Div", "deviation", pixels.deviation, 1.0),
    ):
        if set(values) != {neutral}:
            tensor = step(operator, tensor, constant(label, np.array(values, np.float32).reshape(shape)))
    for node in graph.node:
        node.input[:] = [tensor if operand == name else operand for operand in node.input]
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *others])
