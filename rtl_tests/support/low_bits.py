"""Networks of few bits with seeded weights: FINN's CNV as Brevitas exports it, and two that compare widths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from dialects import QONNX, Dialect
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model


@dataclass(frozen=True)
class CNVShape:
    """Sizes of a CNV: a map of pixels, convolutions with or without a max pool behind them, and dense layers.

    Parameters
    ----------
    size : int
        Rows and columns of the input.
    convolutions : tuple
        Output channels of each 3x3 convolution, and whether a 2x2 max pool follows.
    dense : tuple of int
        Outputs of each dense layer; the last one is not quantised.
    pads : int
        Padding of all convolutions but the first.
    """

    size: int = 32
    convolutions: tuple[tuple[int, bool], ...] = (
        *((64, False), (64, True), (128, False), (128, True), (256, False), (256, False)),
    )
    dense: tuple[int, ...] = (512, 512, 10)
    pads: int = 0


CNV = CNVShape()
"""Sizes of Brevitas' ``cnv_1w1a`` and ``cnv_2w2a``, for CIFAR-10."""
SMALL_CNV = CNVShape(size=14, convolutions=((6, False), (8, True), (10, False)), dense=(12, 10))
"""Sizes of a small relative of CNV, for simulation."""
PADDED_CNV = CNVShape(size=8, convolutions=((6, False), (8, True), (8, False)), dense=(12, 10), pads=1)
"""Sizes of a small relative of CNV whose convolutions pad maps of -1 and 1 by 0."""
_EPSILON = 1e-4
"""Number that Brevitas' networks add to a variance."""


class _Brevitas(Dialect):
    """Writer of a network as Brevitas' ``bnn_pynq`` examples are exported: all scales are 1, or 2**-7 at the input."""

    def few(self, tensor: str, bits: int) -> str:
        """Quantise a tensor to one bit, -1 and 1, or to a signed type without its smallest value."""
        if bits == 1:
            return self.node("BipolarQuant", tensor, self.constant(1), domain=QONNX)
        return self.quantised(tensor, 1, bits, narrow=True)

    def batch_norm(self, products: int) -> None:
        """Normalise sums of so many products, some channels with a negative factor."""
        channels, rng, deviation = self.shape[0], self.rng, products**0.5
        scale = rng.normal(1, 0.2, channels) * rng.choice([-1, 1], channels, p=[0.2, 0.8])
        mean, variance = rng.normal(0, 0.3 * deviation, channels), products * rng.uniform(0.5, 1.5, channels)
        parameters = [scale, rng.normal(0, 0.3, channels), mean, variance]
        self.tensor = self.node("BatchNormalization", self.tensor, *map(self.constant, parameters), epsilon=_EPSILON)

    def matrix(self, outputs: int, bits: int) -> None:
        """Multiply by a quantised matrix, which Brevitas holds transposed."""
        (inputs,) = self.shape
        weights = self.few(self.constant(self.rng.normal(0, 0.6, (outputs, inputs))), bits)
        self.tensor = self.node("MatMul", self.tensor, self.node("Transpose", weights, perm=[1, 0]))
        self.shape = (outputs,)

    def kernels(self, channels: int, bits: int, pads: int) -> None:
        """Convolve with quantised kernels of 3x3."""
        before, rows, columns = self.shape
        weights = self.few(self.constant(self.rng.normal(0, 0.6, (channels, before, 3, 3))), bits)
        attributes = {"kernel_shape": [3, 3], "pads": [pads] * 4, "strides": [1, 1], "group": 1, "dilations": [1, 1]}
        self.tensor = self.node("Conv", self.tensor, weights, **attributes)
        self.shape = (channels, rows + 2 * pads - 2, columns + 2 * pads - 2)


def cnv(bits: int, shape: CNVShape = CNV, *, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Write a CNV of so many bits of weights and activations as QONNX: the input has 8 bits, the output is floats."""
    net = _Brevitas("qonnx", seed, shape=(3, shape.size, shape.size))
    net.tensor = net.quantised(net.tensor, 2.0**-7, 8)
    for index, (channels, pooled) in enumerate(shape.convolutions):
        products = 9 * net.shape[0]
        net.kernels(channels, bits, shape.pads if index else 0)
        net.batch_norm(products if index else products // 3)
        net.tensor = net.few(net.tensor, bits)
        if pooled:
            net.pool()
    net.shape = (int(np.prod(net.shape)),)
    net.tensor = net.node("Reshape", net.tensor, net.constant([batch, -1], np.int64))
    for outputs in shape.dense[:-1]:
        (products,) = net.shape
        net.matrix(outputs, bits)
        net.batch_norm(products)
        net.tensor = net.few(net.tensor, bits)
    net.matrix(shape.dense[-1], bits)
    # Brevitas' TensorNorm: one number each.
    for operator, value in (("Sub", 0.4), ("Div", 9.7), ("Mul", 1.1), ("Add", -0.2)):
        net.arithmetic(operator, value)
    return net.fixed(batch)


def cnv_frames(shape: CNVShape, count: int, seed: int = 0) -> np.ndarray:
    """Return frames of a CNV: floats from -1 to 1."""
    random = np.random.default_rng([seed, 29])
    return random.uniform(-1, 1, (count, 3, shape.size, shape.size)).astype(np.float32)


def low_bit_network(dialect: str, bits: int, *, seed: int = 0) -> Dialect:
    """Write the low-bit network of one 8x8 map: two max pools, a dense layer, weights and activations of ``bits``.

    ``dialect`` is ``qonnx`` or ``qcdq``, the two that Brevitas exports.
    """
    net = Dialect(dialect, seed, shape=(1, 8, 8)).enter(8)
    net.conv(8, bits=bits, pads=1).act(bits).conv(16, bits=bits, pads=1).act(bits).pool()
    net.conv(16, bits=bits, pads=1).act(bits).pool().flatten()
    return net.dense(10, bits=bits).act(bits, signed=True)


def four_convolutions(bits: int, *, seed: int = 0) -> onnx.ModelProto:
    """Write the network that compares widths: four 3x3 convolutions, padded, of 16x16 maps, 3 to 16 channels.

    ``bits`` is 4 (ONNX's INT4 and UINT4, operator set 21) or 8.
    """
    random, top = np.random.default_rng([seed, 21]), (1 << (bits - 1)) - 1
    signed, unsigned = (getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U"))
    tensors = [helper.make_tensor("zero", unsigned, (), [0]), helper.make_tensor("w_zero", signed, (), [0])]
    nodes: list[onnx.NodeProto] = []

    def real(value: float, name: str) -> str:
        tensors.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def quantised(tensor: str, scale: str, name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [tensor, scale, "zero"], [f"{name}_integers"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_integers", scale, "zero"], [name]))
        return name

    here = quantised("x", real(1 / (2 * top + 1), "x_scale"), "x_quantised")
    for index, (before, after) in enumerate(((3, 16), (16, 16), (16, 16), (16, 16)), start=1):
        name = f"conv{index}"
        weights = random.integers(-top, top + 1, (after, before, 3, 3))
        tensors.append(helper.make_tensor(f"{name}_weights", signed, weights.shape, weights.reshape(-1).tolist()))
        scale = real((9 * before) ** -0.5 / top, f"{name}_scale")
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_weights", scale, "w_zero"], [f"{name}_reals"]))
        attributes: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
        nodes.append(helper.make_node("Conv", [here, f"{name}_reals"], [f"{name}_sums"], name=name, **attributes))
        here = quantised(f"{name}_sums", real(1 / (2 * top + 1), f"{name}_output_scale"), f"{name}_quantised")
    return as_model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 3, 16, 16])},
        {here: (TensorProto.FLOAT, ["n", 16, 16, 16])},
        tensors,
        opset=21,
        ir_version=10,
    )
