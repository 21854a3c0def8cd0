"""Tiles for an array whose partial sums stay in its elements until they are complete.

Such an array (the engine's, docs/reference/engine.md) moves each output once and no partial sum, so that the loops over
channels and taps are inside those over tiles. It computes ``maps`` output channels at once, of blocks of ``channels``
input
channels. In its buffers are the weights of a *chunk* (a part of the channels and taps), and of the input

- ``row``: what the kernel rows of a chunk read,
- ``tile``: what all taps of a tile read, or
- ``rolling``: the same, but the next tile is the one below, and fetches only the rows that the one above did not have
  (Peemen's inter-tile reuse).

Counts are those of `hwgen.blocking.count`, for arrays of tiles at once (`hwgen.blocking.tiling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hwgen.blocking.problem import Problem
from hwgen.blocking.tiling import TileWords, distinct, divisors
from hwgen.errors import PlanError

__all__ = ["KINDS", "Array", "Tile", "optimise"]

KINDS = ("row", "tile", "rolling")
"""Contents of the input buffer: rows of a chunk, a whole tile, or a whole tile that keeps rows of the tile above."""


@dataclass(frozen=True, kw_only=True)
class Array:
    """Array of multiply-accumulate units: the values that it processes per step.

    Parameters
    ----------
    maps, channels : int
        Output channels of a tile, and a block of input channels. Weights of maps beyond the last are moved, too, and
        so are channels of the input beyond the last.
    pixels : int
        Largest number of pixels of a tile.
    """

    maps: int
    channels: int
    pixels: int


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Tile of an array with stationary sums, and the words that it holds and moves.

    Parameters
    ----------
    rows, columns : int
        Number of output rows and columns.
    channels, taps, tap_columns : int
        Number of input channels, window rows and window columns of a chunk.
    kind : str
        Contents of the input buffer, one of `KINDS`.
    maps_stay : bool
        Whether the input of a tile stays for all output channels. Otherwise the loop over these is outermost.
    held : dict
        Number of words of the input, weights and sums that the buffers hold.
    moved : dict
        Number of words of the input, weights and output that are moved.
    """

    rows: int
    columns: int
    channels: int
    taps: int
    tap_columns: int
    kind: str
    maps_stay: bool
    held: dict[str, int]
    moved: dict[str, int]

    @property
    def words(self) -> int:
        """Number of words that are moved."""
        return sum(self.moved.values())


def optimise(problem: Problem, memory: int, array: Array, *, sums: bool = True, strict: bool = True) -> Tile:
    """Return the tile that moves the fewest words and holds less than ``memory``, over all chunks, kinds and orders.

    ``sums`` says whether partial sums count as held; ``strict`` is as in `peemen.optimise`. Among equals it is the one
    that holds least.

    Raises
    ------
    PlanError
        If a memory can't hold the smallest tile.
    """
    found = [each for each in _all(problem, array, memory - strict, sums=sums) if each is not None]
    if not found:
        least = array.maps * array.channels + array.channels + sums * array.maps
        raise PlanError(
            f"{problem.name}: a memory of {memory} words can't hold a tile of {array.maps} maps and {array.channels} "
            f"channels; the smallest needs {least}, more to spare"
        )
    return min(found, key=lambda tile: (tile.words, sum(tile.held.values())))


def _all(problem: Problem, array: Array, room: int, *, sums: bool) -> Iterator[Tile | None]:
    """Yield the best tile of each chunk, kind and loop order; ``None`` if no tile of it fits."""
    maps, channels = (-(-size // unit) * unit for size, unit in ((problem.K, array.maps), (problem.C, array.channels)))
    whole = replace(problem, K=maps, C=channels)
    parts = [array.channels * each for each in divisors(channels // array.channels)]
    for part, taps, across in product(parts, distinct(problem.Fh), distinct(problem.Fw)):
        for kind, stay in product(KINDS, (True, False)):
            if kind != "rolling" or part == channels:
                yield _best(problem, whole, array, (part, taps, across), kind, stay, room, sums=sums)


def _best(
    problem: Problem,
    whole: Problem,
    array: Array,
    chunk: tuple[int, int, int],
    kind: str,
    stay: bool,
    room: int,
    *,
    sums: bool,
) -> Tile | None:
    channels, taps, across = chunk
    fixed = {"X": distinct(whole.X), "Y": distinct(whole.Y), "C": [channels], "K": [array.maps]}
    weights = TileWords(whole, {**fixed, "Fw": [across], "Fh": [taps]})
    source = TileWords(whole, {**fixed, "Fw": [whole.Fw], "Fh": [taps if kind == "row" else whole.Fh]})
    order = _order(kind, stay)
    held = {"input": source.room("input"), "weights": weights.room("weights"), "sums": source.room("output")}
    moved = {"input": _input(source, order, kind, stay), "weights": weights.loads("weights", order)}
    shape = weights.shape[:2]
    held, moved = ({name: _flat(each, shape) for name, each in those.items()} for those in (held, moved))
    taken = held["input"] + held["weights"] + (held["sums"] if sums else 0)
    pixels = np.outer(fixed["X"], fixed["Y"]).ravel()
    fits = np.flatnonzero((taken <= room) & (pixels <= array.pixels))
    if not len(fits):
        return None
    total = moved["input"] + moved["weights"]
    best = int(fits[np.lexsort((taken[fits], total[fits]))[0]])
    column, row = np.unravel_index(best, shape)
    return Tile(
        rows=fixed["Y"][int(row)],
        columns=fixed["X"][int(column)],
        channels=channels,
        taps=taps,
        tap_columns=across,
        kind=kind,
        maps_stay=stay,
        held={name: int(words[best]) for name, words in held.items()},
        moved={name: int(words[best]) for name, words in moved.items()} | {"output": problem.output_words},
    )


def _order(kind: str, stay: bool) -> list[str]:
    """Return the order of the loops over chunks and tiles, from the innermost to the outermost."""
    tiles = ["Y", "X"] if kind == "rolling" else ["X", "Y"]
    return ["Fw", "Fh", "C", *(["K", *tiles] if stay else [*tiles, "K"])]


def _input(tiling: TileWords, order: Sequence[str], kind: str, stay: bool) -> np.ndarray:
    if kind != "rolling":
        return tiling.loads("input", order)
    return tiling.once("input", "Y") * (1 if stay else tiling.blocks["K"])


def _flat(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return values of each tile height and width, broadcast to ``shape`` and flattened."""
    return np.broadcast_to(values.reshape(values.shape[:2]), shape).ravel()
