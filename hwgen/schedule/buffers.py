"""Smallest line buffers and FIFO depths that cost neither latency nor throughput.

The reference is the latency and the interval of line buffers with rows to spare and endless FIFOs, in a run of any
number of frames. The search has two parts:

1. The rows of the line buffers. A layer gets the fewest rows that let the last output of every frame keep its cycle.
2. The FIFO depths, one FIFO after the other. A FIFO gets the smallest depth that keeps latency and interval, given all
   other depths. In a graph the FIFO that would hold the most bits is first.

Two conditions keep the interval. No frame follows the previous frame at a greater distance than in the reference. No
layer takes longer, on average over the last frames, than the interval or than in the reference. A slower layer would
consume its lead over the other layers, and then its outputs would be late.

A slip of all frames but the first loses nothing, because no interval precedes the second frame. A slip that later
frames make up for loses nothing either. But a slip can let other FIFOs slip too. Therefore the search repeats the
second part until no FIFO can be shallower. The test is the exact schedule, not a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.maps import Window
from hwgen.progress import tell
from hwgen.schedule.rows import UnsettledError
from hwgen.schedule.solve import (
    MIN_SETTLED_FRAMES,
    Cycles,
    Schedule,
    Times,
    check_events,
    enough_frames,
    has_settled,
    with_few_rows,
)

#: Number of beats, with a margin, that can arrive at a line buffer between the end of a window and the first beat that
#: overwrites the window.
IN_FLIGHT = 8

#: Maximum number of cycles that a trial of a FIFO depth may delay the end of a frame. The limit ends a failing trial
#: soon.
MAX_SLIP_CYCLES = 64

#: Divisor of a FIFO depth's lower bound in beats: the second trial is deeper than the first by the quotient.
FIRST_STEP = 64


def ample_rows(window: Window, width: int, folds: int) -> int:
    """Return the number of line buffer rows above which more rows bring no more throughput.

    The rows hold the last windows of a frame and the first windows of the next frame at once, the beats that arrive
    while the layer computes windows in the padding, and the beats in flight while the buffer releases a row.

    Parameters
    ----------
    window : Window
        Kernel, stride and padding of the layer.
    width : int
        Width of the input map, in steps of pixels.
    folds : int
        Number of beats per step.
    """
    top, _, bottom, _ = window.padding
    in_flight = -(-IN_FLIGHT // (width * folds))
    return 2 * window.extent[0] + window.stride[0] + max(top, 0) + max(bottom, 0) + in_flight


@dataclass(frozen=True)
class Sizes:
    """Line-buffer rows and FIFO depths of an accelerator's layers, with latency and interval (cycles) they reach.

    Attributes
    ----------
    rows : list of int
        Rows of each layer's line buffer.
    depths : list of tuple of int
        Depths of each layer's output FIFOs.
    latency : int
        Cycles from the first input beat of the first frame to the frame's last output transfer.
    steady : Cycles or None
        Latency and steady interval; ``None`` if the search has scheduled too few frames.
    """

    rows: list[int]
    depths: list[tuple[int, ...]]
    latency: int
    steady: Cycles | None


def sizes_of(config: AcceleratorConfig, frames: int | None = None) -> Sizes:
    """Return the `Sizes` with the fewest line-buffer rows and smallest FIFO depths that keep latency and interval.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator with ample rows. A layer that works in tiles keeps its rows. The depths of ``config`` do not matter.
    frames : int, optional
        Largest number of consecutive frames; unlimited by default.
    """
    return with_few_rows(config, frames, lambda kept: _sizes_of(config, frames, kept))


def _sizes_of(config: AcceleratorConfig, frames: int | None, kept: int | None) -> Sizes:
    """Return `Sizes` as `sizes_of` does, from schedules of all map rows, or only ``kept`` strips (runs of rows)."""
    if frames is None:
        if kept is None:
            check_events(config, MIN_SETTLED_FRAMES)  # refuse early: a schedule of three frames can take long already
        endless = Schedule(config, 3, depths=[None] * len(config.links), kept=kept)
        frames = enough_frames(config, endless.cycles)
    schedule = _Trials(config, frames, kept)
    target = schedule.frame_ends
    latest, paces = schedule.latest(target), _paces(schedule)
    task, count = "sizing buffers", len(config.layers) + len(config.links)
    for layer_index, layer in enumerate(config.layers):
        tell(task, layer_index, count, "buffer")
        for rows in range(layer.min_rows, layer.window.rows):
            if schedule.reduce(target, latest, layer_index, rows=rows) and not schedule.falls_behind(paces):
                schedule.mark()
                break
            schedule.revert()
    shrunk = _with_rows(config, schedule.rows)
    if [layer.pipeline_latency for layer in shrunk.layers] != [layer.pipeline_latency for layer in config.layers]:
        # The hardware reads a ring of one row a cycle faster, so fewer credits are in flight.
        schedule = _Trials(shrunk, frames, kept)
        target, paces = schedule.frame_ends, _paces(schedule)
    deadline = target + MAX_SLIP_CYCLES
    deadline[0] = target[0]
    deadlines = _Deadlines(schedule, deadline)
    undecided, before = _search_order(schedule), None
    while undecided and before != schedule.depths:
        before = list(schedule.depths)
        for fifo in list(undecided):
            link = config.links[fifo]
            floor = max(config.layers[link.source].claims[link.output])
            if _minimise_depth(schedule, fifo, floor, target, deadlines, paces):
                undecided.remove(fifo)
                tell(task, count - len(undecided), count, "buffer")
    depths = config.split_by_layer([depth for depth in schedule.depths if depth is not None])
    steady = schedule.cycles if has_settled(schedule) else None
    return Sizes(schedule.rows, depths, schedule.cycles.latency, steady)


def _search_order(schedule: Schedule) -> list[int]:
    """Return a list of all FIFOs' indices in search order: in a graph most bits first, in a chain as they stand.

    In a graph the FIFO that would hold the most bits is first: a shallower skip connection can need a deeper FIFO on
    the parallel path. A chain has no such choice and keeps its order.
    """
    config = schedule.config
    fifos = range(len(config.links))
    if config.is_chain:
        return list(fifos)
    widths = [fifo.width for layer in config.layers for fifo in layer.fifos]
    return sorted(fifos, key=lambda fifo: -schedule.credits_used(fifo) * widths[fifo])


def _with_rows(config: AcceleratorConfig, rows: list[int]) -> AcceleratorConfig:
    """Return an `AcceleratorConfig`: a copy whose layers have line buffers of the given numbers of rows."""
    layers = (layer.with_rows(count) for layer, count in zip(config.layers, rows, strict=True))
    return replace(config, layers=tuple(layers))


def _paces(schedule: Schedule) -> Times:
    """Return `Times`, one entry per stream: maximum average cycles per frame that keep the throughput."""
    interval = schedule.frame_ends[-1] - schedule.frame_ends[-2:][0]
    return np.maximum(schedule.paces(), interval)


class _Trials(Schedule):
    """Schedule of an accelerator with endless FIFOs, to try smaller FIFO depths and fewer line buffer rows.

    If rows are left out, a late event does not end a trial. Another schedule, with the first frame only, then ends
    most of the trials that fail.
    """

    def __init__(self, config: AcceleratorConfig, frames: int, kept: int | None):
        depths: list[None] = [None] * len(config.links)
        super().__init__(config, frames, depths=depths, kept=kept)
        self._first = None if kept is None or frames == 1 else Schedule(config, 1, depths=depths, kept=kept)
        self.mark()

    def reduce(self, deadline: Times, latest: Times, index: int, **size: int) -> bool:
        """Reduce a FIFO's depth or a line buffer's rows, and reschedule; return whether each frame meets its deadline.

        The schedule may be left unfinished.

        Parameters
        ----------
        deadline : Times
            Latest cycle of the end of each frame.
        latest : Times
            Latest cycle of each event, by `latest`.
        index, size
            What is reduced, as for `shrink`.
        """
        self.shrink(index, **size)
        first = self._first
        if first is not None and not (first.solve(latest) and first.frame_ends[0] <= deadline[0]):
            return False
        return self.solve(latest) and bool((self.frame_ends <= deadline).all())

    def latest(self, deadline: Times, *, endless: bool = True) -> Times:
        if self._first is not None:
            return self._first.latest(deadline[:1], endless=endless)
        return super().latest(deadline, endless=endless)

    def credits_used(self, fifo: int, latest: Times | None = None) -> int:
        if self._first is not None and latest is not None:
            return self._first.credits_used(fifo, latest)
        return super().credits_used(fifo, latest)

    def mark(self) -> None:
        super().mark()
        if self._first is not None:
            self._first.mark()

    def revert(self) -> None:
        super().revert()
        if self._first is not None:
            self._first.revert()

    def shrink(self, index: int, *, depth: int | None = None, rows: int | None = None) -> None:
        super().shrink(index, depth=depth, rows=rows)
        if self._first is not None:
            self._first.shrink(index, depth=depth, rows=rows)


class _Deadlines:
    """Latest cycle of each scheduled event (transfer, computation start) that lets all frames meet their deadline."""

    def __init__(self, schedule: _Trials, deadline: Times):
        self._schedule, self._deadline = schedule, deadline
        # At first all FIFOs count as endless, whatever their depths. The first trial sharpens the latest times.
        self._latest, self._wasted = schedule.latest(deadline), schedule.events
        self._depths = list(schedule.depths)

    def sharpen(self) -> bool:
        """Recompute each event's latest allowed cycle with the current FIFO depths, if due; return whether it was due.

        The recomputation is due once failed trials have moved as many events as the schedule has. If rows are left out,
        it takes little time, and is due once a depth has changed.
        """
        schedule = self._schedule
        worth = self._depths != schedule.depths if schedule.is_cut else self._wasted >= schedule.events
        if worth:
            self._latest, self._wasted = schedule.latest(self._deadline, endless=False), 0
            self._depths = list(schedule.depths)
        return worth

    def depth_bound(self, fifo: int) -> int:
        """Return a lower bound of a FIFO's depth in beats; with less, some event would miss its deadline."""
        return self._schedule.credits_used(fifo, self._latest)

    def are_met(self, fifo: int, depth: int) -> bool:
        """Reduce a FIFO's depth; return whether all events meet their deadlines (if not, maybe unsolved)."""
        on_time = self._schedule.reduce(self._deadline, self._latest, fifo, depth=depth)
        if not on_time:
            self._wasted += self._schedule.moved
        return on_time


def _minimise_depth(
    schedule: _Trials, fifo: int, floor: int, target: Times, deadlines: _Deadlines, paces: Times
) -> bool:
    """Reduce one FIFO to the smallest depth that costs no cycles; return whether this depth is surely final.

    A bisection runs between a lower bound and the depth in use. The lower bound is the depth that lets all events be in
    time if no other event moves. It is usually sufficient, so it is the first trial.

    If rows are left out, one trial may prove nothing. It counts as a failure if a deeper FIFO is proved to fail.

    Parameters
    ----------
    schedule : Schedule
        Schedule whose FIFO is changed.
    fifo : int
        Index of the FIFO in ``config.links``.
    floor : int
        Smallest depth that the hardware allows.
    target : Times
        Cycle of each frame's last output without a loss.
    deadlines : _Deadlines
        Latest times of all events, with the allowed slip.
    paces : Times
        Largest average number of cycles per frame of each stream.

    Returns
    -------
    bool
        Whether the depth remains the smallest when other FIFOs become shallower: with less, a frame would be later than
        any slip allows.

    Raises
    ------
    UnsettledError
        If the kept rows do not prove which depth is the smallest.
    """
    low, high = (max(depth, floor) for depth in (deadlines.depth_bound(fifo), schedule.credits_used(fifo)))
    unsettled = None
    # If rows are left out, a deep FIFO would make rows wait for others far away, and less can be proved of these.
    is_endless = schedule.is_cut and low < high
    if not is_endless:
        schedule.shrink(fifo, depth=high)
    middle, is_final, step = low, True, max(low // FIRST_STEP, 1)
    while low < high:
        schedule.mark()
        if deadlines.sharpen() and (bound := deadlines.depth_bound(fifo)) > low:
            low, middle, is_final = bound, bound, True
            continue
        try:
            on_time = deadlines.are_met(fifo, middle)
            costs_nothing = _costs_nothing(schedule, on_time, target, paces)
        except UnsettledError:
            # Too shallow, perhaps: then the rows drift apart. A deeper FIFO whose rows prove a loss decides it.
            if unsettled is not None:
                raise
            unsettled, on_time, costs_nothing = middle, True, False
        if costs_nothing:
            high, is_endless = middle, False
        else:
            schedule.revert()
            low, is_final = middle + 1, not on_time
            step *= 2
        middle = min((low + high) // 2, low + step if is_endless else high)
    if unsettled == low - 1:
        raise UnsettledError
    if is_endless:
        schedule.shrink(fifo, depth=high)
    schedule.mark()
    return is_final


def _costs_nothing(schedule: Schedule, on_time: bool, target: Times, paces: Times) -> bool:
    """Return whether a trial is on time, delays no frame more than the previous one, and keeps every stream's pace."""
    if not on_time:
        return False
    slips = schedule.frame_ends[1:] - target[1:]
    return bool((np.diff(slips) <= 0).all()) and not schedule.falls_behind(paces)
