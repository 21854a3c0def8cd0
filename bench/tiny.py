"""Writes docs/tiny.md: the four networks of MLPerf Tiny's closed division, whole, on a ZedBoard.

Usage: python bench/tiny.py [--print] [--no-synthesis] [NAME ...]     (needs pip install '.[test]')

Each network is planned for the least latency and for the least interval, and each plan is simulated in Verilator on
three frames, which ONNX Runtime computes, too. Yosys counts the plan's resources. Fails if a value differs from ONNX
Runtime or from the golden model, a cycle from the plan, or Yosys finds more than the board has.
``--print`` writes nothing; with names, only those networks are measured, and nothing is written either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import hwgen
from hwgen.api import Design
from hwgen.emit import synthesis
from hwgen.gateware.cost import Resources
from hwgen.network.graph import Network
from hwgen.network.zoo import builtin

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tiny.md"
BOARD, FRAMES = "zedboard", 3
OBJECTIVES = ("latency", "interval")

#: The one entry of MLPerf Tiny v1.1 on this board (fpgaConvNet, closed division): microseconds a frame, clock in MHz.
PEER = {"resnet8": (411, 143), "dscnn": (324, 143), "mobilenetv1-0.25": (9_487, 111)}
NAMES = ("resnet8", "dscnn", "mobilenetv1-0.25", "autoencoder")

INTRODUCTION = """# MLPerf Tiny on a ZedBoard

Made by `python bench/tiny.py`. The networks are those that the closed division of MLPerf Tiny fixes, with seeded
weights, quantised to 8 bits by ONNX Runtime. They are planned whole by

    hwgen plan NAME --board zedboard --macs-per-dsp auto --objective latency        (or interval)

and each plan is simulated in Verilator on three frames back to back. All outputs equal ONNX Runtime's integer kernels,
and all cycles are those that the plan predicts. LUTs, flip-flops, slices and block RAM are Yosys's.

*fpgaConvNet* is the one entry of MLPerf Tiny v1.1 on this board: its time for a frame, with the driver, times its
clock. Its figures are of a board, these are of a simulation: compare cycles, not times.
"""

LIMITS = """
## What limits them

A slice does two multiply-adds a cycle, and there are 220. So a frame takes no fewer cycles than its multiply-adds
divided by 440, however they are arranged; in practice a layer's factors are whole numbers, and layers that all work at
once are as slow as the slowest.
"""


@dataclass(frozen=True)
class Figures:
    """What one plan comes to."""

    design: Design
    latency: int
    interval: int
    measured: Resources | None


def by_onnxruntime(name: str, frames: np.ndarray) -> np.ndarray:
    """The last integer tensor of a built-in network, by a session with default optimisation and integer kernels."""
    model = builtin.quantised(name)
    last = next(node for node in reversed(model.graph.node) if node.op_type == "QuantizeLinear")
    kept = [node for node in model.graph.node if last.output[0] not in node.input]
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(kept)
    model.graph.output.append(helper.make_tensor_value_info(last.output[0], TensorProto.UINT8, None))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {session.get_inputs()[0].name: frames})
    return outputs


def measure(name: str, objective: str, with_synthesis: bool) -> Figures:
    """Plan, simulate, compare, and count."""
    model = hwgen.load(name)
    design = model.plan(BOARD, macs_per_dsp="auto", objective=objective)
    frames = np.random.default_rng(1).uniform(-1, 1, (FRAMES, *model.network.input.shape)).astype(np.float32)
    if model.network.input.shape[1:] == (1, 1):
        frames = frames.reshape(FRAMES, -1)
    theirs = by_onnxruntime(name, frames)
    result = design.simulate(frames, simulator="verilator")
    ours = model.golden(frames, integers=True)
    if result.mismatches or (ours.reshape(theirs.shape) != theirs).any():
        raise SystemExit(
            f"{name}, {objective}: {result.mismatches} values differ from the golden model, "
            f"{np.count_nonzero(ours.reshape(theirs.shape) != theirs)} of that from ONNX Runtime"
        )
    if not result.as_predicted:
        raise SystemExit(f"{name}, {objective}: cycles are not as predicted: {result.summary()}")
    measured = None
    if with_synthesis:
        rows = synthesis.synthesise(design.config, progress=lambda done, total, names: None).rows
        measured = sum((row.measured for row in rows), Resources())
        board = design.board
        for resource, most in (("dsp", board.dsp), ("bram36", board.bram36), ("lut", board.lut), ("ff", board.ff)):
            if getattr(measured, resource) > most:
                raise SystemExit(f"{name}, {objective}: Yosys finds {getattr(measured, resource)} {resource} of {most}")
    print(f"{name}, {objective}: {result.summary()}", flush=True)
    return Figures(design, result.latency, result.interval, measured)


def row(name: str, objective: str, figures: Figures) -> str:
    """A line of the table."""
    time, clock = PEER.get(name, (0, 0))
    peer = f"{time * clock:,}" if time and objective == "latency" else ""
    cells = figures.measured or figures.design.plan.resources
    board = figures.design.board
    rate = board.clock_mhz * 1e6 / figures.interval
    numbers = [f"{figures.latency:,}", peer, f"{figures.interval:,}", f"{rate:,.0f}"]
    numbers += [f"{cells.dsp}", f"{cells.bram36:g}", f"{cells.lut:,}", f"{cells.ff:,}"]
    return "| " + " | ".join([name, objective, *numbers]) + " |"


def limits(network: Network, figures: Figures) -> str:
    """What the interval's plan is held up by."""
    config = figures.design.config
    slowest = max(layer.cycles for layer in config.layers)
    names = [layer.name for layer in config.layers if layer.cycles > 0.99 * slowest]
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    used, board = figures.design.plan.resources, figures.design.board
    least = -(-network.macs // (2 * board.dsp))
    return (
        f"| {network.name} | {network.macs:,} | {least:,} | {figures.interval:,} | {named} | "
        f"{used.dsp} of {board.dsp} | {used.bram36:g} of {board.bram36} |"
    )


def page(found: dict[tuple[str, str], Figures]) -> str:
    lines = [INTRODUCTION]
    lines.append(
        "| network | objective | latency | fpgaConvNet | interval | frames/s at 100 MHz | DSP | BRAM36 | LUT | FF |"
    )
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    lines += [row(name, objective, figures) for (name, objective), figures in found.items()]
    lines += [LIMITS, "| network | multiply-adds | least interval | interval | slowest layers | DSP | BRAM36 |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(name for name, _ in found):
        figures = found[name, "interval"]
        lines.append(limits(figures.design.network, figures))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    parser.add_argument("--no-synthesis", action="store_true", help="the plan's estimates in place of Yosys's figures")
    arguments = parser.parse_args()
    names = arguments.names or NAMES
    found = {
        (name, objective): measure(name, objective, not arguments.no_synthesis)
        for name in names
        for objective in OBJECTIVES
    }
    text = page(found)
    if arguments.print or arguments.names or arguments.no_synthesis:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
