"""Sessions: against ONNX Runtime's, in simulation, on a board that a model plays, and under faults."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import small_models
from onnx import TensorProto, helper
from onnx_models import pictures, siamese
from pieces import Piece
from pynq_model import GoldenOverlay, pynq_module
from referees import integer_session
from wrapper_model import Memory
from xdma_model import Streams
from xdma_model import opened as xdma_opened

import hwgen
from hwgen.emit import linux
from hwgen.emit.driver import Stream
from hwgen.host import session as host_device
from hwgen.host.session import SessionDesign, SessionDevice
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
    with pytest.raises(hwgen.InputError, match=r"frames must name these, not x$"):
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


def test_a_card_that_is_not_there(digits, tmp_path):
    """One line, from the driver of a folder for PCI Express; a folder for another board lacks the access."""
    folder = digits.model.plan("vc709", dsp=40, multipliers="dsp").build(tmp_path / "vc709")
    with pytest.raises(
        hwgen.DeviceError, match=r"^there is no /dev/xdma0_user: load this folder's bitstream into the "
    ):
        hwgen.Session(folder, "xdma", model=digits.model)
    with pytest.raises(hwgen.DeviceError, match=r"digits_xdma\.py can't be read: No such file or directory; copy it"):
        hwgen.Session(digits.build(tmp_path / "built"), "xdma", model=digits.model)


def test_wrong_requests(digits):
    session = hwgen.Session(digits)
    with pytest.raises(hwgen.InputError, match=r"^there is no output scores: the model has logits$"):
        session.run(["scores"], {"image": np.zeros((1, 1, 8, 8), np.float32)})
    with pytest.raises(hwgen.InputError, match=r"^device must be simulation, pynq, linux, xdma, serial, not 'usb'$"):
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
    with pytest.raises(hwgen.InputError, match=r"frames must name these, not none$"):
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
        ([whole[:2]], r"map 0 must have shape \(3, 10, 1, 1\), not \(2, 10, 1, 1\)"),
        ([whole[:, :9]], r"map 0 must have shape \(3, 10, 1, 1\), not \(3, 9, 1, 1\)"),
        ([whole.astype(np.float32)], "map 0 must be an array of integers, not float32"),
        ([[3]], "map 0 must be an array of integers, not list"),
    ):
        with pytest.raises(hwgen.InputError, match=f"^{message}$"):
            model.complete(wrong, images)


class GoldenDevice(SessionDevice):
    """Device of a session that computes the golden model, so that only the session itself is tested."""

    def __init__(self, model):
        super().__init__(SessionDesign(model))
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


Tail = Callable[[Piece, str], str]


def session_of(model: onnx.ModelProto, folder: Path, **options: bool) -> hwgen.Session:
    """A session of the model without hardware."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    session = object.__new__(hwgen.Session)
    session._model = hwgen.load(path)
    session._is_quantised = bool(options.get("quantised"))
    session.device = GoldenDevice(session._model)
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
        with pytest.raises(hwgen.InputError, match=r"^model: input must have shape \(frames, 9\), not "):
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


FRAMES = 10_000
#: Seconds that a transfer may take on a busy machine; a fault ends it at once.
PATIENCE = 60
FAULTS = {
    "dma": ("error", "lost", "late", "short", "interrupt"),
    "serial": ("damaged", "cut", "lost", "refused", "repeated", "interrupt"),
}


class Line:
    """Serial port, behind which a board sends outputs that are known, and meets faults.

    Parameters
    ----------
    module : module
        Serial driver of the design.
    build_hash : int
        Hash that the board answers to HELLO.
    outputs : dict of bytes to bytes
        Bytes of a frame's outputs by those of the frame.

    Attributes
    ----------
    fault : str
        What a later frame meets, once: its outputs are ``damaged``, ``cut`` or ``lost``, the board ``refused`` it or
        ``repeated`` the outputs before, or the user ``interrupts`` the program.
    """

    def __init__(self, module: ModuleType, build_hash: int, outputs: dict[bytes, bytes]) -> None:
        self._module, self._hash, self._outputs = module, build_hash, outputs
        self._queue, self._before = bytearray(), b""
        self.fault, self.after = "", 0

    def write(self, data: bytes) -> None:
        for text in filter(None, data.split(bytes([self._module.END]))):
            kind, number, values = self._module.parsed(text)
            if kind == self._module.HELLO:
                self._queue += self._module.packet(kind, number, self._hash.to_bytes(8, "little"))
            else:
                self._answer(number, self._outputs[values])

    def _answer(self, number: int, values: bytes) -> None:
        reply = self._module.packet(self._module.FRAME, number, values)
        before, self._before = self._before, reply
        self.after -= 1
        if self.fault and self.after < 0:
            fault, self.fault = self.fault, ""
            if fault == "interrupt":
                raise KeyboardInterrupt
            changed = bytearray(reply)
            changed[len(reply) // 2] ^= 1
            cut = reply[: len(reply) // 2] + reply[len(reply) // 2 + 1 :]
            refused = self._module.packet(self._module.ERROR, number)
            replies = {"damaged": bytes(changed), "cut": cut, "lost": b"", "refused": refused, "repeated": before}
            reply = replies[fault]
        self._queue += reply

    def read(self, size: int) -> bytes:
        data, self._queue = bytes(self._queue[:size]), self._queue[size:]
        return data

    def close(self) -> None:
        pass


def by_pynq(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session through PYNQ, and what takes its faults."""
    pynq, made = pynq_module(model, folder), list[GoldenOverlay]()
    overlay = pynq.Overlay
    pynq.Overlay = lambda path: made.append(overlay(path)) or made[-1]
    patch.setitem(sys.modules, "pynq", pynq)
    return hwgen.Session(folder, "pynq", model=model, timeout=0.05), made[0]


def by_linux(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session without PYNQ, with the DMAs of the emitted driver for Linux, and what takes its faults."""
    overlay, driver_of = GoldenOverlay(model, folder, Memory()), host_device.driver_of

    def patched(*arguments: Any) -> ModuleType:
        module = driver_of(*arguments)
        access = overlay.control, [linux.Dma(overlay.registers)], overlay.memory.allocate
        module._ACCESSES["linux"] = lambda *_: access
        return module

    patch.setattr(host_device, "driver_of", patched)
    return hwgen.Session(folder, "linux", model=model, timeout=0.05), overlay


def by_xdma(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session with a PCI Express card, and what takes its faults."""
    document, driver_of = json.loads((folder / "registers.json").read_text()), host_device.driver_of
    source, sink = (Stream(document[side][0]) for side in ("inputs", "outputs"))
    outputs: dict[bytes, bytes] = {}

    def computed(packet: bytes) -> bytes:
        """Return the outputs of a packet of frames, which are known."""
        begins = range(0, len(packet), source.memory_bytes)
        made = [outputs[packet[begin:][: source.frame_bytes]].ljust(sink.memory_bytes, b"\0") for begin in begins]
        return b"".join(made)[: sink.bytes_of(len(made))]

    streams = Streams(computed, timeout=PATIENCE)
    access = xdma_opened(folder / "system", document, streams, patch)

    def patched(*arguments: Any) -> ModuleType:
        module = driver_of(*arguments)
        module._ACCESSES["xdma"] = lambda *_: access
        return module

    patch.setattr(host_device, "driver_of", patched)
    session: Any = hwgen.Session(folder, "xdma", model=model, timeout=PATIENCE)
    driver = session.device.driver
    outputs.update(frame_outputs(model, frames, driver.inputs[0], driver.outputs[0]))
    return session, streams


def frame_outputs(model: hwgen.Model, frames: np.ndarray, source: Any, sink: Any) -> dict[bytes, bytes]:
    """Return the bytes of each frame's outputs, by the golden model, from the bytes of the frame."""
    integers: Any = model.golden(frames, integers=True)
    contents = []
    for end, values in ((source, source.to_maps(frames)), (sink, integers)):
        memory = end.stream.memory(np.zeros, len(values))
        end.stream.pack(values.reshape(len(values), *end.stream.shape).astype(end.stream.dtype), memory)
        contents.append([row.tobytes()[: end.stream.frame_bytes] for row in memory])
    return dict(zip(*contents, strict=True))


def by_serial(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session behind a serial port, and what takes its faults."""
    made = list[Line]()
    serial: Any = ModuleType("serial")
    outputs: dict[bytes, bytes] = {}
    build_hash = int(json.loads((folder / "registers.json").read_text())["build_hash"], 0)

    def opened(*_: Any, **__: Any) -> Line:
        made.append(Line(module, build_hash, outputs))
        return made[-1]

    serial.Serial = opened
    patch.setitem(sys.modules, "serial", serial)
    module = host_device.driver_of(host_device.SessionDesign(model, folder=folder), "serial")
    session: Any = hwgen.Session(folder, "serial", model=model, port="played", timeout=0)
    driver = session.device.driver
    outputs.update(frame_outputs(model, frames, driver.input, driver.output))
    return session, made[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "opened", "on"),
    [
        ("pynq-z2", by_pynq, "dma"),
        ("pynq-z2", by_linux, "dma"),
        ("vc709", by_xdma, "dma"),
        ("ulx3s", by_serial, "serial"),
    ],
    ids=["pynq", "linux", "xdma", "serial"],
)
def test_faults(name: str, opened: Callable, on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has its own outputs, whatever the one before met; each fault is an error."""
    model, rng = hwgen.load(DIGITS / "digits.onnx"), np.random.default_rng(32)
    folder = model.plan(name, dsp=40, multipliers="dsp").build(tmp_path / "built")
    frames = rng.uniform(0, 1, (FRAMES, 1, 8, 8)).astype(np.float32)
    expected: Any = model.golden(frames)
    differ = (expected[1:] != expected[:-1]).any(axis=1)
    assert differ.mean() > 0.99  # so that a frame too early or too late is seen
    session, hardware = opened(folder, model, frames, monkeypatch)
    met, begin = Counter[str](), 0
    while begin < FRAMES:
        batch = slice(begin, begin + int(rng.integers(1, 120)))
        feed = {"image": frames[batch]}
        if rng.random() < 0.4:
            hardware.fault = fault = str(rng.choice(FAULTS[on]))
            hardware.after = int(rng.integers(len(feed["image"])))
            met[fault] += 1
            with pytest.raises(KeyboardInterrupt if fault == "interrupt" else hwgen.DeviceError):
                session.run(None, feed)
            assert not hardware.fault
            other = frames[-len(feed["image"]) :]  # whose outputs differ from any that are left of this batch
            np.testing.assert_array_equal(session.run(None, {"image": other})[0], expected[-len(other) :])
        np.testing.assert_array_equal(session.run(None, feed)[0], expected[batch])
        begin += len(feed["image"])
    assert all(met[fault] >= 3 for fault in FAULTS[on])


@pytest.mark.long
def test_refused_feeds_in_simulation() -> None:
    """A stream of frames in simulation; feeds that do not fit are errors between them."""
    model, rng = hwgen.load(DIGITS / "digits.onnx"), np.random.default_rng(33)
    session = hwgen.Session(model.plan("pynq-z2"), simulator="verilator")
    frames = rng.uniform(0, 1, (FRAMES, 1, 8, 8)).astype(np.float32)
    expected: Any = model.golden(frames)
    for batch in (slice(0, 1), slice(1, 100), slice(100, FRAMES)):
        for wrong in ({"image": frames[:1, :, :4]}, {"image": frames[:1] * np.nan}, {"picture": frames[:1]}, {}):
            with pytest.raises(hwgen.InputError):
                session.run(None, wrong)
        feeds = ({"image": part} for part in np.array_split(frames[batch], max(1, len(frames[batch]) // 50)))
        found = np.concatenate([values for (values,) in session.stream(None, feeds, frames=FRAMES)])
        np.testing.assert_array_equal(found, expected[batch])
