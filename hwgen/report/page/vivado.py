"""Section of the report page about Vivado's results: timing, and utilisation with the plan's estimate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwgen.errors import InputError
from hwgen.fields import Entries, content_of

#: Name of the file with Vivado's results, written by ``project.tcl`` into the design's folder.
MEASURED = "vivado.json"

_USED = ("lut", "ff", "bram36", "dsp")
_LEVELS = {
    "accelerator": "the accelerator",
    "ip": "with its bus wrapper",
    "design": "with DMA, interconnects and resets",
}


class StaleError(InputError):
    """Error: Vivado's results in a design's folder belong to another build than the design."""


def document(folder: Path) -> dict[str, Any] | None:
    """Return a dictionary of Vivado's results in a design's folder; ``None`` if Vivado has not run there.

    Raises
    ------
    StaleError
        If the results belong to another build than the folder.
    InputError
        If the file is not one that ``project.tcl`` writes.
    """
    path = folder / MEASURED
    if not path.exists():
        return None
    results, registers, plan = (_read_json(folder / name) for name in (MEASURED, "registers.json", "plan.json"))
    measured, built = results.text("build_hash"), registers.text("build_hash")
    if measured != built:
        raise StaleError(
            f"{MEASURED} is left out: it is of another build ({measured}) than the folder ({built}); "
            "run project.tcl again"
        )
    # Vivado can dissolve the accelerator's cell, but no other.
    levels = [name for name in _LEVELS if name != "accelerator" or results.values.get(name) is not None]
    clock, slack = results.value("clock_mhz", float), results.value("wns_ns", float)
    if clock <= 0 or (period := 1000 / clock) <= slack:
        results.refuse(
            f"must have a clock of more than 0 MHz with a period above its slack, not {clock:g}, {slack:g} ns"
        )
    return {
        "vivado": results.text("vivado"),
        "board_files": results.text("board_files"),
        "clock_mhz": clock,
        "wns_ns": slack,
        "whs_ns": results.value("whs_ns", float),
        "max_mhz": 1000 / (period - slack),
        "rows": [{"name": _LEVELS[name], "used": _counts(results.entries(name))} for name in levels],
        "estimate": _counts(plan.entries("resources")),
    }


def _counts(resources: Entries) -> dict[str, float]:
    """Return, as a dictionary, the used amount of each resource (DSP slices, LUTs ..), by key, from a JSON object."""
    return {key: resources.value(key, float) for key in _USED}


def line(results: Mapping[str, Any]) -> str:
    """Return a line with Vivado's timing, and its utilisation compared with the plan's estimate."""
    used, estimate = results["rows"][0], results["estimate"]
    counts = ", ".join(f"{key.upper()} {used['used'][key]:,g} (estimated {estimate[key]:,g})" for key in _USED)
    timing = f"WNS {results['wns_ns']:g} ns at {results['clock_mhz']:g} MHz"
    return f"Vivado {results['vivado']}: {timing}; {used['name']}: {counts}"


def _read_json(path: Path) -> Entries:
    help = "run project.tcl again, or delete it" if path.name == MEASURED else "build the design again"
    return Entries.parsed(content_of(path, help), str(path), help=help)
