"""Events (transfers, computation starts) of a layer that works tile by tile, with reuse and tile buffers.

Every beat of a tile, kept or new, is a step of the reuse buffer. Steps follow each other at least a cycle apart;
`hwgen.gateware.pyramid.timing` states what delays them. Only some steps are events here. ``offered`` holds the steps
that bring a new beat, as early as the beat is valid and the earlier beats allow. ``first`` holds the first step of
each tile that its windows need, and ``complete`` the last step of each tile. The layer accepts a beat in the cycle of
its step, or a cycle earlier if a register precedes the tile buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.timing import HALVES, tiles_of
from hwgen.schedule.events import LayerEvents, Origin, Ports
from hwgen.schedule.settle import NO_WAIT, Times, Wait


class PyramidEvents(LayerEvents[PyramidLayerConfig]):
    """Events (transfers, computation starts) of a layer that works tile by tile, from reuse and tile buffers.

    Windows wait until their tile is complete.
    """

    def __init__(self, config: PyramidLayerConfig):
        super().__init__(config)
        self._register = config.reuse.latency if config.reuse.needed else 0
        #: Array over a frame's new input beats, in order: index of the reuse buffer's step that accepts the beat.
        self._new = np.concatenate(_new_steps(config))
        first, last, filled, waits, walks = zip(*tiles_of(config.pyramids, config.window.window_cycles), strict=True)
        #: Arrays over a frame's tiles: indices of the reuse buffer's first and last step for the tile.
        self._first, self._last = np.array(first), np.array(last)
        #: Boolean arrays over a frame's tiles: the tile needs input beats, and the tile waits (`Tile`).
        self._filled, self._waits = np.array(filled), np.array(waits)
        #: Array over a frame's tiles: number of output folds (started windows) up to and including the tile.
        self._folds = np.cumsum(np.array(walks) // config.window.steps)

    def inner_sequences(self, ports: Ports) -> dict[Any, tuple[int, int]]:
        tiles = len(self._first)
        return {
            self._key(ports, "offered"): (len(self._new), 1),
            self._key(ports, "first"): (tiles, 0),
            self._key(ports, "complete"): (tiles, 0),
        }

    def beats(self, ports: Ports) -> tuple[Any, ...]:
        return *ports.taken, self._key(ports, "offered")

    def waits(self, ports: Ports) -> list[Wait]:
        offered, first, complete = (self._key(ports, name) for name in ("offered", "first", "complete"))
        beats, tiles = len(self._new), len(self._first)
        beat_index, window = np.arange(beats), self.config.window
        by_step = Origin(offered, beat_index - 1, beats, self._distance_to(self._new, beat_index - 1, self._new))
        waits = [
            by_step.waited_for(offered),
            *self._tile_waits(ports, offered, first, complete),
            *self._taking_waits(ports.taken[0], offered, first, by_step),
            # Output folds wait for their tile.
            Wait(
                ports.starts,
                complete,
                np.repeat(np.arange(tiles), np.diff(self._folds, prepend=0)),
                tiles,
                self.config.tiles.write_delay,
            ),
        ]
        room = window.steps - 1 + self.config.tiles.release_delay
        waits.append(Wait(first, ports.starts, self._folds - 1, self.folds, room, lead=HALVES, data=False))
        if (origin := ports.offered[0]) is not None:
            waits.append(origin.waited_for(offered))
            if self._register:
                waits.append(origin.waited_for(ports.taken[0], after=self._register - 1))
        return waits

    def _tile_waits(self, ports: Ports, offered: Any, first: Any, complete: Any) -> list[Wait]:
        """Return a list of constraints (`Wait`) on the first beat stored of each tile, and on the tile's completion.

        A tile waits for the previous tile and for its own input beats.
        """
        tiles = np.arange(len(self._first))
        frame_steps, beats = self.config.reuse.cycles, len(self._new)
        last_filled = self._filled_before(tiles)
        steps = self._filled | self._waits
        up_to_first = np.searchsorted(self._new, self._first, side="right") - 1
        up_to_last = np.searchsorted(self._new, self._last, side="right") - 1
        since_filled = self._first - self._step(self._last, last_filled, frame_steps)
        since_first = self._register + self._first - self._step(self._new, up_to_first, frame_steps)
        since_last = self._register + self._last - self._step(self._new, up_to_last, frame_steps)
        count = len(tiles)
        return [
            Wait(first, complete, tiles - 1, count, 1),
            Wait(first, complete, last_filled, count, np.where(steps, since_filled, NO_WAIT)),
            Wait(first, offered, np.maximum.accumulate(up_to_first), beats, np.where(steps, since_first, NO_WAIT)),
            Wait(complete, first, tiles, count, np.where(self._filled, self._last - self._first, 0)),
            Wait(
                complete, offered, np.maximum.accumulate(up_to_last), beats, np.where(self._filled, since_last, NO_WAIT)
            ),
        ]

    def _taking_waits(self, taken: Any, offered: Any, first: Any, by_step: Origin) -> list[Wait]:
        """Return a list of lower bounds (`Wait`) on input beats' cycles, relative to the start of their tile."""
        filled = np.flatnonzero(self._filled)
        begun = np.searchsorted(self._first[filled], self._new, side="left" if self._register else "right")
        # Before a frame's first tile with a beat, the tile is the last such tile of the previous frame.
        tile = np.concatenate([[filled[-1] - len(self._first)], filled])[begun]
        held = self._new - self._step(self._first, tile, self.config.reuse.cycles)
        if self._register:
            # The register accepts a beat as the previous beat leaves it.
            return [
                Wait(taken, first, tile, len(self._first), held - 1, data=False),
                by_step.waited_for(taken, after=self._register - 1),
            ]
        beat_index = np.arange(len(self._new))
        return [
            Wait(taken, first, tile, len(self._first), held, data=False),
            Wait(taken, offered, beat_index, len(beat_index)),
        ]

    def _filled_before(self, tiles: Times) -> Times:
        """Return `Times`: an array with the index of the last earlier tile whose windows need input beats, per tile.

        A negative index is a tile of the previous frame.
        """
        filled = np.flatnonzero(self._filled)
        before = np.searchsorted(filled, tiles, side="left")
        return np.concatenate([[filled[-1] - len(tiles)], filled])[before]

    def _distance_to(self, steps: Times, earlier: Times, of: Times) -> Times:
        """Return `Times`: the number of reuse buffer steps (beats) from entries ``earlier`` of ``steps`` to ``of``."""
        return of - self._step(steps, earlier, self.config.reuse.cycles)

    @staticmethod
    def _step(steps: Times, entries: Times, frame_steps: int) -> Times:
        """Return `Times`: the reuse buffer step (beat) ``steps[entry]`` of each entry, counted from frame start.

        A negative index is an entry of the previous frame.
        """
        frames, positions = np.divmod(entries, len(steps))
        return steps[positions] + frames * frame_steps

    def _key(self, ports: Ports, name: str) -> Any:
        """Return the key (name, event) of this layer's internal sequence ``offered``, ``first`` or ``complete``."""
        return (name, ports.starts)


def _new_steps(config: PyramidLayerConfig) -> list[Times]:
    """Return a list: for each tile of a frame, the reuse buffer's steps that accept a new beat, not a kept one."""
    source = config.window.input
    cuts: Sequence[Any] = list(product(config.tiles.rows.cut(1), config.tiles.columns.cut(source.pixels)))
    result = []
    for (row, column), pyramid in zip(cuts, config.pyramids, strict=True):
        steps = np.arange(pyramid.beats).reshape(row.size, column.size, source.folds) + pyramid.begin
        result.append(steps[row.kept :, column.kept :].ravel())
    return result
