"""Resources of the engine's components by Yosys, beside their estimates, and the worst logic delay of each.

Usage: python bench/engine_resources.py [--maps N] [--pixels N] [--lut-pixels N] [--requantisers N] [--bus-bits N]
       [--cores N] [--no-paths] [--json FILE]

The default engine takes some minutes, most of them for the array. Exit status 1 if DSP slices or block RAM differ from
the estimate, LUTs or flip-flops differ by more than a tenth, or a delay exceeds 3.3 ns.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import isclose
from pathlib import Path

from hwgen import progress
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.tools import synthesis

TOLERANCE, SMALL = 0.1, 12
"""Permitted errors of LUTs and flip-flops: a fraction, or a number for small components."""
LONGEST_NS = 3.3
"""Maximum logic delay between registers."""


def is_close(estimate: Resources, measured: Resources) -> bool:
    """Whether an estimate has the measured DSP slices and block RAM, and LUTs and flip-flops within the tolerance."""
    return (estimate.dsp, estimate.bram36) == (measured.dsp, measured.bram36) and all(
        isclose(first, second, rel_tol=TOLERANCE, abs_tol=SMALL)
        for first, second in ((estimate.lut, measured.lut), (estimate.ff, measured.ff))
    )


def main() -> None:
    default = EngineConfig()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, default=default.maps)
    parser.add_argument("--pixels", type=int, default=default.pixels)
    parser.add_argument("--lut-pixels", type=int, default=default.lut_pixels)
    parser.add_argument("--requantisers", type=int, default=default.requantisers)
    parser.add_argument("--bus-bits", type=int, default=8 * default.bus_bytes)
    parser.add_argument("--cores", type=int, default=default.cores)
    parser.add_argument("--no-paths", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = ("maps", "pixels", "lut_pixels", "requantisers", "cores")
    sizes = {name: getattr(arguments, name) for name in names}
    design = EngineDesign(engine=EngineConfig(**sizes, bus_bytes=arguments.bus_bits // 8))
    with progress.told(lambda step: print(step, flush=True)):
        report = synthesis.synthesise(design, with_paths=not arguments.no_paths)
    print(report.table())
    whole = design.resources
    print(f"with what joins them, as estimated: LUT {whole.lut:,}, FF {whole.ff:,}")
    if not arguments.no_paths:
        print(report.path_table())
    if arguments.json:
        arguments.json.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    missed = [
        row.name
        for row in report.rows
        if not is_close(row.estimate, row.measured) or (row.path is not None and row.path.delay > LONGEST_NS)
    ]
    if missed:
        sys.exit(f"beyond the marks: {', '.join(missed)}")


if __name__ == "__main__":
    main()
