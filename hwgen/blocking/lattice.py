"""Search space of the blocking search: all combinations of tile sizes, with the words that buffers fetch for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwgen.blocking.count import input_axes
from hwgen.blocking.problem import DIMS, INDEXES, OPERANDS, Problem, indexes
from hwgen.blocking.tiling import TileWords, distinct, divisors
from hwgen.errors import ConfigError

MIRRORED = 24
"""Index of the bit, in a search step's action code (an integer), that says rows and columns are exchanged."""


@dataclass(frozen=True)
class Lattice:
    """Search space of blockings: all combinations (points) of block sizes, with buffer sizes and words fetched.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    base : mapping
        Extents that the datapath computes at once.
    pair : bool
        Whether the two loops over the window are one loop.
    ragged : bool
        Whether blocks need not divide the layer.
    optimistic : bool
        Whether `fill` is a lower bound: every block that can stay at an edge is fetched once.
    """

    problem: Problem
    base: Mapping[str, int]
    pair: bool
    ragged: bool = False
    optimistic: bool = False

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """Dictionary by loop dimension of lists of the search's candidate block sizes, ascending."""
        sizes = {}
        for dim in DIMS:
            size, start = self.problem.size(dim), self.base[dim]
            if size % start:
                raise ConfigError(
                    f"{self.problem.name}: {dim}={size} must be a multiple of the {start} that the core computes at "
                    "once"
                )
            factors = {*divisors(size // start)}
            if self.ragged and dim in RAGGED:
                factors.update(distinct(size // start))
            sizes[dim] = [start * factor for factor in sorted(factors)]
            if self.pair and dim in ("Fw", "Fh"):
                sizes[dim] = sorted({start, size})
        return sizes

    @cached_property
    def tiling(self) -> TileWords:
        """Word counts of the layer (`TileWords`) for all combinations of block sizes."""
        return TileWords(self.problem, self.sizes)

    @cached_property
    def room(self) -> list[np.ndarray]:
        """List of words in an input, weight and output block at every lattice point: one array per operand."""
        return [np.broadcast_to(self.tiling.room(operand), self.tiling.shape).ravel() for operand in OPERANDS]

    @cached_property
    def fill(self) -> list[np.ndarray]:
        """List, one array per operand: words moved in all by a buffer that holds each lattice point's block.

        With ``optimistic`` the words are a lower bound: every block that can stay at an edge is fetched once.
        """
        fills = []
        for operand in OPERANDS:
            words = self.tiling.once(operand)
            times = self.tiling.visits(INDEXES[operand], DIMS, scope=0)
            fill = words * times
            if self.optimistic and self.edged:
                fill = fill - self._share_kept(operand) * words * (times - 1)
            if operand == "output":
                fill = 2 * fill - self.problem.output_words
            fills.append(np.broadcast_to(fill.astype(float), self.tiling.shape).ravel())
        return fills

    @cached_property
    def edges(self) -> dict[str, list[int]]:
        """Dict by dimension of a list by block size: elements of the longest edge remainder that shares its buffer.

        It remains after a multiple of the block size. The value is 0 if no multiple among the sizes leaves such a
        block.
        """
        edges = {}
        for dim in DIMS:
            total, sizes = self.problem.size(dim), self.sizes[dim]
            left = [
                [total % larger for larger in sizes if larger > size and larger % size == 0 and total % larger <= size]
                for size in sizes
            ]
            edges[dim] = [max(own, default=0) for own in left]
        return edges

    @property
    def edged(self) -> bool:
        """Whether a partial block at a layer's edge can stay in its buffer while full blocks are fetched again."""
        return any(map(any, self.edges.values()))

    def _share_kept(self, operand: str) -> np.ndarray:
        """Return an array over tile sizes: at most this share (0 to 1) of an operand lies in partial edge tiles.

        Such words belong to partial blocks, which can stay in their buffer.
        """
        share = np.zeros((1,) * len(DIMS))
        for dim in DIMS:
            if indexes(operand, dim) and not (operand == "input" and dim != "C"):
                share = np.maximum(share, self.tiling.along(dim, self.edges[dim]) / self.problem.size(dim))
        if operand == "input":
            for dims in input_axes(self.problem):
                last = self.tiling.input_block(dims, dict(zip(self.sizes[dims[0]], self.edges[dims[0]], strict=True)))
                share = np.maximum(share, last / np.maximum(1, self.tiling.axis_words(dims, None)))
        return np.minimum(share * (1 + EXACT), 1)

    @cached_property
    def datapath_words(self) -> np.ndarray:
        """Words of input, weights and output that the datapath reads and writes in the whole layer: an array (3,)."""
        return np.array([fill[0] for fill in replace(self, optimistic=False).fill])

    @cached_property
    def growths(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
        """List of the loops that can extend a loop order, as pairs: dimensions, and each point's next point, or -1.

        A loop takes the extent of its dimension to the next one that holds whole blocks, or to the full size. If all
        blocks divide the size, the extent grows by a prime factor.
        """
        indices = np.indices(self.tiling.shape).reshape(len(DIMS), -1)
        strides = [int(np.prod(self.tiling.shape[axis + 1 :])) for axis in range(len(DIMS))]
        here = np.arange(indices.shape[1])
        loops = []
        for axis, dim in enumerate(DIMS):
            if self.pair and dim in ("Fw", "Fh"):
                continue
            for following in _followers(self.sizes[dim]):
                target = np.array(following)[indices[axis]]
                loops.append(((dim,), np.where(target < 0, -1, here + (target - indices[axis]) * strides[axis])))
        window = [axis for axis, dim in enumerate(DIMS) if dim in ("Fw", "Fh") and len(self.sizes[dim]) > 1]
        if self.pair and window:
            # the window grows at once: both of its sides are whole, or none is
            inside = np.all([indices[axis] == 0 for axis in window], axis=0)
            target = here + sum((len(self.sizes[DIMS[axis]]) - 1) * strides[axis] for axis in window)
            loops.append((tuple(DIMS[axis] for axis in window), np.where(inside, target, -1)))
        return loops

    @cached_property
    def ranks(self) -> np.ndarray:
        """Topological rank of each lattice point, an array: above the ranks of all points that lead there."""
        ranks = np.zeros(self.tiling.shape, np.int32)
        for dim in DIMS:
            own = [0] * len(self.sizes[dim])
            for here, followers in enumerate(zip(*_followers(self.sizes[dim]), strict=True)):
                for follower in followers:
                    if follower >= 0:
                        own[follower] = max(own[follower], own[here] + 1)
            ranks = ranks + self.tiling.along(dim, own)
        return ranks.ravel()

    @cached_property
    def mirror(self) -> np.ndarray | None:
        """Index of each lattice point with rows and columns exchanged, an array; ``None`` without symmetry.

        The layer must be the same in rows and in columns.
        """
        p = self.problem
        rows = (p.Y, p.Fh, p.stride[0], p.pad[0], p.height, self.base["Y"], self.base["Fh"])
        if rows != (p.X, p.Fw, p.stride[1], p.pad[1], p.width, self.base["X"], self.base["Fw"]):
            return None
        indices = np.arange(int(np.prod(self.tiling.shape))).reshape(self.tiling.shape)
        return indices.transpose([DIMS.index(dim) for dim in ("Y", "X", "C", "K", "Fh", "Fw")]).ravel()

    def extents(self, point: int, mirrored: bool) -> dict[str, int]:
        """Return a dict of block sizes by dimension at a lattice point, or at its mirror image (rows as columns)."""
        return self.tiling.tile(self.mirror[point] if mirrored and self.mirror is not None else point)


RAGGED = ("X", "Y", "C", "K")
"""Tuple of loop dimensions whose blocks may leave a remainder in ragged searches: all but the window's.

Blocks of the window always divide it.
"""


def _followers(sizes: Sequence[int]) -> list[list[int]]:
    """Return one list per growth factor: for each block size, the index of the next size, or -1 if there is none.

    The next size is a multiple of the size, with no other multiple of the size that divides it between. One more list
    holds the last size, which can end with a partial block.
    """
    last = len(sizes) - 1
    by_factor: dict[int, list[int]] = {}
    for here, size in enumerate(sizes):
        holding = [later for later in range(here + 1, last + 1) if later == last or sizes[later] % size == 0]
        for later in holding:
            if not any(sizes[later] % sizes[inner] == 0 or later == last for inner in holding if inner < later):
                factor = sizes[later] // size if sizes[later] % size == 0 else 0
                by_factor.setdefault(factor, [-1] * len(sizes))[here] = later
    return [by_factor[factor] for factor in sorted(by_factor)]


EXACT = 1e-9
"""Maximum relative difference between two energies that count as equal."""
