"""Systems of events that wait for each other, and their least solution.

Events come in *sequences*, such as the beats of one stream. Each happens a number of cycles after the one before it in
its sequence, or later, and a number of cycles after certain events of other sequences, or later (`Wait`). A sequence
repeats itself frame by frame, and so do its waits. With these rules times are a least fixed point of maxima and sums.

The first solution goes through all events once: an event is computed when all that it waits for has been. Afterwards a
wait may be made stricter, which only moves events later; only what moves is computed again, roughly in order of time,
so that an event that moves is seldom computed twice. Such a change can be taken back. Where more events move than there
are, each time counted, all are computed once more from the beginning: then each is computed once.

Numba compiles the loops: there are tens of millions of events, and each may depend on the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.schedule.compiled import compiled as _compiled

Times = np.ndarray  # int64 or int32, cycles; one entry an event, in order of occurrence

#: The delay of an event that waits for nothing where others of its sequence wait.
NO_WAIT = -(1 << 60)

#: Earlier than any event. Later than any, in 32 and in 64 bits.
BEFORE_ALL = -1
_AFTER_ALL = {np.dtype(np.int32): (1 << 31) - 1, np.dtype(np.int64): 1 << 62}

#: Cycles by which an event may be computed before another one that comes earlier.
SLACK = 100

#: Visits to sequences after which the loops come back to Python, within a second or so: then Ctrl-C is heard.
VISITS = 1 << 20

#: How a run of the loops ended.
_DONE, _LATE, _STUCK, _FULL, _WIDEN, _PAUSED = range(6)

#: Columns of the tables of sequences and of waits.
_FIRST, _COUNT, _GAP, _LOW, _HIGH, _AT = range(6)
_TARGET, _SOURCE, _EVERY, _LEAD, _PERIOD, _AHEAD, _BACK, _INDEX, _DATA = range(9)

#: And of what is counted along a sequence, for each wait: events until the next one that waits; how many of those
#: still wait for nothing; the place in the tables; what is added to the index there. And where `_first_waiting` found
#: its last.
_UNTIL, _BEFORE, _ENTRY, _OFFSET, _NEAR = range(5)


@dataclass(frozen=True)
class Wait:
    """What events of one sequence wait for.

    Of the target every ``every``-th event waits, the first one included: number ``every * (n + lead)``, of any
    ``n >= 0``, waits for event ``index[r] + q * ahead - back`` of the source, where ``q, r = divmod(n, len(index))``,
    and comes at least ``delay[r]`` cycles after it. It waits for nothing if that number is negative.

    Parameters
    ----------
    target, source : hashable
        Sequences.
    index : Times
        Never falls, nor from its end to the beginning of the next period.
    ahead : int
        Events of the source in a period.
    delay : Times or int
    every, lead, back : int
    data : bool
        The target has what the source brings, however much room there is. Such waits go one way through the sequences.
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
        # Which events wait for one that moves is found by bisection.
        assert (np.diff(self.index) >= 0).all()
        assert self.index[-1] <= self.index[0] + self.ahead


class StuckError(Exception):
    """Events wait for each other in a circle."""


class System:
    """Sequences of events, what they wait for, and when they happen.

    Parameters
    ----------
    sequences : dict
        For each key its number of events and the least distance of two that follow each other, in cycles; ordered so
        that waits for data go from a sequence to one behind it.
    waits : iterable of Wait
    """

    def __init__(self, sequences: dict[Any, tuple[int, int]], waits: Iterable[Wait]):
        self.numbers = {key: number for number, key in enumerate(sequences)}
        counts = np.array([count for count, _ in sequences.values()], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        gaps = np.array([gap for _, gap in sequences.values()], dtype=np.int64)
        #: Of each sequence the first event's place in ``_times``, and the range of those that are to be computed.
        self._sequences = np.stack(
            [firsts, counts, gaps, np.zeros_like(counts), counts, np.full_like(counts, -1)], axis=1
        )
        self._set_waits(list(waits))
        self._times = np.full(int(counts.sum()), BEFORE_ALL, dtype=np.int32)
        self._solved = False
        self._journal: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        #: All times at the mark, if all were computed again since.
        self._marked: Times | None = None

    def _set_waits(self, waits: list[Wait]) -> None:
        self._order = sorted(range(len(waits)), key=lambda number: self.numbers[waits[number].target])
        #: For each wait its row in ``_waits``.
        self._rows = {number: row for row, number in enumerate(self._order)}
        rows, tables, delays, place = [], [], [], 0
        for wait in (waits[number] for number in self._order):
            target, source, period = self.numbers[wait.target], self.numbers[wait.source], len(wait.index)
            rows.append((target, source, wait.every, wait.lead, period, wait.ahead, wait.back, place, wait.data))
            tables.append(wait.index)
            delays.append(np.broadcast_to(np.asarray(wait.delay, dtype=np.int64), period))
            place += period
        self._waits = np.array(rows, dtype=np.int64).reshape(-1, 9)
        self._turns = np.zeros((len(rows), 5), dtype=np.int64)
        self._tables = np.concatenate([np.zeros(0, dtype=np.int32), *tables]).astype(np.int32)
        self._delays = np.concatenate([np.zeros(0, dtype=np.int64), *delays])
        numbers = np.arange(len(self.numbers) + 1)
        self._into = np.searchsorted(self._waits[:, _TARGET], numbers)
        self._readers = np.argsort(self._waits[:, _SOURCE], kind="stable")
        self._out_of = np.searchsorted(self._waits[self._readers, _SOURCE], numbers)

    def __len__(self) -> int:
        """Number of events."""
        return len(self._times)

    def times(self, key: Any) -> Times:
        """Those of a sequence: a view."""
        return self.part(key, self._times)

    def part(self, key: Any, times: Times) -> Times:
        """A sequence's part of the times of all events: a view."""
        first, count = self._sequences[self.numbers[key], [_FIRST, _COUNT]]
        return times[first : first + count]

    def change(self, wait: int, *, lead: int | None = None, back: int | None = None) -> None:
        """Make a wait, by its number among those given, stricter: a smaller ``lead`` or ``back``."""
        row = self._rows[wait]
        if self._journal is not None:
            self._undo.append((row, self._waits[row].copy()))
        if lead is not None:
            self._waits[row, _LEAD] = lead
        if back is not None:
            self._waits[row, _BACK] = back
        target = self._waits[row, _TARGET]
        self._sequences[target, [_LOW, _HIGH, _AT]] = 0, self._sequences[target, _COUNT], -1

    def mark(self) -> None:
        """From here on what changes can be taken back. The system must be solved."""
        if self._journal is None:
            self._journal = np.empty(len(self), np.int64), np.empty(len(self), np.int64), np.zeros(1, np.int64)
        self._journal[2][0] = 0
        self._marked = None
        self._undo: list[tuple[int, np.ndarray]] = []

    def revert(self) -> None:
        """Take back all that changed since `mark`."""
        self._take_back()
        for row, old in reversed(self._undo):
            self._waits[row] = old
        self._sequences[:, [_LOW, _HIGH, _AT]] = 0, 0, -1
        self._solved = True
        self.mark()

    def _take_back(self) -> None:
        """Take back how events moved since `mark`."""
        assert self._journal is not None
        places, values, used = self._journal
        if self._marked is not None:
            self._times[:] = self._marked
        else:
            _take_back(self._times, places, values, int(used[0]))

    def _start_over(self) -> None:
        """Have all events computed again: more moved since `mark` than the journal holds."""
        self._take_back()
        self._marked = self._times.copy()
        self._times[:] = BEFORE_ALL
        self._sequences[:, _LOW], self._sequences[:, _HIGH], self._sequences[:, _AT] = 0, self._sequences[:, _COUNT], -1
        self._solved = False

    def solve(self, latest: Times | None = None) -> bool:
        """Find the times. ``False`` if an event comes later than its latest time (then unfinished).

        Raises
        ------
        StuckError
            If events wait for each other in a circle; those from each sequence's `reached` on never happen. They are
            late if they have a latest time.
        """
        while True:
            journal = self._journal
            if journal is None or self._marked is not None:
                journal = np.zeros(0, np.int64), np.zeros(0, np.int64), np.full(1, -1)
            bounds = np.zeros(0, self._times.dtype) if latest is None else latest
            tables = self._sequences, self._waits, self._tables, self._delays, self._into, self._turns
            if self._solved:
                end = _settle(self._times, *tables, self._out_of, self._readers, bounds, *journal)
            else:
                end = _solve(self._times, *tables, bounds, *journal)
            if end == _WIDEN:
                self._times = self._times.astype(np.int64)
                latest = None if latest is None else _widened(latest)
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
        """Events of a sequence that have been computed, when the system is stuck."""
        return int(self._sequences[self.numbers[key], _LOW])

    @property
    def moved(self) -> int:
        """Number of events that were computed since `mark` to move, each time counted."""
        return 0 if self._journal is None else int(self._journal[2][0]) + (self._marked is not None) * len(self)

    def latest(self, bounds: dict[Any, tuple[Times, Times]], *, data_only: bool) -> Times:
        """Return by when each event must happen for some events of a sequence to happen by when they must.

        Parameters
        ----------
        bounds : dict
            For sequences some of their events, and the latest times of these.
        data_only : bool
            Only waits for data are looked at. Otherwise all waits are, as they are now: the result is earlier, and
            exact. It holds as long as waits become stricter only; in it a trial that fails is seen to fail soon.
        """
        found = np.full_like(self._times, _AFTER_ALL[self._times.dtype])
        for key, (events, times) in bounds.items():
            found[int(self._sequences[self.numbers[key], _FIRST]) + events] = times
        tables = self._sequences, self._waits, self._tables, self._delays, self._into
        if data_only:
            _go_back(found, *tables)
        else:
            _go_all_back(found, *tables, self._out_of, self._readers)
        return found


def _widened(latest: Times) -> Times:
    wide = latest.astype(np.int64)
    wide[latest == _AFTER_ALL[np.dtype(np.int32)]] = _AFTER_ALL[np.dtype(np.int64)]
    return wide


@_compiled
def _take_back(times: Times, places: Times, values: Times, used: int) -> None:
    for entry in range(used - 1, -1, -1):
        times[places[entry]] = values[entry]


@_compiled
def _turn_to(sequences, waits, turns, number, event, begin, end):
    """Set what `_compute` counts along a sequence to one of its events."""
    for row in range(begin, end):
        every, period = waits[row, _EVERY], waits[row, _PERIOD]
        turn = -(-event // every)
        turns[row, _UNTIL] = turn * every - event
        turn -= waits[row, _LEAD]
        turns[row, _BEFORE] = max(-turn, 0)
        turn = max(turn, 0)
        turns[row, _ENTRY] = waits[row, _INDEX] + turn % period
        turns[row, _OFFSET] = turn // period * waits[row, _AHEAD] - waits[row, _BACK]
    sequences[number, _AT] = event


@_compiled
def _compute(
    times, sequences, waits, tables, delays, into, turns, bounds, places, values, used, number, limit, ordered
):
    """Compute events of a sequence from the first that is to be computed on.

    Until one is later than ``limit``, or all that follow stay as they are; unless ``ordered``, until one waits for what
    has not been computed. Returns how that ended, the next event, and the range of those that moved.
    """
    first, count, gap = sequences[number, _FIRST], sequences[number, _COUNT], sequences[number, _GAP]
    event, high = sequences[number, _LOW], sequences[number, _HIGH]
    begin, end = into[number], into[number + 1]
    if sequences[number, _AT] != event:
        _turn_to(sequences, waits, turns, number, event, begin, end)
    previous = max(times[first + event - 1] + gap, 0) if event else 0
    moved_from, moved_to, status = count, event, _DONE
    most = (1 << 31) - 1 if times.itemsize == 4 else 1 << 61
    while event < count and (event < high or moved_to == event):
        value = previous
        for row in range(begin, end):
            if turns[row, _UNTIL] or turns[row, _BEFORE]:
                continue
            entry = turns[row, _ENTRY]
            source = tables[entry] + turns[row, _OFFSET]
            if source >= 0:
                other = waits[row, _SOURCE]
                if not ordered and source >= sequences[other, _LOW] and other != number:
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
            if value > most:
                status = _WIDEN
                break
            if used[0] >= 0:
                if used[0] == places.size:
                    status = _FULL
                    break
                places[used[0]], values[used[0]] = first + event, old
                used[0] += 1
            times[first + event] = value
            if moved_from == count:
                moved_from = event
                limit = min(limit, value + SLACK)
            moved_to = event + 1
        previous = value + gap
        event += 1
        for row in range(begin, end):
            if turns[row, _UNTIL]:
                turns[row, _UNTIL] -= 1
                continue
            turns[row, _UNTIL] = waits[row, _EVERY] - 1
            if turns[row, _BEFORE]:
                turns[row, _BEFORE] -= 1
                continue
            turns[row, _ENTRY] += 1
            if turns[row, _ENTRY] == waits[row, _INDEX] + waits[row, _PERIOD]:
                turns[row, _ENTRY] = waits[row, _INDEX]
                turns[row, _OFFSET] += waits[row, _AHEAD]
        if ordered and value > limit:
            break
    sequences[number, _AT] = event
    return status, event, moved_from, moved_to


@_compiled
def _solve(times, sequences, waits, tables, delays, into, turns, bounds, places, values, used):
    """Compute all events that have not been yet, each when those have been that it waits for.

    A sequence is computed as far as its waits allow. Then the sequence that it waits for is, until that has come far
    enough: ``asking`` holds the sequences that wait for each other in this way, and ``until`` the event that is asked
    of each.
    """
    asking, until = np.empty(len(sequences), np.int64), np.empty(len(sequences), np.int64)
    listed = np.zeros(len(sequences), np.bool_)
    visits = 0
    for root in range(len(sequences) - 1, -1, -1):
        asking[0], until[0], listed[root], depth = root, sequences[root, _HIGH] - 1, True, 1
        while depth:
            visits += 1
            if visits > VISITS:
                return _PAUSED
            number = asking[depth - 1]
            status, event, _, _ = _compute(
                times, sequences, waits, tables, delays, into, turns, bounds, places, values, used, number, 0, False
            )
            sequences[number, _LOW] = event
            if status and status != _STUCK:
                return status
            if event > until[depth - 1]:
                listed[number] = False
                depth -= 1
                continue
            other, source = _blocking(sequences, waits, tables, into, turns, number)
            if listed[other]:
                return _solve_rest(times, sequences, waits, tables, delays, into, turns, bounds, places, values, used)
            asking[depth], until[depth], listed[other] = other, source, True
            depth += 1
    return _DONE


@_compiled
def _blocking(sequences, waits, tables, into, turns, number):
    """The sequence, and the event of it, that the next event of a sequence waits for and that has not been computed."""
    for row in range(into[number], into[number + 1]):
        if turns[row, _UNTIL] or turns[row, _BEFORE]:
            continue
        source, other = tables[turns[row, _ENTRY]] + turns[row, _OFFSET], waits[row, _SOURCE]
        if source >= sequences[other, _LOW] and other != number:
            return other, source
    return number, 0  # never: it is asked of sequences only that wait


@_compiled
def _solve_rest(times, sequences, waits, tables, delays, into, turns, bounds, places, values, used):
    """Compute all events that don't wait for a circle of others, which never happen."""
    visits, progress = 0, True
    while progress:
        progress = False
        for number in range(len(sequences)):
            visits += 1
            if visits > VISITS:
                return _PAUSED
            low = sequences[number, _LOW]
            status, event, _, _ = _compute(
                times, sequences, waits, tables, delays, into, turns, bounds, places, values, used, number, 0, False
            )
            sequences[number, _LOW] = event
            if status and status != _STUCK:
                return status
            progress = progress or event > low
    return _STUCK


@_compiled
def _settle(times, sequences, waits, tables, delays, into, turns, out_of, readers, bounds, places, values, used):
    """Compute again what may have moved, and what waits for what did, roughly in order of time."""
    active = np.empty(len(sequences), np.int64)
    listed = np.zeros(len(sequences), np.bool_)
    count = 0
    for number in range(len(sequences)):
        if sequences[number, _LOW] < sequences[number, _HIGH]:
            active[count] = number
            listed[number] = True
            count += 1
    visits = 0
    while count:
        visits += 1
        if visits > VISITS:
            return _PAUSED
        place, earliest, following = 0, 1 << 62, 1 << 62
        for entry in range(count):
            number = active[entry]
            time = times[sequences[number, _FIRST] + sequences[number, _LOW]]
            if time < earliest:
                place, earliest, following = entry, time, earliest
            elif time < following:
                following = time
        chosen = active[place]
        status, event, moved_from, moved_to = _compute(
            times,
            sequences,
            waits,
            tables,
            delays,
            into,
            turns,
            bounds,
            places,
            values,
            used,
            chosen,
            following + SLACK,
            True,
        )
        if moved_to == event and moved_from < moved_to and event < sequences[chosen, _COUNT]:
            sequences[chosen, _HIGH] = max(sequences[chosen, _HIGH], event + 1)
        if event >= sequences[chosen, _HIGH]:
            sequences[chosen, _LOW] = sequences[chosen, _HIGH] = 0
            count -= 1
            active[place] = active[count]
            listed[chosen] = False
        else:
            sequences[chosen, _LOW] = event
        if moved_from < moved_to:
            for reader in range(out_of[chosen], out_of[chosen + 1]):
                row = readers[reader]
                target = waits[row, _TARGET]
                if (
                    target != chosen
                    and _pass_on(sequences, waits, tables, turns, row, moved_from, moved_to)
                    and not listed[target]
                ):
                    active[count] = target
                    listed[target] = True
                    count += 1
        if status:
            return status
    return _DONE


@_compiled
def _pass_on(sequences, waits, tables, turns, row, moved_from, moved_to):
    """Those that wait for events that moved are to be computed again; whether there are any."""
    target, every, lead = waits[row, _TARGET], waits[row, _EVERY], waits[row, _LEAD]
    begin = _first_waiting(waits, tables, turns, row, moved_from)
    end = _first_waiting(waits, tables, turns, row, moved_to)
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
def _first_waiting(waits, tables, turns, row, source):
    """The least ``n`` that waits for an event or for one behind it; mostly near the one that was found last."""
    period, ahead, first = waits[row, _PERIOD], waits[row, _AHEAD], waits[row, _INDEX]
    source += waits[row, _BACK]
    periods = max(-((tables[first + period - 1] - source) // ahead), 0)
    source -= periods * ahead
    # All below ``low`` wait for earlier events, those from ``high`` on don't.
    near, step = min(turns[row, _NEAR], period - 1), 1
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
    turns[row, _NEAR] = low
    return periods * period + low


@_compiled
def _go_back(latest, sequences, waits, tables, delays, into):
    """Latest times: before the next of the sequence, and before all that wait for data."""
    for number in range(len(sequences) - 1, -1, -1):
        first, count, gap = sequences[number, _FIRST], sequences[number, _COUNT], sequences[number, _GAP]
        for event in range(first + count - 2, first - 1, -1):
            latest[event] = min(latest[event], latest[event + 1] - gap)
        for row in range(into[number], into[number + 1]):
            if not waits[row, _DATA] or waits[row, _SOURCE] == number:
                continue
            every, entry, offset = waits[row, _EVERY], waits[row, _INDEX], -waits[row, _BACK]
            of_source = sequences[waits[row, _SOURCE], _FIRST]
            for event in range(waits[row, _LEAD] * every, count, every):
                source = tables[entry] + offset
                if source >= 0 and delays[entry] > NO_WAIT:
                    time = latest[first + event] - delays[entry]
                    latest[of_source + source] = min(latest[of_source + source], time)
                entry += 1
                if entry == waits[row, _INDEX] + waits[row, _PERIOD]:
                    entry = waits[row, _INDEX]
                    offset += waits[row, _AHEAD]


@_compiled
def _go_all_back(latest, sequences, waits, tables, delays, into, out_of, readers):
    """Latest times, each when those of all events are known that wait for it: `_solve` backwards."""
    left = sequences[:, _COUNT].copy()
    last = len(sequences) - 1
    number, idle = last, 0
    while idle <= last:
        low, high = left[number], left[number]
        if high:
            low = _first_known(waits, tables, out_of, readers, left, number)
        if low >= high:
            idle += 1
            number = number - 1 if number else last
            continue
        first, gap = sequences[number, _FIRST], sequences[number, _GAP]
        for event in range(first + min(high, sequences[number, _COUNT] - 1) - 1, first + low - 1, -1):
            latest[event] = min(latest[event], latest[event + 1] - gap)
        for row in range(into[number], into[number + 1]):
            _pass_back(latest, sequences, waits, tables, delays, row, low, high)
        left[number] = low
        idle = 0
        number = min(number + 1, last)


@_compiled
def _first_known(waits, tables, out_of, readers, left, number):
    """The first event of a sequence for which no event waits whose latest time is not known."""
    low = 0
    for reader in range(out_of[number], out_of[number + 1]):
        row = readers[reader]
        turn = (left[waits[row, _TARGET]] - 1) // waits[row, _EVERY] - waits[row, _LEAD]
        if turn >= 0:
            periods, entry = turn // waits[row, _PERIOD], turn % waits[row, _PERIOD]
            source = tables[waits[row, _INDEX] + entry] + periods * waits[row, _AHEAD] - waits[row, _BACK]
            low = max(low, source + 1)
    return low


@_compiled
def _pass_back(latest, sequences, waits, tables, delays, row, low, high):
    """What events ``low`` to ``high - 1`` of a wait's target wait for must happen before them."""
    every, lead, period, begin = waits[row, _EVERY], waits[row, _LEAD], waits[row, _PERIOD], waits[row, _INDEX]
    target, origin = sequences[waits[row, _TARGET], _FIRST], sequences[waits[row, _SOURCE], _FIRST]
    turn, stop = (high - 1) // every - lead, max(-(-low // every) - lead, 0)
    if turn < stop:
        return
    entry = begin + turn % period
    offset = turn // period * waits[row, _AHEAD] - waits[row, _BACK]
    for event in range(target + (turn + lead) * every, target + (stop + lead) * every - 1, -every):
        source = tables[entry] + offset
        if source < 0:
            break
        if delays[entry] > NO_WAIT:
            latest[origin + source] = min(latest[origin + source], latest[event] - delays[entry])
        entry -= 1
        if entry < begin:
            entry = begin + period - 1
            offset -= waits[row, _AHEAD]
