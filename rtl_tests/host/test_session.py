"""Sessions against ONNX Runtime's, in simulation and on a board that a golden model plays."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import small_models
from pieces import Piece
from pynq_model import pynq_module
from several_inputs import pictures, siamese

import hwgen
from hwgen.host.device import Hardware, SessionDevice
from hwgen.network import golden
from hwgen.network.quantise import prepare_inputs, quantise

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def runtime(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def digits() -> hwgen.Design:
    return hwgen.load(DIGITS / "digits.onnx").plan("pynq-z2", dsp=40, multipliers="dsp")


def test_digits_in_simulation(digits):
    """Inputs, outputs and every value are those of ONNX Runtime's session."""
    session, theirs = hwgen.Session(digits), runtime(DIGITS / "digits.onnx")
    for ours, other in ((session.get_inputs(), theirs.get_inputs()), (session.get_outputs(), theirs.get_outputs())):
        assert [(end.name, end.shape[1:], end.type) for end in ours] == [
            (end.name, end.shape[1:], end.type) for end in other
        ]
    feed = {"image": np.load(DIGITS / "images.npy")[:3]}
    for names in (None, ["logits"], ["logits", "logits"]):
        for found, expected in zip(
            session.run(names, feed), theirs.run(["logits"] * len(names or [1]), feed), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    assert session.device.result.as_predicted


def test_a_folder(digits, tmp_path):
    """The design is made again from its plan; a folder alone does not have the model."""
    folder = digits.build(tmp_path / "built")
    session = hwgen.Session(folder, model=DIGITS / "digits.onnx")
    images = np.load(DIGITS / "images.npy")[:2]
    np.testing.assert_array_equal(session.run(None, {"image": images})[0], digits.model.golden(images))
    assert session.device.hardware.design.plan.board == digits.board
    with pytest.raises(hwgen.InputError, match=r"needs its model: Session\('.*built', model='NAME\.onnx'\)$"):
        hwgen.Session(folder)


def test_a_stream(digits):
    """Feeds of any size, in order; the first outputs come before the last feeds are made."""
    images = np.load(DIGITS / "images.npy")[:12]
    made: list[int] = []

    def feeds():
        for begin, end in ((0, 1), (1, 5), (5, 6), (6, 6), (6, 12)):
            made.append(end)
            yield {"image": images[begin:end]}

    stream = hwgen.Session(digits).stream(None, feeds(), frames=4)
    found = [next(stream)[0]]
    assert made == [1, 5]
    found += [values for (values,) in stream]
    assert [len(values) for values in found] == [1, 4, 1, 0, 6]
    np.testing.assert_array_equal(np.concatenate(found), digits.model.golden(images))


@pytest.mark.long
def test_several_inputs(tmp_path):
    path = tmp_path / "siamese.onnx"
    onnx.save(quantise(siamese(), pictures(8), "siamese"), path)
    model, frames = hwgen.load(path), pictures(3, seed=3)
    session = hwgen.Session(model.plan("zedboard", multipliers="dsp"))
    expected = runtime(path).run(None, frames)
    for found, wanted in zip(session.run(None, frames), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A session on a PYNQ board, and its model."""
    model = hwgen.load("decoilfnet-example")
    folder = model.plan("pynq-z2", dsp=20, multipliers="dsp").build(tmp_path / "built")
    monkeypatch.setitem(sys.modules, "pynq", pynq_module(model, folder))
    return hwgen.Session(folder, "pynq", model=model), model


def test_a_board(board):
    """The driver moves the frames; an error leaves the session usable."""
    session, model = board
    (end,) = session.get_inputs()
    for count in (1, 5):
        frames = model.random_frames(count)
        np.testing.assert_array_equal(session.run(None, {end.name: frames})[0], model.golden(frames))
    channel = session.device.driver._sends[0]._channel
    transfer = channel.transfer

    def fails(*_):
        channel.transfer = transfer
        raise RuntimeError("DMA channel not idle")

    channel.transfer = fails
    with pytest.raises(hwgen.DeviceError, match=r"^the DMA of s_axis refused: DMA channel not idle$"):
        session.run(None, {end.name: frames})
    with pytest.raises(hwgen.InputError, match=r"frames must be of these, not x$"):
        session.run(None, {"x": frames})
    np.testing.assert_array_equal(session.run(None, {end.name: frames})[0], model.golden(frames))
    assert session.device.driver.through == "pynq"
    with pytest.raises(hwgen.InputError, match=r"^device pynq has no option folder; it has timeout$"):
        hwgen.Session(session.device.hardware.folder, "pynq", model=model, folder="x")


def test_a_board_that_is_not_there(digits, tmp_path):
    folder = digits.build(tmp_path / "built")
    with pytest.raises(hwgen.DeviceError, match=r"^there is no UIO device axi_dma_0 \(there are: "):
        hwgen.Session(folder, "linux", model=digits.model)
    with pytest.raises(hwgen.InputError, match=r"^a board needs the folder of a built design: give Session the folder"):
        hwgen.Session(digits, "linux")
    (folder / "digits_driver.py").unlink()
    with pytest.raises(hwgen.InputError, match=r"digits_driver\.py is missing: copy or build the design again$"):
        hwgen.Session(folder, "linux", model=digits.model)
    (folder / "registers.json").write_text("{}")
    with pytest.raises(hwgen.InputError, match=r"has no registers\.json that hwgen wrote: copy or build"):
        hwgen.Session(folder, "linux", model=digits.model)
    shutil.rmtree(folder)
    with pytest.raises(
        hwgen.InputError, match=r"built is not the folder of a design: give one that Design\.build wrote"
    ):
        hwgen.Session(folder, "linux", model=digits.model)


def test_wrong_requests(digits):
    session = hwgen.Session(digits)
    with pytest.raises(hwgen.InputError, match=r"^there is no output scores: the model has logits$"):
        session.run(["scores"], {"image": np.zeros((1, 1, 8, 8), np.float32)})
    with pytest.raises(hwgen.InputError, match=r"^device must be simulation, pynq, linux, serial, not 'usb'$"):
        hwgen.Session(digits, "usb")
    with pytest.raises(hwgen.InputError, match=r"^a design has its model already"):
        hwgen.Session(digits, model=digits.model)
    with pytest.raises(hwgen.InputError, match=r"^frames must be a positive integer, not 0$"):
        next(session.stream(None, [], frames=0))
    image = np.zeros((2, 1, 8, 8), np.float32)
    with pytest.raises(hwgen.InputError, match=r"^output_names must be a list of names, not 'logits'$"):
        session.run("logits", {"image": image})
    with pytest.raises(hwgen.InputError, match=r"^input_feed must be a dict of arrays by input \(image\), not list$"):
        session.run(None, [image])
    with pytest.raises(hwgen.InputError, match=r"frames must be of these, not none$"):
        session.run(None, {})
    with pytest.raises(hwgen.InputError, match=r"input must have one frame at least, not none$"):
        session.run(None, {"image": image[:0]})
    with pytest.raises(hwgen.InputError, match=r"input must be a NumPy array, not MaskedArray$"):
        session.run(None, {"image": np.ma.masked_array(image, image > 0)})
    for names, message in (
        ([3], r"^there is no output 3: the model has logits$"),
        ([None], r"^there is no output None: the model has logits$"),
        (3, r"^output_names must be a list of names, not 3$"),
    ):
        with pytest.raises(hwgen.InputError, match=message):
            session.run(names, {"image": image})
    with pytest.raises(hwgen.InputError, match=r"^feeds must be an iterable of dicts, not NoneType$"):
        next(session.stream(None, None))
    with pytest.raises(hwgen.InputError, match=r"^design must be a Design or a folder, not NoneType$"):
        hwgen.Session(None)
    with pytest.raises(hwgen.InputError, match=r"^device simulation has no option nix; it has simulator, .*jobs"):
        hwgen.Session(digits, nix=3)
    with pytest.raises(hwgen.InputError, match=r"^device serial needs a port, such as port='/dev/ttyUSB0'$"):
        hwgen.Session(digits, "serial")


def test_maps_to_complete(digits):
    """Maps of a board must be those of the hardware's outputs."""
    model, images = digits.model, np.load(DIGITS / "images.npy")[:3]
    maps = golden.outputs(model.network, prepare_inputs(model.network, images))
    np.testing.assert_array_equal(model.complete(maps, images), model.golden(images))
    (whole,) = maps
    for wrong, message in (
        ([], "maps must be 1, one for each output of the hardware, not 0"),
        ([whole, whole], "maps must be 1, one for each output of the hardware, not 2"),
        ([whole[:2]], r"map 0 must be of shape \(3, 10, 1, 1\), not \(2, 10, 1, 1\)"),
        ([whole[:, :9]], r"map 0 must be of shape \(3, 10, 1, 1\), not \(3, 9, 1, 1\)"),
        ([whole.astype(np.float32)], "map 0 must be an array of integers, not float32"),
        ([[3]], "map 0 must be an array of integers, not list"),
    ):
        with pytest.raises(hwgen.InputError, match=f"^{message}$"):
            model.complete(wrong, images)


class GoldenDevice(SessionDevice):
    """Device of a session that computes the golden model, so that only the session itself is tested."""

    def __init__(self, model):
        super().__init__(Hardware(model))
        self.batches = []

    def compute(self, x):
        outputs = self.hardware.model.golden(dict(x))
        self.batches.append(len(next(iter(x.values()))))
        return outputs


def test_streams_of_a_fixed_batch(tmp_path):
    """A feed begins with a new batch, as it does in a run: a constant has a value for each position."""
    piece = Piece(kind=np.float32, scale=0.05, batch=3)
    position = piece.node("Sub", "x", np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1))
    onnx.save(
        piece.model(piece.requantise(piece.conv(piece.requantise(position, 0.03, 99)), 0.2, 100)), tmp_path / "m.onnx"
    )
    session = object.__new__(hwgen.Session)
    session._model = hwgen.load(tmp_path / "m.onnx")
    session.device = GoldenDevice(session._model)
    feeds = [{"x": piece.frames(count, seed=count)} for count in (3, 3, 2, 1, 3)]
    for found, feed in zip(session.stream(None, feeds), feeds, strict=True):
        np.testing.assert_array_equal(found[0], session.run(None, feed)[0])
    assert 8 in session.device.batches  # the first three feeds together


def test_names_of_a_stream_are_read_once(pairs):
    """They may be an iterator."""
    session, frames = pairs
    names = session._model.output_names
    streams = [session.stream(given, [frames, frames], frames=1) for given in (iter(names), names)]
    for found, expected in zip(*streams, strict=True):
        assert len(found) == len(names)
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def pairs(tmp_path):
    """A session of a model with two inputs on a `GoldenDevice`, and five frames of each input."""
    path, calibration = small_models.write("two-inputs", tmp_path)
    session = object.__new__(hwgen.Session)
    session._model = hwgen.load(path, calibration=calibration)
    session.device = GoldenDevice(session._model)
    return session, {name: values[:5] for name, values in calibration.items()}


def test_streams_join_feeds_of_the_same_types_alone(pairs):
    """Integers beside floats are computed apart, because joined they would be read as floats."""
    session, floats = pairs
    session._is_quantised = True
    first, second = floats
    integers = session._model.prepare(floats)
    feeds = [
        {name: values[:2] for name, values in floats.items()},
        {first: integers[first][2:3], second: floats[second][2:3]},
        {name: values[3:5] for name, values in floats.items()},
        {second: floats[second][:1], first: floats[first][:1]},
    ]
    expected = [session.run(None, feed) for feed in feeds]
    session.device.batches.clear()
    for outputs, wanted in zip(session.stream(None, feeds), expected, strict=True):
        for values, others in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(values, others)
    assert session.device.batches == [2, 1, 3]


def test_streams_refuse_a_feed_as_a_run_does(pairs):
    """The outputs of the feeds before it come first."""
    session, floats = pairs
    first, second = floats
    good = {name: values[:2] for name, values in floats.items()}
    for wrong in (
        {first: good[first], second: good[second][:1]},
        {first: good[first]},
        {first: good[first][:, :1, :1, :1], second: good[second]},
        {first: np.float32(0), second: np.float32(0)},
        {first: np.array(0.0), second: np.array(0.0)},
        [good[first], good[second]],
        {},
    ):
        with pytest.raises(hwgen.InputError) as refusal:
            session.run(None, wrong)
        stream = session.stream(None, [good, wrong])
        assert len(next(stream)[0]) == 2
        with pytest.raises(hwgen.InputError, match=f"^{re.escape(str(refusal.value))}$"):
            next(stream)
