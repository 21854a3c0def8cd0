"""The lattice of block extents that the search walks: sizes of each dimension, steps, and what buffers take in."""

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
"""The bit of an action that exchanges rows and columns."""


@dataclass(frozen=True)
class Lattice:
    """Extents of blocks, and what operands take and fetch there."""

    problem: Problem
    base: Mapping[str, int]
    pair: bool
    ragged: bool = False
    least: bool = False

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
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
        return Tiling(self.problem, self.sizes)

    @cached_property
    def room(self) -> list[np.ndarray]:
        return [np.broadcast_to(self.tiling.room(operand), self.tiling.shape).ravel() for operand in OPERANDS]

    @cached_property
    def fill(self) -> list[np.ndarray]:
        """Words that a buffer takes in, and outputs give back, if loops that don't index it end at these extents.

        With ``least`` no more than that: all that may stay at the edge is taken once.
        """
        fills = []
        for operand in OPERANDS:
            words = self.tiling.once(operand)
            times = np.ones((1,) * len(DIMS), np.int64)
            for dim in DIMS:
                if not indexes(operand, dim):
                    times = times * self.tiling.blocks[dim]
            fill = words * times
            if self.least and self.edged:
                fill = fill - self._staying(operand) * words * (times - 1)
            if operand == "output":
                fill = 2 * fill - self.problem.output_words
            fills.append(np.broadcast_to(fill.astype(float), self.tiling.shape).ravel())
        return fills

    @cached_property
    def edges(self) -> dict[str, list[int]]:
        """Of each size the last block's, if that may be all that the last one of a larger size holds; else 0."""
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
        return any(map(any, self.edges.values()))

    def _staying(self, operand: str) -> np.ndarray:
        """The part of an operand's words, at most, in blocks that are alone at an edge; broadcasts over `DIMS`."""
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
        """Words that the datapath takes and gives."""
        return np.array([fill[0] for fill in replace(self, least=False).fill])

    @cached_property
    def steps(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
        """Loops that may be added: the dimensions that grow, and for each point the next one, or -1.

        A loop takes the extent of its dimension to the next one that holds whole blocks, or all of them: by a prime
        factor, where all blocks divide.
        """
        places = np.indices(self.tiling.shape).reshape(len(DIMS), -1)
        strides = [int(np.prod(self.tiling.shape[axis + 1 :])) for axis in range(len(DIMS))]
        here = np.arange(places.shape[1])
        found = []
        for axis, dim in enumerate(DIMS):
            if self.pair and dim in ("Fw", "Fh"):
                continue
            for following in _followers(self.sizes[dim]):
                there = np.array(following)[places[axis]]
                found.append(((dim,), np.where(there < 0, -1, here + (there - places[axis]) * strides[axis])))
        window = [axis for axis, dim in enumerate(DIMS) if dim in ("Fw", "Fh") and len(self.sizes[dim]) > 1]
        if self.pair and window:
            # the window goes as one: both of its sides are whole, or none is
            inside = np.all([places[axis] == 0 for axis in window], axis=0)
            there = here + sum((len(self.sizes[DIMS[axis]]) - 1) * strides[axis] for axis in window)
            found.append((tuple(DIMS[axis] for axis in window), np.where(inside, there, -1)))
        return found

    @cached_property
    def ranks(self) -> np.ndarray:
        """Of each point, larger than those of all points before it: of its extents, added up."""
        ranks = np.zeros(self.tiling.shape, np.int32)
        for dim in DIMS:
            own = [0] * len(self.sizes[dim])
            for here, places in enumerate(zip(*_followers(self.sizes[dim]), strict=True)):
                for there in places:
                    if there >= 0:
                        own[there] = max(own[there], own[here] + 1)
            ranks = ranks + self.tiling.along(dim, own)
        return ranks.ravel()

    @cached_property
    def mirror(self) -> np.ndarray | None:
        """Each point with rows and columns exchanged, if that changes nothing but the names."""
        p = self.problem
        rows = (p.Y, p.Fh, p.stride[0], p.pad[0], p.height, self.base["Y"], self.base["Fh"])
        if rows != (p.X, p.Fw, p.stride[1], p.pad[1], p.width, self.base["X"], self.base["Fw"]):
            return None
        places = np.arange(int(np.prod(self.tiling.shape))).reshape(self.tiling.shape)
        return places.transpose([DIMS.index(dim) for dim in ("Y", "X", "C", "K", "Fh", "Fw")]).ravel()

    def extents(self, point: int) -> dict[str, int]:
        return self.tiling.tile(point)


RAGGED = ("X", "Y", "C", "K")
"""Dimensions whose blocks need not divide, if that is wanted; the window's always do."""


def _followers(sizes: Sequence[int]) -> list[list[int]]:
    """The places of ``sizes`` that may follow each of them, with none between, or -1: a list for each factor by which
    they are larger, and one for the last, which may hold a part of a block."""
    last = len(sizes) - 1
    found: dict[int, list[int]] = {}
    for here, size in enumerate(sizes):
        holding = [place for place in range(here + 1, last + 1) if place == last or sizes[place] % size == 0]
        for place in holding:
            if not any(sizes[place] % sizes[inner] == 0 or place == last for inner in holding if inner < place):
                factor = sizes[place] // size if sizes[place] % size == 0 else 0
                found.setdefault(factor, [-1] * len(sizes))[here] = place
    return [found[factor] for factor in sorted(found)]


EXACT = 1e-9
"""Part by which two energies may differ that are the same."""
