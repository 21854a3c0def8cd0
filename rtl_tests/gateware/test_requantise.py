"""The requantiser, the bias adder and thresholds: every output against fractions, latency, resets, cost."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from itertools import cycle

import numpy as np
import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator
from counted import cases_in_the_long_run, counted
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lint import cells, luts, simulate_netlist
from refusals import refusals_in
from testbench import pack, patterns, run, unpack
from texts import read_text

from hwgen.errors import ConfigError
from hwgen.gateware.bias import AddBias, AddBiasConfig
from hwgen.gateware.requantisation.recipe import search_recipe
from hwgen.gateware.requantise import Requantise, RequantiseConfig
from hwgen.gateware.threshold import Threshold, ThresholdConfig
from hwgen.tools import synthesis

GOOD = {
    "lanes": 2,
    "accumulator_bits": 16,
    "bias": (5, -7, 1000),
    "significand": (2**23, 2**24 - 1, 2**23 + 12345),
    "shift": (31, 32, 30),
    "zero_point": 3,
    "low": 0,
    "high": 255,
    "bits": 8,
    "signed": False,
    "beats": ((0, 1), (2,)),
}


def expected(config: RequantiseConfig, channel: int, accumulator: int) -> int:
    """As the docstring of `hwgen.network.graph.Requantisation` says; Python rounds fractions half to even.

    NumPy multiplies in float32.
    """
    total = accumulator * 2**config.fraction + config.bias[channel]
    significand, shift = config.significand[channel], config.shift[channel]
    if config.float32:
        scaled = int(np.rint(np.float32(total) * np.ldexp(np.float32(significand), -shift)))
    else:
        scaled = round(Fraction(total * significand, 2**shift))
    return min(max(scaled + config.zero_point, config.low), config.high)


def wrapped(config: AddBiasConfig, channel: int, accumulator: int) -> int:
    half = 2 ** (config.bits - 1)
    return (accumulator + config.bias[channel] + half) % (2 * half) - half


def simulate(component, beats: list[list[int] | None], reset_at: int | None = None) -> list[list[int] | None]:
    """What leaves in each cycle (``None`` where nothing does); a ``None`` in ``beats`` is a cycle without a beat."""
    m = Module()
    reset = Signal()
    m.submodules.dut = ResetInserter(reset)(component)
    outputs = []
    taken, left = ([value for lane in port.payload for value in lane] for port in (component.i, component.o))

    async def bench(ctx):
        for now in range(len(beats) + component.config.latency):
            beat = beats[now] if now < len(beats) else None
            ctx.set(component.i.valid, beat is not None)
            for number, value in enumerate(taken):
                ctx.set(value, beat[number] if beat else -1)
            ctx.set(reset, now == reset_at)
            await ctx.delay(0)
            outputs.append([ctx.get(value) for value in left] if ctx.get(component.o.valid) else None)
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return outputs


def check(component, reference, stimulus: list[list[int] | None], reset_at: int | None = None) -> None:
    """Every output, in its cycle: ``config.latency`` after its beat, unless a reset came in between."""
    config = component.config
    outputs = simulate(component, stimulus, reset_at)
    number = 0
    wanted: list[list[int] | None] = [None] * len(outputs)
    for now, beat in enumerate(stimulus):
        if beat is not None and now != reset_at:
            channels = config.beats[number]
            number = (number + 1) % len(config.beats)
            channels = [channel for channel in channels for _ in range(config.pixels)]
            lanes = [reference(config, channel, beat[lane]) for lane, channel in enumerate(channels)]
            if reset_at is None or not now < reset_at < now + config.latency:
                wanted[now + config.latency] = lanes + [0] * (config.lanes * config.pixels - len(lanes))
        if now == reset_at:
            number = 0
    assert outputs == wanted


def beats_of(draw, channels: int, lanes: int) -> tuple[tuple[int, ...], ...]:
    """The channels, in order, cut into beats of random size."""
    beats, start = [], 0
    while start < channels:
        size = draw(st.integers(1, min(lanes, channels - start)))
        beats.append(tuple(range(start, start + size)))
        start += size
    return tuple(beats)


PLACES = st.sampled_from([None, None, "lut", "block"])
PIXELS = st.sampled_from([1, 1, 1, 2, 3])


@st.composite
def configs(draw) -> RequantiseConfig:
    lanes = draw(st.integers(1, 3))
    channels = draw(st.integers(1, 6))
    accumulator_bits = draw(st.integers(9, 46))
    float32 = draw(st.booleans())
    bits, is_signed = draw(st.integers(2, 8 if float32 else 16)), draw(st.booleans())
    least = -(2 ** (bits - 1)) if is_signed else 0
    values = st.integers(least, least + 2**bits - 1)
    full = draw(st.booleans())
    low, high = (least, least + 2**bits - 1) if full else sorted((draw(values), draw(values)))
    # Shifts that scale the accumulator's range to about the output's are the ones that matter.
    fraction = draw(st.sampled_from([0, 0, 0, 1, 6, 13]))
    apt = max(0, 23 + accumulator_bits + fraction - bits)
    usual = st.integers(max(0, apt - 3), apt + 3)
    shift = draw(st.sampled_from([st.integers(0, 60), usual, st.just(draw(usual))]))
    significand = draw(
        st.sampled_from(
            [
                st.integers(2**23, 2**24 - 1),
                st.just(2**23),
                st.integers(2**7, 2**8 - 1).map(lambda odd: odd << 16),
                st.sampled_from([2**23, 2**24 - 1, 3 << 22, 2**23 + 1, (2**7 + 1) << 16]),
            ]
        )
    )
    half = 2 ** (accumulator_bits + fraction - 1)
    bias = st.one_of(st.just(0), st.integers(-half, half))

    def each(strategy):
        return tuple(draw(strategy) for _ in range(channels))

    return RequantiseConfig(
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        bias=each(bias),
        significand=each(significand),
        shift=each(shift),
        zero_point=draw(values),
        low=low,
        high=high,
        bits=bits,
        signed=is_signed,
        float32=float32,
        beats=beats_of(draw, channels, lanes),
        pixels=draw(PIXELS),
        tables_in=draw(PLACES),
        products_in=draw(st.sampled_from(["dsp", "dsp", "lut"])),
        fraction=fraction,
    )


def corners(config, rng: random.Random, channel: int) -> int:
    """An accumulator where something may go wrong: an end, a sign change, a tie, a bound, or any."""
    half = 2 ** (config.accumulator_bits - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([-half, half - 1, -1, 0, half // 2])
    if kind == 1 or not isinstance(config, RequantiseConfig):
        return rng.randrange(-half, half)
    # Around the sum that gives a random (half) step between the bounds.
    step = Fraction(2 * rng.randint(config.low, config.high + 1) - 1, 2) - config.zero_point
    total = step * 2 ** config.shift[channel] / config.significand[channel]
    accumulator = round((total - config.bias[channel]) / 2**config.fraction)
    return min(max(accumulator + rng.choice([-1, 0, 0, 1]), -half), half - 1)


def stimulus(config, seed: int, length: int) -> list[list[int] | None]:
    rng = random.Random(seed)
    gaps = rng.choice([0, 0.3, 0.8])
    channels = range(len(config.bias))
    lanes = range(config.lanes * config.pixels)
    return [
        None if rng.random() < gaps else [corners(config, rng, rng.choice(channels)) for _ in lanes]
        for _ in range(length)
    ]


#: Ties of small outputs, whose bands are narrower than the product's last bit, beside larger ones at whose bands' ends
#: products lie.
NARROW_BANDS = RequantiseConfig(
    lanes=3,
    accumulator_bits=24,
    bias=(0,) * 5,
    beats=((0, 1), (2, 3, 4)),
    significand=(1 << 23,) * 4 + (3 << 22,),
    shift=(45,) * 5,
    zero_point=0,
    low=0,
    high=3,
    bits=2,
    signed=False,
    float32=True,
)


@cases_in_the_long_run(40, share=0.25)
@example(config=NARROW_BANDS, seed=0, reset_at=None)
@given(config=configs(), seed=st.integers(0, 2**32), reset_at=st.none() | st.integers(0, 60))
def test_requantise(config, seed, reset_at):
    check(Requantise(config), expected, stimulus(config, seed, 60), reset_at)


@pytest.mark.long
@settings(max_examples=200)
@given(config=configs(), seed=st.integers(0, 2**32), reset_at=st.none() | st.integers(0, 60))
def test_many(config, seed, reset_at):
    test_requantise.hypothesis.inner_test(config, seed, reset_at)


@st.composite
def bias_configs(draw) -> AddBiasConfig:
    lanes, accumulator_bits = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    bias = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=6))
    return AddBiasConfig(
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        bias=tuple(bias),
        beats=beats_of(draw, len(bias), lanes),
        bits=draw(st.sampled_from([32, 32, 8, 40])),
        pixels=draw(PIXELS),
        tables_in=draw(PLACES),
    )


@cases_in_the_long_run(40)
@given(config=bias_configs(), seed=st.integers(0, 2**32), reset_at=st.none() | st.integers(0, 60))
def test_add_bias(config, seed, reset_at):
    check(AddBias(config), wrapped, stimulus(config, seed, 60), reset_at)


@pytest.mark.parametrize("accumulator_bits", [20, 30])
def test_tables_in_block_ram(accumulator_bits):
    """More than 64 beats: tables in block RAM are read a cycle earlier, so that they go through output registers."""
    rng = random.Random(accumulator_bits)
    channels = 70
    shape = {
        "lanes": 1,
        "accumulator_bits": accumulator_bits,
        "bias": tuple(rng.randrange(-(2**16), 2**16) for _ in range(channels)),
    }
    config = RequantiseConfig(
        **shape,
        significand=tuple(rng.randrange(2**23, 2**24) for _ in range(channels)),
        shift=tuple(accumulator_bits + rng.randint(14, 17) for _ in range(channels)),
        zero_point=3,
        low=-128,
        high=127,
        bits=8,
        signed=True,
        float32=True,
        beats=tuple((channel,) for channel in range(channels)),
    )
    bias = AddBiasConfig(**shape, beats=config.beats)
    few = replace(config, lanes=2, beats=tuple((first, first + 1) for first in range(0, channels, 2)))
    assert config.latency == few.latency + 1
    assert bias.latency == 3
    for made in (config, few):
        check(Requantise(made), expected, stimulus(made, 1, 200))
    check(AddBias(bias), wrapped, stimulus(bias, 1, 200))


@given(config=configs(), seed=st.integers(0, 2**32))
def test_compute(config, seed):
    """The definition in integers is the one in fractions."""
    rng = random.Random(seed)
    for channel in range(config.channels):
        accumulator = corners(config, rng, channel)
        assert config.compute(channel, accumulator) == expected(config, channel, accumulator)


@settings(max_examples=30)
@given(config=configs(), other=configs(), data=st.data())
def test_a_recipe_does_not_depend_on_the_beats(config, other, data):
    """Recipes are kept: those of other beats, and of another configuration in between, are those made without any."""
    lanes = data.draw(st.integers(1, config.channels))
    wider = replace(config, lanes=lanes, beats=beats_of(data.draw, config.channels, lanes), pixels=2, tables_in="lut")
    for each in (config, other, wider, replace(config, accumulator_bits=config.accumulator_bits + 1)):
        assert each.recipe == search_recipe(each, each.ranges)


def narrow(**changes) -> RequantiseConfig:
    """One channel, one lane, accumulators of 10 bits: few enough to try all."""
    config = {
        "lanes": 1,
        "accumulator_bits": 10,
        "bias": (0,),
        "significand": (2**23,),
        "shift": (27,),
        "zero_point": 0,
        "low": -128,
        "high": 127,
        "bits": 8,
        "signed": True,
        "beats": ((0,),),
    }
    return RequantiseConfig(**(config | changes))


ARRANGEMENTS = {
    "ties, even zero point": (narrow(), True, 0, "bias"),
    "ties, odd zero point": (narrow(zero_point=5), True, 0, "bias"),
    "ties, between odd bounds": (narrow(low=-9, high=7), True, 0, "bias"),
    "ties, between odd bounds, odd zero point": (narrow(zero_point=-3, low=-9, high=8), True, 0, "bias"),
    "ties, one slice": (narrow(significand=(5 << 21,), shift=(27,), zero_point=1, low=0), True, 1, "slice"),
    "no ties": (narrow(significand=(2**23 + 4097,)), False, 1, "slice"),
    "Relu": (narrow(significand=(2**23 + 4097,), low=0), False, 1, "slice"),
    "Relu at an odd zero point": (narrow(zero_point=3, low=3, high=90), True, 0, "bias"),
    "all saturate": (narrow(shift=(0,)), False, 0, "late"),
    "all round to zero": (narrow(shift=(60,)), False, 0, "late"),
    "one output only": (narrow(low=4, high=4), True, 0, "bias"),
    "two outputs": (narrow(bits=1, low=-1, high=0, zero_point=-1), True, 0, "bias"),
}


@pytest.mark.parametrize(("config", "ties", "pieces", "place"), ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_every_accumulator(config, ties, pieces, place):
    """Each arrangement is the one it should be, and right for every accumulator there is."""
    assert (config.ranges.ties, config.recipe.pieces, config.rounding.offset_stage) == (ties, pieces, place)
    check(Requantise(config), expected, [[value] for value in range(-512, 512)])


@pytest.mark.parametrize(
    ("changes", "multipliers", "latency"),
    [
        ({}, 2, 7),  # shifted: in the accumulator's 18 bits there is room, in the significand's 24 there is none
        ({"bits": 16, "high": 65535}, 4, 6),
        ({"shift": (31, 31, 31)}, 2, 5),
        ({"significand": (2**23, 2**24 - 2**8, 2**23 + 2**9)}, 2, 5),
        ({"accumulator_bits": 25, "bias": (0, 0, 0), "shift": (38, 39, 37)}, 4, 6),
        # What lies beyond 8 bits at a scale of about 1/4 need not be multiplied.
        ({"accumulator_bits": 30, "shift": (26, 27, 26)}, 2, 7),
        ({"significand": (2**23, 2**23, 2**23)}, 0, 5),
        ({"significand": (2**23, 2**23, 2**23), "shift": (30, 30, 30)}, 0, 3),
        ({"bits": 16, "high": 65535, "pixels": 3}, 12, 6),
        # Products next to ties are made even in one cycle more; none of these 16-bit sums has one.
        ({"shift": (31, 31, 31), "float32": True}, 2, 5),
        ({"accumulator_bits": 22, "shift": (37, 37, 37)}, 3, 6),
        ({"accumulator_bits": 22, "shift": (37, 37, 37), "float32": True}, 3, 7),
        # Beyond 2**24 sums are rounded, too, in two cycles, unless they saturate.
        ({"accumulator_bits": 30, "shift": (44, 44, 44), "float32": True}, 4, 9),
        ({"accumulator_bits": 30, "shift": (39, 39, 39), "float32": True}, 4, 7),
    ],
)
def test_cost(changes, multipliers, latency):
    """Slices and cycles of typical configurations, by hand."""
    config = RequantiseConfig(**(GOOD | changes))
    assert config.multipliers == multipliers
    assert config.latency == latency


def test_a_lane_of_zeros_next_to_a_product_in_luts():
    """A channel whose products all round to zero takes no LUTs for them, and is right."""
    both = narrow(
        lanes=2, bias=(0, 0), significand=(2**23 + 4097,) * 2, shift=(27, 27), beats=((0, 1),), products_in="lut"
    )
    config = replace(both, shift=(27, 60))
    assert config.recipe.factor[1] == 0
    assert config.resources.lut < both.resources.lut
    check(Requantise(config), expected, [[value, -value] for value in range(-511, 512, 7)])


def test_product_bits():
    """No wider than the products of clamped sums: 17 bits and sign, times 23 bits, and what the offset adds."""
    config = RequantiseConfig(
        **(GOOD | {"accumulator_bits": 30, "shift": (26, 27, 26), "significand": (2**23 + 1,) * 3})
    )
    assert config.recipe.clamp
    ends = -(2 ** (config.recipe.operand_bits - 1)), 2 ** (config.recipe.operand_bits - 1) - 1
    products = [end * factor for end in ends for factor in config.recipe.factor]
    reach = max(max(products) + config.rounding.offset, -min(products) - 1)
    assert config.products.bits == reach.bit_length() + 1


@settings(max_examples=40)
@given(
    bits=st.integers(8, 18),
    shift=st.integers(0, 4),
    significand=st.integers(2**23, 2**24 - 1) | st.integers(2**11, 2**12 - 1).map(lambda odd: odd << 12),
    output=st.sampled_from([(0, 0, 255), (3, -128, 127), (-20, -19, 90)]),
)
def test_beside_ties(bits, shift, significand, output):
    """The logic for products next to ties is built where some sum needs it, and only there: all sums are tried."""
    zero, low, high = output
    shape = {"accumulator_bits": bits, "zero_point": zero, "low": low, "high": high, "signed": low < 0}
    shape |= {"significand": (significand,), "shift": (max(0, 15 + bits + shift),), "float32": True}
    config = narrow(**shape)
    totals = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    factor = np.ldexp(np.float64(significand), -config.shift[0])
    exact, rounded = np.rint(totals * factor), np.rint(totals.astype(np.float32) * np.float32(factor))
    differ = np.clip(exact + zero, low, high) != np.clip(rounded + zero, low, high)
    assert config.ranges.bands.beside == differ.any()


BENCH = read_text("requantise_bench.v")


def packed(values: list[int], bits: int) -> int:
    return sum((value % 2**bits) << (lane * bits) for lane, value in enumerate(values))


@pytest.mark.long
@pytest.mark.parametrize(
    ("lanes", "channels", "accumulator_bits", "shift", "bits", "float32", "max_luts"),
    [
        pytest.param(1, 16, 22, 36, 8, True, None, marks=pytest.mark.long),
        pytest.param(4, 4, 22, 33, 8, False, 100, marks=pytest.mark.long),
        pytest.param(1, 16, 20, 29, 8, False, 130, marks=pytest.mark.long),
        pytest.param(1, 128, 22, 33, 8, False, 40, marks=pytest.mark.long),
        pytest.param(2, 4, 32, 46, 8, False, 180, marks=pytest.mark.long),
        pytest.param(1, 4, 41, 46, 16, False, 240, marks=pytest.mark.long),
        (1, 4, 22, 36, 8, True, 110),
        pytest.param(1, 4, 30, 46, 8, True, 250, marks=pytest.mark.long),
    ],
)
def test_yosys(tmp_path, lanes, channels, accumulator_bits, shift, bits, float32, max_luts):
    """The slices are those that Yosys infers, little else is needed, and the netlist still computes the same."""
    rng = random.Random(channels)
    least = 2 ** (accumulator_bits - 4)
    config = RequantiseConfig(
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        bias=tuple(rng.randrange(-least, least) for _ in range(channels)),
        significand=tuple(rng.randrange(2**23, 2**24) for _ in range(channels)),
        shift=tuple(shift + rng.randint(0, 3) for _ in range(channels)),
        zero_point=-3,
        low=-(2 ** (bits - 1)),
        high=2 ** (bits - 1) - 1,
        bits=bits,
        signed=True,
        float32=float32,
        beats=tuple(tuple(range(start, start + lanes)) for start in range(0, channels, lanes)),
        products_in="dsp" if max_luts else "lut",
    )
    assert config.ranges.bands.beside == float32
    assert (config.ranges.rounded_bits > 0) == (float32 and accumulator_bits > 25)
    counted = cells(Requantise(config), tmp_path)
    assert counted["DSP48E1"] == config.multipliers
    if max_luts:
        assert luts(counted) <= max_luts
    else:  # of products in LUTs about as many as are estimated
        assert config.multipliers == 0
        assert 0.95 < config.resources.lut / luts(counted) < 1.15
    blocks = counted["RAMB18E1"] + counted["RAMB36E1"]
    assert (blocks > 0) == (len(config.beats) > 64)

    if blocks:
        return  # Yosys has no simulation model of a block RAM
    if shutil.which("iverilog") is None:
        pytest.skip("no Icarus to run the netlist with")
    beats = [[corners(config, rng, rng.randrange(channels)) for _ in range(lanes)] for _ in range(200)]
    (tmp_path / "beats.hex").write_text("".join(f"{packed(beat, accumulator_bits):x}\n" for beat in beats))
    bench = BENCH.format(inputs=lanes * accumulator_bits - 1, outputs=lanes * bits - 1, last=len(beats) - 1)
    wanted = [
        packed([expected(config, channel, beat[lane]) for lane, channel in enumerate(channels_)], bits)
        for beat, channels_ in zip(beats, cycle(config.beats), strict=False)
    ]
    assert simulate_netlist(tmp_path, bench).split() == [f"{value:0{lanes * bits}b}" for value in wanted]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *refusals_in("requantise_refused.txt"),
        ({"significand": (2**23,)}, r"significand must have one entry for each of 3 channels, not \(8388608,\)"),
        (
            {"significand": (2**23, 2**24, 2**23)},
            r"significand must be between 1 and 2\*\*24 - 1, not \(8388608, 16777",
        ),
        ({"significand": (2**23, 0, 2**23)}, r"significand must be between 1 and 2\*\*24 - 1, not \(8388608, 0"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        RequantiseConfig(**(GOOD | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 0}, "lanes must be a positive integer, not 0"),
        ({"pixels": 0}, "pixels must be a positive integer, not 0"),
        ({"bits": 0}, "bits must be a positive integer, not 0"),
        ({"beats": ((0,),)}, r"beats must carry each of the 2 channels that have a bias once, not \(\(0,\),\)"),
    ],
)
def test_add_bias_refused(changes, message):
    good = AddBiasConfig(lanes=1, accumulator_bits=8, bias=(1, 2), beats=((0,), (1,)))
    with pytest.raises(ConfigError, match=message):
        replace(good, **changes)


def by_channel(
    random: np.random.Generator, *, bits: int, count: int, lanes: int, channels: int, pixels: int = 1
) -> ThresholdConfig:
    """Ascending random thresholds, some that all sums reach, or none."""
    half = 1 << (bits - 1)
    rows = np.sort(random.integers(-half, half + 1, (channels, count)), axis=1)
    return ThresholdConfig(
        lanes=lanes,
        accumulator_bits=bits,
        thresholds=tuple(map(tuple, rows.tolist())),
        low=-2,
        bits=5,
        signed=True,
        beats=tuple(tuple(range(first, min(first + lanes, channels))) for first in range(0, channels, lanes)),
        pixels=pixels,
        by_channel=True,
    )


@settings(max_examples=25)
@given(data=st.data(), offer=patterns())
def thresholds_by_channel(data: st.DataObject, offer) -> None:
    """Outputs and latency, over several pixels, with gaps between beats."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    lanes, pixels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    config = by_channel(
        random,
        bits=data.draw(st.integers(2, 14)),
        count=data.draw(st.integers(1, 15)),
        lanes=lanes,
        channels=data.draw(st.integers(1, 9)),
        pixels=pixels,
    )
    half = 1 << (config.accumulator_bits - 1)
    beats = [beat for _ in range(3) for beat in config.beats]
    sums = random.integers(-half, half, (len(beats), lanes, pixels))
    thresholds = np.array(config.thresholds)
    expected = []
    for values, beat in zip(sums, beats, strict=True):
        outputs = np.zeros((lanes, pixels), int)
        for lane, channel in enumerate(beat):
            outputs[lane] = config.low + (values[lane][:, None] >= thresholds[channel]).sum(axis=1)
        expected.append(outputs.ravel().tolist())
    words = [pack((values % (2 * half)).ravel().tolist(), config.accumulator_bits) for values in sums]
    trace = run(Threshold(config), words, len(words), offer=offer)
    assert [unpack(word, config.bits, True, lanes * pixels) for word in trace.words] == expected
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def test_thresholds_by_channel() -> None:
    with counted(thresholds_by_channel):
        thresholds_by_channel()


#: Bits of sums, thresholds of a channel, lanes and channels.
SIZES = [(12, 1, 1, 64), (12, 1, 4, 64), (12, 3, 1, 64), (14, 3, 2, 256), (11, 15, 2, 16), (12, 3, 16, 16)]


def check_resources(sizes: list[tuple[int, int, int, int]]) -> tuple[int, int]:
    """Check LUTs of each circuit within a tenth or four LUTs; return the estimated and the measured LUTs of all."""
    random = np.random.default_rng(0)
    configs = [
        by_channel(random, bits=bits, count=count, lanes=lanes, channels=channels)
        for bits, count, lanes, channels in sizes
    ]
    estimates = [config.resources for config in configs]
    measured = synthesis.measure(configs)
    for size, estimate, found in zip(sizes, estimates, measured, strict=True):
        assert (estimate.dsp, estimate.bram36) == (found.dsp, found.bram36) == (0, 0)
        assert estimate.ff == pytest.approx(found.ff, rel=0.05), size
        assert estimate.lut == pytest.approx(found.lut, rel=0.1, abs=4), size
    return sum(each.lut for each in estimates), sum(each.lut for each in measured)


@pytest.mark.long
def test_resources() -> None:
    check_resources(SIZES[:3])


@pytest.mark.long
def test_resources_of_all() -> None:
    """LUTs of all circuits together are within 5 %."""
    estimate, measured = check_resources(SIZES)
    assert estimate == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thresholds": ((1,),) * 2}, "thresholds must have a row per channel (3), not 2"),
        ({"counts": (1,), "count_bits": 1}, "counts must be empty where each channel has thresholds, not (1,)"),
    ],
)
def test_errors(change: dict, message: str) -> None:
    fields = {"lanes": 1, "accumulator_bits": 6, "thresholds": ((1,),) * 3, "low": 0, "bits": 1, "signed": False}
    fields |= {"beats": ((0,), (1,), (2,)), "by_channel": True}
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        ThresholdConfig(**(fields | change))
