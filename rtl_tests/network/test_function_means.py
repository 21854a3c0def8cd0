"""Averages of a function of one value, which ONNX Runtime computes in floats: the mean of its floats, rounded once.

Referee: ONNX Runtime on the whole model. Its float32 sums round on the way; no value here is so near to a tie that this
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given
from pieces import Piece, compared

import hwgen
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.onnx.function_means import Digits
from hwgen.network.onnx.importer import to_network


def _normalised(piece: Piece, tensor: str) -> str:
    """BatchNormalization and Relu, with parameters for each channel."""
    channels = piece.shape[0]
    positive = [np.float32(piece.random.uniform(0.5, 2, channels)) for _ in range(2)]
    others = [np.float32(piece.random.normal(size=channels)) for _ in range(2)]
    return piece.node("Relu", piece.node("BatchNormalization", tensor, positive[0], *others, positive[1]))


FUNCTIONS: dict[str, Callable[[Piece, str], str]] = {
    "normalised": _normalised,
    "softplus": lambda piece, tensor: piece.node("Softplus", tensor),
    "tanh": lambda piece, tensor: piece.node("Tanh", tensor),
    "silu": lambda piece, tensor: piece.node("Mul", tensor, piece.node("Sigmoid", tensor)),
    "hardswish": lambda piece, tensor: piece.node("HardSwish", tensor),
    "clip": lambda piece, tensor: piece.node("Clip", tensor, np.float32(-0.37), np.float32(1.23)),
}

AVERAGES: dict[str, Callable[[Piece, str], str]] = {
    "global": lambda piece, tensor: piece.node("GlobalAveragePool", tensor),
    "reduce": lambda piece, tensor: piece.node("ReduceMean", tensor, np.array([2, 3]), keepdims=0),
    "windows": lambda piece, tensor: piece.node("AveragePool", tensor, kernel_shape=[2, 3], strides=[2, 1]),
    "padded": lambda piece, tensor: piece.node(
        "AveragePool", tensor, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
    ),
}


def _model(function: str, average: str, shape: tuple[int, int, int], kind=np.int8) -> tuple[onnx.ModelProto, Piece]:
    piece = Piece(shape, kind, scale=0.0317, zero=5)
    mean = AVERAGES[average](piece, FUNCTIONS[function](piece, piece.real()))
    return piece.model(piece.quantise(mean, 0.00731, 3, kind)), piece


def _kinds(network: Network) -> list[str]:
    """Return the kinds of layers, without the copies of an input that several layers read."""
    return [layer.kind for layer in network.layers if layer.kind != "copy"]


def _frames(piece: Piece, count: int) -> np.ndarray:
    """Return frames whose channels have different means, so that averages differ, too."""
    limits = np.iinfo(piece.kind)
    x = piece.frames(count) * 0.3 + piece.random.normal(0, 50, (count, piece.shape[0], 1, 1))
    return np.clip(x, limits.min, limits.max).astype(piece.kind)


PAIRS = [
    (function, average)
    for row, function in enumerate(FUNCTIONS)
    for column, average in enumerate(AVERAGES)
    if (row + column) % 2
]


@pytest.mark.parametrize(("function", "average"), PAIRS)
def test_equals_onnx_runtime(function: str, average: str) -> None:
    whole = average in ("global", "reduce")
    model, piece = _model(function, average, (8, 7, 7), np.int8 if len(function) % 2 else np.uint8)
    network, difference, _ = compared(model, _frames(piece, 500 if whole else 60))
    assert _kinds(network) == ["lookup"] * 4 + ["concat", *(["globalaveragepool"] if whole else []), "select", "conv"]
    assert not difference.any()


@pytest.mark.parametrize(("side", "digits"), [(16, 4), (17, 5), (32, 6), (64, 8)])
def test_large_maps(side: int, digits: int) -> None:
    """Digits are narrower where more of them are summed in 16 bits; here all of them are extreme."""
    model, piece = _model("softplus", "global", (2, side, side))
    extreme = np.repeat(np.array([-128, 127], np.int8), 2).reshape(2, 2, 1, 1)
    x = np.concatenate([np.broadcast_to(extreme, (2, 2, side, side)), _frames(piece, 20)])
    network, difference, _ = compared(model, x)
    assert _kinds(network).count("lookup") == digits
    assert not difference.any()


def test_floats_of_few_bits_are_exact() -> None:
    """Scales are powers of two, and so are ONNX Runtime's sums exact: halves are halves. One digit is enough."""
    piece = Piece((4, 4, 4), np.int8, scale=2.0**-2, zero=0)
    floor = piece.node("Floor", piece.real())
    model = piece.model(piece.quantise(piece.node("GlobalAveragePool", floor), 2.0**-1, 1, np.int8))
    network, difference, _ = compared(model, _frames(piece, 500))
    assert not difference.any()
    assert _kinds(network) == ["lookup", "globalaveragepool", "conv"]
    outputs = host.outputs(network, golden.run(network, _frames(piece, 500)), 0)
    assert len(np.unique(outputs)) > 10


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
    st.integers(4, 8),
)
def test_digits(values: list[float], bits: int) -> None:
    table = np.array([values], np.float32)
    digits = Digits.of(table, bits)
    half = 1 << bits - 1
    assert -half <= digits.values.min() <= digits.values.max() < half
    found = sum((digits.values[place] << bits * place for place in range(len(digits.values))), np.int64(0))
    error = np.abs(found * digits.unit - table.astype(np.float64))
    # 32 bits, one of them the sign; a power of two as unit takes another one at most.
    assert error.max() <= np.abs(table).max() * 2.0**-30
    assert prod(digits.values.shape[1:]) == len(values)


REFUSED: dict[str, tuple[Callable[[Piece], str], str]] = {
    "wide": (
        lambda piece: AVERAGES["global"](piece, FUNCTIONS["clip"](piece, piece.requantise("x", 0.0123, 0, np.int16))),
        "must take a quantised input, but 'Clip.' gives floats; quantise it too: ",
    ),
    "infinite": (
        lambda piece: piece.node("GlobalAveragePool", piece.node("Reciprocal", piece.real())),
        "averages what 'Reciprocal.' gives: NaN or infinity for some integers of its map",
    ),
    "uncounted": (
        lambda piece: piece.node("AveragePool", piece.node("Tanh", piece.real()), kernel_shape=[3, 3], pads=[1] * 4),
        "averages floats with padding that does not count; ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    write, message = REFUSED[name]
    piece = Piece(kind=np.float32 if name == "wide" else np.uint8, opset=21)
    model = piece.model(piece.quantise(write(piece), 0.0171, 100))
    with pytest.raises(hwgen.ModelError, match=rf"^model: \w+ node '\w+': {message}") as error:
        to_network(model, "model")
    assert "\n" not in str(error.value)


def test_too_many_pixels() -> None:
    model, _ = _model("softplus", "global", (2, 65, 64))
    with pytest.raises(hwgen.ModelError, match="averages floats over 4,160 pixels; quantise its input, "):
        to_network(model, "model")


@pytest.mark.long
@pytest.mark.parametrize(("function", "average"), [("normalised", "global"), ("tanh", "windows")])
def test_in_hardware(function: str, average: str, tmp_path) -> None:
    model, piece = _model(function, average, (4, 5, 6))
    onnx.save(model, tmp_path / "model.onnx")
    result = hwgen.load(tmp_path / "model.onnx").plan("zedboard").simulate(_frames(piece, 3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted
