"""Write docs/figures/resources.md: estimated resources of layers of different shape beside those that Yosys finds.

Usage: python bench/resources.py [NAME ...]     (with names: these layers only, component by component, no page)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from resource_layers import DILATED, FITTED, SHAPES, TILED, TILED_FITTED, Shape, config_of

from hwgen.templates.pyramid_tiles import RECOMPUTE
from hwgen.tools import synthesis

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures" / "resources.md"

TEXT = """# Resources: estimated and synthesised

How close are a plan's resource estimates to Yosys' results, and how long are the logic paths?
`python bench/resources.py` measures layers of different shapes and writes this page; do not edit it.

A plan states DSP slices, block RAM, LUTs and flip-flops. Each component's configuration computes them without synthesis
(`resources` in `hwgen/gateware/`). DSP slices, block RAM and registers follow from the component's structure. LUTs are
counted for memories, multiplexers, adders and tables, and fitted for control logic. `hwgen synth` runs Yosys and shows
both for each component (extra `synth`: `pip install -e '.[synth]'` in the source folder):

```sh
hwgen synth examples/digits/digits.onnx --board zedboard --multipliers dsp --json synth.json
```

Components are synthesised separately (`synth_xilinx -family xc7 -flatten -noiopad`). LUTs include inverters, shift
registers and LUT RAM; a RAMB18E1 counts as half a BRAM36. Vivado's figures differ, because placement and routing can
merge LUTs in pairs and copy registers.

The tables show only layers that the estimates were not fitted to; {fitted} other layers, and {tiled_fitted} with tiles,
served for that. (The layers with two MACs per DSP were used for the coefficients of packed products.) Weights are
random, buffers the planner's; equal layers differ in their unroll factors.
DSP slices and block RAM are exact in every component{exact}. The column *error* compares
the estimate with Yosys: median {lut_median:.1%} and at most {lut_worst:.1%} for LUTs, median {ff_median:.1%}
and at most {ff_worst:.1%} for flip-flops. The worst logic delay of all layers is
{slowest:.2f} ns ([Paths](#paths)).

{table}

Layers that work in tiles ([Pyramids](../explanation/pyramids.md)):

{tiled}

Layers with dilated windows (d: rows and columns between taps):

{dilated}

## Paths

`hwgen synth --paths` also prints each component's worst logic delay and its path. `--json` has it as `path`:
`{{"delay_ns", "from", "to"}}`, or `null` if there are only wires.

```sh
hwgen synth examples/digits/digits.onnx --board zedboard --multipliers dsp --paths
```

Yosys' timing analysis (`sta`) adds cell delays of 7-series devices: 0.30 ns from the clock to a flip-flop's output,
2.45 ns to a block RAM's output, 0.13 to 0.64 ns per LUT, and 0.32 ns of setup at a DSP slice. It excludes wires, which
take about as long again, so the delay does not give a clock frequency. Paths between components end at the ports. `sta`
also follows unused bits of carry chains, so a reported delay can be slightly too long.

The project's limit is 3.3 ns per component; `python bench/performance.py paths` measures it for the digits, for the
seven layers of VGG-16 with one and two MACs per slice, and for a pyramid.
"""


def describe(shape: Shape) -> str:
    kernel = f"{shape.kernel[0]}x{shape.kernel[1]}"
    if shape.dilation != (1, 1):
        kernel += f" d {shape.dilation[0]}x{shape.dilation[1]}"
    stride = "" if shape.stride == (1, 1) else f" / {shape.stride[0]}"
    groups = "" if shape.groups == 1 else f", {shape.groups} groups"
    pool = "pool " if shape.kind == "maxpool" else ""
    weights = ", 8-bit weights" if shape.bits > 8 and shape.max_weight < 128 else ""
    bits = "" if shape.bits == 8 else f", {shape.bits} bits{weights}"
    return (
        f"{pool}{kernel}{stride}, {shape.channels} -> {shape.outputs}{groups}, {shape.size[0]} x {shape.size[1]}"
        f"{', padded' if any(shape.padding) else ''}{', two MACs per DSP' if shape.macs_per_dsp == 2 else ''}{bits}"
        f"{tiles(shape)}"
    )


def tiles(shape: Shape) -> str:
    if shape.tip is None:
        return ""
    pixels = "" if shape.pixels == 1 else f", {shape.pixels} pixels per beat"
    return f"; tip {shape.tip[0]} x {shape.tip[1]}{', recomputed' if shape.overlap == RECOMPUTE else ''}{pixels}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    if names:
        for shape in SHAPES + TILED + DILATED:
            if shape.name in names:
                print(synthesised(shape).table())
        return
    errors: dict[str, list[float]] = {"lut": [], "ff": []}
    different: list[str] = []
    delays: list[float] = []
    table = table_of(SHAPES, FITTED, errors, different, delays)
    tiled = table_of(TILED, TILED_FITTED, errors, different, delays)
    dilated = table_of(DILATED, 0, errors, different, delays)
    page = TEXT.format(
        fitted=FITTED,
        tiled_fitted=TILED_FITTED,
        slowest=max(delays),
        exact="" if not different else f", but for {', '.join(different)}",
        table=table,
        tiled=tiled,
        dilated=dilated,
        lut_median=statistics.median(errors["lut"]),
        lut_worst=max(errors["lut"]),
        ff_median=statistics.median(errors["ff"]),
        ff_worst=max(errors["ff"]),
    )
    PAGE.write_text(page, encoding="utf-8")
    print(page)


def synthesised(shape: Shape) -> synthesis.Synthesis:
    began = time.monotonic()
    result = synthesis.synthesise(config_of(shape), with_paths=True)
    slowest = max(result.rows, key=delay_of)
    print(f"{shape.name}: {time.monotonic() - began:.0f} s; {slowest.name}: {slowest.path}", file=sys.stderr)
    return result


def delay_of(row: synthesis.ComponentRow) -> float:
    """Return the worst logic delay of a component in ns, 0 where there are only wires."""
    return row.path.delay if row.path else 0.0


def table_of(
    shapes: Sequence[Shape], fitted: int, errors: dict[str, list[float]], different: list[str], delays: list[float]
) -> str:
    """Return the table with a row for each layer after the first ``fitted`` ones, which the estimates were fitted to.

    Adds to the relative ``errors`` of these rows, to the components whose DSP slices or block RAM are ``different``,
    and to all layers' worst logic ``delays``.
    """
    head = ("layer", "LUT", "error", "FF", "error")
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for number, shape in enumerate(shapes):
        result = synthesised(shape)
        measured, expected = result.measured, result.estimate
        different += [
            row.name
            for row in result.rows
            if (row.measured.dsp, row.measured.bram36) != (row.estimate.dsp, row.estimate.bram36)
        ]
        delays.append(max(map(delay_of, result.rows)))
        if number < fitted:
            continue
        cells = [describe(shape)]
        for kind in errors:
            truth, guess = measured.as_dict()[kind], expected.as_dict()[kind]
            errors[kind].append(abs(guess / truth - 1))
            cells += [f"{truth:,}", f"{guess / truth - 1:+.1%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
