"""Search for the output tile (tip) of a fusion group computed tile by tile, and each layer's work per tile.

Large tips fetch and compute fewer overlaps; small tips need less memory on chip. Rows and columns are independent, so
a tip's cost is a product of its rows' and its columns' cost, and hundreds of tips are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd, prod

import numpy as np

from hwgen.gateware.pyramid.spans import TiledAxis
from hwgen.network.ops import Op
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Candidate numbers of pixels per beat of a pyramid group's input.
INPUT_PIXELS = (1, 2, 4, 8)

#: Maximum number of pyramids per frame. More pyramids are slow to schedule and gain little.
MAX_PYRAMIDS = 4096

#: Maximum ratio of a tip's cycles to the fastest tip's cycles if it is preferred because it needs less memory.
SLACK = 1.02

Pair = tuple[int, int]
"""Type of a number of rows and a number of columns."""


@dataclass(frozen=True)
class PyramidWork:
    """Work of a layer for each tile of a frame: numbers of windows and of input beats.

    Parameters
    ----------
    tiles : pair of TiledAxis
        Rows and columns of the layer's tiles.
    pixels : int
        Number of neighbouring pixels of an input beat.

    Raises
    ------
    ConfigError
        If tiles don't begin at whole beats.
    """

    tiles: tuple[TiledAxis, TiledAxis]
    pixels: int

    def __post_init__(self) -> None:
        self.beats  # noqa: B018 (refuses tiles that don't begin at whole beats)

    @cached_property
    def windows(self) -> np.ndarray:
        """Number of the layer's windows in each pyramid (tile), a two-dimensional array by row and column of tiles."""
        rows, columns = ([span.windows for span in axis.spans] for axis in self.tiles)
        return np.outer(rows, columns)

    @cached_property
    def beats(self) -> np.ndarray:
        """Number of beats of the layer's input tile in each pyramid, a two-dimensional array by row and column."""
        rows, columns = self.tiles
        return np.outer([span.size for span in rows.spans], [cut.size for cut in columns.cut(self.pixels)])

    @property
    def full_size_count(self) -> int:
        """Number of full-size pyramids (tiles) whose work equals a frame's, in windows or in beats, whichever are more.

        Pyramids at the border are smaller than pyramids inside the map. A frame of 10 windows in pyramids of 4, 4 and 2
        is worth 3 pyramids of 4.
        """
        return max(ceil_div(int(counts.sum()), int(counts.max())) for counts in (self.windows, self.beats))

    def inside(self, work: LayerWork, pyramids: int) -> LayerWork:
        """Return a layer's `LayerWork` in a frame of ``pyramids`` tiles, all of full size, as inside the map.

        Layers that are balanced by this work have equal speed inside the map.
        """
        return self._work_of(work, pyramids * int(self.windows.max()), pyramids * int(self.beats.max()))

    def in_all(self, work: LayerWork, pyramids: int) -> LayerWork:
        """Return a layer's `LayerWork` in ``pyramids`` full-size tiles, but at least the work in the whole frame.

        Many pyramids of a small map are at its border, and layers are then better balanced over the whole frame.
        """
        bounds = (max(pyramids * int(counts.max()), int(counts.sum())) for counts in (self.windows, self.beats))
        return self._work_of(work, *bounds)

    def cycles(self, work: LayerWork, unroll: Unroll) -> np.ndarray:
        """Return an array of a layer's cycles per pyramid (tile): for its windows, or for its input beats if longer."""
        return np.maximum(self.windows * int(work.pixel_cycles(unroll)), self.beats * int(work.beats(unroll)))

    def _work_of(self, work: LayerWork, windows: int, beats: int) -> LayerWork:
        return replace(work, height=windows, width=1, input_height=beats, input_width=1)


def largest(axis: TiledAxis, what: str) -> int:
    """Return the maximum of the `Span` attribute ``what`` over an axis's tiles, in rows or columns."""
    return max(getattr(span, what) for span in axis.spans)


def tips(layers: Sequence[Op], overlap: str, products: int) -> list[Pair] | Refusal:
    """Return a list of candidate output tiles (rows, columns), ever slower and smaller in memory, or a `Refusal`.

    Each tip is slower and needs less memory than the previous one. The cycles of a frame are the cycles of its
    multiply-adds, or of the transfers of the layer with the most pixels. The memory is the kept bands and two tiles of
    each layer. The first candidate needs the least memory of all tips within `SLACK` of the fastest.

    Parameters
    ----------
    layers : sequence of Op
    overlap : str
        Treatment of pixels that neighbouring pyramids share.
    products : int
        Number of multiply-adds per cycle.
    """
    last = layers[-1]
    columns = _by_size(layers, overlap, last.output_width, 1)
    rows = _by_size(layers, overlap, last.output_height, 0)
    if isinstance(columns, Refusal):
        return columns
    if isinstance(rows, Refusal):
        return rows
    options = []
    for tip in product(rows, columns):
        if ceil_div(last.output_height, tip[0]) * ceil_div(last.output_width, tip[1]) <= MAX_PYRAMIDS:
            tiles = list(zip(rows[tip[0]], columns[tip[1]], strict=True))
            options.append((_cycles(layers, tiles, tip[1], products), _memory(layers, tiles), tip))
    fast = SLACK * min(cycles for cycles, _, _ in options)
    front = [min(((memory, tip) for cycles, memory, tip in options if cycles <= fast))]
    for _, memory, tip in sorted(entry for entry in options if entry[0] > fast):
        if memory < front[-1][0]:
            front.append((memory, tip))
    return [tip for _, tip in front]


def _by_size(layers: Sequence[Op], overlap: str, size: int, axis: int) -> dict[int, list[TiledAxis]] | Refusal:
    """Return, as a dict by output tile size, each layer's tiles (`TiledAxis`) along one axis, or a `Refusal`.

    The sizes cut the output into nearly equal parts. Sizes without a pyramid that can be built are omitted.
    """
    tiles = {tip: attempt(axes, layers, (tip, 1) if axis == 0 else (1, tip), overlap) for tip in _sizes(size)}
    axes_by_size = {
        tip: [pair[axis] for pair in layer_axes]
        for tip, layer_axes in tiles.items()
        if not isinstance(layer_axes, Refusal)
    }
    whole = tiles[size]
    return whole if isinstance(whole, Refusal) and not axes_by_size else axes_by_size


def _sizes(size: int) -> Iterable[int]:
    """Return a list of tile sizes, ascending, about four per doubling, that cut ``size`` into nearly equal parts."""
    sizes, count = set(), 1.0
    while ceil_div(size, int(count)) > 1:
        sizes.add(ceil_div(size, int(count)))
        count *= 1.2
    return sorted({1, size, *sizes})


def _cycles(layers: Sequence[Op], tiles: Sequence[tuple[TiledAxis, TiledAxis]], tip: int, products: int) -> float:
    """Return the estimated cycles per frame of fused layers in given tiles, with input beats as wide as tiles allow."""
    work, passing = 0, 0.0
    for layer, (rows, columns) in zip(layers, tiles, strict=True):
        work += rows.windows * columns.windows * layer.weight_count
        pixels = sum(span.size for span in rows.spans) * sum(span.size for span in columns.spans)
        passing = max(passing, pixels / (gcd(tip * _stride(layers), INPUT_PIXELS[-1]) if layer is layers[0] else 1))
    return max(work / products, passing)


def _stride(layers: Sequence[Op]) -> int:
    """Return the number of columns of a fusion group's input per column of the group's output."""
    return prod(layer.window.stride[1] for layer in layers)


def _memory(layers: Sequence[Op], tiles: Sequence[tuple[TiledAxis, TiledAxis]]) -> int:
    """Return the number of values stored on chip for a tiling: kept bands, and two tiles of each layer."""
    return sum(
        layer.channels * (rows.kept * layer.width + columns.kept * rows.new + 2 * rows.tile * columns.tile)
        for layer, (rows, columns) in zip(layers, tiles, strict=True)
    )
