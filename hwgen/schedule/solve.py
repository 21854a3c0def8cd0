"""The exact schedule of an accelerator, without simulating it.

Every event (a beat taken, an output fold started, a beat leaving a FIFO) happens as soon as all it waits for has
happened: its time is a maximum of earlier times plus constants that the components state. The times are the least
solution of that system, and the hardware's own to the cycle when neither the source nor the sink stalls.

The streams are numbered: first those that come in (`AcceleratorConfig.entries`), then that of each FIFO
(`AcceleratorConfig.links`). In a chain stream ``n`` enters layer ``n``, and FIFO ``n`` stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig, Link
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.events import (
    CollectEvents,
    JoinEvents,
    LayerEvents,
    LineEvents,
    Origin,
    Ports,
    RegroupEvents,
    ReorderEvents,
    RunningScaleEvents,
    WholeMapEvents,
    back_of,
)
from hwgen.schedule.pyramid import PyramidEvents
from hwgen.schedule.settle import StuckError, System, Times, Wait
from hwgen.schedule.tall import shortened

#: A schedule that has not settled after so many frames never will (its frames take turns at being longer).
MOST_FRAMES = 64

#: Frames, at most, within which layers that take turns at being longer and shorter come round. A loop of credits that
#: loses a cycle in fewer frames than these is seen while no output is late yet.
MOST_TURNS = 21

#: Frames, at most, each of which takes longer than the pace where a layer falls behind.
LAST_FRAMES = 8

#: Frames that a schedule of frames that follow each other has at least, by `enough_frames`: no frame is done before the
#: next can begin, as its latency is more than the slowest layer's cycles.
LEAST_FRAMES = 5

#: Beats that are scheduled at least: small networks get more frames, so that a loss in one of many is seen.
LEAST_BEATS = 10_000

#: Events of a run at most, of all layers together: in memory they and what is computed with them take about 5 GB.
MOST_EVENTS = 3 << 27

#: Events of a run above which fewer rows are scheduled instead, if they tell as much: about 1 GB.
MANY_EVENTS = 1 << 27

#: Events of a layer's own in a shallow FIFO are looked at so many at once.
AT_ONCE = 8_000


@dataclass(frozen=True)
class Cycles:
    """What a schedule comes to.

    ``latency`` and ``interval`` as the project defines them; ``interval`` is ``None`` with fewer than three
    frames. ``steady`` says that the last two distances agree, and that no layer lives on a lead that it is losing.
    """

    latency: int
    interval: int | None
    steady: bool


#: What each kind of layer's events wait for.
_EVENTS: dict[type[LayerConfig], type[LayerEvents[Any]]] = {
    LayerConfig: LineEvents,
    JoinLayerConfig: JoinEvents,
    WholeMapLayerConfig: WholeMapEvents,
    CollectLayerConfig: CollectEvents,
    ReorderLayerConfig: ReorderEvents,
    RunningScaleLayerConfig: RunningScaleEvents,
    PyramidLayerConfig: PyramidEvents,
}


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
        Depths of all FIFOs, in the order of ``config.links``; ``None`` for a FIFO without end.
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
        self.depths = list(depths) if depths is not None else config.fifo_depths
        self.rows = list(rows) if rows is not None else [layer.window.rows for layer in config.layers]
        check_events(config, frames)
        self._layers = [_EVENTS[type(layer)](layer) for layer in config.layers]
        self._streams = (*config.entries, *config.links)
        self._waits: list[Wait] = []
        #: The numbers of the waits for room in each FIFO, and for space in each line buffer.
        self._room: list[int] = []
        self._space: dict[int, int] = {}
        self._system = self._build()

    def _build(self) -> System:
        sequences: dict[Any, tuple[int, int]] = {}
        for number, layer in enumerate(self._layers):
            for stream in self._into[number]:
                sequences |= self._stream_sequences(stream)
            ports = self._ports(number)
            sequences |= layer.inner(ports)
            sequences[ports.starts] = layer.folds, layer.config.window.steps
            self._waits += layer.waits(ports)
            if (space := layer.space(ports, self.rows[number])) is not None:
                self._space[number] = len(self._waits)
                self._waits.append(space)
        for stream in self._into[-1]:
            sequences |= self._stream_sequences(stream)
            self._waits.append(self._offered(stream).waited_for(("taken", stream)))
        for number, link in enumerate(self.config.links):
            ports = self._ports(link.source)
            place = self._out_of[link.source].index(self._stream_of(number))
            self._room.append(len(self._waits))
            self._waits.append(self._layers[link.source].room(ports, place, self.depths[number]))
            if (regroup := self._regroup(link)) is not None:
                left = "left", number
                stored = self._layers[link.source].stored(ports.starts)
                self._waits += [stored.waited_for(left), regroup.entering(left, ("taken", self._stream_of(number)))]
        return System({key: (count * self.frames, gap) for key, (count, gap) in sequences.items()}, self._waits)

    def _stream_sequences(self, number: int) -> dict[Any, tuple[int, int]]:
        """The beats of a stream that are taken; before them those that leave its FIFO, if those are others."""
        stream, found = self._streams[number], {}
        if self._regroup(stream) is not None:
            found["left", self._fifo_of(number)] = self._layers[stream.source].beats_stored, 1
        return found | {("taken", number): (self._beats(stream), 1)}

    def _ports(self, number: int) -> Ports:
        return Ports(
            tuple(("taken", stream) for stream in self._into[number]),
            tuple(self._offered(stream) if self._fifo_of(stream) >= 0 else None for stream in self._into[number]),
            tuple(self._left(self._fifo_of(stream)) for stream in self._out_of[number]),
            ("starts", number),
        )

    def _offered(self, number: int) -> Origin:
        """When the beats of a stream that leaves a FIFO are offered to its reader."""
        stream = self._streams[number]
        if (regroup := self._regroup(stream)) is not None:
            return regroup.leaving(("left", self._fifo_of(number)))
        return self._layers[stream.source].stored(("starts", stream.source))

    def _left(self, number: int) -> Any:
        """The beats that leave a FIFO: those that its reader takes, or what regroups them."""
        if self._regroup(self.config.links[number]) is None:
            return "taken", self._stream_of(number)
        return "left", number

    def _stream_of(self, fifo: int) -> int:
        """The stream that leaves a FIFO."""
        return fifo + len(self.config.entries)

    def _fifo_of(self, stream: int) -> int:
        """The FIFO that a stream leaves; negative if it comes in."""
        return stream - len(self.config.entries)

    def mark(self) -> None:
        """Solve; from here on, what changes can be taken back."""
        self.solve()
        self._system.mark()
        self._marked = list(self.depths), list(self.rows)

    def revert(self) -> None:
        """Take back all that changed since `mark`."""
        self._system.revert()
        depths, rows = self._marked
        self.depths, self.rows = list(depths), list(rows)

    def shrink(self, number: int, *, depth: int | None = None, rows: int | None = None) -> None:
        """Make FIFO ``number`` shallower, or give layer ``number`` fewer rows."""
        if depth is not None:
            self.depths[number] = depth
            self._system.change(self._room[number], back=back_of(depth))
        if rows is not None:
            self.rows[number] = rows
            layer = self._layers[number]
            if isinstance(layer, LineEvents):
                self._system.change(self._space[number], lead=layer.lead(rows))

    @property
    def waits(self) -> Sequence[Wait]:
        """All waits, as they were before anything was made shallower."""
        return self._waits

    def times(self, key: Any) -> Times:
        """When the events of a sequence happen, by its key in `waits`."""
        return self._system.times(key)

    def own(self, number: int) -> dict[Any, int]:
        """The sequences of a layer itself, each with the least distance of two events: beats taken, folds started."""
        ports, layer = self._ports(number), self._layers[number]
        inner = {key: gap for key, (_, gap) in layer.inner(ports).items()}
        return {**dict.fromkeys(ports.taken, 1), **inner, ports.starts: layer.config.window.steps}

    def beats(self, number: int) -> tuple[Any, ...]:
        """Those of a layer's own sequences whose events follow each other because what they wait for does."""
        ports = self._ports(number)
        return *self._layers[number].beats(ports), ports.starts

    def work(self, number: int) -> tuple[Any, int]:
        """The sequence of a layer's work, and the cycles that an event of it takes."""
        return self._layers[number].work(self._ports(number))

    def source(self, number: int, key: Any) -> int:
        """The layer, or the input, from which the beats of a layer's own sequence come; its first one's if any."""
        streams = self._into[number]
        taken = {("taken", stream): stream for stream in streams}
        return self._streams[taken.get(key, streams[0])].source

    def neighbour(self, key: Any, *, before: bool) -> int:
        """The layer before, or behind, whose sequence another layer waits for; beyond the ends as in a `Link`."""
        name, number = key
        if name == "starts":
            return number
        link = self.config.links[number] if name == "left" else self._streams[number]
        return link.source if before else link.sink

    @property
    def taken(self) -> list[Times]:
        """When the beats of each stream are taken."""
        return [self._system.times(("taken", number)) for number in range(len(self._streams))]

    @property
    def left(self) -> list[Times]:
        """When beats leave each FIFO."""
        return [self._system.times(self._left(number)) for number in range(len(self.config.links))]

    @property
    def starts(self) -> list[Times]:
        """When the output folds of each layer start."""
        return [self._system.times(("starts", number)) for number in range(len(self._layers))]

    @cached_property
    def _into(self) -> list[list[int]]:
        """The streams that enter each layer, in the order of its inputs; and those that leave the accelerator."""
        found: list[list[int]] = [[] for _ in range(len(self._layers) + 1)]
        for number, stream in sorted(enumerate(self._streams), key=lambda entry: entry[1].place):
            found[stream.sink].append(number)
        return found

    @cached_property
    def _out_of(self) -> list[list[int]]:
        """The streams that leave each layer, in the order of its FIFOs."""
        found: list[list[int]] = [[] for _ in self._layers]
        for number, link in enumerate(self.config.links):
            found[link.source].append(self._stream_of(number))
        return found

    def _beats(self, stream: Link) -> int:
        """Of a frame."""
        if stream.sink == len(self._layers):
            return self._layers[stream.source].beats_out[stream.output]
        return self._layers[stream.sink].beats_in[stream.place]

    def _regroup(self, stream: Link) -> RegroupEvents | None:
        """What stands between the FIFO and the layer that a stream enters; ``None`` if beats leave as they are."""
        if stream.source < 0:
            return None
        config = self.config.layers[stream.source].regroups[stream.output]
        return RegroupEvents(config) if config.needed else None

    def solve(self, latest: Times | None = None) -> bool:
        """Find the times. ``False`` if an event comes later than `latest` allows (then unfinished).

        Raises
        ------
        PlanError
            If all stalls for ever, naming a FIFO that is full while its reader waits.
        """
        try:
            return self._system.solve(latest)
        except StuckError:
            raise PlanError(self._stalled()) from None

    def _stalled(self) -> str:
        """Names the last FIFO that has no room for what its layer would start next."""
        names, found = [layer.name for layer in self.config.layers], ""
        for number, link in enumerate(self.config.links):
            layer, depth = self._layers[link.source], self.depths[number]
            started = self._system.reached(("starts", link.source))
            if started < layer.folds * self.frames and depth is not None:
                folds = len(layer.config.fold_beats)
                claimed = int(
                    layer.claimed(slice(started // folds * folds, (started // folds + 1) * folds))[started % folds]
                )
                if claimed > depth + self._system.reached(self._left(number)):
                    found = (
                        f"FIFO from {names[link.source]} to {names[link.sink]}: with a depth of {depth} all stalls for "
                        f"ever: it is full while {names[link.sink]} waits for what comes another way; make it deeper"
                    )
        return found

    @property
    def events(self) -> int:
        """Number of events of all frames."""
        return len(self._system)

    @property
    def moved(self) -> int:
        """Number of events that were computed to move since `mark`, each time counted."""
        return self._system.moved

    def latest(self, deadline: Times, *, endless: bool = True) -> Times:
        """Return by when all events must happen for no output of a frame to come later than the frame's deadline.

        Parameters
        ----------
        deadline : Times
            Latest cycle of the last output of each frame.
        endless : bool
            Every line buffer and FIFO counts as endless, so more may be asked in truth; never less. Otherwise they
            are as deep as they are now, and the result is exact: later ones may be shallower, not deeper.
        """
        bounds = {}
        for stream in self._into[-1]:
            key = "taken", stream
            bounds[key] = self._frame_ends(np.arange(len(self._system.times(key)))), deadline
        return self._system.latest(bounds, data_only=endless)

    def credits_used(self, number: int, latest: Times | None = None) -> int:
        """Credits that a FIFO needs for the present times: beats stored or in flight at most.

        With `latest` times, those that it needs at least for all to be in time.
        """
        layer, key = self._layers[self.config.links[number].source], ("starts", self.config.links[number].source)
        starts = self._system.times(key) if latest is None else self._system.part(key, latest)
        left, used = self._system.times(self._left(number)), 0
        window = layer.config.window.output_folds
        at_once = max(AT_ONCE // window, 1) * window
        for begin in range(0, len(starts), at_once):
            started = slice(begin, min(begin + at_once, len(starts)))
            back = np.searchsorted(left, starts[started] - layer.config.credit_delay, side="right")
            used = max(used, int((layer.claimed(started) - back).max()))
        return used

    @property
    def frame_ends(self) -> Times:
        """Cycle of each frame's last output transfer, over all outputs."""
        ends = [self._frame_ends(self._system.times(("taken", stream))) for stream in self._into[-1]]
        return np.maximum.reduce(ends).astype(np.int64)

    def _frame_ends(self, times: Times) -> Times:
        return times.reshape(self.frames, -1)[:, -1]

    @property
    def cycles(self) -> Cycles:
        self.solve()
        ends = self.frame_ends
        distances = np.diff(ends)
        return Cycles(
            latency=int(ends[0]) - min(int(self.taken[place][0]) for place in range(len(self.config.entries))),
            interval=int(distances[-1]) if self.frames >= 3 else None,
            steady=self.frames < 3 or bool(distances[-1] == distances[-2] and not self.falls_behind(distances[-1])),
        )

    @property
    def _turns(self) -> int:
        """Number of frames in which a pattern of longer and shorter frames is looked for."""
        return min(max((self.frames - 1) // 2, 1), MOST_TURNS)

    def paces(self) -> Times:
        """Return the cycles a frame in which each stream is taken, on average over the last frames, rounded up.

        With one frame alone they are 0.
        """
        turns = min(self._turns, self.frames - 1)
        ends = (self._frame_ends(times).astype(np.int64) for times in self.taken)
        return np.array([-(-(each[-1] - each[-1 - turns]) // max(turns, 1)) for each in ends])

    def falls_behind(self, paces: Times | int) -> bool:
        """Tell whether a layer takes longer than its pace in the long run, so that outputs will be late in time.

        Either each of its last frames takes longer than the pace. Or the latest of them, measured against the pace, is
        later than the latest of as many frames before them. At a pace of 49 a layer that takes 48 and 50 cycles by
        turns keeps up. One that takes 49 cycles, but 50 in every eleventh frame, does not: its outputs are late once
        the lead is gone that they have over others.

        Parameters
        ----------
        paces : Times or int
            Cycles a frame, for each stream or for all.
        """
        turns = self._turns
        if self.frames < 2:
            return False
        ends = np.array([self._frame_ends(times) for times in self.taken], dtype=np.int64)
        late = ends - np.arange(self.frames) * np.broadcast_to(paces, len(ends))[:, None]
        later = late[:, -turns:].max(axis=1) > late[:, -2 * turns : -turns].max(axis=1)
        longer = (np.diff(late)[:, -min(turns, LAST_FRAMES) :] > 0).all(axis=1)
        return bool((later | longer).any())


def check_events(config: AcceleratorConfig, frames: int) -> None:
    """Refuse what takes too much memory and time.

    Raises
    ------
    PlanError
        Naming the layer with the most events.
    """
    counts = event_counts(config, frames)
    if sum(counts) > MOST_EVENTS:
        most = config.layers[counts.index(max(counts))]
        raise PlanError(
            f"{most.name}: {frames} frames are {sum(counts):,} events (beats and output folds), but at most "
            f"{MOST_EVENTS:,} are scheduled: take a smaller map, fewer layers or more DSP slices"
        )


def event_counts(config: AcceleratorConfig, frames: int) -> list[int]:
    """Events of each layer."""
    return [
        frames * (sum(layer.input_beats) + layer.beats + layer.beats // sum(layer.fold_beats) * len(layer.fold_beats))
        for layer in config.layers
    ]


def shorter(config: AcceleratorConfig, frames: int | None) -> tuple[list[AcceleratorConfig], int] | None:
    """What is scheduled in place of a map with too many events in so many frames, see `hwgen.schedule.tall`.

    ``None`` where the map is scheduled as it is.
    """
    events = sum(event_counts(config, LEAST_FRAMES if frames is None else min(frames, LEAST_FRAMES)))
    return None if events <= MANY_EVENTS else shortened(config, events)


def enough_frames(config: AcceleratorConfig, cycles: Cycles) -> int:
    """Frames after which what is in flight (by the ``cycles`` of a few) was replaced twice, and three more.

    A loop of credits that loses a part of a cycle each time round shows it then. More frames where they cost nothing.
    """
    in_flight = cycles.latency // (cycles.interval or cycles.latency)
    beats = max(max(layer.beats_in, layer.beats_out) for layer in config.layers)
    return max(3 + 2 * in_flight, min(LEAST_BEATS // beats, MOST_FRAMES))


def steady_cycles(config: AcceleratorConfig, frames: int | None = None) -> Cycles:
    """Cycles of so many frames back to back; of as many as it takes to settle, if ``None``.

    An interval has settled, and stays, once it has not changed for `enough_frames`, but for the first (two alike alone
    may be part of a pattern that repeats), and no layer loses the lead that it has. Layers may take turns at losing and
    gaining one, so that is awaited for four times as many frames at most. So long runs cost no more than short ones.
    """
    if (short := shorter(config, frames)) is not None and (cycles := _continued(*short, frames)) is not None:
        return cycles
    covered, limit = 3, min(frames or MOST_FRAMES, MOST_FRAMES)
    while True:
        covered = min(covered, limit)
        schedule = Schedule(config, covered)
        cycles = schedule.cycles
        enough = enough_frames(config, cycles)
        distances = np.diff(schedule.frame_ends)[1 - enough :]
        sure = covered >= (1 if cycles.steady else 4) * enough
        if covered == limit or (sure and bool((distances[1:] == cycles.interval).all())):
            return cycles
        covered = max(covered + 2, enough)


def _continued(heights: Sequence[AcceleratorConfig], missing: int, frames: int | None) -> Cycles | None:
    """Cycles so many steps beyond three heights; ``None`` if they don't grow evenly."""
    found = [steady_cycles(config, frames) for config in heights]
    latency = _extended([cycles.latency for cycles in found], missing)
    intervals = [cycles.interval for cycles in found if cycles.interval is not None]
    interval = _extended(intervals, missing) if intervals else None
    if latency is None or (intervals and interval is None):
        return None
    return Cycles(latency=latency, interval=interval, steady=all(cycles.steady for cycles in found))


def _extended(figures: Sequence[int], missing: int) -> int | None:
    first, second, third = figures
    return third + missing * (third - second) if third - second == second - first else None
