"""Constants that a model computes, and arithmetic with constants around convolutions, against ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from pieces import Piece, check
from referees import by_integer_kernels
from refusals import refusals_in

import hwgen
from hwgen.network import golden
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv

RARELY = 10_000


class Net:
    """A convolution of uint8 maps of 4 channels, between DequantizeLinear and QuantizeLinear."""

    def __init__(self, seed: int = 0, batch: int | str = 4) -> None:
        self.rng, self.batch = np.random.default_rng([seed, 77]), batch
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.tensor = self.node("DequantizeLinear", "x", self.constant(np.float32(0.05)), self.constant(np.uint8(7)))

    def constant(self, values: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def apply(self, operator: str, *values: Any, **attributes: Any) -> Net:
        constants = [self.constant(np.asarray(each, np.float32)) for each in values]
        self.tensor = self.node(operator, self.tensor, *constants, **attributes)
        return self

    def normalise(self, channels: int = 8) -> Net:
        draw = self.rng
        numbers = [draw.normal(0.05, 0.1, channels), *draw.normal(0, 1, (2, channels)), draw.uniform(0.5, 2, channels)]
        return self.apply("BatchNormalization", *numbers)

    def conv(self, *, groups: int = 1, pads: int = 0, bias: bool = True, weights: str = "") -> Net:
        if not weights:
            integers = self.constant(self.rng.integers(-127, 128, (8, 4 // groups, 3, 3)), np.int8)
            label = self.constant(self.rng.uniform(0.005, 0.02, 8), np.float32), self.constant(np.zeros(8), np.int8)
            weights = self.node("DequantizeLinear", integers, *label, axis=0)
        more = [self.constant(self.rng.normal(0, 1, 8), np.float32)] if bias else []
        self.tensor = self.node("Conv", self.tensor, weights, *more, group=groups, pads=[pads] * 4)
        return self

    def finish(self, scale: float = 0.04, rank: int = 4) -> onnx.ModelProto:
        label = self.constant(np.float32(scale)), self.constant(np.uint8(9))
        self.nodes.append(helper.make_node("QuantizeLinear", [self.tensor, *label], ["y"]))
        return as_model(
            self.nodes,
            {"x": (TensorProto.UINT8, [self.batch, 4, 14, 14])},
            {"y": (TensorProto.UINT8, [*"abcd"][:rank])},
            self.constants,
            ir_version=8,
        )


def differing(model: onnx.ModelProto) -> tuple[int, int, set[str]]:
    """Values, how many differ by 1 from ONNX Runtime's (none may by more), and what that leaves in float32."""
    x = np.random.default_rng(6).integers(0, 256, (4, 4, 14, 14)).astype(np.uint8)
    theirs, floats = by_integer_kernels(model, x)
    ours = golden.run(to_network(model, "network"), x).reshape(theirs.shape)
    difference = np.abs(ours.astype(np.int64) - theirs)
    assert difference.max() <= 1
    assert len(np.unique(theirs)) > 50
    return theirs.size, int(np.count_nonzero(difference)), floats


# Constants.


def _transposed(net: Net) -> str:
    integers = net.constant(net.rng.integers(-127, 128, (3, 3, 4, 8)), np.int8)
    label = net.constant(net.rng.uniform(0.005, 0.02, 8), np.float32), net.constant(np.zeros(8), np.int8)
    return net.node("Transpose", net.node("DequantizeLinear", integers, *label, axis=3), perm=[3, 2, 0, 1])


def _reshaped(net: Net) -> str:
    """By a shape that is computed, behind Identity and Dropout."""
    integers = net.constant(net.rng.integers(0, 256, (8, 36)), np.uint8)
    label = net.constant(net.rng.uniform(0.005, 0.02, 8), np.float32), net.constant(np.full(8, 128), np.uint8)
    real = net.node("Dropout", net.node("Identity", net.node("DequantizeLinear", integers, *label, axis=0)))
    three = net.node("Cast", net.constant([3.0, 3.0], np.float32), to=TensorProto.INT64)
    four = net.node("Mul", net.constant([2], np.int64), net.constant([2], np.int64))
    return net.node("Reshape", real, net.node("Concat", net.constant([-1], np.int64), four, three, axis=0))


def _sliced(net: Net) -> str:
    """Half of the channels, in another order."""
    integers = net.constant(net.rng.integers(-127, 128, (16, 4, 3, 3)), np.int8)
    label = net.constant(net.rng.uniform(0.005, 0.02, 16), np.float32), net.constant(np.zeros(16), np.int8)
    real = net.node("DequantizeLinear", integers, *label, axis=-4)
    order = net.node("Range", *(net.constant(each, np.int64) for each in (15, -1, -2)))
    return net.node("Gather", real, order, axis=0)


def _quantised(net: Net) -> str:
    """Float weights, transposed, scaled and filled up, then quantised."""
    half = net.node("Transpose", net.constant(net.rng.normal(0, 1, (3, 3, 4, 8)), np.float32), perm=[3, 2, 0, 1])
    shape = net.constant([8, 4, 3, 3], np.int64)
    filled = net.node("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([0.1], np.float32)))
    weights = net.node("Add", half, filled)
    label = net.constant(np.float32(0.02)), net.constant(np.int8(0))
    return net.node("DequantizeLinear", net.node("QuantizeLinear", weights, *label), *label)


@pytest.mark.parametrize("weights", [_transposed, _reshaped, _sliced, _quantised])
def test_weights(weights: Callable[[Net], str]) -> None:
    net = Net()
    model = net.conv(weights=weights(net), bias=False).finish(0.3)
    size, other, floats = differing(model)
    assert other * RARELY <= (size if floats else 0)
    (layer,) = to_network(model, "network").layers
    assert isinstance(layer, Conv)
    assert layer.fraction == 0
    assert layer.weight_bits <= 8


@pytest.mark.parametrize("batch", ["n", 4])
def test_shapes(batch: int | str) -> None:
    """As PyTorch flattens: by Shape, Gather, Unsqueeze and Concat, or by sizes that are multiplied."""
    net = Net(batch=batch).conv(bias=False)
    net.tensor = net.node(
        "QuantizeLinear", net.tensor, *(label := (net.constant(np.float32(0.3)), net.constant(np.uint8(9))))
    )
    net.tensor = net.node("DequantizeLinear", net.tensor, *label)
    sizes = net.node("Shape", net.tensor)
    first = net.node("Gather", sizes, net.constant(0, np.int64))
    others = net.node("Slice", sizes, *(net.constant([each], np.int64) for each in (1, 4)))
    count = net.node("ReduceProd", others, keepdims=1)
    row = net.node("Unsqueeze", first, net.constant([0], np.int64))
    net.tensor = net.node("Reshape", net.tensor, net.node("Concat", row, count, axis=0))
    integers = net.constant(net.rng.integers(-127, 128, (8 * 144, 70)), np.int8)
    weights = net.node("DequantizeLinear", integers, net.constant(np.float32(0.01)), net.constant(np.int8(0)))
    net.tensor = net.node("MatMul", net.tensor, weights)
    size, other, floats = differing(net.finish(2.0, 2))
    assert not floats
    assert not other
    assert size == 280


def huge(operator: str) -> onnx.ModelProto:
    """A model whose constants would take all memory, or time without end."""
    net = Net().conv()
    many = net.constant([1 << 20, 1 << 20], np.int64)
    if operator == "ConstantOfShape":
        made = net.node("ConstantOfShape", many)
    elif operator == "Expand":
        made = net.node("Expand", net.constant(1, np.float32), many)
    elif operator == "Concat":
        made = net.constant(np.ones(1 << 12), np.float32)
        for _ in range(40):
            made = net.node("Concat", made, made, axis=0)
    elif operator == "MatMul":
        row = net.node("ConstantOfShape", net.constant([1 << 12, 1 << 12], np.int64))
        made = net.node("MatMul", row, row)
    elif operator.startswith("MatMulInteger"):
        times = 5 if operator.endswith("often") else 1
        side = 1 << (13 if times == 1 else 10)
        zeros = helper.make_tensor("zeros", TensorProto.INT8, [1], [0])
        square = net.node("ConstantOfShape", net.constant([side, side], np.int64), value=zeros)
        products = [net.node("MatMulInteger", square, square) for _ in range(times)]
        made = net.node("Cast", net.node("Concat", *products, axis=0), to=TensorProto.FLOAT)
    elif operator in ("MaxPool", "LRN"):
        side = 1 << (11 if operator == "MaxPool" else 4)
        image = net.node("ConstantOfShape", net.constant([1, 1, side, side], np.int64))
        attributes = {"kernel_shape": [side // 2, side // 2]} if operator == "MaxPool" else {"size": (1 << 31) - 1}
        made = net.node(operator, image, **attributes)
    elif operator == "Conv":
        image, kernel = (net.node("ConstantOfShape", net.constant([1, 1, 1, n], np.int64)) for n in (33_000, 20_000))
        made = net.node("Conv", image, kernel)
    else:
        none = net.constant([0], np.int64)
        zero = net.node(operator, none, none)
        made = net.node("Cast", zero, to=TensorProto.FLOAT)
    net.tensor = net.node("Add", net.tensor, net.node("ReduceMax", made, keepdims=0))
    return net.finish()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        *refusals_in("fold_hostile_constants.txt"),
        pytest.param("Concat", r"Concat node '.*': makes [\d,]* bytes of constants of the", marks=pytest.mark.long),
    ],
)
def test_hostile_constants(operator: str, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(hwgen.HwgenError, match=message):
        to_network(huge(operator), "network")
    assert time.process_time() - begun < 20


# Arithmetic behind a convolution, and in front.

GAINS = np.linspace(-0.55, 0.83, 8).reshape(8, 1, 1)
BEHIND: dict[str, Callable[[Net], Net]] = {
    "BatchNormalization": lambda net: net.conv().normalise(),
    "without bias": lambda net: net.conv(bias=False).normalise(),
    "Mul": lambda net: net.conv().apply("Mul", GAINS),
    "Div, Add": lambda net: net.conv().apply("Div", GAINS * 9).apply("Add", GAINS * 2),
    "Add, Mul, Sub": lambda net: net.conv().apply("Add", GAINS).apply("Mul", 0.11).apply("Sub", GAINS),
    "Relu": lambda net: net.conv().normalise().apply("Relu"),
    "behind Relu": lambda net: net.conv(pads=1).apply("Relu").apply("Mul", -0.3).apply("Add", 5.0),
    "pooled": lambda net: net.conv().apply("Mul", np.abs(GAINS)).apply("MaxPool", kernel_shape=[2, 2]),
    "in front": lambda net: net.apply("Mul", 0.1).conv(pads=1),
    "Div in front": lambda net: net.apply("Div", -7.0).apply("Add", 0.4).conv(),
    "channels in front": lambda net: net.normalise(4).conv(groups=4),
    "both": lambda net: net.apply("Sub", 1.5).apply("Mul", 0.6).conv(groups=2).normalise(),
}


@pytest.mark.parametrize("name", BEHIND)
def test_arithmetic(name: str) -> None:
    """1 value in 10,000 of several models may differ by 1: ONNX Runtime computes them in float32."""
    values = other = 0
    for seed in range(4):
        size, differ, floats = differing(BEHIND[name](Net(seed)).finish())
        assert floats
        values, other = values + size, other + differ
    assert other * RARELY <= max(values, RARELY)


def test_a_factor_of_zero() -> None:
    """Leaves what is added."""
    model = Net().conv().apply("Mul", np.arange(8).reshape(8, 1, 1) / 9).apply("Add", 1.0).finish()
    x = np.random.default_rng(6).integers(0, 256, (4, 4, 14, 14)).astype(np.uint8)
    outputs = golden.run(to_network(model, "network"), x)
    assert (outputs[:, 0] == round(1 / 0.04) + 9).all()
    theirs, _ = by_integer_kernels(model, x)
    assert np.abs(outputs.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Net().normalise(4).conv(), "Conv.*different factors, which can't be folded into integer weights"),
        (Net().apply("Add", 1.0).apply("Mul", 2.0).conv(pads=1), "Conv.*is not added to its padding of zeros"),
        (Net().apply("Mul", -1.0).apply("MaxPool", kernel_shape=[2, 2]).conv(), "Conv.*can't follow 'MaxPool2'"),
        (Net().conv().apply("Div", 0.0), "Div.*must hold finite numbers, and none of 0 to divide by"),
        (Net().conv().apply("Mul", np.arange(12.0)), "Mul.*one value for each of 8 channels"),
        (Net().conv().apply("BatchNormalization", *np.ones((3, 8)), -np.ones(8)), "must have a positive variance"),
    ],
)  # fmt: skip
def test_refusals(net: Net, message: str) -> None:
    model = net.finish()
    with pytest.raises(hwgen.HwgenError, match=message):
        to_network(model, "network")


def by_channel(piece: Piece) -> str:
    return piece.floats(4, 1, 1, deviation=30)


def shuffled(piece: Piece, tensor: str) -> str:
    """Channels in another order, as a shuffle makes it."""
    parted = piece.node("Transpose", piece.node("Reshape", tensor, [0, 2, 2, 5, 6]), perm=[0, 2, 1, 3, 4])
    return piece.node("Reshape", parted, [0, 4, 5, 6])


def behind_a_shuffle(piece: Piece, tensor: str) -> str:
    """Of a map that is not the input's, so that a layer has to change the order."""
    made = piece.node("Conv", tensor, piece.weights((4, 4, 1, 1)))
    return shuffled(piece, piece.node("Sub", piece.requantise(made, 2.13, 100), by_channel(piece)))


MOVED: dict[str, tuple[tuple[int, ...], list[str], Callable[[Piece, str], str]]] = {
    "last, then first": (
        (5, 6, 4),
        ["conv"],
        lambda piece, tensor: piece.node(
            "Transpose", piece.node("Sub", tensor, piece.floats(4, deviation=30)), perm=[0, 3, 1, 2]
        ),
    ),
    "shuffled": (
        (4, 5, 6),
        ["conv"],
        lambda piece, tensor: shuffled(piece, piece.node("Sub", tensor, by_channel(piece))),
    ),
    "shuffled by a layer": ((4, 5, 6), ["conv", "select", "conv"], behind_a_shuffle),
    "in another order": (
        (4, 5, 6),
        ["select", "conv"],
        lambda piece, tensor: piece.node("Gather", piece.node("Add", tensor, by_channel(piece)), [3, 1, 0, 2], axis=1),
    ),
    "some, and added again": (
        (6, 5, 6),
        ["select", "conv"],
        lambda piece, tensor: piece.node(
            "Sub",
            piece.node("Slice", piece.node("Sub", tensor, piece.floats(6, 1, 1, deviation=30)), [1], [5], [1]),
            by_channel(piece),
        ),
    ),
    "behind a Pad": (
        (4, 5, 6),
        ["pad", "conv"],
        lambda piece, tensor: piece.node("Sub", piece.node("Pad", tensor, [0, 0, 1, 1, 0, 0, 1, 1]), by_channel(piece)),
    ),
    "scaled behind a Pad": (
        (4, 5, 6),
        ["conv"],
        lambda piece, tensor: piece.node("Mul", piece.node("Pad", tensor, [0, 0, 1, 1, 0, 0, 1, 1]), np.float32(1.317)),
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_constants_go_with_their_channels(name: str) -> None:
    """Arithmetic in front of a convolution, of channels that are moved or picked since."""
    shape, kinds, before = MOVED[name]
    piece = Piece(shape)
    sums = piece.conv(before(piece, piece.real()), channels=4)
    network = check(piece.model(piece.quantise(sums, 11.3191, 100)), piece.frames(20))
    assert [layer.kind for layer in network.layers] == kinds


def test_each_channel_s_factor_goes_with_it() -> None:
    """Of groups of one channel."""
    piece = Piece((4, 5, 6))
    picked = piece.node("Gather", piece.node("Mul", piece.real(), by_channel(piece)), [3, 1, 0, 2], axis=1)
    sums = piece.node("Conv", picked, piece.weights((4, 1, 3, 3)), group=4)
    check(piece.model(piece.quantise(sums, 113.191, 100)), piece.frames(20))


def test_constants_go_with_what_is_flattened() -> None:
    piece = Piece((4, 5, 6))
    flat = piece.node("Flatten", piece.node("Sub", piece.real(), by_channel(piece)))
    product = piece.node("Gemm", flat, piece.weights((120, 5)))
    check(piece.model(piece.quantise(product, 11.3191, 100)), piece.frames(40))
