"""Line buffers and FIFOs as the planner sizes them: nothing is lost, and nothing could be less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import (
    Case,
    buffered,
    cases,
    check,
    frames_for,
    frames_that_show,
    networks,
    size_buffers,
    unrolls,
    with_less,
)
from counted import cases_in_the_long_run
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.schedule.buffers import ample_rows
from hwgen.schedule.solve import Cycles, Schedule, enough_frames, steady_cycles
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers


def unbounded(config: AcceleratorConfig, frames: int) -> Schedule:
    """With FIFOs without end and rows for whole frames."""
    rows = [layer.window.rows + 3 * layer.window.input.height for layer in config.layers]
    schedule = Schedule(config, frames, depths=[None] * len(config.layers), rows=rows)
    schedule.solve()
    return schedule


def covered(config: AcceleratorConfig) -> int:
    """The frames that sizing looks at."""
    return enough_frames(config, Schedule(config, 3).cycles)


@cases_in_the_long_run(50)
@given(case=cases(mode="sized"))
def test_nothing_lost(case):
    """Latency and intervals are those of buffers without end; the interval is the slowest layer's cycles."""
    config = case.config
    frames = 2 * covered(config)
    schedule = Schedule(config, frames)
    schedule.solve()
    slowest = max(layer.cycles for layer in config.layers)
    latency = int(schedule.frame_ends[0])
    assert latency == unbounded(config, frames).frame_ends[0]
    assert (np.diff(schedule.frame_ends)[1:] == slowest).all()
    said = steady_cycles(config)  # which need not be sure: layers inside may take turns at being longer
    assert (said.latency, said.interval) == (latency, slowest)
    assert Schedule(config, 1).cycles == Cycles(latency=latency, interval=None, steady=True)


@pytest.mark.parametrize(("kernel", "outputs"), [(1, 6), (3, 4)])
def test_loss_in_one_of_many_frames(kernel, outputs):
    """A pixel or two a frame: a loop of credits half a cycle too short shows in every eleventh frame only."""
    before = FeatureMap(channels=3, height=1, width=3, type=UINT8)
    after = FeatureMap(channels=outputs, height=1, width=2, type=INT32)
    layer = Conv(
        name="conv",
        input=before,
        output=after,
        window=Window(kernel=(1, kernel), stride=(2, 2), padding=(0, kernel // 2) * 2),
        weights=np.ones((outputs, 3, 1, kernel), int),
        bias=np.zeros(outputs, int),
        requantisation=None,
    )
    network = Network(name="strided", layers=(layer,))
    for chain in (1, 2, 3, 16):
        plan = LayerPlan(
            name="conv", kind="conv", tn=3, tm=outputs, tk=kernel, chain=chain, line_rows=20, fifo_depths=(outputs,)
        )
        rows, depths = size_buffers(compose(network, (plan,)))
        config = compose(network, with_buffers((plan,), rows, depths))
        schedule = Schedule(config, 100)
        schedule.solve()
        assert (np.diff(schedule.frame_ends) == config.layers[0].cycles).all()


@settings(max_examples=18)
@given(case=cases(mode="sized"))
def test_nothing_could_be_less(case):
    """One credit or one row less, anywhere: some run of three frames or more has a greater latency or interval."""
    config = case.config
    sized = Schedule(config, covered(config))
    sized.solve()
    for number, layer in enumerate(config.layers):
        if layer.fifo_depths[0] > max(2, *layer.fold_beats):
            assert frames_that_show(with_less(sized, number, depth=1), sized), (
                f"{layer.name}: a FIFO of {layer.fifo_depths[0] - 1} would do"
            )
        if layer.window.rows > layer.min_rows:
            less = with_less(sized, number, rows=1)
            shown = frames_that_show(less, sized)
            assert shown or (less.frame_ends[1:] > sized.frame_ends[1:]).all(), f"{layer.name}: a row less would do"


@cases_in_the_long_run(100)
@given(network=networks(), data=st.data())
def test_ample_rows(network, data):
    """More rows than `ample_rows` never help."""
    config = compose(network, data.draw(unrolls(network)))
    frames = covered(config)
    schedule = Schedule(config, frames, depths=[None] * len(config.layers))
    schedule.solve()
    np.testing.assert_array_equal(schedule.frame_ends, unbounded(config, frames).frame_ends)


@pytest.mark.long
@settings(max_examples=5)
@given(network=networks(max_layers=3, max_side=5), data=st.data())
def test_one_credit_less_in_simulation(network, data):
    """The hardware agrees: with a credit less some frame ends later."""
    config = data.draw(buffered(network, data.draw(unrolls(network)), "sized"))
    deep = [n for n, layer in enumerate(config.layers) if layer.fifo_depths[0] > max(2, *layer.fold_beats)]
    assume(deep)
    number = data.draw(st.sampled_from(deep))
    frames = frames_for(network, min(covered(config), 12), 1)
    layers = list(config.layers)
    layers[number] = replace(layers[number], fifo_depths=(layers[number].fifo_depths[0] - 1,))
    less = replace(config, layers=tuple(layers))
    late = Schedule(less, len(frames))
    late.solve()
    full = Schedule(config, len(frames))
    full.solve()
    assume((late.frame_ends > full.frame_ends).any())
    check(Case(network, config), frames, full)
    check(Case(network, less), frames, late)


@pytest.mark.long
@settings(max_examples=6)
@given(case=cases(mode="sized", max_layers=3, max_side=5))
def test_one_frame_alone(case):
    """It finishes, on time, without a beat of another frame."""
    trace = check(case, frames_for(case.network, 1, 1))
    assert trace.times[-1] - trace.taken[0] == steady_cycles(case.config).latency


@pytest.mark.long
def test_fifo_behind_a_pool():
    """A 2 x 2 pool gives beats in every other row only; a FIFO that is too shallow makes its neighbours take turns.

    Three layers of 256 cycles each, a beat a pixel. With one credit behind the pool a frame takes 640.
    """
    first = FeatureMap(channels=1, height=8, width=32, type=UINT8)
    pooled = replace(first, height=4, width=16)
    window, halves = Window(kernel=(3, 3), padding=(1, 1, 1, 1)), Window(kernel=(2, 2), stride=(2, 2))
    weights = np.arange(9).reshape(1, 1, 3, 3) - 4
    scale = Requantisation(significand=np.array([1 << 23]), shift=np.array([26]), zero_point=0, low=0, high=255)
    before = Conv(
        name="before",
        input=first,
        output=first,
        window=window,
        weights=weights,
        bias=np.array([0]),
        requantisation=scale,
    )
    after = Conv(
        name="after",
        input=pooled,
        output=replace(pooled, channels=4, type=INT32),
        window=window,
        weights=np.repeat(weights, 4, axis=0),
        bias=np.zeros(4, int),
        requantisation=None,
    )
    network = Network(
        name="pooled", layers=(before, MaxPool(name="pool", input=first, output=pooled, window=halves), after)
    )
    plans = tuple(
        LayerPlan(
            name=layer.name,
            kind=layer.kind,
            tn=1,
            tm=1,
            tk=layer.window.taps,
            chain=16,
            line_rows=ample_rows(layer.window, layer.input.width, 1),
            fifo_depths=(1,),
        )
        for layer in network.layers
    )
    rows, depths = size_buffers(compose(network, plans))
    config = compose(network, with_buffers(plans, rows, depths))
    assert [layer.cycles for layer in config.layers] == [256, 256, 256]
    assert steady_cycles(config).interval == 256
    depths[1] = (1,)
    config = compose(network, with_buffers(plans, rows, depths))
    assert steady_cycles(config).interval == 640
    check(Case(network, config), frames_for(network, 3, 1))


def test_ring_of_one_row():
    """It is read a cycle faster than the ample ring was, so a credit less is in flight."""
    before = FeatureMap(channels=1, height=1, width=1, type=UINT8)
    layer = Conv(
        name="conv",
        input=before,
        output=replace(before, channels=3, width=2, type=INT32),
        window=Window(kernel=(2, 1), padding=(0, 0, 1, 1)),
        weights=np.ones((3, 1, 2, 1), int),
        bias=np.zeros(3, int),
        requantisation=None,
    )
    network = Network(name="one", layers=(layer,))
    plan = LayerPlan(name="conv", kind="conv", tn=1, tm=1, tk=2, chain=1, line_rows=20, fifo_depths=(1,))
    rows, depths = size_buffers(compose(network, (plan,)))
    assert (rows, depths) == ([1], [(13,)])


@pytest.mark.parametrize(("rows", "stride"), [(40, 1), (40, 2), (2, 1)])
def test_rows_in_flight(rows, stride):
    """A map one pixel wide, whose rows come in every cycle: more of them are in flight than a window and a stride have.

    A window starts 1 cycle after its pixel is taken, and 3 cycles after its only step the pixel's cell is free: with
    fewer than 4 cells pixels, be they the next frame's, would have to wait.
    """
    before = FeatureMap(channels=1, height=rows, width=1, type=UINT8)
    window = Window(kernel=(1, 1), stride=(stride, 1))
    layer = Conv(
        name="conv",
        input=before,
        output=replace(before, height=window.output_size(rows, 1)[0], type=INT32),
        window=window,
        weights=np.ones((1, 1, 1, 1), int),
        bias=np.zeros(1, int),
        requantisation=None,
    )
    network = Network(name="narrow", layers=(layer,))
    ample = ample_rows(window, 1, 1)
    plan = LayerPlan(name="conv", kind="conv", tn=1, tm=1, tk=1, chain=16, line_rows=ample, fifo_depths=(1,))
    sized, _ = size_buffers(compose(network, (plan,)))
    assert sized == [4]
    assert ample >= 4
