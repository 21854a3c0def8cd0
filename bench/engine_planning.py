"""Measures what planning networks on the engine takes: CPU seconds and memory, loading included.

Usage: python bench/engine_planning.py [--board B] [--batch N] [--best-of N] [--json FILE] [NETWORK ...]
(default: the networks that have a mark, for zedboard)

Prints a table in Markdown. Each run is a process of its own, with an empty cache, which searches alone. Seconds are CPU
seconds of that process, the fewest of ``--best-of`` runs; MB is the most memory that it holds. ``unet-resize:N`` is a
U-Net of N levels and 16 maps at 64 x 64, which Resize enlarges and Concat joins. Fails if a network exceeds its mark.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hwgen import boards, network, plan
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import quantise
from hwgen.templates.engine import engine_group

#: CPU seconds and MB at most; `None` where a network only must not become slower.
MARKS: dict[str, tuple[int | None, int]] = {
    "vgg16": (25, 1000),
    "vgg16-dense": (60, 1000),
    "unet-resize:4": (45, 1000),
    "resnet50": (None, 1000),
    "mobilenetv1": (None, 1000),
    "mobilenetv2": (None, 1000),
}
COLUMNS = ("network", "layers", "load_s", "plan_s", "seconds", "mb", "jobs", "cycles", "mark")
SIZE = 64


class UNet:
    """A float model of a U-Net with random weights, for square images."""

    def __init__(self, levels: int, maps: int = 16, size: int = SIZE) -> None:
        self._size = size
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "twice")]
        widths, skips, edge, before = [maps << level for level in range(levels)], [], "image", 3
        for level, width in enumerate(widths):
            if level:
                skips.append(edge)
                edge = self._add("MaxPool", [edge], f"pool{level}", kernel_shape=[2, 2], strides=[2, 2])
            edge, before = self._convs(edge, f"down{level}", before, width), width
        for level in reversed(range(levels - 1)):
            resize = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            edge = self._add("Resize", [edge, "", "twice"], f"resize{level}", **resize)
            edge = self._conv(edge, f"up{level}", widths[level + 1], widths[level])
            edge = self._add("Concat", [skips[level], edge], f"concat{level}", axis=1)
            edge = self._convs(edge, f"join{level}", 2 * widths[level], widths[level])
        self._end = self._conv(edge, "last", maps, 2, kernel=1)

    @property
    def model(self) -> onnx.ModelProto:
        """The model in ONNX."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, self._size, self._size])
            for name, channels in (("image", 3), (self._end, 2))
        ]
        graph = helper.make_graph(self._nodes, "unet", ends[:1], ends[1:], self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model

    def _add(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def _conv(self, edge: str, name: str, channels: int, maps: int, kernel: int = 3) -> str:
        weights = self._rng.normal(0, (2 / channels) ** 0.5 / kernel, (maps, channels, kernel, kernel))
        self._constants.append(numpy_helper.from_array(weights.astype(np.float32), f"{name}_weights"))
        edge = self._add("Conv", [edge, f"{name}_weights"], f"{name}_sums", pads=[kernel // 2] * 4)
        return self._add("Relu", [edge], name)

    def _convs(self, edge: str, name: str, channels: int, maps: int) -> str:
        return self._conv(self._conv(edge, f"{name}_first", channels, maps), f"{name}_second", maps, maps)


def load(name: str) -> Network:
    kind, _, levels = name.partition(":")
    if kind != "unet-resize":
        return network.load(name)
    frames = np.random.default_rng(1).uniform(-1, 1, (2, 3, SIZE, SIZE)).astype(np.float32)
    return to_network(quantise(UNet(int(levels)).model, frames, name), "unet-resize", name)


def measure(name: str, board: str, batch: int) -> dict[str, Any]:
    """Plan one network in this process."""
    loaded = load(name)
    load_s = time.process_time()
    made = plan.make(loaded, boards.load(board), template="engine", batch=batch)
    group = engine_group(made.groups[0])
    seconds = time.process_time()
    return {
        "network": name,
        "layers": len(loaded.layers),
        "load_s": round(load_s, 1),
        "plan_s": round(seconds - load_s, 1),
        "seconds": round(seconds, 1),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "jobs": len(group.schedule.jobs),
        "cycles": group.cycles,
    }


def measured_alone(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Plan one network in a process of its own, with an empty cache."""
    command = [sys.executable, __file__, "--board", arguments.board, "--batch", str(arguments.batch), "--here", name]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HWGEN_CACHE": folder}
        told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK")
    parser.add_argument("--board", default="zedboard")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--best-of", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.names[0], arguments.board, arguments.batch)))
        return
    print("| " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * (len(COLUMNS) - 1))
    rows, late = [], []
    for name in arguments.names or MARKS:
        runs = [measured_alone(name, arguments) for _ in range(arguments.best_of)]
        row = min(runs, key=lambda run: run["seconds"])
        seconds, mb = MARKS.get(name, (None, None))
        row["mark"] = ", ".join(f"{most:,} {unit}" for most, unit in ((seconds, "s"), (mb, "MB")) if most is not None)
        if (seconds is not None and row["seconds"] > seconds) or (mb is not None and row["mb"] > mb):
            late.append(name)
        rows.append(row)
        print(
            "| "
            + " | ".join(
                f"{row[column]:,}" if column != "network" and column != "mark" else row[column] for column in COLUMNS
            )
            + " |",
            flush=True,
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")
    if late:
        sys.exit(f"beyond the mark: {', '.join(late)}")


if __name__ == "__main__":
    main()
