"""Writes docs/figures/ultrascale.md: networks on three boards with an UltraScale+ device, beside published figures.

Usage: python bench/ultrascale.py [--print] [SECTION ..]     (needs pip install '.[test]')

SECTION is tiny, dpu, packing or resources; each one replaces its part of the page. Without any, all are measured.

tiny: each network of MLPerf Tiny is planned with the defaults for the least interval, and each plan is simulated in
Verilator on three frames, which ONNX Runtime computes, too. Fails if a value differs from ONNX Runtime or from the
golden model, or a cycle from the plan.

dpu: plans of three large networks on zcu104, beside figures that were published for AMD's DPU on this board.

packing: Yosys counts the products of three layers, packed for the 27 bits of the slices and as for the 7 series. Fails
if slices or block RAM differ from the estimate.

resources: Yosys counts the resources of the plans of digits and ResNet-8. Fails if slices or block RAM differ.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import tiny

import hwgen
from hwgen import boards, work
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.templates.engine import EngineTemplate
from hwgen.tools import synthesis

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures" / "ultrascale.md"
BOARDS = ("kv260", "ultra96-v2")
#: Frames per second of ResNet-8 with 8 bits that nn2FPGA reaches on each board (arXiv 2309.15631, abstract and table).
PEER = {"kv260": 30_153, "ultra96-v2": 12_971}
DIGITS = str(ROOT / "examples" / "digits" / "digits.onnx")
#: Options of the engine on zcu104.
ENGINE = {"template": "engine"}
ONE_CORE = {**ENGINE, "cores": 1, "array": (8, 13), "bus_bits": 128}

#: Frames per second of AMD's DPU on a ZCU104, of one thread and of several, and DPU of both: two B4096 cores at
#: 300 MHz, each with 2,048 multiply-adds a cycle (Vitis AI 2.5: UG1354, and its public copy in the model zoo's README).
DPU_RATES = {"vgg16-dense": (21.49, 37.10), "resnet50": (93.84, 175.0), "mobilenetv2": (284.18, 609.18)}
DPU_MACS, DPU_MHZ = 2 * 2048, 300

#: Plans on zcu104: label of a row, model, options, and network of the DPU.
LARGE: tuple[tuple[str, str, dict[str, Any], str | None], ...] = (
    ("vgg16:7, layers in hardware", "vgg16:7", {}, None),
    ("vgg16-dense, engine", "vgg16-dense", ENGINE, "vgg16-dense"),
    ("resnet50, engine", "resnet50", ENGINE, "resnet50"),
    ("mobilenetv2, engine", "mobilenetv2", ENGINE, "mobilenetv2"),
    ("mobilenetv2, engine of one core", "mobilenetv2", ONE_CORE, "mobilenetv2"),
    ("the same with a map memory", "mobilenetv2", {**ONE_CORE, "map_memory": "auto"}, "mobilenetv2"),
)

#: Multipliers of two output channels, and of two pixels, in a slice: of the 7 series, and of an operand of 27 bits.
CHANNELS, PIXELS = (2, "2-full", "2-wide"), ("2-pixels", "2-pixels-full", "2-pixels-wide")
#: Packed layers: network, options of its plan on kv260, layer, label of its rows, and multipliers.
PACKED: tuple[tuple[str, dict[str, Any], str, str, tuple[int | str, ...]], ...] = (
    ("resnet8", {"macs_per_dsp": 2, "dsp": 400}, "stack2_conv1", "9 products by 8 channels", CHANNELS),
    ("resnet8", {"macs_per_dsp": 2}, "stack3_conv1", "27 products by 8 channels", CHANNELS),
    (
        *("mobilenetv1-0.25", {"macs_per_dsp": "auto", "dsp": 400}, "pointwise5"),
        *("5 products by 5 channels, 2 pixels", PIXELS),
    ),
)

INTRODUCTION = """# UltraScale+

How fast are networks on boards with an UltraScale+ device, and how close are the estimates of their resources?
`python bench/ultrascale.py` measures and writes this page.
"""

TINY = """
## MLPerf Tiny

`hwgen plan NAME --board BOARD` plans each network whole. Each plan was simulated in Verilator on three frames back to
back: all outputs equal ONNX Runtime's integer kernels, and all cycles the plan's. Resources are the plan's. Frames per
second are at the board's default clock, {clocks}. No tool has confirmed this
clock, as Yosys has no delays of these devices.

*nn2FPGA* (arXiv 2309.15631) also has hardware for each layer: 8-bit ResNet-8, measured on the board at its own clock.
"""

DPU = """
## Large networks and the DPU

*DPU*: two B4096 cores on the same board at {dpu_mhz} MHz with Vitis AI 2.5, as published (AMD UG1354, 2.5, ZCU104). The
rates are end to end. The cores compute at most {dpu_macs:,} MACs per cycle.

*hwgen*: `hwgen plan NETWORK --board zcu104`, with `{engine}`, for one core `--cores 1 --array 8x13 --bus-bits 128`, and
`--map-memory auto` for a map memory in UltraRAM. Cycles are the exact schedule's. Frames per second are at the default
clock of {clock:g} MHz, which no tool has confirmed, and exclude the host. Compare the share of the peak, not the rates:
MACs per cycle divided by the maximum of the hardware's multipliers.

"""

PACKING = """
## Packing

Yosys' resources of chains, weight memories and accumulators of three layers, with two 8-bit products per slice. The
products are spaced as in the 7 series, or as the 27 bits of a DSP48E2 allow
([layers](../explanation/layers.md#multiply-add)). *Chains*: number per output channel and pixel, and slices of each.
*Latency*: cycles from the last operands to the sum.
"""

RESOURCES = """
## Resources

The plan's estimates and `hwgen synth` ([how it maps](../reference/boards.md)):
"""


def speed(case: tuple[str, str]) -> str:
    """Return the table row of a network on a board."""
    board, name = case
    model = hwgen.load(name)
    design = model.plan(board)
    result = tiny.simulated(model, name, design)
    print(f"{name}, {board}: {result.summary()}", flush=True)
    assert result.interval is not None
    cells, rate = design.plan.resources, boards.load(board).clock_mhz * 1e6 / result.interval
    peer = f"{PEER[board]:,}" if name == "resnet8" else ""
    numbers = [f"{result.latency:,}", f"{result.interval:,}", f"{rate:,.0f}", peer]
    numbers += [f"{cells.dsp:,}", f"{cells.bram36:g}", f"{cells.lut:,}", f"{cells.ff:,}"]
    return "| " + " | ".join([board, name, *numbers]) + " |"


def resources(case: tuple[str, str]) -> str:
    """Return the table row with the estimated resources of a plan, and those that Yosys finds."""
    name, multipliers = case
    design = hwgen.load(name).plan("kv260", multipliers=multipliers)
    result = synthesis.Synthesis(synthesis.synthesise(design.config, device=design.board.family).rows)
    estimate, measured = result.estimate, result.measured
    if (measured.dsp, measured.bram36) != (estimate.dsp, estimate.bram36):
        raise SystemExit(f"{name}: Yosys finds other slices or block RAM than the plan states")
    numbers = [f"{measured.dsp:,}", f"{measured.bram36:g}", f"{measured.lut:,}", f"{estimate.lut:,}"]
    numbers += [f"{measured.ff:,}", f"{estimate.ff:,}"]
    return "| " + " | ".join([Path(name).stem, multipliers, *numbers]) + " |"


def packed(case: tuple[str, MultiplyConfig]) -> str:
    """Return the table row with the resources of a layer's products that Yosys finds."""
    label, config = case
    family = boards.load("kv260").family
    (cells,) = synthesis.measure([config], family)
    estimate = config.resources
    if (cells.dsp, cells.bram36) != (estimate.dsp, estimate.bram36):
        raise SystemExit(f"{label}: Yosys finds other slices or block RAM than the estimate states")
    print(f"{label}, {config.macs_per_dsp}: {cells}", flush=True)
    distance = max(config.kinds.in_slices.shifts[1:])
    least, _ = config.kinds.in_slices.weight_range(8)
    numbers = [
        least,
        f"{config.chains.count} of {config.chains.positions}",
        cells.dsp,
        f"{cells.lut:,}",
        f"{cells.ff:,}",
        config.latency,
    ]
    return f"| {label} | {distance} | {' | '.join(map(str, numbers))} |"


def packed_layers() -> Iterator[tuple[str, MultiplyConfig]]:
    """Yield the products of layers with a title, packed as for the 7 series and for the 27 bits of UltraScale+."""
    for network, options, layer, label, names in PACKED:
        layers = hwgen.load(network).plan("kv260", multipliers="dsp", **options).config.layers
        config = next(config for config in layers if config.name == layer).components["compute"]
        assert isinstance(config, MultiplyConfig)
        yield from ((label, replace(config, macs_per_dsp=name)) for name in names)


def macs_per_cycle(design: hwgen.Design) -> int:
    """Return how many multiply-adds a design's hardware computes in a cycle at most."""
    template = design.plan.groups[0].template
    if isinstance(template, EngineTemplate):
        return template.engine.multipliers
    weighted = (layer for layer in design.plan.layers if layer.kind == "conv")
    return sum(layer.tn * layer.tm * layer.tk * layer.tp for layer in weighted)


def large(case: tuple[str, str, dict[str, Any], str | None]) -> str:
    """Return the table row of a large network on zcu104, beside the DPU's rates of the same network."""
    label, name, options, peer = case
    model = hwgen.load(name)
    design = model.plan("zcu104", **options)
    cycles, macs = design.interval or design.latency, design.plan.network.macs
    peak = macs_per_cycle(design)
    rate = design.board.clock_mhz * 1e6 / cycles
    print(f"{label}: {cycles:,} cycles", flush=True)
    cells = design.plan.resources
    numbers = [f"{cycles:,}", f"{rate:,.1f}", f"{macs / cycles:,.0f}", f"{macs / cycles / peak:.0%}", "", "", ""]
    if peer is not None:
        one, several = DPU_RATES[peer]
        share = several * macs / (DPU_MACS * DPU_MHZ * 1e6)
        numbers[4:] = [f"{one:g}", f"{several:g}", f"{share:.0%}"]
    numbers += [f"{cells.dsp:,}", f"{cells.bram36:g}", f"{cells.uram}", f"{cells.lut:,}", f"{cells.ff:,}"]
    return "| " + " | ".join([label, *numbers]) + " |"


def table(titles: list[str], rows: list[str]) -> list[str]:
    return [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *rows]


def tiny_section(pool: work.TaskPool) -> list[str]:
    """Return the lines of the section about MLPerf Tiny."""
    import ultrascale  # by the name under which workers find it

    speeds = work.run(pool, ultrascale.speed, list(product(BOARDS, tiny.NAMES)))
    clocks = " and ".join(f"{boards.load(board).clock_mhz:g} MHz on `{board}`" for board in BOARDS)
    titles = ["board", "network", "latency", "interval", "frames/s", "nn2FPGA", "DSP", "BRAM36", "LUT", "FF"]
    return [TINY.format(clocks=clocks), *table(titles, speeds)]


def dpu_section(pool: work.TaskPool) -> list[str]:
    """Return the lines of the section about large networks beside the DPU."""
    import ultrascale

    rows = work.run(pool, ultrascale.large, list(LARGE))
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in ENGINE.items())
    text = DPU.format(dpu_mhz=DPU_MHZ, dpu_macs=DPU_MACS, engine=options, clock=boards.load("zcu104").clock_mhz)
    titles = ["network", "cycles", "frames/s", "MACs per cycle", "of the peak"]
    titles += ["DPU, one thread", "DPU, several", "of its peak", "DSP", "BRAM36", "URAM", "LUT", "FF"]
    return [text, *table(titles, rows)]


def packing_section(pool: work.TaskPool) -> list[str]:
    """Return the lines of the section about the distances of packed products."""
    import ultrascale

    rows = work.run(pool, ultrascale.packed, list(packed_layers()))
    return [PACKING, *table(["products", "bits apart", "weights from", "chains", "DSP", "LUT", "FF", "latency"], rows)]


def resources_section(pool: work.TaskPool) -> list[str]:
    """Return the lines of the section about resources."""
    import ultrascale

    cells = work.run(pool, ultrascale.resources, [(DIGITS, "dsp"), (DIGITS, "auto"), ("resnet8", "dsp")])
    titles = ["network", "products in", "DSP", "BRAM36", "LUT", "estimated", "FF", "estimated"]
    return [RESOURCES, *table(titles, cells)]


SECTIONS: dict[str, Callable[[work.TaskPool], list[str]]] = {
    "tiny": tiny_section,
    "dpu": dpu_section,
    "packing": packing_section,
    "resources": resources_section,
}
TITLES = {
    "tiny": "MLPerf Tiny",
    "dpu": "Large networks and the DPU",
    "packing": "Packing",
    "resources": "Resources",
}


def parts_of(page: str) -> dict[str, str]:
    """Return the text of each section of the page, by the section's name."""
    texts = re.split(r"(?m)^(?=## )", page)[1:]
    names = {title: name for name, title in TITLES.items()}
    return {names[text[3:].partition("\n")[0]]: text.strip() + "\n" for text in texts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    arguments = parser.parse_args()
    if unknown := sorted({*arguments.sections} - {*SECTIONS}):
        parser.error(f"unknown section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    texts = parts_of(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else {}
    with work.pool() as pool:
        for name in arguments.sections or SECTIONS:
            texts[name] = "\n".join(SECTIONS[name](pool)).strip() + "\n"
    page = "\n".join([INTRODUCTION, *(texts[name] for name in SECTIONS if name in texts)])
    if arguments.print:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
