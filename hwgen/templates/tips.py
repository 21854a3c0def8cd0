"""The tip of a group's pyramids: which tile of its output to compute at once, and the work that this makes of layers.

Large tips fetch and compute fewer overlaps, small ones need less memory on chip. Rows and columns are cut apart, so
what a tip costs is a product of what its rows and its columns cost, and hundreds of tips are tried in no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd, prod

import numpy as np

from hwgen.gateware.pyramid.spans import Axis
from hwgen.network.ops import Op
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Pixels of a beat of the input of a group of pyramids, tried in turn.
INPUT_PIXELS = (1, 2, 4, 8)

#: Pyramids a frame at most that are tried: more are slow to schedule and gain little.
MOST_PYRAMIDS = 4096

#: How much longer than the fastest a tip may take if it needs less memory.
SLACK = 1.02

Pair = tuple[int, int]
"""Rows, columns."""


@dataclass(frozen=True)
class PyramidWork:
    """What a layer has to do in each pyramid of a frame.

    Parameters
    ----------
    tiles : pair of Axis
        Rows and columns.
    pixels : int
        Neighbouring pixels of an input beat.

    Raises
    ------
    ConfigError
        If tiles don't begin at beats of so many pixels.
    """

    tiles: tuple[Axis, Axis]
    pixels: int

    def __post_init__(self) -> None:
        self.beats  # noqa: B018 (beats that can't be are refused here)

    @cached_property
    def windows(self) -> np.ndarray:
        """Windows of each pyramid, by row and column of pyramids."""
        rows, columns = ([span.windows for span in axis.spans] for axis in self.tiles)
        return np.outer(rows, columns)

    @cached_property
    def beats(self) -> np.ndarray:
        """Beats in which the pixels of each pyramid's tile pass, by row and column of pyramids."""
        rows, columns = self.tiles
        return np.outer([span.size for span in rows.spans], [cut.size for cut in columns.cut(self.pixels)])

    @property
    def worth(self) -> int:
        """How many of its largest pyramids a frame is worth: by its windows or by its beats, whichever is more.

        Pyramids at the border are smaller than those inside the map. A frame of 10 windows in pyramids of 4, 4 and 2 is
        worth 3 pyramids of 4.
        """
        return max(ceil_div(int(each.sum()), int(each.max())) for each in (self.windows, self.beats))

    def inside(self, work: LayerWork, pyramids: int) -> LayerWork:
        """The work of a frame that is so many pyramids inside the map.

        Layers that are balanced by it are as fast as each other inside the map.
        """
        return self._of(work, pyramids * int(self.windows.max()), pyramids * int(self.beats.max()))

    def in_all(self, work: LayerWork, pyramids: int) -> LayerWork:
        """The same, but no less than what the frame really has.

        Many pyramids of a small map lie at its border, and layers are better balanced over the whole frame there.
        """
        most = (max(pyramids * int(each.max()), int(each.sum())) for each in (self.windows, self.beats))
        return self._of(work, *most)

    def cycles(self, work: LayerWork, unroll: Unroll) -> np.ndarray:
        """Cycles of each pyramid: those of its windows, or of its beats where these are more."""
        return np.maximum(self.windows * int(work.pixel_cycles(unroll)), self.beats * int(work.beats(unroll)))

    def _of(self, work: LayerWork, windows: int, beats: int) -> LayerWork:
        return replace(work, height=windows, width=1, input_height=beats, input_width=1)


def most(axis: Axis, what: str) -> int:
    """The most of something that a span of an axis has: ``windows``, ``new`` pixels, or its ``size``."""
    return max(getattr(span, what) for span in axis.spans)


def tips(layers: Sequence[Op], overlap: str, products: int) -> list[Pair] | Refusal:
    """Return the tips that are worth trying: each one slower than the ones before, and with less memory.

    A frame takes as long as its multiply-adds, or as the tiles of the layer with the most pixels take to pass. Memory
    is what is kept, and two tiles of each layer. Of the tips about as fast as any the first has the least memory.

    Parameters
    ----------
    products : int
        Multiply-adds a cycle.
    """
    last = layers[-1]
    columns = _by_size(layers, overlap, last.output_width, 1)
    rows = _by_size(layers, overlap, last.output_height, 0)
    if isinstance(columns, Refusal):
        return columns
    if isinstance(rows, Refusal):
        return rows
    found = []
    for tip in product(rows, columns):
        if ceil_div(last.output_height, tip[0]) * ceil_div(last.output_width, tip[1]) <= MOST_PYRAMIDS:
            tiles = list(zip(rows[tip[0]], columns[tip[1]], strict=True))
            found.append((_cycles(layers, tiles, tip[1], products), _memory(layers, tiles), tip))
    fast = SLACK * min(cycles for cycles, _, _ in found)
    front = [min(((memory, tip) for cycles, memory, tip in found if cycles <= fast))]
    for _, memory, tip in sorted(entry for entry in found if entry[0] > fast):
        if memory < front[-1][0]:
            front.append((memory, tip))
    return [tip for _, tip in front]


def _by_size(layers: Sequence[Op], overlap: str, size: int, place: int) -> dict[int, list[Axis]] | Refusal:
    """Return one axis of every layer's tiles, for each size of the tip that cuts the output into equal parts.

    Sizes of which no pyramid can be made are left out.
    """
    tiles = {tip: attempt(axes, layers, (tip, 1) if place == 0 else (1, tip), overlap) for tip in _sizes(size)}
    found = {tip: [pair[place] for pair in both] for tip, both in tiles.items() if not isinstance(both, Refusal)}
    whole = tiles[size]
    return whole if isinstance(whole, Refusal) and not found else found


def _sizes(size: int) -> Iterable[int]:
    """1 to ``size``, about four for each doubling."""
    sizes, count = set(), 1.0
    while ceil_div(size, int(count)) > 1:
        sizes.add(ceil_div(size, int(count)))
        count *= 1.2
    return sorted({1, size, *sizes})


def _cycles(layers: Sequence[Op], tiles: Sequence[tuple[Axis, Axis]], tip: int, products: int) -> float:
    """Of a frame, with beats of the group's input as wide as its tiles allow."""
    work, passing = 0, 0.0
    for layer, (rows, columns) in zip(layers, tiles, strict=True):
        work += rows.windows * columns.windows * layer.weight_count
        pixels = sum(span.size for span in rows.spans) * sum(span.size for span in columns.spans)
        passing = max(passing, pixels / (gcd(tip * _stride(layers), INPUT_PIXELS[-1]) if layer is layers[0] else 1))
    return max(work / products, passing)


def _stride(layers: Sequence[Op]) -> int:
    """Columns of the group's input from one pixel of its output to the next."""
    return prod(layer.window.stride[1] for layer in layers)


def _memory(layers: Sequence[Op], tiles: Sequence[tuple[Axis, Axis]]) -> int:
    """Values on chip: the bands that are kept, and two tiles of each layer."""
    return sum(
        layer.channels * (rows.kept * layer.width + columns.kept * rows.new + 2 * rows.tile * columns.tile)
        for layer, (rows, columns) in zip(layers, tiles, strict=True)
    )
