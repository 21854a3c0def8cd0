"""Measurement of the time from a model to a verified result, step by step, and of the simulator's speed.

Usage: python bench/simulation.py [--json FILE] [CASE ...]     (needs scikit-learn: pip install '.[test]')

Without a case the small ones run. ``verified_s`` is from the command to the verified result, everything included:
loading, planning, Verilog, C++ and the run, with nothing built before (a cache of its own); then a small run is
repeated with the cached build. Fails if an output value or a cycle count is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"


def digits() -> np.ndarray:
    """Return 450 held-out digits."""
    return np.load(DIGITS / "images.npy")


def photograph(size: int, frames: int) -> Callable[[], np.ndarray]:
    """Return a loader of frames: the middle of scikit-learn's flower photograph, in [0, 1], subsampled if small."""

    def load() -> np.ndarray:
        from sklearn.datasets import load_sample_image

        image = load_sample_image("flower.jpg")
        step = max(1, min(image.shape[:2]) // size)
        image = image[::step, ::step]
        top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
        patch = image[top : top + size, left : left + size]
        return np.repeat((patch.transpose(2, 0, 1)[None] / 255).astype(np.float32), frames, axis=0)

    return load


@dataclass(frozen=True)
class Case:
    source: str
    board: str
    frames: Callable[[], np.ndarray]
    steering: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    large: bool = False


CASES = {
    "digits": Case(str(DIGITS / "digits.onnx"), "zedboard", digits),
    "vgg16:7@64x64": Case("vgg16:7@64x64", "vc709", photograph(64, 3)),
    "vgg16:7@64x64-two": Case("vgg16:7@64x64", "vc709", photograph(64, 3), {"macs_per_dsp": 2}),
    "digits-int16": Case(
        str(DIGITS / "digits-float.onnx"),
        "zedboard",
        digits,
        model={"bits": 16, "calibration": DIGITS / "calibration.npy"},
    ),
    "vgg16:7@32x32,int16": Case("vgg16:7@32x32,int16", "vc709", photograph(32, 3)),
    "vgg16:6@32x32-zedboard-two": Case("vgg16:6@32x32", "zedboard", photograph(32, 3), {"macs_per_dsp": 2}),
    "vgg16:7": Case("vgg16:7", "vc709", photograph(224, 3), large=True),
    "vgg16:7-2907": Case("vgg16:7", "vc709", photograph(224, 3), {"dsp": 2907}, large=True),
    "vgg16:7-two": Case("vgg16:7", "vc709", photograph(224, 3), {"macs_per_dsp": 2}, large=True),
}


def measure(name: str) -> dict[str, Any]:
    import hwgen
    from hwgen.network.ops import Conv

    case = CASES[name]
    x = case.frames()
    times = {}

    def timed(step: str, run: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        value = run()
        times[step] = round(time.perf_counter() - begin, 2)
        return value

    with tempfile.TemporaryDirectory() as folder:
        os.environ["HWGEN_CACHE"] = str(Path(folder) / "cache")
        model = timed("load_s", lambda: hwgen.load(case.source, **case.model))
        design = timed("plan_s", lambda: model.plan(board=case.board, multipliers="dsp", **case.steering))
        first = timed("simulate_first_s", lambda: design.simulate(x))
        times["verified_s"] = round(sum(times.values()), 2)
        # The speed is that of a run with the simulator already built; a large one is not run twice for it.
        again = first if case.large else timed("simulate_again_s", lambda: design.simulate(x))
        timed("build_s", lambda: design.build(Path(folder) / "design"))
    if not (first.ok and again.ok):
        raise SystemExit(f"{name}: {first.summary()}")
    macs = sum(layer.macs for layer in design.network.layers if isinstance(layer, Conv))
    return {
        "case": name,
        "board": case.board,
        "dsp": design.resources["dsp"],
        "frames": len(x),
        "latency": first.latency,
        "interval": first.interval,
        **times,
        "cycles": again.cycles,
        "cycles_per_s": round(again.cycles_per_s),
        "macs_per_s": round(again.cycles_per_s * len(x) * macs / again.cycles),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="*", help=f"of {', '.join(CASES)} (default: the small ones)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.case) - set(CASES):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    results = []
    for name in arguments.case or [name for name, case in CASES.items() if not case.large]:
        results.append(measure(name))
        print(json.dumps(results[-1]), flush=True)
    print(f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}", file=sys.stderr)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
