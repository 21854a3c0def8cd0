"""Writes docs/figures/multipliers.md: plans with products in DSP slices only, and in slices and LUTs.

Usage: python bench/multipliers.py [--print] [--no-synthesis] [--results FILE] [NAME ...]

Each plan with products in LUTs is simulated in Verilator on three frames. Yosys counts its resources. Fails if a value
differs from the golden model, a cycle from the plan, or Yosys finds more LUTs than the board has.
``--print`` writes nothing; with names, only those networks are measured, and nothing is written either. ``--results``
names a JSON file that keeps the figures of finished cases; a later run measures only the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import hwgen
from hwgen.api import Design
from hwgen.gateware.cost import Resources
from hwgen.tools import synthesis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from low_bits import cnv, four_convolutions, low_bit_network

PAGE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "multipliers.md"
FRAMES = 3

INTRODUCTION = """# Products in DSP slices and in LUTs

How much faster is a network if LUTs multiply, too? `python bench/multipliers.py` measures this and writes the page.

*slices only* is the latency or interval in cycles with `--multipliers dsp --macs-per-dsp auto`. The other columns are
of `--multipliers auto`, which plans at most 80 % of the board's LUTs by estimate. Each plan runs in Verilator: all
outputs equal the golden model, and all cycles are as predicted. Yosys counts DSP slices and LUTs. The boards are
ZedBoard and, for cnv-1, PYNQ-Z2, with 220 slices and 53,200 LUTs each.
"""

NETWORKS = """
The first three networks are [MLPerf Tiny's](tiny.md). four-4 and four-8 are four 3x3 convolutions of 4 and 8 bits,
low-4 and low-2 a small CNN, and cnv-1 is FINN's CNV with binary weights and activations. All weights are random.
"""


@dataclass(frozen=True)
class Case:
    """Plan that is measured: a network, a board, and an objective."""

    name: str
    board: str
    objective: str
    source: Callable[[], str | onnx.ModelProto]

    @property
    def key(self) -> str:
        """Name of the case in a file of results."""
        return f"{self.name}, {self.objective}"


def builtin(name: str) -> Callable[[], str]:
    """Return a function that returns the name of a built-in network."""
    return lambda: name


CASES = (
    *(
        Case(name, "zedboard", objective, builtin(name))
        for name in ("resnet8", "dscnn", "mobilenetv1-0.25")
        for objective in ("interval", "latency")
    ),
    Case("four-4", "zedboard", "interval", lambda: four_convolutions(4)),
    Case("four-8", "zedboard", "interval", lambda: four_convolutions(8)),
    Case("low-4", "zedboard", "interval", lambda: low_bit_network("qonnx", 4).model()),
    Case("low-2", "zedboard", "interval", lambda: low_bit_network("qonnx", 2).model()),
    Case("cnv-1", "pynq-z2", "interval", lambda: cnv(1)),
)


@dataclass(frozen=True)
class Figures:
    """Figures of one case: cycles of both plans, and the resources of the plan with products in LUTs."""

    name: str
    board: str
    objective: str
    slices_alone: int
    """Interval or latency (by the objective) in cycles, if all products are in DSP slices."""
    interval: int
    latency: int
    dsp: int
    bram36: float
    lut: int
    estimated: int
    """LUTs by the plan's estimate."""


def measure(case: Case, with_synthesis: bool) -> Figures:
    """Plan, simulate, compare, and count."""
    model = loaded(case)
    alone = model.plan(case.board, multipliers="dsp", macs_per_dsp="auto", objective=case.objective)
    design = model.plan(case.board, multipliers="auto", objective=case.objective)
    frames = np.random.default_rng(1).uniform(-1, 1, (FRAMES, *model.network.input.shape)).astype(np.float32)
    result = design.simulate(frames, simulator="verilator")
    if result.mismatches or not result.as_predicted:
        raise SystemExit(f"{case.key}: {result.summary()}")
    assert result.interval is not None
    print(f"{case.key}: {result.summary()}", file=sys.stderr, flush=True)
    cycles = alone.latency if case.objective == "latency" else alone.interval
    assert cycles is not None
    used = synthesised(design) if with_synthesis else design.plan.resources
    return Figures(
        name=case.name,
        board=case.board,
        objective=case.objective,
        slices_alone=cycles,
        interval=result.interval,
        latency=result.latency,
        dsp=used.dsp,
        bram36=used.bram36,
        lut=used.lut,
        estimated=design.plan.resources.lut,
    )


def loaded(case: Case) -> hwgen.Model:
    """Return the network of a case."""
    source = case.source()
    if isinstance(source, str):
        return hwgen.load(source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{case.name}.onnx")
        onnx.save(source, path)
        return hwgen.load(path)


def synthesised(design: Design) -> Resources:
    """Return the resources of a design by Yosys. Fail if the board has fewer."""
    measured = sum((row.measured for row in synthesis.synthesise(design.config).rows), Resources())
    board, name = design.board, design.network.name
    if measured.lut > board.lut or measured.dsp > board.dsp or measured.bram36 > board.bram36:
        raise SystemExit(f"{name}: Yosys finds {measured}, more than {board.name} has")
    return measured


def row(figures: Figures) -> str:
    """Return the table row of a case."""
    reached = figures.latency if figures.objective == "latency" else figures.interval
    cells = [figures.name, figures.objective, f"{figures.slices_alone:,}", f"{reached:,}"]
    cells += [f"{figures.slices_alone / reached:.1f}", f"{figures.dsp}", f"{figures.lut:,}", f"{figures.estimated:,}"]
    return "| " + " | ".join(cells) + " |"


def page(figures: Sequence[Figures]) -> str:
    """Return the text of the page."""
    titles = ["network", "objective", "slices only", "with LUTs", "ratio", "DSP", "LUT", "estimated"]
    lines = [INTRODUCTION, f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *map(row, figures), NETWORKS]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(dict.fromkeys(case.name for case in CASES))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {names}; all by default")
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    parser.add_argument("--no-synthesis", action="store_true", help="the plan's estimates in place of Yosys's figures")
    parser.add_argument("--results", type=Path, help="JSON file that keeps the figures of finished cases")
    arguments = parser.parse_args()
    kept: dict[str, Any] = {}
    if arguments.results and arguments.results.exists():
        kept = json.loads(arguments.results.read_text())
    figures = []
    for case in (case for case in CASES if not arguments.names or case.name in arguments.names):
        if case.key not in kept:
            kept[case.key] = asdict(measure(case, not arguments.no_synthesis))
            if arguments.results:
                arguments.results.write_text(json.dumps(kept, indent=2) + "\n")
        figures.append(Figures(**kept[case.key]))
    text = page(figures)
    if arguments.print or arguments.names or arguments.no_synthesis:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
