"""Outputs that the host makes: of rows that depend on the frame, heads in YOLO's manner, several tensors in one.

Referee: ONNX Runtime on the whole model, frame by frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from foreign import Writer, begun, by_onnxruntime, conv
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import Frames, as_model
from onnxruntime.quantization import QuantFormat, quantize_static
from referees import integer_session

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import InputError, ModelError
from hwgen.network import host

FRAME = (4, 4, 4)
ANCHORS = 16


def heads() -> tuple[Writer, str, str]:
    """A writer of a detector of two classes, its boxes (n, anchors, 4), and its scores (n, classes, anchors)."""
    writer = begun(frame=FRAME)
    writer.layer(conv)
    trunk, raw = writer.tensor, []
    for outputs in (4, 2):
        head = writer.dequantise(writer.quantise(writer.conv(writer.dequantise(trunk), outputs=outputs)))
        raw.append(writer.add("Reshape", head, writer.constant(np.array([0, outputs, ANCHORS]))))
    return writer, writer.add("Transpose", raw[0], perm=[0, 2, 1]), writer.add("Sigmoid", raw[1])


def selected(writer: Writer, boxes: str, scores: str) -> str:
    """Rows (frame, class, anchor) of the boxes that are kept."""
    numbers = (np.array([3]), np.float32([0.2]), np.float32([0.999]))
    return writer.add("NonMaxSuppression", boxes, scores, *map(writer.constant, numbers))


def of_batch(writer: Writer, batch: int | None) -> onnx.ModelProto:
    model = writer.model()
    if batch is not None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    return model


def detector(batch: int | None = 1, *, rows: str = "rows") -> onnx.ModelProto:
    """Boxes (rows, 4), and the scores of all anchors, which are one row a frame."""
    writer, boxes, scores = heads()
    kept = selected(writer, boxes, scores)
    index = writer.add("Gather", kept, writer.constant(np.array([0, 2])), axis=1)
    kept_boxes = writer.add("GatherND", boxes, index)
    writer.outputs.append(helper.make_tensor_value_info(kept_boxes, TensorProto.FLOAT, [rows, 4]))
    writer.give(scores, rank=3)
    return of_batch(writer, batch)


def one_head(batch: int | None = 1) -> onnx.ModelProto:
    """The places of all values above a bound, behind the hardware's only output."""
    writer = begun(frame=FRAME)
    writer.layer(conv)
    bound = writer.constant(np.float32(8))
    places = writer.add("NonZero", writer.add("Greater", writer.dequantise(writer.tensor), bound))
    rows = writer.add("Transpose", places, perm=[1, 0])
    writer.outputs.append(helper.make_tensor_value_info(rows, TensorProto.INT64, ["rows", 4]))
    return of_batch(writer, batch)


def filled_up(batch: int | None) -> onnx.ModelProto:
    """The scores of the best boxes that are kept: as many for each frame, with zeros behind."""
    writer, boxes, scores = heads()
    kept = selected(writer, boxes, scores)
    classes = writer.add("Gather", kept, writer.constant(np.array(0)), axis=1)
    one, zero = (numpy_helper.from_array(np.float32([value])) for value in (1, 0))
    ones = writer.add("ConstantOfShape", writer.add("Shape", classes), value=one)
    zeros = writer.add("ConstantOfShape", writer.add("Shape", scores), value=zero)
    mask = writer.add("ScatterND", zeros, kept, ones)
    masked = writer.add("Mul", scores, mask)
    best = writer.add("TopK", masked, writer.constant(np.array([5])), axis=2, outputs=2)
    writer.outputs.append(helper.make_tensor_value_info(best, TensorProto.FLOAT, [batch or "batch", 2, 5]))
    return of_batch(writer, batch)


def saved(model: onnx.ModelProto, folder: Path) -> str:
    onnx.save(model, folder / "detector.onnx")
    return str(folder / "detector.onnx")


def by_frame(model: onnx.ModelProto, x: np.ndarray) -> list[list[np.ndarray]]:
    """Each output of each frame by ONNX Runtime, which has the frame alone."""
    return [list(by_onnxruntime(model, x[index : index + 1]).values()) for index in range(len(x))]


@pytest.mark.parametrize("batch", [1, None])
@pytest.mark.parametrize("make", [detector, one_head])
def test_rows_of_each_frame(make, batch: int | None, tmp_path: Path) -> None:
    """Frames have arrays of their own, whether or not they have as many rows; other outputs stay whole."""
    model, x = make(batch), begun(frame=FRAME).frames(40)
    part = hwgen.load(saved(model, tmp_path))
    outputs = part.golden(x)
    outputs = [*outputs.values()] if isinstance(outputs, dict) else [outputs]
    expected = by_frame(model, x)
    assert len({len(frame[0]) for frame in expected}) > 2
    assert outputs[0].dtype == object
    for index, frame in enumerate(expected):
        for values, wanted in zip(outputs, frame, strict=True):
            found = values[index] if values.dtype == object else values[index : index + 1]
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_a_part_of_a_model(tmp_path: Path) -> None:
    """The same where the hardware ends earlier."""
    model, x = detector(), begun(frame=FRAME).frames(4)
    path = saved(model, tmp_path)
    tensor = next(node.output[0] for node in model.graph.node[3:] if node.op_type == "QuantizeLinear")
    part = hwgen.load(path, until=tensor)
    assert [layer.kind for layer in part.network.layers] == ["conv"]
    for found, frame in zip(part.golden(x)[model.graph.output[0].name], by_frame(model, x), strict=True):
        np.testing.assert_array_equal(found, frame[0])


@pytest.mark.parametrize("batch", [1, 4, None])
def test_rows_that_are_filled_up(batch: int | None, tmp_path: Path) -> None:
    """An output of as many rows for each frame is one array, whatever is in front of it."""
    model, x = filled_up(batch), begun(frame=FRAME).frames(8)
    part = hwgen.load(saved(model, tmp_path))
    assert part.ragged_outputs == frozenset()
    found = part.golden(x)
    assert found.shape == (8, 2, 5)
    for begin in range(0, 8, 4):
        frames = [x[begin : begin + 4]] if batch != 1 else [x[index : index + 1] for index in range(begin, begin + 4)]
        expected = np.concatenate([next(iter(by_onnxruntime(model, part).values())) for part in frames])
        np.testing.assert_array_equal(found[begin : begin + 4], expected)


def test_a_batch_of_several_frames() -> None:
    """Their rows can't be told apart."""
    from hwgen.network.onnx.importer import to_network

    for model in (detector(4), one_head(4)):
        with pytest.raises(ModelError, match=r"^model: output .* has rows of all 4 frames of a batch, .* batch of 1$"):
            to_network(model, "model")


def test_sessions(tmp_path: Path) -> None:
    """One frame's output is what ONNX Runtime gives for it; a stream gives each feed its own."""
    model, x = detector(), begun(frame=FRAME).frames(6)
    expected = by_frame(model, x)
    design = hwgen.load(saved(model, tmp_path)).plan("zedboard", dsp=60, multipliers="dsp")
    session = hwgen.Session(design, simulator="amaranth")
    boxes, scores = session.get_outputs()
    assert (boxes.shape, scores.shape) == (["rows", 4], [1, 2, ANCHORS])  # as ONNX Runtime describes them
    assert boxes.type == scores.type == "tensor(float)"
    for found, wanted in zip(session.run(None, {"x": x[:1]}), expected[0], strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)
    feeds = [{"x": x[begin:end]} for begin, end in ((0, 1), (1, 3), (3, 4))]
    first, both, last = (rows for (rows,) in session.stream([boxes.name], feeds))
    for found, frame in zip([first, *both, last], expected, strict=False):
        np.testing.assert_array_equal(found, frame[0])


@pytest.mark.long
def test_comparisons(tmp_path: Path) -> None:
    """Boxes count as values, whatever their number."""
    model, x = detector(None), begun(frame=FRAME).frames(6)
    path = saved(model, tmp_path)
    part = hwgen.load(path)
    result = part.plan("zedboard", dsp=60, multipliers="dsp").compare(x, part.runtime(path))
    assert result.ok
    assert result.as_runtime
    assert [output.values for output in result.outputs] == [
        sum(frame[index].size for frame in by_frame(model, x)) for index in range(2)
    ]


def test_distances() -> None:
    """Rows too many, or too few, differ as a whole."""
    from hwgen.network.host import as_objects
    from hwgen.simulate.compare import distance

    rows = np.arange(12.0).reshape(3, 4)
    expected = as_objects([rows, rows, rows[:0]])
    assert distance(as_objects([rows, rows, rows[:0]]), expected) == (0, 0.0)
    assert distance(as_objects([rows[:2], rows + 2, rows[:1]]), expected) == (4 + 12 + 4, 2.0)


def test_files_and_labels(tmp_path: Path, capsys) -> None:
    """No file of one array holds such rows, and there is no class of a frame."""
    path, x = saved(detector(), tmp_path), begun(frame=FRAME).frames(2)
    np.save(tmp_path / "x.npy", x)
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
    assert cli.main(["golden", path, *files]) == 2
    assert (
        "whose number of rows differs between frames: give --integers, or use hwgen.Session" in capsys.readouterr().err
    )
    assert cli.main(["golden", path, *files, "--integers"]) == 0
    model = hwgen.load(saved(one_head(), tmp_path))
    result = model.plan("zedboard", dsp=60, multipliers="dsp").simulate(x, simulator="amaranth")
    with pytest.raises(InputError, match=r"^labels need a model with one row of scores per frame"):
        result.accuracy(np.zeros(2, np.int64))


SIDE, YOLO_ANCHORS, CLASSES = 48, 3, 2
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
        split = self.add("Reshape", f"{name}_split", head, np.array([1, YOLO_ANCHORS, VALUES, cells, cells]))
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
        anchors = self.random.uniform(4, 20, (1, YOLO_ANCHORS, 1, 1, 2)).astype(np.float32)
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
        graph.rows(name, graph.conv(name, source, inputs, YOLO_ANCHORS * VALUES, 1), size)
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
    model = as_model(
        graph.nodes,
        {"image": (TensorProto.FLOAT, [1, 3, SIDE, SIDE])},
        {"detections": (TensorProto.FLOAT, ["boxes", 6])},
        graph.constants,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


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
        yolo(),
        path,
        Frames(frames[:4], "image"),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
        **settings,
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


def load(model: onnx.ModelProto, folder, **options) -> hwgen.Model:
    onnx.save(model, folder / "model.onnx")
    return hwgen.load(folder / "model.onnx", **options)


def check_equal(model: onnx.ModelProto, writer: Writer, folder, count: int = 4) -> hwgen.Model:
    """All outputs of the whole model, in every value those of ONNX Runtime."""
    ours = load(model, folder)
    frames = writer.frames(count)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value or count
    runs = [by_onnxruntime(model, frames[start : start + batch]) for start in range(0, count, batch)]
    theirs = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    found = ours.golden(frames)
    found = found if isinstance(found, dict) else {next(iter(theirs)): found}
    assert list(found) == list(theirs)
    for name, values in theirs.items():
        assert values.dtype == found[name].dtype
        np.testing.assert_array_equal(found[name], values, name)
    return ours


# Heads of different sizes.


def pyramid(sizes: int = 3, **options) -> tuple[Writer, list[str]]:
    """Maps of 8x8, 4x4 and 2x2 pixels, as integers."""
    writer, maps = begun(**options), []
    for size in range(sizes):
        writer.layer(conv if not size else lambda w, x: w.conv(x, strides=[2, 2]))
        maps.append(writer.tensor)
    return writer, maps


def head(writer: Writer, tensor: str, channels: int, *, between: bool, values: int = 4, batch: int = 0) -> str:
    """A convolution and its values, ``(batch, boxes, values)``; ``between``: quantised anew behind each operator."""

    def moved(tensor: str) -> str:
        return writer.dequantise(writer.quantise(tensor)) if between else tensor

    tensor = writer.quantise(writer.conv(writer.dequantise(tensor), outputs=channels))
    tensor = moved(writer.add("Transpose", writer.dequantise(tensor), perm=[0, 2, 3, 1]))
    return moved(writer.add("Reshape", tensor, writer.constant(np.array([batch, -1, values]))))


@pytest.mark.parametrize(("between", "behind"), [(True, True), (False, False), (True, False), (False, True)])
def test_heads(between: bool, behind: bool, tmp_path) -> None:
    """As ONNX Runtime's quantiser writes them, with a quantiser behind each operator, or without some of these."""
    writer, maps = pyramid()
    tensor = writer.add("Concat", *(head(writer, each, 8, between=between) for each in maps), axis=1)
    writer.give(writer.dequantise(writer.quantise(tensor)) if behind else tensor, rank=3)
    model = check_equal(writer.model(), writer, tmp_path)
    assert len(model.network.output_layers) == 3
    assert {layer.kind for layer in model.network.layers} == {"conv"}
    assert "Concat" in host.operators_line(model.network)
    assert host.part_line(model.network) == ""
    assert [each["shape"] for each in model.host["outputs"]] == [[128, 4], [32, 4], [8, 4]]
    assert "Concat" in model.host["host"]["behind"]
    assert "until" not in model.host


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_fixed_batches(batch: int, tmp_path) -> None:
    writer, maps = pyramid(2)
    tensor = writer.add("Concat", *(head(writer, each, 8, between=False, batch=batch) for each in maps), axis=1)
    writer.give(tensor, rank=3)
    model = writer.model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    check_equal(model, writer, tmp_path, 6)


def test_several_outputs(tmp_path) -> None:
    """Boxes, classes behind Softmax, and a map that is an output and read by others."""
    writer, maps = pyramid(2, frame=(4, 6, 6))
    boxes = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    classes = writer.add("Concat", *(head(writer, each, 6, between=True, values=3) for each in maps), axis=1)
    writer.give(boxes, rank=3)
    writer.give(writer.add("Softmax", classes, axis=-1), rank=3)
    writer.give(maps[0], TensorProto.UINT8)
    model = check_equal(writer.model(), writer, tmp_path)
    assert len(model.network.output_layers) == 5


def test_joined_by_an_operator_on_integers(tmp_path) -> None:
    """QLinearConcat, as in QOperator models."""
    writer, maps = pyramid(2)
    inputs = []
    for each in maps:
        flat = writer.add("Flatten", writer.dequantise(each))
        inputs += [writer.quantise(flat), writer.scale, writer.zero]
    label = writer.constant(np.float32(1 / 8)), writer.constant(np.uint8(90))
    joined = writer.add("QLinearConcat", *label, *inputs, axis=1, domain="com.microsoft")
    writer.give(joined, TensorProto.UINT8, 2)
    model = check_equal(writer.model("com.microsoft"), writer, tmp_path)
    assert model.network.host.remainder.operators.count("QLinearConcat") == 1


def test_what_the_hardware_can_join_it_does(tmp_path) -> None:
    """Maps of one size, along the channels, with a quantiser behind."""
    writer, (first,) = pyramid(1)
    tensor = writer.add("Concat", *(writer.dequantise(each) for each in (first, first)), axis=1)
    writer.tensor = writer.quantise(tensor)
    model = check_equal(writer.model(), writer, tmp_path)
    assert [layer.kind for layer in model.network.layers] == ["conv", "concat"]
    assert host.operators_line(model.network) == "on the host: QuantizeLinear (before the accelerator)"


# Floats at the end.


def _difference(writer: Writer, tensor: str) -> str:
    """As a network that gives the noise: the input as it was quantised."""
    return writer.add("Sub", writer.dequantise("t0"), tensor)


def _from_floats(writer: Writer, tensor: str) -> str:
    """The same, as operators on integers leave it: the model's own input."""
    return writer.add("Sub", "x", tensor)


def _weighted(writer: Writer, tensor: str) -> str:
    """Maps of two layers, and more operators behind."""
    writer.layer(conv)
    other = writer.add("Sigmoid", writer.dequantise(writer.tensor))
    return writer.add("Relu", writer.add("Mul", tensor, other))


@pytest.mark.parametrize("write", [_difference, _from_floats, _weighted])
def test_floats(write: Callable[[Writer, str], str], tmp_path) -> None:
    writer = begun()
    writer.layer(conv)
    writer.give(write(writer, writer.dequantise(writer.tensor)))
    model = check_equal(writer.model(), writer, tmp_path)
    integers = model.golden(writer.frames())
    if write is _from_floats:  # where integers are given, the floats that they stand for
        scale, zero = np.float32(1 / 16), 100
        given = np.clip(np.rint(writer.frames() / scale) + zero, 0, 255).astype(np.uint8)
        other = model.golden(given)
        np.testing.assert_array_equal(
            other, *by_onnxruntime(writer.model(), (given.astype(np.float32) - zero) * scale).values()
        )
        assert (other != integers).any()


# What it is for people, and in hardware.


@pytest.mark.long
def test_check_and_simulation(tmp_path, capsys) -> None:
    writer, maps = pyramid(2, frame=(4, 6, 6))
    writer.give(writer.add("Concat", *(head(writer, each, 4, between=True) for each in maps), axis=1), rank=3)
    model = writer.model()
    path = tmp_path / "heads.onnx"
    onnx.save(model, path)
    assert cli.main(["check", str(path), "--json", str(tmp_path / "check.json")]) == 0
    report = json.loads((tmp_path / "check.json").read_text())
    assert report["supported"]
    assert report["until"] is None
    assert report["macs_covered"] == 1
    (concat,) = [each for each in report["operators"] if each["op"] == "Concat"]
    assert (concat["verdict"], concat["reason"]) == ("host", "after the last integer tensor")
    np.save(tmp_path / "x.npy", writer.frames(2))
    few = ["--multipliers", "dsp", "--dsp", "40"]
    assert cli.main(["plan", str(path), "--board", "zedboard", *few, "-o", str(tmp_path / "plan.json")]) == 0
    command = ["simulate", str(path), "--board", "zedboard", "--plan", str(tmp_path / "plan.json")]
    command += ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy"), "--simulator", "amaranth"]
    assert cli.main([*command, "--json", str(tmp_path / "result.json")]) == 0
    expected = by_onnxruntime(model, writer.frames(2))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), next(iter(expected.values())))
    cycles = json.loads((tmp_path / "result.json").read_text())["cycles"]
    assert cycles["latency"] == cycles["predicted_latency"]
    assert "of the model, until" not in capsys.readouterr().out


# What stays an error.


def _quantised_function(writer: Writer, maps: list[str]) -> None:
    """Behind it the file means integers."""
    tensor = writer.add("Concat", *(head(writer, each, 8, between=False) for each in maps), axis=1)
    writer.tensor = writer.quantise(writer.add("Sigmoid", writer.dequantise(writer.quantise(tensor))))


def _product(writer: Writer, maps: list[str]) -> None:
    tensor = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    matrix = writer.add("DequantizeLinear", writer.constant(np.ones((4, 2), np.int8)), writer.constant(np.float32(1)))
    writer.tensor = writer.quantise(writer.add("MatMul", writer.dequantise(writer.quantise(tensor)), matrix))


def _sum(writer: Writer, maps: list[str]) -> None:
    writer.tensor = writer.add("Add", writer.dequantise(maps[0]), writer.dequantise("t0"))


def _unknown(writer: Writer, maps: list[str]) -> None:
    tensor = writer.add("Concat", *(head(writer, each, 8, between=True) for each in maps), axis=1)
    writer.tensor = writer.add("Det", writer.add("Reshape", tensor, writer.constant(np.array([0, -1, 4, 4]))))


def _two_inputs(writer: Writer, maps: list[str]) -> None:
    """The input quantised twice, by different scales: the host gets those integers that the hardware gets."""
    other = writer.add("QuantizeLinear", "x", writer.constant(np.float32(1 / 4)), writer.zero)
    real = writer.add("DequantizeLinear", other, writer.constant(np.float32(1 / 4)), writer.zero)
    writer.tensor = writer.add("Sub", real, writer.dequantise(maps[0]))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_quantised_function, r"Concat node '\w+': must take maps of one size, not 8x8x8 and 8x4x4"),
        (_product, r"Concat node '\w+': must take maps of one size, not 8x8x8 and 8x4x4"),
        (_sum, r"Add node '\w+': gives floats; a QuantizeLinear must follow"),
        (_unknown, r"2 things .*"),
        (
            _two_inputs,
            r"2 things .*\n.* goes to .* as floats; .*\n.*'sub12': gives floats; a QuantizeLinear must follow",
        ),
    ],
)
def test_refused(write: Callable[[Writer, list[str]], None], message: str, tmp_path) -> None:
    writer, maps = pyramid(2)
    write(writer, maps)
    ranks = {_quantised_function: 3, _product: 3, _unknown: 2}
    kind = TensorProto.UINT8 if writer.nodes[-1].op_type == "QuantizeLinear" else TensorProto.FLOAT
    writer.give(writer.tensor, kind, ranks.get(write, 4))
    with pytest.raises(ModelError, match=rf"^.*model\.onnx: {message}"):
        load(writer.model(), tmp_path, until="end")
