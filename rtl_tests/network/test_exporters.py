"""Models as exporters write them, quantised by ONNX Runtime in its usual ways: built whole, and equal to it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from exporters import MODELS, quantised
from habits import HABITS
from habits import quantised as habits_quantised
from quantiser_settings import SETTINGS, TAILS
from quantiser_settings import quantised as quantised_with
from referees import compare

import hwgen
from hwgen.errors import ModelError
from hwgen.network.onnx.importer import to_network
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
        hwgen.load(path, until="end")
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


SHORT = (
    *("resized_to_another_map", "average_beside_maximum", "pixel_shuffle_in_a_sum", "best_of_logits"),
    *("pixel_unshuffle_in_a_concatenation on integers", "with_functions"),
)


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in HABITS]
)
def test_is_built_whole(name: str, tmp_path: Path) -> None:
    model, writer = habits_quantised(name)
    compare(model, writer.frames(4), tmp_path).check()


def test_pixels_move_in_one_layer() -> None:
    """A Reshape, a Transpose and a Reshape become one layer, and a selection where channels are in another order."""
    for name, expected in (
        ("pixel_shuffle", ["conv", "select", "depthtospace", "conv"]),
        ("pixel_unshuffle", ["conv", "spacetodepth", "select", "conv", "globalaveragepool", "conv"]),
    ):
        network = to_network(habits_quantised(name)[0], name)
        assert [type(layer).__name__.lower() for layer in network.layers] == expected


def test_at_the_end_the_host_moves_pixels(tmp_path: Path) -> None:
    """Nothing but the output's layout changes, where no layer follows."""
    model, _ = habits_quantised("pixel_shuffle")
    reshape = [node for node in model.graph.node if node.op_type == "Reshape"][-1]
    part = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(["x"], [reshape.output[0]])
    onnx.save(part, tmp_path / "part.onnx")
    assert [type(layer).__name__.lower() for layer in hwgen.load(tmp_path / "part.onnx").network.layers] == ["conv"]


#: Tried by default; the others in the long run.
FIRST = {
    ("a pair for each reader, symmetric", "ReduceMean, kept"),
    ("operators on integers, all", "GlobalAveragePool"),
    ("some operators", "ReduceMean"),
}


@pytest.mark.parametrize(
    ("setting", "tail"),
    [
        pytest.param(setting, tail, marks=[] if (setting, tail) in FIRST else pytest.mark.long)
        for setting in SETTINGS
        for tail in TAILS
    ],
)
def test_equal_with_each_setting(setting, tail, tmp_path) -> None:
    model, writer = quantised_with(setting, tail)
    compare(model, writer.frames(6), tmp_path).check()
