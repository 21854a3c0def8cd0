"""Raw result of any simulator, the checks on it, and the checked result of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hwgen.errors import CheckError, InputError
from hwgen.gateware.stream import Port
from hwgen.simulate import stimuli
from hwgen.simulate.job import SimulationJob


@dataclass(kw_only=True)
class Raw:
    """Unchecked result of one simulation, as the simulator reports it: output beats, transfer counts and cycles.

    Parameters
    ----------
    payloads : list of ndarray
        Beats of each output, uint32 ``(n, payload_words)``.
    sent, taken, extra : int
        Number of transfers of all sources, of all sinks, and of the sinks after the last expected beat.
    simulated : int
        Number of cycles simulated.
    first_input, last_output : int
        Cycles of the first transfer of any input, and of the last expected output transfer.
    frame_ends : list of int
        Cycles of the last output transfer of each frame, over all outputs.
    written_ends : list of int
        Cycle when the last byte of each frame was written.
    read_bytes, written_bytes : int
        Number of bytes that the memory read and wrote.
    busy : list of int
        Number of steps of each layer's arithmetic from reset to the end of each frame. All layers of frame 0 come
        first.
    steps : list of int
        Number of steps of each layer's arithmetic in the whole run.
    taps : list of ndarray
        Payloads of the layers' streams that were recorded.
    wall_s : float
        Duration of the simulation in seconds, without compilation.
    error : str or None
        ``stuck`` if there was no transfer for too long. ``valid`` or ``payload`` if an output changed this signal
        before the beat was taken.
    output_index : int
        Index of the output with the error ``valid`` or ``payload``.
    """

    payloads: list[np.ndarray]
    sent: int
    taken: int
    extra: int
    simulated: int
    first_input: int
    last_output: int
    frame_ends: list[int]
    written_ends: list[int]
    read_bytes: int
    written_bytes: int
    busy: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    taps: list[np.ndarray] = field(default_factory=list)
    wall_s: float
    error: str | None = None
    output_index: int = 0

    @classmethod
    def of(cls, answers: Mapping[str, Sequence[str]], **seen: Any) -> Raw:
        """Return a `Raw`: a simulation's unchecked result, made from lines (a key, values) that the simulator wrote.

        Parameters
        ----------
        answers : mapping of str to sequence of str
            Values of the lines, by key. A value can be several numbers.
        seen
            Fields that are not in the lines: ``payloads``, ``taps`` and ``wall_s``.
        """
        numbers = {
            key: [int(number) for line in lines for number in line.split()]
            for key, lines in answers.items()
            if key in _COUNTS or key in _LISTS.values()
        }
        counts = {key: numbers[key][0] for key in _COUNTS}
        lists = {name: numbers.get(key, []) for name, key in _LISTS.items()}
        index = int(answers.get("place", ["0"])[0])
        return cls(**counts, **lists, error=answers.get("error", [None])[0], output_index=index, **seen)


#: Keys of a simulator's output lines that have one number each; also fields of `Raw`.
_COUNTS = ("sent", "taken", "extra", "simulated", "first_input", "last_output", "read_bytes", "written_bytes")
#: Keys of a simulator's output lines that have many numbers, by the field of `Raw`.
_LISTS = {"frame_ends": "frame_end", "written_ends": "frame_written", "busy": "busy", "steps": "steps"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Checked result of a simulation: output maps, cycles of transfers, bytes moved and speed.

    Cycles are counted from the release of reset.

    Parameters
    ----------
    maps : tuple of ndarray
        Output maps ``(n, C, H, W)`` of each output, in the output's type.
    frame_ends : tuple of int
        Cycle of the last output transfer of each frame, over all outputs. If several simulations ran in parallel, only
        for the frames of the first share.
    first_input : int
        Cycle of the first transfer of any input.
    written_ends : tuple of int
        Cycle when the last byte of each frame was written. Equal to ``frame_ends`` if the memory has no limits.
    cycles : int
        Number of cycles up to and including the write of the last byte. The sum over parallel simulations.
    read_bytes, written_bytes : int
        Number of bytes read from and written to off-chip memory.
    wall_s : float
        Duration of the simulation in seconds, without compilation.
    simulator : str
        Name of the simulator.
    taps : dict of int to ndarray
        With ``Options.taps``: pixels ``(n, C, N)`` of complete frames that each layer sent, in the order of its stream,
        by the layer's index. ``stimuli.to_maps`` converts them to maps.
    busy : ndarray
        With ``Options.taps``: number of steps ``(layers, frames)`` of a layer's arithmetic, from the end of the
        previous frame to the end of the frame.
    steps : tuple of int
        With ``Options.taps``: number of steps of each layer's arithmetic in the whole run.
    group_runs : tuple of Run
        Results of the groups, if several groups ran one after the other.
    """

    maps: tuple[np.ndarray, ...]
    frame_ends: tuple[int, ...]
    first_input: int
    written_ends: tuple[int, ...]
    cycles: int
    read_bytes: int
    written_bytes: int
    wall_s: float
    simulator: str
    taps: dict[int, np.ndarray]
    busy: np.ndarray
    steps: tuple[int, ...]
    group_runs: tuple[Run, ...] = ()

    @property
    def outputs(self) -> np.ndarray:
        """Array ``(n, C, H, W)`` of the output maps of a design with one output.

        Raises
        ------
        InputError
            If the design has several outputs.
        """
        if len(self.maps) != 1:
            raise InputError(
                f"outputs needs a run with one output, not {len(self.maps)}: use maps, which has one entry per output"
            )
        return self.maps[0]

    @property
    def latency(self) -> int:
        """Number of cycles from the first input transfer to the last output transfer of frame 0."""
        return self.frame_ends[0] - self.first_input

    @property
    def interval(self) -> int | None:
        """Cycles between the last output transfers of the last two frames; ``None`` for fewer than three frames."""
        return self.frame_ends[-1] - self.frame_ends[-2] if len(self.frame_ends) > 2 else None

    @property
    def steady(self) -> bool:
        """Whether the last two intervals (cycles) between frames are equal. True for fewer than 3 frames."""
        ends = self.frame_ends
        return len(ends) < 3 or ends[-1] - ends[-2] == ends[-2] - ends[-3]

    @property
    def cycles_per_s(self) -> float:
        """Speed of the simulation, in cycles per second."""
        return self.cycles / max(self.wall_s, 1e-6)


def conclude(job: SimulationJob, raw: Raw, simulator: str) -> Run:
    """Return a `Run`: the checked result of a simulation, with output beats converted to maps, from a raw result.

    Raises
    ------
    CheckError
        If the design got stuck, sent too many beats, did not hold a beat until it was taken, or marked a wrong beat
        as the last of a frame.
    """
    name = job.config.name
    state = (
        f"after {raw.sent:,} of {job.beats_in:,} input beats and {raw.taken:,} of {job.beats_out:,} output beats, "
        f"in cycle {raw.simulated:,}"
    )
    if raw.error == "stuck":
        raise CheckError(
            f"{name}: stuck: no transfer for {job.idle:,} cycles {state} ({simulator}): report this as a bug of hwgen, "
            "unless you changed the Verilog or the plan's FIFO depths"
        )
    if raw.error is not None:
        port = job.outputs[raw.output_index].name
        what = f"{raw.error} fell" if raw.error == "valid" else f"{raw.error} changed"
        raise CheckError(
            f"{name}: {port}__{what} while {port}__ready was low, {state} ({simulator}); an AXI stream must hold a "
            "beat "
            "until it is accepted: report this as a bug of hwgen, unless you changed the Verilog"
        )
    if raw.extra:
        raise CheckError(f"{name}: {raw.extra:,} output beats more than the {job.beats_out:,} expected ({simulator})")
    maps = [_to_maps(name, port, payloads, simulator) for port, payloads in zip(job.outputs, raw.payloads, strict=True)]
    by_frame = np.array(raw.busy, np.int64).reshape(job.frames, len(job.taps))
    return Run(
        maps=tuple(maps),
        frame_ends=tuple(raw.frame_ends),
        first_input=raw.first_input,
        written_ends=tuple(raw.written_ends),
        cycles=raw.written_ends[-1] + 1,
        read_bytes=raw.read_bytes,
        written_bytes=raw.written_bytes,
        wall_s=raw.wall_s,
        simulator=simulator,
        taps={
            index: stimuli.unpack(payloads, *stream)[0]
            for index, (payloads, stream) in enumerate(zip(raw.taps, job.taps, strict=True))
        },
        busy=np.diff(by_frame, axis=0, prepend=0).T,
        steps=tuple(raw.steps),
    )


def _to_maps(name: str, port: Port, payloads: np.ndarray, simulator: str) -> np.ndarray:
    """Return an output's simulated beats as maps ``(n, C, H, W)``, after a check which beats have ``last`` set.

    Raises
    ------
    CheckError
        If a wrong beat is marked as the last of a frame.
    """
    pixels, last = stimuli.unpack(payloads, port.beat, port.order)
    expected = np.zeros(len(last), bool)
    expected[port.beats - 1 :: port.beats] = True
    wrong = np.flatnonzero(last != expected)
    if len(wrong):
        frame, position = divmod(int(wrong[0]), port.beats)
        raise CheckError(
            f"{name}: {port.name}.last must be {int(expected[wrong[0]])} in beat {position} of frame {frame}, not "
            f"{int(last[wrong[0]])} ({simulator})"
        )
    return stimuli.to_maps(pixels, port.beat, port.order)


def join(runs: Sequence[Run]) -> Run:
    """Return a `Run`: one result for all frames from the results of parallel simulations.

    Cycles and bytes are added up. ``wall_s`` is the longest.

    Raises
    ------
    CheckError
        If the cycles of the frames differ between the shares. Cycles must not depend on data.
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
        maps=tuple(map(np.concatenate, zip(*(run.maps for run in runs), strict=True))),
        cycles=sum(run.cycles for run in runs),
        read_bytes=sum(run.read_bytes for run in runs),
        written_bytes=sum(run.written_bytes for run in runs),
        wall_s=max(run.wall_s for run in runs),
    )
