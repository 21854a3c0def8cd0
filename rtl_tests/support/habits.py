"""Small float models in the ways that exporters write the same network, and their quantised models.

`HABITS` has an entry for each way: operator sets, sizes that a model computes, forms of pools, products, joins and
ends, and settings of ``quantize_static``. `quantised` quantises one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from exporters import Writer
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import Frames
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

Make = Callable[[Writer], onnx.ModelProto]
Change = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Habit:
    """Way to write a model: its layers, input, operator set, and settings of the quantiser."""

    make: Make
    shape: tuple[int, ...] = (3, 8, 8)
    opset: int = 17
    prepared: bool = True
    """Whether ``quant_pre_process`` runs first."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None
    """Change of the quantised model."""


HABITS: dict[str, Habit] = {}


def habit(*shape: int, **others: Any) -> Callable[[Make], Make]:
    """Return a decorator that adds a way to write a model of this input to `HABITS`."""

    def register(make: Make) -> Make:
        HABITS[make.__name__] = Habit(make, shape or (3, 8, 8), **others)
        return make

    return register


def quantised(name: str) -> tuple[onnx.ModelProto, Writer]:
    """Return the quantised model of the habit ``name``, and its writer."""
    habit = HABITS[name]
    writer = Writer(name, (1, *habit.shape), opset=habit.opset)
    writer.channels["x"] = habit.shape[-1] if habit.shape[-1] < habit.shape[0] else habit.shape[0]
    settings = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, **habit.settings}
    with tempfile.TemporaryDirectory() as folder:
        original, prepared, result = (str(Path(folder) / file) for file in ("original", "prepared", "result"))
        onnx.save(habit.make(writer), original)
        if habit.prepared:
            quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(prepared if habit.prepared else original, result, Frames(writer.frames(6)), **settings)
        model = onnx.load(result)
    if habit.change is not None:
        habit.change(model)
    return model, writer


def _stem(w: Writer, channels: int = 6) -> str:
    return w.block("x", channels)


def _ints(w: Writer, *values: int) -> str:
    return w.constant(np.array(values, np.int64))


def _floats(w: Writer, *shape: int) -> str:
    return w.constant(w.normal(*shape, scale=0.3))


def _ended(w: Writer, x: str, features: int = 6) -> onnx.ModelProto:
    """End with a dense layer behind one pixel of ``features`` channels."""
    return w.model(w.dense(w.node("Flatten", x), features, 5))


# Operator sets.


def _residual(w: Writer) -> onnx.ModelProto:
    x = w.block("x", 6, norm=True)
    return w.classified(w.pool(w.relu(w.node("Add", w.conv(x, 6), x))))


def _averaged(w: Writer) -> onnx.ModelProto:
    x = w.relu(w.node("Add", w.conv(_stem(w), 6), w.conv("x", 6, 1)))
    axes = [_ints(w, 2, 3)] if w.opset >= 18 else []
    along: dict[str, Any] = {} if axes else {"axes": [2, 3]}
    x = w.node("ReduceMean", x, *axes, keepdims=0, **along)
    return w.model(w.node("Softmax", w.dense(x, 6, 5), axis=-1))


for _opset in (11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22):
    HABITS[f"operator set {_opset}"] = Habit(_residual, opset=_opset)
    if _opset >= 13:
        HABITS[f"operator set {_opset}, ReduceMean"] = Habit(_averaged, opset=_opset)


# Sizes that the model computes.


@habit(prepared=False)
def flatten_by_gathered_size(w):
    x = w.pool(_stem(w))
    batch = w.node("Unsqueeze", w.node("Gather", w.node("Shape", x), w.constant(np.int64(0)), axis=0), _ints(w, 0))
    shape = w.node("Concat", batch, _ints(w, -1), axis=0)
    return w.model(w.dense(w.node("Reshape", x, shape), 96, 5))


@habit(prepared=False)
def flatten_by_sliced_size(w):
    x = w.pool(_stem(w))
    batch = w.node("Slice", w.node("Shape", x), _ints(w, 0), _ints(w, 1), _ints(w, 0))
    return w.model(w.dense(w.node("Reshape", x, w.node("Concat", batch, _ints(w, 96), axis=0)), 96, 5))


@habit(prepared=False)
def flatten_by_part_of_size(w):
    x = w.pool(_stem(w))
    shape = w.node("Concat", w.node("Shape", x, start=0, end=1), _ints(w, -1), axis=0)
    return w.model(w.dense(w.node("Reshape", x, shape), 96, 5))


@habit()
def flatten_by_zero(w):
    return w.model(w.dense(w.node("Reshape", w.pool(_stem(w)), _ints(w, 0, -1)), 96, 5))


@habit(prepared=False)
def resized_to_another_map(w):
    """Write ``interpolate(low, size=x.shape[2:])``."""
    x = _stem(w)
    low = w.block(w.pool(x), 6)
    sides = [w.node("Slice", w.node("Shape", y), _ints(w, a), _ints(w, b)) for y, a, b in ((low, 0, 2), (x, 2, 4))]
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    up = w.node("Resize", low, "", "", w.node("Concat", *sides, axis=0), mode="nearest", **attributes)
    return w.model(w.conv(w.node("Add", x, up), 3, 1))


@habit(prepared=False)
def shuffled_by_sizes(w):
    x = w.block("x", 8)
    shape = w.node("Shape", x)
    batch, channels, rows, columns = (
        w.node("Unsqueeze", w.node("Gather", shape, w.constant(np.int64(axis)), axis=0), _ints(w, 0))
        for axis in range(4)
    )
    half = w.node("Div", channels, _ints(w, 2))
    x = w.node("Reshape", x, w.node("Concat", batch, _ints(w, 2), half, rows, columns, axis=0))
    x = w.node("Transpose", x, perm=[0, 2, 1, 3, 4])
    x = w.node("Reshape", x, w.node("Concat", batch, _ints(w, -1), rows, columns, axis=0), channels=8)
    return w.classified(w.block(x, 6))


# Nodes that change nothing, and normalisations that stay.


@habit(prepared=False)
def dropouts_and_identities(w):
    x = w.node("Dropout", w.node("Identity", _stem(w)), w.constant(np.float32(0.5)), w.constant(np.array(False)))
    x = w.node("GlobalAveragePool", w.conv(w.node("Identity", x), 6))
    return _ended(w, w.node("Dropout", x))


@habit(prepared=False)
def normalised_behind_convolutions(w):
    x = w.relu(w.norm(w.depthwise(w.block("x", 6, norm=True))))
    return w.classified(w.block(x, 8, 1, norm=True))


@habit(prepared=False)
def normalised_behind_activations(w):
    x = w.pool(w.norm(_stem(w)))
    return w.classified(w.norm(w.block(x, 8)))


@habit(prepared=False)
def normalised_input(w):
    x = w.node("Div", "x", w.constant(np.float32(255)))
    x = w.node("Div", w.node("Sub", x, _floats(w, 1, 3, 1, 1)), w.constant(1 + np.abs(w.normal(1, 3, 1, 1))))
    return w.classified(w.block(x, 8))


# Bounds.


@habit()
def clip_without_minimum(w):
    return w.classified(w.conv(w.node("Clip", _stem(w), "", w.constant(np.float32(6))), 8))


@habit()
def clip_without_maximum(w):
    return w.classified(w.conv(w.node("Clip", w.conv("x", 6), w.constant(np.float32(0))), 8))


@habit()
def clip_of_max_and_min(w):
    x = w.node("Max", w.conv("x", 6), w.constant(np.float32(0)))
    return w.classified(w.conv(w.node("Min", x, w.constant(np.float32(6))), 8))


# Pools.


@habit()
def squeezed_average(w):
    x = w.node("Squeeze", w.node("GlobalAveragePool", _stem(w)), _ints(w, 2, 3))
    return w.model(w.dense(x, 6, 5))


@habit()
def average_of_negative_axes(w):
    return w.model(w.dense(w.node("ReduceMean", _stem(w), axes=[-1, -2], keepdims=0), 6, 5))


@habit()
def maximum_of_whole_maps(w):
    return _ended(w, w.node("GlobalMaxPool", _stem(w)))


@habit()
def maximum_over_axes(w):
    return w.model(w.dense(w.node("ReduceMax", w.silu(w.conv("x", 6)), axes=[3, 2], keepdims=0), 6, 5))


@habit()
def average_beside_maximum(w):
    x = _stem(w)
    return _ended(w, w.concat(w.node("GlobalAveragePool", x), w.node("GlobalMaxPool", x)), 12)


@habit()
def joined_maxima(w):
    x = _stem(w)
    return _ended(w, w.concat(w.node("GlobalMaxPool", x), w.node("GlobalMaxPool", w.block(x, 4))), 10)


def _pooled(kind: str, **attributes: Any) -> Make:
    def make(w: Writer) -> onnx.ModelProto:
        return w.classified(w.conv(w.node(kind, _stem(w), kernel_shape=[3, 3], strides=[2, 2], **attributes), 8))

    return make


for _counts, _ceil, _auto in product((0, 1), (0, 1), ("", "SAME_UPPER", "SAME_LOWER", "VALID")):
    if _ceil and _auto == "VALID":
        continue
    _pads: dict[str, Any] = {"auto_pad": _auto} if _auto else {"pads": [1, 1, 1, 1]}
    _make = _pooled("AveragePool", count_include_pad=_counts, ceil_mode=_ceil, **_pads)
    HABITS[f"average pool, count_include_pad {_counts}, ceil_mode {_ceil}, {_auto}"] = Habit(_make, (3, 9, 10), 19)
    if not _counts:
        _make = _pooled("MaxPool", ceil_mode=_ceil, **(_pads if _auto else {"pads": [1, 0, 0, 1]}))
        HABITS[f"max pool, ceil_mode {_ceil}, {_auto}"] = Habit(_make, (3, 9, 10))


@habit()
def pool_with_indices(w):
    pooled, _ = w.nodes("MaxPool", _stem(w), outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    return w.classified(w.conv(pooled, 8))


# Padding, dimensions, products.


def _auto_padded(mode: str) -> Make:
    def make(w: Writer) -> onnx.ModelProto:
        x = w.relu(w.node("Conv", "x", _floats(w, 8, 3, 3, 3), auto_pad=mode, strides=[2, 2], channels=8))
        return w.classified(w.relu(w.node("Conv", x, _floats(w, 8, 1, 3, 3), auto_pad=mode, group=8, channels=8)))

    return make


for _auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    HABITS[f"convolution, {_auto}"] = Habit(_auto_padded(_auto), (3, 9, 10))


@habit()
def padded_unevenly(w):
    x = w.relu(w.conv("x", 6, 3, 2, pad=[0, 0, 1, 1]))
    return w.classified(w.relu(w.conv(x, 8, 3, 2, pad=[0, 1, 1, 0])))


@habit()
def padded_by_nodes(w):
    x = w.node("Pad", "x", _ints(w, 0, 0, 0, 0, 0, 0, 1, 1), w.constant(np.float32(0)))
    x = w.node("Pad", w.relu(w.conv(x, 6, 3, 2, pad=[0] * 4)), _ints(w, 0, 0, 1, 0, 0, 0, 0, 1))
    return w.classified(w.relu(w.conv(x, 8, 3, pad=[0] * 4)))


@habit(2, 32)
def one_dimension(w):
    x = w.pool(w.relu(w.norm(w.conv("x", 6, 5, 2, rank=1))), (2,))
    return w.classified(w.relu(w.conv(x, 8, 3, rank=1)))


@habit(2, 32)
def one_dimension_as_two(w):
    x = "x"
    for channels in (6, 8):
        x = w.relu(w.conv(w.node("Unsqueeze", x, _ints(w, 2)), channels, (1, 5), pad=[0, 2, 0, 2]))
        x = w.node("Squeeze", x, _ints(w, 2))
    return w.model(w.dense(w.node("ReduceMean", x, axes=[2], keepdims=0), 8, 5))


@habit()
def matrices_with_sums(w):
    x = w.relu(w.dense(w.node("Flatten", w.pool(_stem(w))), 96, 10, transposed=False))
    return w.model(w.dense(x, 10, 5, transposed=False))


@habit()
def matrix_without_transpose(w):
    return w.model(w.node("Gemm", w.node("Flatten", w.pool(_stem(w))), _floats(w, 96, 5), _floats(w, 5)))


@habit()
def matrix_with_one_bias(w):
    x = w.node("Flatten", w.pool(_stem(w)))
    return w.model(w.node("Gemm", x, _floats(w, 96, 5), w.constant(np.float32(0.3))))


@habit()
def matrix_of_pixels(w):
    x = w.node("MatMul", w.node("Transpose", _stem(w), perm=[0, 2, 3, 1]), _floats(w, 6, 8), channels=8)
    return w.classified(w.relu(w.node("Transpose", x, perm=[0, 3, 1, 2])))


@habit(8, 8, 3, prepared=False)
def channels_last_everywhere(w):
    def first(x):
        return w.node("Transpose", x, perm=[0, 3, 1, 2])

    def last(x):
        return w.node("Transpose", x, perm=[0, 2, 3, 1])

    x = last(w.relu(w.conv(first("x"), 6, 3, 2)))
    x = last(w.relu(w.conv(first(last(w.pool(first(x)))), 8)))
    x = w.node("ReduceMean", x, axes=[1, 2], keepdims=0)
    return w.model(w.node("Softmax", w.dense(x, 8, 5, transposed=False)))


@habit(8, 8, 3, prepared=False)
def channels_last_with_padding(w):
    x = w.node("Pad", "x", _ints(w, 0, 0, 0, 0, 0, 1, 1, 0))
    x = w.conv(w.node("Transpose", x, perm=[0, 3, 1, 2]), 6, 3, 2, pad=[0] * 4, bias=False)
    x = w.node("Transpose", w.relu(w.node("Add", x, _floats(w, 1, 6, 1, 1))), perm=[0, 2, 3, 1])
    x = w.node("Add", w.node("Mul", x, w.constant(np.abs(w.normal(6)))), _floats(w, 6))
    return w.classified(w.node("Transpose", w.relu(x), perm=[0, 3, 1, 2]))


@habit()
def dense_layers_of_patches(w):
    x = w.reshape(w.conv("x", 8, 4, 4, pad=[0] * 4), -1, 8, 4)
    x = w.node("MatMul", w.node("Transpose", x, perm=[0, 2, 1]), _floats(w, 8, 8))
    x = w.node("ReduceMean", w.relu(w.node("Add", x, _floats(w, 8))), axes=[1], keepdims=0)
    return w.model(w.dense(x, 8, 4, transposed=False))


# Pixels to channels and back, without DepthToSpace.


def _spread(w: Writer, x: str, order: list[int]) -> str:
    channels = w.channels[x] // 4
    x = w.node("Transpose", x, perm=order)
    return w.reshape(x, -1, channels, 16, 16, channels=channels)


def _gathered(w: Writer, x: str, order: list[int]) -> str:
    channels = w.channels[x]
    x = w.node("Transpose", w.reshape(x, -1, channels, 4, 2, 4, 2), perm=order)
    return w.reshape(x, -1, channels * 4, 4, 4, channels=channels * 4)


@habit()
def pixel_shuffle(w):
    x = w.reshape(w.conv("x", 12), -1, 3, 2, 2, 8, 8)
    return w.model(w.conv(_spread(w, x, [0, 1, 4, 2, 5, 3]), 2, 1))


@habit()
def pixel_shuffle_in_a_sum(w):
    x = _spread(w, w.reshape(w.conv("x", 8), -1, 2, 2, 2, 8, 8), [0, 3, 4, 1, 5, 2])
    return w.model(w.conv(w.relu(w.node("Add", x, w.conv(w.resize(w.conv("x", 2, 1)), 2, 1))), 3, 1))


@habit()
def pixel_unshuffle(w):
    return w.classified(w.block(_gathered(w, _stem(w), [0, 1, 3, 5, 2, 4]), 8))


@habit()
def pixel_unshuffle_of_the_input(w):
    return w.classified(w.block(_gathered(w, "x", [0, 1, 3, 5, 2, 4]), 8))


@habit()
def pixel_unshuffle_in_a_concatenation(w):
    """Write YOLOv2's passthrough."""
    x = _stem(w)
    passed = _gathered(w, w.block(x, 2, 1), [0, 3, 5, 1, 2, 4])
    return w.model(w.conv(w.concat(passed, w.block(x, 8, 3, 2)), 4, 1))


@habit()
def focus(w):
    ends = _ints(w, 2**63 - 1)
    parts = []
    for row, column in product((0, 1), (0, 1)):
        part = "x"
        for axis, begin in ((2, row), (3, column)):
            part = w.node("Slice", part, _ints(w, begin), ends, _ints(w, axis), _ints(w, 2))
        parts.append(part)
    return w.classified(w.block(w.concat(*parts), 8))


# Functions and gates.


@habit()
def one_slope(w):
    return w.classified(w.conv(w.node("PRelu", w.conv("x", 6), w.constant(np.array([0.2]))), 8))


@habit()
def hard_swish_of_parts(w):
    x = w.conv("x", 6)
    gate = w.node("Add", x, w.constant(np.float32(3)))
    gate = w.node("Clip", gate, w.constant(np.float32(0)), w.constant(np.float32(6)))
    return w.classified(w.conv(w.node("Div", w.node("Mul", x, gate), w.constant(np.float32(6))), 8))


@habit()
def gate_of_means(w):
    x = _stem(w, 8)
    gate = w.relu(w.conv(w.node("ReduceMean", x, axes=[2, 3], keepdims=1), 4, 1))
    gate = w.node("HardSigmoid", w.conv(gate, 8, 1), alpha=1 / 6, beta=0.5)
    return w.classified(w.node("Mul", gate, x))


@habit()
def gate_of_dense_layers(w):
    x = _stem(w, 8)
    gate = w.relu(w.dense(w.node("Flatten", w.node("GlobalAveragePool", x)), 8, 4))
    gate = w.reshape(w.node("Sigmoid", w.dense(gate, 4, 8)), -1, 8, 1, 1)
    return w.classified(w.node("Mul", x, gate))


@habit()
def gate_of_average_and_maximum(w):
    x = _stem(w, 8)
    sides = [w.conv(w.relu(w.conv(w.node(pool, x), 2, 1)), 8, 1) for pool in ("GlobalAveragePool", "GlobalMaxPool")]
    return w.classified(w.node("Mul", x, w.node("Sigmoid", w.node("Add", *sides))))


@habit()
def halves_by_slices(w):
    x = w.block("x", 8)
    halves = [
        w.node("Slice", x, _ints(w, begin), _ints(w, end), _ints(w, 1), _ints(w, 1), channels=4)
        for begin, end in ((0, 4), (4, 2**63 - 1))
    ]
    return w.classified(w.node("Add", *halves))


@habit(opset=18)
def halves_by_their_number(w):
    first, second = w.nodes("Split", w.block("x", 8), outputs=2, axis=1, num_outputs=2, channels=4)
    return w.classified(w.concat(w.block(first, 4), second))


# Ends.


@habit()
def logarithm_of_softmax(w):
    x = w.dense(w.node("Flatten", w.node("GlobalAveragePool", _stem(w))), 6, 5)
    return w.model(w.node("LogSoftmax", x, axis=1))


@habit()
def best_of_softmax(w):
    x = w.dense(w.node("Flatten", w.node("GlobalAveragePool", _stem(w))), 6, 5)
    return _typed(w, *w.nodes("TopK", w.node("Softmax", x, axis=1), _ints(w, 3), outputs=2))


@habit()
def best_of_logits(w):
    x = w.dense(w.node("Flatten", w.node("GlobalAveragePool", _stem(w))), 6, 5)
    return _typed(w, *w.nodes("TopK", x, _ints(w, 3), outputs=2))


@habit()
def best_class_of_pixels(w):
    return _typed(w, w.node("Cast", w.node("ArgMax", w.conv(_stem(w), 4, 1), axis=1), to=TensorProto.INT32))


@habit()
def length_one(w):
    x = w.dense(w.node("Flatten", w.node("GlobalAveragePool", _stem(w))), 6, 5)
    length = w.node("Clip", w.node("ReduceL2", x, axes=[1], keepdims=1), w.constant(np.float32(1e-12)))
    return w.model(w.node("Div", x, w.node("Expand", length, w.node("Shape", x))))


@habit()
def heads_in_one(w):
    x = _stem(w)
    heads = []
    for y, count in ((x, 128), (w.block(x, 8, 3, 2), 32)):
        heads.append(w.reshape(w.node("Transpose", w.conv(y, 8), perm=[0, 2, 3, 1]), -1, count, 4))
    return w.model(w.concat(*heads, axis=1))


def _typed(w: Writer, *outputs: str) -> onnx.ModelProto:
    """Return a model whose outputs have the types that shape inference finds."""
    model = w.model(*outputs)
    for output in model.graph.output:
        output.ClearField("type")
    return onnx.shape_inference.infer_shapes(model)


# Settings of the quantiser.


def _mixed(w: Writer) -> onnx.ModelProto:
    x = w.block(w.block("x", 8, norm=True), 8, act="relu6", group=8)
    return w.classified(w.pool(w.node("Add", w.conv(x, 8, 1), w.block(x, 8, 1, act="hard_swish"))))


_EXTRA: dict[str, Mapping[str, Any]] = {
    "quantisers that could go": {"QDQKeepRemovableActivations": True},
    "quantisers of com.microsoft": {"UseQDQContribOps": True},
    "ranges of a least size": {"MinimumRealRange": 0.001},
    "symmetric ranges": {"CalibTensorRangeSymmetric": True},
}
_SETTINGS: dict[str, Mapping[str, Any]] = {
    **{name: {"extra_options": options} for name, options in _EXTRA.items()},
    "weights of 16 bits": {"weight_type": QuantType.QInt16},
    "weights of 4 bits": {"weight_type": QuantType.QInt4},
    "unsigned weights of 4 bits": {"weight_type": QuantType.QUInt4},
    "weights of 4 bits per channel": {"weight_type": QuantType.QInt4, "per_channel": True},
    "unsigned weights per channel": {"weight_type": QuantType.QUInt8, "per_channel": True},
    "weights with a zero point": {"extra_options": {"WeightSymmetric": False}},
    "weights with zero points": {"per_channel": True, "extra_options": {"WeightSymmetric": False}},
}
for _name, _settings in _SETTINGS.items():
    HABITS[_name] = Habit(_mixed, opset=21, settings=_settings)


# What quantised models look like.


def _integers_at_the_end(model: onnx.ModelProto) -> None:
    last, output = model.graph.node[-1], model.graph.output[0]
    model.graph.node.remove(last)
    output.name, output.type.tensor_type.elem_type = last.input[0], TensorProto.UINT8


def _with_scale_and_zero_point(model: onnx.ModelProto) -> None:
    """Add outputs as of Brevitas' ``return_quant_tensor``."""
    _, scale, zero = model.graph.node[-1].input
    for name, element in ((scale, TensorProto.FLOAT), (zero, TensorProto.UINT8)):
        model.graph.output.append(helper.make_tensor_value_info(name, element, []))


def _constants_as_nodes(model: onnx.ModelProto) -> None:
    graph = model.graph
    nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializer]
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.node.extend(nodes)


def _quantised_in_the_graph(model: onnx.ModelProto) -> None:
    """Write float weights and their QuantizeLinear, as fake quantisation of PyTorch is exported."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        weights = constants.get(node.input[0])
        if node.op_type == "DequantizeLinear" and weights is not None and weights.data_type == TensorProto.INT8:
            scale, integers = (numpy_helper.to_array(constants[node.input[index]]) for index in (1, 0))
            axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
            along: dict[str, Any] = {"axis": axis} if scale.size > 1 else {}
            shape = [-1 if dimension == axis else 1 for dimension in range(integers.ndim)]
            reals = integers.astype(np.float32) * scale.reshape(shape if scale.size > 1 else ())
            graph.initializer.append(numpy_helper.from_array(reals.astype(np.float32), f"{weights.name}_reals"))
            name = f"{weights.name}_again"
            inputs = [f"{weights.name}_reals", *node.input[1:]]
            nodes.append(helper.make_node("QuantizeLinear", inputs, [name], **along))
            node.input[0] = name
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _without_zero_points(model: onnx.ModelProto) -> None:
    zeros = {
        tensor.name for tensor in model.graph.initializer if not numpy_helper.to_array(tensor).any()
    }  # fmt: skip
    unsigned = {tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.UINT8}
    for node in model.graph.node:
        zero = node.input[2] if len(node.input) == 3 else ""
        # Without a zero point, QuantizeLinear gives uint8.
        wanted = zeros if node.op_type == "DequantizeLinear" else zeros & unsigned
        if node.op_type in ("DequantizeLinear", "QuantizeLinear") and zero in wanted:
            node.input.pop()


def _scales_of_one_dimension(model: onnx.ModelProto) -> None:
    labels = [node.input[1:] for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    names = {name for label in labels for name in label}
    for tensor in model.graph.initializer:
        if tensor.name in names and not tensor.dims:
            tensor.dims.append(1)


def _initialisers_as_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def _without_names(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name = ""


def _with_functions(model: onnx.ModelProto) -> None:
    """Make a function of the model's own of each Relu."""
    domain = "pkg.onnxscript"
    body = [helper.make_node("Relu", ["x"], ["y"])]
    model.functions.append(helper.make_function(domain, "rectify", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid(domain, 1))
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type, node.domain = "rectify", domain


def _plain(w: Writer) -> onnx.ModelProto:
    return w.classified(w.pool(w.block(_stem(w), 8)))


_SYMMETRIC = {"activation_type": QuantType.QInt8, "extra_options": {"ActivationSymmetric": True}}
for _change, _settings in (
    (_integers_at_the_end, {}),
    (_with_scale_and_zero_point, {}),
    (_constants_as_nodes, {}),
    (_quantised_in_the_graph, {"per_channel": True}),
    (_without_zero_points, {}),
    (_scales_of_one_dimension, {}),
    (_initialisers_as_inputs, {}),
    (_without_names, {}),
    (_with_functions, _SYMMETRIC),
):
    _name = _change.__name__.strip("_")
    HABITS[_name] = Habit(_plain, settings=_settings, change=_change)


# The form on integers.

for _name in (
    *("gate_of_means", "gate_of_dense_layers", "hard_swish_of_parts", "heads_in_one", "channels_last_everywhere"),
    *("one_dimension", "focus", "one_slope", "matrices_with_sums", "padded_by_nodes", "resized_to_another_map"),
    *("maximum_of_whole_maps", "pixel_shuffle_in_a_sum", "pixel_unshuffle_in_a_concatenation"),
):
    _way = HABITS[_name]
    HABITS[f"{_name} on integers"] = Habit(
        _way.make, _way.shape, _way.opset, _way.prepared, {"quant_format": QuantFormat.QOperator}
    )
