"""Floats that operators move before they are quantised: each is quantised by itself, with the same result."""

from __future__ import annotations

import numpy as np
import pytest
from pieces import Piece, check

LABEL = 0.61803, 5
"""Scale and zero point of the output."""


def _conv(piece: Piece, tensor: str, outputs: int = 4) -> str:
    """Add a convolution whose sums stay floats."""
    return piece.node("Conv", tensor, piece.weights((outputs, 3, 3, 3), scale=0.3), piece.floats(outputs), pads=[1] * 4)


def _relu(piece: Piece, tensor: str) -> str:
    return piece.node("Relu", _conv(piece, tensor))


def _function(piece: Piece, tensor: str) -> str:
    return piece.node("LeakyRelu", tensor, alpha=0.3)


def _map(piece: Piece, tensor: str) -> str:
    return tensor


def _sum(piece: Piece, tensor: str) -> str:
    return piece.node("Add", tensor, piece.requantise(_conv(piece, tensor, 3), 0.5, 9))


OPERANDS = [_conv, _relu, _function, _map, _sum]


@pytest.mark.parametrize("first", OPERANDS)
@pytest.mark.parametrize("second", OPERANDS)
def test_concat(first, second) -> None:
    piece = Piece()
    x = piece.real()
    joined = piece.node("Concat", first(piece, x), second(piece, x), axis=1)
    check(piece.model(piece.quantise(joined, *LABEL)), piece.frames(20))


def _behind_conv(piece: Piece, operator: str) -> str:
    sums = _conv(piece, piece.real())
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
    sums = _conv(piece, piece.real())
    first = piece.node("Split", sums, np.array([1, 3]), outputs=2, axis=1)
    joined = piece.node("Concat", f"{first}_1", first, axis=1)
    check(piece.model(piece.quantise(joined, *LABEL)), piece.frames(20))
