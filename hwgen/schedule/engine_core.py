"""Cycles of the engine's compute core: when each group begins, ends and is drained, and when jobs begin to count.

What a core is told from outside may depend on what it did before. So `CoreSchedule` goes on in time, from event to
event, a few for each pixel group, and its user tells it meanwhile what happens::

    schedule = CoreSchedule(config, finish=9)
    schedule.offer_compute(part, 0)
    schedule.offer_drain(other, 0)
    schedule.load(120)  # another job counts as loaded from cycle 120 on
    schedule.advance(200)  # nothing else happens before cycle 200
    schedule.computed  # of the jobs that were computed, the cycle from which on they count
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from hwgen.gateware.engine.array import Array
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.core import words_latency
from hwgen.gateware.engine.drain import DrainWalk
from hwgen.gateware.engine.job import Compute, Drain
from hwgen.gateware.engine.steps import Steps

P = TypeVar("P", Compute, Drain)


def group_steps(part: Compute) -> int:
    """Steps of a pixel group."""
    channels = -(-part.channels // LANES) if part.channelwise else part.channels
    return part.kernel_rows * part.kernel_columns * channels


@dataclass(frozen=True)
class Span:
    """First and last cycle of something."""

    first: int
    last: int


class _Queue(Generic[P]):
    """Parts that come to a unit; the next one waits in a register of the unit until its turn."""

    def __init__(self) -> None:
        self.parts: list[P] = []
        self.offered: list[int] = []
        self.accepted: list[int] = []
        self.taken = 0
        self.free = 0

    def offer(self, part: P, cycle: int) -> None:
        self.parts.append(part)
        self.offered.append(cycle)
        self._accept()

    def take(self, cycle: int) -> P:
        """Its turn comes with the cycle after this one."""
        part = self.parts[self.taken]
        self.taken += 1
        self.free = cycle + 1
        self._accept()
        return part

    @property
    def next(self) -> P | None:
        return self.parts[self.taken] if self.taken < len(self.accepted) else None

    def _accept(self) -> None:
        if len(self.accepted) == self.taken < len(self.offered):
            self.accepted.append(max(self.offered[self.taken], self.free))


class CoreSchedule:
    """When a `Core` does what.

    A cycle is that in which a port first has a value: a count, a ``valid`` or a beat. Those that are told may lie
    before or after the events that follow from them, but never before those that there were already.

    Parameters
    ----------
    config : EngineConfig
    finish : int
        Cycles from the last beat of a job to ``finished``.

    Attributes
    ----------
    computed, drained : list of int
        Of each job, the first cycle in which it counts as such. The last ones may lie ahead.
    groups : list of Span
        First and last step of each pixel group.
    drained_groups : list of Span
        Beats of each group with complete sums. There is none in those of these cycles that are in ``yielded``.
    """

    def __init__(self, config: EngineConfig, finish: int):
        self._config, self._finish = config, finish
        self._words = words_latency(config)
        self.computed: list[int] = []
        self.drained: list[int] = []
        self.groups: list[Span] = []
        self.drained_groups: list[Span] = []
        self.yielded: list[int] = []
        self._loaded: list[int] = []
        self._stored: list[int] = []
        # The compute side: the job, its groups that are to begin, the last step so far, groups that took a slot.
        self._computes: _Queue[Compute] = _Queue()
        self._job = Compute()
        self._left = 0
        self._last_step = 0
        self._opened = 0
        # From then on a group's first sums may be selected.
        self._complete: list[int] = []
        # The drain side: the job, its pixels that are to begin, groups begun, first and last selection of the one that
        # is drained, the cycle after it, the last job's ``finished``.
        self._drains: _Queue[Drain] = _Queue()
        self._drain = Drain()
        self._pixels = 0
        self._begun = 0
        self._selected: Span | None = None
        self._released: list[int] = []
        self._finished = -1

    @property
    def accepted(self) -> tuple[list[int], list[int]]:
        """Of each part for the array and for the drain, the cycle in which it is transferred."""
        return self._computes.accepted, self._drains.accepted

    def offer_compute(self, part: Compute, cycle: int) -> None:
        """The next part is valid from ``cycle`` on, or from when the one before is transferred."""
        self._computes.offer(part, cycle)

    def offer_drain(self, part: Drain, cycle: int) -> None:
        """As `offer_compute`."""
        self._drains.offer(part, cycle)

    def load(self, cycle: int) -> None:
        """Another job counts as loaded."""
        self._loaded.append(cycle)

    def store(self, cycle: int) -> None:
        """Another job counts as stored."""
        self._stored.append(cycle)

    @property
    def next_event(self) -> float:
        """The cycle in which something happens next, if nothing is told until then; may be infinite."""
        return min(self._next_start(), self._next_drain())

    def advance(self, until: float) -> None:
        """Go on with all that happens before ``until``."""
        while True:
            start, drain = self._next_start(), self._next_drain()
            if min(start, drain) >= until:
                return
            if start <= drain:
                self._start(int(start))
            else:
                self._go_on(int(drain))

    def _next_start(self) -> float:
        """The cycle before the next group's first step, or before the turn of a job without groups."""
        if self._left:
            job, cycle = self._job, self._last_step
            if not job.first and job.groups == 2 and group_steps(job) == 1:
                cycle += 1  # the sums of the slot's last visit are not yet there
        else:
            job, number = self._computes.next, self._computes.taken
            if job is None or number >= len(self._loaded):
                return inf
            ready = self._computes.accepted[number] + Steps.FETCH - 1 + job.walk * self._config.pixels
            cycle = max(ready, self._loaded[number] + Steps.START - 1, self._last_step)
        if job.first and job.groups and self._opened >= self._config.slots:
            before = self._opened - self._config.slots
            return max(cycle, self._released[before] + 1) if before < len(self._released) else inf
        return cycle

    def _start(self, cycle: int) -> None:
        if not self._left:
            self._job = self._computes.take(cycle)
            self._left = self._job.groups
            if not self._left:
                self._last_step = cycle + 1
                self.computed.append(self._last_step + self._words)
                return
        job = self._job
        self._left -= 1
        self._opened += job.first
        self._last_step = cycle + group_steps(job)
        self.groups.append(Span(cycle + 1, self._last_step))
        if not self._left:
            self.computed.append(self._last_step + self._words)
        if job.last:
            self._complete.append(self._last_step + self._words + Array.SUM_LATENCY)
        if not job.first and job.groups > 1:
            self._yield(cycle + 1 + self._words + Array.YIELD)

    def _yield(self, cycle: int) -> None:
        """There is no selection in that cycle."""
        self.yielded.append(cycle + Array.DRAIN_LATENCY)
        if self._selected and self._selected.first <= cycle <= self._selected.last:
            self._selected = Span(self._selected.first, self._selected.last + 1)

    def _next_drain(self) -> float:
        """The last selection of the group that is drained, or the cycle before the next group's first one."""
        if self._selected:
            return self._selected.last
        complete = self._complete[self._begun] - 1 if self._begun < len(self._complete) else inf
        free = self._released[-1] if self._released else 0
        if self._pixels:
            return max(free, complete)
        job, number = self._drains.next, self._drains.taken
        if job is None or job.wait_stored > len(self._stored):
            return inf
        stored = self._stored[job.wait_stored - 1] if job.wait_stored else 0
        ready = max(self._drains.accepted[number] + DrainWalk.FETCH - 1, stored + DrainWalk.START - 1)
        if job.blocks and job.pixels:
            return max(ready, free, complete)
        return max(ready, self._finished + 1)

    def _go_on(self, cycle: int) -> None:
        if self._selected:
            self._end_group(cycle)
            return
        if not self._pixels:
            job = self._drains.take(cycle)
            if not (job.blocks and job.pixels):
                self.drained.append(cycle + 1)
                return
            self._drain, self._pixels = job, job.pixels
        beats = min(self._pixels, self._config.pixels) * self._drain.blocks
        self._begun += 1
        last = cycle + beats
        for out in self.yielded[bisect_left(self.yielded, cycle + 1 + Array.DRAIN_LATENCY) :]:
            last += out - Array.DRAIN_LATENCY <= last
        self._selected = Span(cycle + 1, last)

    def _end_group(self, cycle: int) -> None:
        assert self._selected
        late = Array.DRAIN_LATENCY
        self.drained_groups.append(Span(self._selected.first + late, cycle + late))
        self._selected = None
        self._released.append(cycle)
        self._pixels -= min(self._pixels, self._config.pixels)
        if not self._pixels:
            self._finished = cycle + late + self._finish
            self.drained.append(self._finished + 1)
