"""The convolution's chains: exact sums, their cycle, and where each weight lies."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from accelerators import GAPS, integers, offers, value_range, windows_for
from amaranth import Shape
from counted import cases_in_the_long_run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lint import cells, simulate_netlist
from refusals import refusals_in
from testbench import Pattern, channel_lanes, run, unpack
from texts import read_text
from walks import line_buffers, step_words, steps_of

from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.devices.xilinx7 import XILINX7
from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multipliers import Operands, multiplier_of
from hwgen.gateware.multipliers.quad_dsp import QuadDspSlice
from hwgen.gateware.multiply import Chains, Multiply, MultiplyConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.verilog.parts import text_of
from hwgen.verilog.primitives import PrimitivePlatform


def sum_bits(weights: np.ndarray, low: int, high: int) -> int:
    """Bits for any part of the sum of ``w * x``: no more than that, to see that no more are needed."""
    products = np.stack([weights * low, weights * high, weights * 0])
    most, least = products.max(axis=0).sum(axis=(1, 2, 3)).max(), products.min(axis=0).sum(axis=(1, 2, 3)).min()
    return 1 + max(int(most).bit_length(), (-1 - int(least)).bit_length())


#: Slices that synthesis infers, and those that UltraScale+ instantiates.
DEVICES = st.sampled_from([XILINX7, ULTRASCALE_PLUS])


@st.composite
def multiplies(
    draw, packed: bool = False, depthwise: bool | None = None, max_lanes: int = 2, **limits
) -> tuple[MultiplyConfig, np.ndarray]:
    """A configuration, and its weights ``(M, C // groups, Kh, Kw)``; ``packed``: two multiply-adds a slice."""
    if depthwise is None:
        depthwise = not packed and draw(st.sampled_from([False, False, True]))
    window = draw(line_buffers(channelwise=depthwise, **{"max_bits": draw(st.sampled_from([9, 16]))} | limits))
    if packed:
        window = replace(window, input=replace(window.input, bits=draw(st.sampled_from(range(2, 9)))), pad_value=0)
    groups = window.input.groups
    folds = window.output_folds // groups
    lanes = draw(st.integers(1 + packed, (4 if window.pixels == 1 else max_lanes) + packed))
    size = draw(st.integers(max((folds - 1) * lanes + 1, 1 + packed), folds * lanes))
    lanes, outputs = min(lanes, size), groups * size
    if depthwise:
        lanes, outputs, groups = window.input.lanes, window.input.channels, window.input.channels
    bits = draw(st.integers(2, 8) if packed else st.one_of(st.integers(2, 9), st.integers(10, 17)))
    half = 1 << (bits - 1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    name = draw(st.sampled_from([2, "2-wide", "2-full"])) if packed else 1
    least = multiplier_of(name).weight_range(bits)[0]
    weights = integers(rng, least, half - 1, (outputs, window.input.channels // groups, *window.kernel))
    low, high = operand_range(window, packed)
    config = MultiplyConfig(
        window=replace(window, device=draw(DEVICES)),
        outputs=outputs,
        lanes=lanes,
        weights=Weights(weights.ravel().tolist()),
        weight_bits=bits,
        sum_bits=sum_bits(weights, low, high),
        chain=draw(st.integers(1, 16)),
        macs_per_dsp=name,
    )
    return config, weights


def operand_range(window: LineBufferConfig, packed: bool) -> tuple[int, int]:
    """What is multiplied: unsigned activations of packed products are less by half of their range."""
    low, high = value_range(window)
    middle = (low + high + 1) // 2 if packed else 0
    return low - middle, high - middle


def expected_sums(config: MultiplyConfig, weights: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """``(windows, M, Tp)``, less what ``offsets`` says."""
    source = config.window.input
    values = windows[:, :, channel_lanes(source)]
    values = values.reshape(*values.shape[:2], config.groups, -1, *values.shape[3:])
    filters = weights.reshape(config.groups, -1, *weights.shape[1:])
    sums = np.einsum("npgchw,gmchw->ngmp", values, filters).reshape(len(windows), config.outputs, -1)
    return sums - np.array(config.offsets)[:, None]


def check_sums(config: MultiplyConfig, words: list[int], expected: np.ndarray) -> None:
    """Every fold's ``Tm x Tp`` sums in order; lanes past the last channel don't matter."""
    assert len(words) == len(expected) * config.folds
    check_folds(config, words, expected)


def check_folds(config: MultiplyConfig, words: list[int], expected: np.ndarray) -> None:
    """The same of as many folds as there are."""
    for number, (word, wanted) in enumerate(zip(words, expected_words(config, expected), strict=False)):
        lanes = unpack(word, config.sum_bits, True, config.lanes * config.window.pixels)
        assert lanes[: len(wanted)] == wanted, f"output fold {number}"


def simulate(config: MultiplyConfig, windows: np.ndarray, offer: Pattern, **options):
    words = step_words(config.window, steps_of(config.window, windows))
    if offer == Pattern():
        offer = Pattern((False, *[True] * len(words)))
    return run(Multiply(config), words, len(windows) * config.folds, offer=offer, drain=60, **options)


@cases_in_the_long_run(30)
@given(drawn=multiplies(), seed=st.integers(0, 2**32), gaps=GAPS)
def test_sums(drawn, seed, gaps):
    check_random(*drawn, seed, gaps)


@cases_in_the_long_run(26)
@given(drawn=multiplies(packed=True), seed=st.integers(0, 2**32), gaps=GAPS)
def test_packed_sums(drawn, seed, gaps):
    config, weights = drawn
    source = config.window.input
    half = 0 if source.signed else 1 << (source.bits - 1)
    assert list(config.offsets) == (half * weights.sum(axis=(1, 2, 3))).tolist()
    check_random(config, weights, seed, gaps)


@st.composite
def packed_pixels(draw, extreme: bool = False) -> tuple[MultiplyConfig, np.ndarray]:
    """A configuration whose slices serve two pixels, depthwise or two lanes of 4 bits, and its weights.

    Lanes and pixels can be odd. ``extreme``: the weights are the largest ones.
    """
    kind = multiplier_of(draw(st.sampled_from(["2-pixels", 4, "2-pixels-wide", "2-pixels-full", "4-wide"])))
    config, _ = draw(multiplies(depthwise=None if kind.lanes == 1 else False, max_lanes=4))
    assume(config.lanes >= kind.lanes and config.window.pixels >= kind.pixels)
    max_bits = 8 if kind.lanes == 1 else 4
    bits, weight_bits = draw(st.integers(2, max_bits)), draw(st.integers(2, max_bits))
    window = replace(config.window, input=replace(config.window.input, bits=bits), pad_value=0)
    rng, (least, most) = np.random.default_rng(draw(st.integers(0, 2**32))), kind.weight_range(weight_bits)
    shape = (config.outputs, window.input.channels // config.groups, *window.kernel)
    weights = rng.choice([least, most], shape) if extreme else integers(rng, least, most, shape)
    config = replace(
        config,
        window=window,
        weights=Weights(weights.ravel().tolist()),
        weight_bits=weight_bits,
        sum_bits=32,
        chain=16,
        macs_per_dsp=kind.name,
    )
    low, high = value_range(window)
    return replace(config, sum_bits=sum_bits(weights, low - config.kinds.offset, high - config.kinds.offset)), weights


@cases_in_the_long_run(40, share=0.25)
@given(drawn=packed_pixels(), seed=st.integers(0, 2**32), gaps=GAPS)
def test_packed_pixels(drawn, seed, gaps):
    config, weights = drawn
    kind = config.kinds.in_slices
    units = -(-config.lanes // kind.lanes) * -(-config.window.pixels // kind.pixels)
    assert config.multipliers == config.products * units
    check_random(config, weights, seed, gaps)


@cases_in_the_long_run(20)
@given(drawn=packed_pixels(extreme=True), extreme=st.sampled_from(["low", "high", "both"]))
def test_extremes_of_packed_pixels(drawn, extreme):
    """The largest operands in chains of every length, all of one sign or of both."""
    config, weights = drawn
    low, high = value_range(config.window)
    windows = windows_for(config.window, 6, 0)
    values = {"low": [low], "high": [high], "both": [low, high]}[extreme]
    windows = np.random.default_rng(0).choice(values, windows.shape)
    trace = simulate(config, windows, Pattern())
    check_sums(config, trace.words, expected_sums(config, weights, windows))


@st.composite
def with_lut_lanes(draw, signs: bool | None = None) -> tuple[MultiplyConfig, np.ndarray]:
    """A configuration of any multiplier, the last of whose lanes have their products in LUTs, and its weights.

    ``signs``: all weights are -1 or 1, in block RAM.
    """
    config, weights = draw(st.one_of(multiplies(), multiplies(packed=True), packed_pixels()))
    if draw(st.sampled_from([False, False, True])) if signs is None else signs:
        weights = np.where(weights > 0, 1, -1)
        config = replace(config, weights=Weights(weights.ravel().tolist()))
    lut_lanes = draw(st.integers(1, config.lanes))
    kind = config.kinds.in_slices.for_size(max(config.lanes - lut_lanes, 1), config.window.pixels)
    weights_in = "block" if signs else draw(st.sampled_from([None, None, "block"]))
    mixed = replace(config, macs_per_dsp=kind.name, lut_lanes=lut_lanes, sum_bits=32, weights_in=weights_in)
    low, high = value_range(config.window)
    bits = sum_bits(weights, low - mixed.kinds.offset, high - mixed.kinds.offset)
    return replace(mixed, sum_bits=bits), weights


@cases_in_the_long_run(40, share=0.25)
@given(drawn=with_lut_lanes(), seed=st.integers(0, 2**32), gaps=GAPS)
def test_lanes_in_luts(drawn, seed, gaps):
    """Sums of slices and of LUTs arrive together, whatever their latencies."""
    config, weights = drawn
    units = len(config.units.in_slices) * len(config.units.pixel_groups)
    assert config.multipliers == config.products * units
    check_random(config, weights, seed, gaps)


@pytest.mark.long
def test_lanes_in_modules_of_their_own():
    """Each of three lanes in LUTs is a module, whose latency is that of the three: their sums meet the last step."""
    window = LineBufferConfig(
        input=BeatFormat(channels=9, height=2, width=5, lanes=2, bits=7, signed=False, groups=3), kernel=(2, 4),
        stride=(4, 2), padding=(1, 2, 0, 2), pad_value=0, taps=7, output_folds=3, channelwise=False, rows=2, pixels=2,
    )  # fmt: skip
    weights = np.ones((9, 3, 2, 4), int)
    config = MultiplyConfig(
        window=window, outputs=9, lanes=3, weights=Weights(weights.ravel().tolist()), weight_bits=8, sum_bits=12,
        macs_per_dsp=1, lut_lanes=3,
    )  # fmt: skip
    assert config.dots.modules((0, 1, 2)) == ((0,), (1,), (2,))
    check_random(config, weights, 0, [1])


@pytest.mark.parametrize(
    ("name", "signed", "weight_bits", "chain"),
    [
        (4, False, 4, 4),
        (4, True, 4, 4),
        (4, False, 3, 8),
        (4, False, 2, 16),
        ("4-wide", False, 4, 8),
        ("4-wide", True, 4, 8),
    ],
)
def test_four_products_of_a_slice(name, signed, weight_bits, chain):
    """All corners of two weights and two activations, in chains as long as their bits allow."""
    kind, operand = multiplier_of(name), Shape(4 if weight_bits > 2 else 2)
    assert isinstance(kind, QuadDspSlice)
    bits = 10 if name == 4 else 11
    assert kind.operand(Shape(operand.width, signed)) == operand
    assert kind.longest_chain(16, operand, weight_bits) == chain
    low, high = kind.weight_range(weight_bits)
    most = (1 << operand.width) - 1
    for w0, w1, a0, a1 in itertools.product((low, high), (low, high), (0, most), (0, most)):
        total = chain * ((w1 << 2 * bits) + w0) * ((a1 << bits) + a0)
        for shift, wanted in zip(kind.shifts, (w0 * a0, w0 * a1, w1 * a0, w1 * a1), strict=True):
            field = (total >> shift) + (total >> (shift - 1) & 1 if shift else 0)
            half = 1 << (bits - 1)
            assert (field + half) % (2 * half) - half == chain * wanted


@pytest.mark.parametrize(
    ("name", "distance", "least", "chain"), [(2, 17, -127, 4), ("2-wide", 19, -127, 16), ("2-full", 18, -128, 7)]
)
def test_all_operands_of_two_weights_in_a_slice(name, distance, least, chain):
    """All pairs of weights fit the slice's port and their memory; fields hold all sums of a chain beside any other."""
    kind = multiplier_of(name)
    assert kind.weight_range(8) == (least, 127)
    operands = Operands(activation=Shape(8, True), weight_bits=8, weight_range=(least, 127), positions=chain)
    assert kind.longest_chain(16, operands.activation, 8) == chain
    lower, upper = np.meshgrid(np.arange(least, 128), np.arange(least, 128))
    packed = (upper << distance) + lower
    port = 25 if name == 2 else 27
    assert -1 << (port - 1) <= packed.min()
    assert packed.max() < 1 << (port - 1)
    words = kind.stored(np.stack([lower, upper]), operands)
    sign = words >> 7 & 1
    spread = (words & 255) | (sign * ((1 << distance) - 256)) | (words >> 8) << distance
    assert (((spread + (1 << (port - 1))) & ((1 << port) - 1)) - (1 << (port - 1)) == packed).all()
    most = chain * -least * 128
    sums = np.arange(-most, most + 1)
    width = kind.field_bits(operands)
    assert width is not None
    assert width <= distance
    for above in (-most, -1, 0, 1, most):
        total = (above << distance) + sums
        halves = [(total >> shift) & ((1 << width) - 1) for shift in kind.shifts]
        low, high = (half - (half >> (width - 1) << width) for half in halves)
        assert (low == sums).all()
        assert (high + (total >> (distance - 1) & 1) == above).all()


@cases_in_the_long_run(26)
@given(drawn=st.booleans().flatmap(multiplies), seed=st.integers(0, 2**32), gaps=GAPS)
def test_joined_sums(drawn, seed, gaps):
    """The weights of all positions in one block RAM: the same sums in the same cycles."""
    config, weights = drawn
    joined = replace(config, weights_in="block", weights_joined=True)
    assert joined.latency == replace(config, weights_in="block").latency
    assert joined.weight_words.widths == (sum(config.weight_words.rom_widths),)
    check_random(joined, weights, seed, gaps)


@pytest.mark.long
@settings(max_examples=30)
@given(drawn=multiplies(packed=True), data=st.data(), wrap=st.booleans(), seed=st.integers(0, 2**32), gaps=GAPS)
def test_whole(drawn, data, wrap, seed, gaps):
    """All outputs of a window in one step: constants for weights, a bias in the tree; sums that wrap."""
    part, _ = drawn
    lut_lanes = data.draw(st.sampled_from([0, part.lanes, *range(1, part.lanes - 1)]))
    kernel, source = part.window.kernel, part.window.input
    channels = min(source.channels, 20 // (kernel[0] * kernel[1]) + 1)
    source = replace(source, channels=channels, lanes=channels, groups=1)
    window = replace(part.window, input=source, taps=kernel[0] * kernel[1], output_folds=1)
    rng = np.random.default_rng(seed)
    outputs, half = part.lanes, 1 << (part.weight_bits - 1)
    weights = integers(rng, max(-half, -127), half - 1, (outputs, channels, *kernel))
    bias = integers(rng, -(1 << 20), 1 << 20, (outputs,)) if rng.integers(2) else np.zeros(outputs, int)
    bits = sum_bits(weights, *operand_range(window, True))
    config = replace(
        part,
        window=window,
        outputs=outputs,
        weights=Weights(weights.ravel().tolist()),
        sum_bits=bits - 1 if wrap else 32,
        bias=tuple(bias.tolist()),
        macs_per_dsp=2 if lut_lanes < part.lanes else 1,
        lut_lanes=lut_lanes,
    )
    assert config.kinds.whole
    windows = windows_for(window, 40, seed)
    trace = simulate(config, windows, offers(1, [1, *gaps]))
    sums = expected_sums(config, weights, windows) + bias[:, None]
    half = 1 << (config.sum_bits - 1)
    check_sums(config, trace.words, (sums + half) % (2 * half) - half)
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


@pytest.mark.parametrize(("products", "levels"), [(1, 1), (16, 1), (17, 2), (36, 2), (37, 3), (144, 4)])
def test_whole_latency(products, levels):
    """One cycle for the product, one for each position, and for each level of a tree that ends with five values."""
    weights = np.full((2, products, 1, 1), -127)
    source = BeatFormat(channels=products, height=1, width=1, lanes=products, bits=8, signed=False)
    window = LineBufferConfig(
        input=source, kernel=(1, 1), stride=(1, 1), padding=(0, 0, 0, 0), pad_value=0, taps=1, output_folds=1,
        channelwise=False, rows=1,
    )  # fmt: skip
    config = MultiplyConfig(
        window=window, outputs=2, lanes=2, weights=Weights(weights.ravel().tolist()), weight_bits=8, sum_bits=26,
        macs_per_dsp=2, bias=(5, -7),
    )  # fmt: skip
    assert config.latency == 1 + min(products, 4) + levels
    windows = np.array([np.full((1, products, 1, 1), value) for value in (0, 255, 128, 1)])
    trace = simulate(config, windows, Pattern())
    check_sums(config, trace.words, expected_sums(config, weights, windows) + np.array([5, -7])[:, None])
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def check_random(config: MultiplyConfig, weights: np.ndarray, seed: int, gaps: list[int]) -> None:
    windows = windows_for(config.window, 8, seed)
    trace = simulate(config, windows, offers(config.window.steps, [1, *gaps]))
    check_sums(config, trace.words, expected_sums(config, weights, windows))
    last_steps = trace.taken[config.window.steps - 1 :: config.window.steps]
    assert trace.times == [cycle + config.latency for cycle in last_steps]


@cases_in_the_long_run(20)
@given(drawn=st.booleans().flatmap(multiplies), seed=st.integers(0, 2**32), reset_at=st.integers(0, 60))
def test_reset(drawn, seed, reset_at):
    """The step after a reset is the first of a window."""
    config, weights = drawn
    windows = windows_for(config.window, 12, seed)
    after = step_words(config.window, steps_of(config.window, windows[6:]))
    trace = simulate(config, windows[:6], Pattern(), reset_at=reset_at, after=(after, 6 * config.folds))
    assert trace.reset is not None
    sent = trace.reset[2]
    expected = expected_sums(config, weights, windows)
    check_folds(config, trace.words[:sent], expected[:6])
    check_sums(config, trace.words[sent:], expected[6:])


def expected_words(config: MultiplyConfig, sums: np.ndarray) -> list[list[int]]:
    """Of every output fold, which is one group's; the pixels of a channel side by side."""
    groups = config.window.input.groups
    size = config.outputs // groups
    return [
        window[group * size : (group + 1) * size][start : start + config.lanes].ravel().tolist()
        for window in sums
        for group in range(groups)
        for start in range(0, size, config.lanes)
    ]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("weight", [-256, 255])
@pytest.mark.parametrize("chain", [1, 4, 16])
def test_extremes(signed, weight, chain):
    """The largest sums there are, all of one sign, in the fewest bits that hold them."""
    config, weights = _plain(signed=signed, chain=chain, fill=weight)
    low, high = value_range(config.window)
    shape = (1, 1, config.window.input.folds * config.window.input.lanes, *config.window.kernel)
    windows = np.concatenate([np.full(shape, value) for value in (low, high, -1 if signed else 1, 0)])
    trace = simulate(config, windows, Pattern())
    check_sums(config, trace.words, expected_sums(config, weights, windows))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("weights", [(127, 127), (-128, -128), (-128, 127), (127, -128)])
@pytest.mark.parametrize(
    ("name", "chain", "longest"), [(2, 1, 1), (2, 3, 3), (2, 16, 4), ("2-wide", 16, 16), ("2-full", 16, 7)]
)
def test_packed_extremes(signed, weights, name, chain, longest):
    """The largest sums of both fields, of equal and of opposite sign; the odd last lane too."""
    config, _ = _plain(signed=signed, chain=chain, weight_bits=8)
    least, _ = multiplier_of(name).weight_range(8)
    lanes = np.array([max(weights[lane % 3 % 2], least) for lane in range(7)])
    values = np.broadcast_to(lanes[:, None, None, None], (7, 5, 3, 3))
    low, high = value_range(config.window)
    flat = Weights(values.ravel().tolist())
    bits = sum_bits(values, *operand_range(config.window, True))
    config = replace(config, weights=flat, sum_bits=bits, macs_per_dsp=name)
    assert config.chains.longest == longest
    shape = (1, 1, config.window.input.folds * config.window.input.lanes, *config.window.kernel)
    windows = np.concatenate([np.full(shape, value) for value in (low, high, (low + high) // 2, (low + high) // 2 + 1)])
    trace = simulate(config, windows, Pattern())
    check_sums(config, trace.words, expected_sums(config, values, windows))


@pytest.mark.parametrize(
    ("signed", "steps"),
    [(True, 1), *(pytest.param(*case, marks=pytest.mark.long) for case in ((False, 1), (False, 2), (True, 2)))],
)
def test_fields_apart(signed, steps):
    """Four products of all combinations of corners: each pair of weights with each four activations."""
    middle = 0 if signed else 128
    corners = np.array([-128, -1, 0, 1, 127]) + middle
    weights = np.array([-127, -64, -1, 0, 1, 127])
    pairs = np.stack(np.meshgrid(weights, weights), -1).reshape(-1, 1)
    weights = np.repeat(pairs, 4 * steps, axis=1)[:, :, None, None]
    activations = np.stack(np.meshgrid(*[corners] * 4), -1).reshape(-1, 4)
    windows = np.concatenate([activations, *[np.roll(activations, 7, axis=0)] * (steps - 1)], axis=1)
    window = LineBufferConfig(
        input=BeatFormat(channels=4 * steps, height=1, width=1, lanes=4, bits=8, signed=signed),
        kernel=(1, 1),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=0,
        taps=1,
        output_folds=9,
        channelwise=False,
        rows=1,
    )
    config = MultiplyConfig(
        window=window,
        outputs=len(weights),
        lanes=8,
        weights=Weights(weights.ravel().tolist()),
        weight_bits=8,
        sum_bits=sum_bits(weights, -128, 127),
        macs_per_dsp=2,
    )
    assert (config.chains.positions, config.accumulates) == (4, steps == 2)
    windows = windows[:, None, :, None, None]
    trace = simulate(config, windows, Pattern())
    check_sums(config, trace.words, expected_sums(config, weights, windows))


BENCH = read_text("multiply_bench.v")


@pytest.mark.long
@pytest.mark.parametrize(
    ("signed", "taps", "folds", "lanes", "weights_in"),
    [
        pytest.param(False, 3, 2, 3, "lut", marks=pytest.mark.long),
        (False, 9, 1, 4, "lut"),
        pytest.param(True, 9, 2, 4, "block", marks=pytest.mark.long),
    ],
)
def test_packed_yosys(tmp_path, signed, taps, folds, lanes, weights_in):
    """Two multiply-adds in every slice that Yosys infers, all registers used; and the netlist computes the same.

    Three of 3 x 3 taps of 5 channels, 2 at a time: 6 products in two chains, and an odd lane. All taps of all channels:
    five chains without an accumulator, and if all outputs are computed at once too, with constant weights.
    """
    rng = np.random.default_rng(lanes)
    channels = 5 if taps == 3 else 2
    source = BeatFormat(channels=channels, height=3, width=3, lanes=2, bits=8, signed=signed)
    window = LineBufferConfig(
        input=source,
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        pad_value=0,
        taps=taps,
        output_folds=folds,
        channelwise=False,
        rows=3,
    )
    weights = rng.choice([-127, -126, -3, 3, 5, 126, 127], (folds * lanes, channels, 3, 3))
    config = MultiplyConfig(
        window=window,
        outputs=folds * lanes,
        lanes=lanes,
        weights=Weights(weights.ravel().tolist()),
        weight_bits=8,
        sum_bits=sum_bits(weights, -128, 127),
        macs_per_dsp=2,
        weights_in=weights_in,
    )
    assert (config.accumulates, config.kinds.whole) == (taps == 3, folds == 1)
    counted = cells(Multiply(config), tmp_path)
    assert counted["DSP48E1"] == config.multipliers
    assert (counted["RAMB18E1"] + counted["RAMB36E1"] > 0) == (weights_in == "block")
    netlist = (tmp_path / "netlist.v").read_text()
    for register in ("MREG", "PREG"):
        assert re.findall(rf"\.{register}\((.*?)\)", netlist) == ["1'h1"] * config.multipliers
    linked = re.findall(r"\.PCIN\((?!48'h0)", netlist)
    assert len(linked) == (config.products - config.chains.count) * len(config.units.lanes)

    if weights_in == "block":
        return  # Yosys has no simulation model of a block RAM
    if shutil.which("iverilog") is None:
        pytest.skip("no Icarus to run the netlist with")
    windows = windows_for(window, 100, 0)
    words = step_words(window, steps_of(window, windows))
    (tmp_path / "beats.hex").write_text("".join(f"{word:x}\n" for word in words))
    inputs = window.taps * source.lanes * source.bits + 2
    bench = BENCH.format(inputs=inputs - 1, outputs=lanes * config.sum_bits - 1, last=len(words) - 1)
    results = [int(line, 2) for line in simulate_netlist(tmp_path, bench).split()]
    check_sums(config, results, expected_sums(config, weights, windows))


@settings(max_examples=60)
@given(drawn=multiplies(packed=True))
def test_packed_contents(drawn):
    """The weights of a pair, put together as in a slice, are ``(w1 << 17) + w0``."""
    config, _ = drawn
    plain = replace(config, macs_per_dsp=1, chain=config.chains.longest)
    bits, lanes = config.weight_bits, config.lanes
    upper_bits = config.kinds.in_slices.unit_bits(config.units.operands) - bits
    assert config.multipliers == config.products * ((lanes + 1) // 2) * config.window.pixels
    memories = config.weight_words.position_words, plain.weight_words.position_words
    for position, (words, singles) in enumerate(zip(*memories, strict=True)):
        chains = plain.weight_words.rom_widths[position] // bits // lanes
        for word, single in zip(words, singles, strict=True):
            weights = unpack(single, bits, True, lanes * chains)
            for lane in range(0, lanes - 1, 2):
                for chain in range(chains):
                    lower, upper = (weights[(lane + n) * chains + chain] for n in (0, 1))
                    (stored,) = unpack(word, bits, True, 1)
                    word >>= bits
                    high = word & ((1 << upper_bits) - 1)
                    high -= (high >> (upper_bits - 1)) << upper_bits
                    word >>= upper_bits
                    assert stored == lower
                    assert (high << 17) + (stored & 0x1FFFF) == (upper << 17) + lower
            if lanes % 2:
                assert unpack(word, bits, True, chains) == weights[-chains:]
                word >>= bits * chains
            assert word == 0


@cases_in_the_long_run(25)
@given(
    drawn=st.booleans().flatmap(lambda packed: multiplies(packed=packed)), ends=st.tuples(*[st.integers(-128, 127)] * 2)
)
def test_circuit(drawn, ends):
    """Chains of what stands for the weights are those of the weights; other weights of as many bits have the same."""
    config, weights = drawn
    assume(not config.kinds.whole)
    one, two = (
        text_of(Chains(kind), "chains", PrimitivePlatform(ULTRASCALE_PLUS))[0] for kind in (config, config.circuit)
    )
    assert one == two
    half = 1 << (config.weight_bits - 1)
    least, most = (-half, half - 1) if config.macs_per_dsp == 1 else (weights.min(), weights.max())
    low, high = np.clip(ends, least, most).tolist()
    if weights.size > 1:
        other = replace(config, weights=Weights([low, high] + [0] * (weights.size - 2)))
        one, two = (
            (multiplier_of(2).unit_bits(each.units.operands), multiplier_of(2).field_bits(each.units.operands))
            for each in (config, other)
        )
        assert (other.circuit == config.circuit) == (one == two or config.macs_per_dsp == 1)


@settings(max_examples=25)
@given(drawn=with_lut_lanes(signs=True))
def test_circuit_of_lut_lanes(drawn):
    """What stands for the weights has the multipliers in LUTs of the weights, also beside slices of any kind."""
    config, _ = drawn
    assert config.circuit.kinds.used == config.kinds.used
    assert config.circuit.units.weight_bits == config.units.weight_bits


@cases_in_the_long_run(100)
@given(drawn=multiplies())
def test_contents(drawn):
    """Decoded by the rule in the docstring alone, the memories hold every weight, and zero past the last channels."""
    config, weights = drawn
    window, bits = config.window, config.weight_bits
    groups, tn = window.input.groups, window.input.lanes
    size, group_outputs = window.input.channels // groups, config.outputs // groups
    if window.channelwise:  # each output lane sees its own channel alone
        size = tn = 1
    group_folds = -(-group_outputs // config.lanes)
    assert len(config.weight_words.position_words) == config.chains.positions <= config.chain
    assert config.chains.count == -(-config.products // config.chain)
    seen = set()
    for position, words in enumerate(config.weight_words.position_words):
        products = config.chains.products_at(position)
        assert config.weight_words.rom_widths[position] == bits * config.lanes * len(products)
        assert len(words) == config.rom_depth
        for step, word in enumerate(words):
            fold, within = divmod(step, window.steps)
            turn, input_fold = divmod(within, -(-size // tn))
            taps = window.patches.step_taps[turn]
            values = iter(unpack(word, bits, True, config.lanes * len(products)))
            group, first = divmod(fold, group_folds)
            for output in range(first * config.lanes, (first + 1) * config.lanes):
                for product in products:
                    tap, lane = divmod(product, tn)
                    channel = input_fold * tn + lane
                    inside = output < group_outputs and channel < size and tap < len(taps)
                    weight = weights[(group * group_outputs + output, channel, *taps[tap])] if inside else 0
                    assert next(values) == weight
                    assert tap < window.taps
                    seen.add((group, output, channel, turn, tap))
            assert word >> config.weight_words.rom_widths[position] == 0
    assert len(seen) == config.rom_depth * config.multipliers // window.pixels  # each product once
    assert config.multipliers == window.taps * tn * config.lanes * window.pixels


def _plain(fill: int = 1, *, signed: bool = True, chain: int = 16, **changes) -> tuple[MultiplyConfig, np.ndarray]:
    """5 channels, 2 at a time; 7 outputs, 3 at a time; 3 x 3 taps, 3 at a time."""
    groups = changes.pop("groups", 1)
    source = BeatFormat(
        channels=5, height=5, width=6, lanes=2, bits=changes.pop("bits", 8), signed=signed, groups=groups
    )
    window = LineBufferConfig(
        input=source,
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1, 1, 1),
        pad_value=0,
        taps=3,
        output_folds=changes.pop("folds", 3 if groups == 1 else groups),
        channelwise=False,
        rows=3,
    )
    weights = np.full((7, 5, 3, 3), fill)
    weights[4, 3, 2, 1] = changes.pop("odd", fill)
    fields = {
        "window": window,
        "outputs": 7,
        "lanes": 3,
        "weights": Weights(weights.ravel().tolist()),
        "weight_bits": 9,
        "sum_bits": sum_bits(weights, *value_range(window)),
        "chain": chain,
    }
    return MultiplyConfig(**fields | changes), weights


FOLDS = "window.output_folds must be 10, not 5"
ONE = "macs_per_dsp must be 1 where"
ONES = Weights([1] * 90)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *refusals_in("multiply_errors.txt"),
        ({"groups": 5, "outputs": 10, "lanes": 1, "weights": ONES}, FOLDS),
        ({"weights": Weights([1] * 314)}, "weights must have 315 integers, not 314"),
        (
            {"macs_per_dsp": 2, "weight_bits": 8, "bits": 9},
            f"{ONE} activations have more than 8 bits (these have 9), not 2",
        ),
        (
            {"macs_per_dsp": 2, "weight_bits": 8, "lanes": 1, "groups": 5, "outputs": 10, "weights": ONES, "folds": 10},
            "macs_per_dsp must be 1 with one lane, not 2: two output channels share a slice",
        ),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        _plain(**changes)


@pytest.mark.parametrize(
    ("least", "most", "bits", "expected"),
    [(-127, 127, 8, True), (-128, 0, 8, False), (0, 128, 8, False), (-127, 127, 9, False), (-2, 1, 2, True)],
)
def test_packable(least, most, bits, expected):
    assert multiplier_of(2).accepts((least, most), bits, channelwise=False) == expected
