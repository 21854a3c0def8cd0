"""Small networks of any widths, written as Brevitas (QCDQ) and the QONNX package (Quant) write them; their checks."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model

import hwgen
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import IntegerType
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import prepare_inputs

QONNX = "qonnx.custom_op.general"
RARELY = 10_000
"""Number of values among which one may differ by 1, where float32 rounds sums."""


@dataclass
class Dialect:
    """A network in the making: the current tensor, its shape without the batch, and nodes that quantise.

    Values are about normal: weights of ``n`` inputs have a deviation of ``n ** -0.5``.
    """

    name: str
    seed: int = 0
    shape: tuple[int, ...] = (3, 8, 8)
    opset: int = 13
    domain: str = QONNX
    tensor: str = "x"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 14])
        self.given = self.shape
        self.scale = np.float32(0)
        self.kind = np.dtype(np.int8)
        self.zero = 0

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=f"{operator}_{output}", **attributes))
        return output

    # What differs.

    def quantised(
        self,
        tensor: str,
        scale: Any,
        bits: int,
        *,
        signed: bool = True,
        narrow: bool = False,
        zero: int = 0,
        axis: int | None = None,
        rank: int = 4,
    ) -> str:
        """``tensor`` in so many bits; ``scale`` one number, or one along ``axis`` of ``rank``."""
        scale = np.asarray(scale, np.float32)
        if self.name == "qonnx":
            line_up = scale.reshape([-1 if place == axis else 1 for place in range(rank)]) if scale.size > 1 else scale
            inputs = [tensor, self.constant(line_up), self.constant(zero), self.constant(bits)]
            flags = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": "ROUND"}
            return self.node("Quant", *inputs, domain=self.domain, **flags)
        kind = np.dtype(np.int8 if signed else np.uint8)
        along = {} if axis is None else {"axis": axis}
        label = self.constant(scale), self.constant(np.full(scale.shape, zero), kind)
        low, high = limits(bits, signed, narrow)
        integers = self.node("QuantizeLinear", tensor, *label, **along)
        if (low, high) != (np.iinfo(kind).min, np.iinfo(kind).max):
            integers = self.node("Clip", integers, self.constant(low, kind), self.constant(high, kind))
        return self.node("DequantizeLinear", integers, *label, **along)

    def weights(self, shape: tuple[int, ...], bits: int, outputs: int, *, per_channel: bool, narrow: bool) -> str:
        """Quantised along axis ``outputs``."""
        values = self.rng.normal(0, (shape[outputs] / np.prod(shape)) ** 0.5, shape).astype(np.float32)
        others = tuple(axis for axis in range(len(shape)) if axis != outputs)
        most = np.abs(values).max(others if per_channel else None)
        scale = most / max((1 << (bits - 1)) - 1, 1)
        along = outputs if per_channel else None
        return self.quantised(self.constant(values), scale, bits, narrow=narrow, axis=along, rank=len(shape))

    # Layers.

    def enter(self, bits: int = 8, **how: Any) -> Dialect:
        return self.act(bits, **how)

    def conv(
        self,
        channels: int,
        kernel: int = 3,
        *,
        bits: int = 4,
        pads: int = 0,
        stride: int = 1,
        groups: int = 1,
        per_channel: bool = False,
        narrow: bool = True,
        bias: str = "",
    ) -> Dialect:
        before, rows, columns = self.shape
        shape = (channels, before // groups, kernel, kernel)
        weights = self.weights(shape, bits, 0, per_channel=per_channel, narrow=narrow)
        more = [self.constant(self.rng.normal(0, 0.3, channels))] if bias == "float" else []
        attributes = {"kernel_shape": [kernel] * 2, "pads": [pads] * 4, "strides": [stride] * 2, "group": groups}
        self.tensor = self.node("Conv", self.tensor, weights, *more, **attributes)
        self.shape = (channels, *((size + 2 * pads - kernel) // stride + 1 for size in (rows, columns)))
        if bias == "added":
            self.arithmetic("Add", self.rng.normal(0, 0.3, (channels, 1, 1)))
        return self

    def dense(
        self, outputs: int, *, bits: int = 4, style: str = "transB", per_channel: bool = False, bias: bool = True
    ) -> Dialect:
        (inputs,) = self.shape
        shape, axis = ((outputs, inputs), 0) if style != "MatMul" and style != "Gemm" else ((inputs, outputs), 1)
        weights = self.weights(shape, bits, axis, per_channel=per_channel, narrow=True)
        if style == "Transpose":
            weights = self.node("Transpose", weights, perm=[1, 0])
        add = self.constant(self.rng.normal(0, 0.3, outputs))
        if style in ("MatMul", "Transpose"):
            self.tensor = self.node("MatMul", self.tensor, weights)
            if bias:
                self.tensor = self.node("Add", add, self.tensor)
        else:
            transposed = {"transB": 1} if style == "transB" else {}
            self.tensor = self.node("Gemm", self.tensor, weights, *([add] if bias else []), **transposed)
        self.shape = (outputs,)
        return self

    def arithmetic(self, operator: str, values: Any) -> Dialect:
        self.tensor = self.node(operator, self.tensor, self.constant(values))
        return self

    def normalise(self, *, negative: bool = False) -> Dialect:
        channels, rng = self.shape[0], self.rng
        scale = rng.normal(1, 0.2, channels) * (rng.choice([-1, 1], channels) if negative else 1)
        numbers = [scale, rng.normal(0, 0.3, channels), rng.normal(0, 0.3, channels), rng.uniform(0.5, 1.5, channels)]
        self.tensor = self.node("BatchNormalization", self.tensor, *map(self.constant, numbers))
        return self

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> Dialect:
        self.tensor = self.node(operator, self.tensor, *inputs, **attributes)
        return self

    def act(
        self, bits: int, *, signed: bool = False, narrow: bool = False, reach: float = 3.0, zero: int = 0
    ) -> Dialect:
        low, high = limits(bits, signed, narrow)
        self.scale = np.float32(reach * 1.01 / max(high - zero, zero - low, 1))
        self.tensor = self.quantised(self.tensor, self.scale, bits, signed=signed, narrow=narrow, zero=zero)
        self.kind, self.zero = np.dtype(np.int8 if signed else np.uint8), zero
        return self

    def pool(self) -> Dialect:
        channels, rows, columns = self.shape
        self.shape = (channels, rows // 2, columns // 2)
        return self.apply("MaxPool", kernel_shape=[2, 2], strides=[2, 2])

    def flatten(self) -> Dialect:
        self.shape = (int(np.prod(self.shape)),)
        return self.apply("Flatten")

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *self.given])],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, ["n", *self.shape])],
            [numpy_helper.from_array(values, name) for name, values in self.constants.items()],
        )
        imports = [helper.make_opsetid("", self.opset)]
        if self.name == "qonnx":
            imports.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def fixed(self, frames: int) -> onnx.ModelProto:
        """Return the model with a fixed number of frames per batch."""
        model = self.model()
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = frames
        return model

    def frames(self, count: int) -> np.ndarray:
        return np.random.default_rng([self.seed, 41]).normal(0, 1, (count, *self.given)).astype(np.float32)


def limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Return the smallest and the largest integer of a quantiser."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _residual(net: Dialect) -> Dialect:
    net.enter(4, signed=True).conv(6, 3, pads=1).apply("Relu").act(4)
    shortcut = net.tensor
    net.conv(6, 3, pads=1, bias="float").act(4, signed=True)
    net.tensor = net.node("Add", net.tensor, shortcut)
    return net.apply("Relu").act(3).conv(4, 1, bits=3).act(6, signed=True)


def _joined(net: Dialect) -> Dialect:
    net.enter(5, signed=True).conv(4, 1).act(4)
    one, (channels, *sizes) = net.tensor, net.shape
    net.conv(5, 3, pads=1).act(6, signed=True)
    net.tensor = net.node("Concat", one, net.tensor, axis=1)
    net.shape = (channels + 5, *sizes)
    return net.act(5, signed=True).conv(4, 3, stride=2).act(4)


def _mixed(net: Dialect) -> Dialect:
    net.enter(8, signed=True).conv(6, bits=8, per_channel=True).normalise().apply("Relu").act(3)
    net.conv(6, bits=3, pads=1, stride=2, per_channel=True).normalise(negative=True).act(5, signed=True)
    return net.flatten().dense(7, bits=6).act(8, signed=True)


def _sprinkled(net: Dialect) -> Dialect:
    """Build a network with nodes that exporters leave: Identity, Dropout, separate constants, a computed Reshape."""
    net.enter(6, signed=True).apply("Identity").conv(4, bits=5, bias="added").apply("Relu").apply("Dropout")
    net.act(4).apply("Dropout").pool()
    sizes = net.node("Shape", net.tensor)
    first = net.node("Gather", sizes, net.constant(0, np.int64), axis=0)
    row = net.node("Reshape", first, net.constant([1], np.int64))
    net.tensor = net.node("Reshape", net.tensor, net.node("Concat", row, net.constant([-1], np.int64), axis=0))
    net.shape = (int(np.prod(net.shape)),)
    net.dense(8).apply("Identity").apply("Relu").act(4)
    return net.dense(5, style="Gemm", bias=False).act(7, signed=True)


def _moved(net: Dialect) -> Dialect:
    """Matrices that are transposed behind their quantiser, and a bias of their own behind them."""
    net.enter(5, signed=True).conv(4, bits=5, stride=2, bias="added").apply("Relu").act(4)
    net.shape = (int(np.prod(net.shape)),)
    net.apply("Reshape", net.constant([-1, *net.shape], np.int64)).dense(8, style="Transpose").apply("Relu").act(4)
    return net.dense(5, bits=6, style="MatMul", per_channel=True).act(7, signed=True)


def _averaged(net: Dialect) -> Dialect:
    net.enter(8, signed=True).conv(5, 3, pads=1).apply("Relu").act(4)
    net.shape = (net.shape[0], 1, 1)
    net.apply("GlobalAveragePool").act(4, reach=2.0713)
    return net.flatten().dense(4).act(8, signed=True)


NETWORKS: dict[str, Callable[[Dialect], Dialect]] = {
    "4 bits": lambda net: net.enter(4, signed=True).conv(6).act(4).pool().conv(5, bias="float").act(4, signed=True),
    "2 bits": lambda net: net.enter(2, signed=True).conv(8, bits=2).act(2).conv(8, bits=2, pads=1).act(2),
    "narrow": lambda net: (
        net.enter(4, signed=True, narrow=True).conv(6).act(4, signed=True, narrow=True).conv(4).act(3, narrow=True)
    ),
    "per channel": lambda net: (
        net.enter()
        .conv(7, bits=5, per_channel=True, narrow=False)
        .act(5)
        .conv(6, bits=4, per_channel=True, stride=2, bias="float")
        .act(6, signed=True)
    ),
    "normalised": lambda net: (
        net.enter(8, signed=True)
        .conv(6)
        .normalise()
        .apply("Relu")
        .act(4)
        .conv(6)
        .normalise(negative=True)
        .act(3, signed=True)
    ),
    "depthwise": lambda net: (
        net.enter(6, signed=True)
        .conv(3, groups=3, pads=1, per_channel=True)
        .normalise()
        .act(5)
        .conv(6, 1, bits=6)
        .act(4)
    ),
    "multilayer": lambda net: (
        net.enter(3, signed=True).flatten().dense(12, bits=2).act(3).dense(6, bits=3).act(8, signed=True)
    ),
    "mixed": _mixed,
    "residual": _residual,
    "joined": _joined,
    "sprinkled": _sprinkled,
    "moved": _moved,
    "averaged": _averaged,
    "scaled": lambda net: (
        net.enter(4, signed=True)
        .conv(5)
        .arithmetic("Mul", [[[0.7]], [[-0.4]], [[1.3]], [[0.5]], [[-1]]])
        .arithmetic("Sub", 0.1)
        .act(5, signed=True)
        .conv(4, bits=7)
        .arithmetic("Div", 1.7)
        .apply("Relu")
        .act(7)
    ),
}
"""Each with other widths, signs and ranges."""


def integers(net: Dialect, reals: np.ndarray) -> np.ndarray:
    """Return the integers that a network's float outputs stand for, by its scale and zero point."""
    return np.rint(reals / net.scale).astype(np.int64) + net.zero


def compared(net: Dialect, theirs: np.ndarray, model: onnx.ModelProto, frames: np.ndarray) -> tuple[int, int]:
    """Return the number of values, and the number that differ by 1. Check that none differs by more."""
    network = to_network(model, "network")
    ours = golden.run(network, prepare_inputs(network, frames)).reshape(theirs.shape).astype(np.int64)
    difference = np.abs(ours - integers(net, theirs))
    assert difference.max() <= 1
    return difference.size, int(np.count_nonzero(difference))


def maps(network: Network) -> list[str]:
    """Types of the input's map and of each layer's."""
    return [str(each) for each in (network.input.type, *(layer.output.type for layer in network.layers))]


def check_in_hardware(net: Dialect, folder: Path) -> None:
    """Values and cycles, with files in ``folder``."""
    simulate_model(net.model(), net.frames(3), folder, "icarus" if shutil.which("iverilog") else "amaranth")


def simulate_model(model: onnx.ModelProto, frames: np.ndarray, folder: Path, simulator: str) -> None:
    """Check values and cycles of a model's hardware, with files in ``folder``."""
    onnx.save(model, folder / "network.onnx")
    result = (
        hwgen.load(folder / "network.onnx")
        .plan("zedboard", dsp=60, multipliers="dsp")
        .simulate(frames, simulator=simulator)
    )
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)


def own_type(element: int, opset: int) -> onnx.ModelProto:
    """Float, QuantizeLinear to one of ONNX's own narrow types, Conv, and the same again."""
    kind = IntegerType(bits=4 if "4" in TensorProto.DataType.Name(element) else 2, signed=element in (22, 26))
    rng = np.random.default_rng(int(element))
    weights = rng.integers(kind.minimum, kind.maximum + 1, (4, 3, 3, 3))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["weights"]),
        helper.make_node("Conv", ["real", "weights"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "y_scale", "zero"], ["y"]),
        helper.make_node("DequantizeLinear", ["y", "y_scale", "zero"], ["y_real"]),
    ]
    return as_model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", 3, 8, 8])},
        {"y_real": (TensorProto.FLOAT, ["n", 4, 6, 6])},
        [
            numpy_helper.from_array(np.array(0.5, np.float32), "scale"),
            numpy_helper.from_array(np.array(2, np.float32), "y_scale"),
            helper.make_tensor("zero", element, (), [0]),
            helper.make_tensor("w", element, weights.shape, weights.reshape(-1).tolist()),
        ],
        opset=opset,
        ir_version=10 if opset < 25 else 13,
    )


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
    return as_model(
        nodes,
        {"x": (TensorProto.FLOAT, [4, channels, 6, 6])},
        {"y": (TensorProto.FLOAT, [4, outputs, 7 - rows, 7 - columns])},
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in constants.items()],
        opset=13,
        domains=[QONNX],
        ir_version=8,
    )


WEIGHTS = np.random.default_rng(3).normal(0, 0.4, (4, 3, 3, 3)).astype(np.float32)


def by_qonnx(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return a model's output by the qonnx package, node by node."""
    return tensors_by_qonnx(model, x)[model.graph.output[0].name]


def tensors_by_qonnx(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return all tensors of a model by the qonnx package, with an IR version that ONNX Runtime supports."""
    pytest.importorskip("qonnx", reason="the referee of QONNX models is the qonnx package: pip install qonnx")
    with warnings.catch_warnings(), mock.patch.object(onnx, "IR_VERSION", 10):
        warnings.simplefilter("ignore")
        from qonnx.core.modelwrapper import ModelWrapper
        from qonnx.core.onnx_exec import execute_onnx
        from qonnx.transformation.infer_shapes import InferShapes

        wrapped = ModelWrapper(model).transform(InferShapes())
        return execute_onnx(wrapped, {model.graph.input[0].name: x}, return_full_exec_context=True)
