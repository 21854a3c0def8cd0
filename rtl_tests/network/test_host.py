"""What runs on the host: the model's own outputs, and the shapes in which arrays come and go.

Referee: ONNX Runtime on the whole model, in a session with default optimisation that may keep int8. Scales are powers
of two and weights small, so that its integers are hwgen's on any machine; what is tested is what it makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import Frames, as_model
from onnxruntime.quantization import QuantFormat, quantize_static

import hwgen
from hwgen.cli import main as cli
from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.maps import INT8
from hwgen.network.onnx.importer import to_network

FRAMES = 5


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray, tensor: tuple[str, str] | None = None) -> np.ndarray:
    """The model's output for all frames of ``x``, one batch after the other if it has one.

    Of another ``tensor`` by its name and type.
    """
    if tensor is not None:
        model = whole(model)
        name, dtype = tensor
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, kind, None))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    batch = source.shape[0] if isinstance(source.shape[0], int) else len(x)
    rows = []
    for start in range(0, len(x), batch):
        part = np.resize(x[start : start + batch], (batch, *x.shape[1:]))  # repeated where frames are too few
        (y,) = session.run(None, {source.name: part})
        rows += list(np.asarray(y)) if batch > 1 or np.shape(y)[:1] == (1,) else [np.asarray(y)]
    return np.stack(rows[: len(x)])


def whole(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


class Net:
    """Writes a model of one convolution (or one matrix product) and any operators behind its integers."""

    def __init__(
        self, *, batch: int | str = "batch", dense: bool = False, dtype: str = "uint8", integers_in: bool = False
    ) -> None:
        self.batch, self.dtype = batch, dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        random = np.random.default_rng(3)
        self.frame: tuple[int, ...] = (24,) if dense else (3, 6, 7)
        self.shape: tuple[int, ...] = (10,) if dense else (4, 4, 5)
        """Of a frame of the last integer tensor."""
        self.scale, self.zero = self.constant(np.float32(1 / 16)), self.constant(np.array(100, dtype))
        self.input = "x"
        self.kind = TensorProto.FLOAT
        tensor = "x"
        if integers_in:
            self.kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        else:
            tensor = self.add("QuantizeLinear", tensor, self.scale, self.zero)
        tensor = self.add("DequantizeLinear", tensor, self.scale, self.zero)
        weights = random.integers(-30, 31, (24, 10) if dense else (4, 3, 3, 3)).astype(np.int8)
        weights = self.add("DequantizeLinear", self.constant(weights), self.constant(np.float32(2.0**-6)))
        tensor = self.add("MatMul" if dense else "Conv", tensor, weights)
        self.tensor = self.integers = self.quantise(tensor)

    def constant(self, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, operator: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}_{index}" for index in range(outputs)]
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, names, name=name, domain=domain, **attributes))
        return names[-1]

    def behind(self, operator: str, *constants: Any, **attributes: Any) -> None:
        """One more operator, with constants as its other operands."""
        self.tensor = self.add(operator, self.tensor, *map(self.constant, constants), **attributes)

    def quantise(self, tensor: str) -> str:
        return self.add("QuantizeLinear", tensor, self.scale, self.zero)

    def dequantise(self) -> None:
        self.tensor = self.add("DequantizeLinear", self.tensor, self.scale, self.zero)

    def model(self, kind: int = TensorProto.FLOAT, rank: int | None = None) -> onnx.ModelProto:
        return as_model(
            self.nodes,
            {"x": (self.kind, [self.batch, *self.frame])},
            {self.tensor: (kind, None if rank is None else [None] * rank)},
            self.constants,
            opset=21,
            domains=["com.microsoft"],
        )

    def frames(self, count: int = FRAMES) -> np.ndarray:
        random = np.random.default_rng(1)
        if self.kind == TensorProto.FLOAT:
            return random.normal(0, 3, (count, *self.frame)).astype(np.float32)
        limits = np.iinfo(self.dtype)
        return random.integers(limits.min, limits.max, (count, *self.frame), self.dtype, endpoint=True)


def save(model: onnx.ModelProto, folder: Path, name: str = "net.onnx") -> str:
    onnx.save(model, folder / name)
    return str(folder / name)


# Operators after the last integer tensor.


def _softmax(net: Net) -> None:
    net.dequantise()
    net.behind("Softmax", axis=-1)


def _flat_softmax(net: Net) -> None:
    net.dequantise()
    net.behind("Flatten")
    net.behind("Softmax")


def _quantised_softmax(net: Net) -> None:
    _flat_softmax(net)
    scale, zero = np.float32(1 / 256), np.array(np.iinfo(net.dtype).min, net.dtype)
    net.behind("QuantizeLinear", scale, zero)
    net.behind("DequantizeLinear", scale, zero)


def _sigmoid(net: Net) -> None:
    net.dequantise()
    net.behind("Sigmoid")


def _decode(net: Net) -> None:
    """x * sigmoid(x), shifted and so on: a branch, and operators of the hardware behind one that is not."""
    net.dequantise()
    net.tensor = net.add("Mul", net.tensor, net.add("Sigmoid", net.tensor))
    net.behind("Add", np.float32(0.3))
    net.behind("Relu")
    net.behind("Exp")


def _planes(net: Net) -> None:
    net.dequantise()
    net.behind("Reshape", np.array([0, 2, -1]))
    net.behind("Transpose", perm=[0, 2, 1])


def _turned(net: Net) -> None:
    """As a quantiser writes a Transpose: between QuantizeLinear and DequantizeLinear."""
    net.dequantise()
    net.behind("Transpose", perm=[0, 3, 1, 2])
    net.tensor = net.quantise(net.tensor)
    net.dequantise()


def _by_shape(net: Net) -> None:
    """As PyTorch writes x.view(x.size(0), -1)."""
    net.dequantise()
    rows = net.add("Gather", net.add("Shape", net.tensor), net.constant(np.array([0])))
    shape = net.add("Concat", rows, net.constant(np.array([-1])), axis=0)
    net.tensor = net.add("Reshape", net.tensor, shape)
    net.behind("LogSoftmax")


def _pooled(net: Net) -> None:
    """A pool that no QuantizeLinear follows: it is built in integers, with DequantizeLinear behind it."""
    net.dequantise()
    net.behind("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.behind("Softmax", axis=1)


def _pooled_beside_its_name(net: Net) -> None:
    """The name that the pool's integers would have is another tensor's."""
    _pooled(net)
    pooled = net.nodes[-2].output[0]
    net.tensor = net.nodes[-1].output[0] = f"{pooled}_integers"
    net.behind("Exp")


def _best(net: Net) -> None:
    net.behind("ArgMax", axis=1, keepdims=0)


def _classes(net: Net) -> None:
    _flat_softmax(net)
    net.behind("TopK", np.array([3]), outputs=2)


def _mean(net: Net) -> None:
    net.dequantise()
    net.behind("ReduceMean", np.array([2, 3]), keepdims=0)


def _constant_node(net: Net) -> None:
    """Scale and zero point of the last DequantizeLinear from Constant nodes, one of them through Identity."""
    scale = net.add("Constant", value=numpy_helper.from_array(np.float32(1 / 16)))
    zero = net.add("Identity", net.add("Constant", value=numpy_helper.from_array(np.array(100, net.dtype))))
    net.tensor = net.add("DequantizeLinear", net.tensor, scale, zero)
    net.behind("MaxPool", kernel_shape=[2, 2])


def _other_scale(net: Net) -> None:
    net.behind("DequantizeLinear", np.float32(0.3), np.array(7, net.dtype))


TAILS: dict[str, tuple[Callable[[Net], None], list[str], int, int]] = {
    "none": (lambda net: None, [], 0, 4),
    "dequantised": (Net.dequantise, ["DequantizeLinear"], TensorProto.FLOAT, 4),
    "softmax": (_softmax, ["DequantizeLinear", "Softmax"], TensorProto.FLOAT, 4),
    "flat softmax": (_flat_softmax, ["DequantizeLinear", "Flatten", "Softmax"], TensorProto.FLOAT, 2),
    "quantised softmax": (
        _quantised_softmax,
        ["DequantizeLinear", "Flatten", "Softmax", "QuantizeLinear", "DequantizeLinear"],
        TensorProto.FLOAT,
        2,
    ),
    "sigmoid": (_sigmoid, ["DequantizeLinear", "Sigmoid"], TensorProto.FLOAT, 4),
    "decode": (_decode, ["DequantizeLinear", "Sigmoid", "Mul", "Add", "Relu", "Exp"], TensorProto.FLOAT, 4),
    "planes": (_planes, ["DequantizeLinear", "Reshape", "Transpose"], TensorProto.FLOAT, 3),
    "turned": (
        _turned,
        ["DequantizeLinear", "Transpose", "QuantizeLinear", "DequantizeLinear"],
        TensorProto.FLOAT,
        4,
    ),
    "by shape": (
        _by_shape,
        ["DequantizeLinear", "Shape", "Gather", "Concat", "Reshape", "LogSoftmax"],
        TensorProto.FLOAT,
        2,
    ),
    "best": (_best, ["ArgMax"], TensorProto.INT64, 3),
    "classes": (_classes, ["DequantizeLinear", "Flatten", "Softmax", "TopK"], TensorProto.INT64, 2),
    "mean": (_mean, ["DequantizeLinear", "ReduceMean"], TensorProto.FLOAT, 2),
    "other scale": (_other_scale, ["DequantizeLinear"], TensorProto.FLOAT, 4),
}


@pytest.mark.parametrize("batch", ["batch", 1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("tail", TAILS)
def test_outputs_are_onnx_runtime_s(tmp_path: Path, tail: str, dtype: str, batch: int | str) -> None:
    """Every bit of the output, in its type and shape; and the last integer tensor in its own."""
    write, operators, kind, rank = TAILS[tail]
    net = Net(batch=batch, dtype=dtype)
    write(net)
    onnx_model = net.model(kind or helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), rank)
    model = hwgen.load(save(onnx_model, tmp_path))
    assert model.host["host"] == {"before": ["QuantizeLinear"], "behind": operators}
    assert model.host["output"]["name"] == net.integers
    x = net.frames()
    expected = by_onnxruntime(onnx_model, x)
    outputs = model.golden(x)
    assert (outputs.dtype, outputs.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(outputs, expected)
    assert len(np.unique(outputs)) > 3
    integers = model.golden(x, integers=True)
    assert integers.dtype == dtype
    np.testing.assert_array_equal(integers, by_onnxruntime(onnx_model, x, (net.integers, dtype)))


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_sixteen_bits(tmp_path: Path, dtype: str) -> None:
    """ONNX Runtime computes the layers of such models in floats that round; DequantizeLinear by its definition."""
    net = Net(dtype=dtype)
    net.dequantise()
    model = hwgen.load(save(net.model(rank=4), tmp_path))
    integers = model.golden(net.frames(), integers=True)
    assert integers.dtype == dtype
    expected = (integers.astype(np.int64) - 100).astype(np.float32) * np.float32(1 / 16)
    np.testing.assert_array_equal(model.golden(net.frames()), expected, strict=True)


@pytest.mark.parametrize("write", [_pooled, _constant_node, _pooled_beside_its_name])
@pytest.mark.parametrize("batch", ["batch", 1, 2])
def test_float_pool_at_the_end_is_built(tmp_path: Path, batch: int | str, write: Callable[[Net], None]) -> None:
    net = Net(batch=batch)
    write(net)
    onnx_model = net.model(rank=4)
    model = hwgen.load(save(onnx_model, tmp_path))
    assert [layer.kind for layer in model.network.layers] == ["conv", "maxpool"]
    assert model.host["host"]["behind"][0] == "DequantizeLinear"
    np.testing.assert_array_equal(model.golden(net.frames()), by_onnxruntime(onnx_model, net.frames()))
    integers = model.golden(net.frames(), integers=True)
    assert integers.dtype == np.uint8
    assert integers.shape == (FRAMES, *model.output.shape)


@pytest.mark.parametrize(
    ("batch", "shape"), [(1, [1, 80]), (1, [80]), ("batch", [1, 80]), (1, [1, -1]), ("batch", [80])]
)
def test_a_batch_of_one_written_into_the_model(tmp_path: Path, batch: int | str, shape: list[int]) -> None:
    """Frame by frame, also where the input's batch is symbolic; a batch that is dropped is put back."""
    net = Net(batch=batch)
    net.dequantise()
    net.behind("Reshape", np.array(shape))
    net.behind("Softmax", axis=-1)
    onnx_model = net.model(rank=len(shape))
    x = net.frames()
    outputs = hwgen.load(save(onnx_model, tmp_path)).golden(x)
    assert outputs.shape == (FRAMES, 80)
    each = [by_onnxruntime(onnx_model, x[index : index + 1]).reshape(80) for index in range(FRAMES)]
    np.testing.assert_array_equal(outputs, np.stack(each))


@pytest.mark.parametrize("operator", ["Transpose", "Flatten"])
def test_batch_that_the_output_does_not_have(operator: str) -> None:
    net = Net(batch=4)
    net.dequantise()
    if operator == "Transpose":
        net.behind("Transpose", perm=_SWAPPED)  # of as many channels as frames
    else:
        net.behind("Flatten", axis=2)
    message = f"^net: output '{net.tensor}' must have 4 rows, one per frame; move the frames to its first axis, "
    with pytest.raises(hwgen.ModelError, match=message) as error:
        to_network(net.model(rank=4 if operator == "Transpose" else 2), "net")
    assert "\n" not in str(error.value)


def test_batch_that_a_computed_shape_does_not_have() -> None:
    net = Net(batch=4)
    net.dequantise()
    half = net.add("Div", net.add("Shape", net.tensor, start=0, end=1), net.constant(np.array([2])))
    net.tensor = net.add("Reshape", net.tensor, net.add("Concat", half, net.constant(np.array([-1])), axis=0))
    with pytest.raises(hwgen.ModelError, match=r"net: Reshape node '\w+': its shape \[2, -1\] depends on the number"):
        to_network(net.model(rank=2), "net")


@pytest.mark.parametrize("frames", [4, 5])
def test_frames_along_another_axis_than_the_first(tmp_path: Path, frames: int) -> None:
    """Each frame is computed by itself, also where there are as many frames as the output has rows."""
    net = Net()
    net.dequantise()
    net.behind("Transpose", perm=_SWAPPED)
    net.behind("Softmax", axis=0)
    onnx_model = net.model(rank=4)
    x = net.frames(frames)
    outputs = hwgen.load(save(onnx_model, tmp_path)).golden(x)
    each = [by_onnxruntime(onnx_model, x[index : index + 1]) for index in range(frames)]
    np.testing.assert_array_equal(outputs, np.concatenate(each))


def test_a_batch_that_no_memory_holds(tmp_path: Path) -> None:
    net = Net(batch=2**31)
    net.dequantise()
    with pytest.raises(hwgen.ModelError, match=r"net: its batch of 2,147,483,648 frames is too large"):
        hwgen.load(save(net.model(rank=4), tmp_path)).golden(net.frames())


def test_what_onnx_runtime_can_not_run(tmp_path: Path) -> None:
    """A Reshape that never fits, which ONNX's checker can't know: one line, before the simulation."""
    net = Net()
    net.dequantise()
    net.behind("Reshape", np.array([7, 11, 2]))
    model = hwgen.load(save(net.model(rank=3), tmp_path))
    for run in (model.golden, model.plan("zedboard").simulate):
        with pytest.raises(
            hwgen.ModelError, match=r"^net: ONNX Runtime can't run DequantizeLinear, Reshape after"
        ) as e:
            run(net.frames())
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("zero", [0, 3])
def test_accumulators_at_the_end(tmp_path: Path, zero: int) -> None:
    """ConvInteger's int32, scaled on the host as dynamic quantisation writes it, or by DequantizeLinear."""
    random = np.random.default_rng(2)
    weights = numpy_helper.from_array(random.integers(-20, 21, (4, 3, 3, 3)).astype(np.int8), "w")
    zeros = numpy_helper.from_array(np.array(zero, np.uint8), "z")
    scale = numpy_helper.from_array(np.float32(0.013), "s")
    tails = [
        [helper.make_node("Cast", ["a"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["f", "s"], ["y"])],
        [helper.make_node("DequantizeLinear", ["a", "s"], ["y"])],
    ]
    x = random.integers(0, 256, (3, 3, 6, 7)).astype(np.uint8)
    for tail, stated in zip(tails, (None, float(np.float32(0.013))), strict=True):
        onnx_model = as_model(
            [helper.make_node("ConvInteger", ["x", "w", "z"], ["a"]), *tail],
            {"x": (TensorProto.UINT8, ["batch", 3, 6, 7])},
            {"y": (TensorProto.FLOAT, ["batch", 4, 4, 5])},
            [weights, zeros, scale],
            opset=21,
        )
        model = hwgen.load(save(onnx_model, tmp_path))
        assert model.host["host"] == {"before": [], "behind": [node.op_type for node in tail]}
        assert model.host["output"]["scale"] == stated
        np.testing.assert_array_equal(model.golden(x), by_onnxruntime(onnx_model, x))
        assert model.golden(x, integers=True).dtype == np.int32


def test_operators_of_the_quantiser(tmp_path: Path) -> None:
    """QLinearSoftmax behind QGemm, and QuantizeLinear behind Softmax; where its integers are hwgen's."""
    random = np.random.default_rng(4)
    constants = [
        numpy_helper.from_array(random.normal(0, 0.2, shape).astype(np.float32), name)
        for name, shape in (("w", (24, 10)), ("b", (10,)))
    ]
    floats = as_model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Softmax", ["g"], ["y"])],
        {"x": (TensorProto.FLOAT, ["batch", 24])},
        {"y": (TensorProto.FLOAT, ["batch", 10])},
        constants,
    )
    x = random.normal(0, 1, (40, 24)).astype(np.float32)
    formats = {
        QuantFormat.QOperator: ["QLinearSoftmax", "DequantizeLinear"],
        QuantFormat.QDQ: ["DequantizeLinear", "Softmax", "QuantizeLinear", "DequantizeLinear"],
    }
    for form, operators in formats.items():
        quantize_static(floats, tmp_path / "q.onnx", Frames(x), quant_format=form, reduce_range=True)
        model = hwgen.load(tmp_path / "q.onnx")
        assert model.host["host"] == {"before": ["QuantizeLinear"], "behind": operators}
        quantised = onnx.load(tmp_path / "q.onnx")
        theirs = by_onnxruntime(quantised, x, (model.host["output"]["name"], model.host["output"]["type"]))
        same = (theirs == model.golden(x, integers=True)).all(axis=1)
        assert same.mean() > 0.8  # requantisation with any scales is not the matter here
        np.testing.assert_array_equal(model.golden(x)[same], by_onnxruntime(quantised, x)[same])


# What must not move to the host.


def _then_conv(net: Net) -> None:
    weights = net.add("DequantizeLinear", net.constant(np.ones((4, 4, 1, 1), np.int8)), net.constant(np.float32(1)))
    net.tensor = net.add("Conv", net.tensor, weights)


def _softmax_then_conv(net: Net) -> None:
    _softmax(net)
    net.tensor = net.quantise(net.tensor)
    net.dequantise()
    _then_conv(net)
    net.tensor = net.quantise(net.tensor)


def _sigmoid_then_float_conv(net: Net) -> None:
    _sigmoid(net)
    net.behind("Conv", np.ones((4, 4, 1, 1), np.float32))


def _float_matrix(net: Net) -> None:
    net.dequantise()
    net.behind("Flatten")
    net.behind("MatMul", np.ones((80, 3), np.float32))


def _relu(net: Net) -> None:
    net.dequantise()
    net.behind("Relu")


def _turned_normalisation(net: Net) -> None:
    net.dequantise()
    net.behind("Transpose", perm=[0, 2, 3, 1])
    net.behind("LRN", size=3)
    net.tensor = net.quantise(net.tensor)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_softmax_then_conv, r"Softmax node '\w+': runs on the host; only operators without weights can"),
        (_sigmoid_then_float_conv, r"Conv node '\w+': must take a quantised input, but '\w+' gives floats"),
        (_float_matrix, r"MatMul node '\w+': weights '\w+' must be quantised"),
        (_relu, r"Relu node '\w+': gives floats; a QuantizeLinear must follow"),
        (
            _turned_normalisation,
            r"LRN node '\w+': needs channels, rows and columns in this order, but its input is laid out as",
        ),
    ],
)
def test_what_the_hardware_should_do_stays_an_error(write: Callable[[Net], None], message: str) -> None:
    net = Net()
    write(net)
    kind = TensorProto.UINT8 if net.nodes[-1].op_type == "QuantizeLinear" else TensorProto.FLOAT
    with pytest.raises(hwgen.ModelError, match=message) as error:
        to_network(net.model(kind, 2 if write is _float_matrix else 4), "net")
    assert "\n" not in str(error.value)


_SWAPPED = [1, 0, 2, 3]


def _reduced_behind_transpose(net: Net) -> None:
    net.behind("Transpose", perm=_SWAPPED)
    net.behind("ReduceMean", np.array([1]))
    net.behind("Transpose", perm=_SWAPPED)


def _softmax_behind_transpose(net: Net) -> None:
    net.behind("Transpose", perm=_SWAPPED)
    net.behind("Softmax", axis=-3)
    net.behind("Transpose", perm=_SWAPPED)


def _in_one_row(net: Net) -> None:
    net.behind("Reshape", np.array([1, -1]))
    net.behind("Softmax", axis=1)


def _less_the_mean(net: Net) -> None:
    turned = net.add("Transpose", net.tensor, perm=_SWAPPED)
    mean = net.add("Transpose", net.add("ReduceMean", turned, net.constant(np.array([1]))), perm=_SWAPPED)
    net.tensor = net.add("Sub", net.tensor, mean)


def _by_all_frames(net: Net) -> None:
    means = net.add("ReduceMean", net.tensor, net.constant(np.array([1, 2, 3])), keepdims=0)
    net.tensor = net.add("Mul", means, net.add("Unsqueeze", means, net.constant(np.array([1]))))


_FIRST = np.array([0]), np.array([1]), np.array([0])

ALONG = "works along axis {}, which holds the frames; give other axes"
ACROSS_FRAMES: dict[str, tuple[Callable[[Net], None], str, int]] = {
    "all axes": (lambda net: net.behind("ReduceMax", keepdims=0), ALONG.format(0), 0),
    "axis 0 among others": (lambda net: net.behind("ReduceMean", np.array([0, 2, 3])), ALONG.format(0), 4),
    "a negative axis": (lambda net: net.behind("ReduceSum", np.array([-4]), keepdims=1), ALONG.format(-4), 4),
    "the default axis": (lambda net: net.behind("ArgMax"), ALONG.format(0), 4),
    "the greatest frame": (lambda net: net.behind("TopK", np.array([1]), outputs=2, axis=-4), ALONG.format(-4), 4),
    "a running sum": (lambda net: net.behind("CumSum", np.array(0)), ALONG.format(0), 4),
    "the first frame": (lambda net: net.behind("Slice", *_FIRST), ALONG.format(0), 4),
    "the last frame first": (
        lambda net: net.behind("Slice", np.array([-1]), np.array([-99]), np.array([0]), np.array([-1])),
        ALONG.format(0),
        4,
    ),
    "a mean behind a Transpose": (_reduced_behind_transpose, ALONG.format(1), 4),
    "a Softmax behind a Transpose": (_softmax_behind_transpose, ALONG.format(-3), 4),
    "a mean beside the frames": (_less_the_mean, ALONG.format(1), 4),
    "a Softmax of all": (_in_one_row, ALONG.format(1), 2),
    "each by all": (_by_all_frames, "takes the frames of a batch along different axes; move them to one axis", 2),
    "a frame by its address": (
        lambda net: net.behind("GatherND", np.array([[0]])),
        "its indices address axis 0, which holds the frames; give indices of other axes",
        4,
    ),
    "a frame replaced": (
        lambda net: net.behind("ScatterND", np.array([[0]]), np.zeros((1, 4, 4, 5), np.float32)),
        "its indices address axis 0, which holds the frames; give indices of other axes",
        4,
    ),
    "elements of frames": (
        lambda net: net.behind("GatherElements", np.zeros((1, 4, 4, 5), np.int64)),
        ALONG.format(0),
        4,
    ),
    "elements of the first frame": (
        lambda net: net.behind("GatherElements", np.zeros((1, 2, 4, 5), np.int64), axis=1),
        "takes 'c[0-9]+', which is not as long as the batch along axis 0; repeat it for each frame",
        4,
    ),
    "a shape between frames": (
        lambda net: net.behind("Reshape", np.array([4, -1, 5, 4])),
        r"its shape \[4, -1, 5, 4\] depends on the number of frames; begin it with 0",
        4,
    ),
}
"""Operators at the end that mix frames, the end of the message, and the number of the output's dimensions."""


def _net_across_frames(way: str, batch: int | str) -> onnx.ModelProto:
    net = Net(batch=batch)
    net.dequantise()
    write, _, rank = ACROSS_FRAMES[way]
    write(net)
    kind = TensorProto.INT64 if net.nodes[-1].op_type in ("ArgMax", "TopK") else TensorProto.FLOAT
    return net.model(kind, rank)


@pytest.mark.parametrize("batch", ["batch", 3])
@pytest.mark.parametrize("way", ACROSS_FRAMES)
def test_frames_are_not_mixed(way: str, batch: int | str) -> None:
    message = rf"^net: \w+ node '\w+': {ACROSS_FRAMES[way][1]}, or export the model for a batch of 1$"
    with pytest.raises(hwgen.ModelError, match=message):
        to_network(_net_across_frames(way, batch), "net")


@pytest.mark.parametrize("way", ACROSS_FRAMES)
def test_a_single_frame_is_not_mixed(way: str, tmp_path: Path) -> None:
    model = _net_across_frames(way, 1)
    x = Net(batch=1).frames()
    found = hwgen.load(save(model, tmp_path)).golden(x)
    np.testing.assert_array_equal(found.reshape(FRAMES, -1), by_onnxruntime(model, x).reshape(FRAMES, -1))


def _batch_size(net: Net) -> str:
    return net.add("Gather", net.add("Shape", net.tensor), net.constant(np.array(0)))


def _by_their_number(net: Net) -> None:
    net.tensor = net.add("Div", net.tensor, net.add("Cast", _batch_size(net), to=TensorProto.FLOAT))


def _by_their_index(net: Net) -> None:
    index = net.add("Range", net.constant(np.array(0)), _batch_size(net), net.constant(np.array(1)))
    column = net.add("Reshape", index, net.constant(np.array([-1, 1, 1, 1])))
    net.tensor = net.add("Add", net.tensor, net.add("Cast", column, to=TensorProto.FLOAT))


@pytest.mark.parametrize("write", [_by_their_number, _by_their_index])
def test_values_that_depend_on_the_batch(write) -> None:
    """With a batch of any number of frames, such values make a frame's result depend on how many others there are."""
    net = Net()
    net.dequantise()
    write(net)
    with pytest.raises(
        hwgen.ModelError, match="computes with the number of frames of a batch; leave it out, or export"
    ):
        to_network(net.model(rank=4), "net")


def _zeros_of_a_computed_shape(net: Net) -> None:
    net.tensor = net.add("Add", net.tensor, net.add("ConstantOfShape", net.add("Shape", net.tensor)))


def _channel_of_every_frame(net: Net) -> None:
    """Address channel 1 of each frame by indices that the model computes from the number of frames."""
    index = net.add("Range", net.constant(np.array(0)), _batch_size(net), net.constant(np.array(1)))
    column = net.add("Reshape", index, net.constant(np.array([-1, 1])))
    ones = net.add("Add", net.add("Mul", column, net.constant(np.array(0))), net.constant(np.array(1)))
    net.tensor = net.add("GatherND", net.tensor, net.add("Concat", column, ones, axis=1))


@pytest.mark.parametrize(("write", "rank"), [(_zeros_of_a_computed_shape, 4), (_channel_of_every_frame, 3)])
def test_tensors_of_the_batch_that_treat_all_frames_alike(write, rank, tmp_path: Path) -> None:
    net = Net()
    net.dequantise()
    write(net)
    model = net.model(rank=rank)
    x = net.frames()
    np.testing.assert_array_equal(hwgen.load(save(model, tmp_path)).golden(x), by_onnxruntime(model, x))


def test_addresses_of_every_frame(tmp_path: Path) -> None:
    """Constant indices of a fixed batch may address the same values in every frame."""
    net = Net(batch=FRAMES)
    net.dequantise()
    net.behind("GatherND", np.array([[frame, 1] for frame in range(FRAMES)]))
    model, x = net.model(rank=3), net.frames()
    np.testing.assert_array_equal(hwgen.load(save(model, tmp_path)).golden(x), by_onnxruntime(model, x))


def _positions_above_zero(net: Net) -> None:
    net.behind("Greater", np.float32(0))
    net.behind("NonZero")


def _sizes(net: Net) -> None:
    net.tensor = net.add("Shape", net.tensor)


def _columns_of_a_table(net: Net) -> None:
    """Four rows, with the frames along axis 1."""
    best = net.add("ArgMax", net.tensor, axis=1, keepdims=0)
    net.tensor = net.add("Gather", net.constant(np.arange(16).reshape(4, 4)), best, axis=1)


@pytest.mark.parametrize(
    ("write", "rank", "message"),
    [
        (_positions_above_zero, 2, "has rows of all 4 frames of a batch, as many as their values make; export the"),
        (_sizes, 1, "must have 4 rows, one per frame; move the frames to its first axis, or export the model for a"),
        (_columns_of_a_table, 4, "must have 4 rows, one per frame; move the frames to its first axis, or export the"),
    ],
)
def test_outputs_with_as_many_rows_as_frames_by_chance(write, rank: int, message: str) -> None:
    net = Net(batch=4)
    net.dequantise()
    write(net)
    with pytest.raises(hwgen.ModelError, match=rf"^net: output '\w+' {message}"):
        to_network(net.model(TensorProto.INT64, rank), "net")


def test_an_output_of_the_number_of_frames() -> None:
    net = Net()
    net.dequantise()
    _sizes(net)
    with pytest.raises(hwgen.ModelError, match=r"^net: output '\w+' depends on the number of frames, and not on the "):
        to_network(net.model(TensorProto.INT64, 1), "net")


def test_reductions_that_reduce_nothing_stay() -> None:
    net = Net()
    net.dequantise()
    net.behind("ReduceMax", noop_with_empty_axes=1)
    assert to_network(net.model(rank=4), "net").host is not None


# Shapes and files.


@pytest.mark.parametrize("integers_in", [False, True])
def test_features(tmp_path: Path, integers_in: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """A model with input (N, features) takes and gives arrays of such shapes; (n, features, 1, 1) does as well."""
    net = Net(dense=True, integers_in=integers_in)
    net.dequantise()
    net.behind("Softmax")
    onnx_model = net.model(rank=2)
    path = save(onnx_model, tmp_path)
    x = net.frames()
    model = hwgen.load(path)
    assert model.host["input"]["shape"] == [24]
    expected = by_onnxruntime(onnx_model, x)
    np.testing.assert_array_equal(model.golden(x), expected)
    np.testing.assert_array_equal(model.golden(x[:, :, None, None]), expected)
    np.save(tmp_path / "x.npy", x)
    arguments = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    assert cli.main(["golden", path, *arguments]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    how = ["--board", "zedboard", "--multipliers", "dsp", "--simulator", "amaranth"]
    simulation = ["simulate", path, *how, *arguments]
    assert cli.main(simulation) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    assert cli.main([*simulation, "--integers"]) == 0
    theirs = by_onnxruntime(onnx_model, x, (net.integers, "uint8"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), theirs)
    assert np.load(tmp_path / "y.npy").dtype == theirs.dtype
    for bad in (x[:, :23], x[:, :, None], x.reshape(FRAMES, 1, 24, 1), x[0]):
        with pytest.raises(hwgen.InputError, match=r"net: input must have shape \(frames, 24\), not \("):
            model.golden(bad)
    with pytest.raises(hwgen.InputError, match="net: input must have one frame at least, not none"):
        model.golden(x[:0])
    capfd.readouterr()


@pytest.mark.parametrize("operator", ["Flatten", "Reshape"])
def test_reshaping_before_the_first_integers(tmp_path: Path, operator: str) -> None:
    """A quantiser leaves the Flatten of a float image as it is."""
    net = Net(dense=True)
    shape = () if operator == "Flatten" else (net.constant(np.array([-1, 24])),)
    net.nodes.insert(0, helper.make_node(operator, ["x", *shape], ["flat"]))
    net.nodes[1].input[0] = "flat"
    net.frame = (2, 3, 4)
    net.dequantise()
    onnx_model = net.model(rank=2)
    model = hwgen.load(save(onnx_model, tmp_path))
    assert model.host["host"] == {"before": [operator, "QuantizeLinear"], "behind": ["DequantizeLinear"]}
    assert model.host["input"]["shape"] == [2, 3, 4]
    np.testing.assert_array_equal(model.golden(net.frames()), by_onnxruntime(onnx_model, net.frames()))


def test_features_of_a_float_model(tmp_path: Path) -> None:
    model = as_model(
        [helper.make_node("Gemm", ["x", "w"], ["g"], name="fc"), helper.make_node("Softmax", ["g"], ["y"])],
        {"x": (TensorProto.FLOAT, ["batch", 6])},
        {"y": (TensorProto.FLOAT, ["batch", 4])},
        {"w": np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float32)},
        opset=21,
    )
    x = np.random.default_rng(1).normal(0, 1, (50, 6)).astype(np.float32)
    ours = hwgen.load(save(model, tmp_path), calibration=x).golden(x)
    assert ours.dtype == np.float32
    assert np.abs(ours - by_onnxruntime(model, x)).max() < 0.05


def test_tail_holds_no_weights(tmp_path: Path) -> None:
    """Also of a model whose weights are in another file."""
    net = Net(dense=True)
    net.dequantise()
    net.behind("Mul", np.linspace(0.5, 1, 10, dtype=np.float32))
    onnx_model = net.model(rank=2)
    path = tmp_path / "net.onnx"
    onnx.save(whole(onnx_model), path, save_as_external_data=True, location="net.data", size_threshold=64)
    assert (tmp_path / "net.data").stat().st_size >= 240
    model = hwgen.load(path)
    np.testing.assert_array_equal(model.golden(net.frames()), by_onnxruntime(onnx_model, net.frames()))
    assert model.network.host is not None
    assert model.network.host.outputs[0].tail is not None
    cut = onnx.load_from_string(model.network.host.outputs[0].tail)
    assert [node.op_type for node in cut.graph.node] == ["DequantizeLinear", "Mul"]
    assert (
        sum(numpy_helper.to_array(tensor).size for tensor in cut.graph.initializer) == 12
    )  # scale, zero point, factors


def test_old_models(tmp_path: Path) -> None:
    """Before version 4 of the format initialisers are inputs too."""
    net = Net()
    _flat_softmax(net)
    model = net.model(rank=2)
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    x = net.frames()
    np.testing.assert_array_equal(hwgen.load(save(model, tmp_path)).golden(x), by_onnxruntime(net.model(rank=2), x))


def test_built_in_networks_end_in_integers() -> None:
    model = hwgen.load("decoilfnet-example")
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 5, 5)).astype(np.float32)
    assert model.host["host"] == {"before": ["QuantizeLinear"], "behind": []}
    np.testing.assert_array_equal(model.golden(x), golden.run(model.network, model.prepare(x)))


def test_networks_made_by_hand_have_no_host() -> None:
    network = Network(name="hand", layers=hwgen.load("decoilfnet-example").network.layers)
    maps = np.zeros((2, *network.output.shape), INT8.dtype)
    assert np.shares_memory(host.outputs(network, maps), maps)
    assert host.operators_line(network) == ""
    assert host.describe(network)["output"]["shape"] == list(network.output.shape)


# What is said of it.


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that ends in Softmax, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    net = Net()
    _flat_softmax(net)
    return save(net.model(rank=2), tmp_path)


LINE = "on the host: QuantizeLinear (before the accelerator), DequantizeLinear, Flatten, Softmax (after it)\n"


def test_host_is_named(named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    board = ["--board", "zedboard", "--dsp", "40"]
    assert cli.main(["plan", named, *board, "-o", "plan.json"]) == 0
    assert LINE in capfd.readouterr().out
    assert cli.main(["build", named, *board, "-o", "result"]) == 0
    assert LINE in capfd.readouterr().out
    report = (tmp_path / "result" / "report.md").read_text()
    assert LINE in report
    assert "| input | x | 3 x 6 x 7 | uint8 | 0.0625 | 100 |" in report
    assert "| output | t4_0 | 4 x 4 x 5 | uint8 | 0.0625 | 100 |" in report
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan == json.loads((tmp_path / "result" / "plan.json").read_text())
    assert plan["input"] == {"name": "x", "shape": [3, 6, 7], "type": "uint8", "scale": 0.0625, "zero_point": 100}
    assert plan["output"] == {"name": "t4_0", "shape": [4, 4, 5], "type": "uint8", "scale": 0.0625, "zero_point": 100}
    assert plan["host"] == {"before": ["QuantizeLinear"], "behind": ["DequantizeLinear", "Flatten", "Softmax"]}


@pytest.mark.parametrize("change", [{"input": 0, "output": [], "host": "x"}, None], ids=["nonsense", "not there"])
def test_plans_are_read_without_it(named: str, tmp_path: Path, change: dict[str, Any] | None) -> None:
    """What the model says is not the plan's to change."""
    model = hwgen.load(named)
    plan = json.loads(model.plan("zedboard", dsp=40, multipliers="dsp").to_json())
    for key in ("input", "output", "host"):
        del plan[key]
    (tmp_path / "plan.json").write_text(json.dumps(plan | (change or {})))
    again = model.plan("zedboard", plan=tmp_path / "plan.json")
    assert again.to_json() == model.plan("zedboard", dsp=40, multipliers="dsp").to_json()


def test_names_do_not_break_the_report(tmp_path: Path) -> None:
    net = Net()
    for node in net.nodes:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == net.tensor:
                    names[index] = "a|b\nc"
    net.tensor = "a|b\nc"
    report = (
        hwgen.load(save(net.model(TensorProto.UINT8, 4), tmp_path)).plan("zedboard", dsp=40, multipliers="dsp").report()
    )
    assert "| output | a\\|b c | 4 x 4 x 5 | uint8 | 0.0625 | 100 |\n" in report


# Hardware, random frames, one-line descriptions.


def test_hardware_s_outputs(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's outputs of what the hardware gave, not of what was expected."""
    model = hwgen.load(named)
    design = model.plan("zedboard", dsp=40, multipliers="dsp")
    x = model.random_frames(3, seed=5)
    onnx_model = onnx.load(named)
    real = ((x.astype(np.int64) - 100) / 16).astype(np.float32)
    right = by_onnxruntime(onnx_model, real)
    result = design.simulate(x, simulator="amaranth")
    assert result.ok
    for outputs in (result.outputs, result.expected, design.golden(x), design.golden(real)):
        np.testing.assert_array_equal(outputs, right)
    np.testing.assert_array_equal(result.integers, design.golden(x, integers=True))
    last = type(model.network.layers[-1])
    compute = last.compute
    monkeypatch.setattr(last, "compute", lambda layer, frame: 200 - np.minimum(compute(layer, frame), 200))
    result = design.simulate(x, simulator="amaranth")
    assert result.mismatches > 0
    np.testing.assert_array_equal(result.outputs, right)
    assert (result.expected != right).any()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_random_frames(tmp_path: Path, dtype: str) -> None:
    model = hwgen.load(
        save(Net(dense=True, dtype=dtype).model(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), 2), tmp_path)
    )
    frames = model.random_frames(400)
    assert (frames.dtype, frames.shape) == (dtype, (400, 24))
    assert (frames.min(), frames.max()) == (np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_array_equal(frames, model.random_frames(400, seed=0))
    assert (frames != model.random_frames(400, seed=1)).any()
    for count in (0, -1, 1.5, True, 10**11):
        with pytest.raises(hwgen.InputError, match="random frames"):
            model.random_frames(count)  # type: ignore[arg-type]


def test_simulate_needs_no_input_file(named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--multipliers", "dsp", "--dsp", "40"]
    arguments = ["simulate", named, "--board", "zedboard", *few, "--simulator", "amaranth"]
    assert cli.main([*arguments, "--random", "4", "--output", "y.npy", "--integers", "--json", "y.json"]) == 0
    assert "input: random uint8 over its whole range, 4 frames, seed 0\n" in capfd.readouterr().out
    model = hwgen.load(named)
    x = model.random_frames(4)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.golden(x, integers=True))
    assert set(json.loads((tmp_path / "y.json").read_text())) == {
        *("frames", "mismatches", "cycles", "memory", "wall_s", "cycles_per_s", "simulator")
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["--input", "--random", "required"]),
        (["--random", "3", "--input", "x.npy"], ["--input", "--random", "not allowed"]),
        (["--random", "0"], ["--random", "positive integer"]),
        (["--random", "x"], ["--random", "positive integer"]),
        (["--random", "100000000000"], ["100,000,000,000 random frames", "at most"]),
        (["--random", "3", "--integers"], ["--integers", "--output"]),
    ],
)
def test_input_options(
    named: str, tmp_path: Path, options: Sequence[str], words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert cli.main(["simulate", named, "--board", "zedboard", *options]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error
    assert sorted(tmp_path.iterdir()) == before


def test_descriptions_are_one_line(named: str) -> None:
    model = hwgen.load(named)
    design = model.plan("zedboard", dsp=40, multipliers="dsp")
    result = design.simulate(model.random_frames(1), simulator="amaranth")
    assert repr(model) == "<Model net: 3x6x7 uint8 to 4x4x5 uint8, 1 layer>"
    assert repr(design) == (
        f"<Design net on zedboard: 1 layer in 1 group, {design.resources['dsp']} DSP slices, "
        f"latency {design.latency:,} cycles, interval {design.interval:,} cycles>"
    )
    assert repr(result) == f"<Result of amaranth, 1 frame: {result.summary()}>"
