"""Solver for the earliest cycles of events (transfers, computation starts) that wait for each other.

Events belong to *sequences*, such as the beats of one stream. An event happens a fixed number of cycles after the
previous event of its sequence, or later. It also happens a number of cycles after certain events of other sequences, or
later (`Wait`). Sequences and waits repeat frame by frame. The times are the least fixed point of these maxima and sums.

The first solution computes all events once: an event is computed when everything that it waits for has been. Afterwards
a wait can be made stricter, which only moves events later. Then only the events that move are computed again, roughly
in order of time, so an event that moves is seldom computed twice. Such a change can be taken back. If the number of
moves exceeds the number of events, all events are computed once more from the beginning: then each event is computed
once.

Numba compiles the loops, but for a few events. There can be tens of millions of events, and each event can depend on
the previous event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.schedule.compiled import compiled_later as _compiled

Times = np.ndarray  # int64 or int32, in cycles: one entry per event, in order of occurrence

#: Delay, in cycles, that stands for no constraint: for single events of a `Wait` whose other events wait.
NO_WAIT = -(1 << 60)

#: Time, in cycles, that stands for "before all events".
BEFORE_ALL = -1
#: Dictionary from integer type of NumPy to the time, in cycles, that stands for "after all events".
_AFTER_ALL = {np.dtype(np.int32): (1 << 31) - 1, np.dtype(np.int64): 1 << 62}

#: Lower limit of latest allowed cycles: the smallest integer of 32 bits, before all events.
_MIN_LATEST = -(1 << 31)

#: Maximum number of cycles that a recomputation of one sequence runs ahead of pending events of other sequences.
SLACK = 100

#: Maximum number of visits to sequences before a compiled loop returns to Python (about a second), so that Ctrl-C
#: works.
VISITS = 1 << 20

#: Status codes of a compiled loop: all events are computed, an event is later than its latest time, events wait in a
#: circle, the undo journal is full, times exceed 32 bits, or the loop paused.
_DONE, _LATE, _STUCK, _FULL, _WIDEN, _PAUSED = range(6)

#: Column indices of `System`'s table of event sequences, then column indices of its table of waits (fields of `Wait`).
_FIRST, _COUNT, _GAP, _LOW, _HIGH, _AT = range(6)
_TARGET, _SOURCE, _EVERY, _LEAD, _PERIOD, _AHEAD, _BACK, _INDEX, _DATA = range(9)

#: Column indices of the table of cursors, one row per wait: events until the next event that waits; how many of the
#: next waiting events still wait for nothing; entry in the tables of indices and delays; offset that is added to the
#: index of that entry; and the last result of `_first_waiting_event`.
_UNTIL, _BEFORE, _ENTRY, _OFFSET, _NEAR = range(5)


@dataclass(frozen=True)
class Wait:
    """Constraint between two sequences of events: ``target`` happens at least some cycles after ``source``.

    Every ``every``-th event of the target waits, the first included. For any ``n >= 0`` event ``every * (n + lead)`` of
    the target waits for event ``index[r] + q * ahead - back`` of the source, where ``q, r = divmod(n, len(index))``. It
    happens at least ``delay[r]`` cycles later. If the source's event is negative, the target's event waits for nothing.

    Parameters
    ----------
    target, source : hashable
        Keys of the sequence that waits and of the sequence that it waits for.
    index : Times
        Events of the source in one period. They never decrease, nor from the end to the beginning of the next period.
    ahead : int
        Number of events of the source per period.
    delay : Times or int
        Cycles from the source's event to the target's event; one for all, or one per entry of ``index``.
    every : int
        Distance of two events of the target that wait.
    lead : int
        Number of waiting events at the beginning that wait for nothing, for example the rows of an empty buffer.
    back : int
        Number of events that the source's event is earlier, for example the depth of a FIFO.
    data : bool
        Whether the target needs the data that the source provides, rather than room. Waits for data form no circle.
    """

    target: Any
    source: Any
    index: Times
    ahead: int
    delay: Times | int = 0
    every: int = 1
    lead: int = 0
    back: int = 0
    data: bool = True

    def __post_init__(self) -> None:
        # The entries must not decrease, because bisection finds the events that wait for an event that moves.
        assert (np.diff(self.index) >= 0).all()
        assert self.index[-1] <= self.index[0] + self.ahead


class StuckError(Exception):
    """Error: a schedule deadlocks, as events (transfers, computation starts) wait for each other in a circle."""


class System:
    """System of event sequences (transfers, computation starts) that wait for each other; solved for earliest cycles.

    Parameters
    ----------
    sequences : dict
        Number of events of each key, and the smallest distance of two consecutive events, in cycles. The order is such
        that waits for data go from a sequence to a later one.
    waits : iterable of Wait
        Constraints between the sequences.
    """

    def __init__(self, sequences: dict[Any, tuple[int, int]], waits: Iterable[Wait]):
        self.sequence_index = {key: index for index, key in enumerate(sequences)}
        counts = np.array([count for count, _ in sequences.values()], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        gaps = np.array([gap for _, gap in sequences.values()], dtype=np.int64)
        #: One row per sequence: the index of its first event in ``_times``, its number of events, its smallest
        #: distance, the range of the events that must be computed, and the event that its cursors point to.
        self._sequences = np.stack(
            [firsts, counts, gaps, np.zeros_like(counts), counts, np.full_like(counts, -1)], axis=1
        )
        self._set_waits(list(waits))
        self._times = np.full(int(counts.sum()), BEFORE_ALL, dtype=np.int32)
        self._solved = False
        self._journal: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        #: Times of all events at the last `mark`, if all events were computed again since; otherwise ``None``.
        self._marked: Times | None = None

    def _set_waits(self, waits: list[Wait]) -> None:
        """Write all constraints into tables for the compiled loops, sorted by the sequence that waits."""
        self._order = sorted(range(len(waits)), key=lambda index: self.sequence_index[waits[index].target])
        #: Dictionary from a wait's index in ``waits`` to its row in the table ``_waits``.
        self._rows = {index: row for row, index in enumerate(self._order)}
        rows, tables, delays, table_index = [], [], [], 0
        for wait in (waits[index] for index in self._order):
            target, source, period = self.sequence_index[wait.target], self.sequence_index[wait.source], len(wait.index)
            rows.append((target, source, wait.every, wait.lead, period, wait.ahead, wait.back, table_index, wait.data))
            tables.append(wait.index)
            delays.append(np.broadcast_to(np.asarray(wait.delay, dtype=np.int64), period))
            table_index += period
        self._waits = np.array(rows, dtype=np.int64).reshape(-1, 9)
        self._cursors = np.zeros((len(rows), 5), dtype=np.int64)
        self._tables = np.concatenate([np.zeros(0, dtype=np.int32), *tables]).astype(np.int32)
        self._delays = np.concatenate([np.zeros(0, dtype=np.int64), *delays])
        bounds = np.arange(len(self.sequence_index) + 1)
        self._into = np.searchsorted(self._waits[:, _TARGET], bounds)
        self._readers = np.argsort(self._waits[:, _SOURCE], kind="stable")
        self._out_of = np.searchsorted(self._waits[self._readers, _SOURCE], bounds)

    def __len__(self) -> int:
        """Return the number of scheduled events of all sequences."""
        return len(self._times)

    def times(self, key: Any) -> Times:
        """Return an array (a view) of the cycles of all events of a sequence."""
        return self.part(key, self._times)

    def part(self, key: Any, times: Times) -> Times:
        """Return the slice (a view) of an array over all events that belongs to one sequence."""
        first, count = self._sequences[self.sequence_index[key], [_FIRST, _COUNT]]
        return times[first : first + count]

    def change(self, wait: int, *, lead: int | None = None, back: int | None = None) -> None:
        """Tighten a constraint between events by a smaller ``lead`` or ``back``, as for a smaller FIFO.

        ``wait`` is the constraint's index among the waits of the system.
        """
        row = self._rows[wait]
        if self._journal is not None:
            self._undo.append((row, self._waits[row].copy()))
        if lead is not None:
            self._waits[row, _LEAD] = lead
        if back is not None:
            self._waits[row, _BACK] = back
        target = self._waits[row, _TARGET]
        self._sequences[target, [_LOW, _HIGH, _AT]] = 0, self._sequences[target, _COUNT], -1

    def limits(self, wait: int) -> tuple[int, int]:
        """Return a pair: ``lead`` and ``back`` of the constraint with index ``wait``, as numbers of events."""
        lead, back = self._waits[self._rows[wait], [_LEAD, _BACK]]
        return int(lead), int(back)

    def gap(self, key: Any) -> int:
        """Return the smallest distance of two consecutive events of a sequence, in cycles."""
        return int(self._sequences[self.sequence_index[key], _GAP])

    def mark(self) -> None:
        """Save the solved times and constraints of all events, so that `revert` can undo later changes.

        The system must be solved.
        """
        if self._journal is None:
            self._journal = np.empty(len(self), np.int64), np.empty(len(self), np.int64), np.zeros(1, np.int64)
        self._journal[2][0] = 0
        self._marked = None
        self._undo: list[tuple[int, np.ndarray]] = []

    def revert(self) -> None:
        """Undo all changes of constraints and event times since `mark`."""
        self._take_back()
        for row, old in reversed(self._undo):
            self._waits[row] = old
        self._sequences[:, [_LOW, _HIGH, _AT]] = 0, 0, -1
        self._solved = True
        self.mark()

    def _take_back(self) -> None:
        """Restore the times of all scheduled events that were valid at `mark`."""
        assert self._journal is not None
        indices, values, used = self._journal
        if self._marked is not None:
            self._times[:] = self._marked
        else:
            _take_back(self._times, indices, values, int(used[0]))

    def _start_over(self) -> None:
        """Reset all event times, so that `solve` computes them from the beginning, because the undo journal is full."""
        self._take_back()
        self._marked = self._times.copy()
        self._times[:] = BEFORE_ALL
        self._sequences[:, _LOW], self._sequences[:, _HIGH], self._sequences[:, _AT] = 0, self._sequences[:, _COUNT], -1
        self._solved = False

    def solve(self, latest: Times | None = None) -> bool:
        """Compute the cycle of each event; return whether none is later than its entry in ``latest``.

        If an event is later, the computation stops unfinished.

        Raises
        ------
        StuckError
            If events wait for each other in a circle. Each sequence's events starting at `reached` never happen. If
            these events have a latest time, they count as late.
        """
        while True:
            journal = self._journal
            if journal is None or self._marked is not None:
                journal = np.zeros(0, np.int64), np.zeros(0, np.int64), np.full(1, -1)
            bounds = np.zeros(0, self._times.dtype) if latest is None else latest
            tables = self._sequences, self._waits, self._tables, self._delays, self._into, self._cursors
            system = self._times, *tables
            if self._solved:
                end = _recompute_events(system, self._out_of, self._readers, bounds, journal)
            else:
                end = _solve(system, bounds, journal)
            if end == _WIDEN:
                self._times = self._times.astype(np.int64)
                latest = None if latest is None else _widen_times(latest)
            elif end == _FULL:
                self._start_over()
            elif end == _STUCK and self._marked is not None and latest is not None:
                return False
            elif end == _STUCK:
                raise StuckError
            elif end != _PAUSED:
                self._solved = self._solved or end == _DONE
                return end == _DONE

    def reached(self, key: Any) -> int:
        """Return how many events of a sequence, from its first, happen before the schedule deadlocks."""
        return int(self._sequences[self.sequence_index[key], _LOW])

    def circle(self) -> list[Any]:
        """Return a list of keys of sequences that wait for each other in a circle, each at event `reached`."""
        keys, found = list(self.sequence_index), []
        sequence = next(index for index, row in enumerate(self._sequences) if row[_LOW] < row[_COUNT])
        tables = self._sequences, self._waits, self._tables, self._into, self._cursors
        while sequence not in found:
            found.append(sequence)
            sequence = int(_blocking(*tables, sequence)[0])
        return [keys[index] for index in found[found.index(sequence) :]]

    @property
    def moved(self) -> int:
        """Number of times that a scheduled event has been given a later cycle since `mark`.

        An event that moves twice counts twice.
        """
        return 0 if self._journal is None else int(self._journal[2][0]) + (self._marked is not None) * len(self)

    def latest(
        self, bounds: dict[Any, tuple[Times, Times]], *, data_only: bool, since: dict[Any, int] | None = None
    ) -> Times:
        """Return an array of the latest cycle of each event that lets chosen events still meet their deadlines.

        Parameters
        ----------
        bounds : dict
            Events and their latest times, per sequence.
        data_only : bool
            Whether only waits for data count. Otherwise all waits count, as they are now; the result is then earlier,
            and exact. The result holds as long as waits only become stricter. It makes a failing trial end soon.
        """
        latest = np.full_like(self._times, _AFTER_ALL[self._times.dtype])
        for key, (events, times) in bounds.items():
            latest[int(self._sequences[self.sequence_index[key], _FIRST]) + events] = times
        tables = self._sequences, self._waits, self._tables, self._delays, self._into
        if data_only:
            _lower_latest(latest, *tables)
        else:
            begins = np.array([since[key] if since else 0 for key in self.sequence_index], dtype=np.int64)
            _lower_latest_exactly(latest, *tables, self._out_of, self._readers, begins)
        return latest


def _widen_times(latest: Times) -> Times:
    """Return latest allowed cycles as int64, also the value that stands for "after all events", from int32."""
    wide = latest.astype(np.int64)
    wide[latest == _AFTER_ALL[np.dtype(np.int32)]] = _AFTER_ALL[np.dtype(np.int64)]
    return wide


@_compiled
def _take_back(times: Times, indices: Times, values: Times, used: int) -> None:
    """Restore the ``used`` recorded old times of events, in reverse order of recording."""
    for entry in range(used - 1, -1, -1):
        times[indices[entry]] = values[entry]


@_compiled
def _set_cursors(sequences, waits, cursors, sequence, event, begin, end):
    """Set the table positions (cursors) of all constraints on one sequence to the sequence's event ``event``."""
    for row in range(begin, end):
        every, period = waits[row, _EVERY], waits[row, _PERIOD]
        n = -(-event // every)
        cursors[row, _UNTIL] = n * every - event
        n -= waits[row, _LEAD]
        cursors[row, _BEFORE] = max(-n, 0)
        n = max(n, 0)
        cursors[row, _ENTRY] = waits[row, _INDEX] + n % period
        cursors[row, _OFFSET] = n // period * waits[row, _AHEAD] - waits[row, _BACK]
    sequences[sequence, _AT] = event


@_compiled
def _compute(system, bounds, journal, sequence, limit, ordered):
    """Compute one sequence's cycles from the first event to recompute; return (status, next event, moved range).

    The loop ends when an event is later than ``limit``, or when all following events keep their times. Unless
    ``ordered``, it also ends at an event that waits for an event that has not been computed. It returns the result, the
    next event, and the range of the events that moved.

    ``system`` holds the times and the tables of the system, as `System.solve` passes them to all loops. ``journal``
    records the moves: events, their old times, and the number of entries, negative if nothing is recorded.
    """
    times, sequences, waits, tables, delays, into, cursors = system
    moved_events, values, used = journal
    first, count, gap = sequences[sequence, _FIRST], sequences[sequence, _COUNT], sequences[sequence, _GAP]
    event, high = sequences[sequence, _LOW], sequences[sequence, _HIGH]
    begin, end = into[sequence], into[sequence + 1]
    if sequences[sequence, _AT] != event:
        _set_cursors(sequences, waits, cursors, sequence, event, begin, end)
    previous = max(times[first + event - 1] + gap, 0) if event else 0
    moved_from, moved_to, status = count, event, _DONE
    max_time = (1 << 31) - 1 if times.itemsize == 4 else 1 << 61
    while event < count and (event < high or moved_to == event):
        value = previous
        for row in range(begin, end):
            if cursors[row, _UNTIL] or cursors[row, _BEFORE]:
                continue
            entry = cursors[row, _ENTRY]
            source = tables[entry] + cursors[row, _OFFSET]
            if source >= 0:
                other = waits[row, _SOURCE]
                if not ordered and source >= sequences[other, _LOW] and other != sequence:
                    status = _STUCK
                    break
                value = max(value, times[sequences[other, _FIRST] + source] + delays[entry])
        old = times[first + event]
        if status:
            break
        if value != old:
            if bounds.size and value > bounds[first + event]:
                status = _LATE
                break
            if value > max_time:
                status = _WIDEN
                break
            if used[0] >= 0:
                if used[0] == moved_events.size:
                    status = _FULL
                    break
                moved_events[used[0]], values[used[0]] = first + event, old
                used[0] += 1
            times[first + event] = value
            if moved_from == count:
                moved_from = event
                limit = min(limit, value + SLACK)
            moved_to = event + 1
        previous = value + gap
        event += 1
        for row in range(begin, end):
            if cursors[row, _UNTIL]:
                cursors[row, _UNTIL] -= 1
                continue
            cursors[row, _UNTIL] = waits[row, _EVERY] - 1
            if cursors[row, _BEFORE]:
                cursors[row, _BEFORE] -= 1
                continue
            cursors[row, _ENTRY] += 1
            if cursors[row, _ENTRY] == waits[row, _INDEX] + waits[row, _PERIOD]:
                cursors[row, _ENTRY] = waits[row, _INDEX]
                cursors[row, _OFFSET] += waits[row, _AHEAD]
        if ordered and value > limit:
            break
    sequences[sequence, _AT] = event
    return status, event, moved_from, moved_to


@_compiled
def _solve(system, bounds, journal):
    """Compute the cycle of every scheduled event, after the events that it waits for; return a status code.

    A sequence is computed as far as its waits allow. Then the sequence that blocks it is computed, up to the event that
    is needed. ``asking`` is the stack of sequences that wait for each other in this way, and ``until`` holds the event
    that each of them must reach.
    """
    sequences, waits, tables, into, cursors = system[1], system[2], system[3], system[5], system[6]
    asking, until = np.empty(len(sequences), np.int64), np.empty(len(sequences), np.int64)
    listed = np.zeros(len(sequences), np.bool_)
    visits = 0
    for root in range(len(sequences) - 1, -1, -1):
        asking[0], until[0], listed[root], depth = root, sequences[root, _HIGH] - 1, True, 1
        while depth:
            visits += 1
            if visits > VISITS:
                return _PAUSED
            sequence = asking[depth - 1]
            status, event, _, _ = _compute(system, bounds, journal, sequence, 0, False)
            sequences[sequence, _LOW] = event
            if status and status != _STUCK:
                return status
            if event > until[depth - 1]:
                listed[sequence] = False
                depth -= 1
                continue
            other, source = _blocking(sequences, waits, tables, into, cursors, sequence)
            if listed[other]:
                return _solve_rest(system, bounds, journal)
            asking[depth], until[depth], listed[other] = other, source, True
            depth += 1
    return _DONE


@_compiled
def _blocking(sequences, waits, tables, into, cursors, sequence):
    """Return (sequence, event index) of an event, not yet computed, that a sequence's next event waits for."""
    for row in range(into[sequence], into[sequence + 1]):
        if cursors[row, _UNTIL] or cursors[row, _BEFORE]:
            continue
        source, other = tables[cursors[row, _ENTRY]] + cursors[row, _OFFSET], waits[row, _SOURCE]
        if source >= sequences[other, _LOW] and other != sequence:
            return other, source
    return sequence, 0  # unreachable: only called for sequences that wait


@_compiled
def _solve_rest(system, bounds, journal):
    """Compute the cycles of events that depend on no circle of waits, as `_solve` met one; return a status code."""
    sequences = system[1]
    visits, progress = 0, True
    while progress:
        progress = False
        for sequence in range(len(sequences)):
            visits += 1
            if visits > VISITS:
                return _PAUSED
            low = sequences[sequence, _LOW]
            status, event, _, _ = _compute(system, bounds, journal, sequence, 0, False)
            sequences[sequence, _LOW] = event
            if status and status != _STUCK:
                return status
            progress = progress or event > low
    return _STUCK


@_compiled
def _recompute_events(system, out_of, readers, bounds, journal):
    """Recompute the cycles of events that a changed constraint delays, directly or not; return a status code."""
    times, sequences, waits, tables, _, _, cursors = system
    active = np.empty(len(sequences), np.int64)
    listed = np.zeros(len(sequences), np.bool_)
    count = 0
    for sequence in range(len(sequences)):
        if sequences[sequence, _LOW] < sequences[sequence, _HIGH]:
            active[count] = sequence
            listed[sequence] = True
            count += 1
    visits = 0
    while count:
        visits += 1
        if visits > VISITS:
            return _PAUSED
        chosen_entry, earliest, following = 0, 1 << 62, 1 << 62
        for entry in range(count):
            sequence = active[entry]
            time = int(times[sequences[sequence, _FIRST] + sequences[sequence, _LOW]])
            if time < earliest:
                chosen_entry, earliest, following = entry, time, earliest
            elif time < following:
                following = time
        chosen = active[chosen_entry]
        status, event, moved_from, moved_to = _compute(system, bounds, journal, chosen, following + SLACK, True)
        if moved_to == event and moved_from < moved_to and event < sequences[chosen, _COUNT]:
            sequences[chosen, _HIGH] = max(sequences[chosen, _HIGH], event + 1)
        if event >= sequences[chosen, _HIGH]:
            sequences[chosen, _LOW] = sequences[chosen, _HIGH] = 0
            count -= 1
            active[chosen_entry] = active[count]
            listed[chosen] = False
        else:
            sequences[chosen, _LOW] = event
        if moved_from < moved_to:
            for reader in range(out_of[chosen], out_of[chosen + 1]):
                row = readers[reader]
                target = waits[row, _TARGET]
                if (
                    target != chosen
                    and _mark_targets(sequences, waits, tables, cursors, row, moved_from, moved_to)
                    and not listed[target]
                ):
                    active[count] = target
                    listed[target] = True
                    count += 1
        if status:
            return status
    return _DONE


@_compiled
def _mark_targets(sequences, waits, tables, cursors, row, moved_from, moved_to):
    """Mark the events that wait, by one constraint, for events that moved; return whether there are any."""
    target, every, lead = waits[row, _TARGET], waits[row, _EVERY], waits[row, _LEAD]
    begin = _first_waiting_event(waits, tables, cursors, row, moved_from)
    end = _first_waiting_event(waits, tables, cursors, row, moved_to)
    low = (begin + lead) * every
    high = min((end - 1 + lead) * every + 1, sequences[target, _COUNT])
    if low >= high:
        return False
    if sequences[target, _LOW] == sequences[target, _HIGH]:
        sequences[target, _LOW], sequences[target, _HIGH] = low, high
    else:
        sequences[target, _LOW] = min(sequences[target, _LOW], low)
        sequences[target, _HIGH] = max(sequences[target, _HIGH], high)
    return True


@_compiled
def _first_waiting_event(waits, tables, cursors, row, source):
    """Return the number ``n`` of the first waiting event of a constraint that waits for event ``source`` or later.

    The search starts near its last result.
    """
    period, ahead, first = waits[row, _PERIOD], waits[row, _AHEAD], waits[row, _INDEX]
    source += waits[row, _BACK]
    periods = max(-((tables[first + period - 1] - source) // ahead), 0)
    source -= periods * ahead
    # All entries below ``low`` wait for earlier events, and no entry at or above ``high`` does.
    near, step = min(cursors[row, _NEAR], period - 1), 1
    if tables[first + near] < source:
        low = near + 1
        while low + step <= period and tables[first + low + step - 1] < source:
            low += step
            step *= 2
        high = min(low + step - 1, period)
    else:
        high = near
        while high - step >= 0 and tables[first + high - step] >= source:
            high -= step
            step *= 2
        low = max(high - step + 1, 0)
    while low < high:
        middle = (low + high) // 2
        if tables[first + middle] < source:
            low = middle + 1
        else:
            high = middle
    cursors[row, _NEAR] = low
    return periods * period + low


@_compiled
def _lower_latest(latest, sequences, waits, tables, delays, into):
    """Lower each entry of ``latest`` to an upper bound of the event's latest allowed cycle, by data constraints.

    The computation goes backwards from the deadlines. Constraints on room do not count.
    """
    for sequence in range(len(sequences) - 1, -1, -1):
        first, count, gap = sequences[sequence, _FIRST], sequences[sequence, _COUNT], sequences[sequence, _GAP]
        for event in range(first + count - 2, first - 1, -1):
            latest[event] = min(latest[event], max(latest[event + 1] - gap, _MIN_LATEST))
        for row in range(into[sequence], into[sequence + 1]):
            if not waits[row, _DATA] or waits[row, _SOURCE] == sequence:
                continue
            every, entry, offset = waits[row, _EVERY], waits[row, _INDEX], -waits[row, _BACK]
            of_source = sequences[waits[row, _SOURCE], _FIRST]
            for event in range(waits[row, _LEAD] * every, count, every):
                source = tables[entry] + offset
                if source >= 0 and delays[entry] > NO_WAIT:
                    time = max(latest[first + event] - delays[entry], _MIN_LATEST)
                    latest[of_source + source] = min(latest[of_source + source], time)
                entry += 1
                if entry == waits[row, _INDEX] + waits[row, _PERIOD]:
                    entry = waits[row, _INDEX]
                    offset += waits[row, _AHEAD]


@_compiled
def _lower_latest_exactly(latest, sequences, waits, tables, delays, into, out_of, readers, begins):
    """Lower ``latest`` to each event's exact latest allowed cycle, from the deadlines back through all constraints.

    Each sequence ends at its event in ``begins``.
    """
    left = sequences[:, _COUNT].copy()
    last = len(sequences) - 1
    sequence, idle = last, 0
    while idle <= last:
        low, high = left[sequence], left[sequence]
        if high > begins[sequence]:
            low = max(_first_with_latest(waits, tables, out_of, readers, left, sequence, begins), begins[sequence])
        if low >= high:
            idle += 1
            sequence = sequence - 1 if sequence else last
            continue
        first, gap = sequences[sequence, _FIRST], sequences[sequence, _GAP]
        for event in range(first + min(high, sequences[sequence, _COUNT] - 1) - 1, first + low - 1, -1):
            latest[event] = min(latest[event], max(latest[event + 1] - gap, _MIN_LATEST))
        for row in range(into[sequence], into[sequence + 1]):
            _limit_sources(latest, sequences, waits, tables, delays, row, low, high)
        left[sequence] = low
        idle = 0
        sequence = min(sequence + 1, last)


@_compiled
def _first_with_latest(waits, tables, out_of, readers, left, sequence, begins):
    """Return the first event of a sequence that, like later ones, only delays events with a known latest cycle."""
    low = 0
    for reader in range(out_of[sequence], out_of[sequence + 1]):
        row = readers[reader]
        if left[waits[row, _TARGET]] <= begins[waits[row, _TARGET]]:
            continue
        n = (left[waits[row, _TARGET]] - 1) // waits[row, _EVERY] - waits[row, _LEAD]
        if n >= 0:
            periods, entry = n // waits[row, _PERIOD], n % waits[row, _PERIOD]
            source = tables[waits[row, _INDEX] + entry] + periods * waits[row, _AHEAD] - waits[row, _BACK]
            low = max(low, source + 1)
    return low


@_compiled
def _limit_sources(latest, sequences, waits, tables, delays, row, low, high):
    """Lower the latest cycles of a constraint's source events to suit its target events ``low`` to ``high - 1``."""
    every, lead, period, begin = waits[row, _EVERY], waits[row, _LEAD], waits[row, _PERIOD], waits[row, _INDEX]
    target, origin = sequences[waits[row, _TARGET], _FIRST], sequences[waits[row, _SOURCE], _FIRST]
    n, stop = (high - 1) // every - lead, max(-(-low // every) - lead, 0)
    if n < stop:
        return
    entry = begin + n % period
    offset = n // period * waits[row, _AHEAD] - waits[row, _BACK]
    for event in range(target + (n + lead) * every, target + (stop + lead) * every - 1, -every):
        source = tables[entry] + offset
        if source < 0:
            break
        if delays[entry] > NO_WAIT:
            time = max(latest[event] - delays[entry], _MIN_LATEST)
            latest[origin + source] = min(latest[origin + source], time)
        entry -= 1
        if entry < begin:
            entry = begin + period - 1
            offset -= waits[row, _AHEAD]
