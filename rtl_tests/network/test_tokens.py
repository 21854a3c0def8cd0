"""Linear layers on tokens, in the forms of exporters and of pre-processing: every value against ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from pieces import Piece, check
from referees import integer_session
from refusals import refusals_in

import hwgen
from hwgen.errors import ModelError
from hwgen.network import golden, host
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv
from hwgen.network.quantise import prepare_inputs

TOKENS, INPUTS, OUTPUTS = 6, 10, 5
SCALE, ZERO = 0.372113, 7
Form = Callable[[Piece, str, str], str]
"""Function that adds a linear layer with a bias (empty: none) to a tensor, and returns its output."""


def batch(piece: Piece) -> int:
    return piece.batch if isinstance(piece.batch, int) else -1


def rows(piece: Piece, tensor: str) -> str:
    return piece.node("Reshape", tensor, np.array([-1, piece.shape[-1]]))


def apart(piece: Piece, tensor: str) -> str:
    return piece.node("Reshape", tensor, np.array([batch(piece), *piece.shape[:-1], OUTPUTS]))


def gemm(piece: Piece, tensor: str, bias: str, **attributes: Any) -> str:
    shape = (OUTPUTS, INPUTS) if attributes.get("transB") else (INPUTS, OUTPUTS)
    return piece.node("Gemm", tensor, piece.weights(shape), *([bias] if bias else []), **attributes)


def matmul(piece: Piece, tensor: str, bias: str) -> str:
    product = piece.node("MatMul", tensor, piece.weights((INPUTS, OUTPUTS)))
    return piece.node("Add", product, bias) if bias else product


def with_gemm(**attributes: Any) -> Form:
    return lambda piece, tensor, bias: apart(piece, gemm(piece, rows(piece, tensor), bias, **attributes))


def preprocessed(piece: Piece, tensor: str, bias: str) -> str:
    """With quantisers behind the Reshape and behind the Gemm, as `quant_pre_process` and then `quantize_static` do."""
    inside = piece.requantise(rows(piece, tensor), *piece.label)
    return apart(piece, piece.requantise(gemm(piece, inside, bias), SCALE, ZERO))


def with_shape(piece: Piece, tensor: str, bias: str) -> str:
    """With a shape that the model computes from the number of frames."""
    frames = piece.node("Gather", piece.node("Shape", "x"), np.array([0]))
    shape = piece.node("Concat", frames, np.array([TOKENS, OUTPUTS]), axis=0)
    return piece.node("Reshape", gemm(piece, rows(piece, tensor), bias), shape)


def transposed(piece: Piece, tensor: str, bias: str) -> str:
    """Rows that a Transpose makes columns, and ``transA`` rows again."""
    return apart(piece, gemm(piece, piece.node("Transpose", rows(piece, tensor), perm=[1, 0]), bias, transA=1))


def tokens_first(piece: Piece, tensor: str, bias: str) -> str:
    """(T, N, C), as in many transformers."""
    turned = piece.node("Transpose", tensor, perm=[1, 0, 2])
    return piece.node("Transpose", matmul(piece, turned, bias), perm=[1, 0, 2])


def without_batch(piece: Piece, tensor: str, bias: str) -> str:
    product = gemm(piece, piece.node("Squeeze", tensor, np.array([0])), bias)
    return piece.node("Unsqueeze", product, np.array([0]))


FORMS: dict[str, Form] = {
    "MatMul, Add": matmul,
    "Reshape, Gemm, Reshape": with_gemm(transB=1),
    "with quantisers inside": preprocessed,
    "Reshape, MatMul, Add, Reshape": lambda piece, tensor, bias: apart(piece, matmul(piece, rows(piece, tensor), bias)),
    "Flatten": lambda piece, tensor, bias: apart(
        piece, gemm(piece, piece.node("Flatten", tensor, axis=len(piece.shape)), bias)
    ),
    "computed shape": with_shape,
    "alpha": with_gemm(alpha=0.37),
    "beta": with_gemm(beta=0.41),
    "alpha and beta": with_gemm(alpha=1.7, beta=2.3, transB=1),
    "transA": transposed,
    "tokens first": tokens_first,
    "without batch": without_batch,
}
OF_ONE_FRAME = {"transA", "tokens first", "without batch"}


def bias_of(piece: Piece, kind: str) -> str:
    """A bias of floats, or of integers in steps of the sums or in others."""
    if kind in ("none", "floats"):
        return piece.floats(OUTPUTS, deviation=20) if kind == "floats" else ""
    integers = piece.constant(piece.random.integers(-30, 31, OUTPUTS), np.int32)
    step = np.float32({"steps": 0.7, "other steps": 0.913}[kind])
    return piece.node("DequantizeLinear", integers, step, np.array(0, np.int32))


def model_of(form: str, size: int | str, bias: str, shape: tuple[int, ...] = (TOKENS, INPUTS)) -> tuple[Any, Piece]:
    piece = Piece(shape, zero=40, batch=size)
    return piece.model(piece.quantise(FORMS[form](piece, piece.real(), bias_of(piece, bias)), SCALE, ZERO)), piece


@pytest.mark.parametrize("form", FORMS)
def test_equals_onnx_runtime(form: str) -> None:
    for size in [1] if form in OF_ONE_FRAME else ["n", 3]:
        check_form(form, size, "floats")


@pytest.mark.long
@pytest.mark.parametrize("bias", ["none", "steps", "other steps"])
@pytest.mark.parametrize("form", FORMS)
def test_biases(form: str, bias: str) -> None:
    check_form(form, 1 if form in OF_ONE_FRAME else "n", bias)


def check_form(form: str, size: int | str, bias: str) -> None:
    model, piece = model_of(form, size, bias)
    (layer,) = check(model, piece.frames(size if isinstance(size, int) else 60)).layers
    assert isinstance(layer, Conv)
    assert layer.weights.size * layer.output.height * layer.output.width == TOKENS * INPUTS * OUTPUTS


def test_rows_at_the_end() -> None:
    """An output whose first dimension holds the frames and the tokens, as ONNX Runtime gives it."""
    piece = Piece((TOKENS, INPUTS), zero=40)
    model, frames = (
        piece.model(piece.quantise(gemm(piece, rows(piece, piece.real()), ""), SCALE, ZERO)),
        piece.frames(4),
    )
    network = to_network(model, "model")
    outputs = host.outputs(network, golden.run(network, prepare_inputs(network, frames)), 0)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(host.as_by_runtime(network, model.graph.output[0].name, outputs), theirs)


@settings(max_examples=8, deadline=None)
@given(
    form=st.sampled_from(["MatMul, Add", "Reshape, Gemm, Reshape", "Flatten", "with quantisers inside"]),
    shape=st.lists(st.integers(1, 7), max_size=2),
    bias=st.sampled_from(["none", "floats", "steps"]),
)
def test_shapes(form: str, shape: list[int], bias: str) -> None:
    """Of any number of dimensions of tokens."""
    model, piece = model_of(form, "n", bias, (*shape, INPUTS))
    check(model, piece.frames(20))


@pytest.mark.parametrize("operator", ["QGemm", "QLinearMatMul"])
@pytest.mark.parametrize("alpha", [1.0, 0.37])
def test_operators_on_integers(operator: str, alpha: float) -> None:
    piece = Piece((TOKENS, INPUTS), zero=40, batch=1)

    def label(scale: float, zero: int, kind: type = np.uint8) -> list[Any]:
        return [np.float32(scale), np.array(zero, kind)]

    weights = piece.random.integers(-60, 61, (INPUTS, OUTPUTS)).astype(np.int8)
    operands = [rows(piece, "x"), *label(*piece.label), weights, *label(0.013, 0, np.int8)]
    if operator == "QGemm":
        bias = piece.random.integers(-3000, 3000, OUTPUTS).astype(np.int32)
        more = {"domain": "com.microsoft", "alpha": alpha}
        product = piece.node(operator, *operands, bias, *label(SCALE, ZERO), **more)
    else:
        product = piece.node(operator, *operands, *label(SCALE * alpha, ZERO))
    model = piece.model(apart(piece, product), opsets=[helper.make_opsetid("com.microsoft", 1)])
    output = helper.make_tensor_value_info(model.graph.output[0].name, onnx.TensorProto.UINT8, (1, TOKENS, OUTPUTS))
    model.graph.output[0].CopyFrom(output)
    check(model, piece.frames(1))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("form", ["MatMul, Add", "with quantisers inside"])
def test_mean_of_tokens(form: str, keep: int) -> None:
    """A classifier on the mean of all tokens."""
    piece = Piece((TOKENS, INPUTS), zero=40)
    tensor = piece.requantise(FORMS[form](piece, piece.real(), bias_of(piece, "floats")), SCALE, ZERO)
    mean = piece.requantise(piece.node("ReduceMean", tensor, np.array([1]), keepdims=keep), 0.219733, 9)
    network = check(piece.model(piece.quantise(matmul_of(piece, mean, 4), 0.71317, 3)), piece.frames(60))
    assert [layer.kind for layer in network.layers] == ["conv", "globalaveragepool", "conv"]


def matmul_of(piece: Piece, tensor: str, outputs: int) -> str:
    return piece.node("MatMul", tensor, piece.weights((OUTPUTS, outputs)))


def test_perceptron_of_rows() -> None:
    """Layers, normalisation, functions and a sum, all on rows."""
    piece = Piece((TOKENS, INPUTS), zero=40)
    tensor = rows(piece, piece.real())
    hidden = piece.node("Gemm", tensor, piece.weights((INPUTS, 16)))
    parameters = [piece.random.uniform(0.8, 1.3, 16).astype(np.float32) for _ in range(4)]
    hidden = piece.requantise(piece.node("Relu", piece.node("BatchNormalization", hidden, *parameters)), 0.91317)
    back = piece.requantise(piece.node("Gemm", hidden, piece.weights((16, INPUTS), scale=0.1)), 0.83119, 11)
    total = piece.requantise(piece.node("Add", back, tensor), 1.17331, 20)
    gate = piece.node("Mul", total, piece.node("Sigmoid", total))
    end = piece.node("Reshape", piece.quantise(gate, 0.9, 5), np.array([-1, TOKENS, INPUTS]))
    kinds = [layer.kind for layer in check(piece.model(end), piece.frames(60)).layers]
    assert kinds == ["copy", "conv", "conv", "add", "lookup"]


@pytest.mark.parametrize(("operator", "attributes", "how", "message"), refusals_in("rows_of_tokens.txt"))
def test_refused(operator: str, attributes: dict[str, Any], how: dict[str, Any], message: str) -> None:
    piece = Piece((TOKENS, INPUTS), zero=40, batch=how.get("batch", "n"))
    tensor = piece.node("Reshape", piece.real(), np.array(how.get("shape", [-1, INPUTS])))
    more = {"Concat": [tensor], "Gemm": [piece.weights((INPUTS, OUTPUTS)), piece.floats(OUTPUTS)]}.get(operator, [])
    model = piece.model(piece.quantise(piece.node(operator, tensor, *more, **attributes), SCALE, ZERO))
    with pytest.raises(ModelError, match=message):
        to_network(model, "model")


def test_until_rows(tmp_path: Path) -> None:
    """The host takes over at a tensor whose first dimension holds the frames and the tokens."""
    model, piece = model_of("with quantisers inside", "n", "steps")
    frames = piece.frames(3).astype(np.uint8)
    onnx.save(model, tmp_path / "model.onnx")
    end = next(
        node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear" and "Gemm" in node.input[0]
    )
    part = hwgen.load(tmp_path / "model.onnx", until=end)
    np.testing.assert_array_equal(part.golden(frames), hwgen.load(tmp_path / "model.onnx").golden(frames))


@pytest.mark.long
def test_in_verilog(tmp_path: Path) -> None:
    model, piece = model_of("with quantisers inside", "n", "floats")
    onnx.save(model, tmp_path / "model.onnx")
    plan = hwgen.load(tmp_path / "model.onnx").plan("zedboard", dsp=10, multipliers="dsp", template="stream")
    result = plan.simulate(piece.frames(3), simulator="verilator")
    assert result.mismatches == 0
    assert result.as_predicted
