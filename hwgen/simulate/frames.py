"""Simulation of an engine that computes frames, run by run, and search for the first layer that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hwgen import work
from hwgen.errors import CheckError, InputError
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.program.compile import ProgramSchedule
from hwgen.program.file import Program
from hwgen.program.layout import WORD, unpack_map
from hwgen.program.maps import MapLocation
from hwgen.progress import Step, listener
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine, verilator
from hwgen.simulate.check import Mismatch, compare
from hwgen.simulate.engine import EngineMemory
from hwgen.simulate.job import check_cluster, check_waves

Frames = Sequence[np.ndarray]
"""Type of a program's input frames: an array ``(n, C, H, W)`` for each input."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted cycles (``start`` to ``done``), bytes read and bytes written in one run of a program."""

    cycles: int
    read: int
    written: int


@dataclass(frozen=True, kw_only=True)
class FrameRuns:
    """Result of an engine's runs together: output maps of all frames, cycles per run, total traffic.

    Attributes
    ----------
    maps : tuple of ndarray
        Output maps ``(n, C, H, W)`` of each output, in the output's type.
    cycles : tuple of int
        Number of cycles of each run, from ``start`` to ``done``.
    read, written : int
        Number of bytes read and written in all runs.
    wall_s : float
        Duration of the longest of the simulations that ran in parallel, in seconds.
    """

    maps: tuple[np.ndarray, ...]
    cycles: tuple[int, ...]
    read: int
    written: int
    wall_s: float


def predict(program: Program, timing: MemoryTiming) -> Prediction:
    """Return the exact `Prediction` (cycles, bytes) of one run of a program with a memory that never stalls.

    Raises
    ------
    PlanError
        If the program's jobs are in a deadlock.
    """
    run = EngineSchedule(program.engine, program.jobs, timing).run()
    return Prediction(
        cycles=START_CYCLES + run.cycles + DONE_CYCLES,
        read=int(run.read.sum()) + run.fetched,
        written=int(run.written.sum()),
    )


def check_program(program: Program, network: Network) -> None:
    """Refuse a program whose input map or output maps differ from the network's.

    Raises
    ------
    InputError
        If a map differs.
    """
    own_maps = [tuple(region.map for region in regions) for regions in (program.inputs, program.outputs)]
    if own_maps != [network.input_maps, network.output_maps]:
        own, wanted = (
            " to ".join(" and ".join(map(str, maps)) for maps in ends)
            for ends in (own_maps, (network.input_maps, network.output_maps))
        )
        raise InputError(
            f"program of {program.name} is for another network: its maps are {own}, not {wanted}; recompile it"
        )


def run_frames(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: Frames,
    memory: EngineMemory,
    *,
    jobs: int | None = None,
    wave_file: Path | None = None,
    cluster: str | None = None,
) -> FrameRuns:
    """Return `FrameRuns`: the combined result of simulating, in Verilator, an engine that computes frames run by run.

    Each run computes ``program.batch`` frames and starts with a fresh memory. If the last run has fewer frames, the
    missing frames are empty.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Verilog and memory files of the engine that the program is made for.
    program : Program
        Program of the network.
    frames : sequence of ndarray
        Integers ``(n, C, H, W)`` of each input of the program, in the input's type.
    memory : EngineMemory
        Timing of the memory.
    jobs : int, optional
        Number of parallel simulations. The default is one, and on a cluster two for each simulation that the
        cluster runs at a time.
    wave_file : Path, optional
        Path of the waveform file, for a single run only.
    cluster : str, optional
        Cluster that runs the simulations (`hwgen.work.pool`). The default is this machine.

    Raises
    ------
    CheckError
        If the engine ends with an error, breaks a rule of AXI, or does not end.
    InputError
        If there is a waveform file for several runs or on a cluster, or the file can't be written.
    ToolError
        If g++ or Verilator is missing or fails.
    """
    check_waves(wave_file, "verilator")
    check_cluster(cluster, wave_file)
    work.check_count(jobs)
    count = len(frames[0])
    if wave_file is not None and count > program.batch:
        one = "one frame" if program.batch == 1 else f"one run of {program.batch} frames"
        raise InputError(f"waves of an engine record {one}, not {count:,}: give fewer frames, or leave out the waves")
    if cluster is not None:
        shares = _on_cluster(verilog, program, frames, memory, jobs, cluster)
    else:
        shares = _on_this_machine(verilog, program, frames, memory, jobs, wave_file)
    runs = [run for share in shares for run in share]
    for index, run in enumerate(runs):
        if run.error != Error.NONE:
            raise CheckError(f"{program.name}: the engine ended {_frames(program, index)} with error {run.error.name}")
    return FrameRuns(
        maps=tuple(
            np.stack([unpack_map(values, region.map) for run in runs for values in run.outputs[index]])[:count]
            for index, region in enumerate(program.outputs)
        ),
        cycles=tuple(run.cycles for run in runs),
        read=sum(run.read for run in runs),
        written=sum(run.written for run in runs),
        wall_s=max(sum(run.wall_s for run in share) for share in shares),
    )


def locate(
    verilog: Mapping[str, bytes],
    schedule: ProgramSchedule,
    network: Network,
    frames: Frames,
    memory: EngineMemory,
    first: Mismatch,
) -> Mismatch:
    """Return a `Mismatch`: the first wrong layer's first difference, found by a simulation that keeps all maps.

    A program that keeps all maps computes the frame, and each map is compared with the golden model's map. If no map
    differs, or the engine does not end, the result is ``first``.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Verilog and memory files of the engine.
    schedule : ProgramSchedule
        Schedule of the program that was run.
    network : Network
        Network that the program computes.
    frames : sequence of ndarray
        Frames ``(n, C, H, W)`` of each input.
    memory : EngineMemory
        Timing of the memory.
    first : Mismatch
        First difference in the outputs.
    """
    frame = [values[first.frame] for values in frames]
    try:
        seen = maps_of(verilog, schedule, frame, memory)
    except CheckError:
        return first
    for layer, values in golden.trace(network, tuple(values[None] for values in frame)):
        if layer.name in seen and (mismatch := compare(seen[layer.name][None], values, layer=layer.name)):
            return replace(mismatch, frame=first.frame, count=first.count, size=first.size)
    return first


def maps_of(
    verilog: Mapping[str, bytes], schedule: ProgramSchedule, frame: Sequence[np.ndarray], memory: EngineMemory
) -> dict[str, np.ndarray]:
    """Return a dictionary of the maps ``(C, H, W)`` by layer name of one simulated frame, with all maps kept in memory.

    The frame has one map ``(C, H, W)`` for each input of the network.
    A layer whose results go on to another layer on their way to memory has no map. A program of several frames
    computes this frame several times, because most maps in memory belong to the last frame.

    Raises
    ------
    CheckError
        If the engine breaks a rule of AXI, or does not end.
    """
    schedule = schedule.kept
    frames = [np.stack([values] * schedule.frames) for values in frame]
    image = engine.run(verilog, _image(schedule.program, frames), memory=memory).image
    return {
        layer.name: unpack_map(_words(image, location), layer.output)
        for layer in schedule.network.layers
        if (location := schedule.frame_locations[-1].get(layer.name)) is not None
    }


def _words(image: bytes, location: MapLocation) -> np.ndarray:
    """Return an array of a map's words in a memory image, uint64 ``(blocks, height, width)``, without row gaps."""
    shape = location.blocks, location.height, location.width
    strides = location.block_bytes, location.row_bytes, WORD
    words = np.frombuffer(image, "<u8")[location.address // WORD :]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(words, shape, strides, writeable=False))


def all_maps(
    verilog: Mapping[str, bytes], schedule: ProgramSchedule, frames: Frames, memory: EngineMemory
) -> dict[str, np.ndarray]:
    """Return a dictionary of the maps ``(n, C, H, W)`` by layer name of simulated frames, with all maps kept in memory.

    ``frames`` has the frames of each input.
    """
    maps_by_frame = [maps_of(verilog, schedule, frame, memory) for frame in zip(*frames, strict=True)]
    return {name: np.stack([maps[name] for maps in maps_by_frame]) for name in maps_by_frame[0]}


def _shares(frames: Frames, batch: int, count: int) -> list[tuple[list[int], list[Frames]]]:
    """Return a list of at most ``count`` shares for parallel simulation: pairs of run indices and runs' frames."""
    runs = [[values[first : first + batch] for values in frames] for first in range(0, len(frames[0]), batch)]
    shares = np.array_split(np.arange(len(runs)), max(1, min(count, len(runs))))
    return [(share.tolist(), [runs[index] for index in share]) for share in shares]


def _frames(program: Program, run: int) -> str:
    """Return the frame numbers of an engine run as text for messages: ``frame 3``, or ``frames 4 to 7``."""
    first = run * program.batch
    return f"frame {first}" if program.batch == 1 else f"frames {first} to {first + program.batch - 1}"


def _on_this_machine(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: Frames,
    memory: EngineMemory,
    jobs: int | None,
    wave_file: Path | None,
) -> list[list[_Run]]:
    """Return a list of lists of `_Run`: results of runs per parallel simulation on this machine."""
    verilator.SIMULATOR.check_tools()
    one, tell = predict(program, memory.timing), listener()
    engine.compiled(verilog, wave_file, lambda step: tell(Step(f"{program.name}: {step}")))  # once, not in each worker

    runs, of = -(-len(frames[0]) // program.batch), "frame" if program.batch == 1 else "run"

    def tick(index: int, moved: int) -> None:
        what = f"{program.name}: simulating {of} {index + 1} of {runs}"
        tell(Step(what, min(moved, one.read + one.written), one.read + one.written, "byte"))

    shares = _shares(frames, program.batch, jobs or 1)
    run = partial(_run_share, verilog, program, memory, wave_file=wave_file, tick=tick)
    with work.pool(count=len(shares), programs=True) as pool:
        return work.run(pool, run, shares)


def _on_cluster(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: Frames,
    memory: EngineMemory,
    jobs: int | None,
    cluster: str,
) -> list[list[_Run]]:
    """Return a list of lists of `_Run`: results of runs per parallel simulation on a cluster."""
    with work.pool(cluster) as pool:
        shares = _shares(frames, program.batch, jobs or pool.count * work.SHARES)
        shared = (dict(verilog), program, memory)
        return work.run(pool, _run_share, shares, shared=shared, what=f"{program.name}: simulating", unit="share")


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Result of one run of an engine: bytes of each output's frames, cycles, error, traffic and duration."""

    outputs: tuple[tuple[bytes, ...], ...]
    cycles: int
    error: Error
    read: int
    written: int
    wall_s: float


def _run_share(
    verilog: Mapping[str, bytes],
    program: Program,
    memory: EngineMemory,
    share: tuple[Sequence[int], Sequence[Frames]],
    *,
    wave_file: Path | None = None,
    tick: Callable[[int, int], None] = lambda index, moved: None,
) -> list[_Run]:
    """Return a list of the results of one share of an engine's runs, simulated one after the other.

    ``tick`` receives a run's index and the number of bytes moved so far.
    """
    runs = []
    for index, frames in zip(*share, strict=True):
        told = partial(tick, index)
        run = engine.run(verilog, _image(program, frames), memory=memory, wave_file=wave_file, tick=told)
        runs.append(
            _Run(
                outputs=tuple(
                    tuple(run.image[output.at(frame)] for frame in range(program.batch)) for output in program.outputs
                ),
                cycles=run.cycles[0],
                error=run.error,
                read=run.read,
                written=run.written,
                wall_s=run.wall_s,
            )
        )
    return runs


def _image(program: Program, frames: Frames) -> bytes:
    """Return memory's bytes before a run: program, then frames; missing frames at the end are zeros."""
    image = bytearray(program.size)
    image[: len(program.image)] = program.image
    for region, values in zip(program.inputs, frames, strict=True):
        for index, frame in enumerate(values):
            image[region.at(index)] = region.pack(frame)
    return bytes(image)
