"""Average pooling: the model against ONNX Runtime's integer kernels, the hardware against NumPy and the model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from accelerators import GAPS, average_pool, global_average_pool, offers, windows_for
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st
from needs import needs_compiler
from onnx import TensorProto, helper, numpy_helper
from programs import SMALL, check
from testbench import pack, patterns, run, unpack
from walks import line_buffers, step_words, steps_of

from hwgen import boards, plan
from hwgen import simulate as hwgen_simulate
from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.gateware.average import FloatSum, FloatSumConfig, SumConfig, SumUnit
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.threshold import Threshold, ThresholdConfig
from hwgen.network import golden, load
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Requantisation, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import AveragePool, Conv, GlobalAveragePool, MaxPool
from hwgen.network.options import ModelOptions
from hwgen.network.quantise import prepare_inputs, quantise
from hwgen.program.compile import schedule
from hwgen.schedule.solve import steady_cycles
from hwgen.templates.compose import input_formats, layer_config
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import PyramidTemplate
from hwgen.templates.stages import stage_of
from hwgen.tools import synthesis

ELEMENTS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16}


# Models.

Label = tuple[np.float32, int]


def model_of(
    nodes: list[onnx.NodeProto],
    shape: tuple[int, int, int],
    labels: tuple[Label, Label],
    dtypes: tuple[str, str] = ("uint8", "uint8"),
    opset: int = 17,
    rank: int = 4,
) -> onnx.ModelProto:
    """A model from ``x`` to ``y``; constants are ``xs, xz, ys, yz``."""
    constants = []
    for name, (scale, zero), dtype in zip("xy", labels, dtypes, strict=True):
        constants.append(numpy_helper.from_array(np.float32(scale), f"{name}s"))
        constants.append(numpy_helper.from_array(np.array(zero, dtype), f"{name}z"))
    graph = helper.make_graph(
        nodes,
        "average",
        [helper.make_tensor_value_info("x", ELEMENTS[dtypes[0]], ["n", *shape])],
        [helper.make_tensor_value_info("y", ELEMENTS[dtypes[1]], ["n", "c", "h", "w"][:rank])],
        constants,
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8
    return model


def qdq(operator: str, **attributes: Any) -> list[onnx.NodeProto]:
    return [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node(operator, ["a"], ["b"], name="pool", **attributes),
        helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"]),
    ]


def qoperator(operator: str, **attributes: Any) -> list[onnx.NodeProto]:
    inputs = ["x", "xs", "xz", "ys", "yz"]
    return [helper.make_node(f"QLinear{operator}", inputs, ["y"], name="pool", domain="com.microsoft", **attributes)]


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray, kernel: str, folder) -> np.ndarray:
    """Its outputs, with all its optimisations; it must have run one integer kernel."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node] == [kernel]
    (y,) = session.run(None, {"x": x})
    return y


def random_labels(random: np.random.Generator, dtype: str) -> tuple[Label, Label]:
    """Scales that are equal (as ONNX Runtime's quantiser makes them), powers of two or any; any zero points."""
    limits = np.iinfo(dtype)

    def label(about: float) -> Label:
        scale = np.float32(2.0 ** random.integers(-6, -2) if powers else about * random.uniform(0.3, 1.5))
        return scale, int(random.choice([limits.min, limits.max, random.integers(limits.min, limits.max + 1)]))

    powers = random.random() < 0.2
    first = label(random.choice([0.1, 1e-6, 1e5]))
    return first, first if random.random() < 0.4 else label(first[0])


# Against ONNX Runtime.


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("write", [qdq, qoperator])
def test_average_against_onnxruntime(write, seed, tmp_path):
    """Any window, stride, padding (or automatic), rounding of sizes; padding counted or not; both types."""
    random = np.random.default_rng(seed)
    dtype = ("uint8", "int8")[seed % 2]
    kernel, strides = random.integers(1, 5, 2), random.integers(1, 4, 2)
    attributes: dict[str, Any] = {"kernel_shape": kernel.tolist(), "strides": strides.tolist()}
    attributes["count_include_pad"] = int(random.integers(2))
    mode = random.choice(["NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    if mode == "NOTSET":
        attributes |= {"pads": [int(random.integers(k)) for k in (*kernel, *kernel)]}
        attributes |= {"ceil_mode": int(random.integers(2))}
    else:
        attributes |= {"auto_pad": mode}
        attributes["strides"] = np.minimum(strides, kernel).tolist()
    shape = (int(random.integers(1, 6)), *map(int, random.integers(5, 14, 2)))
    labels = random_labels(random, dtype)
    opset = 17 if write is qoperator else int(random.choice([11, 17, 19, 22]))
    model = model_of(write("AveragePool", **attributes), shape, labels, (dtype, dtype), opset)
    limits = np.iinfo(dtype)
    x = random.integers(limits.min, limits.max + 1, (20, *shape)).astype(dtype)
    network = to_network(model, "model")
    assert [type(layer) for layer in network.layers] == [AveragePool]
    expected = by_onnxruntime(model, x, "QLinearAveragePool", tmp_path)
    np.testing.assert_array_equal(golden.run(network, x), expected)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("write", [qdq, qoperator])
def test_whole_maps_against_onnxruntime(write, seed, tmp_path):
    random = np.random.default_rng(seed)
    dtype = ("uint8", "int8")[seed % 2]
    shape = (32, *map(int, random.integers(1, 16, 2)))
    labels = random_labels(random, dtype)
    attributes = {} if write is qdq else {"channels_last": 0}
    model = model_of(write("GlobalAveragePool", **attributes), shape, labels, (dtype, dtype))
    limits = np.iinfo(dtype)
    x = random.integers(limits.min, limits.max + 1, (20, *shape)).astype(dtype)
    x[:4] = random.integers(-2, 3, (4, *shape)) + np.clip(labels[0][1], limits.min + 2, limits.max - 2)
    network = to_network(model, "model")
    assert [type(layer) for layer in network.layers] == [GlobalAveragePool]
    expected = by_onnxruntime(model, x, "QLinearGlobalAveragePool", tmp_path)
    np.testing.assert_array_equal(golden.run(network, x), expected)


# Rounded once.


ROUNDED = ModelOptions(averages="rounded")


def means(x: np.ndarray, labels: tuple[Label, Label], attributes: dict[str, Any]) -> np.ndarray:
    """Mean of each window in float64, rounded once with the zero point, halves to even."""
    (x_scale, x_zero), (y_scale, y_zero) = labels
    (rows, columns), (down, across) = attributes["kernel_shape"], attributes["strides"]
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    sides = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded, inside = np.pad(x.astype(np.int64) - x_zero, sides), np.pad(np.ones(x.shape, np.int64), sides)
    windows, taps = (
        np.lib.stride_tricks.sliding_window_view(array, (rows, columns), (2, 3))[:, :, ::down, ::across]
        for array in (padded, inside)
    )
    counts = rows * columns if attributes["count_include_pad"] else taps.sum(axis=(4, 5))
    limits = np.iinfo(x.dtype)
    values = windows.sum(axis=(4, 5)) / counts * (float(x_scale) / float(y_scale)) + y_zero
    return np.clip(np.rint(values), limits.min, limits.max).astype(x.dtype)


@pytest.mark.parametrize("write", [qdq, qoperator])
@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.0713, 0.0517), (0.3, 0.15)])
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "counted"),
    [
        ((2, 2), (2, 2), 0, 0),
        ((2, 3), (1, 2), 1, 1),
        ((3, 3), (1, 1), 1, 0),
        ((4, 4), (2, 3), 2, 1),
        ((1, 6), (1, 1), 0, 0),
    ],
)
def test_averages_that_are_rounded_once(write, scales, kernel, strides, pads, counted, tmp_path):
    """They equal NumPy's means in every value, and ONNX Runtime's but for one step, as the network says."""
    dtype, zeros = ("uint8", (100, 7)) if write is qdq else ("int8", (-3, 4))
    labels = tuple((np.float32(scale), zero) for scale, zero in zip(scales, zeros, strict=True))
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": [pads] * 2 + [pads - (pads > 1)] * 2}
    attributes["count_include_pad"] = counted
    model = model_of(write("AveragePool", **attributes), (3, 11, 12), labels, (dtype, dtype))
    limits = np.iinfo(dtype)
    x = np.random.default_rng(5).integers(limits.min, limits.max + 1, (40, 3, 11, 12)).astype(dtype)
    network = to_network(model, "model", options=ROUNDED)
    assert [type(layer) for layer in network.layers] == [AveragePool]
    ours, theirs = golden.run(network, x), by_onnxruntime(model, x, "QLinearAveragePool", tmp_path)
    np.testing.assert_array_equal(ours, means(x, labels, attributes))
    differences = np.abs(ours.astype(int) - theirs)
    assert differences.max() <= 1
    assert differences.any() or scales[0] != scales[1]
    (layer,), (warning,) = network.in_floats, network.warnings
    assert (layer.name, layer.largest_difference) == (network.layers[0].name, 1)
    assert warning.endswith("the middle between two integers, it differs from ONNX Runtime's by at most 1")


def test_only_averages_whose_order_counts_are_rounded_otherwise():
    """Sums in steps of a power of two are exact, and whole maps are sums of integers anyway."""
    for operator, scale in (("AveragePool", 0.125), ("GlobalAveragePool", 0.1)):
        attributes = {"kernel_shape": [2, 2]} if operator == "AveragePool" else {}
        model = model_of(qdq(operator, **attributes), (3, 6, 6), ((np.float32(scale), 3),) * 2)
        exact, rounded = to_network(model, "model"), to_network(model, "model", options=ROUNDED)
        assert (rounded.warnings, rounded.in_floats) == ((), ())
        x = np.random.default_rng(0).integers(0, 256, (30, 3, 6, 6)).astype(np.uint8)
        np.testing.assert_array_equal(golden.run(rounded, x), golden.run(exact, x))


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize(("kernel", "zero"), [(8, 7), (6, 0), (4, 131)])
def test_the_engine_rounds_averages_once(kernel, zero, counted):
    """It refuses the exact ones, names the option, and its program gives what the golden model gives."""
    labels = ((np.float32(0.1), 100), (np.float32(0.1), zero))
    attributes = {"kernel_shape": [kernel] * 2, "strides": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": counted}
    model = model_of(qdq("AveragePool", **attributes), (5, 12, 13), labels)
    with pytest.raises(ModelError, match=r"so near a tie .*; --averages rounded would work, with averages that differ"):
        schedule(to_network(model, "model"), SMALL)
    check(schedule(to_network(model, "model", options=ROUNDED), SMALL))


# What is refused.

LABELS = ((np.float32(0.1), 3), (np.float32(0.1), 3))


def before(operator: str, **attributes: Any) -> list[onnx.NodeProto]:
    """An operator between the pool and QuantizeLinear."""
    first, pool, last = qdq("GlobalAveragePool")
    last.input[0] = "c"
    return [first, pool, helper.make_node(operator, ["b"], ["c"], name="other", **attributes), last]


@pytest.mark.parametrize(
    ("nodes", "dtypes", "message"),
    [
        (
            qoperator("GlobalAveragePool"),
            ("uint8", "int8"),
            "QLinearGlobalAveragePool node 'pool': must take and give integers of one 8-bit type, not uint8 and int8",
        ),
        (
            qoperator("AveragePool", kernel_shape=[2, 2], channels_last=1),
            ("uint8", "uint8"),
            "QLinearAveragePool node 'pool': channels_last 1 is not supported, 0 is",
        ),
        (
            qdq("AveragePool", kernel_shape=[2, 2], pads=[2, 0, 0, 0]),
            ("uint8", "uint8"),
            "AveragePool node 'pool': padding must be smaller than the kernel 2x2, not (2, 0, 0, 0)",
        ),
        (
            qdq("AveragePool", kernel_shape=[2, 2], dilations=[2, 2]),
            ("uint8", "uint8"),
            "AveragePool node 'pool': dilation 2x2 is not supported, 1x1 is",
        ),
        (
            before("Softmax"),
            ("uint8", "uint8"),
            "Softmax node 'other': must take a quantised input; the hardware ends at the last integer tensor",
        ),
    ],
)
def test_refused(nodes, dtypes, message):
    model = model_of(nodes, (3, 6, 6), LABELS, dtypes, 21)
    with pytest.raises(ModelError, match=f"^model: {re.escape(message)}$"):
        to_network(model, "model")


def test_factor_of_whole_maps():
    labels = ((np.float32(1), 3), (np.float32(1e-4), 3))
    message = (
        "model: GlobalAveragePool node 'pool': x_scale / (y_scale * 36) must be from 2**-32 to below 256, not 277."
    )
    with pytest.raises(ModelError, match=f"^{re.escape(message)}"):
        to_network(model_of(qdq("GlobalAveragePool"), (3, 6, 6), labels), "model")


def test_without_quantize_linear():
    """At the end of a model, in floats."""
    nodes = qdq("AveragePool", kernel_shape=[2, 2])[:2]
    nodes[-1].output[0] = "y"
    model = model_of(nodes, (3, 6, 6), LABELS)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    message = "model: AveragePool node 'pool': gives floats; a QuantizeLinear must follow (quantise its output too)"
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        to_network(model, "model")


def pool(**changes: Any) -> AveragePool:
    source = FeatureMap(channels=2, height=5, width=5, type=UINT8, zero_point=7)
    given = {"window": Window(kernel=(2, 2)), "output": FeatureMap(channels=2, height=4, width=4, type=UINT8)} | changes
    given = {"x_scale": float(np.float32(0.1)), "y_scale": 0.25} | given
    return AveragePool(name="pool", input=source, include_padding=False, **given)


@pytest.mark.parametrize("scale", [0.1, 0.0, -0.5, np.inf, np.nan])
@pytest.mark.parametrize("name", ["x_scale", "y_scale"])
def test_scales(name, scale):
    """Others would be rounded by the golden model, and not by the hardware."""
    with pytest.raises(ConfigError, match=rf"^pool: {name} must be a positive float32 number, not {scale}$"):
        pool(**{name: scale})


def test_errors():
    with pytest.raises(ConfigError, match=r"^pool: each window must hold a pixel of the map, not only padding$"):
        pool(
            window=Window(kernel=(2, 2), padding=(2, 0, 0, 0)),
            output=FeatureMap(channels=2, height=6, width=4, type=UINT8),
        )
    with pytest.raises(ConfigError, match=r"^all: the window must be the map, not Window\(kernel=\(2, 2\), "):
        GlobalAveragePool(
            name="all",
            input=FeatureMap(channels=2, height=5, width=5, type=UINT8),
            output=FeatureMap(channels=2, height=4, width=4, type=UINT8),
            window=Window(kernel=(2, 2)),
            requantisation=None,  # type: ignore[arg-type]
        )


def test_scale_passes_a_max_pool_but_no_average():
    """A max pool's input has the label that its output gets; an average's has its own."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[2, 2]),
        *qdq("AveragePool", kernel_shape=[2, 2]),
        helper.make_node("MaxPool", ["z"], ["y"], kernel_shape=[2, 2]),
    ]
    nodes[1].input[0], nodes[3].output[0] = "m", "z"
    labels = ((np.float32(0.25), 3), (np.float32(0.125), 9))
    first, average, last = to_network(model_of(nodes, (2, 7, 7), labels), "model").layers
    assert (type(first), type(last)) == (MaxPool, MaxPool)
    for map_ in (first.input, first.output, average.input):
        assert (map_.scale, map_.zero_point) == (0.25, 3)
    for map_ in (average.output, last.input, last.output):
        assert (map_.scale, map_.zero_point) == (0.125, 9)


# The hardware.


def sums_by_numpy(config: FloatSumConfig, windows: np.ndarray) -> np.ndarray:
    """Of each window, ``(n, Tp, C, Kh, Kw)``, the sum in float32, tap by tap, in steps of the unit: ``(n, Tp, C)``."""
    terms = (windows - config.zero_point).astype(np.float32) * np.float32(config.unit)
    total = np.zeros(windows.shape[:3], np.float32)
    for tap in np.moveaxis(terms.reshape(*windows.shape[:3], -1), -1, 0):
        total += tap
    return total.astype(np.int64)


def simulate(component, windows: np.ndarray, gaps: list[int]):
    window = component.config.window
    words = step_words(window, steps_of(window, windows))
    return run(component, words, len(windows) * window.output_folds, offer=offers(window.steps, gaps))


def results(config: SumConfig | FloatSumConfig, words: list[int]) -> list[list[int]]:
    return [unpack(word, config.result.width, True, config.lanes * config.window.pixels) for word in words]


def by_fold(config: SumConfig | FloatSumConfig, sums: np.ndarray) -> list[list[int]]:
    """Sums ``(n, Tp, C)`` as they leave."""
    return sums.transpose(0, 2, 1).reshape(-1, config.lanes * config.window.pixels).tolist()


@cases_in_the_long_run(25)
@given(window=line_buffers(channelwise=True), seed=st.integers(0, 2**32), gaps=GAPS)
def test_sums(window, seed, gaps):
    """In integers; taps that a last step lacks count as padding."""
    config = SumConfig(window=window)
    windows = windows_for(window, 8, seed)
    trace = simulate(SumUnit(config), windows, gaps)
    kernel = window.kernel[0] * window.kernel[1]
    expected = windows.sum(axis=(3, 4)) + (config.term_count - kernel) * window.pad_value
    assert results(config, trace.words) == by_fold(config, expected)
    last_steps = trace.taken[window.steps - 1 :: window.steps]
    assert trace.times == [cycle + config.latency for cycle in last_steps]


@cases_in_the_long_run(25)
@given(
    window=line_buffers(channelwise=True, max_bits=8),
    unit=st.one_of(st.integers(0, (1 << 23) - 1), st.integers(0, 1 << 13)).map(lambda half: 2 * half + 1),
    seed=st.integers(0, 2**32),
    gaps=GAPS,
)
def test_sums_in_float32(window, unit, seed, gaps):
    window = replace(window, taps=window.kernel[0] * window.kernel[1])
    config = FloatSumConfig(window=window, zero_point=window.pad_value, unit=unit)
    windows = windows_for(window, 8, seed)
    trace = simulate(FloatSum(config), windows, gaps)
    assert results(config, trace.words) == by_fold(config, sums_by_numpy(config, windows))
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@cases_in_the_long_run(25)
@given(data=st.data(), offer=patterns())
def test_thresholds(data, offer):
    """The number of thresholds that a sum reaches, by count; lanes without a channel are 0."""
    bits, pixels, lanes = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    counts = tuple(sorted(data.draw(st.sets(st.integers(1, 9), max_size=4))))
    size = data.draw(st.integers(0, 40))
    numbers = st.integers(least, most + 1)
    rows = tuple(
        tuple(sorted(data.draw(st.lists(numbers, min_size=size, max_size=size)))) for _ in range(max(len(counts), 1))
    )
    beats = ((0, 1, 2)[:lanes], (3, 4, 5)[: data.draw(st.integers(1, lanes))])
    signed = data.draw(st.booleans())
    config = ThresholdConfig(
        lanes=lanes,
        accumulator_bits=bits,
        thresholds=rows,
        counts=counts,
        count_bits=4 if counts else 0,
        low=-5 if signed else 3,
        bits=7,
        signed=signed,
        beats=beats,
        pixels=pixels,
    )
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sums = random.integers(least, most + 1, (12, lanes, pixels))
    chosen = random.integers(len(rows), size=sums.shape)
    words, expected = [], []
    for number, (values, row) in enumerate(zip(sums, chosen, strict=True)):
        above = np.array(counts)[row] << bits if counts else 0
        words.append(pack(((values % (1 << bits)) + above).ravel().tolist(), config.accumulator.width))
        reached = [
            [config.low + sum(t <= v for t in rows[r]) if lane < len(beats[number % 2]) else 0 for v, r in pairs]
            for lane, pairs in enumerate(np.stack((values, row), axis=-1).tolist())
        ]
        expected.append([output for pairs in reached for output in pairs])
    trace = run(Threshold(config), words, len(words), offer=offer)
    assert [unpack(word, 7, signed, lanes * pixels) for word in trace.words] == expected
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def average_network(*, zero: int = 3) -> Network:
    """Convolution, average pool with padding that does not count, max pool, and the average of what is left."""
    rng = np.random.default_rng(5)
    source = FeatureMap(channels=3, height=11, width=12, type=UINT8, zero_point=9)
    middle = FeatureMap(channels=4, height=11, width=12, type=UINT8, zero_point=zero)
    conv = Conv(
        name="conv",
        input=source,
        output=middle,
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-99, 100, (4, 3, 3, 3)),
        bias=rng.integers(-999, 999, 4),
        requantisation=Requantisation(
            significand=rng.integers(1 << 23, 1 << 24, 4), shift=np.full(4, 30), zero_point=zero, low=0, high=255
        ),
    )
    halves = average_pool(rng, "halves", middle, Window(kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)))
    halves = replace(halves, x_scale=float(np.float32(0.0371)), include_padding=False)
    window = Window(kernel=(2, 2))
    after = replace(halves.output, height=5, width=5)
    best = MaxPool(name="best", input=halves.output, output=after, window=window)
    return Network(name="average", layers=(conv, halves, best, global_average_pool(rng, "whole", after)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("simulator", "options"),
    [
        ("amaranth", {}),
        pytest.param("amaranth", {"template": "pyramid", "tile": (1, 1)}, marks=pytest.mark.long),
        pytest.param("verilator", {"template": "pyramid", "tile": (2, 2)}, marks=[needs_compiler, pytest.mark.long]),
        pytest.param("verilator", {"objective": "latency"}, marks=[needs_compiler, pytest.mark.long]),
    ],
)
def test_planned(simulator, options):
    """The planner takes whole windows where it must; values as the model says, in as many cycles as the plan says."""
    network = average_network()
    if "template" in options:
        network = Network(name="average", layers=network.layers[:3])
    made = plan.make(network, boards.load("zedboard"), **options)
    assert made.layers[1].tk == 9
    config = made.configure()
    frames = np.random.default_rng(1).integers(0, 256, (3, *network.input.shape)).astype(np.uint8)
    result = hwgen_simulate.run(config, frames, hwgen_simulate.Options(simulator=simulator))
    np.testing.assert_array_equal(result.outputs, golden.run(network, frames))
    cycles = steady_cycles(config)
    ends = [end - result.first_input for end in result.frame_ends]
    assert (ends[0], ends[-1] - ends[-2]) == (steady_cycles(config, 1).latency, cycles.interval)


def test_refused_plans():
    """Sums in float32 can't be made in several steps."""
    pool = average_network().layers[1]
    choices = LayerPlan(name="halves", kind="averagepool", tn=1, tm=1, tk=3, chain=1, line_rows=5, fifo_depths=(9,))
    with pytest.raises(PlanError, match=r"^halves: unroll taps must be 9, all taps of the kernel, not 3$"):
        input_formats(stage_of(pool), choices, [1])


def large_pool(x_scale: float) -> Network:
    source = FeatureMap(channels=1, height=40, width=40, type=UINT8)
    output = FeatureMap(channels=1, height=1, width=1, type=UINT8)
    window = Window(kernel=(40, 40))
    layer = AveragePool(
        name="pool", input=source, output=output, window=window, x_scale=x_scale, y_scale=0.25, include_padding=False
    )
    return Network(name="large", layers=(layer,))


@pytest.mark.long
def test_windows_too_large_to_add_up_at_once(monkeypatch):
    """1,600 taps, a rounding adder each, are refused before any group is searched; exact sums go tap by tap."""
    board = boards.load("zedboard")
    assert plan.make(large_pool(0.125), board).resources.lut < 3_000
    monkeypatch.setattr("hwgen.templates.search.GroupSearch.best", None)
    with pytest.raises(PlanError, match=r"pool: 1600 taps that are added up at once in float32 need .* LUTs, but "):
        plan.make(large_pool(float(np.float32(0.1))), board)


def plain(**changes: Any) -> LineBufferConfig:
    source = BeatFormat(channels=4, height=5, width=6, lanes=2, bits=8, signed=False)
    given = {"padding": (1, 1, 1, 1), "pad_value": 3, "taps": 9, "output_folds": 2, "channelwise": True} | changes
    return LineBufferConfig(input=source, kernel=(3, 3), stride=(1, 1), rows=4, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SumConfig(window=plain(channelwise=False)), "window.channelwise must be True, not False"),
        (
            lambda: FloatSumConfig(window=plain(taps=3), zero_point=3, unit=1),
            "window.taps must be all of the kernel's, not 3",
        ),
        (
            lambda: FloatSumConfig(window=plain(), zero_point=4, unit=1),
            "window.pad_value must be the zero point 4, not 3",
        ),
        (
            lambda: FloatSumConfig(window=plain(), zero_point=3, unit=6),
            "unit must be odd, and between 1 and 2**24 - 1, not 6",
        ),
        (
            lambda: plain(inside=True, taps=3),
            "inside must be False, not True, if a step has 3 of 9 taps",
        ),
        (
            lambda: ThresholdConfig(
                lanes=1, accumulator_bits=9, thresholds=((3, 1),), low=0, bits=8, signed=False, beats=((0,),)
            ),
            "thresholds of a row must ascend, not be 3, 1",
        ),
        (
            lambda: ThresholdConfig(
                lanes=1, accumulator_bits=9, thresholds=((1, 3),), low=254, bits=8, signed=False, beats=((0,),)
            ),
            "low must leave room for 2 thresholds, not 254",
        ),
    ],
)
def test_configuration_errors(make, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        make()


@pytest.mark.long
def test_float_model(tmp_path):
    """As CNNs end: an average pool, the average of the map, a dense layer; quantised by ONNX Runtime."""
    rng = np.random.default_rng(3)
    weights = {"w": (8, 3, 3, 3), "v": (10, 8)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("AveragePool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "v"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float32), n) for n, shape in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "classifier.onnx")
    frames = rng.normal(0, 1, (6, 3, 12, 12)).astype(np.float32)
    network = load(tmp_path / "classifier.onnx", ModelOptions(calibration=frames))
    assert [layer.kind for layer in network.layers] == ["conv", "averagepool", "globalaveragepool", "conv"]
    made = plan.make(network, boards.load("zedboard"))
    (integers,) = prepare_inputs(network, frames)
    result = hwgen_simulate.run(made.configure(), integers, hwgen_simulate.Options(simulator="amaranth"))
    np.testing.assert_array_equal(result.outputs, golden.run(network, integers))
    # The same model, as far as its integers go, by ONNX Runtime itself.
    quantised = quantise(model, frames, "classifier")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(quantised.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": frames})
    steps = golden.run(network, integers).reshape(6, 10).astype(np.float32) - network.output.zero_point
    np.testing.assert_array_equal(steps * np.float32(network.output.scale), expected)


@pytest.mark.long
@pytest.mark.parametrize("names", [("finish",), ("window", "compute", "whole")], ids="-".join)
def test_estimates_and_paths(names):
    """Against Yosys: both sums, the search, and a walk that says which taps lie in the map."""
    _, pool, _, whole = average_network().layers
    plans = [
        LayerPlan(name="pool", kind=op.kind, tn=1, tm=1, tk=op.taps, chain=1, line_rows=5, fifo_depths=(9,))
        for op in (pool, whole)
    ]
    stages = [PyramidTemplate.stage(op, DEFAULT) for op in (pool, whole)]
    layers = [
        layer_config(stage, choices, input_formats(stage, choices, [1]), [None])
        for stage, choices in zip(stages, plans, strict=True)
    ]
    assert layers[0].window.inside
    components = {**layers[0].components, "whole": layers[1].compute}
    parts = [components[name] for name in names]
    measured, paths = synthesis.measure_paths(parts)
    for part, found, path in zip(parts, measured, paths, strict=True):
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36)
        assert abs(expected.lut / found.lut - 1) <= 0.15, part
        assert abs(expected.ff / found.ff - 1) <= 0.08, part
        assert path is not None
        assert path.delay <= 3.3
