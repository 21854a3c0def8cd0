"""The engine beside a roofline: U-Nets, grouped and depthwise networks whose sizes don't suit the array.

Usage: python bench/engine_roofline.py [--measure] [--json FILE] [NETWORK ...]

The roofline counts convolutions only, each as if alone: the longer of its multiply-adds at 416 a cycle, and of the
bytes of its input, its weights and its output at 8 a cycle. Pools, Resize, Concat, additions, idle lanes, padded
channels and transfers that nothing hides are all above it. Cycles are those of the exact schedule; with --measure they
are also counted in Verilator, where every value and byte must be right.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from engine import is_right, run_frames

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv
from hwgen.network.quantise import quantise
from hwgen.network.zoo.drawing import SEED, Drawing
from hwgen.program.compile import schedule
from hwgen.report.table import columns
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.verilog.emitted import engine_files

HEAD = ("network", "roofline", "cycles", "ratio", "bound", "convolutions alone")


def _unet(width: int, *, transition: bool) -> Callable[[Drawing], str]:
    """Return a function that draws a U-Net of three levels whose first level has ``width`` maps.

    With a ``transition``, a 1 x 1 convolution halves the maps before they are repeated (Resize).
    """

    def draw(net: Drawing) -> str:
        here, skipped = "image", []
        for level in range(3):
            for number in (1, 2):
                here = net.conv(f"down{level}_conv{number}", here, width << level, 3)
            if level < 2:
                skipped.append(here)
                here = net.max_pool(f"down{level}_pool", here, 2, 2)
        for level in (1, 0):
            if transition:
                here = net.conv(f"up{level}_halve", here, width << level, 1)
            here = net.upsample(f"up{level}", here, 2)
            here = net.concat(f"up{level}_concat", skipped.pop(), here)
            for number in (1, 2):
                here = net.conv(f"up{level}_conv{number}", here, width << level, 3)
        return net.conv("classes", here, 4, 1, relu=None)

    return draw


def _grouped(group: int, stages: tuple[int, ...]) -> Callable[[Drawing], str]:
    """Return a function that draws bottlenecks with 3 x 3 convolutions of ``group`` maps a group (ResNeXt)."""

    def draw(net: Drawing) -> str:
        here = net.conv("conv", "image", stages[0], 3, 2)
        for stage, maps in enumerate(stages):
            for number in range(2):
                name, stride = f"block{stage}_{number}", 2 if stage and not number else 1
                inner = net.conv(f"{name}_reduce", here, maps, 1)
                inner = net.conv(f"{name}_grouped", inner, maps, 3, stride, groups=maps // group)
                inner = net.conv(f"{name}_expand", inner, 2 * maps, 1, relu=None)
                if stride > 1 or net.shape(here)[0] != 2 * maps:
                    here = net.conv(f"{name}_short", here, 2 * maps, 1, stride, relu=None)
                here = net.add(f"{name}_add", inner, here, relu=True)
        return net.dense("dense", net.average("pool", here), 10, relu=False)

    return draw


def _depthwise(net: Drawing) -> str:
    """Draw depthwise convolutions of 3 x 3 and 5 x 5 taps at odd sizes, between narrow 1 x 1 convolutions."""
    here = net.conv("conv", "image", 24, 3, 2)
    for number, (maps, kernel, stride) in enumerate(
        ((40, 3, 1), (56, 5, 2), (56, 3, 1), (104, 5, 2), (104, 5, 1), (136, 3, 2), (136, 5, 1))
    ):
        here = net.conv(f"depthwise{number}", here, net.shape(here)[0], kernel, stride, depthwise=True)
        here = net.conv(f"pointwise{number}", here, maps, 1)
    return net.dense("dense", net.average("pool", here), 10, relu=False)


#: Shape of the input and draughtsman of each network.
NETWORKS: dict[str, tuple[tuple[int, int, int], Callable[[Drawing], str]]] = {
    "unet24": ((3, 96, 144), _unet(24, transition=False)),
    "unet48": ((3, 64, 96), _unet(48, transition=True)),
    "grouped8": ((3, 112, 112), _grouped(8, (32, 64, 128))),
    "grouped16": ((3, 96, 96), _grouped(16, (64, 128, 256))),
    "depthwise": ((3, 151, 203), _depthwise),
}


def network_of(name: str) -> Network:
    """Return a network of the bench, with random weights, quantised with random frames."""
    shape, draw = NETWORKS[name]
    drawing = Drawing(name, shape)
    frames = np.random.default_rng(SEED).uniform(-1, 1, (4, *shape)).astype(np.float32)
    return to_network(quantise(drawing.model(draw(drawing)), frames, name), name)


def roofline(layer: Conv, config: EngineConfig) -> tuple[float, float]:
    """Return the cycles of a convolution's multiply-adds, and those of its bytes."""
    moved = layer.input.channels * layer.input.height * layer.input.width + layer.weight_count
    moved += layer.output.channels * layer.output.height * layer.output.width
    return layer.macs / config.multipliers, moved / config.bus_bytes


def row_of(name: str, config: EngineConfig, *, measure: bool) -> dict[str, Any]:
    """Return the table row of a network: its roofline and its cycles."""
    network, timing = network_of(name), MemoryTiming()
    bounds = [roofline(layer, config) for layer in network.layers if isinstance(layer, Conv)]
    compiled = schedule(network, config)
    cycles = START_CYCLES + EngineSchedule(config, compiled.jobs, timing).run().cycles + DONE_CYCLES
    least = sum(map(max, bounds))
    by_bytes = sum(moved for macs, moved in bounds if moved > macs)
    row: dict[str, Any] = {"network": name, "roofline": round(least), "cycles": cycles, "ratio": cycles / least}
    row |= {"by_bytes": by_bytes / least, "convolutions": len(bounds), "layers": len(network.layers)}
    if measure:
        kind = network.input.type
        frame = np.random.default_rng(1).integers(kind.minimum, kind.maximum + 1, network.input.shape)
        run = run_frames(compiled, frame.astype(kind.dtype)[None], engine_files(config), timing)
        row |= {"measured": run["cycles"], "right": is_right(run)}
    return row


def line(row: dict[str, Any]) -> tuple[str, ...]:
    counts = f"{row['convolutions']} of {row['layers']} layers"
    figures = (f"{row['roofline']:,}", f"{row['cycles']:,}", f"{row['ratio']:.2f}", f"{row['by_bytes']:.0%} bytes")
    measured = [f"{row['measured']:,}, {'right' if row['right'] else 'WRONG'}"] if "measured" in row else []
    return (row["network"], *figures, counts, *measured)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=[*NETWORKS])
    parser.add_argument("--measure", action="store_true", help="count cycles in Verilator, too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.networks:
        rows.append(row_of(name, EngineConfig(), measure=arguments.measure))
        print("  ".join(line(rows[-1])), flush=True)
    head = (*HEAD, "measured") if arguments.measure else HEAD
    print("\n".join(["", *columns([head, *map(line, rows)], rules=(1,))]))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    right = all(row.get("right", True) and row.get("measured", row["cycles"]) == row["cycles"] for row in rows)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
