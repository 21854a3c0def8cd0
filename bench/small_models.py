"""Small float models with seeded weights, for what no built-in network has: several inputs, LRN.

ONNX Runtime quantises each by random frames, as ``hwgen.load(.., calibration=..)`` asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

CALIBRATION_FRAMES = 16

#: Graphs in ONNX's own text, without their weights.
TEXTS = {
    "two-inputs": """
        two_inputs (float[N, 3, 12, 10] image, float[N, 2, 6, 5] mask) => (float[N, 8, 6, 5] y) {
            a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (image, image_weight)
            b = Relu (a)
            c = Conv <kernel_shape = [1, 1]> (mask, mask_weight)
            d = Relu (c)
            e = Add (b, d)
            y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (e, sum_weight)
        }""",
    "lrn": """
        lrn (float[N, 3, 12, 12] x) => (float[N, 8, 6, 6] y) {
            a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, first_weight)
            b = Relu (a)
            c = LRN <size = 5, alpha = 0.5, beta = 0.75, bias = 1.0> (b)
            d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
            y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, last_weight)
        }""",
}
WEIGHTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "two-inputs": {"image_weight": (8, 3, 3, 3), "mask_weight": (8, 2, 1, 1), "sum_weight": (8, 8, 3, 3)},
    "lrn": {"first_weight": (16, 3, 3, 3), "last_weight": (8, 16, 3, 3)},
}
"""Shapes of each model's weights, by their names in the text."""


def write(name: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Write a model as ``folder/NAME.onnx``.

    Returns
    -------
    Path
        Path of the file.
    dict of str to ndarray
        Calibration frames of each input, float32, by the inputs' names.
    """
    random = np.random.default_rng(7)
    graph = parser.parse_graph(TEXTS[name])
    for weight, shape in WEIGHTS[name].items():
        values = random.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, weight))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    shapes = {end.name: [axis.dim_value for axis in end.type.tensor_type.shape.dim[1:]] for end in graph.input}
    frames = {end: random.random((CALIBRATION_FRAMES, *shape), dtype=np.float32) for end, shape in shapes.items()}
    return path, frames
