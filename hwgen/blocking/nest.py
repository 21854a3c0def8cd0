"""Blocked loop nests of a layer, and their text notation (Yang, section 3.1).

A nest is written from the innermost loop to the outermost: ``Fw=3 Fh=3 X0=8 Y0=8 C0=16 K0=16 X1=56 Y1=56 C1=128
K1=256``. The value of a loop is the extent that its dimension has reached, not the number of trips: ``X1`` covers 56
columns in steps of ``X0``, 8. Extents need not divide each other; the last block is then smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwgen.blocking.problem import DIMS, Problem
from hwgen.errors import InputError

_TOKEN = re.compile(r"(Fw|Fh|[XYCK])(\d*)(?:=(\d+))?")


@dataclass(frozen=True)
class BlockedLoop:
    """One loop of a blocked nest: its dimension, and the extent in elements that its iterations cover together."""

    dim: str
    extent: int


@dataclass(frozen=True)
class Blocks:
    """Blocks (index ranges) of one loop dimension: first elements and lengths, as two int64 arrays."""

    start: np.ndarray
    length: np.ndarray

    def split(self, step: int) -> Blocks:
        """Return `Blocks`: the pieces of at most ``step`` elements that all blocks are cut into.

        The last piece of a block can be shorter.
        """
        pieces = -(-self.length // step)
        last = np.cumsum(pieces)
        offset = (np.arange(int(last[-1])) - np.repeat(last - pieces, pieces)) * step
        return Blocks(np.repeat(self.start, pieces) + offset, np.minimum(step, np.repeat(self.length, pieces) - offset))

    def first(self, steps: Sequence[int]) -> Blocks:
        """Return `Blocks`, the first piece of each block after repeated cuts into pieces of sizes ``steps``."""
        return Blocks(self.start, np.minimum(self.length, min(steps, default=1 << 62)))

    def last(self, steps: Sequence[int]) -> Blocks:
        """Return `Blocks`, the last piece (remainder) of each block after repeated cuts into sizes ``steps``."""
        length = self.length
        for step in steps:
            length = length - step * (-(-length // step) - 1)
        return Blocks(self.start + self.length - length, length)


def pairs(blocks: Blocks, other: Blocks) -> tuple[Blocks, Blocks]:
    """Return a pair: the blocks of two loop dimensions reshaped so that they broadcast to all combinations."""
    return Blocks(blocks.start[:, None], blocks.length[:, None]), other


@dataclass(frozen=True)
class Nest:
    """Blocked loop nest (loop order with tiles) of a layer, from inner to outer; a dimension can have several loops.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    loops : tuple of BlockedLoop
        Loops from inner to outer. *Position* ``p`` is between loops ``p - 1`` and ``p``: a buffer there holds the
        elements that loops 0 to ``p - 1`` touch.

    Raises
    ------
    InputError
        If the loops of a dimension shrink outwards, or don't reach the layer's size.
    """

    problem: Problem
    loops: tuple[BlockedLoop, ...]

    def __post_init__(self) -> None:
        reached: dict[str, int] = dict.fromkeys(DIMS, 1)
        for loop in self.loops:
            if loop.dim not in reached:
                raise InputError(f"a blocking's loops must be over {', '.join(DIMS)}, not {loop.dim!r}")
            if loop.extent < reached[loop.dim]:
                raise InputError(
                    f"blocking {self}: {loop.dim} must not shrink from {reached[loop.dim]} to {loop.extent}"
                )
            reached[loop.dim] = loop.extent
        for dim, extent in reached.items():
            if extent != self.problem.size(dim):
                raise InputError(
                    f"blocking {self} does not multiply out to {self.problem.name}: {dim} must reach "
                    f"{self.problem.size(dim)}, not {extent}"
                )

    def __str__(self) -> str:
        counts = {dim: sum(loop.dim == dim for loop in self.loops) for dim in DIMS}
        seen: dict[str, int] = dict.fromkeys(DIMS, 0)
        tokens = []
        for loop in self.loops:
            index = str(seen[loop.dim]) if counts.get(loop.dim, 0) > 1 or loop.dim in "XYCK" else ""
            tokens.append(f"{loop.dim}{index}={loop.extent}")
            seen[loop.dim] = seen.get(loop.dim, 0) + 1
        return " ".join(tokens)

    @classmethod
    def parse(cls, problem: Problem, text: str) -> Nest:
        """Return the loop `Nest` that a text such as ``Fw Fh X0=8 Y0=8 C K X1 Y1`` states, innermost loop first.

        The last loop of a dimension does not need ``=N``, and a dimension of size 1 does not need a loop.

        Raises
        ------
        InputError
            If a word is not a loop, or the nest does not fit ``problem``.
        """
        words = text.split()
        matches = [_TOKEN.fullmatch(word) for word in words]
        for word, match in zip(words, matches, strict=True):
            if match is None:
                raise InputError(f"blocking {text!r}: {word!r} must be a loop such as X0=8, Fw or K1=256")
        if not words:
            raise InputError("a blocking must have at least one loop, as in 'Fw Fh X Y C K'")
        tokens = [(match[1], match[2], match[3]) for match in matches if match is not None]
        seen: dict[str, int] = dict.fromkeys(DIMS, 0)
        loops = []
        for index, (dim, level, extent) in enumerate(tokens):
            if level and int(level) != seen[dim]:
                raise InputError(f"blocking {text!r}: {dim}{level} must be {dim}{seen[dim]}, counted from inside")
            seen[dim] += 1
            if extent is None and any(later == dim for later, _, _ in tokens[index + 1 :]):
                raise InputError(f"blocking {text!r}: {words[index]} needs its extent, as in {words[index]}=8")
            if extent is not None and int(extent) < 1:
                raise InputError(f"blocking {text!r}: extents must be positive, not {extent}")
            loops.append(BlockedLoop(dim, problem.size(dim) if extent is None else int(extent)))
        return cls(problem, tuple(loops))

    @classmethod
    def tiled(cls, problem: Problem, tile: dict[str, int], order: Iterable[str]) -> Nest:
        """Return a two-level loop `Nest`: loops over the elements of one tile, then over all tiles in ``order``."""
        inner = [BlockedLoop(dim, tile[dim]) for dim in DIMS]
        return cls(problem, (*inner, *(BlockedLoop(dim, problem.size(dim)) for dim in order)))

    def tile(self, position: int) -> dict[str, int]:
        """Return, as a dict, the number of elements, by dimension, that the ``position`` innermost loops cover."""
        reached: dict[str, int] = dict.fromkeys(DIMS, 1)
        reached.update((loop.dim, loop.extent) for loop in self.loops[:position])
        return reached

    def block_sizes(self, dim: str, inner: int, outer: int) -> list[int]:
        """Return a list of ``dim`` block sizes (elements) inside positions ``inner`` to ``outer - 1``, descending."""
        extents = [self._extents[dim][position] for position in range(inner, outer + 1)]
        return sorted(set(extents[:-1]), reverse=True)

    @cached_property
    def _extents(self) -> dict[str, list[int]]:
        reached: dict[str, list[int]] = {dim: [1] for dim in DIMS}
        for loop in self.loops:
            for dim, extents in reached.items():
                extents.append(loop.extent if loop.dim == dim else extents[-1])
        return reached

    def blocks(self, dim: str, position: int) -> Blocks:
        """Return all `Blocks` of ``dim`` that the loops outside the ``position`` innermost ones iterate over."""
        size = self.problem.size(dim)
        blocks = Blocks(np.zeros(1, np.int64), np.full(1, size, np.int64))
        for step in self.block_sizes(dim, position, len(self.loops)):
            blocks = blocks.split(step)
        return blocks
