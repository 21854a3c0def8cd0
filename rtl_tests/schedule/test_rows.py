"""Schedules that leave rows of tall maps out: their figures equal the whole schedule's, in every graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run
from graphs import Maker, random_join, unrolls
from hypothesis import given
from hypothesis import strategies as st

from hwgen import boards, plan
from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Add, Concat, Conv, Max, MaxPool, Upsample
from hwgen.schedule import buffers, solve
from hwgen.schedule.rows import UnsettledError
from hwgen.schedule.solve import Schedule, steady_cycles
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll

#: Row strides and padding of layers that keep the ratio of rows to columns of other maps.
STRIDES = (1, 1, 2, 2, 3)


class Tall(Maker):
    """A network in the making, of a tall and narrow map: branches with strides, pools, upsamplers, joined again."""

    def __init__(self, draw):
        super().__init__(draw, 1)
        height, width = draw(st.integers(60, 140)), draw(st.integers(1, 3))
        (name,) = self.maps
        self.maps = {name: self.a_map(draw(st.integers(1, 3)), height, width)}
        self.last = name

    def grow(self) -> None:
        step = self.draw(st.sampled_from(["conv", "valid", "pool", "double", "branch", "hourglass", "crop", "lookup"]))
        getattr(self, f"add_{step}")()

    def add_conv(self) -> None:
        self.last = self.same(self.last)

    def add_lookup(self) -> None:
        self.last = self.lookup(self.last)

    def add_valid(self) -> None:
        window = Window(kernel=(self.draw(st.integers(1, 4)), 1), stride=(self.draw(st.sampled_from(STRIDES)), 1))
        self.last = self.conv(self.last, window)

    def add_pool(self) -> None:
        stride = self.draw(st.integers(1, 3))
        padding = self.draw(st.integers(0, 1)), 0, self.draw(st.integers(0, 1)), 0
        window = Window(kernel=(self.draw(st.integers(2, 3)), 1), stride=(stride, 1), padding=padding)
        self.last = self.pool(self.last, window)

    def add_double(self) -> None:
        self.last = self.joined(Add, self.last, self.last)

    def add_crop(self) -> None:
        if self.maps[self.last].height > 20:
            self.last = self.crop(self.last)

    def add_branch(self) -> None:
        kind = self.draw(st.sampled_from([Add, Max, Concat]))
        other = self.same(self.last, self.maps[self.last].channels)
        if self.draw(st.booleans()):
            other = self.same(other, self.maps[self.last].channels)
        self.last = self.joined(kind, *self.draw(st.permutations([self.last, other])))

    def add_hourglass(self) -> None:
        """Add a pool, a convolution and an upsampler beside a skip connection, as a U-Net does."""
        before = self.maps[self.last]
        if before.height % 2:
            self.add_conv()
            return
        low = self.same(self.pool(self.last, Window(kernel=(2, 1), stride=(2, 1))))
        small = self.maps[low]
        wide = replace(small, height=2 * small.height)
        up = Upsample(name=self.name("up"), input=small, output=wide, window=Window(kernel=(1, 1)), factors=(2, 1))
        self.add_layer(up, low)
        self.last = self.same(self.concatenated(*self.draw(st.permutations([self.last, up.name]))))


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
def tall_chains(draw):
    """One to three layers on a map of few columns and hundreds of rows, each with any unrolling."""
    channels, width = draw(st.integers(1, 4)), draw(st.integers(3, 9))
    last = FeatureMap(channels=channels, height=draw(st.integers(200, 400)), width=width, type=INT8)
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
    return Network(name="tall", layers=tuple(layers)), tuple(plans)


@st.composite
def tall_graphs(draw):
    """Draw a graph on a tall map and the plans of its layers, with ample buffers."""
    maker = Tall(draw)
    for _ in range(draw(st.integers(1, 3))):
        maker.grow()
    if maker.last not in {layer.name for layer in maker.layers}:
        maker.add_conv()
    if draw(st.integers(0, 3)) == 0:
        maker.last = maker.same(maker.whole(maker.last))
    network = maker.finish()
    return network, draw(unrolls(network))


def figures(schedule: Schedule) -> tuple:
    schedule.solve()
    used = [schedule.credits_used(fifo) for fifo in range(len(schedule.config.links))]
    return schedule.cycles, schedule.frame_ends.tolist(), schedule.paces().tolist(), used


@cases_in_the_long_run(60)
@given(case=tall_graphs(), data=st.data())
def test_figures_equal_the_whole_schedules(case, data):
    config = compose(*case)
    frames, kept = data.draw(st.integers(1, 4)), data.draw(st.integers(10, 30))
    endless = [None] * len(config.links)
    whole = Schedule(config, frames, depths=endless)
    *_, used = figures(whole)
    floors = [max(config.layers[link.source].claims[link.output]) for link in config.links]
    fewer = [max(depth - data.draw(st.integers(0, 3)), floor) for depth, floor in zip(used, floors, strict=True)]
    for depths in (endless, fewer):
        whole = Schedule(config, frames, depths=depths)
        try:
            expected = figures(whole)
        except PlanError:  # too shallow: a deadlock
            with pytest.raises(UnsettledError):
                figures(Schedule(config, frames, depths=depths, kept=kept))
            continue
        try:
            short = Schedule(config, frames, depths=depths, kept=kept)
            assert figures(short) == expected
            assert short.events < whole.events
        except UnsettledError:
            continue


def sized(config: AcceleratorConfig) -> tuple:
    return buffers.sizes_of(config), steady_cycles(config)


@cases_in_the_long_run(60)
@given(case=st.one_of(tall_graphs(), tall_chains()))
def test_sizes_equal_the_whole_schedules(case):
    network, plans = case
    config = compose(network, plans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "LONG_RUN_EVENTS", 0)
        patch.setattr(solve, "KEPT_STRIPS", (12, 20, 30))
        short = sized(config)
        patch.setattr(solve, "LONG_RUN_EVENTS", 1 << 60)
        assert short == sized(config)
    sizes = short[0]
    if sizes.steady is not None:
        assert sizes.steady == steady_cycles(compose(network, with_buffers(plans, sizes.rows, sizes.depths)))
    assert sizes.latency == steady_cycles(compose(network, with_buffers(plans, sizes.rows, sizes.depths)), 1).latency


UNROLLS = tuple(Unroll(lanes, 2, 1) for lanes in (1, 2, 1, 2, 2, 1))
"""Unroll factors of the layers of `unet`."""


def unet(height: int, unrolls: Sequence[Unroll] = UNROLLS) -> tuple[Network, tuple[LayerPlan, ...]]:
    """Return a U-Net of three convolutions, with a skip connection, on 8 columns, and its layers' plans."""
    same = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    first = conv("first", FeatureMap(channels=2, height=height, width=8, type=INT8, scale=0.5), 4, same)
    halved = replace(first.output, height=height // 2, width=4)
    low = MaxPool(name="low", input=first.output, output=halved, window=Window(kernel=(2, 2), stride=(2, 2)))
    second = conv("second", halved, 4, same)
    pixel = Window(kernel=(1, 1))
    up = Upsample(name="up", input=second.output, output=first.output, window=pixel, factors=(2, 2))
    maps, joined = [first.output, up.output], replace(first.output, channels=8)
    both = random_join(Concat, "both", maps, joined, np.random.default_rng(0))
    layers = first, low, second, up, both, conv("last", joined, 2, same)
    edges = (INPUT,), ("first",), ("low",), ("second",), ("first", "up"), ("both",)
    network = Network(name="unet", layers=layers, edges=edges)
    plans = []
    for layer, unroll in zip(layers, unrolls, strict=True):
        readers = len(network.readers[layer.name]) + len(network.output_indices(layer.name))
        plans.append(layer_plan(stage_of(layer), unroll, 1, readers=readers))
    return network, tuple(plans)


def test_a_graph_is_sized_by_a_few_of_its_rows(monkeypatch):
    network, plans = unet(256)
    config = compose(network, plans)
    monkeypatch.setattr(solve, "LONG_RUN_EVENTS", 1 << 60)
    sizes = buffers.sizes_of(config)
    monkeypatch.setattr(solve, "LONG_RUN_EVENTS", 0)
    monkeypatch.setattr(solve, "check_events", forbidden)  # all rows are never scheduled
    assert buffers.sizes_of(config) == sizes
    final = compose(network, with_buffers(plans, sizes.rows, sizes.depths))
    assert steady_cycles(final) == sizes.steady
    assert Schedule(final, 3, kept=20).events < 3 * sum(solve.event_counts(final, 1)) // 4


def test_a_trial_that_proves_nothing(monkeypatch):
    """The first depth that is tried for the FIFO to ``low`` proves nothing, and a deeper one is proved to fail."""
    network, plans = unet(
        256,
        [
            Unroll(1, 4, 9),
            Unroll(2, 2, 1),
            Unroll(4, 4, 3),
            Unroll(4, 4, 1),
            Unroll(2, 2, 1),
            Unroll(4, 1, 9),
        ],
    )
    config = compose(network, plans)
    monkeypatch.setattr(solve, "LONG_RUN_EVENTS", 1 << 60)
    sizes = buffers.sizes_of(config)
    monkeypatch.setattr(solve, "LONG_RUN_EVENTS", 0)
    monkeypatch.setattr(solve, "KEPT_STRIPS", (20,))
    monkeypatch.setattr(solve, "check_events", forbidden)  # all rows are never scheduled
    are_met, unsettled = buffers._Deadlines.are_met, []

    def tried(deadlines: buffers._Deadlines, fifo: int, depth: int) -> bool:
        try:
            return are_met(deadlines, fifo, depth)
        except UnsettledError:
            unsettled.append((fifo, depth))
            raise

    monkeypatch.setattr(buffers._Deadlines, "are_met", tried)
    assert buffers.sizes_of(config) == sizes
    ((fifo, depth),) = unsettled
    assert config.layers[config.links[fifo].sink].name == "low"
    assert depth < sizes.depths[0][0]


def forbidden(*_) -> None:
    raise AssertionError("all rows are scheduled")


def test_rows_that_do_not_repeat_prove_nothing():
    """A FIFO of 100 rows: no row of a third of the map tells what the rows do that wait for it."""
    network, plans = unet(256)
    config = compose(network, plans)
    depths = [100 * 32] * len(config.links)
    with pytest.raises(UnsettledError):
        Schedule(config, 3, depths=depths, kept=20).solve()
    assert not Schedule(config, 3, depths=depths).is_cut


@pytest.mark.long
def test_a_layer_of_many_events():
    """3,000 x 3,000 pixels with ten slices: one for the requantiser, nine for the products of a tap each, so that each
    of 36 million output values takes a cycle. In five frames they are 405 million events."""
    before = FeatureMap(channels=1, height=3000, width=3000, type=INT8)
    layer = conv("conv", before, 4, Window(kernel=(3, 3), padding=(1, 1, 1, 1)))
    made = plan.make(Network(name="large", layers=(layer,)), boards.load("vc709"), dsp=10, multipliers="dsp")
    assert made.interval == 36_000_000
