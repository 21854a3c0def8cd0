"""What the events of a layer wait for, and when they happen if what they wait for happens when it is said to.

A layer takes beats, starts output folds and stores beats in its FIFO; behind that beats may be regrouped. How beats
are taken, and what a window's first fold waits for, is each kind of layer's own; the rest is common.

Events wait for earlier ones only, so a long run can be cut into parts (`Part`) that are settled one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

import numpy as np

from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig

#: Earlier than any event.
NEVER = -(1 << 50)

Times = np.ndarray  # int64, cycles; one entry an event, in order of occurrence

#: From when beats are offered to when they are taken, and when tiles are complete (none, if there are no tiles).
Take = Callable[[Times], tuple[Times, Times]]

Config = TypeVar("Config", bound=LayerConfig)

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """Which of a layer's events belong to a part of a run: beats that it takes, tiles, output folds, FIFO beats."""

    taken: slice
    tiles: slice
    starts: slice
    stored: slice


@dataclass(frozen=True)
class LayerTimes:
    """Times of a layer's events over the whole run; those of later parts are lower bounds."""

    taken: Times
    complete: Times
    starts: Times
    left: Times


def before(times: Times, part: slice) -> int:
    """The last event before a part."""
    return int(times[part.start - 1]) if part.start else NEVER


def spaced(earliest: Times, distance: int, last: int = NEVER) -> Times:
    """Earliest times of events that follow each other, and a ``last`` one before, at least ``distance`` apart."""
    ramp = _ramp(len(earliest), distance)
    times = earliest - ramp
    if len(times):
        times[0] = max(times[0], last + distance)
    np.maximum.accumulate(times, out=times)
    times += ramp
    return times


@lru_cache(maxsize=64)
def _ramp(count: int, distance: int) -> Times:
    return np.arange(count, dtype=np.int64) * distance


def take_at_once(last: int) -> Take:
    """As a sink does that never stalls."""
    return lambda offered: (spaced(offered, 1, last), _NONE)


class LayerEvents(ABC, Generic[Config]):
    """The events of one layer over ``frames`` frames.

    Parameters
    ----------
    config : LayerConfig
    frames : int
    windows, beats_in : int
        Of a frame.
    tiles : int
        Of a frame; 0 where there are none.
    """

    def __init__(self, config: Config, frames: int, *, windows: int, beats_in: int, tiles: int = 0):
        self.config, self.frames = config, frames
        self.beats_in, self.tiles = beats_in * frames, tiles * frames
        self.beats_stored = config.beats * frames
        self.beats_out = windows * config.output.folds * frames
        self.folds = windows * config.window.output_folds * frames
        #: For each FIFO beat, its output fold, and the cycles from the fold's start until it is offered.
        offsets = [np.arange(beats) for beats in config.fold_beats]
        self._fold = np.repeat(np.arange(len(offsets)), config.fold_beats)
        self._offered_after = np.concatenate(offsets) + config.pipeline_latency + config.fifo.latency
        #: FIFO beats claimed up to and including each output fold.
        self.claimed = np.cumsum(np.tile(np.array(config.fold_beats, dtype=np.int64), frames * windows))

    #: For each piece of the run, whether a part may begin there.
    begins: Sequence[bool]

    @property
    @abstractmethod
    def pyramids(self) -> Times:
        """The run's pieces that can be parts, in order: how many events each has."""

    @abstractmethod
    def part(self, begin: int, end: int) -> Part:
        """Some pieces that follow each other."""

    @abstractmethod
    def take(self, part: Part, times: LayerTimes, rows: int) -> Take:
        """How a part's beats are taken: no earlier than there is room, by when output folds start.

        ``rows`` of the line buffer, where there is one.
        """

    @abstractmethod
    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        """Put into ``earliest``, for each output fold of the part, when the pixels are there that it waits for."""

    def starts(self, part: Part, times: LayerTimes, depth: int | None) -> Times:
        """When a part's output folds start: after their pixels, after each other, with room in the FIFO."""
        claimed = self.claimed[part.starts]
        earliest = np.full(len(claimed), NEVER, dtype=np.int64)
        self._wait(earliest, part, times)
        if depth is not None:
            waiting = int(np.searchsorted(claimed, depth + 1))
            bound = times.left[claimed[waiting:] - (depth + 1)] + self.config.credit_delay
            np.maximum(earliest[waiting:], bound, out=earliest[waiting:])
        return spaced(earliest, self.config.window.steps, before(times.starts, part.starts))

    def stored(self, part: Part, starts: Times) -> Times:
        """When a part's beats are offered by an otherwise empty FIFO."""
        times = starts[part.starts].reshape(-1, len(self.config.fold_beats))[:, self._fold]
        times += self._offered_after
        return times.ravel()

    @cached_property
    def regroup(self) -> RegroupEvents:
        return RegroupEvents(self.config.regroup, self.beats_stored)


class LineEvents(LayerEvents[LayerConfig]):
    """Of a layer behind a line buffer. A run is one part."""

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

    begins = (True,)

    @property
    def pyramids(self) -> Times:
        return np.array([self.beats_in])

    def part(self, begin: int, end: int) -> Part:
        return Part(slice(0, self.beats_in), slice(0, 0), slice(0, self.folds), slice(0, self.beats_stored))

    def take(self, part: Part, times: LayerTimes, rows: int) -> Take:
        space = self._space(times.starts, rows)
        return lambda offered: (spaced(np.maximum(offered, space), 1), _NONE)

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        window = self.config.window
        earliest[:: window.output_folds] = times.taken[self._needed_beat] + window.write_delay

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
        #: For each beat that enters, the one that must have left; a negative number if none.
        self._waits_for = beats // self._counts * len(config.sizes) - 1 - np.array(config.waiting)[beats % self._counts]
        #: Beats of earlier pixels that may be meant by that.
        self._back = 1 + max(0, *config.waiting)

    def pass_through(
        self, entering: slice, leaving: slice, offered: Times, take: Take, times: tuple[Times, Times]
    ) -> tuple[Times, Times, Times]:
        """When a part's beats enter and leave, and when tiles are complete; by how beats that leave are taken.

        ``times`` holds when beats enter and leave: those of earlier parts, and lower bounds of this part's.
        """
        entered, left = times
        back = min(self._back, leaving.start)
        earlier = [np.full(self._back - back, NEVER), left[leaving.start - back : leaving.start]]
        waits_for = np.maximum(self._waits_for[entering] + (self._back - leaving.start), 0)
        last, leave = before(entered, entering), left[leaving]
        while True:
            enter = np.concatenate([*earlier, leave])[waits_for]
            np.maximum(enter, offered, out=enter)
            enter = spaced(enter, 1, last)
            following, complete = take((enter.reshape(-1, self._counts)[:, self._after] + self._latency).ravel())
            if np.array_equal(following, leave):
                return enter, following, complete
            leave = following
