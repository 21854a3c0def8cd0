"""Built-in networks: their shapes as published, and what their names may be."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hwgen.errors import InputError, ModelError
from hwgen.network import builtin, golden, load
from hwgen.network.graph import UINT8, Conv, Network
from hwgen.network.quantise import prepare_input


def macs(network: Network) -> int:
    return sum(layer.macs for layer in network.layers if isinstance(layer, Conv))


def test_names() -> None:
    names = builtin.names()
    assert [name for name, _ in names] == ["decoilfnet-example", "lenet5", "vgg16"]
    assert all(description for _, description in names)


@pytest.mark.parametrize(
    ("name", "layers", "output", "multiplications"),
    [
        ("decoilfnet-example", "conv1 conv2 pool1", "3x2x2", 2 * 25 * 3 * 27),
        ("lenet5", "conv1 pool1 conv2 pool2 fc1 fc2 fc3", "10x1x1", 416_520),
        ("lenet5:3", "conv1 pool1 conv2", "16x10x10", 117_600 + 240_000),
        ("lenet5@28x28", "conv1 pool1 conv2 pool2 fc1 fc2 fc3", "10x1x1", 86_400 + 153_600 + 30_720 + 10_080 + 840),
        ("vgg16:7", "conv1_1 conv1_2 pool1 conv2_1 conv2_2 pool2 conv3_1", "256x56x56", 5_635_768_320),
        ("vgg16:7@64x64", "conv1_1 conv1_2 pool1 conv2_1 conv2_2 pool2 conv3_1", "256x16x16", None),
        ("vgg16:3@7x20", "conv1_1 conv1_2 pool1", "64x3x10", None),
    ],
)
def test_shapes(name: str, layers: str, output: str, multiplications: int | None) -> None:
    network = load(name)
    assert " ".join(layer.name for layer in network.layers) == layers
    assert str(network.output) == f"{output} uint8"
    if multiplications is not None:
        assert macs(network) == multiplications
    assert re.fullmatch(r"[a-z0-9-]+", network.name)


def test_whole_vgg16() -> None:
    network = load("vgg16@32x32")
    kinds = [layer.kind for layer in network.layers]
    assert (kinds.count("conv"), kinds.count("maxpool")) == (13, 5)
    assert [layer.name for layer in network.layers][-4:] == ["conv5_1", "conv5_2", "conv5_3", "pool5"]
    assert str(network.output) == "512x1x1 uint8"


@pytest.mark.parametrize("name", ["decoilfnet-example", "lenet5", "vgg16:7@48x40"])
def test_numbers(name: str) -> None:
    """uint8 activations, int8 weights from -127 on; Relu where it belongs; outputs neither dead nor saturated."""
    network = load(name)
    frames = np.random.default_rng(2).uniform(-1, 1, (4, *network.input.shape)).astype(np.float32)
    for layer, outputs in golden.trace(network, prepare_input(network, frames)):
        assert layer.input.type == layer.output.type == UINT8
        if isinstance(layer, Conv):
            assert -127 <= layer.weights.min() < layer.weights.max() <= 127
            assert layer.bias.any()
            assert layer.requantisation is not None
            rectified = layer.name != "fc3"
            assert (layer.output.zero_point == 0) == rectified
        assert np.mean(outputs == 255) < 0.1, layer.name
        assert np.mean(outputs == outputs.min()) < 0.8, layer.name
        assert len(np.unique(outputs)) > 5, layer.name


def test_loading_twice_gives_the_same() -> None:
    first, second = load("lenet5"), load("lenet5")
    for one, other in zip(first.layers, second.layers, strict=True):
        assert one.output == other.output
        if isinstance(one, Conv) and isinstance(other, Conv):
            np.testing.assert_array_equal(one.weights, other.weights)
            np.testing.assert_array_equal(one.bias, other.bias)
            assert one.requantisation is not None
            assert other.requantisation is not None
            np.testing.assert_array_equal(one.requantisation.significand, other.requantisation.significand)


def test_weights_do_not_depend_on_prefix_and_size() -> None:
    long, short = load("vgg16:5@100x80"), load("vgg16:2@16x16")
    for one, other in zip(short.layers, long.layers, strict=False):
        assert isinstance(one, Conv)
        assert isinstance(other, Conv)
        np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vgg19", r"unknown model 'vgg19': .*did you mean 'vgg16'\?"),
        ("lenet", r"unknown model 'lenet': .*did you mean 'lenet5'\?"),
        ("VGG16", r"unknown model 'VGG16': .*did you mean 'vgg16'\?"),
        ("decoilfnet", r"did you mean 'decoilfnet-example'\?"),
        ("zebra", r"unknown model 'zebra': .*built in are decoilfnet-example, lenet5, vgg16"),
        ("", r"unknown model ''"),
        ("vgg16:0", r"vgg16:0: vgg16 has 18 layers; a prefix must be 1 to that, not 0"),
        ("vgg16:19", r"vgg16 has 18 layers; a prefix must be 1 to that, not 19"),
        ("vgg16:-1", r"must be NAME\[:LAYERS\]\[@HEIGHTxWIDTH\], as in vgg16:2@64x64"),
        ("vgg16:", r"must be NAME"),
        ("vgg16@64", r"must be NAME"),
        ("vgg16@64x64:7", r"must be NAME"),
        ("vgg16:seven", r"must be NAME"),
        ("vgg16@16x16", r"vgg16@16x16: pool5 gets an image too small for its 2x2"),
        ("vgg16:1@0x5", r"vgg16:1@0x5: .*(size|small)"),
        ("lenet5@12x12", r"lenet5@12x12: conv2 gets an image too small|lenet5@12x12: pool2 gets an image too small"),
    ],
)
def test_names_that_make_no_sense(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_calibration_is_refused() -> None:
    with pytest.raises(InputError, match="lenet5: a built-in network is quantised already"):
        load("lenet5", calibration=np.zeros((1, 1, 32, 32), np.float32))
