"""Writes adaptive average pools whose windows differ in size, as PyTorch exports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from pieces import Piece


def adaptive_pool(
    piece: Piece, tensor: str, size: int, sizes: Sequence[int], requantise: Callable[[str], str] = lambda name: name
) -> str:
    """Average a map of ``size`` by ``size`` pixels over ``sizes`` windows, rows and columns.

    ``requantise`` is applied to the pixels that are added, and to their sums.
    """
    windows = [[range(n * size // count, -(-(n + 1) * size // count)) for n in range(count)] for count in sizes]
    longest = [max(map(len, of_axis)) for of_axis in windows]
    places = [
        np.array([[window[min(n, len(window) - 1)] for n in range(most)] for window in of_axis])
        for of_axis, most in zip(windows, longest, strict=True)
    ]
    beyond = [
        np.array([[n >= len(window) for n in range(most)] for window in of_axis])
        for of_axis, most in zip(windows, longest, strict=True)
    ]
    pixels = np.stack(np.broadcast_arrays(places[0][:, :, None, None], places[1]), axis=-1)
    first = piece.node("Transpose", tensor, perm=[2, 3, 0, 1])
    picked = piece.node("Transpose", piece.node("GatherND", first, pixels), perm=[4, 5, 0, 1, 2, 3])
    for outside in (beyond[0][:, :, None, None], beyond[1]):
        picked = piece.node("Where", outside, 0.0, picked)
    rows = [piece.node("Gather", picked, np.array(n), axis=3) for n in range(longest[0])]
    summands = [requantise(piece.node("Gather", row, np.array(n), axis=4)) for row in rows for n in range(longest[1])]
    total = reduce(lambda one, other: requantise(piece.node("Add", one, other)), summands)
    heights, widths = (np.array([*map(len, of_axis)]) for of_axis in windows)
    return piece.node("Div", total, np.outer(heights, widths).astype(np.float32))
