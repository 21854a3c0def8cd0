"""What the events of a layer wait for, and when they happen if what they wait for has happened when given.

A layer takes beats, starts output folds and stores beats in its FIFO; behind that beats may be regrouped. How beats
are taken, and what a window's first fold waits for, is each kind of layer's own; the rest is common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

import numpy as np

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig

#: Earlier than any event.
NEVER = -(1 << 50)

Times = np.ndarray  # int64, cycles; one entry an event, in order of occurrence

#: From when beats are offered to when they are taken, and when what windows wait for is there.
Take = Callable[[Times], tuple[Times, Times]]

Config = TypeVar("Config", bound=LayerConfig)


def spaced(earliest: Times, distance: int) -> Times:
    """Earliest times of events that follow each other at least ``distance`` cycles apart."""
    ramp = _ramp(len(earliest), distance)
    times = earliest - ramp
    np.maximum.accumulate(times, out=times)
    times += ramp
    return times


@lru_cache(maxsize=8)
def _ramp(count: int, distance: int) -> Times:
    return np.arange(count, dtype=np.int64) * distance


def take_at_once(offered: Times) -> tuple[Times, Times]:
    """As a sink does that never stalls."""
    taken = spaced(offered, 1)
    return taken, taken


class LayerEvents(ABC, Generic[Config]):
    """The events of one layer over ``frames`` frames.

    Parameters
    ----------
    config : LayerConfig
    frames : int
    windows : int
        Of a frame.
    beats_in : int
        Of a frame.
    """

    def __init__(self, config: Config, frames: int, *, windows: int, beats_in: int):
        self.config, self.frames = config, frames
        self.beats_in = beats_in * frames
        self.beats_out = windows * config.output.folds * frames
        self._folds = frames * windows * config.window.output_folds
        #: For each FIFO beat, its output fold, and the cycles from the fold's start until it is offered.
        offsets = [np.arange(beats) for beats in config.fold_beats]
        self._fold = np.repeat(np.arange(len(offsets)), config.fold_beats)
        self._offered_after = np.concatenate(offsets) + config.pipeline_latency + config.fifo.latency
        #: FIFO beats claimed up to and including each output fold.
        self.claimed = np.cumsum(np.tile(np.array(config.fold_beats, dtype=np.int64), frames * windows))

    @abstractmethod
    def take(self, starts: Times | None, rows: int) -> Take:
        """How beats are taken: no earlier than there is room, by when output folds start.

        ``rows`` of the line buffer, where there is one. What windows wait for is for `starts` to read.
        """

    @abstractmethod
    def _wait(self, earliest: Times, there: Times) -> None:
        """Put into ``earliest``, for each output fold, when its pixels are there, by what `take` said of it."""

    def starts(self, there: Times, left: Times | None, depth: int | None) -> Times:
        """When output folds start: after their pixels, after each other, with room in the FIFO."""
        earliest = np.full(self._folds, NEVER, dtype=np.int64)
        self._wait(earliest, there)
        if depth is not None and left is not None:
            waits_for = self.claimed - depth - 1
            bound = waits_for >= 0
            earliest[bound] = np.maximum(earliest[bound], left[waits_for[bound]] + self.config.credit_delay)
        return spaced(earliest, self.config.window.steps)

    def stored(self, starts: Times) -> Times:
        """When beats are offered by an otherwise empty FIFO."""
        times = starts.reshape(-1, len(self.config.fold_beats))[:, self._fold]
        times += self._offered_after
        return times.ravel()

    @cached_property
    def regroup(self) -> RegroupEvents:
        return RegroupEvents(self.config.regroup, self.config.beats * self.frames)


class LineEvents(LayerEvents[LayerConfig]):
    """Of a layer behind a line buffer."""

    def __init__(self, config: LayerConfig, frames: int):
        window = config.window
        source = window.input
        super().__init__(config, frames, windows=window.windows, beats_in=source.beats)
        places = [(row, step) for row in range(window.output_height) for step in range(window.row_steps)]
        needed = np.array([window.needed(*place) for place in places], dtype=np.int64)
        released = np.array([window.released(*place) for place in places], dtype=np.int64)
        frame = np.arange(frames, dtype=np.int64)[:, None]
        row, column = np.divmod(needed - 1, source.width)
        beats = (row * source.row_steps + column // source.pixels + 1) * source.folds
        #: For each window, the last input beat it needs.
        self._needed_beat = (frame * source.beats + beats - 1).ravel()
        #: For each step of input pixels, the number of its last pixel.
        ends = np.minimum((np.arange(source.row_steps) + 1) * source.pixels, source.width) - 1
        self._step_pixel = (np.arange(frames * source.height)[:, None] * source.width + ends).ravel()
        #: For each input pixel, the window whose end releases it.
        first = np.searchsorted(released, np.arange(source.frame_pixels), side="right")
        self._releasing_window = (frame * len(places) + first).ravel()

    def take(self, starts: Times | None, rows: int) -> Take:
        if starts is None:
            return take_at_once
        space = self._space(starts, rows)
        return lambda offered: take_at_once(np.maximum(offered, space))

    def _wait(self, earliest: Times, there: Times) -> None:
        window = self.config.window
        earliest[:: window.output_folds] = there[self._needed_beat] + window.write_delay

    def _space(self, starts: Times, rows: int) -> Times:
        """When each input beat may at the earliest be taken: once what it overwrites is released."""
        window = self.config.window
        ends = starts.reshape(-1, window.output_folds)[:, -1] + window.steps - 1 + window.release_delay
        overwritten = self._step_pixel - rows * window.input.width
        times = np.full(len(overwritten), NEVER, dtype=np.int64)
        bound = overwritten >= 0
        times[bound] = ends[self._releasing_window[overwritten[bound]]]
        return np.repeat(times, window.input.folds)


class RegroupEvents:
    """What beats that pass a Regroup wait for, over ``count`` beats that enter it."""

    def __init__(self, config: RegroupConfig, count: int):
        self._counts, self._latency, self._after = len(config.counts), config.latency, np.array(config.after)
        beats = np.arange(count)
        waits_for = beats // self._counts * len(config.sizes) - 1 - np.array(config.waiting)[beats % self._counts]
        #: For each beat that enters, one more than the number of the one that must have left; 0 if none.
        self._waits_for = np.maximum(waits_for, -1) + 1

    def pass_through(self, offered: Times, take: Take, start: Times) -> tuple[Times, Times, Times]:
        """When beats enter and leave, and what ``take`` says of them; ``start`` is a lower bound of when they leave."""
        leave = start
        while True:
            enter = np.concatenate([[NEVER], leave])[self._waits_for]
            np.maximum(enter, offered, out=enter)
            enter = spaced(enter, 1)
            following, there = take((enter.reshape(-1, self._counts)[:, self._after] + self._latency).ravel())
            if np.array_equal(following, leave):
                return enter, following, there
            leave = following
