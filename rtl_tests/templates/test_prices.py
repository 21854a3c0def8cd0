"""Prices, slices and thresholds that the search counts on, against the hardware that is composed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run, counted
from counted import counted as counted_cases
from graphs import graphs, unrolls
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen import boards
from hwgen.devices import DEFAULT
from hwgen.gateware.cost import Cost
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, IntegerType, Requantisation, Thresholds, Window
from hwgen.network.ops import Conv
from hwgen.templates.base import Goal, Task
from hwgen.templates.compose import compose
from hwgen.templates.levels import should_replace, threshold_config
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll

BOARD = boards.load("zedboard")
ONE_BIT = IntegerType(bits=1, signed=False)


def convolution(weights: np.ndarray, kind: IntegerType = ONE_BIT) -> Network:
    """A convolution ``(M, C, K, K)`` of a padded 8x8 map."""
    outputs, channels, size, _ = weights.shape
    before = FeatureMap(channels=channels, height=8, width=8, type=kind)
    layer = Conv(
        name="conv",
        input=before,
        output=replace(before, channels=outputs),
        window=Window(kernel=(size, size), padding=(size // 2,) * 4),
        weights=weights,
        bias=np.zeros(outputs, np.int64),
        requantisation=Requantisation(
            significand=np.full(outputs, 1 << 23), shift=np.full(outputs, 30), zero_point=0, low=0, high=kind.maximum
        ),
    )
    return Network(name="one", layers=(layer,))


def signs(shape: tuple[int, ...], *, zeros: bool = False) -> np.ndarray:
    """Random weights of -1 and 1, and with ``zeros`` a few of 0."""
    random = np.random.default_rng(0)
    return random.choice([-1, 1, 0], shape, p=[0.45, 0.45, 0.1] if zeros else [0.5, 0.5, 0])


def task_of(network: Network) -> Task:
    return Task(network, BOARD, Goal(objective="interval", dsp=220, multipliers="lut", lut=40_000))


def made(network: Network, unroll: Unroll) -> LayerConfig:
    (layer,) = compose(network, (layer_plan(stage_of(network.layers[0]), unroll, 1),)).layers
    return layer


def compute_of(layer: LayerConfig) -> MultiplyConfig:
    assert isinstance(layer.compute, MultiplyConfig)
    return layer.compute


@pytest.mark.parametrize(("tn", "tk"), [(8, 3), (8, 9), (16, 3), (6, 3), (8, 2)])
@pytest.mark.parametrize("zeros", [False, True])
def test_lane_of_signs(tn: int, tk: int, zeros: bool):
    """The price of a product is about that of the multiplier that is made.

    Weights of -1 and 1 are stored in one bit, except where a step has fewer products than multipliers.
    """
    network, tm = convolution(signs((64, 32, 3, 3), zeros=zeros)), 8
    stage, unroll = stage_of(network.layers[0]), Unroll(tn, tm, tk, 1, lut_lanes=tm)
    is_padded = 32 % tn > 0 or 9 % tk > 0
    assert stage.is_padded(unroll) == is_padded
    compute, cost = compute_of(made(network, unroll)), Cost(DEFAULT)
    assert compute.kinds.in_luts.name == ("narrow" if zeros or is_padded else "binary")
    dots = compute.dots.products(range(tm))
    compute.kinds.in_luts.count(cost, dots)
    luts, is_stored = stage.lut_product(None, is_padded)
    assert is_stored
    assert luts == pytest.approx(cost.lut / dots.products, rel=0.35)


@settings(max_examples=40)
@given(data=st.data())
def test_block_rams(data):
    """The search counts the block RAMs that are made, and no more where memories store zeros as well."""
    bits = data.draw(st.sampled_from([1, 2, 8]))
    shape = data.draw(st.sampled_from([(64, 32, 3, 3), (48, 20, 3, 3), (96, 64, 1, 1)]))
    weights = signs(shape) if bits == 1 else np.random.default_rng(1).integers(-1 << bits - 1, 1 << bits - 1, shape)
    network = convolution(weights, IntegerType(bits=bits, signed=False))
    task, (work,) = task_of(network), task_of(network).works
    tm = data.draw(st.integers(1, 20))
    unroll = Unroll(
        data.draw(st.integers(1, 8)),
        tm,
        data.draw(st.sampled_from([1, 3] if shape[2] == 3 else [1])),
        1,
        data.draw(st.sampled_from([0, 0, tm])),
    )
    compute, counted = compute_of(made(network, unroll)), float(task.bram36(work, unroll))
    if compute.weight_memory == "lut":
        assert counted == compute.resources.bram36 == 0
    elif not stage_of(network.layers[0]).is_padded(unroll) and shape[0] % tm == 0:
        assert counted == compute.resources.bram36
    else:
        assert counted <= compute.resources.bram36


def test_fewer_luts():
    """Weights of -1 and 1 are planned with fewer LUTs than those of -1, 0 and 1."""
    luts = []
    for zeros in (False, True):
        task = task_of(convolution(signs((64, 32, 3, 3), zeros=zeros)))
        unrolling = task.two_prices.cheapest(64 * 64)
        assert unrolling is not None
        luts.append(unrolling.luts)
    assert luts[0] < 0.8 * luts[1]


def configs(
    seed: int, bits: int, *, accumulator_bits: int = 9, channels: int = 5, lanes: int = 2
) -> tuple[RequantiseConfig, ThresholdConfig]:
    """Random factors and biases with which outputs take all values, and some channels saturate."""
    random = np.random.default_rng(seed)
    fraction = int(random.integers(0, 4))
    significand = random.integers(1 << 23, 1 << 24, channels)
    shift = 23 + accumulator_bits - bits + fraction + random.integers(-2, 3, channels)
    bias = random.integers(-(1 << accumulator_bits), 1 << accumulator_bits, channels).tolist()
    rule = Requantisation(
        significand=significand, shift=shift, zero_point=int(random.integers(2)), low=0, high=(1 << bits) - 1
    )
    beats = tuple(tuple(range(first, min(first + lanes, channels))) for first in range(0, channels, lanes))
    config = RequantiseConfig(
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        bias=tuple(bias),
        significand=tuple(significand.tolist()),
        shift=tuple(shift.tolist()),
        zero_point=rule.zero_point,
        low=rule.low,
        high=rule.high,
        bits=bits,
        signed=False,
        beats=beats,
        fraction=fraction,
    )
    integer_type = IntegerType(bits=bits, signed=False)
    return config, threshold_config(
        rule, integer_type, accumulator_bits, bias, fraction, lanes=lanes, beats=beats, pixels=1, device=DEFAULT
    )


@settings(max_examples=30)
@given(bits=st.integers(1, 4), seed=st.integers(0, 2**32))
def thresholds_of_factors(bits: int, seed: int) -> None:
    """By the definition of requantisation, for every accumulator of every channel."""
    config, levels = configs(seed, bits)
    half = 1 << (config.accumulator_bits - 1)
    for channel, row in enumerate(levels.thresholds):
        for accumulator in range(-half, half):
            reached = sum(threshold <= accumulator for threshold in row)
            assert levels.low + reached == config.compute(channel, accumulator)


def test_thresholds_of_factors() -> None:
    with counted(thresholds_of_factors):
        thresholds_of_factors()


def test_thresholds_of_thresholds() -> None:
    """By hand: biases are subtracted, and what no accumulator of 4 bits reaches is 8."""
    rule = Thresholds(first=np.array([[-3, 0, 2], [5, 5, 30]]), low=-1, high=2)
    levels = threshold_config(
        rule, IntegerType(bits=3, signed=True), 4, [1, -2], 0, lanes=1, beats=((0,), (1,)), pixels=1, device=DEFAULT
    )
    assert levels.thresholds == ((-4, -1, 1), (7, 7, 8))
    np.testing.assert_array_equal(
        rule.outputs(np.array([[-9, -3, 1, 2], [4, 5, 29, 30]]), 30), [[-1, 0, 1, 2], [-1, 1, 1, 2]]
    )


@pytest.mark.parametrize(("bits", "expected"), [(1, True), (2, True), (3, False), (4, False)])
def test_few_thresholds(bits: int, expected: bool) -> None:
    config, levels = configs(1, bits, accumulator_bits=12)
    assert should_replace(levels, config) == expected


@pytest.mark.parametrize(("channels", "expected"), [(512, True), (513, False)])
def test_deep_tables(channels: int, expected: bool) -> None:
    """The second comparison has two entries for each of a lane's channels, at most 1,024."""
    config, levels = configs(3, 2, accumulator_bits=12, channels=channels, lanes=1)
    assert should_replace(levels, config) == expected


@pytest.mark.parametrize("bits", [3, 4])
def test_thresholds_against_luts(bits: int) -> None:
    """Fewer LUTs than a product in LUTs decide."""
    config, levels = configs(2, bits, accumulator_bits=14, channels=16)
    config = replace(config, products_in="lut")
    assert should_replace(levels, config) == (levels.resources.lut < config.resources.lut)


def task_of_slices(network: Network, macs_per_dsp: int, in_luts: frozenset[str] = frozenset()) -> Task:
    return Task(network, BOARD, Goal(objective="interval", dsp=220, macs_per_dsp=macs_per_dsp, in_luts=in_luts))


def counted_and_made(network: Network, unroll: Unroll, macs_per_dsp: int) -> tuple[int, LayerConfig]:
    """DSP slices of a network's only layer as the search counts them, and the layer's hardware."""
    task = task_of_slices(network, macs_per_dsp)
    (op,), (work,) = network.layers, task.works
    (layer,) = compose(network, (layer_plan(stage_of(op), unroll, 1, task.multipliers[op.name]),)).layers
    return int(task.slices(work, unroll)), layer


def pointwise(weights: list[int], significand: int, shift: int) -> Network:
    """A 1 x 1 convolution of unsigned values, two output channels of the same weights."""
    before = FeatureMap(channels=len(weights), height=4, width=4, type=UINT8)
    layer = Conv(
        name="pointwise",
        input=before,
        output=replace(before, channels=2),
        window=Window(kernel=(1, 1)),
        weights=np.array([weights, weights])[:, :, None, None],
        bias=np.zeros(2, np.int64),
        requantisation=Requantisation(
            significand=np.full(2, significand), shift=np.full(2, shift), zero_point=0, low=0, high=255
        ),
    )
    return Network(name="pointwise", layers=(layer,))


@pytest.mark.parametrize(("macs_per_dsp", "slices"), [(1, 8 * 2 + 2 * 1), (2, 8 + 2 * 2)])
def test_offset_of_packed_sums(macs_per_dsp, slices):
    """By hand: positive weights add up to 514, negative ones to -257.

    Sums of 0 to 255 need 18 bits (514 * 255 = 131,070), which a slice multiplies by 24 bits. Sums of -128 to 127 need
    18 bits, too (514 * 127 + 257 * 128 = 98,174), but 128 * (514 - 257) = 32,896 is added to them: up to 163,967 needs
    19 bits and a second slice. None of them saturates: 163,967 * 1.47 / 2**10 is 236.
    """
    network = pointwise([127, 127, 127, 127, 6, -127, -127, -3], 12_345_679, 23 + 10)
    counted, layer = counted_and_made(network, Unroll(8, 2, 1, 1), macs_per_dsp)
    assert counted == layer.multipliers == slices


def random_layer(rng: np.random.Generator) -> Network:
    """A convolution with sums of 16 to 19 bits, near the widths at which a requantiser takes another slice."""
    kind = IntegerType(bits=int(rng.choice([8, 8, 8, 7, 6])), signed=bool(rng.integers(2)))
    groups, kernel = int(rng.choice([1, 1, 1, 2])), int(rng.choice([1, 3]))
    channels, outputs = groups * int(rng.integers(1, 60)), groups * int(rng.integers(1, 9))
    zero_points = (max(kind.minimum, 0), kind.minimum, int(rng.integers(kind.minimum, kind.maximum + 1)))
    before = FeatureMap(channels=channels, height=6, width=7, type=kind, zero_point=int(rng.choice(zero_points)))
    after = replace(before, channels=outputs, zero_point=int(rng.integers(kind.minimum, kind.maximum + 1)))
    shape = (outputs, channels // groups, kernel, kernel)
    shares = np.where(rng.random(shape) < rng.random(), 1, -1) * rng.random(shape)
    signs = [np.maximum(sign * shares, 0).sum(axis=(1, 2, 3)).max() for sign in (1, -1)]
    half, fraction = kernel // 2, int(rng.choice([0, 0, 0, 4]))
    layer = Conv(
        name="layer",
        input=before,
        output=after,
        window=Window(kernel=(kernel, kernel), padding=(half, half, half, half)),
        weights=np.clip(np.rint(shares * 2 ** rng.uniform(9, 11) / max(signs)), -127, 127).astype(np.int64),
        bias=rng.integers(-(1 << 12), 1 << 12, outputs) << fraction,
        requantisation=None,
        groups=groups,
        fraction=fraction,
    )
    scales = 1 if rng.random() < 0.5 else outputs
    excess = max(0, layer.accumulator_bound.bit_length() - kind.bits)
    rule = Requantisation(
        significand=np.broadcast_to(rng.integers(1 << 23, 1 << 24, scales), outputs),
        shift=np.broadcast_to(23 + np.maximum(0, excess - rng.integers(-1, 3, scales)), outputs),
        zero_point=after.zero_point,
        low=kind.minimum,
        high=kind.maximum,
    )
    return Network(name="layer", layers=(replace(layer, requantisation=rule),))


def test_random_layers():
    """Never too few slices; as many as are made where all channels have one scale."""
    alike = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        network = random_layer(rng)
        (op,) = network.layers
        max_tn, max_tm = stage_of(op).max_lanes
        tn, tm, tk = (int(rng.integers(1, most + 1)) for most in (max_tn, max_tm, op.taps))
        unroll = Unroll(tn, tn if stage_of(op).channelwise else tm, tk, int(rng.integers(1, 3)))
        assert isinstance(op, Conv)
        rule = op.requantisation
        assert rule is not None
        for macs_per_dsp in (1, 2):
            counted, layer = counted_and_made(network, unroll, macs_per_dsp)
            assert counted >= layer.multipliers, (seed, macs_per_dsp)
            if len({*zip(rule.significand.tolist(), rule.shift.tolist(), strict=True)}) == 1:
                assert counted == layer.multipliers, (seed, macs_per_dsp)
                alike += 1
    assert alike >= 100


@settings(max_examples=40)
@given(data=st.data())
def test_random_graphs(data):
    """Layers of all kinds with any unroll factors, packed or not, with requantisers of slices or of LUTs."""
    network = data.draw(graphs(max_steps=2))
    plans = data.draw(unrolls(network))
    in_luts = frozenset(plan.name for plan in plans if plan.requantise_in == "lut")
    tasks = {macs: task_of_slices(network, macs, in_luts) for macs in MULTIPLIERS}
    for number, (plan, layer) in enumerate(zip(plans, compose(network, plans).layers, strict=True)):
        task = tasks[plan.macs_per_dsp]
        unroll = Unroll(plan.tn, plan.tm, plan.tk, plan.tp, plan.lut_lanes)
        assert int(task.slices(task.works[number], unroll)) >= layer.multipliers, layer.name


@cases_in_the_long_run(40)
@given(data=st.data())
def check_with_luts(data):
    """Layers of all kinds whose products are divided between slices, packed as well as they can be, and LUTs."""
    network = data.draw(graphs(max_steps=2))
    plans = data.draw(unrolls(network))
    goal = Goal(objective="interval", dsp=220, macs_per_dsp="auto", multipliers="auto", lut=40_000)
    task, divided = Task(network, BOARD, goal), []
    for plan, layer in zip(plans, network.layers, strict=True):
        multiplier, lut_lanes = task.multipliers[layer.name], 0
        if stage_of(layer).lut_multipliers:
            lut_lanes = data.draw(st.sampled_from([0, plan.tm, data.draw(st.integers(0, plan.tm))]))
        kind = multiplier.for_size(plan.tm - lut_lanes, plan.tp) if lut_lanes < plan.tm else PLAIN
        weighted = replace(plan, lut_lanes=lut_lanes, macs_per_dsp=kind.name, requantise_in="dsp", weights_in=None)
        divided.append(replace(weighted, weights_joined=False) if layer.weight_count else plan)
    assume(any(plan.lut_lanes for plan in divided))
    for work, plan, layer in zip(task.works, divided, compose(network, divided).layers, strict=True):
        (form,) = task.prices.forms(work)
        terms = task.prices.terms(work, Unroll(plan.tn, plan.tm, plan.tk, plan.tp), form)
        slice_lanes = plan.tm - plan.lut_lanes
        finish = max(terms.finish_slices * (slice_lanes > 0), terms.lut_finish_slices * (plan.lut_lanes > 0))
        slices = -(-slice_lanes // form.lanes) * terms.unit_slices + finish
        if plan.requantise_in == "dsp":
            assert int(slices) >= layer.resources.dsp, layer.name


def test_random_divisions():
    with counted_cases(check_with_luts):
        check_with_luts()
