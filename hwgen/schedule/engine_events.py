"""Compiled loops of the engine's schedule: events of the compute core and grants of the memory port.

`hwgen.schedule.engine_core` and `hwgen.schedule.engine` say what the events are, and hold the tables. Cycles are int64;
`NEVER` stands for a cycle that is not known yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwgen.schedule.compiled import compiled

#: Later than any cycle; its negative is earlier than any.
NEVER = 1 << 60

# The compute core.

#: Columns of `Core.parts`: of a job's part for the array, and of its part for the drain.
GROUPS, STEPS, OPENS, ENDS, WALK, BLOCKS, PIXELS, WAIT_STORED = range(8)
#: Rows of `Core.times`. Rows of the queue of parts for the array are first, then those of the drain's queue.
COMPUTE_OFFERED, COMPUTE_ACCEPTED, DRAIN_OFFERED, DRAIN_ACCEPTED, LOADED, STORED, COMPUTED, DRAINED = range(8)
#: The two queues.
COMPUTE, DRAIN = range(2)
#: Entries of `Core.sizes`.
(
    ARRAY_PIXELS,
    SLOTS,
    WORDS_LATENCY,
    FINISH,
    FETCH,
    START,
    SUM_LATENCY,
    YIELD,
    DRAIN_LATENCY,
    DRAIN_FETCH,
    DRAIN_START,
) = range(11)
#: Entries of `Core.state`. Parts taken and the cycle in which the unit is free, for each queue; the job that is
#: computed, its groups that are to begin, the last step so far, groups that took a slot, groups begun, groups with
#: complete sums, groups drained, cycles yielded; the job that is drained, its pixels that are to begin, groups begun,
#: whether a group is drained, its first and last selection; the last job's ``finished``.
COMPUTE_TAKEN, _COMPUTE_FREE, _DRAIN_TAKEN, _DRAIN_FREE = range(4)
_JOB, _LEFT, _LAST_STEP, _OPENED, NUM_GROUPS, _NUM_COMPLETE, NUM_RELEASED, NUM_YIELDED = range(4, 12)
_DRAIN_JOB, _PIXELS_LEFT, _BEGUN, _SELECTS, _SELECTED_FIRST, _SELECTED_LAST, FINISHED = range(12, 19)
STATE = 19
#: Columns of `Core.sums`.
COMPLETE, RELEASED, FIRST_BEAT, LAST_BEAT = range(4)


class Core(NamedTuple):
    """Tables of a compute core.

    Attributes
    ----------
    sizes : int64 (11,)
        Sizes and latencies of the circuit.
    parts : int64 (jobs, 8)
        What each job asks of the array and of the drain.
    times : int64 (8, jobs)
        Cycles of each job; ``lengths`` (8,) are the numbers of entries that are known.
    state : int64 (19,)
    groups : int64 (n, 2)
        First and last step of each pixel group.
    sums : int64 (n, 4)
        For each group with complete sums: the cycle from which it can be selected, the cycle in which its slot is
        free, its first and last beat.
    yields : int64 (n,)
        Cycles without a beat.
    """

    sizes: np.ndarray
    parts: np.ndarray
    times: np.ndarray
    lengths: np.ndarray
    state: np.ndarray
    groups: np.ndarray
    sums: np.ndarray
    yields: np.ndarray


@compiled
def _append(core: Core, row: int, cycle: int) -> None:
    """Append a cycle to a row of `Core.times`."""
    core.times[row, core.lengths[row]] = cycle
    core.lengths[row] += 1


@compiled
def _accept(core: Core, queue: int) -> None:
    """Let the next part of a queue go to the register of its unit, if the register is free."""
    number = core.state[2 * queue]
    if core.lengths[2 * queue + 1] == number < core.lengths[2 * queue]:
        _append(core, 2 * queue + 1, max(core.times[2 * queue, number], core.state[2 * queue + 1]))


@compiled
def offer(core: Core, queue: int, cycle: int) -> None:
    """Offer the next part of a queue from ``cycle`` on."""
    _append(core, 2 * queue, cycle)
    _accept(core, queue)


@compiled
def count(core: Core, row: int, cycle: int) -> None:
    """Count another job as loaded or stored from ``cycle`` on."""
    _append(core, row, cycle)


@compiled
def _take(core: Core, queue: int, cycle: int) -> int:
    """Return the job whose turn comes with the cycle after this one."""
    number = core.state[2 * queue]
    core.state[2 * queue] += 1
    core.state[2 * queue + 1] = cycle + 1
    _accept(core, queue)
    return number


@compiled
def _next_start(core: Core) -> int:
    """Return the cycle before the next group's first step, or before the turn of a job without groups."""
    state, sizes, parts = core.state, core.sizes, core.parts
    if state[_LEFT]:
        job, cycle = state[_JOB], state[_LAST_STEP]
        if not parts[job, OPENS] and parts[job, GROUPS] == 2 and parts[job, STEPS] == 1:
            cycle += 1  # the sums of the slot's last visit are not yet there
    else:
        job = state[COMPUTE_TAKEN]
        if job >= core.lengths[COMPUTE_ACCEPTED] or job >= core.lengths[LOADED]:
            return NEVER
        ready = core.times[COMPUTE_ACCEPTED, job] + sizes[FETCH] - 1 + parts[job, WALK] * sizes[ARRAY_PIXELS]
        cycle = max(ready, core.times[LOADED, job] + sizes[START] - 1, state[_LAST_STEP])
    if parts[job, OPENS] and parts[job, GROUPS] and state[_OPENED] >= sizes[SLOTS]:
        before = state[_OPENED] - sizes[SLOTS]
        return max(cycle, core.sums[before, RELEASED] + 1) if before < state[NUM_RELEASED] else NEVER
    return cycle


@compiled
def _start(core: Core, cycle: int) -> None:
    """Begin the next group, or the turn of a job without groups."""
    state, sizes, parts = core.state, core.sizes, core.parts
    if not state[_LEFT]:
        state[_JOB] = _take(core, COMPUTE, cycle)
        state[_LEFT] = parts[state[_JOB], GROUPS]
        if not state[_LEFT]:
            state[_LAST_STEP] = cycle + 1
            _append(core, COMPUTED, cycle + 1 + sizes[WORDS_LATENCY])
            return
    job = state[_JOB]
    state[_LEFT] -= 1
    state[_OPENED] += parts[job, OPENS]
    last = cycle + parts[job, STEPS]
    state[_LAST_STEP] = last
    core.groups[state[NUM_GROUPS], 0] = cycle + 1
    core.groups[state[NUM_GROUPS], 1] = last
    state[NUM_GROUPS] += 1
    if not state[_LEFT]:
        _append(core, COMPUTED, last + sizes[WORDS_LATENCY])
    if parts[job, ENDS]:
        core.sums[state[_NUM_COMPLETE], COMPLETE] = last + sizes[WORDS_LATENCY] + sizes[SUM_LATENCY]
        state[_NUM_COMPLETE] += 1
    if not parts[job, OPENS] and parts[job, GROUPS] > 1:
        _yield(core, cycle + 1 + sizes[WORDS_LATENCY] + sizes[YIELD])


@compiled
def _yield(core: Core, cycle: int) -> None:
    """Keep the drain from selecting sums in ``cycle``. If it drains a group then, it ends one cycle later."""
    state = core.state
    core.yields[state[NUM_YIELDED]] = cycle + core.sizes[DRAIN_LATENCY]
    state[NUM_YIELDED] += 1
    if state[_SELECTS] and state[_SELECTED_FIRST] <= cycle <= state[_SELECTED_LAST]:
        state[_SELECTED_LAST] += 1


@compiled
def _next_drain(core: Core) -> int:
    """Return the last selection of the group that is drained, or the cycle before the next group's first one."""
    state, sizes = core.state, core.sizes
    if state[_SELECTS]:
        return state[_SELECTED_LAST]
    complete = core.sums[state[_BEGUN], COMPLETE] - 1 if state[_BEGUN] < state[_NUM_COMPLETE] else NEVER
    free = core.sums[state[NUM_RELEASED] - 1, RELEASED] if state[NUM_RELEASED] else 0
    if state[_PIXELS_LEFT]:
        return max(free, complete)
    job = state[_DRAIN_TAKEN]
    if job >= core.lengths[DRAIN_ACCEPTED] or core.parts[job, WAIT_STORED] > core.lengths[STORED]:
        return NEVER
    wait = core.parts[job, WAIT_STORED]
    stored = core.times[STORED, wait - 1] if wait else 0
    ready = max(core.times[DRAIN_ACCEPTED, job] + sizes[DRAIN_FETCH] - 1, stored + sizes[DRAIN_START] - 1)
    if core.parts[job, BLOCKS] and core.parts[job, PIXELS]:
        return max(ready, free, complete)
    return max(ready, state[FINISHED] + 1)


@compiled
def _go_on(core: Core, cycle: int) -> None:
    """Begin to drain the next group, or end the one that is drained."""
    state, sizes = core.state, core.sizes
    if state[_SELECTS]:
        _end_group(core, cycle)
        return
    if not state[_PIXELS_LEFT]:
        job = _take(core, DRAIN, cycle)
        if not (core.parts[job, BLOCKS] and core.parts[job, PIXELS]):
            _append(core, DRAINED, cycle + 1)
            return
        state[_DRAIN_JOB], state[_PIXELS_LEFT] = job, core.parts[job, PIXELS]
    state[_BEGUN] += 1
    last = cycle + min(state[_PIXELS_LEFT], sizes[ARRAY_PIXELS]) * core.parts[state[_DRAIN_JOB], BLOCKS]
    late, ended = sizes[DRAIN_LATENCY], state[NUM_YIELDED]
    number = ended
    while number and core.yields[number - 1] >= cycle + 1 + late:
        number -= 1
    while number < ended:
        last += core.yields[number] - late <= last
        number += 1
    state[_SELECTS], state[_SELECTED_FIRST], state[_SELECTED_LAST] = 1, cycle + 1, last


@compiled
def _end_group(core: Core, cycle: int) -> None:
    """End the group whose last selection is in ``cycle``."""
    state, sizes = core.state, core.sizes
    late, number = sizes[DRAIN_LATENCY], state[NUM_RELEASED]
    core.sums[number, RELEASED] = cycle
    core.sums[number, FIRST_BEAT] = state[_SELECTED_FIRST] + late
    core.sums[number, LAST_BEAT] = cycle + late
    state[NUM_RELEASED] += 1
    state[_SELECTS] = 0
    state[_PIXELS_LEFT] -= min(state[_PIXELS_LEFT], sizes[ARRAY_PIXELS])
    if not state[_PIXELS_LEFT]:
        state[FINISHED] = cycle + late + sizes[FINISH]
        _append(core, DRAINED, state[FINISHED] + 1)


@compiled
def next_event(core: Core) -> int:
    """Return the cycle of the core's next event."""
    return min(_next_start(core), _next_drain(core))


@compiled
def advance(core: Core, until: int) -> None:
    """Go on with all events of the core before ``until``."""
    while True:
        start, drain = _next_start(core), _next_drain(core)
        if min(start, drain) >= until:
            return
        if start <= drain:
            _start(core, start)
        else:
            _go_on(core, drain)


# Bursts of the memory port.

#: Columns of boxes: what `split` cuts into bursts.
JOB, ADDRESS, ROW_STRIDE, BLOCK_STRIDE, BOX_BLOCKS, ROWS, WORDS, WIDE, WRITES = range(9)
#: Marks of a burst.
FIRST_OF_JOB, LAST_OF_JOB, FIRST_OF_BOX = 1, 2, 4


@compiled
def count_bursts(boxes: np.ndarray, burst_words: int, word_bytes: int) -> np.ndarray:
    """Return the number of bursts of each box: one a row, and one more for each border in the row."""
    found = np.zeros(len(boxes), np.int64)
    for number in range(len(boxes)):
        box = boxes[number]
        if box[WORDS] <= 0:
            continue
        for block in range(box[BOX_BLOCKS]):
            for row in range(box[ROWS]):
                begin = (box[ADDRESS] + block * box[BLOCK_STRIDE] + row * box[ROW_STRIDE]) // word_bytes
                found[number] += (begin + box[WORDS] - 1) // burst_words - begin // burst_words + 1
    return found


@compiled
def split(
    boxes: np.ndarray, burst_words: int, word_bytes: int, word_beats: int, bus_words: int, beats: np.ndarray
) -> np.ndarray:
    """Set the beats of each burst of the boxes, and return the bytes of each burst.

    Of a wide beat that is read both words are moved, of one that is written those that count.
    """
    moved = np.zeros(len(beats), np.int32)
    place = 0
    for number in range(len(boxes)):
        box = boxes[number]
        for block in range(box[BOX_BLOCKS]):
            for row in range(box[ROWS]):
                begin = (box[ADDRESS] + block * box[BLOCK_STRIDE] + row * box[ROW_STRIDE]) // word_bytes
                left = box[WORDS]
                while left > 0:
                    words = min(left, burst_words - begin % burst_words)
                    if box[WIDE] and bus_words > 1:
                        beats[place] = (begin % bus_words + words + bus_words - 1) // bus_words
                        moved[place] = words * word_bytes if box[WRITES] else beats[place] * bus_words * word_bytes
                    else:
                        beats[place] = words * word_beats
                        moved[place] = words * word_bytes
                    begin, left, place = begin + words, left - words, place + 1
    return moved


# The memory port.

#: Units in the order in which the port prefers them.
FETCHES, STORES, LOADS = range(3)
#: Rows of `Port.times`: jobs that came, their parts as they are offered to load, compute, drain and store, and parts
#: that load and store have taken.
_CAME, _OFFERED, _LOAD_TAKEN, _STORE_TAKEN = 0, 1, 5, 6
TIMES = 7
#: Columns of `Port.units`: the next burst and the end of all, the cycle in which the next burst was made, from which
#: on it waits for the port, and in which the last one was granted.
_NEXT, _END, _ASKED, _WAITING, _GRANTED = range(5)
#: Entries of `Port.sizes`: jobs, queue, outstanding bursts; of the memory its pace and latencies; `READ_LATENCY` of
#: the output buffer.
_JOBS, _QUEUE, _OUTSTANDING, _PACE, _LATENCY, _WRITE_LATENCY, _READ_LATENCY = range(7)
#: Entries of `Port.state`: the cycle in which the port is free, the last word that is written, bursts that are
#: granted.
_FREE, _LAST_WORD, NUM_GRANTED = range(3)

#: Least cycles from a burst to the next one of the same box, and to the first one of the next box.
_NEXT_BURST, _NEXT_BOX = 2, 3
#: Cycles from ``begin`` to the first job's burst; from a job's last word to the offer of its parts, and to the next
#: job's burst.
_FIRST_JOB, _OFFER, _NEXT_JOB = 3, 3, 4
#: Cycles from a part's offer to its first burst.
_FIRST_LOAD, _FIRST_STORE = 3, 2
#: Cycles from the end of a job's last burst until it counts.
_LOADED, _STORED = 3, 1
#: Cycles from a store's grant to its first word, but for the latency of the output buffer.
_WRITE = 3

#: How a run ends: with all jobs, or with jobs that wait for each other.
DONE, STUCK = range(2)


class Port(NamedTuple):
    """Tables of the memory port and of its three users.

    Attributes
    ----------
    sizes : int64 (7,)
    waits : int64 (jobs, 2)
        Jobs that must have been computed and stored before each job is loaded.
    beats, jobs : int32 (bursts,)
        Beats and the job of each burst, of one unit after the other.
    marks : uint8 (bursts,)
    units : int64 (3, 5)
    times : int64 (7, jobs)
        Cycles of each job; ``lengths`` (7,) are the numbers of entries that are known.
    over : int64 (2, outstanding)
        When the last bursts that were read and written are over; ``ended`` (2,) is the number of all of them.
    state : int64 (3,)
    granted : int64 (bursts, 4)
        Unit, job, begin and end of each burst with beats, in order.
    """

    sizes: np.ndarray
    waits: np.ndarray
    beats: np.ndarray
    jobs: np.ndarray
    marks: np.ndarray
    units: np.ndarray
    times: np.ndarray
    lengths: np.ndarray
    over: np.ndarray
    ended: np.ndarray
    state: np.ndarray
    granted: np.ndarray


@compiled
def _note(port: Port, row: int, cycle: int) -> None:
    """Append a cycle to a row of `Port.times`."""
    port.times[row, port.lengths[row]] = cycle
    port.lengths[row] += 1


@compiled
def _room(port: Port, writes: int) -> int:
    """Return the cycle from which on another burst can be granted, of reads or of writes."""
    outstanding, ended = port.sizes[_OUTSTANDING], port.ended[writes]
    return port.over[writes, ended % outstanding] + 1 if ended >= outstanding else 0


@compiled
def _offer_parts(port: Port, core: Core) -> None:
    """Let parts go from their queues to the units."""
    for part in range(4):
        while True:
            job = port.lengths[_OFFERED + part]
            if part == 0:
                taken = port.lengths[_LOAD_TAKEN]
            elif part == 1:
                taken = core.lengths[COMPUTE_ACCEPTED]
            elif part == 2:
                taken = core.lengths[DRAIN_ACCEPTED]
            else:
                taken = port.lengths[_STORE_TAKEN]
            if job >= port.lengths[_CAME] or job > taken:
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
            _note(port, _OFFERED + part, cycle)
            if part == 1:
                offer(core, COMPUTE, cycle)
            elif part == 2:
                offer(core, DRAIN, cycle)


@compiled
def _fetch_ready(port: Port) -> int:
    """Return the cycle in which the next burst of a job's words can have the port."""
    unit = port.units[FETCHES]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if not port.marks[unit[_NEXT]] & FIRST_OF_JOB:
        return max(unit[_GRANTED] + _NEXT_BURST, _room(port, 0))
    job = port.jobs[unit[_NEXT]]
    if job > port.lengths[_CAME]:
        return NEVER
    ready = port.times[_CAME, job - 1] + _NEXT_JOB if job else _FIRST_JOB
    room = job - port.sizes[_QUEUE]
    if room >= 0:
        for part in range(4):
            if room >= port.lengths[_OFFERED + part]:
                return NEVER
            ready = max(ready, port.times[_OFFERED + part, room])
    return max(ready, _room(port, 0))


@compiled
def _store_ready(port: Port, core: Core) -> int:
    """Return the cycle in which the next burst of a store can have the port."""
    unit = port.units[STORES]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if unit[_WAITING] == NEVER:
        job = port.jobs[unit[_NEXT]]
        if job >= core.lengths[DRAINED]:
            return NEVER
        _ask(port, STORES, _OFFERED + 3, _FIRST_STORE, _STORE_TAKEN, core.times[DRAINED, job])
    return max(unit[_WAITING], _room(port, 1))


@compiled
def _load_ready(port: Port, core: Core) -> int:
    """Return the cycle in which the next burst of a load can have the port."""
    unit = port.units[LOADS]
    if unit[_NEXT] == unit[_END]:
        return NEVER
    if unit[_WAITING] == NEVER:
        job = port.jobs[unit[_NEXT]]
        computed, stored = port.waits[job, 0], port.waits[job, 1]
        if computed > core.lengths[COMPUTED] or stored > core.lengths[STORED]:
            return NEVER
        met = core.times[COMPUTED, computed - 1] if computed else 0
        if stored:
            met = max(met, core.times[STORED, stored - 1])
        _ask(port, LOADS, _OFFERED, _FIRST_LOAD, _LOAD_TAKEN, met)
    return max(unit[_WAITING], _room(port, 0))


@compiled
def _ask(port: Port, number: int, offered: int, first: int, taken: int, met: int) -> None:
    """Make the next burst of a unit, if its part is there."""
    unit = port.units[number]
    burst = unit[_NEXT]
    job, marks = port.jobs[burst], port.marks[burst]
    if job >= port.lengths[offered]:
        return
    after = _NEXT_BOX if marks & FIRST_OF_BOX else _NEXT_BURST
    cycle = max(unit[_ASKED] + after, unit[_GRANTED] + 1, port.times[offered, job] + first, met + 1)
    unit[_ASKED], unit[_WAITING] = cycle, cycle + 1
    if marks & LAST_OF_JOB:
        _note(port, taken, cycle)


@compiled
def _grant(port: Port, core: Core, number: int, now: int) -> None:
    """Give the port to the next burst of a unit, and note what follows from it."""
    unit, sizes, state = port.units[number], port.sizes, port.state
    burst = unit[_NEXT]
    beats, pace = port.beats[burst], sizes[_PACE]
    unit[_NEXT], unit[_GRANTED], unit[_WAITING] = burst + 1, now, NEVER
    state[_FREE] = now + max(beats, 2) * pace
    if beats:
        entry = port.granted[state[NUM_GRANTED]]
        entry[0], entry[1], entry[2], entry[3] = number, port.jobs[burst], now, state[_FREE]
        state[NUM_GRANTED] += 1
    channel = 1 if number == STORES else 0
    ended = port.ended[channel]
    if not beats:
        before = port.over[channel, (ended - 1) % sizes[_OUTSTANDING]] if ended else 0
        over = max(now, before) + 1
    elif number == STORES:
        first = max(now + _WRITE + sizes[_READ_LATENCY], state[_LAST_WORD] + pace)
        state[_LAST_WORD] = max(first, state[_LAST_WORD]) + (beats - 1) * pace
        over = state[_LAST_WORD] + max(1, sizes[_WRITE_LATENCY])
    else:
        over = now + 1 + max(1, sizes[_LATENCY]) + (beats - 1) * pace
    port.over[channel, ended % sizes[_OUTSTANDING]] = over
    port.ended[channel] += 1
    if port.marks[burst] & LAST_OF_JOB:
        if number == FETCHES:
            _note(port, _CAME, over)
        elif number == STORES:
            count(core, STORED, over + _STORED)
        else:
            count(core, LOADED, over + _LOADED)


@compiled
def _is_seen(core: Core, until: int) -> bool:
    """Let the core go on until something happens before ``until`` that others see; return whether it did."""
    computed, drained = core.lengths[COMPUTED], core.lengths[DRAINED]
    accepted, also = core.lengths[COMPUTE_ACCEPTED], core.lengths[DRAIN_ACCEPTED]
    while True:
        event = next_event(core)
        if event >= until:
            return False
        advance(core, event + 1)
        if (
            core.lengths[COMPUTED] != computed
            or core.lengths[DRAINED] != drained
            or core.lengths[COMPUTE_ACCEPTED] != accepted
            or core.lengths[DRAIN_ACCEPTED] != also
        ):
            return True


@compiled
def run(port: Port, core: Core) -> int:
    """Go through all bursts; return how that ends."""
    jobs = port.sizes[_JOBS]
    while min(core.lengths[STORED], core.lengths[LOADED]) < jobs:
        _offer_parts(port, core)
        stores, loads = _store_ready(port, core), _load_ready(port, core)
        _offer_parts(port, core)  # a unit takes its part when its last burst is made, which may make room for a job
        fetches = _fetch_ready(port)
        first = max(min(fetches, stores, loads), port.state[_FREE])
        if _is_seen(core, first):
            continue
        if first >= NEVER:
            return STUCK
        _grant(port, core, FETCHES if fetches <= first else STORES if stores <= first else LOADS, first)
    advance(core, NEVER)
    return DONE


def port_of(sizes: tuple[int, ...], waits: np.ndarray, units: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Port:
    """Return the tables of a port before its first cycle.

    ``sizes`` are those of `Port.sizes`, and ``units`` beats, jobs and marks of the bursts that are fetched, stored and
    loaded.
    """
    beats, jobs, marks = (np.concatenate(columns) for columns in zip(*units, strict=True))
    ends = np.cumsum([0, *(len(unit[0]) for unit in units)])
    table = np.full((len(units), 5), -NEVER, np.int64)
    table[:, _NEXT], table[:, _END], table[:, _WAITING] = ends[:-1], ends[1:], NEVER
    return Port(
        sizes=np.array(sizes, np.int64),
        waits=waits,
        beats=beats,
        jobs=jobs,
        marks=marks,
        units=table,
        times=np.zeros((TIMES, len(waits)), np.int64),
        lengths=np.zeros(TIMES, np.int64),
        over=np.zeros((2, sizes[_OUTSTANDING]), np.int64),
        ended=np.zeros(2, np.int64),
        state=np.array([0, -sizes[_PACE], 0], np.int64),
        granted=np.zeros((len(beats), 4), np.int64),
    )
