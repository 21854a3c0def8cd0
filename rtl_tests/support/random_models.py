"""Random quantised ONNX models of the blocks that published networks have, reproducible from a seed.

A model has activations of uint8 or int8, with zero points or without, and weights of int8 or uint8, one scale each or
one scale per output channel. The output scale of a layer is such that its integers have a deviation of about 45.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Blocks of a model, the commoner ones more often.
BLOCKS = (
    *("conv",) * 5,
    *("depthwise", "separable") * 2,
    *("uneven", "grouped", "dilated", "residual", "residual", "concat", "concat", "gate", "silu", "activation"),
    *("max_pool", "average_pool", "sum", "product", "prelu", "clamp", "upsample", "move", "affine", "lrn", "extreme"),
)
#: Blocks that are left out of half of their draws, because few published networks have them.
RARE = ("lrn", "extreme", "affine", "sum", "product", "move")


@dataclass(frozen=True)
class Tensor:
    """Dequantised float tensor of a model: its name, shape, and how it is quantised."""

    name: str
    channels: int
    height: int
    width: int
    scale: float
    zero: int
    kind: Any


class RandomModel:
    """A model in the making: blocks are appended to its last tensor."""

    def __init__(self, seed: int, blocks: int = 6, max_side: int = 24) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.kind = np.dtype([np.uint8, np.int8][int(rng.integers(2))])
        self.symmetric = bool(rng.random() < 0.4)
        self.weight_kind = np.dtype([np.int8, np.int8, np.uint8][int(rng.integers(3))])
        self.symmetric_weights = self.weight_kind == np.int8 or bool(rng.random() < 0.5)
        self.per_channel = bool(rng.random() < 0.5) and self.weight_kind == np.int8
        shape = int(rng.choice([1, 3, 4])), *(int(side) for side in rng.integers(8, max_side + 1, 2))
        self.last = self.input(*shape)
        count = int(rng.integers(2, blocks + 1))
        if rng.random() < 0.05:
            self.last = self.conv(self.last, int(rng.choice([4, 8, 12])), 3)
            other = self.same(self.input(2, self.last.height, self.last.width), self.last.channels)
            self.last = self.quantise(self.node("Add", self.last, other), self.last, deviation=1.4)
        for index in range(count):
            self.last = self.block(self.last, first=index == 0)
        if rng.random() < 0.4:
            self.last = self.conv(self.whole(self.last), 10, 1)

    def model(self) -> onnx.ModelProto:
        """Return the model; its output is the last integer tensor."""
        quantised = next(node for node in self.nodes if node.output[0] == self.last.name).input[0]
        kind = helper.np_dtype_to_tensor_dtype(self.last.kind)
        shape = ["n", self.last.channels, self.last.height, self.last.width]
        output = helper.make_tensor_value_info(quantised, kind, shape)
        graph = helper.make_graph(self.nodes, "random", self.inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def input(self, channels: int, height: int, width: int) -> Tensor:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, height, width]))
        scale, zero = self.label(1.0)
        return self.labelled(name, Tensor("", channels, height, width, scale, zero, self.kind))

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node, and return its output. Inputs are tensors, names or constants."""
        names = [each.name if isinstance(each, Tensor) else each for each in inputs]
        names = [each if isinstance(each, str) else self.constant(each) for each in names]
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], name=name, **attributes))
        return name

    def label(self, deviation: float, *, positive: bool = False) -> tuple[float, int]:
        """Return a scale and a zero point for values of a deviation; ``positive`` values have the lowest zero point."""
        limits = np.iinfo(self.kind)
        scale = float(np.float32(deviation / 45 * self.rng.uniform(0.7, 1.5)))
        middle = 0 if self.kind == np.int8 else 128
        if self.symmetric:
            return scale, middle
        if positive:
            return scale / 2, int(limits.min)
        return scale, int(middle + self.rng.integers(-40, 41))

    def labelled(self, name: str, tensor: Tensor) -> Tensor:
        """Add QuantizeLinear and DequantizeLinear behind ``name``, with the scale and zero point of ``tensor``."""
        label = np.float32(tensor.scale), np.array(tensor.zero, tensor.kind)
        quantised = self.node("QuantizeLinear", name, *label)
        return replace(tensor, name=self.node("DequantizeLinear", quantised, *label))

    def quantise(
        self, name: str, like: Tensor, *, deviation: float = 1.0, positive: bool = False, **shape: int
    ) -> Tensor:
        """Quantise a tensor, ``deviation`` times as large as ``like``, with new scale and zero point."""
        scale, zero = self.label(like.scale * 45 * deviation, positive=positive)
        return self.labelled(name, replace(like, scale=scale, zero=zero, **shape))

    def conv(
        self,
        source: Tensor,
        outputs: int,
        kernel: int | tuple[int, int],
        *,
        strides: tuple[int, int] = (1, 1),
        dilation: int = 1,
        groups: int = 1,
        activation: bool = True,
    ) -> Tensor:
        """Add a convolution with a bias, with or without an activation, and its quantisation."""
        rng, sides = self.rng, (kernel, kernel) if isinstance(kernel, int) else kernel
        reach = [(side - 1) * dilation for side in sides]
        before = (source.height, source.width)
        padded = rng.random() < 0.8 or any(size <= extent for size, extent in zip(before, reach, strict=True))
        pads = [extent // 2 * padded for extent in reach] + [(extent - extent // 2) * padded for extent in reach]
        rows, columns = (
            (size + pads[axis] + pads[2 + axis] - reach[axis] - 1) // strides[axis] + 1
            for axis, size in enumerate(before)
        )
        weights, scales = self.weights((outputs, source.channels // groups, *sides))
        bias = np.rint(rng.normal(0, 300, outputs)).astype(np.int32)
        biases = (
            self.node(
                "DequantizeLinear",
                bias,
                (np.float32(source.scale) * scales).astype(np.float32),
                np.zeros_like(bias),
                axis=0,
            )
            if scales.ndim
            else self.node("DequantizeLinear", bias, np.float32(source.scale) * scales)
        )
        name = self.node(
            "Conv", source, weights, biases, strides=strides, pads=pads, dilations=[dilation] * 2, group=groups
        )
        kind = str(rng.choice(["Relu", "Relu", "Clip", "none"])) if activation else "none"
        if kind == "Relu":
            name = self.node("Relu", name)
        elif kind == "Clip":
            name = self.node("Clip", name, np.float32(0), np.float32(source.scale * 90))
        shape = {"channels": outputs, "height": rows, "width": columns}
        return self.quantise(name, source, positive=kind != "none", **shape)

    def weights(self, shape: tuple[int, ...]) -> tuple[str, np.ndarray]:
        """Add dequantised weights whose sums of products have the deviation of their inputs; also return the scales."""
        rng = self.rng
        values = rng.normal(0, np.prod(shape[1:]) ** -0.5, shape)
        if not self.symmetric_weights:
            values += rng.uniform(-0.4, 0.4) * values.std()
        if self.weight_kind == np.uint8 and not self.symmetric_weights:
            low, high = min(values.min(), 0), max(values.max(), 0)
            scale = np.float32((high - low) / 255)
            zero = np.array(np.clip(np.rint(-low / scale), 0, 255), np.uint8)
            integers = np.clip(np.rint(values / scale) + zero, 0, 255).astype(np.uint8)
            return self.node("DequantizeLinear", integers, scale, zero), scale
        axes = tuple(range(1, len(shape))) if self.per_channel else None
        scales = (np.abs(values).max(axis=axes, keepdims=self.per_channel) / 127).astype(np.float32)
        integers = np.clip(np.rint(values / scales), -127, 127)
        if self.weight_kind == np.uint8:
            return self.node("DequantizeLinear", (integers + 128).astype(np.uint8), scales, np.uint8(128)), scales
        if self.per_channel:
            scales = scales.reshape(-1)
            zeros = np.zeros(len(scales), np.int8)
            return self.node("DequantizeLinear", integers.astype(np.int8), scales, zeros, axis=0), scales
        return self.node("DequantizeLinear", integers.astype(np.int8), scales, np.int8(0)), scales

    def whole(self, source: Tensor) -> Tensor:
        name = self.node("GlobalAveragePool", source)
        return self.quantise(name, source, deviation=0.5, height=1, width=1)

    def block(self, source: Tensor, *, first: bool) -> Tensor:
        """Add a random block behind ``source``, and return its output."""
        rng, channels = self.rng, source.channels
        outputs = int(rng.choice([4, 6, 8, 10, 12, 16, 20, 24, 32, 40]))
        small = min(source.height, source.width) < 6
        stride = 1 if small else int(rng.choice([1, 1, 2, 2, 3]))
        kernel = int(rng.choice([1, 1, 3, 3, 3, 5, 7]))
        kind = "conv" if first else str(rng.choice(BLOCKS))
        if kind in RARE and rng.random() < 0.5:
            kind = "conv"
        strides = (stride, stride)
        match kind:
            case "conv":
                return self.conv(source, outputs, kernel, strides=strides)
            case "uneven":
                uneven = (1, 1) if small else [(1, 2), (2, 1), (1, 3), (2, 3)][int(rng.integers(4))]
                sides = [(3, 3), (1, 3), (3, 1), (3, 5), (2, 2)][int(rng.integers(5))]
                return self.conv(source, outputs, sides, strides=uneven)
            case "depthwise":
                return self.conv(source, channels, max(kernel, 3), strides=strides, groups=channels)
            case "separable":
                inner = self.conv(source, channels, max(kernel, 3), strides=strides, groups=channels)
                return self.conv(inner, outputs, 1)
            case "grouped":
                groups = int(rng.choice([count for count in (1, 2, 4) if channels % count == 0]))
                return self.conv(source, groups * -(-outputs // groups), 3, strides=strides, groups=groups)
            case "dilated":
                return self.conv(source, outputs, 3, dilation=int(rng.integers(2, 4)))
            case "residual":
                return self.residual(source)
            case "concat":
                branches = [self.same(source, outputs), self.same(source, int(rng.choice([3, 4, 8, 10])))]
                if rng.random() < 0.4:
                    branches.append(source)
                name = self.node("Concat", *branches, axis=1)
                return self.quantise(name, source, channels=sum(branch.channels for branch in branches))
            case "gate":
                inner = self.conv(self.whole(source), max(channels // 4, 1), 1)
                inner = self.conv(inner, channels, 1, activation=False)
                gate = self.activation(inner, str(rng.choice(["Sigmoid", "HardSigmoid"])))
                return self.quantise(self.node("Mul", source, gate), source, deviation=0.6)
            case "silu":
                inner = self.conv(source, outputs, kernel, activation=False)
                return self.quantise(self.node("Mul", inner, self.activation(inner, "Sigmoid")), inner, deviation=0.6)
            case "product":
                other = self.activation(self.same(source, channels), "Sigmoid")
                return self.quantise(self.node("Mul", source, other), source, deviation=0.6)
            case "activation":
                return self.activation(source, str(rng.choice(["LeakyRelu", "HardSwish", "Tanh", "Elu", "Sigmoid"])))
            case "prelu":
                slopes = rng.uniform(0.05, 0.4, (channels, 1, 1)).astype(np.float32)
                return self.quantise(self.node("PRelu", source, slopes), source)
            case "clamp":
                bound = np.float32(source.scale * rng.uniform(40, 90))
                return self.quantise(self.node("Clip", source, -bound, bound), source)
            case "affine":
                factors = rng.uniform(0.5, 1.5, (1, channels, 1, 1)).astype(np.float32)
                return self.quantise(self.node("Mul", source, factors), source)
            case "sum":
                others = [self.same(source, channels) for _ in range(2)]
                return self.quantise(self.node("Sum", source, *others), source, deviation=1.7)
            case "extreme":
                name = self.node(str(rng.choice(["Max", "Min"])), source, self.same(source, channels))
                return self.quantise(name, source)
            case "lrn":
                name = self.node("LRN", source, size=5, alpha=1e-4, beta=0.75, bias=1.0)
                return self.quantise(name, source)
            case "max_pool" | "average_pool":
                return source if small else self.pool(source, kind == "max_pool")
            case "upsample":
                return source if source.height * source.width > 400 else self.upsample(source)
            case _:
                return self.move(source)

    def same(self, source: Tensor, channels: int) -> Tensor:
        """Add a convolution that keeps rows and columns."""
        kernel = int(self.rng.choice([1, 3]))
        weights, _ = self.weights((channels, source.channels, kernel, kernel))
        name = self.node("Conv", source, weights, pads=[kernel // 2] * 4)
        if self.rng.random() < 0.5:
            name = self.node("Relu", name)
        return self.quantise(name, source, channels=channels)

    def residual(self, source: Tensor) -> Tensor:
        inner = self.same(source, source.channels)
        inner = self.same(inner, source.channels) if self.rng.random() < 0.5 else inner
        name = self.node("Add", *((inner, source) if self.rng.random() < 0.5 else (source, inner)))
        relu = self.rng.random() < 0.5
        if relu:
            name = self.node("Relu", name)
        return self.quantise(name, source, deviation=1.4, positive=bool(relu))

    def activation(self, source: Tensor, operator: str) -> Tensor:
        name = self.node(operator, source)
        size = source.scale * 45
        deviation = {"Sigmoid": 0.5 / size, "HardSigmoid": 0.5 / size, "Tanh": 0.8 / size}.get(operator, 0.7)
        return self.quantise(name, source, deviation=deviation, positive=operator.endswith("Sigmoid"))

    def pool(self, source: Tensor, greatest: bool) -> Tensor:
        rng = self.rng
        sides = [(2, 2), (2, 2), (3, 3), (3, 3), (2, 1), (1, 2), (3, 2)][int(rng.integers(7))]
        steps = sides if rng.random() < 0.4 else [(2, 2), (1, 1), (2, 1), (1, 2)][int(rng.integers(4))]
        pads = [side // 2 for side in sides] * 2 if rng.random() < 0.3 else [0] * 4
        rows, columns = (
            (size + 2 * pads[axis] - sides[axis]) // steps[axis] + 1
            for axis, size in enumerate((source.height, source.width))
        )
        attributes = {"kernel_shape": sides, "strides": steps, "pads": pads}
        if greatest:
            return self.labelled(
                self.node("MaxPool", source, **attributes), replace(source, height=rows, width=columns)
            )
        name = self.node("AveragePool", source, count_include_pad=int(rng.integers(2)), **attributes)
        if rng.random() < 0.5:
            return self.labelled(name, replace(source, height=rows, width=columns))
        return self.quantise(name, source, deviation=0.6, height=rows, width=columns)

    def upsample(self, source: Tensor) -> Tensor:
        factors = [(2, 2), (2, 2), (1, 2), (3, 3)][int(self.rng.integers(4))]
        scales = self.constant(np.array([1, 1, *factors], np.float32))
        rounding = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        name = self.node("Resize", source, "", scales, **rounding)
        return self.labelled(name, replace(source, height=source.height * factors[0], width=source.width * factors[1]))

    def move(self, source: Tensor) -> Tensor:
        """Add a layer that moves values only: channels of a slice, a crop, a padding, or blocks of channels."""
        rng, channels = self.rng, source.channels
        kind = int(rng.integers(4))
        if kind == 0 and channels > 1:
            count = int(rng.integers(1, channels))
            name = self.node("Slice", source, np.array([0]), np.array([count]), np.array([1]))
            return self.labelled(name, replace(source, channels=count))
        if kind == 1 and source.height > 3:
            name = self.node("Slice", source, np.array([1]), np.array([source.height - 1]), np.array([2]))
            return self.labelled(name, replace(source, height=source.height - 2))
        if kind == 2 and channels % 4 == 0 and source.height * source.width <= 200:
            name = self.node("DepthToSpace", source, blocksize=2)
            shape = {"channels": channels // 4, "height": 2 * source.height, "width": 2 * source.width}
            return self.labelled(name, replace(source, **shape))
        name = self.node("Pad", source, np.array([0, 0, 1, 0, 0, 0, 0, 2]), np.float32(0))
        return self.labelled(name, replace(source, height=source.height + 1, width=source.width + 2))


def random_model(seed: int, **limits: int) -> onnx.ModelProto:
    """Return the random model of a seed."""
    return RandomModel(seed, **limits).model()
