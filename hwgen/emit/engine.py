"""Writer and reader of the folder of a programmable engine: Verilog, wrapper, drivers, ``engine.json``, programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwgen.boards import Board
from hwgen.emit import texts, wrapper
from hwgen.emit.bus_package import Package
from hwgen.emit.drivers import fill_template, python_driver
from hwgen.emit.folder import LINT, check_folder, replace_folder, waivers
from hwgen.errors import InputError
from hwgen.fields import Entries, content_of, shown, written
from hwgen.gateware.bus import registers as description
from hwgen.gateware.bus.engine_registers import ERRORS
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.job import Access, accesses, digest, field_offsets, job_bytes
from hwgen.gateware.engine.port import Error
from hwgen.gateware.names import file_name
from hwgen.obligations import obligation
from hwgen.program.file import MAGIC, Program
from hwgen.prove import catalogue
from hwgen.schedule.engine import MemoryTiming
from hwgen.verilog.emitted import ENGINE, engine_files

#: Name of the JSON file that describes an engine.
NAME = "engine.json"
PROGRAM_HEAD = MAGIC
"""First bytes of an engine program file, which identify the file."""
_VERSION = 1
_LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class EngineVerilog:
    """Verilog files (bytes by name) of an engine, with the configuration, memory timing and board they were made for.

    Parameters
    ----------
    engine : EngineConfig
        Configuration of the engine.
    memory : MemoryTiming
        Timing of the off-chip memory.
    board : Board
        Board of the engine.
    verilog : mapping of str to bytes
        Contents of ``engine.v`` and of its memory files, by file name.
    """

    engine: EngineConfig
    memory: MemoryTiming
    board: Board
    verilog: Mapping[str, bytes]

    @classmethod
    def of(cls, engine: EngineConfig, memory: MemoryTiming, board: Board) -> EngineVerilog:
        """Return an engine's generated Verilog (`EngineVerilog`), with its configuration, memory timing and board.

        Raises
        ------
        ToolError
            If one of the engine's operators can't be written as Verilog.
        """
        return cls(engine=engine, memory=memory, board=board, verilog=engine_files(engine, board.family))

    @property
    def description_json(self) -> bytes:
        """Contents of ``engine.json`` as bytes: the engine's sizes, memory timing, board and files."""
        document = {
            "written_by": "hwgen",
            "version": _VERSION,
            "digest": digest(self.engine),
            "engine": written(self.engine),
            "memory": written(self.memory),
            "board": written(self.board, leave_out=["limits"]),
            "verilog": {name: _sha(content) for name, content in sorted(self.verilog.items())},
        }
        return (json.dumps(document, indent=1) + "\n").encode()


def shell_of(engine: EngineConfig, memory: MemoryTiming, contents: Mapping[str, bytes]) -> EngineShellConfig:
    """Return the `EngineShellConfig` of an engine's bus wrapper, which has an AXI4 master and AXI4-Lite registers.

    Parameters
    ----------
    engine : EngineConfig
        Configuration of the engine.
    memory : MemoryTiming
        Timing of the off-chip memory, with its cycles per beat.
    contents : mapping of str to bytes
        Verilog and memory files of the engine, for the build hash.
    """
    return EngineShellConfig(
        engine=engine, pace=memory.pace, pace_beats=memory.pace_beats, build_hash=wrapper.build_hash(contents)
    )


@dataclass(frozen=True, kw_only=True)
class EnginePackage(Package):
    """Writer of an engine's bus wrapper, with an AXI4 master to memory, and of the files that depend on it."""

    shell: EngineShellConfig

    @property
    def buses(self) -> list[str]:
        return ["An AXI4 master to memory, registers on AXI4-Lite (listed in registers.json), and an interrupt."]

    def to_json(self) -> dict[str, Any]:
        return registers_json(self.shell, self.module)

    def drivers(self) -> dict[str, bytes]:
        prefix = self.top.upper()
        names = {"engine_axi": self.module, "engine_": f"{self.top}_", "ENGINE_": f"{prefix}_"}
        words = {error: "OK" if error is Error.NONE else error.name for error in ERRORS}
        errors = [f"    {prefix}_{words[error]} = {error.value}, /* {about} */" for error, about in ERRORS.items()]
        return {
            f"{self.top}_driver.py": python_driver("engine_driver.py"),
            f"{self.top}_driver.h": fill_template("engine_driver.h", names, "errors", errors),
            f"{self.top}_driver.c": fill_template("engine_driver.c", names, "accesses", _c_accesses(self.shell.engine)),
        }


def _fields_of(access: Access) -> dict[str, str | None]:
    """Return a dict from each quantity of a memory access (``address`` ..) to its job field; ``None`` if it lacks one.

    The keys are in the order of the drivers.
    """
    names = ("address", "words", "rows", "row_stride", "blocks", "block_stride")
    names += ("repeats", "teams", "team_stride", "top", "advance", "height", "kept")
    return {name: getattr(access, name) for name in names}


def _c_accesses(engine: EngineConfig) -> list[str]:
    """Return a list of lines of C tables, for the driver, that describe the memory accesses of an engine's job.

    Each field has an offset and a width, in bits. A field that an access lacks has a width of 0 bits.
    """
    offsets = field_offsets(engine.variant)
    rows = []
    for access in accesses(engine):
        fields = [offsets.get(name or "", (0, 0)) for name in _fields_of(access).values()]
        entries = ", ".join(f"{{{offset}, {width}}}" for offset, width in fields)
        rows.append(f"    {{{access.word_bytes}, {int(access.writes)}, {entries}}}, /* {access.address} */")
    offset, width = offsets["load.end"]
    return [
        f"enum {{ JOB_BYTES = {job_bytes(engine)} }};",
        f"static const job_field last_job = {{{offset}, {width}}};",
        "static const job_access accesses[] = {",
        *rows,
        "};",
    ]


def _json_accesses(engine: EngineConfig) -> list[dict[str, Any]]:
    """Return a list of dicts by quantity, an engine job's memory accesses in ``registers.json``: (bit offset, bits)."""
    offsets = field_offsets(engine.variant)
    return [
        {
            "word_bytes": access.word_bytes,
            "writes": access.writes,
            **{key: offsets[name] for key, name in _fields_of(access).items() if name is not None},
        }
        for access in accesses(engine)
    ]


def registers_json(shell: EngineShellConfig, name: str) -> dict[str, Any]:
    """Return a dictionary, the contents of ``registers.json``, for an engine with wrapper module ``name``."""
    return {
        "module": name,
        "build_hash": f"0x{shell.build_hash:016x}",
        "bytes": description.SPACE_BYTES,
        "engine": {
            "digest": digest(shell.engine),
            "job_bytes": job_bytes(shell.engine),
            "end_bit": field_offsets(shell.engine.variant)["load.end"][0],
            "accesses": _json_accesses(shell.engine),
            "errors": {error.value: about for error, about in ERRORS.items()},
        },
        "registers": description.to_json(shell.registers),
    }


def program_name(network: str) -> str:
    """Return the file name of a network's program for the engine, such as ``NAME.program``."""
    return f"{file_name(network)}.program"


def build(
    circuit: EngineVerilog,
    program: Program,
    plan_json: str,
    directory: str | Path,
    report: str,
    *,
    others: Mapping[str, bytes] | None = None,
    say: Callable[[str], None] = lambda line: None,
    force: bool = False,
) -> Path:
    """Write the folder of an engine and a network's program for it, all files or none; return its path.

    The folder then has ``engine.v`` with its memory files, ``engine.json``, ``NAME.program``, ``engine_axi.v`` with
    ``registers.json`` and its versions for C and Python, ``engine_driver.py``, ``engine_driver.c`` with its header,
    ``component.xml``, ``package_ip.tcl``, for some boards ``project.tcl``, ``Makefile``, ``lint.vlt``, ``plan.json``,
    ``report.md`` and ``manifest.json``. Existing files are treated as in `hwgen.emit.folder.build`.

    Parameters
    ----------
    circuit : EngineVerilog
        Engine to write.
    program : Program
        Program to write.
    plan_json : str
        Contents of ``plan.json``.
    directory : str or Path
        Output folder, created if it is missing.
    report : str
        Summary of the plan for ``report.md``, in Markdown.
    others : mapping of str to bytes, optional
        Contents of more files, by name.
    say : callable, optional
        Receiver of a line of text for each file of an earlier build that is kept.
    force : bool
        Whether files that hwgen did not write, or that were changed since, are overwritten.

    Raises
    ------
    InputError
        If the folder can't be written, or files in the folder would be lost.
    ToolError
        If one of the wrapper's operators can't be written as Verilog.
    """
    check_folder(directory)
    directory = Path(directory)
    name = program_name(program.name)
    shell = shell_of(circuit.engine, circuit.memory, circuit.verilog)
    package = EnginePackage(shell=shell, top=ENGINE)
    around = package.files(circuit.board)
    contents = {
        **circuit.verilog,
        **around,
        **package.scripts(circuit.board, [*circuit.verilog, *around, name]),
        NAME: circuit.description_json,
        name: bytes(program),
        "Makefile": texts.makefile_of_lint(ENGINE).encode(),
        LINT: waivers(),
        "plan.json": plan_json.encode(),
        **(others or {}),
    }
    verilog = circuit.verilog[f"{ENGINE}.v"].decode()
    contents[f"{ENGINE}{obligation.SUFFIX}"] = catalogue.proofs(EngineDesign(engine=circuit.engine), ENGINE, verilog)
    contents |= package.proofs(around[f"{package.module}.v"].decode(), verilog)
    contents["report.md"] = package.report("engine.md", report, contents, program=program, program_file=name)
    replace_folder(contents, directory, say, force=force)
    return directory


def read(directory: str | Path) -> EngineVerilog:
    """Return an engine's Verilog (`EngineVerilog`), configuration and board, read from a folder that `build` wrote.

    Raises
    ------
    InputError
        If the folder has no engine, or the engine's files were changed.
    """
    folder = Path(directory)
    path = folder / NAME
    document = _document(path)
    verilog = document.entries("verilog")
    circuit = EngineVerilog(
        engine=document.entries("engine").exact(EngineConfig),
        memory=document.entries("memory").exact(MemoryTiming),
        board=document.entries("board").exact(Board),
        verilog={name: _read_file(folder, _file_name(verilog, name), verilog.text(name)) for name in verilog.values},
    )
    if (text := document.text("digest")) != digest(circuit.engine):
        raise InputError(
            f"{path}: has been changed: its digest is {text}, but its engine's {digest(circuit.engine)}; build it again"
        )
    if f"{ENGINE}.v" not in circuit.verilog:
        raise InputError(f"{path}: has been changed: it does not list {ENGINE}.v; build it again")
    return circuit


def _document(path: Path) -> Entries:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: is too large to be what hwgen wrote; build it again")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # a name with a zero in it is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path.parent} is not an engine that 'hwgen build --template engine' wrote: {path.name} can't be read: "
            f"{reason}"
        ) from None
    document = Entries.parsed(content, str(path), help="it is not what hwgen wrote: build it again")
    document.text("written_by", of=["hwgen"])
    if document.integer("version") != _VERSION:
        raise InputError(f"{path}: is of another version of hwgen, this one reads {_VERSION}; build it again")
    return document


def _file_name(files: Entries, name: str) -> str:
    """Return a file name from ``engine.json`` unchanged; refuse a name that leads out of the engine's folder."""
    if Path(name).name != name or "\0" in name:
        files.refuse(f"must name files in its folder, not {shown(name)}")
    return name


def _read_file(folder: Path, name: str, digest: str) -> bytes:
    """Return a file of the engine's folder as bytes; refuse it if its SHA-256 digest is not ``digest``."""
    content = content_of(folder / name, "build the engine again")
    if _sha(content) != digest:
        raise InputError(f"{folder / name}: has been changed since it was written; build the engine again")
    return content


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
