"""The section of what Vivado made of a project: timing, and what is used beside the plan's estimate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwgen.errors import InputError

__all__ = ["MEASURED", "StaleError", "document", "line"]

#: What ``project.tcl`` read back, in the folder of the design.
MEASURED = "vivado.json"

_USED = ("lut", "ff", "bram36", "dsp")
_PARTS = {
    "accelerator": "the accelerator",
    "ip": "with its bus wrapper",
    "design": "with DMA, interconnects and resets",
}


class StaleError(InputError):
    """What Vivado measured is of another build than the folder."""


def document(folder: Path) -> dict[str, Any] | None:
    """The section of a folder; ``None`` if no Vivado has run there.

    Raises
    ------
    StaleError
        If the file is of another build than the folder.
    InputError
        If it is not what ``project.tcl`` writes.
    """
    path = folder / MEASURED
    if not path.exists():
        return None
    found, registers, plan = (_read(folder / name) for name in (MEASURED, "registers.json", "plan.json"))
    try:
        if found["build_hash"] != registers["build_hash"]:
            raise StaleError(
                f"{MEASURED} is left out: it is of another build ({found['build_hash']}) than the folder "
                f"({registers['build_hash']}); run project.tcl again"
            )
        # Vivado may have dissolved the accelerator's cell, but no other.
        parts = {name: found[name] for name in _PARTS if name != "accelerator" or found[name] is not None}
        rows = [
            {"name": _PARTS[name], "used": {key: float(used[key]) for key in _USED}} for name, used in parts.items()
        ]
        period = 1000 / float(found["clock_mhz"])
        return {
            "vivado": str(found["vivado"]),
            "board_files": str(found["board_files"]),
            "clock_mhz": float(found["clock_mhz"]),
            "wns_ns": float(found["wns_ns"]),
            "whs_ns": float(found["whs_ns"]),
            "most_mhz": 1000 / (period - float(found["wns_ns"])),
            "rows": rows,
            "estimate": {key: float(plan["resources"][key]) for key in _USED},
        }
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{path} is not what project.tcl writes ({error!r}): run it again, or delete it") from error


def line(found: Mapping[str, Any]) -> str:
    """The section in a line."""
    used, estimate = found["rows"][0], found["estimate"]
    counts = ", ".join(f"{key.upper()} {used['used'][key]:,g} (estimated {estimate[key]:,g})" for key in _USED)
    return (
        f"Vivado {found['vivado']}: WNS {found['wns_ns']:g} ns at {found['clock_mhz']:g} MHz; {used['name']}: {counts}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise InputError(f"{path} can't be read: {reason}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} can't be read: it is no JSON object")
    return found
