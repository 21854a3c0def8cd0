"""Operators in front of the first quantisers: the host runs them, and the hardware begins behind them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from pieces import Piece
from referees import integer_session

import hwgen
from hwgen.network.onnx.importer import to_network


def _normalised(piece: Piece) -> str:
    """Mean and deviation by channel, as image models subtract and divide them."""
    centred = piece.node("Sub", "x", np.float32([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
    return piece.node("Div", centred, np.float32([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))


def _doubled(piece: Piece) -> str:
    return piece.node("Sub", piece.node("Mul", "x", np.float32(2)), np.float32(1))


def _space_to_depth(piece: Piece) -> str:
    return piece.node("SpaceToDepth", "x", blocksize=2)


def _focus(piece: Piece) -> str:
    """Four slices of every second pixel, one behind the other, as YOLOv5's first layer takes them."""
    parts = [
        piece.node("Slice", "x", np.array([row, column]), np.array([99, 99]), np.array([2, 3]), np.array([2, 2]))
        for column in (0, 1)
        for row in (0, 1)
    ]
    return piece.node("Concat", *parts, axis=1)


def _resized(piece: Piece) -> str:
    turned = piece.node("Transpose", piece.node("Mul", "x", np.float32(3)), perm=[0, 1, 3, 2])
    return piece.node("Clip", turned, np.float32(-2), np.float32(4))


HEADS = [_normalised, _doubled, _space_to_depth, _focus, _resized]


def _model(head, kind=np.float32) -> tuple[onnx.ModelProto, Piece]:
    piece = Piece(kind=np.float32, scale=0.05)
    tensor = head(piece)
    channels = 12 if head in (_space_to_depth, _focus) else 3
    real = piece.requantise(tensor, 0.0317, 120)
    sums = piece.conv(real, 4, channels, pads=[1] * 4)
    return piece.model(piece.dequantise(piece.quantise(sums, 0.21, 100), 0.21, 100)), piece


@pytest.mark.parametrize("head", HEADS)
def test_equal(head, tmp_path) -> None:
    model, _ = _model(head)
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(4).normal(size=(40, 3, 6, 6)).astype(np.float32)
    found = hwgen.load(tmp_path / "model.onnx")
    theirs = integer_session(model)[0].run(None, {"x": x})[0]
    np.testing.assert_array_equal(found.golden(x), theirs)
    parts = np.concatenate(list(found.golden_parts(x)))
    np.testing.assert_array_equal(parts, theirs)


@pytest.mark.parametrize("batch", ["n", 2])
def test_a_mean_of_all_frames(batch: int | str) -> None:
    """The mean of a frame's own pixels is a head; the mean of all frames would mix them."""
    for axes in ([0, 2, 3], [2, 3]):
        piece = Piece(kind=np.float32, scale=0.05, batch=batch)
        real = piece.requantise(piece.node("Sub", "x", piece.node("ReduceMean", "x", np.array(axes))), 0.03, 120)
        model = piece.model(piece.quantise(piece.conv(real), 0.21, 100))
        if 0 in axes:
            with pytest.raises(
                hwgen.ModelError, match=r"^model: ReduceMean node '\w+': works along axis 0, that of the "
            ):
                to_network(model, "model")
        else:
            assert to_network(model, "model").host.head.operators == ("ReduceMean", "Sub")


def test_frames_that_leave_the_head_along_another_axis() -> None:
    """Three frames of three channels, so that nothing but the Transpose tells them apart."""
    piece = Piece(kind=np.float32, scale=0.05, batch=3)
    turned = piece.node("Transpose", piece.node("Mul", "x", np.float32(2)), perm=[1, 0, 2, 3])
    model = piece.model(piece.quantise(piece.conv(piece.requantise(turned, 0.03, 120)), 0.21, 100))
    with pytest.raises(hwgen.ModelError, match="works on the float input; a QuantizeLinear must come first"):
        to_network(model, "model")


def _by_position(piece: Piece, tensor: str, batch: int) -> str:
    """Subtract another constant from the frame at each position of a batch."""
    return piece.node("Sub", tensor, np.arange(batch, dtype=np.float32).reshape(batch, 1, 1, 1) / 4)


def _before(piece: Piece, batch: int) -> str:
    real = piece.requantise(_by_position(piece, "x", batch), 0.0317, 120)
    return piece.requantise(piece.conv(real), 0.21, 100)


def _behind_two_tensors(piece: Piece, batch: int) -> str:
    real = piece.requantise("x", 0.0317, 120)
    sums = piece.requantise(piece.conv(real, 3, pads=[1] * 4), 0.21, 100)
    return _by_position(piece, piece.node("Sub", sums, real), batch)


@pytest.mark.parametrize("batch", [3, 7, 40])
@pytest.mark.parametrize("write", [_before, _behind_two_tensors])
def test_positions_in_a_fixed_batch(write, batch: int, tmp_path) -> None:
    """A frame keeps its position in the batch, also where 32 frames are no whole number of batches."""
    piece = Piece(kind=np.float32, scale=0.05, batch=batch)
    model = piece.model(write(piece, batch))
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(4).normal(size=(2 * 40, 3, 6, 6)).astype(np.float32)
    whole = np.concatenate([x, x])[: -(-len(x) // batch) * batch]  # the last batch filled up
    session, _ = integer_session(model)
    parts = [session.run(None, {"x": whole[begin : begin + batch]})[0] for begin in range(0, len(whole), batch)]
    found = hwgen.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(found.golden(x), np.concatenate(parts)[: len(x)])
    assert (found.network.host.head is None) == (write is _behind_two_tensors)


@pytest.mark.long
def test_in_hardware(tmp_path) -> None:
    model, _ = _model(_normalised)
    onnx.save(model, tmp_path / "model.onnx")
    design = hwgen.load(tmp_path / "model.onnx").plan("zedboard")
    x = np.random.default_rng(4).normal(size=(2, 3, 6, 6)).astype(np.float32)
    result = design.simulate(x, simulator="amaranth")
    assert result.mismatches == 0
    np.testing.assert_array_equal(result.outputs, integer_session(model)[0].run(None, {"x": x})[0])
    assert "Sub, Div, QuantizeLinear before" in design.report()


def test_pixels_of_bytes(tmp_path) -> None:
    """A model that takes bytes, and makes floats of them."""
    piece = Piece(kind=np.uint8)
    scaled = piece.node("Div", piece.node("Cast", "x", to=TensorProto.FLOAT), np.float32(255))
    model = piece.model(piece.quantise(piece.conv(piece.requantise(scaled, 1 / 255)), 0.5, 9))
    onnx.save(model, tmp_path / "model.onnx")
    found, x = hwgen.load(tmp_path / "model.onnx"), piece.frames(20)
    np.testing.assert_array_equal(found.golden(x), integer_session(model)[0].run(None, {"x": x})[0])
    assert found.random_frames(2).dtype == np.uint8
    with pytest.raises(hwgen.InputError, match="must be uint8, not int16"):
        found.golden(x.astype(np.int16))
    with pytest.raises(hwgen.InputError, match="must be of shape"):
        found.golden(x[:, :2])


def test_two_inputs_joined(tmp_path) -> None:
    """A Concat of two float inputs is one input of the hardware."""
    piece = Piece(kind=np.float32)
    joined = piece.node("Concat", "x", "z", axis=1)
    model = piece.model(piece.quantise(piece.conv(piece.requantise(joined, 0.05, 120), 4, 5), 0.5, 99))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2, 6, 6]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.UINT8, ["n", 4, 4, 4]))
    model.graph.node[-1].output[0] = "y"
    onnx.save(model, tmp_path / "model.onnx")
    random = np.random.default_rng(3)
    frames = {name: random.normal(size=(9, size, 6, 6)).astype(np.float32) for name, size in (("x", 3), ("z", 2))}
    found = hwgen.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(found.golden(frames), integer_session(model)[0].run(None, frames)[0])


def test_verdicts(tmp_path) -> None:
    model, _ = _model(_normalised)
    onnx.save(model, tmp_path / "model.onnx")
    verdicts = {verdict.op: verdict for verdict in hwgen.check(tmp_path / "model.onnx").operators}
    assert verdicts["Div"].verdict == "host"
    assert verdicts["Div"].reason == "in front of the first integer tensor"


def test_layers_in_front_are_refused(tmp_path) -> None:
    """A convolution of floats never moves to the host by itself."""
    piece = Piece(kind=np.float32)
    sums = piece.node("Conv", "x", piece.floats(4, 3, 1, 1))
    onnx.save(piece.model(piece.quantise(piece.conv(piece.requantise(sums, 0.1), 4, 4), 0.5)), tmp_path / "model.onnx")
    with pytest.raises(hwgen.ModelError, match=r"Conv node .*: works on the float input; a QuantizeLinear must come"):
        hwgen.load(tmp_path / "model.onnx")
