"""What `hwgen compare` reads from ONNX Runtime: which tensor is a layer's output, and what the frames are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from pieces import Piece

import hwgen
from hwgen.cli import main as cli
from hwgen.cli import plan as planning
from hwgen.network import host, quantise
from hwgen.simulate import compare

Make = Callable[[Piece], list[str]]


def conv(piece: Piece, **attributes: Any) -> str:
    return piece.conv(piece.real(), pads=[1, 1, 1, 1], **attributes)


def clipped(piece: Piece) -> list[str]:
    """As Brevitas writes four bits: a Clip behind the QuantizeLinear."""
    integers = piece.node("Clip", piece.quantise(conv(piece), 0.61), np.uint8(0), np.uint8(15))
    pool = piece.node("MaxPool", piece.dequantise(integers, 0.61), kernel_shape=[2, 2])
    return [piece.node("Identity", pool)]


def bounded(piece: Piece) -> list[str]:
    """A Relu behind a DequantizeLinear, and a second QuantizeLinear, which bound the convolution."""
    relu = piece.node("Relu", piece.requantise(conv(piece), 0.41, 100))
    return [piece.requantise(relu, 0.41, 100)]


def in_floats(piece: Piece) -> list[str]:
    return [conv(piece)]


def softmax_of_floats(piece: Piece) -> list[str]:
    return [piece.node("Softmax", conv(piece, bias=False), axis=1)]


def wide_product(piece: Piece) -> list[str]:
    """Sums of 576 products, of which float32 loses bits."""
    flat = piece.node("Flatten", piece.requantise(conv(piece, outputs=16), 0.2, 100))
    return [piece.node("Gemm", flat, piece.weights((576, 7), most=90), piece.floats(7, deviation=9000))]


def sequence(piece: Piece) -> list[str]:
    """The frames are in the second dimension."""
    pool = piece.node("MaxPool", piece.requantise(conv(piece), 0.4, 100), kernel_shape=[6, 1])
    pool = piece.requantise(pool, 0.4, 100)
    moved = piece.node("Transpose", piece.node("Squeeze", pool, np.array([2])), perm=[2, 0, 1])
    return [piece.node("LogSoftmax", moved, axis=2)]


MODELS: dict[str, tuple[Make, set[str]]] = {
    "clipped": (clipped, set()),
    "bounded": (bounded, set()),
    "in floats": (in_floats, {"y"}),
    "softmax of floats": (softmax_of_floats, {"y"}),
    "wide product": (wide_product, {"y"}),
    "sequence": (sequence, set()),
}


def compared(model: hwgen.Model, path: Path, x: Any) -> tuple[list[compare.LayerRow], list[compare.Output]]:
    """Layers and outputs of ONNX Runtime against the golden model, without hardware."""
    runtime, prepared = model.runtime(path), model._prepared(x)
    given = quantise.as_model(model.network, x, prepared, runtime.floats)
    rows, theirs = compare.layer_by_layer(model.network, prepared, compare.Seen(pixels={}), runtime, given)
    ours = model.golden(x)
    outputs = ours.values() if isinstance(ours, dict) else [ours]
    made = []
    for values, should in zip(theirs, outputs, strict=True):
        values = values.reshape(should.shape)
        rounded = bool(runtime.roundings) and compare.is_near(values, should)
        distance = compare.distance(values, should)
        made.append(compare.Output(name="y", values=1, runtime=distance, hardware=(0, 0.0), is_rounded=rounded))
    return rows, made


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_no_difference_is_seen_where_there_is_none(name: str, kind: type, tmp_path: Path) -> None:
    make, rounded = MODELS[name]
    piece = Piece((3, 6, 6), kind, scale=0.13, zero=77)
    path = tmp_path / "model.onnx"
    onnx.save(piece.model(*make(piece)), path)
    model = hwgen.load(path)
    for count in (1, 20):  # a part of the frames that are compared at a time, and more than these
        rows, outputs = compared(model, path, piece.frames(count))
        assert all(row.runtime is not None and row.runtime.differing == 0 for row in rows)
        for output in outputs:
            assert output.runtime[0] == 0 or output.is_rounded
            assert bool(rounded) or not output.is_rounded


def test_a_difference_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of a bias, in the last layer, which ONNX Runtime sums in floats."""
    piece = Piece((3, 6, 6), scale=0.13, zero=77)
    path = tmp_path / "model.onnx"
    onnx.save(piece.model(*in_floats(piece)), path)
    model = hwgen.load(path)
    trace = compare.golden.trace

    def other(*arguments: Any) -> Any:
        for layer, values in trace(*arguments):
            yield layer, values + (layer is model.network.layers[-1])

    monkeypatch.setattr(compare.golden, "trace", other)
    rows, _ = compared(model, path, piece.frames(5))
    assert rows[-1].runtime.differing == rows[-1].runtime.compared


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
def test_floats_for_inputs_of_integers(kind: type, tmp_path: Path) -> None:
    """They are quantised as a QuantizeLinear in front of the model would quantise them."""
    piece = Piece((3, 6, 6), kind, scale=0.013, zero=0 if kind == np.int16 else 9, opset=21)
    path = tmp_path / "model.onnx"
    tensor = piece.conv(piece.real(), pads=[1, 1, 1, 1], bias=False)
    onnx.save(piece.model(piece.quantise(tensor, 0.213, 0, kind)), path)
    model = hwgen.load(path)
    frames = np.random.default_rng(2).normal(0, 1, (9, 3, 6, 6)).astype(np.float32)
    limits = np.iinfo(kind)
    steps = np.rint(frames / np.float32(0.013)) + piece.label[1]
    integers = np.clip(steps, limits.min, limits.max).astype(kind)
    for x in (frames, integers):
        (given,) = quantise.as_model(model.network, x, model._prepared(x), model.runtime(path).floats)
        assert given.dtype == kind
        np.testing.assert_array_equal(given, integers)
        rows, _ = compared(model, path, x)
        assert sum(row.runtime.differing for row in rows) <= 1


def test_several_inputs(tmp_path: Path) -> None:
    """One of floats and one of integers, each given as either."""
    piece = Piece((3, 6, 6), np.float32, scale=0.13, zero=77)
    first = piece.requantise(piece.conv(piece.real()), 0.31, 100)
    second = piece.requantise(piece.conv(piece.dequantise("z", 0.07, 5)), 0.42, 90)
    model = piece.model(piece.requantise(piece.node("Add", first, second), 0.5, 99))
    other = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.UINT8, ["n", 3, 6, 6])
    model.graph.input.append(other)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    loaded = hwgen.load(path)
    floats = {"x": piece.frames(6), "z": piece.frames(6, seed=4)}
    integers = dict(zip(("x", "z"), host.input_frames(loaded.network, loaded._prepared(floats)), strict=True))
    for x in (floats, integers, {"x": floats["x"], "z": integers["z"]}, {"x": integers["x"], "z": floats["z"]}):
        rows, outputs = compared(loaded, path, x)
        assert not any(row.runtime.differing for row in rows)
        assert outputs[0].runtime == (0, 0.0)


@pytest.mark.parametrize("verb", ["compare", "simulate", "golden"])
def test_frames_that_do_not_fit_are_refused_before_planning(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one line, with nothing written; pixels for floats are no quantised integers unless --quantised says so."""

    def steered(*_: Any) -> Any:
        raise AssertionError("it is planned")

    monkeypatch.setattr(planning, "steered", steered)
    monkeypatch.chdir(tmp_path)
    piece = Piece((3, 6, 6), np.float32, scale=0.13, zero=77)
    onnx.save(piece.model(piece.requantise(conv(piece), 0.4, 100)), "model.onnx")
    frames = piece.frames(2)
    np.save("pixels.npy", np.zeros((2, 3, 6, 6), np.uint8))
    np.save("shape.npy", frames[:, :2])
    np.save("words.npy", frames.astype(np.int32))
    board = [] if verb == "golden" else ["--board", "zedboard"]
    output = [] if verb == "compare" else ["--output", "y.npy"]
    for name, words in (
        ("pixels", r"must be float32, as the model's input is, not uint8; --quantised accepts integers that are "),
        ("shape", "must be of shape (frames, 3, 6, 6), not (2, 2, 6, 6)"),
        ("words", "must be float32, as the model's input is, not int32"),
    ):
        assert cli.main([verb, "model.onnx", *board, "--input", f"{name}.npy", *output]) == 2
        said = capfd.readouterr()
        assert words in said.err
        assert said.err.count("\n") == 1
    assert not Path("y.npy").exists()


def test_quantised_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    piece = Piece((3, 6, 6), np.float32, scale=0.13, zero=77)
    onnx.save(piece.model(piece.requantise(conv(piece), 0.4, 100)), "model.onnx")
    integers = np.random.default_rng(3).integers(0, 256, (2, 3, 6, 6), np.uint8)
    np.save("x.npy", integers)
    np.save("reals.npy", (integers.astype(np.float32) - 77) * np.float32(0.13))
    for arguments in (["--input", "x.npy", "--quantised", "--output", "y.npy"], ["--input", "reals.npy"]):
        assert cli.main(["golden", "model.onnx", "--output", "z.npy", *arguments]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), np.load("z.npy"))
    capfd.readouterr()
    arguments = ["simulate", "model.onnx", "--board", "zedboard", "--random", "2", "--quantised"]
    assert cli.main(arguments) == 2
    assert capfd.readouterr().err == "hwgen: --quantised says what --input holds, which is not given\n"
