"""The onnx package's ``light`` models as whole graphs: published networks whose weights are left to be filled in.

The files say how large each constant is and hold one number for it. Here convolutions and matrix products get
He-normal weights and small normal biases, as in `hwgen.network.zoo.drawing`, and normalisations get statistics that
keep values of about one; each constant has a seed of its own.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from hwgen.network.onnx import shapes as onnx_shapes
from hwgen.network.onnx.file import attribute, title
from hwgen.network.zoo.drawing import SEED

#: That of the files has no scales by channel.
OPSET = 21

_WEIGHTED = {"Conv", "Gemm"}
#: The inputs of a normalisation behind its map.
_SCALE, _SHIFT, _MEAN, _VARIANCE = range(1, 5)
#: Deviation of biases, shifts and means, and of scales and variances from one.
_SPREAD = 0.1


def model(name: str) -> onnx.ModelProto:
    """The float model of a light model's name.

    Raises
    ------
    ModelError
        If there is none of that name.
    """
    found = onnx_shapes.light_model(name)
    found.ir_version = 10  # the first ones list every constant among the inputs
    found = version_converter.convert_version(found, OPSET)
    graph = found.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    blank = {node.output[0]: node for node in graph.node if node.op_type == "ConstantOfShape"}
    readers = _readers(graph)
    for number, (tensor, node) in enumerate(blank.items()):
        shape = tuple(int(size) for size in shapes[node.input[0]])
        random = np.random.default_rng([SEED, number])
        values = _values(random, *readers[tensor], shape).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, tensor))
    for node in blank.values():
        graph.node.remove(node)
    for node in graph.node:  # the same for two, and ONNX Runtime's quantiser knows no Sum
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    _drop_unread(graph)
    return found


def weight_counts(name: str) -> list[tuple[str, int]]:
    """Each convolution's and matrix product's name, and its weights.

    Raises
    ------
    ModelError
        If there is no light model of that name.
    """
    graph = onnx_shapes.light_model(name).graph
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = sizes[node.input[0]]
        elif node.input[0] in shapes:  # such as Reshape: as many values
            shapes[node.output[0]] = shapes[node.input[0]]
    return [(title(node), int(np.prod(shapes[node.input[1]]))) for node in graph.node if node.op_type in _WEIGHTED]


def _readers(graph: onnx.GraphProto) -> dict[str, tuple[onnx.NodeProto, int]]:
    """The node that takes each tensor, and at which of its inputs; behind Unsqueeze the next one."""
    found: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in reversed(graph.node):
        for place, tensor in enumerate(node.input):
            found[tensor] = found[node.output[0]] if node.op_type == "Unsqueeze" else (node, place)
    return found


def _values(random: np.random.Generator, node: onnx.NodeProto, place: int, shape: tuple[int, ...]) -> np.ndarray:
    """A constant, by what takes it."""
    if node.op_type in _WEIGHTED and place == 1:
        outputs = shape[0] if node.op_type == "Conv" or attribute(node, "transB", 0) else shape[1]
        return random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 * outputs / np.prod(shape)))
    if node.op_type == "Mul" or (node.op_type == "BatchNormalization" and place in (_SCALE, _VARIANCE)):
        return np.abs(1 + random.normal(0, _SPREAD, shape))
    return random.normal(0, _SPREAD, shape)


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Sizes of constants that are filled in are read by nothing any more."""
    read = {tensor for node in graph.node for tensor in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    names = {tensor.name for tensor in kept}
    inputs = [value for value in graph.input if value.name in read and value.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.input[:]
    graph.input.extend(inputs)
