"""`hwgen compare`: where ONNX Runtime, the golden model and the hardware differ, and what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import html5lib
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pieces import Piece

import hwgen
from hwgen.api.design import AcceleratorDesign
from hwgen.cli import main as cli
from hwgen.cli import plan as planning
from hwgen.gateware.stream import Order
from hwgen.network import host, quantise
from hwgen.network.onnx.layers import LayerTensor, RuntimeLayers
from hwgen.report import notebook
from hwgen.simulate import compare

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SMALL = "decoilfnet-example"
BOARD = ["--board", "zedboard", "--dsp", "20"]


def runtime_only(name, frames):
    """The layers of a built-in network by ONNX Runtime, against the golden model."""
    model = hwgen.load(name)
    runtime, x = model.runtime(name), model.random_frames(frames)
    names = [end.name for end in host.inputs(model.network)]
    taken = zip(names, quantise.by_input(model.network, x), strict=True)
    given = [host.as_model(model.network, each, values) if each in runtime.floats else values for each, values in taken]
    return compare.layer_by_layer(model.network, model._prepared(x), compare.Seen(pixels={}), runtime, given)[0]


@pytest.mark.parametrize(
    "name",
    ["resnet8", pytest.param("unet@32x32", marks=pytest.mark.long), pytest.param("dscnn", marks=pytest.mark.long)],
)
def test_onnxruntime_gives_every_layer(name):
    """Branches, depthwise layers, averages: each has a tensor, and each of its values is the golden model's."""
    rows = runtime_only(name, 2)
    network = hwgen.load(name).network
    assert [row.layer for row in rows] == [layer.name for layer in network.layers]
    for row, layer in zip(rows, network.layers, strict=True):
        assert row.hardware is None
        assert row.runtime == compare.Tally(compared=2 * int(np.prod(layer.output.shape)))


def test_tensors_are_the_models_own():
    """Those between QuantizeLinear and DequantizeLinear, as a plain session without optimisations gives them."""
    model = hwgen.load(DIGITS / "digits.onnx")
    runtime, images = model.runtime(DIGITS / "digits.onnx"), np.load(DIGITS / "images.npy")[:4]
    _, maps = runtime.run([images])
    plain = onnx.load(DIGITS / "digits.onnx")
    plain.graph.output.extend(onnx.ValueInfoProto(name=tensor.name) for tensor in runtime.tensors.values())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(plain.SerializeToString(), options)
    shapes = {layer.name: layer.output.shape for layer in model.network.layers}
    assert list(maps) == list(shapes)
    for layer, tensor in runtime.tensors.items():
        (values,) = session.run([tensor.name], {session.get_inputs()[0].name: images})
        difference = np.abs(values.reshape(4, *shapes[layer]).astype(int) - maps[layer])
        assert difference.max() <= 1
        assert (difference == 0).mean() > 0.99


def test_floats_become_the_integers_that_they_stand_for():
    values = np.arange(-128, 128)
    tensor = LayerTensor(name="t", map=(4, 8, 8), layout=None, scale=np.float32(0.1), zero_point=-3)
    floats = ((values + 3).astype(np.float32) * np.float32(0.1)).reshape(1, 4, 8, 8)
    np.testing.assert_array_equal(tensor.maps(floats).ravel(), values)


small_maps = arrays.arrays(np.int8, (3, 2, 2, 3), elements=st.integers(-3, 3))


@given(small_maps, small_maps, st.integers(1, 3))
def test_tallies_count_every_frame_once(values, expected, step):
    """Part by part as in one piece, which NumPy counts."""
    tally, seen = compare.Tally(), compare.Seen(pixels={"layer": values})
    for begin in range(0, 3, step):
        tally.add(*seen.compare("layer", expected[begin : begin + step], begin), begin)
    wrong = values != expected
    assert (tally.compared, tally.differing) == (values.size, np.count_nonzero(wrong))
    assert tally.largest == np.abs(values.astype(int) - expected).max()
    assert (tally.first is None) == (not wrong.any())
    if tally.first is not None:
        places = [(f, r, c, ch) for f, ch, r, c in np.argwhere(wrong).tolist()]
        frame, row, column, channel = min(places)  # values travel by frame, pixel, channel
        first = tally.first
        assert (first.frame, first.channel, first.row, first.column) == (frame, channel, row, column)
        assert (first.value, first.expected) == (
            values[frame, channel, row, column],
            expected[frame, channel, row, column],
        )


def test_pixels_are_compared_as_they_travelled():
    """Of a map of two columns only the second, and that twice."""
    order = Order(rows=((0, 2), (0, 2)), columns=((1, 2),))
    expected = np.arange(4, dtype=np.int8).reshape(1, 1, 2, 2)
    pixels = np.array([[[1, 3, 1, 9]]], dtype=np.int8)
    seen = compare.Seen(pixels={"layer": pixels}, orders={"layer": order})
    size, found = seen.compare("layer", expected, 0)
    assert (size, found.count, found.largest, found.row, found.column) == (4, 1, 6, 1, 1)
    assert seen.compare("other", expected, 0) is None


def test_distances():
    nan = float("nan")
    assert compare.distance(np.array([1.0, nan, 3.0]), np.array([1.0, nan, 3.0])) == (0, 0.0)
    assert compare.distance(np.array([1.0, 2.0, 3.5]), np.array([1.0, 2.5, 3.0])) == (2, 0.5)
    assert compare.distance(np.array([255, 0], np.uint8), np.array([0, 0], np.uint8)) == (1, 255.0)


def test_a_notebook_shows_the_layers():
    """A row a layer and one of the output; what can't be seen is a dash, and names are text."""
    tally, wrong = compare.Tally(), compare.Tally()
    tally.add(*compare.Seen(pixels={"a": np.zeros((1, 1, 2, 2))}).compare("a", np.zeros((1, 1, 2, 2)), 0), 0)
    wrong.add(*compare.Seen(pixels={"a": np.full((1, 1, 2, 2), 3)}).compare("a", np.zeros((1, 1, 2, 2)), 0), 0)
    found = compare.Comparison(
        model="m",
        board="b",
        frames=4,
        rows=(
            compare.LayerRow(layer="<a>", kind="conv", shape=(1, 2, 2), runtime=None, hardware=tally),
            compare.LayerRow(layer="b", kind="pool", shape=(1, 2, 2), runtime=tally, hardware=wrong),
        ),
        outputs=(compare.Output(name="y", values=4, runtime=(0, 0.0), hardware=(1, 2.5)),),
        right={"runtime": 4, "golden": 4, "hardware": 3},
        cycles={"latency": 7, "interval": None, "predicted_latency": 7, "predicted_interval": None},
        html=notebook.comparison,
    )
    page = html5lib.parseFragment(found._repr_html_(), namespaceHTMLElements=False)
    rows = [[cell.text or "" for cell in row] for row in page.iter("tr")]
    assert rows[1] == ["<a>", "conv", "1x2x2", "4", "-", "-", "0", "0", ""]
    first = "hardware frame 0, channel 0, row 0, column 0: 3, golden 0"
    assert rows[2] == ["b", "pool", "1x2x2", "4", "0", "0", "4", "3", first]
    assert rows[3] == ["output", "", "", "4", "0", "0", "1", "2.5", ""]
    text = "".join(page.itertext())
    counts = "ONNX Runtime 4 (100.00%), the golden model 4 (100.00%), the hardware 3 (75.00%)"
    assert f"correct of 4 frames: {counts}" in text
    assert "the hardware differs from the golden model, which equals ONNX Runtime; latency 7 cycles" in text


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_three_are_equal(here, capfd):
    """Every value of every layer, in Verilator; the figures as JSON."""
    assert cli.main(["compare", SMALL, *BOARD, "--random", "3", "--json", "found.json"]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    network = hwgen.load(SMALL).network
    sizes = {layer.name: 3 * int(np.prod(layer.output.shape)) for layer in network.layers}
    total = (
        f"every one of {sum(sizes.values()):,} values of the hardware's layers equals the golden model, which equals"
    )
    assert total in said.out
    found = json.loads((here / "found.json").read_text())
    none = {"differing": 0, "largest": 0, "first": None}
    for layer, (name, size) in zip(found["layers"], sizes.items(), strict=True):
        assert layer["name"] == name
        assert layer["runtime"] == layer["hardware"] == {"compared": size, **none}
    assert found["frames"] == 3
    assert found["cycles"]["latency"] == found["cycles"]["predicted_latency"]
    assert found["cycles"]["interval"] == found["cycles"]["predicted_interval"]
    assert "right" not in found


def test_wrong_hardware_is_found(here, capfd, monkeypatch):
    """One value of the second layer is 5 too large in frame 1: the layer is named, and the status is 1."""
    run = AcceleratorDesign._simulate_frames
    network = hwgen.load(SMALL).network
    layer = network.layers[1]
    columns = layer.output.shape[2]

    def wrong(self, frames, options):
        found = run(self, frames, options)
        taps = {number: pixels.astype(np.int64) for number, pixels in found.taps.items()}
        taps[1][1, 2, 3 * columns + 1] += 5
        return replace(found, taps=taps)

    monkeypatch.setattr(AcceleratorDesign, "_simulate_frames", wrong)
    assert cli.main(["compare", SMALL, *BOARD, "--random", "3", "--json", "found.json"]) == 1
    said = capfd.readouterr()
    assert said.err == "hwgen: the hardware differs from the golden model\n"
    assert "hardware frame 1, channel 2, row 3, column 1: " in said.out
    found = json.loads((here / "found.json").read_text())["layers"]
    assert [each["hardware"]["differing"] for each in found] == [0, 1, *[0] * (len(found) - 2)]
    first = found[1]["hardware"]["first"]
    assert (first["frame"], first["channel"], first["row"], first["column"]) == (1, 2, 3, 1)
    assert first["value"] - first["expected"] == found[1]["hardware"]["largest"] == 5


def test_another_runtime_is_a_warning(here, capfd, monkeypatch):
    """What differs from ONNX Runtime is the golden model's matter, and no fault of the hardware."""
    run = RuntimeLayers.run

    def other(self, frames):
        outputs, maps = run(self, frames)
        name = next(iter(maps))
        maps[name] = maps[name].copy()
        maps[name][0, 0, 0, 0] -= 1
        return outputs, maps

    monkeypatch.setattr(RuntimeLayers, "run", other)
    assert cli.main(["compare", SMALL, *BOARD, "--random", "3"]) == 0
    said = capfd.readouterr()
    assert said.err == "hwgen: warning: the golden model differs from ONNX Runtime\n"
    assert "ORT frame 0, channel 0, row 0, column 0: " in said.out


def test_refusals(here, capfd):
    images, labels = str(DIGITS / "images.npy"), str(DIGITS / "labels.npy")
    model = str(DIGITS / "digits.onnx")
    np.save("few.npy", np.zeros(3, int))
    cases = {
        "--board": ["compare", model, "--input", images],
        "labels must be 450 integers": [
            "compare",
            model,
            "--board",
            "zedboard",
            "--input",
            images,
            "--labels",
            "few.npy",
        ],
        "would overwrite": ["compare", model, "--board", "zedboard", "--input", images, "--json", images],
        "one of the arguments --input --random": ["compare", model, "--board", "zedboard", "--labels", labels],
    }
    for words, arguments in cases.items():
        assert cli.main(arguments) == 2
        error = capfd.readouterr().err
        assert words in error
        assert error.count("\n") == 1


@pytest.mark.long
def test_digits_with_labels(here, capfd):
    """By the figures of the example: 446 of 450 are right."""
    images, labels = np.load(DIGITS / "images.npy"), np.load(DIGITS / "labels.npy")
    model = str(DIGITS / "digits.onnx")
    command = ["compare", model, "--board", "zedboard", "--input", str(DIGITS / "images.npy")]
    assert cli.main([*command, "--labels", str(DIGITS / "labels.npy"), "--json", "found.json"]) == 0
    session = onnxruntime.InferenceSession(model)
    (outputs,) = session.run(None, {session.get_inputs()[0].name: images})
    right = int((outputs.reshape(len(images), -1).argmax(axis=1) == labels).sum())
    assert json.loads((here / "found.json").read_text())["right"] == dict.fromkeys(
        ("runtime", "golden", "hardware"), right
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ["--template", "engine", "--cores", "1", "--array", "8x13"],
        ["--groups", "conv1-pool1,conv3-fc"],
        ["--template", "pyramid"],
    ],
)
def test_other_templates(here, capfd, options):
    model = str(DIGITS / "digits.onnx")
    board = "vc709" if "pyramid" in options else "zedboard"
    assert cli.main(["compare", model, "--board", board, "--random", "3", *options, "--json", "found.json"]) == 0
    seen = [layer["hardware"] for layer in json.loads((here / "found.json").read_text())["layers"]]
    assert all(tally is None or tally["differing"] == 0 for tally in seen)
    assert sum(tally is not None for tally in seen) >= 4


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
        ("shape", "must have shape (frames, 3, 6, 6), not (2, 2, 6, 6)"),
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
    assert (
        capfd.readouterr().err
        == "hwgen: --quantised describes the arrays of --input: give --input as well, or leave --quantised out\n"
    )
