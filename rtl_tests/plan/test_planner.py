"""The planner: what it builds takes the cycles and the slices that the unroll search counted on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accelerators import Case, check, frames_for, networks
from counted import cases_in_the_long_run
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import FEW_SLICES, left_out_if

from hwgen import boards, plan
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv
from hwgen.schedule.solve import steady_cycles
from hwgen.templates.compose import compose
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import cycles, interval
from hwgen.templates.work import LayerWork, Unroll

BOARD = boards.load("zedboard")


def unrolls_of(made: plan.Plan) -> list[Unroll]:
    return [Unroll(layer.tn, layer.tm, layer.tk, layer.tp) for layer in made.layers]


@cases_in_the_long_run(26)
@given(network=networks(), budget=st.integers(1, 220))
def test_figures_agree(network, budget):
    """Layers as fast as the search says; the accelerator as fast as the slowest, in no more slices than allowed."""
    with left_out_if(FEW_SLICES):
        made = plan.make(network, BOARD, dsp=budget, multipliers="dsp")
    assume(made.obstacle is None)  # too few slices for one group
    works, unrolls, config = (
        [LayerWork.of(layer, **stage_of(layer).work) for layer in network.layers],
        unrolls_of(made),
        made.configure(),
    )
    assert config.multipliers <= budget
    for work, unroll, layer in zip(works, unrolls, config.layers, strict=True):
        assert layer.cycles == cycles(work, unroll, layer.window.input.pixels)
        assert layer.multipliers >= work.multipliers(unroll)
    assert steady_cycles(config).interval == interval(works, unrolls)


def depthwise_network(height: int, width: int) -> Network:
    """A depthwise 3 x 3 convolution over 4 channels."""
    rng = np.random.default_rng(0)
    before = FeatureMap(channels=4, height=height, width=width, type=UINT8, zero_point=3)
    depthwise = Conv(
        name="depthwise",
        input=before,
        output=replace(before, type=INT32, zero_point=0),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-128, 128, (4, 1, 3, 3)),
        bias=rng.integers(-100, 100, 4),
        requantisation=None,
        groups=4,
    )
    return Network(name="depthwise_network", layers=(depthwise,))


def test_depthwise():
    """By hand: 4 groups of one channel in, one out; 36 slices hold 9 taps of 4 pixels, 4 groups in turn."""
    network = depthwise_network(8, 8)
    made = plan.make(network, BOARD, dsp=36, multipliers="dsp")
    assert unrolls_of(made) == [Unroll(1, 1, 9, 4)]
    config = made.configure()
    assert config.multipliers == 36
    assert config.layers[0].cycles == 8 * 2 * 4
    check(Case(network, config), frames_for(network, 3, 1))


@pytest.mark.parametrize(
    ("template", "dsp", "unroll"),
    [
        ("stream", 36, Unroll(4, 4, 9, 1)),
        ("stream", 18, Unroll(2, 2, 9, 1)),
        ("stream", 9, Unroll(1, 1, 9, 1)),
        ("pyramid", 36, Unroll(4, 4, 9, 1)),
    ],
)
def test_depthwise_lanes(template, dsp, unroll):
    """Where a row is a pixel only channels side by side make use of the slices, each with taps of its own."""
    network = depthwise_network(6, 1)
    board = replace(BOARD, memory_gb_s=100.0)
    made = plan.make(network, board, dsp=dsp, multipliers="dsp", template=template)
    assert unrolls_of(made) == [unroll]
    config = made.configure()
    assert config.multipliers == dsp
    check(Case(network, config), frames_for(network, 3, 1))


def test_pixels_where_channels_do_not_help():
    """One channel of signed values, one output: only pixels make more of the slices."""
    before = FeatureMap(channels=1, height=4, width=12, type=INT8)
    layer = Conv(
        name="blur",
        input=before,
        output=replace(before, type=INT32),
        window=Window(kernel=(1, 3), padding=(0, 1, 0, 1)),
        weights=np.array([[[[1, 2, 1]]]]),
        bias=np.zeros(1, np.int64),
        requantisation=None,
    )
    network = Network(name="blur", layers=(layer,))
    board = replace(BOARD, memory_gb_s=100.0)  # otherwise 240 bytes a frame are too many for the last
    for budget, unroll in ((3, Unroll(1, 1, 3, 1)), (9, Unroll(1, 1, 3, 3)), (220, Unroll(1, 1, 3, 12))):
        made = plan.make(network, board, dsp=budget, multipliers="dsp")
        assert unrolls_of(made) == [unroll]
        check(Case(network, made.configure()), frames_for(network, 3, 2))


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_weights_of_depthwise_lanes_in_block_ram(lanes):
    """What the search counts is what the memories take: 240 channels in turn, three taps at once."""
    rng = np.random.default_rng(0)
    before = FeatureMap(channels=240, height=4, width=4, type=UINT8)
    op = Conv(
        name="deep",
        input=before,
        output=replace(before, type=INT32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-128, 128, (240, 1, 3, 3)),
        bias=np.zeros(240, np.int64),
        requantisation=None,
        groups=240,
    )
    stage, unroll = stage_of(op), Unroll(lanes, lanes, 3)
    plan = layer_plan(stage, unroll, 1)
    (layer,) = compose(Network(name="deep", layers=(op,)), (plan,)).layers
    work = LayerWork.of(op, **stage.work)
    assert layer.compute.resources.bram36 == float(stage.weight_bram36(work, unroll)) > 0
    assert layer.multipliers == work.multipliers(unroll) == 3 * lanes
