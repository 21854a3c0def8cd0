"""Built-in networks made of the onnx package's ``light`` test models: published graphs without weights.

They get seeded random weights. The files state the shape of each constant, and one number as its value. Here,
convolutions and matrix products get He-normal weights and small normal biases, as in `hwgen.network.zoo.drawing`.
Normalisations get statistics that keep values near one. Each constant has its own seed.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from hwgen.network.onnx import model_shapes
from hwgen.network.onnx.file import attribute, title
from hwgen.network.zoo.drawing import SEED

#: ONNX operator set version that light models are converted to. Their own has no scales per channel.
OPSET = 21

_WEIGHTED = {"Conv", "Gemm"}
#: Indices of a BatchNormalization's inputs after its map.
_SCALE, _SHIFT, _MEAN, _VARIANCE = range(1, 5)
#: Standard deviation of random biases, shifts and means (around 0), and of scales and variances (around 1).
_SPREAD = 0.1


def model(name: str) -> onnx.ModelProto:
    """Return the float ONNX model of one of the onnx package's ``light`` test models, with seeded random weights.

    Raises
    ------
    ModelError
        If there is no light model of that name.
    """
    filled = model_shapes.light_model(name)
    filled.ir_version = 10  # early versions list every constant among the inputs
    filled = version_converter.convert_version(filled, OPSET)
    graph = filled.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    blank = {node.output[0]: node for node in graph.node if node.op_type == "ConstantOfShape"}
    readers = _readers(graph)
    for index, (tensor, node) in enumerate(blank.items()):
        shape = tuple(int(size) for size in shapes[node.input[0]])
        random = np.random.default_rng([SEED, index])
        values = _values(random, *readers[tensor], shape).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, tensor))
    for node in blank.values():
        graph.node.remove(node)
    for node in graph.node:  # ONNX Runtime's quantiser does not support Sum; Add of two maps is equal
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    _drop_unread(graph)
    return filled


def weight_counts(name: str) -> list[tuple[str, int]]:
    """Return a list of (name, number of weights) of a ``light`` onnx test model's convolutions and products.

    Raises
    ------
    ModelError
        If there is no light model of that name.
    """
    graph = model_shapes.light_model(name).graph
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = sizes[node.input[0]]
        elif node.input[0] in shapes:  # for example Reshape, with equally many values
            shapes[node.output[0]] = shapes[node.input[0]]
    return [(title(node), int(np.prod(shapes[node.input[1]]))) for node in graph.node if node.op_type in _WEIGHTED]


def _readers(graph: onnx.GraphProto) -> dict[str, tuple[onnx.NodeProto, int]]:
    """Return a dict by tensor: its first reader (past any Unsqueeze), and the reader's input index, as a pair."""
    readers: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in reversed(graph.node):
        for input_index, tensor in enumerate(node.input):
            readers[tensor] = readers[node.output[0]] if node.op_type == "Unsqueeze" else (node, input_index)
    return readers


def _values(random: np.random.Generator, node: onnx.NodeProto, input_index: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of random values for an ONNX model's missing constant, suited to the node input that reads it."""
    if node.op_type in _WEIGHTED and input_index == 1:
        outputs = shape[0] if node.op_type == "Conv" or attribute(node, "transB", 0) else shape[1]
        return random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 * outputs / np.prod(shape)))
    if node.op_type == "Mul" or (node.op_type == "BatchNormalization" and input_index in (_SCALE, _VARIANCE)):
        return np.abs(1 + random.normal(0, _SPREAD, shape))
    return random.normal(0, _SPREAD, shape)


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove unread constants and inputs from an ONNX graph, for example the former shapes of filled constants."""
    read = {tensor for node in graph.node for tensor in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    names = {tensor.name for tensor in kept}
    inputs = [value for value in graph.input if value.name in read and value.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.input[:]
    graph.input.extend(inputs)
