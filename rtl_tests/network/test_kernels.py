"""What ONNX Runtime's kernels are for convolutions and products, and how sums are rounded to float32 next to ties.

A bias of int32 has a scale. ONNX Runtime's integer kernels add the integers as they are, whatever that scale is: of a
Conv only where it is near x_scale * w_scale, of a Gemm always. Biases are so large here that their scale shows in many
values.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import verilated
from needs import needs_compiler
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from pieces import RARELY, Piece, compared
from referees import integer_session
from verilated import Pairs, at_ends, beside, by_float32, join

from hwgen.gateware.requantise import RequantiseConfig
from hwgen.network.maps import Requantisation, requantise
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.runtime import Kernels
from hwgen.network.ops import Conv

Make = Callable[[Piece, str, float], str]
X_SCALE, W_SCALE = 0.0123, np.float32(0.0034)
UNIT = np.float32(np.float32(X_SCALE) * W_SCALE)


def weights(piece: Piece, *shape: int, axis: int | None = None, kind: Any = np.int8) -> str:
    """Dequantised integers up to 90, with one scale or, along ``axis``, with equal ones."""
    least = 0 if kind == np.uint8 else -90
    integers = piece.constant(piece.random.integers(least, 91, shape), kind)
    scale = W_SCALE if axis is None else np.full(shape[axis], W_SCALE)
    return piece.node("DequantizeLinear", integers, scale, np.zeros(np.shape(scale), kind), axis=axis or 0)


def bias(piece: Piece, shape: Any, scales: Any, zero: int = 0) -> str:
    """Dequantised int32."""
    integers = piece.constant(piece.random.integers(-300_000, 300_000, shape), np.int32)
    scales = np.asarray(scales, np.float32)
    return piece.node("DequantizeLinear", integers, scales, np.full(scales.shape, zero, np.int32), axis=0)


def conv(piece: Piece, tensor: str, ratio: float, **attributes: Any) -> str:
    return piece.node("Conv", tensor, weights(piece, 4, 3, 3, 3), bias(piece, 4, UNIT * ratio), **attributes)


def gemm(piece: Piece, tensor: str, ratio: float, **attributes: Any) -> str:
    return piece.node("Gemm", tensor, weights(piece, 108, 5), bias(piece, 5, UNIT * ratio), **attributes)


def product(piece: Piece, tensor: str, ratio: float, shape: Any = 5) -> str:
    matrix = weights(piece, piece.shape[-1], 5)
    return piece.node("Add", piece.node("MatMul", tensor, matrix), bias(piece, shape, UNIT * ratio))


def then(make: Make, operator: str, *inputs: Any, **attributes: Any) -> Make:
    return lambda piece, tensor, ratio: piece.node(operator, make(piece, tensor, ratio), *inputs, **attributes)


CONVOLUTIONS: dict[str, Make] = {
    "one scale": conv,
    "scales of channels": lambda p, t, r: p.node(
        "Conv", t, weights(p, 4, 3, 3, 3, axis=0), bias(p, 4, np.full(4, UNIT * r))
    ),
    "scales of the bias's channels": lambda p, t, r: p.node(
        "Conv", t, weights(p, 4, 3, 3, 3), bias(p, 4, UNIT * np.array([1, r, 1, 1]))
    ),
    "one scale for weights of several": lambda p, t, r: p.node(
        "Conv", t, weights(p, 4, 3, 3, 3, axis=0), bias(p, 4, UNIT * r)
    ),
    "zero point": lambda p, t, r: p.node("Conv", t, weights(p, 4, 3, 3, 3), bias(p, 4, UNIT * r, 70_000)),
    "depthwise": lambda p, t, r: p.node("Conv", t, weights(p, 3, 1, 3, 3), bias(p, 3, UNIT * r), group=3),
    "unsigned weights": lambda p, t, r: p.node("Conv", t, weights(p, 4, 3, 3, 3, kind=np.uint8), bias(p, 4, UNIT * r)),
    "Relu": then(conv, "Relu"),
    "Clip": then(conv, "Clip", np.float32(0), np.float32(6)),
    "MaxPool": then(conv, "MaxPool", kernel_shape=[2, 2]),
    "Relu, MaxPool": then(then(conv, "Relu"), "MaxPool", kernel_shape=[2, 2]),
    "Reshape": then(conv, "Reshape", np.array([0, 4, 16])),
    "Flatten": then(conv, "Flatten"),
    "Mul": then(conv, "Mul", np.float32(0.7)),
    "Add": lambda p, t, r: p.node("Add", p.node("Conv", t, weights(p, 4, 3, 3, 3)), bias(p, (4, 1, 1), UNIT * r)),
    "ConvTranspose": lambda p, t, r: p.node(
        "ConvTranspose", t, weights(p, 3, 4, 3, 3), bias(p, 4, UNIT * r), strides=[2, 2]
    ),
}
PRODUCTS: dict[str, Make] = {
    "Gemm": gemm,
    "Gemm, transposed": lambda p, t, r: p.node("Gemm", t, weights(p, 5, 108), bias(p, 5, UNIT * r), transB=1),
    "Gemm, scales of channels": lambda p, t, r: p.node(
        "Gemm", t, weights(p, 108, 5, axis=1), bias(p, 5, np.full(5, UNIT * r))
    ),
    "Gemm, zero point": lambda p, t, r: p.node("Gemm", t, weights(p, 108, 5), bias(p, 5, UNIT * r, 70_000)),
    "Gemm, bias of two dimensions": lambda p, t, r: p.node("Gemm", t, weights(p, 108, 5), bias(p, (1, 5), UNIT * r)),
    "Gemm, bias of one number": lambda p, t, r: p.node("Gemm", t, weights(p, 108, 5), bias(p, 1, UNIT * r)),
    "Gemm, Relu": then(gemm, "Relu"),
    "Gemm, Reshape": then(gemm, "Reshape", np.array([0, 5, 1])),
    "MatMul, Add": product,
    "MatMul, Add, Relu": then(product, "Relu"),
    "MatMul, Add of two dimensions": lambda p, t, r: product(p, t, r, (1, 5)),
    "MatMul, Add of one number": lambda p, t, r: product(p, t, r, 1),
}
ONE_ULP = 1 + 2**-22
RATIOS = [1.009, 1.5]


def check_bias(make: Make, shape: tuple[int, ...], kind: Any = np.uint8, result: Any = np.uint8, zero: int = 0) -> None:
    """All values are ONNX Runtime's. Where it has floats, 1 in 10,000 may differ, by 1."""
    for ratio in RATIOS:
        piece = Piece(shape, kind, scale=X_SCALE)
        model = piece.model(piece.quantise(make(piece, piece.real(), ratio), 0.05, zero, result))
        network, difference, floats = compared(model, piece.frames(15))
        rarely = max(1, difference.size // RARELY) if floats else 0
        assert difference.max() <= 1
        assert (difference > 0).sum() <= rarely, f"{ratio}: {(difference > 0).sum()} of {difference.size:,}"
        assert bool(network.in_floats) == bool(floats or gives_floats(model))


def gives_floats(model: Any) -> bool:
    """Whether ONNX Runtime has sums of integers, but floats behind them."""
    nodes = integer_session(model)[1].graph.node
    return any(
        node.op_type == "MatMulIntegerToFloat" or (node.op_type == "QGemm" and len(node.input) < 8) for node in nodes
    )


@pytest.mark.parametrize("zero", [0, 100])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_biases_of_convolutions(name: str, zero: int) -> None:
    check_bias(CONVOLUTIONS[name], (3, 6, 6), zero=zero)


@pytest.mark.parametrize("zero", [0, 100])
@pytest.mark.parametrize("name", PRODUCTS)
def test_biases_of_products(name: str, zero: int) -> None:
    check_bias(PRODUCTS[name], (108,), zero=zero)


def test_biases_of_tokens() -> None:
    """An Add behind a product of three dimensions stays one."""
    check_bias(product, (12, 9))


@pytest.mark.parametrize(("kind", "result"), [(np.int8, np.int8), (np.uint8, np.int8), (np.int8, np.uint8)])
def test_types(kind: Any, result: Any) -> None:
    check_bias(conv, (3, 6, 6), kind, result)


def test_a_few_ulps() -> None:
    """About 1 in 1,000 values would be another if the bias were what its scale says."""
    piece = Piece((3, 6, 6), scale=X_SCALE)
    model = piece.model(piece.quantise(conv(piece, piece.real(), 1 + 2**-18), 0.05))
    _, difference, floats = compared(model, piece.frames(100))
    assert not floats
    assert not difference.any()


@pytest.mark.parametrize("ratio", [1, ONE_ULP, *RATIOS])
@pytest.mark.parametrize(
    "name", ["Gemm", "MatMul, Add", "Gemm, bias of two dimensions", "Gemm, zero point", "Gemm, scales of channels"]
)
def test_biases_of_float_outputs(name: str, ratio: float) -> None:
    """ONNX Runtime adds the integers where no QuantizeLinear follows, too; every bit is equal."""
    piece = Piece((108,), scale=X_SCALE)
    _, difference, _ = compared(piece.model(PRODUCTS[name](piece, piece.real(), ratio)), piece.frames(15))
    assert not difference.any()


def nearest_beyond(x_scale: np.float32, w_scale: np.float32, up: bool) -> np.float32:
    """The scale of a bias that is nearest to x_scale * w_scale, and of which ONNX Runtime does not fuse the Conv.

    It fuses where the difference is at most 1e-6 + 0.01 * x_scale * w_scale, in float32.
    """
    unit = x_scale * w_scale
    most = np.float32(1e-6) + np.float32(0.01) * unit
    scale = unit + most if up else unit - most
    away = np.float32(np.inf if up else 0)
    while np.abs(scale - unit) > most:
        scale = np.nextafter(scale, unit)
    while np.abs(scale - unit) <= most:
        scale = np.nextafter(scale, away)
    return scale


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(("x_scale", "w_scale"), [(0.0123, 0.0034), (0.01, 0.001), (0.31, 0.7), (3.7, 9.1)])
def test_where_convolutions_are_fused(x_scale: float, w_scale: float, up: bool) -> None:
    """The rule that docs/reference/numbers.md states holds to the last bit, on either side."""
    factors = np.float32(x_scale), np.float32(w_scale)
    beyond = nearest_beyond(*factors, up)
    fused = []
    for scale in (np.nextafter(beyond, factors[0] * factors[1]), beyond):
        piece = Piece((3, 6, 6), scale=x_scale)
        node = piece.node("Conv", piece.real(), piece.weights((4, 3, 3, 3), scale=w_scale), bias(piece, 4, scale))
        model = piece.model(piece.quantise(node, 100 * x_scale * w_scale))
        fused.append("QLinearConv" in {other.op_type for other in integer_session(model)[1].graph.node})
        (conv_node,) = (other for other in model.graph.node if other.op_type == "Conv")
        assert Kernels(model, is_optimised=True).takes_bias_integers(conv_node) == fused[-1]
    assert fused == [True, False]


def test_a_scale_that_is_far_off_is_named() -> None:
    piece = Piece((108,), scale=X_SCALE)
    model = piece.model(piece.quantise(gemm(piece, piece.real(), 1.5), 0.05))
    (warning,) = to_network(model, "far").warnings
    assert "scale 6.273e-05" in warning
    assert "x_scale * w_scale = 4.182e-05" in warning
    assert not to_network(model_of(conv, 1.009), "near").warnings


def model_of(make: Make, ratio: float) -> Any:
    piece = Piece((3, 6, 6), scale=X_SCALE)
    return piece.model(piece.quantise(make(piece, piece.real(), ratio), 0.05))


def test_the_bias_has_no_fraction() -> None:
    """The engine takes biases in whole steps only."""
    (layer,) = to_network(model_of(conv, ONE_ULP), "one ulp").layers
    assert isinstance(layer, Conv)
    assert layer.fraction == 0


# Layers in floats.


def shared_kernel(scale: float) -> Any:
    """Two depthwise convolutions whose weights are one dequantised tensor behind a Transpose."""
    piece = Piece((3, 8, 8), scale=0.01, zero=128, batch=1)
    integers = piece.constant(piece.random.integers(-60, 61, (3, 3, 1, 3)), np.int8)
    scales = np.float32([0.004, 0.012, 0.02])
    kernel = piece.node("DequantizeLinear", integers, scales, np.zeros(3, np.int8), axis=3)
    kernel = piece.node("Transpose", kernel, perm=[3, 2, 0, 1])
    tensor = piece.real()
    for _ in range(2):
        tensor = piece.node("Conv", tensor, kernel, group=3, pads=[1, 1, 1, 1])
        tensor = piece.requantise(tensor, scale, 128)
    return piece.model(tensor)


@pytest.mark.parametrize("scale", [0.02, 0.0213])
def test_a_shared_kernel_behind_a_transpose(scale: float) -> None:
    """ONNX Runtime has both in floats. With simple ratios of scales many results are nearly ties."""
    model = shared_kernel(scale)
    network = to_network(model, "shared")
    assert [layer.name for layer in network.in_floats] == [layer.name for layer in network.layers]
    assert all(layer.largest_difference == 1 and 0 < layer.error < 0.01 for layer in network.in_floats)


def test_the_bound_holds() -> None:
    """Of one convolution with simple ratios: differences are at most 1, and only next to the middle of two integers."""
    piece = Piece((3, 12, 12), scale=0.02, zero=100)
    kernel = piece.weights((8, 3, 3, 3), scale=0.01, most=60)
    tensor = piece.node("Relu", piece.node("Conv", piece.real(), kernel))
    model = piece.model(piece.quantise(tensor, 0.05, 100))
    network, difference, floats = compared(model, piece.frames(120))
    ((layer,),) = (network.in_floats,)
    assert floats
    assert 0 < np.count_nonzero(difference) < difference.size / 100
    assert difference.max() == layer.largest_difference == 1
    exact = exact_results(model, piece.frames(120))
    middle = np.abs(exact - np.floor(exact) - 0.5)
    assert middle[difference > 0].max() < layer.error < 0.01


def exact_results(model: Any, frames: np.ndarray) -> np.ndarray:
    """The convolution's results in steps of its output, in float64."""
    arrays = map(numpy_helper.to_array, model.graph.initializer)
    integers = next(array for array in arrays if array.ndim == 4).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(frames.astype(np.float64) - 100, (3, 3), (2, 3))
    sums = np.tensordot(windows, integers, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return sums * 0.02 * 0.01 / 0.05


def tokens(piece: Piece, tensor: str) -> str:
    return piece.node(
        "Add", piece.node("MatMul", tensor, piece.weights((16, 12), scale=0.01, most=90)), piece.floats(12)
    )


def of_gemm(operator: str, *inputs: Any) -> Callable[[Piece, str], str]:
    return lambda piece, tensor: piece.node(
        operator, piece.node("Gemm", tensor, piece.weights((16, 12), scale=0.01, most=90)), *inputs
    )


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (tokens, (24, 16)),
        (of_gemm("Add", np.float32(0.35)), (16,)),
        (of_gemm("Mul", np.float32(0.5)), (16,)),
        (of_gemm("Relu"), (16,)),
    ],
)
def test_floats_behind_sums_of_integers(make: Callable[[Piece, str], str], shape: tuple[int, ...]) -> None:
    """What they lose before the QuantizeLinear is within the bound, too."""
    piece = Piece(shape, scale=0.02, zero=100)
    network, difference, _ = compared(
        piece.model(piece.quantise(make(piece, piece.real()), 0.05, 100)), piece.frames(50)
    )
    ((layer,),) = (network.in_floats,)
    assert difference.max() <= layer.largest_difference == 1


def test_nodes_without_names() -> None:
    piece = Piece((3, 6, 6), scale=X_SCALE)
    first = piece.requantise(piece.node("Relu", conv(piece, piece.real(), 1)), 0.05, 100)
    kernel = weights(piece, 4, 4, 1, 1)
    model = piece.model(piece.quantise(piece.node("Conv", first, kernel), 0.07, 0))
    for node in model.graph.node:
        node.name = ""
    network = to_network(model, "unnamed")
    assert [layer.name for layer in network.in_floats] == [network.layers[0].name]


long = pytest.mark.long


def by_kernel(pairs: Pairs, zero: int) -> np.ndarray:
    """What ONNX Runtime's QLinearConv makes of each pair: the accumulators are biases, the input is zero."""
    count = len(pairs)
    inputs = {
        "x": np.zeros((1, 1, 1, 1), np.uint8),
        "w": np.zeros((count, 1, 1, 1), np.int8),
        "w_scale": pairs.factors,
        "w_zero": np.zeros(count, np.int8),
        "bias": pairs.totals.astype(np.int32),
    }
    one, none = np.ones((), np.float32), np.zeros((), np.uint8)
    constants = {"one": one, "none": none, "zero": np.array(zero, np.uint8)}
    names = ["x", "one", "none", "w", "w_scale", "w_zero", "one", "zero", "bias"]
    initial = [onnx.numpy_helper.from_array(value, name) for name, value in (inputs | constants).items() if name != "x"]
    model = as_model(
        [helper.make_node("QLinearConv", names, ["y"])],
        {"x": (TensorProto.UINT8, (1, 1, 1, 1))},
        {"y": (TensorProto.UINT8, None)},
        initial,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": inputs["x"]})
    return y.reshape(count).astype(np.int64)


def mixed(rng: np.random.Generator, count: int) -> Pairs:
    """Half of the accumulators are below 2**24; some products lie at the very end of a band."""
    ends = min(count // 50, 2000)
    large = count // 2
    return join(at_ends(rng, ends), beside(rng, large, (25, 31)), beside(rng, count - ends - large, (1, 24)))


@pytest.mark.parametrize("millions", [0.2, pytest.param(10, marks=long)])
def test_golden_model(millions: float) -> None:
    """Every pair as ONNX Runtime's kernel has it, and NumPy; the exact product would often give another output."""
    rng = np.random.default_rng(1)
    other = 0
    for start in range(0, round(millions * 1e6), 200_000):
        pairs = mixed(rng, min(200_000, round(millions * 1e6) - start))
        zero = int(rng.integers(0, 256))
        rule: dict[str, Any] = {"significand": pairs.significands, "shift": pairs.shifts, "zero_point": zero}
        rule |= {"low": 0, "high": 255}
        ours = requantise(pairs.totals[:, None], Requantisation(**rule, float32=True), 1 << 31)[:, 0]
        np.testing.assert_array_equal(ours, by_kernel(pairs, zero))
        np.testing.assert_array_equal(ours, np.clip(by_float32(pairs) + zero, 0, 255))
        exact = requantise(pairs.totals[:, None], Requantisation(**rule), 1 << 31)[:, 0]
        other += np.count_nonzero(ours != exact)
    assert other > millions * 50_000


def table(rng: np.random.Generator, channels: int, width: tuple[int, int], ends: float, **shape: Any):
    """A requantiser with one channel a beat, whose every factor has a product next to a tie."""
    some = round(channels * ends)
    pairs = beside(rng, channels - some, width)
    pairs = join(at_ends(rng, some), pairs) if some else pairs
    half = 1 << width[1]
    return RequantiseConfig(
        lanes=1,
        accumulator_bits=width[1] + 2,
        bias=tuple(rng.integers(-half, half, channels).tolist()),
        significand=tuple(pairs.significands.tolist()),
        shift=tuple(pairs.shifts.tolist()),
        beats=tuple((channel,) for channel in range(channels)),
        float32=True,
        **shape,
    )


def totals_of(rng: np.random.Generator, config: RequantiseConfig, rounds: int) -> np.ndarray:
    """``(rounds, channels)`` sums: those nearest to ties, the ends of bands among them, and one more or less."""
    shape = (rounds, config.channels)
    factors = np.ldexp(np.array(config.significand, np.float64), -np.array(config.shift))
    upper = rng.integers(config.low - config.zero_point - 1, config.high - config.zero_point + 3, shape)
    place = np.frexp(np.abs(upper - 0.5))[1] - 1 - 24
    moved = rng.choice([0, 0, 1, -1, 2, -2], shape) * np.ldexp(1.0, place)
    totals = np.rint((upper - 0.5 + moved) / factors) + rng.choice([0, 0, 0, 1, -1], shape)
    bias, half = np.array(config.bias), 1 << (config.accumulator_bits - 1)
    return np.clip(totals, bias - half, bias + half - 1).astype(np.int64)


UINT8 = {"bits": 8, "signed": False, "low": 0, "high": 255}
INT8 = {"bits": 8, "signed": True, "low": -128, "high": 127}
CONFIGS = {
    "uint8, Relu": ({**UINT8, "zero_point": 0}, (16, 21), 0.0),
    "int8, zero point 3": ({**INT8, "zero_point": 3}, (12, 22), 0.0),
    "sums past 2**24": ({**INT8, "zero_point": -7}, (26, 31), 0.0),
    "ends of bands": ({**UINT8, "zero_point": 200}, (8, 20), 0.5),
    "small sums": ({**INT8, "zero_point": -128}, (5, 14), 0.2),
    "one shift, past 2**24": ({**UINT8, "zero_point": 0}, (25, 25), 0.0),
    "bounds inside the type": ({**INT8, "zero_point": 3, "low": 3, "high": 90}, (17, 22), 0.0),
    "bounds on one side": ({**UINT8, "zero_point": 10, "low": 31, "high": 201}, (18, 22), 0.1),
    "four bits": ({"bits": 4, "signed": True, "low": -8, "high": 7, "zero_point": -1}, (15, 20), 0.1),
}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "channels", "rounds"),
    [
        pytest.param("ends of bands", 256, 400, marks=long),
        *(pytest.param(name, 512, 2200, marks=long) for name in CONFIGS),
    ],
)
def test_gateware(name: str, channels: int, rounds: int, tmp_path: Path) -> None:
    """Ten million sums in all in the long run; each compared with NumPy's float32."""
    shape, width, ends = CONFIGS[name]
    rng = np.random.default_rng(channels)
    config = table(rng, channels, width, ends, **shape)
    assert config.ranges.bands.beside
    assert (config.ranges.rounded_bits > 0) == ("past 2**24" in name)
    totals = totals_of(rng, config, rounds)
    factors = np.ldexp(np.array(config.significand, np.float32), -np.array(config.shift, np.int32))
    wanted = np.rint(totals.astype(np.float32) * factors).astype(np.int64) + config.zero_point
    outputs = verilated.requantise(config, (totals - np.array(config.bias)).ravel(), tmp_path)
    np.testing.assert_array_equal(outputs.reshape(wanted.shape), np.clip(wanted, config.low, config.high))
    exact = np.rint(totals * factors.astype(np.float64)).astype(np.int64) + config.zero_point  # nearly
    assert np.count_nonzero(np.clip(exact, config.low, config.high) != outputs.reshape(wanted.shape)) > 50


@pytest.mark.parametrize(
    ("total", "significand", "shift", "output", "exact"),
    [
        # 11184811 / 2**26 is 1/6 + 2**-26 / 3; float32 has steps of 2**-22 from 2 to 4, of 2**-24 from 1/2 to 1.
        (15, 11184811, 26, 2, 3),
        (-15, 11184811, 26, -2, -3),
        (9, 11184811, 26, 2, 2),
        (3, 11184811, 26, 0, 1),
        # Steps of 4 from 2**25 to 2**26: 5 * 2**23 + 1 and, a tie, + 2 become 5 * 2**23; + 3 becomes + 4.
        (5 * 2**23 + 1, 2**23, 47, 2, 3),
        (5 * 2**23 + 2, 2**23, 47, 2, 3),
        (5 * 2**23 + 3, 2**23, 47, 3, 3),
        (-(7 * 2**23) + 1, 2**23, 47, -4, -3),
        (5 * 2**21 + 1, 2**23, 45, 3, 3),
    ],
)
def test_by_hand(total: int, significand: int, shift: int, output: int, exact: int) -> None:
    for float32, wanted in ((True, output), (False, exact)):
        scale = {"significand": np.array([significand]), "shift": np.array([shift])}
        rule = Requantisation(**scale, zero_point=0, low=-128, high=127, float32=float32)
        assert requantise(np.array([[total]]), rule, 1 << 26).item() == wanted
        config = RequantiseConfig(
            lanes=1,
            accumulator_bits=28,
            bias=(0,),
            significand=(significand,),
            shift=(shift,),
            beats=((0,),),
            float32=float32,
            zero_point=0,
            **INT8,
        )
        assert config.compute(0, total) == wanted
