"""Averages that ONNX Runtime computes in floats: the exact mean, of integers or of a function, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod

import numpy as np
import onnx
import pytest
from counted import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import Piece, check, compared

import hwgen
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.maps import requantise
from hwgen.network.onnx.average import Digits
from hwgen.network.onnx.importer import to_network
from hwgen.network.rescale import fit_mean


def _mean(piece: Piece, tensor: str, axes, *, keep: int = 1) -> str:
    """Add a ReduceMean, whose axes are an input from opset 18 on."""
    if piece.opset >= 18:
        return piece.node("ReduceMean", tensor, np.array(axes), keepdims=keep)
    return piece.node("ReduceMean", tensor, axes=axes, keepdims=keep)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("opset", "axes", "keep"), [(17, [2, 3], 1), (18, [-1, -2], 0), (21, [3, 2], 1)])
def test_mean_of_a_map(kind, opset, axes, keep) -> None:
    piece = Piece((5, 7, 6), kind, opset=opset)
    mean = _mean(piece, piece.real(), axes, keep=keep)
    network = check(piece.model(piece.quantise(mean, 0.31415927, 5, kind)), piece.frames(60))
    assert [layer.kind for layer in network.layers] == ["globalaveragepool"]


@pytest.mark.parametrize(
    ("shape", "before", "axes"),
    [((4, 9), [], [2]), ((6, 5, 4), [0, 2, 3, 1], [1, 2]), ((6, 5, 4), [0, 1, 3, 2], [2, 3])],
    ids=["one dimension", "channels last", "columns first"],
)
def test_layouts(shape, before, axes) -> None:
    piece = Piece(shape)
    tensor = piece.node("Transpose", piece.real(), perm=before) if before else piece.real()
    check(piece.model(piece.quantise(_mean(piece, tensor, axes, keep=0), 0.41213, 9)), piece.frames(40))


@pytest.mark.parametrize("axes", [[1], [1, 2, 3], [2], [0, 2, 3]])
def test_other_axes_are_refused(axes) -> None:
    piece = Piece()
    tensor = piece.requantise(piece.conv(piece.real(), pads=[1] * 4), 2.1)
    model = piece.model(piece.quantise(_mean(piece, tensor, axes), 0.41213, 9))
    with pytest.raises(
        hwgen.ModelError, match=r"ReduceMean node .* must average rows and columns of each channel, not"
    ):
        to_network(model, "model")


def _of_a_pixel(operator: str, batch: int | str, **attributes) -> tuple[onnx.ModelProto, np.ndarray]:
    piece = Piece(batch=batch)
    pixel = piece.requantise(piece.node("GlobalAveragePool", piece.real()), 0.41213, 9)
    return piece.model(piece.quantise(piece.node(operator, pixel, **attributes), 0.41213, 9)), piece.frames(6)


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("batch", ["n", 1, 2])
def test_without_axes(operator, batch) -> None:
    """All axes are reduced, also those of frames and channels of a map of one pixel."""
    model, _ = _of_a_pixel(operator, batch)
    with pytest.raises(hwgen.ModelError, match=rf"{operator} node .* not axes \[0, 1, 2, 3\] of "):
        to_network(model, "model")


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax"])
def test_without_axes_and_effect(operator) -> None:
    check(*_of_a_pixel(operator, "n", noop_with_empty_axes=1))


@pytest.mark.parametrize(("batch", "shape"), [("n", [1, 3, -1]), ("n", [0, 3, -1]), (1, [1, 3, -1])])
def test_frames_in_one(batch, shape) -> None:
    """A shape that begins with 1 and has a -1 puts all frames of a batch into one."""
    piece = Piece(batch=batch)
    rows = piece.node("Reshape", piece.real(), np.array(shape))
    model = piece.model(piece.quantise(_mean(piece, rows, [2]), 0.41213, 9))
    if (batch, shape[0]) == ("n", 1):
        with pytest.raises(hwgen.ModelError, match=r"Reshape node .* puts all frames of a batch into one by its shape"):
            to_network(model, "model")
    else:
        check(model, piece.frames(1 if batch == 1 else 6))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 20, 21, 24, 25, 28, 32, 36, 49, 56, 64])
def test_halves_at_each_divisor(count) -> None:
    """Scales are powers of two, so that ONNX Runtime's sums are exact in any order, and halves are halves."""
    piece = Piece((4, 1, count), scale=2.0**-5, zero=100)
    model = piece.model(piece.quantise(_mean(piece, piece.real(), [2, 3]), 2.0**-5, 101))
    network = check(model, piece.frames(500))
    sums = piece.frames(500).astype(int).sum(axis=(2, 3)) - 100 * count
    assert count % 2 or (2 * sums % (2 * count) == count).any()
    assert any("halfway" in warning for warning in network.warnings) == (count % 2 == 0)


@pytest.mark.parametrize("kernel", [[2, 2], [3, 3], [2, 3]])
@pytest.mark.parametrize("pads", [[0] * 4, [1] * 4])
def test_windows_in_floats(kernel, pads) -> None:
    piece = Piece((3, 8, 8), zero=40)
    tensor = piece.node("Relu", piece.real())
    pooled = piece.node("AveragePool", tensor, kernel_shape=kernel, strides=[2, 2], pads=pads, count_include_pad=1)
    network = check(piece.model(piece.quantise(pooled, 0.21973, 3)), piece.frames(30))
    assert network.layers[-1].kind == "conv"


@pytest.mark.parametrize("pads", [[0] * 4, [1] * 4])
def test_windows_of_16_bits(pads) -> None:
    """Sums of 16 bits have few bits behind the point in float32, so that some are beyond a half."""
    piece = Piece((3, 8, 8), np.uint16, opset=21, zero=40)
    pooled = piece.node("AveragePool", piece.real(), kernel_shape=[2, 3], pads=pads, count_include_pad=1)
    model = piece.model(piece.quantise(pooled, 0.21973, 3, np.uint16))
    _, difference, _ = compared(model, piece.frames(60))
    assert difference.max() <= 1
    assert (difference > 0).sum() * 200 < difference.size


def test_padding_that_does_not_count_is_refused() -> None:
    piece = Piece()
    pooled = piece.node("AveragePool", piece.node("Relu", piece.real()), kernel_shape=[3, 3], pads=[1] * 4)
    with pytest.raises(hwgen.ModelError, match="padding that does not count; quantise its input and output"):
        to_network(piece.model(piece.quantise(pooled, 0.21973, 3)), "model")


def _pooled_up(opset: int, size: tuple[int, ...], to, **attributes) -> tuple[onnx.ModelProto, np.ndarray]:
    piece = Piece((3, *size), np.uint8, opset=opset, zero=40)
    kernel = {"kernel_shape": [2] * len(size), "strides": [2] * len(size)}
    pooled = piece.node("AveragePool", piece.real(), ceil_mode=1, count_include_pad=1, **kernel, **attributes)
    return piece.model(piece.quantise(pooled, 0.21973, 3, to)), piece.frames(20)


@pytest.mark.parametrize("opset", [11, 19, 21])
@pytest.mark.parametrize(
    ("size", "pads"), [((7,), [0] * 2), ((7, 6), [0] * 4), ((6, 8), [0, 0, 1, 1]), ((8, 5), [0] * 4)]
)
def test_windows_past_the_padding(opset, size, pads) -> None:
    """ONNX Runtime's float kernel counts taps in the padding, but not those past it; its integer kernel counts both."""
    model, frames = _pooled_up(opset, size, np.int8, pads=pads)
    if size == (6, 8):
        check(model, frames)
        return
    with pytest.raises(hwgen.ModelError, match=r"AveragePool node .* its last window reaches past the padded map"):
        to_network(model, "model")
    check(*_pooled_up(opset, size, np.uint8, pads=pads))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_counts(mode) -> None:
    check(*_pooled_up(19, (7, 6), np.int8, auto_pad=mode))


def test_a_whole_map_in_floats() -> None:
    """A Flatten in front of the QuantizeLinear keeps ONNX Runtime from its integer kernel."""
    piece = Piece((4, 5, 5))
    flat = piece.node("Flatten", piece.node("GlobalAveragePool", piece.real()))
    check(piece.model(piece.quantise(flat, 0.20379, 3)), piece.frames(60))


def test_in_hardware(tmp_path) -> None:
    piece = Piece((4, 6, 6), opset=18)
    pooled = piece.node("AveragePool", piece.node("Relu", piece.real()), kernel_shape=[2, 2], strides=[2, 2])
    mean = _mean(piece, piece.requantise(pooled, 0.43121, 2), [2, 3], keep=0)
    onnx.save(piece.model(piece.quantise(mean, 0.31415927, 5)), tmp_path / "model.onnx")
    result = hwgen.load(tmp_path / "model.onnx").plan("zedboard").simulate(piece.frames(3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted


@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(1, 200),
    ends=st.tuples(st.integers(-255, 0), st.integers(1, 255)),
    scales=st.tuples(st.floats(2.0**-10, 1, width=32), st.floats(2.0**-10, 1, width=32)),
    zero=st.integers(0, 255),
)
def rules(count, ends, scales, zero) -> None:
    """The rule gives the exact mean for every sum where no mean is halfway between two outputs."""
    fitted = fit_mean(ends, count, scales, (zero, 0, 255), 3)
    factor = Fraction(scales[0]) / (Fraction(scales[1]) * count)
    sums = np.arange(count * ends[0], count * ends[1] + 1)
    sums = sums[:: max(1, len(sums) // 3000)]
    exact = np.clip([round(int(total) * factor) + zero for total in sums], 0, 255)
    ours = requantise(np.tile(fitted.weight * sums, (3, 1)), fitted.rule, fitted.weight * count * 255)
    assert fitted.ties or (ours == exact).all()
    assert np.abs(ours - exact).max() <= fitted.ties


def test_rules() -> None:
    with counted(rules, least=60):
        rules()


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


def _by_channel(piece: Piece, tensor: str, least: float, most: float, operator: str) -> str:
    """Arithmetic with one constant per channel, the first dimension of a map with or without pixels."""
    shape = (piece.shape[0],) if "Reduce" in tensor else (1, piece.shape[0], 1, 1)
    return piece.node(operator, tensor, piece.random.uniform(least, most, shape).astype(np.float32))


def _batch_normalised(piece: Piece, tensor: str) -> str:
    values = [piece.random.uniform(0.6, 1.7, piece.shape[0]).astype(np.float32) for _ in range(4)]
    return piece.node("BatchNormalization", tensor, *values)


BEHIND: dict[str, tuple[Callable[[Piece, str], str], bool]] = {
    "Mul": (lambda piece, tensor: piece.node("Mul", tensor, np.float32(1.0078125)), True),
    "Mul by channel": (lambda piece, tensor: _by_channel(piece, tensor, -2, 2, "Mul"), True),
    "Div": (lambda piece, tensor: piece.node("Div", tensor, np.float32(0.913)), True),
    "Add": (lambda piece, tensor: _by_channel(piece, tensor, -2, 2, "Add"), True),
    "Sub": (lambda piece, tensor: piece.node("Sub", np.float32(1.2345), tensor), True),
    "BatchNormalization": (_batch_normalised, True),
    "Relu": (lambda piece, tensor: piece.node("Relu", tensor), False),
    "Clip that changes nothing": (lambda piece, tensor: piece.node("Clip", tensor, np.float32(-99)), False),
    "Relu, Mul, Relu": (
        lambda piece, tensor: piece.node("Relu", piece.node("Mul", piece.node("Relu", tensor), np.float32(0.77))),
        True,
    ),
    "BatchNormalization, Relu, Flatten": (
        lambda piece, tensor: piece.node("Flatten", piece.node("Relu", _batch_normalised(piece, tensor))),
        True,
    ),
}
"""Operators behind an average, and whether the average's sums are a convolution's."""
SUMMED = {
    **{name: AVERAGES[name] for name in ("global", "reduce", "windows", "padded")},
    "sum": lambda piece, tensor: piece.node("ReduceSum", tensor, np.array([2, 3]), keepdims=0),
    "function": lambda piece, tensor: AVERAGES["windows"](piece, FUNCTIONS["silu"](piece, tensor)),
}


def _with_behind(behind: str, average: str, *, powers: bool = False) -> tuple[onnx.ModelProto, Piece]:
    piece = Piece((4, 6, 7), scale=2.0**-5 if powers else 0.0317123, zero=40)
    scale = 2.0**-6 if powers else 0.0211279
    tensor = BEHIND[behind][0](piece, SUMMED[average](piece, piece.real()))
    return piece.model(piece.quantise(tensor, scale * (40 if average == "sum" else 1), 5)), piece


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("average", ["windows", "global"])
def test_behind_averages(behind: str, average: str) -> None:
    """Operators of floats between an average and its quantiser, with scales of powers of two, too."""
    for powers in (False, True):
        model, piece = _with_behind(behind, average, powers=powers)
        network = check(model, _frames(piece, 60 if average == "windows" else 300))
        of_sums = network.layers[-1].kind == "conv"
        assert of_sums or not BEHIND[behind][1]
        assert not BEHIND[behind][1] or [layer.name for layer in network.in_floats] == [network.layers[-1].name]


@pytest.mark.parametrize(
    ("behind", "average"),
    [("Mul by channel", "reduce"), ("Add", "sum"), ("BatchNormalization", "padded"), ("Mul", "function")],
)
def test_behind_other_averages(behind: str, average: str) -> None:
    model, piece = _with_behind(behind, average)
    check(model, _frames(piece, 100))


IN_FIXED_POINT: dict[str, Callable[[Piece, str], str]] = {
    "LeakyRelu": lambda piece, tensor: piece.node("LeakyRelu", tensor, alpha=0.1137),
    "Sigmoid": lambda piece, tensor: piece.node("Sigmoid", tensor),
    "Mul, HardSwish": lambda piece, tensor: piece.node("HardSwish", piece.node("Mul", tensor, np.float32(1.3))),
}


def _nearly_equal(model: onnx.ModelProto, frames: np.ndarray) -> Network:
    """At most 1 of 20,000 values differs from ONNX Runtime's, by 1."""
    network, difference, _ = compared(model, frames)
    assert difference.max() <= 1
    assert (difference > 0).sum() <= difference.size // 20_000
    return network


@pytest.mark.parametrize("function", IN_FIXED_POINT)
@pytest.mark.parametrize("average", ["windows", "global"])
def test_functions_behind_averages(function: str, average: str) -> None:
    piece = Piece((4, 6, 7), scale=0.0317123, zero=40)
    tensor = IN_FIXED_POINT[function](piece, SUMMED[average](piece, piece.real()))
    model = piece.model(piece.quantise(tensor, 0.0071279 if function == "Sigmoid" else 0.0211279, 5))
    assert _nearly_equal(model, _frames(piece, 300)).layers[-1].kind == "fixedpoint"


@pytest.mark.parametrize("average", ["windows", "global"])
def test_sum_of_averages(average: str) -> None:
    piece = Piece((4, 6, 7), scale=0.0317123, zero=40)
    first = AVERAGES[average](piece, piece.real())
    second = AVERAGES[average](piece, piece.requantise(piece.conv(piece.real(), 4, 4, pads=[1] * 4), 0.213, 100))
    model = piece.model(piece.quantise(piece.node("Add", first, second), 0.131279, 90))
    assert _nearly_equal(model, _frames(piece, 300)).layers[-1].kind == "fixedpoint"


def test_pool_behind_an_average() -> None:
    """ONNX Runtime moves the quantiser in front of the MaxPool, and so has an integer kernel for the average."""
    piece = Piece((4, 8, 8), scale=2.0**-5, zero=40)
    pooled = piece.node("MaxPool", AVERAGES["windows"](piece, piece.real()), kernel_shape=[2, 2])
    network = check(piece.model(piece.quantise(pooled, 2.0**-6, 5)), _frames(piece, 60))
    assert [layer.kind for layer in network.layers] == ["averagepool", "maxpool"]


def test_dimensions_dropped_behind_an_average() -> None:
    piece = Piece((4, 6, 7), scale=0.0317123, zero=40)
    scaled = piece.node("Mul", AVERAGES["global"](piece, piece.real()), np.float32(1.3))
    dropped = piece.node("ReduceSum", scaled, np.array([2, 3]), keepdims=0)
    check(piece.model(piece.quantise(dropped, 0.0211279, 5)), _frames(piece, 300))


def test_sums_of_large_maps() -> None:
    """More than 16 bits: the convolution has the map as its window."""
    piece = Piece((2, 16, 16), scale=0.0317123, zero=40)
    scaled = piece.node("Mul", AVERAGES["global"](piece, piece.real()), np.float32(1.3))
    network = check(piece.model(piece.quantise(scaled, 0.0211279, 5)), _frames(piece, 300))
    assert [layer.window.kernel for layer in network.layers] == [(16, 16)]


@pytest.mark.long
@pytest.mark.parametrize("average", ["windows", "global"])
def test_behind_averages_in_verilog(average: str, tmp_path) -> None:
    model, piece = _with_behind("BatchNormalization, Relu, Flatten", average)
    onnx.save(model, tmp_path / "model.onnx")
    plan = hwgen.load(tmp_path / "model.onnx").plan("zedboard", dsp=20, multipliers="dsp", template="stream")
    result = plan.simulate(_frames(piece, 3), simulator="verilator")
    assert result.mismatches == 0
    assert result.as_predicted


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


def test_more_pixels() -> None:
    """Beyond 4,096 pixels a function and its mean are computed in fixed point."""
    model, piece = _model("softplus", "global", (2, 65, 64))
    network, difference, _ = compared(model, _frames(piece, 20))
    assert _kinds(network) == ["fixedpoint", "globalaveragepool", "fixedpoint"]
    assert not difference.any()


@pytest.mark.long
@pytest.mark.parametrize(("function", "average"), [("normalised", "global"), ("tanh", "windows")])
def test_means_of_functions_in_hardware(function: str, average: str, tmp_path) -> None:
    model, piece = _model(function, average, (4, 5, 6))
    onnx.save(model, tmp_path / "model.onnx")
    result = hwgen.load(tmp_path / "model.onnx").plan("zedboard").simulate(_frames(piece, 3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted
