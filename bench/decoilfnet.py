"""DeCoILFNet beaten by its own means: VGG-16's first seven layers with the paper's own multipliers, but other buffers.

Usage: python bench/decoilfnet.py [--json FILE] [SIZE ...]     (sizes to simulate: 64 and 112 if none is given)

Plans 224 x 224, where the paper's build finishes a frame after 5,034,000 cycles (Tab. IV) with 2,907 multipliers; says
where its cycles go; then simulates the same unroll factors on smaller images in Verilator, three frames back to back.
Fails if the plan takes more than 3,400,000 cycles, or a simulated value or cycle count is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from papers import engines

import hwgen
from hwgen import boards
from hwgen.api import design_of
from hwgen.devices import DEFAULT
from hwgen.explore.published import DEPTH_GROUPS
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import Network
from hwgen.network.ops import Conv, Op
from hwgen.network.shapes import load as load_shapes
from hwgen.plan.plan import Plan
from hwgen.report.plan import table
from hwgen.schedule.buffers import ample_rows, sizes_of
from hwgen.templates.base import Group
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.stream import StreamTemplate

SIZE = 224
SIMULATED = (64, 112)
PUBLISHED = 5_034_000
LIMIT = 3_400_000


def unrolled(network: Network) -> tuple[LayerPlan, ...]:
    """Return layer plans with the paper's unroll factors and ample buffers.

    A convolution computes all taps and input channels (of a depth group) at once, one output channel per cycle. A pool
    computes one channel per cycle, in the order of its input.
    """
    plans = []
    for layer in network.layers:
        tn = layer.input.channels // DEPTH_GROUPS.get(layer.name, 1) if isinstance(layer, Conv) else 1
        plans.append(
            LayerPlan(
                name=layer.name,
                kind=layer.kind,
                tn=tn,
                tm=1,
                tk=layer.window.taps,
                chain=16,
                line_rows=ample_rows(layer.window, layer.input.width, layer.input.channels // tn),
                fifo_depths=(1,),
            )
        )
    return tuple(plans)


def make(network: Network) -> Plan:
    """Return the plan for a VC709 with the smallest buffers that lose no cycle."""
    board = boards.load("vc709")
    plans = unrolled(network)
    sizes = sizes_of(compose(network, plans))
    plans = with_buffers(plans, sizes.rows, sizes.depths)
    group = Group(network=network, layers=plans, template=StreamTemplate(), device=DEFAULT)
    return Plan(network=network, board=board, groups=(group,), dsp=board.dsp)


def multipliers(config: AcceleratorConfig) -> list[int]:
    """Return the number of multipliers of each convolution, without its requantiser."""
    return [layer.compute.multipliers for layer in config.layers if layer.compute.weight_memory]


def with_depths(config: AcceleratorConfig, depths: dict[str, int]) -> AcceleratorConfig:
    """Return a configuration with other FIFO depths behind some layers."""
    layers = (replace(layer, fifo_depths=(depths.get(layer.name, layer.fifo_depths[0]),)) for layer in config.layers)
    return replace(config, layers=tuple(layers))


def min_interval(config: AcceleratorConfig) -> int:
    """Return a lower bound of the cycles per frame: a layer's own cycles, or the round trips of its credits."""
    bounds = []
    for layer in config.layers:
        round_trip = layer.pipeline_latency + layer.fifos[0].latency + layer.credit_delay
        bounds += [layer.cycles, -(-layer.beats * round_trip // layer.fifo_depths[0])]
    return max(bounds)


def without_rings(layers: Sequence[Op], waiting: dict[str, int]) -> int:
    """Return the cycles of a frame with the paper's windows: registers, and line buffers of ``K - 1`` rows.

    The model goes pixel by pixel, without the latency of any pipeline. A stage takes a pixel when the outputs of its
    previous pixel are finished. A finished pixel waits in one register until the next stage takes it. Nothing else is
    buffered.

    Parameters
    ----------
    layers : sequence of Op
        Layers in order.
    waiting : dict of str to int
        Number of pixels that the FIFO in front of a layer holds, by the layer's name. Other layers have no FIFO.
    """
    stages = []
    for layer in layers:
        (kernel, _), (stride, _), (padding, *_) = layer.window.kernel, layer.window.stride, layer.window.padding
        rows, columns = (
            np.minimum(np.arange(count) * stride + kernel - 1 - padding, size - 1)
            for count, size in ((layer.output_height, layer.height), (layer.output_width, layer.width))
        )
        needed = np.maximum.accumulate((rows[:, None] * layer.width + columns).ravel())  # outputs leave in order
        outputs = np.bincount(needed, minlength=layer.height * layer.width)  # that each pixel completes
        cycles = layer.outputs * DEPTH_GROUPS.get(layer.name, 1) if layer.kind == "conv" else 0
        stages.append((outputs.tolist(), cycles, waiting.get(layer.name, 0)))
    taken: list[list[int]] = [[] for _ in stages]
    free, passed = [0] * len(stages), [0] * len(stages)

    def give(stage: int, ready: int) -> int:
        """Pass a pixel to a stage, and return the cycle in which the sender's register is free again."""
        if stage == len(stages):
            return ready
        outputs, cycles, room = stages[stage]
        number = len(taken[stage])
        entered = max(ready, taken[stage][number - room] if 0 < room <= number else 0)
        taken[stage].append(max(entered, free[stage]))
        finished = taken[stage][-1]
        for _ in range(outputs[number]):
            finished = max(finished + cycles, passed[stage])
            passed[stage] = give(stage + 1, finished)
        free[stage] = finished
        return entered if room else taken[stage][-1]

    for _ in stages[0][0]:
        give(0, 0)
    return passed[-1]


def story() -> dict[str, Any]:
    """Print the plan at full size, and return its figures and the cycles of a frame with smaller buffers."""
    begin = time.perf_counter()
    made = make(hwgen.load(f"vgg16:7@{SIZE}x{SIZE}").network)
    config, layers = made.configure(), load_shapes("vgg16:7").layers
    print(table(made))
    print(f"(planned in {time.perf_counter() - begin:.0f} s)\n")
    pooled = layers[2].output_width
    rows = [
        ("published (Tab. IV)", PUBLISHED),
        ("published, computed: one frame, with 1,605,632 cycles of stall", engines.prefix_cycles(layers)[-1]),
        ("pixel model: windows in registers, no FIFO", without_rings(layers, {})),
        (f"the same, {pooled // 4} pixels behind pool1", without_rings(layers, {"conv2_1": pooled // 4})),
        (f"the same, {pooled // 2} pixels behind pool1", without_rings(layers, {"conv2_1": pooled // 2})),
        ("this plan: latency", made.latency),
        ("this plan: interval", made.interval),
    ]
    rows += [
        (f"this plan with FIFOs of {depth} behind pools: interval, at least",
         min_interval(with_depths(config, {"pool1": depth, "pool2": depth})))
        for depth in (1, 2)
    ]  # fmt: skip
    least = {layer.name: max(layer.fold_beats) for layer in config.layers}
    rows.append(
        ("this plan, every FIFO at its least depth: interval, at least", min_interval(with_depths(config, least)))
    )
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name.ljust(width)}  {cycles:>11,}" for name, cycles in rows), flush=True)
    if made.latency > LIMIT:
        raise SystemExit(f"a frame takes {made.latency:,} cycles, more than {LIMIT:,}")
    return {
        "size": SIZE,
        "multipliers": multipliers(config),
        "dsp": made.resources.dsp,
        "fifos": [layer.fifo_depths[0] for layer in config.layers],
        "cycles": dict(rows),
    }


def simulate(size: int) -> dict[str, Any]:
    """Simulate three random frames back to back in Verilator."""
    network = hwgen.load(f"vgg16:7@{size}x{size}")
    design = design_of(network, make(network.network))
    kind = network.input.type
    shape = (3, *network.input.shape)
    frames = np.random.default_rng(0).integers(kind.minimum, kind.maximum, shape, dtype=kind.dtype, endpoint=True)
    begin = time.perf_counter()
    result = design.simulate(frames)
    print(f"{size} x {size}: {result.summary()}; {time.perf_counter() - begin:.0f} s", flush=True)
    if not result.ok or (result.latency, result.interval) != (design.latency, design.interval):
        raise SystemExit(f"{size} x {size}: not as planned")
    return {"size": size, "multipliers": multipliers(design.config), **result.to_json()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("size", nargs="*", type=int, help="to simulate (default: 64 112)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    results = {"planned": story(), "simulated": [simulate(size) for size in arguments.size or SIMULATED]}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
