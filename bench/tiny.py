"""Writes docs/figures/tiny.md: the four networks of MLPerf Tiny's closed division, whole, on a ZedBoard.

Usage: python bench/tiny.py [--print] [--no-synthesis] [NAME ...]     (needs pip install '.[test]')

Each network is planned for the least latency and for the least interval, and each plan is simulated in Verilator on
three frames, which ONNX Runtime computes, too. Yosys counts the plan's resources. Fails if a value differs from ONNX
Runtime or from the golden model, a cycle from the plan, or Yosys finds more than the board has.
``--print`` writes nothing; with names, only those networks are measured, and nothing is written either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime

import hwgen
from hwgen import boards, work
from hwgen.api import Design, Result
from hwgen.gateware.cost import Resources
from hwgen.network.zoo import builtin
from hwgen.tools import synthesis

PAGE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "tiny.md"
BOARD, FRAMES = "zedboard", 3
OBJECTIVES = ("latency", "interval")

#: The one entry of MLPerf Tiny v1.1 on this board (fpgaConvNet, closed division): microseconds a frame, clock in MHz.
PEER = {"resnet8": (411, 143), "dscnn": (324, 143), "mobilenetv1-0.25": (9_487, 111)}
NAMES = ("resnet8", "dscnn", "mobilenetv1-0.25", "autoencoder")

INTRODUCTION = """# MLPerf Tiny on a ZedBoard

How fast are the four networks of MLPerf Tiny on a ZedBoard, and what limits them? `python bench/tiny.py` measures them
and writes this page.

The networks have the closed division's structures with random weights, quantised to 8 bits by ONNX Runtime. The
command

    hwgen plan NAME --board zedboard --multipliers dsp --macs-per-dsp auto --objective latency    (or interval)

plans them whole. Each plan was simulated in Verilator on three frames back to back. All outputs equal ONNX
Runtime's, with integer kernels; latency and interval equal the plan's. Yosys counted DSP, BRAM36, LUT and FF.

*Latency* is the number of cycles from a frame's first input beat to its last output beat; *interval* is the number from
one frame to the next.

*fpgaConvNet* is the only entry of MLPerf Tiny v1.1 on this board, without an autoencoder. Its cycles are the published
time per frame, driver included, times its clock (143 MHz; mobilenetv1-0.25: 111 MHz), to be compared with the latency.
"""

LIMITS = """
## What limits them

A slice computes at most two MACs per cycle, and the board has 220 slices, so the interval is at least the MACs divided
by 440. In practice unroll factors are whole numbers, and the slowest layer sets the interval. Depthwise convolutions
and layers that have a weight of -128 compute one MAC per slice.
"""

NEARER = """
## Use of the slices

The table counts the DSP slices of the shortest-interval plans by use. The last column is the interval with
`--requantise auto`, where requantisers can multiply in LUTs.
"""


@dataclass(frozen=True)
class Figures:
    """Figures of one plan: cycles, resources (by Yosys or estimated), and its slowest layer."""

    name: str
    objective: str
    latency: int
    interval: int
    resources: Resources
    slowest: tuple[str, ...]
    macs: int
    slices: tuple[int, int, int]
    """DSP slices with two multiply-adds each, with one multiply-add each, and of requantisers."""
    mixed: int
    """Interval of the plan in which requantisers can be built of LUTs, in cycles."""


def by_onnxruntime(name: str, frames: np.ndarray) -> np.ndarray:
    """Return the dequantised outputs of a built-in network by ONNX Runtime with integer kernels."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.log_severity_level = 4
    model = builtin.quantised(name).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {session.get_inputs()[0].name: frames})
    return outputs


def dequantised(model: hwgen.Model, frames: np.ndarray) -> np.ndarray:
    """Return the dequantised outputs of a model by the golden model."""
    output = model.network.output
    return (model.golden(frames, integers=True).astype(np.float32) - output.zero_point) * np.float32(output.scale)


def measured(case: tuple[str, str, bool]) -> Figures:
    """Return the figures of one case (`measure`)."""
    return measure(*case)


def simulated(model: hwgen.Model, name: str, design: Design) -> Result:
    """Simulate three frames, and return the result. Fail if a value or a cycle differs from what it must be."""
    shape = model.network.input.shape
    frames = np.random.default_rng(1).uniform(-1, 1, (FRAMES, *(shape[:1] if shape[1:] == (1, 1) else shape)))
    frames = frames.astype(np.float32)
    theirs, result = by_onnxruntime(name, frames), design.simulate(frames, simulator="verilator")
    different = np.count_nonzero(dequantised(model, frames).reshape(theirs.shape) != theirs)
    if result.mismatches or different or not result.as_predicted:
        raise SystemExit(f"{name}: {different} values are not ONNX Runtime's; {result.summary()}")
    assert result.interval is not None
    return result


def measure(name: str, objective: str, with_synthesis: bool) -> Figures:
    """Plan, simulate, compare, and count."""
    model = hwgen.load(name)
    design = model.plan(BOARD, multipliers="dsp", macs_per_dsp="auto", objective=objective)
    result = simulated(model, name, design)
    print(f"{name}, {objective}: {result.summary()}", flush=True)
    layers = design.config.layers
    largest_cycles, slices = max(layer.cycles for layer in layers), _slices(design)
    return Figures(
        name=name,
        objective=objective,
        latency=result.latency,
        interval=result.interval,
        resources=synthesised(design) if with_synthesis else design.plan.resources,
        slowest=tuple(layer.name for layer in layers if layer.cycles > 0.99 * largest_cycles),
        macs=design.network.macs,
        slices=slices,
        mixed=_mixed(model) if objective == "interval" else 0,
    )


def _slices(design: Design) -> tuple[int, int, int]:
    two = one = finish = 0
    for plan, layer in zip(design.plan.layers, design.config.layers, strict=True):
        if plan.macs_per_dsp == 2:
            two += layer.compute.multipliers
        else:
            one += layer.compute.multipliers
        finish += layer.finish.multipliers if layer.finish is not None else 0
    return two, one, finish


def _mixed(model: hwgen.Model) -> int:
    interval = model.plan(BOARD, multipliers="dsp", macs_per_dsp="auto", requantise="auto").interval
    assert interval is not None
    return interval


def synthesised(design: Design) -> Resources:
    """Return the resources of a design by Yosys. Fail if the board has fewer."""
    rows = synthesis.synthesise(design.config).rows
    measured = sum((row.measured for row in rows), Resources())
    for resource, needed in measured.as_dict().items():
        if needed > getattr(design.board, resource):
            raise SystemExit(f"{design.network.name}: Yosys finds {needed} {resource}, more than the board has")
    return measured


def row(figures: Figures) -> str:
    """Return the table row of a plan's figures."""
    time, clock = PEER.get(figures.name, (0, 0))
    peer = f"{time * clock:,}" if time and figures.objective == "latency" else ""
    rate, cells = boards.load(BOARD).clock_mhz * 1e6 / figures.interval, figures.resources
    numbers = [f"{figures.latency:,}", peer, f"{figures.interval:,}", f"{rate:,.0f}"]
    numbers += [f"{cells.dsp}", f"{cells.bram36:g}", f"{cells.lut:,}", f"{cells.ff:,}"]
    return "| " + " | ".join([figures.name, figures.objective, *numbers]) + " |"


def limits(figures: Figures) -> str:
    """Return the table row with the limit of a plan's interval."""
    names, board, used = figures.slowest, boards.load(BOARD), figures.resources
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    bound = -(-figures.macs // (2 * board.dsp))
    return (
        f"| {figures.name} | {figures.macs:,} | {bound:,} | {figures.interval:,} | {named} | "
        f"{used.dsp} of {board.dsp} | {used.bram36:g} of {board.bram36} |"
    )


def nearer(figures: Figures) -> str:
    """Return the table row with the use of DSP slices, and the interval with requantisers in LUTs."""
    (two, one, finish), board = figures.slices, boards.load(BOARD)
    return (
        f"| {figures.name} | {two} | {one} | {finish} | {board.dsp - two - one - finish} | {figures.interval:,} | "
        f"{figures.mixed:,} |"
    )


def page(all_figures: Sequence[Figures]) -> str:
    titles = ["network", "objective", "latency (cycles)", "fpgaConvNet", "interval (cycles)", "frames/s at 100 MHz"]
    titles += ["DSP", "BRAM36", "LUT", "FF"]
    lines = [INTRODUCTION, f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *map(row, all_figures), LIMITS]
    lines += ["| network | MACs | minimum interval | interval | slowest layers | DSP | BRAM36 |"]
    lines += ["|---|---|---|---|---|---|---|"]
    fastest = [figures for figures in all_figures if figures.objective == "interval"]
    lines += map(limits, fastest)
    titles = [
        "network",
        "two MACs",
        "one MAC",
        "requantisers",
        "idle",
        "interval",
        "with requantisers in LUTs",
    ]
    lines += [NEARER, f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *map(nearer, fastest)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    parser.add_argument("--no-synthesis", action="store_true", help="the plan's estimates in place of Yosys's figures")
    arguments = parser.parse_args()
    wanted = list(product(arguments.names or NAMES, OBJECTIVES, [not arguments.no_synthesis]))
    import tiny  # by the name under which workers find it

    with work.pool() as pool:
        all_figures = work.run(pool, tiny.measured, wanted)
    text = page(all_figures)
    if arguments.print or arguments.names or arguments.no_synthesis:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
