"""QONNX models (Quant nodes) against the ``qonnx`` package; some through the hardware.

The package computes floats between Quant nodes, hwgen integers. Where float32 rounds a sum to the other side of a tie,
a value differs by 1: at most 1 in 10,000 may. Scales here are any float32 numbers, so that exact ties hardly come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dialects import NETWORKS, QONNX, RARELY, Dialect, by_qonnx, check_in_hardware, compared, integers, maps
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen.network import golden
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv
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


def single(
    weights: np.ndarray, *more: Any, operator: str = "Quant", bias: tuple[Any, ...] = (), **how: Any
) -> onnx.ModelProto:
    """One convolution of int8 integers, whose weights (and perhaps bias) go through a node of QONNX."""
    constants = {"scale": np.float32(0.25), "zero": np.float32(0), "eight": np.float32(8), "w": weights}
    constants |= {f"more{place}": np.asarray(value) for place, value in enumerate(more)}
    constants |= {f"bias{place}": np.asarray(value) for place, value in enumerate(bias)}
    quant = {"domain": QONNX, "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    given = [f"more{place}" for place in range(len(more))]
    nodes = [
        helper.make_node("Quant", ["x", "scale", "zero", "eight"], ["xq"], name="first", **quant),
        helper.make_node(
            operator,
            ["w", *given],
            ["wq"],
            name="weights",
            **(quant | how if operator == "Quant" else {"domain": QONNX}),
        ),
        helper.make_node("Conv", ["xq", "wq", *(["bq"] if bias else [])], ["sums"]),
        helper.make_node("Quant", ["sums", "scale", "zero", "eight"], ["y"], name="last", **quant),
    ]
    if bias:
        names = [f"bias{place}" for place in range(len(bias))]
        nodes.insert(2, helper.make_node("Quant", names, ["bq"], name="bias", **quant))
    outputs, channels, rows, columns = weights.shape
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, channels, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, outputs, 7 - rows, 7 - columns])],
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in constants.items()],
    )
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


WEIGHTS = np.random.default_rng(3).normal(0, 0.4, (4, 3, 3, 3)).astype(np.float32)


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
            {"rounding_mode": "FLOOR"},
            "Quant node 'first': rounding_mode FLOOR of a feature map is not supported; ROUND is",
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
