"""The engine in front of memories of 64 to 1 bytes a cycle: cycles beside what compute or transfer takes alone.

Usage: python bench/engine_bandwidth.py [--measure] [--plot FILE] [--json FILE] [NETWORK ...]

For each network, width of the bus and pace (cycles of a beat) a program is made, whose cycles are those of the exact
schedule; with --measure they are also counted in Verilator, where every value and byte must be right. The bound beside
them is the sum of the longer of the array's and of the port's cycles: over all layers, as if each had the engine for
itself, and over all groups of layers that are computed side by side, which is less.
"""

from __future__ import annotations

import argparse
import json
import sys
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from engine import is_right, run_frames
from engine_transfers import fetched_jobs, loads, moved, stores

import hwgen
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network.quantise import prepare_inputs
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.report.picture import FORMATS, picture, picture_format
from hwgen.report.table import columns
from hwgen.schedule.engine import EngineSchedule, MemoryTiming, group_steps
from hwgen.verilog.emitted import engine_files

NETWORKS = ("alexnet", "mobilenetv1@64x64")
#: Bytes of the bus, and cycles of a beat.
MEMORIES = ((64, 1), (32, 1), (32, Fraction(3, 2)), (16, 1), (8, 1), (8, 2), (4, 1), (8, 4), (8, 8))
HEAD = ("network", "bus bits", "bytes a cycle", "array", "port", "by layers", "by groups", "cycles", "over", "over")
#: Keys of a row's figures, in the order of the table's columns.
FIGURES = ("array", "port", "by_layers", "by_groups", "cycles")


def bounds(compiled: ProgramSchedule, pace: Fraction | int) -> tuple[int, int, int, int]:
    """Return the cycles of the array, of the port, and of the longer of both, layer by layer and group by group."""
    array, port = ([0] * len(compiled.tiled_passes) for _ in range(2))
    for job, place in zip(compiled.jobs, compiled.owners, strict=True):
        drained = job.drain.blocks * job.drain.pixels
        array[place] += max(job.compute.groups * job.compute.folds * group_steps(job.compute), drained)
        transfers = [fetched_jobs(compiled.engine, 0, 0), *loads(compiled.engine, job.load), *stores(job.store)]
        port[place] += sum(max(beats, 2) for each in transfers for beats, _ in moved(compiled.engine, each))
    port = [ceil(pace * beats) for beats in port]
    groups = (max(sum(each[number] for number in group) for each in (array, port)) for group in compiled.groups)
    return sum(array), sum(port), sum(map(max, array, port)), sum(groups)


def row_of(name: str, width: int, pace: Fraction | int, *, measure: bool) -> dict[str, Any]:
    """Return the table row of a program for a bus of ``width`` bytes and a pace: its bounds and its cycles."""
    model, timing, config = hwgen.load(name), MemoryTiming.at(pace), EngineConfig(bus_bytes=width)
    compiled = schedule(model.network, config, pace=pace)
    cycles = START_CYCLES + EngineSchedule(compiled.engine, compiled.jobs, timing).run().cycles + DONE_CYCLES
    row: dict[str, Any] = {"network": name, "bus": width, "pace": float(pace)}
    row |= dict(zip(FIGURES, (*bounds(compiled, pace), cycles), strict=True))
    if measure:
        (frames,) = prepare_inputs(model.network, model.random_frames(1))
        run = run_frames(compiled, frames[:1], circuit_of(config), timing)
        row |= {"measured": run["cycles"], "right": is_right(run)}
    return row


@cache
def circuit_of(config: EngineConfig) -> dict[str, bytes]:
    return engine_files(config)


def rate(row: dict[str, Any]) -> float:
    """Return the memory bandwidth in bytes per cycle."""
    return row["bus"] / row["pace"]


def line(row: dict[str, Any]) -> tuple[str, ...]:
    figures = (f"{row[name]:,}" for name in FIGURES)
    over = (f"{row['cycles'] / row[name] - 1:.1%}" for name in ("by_layers", "by_groups"))
    measured = [f"{row['measured']:,}"] if "measured" in row else []
    memory = (f"{8 * row['bus']}", f"{rate(row):.4g}")
    return (row["network"], *memory, *figures, *over, *measured)


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    """Draw cycles and bounds over bytes per cycle, one plot per network.

    Of memories with the same bandwidth, only the one with the widest bus is drawn.
    """
    names = list(dict.fromkeys(row["network"] for row in rows))
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        those = list(
            {rate(row): row for row in sorted(rows, key=lambda row: row["bus"]) if row["network"] == name}.values()
        )
        those.sort(key=rate)
        width = [rate(row) for row in those]
        for what, style, text in (
            ("array", ":", "array alone"),
            ("port", "--", "port alone"),
            ("by_layers", "-", "the longer of both, layer by layer"),
            ("cycles", "o", "cycles"),
        ):
            axes.plot(width, [row[what] / 1e6 for row in those], style, label=text)
        axes.set(title=name, xlabel="bytes a cycle", ylabel="million cycles of a frame", xscale="log")
        axes.set_xticks(width, [f"{each:g}" for each in width])
        axes.set_ylim(bottom=0)
        axes.legend()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=NETWORKS)
    parser.add_argument("--measure", action="store_true", help="count cycles in Verilator, too")
    parser.add_argument("--plot", metavar="FILE", help=f"a picture: {' or '.join(FORMATS)}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    kind = picture_format(arguments.plot)
    rows = []
    for name in arguments.networks:
        for width, pace in MEMORIES:
            rows.append(row_of(name, width, pace, measure=arguments.measure))
            print("  ".join(line(rows[-1])), flush=True)
    head = (*HEAD, "measured") if arguments.measure else HEAD
    print("\n".join(["", *columns([head, *map(line, rows)], rules=(1,))]))
    if kind:
        title = "The engine, 8 maps by 13 pixels: cycles of a frame by memory bandwidth"
        Path(arguments.plot).write_bytes(picture(title, lambda figure: draw(figure, rows), kind, (11, 4.5)))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    right = all(row.get("right", True) and row.get("measured", row["cycles"]) == row["cycles"] for row in rows)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
