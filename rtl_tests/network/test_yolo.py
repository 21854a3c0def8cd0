"""A detector in YOLO's manner: heads of two sizes, anchors with Sigmoid and Exp, NonMaxSuppression in the model.

Weights are drawn. Referee: ONNX Runtime on the same quantised model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from referees import integer_session

import hwgen

SIDE, ANCHORS, CLASSES = 48, 3, 2
VALUES = 5 + CLASSES
TAIL = ("p3_row", "p4_row", "rows", "detections")
"""Concat nodes behind the heads."""


class Graph:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, name: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node whose output is called ``name``, and return that; inputs that are no names become constants."""
        names = []
        for index, value in enumerate(inputs):
            names.append(value if isinstance(value, str) else f"{name}_{index}")
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
        self.nodes.append(helper.make_node(operator, names, [name], name=name, **attributes))
        return name

    def conv(self, name: str, tensor: str, channels: int, outputs: int, kernel: int = 3, **attributes: Any) -> str:
        spread = (2 / (channels * kernel**2)) ** 0.5
        weights = self.random.normal(0, spread, (outputs, channels, kernel, kernel)).astype(np.float32)
        return self.add("Conv", name, tensor, weights, pads=[kernel // 2] * 4, **attributes)

    def rows(self, name: str, head: str, cells: int) -> str:
        """Rows (centre, size, confidence, classes) of a head's boxes, ``(1, boxes, VALUES)``."""
        split = self.add("Reshape", f"{name}_split", head, np.array([1, ANCHORS, VALUES, cells, cells]))
        values = self.add("Transpose", f"{name}_values", split, perm=[0, 1, 3, 4, 2])
        sigmoid = self.add("Sigmoid", f"{name}_sigmoid", values)
        (xy, wh, rest), axis = ([0], [2], [4]), np.array([4])
        centre = self.add("Slice", f"{name}_xy", sigmoid, np.array(xy), np.array(wh), axis)
        size = self.add("Slice", f"{name}_wh", values, np.array(wh), np.array(rest), axis)
        others = self.add("Slice", f"{name}_rest", sigmoid, np.array(rest), np.array([VALUES]), axis)
        grid = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1)[None, None].astype(np.float32)
        centre = self.add(
            "Mul", f"{name}_centre", self.add("Add", f"{name}_at", centre, grid), np.float32(SIDE / cells)
        )
        anchors = self.random.uniform(4, 20, (1, ANCHORS, 1, 1, 2)).astype(np.float32)
        size = self.add("Mul", f"{name}_size", self.add("Exp", f"{name}_exp", size), anchors)
        row = self.add("Concat", f"{name}_row", centre, size, others, axis=4)
        return self.add("Reshape", f"{name}_rows", row, np.array([1, -1, VALUES]))


def yolo() -> onnx.ModelProto:
    graph, tensor, channels = Graph(), "image", 3
    for index, (outputs, stride) in enumerate(((8, 2), (16, 2), (32, 2), (32, 1))):
        conv = graph.conv(f"conv{index}", tensor, channels, outputs, strides=[stride, stride])
        tensor, channels = graph.add("LeakyRelu", f"act{index}", conv, alpha=0.1), outputs
    cells = SIDE // 8
    half = graph.add("MaxPool", "pool", tensor, kernel_shape=[2, 2], strides=[2, 2])
    nearest = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    whole = graph.add("Resize", "up", half, "", np.float32([1, 1, 2, 2]), **nearest)
    both = graph.add("Concat", "neck", tensor, whole, axis=1)
    rows = [
        graph.rows(name, graph.conv(name, source, inputs, ANCHORS * VALUES, 1), size)
        for name, source, inputs, size in (("p3", both, 64, cells), ("p4", half, 32, cells // 2))
    ]
    graph.add("Split", "box", graph.add("Concat", "rows", *rows, axis=1), np.array([4, 1, CLASSES]), axis=2)
    graph.nodes[-1].output.extend(["confidence", "classes"])
    scores = graph.add("Transpose", "scores", graph.add("Mul", "product", "confidence", "classes"), perm=[0, 2, 1])
    bounds = (np.array([20]), np.float32([0.5]), np.float32([0.35]))
    kept = graph.add("NonMaxSuppression", "kept", "box", scores, *bounds, center_point_box=1)
    index = graph.add("Gather", "index", kept, np.array([0, 2]), axis=1)
    parts = (
        graph.add("GatherND", "kept_box", "box", index),
        graph.add("Unsqueeze", "score", graph.add("GatherND", "kept_scores", scores, kept), np.array([1])),
        graph.add("Cast", "class", graph.add("Gather", "which", kept, np.array([1]), axis=1), to=TensorProto.FLOAT),
    )
    graph.add("Concat", "detections", *parts, axis=1)
    made = helper.make_graph(
        graph.nodes,
        "yolo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("detections", TensorProto.FLOAT, ["boxes", 6])],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


class Frames(CalibrationDataReader):
    def __init__(self, frames: np.ndarray) -> None:
        self._feeds = iter([{"image": frame[None]} for frame in frames])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


@pytest.mark.parametrize(
    ("settings", "until"),
    [
        (
            {"op_types_to_quantize": ["Concat", "Conv", "LeakyRelu", "MaxPool", "Resize"], "nodes_to_exclude": TAIL},
            None,
        ),
        ({}, "auto"),
    ],
    ids=["a tail of floats", "all quantised"],
)
def test_boxes(settings: dict[str, Any], until: str | None, tmp_path: Path) -> None:
    """Every box, in order: whole models where the tail is in floats, and a part where the quantiser took all of it."""
    frames = np.random.default_rng(1).uniform(0, 1, (12, 3, SIDE, SIDE)).astype(np.float32)
    path, settings = tmp_path / "yolo.onnx", {name: [*values] for name, values in settings.items()}
    quantize_static(
        yolo(), path, Frames(frames[:4]), quant_format=QuantFormat.QDQ, per_channel=True, reduce_range=True, **settings
    )
    model = hwgen.load(path, until=until)
    assert len(model.network.layers) >= 12
    session, _ = integer_session(onnx.load(path))
    expected = [session.run(None, {"image": frame[None]})[0] for frame in frames[4:]]
    assert min(map(len, expected)) > 3
    assert len({len(boxes) for boxes in expected}) > 1
    for boxes, wanted in zip(model.golden(frames[4:]), expected, strict=True):
        assert boxes.dtype == wanted.dtype
        np.testing.assert_array_equal(boxes, wanted)
