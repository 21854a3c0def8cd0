"""When tiles are filled and walked: what holds them up, tile by tile.

A *step* is a beat of a tile passing the reuse buffer, kept or new; steps are numbered through a run. They follow each
other at least a cycle apart, so step ``n`` is offered to the tile in cycle ``n + lag``, with a *lag* that never falls:
whatever holds up a step holds up all that come after it. Only the first step that a tile's windows need ever waits for
the tile's memory (beats before it are dropped, and once a tile has room it has room for all of its beats).

Two tiles are held. With tiles of 4 beats, windows that take 6 cycles, and delays of 1 cycle before a walk and 3 behind
it, the first tiles of a run go like this; a dot is a step that is held up:

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

Tile 0's walk ends in cycle 9, so tile 2 begins in cycle 12, and the lag is 4 from there on; tile 1's ends in cycle 15,
so tile 3 begins in cycle 18, and the lag is 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: Tiles held: one that is filled and one that is read.
HALVES = 2


class Pyramid(NamedTuple):
    """A layer's part of a pyramid: a tile of its input, and the windows there.

    Parameters
    ----------
    begin : int
        Steps of the frame before it.
    beats : int
        Beats of its tile; each is a step.
    unused : int
        Beats before the first that windows need; 0 if they need none.
    filled : bool
        Whether windows need any.
    windows : int
        How many there are.
    """

    begin: int
    beats: int
    unused: int
    filled: bool
    windows: int


class Tile(NamedTuple):
    """The part of a pyramid that has windows, as `walk_tiles` goes through it.

    Parameters
    ----------
    first, last : int
        The steps between which it is filled; if it waits, ``first`` is the step that it waits for.
    filled : bool
        Whether its windows need a beat. A tile that lies in the padding takes a cycle in which nothing is taken.
    waits : bool
        It lies in the padding, and before all beats of its frame: it waits for the first one to be offered.
    walk : int
        Cycles that its windows take.
    """

    first: int
    last: int
    filled: bool
    waits: bool
    walk: int


def tiles_of(pyramids: Iterable[Pyramid], window_cycles: int) -> list[Tile]:
    """The tiles of a frame, in order."""
    walked = [pyramid for pyramid in pyramids if pyramid.windows]
    opening = next(number for number, pyramid in enumerate(walked) if pyramid.filled)
    tiles = []
    for number, (begin, beats, unused, filled, windows) in enumerate(walked):
        if number < opening:
            first = walked[opening].begin + walked[opening].unused
        else:
            first = begin + (unused if filled else beats - 1)
        tiles.append(Tile(first, begin + beats - 1, filled, number < opening, windows * window_cycles))
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
    """When tiles that follow each other are filled and walked, as early as may be.

    Parameters
    ----------
    tiles : iterable of `Tile`
        Or the same as plain tuples: there may be many.
    bounds : iterable of (int, int, int)
        For each tile the least lags of its ``first`` and its ``last`` step, by when the beats up to them come in; and
        the least end of its walk.
    lag, complete, ends
        Of the tiles before: the last step's lag, when the last one was complete, when the last `HALVES` walks ended.
    write_delay, release_delay : int
        Cycles from a tile being complete to its first window, and from its last step to a beat that overwrites it.

    Returns
    -------
    For each tile the lag of its first step, the cycle in which it is complete, and that of its walk's last step.
    """
    begun, completed, walked = [], [], [*ends]
    # ``walked[number]`` is the end of the walk `HALVES` tiles before.
    for number, ((first, last, filled, waits, walk), (by_first, by_last, end)) in enumerate(
        zip(tiles, bounds, strict=True)
    ):
        room = max(walked[number] + release_delay, complete + 1)
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
