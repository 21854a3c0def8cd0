"""Biases of floats: which of them ONNX Runtime rounds to steps of the accumulators, and which it keeps as they are.

A step is more than six steps of the output here, so that a bias that is rounded elsewhere than ONNX Runtime does it is
seen in many values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pieces import Piece, check

from hwgen.network.ops import Conv

Behind = Callable[[Piece, str], str]


def _conv(piece: Piece, tensor: str) -> str:
    return piece.conv(tensor)


def _transposed(piece: Piece, tensor: str) -> str:
    return piece.node("ConvTranspose", tensor, piece.weights((3, 4, 3, 3)), piece.floats(4), strides=[2, 2])


def _gemm(piece: Piece, tensor: str) -> str:
    return piece.node("Gemm", tensor, piece.weights((9, 5)), piece.floats(5))


def _product(piece: Piece, tensor: str, outputs: int = 5) -> str:
    return piece.node("MatMul", tensor, piece.weights((9, outputs)))


def relu(piece: Piece, tensor: str) -> str:
    return piece.node("Relu", tensor)


def clip(piece: Piece, tensor: str) -> str:
    return piece.node("Clip", tensor, np.float32(0), np.float32(9))


def pool(piece: Piece, tensor: str) -> str:
    return piece.node("MaxPool", tensor, kernel_shape=[2, 2])


def flatten(piece: Piece, tensor: str) -> str:
    return piece.node("Flatten", tensor)


def reshape(piece: Piece, tensor: str) -> str:
    return piece.node("Reshape", tensor, np.array([0, 4, 16]))


def nothing(piece: Piece, tensor: str) -> str:
    return piece.node("Identity", piece.node("Dropout", tensor))


def pad(piece: Piece, tensor: str) -> str:
    return piece.node("Pad", tensor, np.array([0, 0, 1, 1, 0, 0, 1, 1]))


def gather(piece: Piece, tensor: str) -> str:
    return piece.node("Gather", tensor, np.array([2, 1, 0]), axis=1)


def tile(piece: Piece, tensor: str) -> str:
    return piece.node("Tile", tensor, np.array([1, 1, 1, 1]))


def add(count: int = 5, *shape: int) -> Behind:
    return lambda piece, tensor: piece.node("Add", tensor, piece.floats(*(shape or (count,))))


def scaled(piece: Piece, tensor: str) -> str:
    return piece.node("Mul", tensor, np.float32(0.7))


def with_bias(scale: float, kind: type) -> Behind:
    """A bias that is quantised."""

    def conv(piece: Piece, tensor: str) -> str:
        integers = piece.constant(piece.random.integers(-9, 10, 4), kind)
        bias = piece.node("DequantizeLinear", integers, np.float32(scale), np.array(0, kind))
        return piece.node("Conv", tensor, piece.weights((4, 3, 3, 3)), bias)

    return conv


def grouped(piece: Piece, tensor: str) -> str:
    """With fewer scales than channels."""
    weights = piece.weights((4, 4, 3, 3), axis=1)
    return piece.node("ConvTranspose", tensor, weights, piece.floats(8), strides=[2, 2], group=2)


ROUNDED: dict[str, list[Behind]] = {
    "Conv": [_conv],
    "Conv, Relu": [_conv, relu],
    "Conv, Relu, Clip": [_conv, relu, clip],
    "Conv, Clip, MaxPool": [_conv, clip, pool],
    "Conv, Relu, Reshape": [_conv, relu, reshape],
    "Conv, nothing, Relu": [_conv, nothing, relu],
    "MaxPool, Conv": [pool, _conv],
    "Pad, Conv": [pad, _conv],
    "Pad, Pad, nothing, Conv": [pad, pad, nothing, _conv],
    "ConvTranspose, Relu": [_transposed, relu],
    "Gemm": [_gemm],
    "MatMul, Add": [_product, add()],
    "MatMul, Add, Relu": [_product, add(), relu],
    "MatMul to one value, Add": [lambda piece, tensor: _product(piece, tensor, 1), add(1)],
}
KEPT: dict[str, list[Behind]] = {
    "Conv, MaxPool, Relu": [_conv, pool, relu],
    "Conv, Reshape, Relu": [_conv, reshape, relu],
    "Conv, Relu, Reshape, Relu": [_conv, relu, reshape, relu],
    "Conv, Flatten": [_conv, flatten],
    "Conv, Tile": [_conv, tile],
    "Conv, Mul": [_conv, scaled],
    "Gather, Conv": [gather, _conv],
    "Gather, Pad, Conv": [gather, pad, _conv],
    "Pad, Gather, Conv": [pad, gather, _conv],
    "Pad for SAME": [pad, lambda piece, tensor: piece.conv(tensor, auto_pad="SAME_UPPER")],
    "Conv, Add": [lambda piece, tensor: piece.conv(tensor, bias=False), add(4, 4, 1, 1)],
    "ConvTranspose, Flatten": [_transposed, flatten],
    "ConvTranspose, Mul": [_transposed, scaled],
    "ConvTranspose of groups": [grouped],
    "Gemm, Add": [_gemm, add()],
    "Gemm, of two dimensions": [
        lambda piece, tensor: piece.node("Gemm", tensor, piece.weights((9, 5)), piece.floats(1, 5))
    ],
    "MatMul, Add, Add": [_product, add(), add()],
    "MatMul, Add of a number": [_product, add(1)],
    "MatMul, Add of two dimensions": [_product, add(5, 1, 5)],
    "quantised in other steps": [with_bias(0.13, np.int32)],
    "quantised in other steps, Relu": [with_bias(0.13, np.int32), relu],
    "quantised in 8 bits": [with_bias(0.13, np.int8)],
}


def check_bias(name: str, steps: list[Behind], zero: int) -> Conv:
    of_matrices = name.startswith(("Gemm", "MatMul"))
    piece = Piece((9,) if of_matrices else (4, 5, 5) if steps == [grouped] else (3, 6, 6))
    tensor = piece.real()
    for step in steps:
        tensor = step(piece, tensor)
    model = piece.model(piece.quantise(tensor, 0.11, zero))
    network = check(model, piece.frames(60))
    return next(layer for layer in network.layers if isinstance(layer, Conv))


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("zero", [0, 9])
def test_rounded(name: str, zero: int) -> None:
    assert check_bias(name, ROUNDED[name], zero).fraction == 0


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("zero", [0, 9])
def test_kept(name: str, zero: int) -> None:
    assert check_bias(name, KEPT[name], zero).fraction > 0
