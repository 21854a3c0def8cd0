"""Built-in networks, also those of MLPerf Tiny: shapes as published, numbers as ONNX Runtime computes them."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import last_integers
from referees import by_integer_kernels, trace_float64
from refusals import refusals_in

from hwgen import boards
from hwgen.errors import InputError, ModelError
from hwgen.network import golden, load, shapes
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, UINT16
from hwgen.network.onnx import constants, model_shapes
from hwgen.network.ops import Conv
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs
from hwgen.network.zoo import builtin, dense, light, tables
from hwgen.network.zoo.graphs import GRAPHS
from hwgen.plan import planner

SMALL = [
    *("decoilfnet-example", "lenet5", "alexnet@67x75", "alexnet-set@39x39", "vgg11:9@20x16", "vgg16:7@48x40"),
    "vgg16-dense:5@24x32",
    *("vgg19:8@24x32", "zfnet@61x53", "decoilfnet-four@12x9", "flownets:6@40x64", "speed-sign@36x48"),
    *("light_resnet50:part2", "light_squeezenet:part1"),
]
"""Every table and some light models, small enough for a test."""


def macs(network: Network) -> int:
    return sum(layer.macs for layer in network.layers if isinstance(layer, Conv))


def test_names() -> None:
    names = [name for name, _ in builtin.names()]
    assert names == [*tables.TABLES, *GRAPHS, *model_shapes.light_names()]
    assert all(description for _, description in builtin.names())
    assert {tables.base(name) for name in SMALL} >= set(tables.TABLES)


@pytest.mark.parametrize(
    ("name", "layers", "output", "multiplications"),
    [
        ("decoilfnet-example", "conv1 conv2 pool1", "3x2x2", 2 * 25 * 3 * 27),
        ("lenet5", "conv1 pool1 conv2 pool2 fc1 fc2 fc3", "10x1x1", 416_520),
        ("lenet5:3", "conv1 pool1 conv2", "16x10x10", 117_600 + 240_000),
        ("lenet5@28x28", "conv1 pool1 conv2 pool2 fc1 fc2 fc3", "10x1x1", 86_400 + 153_600 + 30_720 + 10_080 + 840),
        ("vgg16:7", "conv1_1 conv1_2 pool1 conv2_1 conv2_2 pool2 conv3_1", "256x56x56", 5_635_768_320),
        ("vgg16:7@64x64", "conv1_1 conv1_2 pool1 conv2_1 conv2_2 pool2 conv3_1", "256x16x16", None),
        ("vgg16:3@7x20", "conv1_1 conv1_2 pool1", "64x3x10", None),
        ("alexnet", "conv1 pool1 conv2 pool2 conv3 conv4 conv5 pool5", "256x6x6", 665_784_864),
        ("zfnet:4", "conv1 pool1 conv2 pool2", "256x13x13", None),
        ("speed-sign", "conv1 conv2 conv3", "80x173x313", None),
        ("decoilfnet-four@9x9", "conv1_1 conv1_2 conv1_3 conv1_4", "64x9x9", 81 * 112_320),
    ],
)
def test_shapes(name: str, layers: str, output: str, multiplications: int | None) -> None:
    network = load(name)
    assert " ".join(layer.name for layer in network.layers) == layers
    assert str(network.output) == f"{output} uint8"
    if multiplications is not None:
        assert macs(network) == multiplications
    assert re.fullmatch(r"[a-z0-9-]+", network.name)


@pytest.mark.long
def test_whole_vgg16() -> None:
    network = load("vgg16@32x32")
    kinds = [layer.kind for layer in network.layers]
    assert (kinds.count("conv"), kinds.count("maxpool")) == (13, 5)
    assert [layer.name for layer in network.layers][-4:] == ["conv5_1", "conv5_2", "conv5_3", "pool5"]
    assert str(network.output) == "512x1x1 uint8"


@pytest.mark.parametrize("name", SMALL)
def test_layers_are_the_tables(name: str) -> None:
    """The importer drops padding that no window reaches; nothing else differs."""
    network, table = load(name), shapes.load(name)
    assert table.layers
    for layer, shape in zip(network.before_dense().layers, table.layers, strict=True):
        assert (layer.name, layer.kind, layer.groups) == (shape.name, shape.kind, shape.groups)
        assert (layer.channels, layer.height, layer.width) == (shape.channels, shape.height, shape.width)
        assert (layer.outputs, layer.output_height, layer.output_width) == (
            shape.outputs,
            shape.output_height,
            shape.output_width,
        )
        assert (layer.window.kernel, layer.window.stride) == (shape.window.kernel, shape.window.stride)
        assert layer.window.padding[:2] == shape.window.padding[:2]
        assert all(kept <= given for kept, given in zip(layer.window.padding, shape.window.padding, strict=True))


#: `SMALL`, in the default run without VGG-11 and VGG-19, whose layers have the same kinds and windows as VGG-16's.
DISTINCT = [
    pytest.param(name, marks=pytest.mark.long) if name.startswith(("vgg11", "vgg19")) else name for name in SMALL
]


@pytest.mark.parametrize("name", DISTINCT)
def test_every_layer_computes_as_onnxruntime(name: str) -> None:
    """Layer by layer from ONNX Runtime's own inputs: pools equal, others by at most 1 in at most 1 of 1,000 values."""
    network = load(name)
    model = builtin.quantised(name)
    quantisers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    tensors = [node.output[0] for node in quantisers if node.input[0] != "flatten_out"]
    assert len(tensors) == len(network.layers) + 1
    model.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in tensors)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    frames = np.random.default_rng(3).uniform(-1.1, 1.1, (2, *network.input.shape)).astype(np.float32)
    values = session.run(tensors, {"image": frames})
    np.testing.assert_array_equal(prepare_inputs(network, frames)[0], values[0])
    for layer, inputs, expected in zip(network.layers, values, values[1:], strict=False):
        outputs = np.stack([layer.compute(frame.reshape(layer.input.shape)) for frame in inputs])
        difference = np.abs(outputs.astype(int) - expected.reshape(outputs.shape))
        assert difference.max() <= (1 if isinstance(layer, Conv) else 0), layer.name
        assert np.count_nonzero(difference) <= max(1, difference.size // 1000), layer.name
        assert len(np.unique(outputs)) > 5, layer.name


def test_weights_are_he_normal() -> None:
    """The seeded normal numbers, in 127 steps of each filter's largest; so VGG-16's stay what they were."""
    for name, index, size in (("vgg16:7@64x64", 6, (256, 128, 3, 3)), ("alexnet:3@67x67", 2, (256, 48, 5, 5))):
        layer = load(name).layers[index]
        assert isinstance(layer, Conv)
        inputs = size[1] * size[2] * size[3]
        floats = np.random.default_rng([20180600, index]).normal(0, np.sqrt(2 / inputs), size).astype(np.float32)
        steps = floats / np.abs(floats).max(axis=(1, 2, 3), keepdims=True) * 127
        assert np.abs(layer.weights - steps).max() <= 0.501
        assert layer.groups == (2 if name.startswith("alexnet") else 1)


@pytest.mark.parametrize("name", [*DISTINCT, pytest.param("alexnet", marks=pytest.mark.long)])
def test_numbers(name: str) -> None:
    """uint8 activations, int8 weights from -127 on; Relu where it belongs; outputs neither dead nor saturated."""
    network = load(name)
    frames = np.random.default_rng(2).uniform(-1, 1, (4, *network.input.shape)).astype(np.float32)
    for layer, outputs in golden.trace(network, prepare_inputs(network, frames)):
        assert layer.input.type == layer.output.type == UINT8
        if isinstance(layer, Conv):
            assert -127 <= layer.weights.min() < layer.weights.max() <= 127
            assert layer.bias.any()
            assert layer.requantisation is not None
            rectified = layer.name != "fc3"
            assert (layer.output.zero_point == 0) == rectified
        assert np.mean(outputs == 255) < 0.1, layer.name
        assert np.mean(outputs == outputs.min()) < 0.8, layer.name
        assert len(np.unique(outputs)) > 5, layer.name


WIDE = ["lenet5,int16", "vgg16:4@24x32,int16", "alexnet:4@67x67,int16", "light_squeezenet:part1,int16"]


@pytest.mark.parametrize("name", WIDE)
def test_sixteen_bits(name: str) -> None:
    """uint16 activations, int16 weights, of the same float numbers and shapes; 8 bits stay the default."""
    network, narrow = load(name), load(name.replace(",int16", ""))
    assert network.name == narrow.name + "-int16"
    assert shapes.load(name).geometry == shapes.load(name.replace(",int16", "")).geometry
    frames = np.random.default_rng(2).uniform(-1, 1, (2, *network.input.shape)).astype(np.float32)
    traces = [golden.trace(each, prepare_inputs(each, frames)) for each in (network, narrow)]
    for (layer, outputs), (other, values) in zip(*traces, strict=True):
        assert layer.input.type == layer.output.type == UINT16
        assert other.input.type == other.output.type == UINT8
        assert layer.window == other.window
        if isinstance(layer, Conv):
            assert isinstance(other, Conv)
            assert np.abs(layer.weights).max() == 32767
            scale = np.abs(layer.weights).max(axis=(1, 2, 3)) / np.abs(other.weights).max(axis=(1, 2, 3))
            assert np.abs(layer.weights / scale[:, None, None, None] - other.weights).max() <= 0.51
        # the same picture in finer steps
        assert layer.output.scale is not None
        assert other.output.scale is not None
        fine = (outputs.astype(float) - layer.output.zero_point) * layer.output.scale
        coarse = (values.astype(float) - other.output.zero_point) * other.output.scale
        assert np.median(np.abs(fine - coarse)) <= 3 * other.output.scale, layer.name
        assert len(np.unique(outputs)) > min(2 * len(np.unique(values)), 0.2 * outputs.size), layer.name


@pytest.mark.parametrize("name", WIDE)
def test_every_sixteen_bit_layer_computes_as_in_float64(name: str) -> None:
    """Layer by layer from the model's own inputs: by at most 1 in one value, or in at most 1 of 1,000."""
    network = load(name)
    model = builtin.quantised(name)
    frames = np.random.default_rng(3).uniform(-1.1, 1.1, (1, *network.input.shape)).astype(np.float32)
    tensors = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    named = trace_float64(model, frames)
    values = [named[tensor] for tensor in tensors if not tensor.startswith("flatten")]
    assert len(values) == len(network.layers) + 1
    np.testing.assert_array_equal(prepare_inputs(network, frames)[0], values[0])
    for layer, inputs, expected in zip(network.layers, values, values[1:], strict=False):
        outputs = np.stack([layer.compute(frame.reshape(layer.input.shape)) for frame in inputs])
        difference = np.abs(outputs.astype(int) - expected.reshape(outputs.shape))
        assert difference.max() <= (1 if isinstance(layer, Conv) else 0), layer.name
        assert np.count_nonzero(difference) <= max(1, difference.size // 1000), layer.name


def test_loading_twice_gives_the_same() -> None:
    first, second = load("lenet5"), load("lenet5")
    for one, other in zip(first.layers, second.layers, strict=True):
        assert one.output == other.output
        if isinstance(one, Conv) and isinstance(other, Conv):
            np.testing.assert_array_equal(one.weights, other.weights)
            np.testing.assert_array_equal(one.bias, other.bias)
            assert one.requantisation is not None
            assert other.requantisation is not None
            np.testing.assert_array_equal(one.requantisation.significand, other.requantisation.significand)


def test_weights_do_not_depend_on_prefix_and_size() -> None:
    long, short = load("vgg16:5@100x80"), load("vgg16:2@16x16")
    for one, other in zip(short.layers, long.layers, strict=False):
        assert isinstance(one, Conv)
        assert isinstance(other, Conv)
        np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize(("name", "message"), refusals_in("builtin_names_that_make_no_sense.txt"))
def test_names_that_make_no_sense(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_the_least_sizes_fit() -> None:
    for name in ("vgg16@32x32", "alexnet@67x67", "zfnet@53x53", "speed-sign@32x32", "flownets@1x1", "lenet5@16x16"):
        assert min(shapes.load(name).layers[-1].output_height, shapes.load(name).layers[-1].output_width) == 1


def test_what_of_a_light_model_is_left_out() -> None:
    network, shape = load("light_resnet50:part1"), shapes.load("light_resnet50:part1")
    assert [layer.name for layer in network.layers] == [layer.name for layer in shape.layers]
    assert network.left_out == shape.left_out
    assert load("lenet5").left_out == ()


def test_calibration_is_refused() -> None:
    with pytest.raises(InputError, match="lenet5: a built-in network is quantised already"):
        load("lenet5", ModelOptions(calibration=np.zeros((1, 1, 32, 32), np.float32)))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("light_bvlc_alexnet", 60_965_224 - 10_568),  # parameters as published, without biases
        ("light_vgg19", 143_667_240 - 14_696),
        ("light_inception_v1", 6_990_272),
    ],
)
def test_weights_of_light_models(name: str, count: int) -> None:
    """Counted before weights are made, by what fills them in, also where a Reshape stands between."""
    assert sum(weights for _, weights in light.weight_counts(name)) == count


@pytest.mark.parametrize("name", ["lenet5", "lenet5,int16"])
def test_dense_layers_in_slices(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Layers that are quantised some output channels at a time have the integers and scales of the whole network."""
    whole = builtin.quantised(name)
    monkeypatch.setattr(dense, "MANY_WEIGHTS", 0)
    monkeypatch.setattr(dense, "_WEIGHTS_AT_ONCE", 1 << 12)
    monkeypatch.setattr(dense, "_ALIGNED_OUTPUTS", 32)
    sliced = builtin.quantised(name)
    assert len(list(dense.DenseLayer("fc1", 4, 400, 120, relu=True).slices())) == 4
    constants, others = (
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for model in (whole, sliced)
    )
    assert constants.keys() == others.keys()
    for tensor, values in constants.items():
        assert values.dtype == others[tensor].dtype
        np.testing.assert_array_equal(values, others[tensor])
    assert list(whole.graph.node) == list(sliced.graph.node)
    assert list(whole.graph.output) == list(sliced.graph.output)


def test_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of large layers take fewer bits, and nothing that is computed with them differs."""
    network = load("lenet5")
    monkeypatch.setattr(constants, "MANY_WEIGHTS", 0)
    narrow = load("lenet5")
    x = np.random.default_rng(0).integers(0, 256, (2, *network.input.shape)).astype(np.uint8)
    for wide, layer in zip(network.layers, narrow.layers, strict=True):
        if isinstance(wide, Conv):
            assert isinstance(layer, Conv)
            assert (wide.weights.dtype, layer.weights.dtype) == (np.int64, np.int16)
            assert layer.accumulator_bound == wide.accumulator_bound
            np.testing.assert_array_equal(layer.folded_bias, wide.folded_bias)
    np.testing.assert_array_equal(golden.run(network, x), golden.run(narrow, x))


#: Multiply-adds of a frame; and for a ZedBoard the most cycles of latency and interval, each by its own objective.
TINY = {
    "resnet8": (12_501_632, 51_000, 32_768),
    "dscnn": (2_656_768, 10_700, 8_000),
    "mobilenetv1-0.25": (7_489_664, 95_000, 27_648),
    "autoencoder": (264_192, 5_500, 700),
}
#: Others, of which a small image is enough.
LARGER = ("unet@32x32", "squeezenet@64x64", "mobilenetv2@64x64", "resnet18@64x64", "mobilenetv1@64x64")


@pytest.mark.parametrize("name", [*TINY, *(pytest.param(name, marks=pytest.mark.long) for name in LARGER)])
def test_equal_to_onnxruntime(name):
    """Every value of the last integer tensor, over integer kernels alone."""
    network, model = load(name), last_integers(builtin.quantised(name))
    shape = (2, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]))
    frames = np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)
    theirs, floats = by_integer_kernels(model, frames)
    assert not floats
    ours = golden.run(network, prepare_inputs(network, frames))
    np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs)
    assert len(np.unique(ours)) > 3


@pytest.mark.parametrize("name", TINY)
def test_multiplications(name):
    assert load(name).macs == TINY[name][0]


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        pytest.param(name, goal, marks=[pytest.mark.long] * (name == "mobilenetv1-0.25" or goal == "latency"))
        for name in TINY
        for goal in ("latency", "interval")
    ],
)
def test_cycles_on_a_zedboard(name, objective):
    made = planner.make(
        load(name), boards.load("zedboard"), multipliers="dsp", macs_per_dsp="auto", objective=objective
    )
    _, latency, interval = TINY[name]
    if objective == "latency":
        assert made.latency <= latency
    else:
        assert made.interval is not None
        assert made.interval <= interval
    assert len(made.groups) == 1
    assert made.obstacle is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet8:3", r"^resnet8:3: a built-in name must be NAME\[@HEIGHTxWIDTH\], as in resnet8@64x64$"),
        ("autoencoder@3x3", r"^autoencoder@3x3: its input has 640 features, and no size$"),
        ("squeezenet@7x7", r"^squeezenet: its input of 7x7 is too small for pool3$"),
        (
            "resnet8,int16",
            r"^resnet8,int16: 3 things can't be built .*\n  Add node 'stack1_add': its maps must have at most 8 bits",
        ),
    ],
)
def test_names_of_tiny_networks_that_make_no_sense(name, message):
    with pytest.raises(ModelError, match=message):
        load(name)


def test_smallest_image():
    assert load("resnet8@1x1").output.channels == 10
