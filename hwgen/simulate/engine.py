"""Simulation in Verilator of an engine that runs a program, with a model of its off-chip memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwgen import processes
from hwgen.errors import CheckError
from hwgen.gateware.engine.axi import Response
from hwgen.gateware.engine.port import Error
from hwgen.schedule.engine import MemoryTiming
from hwgen.simulate import verilator, waves
from hwgen.simulate.simulator import drive
from hwgen.verilog.emitted import ENGINE, write_files

#: Number of cycles simulated after the engine's last run, when it must not move data.
DRAIN = 100


@dataclass(frozen=True, kw_only=True)
class EngineMemory:
    """Configuration of the model of an engine's off-chip memory, which answers transactions in order.

    Parameters
    ----------
    timing : MemoryTiming
        Latencies and cycles per beat.
    gap_every, gap : int
        Period and length of gaps, in cycles. In the first ``gap`` of each ``gap_every`` cycles the memory offers and
        accepts nothing new, as during a DRAM refresh. 0 for no gaps.
    """

    timing: MemoryTiming = field(default_factory=MemoryTiming)
    gap_every: int = 0
    gap: int = 0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Byte address range, ``begin`` to ``end - 1``, that an engine's memory answers with an error in the first run."""

    begin: int
    end: int
    response: Response


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """Result of simulating one or several consecutive runs of an engine's program.

    Attributes
    ----------
    image : bytes
        Contents of the memory after the last run.
    cycles : tuple of int
        Number of cycles from ``start`` to ``done``, for each run.
    errors : tuple of Error
        Error code of the engine at the end of each run.
    read, written : int
        Number of bytes read and written in all runs.
    regions : dict of str to (int, int)
        Number of bytes read and written in each region, by the region's name.
    wall_s : float
        Duration of the simulation, in seconds.
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
        """Error code of the engine at the end of the last run."""
        return self.errors[-1]


def run(
    verilog: Mapping[str, bytes],
    image: bytes,
    *,
    program_base: int = 0,
    memory: EngineMemory | None = None,
    regions: Mapping[str, tuple[int, int]] | None = None,
    fault: Fault | None = None,
    runs: int = 1,
    reset_at: int | None = None,
    limit: int = 1 << 40,
    wave_file: Path | None = None,
    say: Callable[[str], None] = lambda step: None,
    tick: Callable[[int], None] = lambda moved: None,
) -> EngineRun:
    """Return an `EngineRun`: the result (cycles, traffic, final memory) of simulating an engine that runs a program.

    Parameters
    ----------
    verilog : mapping of str to bytes
        Verilog and memory files of the engine, as `engine_files` returns them.
    image : bytes
        Contents of the memory before the first run. The memory answers an access beyond them with DECERR.
    program_base : int
        Byte address of the program's first job.
    memory : EngineMemory, optional
        Timing of the memory.
    regions : mapping of str to (int, int), optional
        Address ranges (first byte, byte after the last) whose traffic is counted, by name.
    fault : Fault, optional
        Address range that the memory answers with an error in the first run, and in the attempt before a reset.
    runs : int
        Number of runs. Each run starts when the previous run has ended, with the memory contents that it left.
    reset_at : int, optional
        Number of cycles after which a first attempt is interrupted by a reset of the engine and the memory. The result
        does not count this attempt.
    limit : int
        Number of cycles after which a run counts as stuck.
    wave_file : Path, optional
        Path of the waveform file, ``.vcd`` or ``.fst``.
    say, tick : callable
        Functions that receive the current step, and the number of bytes moved so far.

    Raises
    ------
    CheckError
        If the engine breaks a rule of AXI, does not end, or moves data after its end.
    ToolError
        If g++ or Verilator is missing or fails.
    """
    memory, regions = memory or EngineMemory(), regions or {}
    program = compiled(verilog, wave_file, say)
    timing = memory.timing
    arguments: list[object] = ["image.bin", "result.bin", program_base]
    arguments += [timing.latency, timing.write_latency, timing.pace, timing.pace_beats, memory.gap_every, memory.gap]
    arguments += [runs, reset_at or 0, limit, DRAIN, wave_file.absolute() if wave_file else ""]
    arguments += [fault.begin, fault.end, fault.response.value] if fault else [0, 0, 0]
    arguments += [address for region in regions.values() for address in region]
    with processes.workplace() as work:
        memories = {name: text for name, text in verilog.items() if name != f"{ENGINE}.v"}
        write_files({"image.bin": image, **memories}, work)
        answers = drive([str(program), *map(str, arguments)], work, ENGINE, tick)
        after = (work / "result.bin").read_bytes()
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
        regions=dict(zip(regions, _region_bytes(answers, len(regions)), strict=True)),
        wall_s=float(answers["wall"][0]),
    )


def compiled(
    verilog: Mapping[str, bytes], wave_file: Path | None = None, say: Callable[[str], None] = lambda step: None
) -> Path:
    """Compile the program that simulates an engine, unless the cache has it, and return the program's path.

    Raises
    ------
    ToolError
        If g++ or Verilator is missing or fails.
    """
    return verilator.compiled(verilog[f"{ENGINE}.v"], ENGINE, "engine_driver.cpp", {}, wave_file=wave_file, say=say)


def _region_bytes(answers: Mapping[str, Sequence[str]], count: int) -> list[tuple[int, int]]:
    """Return, as a list, (bytes read, bytes written) of each memory region, from the simulator's printed answers."""
    read, written = (
        [int(value) for value in answers.get(f"region_{name}", ())][-count:] for name in ("read", "written")
    )
    return list(zip(read, written, strict=True))


_MEANINGS = {
    "stuck": "does not end",
    "restless": "moves data or drops done after its end",
    "border": "requests a burst that crosses a border of 4 KiB",
    "burst": "requests a burst that does not consist of whole words",
    "strobe": "writes a part of a word",
    "last": "marks a wrong beat as the last of a burst",
}
