"""QONNX models (Quant, Trunc) against the ``qonnx`` package, QCDQ models against ONNX Runtime; in hardware.

The package computes floats between Quant nodes, hwgen integers. Where float32 rounds a sum to the other side of a tie,
a value differs by 1: at most 1 in 10,000 may. Scales here are any float32 numbers, so that exact ties hardly come.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from dialects import (
    NETWORKS,
    QONNX,
    RARELY,
    WEIGHTS,
    Dialect,
    by_qonnx,
    check_in_hardware,
    compared,
    integers,
    maps,
    own_type,
    single,
    tensors_by_qonnx,
)
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from pieces import Piece, check
from referees import by_integer_kernels, by_onnxruntime
from step_checks import in_hardware

import hwgen
from hwgen.network import golden, host
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv, Lookup
from hwgen.network.quantise import prepare_inputs

SHORT = ("4 bits", "residual")


def written(name: str, seed: int = 0, **how) -> Dialect:
    return NETWORKS[name](Dialect("qonnx", seed, **how))


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_qonnx(name: str) -> None:
    """Values of three networks of other weights, together."""
    values = other = 0
    for seed in range(3):
        net = written(name, seed)
        frames = net.frames(24)
        model = net.fixed(24)
        theirs = by_qonnx(model, frames)
        size, differ = compared(net, theirs, model, frames)
        values, other = values + size, other + differ
    assert len(np.unique(theirs)) > 2
    assert other * RARELY <= max(values, RARELY)


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in NETWORKS]
)
def test_in_hardware(name: str, tmp_path: Path) -> None:
    """Values and cycles."""
    check_in_hardware(written(name, seed=1), tmp_path)


@pytest.mark.parametrize("domain", [QONNX, "finn.custom_op.general", "onnx.brevitas"])
@pytest.mark.parametrize("opset", [9, 11, 13, 21])
def test_versions(domain: str, opset: int, tmp_path: Path) -> None:
    """All names that the domain had, in models of any age: from the file, with its own output."""
    net = written("narrow", domain=domain, opset=opset)
    onnx.save(net.model(), tmp_path / "network.onnx")
    model = hwgen.load(tmp_path / "network.onnx")
    assert maps(model.network) == ["int4", "int4", "uint3"]
    frames = net.frames(5)
    ours = model.golden(frames)
    assert isinstance(ours, np.ndarray)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(integers(net, ours), model.golden(frames, integers=True))
    reference = written("narrow")
    np.testing.assert_array_equal(ours, hwgen.api.Model(to_network(reference.model(), "x")).golden(frames))


def check_single(model: onnx.ModelProto) -> Conv:
    """All values equal: scales are powers of two, so that float32 is exact, with ties."""
    x = np.random.default_rng(4).normal(0, 8, (4, 3, 6, 6)).astype(np.float32)
    network = to_network(model, "network")
    ours = golden.run(network, prepare_inputs(network, x)) * np.float32(0.25)
    np.testing.assert_array_equal(ours, by_qonnx(model, x))
    (layer,) = network.layers
    assert isinstance(layer, Conv)
    return layer


@pytest.mark.parametrize("mode", ["ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN", "round"])
def test_weights_are_rounded_as_the_node_says(mode: str) -> None:
    weights = np.round(WEIGHTS * 32) / 32  # ties among them
    check_single(single(weights, 0.0625, 0, 5, rounding_mode=mode))


@pytest.mark.parametrize(
    ("more", "how", "bounds"),
    [
        ((0.03125, 0, 4), {"narrow": 1}, (-7, 7)),
        ((0.03125, 0, 4), {}, (-8, 7)),
        ((0.03125, 0, 1), {}, (-1, 1)),
        ((0.03125, 5, 4), {"signed": 0}, (-5, 10)),
        ((0.0078125, 0, 12), {}, (-256, 255)),
        ((np.exp2(-np.arange(4.0) - 2).reshape(4, 1, 1, 1), 0, 3), {}, (-4, 3)),
        ((np.exp2([-3.0, -4]).reshape(1, 1, 1, 1, 2)[0, 0, 0, 0, :1], np.zeros(1), np.array([6])), {}, (-32, 31)),
    ],
)
def test_weights(more: tuple, how: dict[str, Any], bounds: tuple[int, int]) -> None:
    layer = check_single(single(WEIGHTS, *more, **how))
    assert bounds[0] <= layer.weight_range[0] < layer.weight_range[1] <= bounds[1]


def test_weights_of_one_bit() -> None:
    layer = check_single(single(WEIGHTS, 0.5, operator="BipolarQuant"))
    assert set(np.unique(layer.weights)) == {-1, 1}


@pytest.mark.parametrize("scale", [0.0625 * 0.25, 0.5, 2.0**-9, np.exp2(-np.arange(4.0) - 4)])
def test_bias(scale: float | np.ndarray) -> None:
    """In steps of the sums, in larger ones and in smaller ones."""
    bias = np.array([0.3, -1.7, 5.2, 0.02]), scale, 0, 16
    layer = check_single(single(WEIGHTS, 0.0625, 0, 5, bias=bias))
    assert layer.bias.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rounding_mode": "HALF_UP"},
            "Quant node 'first': rounding_mode HALF_UP of a signed feature map is not supported; ROUND, FLOOR and CEIL",
        ),
        ({"rounding_mode": "SOMEHOW"}, "Quant node 'first': rounding_mode must be one of ROUND, .* not 'SOMEHOW'"),
        (
            {"scale": np.float32([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)},
            "Quant node 'first': a feature map must have one scale, not 3",
        ),
        ({"scale": np.float32(-1)}, "Quant node 'first': scale must be positive, not -1.0"),
        ({"scale": np.float32(np.nan)}, "Quant node 'first': scale must be finite numbers, not float32 nan"),
        ({"scale": np.array(0.1)}, "Quant node 'first': scale must be float32 numbers, not float64 np.float64.0.1."),
        ({"zero": np.float32(0.5)}, "Quant node 'first': zero point must be an integer of 32 bits, not 0.5"),
        ({"zero": np.float32(1000)}, "Quant node 'first': zero point must be int8, not 1000"),
        ({"eight": np.float32(2.5)}, r"Quant node 'first': bitwidth must be one integer, 1 to 32, not \[2.5\]"),
        ({"eight": np.float32(0)}, "Quant node 'first': bitwidth must be one integer, 1 to 32"),
        ({"eight": np.float32(20)}, r"Quant node 'first': feature maps must have 1 to 16 bits \(signed 2\), not 20"),
        (
            {"more0": np.ones((5, 1, 1, 1), np.float32)},
            r"'weights': scale of shape \(5, 1, 1, 1\) does not fit .*\(4, 3, 3, 3\)",
        ),
        (
            {"more0": np.arange(1, 13, dtype=np.float32).reshape(4, 3, 1, 1)},
            "'weights': a constant must have one scale, or one along",
        ),
        (
            {"w": np.full((4, 3, 3, 3), np.inf, np.float32)},
            "Quant node 'weights': its constant must hold finite numbers",
        ),
        ({"operator": "BipolarQuant"}, "BipolarQuant node 'first': takes floats of the model's input; a Quant"),
        (
            {"operator": "FloatQuant"},
            "FloatQuant node 'first': is not supported, of QONNX Quant, BipolarQuant and Trunc",
        ),
        ({"input": "x"}, "Quant node 'first': scale must be a constant of the model"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    """By node and reason, without the package."""
    model = single(WEIGHTS, 0.0625, 0, 5)
    first = model.graph.node[0]
    for name, value in change.items():
        if name == "rounding_mode":
            entry = next(entry for entry in first.attribute if entry.name == name)
            entry.s = value.encode()
        elif name == "operator":
            first.op_type = value
        elif name == "input":
            first.input[1] = value
        else:
            tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    with pytest.raises(hwgen.HwgenError, match=message):
        to_network(model, "network")


def written_as_qcdq(name: str, dialect: str = "qcdq", seed: int = 0, **how) -> Dialect:
    return NETWORKS[name](Dialect(dialect, seed, **how))


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_onnx_runtime(name: str) -> None:
    """In every value of three networks of other weights, but for what float32 rounds."""
    values = other = 0
    for seed in range(3):
        net = written_as_qcdq(name, seed=seed)
        frames = net.frames(40)
        theirs, floats = by_integer_kernels(net.model(), frames)
        size, differ = compared(net, theirs, net.model(), frames)
        assert floats or not differ
        values, other = values + size, other + differ
    assert len(np.unique(theirs)) > 2
    assert other * RARELY <= max(values, RARELY)


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_clips_in_hardware(name: str, tmp_path: Path) -> None:
    """Values and cycles."""
    check_in_hardware(written_as_qcdq(name), tmp_path)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("2 bits", ["int2", "uint2", "uint2"]),
        ("4 bits", ["int4", "uint4", "uint4", "int4"]),  # the pool keeps its input's
        ("narrow", ["int4", "int4", "uint3"]),
    ],
)
def test_maps_are_narrow(name: str, types: list[str]) -> None:
    network = to_network(written_as_qcdq(name).model(), "network")
    assert maps(network) == types


def test_bounds_are_those_of_the_clip() -> None:
    """-7 to 7 is int4, and -8 never comes: neither from the host nor from a layer."""
    net = written_as_qcdq("narrow")
    network = to_network(net.model(), "network")
    (x,) = prepare_inputs(network, np.full((1, 3, 8, 8), -100, np.float32))
    assert x.min() == x.max() == -7
    first = network.layers[0]
    assert isinstance(first, Conv)
    assert first.requantisation is not None
    assert (first.requantisation.low, first.requantisation.high) == (-7, 7)
    assert network.host is not None
    assert network.host.before == ("QuantizeLinear", "Clip")


def test_weights_are_narrow() -> None:
    first, *_ = to_network(written_as_qcdq("2 bits").model(), "network").layers
    assert isinstance(first, Conv)
    assert first.weight_bits == 2
    assert set(np.unique(first.weights)) == {-1, 0, 1}


def clipped_once(low: int, high: int, zero: int, kind: type) -> onnx.ModelProto:
    """A map of ``kind`` that is clipped for a convolution, and goes to another one as it is."""
    constants = {
        "scale": np.float32(0.5),
        "zero": np.array(zero, kind),
        "low": np.array(low, kind),
        "high": np.array(high, kind),
        "w": np.array([[2], [-3]], np.int8).reshape(2, 1, 1, 1),
        "w_zero": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("Clip", ["q", "low", "high"], ["clipped"]),
        helper.make_node("DequantizeLinear", ["clipped", "scale", "zero"], ["one"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["other"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "w_zero"], ["weights"]),
        helper.make_node("Conv", ["one", "weights"], ["sums"]),
        helper.make_node("Conv", ["other", "weights"], ["more"]),
        helper.make_node("QuantizeLinear", ["sums", "scale", "zero"], ["a"]),
        helper.make_node("QuantizeLinear", ["more", "scale", "zero"], ["b"]),
        helper.make_node("DequantizeLinear", ["a", "scale", "zero"], ["a_real"]),
        helper.make_node("DequantizeLinear", ["b", "scale", "zero"], ["b_real"]),
        helper.make_node("Add", ["a_real", "b_real"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "scale", "zero"], ["y"]),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return as_model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 1, 4, 16])},
        {"y": (element, ["n", 2, 4, 16])},
        constants,
        opset=13,
        ir_version=8,
    )


@pytest.mark.parametrize(
    ("low", "high", "zero", "kind"), [(0, 15, 3, np.uint8), (-5, 4, 9, np.int8), (7, 2, 0, np.uint8)]
)
def test_a_map_that_others_take_as_it_was(low: int, high: int, zero: int, kind: type) -> None:
    """Then a layer clips it. Where ``low`` is above ``high``, all become ``high``."""
    model = clipped_once(low, high, zero, kind)
    frames = np.linspace(-40, 40, 64, dtype=np.float32).reshape(1, 1, 4, 16)
    theirs, _ = by_integer_kernels(model, frames)
    network = to_network(model, "network")
    narrow = network.input.type.narrowed(min(low, high), high, zero)
    assert {layer.output.type.bits for layer in network.layers} == {narrow.bits, 8}
    np.testing.assert_array_equal(golden.run(network, prepare_inputs(network, frames)), theirs)


def clipped(piece: Piece, tensor: str, scale: float, zero: int, low: int, high: int) -> str:
    """QuantizeLinear, Clip, DequantizeLinear."""
    integers = piece.node("Clip", piece.quantise(tensor, scale, zero), np.uint8(low), np.uint8(high))
    return piece.dequantise(integers, scale, zero)


FUNCTIONS: dict[str, Callable[[Piece, str], str]] = {
    "Sigmoid": lambda piece, tensor: piece.requantise(piece.node("Sigmoid", tensor), 0.0043),
    "LeakyRelu": lambda piece, tensor: piece.requantise(piece.node("LeakyRelu", tensor), 0.31, 9),
    "a table a channel": lambda piece, tensor: piece.requantise(
        piece.node("Mul", tensor, np.float32([0.3, 0.5, 0.8]).reshape(3, 1, 1)), 0.317, 9
    ),
    "narrow again": lambda piece, tensor: clipped(piece, piece.node("Sigmoid", tensor), 0.043, 2, 1, 14),
    "of a pool": lambda piece, tensor: piece.requantise(
        piece.node("Sigmoid", piece.node("MaxPool", tensor, kernel_shape=[2, 2], pads=[1, 1, 0, 0])), 0.0043
    ),
    "of a frame": lambda piece, tensor: piece.requantise(
        piece.node("Sigmoid", piece.node("Pad", tensor, [0, 0, 1, 1, 0, 0, 1, 1])), 0.0043
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("bounds", [(0, 15), (3, 9), (20, 40)])
def test_functions_of_narrow_maps(name: str, bounds: tuple[int, int]) -> None:
    """A table has as many entries as the map's type has values."""
    piece = Piece(kind=np.float32)
    made = FUNCTIONS[name](piece, clipped(piece, "x", 0.7, 5, *bounds))
    network = check(piece.model(made), piece.frames(20))
    bits = max(max(bounds).bit_length(), 3)
    assert network.input.type == IntegerType(bits=bits, signed=False)
    table = next(layer.table for layer in network.layers if isinstance(layer, Lookup))
    assert table.shape[1] == 1 << bits


def test_a_logarithm_of_what_is_never_zero() -> None:
    """What the Clip leaves out is not asked for."""
    piece = Piece(kind=np.float32)
    logarithm = piece.node("Log", clipped(piece, "x", 0.7, 2, 3, 30))
    check(piece.model(piece.requantise(logarithm, 0.043, 20)), piece.frames(20))


@pytest.mark.parametrize(("low", "high"), [(20.0, 30.0), (-30.0, -20.0)])
def test_bounds_beyond_those_of_the_clip(low: float, high: float, tmp_path: Path) -> None:
    """All values become one, which is none of the narrow type's."""
    piece = Piece((3, 4, 3))
    sums = piece.conv(piece.real(), bias=False, pads=[1, 1, 1, 1])
    beyond = piece.node("Clip", clipped(piece, sums, 0.913, 40, 40, 47), np.float32(low), np.float32(high))
    model = piece.model(piece.quantise(beyond, 0.913, 40))
    (layer,) = check(model, piece.frames(5)).layers
    assert isinstance(layer, Conv)
    assert layer.requantisation is not None
    assert layer.requantisation.low == layer.requantisation.high
    in_hardware(model, tmp_path)


def test_narrow_functions_in_hardware(tmp_path: Path) -> None:
    piece = Piece((3, 4, 3))
    sums = piece.conv(piece.real(), bias=False, pads=[1, 1, 1, 1])
    made = piece.node("LeakyRelu", clipped(piece, sums, 6.913, 5, 0, 15))
    in_hardware(piece.model(piece.quantise(made, 2.317, 9)), tmp_path)


@pytest.mark.parametrize("of_integers", [False, True])
def test_a_frame_that_a_narrow_map_can_not_hold(of_integers: bool) -> None:
    piece, pads = Piece(kind=np.float32), [0, 0, 1, 1, 0, 0, 1, 1]
    if of_integers:
        tensor = clipped(piece, "x", 0.7, 5, 0, 15)
        integers = piece.node("Pad", piece.nodes[-1].input[0], pads, np.uint8(20))
        del tensor
        wide = piece.dequantise(integers, 0.7, 5)
    else:
        wide = piece.node("Pad", clipped(piece, "x", 0.7, 5, 0, 15), pads, np.float32(10.5))
    message = "Pad node 'Pad[0-9]': value 20 is outside uint4, which its input is clipped to; pad with a value inside"
    with pytest.raises(hwgen.ModelError, match=message):
        to_network(piece.model(piece.quantise(piece.conv(wide), 3.1)), "network")


@pytest.mark.parametrize("name", ["INT4", "UINT4", "INT2", "UINT2"])
def test_types_of_onnx_s_own(name: str, tmp_path: Path) -> None:
    """ONNX Runtime computes them in float32 where it doesn't optimise (optimised it refuses them): all are equal."""
    if not hasattr(TensorProto, name) or onnx.defs.onnx_opset_version() < 25:
        pytest.skip(f"this onnx has no {name}")
    model = own_type(getattr(TensorProto, name), 21 if "4" in name else 25)
    onnx.save(model, tmp_path / "network.onnx")
    frames = np.random.default_rng(5).normal(0, 2, (20, 3, 8, 8)).astype(np.float32)
    loaded = hwgen.load(tmp_path / "network.onnx")
    assert maps(loaded.network) == [name.lower()] * 2
    np.testing.assert_array_equal(loaded.golden(frames), by_onnxruntime(model, frames))


SIGNED_MODES = ("FLOOR", "CEIL", "ROUND", "HALF_EVEN")
MODES = (*SIGNED_MODES, "UP", "DOWN", "HALF_UP", "HALF_DOWN")


class Truncated:
    """Writer of a model: a Quant, an average times its number of pixels or nothing, a Trunc, and a convolution."""

    def __init__(self, *, bits: int, signed: bool, shape: tuple[int, int, int] = (3, 6, 6), scale: float = 0.0713):
        self.bits, self.signed, self.shape, self.scale = bits, signed, shape, np.float32(scale)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.version = 1
        flags = {"signed": int(signed), "narrow": 0, "rounding_mode": "ROUND"}
        self.tensor = self.add("Quant", "x", self.scale, np.float32(0), np.float32(bits), domain=QONNX, **flags)

    def add(self, operator: str, tensor: str, *constants: np.generic | np.ndarray, **attributes) -> str:
        names = [f"c{len(self.constants) + index}" for index in range(len(constants))]
        self.constants += [
            numpy_helper.from_array(np.asarray(value), name) for value, name in zip(constants, names, strict=True)
        ]
        output = f"t{len(self.nodes)}"
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [tensor, *names], [output], name=name, **attributes))
        return output

    def summed(self, operator: str, count: int, **attributes) -> None:
        self.tensor = self.add("Mul", self.add(operator, self.tensor, **attributes), np.float32(count))

    def truncate(self, first: int, last: int, mode: str, *, scale: float | None = None, zero: int = 0) -> None:
        given = self.scale if scale is None else np.float32(scale)
        constants = given, np.float32(zero), np.float32(first), np.float32(last)
        self.tensor = self.add("Trunc", self.tensor, *constants, domain=QONNX, rounding_mode=mode)

    def truncate_to_scale(self, shift: int, last: int, mode: str, *, signed: bool, narrow: bool) -> None:
        """Version 2, with an output scale."""
        self.version = 2
        output_scale = np.float32(self.scale * np.float32(2.0**shift))
        constants = self.scale, np.float32(0), np.float32(8), output_scale, np.float32(last)
        flags = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": mode}
        self.tensor = self.add("Trunc", self.tensor, *constants, domain=QONNX, **flags)

    def convolve(self) -> None:
        weights = np.random.default_rng(2).integers(-3, 4, (4, self.shape[0], 1, 1)).astype(np.float32)
        flags = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
        quantised = self.add("Quant", "w", np.float32(1), np.float32(0), np.float32(4), domain=QONNX, **flags)
        self.constants.append(numpy_helper.from_array(weights, "w"))
        self.nodes.append(helper.make_node("Conv", [self.tensor, quantised], ["sums"], name="conv"))
        self.tensor = self.add("Quant", "sums", np.float32(0.37), np.float32(0), np.float32(8), domain=QONNX, **flags)

    def model(self, batch: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "truncated",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *self.shape])],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, [None] * 4)],
            self.constants,
        )
        imports = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, self.version)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def frames(self, count: int) -> np.ndarray:
        random = np.random.default_rng(5)
        middle = 0 if self.signed else 1 << self.bits - 1
        offsets = random.normal(middle, 1 << self.bits - 2, (count, self.shape[0], 1, 1))
        return ((random.normal(0, 1 << self.bits - 3, (count, *self.shape)) + offsets) * self.scale).astype(np.float32)

    def check(self, count: int = 40) -> list[str]:
        """Every value equals the package's; return the kinds of layers."""
        x = self.frames(count)
        theirs = tensors_by_qonnx(self.model(count), x)[self.tensor]
        network = to_network(self.model(count), "network")
        ours = host.outputs(network, golden.run(network, prepare_inputs(network, x)), 0)
        assert len(np.unique(theirs)) > 2
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        return [layer.kind for layer in network.layers]


POOLS = {
    "windows": ("AveragePool", 4, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "uneven": ("AveragePool", 6, {"kernel_shape": [2, 3], "strides": [1, 2]}),
    "padded": ("AveragePool", 9, {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
    "whole": ("GlobalAveragePool", 36, {}),
}


@pytest.mark.parametrize(("pool", "mode"), [([*POOLS][index % 4], mode) for index, mode in enumerate(MODES)])
def test_sums_of_averages(pool: str, mode: str) -> None:
    operator, count, attributes = POOLS[pool]
    net = Truncated(bits=4, signed=False)
    net.summed(operator, count, **attributes)
    net.truncate(4 + (count - 1).bit_length(), 4, mode)
    net.convolve()
    assert net.check() == ["conv", "conv"]


@pytest.mark.parametrize("mode", SIGNED_MODES)
def test_signed_sums(mode: str) -> None:
    net = Truncated(bits=5, signed=True)
    net.summed("AveragePool", 4, kernel_shape=[2, 2])
    net.truncate(7, 5, mode)
    net.check()


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_maps(data: st.DataObject) -> None:
    """Both versions, of maps that are not summed."""
    signed = data.draw(st.booleans())
    bits = data.draw(st.integers(3, 8))
    mode = data.draw(st.sampled_from(SIGNED_MODES if signed else MODES))
    net = Truncated(bits=bits, signed=signed, shape=(2, 3, 4), scale=data.draw(st.sampled_from([0.0713, 0.25, 1.7])))
    shift = data.draw(st.integers(0, bits - 2))
    if data.draw(st.booleans()):
        net.truncate(bits, bits - shift, mode)
    else:
        last = data.draw(st.integers(2, 6))
        net.truncate_to_scale(shift, last, mode, signed=signed, narrow=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        net.convolve()
    net.check(30)


def _signed_half_up(net: Truncated) -> None:
    net.truncate(4, 2, "HALF_UP")


def _other_scale(net: Truncated) -> None:
    net.truncate(4, 2, "FLOOR", scale=0.05)


def _zero_point(net: Truncated) -> None:
    net.truncate(4, 2, "FLOOR", zero=1)


def _mean(net: Truncated) -> None:
    net.tensor = net.add("GlobalAveragePool", net.tensor)
    net.truncate(9, 4, "FLOOR")


def _sum_of_maps(net: Truncated) -> None:
    net.nodes.append(helper.make_node("Add", [net.tensor, net.tensor], ["sum"], name="sum"))
    net.tensor = "sum"
    net.truncate(5, 4, "FLOOR")


def _uncounted(net: Truncated) -> None:
    net.summed("AveragePool", 9, kernel_shape=[3, 3], pads=[1] * 4)
    net.truncate(9, 4, "FLOOR")


def _large(net: Truncated) -> None:
    net.tensor = net.add("Quant", "x", net.scale, np.float32(0), np.float32(15), domain=QONNX, rounding_mode="ROUND")
    net.summed("AveragePool", 81, kernel_shape=[9, 9], pads=[4] * 4, count_include_pad=1)
    net.truncate(22, 15, "FLOOR")


def _growing(net: Truncated) -> None:
    net.truncate(4, 6, "FLOOR")


@pytest.mark.long
def test_truncations_in_hardware(tmp_path) -> None:
    net = Truncated(bits=4, signed=False)
    net.summed("AveragePool", 4, kernel_shape=[2, 2], strides=[2, 2])
    net.truncate(6, 4, "FLOOR")
    net.convolve()
    onnx.save(net.model(3), tmp_path / "network.onnx")
    result = hwgen.load(tmp_path / "network.onnx").plan("zedboard").simulate(net.frames(3), simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted


OTHERWISE = ".*; or quantise the average or the sum before it again, by a Quant with ROUND$"
REFUSED = {
    _signed_half_up: "Trunc node 'trunc1': rounding_mode HALF_UP of numbers below 0 is not supported; FLOOR, CEIL and ",
    _other_scale: "Trunc node 'trunc1': scale must be 0.0713, the scale of its input's integers, not 0.05" + OTHERWISE,
    _zero_point: "Trunc node 'trunc1': must have one scale, and no zero point" + OTHERWISE,
    _mean: "Trunc node 'trunc2': scale must be 0.00198056, the scale of its input's integers, not 0.0713" + OTHERWISE,
    _sum_of_maps: "Trunc node 'trunc2': must follow a Quant without zero point, or an average of one that is "
    + OTHERWISE,
    _uncounted: "AveragePool node 'averagepool1': before a Trunc must count padding, and have ceil_mode 0" + OTHERWISE,
    _large: "Trunc node 'trunc4': sums must be at most 1,048,576, not 1,327,104: float32 would round them$",
    _growing: "Trunc node 'trunc1': must drop 0 to 16 bits, not -2$",
}


@pytest.mark.parametrize("write", REFUSED)
def test_refused(write) -> None:
    net = Truncated(bits=4, signed=True)
    write(net)
    with pytest.raises(hwgen.ModelError, match=f"^network: {REFUSED[write]}") as error:
        to_network(net.model(1), "network")
    assert "\n" not in str(error.value)
