"""The files of an engine's bus wrapper: its Verilog, and what software must know of its registers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hwgen.emit import verilog, wrapper
from hwgen.gateware.bus import registers as description
from hwgen.gateware.bus.engine_registers import ERRORS
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.engine_wrapper import EngineWrapper
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job, digest

__all__ = ["files", "report", "shell_of"]


def shell_of(engine: EngineConfig, pace: int, contents: Mapping[str, bytes]) -> EngineShellConfig:
    """The shell of an engine whose Verilog is ``contents``, in front of a memory that has this pace."""
    return EngineShellConfig(engine=engine, pace=pace, build_hash=wrapper.build_hash(contents))


def files(shell: EngineShellConfig, top: str) -> dict[str, bytes]:
    """What lies beside the engine ``top``.

    ``TOP_axi.v``, ``registers.json``, ``TOP_registers.h`` and ``TOP_registers.py``, ``TOP_driver.py``.

    Raises
    ------
    ToolError
        If Verilog can't be written of one of its operators.
    """
    name = wrapper.module(top)
    head = (
        f"Bus wrapper {name}, written by hwgen. Do not edit: it is written anew with {top}.v, which it goes with.\n"
        "An AXI4 master to memory, registers on AXI4-Lite (registers.json says which), an interrupt."
    )
    document = json.dumps(to_json(shell, name), indent=1) + "\n"
    return {
        **verilog.convert(EngineWrapper(shell, top), name, head=head),
        wrapper.REGISTERS: document.encode(),
        f"{top}_registers.h": wrapper.c_header(shell, top).encode(),
        f"{top}_registers.py": wrapper.python_constants(shell, top).encode(),
        f"{top}_driver.py": wrapper.driver(),
    }


def to_json(shell: EngineShellConfig, name: str) -> dict[str, Any]:
    """The contents of ``registers.json``."""
    return {
        "module": name,
        "build_hash": f"0x{shell.build_hash:016x}",
        "bytes": description.SPACE_BYTES,
        "engine": {
            "digest": digest(shell.engine),
            "job_bytes": Job.BYTES,
            "errors": {error.value: about for error, about in ERRORS.items()},
        },
        "registers": description.to_json(shell.registers),
    }


def report(shell: EngineShellConfig, top: str) -> list[str]:
    """The section of a report on the wrapper."""
    used, name = shell.resources, wrapper.module(top)
    return [
        "## Bus wrapper",
        "",
        f"`{name}` in `{name}.v` is `{top}` with an AXI4 master to memory (`m_axi_mem`, {8 * shell.engine.bus_bytes} "
        "bits), registers",
        "on AXI4-Lite (`s_axi_control`) and an interrupt; clock `aclk`, reset `aresetn`. It takes about "
        f"{used.lut:,} LUTs and {used.ff:,}",
        "flip-flops more, and no cycle of a run.",
        "",
        f"Registers, as in `registers.json`, `{top}_registers.h` and `{top}_registers.py`:",
        "",
        *wrapper.table(shell.registers),
        "",
    ]
