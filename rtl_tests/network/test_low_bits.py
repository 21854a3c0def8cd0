"""Maps of one and two bits against the ``qonnx`` package: FINN's CNV, BipolarQuant, and other layers.

All scales are powers of two, so that the package's float sums are exact, and every value must be equal.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from counted import counted
from dialects import QONNX, Dialect, by_qonnx, maps, simulate_model, tensors_by_qonnx
from hypothesis import given, settings
from hypothesis import strategies as st
from low_bits import CNV, PADDED_CNV, SMALL_CNV, CNVShape, cnv, cnv_frames, four_convolutions, low_bit_network
from needs import needs_compiler, needs_icarus
from onnx import helper

import hwgen
from hwgen.api import Model
from hwgen.errors import HwgenError
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.layers import RuntimeLayers
from hwgen.network.ops import Conv, Lookup
from hwgen.network.quantise import prepare_inputs

FRAMES = 4


def reals(network: Network, name: str, integers: np.ndarray) -> np.ndarray:
    """Return the model's values of a layer's integers: a map of one bit stands for -1 and 1."""
    kind = next(layer for layer in network.layers if layer.name == name).output.type
    return 2 * integers.astype(np.float32) - 1 if kind.bits == 1 else integers.astype(np.float32)


def check_cnv(bits: int, shape: CNVShape, frames: int, seed: int) -> Network:
    """Compare the output floats, and each quantised map with the tensor of its node in the model."""
    model, x = cnv(bits, shape, batch=frames, seed=seed), cnv_frames(shape, frames, seed)
    network = to_network(model, "cnv")
    theirs = tensors_by_qonnx(model, x)
    np.testing.assert_array_equal(Model(network).golden(x), theirs[model.graph.output[0].name])
    quantised = iter([node.output[0] for node in model.graph.node if quantises_map(model, node)][1:])
    compared = 0
    for layer, integers in golden.trace(network, prepare_inputs(network, x)):
        if isinstance(layer, Conv) and layer.requantisation is not None:
            values = theirs[next(quantised)]
            np.testing.assert_array_equal(reals(network, layer.name, integers).reshape(values.shape), values)
            compared += 1
    assert compared == len(shape.convolutions) + len(shape.dense) - 1
    return network


def quantises_map(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    constants = {tensor.name for tensor in model.graph.initializer}
    return node.op_type in ("Quant", "BipolarQuant") and node.input[0] not in constants


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("shape", [SMALL_CNV, PADDED_CNV], ids=["valid", "padded"])
@pytest.mark.parametrize("seed", range(3))
def test_small_cnv(bits: int, shape: CNVShape, seed: int) -> None:
    """Batch normalisations of both signs, max pools, a Reshape and transposed matrices between."""
    network = check_cnv(bits, shape, FRAMES, seed)
    kinds = {layer.output.type.bits for layer in network.layers[:-1]}
    assert kinds == ({1, 2} if shape.pads and bits == 1 else {bits})
    assert network.layers[-1].output.type.bits == 32


@pytest.mark.long
@pytest.mark.parametrize("bits", [1, 2])
def test_cnv(bits: int) -> None:
    network = check_cnv(bits, CNV, FRAMES, 0)
    # Products of windows: 30 * 30 * 27 * 64 + 28 * 28 * 576 * 64 + .. + 512 * 10.
    assert sum(layer.macs for layer in network.layers) == 59_461_376


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "bits"),
    [
        pytest.param(SMALL_CNV, 1, id="valid-1", marks=pytest.mark.long),
        pytest.param(PADDED_CNV, 2, id="padded-2", marks=pytest.mark.long),
        pytest.param(SMALL_CNV, 2, id="valid-2", marks=pytest.mark.long),
        pytest.param(PADDED_CNV, 1, id="padded-1", marks=pytest.mark.long),
    ],
)
def test_cnv_in_hardware(shape: CNVShape, bits: int, tmp_path: Path) -> None:
    """Values and cycles."""
    simulate_model(cnv(bits, shape), cnv_frames(shape, 3), tmp_path, "verilator")


def bipolar(net: Dialect, scale: float = 1.0) -> Dialect:
    net.scale = np.float32(scale)
    net.tensor = net.node("BipolarQuant", net.tensor, net.constant(scale), domain=QONNX)
    return net


def start(seed: int = 0, shape: tuple[int, ...] = (3, 6, 6)) -> Dialect:
    """Three bits in steps of 1/2, so that sums are often exactly 0."""
    net = Dialect("qonnx", seed, shape=shape)
    net.tensor = net.quantised(net.tensor, 0.5, 3)
    return net


def power_conv(net: Dialect, channels: int, pads: int = 0) -> Dialect:
    """A convolution whose weights are -1, 0 and 1."""
    before, rows, columns = net.shape
    weights = net.quantised(net.constant(net.rng.normal(0, 1, (channels, before, 3, 3))), 1, 2, narrow=True)
    net.tensor = net.node("Conv", net.tensor, weights, kernel_shape=[3, 3], pads=[pads] * 4)
    net.shape = (channels, rows + 2 * pads - 2, columns + 2 * pads - 2)
    return net


def joined(net: Dialect) -> Dialect:
    """A map of 1 and -1 that a convolution without padding and an addition read."""
    before = net.tensor
    bipolar(power_conv(net, net.shape[0], 1), 0.5)
    net.tensor = net.node("Add", net.tensor, before)
    net.tensor = net.quantised(net.tensor, 0.5, 4)
    return net


def depthwise(net: Dialect) -> Dialect:
    channels, rows, columns = net.shape
    kernels = net.constant(net.rng.normal(0, 1, (channels, 1, 3, 3)))
    weights = net.node("BipolarQuant", kernels, net.constant(1), domain=QONNX)
    net.tensor = net.node("Conv", net.tensor, weights, kernel_shape=[3, 3], group=channels)
    net.shape = (channels, rows - 2, columns - 2)
    return net


NETS: dict[str, tuple[Callable[[Dialect], Dialect], list[str]]] = {
    "sums of 0 become 1": (lambda net: bipolar(power_conv(net, 5)), ["int3", "uint1"]),
    "another scale": (
        lambda net: bipolar(power_conv(bipolar(power_conv(net, 5), 0.25), 4), 2.0),
        ["int3", "uint1", "uint1"],
    ),
    "a pool before and a pool behind": (
        lambda net: bipolar(power_conv(bipolar(power_conv(net, 5, 1).pool(), 0.5).pool(), 4, 1)),
        ["int3", "int2", "int2", "int2", "uint1"],
    ),
    "behind a map": (lambda net: power_conv(bipolar(net), 4).act(3), ["int3", "uint1", "uint3"]),
    "an addition": (lambda net: joined(bipolar(power_conv(net, 4))), ["int3", "int2", "int2", "int4"]),
    "a pool at the end": (lambda net: bipolar(power_conv(net, 5)).pool(), ["int3", "int2", "int2"]),
    "depthwise": (lambda net: bipolar(depthwise(bipolar(power_conv(net, 4)))), ["int3", "uint1", "uint1"]),
}


@pytest.mark.parametrize("name", NETS)
def test_bipolar_maps(name: str) -> None:
    make, types = NETS[name]
    net = make(start())
    model, x = net.fixed(FRAMES), net.frames(FRAMES)
    network = to_network(model, "network")
    assert maps(network) == types
    theirs = by_qonnx(model, x)
    np.testing.assert_array_equal(Model(network).golden(x), theirs)
    assert len(np.unique(theirs)) > 1


def test_lookup_behind_a_map() -> None:
    """No convolution comes before, so each integer is looked up."""
    network = to_network(NETS["behind a map"][0](start()).model(), "network")
    assert isinstance(network.layers[0], Lookup)


@settings(max_examples=25)
@given(data=st.data())
def random_thresholds(data: st.DataObject) -> None:
    """Batch normalisations whose outputs are often next to a threshold, of one to four bits."""
    bits = data.draw(st.integers(1, 4))
    net = power_conv(start(data.draw(st.integers(0, 999))), 6)
    numbers = st.sampled_from([-2, -1, -0.5, 0.25, 0.3, 0.5, 1, 1 / 3, 2])
    scale, mean, offset = (data.draw(st.lists(numbers, min_size=6, max_size=6)) for _ in range(3))
    variance = data.draw(st.lists(st.sampled_from([0.25, 0.3, 1, 3, 4]), min_size=6, max_size=6))
    if data.draw(st.booleans()):
        scale[data.draw(st.integers(0, 5))] = 0
    constants = [net.constant(values) for values in (scale, offset, mean, variance)]
    net.tensor = net.node("BatchNormalization", net.tensor, *constants, epsilon=data.draw(st.sampled_from([0.0, 1e-5])))
    if data.draw(st.booleans()):
        net.apply("Relu")
    if bits == 1:
        bipolar(net)
    else:
        net.scale = np.float32(data.draw(st.sampled_from([0.25, 0.3, 1])))
        net.tensor = net.quantised(net.tensor, net.scale, bits, signed=data.draw(st.booleans()))
    model, x = net.fixed(FRAMES), net.frames(FRAMES)
    np.testing.assert_array_equal(Model(to_network(model, "network")).golden(x), by_qonnx(model, x))


def test_random_thresholds() -> None:
    with counted(random_thresholds):
        random_thresholds()


@pytest.mark.parametrize("dialect", ["qonnx", "qcdq"])
@pytest.mark.parametrize("bits", [2, 4])
def test_low_bit_network(dialect: str, bits: int) -> None:
    """The sizes that targets for few bits are stated for."""
    network = to_network(low_bit_network(dialect, bits).model(), "network")
    shapes = [layer.output.shape for layer in network.layers]
    assert shapes == [(8, 8, 8), (16, 8, 8), (16, 4, 4), (16, 4, 4), (16, 2, 2), (10, 1, 1)]
    assert {layer.output.type.bits for layer in network.layers} == {bits}


@pytest.mark.parametrize("bits", [4, 8])
def test_four_convolutions(bits: int) -> None:
    network = to_network(four_convolutions(bits), "network")
    assert maps(network) == [f"uint{bits}"] * 5
    assert {layer.weight_bits for layer in network.layers} == {bits}


def one_bit_ends() -> Dialect:
    """One bit comes in from memory, and one bit goes out."""
    net = Dialect("qonnx", 3, shape=(4, 8, 8))
    net.tensor = net.quantised(net.tensor, 1, 1, signed=False)
    return bipolar(power_conv(bipolar(power_conv(net, 5, 1)).pool(), 6))


@pytest.mark.parametrize("how", [{}, {"template": "pyramid", "tile": (2, 2)}], ids=["stream", "pyramid"])
def test_one_bit_ends(how: dict, tmp_path: Path) -> None:
    """The streams at both ends, with the emitted test bench; and tiles."""
    net = one_bit_ends()
    onnx.save(net.model(), tmp_path / "network.onnx")
    model, frames = hwgen.load(tmp_path / "network.onnx"), net.frames(3)
    assert maps(model.network) == ["uint1"] * 4
    design = model.plan("zedboard", dsp=40, multipliers="dsp", **how)
    result = design.simulate(frames, simulator="amaranth")
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)
    np.testing.assert_array_equal(result.outputs, by_qonnx(net.fixed(3), frames))


@needs_icarus
def test_bench_of_one_bit_ends(tmp_path: Path) -> None:
    """Memory has a byte for each value of one bit."""
    net = one_bit_ends()
    onnx.save(net.model(), tmp_path / "network.onnx")
    hwgen.load(tmp_path / "network.onnx").plan("zedboard", dsp=40, multipliers="dsp").build(tmp_path / "made")
    done = subprocess.run(["make", "-C", tmp_path / "made"], capture_output=True, text=True, check=False)
    assert re.search(r"PASS: 72 output beats .* 768 bytes read, 72 written", done.stdout), done.stdout + done.stderr


def test_layers_by_runtime() -> None:
    """ONNX Runtime runs the translated model, layer by layer: also a map of one bit is the golden model's."""
    model, x = cnv(1, PADDED_CNV, batch=FRAMES), cnv_frames(PADDED_CNV, FRAMES)
    network = to_network(model, "network")
    _, theirs = RuntimeLayers(model, network, "network").run([x])
    compared = 0
    for layer, integers in golden.trace(network, prepare_inputs(network, x)):
        if layer.name in theirs:
            np.testing.assert_array_equal(integers, theirs[layer.name])
            compared += 1
    assert compared == len(network.layers)


def test_float_ends() -> None:
    """A convolution at the end leaves accumulators, and the host adds bias and arithmetic."""
    net = start()
    net.tensor = net.quantised(net.tensor, 0.25, 4)
    weights = net.quantised(net.constant(net.rng.normal(0, 1, (4, 3, 3, 3))), [0.25, 0.5, 1, 2], 3, axis=0)
    net.tensor = net.node("Conv", net.tensor, weights, net.constant([0.5, -1, 0, 8]), kernel_shape=[3, 3])
    net.shape = (4, 4, 4)
    net.apply("Relu")
    model, x = net.fixed(FRAMES), net.frames(FRAMES)
    network = to_network(model, "network")
    assert [str(layer.output.type) for layer in network.layers][-1] == "int32"
    np.testing.assert_array_equal(Model(network).golden(x), by_qonnx(model, x))


def compared(*nodes: onnx.NodeProto, constants: dict[str, float]) -> Dialect:
    net = power_conv(start(), 4)
    names = {name: net.constant(value) for name, value in constants.items()}
    for node in nodes:
        inputs = [net.tensor if name == "x" else names[name] for name in node.input]
        net.tensor = net.node(node.op_type, *inputs)
    net.scale = np.float32(1)
    net.tensor = net.quantised(net.tensor, 1, 4)
    return net


LESS = helper.make_node("Less", ["x", "zero"], ["y"])


def test_less_and_where() -> None:
    """A falling choice turns the weights; other thresholds and values than BipolarQuant's are allowed."""
    where = helper.make_node("Where", ["x", "high", "low"], ["y"])
    net = compared(LESS, where, constants={"zero": 0.5, "high": 3.0, "low": -2.0})
    model, x = net.fixed(FRAMES), net.frames(FRAMES)
    np.testing.assert_array_equal(Model(to_network(model, "network")).golden(x), by_qonnx(model, x))


def test_refused_distance() -> None:
    where = helper.make_node("Where", ["x", "low", "high"], ["y"])
    net = compared(LESS, where, constants={"zero": 0.5, "high": 20.0, "low": -2.0})
    with pytest.raises(HwgenError, match="is followed by a choice between outputs more than 14 steps apart"):
        to_network(net.model(), "network")


def test_refused_choices() -> None:
    where = helper.make_node("Where", ["x", "high", "low"], ["y"])
    double = helper.make_node("Mul", ["x", "high"], ["y"])
    net = compared(LESS, where, double, constants={"zero": 0.5, "high": 3.0, "low": -2.0})
    with pytest.raises(HwgenError, match="can't follow Less and Where without a QuantizeLinear between"):
        to_network(net.model(), "network")


ONE_BIT_FRAMES = 3


def signs(net: Dialect, channels: int, *, pads: int = 1, group: int = 1) -> Dialect:
    """A 3x3 convolution of weights of -1 and 1, and the signs of its sums."""
    before, rows, columns = net.shape
    kernels = net.constant(net.rng.normal(0, 1, (channels, before // group, 3, 3)))
    weights = net.node("BipolarQuant", kernels, net.constant(1), domain=QONNX)
    net.tensor = net.node("Conv", net.tensor, weights, kernel_shape=[3, 3], pads=[pads] * 4, group=group)
    net.shape = (channels, rows + 2 * pads - 2, columns + 2 * pads - 2)
    net.tensor = net.node("BipolarQuant", net.tensor, net.constant(1), domain=QONNX)
    return net


def two_maps(net: Dialect) -> tuple[str, str]:
    """Two maps of signs of the same map."""
    before, shape = net.tensor, net.shape
    first = signs(net, 4).tensor
    net.tensor, net.shape = before, shape
    return first, signs(net, 4).tensor


def concatenated(net: Dialect) -> Dialect:
    net.tensor = net.quantised(net.node("Concat", *two_maps(net), axis=1), 1, 2)
    net.shape = (8, *net.shape[1:])
    return signs(net, 5)


def one_bit_joined(operator: str) -> Callable[[Dialect], Dialect]:
    def make(net: Dialect) -> Dialect:
        net.tensor = net.quantised(net.node(operator, *two_maps(net)), 1, 3)
        return signs(net, 5)

    return make


def upsampled(net: Dialect) -> Dialect:
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.tensor = net.node("Resize", signs(net, 4).tensor, "", net.constant([1, 1, 2, 2]), **how)
    net.shape = (4, 2 * net.shape[1], 2 * net.shape[2])
    return signs(net, 5, pads=0)


def cropped(net: Dialect) -> Dialect:
    ends = ([1, 1], [5, 5], [2, 3])
    net.tensor = net.node("Slice", signs(net, 4).tensor, *(net.constant(values, np.int64) for values in ends))
    net.shape = (4, 4, 4)
    return signs(net, 5)


def averaged(net: Dialect) -> Dialect:
    net.tensor = net.quantised(net.node("GlobalAveragePool", signs(net, 4).tensor), 2.0**-5, 6)
    net.shape = (4, 1, 1)
    return net


ONE_BIT_NETS: dict[str, tuple[Callable[[Dialect], Dialect], str]] = {
    "pool": (lambda net: signs(signs(net, 4).pool(), 5), "MaxPool"),
    "depthwise": (lambda net: signs(signs(net, 4), 4, pads=0, group=4), "Conv"),
    "concatenation": (concatenated, "Concat"),
    "addition": (one_bit_joined("Add"), "Add"),
    "product": (one_bit_joined("Mul"), "Mul"),
    "upsampling": (upsampled, "Upsample"),
    "crop": (cropped, "Crop"),
    "average": (averaged, "GlobalAveragePool"),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "product" else pytest.param(name, marks=pytest.mark.long) for name in ONE_BIT_NETS],
)
@pytest.mark.parametrize("multipliers", ["dsp", pytest.param("lut", marks=pytest.mark.long)])
def test_signs(name: str, multipliers: str, tmp_path: Path) -> None:
    """Values and cycles of the hardware, and the package's values."""
    make, kind = ONE_BIT_NETS[name]
    net = Dialect("qonnx", 0, shape=(3, 6, 6))
    net.tensor = net.quantised(net.tensor, 0.5, 3)
    net = make(net)
    onnx.save(net.model(), tmp_path / "network.onnx")
    model, frames = hwgen.load(tmp_path / "network.onnx"), net.frames(ONE_BIT_FRAMES)
    assert type(model.network.layers[-1 if kind in ("Conv", "GlobalAveragePool") else -2]).__name__ == kind
    assert maps(model.network)[1] in ("uint1", "int2", "int3")
    result = model.plan("zedboard", dsp=60, multipliers=multipliers).simulate(frames, simulator="amaranth")
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)
    theirs = by_qonnx(net.fixed(ONE_BIT_FRAMES), frames)
    np.testing.assert_array_equal(result.outputs, theirs)
    assert len(np.unique(theirs)) > 1
