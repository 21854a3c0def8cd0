"""What papers claim of tiles and buffers, on the engine: in Verilator, every value, cycle and byte as predicted.

Usage: python bench/engine_papers.py cecconi [--json FILE] [LAYER ...]

``cecconi``: FlowNetS conv3_1 to conv5_1 with optimal tiles and with naive ones that fill the same buffers, and both
with double and with single buffering. Naive are tiles of which only is asked that they fill 80 % of the buffers, as the
paper's: of all the compiler's tilings that do, in order of the words that they move, the one in the middle.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from engine import is_right, run_frame

import hwgen
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.program.compile import Schedule, schedule
from hwgen.program.maps import steps
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import Cost, Estimator, Room, Tiling, candidates
from hwgen.report.table import columns
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine

CECCONI = ("conv3_1", "conv4", "conv4_1", "conv5", "conv5_1")
#: What part of the buffers naive tiles fill at least.
NAIVE_FILL = 0.8
#: Cycles of a word of slower memories, for which cycles are predicted only.
PACES = (2, 4)


def alone(name: str, network: str) -> Network:
    """A layer of a network by itself."""
    layer: Op = next(each for each in hwgen.load(network).network.layers if each.name == name)
    return Network(name=name, layers=(layer,))


def a_pass(network: Network) -> Pass:
    """The one that the engine makes of a layer by itself."""
    (step,) = steps(network)
    (task,) = passes(step.ops, step.edges, step.inside)
    return task


def random_frame(network: Network) -> np.ndarray:
    kind = network.input.type
    return np.random.default_rng(1).integers(kind.minimum, kind.maximum + 1, network.input.shape).astype(kind.dtype)


def fill(cost: Cost, config: EngineConfig) -> float:
    """The part of the map and of the weight buffer, together, that holds something at once."""
    maps, weights = config.pixels * LANES, config.maps
    held = cost.map_words * maps + cost.weight_steps * weights
    return held / (config.map_words * maps + config.weight_steps * weights)


def tiles_of(task: Pass, config: EngineConfig) -> list[tuple[Tiling, Cost]]:
    """All tilings that the compiler compares, by the words that they move."""
    room = Room.whole(config)
    estimator = Estimator(task, config, room)
    found = [(tiling, cost) for tiling in candidates(task, config, room) if (cost := estimator.cost(tiling))]
    return sorted(found, key=lambda each: (each[1].words, each[1].jobs))


def optimal_and_naive(task: Pass, config: EngineConfig) -> dict[str, tuple[Tiling, Cost]]:
    found = tiles_of(task, config)
    full = [each for each in found if fill(each[1], config) >= NAIVE_FILL]
    return {"optimal": found[0], "kindest": full[0], "naive": full[len(full) // 2], "worst": full[-1]}


def traffic_regions(found: Schedule) -> dict[str, tuple[int, int]]:
    """Where a schedule of one layer has its operands."""
    (work,) = found.works
    first, (output,) = work.data.weights, found.outputs
    return {
        "jobs": (0, first),
        "weights": (first, found.constants),
        "input": (found.input.address, found.input.address + found.input.size),
        "output": (output.address, output.address + output.size),
    }


def on_engine(found: Schedule, circuit: dict[str, bytes], timing: MemoryTiming) -> dict[str, Any]:
    """A frame of a layer by itself, with the bytes of each operand."""
    row = run_frame(found, random_frame(found.network), circuit, timing, traffic_regions(found))
    moved = {name: read + written for name, (read, written) in row.pop("regions").items()}
    print(f"  {row['network']}: {row['cycles']:,} cycles, {row['wall_s']} s", file=sys.stderr, flush=True)
    return {**row, **moved, "moved": row["read"] + row["written"], "right": is_right(row)}


def cecconi(names: Sequence[str]) -> list[dict[str, Any]]:
    config, timing, rows = EngineConfig(), MemoryTiming(), []
    circuit = engine.files(config)
    for name in names:
        network = alone(name, "flownets")
        chosen = optimal_and_naive(a_pass(network), config)
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
    """Optimal and naive tiles, double and single buffers."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paper", choices=["cecconi"])
    parser.add_argument("layers", nargs="*", metavar="LAYER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = cecconi(arguments.layers or CECCONI)
    print(cecconi_table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
