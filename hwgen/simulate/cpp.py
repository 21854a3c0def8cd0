"""C++ that Verilator wrote, compiled file by file, several at once; objects are kept by what they are compiled of.

A file of a component needs that component's class, and of others only those that it names. Verilator lets each file
include them all, and puts all components side by side into one object, so that a register more in one moves all the
others. Here a file includes the classes that it names, and the object refers to components that lie apart: then a
component that did not change is not compiled again.
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

#: Optimisation of what runs in every cycle, and of what runs once. -O2 and -O3 compile for a third longer, and the
#: simulation is no faster (3,500 multipliers, g++ 12).
FAST, SLOW = ("-O1", "-march=native"), ("-O0",)
SMALL = 200_000
"""Bytes of C++ up to which a design is compiled as one file."""
_ALL_UNITS = "Vdesign__ALL.cpp"
_PRELUDE = "prelude_{}.h"
_LIBRARY = ("verilated", "verilated_threads")
_OF_WAVES = {0: (), 1: ("verilated_vcd_c",), 2: ("verilated_fst_c",)}
_LIBRARIES = {0: (), 1: (), 2: ("-llz4", "-lz")}


@dataclass(frozen=True)
class Tools:
    """What files are compiled with.

    Parameters
    ----------
    compiler : str
        Path of g++.
    root : Path
        Verilator's folder.
    waves : int
        0 none, 1 VCD, 2 FST.
    versions : tuple
        Whatever else the objects depend on: versions of the tools, the processor.
    """

    compiler: str
    root: Path
    waves: int
    versions: tuple[object, ...]

    @property
    def flags(self) -> tuple[str, ...]:
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
        """Of all that is the same for every design."""
        return digest.of(self.compiler, self.flags, FAST, SLOW, self.versions)


def prepare(tools: Tools) -> Path:
    """The folder of Verilator's own objects and of its header, compiled before or now.

    Raises
    ------
    ToolError
        If g++ fails.
    OSError
        If the cache can't be written.
    """
    if (place := cache.find("runtimes", tools.key, sums=False)) is not None:
        return place
    with cache.locked("runtimes", tools.key):
        if (place := cache.find("runtimes", tools.key, sums=False)) is not None:
            return place
        with processes.workplace(cache.folder() / "runtimes", remedy="set HWGEN_CACHE to a folder with room") as folder:
            runs = [partial(_library, tools, name, folder) for name in (*_LIBRARY, *_OF_WAVES[tools.waves])]
            runs += [partial(_prelude, tools, speed, folder) for speed in ("fast", "slow")]
            _together(runs, "compiling what all simulators share")
            return cache.keep("runtimes", tools.key, sorted(folder.iterdir()))


def _library(tools: Tools, name: str, folder: Path) -> None:
    source = tools.root / "include" / f"{name}.cpp"
    _call([tools.compiler, *FAST[:1], *tools.flags, "-c", str(source), "-o", f"{name}.o"], folder)


def _prelude(tools: Tools, speed: str, folder: Path) -> None:
    """Verilator's header, precompiled, as files of one speed include it."""
    header = folder / _PRELUDE.format(speed)
    header.write_text('#include "verilated.h"\n')
    _call(
        [tools.compiler, *_speed(speed), *tools.flags, "-x", "c++-header", header.name, "-o", f"{header.name}.gch"],
        folder,
    )


def _speed(speed: str) -> tuple[str, ...]:
    return SLOW if speed == "slow" else FAST


def objects(tools: Tools, runtime: Path, folder: Path, others: Sequence[str], what: str) -> list[Path]:
    """The object files of a design.

    Parameters
    ----------
    tools : Tools
    runtime : Path
        What `prepare` gave.
    folder : Path
        Has the C++ in a folder ``obj``, and is where objects are made.
    others : sequence of str
        More files beside it, one of C++, which include the design's header.
    what : str
        What this is, for those who listen how far it is.

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
    """The files of a small design as one: most of the time that they take is that of starting a compiler."""
    units = [name for name in sources if name.endswith(".cpp") and name not in others]
    if sum(len(sources[name]) for name in units) > SMALL:
        return dict(sources)
    found = {name: text for name, text in sources.items() if name not in units}
    return {**found, _ALL_UNITS: "\n".join(sources[name] for name in units)}


def _object(tools: Tools, runtime: Path, folder: Path, sources: Mapping[str, str], name: str) -> Path:
    """One object, from the cache or compiled now."""
    speed = "slow" if "__Slow" in name else "fast"
    used = {each: sources[each] for each in _included(sources, name)}
    key = digest.of(tools.key, _speed(speed), used)
    file = f"{name.removesuffix('.cpp')}.o"
    if (place := cache.find("objects", key)) is not None:
        return place / _OBJECT
    prelude = runtime / _PRELUDE.format(speed)
    _call([tools.compiler, *_speed(speed), *tools.flags, "-include", str(prelude), "-c", name, "-o", file], folder)
    with processes.folder(dir=folder) as place:
        shutil.copyfile(folder / file, place / _OBJECT)  # the design is linked of its own, whatever becomes of this one
        cache.keep("objects", key, [place / _OBJECT])
    return folder / file


_OBJECT = "object.o"


def _included(sources: Mapping[str, str], name: str) -> list[str]:
    """A file and the design's headers that it includes, and they do."""
    found, todo = [], [name]
    while todo:
        each = todo.pop()
        if each in sources and each not in found:
            found.append(each)
            todo += re.findall(r'^#include "([^"]+)"', sources[each], re.MULTILINE)
    return sorted(found)


def link(tools: Tools, runtime: Path, files: Iterable[Path], program: Path) -> None:
    """Make a program of objects.

    Raises
    ------
    ToolError
        If g++ fails.
    """
    library = sorted(runtime.glob("*.o"))
    command = [tools.compiler, *map(str, (*files, *library)), "-o", program.name, "-pthread", *_LIBRARIES[tools.waves]]
    _call(command, program.parent)


# Parting the components

_SYMS = "Vdesign__Syms.h"
_ALL = re.compile(r'^#include "Vdesign__(?:pch|Syms)\.h"$', re.MULTILINE)
_SYMS_SOURCE = "Vdesign__Syms__Slow.cpp"
_INSTANCE = re.compile(r"^    (Vdesign_\w+) +(\w+);$", re.MULTILINE)
_NAME = "const char* name() const { return TOP.vlNamep; }"
_TOP = ", TOP{this, namep}\n"


def _parted(sources: Mapping[str, str]) -> dict[str, str]:
    """The files, each with the headers that it needs; as they are, if Verilator wrote them otherwise."""
    syms, made = sources.get(_SYMS, ""), sources.get(_SYMS_SOURCE, "")
    instances = {name: kind for kind, name in _INSTANCE.findall(syms)}
    headers = {kind: f"{kind}.h" for kind in {*instances.values(), "Vdesign"}}
    known = _NAME in syms and made.count(_TOP) == 1 and "TOP" in instances and set(headers.values()) <= set(sources)
    if not known:
        return dict(sources)
    found = {}
    for name, text in sources.items():
        if name == _SYMS:
            text = _apart(text, instances)
        elif name == _SYMS_SOURCE:
            text = _constructed(text, instances)
        if name.endswith(".cpp"):
            head, *rest = _ALL.split(text)
            text = head + _needed(text, instances, headers) + "".join(rest) if rest else text
        found[name] = text
    return found


def _apart(text: str, instances: Mapping[str, str]) -> str:
    """The object of all components, with references to them."""
    text = _INSTANCE.sub(r"    \1& \2;", text.replace(_NAME, "const char* name() const;"))
    for kind in set(instances.values()):
        text = text.replace(f'#include "{kind}.h"\n', f"class {kind};\n")
    return text


def _constructed(text: str, instances: Mapping[str, str]) -> str:
    """Its constructor, which makes them."""
    made = [f", TOP(*new {instances['TOP']}{{this, namep}})"]
    made += [f", {name}(*new {kind})" for name, kind in instances.items() if name != "TOP"]
    text = text.replace(_TOP, "\n    ".join(made) + "\n")
    return text + "\nconst char* Vdesign__Syms::name() const { return TOP.vlNamep; }\n"


def _needed(text: str, instances: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Lines that include what a file names."""
    words = set(re.findall(r"\bVdesign\w*", text))
    kinds = {kind for kind in headers if kind in words}
    kinds |= {instances[name] for name in re.findall(r"\b(?:vlSymsp->)?(TOP\w*)", text) if name in instances}
    lines = [f'#include "{headers[kind]}"' for kind in sorted(kinds)]
    if "Vdesign__Syms" in words:
        lines.append(f'#include "{_SYMS}"')
    return "\n".join(lines)


# Programs


def _together(runs: Sequence[Callable[[], T]], what: str) -> list[T]:
    """All of them, as many at once as there are processors; what they gave, in order."""
    with work.pool(programs=True) as pool:
        return work.run(pool, _called, runs, what=what, unit="file")


def _called(run: Callable[[], T]) -> T:
    return run()


def _call(command: list[str], folder: Path) -> None:
    process = processes.call(command, folder)
    if process.returncode:
        raise ToolError(f"g++ failed with status {process.returncode}: {reason(process.stderr + process.stdout)}")


def reason(said: str) -> str:
    """The line of a compiler's words that says why it failed."""
    return " ".join(next(_reasons(said.splitlines()))[:300].split())


def _reasons(lines: Sequence[str]) -> Iterator[str]:
    """The likeliest first."""
    for text in (os.strerror(errno.ENOSPC), "rror"):
        yield from (line for line in lines if text in line)
    yield from lines
    yield "no message"
