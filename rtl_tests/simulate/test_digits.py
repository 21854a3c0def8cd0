"""The main job on real data: held-out digits through the generated Verilog, in Verilator.

Reference: ONNX Runtime on ``digits.onnx``; the labels are scikit-learn's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import hwgen
from hwgen.cli import main as cli

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
README = DIGITS.parent.parent / "README.md"
IMAGES = np.load(DIGITS / "images.npy")
LABELS = np.load(DIGITS / "labels.npy")

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
)


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
