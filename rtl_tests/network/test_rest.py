"""What is left of a model for ONNX Runtime: it gives what it gives of the whole model, wherever that is cut.

The session sees the rest alone. What stands in front of it must not decide which of its kernels are of integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from dialects import Dialect, by_qonnx, own_type
from onnx import TensorProto, helper
from pieces import Piece
from referees import by_onnxruntime, integer_session

from hwgen.errors import ModelError
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.maps import INT32
from hwgen.network.onnx.importer import checked
from hwgen.network.onnx.part import to_part
from hwgen.network.onnx.walk import ImportWalk
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs


def outputs(network: Network, x: np.ndarray) -> dict[str, np.ndarray]:
    """The whole model's, by the part that is built and what is left."""
    prepared = prepare_inputs(network, x)
    values = host.all_outputs(network, golden.outputs(network, prepared), [x], prepared)
    return dict(zip(host.names(network), values, strict=True))


def check(model: onnx.ModelProto, x: np.ndarray, until: str = "auto") -> Network:
    """Values and types of the whole model, all equal, but for floats that ONNX Runtime sums term by term."""
    session, _ = integer_session(model)
    theirs = dict(zip([value.name for value in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    network = to_part(model, "network", "network", ModelOptions(until=until))
    ours = outputs(network, x)
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        expected = np.asarray(values)
        assert ours[name].dtype == expected.dtype
        if any(result.type == INT32 for result in network.output_maps):
            reach = np.abs(expected).max(initial=1)
            np.testing.assert_allclose(ours[name], expected, rtol=1e-5, atol=1e-5 * reach, err_msg=f"{name} {until}")
        else:
            np.testing.assert_array_equal(ours[name], expected, err_msg=f"{name} until {until}")
    return network


def begun() -> tuple[Piece, str]:
    """A convolution's output, dequantised."""
    piece = Piece()
    return piece, piece.requantise(piece.conv(piece.real()), 9.13, 100)


def test_a_node_that_is_needed_twice() -> None:
    """Behind a pool that is built, and by itself."""
    piece, real = begun()
    pooled = piece.node("LRN", piece.node("MaxPool", real, kernel_shape=[2, 2]), size=3)
    check(piece.model(pooled, piece.node("LRN", real, size=3)), piece.frames(5))


MOVES: dict[str, tuple[int, Callable[[Piece, str], str]]] = {
    "Gather": (4, lambda piece, tensor: piece.node("Gather", tensor, [2, 1, 0, 3], axis=1)),
    "Resize": (4, lambda piece, tensor: piece.node("Resize", tensor, "", np.float32([1, 1, 2, 2]), mode="nearest")),
    "Pad": (4, lambda piece, tensor: piece.node("Pad", tensor, [0, 0, 1, 1, 0, 0, 1, 1])),
    "Pad of what is picked": (
        4,
        lambda piece, tensor: piece.node(
            "Pad", piece.node("Gather", tensor, [2, 1, 0, 3], axis=1), [0, 0, 1, 1, 0, 0, 1, 1]
        ),
    ),
    "Slice": (3, lambda piece, tensor: piece.node("Slice", tensor, [0], [3], [1])),
    "Split": (3, lambda piece, tensor: piece.node("Split", tensor, [3, 1], axis=1, outputs=2)),
    "DepthToSpace": (1, lambda piece, tensor: piece.node("DepthToSpace", tensor, blocksize=2)),
    "Transpose": (4, lambda piece, tensor: piece.node("Transpose", tensor, perm=[0, 1, 3, 2])),
}


@pytest.mark.parametrize("name", MOVES)
def test_floats_behind_what_is_built(name: str) -> None:
    """Behind some of these ONNX Runtime computes a convolution in floats, with its bias as it is, behind others not."""
    channels, move = MOVES[name]
    piece, real = begun()
    moved = move(piece, real)
    sums = piece.node("Conv", moved, piece.weights((4, channels, 2, 2)), piece.floats(4))
    model = piece.model(piece.node("Trilu", piece.requantise(sums, 1.13, 100)))
    assert check(model, piece.frames(40), moved).host is not None


def test_quantised_twice() -> None:
    """By scales that differ, with nothing in between."""
    piece, real = begun()
    again = piece.requantise(piece.requantise(piece.node("LRN", real, size=3), 7.7, 90), 3.1, 60)
    check(piece.model(again), piece.frames(20))


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("until", ["auto", "QuantizeLinear4"])
def test_products_of_quantised_weights(operator: str, axis: int | None, until: str) -> None:
    """ONNX Runtime has several kernels for them, and chooses by what stands in front and behind."""
    piece = Piece((4, 3, 3), np.float32, scale=0.3)
    weights = piece.weights((4, 4, 3, 3), most=127, scale=0.013)
    sums = piece.node("Conv", piece.real(), weights, piece.floats(4), pads=[1, 1, 1, 1])
    flat = piece.node("Flatten", piece.requantise(sums, 0.9, 100))
    more = [piece.floats(5)] if operator == "Gemm" else []
    product = piece.node(operator, flat, piece.weights((36, 5), axis=axis, most=127, scale=0.0131), *more)
    check(piece.model(piece.node("CumSum", product, np.array(1))), piece.frames(9), until)


def test_qonnx() -> None:
    """Its referee computes floats: so does ONNX Runtime what is left."""
    net = Dialect("qonnx", 1)
    net.enter(8, signed=True).conv(6, bits=2, pads=1).act(8)
    net.apply("CumSum", net.constant(2, np.int64)).act(8, reach=9.0)
    net.conv(5, bits=2, bias="float", pads=1).act(8, reach=9.0)
    model, x = net.fixed(8), net.frames(8)
    theirs = by_qonnx(model, x)
    (ours,) = outputs(to_part(model, "network", "network", ModelOptions(until="auto")), x).values()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_narrow_integers() -> None:
    """Of ONNX's own types: they come in bytes."""
    if onnx.defs.onnx_opset_version() < 21:
        pytest.skip("this onnx has no INT4")
    model = own_type(TensorProto.INT4, 21)
    model.graph.node.append(helper.make_node("LRN", ["y_real"], ["last"], size=3))
    model.graph.output[0].name = "last"
    x = np.random.default_rng(5).normal(0, 2, (5, 3, 8, 8)).astype(np.float32)
    ours = outputs(to_part(model, "network", "network", ModelOptions(until="auto")), x)
    np.testing.assert_array_equal(ours["last"], by_onnxruntime(model, x))


# Any part of random models.


class Layers(Piece):
    """Layers behind one another and beside one another; maps are integers with their label, and channels."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        kind = np.float32 if random.random() < 0.5 else np.dtype(random.choice(["uint8", "int8"]))
        super().__init__((3, 6, 6), kind, scale=float(random.uniform(0.3, 1.5)), zero=20, seed=seed)
        self.integers = np.dtype(random.choice(["uint8", "int8"]))
        self.maps: list[tuple[str, tuple[float, int, np.dtype], int]] = []
        if kind == np.float32:
            self.give("x", 3)
        else:
            self.maps.append(("x", (*self.label, np.dtype(kind)), 3))

    def give(self, tensor: str, channels: int, scale: float = 1.0) -> None:
        label = float(self.random.uniform(0.5, 1.5)) * scale, int(self.random.integers(100)), self.integers
        self.maps.append((self.quantise(tensor, *label), label, channels))

    def take(self) -> tuple[str, int]:
        place = -1 if self.random.random() < 0.8 else int(self.random.integers(len(self.maps)))
        integers, label, channels = self.maps[place]
        tensor = self.dequantise(integers, *label)
        if self.random.random() < 0.3:
            tensor = self.requantise(tensor, float(self.random.uniform(0.5, 2)), 10, self.integers)
        return tensor, channels

    def layer(self) -> None:
        """One that can be built, or not."""
        tensor, channels = self.take()
        kind = str(self.random.choice([*SIMPLE, "Conv", "float Conv", "Add", "Mish", "Gather"]))
        if kind in SIMPLE:
            operator, constants, attributes, scale = SIMPLE[kind]
            self.give(self.node(operator, tensor, *constants, **attributes), channels, scale)
        elif kind == "Conv":
            bias = [self.floats(4, deviation=9)] if self.random.random() < 0.5 else []
            weights = self.weights((4, channels, 3, 3))
            self.give(self.node("Conv", tensor, weights, *bias, pads=[1, 1, 1, 1]), 4, 8.0)
        elif kind == "float Conv":
            weights = self.floats(4, channels, 3, 3, deviation=0.3)
            self.give(self.node("Conv", tensor, weights, self.floats(4), pads=[1, 1, 1, 1]), 4)
        elif kind == "Add":
            other, count = self.take()
            if count == channels:
                self.give(self.node("Add", tensor, other), channels)
        elif kind == "Mish":
            self.give(self.node("Mul", self.node("Exp", self.node("Mul", tensor, np.float32(-0.01))), tensor), channels)
        else:
            self.give(self.node("Gather", tensor, self.random.permutation(channels), axis=1), channels)

    def end(self) -> list[str]:
        """The model's outputs."""
        tensor, channels = self.take()
        flat, kind = self.node("Flatten", tensor), str(self.random.choice(["map", "Softmax", "Gemm", "MatMul", "two"]))
        if kind == "map":
            return [tensor]
        if kind == "Softmax":
            return [self.node("Softmax", flat, axis=1)]
        if kind == "two":
            return [self.node("LRN", tensor, size=3), self.maps[len(self.maps) // 2][0]]
        axis = None if self.random.random() < 0.5 else 1
        weights, bias = self.weights((36 * channels, 5), axis=axis), [self.floats(5)] if kind == "Gemm" else []
        return [self.node("CumSum", self.node(kind, flat, weights, *bias), np.array(1))]


SIMPLE: dict[str, tuple[str, list, dict, float]] = {
    "Relu": ("Relu", [], {}, 1.0),
    "Mul": ("Mul", [np.float32(0.7)], {}, 1.0),
    "MaxPool": ("MaxPool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 1.0),
    "Sigmoid": ("Sigmoid", [], {}, 0.01),
    "CumSum": ("CumSum", [np.array(2)], {}, 3.0),
    "LRN": ("LRN", [], {"size": 3}, 1.0),
    "Trilu": ("Trilu", [], {}, 1.0),
    "Softmax": ("Softmax", [], {"axis": 1}, 0.01),
}


def check_random(seed: int) -> int:
    """Parts of a model that are built and equal."""
    layers = Layers(seed)
    for _ in range(int(layers.random.integers(2, 6))):
        layers.layer()
    model, count = layers.model(*dict.fromkeys(layers.end())), 0
    try:
        with checked(model, "network") as given:
            found = [name for name, value in ImportWalk(given, "network").maps().items() if value.source is not None]
    except ModelError:
        return 0
    for until in ["auto", *found]:
        try:
            to_part(model, "network", "network", ModelOptions(until=until))
        except ModelError:
            continue
        check(model, layers.frames(5), until)
        count += 1
    return count


def test_parts_of_random_models() -> None:
    assert sum(map(check_random, range(8))) > 20


@pytest.mark.long
@pytest.mark.parametrize("block", range(2))
def test_parts_of_many_models(block: int) -> None:
    assert sum(map(check_random, range(100 + 24 * block, 124 + 24 * block))) > 40
