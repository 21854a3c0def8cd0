"""The time that loading and planning every built-in network takes, at full size, and what the plan is.

Usage: python bench/planning.py [--board B] [--objective O] [--json FILE] [--large | --light | --full] [--ample]
[--multipliers M] [NAME ...]
(default: all of 'hwgen models', for vc709; with --large: deep networks and large maps; with --light, for zedboard:
models of the onnx package that don't fit it as one group; with --full, for kv260 and with all multipliers: published
architectures of `planning_models`)

Prints a table in Markdown: seconds of this process's CPU, and the most memory it has held until then (a case alone in
its process says what it takes itself). A network that does not fit says what runs out. ``chain:N`` is an ONNX model of
N 3x3 convolutions of 8 channels at 32 x 32, one behind the other; in ``residual:N`` every two of them are followed by a
sum with what they take, in ``dense:N`` each one by a concatenation of all before. ``map:HxW`` is one 3x3 convolution of
3 to 16 channels on a map of that size.
With ``--ample`` the board has memory and logic for any network, but its own DSP slices. Fails if a network exceeds its
mark (`MARKS`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import planning_models
from onnx import TensorProto, helper, numpy_helper

from hwgen import boards, network, plan
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Conv
from hwgen.network.zoo import builtin
from hwgen.options import OBJECTIVES

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
LARGE = ("chain:200", "residual:101", "dense:31", "map:3000x3000", "vgg16:7@224x224", "vgg16:10@224x224")

#: Models that are cut into groups, or refused, where a board is small.
LIGHT = ("light_densenet121", "light_inception_v1", "light_inception_v2", "light_shufflenet")

#: CPU seconds of loading and of planning at most.
MARKS = {
    "unet": (5, 20),
    "three_layers": (5, 8),
    **dict.fromkeys(("efficientnet_b0", "regnet_y_400mf", "squeezenet1_1", "deeplabv3", "yolov8n"), (20, 60)),
    "chain:200": (5, 15),
    "residual:101": (5, 15),
    "dense:31": (5, 30),
    **dict.fromkeys(LIGHT, (20, 40)),
    "light_shufflenet": (5, 55),
}

#: Megabytes of memory at most, in a process of its own.
MEMORY_MARKS = {"unet": 1000}


class Writer:
    """Writer of a quantised ONNX model: convolutions (8 channels at 32 x 32, seeded weights), sums, concatenations."""

    CHANNELS, SIDE = 8, 32

    def __init__(self, name: str):
        self._name, self._rng = name, np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._scale, self._zero = self._constant(np.float32(1 / 64)), self._constant(np.uint8(0))
        self.channels: dict[str, int] = {}
        self.first = self._quantised("image", self.CHANNELS)

    def _constant(self, values: Any) -> str:
        self._constants.append(numpy_helper.from_array(np.asarray(values), f"constant{len(self._constants)}"))
        return self._constants[-1].name

    def _node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def _quantised(self, tensor: str, channels: int) -> str:
        integers = self._node("QuantizeLinear", tensor, self._scale, self._zero)
        output = self._node("DequantizeLinear", integers, self._scale, self._zero)
        self.channels[output] = channels
        return output

    def conv(self, tensor: str) -> str:
        shape = self.CHANNELS, self.channels[tensor], 3, 3
        scale = np.float32(1 / (64 * np.prod(shape[1:]) ** 0.5))
        constants = (
            (self._rng.integers(-127, 128, shape).astype(np.int8), scale, np.int8(0)),
            (self._rng.integers(-1000, 1000, self.CHANNELS).astype(np.int32), scale / np.float32(64), np.int32(0)),
        )
        reals = [self._node("DequantizeLinear", *map(self._constant, each)) for each in constants]
        output = self._node("Conv", tensor, *reals, pads=[1] * 4)
        return self._quantised(self._node("Relu", output), self.CHANNELS)

    def add(self, left: str, right: str) -> str:
        return self._quantised(self._node("Add", left, right), self.channels[left])

    def concat(self, *tensors: str) -> str:
        channels = sum(self.channels[tensor] for tensor in tensors)
        return self._quantised(self._node("Concat", *tensors, axis=1), channels)

    def model(self, output: str) -> onnx.ModelProto:
        source, target = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, self.SIDE, self.SIDE])
            for name, channels in (("image", self.CHANNELS), (output, self.channels[output]))
        )
        graph = helper.make_graph(self._nodes, self._name, [source], [target], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(writer: Writer, layers: int) -> str:
    tensor = writer.first
    for _ in range(layers):
        tensor = writer.conv(tensor)
    return tensor


def residual(writer: Writer, layers: int) -> str:
    """Write a convolution, and then repeatedly two convolutions and a sum; return the last tensor."""
    tensor = writer.conv(writer.first)
    for _ in range((layers - 1) // 3):
        tensor = writer.add(tensor, writer.conv(writer.conv(tensor)))
    return tensor


def dense(writer: Writer, layers: int) -> str:
    """Write a convolution, and then repeatedly one convolution and a concatenation of all; return the last tensor."""
    maps = [writer.conv(writer.first)]
    tensor = maps[0]
    for _ in range((layers - 1) // 2):
        maps.append(writer.conv(tensor))
        tensor = writer.concat(*maps)
    return tensor


GRAPHS = {"chain": chain, "residual": residual, "dense": dense}


def one_layer(height: int, width: int) -> Network:
    """Return a network of one 3 x 3 convolution, from 3 to 16 channels, with random weights."""
    rng = np.random.default_rng(0)
    before = FeatureMap(channels=3, height=height, width=width, type=INT8)
    layer = Conv(
        name="conv0",
        input=before,
        output=replace(before, channels=16),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-127, 128, (16, 3, 3, 3)),
        bias=rng.integers(-1000, 1000, 16),
        requantisation=Requantisation(
            significand=rng.integers(1 << 23, 1 << 24, 16),
            shift=np.full(16, 33),
            zero_point=0,
            low=0,
            high=127,
        ),
    )
    return Network(name="map", layers=(layer,))


def load(name: str) -> tuple[Network, float]:
    """Load a network by name, and return it with the CPU seconds that loading took."""
    kind, _, size = name.partition(":")
    begin = time.process_time()
    if kind == "map":
        height, width = map(int, size.split("x"))
        return one_layer(height, width), time.process_time() - begin
    if kind in planning_models.NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{kind}.onnx"
            script = Path(planning_models.__file__)  # in a process of its own, whose memory is not counted
            subprocess.run([sys.executable, script, kind, path], check=True, capture_output=True)
            begin = time.process_time()
            return network.load(path), time.process_time() - begin
    if kind not in GRAPHS:
        return network.load(name), time.process_time() - begin
    writer = Writer(f"{kind}{size}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}{size}.onnx"
        onnx.save(writer.model(GRAPHS[kind](writer, int(size))), path)
        begin = time.process_time()
        return network.load(path), time.process_time() - begin


def measure(name: str, board: boards.Board, objective: str, multipliers: str) -> dict[str, Any]:
    loaded, seconds = load(name)
    planning = time.process_time()
    found: dict[str, Any] = {"network": name, "layers": len(loaded.layers), "load_s": round(seconds, 2)}
    try:
        made = plan.make(loaded, board, objective=objective, multipliers=multipliers)
        found |= {"interval": made.interval, "latency": made.latency, "problem": None}
        found |= {kind: made.resources.as_dict()[kind] for kind in ("dsp", "bram36")}
    except PlanError as error:
        found["problem"] = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**found, "plan_s": round(time.process_time() - planning, 2), "peak_mb": peak}


def is_late(row: dict[str, Any]) -> bool:
    """Whether a network takes more time or memory than its mark, if it has one."""
    load_s, plan_s = MARKS.get(row["network"], (inf, inf))
    return row["load_s"] > load_s or row["plan_s"] > plan_s or row["peak_mb"] > MEMORY_MARKS.get(row["network"], inf)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}".removesuffix(".00")
    return f"{value:,}" if isinstance(value, int) else str(value or "")


def main() -> None:
    known = [name for name, _ in builtin.names()]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a built-in network, perhaps with prefix and size")
    parser.add_argument("--board", help="vc709 by default; zedboard with --light, kv260 with --full")
    parser.add_argument("--objective", default="interval", choices=OBJECTIVES)
    cases = parser.add_mutually_exclusive_group()
    cases.add_argument("--large", action="store_true", help="deep networks and large maps")
    cases.add_argument("--light", action="store_true", help="models of the onnx package that one group can't hold")
    cases.add_argument("--full", action="store_true", help="published architectures at full depth")
    parser.add_argument("--multipliers", help="dsp by default; auto with --full")
    parser.add_argument("--ample", action="store_true", help="memory and logic for any network")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    board = boards.load(arguments.board or ("zedboard" if arguments.light else "kv260" if arguments.full else "vc709"))
    if arguments.ample:
        board = replace(board, bram36=10**6, lut=10**8, ff=10**8)
    network.load("decoilfnet-example")  # imports ONNX Runtime, which is not the first network's fault
    print("| " + " | ".join(name.replace("_s", " (s)") for name in COLUMNS) + " |")
    print("| " + " | ".join(COLUMNS.values()) + " |")
    results = []
    names = (
        LIGHT
        if arguments.light
        else LARGE
        if arguments.large
        else planning_models.NETWORKS
        if arguments.full
        else known
    )
    multipliers = arguments.multipliers or ("auto" if arguments.full else "dsp")
    for name in arguments.names or names:
        results.append(measure(name, board, arguments.objective, multipliers))
        print("| " + " | ".join(cell(results[-1].get(key)) for key in COLUMNS) + " |", flush=True)
    print(
        f"{board.name}; {os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}",
        file=sys.stderr,
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    late = [row["network"] for row in results if is_late(row)]
    if late:
        sys.exit(f"beyond the mark: {', '.join(late)}")


if __name__ == "__main__":
    main()
