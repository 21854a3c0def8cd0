"""Outputs whose number of rows depends on the frame's values: a detector's boxes behind NonMaxSuppression.

Referee: ONNX Runtime on the whole model, frame by frame.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from foreign import Writer, begun, by_onnxruntime, conv
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import InputError, ModelError

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
        "whose number of rows differs by frame: give --integers, or read it with hwgen.Session"
        in capsys.readouterr().err
    )
    assert cli.main(["golden", path, *files, "--integers"]) == 0
    model = hwgen.load(saved(one_head(), tmp_path))
    result = model.plan("zedboard", dsp=60, multipliers="dsp").simulate(x, simulator="amaranth")
    with pytest.raises(InputError, match=r"^labels go with a model of one row of scores for each frame"):
        result.accuracy(np.zeros(2, np.int64))
