"""What the events of a layer wait for, and when they happen if what they wait for happens when it is said to.

A layer takes beats, starts output folds and stores beats in its FIFO; behind that beats may be regrouped. How beats
are taken, and what a window's first fold waits for, is each kind of layer's own; the rest is common.

Events wait for earlier ones only, so a long run can be cut into parts (`Part`) that are settled one after the other.
Runs may have tens of millions of events: nothing is kept for each of them but their times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig

#: Earlier than any event.
NEVER = -(1 << 50)

#: The same in 32 bits, in which there is room for the events' own times and for sums of these.
NEVER_SHORT = -(1 << 30)

Times = np.ndarray  # int64 or int32, cycles; one entry an event, in order of occurrence

#: From when beats are offered to when they are taken, and when tiles are complete (none, if there are no tiles).
Take = Callable[[Times], tuple[Times, Times]]

Config = TypeVar("Config", bound=LayerConfig)

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Part:
    """Which of a layer's events belong to a part of a run: beats that it takes at each input, tiles, output folds, FIFO
    beats."""

    taken: tuple[slice, ...]
    tiles: slice
    starts: slice
    stored: slice


@dataclass(frozen=True)
class EventOrder:
    """What a layer's events wait for, as counts over the whole run.

    Parameters
    ----------
    needs : tuple of Times
        For each input and output fold, the beats without which the fold does not start.
    takes : tuple of Times
        For each input and beat, the output folds that have started when it is taken, at least.
    holds : bool
        Folds need beats that have been taken; otherwise such as are offered, and taken as the fold starts.
    """

    needs: tuple[Times, ...]
    takes: tuple[Times, ...]
    holds: bool


@dataclass(frozen=True)
class LayerTimes:
    """Times of a layer's events over the whole run; those of later parts are lower bounds.

    Beats are taken at each input, and leave each FIFO.
    """

    taken: tuple[Times, ...]
    complete: Times
    starts: Times
    left: tuple[Times, ...]


def never(times: Times) -> int:
    """Earlier than any of these events."""
    return NEVER_SHORT if times.dtype == np.int32 else NEVER


def before(times: Times, part: slice) -> int:
    """The last event before a part."""
    return int(times[part.start - 1]) if part.start else never(times)


def spaced(earliest: Times, distance: int, last: int | None = None) -> Times:
    """Earliest times of events that follow each other, and a ``last`` one before, at least ``distance`` apart."""
    ramp = np.arange(len(earliest), dtype=earliest.dtype)
    if distance != 1:
        ramp *= distance
    times = earliest - ramp
    if last is not None and len(times):
        times[0] = max(int(times[0]), last + distance)
    np.maximum.accumulate(times, out=times)
    times += ramp
    return times


def spaced_back(latest: Times, distance: int) -> Times:
    """Latest times of events that follow each other at least ``distance`` apart."""
    return -spaced(-latest[::-1], distance)[::-1]


def take_at_once(last: int) -> Take:
    """As a sink does that never stalls."""
    return lambda offered: (spaced(offered, 1, last), _NONE)


class LayerEvents(ABC, Generic[Config]):
    """The events of one layer over ``frames`` frames.

    Parameters
    ----------
    config : LayerConfig
    frames : int
    tiles : int
        Of a frame; 0 where there are none.
    """

    def __init__(self, config: Config, frames: int, *, tiles: int = 0):
        self.config, self.frames = config, frames
        #: Beats that are taken at each input, and that leave to each reader.
        self.beats_in, self.tiles = tuple(beats * frames for beats in config.input_beats), tiles * frames
        self.beats_stored = config.beats * frames
        self.beats_out = tuple(config.windows * output.folds * frames for output in config.outputs)
        self.folds = config.windows * config.window.output_folds * frames
        #: For each FIFO beat, its output fold, and the cycles from the fold's start until it is offered.
        offsets = [np.arange(beats) for beats in config.fold_beats]
        self._fold = np.repeat(np.arange(len(offsets)), config.fold_beats)
        self._offered_after = np.concatenate(offsets) + config.pipeline_latency + FifoConfig.latency
        #: Of a window: FIFO beats claimed up to and including each output fold.
        self._claimed = np.cumsum(config.fold_beats)
        self._alike = len(set(config.fold_beats)) == 1

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
    def take(self, place: int, part: Part, times: LayerTimes, rows: int) -> Take:
        """How a part's beats are taken at an input: no earlier than there is room, by when output folds start.

        ``rows`` of the line buffer, where there is one.
        """

    @abstractmethod
    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        """Put into ``earliest``, for each output fold of the part, when the pixels are there that it waits for."""

    def claimed(self, starts: slice) -> Times:
        """FIFO beats claimed up to and including each of some output folds, those of whole windows."""
        folds, beats = self._claimed.size, int(self._claimed[-1])
        windows = np.arange(starts.start // folds, starts.stop // folds)[:, None] * beats
        return (windows + self._claimed).ravel()

    def starts(self, part: Part, times: LayerTimes, depths: Sequence[int | None]) -> Times:
        """When a part's output folds start: after their pixels, after each other, with room in every FIFO."""
        earliest = np.full(part.starts.stop - part.starts.start, never(times.starts), dtype=times.starts.dtype)
        self._wait(earliest, part, times)
        for of_fifo, depth in zip(times.left, depths, strict=True):
            if depth is not None:
                waiting, left = self._leave_first(part, of_fifo, depth)
                np.maximum(earliest[waiting:], left + self.config.credit_delay, out=earliest[waiting:])
        return spaced(earliest, self.config.window.steps, before(times.starts, part.starts))

    def _leave_first(self, part: Part, left: Times, depth: int) -> tuple[int, Times]:
        """How many of a part's output folds wait for no beat to leave; and when that beat leaves, for the others."""
        most = int(self._claimed[0])
        if not self._alike:
            claimed = self.claimed(part.starts)
            waiting = int(np.searchsorted(claimed, depth + 1))
            return waiting, left[claimed[waiting:] - (depth + 1)]
        # Every fold claims as many beats: those waited for are as far apart.
        first = max(part.starts.start, depth // most)
        beats = slice((first + 1) * most - (depth + 1), part.starts.stop * most - depth, most)
        return first - part.starts.start, left[beats] if first < part.starts.stop else left[:0]

    def stored(self, part: Part, starts: Times) -> Times:
        """When a part's beats are offered by an otherwise empty FIFO."""
        times = starts[part.starts].reshape(-1, len(self.config.fold_beats))
        if len(self._fold) > times.shape[1]:
            times = times[:, self._fold]
        return (times + self._offered_after.astype(times.dtype)).ravel()

    def start_latest(self, offered: Times) -> Times:
        """By when output folds must start for the FIFO to offer its beats no later than is said."""
        beats = offered.reshape(-1, len(self._fold)) - self._offered_after.astype(offered.dtype)
        firsts = self._claimed - np.array(self.config.fold_beats)
        return spaced_back(np.minimum.reduceat(beats, firsts, axis=1).ravel(), self.config.window.steps)

    def take_latest(self, starts: Times) -> tuple[Times, ...] | None:
        """By when beats must be taken at each input for output folds to start no later than is said.

        ``None``: that isn't known.
        """
        return None

    @cached_property
    def regroups(self) -> tuple[RegroupEvents | None, ...]:
        """Behind each FIFO; ``None`` where beats leave as they are."""
        return tuple(RegroupEvents(config) if config.needed else None for config in self.config.regroups)


class FrameEvents(LayerEvents[Config]):
    """Of a layer whose pieces are frames: one that may be part of a graph."""

    def __init__(self, config: Config, frames: int):
        super().__init__(config, frames)
        self.begins = (True,) * frames

    @property
    def pyramids(self) -> Times:
        return np.full(self.frames, max(*self.beats_in, self.beats_stored) // self.frames)

    def part(self, begin: int, end: int) -> Part:
        counts = (*self.beats_in, self.folds, self.beats_stored)
        *taken, starts, stored = (slice(*(count // self.frames * frame for frame in (begin, end))) for count in counts)
        return Part(tuple(taken), slice(0, 0), starts, stored)

    @abstractmethod
    def order(self) -> EventOrder:
        """In which order events come, whenever they do."""


class LineEvents(FrameEvents[LayerConfig]):
    """Of a layer behind a line buffer."""

    def __init__(self, config: LayerConfig, frames: int):
        window = config.window
        source = window.input
        super().__init__(config, frames)
        bottoms = (np.array([window.needed(row, 0) for row in range(window.output_height)]) - 1) // source.width
        rights = (np.array([window.needed(0, step) for step in range(window.row_steps)]) - 1) % source.width
        #: For each window of a frame, the last input beat it needs.
        steps = bottoms[:, None] * source.row_steps + rights // source.pixels
        self._needed_beat = ((steps + 1) * source.folds - 1).ravel()
        #: For each step of input pixels of a frame, the window whose end releases its last pixel.
        ends = np.minimum((np.arange(source.row_steps) + 1) * source.pixels, source.width) - 1
        pixels = (np.arange(source.height)[:, None] * source.width + ends).ravel()
        self._releasing_window = np.searchsorted(_released(window), pixels, side="right")

    def take(self, place: int, part: Part, times: LayerTimes, rows: int) -> Take:
        folds, last = self.config.window.input.folds, before(times.taken[0], part.taken[0])
        space = self._space(part, times.starts, rows)[:, None]
        return lambda offered: (spaced(np.maximum(offered.reshape(-1, folds), space).ravel(), 1, last), _NONE)

    def take_latest(self, starts: Times) -> tuple[Times, ...]:
        window = self.config.window
        first_folds = starts.reshape(self.frames, -1, window.output_folds)[:, :, 0] - window.write_delay
        latest = np.full((self.frames, window.input.beats), -never(starts), dtype=starts.dtype)
        # Backwards, so that of windows that need the same beat the earliest says by when.
        latest[:, self._needed_beat[::-1]] = first_folds[:, ::-1]
        return (spaced_back(latest.ravel(), 1),)

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        window = self.config.window
        taken = times.taken[0][part.taken[0]].reshape(-1, window.input.beats)
        first_folds = earliest.reshape(len(taken), -1, window.output_folds)[:, :, 0]
        first_folds[:] = taken[:, self._needed_beat]
        first_folds += window.write_delay

    def order(self) -> EventOrder:
        window, frames = self.config.window, np.arange(self.frames)[:, None]
        needs = np.repeat(frames * window.input.beats + self._needed_beat + 1, window.output_folds, axis=None)
        # A step of pixels takes the place of the one ``rows`` above it, in this frame or one before.
        steps = (frames * window.windows + self._releasing_window + 1).ravel() * window.output_folds
        above = np.zeros(min(window.rows * window.input.row_steps, len(steps)), dtype=steps.dtype)
        takes = np.concatenate([above, steps[: len(steps) - len(above)]])
        return EventOrder((needs,), (np.repeat(takes, window.input.folds),), True)

    def _space(self, part: Part, starts: Times, rows: int) -> Times:
        """When each step of a part's input pixels may at the earliest be taken: what it overwrites is released then."""
        window = self.config.window
        source = window.input
        begin, end = (place // source.beats for place in (part.taken[0].start, part.taken[0].stop))
        # Of the frames whose pixels are overwritten; a part of the first of them, and of the last, is too many.
        first = max(begin - -(-rows // source.height), 0)
        ends = starts.reshape(self.frames, -1, window.output_folds)[first:end, :, -1]
        released = ends[:, self._releasing_window].ravel()
        released += window.steps - 1 + window.release_delay
        above = begin * source.height - rows - first * source.height
        count = (end - begin) * source.height
        if above >= 0:
            return released[above * source.row_steps : (above + count) * source.row_steps]
        space = np.full(count * source.row_steps, never(starts), dtype=starts.dtype)
        bound = max(count + above, 0) * source.row_steps
        space[len(space) - bound :] = released[:bound]
        return space


def _released(window: LineBufferConfig) -> Times:
    """`LineBufferConfig.released` of all windows of a frame, in order."""
    height, width, last = window.input.height, window.input.width, window.row_steps - 1
    top = np.arange(window.output_height) * window.stride[0] - window.padding[0]
    left = (np.arange(last) + 1) * window.pixels * window.stride[1] - window.padding[1]
    result = np.empty((len(top), last + 1), dtype=np.int64)
    result[:, :last] = top.clip(0, height)[:, None] * width
    inside = (top + window.stride[0] > 0) & (top < height)
    result[inside, :last] += left.clip(0, width)
    result[:, last] = (top + window.stride[0]).clip(0, height) * width
    result[-1, last] = height * width
    return result.ravel()


class JoinEvents(FrameEvents[JoinLayerConfig]):
    """Of a layer without a line buffer: a beat is taken in the cycle in which its step starts."""

    def take(self, place: int, part: Part, times: LayerTimes, rows: int) -> Take:
        starts = self._at(place, times.starts[part.starts]).ravel()
        last = before(times.taken[place], part.taken[place])
        return lambda offered: (spaced(np.maximum(offered, starts), 1, last), _NONE)

    def take_latest(self, starts: Times) -> tuple[Times, ...]:
        return tuple(self._at(place, starts).ravel() for place in range(len(self.beats_in)))

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        for place, (taken, within) in enumerate(zip(times.taken, part.taken, strict=True)):
            steps = self._at(place, earliest)
            np.maximum(steps, taken[within].reshape(steps.shape), out=steps)

    def order(self) -> EventOrder:
        numbers = np.arange(self.folds)
        takes = tuple(self._at(place, numbers).ravel() for place in range(len(self.beats_in)))
        needs = []
        for steps in takes:
            counts = np.zeros(self.folds, dtype=numbers.dtype)
            counts[steps] = 1
            needs.append(np.cumsum(counts))
        return EventOrder(tuple(needs), tuple(steps + 1 for steps in takes), False)

    def _at(self, place: int, starts: Times) -> Times:
        """Of some steps, those that take a beat of an input: a view."""
        shape, index = self.config.join.taking(place)
        return starts.reshape(-1, *shape)[index]


class WholeMapEvents(FrameEvents[WholeMapLayerConfig]):
    """Of a layer that adds up a map: beats are taken as they come, those of the last pixels as their outputs start."""

    def take(self, place: int, part: Part, times: LayerTimes, rows: int) -> Take:
        starts = times.starts[part.starts].reshape(-1, self._folds)
        last = before(times.taken[0], part.taken[0])

        def take(offered: Times) -> tuple[Times, Times]:
            earliest = offered.copy()
            ends = self._last(earliest)
            np.maximum(ends, starts, out=ends)
            return spaced(earliest, 1, last), _NONE

        return take

    def take_latest(self, starts: Times) -> tuple[Times, ...]:
        latest = np.full(self.beats_in[0], -never(starts), dtype=starts.dtype)
        self._last(latest)[:] = starts.reshape(-1, self._folds)
        return (spaced_back(latest, 1),)

    def _wait(self, earliest: Times, part: Part, times: LayerTimes) -> None:
        earliest[:] = self._last(times.taken[0][part.taken[0]]).ravel()

    def order(self) -> EventOrder:
        takes = np.repeat(np.arange(self.frames) * self._folds, self.config.input_beats[0])
        self._last(takes)[:] += np.arange(self._folds) + 1
        needs = self._last(np.arange(self.beats_in[0])).ravel() + 1
        return EventOrder((needs,), (takes,), False)

    @property
    def _folds(self) -> int:
        return self.config.window.output_folds

    def _last(self, beats: Times) -> Times:
        """Those of the last pixels, by frame: a view."""
        return beats.reshape(-1, self.config.input_beats[0])[:, -self._folds :]


class RegroupEvents:
    """What beats that pass a Regroup wait for."""

    def __init__(self, config: RegroupConfig):
        self._counts, self._sizes = len(config.counts), len(config.sizes)
        self._latency, self._after, self._waiting = config.latency, np.array(config.after), np.array(config.waiting)
        #: Beats of earlier pixels that a beat may wait for.
        self._back = 1 + max(0, *config.waiting)

    def pass_through(
        self, entering: slice, leaving: slice, offered: Times, take: Take, times: tuple[Times, Times]
    ) -> tuple[Times, Times, Times]:
        """When a part's beats enter and leave, and when tiles are complete; by how beats that leave are taken.

        ``times`` holds when beats enter and leave: those of earlier parts, and lower bounds of this part's.
        """
        entered, left = times
        back = min(self._back, leaving.start)
        earlier = [
            np.full(self._back - back, never(left), dtype=left.dtype),
            left[leaving.start - back : leaving.start],
        ]
        # For each beat that enters, the one that must have left; by its place among the earlier ones and the part's.
        pixels = np.arange(len(offered) // self._counts)[:, None] * self._sizes
        waits_for = (pixels + (self._back - 1 - self._waiting)).ravel()
        last, leave = before(entered, entering), left[leaving]
        while True:
            enter = np.concatenate([*earlier, leave])[waits_for]
            np.maximum(enter, offered, out=enter)
            enter = spaced(enter, 1, last)
            completed = enter.reshape(-1, self._counts)[:, self._after]
            completed += self._latency
            following, complete = take(completed.ravel())
            if np.array_equal(following, leave):
                return enter, following, complete
            leave = following

    def completed(self, entered: int) -> int:
        """Beats that can leave when so many have entered."""
        pixels, rest = divmod(entered, self._counts)
        return pixels * self._sizes + int(np.searchsorted(self._after, rest - 1, side="right"))

    def accepted(self, left: int) -> int:
        """Beats that can enter when so many have left, if there are as many."""
        pixels = left // self._sizes
        first = max(pixels - self._back, 0)
        waits = np.arange(first, pixels + self._back + 2)[:, None] * self._sizes - self._waiting
        return first * self._counts + int((waits.ravel() <= left).argmin() if (waits > left).any() else waits.size)

    def enter_latest(self, leave: Times) -> Times:
        """By when beats must enter for those that leave to do so no later than is said."""
        leave = leave.reshape(-1, self._sizes) - self._latency
        latest = np.full((len(leave), self._counts), -never(leave), dtype=leave.dtype)
        latest[:, self._after[::-1]] = leave[:, ::-1]
        return spaced_back(latest.ravel(), 1)
