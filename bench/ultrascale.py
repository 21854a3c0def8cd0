"""Writes docs/figures/ultrascale.md: the networks of MLPerf Tiny on two boards with an UltraScale+ device.

Usage: python bench/ultrascale.py [--print]     (needs pip install '.[test]')

Each network is planned with the defaults for the least interval, and each plan is simulated in Verilator on three
frames, which ONNX Runtime computes, too. Yosys counts the resources of the plans of digits and ResNet-8. Fails if a
value differs from ONNX Runtime or from the golden model, or a cycle from the plan.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import tiny

import hwgen
from hwgen import boards, work
from hwgen.emit import synthesis

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures" / "ultrascale.md"
BOARDS = ("kv260", "ultra96-v2")
#: Frames per second of ResNet-8 with 8 bits that nn2FPGA reaches on each board (arXiv 2309.15631, abstract and table).
PEER = {"kv260": 30_153, "ultra96-v2": 12_971}
DIGITS = str(ROOT / "examples" / "digits" / "digits.onnx")

INTRODUCTION = """# UltraScale+

How fast are the networks of MLPerf Tiny on boards with an UltraScale+ device, and how near are the estimates of their
resources? `python bench/ultrascale.py` measures and writes this page.

## MLPerf Tiny

`hwgen plan NAME --board BOARD` plans each network whole, with products in DSP slices and in LUTs. Each plan is
simulated in Verilator on three frames back to back. All outputs equal ONNX Runtime's integer kernels, and all cycles
are those that the plan predicts. Slices, block RAM, LUTs and flip-flops are the plan's. Frames per second are those of
the board's default clock, {clocks}, which no tool has confirmed: Yosys knows no
delays of these devices.

*nn2FPGA* has hardware for each layer, too, from high-level synthesis (arXiv 2309.15631): ResNet-8 with 8 bits, measured
on the board at a clock of its own.
"""

RESOURCES = """
## Resources

Estimates beside `hwgen synth`, which maps DSP slices as for the 7 series and everything else as for UltraScale+
([Boards and parts](../reference/boards.md)).
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    arguments = parser.parse_args()
    import ultrascale  # by the name under which workers find it

    with work.pool() as pool:
        speeds = work.run(pool, ultrascale.speed, list(product(BOARDS, tiny.NAMES)))
        cells = work.run(pool, ultrascale.resources, [(DIGITS, "dsp"), (DIGITS, "auto"), ("resnet8", "dsp")])
    clocks = " and ".join(f"{boards.load(board).clock_mhz:g} MHz on `{board}`" for board in BOARDS)
    titles = ["board", "network", "latency", "interval", "frames/s", "nn2FPGA", "DSP", "BRAM36", "LUT", "FF"]
    lines = [INTRODUCTION.format(clocks=clocks), f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}", *speeds]
    titles = ["network", "products in", "DSP", "BRAM36", "LUT", "estimated", "FF", "estimated"]
    lines += [RESOURCES, f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}", *cells]
    text = "\n".join(lines) + "\n"
    if arguments.print:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
