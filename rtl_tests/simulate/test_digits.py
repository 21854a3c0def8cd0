"""Whole networks and the examples on real data: held-out digits, photographs, every simulator."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from needs import needs_compiler, needs_icarus
from onnx import numpy_helper

import hwgen
from hwgen.cli import main as cli
from hwgen.network import host

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
README = DIGITS.parent.parent / "README.md"
IMAGES = np.load(DIGITS / "images.npy")
LABELS = np.load(DIGITS / "labels.npy")


@pytest.fixture(scope="module")
def reference():
    """Logits of ONNX Runtime, ``(n, 10)`` float32."""
    session = onnxruntime.InferenceSession(str(DIGITS / "digits.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": IMAGES})
    return logits


@pytest.fixture(scope="module")
def model():
    return hwgen.load(DIGITS / "digits.onnx")


def test_held_out_images_are_scikit_learn_s():
    """The committed files are the split that the README states, and calibration saw training images only."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    train, held_out, _, labels = train_test_split(
        images, digits.target, test_size=450, stratify=digits.target, random_state=0
    )
    np.testing.assert_array_equal(IMAGES, held_out)
    np.testing.assert_array_equal(LABELS, labels)
    np.testing.assert_array_equal(np.load(DIGITS / "calibration.npy"), train[:128])


def test_accuracy(reference):
    assert len(IMAGES) >= 360
    assert np.mean(reference.argmax(axis=1) == LABELS) >= 0.96


def test_layers(model):
    names = [layer.name for layer in model.network.layers]
    assert names == ["conv1", "conv2", "pool1", "conv3", "pool2", "fc"]
    assert model.input.shape == (1, 8, 8)
    assert model.output.shape == (10, 1, 1)


def test_golden_model_agrees_with_onnx_runtime(model, reference):
    logits, integers = model.golden(IMAGES), model.golden(IMAGES, integers=True)
    assert (logits.dtype, logits.shape) == (reference.dtype, reference.shape)
    np.testing.assert_array_equal(logits.argmax(axis=1), reference.argmax(axis=1))
    scale, zero_point = model.output.scale, model.output.zero_point
    steps = np.round(reference / scale).astype(int) + zero_point - integers
    assert np.abs(steps).max() <= 1
    assert np.count_nonzero(steps) <= steps.size / 1000
    np.testing.assert_array_equal(logits[steps == 0], reference[steps == 0])


def test_the_readme_shows_the_plan(model):
    design = model.plan(board="zedboard")
    assert design.resources["dsp"] <= 220
    assert f"{design.table()}\nwrote build/digits-zedboard\n" in README.read_text()


@needs_compiler
@pytest.mark.long
def test_every_held_out_image_in_hardware(model, reference):
    """The README's first command, examples/digits/run.py, does the same."""
    design = model.plan(board="zedboard")
    result = design.simulate(IMAGES)
    assert result.mismatches == 0
    np.testing.assert_array_equal(result.outputs.argmax(axis=1), reference.argmax(axis=1))
    assert np.mean(result.outputs.argmax(axis=1) == LABELS) >= 0.96
    assert (result.latency, result.interval) == (design.latency, design.interval)
    assert f"wrote build/digits-zedboard\n{result.summary()}\n" in README.read_text()


@pytest.mark.long
@needs_compiler
def test_the_same_from_the_command_line(model, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = ["simulate", str(DIGITS / "digits.onnx"), "--board", "zedboard", "--input", str(DIGITS / "images.npy")]
    assert cli.main([*arguments, "--output", "logits.npy", "--json", "result.json"]) == 0
    np.testing.assert_array_equal(np.load("logits.npy"), model.golden(IMAGES))
    result = json.loads(Path("result.json").read_text())
    assert (result["frames"], result["mismatches"]) == (len(IMAGES), 0)
    assert f"every one of {len(IMAGES) * 10:,} output values equals the golden model" in capfd.readouterr().out


def test_sixteen_bits():
    """Closer to the float model than 8 bits are, in hardware, in the cycles of 8 bits if DSP slices multiply."""
    session = onnxruntime.InferenceSession(str(DIGITS / "digits-float.onnx"), providers=["CPUExecutionProvider"])
    (reference,) = session.run(None, {"image": IMAGES})
    models = [hwgen.load(DIGITS / "digits-float.onnx", DIGITS / "calibration.npy", bits) for bits in (8, 16)]
    errors = []
    for model in models:
        logits = model.golden(IMAGES)
        assert logits.dtype == np.float32
        np.testing.assert_array_equal(logits.argmax(axis=1), reference.argmax(axis=1))
        errors.append(np.median(np.abs(logits - reference)))
    assert errors[1] < errors[0] / 100
    narrow, wide = (model.plan(board="zedboard", multipliers="dsp") for model in models)
    assert wide.resources["dsp"] <= 220
    assert wide.interval == narrow.interval
    packed = models[1].plan("zedboard", multipliers="dsp", macs_per_dsp=2)
    assert {layer.macs_per_dsp for layer in packed.plan.layers} == {1}


@pytest.mark.long
def test_sixteen_bits_of_an_example():
    model = hwgen.load("decoilfnet-example,int16")
    result = model.plan(board="zedboard").simulate(model.random_frames(3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted


@pytest.mark.long
@needs_compiler
def test_sixteen_bits_in_hardware():
    model = hwgen.load(DIGITS / "digits-float.onnx", DIGITS / "calibration.npy", bits=16)
    design = model.plan(board="zedboard", multipliers="dsp")
    result = design.simulate(IMAGES)
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (design.latency, design.interval)
    assert np.mean(result.outputs.argmax(axis=1) == LABELS) >= 0.96


def test_float_model_quantised_here_reads_digits_too():
    """``--calibration`` goes through ONNX Runtime's quantiser with its defaults."""
    model = hwgen.load(DIGITS / "digits-float.onnx", calibration=DIGITS / "calibration.npy")
    classes = model.golden(IMAGES).argmax(axis=1)
    assert np.mean(classes == LABELS) >= 0.96


DETECTOR = Path(__file__).resolve().parents[2] / "examples" / "detector"


@pytest.fixture(scope="module")
def example():
    """The example's scripts, by their names."""
    pytest.importorskip("skimage", reason="scikit-image has the photographs")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DETECTOR)
        for name in ("run", "photographs"):
            patch.delitem(sys.modules, name, raising=False)
        import photographs
        import run

        yield {"run": run, "photographs": photographs}
        for name in ("run", "photographs"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def eager(tmp_path_factory) -> Path:
    """The model with a box for all that scores 0.02 and more."""
    model = onnx.load(DETECTOR / "detector.onnx")
    bounds = {"selected_2": np.array([200]), "selected_4": np.float32([0.02])}
    for tensor in model.graph.initializer:
        if tensor.name in bounds:
            tensor.CopyFrom(numpy_helper.from_array(bounds.pop(tensor.name), tensor.name))
    assert not bounds
    path = tmp_path_factory.mktemp("eager") / "eager.onnx"
    onnx.save(model, path)
    return path


def by_runtime(path: Path, tensors: list[np.ndarray]) -> list[np.ndarray]:
    """Boxes of each image in a session with default settings."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, {"image": tensor})[0]) for tensor in tensors]


def same(boxes: np.ndarray, expected: list[np.ndarray]) -> int:
    """Check the boxes of each image, and return the number of all boxes."""
    assert len(boxes) == len(expected)
    for values, wanted in zip(boxes, expected, strict=True):
        assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(values, wanted)
    return sum(map(len, expected))


def test_photographs(example) -> None:
    """Twenty different ones, none of which calibrates."""
    photographs = example["photographs"]
    assert len(set(photographs.PHOTOGRAPHS)) == 20
    assert not set(photographs.PHOTOGRAPHS) & set(photographs.CALIBRATION)
    tensors = [example["run"].tensor(photograph.image()) for photograph in photographs.PHOTOGRAPHS]
    assert len({tensor.tobytes() for tensor in tensors}) == 20
    assert {(tensor.shape, tensor.dtype) for tensor in tensors} == {((1, 3, 128, 128), np.dtype(np.float32))}


def test_boxes_of_the_golden_model(example, eager) -> None:
    """Two photographs, by the integers of both models' heads."""
    chosen = [example["photographs"].PHOTOGRAPHS[index] for index in (3, 10)]
    tensors = [example["run"].tensor(photograph.image()) for photograph in chosen]
    model = hwgen.load(DETECTOR / "detector.onnx")
    heads = model.golden(np.concatenate(tensors), integers=True)
    maps = host.output_maps(model.network, [*heads.values()])
    assert same(model.complete(maps, np.concatenate(tensors)), by_runtime(DETECTOR / "detector.onnx", tensors)) == 9
    assert same(hwgen.load(eager).complete(maps, np.concatenate(tensors)), by_runtime(eager, tensors)) > 30


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make")
def test_every_box_in_hardware(example, eager, tmp_path, monkeypatch, capsys) -> None:
    """The example's own command on its twenty photographs, then many more boxes from the heads that it computed."""
    sessions = []

    class Recorded(hwgen.Session):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            sessions.append(self)

    monkeypatch.setattr(hwgen, "Session", Recorded)
    monkeypatch.chdir(tmp_path)
    assert example["run"].main([]) == 0
    result = sessions[0].device.result
    readme = capsys.readouterr().out.splitlines()[-2:]
    assert readme == [result.summary(), "20 of 20 images have ONNX Runtime's boxes, 39 in all"]
    assert "\n".join(readme) in (DETECTOR.parents[1] / "docs" / "howto" / "detector.md").read_text()
    assert (tmp_path / "build" / "detector" / "boxes.png").stat().st_size > 10_000
    tensors = [example["run"].tensor(photograph.image()) for photograph in example["photographs"].PHOTOGRAPHS]
    model = hwgen.load(eager)
    maps = host.output_maps(model.network, [*result.integers.values()])
    assert same(model.complete(maps, np.concatenate(tensors)), by_runtime(eager, tensors)) > 300


SIMULATORS = [
    pytest.param(
        "verilator",
        marks=pytest.mark.skipif(not shutil.which("g++") or not shutil.which("make"), reason="no g++, make"),
    ),
    pytest.param("icarus", marks=needs_icarus),
    "amaranth",
]


def frames_for(model: hwgen.Model, count: int) -> np.ndarray:
    """Random frames of the model's own integers, extremes among them."""
    source = model.input
    low, high = source.type.minimum, source.type.maximum
    frames = np.random.default_rng(0).integers(low, high + 1, (count, *source.shape)).astype(source.type.dtype)
    frames[0, ..., 0], frames[-1, ..., -1] = low, high
    return frames


@pytest.mark.long
@pytest.mark.parametrize("simulator", SIMULATORS)
def test_decoilfnet_s_example(simulator):
    """The same values and the same cycles in all three: the plan's, and by hand 25 pixels of 1 cycle each."""
    model = hwgen.load("decoilfnet-example")
    design = model.plan(board="zedboard", multipliers="dsp")
    result = design.simulate(frames_for(model, 4), simulator=simulator)
    assert result.mismatches == 0
    np.testing.assert_array_equal(result.outputs, model.golden(frames_for(model, 4)))
    assert (result.latency, result.interval) == (design.latency, 25)


@pytest.mark.long
@pytest.mark.parametrize(("name", "board"), [("lenet5", "zedboard")])
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_built_in(name, board, simulator):
    model = hwgen.load(name)
    design = model.plan(board=board)
    result = design.simulate(frames_for(model, 4), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dsp"),
    [
        # Windows of 11 x 11 by steps of 4, of 3 x 3 by steps of 2, two groups.
        ("alexnet:4@67x67", 300),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("alexnet@67x67", 800),
                ("vgg11:6@24x32", 500),
                ("zfnet:4@53x61", 300),
                ("decoilfnet-four@16x16", 600),
                ("flownets:4@32x24", 500),
                ("speed-sign@48x40", 220),
                ("light_squeezenet:part1", 200),
            )
        ),
    ],
)
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_the_papers_networks(name, dsp, simulator):
    model = hwgen.load(name)
    design = model.plan(board="vc709", dsp=dsp, multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)


@pytest.mark.long
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_vgg_in_sixteen_bits(simulator):
    """The interval of 8 bits if DSP slices multiply."""
    model = hwgen.load("vgg16:7@32x32,int16")
    design = model.plan(board="vc709", multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)
    assert design.interval == hwgen.load("vgg16:7@32x32").plan(board="vc709", multipliers="dsp").interval


@pytest.mark.long
@pytest.mark.parametrize("dsp", [2907, 220])
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_vgg(dsp, simulator):
    model = hwgen.load("vgg16:7@64x64")
    design = model.plan(board="vc709", dsp=dsp, multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)
