"""Exact cycles of the engine: each burst on the memory port, and each job's load, computation, drain and store.

The model covers the circuit connected to a memory without gaps (docs/reference/engine.md, "Memory port" and "Cycles of
the core"). It advances from burst to burst and, inside the core, from pixel group to pixel group.
`hwgen.schedule.engine_loops` holds the compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from operator import attrgetter

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.engine.array import Array, sum_latency, yield_latency
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.core import words_latency
from hwgen.gateware.engine.drain import ONE_WORD_FLAGS, DrainController
from hwgen.gateware.engine.finish import FinishConfig
from hwgen.gateware.engine.fixed_unit import run_cycles
from hwgen.gateware.engine.job import Compute, Job, job_bytes, job_words
from hwgen.gateware.engine.output_words import read_latency
from hwgen.gateware.engine.port import check_pace
from hwgen.gateware.engine.steps import StepSequencer
from hwgen.schedule import engine_loops as loops

#: Codes of the units that use the memory port (fetch, store, load), in the first column of `EngineCycles.bursts`.
FETCH, STORE, LOAD = loops.FETCHES, loops.STORES, loops.LOADS
#: Code of the unit that loads feature maps out of the on-chip map memory, not through the memory port.
KEPT_LOAD = loops.KEPT_LOADS
#: Names of the fields of a job's load part that describe the memory region (box) of its input map.
_MAP = ("x_address", "x_row_stride", "x_block_stride", "x_blocks", "x_rows", "x_words")
#: Names of further load fields of the input map on engines of several cores, whose teams each load a part of it.
_MAP_TEAMS = ("x_teams", "x_team_stride", "x_top", "x_advance", "x_height")
#: Names of the load fields with the address and the size of the weights.
_WEIGHTS = ("w_address", "w_steps", "w_blocks")
#: Names of the load fields with the address and size of the parameters (or lookup tables), and how cores get them.
_PARAMETERS = ("p_address", "p_words", "p_dealt")
#: Names of the fields of a job's store part that describe the memory region (box) of its outputs.
_STORE = ("address", "row_stride", "block_stride", "blocks", "rows", "words")
#: Names of further store fields on engines of several cores, whose teams each store a part of the outputs.
_STORE_TEAMS = ("teams", "team_stride", "top", "advance", "height")
#: Names of the load fields with the numbers of jobs that must be computed, and stored, before the job is loaded.
_WAITS = ("wait_computed", "wait_stored")


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """Timing of the engine's memory: read and write latencies in cycles, and cycles per beat; it never stalls.

    No memory answers in the cycle of the request: a latency of 0 counts as 1.

    Parameters
    ----------
    latency : int
        Cycles from a read request to its first word.
    write_latency : int
        Cycles from the last word written to the response.
    pace, pace_beats : int
        Cycles that ``pace_beats`` beats take. With more beats than cycles, some are read while others are written.

    Raises
    ------
    ConfigError
        If the pace is outside the range of the engine's port, or a latency is not a number of cycles.
    """

    latency: int = 20
    write_latency: int = 8
    pace: int = 1
    pace_beats: int = 1

    def __post_init__(self) -> None:
        check_pace(self.pace, self.pace_beats)
        if any(type(cycles) is not int or cycles < 0 for cycles in (self.latency, self.write_latency)):
            raise ConfigError(
                f"latencies must be 0 or more, not latency {self.latency!r} and write_latency {self.write_latency!r}"
            )

    @classmethod
    def at(cls, beat_cycles: Fraction | int) -> MemoryTiming:
        """Return the `MemoryTiming` of a memory with default latencies and a beat per ``beat_cycles`` cycles."""
        cycles = Fraction(beat_cycles)
        return cls(pace=cycles.numerator, pace_beats=cycles.denominator)

    @property
    def beat_cycles(self) -> Fraction:
        """`Fraction`: cycles per beat of the memory port."""
        return Fraction(self.pace, self.pace_beats)

    @property
    def is_simultaneous(self) -> bool:
        """Whether the memory can move a read beat and a write beat in the same cycle."""
        return self.pace_beats > self.pace


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineCycles:
    """Cycles of one program run, for each engine job's load, computation, drain and store, and for each memory burst.

    Attributes
    ----------
    cycles : int
        Cycles from ``begin`` until all jobs count as stored and computed.
    loaded, computed, drained, stored : array of int64
        First cycle when each job counts as loaded, computed, drained, stored.
    read, written : array of int64
        Number of bytes that each job reads from off-chip memory, and writes there.
    read_kept, written_kept : array of int64
        Number of bytes that each job reads from the map memory, and writes there.
    fetched : int
        Number of bytes of all jobs.
    bursts : array of int64 (n, 4)
        Bursts with beats, in order: the port's user (`FETCH`, `STORE` or `LOAD`), the job, the first cycle of the
        burst, and the first cycle when another burst can begin.
    groups : array of int64 (n, 2)
        First and last step of each pixel group, in the order of the jobs.
    """

    cycles: int
    loaded: np.ndarray
    computed: np.ndarray
    drained: np.ndarray
    stored: np.ndarray
    read: np.ndarray
    written: np.ndarray
    read_kept: np.ndarray
    written_kept: np.ndarray
    fetched: int
    bursts: np.ndarray
    groups: np.ndarray


def _make_box_table(boxes: Sequence[tuple[np.ndarray | int, ...]], jobs: int) -> np.ndarray:
    """Return an array of dtype `loops.BOX`, a row per job and box (rectangle of words in memory), by job.

    Each box is a tuple of columns over all jobs, in the order of `loops.BOX`. Later fields are 0.
    """
    whole = np.zeros((jobs, len(boxes)), loops.BOX)
    names = (loops.BOX.names or ())[1:]
    whole["job"] = np.arange(jobs)[:, None]
    for box_index, box in enumerate(boxes):
        for name, values in zip(names, box, strict=False):
            whole[name][:, box_index] = values
    return whole.reshape(-1)


def bursts_of(config: EngineConfig, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays: number of bursts of each box (words in memory), and beats and bytes of each burst."""
    counts = loops.count_bursts(boxes, config.burst_words, LANES)
    beats = np.zeros(counts.sum(), np.int32)
    sizes = config.burst_words, LANES, config.word_beats, config.bus_words
    return counts, beats, loops.split(boxes, *sizes, beats)


def map_bytes_read(config: EngineConfig, jobs: Sequence[Job]) -> np.ndarray:
    """Return an array with the bytes of feature maps that each engine job reads from memory."""
    boxes = _make_box_table([_map_box(jobs)], len(jobs))
    counts, _, sizes = bursts_of(config, boxes)
    return _sums(counts, sizes)


def _sums(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return an array of the sums of consecutive parts of ``values``, whose lengths are in ``counts``."""
    ends = np.cumsum(counts)
    before = np.append(0, np.cumsum(values, dtype=np.int64))
    return before[ends] - before[ends - counts]


def _map_box(jobs: Sequence[Job], *, kept: bool = False) -> tuple[np.ndarray | int, ...]:
    """Return a tuple of the boxes (rectangles of words) of maps that jobs load, as one array over jobs per field.

    With ``kept``, the boxes are in the map memory, otherwise in off-chip memory.
    """
    address, row_stride, block_stride, blocks, rows, words = columns(jobs, "load", _MAP)
    (is_kept,) = columns(jobs, "load", ("x_kept",))
    box = (address, row_stride, block_stride, blocks, rows, words * (is_kept == kept))
    return (*box, 1, 0, *columns(jobs, "load", _MAP_TEAMS))


def _load_boxes(config: EngineConfig, jobs: Sequence[Job]) -> np.ndarray:
    """Return an array (`loops.BOX`) of the memory regions that loads read: map, weights, parameters of each job.

    A box without words has no bursts.
    """
    weights, steps, blocks = columns(jobs, "load", _WEIGHTS)
    parameters, words, dealt = columns(jobs, "load", _PARAMETERS)
    step_words = steps * config.weight_words
    weight_box = (weights, 0, LANES * step_words, np.maximum(blocks, 1), 1, step_words, 1)
    block_words = np.where(dealt, LANES, words)
    parameter_box = (parameters, 0, LANES * LANES, np.where(dealt, words // LANES, 1), 1, block_words)
    return _make_box_table([_map_box(jobs), weight_box, parameter_box], len(jobs))


def _kept_load_boxes(jobs: Sequence[Job]) -> np.ndarray:
    """Return a table (array), a row per job: the box (rectangle of words) that it loads from on-chip map memory."""
    return _make_box_table([_map_box(jobs, kept=True)], len(jobs))


def _memory_bits(jobs: Sequence[Job]) -> np.ndarray:
    """Return an array: per job, bits that say whether its input and output maps are off chip or in map memory.

    A job without outputs keeps the memory of the previous job.
    """
    blocks, is_kept = columns(jobs, "load", ("x_blocks", "x_kept"))
    boxes = np.where(blocks == 0, 0, np.where(is_kept, loops.BOX_KEPT, loops.BOX_AT_PORT))
    out_blocks, out_kept = columns(jobs, "store", ("blocks", "kept"))
    last = np.maximum.accumulate(np.where(out_blocks > 0, np.arange(len(jobs)), -1))
    memory = np.where(last >= 0, out_kept[last], 0)
    turns = np.diff(memory, prepend=0) != 0
    return boxes | memory * loops.OUTPUT_KEPT | turns * loops.OUTPUT_TURNS


def _store_boxes(jobs: Sequence[Job]) -> np.ndarray:
    """Return a table (array), a row per job: the box (rectangle of words) that it stores, off chip or on chip."""
    box = (*columns(jobs, "store", _STORE), 1, 1, *columns(jobs, "store", _STORE_TEAMS))
    return _make_box_table([box], len(jobs))


def _fetch_boxes(config: EngineConfig, jobs: int) -> np.ndarray:
    """Return a table (array), a row per job: the memory region with its descriptor; the program is at address 0."""
    return _make_box_table([(job_bytes(config) * np.arange(jobs), 0, 0, 1, 1, job_words(config))], jobs)


@dataclass(frozen=True)
class _Unit:
    """Memory accesses of one engine unit (fetch, load or store): its bursts, and its bytes per job."""

    beats: np.ndarray
    jobs: np.ndarray
    marks: np.ndarray
    bytes: np.ndarray

    @classmethod
    def of(cls, config: EngineConfig, boxes: np.ndarray, jobs: int) -> _Unit:
        """Return a `_Unit`: a unit's memory bursts, cut from the boxes it moves; a job's first and last are marked.

        A job that moves nothing has one burst of zero beats.
        """
        counts, beats, sizes = bursts_of(config, boxes)
        owners = np.repeat(boxes["job"], counts)
        begins = np.zeros(len(beats), bool)
        begins[(np.cumsum(counts) - counts)[counts > 0]] = True
        idle = np.flatnonzero(np.bincount(owners, minlength=jobs) == 0)
        gaps = np.searchsorted(owners, idle)
        moved = np.bincount(owners, sizes, jobs).astype(np.int64)
        beats, owners = np.insert(beats, gaps, 0), np.insert(owners, gaps, idle)
        marks = np.insert(begins, gaps, True) * np.uint8(loops.FIRST_OF_BOX)
        first = np.diff(owners, prepend=-1) > 0
        marks |= first * np.uint8(loops.FIRST_OF_JOB)
        marks |= np.append(first[1:], True) * np.uint8(loops.LAST_OF_JOB)
        return cls(beats.astype(np.int32), owners.astype(np.int32), marks.astype(np.uint8), moved)

    def with_kept(self, config: EngineConfig, is_kept: np.ndarray) -> _Unit:
        """Return a copy of the store unit's bursts where outputs kept in the map memory take one beat per word."""
        return replace(self, beats=np.where(is_kept[self.jobs], self.beats // config.word_beats, self.beats))


class EngineSchedule:
    """Exact schedule of a program's jobs on an engine, for a given timing of its memory.

    Parameters
    ----------
    config : EngineConfig
        Engine that runs the program.
    jobs : sequence of Job
        Jobs of the program, in order.
    memory : MemoryTiming, optional
        Timing of the memory.
    """

    def __init__(self, config: EngineConfig, jobs: Sequence[Job], memory: MemoryTiming | None = None) -> None:
        finish = FinishConfig(engine=config)
        self._config, self._jobs, self._memory = config, jobs, memory or MemoryTiming()
        self._finish_latency, self._read_latency = finish.latency, read_latency(config)

    def run(self) -> EngineCycles:
        """Compute all memory bursts and array cycles of the program; return the run's cycles (`EngineCycles`).

        Raises
        ------
        PlanError
            If jobs wait for each other in a circle.
        """
        jobs, config, memory = len(self._jobs), self._config, self._memory
        core = CoreSchedule(config, self._finish_latency, self._jobs)
        boxes = _fetch_boxes(config, jobs), _store_boxes(self._jobs), _load_boxes(config, self._jobs)
        units = [_Unit.of(config, unit_boxes, jobs) for unit_boxes in boxes]
        job_boxes = None
        if config.has_map_memory:
            job_boxes = _memory_bits(self._jobs)
            units.append(_Unit.of(config.row_engine, _kept_load_boxes(self._jobs), jobs))
            units[STORE] = units[STORE].with_kept(config, job_boxes & loops.OUTPUT_KEPT > 0)
        sizes = loops.PortSizes(
            jobs=jobs,
            queue=config.queue,
            outstanding=config.outstanding,
            pace=memory.pace,
            pace_beats=memory.pace_beats,
            latency=memory.latency,
            write_latency=memory.write_latency,
            read_latency=self._read_latency,
            has_map_memory=config.has_map_memory,
        )
        waits = columns(self._jobs, "load", _WAITS)
        port = loops.port_of(sizes, waits, [(unit.beats, unit.jobs, unit.marks) for unit in units], job_boxes)
        ended, times = loops.run(port, core.tables), core.tables.times
        if ended == loops.STUCK:
            done = core.tables.known[[loops.STORED, loops.LOADED]].min()
            raise PlanError(f"the program's jobs wait for each other: {done} of {jobs} are loaded and stored")
        if len(core.computed) < jobs:
            raise PlanError(f"the program's jobs wait for each other: {len(core.computed)} of {jobs} are computed")
        (is_kept,) = columns(self._jobs, "store", ("kept",))
        return EngineCycles(
            cycles=int(max(times[loops.STORED, -1], times[loops.COMPUTED, -1])),
            loaded=times[loops.LOADED],
            computed=times[loops.COMPUTED],
            drained=times[loops.DRAINED],
            stored=times[loops.STORED],
            read=units[LOAD].bytes,
            written=np.where(is_kept, 0, units[STORE].bytes),
            read_kept=units[KEPT_LOAD].bytes if config.has_map_memory else np.zeros(jobs, np.int64),
            written_kept=np.where(is_kept, units[STORE].bytes, 0),
            fetched=job_bytes(config) * jobs,
            bursts=port.granted[: port.state["num_granted"][0]],
            groups=core.groups,
        )


_COMPUTE = ("groups", "folds", "first", "last", "walk", "kernel_rows", "kernel_columns", "channels", "channelwise")
_DRAIN = ("blocks", "channelwise", "pixels", "wait_stored", "a_zero_point", *ONE_WORD_FLAGS)


def group_steps(part: Compute) -> int:
    """Return the number of array cycles that a job spends on one pixel group (one output pixel per lane) in a fold."""
    return part.kernel_rows * part.kernel_columns * -(-part.channels // (LANES if part.channelwise else CHAIN))


def columns(jobs: Sequence[Job], part: str, names: Sequence[str]) -> np.ndarray:
    """Return an int64 array ``(fields, jobs)``: chosen fields of one part (load, compute, drain, store) of each job."""
    parts = map(attrgetter(part), jobs)
    return np.array([*map(attrgetter(*names), parts)], np.int64).reshape(len(jobs), len(names)).T


def group_steps_of(jobs: Sequence[Job]) -> tuple[np.ndarray, np.ndarray]:
    """Return, as a pair, two arrays by job: number of pixel groups over all folds, and array cycles per group.

    A pixel group has one output pixel per lane of the array.
    """
    groups, folds, *_, rows, across, channels, channelwise = columns(jobs, "compute", _COMPUTE)
    return groups * folds, rows * across * -(-channels // np.where(channelwise, LANES, CHAIN))


class CoreSchedule:
    """Exact schedule of the compute core (array and drain), computed from the cycles of its inputs.

    The core's inputs can depend on its earlier outputs. Therefore the schedule advances from event to event, a few for
    each pixel group, and its user reports the inputs meanwhile::

        schedule = CoreSchedule(config, 9, jobs)
        schedule.offer_compute(0)
        schedule.offer_drain(0)
        schedule.load(120)  # another job counts as loaded starting at cycle 120
        schedule.advance(200)  # no other input before cycle 200
        schedule.computed  # first cycle when each computed job counts as such

    A cycle is the first cycle when a port has a value: a count, a ``valid`` or a beat. The cycle of an input can be
    before or after the events that follow from it, but never before events that have already been computed.

    Parameters
    ----------
    config : EngineConfig
        Engine of the core.
    finish : int
        Cycles from the last beat of a job to ``finished``.
    jobs : sequence of Job
        Jobs, in order.
    """

    def __init__(self, config: EngineConfig, finish: int, jobs: Sequence[Job]):
        groups, steps = group_steps_of(jobs)
        fold_groups, _, first, last, walk, *_ = columns(jobs, "compute", _COMPUTE)
        blocks, channelwise, pixels, wait_stored, length, *one_word_flags = columns(jobs, "drain", _DRAIN)
        adds, multiplies = (one_word_flags[ONE_WORD_FLAGS.index(name)] for name in ("add", "multiply"))
        run = run_cycles(config, pixels, length * adds * multiplies)
        fold_blocks = np.where(channelwise, 1, config.blocks)
        beat_pixels = np.where(np.any(one_word_flags, axis=0), 1, config.beat_words)
        sizes = loops.CoreSizes(
            array_pixels=config.pixels,
            slots=config.slots,
            words_latency=words_latency(config),
            sum_latency=sum_latency(config),
            yield_latency=yield_latency(config),
            fetch=StepSequencer.FETCH,
            start=StepSequencer.START,
            walked=StepSequencer.WALKED,
            drain_latency=Array.DRAIN_LATENCY,
            drain_fetch=DrainController.FETCH,
            drain_start=DrainController.START,
            finish=finish,
        )
        drained = (blocks, fold_blocks, pixels, wait_stored, beat_pixels, run)
        parts = (groups, fold_groups, steps, first, last, walk, *drained)
        table = np.zeros(len(jobs), loops.CORE_JOB)
        for name, part in zip(loops.CORE_JOB.names or (), parts, strict=True):
            table[name] = part
        self.tables = loops.core_of(sizes, table)

    def _times(self, row: int) -> np.ndarray:
        """Return an array of the known cycles of one type of core event, such as job computed, one per job."""
        return self.tables.times[row, : self.tables.known[row]]

    @property
    def computed(self) -> np.ndarray:
        """Int64 array ``[job]``: first cycle when each engine job counts as computed; the last can be in the future."""
        return self._times(loops.COMPUTED)

    @property
    def drained(self) -> np.ndarray:
        """Int64 array ``[job]``: first cycle when each engine job counts as drained, with all its outputs finished.

        The last entries can be in the future.
        """
        return self._times(loops.DRAINED)

    @property
    def groups(self) -> np.ndarray:
        """Int64 array ``(n, 2)``: cycles of the array's first and last step for each group (one pixel per lane)."""
        return self.tables.groups[: int(self.tables.state["num_groups"][0])]

    def offer_compute(self, cycle: int) -> None:
        """Record that, as of cycle ``cycle``, the next job is valid at the array's input.

        If the array has not accepted the previous job by then, the offer begins when it has.
        """
        loops.offer(self.tables, loops.COMPUTE, cycle)

    def offer_drain(self, cycle: int) -> None:
        """Record that in ``cycle`` the next job becomes valid at the drain (the array's readout).

        If the drain has not accepted the previous job by then, the offer begins when it has.
        """
        loops.offer(self.tables, loops.DRAIN, cycle)

    def load(self, cycle: int) -> None:
        """Record that, as of cycle ``cycle``, one more job's operands are loaded."""
        loops.count(self.tables, loops.LOADED, cycle)

    def store(self, cycle: int) -> None:
        """Record that, as of cycle ``cycle``, one more job's results are stored."""
        loops.count(self.tables, loops.STORED, cycle)

    @property
    def next_event(self) -> float:
        """Cycle (float) of the core's next event (a pixel group's or job's start or end) by itself, or infinity."""
        cycle = loops.next_event(self.tables)
        return inf if cycle >= loops.NEVER else cycle

    def advance(self, until: float) -> None:
        """Compute all events of the core (starts and ends of pixel groups and jobs) before cycle ``until``."""
        loops.advance(self.tables, int(min(until, loops.NEVER)))
