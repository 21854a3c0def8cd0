"""Raw pixels as inputs: what the hardware makes of them equals ONNX Runtime on preprocessed floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from pieces import Piece
from referees import integer_session

import hwgen
from hwgen import Pixels
from hwgen.cli import main as cli
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.raw_pixels import with_raw_pixels

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _model(scale: float, zero: int, kind: type = np.uint8) -> onnx.ModelProto:
    """A convolution of 3 channels behind a quantiser of floats."""
    piece = Piece(kind=np.float32, shape=(3, 8, 8))
    sums = piece.conv(piece.requantise("x", scale, zero, kind), 4, 3, pads=[1] * 4)
    return piece.model(piece.dequantise(piece.quantise(sums, 0.21, 100), 0.21, 100))


def _pixels(count: int = 12) -> np.ndarray:
    """Random frames; the first four hold each value in each channel."""
    x = np.random.default_rng(1).integers(0, 256, (count, 3, 8, 8)).astype(np.uint8)
    x[:4] = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)[: len(x)]
    return x


def _preprocessed(x: np.ndarray, pixels: Pixels) -> np.ndarray:
    """Floats by torchvision's operations, one after the other in float32."""
    shape = (1, -1, 1, 1)
    floats = x.astype(np.float32) / np.float32(255) if pixels.range == 1 else x.astype(np.float32)
    mean, deviation = (np.array(values, np.float32).reshape(shape) for values in (pixels.mean, pixels.deviation))
    return ((floats - mean) / deviation).astype(np.float32)


def _loaded(model: onnx.ModelProto, folder, pixels: Pixels) -> hwgen.Model:
    onnx.save(model, folder / "model.onnx")
    return hwgen.load(folder / "model.onnx", pixels=pixels)


def _check(model: onnx.ModelProto, folder, pixels: Pixels) -> hwgen.Model:
    found, x = _loaded(model, folder, pixels), _pixels()
    theirs = integer_session(model)[0].run(None, {"x": _preprocessed(x, pixels)})[0]
    np.testing.assert_array_equal(found.golden(x), theirs)
    return found


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_preprocessing(tmp_path_factory, data):
    """Means and deviations of all channels or each, any scale and zero point, signed and unsigned."""
    count = data.draw(st.sampled_from([1, 3]))
    numbers = st.floats(-2, 2, width=32)
    pixels = Pixels(
        mean=tuple(data.draw(st.lists(numbers, min_size=count, max_size=count))),
        deviation=tuple(data.draw(st.lists(st.floats(0.125, 8, width=32), min_size=count, max_size=count))),
        range=data.draw(st.sampled_from([1, 255])),
    )
    kind = data.draw(st.sampled_from([np.uint8, np.int8]))
    zero = data.draw(st.integers(np.iinfo(kind).min, np.iinfo(kind).max))
    scale = data.draw(st.floats(2**-10, 2, width=32))
    _check(_model(scale, zero, kind), tmp_path_factory.mktemp("pixels"), pixels)


@pytest.mark.parametrize(
    ("kind", "scale", "zero", "pixels"),
    [
        (np.uint8, 1 / 255, 0, Pixels()),
        (np.int8, 1 / 255, -128, Pixels()),
        (np.uint8, 1.0, 0, Pixels(range=255)),
        (np.uint8, 2 / 255, 128, Pixels(mean=(128 / 255,), deviation=(0.5,))),
    ],
)
def test_no_table(tmp_path, kind, scale, zero, pixels):
    """Where a quantised value is the pixel, or the pixel less 128, nothing is computed in front of the convolution."""
    found = _check(_model(scale, zero, kind), tmp_path, pixels)
    assert [layer.kind for layer in found.network.layers] == ["conv"]
    assert str(found.network.input.type) == "uint8"


@pytest.mark.long
def test_table_by_channel_in_hardware(tmp_path):
    """The plan shows what the table costs; values equal ONNX Runtime's."""
    model, pixels = _model(0.0187, 114), Pixels(MEAN, DEVIATION)
    found = _check(model, tmp_path, pixels)
    assert [layer.kind for layer in found.network.layers] == ["lookup", "conv"]
    design = found.plan("zedboard")
    assert "lookup" in design.table()
    x = _pixels(2)
    result = design.simulate(x, simulator="amaranth")
    assert result.mismatches == 0
    theirs = integer_session(model)[0].run(None, {"x": _preprocessed(x, pixels)})[0]
    np.testing.assert_array_equal(result.outputs, theirs)


def test_preprocessing_of_the_model(tmp_path):
    """A model that makes floats of bytes is computed whole: nothing of it stays on the host."""
    piece = Piece(kind=np.uint8)
    scaled = piece.node("Div", piece.node("Cast", "x", to=TensorProto.FLOAT), np.float32(255))
    model = piece.model(piece.quantise(piece.conv(piece.requantise(scaled, 1 / 300)), 0.5, 9))
    found, x = _loaded(model, tmp_path, Pixels()), piece.frames(20)
    assert not found.host["host"]["before"]
    np.testing.assert_array_equal(found.golden(x), integer_session(model)[0].run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (1.0, 2.0)}, r"input 'x' has 3 channels: give one mean for all or 3 of them, not 2$"),
        (
            {"deviation": (0.0,)},
            r"^deviation must be a tuple of positive numbers of float32, one for all channels or one for each, not \(0",
        ),
        ({"mean": (float("nan"),)}, r"^mean must be a tuple of finite numbers of float32, "),
        ({"mean": (1e30,), "deviation": (1e-30,)}, r"^mean and deviation give floats beyond float32: \("),
        ({"mean": (1e39,)}, r"^mean must be a tuple of finite numbers of float32, "),
        ({"mean": (10**400,)}, r"^mean must be a tuple of finite numbers of float32, "),
        ({"deviation": (1e-60,)}, r"^deviation must be a tuple of positive numbers of float32, "),
        ({"range": True}, r"^range of pixels must be 1 or 255, not True$"),
        ({"range": 2}, r"^range of pixels must be 1 or 255, not 2$"),
    ],
)
def test_refused(settings, message):
    with pytest.raises(hwgen.InputError, match=message):
        with_raw_pixels(_model(0.01, 0), Pixels(**settings), "model.onnx")


def test_channels_along_the_last_axis():
    """Rows are the first axis then; the message says what would do."""
    piece = Piece((9, 7, 3), np.float32, scale=0.01, zero=0)
    turned = piece.node("Transpose", piece.real(), perm=[0, 3, 1, 2])
    model = piece.model(piece.quantise(piece.conv(turned), 0.5, 99))
    message = (
        r"has 9 channels: give one mean .*, not 3; if its last axis holds the channels, give one for all, or export"
    )
    with pytest.raises(hwgen.InputError, match=message):
        with_raw_pixels(model, Pixels(mean=(0.4, 0.5, 0.6)), "model.onnx")


def test_an_input_of_sixteen_bits():
    piece = Piece(kind=np.float32)
    real = piece.requantise("x", 0.001, 0, np.int16)
    model = piece.model(piece.quantise(piece.conv(real), 0.5, 0, np.int16))
    message = r"^model.onnx: input 'x' is quantised to int16; for raw pixels it must have 8 bits at most: leave out"
    with pytest.raises(hwgen.InputError, match=message):
        with_raw_pixels(model, Pixels(mean=(0.4, 0.5, 0.6)), "model.onnx")


def test_pixels_are_float32():
    assert Pixels(mean=(0.1,), deviation=(1, 3)) == Pixels(mean=(float(np.float32(0.1)),), deviation=(1.0, 3.0))


def test_type_of_a_quantiser_without_zero_point(tmp_path):
    """A quantiser whose attribute says int8 ends at 127: its values are not the pixels."""
    model = _model(1 / 255, 0, np.int8)
    model.opset_import[0].version, model.ir_version = 21, 10
    quantiser = next(node for node in model.graph.node if node.op_type == "QuantizeLinear" and "x" in node.input)
    del quantiser.input[2]
    quantiser.attribute.append(helper.make_attribute("output_dtype", TensorProto.INT8))
    found = _check(model, tmp_path, Pixels())
    assert [layer.kind for layer in found.network.layers] == ["lookup", "conv"]


def test_unknown_zero_point():
    """Nodes whose zero point is no constant keep their quantiser."""
    model = _model(1 / 255, 3)
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] == "QuantizeLinear0":
            node.input[2] = "computed"
    quantiser = next(node for node in model.graph.node if node.op_type == "QuantizeLinear" and "x" in node.input)
    quantiser.input[2] = ""
    assert quantiser.name == "QuantizeLinear0"
    changed = with_raw_pixels(model, Pixels(), "model.onnx")
    assert quantiser.name in [node.name for node in changed.graph.node]


def test_integers_are_refused():
    piece = Piece(kind=np.int8)
    with pytest.raises(hwgen.InputError, match="input 'x' is of int8; only float32 can be read from raw pixels"):
        with_raw_pixels(piece.model(piece.quantise(piece.conv(piece.real()), 0.5)), Pixels(), "model.onnx")


def test_command_line(tmp_path, capsys):
    onnx.save(_model(0.0187, 114), tmp_path / "model.onnx")
    x = _pixels(3)
    np.save(tmp_path / "x.npy", x)
    options = ["--mean", "0.485,0.456,0.406", "--deviation", "0.229,0.224,0.225"]
    command = ["golden", str(tmp_path / "model.onnx"), "--input", str(tmp_path / "x.npy")]
    command += ["--output", str(tmp_path / "y.npy"), *options]
    assert cli.main([*command, "--input-type", "uint8"]) == 0
    floats = _preprocessed(x, Pixels(MEAN, DEVIATION))
    theirs = integer_session(_model(0.0187, 114))[0].run(None, {"x": floats})[0]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), theirs)
    negative = ["--input-type", "uint8", "--mean", "-0.1,.2,-1e-1", "--deviation", "0.25"]
    assert cli.main([*command[:6], *negative]) == 0
    floats = _preprocessed(x, Pixels((-0.1, 0.2, -0.1), (0.25,)))
    theirs = integer_session(_model(0.0187, 114))[0].run(None, {"x": floats})[0]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), theirs)
    capsys.readouterr()
    assert cli.main(command) == 2
    assert "--mean needs raw pixels: give --input-type uint8 as well" in capsys.readouterr().err


def test_the_network_reads_bytes():
    network = to_network(with_raw_pixels(_model(0.01, 3), Pixels(), "model"), "model")
    assert (str(network.input.type), network.input.shape) == ("uint8", (3, 8, 8))
