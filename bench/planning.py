"""The time that loading and planning every built-in network takes, at full size, and what the plan is.

Usage: python bench/planning.py [--board B] [--objective O] [--json FILE] [--large] [--ample] [NAME ...]
(default: all of 'hwgen models', for vc709; with --large: deep networks and large maps)

Prints a table in Markdown: seconds of this process's CPU, and the most memory it has held until then (a case alone in
its process says what it takes itself). A network that does not fit says what runs out. ``chain:N`` is a chain of N 3x3
convolutions of 8 channels at 32 x 32, ``map:HxW`` one 3x3 convolution of 3 to 16 channels on a map of that size.
With ``--ample`` the board has memory and logic for any network, but its own DSP slices.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwgen import boards, network, plan
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Conv
from hwgen.network.requantise import Requantisation
from hwgen.network.zoo import builtin
from hwgen.plan.request import OBJECTIVES

COLUMNS = {
    "network": "---",
    "layers": "---:",
    "load_s": "---:",
    "plan_s": "---:",
    "peak_mb": "---:",
    "interval": "---:",
    "latency": "---:",
    "dsp": "---:",
    "bram36": "---:",
    "problem": "---",
}


#: Deep networks and large maps.
LARGE = ("chain:100", "map:3000x3000", "vgg16:7@224x224", "vgg16:10@224x224")


def chain(name: str, sizes: list[tuple[int, int]], height: int, width: int) -> Network:
    """3 x 3 convolutions with these channels in and out, random weights, on one map size."""
    rng = np.random.default_rng(0)
    layers = []
    for number, (channels, outputs) in enumerate(sizes):
        before = FeatureMap(channels=channels, height=height, width=width, type=INT8)
        layers.append(
            Conv(
                name=f"conv{number}",
                input=before,
                output=replace(before, channels=outputs),
                window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
                weights=rng.integers(-127, 128, (outputs, channels, 3, 3)),
                bias=rng.integers(-1000, 1000, outputs),
                requantisation=Requantisation(
                    significand=rng.integers(1 << 23, 1 << 24, outputs),
                    shift=np.full(outputs, 33),
                    zero_point=0,
                    low=0,
                    high=127,
                ),
            )
        )
    return Network(name=name, layers=tuple(layers))


def load(name: str) -> Network:
    kind, _, size = name.partition(":")
    if kind == "chain":
        return chain(f"chain{size}", [(8, 8)] * int(size), 32, 32)
    if kind == "map":
        height, width = map(int, size.split("x"))
        return chain("map", [(3, 16)], height, width)
    return network.load(name)


def measure(name: str, board: boards.Board, objective: str) -> dict[str, Any]:
    begin = time.process_time()
    loaded = load(name)
    planning = time.process_time()
    found: dict[str, Any] = {"network": name, "layers": len(loaded.layers), "load_s": round(planning - begin, 2)}
    try:
        made = plan.make(loaded, board, objective=objective)
        found |= {"interval": made.interval, "latency": made.latency, "problem": None}
        found |= {kind: made.resources.as_dict()[kind] for kind in ("dsp", "bram36")}
    except PlanError as error:
        found["problem"] = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**found, "plan_s": round(time.process_time() - planning, 2), "peak_mb": peak}


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}".removesuffix(".00")
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def main() -> None:
    known = [name for name, _ in builtin.names()]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a built-in network, perhaps with prefix and size")
    parser.add_argument("--board", default="vc709")
    parser.add_argument("--objective", default="interval", choices=OBJECTIVES)
    parser.add_argument("--large", action="store_true", help="deep networks and large maps")
    parser.add_argument("--ample", action="store_true", help="memory and logic for any network")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    board = boards.load(arguments.board)
    if arguments.ample:
        board = replace(board, bram36=10**6, lut=10**8, ff=10**8)
    network.load("decoilfnet-example")  # imports ONNX Runtime, which is not the first network's fault
    print("| " + " | ".join(name.replace("_s", " (s)") for name in COLUMNS) + " |")
    print("| " + " | ".join(COLUMNS.values()) + " |")
    results = []
    for name in arguments.names or (LARGE if arguments.large else known):
        results.append(measure(name, board, arguments.objective))
        print("| " + " | ".join(cell(results[-1].get(key)) for key in COLUMNS) + " |", flush=True)
    print(
        f"{board.name}; {os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}",
        file=sys.stderr,
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
