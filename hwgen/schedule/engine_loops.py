"""Compiled loops of the engine's schedule: events of the compute core, and bursts granted by the memory port.

`hwgen.schedule.engine_core` and `hwgen.schedule.engine` define the events and hold the tables. Cycles are int64;
`NEVER` stands for a cycle that is not known yet.

Machine code that Numba keeps beside this file names the classes of the tables. Give the file another name together with
such a class: the kept code of an earlier version can't be read otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hwgen.schedule.compiled import compiled, compiled_in_place, inner

#: Cycle number that stands for never: it is after all other cycles, and its negative is before all others.
NEVER = 1 << 60

# The compute core.

#: Entries of `CoreTables.state`: sizes and latencies of the circuit.
ARRAY_PIXELS, SLOTS, WORDS_LATENCY, FINISH, FETCH, START = range(6)
SUM_LATENCY, YIELD, DRAIN_LATENCY, DRAIN_FETCH, DRAIN_START, WALKED = range(6, 12)
#: Rows of `CoreTables.jobs`, one column per job: fields of the job's part for the array (the groups of all folds, and
#: of one), fields of its part for the drain (and the pixels of a beat), then the cycles in which these parts are
#: offered and accepted and the job is loaded, stored, computed and drained.
GROUPS, FOLD_GROUPS, STEPS, OPENS, ENDS, WALK, BLOCKS, FOLD_BLOCKS, PIXELS, WAIT_STORED, BEAT_PIXELS = range(11)
COMPUTE_OFFERED, COMPUTE_ACCEPTED, DRAIN_OFFERED, DRAIN_ACCEPTED, LOADED, STORED, COMPUTED, DRAINED = range(11, 19)
#: Indices of the two queues of a compute core: parts of jobs for the array, and parts of jobs for the drain.
COMPUTE, DRAIN = range(2)
#: Offset in `CoreTables.state`: entry ``KNOWN + row`` is the number of known cycles in a row of `CoreTables.jobs`.
KNOWN = 2
#: More entries of `CoreTables.state`. For each queue: parts taken, and the cycle from which the unit is free. For the
#: array: the job, its groups that have not begun, the last step so far, and the numbers of groups that took a slot,
#: that have begun, that have complete sums, that were drained, and of cycles yielded; the first step of the last fold
#: that began as the last one of its job. For the drain: the job, its pixels in this fold that have not begun, its
#: blocks in this fold and later ones, groups begun, whether a group is being drained, its first and last selection, and
#: the cycle of the last job's ``finished``.
_TAKEN, _FREE_FROM, _DRAIN_TAKEN = 21, 22, 23
_JOB, _LEFT, _LAST_STEP, _OPENED, NUM_GROUPS, _NUM_COMPLETE, NUM_RELEASED, NUM_YIELDED, _LAST_FOLD = range(25, 34)
_DRAIN_JOB, _PIXELS_LEFT, _BLOCKS_LEFT, _BEGUN, _SELECTS, _SELECTED_FIRST, _SELECTED_LAST, FINISHED = range(34, 42)
CORE_STATE = 42
#: Columns of `CoreTables.sums`, one row per pixel group: cycle from which its sums can be selected, cycle in which its
#: slot is free, and cycles of its first and last output beat.
COMPLETE, RELEASED, FIRST_BEAT, LAST_BEAT = range(4)


class CoreTables(NamedTuple):
    """Tables in which compiled loops compute the cycles of the engine's compute core: sizes, state and results.

    Attributes
    ----------
    state : int64 (42,)
        Sizes of the circuit, then its present state.
    jobs : int64 (19, jobs)
        Parts of each job, then its cycles as far as they are known.
    groups : int64 (n, 2)
        First and last step of each pixel group.
    sums : int64 (n, 4)
        For each group with complete sums: the cycle from which it can be selected, the cycle in which its slot is free,
        its first and last beat.
    yields : int64 (n,)
        Cycles without a beat.
    """

    state: np.ndarray
    jobs: np.ndarray
    groups: np.ndarray
    sums: np.ndarray
    yields: np.ndarray


@inner
def _append(core: CoreTables, row: int, cycle: int) -> None:
    """Append a cycle to a row of `CoreTables.jobs`, the table of cycles by event and job."""
    core.jobs[row, core.state[KNOWN + row]] = cycle
    core.state[KNOWN + row] += 1


@inner
def _accept(core: CoreTables, queue: int) -> None:
    """Record when the array (or the drain) accepts its next job, if it is offered and all accepted jobs have begun."""
    job = core.state[_TAKEN + 2 * queue]
    if core.state[KNOWN + COMPUTE_ACCEPTED + 2 * queue] == job < core.state[KNOWN + COMPUTE_OFFERED + 2 * queue]:
        _append(
            core,
            COMPUTE_ACCEPTED + 2 * queue,
            max(core.jobs[COMPUTE_OFFERED + 2 * queue, job], core.state[_FREE_FROM + 2 * queue]),
        )


@inner
def _offer(core: CoreTables, queue: int, cycle: int) -> None:
    """Record that the next job is offered to the array (or to the drain) of the compute core from ``cycle`` on."""
    _append(core, COMPUTE_OFFERED + 2 * queue, cycle)
    _accept(core, queue)


@inner
def _take(core: CoreTables, queue: int, cycle: int) -> int:
    """Record that the array (or the drain) begins its next job in the cycle after ``cycle``; return the job's index."""
    job = core.state[_TAKEN + 2 * queue]
    core.state[_TAKEN + 2 * queue] += 1
    core.state[_FREE_FROM + 2 * queue] = cycle + 1
    _accept(core, queue)
    return job


@inner
def _next_start(core: CoreTables) -> int:
    """Return the cycle before the array begins a pixel group or skips a job without any; `NEVER` if unknown."""
    state = core.state
    if state[_LEFT]:
        job, cycle = state[_JOB], state[_LAST_STEP]
        if not core.jobs[OPENS, job] and core.jobs[GROUPS, job] == 2 and core.jobs[STEPS, job] == 1:
            cycle += 1  # the sums of the slot's previous step can't be read yet
    else:
        job = state[_TAKEN]
        if job >= core.state[KNOWN + COMPUTE_ACCEPTED] or job >= core.state[KNOWN + LOADED]:
            return NEVER
        ready = core.jobs[COMPUTE_ACCEPTED, job] + state[FETCH] - 1
        if core.jobs[WALK, job]:
            begin = max(core.jobs[COMPUTE_ACCEPTED, job] + 1, state[_LAST_FOLD])
            ready = begin + state[WALKED] - 1 + state[ARRAY_PIXELS]
        cycle = max(ready, core.jobs[LOADED, job] + state[START] - 1, state[_LAST_STEP])
    if core.jobs[OPENS, job] and core.jobs[GROUPS, job] and state[_OPENED] >= state[SLOTS]:
        before = state[_OPENED] - state[SLOTS]
        return max(cycle, core.sums[before, RELEASED] + 1) if before < state[NUM_RELEASED] else NEVER
    return cycle


@inner
def _start(core: CoreTables, cycle: int) -> None:
    """Record that the array begins a pixel group, or skips a job without groups, in the cycle after ``cycle``."""
    state = core.state
    if not state[_LEFT]:
        state[_JOB] = _take(core, COMPUTE, cycle)
        state[_LEFT] = core.jobs[GROUPS, state[_JOB]]
        if not state[_LEFT]:
            state[_LAST_STEP] = cycle + 1
            _append(core, COMPUTED, cycle + 1 + state[WORDS_LATENCY])
            return
    job = state[_JOB]
    if state[_LEFT] == core.jobs[FOLD_GROUPS, job]:
        state[_LAST_FOLD] = cycle + 1
    state[_LEFT] -= 1
    state[_OPENED] += core.jobs[OPENS, job]
    last = cycle + core.jobs[STEPS, job]
    state[_LAST_STEP] = last
    core.groups[state[NUM_GROUPS], 0] = cycle + 1
    core.groups[state[NUM_GROUPS], 1] = last
    state[NUM_GROUPS] += 1
    if not state[_LEFT]:
        _append(core, COMPUTED, last + state[WORDS_LATENCY])
    if core.jobs[ENDS, job]:
        core.sums[state[_NUM_COMPLETE], COMPLETE] = last + state[WORDS_LATENCY] + state[SUM_LATENCY]
        state[_NUM_COMPLETE] += 1
    if not core.jobs[OPENS, job] and core.jobs[GROUPS, job] > 1:
        _yield(core, cycle + 1 + state[WORDS_LATENCY] + state[YIELD])


@inner
def _yield(core: CoreTables, cycle: int) -> None:
    """Keep the drain from selecting sums in ``cycle``, because the array then reads stored partial sums itself.

    If the group being drained covers that cycle, it ends one cycle later.
    """
    state = core.state
    core.yields[state[NUM_YIELDED]] = cycle + core.state[DRAIN_LATENCY]
    state[NUM_YIELDED] += 1
    if state[_SELECTS] and state[_SELECTED_FIRST] <= cycle <= state[_SELECTED_LAST]:
        state[_SELECTED_LAST] += 1


@inner
def _next_drain(core: CoreTables) -> int:
    """Return the cycle of the last sum of the pixel group in the drain; without one, the cycle before the next begins.

    The result is `NEVER` if the cycle is unknown. A job without sums counts as drained in the cycle after the result.
    """
    state = core.state
    if state[_SELECTS]:
        return state[_SELECTED_LAST]
    complete = core.sums[state[_BEGUN], COMPLETE] - 1 if state[_BEGUN] < state[_NUM_COMPLETE] else NEVER
    free = core.sums[state[NUM_RELEASED] - 1, RELEASED] if state[NUM_RELEASED] else 0
    if state[_PIXELS_LEFT]:
        return max(free, complete)
    job = state[_DRAIN_TAKEN]
    if job >= core.state[KNOWN + DRAIN_ACCEPTED] or core.jobs[WAIT_STORED, job] > core.state[KNOWN + STORED]:
        return NEVER
    wait = core.jobs[WAIT_STORED, job]
    stored = core.jobs[STORED, wait - 1] if wait else 0
    ready = max(core.jobs[DRAIN_ACCEPTED, job] + state[DRAIN_FETCH] - 1, stored + state[DRAIN_START] - 1)
    if core.jobs[BLOCKS, job] and core.jobs[PIXELS, job]:
        return max(ready, free, complete)
    return max(ready, state[FINISHED] + 1)


@inner
def _advance_drain(core: CoreTables, cycle: int) -> None:
    """Record that the drain ends its pixel group in ``cycle``, or begins another group or skips a job right after."""
    state = core.state
    if state[_SELECTS]:
        _end_group(core, cycle)
        return
    if not state[_PIXELS_LEFT]:
        job = _take(core, DRAIN, cycle)
        if not (core.jobs[BLOCKS, job] and core.jobs[PIXELS, job]):
            _append(core, DRAINED, cycle + 1)
            return
        state[_DRAIN_JOB], state[_PIXELS_LEFT], state[_BLOCKS_LEFT] = (
            job,
            core.jobs[PIXELS, job],
            core.jobs[BLOCKS, job],
        )
    state[_BEGUN] += 1
    blocks = min(state[_BLOCKS_LEFT], core.jobs[FOLD_BLOCKS, state[_DRAIN_JOB]])
    beat_pixels = core.jobs[BEAT_PIXELS, state[_DRAIN_JOB]]
    last = cycle + (min(state[_PIXELS_LEFT], state[ARRAY_PIXELS]) + beat_pixels - 1) // beat_pixels * blocks
    latency, ended = state[DRAIN_LATENCY], state[NUM_YIELDED]
    index = ended
    while index and core.yields[index - 1] >= cycle + 1 + latency:
        index -= 1
    while index < ended:
        last += core.yields[index] - latency <= last
        index += 1
    state[_SELECTS], state[_SELECTED_FIRST], state[_SELECTED_LAST] = 1, cycle + 1, last


@inner
def _end_group(core: CoreTables, cycle: int) -> None:
    """End the drain of a pixel group whose last sum is selected in ``cycle``, which frees its accumulator slot."""
    state = core.state
    latency, group = state[DRAIN_LATENCY], state[NUM_RELEASED]
    core.sums[group, RELEASED] = cycle
    core.sums[group, FIRST_BEAT] = state[_SELECTED_FIRST] + latency
    core.sums[group, LAST_BEAT] = cycle + latency
    state[NUM_RELEASED] += 1
    state[_SELECTS] = 0
    state[_PIXELS_LEFT] -= min(state[_PIXELS_LEFT], state[ARRAY_PIXELS])
    job = state[_DRAIN_JOB]
    if not state[_PIXELS_LEFT]:
        state[_BLOCKS_LEFT] -= min(state[_BLOCKS_LEFT], core.jobs[FOLD_BLOCKS, job])
        if state[_BLOCKS_LEFT]:
            state[_PIXELS_LEFT] = core.jobs[PIXELS, job]
    if not state[_PIXELS_LEFT]:
        state[FINISHED] = cycle + latency + state[FINISH]
        _append(core, DRAINED, state[FINISHED] + 1)


@inner
def _next_event(core: CoreTables) -> int:
    """Return the cycle of the compute core's next event (start or end of a pixel group or job); `NEVER` if unknown."""
    return min(_next_start(core), _next_drain(core))


@inner
def _advance(core: CoreTables, until: int) -> None:
    """Compute all events of the engine's core (starts and ends of pixel groups and jobs) before cycle ``until``."""
    while True:
        start, drain = _next_start(core), _next_drain(core)
        if min(start, drain) >= until:
            return
        if start <= drain:
            _start(core, start)
        else:
            _advance_drain(core, drain)


# Functions that Python calls to report a core's inputs one by one.


@compiled_in_place
def offer(core: CoreTables, queue: int, cycle: int) -> None:
    """Record that the next job is offered to the array (or to the drain) of the compute core from ``cycle`` on."""
    _offer(core, queue, cycle)


@compiled_in_place
def count(core: CoreTables, row: int, cycle: int) -> None:
    """Record that another job counts as loaded, or as stored (by ``row``), for the compute core from ``cycle`` on."""
    _append(core, row, cycle)


@compiled_in_place
def next_event(core: CoreTables) -> int:
    """Return the cycle of the compute core's next event (start or end of a pixel group or job); `NEVER` if unknown."""
    return _next_event(core)


@compiled_in_place
def advance(core: CoreTables, until: int) -> None:
    """Compute all events of the engine's core (starts and ends of pixel groups and jobs) before cycle ``until``."""
    _advance(core, until)


# Bursts of the memory port.

#: Columns of the table of boxes in memory that `split` divides into bursts.
JOB, ADDRESS, ROW_STRIDE, BLOCK_STRIDE, BOX_BLOCKS, ROWS, WORDS, WIDE, WRITES = range(9)
#: Further columns: boxes of several teams of cores, their distance in memory, and the rows of the map, as in `Load`.
TEAMS, TEAM_STRIDE, TOP, ADVANCE, HEIGHT = range(9, 14)
BOX_COLUMNS = 14
#: Bits that mark a burst as the first of its job, the last of its job, or the first of its box.
FIRST_OF_JOB, LAST_OF_JOB, FIRST_OF_BOX = 1, 2, 4


@inner
def _is_skipped(box: np.ndarray, team: int, row: int) -> bool:
    """Return whether a row of a team's box lies outside of the map, so that it is a burst without words."""
    index = box[TOP] + team * box[ADVANCE] + row
    return box[HEIGHT] > 0 and (index < 0 or index >= box[HEIGHT])


@inner
def _begin(box: np.ndarray, team: int, block: int, row: int) -> int:
    """Return the byte address of a row of a team's box."""
    return box[ADDRESS] + team * box[TEAM_STRIDE] + block * box[BLOCK_STRIDE] + row * box[ROW_STRIDE]


@compiled
def count_bursts(boxes: np.ndarray, burst_words: int, word_bytes: int) -> np.ndarray:
    """Return the number of memory bursts of each box: one per row, plus one per burst boundary inside a row.

    A skipped row is one burst.
    """
    counts = np.zeros(len(boxes), np.int64)
    for box_index in range(len(boxes)):
        box = boxes[box_index]
        if box[WORDS] <= 0:
            continue
        for team in range(max(box[TEAMS], 1)):
            for block in range(box[BOX_BLOCKS]):
                for row in range(box[ROWS]):
                    begin = _begin(box, team, block, row) // word_bytes
                    counts[box_index] += 1
                    if not _is_skipped(box, team, row):
                        counts[box_index] += (begin + box[WORDS] - 1) // burst_words - begin // burst_words
    return counts


@compiled
def split(
    boxes: np.ndarray, burst_words: int, word_bytes: int, word_beats: int, bus_words: int, beats: np.ndarray
) -> np.ndarray:
    """Divide boxes in memory into bursts: fill ``beats`` with each burst's beats, and return each burst's bytes.

    A wide beat reads all words of the bus, but writes only the words of the box.
    """
    moved = np.zeros(len(beats), np.int32)
    burst = 0
    for box_index in range(len(boxes)):
        box = boxes[box_index]
        for team in range(max(box[TEAMS], 1)):
            for block in range(box[BOX_BLOCKS]):
                for row in range(box[ROWS]):
                    begin = _begin(box, team, block, row) // word_bytes
                    left = box[WORDS]
                    if left > 0 and _is_skipped(box, team, row):
                        left, burst = 0, burst + 1
                    while left > 0:
                        words = min(left, burst_words - begin % burst_words)
                        if box[WIDE] and bus_words > 1:
                            beats[burst] = (begin % bus_words + words + bus_words - 1) // bus_words
                            moved[burst] = words * word_bytes if box[WRITES] else beats[burst] * bus_words * word_bytes
                        else:
                            beats[burst] = words * word_beats
                            moved[burst] = words * word_bytes
                        begin, left, burst = begin + words, left - words, burst + 1
    return moved


# The memory port.

#: Users of the memory port (fetch of jobs, store unit, load unit), in the order of priority, and the load unit of the
#: map memory.
FETCHES, STORES, LOADS, KEPT_LOADS = range(4)
#: Rows of `PortTables.jobs`: number of jobs that must be computed, and stored, before the job is loaded; then cycles.
#: The cycles are: arrival of the job, offers of its parts to load, compute, drain and store, and the ends of its parts
#: in the load and the store unit. With a map memory, also: which boxes the job has (bits of `BOX_AT_PORT`), offer and
#: end of its part in the load unit of the map memory, and the cycles in which each of both load units has loaded it.
_WAIT_COMPUTED, _WAIT_STORED, _CAME, _OFFERED, _LOAD_TAKEN, _STORE_TAKEN = 0, 1, 2, 3, 7, 8
BOXES, _KEPT_OFFERED, _KEPT_TAKEN, _LOADED_BY = 9, 10, 11, 12
_ROWS = 14
#: Bits of a job's boxes: a map that the port loads, a map that is loaded from the map memory, outputs for the map
#: memory, outputs for another memory than those of the job before.
BOX_AT_PORT, BOX_KEPT, OUTPUT_KEPT, OUTPUT_TURNS = 1, 2, 4, 8
#: Entries of `PortTables.state`: jobs, queue depth, outstanding bursts; the memory's pace (``_PACE`` cycles take
#: ``_PACE_BEATS`` beats) and latencies; latency of the output buffer. Then the cycles from which the port is free for
#: reads and for writes, the port's credit (what the last cycle of a burst had left, in cycles divided by
#: ``_PACE_BEATS``), the time from which memory can move the next beat of reads and of writes (in the same unit), the
#: numbers of bursts granted, read and written, and the cycle of the last grant. Entry ``_KNOWN + row`` is the number of
#: known cycles in a row of `PortTables.jobs`.
_JOBS, _QUEUE, _OUTSTANDING, _PACE, _PACE_BEATS, _LATENCY, _WRITE_LATENCY, _READ_LATENCY = range(8)
_FREE, _CREDIT, _NEXT_BEAT, NUM_GRANTED, _ENDED, _LAST = 8, 10, 11, 13, 14, 16
_KNOWN = 17
#: The entries behind are: whether there is a map memory; cycles from which its reader and its writer are free; the end
#: of the last burst that was written there.
HAS_MAP_MEMORY, _READER_FREE, _WRITER_FREE, _KEPT_ENDED = range(_KNOWN + _ROWS, _KNOWN + _ROWS + 4)
_PORT_STATE = _KNOWN + _ROWS + 4
#: Rows of `PortTables.bursts`, one column per burst: number of beats, index of the job, bits such as `FIRST_OF_JOB`.
_BEATS, _JOB_OF, _MARKS = range(3)
#: Columns of `PortTables.units`: the next burst, the end of all bursts, the cycle in which the next burst was made, the
#: cycle from which it waits for the port, and the cycle of the last grant.
_NEXT, _END, _ASKED, _WAITING, _GRANTED = range(5)

#: Smallest number of cycles from a burst to the next burst of the same box, and to the first burst of the next box.
_NEXT_BURST, _NEXT_BOX = 2, 3
#: Cycles from the program's begin to the burst that fetches the first job; from a job's last word to the offer of its
#: parts; from a job's last word to the burst that fetches the next job.
_FIRST_JOB, _OFFER, _NEXT_JOB = 3, 3, 4
#: Cycles from a part's offer to its first burst, for a load and for a store.
_FIRST_LOAD, _FIRST_STORE = 3, 2
#: Cycles from the end of a job's last burst until the job counts as loaded, and as stored.
_LOADED, _STORED = 3, 1
#: Cycles from a store's grant to its first word, without the latency of the output buffer.
_WRITE = 3
#: Cycles from the grant of a read of the map memory, without its beats, to the cycle before its last answer; and cycles
#: in which a job that both load units have loaded counts as such, after the later one.
_READ_KEPT, _JOINED = 2, 1

#: Results of a run: all jobs are done, or jobs wait for each other.
DONE, STUCK = range(2)


class PortTables(NamedTuple):
    """Tables in which compiled loops compute the bursts on the engine's memory port: sizes, state and results.

    Attributes
    ----------
    state : int64 (35,)
        Sizes, then the present state of the port.
    jobs : int64 (14, jobs)
        Waits of each job, then its cycles as far as they are known.
    bursts : int32 (3, n)
        Beats, job and marks of each burst, unit by unit.
    units : int64 (4, 5)
        Present state of each user of the port, and of the load unit of the map memory.
    over : int64 (2, outstanding)
        Cycles in which the last read bursts and the last written bursts end.
    granted : int64 (n, 4)
        Unit, job, first cycle and end of each burst with beats, in order.
    """

    state: np.ndarray
    jobs: np.ndarray
    bursts: np.ndarray
    units: np.ndarray
    over: np.ndarray
    granted: np.ndarray


@inner
def _note(port: PortTables, row: int, cycle: int) -> None:
    """Append a cycle to a row of `PortTables.jobs`, the table of cycles by event and job."""
    port.jobs[row, port.state[_KNOWN + row]] = cycle
    port.state[_KNOWN + row] += 1


@inner
def _room(port: PortTables, writes: int) -> int:
    """Return the cycle from which the limit of outstanding bursts permits another read (``writes`` 0) or write (1)."""
    outstanding, ended = port.state[_OUTSTANDING], port.state[_ENDED + writes]
    return port.over[writes, ended % outstanding] + 1 if ended >= outstanding else 0


@inner
def _offer_parts(port: PortTables, core: CoreTables) -> None:
    """Record when load unit, array, drain and store unit are offered jobs that have arrived, one after the other."""
    for part in range(4):
        while True:
            job = port.state[_KNOWN + _OFFERED + part]
            if part == 0:
                taken = port.state[_KNOWN + _LOAD_TAKEN]
            elif part == 1:
                taken = core.state[KNOWN + COMPUTE_ACCEPTED]
            elif part == 2:
                taken = core.state[KNOWN + DRAIN_ACCEPTED]
            else:
                taken = port.state[_KNOWN + _STORE_TAKEN]
            if job >= port.state[_KNOWN + _CAME] or job > taken:
                break
            cycle = port.jobs[_CAME, job] + _OFFER
            if job:
                if part == 0:
                    before = port.jobs[_LOAD_TAKEN, job - 1]
                elif part == 1:
                    before = core.jobs[COMPUTE_ACCEPTED, job - 1]
                elif part == 2:
                    before = core.jobs[DRAIN_ACCEPTED, job - 1]
                else:
                    before = port.jobs[_STORE_TAKEN, job - 1]
                cycle = max(cycle, before + 1)
            _note(port, _OFFERED + part, cycle)
            if part == 1:
                _offer(core, COMPUTE, cycle)
            elif part == 2:
                _offer(core, DRAIN, cycle)


@inner
def _offer_kept(port: PortTables) -> None:
    """Record when the load unit of the map memory is offered jobs that have arrived, one after the other."""
    while True:
        job = port.state[_KNOWN + _KEPT_OFFERED]
        if job >= port.state[_KNOWN + _CAME] or job > port.state[_KNOWN + _KEPT_TAKEN]:
            return
        cycle = port.jobs[_CAME, job] + _OFFER
        _note(port, _KEPT_OFFERED, max(cycle, port.jobs[_KEPT_TAKEN, job - 1] + 1) if job else cycle)


@inner
def _fetch_ready(port: PortTables) -> int:
    """Return the earliest cycle of a grant of the port to the next burst that fetches a job; `NEVER` if unknown."""
    unit = port.units[FETCHES]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if not port.bursts[_MARKS, unit[_NEXT]] & FIRST_OF_JOB:
        return max(unit[_GRANTED] + _NEXT_BURST, _room(port, 0))
    job = port.bursts[_JOB_OF, unit[_NEXT]]
    if job > port.state[_KNOWN + _CAME]:
        return NEVER
    ready = port.jobs[_CAME, job - 1] + _NEXT_JOB if job else _FIRST_JOB
    room = job - port.state[_QUEUE]
    if room >= 0:
        for part in range(4):
            if room >= port.state[_KNOWN + _OFFERED + part]:
                return NEVER
            ready = max(ready, port.jobs[_OFFERED + part, room])
        if port.state[HAS_MAP_MEMORY]:
            if room >= port.state[_KNOWN + _KEPT_OFFERED]:
                return NEVER
            ready = max(ready, port.jobs[_KEPT_OFFERED, room])
    return max(ready, _room(port, 0))


@inner
def _store_ready(port: PortTables, core: CoreTables) -> int:
    """Return the earliest cycle of a grant to the next burst that stores results; `NEVER` if unknown.

    A job whose outputs are for another memory than those before waits until all earlier jobs are stored.
    """
    unit = port.units[STORES]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if unit[_WAITING] == NEVER:
        job = port.bursts[_JOB_OF, unit[_NEXT]]
        if job >= core.state[KNOWN + DRAINED]:
            return NEVER
        met = core.jobs[DRAINED, job]
        if port.jobs[BOXES, job] & OUTPUT_TURNS:
            if job > core.state[KNOWN + STORED]:
                return NEVER
            met = max(met, core.jobs[STORED, job - 1])
        _request(port, STORES, _OFFERED + 3, _FIRST_STORE, _STORE_TAKEN, met)
    if _is_kept_store(port):
        return max(unit[_WAITING], port.state[_WRITER_FREE])
    return max(unit[_WAITING], _room(port, 1))


@inner
def _is_kept_store(port: PortTables) -> bool:
    """Return whether the next burst that stores results is for the map memory."""
    return port.jobs[BOXES, port.bursts[_JOB_OF, port.units[STORES, _NEXT]]] & OUTPUT_KEPT != 0


@inner
def _load_ready(port: PortTables, core: CoreTables, user: int) -> int:
    """Return the earliest cycle of a grant to the next burst that a load unit loads; `NEVER` if unknown.

    ``user`` is the load unit of the port (`LOADS`), or of the map memory. A job with a map in one of the two memories
    waits until the other unit has loaded all earlier jobs.
    """
    unit = port.units[user]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if unit[_WAITING] == NEVER:
        job = port.bursts[_JOB_OF, unit[_NEXT]]
        computed, stored = port.jobs[_WAIT_COMPUTED, job], port.jobs[_WAIT_STORED, job]
        if computed > core.state[KNOWN + COMPUTED] or stored > core.state[KNOWN + STORED]:
            return NEVER
        met = core.jobs[COMPUTED, computed - 1] if computed else 0
        if stored:
            met = max(met, core.jobs[STORED, stored - 1])
        if port.state[HAS_MAP_MEMORY] and job and port.jobs[BOXES, job] & (BOX_AT_PORT if user == LOADS else BOX_KEPT):
            other = _LOADED_BY + (1 if user == LOADS else 0)
            if job > port.state[_KNOWN + other]:
                return NEVER
            met = max(met, port.jobs[other, job - 1])
        if user == LOADS:
            _request(port, user, _OFFERED, _FIRST_LOAD, _LOAD_TAKEN, met)
        else:
            _request(port, user, _KEPT_OFFERED, _FIRST_LOAD, _KEPT_TAKEN, met)
    return max(unit[_WAITING], _room(port, 0) if user == LOADS else port.state[_READER_FREE])


@inner
def _request(port: PortTables, user: int, offered: int, first: int, taken: int, met: int) -> None:
    """Record when the store or load unit requests the port for its next burst, if the burst's job has been offered."""
    unit = port.units[user]
    burst = unit[_NEXT]
    job, marks = port.bursts[_JOB_OF, burst], port.bursts[_MARKS, burst]
    if job >= port.state[_KNOWN + offered]:
        return
    after = _NEXT_BOX if marks & FIRST_OF_BOX else _NEXT_BURST
    cycle = max(unit[_ASKED] + after, unit[_GRANTED] + 1, port.jobs[offered, job] + first, met + 1)
    unit[_ASKED], unit[_WAITING] = cycle, cycle + 1
    if marks & LAST_OF_JOB:
        _note(port, taken, cycle)


@inner
def _occupy(state: np.ndarray, channel: int, now: int, beats: int) -> None:
    """Record from when on the port is free after a burst that is granted in cycle ``now``, and the credit then.

    If memory moves two beats per cycle, only the burst's own channel, reads (0) or writes (1), is occupied.
    """
    if state[_PACE_BEATS] > state[_PACE]:
        state[_FREE + channel] = now + beats
        return
    needed = beats * state[_PACE] - state[_CREDIT]
    cycles = (needed + state[_PACE_BEATS] - 1) // state[_PACE_BEATS]
    state[_FREE], state[_CREDIT] = now + cycles, cycles * state[_PACE_BEATS] - needed
    state[_FREE + 1] = state[_FREE]


@inner
def _move(state: np.ndarray, channel: int, first: int, beats: int) -> int:
    """Return the cycle in which memory moves the last beat of a burst whose first beat can move in cycle ``first``.

    A beat that memory could have moved a cycle earlier begins a new count of fractions. A channel moves at most one
    beat per cycle.
    """
    per_cycle, free = state[_PACE_BEATS], state[_NEXT_BEAT + channel]
    pace = max(state[_PACE], per_cycle)
    begin = free if free > (first - 1) * per_cycle else first * per_cycle
    state[_NEXT_BEAT + channel] = begin + beats * pace
    return (begin + (beats - 1) * pace + per_cycle - 1) // per_cycle


@inner
def _grant(port: PortTables, core: CoreTables, user: int, now: int) -> None:
    """Grant the memory port to the next burst of a unit, and record the cycles that follow from the grant."""
    unit, state = port.units[user], port.state
    burst = unit[_NEXT]
    beats = port.bursts[_BEATS, burst]
    unit[_NEXT], unit[_GRANTED], unit[_WAITING], state[_LAST] = burst + 1, now, NEVER, now
    channel = 1 if user == STORES else 0
    _occupy(state, channel, now, max(beats, 2))
    if beats:
        entry = port.granted[state[NUM_GRANTED]]
        entry[0], entry[1], entry[2], entry[3] = user, port.bursts[_JOB_OF, burst], now, state[_FREE + channel]
        state[NUM_GRANTED] += 1
    ended = state[_ENDED + channel]
    if not beats:
        before = port.over[channel, (ended - 1) % state[_OUTSTANDING]] if ended else 0
        over = max(now, before) + 1
    elif user == STORES:
        over = _move(state, channel, now + _WRITE + state[_READ_LATENCY], beats) + max(1, state[_WRITE_LATENCY])
    else:
        over = _move(state, channel, now + 1 + max(1, state[_LATENCY]), beats)
    port.over[channel, ended % state[_OUTSTANDING]] = over
    state[_ENDED + channel] += 1
    if port.bursts[_MARKS, burst] & LAST_OF_JOB:
        if user == FETCHES:
            _note(port, _CAME, over)
        elif user == STORES:
            _append(core, STORED, over + _STORED)
        elif state[HAS_MAP_MEMORY]:
            _note_loaded(port, core, 0, over + _LOADED)
        else:
            _append(core, LOADED, over + _LOADED)


@inner
def _note_loaded(port: PortTables, core: CoreTables, by: int, cycle: int) -> None:
    """Record that one of both load units (0: of the port) has loaded its next job, and the jobs that both have."""
    _note(port, _LOADED_BY + by, cycle)
    while core.state[KNOWN + LOADED] < min(port.state[_KNOWN + _LOADED_BY], port.state[_KNOWN + _LOADED_BY + 1]):
        job = core.state[KNOWN + LOADED]
        _append(core, LOADED, max(port.jobs[_LOADED_BY, job], port.jobs[_LOADED_BY + 1, job]) + _JOINED)


@inner
def _grant_kept(port: PortTables, core: CoreTables, user: int, now: int) -> None:
    """Grant the map memory to the next burst of the store unit, or of its load unit, as `_grant` does the port."""
    unit, state = port.units[user], port.state
    burst = unit[_NEXT]
    beats = port.bursts[_BEATS, burst]
    unit[_NEXT], unit[_GRANTED], unit[_WAITING] = burst + 1, now, NEVER
    is_last = port.bursts[_MARKS, burst] & LAST_OF_JOB
    if user == KEPT_LOADS:
        state[_READER_FREE] = now + max(beats, 1)
        if is_last:
            _note_loaded(port, core, 1, now + max(beats, 1) + _READ_KEPT + _LOADED)
        return
    state[_WRITER_FREE] = now + max(beats, 2)
    if beats:
        state[_KEPT_ENDED] = now + _WRITE + state[_READ_LATENCY] + beats - 1
    else:
        state[_KEPT_ENDED] = max(now, state[_KEPT_ENDED]) + 1
    if is_last:
        _append(core, STORED, state[_KEPT_ENDED] + _STORED)


@inner
def _reaches_change(core: CoreTables, until: int) -> bool:
    """Advance the compute core until a job is accepted, computed or drained before ``until``; return whether one is."""
    computed, drained = core.state[KNOWN + COMPUTED], core.state[KNOWN + DRAINED]
    accepted, also = core.state[KNOWN + COMPUTE_ACCEPTED], core.state[KNOWN + DRAIN_ACCEPTED]
    while True:
        event = _next_event(core)
        if event >= until:
            return False
        _advance(core, event + 1)
        if (
            core.state[KNOWN + COMPUTED] != computed
            or core.state[KNOWN + DRAINED] != drained
            or core.state[KNOWN + COMPUTE_ACCEPTED] != accepted
            or core.state[KNOWN + DRAIN_ACCEPTED] != also
        ):
            return True


@compiled_in_place
def run(port: PortTables, core: CoreTables) -> int:
    """Compute all memory bursts of a program; return `DONE`, or `STUCK` if its jobs wait for each other forever."""
    jobs = port.state[_JOBS]
    while min(core.state[KNOWN + STORED], core.state[KNOWN + LOADED]) < jobs:
        _offer_parts(port, core)
        stores, loads = _store_ready(port, core), _load_ready(port, core, LOADS)
        kept_loads = kept_stores = NEVER
        if port.state[HAS_MAP_MEMORY]:
            _offer_kept(port)
            kept_loads = _load_ready(port, core, KEPT_LOADS)
            _offer_kept(port)
            if stores < NEVER and _is_kept_store(port):
                stores, kept_stores = NEVER, stores
        _offer_parts(port, core)  # a unit accepts its next job with its last burst, so more jobs can be offered now
        fetches = _fetch_ready(port)
        reads, writes = max(min(fetches, loads), port.state[_FREE]), max(stores, port.state[_FREE + 1])
        first = max(min(reads, writes), port.state[_LAST] + 1)  # one grant per cycle
        if _reaches_change(core, min(first, kept_loads, kept_stores)):
            continue
        if min(first, kept_loads, kept_stores) >= NEVER:
            return STUCK
        if min(kept_loads, kept_stores) <= first:
            user = KEPT_LOADS if kept_loads <= kept_stores else STORES
            _grant_kept(port, core, user, min(kept_loads, kept_stores))
            continue
        can_read = port.state[_FREE] <= first
        _grant(port, core, FETCHES if fetches <= first and can_read else STORES if writes <= first else LOADS, first)
    _advance(core, NEVER)
    return DONE


def port_of(
    sizes: Sequence[int],
    waits: np.ndarray,
    units: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    boxes: np.ndarray | None = None,
) -> PortTables:
    """Return the tables of the engine's memory port before its first cycle.

    Parameters
    ----------
    sizes : sequence of int
        First entries of `PortTables.state`.
    waits : int64 (2, jobs)
        First rows of `PortTables.jobs`.
    units : sequence of tuple
        Beats, jobs and marks of the bursts that are fetched, stored and loaded, and loaded from a map memory.
    boxes : int64 (jobs,), optional
        Boxes of each job, on an engine with a map memory (`BOX_AT_PORT` and so on).
    """
    bursts = np.array([np.concatenate(row) for row in zip(*units, strict=True)], np.int32)
    ends = np.cumsum([0, *(len(beats) for beats, _, _ in units)])
    table = np.full((len(units), 5), -NEVER, np.int64)
    table[:, _NEXT], table[:, _END], table[:, _WAITING] = ends[:-1], ends[1:], NEVER
    state, jobs = np.zeros(_PORT_STATE, np.int64), np.zeros((_ROWS, waits.shape[1]), np.int64)
    state[: len(sizes)] = sizes
    jobs[: len(waits)] = waits
    if boxes is not None:
        jobs[BOXES], state[HAS_MAP_MEMORY] = boxes, 1
    return PortTables(
        state=state,
        jobs=jobs,
        bursts=bursts,
        units=table,
        over=np.zeros((2, sizes[_OUTSTANDING]), np.int64),
        granted=np.zeros((bursts.shape[1], 4), np.int64),
    )
