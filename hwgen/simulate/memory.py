"""Model of the off-chip memory of an accelerator: a latency, a bandwidth shared by reads and writes, and small queues.

The unit of the model is the beat. A beat moves the bytes of its values (``stimuli.beat_bytes``), and beats move one
after the other. In every cycle, counted from the release of reset:

1. The reader of each input requests beats in order, up to ``latency + queue`` beats more than the design had taken when
   the cycle began. A beat that is requested in cycle ``t`` can move in cycle ``t + latency`` or later.
2. As many bytes move as the bandwidth allows. Requested beats move into the read queue of their input, and beats of the
   write queue move into the memory. A beat that has begun is finished first. Then the inputs, in their order, and the
   writes take turns, with one beat each, among those that have a beat to move. Bandwidth that a cycle does not use is
   lost. A beat can take several cycles, and the next beat can begin in the last of them.
3. The source of each input offers the next beat if all bytes of the beat have arrived, and the source does not stall at
   random. A beat that was offered stays offered. A sink is ready if fewer than ``queue`` beats are in the write queue,
   and the sink does not stall at random.
4. Transfers take place, output by output. An output beat enters the write queue, which all outputs share, after the
   earlier beats. It can use the rest of the cycle's bandwidth.

Bandwidth is a whole number of 1/65,536 bytes per cycle, so that all simulators agree to the cycle. Without a limit,
step 2 moves all beats. If there is no latency either, the memory never makes the design wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.errors import InputError

#: Number of bandwidth units per byte; bandwidth is a whole number of units per cycle.
UNIT = 1 << 16

#: Maximum latency of the memory model in cycles, and maximum queue in beats.
MAX_LATENCY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Configuration of the model of an accelerator's off-chip memory: latency, bandwidth and queue length.

    The module's docstring describes each cycle.

    Parameters
    ----------
    latency : int
        Number of cycles from a request to its first byte.
    bytes_per_cycle : float, optional
        Bandwidth of reads and writes together. The default is no limit.
    queue : int
        Capacity of the write queue in beats, and number of beats that are read ahead, in addition to ``latency`` beats.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """

    latency: int = 0
    bytes_per_cycle: float | None = None
    queue: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= MAX_LATENCY:
            raise InputError(f"memory latency must lie in 0 .. {MAX_LATENCY} cycles, not {self.latency!r}")
        rate = self.bytes_per_cycle
        if rate is not None and not (math.isfinite(rate) and 1 / UNIT <= rate <= UNIT):
            raise InputError(f"memory bandwidth must lie in 1/{UNIT} .. {UNIT} bytes per cycle, not {rate!r}")
        if not 1 <= self.queue <= MAX_LATENCY:
            raise InputError(f"memory queue must lie in 1 .. {MAX_LATENCY} beats, not {self.queue!r}")

    @property
    def rate(self) -> int:
        """Bandwidth of reads and writes together, a number of 1/65,536 bytes per cycle; 0 for no limit."""
        return 0 if self.bytes_per_cycle is None else round(self.bytes_per_cycle * UNIT)

    @property
    def may_stall(self) -> bool:
        """Whether the memory can make a design wait, because it has a latency or a limited bandwidth."""
        return self.latency > 0 or self.rate > 0

    def beat_cycles(self, size: int, sides: int = 2) -> int:
        """Return the most cycles until a beat has moved, if one beat of each other stream moves first.

        The result is 0 without a limit of the bandwidth.

        Parameters
        ----------
        size : int
            Largest number of bytes of a beat.
        sides : int
            Number of sides that share the bandwidth: one for each input, and one for all writes.
        """
        return sides * -(-size * UNIT // self.rate) if self.rate else 0


class TrafficModel:
    """Cycle-by-cycle model of a run's memory traffic: which beats the accelerator may take, from latency and bandwidth.

    Parameters
    ----------
    memory : Memory
        Latency, bandwidth and queues.
    reads, writes : sequence of ndarray
        Number of bytes of each beat of a frame, for each input and for each output.
    frames : int
        Number of frames of the run.
    one_by_one : bool
        Whether the beats of a frame are requested only after the previous frame is written.
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
        #: Index of the output of each beat in the write queue, and number of beats written so far for each output.
        self._waiting: deque[int] = deque()
        self._written = [0] * len(writes)
        self._beats = [frames * len(sizes) for sizes in self._reads]
        self._one_by_one = one_by_one
        #: Number of beats of each input requested by the end of each of the last ``latency + 1`` cycles.
        self._requested = [[0] * (memory.latency + 1) for _ in reads]
        self._side = len(
            reads
        )  # side of the current or last beat: an input's index, or the number of inputs for writes
        self._left = 0  # rest of the current beat, in 1/65,536 bytes; 0 if no beat moves
        self._budget = 0
        #: Beats that were allowed to move so far, and beats that have moved: for each input, and last for all outputs.
        self._available, self._moved = [0] * (len(reads) + 1), [0] * (len(reads) + 1)
        #: Numbers of bytes read from memory, and written to memory, so far.
        self.bytes = [0, 0]
        #: Cycle when the last byte of each finished frame was written.
        self.written_ends: list[int] = []

    @property
    def arrived(self) -> list[int]:
        """Number of beats that memory has delivered so far, as a list over inputs."""
        return self._moved[:-1]

    @property
    def written(self) -> int:
        """Number of beats written to memory so far, over all outputs."""
        return self._moved[-1]

    @property
    def has_room(self) -> bool:
        """Whether the write queue, which all outputs share, has room for one more beat."""
        return self._available[-1] - self._moved[-1] < self._memory.queue

    def begin_cycle(self, cycle: int, sent: Sequence[int]) -> None:
        """Begin a simulated cycle: request input beats, and move as many bytes as the bandwidth allows.

        These are steps 1 and 2 of the model. ``sent`` counts the beats of each input that the design took before the
        cycle.
        """
        latency = self._memory.latency
        for index, count in enumerate(sent):
            requested = min(count + latency + self._memory.queue, self._beats[index])
            if self._one_by_one:
                requested = min(requested, (len(self.written_ends) + 1) * len(self._reads[index]))
            self._requested[index][cycle % (latency + 1)] = requested
            self._available[index] = self._requested[index][(cycle + 1) % (latency + 1)]
        self._budget = self._memory.rate
        self._move_bytes(cycle)

    def post(self, cycle: int, output: int = 0) -> None:
        """Put an output's beat into the write queue, and move bytes with the cycle's unused bandwidth.

        This is step 4 of the model.
        """
        self._available[-1] += 1
        self._waiting.append(output)
        self._move_bytes(cycle)

    def _move_bytes(self, cycle: int) -> None:
        """Move beats to and from memory, one side after the other, until the cycle's bandwidth is used."""
        rate, sides = self._memory.rate, len(self._available)
        while True:
            if not self._left:
                turns = ((self._side + turn) % sides for turn in range(1, sides + 1))
                side = next((side for side in turns if self._available[side] > self._moved[side]), None)
                if side is None:
                    return
                self._side = side
                self._left = self._size * UNIT
            if rate and self._left > self._budget:
                self._left -= self._budget
                self._budget = 0
                return
            self._budget -= self._left
            self._finish_beat(cycle)

    @property
    def _writes_now(self) -> bool:
        """Whether the beat that is moving is a write to memory, not a read."""
        return self._side == len(self._reads)

    @property
    def _size(self) -> int:
        """Size in bytes of the beat in transfer: the current input's next beat, or the write queue's first beat."""
        if self._writes_now:
            sizes = self._writes[self._waiting[0]]
            return sizes[self._written[self._waiting[0]] % len(sizes)]
        sizes = self._reads[self._side]
        return sizes[self._moved[self._side] % len(sizes)]

    def _finish_beat(self, cycle: int) -> None:
        """Count the current beat as moved, because its last byte has moved in ``cycle``."""
        self.bytes[self._writes_now] += self._size
        self._moved[self._side] += 1
        self._left = 0
        if self._writes_now:
            self._written[self._waiting.popleft()] += 1
            frame = len(self.written_ends) + 1
            if all(count >= frame * len(sizes) for count, sizes in zip(self._written, self._writes, strict=True)):
                self.written_ends.append(cycle)
