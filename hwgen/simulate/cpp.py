"""Compilation of Verilator's C++ with g++, several files at once. Objects are cached under a digest of their sources.

A component's file needs the class of this component, and of the other classes only those that it names. Verilator lets
each file include all classes, and makes all components members of one C++ object. Then one more register in a component
moves all later members. Here a file includes only the classes that it names, and the object holds references to
components that are allocated separately. A component that did not change is therefore not compiled again.
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

#: Flags of g++ for a design. -O2 and -O3 take a third longer to compile, and the simulation is no faster (3,500
#: multipliers, g++ 12).
FAST = ("-O1", "-march=native")
#: Flags of g++ for Verilator's runtime library, which does no work during simulated cycles.
RUNTIME = ("-O0",)
#: C++ pragma that turns off optimisation, for functions that run only once.
_ONCE = '#pragma GCC optimize ("O0")\n'
#: Maximum size, in bytes, of a C++ file that several of one component's files are joined into.
MAX_UNIT_BYTES = 1_500_000
#: Name, without its ending, of the joined file that holds the top module, the driver, what components share, and the
#: smallest components, up to `SMALL` bytes in all: Verilator's headers cost half a second per file.
_DESIGN = "design"
SMALL = 700_000
#: Minimum number of C++ files that makes a precompiled header worth its own compilation time.
MIN_PRELUDE_FILES = 8
_PRELUDE = "prelude.h"
_LIBRARY = ("verilated", "verilated_threads")
_OF_WAVES = {0: (), 1: ("verilated_vcd_c",), 2: ("verilated_fst_c",)}
_LIBRARIES = {0: (), 1: (), 2: ("-llz4", "-lz")}


@dataclass(frozen=True)
class Tools:
    """Tools that compile a simulator: g++, Verilator's folder, options.

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
        """Tuple of options of g++ for every file: language standard, include folders and macros."""
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
        """Digest (text) of compiler, flags and versions, which object files depend on besides their source."""
        return digest.of(self.compiler, self.flags, FAST, RUNTIME, self.versions)


def prepare(tools: Tools) -> Path:
    """Return the folder with the objects of Verilator's runtime; compile them if the cache lacks them.

    Raises
    ------
    ToolError
        If g++ fails.
    OSError
        If the cache can't be written.
    """
    return _shared(tools.key, partial(_compile_runtime, tools))


def _shared(key: str, make: Callable[[Path], list[Path]]) -> Path:
    """Return the folder of a cache entry shared by all simulators; ``make`` writes its files if missing."""
    if (entry := cache.find("runtimes", key, sums=False)) is not None:
        return entry
    with cache.locked("runtimes", key):
        if (entry := cache.find("runtimes", key, sums=False)) is not None:
            return entry
        with processes.workplace(cache.folder() / "runtimes", remedy="set HWGEN_CACHE to a folder with room") as folder:
            return cache.keep("runtimes", key, make(folder))


def _compile_runtime(tools: Tools, folder: Path) -> list[Path]:
    """Compile Verilator's runtime as a single file, for speed; return a list of the paths of the files made."""
    names = (*_LIBRARY, *_OF_WAVES[tools.waves])
    lines = [f'#include "{tools.root / "include" / name}.cpp"\n' for name in names]
    (folder / "runtime.cpp").write_text("".join(lines))
    command = [tools.compiler, *RUNTIME, *tools.flags, "-c", "runtime.cpp", "-o", "runtime.o"]
    _run_in_parallel([partial(_call, command, folder)], "compiling what all simulators share")
    return [folder / "runtime.o"]


def _prelude_options(tools: Tools, files: int) -> list[str]:
    """Return a list of g++ options that include Verilator's precompiled header; empty if too few files gain from it.

    The header is compiled if the cache lacks it and there are many files; there are no options for a few.
    """
    key = digest.of(tools.key, _PRELUDE)
    if files < MIN_PRELUDE_FILES and cache.find("runtimes", key, sums=False) is None:
        return []
    return ["-include", str(_shared(key, partial(_compile_prelude, tools)) / _PRELUDE)]


def _compile_prelude(tools: Tools, folder: Path) -> list[Path]:
    """Precompile Verilator's header, and return a list of the paths of the header and of its compiled form."""
    header = folder / _PRELUDE
    header.write_text('#include "verilated.h"\n')
    compiled = f"{_PRELUDE}.gch"
    _call([tools.compiler, *FAST, *tools.flags, "-x", "c++-header", _PRELUDE, "-o", compiled], folder)
    return [header, folder / compiled]


def objects(tools: Tools, folder: Path, others: Sequence[str], what: str) -> list[Path]:
    """Return a list of the object files (paths) of a design's C++ files, compiled unless in the cache.

    Parameters
    ----------
    tools : Tools
        Compiler and options.
    folder : Path
        Folder for the objects. Its subfolder ``obj`` has Verilator's C++.
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
    parted = _join_sources(_minimise_includes(sources), others)
    for name, text in parted.items():
        (folder / name).write_text(text)
    units = [name for name in parted if name.endswith(".cpp")]
    units.sort(key=lambda name: -len(parted[name]))  # the longest first, so that they end together
    header = _prelude_options(tools, len(units))
    return _run_in_parallel([partial(_compile_object, tools, header, folder, parted, name) for name in units], what)


def _join_sources(sources: Mapping[str, str], others: Sequence[str]) -> dict[str, str]:
    """Return a dict of the sources with each component's ``.cpp`` files joined, as headers take most of their time.

    The smallest components are joined with the top module. A joined file has at most `MAX_UNIT_BYTES` bytes, unless one
    of its files has more. It begins with the code that runs in every cycle.
    """
    joined = {name: text for name, text in sources.items() if not name.endswith(".cpp")}
    names = [name for name in sources if name not in joined]
    texts = {name: f'#line 1 "{name}"\n{sources[name]}\n' for name in names}  # messages name the file
    for component, files in _components({name: sources[name] for name in names}, others).items():
        for index, part in enumerate(_by_size(sorted(files, key=_runs_once), sources)):
            fast, once = ["".join(texts[name] for name in part if _runs_once(name) is slow) for slow in (False, True)]
            joined[f"{component}__unit_{index}.cpp"] = fast + (once and _ONCE + once)
    return joined


def _components(files: Mapping[str, str], others: Sequence[str]) -> dict[str, list[str]]:
    """Return a dict by Verilog component of lists of its C++ files' names; the smallest components join `_DESIGN`."""
    components: dict[str, list[str]] = {_DESIGN: []}
    for name in files:
        components.setdefault(_component(name, others), []).append(name)
    sizes = {component: sum(len(files[name]) for name in names) for component, names in components.items()}
    room = SMALL - sizes.pop(_DESIGN)
    for component, size in sorted(sizes.items(), key=lambda item: item[::-1]):
        room -= size
        if room >= 0:
            components[_DESIGN] += components.pop(component)
    return components


def _component(name: str, others: Sequence[str]) -> str:
    """Return the name of the class that a C++ file belongs to, or `_DESIGN` for the top module and the driver."""
    component = _FILE.sub("", name)
    return _DESIGN if name in others or component == "Vdesign" or component.startswith("Vdesign__") else component


#: Pattern of the ending of a file name that Verilator writes, after the name of the file's class.
_FILE = re.compile(r"(__DepSet_h[0-9a-f]+)?(__\d+)?(__Slow)?\.cpp$")


def _runs_once(name: str) -> bool:
    """Return whether a C++ file of Verilator has only code that runs once."""
    return name.endswith("__Slow.cpp")


def _by_size(files: Sequence[str], sources: Mapping[str, str]) -> list[list[str]]:
    """Return C++ files, in order, divided into lists of at most `MAX_UNIT_BYTES` bytes each."""
    parts: list[list[str]] = []
    size = MAX_UNIT_BYTES
    for name in files:
        size += len(sources[name])
        if size > MAX_UNIT_BYTES:
            parts.append([])
            size = len(sources[name])
        parts[-1].append(name)
    return parts


def _compile_object(tools: Tools, header: Sequence[str], folder: Path, sources: Mapping[str, str], name: str) -> Path:
    """Compile the C++ file ``name``, unless the cache has its object file, and return the object file's path."""
    used = {file_name: sources[file_name] for file_name in _included(sources, name)}
    key = digest.of(tools.key, used)
    file = f"{name.removesuffix('.cpp')}.o"
    if (entry := cache.find("objects", key)) is not None:
        return entry / _OBJECT
    _call([tools.compiler, *FAST, *tools.flags, *header, "-c", name, "-o", file], folder)
    with processes.folder(dir=folder) as copy:
        shutil.copyfile(folder / file, copy / _OBJECT)  # the design links its own file: a cache entry can be dropped
        cache.keep("objects", key, [copy / _OBJECT])
    return folder / file


_OBJECT = "object.o"


def _included(sources: Mapping[str, str], name: str) -> list[str]:
    """Return a sorted list of a file and the design's headers that it includes, directly or through headers."""
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


def _minimise_includes(sources: Mapping[str, str]) -> dict[str, str]:
    """Return a dictionary of Verilator's sources by file name, changed to include only the headers that each needs.

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
            text = _replace_members(text, instances)
        elif name == _SYMS_SOURCE:
            text = _allocate_members(text, instances)
        if name.endswith(".cpp"):
            head, *rest = _ALL.split(text)
            text = head + _include_lines(text, instances, headers) + "".join(rest) if rest else text
        parted[name] = text
    return parted


def _replace_members(text: str, instances: Mapping[str, str]) -> str:
    """Return the header, as text, of Verilator's class of all components, with references as members."""
    text = _INSTANCE.sub(r"    \1& \2;", text.replace(_NAME, "const char* name() const;"))
    for kind in set(instances.values()):
        text = text.replace(f'#include "{kind}.h"\n', f"class {kind};\n")
    return text


def _allocate_members(text: str, instances: Mapping[str, str]) -> str:
    """Return the source, as text, of Verilator's class of all components, which allocates each one."""
    made = [f", TOP(*new {instances['TOP']}{{this, namep}})"]
    made += [f", {name}(*new {kind})" for name, kind in instances.items() if name != "TOP"]
    text = text.replace(_TOP, "\n    ".join(made) + "\n")
    return text + "\nconst char* Vdesign__Syms::name() const { return TOP.vlNamep; }\n"


def _include_lines(text: str, instances: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return, as one text, the ``#include`` lines for the classes and components that a C++ file names."""
    words = set(re.findall(r"\bVdesign\w*", text))
    kinds = {kind for kind in headers if kind in words}
    kinds |= {instances[name] for name in re.findall(r"\b(?:vlSymsp->)?(TOP\w*)", text) if name in instances}
    lines = [f'#include "{headers[kind]}"' for kind in sorted(kinds)]
    if "Vdesign__Syms" in words:
        lines.append(f'#include "{_SYMS}"')
    return "\n".join(lines)


# Programs


def _run_in_parallel(runs: Sequence[Callable[[], T]], what: str) -> list[T]:
    """Return a list of results, in order, of functions that run programs, one per processor at a time."""
    with work.pool(programs=True) as pool:
        return work.run(pool, _called, runs, what=what, unit="file")


def _called(run: Callable[[], T]) -> T:
    """Return a function's result, called without arguments; picklable for workers."""
    return run()


def _call(command: list[str], folder: Path) -> None:
    """Run g++ in a folder, and raise an error with its most telling line if it fails."""
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
