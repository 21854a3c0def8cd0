"""Files around an engine: its bus wrapper, its drivers, and the description of its registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwgen.emit import wrapper
from hwgen.emit.bus_package import Package
from hwgen.emit.c_driver import filled
from hwgen.gateware.bus import registers as description
from hwgen.gateware.bus.engine_registers import ERRORS
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Access, accesses, digest, field_offsets, job_bytes
from hwgen.gateware.engine.port import Error
from hwgen.schedule.engine import MemoryTiming

__all__ = ["EnginePackage", "shell_of", "to_json"]


def shell_of(engine: EngineConfig, memory: MemoryTiming, contents: Mapping[str, bytes]) -> EngineShellConfig:
    """Return the configuration of the engine's bus wrapper.

    Parameters
    ----------
    engine : EngineConfig
        Configuration of the engine.
    memory : MemoryTiming
        Timing of the off-chip memory, with its cycles per beat.
    contents : mapping of str to bytes
        Verilog and memory files of the engine, from which the build hash is computed.
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
        return to_json(self.shell, self.module)

    def c_driver(self) -> dict[str, bytes]:
        prefix = self.top.upper()
        names = {"engine_axi": self.module, "engine_": f"{self.top}_", "ENGINE_": f"{prefix}_"}
        words = {error: "OK" if error is Error.NONE else error.name for error in ERRORS}
        errors = [f"    {prefix}_{words[error]} = {error.value}, /* {about} */" for error, about in ERRORS.items()]
        return {
            f"{self.top}_driver.h": filled("engine_driver.h", names, "errors", errors),
            f"{self.top}_driver.c": filled("engine_driver.c", names, "accesses", _c_accesses(self.shell.engine)),
        }


def _fields_of(access: Access) -> dict[str, str | None]:
    """Return the job field's name for each quantity of a memory access (address, words, rows ..), or ``None``.

    The keys are in the order of the drivers.
    """
    names = ("address", "words", "rows", "row_stride", "blocks", "block_stride")
    names += ("repeats", "teams", "team_stride", "top", "advance", "height", "kept")
    return {name: getattr(access, name) for name in names}


def _c_accesses(engine: EngineConfig) -> list[str]:
    """Return the memory accesses of an engine's job as tables for the C driver.

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
    """Return the memory accesses of an engine's job for ``registers.json``, by offset and width of their fields.

    Offset and width are in bits.
    """
    offsets = field_offsets(engine.variant)
    return [
        {
            "word_bytes": access.word_bytes,
            "writes": access.writes,
            **{key: offsets[name] for key, name in _fields_of(access).items() if name is not None},
        }
        for access in accesses(engine)
    ]


def to_json(shell: EngineShellConfig, name: str) -> dict[str, Any]:
    """Return the contents of ``registers.json`` for an engine whose wrapper is the module ``name``."""
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
