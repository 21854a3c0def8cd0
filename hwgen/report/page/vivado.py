"""The section of what Vivado made of a project: timing, and what is used beside the plan's estimate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwgen.errors import InputError
from hwgen.fields import Entries

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
    measured, built = found.text("build_hash"), registers.text("build_hash")
    if measured != built:
        raise StaleError(
            f"{MEASURED} is left out: it is of another build ({measured}) than the folder ({built}); "
            "run project.tcl again"
        )
    # Vivado may have dissolved the accelerator's cell, but no other.
    parts = [name for name in _PARTS if name != "accelerator" or found.values.get(name) is not None]
    clock, slack = found.number("clock_mhz"), found.number("wns_ns")
    if clock <= 0 or (period := 1000 / clock) <= slack:
        found.refuse(f"must have a clock of more than 0 MHz with a period above its slack, not {clock:g}, {slack:g} ns")
    return {
        "vivado": found.text("vivado"),
        "board_files": found.text("board_files"),
        "clock_mhz": clock,
        "wns_ns": slack,
        "whs_ns": found.number("whs_ns"),
        "most_mhz": 1000 / (period - slack),
        "rows": [{"name": _PARTS[name], "used": _counts(found.entries(name))} for name in parts],
        "estimate": _counts(plan.entries("resources")),
    }


def _counts(resources: Entries) -> dict[str, float]:
    """Return how much is used of each resource."""
    return {key: resources.number(key) for key in _USED}


def line(found: Mapping[str, Any]) -> str:
    """The section in a line."""
    used, estimate = found["rows"][0], found["estimate"]
    counts = ", ".join(f"{key.upper()} {used['used'][key]:,g} (estimated {estimate[key]:,g})" for key in _USED)
    return (
        f"Vivado {found['vivado']}: WNS {found['wns_ns']:g} ns at {found['clock_mhz']:g} MHz; {used['name']}: {counts}"
    )


def _read(path: Path) -> Entries:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error
    help = "run project.tcl again, or delete it" if path.name == MEASURED else "build the design again"
    return Entries.parsed(content, str(path), help=help)
