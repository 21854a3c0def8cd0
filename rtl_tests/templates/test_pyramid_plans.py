"""Plans of groups that are computed pyramid by pyramid: what they say is what the hardware does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from accelerators import frames_for, networks
from counted import cases_in_the_long_run
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import FEW_SLICES, LARGE_TILE, NOTHING_TO_DO, left_out_if

from hwgen import boards, network, plan, simulate
from hwgen.errors import PlanError
from hwgen.network import golden, shapes
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap, IntegerType, Window
from hwgen.network.ops import Conv
from hwgen.options import OVERLAPS
from hwgen.templates.pyramid import Pyramid, pyramid_cycles
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.refusal import OverBudgetError
from hwgen.templates.tips import tips

ZEDBOARD = boards.load("zedboard")


@cases_in_the_long_run(8)
@given(network=networks(most_layers=3), data=st.data())
def test_as_planned(network, data):
    """Values, cycles, bytes of off-chip maps; and again from the plan's JSON."""
    tile = data.draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)))
    overlap = data.draw(st.sampled_from([None, *OVERLAPS]))
    steering = {"template": "pyramid", "tile": tile, "overlap": overlap, "dsp": data.draw(st.integers(4, 100))}
    with left_out_if(FEW_SLICES, LARGE_TILE, NOTHING_TO_DO):
        made = plan.make(network, ZEDBOARD, **steering)
    assume(len(made.groups) == 1)  # or too few slices for all layers at once
    (group,) = made.groups
    assert group.template.name == "pyramid"
    assert tile is None or group.template.tile == tile
    assert overlap is None or group.template.overlap == overlap
    again = plan.read(plan.write(made), network, ZEDBOARD)
    assert again.groups[0].template == group.template
    assert again.layers == made.layers
    frames = frames_for(network, 3, 0)
    run = simulate.run(again.configure(), frames, simulate.Options(simulator="amaranth"))
    np.testing.assert_array_equal(run.outputs, golden.run(network, frames))
    predicted = made.placement.predict(3)
    assert (run.latency, run.interval) == (predicted.latency, predicted.interval)
    assert run.latency == made.latency
    assert run.read_bytes + run.written_bytes == 3 * made.traffic_bytes["feature_maps"]


@pytest.mark.long
def test_groups_in_turn():
    """Reuse buffers can't take a beat right after a reset; a group that has its turn later has that behind it."""
    net = network.load("decoilfnet-example@8x8")
    assert len(net.layers) == 3
    groups = f"{net.layers[0].name},{net.layers[1].name}-{net.layers[2].name}"
    made = plan.make(net, ZEDBOARD, dsp=60, template="pyramid", tile=(2, 2), overlap="reuse", groups=groups)
    configs = made.configs()
    assert len(configs) == 2
    assert all(config.start_up for config in configs)
    frames = frames_for(net, 4, 0)
    run = simulate.run_groups(configs, frames, simulate.Options(simulator="amaranth"))
    np.testing.assert_array_equal(run.outputs, golden.run(net, frames))
    predicted = made.placement.predict(4)
    assert (run.latency, run.interval) == (predicted.latency, predicted.interval)


@pytest.mark.long
def test_pyramids_where_rows_do_not_fit():
    """A wide map's rows need block RAM that a small board hasn't got; tiles that are computed again don't."""
    net = network.load("vgg16:2@8x224")
    small = replace(ZEDBOARD, bram36=10)
    rows = plan.make(net, ZEDBOARD, dsp=60, multipliers="dsp")
    assert rows.groups[0].template.name == "stream"
    assert rows.resources.bram36 > small.bram36
    with pytest.raises(OverBudgetError, match="BRAM36"):
        plan.make(net, small, dsp=60, multipliers="dsp", template="stream", groups="conv1_1-conv1_2")
    made = plan.make(net, small, dsp=60, multipliers="dsp", groups="conv1_1-conv1_2")
    assert made.groups[0].template.name == "pyramid"
    assert made.resources.bram36 <= small.bram36


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_tips(overlap):
    """Each tip has less memory than the ones before; the last the least of all that a frame has few enough of."""
    layers = list(shapes.load("alexnet:4").layers)
    found = tips(layers, overlap, 3600)
    assert len(set(found)) == len(found)
    sizes = [memory(layers, tip, overlap) for tip in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == min(memory(layers, tip, overlap) for tip in product((1, 2, 3, 5, 13), repeat=2))


def memory(layers, tip, overlap) -> int:
    """Values kept and in two tiles of each layer."""
    return sum(
        layer.channels * (rows.kept * layer.width + columns.kept * rows.new + 2 * rows.tile * columns.tile)
        for layer, (rows, columns) in zip(layers, axes(layers, tip, overlap), strict=True)
    )


@pytest.mark.parametrize(
    ("steering", "why"),
    [
        ({"template": "stream", "tile": (1, 1)}, "tile and overlap go with pyramids"),
        ({"template": "rows"}, "template must be stream or pyramid or engine, not 'rows'"),
        ({"overlap": "none"}, "overlap must be one of reuse, "),
        ({"tile": (0, 1)}, "tile must be two positive integers"),
        ({"tile": (100, 1)}, "tile must be between 1x1 and its output's"),
    ],
)
def test_steering_that_can_not_work(steering, why):
    with pytest.raises(PlanError, match=why):
        plan.make(network.load("vgg16:3@16x16"), ZEDBOARD, **steering)


@pytest.fixture(scope="module")
def planned() -> tuple[Network, str]:
    net = network.load("vgg16:3@16x16")
    return net, plan.write(plan.make(net, ZEDBOARD, template="pyramid", tile=(2, 2)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tile": [0, 1]}, "tile\\[0\\] must be 1 to 65,535 \\(rows, columns\\), not 0"),
        ({"tile": None}, "tile must be an array, not null"),
        ({"overlap": "some"}, "overlap must be"),
        ({"template": "tower"}, 'template must be "stream", "pyramid" or "engine", not "tower"'),
        ({"input_pixels": 3}, "pixels"),
        ({"input_pixels": 0}, "input_pixels must be 1 to 16 \\(the width of its input\\), not 0"),
        ({"input_pixels": 10**9}, "input_pixels must be 1 to 16"),
    ],
)
def test_plans_that_can_not_work(planned, change, why):
    net, text = planned
    document = json.loads(text)
    document["groups"][0].update(change)
    with pytest.raises(PlanError, match=why):
        plan.read(json.dumps(document), net, ZEDBOARD)


@pytest.mark.long
@pytest.mark.parametrize(("interval", "tile"), [(300_000, None), (200_000, (3, 3))])
def test_fewest_slices(interval, tile):
    """What the least interval shows to be possible is not refused."""
    net = network.load("alexnet:4@67x67")
    made = plan.make(net, ZEDBOARD, overlap="reload", tile=tile, objective="dsp", interval=interval)
    assert made.interval <= interval
    assert made.resources.dsp < 220


def test_beats_no_wider_than_the_input():
    """Three columns: four pixels a beat would take fewest cycles, and no stream has them."""
    source = FeatureMap(channels=1, height=1, width=3, type=IntegerType(bits=8, signed=False))
    layer = Conv(
        name="conv",
        input=source,
        output=replace(source, width=1, type=IntegerType(bits=32, signed=True)),
        window=Window(kernel=(1, 3)),
        weights=np.array([[[[109, 48, -23]]]]),
        bias=np.array([5]),
        requantisation=None,
    )
    net = Network(name="narrow", layers=(layer,))
    made = plan.make(net, ZEDBOARD, template="pyramid", overlap="reload")
    assert made.groups[0].template.pixels == 2
    assert plan.read(plan.write(made), net, ZEDBOARD).groups[0].template == made.groups[0].template


def test_small_maps_are_balanced_over_the_frame():
    """Most of their pyramids lie at the border: balanced inside the map, these take 51,975 cycles."""
    net = network.load("alexnet:4@67x67")
    assert plan.make(net, boards.load("vc709"), template="pyramid", tile=(1, 1), dsp=500).interval < 48_000


@pytest.mark.long
@pytest.mark.parametrize(("macs", "most", "pixels", "cycles"), [(1, 540, 2, 98_000), (2, 270, 4, 49_000)])
def test_alexnet(macs, most, pixels, cycles):
    """Both sets, 3,600 slices, tips of 1 x 1: the arithmetic alone takes 497 (249) cycles a pyramid inside the map."""
    net = network.load("alexnet:4@227x227")
    made = plan.make(net, boards.load("vc709"), template="pyramid", tile=(1, 1), macs_per_dsp=macs)
    (group,) = made.groups
    assert group.template == Pyramid(tile=(1, 1), overlap="reuse", pixels=pixels)
    assert pyramid_cycles(group.config) <= most
    assert sum(layer.reuse.words for layer in group.config.layers) == 29_327
    assert made.interval < cycles
    assert made.traffic_bytes == {"feature_maps": 3 * 227 * 227 + 256 * 13 * 13, "weights": 0}
