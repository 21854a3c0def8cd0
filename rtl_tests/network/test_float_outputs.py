"""Last convolutions and matrix products without a quantiser: hardware ends at their sums, the host makes floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from pieces import Piece
from referees import integer_session

import hwgen


def _outputs(piece: Piece, model: onnx.ModelProto, folder, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hwgen's and ONNX Runtime's output for frames."""
    onnx.save(model, folder / "model.onnx")
    ours = hwgen.load(folder / "model.onnx").golden(x)
    theirs = np.asarray(integer_session(model)[0].run(None, {"x": x})[0])
    return ours.reshape(theirs.shape), theirs


def _bias(piece: Piece, kind: str, outputs: int, unit: np.ndarray) -> list[str]:
    if kind == "none":
        return []
    if kind in ("float", "added"):
        return [piece.floats(outputs)]
    steps = piece.constant(piece.random.integers(-5000, 5000, outputs), np.int32)
    return [piece.node("DequantizeLinear", steps, unit, np.zeros(unit.shape, np.int32), axis=0)]


def _weights(
    piece: Piece, shape: tuple[int, ...], outputs: int, axis: int, per_channel: bool
) -> tuple[str, np.ndarray]:
    """Add dequantised weights, and return them with the real value of a step of the sums."""
    scale = piece.random.uniform(0.001, 0.01, outputs if per_channel else ()).astype(np.float32)
    integers = piece.constant(piece.random.integers(-127, 128, shape), np.int8)
    attributes = {"axis": axis} if per_channel else {}
    return piece.node("DequantizeLinear", integers, scale, np.zeros(scale.shape, np.int8), **attributes), np.float32(
        piece.label[0]
    ) * scale


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("operator", "bias"), [("Gemm", "none"), ("Gemm", "steps"), ("MatMul", "none")])
def test_matrix_products_are_equal(operator, bias, per_channel, tmp_path) -> None:
    """ONNX Runtime has integer kernels, which scale the sums in float32."""
    piece = Piece((40,), scale=0.0371)
    shape, axis = ((12, 40), 0) if operator == "Gemm" else ((40, 12), 1)
    weights, unit = _weights(piece, shape, 12, axis, per_channel)
    attributes = {"transB": 1} if operator == "Gemm" else {}
    more = _bias(piece, bias, 12, unit) if operator == "Gemm" else []
    last = piece.node(operator, piece.real(), weights, *more, **attributes)
    ours, theirs = _outputs(piece, piece.model(last), tmp_path, piece.frames(200))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("operator", "bias"),
    [("Conv", "none"), ("Conv", "steps"), ("Conv", "float"), ("Gemm", "float"), ("MatMul", "added")],
)
def test_float_kernels(operator, bias, tmp_path) -> None:
    """Where ONNX Runtime adds floats, it differs by the roundings of its additions at most; hwgen's sum is exact."""
    piece = Piece((10, 6, 6) if operator == "Conv" else (40,), scale=0.0371)
    shape, axis = {"Conv": ((12, 10, 2, 2), 0), "Gemm": ((12, 40), 0), "MatMul": ((40, 12), 1)}[operator]
    weights, unit = _weights(piece, shape, 12, axis, True)
    attributes, more = {"transB": 1} if operator == "Gemm" else {}, _bias(piece, bias, 12, unit)
    last = piece.node(operator, piece.real(), weights, *([] if bias == "added" else more), **attributes)
    last = piece.node("Add", last, *more) if bias == "added" else last
    model, x = piece.model(last), piece.frames(50)
    ours, theirs = _outputs(piece, model, tmp_path, x)
    assert (ours != theirs).any()
    # The same model with magnitudes in place of values gives the sum of all |x w|, and of the bias.
    large = onnx.ModelProto()
    large.CopyFrom(model)
    for tensor in large.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.abs(onnx.numpy_helper.to_array(tensor)), tensor.name))
    zero = piece.label[1]
    magnitudes = (np.abs(x.astype(int) - zero) + zero).clip(0, 255).astype(np.uint8)
    sizes = np.asarray(integer_session(large)[0].run(None, {"x": magnitudes})[0])
    assert (np.abs(ours - theirs) <= (40 + 2) * 2.0**-24 * sizes).all()


@pytest.mark.parametrize("behind", [["Relu"], ["Sigmoid"], ["Flatten"], ["Resize"], ["Softmax"]])
def test_operators_behind(behind, tmp_path) -> None:
    piece = Piece()
    sums = piece.node("Conv", piece.real(), piece.weights((4, 3, 3, 3), scale=0.1), pads=[1] * 4)
    for operator in behind:
        more = ["", np.float32([1, 1, 2, 2])] if operator == "Resize" else []
        sums = piece.node(operator, sums, *more)
    model = piece.model(sums)
    ours, theirs = _outputs(piece, model, tmp_path, piece.frames(20))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [layer.kind for layer in hwgen.load(tmp_path / "model.onnx").network.layers] == ["conv"]


def test_in_hardware(tmp_path) -> None:
    piece = Piece()
    hidden = piece.requantise(piece.conv(piece.real(), 4, 3), 2.13, 100)
    model = piece.model(piece.node("Conv", hidden, piece.weights((5, 4, 3, 3), scale=0.1), piece.floats(5)))
    onnx.save(model, tmp_path / "model.onnx")
    result = hwgen.load(tmp_path / "model.onnx").plan("zedboard").simulate(piece.frames(2), simulator="amaranth")
    assert result.mismatches == 0
    assert result.outputs.dtype == np.float32


def test_a_float_layer_in_the_middle_is_refused(tmp_path) -> None:
    piece = Piece()
    sums = piece.node("Conv", piece.real(), piece.weights((4, 3, 3, 3), scale=0.1), pads=[1] * 4)
    weights = piece.constant(piece.random.normal(size=(2, 4, 1, 1)), np.float32)
    model = piece.model(piece.node("Conv", sums, weights))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(hwgen.ModelError, match="Conv node"):
        hwgen.load(tmp_path / "model.onnx")


def test_two_outputs(tmp_path) -> None:
    """Two heads from one map, each of them floats."""
    piece = Piece()
    shared = piece.requantise(piece.node("Relu", piece.conv(piece.real(), 4, 3, pads=[1] * 4)), 1.13)
    heads = [piece.node("Conv", shared, piece.weights((count, 4, 1, 1), scale=0.1)) for count in (2, 3)]
    model = piece.model(*heads)
    onnx.save(model, tmp_path / "model.onnx")
    x = piece.frames(10)
    ours = hwgen.load(tmp_path / "model.onnx").golden(x)
    session = integer_session(model)[0]
    for name, theirs in zip(heads, session.run(heads, {"x": x}), strict=True):
        np.testing.assert_allclose(ours[name], theirs, rtol=1e-4, atol=1e-4)
