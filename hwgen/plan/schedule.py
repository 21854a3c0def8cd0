"""The exact schedule of a streaming accelerator, without simulating it.

Every event (a beat taken, an output fold started, a beat leaving a FIFO) happens as soon as all it waits for has
happened: its time is a maximum of earlier times plus constants that the components state. The times are the least
solution of that system; it is found by starting from below and repeating whole-array passes until nothing moves.
They are the hardware's own to the cycle, when neither the source nor the sink stalls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hwgen.errors import ConfigError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig

#: Earlier than any event.
NEVER = -(1 << 50)

#: A schedule that has not settled after so many frames never will (its frames take turns at being longer).
MOST_FRAMES = 64

#: Beats that are scheduled at least: small networks get more frames, so that a loss in one of many is seen.
LEAST_BEATS = 10_000

Times = np.ndarray  # int64, cycles; one entry an event, in order of occurrence


@dataclass(frozen=True)
class Cycles:
    """What a schedule comes to.

    ``latency`` and ``interval`` as the project defines them; ``interval`` is ``None`` with fewer than three
    frames. ``steady`` says that the last two distances agree, and that no layer lives on a lead that it is losing.
    """

    latency: int
    interval: int | None
    steady: bool


def _spaced(earliest: Times, distance: int) -> Times:
    """Earliest times of events that follow each other at least ``distance`` cycles apart."""
    ramp = _ramp(len(earliest), distance)
    spaced = earliest - ramp
    np.maximum.accumulate(spaced, out=spaced)
    spaced += ramp
    return spaced


@lru_cache(maxsize=8)
def _ramp(count: int, distance: int) -> Times:
    return np.arange(count, dtype=np.int64) * distance


class _LayerEvents:
    """What the events of one layer wait for, as index arrays over ``frames`` frames."""

    def __init__(self, config: LayerConfig, frames: int):
        window = config.window
        source = window.input
        self.config, self.frames = config, frames
        places = [(row, step) for row in range(window.output_height) for step in range(window.row_steps)]
        needed = np.array([window.needed(*place) for place in places], dtype=np.int64)
        released = np.array([window.released(*place) for place in places], dtype=np.int64)
        frame = np.arange(frames, dtype=np.int64)[:, None]
        row, column = np.divmod(needed - 1, source.width)
        beats = (row * source.row_steps + column // source.pixels + 1) * source.folds
        #: For each window, the last input beat it needs.
        self.needed_beat = (frame * source.beats + beats - 1).ravel()
        #: For each step of input pixels, the number of its last pixel.
        ends = np.minimum((np.arange(source.row_steps) + 1) * source.pixels, source.width) - 1
        self.step_pixel = (np.arange(frames * source.height)[:, None] * source.width + ends).ravel()
        #: For each input pixel, the window whose end releases it.
        first = np.searchsorted(released, np.arange(source.frame_pixels), side="right")
        self.releasing_window = (frame * len(places) + first).ravel()
        #: For each FIFO beat, its output fold, and the cycles from the fold's start until it is offered.
        offsets = [np.arange(beats) for beats in config.fold_beats]
        self._fold = np.repeat(np.arange(len(offsets)), config.fold_beats)
        self._offered_after = np.concatenate(offsets) + config.pipeline_latency + config.fifo.latency
        #: FIFO beats claimed up to and including each output fold.
        self.claimed = np.cumsum(np.tile(np.array(config.fold_beats, dtype=np.int64), frames * len(places)))

    def starts(self, taken: Times, left: Times | None, depth: int | None) -> Times:
        """When output folds start: after their window's pixels, after each other, with room in the FIFO."""
        window = self.config.window
        earliest = np.full((len(self.needed_beat), window.output_folds), NEVER, dtype=np.int64)
        earliest[:, 0] = taken[self.needed_beat] + window.write_delay
        earliest = earliest.ravel()
        if depth is not None and left is not None:
            waits_for = self.claimed - depth - 1
            bound = waits_for >= 0
            earliest[bound] = np.maximum(earliest[bound], left[waits_for[bound]] + self.config.credit_delay)
        return _spaced(earliest, window.steps)

    def stored(self, starts: Times) -> Times:
        """When beats are offered by an otherwise empty FIFO."""
        times = starts.reshape(-1, len(self.config.fold_beats))[:, self._fold]
        times += self._offered_after
        return times.ravel()

    @cached_property
    def regroup(self) -> _RegroupEvents:
        return _RegroupEvents(self.config.regroup, self.config.beats * self.frames)

    def space(self, starts: Times, rows: int) -> Times:
        """When each input beat may at the earliest be taken: once what it overwrites is released."""
        window = self.config.window
        ends = starts.reshape(-1, window.output_folds)[:, -1] + window.steps - 1 + window.release_delay
        overwritten = self.step_pixel - rows * window.input.width
        times = np.full(len(overwritten), NEVER, dtype=np.int64)
        bound = overwritten >= 0
        times[bound] = ends[self.releasing_window[overwritten[bound]]]
        return np.repeat(times, window.input.folds)


class _RegroupEvents:
    """What beats that pass a Regroup wait for, over ``count`` beats that enter it."""

    def __init__(self, config: RegroupConfig, count: int):
        self._counts, self._latency, self._after = len(config.counts), config.latency, np.array(config.after)
        beats = np.arange(count)
        waits_for = beats // self._counts * len(config.sizes) - 1 - np.array(config.waiting)[beats % self._counts]
        #: For each beat that enters, one more than the number of the one that must have left; 0 if none.
        self._waits_for = np.maximum(waits_for, -1) + 1

    def pass_through(self, offered: Times, space: Times | None, start: Times) -> tuple[Times, Times]:
        """Times at which beats enter and leave; ``start`` is a lower bound of the latter."""
        leave = start
        while True:
            enter = np.concatenate([[NEVER], leave])[self._waits_for]
            np.maximum(enter, offered, out=enter)
            enter = _spaced(enter, 1)
            earliest = (enter.reshape(-1, self._counts)[:, self._after] + self._latency).ravel()
            if space is not None:
                np.maximum(earliest, space, out=earliest)
            following = _spaced(earliest, 1)
            if np.array_equal(following, leave):
                return enter, following
            leave = following


class Schedule:
    """Times of all events of an accelerator over a number of frames.

    Depths and rows may be changed afterwards; shrinking either only moves events later, so the present times are a
    valid start for the next solution.

    Parameters
    ----------
    config : AcceleratorConfig
        Its FIFO depths and rows are taken, unless others are given.
    frames : int
        Frames back to back.
    depths : sequence of int or None, optional
        FIFO depths; ``None`` for a FIFO without end.
    rows : sequence of int, optional
        Rows of the line buffers.
    """

    def __init__(
        self,
        config: AcceleratorConfig,
        frames: int = 3,
        *,
        depths: Sequence[int | None] | None = None,
        rows: Sequence[int] | None = None,
    ):
        if frames < 1:
            raise ConfigError(f"frames must be a positive integer, not {frames!r}")
        self.config, self.frames = config, frames
        self.depths = list(depths) if depths is not None else [layer.fifo_depth for layer in config.layers]
        self.rows = list(rows) if rows is not None else [layer.window.rows for layer in config.layers]
        self._layers = [_LayerEvents(layer, frames) for layer in config.layers]
        count = len(self._layers)
        self.taken: list[Times] = [np.full(layer.window.input.beats * frames, NEVER) for layer in config.layers]
        self.taken.append(np.full(config.output.beats * frames, NEVER))
        self.starts: list[Times | None] = [None] * count
        self.left: list[Times | None] = [None] * count
        self._dirty = set(range(2 * count + 1))

    def copy(self) -> Schedule:
        """A schedule that can be changed without changing this one; shares the unchanging parts."""
        other = object.__new__(Schedule)
        other.__dict__.update(self.__dict__)
        for name in ("depths", "rows", "taken", "starts", "left"):
            setattr(other, name, list(getattr(self, name)))
        other._dirty = set(self._dirty)
        return other

    def shrink(self, layer: int, *, depth: int | None = None, rows: int | None = None) -> None:
        """Give a layer a shallower FIFO or fewer rows."""
        if depth is not None:
            self.depths[layer] = depth
            self._dirty.add(2 * layer + 1)
        if rows is not None:
            self.rows[layer] = rows
            self._dirty.add(2 * layer)

    def solve(self, deadline: Times | None = None) -> bool:
        """Find the times. ``False`` if a frame's last output comes later than its ``deadline`` (then unfinished)."""
        last = 2 * len(self._layers)
        while self._dirty:
            for node in range(last + 1):
                if node not in self._dirty:
                    continue
                self._dirty.discard(node)
                changed = self._transfer(node // 2) if node % 2 == 0 else self._start(node // 2)
                if changed:
                    self._dirty.update(n for n in (node - 1, node + 1) if 0 <= n <= last)
                if node == last and deadline is not None and (self.frame_ends > deadline).any():
                    return False
        return True

    def credits_used(self, layer: int) -> int:
        """Credits that the FIFO behind a layer needs for the present times: beats stored or in flight at most."""
        starts, left = self.starts[layer], self.left[layer]
        assert starts is not None
        assert left is not None
        events = self._layers[layer]
        back = np.searchsorted(left, starts - events.config.credit_delay, side="right")
        return int((events.claimed - back).max())

    @property
    def frame_ends(self) -> Times:
        """Cycle of each frame's last output transfer."""
        beats = self.config.output.beats
        return self.taken[-1][beats - 1 :: beats]

    @property
    def cycles(self) -> Cycles:
        self.solve()
        ends = self.frame_ends
        distances = np.diff(ends)
        return Cycles(
            latency=int(ends[0] - self.taken[0][0]),
            interval=int(distances[-1]) if self.frames >= 3 else None,
            steady=self.frames < 3 or bool(distances[-1] == distances[-2] and not self.drains(distances[-1])),
        )

    def drains(self, interval: int) -> bool:
        """Whether a layer took longer than ``interval`` for the last frame: the output will be late in time."""
        frames = (times.reshape(self.frames, -1)[:, -1] for times in self.taken)
        return self.frames > 1 and any(ends[-1] - ends[-2] > interval for ends in frames)

    def _start(self, number: int) -> bool:
        starts = self._layers[number].starts(self.taken[number], self.left[number], self.depths[number])
        before = self.starts[number]
        changed = before is None or not np.array_equal(starts, before)
        self.starts[number] = starts
        return changed

    def _transfer(self, number: int) -> bool:
        """Beats from layer ``number - 1`` (or the source) into layer ``number`` (or the sink)."""
        space = None
        if number < len(self._layers):
            starts = self.starts[number]
            if starts is not None:
                space = self._layers[number].space(starts, self.rows[number])
        if number == 0:
            earliest = np.zeros(len(self.taken[0]), dtype=np.int64)
            taken = _spaced(earliest if space is None else np.maximum(earliest, space), 1)
            return self._update(self.taken, 0, taken)
        producer = self._layers[number - 1]
        starts = self.starts[number - 1]
        assert starts is not None
        offered = producer.stored(starts)
        if producer.config.regroup.needed:
            left, taken = producer.regroup.pass_through(offered, space, self.taken[number])
        else:
            left = taken = _spaced(offered if space is None else np.maximum(offered, space), 1)
        moved = self._update(self.left, number - 1, left)
        return self._update(self.taken, number, taken) or moved

    @staticmethod
    def _update(times: list, number: int, new: Times) -> bool:
        changed = times[number] is None or not np.array_equal(times[number], new)
        times[number] = new
        return changed


def enough_frames(config: AcceleratorConfig, cycles: Cycles) -> int:
    """Frames after which what is in flight (by the ``cycles`` of a few) was replaced twice, and three more.

    A loop of credits that loses a part of a cycle each time round shows it then. More frames where they cost nothing.
    """
    in_flight = cycles.latency // (cycles.interval or cycles.latency)
    beats = max(config.output.beats, *(layer.window.input.beats for layer in config.layers))
    return max(3 + 2 * in_flight, min(LEAST_BEATS // beats, MOST_FRAMES))


def steady_cycles(config: AcceleratorConfig, frames: int | None = None) -> Cycles:
    """Cycles of so many frames back to back; of as many as it takes to settle, if ``None``.

    An interval has settled, and stays, once it has not changed for `enough_frames`, but for the first (two alike alone
    may be part of a pattern that repeats). So long runs cost no more than short ones.
    """
    covered, limit = 3, min(frames or MOST_FRAMES, MOST_FRAMES)
    while True:
        covered = min(covered, limit)
        schedule = Schedule(config, covered)
        cycles = schedule.cycles
        enough = enough_frames(config, cycles)
        distances = np.diff(schedule.frame_ends)[1 - enough :]
        if covered == limit or (covered >= enough and bool((distances[1:] == cycles.interval).all())):
            return cycles
        covered = max(covered + 2, enough)
