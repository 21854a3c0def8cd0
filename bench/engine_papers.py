"""Papers' claims on tiles and buffers, tried on the engine: in Verilator, every value, cycle and byte as predicted.

Usage: python bench/engine_papers.py cecconi [--json FILE] [LAYER ...]
       python bench/engine_papers.py peemen [--json FILE] [--jobs N] [MEMORY ...]

``cecconi``: FlowNetS conv3_1 to conv5_1 with optimal tiles and with naive ones that fill the same buffers, and both
with double and with single buffering. Naive tiles, as in the paper, only fill 80 % of the buffers: the median, by words
moved, of the compiler's tilings that do so.

``peemen``: Table I, layer 3 of the speed-sign network with each buffer size, on an engine whose compiler takes no more
of its buffers, by the tiles that `bench/stationary.py` finds. An access is a value of the input, a weight or an
output that goes over the port, padding of blocks included; jobs, biases and scales are not counted, as in the paper,
but listed. A buffer holds inputs, weights and partial sums, as in the paper; once more without the sums, which stay in
the engine's elements. If a schedule has more than ``--jobs`` jobs, only a band of rows runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import stationary
from engine import is_right, run_frames
from engine_nests import words

import hwgen
from hwgen.blocking import peemen
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.job import Job
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.given_tilings import box_words
from hwgen.program.maps import fused_layers
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import Estimator, Room, Tiling, TilingCost, candidates
from hwgen.report.table import columns
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.verilog.emitted import engine_files

#: Output maps at once of the engines that Table I is run on.
ARRAYS = (8, 16, 24, 48)
CECCONI = ("conv3_1", "conv4", "conv4_1", "conv5", "conv5_1")
#: Smallest fraction of the buffers that naive tiles fill.
NAIVE_FILL = 0.8
#: Cycles per word of slower memories, whose cycles are predicted, not simulated.
PACES = (2, 4)


def alone(name: str, network: str) -> Network:
    """Return a network that consists of one layer of another network."""
    layer: Op = next(each for each in hwgen.load(network).network.layers if each.name == name)
    return Network(name=name, layers=(layer,))


def tasks_of(network: Network) -> tuple[Pass, ...]:
    """Return the passes of a single layer on the engine: one, or one for each group."""
    (step,) = fused_layers(network)
    return passes(step.ops, step.takes, step.inside)


def random_frame(network: Network) -> np.ndarray:
    kind = network.input.type
    return np.random.default_rng(1).integers(kind.minimum, kind.maximum + 1, network.input.shape).astype(kind.dtype)


def fill(cost: TilingCost, config: EngineConfig) -> float:
    """Return the fraction of the map and weight buffers together that a tiling fills."""
    maps, weights = config.pixels * LANES, CHAIN * config.maps
    held = cost.map_words * maps + cost.weight_steps * weights
    return held / (config.map_words * maps + config.weight_steps * weights)


def tiles_of(task: Pass, config: EngineConfig) -> list[tuple[Tiling, TilingCost]]:
    """Return all tilings that the compiler compares, with their costs, sorted by the words that they move."""
    room = Room.whole(config)
    estimator, table = Estimator(task, config, room), candidates(task, config, room)
    tilings = [table.tiling(index) for index in range(len(table.rows))]
    found = [(tiling, cost) for tiling in tilings if (cost := estimator.cost(tiling))]
    return sorted(found, key=lambda each: (each[1].words, each[1].jobs))


def optimal_and_naive(task: Pass, config: EngineConfig) -> dict[str, tuple[Tiling, TilingCost]]:
    found = tiles_of(task, config)
    full = [each for each in found if fill(each[1], config) >= NAIVE_FILL]
    return {"optimal": found[0], "kindest": full[0], "naive": full[len(full) // 2], "worst": full[-1]}


def traffic_regions(compiled: ProgramSchedule) -> dict[str, tuple[int, int]]:
    """Return the address ranges of the operands in a schedule of one layer."""
    (source,), (output,) = compiled.inputs, compiled.outputs
    regions = {
        "jobs": (0, len(compiled.jobs) * Job.BYTES),
        "input": (source.address, source.address + source.size),
        "output": (output.address, output.address + output.size),
    }
    for index, work in enumerate(compiled.tiled_passes):
        regions[f"weights{index}"] = (work.data.weights, work.data.parameters)
    return regions


def on_engine(compiled: ProgramSchedule, circuit: dict[str, bytes], timing: MemoryTiming) -> dict[str, Any]:
    """Simulate a frame of a single layer, and return its figures with the bytes of each operand."""
    row = run_frames(compiled, random_frame(compiled.network)[None], circuit, timing, traffic_regions(compiled))
    moved = {name: read + written for name, (read, written) in row.pop("regions").items()}
    moved["weights"] = sum(moved.pop(name) for name in [*moved] if name.startswith("weights"))
    right = is_right(row)
    state = "as predicted, all values right" if right else "NOT right"
    print(f"  {row['network']}: {row['cycles']:,} cycles, {state}, {row['wall_s']} s", file=sys.stderr, flush=True)
    return {**row, **moved, "moved": row["read"] + row["written"], "right": right}


def cecconi(names: Sequence[str]) -> list[dict[str, Any]]:
    config, timing, rows = EngineConfig(), MemoryTiming(), []
    circuit = engine_files(config)
    for name in names:
        network = alone(name, "flownets")
        chosen = optimal_and_naive(tasks_of(network)[0], config)
        range_of = {f"{kind}_words": cost.words for kind, (_, cost) in chosen.items()}
        for kind in ("optimal", "naive"):
            tiling, cost = chosen[kind]
            for double in (True, False):
                found = schedule(network, config, double_buffered=double, tilings={name: tiling})
                row = on_engine(found, circuit, timing)
                told = {"tiles": kind, "double": double, "fill": fill(cost, config), **range_of}
                slower = {
                    str(pace): EngineSchedule(config, found.jobs, MemoryTiming(pace=pace)).run() for pace in PACES
                }
                told["predicted_at_pace"] = {pace: each.cycles for pace, each in slower.items()}
                rows.append({"layer": name, **told, **row, "tiling": repr(tiling)})
    return rows


def cecconi_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of optimal and naive tiles with double and single buffers."""
    head = ("layer", "tiles", "full", "bytes", "x", "double", "single", "double / single", "right")
    lines: list[tuple[str, ...]] = [head]
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        least = next(each["moved"] for each in rows if each["layer"] == first["layer"] and each["tiles"] == "optimal")
        right = "yes" if first["right"] and second["right"] and first["moved"] == second["moved"] else "no"
        figures = (f"{first['moved']:,}", f"{first['moved'] / least:.2f}")
        cycles = (f"{first['cycles']:,}", f"{second['cycles']:,}", f"{first['cycles'] / second['cycles']:.2f}")
        lines.append((first["layer"], first["tiles"], f"{first['fill']:.0%}", *figures, *cycles, right))
    total = {key: sum(row[key[2]] for row in rows if (row["tiles"], row["double"]) == key[:2]) for key in _TOTALS}
    for kind in ("optimal", "naive"):
        moved, double, single = (total[key] for key in _TOTALS if key[0] == kind)
        figures = (f"{moved:,}", f"{moved / total['optimal', True, 'moved']:.2f}")
        lines.append(("all", kind, "", *figures, f"{double:,}", f"{single:,}", f"{double / single:.2f}", ""))
    return "\n".join(columns(lines, rules=(1,)))


_TOTALS = [
    (kind, double, what)
    for kind in ("optimal", "naive")
    for double, what in ((True, "moved"), (True, "cycles"), (False, "cycles"))
]


def band(network: Network, rows: int) -> Network:
    """Return a layer without padding, cut to the first ``rows`` rows of its output."""
    (layer,) = network.layers
    assert not any(layer.window.padding)
    height = (rows - 1) * layer.window.stride[0] + layer.window.extent[0]
    source, output = (replace(each, height=size) for each, size in ((layer.input, height), (layer.output, rows)))
    return replace(network, layers=(replace(layer, input=source, output=output),))


def found_tile(memory: int, *, sums: bool) -> tuple[int, stationary.Tile] | None:
    """Return the number of maps of the best array, and its tile; ``None`` if the memory holds no tile."""
    found = []
    for maps in ARRAYS:
        try:
            found.append((maps, stationary.optimise(peemen.layer(), memory, an_array(maps), sums=sums)))
        except PlanError:
            continue
    return min(found, key=lambda each: each[1].words, default=None)


def an_array(maps: int) -> stationary.Array:
    config = EngineConfig(maps=maps)
    return stationary.Array(maps=maps, channels=LANES, pixels=config.slots // 2 * config.pixels)


def as_tiling(tile: stationary.Tile) -> Tiling:
    """Return the tiling of the engine for a stationary tile."""
    return Tiling(
        rows=tile.rows,
        columns=tile.columns,
        box_rows=tile.rows,
        channels=tile.channels,
        taps=tile.taps,
        tap_columns=tile.tap_columns,
        maps_stay=tile.maps_stay,
        by_taps=tile.kind == "row",
        rolling=tile.kind == "rolling",
    )


def reaching(accesses: int, *, sums: bool) -> int:
    """Return the smallest memory, in words, that lets the engine move at most ``accesses`` words."""
    low, high = min(peemen.MEMORIES), 4 * max(peemen.MEMORIES)
    while low + 1 < high:
        middle = (low + high) // 2
        found = found_tile(middle, sums=sums)
        enough = found is not None and found[1].words <= accesses
        low, high = (low, middle) if enough else (middle, high)
    return high


def table_one(memories: Sequence[int], max_jobs: int) -> list[dict[str, Any]]:
    whole, macs = alone("conv3", "speed-sign"), peemen.layer().macs
    optima = peemen.optimise(peemen.layer(), peemen.MEMORIES)
    published: dict[int, peemen.TileSchedule] = dict(zip(peemen.MEMORIES, optima, strict=True))
    circuits: dict[int, dict[str, bytes]] = {}
    rows: list[dict[str, Any]] = []
    for sums in (True, False):
        for memory in memories:
            paper = published[memory].accesses
            row = {"memory": memory, "sums": sums, "paper": paper / macs, "reached": reaching(paper, sums=sums)}
            found = found_tile(memory, sums=sums)
            if found is not None:
                maps, tile = found
                row |= {"maps": maps, "tile": repr(tile), "held": tile.held, "counted": tile.words / macs}
                config = EngineConfig(maps=maps)
                circuits[maps] = circuits.get(maps) or engine_files(config)
                row |= on_part(whole, config, tile, max_jobs, circuits[maps])
            rows.append(row)
    return rows


def on_part(
    whole: Network, config: EngineConfig, tile: stationary.Tile, max_jobs: int, circuit: dict[str, bytes]
) -> dict[str, Any]:
    """Simulate a tile on the engine, on as many rows of the layer as at most ``max_jobs`` jobs compute."""
    problem, tiling = peemen.layer(), as_tiling(tile)
    chunks = -(-problem.Fh // tile.taps) * -(-problem.Fw // tile.tap_columns)
    folds = problem.groups * -(-problem.K // config.maps)
    jobs_a_row_of_tiles = chunks * folds * -(-problem.X // tile.columns)
    height = min(problem.Y, max(1, max_jobs // jobs_a_row_of_tiles) * tile.rows)
    network = band(whole, height)
    task = tasks_of(network)[0]
    steps_held = tile.channels // CHAIN * tile.taps * tile.tap_columns
    room = Room(map_words=box_words(task, config, tiling), weight_steps=steps_held)
    found = schedule(network, config, double_buffered=False, tilings={task.name: tiling}, room=room)
    row = on_engine(found, circuit, MemoryTiming())
    moved = row["input"] + row["weights"] + row["output"]
    counted = sum(sum(words(each, config, tiling).values()) for each in tasks_of(network))
    figures = {"rows": height, "accesses": moved, "as_counted": counted, "measured": moved / row["macs"]}
    return row | figures | {"jobs_count": len(found.jobs)}


def table_one_table(rows: Sequence[dict[str, Any]]) -> str:
    head = ("buffer", "with", "paper", "engine", "held", "maps", "rows run", "measured there", "counted there")
    lines: list[tuple[str, ...]] = [(*head, "reaches the paper with", "right")]
    for row in rows:
        names = (f"{row['memory']:,}", "sums" if row["sums"] else "no sums", f"{row['paper']:.4f}")
        reached = f"{row['reached']:,}"
        if "tile" not in row:
            lines.append((*names, "no tile", "", "", "", "", "", reached, ""))
            continue
        held = row["held"]
        parts = [held["input"], held["weights"], *([held["sums"]] if row["sums"] else [])]
        figures = (f"{row['counted']:.4f}", " + ".join(map(str, parts)), str(row["maps"]), str(row["rows"]))
        measured = (f"{row['accesses']:,}", f"{row['as_counted']:,}")
        lines.append((*names, *figures, *measured, reached, "yes" if row["right"] else "no"))
    return "\n".join(columns(lines, rules=(1,)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paper", choices=["cecconi", "peemen"])
    parser.add_argument("which", nargs="*", metavar="LAYER or MEMORY")
    parser.add_argument("--jobs", type=int, default=30_000, help="peemen: jobs of a run at most (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.paper == "cecconi":
        rows = cecconi(arguments.which or CECCONI)
        print(cecconi_table(rows))
    else:
        rows = table_one([int(each) for each in arguments.which] or peemen.MEMORIES, arguments.jobs)
        print(table_one_table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.get("right", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
