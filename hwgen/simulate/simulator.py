"""Base classes of simulators, also of those that compile C++, and look-up of a simulator by name."""

from __future__ import annotations

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hwgen import processes
from hwgen.errors import ToolError
from hwgen.simulate import stimuli, waves
from hwgen.simulate.job import SimulationJob
from hwgen.simulate.result import Raw
from hwgen.simulate.testbench import DRAIN
from hwgen.simulators import entry
from hwgen.verilog.emitted import write_files


class Simulator(ABC):
    """Base class of the simulators of accelerators, whose abilities `hwgen.simulators` lists."""

    def check_tools(self) -> None:
        """Refuse to begin if one of the simulator's programs is missing; by default none is needed.

        Raises
        ------
        ToolError
            If a program is missing.
        """
        return

    def prepare(self, waves: Path | None) -> None:
        """Compile the code that simulations of all designs share, if the simulator has such code.

        Parameters
        ----------
        waves : Path or None
            Path of the waveform file, if there is one.

        Raises
        ------
        ToolError
            If compiling fails.
        """
        return

    def sources(self, files: Mapping[str, bytes], top: str) -> Mapping[str, bytes]:
        """Return emitted files, bytes by file name, in the form that the simulator reads; by default unchanged."""
        return files

    def build(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> object:
        """Return what a simulator compiles once for several simulations of a design; by default ``None``.

        Raises
        ------
        ToolError
            If compiling fails.
        """
        return None

    @abstractmethod
    def run(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Raw:
        """Simulate a design with a job's frames and options, and return a `Raw`: the unchecked result.

        `SimulationJob` describes the events of a cycle.

        Parameters
        ----------
        job : SimulationJob
            Frames and options of the run.
        files : mapping of str to bytes
            Verilog and memory files from `sources`; empty if the simulator does not read Verilog.
        top : str
            Name of the top module.

        Raises
        ------
        ToolError
            If a program is missing or fails.
        """


def simulator(name: str) -> Simulator:
    """Return the `Simulator` that is registered under ``name``; its module is imported.

    Raises
    ------
    InputError
        If there is no such simulator.
    """
    return import_module(entry(name).module).SIMULATOR


def program(name: str, of: str, package: str) -> str:
    """Return the path of a program that a simulator needs; raise ToolError if the program is missing.

    Parameters
    ----------
    name : str
        Name of the program.
    of : str
        Name of the simulator, for the message.
    package : str
        Debian package that has the program.

    Raises
    ------
    ToolError
        If the program is missing.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolError(f"{name} is needed to simulate with {of}, and was not found: apt install {package}")
    return path


DRIVER = "driver.cpp"
"""Name of the C++ file, in this folder, that drives an accelerator: a class ``Vdesign`` with ports and ``eval()``."""


class CppSimulator(Simulator):
    """Base class of the simulators that compile a design to a program, and run the program."""

    @abstractmethod
    def build(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Path:
        """Compile the program that simulates a design, unless the cache has it, and return the program's path.

        Raises
        ------
        ToolError
            If a program is missing or fails.
        """

    def run(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Raw:
        program = self.build(job, files, top)
        scopes = waves.scopes(top, waves.streams(job.config), job.options.wave_layers)
        with processes.workplace() as folder:
            write_files({name: content for name, content in files.items() if not name.endswith(".v")}, folder)
            (folder / "scopes").write_text("".join(f"{scope}\n" for scope in scopes))
            for index, (payloads_in, sizes) in enumerate(zip(job.payloads, job.reads, strict=True)):
                np.ascontiguousarray(payloads_in, "<u4").tofile(folder / f"input_{index}.bin")
                sizes.astype("<u4").tofile(folder / f"reads_{index}.bin")
            for index, sizes in enumerate(job.writes):
                sizes.astype("<u4").tofile(folder / f"writes_{index}.bin")
            arguments: list[object] = ["input", "output", "reads", "writes", job.frames]
            arguments += [job.idle, job.options.reset_at or 0]
            arguments += [
                job.options.memory.latency,
                job.options.memory.rate,
                job.options.memory.queue,
                int(job.options.one_by_one),
                job.options.wave_file or "",
                *(job.options.wave_frames or (0, 1 << 62)),
                *(value for pair in (*job.stalls.sources, *job.stalls.sinks) for value in pair),
            ]
            answers = drive([str(program), *map(str, arguments)], folder, job.config.name, job.tick)

            if job.options.wave_file:
                waves.pack(job.options.wave_file)

            def payloads(name: str, words: int) -> np.ndarray:
                return np.fromfile(folder / name, "<u4").reshape(-1, words).astype(np.uint32, copy=False)

            return Raw.of(
                answers,
                payloads=[
                    payloads(f"output_{n}.bin", stimuli.payload_words(port.beat)) for n, port in enumerate(job.outputs)
                ],
                taps=[
                    payloads(f"output_tap_{n}.bin", stimuli.payload_words(beat)) for n, (beat, _) in enumerate(job.taps)
                ],
                wall_s=float(answers["wall"][0]),
            )


def macros(job: SimulationJob) -> dict[str, object]:
    """Return a dict of C++ macros, by name, that adapt `DRIVER` to a job: numbers and names of its streams and taps."""
    return {
        "HWGEN_DRAIN": DRAIN,
        "HWGEN_LAYERS": len(job.taps),
        "HWGEN_INPUTS": len(job.inputs),
        "HWGEN_OUTPUTS": len(job.outputs),
        "HWGEN_SOURCES(SOURCE)": " ".join(
            f"SOURCE({n}, {port.name}, {port.beat.data_bits + 1})" for n, port in enumerate(job.inputs)
        ),
        "HWGEN_SINKS(SINK)": " ".join(f"SINK({n}, {port.name})" for n, port in enumerate(job.outputs)),
        "HWGEN_TAPS(TAP)": " ".join(f"TAP({n})" for n in range(len(job.taps))),
    }


def drive(command: list[str], folder: Path, name: str, tick: Callable[[int], None]) -> dict[str, list[str]]:
    """Run a compiled simulator, and return a dictionary of lists of the values that it printed, by key.

    Parameters
    ----------
    command : list of str
        Program and arguments.
    folder : Path
        Working folder of the program.
    name : str
        Name of the design, for messages.
    tick : callable
        Function that receives the number of output beats so far (of an engine: of bytes moved) now and then.

    Raises
    ------
    ToolError
        If the simulator fails.
    """
    answers: dict[str, list[str]] = {}
    with (folder / "errors").open("w+", errors="replace") as errors:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
        with processes.program(command, folder, **pipes) as process:
            assert process.stdout is not None
            for line in process.stdout:
                key, _, value = line.strip().partition(" ")
                if key == "progress":
                    tick(int(value))
                else:
                    answers.setdefault(key, []).append(value)
            status = process.wait()
        errors.seek(0)
        complaint = " ".join(errors.read().split())[:300]
    if status or "wall" not in answers:
        raise ToolError(f"the simulator of {name} ended with status {status}: {complaint or 'no message'}")
    return answers
