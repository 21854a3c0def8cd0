"""The events of a layer that works tile by tile: reuse buffer, two tiles, the walk over their windows.

Every beat of a tile, kept or new, is a step of the reuse buffer. A step follows the one before by a cycle, waits for
its beat if that is new, and for the tile's memory if it is the first one that windows need. Tiles that follow each
other are gone through one by one, with a few numbers each; their beats in whole-array passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hwgen.gateware.pyramid.buffer import HALVES
from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.schedule.events import NEVER, LayerEvents, LayerTimes, Part, Take, Times, before


class PyramidEvents(LayerEvents[PyramidLayerConfig]):
    """Of a layer behind a reuse buffer and two tiles; its windows wait for their tile to be complete."""

    def __init__(self, config: PyramidLayerConfig, frames: int):
        tiles = config.tiles
        super().__init__(config, frames, tiles=len(tiles.tiles))
        self._latency = config.reuse.latency if config.reuse.needed else 0
        steps = _Steps(config)
        frame = np.arange(frames, dtype=np.int64)[:, None] * config.reuse.cycles
        #: For each beat that comes in, its step.
        self._new = (frame + steps.new).ravel()
        #: For each tile, the first step that its windows need (the frame's if it waits for that), and the last one.
        self._first, self._last = ((frame + np.array(of_tile)).ravel() for of_tile in (steps.first, steps.last))
        #: For each tile: whether it has a beat; and, if not, whether it waits for the first of the frame.
        self._filled = np.array(steps.filled * frames)
        self._waits = np.array((np.cumsum(steps.filled) == 0).tolist() * frames)
        #: For each tile, one less than the number of beats that come in up to its first and its last step.
        self._first_new, self._last_new = (
            np.searchsorted(self._new, of_tile, side="right") - 1 for of_tile in (self._first, self._last)
        )
        #: For each beat that comes in, the tile that was begun last when it enters the tile, or the register before it.
        filled = np.flatnonzero(self._filled)
        begun = np.searchsorted(self._first[filled], self._new, side="left" if self._latency else "right")
        self._tile = np.concatenate([[-1], filled])[begun]
        #: For each tile, the last one before it that has a beat; -1 if there is none.
        self._filled_before = np.concatenate([[-1], filled])[np.cumsum(self._filled) - self._filled]
        self._walks = np.array(tiles.walks * frames)
        #: For each tile and one more, the number of output folds before.
        self._folds = _before(self._walks // config.window.steps)
        #: For each pyramid and one more, the number of beats that come in and of tiles before it.
        self._taken_before, self._tiles_before = (_before(counts * frames) for counts in (steps.news, steps.tiles))
        #: For each pyramid, whether a part may begin there: not while tiles wait for the frame's first beat.
        waiting = steps.filled.index(True)
        opening = int(np.searchsorted(_before(steps.tiles), waiting, side="right")) - 1
        self.begins = [number == 0 or number > opening or not waiting for number in range(len(steps.news))] * frames

    @property
    def pyramids(self) -> Times:
        ends = [self._taken_before, self._folds[self._tiles_before] * (self.beats_stored // self.folds)]
        return np.diff(np.maximum.reduce(ends))

    def part(self, begin: int, end: int) -> Part:
        taken, tiles = self._taken_before[[begin, end]].tolist(), self._tiles_before[[begin, end]].tolist()
        folds = self._folds[tiles].tolist()
        per_window = len(self.config.fold_beats)
        stored = [fold // per_window * sum(self.config.fold_beats) for fold in folds]
        return Part(slice(*taken), slice(*tiles), slice(*folds), slice(*stored))

    def take(self, part: Part, times: LayerTimes, rows: int) -> Take:
        first = part.tiles.start
        reads = times.starts[self._folds[max(first - HALVES, 0) + 1 : part.tiles.stop + 1] - 1]
        reads += self.config.window.steps - 1
        ends = [NEVER] * max(HALVES - first, 0) + reads.tolist()
        complete, step = before(times.complete, part.tiles), self._step(part, times)
        return lambda offered: self._take(part, offered, step, complete, ends)

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        first_folds = self._folds[part.tiles] - part.starts.start
        earliest[first_folds] = times.complete[part.tiles] + self.config.tiles.write_delay

    def _step(self, part: Part, times: LayerTimes) -> int:
        """The last step before a part, less its number: of the last tile that has a beat, or a later one."""
        step = NEVER
        if part.taken.start:
            last = part.taken.start - 1
            step = int(times.taken[last] + self._latency - self._new[last])
        if part.tiles.start < len(self._first) and (tile := int(self._filled_before[part.tiles.start])) >= 0:
            step = max(step, int(times.complete[tile] - self._last[tile]))
        return step

    def _take(self, part: Part, offered: Times, step: int, complete: int, ends: list[int]) -> tuple[Times, Times]:
        """When beats are taken, and tiles complete.

        ``step``, ``complete``: of what came before the part. ``ends``: of the walks over the tiles, from `HALVES` tiles
        before on; lower bounds for those of the part.
        """
        # All times less the number of the step: then a step is never earlier than the one before.
        new = self._new[part.taken]
        enter = offered + (self._latency - new)
        entered = np.concatenate([[step], enter])
        np.maximum.accumulate(entered, out=entered)
        begun, completed = self._fill(part, entered, step, complete, ends)
        held = np.array([step, *begun])[np.maximum(self._tile[part.taken] - (part.tiles.start - 1), 0)]
        if self._latency:
            np.maximum(held, entered[:-1], out=held)
            np.maximum(held, enter, out=held)
            held -= 1
        else:
            np.maximum(held, entered[1:], out=held)
        return held + new, np.array(completed, dtype=np.int64)

    def _fill(
        self, part: Part, entered: Times, step: int, complete: int, ends: list[int]
    ) -> tuple[list[int], list[int]]:
        """When tiles are begun, less the step's number, and complete.

        ``entered``: when steps would be at the earliest, by when the beats up to them are offered, less their number;
        of the last one before the part, and of those that bring a beat.
        """
        release, write = self.config.tiles.release_delay, self.config.tiles.write_delay
        offset = part.taken.start - 1
        rows = zip(
            self._first[part.tiles].tolist(),
            self._last[part.tiles].tolist(),
            entered[self._first_new[part.tiles] - offset].tolist(),
            entered[self._last_new[part.tiles] - offset].tolist(),
            self._filled[part.tiles].tolist(),
            self._waits[part.tiles].tolist(),
            self._walks[part.tiles].tolist(),
            ends[HALVES:],
            strict=True,
        )
        begun, completed, reads = [], [], ends[:HALVES]
        for number, (first, last, by_first, by_last, filled, waits, walk, end) in enumerate(rows):
            room = max(reads[number] + release, complete + 1)
            if filled:
                step = max(step, by_first, room - first)
                complete = max(step, by_last) + last
            else:
                complete = max(room, max(step, by_first) + first) if waits else room
            begun.append(step)
            completed.append(complete)
            if filled:
                step = max(step, by_last)
            reads.append(max(complete + write + walk - 1, reads[-1] + walk, end))
        return begun, completed


def _before(counts: Sequence[int] | Times) -> Times:
    """For each entry and one more, the sum of those before."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))])


class _Steps:
    """The steps of a frame: ``new`` are those that bring a beat; ``news`` and ``tiles`` how many of them, and how many
    tiles, each pyramid has; and by tile its ``first`` and ``last`` step that windows need and whether it is ``filled``
    by any (if not, ``first`` is the frame's where the tile waits for that)."""

    def __init__(self, config: PyramidLayerConfig):
        source = config.window.input
        new: list[Times] = []
        self.tiles: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.filled: list[bool] = []
        done = 0
        for row in config.tiles.rows.cut(1):
            for column in config.tiles.columns.cut(source.pixels):
                size = row.size, column.size, source.folds
                steps = np.arange(prod(size)).reshape(size) + done
                new.append(steps[row.kept :, column.kept :].ravel())
                self.tiles.append(int(bool(row.span.windows and column.span.windows)))
                if self.tiles[-1]:
                    used = steps[row.unused :, column.unused :]
                    self.filled.append(used.size > 0)
                    self.last.append(done + steps.size - 1)
                    self.first.append(int(used[0, 0, 0]) if used.size else self.last[-1])
                done += steps.size
        self.new = np.concatenate(new)
        self.news = [len(steps) for steps in new]
        opening = self.filled.index(True)
        self.first[:opening] = [self.first[opening]] * opening
