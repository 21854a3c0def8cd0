"""Local response normalisation: the sums, the outputs, the components, and models against ONNX Runtime."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from accelerators import Case, frames_for, integers, size_buffers
from accelerators import check as check_cycles_of
from counted import cases_in_the_long_run
from graphs import Maker, unrolls
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from referees import integer_session
from step_checks import FRAMES, around, in_hardware, maps, padded, quantised, words
from step_counts import windows
from testbench import Pattern, pack, patterns, run, unpack

import hwgen
from hwgen import boards
from hwgen import simulate as run_network
from hwgen.devices import DEFAULT
from hwgen.errors import ConfigError, ModelError, PlanError
from hwgen.gateware.normalise import NormaliseConfig
from hwgen.gateware.running_scale import RunningScaleConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.network import golden
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, UINT16, FeatureMap, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import LRN
from hwgen.network.ops.lrn import Falls, Scale, from_bits, to_bits
from hwgen.plan import planner
from hwgen.templates.compose import compose
from hwgen.templates.layers import with_buffers
from hwgen.templates.normalise import LRNStage
from hwgen.templates.stage import beat_format
from hwgen.tools import synthesis

# The running sum.


def float32_rounded(total: int) -> int:
    """To 24 significant bits, by NumPy; totals have fewer than 53."""
    return int(np.float32(total))


@st.composite
def walks(draw) -> RunningScaleConfig:
    """Sums that are exact, or rounded by a few bits or by many."""
    channels, width = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    beat = BeatFormat(
        channels=channels,
        height=draw(st.integers(1, 2)),
        width=width,
        lanes=1,
        bits=draw(st.integers(2, 4)),
        signed=draw(st.booleans()),
        pixels=draw(st.integers(1, min(width, 2))),
    )
    size = draw(st.sampled_from([1, 3, 5, 7]))
    bits = draw(st.sampled_from([3, 20, 25, 28, 36]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    terms = [int(term) for term in rng.integers(0, 1 << rng.integers(1, bits + 1, 1 << beat.bits))]
    rounds = bits > 3
    # Enough for what roundings lose.
    start = int(rng.integers(1 << 25, 1 << 26)) + (1 << bits) // 1000 if rounds else 0
    most = start + (size + 1) * max(terms)
    most += (1 << max(most.bit_length() - 24, 0)) * 20 * rounds
    least = start - (1 << max(most.bit_length() - 24, 0)) * 20 * rounds
    return RunningScaleConfig(
        input=beat,
        terms=tuple(terms),
        size=size,
        start=start,
        lowest=max(least, 1 << 25) if rounds else 0,
        highest=most,
    )


def sums(config: RunningScaleConfig, pixel: list[int]) -> list[int]:
    """Of the terms of a pixel's channels, one addition after the other."""
    keep = float32_rounded if config.rounds else int
    half, total, found = config.size // 2, config.start, []
    for term in pixel[:half]:
        total = keep(total + term)
    for channel in range(len(pixel)):
        if channel + half < len(pixel):
            total = keep(total + pixel[channel + half])
        if channel > half:
            total = keep(total - pixel[channel - half - 1])
        found.append(total)
    return found


def check_sums(config: RunningScaleConfig, found: list[int], frames: np.ndarray) -> None:
    """Each channel's value, and its sum, at every pixel of the map."""
    source, pixels = config.input, config.pixels
    bits, rng = source.bits * pixels, iter(found)
    terms = np.array(config.terms)[frames - source.value_range[0]]
    for frame, of_frame in zip(frames, terms, strict=True):
        for row in range(source.height):
            for step in range(config.row_steps):
                columns = range(step * pixels, min((step + 1) * pixels, source.width))
                expected = [sums(config, of_frame[:, row, column].tolist()) for column in columns]
                for channel in range(source.channels):
                    word = next(rng)
                    values = unpack(word, source.bits, source.signed, pixels)
                    scales = unpack(word >> bits, config.scale_bits, False, pixels)
                    for place, column in enumerate(columns):
                        assert values[place] == frame[channel, row, column]
                        assert scales[place] == config.encode(expected[place][channel])
    assert next(rng, None) is None


@cases_in_the_long_run(18)
@given(config=walks(), seed=st.integers(0, 2**32), offer=patterns(), room=patterns())
def test_the_running_sum(config, seed, offer, room):
    """Every value and sum, and every step and beat in the first cycle in which it may come."""
    source = config.input
    frames, component = maps(source, seed), config.component()
    given_beats, steps = words(source, padded(source, frames, seed)), FRAMES * config.windows * config.output_folds
    watch = {"start": component.start, "offered": component.i.valid, "room": component.room}
    trace = run(component, given_beats, steps, offer=offer, drive=[(component.room, room)], watch=watch)
    check_sums(config, trace.words, frames)
    starts = [cycle for cycle, start in enumerate(trace.watched["start"]) if start]
    assert trace.times == [cycle + config.steps - 1 + config.latency for cycle in starts]
    moved, rested, taken, started = 0, 0, 0, 0
    for cycle, (offered, there) in enumerate(zip(trace.watched["offered"], trace.watched["room"], strict=True)):
        number = moved % (source.channels + config.ahead)
        takes, gives = number < source.channels, number >= config.ahead
        moves = rested == 0 and (offered or not takes) and (there or not gives) and started < steps
        rested = config.steps - 1 if moves else max(rested - 1, 0)
        assert (taken < len(trace.taken) and trace.taken[taken] == cycle) == (moves and takes)
        assert (started < len(starts) and starts[started] == cycle) == (moves and gives)
        moved, taken, started = moved + moves, taken + (moves and takes), started + (moves and gives)
    assert started == steps


@pytest.mark.parametrize("num_channels", [1, 3, 4])
def test_the_index_of_each_sum(num_channels):
    """The component tells, with each step's start, the channel whose sum it is; the first follows the last."""
    beat = BeatFormat(channels=num_channels, height=1, width=3, lanes=1, bits=2, signed=False)
    config = RunningScaleConfig(input=beat, terms=(0, 1, 2, 3), size=3, start=1, lowest=1, highest=13)
    component, num_sums = config.component(), 3 * num_channels
    watch = {"start": component.start, "fold": component.fold}
    drive = [(component.room, Pattern())]
    trace = run(component, [0] * num_sums, num_sums, drive=drive, watch=watch)
    indices = [fold for fold, start in zip(trace.watched["fold"], trace.watched["start"], strict=True) if start]
    assert indices == [*range(num_channels)] * 3


@cases_in_the_long_run(10)
@given(config=walks(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_after_a_reset(config, seed, reset_at):
    source = config.input
    frames, component = maps(source, seed), config.component()
    steps = FRAMES * config.windows * config.output_folds
    after = words(source, padded(source, frames, seed)), steps
    before = words(source, padded(source, maps(source, seed + 1), seed)) * 4
    trace = run(component, before, 4 * steps, reset_at=reset_at, after=after, drive=[(component.room, Pattern())])
    assert trace.reset is not None
    check_sums(config, trace.words[trace.reset[2] :], frames)


# From sums to outputs.


@st.composite
def normalisations(draw) -> NormaliseConfig:
    """Any tables: one factor or several, in LUTs or in block RAM, with ripples or without."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bits, pixels = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    beat = BeatFormat(channels=2, height=1, width=2, lanes=1, bits=bits, signed=draw(st.booleans()), pixels=pixels)
    least, most = beat.value_range
    window = RunningScaleConfig(
        input=beat, terms=(1,) * (1 << bits), size=3, start=0, lowest=0, highest=draw(st.sampled_from([60, 1000]))
    )
    scales, zero = window.scale_bits, int(rng.integers(least, most + 1))
    shift = draw(st.integers(max(scales - 3, 0), scales))
    fraction, limit = draw(st.integers(0, 4)), int(rng.integers(1, 40))
    deep = draw(st.booleans())  # so many falls that they take block RAM
    factors = rng.integers(0, (200 if deep else 6) << fraction >> bits, 1 << scales - shift, endpoint=True)
    distances = range(max(most - zero, zero - least) + 1)
    first, count = [], 0
    for distance in distances:
        first.append(count)
        count += min(distance * int(factors.max()) >> fraction, limit) + 1
    ripples = (0, *(2 * rng.integers(1, 1 << rng.integers(1, 6), draw(st.integers(0, 3)))).tolist())
    kind = draw(st.sampled_from([UINT8, INT8]))
    zero_point, *ends = rng.integers(kind.minimum, kind.maximum + 1, 3).tolist()
    return NormaliseConfig(
        window=window,
        zero=zero,
        factors=tuple(factors.tolist()),
        shift=shift,
        fraction=fraction,
        limit=limit,
        first=tuple(first),
        # Nothing stays nothing.
        falls=Weights([0, *rng.integers(0, 1 << scales, count - 1).tolist()]),
        kinds=Weights([0, *rng.integers(0, len(ripples), count - 1).tolist()]),
        ripples=ripples,
        zero_point=zero_point,
        low=min(ends),
        high=max(ends),
        bits=8,
        signed=kind.signed,
    )


def normalised(config: NormaliseConfig, value: int, scale: int) -> int:
    distance = abs(value - config.zero)
    k = min(distance * config.factors[scale >> config.shift] >> config.fraction, config.limit)
    place = config.first[distance] + k
    since = scale - config.falls.values[place]
    above = since < 0 or config.ripples[config.kinds.values[place]] >> since & 1
    away = (k + above) * (-1 if value < config.zero else 1)
    return min(max(config.zero_point + away, config.low), config.high)


@cases_in_the_long_run(18)
@given(config=normalisations(), seed=st.integers(0, 2**32), offer=patterns())
def test_outputs(config, seed, offer):
    """Of any values and scales, in as many cycles as are said."""
    beat, pixels, count = config.window.input, config.window.pixels, 60
    rng = np.random.default_rng(seed)
    values = integers(rng, *beat.value_range, (count, pixels))
    # Mostly around a fall.
    scales = rng.choice(np.asarray(config.falls.values), (count, pixels)) + rng.integers(-2, 8, (count, pixels))
    scales = np.clip(scales, 0, (1 << config.window.scale_bits) - 1)
    steps = [
        pack(of, beat.bits) | pack(at, config.window.scale_bits) << beat.bits * pixels
        for of, at in zip(values.tolist(), scales.tolist(), strict=True)
    ]
    trace = run(config.component(), steps, count, offer=offer)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    found = [unpack(word, config.bits, config.signed, pixels) for word in trace.words]
    expected = [
        [normalised(config, int(value), int(scale)) for value, scale in zip(*each, strict=True)]
        for each in zip(values, scales, strict=True)
    ]
    assert found == expected


# What ONNX Runtime computes.


def model_of(
    shape: tuple[int, int, int],
    x: tuple[str, float, int],
    y: tuple[str, float, int],
    behind: tuple[onnx.NodeProto, ...] = (),
    **attributes: float,
) -> onnx.ModelProto:
    """DequantizeLinear, LRN, ``behind`` (from ``normal`` to ``last``), QuantizeLinear; labels are type, scale, zero."""
    arrays = {}
    for name, (kind, scale, zero) in (("x", x), ("y", y)):
        arrays |= {f"{name}_scale": np.float32(scale), f"{name}_zero": np.array(zero, kind)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
        helper.make_node("LRN", ["real"], ["normal"], name="lrn", **attributes),
        *behind,
        helper.make_node("QuantizeLinear", ["last" if behind else "normal", "y_scale", "y_zero"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["batch", *(shape if name == "x" else [None] * 3)]
        )
        for name, (kind, _, _) in (("x", x), ("y", y))
    ]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()]
    graph = helper.make_graph(nodes, "lrn", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def frames_of(model: onnx.ModelProto, count: int, seed: int = 0) -> np.ndarray:
    """Any values, values around the zero point, and mostly the zero point."""
    info = model.graph.input[0].type.tensor_type
    kind = np.iinfo(helper.tensor_dtype_to_np_dtype(info.elem_type))
    shape = (count, *(dim.dim_value for dim in info.shape.dim[1:]))
    zero = next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == "x_zero").item()
    rng = np.random.default_rng(seed)
    any_value = rng.integers(kind.min, kind.max + 1, shape)
    near = np.clip(np.rint(zero + rng.normal(0, 40, shape)), kind.min, kind.max)
    frame = np.arange(count)[:, None, None, None] % 3
    values = np.where(frame == 0, any_value, np.where(frame == 1, near, np.where(near % 4 == 0, any_value, zero)))
    return values.astype(kind.dtype)


def check(model: onnx.ModelProto, count: int = 3) -> LRN | None:
    """The golden model gives ONNX Runtime's integers; returns the layer if it is one of the kind."""
    network, frames = to_network(model, "model"), frames_of(model, count)
    (theirs,) = integer_session(model)[0].run(None, {"x": frames})
    np.testing.assert_array_equal(golden.run(network, frames), theirs)
    (layer,) = [layer for layer in network.layers if layer.kind in ("lrn", "lookup")]
    return layer if isinstance(layer, LRN) else None


#: Of much effect and of little, with sums that are rounded and sums that are not; of all kinds of labels.
CASES = {
    "alexnet": (("uint8", 0.9, 0), ("uint8", 0.6, 0), {"size": 5}),
    "of little effect": (("uint8", 0.05, 0), ("uint8", 0.05, 0), {"size": 5}),
    "signed": (("int8", 0.3, -7), ("int8", 0.27, 5), {"size": 5, "alpha": 1e-3, "bias": 2.0}),
    "mixed": (("int8", 0.2, -128), ("uint8", 0.1, 9), {"size": 3, "alpha": 1e-2, "beta": 0.5}),
    "zero at the top": (("uint8", 0.5, 255), ("int8", 0.3, 127), {"size": 7, "alpha": 1e-3, "beta": 1.0}),
    "saturating": (("uint8", 1.0, 0), ("uint8", 0.02, 40), {"size": 9, "alpha": 1e-3, "bias": 0.7}),
    "one channel": (("uint8", 1.0, 0), ("uint8", 0.8, 0), {"size": 1, "alpha": 1e-4}),
    "slow": (("uint8", 0.7, 0), ("uint8", 0.5, 0), {"size": 5, "alpha": 1e-3, "beta": 0.2}),
}


@functools.cache
def layer_of(case: str) -> LRN:
    x, y, attributes = CASES[case]
    layer = check(model_of((12, 8, 8), x, y, **attributes))
    assert layer is not None
    return layer


@pytest.mark.parametrize("case", sorted(set(CASES) - {"one channel"}))
def test_equal_to_onnx_runtime(case: str) -> None:
    layer_of(case)


def test_sums_that_are_rounded_and_sums_that_are_not() -> None:
    assert not layer_of("alexnet").scale.steady
    assert layer_of("of little effect").scale.steady


@pytest.mark.long
def test_random_models() -> None:
    """Any scales, zero points and attributes."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        kind = np.iinfo(rng.choice(["uint8", "int8"]))
        scale, alpha, beta = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-5, -2), rng.choice([0.3, 0.5, 0.6, 0.75, 1.0])
        size, bias = int(rng.choice([1, 3, 5, 7, 9])), float(rng.choice([0.5, 1.0, 1.3, 2.0]))
        zero = int(rng.choice([kind.min, rng.integers(kind.min, kind.max + 1)]))
        x = np.arange(257) * scale
        most = (x * (bias + alpha / size * x * x) ** -beta).max()
        y = (str(kind.dtype), most / 255 * rng.uniform(0.5, 1.5), int(rng.integers(kind.min, kind.max + 1)))
        attributes = {"size": size, "alpha": alpha, "beta": float(beta), "bias": bias}
        model = model_of((int(rng.integers(1, 120)), 8, 8), (str(kind.dtype), scale, zero), y, **attributes)
        check(model, 6)


def test_sums_by_hand() -> None:
    """Squares of 1, 2, 3 and 4, a window of three; then terms that a great neighbour rounds away."""
    scale = Scale(bias=1.0, size=3, channels=4, terms=(np.arange(5) ** 2).astype(np.float32))
    column = np.array([1, 2, 3, 4])[:, None, None]
    assert scale.of(column).ravel().tolist() == [6, 15, 30, 26]
    tiny = np.array([0, 2.0**-24, 2.0**-23, 2.0], np.float32)
    scale = Scale(bias=1.0, size=1, channels=5, terms=tiny)
    # Half a unit on top of 1 is a tie, and so is half a unit less than 1 and a unit: 1 is even. On top of 3 a unit of
    # 1 is half a unit. In the end a unit leaves that had not come in.
    found = scale.of(np.array([1, 2, 3, 2, 1])[:, None, None]).ravel().tolist()
    assert found == [1, 1, 3, 1, 1 - 2.0**-23]


@pytest.mark.parametrize(
    "case", ["of little effect", "signed", "slow", pytest.param("alexnet", marks=pytest.mark.long)]
)
def test_outputs_at_all_scales(case: str) -> None:
    """Of magnitudes at scales that they can meet, those around each fall included, by ONNX Runtime's LRN of floats."""
    layer, (x, y, attributes) = layer_of(case), CASES[case]
    rng, limit = (
        np.random.default_rng(0),
        max(layer.high - layer.output.zero_point, layer.output.zero_point - layer.low),
    )
    seen = set()
    for size in range(1, len(layer.falls.last_distance), 11):
        least, most = (int(end[size]) for end in layer.scale.ranges)
        falls = layer.falls.at[layer.falls.first[size] : layer.falls.first[size + 1], None]
        bits = np.concatenate([rng.integers(least, most + 1, 5000), (falls + np.arange(-9, 30)).ravel()])
        scales, reals = beside(np.float32(size) * np.float32(x[1]), from_bits(np.clip(bits, least, most)), **attributes)
        theirs = np.minimum(np.rint(reals / np.float32(y[1])), limit)
        inside = (to_bits(scales) >= least) & (to_bits(scales) <= most)
        ours = layer.falls.of(np.full(scales.shape, size), scales)
        np.testing.assert_array_equal(ours[inside], theirs[inside])
        seen |= set(to_bits(scales)[inside].tolist())
    assert len(seen) > 10_000


def beside(
    x: np.float32, wanted: np.ndarray, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The scales that are met with a second channel's square, about those that are wanted; and what ONNX Runtime makes
    of ``x`` there."""
    factor = np.float32(alpha) / np.float32(size)
    begin = np.float32(bias) + factor * (x * x)
    other = np.sqrt(np.maximum(wanted - begin, 0) / factor)
    channels = np.stack([np.full_like(other, x), other])[None, :, None]
    attributes = {"size": size, "alpha": alpha, "beta": beta, "bias": bias}
    node = helper.make_node("LRN", ["x"], ["y"], **attributes)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, channels.shape) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "lrn", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # where one thread ends and the next begins the power is computed another way
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return begin + factor * (other * other), session.run(None, {"x": channels})[0][0, 0, 0]


# From the layer to the hardware.


@pytest.mark.parametrize("case", ["of little effect", "signed", "saturating", "zero at the top", "slow"])
def test_tables(case: str) -> None:
    """What the hardware's tables say, at scales around all falls, at the ends of all factors and at others."""
    layer = layer_of(case)
    stage = LRNStage(layer, DEFAULT)
    config = stage.compute([beat_format(layer.input, 1)])
    sums, origin = config.window, stage.origin
    rng, first = np.random.default_rng(0), np.array(config.first)
    factors, falls, kinds, ripples = (
        np.array(each) for each in (config.factors, config.falls.values, config.kinds.values, config.ripples)
    )
    for size in range(len(first)):
        least, most = (int(end[size]) - origin for end in layer.scale.ranges)
        assert most < (1 << sums.scale_bits) - 1
        around = (
            layer.falls.at[layer.falls.first[size] : layer.falls.first[size + 1], None] - origin + np.arange(-3, 30)
        )
        edges = np.arange(least >> config.shift, (most >> config.shift) + 2)[:, None] * (1 << config.shift) - [0, 1]
        scales = np.concatenate([around.ravel(), edges.ravel(), rng.integers(least, most + 1, 300)])
        scales = np.clip(scales, least, most)
        k = np.minimum(size * factors[scales >> config.shift] >> config.fraction, config.limit)
        since = scales - falls[first[size] + k]
        again = (since >= 0) & (since < 63) & (ripples[kinds[first[size] + k]] >> np.clip(since, 0, 62) & 1 == 1)
        expected = layer.falls.of(np.full(scales.shape, size), from_bits(scales + origin))
        np.testing.assert_array_equal(np.minimum(k + ((since < 0) | again), config.limit), expected)


@pytest.mark.parametrize("case", ["of little effect", "signed"])
def test_sums_in_hardware_stand_for_those_of_float32(case: str) -> None:
    layer = layer_of(case)
    stage = LRNStage(layer, DEFAULT)
    window = stage.window(beat_format(layer.input, 1))
    kind, zero = layer.input.type, layer.input.zero_point
    frame = np.random.default_rng(3).integers(kind.minimum, kind.maximum + 1, (layer.channels, 1, 12))
    scales = to_bits(layer.scale.of(np.abs(frame - zero)))
    for column in range(frame.shape[2]):
        terms = [window.terms[value - kind.minimum] for value in frame[:, 0, column].tolist()]
        given = [window.encode(total) + stage.origin for total in sums(window, terms)]
        assert given == scales[:, 0, column].tolist()


def between_convolutions(**attributes: float) -> onnx.ModelProto:
    """With a pool behind, which ONNX Runtime's quantiser leaves in front of the QuantizeLinear."""
    nodes = [
        helper.make_node("Relu", ["sums"], ["positive"]),
        helper.make_node("QuantizeLinear", ["positive", "p_s", "p_z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "p_s", "p_z"], ["p_real"]),
        helper.make_node("LRN", ["p_real"], ["normal"], name="lrn", **attributes),
        helper.make_node("MaxPool", ["normal"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("QuantizeLinear", ["pooled", "n_s", "p_z"], ["n"]),
        helper.make_node("DequantizeLinear", ["n", "n_s", "p_z"], ["n_real"]),
        helper.make_node("Conv", ["n_real", "weights"], ["more"], name="last"),
        *quantised("more"),
    ]
    return around(*nodes, p_s=np.float32(0.06), p_z=np.uint8(0), n_s=np.float32(0.04))


@pytest.mark.long
@pytest.mark.parametrize(
    "attributes",
    [
        {"size": 3, "alpha": 0.05},
        {"size": 5, "alpha": 1e-4},
        {"size": 5, "alpha": 2.0, "beta": 0.5, "bias": 2.0},
    ],
)
def test_in_hardware(attributes: dict[str, float], tmp_path: Path) -> None:
    model = between_convolutions(**attributes)
    assert "lrn" in {layer.kind for layer in to_network(model, "model").layers}
    in_hardware(model, tmp_path)


@pytest.mark.long
@settings(max_examples=7)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_every_cycle_behind_shallow_fifos(data, seed):
    """Sums wait for beats and for room, at the ends of pixels too: each beat in the cycle that the schedule says."""
    check_shallow_fifos(data, seed)


@pytest.mark.long
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_every_cycle_behind_many_shallow_fifos(data, seed):
    check_shallow_fifos(data, seed)


def check_shallow_fifos(data: st.DataObject, seed: int) -> None:
    maker = Maker(data.draw, 3)
    maker.conv(maker.lrn(maker.same(INPUT)), Window(kernel=(1, 1)))
    network = maker.finish()
    plans = data.draw(unrolls(network))
    config = compose(network, plans)
    rows, depths = size_buffers(config)
    least = [max(layer.fold_beats) for layer in config.layers]
    shallow = [(data.draw(st.integers(min(low, *deep), max(deep))),) for low, deep in zip(least, depths, strict=True)]
    case = Case(network, compose(network, with_buffers(plans, rows, shallow)))
    check_cycles_of(case, frames_for(network, 3, seed))


def test_pixels_side_by_side(tmp_path: Path) -> None:
    """A map that comes in two pixels at a time."""
    model = model_of((5, 3, 5), ("uint8", 0.9, 0), ("uint8", 0.6, 0), size=3, alpha=0.01)
    onnx.save(model, tmp_path / "model.onnx")
    design = hwgen.load(tmp_path / "model.onnx").plan("zedboard")
    (layer,) = design.plan.groups[0].layers
    assert layer.tp > 1
    frames = frames_of(model, 3)
    result = design.simulate(frames, simulator="amaranth")
    assert result.mismatches == 0
    assert result.as_predicted
    np.testing.assert_array_equal(result.outputs, integer_session(model)[0].run(None, {"x": frames})[0])


@pytest.mark.parametrize("alpha", [0.01, 1e-4])
def test_windows_are_counted(alpha: float, tmp_path: Path) -> None:
    """A window is a pixel, however many cycles its sums take; sums that are rounded take more."""
    model = model_of((4, 3, 2), ("uint8", 0.9, 0), ("uint8", 0.6, 0), size=3, alpha=alpha)
    onnx.save(model, tmp_path / "model.onnx")
    design = hwgen.load(tmp_path / "model.onnx").plan("zedboard")
    accelerator = compose(design.network, design.plan.groups[0].layers)
    frames = frames_for(design.network, 2, 0)
    done = run_network.run(accelerator, frames, run_network.Options(simulator="amaranth", taps=True))
    assert windows(accelerator, done) == (2 * 3 * 2,)


# What becomes of the operator.


@pytest.mark.parametrize(("scale", "alpha"), [(1e8, 1.0), (1e10, 1e-4), (1e16, 1e-10)])
def test_terms_that_64_bits_do_not_count(scale: float, alpha: float) -> None:
    """Sums of huge terms lose the bias: they are refused, and no overflow makes them look small."""
    terms = np.float32(alpha / 3) * (np.arange(256, dtype=np.float32) * np.float32(scale)) ** 2
    with pytest.raises(ConfigError, match="bias 1 must be more than float32 may lose"):
        Scale(bias=1.0, size=3, channels=4, terms=terms)


def test_what_depends_on_one_value_is_a_table() -> None:
    """Where the sums of squares are too small to change an output, and where there is one channel a window."""
    for scale, size in ((0.001, 5), (1.0, 1)):
        model = model_of((4, 5, 4), ("int8", scale, 3), ("int8", scale, -9), size=size)
        assert check(model) is None


def test_relu_and_pools_behind() -> None:
    """In floats in the model; in the hardware bounds, and a layer behind."""
    pool = helper.make_node("MaxPool", ["positive"], ["last"], kernel_shape=[2, 2])
    behind = (helper.make_node("Relu", ["normal"], ["positive"]), pool)
    model = model_of((6, 5, 4), ("int8", 0.3, -7), ("int8", 0.27, 5), behind, size=5, alpha=1e-3)
    layer = check(model)
    assert layer is not None
    assert (layer.low, layer.high) == (5, 127)
    assert [layer.kind for layer in to_network(model, "model").layers] == ["lrn", "maxpool"]


REFUSED = {
    "odd": ({"size": 4}, "size must be odd and positive, as ONNX Runtime asks, not 4"),
    "alpha": ({"size": 3, "alpha": 0.0}, "alpha must be from 1e-12 to 1e[+]06, not 0"),
    "beta": ({"size": 3, "beta": -0.75}, "beta must be from 0.01 to 4, not -0.75"),
    "bias": ({"size": 3, "bias": 0.0}, "bias must be from 1e-06 to 1e[+]06, not 0"),
    "lost": ({"size": 3, "alpha": 1e3, "bias": 0.01}, "bias 0.01 must be more than float32 may lose while it adds up"),
    "slow": ({"size": 3, "alpha": 1.0, "beta": 0.01}, "beta is so small that outputs come and go over more than 32 "),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(why: str) -> None:
    attributes, message = REFUSED[why]
    model = model_of((4, 5, 4), ("uint8", 0.5, 0), ("uint8", 0.1, 0), **attributes)
    with pytest.raises(ModelError, match=f"^model: LRN node 'lrn': {message}") as error:
        to_network(model, "model")
    assert "\n" not in str(error.value)


def test_what_must_stand_around_it() -> None:
    wide = model_of((4, 5, 4), ("uint16", 0.5, 0), ("uint16", 0.1, 0), size=3)
    wide.opset_import[0].version = 21
    wide.ir_version = 10
    with pytest.raises(
        ModelError, match=r"LRN node 'lrn': its input must have at most 8 bits for a table of all values, not uint"
    ):
        to_network(wide, "model")
    half = model_of((4, 5, 4), ("uint8", 0.5, 0), ("uint16", 0.1, 0), size=3)
    half.opset_import[0].version = 21
    half.ir_version = 10
    with pytest.raises(ModelError, match=r"LRN node 'lrn': its output must have at most 8 bits, not uint16"):
        to_network(half, "model")
    behind = (helper.make_node("Tanh", ["normal"], ["last"], name="tanh"),)
    chained = model_of((4, 5, 4), ("uint8", 0.5, 0), ("uint8", 0.1, 0), behind, size=3)
    with pytest.raises(ModelError, match=r"LRN node 'lrn': must be followed by a QuantizeLinear, perhaps after Relu"):
        to_network(chained, "model")
    flat = model_of((4, 5, 4), ("uint8", 0.5, 0), ("uint8", 0.1, 0), size=3)
    del flat.graph.input[0].type.tensor_type.shape.dim[3], flat.graph.output[0].type.tensor_type.shape.dim[3]
    with pytest.raises(ModelError, match=r"LRN node 'lrn': must take tensors of four dimensions, as ONNX Runtime asks"):
        to_network(flat, "model")


# The parts by themselves.

BEFORE = FeatureMap(channels=4, height=3, width=2, type=UINT8)


def test_layers_are_what_they_must_be() -> None:
    terms, none = np.arange(256, dtype=np.float32), np.zeros(0, np.int64)
    scale = Scale(bias=1.0, size=3, channels=4, terms=terms)
    falls = Falls(last_distance=np.arange(256), first=np.zeros(257, np.int64), at=none, ripples=none)
    parameters = {"name": "lrn", "input": BEFORE, "output": BEFORE, "window": Window(kernel=(1, 1))}
    good = LRN(**parameters, scale=scale, falls=falls, low=0, high=255)  # type: ignore[arg-type]
    for message, changes in (
        ("output must have the input's size", {"output": replace(BEFORE, channels=3)}),
        ("values must have at most 8 bits", {"output": replace(BEFORE, type=UINT16)}),
        ("terms must have one entry per magnitude (256), not 9", {"scale": replace(scale, terms=terms[:9])}),
        (
            "falls must have one entry per magnitude (256), not 9",
            {"falls": replace(falls, last_distance=np.arange(9), first=falls.first[:10])},
        ),
        ("scale must have 4 channels, not 5", {"scale": replace(scale, channels=5)}),
    ):
        with pytest.raises(ConfigError, match=f"^lrn: {re.escape(message)}"):
            replace(good, **changes)
    for message, changes in (
        ("size must be odd and positive, not 2", {"size": 2}),
        ("bias must be a positive float32 number, not 0.1", {"bias": 0.1}),
    ):
        with pytest.raises(ConfigError, match=f"^{message}"):
            replace(scale, **changes)
    near = {"first": np.array([0, *[2] * 256]), "at": np.array([5, 36]), "ripples": np.zeros(2, np.int64)}
    with pytest.raises(ConfigError, match=r"^falls of a magnitude must lie 32 scales apart$"):
        replace(falls, **near)
    with pytest.raises(PlanError, match=r"^lrn: pyramids can't compute a layer of kind 'lrn': "):
        planner.make(Network(name="one", layers=(good,)), boards.load("zedboard"), template="pyramid")


def test_configurations_are_what_they_must_be() -> None:
    beat = BeatFormat(channels=6, height=2, width=2, lanes=1, bits=2, signed=True)
    window = RunningScaleConfig(input=beat, terms=(1, 2, 3, 4), size=3, start=0, lowest=0, highest=12)
    assert (window.steps, window.rounds, window.scale_bits) == (1, False, 4)
    for message, changes in (
        ("input must have one channel per beat, not 2", {"input": replace(beat, lanes=2)}),
        ("terms must be 0 or more, not -1", {"terms": (1, 2, 3, -1)}),
        ("size must be odd and positive, not 0", {"size": 0}),
        ("start must be from 5 to 12, not 0", {"lowest": 5}),
        ("lowest must have more than 24 bits as highest has, not 0", {"highest": 1 << 24}),
    ):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            replace(window, **changes)
    good = NormaliseConfig(
        window=window,
        zero=0,
        factors=(1, 0),
        shift=3,
        fraction=0,
        limit=2,
        first=(0, 1, 3),
        falls=Weights(range(6)),
        kinds=Weights([0] * 6),
        ripples=(0,),
        zero_point=0,
        low=-2,
        high=1,
        bits=2,
        signed=True,
    )
    for message, changes in (
        ("first must have 3 entries, not 2", {"first": (0, 1)}),
        ("factors must have one entry per scale of 4 bits, not 1", {"factors": (1,)}),
        (r"kinds must have one entry per fall \(6\), not 1", {"kinds": Weights([0])}),
        (r"ripples must begin with 0, and none may be at its fall itself, not \(0, 3\)", {"ripples": (0, 3)}),
    ):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            replace(good, **changes)


@pytest.mark.long
@pytest.mark.parametrize("case", ["of little effect", "signed", "alexnet"])
def test_estimates_and_paths(case: str) -> None:
    """Against Yosys."""
    layer = layer_of(case)
    compute = LRNStage(layer, DEFAULT).compute([beat_format(layer.input, 1)])
    parts = [compute.window, compute]
    measured, paths = synthesis.measure_paths(parts)
    for part, found, path in zip(parts, measured, paths, strict=True):
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36), part
        assert abs(expected.ff - found.ff) <= max(0.25 * found.ff, 4), part
        assert 0.75 * found.lut - 4 <= expected.lut <= 2 * found.lut + 12, part
        assert path is None or path.delay <= 3.3
