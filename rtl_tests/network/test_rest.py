"""What ONNX Runtime runs of a model, in front of the hardware and behind it: it gives what the whole model gives.

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

import hwgen
from hwgen.errors import ModelError
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.maps import INT32
from hwgen.network.onnx.importer import checked, to_network, to_part
from hwgen.network.onnx.walk import ImportWalk
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs


def outputs(network: Network, x: np.ndarray) -> dict[str, np.ndarray]:
    """The whole model's, by the part that is built and what is left."""
    prepared = prepare_inputs(network, x)
    values = host.all_outputs(network, golden.outputs(network, prepared), [x], prepared)
    return dict(zip(host.names(network), values, strict=True))


def check(model: onnx.ModelProto, x: np.ndarray, until: str | None = "auto") -> Network:
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


@pytest.mark.parametrize("until", [None, "end"])
def test_floats_of_two_convolutions(until: str | None) -> None:
    """The host makes them of the accumulators, adds both and resizes the sum, as a segmentation network ends."""
    piece, real = begun()
    first, second = (piece.node("Conv", real, piece.weights((4, 4, 2, 2)), piece.floats(4)) for _ in range(2))
    total = piece.node("Resize", piece.node("Add", first, second), "", np.float32([1, 1, 2, 2]), mode="linear")
    network = check(piece.model(total), piece.frames(20), until=until)
    assert [result.type for result in network.output_maps] == [INT32] * 2
    assert network.host is not None
    assert network.host.remainder is not None
    assert network.host.remainder.operators == ("Add", "Resize")


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


def _normalised(piece: Piece) -> str:
    """Mean and deviation by channel, as image models subtract and divide them."""
    centred = piece.node("Sub", "x", np.float32([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
    return piece.node("Div", centred, np.float32([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))


def _doubled(piece: Piece) -> str:
    return piece.node("Sub", piece.node("Mul", "x", np.float32(2)), np.float32(1))


def _space_to_depth(piece: Piece) -> str:
    return piece.node("SpaceToDepth", "x", blocksize=2)


def _focus(piece: Piece) -> str:
    """Four slices of every second pixel, one behind the other, as YOLOv5's first layer takes them."""
    parts = [
        piece.node("Slice", "x", np.array([row, column]), np.array([99, 99]), np.array([2, 3]), np.array([2, 2]))
        for column in (0, 1)
        for row in (0, 1)
    ]
    return piece.node("Concat", *parts, axis=1)


def _resized(piece: Piece) -> str:
    turned = piece.node("Transpose", piece.node("Mul", "x", np.float32(3)), perm=[0, 1, 3, 2])
    return piece.node("Clip", turned, np.float32(-2), np.float32(4))


HEADS = [_normalised, _doubled, _space_to_depth, _focus, _resized]


def _model(head, kind=np.float32) -> tuple[onnx.ModelProto, Piece]:
    piece = Piece(kind=np.float32, scale=0.05)
    tensor = head(piece)
    channels = 12 if head in (_space_to_depth, _focus) else 3
    real = piece.requantise(tensor, 0.0317, 120)
    sums = piece.conv(real, 4, channels, pads=[1] * 4)
    return piece.model(piece.dequantise(piece.quantise(sums, 0.21, 100), 0.21, 100)), piece


@pytest.mark.parametrize("head", HEADS)
def test_equal(head, tmp_path) -> None:
    model, _ = _model(head)
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(4).normal(size=(40, 3, 6, 6)).astype(np.float32)
    found = hwgen.load(tmp_path / "model.onnx")
    theirs = integer_session(model)[0].run(None, {"x": x})[0]
    np.testing.assert_array_equal(found.golden(x), theirs)
    parts = np.concatenate(list(found.golden_parts(x)))
    np.testing.assert_array_equal(parts, theirs)


@pytest.mark.parametrize("batch", ["n", 2])
def test_a_mean_of_all_frames(batch: int | str) -> None:
    """The mean of a frame's own pixels is a head; the mean of all frames would mix them."""
    for axes in ([0, 2, 3], [2, 3]):
        piece = Piece(kind=np.float32, scale=0.05, batch=batch)
        real = piece.requantise(piece.node("Sub", "x", piece.node("ReduceMean", "x", np.array(axes))), 0.03, 120)
        model = piece.model(piece.quantise(piece.conv(real), 0.21, 100))
        if 0 in axes:
            with pytest.raises(
                hwgen.ModelError, match=r"^model: ReduceMean node '\w+': works along axis 0, which holds the "
            ):
                to_network(model, "model")
        else:
            assert to_network(model, "model").host.head.operators == ("ReduceMean", "Sub")


def test_frames_that_leave_the_head_along_another_axis() -> None:
    """Three frames of three channels, so that nothing but the Transpose tells them apart."""
    piece = Piece(kind=np.float32, scale=0.05, batch=3)
    turned = piece.node("Transpose", piece.node("Mul", "x", np.float32(2)), perm=[1, 0, 2, 3])
    model = piece.model(piece.quantise(piece.conv(piece.requantise(turned, 0.03, 120)), 0.21, 100))
    with pytest.raises(hwgen.ModelError, match="works on the float input; a QuantizeLinear must come first"):
        to_network(model, "model")


def _by_position(piece: Piece, tensor: str, batch: int) -> str:
    """Subtract another constant from the frame at each position of a batch."""
    return piece.node("Sub", tensor, np.arange(batch, dtype=np.float32).reshape(batch, 1, 1, 1) / 4)


def _before(piece: Piece, batch: int) -> str:
    real = piece.requantise(_by_position(piece, "x", batch), 0.0317, 120)
    return piece.requantise(piece.conv(real), 0.21, 100)


def _behind_two_tensors(piece: Piece, batch: int) -> str:
    real = piece.requantise("x", 0.0317, 120)
    sums = piece.requantise(piece.conv(real, 3, pads=[1] * 4), 0.21, 100)
    return _by_position(piece, piece.node("Sub", sums, real), batch)


@pytest.mark.parametrize("batch", [3, 7, 40])
@pytest.mark.parametrize("write", [_before, _behind_two_tensors])
def test_positions_in_a_fixed_batch(write, batch: int, tmp_path) -> None:
    """A frame keeps its position in the batch, also where 32 frames are no whole number of batches."""
    piece = Piece(kind=np.float32, scale=0.05, batch=batch)
    model = piece.model(write(piece, batch))
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(4).normal(size=(2 * 40, 3, 6, 6)).astype(np.float32)
    whole = np.concatenate([x, x])[: -(-len(x) // batch) * batch]  # the last batch filled up
    session, _ = integer_session(model)
    parts = [session.run(None, {"x": whole[begin : begin + batch]})[0] for begin in range(0, len(whole), batch)]
    found = hwgen.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(found.golden(x), np.concatenate(parts)[: len(x)])
    assert (found.network.host.head is None) == (write is _behind_two_tensors)


@pytest.mark.long
def test_in_hardware(tmp_path) -> None:
    model, _ = _model(_normalised)
    onnx.save(model, tmp_path / "model.onnx")
    design = hwgen.load(tmp_path / "model.onnx").plan("zedboard")
    x = np.random.default_rng(4).normal(size=(2, 3, 6, 6)).astype(np.float32)
    result = design.simulate(x, simulator="amaranth")
    assert result.mismatches == 0
    np.testing.assert_array_equal(result.outputs, integer_session(model)[0].run(None, {"x": x})[0])
    assert "Sub, Div, QuantizeLinear (before the accelerator)" in design.report()


def test_pixels_of_bytes(tmp_path) -> None:
    """A model that takes bytes, and makes floats of them."""
    piece = Piece(kind=np.uint8)
    scaled = piece.node("Div", piece.node("Cast", "x", to=TensorProto.FLOAT), np.float32(255))
    model = piece.model(piece.quantise(piece.conv(piece.requantise(scaled, 1 / 255)), 0.5, 9))
    onnx.save(model, tmp_path / "model.onnx")
    found, x = hwgen.load(tmp_path / "model.onnx"), piece.frames(20)
    np.testing.assert_array_equal(found.golden(x), integer_session(model)[0].run(None, {"x": x})[0])
    assert found.random_frames(2).dtype == np.uint8
    with pytest.raises(hwgen.InputError, match="must be uint8, not int16"):
        found.golden(x.astype(np.int16))
    with pytest.raises(hwgen.InputError, match="must have shape"):
        found.golden(x[:, :2])


def test_two_inputs_joined(tmp_path) -> None:
    """A Concat of two float inputs is one input of the hardware."""
    piece = Piece(kind=np.float32)
    joined = piece.node("Concat", "x", "z", axis=1)
    model = piece.model(piece.quantise(piece.conv(piece.requantise(joined, 0.05, 120), 4, 5), 0.5, 99))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2, 6, 6]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.UINT8, ["n", 4, 4, 4]))
    model.graph.node[-1].output[0] = "y"
    onnx.save(model, tmp_path / "model.onnx")
    random = np.random.default_rng(3)
    frames = {name: random.normal(size=(9, size, 6, 6)).astype(np.float32) for name, size in (("x", 3), ("z", 2))}
    found = hwgen.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(found.golden(frames), integer_session(model)[0].run(None, frames)[0])


def test_verdicts(tmp_path) -> None:
    model, _ = _model(_normalised)
    onnx.save(model, tmp_path / "model.onnx")
    verdicts = {verdict.op: verdict for verdict in hwgen.check(tmp_path / "model.onnx").operators}
    assert verdicts["Div"].verdict == "host"
    assert verdicts["Div"].reason == "before the first integer tensor"


def test_layers_in_front_are_refused(tmp_path) -> None:
    """A convolution of floats never moves to the host by itself."""
    piece = Piece(kind=np.float32)
    sums = piece.node("Conv", "x", piece.floats(4, 3, 1, 1))
    onnx.save(piece.model(piece.quantise(piece.conv(piece.requantise(sums, 0.1), 4, 4), 0.5)), tmp_path / "model.onnx")
    with pytest.raises(hwgen.ModelError, match=r"Conv node .*: works on the float input; a QuantizeLinear must come"):
        hwgen.load(tmp_path / "model.onnx")
