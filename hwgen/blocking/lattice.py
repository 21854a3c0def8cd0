"""Lattice of block extents that the search walks: sizes of each dimension, steps, and words that buffers fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwgen.blocking.count import input_axes
from hwgen.blocking.problem import DIMS, OPERANDS, Problem, indexes
from hwgen.blocking.tiling import Tiling, distinct, divisors
from hwgen.errors import ConfigError

__all__ = ["EXACT", "Lattice", "MIRRORED", "RAGGED"]


MIRRORED = 24
"""Bit of an action that exchanges rows and columns."""


@dataclass(frozen=True)
class Lattice:
    """Lattice of block extents, with the words that operands occupy and fetch at each point.

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
        """Sizes of each dimension's blocks, ascending."""
        sizes = {}
        for dim in DIMS:
            size, start = self.problem.size(dim), self.base[dim]
            if size % start:
                raise ConfigError(f"{self.problem.name}: {dim}={size} must be a multiple of the datapath's {start}")
            factors = {*divisors(size // start)}
            if self.ragged and dim in RAGGED:
                factors.update(distinct(size // start))
            sizes[dim] = [start * factor for factor in sorted(factors)]
            if self.pair and dim in ("Fw", "Fh"):
                sizes[dim] = sorted({start, size})
        return sizes

    @cached_property
    def tiling(self) -> Tiling:
        """Tiling with all combinations of the sizes."""
        return Tiling(self.problem, self.sizes)

    @cached_property
    def room(self) -> list[np.ndarray]:
        """Words of each operand's block at every point."""
        return [np.broadcast_to(self.tiling.room(operand), self.tiling.shape).ravel() for operand in OPERANDS]

    @cached_property
    def fill(self) -> list[np.ndarray]:
        """Words that a buffer reads, and that outputs write, if loops that don't index the buffer end at these extents.

        With ``optimistic`` the words are a lower bound: every block that can stay at an edge is fetched once.
        """
        fills = []
        for operand in OPERANDS:
            words = self.tiling.once(operand)
            times = np.ones((1,) * len(DIMS), np.int64)
            for dim in DIMS:
                if not indexes(operand, dim):
                    times = times * self.tiling.blocks[dim]
            fill = words * times
            if self.optimistic and self.edged:
                fill = fill - self._staying(operand) * words * (times - 1)
            if operand == "output":
                fill = 2 * fill - self.problem.output_words
            fills.append(np.broadcast_to(fill.astype(float), self.tiling.shape).ravel())
        return fills

    @cached_property
    def edges(self) -> dict[str, list[int]]:
        """Length of the last block of each size, if the last block of a larger size can consist of it alone; else 0."""
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
        """Whether a block can be alone at an edge."""
        return any(map(any, self.edges.values()))

    def _staying(self, operand: str) -> np.ndarray:
        """Return an upper bound of the share of an operand's words in blocks that are alone at an edge."""
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
    def taken(self) -> np.ndarray:
        """Words that the datapath reads and writes, per operand."""
        return np.array([fill[0] for fill in replace(self, optimistic=False).fill])

    @cached_property
    def steps(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
        """Loops that can be added: the dimensions that grow, and the next point of each point, or -1.

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
        """Rank of each point: the sum of the ranks of its extents. It exceeds the rank of every point before it."""
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
        """Index of each point with rows and columns exchanged; ``None`` if the exchange changes more than names."""
        p = self.problem
        rows = (p.Y, p.Fh, p.stride[0], p.pad[0], p.height, self.base["Y"], self.base["Fh"])
        if rows != (p.X, p.Fw, p.stride[1], p.pad[1], p.width, self.base["X"], self.base["Fw"]):
            return None
        indices = np.arange(int(np.prod(self.tiling.shape))).reshape(self.tiling.shape)
        return indices.transpose([DIMS.index(dim) for dim in ("Y", "X", "C", "K", "Fh", "Fw")]).ravel()

    def extents(self, point: int) -> dict[str, int]:
        """Return the extents of all dimensions at a point."""
        return self.tiling.tile(point)


RAGGED = ("X", "Y", "C", "K")
"""Dimensions whose blocks need not divide the size, if that is requested. Blocks of the window always divide it."""


def _followers(sizes: Sequence[int]) -> list[list[int]]:
    """Return the indices of ``sizes`` that can follow each size with no size in between, or -1.

    There is one list per factor between the sizes. One more list holds the last size, which can end with a partial
    block.
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
"""Relative difference of two energies that count as equal."""
