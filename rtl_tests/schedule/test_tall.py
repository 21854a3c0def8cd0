"""Tall maps that are scheduled on fewer rows: what is said of them is what the whole schedule says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import given
from hypothesis import strategies as st

from hwgen import boards, plan
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Conv, MaxPool
from hwgen.network.requantise import Requantisation
from hwgen.schedule import solve as schedule
from hwgen.schedule import tall
from hwgen.schedule.buffers import size_buffers
from hwgen.schedule.solve import Schedule, enough_frames, steady_cycles
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan


def conv(name: str, before: FeatureMap, outputs: int, window: Window) -> Conv:
    height, width = window.output_size(before.height, before.width)
    factors = np.full(outputs, 12_345_677)
    return Conv(
        name=name,
        input=before,
        output=replace(before, channels=outputs, height=height, width=width),
        window=window,
        weights=np.ones((outputs, before.channels, *window.kernel), dtype=int),
        bias=np.zeros(outputs, dtype=int),
        requantisation=Requantisation(
            significand=factors, shift=np.full(outputs, 33), zero_point=0, low=-128, high=127
        ),
        groups=1,
    )


@st.composite
def tall_networks(draw):
    """One to three layers on a map of few columns and hundreds of rows, each with any unrolling."""
    channels, width = draw(st.integers(1, 4)), draw(st.integers(3, 9))
    last = FeatureMap(channels=channels, height=draw(st.integers(700, 900)), width=width, type=INT8)
    layers, plans = [], []
    for number in range(draw(st.integers(1, 3))):
        name = f"layer{number}"
        if number and draw(st.booleans()) and last.width >= 2:
            window = Window(kernel=(2, 2), stride=(draw(st.integers(1, 2)),) * 2)
            height, width = window.output_size(last.height, last.width)
            layer = MaxPool(name=name, input=last, output=replace(last, height=height, width=width), window=window)
        else:
            kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2 if number else 1))
            padding = draw(st.integers(0, kernel - 1))
            window = Window(
                kernel=(kernel, min(kernel, last.width)),
                stride=(stride, 1),
                padding=(padding,) * 4,
                dilation=(draw(st.sampled_from([1, 1, 2, 3])), 1),
            )
            layer = conv(name, last, draw(st.integers(1, 6)), window)
        pool = isinstance(layer, MaxPool)
        lanes = draw(st.integers(1, last.channels))
        plans.append(
            LayerPlan(
                name=name,
                kind="maxpool" if pool else "conv",
                tn=lanes,
                tm=lanes if pool else draw(st.integers(1, layer.output.channels)),
                tk=draw(st.integers(1, layer.window.taps)),
                chain=8,
                line_rows=layer.window.extent[0] * 2 + 4,
                fifo_depths=(64,),
            )
        )
        layers.append(layer)
        last = layer.output
    return compose(Network(name="tall", layers=tuple(layers)), plans)


@cases_in_the_long_run(10)
@given(config=tall_networks())
def test_as_the_whole_schedule_says(config):
    events = sum(schedule.event_counts(config, schedule.MIN_SETTLED_FRAMES))
    short = tall.shortened(config, 1000 * events)
    assert short is not None
    heights, missing = short
    assert missing > 0
    rows, depths = size_buffers(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "LONG_RUN_EVENTS", 0)
        patch.setattr(schedule, "shortened", lambda asked, events: short if asked is config else None)
        assert size_buffers(config) == (rows, depths)
        for frames in (1, 2, None):
            cycles = steady_cycles(config, frames)
            count = frames or enough_frames(config, cycles)
            patched = Schedule(config, count).cycles
            assert cycles.latency == patched.latency
            if frames is None:
                assert cycles.interval == patched.interval
                assert all(lower.input.height < config.input.height // 2 for lower in heights)


@pytest.mark.long
def test_a_layer_of_many_events():
    """3,000 x 3,000 pixels with ten slices: one for the requantiser, nine for the products of a tap each, so that each
    of 36 million output values takes a cycle. In five frames they are 405 million events."""
    before = FeatureMap(channels=1, height=3000, width=3000, type=INT8)
    layer = conv("conv", before, 4, Window(kernel=(3, 3), padding=(1, 1, 1, 1)))
    made = plan.make(Network(name="large", layers=(layer,)), boards.load("vc709"), dsp=10, multipliers="dsp")
    assert made.interval == 36_000_000
