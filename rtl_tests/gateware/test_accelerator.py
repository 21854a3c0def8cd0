"""Whole accelerators of random small networks: every value, every cycle, stalls, resets."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import (
    cases,
    check_exact,
    check_reset,
    check_stalled,
    circuit_of,
    counting,
    frames_for,
    simulate,
    to_beats,
)
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, run, stalls

from hwgen.errors import ConfigError
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.network.requantise import Requantisation
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan

SEEDS = st.integers(0, 2**32)


@cases_in_the_long_run(8)
@given(case=cases(), seed=SEEDS, patterns=stalls())
def test_exact(case, seed, patterns):
    """Nobody stalls: all values, and the cycle of every input and output beat as the schedule has it. Stalled: all
    values, of the circuit as power-on leaves it."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@cases_in_the_long_run(8)
@given(case=cases(widest=True, most_layers=2, most_side=5), seed=SEEDS, patterns=stalls())
def test_one_beat_per_output(case, seed, patterns):
    """A beat in, a step, a beat out for each pixel: every credit counts."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@cases_in_the_long_run(8)
@given(
    case=st.booleans().flatmap(lambda widest: cases(widest=widest, packed=True, most_layers=2, most_side=5)),
    seed=SEEDS,
    patterns=stalls(),
)
def test_packed(case, seed, patterns):
    """Two multiply-adds a slice; with one step a window, some layers are computed whole, and some have no adder of a
    bias behind them."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@pytest.mark.long
@pytest.mark.parametrize("block", range(2))
@settings(max_examples=14)
@given(
    case=st.booleans().flatmap(lambda widest: cases(widest=widest, packed=True)),
    seed=SEEDS,
    patterns=stalls(),
    share=st.floats(0, 1),
)
def test_many_packed(block, case, seed, patterns, share):
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)
    check_reset(case, seed, patterns, share, circuit)


@cases_in_the_long_run(8)
@given(
    case=cases(most_layers=3),
    seed=SEEDS,
    patterns=st.one_of(st.just((ALWAYS, ALWAYS)), stalls()),
    share=st.floats(0, 1),
)
def test_reset(case, seed, patterns, share):
    """A reset in a random cycle drops what is in flight; every later frame is complete, right and on time."""
    check_reset(case, seed, patterns, share)


@pytest.mark.long
@settings(max_examples=8)
@given(case=cases(most_layers=3, most_side=5), seed=SEEDS, patterns=stalls())
def test_taps(case, seed, patterns):
    """Every layer's own output, for locating a first mismatch, equals the golden model's."""
    config, frames = case.config, frames_for(case.network, 2, seed)
    component = Accelerator(config, taps=True)
    watch = {}
    for number in range(len(config.layers)):
        tap = getattr(component, f"tap_{number}")
        watch |= {f"{number} valid": tap.valid, f"{number} payload": tap.payload.as_value()}
    trace = run(
        component,
        to_beats(config.input, frames),
        2 * config.output.beats,
        offer=patterns[0],
        accept=patterns[1],
        watch=watch,
    )
    for number, (_, outputs) in enumerate(golden.trace(case.network, frames)):
        valid, payload = trace.watched[f"{number} valid"], trace.watched[f"{number} payload"]
        words = [word for high, word in zip(valid, payload, strict=True) if high]
        # A layer may still be at pixels of the last frame that none behind it needs.
        assert len(words) >= config.taps[number].beats
        expected = counting(config.taps[number], to_beats(config.taps[number], outputs))
        assert counting(config.taps[number], words) == expected[: len(words)]


@pytest.mark.long
@pytest.mark.parametrize("block", range(2))
@settings(max_examples=20)
@given(case=cases(most_side=9), seed=SEEDS, patterns=stalls(), share=st.floats(0, 1))
def test_many(block, case, seed, patterns, share):
    """All of the above, more of it; other networks in each block."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)
    check_reset(case, seed, patterns, share, circuit)


@cases_in_the_long_run(8)
@given(case=cases(narrow=True, most_layers=3, most_side=5), seed=SEEDS, patterns=stalls())
def test_widths(case, seed, patterns):
    """Maps and weights of 1 to 8 bits, and all kinds of multipliers, in DSP slices and in LUTs."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
@settings(max_examples=25)
@given(case=cases(narrow=True, most_side=6), seed=SEEDS, patterns=stalls())
def test_many_widths(block, case, seed, patterns):
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


def small(**changes) -> AcceleratorConfig:
    """A pool behind a convolution, 3 x 5 x 7 in."""
    before = FeatureMap(channels=3, height=5, width=7, type=INT8)
    between = replace(before, channels=5)
    scale = Requantisation(
        significand=np.full(5, 3 << 22), shift=np.full(5, 30), zero_point=0, low=INT8.minimum, high=INT8.maximum
    )
    convolution = Conv(
        name="conv",
        input=before,
        output=between,
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=np.random.default_rng(1).integers(-128, 128, (5, 3, 3, 3)),
        bias=np.arange(5),
        requantisation=scale,
    )
    pool = MaxPool(
        name="pool",
        input=between,
        output=replace(between, height=2, width=3),
        window=Window(kernel=(2, 2), stride=(2, 2)),
    )
    network = Network(name="small", layers=(convolution, pool))
    plan = LayerPlan(name="conv", kind="conv", tn=2, tm=3, tk=9, chain=16, line_rows=4, fifo_depths=(20,))
    plans = (plan, replace(plan, name="pool", kind="maxpool", tn=2, tm=2, tk=2))
    return replace(compose(network, plans), **changes)


def test_figures():
    config = small()
    assert (config.input.lanes, config.output.lanes) == (2, 1)
    assert config.multipliers == sum(layer.multipliers for layer in config.layers)
    assert config.layers[0].compute.multipliers == 2 * 3 * 9
    assert [beat.channels for beat in config.taps] == [5, 5]


def test_errors():
    config = small()
    with pytest.raises(ConfigError, match=r"^layers must be at least one, not \(\)$"):
        replace(config, layers=())
    first, second = config.layers
    message = f"conv: input must be pool's output {second.output}, not {first.window.input}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        replace(config, layers=(second, first))


def test_names_that_become_one_identifier():
    config = small()
    first, second = config.layers
    same = replace(config, layers=(replace(first, name="a/b"), replace(second, name="a.b")))
    frames = np.zeros((1, 3, 5, 7), np.int8)
    assert simulate(same, frames).words == simulate(config, frames).words
