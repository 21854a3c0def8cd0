"""Models whose tensors lie otherwise than (N, C, H, W): every value against ONNX Runtime, and some in hardware."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Writer
from onnx_writing import as_model
from pieces import Piece, check
from referees import by_integer_kernels, saturates

import hwgen
from hwgen.cli.main import main
from hwgen.errors import ModelError
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Add, Conv
from hwgen.network.quantise import prepare_inputs, quantise

Move = tuple[str, Any]
"""An operator and its parameter: an order, a shape or a place, all without the batch."""
Frame = tuple[int, ...]


def moved(shape: Frame, move: Move) -> Frame:
    kind, how = move
    if kind == "Transpose":
        return tuple(shape[place] for place in how)
    if kind == "Reshape":
        return how
    if kind == "Flatten":
        return (prod(shape),)
    if kind == "Unsqueeze":
        return (*shape[:how], 1, *shape[how:])
    if kind == "Squeeze":
        return (*shape[:how], *shape[how + 1 :])
    return shape


def back(shape: Frame, move: Move) -> Move:
    """Return the move that undoes ``move`` of a tensor of ``shape``."""
    kind, how = move
    if kind == "Transpose":
        return kind, tuple(int(place) for place in np.argsort(how))
    if kind in ("Reshape", "Flatten"):
        return "Reshape", shape
    return {"Unsqueeze": "Squeeze", "Squeeze": "Unsqueeze"}.get(kind, kind), how


class Wanderer(Writer):
    """Writes layers over (C, H, W) or (C, L); in between tensors are moved to and fro.

    ``shape`` is what the next layer takes, ``pending`` the moves that give it. Moves stand before the quantiser behind
    a layer, on integers, or in front of the next layer.
    """

    def __init__(self, seed: int, *, rank: int = 3, channels: int = 0) -> None:
        super().__init__(seed, qdq=seed % 3 > 0, powers=seed % 4 == 0, channels=channels, tame=saturates())
        self.pending: list[Move] = []
        if rank == 2:
            self.shape = (self.shape[0], int(self.random.integers(9, 30)))
        self.nodes.clear()
        self.input_shape = self.shape
        moves = self.walk(int(self.random.integers(3)))
        for move in moves:
            self.input_shape = moved(self.input_shape, move)
        if len(self.input_shape) > 3:  # no input of a model that is built
            self.input_shape, self.pending = self.shape, []
        tensor = self.some("image", early=self.random.random() < 0.5)
        self.tensor = self.add("QuantizeLinear", "input", tensor, self.scale, self.zero)

    def walk(self, count: int, kinds: tuple[str, ...] = ()) -> list[Move]:
        """Return ``count`` random moves away from ``shape``. The moves that lead back are added to ``pending``."""
        shape, moves = self.shape, []
        for _ in range(count):
            move = self.a_move(shape, kinds)
            moves.append(move)
            self.pending.insert(0, back(shape, move))
            shape = moved(shape, move)
        return moves

    def a_move(self, shape: Frame, kinds: tuple[str, ...]) -> Move:
        several = len(shape) > 1
        usual = ["Dropout", "Flatten", "Identity", "Reshape", "Unsqueeze", *["Transpose"] * 5 * several]
        if several and 1 in shape:
            usual.append("Squeeze")
        kind = str(self.random.choice(kinds or usual))
        if kind == "Transpose":
            return kind, tuple(int(place) for place in self.random.permutation(len(shape)))
        if kind == "Unsqueeze":
            return kind, int(self.random.integers(len(shape) + 1))
        if kind == "Squeeze":
            return kind, shape.index(1)
        if kind == "Reshape":
            if several and self.random.random() < 0.6:
                place = int(self.random.integers(len(shape) - 1))
                return kind, (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
            place = int(self.random.integers(len(shape)))
            factors = [each for each in range(1, shape[place] + 1) if shape[place] % each == 0]
            factor = int(self.random.choice(factors))
            return kind, (*shape[:place], shape[place] // factor, factor, *shape[place + 1 :])
        return kind, None

    def emit(self, tensor: str, move: Move) -> str:
        kind, how = move
        if kind == "Transpose":
            return self.add(kind, "move", tensor, perm=[0, *(1 + place for place in how)])
        if kind == "Reshape":
            rest = list(how)
            way = self.random.integers(3)
            if way == 1:
                rest[self.random.integers(len(rest))] = -1
            return self.add(kind, "move", tensor, self.constant(np.array([-1 if way == 0 else 0, *rest])))
        if kind in ("Squeeze", "Unsqueeze"):
            return self.add(kind, "move", tensor, self.constant(np.array([1 + how])))
        if kind == "Dropout" and not self.is_float(tensor):
            kind = "Identity"
        return self.add(kind, "move", tensor)

    def is_float(self, tensor: str) -> bool:
        producers = {node.output[0]: node for node in self.nodes}
        while tensor.startswith("move"):
            tensor = producers[tensor].input[0]
        return tensor == "image" or (self.qdq and producers[tensor].op_type != "QuantizeLinear")

    def some(self, tensor: str, *, early: bool = True) -> str:
        """Emit a random number of the pending moves, none without ``early``, and return the tensor behind them."""
        while early and self.pending and self.random.random() < 0.7:
            tensor = self.emit(tensor, self.pending.pop(0))
        return tensor

    def rest(self, tensor: str) -> str:
        while self.pending:
            tensor = self.emit(tensor, self.pending.pop(0))
        return tensor

    def dequantised(self) -> str:
        self.tensor = self.some(self.tensor, early=self.random.random() < 0.4)
        self.real = self.rest(super().dequantised())
        return self.real

    def product(self, operator: str, name: str, shape: Frame, axis: int, output: Frame, **attributes: Any) -> None:
        self.after = output
        super().product(operator, name, shape, axis, output, **attributes)

    def add(self, operator: str, name: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        if name == "quantise":  # behind a layer
            self.shape = self.after
            tensor, averaged = inputs[0], "Average" in self.nodes[-1].op_type
            kinds = ("Transpose", "Unsqueeze", "Identity") if averaged and self.shape[1:] else ()
            for move in self.walk(int(self.random.integers(3)) if self.random.random() < 0.5 else 0, kinds):
                tensor = self.emit(tensor, move)
            inputs = (tensor, *inputs[1:])
        return super().add(operator, name, *inputs, domain=domain, **attributes)

    def wander(self) -> None:
        """Emit random moves of integer tensors, sometimes with rows and columns exchanged for good."""
        self.tensor = self.rest(self.tensor)
        if len(self.shape) == 3 and self.random.random() < 0.3:
            self.tensor = self.emit(self.tensor, ("Transpose", (0, 2, 1)))
            self.shape = (self.shape[0], self.shape[2], self.shape[1])
        for move in self.walk(int(self.random.integers(3))):
            self.tensor = self.emit(self.tensor, move)

    def at_rest(self) -> str:
        """Return the tensor that a layer reads: floats, or integers in QOperator models."""
        if self.qdq:
            return self.dequantised()
        self.tensor = self.rest(self.tensor)
        return self.tensor

    # Layers over one dimension or two.

    def along(self, kernel: list[int], dilation: list[int]) -> tuple[dict[str, Any], Frame]:
        stride = [int(each) for each in self.random.integers(1, 3, len(kernel))]
        pads = [int(self.random.integers(0, k)) for k in (*kernel, *kernel)]
        size = tuple(
            (side + before + after - (k - 1) * d - 1) // s + 1
            for side, before, after, k, d, s in zip(
                self.shape[1:], pads, pads[len(kernel) :], kernel, dilation, stride, strict=False
            )
        )
        return {"strides": stride, "pads": pads}, size

    def a_kernel(self) -> list[int]:
        return [int(min(side, self.random.integers(1, 4))) for side in self.shape[1:]]

    def layer(self, name: str) -> None:
        """Add a random convolution."""
        kernel = self.a_kernel()
        dilation = [
            2 if k > 1 and 2 * k - 1 <= side and self.random.random() < 0.3 else 1
            for k, side in zip(kernel, self.shape[1:], strict=True)
        ]
        attributes, size = self.along(kernel, dilation)
        groups = self.shape[0] if self.random.random() < 0.3 else 1
        outputs = groups * int(self.random.integers(1, 3)) if groups > 1 else int(self.random.integers(1, 7))
        self.at_rest_for_product()
        weights = (outputs, self.shape[0] // groups, *kernel)
        self.product("Conv", name, weights, 0, (outputs, *size), dilations=dilation, group=groups, **attributes)

    def at_rest_for_product(self) -> None:
        if not self.qdq:
            self.tensor = self.rest(self.tensor)

    def max_pool(self, name: str) -> None:
        kernel = self.a_kernel()
        attributes, size = self.along(kernel, [1] * len(kernel))
        tensor = self.add("MaxPool", name, self.at_rest(), kernel_shape=kernel, **attributes)
        self.shape = self.after = (self.shape[0], *size)
        self.tensor = self.add("QuantizeLinear", "quantise", tensor, self.scale, self.zero) if self.qdq else tensor

    def average(self, name: str, *, whole: bool = False) -> None:
        kernel = self.a_kernel()
        attributes, size = self.along(kernel, [1] * len(kernel))
        attributes |= {"kernel_shape": kernel, "count_include_pad": int(self.random.integers(2))}
        if whole:
            attributes, size = {}, (1,) * len(kernel)
        operator = "GlobalAveragePool" if whole else "AveragePool"
        before, after = (self.scale, self.zero), self.quantisation(float(self.values(self.scale)) / 2)
        if self.qdq:
            pooled = self.add(operator, name, self.at_rest(), **attributes)
            self.after = (self.shape[0], *size)
            self.tensor = self.add("QuantizeLinear", "quantise", pooled, *after)
        else:
            operands = [self.at_rest(), *before, *after]
            self.tensor = self.add(f"QLinear{operator}", name, *operands, domain="com.microsoft", **attributes)
            self.shape = (self.shape[0], *size)
        self.scale, self.zero = after

    def residual(self, name: str) -> None:
        """Add a pointwise convolution, and join its output with its input by Add, Mul or Concat, both moved alike."""
        self.at_rest_for_product()
        if self.qdq and self.pending:
            self.tensor = self.rest(self.tensor)
        before = self.tensor, self.scale, self.zero
        channels = self.shape[0]
        self.product("Conv", name, (channels, channels, *[1] * (len(self.shape) - 1)), 0, self.shape)
        real = self.real if self.qdq else ""
        self.tensor = self.rest(self.tensor)
        after = self.tensor, self.scale, self.zero
        operator = str(self.random.choice(["Add", "Mul", "Concat"]))
        moves = self.walk(int(self.random.integers(3)), ("Transpose", "Identity"))
        order = list(range(len(self.shape)))
        for kind, how in moves:
            order = [order[place] for place in how] if kind == "Transpose" else order
        axis: dict[str, Any] = {"axis": 1 + order.index(0)} if operator == "Concat" else {}
        about = float(max(self.values(scale) for _, scale, _ in (before, after))) * 1.5
        if operator == "Mul":
            about = 60 * float(np.prod([self.values(scale) for _, scale, _ in (before, after)]))
        quantisation = self.quantisation(about)
        operands = []
        shared = self.qdq and self.random.random() < 0.3
        for tensor, scale, zero in (before, after):
            if shared and tensor == before[0]:  # the same DequantizeLinear as the convolution's
                tensor = real
                for move in moves:
                    tensor = self.emit(tensor, move)
                operands.append(tensor)
                continue
            early = int(self.random.integers(len(moves) + 1)) if self.qdq else len(moves)
            for move in moves[:early]:
                tensor = self.emit(tensor, move)
            if self.qdq:
                tensor = Writer.add(self, "DequantizeLinear", "dequantise", tensor, scale, zero)
                for move in moves[early:]:
                    tensor = self.emit(tensor, move)
                operands.append(tensor)
            else:
                operands += [tensor, scale, zero]
        if operator == "Concat":
            self.shape = (2 * channels, *self.shape[1:])
        if self.qdq:
            tensor = Writer.add(self, operator, f"{name}_join", *operands, **axis)
            self.tensor = Writer.add(self, "QuantizeLinear", "joined", tensor, *quantisation)
        else:
            operands = [*quantisation, *operands] if operator == "Concat" else [*operands, *quantisation]
            self.tensor = self.add(f"QLinear{operator}", f"{name}_join", *operands, domain="com.microsoft", **axis)
        self.scale, self.zero = quantisation

    def rows(self, name: str) -> None:
        """Add a MatMul along the channels, which are moved to the end and back."""
        order = (*range(1, len(self.shape)), 0)
        self.at_rest_for_product()
        if self.qdq:
            self.tensor = self.rest(self.tensor)
        self.tensor = self.emit(self.tensor, ("Transpose", order))
        outputs = int(self.random.integers(1, 7))
        self.shape = (*self.shape[1:], self.shape[0])
        self.product("MatMul", name, (self.shape[-1], outputs), 1, (*self.shape[:-1], outputs))
        self.tensor = self.rest(self.tensor)
        last = len(self.shape) - 1
        self.tensor = self.emit(self.tensor, ("Transpose", (last, *range(last))))
        self.shape = (self.shape[-1], *self.shape[:-1])

    def dense(self, name: str) -> None:
        """Add a dense layer of all values in the present layout, so that pending moves are never made."""
        self.tensor = self.some(self.tensor)
        if self.pending:
            self.pending.clear()
            kind = "Flatten"
        else:
            kind = str(self.random.choice(["Flatten", "Reshape"]))
        size = prod(self.shape)
        source = Writer.dequantised(self) if self.qdq else self.tensor
        if kind == "Flatten":
            self.tensor = self.add("Flatten", "flatten", source)
        else:
            self.tensor = self.add("Reshape", "reshape", source, self.constant(np.array([0, -1])))
        if self.qdq:
            self.tensor = Writer.add(self, "QuantizeLinear", "flat", self.tensor, self.scale, self.zero)
        self.shape = (size,)
        outputs = int(self.random.integers(1, 9))
        self.product("Gemm", name, (outputs, size), 0, (outputs,), transB=1)

    def model(self) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return as_model(
            self.nodes,
            {"image": (TensorProto.FLOAT, ["batch", *self.input_shape])},
            {self.tensor: (kind, [None] * (1 + len(self.shape)))},
            self.constants,
            opset=[13, 17, 21][self.count % 3],
            domains=["com.microsoft"],
        )


def random_wanderer(seed: int) -> Wanderer:
    writer = Wanderer(seed, rank=2 + seed % 2)
    kinds = ["layer", "layer", "max_pool", "average", "residual", "rows"]
    for number in range(1 + seed % 4):
        getattr(writer, str(writer.random.choice(kinds)))(f"layer{number}")
        if writer.random.random() < 0.5:
            writer.wander()
    if seed % 5 == 0:
        writer.average("whole", whole=True)
    if seed % 3 == 0:
        writer.dense("dense")
    elif not any("Conv" in node.op_type or "Pool" in node.op_type or "MatMul" in node.op_type for node in writer.nodes):
        writer.layer("last")
    writer.tensor = writer.rest(writer.tensor)
    return writer


def ours(network: Network, x: np.ndarray) -> np.ndarray:
    """The model's own output, in its shape."""
    return host.outputs(network, golden.run(network, prepare_inputs(network, x)))


def check_random(seeds: range, frames: int) -> None:
    """Operators in float32 may round their sums otherwise where scales are no powers of two: that is counted."""
    differing = total = exact = 0
    for seed in seeds:
        writer = random_wanderer(seed)
        model, x = writer.model(), writer.frames(frames)
        theirs, floats = by_integer_kernels(model, x)
        try:
            network = to_network(model, "random")
        except ModelError as error:
            # A Reshape by factors that no axis has, or an average of rows that are columns.
            assert re.search(r"cuts across dimensions|laid out as \(N, \w, W, H\)", str(error))  # noqa: PT017
            continue
        found = ours(network, x)
        if writer.powers or not floats:
            np.testing.assert_array_equal(found, theirs, err_msg=f"seed {seed}")
            exact += 1
        else:
            assert found.shape == theirs.shape
            difference = np.abs(found.astype(int) - theirs)
            assert difference.max() <= 1
            differing, total = differing + np.count_nonzero(difference), total + difference.size
    assert exact > 0.4 * len(seeds)
    assert differing * 10_000 <= total


def test_random() -> None:
    check_random(range(60), 2)


@pytest.mark.long
def test_many() -> None:
    check_random(range(60, 1000), 4)


class Net:
    """Writes a float model over tensors in any order."""

    def __init__(self, *frame: int) -> None:
        self.random = np.random.default_rng(5)
        self.frame, self.tensor = frame, "x"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, operator: str, *constants: np.ndarray, **attributes: Any) -> None:
        names = [self.constant(value) for value in constants]
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.tensor, *names], [f"{name}_out"], name=name, **attributes))
        self.tensor = f"{name}_out"

    def weights(self, *shape: int) -> np.ndarray:
        return (self.random.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def conv(self, outputs: int, channels: int, *kernel: int, **attributes: Any) -> None:
        self.add("Conv", self.weights(outputs, channels, *kernel), self.weights(outputs), **attributes)

    def transposed(self, *order: int) -> None:
        self.add("Transpose", perm=order)

    def float_model(self, rank: int) -> onnx.ModelProto:
        return as_model(
            self.nodes,
            {"x": (TensorProto.FLOAT, ["batch", *self.frame])},
            {self.tensor: (TensorProto.FLOAT, [None] * rank)},
            self.constants,
        )

    def quantised(self, rank: int) -> onnx.ModelProto:
        """By ONNX Runtime's quantiser, which puts QuantizeLinear and DequantizeLinear around Transposes too."""
        return quantise(self.float_model(rank), self.frames(24), "net", 8)

    def frames(self, count: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).normal(0, 1, (count, *self.frame)).astype(np.float32)


def lenet_nhwc() -> tuple[Net, int]:
    """As Keras has it: NHWC from end to end, each convolution and pool between two Transposes."""
    net = Net(8, 9, 2)
    for outputs, channels in ((2, 2), (3, 2)):
        net.transposed(0, 3, 1, 2)
        net.conv(outputs, channels, 3, 3, pads=[1, 1, 1, 1])
        net.add("Relu")
        net.transposed(0, 2, 3, 1)
        net.transposed(0, 3, 1, 2)
        net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        net.transposed(0, 2, 3, 1)
    net.add("Reshape", np.array([-1, 2 * 2 * 3]))
    net.add("MatMul", net.weights(12, 8))
    net.add("Add", net.weights(8))
    net.add("Relu")
    net.add("Gemm", net.weights(8, 4), net.weights(4))
    net.add("Softmax")
    return net, 2


def ecg() -> tuple[Net, int]:
    """One dimension: convolutions, pools and a classifier over (N, C, L)."""
    net = Net(2, 24)
    net.conv(4, 2, 5, strides=[2], pads=[2, 1])
    net.add("Relu")
    net.add("MaxPool", kernel_shape=[3], strides=[2], pads=[1, 0])
    net.conv(6, 4, 3, dilations=[2], pads=[2, 2], group=1)
    net.add("AveragePool", kernel_shape=[2], strides=[2])
    net.conv(6, 1, 3, group=6)
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.weights(6, 3), net.weights(3))
    return net, 2


def steps() -> tuple[Net, int]:
    """(N, T, F): a product of each row with a matrix, a one-dimensional convolution by way of two, and NHWC behind."""
    net = Net(9, 4)
    net.add("MatMul", net.weights(4, 6))
    net.transposed(0, 2, 1)
    net.add("Unsqueeze", np.array([3]))
    net.conv(5, 6, 3, 1, pads=[1, 0, 1, 0])
    net.add("Squeeze", np.array([3]))
    net.transposed(0, 2, 1)
    return net, 3


def scaled() -> tuple[Net, int]:
    """Squeeze and excitation over (N, H, W, C): a pixel for all pixels, and a sum."""
    net = Net(5, 4, 3)
    net.transposed(0, 3, 1, 2)
    net.conv(4, 3, 3, 3)
    net.transposed(0, 2, 3, 1)
    whole = net.tensor
    net.transposed(0, 3, 1, 2)
    net.add("GlobalAveragePool")
    net.conv(4, 4, 1, 1)
    net.transposed(0, 2, 3, 1)
    for operator in ("Mul", "Add"):
        net.nodes.append(helper.make_node(operator, [net.tensor, whole], [operator], name=operator))
        net.tensor = operator
    net.add("Flatten")
    net.add("Gemm", net.weights(24, 5))
    return net, 2


def images_in_a_row() -> tuple[Net, int]:
    """A vector that is an image."""
    net = Net(48)
    net.add("Reshape", np.array([-1, 4, 4, 3]))
    net.transposed(0, 3, 1, 2)
    net.conv(3, 3, 3, 3)
    net.add("Flatten")
    net.add("Gemm", net.weights(12, 5))
    return net, 2


MODELS = {make.__name__: make for make in (lenet_nhwc, ecg, steps, scaled, images_in_a_row)}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    """Golden model, hardware and ONNX Runtime: values in the model's own shape, cycles as predicted."""
    net, rank = MODELS[name]()
    model = net.quantised(rank)
    onnx.save(model, tmp_path / "net.onnx")
    x = net.frames(3, 1)
    theirs, floats = by_integer_kernels(model, x)
    loaded = hwgen.load(str(tmp_path / "net.onnx"))
    design, found = loaded.plan("zedboard", dsp=12, multipliers="dsp"), loaded.golden(x)
    assert not floats
    np.testing.assert_array_equal(found, theirs)
    done = design.simulate(x, simulator="amaranth")
    np.testing.assert_array_equal(done.outputs, found)
    assert done.mismatches == 0
    assert (done.latency, done.interval) == (design.latency, design.interval)


@pytest.mark.parametrize("name", MODELS)
def test_ends(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Files hold arrays of the model's own shape, whatever the map's is; others are refused."""
    net, rank = MODELS[name]()
    path = tmp_path / "net.onnx"
    onnx.save(net.quantised(rank), path)
    model = hwgen.load(str(path))
    assert model.host["input"]["shape"] == list(net.frame)
    assert model.random_frames(2).shape == (2, *net.frame)
    np.save(tmp_path / "x.npy", net.frames(2))
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    assert main(["golden", str(path), *files]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.golden(net.frames(2)))
    in_slices = ["--board", "zedboard", "--multipliers", "dsp", "--dsp", "12"]
    if name in ("images_in_a_row", "steps"):  # the smallest ones
        assert main(["simulate", str(path), *in_slices, "--simulator", "amaranth", *files]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.golden(net.frames(2)))
    plan = tmp_path / "plan.json"
    assert main(["plan", str(path), *in_slices, "-o", str(plan)]) == 0
    assert json.loads(plan.read_text())["input"]["shape"] == list(net.frame)
    with pytest.raises(hwgen.InputError, match=rf"input must have shape \(frames, {', '.join(map(str, net.frame))}\)"):
        model.golden(np.moveaxis(net.frames(2), -1, 1)[..., None])
    capfd.readouterr()


def test_input_is_permuted_on_the_host() -> None:
    """No layer turns (N, H, W, C) into maps."""
    net, rank = lenet_nhwc()
    network = to_network(net.quantised(rank), "net")
    assert network.input.shape == (2, 8, 9)
    assert [type(layer).__name__ for layer in network.layers] == ["Conv", "MaxPool", "Conv", "MaxPool", "Conv", "Conv"]
    lies = host.describe(network)["input"]
    assert (lies["shape"], lies["map"]) == ([8, 9, 2], [2, 8, 9])
    integers = np.arange(288).reshape(2, 8, 9, 2).astype(np.uint8)
    np.testing.assert_array_equal(prepare_inputs(network, integers)[0], integers.transpose(0, 3, 1, 2))
    parted = integers.transpose(0, 3, 1, 2).reshape(2, *lies["parts"])
    np.testing.assert_array_equal(parted.transpose(0, *(1 + place for place in lies["order"])), integers)


BY_CHANNEL = np.float32([0.5, 0.8, 1.1])
AGAIN = 0.913, 7
"""Scale and zero point of a quantiser in between."""
BEHIND_THE_INPUT: dict[str, Callable[[Piece, str], str]] = {
    "Sigmoid": lambda piece, tensor: piece.requantise(piece.node("Sigmoid", tensor), 0.004, 1),
    "SiLU": lambda piece, tensor: piece.requantise(piece.node("Mul", tensor, piece.node("Sigmoid", tensor)), *AGAIN),
    "Mul": lambda piece, tensor: piece.requantise(piece.node("Mul", tensor, BY_CHANNEL), *AGAIN),
    "Mul, not quantised": lambda piece, tensor: piece.node("Mul", np.float32(0.613), tensor),
    "Add": lambda piece, tensor: piece.requantise(piece.node("Add", BY_CHANNEL, tensor), *AGAIN),
    "Add of maps": lambda piece, tensor: piece.requantise(piece.node("Add", tensor, tensor), *AGAIN),
    "Slice of rows": lambda piece, tensor: piece.node("Slice", tensor, [1], [5], [1]),
    "Slice of rows, Reshape": lambda piece, tensor: piece.node(
        "Reshape", piece.node("Slice", tensor, [1], [5], [1]), [0, 4, 5, 3]
    ),
    "Slices, Concat": lambda piece, tensor: piece.requantise(
        piece.node(
            "Concat", piece.node("Slice", tensor, [1], [2], [3]), piece.node("Slice", tensor, [0], [2], [3]), axis=3
        ),
        *AGAIN,
    ),
    "Split": lambda piece, tensor: piece.node("Split", tensor, [2, 3], outputs=2, axis=2) + "_1",
    "Pad": lambda piece, tensor: piece.node("Pad", tensor, [0, 1, 2, 0, 0, 0, 1, 0]),
    "Gather": lambda piece, tensor: piece.node("Gather", tensor, [2, 1, 0], axis=3),
}


@pytest.mark.parametrize("name", BEHIND_THE_INPUT)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_channels_last_past_other_operators(name: str, kind: type) -> None:
    """The input's last dimension are the channels, whatever stands between it and the convolution that says so."""
    piece = Piece((6, 5, 3), kind)
    tensor = BEHIND_THE_INPUT[name](piece, piece.real())
    sums = piece.conv(piece.node("Transpose", tensor, perm=[0, 3, 1, 2]), bias=False, pads=[1, 1, 1, 1])
    network = check(piece.model(piece.quantise(sums, 7.31, 100)), piece.frames(20))
    assert network.input.shape == (3, 6, 5)


def test_a_row_of_the_input() -> None:
    """Only the other dimensions of the map say which one it is."""
    piece = Piece((6, 5, 3))
    row = piece.node("Slice", piece.real(), [3], [4], [1])
    sums = piece.conv(piece.node("Transpose", row, perm=[0, 3, 1, 2]), bias=False, pads=[1, 1, 1, 1])
    network = check(piece.model(piece.quantise(sums, 7.31, 100)), piece.frames(20))
    assert network.input.shape == (3, 6, 5)


def test_dense_behind_another_order() -> None:
    """The matrix's columns lie as the map does."""
    net = Net(2, 3, 4)
    net.conv(2, 2, 1, 1)
    net.transposed(0, 2, 3, 1)
    net.add("Flatten")
    net.add("Gemm", net.weights(24, 5))
    model = net.quantised(2)
    network = to_network(model, "net")
    dense = network.layers[-1]
    assert isinstance(dense, Conv)
    (name,) = (node.input[1] for node in model.graph.node if node.op_type == "Gemm")
    source = next(node.input[0] for node in model.graph.node if node.output[0] == name)
    matrix = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == source)).T
    np.testing.assert_array_equal(dense.weights, matrix.reshape(5, 3, 4, 2).transpose(0, 3, 1, 2))


# Single operators between integers.


def chain(
    frame: tuple[int, ...],
    *nodes: tuple[str, dict[str, Any]],
    weights: tuple[int, ...] = (),
    opset: int = 17,
    batch: int | str = "batch",
) -> onnx.ModelProto:
    """A chain between one DequantizeLinear and one QuantizeLinear, over integers; ``constants`` of a node are arrays.

    Conv and MatMul get ``weights``; Add gets its operand twice; Quantised is a quantiser and what undoes it.
    """
    random = np.random.default_rng(2)
    values: dict[str, Any] = {"s": np.float32(0.0625), "z": np.uint8(101), "y_s": np.float32(0.125)}
    made = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"])]
    tensor = "real"
    for number, (operator, attributes) in enumerate(nodes):
        attributes = dict(attributes)
        operands = []
        if operator == "Quantised":
            made.append(helper.make_node("QuantizeLinear", [tensor, "s", "z"], [f"q{number}"]))
            made.append(helper.make_node("DequantizeLinear", [f"q{number}", "s", "z"], [f"t{number}"]))
            tensor = f"t{number}"
            continue
        for place, value in enumerate(attributes.pop("constants", [])):
            values[f"k{number}_{place}"] = np.asarray(value)
            operands.append(f"k{number}_{place}")
        if operator in ("Conv", "MatMul"):
            values |= {"w": random.integers(-60, 61, weights).astype(np.int8), "w_s": np.float32(0.0078125)}
            made.append(helper.make_node("DequantizeLinear", ["w", "w_s"], ["weights"]))
            operands.append("weights")
        if operator == "Add" and not operands:
            operands = [tensor]
        made.append(helper.make_node(operator, [tensor, *operands], [f"t{number}"], name=f"n{number}", **attributes))
        tensor = f"t{number}"
    made.append(helper.make_node("QuantizeLinear", [tensor, "y_s", "z"], ["y"]))
    model = as_model(
        made, {"x": (TensorProto.UINT8, [batch, *frame])}, {"y": (TensorProto.UINT8, None)}, values, opset=opset
    )
    inferred = onnx.shape_inference.infer_shapes(model)
    rank = len(inferred.graph.output[0].type.tensor_type.shape.dim)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.UINT8, [None] * rank))
    return model


BEFORE: dict[str, tuple[dict[str, Any], bool]] = {
    "Transpose": ({"perm": [0, 1, 3, 2]}, True),
    "Reshape": ({"constants": [[0, 6, 2, -1]]}, True),
    "Unsqueeze": ({"constants": [[2]]}, True),
    "Identity": ({}, True),
    "Dropout": ({}, True),
    "Expand": ({"constants": [[1, 1, 1, 1]]}, True),
    "Tile": ({"constants": [[1, 1, 1, 1]]}, False),
    "Flatten": ({}, False),
}
"""Attributes, and whether ONNX Runtime has an operator of integers behind it."""


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("operator", BEFORE)
def test_which_operators_leave_sums_in_floats(operator: str, behind: bool) -> None:
    """Ties of a sum go one way in ONNX Runtime's kernel of integers, and another way in floats."""
    attributes, moved = BEFORE[operator]
    move = (operator, attributes)
    model = chain((6, 4, 5), *([("Add", {}), move] if behind else [move, ("Add", {})]))
    x = np.random.default_rng(1).integers(0, 256, (3, 6, 4, 5)).astype(np.uint8)
    theirs, _ = by_integer_kernels(model, x)
    network = to_network(model, "chain")
    np.testing.assert_array_equal(ours(network, x), theirs)
    (layer,) = (layer for layer in network.layers if isinstance(layer, Add))
    assert layer.fused == moved


def test_pools_behind_what_renames_axes() -> None:
    """ONNX Runtime moves the DequantizeLinear past them, so that it averages integers."""
    for move in (("Transpose", {"perm": [0, 3, 1, 2]}), ("Reshape", {"constants": [[0, 4, 2, -1]]})):
        model = chain((4, 6, 3), move, ("GlobalAveragePool", {}), ("Squeeze", {"constants": [[2, 3]]}))
        x = np.random.default_rng(1).integers(0, 256, (3, 4, 6, 3)).astype(np.uint8)
        np.testing.assert_array_equal(ours(to_network(model, "chain"), x), by_integer_kernels(model, x)[0])


@pytest.mark.parametrize("batch", ["batch", 1, 2])
@pytest.mark.parametrize(
    "shape", [[0, -1], [0, 12, 5], [0, 0, -1], [-1, 3, 2, 10], [-1, 60], [0, 3, 4, 5], [0, 3, 0, 5, -1]]
)
def test_reshapes(shape: list[int], batch: int | str) -> None:
    """Then a product, for which all this must be read."""
    nodes = [("MaxPool", LAST), ("Reshape", {"constants": [shape]}), ("Reshape", {"constants": [[0, -1]]})]
    model = chain((3, 4, 5), *nodes, ("MatMul", {}), weights=(60, 4), batch=batch)
    x = np.random.default_rng(1).integers(0, 256, (2 if batch != 1 else 1, *frame_of(model))).astype(np.uint8)
    np.testing.assert_array_equal(ours(to_network(model, "chain"), x), by_integer_kernels(model, x)[0])


@pytest.mark.parametrize("batch", ["batch", 1, 2])
def test_shapes_that_are_read_off_tensors(batch: int | str) -> None:
    """``x.view(x.size(0), -1)`` as PyTorch writes it, and with the other sizes too; each of what another one reads."""
    model = chain((3, 4, 5), ("MaxPool", LAST), ("Reshape", {"constants": [[0, -1]]}), ("MatMul", {}), weights=(60, 4))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.UINT8, [batch, 3, 4, 5]))
    place = next(number for number, node in enumerate(model.graph.node) if node.op_type == "Reshape")
    reshape = model.graph.node[place]
    constants = {
        "zero": np.int64(0),
        "axes": np.array([0]),
        "rest": np.array([-1]),
        "one": np.array([1]),
        "two": np.array([2]),
    }
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items())
    nodes = [
        helper.make_node("Shape", [reshape.input[0]], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["frames"]),
        helper.make_node("Unsqueeze", ["frames", "axes"], ["frames_"]),
        helper.make_node("Slice", ["sizes", "one", "two"], ["channels"]),
        helper.make_node("Concat", ["frames_", "rest"], ["shape"], axis=0),
        helper.make_node("Concat", ["frames_", "channels", "rest"], ["first"], axis=0),
        helper.make_node("Reshape", [reshape.input[0], "first"], ["apart"]),
    ]
    reshape.input[:] = ["apart", "shape"]
    rest = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([*rest[:place], *nodes, *rest[place:]])
    x = np.random.default_rng(1).integers(0, 256, (2 if batch != 1 else 1, 3, 4, 5)).astype(np.uint8)
    np.testing.assert_array_equal(ours(to_network(model, "chain"), x), by_integer_kernels(model, x)[0])


def frame_of(model: onnx.ModelProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])


ALONG: dict[str, tuple[str, dict[str, Any]]] = {
    "same upper": ("MaxPool", {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_UPPER"}),
    "same lower": ("MaxPool", {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_LOWER"}),
    "ceiling": ("MaxPool", {"kernel_shape": [3], "strides": [2], "pads": [0, 1], "ceil_mode": 1}),
    "convolution": ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2]}),
    "resize": ("Resize", {"constants": [np.zeros(0, "f4"), np.array([1, 1, 3], "f4")]}),
    "sizes": ("Resize", {"constants": [np.zeros(0, "f4"), np.zeros(0, "f4"), [2, 3, 22]]}),
}


@pytest.mark.parametrize("name", ALONG)
def test_one_dimension(name: str) -> None:
    operator, attributes = ALONG[name]
    nodes = [("MaxPool", {"kernel_shape": [1]}), (operator, attributes)]
    model = chain((3, 11), *nodes, weights=(4, 3, 4), batch=2)
    x = np.random.default_rng(1).integers(0, 256, (2, 3, 11)).astype(np.uint8)
    network = to_network(model, "chain")
    assert {layer.output.height for layer in network.layers} == {1}
    np.testing.assert_array_equal(ours(network, x), by_integer_kernels(model, x)[0])


def test_integers_of_rows(tmp_path: Path) -> None:
    """The last integer tensor has its own order too: (N, T, F), where the map is F x 1 x T; so has (N, H, W, F)."""
    for frame in ((6, 4), (2, 3, 4)):
        model = chain(frame, ("MatMul", {}), weights=(4, 5))
        onnx.save(model, tmp_path / "rows.onnx")
        x = np.random.default_rng(1).integers(0, 256, (3, *frame)).astype(np.uint8)
        theirs, floats = by_integer_kernels(model, x)
        assert not floats
        loaded = hwgen.load(str(tmp_path / "rows.onnx"))
        assert theirs.shape == (3, *frame[:-1], 5)
        np.testing.assert_array_equal(loaded.golden(x, integers=True), theirs)
        assert loaded.host["output"]["shape"] == list(theirs.shape[1:])
        (layer,) = loaded.network.layers
        assert isinstance(layer, Conv)
        assert layer.weights.shape == (5, 4, 1, 1)
        done = loaded.plan("zedboard", dsp=10, multipliers="dsp").simulate(x, simulator="amaranth")
        np.testing.assert_array_equal(done.integers, theirs)


LAST = {"kernel_shape": [1, 1]}
TURNED = ("Transpose", {"perm": [0, 1, 3, 2]})


@pytest.mark.parametrize(
    ("frame", "nodes", "message"),
    [
        (
            (3, 4, 5),
            [("MaxPool", LAST), ("Transpose", {"perm": [0, 2, 3, 1]}), ("MaxPool", LAST)],
            r"MaxPool node 'n2': needs channels, rows and columns in this order, but its input is laid out as "
            r"\(N, H, W, C\)",
        ),
        ((3, 4, 5), [("Transpose", {"perm": [1, 0, 2, 3]})], r"perm must leave the batch the first .* \[1, 0, 2, 3\]"),
        ((3, 4, 5), [("MaxPool", LAST), ("Squeeze", {}), ("MaxPool", LAST)], r"Squeeze node 'n1': must name its axes"),
        (
            (3, 4, 5),
            [("MaxPool", LAST), ("Reshape", {"constants": [[0, 5, 12]]}), ("MaxPool", {"kernel_shape": [1]})],
            r"Reshape node 'n1': the shape \(5, 12\) cuts across dimensions: its input, \(3, 4, 5\), is laid out as",
        ),
        (
            (3, 1, 5),
            [("MaxPool", LAST), ("Expand", {"constants": [[1, 1, 2, 1]]})],
            r"Expand node 'n1': must not repeat values",
        ),
        ((3, 4, 5), [("MaxPool", LAST), ("Tile", {"constants": [[1, 2, 1, 1]]})], r"repeats must be \[1, 1, 1, 1\]"),
        (
            (3, 4, 5),
            [("MaxPool", LAST), ("MatMul", {})],
            r"must follow Flatten .* or multiply along a last dimension that holds all channels; .* \(N, C, H, W\)",
        ),
        (
            (3, 4, 5),
            [("MaxPool", LAST), TURNED, ("Quantised", {}), ("AveragePool", {"kernel_shape": [2, 2]})],
            r"its input is laid out as \(N, C, W, H\): ONNX Runtime adds in another order",
        ),
    ],
)
def test_refused(frame: tuple[int, ...], nodes: list[tuple[str, dict[str, Any]]], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        to_network(chain(frame, *nodes, weights=(5, 2)), "chain")
    assert "\n" not in str(error.value)
