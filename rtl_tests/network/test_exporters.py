"""Models in the manner of published ones, quantised by ONNX Runtime in two forms: imported, and equal to it."""

from __future__ import annotations

import re
import shutil

import numpy as np
import onnx
import pytest
from exporters import MODELS, quantised
from referees import compare

import hwgen
from hwgen.errors import ModelError
from hwgen.network.onnx.model_shapes import light_names
from hwgen.network.zoo import builtin

FORMS = ("QDQ", "QOperator")

FLOAT_WEIGHTS = r"ConvTranspose node '.*': weights '.*' must be quantised"

#: What can't be built, and why. In the form of operators on integers, ONNX Runtime's quantiser leaves the weights of
#: transposed convolutions in floats. Its optimiser quantises them, but not behind another one, or at the model's end.
REFUSED: dict[str, dict[str, str]] = {
    "QDQ": {},
    "QOperator": dict.fromkeys(("autoencoder_transposed", "fully_convolutional"), FLOAT_WEIGHTS),
}
BUILT = [(name, form) for form in FORMS for name in MODELS if name not in REFUSED[form]]
LEFT = [(name, form) for form in FORMS for name in sorted(REFUSED[form])]


@pytest.mark.parametrize(("name", "form"), BUILT)
def test_equal(name, form, tmp_path):
    """Every value that leaves the golden model."""
    model, writer = quantised(name, form)
    compare(model, writer.frames(20), tmp_path).check()


@pytest.mark.parametrize(("name", "form"), LEFT)
def test_refused(name, form, tmp_path):
    """What is refused is still refused, for the same reason: otherwise it belongs among the others."""
    path = tmp_path / "model.onnx"
    onnx.save(quantised(name, form)[0], path)
    with pytest.raises(ModelError) as error:
        hwgen.load(path)
    reasons = error.value.lines[1:] or error.value.lines  # of several things, behind a heading
    assert all(re.search(REFUSED[form][name], reason) for reason in reasons)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, form in BUILT if form == "QDQ"])
def test_in_hardware(name, tmp_path):
    """Values of the golden model, in the predicted cycles."""
    model, writer = quantised(name, "QDQ", signed=len(name) % 2 == 1)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    design = hwgen.load(path).plan("vc709", dsp=80, multipliers="dsp")
    result = design.simulate(writer.frames(3), simulator="icarus" if shutil.which("iverilog") else "amaranth")
    assert result.mismatches == 0
    assert result.as_predicted


@pytest.mark.long
@pytest.mark.parametrize("name", light_names())
def test_light_models(name, tmp_path):
    """The onnx package's models, whole."""
    frames = np.random.default_rng(7).normal(size=(1, 3, 224, 224)).astype(np.float32)
    compare(builtin.quantised(name), frames, tmp_path).check()
