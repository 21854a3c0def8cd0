"""What each layer does in each cycle of an exact schedule: it works, or waits, and for whom; and how full FIFOs are.

A layer works while the steps of an output fold run. Between two folds it waits for what the later one waited for: the
`Wait` that gave it its time says whether that was data or room, and of which neighbour. Where a fold waited for a beat
that the layer's own buffer had no space for, it waited for its own buffer. So the cycles of a layer's states add up to
the cycles that are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.schedule.settle import Times, Wait
from hwgen.schedule.solve import MOST_FRAMES, Cycles, Schedule, enough_frames, event_counts
from hwgen.schedule.tall import shortened

#: Events of all layers together that are scheduled for a timeline at most: about a second.
MOST_EVENTS = 1 << 25

#: What a layer does: takes a step; waits for a beat from a neighbour; for room in a FIFO; for its own buffer to move
#: on; has nothing left to do.
WORK, INPUT, ROOM, BUFFER, DONE = "work", "input", "room", "buffer", "done"


@dataclass(frozen=True, order=True)
class State:
    """What a layer does, and for whom it waits: the number of a layer, or of one beyond the ends, as in a `Link`."""

    kind: str
    whom: int | None = None


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some cycles of a schedule, in bins.

    Parameters
    ----------
    edges : Times
        Where bins begin, and where the last one ends.
    states : tuple of dict of State to Times
        For each layer the cycles of each bin that it spends in each state. Those of a bin add up to its length.
    fills : tuple of Times
        For each FIFO, in the order of the links, the most credits that are out at once in each bin: beats that are
        stored or in flight.
    """

    edges: Times
    states: tuple[dict[State, Times], ...]
    fills: tuple[Times, ...]

    @property
    def begin(self) -> int:
        return int(self.edges[0])

    @property
    def end(self) -> int:
        return int(self.edges[-1])


class Timeline:
    """The schedule of an accelerator, looked at layer by layer.

    Parameters
    ----------
    config : AcceleratorConfig
    frames : int
        Back to back.
    """

    def __init__(self, config: AcceleratorConfig, frames: int):
        self.config, self.frames = config, frames
        self._schedule = Schedule(config, frames)
        self._schedule.solve()
        self.layers = tuple(_Layer(self._schedule, number) for number in range(len(config.layers)))

    @cached_property
    def cycles(self) -> Cycles:
        """Of this run."""
        return self._schedule.cycles

    @property
    def end(self) -> int:
        """A cycle after the last output transfer of the last frame."""
        return int(self._schedule.frame_ends[-1]) + 1

    @cached_property
    def most_credits(self) -> list[int]:
        """For each FIFO the most credits that are out at once, over the whole run."""
        return [self._schedule.credits_used(number) for number in range(len(self.config.links))]

    def frame(self, bins: int) -> Window:
        """From the first cycle to the last output transfer of the first frame, that one included."""
        return self.window(0, int(self._schedule.frame_ends[0]) + 1, bins)

    def steady(self, bins: int) -> Window | None:
        """One interval in which each layer works as long as in the interval before; ``None`` if there is none.

        It ends where the first layer has done its last frame, so that all are at work.
        """
        interval, end = self.cycles.interval, min(layer.end for layer in self.layers)
        if interval is None or end < 2 * interval:
            return None
        edges = np.array([end - 2 * interval, end - interval, end])
        works = [layer.states(edges).get(State(WORK), np.zeros(2, dtype=np.int64)) for layer in self.layers]
        return None if any(first != second for first, second in works) else self.window(end - interval, end, bins)

    def window(self, begin: int, end: int, bins: int) -> Window:
        """The cycles from ``begin`` to before ``end``, in so many bins, or fewer where there are fewer cycles."""
        edges = np.linspace(begin, end, min(bins, end - begin) + 1).astype(np.int64)
        return Window(
            edges=edges,
            states=tuple(layer.states(edges) for layer in self.layers),
            fills=tuple(self._fill(number, edges) for number in range(len(self.config.links))),
        )

    def _fill(self, number: int, edges: Times) -> Times:
        """The most credits of a FIFO that are out at once in each bin."""
        link = self.config.links[number]
        layer = self.config.layers[link.source]
        starts, left = self._schedule.starts[link.source], self._schedule.left[number] + layer.credit_delay
        claims = np.cumsum(layer.fold_beats)

        def out(started: Times, times: Times) -> Times:
            windows, folds = np.divmod(started, len(claims))
            claimed = windows * claims[-1] + np.concatenate([[0], claims])[folds]
            return claimed - np.searchsorted(left, times, side="right")

        most = out(np.searchsorted(starts, edges[:-1], side="right"), edges[:-1])
        first, last = np.searchsorted(starts, edges[[0, -1]])
        if first < last:  # credits go out as folds start, and come back in between
            at_starts = out(np.arange(first, last) + 1, starts[first:last])
            np.maximum.at(most, np.searchsorted(edges, starts[first:last], side="right") - 1, at_starts)
        return most


class _Layer:
    """When a layer works, and what it waits for before each time.

    ``begins`` and ``ends`` are those of its runs of work; ``causes`` says of each run what the layer waited for.
    """

    def __init__(self, schedule: Schedule, number: int):
        key, steps = schedule.work(number)
        times = schedule.times(key).astype(np.int64)
        heads = np.flatnonzero(np.diff(times, prepend=-1 - steps) > steps)
        self._begins = times[heads]
        self._ends = times[np.append(heads[1:], len(times)) - 1] + steps
        self._causes = _Causes(schedule, number).of(key, heads)

    @property
    def end(self) -> int:
        """The cycle after the last one in which it works."""
        return int(self._ends[-1])

    def states(self, edges: Times) -> dict[State, Times]:
        """Cycles between neighbouring edges by state; states that don't occur are left out."""
        gaps = self._begins - np.append(0, self._ends[:-1])
        place = np.searchsorted(self._begins, edges, side="right")
        ended = np.append(0, self._ends)[place]
        found = {State(WORK): self._before(self._ends - self._begins, place) - np.maximum(ended - edges, 0)}
        # A cause is that of the gap in front of its run, of which a part may lie before an edge.
        partial = np.where(place < len(gaps), np.maximum(edges - ended, 0), 0)
        following = np.minimum(place, len(gaps) - 1)
        for code, state in enumerate(self._causes.states):
            caused = self._causes.codes == code
            found[state] = self._before(np.where(caused, gaps, 0), place) + np.where(caused[following], partial, 0)
        found[State(DONE)] = np.maximum(edges - self.end, 0)
        return {state: cycles for state, counts in found.items() if (cycles := np.diff(counts)).any()}

    @staticmethod
    def _before(values: Times, place: Times) -> Times:
        return np.append(0, np.cumsum(values))[place]


class _Causes:
    """What the events of a layer wait for: ``states``, and of each event that is asked for which, in ``codes``."""

    def __init__(self, schedule: Schedule, number: int):
        self._schedule, self._number = schedule, number
        self._own = schedule.own(number)
        self._beats = schedule.beats(number)
        self._waits: dict[Any, list[Wait]] = {key: [] for key in self._own}
        for wait in sorted(schedule.waits, key=lambda wait: not wait.data):
            if wait.target in self._own and wait.source != wait.target:
                self._waits[wait.target].append(wait)
        self._heads_of: dict[Any, Times] = {}
        self._states: list[State] = []
        self.codes = np.zeros(0, dtype=np.int64)

    @property
    def states(self) -> Sequence[State]:
        return self._states

    def of(self, key: Any, events: Times) -> _Causes:
        """Look for what made events of a sequence wait, through the layer's own sequences up to a neighbour."""
        self.codes = np.full(len(events), -1, dtype=np.int64)
        pending = [(key, events, np.arange(len(events)))]
        while pending:
            key, events, places = pending.pop()
            for wait in self._waits[key]:
                bound, sources = self._binding(wait, events)
                if wait.source in self._own and not self._is_release(wait):
                    if bound.any():
                        pending.append((wait.source, sources[bound], places[bound]))
                else:
                    self._settle(places[bound], self._state(wait))
                events, places = events[~bound], places[~bound]
            if len(events):
                pending += self._unbound(key, events, places)
        return self

    def _binding(self, wait: Wait, events: Times) -> tuple[Times, Times]:
        """Which events come when they do because of a wait; and for each event of what number it waits."""
        turns, rest = np.divmod(events, wait.every)
        turns = turns - wait.lead
        periods, entries = np.divmod(np.maximum(turns, 0), len(wait.index))
        numbers = wait.index[entries] + periods * wait.ahead - wait.back
        delays = np.broadcast_to(wait.delay, len(wait.index))[entries]
        waits = (rest == 0) & (turns >= 0) & (numbers >= 0)
        times = self._schedule.times(wait.source)[np.where(waits, numbers, 0)] + delays
        return waits & (times == self._schedule.times(wait.target)[events]), numbers

    def _unbound(self, key: Any, events: Times, places: Times) -> list[tuple[Any, Times, Times]]:
        """Events that no wait holds up, but the one before them: the first of such a run may wait for something."""
        if key not in self._beats:
            self._settle(places, State(BUFFER))
            return []
        heads = self._heads(key)
        first = heads[np.searchsorted(heads, events, side="right") - 1]
        self._settle(places[first == events], State(INPUT, self._schedule.source(self._number, key)))
        earlier = first != events
        return [(key, first[earlier], places[earlier])] if earlier.any() else []

    def _heads(self, key: Any) -> Times:
        """The events of a sequence that come later than the one before them makes them."""
        if key in self._heads_of:
            return self._heads_of[key]
        times = self._schedule.times(key)
        held = np.diff(times, prepend=0) == self._own[key]
        for wait in self._schedule.waits:
            if wait.target == wait.source == key:
                held |= self._binding(wait, np.arange(len(times)))[0]
        held[0] = False
        self._heads_of[key] = np.flatnonzero(~held)
        return self._heads_of[key]

    def _is_release(self, wait: Wait) -> bool:
        """Whether a wait is for what is released some cycles after an output fold of the layer itself has started."""
        return wait.source == ("starts", self._number) and bool(np.max(wait.delay) > 0)

    def _state(self, wait: Wait) -> State:
        if wait.source in self._own:
            return State(BUFFER)
        return State(INPUT if wait.data else ROOM, self._schedule.neighbour(wait.source, before=wait.data))

    def _settle(self, places: Times, state: State) -> None:
        if not len(places):
            return
        if state not in self._states:
            self._states.append(state)
        self.codes[places] = self._states.index(state)


@dataclass(frozen=True, kw_only=True)
class Timelines:
    """Timelines of one frame, and of enough frames to settle.

    Parameters
    ----------
    first : Timeline or None
        Its first frame is looked at; ``None`` where the events of one are too many.
    steady : Timeline or None
        Of many frames; of a lower map where the whole one has too many events; ``None`` if that is no help.
    rows : int or None
        Rows of that lower map; ``None`` where all are scheduled.
    """

    first: Timeline | None
    steady: Timeline | None
    rows: int | None = None


def timelines(config: AcceleratorConfig, cycles: Cycles) -> Timelines:
    """One frame, and the steady state, of frames whose ``cycles`` are known (`steady_cycles`)."""
    frames = enough_frames(config, cycles)
    if sum(event_counts(config, frames)) <= MOST_EVENTS:
        whole = _settled(config, frames)
        return Timelines(first=whole, steady=whole)
    first = one_frame(config)
    found = shortened(config, sum(event_counts(config, frames)))
    if found is None:
        return Timelines(first=first, steady=None)
    lower = found[0][-1]
    return Timelines(first=first, steady=_settled(lower, frames), rows=lower.input.height)


def one_frame(config: AcceleratorConfig) -> Timeline | None:
    """Of a frame alone; ``None`` where it has too many events."""
    return Timeline(config, 1) if sum(event_counts(config, 1)) <= MOST_EVENTS else None


def _settled(config: AcceleratorConfig, frames: int) -> Timeline:
    """Of so many frames, or of more where layers still take the later ones otherwise."""
    while (found := Timeline(config, frames)).steady(1) is None:
        frames = 2 * frames - 1
        if frames > MOST_FRAMES or sum(event_counts(config, frames)) > MOST_EVENTS:
            break
    return found
