"""Frames of a network on an engine, run by run, by a program."""

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
from hwgen.program.compile import Schedule
from hwgen.program.file import Program
from hwgen.program.layout import WORD, pack_map, unpack_map
from hwgen.program.maps import MapLocation
from hwgen.progress import Step, listener
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine, verilator
from hwgen.simulate.check import Mismatch, compare
from hwgen.simulate.engine import Memory
from hwgen.simulate.job import check_waves, check_where

__all__ = ["FrameRuns", "Prediction", "all_maps", "check_program", "locate", "predict", "run_frames"]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Of a run: cycles from ``start`` to ``done``, bytes."""

    cycles: int
    read: int
    written: int


@dataclass(frozen=True, kw_only=True)
class FrameRuns:
    """What came of some frames.

    Attributes
    ----------
    maps : tuple of ndarray
        For each output ``(n, C, H, W)`` in its type.
    cycles : tuple of int
        Of each run, from ``start`` to ``done``.
    read, written : int
        Bytes of all runs.
    wall_s : float
        Seconds of the longest of the simulations that ran side by side.
    """

    maps: tuple[np.ndarray, ...]
    cycles: tuple[int, ...]
    read: int
    written: int
    wall_s: float


def predict(program: Program, timing: MemoryTiming) -> Prediction:
    """What the exact schedule says of a program, in front of a memory without gaps.

    Raises
    ------
    PlanError
        If its jobs wait for each other for ever.
    """
    run = EngineSchedule(program.engine, program.jobs, timing).run()
    return Prediction(
        cycles=START_CYCLES + run.cycles + DONE_CYCLES,
        read=int(run.read.sum()) + run.fetched,
        written=int(run.written.sum()),
    )


def check_program(program: Program, network: Network) -> None:
    """Refuse a program of another network, as far as its maps tell.

    Raises
    ------
    InputError
    """
    here = (network.input_maps[0], *network.output_maps)
    there = (program.input.map, *(each.map for each in program.outputs))
    if here != there or len(network.inputs) != 1:
        given, wanted = (" and ".join(map(str, maps)) for maps in (there, (*network.input_maps, *network.output_maps)))
        raise InputError(f"program of {program.name} is of another network: its maps are {given}, not {wanted}")


def run_frames(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: np.ndarray,
    memory: Memory,
    *,
    jobs: int | None = None,
    wave_file: Path | None = None,
    cluster: str | None = None,
) -> FrameRuns:
    """Run frames in Verilator, as many at once as the program has, each time from a memory of its own.

    The last run has empty frames in place of those that are missing.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Of the engine that the program is for.
    program : Program
    frames : ndarray
        ``(n, C, H, W)`` integers of the program's input.
    memory : Memory
    jobs : int, optional
        Simulations side by side; one if not given, and on a cluster two for each that it runs at a time.
    wave_file : Path, optional
        Of a single run.
    cluster : str, optional
        Where they run (`hwgen.work.pool`): on this machine if not given.

    Raises
    ------
    CheckError
        If the engine ends with an error, breaks a rule of AXI, or does not come to an end.
    InputError
        If waves are asked for of several runs, or can't be written there.
    ToolError
        If g++ or Verilator is missing or fails.
    """
    check_waves(wave_file, "verilator")
    check_where(cluster, wave_file)
    work.check_count(jobs)
    if wave_file is not None and len(frames) > program.batch:
        one = "one frame" if program.batch == 1 else f"one run of {program.batch} frames"
        raise InputError(f"waves are of {one} on an engine, not of {len(frames):,}: give one, or leave them out")
    if cluster is not None:
        found = _elsewhere(verilog, program, frames, memory, jobs, cluster)
    else:
        found = _here(verilog, program, frames, memory, jobs, wave_file)
    runs = [each for share in found for each in share]
    for number, each in enumerate(runs):
        if each.error != Error.NONE:
            raise CheckError(f"{program.name}: the engine ended {_told(program, number)} with error {each.error.name}")
    return FrameRuns(
        maps=tuple(
            np.stack([unpack_map(values, region.map) for each in runs for values in each.outputs[place]])[: len(frames)]
            for place, region in enumerate(program.outputs)
        ),
        cycles=tuple(each.cycles for each in runs),
        read=sum(each.read for each in runs),
        written=sum(each.written for each in runs),
        wall_s=max(sum(each.wall_s for each in share) for share in found),
    )


def locate(
    verilog: Mapping[str, bytes],
    schedule: Schedule,
    network: Network,
    frames: np.ndarray,
    memory: Memory,
    first: Mismatch,
) -> Mismatch:
    """Where a difference begins, by layer.

    The frame of the difference is run again, by a program that keeps all maps in memory, and each map is compared with
    the golden model's. If none differs then, or the engine doesn't come to an end, it is given as it is.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Of the engine.
    schedule : Schedule
        Of the program that was run.
    network : Network
        What it should compute.
    frames : ndarray
        ``(n, C, H, W)``, those that were run.
    memory : Memory
    first : Mismatch
        In the outputs.
    """
    frame = frames[first.frame]
    try:
        seen = maps_of(verilog, schedule, frame, memory)
    except CheckError:
        return first
    for layer, values in golden.trace(network, (frame[None],)):
        if layer.name in seen and (found := compare(seen[layer.name][None], values, layer=layer.name)):
            return replace(found, frame=first.frame, count=first.count, size=first.size)
    return first


def maps_of(
    verilog: Mapping[str, bytes], schedule: Schedule, frame: np.ndarray, memory: Memory
) -> dict[str, np.ndarray]:
    """The maps ``(C, H, W)`` that a frame leaves in memory, by their layers' names.

    Layers that another one is computed behind, on the way out, leave none. A program of several frames computes it as
    often, since most maps are left by the last one only.

    Raises
    ------
    CheckError
        If the engine breaks a rule of AXI, or does not come to an end.
    """
    schedule = schedule.kept
    image = engine.run(verilog, _image(schedule.program, np.stack([frame] * schedule.frames)), memory=memory).image
    return {
        layer.name: unpack_map(_words(image, place), layer.output)
        for layer in schedule.network.layers
        if (place := schedule.frame_locations[-1].get(layer.name)) is not None
    }


def _words(image: bytes, place: MapLocation) -> np.ndarray:
    """A map, without the gaps that it has in memory."""
    shape = place.blocks, place.height, place.width
    strides = place.block_bytes, place.row_bytes, WORD
    words = np.frombuffer(image, "<u8")[place.address // WORD :]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(words, shape, strides, writeable=False))


def all_maps(
    verilog: Mapping[str, bytes], schedule: Schedule, frames: np.ndarray, memory: Memory
) -> dict[str, np.ndarray]:
    """The maps ``(n, C, H, W)`` that frames leave in memory (`maps_of`)."""
    found = [maps_of(verilog, schedule, frame, memory) for frame in frames]
    return {name: np.stack([maps[name] for maps in found]) for name in found[0]}


def _shares(frames: np.ndarray, batch: int, parts: int) -> list[tuple[list[int], list[np.ndarray]]]:
    """Numbers of runs, and the frames of each."""
    runs = [frames[first : first + batch] for first in range(0, len(frames), batch)]
    numbers = np.array_split(np.arange(len(runs)), max(1, min(parts, len(runs))))
    return [(part.tolist(), [runs[number] for number in part]) for part in numbers]


def _told(program: Program, run: int) -> str:
    """The frames of a run."""
    first = run * program.batch
    return f"frame {first}" if program.batch == 1 else f"frames {first} to {first + program.batch - 1}"


def _here(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: np.ndarray,
    memory: Memory,
    jobs: int | None,
    wave_file: Path | None,
) -> list[list[_Run]]:
    """All frames on this machine."""
    verilator.SIMULATOR.check_tools()
    one, tell = predict(program, memory.timing), listener()
    engine.compiled(verilog, wave_file, lambda step: tell(Step(f"{program.name}: {step}")))  # once, not by all of them

    runs, of = -(-len(frames) // program.batch), "frame" if program.batch == 1 else "run"

    def tick(number: int, moved: int) -> None:
        what = f"{program.name}: simulating {of} {number + 1} of {runs}"
        tell(Step(what, min(moved, one.read + one.written), one.read + one.written, "byte"))

    shares = _shares(frames, program.batch, jobs or 1)
    run = partial(_share, verilog, program, memory, wave_file=wave_file, tick=tick)
    with work.pool(count=len(shares), programs=True) as pool:
        return work.run(pool, run, shares)


def _elsewhere(
    verilog: Mapping[str, bytes],
    program: Program,
    frames: np.ndarray,
    memory: Memory,
    jobs: int | None,
    cluster: str,
) -> list[list[_Run]]:
    """All frames on a cluster."""
    with work.pool(cluster) as pool:
        shares = _shares(frames, program.batch, jobs or pool.count * work.SHARES)
        shared = (dict(verilog), program, memory)
        return work.run(pool, _share, shares, shared=shared, what=f"{program.name}: simulating", unit="share")


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What came of a run: the bytes of each output frame by frame, and the run's figures."""

    outputs: tuple[tuple[bytes, ...], ...]
    cycles: int
    error: Error
    read: int
    written: int
    wall_s: float


def _share(
    verilog: Mapping[str, bytes],
    program: Program,
    memory: Memory,
    share: tuple[Sequence[int], Sequence[np.ndarray]],
    *,
    wave_file: Path | None = None,
    tick: Callable[[int, int], None] = lambda number, moved: None,
) -> list[_Run]:
    """Some runs, one after the other; ``tick`` is told a run's number and the bytes that it has moved."""
    found = []
    for number, frames in zip(*share, strict=True):
        told = partial(tick, number)
        run = engine.run(verilog, _image(program, frames), memory=memory, wave_file=wave_file, tick=told)
        found.append(
            _Run(
                outputs=tuple(
                    tuple(run.image[each.at(frame)] for frame in range(program.batch)) for each in program.outputs
                ),
                cycles=run.cycles[0],
                error=run.error,
                read=run.read,
                written=run.written,
                wall_s=run.wall_s,
            )
        )
    return found


def _image(program: Program, frames: np.ndarray) -> bytes:
    """Memory with the program and the frames of a run, of which the last ones may be missing."""
    image = bytearray(program.size)
    image[: len(program.image)] = program.image
    for number, frame in enumerate(frames):
        image[program.input.at(number)] = pack_map(frame, program.input.map.type)
    return bytes(image)
