"""The golden model and networks as graphs, against plain Python: integers, fractions and loops; and by hand."""

from __future__ import annotations

import re
import time
from array import array
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen import boards
from hwgen.errors import ConfigError, InputError, PlanError
from hwgen.gateware.weights import Weights
from hwgen.network import golden, load
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, INT32, UINT8, FeatureMap, IntegerType, Requantisation, Window, requantise
from hwgen.network.ops import Conv, MaxPool, Op
from hwgen.plan import planner


def rounded(accumulator: int, rule: Requantisation, channel: int) -> int:
    """``Requantisation`` of one accumulator; Python's round() of a Fraction is half to even."""
    scaled = Fraction(accumulator * int(rule.significand[channel]), 1 << int(rule.shift[channel]))
    return min(max(round(scaled) + rule.zero_point, rule.low), rule.high)


def convolved(layer: Conv, frame: list) -> np.ndarray:
    top, left, _, _ = layer.window.padding
    (kernel_rows, kernel_columns), (down, right) = layer.window.kernel, layer.window.stride
    below, beside = layer.window.dilation
    filters, per_group = layer.weights.shape[:2]
    weights = layer.weights.tolist()
    output = np.empty(layer.output.shape, object)
    for m in range(filters):
        first = m // (filters // layer.groups) * per_group
        for row in range(layer.output.height):
            for column in range(layer.output.width):
                accumulator = int(layer.bias[m])
                for c in range(per_group):
                    for y in range(kernel_rows):
                        for x in range(kernel_columns):
                            r, q = row * down + y * below - top, column * right + x * beside - left
                            if 0 <= r < layer.input.height and 0 <= q < layer.input.width:
                                value = frame[first + c][r][q] - layer.input.zero_point
                                accumulator += weights[m][c][y][x] * value
                if layer.requantisation is not None:
                    accumulator = rounded(accumulator, layer.requantisation, m)
                output[m, row, column] = accumulator
    return output


def pooled(layer: MaxPool, frame: list) -> np.ndarray:
    top, left, _, _ = layer.window.padding
    (kernel_rows, kernel_columns), (down, right) = layer.window.kernel, layer.window.stride
    below, beside = layer.window.dilation
    output = np.empty(layer.output.shape, object)
    for channel, row, column in np.ndindex(output.shape):
        output[channel, row, column] = max(
            frame[channel][r][q]
            if 0 <= (r := row * down + y * below - top) < layer.input.height
            and 0 <= (q := column * right + x * beside - left) < layer.input.width
            else layer.input.type.minimum
            for y in range(kernel_rows)
            for x in range(kernel_columns)
        )
    return output


@st.composite
def windows(draw: st.DrawFn, height: int, width: int) -> Window:
    padding = tuple(draw(st.integers(0, 3)) for _ in range(4))
    kernel = (
        draw(st.integers(1, min(4, height + padding[0] + padding[2]))),
        draw(st.integers(1, min(4, width + padding[1] + padding[3]))),
    )
    stride = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = tuple(
        draw(st.integers(1, max(1, min(3, (size + before + after - 1) // max(1, taps - 1)))))
        for taps, size, before, after in zip(kernel, (height, width), padding[:2], padding[2:], strict=True)
    )
    return Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation)


TYPES = st.builds(IntegerType, bits=st.integers(2, 16), signed=st.booleans())


@st.composite
def layers(draw: st.DrawFn) -> tuple[Op, np.ndarray]:
    """A layer, and one frame for it; corner values are likely."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 3))
    height, width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    kind = draw(TYPES)
    zero = int(random.integers(kind.minimum, kind.maximum + 1))
    source = FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)
    window = draw(windows(height, width))
    rows, columns = window.output_size(height, width)
    frame = random.integers(kind.minimum, kind.maximum + 1, source.shape).astype(kind.dtype)
    corners = random.random(source.shape)
    frame[corners < 0.1] = kind.minimum
    frame[corners > 0.9] = kind.maximum
    if draw(st.booleans()):
        output = FeatureMap(channels=channels, height=rows, width=columns, type=kind, zero_point=zero)
        return MaxPool(name="pool", input=source, output=output, window=window), frame
    filters = groups * draw(st.integers(1, 3))
    bits = draw(st.integers(2, 17))
    shape = (filters, channels // groups, *window.kernel)
    weights = random.integers(-(1 << (bits - 1)), 1 << (bits - 1), shape)
    reach = 1 << draw(st.integers(1, 47))
    bias = random.integers(-reach, reach, filters)
    if draw(st.booleans()):
        narrow = kind.bits <= 8 and bits <= 9
        rule, to, y_zero = None, INT32 if narrow else IntegerType(bits=50, signed=True), 0
        if narrow:
            bias >>= 18  # fits 32 bits with the products
    else:
        to = draw(TYPES)
        y_zero = int(random.integers(to.minimum, to.maximum + 1))
        low, high = sorted(random.integers(to.minimum, to.maximum + 1, 2).tolist())
        significand = random.integers(1 << 23, 1 << 24, filters)
        significand[random.random(filters) < 0.3] = 1 << 23
        shift = random.integers(0, draw(st.sampled_from([5, 30, 45, 70])), filters)
        rule = Requantisation(significand=significand, shift=shift, zero_point=y_zero, low=low, high=high)
    output = FeatureMap(channels=filters, height=rows, width=columns, type=to, zero_point=y_zero)
    layer = Conv(
        name="conv",
        input=source,
        output=output,
        window=window,
        weights=weights,
        bias=bias,
        requantisation=rule,
        groups=groups,
    )
    return layer, frame


@settings(max_examples=150, deadline=None)
@given(layers())
def test_any_layer_equals_loops(case: tuple[Op, np.ndarray]) -> None:
    layer, frame = case
    expected = convolved(layer, frame.tolist()) if isinstance(layer, Conv) else pooled(layer, frame.tolist())
    output = golden.run(Network(name="one", layers=(layer,)), frame[None])
    assert output.dtype == layer.output.type.dtype
    assert output[0].tolist() == expected.tolist()


ACCUMULATORS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-300, 300),
    st.integers(-(2**45), 2**45),
    st.integers(-(2**60) + 1, 2**60 - 1),
    # around half steps
    st.builds(
        lambda odd, zeros, more: (odd << zeros) + more,
        st.integers(-999, 999),
        st.integers(0, 48),
        st.sampled_from([-1, 0, 0, 1]),
    ),
)


@cases_in_the_long_run(1500)
@given(ACCUMULATORS, st.integers(0, 90), st.sampled_from([1 << 23, 3 << 22, (1 << 24) - 1, None]), st.data())
def test_requantise(accumulator: int, shift: int, significand: int | None, data: st.DataObject) -> None:
    """Ties too: with significand 2**23 and shift 24 every odd accumulator is one."""
    significand = significand or data.draw(st.integers(1 << 23, (1 << 24) - 1))
    rule = Requantisation(
        significand=np.array([significand]), shift=np.array([shift]), zero_point=-7, low=-(2**15), high=2**15 - 1
    )
    for bound in (abs(accumulator), 2**60 - 1):  # as one product if that fits int64, and in halves
        (value,) = requantise(np.array([[accumulator]]), rule, bound)[0].tolist()
        assert value == rounded(accumulator, rule, 0)


def test_requantise_in_halves() -> None:
    """Around every half step of a signed 16-bit output, with accumulators of 45 bits."""
    rule = Requantisation(
        significand=np.array([1 << 23]), shift=np.array([23 + 29]), zero_point=0, low=-(2**15), high=2**15 - 1
    )
    halves = np.arange(-(2**16) - 9, 2**16 + 9) << 28
    for more in (-1, 0, 1):
        values = requantise((halves + more)[None], rule, 2**45)[0]
        exact = [Fraction(int(half) + more, 1 << 29) for half in halves[::97]]
        expected = [min(max(round(value), -(2**15)), 2**15 - 1) for value in exact]
        assert values[::97].tolist() == expected


def test_ties_by_hand() -> None:
    """acc / 2: -2.5, -1.5, -0.5, 0.5, 1.5, 2.5 round to the even neighbour."""
    rule = Requantisation(significand=np.array([1 << 23]), shift=np.array([24]), zero_point=10, low=0, high=255)
    for bound in (5, 2**50):
        values = requantise(np.array([[-5, -3, -1, 0, 1, 3, 5]]), rule, bound)
        assert values.tolist() == [[8, 8, 10, 10, 10, 12, 12]]


def test_convolution_by_hand() -> None:
    """A 2x2 kernel over a 2x2 map, padded at the top and the left: x - 1 is [[0, 1], [2, 3]] there."""
    layer = Conv(
        name="hand",
        input=FeatureMap(channels=1, height=2, width=2, type=UINT8, zero_point=1),
        output=FeatureMap(channels=1, height=2, width=2, type=INT32),
        window=Window(kernel=(2, 2), padding=(1, 1, 0, 0)),
        weights=np.array([[[[1, 10], [100, 1000]]]]),
        bias=np.array([-7]),
        requantisation=None,
    )
    frames = np.array([[[[1, 2], [3, 4]]]], np.uint8)
    output = golden.run(Network(name="hand", layers=(layer,)), frames)
    assert output.tolist() == [[[[-7, 1000 - 7], [2000 - 7, 200 + 3000 + 10 - 7]]]]
    assert layer.folded_bias.tolist() == [-7 - 1111]


def test_pool_pads_with_the_minimum() -> None:
    source = FeatureMap(channels=1, height=1, width=2, type=INT8, zero_point=5)
    layer = MaxPool(
        name="pool",
        input=source,
        output=FeatureMap(channels=1, height=2, width=2, type=INT8, zero_point=5),
        window=Window(kernel=(2, 2), padding=(1, 0, 1, 1)),
    )
    frames = np.array([[[[-100, -90]]]], np.int8)
    output = golden.run(Network(name="pool", layers=(layer,)), frames)
    assert output.tolist() == [[[[-90, -90], [-90, -90]]]]


def wide_layer(bits: int, weight: int, bias: int = 0) -> Network:
    kind = IntegerType(bits=bits, signed=True)
    layer = Conv(
        name="wide",
        input=FeatureMap(channels=3, height=1, width=1, type=kind),
        output=FeatureMap(channels=1, height=1, width=1, type=IntegerType(bits=64, signed=True)),
        window=Window(kernel=(1, 1)),
        weights=np.array([weight, weight - 1, -weight]).reshape(1, 3, 1, 1),
        bias=np.array([bias]),
        requantisation=None,
    )
    return Network(name="wide", layers=(layer,))


def test_beyond_float64() -> None:
    """Sums past 2**53 are computed in int64; past 2**63 they are refused."""
    network = wide_layer(32, (1 << 28) + 1)
    frames = np.array([2**31 - 1, 2**31 - 3, 12345]).reshape(1, 3, 1, 1).astype(np.int32)
    weight = (1 << 28) + 1
    expected = weight * (2**31 - 1) + (weight - 1) * (2**31 - 3) - weight * 12345
    assert expected > 1 << 53
    assert golden.run(network, frames).tolist() == [[[[expected]]]]
    with pytest.raises(ConfigError, match="wide: accumulators must fit 64 bits, not reach"):
        golden.run(wide_layer(32, 1 << 40), frames)


def test_accumulators_must_fit_the_output() -> None:
    layer = Conv(
        name="narrow",
        input=FeatureMap(channels=1, height=1, width=1, type=UINT8),
        output=FeatureMap(channels=1, height=1, width=1, type=IntegerType(bits=16, signed=True)),
        window=Window(kernel=(1, 1)),
        weights=np.array([[[[128]]]]),
        bias=np.array([128]),
        requantisation=None,
    )
    network = Network(name="narrow", layers=(layer,))
    with pytest.raises(ConfigError, match="narrow: accumulators must fit the output's int16, not reach 32768"):
        golden.run(network, np.zeros((1, 1, 1, 1), np.uint8))


def test_trace_ends_in_what_run_gives() -> None:
    network = load("decoilfnet-example")
    frames = np.random.default_rng(0).integers(0, 256, (3, 3, 5, 5)).astype(np.uint8)
    traced = list(golden.trace(network, frames))
    assert [layer.name for layer, _ in traced] == ["conv1", "conv2", "pool1"]
    assert [outputs.shape for _, outputs in traced] == [(3, 3, 5, 5), (3, 3, 5, 5), (3, 3, 2, 2)]
    np.testing.assert_array_equal(traced[-1][1], golden.run(network, frames))
    for index in range(3):  # frames don't touch each other
        np.testing.assert_array_equal(golden.run(network, frames[index : index + 1])[0], traced[-1][1][index])


def test_frames_that_do_not_fit() -> None:
    network = load("decoilfnet-example")
    good = np.zeros((1, 3, 5, 5), np.uint8)
    for frames, message in [
        (good[0], r"decoilfnet-example: input must have shape \(frames, 3, 5, 5\), not \(3, 5, 5\)"),
        (good[:, :, :4], r"input must have shape"),
        (good[:0], r"input must have shape"),
        ([[1]], r"input must have shape \(frames, 3, 5, 5\), not list"),
        (good.astype(np.int8), r"input must be uint8 here, not int8"),
        (good.astype(np.float32), r"input must be uint8 here, not float32"),
    ]:
        with pytest.raises(InputError, match=message):
            golden.run(network, frames)


def test_values_beyond_the_type() -> None:
    kind = IntegerType(bits=5, signed=True)
    source = FeatureMap(channels=1, height=1, width=1, type=kind)
    layer = MaxPool(name="pool", input=source, output=source, window=Window(kernel=(1, 1)))
    network = Network(name="five", layers=(layer,))
    assert golden.run(network, np.full((1, 1, 1, 1), -16, np.int8)).item() == -16
    with pytest.raises(InputError, match="five: input must lie in int5, not reach from 16 to 16"):
        golden.run(network, np.full((1, 1, 1, 1), 16, np.int8))


def test_vgg16_in_time() -> None:
    """The first seven layers at 224 x 224: 5.6 billion multiplications, under 30 s."""
    network = load("vgg16:7")
    frame = np.random.default_rng(0).integers(0, 256, (1, 3, 224, 224)).astype(np.uint8)
    start = time.perf_counter()
    output = golden.run(network, frame)
    assert time.perf_counter() - start < 30
    assert output.shape == (1, 256, 56, 56)
    assert output.std() > 10


MAP = FeatureMap(channels=2, height=4, width=5, type=UINT8)


@dataclass(frozen=True, kw_only=True, eq=False)
class Halved(Op):
    """The first map less half the second, and no less than 0: the order of the two matters."""

    kind = "halved"
    operators = ()
    channelwise = True
    pad_value = 0

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        return (self.input, self.input)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        first, second = maps
        return np.maximum(first.astype(int) - second // 2, 0)


def halved(name: str) -> Halved:
    return Halved(name=name, input=MAP, output=MAP, window=Window(kernel=(1, 1)))


def pool(name: str, rows: int) -> MaxPool:
    """The greatest of a pixel and those above it."""
    return MaxPool(name=name, input=MAP, output=MAP, window=Window(kernel=(rows, 1), padding=(rows - 1, 0, 0, 0)))


DIAMOND = Network(
    name="diamond",
    layers=(pool("stem", 2), pool("left", 2), pool("right", 3), halved("join"), halved("again")),
    edges=((INPUT,), ("stem",), ("stem",), ("left", "right"), (INPUT, "join")),
)


def greatest(frames: np.ndarray, rows: int) -> np.ndarray:
    """What `pool` gives, row by row."""
    return np.stack([frames[:, :, max(y - rows + 1, 0) : y + 1].max(axis=2) for y in range(frames.shape[2])], axis=2)


def test_diamond():
    """Each layer gets the maps of its edges, in their order; the input is kept until its last reader."""
    frames = np.random.default_rng(1).integers(0, 256, (3, *MAP.shape), np.uint8)
    stem = greatest(frames, 2)
    join = np.maximum(greatest(stem, 2).astype(int) - greatest(stem, 3) // 2, 0)
    expected = np.maximum(frames.astype(int) - join // 2, 0)
    np.testing.assert_array_equal(golden.run(DIAMOND, frames), expected)
    traced = {layer.name: values for layer, values in golden.trace(DIAMOND, frames)}
    np.testing.assert_array_equal(traced["join"], join)
    np.testing.assert_array_equal(traced["stem"], stem)


def test_readers():
    assert DIAMOND.readers == {
        INPUT: ("stem", "again"),
        "stem": ("left", "right"),
        "left": ("join",),
        "right": ("join",),
        "join": ("again",),
        "again": (),
    }


def test_chain():
    assert not DIAMOND.is_chain
    chain = Network(name="chain", layers=DIAMOND.layers[:2])
    assert chain.is_chain
    assert chain.edges == ((INPUT,), ("stem",))


def test_unknown_kinds_are_not_planned():
    with pytest.raises(PlanError, match=r"^join: hwgen has no hardware for a layer of kind 'halved'"):
        planner.make(DIAMOND, boards.load("zedboard"))


def test_input_read_once():
    """A copy of the input stands in front, under a name that no layer has."""
    copied = DIAMOND.with_inputs_read_once()
    assert [layer.name for layer in copied.layers] == ["input", "stem", "left", "right", "join", "again"]
    assert copied.readers[INPUT] == ("input",)
    assert copied.readers["input"] == ("stem", "again")
    assert copied.with_inputs_read_once() is copied
    frames = np.random.default_rng(1).integers(0, 256, (3, *MAP.shape), np.uint8)
    np.testing.assert_array_equal(golden.run(copied, frames), golden.run(DIAMOND, frames))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (((INPUT,), ("stem",)), "edges must be given for each of 5 layers, not "),
        (((INPUT,), ("left",), *DIAMOND.edges[2:]), "left must take a layer before it, not 'left'"),
        ((*DIAMOND.edges[:3], ("left",), DIAMOND.edges[4]), "join must take 2 edges, not 1"),
        ((*DIAMOND.edges[:3], ("left", "left"), DIAMOND.edges[4]), "right must be read by a layer, or give an output"),
    ],
)
def test_edges_that_make_no_graph(edges, message):
    with pytest.raises(ConfigError, match=f"^diamond: {re.escape(message)}"):
        Network(name="diamond", layers=DIAMOND.layers, edges=edges)


def test_edge_of_another_map():
    odd = replace(MAP, height=5)
    layer = MaxPool(name="odd", input=odd, output=odd, window=Window(kernel=(1, 1)))
    with pytest.raises(ConfigError, match=r"^two: odd must take stem's output "):
        Network(name="two", layers=(DIAMOND.layers[0], layer))


@given(
    st.integers(1, 5).flatmap(
        lambda channels: st.lists(
            st.lists(st.integers(-(1 << 16), (1 << 16) - 1), min_size=channels, max_size=channels),
            min_size=1,
            max_size=9,
        )
    )
)
def test_facts(rows):
    """``rows`` are the output channels."""
    flat = [weight for row in rows for weight in row]
    weights = Weights(flat)
    assert weights.values.tolist() == flat
    assert len(weights) == len(flat)
    assert weights.extremes == (min(flat), max(flat))
    expected = tuple((sum(w for w in row if w < 0), sum(w for w in row if w > 0)) for row in rows)
    assert weights.sums(len(rows)) == expected
    assert weights.sums(1) == ((sum(low for low, _ in expected), sum(high for _, high in expected)),)


def test_equality_is_by_content():
    weights = Weights([1, -2, 3])
    same = Weights(array("i", [1, -2, 3]).tobytes())
    assert weights == same
    assert hash(weights) == hash(same)
    assert weights != Weights([1, -2, 4])
    assert weights != Weights([1, -2])
    assert weights != [1, -2, 3]


def test_nothing_changes():
    given = [1, -2, 3]
    weights = Weights(given)
    given[0] = 5
    assert weights.values[0] == 1
    with pytest.raises(TypeError, match="read-only"):
        weights.values[0] = 5


def test_repr_is_short():
    assert len(repr(Weights(range(1000)))) < 50
