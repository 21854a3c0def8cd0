"""Runs of programs: an engine's Verilog in Verilator, in front of a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwgen import processes
from hwgen.emit.engine import TOP, files
from hwgen.emit.verilog import write_files
from hwgen.errors import CheckError
from hwgen.gateware.engine.axi import Response
from hwgen.gateware.engine.port import Error
from hwgen.schedule.engine import MemoryTiming
from hwgen.simulate import driven, verilator, waves

__all__ = ["DRAIN", "TOP", "EngineRun", "Fault", "Memory", "compiled", "files", "run"]

#: Cycles after a run in which nothing may be moved.
DRAIN = 100


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A memory that answers in order, at its own pace.

    Parameters
    ----------
    timing : MemoryTiming
    gap_every, gap : int
        In the first ``gap`` of each ``gap_every`` cycles nothing new is offered or taken, as when a memory refreshes.
    """

    timing: MemoryTiming = field(default_factory=MemoryTiming)
    gap_every: int = 0
    gap: int = 0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """In the first run, addresses from ``begin`` to before ``end`` are answered by ``response``."""

    begin: int
    end: int
    response: Response


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """What a program did.

    Attributes
    ----------
    image : bytes
        Memory afterwards.
    cycles : tuple of int
        From ``start`` to ``done``, for each run.
    errors : tuple of Error
        That ended each run.
    read, written : int
        Bytes, of all runs.
    regions : dict of str to (int, int)
        Bytes read and written in each region that was named.
    wall_s : float
        Seconds of the simulation.
    """

    image: bytes
    cycles: tuple[int, ...]
    errors: tuple[Error, ...]
    read: int
    written: int
    regions: dict[str, tuple[int, int]]
    wall_s: float

    @property
    def error(self) -> Error:
        """That of the last run."""
        return self.errors[-1]


def run(
    verilog: Mapping[str, bytes],
    image: bytes,
    *,
    program_base: int = 0,
    memory: Memory | None = None,
    regions: Mapping[str, tuple[int, int]] | None = None,
    fault: Fault | None = None,
    runs: int = 1,
    reset_at: int | None = None,
    limit: int = 1 << 40,
    wave_file: Path | None = None,
    say: Callable[[str], None] = lambda step: None,
    tick: Callable[[int], None] = lambda moved: None,
) -> EngineRun:
    """Run a program.

    Parameters
    ----------
    verilog : mapping of str to bytes
        What `files` gives.
    image : bytes
        Memory before; an access beyond is answered by DECERR.
    program_base : int
        Address of the first job.
    memory : Memory, optional
    regions : mapping of str to (int, int), optional
        Parts of memory, from one address to another one, whose traffic is counted.
    fault : Fault, optional
        What memory refuses in the first run, a first attempt included.
    runs : int
        How often the program is started, each time when it has ended, on what the run before left in memory.
    reset_at : int, optional
        Reset engine and memory after so many cycles of a first attempt, which counts for nothing.
    limit : int
        Cycles after which a run is called stuck.
    wave_file : Path, optional
        ``.vcd`` or ``.fst``.
    say, tick : callable
        Told what is being done, and the bytes that were moved so far.

    Raises
    ------
    CheckError
        If the engine breaks a rule of AXI, does not come to an end, or moves data after it has.
    ToolError
        If g++ or Verilator is missing or fails.
    """
    memory, regions = memory or Memory(), regions or {}
    program = compiled(verilog, wave_file, say)
    timing = memory.timing
    arguments: list[object] = ["image.bin", "result.bin", program_base]
    arguments += [timing.latency, timing.write_latency, timing.pace, memory.gap_every, memory.gap]
    arguments += [runs, reset_at or 0, limit, DRAIN, wave_file.absolute() if wave_file else ""]
    arguments += [fault.begin, fault.end, fault.response.value] if fault else [0, 0, 0]
    arguments += [address for region in regions.values() for address in region]
    with processes.workplace() as place:
        write_files({"image.bin": image, **{name: text for name, text in verilog.items() if name != f"{TOP}.v"}}, place)
        answers = driven.drive([str(program), *map(str, arguments)], place, TOP, tick)
        after = (place / "result.bin").read_bytes()
    if wave_file:
        waves.pack(wave_file.absolute())
    if error := answers.get("error"):
        raise CheckError(f"the engine {_MEANINGS[error[0]]}, in cycle {answers['simulated'][0]}")
    return EngineRun(
        image=after,
        cycles=tuple(map(int, answers["cycles"])),
        errors=tuple(Error(int(answer)) for answer in answers["response"]),
        read=int(answers["read"][-1]),
        written=int(answers["written"][-1]),
        regions=dict(zip(regions, _last(answers, len(regions)), strict=True)),
        wall_s=float(answers["wall"][0]),
    )


def compiled(
    verilog: Mapping[str, bytes], wave_file: Path | None = None, say: Callable[[str], None] = lambda step: None
) -> Path:
    """The program that simulates an engine, from the cache or compiled now; errors as of `run`."""
    return verilator.compiled(verilog[f"{TOP}.v"], TOP, "engine_driver.cpp", {}, wave_file=wave_file, say=say)


def _last(answers: Mapping[str, Sequence[str]], count: int) -> list[tuple[int, int]]:
    """Bytes of the regions after the last run."""
    read, written = (
        [int(number) for number in answers.get(f"region_{name}", ())][-count:] for name in ("read", "written")
    )
    return list(zip(read, written, strict=True))


_MEANINGS = {
    "stuck": "does not come to an end",
    "restless": "goes on after it was done",
    "border": "lets a burst cross a border of 4 KiB",
    "burst": "asks for a burst that is no run of whole words",
    "strobe": "writes words in part",
    "last": "marks another beat than the last one of a burst",
}
