"""Search for a layer's tile size with one on-chip buffer that reuses data between tiles (Peemen et al., ICCD 2013).

A tile ``r, q, m, n, k, l`` (output maps, input maps, rows, columns, rows and columns of the window) is computed in the
buffer. The next tile follows in one *direction*, and fetches only the words that the previous tile did not have. At the
end of a row of tiles everything is fetched again. Each tile reads and writes its partial sums (the paper's model). With
``first_read=False`` no zeros are read: the bias replaces them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.blocking.count import Traffic, traffic
from hwgen.blocking.problem import DIMS, OPERANDS, Nest, Problem
from hwgen.blocking.tiling import TileWords, candidates, check_tile_count
from hwgen.errors import PlanError
from hwgen.network import shapes

LETTERS = {"r": "K", "q": "C", "m": "Y", "n": "X", "k": "Fh", "l": "Fw"}
"""Dictionary from each loop letter in Peemen's paper to its loop dimension (`DIMS`): ``r``, ``q``, ``m``, .."""

MEMORIES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tuple of buffer sizes, in words, with results printed in Peemen's paper (Table I)."""


@dataclass(frozen=True, kw_only=True)
class TileSchedule:
    """Tile size for one on-chip buffer, the loop along which tiles follow each other, and words accessed.

    Parameters
    ----------
    tile : dict
        Sizes of the tile, keyed by the paper's letters.
    direction : str
        Letter of the loop along which tiles follow each other.
    set_words : int
        Words that the buffer holds: a tile's inputs, weights and partial sums.
    input, weights, output : int
        Words moved; outputs in both directions.
    iterations : int
        Number of multiply-adds.
    """

    tile: dict[str, int]
    direction: str
    set_words: int
    input: int
    weights: int
    output: int
    iterations: int

    @property
    def accesses(self) -> int:
        """Number of off-chip memory accesses of the layer, in words."""
        return self.input + self.weights + self.output

    @property
    def per_iteration(self) -> float:
        """Number of off-chip words accessed per multiply-add of the layer."""
        return self.accesses / self.iterations


def layer() -> Problem:
    """Return the `Problem` of layer 3 of the speed-sign network: 5x5 windows, 16 to 80 channels, two groups."""
    return Problem.of(shapes.load("speed-sign").layers[2])


def schedule(problem: Problem, tile: dict[str, int], direction: str, *, first_read: bool = True) -> TileSchedule:
    """Return a `TileSchedule`: a layer's accessed words with one tile size and one loop along successive tiles."""
    inner = LETTERS[direction]
    order = (inner, *(dim for dim in DIMS if dim != inner))
    nest = Nest.tiled(problem, {dim: tile[letter] for letter, dim in LETTERS.items()}, order)
    position = len(DIMS)
    moved: dict[str, list[Traffic]] = traffic(
        nest, {operand: [position] for operand in OPERANDS}, overlap=True, scope=1, first_read=first_read
    )
    words = {operand: entries[0].words for operand, entries in moved.items()}
    return TileSchedule(
        tile=dict(tile),
        direction=direction,
        set_words=sum(entries[0].capacity for entries in moved.values()),
        iterations=problem.macs,
        **words,
    )


def optimise(
    problem: Problem, memories: Sequence[int], *, first_read: bool = True, strict: bool = True
) -> list[TileSchedule]:
    """Return a list of the `TileSchedule` per buffer size: tile size and order with the fewest words accessed.

    The order is the direction (a loop) of the next tile. ``strict`` keeps the working set below the memory's size, as
    in Table I; otherwise it can equal the size. Of equal tiles the one with the smallest working set is chosen, then
    the first direction of r, q, m, n, k, l. The search leaves out tiles that hold more than another tile and move no
    less (`tiling.candidates`).

    Raises
    ------
    PlanError
        If a memory can't hold the smallest tile (one value of each operand), or there are too many tiles
        (`tiling.check_tile_count`).
    """
    tiling = TileWords(problem, candidates(problem))
    check_tile_count(tiling)
    room = np.broadcast_to(sum(tiling.room(operand) for operand in OPERANDS), tiling.shape).ravel()
    fits = np.flatnonzero(room <= max(memories) - strict)
    fits = fits[np.argsort(room[fits], kind="stable")]
    held = room[fits]
    ends = np.searchsorted(held, [memory - strict for memory in memories], side="right")
    best: list[tuple[int, int, int, int] | None] = [None] * len(memories)
    for index, dim in enumerate(LETTERS.values()):
        moved = np.broadcast_to(_words_moved(tiling, dim, first_read), tiling.shape).ravel()[fits]
        for column, end in enumerate(ends):
            if end:
                winner = int(np.argmin(moved[:end]))  # the first of equal tiles: the smallest working set
                entry = (int(moved[winner]), int(held[winner]), index, int(fits[winner]))
                so_far = best[column]
                best[column] = entry if so_far is None else min(so_far, entry)
    return [
        _schedule_of(problem, tiling, memory, entry, first_read) for memory, entry in zip(memories, best, strict=True)
    ]


def _words_moved(tiling: TileWords, dim: str, first_read: bool) -> np.ndarray:
    outputs = 2 * tiling.swept("output", dim)
    if not first_read:
        outputs = outputs - tiling.problem.output_words
    return tiling.swept("input", dim) + tiling.swept("weights", dim) + outputs


def _schedule_of(
    problem: Problem, tiling: TileWords, memory: int, entry: tuple[int, int, int, int] | None, first_read: bool
) -> TileSchedule:
    if entry is None:
        smallest = sum(int(tiling.room(operand).min()) for operand in OPERANDS)
        raise PlanError(f"{problem.name}: a memory of {memory} words can't hold a tile; the smallest needs {smallest}")
    tile = tiling.tile(entry[3])
    return schedule(
        problem,
        {letter: tile[dim] for letter, dim in LETTERS.items()},
        list(LETTERS)[entry[2]],
        first_read=first_read,
    )
