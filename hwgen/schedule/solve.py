"""Exact schedule of an accelerator, computed without simulation from the latencies of its components.

An event is an accepted beat, a started output fold, or a beat that leaves a FIFO. It happens as soon as everything that
it waits for has happened. Its time is thus a maximum of earlier times plus constants that the components state. The
times are the least solution of this system. They equal the hardware's cycles exactly when neither the source nor the
sink stalls.

Streams have indices: first the input streams (`AcceleratorConfig.input_links`), then the stream after each FIFO
(`AcceleratorConfig.links`). In a chain stream ``n`` enters layer ``n``, and FIFO ``n`` follows layer ``n``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig, Link
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.resample import ResampleLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule import events as layer_events
from hwgen.schedule.pyramid import PyramidEvents
from hwgen.schedule.rows import ProvedTimes, RowCut, Rows, UnsettledError, rates
from hwgen.schedule.settle import StuckError, System, Times, Wait

T = TypeVar("T")

#: Largest number of frames of a schedule. A schedule that has not settled by then never will: its frames alternate
#: between longer and shorter ones.
MAX_FRAMES = 64

#: Largest period, in frames, of layers that alternate between longer and shorter frames. A loop of credits that loses a
#: cycle in fewer frames than this is detected before an output is late.
MAX_PATTERN_FRAMES = 21

#: Largest number of last frames that must all take longer than the pace before a layer counts as falling behind.
LAST_FRAMES = 8

#: Smallest result of `enough_frames`. No frame ends before the next can begin, as its latency exceeds the slowest
#: layer's cycles.
MIN_SETTLED_FRAMES = 5

#: Approximate number of beats, in the layer with the most, that a schedule covers at least (up to `MAX_FRAMES`). Small
#: networks get more frames, so that a loss in one of many frames shows.
MIN_BEATS = 10_000

#: Largest number of events of a run, over all layers: with their temporary arrays they take about 5 GB.
MAX_EVENTS = 3 << 27

#: Number of events of a run, about a tenth of a second, above which rows are left out if the result can be proved.
LONG_RUN_EVENTS = 1 << 19

#: Numbers of strips of map rows that a long run keeps, tried one after the other until the result is proved.
KEPT_STRIPS = (20, 48, 112)

#: Number of events of one layer that are processed at once when the credits of a FIFO are counted.
CHUNK_EVENTS = 8_000


@dataclass(frozen=True)
class Cycles:
    """Latency (first input to last output of a frame) and interval between frames of an accelerator, in cycles.

    Attributes
    ----------
    latency : int
        Cycles from the first input beat of the first frame to the frame's last output transfer.
    interval : int or None
        Cycles between the last output transfers of the last two frames; ``None`` with fewer than three frames.
    steady : bool
        Whether the last two distances agree and no layer consumes a lead over other layers.
    """

    latency: int
    interval: int | None
    steady: bool


#: Mapping from each class of layer configurations to the subclass of `LayerEvents` that schedules such layers.
_EVENTS: dict[type[LayerConfig], type[layer_events.LayerEvents[Any]]] = {
    LayerConfig: layer_events.LineEvents,
    JoinLayerConfig: layer_events.JoinEvents,
    WholeMapLayerConfig: layer_events.WholeMapEvents,
    CollectLayerConfig: layer_events.CollectEvents,
    ReorderLayerConfig: layer_events.ReorderEvents,
    ResampleLayerConfig: layer_events.ResampleEvents,
    RunningScaleLayerConfig: layer_events.RunningScaleEvents,
    PyramidLayerConfig: PyramidEvents,
}


class Schedule:
    """Exact cycles of all transfers and computation starts of a streaming accelerator, over several frames.

    Depths and rows can change afterwards. A smaller depth or fewer rows only move events later, so the current times
    are a valid start for the next solution.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator whose FIFO depths and rows are the defaults of ``depths`` and ``rows``.
    frames : int
        Number of frames, back to back.
    depths : sequence of int or None, optional
        Depths of all FIFOs, in the order of ``config.links``; ``None`` for an endless FIFO.
    rows : sequence of int, optional
        Rows of each layer's line buffer.

    Raises
    ------
    ConfigError
        If ``frames`` is not positive.
    PlanError
        If there are too many events.
    """

    def __init__(
        self,
        config: AcceleratorConfig,
        frames: int = 3,
        *,
        depths: Sequence[int | None] | None = None,
        rows: Sequence[int] | None = None,
        kept: int | None = None,
    ):
        if frames < 1:
            raise ConfigError(f"frames must be a positive integer, not {frames!r}")
        self.config, self.frames = config, frames
        self.depths = list(depths) if depths is not None else config.fifo_depths
        self.rows = list(rows) if rows is not None else [layer.window.rows for layer in config.layers]
        self._layers = [_EVENTS[type(layer)](layer) for layer in config.layers]
        self._streams = (*config.input_links, *config.links)
        self._waits: list[Wait] = []
        #: List by FIFO: index in ``_waits`` of the wait for room in the FIFO.
        self._room: list[int] = []
        #: Dictionary from a layer's index to the index in ``_waits`` of the wait for space in its line buffer.
        self._space: dict[int, int] = {}
        self._cut: RowCut | None = None
        self._proof: ProvedTimes | None = None
        self._system = self._build(kept)

    def _build(self, kept: int | None) -> System:
        """Return a `System`: all layers' event sequences and constraints, for all rows or ``kept`` strips."""
        sequences: dict[Any, tuple[int, int]] = {}
        for layer_index, layer in enumerate(self._layers):
            for stream in self._streams_into[layer_index]:
                sequences |= self._stream_sequences(stream)
            ports = self._ports(layer_index)
            sequences |= layer.inner_sequences(ports)
            sequences[ports.starts] = layer.folds, layer.config.window.steps
            self._waits += layer.waits(ports)
            if (space := layer.space(ports, self.rows[layer_index])) is not None:
                self._space[layer_index] = len(self._waits)
                self._waits.append(space)
        for stream in self._streams_into[-1]:
            sequences |= self._stream_sequences(stream)
            self._waits.append(self._offers(stream).waited_for(("taken", stream)))
        for fifo, link in enumerate(self.config.links):
            ports = self._ports(link.source)
            output = self._out_of[link.source].index(self._stream_of(fifo))
            self._room.append(len(self._waits))
            self._waits.append(self._layers[link.source].room(ports, output, self.depths[fifo]))
            if (regroup := self._regroup(link)) is not None:
                left = "left", fifo
                stored = self._layers[link.source].stored(ports.starts, link.output)
                self._waits += [stored.waited_for(left), regroup.entering(left, ("taken", self._stream_of(fifo)))]
        counts = {key: count for key, (count, _) in sequences.items()}
        if kept is None:
            check_events(self.config, self.frames)
        else:
            counts = self._without_rows(counts, kept)
        return System({key: (counts[key] * self.frames, gap) for key, (_, gap) in sequences.items()}, self._waits)

    def _without_rows(self, counts: dict[Any, int], kept: int) -> dict[Any, int]:
        """Leave rows of tall maps out of all constraints; return a dict of sequences' remaining events per frame.

        Raises
        ------
        UnsettledError
            If hardly any rows can be left out, or the rows of a wait do not repeat.
        """
        found = rates(self.config)
        if found is None:
            raise UnsettledError
        rows = {key: self._rows_of(key, found) for key in counts}
        self._cut = RowCut.of(rows, counts, kept)
        if self._cut is None:
            raise UnsettledError
        self._waits = [self._cut.short(index, wait) for index, wait in enumerate(self._waits)]
        return {key: self._cut.events(key) for key in counts}

    @property
    def is_cut(self) -> bool:
        """Whether rows of tall maps are left out of the schedule, to save time (`RowCut`)."""
        return self._cut is not None

    def _rows_of(self, key: Any, row_rates: Sequence[Fraction]) -> Rows:
        """Return the map `Rows` that a sequence's events cover, per frame and per strip (run of rows left out)."""
        entries = len(self.config.input_links)
        if key[0] == "taken" and key[1] < entries:
            link = self.config.input_links[key[1]]
            return Rows(self.config.layers[link.sink].inputs[link.port].height, row_rates[key[1]])
        while not isinstance(key[1], int):  # a sequence inside a layer
            key = key[1]
        if key[0] == "taken":
            key = "left", self._fifo_of(key[1])
        layer = self.config.links[key[1]].source if key[0] == "left" else key[1]
        return Rows(self.config.layers[layer].output.height, row_rates[entries + layer])

    def _stream_sequences(self, stream_index: int) -> dict[Any, tuple[int, int]]:
        """Return a dict from the keys of a stream's event sequences (left a FIFO, accepted) to (beats per frame, gap).

        Without a Regroup (width converter) the reader accepts the beats as they leave the FIFO: one sequence.
        """
        stream, sequences = self._streams[stream_index], {}
        if self._regroup(stream) is not None:
            sequences["left", self._fifo_of(stream_index)] = self._layers[stream.source].beats_stored[stream.output], 1
        return sequences | {("taken", stream_index): (self._beats(stream), 1)}

    def _ports(self, layer: int) -> layer_events.Ports:
        """Return a layer's `Ports`: keys of its events (input beats accepted and offered, output beats, folds)."""
        return layer_events.Ports(
            tuple(("taken", stream) for stream in self._streams_into[layer]),
            tuple(self._offers(stream) if self._fifo_of(stream) >= 0 else None for stream in self._streams_into[layer]),
            tuple(self._departures(self._fifo_of(stream)) for stream in self._out_of[layer]),
            ("starts", layer),
        )

    def _offers(self, stream_index: int) -> layer_events.Origin:
        """Return the cycles when a stream's beats are valid for its reader: delays after earlier events (`Origin`)."""
        stream = self._streams[stream_index]
        if (regroup := self._regroup(stream)) is not None:
            return regroup.leaving(("left", self._fifo_of(stream_index)))
        return self._layers[stream.source].stored(("starts", stream.source), stream.output)

    def _departures(self, fifo: int) -> Any:
        """Return the key of the sequence whose events are the beats that leave a FIFO."""
        if self._regroup(self.config.links[fifo]) is None:
            return "taken", self._stream_of(fifo)
        return "left", fifo

    def _stream_of(self, fifo: int) -> int:
        """Return the index of the stream that leaves a FIFO, among all streams of the accelerator."""
        return fifo + len(self.config.input_links)

    def _fifo_of(self, stream: int) -> int:
        """Return the index of the FIFO that feeds a stream; negative if the stream is an input of the accelerator."""
        return stream - len(self.config.input_links)

    def mark(self) -> None:
        """Solve the schedule and save its state, so that `revert` can undo later changes of depths and rows."""
        self.solve()
        self._system.mark()
        self._marked = list(self.depths), list(self.rows), self._proof

    def revert(self) -> None:
        """Undo all changes of FIFO depths and line-buffer rows since `mark`."""
        self._system.revert()
        depths, rows, self._proof = self._marked
        self.depths, self.rows = list(depths), list(rows)

    def shrink(self, index: int, *, depth: int | None = None, rows: int | None = None) -> None:
        """Reduce the depth of FIFO ``index``, or the line-buffer rows of layer ``index``."""
        self._proof = None
        if depth is not None:
            self.depths[index] = depth
            self._system.change(self._room[index], back=layer_events.back_of(depth))
        if rows is not None:
            self.rows[index] = rows
            layer = self._layers[index]
            if isinstance(layer, layer_events.LineEvents):
                self._system.change(self._space[index], lead=layer.lead(rows))

    @property
    def waits(self) -> Sequence[Wait]:
        """Sequence of each `Wait`, a constraint between events, from before any FIFO depth or row number changed."""
        return self._waits

    def times(self, key: Any) -> Times:
        """Return `Times`: an int64 array of the cycles of all events of one sequence. ``key`` is its key in `waits`."""
        return self._system.times(key)

    def own(self, layer: int) -> dict[Any, int]:
        """Return a dict of the minimum distance in cycles of successive events, by key of a layer's own sequences."""
        ports, events = self._ports(layer), self._layers[layer]
        inner = {key: gap for key, (_, gap) in events.inner_sequences(ports).items()}
        return {**dict.fromkeys(ports.taken, 1), **inner, ports.starts: events.config.window.steps}

    def beats(self, layer: int) -> tuple[Any, ...]:
        """Return a tuple of the keys of a layer's sequences where adjacent events are delayed by the same cause.

        An event of such a run merely follows the previous event. Its cause is whatever the first event of the run
        waited for.
        """
        ports = self._ports(layer)
        return *self._layers[layer].beats(ports), ports.starts

    def work(self, layer: int) -> tuple[Any, int]:
        """Return a pair: key of the sequence of a layer's computations, and the number of cycles of each one."""
        return self._layers[layer].work(self._ports(layer))

    def source(self, layer: int, key: Any) -> int:
        """Return the index of the layer or accelerator input that sends the beats of a layer's sequence ``key``.

        For a sequence that takes no beats, the result is the source of the layer's first input.
        """
        streams = self._streams_into[layer]
        taken = {("taken", stream): stream for stream in streams}
        return self._streams[taken.get(key, streams[0])].source

    def neighbour(self, key: Any, *, before: bool) -> int:
        """Return the index of the layer that sends (``before``) or reads an event sequence's beats.

        An index beyond the layers is an end of the accelerator, as in a `Link`.
        """
        name, index = key
        if name == "starts":
            return index
        link = self.config.links[index] if name == "left" else self._streams[index]
        return link.source if before else link.sink

    @property
    def taken(self) -> list[Times]:
        """List of cycles when a stream's reader accepts its beats: one int64 array per stream."""
        return [self._system.times(("taken", index)) for index in range(len(self._streams))]

    @property
    def left(self) -> list[Times]:
        """List of cycles when beats leave a FIFO: one int64 array per FIFO."""
        return [self._system.times(self._departures(index)) for index in range(len(self.config.links))]

    @property
    def starts(self) -> list[Times]:
        """List of cycles when output folds (passes over ``Tm`` channels) start: one int64 array per layer.

        An output fold is a set of output channels that are computed together.
        """
        return [self._system.times(("starts", index)) for index in range(len(self._layers))]

    @cached_property
    def _streams_into(self) -> list[list[int]]:
        """List by layer: indices of the streams into it, in order; the last entry has the accelerator's outputs."""
        streams: list[list[int]] = [[] for _ in range(len(self._layers) + 1)]
        for index, stream in sorted(enumerate(self._streams), key=lambda entry: entry[1].port):
            streams[stream.sink].append(index)
        return streams

    @cached_property
    def _out_of(self) -> list[list[int]]:
        """List of indices of the streams out of each layer, in the order of its FIFOs."""
        streams: list[list[int]] = [[] for _ in self._layers]
        for index, link in enumerate(self.config.links):
            streams[link.source].append(self._stream_of(index))
        return streams

    def _beats(self, stream: Link) -> int:
        """Return the number of beats per frame of a stream between two layers."""
        if stream.sink == len(self._layers):
            return self._layers[stream.source].beats_out[stream.output]
        return self._layers[stream.sink].beats_in[stream.port]

    def _regroup(self, stream: Link) -> layer_events.RegroupEvents | None:
        """Return `RegroupEvents` of the width converter after a stream's FIFO; ``None`` if it has none."""
        if stream.source < 0:
            return None
        config = self.config.layers[stream.source].regroups[stream.output]
        return layer_events.RegroupEvents(config) if config.needed and not config.always_ready else None

    def solve(self, latest: Times | None = None) -> bool:
        """Compute the cycle of each scheduled event, and return whether no event is later than its entry in ``latest``.

        If an event is later, the computation stops unfinished. If rows are left out, it does not, and with ``latest`` a
        deadlock counts as late.

        Raises
        ------
        UnsettledError
            If rows are left out, and the kept rows do not prove the whole schedule.
        PlanError
            If the accelerator deadlocks. The message names a FIFO that is full while its reader waits.
        """
        try:
            if self._cut is None:
                return self._system.solve(latest)
            self._system.solve()
        except StuckError:
            if self._cut is not None and latest is not None and self._cut.is_stuck(self._system):
                return False
            if self._cut is not None:
                raise UnsettledError from None
            raise PlanError(self._deadlock()) from None
        if self._proof is None:
            self._proof = self._cut.proved(self._system, self._waits, self.frames)
        return True

    def _deadlock(self) -> str:
        """Return the error message of a deadlock, which names a FIFO that is full while its reader waits."""
        names, message = [layer.name for layer in self.config.layers], ""
        for fifo, link in enumerate(self.config.links):
            layer, depth = self._layers[link.source], self.depths[fifo]
            started = self._system.reached(("starts", link.source))
            if started < layer.folds * self.frames and depth is not None:
                folds = len(layer.config.fold_beats)
                window = slice(started // folds * folds, (started // folds + 1) * folds)
                claimed = int(layer.claimed(link.output, window)[started % folds])
                if claimed > depth + self._system.reached(self._departures(fifo)):
                    message = (
                        f"FIFO from {names[link.source]} to {names[link.sink]}: with a depth of {depth} the layers "
                        f"deadlock: it is full while {names[link.sink]} waits for its other input; make it deeper"
                    )
        return message

    @property
    def events(self) -> int:
        """Number of scheduled events (transfers, computation starts) over all frames."""
        return len(self._system)

    @property
    def moved(self) -> int:
        """Number of times that an event of the schedule has been given a later time since `mark`.

        An event that moves twice counts twice.
        """
        return self._system.moved

    def latest(self, deadline: Times, *, endless: bool = True) -> Times:
        """Return `Times`: an array with the latest cycle of each event at which every frame still meets its deadline.

        If rows are left out of the schedule, only the rows of the last frame after the cut have such times, as if only
        this frame had a deadline.

        Parameters
        ----------
        deadline : Times
            Latest cycle of the last output of each frame, shape ``(frames,)``.
        endless : bool
            Whether all line buffers and FIFOs count as endless. The result is then an upper bound of the true latest
            times. Otherwise the current depths count, and the result is exact; it holds as long as depths only shrink.
        """
        bounds, proof = {}, self._proof
        for stream in self._streams_into[-1]:
            key = "taken", stream
            ends = np.arange(len(self._system.times(key))).reshape(self.frames, -1)[:, -1]
            bounds[key] = (ends, deadline) if proof is None else (ends[-1:], deadline[-1:] - self._last_shift)
        return self._system.latest(
            bounds, data_only=endless and proof is None, since=None if proof is None else proof.last_rows
        )

    @property
    def _last_shift(self) -> int:
        """Cycles to add to the last frame's times of a shortened schedule (rows left out)."""
        assert self._proof is not None
        return int(self._proof.shifts["taken", self._streams_into[-1][0]][-1])

    def credits_used(self, fifo: int, latest: Times | None = None) -> int:
        """Return the number of credits that a FIFO needs: the largest number of beats stored in it or in flight to it.

        Parameters
        ----------
        fifo : int
            Index of the FIFO in ``config.links``.
        latest : Times, optional
            Latest times of all events. The result is then the number of credits that keeps all events in time. By
            default the current times count.
        """
        key, left_key = ("starts", self.config.links[fifo].source), self._departures(fifo)
        starts = self._system.times(key) if latest is None else self._system.part(key, latest)
        left, proof = self._system.times(left_key), self._proof
        if proof is not None and latest is not None:
            begin, begin_left = proof.last_rows[key], proof.last_rows[left_key]
            left = left[begin_left:].astype(np.int64) + (proof.shifts[left_key][-1] - self._last_shift)
            return self._credits(fifo, starts[begin:], left, begin, begin_left)
        used = self._credits(fifo, starts, left)
        if proof is not None and not proof.is_local(key, left_key, used):
            return self._credits(fifo, proof.whole(key, starts), proof.whole(left_key, left))
        return used

    def _credits(self, fifo: int, starts: Times, left: Times, begin: int = 0, begin_left: int = 0) -> int:
        """Return the most credits of a FIFO (beats stored or in flight) in use, from starts and departures.

        ``begin`` output folds and ``begin_left`` beats came before these.
        """
        link, used = self.config.links[fifo], 0
        layer = self._layers[link.source]
        window = layer.config.window.output_folds
        at_once = max(CHUNK_EVENTS // window, 1) * window
        for first in range(0, len(starts), at_once):
            last = min(first + at_once, len(starts))
            back = np.searchsorted(left, starts[first:last] - layer.config.credit_delay, side="right") + begin_left
            used = max(used, int((layer.claimed(link.output, slice(begin + first, begin + last)) - back).max()))
        return used

    @property
    def frame_ends(self) -> Times:
        """Array (int64) of the cycles of each frame's last output transfer, over all outputs."""
        return np.maximum.reduce([self._frame_ends(stream) for stream in self._streams_into[-1]])

    def _frame_ends(self, stream: int) -> Times:
        """Return, as `Times`, an int64 array: the cycle when a stream's reader accepts each frame's last beat."""
        key = "taken", stream
        times = self._system.times(key)
        if self._proof is not None:
            return self._proof.frame_ends(key, times)
        return times.reshape(self.frames, -1)[:, -1].astype(np.int64)

    @property
    def cycles(self) -> Cycles:
        """`Cycles` (latency and interval) of the accelerator in this schedule, which is solved first."""
        self.solve()
        ends = self.frame_ends
        distances = np.diff(ends)
        return Cycles(
            latency=int(ends[0])
            - min(int(self._system.times(("taken", entry))[0]) for entry in range(len(self.config.input_links))),
            interval=int(distances[-1]) if self.frames >= 3 else None,
            steady=self.frames < 3 or bool(distances[-1] == distances[-2] and not self.falls_behind(distances[-1])),
        )

    @property
    def _pattern_frames(self) -> int:
        """Number of frames in the longest repeating pattern of frame lengths that the schedule can detect."""
        return min(max((self.frames - 1) // 2, 1), MAX_PATTERN_FRAMES)

    def paces(self) -> Times:
        """Return `Times`: each stream's average cycles per frame over the schedule's last frames, rounded up.

        A single frame has the averages 0.
        """
        window = min(self._pattern_frames, self.frames - 1)
        ends = (self._frame_ends(stream) for stream in range(len(self._streams)))
        return np.array([-(-(cycles[-1] - cycles[-1 - window]) // max(window, 1)) for cycles in ends])

    def falls_behind(self, paces: Times | int) -> bool:
        """Return whether a stream takes more cycles per frame than its given pace, judged by its last frames.

        A layer falls behind in one of two cases. Each of its last frames takes longer than the pace. Or its largest
        delay against the pace in the last frames exceeds the largest delay in as many frames before. At a pace of 49 a
        layer that alternates between 48 and 50 cycles keeps up. A layer that takes 49 cycles, but 50 in every eleventh
        frame, does not: its outputs are late once its lead over other layers is consumed.

        Parameters
        ----------
        paces : Times or int
            Cycles per frame, for each stream or for all.
        """
        window = self._pattern_frames
        if self.frames < 2:
            return False
        ends = np.array([self._frame_ends(stream) for stream in range(len(self._streams))])
        delays = ends - np.arange(self.frames) * np.broadcast_to(paces, len(ends))[:, None]
        later = delays[:, -window:].max(axis=1) > delays[:, -2 * window : -window].max(axis=1)
        longer = (np.diff(delays)[:, -min(window, LAST_FRAMES) :] > 0).all(axis=1)
        return bool((later | longer).any())


def endless_cycles(config: AcceleratorConfig, frames: int | None = None) -> Cycles:
    """Return `Cycles`: the latency and interval, in cycles, that an accelerator would have with unbounded FIFOs.

    The schedule has ``frames`` frames, or by default as many as it needs to settle.
    """
    return with_few_rows(config, frames, lambda kept: _endless_cycles(config, frames, kept))


def _endless_cycles(config: AcceleratorConfig, frames: int | None, kept: int | None) -> Cycles:
    """Return `Cycles` as `endless_cycles` does, from a schedule of all map rows, or only ``kept`` strips."""
    depths = [None] * len(config.links)
    cycles = Schedule(config, frames or 3, depths=depths, kept=kept).cycles
    if frames is None:
        cycles = Schedule(config, enough_frames(config, cycles), depths=depths, kept=kept).cycles
    return cycles


def check_events(config: AcceleratorConfig, frames: int) -> None:
    """Refuse to schedule an accelerator whose events (transfers and computation starts) would take too much memory.

    Raises
    ------
    PlanError
        If there are more than `MAX_EVENTS` events. The message names the layer with the most events.
    """
    counts = event_counts(config, frames)
    if sum(counts) > MAX_EVENTS:
        largest = config.layers[counts.index(max(counts))]
        raise PlanError(
            f"{largest.name}: {frames} frames are {sum(counts):,} events (beats and output folds), but at most "
            f"{MAX_EVENTS:,} are scheduled: take a smaller map, fewer layers or more DSP slices"
        )


def event_counts(config: AcceleratorConfig, frames: int) -> list[int]:
    """Return, for ``frames`` frames, a list of each layer's number of scheduled events (transfers, starts)."""
    return [
        frames * (sum(layer.input_beats) + layer.beats + layer.beats // sum(layer.fold_beats) * len(layer.fold_beats))
        for layer in config.layers
    ]


def with_few_rows(config: AcceleratorConfig, frames: int | None, compute: Callable[[int | None], T]) -> T:
    """Return ``compute``'s result from a schedule cut to few map rows that proves the times of the rest.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator to schedule.
    frames : int or None
        Largest number of frames, back to back.
    compute : callable
        Computes the result of schedules that keep so many strips of rows, ``None`` for all rows. A strip has the fewest
        rows that are a whole number in each map.
    """
    events = sum(event_counts(config, MIN_SETTLED_FRAMES if frames is None else min(frames, MIN_SETTLED_FRAMES)))
    for kept in KEPT_STRIPS if events > LONG_RUN_EVENTS else ():
        try:
            return compute(kept)
        except UnsettledError:
            continue
    return compute(None)


def enough_frames(config: AcceleratorConfig, cycles: Cycles) -> int:
    """Return the number of frames that a schedule must cover until the cycles between frames have settled.

    After that many frames the beats in flight have been replaced twice, and three more frames follow. By then a loop of
    credits that loses part of a cycle per round shows it. The beats in flight are estimated from ``cycles`` of a few
    frames. Small networks get more frames, because these cost nothing.
    """
    in_flight = cycles.latency // (cycles.interval or cycles.latency)
    beats = max(max(layer.beats_in, layer.beats_out) for layer in config.layers)
    return max(3 + 2 * in_flight, min(MIN_BEATS // beats, MAX_FRAMES))


def steady_cycles(config: AcceleratorConfig, frames: int | None = None) -> Cycles:
    """Return `Cycles`: the latency and the steady interval, in cycles, that an accelerator has for frames back to back.

    The result covers ``frames`` frames, or by default as many as the schedule needs to settle. An interval has settled
    once it has not changed for `enough_frames` and no layer consumes a lead. The first frames are left out, and two
    equal distances are not enough: they can be part of a repeating pattern. Layers can alternately lose and gain a
    lead. The search covers at most four times as many frames for them, so that long runs cost no more than short ones.
    """
    return with_few_rows(config, frames, lambda kept: _steady_cycles(config, frames, kept))


def _steady_cycles(config: AcceleratorConfig, frames: int | None, kept: int | None) -> Cycles:
    """Return `Cycles` as `steady_cycles` does, from schedules of all map rows, or only ``kept`` strips."""
    covered, limit = 3, min(frames or MAX_FRAMES, MAX_FRAMES)
    while True:
        covered = min(covered, limit)
        schedule = Schedule(config, covered, kept=kept)
        cycles = schedule.cycles
        if covered == limit or has_settled(schedule):
            return cycles
        covered = max(covered + 2, enough_frames(config, cycles))


def has_settled(schedule: Schedule) -> bool:
    """Return whether a solved schedule has enough frames, and an equal interval between the last of them."""
    cycles = schedule.cycles
    enough = enough_frames(schedule.config, cycles)
    distances = np.diff(schedule.frame_ends)[1 - enough :]
    covers = schedule.frames >= (1 if cycles.steady else 4) * enough
    return covers and bool((distances[1:] == cycles.interval).all())


#: Number of frames that `check_stall` schedules. No output needs a beat of a later frame, so a graph that finishes one
#: frame finishes all. The other frames cover rows and beats of consecutive frames in the same buffers.
_CHECKED_FRAMES = 3


def check_stall(config: AcceleratorConfig) -> None:
    """Refuse FIFO depths that let a graph of layers deadlock; a chain of layers never deadlocks.

    Raises
    ------
    PlanError
        If the graph deadlocks. The message names a FIFO that is full while its reader waits.
    """
    if not config.is_chain:
        Schedule(config, _CHECKED_FRAMES).solve()
