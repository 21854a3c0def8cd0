"""QCDQ models (Clip between QuantizeLinear and DequantizeLinear) against ONNX Runtime; some through the hardware.

A network without float operators in ONNX Runtime's optimised graph must be equal in every value. Where it leaves some
in float32 (a bias that is not quantised, BatchNormalization), its sums round, and 1 value in 10,000 may differ by 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from dialects import NETWORKS, RARELY, Dialect, check_in_hardware, compared, maps, own_type
from onnx import TensorProto, helper, numpy_helper
from pieces import Piece, check
from referees import by_integer_kernels, by_onnxruntime
from step_checks import in_hardware

import hwgen
from hwgen.network import golden
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv, Lookup
from hwgen.network.quantise import prepare_inputs


def written(name: str, dialect: str = "qcdq", seed: int = 0, **how) -> Dialect:
    return NETWORKS[name](Dialect(dialect, seed, **how))


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_onnx_runtime(name: str) -> None:
    """In every value of three networks of other weights, but for what float32 rounds."""
    values = other = 0
    for seed in range(3):
        net = written(name, seed=seed)
        frames = net.frames(40)
        theirs, floats = by_integer_kernels(net.model(), frames)
        size, differ = compared(net, theirs, net.model(), frames)
        assert floats or not differ
        values, other = values + size, other + differ
    assert len(np.unique(theirs)) > 2
    assert other * RARELY <= max(values, RARELY)


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_in_hardware(name: str, tmp_path: Path) -> None:
    """Values and cycles."""
    check_in_hardware(written(name), tmp_path)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("2 bits", ["int2", "uint2", "uint2"]),
        ("4 bits", ["int4", "uint4", "uint4", "int4"]),  # the pool keeps its input's
        ("narrow", ["int4", "int4", "uint3"]),
    ],
)
def test_maps_are_narrow(name: str, types: list[str]) -> None:
    network = to_network(written(name).model(), "network")
    assert maps(network) == types


def test_bounds_are_those_of_the_clip() -> None:
    """-7 to 7 is int4, and -8 never comes: neither from the host nor from a layer."""
    net = written("narrow")
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
    first, *_ = to_network(written("2 bits").model(), "network").layers
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
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4, 16])],
        [helper.make_tensor_value_info("y", element, ["n", 2, 4, 16])],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


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
    message = "Pad node 'Pad[0-9]': value 20 is none of uint4, to which its input is clipped; it must be one of these"
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
