"""Detect faces in photographs with the engine in simulation: image in, boxes out, every box equal to ONNX Runtime's.

Usage: python run.py [IMAGE ...]   (default: the twenty photographs of photographs.py)

Draws the boxes into build/detector/boxes.png. Exit status 0 if coordinates, score, class and order of every box are
those of ONNX Runtime.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw

import hwgen

HERE = Path(__file__).parent
MODEL = HERE / "detector.onnx"
SIZE = 128
"""Rows and columns of the image that the detector reads."""
DRAWN = 256
"""Rows and columns of each drawing."""


def squared(image: Image.Image) -> Image.Image:
    """Return the image in RGB, in the middle of a black square."""
    side = max(image.size)
    square = Image.new("RGB", (side, side))
    square.paste(image.convert("RGB"), ((side - image.width) // 2, (side - image.height) // 2))
    return square


def tensor(image: Image.Image) -> np.ndarray:
    """Return the image as the detector reads it: ``(1, 3, SIZE, SIZE)``, float32 from -1 to 1."""
    pixels = np.asarray(squared(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR), np.float32)
    return np.ascontiguousarray((pixels / np.float32(127.5) - 1).transpose(2, 0, 1)[None])


def drawn(image: Image.Image, boxes: np.ndarray) -> Image.Image:
    """Return the image with its boxes."""
    drawing = squared(image).resize((DRAWN, DRAWN))
    for left, top, right, bottom in boxes[:, :4] * DRAWN:
        ImageDraw.Draw(drawing).rectangle((left, top, right, bottom), outline="lime", width=2)
    return drawing


def sheet(drawings: list[Image.Image]) -> Image.Image:
    """Return the drawings in rows of five."""
    columns = min(len(drawings), 5)
    whole = Image.new("RGB", (columns * DRAWN, -(-len(drawings) // columns) * DRAWN))
    for index, drawing in enumerate(drawings):
        whole.paste(drawing, (index % columns * DRAWN, index // columns * DRAWN))
    return whole


def images(paths: list[str]) -> dict[str, Image.Image]:
    """Return the images in some files, by their paths; the twenty photographs if there are no paths."""
    if paths:
        return {path: Image.open(path) for path in paths}
    from photographs import PHOTOGRAPHS

    return {str(photograph): photograph.image() for photograph in PHOTOGRAPHS}


def main(paths: list[str]) -> int:
    """Detect faces in images, and return the exit status."""
    photographs = images(paths)
    feeds = [{"image": tensor(image)} for image in photographs.values()]
    design = hwgen.load(MODEL).plan(board="zedboard", template="engine", progress=True)
    print(design, flush=True)
    session = hwgen.Session(design, progress=True)
    runtime = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])

    drawings, equal, count = [], 0, 0
    for (name, image), feed, (boxes,) in zip(photographs.items(), feeds, session.stream(None, feeds), strict=True):
        (expected,) = runtime.run(None, feed)
        same = boxes.dtype == expected.dtype and np.array_equal(boxes, expected)
        equal, count = equal + same, count + len(boxes)
        verdict = "" if same else ", NOT those of ONNX Runtime"
        print(f"{name}: {len(boxes)} {'box' if len(boxes) == 1 else 'boxes'}{verdict}")
        for left, top, right, bottom, score, _ in boxes.tolist():
            print(f"  {score:.2f}  left {left:.3f} top {top:.3f} right {right:.3f} bottom {bottom:.3f}")
        drawings.append(drawn(image, boxes))
    path = Path("build/detector/boxes.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet(drawings).save(path)
    print(f"wrote {path}")
    print(session.device.result.summary())
    print(f"{equal} of {len(feeds)} images have ONNX Runtime's boxes, {count} in all")
    return 0 if equal == len(feeds) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (hwgen.HwgenError, OSError) as error:
        sys.exit(f"detector: {error}")
