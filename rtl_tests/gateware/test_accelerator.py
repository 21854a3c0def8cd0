"""Single layers and whole accelerators of random small networks: every value, every cycle, stalls, resets."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import (
    Case,
    cases,
    check_data,
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
from testbench import ALWAYS, Pattern, Trace, run, stalls

from hwgen.errors import ConfigError
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, INT32, UINT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan

SEEDS = st.integers(0, 2**32)


@cases_in_the_long_run(8)
@given(case=cases(), seed=SEEDS, patterns=stalls())
def test_exact(case, seed, patterns):
    """Nobody stalls: all values, and the cycle of every input and output beat as the schedule has it."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@cases_in_the_long_run(8)
@given(case=cases(widest=True, max_layers=2, max_side=5), seed=SEEDS, patterns=stalls())
def test_one_beat_per_output(case, seed, patterns):
    """A beat in, a step, a beat out for each pixel: every credit counts."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@cases_in_the_long_run(8)
@given(
    case=st.booleans().flatmap(lambda widest: cases(widest=widest, packed=True, max_layers=2, max_side=5)),
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
    case=cases(max_layers=3),
    seed=SEEDS,
    patterns=st.one_of(st.just((ALWAYS, ALWAYS)), stalls()),
    share=st.floats(0, 1),
)
def test_reset(case, seed, patterns, share):
    """A reset in a random cycle drops what is in flight; every later frame is complete, right and on time."""
    check_reset(case, seed, patterns, share)


@pytest.mark.long
@settings(max_examples=8)
@given(case=cases(max_layers=3, max_side=5), seed=SEEDS, patterns=stalls())
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
@given(case=cases(max_side=9), seed=SEEDS, patterns=stalls(), share=st.floats(0, 1))
def test_many(block, case, seed, patterns, share):
    """All of the above, more of it; other networks in each block."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)
    check_reset(case, seed, patterns, share, circuit)


@cases_in_the_long_run(8)
@given(case=cases(narrow=True, max_layers=3, max_side=5), seed=SEEDS, patterns=stalls())
def test_widths(case, seed, patterns):
    """Maps and weights of 1 to 8 bits, and all kinds of multipliers, in DSP slices and in LUTs."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
@settings(max_examples=25)
@given(case=cases(narrow=True, max_side=6), seed=SEEDS, patterns=stalls())
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
    with pytest.raises(ConfigError, match=r"^layers must have at least one layer, not none$"):
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


def simulate_layer(config: LayerConfig, frames: np.ndarray, **options):
    beats = to_beats(config.window.input, frames)
    return run(Layer(config), beats, len(frames) * config.output.beats, **options)


@cases_in_the_long_run(20)
@given(case=cases(max_layers=1, mode="roomy"), seed=SEEDS)
def test_latency_and_cycles(case, seed):
    """The first beat after the figures of its parts; then a frame in `LayerConfig.cycles`."""
    layer = case.config.layers[0]
    frames = frames_for(case.network, 4, seed)
    trace = simulate_layer(layer, frames)
    check_data(case.config, trace.words, golden.run(case.network, frames))
    first_start = start_of_first_fold(layer, trace)
    stored = first_start + layer.pipeline_latency + layer.fifos[0].latency
    if layer.regroups[0].needed:
        stored += beat_offsets(layer)[layer.regroups[0].completing_beats[0]] + layer.regroups[0].latency
    assert trace.times[0] == stored
    ends = trace.times[layer.output.beats - 1 :: layer.output.beats]
    assert np.diff(ends)[1:].tolist() == [layer.cycles] * 2


def start_of_first_fold(layer: LayerConfig, trace: Trace) -> int:
    source = layer.window.input
    if isinstance(layer, WholeMapLayerConfig):
        return trace.taken[source.beats - source.folds]
    row, column = divmod(layer.window.grid.needed(0, 0) - 1, source.width)
    step = row * source.row_steps + column // source.pixels
    return trace.taken[(step + 1) * source.folds - 1] + layer.window.write_delay


def beat_offsets(layer: LayerConfig) -> list[int]:
    """Cycles from the first FIFO beat of a pixel to each of its beats."""
    return [
        fold * layer.window.steps + number for fold, beats in enumerate(layer.fold_beats) for number in range(beats)
    ]


@pytest.mark.long
@settings(max_examples=20)
@given(case=cases(max_layers=1, mode="least"), seed=SEEDS, patterns=stalls())
def test_least_buffers(case, seed, patterns):
    """The rows of one window and the credits of one output fold are enough for every value, if not for every cycle."""
    layer = case.config.layers[0]
    frames = frames_for(case.network, 3, seed)
    trace = simulate_layer(layer, frames, offer=patterns[0], accept=patterns[1])
    check_data(case.config, trace.words, golden.run(case.network, frames))


@pytest.mark.parametrize(
    ("depth", "stored"), [(4, 4), (7, 5), *(pytest.param(*case, marks=pytest.mark.long) for case in ((5, 5), (12, 10)))]
)
def test_sleeping_sink(depth, stored):
    """Whole output folds (4 beats, then 1) fill the FIFO as far as its credits go; nothing is lost."""
    case = plain(fifo_depths=(depth,))
    frames = frames_for(case.network, 2, 1)
    sink = Pattern((False,) * 400 + (True,) * 2000)
    trace = simulate_layer(case.config.layers[0], frames, accept=sink)
    check_data(case.config, trace.words, golden.run(case.network, frames))
    assert trace.times[:stored] == list(range(400, 400 + stored))
    assert trace.times[stored] > 400 + stored
    assert sum(cycle < 400 for cycle in trace.taken) < case.config.input.beats


def plain(**changes) -> Case:
    """3 x 3 over 3 x 5 x 7, 2 channels and 3 taps a cycle; 5 outputs, 4 at a time, in beats of 1."""
    before = FeatureMap(channels=3, height=5, width=7, type=UINT8)
    rng = np.random.default_rng(0)
    layer = Conv(
        name="conv",
        input=before,
        output=FeatureMap(channels=5, height=5, width=7, type=INT32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-128, 128, (5, 3, 3, 3)),
        bias=rng.integers(-100, 100, 5),
        requantisation=None,
    )
    network = Network(name="plain", layers=(layer,))
    plan = LayerPlan(name="conv", kind="conv", tn=2, tm=4, tk=3, chain=16, line_rows=4, fifo_depths=(8,))
    return Case(network, compose(network, [replace(plan, **changes)]))


def test_figures_of_a_layer():
    """By hand: 2 input folds of 3 patches are 6 steps, 2 output folds 12 cycles, 35 windows 420."""
    layer = plain().config.layers[0]
    assert (layer.window.steps, layer.window.window_cycles, layer.cycles) == (6, 12, 420)
    assert layer.fold_beats == (4, 1)
    assert layer.fifo_lanes == 1
    assert layer.beats == 35 * 5
    assert layer.multipliers == 2 * 3 * 4
    # Steps after the first 5; line buffer 4; chain of 6: 2 + 6, accumulator 1; shift register 1; bias 2.
    assert layer.pipeline_latency == 5 + 4 + 9 + 1 + 2


def test_cycles_of_a_strided_layer_are_its_beats():
    before = FeatureMap(channels=2, height=6, width=6, type=UINT8)
    layer = MaxPool(
        name="pool",
        input=before,
        output=replace(before, height=3, width=3),
        window=Window(kernel=(2, 2), stride=(2, 2)),
    )
    network = Network(name="strided", layers=(layer,))
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=4, chain=1, line_rows=3, fifo_depths=(3,))
    case = Case(network, compose(network, [plan]))
    assert case.config.layers[0].window.windows * case.config.layers[0].window.window_cycles == 18
    assert case.config.layers[0].cycles == 72
    trace = simulate_layer(case.config.layers[0], frames_for(network, 3, 1), accept=ALWAYS)
    assert trace.taken == list(range(3 * 72))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fifo_depths": (3,)}, "conv: fifo_depth must be at least 4, the beats of one output fold, not 3"),
        ({"fifo_depths": (0,)}, "conv: fifo_depth must be at least 4, the beats of one output fold, not 0"),
    ],
)
def test_depth_errors(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        plain(**changes)


def test_pixels_error():
    layer = plain(tp=2).config.layers[0]
    with pytest.raises(ConfigError, match=r"^conv: output.pixels must be 2, not 1$"):
        replace(layer, outputs=(replace(layer.output, pixels=1),))


def test_lanes_error():
    layer = plain(tk=9, tn=3).config.layers[0]
    with pytest.raises(ConfigError, match=r"^conv: fifo_lanes must be at least 4, not 2$"):
        replace(layer, fifo_lanes=2)
