"""Runs in Icarus Verilog, with the test bench that ``hwgen build`` writes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from hwgen.emit import testbench
from hwgen.emit.verilog import write_files
from hwgen.errors import CheckError, ToolError
from hwgen.simulate import stimuli
from hwgen.simulate.result import Job, Raw

__all__ = ["check_tools", "run"]


def check_tools() -> None:
    """Refuse to begin without the tools.

    Raises
    ------
    ToolError
        If Icarus is missing.
    """
    _find("iverilog")
    _find("vvp")


def run(job: Job, files: Mapping[str, bytes], top: str) -> Raw:
    """Simulate emitted Verilog; see ``Job`` for what happens in a cycle.

    Raises
    ------
    ToolError
        If Icarus is missing or fails.
    CheckError
        If a bit that matters is unknown.
    """
    compiler, runner = _find("iverilog"), _find("vvp")
    bench = testbench.bench(
        top,
        input=job.config.input,
        output=job.config.output,
        input_order=job.config.input_order,
        output_order=job.config.output_order,
        frames=job.frames,
        idle=job.idle,
        source=job.stalls.source,
        sink=job.stalls.sink,
        memory=(job.memory.latency, job.memory.rate, job.memory.queue),
        one_by_one=job.one_by_one,
        reset_at=job.reset_at or 0,
        taps=[beat for beat, _ in job.taps],
        check=False,
    )
    with tempfile.TemporaryDirectory(prefix="hwgen-") as folder:
        place = Path(folder)
        write_files({**files, f"{testbench.module(top)}.v": bench.encode()}, place)
        (place / testbench.STIMULUS).write_bytes(stimuli.to_hex(job.payloads, job.config.input))
        sources = [f"{testbench.module(top)}.v", f"{top}.v"]
        _call(
            [compiler, "-g2005", "-Wno-timescale", "-s", testbench.module(top), "-o", "simulator", *sources], place, top
        )
        arguments = [runner, "-n", "simulator", "+results=results.txt"]
        if job.waves:
            arguments += [*(("-fst",) if job.waves.suffix == ".fst" else ()), f"+waves={job.waves}"]
        start = time.perf_counter()
        said = _watch(arguments, place, job, top)
        wall = time.perf_counter() - start
        answers: dict[str, list[str]] = {}
        results = place / "results.txt"
        for line in results.read_text().splitlines() if results.is_file() else ():
            key, _, value = line.partition(" ")
            answers.setdefault(key, []).append(value.strip())
    if "done" not in answers:
        raise ToolError(f"Icarus ended {top} without a result: {' '.join(said.split())[:300] or 'no message'}")
    error = answers.get("error", [None])[0]
    if error == "unknown":
        raise CheckError(f"{job.config.name}: {' '.join(said.splitlines()[0].split())} (icarus)")

    def payloads(key, beat):
        try:
            return stimuli.words([int(value, 16) for value in answers.get(key, [])], beat)
        except ValueError as unknown:
            raise CheckError(f"{job.config.name}: unknown bits in {key} (icarus)") from unknown

    return Raw(
        payloads=payloads("o", job.config.output),
        sent=int(answers["sent"][0]),
        taken=int(answers["taken"][0]),
        extra=int(answers["extra"][0]),
        simulated=int(answers["simulated"][0]),
        first_input=int(answers["first_input"][0]),
        last_output=int(answers["last_output"][0]),
        frame_ends=[int(end) for end in answers.get("frame_end", [])],
        written_ends=[int(end) for end in answers.get("frame_written", [])],
        read_bytes=int(answers["read_bytes"][0]),
        written_bytes=int(answers["written_bytes"][0]),
        busy=[int(count) for line in answers.get("busy", []) for count in line.split()],
        steps=[int(count) for line in answers.get("steps", []) for count in line.split()],
        taps=[payloads(f"tap_{number}", beat) for number, (beat, _) in enumerate(job.taps)],
        wall_s=wall,
        error=error,
    )


def _find(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ToolError(f"{program} is needed to simulate with Icarus, and was not found: apt install iverilog")
    return path


def _call(command: list[str], folder: Path, top: str) -> None:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if process.returncode:
        said = " ".join((process.stderr + process.stdout).split())[:300] or "no message"
        raise ToolError(f"Icarus failed on {top} with status {process.returncode}: {said}")


def _watch(command: list[str], folder: Path, job: Job, top: str) -> str:
    """Run the simulation, telling its progress; what it said. A failure shows in the results."""
    results = folder / "results.txt"
    size = -(-(job.config.output.data_bits + 1) // 4) + len("o \n")
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
    ):
        try:
            while True:
                try:
                    process.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    if results.is_file():
                        job.tick(results.stat().st_size // size)
        except BaseException:
            process.kill()
            raise
        output.seek(0)
        return output.read()
