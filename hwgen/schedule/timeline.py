"""States (works, waits) of each layer over the cycles of an exact schedule, and fill levels of the FIFOs.

A layer works while the steps of an output fold run. Between two folds the layer waits for whatever the later fold
waited for. The `Wait` that set the later fold's time tells whether that was data or room, and which neighbour caused
it. A fold can also wait for a beat that the layer's own buffer had no space for. Then the layer waited for its own
buffer. The cycles of a layer's states thus add up to the cycles of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.schedule.settle import Times, Wait
from hwgen.schedule.solve import MAX_FRAMES, Cycles, Schedule, enough_frames, event_counts

#: Largest number of events of all layers that a timeline schedules: about a second of computation.
MAX_EVENTS = 1 << 25

#: States of a layer in a cycle: it computes; waits for a beat from a neighbour; waits for room in a FIFO; waits for its
#: own buffer to release space; has no work left.
WORK, INPUT, ROOM, BUFFER, DONE = "work", "input", "room", "buffer", "done"


@dataclass(frozen=True, order=True)
class State:
    """State of a layer in a cycle (works, or waits), and the index of the neighbour layer that it waits for.

    The index can also be an end of the accelerator, as in a `Link`.
    """

    kind: str
    whom: int | None = None


@dataclass(frozen=True, kw_only=True)
class TimelineWindow:
    """Part of a schedule in bins of cycles: cycles of each layer in each state, and FIFO fill in beats.

    Parameters
    ----------
    edges : Times
        First cycle of each bin, then the end of the last bin, shape ``(bins + 1,)``.
    states : tuple of dict of State to Times
        Cycles that each layer spends in each state, per bin. The cycles of one bin add up to the bin's length.
    fills : tuple of Times
        Largest number of credits of each FIFO that are out at once in each bin, in the order of the links. A credit is
        a beat that the FIFO stores or that is in flight to it.
    """

    edges: Times
    states: tuple[dict[State, Times], ...]
    fills: tuple[Times, ...]

    @property
    def begin(self) -> int:
        """Integer index of the first cycle of this part of the schedule."""
        return int(self.edges[0])

    @property
    def end(self) -> int:
        """Integer index of the first cycle after this part of the schedule."""
        return int(self.edges[-1])


class Timeline:
    """Timeline of an accelerator's schedule: each layer's state (works, waits) in every cycle.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator to schedule.
    frames : int
        Number of frames, back to back.
    """

    def __init__(self, config: AcceleratorConfig, frames: int):
        self.config, self.frames = config, frames
        self._schedule = Schedule(config, frames)
        self._schedule.solve()
        self.layers = tuple(_Layer(self._schedule, index) for index in range(len(config.layers)))

    @cached_property
    def cycles(self) -> Cycles:
        """`Cycles` (latency and interval) of the scheduled frames."""
        return self._schedule.cycles

    @property
    def end(self) -> int:
        """Integer index of the first cycle after the last output transfer of the last scheduled frame."""
        return int(self._schedule.frame_ends[-1]) + 1

    @cached_property
    def max_credits(self) -> list[int]:
        """Most credits of each FIFO (beats stored or in flight) in use during the whole run, as a list."""
        return [self._schedule.credits_used(index) for index in range(len(self.config.links))]

    def frame(self, bins: int) -> TimelineWindow:
        """Return the `TimelineWindow` from cycle 0 to the end of the first frame, in at most ``bins`` bins."""
        return self.window(0, int(self._schedule.frame_ends[0]) + 1, bins)

    def steady(self, bins: int) -> TimelineWindow | None:
        """Return the `TimelineWindow` of one steady interval (cycles between frames), or ``None`` if none is steady.

        The interval ends where the first layer has finished its last frame, so that all layers are at work.
        """
        interval, end = self.cycles.interval, min(layer.end for layer in self.layers)
        if interval is None or end < 2 * interval:
            return None
        edges = np.array([end - 2 * interval, end - interval, end])
        works = [layer.states(edges).get(State(WORK), np.zeros(2, dtype=np.int64)) for layer in self.layers]
        return None if any(first != second for first, second in works) else self.window(end - interval, end, bins)

    def window(self, begin: int, end: int, bins: int) -> TimelineWindow:
        """Return a `TimelineWindow`: cycles per layer state and maximum FIFO fill in at most ``bins`` equal parts."""
        edges = np.linspace(begin, end, min(bins, end - begin) + 1).astype(np.int64)
        return TimelineWindow(
            edges=edges,
            states=tuple(layer.states(edges) for layer in self.layers),
            fills=tuple(self._fill(index, edges) for index in range(len(self.config.links))),
        )

    def _fill(self, fifo: int, edges: Times) -> Times:
        """Return `Times`: an array over bins of the most credits of a FIFO (beats stored or in flight) in use."""
        link = self.config.links[fifo]
        layer = self.config.layers[link.source]
        starts, left = self._schedule.starts[link.source], self._schedule.left[fifo] + layer.credit_delay
        claims = np.cumsum(layer.claims[link.output])

        def credits_out(started: Times, times: Times) -> Times:
            windows, folds = np.divmod(started, len(claims))
            claimed = windows * claims[-1] + np.concatenate([[0], claims])[folds]
            return claimed - np.searchsorted(left, times, side="right")

        peaks = credits_out(np.searchsorted(starts, edges[:-1], side="right"), edges[:-1])
        first, last = np.searchsorted(starts, edges[[0, -1]])
        if first < last:  # the number of credits in use rises only when a fold starts
            at_starts = credits_out(np.arange(first, last) + 1, starts[first:last])
            np.maximum.at(peaks, np.searchsorted(edges, starts[first:last], side="right") - 1, at_starts)
        return peaks


class _Layer:
    """Runs of cycles when one layer works without a gap, and why it waits before each run."""

    def __init__(self, schedule: Schedule, layer: int):
        key, steps = schedule.work(layer)
        times = schedule.times(key).astype(np.int64)
        heads = np.flatnonzero(np.diff(times, prepend=-1 - steps) > steps)
        self._begins = times[heads]
        self._ends = times[np.append(heads[1:], len(times)) - 1] + steps
        self._causes = _Causes(schedule, layer).of(key, heads)

    @property
    def end(self) -> int:
        """Integer index of the first cycle after the layer's last cycle of work."""
        return int(self._ends[-1])

    def states(self, edges: Times) -> dict[State, Times]:
        """Return, as a dictionary by state, an array of the layer's cycles in the state between successive ``edges``.

        States that do not occur are left out.
        """
        gaps = self._begins - np.append(0, self._ends[:-1])
        runs = np.searchsorted(self._begins, edges, side="right")
        ended = np.append(0, self._ends)[runs]
        totals = {State(WORK): self._sum_before(self._ends - self._begins, runs) - np.maximum(ended - edges, 0)}
        # A cause belongs to the gap before its run. An edge can divide that gap.
        partial = np.where(runs < len(gaps), np.maximum(edges - ended, 0), 0)
        following = np.minimum(runs, len(gaps) - 1)
        for code, state in enumerate(self._causes.states):
            caused = self._causes.codes == code
            totals[state] = self._sum_before(np.where(caused, gaps, 0), runs) + np.where(caused[following], partial, 0)
        totals[State(DONE)] = np.maximum(edges - self.end, 0)
        return {state: cycles for state, counts in totals.items() if (cycles := np.diff(counts)).any()}

    @staticmethod
    def _sum_before(values: Times, runs: Times) -> Times:
        """Return `Times`: the sum of the first ``runs`` entries of ``values``, for each entry of ``runs``."""
        return np.append(0, np.cumsum(values))[runs]


class _Causes:
    """Analysis of why a layer's events are delayed: for input, for room in a FIFO, or by its own buffer."""

    def __init__(self, schedule: Schedule, layer: int):
        self._schedule, self._layer = schedule, layer
        self._own = schedule.own(layer)
        self._beats = schedule.beats(layer)
        self._waits: dict[Any, list[Wait]] = {key: [] for key in self._own}
        for wait in sorted(schedule.waits, key=lambda wait: not wait.data):
            if wait.target in self._own and wait.source != wait.target:
                self._waits[wait.target].append(wait)
        self._heads_of: dict[Any, Times] = {}
        self._states: list[State] = []
        self.codes = np.zeros(0, dtype=np.int64)

    @property
    def states(self) -> Sequence[State]:
        """Sequence of each wait `State` that occurs in this layer, in the order of the indices in ``codes``."""
        return self._states

    def of(self, key: Any, events: Times) -> _Causes:
        """Set ``codes`` to the index in ``states`` of each event's cause of delay, and return `_Causes`: this object.

        An event was delayed by a neighbour layer (input, full FIFO) or by the layer's own buffer.
        """
        self.codes = np.full(len(events), -1, dtype=np.int64)
        pending = [(key, events, np.arange(len(events)))]
        while pending:
            key, events, indices = pending.pop()
            for wait in self._waits[key]:
                bound, sources = self._binding_causes(wait, events)
                if wait.source in self._own and not self._is_release(wait):
                    if bound.any():
                        pending.append((wait.source, sources[bound], indices[bound]))
                else:
                    self._set_state(indices[bound], self._state(wait))
                events, indices = events[~bound], indices[~bound]
            if len(events):
                pending += self._attribute_delays(key, events, indices)
        return self

    def _binding_causes(self, wait: Wait, events: Times) -> tuple[Times, Times]:
        """Return a pair of arrays over events: a constraint delays it, and index of the event it waits for."""
        entry_index, rest = np.divmod(events, wait.every)
        entry_index = entry_index - wait.lead
        periods, entries = np.divmod(np.maximum(entry_index, 0), len(wait.index))
        source_events = wait.index[entries] + periods * wait.ahead - wait.back
        delays = np.broadcast_to(wait.delay, len(wait.index))[entries]
        waits = (rest == 0) & (entry_index >= 0) & (source_events >= 0)
        times = self._schedule.times(wait.source)[np.where(waits, source_events, 0)] + delays
        return waits & (times == self._schedule.times(wait.target)[events]), source_events

    def _attribute_delays(self, key: Any, events: Times, indices: Times) -> list[tuple[Any, Times, Times]]:
        """Set the state of delays without a constraint; return a list (key, events, indices) to trace instead.

        An event in a run of events at the smallest distance has the cause of the first event of the run.
        """
        if key not in self._beats:
            self._set_state(indices, State(BUFFER))
            return []
        heads = self._heads(key)
        first = heads[np.searchsorted(heads, events, side="right") - 1]
        self._set_state(indices[first == events], State(INPUT, self._schedule.source(self._layer, key)))
        earlier = first != events
        return [(key, first[earlier], indices[earlier])] if earlier.any() else []

    def _heads(self, key: Any) -> Times:
        """Return `Times`: the indices of events that come later than the minimum distance after the previous one."""
        if key in self._heads_of:
            return self._heads_of[key]
        times = self._schedule.times(key)
        held = np.diff(times, prepend=0) == self._own[key]
        for wait in self._schedule.waits:
            if wait.target == wait.source == key:
                held |= self._binding_causes(wait, np.arange(len(times)))[0]
        held[0] = False
        self._heads_of[key] = np.flatnonzero(~held)
        return self._heads_of[key]

    def _is_release(self, wait: Wait) -> bool:
        """Return whether a constraint waits for buffer space, freed some cycles after an output fold starts."""
        return wait.source == ("starts", self._layer) and bool(np.max(wait.delay) > 0)

    def _state(self, wait: Wait) -> State:
        """Return the `State` of a layer that a constraint delays: waits for input, for room, or for its own buffer."""
        if wait.source in self._own:
            return State(BUFFER)
        return State(INPUT if wait.data else ROOM, self._schedule.neighbour(wait.source, before=wait.data))

    def _set_state(self, places: Times, state: State) -> None:
        """Set ``codes`` to the index of a state for the events at given positions."""
        if not len(places):
            return
        if state not in self._states:
            self._states.append(state)
        self.codes[places] = self._states.index(state)


@dataclass(frozen=True, kw_only=True)
class Timelines:
    """Timelines of an accelerator's first frame and of its steady state.

    Parameters
    ----------
    first : Timeline or None
        Timeline that shows the first frame; ``None`` if one frame has too many events.
    steady : Timeline or None
        Timeline of many frames. If the whole map has too many events, a lower map is scheduled; ``None`` if that is
        impossible.
    rows : int or None
        Height of the lower map in rows; ``None`` if all rows are scheduled.
    """

    first: Timeline | None
    steady: Timeline | None
    rows: int | None = None


def timelines(config: AcceleratorConfig, cycles: Cycles) -> Timelines:
    """Schedule an accelerator's first frame and its steady state, and return their timelines (`Timelines`).

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator to schedule.
    cycles : Cycles
        Latency and interval of the accelerator, from `steady_cycles`.
    """
    frames = enough_frames(config, cycles)
    if sum(event_counts(config, frames)) <= MAX_EVENTS:
        whole = _extend_to_steady_state(config, frames)
        return Timelines(first=whole, steady=whole)
    first = one_frame(config)
    short = with_fewer_rows(config, sum(event_counts(config, frames)))
    if short is None:
        return Timelines(first=first, steady=None)
    return Timelines(first=first, steady=_extend_to_steady_state(short, frames), rows=short.input.height)


def one_frame(config: AcceleratorConfig) -> Timeline | None:
    """Return the `Timeline` of a single frame of an accelerator; ``None`` if the frame has too many events."""
    return Timeline(config, 1) if sum(event_counts(config, 1)) <= MAX_EVENTS else None


def _extend_to_steady_state(config: AcceleratorConfig, frames: int) -> Timeline:
    """Return a `Timeline` of at least ``frames`` frames, with more until its end is steady or a limit is reached.

    The number of frames and events is limited.
    """
    while (timeline := Timeline(config, frames)).steady(1) is None:
        frames = 2 * frames - 1
        if frames > MAX_FRAMES or sum(event_counts(config, frames)) > MAX_EVENTS:
            break
    return timeline


#: Approximate number of scheduled events, over all frames, after a tall map is cut to fewer rows.
TARGET_EVENTS = 1 << 23

#: Output rows of the last layer on a lower map: step between heights that are tried, and minimum.
STEP_ROWS, MIN_ROWS = 12, 48

#: Minimum height of each layer's input on a lower map, as a multiple of the line buffer's rows.
MIN_BUFFERS = 4


def with_fewer_rows(config: AcceleratorConfig, events: int) -> AcceleratorConfig | None:
    """Return an `AcceleratorConfig` for a map of fewer rows, to save time; ``None`` if no lower map is possible.

    ``None`` as well if a layer works in tiles, or the layers do not form a chain.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator on the whole map.
    events : int
        Number of events of the whole map in all frames that are scheduled.
    """
    if not config.is_chain or not all(layer.rows_alike for layer in config.layers):
        return None
    height = config.input.height
    step = STEP_ROWS * prod(layer.window.stride[0] for layer in config.layers)
    # Number of steps that are skipped. Enough rows must remain, and few events.
    missing = (height - height * TARGET_EVENTS // max(events, 1)) // step
    while missing > 0:
        short = _of_height(config, height - missing * step)
        if short is not None and _is_tall_enough(short):
            return short
        missing -= 1
    return None


def _is_tall_enough(config: AcceleratorConfig) -> bool:
    """Return whether the output has at least `MIN_ROWS` rows, and each input `MIN_BUFFERS` times its line buffer's."""
    return config.output.height >= MIN_ROWS and all(
        layer.window.input.height >= MIN_BUFFERS * layer.window.rows for layer in config.layers
    )


def _of_height(config: AcceleratorConfig, height: int) -> AcceleratorConfig | None:
    """Return an `AcceleratorConfig` of another input height; ``None`` if it is too small for the layers."""
    layers: list[LayerConfig] = []
    for layer in config.layers:
        top, _, bottom, _ = layer.window.padding
        if height + top + bottom < layer.window.extent[0] or height < layer.window.rows:
            return None
        window = replace(layer.window, input=replace(layer.window.input, height=height))
        height = window.output_height
        outputs = (replace(layer.output, height=height),)
        layers.append(replace(layer, compute=replace(layer.compute, window=window), outputs=outputs))
    return replace(config, layers=tuple(layers))
