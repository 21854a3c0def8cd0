"""One level of tiles, for many tile sizes at once: the counts of `hwgen.blocking.count` as arrays.

A `Tiling` takes candidate sizes for every dimension and gives arrays over all their combinations, one axis for each of
`DIMS`, that broadcast against each other. The tests hold them against nests of the same tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from hwgen.blocking.count import Axis, input_axes
from hwgen.blocking.nest import Blocks
from hwgen.blocking.problem import DIMS, Problem, indexes
from hwgen.errors import PlanError

__all__ = ["MAX_TILES", "Tiling", "candidates", "check_number", "cut", "distinct", "divisors", "pairs"]


MAX_TILES = 30_000_000
"""An array of one figure of each then takes 240 MB."""


def divisors(size: int) -> list[int]:
    """The sizes that divide ``size``, ascending."""
    return [step for step in range(1, size + 1) if size % step == 0]


def distinct(size: int) -> list[int]:
    """The smallest step for each number of blocks that ``size`` can be cut into, ascending.

    With the number of blocks fixed, no other step takes less room.
    """
    return sorted({-(-size // -(-size // step)) for step in range(1, size + 1)})


def candidates(problem: Problem, *, whole_window: bool = False) -> dict[str, list[int]]:
    """Sizes of each dimension that an optimal tile may have.

    A larger block is left out if a smaller one has no more blocks and moves no more words, whatever part of the window
    is taken (all of it, with ``whole_window``) and whichever way tiles are walked. Without padding what is moved
    depends on the number of blocks only; with it, blocks at the map's edges differ.
    """
    sizes = {"C": distinct(problem.C), "K": distinct(problem.K)}
    for dims, axis in input_axes(problem).items():
        taps = [axis.window] if whole_window else list(range(1, axis.window + 1))
        sizes[dims[1]] = taps
        steps = list(range(1, axis.outputs + 1)) if axis.pad or _cropped(axis) else distinct(axis.outputs)
        if len(steps) == axis.outputs:
            tiling = Tiling(problem, {**{dim: [1] for dim in DIMS}, dims[0]: steps, dims[1]: taps})
            figures = [tiling.blocks[dims[0]]]
            figures += [tiling.axis_words(dims, way) for way in (None, *([] if whole_window else dims))]
            table = np.concatenate([figure.reshape(len(steps), -1) for figure in figures], axis=1)
            steps = [step for row, step in enumerate(steps) if not (table[:row] <= table[row]).all(axis=1).any()]
        sizes[dims[0]] = steps
    return {dim: sizes[dim] for dim in DIMS}


def _cropped(axis: Axis) -> bool:
    """Whether the last window reaches out of the map."""
    return (axis.outputs - 1) * axis.stride - axis.pad + axis.window > axis.size


def check_number(tiling: Tiling) -> None:
    """Refuse to compare more tiles than memory holds comfortably.

    Raises
    ------
    PlanError
        If there are more than `MAX_TILES`.
    """
    number = prod(tiling.shape)
    if number > MAX_TILES:
        raise PlanError(
            f"{tiling.problem.name}: {number:,} tiles are too many to compare, at most {MAX_TILES:,} work; "
            "a smaller map, window or number of channels has fewer"
        )


def cut(size: int, step: int) -> Blocks:
    """The blocks of a dimension of ``size``, ``step`` long."""
    return Blocks(np.zeros(1, np.int64), np.full(1, size, np.int64)).split(step)


def pairs(blocks: Blocks, other: Blocks) -> tuple[Blocks, Blocks]:
    """Blocks of two dimensions that broadcast to all their combinations."""
    return Blocks(blocks.start[:, None], blocks.length[:, None]), other


@dataclass(frozen=True)
class Tiling:
    """All tiles with the given sizes.

    Parameters
    ----------
    problem : Problem
    sizes : mapping
        Candidate tile sizes of each dimension.
    """

    problem: Problem
    sizes: Mapping[str, Sequence[int]]

    def tile(self, index: int) -> dict[str, int]:
        """The tile at a flat index into the full arrays."""
        places = np.unravel_index(index, self.shape)
        return {dim: self.sizes[dim][place] for dim, place in zip(DIMS, map(int, places), strict=True)}

    @cached_property
    def _words(self) -> dict[tuple[tuple[str, str], str | None], np.ndarray]:
        """The input's words along one axis, as they are asked for."""
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(self.sizes[dim]) for dim in DIMS)

    def along(self, dim: str, values: Sequence[int] | np.ndarray) -> np.ndarray:
        """One value for each size of ``dim``, on that dimension's axis."""
        shape = [1] * len(DIMS)
        shape[DIMS.index(dim)] = -1
        return np.asarray(values, np.int64).reshape(shape)

    def extent(self, dim: str) -> np.ndarray:
        return self.along(dim, self.sizes[dim])

    @cached_property
    def blocks(self) -> dict[str, np.ndarray]:
        """Numbers of blocks of each dimension."""
        return {dim: self.along(dim, [-(-self.problem.size(dim) // step) for step in self.sizes[dim]]) for dim in DIMS}

    def room(self, operand: str) -> np.ndarray:
        """Words that hold a tile's block of ``operand``; see `count.capacity`."""
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
        """Words fetched by a plain buffer of one tile, tiles walked in ``order`` (inner to outer).

        ``dims`` are the dimensions that index the operand, if they aren't the operand's own: ``{"K"}`` for biases.
        ``scope``: see `count`.
        """
        indexed = {dim for dim in DIMS if indexes(operand, dim)} if dims is None else dims
        words = self.once(operand) if dims is None else self._array(indexed)
        return words * self.visits(indexed, order, scope)

    def visits(self, indexed: Collection[str], order: Sequence[str], scope: int | None = None) -> np.ndarray:
        """How often each block of an operand indexed by these dimensions is fetched.

        A loop that doesn't index the operand fetches its blocks again, if a loop inside it changes them, or if it is
        beyond the first ``scope`` loops.
        """
        times = np.ones((1,) * len(DIMS), np.int64)
        changes = np.zeros((1,) * len(DIMS), bool)
        for place, dim in enumerate(order):
            if dim in indexed:
                changes = changes | (self.blocks[dim] > 1)
            else:
                lost = changes if scope is None or place < scope else True
                times = times * np.where(lost, self.blocks[dim], 1)
        return times

    def swept(self, operand: str, direction: str) -> np.ndarray:
        """Words fetched by a buffer that keeps what two tiles have in common while ``direction`` is walked.

        With the first tile of each sweep everything is fetched anew, so the order of the other loops doesn't matter.
        """
        words = self.once(operand, direction)
        for dim in DIMS:
            if not indexes(operand, dim) and dim != direction:
                words = words * self.blocks[dim]
        return words

    def once(self, operand: str, direction: str | None = None) -> np.ndarray:
        """Words of all blocks, each fetched once; less what neighbours share in ``direction``, if that is given."""
        indexed = {dim for dim in DIMS if indexes(operand, dim)}
        if operand != "input":
            return self._array(indexed) * (operand != "weights" or self.problem.weighted)
        words = self._array({"C"})
        for dims in input_axes(self.problem):
            key = (dims, direction if direction in dims else None)
            if key not in self._words:
                self._words[key] = self.axis_words(*key)
            words = words * self._words[key]
        return words

    def input_block(self, dims: tuple[str, str], windows: Mapping[int, int]) -> np.ndarray:
        """Words of the input along one axis, at most, under ``windows`` of each size of tile; of all blocks of taps."""
        axis = input_axes(self.problem)[dims]
        taps = self.problem.size(dims[1])
        return self._table(dims, lambda x, f: -(-taps // f) * axis.room(windows[x], f) if windows[x] else 0)

    def _array(self, indexed: Collection[str]) -> np.ndarray:
        words = self.problem.groups
        for dim in indexed:
            words *= self.problem.size(dim)
        return np.full((1,) * len(DIMS), words, np.int64)

    def _table(self, dims: tuple[str, str], value: Callable[[int, int], int]) -> np.ndarray:
        """``value(x, f)`` for all sizes of two dimensions, on their axes."""
        shape = [len(self.sizes[dim]) if dim in dims else 1 for dim in DIMS]
        sizes = product(*(self.sizes[dim] for dim in dims))  # windows first: X before Fw, Y before Fh in DIMS
        return np.array([value(*pair) for pair in sizes], np.int64).reshape(shape)

    def axis_words(self, dims: tuple[str, str], direction: str | None) -> np.ndarray:
        """Words of the input along one axis, summed over its blocks; less what neighbours share in ``direction``."""
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
