"""Functions of one value: their tables against ONNX Runtime and NumPy, what becomes of them in hardware, refusals."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from pieces import Piece, check
from referees import by_integer_kernels, integer_session

import hwgen
from hwgen import boards
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Lookup
from hwgen.network.quantise import quantise
from hwgen.plan import planner

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}
CHANNELS = 3
OPSETS = (13, 14, 15, 16, 17, 18, 19, 20, 21)


@dataclass(frozen=True)
class Function:
    """Nodes from ``v`` to ``last``: operator, inputs, output, attributes; and constants."""

    nodes: Sequence[tuple]
    constants: dict[str, np.ndarray | np.generic] = field(default_factory=dict)
    opset: int = 13
    """The first that has it."""

    def made(self) -> list[onnx.NodeProto]:
        return [
            helper.make_node(node[0], node[1], [node[2]], name=f"n_{node[2]}", **(node[3] if len(node) > 3 else {}))
            for node in self.nodes
        ]


def one(operator: str, opset: int = 13, **attributes: object) -> Function:
    return Function([(operator, ["v"], "last", attributes)], opset=opset)


def of_constant(operator: str, value: object, *, first: bool = False) -> Function:
    """Constants are written ``(1, channels, 1, 1)``, or a number."""
    array = np.array(value, np.float32)
    array = array.reshape(1, -1, 1, 1) if array.ndim else array
    return Function([(operator, ["c", "v"] if first else ["v", "c"], "last")], {"c": array})


NUMBERS = {"half": np.float32(0.5), "one": np.float32(1), "three": np.float32(3), "six": np.float32(6)}
NUMBERS |= {"zero": np.float32(0), "root": np.float32(np.sqrt(2)), "pi": np.float32(np.sqrt(2 / np.pi))}
NUMBERS |= {"small": np.float32(0.044715), "cube": np.float32(3)}
FEW = (-0.4, 0.25, 1.5)
NORM = {"gain": np.float32(FEW), "bias": np.float32([0.3, -0.2, 0]), "mean": np.float32([0.1, 0.5, -0.4])}
NORM |= {"variance": np.float32([0.7, 1.3, 2.1])}
NORMALISE = ("BatchNormalization", ["v", *NORM], "n", {"epsilon": 1e-3})

FUNCTIONS = {
    **{name: one(name) for name in ("Sigmoid", "Tanh", "Softplus", "Softsign", "Erf", "Exp", "Abs", "Neg", "Sign")},
    **{name: one(name) for name in ("Floor", "Ceil", "Round", "Sin", "Selu", "Elu", "Celu", "Atan")},
    "LeakyRelu": one("LeakyRelu", alpha=0.1),
    "negative LeakyRelu": one("LeakyRelu", alpha=-0.3),
    "HardSigmoid": one("HardSigmoid", alpha=0.1666, beta=0.5),
    "ThresholdedRelu": one("ThresholdedRelu", alpha=0.3),
    "HardSwish": one("HardSwish", 14),
    "Mish": one("Mish", 18),
    "Gelu": one("Gelu", 20, approximate="tanh"),
    "Gelu of com.microsoft": one("Gelu", domain="com.microsoft"),
    "QuickGelu": one("QuickGelu", domain="com.microsoft", alpha=1.702),
    "Sqrt of Relu": Function([("Relu", ["v"], "r"), ("Sqrt", ["r"], "last")]),
    "SiLU": Function([("Sigmoid", ["v"], "s"), ("Mul", ["v", "s"], "last")]),
    "SiLU, the other way": Function([("Sigmoid", ["v"], "s"), ("Mul", ["s", "v"], "last")]),
    "HardSwish in parts": Function(
        [
            *(("Add", ["v", "three"], "a"), ("Clip", ["a", "zero", "six"], "b")),
            *(("Mul", ["v", "b"], "c"), ("Div", ["c", "six"], "last")),
        ],
        NUMBERS,
    ),
    "Gelu in parts": Function(
        [
            *(("Div", ["v", "root"], "a"), ("Erf", ["a"], "b"), ("Add", ["b", "one"], "c")),
            *(("Mul", ["v", "c"], "d"), ("Mul", ["d", "half"], "last")),
        ],
        NUMBERS,
    ),
    "tanh Gelu in parts": Function(
        [
            *(("Pow", ["v", "cube"], "a"), ("Mul", ["a", "small"], "b"), ("Add", ["v", "b"], "c")),
            *(("Mul", ["c", "pi"], "d"), ("Tanh", ["d"], "e"), ("Add", ["e", "one"], "f")),
            *(("Mul", ["v", "f"], "g"), ("Mul", ["g", "half"], "last")),
        ],
        NUMBERS,
    ),
    "Mish in parts": Function([("Softplus", ["v"], "a"), ("Tanh", ["a"], "b"), ("Mul", ["v", "b"], "last")]),
    "floats that fork": Function(
        [("LeakyRelu", ["v"], "a"), ("Neg", ["a"], "b"), ("Mul", ["a", "b"], "c"), ("Sub", ["c", "a"], "last")]
    ),
    "PRelu": Function([("PRelu", ["v", "c"], "last")], {"c": np.float32(FEW).reshape(-1, 1, 1)}),
    "PRelu of one slope": Function([("PRelu", ["v", "c"], "last")], {"c": np.float32([0.2])}),
    "Mul": of_constant("Mul", FEW),
    "Mul by a number": of_constant("Mul", 0.7, first=True),
    "Div": of_constant("Div", FEW),
    "Sub": of_constant("Sub", FEW),
    "Sub from": of_constant("Sub", FEW, first=True),
    "Pow": of_constant("Pow", 2.0),
    "Max": of_constant("Max", FEW),
    "Min": of_constant("Min", 0.5, first=True),
    "Sum": of_constant("Sum", FEW),
    "Mean": of_constant("Mean", FEW),
    "Add twice": Function([("Add", ["v", "half"], "a"), ("Add", ["a", "one"], "last")], NUMBERS),
    "Relu and Add": Function([("Relu", ["v"], "a"), ("Add", ["half", "a"], "last")], NUMBERS),
    "Clip behind Tanh": Function([("Tanh", ["v"], "a"), ("Clip", ["a", "zero", "half"], "last")], NUMBERS),
    "Add of an activation": Function([("Relu", ["v"], "a"), ("Add", ["v", "a"], "last")]),
    "BatchNormalization": Function([("BatchNormalization", ["v", *NORM], "last", {"epsilon": 1e-3})], NORM),
    "BatchNormalization, Relu": Function([NORMALISE, ("Relu", ["n"], "last")], NORM),
    "Relu, BatchNormalization": Function(
        [("Relu", ["v"], "r"), ("BatchNormalization", ["r", *NORM], "last", {"epsilon": 1e-3})], NORM
    ),
    "BatchNormalization, scaled, activated": Function(
        [
            *(NORMALISE, ("Mul", ["n", "c"], "m"), ("Add", ["m", "half"], "a"), ("PRelu", ["a", "c"], "b")),
            ("Clip", ["b", "zero", "half"], "last"),
        ],
        {**NORM, **NUMBERS, "c": np.float32(FEW)[::-1].reshape(-1, 1, 1)},
    ),
    "BatchNormalization by integers": Function(
        [
            ("DequantizeLinear", ["q", "q_scale", "q_zero"], "c"),
            ("BatchNormalization", ["v", "c", "bias", "mean", "variance"], "n"),
            ("Relu", ["n"], "last"),
        ],
        {**NORM, "q": np.int8([90, -70, 100]), "q_scale": np.float32(0.013), "q_zero": np.int8(4)},
    ),
    "Mul by integers": Function(
        [("DequantizeLinear", ["q", "q_scale", "q_zero"], "c"), ("Mul", ["v", "c"], "last")],
        {"q": np.int8([3, -70, 100]).reshape(3, 1, 1), "q_scale": np.float32(0.013), "q_zero": np.int8(4)},
    ),
    "Mul by integers of many scales": Function(
        [("DequantizeLinear", ["q", "q_scale", "q_zero"], "c", {"axis": 0}), ("Mul", ["c", "v"], "last")],
        {"q": np.int8([3, -70, 100]).reshape(3, 1, 1), "q_scale": np.float32(FEW) ** 2, "q_zero": np.int8([0, 1, 2])},
    ),
}


@dataclass(frozen=True)
class Label:
    kind: str
    scale: float
    zero: int


def labels_for(seed: int) -> tuple[Label, Label]:
    """Of input and output: scales of any size or powers of two, any zero points, types alike or not."""
    draw = np.random.default_rng([seed, 14])
    kinds = [["int8"] * 2, ["uint8"] * 2, ["int8", "uint8"], ["uint8", "int8"]][draw.integers(4)]
    scales = draw.uniform(0.003, 0.08, 2) if seed % 3 else np.exp2(draw.integers(-8, -3, 2))
    limits = [np.iinfo(kind) for kind in kinds]
    zeros = [draw.choice([each.min, each.max, draw.integers(each.min, each.max + 1)]) for each in limits]
    first, second = (Label(k, float(np.float32(s)), int(z)) for k, s, z in zip(kinds, scales, zeros, strict=True))
    return first, second


def model_of(
    function: Function, labels: tuple[Label, Label], opset: int, *, nodes: Sequence[onnx.NodeProto] = ()
) -> onnx.ModelProto:
    """All values of each channel, dequantised, through the function, and quantised; or through ``nodes`` alone."""
    taken, given = labels
    constants = {
        **function.constants,
        **{"x_scale": np.float32(taken.scale), "x_zero": np.array(taken.zero, taken.kind)},
        **{"y_scale": np.float32(given.scale), "y_zero": np.array(given.zero, given.kind)},
    }
    nodes = nodes or [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["v"]),
        *function.made(),
        helper.make_node("QuantizeLinear", ["last", "y_scale", "y_zero"], ["y"], name="quantise"),
    ]
    return as_model(
        nodes,
        {"x": (TYPES[taken.kind], (1, CHANNELS, 16, 16))},
        {"y": (TYPES[given.kind], (1, CHANNELS, 16, 16))},
        constants,
        opset=opset,
        domains=["com.microsoft"],
    )


def all_values(kind: str) -> np.ndarray:
    limits = np.iinfo(kind)
    values = np.arange(limits.min, limits.max + 1).astype(kind).reshape(1, 1, 16, 16)
    return np.broadcast_to(values, (1, CHANNELS, 16, 16)).copy()


def ours(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return golden.run(to_network(model, "function"), x)


SEEDS = [*range(2), *(pytest.param(slice(first, first + 10), marks=pytest.mark.long) for first in range(2, 42, 10))]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables(name: str, seeds: int | slice) -> None:
    """All values of each channel, in whatever operator set: what ONNX Runtime's session gives."""
    function = FUNCTIONS[name]
    for seed in [seeds] if isinstance(seeds, int) else range(seeds.start, seeds.stop):
        labels = labels_for(100 * list(FUNCTIONS).index(name) + seed)
        opset = max(function.opset, OPSETS[seed % len(OPSETS)])
        model = model_of(function, labels, opset)
        x = all_values(labels[0].kind)
        (theirs,) = integer_session(model)[0].run(None, {"x": x})
        if labels[0] == labels[1] and np.array_equal(theirs, x):
            with pytest.raises(ModelError, match="holds no layer to build"):  # every value stays what it is
                ours(model, x)
            continue
        np.testing.assert_array_equal(ours(model, x), theirs, err_msg=f"{labels}")


@pytest.mark.parametrize("operator", ["LeakyRelu", "Sigmoid"])
@pytest.mark.parametrize("seed", range(6))
def test_tables_of_integer_operators(operator: str, seed: int) -> None:
    labels = labels_for(seed)
    labels = labels[0], replace(labels[1], kind=labels[0].kind, zero=labels[0].zero)
    inputs = ["x", "x_scale", "x_zero", "y_scale", "y_zero"]
    slope = {"alpha": 0.07} if operator == "LeakyRelu" else {}
    node = helper.make_node(f"QLinear{operator}", inputs, ["y"], domain="com.microsoft", **slope)
    model = model_of(Function([]), labels, 13, nodes=[node])
    x = all_values(labels[0].kind)
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    np.testing.assert_array_equal(ours(model, x), theirs)
    assert [layer.kind for layer in to_network(model, "function").layers] == ["lookup"]


def normalised(v: np.ndarray) -> np.ndarray:
    """As ONNX defines BatchNormalization with `NORM`."""
    gain, bias, mean, variance = (values.astype(np.float64).reshape(-1, 1, 1) for values in NORM.values())
    return gain * (v - mean) / np.sqrt(variance + 1e-3) + bias


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("values", [70, (3, 200, 101)])
def test_integer_products_with_constants(values: int | tuple[int, ...], first: bool) -> None:
    """QLinearMul of a map and a number, or a number for each channel."""
    for seed in range(6):
        taken, given = labels_for(seed)
        given = replace(given, kind=taken.kind, zero=taken.zero - 1 if taken.zero > 0 else taken.zero + 1)
        array = np.array(values).astype(taken.kind)
        constants = {"c": array.reshape(-1, 1, 1) if array.ndim else array, "c_scale": np.float32(0.0123)}
        constants["c_zero"] = np.array(55, taken.kind)
        operands = ["x", "x_scale", "x_zero"], ["c", "c_scale", "c_zero"]
        names = [*operands[first], *operands[not first], "y_scale", "y_zero"]
        node = helper.make_node("QLinearMul", names, ["y"], name="product", domain="com.microsoft")
        model = model_of(Function([], constants), (taken, given), 13, nodes=[node])
        x = all_values(taken.kind)
        (theirs,) = integer_session(model)[0].run(None, {"x": x})
        assert len(np.unique(theirs)) > 20
        np.testing.assert_array_equal(ours(model, x), theirs)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("LeakyRelu", lambda v: np.where(v < 0, 0.1 * v, v)),
        ("Sigmoid", lambda v: 1 / (1 + np.exp(-v))),
        ("SiLU", lambda v: v / (1 + np.exp(-v))),
        ("HardSwish in parts", lambda v: v * np.clip(v + 3, 0, 6) / 6),
        ("HardSigmoid", lambda v: np.clip(0.1666 * v + 0.5, 0, 1)),
        ("PRelu", lambda v: np.where(v < 0, v * np.array(FEW)[:, None, None], v)),
        ("Sub from", lambda v: np.array(FEW)[:, None, None] - v),
        ("Mean", lambda v: (v + np.array(FEW)[:, None, None]) / 2),
        ("BatchNormalization, Relu", lambda v: np.maximum(normalised(v), 0)),
    ],
)
def test_tables_by_hand(name: str, formula: Callable[[np.ndarray], np.ndarray]) -> None:
    """The textbook's formula in float64, but where a quantised value lies on the verge between two."""
    for seed in range(1, 7, 2):
        taken, given = labels_for(seed)
        x = all_values(taken.kind)
        exact = formula((x[0].astype(np.float64) - taken.zero) * taken.scale) / given.scale
        sure = np.abs(exact - np.floor(exact) - 0.5) > 1e-3
        limits = np.iinfo(given.kind)
        expected = np.clip(np.rint(exact) + given.zero, limits.min, limits.max)
        found = ours(model_of(FUNCTIONS[name], (taken, given), 17), x)[0]
        assert sure.mean() > 0.9
        np.testing.assert_array_equal(found[sure], expected[sure])


# What they become.


def kinds_of(model: onnx.ModelProto) -> list[str]:
    return [layer.kind for layer in to_network(model, "function").layers]


def test_one_table_or_one_a_channel() -> None:
    labels = labels_for(1)
    for name, tables in (("SiLU", 1), ("PRelu", 3), ("PRelu of one slope", 1), ("Mul", 3), ("BatchNormalization", 3)):
        (layer,) = to_network(model_of(FUNCTIONS[name], labels, 17), "function").layers
        assert isinstance(layer, Lookup)
        assert layer.table.shape == (tables, 256)
    equal = of_constant("Mul", (0.3, 0.3, 0.3))
    (layer,) = to_network(model_of(equal, labels, 17), "function").layers
    assert isinstance(layer, Lookup)
    assert len(layer.table) == 1


def test_what_only_clips_is_no_layer() -> None:
    """A function that only clips makes bounds of the convolution before it; one that changes nothing is nothing."""
    label = Label("uint8", 0.05, 20)
    plain = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["u"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["weights"]),
        helper.make_node("Conv", ["u", "weights"], ["sums"], name="conv"),
        helper.make_node("QuantizeLinear", ["sums", "y_scale", "y_zero"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "y_scale", "y_zero"], ["v"]),
    ]
    quantised = helper.make_node("QuantizeLinear", ["last", "y_scale", "y_zero"], ["y"])
    weights = {"w": np.arange(-4, 5, dtype=np.int8).reshape(3, 3, 1, 1), "w_scale": np.float32(0.02)}
    constants = {**NUMBERS, **weights, "w_zero": np.int8(0)}
    x = all_values("uint8")
    for function, kinds in (
        (Function([("Abs", ["v"], "a"), ("Neg", ["a"], "b"), ("Min", ["v", "b"], "last")]), ["conv", "lookup"]),
        (Function([("Max", ["v", "half"], "last")]), ["conv"]),
        (Function([("Neg", ["v"], "a"), ("Min", ["a", "zero"], "b"), ("Neg", ["b"], "last")]), ["conv"]),
        (Function([("Neg", ["v"], "a"), ("Neg", ["a"], "last")]), ["conv"]),
    ):
        nodes = [*plain, *function.made(), quantised]
        model = model_of(replace(function, constants=constants), (label, label), 17, nodes=nodes)
        assert kinds_of(model) == kinds
        theirs, _ = by_integer_kernels(model, x)
        np.testing.assert_array_equal(ours(model, x), theirs)


POOLED: dict[str, Callable[[Piece, str], str]] = {
    "Sigmoid": lambda piece, tensor: piece.node("Sigmoid", tensor),
    "Tanh": lambda piece, tensor: piece.node("Tanh", tensor),
    "Neg": lambda piece, tensor: piece.node("Neg", tensor),
    "Abs": lambda piece, tensor: piece.node("Abs", tensor),
    "Mul, by channel": lambda piece, tensor: piece.node("Mul", tensor, np.float32([-0.3, 0.4, 0.8]).reshape(3, 1, 1)),
}


@pytest.mark.parametrize("name", POOLED)
def test_pools_of_what_falls(name: str) -> None:
    """ONNX Runtime's Sigmoid and Tanh fall in their last bits, with some scales; then the table comes first."""
    orders = set()
    for seed in range(12):
        random = np.random.default_rng(seed)
        piece = Piece(scale=float(random.uniform(0.01, 0.2)), zero=int(random.integers(256)), seed=seed)
        pooled = piece.node("MaxPool", POOLED[name](piece, piece.real()), kernel_shape=[2, 2], pads=[1, 0, 0, 1])
        network = check(piece.model(piece.quantise(pooled, 0.0043, 20)), piece.frames(12))
        orders.add(tuple(layer.kind for layer in network.layers))
    assert orders <= {("lookup", "maxpool"), ("maxpool", "lookup")}
    assert ("lookup", "maxpool") in orders
    assert len(orders) == 1 + (name in ("Sigmoid", "Tanh"))


def test_what_may_stand_behind_such_a_pool() -> None:
    """Other dimensions, bounds and another pool; no layer."""
    piece = Piece(scale=0.043, zero=100)
    tensor = piece.node("MaxPool", piece.node("Sin", piece.real()), kernel_shape=[2, 2])
    tensor = piece.node("Relu", piece.node("Transpose", tensor, perm=[0, 1, 3, 2]))
    tensor = piece.node("MaxPool", piece.node("Clip", tensor, np.float32(0.1), np.float32(0.9)), kernel_shape=[1, 2])
    network = check(piece.model(piece.quantise(tensor, 0.0043, 20)), piece.frames(12))
    assert [layer.kind for layer in network.layers] == ["lookup", "maxpool", "maxpool"]
    piece = Piece()
    tensor = piece.node("MaxPool", piece.node("Sin", piece.real()), kernel_shape=[2, 2])
    with pytest.raises(ModelError, match="Conv node 'Conv4': can't follow 'MaxPool2', as 'Sin1' before it doesn't"):
        to_network(piece.model(piece.quantise(piece.conv(tensor), 1.3)), "network")


@pytest.mark.parametrize("name", ["Neg", "SiLU", "PRelu"])
def test_functions_of_bounded_maps(name: str) -> None:
    """Behind a Relu the map holds fewer values: only these are tried, and each keeps its own entry."""
    labels = Label("int8", 0.0625, -90), Label("int8", 0.03, 7)
    function = FUNCTIONS[name]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["u"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["weights"]),
        helper.make_node("Conv", ["u", "weights"], ["sums"], name="conv"),
        helper.make_node("Relu", ["sums"], ["bounded"]),
        helper.make_node("QuantizeLinear", ["bounded", "x_scale", "x_zero"], ["some"]),
        helper.make_node("DequantizeLinear", ["some", "x_scale", "x_zero"], ["v"]),
        *function.made(),
        helper.make_node("QuantizeLinear", ["last", "y_scale", "y_zero"], ["y"]),
    ]
    weights = {"w": np.diag([50, -60, 40]).astype(np.int8).reshape(3, 3, 1, 1), "w_zero": np.int8(0)}
    constants = {**function.constants, **weights, "w_scale": np.float32(0.015625)}  # sums are exact
    model = model_of(replace(function, constants=constants), labels, 17, nodes=nodes)
    conv, layer = to_network(model, "function").layers
    assert conv.requantisation.low == -90
    assert isinstance(layer, Lookup)
    x = all_values("int8")
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    assert len(np.unique(theirs)) > 50
    np.testing.assert_array_equal(ours(model, x), theirs)


def test_what_no_factor_gives_is_a_table() -> None:
    """Two quantisers in a row, the second one's scale about twice as large: ties fall as float32 has them."""
    labels = Label("uint8", 0.0728931799530983, 238), Label("int8", 0.1457863599061966, 14)
    model = model_of(one("Identity"), labels, 17)
    assert kinds_of(model) == ["lookup"]
    x = all_values("uint8")
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    np.testing.assert_array_equal(ours(model, x), theirs)


@pytest.mark.parametrize("name", ["LeakyRelu", "Sigmoid", "Abs", "HardSwish in parts"])
@pytest.mark.parametrize("between", ["Resize", "MaxPool", "Flatten"])
def test_functions_around_what_moves(name: str, between: str) -> None:
    labels = Label("int8", 0.037, -20), Label("int8", 0.021, 3)
    function = FUNCTIONS[name]
    attributes = {"Resize": {"mode": "nearest"}, "MaxPool": {"kernel_shape": [2, 2]}, "Flatten": {}}[between]
    inputs = ["last", "", "size"] if between == "Resize" else ["last"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["v"]),
        *function.made(),
        helper.make_node(between, inputs, ["moved"], name="moves", **attributes),
        helper.make_node("QuantizeLinear", ["moved", "y_scale", "y_zero"], ["y"]),
    ]
    constants = {**function.constants, "size": np.float32([1, 1, 2, 2])}
    model = model_of(replace(function, constants=constants), labels, 17, nodes=nodes)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    shape = {"Resize": (1, CHANNELS, 32, 32), "MaxPool": (1, CHANNELS, 15, 15), "Flatten": (1, CHANNELS * 256)}[between]
    del dims[len(shape) :]
    for dim, size in zip(dims, shape, strict=True):
        dim.dim_value = size
    x = all_values(labels[0].kind)
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    np.testing.assert_array_equal(ours(model, x).reshape(theirs.shape), theirs)


@pytest.mark.parametrize("name", ["PRelu", "Mul", "SiLU", "Mul by integers"])
def test_channels_last(name: str) -> None:
    """Constants of a map that lies as (N, H, W, C) go with its last dimension."""
    labels = Label("uint8", 0.037, 90), Label("uint8", 0.021, 31)
    function = FUNCTIONS[name]
    behind = function.made()
    for node in behind:
        node.input[:] = ["w" if name == "v" else name for name in node.input]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["v"]),
        helper.make_node("Transpose", ["v"], ["w"], perm=[0, 2, 3, 1]),
        *behind,
        helper.make_node("Transpose", ["last"], ["moved"], perm=[0, 3, 1, 2]),
        helper.make_node("QuantizeLinear", ["moved", "y_scale", "y_zero"], ["y"]),
    ]
    last = {key: each.reshape(-1) if each.ndim else each for key, each in function.constants.items()}
    model = model_of(replace(function, constants=last), labels, 17, nodes=nodes)
    x = all_values("uint8")
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    np.testing.assert_array_equal(ours(model, x), theirs)


def test_products_with_integers_as_they_are_read() -> None:
    """Of three types alike ONNX Runtime has one kernel, in which ties fall another way; not behind a Resize."""
    label = Label("uint8", 0.03125, 101)
    constants = {"q": np.uint8([7, 104, 203]).reshape(3, 1, 1), "q_scale": np.float32(0.015625), "q_zero": np.uint8(99)}
    found = []
    for moved in (False, True):
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["u"]),
            helper.make_node("Resize", ["u", "", "size"], ["v"], mode="nearest")
            if moved
            else helper.make_node("Identity", ["u"], ["v"]),
            helper.make_node("DequantizeLinear", ["q", "q_scale", "q_zero"], ["c"]),
            helper.make_node("Mul", ["v", "c"], ["last"]),
            helper.make_node("QuantizeLinear", ["last", "y_scale", "y_zero"], ["y"]),
        ]
        function = Function([], {**constants, "size": np.float32([1, 1, 1, 1])})
        model = model_of(function, (label, label), 17, nodes=nodes)
        x = all_values("uint8")
        (theirs,) = integer_session(model)[0].run(None, {"x": x})
        found.append(ours(model, x))
        np.testing.assert_array_equal(found[-1], theirs)
    assert (found[0] != found[1]).any()


# What is refused.


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (one("Log"), r"Log node 'n_last': gives no number \(NaN\) where its map is -0.3; put a Relu or Clip before"),
        (of_constant("Pow", 0.5), r"Pow node 'n_last': gives no number \(NaN\) where its map is -0.3; "),
        (
            Function([("Mul", ["v", "c"], "last")], {"c": np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16)}),
            r"Mul node 'n_last': a constant must have one value for each of 3 channels, not shape \(1, 1, 16, 16\)",
        ),
        (
            Function([("Sigmoid", ["v"], "a"), ("Conv", ["a", "c"], "last")], {"c": np.ones((3, 3, 1, 1), np.float32)}),
            r"Conv node 'n_last': must take a quantised input, but 'n_a' gives floats",
        ),
        (
            Function([("Div", ["v", "w"], "last")]),
            r"Div node 'n_last': must take one feature map and constants, or maps that are requantised before it",
        ),
        (
            Function([("BatchNormalization", ["v", *["c"] * 4], "last")], {"c": -np.ones(3, np.float32)}),
            r"BatchNormalization node 'n_last': must have a positive variance, and finite numbers",
        ),
    ],
)
def test_refused(function: Function, message: str) -> None:
    label = Label("int8", 0.1, -125)
    quantised = ["x_scale", "x_zero"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", *quantised], ["v"]),
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("DequantizeLinear", ["p", *quantised], ["w"]),
        *function.made(),
        helper.make_node("QuantizeLinear", ["last", "y_scale", "y_zero"], ["y"]),
    ]
    model = model_of(function, (label, label), 17, nodes=nodes)
    with pytest.raises(ModelError, match=message) as error:
        to_network(model, "function")
    assert "\n" not in str(error.value)


def test_wide_values_are_refused() -> None:
    wide = Label("int16", 0.05, 0)
    with pytest.raises(
        ModelError, match=r"Tanh node 'n_last': its input must have at most 8 bits for a table of all values, not "
    ):
        to_network(model_of(one("Tanh"), (wide, wide), 21), "function")
    with pytest.raises(ModelError, match=r"'n_last': works on dequantised values; a Conv, Gemm or MatMul must take it"):
        to_network(model_of(FUNCTIONS["BatchNormalization"], (wide, wide), 21), "function")


# The layer and its hardware.

BEFORE = FeatureMap(channels=3, height=4, width=5, type=INT8)


def lookup(table: np.ndarray, **changes: object) -> Lookup:
    parameters = {"input": BEFORE, "output": replace(BEFORE, type=UINT8), "window": Window(kernel=(1, 1)), **changes}
    return Lookup(name="lookup", table=table, **parameters)  # type: ignore[arg-type]


def test_layer() -> None:
    table = np.random.default_rng(0).integers(0, 256, (3, 256))
    x = np.random.default_rng(1).integers(-128, 128, (3, 4, 5)).astype(np.int8)
    found = lookup(table).compute(x)
    assert found.dtype == np.uint8
    for channel, row, column in np.ndindex(x.shape):
        assert found[channel, row, column] == table[channel, int(x[channel, row, column]) + 128]
    np.testing.assert_array_equal(lookup(table[:1]).compute(x), lookup(table[[0, 0, 0]]).compute(x))
    wide = replace(BEFORE, type=IntegerType(bits=16, signed=True))
    for message, make in (
        (
            "a layer that looks values up must have no window",
            lambda: lookup(table, window=Window(kernel=(1, 3), padding=(0, 1, 0, 1))),
        ),
        ("output must have 3 channels", lambda: lookup(table, output=replace(BEFORE, channels=2))),
        ("values must have at most 8 bits", lambda: lookup(table, output=wide)),
        (r"table must have 256 outputs .* not the shape \(2, 256\)", lambda: lookup(table[:2])),
        (r"table must have 256 outputs .* not the shape \(3, 255\)", lambda: lookup(table[:, 1:])),
        ("table must hold values of uint8", lambda: lookup(table - 1)),
    ):
        with pytest.raises(ConfigError, match=f"^lookup: {message}"):
            make()


def test_no_pyramids() -> None:
    network = Network(name="one", layers=(lookup(np.zeros((1, 256), np.int64)),))
    with pytest.raises(PlanError, match=r"^lookup: pyramids can't compute a layer of kind 'lookup'"):
        planner.make(network, boards.load("zedboard"), template="pyramid")


def test_channel_tables_are_what_they_must_be() -> None:
    beat = BeatFormat(channels=6, height=2, width=2, lanes=2, bits=4, signed=True)
    both = JoinConfig(inputs=(beat,), in_turn=True)
    good = ChannelTableConfig(window=both, tables=Weights(range(96)), bits=8, signed=False)
    assert (good.depth, good.in_block_ram, good.latency) == (48, True, 2)
    assert replace(good, tables_in="lut").latency == 1
    # Lane 1 holds channels 1, 3 and 5; the values from 0 upward come first, then those from -8.
    assert good.words(1)[:16] == [*range(24, 32), *range(16, 24)]
    assert good.words(1)[32:] == [*range(88, 96), *range(80, 88)]
    with pytest.raises(ConfigError, match=r"^window must accept one input, not "):
        replace(good, window=JoinConfig(inputs=(beat, beat)))
    with pytest.raises(ConfigError, match=r"^tables must have 96 entries, 16 for each of 6 channels, not"):
        replace(good, tables=Weights(range(95)))
    with pytest.raises(ConfigError, match=r"^tables_in must be 'lut', 'block' or None, not 'dsp'$"):
        replace(good, tables_in="dsp")


def float_network(act: str, side: int = 6, channels: int = 6) -> onnx.ModelProto:
    """In the manner of a MobileNetV3 block: activations, squeeze and excitation, a difference instead of a sum."""
    draw = np.random.default_rng(5)
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def constant(values: object) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values, np.float32), f"c{len(constants)}"))
        return constants[-1].name

    def add(operator: str, *inputs: str, **attributes: object) -> str:
        nodes.append(
            helper.make_node(operator, inputs, [f"t{len(nodes)}"], name=f"{operator}{len(nodes)}", **attributes)
        )
        return nodes[-1].output[0]

    def conv(x: str, before: int, after: int, kernel: int, groups: int = 1) -> str:
        spread = 1 / np.sqrt(before / groups * kernel**2)
        weights = constant(draw.normal(0, spread, (after, before // groups, kernel, kernel)))
        return add("Conv", x, weights, constant(draw.normal(0, 0.1, after)), pads=[kernel // 2] * 4, group=groups)

    def activated(x: str) -> str:
        if act == "SiLU":
            return add("Mul", x, add("Sigmoid", x))
        if act == "PRelu":
            return add("PRelu", x, constant(draw.uniform(-0.2, 0.4, (channels, 1, 1))))
        return add(act, x)

    first = activated(conv("image", 3, channels, 3))
    here = activated(conv(first, channels, channels, 3, channels))
    pixel = add("Relu", conv(add("GlobalAveragePool", here), channels, 4, 1))
    here = add("Mul", here, add("HardSigmoid", conv(pixel, 4, channels, 1)))
    here = add("Sub", conv(here, channels, channels, 1), first)
    here = add("MaxPool", here, kernel_shape=[2, 2], strides=[2, 2])
    here = add("Flatten", activated(conv(here, channels, channels, 1)))
    here = add("MatMul", here, constant(draw.normal(0, 0.2, (channels * (side // 2) ** 2, 5))))
    return as_model(
        nodes, {"image": (TensorProto.FLOAT, (None, 3, side, side))}, {here: (TensorProto.FLOAT, (None, 5))}, constants
    )


@pytest.mark.parametrize(
    ("act", "simulator"),
    [
        *(
            pytest.param(act, simulator, marks=pytest.mark.long)
            for act, simulator in (("PRelu", "icarus"), ("HardSwish", "verilator"), ("PRelu", "amaranth"))
        ),
        pytest.param("SiLU", "icarus", marks=pytest.mark.long),
        *(pytest.param(act, "icarus", marks=pytest.mark.long) for act in ("LeakyRelu", "Softplus")),
        pytest.param("PRelu", "verilator", marks=pytest.mark.long),
    ],
)
def test_networks(act: str, simulator: str, tmp_path: Path) -> None:
    """A float network that ONNX Runtime quantises: its values, and the hardware in the predicted cycles."""
    frames = np.random.default_rng(2).normal(0, 1, (6, 3, 6, 6)).astype(np.float32)
    model = quantise(float_network(act), frames, "block")
    path = tmp_path / "block.onnx"
    onnx.save(model, path)
    design = hwgen.load(path)
    theirs, floats = by_integer_kernels(model, frames)
    assert not floats
    np.testing.assert_array_equal(design.golden(frames), theirs)
    if simulator == "icarus" and shutil.which("iverilog") is None:
        simulator = "amaranth"
    result = design.plan("zedboard", dsp=60, multipliers="dsp").simulate(frames[:3], simulator=simulator)
    assert result.mismatches == 0
    assert result.latency == result.predicted_latency
    assert result.interval == result.predicted_interval
