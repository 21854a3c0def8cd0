"""Off-chip memory at both ends of an accelerator: a latency, a bandwidth that reads and writes share, two small queues.

The model is cut to beats: a beat moves the bytes of its values (``stimuli.beat_bytes``), the next beat's after it. In
every cycle, counted from the release of reset:

1. The reader has asked for ``latency + queue`` beats more than the design had taken when the cycle began, in order.
   What was asked for in cycle ``t`` may move from cycle ``t + latency`` on.
2. Bytes move, as many as the bandwidth allows: beats that were asked for, into the queue of reads, and beats of the
   queue of writes, into the memory. A beat that has begun is finished first; then reads and writes take turns, a beat
   each, while both have one to move. What a cycle leaves over is lost, but a beat may take several cycles and the last
   of them may begin the next beat.
3. The source offers the next beat if all its bytes have come (and random stalls let it; once offered, a beat stays).
   The sinks are ready if fewer than ``queue`` beats wait to be written (and random stalls let each of them).
4. Transfers take place, output by output. An output beat is in the queue of writes from now on, behind those that came
   before, of whatever output, and may use what the cycle has left.

Bandwidth is a whole number of 1/65,536 bytes a cycle, so that all simulators agree to the cycle. Without a limit, step
2 moves all there is: with no latency either, memory never makes the design wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.errors import InputError

__all__ = ["Memory", "Traffic"]

#: Parts of a byte that bandwidths are counted in.
UNIT = 1 << 16

#: Latencies are at most so many cycles.
MOST_LATENCY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Off-chip memory; see the module for what it does in a cycle.

    Parameters
    ----------
    latency : int
        Cycles from a request to its first byte.
    bytes_per_cycle : float, optional
        Bandwidth, of reads and writes together; without a limit if not given.
    queue : int
        Beats that wait to be written at most, and beats that are read ahead beyond those that the latency takes.

    Raises
    ------
    InputError
        If a number is out of range.
    """

    latency: int = 0
    bytes_per_cycle: float | None = None
    queue: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= MOST_LATENCY:
            raise InputError(f"memory latency must lie in 0 .. {MOST_LATENCY} cycles, not {self.latency!r}")
        rate = self.bytes_per_cycle
        if rate is not None and not (math.isfinite(rate) and 1 / UNIT <= rate <= UNIT):
            raise InputError(f"memory bandwidth must lie in 1/{UNIT} .. {UNIT} bytes a cycle, not {rate!r}")
        if not 1 <= self.queue <= MOST_LATENCY:
            raise InputError(f"memory queue must lie in 1 .. {MOST_LATENCY} beats, not {self.queue!r}")

    @property
    def rate(self) -> int:
        """Bandwidth in 1/65,536 bytes a cycle; 0: without a limit."""
        return 0 if self.bytes_per_cycle is None else round(self.bytes_per_cycle * UNIT)

    @property
    def limits(self) -> bool:
        """Whether it can make a design wait."""
        return self.latency > 0 or self.rate > 0

    def beat_cycles(self, size: int) -> int:
        """Cycles in which a beat of ``size`` bytes moves, at most, with one of the other direction before it."""
        return 2 * -(-size * UNIT // self.rate) if self.rate else 0


class Traffic:
    """The memory's side of a run, cycle by cycle.

    Parameters
    ----------
    memory : Memory
    reads : ndarray
        Bytes of each beat of an input frame.
    writes : sequence of ndarray
        The same of each output.
    frames : int
    one_by_one : bool
        Ask for a frame's beats only when the frame before is written.
    """

    def __init__(
        self,
        memory: Memory,
        reads: np.ndarray,
        writes: Sequence[np.ndarray],
        frames: int,
        *,
        one_by_one: bool = False,
    ):
        self._memory, self._reads, self._writes = memory, reads.tolist(), [sizes.tolist() for sizes in writes]
        #: Of the beats that wait to be written, the output that gave each; and of each output, beats written.
        self._waiting: deque[int] = deque()
        self._written = [0] * len(writes)
        self._beats = frames * len(reads)
        self._one_by_one = one_by_one
        #: Beats asked for by the end of each of the last cycles.
        self._asked = [0] * (memory.latency + 1)
        self._side = 1  # of the beat that moves or moved last: 0 read, 1 written
        self._left = 0  # of it, in 1/65,536 bytes; 0: none moves
        self._budget = 0
        #: Beats that may move, by side, and those that have.
        self._there, self._moved = [0, 0], [0, 0]
        #: Bytes moved, by side.
        self.bytes = [0, 0]
        #: Cycle in which the last byte of each frame was written.
        self.written_ends: list[int] = []

    @property
    def arrived(self) -> int:
        """Input beats that the source may offer."""
        return self._moved[0]

    @property
    def written(self) -> int:
        return self._moved[1]

    @property
    def room(self) -> bool:
        """Whether the queue of writes takes a beat."""
        return self._there[1] - self._moved[1] < self._memory.queue

    def begin(self, cycle: int, sent: int) -> None:
        """Steps 1 and 2 of a cycle; ``sent`` input beats were taken before it."""
        latency = self._memory.latency
        asked = min(sent + latency + self._memory.queue, self._beats)
        if self._one_by_one:
            asked = min(asked, (len(self.written_ends) + 1) * len(self._reads))
        self._asked[cycle % (latency + 1)] = asked
        self._there[0] = self._asked[(cycle + 1) % (latency + 1)]
        self._budget = self._memory.rate
        self._move(cycle)

    def post(self, cycle: int, output: int = 0) -> None:
        """A beat of an output was taken."""
        self._there[1] += 1
        self._waiting.append(output)
        self._move(cycle)

    def _move(self, cycle: int) -> None:
        rate = self._memory.rate
        while True:
            if not self._left:
                waits = [there > moved for there, moved in zip(self._there, self._moved, strict=True)]
                if not any(waits):
                    return
                self._side = 1 - self._side if waits[1 - self._side] else self._side
                self._left = self._size * UNIT
            if rate and self._left > self._budget:
                self._left -= self._budget
                self._budget = 0
                return
            self._budget -= self._left
            self._end(cycle)

    @property
    def _size(self) -> int:
        """Bytes of the beat that moves."""
        if self._side == 0:
            return self._reads[self._moved[0] % len(self._reads)]
        sizes = self._writes[self._waiting[0]]
        return sizes[self._written[self._waiting[0]] % len(sizes)]

    def _end(self, cycle: int) -> None:
        """The last byte of a beat has moved."""
        side = self._side
        self.bytes[side] += self._size
        self._moved[side] += 1
        self._left = 0
        if side == 1:
            self._written[self._waiting.popleft()] += 1
            frame = len(self.written_ends) + 1
            if all(count >= frame * len(sizes) for count, sizes in zip(self._written, self._writes, strict=True)):
                self.written_ends.append(cycle)
