"""What a blocked nest moves: exact counts of every operand's fetches, for any buffer at any position.

A buffer at position ``p`` of a nest holds the block of its operand that loops 0 to ``p - 1`` touch. As the loops
outside walk on, its content changes; what is fetched then depends on the buffer:

- plain: the whole block, whenever it is another one. While loops run that don't index the operand, the block stays.
- ``overlap``: only the elements that the block before did not have (Peemen's inter-tile reuse; lines of a window).

``scope`` says for how many loops outside the buffer its content survives; beyond, everything is fetched anew. Blocks of
output are written back when they leave. They come back as partial sums if they were there before; with ``first_read``
they are also read when they are zeros still.

The iterations of a nest are the product of its dimensions' blocks, and so are the elements of a block. Every count is
therefore a product of sums over one axis each, also with blocks that don't divide, strides, halos and padding: the
words of all blocks, less, for each loop, what two blocks share when that loop steps on. Padding is never fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from hwgen.blocking.nest import Blocks, Nest
from hwgen.blocking.problem import DIMS, OPERANDS, Problem, indexes
from hwgen.errors import ConfigError

__all__ = ["Axis", "Traffic", "capacity", "input_axes", "loads", "traffic"]


@dataclass(frozen=True)
class Axis:
    """Rows or columns of the input: ``outputs`` windows of ``window`` elements over ``size``, ``pad`` before it."""

    outputs: int
    window: int
    stride: int
    pad: int
    size: int

    @cached_property
    def _sums(self) -> np.ndarray:
        """Elements of the map under tap ``f`` of the windows before the ``n``-th, at ``[f, n]``."""
        places = np.arange(self.outputs) * self.stride - self.pad + np.arange(self.window)[:, None]
        inside = (places >= 0) & (places < self.size)
        return np.concatenate([np.zeros((self.window, 1), np.int64), np.cumsum(inside, axis=1)], axis=1)

    def touched(self, x: Blocks, f: Blocks) -> np.ndarray:
        """Elements of the map under taps ``f`` of windows ``x``; arrays broadcast."""
        return self._inside(self._begin(x, f), self._end(x, f)) if self._dense(x, f) else self._sparse(x, f)

    def shared(self, before: tuple[Blocks, Blocks], after: tuple[Blocks, Blocks]) -> np.ndarray:
        """Elements that two pairs of windows and taps have in common."""
        if self._dense(*before) and self._dense(*after):
            begin = np.maximum(self._begin(*before), self._begin(*after))
            return self._inside(begin, np.minimum(self._end(*before), self._end(*after)))
        shape = np.broadcast_shapes(*(part.start.shape for part in (*before, *after)))
        arrays = [np.broadcast_to(a, shape).ravel() for part in (*before, *after) for a in (part.start, part.length)]
        counts = [len(self._places(*pair[:4]) & self._places(*pair[4:])) for pair in zip(*arrays, strict=True)]
        return np.array(counts, np.int64).reshape(shape)

    def room(self, outputs: int, window: int) -> int:
        """Elements under ``window`` taps of ``outputs`` neighbouring windows, wherever they are; at most the map."""
        return min(self.size, (outputs - 1) * min(self.stride, window) + window)

    def _dense(self, x: Blocks, f: Blocks) -> bool:
        return bool(f.length.min() >= self.stride or x.length.max() == 1)

    def _begin(self, x: Blocks, f: Blocks) -> np.ndarray:
        return x.start * self.stride + f.start - self.pad

    def _end(self, x: Blocks, f: Blocks) -> np.ndarray:
        return self._begin(x, f) + (x.length - 1) * self.stride + f.length

    def _inside(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        return np.maximum(0, np.minimum(end, self.size) - np.maximum(begin, 0))

    def _sparse(self, x: Blocks, f: Blocks) -> np.ndarray:
        """As `touched`, where taps of neighbouring windows may leave gaps."""
        taps = np.concatenate([np.zeros((1, self.outputs + 1), np.int64), np.cumsum(self._sums, axis=0)])
        first, last = x.start, x.start + x.length
        below, above = f.start, f.start + f.length
        apart = taps[above, last] - taps[above, first] - taps[below, last] + taps[below, first]
        together = self._inside(self._begin(x, f), self._end(x, f))
        return np.where(f.length >= self.stride, together, apart)

    def _places(self, x: int, outputs: int, f: int, window: int) -> set[int]:
        spots = {(x + i) * self.stride + f + j - self.pad for i in range(outputs) for j in range(window)}
        return {spot for spot in spots if 0 <= spot < self.size}


def input_axes(problem: Problem) -> dict[tuple[str, str], Axis]:
    """The input's columns and rows, by the two dimensions that index them."""
    p = problem
    return {
        ("X", "Fw"): Axis(p.X, p.Fw, p.stride[1], p.pad[1], p.width),
        ("Y", "Fh"): Axis(p.Y, p.Fh, p.stride[0], p.pad[0], p.height),
    }


def capacity(problem: Problem, operand: str, tile: Mapping[str, int]) -> int:
    """Words that hold any block of ``operand`` with these extents; padding takes no room beyond the map's own size."""
    if operand == "input":
        spans = prod(axis.room(tile[x], tile[f]) for (x, f), axis in input_axes(problem).items())
        return tile["C"] * spans
    if operand == "weights" and not problem.weighted:
        return 0
    return prod(tile[dim] for dim in DIMS if indexes(operand, dim))


def loads(nest: Nest, operand: str, position: int, *, overlap: bool = False, scope: int | None = None) -> int:
    """Words of ``operand`` that a buffer at ``position`` takes in while the whole nest runs (see the module)."""
    problem = nest.problem
    if operand == "weights" and not problem.weighted:
        return 0
    blocks = {dim: nest.blocks(dim, position) for dim in DIMS}
    total = _product(problem, operand, blocks, blocks)
    end = len(nest.loops) if scope is None else min(len(nest.loops), position + scope)
    for loop in range(position, end):
        before, after = _step(nest, position, loop)
        if overlap:
            total -= _product(problem, operand, before, after)
        else:
            total -= _product(problem, operand, before, after, same=True)
    return problem.groups * total


def _step(nest: Nest, position: int, loop: int) -> tuple[dict[str, Blocks], dict[str, Blocks]]:
    """Blocks at ``position`` just before and after ``loop`` steps on, every time it does, by dimension."""
    before, after = {}, {}
    for dim in DIMS:
        steps = nest.steps(dim, position, loop)
        if nest.loops[loop].dim != dim:
            parents = nest.blocks(dim, loop)
            before[dim], after[dim] = parents.last(steps), parents.first(steps)
            continue
        parents = nest.blocks(dim, loop + 1)
        pieces = parents.split(steps_of(nest, dim, loop))
        inner = np.ones(len(pieces.start), bool)
        inner[np.cumsum(-(-parents.length // steps_of(nest, dim, loop)))[:-1]] = False
        inner[0] = False
        ahead = np.flatnonzero(inner)
        before[dim] = Blocks(pieces.start[ahead - 1], pieces.length[ahead - 1]).last(steps)
        after[dim] = Blocks(pieces.start[ahead], pieces.length[ahead]).first(steps)
    return before, after


def steps_of(nest: Nest, dim: str, loop: int) -> int:
    """The step of ``loop``: what the loops of its dimension inside it reach."""
    return nest.tile(loop)[dim]


def _product(
    problem: Problem, operand: str, before: dict[str, Blocks], after: dict[str, Blocks], *, same: bool = False
) -> int:
    """Sum over all pairs of blocks of the elements that both have; with ``same``, of pairs that are one block only."""
    total = 1
    for dim in DIMS:
        if not len(before[dim].start):
            return 0
        if not indexes(operand, dim):
            total *= len(before[dim].start)
        elif operand != "input" or dim == "C":
            equal = before[dim].start == after[dim].start
            total *= int(np.sum(after[dim].length * equal))
    if operand != "input" or not total:
        return total
    for (x, f), axis in input_axes(problem).items():
        pair = [(_column(blocks[x]), blocks[f]) for blocks in (before, after)]
        if same:
            equal = (pair[0][0].start == pair[1][0].start) & (pair[0][1].start == pair[1][1].start)
            total *= int(np.sum(axis.touched(*pair[1]) * equal))
        else:
            total *= int(np.sum(axis.shared(pair[0], pair[1])))
    return total


def _column(blocks: Blocks) -> Blocks:
    return Blocks(blocks.start[:, None], blocks.length[:, None])


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Words that pass between a buffer and the memory behind it.

    ``reads`` go into the buffer; ``writes`` (partial sums and results) come back. ``capacity`` is what it must hold.
    """

    operand: str
    position: int
    capacity: int
    reads: int
    writes: int

    @property
    def words(self) -> int:
        return self.reads + self.writes


def traffic(
    nest: Nest,
    positions: Mapping[str, Sequence[int]],
    *,
    overlap: bool = False,
    scope: int | None = None,
    first_read: bool = False,
) -> dict[str, list[Traffic]]:
    """Of every buffer, inner to outer, for each operand; ``positions`` says where they are.

    Raises
    ------
    ConfigError
        If a position is not one of the nest's, or positions don't grow outwards.
    """
    result: dict[str, list[Traffic]] = {}
    for operand, places in positions.items():
        if operand not in OPERANDS:
            raise ConfigError(f"an operand must be one of {', '.join(OPERANDS)}, not {operand!r}")
        if list(places) != sorted(set(places)) or any(not 0 <= place <= len(nest.loops) for place in places):
            raise ConfigError(f"buffers of {operand} must be at growing positions up to {len(nest.loops)}: {places}")
        result[operand] = []
        for place in places:
            words = loads(nest, operand, place, overlap=overlap, scope=scope)
            output = operand == "output"
            again = words - (nest.problem.output_words if output and not first_read else 0)
            size = capacity(nest.problem, operand, nest.tile(place))
            result[operand].append(
                Traffic(operand=operand, position=place, capacity=size, reads=again, writes=words if output else 0)
            )
    return result
