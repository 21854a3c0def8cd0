"""The reference layer: cycles, LUTs, DSP slices and block RAM with five amounts of hardware, beside FINN's.

Usage: python bench/reference_layer.py [--json FILE] [ROW ...]

3 x 3, 16 -> 16 channels, 32 x 32, padded by 1, uint8 activations, int8 weights (uniform in -127 .. 127 without 0 and
powers of two, seed 0), accumulators out. Each row is the accelerator of this one layer, whole: line buffer, weights,
multipliers, accumulators, bias and output FIFO. Yosys synthesises it (``synth_xilinx -family xc7 -flatten``), with the
weights in LUTs and again in block RAM; the cycles are Verilator's, of three random frames, every output compared with
the golden model. Fails if an output or a cycle count is not as planned, a limit is missed by both ways to hold the
weights, a DSP slice lacks MREG or PREG, or a path between registers has more than 4 LUTs, one carry chain (two if
products are in LUTs), or 32 carries.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from netlist import Length, synthesise

from hwgen import simulate
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv
from hwgen.schedule.buffers import ample_rows, sizes_of
from hwgen.schedule.solve import Schedule
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers

#: Largest block RAM of each row, and largest LUTs and carry bits of each path.
MAX_BRAM, MAX_LUTS, MAX_CARRIES = 32, 4, 32


@dataclass(frozen=True, kw_only=True)
class Row:
    """Unroll factors of one implementation, its limits, and FINN's RTL (same layer and tools, weights in LUTs)."""

    multipliers: int
    macs_per_dsp: int
    tn: int
    tm: int
    tk: int
    cycles: int
    lut: int
    dsp: int
    first: int | None = None
    finn: str = ""
    lut_lanes: int = 0
    max_chains: int = 1

    @property
    def name(self) -> str:
        """Number of multipliers, and of multiply-adds per DSP slice (or ``lut``), as text."""
        return f"{self.multipliers}x{'lut' if self.lut_lanes else self.macs_per_dsp}"

    @property
    def label(self) -> str:
        """Number of multipliers, and of multiply-adds per DSP slice (or "in LUTs"), as cells of the tables."""
        return f"{self.multipliers:,}, {'in LUTs' if self.lut_lanes else self.macs_per_dsp}"


ROWS = (
    Row(
        multipliers=16, macs_per_dsp=1, tn=16, tm=1, tk=1, cycles=147_456, lut=1_100, dsp=16,
        finn="147,456 cycles, 1,409 LUT, 16 DSP",
    ),
    Row(multipliers=256, macs_per_dsp=1, tn=16, tm=16, tk=1, cycles=9_216, lut=3_200, dsp=256),
    Row(
        multipliers=256, macs_per_dsp=2, tn=16, tm=16, tk=1, cycles=9_216, lut=4_200, dsp=128,
        finn="9,280 cycles, 9,598 LUT, 128 DSP",
    ),
    Row(
        multipliers=256, macs_per_dsp=1, tn=16, tm=16, tk=1, cycles=9_216, lut=16_000, dsp=0, lut_lanes=16,
        max_chains=2,
    ),
    Row(
        multipliers=2_304, macs_per_dsp=2, tn=16, tm=16, tk=9, cycles=1_024, lut=18_000, dsp=1_152, first=50,
        finn="1,157 cycles, 85,632 LUT, 1,152 DSP; first output 79",
    ),
)  # fmt: skip


def network() -> Network:
    """Return the network of the reference layer alone."""
    values = [value for value in range(-127, 128) if abs(value).bit_count() > 1]
    before = FeatureMap(channels=16, height=32, width=32, type=UINT8)
    layer = Conv(
        name="reference",
        input=before,
        output=replace(before, type=INT32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=np.random.default_rng(0).choice(values, (16, 16, 3, 3)),
        bias=np.zeros(16, np.int64),
        requantisation=None,
    )
    return Network(name="reference", layers=(layer,))


def configure(row: Row, weights_in: str | None = None) -> AcceleratorConfig:
    """Return the accelerator of a row, with buffers sized by the planner."""
    net = network()
    (layer,) = net.layers
    plan = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=row.tn,
        tm=row.tm,
        tk=row.tk,
        chain=16,
        line_rows=ample_rows(layer.window, layer.input.width, -(-layer.input.channels // row.tn)),
        fifo_depths=(256,),
        macs_per_dsp=row.macs_per_dsp,
        lut_lanes=row.lut_lanes,
    )
    sizes = sizes_of(compose(net, (plan,)))
    config = compose(net, with_buffers((plan,), sizes.rows, sizes.depths))
    (one,) = config.layers
    assert isinstance(one.compute, MultiplyConfig)
    return replace(config, layers=(replace(one, compute=replace(one.compute, weights_in=weights_in)),))


def run(row: Row) -> dict[str, Any]:
    """Cycles in Verilator, checked: interval, latency of a frame, and its first output.

    The simulation gives a frame's last output; the schedule, which agrees with it, the first one too.
    """
    config, net = configure(row), network()
    frames = np.random.default_rng(1).integers(0, 256, (3, *net.input.shape), dtype=np.uint8)
    schedule = Schedule(config, len(frames))
    schedule.solve()
    result = simulate.run(config, frames)
    if not np.array_equal(result.outputs, golden.run(net, frames)):
        raise SystemExit(f"{row.name}: an output differs from the golden model")
    begin = int(schedule.taken[0][0])
    planned = [int(end) - begin for end in schedule.frame_ends]
    seen = [end - result.first_input for end in result.frame_ends]
    if seen != planned:
        raise SystemExit(f"{row.name}: frames end after {seen} cycles, not {planned}")
    return {"interval": result.interval, "latency": result.latency, "first": int(schedule.taken[-1][0]) - begin}


def build(row: Row, weights_in: str) -> dict[str, Any]:
    """Return resources and paths of a row by Yosys; only the block RAM count if its weights need far too many."""
    compute = configure(row).layers[0].compute
    assert isinstance(compute, MultiplyConfig)
    widths = compute.weight_words.rom_widths
    blocks = sum(compute.memories.block_rams(width, compute.rom_depth, placed=True) for width in widths)
    if weights_in == "block" and blocks > 2 * MAX_BRAM:
        return {"weights_in": weights_in, "bram36": blocks}
    netlist = synthesise(configure(row, weights_in))
    paths = netlist.paths()
    return {
        "weights_in": weights_in,
        **netlist.resources.as_dict(),
        "registered": netlist.slices_with("MREG", "PREG"),
        "cascaded": netlist.cascaded,
        "longest": asdict(reduce(Length.worst, paths.values())),
        "paths": {name: asdict(length) for name, length in paths.items()},
    }


def measure(row: Row) -> dict[str, Any]:
    """Cycles, and resources with the weights in LUTs and in block RAM."""
    result: dict[str, Any] = {"row": asdict(row), **run(row), "builds": []}
    for weights_in in ("lut", "block"):
        result["builds"].append(build(row, weights_in))
        print(f"{row.name}, weights in {weights_in}: done", file=sys.stderr, flush=True)
    return result


def fits(row: Row, one: dict[str, Any]) -> bool:
    """Whether a build is within the limits of resources."""
    return "lut" in one and one["lut"] <= row.lut and one["dsp"] <= row.dsp and one["bram36"] <= MAX_BRAM


def faults(row: Row, result: dict[str, Any]) -> list[str]:
    """Return texts of the expectations that a result misses."""
    misses = []
    if result["interval"] != row.cycles:
        misses.append(f"{row.name}: {result['interval']:,} cycles a frame, not {row.cycles:,}")
    if row.first is not None and result["first"] > row.first:
        misses.append(f"{row.name}: first output after {result['first']} cycles, not {row.first}")
    if not any(fits(row, one) for one in result["builds"]):
        misses.append(f"{row.name}: more than {row.lut:,} LUT, {row.dsp:,} DSP slices or {MAX_BRAM} RAMB36")
    for one in result["builds"]:
        if "lut" not in one:
            continue
        name = f"{row.name}, weights in {one['weights_in']}"
        if one["registered"] != one["dsp"]:
            misses.append(f"{name}: {one['dsp'] - one['registered']} DSP slices lack MREG or PREG")
        longest = Length(**one["longest"])
        if longest.luts > MAX_LUTS or longest.chains > row.max_chains or longest.bits > MAX_CARRIES:
            misses.append(f"{name}: paths with {longest}")
    return misses


def table(rows: list[Row], results: list[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    head = "multipliers, MACs per DSP|cycles|first output|weights|LUT|at most|FF|DSP|of them cascaded|RAMB36|FINN"
    lines = [f"| {head.replace('|', ' | ')} |", "|---" * 4 + "|---:" * 6 + "|---|"]
    for row, result in zip(rows, results, strict=True):
        for one in result["builds"]:
            cells = [row.label, f"{result['interval']:,}", str(result["first"])]
            if "lut" in one:
                cells += [one["weights_in"], f"{one['lut']:,}", f"{row.lut:,}", f"{one['ff']:,}", f"{one['dsp']:,}"]
                cells += [f"{one['cascaded']:,}", f"{one['bram36']:g}"]
            else:
                cells += [one["weights_in"], "-", f"{row.lut:,}", "-", "-", "-", f"{one['bram36']:g} for weights only"]
            lines.append(f"| {' | '.join([*cells, row.finn or '-'])} |")
    return "\n".join(lines)


def path_table(rows: list[Row], results: list[dict[str, Any]]) -> str:
    """Longest paths by component, of the builds with weights in LUTs; in Markdown."""
    lines = [
        "| multipliers, MACs per DSP | into | LUTs | carry chains | bits of carries |",
        "|---|---|---:|---:|---:|",
    ]
    for row, result in zip(rows, results, strict=True):
        for name, length in result["builds"][0]["paths"].items():
            if not any(length.values()):
                continue
            figures = " | ".join(str(value) for value in length.values())
            lines.append(f"| {row.label} | {name} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("row", nargs="*", help=f"of {', '.join(row.name for row in ROWS)} (default: all)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.row) - {row.name for row in ROWS}:
        parser.error(f"unknown row {', '.join(sorted(unknown))}; known: {', '.join(row.name for row in ROWS)}")
    rows = [row for row in ROWS if not arguments.row or row.name in arguments.row]
    results = [measure(row) for row in rows]
    print(table(rows, results), path_table(rows, results), sep="\n\n")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    if misses := [fault for row, result in zip(rows, results, strict=True) for fault in faults(row, result)]:
        raise SystemExit("\n".join(misses))


if __name__ == "__main__":
    main()
