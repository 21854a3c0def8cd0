"""The requantiser and the bias adder: every output against fractions, latency, resets, cost."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import ConfigError
from hwgen.gateware.requantise import AddBias, AddBiasConfig, Requantise, RequantiseConfig, round_half_even

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
    """As the docstring of `hwgen.network.graph.Requantisation` says; Python rounds fractions half to even."""
    total = accumulator + config.bias[channel]
    scaled = round(Fraction(total * config.significand[channel], 2 ** config.shift[channel]))
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

    async def bench(ctx):
        for cycle in range(len(beats) + component.config.latency):
            beat = beats[cycle] if cycle < len(beats) else None
            ctx.set(component.i.valid, beat is not None)
            for lane in range(component.config.lanes):
                ctx.set(component.i.payload[lane], beat[lane] if beat else -1)
            ctx.set(reset, cycle == reset_at)
            await ctx.delay(0)
            lanes = range(component.config.lanes)
            outputs.append([ctx.get(component.o.payload[lane]) for lane in lanes] if ctx.get(component.o.valid) else None)
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
    for cycle, beat in enumerate(stimulus):
        if beat is not None and cycle != reset_at:
            channels = config.beats[number]
            number = (number + 1) % len(config.beats)
            lanes = [reference(config, channel, beat[lane]) for lane, channel in enumerate(channels)]
            if reset_at is None or not cycle < reset_at < cycle + config.latency:
                wanted[cycle + config.latency] = lanes + [0] * (config.lanes - len(lanes))
        if cycle == reset_at:
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


@st.composite
def configs(draw) -> RequantiseConfig:
    lanes = draw(st.integers(1, 3))
    channels = draw(st.integers(1, 6))
    accumulator_bits = draw(st.integers(9, 40))
    bits, is_signed = draw(st.integers(2, 16)), draw(st.booleans())
    least = -(2 ** (bits - 1)) if is_signed else 0
    values = st.integers(least, least + 2**bits - 1)
    full = draw(st.booleans())
    low, high = (least, least + 2**bits - 1) if full else sorted((draw(values), draw(values)))
    # Shifts that scale the accumulator's range to about the output's are the ones that matter.
    apt = max(0, 23 + accumulator_bits - bits)
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
    half = 2 ** (accumulator_bits - 1)
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
        beats=beats_of(draw, channels, lanes),
    )


def corners(config, rng: random.Random, channel: int) -> int:
    """An accumulator where something may go wrong: an end, a sign change, a tie, a bound, or any."""
    half = 2 ** (config.accumulator_bits - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([-half, half - 1, -1, 0, 1])
    if kind == 1 or not isinstance(config, RequantiseConfig):
        return rng.randrange(-half, half)
    # Around the sum that gives a random (half) step between the bounds.
    step = Fraction(2 * rng.randint(config.low, config.high + 1) - 1, 2) - config.zero_point
    total = step * 2 ** config.shift[channel] / config.significand[channel]
    return min(max(round(total) + rng.choice([-1, 0, 0, 1]) - config.bias[channel], -half), half - 1)


def stimulus(config, seed: int, length: int) -> list[list[int] | None]:
    rng = random.Random(seed)
    gaps = rng.choice([0, 0.3, 0.8])
    channels = range(len(config.bias))
    return [
        None if rng.random() < gaps else [corners(config, rng, rng.choice(channels)) for _ in range(config.lanes)]
        for _ in range(length)
    ]


@settings(max_examples=150, deadline=None)
@given(config=configs(), seed=st.integers(0, 2**32), reset_at=st.none() | st.integers(0, 60))
def test_requantise(config, seed, reset_at):
    check(Requantise(config), expected, stimulus(config, seed, 60), reset_at)
