"""Built-in networks: known shapes, seeded weights, quantised and imported like any other model.

A name may carry a prefix and a size: ``vgg16:7@64x64`` is the first seven layers (convolutions, pools and fully
connected ones count) on a 64 x 64 image. A layer has the same float weights under every prefix and size.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen.errors import ModelError
from hwgen.network.graph import Network
from hwgen.network.onnx_import import to_network
from hwgen.network.quantise import quantise

_SEED = 20180600
_CALIBRATION_FRAMES = 4
_CALIBRATION_SIZE = 64
"""Convolutional networks are calibrated on images of at most this height and width."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    name: str
    kind: str  # "conv", "pool" or "dense"
    outputs: int = 0
    kernel: int = 2
    padding: int = 0
    relu: bool = True


@dataclass(frozen=True, kw_only=True)
class _Builtin:
    description: str
    input: tuple[int, int, int]
    layers: tuple[_Layer, ...]


def _vgg16() -> Iterator[_Layer]:
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for index in range(1, count + 1):
            yield _Layer(name=f"conv{block}_{index}", kind="conv", outputs=outputs, kernel=3, padding=1)
        yield _Layer(name=f"pool{block}", kind="pool")


_NETWORKS = {
    "decoilfnet-example": _Builtin(
        description="DeCoILFNet's test example: 5x5x3 input, two 3x3 convolutions of 3 filters, 2x2 pool",
        input=(3, 5, 5),
        layers=(
            _Layer(name="conv1", kind="conv", outputs=3, kernel=3, padding=1),
            _Layer(name="conv2", kind="conv", outputs=3, kernel=3, padding=1),
            _Layer(name="pool1", kind="pool"),
        ),
    ),
    "lenet5": _Builtin(
        description="LeNet-5 with max pools and Relu: 32x32x1 input, 2 convolutions, 2 pools, 3 dense layers",
        input=(1, 32, 32),
        layers=(
            _Layer(name="conv1", kind="conv", outputs=6, kernel=5),
            _Layer(name="pool1", kind="pool"),
            _Layer(name="conv2", kind="conv", outputs=16, kernel=5),
            _Layer(name="pool2", kind="pool"),
            _Layer(name="fc1", kind="dense", outputs=120),
            _Layer(name="fc2", kind="dense", outputs=84),
            _Layer(name="fc3", kind="dense", outputs=10, relu=False),
        ),
    ),
    "vgg16": _Builtin(
        description="VGG-16's 13 convolutions and 5 pools: 224x224x3 input",
        input=(3, 224, 224),
        layers=tuple(_vgg16()),
    ),
}


def names() -> list[tuple[str, str]]:
    """Name and description of each built-in network."""
    return [(name, builtin.description) for name, builtin in _NETWORKS.items()]


def load(name: str) -> Network:
    """The built-in network ``NAME[:LAYERS][@HEIGHTxWIDTH]``; raises ModelError for a name that makes no sense."""
    base, layers, (channels, height, width) = _parse(name)
    convolutional = all(layer.kind != "dense" for layer in layers)
    # Sizes of a convolutional network don't touch its weights: calibrate small, then enlarge the input.
    calibrated = tuple(min(size, _CALIBRATION_SIZE) if convolutional else size for size in (height, width))
    model = _model(base, name, layers, (channels, height, width))  # so that a size too small is refused as asked for
    if calibrated != (height, width):
        _resize(model, calibrated)
    images = np.random.default_rng(_SEED).uniform(-1, 1, (_CALIBRATION_FRAMES, channels, *calibrated))
    model = quantise(model, images.astype(np.float32), name)
    if calibrated != (height, width):
        _resize(model, (height, width))
    return to_network(model, re.sub(r"[:@]", "-", name), name)


def _parse(name: str) -> tuple[str, tuple[_Layer, ...], tuple[int, int, int]]:
    base, *_ = re.split("[:@]", name, maxsplit=1)
    if base not in _NETWORKS:
        near = difflib.get_close_matches(base, _NETWORKS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"built in are {', '.join(_NETWORKS)}"
        raise ModelError(f"unknown model {name!r}: neither an .onnx file nor a built-in network; {hint}")
    match = re.fullmatch(r"(?::(\d{1,9}))?(?:@(\d{1,9})x(\d{1,9}))?", name[len(base) :])
    if not match:
        raise ModelError(f"{name}: a built-in name must be NAME[:LAYERS][@HEIGHTxWIDTH], as in {base}:2@64x64")
    builtin = _NETWORKS[base]
    count, height, width = (None if group is None else int(group) for group in match.groups())
    if count is not None and not 1 <= count <= len(builtin.layers):
        raise ModelError(f"{name}: {base} has {len(builtin.layers)} layers; a prefix must be 1 to that, not {count}")
    size = builtin.input[1:] if height is None or width is None else (height, width)
    return base, tuple(islice(builtin.layers, count)), (builtin.input[0], *size)


def _model(base: str, name: str, layers: tuple[_Layer, ...], shape: tuple[int, int, int]) -> onnx.ModelProto:
    """The float model; He-normal weights, small normal biases."""
    nodes: list[onnx.NodeProto] = []
    parameters: list[onnx.TensorProto] = []
    tensor = "image"
    channels, height, width = shape
    flat = False

    def add(operator: str, node: str, *inputs: str, **attributes: Any) -> None:
        nonlocal tensor
        nodes.append(helper.make_node(operator, [tensor, *inputs], [f"{node}_out"], name=node, **attributes))
        tensor = f"{node}_out"

    def parameter(label: str, values: np.ndarray) -> str:
        parameters.append(numpy_helper.from_array(values.astype(np.float32), label))
        return label

    for index, layer in enumerate(layers):
        random = np.random.default_rng([_SEED, index])
        if layer.kind == "dense":
            if not flat:
                add("Flatten", "flatten")
                channels, height, width, flat = channels * height * width, 1, 1, True
            weights = random.normal(0, np.sqrt(2 / channels), (layer.outputs, channels))
        else:
            height, width = (_shrunk(layer, size) for size in (height, width))
            if min(height, width) < 1:
                raise ModelError(f"{name}: {layer.name} gets an image too small for its {layer.kernel}x{layer.kernel}")
            weights = np.empty(0)
            if layer.kind == "pool":
                add("MaxPool", layer.name, kernel_shape=[layer.kernel] * 2, strides=[layer.kernel] * 2)
                continue
            size = (layer.outputs, channels, layer.kernel, layer.kernel)
            weights = random.normal(0, np.sqrt(2 / (channels * layer.kernel**2)), size)
        operands = (
            parameter(f"{layer.name}_weight", weights),
            parameter(f"{layer.name}_bias", random.normal(0, 0.1, layer.outputs)),
        )
        if layer.kind == "dense":
            add("Gemm", layer.name, *operands, transB=1)
        else:
            add("Conv", layer.name, *operands, kernel_shape=[layer.kernel] * 2, pads=[layer.padding] * 4)
        channels = layer.outputs
        if layer.relu:
            add("Relu", f"{layer.name}_relu")
    result: list[str | int] = ["batch", channels] if flat else ["batch", channels, height, width]
    graph = helper.make_graph(
        nodes,
        base,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, result)],
        parameters,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="hwgen")
    model.ir_version = 10
    return model


def _shrunk(layer: _Layer, size: int) -> int:
    stride = layer.kernel if layer.kind == "pool" else 1
    return (size + 2 * layer.padding - layer.kernel) // stride + 1


def _resize(model: onnx.ModelProto, size: tuple[int, ...]) -> None:
    """Give a convolutional model's input another height and width; other shapes are inferred again."""
    for index, value in enumerate(size):
        model.graph.input[0].type.tensor_type.shape.dim[2 + index].dim_value = value
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.ClearField("dim_value")
    del model.graph.value_info[:]
