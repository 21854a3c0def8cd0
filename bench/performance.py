"""The figures of docs/figures/performance.md: the papers' workload, the reference layer, resources, 16 bits, paths.

Usage: python bench/performance.py [--page] [SECTION ...]     (needs pip install '.[test]')

Each section is measured, printed and kept in build/performance. ``--page`` then writes
docs/figures/performance.md from what is kept there. Fails if an
output differs from the golden model, a cycle from the plan, or a limit is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import reference_layer
import simulation

import hwgen
from hwgen import progress
from hwgen.gateware.cost import Resources
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.tools import synthesis

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "build" / "performance", ROOT / "docs" / "figures" / "performance.md"

#: Interval, latency and DSP slices at most, of the first seven layers of VGG-16 at 224 x 224.
VGG = {
    "vgg16:7": (1_605_632, 1_720_000, 3_600),
    "vgg16:7-2907": (2_007_040, 2_150_000, 2_907),
    "vgg16:7-two": (802_816, 865_000, 3_600),
}
ZYNQ_INTERVAL = 12_093_000
#: Nanoseconds of logic between registers at most.
LOGIC_NS = 3.3
#: Model, board and options of the designs that are synthesised.
DESIGNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "digits": (str(ROOT / "examples" / "digits" / "digits.onnx"), "zedboard", {}),
    "vgg16:7": ("vgg16:7", "vc709", {}),
    "vgg16:7, two MACs per DSP": ("vgg16:7", "vc709", {"macs_per_dsp": 2}),
    "vgg16:6, two MACs per DSP": ("vgg16:6", "zedboard", {"macs_per_dsp": 2}),
    "vgg16:7@64x64 in pyramids": ("vgg16:7@64x64", "vc709", {"dsp": 500, "template": "pyramid", "tile": (4, 8)}),
}
#: Designs whose paths are measured, too, by section: each takes Yosys many minutes.
PATHS = {
    "paths-digits": "digits",
    "paths": "vgg16:7",
    "paths-two": "vgg16:7, two MACs per DSP",
    "paths-pyramids": "vgg16:7@64x64 in pyramids",
}
REQUANTISER_LUTS = 300


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown, with text in the first column and numbers in the others."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def cell(value: Any) -> str:
        return str(value) if isinstance(value, str) else f"{value:,.1f}".removesuffix(".0")

    return "\n".join(
        [line(head), line(["---", *["---:"] * (len(head) - 1)]), *(line(list(map(cell, r))) for r in rows)]
    )


def need(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(what)


def reference() -> str:
    results = [reference_layer.measure(row) for row in reference_layer.ROWS]
    rows = list(reference_layer.ROWS)
    differences = [
        fault for row, result in zip(rows, results, strict=True) for fault in reference_layer.faults(row, result)
    ]
    need(not differences, "\n".join(differences))
    return reference_layer.table(rows, results)


def requantiser() -> str:
    """Return the table of the requantiser of VGG-16's conv1_2, with quantised scales, 4 channels per cycle."""
    config = hwgen.load("vgg16:2@32x32").plan("vc709", dsp=100, multipliers="dsp").config.layers[1].finish
    assert isinstance(config, RequantiseConfig)
    beats = tuple(tuple(range(first, first + 4)) for first in range(0, 64, 4))
    (used,) = synthesis.measure([replace(config, lanes=4, beats=beats)])
    need(used.lut <= REQUANTISER_LUTS, f"the requantiser takes {used.lut} LUTs, more than {REQUANTISER_LUTS}")
    return markdown(
        ("8-bit requantiser, 4 channels per cycle", "LUT", "at most", "FF", "DSP", "BRAM36"),
        [("64 channels, any scales", used.lut, REQUANTISER_LUTS, used.ff, used.dsp, used.bram36)],
    )


def vgg() -> str:
    rows = []
    for name, (interval, latency, dsp) in VGG.items():
        result = simulation.measure(name)
        for figure, bound in (("interval", interval), ("latency", latency), ("dsp", dsp)):
            need(result[figure] <= bound, f"{name}: {figure} is {result[figure]:,}, more than {bound:,}")
        figures = [result["interval"], interval, result["latency"], latency, result["dsp"], dsp]
        speed = [result["cycles_per_s"], result["macs_per_s"] / 1e6]
        rows.append((name, *figures, result["verified_s"], *speed))
    head = ("case", "interval", "at most", "latency", "at most", "DSP", "at most", "verified [s]", "cycles/s", "MMAC/s")
    return markdown(head, rows)


@cache
def synthesised(name: str) -> tuple[hwgen.Design, list[synthesis.Synthesis]]:
    """Return a design of `DESIGNS` by name, and Yosys' results for each of its groups."""
    model, board, steering = DESIGNS[name]
    design = hwgen.load(model).plan(board, multipliers="dsp", **steering)
    with progress.shown():
        return design, [
            synthesis.synthesise(config, with_paths=name in PATHS.values()) for config in design.plan.configs()
        ]


def layers(name: str) -> str:
    """Return the table of Yosys' resources of a design, layer by layer and summed, with the estimate of the sum."""
    design, (result,) = synthesised(name)
    model, board, _ = DESIGNS[name]
    rows: list[tuple[Any, ...]] = []
    for layer in design.config.layers:
        mine = [row for row in result.rows if row.layer == layer.name]
        used = sum((row.measured for row in mine), Resources())
        rows.append((layer.name, used.dsp, used.bram36, used.lut, used.ff))
    used, guess, has = result.measured, result.estimate, design.board
    rows.append(("sum", used.dsp, used.bram36, used.lut, used.ff))
    rows.append(("estimate", guess.dsp, guess.bram36, guess.lut, guess.ff))
    rows.append((f"of {has.device}", has.dsp, has.bram36, has.lut, has.ff))
    pairs = ((used.dsp, has.dsp), (used.bram36, has.bram36), (used.lut, has.lut), (used.ff, has.ff))
    rows.append(("share", *(f"{100 * a / b:.1f} %" for a, b in pairs)))
    need(used.dsp <= has.dsp, f"{name}: {used.dsp} DSP slices")
    need(used.bram36 <= 0.6 * has.bram36 or board != "vc709", f"{name}: {used.bram36:g} BRAM36")
    need(used.lut <= 0.4 * has.lut or board != "vc709", f"{name}: {used.lut} LUTs")
    need(used.bram36 <= has.bram36 and used.lut <= has.lut and used.ff <= has.ff, f"{name} does not fit {board}")
    head = (f"{model}, {board}", "DSP", "BRAM36", "LUT", "FF")
    cycles = f"interval {design.interval:,} cycles, latency {design.latency:,}"
    if board == "zedboard":
        need((design.interval or 0) <= ZYNQ_INTERVAL, f"{name}: {cycles}, more than {ZYNQ_INTERVAL:,}")
    return f"{markdown(head, rows)}\n\n{cycles}, two MACs per slice."


def seven_layers() -> str:
    return layers("vgg16:7, two MACs per DSP")


def zynq() -> str:
    """Return the tables of a Zynq design: resources at full size, and a simulation of its layers on smaller maps."""
    return f"{layers('vgg16:6, two MACs per DSP')}\n\n{simulated('vgg16:6@32x32-zedboard-two')}"


def paths(name: str) -> str:
    """Return a table with the component that has a design's longest path. Fail if it exceeds the limit."""
    _, results = synthesised(name)
    found = [(row.path.delay, row.name) for result in results for row in result.rows if row.path]
    delay, component = max(found, key=lambda entry: entry[0])
    need(delay <= LOGIC_NS, f"{name}: {component} has {delay} ns of logic")
    return markdown((name, f"logic [ns], at most {LOGIC_NS}"), [(component, f"{delay:.2f}")])


def wide() -> str:
    return simulated("vgg16:7@32x32,int16", "digits-int16")


def simulated(*names: str) -> str:
    results = [simulation.measure(name) for name in names]
    keys = ("interval", "latency", "dsp", "frames", "verified_s", "cycles_per_s")
    return markdown(("simulated case", *keys), [(one["case"], *(one[key] for key in keys)) for one in results])


SECTIONS: dict[str, tuple[str, Callable[[], str]]] = {
    "vgg": ("VGG-16's first seven layers at 224 x 224", vgg),
    "reference": ("The reference layer", reference),
    "requantiser": ("Requantisation", requantiser),
    "seven-layers": ("Resources of the seven layers, from Yosys", seven_layers),
    "zynq": ("XC7Z020: VGG-16 to pool2 at 224 x 224", zynq),
    "wide": ("16-bit activations and weights", wide),
    **{section: (f"Worst logic delays: {name}", partial(paths, name)) for section, name in PATHS.items()},
}

INTRODUCTION = """# Performance

How fast and how large are the circuits for the papers' workload, for a reference layer, and for a small board?
`python bench/performance.py --page` writes this page (do not edit it); `python bench/performance.py SECTION` measures
one section.

Cycles are measured in Verilator on the generated Verilog. Every output value equals the golden model's, and latency and
interval equal the plan's. All products are in DSP slices (`--multipliers dsp`; [with LUTs](multipliers.md)). Resources
are from Yosys 0.66 (`synth_xilinx -family xc7 -flatten`). "At most" is the project's limit: a section that exceeds it
is not written."""

TEXTS = {
    "vgg": """Three equal frames of a photograph (scikit-learn's flower.jpg, 224 x 224) run back to back. `verified` is
the time from the command to the verified result with nothing built before, on the machine named below the table.

Published for these layers: DeCoILFNet 5,034,000 cycles with 2,907 DSPs, Fused-layer 11,655,000 with 2,987, Zhang's
10,951,000 with 2,880. fpgaConvNet's optimiser predicts an interval of 1,634,432 and a latency of 1,838,627 with 3,510
DSPs. With 3,600 DSPs at least 1,565,492 cycles are needed, 782,746 with two MACs per slice.""",
    "reference": """3 x 3, 16 to 16 channels, 32 x 32, padded, 8 bits, accumulators as output: line buffer, weights,
multipliers, accumulators, output FIFO. LUT counts LUT1 to LUT6, INV and SRL as 1, RAM32M and RAM64M as 4, RAM32X1D
and RAM64X1D as 2. FINN's RTL was synthesised with the same tools. All DSP slices use MREG and PREG. No path between
registers has more than 3 LUTs and one carry chain; `python bench/reference_layer.py` lists them.""",
    "seven-layers": "Each component is synthesised separately, so the whole is smaller than the sum.",
    "zynq": "The plan for the ZedBoard; its 220 DSP slices include the requantisers.",
    "wide": "One MAC per DSP slice; cycles follow the same formula as with 8 bits.",
    "paths-digits": """The tables show the component with a design's longest logic delay between registers, by Yosys'
`sta`. Wires are not included, so the delay does not give a clock frequency.""",
}


def page() -> str:
    parts = [INTRODUCTION]
    for name, (title, _) in SECTIONS.items():
        path = KEPT / f"{name}.json"
        need(path.is_file(), f"section {name} was not measured yet: python bench/performance.py {name}")
        kept = json.loads(path.read_text())
        parts.append(
            "\n\n".join(part for part in (f"## {title}", TEXTS.get(name, ""), kept["text"], kept["stamp"]) if part)
        )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)} (default: all, without --page)")
    parser.add_argument("--page", action="store_true", help="write docs/figures/performance.md from what was measured")
    arguments = parser.parse_args()
    if unknown := set(arguments.section) - set(SECTIONS):
        parser.error(f"unknown section {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in arguments.section or ([] if arguments.page else SECTIONS):
        text = SECTIONS[name][1]()
        stamp = f"{datetime.date.today():%Y-%m-%d}, {os.cpu_count()} processors: `python bench/performance.py {name}`"
        (KEPT / f"{name}.json").write_text(json.dumps({"text": text, "stamp": stamp}, indent=1))
        print(f"## {name}\n\n{text}\n", flush=True)
    if arguments.page:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
