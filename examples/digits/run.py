"""The main job: plan, build and simulate the digits network for the ZedBoard on every held-out image.

Usage: python run.py [DIRECTORY]   (default: build/digits-zedboard)

Exit status 0 if the generated Verilog equals the golden model in every value and gives ONNX Runtime's class for
every image.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

import hwgen

HERE = Path(__file__).parent


def main() -> int:
    images = np.load(HERE / "images.npy")
    labels = np.load(HERE / "labels.npy")

    design = hwgen.load(HERE / "digits.onnx").plan(board="zedboard")
    print(design.table(), flush=True)
    folder = design.build(sys.argv[1] if len(sys.argv) > 1 else "build/digits-zedboard")
    print(f"wrote {folder}", flush=True)
    result = design.simulate(images, progress=True)
    print(result.summary())
    if result.first_mismatch is not None:
        print(f"first mismatch: {result.first_mismatch}")

    session = onnxruntime.InferenceSession(str(HERE / "digits.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": images})
    reference = np.asarray(logits).argmax(axis=1)
    classes = result.outputs.argmax(axis=1)
    same = int(np.count_nonzero(classes == reference))
    print(f"{same} of {len(images)} images have ONNX Runtime's class; {np.mean(classes == labels):.2%} are right")
    return 0 if result.ok and same == len(images) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except hwgen.HwgenError as error:
        sys.exit(f"hwgen: {error}")
