"""Pyramids as Alwani's thesis maps them back from a tile of the output, and the storage of its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.explore.pyramid import Pair, check_tip
from hwgen.network.ops import Op


@dataclass(frozen=True, kw_only=True)
class Level:
    """Size and advance of a pyramid (the inputs that one output tile depends on) at one layer's input.

    Parameters
    ----------
    advance : pair
        Distance from one pyramid to the next: the product of the strides from here to the tip, times the tip.
    tile : pair
        Size of a pyramid inside the map: ``R' = S R + K - S`` from the tip back (3.1). ``K`` is the extent of a window.
    first : pair
        Size of the first pyramid, which begins at the map's corner. Padding counts here. Values in the padding of the
        following layers are not computed.
    """

    advance: Pair
    tile: Pair
    first: Pair


def back_map(layers: Sequence[Op], tip: Pair = (1, 1)) -> list[Level]:
    """Return, for each layer, size and advance of the input region on which an output tile of size ``tip`` depends.

    Raises
    ------
    InputError
        If the tip is empty or larger than the output.
    """
    check_tip(layers, tip)
    advance, tile, first = tip, tip, tip
    levels = []
    for layer in reversed(layers):
        extent, stride, padding = layer.window.extent, layer.window.stride, layer.window.padding[:2]
        advance = (advance[0] * stride[0], advance[1] * stride[1])
        tile = (_back(tile[0], extent[0], stride[0]), _back(tile[1], extent[1], stride[1]))
        first = (_back(first[0], extent[0], stride[0]), _back(first[1], extent[1], stride[1]))
        levels.append(Level(advance=advance, tile=tile, first=first))
        first = (max(first[0] - padding[0], 1), max(first[1] - padding[1], 1))
    return levels[::-1]


def implementation_words(layers: Sequence[Op], tip: Pair = (1, 1)) -> int:
    """Return the on-chip words that the implementation in Alwani's thesis stores to reuse overlaps (section 3.4.5).

    Widths include padding, the rows are those of the first pyramid, and the group's own input does not count.
    """
    total = 0
    for layer, level in list(zip(layers, back_map(layers, tip), strict=True))[1:]:
        below, right = _overlap(layer)
        _, left_padding, _, right_padding = layer.window.padding
        width = layer.width + left_padding + right_padding
        total += layer.channels * (below * width + right * level.first[0])
    return total


def _back(size: int, extent: int, stride: int) -> int:
    """Return the number of input rows or columns under ``size`` neighbouring windows."""
    return stride * size + extent - stride


def _overlap(layer: Op) -> Pair:
    """Return the rows and columns that neighbouring windows of a layer share; 0 where the stride skips pixels."""
    extent, stride = layer.window.extent, layer.window.stride
    return max(extent[0] - stride[0], 0), max(extent[1] - stride[1], 0)
