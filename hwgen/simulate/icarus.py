"""Simulation in Icarus Verilog, with the test bench that ``hwgen build`` writes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from hwgen import processes
from hwgen.errors import CheckError, ToolError
from hwgen.gateware.circuit_ports import error_ports, tied_ports
from hwgen.gateware.stream import BeatFormat, Order
from hwgen.simulate import stimuli, testbench
from hwgen.simulate.job import SimulationJob
from hwgen.simulate.result import Raw
from hwgen.simulate.simulator import Simulator, program
from hwgen.verilog.emitted import write_files


class Icarus(Simulator):
    """Simulator that runs the Verilog in Icarus, an interpreter that models unknown bits (``x``)."""

    def check_tools(self) -> None:
        _programs()

    def run(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Raw:
        """Return a `Raw`: the result of emitted Verilog in its test bench; refuse unknown bits in output values.

        Raises
        ------
        ToolError
            If Icarus is missing or fails.
        CheckError
            If a bit that matters is unknown.
        """
        compiler, runner = _programs()
        bench = testbench.bench(
            top,
            inputs=job.inputs,
            outputs=job.outputs,
            frames=job.frames,
            idle=job.idle,
            stalls=job.stalls,
            memory=(job.options.memory.latency, job.options.memory.rate, job.options.memory.queue),
            one_by_one=job.options.one_by_one,
            reset_at=job.options.reset_at or 0,
            taps=[beat for beat, _ in job.taps],
            errors=error_ports(job.config),
            ties=tied_ports(job.config),
            check=False,
        )
        with processes.workplace() as folder:
            write_files({**files, f"{testbench.module(top)}.v": bench.encode()}, folder)
            for index, (payloads_in, port) in enumerate(zip(job.payloads, job.inputs, strict=True)):
                (folder / testbench.stimulus(index, len(job.inputs))).write_bytes(
                    stimuli.to_hex(payloads_in, port.beat)
                )
            sources = [f"{testbench.module(top)}.v", f"{top}.v"]
            _call(
                [compiler, "-g2005", "-Wno-timescale", "-s", testbench.module(top), "-o", "simulator", *sources],
                folder,
                top,
            )
            arguments = [runner, "-n", "simulator", "+results=results.txt"]
            if job.options.wave_file:
                arguments += [
                    *(("-fst",) if job.options.wave_file.suffix == ".fst" else ()),
                    f"+waves={job.options.wave_file}",
                ]
            start = time.perf_counter()
            said = _watch(arguments, folder, job)
            wall = time.perf_counter() - start
            answers = _read_answers(folder / "results.txt")
            keys = [testbench.results_key(index, len(job.outputs)) for index in range(len(job.outputs))]
            beats = sum(len(answers.get(key, [])) for key in keys)
            whole = "done" in answers and beats + int(answers["extra"][0]) == int(answers["taken"][0])
            if not whole and "error" not in answers:
                raise ToolError(f"Icarus ended {top} without a result: {' '.join(said.split())[:300] or 'no message'}")
        error = answers.get("error", [None])[0]
        if error == "unknown":
            raise CheckError(f"{job.config.name}: {' '.join(said.splitlines()[0].split())} (icarus)")

        def payloads(key: str, beat: BeatFormat, order: Order) -> np.ndarray:
            where = f"{job.config.name}: unknown bits in {key}"
            return stimuli.words(_payloads_to_integers(answers.get(key, []), beat, order, where), beat)

        return Raw.of(
            answers,
            payloads=[payloads(key, port.beat, port.order) for key, port in zip(keys, job.outputs, strict=True)],
            taps=[payloads(f"tap_{index}", *stream) for index, stream in enumerate(job.taps)],
            wall_s=wall,
        )


SIMULATOR = Icarus()


def _programs() -> tuple[str, str]:
    """Return a pair: the paths of Icarus' compiler ``iverilog`` and of its interpreter ``vvp``."""
    return program("iverilog", "Icarus", "iverilog"), program("vvp", "Icarus", "iverilog")


def _read_answers(results: Path) -> dict[str, list[str]]:
    """Return a dict of lists of texts, by key, from the test bench's results file; empty if the file is missing."""
    answers: dict[str, list[str]] = {}
    for line in results.read_text().splitlines() if results.is_file() else ():
        key, _, value = line.partition(" ")
        answers.setdefault(key, []).append(value.strip())
    return answers


def _payloads_to_integers(lines: Sequence[str], beat: BeatFormat, order: Order, where: str) -> list[int]:
    """Return a list of payloads in the test bench's results as integers; refuse unknown bits of values.

    A line has a payload in hexadecimal. After ``=`` it has a payload in binary with unknown bits, which become zero.

    Raises
    ------
    CheckError
        If a bit of a value, or ``last``, is unknown.
    """
    masks = stimuli.value_bits(beat, order) if any(line.startswith("=") for line in lines) else []
    values = []
    for index, line in enumerate(lines):
        if line.startswith("="):
            frame, position = divmod(index, len(masks))
            if int(line[1:].translate(_UNKNOWN), 2) & masks[position]:
                raise CheckError(f"{where}, beat {position} of frame {frame} (icarus)")
            values.append(int(line[1:].translate(_KNOWN), 2))
        else:
            values.append(int(line, 16))
    return values


_UNKNOWN, _KNOWN = str.maketrans("01xXzZ", "001111"), str.maketrans("xXzZ", "0000")


def _call(command: list[str], folder: Path, top: str) -> None:
    """Run one of Icarus' programs in a folder, and raise an error with its message if it fails."""
    process = processes.call(command, folder)
    if process.returncode:
        said = " ".join((process.stderr + process.stdout).split())[:300] or "no message"
        raise ToolError(f"Icarus failed on {top} with status {process.returncode}: {said}")


def _watch(command: list[str], folder: Path, job: SimulationJob) -> str:
    """Return the text that an Icarus simulation prints, and report progress while it runs.

    A failure shows in the results file.
    """
    results = folder / "results.txt"
    # Approximate number of bytes per line.
    size = sum(port.beats * (port.beat.data_bits // 4 + len("o  \n")) for port in job.outputs)
    size //= sum(port.beats for port in job.outputs)
    with (folder / "said").open("w+", errors="replace") as output:
        with processes.program(command, folder, stdout=output, stderr=output) as process:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
                if results.is_file():
                    job.tick(results.stat().st_size // size)
        output.seek(0)
        return output.read()
