"""Cycles of the engine's compute core: start and end of each pixel group, its drain, and the completion of jobs.

The core's inputs can depend on its earlier outputs. So `CoreSchedule` advances from event to event, a few for each
pixel group, and its user reports the inputs meanwhile::

    schedule = CoreSchedule(config, 9, jobs)
    schedule.offer_compute(0)
    schedule.offer_drain(0)
    schedule.load(120)  # another job counts as loaded from cycle 120 on
    schedule.advance(200)  # no other input before cycle 200
    schedule.computed  # first cycle in which each computed job counts as such

`hwgen.schedule.engine_loops` holds the compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import attrgetter

import numpy as np

from hwgen.gateware.engine.array import Array, sum_latency, yield_latency
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.core import words_latency
from hwgen.gateware.engine.drain import ONE_WORD_FLAGS, DrainWalk
from hwgen.gateware.engine.job import Compute, Job
from hwgen.gateware.engine.steps import Steps
from hwgen.schedule import engine_loops as loops

_COMPUTE = ("groups", "folds", "first", "last", "walk", "kernel_rows", "kernel_columns", "channels", "channelwise")
_DRAIN = ("blocks", "channelwise", "pixels", "wait_stored", *ONE_WORD_FLAGS)


def group_steps(part: Compute) -> int:
    """Return the number of array cycles that a job spends on one pixel group (one output pixel per lane) in a fold."""
    return part.kernel_rows * part.kernel_columns * -(-part.channels // (LANES if part.channelwise else CHAIN))


def columns(jobs: Sequence[Job], part: str, names: Sequence[str]) -> np.ndarray:
    """Return chosen fields of one section (load, compute, drain or store) of each job, int64 ``(fields, jobs)``."""
    parts = map(attrgetter(part), jobs)
    return np.array([*map(attrgetter(*names), parts)], np.int64).reshape(len(jobs), len(names)).T


def group_steps_of(jobs: Sequence[Job]) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays by job: the number of pixel groups in all folds, and the array cycles that each group takes.

    A pixel group has one output pixel per lane of the array.
    """
    groups, folds, *_, rows, across, channels, channelwise = columns(jobs, "compute", _COMPUTE)
    return groups * folds, rows * across * -(-channels // np.where(channelwise, LANES, CHAIN))


class CoreSchedule:
    """Exact cycles of the engine's compute core (array and drain), computed from the cycles of its inputs.

    A cycle is the first cycle in which a port has a value: a count, a ``valid`` or a beat. The cycle of an input can be
    before or after the events that follow from it, but never before events that have already been computed.

    Parameters
    ----------
    config : EngineConfig
        Engine of the core.
    finish : int
        Cycles from the last beat of a job to ``finished``.
    jobs : sequence of Job
        Jobs whose parts are offered, in order.
    """

    def __init__(self, config: EngineConfig, finish: int, jobs: Sequence[Job]):
        groups, steps = group_steps_of(jobs)
        fold_groups, _, first, last, walk, *_ = columns(jobs, "compute", _COMPUTE)
        blocks, channelwise, pixels, wait_stored, *one_word_flags = columns(jobs, "drain", _DRAIN)
        fold_blocks = np.where(channelwise, 1, config.blocks)
        beat_pixels = np.where(np.any(one_word_flags, axis=0), 1, config.beat_words)
        sizes = loops.CoreSizes(
            array_pixels=config.pixels,
            slots=config.slots,
            words_latency=words_latency(config),
            sum_latency=sum_latency(config),
            yield_latency=yield_latency(config),
            fetch=Steps.FETCH,
            start=Steps.START,
            walked=Steps.WALKED,
            drain_latency=Array.DRAIN_LATENCY,
            drain_fetch=DrainWalk.FETCH,
            drain_start=DrainWalk.START,
            finish=finish,
        )
        parts = (groups, fold_groups, steps, first, last, walk, blocks, fold_blocks, pixels, wait_stored, beat_pixels)
        table = np.zeros(len(jobs), loops.CORE_JOB)
        for name, part in zip(loops.CORE_JOB.names or (), parts, strict=True):
            table[name] = part
        self.tables = loops.core_of(sizes, table)

    def _times(self, row: int) -> np.ndarray:
        """Return the known cycles of one kind of event (such as job computed) in the core, one entry per job."""
        return self.tables.times[row, : self.tables.known[row]]

    def _count(self, name: str) -> int:
        """Return a number in the core's state, such as that of pixel groups that have begun."""
        return int(self.tables.state[name][0])

    @property
    def computed(self) -> np.ndarray:
        """First cycle in which the core counts each computed job as computed. The last entries can be in the future."""
        return self._times(loops.COMPUTED)

    @property
    def drained(self) -> np.ndarray:
        """First cycle in which the core counts each drained job as drained, with all its outputs finished.

        The last entries can be in the future.
        """
        return self._times(loops.DRAINED)

    @property
    def accepted(self) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays of known cycles by job: the array accepts the job's part, and the drain accepts the job's part."""
        return self._times(loops.COMPUTE_ACCEPTED), self._times(loops.DRAIN_ACCEPTED)

    @property
    def groups(self) -> np.ndarray:
        """Cycles of the array's first and last step for each pixel group (one output pixel per lane), ``(n, 2)``."""
        return self.tables.groups[: self._count("num_groups")]

    @property
    def drained_groups(self) -> np.ndarray:
        """First and last cycle in which the array outputs the sums of each pixel group, ``(n, 2)``.

        Cycles in ``yielded`` have no beat.
        """
        sums = self.tables.sums[: self._count("num_released")]
        return np.stack([sums["first_beat"], sums["last_beat"]], axis=1)

    @property
    def yielded(self) -> np.ndarray:
        """Cycles in which the array outputs no sum to the drain, because it reads stored partial sums itself."""
        return self.tables.yields[: self._count("num_yielded")]

    def offer_compute(self, cycle: int) -> None:
        """Record that the next job is offered to the array from ``cycle`` on.

        If the array has not accepted the previous job by then, the offer begins when it has.
        """
        loops.offer(self.tables, loops.COMPUTE, cycle)

    def offer_drain(self, cycle: int) -> None:
        """Record that the next job is offered to the drain from ``cycle`` on.

        If the drain has not accepted the previous job by then, the offer begins when it has.
        """
        loops.offer(self.tables, loops.DRAIN, cycle)

    def load(self, cycle: int) -> None:
        """Record that the operands of one more job count as loaded from ``cycle`` on."""
        loops.count(self.tables, loops.LOADED, cycle)

    def store(self, cycle: int) -> None:
        """Record that the results of one more job count as stored from ``cycle`` on."""
        loops.count(self.tables, loops.STORED, cycle)

    @property
    def next_event(self) -> float:
        """Cycle of the core's next event (start or end of a pixel group or job) without further inputs, or infinity."""
        cycle = loops.next_event(self.tables)
        return inf if cycle >= loops.NEVER else cycle

    def advance(self, until: float) -> None:
        """Compute all events of the core (starts and ends of pixel groups and jobs) before cycle ``until``."""
        loops.advance(self.tables, int(min(until, loops.NEVER)))
