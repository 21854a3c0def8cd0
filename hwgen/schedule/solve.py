"""The exact schedule of an accelerator, without simulating it.

Every event (a beat taken, an output fold started, a beat leaving a FIFO) happens as soon as all it waits for has
happened: its time is a maximum of earlier times plus constants that the components state. The times are the least
solution of that system; it is found by starting from below and repeating whole-array passes until nothing moves.
They are the hardware's own to the cycle, when neither the source nor the sink stalls.

The streams between layers are numbered: 0 comes in, and ``n + 1`` leaves FIFO ``n`` (`AcceleratorConfig.links`). In a
chain stream ``n`` enters layer ``n``, and FIFO ``n`` stands behind it.

Layers that work in tiles wait for each other pyramid by pyramid, and a pass carries such waiting on by a pyramid or
two. Their runs are cut at pyramids; as events wait for earlier ones only, each part is settled before the next. Other
runs are cut at frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import SOURCE, AcceleratorConfig, Link
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.pyramid.layer import PyramidLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.events import (
    JoinEvents,
    LayerEvents,
    LayerTimes,
    LineEvents,
    Part,
    RegroupEvents,
    Times,
    WholeMapEvents,
    before,
    never,
    spaced_back,
    take_at_once,
)
from hwgen.schedule.pyramid import PyramidEvents
from hwgen.schedule.tall import shortened

#: A schedule that has not settled after so many frames never will (its frames take turns at being longer).
MOST_FRAMES = 64

#: Frames that a schedule of frames that follow each other has at least, by `enough_frames`: no frame is done before the
#: next can begin, as its latency is more than the slowest layer's cycles.
LEAST_FRAMES = 5

#: Beats that are scheduled at least: small networks get more frames, so that a loss in one of many is seen.
LEAST_BEATS = 10_000

#: Events of a layer (beats that come in or leave) in frames that are settled together, at least; and of pyramids.
RUN_EVENTS, PART_EVENTS = 40_000, 8_000

#: Events of a run at most, of all layers together: in memory they and what is computed with them take about 3 GB.
MOST_EVENTS = 1 << 28

#: Events of a run above which fewer rows are scheduled instead, if they tell as much: about 1 GB.
MANY_EVENTS = 1 << 27

#: Cycles up to which times are held in 32 bits: those of a layer that is never held up, and those of the schedule.
SHORT_RAMP, SHORT_TIME = 1 << 28, 1 << 30

#: Beats of a layer, evenly spread, that are compared with what a deadline allows.
WATCHED = 1 << 16

#: Sweeps over frames before they are settled part by part. They cost more each, but tell soon what comes far too late.
SWEEPS = 4


@dataclass(frozen=True)
class Cycles:
    """What a schedule comes to.

    ``latency`` and ``interval`` as the project defines them; ``interval`` is ``None`` with fewer than three
    frames. ``steady`` says that the last two distances agree, and that no layer lives on a lead that it is losing.
    """

    latency: int
    interval: int | None
    steady: bool


#: How each kind of layer's events are found.
_EVENTS: dict[type[LayerConfig], Callable[[Any, int], LayerEvents]] = {
    LayerConfig: LineEvents,
    JoinLayerConfig: JoinEvents,
    WholeMapLayerConfig: WholeMapEvents,
    PyramidLayerConfig: PyramidEvents,
}


def events_of(layer: LayerConfig, frames: int) -> LayerEvents:
    """The events of a layer over so many frames."""
    return _EVENTS[type(layer)](layer, frames)


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
        self._layers = [events_of(layer, frames) for layer in config.layers]
        self._streams = _streams(config)
        most = max(frames * max(layer.cycles, layer.beats_in, layer.beats_out) for layer in config.layers)
        tiled = any(layer.tiles for layer in self._layers)
        dtype = np.dtype(np.int64 if tiled or most > SHORT_RAMP else np.int32)
        self.taken = [_never(self._beats(stream), dtype) for stream in self._streams]
        self.complete = [_never(layer.tiles, dtype) for layer in self._layers]
        self.starts = [_never(layer.folds, dtype) for layer in self._layers]
        #: When beats leave a FIFO, where that is not when the next layer takes them.
        self._left = {
            number: _never(self._layers[link.source].beats_stored, dtype)
            for number, link in enumerate(config.links)
            if self._regroup(link) is not None
        }
        self._runs = _runs(self._layers, [self._streams[number] for number in self._sinks])
        self._dirty = set(self._nodes)
        #: Arrays that no copy has too, by what they hold (its list's identity) and the layer.
        self._own: set[tuple[int, int]] = set()

    def copy(self) -> Schedule:
        """A schedule that can be changed without changing this one; shares the unchanging parts."""
        other = object.__new__(Schedule)
        other.__dict__.update(self.__dict__)
        for name in ("depths", "rows", "taken", "complete", "starts", "_left"):
            setattr(other, name, copy(getattr(self, name)))
        other._dirty = set(self._dirty)
        # From now on neither may write into arrays that the other has too.
        self._own, other._own = set(), set()
        return other

    def shrink(self, number: int, *, depth: int | None = None, rows: int | None = None) -> None:
        """Make FIFO ``number`` shallower, or give layer ``number`` fewer rows."""
        if depth is not None:
            self.depths[number] = depth
            self._dirty.add(start_node(self.config.links[number].source))
        if rows is not None:
            self.rows[number] = rows
            self._dirty |= {transfer_node(stream) for stream in self._into[number]}

    @property
    def left(self) -> list[Times]:
        """When beats leave each FIFO."""
        return [self._left.get(number, taken) for number, taken in enumerate(self.taken[1:])]

    @cached_property
    def _into(self) -> list[list[int]]:
        """The streams that enter each layer, in the order of its inputs; and those that leave the accelerator."""
        found: list[list[int]] = [[] for _ in range(len(self._layers) + 1)]
        for number, stream in sorted(enumerate(self._streams), key=lambda entry: entry[1].place):
            found[stream.sink].append(number)
        return found

    @property
    def _sinks(self) -> list[int]:
        """The streams that leave the accelerator, one an output."""
        return self._into[-1]

    @cached_property
    def _out_of(self) -> list[list[int]]:
        """The streams that leave each layer, in the order of its FIFOs."""
        found: list[list[int]] = [[] for _ in self._layers]
        for number, stream in enumerate(self._streams[1:], 1):
            found[stream.source].append(number)
        return found

    def _beats(self, stream: Link) -> int:
        if stream.sink == len(self._layers):
            return self._layers[stream.source].beats_out[stream.output]
        return self._layers[stream.sink].beats_in[stream.place]

    def _regroup(self, stream: Link) -> RegroupEvents | None:
        """What stands between the FIFO and the layer that a stream enters."""
        return None if stream.source == SOURCE else self._layers[stream.source].regroups[stream.output]

    def solve(self, deadline: Times | None = None, latest: Sequence[Times | None] | None = None) -> bool:
        """Find the times. ``False`` if a frame's last output comes later than its ``deadline`` (then unfinished).

        ``latest``: what that deadline asks of all layers, as `latest` says, so that it is soon seen to be missed.
        """
        moved: set[int] = set()
        for run, parts in self._runs:
            dirty = self._dirty | self._waiting(moved)
            if not self._settle(run, dirty, moved, (deadline, latest), SWEEPS if len(parts) > 1 else None):
                return False
            moved_here: set[int] = set()
            for part in parts if dirty else ():
                if not self._settle(part, dirty | self._waiting(moved_here), moved_here, (deadline, latest)):
                    return False
            moved |= moved_here
        self._dirty = set()
        return True

    def _waiting(self, moved: set[int]) -> set[int]:
        """The nodes that wait for what ``moved`` in earlier parts."""
        return {node for node in self._nodes if node in moved or not moved.isdisjoint(self._neighbours[node])}

    @cached_property
    def _nodes(self) -> tuple[int, ...]:
        """Transfers and starts, from the source to the sink: those of a layer after those of its inputs."""
        found = []
        for layer, streams in enumerate(self._into):
            found += [transfer_node(stream) for stream in streams]
            if layer < len(self._layers):
                found.append(start_node(layer))
        return tuple(found)

    @cached_property
    def _neighbours(self) -> dict[int, set[int]]:
        """What waits for each node: the starts of the layers at the ends of a stream, the transfers of a layer."""
        found: dict[int, set[int]] = {node: set() for node in self._nodes}
        for number, stream in enumerate(self._streams):
            for layer in {stream.source, stream.sink} - {SOURCE, len(self._layers)}:
                found[transfer_node(number)].add(start_node(layer))
                found[start_node(layer)].add(transfer_node(number))
        return found

    def _settle(
        self,
        part: Sequence[Part],
        dirty: set[int],
        moved: set[int],
        due: tuple[Times | None, Sequence[Times | None] | None],
        sweeps: int | None = None,
    ) -> bool:
        """Find the times of a part, beginning with the ``dirty`` nodes; adds to those that ``moved``.

        ``due``: deadline and latest times. After so many ``sweeps`` at most; then there may be ``dirty`` nodes left.
        """
        deadline, latest = due
        while dirty and sweeps != 0:
            if sweeps is not None:
                sweeps -= 1
            for node in self._nodes:
                if node not in dirty:
                    continue
                dirty.discard(node)
                changed = self._move(node, part)
                if changed:
                    moved.add(node)
                    dirty |= self._neighbours[node]
                    if latest is not None and node % 2 == 0 and self._late(node // 2, part, latest):
                        return False
                leaves = node % 2 == 0 and node // 2 in self._sinks
                if leaves and deadline is not None and (self._frame_ends(self.taken[node // 2]) > deadline).any():
                    return False
        return True

    def _move(self, node: int, part: Sequence[Part]) -> bool:
        """Find the times of one node of a part; whether any of them moved."""
        return self._transfer(node // 2, part) if node % 2 == 0 else self._start(node // 2, part)

    def latest(self, deadline: Times) -> list[Times | None]:
        """By when the beats of each stream must be taken, or some of a frame's at least, to meet a deadline.

        Every layer and FIFO behind it counts as endless, so more may be asked in truth; never less. ``None`` for
        streams of which nothing is known, and for those that leave.
        """
        found: list[Times | None] = [None] * len(self.taken)
        if len(self._layers) == 1:
            return found  # the sink is as soon to be seen
        dues: dict[int, Times] = {}
        for number in self._sinks:
            sink = self.taken[number]
            due = np.full(len(sink), -never(sink), dtype=sink.dtype)
            self._frame_ends(due)[:] = deadline
            dues[number] = spaced_back(due, 1)
        for number in reversed(range(len(self._layers))):
            stored = [
                dues[stream] if regroup is None else regroup.enter_latest(dues[stream])
                for stream, regroup in zip(self._out_of[number], self._layers[number].regroups, strict=True)
                if stream in dues
            ]
            if not stored:
                continue
            layer = self._layers[number]
            taken = layer.take_latest(layer.start_latest(np.minimum.reduce(stored)))
            for stream, times in zip(self._into[number], taken or (), strict=False):
                dues[stream] = times
                found[stream] = times.reshape(self.frames, -1)[:, :: self._watched(stream)].copy()
        return found

    def _watched(self, number: int) -> int:
        """Beats from one that is compared with the latest times to the next."""
        return -(-len(self.taken[number]) // (self.frames * WATCHED))

    def _late(self, number: int, parts: Sequence[Part], latest: Sequence[Times | None]) -> bool:
        """Whether a beat of a stream is taken too late for the deadline, in this part."""
        bound = latest[number]
        if bound is None:
            return False
        frame, stream = len(self.taken[number]) // self.frames, self._streams[number]
        place = parts[stream.sink].taken[stream.place]
        taken = self.taken[number][place].reshape(-1, frame)[:, :: self._watched(number)]
        return bool((taken > bound[place.start // frame : place.stop // frame]).any())

    def credits_used(self, number: int) -> int:
        """Credits that a FIFO needs for the present times: beats stored or in flight at most."""
        layer = self.config.links[number].source
        starts, left = self.starts[layer], self.left[number]
        events, used = self._layers[layer], 0
        window = events.config.window.output_folds
        at_once = max(PART_EVENTS // window, 1) * window
        for begin in range(0, len(starts), at_once):
            started = slice(begin, min(begin + at_once, len(starts)))
            back = np.searchsorted(left, starts[started] - events.config.credit_delay, side="right")
            used = max(used, int((events.claimed(started) - back).max()))
        return used

    @property
    def frame_ends(self) -> Times:
        """Cycle of each frame's last output transfer, over all outputs."""
        return np.maximum.reduce([self._frame_ends(self.taken[sink]) for sink in self._sinks]).astype(np.int64)

    def _frame_ends(self, times: Times) -> Times:
        return times.reshape(self.frames, -1)[:, -1]

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
        frames = (self._frame_ends(times) for times in self.taken)
        return self.frames > 1 and any(ends[-1] - ends[-2] > interval for ends in frames)

    def _times(self, number: int) -> LayerTimes:
        return LayerTimes(
            tuple(self.taken[stream] for stream in self._into[number]),
            self.complete[number],
            self.starts[number],
            tuple(self._left.get(stream - 1, self.taken[stream]) for stream in self._out_of[number]),
        )

    def _start(self, number: int, parts: Sequence[Part]) -> bool:
        depths = [self.depths[stream - 1] for stream in self._out_of[number]]
        starts = self._layers[number].starts(parts[number], self._times(number), depths)
        return self._update(self.starts, number, parts[number].starts, starts)

    def _transfer(self, number: int, parts: Sequence[Part]) -> bool:
        """Beats of a stream, from a FIFO (or the source) into a layer (or the sink)."""
        stream = self._streams[number]
        sink, place = stream.sink, parts[stream.sink].taken[stream.place]
        take = take_at_once(before(self.taken[number], place))
        if sink < len(self._layers):
            take = self._layers[sink].take(stream.place, parts[sink], self._times(sink), self.rows[sink])
        moved = False
        if stream.source == SOURCE:
            taken, complete = take(np.zeros(place.stop - place.start, dtype=self.taken[0].dtype))
        else:
            producer, part = self._layers[stream.source], parts[stream.source]
            offered, regroup = producer.stored(part, self.starts[stream.source]), self._regroup(stream)
            if regroup is not None:
                times = self._left[number - 1], self.taken[number]
                left, taken, complete = regroup.pass_through(part.stored, place, offered, take, times)
                moved = self._update(self._left, number - 1, part.stored, left)
            else:
                taken, complete = take(offered)
        if len(complete):
            moved |= self._update(self.complete, sink, parts[sink].tiles, complete)
        return self._update(self.taken, number, place, taken) or moved

    def _update(self, kind: list[Times] | dict[int, Times], number: int, place: slice, new: Times) -> bool:
        old = kind[number]
        if np.array_equal(old[place], new):
            return False
        if new.dtype == np.int32 and new[-1] > SHORT_TIME:
            self._widen()
            old, new = kind[number], new.astype(np.int64)
        key = id(kind), number
        if len(new) == len(old):
            kind[number] = new
            self._own.discard(key)
            return True
        if key not in self._own:
            kind[number] = old.copy()
            self._own.add(key)
        kind[number][place] = new
        return True

    def _widen(self) -> None:
        """Go on in 64 bits."""
        for kind in (self.taken, self.complete, self.starts):
            kind[:] = [times.astype(np.int64) for times in kind]
        for number, times in self._left.items():
            self._left[number] = times.astype(np.int64)


def _never(count: int, dtype: np.dtype) -> Times:
    times = np.empty(count, dtype=dtype)
    times[:] = never(times)
    return times


def _runs(layers: Sequence[LayerEvents], sinks: Sequence[Link]) -> list[tuple[list[Part], list[list[Part]]]]:
    """Frames that are settled together, and the parts they have; ``sinks`` are the streams that leave."""
    events = np.cumsum(np.maximum.reduce([layer.pyramids for layer in layers]))
    may_begin = np.logical_and.reduce([layer.begins for layer in layers])
    frames = -(-RUN_EVENTS * layers[0].frames // int(events[-1]))
    pyramids = frames * max(1, len(events) // layers[0].frames)
    runs = pairwise([*range(0, len(events), pyramids), len(events)])
    return [
        (_part(layers, sinks, *run), [_part(layers, sinks, *part) for part in _cut(events, may_begin, run)])
        for run in runs
    ]


def _cut(events: Times, may_begin: np.ndarray, run: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """Pyramids of about `PART_EVENTS` together."""
    begin, end = run
    pieces = events[begin:end] // PART_EVENTS
    cuts = np.flatnonzero((pieces[1:] > pieces[:-1]) & may_begin[begin + 1 : end]) + begin + 1
    return pairwise([begin, *cuts.tolist(), end])


def _part(layers: Sequence[LayerEvents], sinks: Sequence[Link], begin: int, end: int) -> list[Part]:
    """Some pyramids: the part of every layer, and of all sinks together."""
    parts = [layer.part(begin, end) for layer in layers]
    sent = []
    for stream in sinks:
        layer, starts = layers[stream.source], parts[stream.source].starts
        beats = layer.beats_out[stream.output]
        sent.append(slice(*(fold * beats // layer.folds for fold in (starts.start, starts.stop))))
    return [*parts, Part(tuple(sent), slice(0, 0), slice(0, 0), slice(0, 0))]


def _streams(config: AcceleratorConfig) -> tuple[Link, ...]:
    """What comes in, and what leaves each FIFO."""
    return (Link(SOURCE, 0, 0, 0), *config.links)


def transfer_node(stream: int) -> int:
    """The node of a stream's transfers: an even number."""
    return 2 * stream


def start_node(layer: int) -> int:
    """The node of a layer's starts: an odd number."""
    return 2 * layer + 1


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
    may be part of a pattern that repeats). So long runs cost no more than short ones.
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
        if covered == limit or (covered >= enough and bool((distances[1:] == cycles.interval).all())):
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
