"""Off-chip memory at both ends of an accelerator: a latency, a bandwidth that reads and writes share, two small queues.

The model is cut to beats: a beat moves the bytes of its values (``stimuli.beat_bytes``), the next beat's after it. In
every cycle, counted from the release of reset:

1. The reader of each input has asked for ``latency + queue`` beats more than the design had taken when the cycle
   began, in order. What was asked for in cycle ``t`` may move from cycle ``t + latency`` on.
2. Bytes move, as many as the bandwidth allows: beats that were asked for, into the queue of reads of their input, and
   beats of the queue of writes, into the memory. A beat that has begun is finished first; then the inputs, in their
   order, and the writes take turns, a beat each, while several have one to move. What a cycle leaves over is lost, but
   a beat may take several cycles and the last of them may begin the next beat.
3. The source of each input offers the next beat if all its bytes have come (and random stalls let it; once offered, a
   beat stays). The sinks are ready if fewer than ``queue`` beats wait to be written (and random stalls let each of
   them).
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

    def beat_cycles(self, size: int, sides: int = 2) -> int:
        """Cycles in which a beat of ``size`` bytes moves, at most, with one of each other side before it.

        ``sides``: the inputs, and the writes.
        """
        return sides * -(-size * UNIT // self.rate) if self.rate else 0


class Traffic:
    """The memory's side of a run, cycle by cycle.

    Parameters
    ----------
    memory : Memory
    reads, writes : sequence of ndarray
        Bytes of each beat of a frame, of each input and of each output.
    frames : int
    one_by_one : bool
        Ask for a frame's beats only when the frame before is written.
    """

    def __init__(
        self,
        memory: Memory,
        reads: Sequence[np.ndarray],
        writes: Sequence[np.ndarray],
        frames: int,
        *,
        one_by_one: bool = False,
    ):
        self._memory = memory
        self._reads, self._writes = ([sizes.tolist() for sizes in side] for side in (reads, writes))
        #: Of the beats that wait to be written, the output that gave each; and of each output, beats written.
        self._waiting: deque[int] = deque()
        self._written = [0] * len(writes)
        self._beats = [frames * len(sizes) for sizes in self._reads]
        self._one_by_one = one_by_one
        #: Beats of each input that were asked for by the end of each of the last cycles.
        self._asked = [[0] * (memory.latency + 1) for _ in reads]
        self._side = len(reads)  # of the beat that moves or moved last: the input's number, or behind them all: written
        self._left = 0  # of it, in 1/65,536 bytes; 0: none moves
        self._budget = 0
        #: Beats that may move, by side, and those that have.
        self._there, self._moved = [0] * (len(reads) + 1), [0] * (len(reads) + 1)
        #: Bytes read and written.
        self.bytes = [0, 0]
        #: Cycle in which the last byte of each frame was written.
        self.written_ends: list[int] = []

    @property
    def arrived(self) -> list[int]:
        """Beats of each input that its source may offer."""
        return self._moved[:-1]

    @property
    def written(self) -> int:
        return self._moved[-1]

    @property
    def room(self) -> bool:
        """Whether the queue of writes takes a beat."""
        return self._there[-1] - self._moved[-1] < self._memory.queue

    def begin(self, cycle: int, sent: Sequence[int]) -> None:
        """Steps 1 and 2 of a cycle; so many beats of each input were taken before it."""
        latency = self._memory.latency
        for place, count in enumerate(sent):
            asked = min(count + latency + self._memory.queue, self._beats[place])
            if self._one_by_one:
                asked = min(asked, (len(self.written_ends) + 1) * len(self._reads[place]))
            self._asked[place][cycle % (latency + 1)] = asked
            self._there[place] = self._asked[place][(cycle + 1) % (latency + 1)]
        self._budget = self._memory.rate
        self._move(cycle)

    def post(self, cycle: int, output: int = 0) -> None:
        """A beat of an output was taken."""
        self._there[-1] += 1
        self._waiting.append(output)
        self._move(cycle)

    def _move(self, cycle: int) -> None:
        rate, sides = self._memory.rate, len(self._there)
        while True:
            if not self._left:
                turns = ((self._side + turn) % sides for turn in range(1, sides + 1))
                side = next((side for side in turns if self._there[side] > self._moved[side]), None)
                if side is None:
                    return
                self._side = side
                self._left = self._size * UNIT
            if rate and self._left > self._budget:
                self._left -= self._budget
                self._budget = 0
                return
            self._budget -= self._left
            self._end(cycle)

    @property
    def _writes_now(self) -> bool:
        return self._side == len(self._reads)

    @property
    def _size(self) -> int:
        """Bytes of the beat that moves."""
        if self._writes_now:
            sizes = self._writes[self._waiting[0]]
            return sizes[self._written[self._waiting[0]] % len(sizes)]
        sizes = self._reads[self._side]
        return sizes[self._moved[self._side] % len(sizes)]

    def _end(self, cycle: int) -> None:
        """The last byte of a beat has moved."""
        self.bytes[self._writes_now] += self._size
        self._moved[self._side] += 1
        self._left = 0
        if self._writes_now:
            self._written[self._waiting.popleft()] += 1
            frame = len(self.written_ends) + 1
            if all(count >= frame * len(sizes) for count, sizes in zip(self._written, self._writes, strict=True)):
                self.written_ends.append(cycle)
