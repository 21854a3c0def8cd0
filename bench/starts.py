"""Measurement of the time until a simulation starts: the first time, the same again, and with other weights.

Usage: python bench/starts.py [--board B] [--macs-per-dsp N] [--json FILE] [NAME]     (default: vgg16:7@64x64, vc709, 2)

``first_s`` is ``hwgen simulate NAME --random 1`` with an empty cache, the whole command; ``again_s`` the same once
more; ``weights_s`` with other weights of the same scales and sums (those of each channel in another order), so that the
circuit is the same; ``retrained_s`` with weights, biases and a calibration of their own, so that all scales differ, and
with them parts of the circuit. Then ``weights_s`` and ``retrained_s`` by ``first_s``. Beside each the seconds of all
processors, which tell more on a machine that does something else, too. The model is an ONNX file each
time. Fails if a run does, which compares every output with the golden model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from hwgen.network.zoo import builtin


def models(name: str) -> dict[str, onnx.ModelProto]:
    """Return a built-in network, the same network with reordered weights, and the network made of another seed."""
    given = builtin.quantised(name)
    builtin.SEED = 7
    return {"given": given, "weights": reordered(given), "retrained": builtin.quantised(name)}


def reordered(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the weights of each output channel in another order."""
    rng, changed = np.random.default_rng(0), onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.data_type == TensorProto.INT8 and len(tensor.dims) > 1:
            values = numpy_helper.to_array(tensor)
            values = rng.permuted(values.reshape(len(values), -1), axis=1).reshape(values.shape)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return changed


def started(model: Path, options: list[str], cache: Path) -> tuple[float, float]:
    """Run the command once, and return its seconds on the clock and of all processors."""
    command = [sys.executable, "-m", "hwgen.cli", "simulate", str(model), "--random", "1", *options]
    begin, before = time.perf_counter(), os.times()
    run = subprocess.run(command, env={**os.environ, "HWGEN_CACHE": str(cache)}, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}: {run.stderr.strip()}")
    after = os.times()
    processors = after.children_user + after.children_system - before.children_user - before.children_system
    return round(time.perf_counter() - begin, 2), round(processors, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="vgg16:7@64x64", help="of 'hwgen models'")
    parser.add_argument("--board", default="vc709")
    parser.add_argument("--macs-per-dsp", default="2")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    options = ["--board", arguments.board, "--multipliers", "dsp", "--macs-per-dsp", arguments.macs_per_dsp]
    result: dict[str, Any] = {"case": " ".join([arguments.name, *options]), "load": round(os.getloadavg()[0], 2)}
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, model in models(arguments.name).items():
            paths[name] = Path(folder) / name / "model.onnx"  # all of one name, as the hardware has it
            paths[name].parent.mkdir()
            onnx.save(model, paths[name])
        for key, name in (("first", "given"), ("again", "given"), ("weights", "weights"), ("retrained", "retrained")):
            seconds = started(paths[name], options, Path(folder) / "cache")
            result |= dict(zip((f"{key}_s", f"{key}_cpu_s"), seconds, strict=True))
    for key in ("weights", "retrained"):
        result[f"{key}_ratio"] = round(result[f"{key}_s"] / result["first_s"], 3)
    print(json.dumps(result))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
