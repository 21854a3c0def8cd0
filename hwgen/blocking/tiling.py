"""Word counts of a layer with one level of tiles, for many tile sizes at once, as NumPy arrays.

A `TileWords` takes candidate sizes for every dimension. It returns arrays over all their combinations, with one axis
per entry of `DIMS`, that broadcast against each other. The tests compare the arrays with nests of the same tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from hwgen.blocking.count import Axis, input_axes
from hwgen.blocking.problem import DIMS, INDEXES, Blocks, Problem, indexes, pairs
from hwgen.errors import PlanError

MAX_TILES = 30_000_000
"""Maximum number of tile sizes that a search compares; an array with one value per tile size then takes 240 MB."""


def divisors(size: int) -> list[int]:
    """Return a list of all divisors of ``size``, ascending."""
    return [step for step in range(1, size + 1) if size % step == 0]


def distinct(size: int) -> list[int]:
    """Return, as a list, the smallest block size for each possible number of blocks of ``size`` elements, ascending.

    For a fixed number of blocks no other step needs less room.
    """
    return sorted({-(-size // -(-size // step)) for step in range(1, size + 1)})


def candidates(problem: Problem, *, whole_window: bool = False) -> dict[str, list[int]]:
    """Return a dictionary of candidate tile sizes by loop dimension, which surely include one with the fewest words.

    The result leaves out a larger block if a smaller block has no more blocks and moves no more words. This must hold
    for any part of the window (for all of it, with ``whole_window``) and any loop order. Without padding the words
    moved depend only on the number of blocks; with padding, blocks at the map's edges differ.
    """
    sizes = {"C": distinct(problem.C), "K": distinct(problem.K)}
    for dims, axis in input_axes(problem).items():
        taps = [axis.window] if whole_window else list(range(1, axis.window + 1))
        sizes[dims[1]] = taps
        steps = list(range(1, axis.outputs + 1)) if axis.pad or _is_cropped(axis) else distinct(axis.outputs)
        if len(steps) == axis.outputs:
            tiling = TileWords(problem, {**{dim: [1] for dim in DIMS}, dims[0]: steps, dims[1]: taps})
            figures = [tiling.blocks[dims[0]]]
            figures += [tiling.axis_words(dims, direction) for direction in (None, *([] if whole_window else dims))]
            table = np.concatenate([figure.reshape(len(steps), -1) for figure in figures], axis=1)
            steps = [step for row, step in enumerate(steps) if not (table[:row] <= table[row]).all(axis=1).any()]
        sizes[dims[0]] = steps
    return {dim: sizes[dim] for dim in DIMS}


def _is_cropped(axis: Axis) -> bool:
    """Return whether the last sliding window along an axis extends beyond the input map."""
    return (axis.outputs - 1) * axis.stride - axis.pad + axis.window > axis.size


def check_tile_count(tiling: TileWords) -> None:
    """Raise an error if a search would compare more than `MAX_TILES` tile sizes, which takes too much memory.

    Raises
    ------
    PlanError
        If there are more than `MAX_TILES` tiles.
    """
    num_tiles = prod(tiling.shape)
    if num_tiles > MAX_TILES:
        raise PlanError(
            f"{tiling.problem.name}: {num_tiles:,} tiles are too many to compare, at most {MAX_TILES:,} work; "
            "a smaller map, window or number of channels has fewer"
        )


def cut(size: int, step: int) -> Blocks:
    """Return the `Blocks` of at most ``step`` elements that cover a loop dimension of ``size`` elements."""
    return Blocks(np.zeros(1, np.int64), np.full(1, size, np.int64)).split(step)


@dataclass(frozen=True)
class TileWords:
    """Word counts of a layer over all combinations of candidate tile sizes, as broadcasting arrays.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    sizes : mapping
        Candidate tile sizes of each dimension.
    """

    problem: Problem
    sizes: Mapping[str, Sequence[int]]

    def tile(self, index: int) -> dict[str, int]:
        """Return, as a dictionary, the tile size, by dimension, at a flat index into the arrays over all tile sizes."""
        indices = np.unravel_index(index, self.shape)
        return {dim: self.sizes[dim][index_of_size] for dim, index_of_size in zip(DIMS, map(int, indices), strict=True)}

    @cached_property
    def _words(self) -> dict[tuple[tuple[str, str], str | None], np.ndarray]:
        """Dictionary (cache) of arrays from `axis_words`, by the axis's dimensions and the direction of tiles."""
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of numbers of candidate tile sizes per loop dimension: the shape of all arrays over tile sizes."""
        return tuple(len(self.sizes[dim]) for dim in DIMS)

    def along(self, dim: str, values: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return ``values``, an array over tile sizes of ``dim``, reshaped to broadcast along that dimension."""
        shape = [1] * len(DIMS)
        shape[DIMS.index(dim)] = -1
        return np.asarray(values, np.int64).reshape(shape)

    def extent(self, dim: str) -> np.ndarray:
        """Return an array of the tile sizes of dimension ``dim``, reshaped to broadcast along that dimension's axis."""
        return self.along(dim, self.sizes[dim])

    @cached_property
    def blocks(self) -> dict[str, np.ndarray]:
        """Dictionary of arrays by loop dimension: number of tiles along it, broadcasting over all tile sizes."""
        return {dim: self.along(dim, [-(-self.problem.size(dim) // step) for step in self.sizes[dim]]) for dim in DIMS}

    def room(self, operand: str) -> np.ndarray:
        """Return an array over tile sizes: the words of buffer that one tile's block of ``operand`` needs."""
        if operand == "weights" and not self.problem.weighted:
            return np.zeros((1,) * len(DIMS), np.int64)
        words = np.ones((1,) * len(DIMS), np.int64)
        for dim in DIMS:
            if indexes(operand, dim) and not (operand == "input" and dim != "C"):
                words = words * self.extent(dim)
        if operand == "input":
            for dims, axis in input_axes(self.problem).items():
                words = words * self._table(dims, lambda x, f, axis=axis: axis.room(x, f))
        return words

    def loads(
        self,
        operand: str,
        order: Sequence[str],
        *,
        dims: Collection[str] | None = None,
        scope: int | None = None,
    ) -> np.ndarray:
        """Return an array over tile sizes: words of an operand that a buffer of one tile fetches in a loop order.

        ``order`` lists the tile loops. ``dims`` are the dimensions that index the operand, if they differ from the
        operand's own: ``{"K"}`` for biases. ``scope``: see `count`.
        """
        indexed = INDEXES[operand] if dims is None else dims
        words = self.once(operand) if dims is None else self._array(indexed)
        return words * self.visits(indexed, order, scope)

    def visits(self, indexed: Collection[str], order: Sequence[str], scope: int | None = None) -> np.ndarray:
        """Return an array, per tile size, of how often each block (a tile's part) of an operand is fetched.

        ``indexed`` are the dimensions of the operand. A loop that doesn't index the operand fetches its blocks again in
        two cases: a loop inside it changes the block, or the loop is beyond the first ``scope`` loops.
        """
        times = np.ones((1,) * len(DIMS), np.int64)
        changes = np.zeros((1,) * len(DIMS), bool)
        for depth, dim in enumerate(order):
            if dim in indexed:
                changes = changes | (self.blocks[dim] > 1)
            else:
                lost = changes if scope is None or depth < scope else True
                times = times * np.where(lost, self.blocks[dim], 1)
        return times

    def swept(self, operand: str, direction: str) -> np.ndarray:
        """Return an array over tile sizes: words fetched if overlaps of adjacent tiles in ``direction`` are kept.

        The first tile of each sweep fetches everything again, so the order of the other loops doesn't matter.
        """
        return self.once(operand, direction) * self.visits({*INDEXES[operand], direction}, DIMS, scope=0)

    def once(self, operand: str, direction: str | None = None) -> np.ndarray:
        """Return an array, axes by loop dimension: words of all an operand's tiles, minus overlaps in ``direction``.

        The next block is the neighbour in ``direction``. Without a direction nothing is shared.
        """
        if operand != "input":
            return self._array(INDEXES[operand]) * (operand != "weights" or self.problem.weighted)
        words = self._array({"C"})
        for dims in input_axes(self.problem):
            key = (dims, direction if direction in dims else None)
            if key not in self._words:
                self._words[key] = self.axis_words(*key)
            words = words * self._words[key]
        return words

    def input_block(self, dims: tuple[str, str], windows: Mapping[int, int]) -> np.ndarray:
        """Return an array over tile sizes: maximum input rows (or columns) that ``windows[size]`` windows read.

        The rows or columns of all blocks of taps are summed up.
        """
        axis = input_axes(self.problem)[dims]
        taps = self.problem.size(dims[1])
        return self._table(dims, lambda x, f: -(-taps // f) * axis.room(windows[x], f) if windows[x] else 0)

    def _array(self, indexed: Collection[str]) -> np.ndarray:
        words = self.problem.groups
        for dim in indexed:
            words *= self.problem.size(dim)
        return np.full((1,) * len(DIMS), words, np.int64)

    def _table(self, dims: tuple[str, str], value: Callable[[int, int], int]) -> np.ndarray:
        """Return an array, axes by loop dimension: ``value(x, f)`` for each output tile size and window tile size."""
        shape = [len(self.sizes[dim]) if dim in dims else 1 for dim in DIMS]
        sizes = product(*(self.sizes[dim] for dim in dims))  # windows first: X before Fw, Y before Fh in DIMS
        return np.array([value(*pair) for pair in sizes], np.int64).reshape(shape)

    def axis_words(self, dims: tuple[str, str], direction: str | None) -> np.ndarray:
        """Return an array over tile sizes: input rows (or columns) all tiles read, minus overlaps in ``direction``.

        The next tile is the neighbour in ``direction``. Without a direction nothing is shared.
        """
        axis = input_axes(self.problem)[dims]
        cuts = [{step: cut(self.problem.size(dim), step) for step in self.sizes[dim]} for dim in dims]

        def words(x: int, f: int) -> int:
            windows, taps = cuts[0][x], cuts[1][f]
            total = int(np.sum(axis.touched(*pairs(windows, taps))))
            if direction is None:
                return total
            moved = windows if direction == dims[0] else taps
            if len(moved.start) == 1:
                return total
            steps = [Blocks(moved.start[ends], moved.length[ends]) for ends in (slice(-1), slice(1, None))]
            ends = [pairs(step, taps) if direction == dims[0] else pairs(windows, step) for step in steps]
            return total - int(np.sum(axis.shared(ends[0], ends[1])))

        return self._table(dims, words)
