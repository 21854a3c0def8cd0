"""Compiled loops of the engine's schedule: events of the compute core, and bursts granted by the memory port.

`hwgen.schedule.engine` defines the events and holds the tables. Cycles are int64;
`NEVER` stands for a cycle that is not known yet.

Machine code that Numba keeps next to this file names the classes of the tables. Give the file another name together
with such a class: the kept code of an earlier version can't be read otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwgen.schedule.compiled import compiled, compiled_in_place, inner

#: Cycle number that stands for never: it is after all other cycles, and its negative is before all others.
NEVER = 1 << 60

Records = Any
"""Type of a NumPy array of records (structured array); NumPy's type hints don't know the fields."""

# The compute core.

#: Row indices of `CoreTables.times`: cycles when a job is valid at the array and accepted there, valid at the drain and
#: accepted there, and when the job counts as loaded, stored, computed and drained.
COMPUTE_OFFERED, COMPUTE_ACCEPTED, DRAIN_OFFERED, DRAIN_ACCEPTED, LOADED, STORED, COMPUTED, DRAINED = range(8)
_CORE_TIMES = 8
#: Indices of the two job queues of a compute core: for the array, and for the drain.
COMPUTE, DRAIN = range(2)


def _record(*names: str, kind: type = np.int64) -> np.dtype:
    """Return a structured NumPy dtype with the given integer fields, int64 by default."""
    return np.dtype([(name, kind) for name in names])


#: NumPy type of a job in the core's tables: fields for the array (pixel groups of all folds, and of one), and for the
#: drain (with the pixels of a beat, and the cycles of the fixed-point unit's program).
CORE_JOB = _record(
    *("groups", "fold_groups", "steps", "opens", "ends", "walk"),
    *("blocks", "fold_blocks", "pixels", "wait_stored", "beat_pixels", "run"),
)
#: NumPy type of a job queue's state: number of jobs that its unit has begun, and first cycle when the unit is free.
_QUEUE = _record("taken", "free_from")
#: NumPy type of the core's state. Of the array: the job, its groups that have not begun, the last step so far, and the
#: numbers of groups that took a slot, that have begun, that have complete sums, that were drained, and of cycles
#: yielded; the first step of the last fold that began as the last one of its job. Of the drain: the job, its pixels in
#: this fold that have not begun, its blocks in this fold and later ones, groups begun, whether a group is being
#: drained, its first and last selection, and the cycle of the last job's ``finished``.
_CORE_STATE = _record(
    *("job", "left", "last_step", "opened", "num_groups", "num_complete", "num_released", "num_yielded", "last_fold"),
    *("drain_job", "pixels_left", "blocks_left", "begun", "selects", "selected_first", "selected_last", "finished"),
)
#: NumPy type of a pixel group's sums: cycles when they can first be selected and when their slot becomes free, and
#: cycles of the group's first and last output beat.
_SUMS = _record("complete", "released", "first_beat", "last_beat")


class CoreSizes(NamedTuple):
    """Sizes of the compute core (slots, lanes ..), and its latencies in cycles.

    Attributes
    ----------
    array_pixels, slots : int
        Pixels of the array, and slots for the sums of pixel groups.
    words_latency, sum_latency, yield_latency : int
        Cycles from a step to the end of its reads, further to its sums, and to the cycle that it takes from the drain.
    fetch, start, walked : int
        Latencies of the array's steps (`hwgen.gateware.engine.steps.StepSequencer`).
    drain_latency, drain_fetch, drain_start : int
        Cycles from a selection to its beat, and latencies of the drain (`hwgen.gateware.engine.drain.DrainController`).
    finish : int
        Cycles from the last beat of a job to ``finished``.
    """

    array_pixels: int
    slots: int
    words_latency: int
    sum_latency: int
    yield_latency: int
    fetch: int
    start: int
    walked: int
    drain_latency: int
    drain_fetch: int
    drain_start: int
    finish: int


class CoreTables(NamedTuple):
    """State and results of the compiled loops that compute the core's cycles, as NumPy arrays.

    Attributes
    ----------
    sizes : CoreSizes
        Sizes and latencies of the circuit.
    state : record (1,)
        Current state of array and drain.
    queues : record (2,)
        Current state of both queues.
    jobs : record (jobs,)
        Parts of each job (`CORE_JOB`).
    times : int64 (8, jobs)
        Cycles of each job as far as they are known.
    known : int64 (8,)
        Number of known cycles in each row of ``times``.
    groups : int64 (n, 2)
        First and last step of each pixel group.
    sums : record (n,)
        Cycles of each group with complete sums.
    yields : int64 (n,)
        Cycles without a beat.
    """

    sizes: CoreSizes
    state: Records
    queues: Records
    jobs: Records
    times: np.ndarray
    known: np.ndarray
    groups: np.ndarray
    sums: Records
    yields: np.ndarray


def core_of(sizes: CoreSizes, jobs: np.ndarray) -> CoreTables:
    """Return `CoreTables`: the compute core's state and result arrays before cycle 0, for jobs of dtype `CORE_JOB`."""
    groups = jobs["groups"]
    core = CoreTables(
        sizes=sizes,
        state=np.zeros(1, _CORE_STATE),
        queues=np.zeros(2, _QUEUE),
        jobs=jobs,
        times=np.zeros((_CORE_TIMES, len(jobs)), np.int64),
        known=np.zeros(_CORE_TIMES, np.int64),
        groups=np.zeros((groups.sum(), 2), np.int64),
        sums=np.zeros(groups[jobs["ends"] > 0].sum(), _SUMS),
        yields=np.zeros(groups[jobs["opens"] == 0].sum(), np.int64),
    )
    core.state["finished"] = -1
    return core


@inner
def _append_time(core: CoreTables, row: int, cycle: int) -> None:
    """Append a cycle to a row of `CoreTables.times`, the table of cycles by event and job."""
    core.times[row, core.known[row]] = cycle
    core.known[row] += 1


@inner
def _accept_job(core: CoreTables, queue: int) -> None:
    """Record when the array (or the drain) accepts its next job, if it is valid and all accepted jobs have begun."""
    job = core.queues[queue].taken
    if core.known[COMPUTE_ACCEPTED + 2 * queue] == job < core.known[COMPUTE_OFFERED + 2 * queue]:
        _append_time(
            core,
            COMPUTE_ACCEPTED + 2 * queue,
            max(core.times[COMPUTE_OFFERED + 2 * queue, job], core.queues[queue].free_from),
        )


@inner
def _offer_job(core: CoreTables, queue: int, cycle: int) -> None:
    """Record that the next job is valid at the core's array (or drain), starting at cycle ``cycle``."""
    _append_time(core, COMPUTE_OFFERED + 2 * queue, cycle)
    _accept_job(core, queue)


@inner
def _begin_job(core: CoreTables, queue: int, cycle: int) -> int:
    """Record that the array (or the drain) begins its next job in the cycle after ``cycle``; return the job's index."""
    job = core.queues[queue].taken
    core.queues[queue].taken += 1
    core.queues[queue].free_from = cycle + 1
    _accept_job(core, queue)
    return job


@inner
def _cycle_before_start(core: CoreTables) -> int:
    """Return the cycle before the array begins its next pixel group, or skips an empty job; `NEVER` if unknown."""
    state = core.state[0]
    if state.left:
        job, cycle = state.job, state.last_step
        if not core.jobs[job].opens and core.jobs[job].groups == 2 and core.jobs[job].steps == 1:
            cycle += 1  # the sums of the slot's previous step can't be read yet
    else:
        job = core.queues[COMPUTE].taken
        if job >= core.known[COMPUTE_ACCEPTED] or job >= core.known[LOADED]:
            return NEVER
        ready = core.times[COMPUTE_ACCEPTED, job] + core.sizes.fetch - 1
        if core.jobs[job].walk:
            begin = max(core.times[COMPUTE_ACCEPTED, job] + 1, state.last_fold)
            ready = begin + core.sizes.walked - 1 + core.sizes.array_pixels
        cycle = max(ready, core.times[LOADED, job] + core.sizes.start - 1, state.last_step)
    if core.jobs[job].opens and core.jobs[job].groups and state.opened >= core.sizes.slots:
        before = state.opened - core.sizes.slots
        return max(cycle, core.sums[before].released + 1) if before < state.num_released else NEVER
    return cycle


@inner
def _start(core: CoreTables, cycle: int) -> None:
    """Record that the array begins a pixel group, or skips a job without groups, in the cycle after ``cycle``."""
    state = core.state[0]
    if not state.left:
        state.job = _begin_job(core, COMPUTE, cycle)
        state.left = core.jobs[state.job].groups
        if not state.left:
            state.last_step = cycle + 1
            _append_time(core, COMPUTED, cycle + 1 + core.sizes.words_latency)
            return
    job = state.job
    if state.left == core.jobs[job].fold_groups:
        state.last_fold = cycle + 1
    state.left -= 1
    state.opened += core.jobs[job].opens
    last = cycle + core.jobs[job].steps
    state.last_step = last
    core.groups[state.num_groups, 0] = cycle + 1
    core.groups[state.num_groups, 1] = last
    state.num_groups += 1
    if not state.left:
        _append_time(core, COMPUTED, last + core.sizes.words_latency)
    if core.jobs[job].ends:
        core.sums[state.num_complete].complete = last + core.sizes.words_latency + core.sizes.sum_latency
        state.num_complete += 1
    if not core.jobs[job].opens and core.jobs[job].groups > 1:
        _hold_drain(core, cycle + 1 + core.sizes.words_latency + core.sizes.yield_latency)


@inner
def _hold_drain(core: CoreTables, cycle: int) -> None:
    """Keep the drain (the array's readout) from selecting sums in ``cycle``, as the array then reads sums itself.

    If the group being drained covers that cycle, it ends one cycle later.
    """
    state = core.state[0]
    core.yields[state.num_yielded] = cycle + core.sizes.drain_latency
    state.num_yielded += 1
    if state.selects and state.selected_first <= cycle <= state.selected_last:
        state.selected_last += 1


@inner
def _next_drain(core: CoreTables) -> int:
    """Return the cycle when the drain selects its pixel group's last sum, or the cycle before its next group.

    The result is `NEVER` if the cycle is unknown. A job without sums counts as drained in the cycle after the result.
    """
    state = core.state[0]
    if state.selects:
        return state.selected_last
    complete = core.sums[state.begun].complete - 1 if state.begun < state.num_complete else NEVER
    free = core.sums[state.num_released - 1].released if state.num_released else 0
    if state.pixels_left:
        return max(free, complete)
    job = core.queues[DRAIN].taken
    if job >= core.known[DRAIN_ACCEPTED] or core.jobs[job].wait_stored > core.known[STORED]:
        return NEVER
    wait = core.jobs[job].wait_stored
    stored = core.times[STORED, wait - 1] if wait else 0
    ready = max(core.times[DRAIN_ACCEPTED, job] + core.sizes.drain_fetch - 1, stored + core.sizes.drain_start - 1)
    if core.jobs[job].blocks and core.jobs[job].pixels:
        return max(ready, free, complete)
    return max(ready, state.finished + 1)


@inner
def _advance_drain(core: CoreTables, cycle: int) -> None:
    """Record that the drain ends its pixel group in ``cycle``, or begins another group or skips a job right after."""
    state = core.state[0]
    if state.selects:
        _end_group(core, cycle)
        return
    if not state.pixels_left:
        job = _begin_job(core, DRAIN, cycle)
        if not (core.jobs[job].blocks and core.jobs[job].pixels):
            _append_time(core, DRAINED, cycle + 1)
            return
        state.drain_job, state.pixels_left, state.blocks_left = (
            job,
            core.jobs[job].pixels,
            core.jobs[job].blocks,
        )
    state.begun += 1
    blocks = min(state.blocks_left, core.jobs[state.drain_job].fold_blocks)
    beat_pixels = core.jobs[state.drain_job].beat_pixels
    last = cycle + (min(state.pixels_left, core.sizes.array_pixels) + beat_pixels - 1) // beat_pixels * blocks
    latency, ended = core.sizes.drain_latency, state.num_yielded
    index = ended
    while index and core.yields[index - 1] >= cycle + 1 + latency:
        index -= 1
    while index < ended:
        last += core.yields[index] - latency <= last
        index += 1
    state.selects, state.selected_first, state.selected_last = 1, cycle + 1, last


@inner
def _end_group(core: CoreTables, cycle: int) -> None:
    """End the readout (drain) of a pixel group, whose last sum is selected in ``cycle``, and free its sums' slot."""
    state = core.state[0]
    latency, group = core.sizes.drain_latency, state.num_released
    core.sums[group].released = cycle
    core.sums[group].first_beat = state.selected_first + latency
    core.sums[group].last_beat = cycle + latency
    state.num_released += 1
    state.selects = 0
    state.pixels_left -= min(state.pixels_left, core.sizes.array_pixels)
    job = state.drain_job
    if not state.pixels_left:
        state.blocks_left -= min(state.blocks_left, core.jobs[job].fold_blocks)
        if state.blocks_left:
            state.pixels_left = core.jobs[job].pixels
    if not state.pixels_left:
        state.finished = cycle + latency + core.sizes.finish + core.jobs[job].run
        _append_time(core, DRAINED, state.finished + 1)


@inner
def _next_event(core: CoreTables) -> int:
    """Return the cycle of the compute core's next event (start or end of a pixel group or job); `NEVER` if unknown."""
    return min(_cycle_before_start(core), _next_drain(core))


@inner
def _advance_core(core: CoreTables, until: int) -> None:
    """Compute all events of the engine's core (starts and ends of pixel groups and jobs) before cycle ``until``."""
    while True:
        start, drain = _cycle_before_start(core), _next_drain(core)
        if min(start, drain) >= until:
            return
        if start <= drain:
            _start(core, start)
        else:
            _advance_drain(core, drain)


# Functions that Python calls to report a core's inputs one by one.


@compiled_in_place
def offer(core: CoreTables, queue: int, cycle: int) -> None:
    """Record that the next job is valid at the core's array (or drain, by ``queue``), starting at cycle ``cycle``."""
    _offer_job(core, queue, cycle)


@compiled_in_place
def count(core: CoreTables, row: int, cycle: int) -> None:
    """Record that one more job counts as loaded, or as stored (by ``row``), starting at cycle ``cycle``."""
    _append_time(core, row, cycle)


@compiled_in_place
def next_event(core: CoreTables) -> int:
    """Return the cycle of the compute core's next event (start or end of a pixel group or job); `NEVER` if unknown."""
    return _next_event(core)


@compiled_in_place
def advance(core: CoreTables, until: int) -> None:
    """Compute all events of the engine's core (starts and ends of pixel groups and jobs) before cycle ``until``."""
    _advance_core(core, until)


# Bursts of the memory port.

#: NumPy type of a box (rectangle of words in memory) that `split` divides into bursts: its job, address and shape, and
#: the boxes of further teams of cores, as in `hwgen.gateware.engine.job.Load`.
BOX = _record(
    *("job", "address", "row_stride", "block_stride", "blocks", "rows", "words", "wide", "writes"),
    *("teams", "team_stride", "top", "advance", "height"),
)
#: Bits that mark a burst as the first of its job, the last of its job, or the first of its box.
FIRST_OF_JOB, LAST_OF_JOB, FIRST_OF_BOX = 1, 2, 4


@inner
def _is_skipped(box: Any, team: int, row: int) -> bool:
    """Return whether a row that a team of cores would load lies outside the map (a burst without words)."""
    index = box.top + team * box.advance + row
    return box.height > 0 and (index < 0 or index >= box.height)


@inner
def _row_address(box: Any, team: int, block: int, row: int) -> int:
    """Return the byte address of a row in the memory region (box) that a team of cores transfers."""
    return box.address + team * box.team_stride + block * box.block_stride + row * box.row_stride


@compiled
def count_bursts(boxes: Records, burst_words: int, word_bytes: int) -> np.ndarray:
    """Return an array of numbers of memory bursts per region (box): one per row, and one per boundary inside a row.

    A skipped row is one burst.
    """
    counts = np.zeros(len(boxes), np.int64)
    for box_index in range(len(boxes)):
        box = boxes[box_index]
        if box.words <= 0:
            continue
        for team in range(max(box.teams, 1)):
            for block in range(box.blocks):
                for row in range(box.rows):
                    begin = _row_address(box, team, block, row) // word_bytes
                    counts[box_index] += 1
                    if not _is_skipped(box, team, row):
                        counts[box_index] += (begin + box.words - 1) // burst_words - begin // burst_words
    return counts


@compiled
def split(
    boxes: Records, burst_words: int, word_bytes: int, word_beats: int, bus_words: int, beats: np.ndarray
) -> np.ndarray:
    """Cut memory regions (boxes) into bursts: fill ``beats`` with each burst's beats, return an array of burst bytes.

    A wide beat reads all words of the bus, but writes only the words of the box.
    """
    moved = np.zeros(len(beats), np.int32)
    burst = 0
    for box_index in range(len(boxes)):
        box = boxes[box_index]
        for team in range(max(box.teams, 1)):
            for block in range(box.blocks):
                for row in range(box.rows):
                    begin = _row_address(box, team, block, row) // word_bytes
                    left = box.words
                    if left > 0 and _is_skipped(box, team, row):
                        left, burst = 0, burst + 1
                    while left > 0:
                        words = min(left, burst_words - begin % burst_words)
                        if box.wide and bus_words > 1:
                            beats[burst] = (begin % bus_words + words + bus_words - 1) // bus_words
                            moved[burst] = words * word_bytes if box.writes else beats[burst] * bus_words * word_bytes
                        else:
                            beats[burst] = words * word_beats
                            moved[burst] = words * word_bytes
                        begin, left, burst = begin + words, left - words, burst + 1
    return moved


# The memory port.

#: Indices of the units that use the memory port (fetch of jobs, store, load), in the order of priority, and of the load
#: unit of the map memory.
FETCHES, STORES, LOADS, KEPT_LOADS = range(4)
#: Row indices of `PortTables.times`: cycles when a job arrives, when it is valid at load unit, array, drain and store
#: unit, and when load unit and store unit accept it. With a map memory, also: when the load unit of the map memory is
#: offered the job and accepts it, and when each of both load units has loaded it.
_CAME, _OFFERED, _LOAD_TAKEN, _STORE_TAKEN, _KEPT_OFFERED, _KEPT_TAKEN, _LOADED_BY = 0, 1, 5, 6, 7, 8, 9
_PORT_TIMES = 11
#: Bits that tell where a job's maps are: an input map that the port loads, or that the map memory holds; outputs for
#: the map memory; outputs for another memory than the previous job's.
BOX_AT_PORT, BOX_KEPT, OUTPUT_KEPT, OUTPUT_TURNS = 1, 2, 4, 8
#: NumPy type of a job in the port's tables: numbers of jobs that must be computed, and stored, before it is loaded; and
#: where its maps are, on an engine with a map memory (bits such as `BOX_AT_PORT`).
_PORT_JOB = _record("wait_computed", "wait_stored", "boxes")
#: NumPy type of the state of reads, or of writes: first cycle when the port is free for them, first time when memory
#: can move their next beat (in cycles divided by ``pace_beats``), and number of ended bursts.
_CHANNEL = _record("free", "next_beat", "ended")
#: NumPy type of the state of the port: its credit (what the last cycle of a burst had left, in cycles divided by
#: ``pace_beats``), the number of granted bursts, and the cycle of the last grant. Of the map memory: first cycles when
#: its reader and its writer are free, and the end of the last burst that was written there.
#: With more than one beat per cycle, fewer than two: beats that memory has to move, from which cycle on, and the credit
#: of the cycles that moved a single one.
_PORT_STATE = _record("credit", "num_granted", "last", "reader_free", "writer_free", "kept_ended", "left", "since")
#: NumPy type of a burst: number of beats, index of its job, bits such as `FIRST_OF_JOB`.
_BURST = _record("beats", "job", "marks", kind=np.int32)
#: NumPy type of the state of a unit that uses the port: index of its next burst, end of its bursts, the cycle when the
#: next burst was made, the first cycle when it waits for the port, and the cycle of the last grant.
_UNIT = _record("next", "end", "asked", "waiting", "granted")

#: Minimum number of cycles from a burst to the next burst of the same box, and to the first burst of the next box.
_NEXT_BURST, _NEXT_BOX = 2, 3
#: Cycles from the program's start to the burst that fetches the first job; from a job's last word until units are
#: offered the job; from a job's last word to the burst that fetches the next job.
_FIRST_JOB, _OFFER, _NEXT_JOB = 3, 3, 4
#: Cycles from a job's first valid cycle at a unit to its first burst, for the load unit and for the store unit.
_FIRST_LOAD, _FIRST_STORE = 3, 2
#: Cycles from the end of a job's last burst until the job counts as loaded, and as stored.
_LOADED, _STORED = 3, 1
#: Cycles from a store's grant to its first word, without the latency of the output buffer.
_WRITE = 3
#: Cycles from the grant of a read of the map memory, without its beats, to the cycle before its last answer; and cycles
#: from the later of both load units' ends until a job counts as loaded.
_READ_KEPT, _JOINED = 2, 1

#: Results of `run`: all jobs are done, or jobs wait for each other forever.
DONE, STUCK = range(2)


class PortSizes(NamedTuple):
    """Sizes of the engine's memory port (bursts, outstanding ..), and the memory's timing in cycles.

    Attributes
    ----------
    jobs, queue, outstanding : int
        Number of jobs, depth of the queues of parts, and number of outstanding bursts.
    pace, pace_beats : int
        Cycles that ``pace_beats`` beats take.
    latency, write_latency : int
        Latencies of the memory.
    read_latency : int
        Latency of the output buffer.
    has_map_memory : bool
        Whether there is a map memory.
    """

    jobs: int
    queue: int
    outstanding: int
    pace: int
    pace_beats: int
    latency: int
    write_latency: int
    read_latency: int
    has_map_memory: bool


class PortTables(NamedTuple):
    """State and results of the compiled loops that compute the memory port's bursts, as NumPy arrays.

    Attributes
    ----------
    sizes : PortSizes
        Sizes and latencies.
    state : record (1,)
        Current state of the port and of the map memory.
    channels : record (2,)
        Current state of reads, and of writes.
    jobs : record (jobs,)
        Waits and boxes of each job.
    times : int64 (11, jobs)
        Cycles of each job as far as they are known.
    known : int64 (11,)
        Number of known cycles in each row of ``times``.
    bursts : record (n,)
        Bursts, unit by unit.
    units : record (4,)
        Current state of each user of the port, and of the load unit of the map memory.
    over : int64 (2, outstanding)
        Cycles when the last read bursts and the last written bursts end.
    granted : int64 (n, 4)
        Unit, job, first cycle and end of each burst with beats, in order.
    """

    sizes: PortSizes
    state: Records
    channels: Records
    jobs: Records
    times: np.ndarray
    known: np.ndarray
    bursts: Records
    units: Records
    over: np.ndarray
    granted: np.ndarray


@inner
def _append_port_time(port: PortTables, row: int, cycle: int) -> None:
    """Append a cycle to a row of `PortTables.times`, the table of cycles by event and job."""
    port.times[row, port.known[row]] = cycle
    port.known[row] += 1


@inner
def _next_read_or_write(port: PortTables, writes: int) -> int:
    """Return the first cycle with room for one more outstanding read (``writes`` 0) or write (1)."""
    outstanding, ended = port.sizes.outstanding, port.channels[writes].ended
    return port.over[writes, ended % outstanding] + 1 if ended >= outstanding else 0


@inner
def _offer_parts(port: PortTables, core: CoreTables) -> None:
    """Record when fetched jobs become valid at the load unit, the array, the drain and the store unit."""
    for part in range(4):
        while True:
            job = port.known[_OFFERED + part]
            if part == 0:
                taken = port.known[_LOAD_TAKEN]
            elif part == 1:
                taken = core.known[COMPUTE_ACCEPTED]
            elif part == 2:
                taken = core.known[DRAIN_ACCEPTED]
            else:
                taken = port.known[_STORE_TAKEN]
            if job >= port.known[_CAME] or job > taken:
                break
            cycle = port.times[_CAME, job] + _OFFER
            if job:
                if part == 0:
                    before = port.times[_LOAD_TAKEN, job - 1]
                elif part == 1:
                    before = core.times[COMPUTE_ACCEPTED, job - 1]
                elif part == 2:
                    before = core.times[DRAIN_ACCEPTED, job - 1]
                else:
                    before = port.times[_STORE_TAKEN, job - 1]
                cycle = max(cycle, before + 1)
            _append_port_time(port, _OFFERED + part, cycle)
            if part == 1:
                _offer_job(core, COMPUTE, cycle)
            elif part == 2:
                _offer_job(core, DRAIN, cycle)


@inner
def _offer_kept(port: PortTables) -> None:
    """Record when each fetched job becomes valid at the map memory's load unit, after the previous job's accept."""
    while True:
        job = port.known[_KEPT_OFFERED]
        if job >= port.known[_CAME] or job > port.known[_KEPT_TAKEN]:
            return
        cycle = port.times[_CAME, job] + _OFFER
        _append_port_time(port, _KEPT_OFFERED, max(cycle, port.times[_KEPT_TAKEN, job - 1] + 1) if job else cycle)


@inner
def _fetch_ready(port: PortTables) -> int:
    """Return the earliest cycle when the port can be granted to the next fetch of an engine job; `NEVER` if unknown."""
    unit = port.units[FETCHES]
    if unit.next == unit.end:
        return NEVER
    if not port.bursts[unit.next].marks & FIRST_OF_JOB:
        return max(unit.granted + _NEXT_BURST, _next_read_or_write(port, 0))
    job = port.bursts[unit.next].job
    if job > port.known[_CAME]:
        return NEVER
    ready = port.times[_CAME, job - 1] + _NEXT_JOB if job else _FIRST_JOB
    room = job - port.sizes.queue
    if room >= 0:
        for part in range(4):
            if room >= port.known[_OFFERED + part]:
                return NEVER
            ready = max(ready, port.times[_OFFERED + part, room])
        if port.sizes.has_map_memory:
            if room >= port.known[_KEPT_OFFERED]:
                return NEVER
            ready = max(ready, port.times[_KEPT_OFFERED, room])
    return max(ready, _next_read_or_write(port, 0))


@inner
def _store_ready(port: PortTables, core: CoreTables) -> int:
    """Return the earliest cycle when the port can be granted to the next burst of the store unit; `NEVER` if unknown.

    A job whose outputs are for another memory than the previous job's waits until all earlier jobs are stored.
    """
    unit = port.units[STORES]
    if unit.next == unit.end:
        return NEVER
    if unit.waiting == NEVER:
        job = port.bursts[unit.next].job
        if job >= core.known[DRAINED]:
            return NEVER
        met = core.times[DRAINED, job]
        if port.jobs[job].boxes & OUTPUT_TURNS:
            if job > core.known[STORED]:
                return NEVER
            met = max(met, core.times[STORED, job - 1])
        _request(port, STORES, _OFFERED + 3, _FIRST_STORE, _STORE_TAKEN, met)
    if _is_kept_store(port):
        return max(unit.waiting, port.state[0].writer_free)
    return max(unit.waiting, _next_read_or_write(port, 1))


@inner
def _is_kept_store(port: PortTables) -> bool:
    """Return whether the next burst of the store unit writes to the on-chip map memory, not through the port."""
    return port.jobs[port.bursts[port.units[STORES].next].job].boxes & OUTPUT_KEPT != 0


@inner
def _load_ready(port: PortTables, core: CoreTables, user: int) -> int:
    """Return the earliest cycle when a load unit's next burst can be granted; `NEVER` if unknown.

    ``user`` is the load unit of the port (`LOADS`), or of the map memory. A job with a map in one of the two memories
    waits until the other unit has loaded all earlier jobs.
    """
    unit = port.units[user]
    if unit.next == unit.end:
        return NEVER
    if unit.waiting == NEVER:
        job = port.bursts[unit.next].job
        computed, stored = port.jobs[job].wait_computed, port.jobs[job].wait_stored
        if computed > core.known[COMPUTED] or stored > core.known[STORED]:
            return NEVER
        met = core.times[COMPUTED, computed - 1] if computed else 0
        if stored:
            met = max(met, core.times[STORED, stored - 1])
        if port.sizes.has_map_memory and job and port.jobs[job].boxes & (BOX_AT_PORT if user == LOADS else BOX_KEPT):
            other = _LOADED_BY + (1 if user == LOADS else 0)
            if job > port.known[other]:
                return NEVER
            met = max(met, port.times[other, job - 1])
        if user == LOADS:
            _request(port, user, _OFFERED, _FIRST_LOAD, _LOAD_TAKEN, met)
        else:
            _request(port, user, _KEPT_OFFERED, _FIRST_LOAD, _KEPT_TAKEN, met)
    return max(unit.waiting, _next_read_or_write(port, 0) if user == LOADS else port.state[0].reader_free)


@inner
def _request(port: PortTables, user: int, offered: int, first: int, taken: int, met: int) -> None:
    """Record when a load or store unit requests the port for its next burst, once the burst's job is valid there."""
    unit = port.units[user]
    burst = unit.next
    job, marks = port.bursts[burst].job, port.bursts[burst].marks
    if job >= port.known[offered]:
        return
    after = _NEXT_BOX if marks & FIRST_OF_BOX else _NEXT_BURST
    cycle = max(unit.asked + after, unit.granted + 1, port.times[offered, job] + first, met + 1)
    unit.asked, unit.waiting = cycle, cycle + 1
    if marks & LAST_OF_JOB:
        _append_port_time(port, taken, cycle)


@inner
def _occupy(port: PortTables, channel: int, now: int, beats: int) -> None:
    """Record when the port is free again after a burst granted in cycle ``now``, and the bandwidth left over.

    If memory moves more than one beat per cycle, the burst occupies its own channel, reads (0) or writes (1), and the
    memory. Then both channels wait until memory has at most one beat to move.
    """
    state, pace, pace_beats, in_port = port.state[0], port.sizes.pace, port.sizes.pace_beats, max(beats, 2)
    if pace_beats > pace:
        port.channels[channel].free = now + in_port
        if pace_beats < 2 * pace:
            _occupy_memory(port, now, beats)
        return
    needed = in_port * pace - state.credit
    cycles = (needed + pace_beats - 1) // pace_beats
    port.channels[0].free, state.credit = now + cycles, cycles * pace_beats - needed
    port.channels[1].free = port.channels[0].free


@inner
def _occupy_memory(port: PortTables, now: int, beats: int) -> None:
    """Add a granted burst to the beats that memory has to move; both channels are free when one beat is left."""
    state, pace, pace_beats = port.state[0], port.sizes.pace, port.sizes.pace_beats
    if state.left > 0:
        until_moved = (state.left * pace - state.credit + pace_beats - 1) // pace_beats
        moved_in = min(now - state.since, until_moved)
        credit = state.credit + moved_in * pace_beats
        state.left, state.credit = state.left - credit // pace, credit % pace
    state.since = now if state.left > 0 else now + 1
    state.left += beats
    cycles = max(((state.left - 1) * pace - state.credit + pace_beats - 1) // pace_beats, 0)
    free = max(state.since + cycles, now + 2)
    for channel in range(2):
        port.channels[channel].free = max(port.channels[channel].free, free)


@inner
def _done_at(port: PortTables, channel: int, first: int, beats: int) -> int:
    """Return the cycle when memory moves the last beat of a burst whose first beat can move in cycle ``first``.

    A beat that memory could have moved a cycle earlier begins a new count of fractions. A channel moves at most one
    beat per cycle.
    """
    per_cycle, free = port.sizes.pace_beats, port.channels[channel].next_beat
    pace = max(port.sizes.pace, per_cycle)
    begin = free if free > (first - 1) * per_cycle else first * per_cycle
    port.channels[channel].next_beat = begin + beats * pace
    return (begin + (beats - 1) * pace + per_cycle - 1) // per_cycle


@inner
def _grant(port: PortTables, core: CoreTables, user: int, now: int) -> None:
    """Grant the memory port to the next burst of a unit, and record the cycles that follow from the grant."""
    unit, state = port.units[user], port.state[0]
    burst = unit.next
    beats = port.bursts[burst].beats
    unit.next, unit.granted, unit.waiting, state.last = burst + 1, now, NEVER, now
    channel = 1 if user == STORES else 0
    _occupy(port, channel, now, beats)
    if beats:
        entry = port.granted[state.num_granted]
        entry[0], entry[1], entry[2], entry[3] = user, port.bursts[burst].job, now, port.channels[channel].free
        state.num_granted += 1
    ended = port.channels[channel].ended
    if not beats:
        before = port.over[channel, (ended - 1) % port.sizes.outstanding] if ended else 0
        over = max(now, before) + 1
    elif user == STORES:
        over = _done_at(port, channel, now + _WRITE + port.sizes.read_latency, beats) + max(1, port.sizes.write_latency)
    else:
        over = _done_at(port, channel, now + 1 + max(1, port.sizes.latency), beats)
    port.over[channel, ended % port.sizes.outstanding] = over
    port.channels[channel].ended += 1
    if port.bursts[burst].marks & LAST_OF_JOB:
        if user == FETCHES:
            _append_port_time(port, _CAME, over)
        elif user == STORES:
            _append_time(core, STORED, over + _STORED)
        elif port.sizes.has_map_memory:
            _note_loaded(port, core, 0, over + _LOADED)
        else:
            _append_time(core, LOADED, over + _LOADED)


@inner
def _note_loaded(port: PortTables, core: CoreTables, by: int, cycle: int) -> None:
    """Record that load unit ``by`` (0: port, 1: map memory) has loaded a job, and which jobs both units have."""
    _append_port_time(port, _LOADED_BY + by, cycle)
    while core.known[LOADED] < min(port.known[_LOADED_BY], port.known[_LOADED_BY + 1]):
        job = core.known[LOADED]
        _append_time(core, LOADED, max(port.times[_LOADED_BY, job], port.times[_LOADED_BY + 1, job]) + _JOINED)


@inner
def _grant_kept(port: PortTables, core: CoreTables, user: int, now: int) -> None:
    """Grant the map memory to the next burst of a unit (store, or load of maps), and record the resulting cycles."""
    unit, state = port.units[user], port.state[0]
    burst = unit.next
    beats = port.bursts[burst].beats
    unit.next, unit.granted, unit.waiting = burst + 1, now, NEVER
    is_last = port.bursts[burst].marks & LAST_OF_JOB
    if user == KEPT_LOADS:
        state.reader_free = now + max(beats, 1)
        if is_last:
            _note_loaded(port, core, 1, now + max(beats, 1) + _READ_KEPT + _LOADED)
        return
    state.writer_free = now + max(beats, 2)
    if beats:
        state.kept_ended = now + _WRITE + port.sizes.read_latency + beats - 1
    else:
        state.kept_ended = max(now, state.kept_ended) + 1
    if is_last:
        _append_time(core, STORED, state.kept_ended + _STORED)


@inner
def _reaches_change(core: CoreTables, until: int) -> bool:
    """Advance the core to a job's acceptance, computation or drain before ``until``; return whether there is one."""
    computed, drained = core.known[COMPUTED], core.known[DRAINED]
    accepted, also = core.known[COMPUTE_ACCEPTED], core.known[DRAIN_ACCEPTED]
    while True:
        event = _next_event(core)
        if event >= until:
            return False
        _advance_core(core, event + 1)
        if (
            core.known[COMPUTED] != computed
            or core.known[DRAINED] != drained
            or core.known[COMPUTE_ACCEPTED] != accepted
            or core.known[DRAIN_ACCEPTED] != also
        ):
            return True


@compiled_in_place
def run(port: PortTables, core: CoreTables) -> int:
    """Compute all memory bursts of a program; return `DONE`, or `STUCK` if its jobs wait for each other forever."""
    jobs = port.sizes.jobs
    while min(core.known[STORED], core.known[LOADED]) < jobs:
        _offer_parts(port, core)
        stores, loads = _store_ready(port, core), _load_ready(port, core, LOADS)
        kept_loads = kept_stores = NEVER
        if port.sizes.has_map_memory:
            _offer_kept(port)
            kept_loads = _load_ready(port, core, KEPT_LOADS)
            _offer_kept(port)
            if stores < NEVER and _is_kept_store(port):
                stores, kept_stores = NEVER, stores
        _offer_parts(port, core)  # a unit accepts its next job with its last burst, so more jobs can be offered now
        fetches = _fetch_ready(port)
        reads, writes = max(min(fetches, loads), port.channels[0].free), max(stores, port.channels[1].free)
        first = max(min(reads, writes), port.state[0].last + 1)  # one grant per cycle
        if _reaches_change(core, min(first, kept_loads, kept_stores)):
            continue
        if min(first, kept_loads, kept_stores) >= NEVER:
            return STUCK
        if min(kept_loads, kept_stores) <= first:
            user = KEPT_LOADS if kept_loads <= kept_stores else STORES
            _grant_kept(port, core, user, min(kept_loads, kept_stores))
            continue
        can_read = port.channels[0].free <= first
        _grant(port, core, FETCHES if fetches <= first and can_read else STORES if writes <= first else LOADS, first)
    _advance_core(core, NEVER)
    return DONE


def port_of(
    sizes: PortSizes,
    waits: np.ndarray,
    units: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    boxes: np.ndarray | None = None,
) -> PortTables:
    """Return `PortTables`: the memory port's state and result arrays before cycle 0.

    Parameters
    ----------
    sizes : PortSizes
        Sizes and latencies.
    waits : int64 (2, jobs)
        Numbers of jobs that must be computed, and stored, before each job is loaded.
    units : sequence of tuple
        Beats, jobs and marks of the bursts that are fetched, stored and loaded, and loaded from a map memory.
    boxes : int64 (jobs,), optional
        Boxes of each job, on an engine with a map memory (`BOX_AT_PORT` and so on).
    """
    ends = np.cumsum([0, *(len(beats) for beats, _, _ in units)])
    bursts = np.zeros(ends[-1], _BURST)
    for name, columns in zip(("beats", "job", "marks"), zip(*units, strict=True), strict=True):
        bursts[name] = np.concatenate(columns)
    table = np.zeros(len(units), _UNIT)
    table["next"], table["end"], table["waiting"] = ends[:-1], ends[1:], NEVER
    table["asked"] = table["granted"] = -NEVER
    jobs = np.zeros(sizes.jobs, _PORT_JOB)
    jobs["wait_computed"], jobs["wait_stored"] = waits
    if boxes is not None:
        jobs["boxes"] = boxes
    return PortTables(
        sizes=sizes,
        state=np.zeros(1, _PORT_STATE),
        channels=np.zeros(2, _CHANNEL),
        jobs=jobs,
        times=np.zeros((_PORT_TIMES, sizes.jobs), np.int64),
        known=np.zeros(_PORT_TIMES, np.int64),
        bursts=bursts,
        units=table,
        over=np.zeros((2, sizes.outstanding), np.int64),
        granted=np.zeros((len(bursts), 4), np.int64),
    )
