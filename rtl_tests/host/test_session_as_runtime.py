"""Sessions in programs written for ONNX Runtime's: shapes, types, names and refusals are as there, for any batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from pieces import Piece
from referees import integer_session

import hwgen
from hwgen.host.device import Hardware, SessionDevice

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
Tail = Callable[[Piece, str], str]


class GoldenDevice(SessionDevice):
    """Device of a session that computes the golden model, so that only the session itself is tested."""

    def compute(self, x):
        return self.hardware.model.golden(dict(x))


def session_of(model: onnx.ModelProto, folder: Path, **options: bool) -> hwgen.Session:
    """A session of the model without hardware."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    session = object.__new__(hwgen.Session)
    session._model = hwgen.load(path)
    session._is_quantised = bool(options.get("quantised"))
    session.device = GoldenDevice(Hardware(session._model))
    return session


def node(operator: str, *inputs: object, **attributes: object) -> Tail:
    return lambda piece, tensor: piece.node(operator, tensor, *inputs, **attributes)


def both(*tails: Tail) -> Tail:
    def chained(piece: Piece, tensor: str) -> str:
        for tail in tails:
            tensor = tail(piece, tensor)
        return tensor

    return chained


POOL = node("MaxPool", kernel_shape=[4, 1], strides=[4, 1])
TAILS: dict[str, Tail] = {
    "rows": both(),
    "frames in the second dimension": both(POOL, node("Squeeze", np.array([2])), node("Transpose", perm=[2, 0, 1])),
    "frames last": node("Transpose", perm=[1, 2, 3, 0]),
    "frames behind a dimension of one": both(
        node("Softmax", axis=1), node("ReduceMean", np.array([2, 3]), keepdims=0), node("Unsqueeze", np.array([0]))
    ),
    "frames and pixels in one dimension": both(
        node("Transpose", perm=[0, 2, 3, 1]), node("Reshape", np.array([-1, 4]))
    ),
    "channels, frames and pixels in one dimension": both(
        node("Transpose", perm=[1, 0, 2, 3]), node("Reshape", np.array([-1, 16]))
    ),
    "all in one dimension": node("Reshape", np.array([-1])),
    "a dimension in front": node("Unsqueeze", np.array([0])),
    "softmax behind a transpose": both(node("Transpose", perm=[1, 0, 2, 3]), node("Softmax", axis=0)),
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("batch", ["n", 1])
def test_shapes(name: str, batch: int | str, tmp_path: Path) -> None:
    """Of outputs, and of what describes inputs and outputs; for batches of one frame and of several."""
    piece = Piece((3, 4, 4), np.float32, scale=0.02, zero=99, batch=batch)
    tensor = piece.requantise(piece.conv(piece.real(), pads=[1, 1, 1, 1]), 0.2, 100)
    model = piece.model(TAILS[name](piece, tensor))
    ours, (theirs, _) = session_of(model, tmp_path), integer_session(model)
    assert described(ours) == described(theirs)
    for count in (1,) if batch == 1 else (1, 2, 5):
        feed = {"x": piece.frames(count)}
        (found,), (expected,) = ours.run(None, feed), theirs.run(None, feed)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert found.shape == expected.shape


def described(session: object) -> list[tuple[str, list[int | str | None], str]]:
    ends = [*session.get_inputs(), *session.get_outputs()]
    return [(end.name, list(end.shape), end.type) for end in ends]


def several_outputs() -> tuple[Piece, onnx.ModelProto]:
    """One output with frames as rows and two with frames elsewhere, of one map and of two."""
    piece = Piece((3, 4, 4), np.float32, scale=0.02, zero=99)
    first = piece.requantise(piece.conv(piece.real(), pads=[1, 1, 1, 1]), 0.2, 100)
    second = piece.requantise(piece.conv(first, 4, 4), 0.5, 90)
    moved = piece.node("Transpose", second, perm=[1, 0, 2, 3])
    joined = piece.node("Concat", piece.node("Flatten", first), piece.node("Flatten", second), axis=1)
    return piece, piece.model(
        piece.node("Softmax", second, axis=1), moved, piece.node("Transpose", joined, perm=[1, 0])
    )


def test_several_outputs(tmp_path: Path) -> None:
    piece, model = several_outputs()
    ours, (theirs, _) = session_of(model, tmp_path), integer_session(model)
    assert described(ours) == described(theirs)
    names = [end.name for end in theirs.get_outputs()]
    for wanted in (None, [], names[::-1], names[1:2], (names[2], names[0]), [names[0], names[0]]):
        for count in (1, 3):
            feed = {"x": piece.frames(count)}
            for options in ((), (None,), (onnxruntime.RunOptions(),)):
                found, expected = (session.run(wanted, feed, *options) for session in (ours, theirs))
                assert [values.shape for values in found] == [values.shape for values in expected]
                for values, others in zip(found, expected, strict=True):
                    np.testing.assert_allclose(values, others, rtol=1e-6)


def test_a_stream_gives_what_runs_give(tmp_path: Path) -> None:
    """Feeds are computed together, and split where the frames are."""
    piece, model = several_outputs()
    session = session_of(model, tmp_path)
    feeds = [{"x": piece.frames(count, seed=count)} for count in (1, 3, 2)]
    for outputs, feed in zip(session.stream(None, feeds), feeds, strict=True):
        for found, expected in zip(outputs, session.run(None, feed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.float32])
def test_types_of_inputs(kind: type, tmp_path: Path) -> None:
    """Only the declared type is accepted, as by ONNX Runtime."""
    piece = Piece((3, 4, 4), kind, scale=0.02, zero=9)
    model = piece.model(piece.requantise(piece.conv(piece.real()), 0.2137, 100))
    ours, (theirs, _) = session_of(model, tmp_path), integer_session(model)
    assert described(ours) == described(theirs)
    frames = piece.frames(2)
    for other in (np.float32, np.float64, np.float16, np.uint8, np.int8, np.int16, np.int64, bool):
        feed = {"x": frames.astype(other)}
        if other == kind:
            np.testing.assert_array_equal(ours.run(None, feed)[0], theirs.run(None, feed)[0])
            continue
        with pytest.raises(Exception, match="Unexpected input data type"):
            theirs.run(None, feed)
        with pytest.raises(hwgen.InputError) as refusal:
            ours.run(None, feed)
        expected = f"must be {np.dtype(kind)}, as the model's input is, not {np.dtype(other)}"
        assert expected in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_integers_that_are_quantised_already(tmp_path: Path) -> None:
    """For who wants them; the error says how."""
    piece = Piece((3, 4, 4), np.float32, scale=0.02, zero=9)
    model = piece.model(piece.requantise(piece.conv(piece.real()), 0.2137, 100))
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 4, 4), np.uint8)
    with pytest.raises(
        hwgen.InputError,
        match=r"not uint8; Session\(\.\., quantised=True\) accepts integers that are quantised already "
        r"\(scale 0\.02, zero point 9\)$",
    ):
        session_of(model, tmp_path).run(None, {"x": pixels})
    reals = (pixels.astype(np.float32) - 9) * np.float32(0.02)
    (expected,) = integer_session(model)[0].run(None, {"x": reals})
    (found,) = session_of(model, tmp_path, quantised=True).run(None, {"x": pixels})
    np.testing.assert_array_equal(found, expected)


def test_the_argument(tmp_path: Path) -> None:
    """Of a session on hardware."""
    design = hwgen.load(DIGITS / "digits.onnx").plan("pynq-z2", dsp=40, multipliers="dsp")
    session = hwgen.Session(design, quantised=True)
    assert session._is_quantised
    assert not hwgen.Session(design)._is_quantised


def test_shapes_of_inputs(tmp_path: Path) -> None:
    """The map's own shape is another rank than the model's, which ONNX Runtime refuses."""
    piece = Piece((9,), np.float32, scale=0.02, zero=9)
    model = piece.model(piece.requantise(piece.node("Gemm", piece.real(), piece.weights((9, 5)), piece.floats(5)), 0.2))
    ours, (theirs, _) = session_of(model, tmp_path), integer_session(model)
    frames = piece.frames(2)
    for wrong in (frames.reshape(2, 9, 1, 1), frames[0], frames[:, :8], frames[None]):
        with pytest.raises(Exception, match=r"Invalid rank|invalid dimensions"):
            theirs.run(None, {"x": wrong})
        with pytest.raises(hwgen.InputError, match=r"^model: input must be of shape \(frames, 9\), not "):
            ours.run(None, {"x": wrong})
    np.testing.assert_array_equal(ours.run(None, {"x": frames})[0], theirs.run(None, {"x": frames})[0])


def test_an_input_that_nothing_reads(tmp_path: Path) -> None:
    """ONNX Runtime lists it and wants it; what is given for it does not matter."""
    piece = Piece((3, 4, 4), np.float32, scale=0.02, zero=9)
    model = piece.model(piece.requantise(piece.conv(piece.real()), 0.2137, 100))
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.INT64, ["n", 2]))
    ours, (theirs, _) = session_of(model, tmp_path), integer_session(model)
    assert described(ours) == described(theirs)
    feed = {"x": piece.frames(2), "unused": np.zeros((2, 2), np.int64)}
    np.testing.assert_array_equal(ours.run(None, feed)[0], theirs.run(None, feed)[0])
