"""The events of a layer that works tile by tile: reuse buffer, two tiles, the walk over their windows.

Every beat of a tile, kept or new, is a step of the reuse buffer. A step follows the one before by a cycle, waits for
its beat if that is new, and for the tile's memory if it is the first one that windows need. Tiles that follow each
other are gone through one by one, with a few numbers each; their beats in whole-array passes.
"""

from __future__ import annotations

import numpy as np

from hwgen.gateware.tile import HALVES
from hwgen.gateware.tile_layer import TileLayerConfig
from hwgen.plan.events import NEVER, LayerEvents, Take, Times


class TileEvents(LayerEvents[TileLayerConfig]):
    """Of a layer behind a reuse buffer and two tiles; what its windows wait for is that their tile is complete."""

    def __init__(self, config: TileLayerConfig, frames: int):
        tiles = config.tiles
        super().__init__(config, frames, windows=tiles.windows, beats_in=config.reuse.beats_in)
        self._latency = config.reuse.latency if config.reuse.needed else 0
        new, first, last, fills = _steps(config)
        frame = np.arange(frames, dtype=np.int64)[:, None] * config.reuse.cycles
        #: For each beat that comes in, its step.
        self._new = (frame + new).ravel()
        #: For each tile, the first step that its windows need (the frame's if it has none), and the last one.
        self._first, self._last = ((frame + steps).ravel() for steps in (first, last))
        self._first_list, self._last_list = self._first.tolist(), self._last.tolist()
        #: For each tile: whether it has a beat; and, if not, whether it waits for the first of the frame.
        self._filled = fills * frames
        opening = fills.index(True)
        self._waits = ([True] * opening + [False] * (len(fills) - opening)) * frames
        #: For each tile, one less than the number of beats that come in up to its first and its last step.
        self._first_new, self._last_new = (
            np.searchsorted(self._new, steps, side="right") - 1 for steps in (self._first, self._last)
        )
        #: For each beat that comes in, one less than the number of tiles that were begun when it enters the tile, or
        #: the register before it.
        filled = np.flatnonzero(self._filled)
        side = "left" if self._latency else "right"
        begun = np.searchsorted(self._first[filled], self._new, side=side) - 1
        self._tile = np.where(begun < 0, -1, filled[begun])
        self._walks = [cycles for cycles in tiles.walks] * frames
        folds = np.cumsum(np.array(tiles.walks) // config.window.steps)
        ends = (np.arange(frames)[:, None] * folds[-1] + folds).ravel()
        #: For each tile, its last output fold, and its first.
        self._last_fold = ends - 1
        self._first_fold = np.concatenate([[0], ends[:-1]])

    def take(self, starts: Times | None, rows: int) -> Take:
        ends = None
        if starts is not None:
            ends = (starts[self._last_fold] + self.config.window.steps - 1).tolist()
        return lambda offered: self._take(offered, ends)

    def _wait(self, earliest: Times, there: Times) -> None:
        earliest[self._first_fold] = there + self.config.tiles.write_delay

    def _take(self, offered: Times, ends: list[int] | None) -> tuple[Times, Times]:
        """When beats are taken, and tiles complete; ``ends`` is a lower bound of when they have been read."""
        # All times less the number of the step: then a step is never earlier than the one before.
        enter = offered + (self._latency - self._new)
        entered = np.maximum.accumulate(enter)
        begun, complete = self._fill(entered[self._first_new].tolist(), entered[self._last_new].tolist(), ends)
        begun.append(NEVER)  # before the first tile
        held = np.array(begun)[self._tile]
        if self._latency:
            np.maximum(held[1:], entered[:-1], out=held[1:])
            taken = np.maximum(held, enter)
            taken += self._new - 1
        else:
            taken = np.maximum(held, entered)
            taken += self._new
        return taken, np.array(complete)

    def _fill(self, firsts: list[int], lasts: list[int], ends: list[int] | None) -> tuple[list[int], list[int]]:
        """When tiles are begun, less the step's number, and complete.

        ``firsts`` and ``lasts``: when their first and last steps would be at the earliest, by when the beats that come
        in up to there are offered; less the step's number.
        """
        release, write = self.config.tiles.release_delay, self.config.tiles.write_delay
        begun: list[int] = []
        complete: list[int] = []
        reads = [NEVER] * HALVES  # the last step of each tile's walk, HALVES more in front
        step = filled = NEVER
        rows = zip(
            self._first_list, self._last_list, self._filled, self._waits, self._walks, firsts, lasts, strict=True
        )
        for number, (first, last, has_beats, waits, walk, by_first, by_last) in enumerate(rows):
            room = max(reads[number] + release, filled + 1)
            if has_beats:
                step = max(step, by_first, room - first)
                begun.append(step)
                step = max(step, by_last)
                filled = step + last
            else:
                begun.append(step)
                filled = max(room, max(step, by_first) + first) if waits else room
            complete.append(filled)
            read = max(filled + write + walk - 1, reads[-1] + walk)
            reads.append(read if ends is None else max(read, ends[number]))
        return begun, complete


def _steps(config: TileLayerConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[bool]]:
    """The steps of a frame that bring a new beat; and by tile its first and last one, and whether it has any.

    A tile without a beat has the frame's first in place of its own.
    """
    folds = config.window.input.folds
    new: list[np.ndarray] = []
    tiles: list[tuple[int, int, bool]] = []
    done = 0
    for row in config.tiles.rows.cut(1):
        for column in config.tiles.columns.cut(config.window.input.pixels):
            # A pixel, or neighbouring ones that share beats.
            pixels = np.arange(row.size * column.size).reshape(row.size, column.size)
            beats = pixels[row.kept :, column.kept :].ravel()[:, None] * folds + np.arange(folds)
            new.append(done + beats.ravel())
            if row.span.windows and column.span.windows:
                used = pixels[row.unused :, column.unused :]
                first = done + int(used[0, 0]) * folds if used.size else 0
                tiles.append((first, done + pixels.size * folds - 1, used.size > 0))
            done += pixels.size * folds
    opening = next(first for first, _, filled in tiles if filled)
    first = np.array([first if filled else opening for first, _, filled in tiles], dtype=np.int64)
    last = np.array([last for _, last, _ in tiles], dtype=np.int64)
    return np.concatenate(new).astype(np.int64), first, last, [filled for _, _, filled in tiles]
