"""The events of a layer that works tile by tile: reuse buffer, two tiles, the walk over their windows.

Every beat of a tile, kept or new, is a step of the reuse buffer; `hwgen.gateware.pyramid.timing` says what holds steps
up, and what the lag of a step is: its cycle less its number. A step that brings a new beat also waits for that. Tiles
that follow each other are gone through one by one, with a few numbers each; their beats in whole-array passes, in which
lags are running maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.gateware.pyramid.timing import HALVES, tiles_of, walk_tiles
from hwgen.schedule.events import NEVER, LayerEvents, LayerTimes, Part, Take, Times, before


class PyramidEvents(LayerEvents[PyramidLayerConfig]):
    """Of a layer behind a reuse buffer and two tiles; its windows wait for their tile to be complete."""

    def __init__(self, config: PyramidLayerConfig, frames: int):
        super().__init__(config, frames, tiles=len(config.tiles.tiles))
        self._latency = config.reuse.latency if config.reuse.needed else 0
        new = _new_steps(config)
        frame = np.arange(frames, dtype=np.int64)[:, None] * config.reuse.cycles
        #: For each beat that comes in, its step.
        self._new = (frame + np.concatenate(new)).ravel()
        first, last, filled, waits, walks = zip(*tiles_of(config.pyramids, config.window.window_cycles), strict=True)
        #: For each tile what `Tile` says of it.
        self._first, self._last = ((frame + np.array(of_tile)).ravel() for of_tile in (first, last))
        self._filled, self._waits, self._walks = (np.array(of_tile * frames) for of_tile in (filled, waits, walks))
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
        #: For each tile and one more, the number of output folds before.
        self._folds = _before(self._walks // config.window.steps)
        #: For each pyramid and one more, the number of beats that come in and of tiles before it.
        tiles = [int(bool(pyramid.windows)) for pyramid in config.pyramids]
        self._taken_before = _before([len(steps) for steps in new] * frames)
        self._tiles_before = _before(tiles * frames)
        #: For each pyramid, whether a part may begin there: not while tiles wait for the frame's first beat.
        waiting = int(self._filled.argmax())
        opening = int(np.searchsorted(_before(tiles), waiting, side="right")) - 1
        self.begins = [number == 0 or number > opening or not waiting for number in range(len(new))] * frames

    @property
    def pyramids(self) -> Times:
        ends = [self._taken_before, self._folds[self._tiles_before] * (self.beats_stored // self.folds)]
        return np.diff(np.maximum.reduce(ends))

    def part(self, begin: int, end: int) -> Part:
        taken, tiles = self._taken_before[[begin, end]].tolist(), self._tiles_before[[begin, end]].tolist()
        folds = self._folds[tiles].tolist()
        per_window = len(self.config.fold_beats)
        stored = [fold // per_window * sum(self.config.fold_beats) for fold in folds]
        return Part((slice(*taken),), slice(*tiles), slice(*folds), slice(*stored))

    def take(self, place: int, part: Part, times: LayerTimes, rows: int) -> Take:
        first = part.tiles.start
        reads = times.starts[self._folds[max(first - HALVES, 0) + 1 : part.tiles.stop + 1] - 1]
        reads += self.config.window.steps - 1
        ends = [NEVER] * max(HALVES - first, 0) + reads.tolist()
        complete, lag = before(times.complete, part.tiles), self._lag(part, times)
        return lambda offered: self._take(part, offered, lag, complete, ends)

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        first_folds = self._folds[part.tiles] - part.starts.start
        earliest[first_folds] = times.complete[part.tiles] + self.config.tiles.write_delay

    def _lag(self, part: Part, times: LayerTimes) -> int:
        """The lag before a part: of the last tile that has a beat, or of a later step that brings one."""
        lag = NEVER
        if part.taken[0].start:
            last = part.taken[0].start - 1
            lag = int(times.taken[0][last] + self._latency - self._new[last])
        if part.tiles.start < len(self._first) and (tile := int(self._filled_before[part.tiles.start])) >= 0:
            lag = max(lag, int(times.complete[tile] - self._last[tile]))
        return lag

    def _take(self, part: Part, offered: Times, lag: int, complete: int, ends: list[int]) -> tuple[Times, Times]:
        """When beats are taken, and tiles complete.

        ``lag``, ``complete``: of what came before the part. ``ends``: of the walks over the tiles, from `HALVES` tiles
        before on; lower bounds for those of the part.
        """
        new = self._new[part.taken[0]]
        # Least lags: of the steps that bring a beat, by when it is offered; and by all beats up to it, after ``lag``.
        enter = offered + (self._latency - new)
        entered = np.concatenate([[lag], enter])
        np.maximum.accumulate(entered, out=entered)
        begun, completed = self._fill(part, entered, lag, complete, ends)
        # What is held up with its tile's first step, or behind it.
        held = np.array([lag, *begun])[np.maximum(self._tile[part.taken[0]] - (part.tiles.start - 1), 0)]
        if self._latency:
            # A beat is taken as the one before leaves the register, or else a cycle before it is offered itself.
            np.maximum(held, entered[:-1], out=held)
            np.maximum(held, enter, out=held)
            held -= 1
        else:
            np.maximum(held, entered[1:], out=held)
        return held + new, np.array(completed, dtype=np.int64)

    def _fill(
        self, part: Part, entered: Times, lag: int, complete: int, ends: list[int]
    ) -> tuple[list[int], list[int]]:
        """The lag with which each tile of the part is begun, and when it is complete.

        ``entered``: least lags, by the beats that come in, of the last step before the part and of each that brings a
        beat.
        """
        offset = part.taken[0].start - 1
        of_tiles = (self._first, self._last, self._filled, self._waits, self._walks)
        by_first, by_last = (entered[new[part.tiles] - offset].tolist() for new in (self._first_new, self._last_new))
        begun, completed, _ = walk_tiles(
            zip(*(values[part.tiles].tolist() for values in of_tiles), strict=True),
            zip(by_first, by_last, ends[HALVES:], strict=True),
            lag=lag,
            complete=complete,
            ends=ends[:HALVES],
            write_delay=self.config.tiles.write_delay,
            release_delay=self.config.tiles.release_delay,
        )
        return begun, completed


def _before(counts: Sequence[int] | Times) -> Times:
    """For each entry and one more, the sum of those before."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))])


def _new_steps(config: PyramidLayerConfig) -> list[Times]:
    """Of each pyramid of a frame: the steps that bring a beat, which others don't as theirs was kept."""
    source = config.window.input
    cuts = product(config.tiles.rows.cut(1), config.tiles.columns.cut(source.pixels))
    result = []
    for (row, column), pyramid in zip(cuts, config.pyramids, strict=True):
        steps = np.arange(pyramid.beats).reshape(row.size, column.size, source.folds) + pyramid.begin
        result.append(steps[row.kept :, column.kept :].ravel())
    return result
