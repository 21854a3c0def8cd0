"""Built-in networks by name, with seeded random weights, which are quantised and imported like any other model.

Chains come from `hwgen.network.zoo.tables`, branching networks from `hwgen.network.zoo.graphs`. A name can have a
prefix and a size: ``vgg16:7@64x64`` is the first seven layers (convolutions, pools and fully connected layers) on a 64
x 64 image. A layer has the same float weights under every prefix and size. Networks are quantised to 8 bits, or to 16
bits with ``,int16`` at the end: ``vgg16:7@64x64,int16``. The onnx package's ``light`` models are whole graphs
(`hwgen.network.zoo.light`), or one of their linear parts: ``light_resnet50:part2``. They get seeded weights as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from hwgen.network import shapes
from hwgen.network.graph import Network
from hwgen.network.onnx import model_shapes
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Op
from hwgen.network.quantise import quantise, run
from hwgen.network.zoo import dense, graphs, light, tables
from hwgen.network.zoo.drawing import SEED, Drawing
from hwgen.network.zoo.graphs import GRAPHS

_CALIBRATION_FRAMES = 4
_CALIBRATION_SIZE = 64
"""Maximum height and width, in pixels, of calibration images for built-in convolutional networks.

The size is larger where twice the minimum size of the network is more.
"""


@dataclass(frozen=True)
class _Layer:
    shape: Op
    dense: bool = False
    relu: bool = True


def names() -> list[tuple[str, str]]:
    """Return, as a list, (name, description) of each built-in network."""
    return shapes.names()


def load(name: str) -> Network:
    """Return the built-in `Network` ``NAME[:LAYERS][@HEIGHTxWIDTH][,int16]``, imported with random weights.

    The name can also be one of onnx's light models, or a linear part of one. The network ends with its last integer
    tensor.

    Raises
    ------
    ModelError
        If the name is unknown or malformed.
    """
    network = to_network(quantised(name), title(name), name)
    left_out = model_shapes.light(name).left_out if ":part" in name else ()
    assert network.host is not None
    ends = tuple(replace(end, behind=(), tail=None) for end in network.host.outputs)
    return replace(
        network, left_out=left_out, host=replace(network.host, outputs=ends, input_infos=(), output_infos=())
    )


def title(name: str) -> str:
    """Return a built-in network's name with its separators ``:``, ``@`` and ``,`` replaced by hyphens."""
    return re.sub(r"[:@,]", "-", name)


def in_integers(name: str) -> onnx.ModelProto:
    """Return a built-in network as a quantised ONNX model whose outputs are its last integer tensors.

    Raises
    ------
    ModelError
        If the name is unknown or malformed.
    """
    model = quantised(name)
    producers = {node.output[0]: node for node in model.graph.node}
    for value in model.graph.output:
        node = producers[value.name]
        if node.op_type == "DequantizeLinear":
            zero = next(tensor for tensor in model.graph.initializer if tensor.name == node.input[2])
            value.name = node.input[0]
            value.type.tensor_type.elem_type = zero.data_type
    return model


def weight_bits(name: str) -> list[tuple[str, int]]:
    """Return, as a list, (name, total weight bits) of each layer of a built-in network, without making its weights.

    The largest weight of a channel becomes the largest integer of its type, so that every layer needs all bits.

    Raises
    ------
    ModelError
        If the name is unknown or malformed.
    """
    _, bits = tables.precision(name)
    if tables.base(name) in GRAPHS:
        weights = (tensor for tensor in graphs.model(name)[0].graph.initializer if tensor.name.endswith("_weight"))
        return [(tensor.name.removesuffix("_weight"), bits * int(np.prod(tensor.dims))) for tensor in weights]
    if _is_light_whole(name):
        return [(layer, bits * count) for layer, count in light.weight_counts(tables.base(name))]
    layers, _ = _layers(name)
    return [(layer.shape.name, bits * layer.shape.weight_count) for layer in layers if layer.shape.weight_count]


def quantised(name: str) -> onnx.ModelProto:
    """Return a built-in network as an ONNX model with seeded weights, quantised with random calibration images.

    Raises
    ------
    ModelError
        If the name is unknown or malformed.
    """
    _, bits = tables.precision(name)
    if tables.base(name) in GRAPHS:
        model, shape = graphs.model(name)
        rank = len(model.graph.input[0].type.tensor_type.shape.dim) - 1
        return quantise(model, _images(shape[:rank]), name, bits)
    if _is_light_whole(name):
        model = light.model(tables.base(name))
        (source,) = model.graph.input
        return quantise(model, _images([dim.dim_value for dim in source.type.tensor_type.shape.dim[1:]]), name, bits)
    layers, least = _layers(name)
    first = layers[0].shape
    size = calibrated = first.height, first.width
    if sum(layer.shape.weight_count for layer in layers if layer.dense) > dense.MANY_WEIGHTS:
        return _quantised_in_slices(name, layers, bits)
    if not any(layer.dense for layer in layers):
        # The weights of a convolutional network do not depend on its size: calibrate small, then enlarge the input.
        limit = (max(_CALIBRATION_SIZE, 2 * extent) for extent in least)
        calibrated = tuple(map(min, size, limit))
    # No variable refers to the float model, so that its memory is free as soon as it is quantised.
    model = quantise(_model(name, layers, calibrated), _images((first.channels, *calibrated)), name, bits)
    if calibrated != size:
        _resize(model, size)
    return model


def _quantised_in_slices(name: str, layers: Sequence[_Layer], bits: int) -> onnx.ModelProto:
    """Return a chain of layers as a quantised ONNX model; large fully connected layers are quantised in slices."""
    first = layers[0].shape
    size, images = (first.height, first.width), _images((first.channels, first.height, first.width))
    large = [
        dense.DenseLayer(
            layer.shape.name, index, layer.shape.channels * layer.shape.taps, layer.shape.outputs, layer.relu
        )
        for index, layer in enumerate(layers)
        if layer.dense
    ]
    features = run(_model(name, layers[: -len(large)], size), images).reshape(len(images), -1)
    constants, ranges = dense.quantised_layers(large, features, name, bits)
    model = quantise(_model(name, layers, size, small=True), images, name, bits, ranges)
    dense.put(model, constants, large[-1].outputs)
    return model


def _is_light_whole(name: str) -> bool:
    return tables.precision(name)[0] in model_shapes.light_names()


def _images(shape: Sequence[int]) -> np.ndarray:
    """Return seeded random input frames, float32, of the given shape, for calibration."""
    return np.random.default_rng(SEED).uniform(-1, 1, (_CALIBRATION_FRAMES, *shape)).astype(np.float32)


def _layers(name: str) -> tuple[list[_Layer], tuple[int, int]]:
    """Return a pair: the layers of a built-in chain, and the minimum image size (height, width) for the whole chain."""
    base = tables.base(name)
    if base in tables.TABLES:
        specs, shape = tables.find(name)
        chain = shapes.chain(name, specs, shape)
        layers = [_Layer(layer, spec.dense, spec.relu) for layer, spec in zip(chain, specs, strict=True)]
        whole = shapes.load(base).layers
    elif base in model_shapes.light_names():
        whole = model_shapes.light(name).layers
        layers = [_Layer(layer) for layer in whole]
    else:
        raise tables.unknown(name, dict(names()))
    return layers, shapes.min_size([layer.window for layer in whole])


def _model(name: str, layers: Sequence[_Layer], size: tuple[int, ...], *, small: bool = False) -> onnx.ModelProto:
    """Return the float ONNX model of a built-in chain of layers for images of this size, with seeded random weights.

    Weights are He-normal, biases small and normal. With ``small``, fully connected layers have `dense.SMALL` output
    channels.
    """
    first = layers[0].shape
    net, here = Drawing(tables.base(name), first.input.shape), "image"
    for index, layer in enumerate(layers):
        shape = layer.shape
        if layer.dense:
            outputs = dense.SMALL if small else shape.outputs
            here = net.dense(shape.name, here, outputs, relu=layer.relu, seed=index, flatten="flatten")
        else:
            here = net.layer(shape, here, index, relu=layer.relu)
    model = net.model(here)
    if size != (first.height, first.width):
        _resize(model, size)
    return model


def _resize(model: onnx.ModelProto, size: tuple[int, ...]) -> None:
    """Change the input height and width of a convolutional ONNX model, and remove the shapes of its other tensors.

    They are inferred again.
    """
    for index, value in enumerate(size):
        model.graph.input[0].type.tensor_type.shape.dim[2 + index].dim_value = value
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.ClearField("dim_value")
    del model.graph.value_info[:]
