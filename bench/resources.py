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

How near are a plan's resources to those of synthesis, and how long are the paths of logic? `python bench/resources.py`
measures layers of different shape and writes this page; don't edit.

A plan states DSP slices, block RAM, LUTs and flip-flops. The configurations of the components compute them without
synthesis (`resources`, beside the hardware in `hwgen/gateware/`). DSP slices, block RAM and registers follow from how a
component is built. LUTs are counted where they are plain (memories, multiplexers, adders, tables), and fitted for
control logic. `hwgen synth` runs Yosys and shows both, component by component:

```sh
hwgen synth examples/digits/digits.onnx --board zedboard --multipliers dsp --json synth.json
```

(It needs the package's extra `synth`: `pip install -e '.[synth]'` in the folder of the sources.)

Every component is synthesised alone (`synth_xilinx -family xc7 -flatten -noiopad`), so nothing is shared or dropped
across its borders. The counts include LUT1 to LUT6 and inverters, shift registers and LUT RAM (in LUTs), all kinds of
flip-flops, DSP48E1, and RAMB36E1 with a RAMB18E1 as half of one. Vivado's own figures differ, because placement and
routing may merge LUTs in pairs and copy registers.

Below: layers of one network each, with random weights, between buffers as the planner sizes them. The coefficients of
the estimates were fitted with the first {fitted} at hand; those below the line had no part in them, except that the
packed ones (two MACs a DSP) were at hand for what only they have. DSP slices and block RAM are equal in
every component{exact}. ns is the worst logic delay of the layer's components ([Paths](#paths)): at most
{slowest:.2f} in all tables of this page.

{table}

Layers that work in tiles ([Pyramids](../explanation/pyramids.md)); the estimates of reuse buffers and tiles were fitted
with those above the line at hand, {tiled_fitted} of them:

{tiled}

Error of LUTs: median {lut_median:.1%}, worst {lut_worst:.1%};
of flip-flops: median {ff_median:.1%}, worst {ff_worst:.1%}.

Layers with dilated windows (d: rows and columns from tap to tap), for which nothing was fitted:

{dilated}

## Paths

`hwgen synth --paths` also prints the worst logic delay of each component and where it is, and `--json` has it as
`path` of each component: `{{"delay_ns", "from", "to"}}`, or `null` where there are but wires.

```sh
hwgen synth examples/digits/digits.onnx --board zedboard --multipliers dsp --paths
```

Yosys' timing analysis (`sta`) adds the delays of the cells on a path, with Yosys' figures for 7-series cells: 0.30 ns
from the clock to a flip-flop's output, 0.13 to 0.64 ns per LUT, 2.45 ns from the clock to a block RAM's output, 0.32 ns
of setup at a DSP slice's own input register. Wires are not included, and take about as long again. So the delay is no
clock period and gives no clock frequency. Paths inside a component are whole. A path into the next component is seen
only up to the port, or from the port on. `sta` also follows bits of carry chains that nothing uses. Such a delay is a
little more than that of any path that ends in a register.

The project's own limit is 3.3 ns in each component; `python bench/performance.py paths` measures it for the digits,
for the seven layers of VGG-16 with one and two multiply-adds a slice, and for one pyramid.
"""


def describe(shape: Shape) -> str:
    kernel = f"{shape.kernel[0]}x{shape.kernel[1]}"
    if shape.dilation != (1, 1):
        kernel += f" d {shape.dilation[0]}x{shape.dilation[1]}"
    stride = "" if shape.stride == (1, 1) else f" / {shape.stride[0]}"
    groups = "" if shape.groups == 1 else f", {shape.groups} groups"
    return (
        f"{kernel}{stride}, {shape.channels} -> {shape.outputs}{groups}, {shape.size[0]} x {shape.size[1]}"
        f"{', padded' if any(shape.padding) else ''}{', two MACs a DSP' if shape.macs_per_dsp == 2 else ''}"
        f"{tiles(shape)}"
    )


def tiles(shape: Shape) -> str:
    if shape.tip is None:
        return ""
    pixels = "" if shape.pixels == 1 else f", {shape.pixels} pixels a beat"
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
    dilated = table_of(DILATED, len(DILATED), {"lut": [], "ff": []}, different, delays)
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
    """Return the table of a row for each layer, with an empty one behind the ``fitted``.

    Adds to the relative ``errors``, to the components whose DSP slices or block RAM are ``different``, and to the
    layers' worst logic ``delays``.
    """
    head = ("layer", "shape", "Tn, Tm, Tk, Tp", "DSP", "BRAM36", "LUT", "est.", "error", "FF", "est.", "error", "ns")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * 3 + " ---: |" * (len(head) - 3)]
    for number, shape in enumerate(shapes):
        result = synthesised(shape)
        measured, expected = result.measured, result.estimate
        different += [
            row.name
            for row in result.rows
            if (row.measured.dsp, row.measured.bram36) != (row.estimate.dsp, row.estimate.bram36)
        ]
        cells = [shape.name, describe(shape), f"{shape.tn}, {shape.tm}, {shape.tk}, {shape.tp}"]
        cells += [str(measured.dsp), f"{measured.bram36:g}"]
        for kind in errors:
            truth, guess = measured.as_dict()[kind], expected.as_dict()[kind]
            errors[kind].append(abs(guess / truth - 1))
            cells += [f"{truth:,}", f"{guess:,}", f"{guess / truth - 1:+.1%}"]
        delays.append(max(map(delay_of, result.rows)))
        cells.append(f"{delays[-1]:.2f}")
        if number == fitted:
            lines.append("|" + " |" * len(head))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
