"""Cycle model of a pyramid layer's tile buffer: when tiles are filled, and when their windows are read.

A *step* is the passage of one beat of a tile through the reuse buffer, kept or new. Steps are numbered through a run.
Two steps are at least one cycle apart, so step ``n`` is valid at the tile buffer in cycle ``n + lag``. The *lag*
never falls, because a delay of one step delays all later steps. Only the first step that a tile's windows need can wait
for the tile buffer: earlier beats are dropped, and a free half has room for all beats of a tile.

The buffer holds two tiles. In this example, tiles have 4 beats and windows take 6 cycles. The delay is 1 cycle before
a walk and 3 cycles after a walk. A dot is a step that waits:

=============  ======================
cycle          0    5    10   15   20
=============  ======================
tile 0 filled  0123
tile 1 filled      4567
tile 0 walked      ======
tile 2 filled          ....89AB
tile 1 walked            ======
tile 3 filled                  ..CDEF
tile 2 walked                  ======
=============  ======================

The walk over tile 0 ends in cycle 9, so tile 2 begins in cycle 12, and the lag is then 4. The walk over tile 1
ends in cycle 15, so tile 3 begins in cycle 18, and the lag is 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: Number of input tiles that a tile buffer stores (double buffering): one is filled while the other is read.
HALVES = 2


class PyramidShare(NamedTuple):
    """One layer's work for one tile of the fused layers: beats of its input tile, and number of windows.

    Parameters
    ----------
    begin : int
        Number of the frame's steps that precede this pyramid.
    beats : int
        Number of beats of the tile, which equals its number of steps.
    unused : int
        Number of beats before the first beat that windows need; 0 if windows need no beat.
    filled : bool
        Whether windows need beats.
    windows : int
        Number of windows.
    """

    begin: int
    beats: int
    unused: int
    filled: bool
    windows: int


class TileTiming(NamedTuple):
    """Timing of one input tile in a tile buffer, in cycles and beats, for the cycle model `walk_tiles`.

    Parameters
    ----------
    first, last : int
        First and last step of the tile. If ``waits``, ``first`` is the step that the tile waits for.
    filled : bool
        Whether the windows need beats. A tile in the padding needs one cycle without an accepted beat.
    waits : bool
        Whether the tile is in the padding before all beats of its frame. It waits until the frame's first beat is
        valid.
    walk : int
        Number of cycles of the walk over the windows.
    """

    first: int
    last: int
    filled: bool
    waits: bool
    walk: int


def tiles_of(pyramids: Iterable[PyramidShare], window_cycles: int) -> list[TileTiming]:
    """Return a list, for `walk_tiles`, of the `TileTiming` of a frame's input tiles that have windows, in order.

    ``window_cycles`` is the number of cycles per window.
    """
    walked = [pyramid for pyramid in pyramids if pyramid.windows]
    opening = next(index for index, pyramid in enumerate(walked) if pyramid.filled)
    tiles = []
    for index, (begin, beats, unused, filled, windows) in enumerate(walked):
        if index < opening:
            first = walked[opening].begin + walked[opening].unused
        else:
            first = begin + (unused if filled else beats - 1)
        tiles.append(TileTiming(first, begin + beats - 1, filled, index < opening, windows * window_cycles))
    return tiles


def walk_tiles(
    tiles: Iterable[tuple[int, int, bool, bool, int]],
    bounds: Iterable[tuple[int, int, int]],
    *,
    lag: int,
    complete: int,
    ends: Iterable[int],
    write_delay: int,
    release_delay: int,
) -> tuple[list[int], list[int], list[int]]:
    """Return three lists over tiles: lag of the first step, cycle when the tile is complete, last cycle of its reads.

    Parameters
    ----------
    tiles : iterable of `TileTiming`
        Tiles in order. Plain tuples of the same fields are allowed, because there can be many tiles.
    bounds : iterable of (int, int, int)
        For each tile: lower bounds of the lag of its ``first`` step and of its ``last`` step, from the arrival of input
        beats; and a lower bound of the last cycle of its walk.
    lag, complete, ends
        State after the previous tiles: lag of the last step; cycle when the last tile was complete; last cycles of
        the last `HALVES` walks.
    write_delay, release_delay : int
        Number of cycles from a complete tile to its first window, and from a tile's last step to a beat that overwrites
        the tile.

    Returns
    -------
    tuple of three lists of int
        For each tile: lag of its first step, cycle when the tile is complete, and last cycle of its walk.
    """
    begun, completed, walked = [], [], [*ends]
    # ``walked[index]`` is the end of the walk `HALVES` tiles before the tile ``index``.
    for index, ((first, last, filled, waits, walk), (by_first, by_last, end)) in enumerate(
        zip(tiles, bounds, strict=True)
    ):
        room = max(walked[index] + release_delay, complete + 1)
        if filled:
            lag = max(lag, by_first, room - first)
            begun.append(lag)
            lag = max(lag, by_last)
            complete = lag + last
        else:
            begun.append(lag)
            complete = max(room, max(lag, by_first) + first) if waits else room
        completed.append(complete)
        walked.append(max(complete + write_delay + walk - 1, walked[-1] + walk, end))
    return begun, completed, walked[HALVES:]
