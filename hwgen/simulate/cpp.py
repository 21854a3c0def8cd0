"""Compilation of Verilator's C++ with g++, several files at once. Objects are cached under a digest of their sources.

A component's file needs the class of this component, and of the other classes only those that it names. Verilator lets
each file include all classes, and makes all components members of one C++ object. Then one more register in a component
moves all members behind it. Here a file includes only the classes that it names, and the object holds references to
components that are allocated separately. So a component that did not change is not compiled again.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hwgen import cache, digest, processes, work
from hwgen.errors import ToolError

T = TypeVar("T")

__all__ = ["Tools", "link", "objects", "prepare"]

#: Flags of g++ for code that runs in every cycle, and for code that runs once. -O2 and -O3 take a third longer to
#: compile, and the simulation is no faster (3,500 multipliers, g++ 12).
FAST, SLOW = ("-O1", "-march=native"), ("-O0",)
SMALL = 200_000
"""Largest total size, in bytes, of a design's C++ files that are joined into one file before compilation."""
_ALL_UNITS = "Vdesign__ALL.cpp"
_PRELUDE = "prelude_{}.h"
_LIBRARY = ("verilated", "verilated_threads")
_OF_WAVES = {0: (), 1: ("verilated_vcd_c",), 2: ("verilated_fst_c",)}
_LIBRARIES = {0: (), 1: (), 2: ("-llz4", "-lz")}


@dataclass(frozen=True)
class Tools:
    """Compiler, Verilator's folder and options that compile a simulator.

    Parameters
    ----------
    compiler : str
        Path of g++.
    root : Path
        Verilator's folder.
    waves : int
        Format of the waveforms: 0 for none, 1 for VCD, 2 for FST.
    versions : tuple
        Everything else that the objects depend on: versions of the tools, and the processor.
    """

    compiler: str
    root: Path
    waves: int
    versions: tuple[object, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of g++ that all files share: language standard, include folders and macros."""
        include = self.root / "include"
        macros = {"VERILATOR": 1, "VL_TIME_CONTEXT": 1, "VM_TRACE": int(self.waves > 0)}
        macros |= {"VM_TRACE_VCD": int(self.waves == 1), "VM_TRACE_FST": int(self.waves == 2), "VM_TRACE_SAIF": 0}
        macros |= {"VM_COVERAGE": 0, "VM_SC": 0, "VM_TIMING": 0}
        return (
            "-std=gnu++17",
            *(f"-I{folder}" for folder in (".", include, include / "vltstd")),
            *(f"-D{name}={value}" for name, value in macros.items()),
        )

    @property
    def key(self) -> str:
        """Digest of everything but the sources that objects depend on: compiler, flags and versions."""
        return digest.of(self.compiler, self.flags, FAST, SLOW, self.versions)


def prepare(tools: Tools) -> Path:
    """Return the folder with Verilator's runtime objects and precompiled headers; compile them if the cache lacks them.

    Raises
    ------
    ToolError
        If g++ fails.
    OSError
        If the cache can't be written.
    """
    if (entry := cache.find("runtimes", tools.key, sums=False)) is not None:
        return entry
    with cache.locked("runtimes", tools.key):
        if (entry := cache.find("runtimes", tools.key, sums=False)) is not None:
            return entry
        with processes.workplace(cache.folder() / "runtimes", remedy="set HWGEN_CACHE to a folder with room") as folder:
            runs = [partial(_library, tools, name, folder) for name in (*_LIBRARY, *_OF_WAVES[tools.waves])]
            runs += [partial(_prelude, tools, speed, folder) for speed in ("fast", "slow")]
            _together(runs, "compiling what all simulators share")
            return cache.keep("runtimes", tools.key, sorted(folder.iterdir()))


def _library(tools: Tools, name: str, folder: Path) -> None:
    source = tools.root / "include" / f"{name}.cpp"
    _call([tools.compiler, *FAST[:1], *tools.flags, "-c", str(source), "-o", f"{name}.o"], folder)


def _prelude(tools: Tools, speed: str, folder: Path) -> None:
    """Precompile Verilator's header with the compiler flags of ``speed``, which is ``fast`` or ``slow``."""
    header = folder / _PRELUDE.format(speed)
    header.write_text('#include "verilated.h"\n')
    _call(
        [tools.compiler, *_speed(speed), *tools.flags, "-x", "c++-header", header.name, "-o", f"{header.name}.gch"],
        folder,
    )


def _speed(speed: str) -> tuple[str, ...]:
    return SLOW if speed == "slow" else FAST


def objects(tools: Tools, runtime: Path, folder: Path, others: Sequence[str], what: str) -> list[Path]:
    """Compile a design's C++ files, except those in the cache, and return the paths of the object files.

    Parameters
    ----------
    tools : Tools
        Compiler and options.
    runtime : Path
        Folder that `prepare` returned.
    folder : Path
        Folder in which objects are made. Its subfolder ``obj`` has Verilator's C++.
    others : sequence of str
        Names of more files in ``folder``: the driver in C++, which includes the design's header, and its own header.
    what : str
        Description of the step, for progress (`hwgen.progress.Step`).

    Raises
    ------
    ToolError
        If g++ fails.
    OSError
        If the cache can't be written.
    """
    sources = {
        path.name: path.read_text() for path in sorted((folder / "obj").iterdir()) if path.suffix in (".cpp", ".h")
    }
    sources |= {name: (folder / name).read_text() for name in others}
    parted = _joined(_parted(sources), others)
    for name, text in parted.items():
        (folder / name).write_text(text)
    units = [name for name in parted if name.endswith(".cpp")]
    units.sort(key=lambda name: -len(parted[name]))  # the longest first, so that they end together
    return _together([partial(_object, tools, runtime, folder, parted, name) for name in units], what)


def _joined(sources: Mapping[str, str], others: Sequence[str]) -> dict[str, str]:
    """Return the sources with Verilator's ``.cpp`` files joined into one, if they have at most `SMALL` bytes together.

    Most of the time for small files is the start of the compiler.
    """
    units = [name for name in sources if name.endswith(".cpp") and name not in others]
    if sum(len(sources[name]) for name in units) > SMALL:
        return dict(sources)
    rest = {name: text for name, text in sources.items() if name not in units}
    return {**rest, _ALL_UNITS: "\n".join(sources[name] for name in units)}


def _object(tools: Tools, runtime: Path, folder: Path, sources: Mapping[str, str], name: str) -> Path:
    """Compile the C++ file ``name``, unless the cache has its object file, and return the object file's path."""
    speed = "slow" if "__Slow" in name else "fast"
    used = {file_name: sources[file_name] for file_name in _included(sources, name)}
    key = digest.of(tools.key, _speed(speed), used)
    file = f"{name.removesuffix('.cpp')}.o"
    if (entry := cache.find("objects", key)) is not None:
        return entry / _OBJECT
    prelude = runtime / _PRELUDE.format(speed)
    _call([tools.compiler, *_speed(speed), *tools.flags, "-include", str(prelude), "-c", name, "-o", file], folder)
    with processes.folder(dir=folder) as copy:
        shutil.copyfile(folder / file, copy / _OBJECT)  # the design links its own file: a cache entry can be dropped
        cache.keep("objects", key, [copy / _OBJECT])
    return folder / file


_OBJECT = "object.o"


def _included(sources: Mapping[str, str], name: str) -> list[str]:
    """Return the names of a file and of the design's headers that it includes, directly or through headers, sorted."""
    included, todo = [], [name]
    while todo:
        file_name = todo.pop()
        if file_name in sources and file_name not in included:
            included.append(file_name)
            todo += re.findall(r'^#include "([^"]+)"', sources[file_name], re.MULTILINE)
    return sorted(included)


def link(tools: Tools, runtime: Path, files: Iterable[Path], program: Path) -> None:
    """Link object files and Verilator's runtime into a program.

    Raises
    ------
    ToolError
        If g++ fails.
    """
    library = sorted(runtime.glob("*.o"))
    command = [tools.compiler, *map(str, (*files, *library)), "-o", program.name, "-pthread", *_LIBRARIES[tools.waves]]
    _call(command, program.parent)


# Separation of the components

_SYMS = "Vdesign__Syms.h"
_ALL = re.compile(r'^#include "Vdesign__(?:pch|Syms)\.h"$', re.MULTILINE)
_SYMS_SOURCE = "Vdesign__Syms__Slow.cpp"
_INSTANCE = re.compile(r"^    (Vdesign_\w+) +(\w+);$", re.MULTILINE)
_NAME = "const char* name() const { return TOP.vlNamep; }"
_TOP = ", TOP{this, namep}\n"


def _parted(sources: Mapping[str, str]) -> dict[str, str]:
    """Return Verilator's files by name, changed so that each one includes only the headers that it needs.

    The files are returned unchanged if they don't have the form that this module knows.
    """
    syms, made = sources.get(_SYMS, ""), sources.get(_SYMS_SOURCE, "")
    instances = {name: kind for kind, name in _INSTANCE.findall(syms)}
    headers = {kind: f"{kind}.h" for kind in {*instances.values(), "Vdesign"}}
    known = _NAME in syms and made.count(_TOP) == 1 and "TOP" in instances and set(headers.values()) <= set(sources)
    if not known:
        return dict(sources)
    parted = {}
    for name, text in sources.items():
        if name == _SYMS:
            text = _apart(text, instances)
        elif name == _SYMS_SOURCE:
            text = _constructed(text, instances)
        if name.endswith(".cpp"):
            head, *rest = _ALL.split(text)
            text = head + _needed(text, instances, headers) + "".join(rest) if rest else text
        parted[name] = text
    return parted


def _apart(text: str, instances: Mapping[str, str]) -> str:
    """Change the header of Verilator's class that holds all components: references replace the members."""
    text = _INSTANCE.sub(r"    \1& \2;", text.replace(_NAME, "const char* name() const;"))
    for kind in set(instances.values()):
        text = text.replace(f'#include "{kind}.h"\n', f"class {kind};\n")
    return text


def _constructed(text: str, instances: Mapping[str, str]) -> str:
    """Change the source of Verilator's class that holds all components: its constructor allocates each one."""
    made = [f", TOP(*new {instances['TOP']}{{this, namep}})"]
    made += [f", {name}(*new {kind})" for name, kind in instances.items() if name != "TOP"]
    text = text.replace(_TOP, "\n    ".join(made) + "\n")
    return text + "\nconst char* Vdesign__Syms::name() const { return TOP.vlNamep; }\n"


def _needed(text: str, instances: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return, as one text, the ``#include`` lines for the classes and components that a C++ file names."""
    words = set(re.findall(r"\bVdesign\w*", text))
    kinds = {kind for kind in headers if kind in words}
    kinds |= {instances[name] for name in re.findall(r"\b(?:vlSymsp->)?(TOP\w*)", text) if name in instances}
    lines = [f'#include "{headers[kind]}"' for kind in sorted(kinds)]
    if "Vdesign__Syms" in words:
        lines.append(f'#include "{_SYMS}"')
    return "\n".join(lines)


# Programs


def _together(runs: Sequence[Callable[[], T]], what: str) -> list[T]:
    """Call all functions, as many at once as there are processors, and return their results in order."""
    with work.pool(programs=True) as pool:
        return work.run(pool, _called, runs, what=what, unit="file")


def _called(run: Callable[[], T]) -> T:
    return run()


def _call(command: list[str], folder: Path) -> None:
    process = processes.call(command, folder)
    if process.returncode:
        raise ToolError(f"g++ failed with status {process.returncode}: {reason(process.stderr + process.stdout)}")


def reason(output: str) -> str:
    """Return the line of a compiler's output that most likely gives the reason of a failure, at most 300 characters."""
    return " ".join(next(_reasons(output.splitlines()))[:300].split())


def _reasons(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines of a compiler's output as possible reasons of a failure, the likeliest first."""
    for text in (os.strerror(errno.ENOSPC), "rror"):
        yield from (line for line in lines if text in line)
    yield from lines
    yield "no message"
