"""Sessions against ONNX Runtime's, in simulation and on a board that a golden model plays."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from golden_overlay import pynq_module
from several_inputs import pictures, siamese

import hwgen
from hwgen.network.quantise import quantise

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
    feeds = [frames, {"left": frames["left"]}]
    with pytest.raises(
        hwgen.InputError, match=r"^feeds of a stream must have the same inputs, but some lack right, mask"
    ):
        list(session.stream(None, feeds))


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
    with pytest.raises(hwgen.InputError, match=r"built is no folder of a design: give one that Design\.build wrote"):
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
