"""What a simulator is asked, and what it gives back: one type for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hwgen.emit.verilog import Config
from hwgen.errors import CheckError
from hwgen.gateware.stream import BeatFormat
from hwgen.simulate import stimuli


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run.

    In each cycle of the run, which begin when reset is released: both sides draw whether they stall; the source offers
    its next beat unless it stalls (once offered, a beat stays); the sink is ready unless it stalls; the outputs of the
    design are sampled at the end of the cycle. While nothing is offered the payload's bits are all one. After the last
    expected beat a run goes on for ``emit.testbench.DRAIN`` cycles, in which none may follow.

    Parameters
    ----------
    config : AcceleratorConfig
    payloads : ndarray
        What to send, as ``stimuli.pack`` gives it.
    frames : int
        How many these are.
    stalls : Stalls
    idle : int
        Cycles without any transfer after which the design is stuck.
    reset_at : int or None
        Run for so many cycles, reset, and begin anew; only what follows counts.
    taps : tuple of BeatFormat
        Streams to watch.
    waves : Path or None
        Where waveforms go.
    tick : callable
        Told the output beats so far, now and then.
    say : callable
        Told what is being done before there are any.
    """

    config: Config
    payloads: np.ndarray
    frames: int
    stalls: stimuli.Stalls
    idle: int
    reset_at: int | None = None
    taps: tuple[BeatFormat, ...] = ()
    waves: Path | None = None
    tick: Callable[[int], None] = lambda beats: None
    say: Callable[[str], None] = lambda step: None

    @property
    def beats_out(self) -> int:
        """Output beats to expect."""
        return self.frames * self.config.output.beats


@dataclass(kw_only=True)
class Raw:
    """What a simulator saw.

    Parameters
    ----------
    payloads : ndarray
        Output beats, ``(n, payload_words)`` uint32.
    sent, taken, extra : int
        Transfers: of the source, of the sink, and of the sink past the last expected.
    simulated : int
        Cycles simulated.
    first_input, last_output : int
        Cycles of the first input and the last expected output transfer.
    frame_ends : list of int
        Cycles of the last output transfer of each frame.
    taps : list of ndarray
        Payloads of the watched streams.
    wall_s : float
        Time that simulating took, without building.
    error : str or None
        ``stuck``; ``valid`` or ``payload`` when an output beat was not held until it was taken.
    """

    payloads: np.ndarray
    sent: int
    taken: int
    extra: int
    simulated: int
    first_input: int
    last_output: int
    frame_ends: list[int]
    taps: list[np.ndarray] = field(default_factory=list)
    wall_s: float
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of a simulation.

    Parameters
    ----------
    outputs : ndarray
        ``(n, C, H, W)`` in the output's type.
    frame_ends : tuple of int
        Cycle of the last output transfer of each frame (of the first share of them, if several ran side by side).
        Cycles count from the release of reset.
    first_input : int
        Cycle of the first input transfer.
    cycles : int
        Cycles until the last output transfer, that one included; of all that ran side by side.
    wall_s : float
        Time that simulating took, without building.
    simulator : str
    taps : dict of int to ndarray
        With ``taps``: what left each layer, ``(n, C, H, W)`` by the layer's number (complete frames only).
    """

    outputs: np.ndarray
    frame_ends: tuple[int, ...]
    first_input: int
    cycles: int
    wall_s: float
    simulator: str
    taps: dict[int, np.ndarray]

    @property
    def latency(self) -> int:
        """Cycle of frame 0's last output transfer minus cycle of the first input transfer."""
        return self.frame_ends[0] - self.first_input

    @property
    def interval(self) -> int | None:
        """Cycles between the last output transfers of the last two frames; ``None`` with fewer than three frames."""
        return self.frame_ends[-1] - self.frame_ends[-2] if len(self.frame_ends) > 2 else None

    @property
    def steady(self) -> bool:
        """Whether the last two distances between frames agree (true with fewer than three frames)."""
        ends = self.frame_ends
        return len(ends) < 3 or ends[-1] - ends[-2] == ends[-2] - ends[-3]

    @property
    def cycles_per_s(self) -> float:
        return self.cycles / max(self.wall_s, 1e-6)


def conclude(job: Job, raw: Raw, simulator: str) -> Run:
    """Check what every design must keep to, and turn beats into frames.

    Raises
    ------
    CheckError
        If the design got stuck, gave too many beats, did not hold a beat until it was taken, or marked a wrong beat
        as the last of a frame.
    """
    name, beat = job.config.name, job.config.output
    state = (
        f"after {raw.sent:,} of {len(job.payloads):,} input beats and {raw.taken:,} of {job.beats_out:,} output beats, "
        f"in cycle {raw.simulated:,}"
    )
    if raw.error == "stuck":
        raise CheckError(f"{name}: stuck: no transfer for {job.idle:,} cycles {state} ({simulator})")
    if raw.error is not None:
        raise CheckError(f"{name}: o.{raw.error} changed before the beat was taken, {state} ({simulator})")
    if raw.extra:
        raise CheckError(f"{name}: {raw.extra:,} output beats more than the {job.beats_out:,} expected ({simulator})")
    outputs, last = stimuli.unpack(raw.payloads, beat)
    expected = np.zeros(len(last), bool)
    expected[beat.beats - 1 :: beat.beats] = True
    wrong = np.flatnonzero(last != expected)
    if len(wrong):
        frame, position = divmod(int(wrong[0]), beat.beats)
        raise CheckError(
            f"{name}: o.last must be {int(expected[wrong[0]])} in beat {position} of frame {frame}, not "
            f"{int(last[wrong[0]])} ({simulator})"
        )
    return Run(
        outputs=outputs,
        frame_ends=tuple(raw.frame_ends),
        first_input=raw.first_input,
        cycles=raw.last_output + 1,
        wall_s=raw.wall_s,
        simulator=simulator,
        taps={number: stimuli.unpack(*pair)[0] for number, pair in enumerate(zip(raw.taps, job.taps, strict=True))},
    )


def join(runs: Sequence[Run]) -> Run:
    """One result of several that ran side by side, each with its share of the frames; ``wall_s`` is the longest.

    Raises
    ------
    CheckError
        If their cycles differ: they must not depend on data.
    """
    first = runs[0]
    for run in runs[1:]:
        both = min(len(first.frame_ends), len(run.frame_ends))
        if run.frame_ends[:both] != first.frame_ends[:both]:
            raise CheckError(
                f"cycles depend on data: frames end in {first.frame_ends[:both]} and {run.frame_ends[:both]}"
            )
    if len(runs) == 1:
        return first
    return replace(
        first,
        outputs=np.concatenate([run.outputs for run in runs]),
        cycles=sum(run.cycles for run in runs),
        wall_s=max(run.wall_s for run in runs),
    )
