"""Proofs that sums whose weights are constants in LUTs have the network's weights; faults that they must refute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from proofs import MODULE, emitted, marked, proved

from hwgen.errors import InputError
from hwgen.gateware import lut_products_proof, multiply_proof
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.obligations.modules import modules_of
from hwgen.obligations.site import Site

pytestmark = pytest.mark.usefixtures("own_cache")


def convolution(outputs: int = 3, *, channels: int = 2, taps: int = 4, pixels: int = 1, **options) -> MultiplyConfig:
    """Return a convolution of 2 x 2 taps, two input channels and three output channels at once, all in LUTs."""
    window = LineBufferConfig(
        input=BeatFormat(channels=channels, height=3, width=4, lanes=2, bits=8, signed=False),
        kernel=(2, 2),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=0,
        taps=taps,
        output_folds=-(-outputs // 3),
        channelwise=False,
        rows=2,
        pixels=pixels,
    )
    weights = np.random.default_rng(3).integers(-127, 128, outputs * channels * 4).tolist()
    return MultiplyConfig(
        window=window,
        outputs=outputs,
        lanes=3,
        weights=Weights(weights),
        weight_bits=8,
        sum_bits=22,
        lut_lanes=3,
        **options,
    )


CONFIGS = {
    "a window a cycle": convolution(bias=(70, -3, 0)),
    "two pixels": convolution(pixels=2),
    "two folds": convolution(5),
    "two steps": convolution(channels=3),
    "two folds of two steps": convolution(5, taps=2),
}


def obligation_of(config, verilog):
    modules = modules_of(verilog)
    (obligation,) = multiply_proof.of_convolution(config, Site("", modules[MODULE], modules))
    return obligation


def result(config, verilog, stated=None):
    """Return the result of a configuration's obligation, or of that of the configuration ``stated``."""
    (proof,) = proved([obligation_of(stated or config, verilog)], verilog).values()
    return proof.verdict.result


@pytest.mark.parametrize("name", marked(CONFIGS, "a window a cycle", "two folds of two steps"))
def test_sums_have_the_weights_of_the_network(name):
    assert result(CONFIGS[name], emitted(CONFIGS[name])) == "proved"


def other_weights(config: MultiplyConfig, first: int, second: int) -> MultiplyConfig:
    """Return a configuration in which two weights are swapped."""
    weights = list(config.weights.values)
    weights[first], weights[second] = weights[second], weights[first]
    return replace(config, weights=Weights(weights))


#: Indices of weights that are swapped: of taps, of input channels, and of output channels.
SWAPPED = {"taps": (0, 1), "input channels": (0, 4), "output channels": (0, 8)}


@pytest.mark.parametrize("name", marked(SWAPPED, "output channels"))
def test_swapped_weights_are_refuted(name, monkeypatch):
    config = CONFIGS["a window a cycle"]
    verilog, modules = emitted(config), lut_products_proof.modules(config)
    stated = other_weights(config, *SWAPPED[name])
    # the dot products stay those of the emitted configuration
    monkeypatch.setattr(multiply_proof.dots, "modules", lambda _: modules)
    assert result(config, verilog, stated) == "refuted"


#: Faults by what they are: name of the configuration, text of the emitted Verilog, and faulty text.
FAULTS = {
    "an operand is another tap's": ("a window a cycle", ".operand_3(activation_1_1_1)", ".operand_3(activation_2_1_1)"),
    "an operand is early": ("a window a cycle", ".operand_3(activation_1_1_1)", ".operand_3(activation_1_1)"),
    "the step is early": ("two folds", ".step(step_delayed_1)", ".step(step)"),
    "a sum is not cleared": ("two steps", "is_first_step_delayed_1 ? 22'd0 :", "1'b0 ? 22'd0 :"),
}


@pytest.mark.parametrize("name", marked(FAULTS, "an operand is early"))
def test_faults_of_sums_are_refuted(name):
    shape, old, new = FAULTS[name]
    verilog = emitted(CONFIGS[shape])
    assert old in modules_of(verilog)[MODULE].text
    assert result(CONFIGS[shape], verilog.replace(old, new)) == "refuted"


def test_a_missing_module_of_dot_products_is_an_error():
    config = CONFIGS["a window a cycle"]
    modules = modules_of(emitted(config))
    (products,) = lut_products_proof.modules(config)
    text = modules[MODULE].text.replace(products.module_name, "other")
    with pytest.raises(InputError, match="has no dot products"):
        lut_products_proof.instances(products, Site("", replace(modules[MODULE], text=text), modules))
