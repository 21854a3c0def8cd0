"""Exact counts of words that a blocked loop nest fetches into a buffer placed at any depth of the nest.

A buffer at position ``p`` of a nest holds the block of its operand that loops 0 to ``p - 1`` touch. The outer loops
change the block. Which words are fetched then depends on the buffer:

- plain: the whole block, whenever the block changes. The block stays while loops run that don't index the operand.
- ``overlap``: only the elements that the block before did not have (Peemen's inter-tile reuse; lines of a window).

``scope`` is the number of loops outside the buffer over which the content survives. Outer loops beyond it fetch
everything again. Blocks of output are written back when they leave the buffer. They return as partial sums if they were
there before; with ``first_read`` they are also read while they are still zeros.

The iterations of a nest are the product of the blocks of its dimensions, and so are the elements of a block. Therefore
every count is a product of sums over one axis each. This also holds for blocks that don't divide the size, strides,
halos and padding. A sum counts the words of all blocks, minus the words that two consecutive blocks share when a loop
steps. Padding is never fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from hwgen.blocking.problem import DIMS, OPERANDS, Blocks, Nest, Problem, indexes, pairs
from hwgen.errors import ConfigError


@dataclass(frozen=True)
class Axis:
    """One axis (rows or columns) of a layer's input map: its size, and the windows that slide along it.

    There are ``outputs`` windows of ``window`` elements each. The map has ``size`` elements, after ``pad`` elements of
    padding.
    """

    outputs: int
    window: int
    stride: int
    pad: int
    size: int

    @cached_property
    def _sums(self) -> np.ndarray:
        """Array ``(taps, windows + 1)``: map elements (no padding) each tap reads, summed over windows so far."""
        elements = np.arange(self.outputs) * self.stride - self.pad + np.arange(self.window)[:, None]
        inside = (elements >= 0) & (elements < self.size)
        return np.concatenate([np.zeros((self.window, 1), np.int64), np.cumsum(inside, axis=1)], axis=1)

    def touched(self, x: Blocks, f: Blocks) -> np.ndarray:
        """Return an array: the number of distinct elements on the axis that taps ``f`` of windows ``x`` read."""
        return self._count_inside(self._start(x, f), self._stop(x, f)) if self._dense(x, f) else self._sparse(x, f)

    def shared(self, before: tuple[Blocks, Blocks], after: tuple[Blocks, Blocks]) -> np.ndarray:
        """Return an array: the number of elements on the axis that two blocks of windows and taps both read."""
        if self._dense(*before) and self._dense(*after):
            begin = np.maximum(self._start(*before), self._start(*after))
            return self._count_inside(begin, np.minimum(self._stop(*before), self._stop(*after)))
        shape = np.broadcast_shapes(*(part.start.shape for part in (*before, *after)))
        arrays = [np.broadcast_to(a, shape).ravel() for part in (*before, *after) for a in (part.start, part.length)]
        counts = [len(self._places(*pair[:4]) & self._places(*pair[4:])) for pair in zip(*arrays, strict=True)]
        return np.array(counts, np.int64).reshape(shape)

    def room(self, outputs: int, window: int) -> int:
        """Return the maximum number of map elements covered by ``window`` taps of ``outputs`` neighbouring windows."""
        return min(self.size, (outputs - 1) * min(self.stride, window) + window)

    def _dense(self, x: Blocks, f: Blocks) -> bool:
        return bool(f.length.min() >= self.stride or x.length.max() == 1)

    def _start(self, x: Blocks, f: Blocks) -> np.ndarray:
        return x.start * self.stride + f.start - self.pad

    def _stop(self, x: Blocks, f: Blocks) -> np.ndarray:
        return self._start(x, f) + (x.length - 1) * self.stride + f.length

    def _count_inside(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        return np.maximum(0, np.minimum(end, self.size) - np.maximum(begin, 0))

    def _sparse(self, x: Blocks, f: Blocks) -> np.ndarray:
        """Return an array: the number of elements that taps ``f`` of windows ``x`` read, maybe with gaps between."""
        taps = np.concatenate([np.zeros((1, self.outputs + 1), np.int64), np.cumsum(self._sums, axis=0)])
        first, last = x.start, x.start + x.length
        below, above = f.start, f.start + f.length
        separate = taps[above, last] - taps[above, first] - taps[below, last] + taps[below, first]
        together = self._count_inside(self._start(x, f), self._stop(x, f))
        return np.where(f.length >= self.stride, together, separate)

    def _places(self, x: int, outputs: int, f: int, window: int) -> set[int]:
        elements = {(x + i) * self.stride + f + j - self.pad for i in range(outputs) for j in range(window)}
        return {element for element in elements if 0 <= element < self.size}


def input_axes(problem: Problem) -> dict[tuple[str, str], Axis]:
    """Return, as a dict, the `Axis` of a layer's input columns and rows, by pairs of loop dimensions (output, window).

    The keys are ``(X, Fw)`` and ``(Y, Fh)``.
    """
    p = problem
    return {
        ("X", "Fw"): Axis(p.X, p.Fw, p.stride[1], p.pad[1], p.width),
        ("Y", "Fh"): Axis(p.Y, p.Fh, p.stride[0], p.pad[0], p.height),
    }


def capacity(problem: Problem, operand: str, tile: Mapping[str, int]) -> int:
    """Return the size in words of a buffer that holds any block of ``operand`` with the extents ``tile``.

    Padding needs no room beyond the map's size.
    """
    if operand == "input":
        spans = prod(axis.room(tile[x], tile[f]) for (x, f), axis in input_axes(problem).items())
        return tile["C"] * spans
    if operand == "weights" and not problem.weighted:
        return 0
    return prod(tile[dim] for dim in DIMS if indexes(operand, dim))


def loads(nest: Nest, operand: str, position: int, *, overlap: bool = False, scope: int | None = None) -> int:
    """Return how many words of an operand a buffer around the ``position`` innermost loops fetches per layer.

    The head of this module states what ``overlap`` and ``scope`` mean.
    """
    problem = nest.problem
    if operand == "weights" and not problem.weighted:
        return 0
    blocks = {dim: nest.blocks(dim, position) for dim in DIMS}
    total = _shared_words(problem, operand, blocks, blocks)
    end = len(nest.loops) if scope is None else min(len(nest.loops), position + scope)
    for loop in range(position, end):
        before, after = _blocks_around_step(nest, position, loop)
        total -= _shared_words(problem, operand, before, after, same=not overlap)
    return problem.groups * total


def _blocks_around_step(nest: Nest, position: int, loop: int) -> tuple[dict[str, Blocks], dict[str, Blocks]]:
    """Return two dicts of `Blocks` by dimension: a buffer's blocks just before and just after each step of a loop.

    The buffer is at ``position`` of the nest. Blocks have a start and a length.
    """
    before, after = {}, {}
    for dim in DIMS:
        steps = nest.block_sizes(dim, position, loop)
        if nest.loops[loop].dim != dim:
            parents = nest.blocks(dim, loop)
            before[dim], after[dim] = parents.last(steps), parents.first(steps)
            continue
        parents = nest.blocks(dim, loop + 1)
        step = nest.tile(loop)[dim]  # what the loops inside cover
        pieces = parents.split(step)
        inner = np.ones(len(pieces.start), bool)
        inner[np.cumsum(-(-parents.length // step))[:-1]] = False
        inner[0] = False
        ahead = np.flatnonzero(inner)
        before[dim] = Blocks(pieces.start[ahead - 1], pieces.length[ahead - 1]).last(steps)
        after[dim] = Blocks(pieces.start[ahead], pieces.length[ahead]).first(steps)
    return before, after


def _shared_words(
    problem: Problem, operand: str, before: dict[str, Blocks], after: dict[str, Blocks], *, same: bool = False
) -> int:
    """Return how many words of an operand blocks ``before`` and ``after`` share, over all pairs.

    With ``same`` only pairs of identical blocks count.
    """
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
        pair = [pairs(blocks[x], blocks[f]) for blocks in (before, after)]
        if same:
            equal = (pair[0][0].start == pair[1][0].start) & (pair[0][1].start == pair[1][1].start)
            total *= int(np.sum(axis.touched(*pair[1]) * equal))
        else:
            total *= int(np.sum(axis.shared(pair[0], pair[1])))
    return total


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Words that a buffer of one operand reads from the next outer memory and writes back.

    Attributes
    ----------
    operand : str
        Operand of the buffer.
    position : int
        Position of the buffer in the nest.
    capacity : int
        Words that the buffer must hold.
    reads, writes : int
        Words that enter the buffer, and words (partial sums and results) that it writes back.
    """

    operand: str
    position: int
    capacity: int
    reads: int
    writes: int

    @property
    def words(self) -> int:
        """Total number of words that the buffer moves, reads and writes together."""
        return self.reads + self.writes


def traffic(
    nest: Nest,
    positions: Mapping[str, Sequence[int]],
    *,
    overlap: bool = False,
    scope: int | None = None,
    first_read: bool = False,
) -> dict[str, list[Traffic]]:
    """Return a dictionary: per operand, a list of the `Traffic` of its buffers at given positions, inner to outer.

    Parameters
    ----------
    nest : Nest
        Loop nest.
    positions : mapping
        Increasing positions of each operand's buffers.
    overlap, scope, first_read
        Kind of buffer; see the module.

    Raises
    ------
    ConfigError
        If a position is not one of the nest's, or positions don't increase.
    """
    result: dict[str, list[Traffic]] = {}
    for operand, operand_positions in positions.items():
        if operand not in OPERANDS:
            raise ConfigError(f"an operand must be one of {', '.join(OPERANDS)}, not {operand!r}")
        if list(operand_positions) != sorted(set(operand_positions)) or any(
            not 0 <= position <= len(nest.loops) for position in operand_positions
        ):
            raise ConfigError(
                f"buffers of {operand} must be at growing positions up to {len(nest.loops)}: {operand_positions}"
            )
        result[operand] = []
        for position in operand_positions:
            words = loads(nest, operand, position, overlap=overlap, scope=scope)
            output = operand == "output"
            again = words - (nest.problem.output_words if output and not first_read else 0)
            size = capacity(nest.problem, operand, nest.tile(position))
            result[operand].append(
                Traffic(operand=operand, position=position, capacity=size, reads=again, writes=words if output else 0)
            )
    return result
