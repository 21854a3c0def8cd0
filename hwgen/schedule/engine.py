"""Cycles of the engine: when each burst has the port to memory, and when each job is loaded, computed, drained, stored.

An exact model of the circuit in front of a memory without gaps (docs/engine.md, "Memory port" and "Cycles of the
core"). It goes on from burst to burst and, inside the core, from pixel group to pixel group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.finish import FinishConfig
from hwgen.gateware.engine.job import Job, Load, Store
from hwgen.gateware.engine.port import PACE_BITS
from hwgen.schedule.engine_core import CoreSchedule, Span

#: Least cycles from a burst to the next one of the same box, and to the first one of the next box.
_NEXT_BURST, _NEXT_BOX = 2, 3
#: Cycles from ``begin`` to the first job's burst; from a job's last word to the offer of its parts, and to the next
#: job's burst.
_FIRST_JOB, _OFFER, _NEXT_JOB = 3, 3, 4
#: Cycles from a part's offer to its first burst.
_FIRST_BURST = {"load": 3, "store": 2}
#: Cycles from the end of a job's last burst until it counts.
_LOADED, _STORED = 3, 1
#: Cycles from a store's grant to its first word, but for the latency of the output buffer.
_WRITE = 3
_PARTS = ("load", "compute", "drain", "store")
_UNITS = ("fetch", "store", "load")


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """A memory without gaps that answers in order.

    ``latency`` cycles lie between a read that is asked for and its first word, ``write_latency`` between the last word
    that is written and the response. A beat takes ``pace`` cycles. No memory answers in the cycle in which it is asked:
    a latency of 0 is one of 1.

    Raises
    ------
    ConfigError
        If the engine can't be told the pace, or a latency is no number of cycles.
    """

    latency: int = 20
    write_latency: int = 8
    pace: int = 1

    def __post_init__(self) -> None:
        times, most = (self.pace, self.latency, self.write_latency), (1 << PACE_BITS) - 1
        if any(type(each) is not int or each < 0 for each in times) or not 1 <= self.pace <= most:
            raise ConfigError(
                f"memory: pace must be 1 to {most} and latencies 0 or more, not pace {self.pace!r}, latency "
                f"{self.latency!r} and write_latency {self.write_latency!r}"
            )


@dataclass(frozen=True, kw_only=True)
class EngineCycles:
    """Of a run of a program.

    Attributes
    ----------
    cycles : int
        From ``begin`` until all jobs count as stored and computed.
    loaded, computed, drained, stored : tuple of int
        For each job the first cycle in which it counts as such.
    read, written : tuple of int
        Bytes, for each job.
    fetched : int
        Bytes of jobs.
    bursts : tuple of Granted
        All with beats, in order.
    groups : tuple of Span
        First and last step of each pixel group, in the order of the jobs.
    """

    cycles: int
    loaded: tuple[int, ...]
    computed: tuple[int, ...]
    drained: tuple[int, ...]
    stored: tuple[int, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]
    fetched: int
    bursts: tuple[Granted, ...]
    groups: tuple[Span, ...]


class Granted(NamedTuple):
    """A burst that had the port from cycle ``begin`` on, and kept others from it until ``end``.

    ``unit`` is ``fetch`` (of a job), ``store`` or ``load``.
    """

    unit: str
    job: int
    begin: int
    end: int


@dataclass(slots=True)
class _Burst:
    """Beats and bytes, cycles behind the one before at least; its job, if it is the first or the last of it."""

    beats: int
    bytes: int
    after: int
    job: int
    first: bool
    last: bool


Box = tuple[int, int, int, int, int, int]
"""Address, strides of rows and blocks, blocks, rows, words."""


@dataclass(frozen=True)
class Transfer:
    """A box that is read or written; ``wide`` if a beat has as many of its words as the bus."""

    box: Box
    wide: bool = False
    writes: bool = False


def runs(config: EngineConfig, box: Box) -> Iterator[tuple[int, int]]:
    """First word and words of each burst of a box: one a row, and one more for each border in it."""
    address, row_stride, block_stride, blocks, rows, words = box
    for block in range(blocks):
        for row in range(rows):
            begin = (address + block * block_stride + row * row_stride) // LANES
            left = words
            while left > 0:
                count = min(left, config.burst_words - begin % config.burst_words)
                yield begin, count
                begin, left = begin + count, left - count


def moved(config: EngineConfig, transfer: Transfer) -> Iterator[tuple[int, int]]:
    """Beats and bytes of each burst. Of a wide beat that is read both words are moved, of one that is written those
    that count."""
    for begin, words in runs(config, transfer.box):
        if not (transfer.wide and config.bus_words > 1):
            yield words * config.word_beats, words * LANES
        else:
            beats = -(-(begin % config.bus_words + words) // config.bus_words)
            yield beats, words * LANES if transfer.writes else beats * config.bus_bytes


def fetched_jobs(base: int, first: int, count: int = 1) -> Transfer:
    """What is fetched of a program: jobs, from one on."""
    return Transfer((base + Job.BYTES * first, 0, 0, 1, 1, count * Job.WORDS))


def loads(config: EngineConfig, load: Load) -> list[Transfer]:
    """What a job loads, in turn."""
    found: list[Transfer] = []
    if load.x_blocks:
        box = (load.x_address, load.x_row_stride, load.x_block_stride, load.x_blocks, load.x_rows, load.x_words)
        found.append(Transfer(box, wide=not load.addend))
    if load.w_steps:
        found.append(Transfer((load.w_address, 0, 0, 1, 1, load.w_steps * config.blocks), wide=True))
    if load.p_words:
        found.append(Transfer((load.p_address, 0, 0, 1, 1, load.p_words)))
    return found


def stores(store: Store) -> list[Transfer]:
    """What a job stores."""
    if not store.blocks:
        return []
    box = (store.address, store.row_stride, store.block_stride, store.blocks, store.rows, store.words)
    return [Transfer(box, wide=True, writes=True)]


def _bursts(config: EngineConfig, number: int, transfers: Sequence[Transfer]) -> list[_Burst]:
    found = [
        _Burst(*size, _NEXT_BURST if place else _NEXT_BOX, number, False, False)
        for transfer in transfers
        for place, size in enumerate(moved(config, transfer))
    ] or [_Burst(0, 0, _NEXT_BOX, number, False, False)]
    found[0].first = found[-1].last = True
    return found


@dataclass
class _Unit:
    """A user of the port: its bursts, the next one of them, and when it was ready and granted."""

    bursts: list[_Burst]
    next: int = 0
    asked: float = -inf
    waiting: float = inf
    granted: float = -inf

    @property
    def burst(self) -> _Burst | None:
        return self.bursts[self.next] if self.next < len(self.bursts) else None


@dataclass
class _Channel:
    """Reads or writes: when each burst is over."""

    over: list[int] = field(default_factory=list)

    def room(self, outstanding: int) -> int:
        """The cycle from which on another may be granted."""
        return self.over[-outstanding] + 1 if len(self.over) >= outstanding else 0


class EngineSchedule:
    """The jobs of a program on an engine.

    Parameters
    ----------
    config : EngineConfig
    jobs : sequence of Job
    memory : MemoryTiming
    base : int
        The program's address.
    """

    def __init__(
        self,
        config: EngineConfig,
        jobs: Sequence[Job],
        memory: MemoryTiming | None = None,
        *,
        base: int = 0,
    ) -> None:
        finish = FinishConfig(engine=config)
        self._config, self._jobs, self._memory = config, jobs, memory or MemoryTiming()
        self._core = CoreSchedule(config, finish.latency)
        self._read_latency = finish.read_latency
        loaded = [_bursts(config, number, loads(config, job.load)) for number, job in enumerate(jobs)]
        stored = [_bursts(config, number, stores(job.store)) for number, job in enumerate(jobs)]
        fetched = [_bursts(config, number, [fetched_jobs(base, number)]) for number in range(len(jobs))]
        self._read, self._written = (
            tuple(sum(burst.bytes for burst in each) for each in those) for those in (loaded, stored)
        )
        self._fetch, self._store, self._load = (
            _Unit([burst for each in those for burst in each]) for those in (fetched, stored, loaded)
        )
        self._reads, self._writes = _Channel(), _Channel()
        self._came: list[int] = []
        self._offered: dict[str, list[int]] = {name: [] for name in _PARTS}
        self._taken: dict[str, list[int]] = {name: [] for name in ("load", "store")}
        takers = {"compute": self._core.accepted[0], "drain": self._core.accepted[1], **self._taken}
        self._queues = [(name, self._offered[name], takers[name]) for name in _PARTS]
        self._loaded: list[int] = []
        self._stored: list[int] = []
        self._last_word = -self._memory.pace
        self._free = 0
        self._granted: list[Granted] = []

    def run(self) -> EngineCycles:
        """Go through all bursts.

        Raises
        ------
        PlanError
            If jobs wait for each other for ever.
        """
        core, jobs = self._core, len(self._jobs)
        while min(len(self._stored), len(self._loaded)) < jobs:
            self._offer()
            stores, loads = self._store_ready(), self._load_ready()
            self._offer()  # a unit takes its part when its last burst is made, which may make room for a job
            ready = (self._fetch_ready(), stores, loads)
            first = max(min(ready), self._free)
            if self._advance(first):
                continue
            if first == inf:
                done = min(len(self._stored), len(self._loaded))
                raise PlanError(f"the program's jobs wait for each other: {done} of {jobs} are loaded and stored")
            self._grant(next(place for place in range(3) if ready[place] <= first), int(first))
        core.advance(inf)
        if len(core.computed) < jobs:
            raise PlanError(f"the program's jobs wait for each other: {len(core.computed)} of {jobs} are computed")
        return EngineCycles(
            cycles=max(self._stored[-1], core.computed[-1]),
            loaded=tuple(self._loaded),
            computed=tuple(core.computed),
            drained=tuple(core.drained),
            stored=tuple(self._stored),
            read=self._read,
            written=self._written,
            fetched=Job.BYTES * jobs,
            bursts=tuple(self._granted),
            groups=tuple(core.groups),
        )

    def _advance(self, until: float) -> bool:
        """Let the core go on until something happens before that cycle that others see; whether it did."""
        core = self._core
        seen = (core.computed, core.drained, *core.accepted)
        known = [len(each) for each in seen]
        while core.next_event < until:
            core.advance(core.next_event + 1)
            if [len(each) for each in seen] != known:
                return True
        return False

    def _offer(self) -> None:
        """Parts go from their queues to the units."""
        for name, offered, taken in self._queues:
            while (job := len(offered)) < len(self._came) and job <= len(taken):
                cycle = self._came[job] + _OFFER
                offered.append(max(cycle, taken[job - 1] + 1) if job else cycle)
                if name == "compute":
                    self._core.offer_compute(self._jobs[job].compute, offered[job])
                elif name == "drain":
                    self._core.offer_drain(self._jobs[job].drain, offered[job])

    def _fetch_ready(self) -> float:
        burst = self._fetch.burst
        if burst is None:
            return inf
        if not burst.first:
            return max(self._fetch.granted + _NEXT_BURST, self._reads.room(self._config.outstanding))
        job = burst.job
        if job > len(self._came):
            return inf
        ready = self._came[job - 1] + _NEXT_JOB if job else _FIRST_JOB
        for offered in self._offered.values():
            room = job - self._config.queue
            if room >= len(offered):
                return inf
            if room >= 0:
                ready = max(ready, offered[room])
        return max(ready, self._reads.room(self._config.outstanding))

    def _store_ready(self) -> float:
        unit, drained = self._store, self._core.drained
        burst = unit.burst
        if burst is None:
            return inf
        if unit.waiting == inf:
            if burst.job >= len(drained):
                return inf
            self._ask(unit, "store", drained[burst.job])
        return max(unit.waiting, self._writes.room(self._config.outstanding))

    def _load_ready(self) -> float:
        unit, computed = self._load, self._core.computed
        burst = unit.burst
        if burst is None:
            return inf
        if unit.waiting == inf:
            load, met = self._jobs[burst.job].load, 0
            for jobs, counted in ((load.wait_computed, computed), (load.wait_stored, self._stored)):
                if jobs > len(counted):
                    return inf
                if jobs:
                    met = max(met, counted[jobs - 1])
            self._ask(unit, "load", met)
        return max(unit.waiting, self._reads.room(self._config.outstanding))

    def _ask(self, unit: _Unit, name: str, met: int) -> None:
        """The unit's next burst is made, if its part is there."""
        burst = unit.bursts[unit.next]
        if burst.job >= len(self._offered[name]):
            return
        offered = self._offered[name][burst.job] + _FIRST_BURST[name]
        cycle = max(unit.asked + burst.after, unit.granted + 1, offered, met + 1)
        unit.asked, unit.waiting = cycle, cycle + 1
        if burst.last:
            self._taken[name].append(int(cycle))

    def _grant(self, place: int, now: int) -> None:
        """A burst has the port, and what follows from it."""
        unit = (self._fetch, self._store, self._load)[place]
        burst, memory = unit.bursts[unit.next], self._memory
        channel = self._writes if place == 1 else self._reads
        unit.next, unit.granted, unit.waiting = unit.next + 1, now, inf
        self._free = now + max(burst.beats, 2) * memory.pace
        if burst.beats:
            self._granted.append(Granted(_UNITS[place], burst.job, now, self._free))
        if not burst.beats:
            over = max(now, channel.over[-1] if channel.over else 0) + 1
        elif place == 1:
            first = max(now + _WRITE + self._read_latency, self._last_word + memory.pace)
            self._last_word = max(first, self._last_word) + (burst.beats - 1) * memory.pace
            over = self._last_word + max(1, memory.write_latency)
        else:
            over = now + 1 + max(1, memory.latency) + (burst.beats - 1) * memory.pace
        channel.over.append(over)
        if burst.last:
            if place == 0:
                self._came.append(over)
            elif place == 1:
                self._stored.append(over + _STORED)
                self._core.store(over + _STORED)
            else:
                self._loaded.append(over + _LOADED)
                self._core.load(over + _LOADED)
