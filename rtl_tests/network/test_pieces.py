"""Operators in any order around a convolution, and gates of squeeze and excitation: as ONNX Runtime computes them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exporters import Writer
from onnx_writing import Frames
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from pieces import Piece, compared
from referees import compare

from hwgen.errors import ModelError
from hwgen.network.onnx.importer import to_network

CHANNELS = 4
Step = Callable[[Piece, str], str]


def number(piece: Piece, deviation: float = 20.0) -> np.float32:
    return np.float32(piece.random.normal(0, deviation))


def factor(piece: Piece, *shape: int) -> np.ndarray:
    return np.asarray(piece.random.uniform(0.3, 2, shape), np.float32)


def vector(piece: Piece) -> str:
    return piece.floats(CHANNELS, 1, 1, deviation=20)


def _clip(piece: Piece, tensor: str) -> str:
    low, high = sorted(piece.random.normal(0, 30, 2))
    return piece.node("Clip", tensor, np.float32(low), np.float32(high))


def _quantised_addend(piece: Piece, tensor: str) -> str:
    integers = piece.constant(piece.random.integers(0, 100, (CHANNELS, 1, 1)), np.uint8)
    return piece.node("Add", tensor, piece.dequantise(integers, 0.613, 4))


def _normalise(piece: Piece, tensor: str) -> str:
    gain, bias = piece.constant(factor(piece, CHANNELS)), piece.floats(CHANNELS, deviation=20)
    mean, variance = piece.floats(CHANNELS, deviation=20), piece.constant(factor(piece, CHANNELS))
    return piece.node("BatchNormalization", tensor, gain, bias, mean, variance)


def _normalise_by_integers(piece: Piece, tensor: str) -> str:
    def quantised(low: int, scale: float) -> str:
        integers = piece.constant(piece.random.integers(low, 100, CHANNELS), np.int8)
        return piece.dequantise(integers, scale, 3, np.int8)

    return piece.node(
        "BatchNormalization",
        tensor,
        quantised(20, 0.031),
        quantised(-100, 0.3),
        quantised(-100, 0.3),
        quantised(20, 0.02),
    )


STEPS: dict[str, Step] = {
    "Relu": lambda piece, tensor: piece.node("Relu", tensor),
    "Clip": _clip,
    "Add": lambda piece, tensor: piece.node("Add", tensor, number(piece)),
    "Add, by channel": lambda piece, tensor: piece.node("Add", vector(piece), tensor),
    "Add of integers": _quantised_addend,
    "Mul": lambda piece, tensor: piece.node("Mul", tensor, factor(piece)),
    "Mul by less than 0": lambda piece, tensor: piece.node("Mul", -factor(piece), tensor),
    "Mul, by channel": lambda piece, tensor: piece.node("Mul", tensor, factor(piece, CHANNELS, 1, 1)),
    "Sub": lambda piece, tensor: piece.node("Sub", tensor, number(piece)),
    "Sub from": lambda piece, tensor: piece.node("Sub", number(piece), tensor),
    "Div": lambda piece, tensor: piece.node("Div", tensor, factor(piece)),
    "BatchNormalization": _normalise,
    "BatchNormalization by integers": _normalise_by_integers,
    "Sigmoid": lambda piece, tensor: piece.node("Sigmoid", tensor),
    "LeakyRelu": lambda piece, tensor: piece.node("LeakyRelu", tensor, alpha=0.1),
    "MaxPool": lambda piece, tensor: piece.node("MaxPool", tensor, kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
    "Unsqueeze, Squeeze": lambda piece, tensor: piece.node("Squeeze", piece.node("Unsqueeze", tensor, [2]), [2]),
    "Transpose": lambda piece, tensor: piece.node("Transpose", tensor, perm=[0, 1, 3, 2]),
    "Gather": lambda piece, tensor: piece.node("Gather", tensor, piece.random.permutation(CHANNELS), axis=1),
    "Slice": lambda piece, tensor: piece.node("Slice", tensor, [0], [4], [2]),
    "Pad": lambda piece, tensor: piece.node("Pad", tensor, [0, 0, 1, 0, 0, 0, 0, 1]),
    "Identity": lambda piece, tensor: piece.node("Identity", tensor),
    "quantised anew": lambda piece, tensor: piece.requantise(tensor, float(factor(piece)), 30),
}


def walked(piece: Piece, tensor: str, count: int) -> tuple[str, list[str]]:
    """Some steps behind a tensor, and their names."""
    names = piece.random.choice(list(STEPS), count).tolist()
    for name in names:
        tensor = STEPS[name](piece, tensor)
    return tensor, names


def check_random(seed: int) -> bool:
    """Whether a model is built; its values are ONNX Runtime's then."""
    random = np.random.default_rng(seed)
    kind = np.dtype(random.choice(["uint8", "int8"]))
    zero = int(random.integers(0, 60)) if random.random() < 0.6 else int(np.iinfo(kind).min)
    piece = Piece((CHANNELS, 5, 5), kind, scale=float(random.uniform(0.3, 1.5)), zero=zero, seed=seed)
    way = random.choice(["no convolution", "in front", "behind", "both"])
    tensor, first = walked(piece, piece.real(), 0 if way == "behind" else int(random.integers(1, 4)))
    last: list[str] = []
    if way != "no convolution":
        groups = int(random.choice([1, CHANNELS]))
        more = [piece.floats(CHANNELS, deviation=20)] if random.random() < 0.5 else []
        weights = piece.weights((CHANNELS, CHANNELS // groups, 3, 3))
        tensor = piece.node(
            "Conv", tensor, weights, *more, pads=[int(random.integers(2)) if way == "behind" else 1] * 4, group=groups
        )
        tensor, last = walked(piece, tensor, 0 if way == "in front" else int(random.integers(1, 5)))
    scale = float(random.uniform(0.5, 1.5)) * (1 if way == "no convolution" else 8)
    zero = int(random.integers(0, 100)) if random.random() < 0.6 else int(np.iinfo(kind).min)
    what = f"seed {seed}: {', '.join(first)}{'' if way == 'no convolution' else ', Conv, ' + ', '.join(last)}"
    model = piece.model(piece.quantise(tensor, scale, zero, kind))
    try:
        _, difference, floats = compared(model, piece.frames(24))
    except ModelError as error:
        if " node '" not in str(error):
            raise
        return False
    # Few values are of few sums: what rounds one of these otherwise does so in all of them.
    allowed = max(2, difference.size // 500) if floats else 0
    assert difference.max() <= 1, what
    assert (difference > 0).sum() <= allowed, what
    return True


def test_some() -> None:
    found = [check_random(seed) for seed in range(60)]
    assert found.count(True) > 20


@pytest.mark.long
@pytest.mark.parametrize("block", range(5))
def test_many(block: int) -> None:
    found = [check_random(seed) for seed in range(200 * block, 200 * block + 200)]
    assert found.count(True) > 66


@pytest.mark.parametrize(
    ("scales", "share"),
    [((2.0**-6, 2.0**-7, 2.0**-4), 0), ((0.0214557, 0.0103731, 0.0517393), 1e-4), ((0.05, 0.02, 0.05), 1e-2)],
    ids=["powers of two", "random", "1/50"],
)
def test_ties_of_floats(scales, share) -> None:
    """ONNX Runtime sums floats in front of a uint8 output of int8 weights and inputs; ties depend on the last bits."""
    x_scale, w_scale, y_scale = scales
    piece = Piece((3, 6, 5), scale=x_scale)
    weights = piece.weights((4, 3, 3, 3), most=127, scale=w_scale)
    relu = piece.node("Relu", piece.node("Conv", piece.real(), weights))
    _, difference, floats = compared(piece.model(piece.quantise(relu, y_scale, 3)), piece.frames(1000))
    assert floats
    assert difference.max() <= 1
    assert (difference > 0).sum() <= share * difference.size


def _clipped(writer: Writer, tensor: str) -> str:
    """A HardSigmoid in three operators."""
    zero, three, six = (writer.constant(np.float32(value)) for value in (0, 3, 6))
    return writer.node("Div", writer.node("Clip", writer.node("Add", tensor, three), zero, six), six)


GATES = {
    "HardSigmoid": lambda writer, tensor: writer.node("HardSigmoid", tensor, alpha=1 / 6, beta=0.5),
    "Sigmoid": lambda writer, tensor: writer.node("Sigmoid", tensor),
    "clipped": _clipped,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "int8": {"activation_type": QuantType.QInt8},
    "integer operators": {"quant_format": QuantFormat.QOperator},
    "integer operators, int8": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QInt8},
    "all inputs": {"extra_options": {"ForceQuantizeNoInputCheck": True}},
    "Conv, Mul": {"op_types_to_quantize": ["Conv", "Mul"]},
    "Conv, Mul, pool": {"op_types_to_quantize": ["Conv", "Mul", "GlobalAveragePool"]},
    "pairs of their own": {"extra_options": {"DedicatedQDQPair": True}},
}


def _quantised(gate: str, setting: dict[str, Any], *, silu: bool) -> tuple[onnx.ModelProto, Writer]:
    """Return a model of one gated map; ``silu``: with the activations and the mean of an EfficientNet."""
    writer = Writer("gate", [1, 3, 8, 8])

    def activated(tensor: str) -> str:
        if silu:
            return writer.node("Mul", tensor, writer.node("Sigmoid", tensor))
        return writer.node("Relu", tensor)

    features = activated(writer.conv("x", 8, 3))
    mean = (
        writer.node("ReduceMean", features, axes=[2, 3], keepdims=1)
        if silu
        else writer.node("GlobalAveragePool", features)
    )
    gates = GATES[gate](writer, writer.conv(activated(writer.conv(mean, 4, 1)), 8, 1))
    model = writer.model(writer.conv(writer.node("Mul", features, gates), 6, 1))
    with tempfile.TemporaryDirectory() as folder:
        source, prepared, target = (Path(folder) / name for name in ("a.onnx", "b.onnx", "c.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        options = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, **setting}
        quantize_static(prepared, target, Frames(writer.frames(8)), per_channel=True, **options)
        return onnx.load(target), writer


CASES = [
    pytest.param(gate, setting, silu, marks=[] if (row + column) % 3 == 0 and silu == column % 2 else pytest.mark.long)
    for row, gate in enumerate(GATES)
    for column, setting in enumerate(SETTINGS)
    for silu in (False, True)
]


@pytest.mark.parametrize(("gate", "setting", "silu"), CASES)
def test_equal(gate: str, setting: str, silu: bool, tmp_path: Path) -> None:
    model, writer = _quantised(gate, SETTINGS[setting], silu=silu)
    compared = compare(model, writer.frames(10), tmp_path)
    compared.check()
    assert not compared.different


@pytest.mark.parametrize("gate", GATES)
def test_products_of_float_functions_are_in_fixed_point(gate: str, tmp_path: Path) -> None:
    """With Conv alone, the quantiser leaves the gates in floats."""
    model, writer = _quantised(gate, {"op_types_to_quantize": ["Conv"]}, silu=False)
    compare(model, writer.frames(4), tmp_path).check()
    assert any(layer.in_fixed_point for layer in to_network(model, "model").layers)
