"""Groups computed row by row and pyramid by pyramid: cycles, block RAM, off-chip bytes, and how busy the layers are.

Usage: python bench/pyramids.py [--json FILE] [CASE ...]     (needs scikit-learn: pip install '.[test]')

Each case is planned, and its Verilog run in Verilator on four frames of a photograph. Fails if an output differs from
the golden model, a cycle or a byte from the plan, or a multiplication of recomputed pyramids from the model of those.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import step_counts as counts
from simulation import photograph

import hwgen
from hwgen import simulate
from hwgen.explore import pyramid
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.network import golden
from hwgen.templates.base import Group
from hwgen.templates.pyramid import PyramidTemplate, pyramid_cycles
from hwgen.templates.pyramid_tiles import RECOMPUTE

FRAMES = 4


@dataclass(frozen=True)
class Case:
    source: str
    size: int
    steering: dict[str, Any] = field(default_factory=dict)


def alexnet(**steering: Any) -> Case:
    """Return the case of AlexNet's first two convolutions and pools, both channel sets, with all slices of vc709."""
    return Case("alexnet:4@227x227", 227, steering)


def vgg(**steering: Any) -> Case:
    """Return the case of VGG's first five convolutions and two pools, on 500 slices."""
    return Case("vgg16:7@64x64", 64, {"dsp": 500, **steering})


CASES = {
    "alexnet-stream": alexnet(),
    "alexnet-reuse": alexnet(template="pyramid", tile=(1, 1)),
    "alexnet-reuse-two": alexnet(template="pyramid", tile=(1, 1), macs_per_dsp=2),
    "alexnet-reload": alexnet(overlap="reload", tile=(1, 1)),
    "alexnet-recompute": alexnet(overlap="recompute", tile=(1, 1)),
    "vgg-stream": vgg(),
    "vgg-reuse-2x2": vgg(template="pyramid", tile=(2, 2)),
    "vgg-reuse-4x8": vgg(template="pyramid", tile=(4, 8)),
    "vgg-recompute-8x8": vgg(overlap="recompute", tile=(8, 8)),
    "vgg-two-groups-4x4": vgg(template="pyramid", tile=(4, 4), groups="conv1_1-pool1,conv2_1-conv3_1"),
}


def measure(name: str) -> dict[str, Any]:
    """Plan, simulate and check one case."""
    case = CASES[name]
    model = hwgen.load(case.source)
    plan = model.plan("vc709", multipliers="dsp", **case.steering).plan
    frames = model.prepare(photograph(case.size, FRAMES)())
    run = simulate.run_groups(plan.configs(), frames, simulate.Options(taps=True))
    predicted = plan.placement.predict(FRAMES)
    need(np.array_equal(run.outputs, golden.run(model.network, frames)), f"{name}: an output differs")
    need((run.latency, run.interval) == (predicted.latency, predicted.interval), f"{name}: cycles differ from the plan")
    moved = (run.read_bytes + run.written_bytes) // FRAMES
    need(moved == plan.traffic_bytes["feature_maps"], f"{name}: {moved} bytes a frame are not as planned")
    parts = run.group_runs or (run,)
    multiplications = sum(
        sum(counts.multiplications(config, part)) for config, part in zip(plan.configs(), parts, strict=True)
    )
    expected = sum(multiplied(group) for group in plan.groups)
    need(multiplications == FRAMES * expected, f"{name}: {multiplications:,} multiplications are not as modelled")
    templates = [group.template for group in plan.groups if isinstance(group.template, PyramidTemplate)]
    return {
        "case": name,
        "tile": ", ".join("x".join(map(str, template.tile)) for template in templates) or "-",
        "pyramid": max((pyramid_cycles(group.config) for group in plan.groups), default=0),
        "interval": run.interval,
        "latency": run.latency,
        "busy": busy(run),
        "words": sum(
            layer.reuse.words
            for group in plan.groups
            for layer in group.config.layers
            if isinstance(layer, PyramidLayerConfig)
        ),
        "multiplications": expected,
        "bytes": moved,
        **asdict(plan.resources),
    }


def multiplied(group: Group) -> int:
    """Return the multiplications of a frame by the model of pyramids, with those of recomputed values."""
    layers = group.network.layers
    template = group.template
    if not isinstance(template, PyramidTemplate) or template.overlap != RECOMPUTE:
        return sum(layer.macs for layer in layers)
    work = pyramid.recomputation(layers, template.tile)
    return work.multiplications + work.extra_multiplications


def busy(run: simulate.Run) -> float:
    """Return the percentage of cycles in which the busiest layer makes a step, in an interval amid a run."""
    if run.group_runs:
        return max(busy(part) for part in run.group_runs)
    middle = FRAMES // 2
    return 100 * float(run.busy[:, middle].max()) / (run.frame_ends[middle] - run.frame_ends[middle - 1])


def need(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(what)


HEAD = {
    "case": "case",
    "tile": "tile",
    "pyramid": "cycles a pyramid",
    "interval": "interval",
    "latency": "latency",
    "busy": "busiest layer, %",
    "words": "words kept",
    "multiplications": "multiplications",
    "bytes": "bytes off chip",
    "dsp": "DSP",
    "bram36": "BRAM36",
    "lut": "LUT",
}


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""

    def cell(value: Any) -> str:
        return value if isinstance(value, str) else "-" if value == 0 else f"{value:,.1f}".removesuffix(".0")

    rows = [[cell(result[key]) for key in HEAD] for result in results]
    lines = [list(HEAD.values()), ["---", "---", *["---:"] * (len(HEAD) - 2)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.case) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    results = []
    for name in arguments.case or CASES:
        results.append(measure(name))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    print(table(results))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
