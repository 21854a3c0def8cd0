"""One layer by itself: latency and cycles from its own figures, credits, errors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import Case, cases, check_data, frames_for, to_beats
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import ALWAYS, Pattern, Trace, run, stalls

from hwgen.errors import ConfigError
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan

SEEDS = st.integers(0, 2**32)


def simulate(config: LayerConfig, frames: np.ndarray, **options):
    beats = to_beats(config.window.input, frames)
    return run(Layer(config), beats, len(frames) * config.output.beats, **options)


@cases_in_the_long_run(20)
@given(case=cases(most_layers=1, mode="roomy"), seed=SEEDS)
def test_latency_and_cycles(case, seed):
    """The first beat after the figures of its parts; then a frame in `LayerConfig.cycles`."""
    layer = case.config.layers[0]
    frames = frames_for(case.network, 4, seed)
    trace = simulate(layer, frames)
    check_data(case.config, trace.words, golden.run(case.network, frames))
    first_start = start_of_first_fold(layer, trace)
    stored = first_start + layer.pipeline_latency + layer.fifos[0].latency
    if layer.regroups[0].needed:
        stored += beat_offsets(layer)[layer.regroups[0].after[0]] + layer.regroups[0].latency
    assert trace.times[0] == stored
    ends = trace.times[layer.output.beats - 1 :: layer.output.beats]
    assert np.diff(ends)[1:].tolist() == [layer.cycles] * 2


def start_of_first_fold(layer: LayerConfig, trace: Trace) -> int:
    source = layer.window.input
    if isinstance(layer, WholeMapLayerConfig):
        return trace.taken[source.beats - source.folds]
    row, column = divmod(layer.window.needed(0, 0) - 1, source.width)
    step = row * source.row_steps + column // source.pixels
    return trace.taken[(step + 1) * source.folds - 1] + layer.window.write_delay


def beat_offsets(layer: LayerConfig) -> list[int]:
    """Cycles from the first FIFO beat of a pixel to each of its beats."""
    return [
        fold * layer.window.steps + number for fold, beats in enumerate(layer.fold_beats) for number in range(beats)
    ]


@pytest.mark.long
@settings(max_examples=20)
@given(case=cases(most_layers=1, mode="least"), seed=SEEDS, patterns=stalls())
def test_least_buffers(case, seed, patterns):
    """The rows of one window and the credits of one output fold are enough for every value, if not for every cycle."""
    layer = case.config.layers[0]
    frames = frames_for(case.network, 3, seed)
    trace = simulate(layer, frames, offer=patterns[0], accept=patterns[1])
    check_data(case.config, trace.words, golden.run(case.network, frames))


@pytest.mark.parametrize(
    ("depth", "stored"), [(4, 4), (7, 5), *(pytest.param(*case, marks=pytest.mark.long) for case in ((5, 5), (12, 10)))]
)
def test_sleeping_sink(depth, stored):
    """Whole output folds (4 beats, then 1) fill the FIFO as far as its credits go; nothing is lost."""
    case = plain(fifo_depths=(depth,))
    frames = frames_for(case.network, 2, 1)
    sink = Pattern((False,) * 400 + (True,) * 2000)
    trace = simulate(case.config.layers[0], frames, accept=sink)
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


def test_figures():
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
    trace = simulate(case.config.layers[0], frames_for(network, 3, 1), accept=ALWAYS)
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
