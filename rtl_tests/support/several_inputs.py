"""A network of two inputs, and pictures for it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = {"left": (2, 4, 6), "right": (2, 4, 6), "mask": (1, 2, 3)}


def siamese() -> onnx.ModelProto:
    """Two pictures through the same weights, their difference, and a smaller map that is added, in float."""
    rng = np.random.default_rng(4)
    constants: dict[str, np.ndarray] = {
        "w1": rng.normal(0, 0.4, (3, 2, 3, 3)),
        "w2": rng.normal(0, 0.3, (2, 3, 3, 3)),
        "w3": rng.normal(0, 0.4, (2, 1, 1, 1)),
    }
    nodes = []

    def add(operator: str, *inputs: str, to: str, **attributes) -> None:
        nodes.append(helper.make_node(operator, inputs, [to], name=to, **attributes))

    for side in ("left", "right"):
        add("Conv", side, "w1", to=f"{side} sums", pads=[1] * 4)
        add("Relu", f"{side} sums", to=f"{side} relu")
        add("Conv", f"{side} relu", "w2", to=f"{side} half", strides=[2, 2], pads=[1] * 4)
    add("Sub", "left half", "right half", to="difference")
    add("Conv", "mask", "w3", to="mask conv")
    add("Add", "difference", "mask conv", to="y")
    shapes = {name: ["batch", *size] for name, size in SIZES.items()}
    graph = helper.make_graph(
        nodes,
        "siamese",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2, 2, 3])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def pictures(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, *size)).astype(np.float32) for name, size in SIZES.items()}
