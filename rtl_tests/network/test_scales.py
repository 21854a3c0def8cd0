"""Scales that are nearly what they are elsewhere in a model: of a DequantizeLinear, of operators on integers, of Clip.

ONNX Runtime reads integers in the steps that their reader states, not in those with which they were quantised. A bound
of a Clip counts as the end of a quantiser's range if it is quantised to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from pieces import Piece, check, compared
from referees import integer_session

from hwgen.network.maps import INT8, UINT8
from hwgen.network.onnx.builder import moot

Make = Callable[[Piece, np.float32], str]
S = np.float32(0.0137)
RATIOS = [np.float32(1 + 2**-22), np.float32(1.1)]
"""Factors of a scale: one unit in the last place, and a tenth."""


def conv(piece: Piece, tensor: str, outputs: int = 4, channels: int = 3) -> str:
    kernel = piece.weights((outputs, channels, 3, 3), scale=0.0034, most=90)
    return piece.node("Conv", tensor, kernel, pads=[1, 1, 1, 1])


def middle(piece: Piece, ratio: np.float32 | float = 1) -> str:
    """A map quantised in steps of S, dequantised in those of S * ratio."""
    integers = piece.quantise(conv(piece, piece.real()), S, 100)
    return piece.dequantise(integers, S * np.float32(ratio), 100)


def behind(operator: str, scale: np.float32 | float, *inputs: Any, zero: int = 100, **attributes: Any) -> Make:
    """An operator behind the map, and its quantiser."""
    return lambda piece, ratio: piece.quantise(
        piece.node(operator, middle(piece, ratio), *inputs, **attributes), scale, zero
    )


def joined(operator: str, **attributes: Any) -> Make:
    return lambda piece, ratio: piece.quantise(
        piece.node(operator, middle(piece, ratio), middle(piece), **attributes), 0.031, 100
    )


def gate(piece: Piece, ratio: np.float32) -> str:
    tensor = middle(piece, ratio)
    return piece.quantise(piece.node("Mul", tensor, piece.node("Sigmoid", tensor)), 0.01, 20)


def one_map_in_two_steps(piece: Piece, ratio: np.float32) -> str:
    integers = piece.quantise(conv(piece, piece.real()), S, 100)
    sides = [conv(piece, piece.dequantise(integers, scale, 100), 4, 4) for scale in (S, S * ratio)]
    return piece.quantise(piece.node("Concat", *sides, axis=1), 0.031, 100)


def of_the_input(piece: Piece, ratio: np.float32) -> str:
    integers = piece.quantise("x", 0.0123, 3)
    return piece.quantise(conv(piece, piece.dequantise(integers, np.float32(0.0123) * ratio, 3)), S, 100)


READERS: dict[str, Make] = {
    "Conv": lambda p, r: p.quantise(conv(p, middle(p, r), 4, 4), 0.02, 100),
    "Relu": lambda p, r: p.quantise(p.node("Relu", middle(p, r)), S * r, 100),
    "a quantiser of the same steps": lambda p, r: p.quantise(middle(p, r), S * r, 100),
    "a quantiser of the first steps": lambda p, r: p.quantise(middle(p, r), S, 100),
    "two quantisers": lambda p, r: p.quantise(middle(p), S * r, 100),
    "MaxPool": behind("MaxPool", S, kernel_shape=[2, 2]),
    "AveragePool": behind("AveragePool", S, kernel_shape=[2, 2]),
    "GlobalAveragePool": behind("GlobalAveragePool", S),
    "Sigmoid": behind("Sigmoid", 0.004, zero=0),
    "LRN": behind("LRN", S, size=3),
    "Pad": behind("Pad", S, np.array([0, 0, 1, 1, 0, 0, 1, 1])),
    "Pad by nearly a multiple": lambda p, r: p.quantise(
        p.node("Pad", middle(p), np.array([0, 0, 1, 1, 0, 0, 1, 1]), S * np.float32(3) * r), S, 100
    ),
    "Add": joined("Add"),
    "Mul": joined("Mul"),
    "Max": joined("Max"),
    "Concat": joined("Concat", axis=1),
    "gate": gate,
    "one map in two steps": one_map_in_two_steps,
    "the model's end": middle,
}


@pytest.mark.parametrize("name", READERS)
def test_readers_in_other_steps(name: str) -> None:
    for ratio in RATIOS:
        piece = Piece(scale=0.0123)
        model = piece.model(READERS[name](piece, ratio))
        _, difference, _ = compared(model, piece.frames(15))
        assert not difference.any(), f"{(difference > 0).sum()} of {difference.size:,} differ"


def test_steps_of_the_input() -> None:
    """The host quantises in the first steps."""
    for ratio in RATIOS:
        piece = Piece((3, 6, 6), np.float32, scale=0.0123)
        check(piece.model(of_the_input(piece, ratio)), piece.frames(15))


def u8(value: int) -> np.ndarray:
    return np.array(value, np.uint8)


def qlinear_conv(piece: Piece, tensor: str, scale: np.float32 | float, channels: int = 3) -> str:
    kernel = piece.constant(piece.random.integers(-60, 61, (4, channels, 3, 3)), np.int8)
    label = tensor, np.float32(scale), u8(3)
    return piece.node("QLinearConv", *label, kernel, np.float32(0.0034), np.int8(0), S, u8(3), pads=[1, 1, 1, 1])


def microsoft(operator: str, *result: Any, count: int = 1, first: bool = False, **attributes: Any) -> Make:
    """An operator on integers, of which the first map is read in other steps; ``result``: scale and zero point."""

    def make(piece: Piece, ratio: np.float32) -> str:
        maps = [qlinear_conv(piece, "x", 0.0123) for _ in range(count)]
        labels = [each for name, scale in zip(maps, (S * ratio, S), strict=False) for each in (name, scale, u8(3))]
        operands = [*result, *labels] if first else [*labels, *result]
        return piece.node(operator, *operands, domain="com.microsoft", **attributes)

    return make


OF_INTEGERS: dict[str, Make] = {
    "QLinearConv": lambda p, r: qlinear_conv(p, qlinear_conv(p, "x", 0.0123), S * r, 4),
    "QLinearAdd": microsoft("QLinearAdd", np.float32(0.03), u8(9), count=2),
    "QLinearMul": microsoft("QLinearMul", np.float32(0.03), u8(9), count=2),
    "QLinearConcat": microsoft("QLinearConcat", np.float32(0.02), u8(9), count=2, first=True, axis=1),
    "QLinearSigmoid": microsoft("QLinearSigmoid", np.float32(0.004), u8(0)),
    "QLinearGlobalAveragePool": microsoft("QLinearGlobalAveragePool", S, u8(3)),
    "QLinearAveragePool": microsoft("QLinearAveragePool", S, u8(3), kernel_shape=[2, 2]),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_operators_on_integers_in_other_steps(name: str) -> None:
    for ratio in RATIOS:
        piece = Piece(scale=0.0123)
        model = piece.model(OF_INTEGERS[name](piece, ratio), opsets=[helper.make_opsetid("com.microsoft", 1)])
        (output,) = model.graph.output
        output.CopyFrom(helper.make_tensor_value_info(output.name, onnx.TensorProto.UINT8, None))
        session = onnxruntime.InferenceSession(model.SerializeToString())
        shape = session.run(None, {"x": piece.frames(1)})[0].shape
        output.CopyFrom(helper.make_tensor_value_info(output.name, onnx.TensorProto.UINT8, ["n", *shape[1:]]))
        _, difference, _ = compared(model, piece.frames(15))
        assert not difference.any()


# Bounds at the ends of a quantiser's range.


def clipped(scale: float, zero: int, low: float, high: float, kind: Any, operator: str) -> onnx.ModelProto:
    piece = Piece((3, 4, 4), kind, scale=0.0123)
    sides = [piece.real(), piece.requantise(piece.conv(piece.real(), 3, pads=[1, 1, 1, 1]), 0.2, 5, kind)]
    bounded = piece.node("Clip", piece.node(operator, *sides), np.float32(low), np.float32(high))
    return piece.model(piece.quantise(bounded, scale, zero, kind))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("inside", "dropped"), [(-1e6, True), (0, True), (0.49, True), (0.51, False), (3, False)])
@pytest.mark.parametrize("scale", [0.0137, 1e-6, 3e5])
def test_bounds_near_the_ends(scale: float, inside: float, dropped: bool, kind: Any) -> None:
    """ONNX Runtime drops a Clip whose bounds are up to half a step inside the range; then it adds in one kernel."""
    integer_type, zero = (UINT8, 7) if kind == np.uint8 else (INT8, -9)
    ends = [
        np.float32((end - zero + side * inside) * scale)
        for end, side in ((integer_type.minimum, 1), (integer_type.maximum, -1))
    ]
    assert moot([(ends[0], ends[1])], np.float32(scale), zero, integer_type) == dropped
    model = clipped(scale, zero, *ends, kind, "Add")
    operators = {node.op_type for node in integer_session(model)[1].graph.node}
    assert ("QLinearAdd" in operators) == dropped


@pytest.mark.parametrize(("scale", "dropped"), [(1e-8, True), (1e-6, False)])
def test_bounds_that_are_near_the_ends_as_numbers(scale: float, dropped: bool) -> None:
    """ONNX Runtime also drops a Clip whose bounds are within the spacing of float32 at 1; not a Relu."""
    low, high = np.float32(3 * scale), np.float32(250 * scale) if not dropped else np.float32(255 * scale)
    assert moot([(low, high)], np.float32(scale), 0, UINT8) == dropped
    operators = {node.op_type for node in integer_session(clipped(scale, 0, low, high, np.uint8, "Add"))[1].graph.node}
    assert ("QLinearAdd" in operators) == dropped
    assert not moot([(0.0, np.inf)], np.float32(scale), 3, UINT8)


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_values_behind_a_bound_that_is_nearly_the_end(operator: str) -> None:
    """With simple ratios of scales, QLinearAdd's ties are other values' than those of floats."""
    high = np.float32(255 * 0.02) / np.float32(1 + 2**-22)
    piece = Piece((3, 6, 6), scale=0.01, zero=0)
    one, other = (piece.requantise(piece.conv(piece.real()), 0.01, 0) for _ in range(2))
    bounded = piece.node("Clip", piece.node(operator, one, other), np.float32(0), high)
    check(piece.model(piece.quantise(bounded, 0.02, 0)), piece.frames(60))
