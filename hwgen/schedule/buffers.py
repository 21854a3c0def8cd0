"""The least line buffers and FIFOs with which nothing is lost.

Nothing lost means: the latency and interval of line buffers with rows to spare and FIFOs without end, in a run of any
number of frames. Rows are settled first, by the least number that keeps every frame's last output where it was; then
the FIFOs one after the other, each by the least depth that keeps latency and interval, given the others. The interval
is kept if no frame follows the one before it at a greater distance than it did, and no layer takes longer on average
of the last frames than the interval, or than it did: it would live on what came early, until that is gone. There is no
interval between the first two frames, so a slip of all frames but the first is no loss, nor one that later frames make
good. It may let other FIFOs slip too, so they are gone through again until none can be less. In a graph those FIFOs
come first that would hold the most bits. The test is the exact schedule, not a simulation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.maps import Window
from hwgen.progress import tell
from hwgen.schedule.solve import LEAST_FRAMES, Schedule, Times, check_events, enough_frames, shorter

#: Beats that can come in between a window's end and the first that takes its place, with some to spare.
IN_FLIGHT = 8

#: Cycles by which frames may slip at most; so that a trial that loses something ends soon.
MOST_SLIP = 64


def ample_rows(window: Window, width: int, folds: int) -> int:
    """Rows beyond which more never help, for an input ``width`` steps of pixels wide in ``folds`` beats each.

    The last windows of a frame and the first of the next at once, what comes in while windows in the padding are
    computed, and the beats that are in flight while a row is given back.
    """
    top, _, bottom, _ = window.padding
    in_flight = -(-IN_FLIGHT // (width * folds))
    return 2 * window.extent[0] + window.stride[0] + max(top, 0) + max(bottom, 0) + in_flight


def size_buffers(config: AcceleratorConfig, frames: int | None = None) -> tuple[list[int], list[tuple[int, ...]]]:
    """Rows of each layer's line buffer, and depths of each layer's FIFOs.

    Parameters
    ----------
    config : AcceleratorConfig
        Holds ample rows, which stay as they are where layers work in tiles; its depths don't matter.
    frames : int, optional
        Frames that follow each other at most; any number by default.
    """
    if (short := shorter(config, frames)) is not None:
        found = [size_buffers(lower, frames) for lower in short[0][1:]]
        if found[0] == found[1]:
            return found[0]
    depths = [None] * len(config.links)
    if frames is None:
        check_events(config, LEAST_FRAMES)  # at once: the schedule of the first three may take long already
        frames = enough_frames(config, Schedule(config, 3, depths=depths).cycles)
    schedule = Schedule(config, frames, depths=depths)
    schedule.mark()
    target = schedule.frame_ends
    latest, paces = schedule.latest(target), _paces(schedule)
    what, count = "sizing buffers", len(config.layers) + len(config.links)
    for number, layer in enumerate(config.layers):
        tell(what, number, count, "buffer")
        for rows in range(layer.least_rows, layer.window.rows):
            schedule.shrink(number, rows=rows)
            if schedule.solve(latest) and not schedule.falls_behind(paces):
                schedule.mark()
                break
            schedule.revert()
    shrunk = _with_rows(config, schedule.rows)
    if [layer.pipeline_latency for layer in shrunk.layers] != [layer.pipeline_latency for layer in config.layers]:
        # A ring of one row is read a cycle faster: fewer credits are in flight.
        schedule = Schedule(shrunk, frames, depths=depths)
        schedule.solve()
        target, paces = schedule.frame_ends, _paces(schedule)
    deadline = target + MOST_SLIP
    deadline[0] = target[0]
    deadlines = _Deadlines(schedule, deadline)
    undecided, before = _order(schedule), None
    while undecided and before != schedule.depths:
        before = list(schedule.depths)
        for number in list(undecided):
            least = max(config.layers[config.links[number].source].fold_beats)
            if _least_depth(schedule, number, least, target, deadlines, paces):
                undecided.remove(number)
                tell(what, count - len(undecided), count, "buffer")
    return schedule.rows, config.by_layer([depth for depth in schedule.depths if depth is not None])


def _order(schedule: Schedule) -> list[int]:
    """FIFOs in the order in which they are made shallower: in a graph those that would hold the most bits first.

    Of a shortcut and the FIFOs beside it one may be shallower where another is deeper; in a chain there is no choice.
    """
    config = schedule.config
    numbers = range(len(config.links))
    if config.is_chain:
        return list(numbers)
    widths = [fifo.width for layer in config.layers for fifo in layer.fifos]
    return sorted(numbers, key=lambda number: -schedule.credits_used(number) * widths[number])


def _with_rows(config: AcceleratorConfig, rows: list[int]) -> AcceleratorConfig:
    layers = (layer.with_rows(count) for layer, count in zip(config.layers, rows, strict=True))
    return replace(config, layers=tuple(layers))


def _paces(schedule: Schedule) -> Times:
    """Return the cycles a frame in which each stream may be taken at most in the long run."""
    interval = schedule.frame_ends[-1] - schedule.frame_ends[-2:][0]
    return np.maximum(schedule.paces(), interval)


class _Deadlines:
    """Latest times of all events of a schedule, for no frame to end later than it may."""

    def __init__(self, schedule: Schedule, deadline: Times):
        self._schedule, self._deadline = schedule, deadline
        # Whatever the depths are: FIFOs count as endless. The first trial sharpens these times.
        self._latest, self._wasted = schedule.latest(deadline), schedule.events

    def sharpen(self) -> bool:
        """Take the present depths into account, if trials that failed moved as many events as that costs."""
        worth = self._wasted >= self._schedule.events
        if worth:
            self._latest, self._wasted = self._schedule.latest(self._deadline, endless=False), 0
        return worth

    def least_depth(self, number: int) -> int:
        """Return a lower bound of the depth of FIFO ``number``: with less, some event would be later than it may be."""
        return self._schedule.credits_used(number, self._latest)

    def solve(self) -> bool:
        """Solve the schedule as far as no event is later than it may be; whether none is."""
        on_time = self._schedule.solve(self._latest)
        if not on_time:
            self._wasted += self._schedule.moved
        return on_time


def _least_depth(
    schedule: Schedule, number: int, least: int, target: Times, deadlines: _Deadlines, paces: Times
) -> bool:
    """Make FIFO ``number`` as shallow as may be, between what is needed for sure and what is used.

    What is needed for all to be in time, if nothing else comes later, is mostly enough; it is tried first, then what
    lies between by bisection. Returns whether the depth stays the least when other FIFOs become shallower, because
    with less a frame would be later than any slip allows.

    ``deadlines``: by when events must happen for frames to slip no more than is allowed.
    """
    low, high = (max(depth, least) for depth in (deadlines.least_depth(number), schedule.credits_used(number)))
    schedule.shrink(number, depth=high)
    middle, final = low, True
    while low < high:
        schedule.mark()
        if deadlines.sharpen() and (needed := deadlines.least_depth(number)) > low:
            low, middle, final = needed, needed, True
            continue
        schedule.shrink(number, depth=middle)
        on_time = deadlines.solve()
        late = schedule.frame_ends[1:] - target[1:]
        if on_time and (np.diff(late) <= 0).all() and not schedule.falls_behind(paces):
            high = middle
        else:
            schedule.revert()
            low, final = middle + 1, not on_time
        middle = (low + high) // 2
    schedule.solve()
    return final
