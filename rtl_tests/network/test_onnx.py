"""The importer against onnx.reference and ONNX Runtime, and what it refuses.

Referees: a QDQ model computes in float32, which is exact here where all scales are powers of two. onnx.reference's
QLinearConv and QLinearMatMul round after the zero point is added (QuantizeLinear and ONNX Runtime round before), so
QOperator models are judged by ONNX Runtime, with weights of at most 64: no 16-bit sum of its kernels saturates.
With 16 bits float32 is not exact any more: there the same operators are computed in float64, which is.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Writer, by_hwgen, frames_for, last_integers, quantised_chain, random_model, spoilt
from onnx_writing import Frames, as_model
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from pieces import Piece
from pieces import check as compare
from referees import by_float64, by_onnxruntime, by_reference, integer_session
from refusals import refusals_in

from hwgen.cli import main as cli
from hwgen.errors import InputError, ModelError, ObstaclesError
from hwgen.network import golden, load
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.onnx.check import check
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv, MaxPool
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs
from hwgen.network.rescale import fit_table, multiplier

# Referees.


# Random models, node by node.


def differences(writer: Writer) -> list[np.ndarray]:
    """Golden model minus each referee that is right for the model, output by output."""
    model, frames = writer.model(), writer.frames()
    ours = by_hwgen(model, frames).astype(np.int64).reshape(len(frames), *writer.shape)
    referees: list[Callable[[onnx.ModelProto, np.ndarray], np.ndarray]]
    referees = [by_onnxruntime if writer.bits == 8 else by_float64]
    if writer.bits == 8 and writer.qdq and writer.reference:
        referees.append(by_reference)
    return [ours - referee(model, frames) for referee in referees]


SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("qdq", [True, False], ids=["qdq", "qoperator"])
def test_powers_of_two_equal(qdq: bool, seed: int) -> None:
    writer = random_model(seed, qdq=qdq, powers=True, deep=seed % 2 == 1)
    for difference in differences(writer):
        assert not difference.any(), f"{np.count_nonzero(difference)} of {difference.size} values differ"


@pytest.mark.parametrize("seed", range(30))
def test_sixteen_bits_equal(seed: int) -> None:
    """16-bit maps and weights, and mixed with 8-bit ones."""
    writer = random_model(seed, qdq=True, powers=True, deep=seed % 3 != 1, bits=16)
    for difference in differences(writer):
        assert not difference.any(), f"{np.count_nonzero(difference)} of {difference.size} values differ"


GROUPS = {
    "two groups": (4, [(2, 3), (2, 1)]),
    "three groups behind all channels": (5, [(1, 6), (3, 2)]),
    "depthwise": (5, [(5, 1), (1, 3)]),
    "depthwise, three outputs each": (3, [(3, 3), (9, 1)]),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("qdq", [True, False], ids=["qdq", "qoperator"])
@pytest.mark.parametrize(("channels", "layers"), GROUPS.values(), ids=GROUPS.keys())
def test_groups_equal(channels: int, layers: list[tuple[int, int]], qdq: bool, seed: int) -> None:
    """Grouped and depthwise convolutions; (groups, output channels of each) by layer."""
    writer = Writer(seed, qdq=qdq, powers=True, channels=channels)
    for index, (groups, outputs) in enumerate(layers, start=1):
        writer.conv(f"layer{index}", groups, outputs)
    network = to_network(writer.model(), "model")
    assert [layer.groups for layer in network.layers if isinstance(layer, Conv)] == [groups for groups, _ in layers]
    for difference in differences(writer):
        assert not difference.any(), f"{np.count_nonzero(difference)} of {difference.size} values differ"


@pytest.mark.parametrize("qdq", [True, False], ids=["qdq", "qoperator"])
def test_any_scales_within_one(qdq: bool) -> None:
    wrong = total = 0
    for seed in range(100, 200):
        for difference in differences(random_model(seed, qdq=qdq, powers=False, deep=seed % 4 == 0)):
            assert np.abs(difference).max() <= 1, f"seed {seed}"
            wrong += np.count_nonzero(difference)
            total += difference.size
    assert total > 15_000
    assert wrong * 1000 <= total, f"{wrong} of {total} values differ"


def test_any_scales_within_one_in_sixteen_bits() -> None:
    """The factor has 24 bits, the referee 53."""
    wrong = total = 0
    for seed in range(100, 200):
        writer = random_model(seed, qdq=True, powers=False, deep=seed % 4 == 0, bits=16)
        (difference,) = differences(writer)
        assert np.abs(difference).max() <= 1, f"seed {seed}"
        wrong += np.count_nonzero(difference)
        total += difference.size
    assert total > 15_000
    assert wrong * 1000 <= total, f"{wrong} of {total} values differ"


# Models as ONNX Runtime's quantiser writes them.


def float_model(
    *, matmul: bool = False, clip: bool = False, names: bool = True, bias: bool = True, opset: int = 21
) -> onnx.ModelProto:
    """Conv, Relu (or Clip), MaxPool, Conv, Relu, Flatten, Gemm (or MatMul, Add), Softmax on 3x10x9 images."""
    random = np.random.default_rng(7)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    tensor = "image"

    def add(operator: str, name: str, *values: np.ndarray, **attributes: Any) -> None:
        nonlocal tensor
        inputs = []
        for index, value in enumerate(values):
            inputs.append(f"{name}_{index}")
            constants.append(numpy_helper.from_array(np.asarray(value), inputs[-1]))
        label = {"name": f"/net/{name}"} if names else {}
        nodes.append(helper.make_node(operator, [tensor, *inputs], [f"{name}_out"], **label, **attributes))
        tensor = f"{name}_out"

    def normal(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    add("Conv", "conv1", normal(6, 3, 3, 3), *([normal(6)] if bias else []), pads=[1, 0, 1, 2], strides=[1, 1])
    if clip:
        add("Clip", "clip1", np.float32(-0.25), np.float32(1.25))
    else:
        add("Relu", "relu1")
    add("MaxPool", "pool1", kernel_shape=[2, 2], strides=[2, 2])
    add("Conv", "conv2", normal(8, 6, 3, 2), *([normal(8)] if bias else []))
    add("Relu", "relu2")
    add("Flatten", "flatten")
    if matmul:
        add("MatMul", "fc", normal(72, 10))
        if bias:
            add("Add", "plus", normal(10))
    else:
        add("Gemm", "fc", normal(72, 10), *([normal(10)] if bias else []))
    add("Softmax", "softmax")
    return as_model(
        nodes,
        {"image": (TensorProto.FLOAT, ["batch", 3, 10, 9])},
        {tensor: (TensorProto.FLOAT, ["batch", 10])},
        constants,
        opset=opset,
    )


def images(count: int = 16) -> np.ndarray:
    return np.random.default_rng(11).normal(size=(count, 3, 10, 9)).astype(np.float32)


def by_quantiser(folder: Path, model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    path = folder / "quantised.onnx"
    quantize_static(model, path, Frames(images(), "image"), **options)
    return onnx.load(path)


UINT8, INT8 = QuantType.QUInt8, QuantType.QInt8
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "uint8-int8": {"activation_type": UINT8, "weight_type": INT8},
    "per-channel": {"activation_type": UINT8, "weight_type": INT8, "per_channel": True},
    "uint8-uint8": {"activation_type": UINT8, "weight_type": UINT8},
    "asymmetric-weights": {"activation_type": UINT8, "weight_type": UINT8, "extra_options": {"WeightSymmetric": False}},
    "symmetric-activations": {"activation_type": INT8, "extra_options": {"ActivationSymmetric": True}},
    "symmetric-per-channel": {
        "activation_type": INT8,
        "per_channel": True,
        "extra_options": {"ActivationSymmetric": True},
    },
    "weights-in-the-graph": {"per_channel": True, "extra_options": {"AddQDQPairToWeight": True}},
    "contributed-operators": {"activation_type": UINT8, "extra_options": {"UseQDQContribOps": True}},
    "kept-relu": {"activation_type": UINT8, "extra_options": {"QDQKeepRemovableActivations": True}},
}
FORMS = {
    "gemm": {},
    "matmul": {"matmul": True},
    "clip": {"clip": True, "bias": False},
    "nameless": {"names": False, "matmul": True, "clip": True, "opset": 13},
}


@pytest.mark.parametrize(
    "format",
    [
        pytest.param(QuantFormat.QDQ, id="qdq"),
        pytest.param(QuantFormat.QOperator, id="qoperator", marks=pytest.mark.long),
    ],
)
def test_models_of_the_quantiser(format: QuantFormat, tmp_path: Path) -> None:
    """Every value of the last integer tensor within 1, 1 of 1,000 or fewer wrong over all options."""
    wrong = total = 0
    frames = np.random.default_rng(5).normal(size=(100, 3, 10, 9)).astype(np.float32)
    for (form, arguments), (label, options) in itertools.product(FORMS.items(), OPTIONS.items()):
        # 7-bit weights: no 16-bit sum of ONNX Runtime's integer kernels saturates
        model = by_quantiser(tmp_path, float_model(**arguments), quant_format=format, reduce_range=True, **options)
        ours = by_hwgen(model, frames)[:, :, 0, 0].astype(np.int64)
        theirs = by_onnxruntime(last_integers(model), frames)
        difference = ours - theirs
        assert np.abs(difference).max() <= 1, f"{form} {label}"
        wrong += np.count_nonzero(difference)
        total += difference.size
    assert wrong * 1000 <= total, f"{wrong} of {total} values differ"


UINT16, INT16 = QuantType.QUInt16, QuantType.QInt16
WIDE_OPTIONS: dict[str, dict[str, Any]] = {
    "uint16-int16": {"activation_type": UINT16, "weight_type": INT16, "per_channel": True},
    "int16-int16": {"activation_type": INT16, "weight_type": INT16},
    "uint16-int8": {"activation_type": UINT16, "weight_type": INT8, "per_channel": True},
    "uint8-int16": {"activation_type": UINT8, "weight_type": INT16},
    "asymmetric-weights": {
        "activation_type": INT16,
        "weight_type": UINT16,
        "extra_options": {"WeightSymmetric": False},
    },
    "symmetric-activations": {
        "activation_type": INT16,
        "weight_type": INT16,
        "extra_options": {"ActivationSymmetric": True},
    },
    "contributed-operators": {
        "activation_type": UINT16,
        "weight_type": INT16,
        "per_channel": True,
        "extra_options": {"UseQDQContribOps": True},
    },
    "float-bias": {"activation_type": UINT16, "weight_type": INT16, "extra_options": {"QuantizeBias": False}},
}


@pytest.mark.long
def test_sixteen_bit_models_of_the_quantiser(tmp_path: Path) -> None:
    """Whole networks, in which layers' differences add up, against float64; ONNX Runtime's float32 is off by more."""
    frames = np.random.default_rng(5).normal(size=(60, 3, 10, 9)).astype(np.float32)
    for form, (label, options) in itertools.product(("matmul", "clip"), WIDE_OPTIONS.items()):
        model = by_quantiser(tmp_path, float_model(**FORMS[form]), **options)
        network = to_network(model, "m")
        assert network.input.type.bits == (8 if label == "uint8-int16" else 16)
        domains = {node.domain for node in model.graph.node if node.op_type == "QuantizeLinear"}
        assert domains == ({"com.microsoft"} if label == "contributed-operators" else {""})
        model = last_integers(model)
        ours = golden.run(network, prepare_inputs(network, frames))[:, :, 0, 0].astype(np.int64)
        assert len(np.unique(ours)) > (200 if label != "uint8-int16" else 20)
        for referee, most in ((by_float64, 1), (by_onnxruntime, 2)):
            difference = ours - referee(model, frames)
            assert np.abs(difference).max() <= most, f"{form} {label}"
            assert np.count_nonzero(difference) <= 0.05 * difference.size, f"{form} {label}"


def test_float_bias_is_rounded(tmp_path: Path) -> None:
    """To steps of x_scale * w_scale, half a step at most: here no output differs by more than 1, and few do."""
    frames = images(100)
    model = by_quantiser(tmp_path, float_model(), reduce_range=True, extra_options={"QuantizeBias": False})
    difference = by_hwgen(model, frames)[:, :, 0, 0].astype(np.int64) - by_onnxruntime(last_integers(model), frames)
    assert np.abs(difference).max() <= 1
    assert np.mean(difference != 0) < 0.05


def test_float_model_is_quantised(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(float_model(matmul=True), path)
    network = load(path, ModelOptions(calibration=images(100)))
    # MatMul and Add have become one Gemm before quantisation; names survive
    assert [layer.kind for layer in network.layers] == ["conv", "maxpool", "conv", "conv"]
    assert [layer.name for layer in network.layers][:3] == ["net/conv1", "net/pool1", "net/conv2"]
    frames = images(100)
    ours = golden.run(network, prepare_inputs(network, frames))[:, :, 0, 0].astype(float)
    logits = (ours - network.output.zero_point) * network.output.scale
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    assert np.abs(softmax - by_onnxruntime(float_model(matmul=True), frames)).max() < 0.08


def test_quantisers_names(tmp_path: Path) -> None:
    for format in (QuantFormat.QDQ, QuantFormat.QOperator):
        network = to_network(by_quantiser(tmp_path, float_model(), quant_format=format), "m")
        assert [layer.name for layer in network.layers] == ["net/conv1", "net/pool1", "net/conv2", "net/fc"]
        network = to_network(by_quantiser(tmp_path, float_model(names=False), quant_format=format), "m")
        names = [layer.name for layer in network.layers]
        assert all(names)
        assert len(set(names)) == 4


def test_shared_scale_becomes_bounds(tmp_path: Path) -> None:
    """Symmetric activations: Conv, QuantizeLinear, DequantizeLinear, Clip, QuantizeLinear, all of one scale."""
    options = {"activation_type": INT8, "extra_options": {"ActivationSymmetric": True}}
    network = to_network(by_quantiser(tmp_path, float_model(clip=True), **options), "m")
    assert [layer.name for layer in network.layers] == ["net/conv1", "net/pool1", "net/conv2", "net/fc"]
    conv = network.layers[0]
    assert isinstance(conv, Conv)
    assert conv.requantisation is not None
    scale = conv.output.scale
    assert (conv.requantisation.low, conv.requantisation.high) == (round(-0.25 / scale), round(1.25 / scale))


@pytest.mark.parametrize(
    ("x_zero", "zero", "x_scale", "y_scale"),
    [
        (72, -79, "0x1.efd45ep-5", 0.2225797474384308),
        (126, 50, "0x1.6b6ca6p-5", 0.396312415599823),
        (-83, -102, "0x1.7984cep-4", 0.3407410681247711),
    ],
)
def test_factors_are_moved(x_zero: int, zero: int, x_scale: str, y_scale: float) -> None:
    """Scales whose quotient, rounded to float32, gives another output for some integer, whatever the weight is."""
    scale = np.float32(float.fromhex(x_scale))
    values = np.arange(-128, 128) - x_zero
    wanted = np.rint(values.astype(np.float32) * scale / np.float32(y_scale)).astype(np.int64) + zero
    wanted = np.clip(wanted, -128, 127)[None]
    bounds = zero, int(wanted.min()), int(wanted.max())
    found = fit_table(values, np.zeros(1), wanted, float(scale), y_scale, bounds, 8)
    assert found is not None
    assert found[1] == zero
    weight, bias, significand, shift = (int(row[0]) for row in found[0])
    outputs = [round(Fraction((weight * int(value) + bias) * significand, 1 << shift)) + zero for value in values]
    np.testing.assert_array_equal(np.clip(outputs, *bounds[1:]), wanted[0])


def pointwise_model(seed: int, bits: int = 8, powers: bool = False) -> onnx.ModelProto:
    """DequantizeLinear, perhaps Add, perhaps Relu or Clip, QuantizeLinear in other scales.

    ``bits`` 16: at least one of the two types has 16 bits; ``powers``: scales are powers of two.
    """
    random = np.random.default_rng(seed)
    kinds = [np.dtype(random.choice(["int8", "uint8"])) for _ in range(2)]
    scales = np.exp(random.uniform(-3, 0, 2)).astype(np.float32)
    if powers:
        scales = np.exp2(np.round(np.log2(scales)))
    if bits > 8:
        wide = [(True, True), (True, False), (False, True)][seed % 3]
        kinds = [
            np.dtype(str(kind).replace("8", "16")) if more else kind for kind, more in zip(kinds, wide, strict=True)
        ]
        scales /= np.where(wide, 256, 1).astype(np.float32)
    zeros = [random.integers(np.iinfo(kind).min, np.iinfo(kind).max, dtype=kind, endpoint=True) for kind in kinds]
    constants = {"s0": scales[0], "z0": zeros[0], "s1": scales[1], "z1": zeros[1]}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s0", "z0"], ["d"])]
    tensor = "d"
    if random.random() < 0.5:
        reach = 40 * 256 ** (kinds[0].itemsize - 1)
        constants["offset"] = (random.normal(size=(5, 1, 1)) * reach * scales[0]).astype(np.float32)
        nodes.append(
            helper.make_node("Add", ["offset", tensor] if random.random() < 0.5 else [tensor, "offset"], ["a"])
        )
        tensor = "a"
    activation = random.random()
    if activation < 0.3:
        nodes.append(helper.make_node("Relu", [tensor], ["r"]))
        tensor = "r"
    elif activation < 0.6:
        reach = 50 * 256 ** (kinds[0].itemsize - 1)
        constants["low"], constants["high"] = np.sort(random.normal(size=2) * reach * scales[0]).astype(np.float32)
        nodes.append(helper.make_node("Clip", [tensor, "low", "high"], ["c"]))
        tensor = "c"
    nodes.append(helper.make_node("QuantizeLinear", [tensor, "s1", "z1"], ["y"]))
    types = [helper.np_dtype_to_tensor_dtype(kind) for kind in kinds]
    shape = [1, 5, *[16 ** kinds[0].itemsize] * 2]
    return as_model(nodes, {"x": (types[0], shape)}, {"y": (types[1], shape)}, constants, opset=21)


@pytest.mark.parametrize("seed", range(30))
def test_other_scale_becomes_a_layer(seed: int) -> None:
    """What changes scale between two integer tensors is a 1x1 convolution, right for every integer."""
    model = pointwise_model(seed)
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    every = np.broadcast_to(np.arange(256).astype(kind).reshape(16, 16), (1, 5, 16, 16)).copy()
    network = to_network(model, "m")
    (layer,) = network.layers
    assert isinstance(layer, Conv)
    assert layer.window.kernel == (1, 1)
    assert np.count_nonzero(layer.weights) == layer.output.channels == 5
    ours = golden.run(network, every)
    np.testing.assert_array_equal(ours, by_onnxruntime(model, every))
    np.testing.assert_array_equal(ours, by_reference(model, every))


@pytest.mark.parametrize("powers", [True, False], ids=["powers of two", "any scales"])
@pytest.mark.parametrize("seed", range(12))
def test_other_scale_in_sixteen_bits(seed: int, powers: bool) -> None:
    """Between maps of which at least one has 16 bits: by 1 at most, of 200 integers of a channel in one at most."""
    model = pointwise_model(seed, bits=16, powers=powers)
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    side = 256 if kind.itemsize == 2 else 16
    every = np.broadcast_to(np.arange(side * side).astype(kind).reshape(side, side), (1, 5, side, side)).copy()
    ours = golden.run(to_network(model, "m"), every).astype(np.int64)
    difference = ours - by_onnxruntime(model, every)
    assert np.abs(difference).max() <= 1
    wrong = np.count_nonzero(difference, axis=(0, 2, 3))
    added = any(node.op_type == "Add" for node in model.graph.node)
    assert (wrong <= (0 if powers and not added else side * side / 200)).all()


# Cases of onnx.backend.test.


BACKEND = {
    "test_qlinearconv": "qlinearconv",
    "test_convinteger_with_padding": "convinteger",
    "test_convinteger_without_padding": "convinteger",
    "test_maxpool_2d_uint8": "maxpool",
}


@pytest.mark.parametrize("name", BACKEND)
def test_backend_case(name: str) -> None:
    """Every input but the first is turned into an initialiser."""
    node = importlib.import_module("onnx.backend.test.case.node")
    importlib.import_module(f"onnx.backend.test.case.node.{BACKEND[name]}")
    case = next(case for case in node._NodeTestCases if case.name == name)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    ((inputs, outputs),) = case.data_sets
    constants = zip(model.graph.input[1:], inputs[1:], strict=True)
    model.graph.initializer.extend([numpy_helper.from_array(array, value.name) for value, array in constants])
    del model.graph.input[1:]
    ours = by_hwgen(model, inputs[0])
    assert ours.dtype == outputs[0].dtype
    np.testing.assert_array_equal(ours, outputs[0])


# Single points.


@pytest.mark.parametrize(
    ("kernel", "strides", "pads"),
    [
        ((2, 2), (3, 3), (1, 1, 1, 1)),
        ((3, 1), (1, 3), (0, 0, 0, 0)),
        ((1, 1), (2, 3), (0, 0, 0, 0)),
        ((3, 3), (2, 2), (1, 1, 1, 1)),
    ],
)
def test_ceil_mode_as_onnxruntime(kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> None:
    """Windows that start behind the map don't count, though the shape inference of onnx 1.23 counts them."""
    model = quantised_chain(("MaxPool", {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1}))
    x = frames_for(model)
    np.testing.assert_array_equal(by_hwgen(model, x), by_onnxruntime(model, x))


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_dilated_windows(mode: str, strides: tuple[int, int]) -> None:
    """As ONNX defines it, for all that a window covers; ONNX Runtime, which refuses it, takes the same as pads."""
    attributes = {"strides": strides, "dilations": (2, 3)}
    (layer,) = to_network(quantised_chain(("Conv", attributes | {"auto_pad": mode})), "m").layers
    height, width = layer.input.shape[1:]
    assert (layer.output.height, layer.output.width) == (-(-height // strides[0]), -(-width // strides[1]))
    top, left, bottom, right = layer.window.padding
    for before, after in ((top, bottom), (left, right)):
        assert before + after == 0 or (after - before if mode == "SAME_UPPER" else before - after) in (0, 1)
    padded = quantised_chain(("Conv", attributes | {"pads": layer.window.padding}))
    x = frames_for(padded)
    model = quantised_chain(("Conv", attributes | {"auto_pad": mode}))
    np.testing.assert_array_equal(by_hwgen(model, x), by_onnxruntime(padded, x))


def test_a_single_tap_has_no_dilation() -> None:
    model = quantised_chain(("MaxPool", {"kernel_shape": (1, 2), "dilations": (3, 2)}))
    (layer,) = to_network(model, "m").layers
    assert layer.window == Window(kernel=(1, 2), dilation=(1, 2))
    x = frames_for(model)
    np.testing.assert_array_equal(by_hwgen(model, x), by_onnxruntime(model, x))


def test_padding_that_no_window_reaches_is_dropped() -> None:
    model = quantised_chain(("Conv", {"strides": [4, 5], "pads": [1, 0, 2, 1]}))
    (layer,) = to_network(model, "m").layers
    assert layer.window.padding == (1, 0, 0, 0)
    x = frames_for(model)
    np.testing.assert_array_equal(by_hwgen(model, x), by_onnxruntime(model, x))


def test_windows_and_types() -> None:
    network = to_network(
        quantised_chain(("Conv", {"pads": [1, 1, 1, 1]}), ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1]})), "m"
    )
    conv, pool = network.layers
    assert isinstance(conv, Conv)
    assert isinstance(pool, MaxPool)
    assert (conv.name, pool.name) == ("node0", "node1")
    assert str(network.input) == "2x10x11 uint8"
    assert (network.input.zero_point, network.input.scale) == (100, 0.125)
    assert str(network.output) == "2x4x10 uint8"
    assert conv.requantisation is not None
    assert (conv.requantisation.low, conv.requantisation.high) == (0, 255)
    # 0.125 * 0.0625 / 0.125 = 2**-4 = 2**23 / 2**27
    assert conv.requantisation.significand.tolist() == [1 << 23] * 2
    assert conv.requantisation.shift.tolist() == [27] * 2


def test_same_name_twice() -> None:
    model = quantised_chain(("Conv", {}), ("Conv", {}), ("Conv", {}))
    for node in model.graph.node:
        if node.op_type == "Conv":
            node.name = "conv_quant"
    assert [layer.name for layer in to_network(model, "m").layers] == ["conv", "conv_2", "conv_3"]


@pytest.mark.parametrize("bits", [9, 20, 32])
def test_multiplier(bits: int) -> None:
    """Exact for all float32, subnormal and huge ones too: compared as Python's integers and fractions."""
    random = np.random.default_rng(bits)
    patterns = random.integers(1, 0x7F800000, 20_000, dtype=np.uint32)
    factors = np.concatenate((patterns.view(np.float32), np.float32([0, 2.0**18, 2.0**-20, 1e-45, 3e38])))
    bound = (1 << bits) - 1
    significand, shift = multiplier(factors, bound)
    assert ((significand >= 1 << 23) & (significand < 1 << 24) & (shift >= 0) & (shift <= bits + 25)).all()
    value = significand / 2.0**shift
    middle = (factors < 2.0**18) & (shift < bits + 25)
    np.testing.assert_array_equal(value[middle], factors[middle].astype(np.float64))
    assert (value[factors >= 2.0**18] == 2.0**18).all()
    vanishing = shift == bits + 25
    assert vanishing.any()
    assert (bound * value[vanishing] < 0.5).all()
    assert (bound * factors[vanishing].astype(np.float64) < 0.5).all()


# What is refused.


@pytest.mark.parametrize(
    ("nodes", "shape", "message"),
    [
        *refusals_in("onnx_refused_nodes.txt"),
        (
            [("MaxPool", {"kernel_shape": [2] * 3})],
            (2, 8, 8, 8),
            r"contains three-dimensional convolutions or pools \(MaxPool node 'node0'\), which hwgen does not build",
        ),
    ],
)
def test_refused_nodes(nodes: list[tuple[str, dict[str, Any]]], shape: tuple[Any, ...], message: str) -> None:
    model = quantised_chain(*nodes, shape=tuple(s if isinstance(s, int) else 8 for s in shape))
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim[1:], shape, strict=True):
        if not isinstance(size, int):
            dim.Clear()
            if size:
                dim.dim_param = size
    with pytest.raises(ModelError, match=message) as caught:
        to_network(model, "model.onnx")
    assert str(caught.value).startswith("model.onnx: ")
    assert "\n" not in str(caught.value)


def edited(change: Callable[[onnx.GraphProto], None], *nodes: tuple[str, dict[str, Any]]) -> onnx.ModelProto:
    model = quantised_chain(*(nodes or [("Conv", {}), ("Relu", {})]))
    change(model.graph)
    return model


def _groups(groups: int, shape: tuple[int, ...]) -> Callable[[onnx.GraphProto], None]:
    def change(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            if tensor.name == "w":
                tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, np.int8), "w"))
        for node in graph.node:
            if node.op_type == "Conv":
                node.attribute.append(helper.make_attribute("group", groups))

    return change


def _constant(name: str, value: np.ndarray) -> Callable[[onnx.GraphProto], None]:
    def change(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(value, name))

    return change


def test_overflowing_scales_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """155 steps of 3e36 are infinite in float32, 100 are not; integer kernels know only the quotient of the scales."""
    conv = ("Conv", {})
    large = edited(_constant("s", np.float32(3e36)), conv)
    said = [
        f"node0: scale 3e+36 is so large that its {what} overflow float32; integers are right"
        for what in ("inputs", "outputs")
    ]
    assert to_network(large, "large").warnings == tuple(said)
    assert to_network(edited(_constant("s", np.float32(2e36)), conv), "fine").warnings == ()
    steps = np.random.default_rng(1).integers(-99, 100, (2, 2, 10, 11))
    ordinary = by_hwgen(edited(_constant("s", np.float32(1)), conv), steps.astype(np.float32))
    np.testing.assert_array_equal(by_hwgen(large, steps.astype(np.float32) * np.float32(3e36)), ordinary)
    onnx.save(large, tmp_path / "large.onnx")
    assert cli.main(["plan", str(tmp_path / "large.onnx"), "--board", "zedboard"]) == 0
    assert capsys.readouterr().err.splitlines() == [f"hwgen: warning: {line}" for line in said]
    infinite = edited(_constant("s", np.float32(3e36)), conv)
    _constant("w_s", np.float32(1e3))(infinite.graph)
    with pytest.raises(ModelError, match=r"x_scale \* w_scale / y_scale overflows float32"):
        to_network(infinite, "infinite")


def edged(kind: Any, scales: tuple[float, float, float], bias: int = 0) -> tuple[onnx.ModelProto, np.ndarray]:
    """A QDQ convolution with scales of input, weights and output, and one of four biases; with frames."""
    x_scale, w_scale, y_scale = scales
    most = {np.uint8: 127, np.uint16: 32767}[kind]
    piece = Piece((3, 6, 6), kind, scale=x_scale, zero=100, opset=21)
    weights = piece.weights((4, 3, 3, 3), most=most, scale=w_scale, kind=np.int8 if kind is np.uint8 else np.int16)
    step = float(np.float32(x_scale) * np.float32(w_scale))
    added = piece.dequantise(piece.constant(np.array([0, 5, bias, -7]), np.int32), step, 0, np.int32)
    return piece.model(
        piece.quantise(piece.node("Conv", piece.real(), weights, added), y_scale, 3, kind)
    ), piece.frames(4)


@pytest.mark.parametrize("bias", [2**31 - 1, -(2**31), 2**31 - 100_000])
def test_sums_that_would_wrap(bias: int) -> None:
    """One bias near the end of int32 is enough: ONNX Runtime's kernel wraps, so that values would differ."""
    model, x = edged(np.uint8, (0.02, 0.01, 0.02 * 0.01 * 2**25), bias)
    theirs = integer_session(model)[0].run(None, {"x": x})[0]
    # 2**31 of the sums' steps are 64 of the output's; what wrapped is -64, or the other way round.
    assert {0, 67} <= set(theirs[:, 2].ravel().tolist()) or abs(bias) < 2**31 - 1
    with pytest.raises(
        ModelError, match=r"sums of output channel 2 can reach -?2,14[\d,]* with its bias .*: they leave int32"
    ):
        to_network(model, "edge")


@pytest.mark.parametrize("bias", [2**31 - 2_000_000, -(2**31) + 2_000_000])
def test_sums_that_just_fit(bias: int) -> None:
    compare(*edged(np.uint8, (0.02, 0.01, 0.02 * 0.01 * 2**25), bias))


@pytest.mark.parametrize("scale", [1e-18, 1e10, 1e19, 1e30])
def test_scales_of_eight_bits(scale: float) -> None:
    """The kernel knows the quotient of the scales alone."""
    compare(*edged(np.uint8, (scale, 0.01, scale * 3)))


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ((1e20, 1e15, 1e33), r"scales are so large that sums, up to [\d.e+]*, overflow float32; ONNX Runtime"),
        ((1e36, 1e-30, 1e12), "scale 1e\\+36 is so large that its inputs overflow float32; ONNX Runtime"),
        ((1e-20, 1e-20, 1e-36), "scales are so small that products, in steps of 9.99995e-41, lose bits in float32"),
    ],
)
def test_scales_of_sixteen_bits(scales: tuple[float, float, float], message: str) -> None:
    """ONNX Runtime computes reals, which leave float32."""
    with pytest.raises(ModelError, match=message):
        to_network(edged(np.uint16, scales)[0], "edge")


def _float_tail(graph: onnx.GraphProto) -> None:
    del graph.node[-1]
    graph.output[0].CopyFrom(helper.make_tensor_value_info("n1", TensorProto.FLOAT, [None] * 4))


def _two_inputs(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, []))
    for index, tensor in enumerate(graph.initializer):
        if tensor.name == "s":
            del graph.initializer[index]
            break


def _domain(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "Relu":
            node.domain, node.op_type = "my.own", "Swish"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_groups(3, (2, 1, 3, 3)), r"Conv node 'node0': group must divide its 2 input and 2 output channels, not 3"),
        (_groups(2, (3, 1, 3, 3)), r"Conv node 'node0': group must divide its 2 input and 3 output channels, not 2"),
        (_groups(0, (2, 1, 3, 3)), r"Conv node 'node0': group must divide its 2 input and 2 output channels, not 0"),
        (_groups(2, (2, 2, 3, 3)), r"Conv node 'node0': weights must have 1 input channels of each of 2 groups, not 2"),
        (_groups(1, (2, 1, 3, 3)), r"Conv node 'node0': weights must have 2 input channels, not 1"),
        (_constant("s", np.float32(0)), r"scale must be positive and finite, not 0.0"),
        (_constant("s", np.float32(np.nan)), r"scale must be positive and finite, not nan"),
        (_constant("s", np.ones(2, np.float32)), r"(one scale, not 2|scale)"),
        (_constant("w_z", np.zeros(2, np.int8)), r"must have one zero point per scale, that is 1, not 2"),
        (_float_tail, r"Relu node 'node1': gives floats; a QuantizeLinear must follow"),
        (_two_inputs, r"input 's' must be \(batch, channels, height, width\) or .*, not \(\)$"),
        (_domain, r"operator my.own.Swish is not supported|not a valid ONNX model"),
    ],
)
def test_refused_graphs(change: Callable[[onnx.GraphProto], None], message: str) -> None:
    model = edited(change)
    with pytest.raises(ModelError, match=message) as caught:
        to_network(model, "model.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of casts while spoiling
@pytest.mark.parametrize(("qdq", "bits"), [(False, 8), (True, 8), pytest.param(True, 16, marks=pytest.mark.long)])
@pytest.mark.parametrize("count", [200, pytest.param(3300, marks=pytest.mark.long)])
def test_spoilt_models_are_refused_or_read(count: int, qdq: bool, bits: int) -> None:
    """Each gives a network, or one line for each thing that was spoilt; both occur."""
    refused: list[ModelError] = []
    for seed in [*range(count), 1742]:  # the last: a Reshape whose shape is a scalar
        model = spoilt(random_model(seed, qdq=qdq, powers=True, deep=True, bits=bits))
        try:
            to_network(model, "model.onnx")
        except ModelError as error:
            refused.append(error)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
    assert count // 10 < len(refused) < count * 9 // 10
    for error in refused:
        assert str(error).count("\n") == (len(error.lines) - 1 if isinstance(error, ObstaclesError) else 0)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    whole = quantised_chain(("Conv", {})).SerializeToString()
    path = tmp_path / "model.onnx"
    for content, message in [
        (b"", "an empty file"),
        (b"Once upon a time there was no model in this file.\n" * 20, "not an ONNX file|not a valid ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not an ONNX file|not a valid ONNX model"),
        (whole[: len(whole) // 2], "not an ONNX file|not a valid ONNX model"),
        (whole[:-3], "not an ONNX file|not a valid ONNX model"),
        (whole[:40], "not an ONNX file|not a valid ONNX model"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ModelError, match=message) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="no such file"):
        load(tmp_path / "absent.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ModelError, match="can't be read"):
        load(tmp_path / "folder.onnx")
    with pytest.raises(ModelError, match=r"must be an \.onnx file or a built-in"):
        load(Path(__file__))


def test_every_cut_is_refused_or_whole(tmp_path: Path) -> None:
    """A model cut anywhere never raises anything but ModelError."""
    whole = quantised_chain(("Conv", {}), shape=(1, 4, 4)).SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(path)


def test_calibration(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(float_model(), path)
    with pytest.raises(ModelError, match=r"a float model; give calibration inputs \(--calibration X.npy\)"):
        load(path)
    bad = images()
    bad[3, 2, 1, 0] = np.nan
    for array, message in [
        (images()[:, :2], r"calibration must have shape \(frames, 3, 10, 9\), not \(16, 2, 10, 9\)"),
        (images()[:0], r"calibration must have one frame at least, not none"),
        (images().astype(np.uint8), r"calibration must be float32, not uint8"),
        (bad, r"calibration must hold finite numbers only, not 1 NaN or infinite \(first at \(3, 2, 1, 0\)\)"),
    ]:
        with pytest.raises(InputError, match=message):
            load(path, ModelOptions(calibration=array))
    path = tmp_path / "quantised.onnx"
    onnx.save(quantised_chain(("Conv", {})), path)
    with pytest.raises(InputError, match="quantised already; leave the calibration out"):
        load(path, ModelOptions(calibration=images()))


@pytest.fixture(scope="module")
def small() -> Network:
    return to_network(quantised_chain(("Conv", {})), "small")


def test_prepare_input_as_quantize_linear(small: Network) -> None:
    x = np.concatenate([np.arange(-30, 30, 1 / 16), [1e30, -1e30, 3e38]]).astype(np.float32)
    x = np.resize(x, (5, 2, 10, 11))
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
            "q",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.UINT8, x.shape)],
            [numpy_helper.from_array(np.float32(0.125), "s"), numpy_helper.from_array(np.uint8(100), "z")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=9,
    )
    (prepared,) = prepare_inputs(small, x)
    assert prepared.dtype == np.uint8
    np.testing.assert_array_equal(prepared, by_onnxruntime(model, x))
    np.testing.assert_array_equal(prepare_inputs(small, prepared)[0], prepared)


def test_prepare_input_refuses(small: Network) -> None:
    x = np.zeros((1, 2, 10, 11), np.float32)
    spoiled = x.copy()
    spoiled[0, 1, 2, 3] = np.inf
    for array, message in [
        (x[0], r"small: input must have shape \(frames, 2, 10, 11\), not \(2, 10, 11\)"),
        (x[:0], r"small: input must have one frame at least, not none$"),
        (x[:, :, :, :10], r"must have shape"),
        (x.astype(np.int8), r"must be float32 or uint8, not int8"),
        (x.astype(np.int64), r"must be float32 or uint8, not int64"),
        (x.astype(bool), r"must be float32 or uint8, not bool"),
        (x.astype(object), r"must be float32 or uint8, not object"),
        (x * np.float32("nan"), r"must hold finite numbers only, not 220 NaN or infinite \(first at \(0, 0, 0, 0\)\)"),
        (spoiled, r"not 1 NaN or infinite \(first at \(0, 1, 2, 3\)\)"),
        (x.astype(np.uint8)[:, :1], r"must have shape"),
        (x.tolist(), r"must be a NumPy array, not list"),
    ]:
        with pytest.raises(InputError, match=message):
            prepare_inputs(small, array)


@pytest.mark.parametrize("what", ["input", "output"])
def test_ends_without_a_shape(what: str) -> None:
    model = quantised_chain(("Conv", {}))
    end = getattr(model.graph, what)[0]
    end.type.tensor_type.ClearField("shape")
    with pytest.raises(
        ModelError, match=rf"^model: {what} '{end.name}' must have a shape, whose sizes may be symbolic"
    ):
        check(model, "model")


@pytest.mark.parametrize("behind", [False, True])
def test_quotients_of_half_precision(behind: bool) -> None:
    """ONNX Runtime divides in float16 where an input is quantised so; behind a layer it ignores the attribute."""
    piece = Piece(kind=np.float32, scale=0.0613, zero=0, opset=23)
    half = {"precision": TensorProto.FLOAT16}
    label = np.float32(0.0613), np.uint8(0)
    quantised = piece.node("QuantizeLinear", "x", *label, **({} if behind else half))
    sums = piece.conv(piece.node("DequantizeLinear", quantised, *label))
    model = piece.model(piece.node("QuantizeLinear", sums, np.float32(0.5), np.uint8(99), **(half if behind else {})))
    if behind:
        x = piece.frames(20)
        np.testing.assert_array_equal(by_hwgen(model, x), integer_session(model)[0].run(None, {"x": x})[0])
    else:
        with pytest.raises(ModelError, match=r"^model: QuantizeLinear .*: its precision must be float, not float16; "):
            to_network(model, "model")


def test_an_inferred_shape_of_an_output(tmp_path: Path) -> None:
    """Exporters leave it out; behind operators without one there is none."""
    piece = Piece()
    model = piece.model(piece.quantise(piece.conv(piece.real()), 0.5, 99))
    x, (expected,) = piece.frames(5), integer_session(model)[0].run(None, {"x": piece.frames(5)})
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "model.onnx")
    np.testing.assert_array_equal(
        golden.outputs(load(tmp_path / "model.onnx"), prepare_inputs(to_network(model, "m"), x))[0], expected
    )


def test_nodes_that_are_not_sorted() -> None:
    piece = Piece()
    model = piece.model(piece.quantise(piece.conv(piece.real()), 0.5, 99))
    nodes = [*model.graph.node][::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with pytest.raises(
        ModelError,
        match=r"^model: QuantizeLinear '\w+' takes 'Conv2', which Conv 'Conv2' computes later; nodes must be",
    ):
        check(model, "model")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_bias_that_is_no_number(value: str) -> None:
    piece = Piece()
    sums = piece.node("Conv", piece.real(), piece.weights((2, 3, 3, 3)), np.float32([1, value]))
    with pytest.raises(ModelError, match=rf"^model: Conv node 'Conv2': bias must be finite, but holds {value}$"):
        to_network(piece.model(piece.quantise(sums, 0.5, 99)), "model")


def test_a_batch_of_any_number_beside_a_fixed_one() -> None:
    piece = Piece()
    model = piece.model(piece.quantise(piece.conv(piece.real()), 0.5, 99), "z")
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.UINT8, [1, 3]))
    del model.graph.output[1:]
    model.graph.node.append(helper.make_node("Identity", ["z"], ["other"]))
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.UINT8, [1, 3]))
    with pytest.raises(ModelError, match="inputs must have one batch, not 1 and any number of frames"):
        to_network(model, "model")


def test_messages_of_onnx_runtime(tmp_path: Path) -> None:
    """Its reason, without its own files and functions."""
    piece = Piece()
    scales = np.float32([1, 1, 2, 2])
    wider = piece.node("Resize", piece.real(), "", scales, mode="nearest", antialias=1)
    model = piece.model(piece.quantise(piece.conv(wider), 0.5, 99))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"ONNX Runtime refuses it: when anti-aliasing is set, Resize only supports"):
        load(tmp_path / "model.onnx")
