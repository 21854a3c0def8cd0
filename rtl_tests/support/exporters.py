"""Small float models in the manner of published ones, as exporters write them, and the dialects they are quantised in.

`MODELS` has a function for each architecture. They are made of its blocks, with seeded weights and few channels.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import Frames, as_model
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Writer:
    """A float model in the making: each method adds a node and gives the name of its output.

    ``channels`` holds the channels of each tensor along the axis that layers count them on.
    """

    def __init__(self, name: str, shape: Sequence[int], *, opset: int = 17):
        self.name, self.shape, self.opset = name, tuple(shape), opset
        self.random = np.random.default_rng([ord(letter) for letter in name])
        self.nodes_made: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.channels = {"x": shape[1]}

    def nodes(self, operator: str, *inputs: str, outputs: int, channels: int | None = None, **attributes) -> list[str]:
        names = [f"{operator.lower()}{len(self.nodes_made)}_{place}" for place in range(outputs)]
        label = f"/{self.name}/{operator}_{len(self.nodes_made)}"
        self.nodes_made.append(helper.make_node(operator, list(inputs), names, name=label, **attributes))
        for each in names:
            self.channels[each] = channels if channels is not None else self.channels.get(inputs[0], 0)
        return names

    def node(self, operator: str, *inputs: str, channels: int | None = None, **attributes) -> str:
        return self.nodes(operator, *inputs, outputs=1, channels=channels, **attributes)[0]

    def constant(self, values) -> str:
        array = np.asarray(values)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.constants.append(numpy_helper.from_array(array, f"constant{len(self.constants)}"))
        return self.constants[-1].name

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.random.normal(size=shape) * scale).astype(np.float32)

    # Layers.

    def conv(self, x: str, channels: int, kernel=3, stride=1, *, pad=None, group=1, dilation=1, bias=True, rank=2):
        kernel = (kernel,) * rank if isinstance(kernel, int) else kernel
        stride = (stride,) * rank if isinstance(stride, int) else stride
        pad = [k // 2 * dilation for k in kernel] * 2 if pad is None else pad
        taps = self.channels[x] // group * int(np.prod(kernel))
        weights = self.constant(self.normal(channels, self.channels[x] // group, *kernel, scale=(2 / taps) ** 0.5))
        biases = [self.constant(self.normal(channels, scale=0.1))] if bias else []
        attributes = {"dilations": [dilation] * rank} if dilation > 1 else {}
        return self.node(
            "Conv", x, weights, *biases, channels=channels, kernel_shape=kernel, strides=stride, pads=pad, group=group,
            **attributes,
        )  # fmt: skip

    def depthwise(self, x: str, kernel: int = 3, stride: int = 1, **others) -> str:
        return self.conv(x, self.channels[x], kernel, stride, group=self.channels[x], **others)

    def transposed(self, x: str, channels: int, kernel: int = 2, stride: int = 2, pad: int = 0, group: int = 1) -> str:
        taps = self.channels[x] * (kernel // stride) ** 2
        shape = self.channels[x], channels // group, kernel, kernel
        weights = self.constant(self.normal(*shape, scale=(2 / taps) ** 0.5))
        bias = self.constant(self.normal(channels, scale=0.1))
        return self.node(
            "ConvTranspose", x, weights, bias, channels=channels, kernel_shape=[kernel] * 2, strides=[stride] * 2,
            pads=[pad] * 4, group=group,
        )  # fmt: skip

    def norm(self, x: str) -> str:
        count = self.channels[x]
        mean, scale = self.normal(count, scale=0.1), 1 + self.normal(count, scale=0.2)
        statistics = scale, self.normal(count, scale=0.1), mean, np.abs(1 + self.normal(count, scale=0.2))
        return self.node("BatchNormalization", x, *map(self.constant, statistics), epsilon=1e-5)

    def dense(self, x: str, inputs: int, outputs: int, *, transposed: bool = True) -> str:
        weights = self.normal(outputs, inputs, scale=(2 / inputs) ** 0.5)
        bias = self.constant(self.normal(outputs, scale=0.1))
        if transposed:
            return self.node("Gemm", x, self.constant(weights), bias, channels=outputs, transB=1)
        return self.node("Add", self.node("MatMul", x, self.constant(weights.T), channels=outputs), bias)

    def pool(self, x: str, kernel=2, stride=None, pad: int = 0, kind: str = "MaxPool") -> str:
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        stride = kernel if stride is None else (stride,) * len(kernel)
        return self.node(kind, x, kernel_shape=kernel, strides=stride, pads=[pad] * 2 * len(kernel))

    def resize(self, x: str, factor: float = 2.0) -> str:
        attributes: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self.node("Resize", x, "", self.constant(np.array([1, 1, factor, factor], np.float32)), **attributes)

    def concat(self, *parts: str, axis: int = 1) -> str:
        channels = sum(self.channels[part] for part in parts)
        return self.node("Concat", *parts, channels=channels, axis=axis)

    def reshape(self, x: str, *shape: int, channels: int | None = None) -> str:
        return self.node("Reshape", x, self.constant(np.array(shape)), channels=channels)

    def split(self, x: str, *sizes: int) -> list[str]:
        parts = self.nodes("Split", x, self.constant(np.array(sizes)), outputs=len(sizes), axis=1)
        self.channels.update(zip(parts, sizes, strict=True))
        return parts

    # Activations and blocks.

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def leaky(self, x: str) -> str:
        return self.node("LeakyRelu", x, alpha=0.1)

    def prelu(self, x: str) -> str:
        slopes = np.abs(self.normal(self.channels[x], 1, 1, scale=0.25))
        return self.node("PRelu", x, self.constant(slopes))

    def silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def hard_swish(self, x: str) -> str:
        return self.node("HardSwish", x)

    def mish(self, x: str) -> str:
        return self.node("Mul", x, self.node("Tanh", self.node("Softplus", x)))

    def gelu(self, x: str) -> str:
        """Add a GELU in the nodes that PyTorch exports for it, and return its tensor."""
        error = self.node("Erf", self.node("Div", x, self.constant(np.float32(2**0.5))))
        doubled = self.node("Mul", x, self.node("Add", error, self.constant(np.float32(1))))
        return self.node("Mul", doubled, self.constant(np.float32(0.5)))

    def block(self, x: str, channels: int, kernel=3, stride=1, act: str = "relu", *, norm: bool = False, **others):
        x = self.conv(x, channels, kernel, stride, bias=not norm, **others)
        x = self.norm(x) if norm else x
        return getattr(self, act)(x) if act else x

    def squeeze(self, x: str, gate: str, act: str = "relu") -> str:
        """Add a squeeze-and-excitation block, and return its tensor."""
        channels = self.channels[x]
        inner = getattr(self, act)(self.conv(self.node("GlobalAveragePool", x), max(channels // 4, 1), 1))
        return self.node("Mul", x, self.node(gate, self.conv(inner, channels, 1)))

    def shuffle(self, x: str, groups: int, height: int, width: int) -> str:
        channels = self.channels[x]
        x = self.reshape(x, -1, groups, channels // groups, height, width)
        return self.reshape(
            self.node("Transpose", x, perm=[0, 2, 1, 3, 4]), -1, channels, height, width, channels=channels
        )

    def classified(self, x: str, classes: int = 5) -> onnx.ModelProto:
        """Return the model with the usual end of a classifier: global average pool, Flatten, dense layer."""
        pooled = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.model(self.dense(pooled, self.channels[x], classes))

    def model(self, *outputs: str) -> onnx.ModelProto:
        model = as_model(
            self.nodes_made,
            {"x": (TensorProto.FLOAT, ("N", *self.shape[1:]))},
            dict.fromkeys(outputs, (TensorProto.FLOAT, None)),
            self.constants,
            opset=self.opset,
        )
        return onnx.shape_inference.infer_shapes(model)

    def frames(self, count: int) -> np.ndarray:
        return self.normal(count, *self.shape[1:])


MODELS: dict[str, Callable[[Writer], onnx.ModelProto]] = {}
SHAPES: dict[str, tuple[int, ...]] = {}


def published(*shape: int) -> Callable:
    """Return a decorator that registers a model with an input of this shape, without the batch."""

    def register(make: Callable[[Writer], onnx.ModelProto]):
        MODELS[make.__name__] = make
        SHAPES[make.__name__] = (1, *shape)
        return make

    return register


def float_model(name: str, *, opset: int = 17) -> tuple[onnx.ModelProto, Writer]:
    writer = Writer(name, SHAPES[name], opset=opset)
    return MODELS[name](writer), writer


# Classifiers.


@published(1, 20, 20)
def lenet5_classic(w):
    x = w.node("Tanh", w.conv("x", 4, 5, pad=[0] * 4))
    x = w.pool(x, 2, kind="AveragePool")
    x = w.pool(w.node("Tanh", w.conv(x, 6, 5, pad=[0] * 4)), 2, kind="AveragePool")
    x = w.node("Tanh", w.dense(w.node("Flatten", x), 24, 12))
    return w.model(w.dense(x, 12, 10))


@published(3, 16, 16)
def alexnet(w):
    x = w.node("LRN", w.block("x", 8, 5, 2), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    x = w.block(w.pool(x, 3, 2), 8, 3, group=2)
    x = w.dense(w.node("Flatten", x), 72, 10)
    return w.model(w.dense(w.relu(x), 10, 4))


@published(3, 16, 16)
def vgg_with_norms(w):
    x = w.block(w.block("x", 6, norm=True), 6, norm=True)
    x = w.block(w.pool(x), 8, norm=True)
    x = w.relu(w.dense(w.node("Flatten", w.pool(x)), 128, 10))
    return w.model(w.dense(x, 10, 5))


@published(3, 12, 12)
def squeezenet(w):
    x = w.pool(w.block("x", 8, 3, 2), 3, 1, 1)
    for _ in range(2):
        squeezed = w.block(x, 4, 1)
        x = w.concat(w.block(squeezed, 6, 1), w.block(squeezed, 6, 3))
    return w.model(w.node("Flatten", w.node("GlobalAveragePool", w.block(x, 5, 1))))


@published(3, 8, 8)
def resnet(w):
    x = w.block("x", 6, norm=True)
    x = w.relu(w.node("Add", w.block(w.block(x, 6, norm=True), 6, act="", norm=True), x))
    short = w.block(x, 8, 1, 2, act="", norm=True)
    x = w.relu(w.node("Add", w.block(w.block(x, 8, 3, 2, norm=True), 8, act="", norm=True), short))
    return w.classified(x)


@published(3, 8, 8)
def resnet_preactivated(w):
    x = w.conv("x", 6)
    for _ in range(2):
        inner = w.conv(w.relu(w.norm(x)), 6, bias=False)
        x = w.node("Add", w.conv(w.relu(w.norm(inner)), 6, bias=False), x)
    return w.classified(w.relu(w.norm(x)))


@published(3, 8, 8)
def resnext(w):
    x = w.block("x", 8)
    inner = w.block(w.block(x, 8, 1), 8, 3, group=4)
    return w.classified(w.relu(w.node("Add", x, w.conv(inner, 8, 1))))


@published(3, 12, 12)
def mobilenetv1(w):
    x = w.block("x", 6, 3, 2, act="relu6", norm=True)
    for channels, stride in ((8, 1), (10, 2)):
        x = w.block(x, w.channels[x], 3, stride, act="relu6", norm=True, group=w.channels[x])
        x = w.block(x, channels, 1, act="relu6", norm=True)
    return w.classified(x)


@published(3, 8, 8)
def mobilenetv2(w):
    x = w.block("x", 4, act="relu6")
    for stride in (1, 2):
        inner = w.block(w.block(x, 12, 1, act="relu6"), 12, 3, stride, act="relu6", group=12)
        projected = w.conv(inner, 4, 1)
        x = w.node("Add", x, projected) if stride == 1 else projected
    return w.classified(w.block(x, 10, 1, act="relu6"))


@published(3, 8, 8)
def mobilenetv3_block(w):
    x = w.block("x", 6, act="hard_swish", norm=True)
    inner = w.block(w.block(x, 12, 1, act="hard_swish"), 12, 5, act="hard_swish", group=12)
    x = w.node("Add", x, w.conv(w.squeeze(inner, "HardSigmoid"), 6, 1))
    return w.classified(w.block(x, 8, 1, act="hard_swish"))


@published(3, 8, 8)
def efficientnet_block(w):
    x = w.block("x", 6, act="silu", norm=True)
    inner = w.block(w.block(x, 12, 1, act="silu"), 12, 3, act="silu", group=12)
    x = w.node("Add", x, w.conv(w.squeeze(inner, "Sigmoid", "silu"), 6, 1))
    return w.classified(w.block(x, 8, 1, act="silu"))


@published(3, 8, 8)
def regnet(w):
    x = w.block("x", 8)
    inner = w.squeeze(w.block(w.block(x, 8, 1), 8, 3, group=2), "Sigmoid")
    return w.classified(w.relu(w.node("Add", x, w.conv(inner, 8, 1))))


@published(3, 8, 8)
def ghostnet(w):
    x = w.block("x", 6, 3, 2)
    first = w.block(x, 4, 1)
    ghost = w.concat(first, w.block(first, 4, 3, group=4))
    starts, ends, axes = (w.constant(np.array([value])) for value in (0, 7, 1))
    return w.classified(w.node("Slice", ghost, starts, ends, axes, channels=7))


@published(3, 8, 8)
def shufflenet_v1(w):
    x = w.block("x", 8, 3, 2)
    inner = w.shuffle(w.block(x, 8, 1, group=2), 2, 4, 4)
    inner = w.conv(w.depthwise(inner), 8, 1, group=2)
    return w.classified(w.relu(w.node("Add", x, inner)))


@published(3, 8, 8)
def shufflenet_v2(w):
    x = w.block("x", 8, 3, 2)
    left, right = w.split(x, 4, 4)
    right = w.block(w.depthwise(w.block(right, 4, 1)), 4, 1)
    return w.classified(w.block(w.shuffle(w.concat(left, right), 2, 4, 4), 6, 1))


@published(3, 8, 8)
def densenet(w):
    x = w.conv("x", 6)
    for _ in range(3):
        inner = w.conv(w.relu(w.norm(x)), 8, 1, bias=False)
        x = w.concat(x, w.conv(w.relu(w.norm(inner)), 4, bias=False))
    x = w.pool(w.conv(w.relu(w.norm(x)), 8, 1), 2, kind="AveragePool")
    return w.classified(w.relu(w.norm(x)))


@published(3, 12, 12)
def inception_v1(w):
    x = w.node("LRN", w.pool(w.block("x", 8), 3, 2, 1), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    parts = [w.block(x, 4, 1), w.block(w.block(x, 3, 1), 4, 3), w.block(w.block(x, 2, 1), 3, 5)]
    x = w.concat(*parts, w.block(w.pool(x, 3, 1, 1), 3, 1))
    return w.classified(x)


@published(3, 12, 12)
def inception_v2(w):
    x = w.pool(w.block("x", 6, norm=True), 3, 2, 1)
    twice = w.block(w.block(w.block(x, 4, 1, norm=True), 4, 3, norm=True), 4, 3, norm=True)
    averaged = w.block(w.pool(x, 3, 1, 1, "AveragePool"), 4, 1, norm=True)
    x = w.concat(w.block(x, 4, 1, norm=True), twice, averaged)
    parts = [w.block(x, 4, 3, 2, norm=True), w.pool(x, 3, 2, 1)]
    return w.classified(w.concat(*parts))


@published(3, 12, 12)
def inception_v3_factorised(w):
    x = w.block("x", 6, norm=True)
    long = w.block(w.block(x, 4, (1, 5), norm=True), 4, (5, 1), norm=True)
    return w.classified(w.concat(w.block(x, 4, 1, norm=True), long))


@published(3, 12, 12)
def all_cnn(w):
    x = w.block(w.block("x", 6), 6, 3, 2)
    x = w.block(w.block(x, 8), 8, 3, 2)
    return w.model(w.node("Flatten", w.node("GlobalAveragePool", w.block(x, 5, 1))))


@published(3, 8, 8)
def convmixer(w):
    x = w.gelu(w.conv("x", 8, 2, 2, pad=[0] * 4))
    x = w.node("Add", w.gelu(w.depthwise(x)), x)
    return w.classified(w.gelu(w.conv(x, 8, 1)))


@published(3, 8, 8)
def csp_darknet_mish(w):
    x = w.block("x", 8, 3, 2, act="mish", norm=True)
    left, right = w.block(x, 4, 1, act="mish"), w.block(x, 4, 1, act="mish")
    right = w.node("Add", w.block(w.block(right, 4, 1, act="mish"), 4, act="mish"), right)
    return w.classified(w.block(w.concat(left, right), 8, 1, act="mish"))


@published(3, 18, 24)
def pilotnet_elu(w):
    x = w.node("Elu", w.conv("x", 6, 5, 2, pad=[0] * 4))
    x = w.node("Elu", w.conv(x, 8, 3, pad=[0] * 4))
    x = w.node("Elu", w.dense(w.node("Flatten", x), 8 * 5 * 8, 10))
    return w.model(w.dense(x, 10, 1))


@published(3, 8, 8)
def selu_network(w):
    x = w.node("Selu", w.conv("x", 6))
    return w.classified(w.node("Softplus", w.conv(x, 8, 3, 2)))


# Detectors.


@published(3, 16, 16)
def yolov2_tiny(w):
    x = w.pool(w.block("x", 6, act="leaky", norm=True))
    x = w.block(w.pool(w.block(x, 8, act="leaky", norm=True)), 10, act="leaky", norm=True)
    return w.model(w.conv(x, 12, 1))


@published(3, 16, 16)
def yolov3_tiny(w):
    early = w.block(w.pool(w.block("x", 6, act="leaky", norm=True)), 8, act="leaky", norm=True)
    late = w.block(w.pool(early), 10, act="leaky", norm=True)
    middle = w.block(late, 6, 1, act="leaky", norm=True)
    up = w.resize(w.block(middle, 4, 1, act="leaky", norm=True))
    return w.model(w.conv(middle, 9, 1), w.conv(w.block(w.concat(up, early), 6, act="leaky"), 9, 1))


def _anchored(w, x: str, height: int, width: int) -> str:
    """Add a head with boxes in the last dimension, as YOLO's exporters write it, and Sigmoid."""
    x = w.reshape(w.conv(x, 12, 1), 1, 2, 6, height, width)
    return w.node("Sigmoid", w.node("Transpose", x, perm=[0, 1, 3, 4, 2]))


@published(3, 16, 16)
def yolov5_head(w):
    x = w.block("x", 8, 3, 2, act="silu")
    left, right = w.block(x, 4, 1, act="silu"), w.block(x, 4, 1, act="silu")
    left = w.node("Add", left, w.block(w.block(left, 4, 1, act="silu"), 4, act="silu"))
    x = w.block(w.concat(left, right), 8, 1, act="silu")
    pooled = [x]
    for _ in range(3):
        pooled.append(w.pool(pooled[-1], 5, 1, 2))
    x = w.block(w.concat(*pooled), 8, 1, act="silu")
    return w.model(_anchored(w, x, 8, 8))


@published(3, 16, 16)
def yolov8_head(w):
    x = w.block(w.block("x", 8, 3, 2, act="silu"), 8, 3, 2, act="silu")
    left, right = w.split(x, 4, 4)
    inner = w.node("Add", right, w.block(w.block(right, 4, act="silu"), 4, act="silu"))
    x = w.block(w.concat(left, right, inner), 8, 1, act="silu")
    boxes, classes = w.conv(w.block(x, 8, act="silu"), 16, 1), w.conv(w.block(x, 6, act="silu"), 3, 1)
    boxes = w.node("Softmax", w.reshape(boxes, 1, 4, 4, 16), axis=2)
    return w.model(boxes, w.node("Sigmoid", w.reshape(classes, 1, 3, 16)))


@published(3, 12, 12)
def ssd_heads(w):
    x = w.block(w.block("x", 6, 3, 2, act="relu6"), 8, act="relu6")
    later = w.block(x, 8, 3, 2, act="relu6")
    heads = []
    for feature, count in ((x, 36), (later, 9)):
        head = w.node("Transpose", w.conv(feature, 8), perm=[0, 2, 3, 1])
        heads.append(w.reshape(head, 1, count * 2, 4))
    return w.model(w.concat(*heads))


@published(3, 12, 12)
def face_cascade_first(w):
    x = w.pool(w.prelu(w.conv("x", 5, pad=[0] * 4)), 2)
    x = w.prelu(w.conv(w.prelu(w.conv(x, 6, pad=[0] * 4)), 8, pad=[0] * 4))
    return w.model(w.node("Softmax", w.conv(x, 2, 1), axis=1), w.conv(x, 4, 1))


@published(3, 12, 12)
def face_cascade_second(w):
    x = w.pool(w.prelu(w.conv("x", 6, pad=[0] * 4)), 3, 2)
    x = w.node("Flatten", w.prelu(w.conv(x, 8, 2, pad=[0] * 4)))
    hidden = w.dense(x, 72, 12)
    slopes = w.constant(np.abs(w.normal(12, scale=0.25)))
    hidden = w.node("PRelu", hidden, slopes)
    return w.model(w.node("Softmax", w.dense(hidden, 12, 2), axis=1), w.dense(hidden, 12, 4))


@published(3, 16, 16)
def text_detection(w):
    """Build a text detector like DBNet: a feature pyramid, and a head of transposed convolutions."""
    early = w.block("x", 6, 3, 2)
    late = w.block(early, 8, 3, 2)
    x = w.node("Add", w.conv(early, 6, 1), w.resize(w.conv(late, 6, 1)))
    x = w.relu(w.norm(w.transposed(w.block(x, 4), 4)))
    return w.model(w.node("Sigmoid", w.conv(x, 1, 1)))


@published(1, 16, 24)
def text_recognition(w):
    x = w.pool(w.block("x", 6), 2)
    x = w.pool(w.block(x, 8), (2, 1))
    x = w.block(x, 8, (4, 1), pad=[0] * 4)
    x = w.node("Transpose", w.node("Squeeze", w.conv(x, 11, 1), w.constant(np.array([2]))), perm=[2, 0, 1])
    return w.model(w.node("Softmax", x, axis=2))


@published(3, 12, 12)
def text_direction(w):
    x = w.block("x", 6, 3, (2, 1), act="hard_swish")
    x = w.squeeze(w.block(x, 6, 3, act="hard_swish", group=6), "HardSigmoid")
    return w.classified(w.pool(x, 2), 2)


# Pixels to pixels.


@published(1, 12, 12)
def espcn(w):
    x = w.node("Tanh", w.conv("x", 6, 5))
    x = w.conv(w.node("Tanh", w.conv(x, 4)), 4)
    return w.model(w.node("DepthToSpace", x, blocksize=2, mode="CRD"))


@published(1, 12, 12)
def srcnn(w):
    return w.model(w.conv(w.block(w.block("x", 6, 5), 4, 1), 1, 5))


@published(1, 12, 12)
def dncnn(w):
    x = w.block(w.block("x", 6), 6, norm=True)
    return w.model(w.node("Sub", "x", w.conv(x, 1)))


@published(3, 12, 12)
def dilated_context(w):
    x = w.block("x", 6)
    for dilation in (1, 2, 4):
        x = w.block(x, 6, dilation=dilation)
    return w.model(w.conv(x, 4, 1))


def _unet(w, up: Callable[[str, int], str]) -> onnx.ModelProto:
    first = w.block("x", 4)
    second = w.block(w.pool(first), 6)
    third = w.block(w.pool(second), 8)
    x = w.block(w.concat(up(third, 6), second), 6)
    return w.model(w.conv(w.block(w.concat(up(x, 4), first), 4), 2, 1))


@published(1, 8, 8)
def unet_resize(w):
    return _unet(w, lambda x, channels: w.block(w.resize(x), channels))


@published(1, 8, 8)
def unet_transposed(w):
    return _unet(w, w.transposed)


@published(3, 8, 8)
def autoencoder_transposed(w):
    x = w.block(w.block("x", 6, 3, 2), 4, 3, 2)
    x = w.relu(w.transposed(x, 6, 4, 2, 1))
    return w.model(w.node("Sigmoid", w.transposed(x, 3, 4, 2, 1)))


@published(3, 8, 8)
def hourglass(w):
    x = w.block("x", 6, norm=True)
    low = w.block(w.block(w.pool(x), 6, norm=True), 6, norm=True)
    return w.model(w.conv(w.node("Add", x, w.resize(low)), 3, 1))


@published(3, 12, 12)
def pyramid_pooling(w):
    x = w.block("x", 6)
    pooled = [w.resize(w.block(w.pool(x, size, kind="AveragePool"), 3, 1), float(size)) for size in (2, 4)]
    return w.model(w.conv(w.concat(x, *pooled), 4, 1))


@published(3, 8, 8)
def fully_convolutional(w):
    x = w.pool(w.block("x", 6))
    return w.model(w.transposed(w.conv(x, 3, 1), 3, 4, 2, 1))


# One dimension, other layouts, several branches of one input.


@published(2, 40)
def ecg(w):
    x = w.pool(w.block("x", 6, 5, 2, rank=1), (2,))
    x = w.block(x, 8, 3, rank=1)
    return w.classified(x, 4)


@published(2, 32)
def temporal_network(w):
    """Causal convolutions, dilated more and more."""
    x = "x"
    for dilation in (1, 2, 4):
        padded = w.node("Pad", x, w.constant(np.array([0, 0, 2 * dilation, 0, 0, 0])))
        inner = w.relu(w.conv(padded, 6, 3, pad=[0, 0], dilation=dilation, rank=1))
        x = inner if x == "x" else w.node("Add", x, inner)
    return w.model(w.conv(x, 3, 1, rank=1))


@published(1, 20, 10)
def keyword_spotting(w):
    x = w.block("x", 8, (5, 3), (2, 2))
    x = w.block(w.block(x, 8, 3, group=8), 8, 1)
    x = w.pool(x, (10, 5), kind="AveragePool")
    return w.model(w.dense(w.node("Flatten", x), 8, 6))


@published(12, 12, 3)
def keras_nhwc(w):
    w.channels["x"] = 3
    x = w.block(w.node("Transpose", "x", perm=[0, 3, 1, 2], channels=3), 6, 3, 2)
    x = w.pool(w.block(x, 8))
    return w.model(w.node("Transpose", w.conv(x, 4, 1), perm=[0, 2, 3, 1]))


@published(12, 12, 3)
def keras_dense(w):
    w.channels["x"] = 3
    x = w.pool(w.block(w.node("Transpose", "x", perm=[0, 3, 1, 2], channels=3), 4))
    x = w.reshape(w.node("Transpose", x, perm=[0, 2, 3, 1]), -1, 144)
    x = w.relu(w.dense(x, 144, 10, transposed=False))
    return w.model(w.node("Softmax", w.dense(x, 10, 4, transposed=False)))


@published(2, 12, 12)
def siamese(w):
    """Two pictures as two channels, through the same weights."""
    branches = []
    state = w.random.bit_generator.state
    for part in w.split("x", 1, 1):
        w.random.bit_generator.state = state
        branches.append(w.node("GlobalAveragePool", w.block(w.block(part, 4), 6, 3, 2)))
    return w.model(w.dense(w.node("Flatten", w.node("Sub", *branches)), 6, 1))


# Dialects.


@functools.cache
def prepared(name: str) -> tuple[bytes, Writer]:
    """Return a model in floats as ONNX Runtime's quantiser wants it, for all forms, with its writer."""
    model, writer = float_model(name)
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(Path(folder) / file) for file in ("float.onnx", "prepared.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, target, skip_symbolic_shape=True)
        return Path(target).read_bytes(), writer


def quantised(
    name: str, form: str, *, signed: bool = False, per_channel: bool = True
) -> tuple[onnx.ModelProto, Writer]:
    """Return a model quantised by ONNX Runtime's quantiser, with its writer. ``form`` is QDQ or QOperator."""
    content, writer = prepared(name)
    writer = copy.deepcopy(writer)  # draws the same frames for each form
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(Path(folder) / file) for file in ("prepared.onnx", "out.onnx"))
        Path(source).write_bytes(content)
        quantize_static(
            source,
            target,
            Frames(writer.frames(8)),
            quant_format=QuantFormat[form],
            per_channel=per_channel,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            # Otherwise ONNX Runtime leaves operators in float behind the last layer.
            extra_options={"ForceQuantizeNoInputCheck": True},
        )
        return onnx.load(target), writer
