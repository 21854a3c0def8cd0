"""Float weights between a DequantizeLinear and a QuantizeLinear, which ONNX Runtime's optimiser quantises to int8.

Referees: the integers in ONNX Runtime's optimised graph, and its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import numpy_helper
from pieces import RARELY, Piece, compared
from referees import integer_session

import hwgen
from hwgen.network.onnx.float_weights import by_runtime
from hwgen.network.onnx.importer import to_network

Write = Callable[[Piece, str], str]


def _conv(piece: Piece, tensor: str) -> str:
    return piece.node("Conv", tensor, piece.floats(5, 4, 3, 3, deviation=0.2), piece.floats(5))


def _depthwise(piece: Piece, tensor: str) -> str:
    return piece.node("Conv", tensor, piece.floats(4, 1, 3, 3, deviation=0.2), group=4)


def _transposed(piece: Piece, tensor: str) -> str:
    weights = piece.floats(4, 3, 3, 3, deviation=0.2)
    return piece.node("ConvTranspose", tensor, weights, piece.floats(6), strides=[2, 2], group=2)


def _gemm(piece: Piece, tensor: str) -> str:
    flat = piece.node("Reshape", tensor, np.array([0, -1]))
    return piece.node("Gemm", flat, piece.floats(144, 5, deviation=0.1), piece.floats(5))


def _behind(operator: str, write: Write, *constants: Any, **attributes: Any) -> Write:
    return lambda piece, tensor: piece.node(operator, write(piece, tensor), *constants, **attributes)


def _before(operator: str, write: Write, *constants: Any, **attributes: Any) -> Write:
    return lambda piece, tensor: write(piece, piece.node(operator, tensor, *constants, **attributes))


_ONE, _FOUR = np.array([1]), np.array([4])
_TURNED = {"perm": [0, 1, 3, 2]}
_POOLED = {"kernel_shape": [2, 2]}
QUANTISED: dict[str, Write] = {
    "conv": _conv,
    "depthwise": _depthwise,
    "transposed": _transposed,
    "gemm": _gemm,
    "relu": _behind("Relu", _transposed),
    "clip": _behind("Clip", _behind("Relu", _conv), np.float32(0), np.float32(4)),
    "relu, pool": _behind("MaxPool", _behind("Relu", _conv), **_POOLED),
    "pool, transpose": _behind("Transpose", _behind("MaxPool", _transposed, **_POOLED), **_TURNED),
    "slice": _behind("Slice", _conv, _ONE, _FOUR, np.array([2])),
    "behind a pool": _before("MaxPool", _before("Slice", _conv, _ONE, np.array([5]), np.array([2])), **_POOLED),
    "behind a transpose": _before("Transpose", _conv, **_TURNED),
}
FLOATS: dict[str, Write] = {
    "leaky": _behind("LeakyRelu", _conv),
    "pool, relu": _behind("Relu", _behind("MaxPool", _conv, **_POOLED)),
    "sigmoid": _behind("Sigmoid", _transposed),
    "product": lambda piece, tensor: piece.node("MatMul", tensor, piece.floats(6, 5)),
}


def _model(write: Write, kind: Any) -> tuple[onnx.ModelProto, Piece]:
    piece = Piece((4, 6, 6), kind, scale=0.0317)
    return piece.model(piece.quantise(write(piece, piece.real()), 0.0531, 3, kind)), piece


def _runtime_weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the weights that ONNX Runtime's optimiser quantised: integers, scale and zero point, by their endings."""
    _, optimised = integer_session(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in optimised.graph.initializer}
    return {
        ending: values
        for name, values in constants.items()
        for ending in ("weight_q", "weight_scale", "weight_zp")
        if name.endswith(ending)
    }


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", QUANTISED)
def test_equals_onnx_runtime(name: str, kind: Any) -> None:
    model, piece = _model(QUANTISED[name], kind)
    assert len(_runtime_weights(model)) == 3
    network, difference, floats = compared(model, piece.frames(40))
    assert {"conv", "globalaveragepool"}.intersection(layer.kind for layer in network.layers)
    assert (difference > 0).sum() * RARELY <= (difference.size if floats else 0)


@pytest.mark.parametrize("name", FLOATS)
def test_what_onnx_runtime_leaves_in_floats(name: str) -> None:
    model, _ = _model(FLOATS[name], np.uint8)
    assert not _runtime_weights(model)
    with pytest.raises(hwgen.ModelError, match=r"weights '\w+' must be quantised \(int8, .*\), not float; ") as error:
        to_network(model, "model")
    assert "\n" not in str(error.value)


@settings(max_examples=30)
@given(
    st.sampled_from([1e-30, 1e-3, 1.0, 17.3, 1e6]),
    st.sampled_from([-1.0, -0.3, 0.0, 0.2, 2.0]),
    st.integers(0, 1 << 30),
)
def test_integers(size: float, offset: float, seed: int) -> None:
    values = ((np.random.default_rng(seed).normal(size=(2, 4, 3, 3)) + offset) * size).astype(np.float32)
    piece = Piece((4, 6, 6))
    model = piece.model(piece.quantise(piece.node("Conv", piece.real(), values), 0.05 * size))
    theirs = _runtime_weights(model)
    integers, scale, zero = by_runtime(values)
    assert (scale, zero) == (theirs["weight_scale"], theirs["weight_zp"])
    np.testing.assert_array_equal(integers, theirs["weight_q"])


def test_no_weights_at_all() -> None:
    integers, scale, zero = by_runtime(np.zeros((3, 2), np.float32))
    assert (integers == zero).all()
    assert scale == 1
