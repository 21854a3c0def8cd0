"""Operators in any order in front of a convolution, behind it, without one: as ONNX Runtime computes them, or refused.

Sums are of few small integers, and of scales drawn at random: what float32 rounds is seldom seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pieces import Piece, compared

from hwgen.errors import ModelError

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
