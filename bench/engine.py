"""Runs networks on one engine, in Verilator: values against the golden model, cycles and bytes against the schedule.

Usage: python bench/engine.py [--array MAPSxPIXELS] [--board BOARD [--cores N|auto]] [--frames N] [--json FILE]
       [NETWORK ...]

All networks run on the same Verilog, 8 maps by 13 pixels if no other array is asked for, in front of a memory of 8
bytes a cycle; without names those that fit minutes, the large ones at 64 x 64. With a board, engine and memory are
those that the board's plan has for the first network. Fails if a value, a cycle or a byte differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import hwgen
from hwgen import plan
from hwgen.boards import load as load_board
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network import golden
from hwgen.network.quantise import prepare_inputs
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import unpack_map
from hwgen.report.table import columns
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine
from hwgen.templates.engine import engine_group
from hwgen.verilog.emitted import engine_files

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = (
    str(ROOT / "examples" / "digits" / "digits.onnx"),
    "resnet8",
    "dscnn",
    "mobilenetv1-0.25",
    "autoencoder",
    "alexnet",
    "vgg16@64x64",
    "flownets@64x64",
    "speed-sign@96x160",
    "resnet18@64x64",
    "resnet50@64x64",
    "mobilenetv1@64x64",
    "mobilenetv2@64x64",
)
HEAD = ("network", "cycles", "as predicted", "MACs", "a cycle", "bytes read", "written", "values", "differ", "seconds")


def measured(
    name: str, circuit: dict[str, bytes], config: EngineConfig, timing: MemoryTiming, count: int = 1
) -> dict[str, Any]:
    """Return the figures of a run that computes random frames."""
    model = hwgen.load(name)
    (frames,) = prepare_inputs(model.network, model.random_frames(count))
    pace = Fraction(timing.pace, timing.pace_beats)
    return run_frames(schedule(model.network, config, pace=pace, frames=count), frames, circuit, timing)


def run_frames(
    compiled: ProgramSchedule,
    frames: np.ndarray,
    circuit: Mapping[str, bytes],
    timing: MemoryTiming,
    regions: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """Return measured and predicted figures of a run by a schedule, and the bytes moved in each region."""
    begin, network = time.monotonic(), compiled.network
    memory = bytearray(compiled.size)
    memory[: len(compiled.image)] = compiled.image
    (source,) = compiled.program.inputs
    for number, frame in enumerate(frames):
        memory[source.at(number)] = source.pack(frame)
    run = engine.run(circuit, bytes(memory), memory=engine.EngineMemory(timing=timing), regions=regions)
    predicted = EngineSchedule(compiled.engine, compiled.jobs, timing).run()
    differ = values = 0
    for region, wanted in zip(compiled.program.outputs, golden.outputs(network, frames), strict=True):
        ours = np.stack([unpack_map(run.image[region.at(number)], region.map) for number in range(len(frames))])
        differ += int(np.count_nonzero(ours != wanted))
        values += ours.size
    cycles = START_CYCLES + predicted.cycles + DONE_CYCLES
    macs = len(frames) * sum(layer.macs for layer in network.layers)
    return {
        "network": network.name,
        "cycles": run.cycles[0],
        "predicted": cycles,
        "macs": macs,
        "macs_per_cycle": round(macs / run.cycles[0], 1),
        "read": run.read,
        "predicted_read": int(predicted.read.sum()) + predicted.fetched,
        "written": run.written,
        "predicted_written": int(predicted.written.sum()),
        "values": values,
        "differ": differ,
        "regions": run.regions,
        "error": run.error.name,
        "wall_s": round(time.monotonic() - begin, 1),
    }


def is_right(row: dict[str, Any]) -> bool:
    same = all(row[of] == row[f"predicted{what}"] for of, what in (("cycles", ""), ("read", "_read")))
    return same and row["written"] == row["predicted_written"] and not row["differ"] and row["error"] == "NONE"


def line(row: dict[str, Any]) -> tuple[str, ...]:
    told = "yes" if row["cycles"] == row["predicted"] else f"{row['predicted']:,}"
    figures = (f"{row['macs']:,}", f"{row['macs_per_cycle']}", f"{row['read']:,}", f"{row['written']:,}")
    return (
        row["network"],
        f"{row['cycles']:,}",
        told,
        *figures,
        f"{row['values']:,}",
        f"{row['differ']:,}",
        f"{row['wall_s']}",
    )


def engine_of(arguments: argparse.Namespace) -> tuple[EngineConfig, MemoryTiming]:
    """Return engine and memory: those of the board's plan for the first network, or those of an array's shape."""
    maps, pixels = map(int, arguments.array.split("x"))
    if arguments.board is None:
        return EngineConfig(maps=maps, pixels=pixels), MemoryTiming()
    network, board = hwgen.load(arguments.networks[0]).network, load_board(arguments.board)
    sizes = {"cores": arguments.cores, "array": (maps, pixels), "bus_bits": board.bus_bits}
    group = engine_group(plan.make(network, board, template="engine", batch=arguments.frames, **sizes).groups[0])
    return group.engine, group.template.memory


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=NETWORKS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--array", default="8x13", metavar="MAPSxPIXELS")
    parser.add_argument("--board", help="board whose plan has the engine")
    parser.add_argument(
        "--cores",
        type=lambda text: text if text == "auto" else int(text),
        default=1,
        help="number of cores with --board, or auto",
    )
    parser.add_argument("--frames", type=int, default=1, help="frames that a run computes")
    arguments = parser.parse_args()
    config, timing = engine_of(arguments)
    circuit = engine_files(config)
    digest = hashlib.sha256(b"".join(circuit[name] for name in sorted(circuit))).hexdigest()
    print(f"one circuit: {len(circuit['engine.v'].splitlines()):,} lines of Verilog, sha256 {digest[:16]}", flush=True)
    rows = []
    for name in arguments.networks:
        rows.append(measured(name, circuit, config, timing, arguments.frames))
        print("  ".join(line(rows[-1])), flush=True)
    print("\n".join(["", *columns([HEAD, *map(line, rows)], rules=(1,))]))
    if arguments.json:
        arguments.json.write_text(json.dumps({"verilog": digest, "networks": rows}, indent=1) + "\n", encoding="utf-8")
    return 0 if all(map(is_right, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
