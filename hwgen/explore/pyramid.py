"""Pyramids: what a group of fused layers keeps, computes and moves (Alwani 2015, chapters 3 and 4).

A pyramid is the part of every layer's map that one tile of the group's last output depends on. The group is
computed pyramid by pyramid, row by row. What neighbouring pyramids share is kept on chip (*reuse*: a band at the
right for the next pyramid, a band at the bottom for the next row of them) or computed again (*recompute*).

All figures are words (one value of a map) or operations a frame. `words` and `recomputation` were chosen so that
the thesis's printed figures come out to the last digit; docs/exploration.md tells where its text says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from hwgen.errors import InputError
from hwgen.network.ops import Op

Pair = tuple[int, int]
"""Vertical, horizontal."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A pyramid at one layer's input; pairs are (rows, columns).

    Parameters
    ----------
    advance : pair
        From one pyramid to the next: the product of the strides from here to the tip, times the tip.
    tile : pair
        Of a pyramid inside the map: ``R' = S R + K - S`` from the tip back (3.1); ``K`` is what a window covers.
    first : pair
        Of the first pyramid, which begins at the map's corner: padding counts here, and what lies in the padding of
        the layers behind isn't computed.
    """

    advance: Pair
    tile: Pair
    first: Pair


def back_map(layers: Sequence[Op], tip: Pair = (1, 1)) -> list[Level]:
    """The pyramid under a ``tip`` of the last layer's output, at each layer's input, first layer first.

    Raises
    ------
    InputError
        If the tip is empty or larger than the output.
    """
    _check(layers, tip)
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


def reuse_words(layers: Sequence[Op], tip: Pair = (1, 1)) -> int:
    """On-chip words that one group keeps for reuse: ``sum of N (K - S) (W + step)`` over its layers' inputs.

    The accounting of the thesis's exploration tool (Fig. 4.1): ``W`` is the width without padding (the band at
    the bottom), ``step`` the new rows of a pyramid (the band at the right). The group's own input counts. A pool with
    ``K = S`` keeps nothing.
    """
    return reuse_words_of_tails(layers, tip)[0]


def reuse_words_of_tails(layers: Sequence[Op], tip: Pair = (1, 1)) -> list[int]:
    """`reuse_words` of every group that ends with the last layer: entry ``i`` is that of ``layers[i:]``."""
    terms = []
    for layer, level in zip(layers, back_map(layers, tip), strict=True):
        below, right = _overlap(layer)
        terms.append(layer.channels * (below * layer.width + right * level.advance[0]))
    return list(accumulate(reversed(terms)))[::-1]


def implementation_words(layers: Sequence[Op], tip: Pair = (1, 1)) -> int:
    """The same by the accounting of the thesis's implementation (55.88 KB, section 3.4.5).

    Widths with padding, the rows of the first pyramid, and the group's own input not counted.
    """
    total = 0
    for layer, level in list(zip(layers, back_map(layers, tip), strict=True))[1:]:
        below, right = _overlap(layer)
        _, left_padding, _, right_padding = layer.window.padding
        width = layer.width + left_padding + right_padding
        total += layer.channels * (below * width + right * level.first[0])
    return total


@dataclass(frozen=True, kw_only=True)
class Work:
    """Arithmetic of the convolutions, a frame.

    Parameters
    ----------
    multiplications : int
        With every value computed once.
    extra_multiplications, extra_additions : int
        On top of that, where overlaps are computed again.
    input_words : int
        Read from off chip where each pyramid reads its whole input tile.
    """

    multiplications: int
    extra_multiplications: int
    extra_additions: int
    input_words: int


def recomputation(layers: Sequence[Op], tip: Pair = (1, 1)) -> Work:
    """The work of one group whose pyramids share nothing, each clipped at the zero padding.

    Additions are counted as the thesis does, ``K*K - 1`` for ``K*K`` multiplications.
    """
    return recomputation_of_tails(layers, tip)[0]


def recomputation_of_tails(layers: Sequence[Op], tip: Pair = (1, 1)) -> list[Work]:
    """`recomputation` of every group that ends with the last layer: entry ``i`` is that of ``layers[i:]``.

    A pyramid is mapped back from the tip, so all these groups have its levels in common.
    """
    _check(layers, tip)
    last = layers[-1]
    rows = _extents(layers, 0, last.output_height, tip[0])
    columns = _extents(layers, 1, last.output_width, tip[1])
    base = extra = additions = 0
    works = []
    for index in reversed(range(len(layers))):
        layer = layers[index]
        pixels = rows[index + 1] * columns[index + 1]
        more = (pixels - layer.output_height * layer.output_width) * layer.weight_count
        base += layer.macs
        # Rows behind the last window of the layers above are in no pyramid: those are not computed, which saves.
        extra += more
        additions += more // layer.taps * (layer.taps - 1)
        works.append(
            Work(
                multiplications=base,
                extra_multiplications=extra,
                extra_additions=additions,
                input_words=layer.channels * rows[index] * columns[index],
            )
        )
    return works[::-1]


def map_traffic(groups: Sequence[Sequence[Op]]) -> int:
    """Words of feature maps over the chip's boundary: each group's input and output, once (no halo twice)."""
    return sum(group[0].input_words + group[-1].output_words for group in groups)


def _extents(layers: Sequence[Op], axis: int, size: int, tip: int) -> list[int]:
    """Rows (axis 0) or columns of all pyramids together: at each layer's input, then at the output.

    Every pyramid's interval is mapped back layer by layer and clipped to the map.
    """
    begin = np.arange(0, size, tip, dtype=np.int64)
    end = np.minimum(begin + tip, size)  # one past the last
    sums = [int((end - begin).sum())]
    for layer in reversed(layers):
        limit = layer.input.shape[1 + axis]
        empty = end <= begin  # a window wholly in the padding needs nothing
        begin, end = (np.minimum(np.maximum(place, 0), limit) for place in layer.window.reach(axis, begin, end))
        end[empty] = begin[empty]
        sums.append(int(np.maximum(end - begin, 0).sum()))
    return sums[::-1]


def _back(size: int, extent: int, stride: int) -> int:
    return stride * size + extent - stride


def _overlap(layer: Op) -> Pair:
    """Rows and columns that neighbouring windows share; 0 where the stride skips."""
    extent, stride = layer.window.extent, layer.window.stride
    return max(extent[0] - stride[0], 0), max(extent[1] - stride[1], 0)


def _check(layers: Sequence[Op], tip: Pair) -> None:
    if not layers:
        raise InputError("a pyramid must have at least one layer, not 0")
    for before, after in pairwise(layers):
        if (before.outputs, before.output_height, before.output_width) != (after.channels, after.height, after.width):
            raise InputError(
                f"a pyramid's layers must follow each other: {after.name} does not take {before.name}'s map"
            )
    last = layers[-1]
    if not (1 <= tip[0] <= last.output_height and 1 <= tip[1] <= last.output_width):
        raise InputError(
            f"a pyramid's tip must be between 1x1 and {last.name}'s {last.output_height}x{last.output_width}, "
            f"not {tip[0]}x{tip[1]}"
        )
