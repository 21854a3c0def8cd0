"""Models whose quantisers stand only at the inputs of convolutions: what is between them is computed in fixed point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from adaptive import adaptive_pool
from pieces import Piece
from referees import integer_session

from hwgen.network import golden
from hwgen.network.floats import RARELY
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.layers import RuntimeLayers
from hwgen.network.quantise import prepare_inputs

_CHANNELS = 8


def fed(network: Network, model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the differences from ONNX Runtime of each layer with a quantised tensor, fed by ONNX Runtime's tensors."""
    runtime = RuntimeLayers(model, network, "model")
    _, theirs = runtime.run([x])
    traced = golden.trace(network, prepare_inputs(network, x), theirs)
    compared = theirs.keys() - runtime.roundings
    return {layer.name: np.abs(theirs[layer.name] - ours) for layer, ours in traced if layer.name in compared}


def calibrated(piece: Piece, tensor: str) -> str:
    """Quantise a tensor of floats to the range that it has."""
    (reals,) = integer_session(piece.model(tensor))[0].run([tensor], {"x": piece.frames(4)})
    low, high = min(float(reals.min()), 0), max(float(reals.max()), 0)
    scale = (high - low) / 255 * 0.8
    return piece.requantise(tensor, scale, min(round(-0.9 * low / scale), 255))


def conv(piece: Piece, tensor: str, *, stride: int = 1, kernel: int = 3, outputs: int = _CHANNELS) -> str:
    # ONNX Runtime saturates no sum of two products with such weights, on processors without VNNI either.
    weights = piece.weights((outputs, _CHANNELS, kernel, kernel), axis=0, most=63, scale=0.0062)
    more = {"strides": [stride] * 2, "pads": [kernel // 2] * 4}
    return piece.node("Conv", tensor, weights, piece.floats(outputs, deviation=0.5), **more)


def activated(operator: str, **attributes: float) -> Callable[[Piece, str], str]:
    return lambda piece, x: piece.node(operator, conv(piece, x), **attributes)


def silu(piece: Piece, sums: str) -> str:
    return piece.node("Mul", sums, piece.node("Sigmoid", sums))


def hard_swish(piece: Piece, x: str) -> str:
    """Return Hardswish as PyTorch writes it for old operator sets."""
    sums = conv(piece, x)
    shifted = piece.node("Clip", piece.node("Add", sums, 3.0), 0.0, 6.0)
    return piece.node("Div", piece.node("Mul", sums, shifted), 6.0)


def mish(piece: Piece, x: str) -> str:
    sums = conv(piece, x)
    return piece.node("Mul", sums, piece.node("Tanh", piece.node("Softplus", sums)))


def gelu(piece: Piece, x: str) -> str:
    sums = conv(piece, x)
    inner = piece.node("Add", piece.node("Erf", piece.node("Div", sums, 1.41421354)), 1.0)
    return piece.node("Mul", piece.node("Mul", sums, inner), 0.5)


def squeezed(piece: Piece, x: str, gate: str) -> str:
    """Return a map times a gate of one pixel, as in squeeze-and-excitation."""
    sums = silu(piece, conv(piece, x))
    pooled = calibrated(piece, piece.node("GlobalAveragePool", sums))
    squeezed = calibrated(piece, piece.node("Relu", conv(piece, pooled, kernel=1)))
    return piece.node("Mul", sums, piece.node(gate, conv(piece, squeezed, kernel=1)))


def residual(piece: Piece, x: str) -> str:
    """Return a stream of floats that quantisers of two convolutions read, and two additions."""
    stream = piece.node("Relu", conv(piece, x))
    for _ in range(2):
        inner = calibrated(piece, piece.node("Relu", conv(piece, calibrated(piece, stream))))
        stream = piece.node("Relu", piece.node("Add", conv(piece, inner), stream))
    return stream


def dense(piece: Piece, x: str) -> str:
    """Return a concatenation that a normalisation and another concatenation read."""
    first = conv(piece, x)
    normal = [piece.floats(2 * _CHANNELS) for _ in range(3)]
    variance = piece.constant(piece.random.uniform(0.5, 2, 2 * _CHANNELS), np.float32)
    both = piece.node("Concat", first, piece.node("LeakyRelu", conv(piece, x)), axis=1)
    scaled = piece.node("Relu", piece.node("BatchNormalization", both, *normal, variance))
    half = piece.node("Slice", scaled, *(np.array([n]) for n in (4, 4 + _CHANNELS, 1)))
    return piece.node("Add", half, piece.node("Slice", both, *(np.array([n]) for n in (0, _CHANNELS, 1))))


def pooled(operator: str, **attributes: object) -> Callable[[Piece, str], str]:
    return lambda piece, x: piece.node(operator, silu(piece, conv(piece, x)), **attributes)


def adaptive(*sizes: int) -> Callable[[Piece, str], str]:
    """Return averages of a map of 4x4 pixels over ``sizes`` windows, which differ in size."""
    return lambda piece, x: adaptive_pool(piece, piece.node("Relu", conv(piece, x, stride=2)), 4, sizes)


def interpolated(way: str) -> Callable[[Piece, str], str]:
    """Return a map between whose pixels a Resize interpolates, added to another map."""

    def form(piece: Piece, x: str) -> str:
        half, factors = conv(piece, x, stride=2), np.float32([1, 1, 2, 2])
        larger = piece.node("Resize", half, "", factors, mode="linear", coordinate_transformation_mode=way)
        return piece.node("Add", larger, conv(piece, x))

    return form


def flat(piece: Piece, x: str) -> str:
    """Return a Gemm and a HardSwish behind a mean of floats that was flattened."""
    mean = piece.node("ReduceMean", piece.node("Elu", conv(piece, x)), np.array([2, 3]), keepdims=0)
    weights = piece.weights((_CHANNELS, _CHANNELS), axis=0, most=63, scale=0.02)
    gemm = piece.node("Gemm", calibrated(piece, mean), weights, piece.floats(_CHANNELS), transB=1)
    return piece.node("Reshape", piece.node("HardSwish", gemm), np.array([0, _CHANNELS, 1, 1]))


FORMS: dict[str, Callable[[Piece, str], str]] = {
    "leaky": activated("LeakyRelu", alpha=0.1),
    "silu": lambda piece, x: silu(piece, conv(piece, x)),
    "add a map": lambda piece, x: piece.node("Relu", piece.node("Add", conv(piece, x), x)),
    "add sums": lambda piece, x: piece.node("Add", conv(piece, x), conv(piece, x, kernel=1)),
    "sub": lambda piece, x: piece.node("Sub", piece.node("Sigmoid", x), conv(piece, x)),
    "sum of three": lambda piece, x: piece.node("Sum", conv(piece, x), x, piece.node("Relu", conv(piece, x))),
    "gate of a map": lambda piece, x: piece.node("Mul", conv(piece, x), piece.node("Sigmoid", x)),
    "product": lambda piece, x: piece.node("Mul", piece.node("Tanh", conv(piece, x)), conv(piece, x)),
    "squeeze, sigmoid": lambda piece, x: squeezed(piece, x, "Sigmoid"),
    "squeeze, hard": lambda piece, x: squeezed(piece, x, "HardSigmoid"),
    "constants": lambda piece, x: piece.node(
        "Div", piece.node("Mul", piece.node("Relu", conv(piece, x)), piece.floats(_CHANNELS, 1, 1)), 1.7
    ),
    "maximum": lambda piece, x: piece.node("Max", conv(piece, x), conv(piece, x), piece.node("Sigmoid", x)),
    "minimum": lambda piece, x: piece.node("Min", conv(piece, x), x, 1.3),
    "clip": lambda piece, x: piece.node("Clip", piece.node("Add", conv(piece, x), x), -0.9, 2.1),
    "prelu": lambda piece, x: piece.node("PRelu", conv(piece, x), piece.floats(_CHANNELS, 1, 1)),
    "hard swish": hard_swish,
    "hard swish, one node": activated("HardSwish"),
    "hard sigmoid": activated("HardSigmoid", alpha=0.17),
    "sigmoid": activated("Sigmoid"),
    "tanh": activated("Tanh"),
    "softplus": activated("Softplus"),
    "mish": mish,
    "elu": activated("Elu", alpha=0.7),
    "selu": activated("Selu"),
    "gelu": gelu,
    "normalisation": lambda piece, x: piece.node(
        "BatchNormalization",
        piece.node("Relu", conv(piece, x)),
        *(piece.floats(_CHANNELS) for _ in range(3)),
        piece.constant(piece.random.uniform(0.5, 2, _CHANNELS), np.float32),
    ),
    "average pool": pooled("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "global average": pooled("GlobalAveragePool"),
    "maximum pool": pooled("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "residual": residual,
    "dense": dense,
    "normalised Relu": lambda piece, x: piece.node(
        "BatchNormalization",
        piece.node("Relu", conv(piece, x)),
        *(piece.floats(_CHANNELS) for _ in range(3)),
        piece.constant(piece.random.uniform(0.5, 2, _CHANNELS), np.float32),
    ),
    "negative maximum": lambda piece, x: piece.node(
        "Mul", piece.node("MaxPool", conv(piece, x), kernel_shape=[2, 2], strides=[2, 2]), -1.0
    ),
    "resize": lambda piece, x: piece.node(
        "Add",
        piece.node("Resize", conv(piece, x, stride=2), "", np.float32([1, 1, 2, 2]), mode="nearest"),
        conv(piece, x),
    ),
    "interpolated": interpolated("half_pixel"),
    "interpolated, corners": interpolated("align_corners"),
    "adaptive pool": adaptive(3, 5),
    "larger adaptive pool": adaptive(7, 6),
    "flat": flat,
    "sum with a constant": lambda piece, x: piece.node(
        "Sum", piece.node("Sigmoid", x), piece.requantise(conv(piece, x), 0.0171, 117), piece.constant(0.5)
    ),
    "normalised difference": lambda piece, x: piece.node(
        "BatchNormalization",
        piece.node("Sub", piece.requantise(conv(piece, x), 0.0171, 117), x),
        *(piece.floats(_CHANNELS) for _ in range(3)),
        piece.constant(piece.random.uniform(0.5, 2, _CHANNELS), np.float32),
    ),
    "blocks": lambda piece, x: piece.node(
        "Add",
        piece.node("SpaceToDepth", piece.node("DepthToSpace", silu(piece, conv(piece, x)), blocksize=2), blocksize=2),
        x,
    ),
    "pad": lambda piece, x: piece.node(
        "Slice", piece.node("Pad", conv(piece, x), np.array([0, 0, 1, 1] * 2)), *(np.array([n]) for n in (1, 9, 2))
    ),
    "product of quantised maps": lambda piece, x: piece.node(
        "Relu", piece.node("Mul", piece.requantise(conv(piece, x), 0.0171, 3, np.int8), x)
    ),
}
_QUICK = {
    "dense",
    "interpolated",
    "larger adaptive pool",
    "leaky",
    "silu",
    "add a map",
    "squeeze, hard",
    "residual",
    "product of quantised maps",
}
"""Forms that a default run tests."""


def quantised(form: Callable[[Piece, str], str], seed: int = 3) -> onnx.ModelProto:
    """Return a model of a form, between a quantised input and another convolution."""
    piece = Piece((_CHANNELS, 8, 8), scale=0.0213, zero=121, opset=18, seed=seed)
    return piece.model(calibrated(piece, conv(piece, calibrated(piece, form(piece, piece.real())), kernel=1)))


def check(form: Callable[[Piece, str], str], seed: int, frames: int) -> None:
    model = quantised(form, seed)
    network = to_network(model, "network")
    assert any(layer.in_fixed_point for layer in network.layers)
    x = np.random.default_rng(7).integers(0, 256, (frames, _CHANNELS, 8, 8)).astype(np.uint8)
    for layer, difference in fed(network, model, x).items():
        count = np.count_nonzero(difference)
        assert count <= max(1, difference.size // RARELY), f"{layer}: {count} of {difference.size:,} differ"
        assert difference.max() <= 1


@pytest.mark.parametrize("name", sorted(_QUICK))
def test_outputs_rarely_differ(name) -> None:
    """Of each quantised tensor at most one value of 20,000 differs from ONNX Runtime's, by 1."""
    check(FORMS[name], seed=3, frames=20)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMS)
def test_outputs_of_many_frames_rarely_differ(name) -> None:
    check(FORMS[name], seed=4, frames=400)


def test_floats_are_not_quantised_before_they_are_interpolated() -> None:
    """The next quantiser would clip sums of which averages are in its range."""
    piece = Piece((_CHANNELS, 8, 8), scale=0.0213, zero=121)
    larger = piece.node("Resize", conv(piece, piece.real()), "", np.float32([1, 1, 2, 2]), mode="linear")
    layers = to_network(piece.model(calibrated(piece, larger)), "network").layers
    assert [layer.kind for layer in layers] == ["conv", "interpolate", "fixedpoint"]
    assert layers[0].output.type.bits > 16


@pytest.mark.parametrize("slope", [0.1, 0.3])
def test_powers_of_two_are_equal(slope) -> None:
    """With one product of a constant, and scales that make sums exact in float32, every value is equal."""
    piece = Piece((4, 8, 8), scale=2.0**-6, zero=121, opset=18)
    weights = piece.weights((4, 4, 3, 3), most=127, scale=2.0**-7)
    leaky = piece.node("LeakyRelu", piece.node("Conv", piece.real(), weights), alpha=slope)
    model = piece.model(piece.requantise(leaky, 2.0**-4, 90))
    network = to_network(model, "network")
    x = np.random.default_rng(5).integers(0, 256, (1000, 4, 8, 8)).astype(np.uint8)
    differences = fed(network, model, x)
    assert [layer.kind for layer in network.layers] == ["conv", "fixedpoint"]
    assert not any(difference.any() for difference in differences.values())


def test_one_pixel_is_repeated() -> None:
    """As image pooling of segmentation networks does, by a Resize with mode linear."""

    def pooled_image(piece: Piece, x: str) -> str:
        pixel = piece.node("Relu", conv(piece, calibrated(piece, piece.node("GlobalAveragePool", x)), kernel=1))
        larger = piece.node("Resize", pixel, "", np.float32([1, 1, 8, 8]), mode="linear")
        return piece.node("Add", larger, conv(piece, x))

    check(pooled_image, seed=3, frames=40)
