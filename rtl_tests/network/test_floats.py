"""Floats in quantised models: outputs without a quantiser, float weights, biases, and floats that are moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import numpy_helper
from pieces import RARELY, Piece, check, compared
from referees import UsualSession, integer_session

import hwgen
from hwgen.network.onnx.float_operands import as_runtime_quantises
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv


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
    _, optimised = integer_session(model, UsualSession)  # the precise mode gives weights of int8 other names
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
    integers, scale, zero = as_runtime_quantises(values)
    assert (scale, zero) == (theirs["weight_scale"], theirs["weight_zp"])
    np.testing.assert_array_equal(integers, theirs["weight_q"])


def test_no_weights_at_all() -> None:
    integers, scale, zero = as_runtime_quantises(np.zeros((3, 2), np.float32))
    assert (integers == zero).all()
    assert scale == 1


LABEL = 0.61803, 5
"""Scale and zero point of the output."""


def _moved_conv(piece: Piece, tensor: str, outputs: int = 4) -> str:
    """Add a convolution whose sums stay floats."""
    return piece.node("Conv", tensor, piece.weights((outputs, 3, 3, 3), scale=0.3), piece.floats(outputs), pads=[1] * 4)


def _relu(piece: Piece, tensor: str) -> str:
    return piece.node("Relu", _moved_conv(piece, tensor))


def _function(piece: Piece, tensor: str) -> str:
    return piece.node("LeakyRelu", tensor, alpha=0.3)


def _map(piece: Piece, tensor: str) -> str:
    return tensor


def _sum(piece: Piece, tensor: str) -> str:
    return piece.node("Add", tensor, piece.requantise(_moved_conv(piece, tensor, 3), 0.5, 9))


OPERANDS = [_moved_conv, _relu, _function, _map, _sum]


@pytest.mark.parametrize("first", OPERANDS)
@pytest.mark.parametrize("second", OPERANDS)
def test_concat(first, second) -> None:
    piece = Piece()
    x = piece.real()
    joined = piece.node("Concat", first(piece, x), second(piece, x), axis=1)
    check(piece.model(piece.quantise(joined, *LABEL)), piece.frames(20))


def _behind_conv(piece: Piece, operator: str) -> str:
    sums = _moved_conv(piece, piece.real())
    return {
        "resize": lambda: piece.node(
            "Resize", sums, "", np.float32([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        "depth to space": lambda: piece.node("DepthToSpace", sums, blocksize=2),
        "space to depth": lambda: piece.node("SpaceToDepth", sums, blocksize=2),
        "slice": lambda: piece.node("Slice", sums, np.array([1]), np.array([3]), np.array([1])),
        "gather": lambda: piece.node("Gather", sums, np.array([2, 0]), axis=1),
        "pooled": lambda: piece.node(
            "MaxPool", piece.node("Concat", piece.node("Relu", sums), piece.real(), axis=1), kernel_shape=[2, 2]
        ),
        "twice": lambda: piece.node("DepthToSpace", piece.node("Concat", sums, sums, axis=1), blocksize=2),
        "clipped": lambda: piece.node(
            "Clip", piece.node("Concat", sums, piece.real(), axis=1), np.float32(-1.7), np.float32(6)
        ),
    }[operator]()  # fmt: skip


@pytest.mark.parametrize(
    "operator",
    ["resize", "depth to space", "space to depth", "slice", "gather", "pooled", "twice", "clipped"],
)
@pytest.mark.parametrize("readers", [1, 2])
def test_behind_a_convolution(operator, readers) -> None:
    piece = Piece()
    moved = _behind_conv(piece, operator)
    results = [piece.quantise(moved, *LABEL) for _ in range(readers)]
    last = results[0] if readers == 1 else piece.node("Concat", *results, axis=1)
    if readers == 2:
        reals = [piece.dequantise(result, *LABEL) for result in results]
        last = piece.quantise(piece.node("Concat", *reals, axis=1), 0.71, 4)
    check(piece.model(last), piece.frames(20))


def test_split() -> None:
    piece = Piece()
    sums = _moved_conv(piece, piece.real())
    first = piece.node("Split", sums, np.array([1, 3]), outputs=2, axis=1)
    joined = piece.node("Concat", f"{first}_1", first, axis=1)
    check(piece.model(piece.quantise(joined, *LABEL)), piece.frames(20))


Behind = Callable[[Piece, str], str]


def _conv_with_bias(piece: Piece, tensor: str) -> str:
    return piece.conv(tensor)


def _transposed_with_bias(piece: Piece, tensor: str) -> str:
    return piece.node("ConvTranspose", tensor, piece.weights((3, 4, 3, 3)), piece.floats(4), strides=[2, 2])


def _gemm_with_bias(piece: Piece, tensor: str) -> str:
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
    "Conv": [_conv_with_bias],
    "Conv, Relu": [_conv_with_bias, relu],
    "Conv, Relu, Clip": [_conv_with_bias, relu, clip],
    "Conv, Clip, MaxPool": [_conv_with_bias, clip, pool],
    "Conv, Relu, Reshape": [_conv_with_bias, relu, reshape],
    "Conv, nothing, Relu": [_conv_with_bias, nothing, relu],
    "MaxPool, Conv": [pool, _conv_with_bias],
    "Pad, Conv": [pad, _conv_with_bias],
    "Pad, Pad, nothing, Conv": [pad, pad, nothing, _conv_with_bias],
    "ConvTranspose, Relu": [_transposed_with_bias, relu],
    "Gemm": [_gemm_with_bias],
    "MatMul, Add": [_product, add()],
    "MatMul, Add, Relu": [_product, add(), relu],
    "MatMul to one value, Add": [lambda piece, tensor: _product(piece, tensor, 1), add(1)],
}
KEPT: dict[str, list[Behind]] = {
    "Conv, MaxPool, Relu": [_conv_with_bias, pool, relu],
    "Conv, Reshape, Relu": [_conv_with_bias, reshape, relu],
    "Conv, Relu, Reshape, Relu": [_conv_with_bias, relu, reshape, relu],
    "Conv, Flatten": [_conv_with_bias, flatten],
    "Conv, Tile": [_conv_with_bias, tile],
    "Conv, Mul": [_conv_with_bias, scaled],
    "Gather, Conv": [gather, _conv_with_bias],
    "Gather, Pad, Conv": [gather, pad, _conv_with_bias],
    "Pad, Gather, Conv": [pad, gather, _conv_with_bias],
    "Pad for SAME": [pad, lambda piece, tensor: piece.conv(tensor, auto_pad="SAME_UPPER")],
    "Conv, Add": [lambda piece, tensor: piece.conv(tensor, bias=False), add(4, 4, 1, 1)],
    "ConvTranspose, Flatten": [_transposed_with_bias, flatten],
    "ConvTranspose, Mul": [_transposed_with_bias, scaled],
    "ConvTranspose of groups": [grouped],
    "Gemm, Add": [_gemm_with_bias, add()],
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
