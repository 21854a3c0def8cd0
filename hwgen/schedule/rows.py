"""Shortened schedules of tall maps, with a proof that the rows left out would change no result.

Rows inside a map wait for each other in the same way, whatever their index. The schedule of a tall map is therefore
mostly the same few rows again and again. A `RowCut` leaves the same share of rows out of the middle of every map of a
graph, by whole *strips*: the fewest rows that are a whole number in every map. Only the tables of waits are cut. Around
the cut, they must repeat strip by strip.

The solved schedule of the rows that are kept is then *proved* to be a part of the whole schedule (`RowCut.proved`):

1. In a zone around the cut, each sequence of events repeats after some strips, later by a fixed number of cycles.
2. No sequence loses more cycles in these strips than a sequence that waits for it.
3. With the strips put in, so that all later events move by their cycles, each event still happens as soon as everything
   that it waits for has happened. The waits must not reach beyond the zone. A wait that does is replaced by a stricter
   one that does not, and must not be the only cause of an event's time.

Then the whole schedule has the same times, moved by the strips put in, because it has one solution only. If a proof
fails, more rows have to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, gcd, lcm
from typing import Any

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.compiled import compiled
from hwgen.schedule.events import ENDLESS
from hwgen.schedule.settle import NO_WAIT, System, Times, Wait

#: Numbers of strips (groups of map rows) after which a schedule can repeat, in the order of trial.
PERIODS = (1, 2, 3, 4, 6)
#: Common multiple of `PERIODS`; the number of strips that are left out is a multiple of it.
MULTIPLE = 12


class UnsettledError(Exception):
    """Error: the map rows kept in a shortened schedule do not prove the times of those left out."""


@dataclass(frozen=True)
class Rows:
    """Map rows that a sequence of events covers: per frame, and per strip (repeating run of rows)."""

    count: int
    strip: Fraction


def rates(config: AcceleratorConfig) -> list[Fraction] | None:
    """Return a list of map rows per strip: each input's, then each layer's; ``None`` if the ratios are not fixed.

    A strip is a repeating run of rows. The number is 0 for the pixels that a global pool leaves.
    """
    heights = [config.layers[link.sink].inputs[link.port].height for link in config.input_links]
    rows = [Fraction(height, heights[0]) for height in heights]
    for layer, sources in zip(config.layers, config.sources, strict=True):
        read = [rows[-1 - source] if source < 0 else rows[len(heights) + source] for source in sources]
        ratios = _ratios(layer)
        if ratios is None:
            return None
        found = {rate * ratio for rate, ratio in zip(read, ratios, strict=True)}
        if len(found) > 1:
            return None
        rows.append(found.pop())
    whole = [rate for rate in rows if rate]
    scale = Fraction(lcm(*(rate.denominator for rate in whole)), gcd(*(rate.numerator for rate in whole)))
    return [rate * scale for rate in rows]


def _ratios(layer: LayerConfig) -> list[Fraction] | None:
    """Return, as a list, a layer's output rows per input row, a fraction for each input; ``None`` if not fixed."""
    if type(layer) is LayerConfig:
        return [Fraction(1, layer.window.stride[0])]
    if isinstance(layer, WholeMapLayerConfig):
        return [Fraction(0)]
    if isinstance(layer, CollectLayerConfig | RunningScaleLayerConfig):
        return [Fraction(1)]
    if isinstance(layer, JoinLayerConfig | ReorderLayerConfig):
        return [Fraction(layer.output.height, beat.height) for beat in layer.inputs]
    return None


@dataclass(frozen=True)
class Strips:
    """Numbers of a sequence's events: per frame, per strip (run of map rows), and index of the first left out."""

    events: int
    period: int
    cut: int


@dataclass(frozen=True)
class RowCut:
    """Strips (repeating runs of map rows) that a shortened schedule leaves out, and events per strip.

    Parameters
    ----------
    strips : dict of hashable to Strips
        By key of a sequence. Sequences without rows have the period 0.
    missing : int
        Number of strips left out of each frame.
    zone : int
        Number of strips before the cut, and after it, that all maps keep and whose waits repeat strip by strip.
    reaches : dict of int to tuple
        For each wait between sequences with rows, by its index: smallest and largest distance, in strips, from an event
        of its zone back to the event that it waits for, without ``lead`` and ``back``.
    """

    strips: Mapping[Any, Strips]
    missing: int
    zone: int
    reaches: dict[int, tuple[Fraction, Fraction]]

    @classmethod
    def of(cls, rows: Mapping[Any, Rows], counts: Mapping[Any, int], kept: int) -> RowCut | None:
        """Return a `RowCut` that keeps about ``kept`` strips (runs of rows) per frame; ``None`` if it saves little.

        Parameters
        ----------
        rows : dict of hashable to Rows
            Rows of each sequence.
        counts : dict of hashable to int
            Number of events per frame of each sequence.
        kept : int
            Smallest number of strips that are kept.
        """
        tall = [each for each in rows.values() if each.strip]
        if not tall or any(counts[key] % each.count for key, each in rows.items() if each.strip):
            return None
        missing = (min(int(each.count / each.strip) for each in tall) - kept) // MULTIPLE * MULTIPLE
        if missing < max(kept, MULTIPLE):  # the whole schedule takes hardly longer
            return None
        strips = {}
        for key, each in rows.items():
            row = counts[key] // each.count if each.strip else 0
            begin = int(each.count - missing * each.strip) // 2
            strips[key] = Strips(counts[key], int(row * each.strip), row * begin)
        return cls(strips, missing, kept // 2 - 1, {})

    def events(self, key: Any) -> int:
        """Return the number of events per frame of a sequence that the shortened schedule keeps."""
        strips = self.strips[key]
        return strips.events - self.missing * strips.period

    def short(self, index: int, wait: Wait) -> Wait:
        """Return a `Wait`: a timing constraint (number ``index``) without the strips of map rows that are left out.

        Raises
        ------
        UnsettledError
            If the rows of the wait do not repeat.
        """
        target, source = self.strips[wait.target], self.strips[wait.source]
        length, ahead = len(wait.index), wait.ahead
        in_frame = length * wait.every == target.events and ahead == source.events
        if not (target.period or source.period):
            return wait
        if not target.period:
            after = source.cut + self.missing * source.period
            if not in_frame or (wait.index < after).any():
                raise UnsettledError
            return replace(wait, index=wait.index - self.missing * source.period, ahead=self.events(wait.source))
        if target.period % wait.every or target.cut % wait.every:
            raise UnsettledError
        if not in_frame:
            entries = target.period // wait.every
            repeats = entries % length == 0 and entries // length * ahead == source.period
            if not repeats:
                raise UnsettledError
        return self._cut_wait(index, wait, in_frame=in_frame)

    def _cut_wait(self, index: int, wait: Wait, *, in_frame: bool) -> Wait:
        """Return a `Wait` without entries for left-out strips (runs of rows), and note its farthest reach back."""
        target, source = self.strips[wait.target], self.strips[wait.source]
        step, first = target.period // wait.every, target.cut // wait.every
        entries = np.arange(first - self.zone * step, first + (self.missing + self.zone) * step)
        periods, places = np.divmod(entries, len(wait.index))
        events = wait.index[places] + periods * wait.ahead
        delays = np.broadcast_to(wait.delay, len(wait.index))[places]
        if (events[step:] - events[:-step] != source.period).any() or (delays[step:] != delays[:-step]).any():
            raise UnsettledError
        if source.period:
            # The distances repeat as the events do, so one strip has all of them.
            back = (entries[:step] * wait.every - target.cut) * source.period
            back -= (events[:step] - source.cut) * target.period
            unit = target.period * source.period
            self.reaches[index] = Fraction(int(back.min()), unit), Fraction(int(back.max()), unit)
        if not in_frame:
            return wait
        end = first + self.missing * step
        after = wait.index[end:] - self.missing * source.period
        delay = wait.delay
        if not np.isscalar(delay) and np.size(delay) == len(wait.index):
            delay = np.concatenate([np.asarray(delay)[:first], np.asarray(delay)[end:]])
        ahead = self.events(wait.source)
        return replace(wait, index=np.concatenate([wait.index[:first], after]), ahead=ahead, delay=delay)

    def proved(self, system: System, waits: Sequence[Wait], frames: int) -> ProvedTimes:
        """Return the times (`ProvedTimes`) of the whole schedule, proved from the solved schedule of the kept rows.

        Parameters
        ----------
        system : System
            Solved system of the kept rows.
        waits : sequence of Wait
            Waits of the system, as they were before any of them became stricter.
        frames : int
            Number of frames.

        Raises
        ------
        UnsettledError
            If nothing is proved.
        """
        reaches = self._reaches(system, waits)
        longest = max((high for _, high in reaches.values()), default=Fraction(0))
        for period in PERIODS:
            zones = {min(int(longest) + 1 + period, self.zone), self.zone, (self.zone + period) // 2 + 1}
            for zone in sorted(each for each in zones if period < each <= self.zone):
                gains = self._gains(system, frames, zone, period)
                if gains is None:
                    continue
                proof = ProvedTimes(
                    self, frames, period, zone - period, self._shifts(system, waits, frames, gains, period)
                )
                if _is_consistent(proof, system, waits, reaches):
                    return proof
        raise UnsettledError

    def is_stuck(self, system: System) -> bool:
        """Return whether a deadlock of the shortened schedule is early enough to be one of the whole schedule, too."""
        return all(
            system.reached(key) < self.strips[key].cut + self.zone * self.strips[key].period for key in system.circle()
        )

    def _reaches(self, system: System, waits: Sequence[Wait]) -> dict[int, tuple[Fraction, Fraction]]:
        """Return, as a dictionary by constraint index, how far back it reaches: (least, most) strips (runs of rows)."""
        found = {}
        for index, (low, high) in self.reaches.items():
            wait, (lead, back) = waits[index], system.limits(index)
            # A wait can lead by ``lead * every`` events of its target, and go back by ``back`` events of its source.
            # Each sequence has its own number of events per strip (``period``).
            if back < ENDLESS:
                further = Fraction(lead * wait.every, self.strips[wait.target].period)
                further += Fraction(back, self.strips[wait.source].period)
                found[index] = low + further, high + further
        return found

    def _gains(self, system: System, frames: int, zone: int, period: int) -> dict[Any, Times] | None:
        """Return a dict from sequence to array by frame: cycles of ``period`` strips; ``None`` unless they repeat."""
        gains = {}
        for key, strips in self.strips.items():
            if strips.period:
                begin, end = (strips.cut + side * zone * strips.period for side in (-1, 1))
                part = system.times(key).reshape(frames, -1)[:, begin:end]
                steps = part[:, period * strips.period :] - part[:, : -period * strips.period]
                if (steps != steps[:, :1]).any():
                    return None
                gains[key] = steps[:, 0].astype(np.int64)
        return gains

    def _shifts(
        self, system: System, waits: Sequence[Wait], frames: int, gains: Mapping[Any, Times], period: int
    ) -> dict[Any, Times]:
        """Return a dict from sequence to array: cycles the whole schedule adds to events after 0, 1 .. ``frames`` cuts.

        Each frame has one cut, where rows are left out.
        """
        shifts = {key: np.append(0, np.cumsum(steps)) * (self.missing // period) for key, steps in gains.items()}
        for key in system.sequence_index:  # data waits lead from a sequence to one after it
            if key not in shifts:
                sources = [shifts[wait.source] for wait in waits if wait.target == key and wait.source in shifts]
                shifts[key] = np.maximum.reduce([np.zeros(frames + 1, np.int64), *sources])
        return shifts


@dataclass(frozen=True)
class ProvedTimes:
    """Times of a whole schedule, proved: the times of one with fewer map rows, each plus a shift in cycles.

    Parameters
    ----------
    cut : RowCut
        Rows that are left out.
    frames : int
        Number of frames.
    period : int
        Number of strips after which the times repeat.
    limit : int
        Largest distance, in strips, between an event and its causes that stays inside the zone that repeats.
    shifts : dict of hashable to array
        Number of cycles that a sequence's events after 0, 1 .. ``frames`` cuts are later in the whole schedule.
    """

    cut: RowCut
    frames: int
    period: int
    limit: int
    shifts: Mapping[Any, Times]

    def frame_ends(self, key: Any, times: Times) -> Times:
        """Return `Times`, per frame: the cycle of a sequence's last event in the whole schedule, from kept events."""
        return times.reshape(self.frames, -1)[:, -1].astype(np.int64) + self.shifts[key][1:]

    def whole(self, key: Any, times: Times) -> Times:
        """Return `Times`: the cycles of a sequence's events in the whole schedule, from the kept events."""
        strips, added = self.cut.strips[key], self.shifts[key]
        kept = times.reshape(self.frames, -1).astype(np.int64)
        if not strips.period:
            return (kept + added[1:, None]).ravel()
        begin, end = kept[:, : strips.cut] + added[:-1, None], kept[:, strips.cut :] + added[1:, None]
        turns = self.cut.missing // self.period
        gains = np.diff(added)[:, None, None] // turns * (1 + np.arange(turns)[:, None])
        middle = begin[:, None, strips.cut - self.period * strips.period :] + gains
        return np.concatenate([begin, middle.reshape(self.frames, -1), end], axis=1).ravel()

    @property
    def last_rows(self) -> dict[Any, int]:
        """Dictionary by sequence: index of the first event of the last frame near the cut; later waits don't change."""
        before = self.frames - 1
        strips = self.cut.strips
        return {
            key: before * self.cut.events(key) + each.cut - self.cut.zone * each.period for key, each in strips.items()
        }

    def is_local(self, key: Any, other: Any, events: int) -> bool:
        """Return whether two sequences shift equally, and ``events`` events of ``other`` fit the repeating rows."""
        alike = bool((self.shifts[key] == self.shifts[other]).all())
        return alike and events <= self.limit * self.cut.strips[other].period

    def begin(self, target: Any) -> int:
        """Return the index of a sequence's event in the first frame where times begin to repeat, before the cut."""
        strips = self.cut.strips[target]
        return strips.cut - self.period * strips.period


def _is_consistent(
    proof: ProvedTimes, system: System, waits: Sequence[Wait], reaches: Mapping[int, tuple[Fraction, Fraction]]
) -> bool:
    """Return whether shifted times solve the whole schedule, with each event as early as possible.

    Parameters
    ----------
    reaches : dict of int to tuple
        For each wait between sequences with rows: smallest and largest distance in strips, see `RowCut.reaches`.
    """
    shifts, later = proof.shifts, {}
    # If a sequence moves by the same cycles as all that it waits for, its events still happen as soon as they can.
    moved = {key for key, strips in proof.cut.strips.items() if not strips.period}
    moved |= {wait.target for wait in waits if wait.source in moved}
    for index, (low, high) in reaches.items():
        target, source = waits[index].target, waits[index].source
        if low < -proof.limit or (np.diff(shifts[source]) > np.diff(shifts[target])).any():
            return False
        later[index] = max(ceil(high - proof.limit), 0) * proof.cut.strips[source].period
        if later[index] or (shifts[source] != shifts[target]).any():
            moved.add(target)
    return all(_is_solved(proof, system, waits, later, key) for key in moved)


def _is_solved(proof: ProvedTimes, system: System, waits: Sequence[Wait], later: Mapping[int, int], key: Any) -> bool:
    """Return whether each event of a sequence happens, in the whole schedule, as soon as its waits permit.

    Parameters
    ----------
    later : dict of int to int
        Number of events that make each wait between sequences with rows stricter.
    """
    target, times, shift = proof.cut.strips[key], system.times(key), proof.shifts[key]
    events, cut = proof.cut.events(key), target.cut if target.period else 0
    causes = _earliest_times(times, shift, system.gap(key), 0 if target.period else events)
    for index, wait in enumerate(waits):
        lead, back = system.limits(index)
        if wait.target != key or back >= ENDLESS:
            continue
        without_rows = 0 if proof.cut.strips[wait.source].period else proof.cut.events(wait.source)
        if not _is_kept(
            causes,
            times,
            shift,
            system.times(wait.source),
            proof.shifts[wait.source],
            wait.index.astype(np.int64),
            np.ascontiguousarray(np.broadcast_to(np.asarray(wait.delay, np.int64), len(wait.index))),
            (wait.every, lead, wait.ahead, back),
            (events, cut, without_rows),
            (later.get(index, 0), proof.begin(key)),
        ):
            return False
    return bool((causes == times).all())


@compiled
def _earliest_times(times, shift, gap, without_rows):
    """Return an array of cycles: when each event of a sequence could come if it waited only for the previous one.

    ``without_rows`` is the number of events per frame of a sequence without rows, or else 0.
    """
    causes = np.zeros(times.size, np.int64)
    for event in range(1, times.size):
        causes[event] = max(times[event - 1] + gap, 0)
        if without_rows and event % without_rows == 0:
            causes[event] += shift[event // without_rows] - shift[event // without_rows + 1]
    return causes


@compiled
def _is_kept(causes, times, shift, source_times, source_shift, index, delays, wait, sizes, strictness):
    """Return whether a constraint holds in the whole schedule; raise the earliest times ``causes`` to what it asks.

    Times are for the kept rows. ``shift`` and ``source_shift`` are how many cycles later events are in the whole
    schedule, after 0, 1 .. cuts.

    Parameters
    ----------
    wait : tuple of int
        Fields ``every``, ``lead``, ``ahead`` and ``back`` of the `Wait`.
    sizes : tuple of int
        Kept events of the target per frame; first of them after the cut; kept events of the source per frame if the
        source has no rows, or else 0.
    strictness : tuple of int
        Number of events that the stricter wait's source is later, 0 if the wait is not made stricter; and the event of
        the first frame where the stricter wait begins.
    """
    every, lead, ahead, back = wait
    events, cut, without_rows = sizes
    later, begin = strictness
    for event in range(0, times.size, every):
        n = event // every - lead
        strict = later > 0 and event >= begin
        if n < 0 and not strict:
            continue
        source = index[n % index.size] + n // index.size * ahead - back
        delay = delays[n % index.size]
        if strict:
            source += later
        if source < 0 or delay <= NO_WAIT:
            continue
        if source >= source_times.size:
            return False
        cuts = event // events + (event % events >= cut)
        moved = source_shift[source // without_rows + 1 if without_rows else cuts] - shift[cuts]
        earliest = source_times[source] + delay + moved
        if earliest > times[event]:
            return False
        if not strict:
            causes[event] = max(causes[event], earliest)
    return True
