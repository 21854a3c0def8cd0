"""The choice: objectives under a board's budgets, groups in turn, two multiply-adds a slice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from accelerators import frames_for, from_beats, networks, simulate
from counted import cases_in_the_long_run
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from refusals import FEW_SLICES, left_out_if, refusals_in

from hwgen import boards, network, plan
from hwgen.errors import HwgenError, InputError, PlanError
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Conv
from hwgen.plan import alternatives, grouping
from hwgen.plan.alternatives import what_can_be_built
from hwgen.plan.choose import best_group, objective_bound, plan_of
from hwgen.report.plan import table
from hwgen.templates.base import Goal, Group, Refusal, Task, layer_weight_bits, weight_shortage
from hwgen.templates.unroll import interval

ZEDBOARD, VC709, KV260 = boards.load("zedboard"), boards.load("vc709"), boards.load("kv260")

in_slices = partial(plan.make, multipliers="dsp")
"""Planner of products in DSP slices only, whose number limits every choice here; `test_multipliers` is about LUTs."""


@pytest.fixture(scope="module")
def lenet() -> Network:
    return network.load("lenet5")


# Published bounds: requantisers, as these networks have them, are in the slices.


@pytest.mark.parametrize(
    ("name", "board", "slices", "macs", "cycles"),
    [
        ("vgg16:7", VC709, 3600, 1, 1_605_632),
        ("vgg16:7", VC709, 2907, 1, 2_007_040),
        ("vgg16:7", VC709, 3600, 2, 802_816),
        ("vgg16:7", VC709, 2907, 2, 1_003_520),
        ("vgg16:6", ZEDBOARD, 220, 1, 23_482_368),
        ("vgg16:6", ZEDBOARD, 220, 2, 11_741_184),
        ("lenet5", ZEDBOARD, 220, 1, 2_352),
        ("lenet5", ZEDBOARD, 220, 2, 1_200),
    ],
)
def test_published_intervals(name, board, slices, macs, cycles):
    task = Task(network.load(name), board, Goal(objective="interval", dsp=slices, macs_per_dsp=macs))
    assert objective_bound(task) <= cycles


@pytest.mark.long
def test_zynq_plan_fits_block_ram():
    """VGG's conv1_1 to pool2 on the XC7Z020, 112 x 112: its fastest way by slices alone needs too much block RAM."""
    loaded = network.load("vgg16:6@112x112")
    made = in_slices(loaded, ZEDBOARD)
    assert len(made.groups) == 1
    assert made.interval <= 23_482_368 // 4
    assert made.resources.bram36 <= 140


# Objectives.


def test_fewest_slices_by_hand(lenet):
    """One multiplier a convolution, and its requantiser: 1 slice where shifts are enough, at most 2 otherwise."""
    made = in_slices(lenet, ZEDBOARD, objective="dsp")
    assert all((layer.tn, layer.tm, layer.tp) == (1, 1, 1) for layer in made.layers if layer.kind == "conv")
    assert made.resources.dsp <= 5 * 3
    assert made.interval == 240_000  # conv2: 10 x 10 x 16 x 6 x 25


@cases_in_the_long_run(18)
@given(network=networks(max_layers=3), share=st.floats(1, 20))
def test_fewest_slices_for_an_interval(network, share):
    """No more cycles than allowed, no more slices than the fastest plan of as many cycles takes."""
    fastest = interval_plan(network)
    limit = int(fastest.interval * share)
    made = in_slices(network, VC709, objective="dsp", interval=limit)
    assert made.interval <= limit
    assert made.resources.dsp <= fastest.resources.dsp
    task = Task(network, VC709, Goal(objective="interval", dsp=max(made.resources.dsp - 1, 1)))
    assert made.resources.dsp <= 1 or objective_bound(task) > limit


def interval_plan(network: Network) -> plan.Plan:
    made = in_slices(network, VC709)
    assume(made.obstacle is None)
    return made


def test_interval_out_of_reach(lenet):
    with pytest.raises(PlanError, match=r"at most 100 cycles within 220 DSP slices: the nearest has 2,016$"):
        in_slices(lenet, ZEDBOARD, objective="dsp", interval=100)


@settings(max_examples=10)
@given(network=networks(max_layers=3), budget=st.integers(4, 200))
def test_latency(network, budget):
    """The latency objective never gives a longer one, and keeps the budget."""
    with left_out_if(FEW_SLICES):
        fastest = in_slices(network, ZEDBOARD, dsp=budget)
    assume(fastest.obstacle is None)
    soonest = in_slices(network, ZEDBOARD, dsp=budget, objective="latency")
    assert soonest.latency <= fastest.latency
    assert soonest.resources.dsp <= budget


def test_latency_gains(lenet):
    """Where many layers wait for each other, slices that the interval can't use shorten the latency a lot."""
    assert in_slices(lenet, ZEDBOARD, objective="latency").latency < 0.85 * in_slices(lenet, ZEDBOARD).latency


def test_bandwidth_bounds_the_interval(lenet):
    """100 MHz and 1,034 bytes a frame: at 1 MB/s a frame takes 103,400 cycles, for which a few slices are enough."""
    slow = replace(ZEDBOARD, memory_gb_s=0.001)
    made = in_slices(lenet, slow)
    assert slow.transfer_cycles(sum(made.traffic_bytes.values())) == 103_400
    assert made.interval >= 103_400
    free = in_slices(lenet, ZEDBOARD)
    assert made.resources.dsp < 0.2 * free.resources.dsp
    assert made.bounds["memory"] == 103_400
    assert made.bounds["words on the bus"] == 1024 // 4  # a frame has 32 x 32 values of a byte
    held = plan.read(plan.write(free), lenet, slow)
    assert max(held.bounds.values()) == held.bounds["memory"] == 103_400 > held.interval
    assert held.frame_rate == 100e6 / 103_400
    assert f", {100e6 / 103_400:,.0f} frames per second\n" in table(held)
    (bounds,) = (line for line in table(held).split("\n") if line.startswith("frame-rate limits"))
    assert bounds.endswith(f"memory {100e6 / 103_400:,.0f}")


# What runs out.


@pytest.mark.parametrize("limit", [{"bram36": 19}, {"lut": 4_000}, {"ff": 3_500}])
def test_other_resources(lenet, limit):
    """A smaller board gets a slower plan that fits."""
    free = in_slices(lenet, ZEDBOARD)
    ((name, most),) = limit.items()
    assert getattr(free.resources, name) > most
    made = in_slices(lenet, replace(ZEDBOARD, **limit))
    assert getattr(made.resources, name) <= most
    assert len(made.groups) == 1
    assert made.interval >= free.interval


def test_frames_a_second(lenet):
    """As few slices as the interval that they leave; another clock leaves another one."""
    at_100 = in_slices(lenet, ZEDBOARD, fps=5_000)
    assert at_100.interval <= 20_000
    assert at_100.resources.dsp == in_slices(lenet, ZEDBOARD, objective="dsp", interval=20_000).resources.dsp
    at_50 = in_slices(lenet, ZEDBOARD, fps=5_000, clock=50)
    assert at_50.interval <= 10_000
    assert at_50.resources.dsp > at_100.resources.dsp
    assert at_50.board.clock_mhz == 50
    again = plan.read(plan.write(at_50), lenet, ZEDBOARD)
    assert again.board.clock_mhz == 50
    assert (again.latency, again.interval) == (at_50.latency, at_50.interval)
    text = table(at_50)
    assert f"at 50 MHz: latency {at_50.latency / 50_000:.4g} ms, {50e6 / at_50.interval:,.0f} frames per second" in text


@pytest.mark.long
def test_requantisers_of_luts():
    """Their slices go to multiply-adds; a dense network, whose layers finish a channel in many cycles."""
    dense = network.load("autoencoder")
    by_slices, by_luts, best = (
        in_slices(dense, ZEDBOARD, macs_per_dsp="auto", requantise=place) for place in ("dsp", "lut", "auto")
    )
    finish = [layer.finish.multipliers for layer in by_luts.configure().layers]
    assert max(finish) == 0 < sum(layer.finish.multipliers for layer in by_slices.configure().layers)
    assert best.interval == by_luts.interval < by_slices.interval
    assert {layer.requantise_in for layer in by_luts.layers} == {"lut"}
    again = plan.read(plan.write(by_luts), dense, ZEDBOARD)
    assert again.layers == by_luts.layers
    document = json.loads(plan.write(by_luts))
    document["groups"][0]["layers"][0]["requantise"] = "both"
    with pytest.raises(PlanError, match=r"^plan layer dense1: requantise must be \"dsp\" or \"lut\", not \"both\"$"):
        plan.read(json.dumps(document), dense, ZEDBOARD)
    with pytest.raises(PlanError, match=r"^requantise must be dsp, lut or auto, not 'none'$"):
        in_slices(dense, ZEDBOARD, requantise="none")


@pytest.mark.long
def test_requantisers_where_luts_are_few_too():
    """Some layers' of LUTs, if all of them are more than the board has."""
    net = network.load("dscnn")
    by_slices = in_slices(net, ZEDBOARD, macs_per_dsp="auto")
    scarce = replace(ZEDBOARD, lut=by_slices.resources.lut + 16_000)
    best = in_slices(net, scarce, macs_per_dsp="auto", requantise="auto")
    assert best.interval <= by_slices.interval
    assert best.resources.lut <= scarce.lut
    assert best.obstacle is None


@pytest.mark.long
def test_less_of_the_board(lenet):
    free = in_slices(lenet, ZEDBOARD)
    made = in_slices(lenet, ZEDBOARD, bram=int(free.resources.bram36) - 3, lut=free.resources.lut - 100)
    assert made.resources.bram36 <= int(free.resources.bram36) - 3
    assert made.resources.lut <= free.resources.lut - 100
    assert made.obstacle is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fps": 1e9}, "fps must be at most the 100,000,000 cycles per second, not 1e\\+09"),
        ({"fps": 0}, "fps must be a positive number, up to 1e\\+12, not 0"),
        ({"fps": float("inf")}, "fps must be a positive number, up to 1e\\+12, not inf"),
        ({"fps": "nine"}, "fps must be a positive number, up to 1e\\+12, not 'nine'"),
        ({"fps": 9, "objective": "latency"}, "fps .* needs objective dsp and no other goal, not latency"),
        ({"fps": 9, "objective": "dsp", "interval": 4}, "fps .* needs objective dsp and no other goal, not interval"),
        ({"clock": -1}, "clock must be a positive number, up to 1e\\+12, not -1"),
        ({"fps": 10**400}, "fps must be a positive number, up to 1e\\+12, not 1000*"),
        ({"fps": 1e6}, r"no plan has an interval of at most 100 cycles.* the nearest has [\d,]+"),
        ({"clock": 1e7}, "board zedboard: clock_mhz must be between 1e-6 and 1e6, not 10000000.0"),
        ({"bram": 141}, "bram must be between 1 and the 140 block RAMs of zedboard, not 141"),
        ({"lut": 1.5}, "lut must be a positive integer, not 1.5"),
    ],
)
def test_goals_that_can_not_be(lenet, options, message):
    with pytest.raises(HwgenError, match=f"^{message}$"):
        in_slices(lenet, ZEDBOARD, **options)


def test_clock_of_a_plan_that_is_none(lenet):
    document = json.loads(plan.write(in_slices(lenet, ZEDBOARD, dsp=40)))
    document["clock_mhz"] = "fast"
    with pytest.raises(PlanError, match=r"^plan: clock_mhz must be a positive number, not 'fast'$"):
        plan.read(json.dumps(document), lenet, ZEDBOARD)


def test_judged_by_the_best_tiles(lenet):
    """Groups in turn: what layers move by themselves, here every input, weight, bias and output once."""
    words = [1024 + 156 + 4704, 4704 + 1176, 1176 + 2416 + 1600, 1600 + 400]
    words += [400 + 48_120 + 120, 120 + 10_164 + 84, 84 + 850 + 10]
    made = in_slices(lenet, ZEDBOARD, dsp=5)
    (note,) = (note for note in made.notes if note.startswith("for comparison, each layer by itself"))
    assert f" {sum(words):,} bytes and " in note
    assert sum(made.traffic_bytes.values()) < sum(words)


def test_refused_with_what_runs_out_and_what_fits(lenet):
    with pytest.raises(
        PlanError,
        match=r"^conv2 does not fit zedboard: .* 2 DSP slices: .*; the first 2 layers .* fit; "
        r"the template engine does not compute it either: no engine fits, .* 2 may be used on zedboard",
    ):
        in_slices(lenet, ZEDBOARD, dsp=2)
    with pytest.raises(PlanError, match=r"fc1 does not fit .*: weights need 11 BRAM36, .* has 2; the first 4 layers"):
        in_slices(lenet, replace(ZEDBOARD, bram36=2, lut=4_500))
    with pytest.raises(
        PlanError,
        match=r"^conv1 does not fit zedboard: plan needs \d+ LUTs, [^;]* has 1: [^;]*; the template engine",
    ):
        in_slices(lenet.part(0, 2), replace(ZEDBOARD, lut=1))


@pytest.mark.long
def test_refused_with_what_tiles_would_take(lenet):
    # fc1's 48,000 weights of 8 bits, one a cycle: 12 block RAMs of 9 bits x 4,096, and what its input takes. In tiles
    # they come once, with 400 inputs, 120 biases and outputs, at 42.64 bytes a cycle.
    with pytest.raises(
        PlanError,
        match=r"fc1 does not fit .*: plan needs 1[2-4](\.5)? BRAM36, .* has 10: .*; the first 4 layers .* fit; "
        r"tiled \(hwgen block\), it would move 48,640 bytes and take at least 1,1[4-9]\d "
        r"cycles per frame; the template engine",
    ):
        in_slices(lenet, replace(ZEDBOARD, bram36=10))


@pytest.mark.long
def test_refused_with_what_may_fit():
    """Layers that take long to plan are only looked at."""
    with pytest.raises(
        PlanError,
        match=r"^conv4_1 does .*: weights need 256 BRAM36, .*\(XC7Z020\) has 140; the first 6 layers .* may fit",
    ):
        in_slices(network.load("vgg16:11@64x64"), ZEDBOARD, template="stream")


@pytest.mark.long
@pytest.mark.parametrize("template", [None, "stream", "pyramid"])
@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"bram36": 2, "lut": 3_000}, marks=pytest.mark.long),
        {"bram36": 2, "lut": 4_500},
        pytest.param({"bram36": 10}, marks=pytest.mark.long),
        {"dsp": 2},
    ],
)
def test_what_is_said_to_fit_does(lenet, limit, template):
    """The first layers that are named can be built, and no more of them."""
    scarce = replace(ZEDBOARD, **limit)
    with pytest.raises(PlanError, match=r"does not fit zedboard") as refused:
        in_slices(lenet, scarce, template=template)
    found = re.search(r"; (?:the first (\d) layers \(conv1 to \w+\) fit|only conv1 fits)", str(refused.value))
    assert found, refused.value
    count = int(found[1] or 1)
    assert in_slices(lenet.part(0, count), scarce, template=template).obstacle is None


@settings(max_examples=6)
@given(network=networks(max_layers=4), objective=st.sampled_from(["interval", "latency"]), data=st.data())
def test_more_slices_are_never_slower_unsaid(network, objective, data):
    never_slower_unsaid(network, objective, data)


@pytest.mark.long
@settings(max_examples=40)
@given(network=networks(max_layers=5), objective=st.sampled_from(["interval", "latency"]), data=st.data())
def test_more_slices_are_never_slower_unsaid_often(network, objective, data):
    never_slower_unsaid(network, objective, data)


def never_slower_unsaid(network, objective, data):
    """And what is said to be faster is, with the option that asks for it. The least latency is searched for by an
    estimate, which may miss it by some cycles: only an interval can't grow."""
    best, noted, plans = None, False, 0
    for dsp in sorted(data.draw(st.sets(st.integers(2, 40), min_size=2, max_size=4))):
        try:
            made = in_slices(network, ZEDBOARD, dsp=dsp, objective=objective)
        except PlanError as error:
            assert FEW_SLICES in str(error)  # noqa: PT017
            continue
        plans += 1
        notes = [note for note in made.notes if note.startswith("faster: ")]
        figure = made.latency if objective == "latency" else made.interval
        if notes:
            noted = True
            (note,) = notes
            said, groups, shared = re.fullmatch(
                r".* of ([\d,]+) cycles.* \(--groups (\S+?)( --in-turn)?\)", note
            ).groups()
            other = in_slices(
                network, ZEDBOARD, dsp=dsp, objective=objective, groups=groups.strip("'"), in_turn=bool(shared)
            )
            faster = other.latency if objective == "latency" else other.interval
            assert faster == int(said.replace(",", "")) < figure
            assert ("can't be built" in note) == (other.obstacle is not None)
        grows = objective == "interval" and best is not None and figure > best
        assert not grows or notes, f"{figure} cycles with {dsp} slices, {best} with fewer"
        best = figure if best is None else min(best, figure)
    event(f"noted: {noted}")
    assume(plans >= 2)  # one alone is compared with nothing


def chain(layers: int, channels: int, size: int) -> Network:
    """Equal 3 x 3 convolutions, one after the other."""
    rng = np.random.default_rng(0)
    fm = FeatureMap(channels=channels, height=size, width=size, type=INT8)
    scale = Requantisation(
        significand=np.full(channels, 1 << 23), shift=np.full(channels, 33), zero_point=0, low=0, high=127
    )
    made = [
        Conv(
            name=f"conv{number}",
            input=fm,
            output=fm,
            window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
            weights=rng.integers(-127, 128, (channels, channels, 3, 3)),
            bias=np.zeros(channels, np.int64),
            requantisation=scale,
        )
        for number in range(layers)
    ]
    return Network(name="chain", layers=tuple(made))


def test_groups_in_turn_that_would_be_faster_by_hand():
    """Four layers of 12 x 12 x 8 x 8 x 9 multiply-adds on 10 slices: one group has one or two slices a layer.

    With two of them a layer takes 41,472 cycles. In turn each has up to 9 multipliers, all taps of one window: 9,216
    cycles and the fill of a row or so.
    """
    network = chain(4, 8, 12)
    made = in_slices(network, ZEDBOARD, dsp=10)
    assert len(made.groups) == 1
    assert made.interval >= 41_472
    assert made.obstacle is None
    (note,) = (note for note in made.notes if note.startswith("faster: "))
    assert note.endswith("(--groups conv0,conv1,conv2,conv3 --in-turn)")
    turns = in_slices(network, ZEDBOARD, dsp=10, in_turn=True)
    assert 4 * 9_216 <= turns.interval < 1.1 * 4 * 9_216
    assert f"an interval of {turns.interval:,} cycles" in note
    assert turns.obstacle is not None


def test_what_can_be_built_instead(lenet):
    """With 8 slices: by hand 2 + 3 + 3 slices are the least for conv1, conv2 and fc1; fc2 has no more left."""
    made = in_slices(lenet, ZEDBOARD, dsp=8)
    assert made.obstacle is not None
    said = what_can_be_built(made, plan.Request(multipliers="dsp"))
    assert said.startswith("the first 5 layers (conv1 to fc1) of lenet5 can be built on zedboard; ")
    assert in_slices(lenet.part(0, 5), ZEDBOARD, dsp=8).obstacle is None
    turns = in_slices(lenet.part(0, 3), ZEDBOARD, groups="conv1-pool1,conv2", in_turn=True)
    assert turns.obstacle is not None
    assert (
        what_can_be_built(turns, plan.Request(multipliers="dsp"))
        == "one group of all layers can be built: leave out --groups and --in-turn"
    )


def test_what_may_be_built_instead(lenet, monkeypatch):
    """Of networks that take long to plan nothing is planned for it, and so nothing is promised."""
    made = in_slices(lenet, ZEDBOARD, dsp=8)
    monkeypatch.setattr(alternatives, "QUICK_MACS", 0)
    monkeypatch.setattr(alternatives, "can_be_built", None)
    said = what_can_be_built(made, plan.Request(multipliers="dsp"))
    assert said.startswith("the first 5 layers (conv1 to fc1) of lenet5 may fit zedboard; "), said


def test_weights_that_no_memory_holds(lenet):
    """All of them: 61,470 of 8 bits are 13.3 block RAMs, and LUTs hold 64 bits each at most."""
    scarce = replace(ZEDBOARD, bram36=12, lut=700)
    weights = layer_weight_bits(lenet.layers)
    assert sum(bits for _, bits in weights) == 8 * 61_470
    assert "weights need 14 BRAM36, but zedboard (XC7Z020) has 12" in str(weight_shortage(weights, scarce))
    assert weight_shortage(weights, ZEDBOARD) is None


def test_weights_that_no_memory_holds_are_known_before_loading(lenet):
    assert network.weight_bits("lenet5") == layer_weight_bits(lenet.layers)
    assert network.weight_bits("models/vgg16.onnx") == []
    of_vgg16 = dict(network.weight_bits("vgg16,int16"))
    assert of_vgg16["conv4_1"] == 16 * 512 * 256 * 9
    refusal = weight_shortage([("conv4_1", of_vgg16["conv4_1"] // 2)], ZEDBOARD)
    assert str(refusal).startswith("conv4_1: weights need 256 BRAM36")


@pytest.mark.parametrize("groups", [None, "conv1-fc3"])
def test_in_turn_needs_two_groups(lenet, groups):
    with pytest.raises(PlanError, match=r"^in_turn needs two groups"):
        in_slices(lenet if groups else lenet.part(0, 1), ZEDBOARD, groups=groups, in_turn=True)


# Groups.


@given(network=networks(max_layers=4), cuts=st.sets(st.integers(1, 3)))
def test_parse(network, cuts):
    """Any grouping, written and read."""
    count = len(network.layers)
    edges = [0, *sorted(cut for cut in cuts if cut < count), count]
    names = [layer.name for layer in network.layers]
    text = ", ".join(names[a] if b - a == 1 else f"{names[a]}-{names[b - 1]}" for a, b in pairwise(edges))
    assert grouping.parse(text, network) == tuple(pairwise(edges))


def test_parse_names_with_dashes(lenet):
    dashed = [replace(layer, name=layer.name.replace("c", "c-")) for layer in lenet.layers]
    renamed = Network(name="lenet", layers=tuple(dashed))
    assert grouping.parse("c-onv1-pool1,c-onv2-fc-1,fc-2-fc-3", renamed) == ((0, 2), (2, 5), (5, 7))
    assert grouping.parse("c-onv1 - pool1, c-onv2 - fc-3", renamed) == ((0, 2), (2, 7))


@pytest.mark.parametrize(("text", "message"), refusals_in("choice_bad_groups.txt"))
def test_bad_groups(lenet, text, message):
    with pytest.raises(InputError) as error:
        in_slices(lenet, ZEDBOARD, groups=text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_one_named_group_is_the_plan(lenet):
    assert plan.write(in_slices(lenet, ZEDBOARD, groups="conv1-fc3")) == plan.write(in_slices(lenet, ZEDBOARD))


def test_groups_in_turn(lenet):
    """Each has hardware of its own; cycles and traffic of a grouping, from those of its groups."""
    made = in_slices(lenet, ZEDBOARD, groups="conv1-pool1,conv2-pool2,fc1-fc3")
    used = [group.resources for group in made.groups]
    assert made.resources == used[0] + used[1] + used[2]
    assert made.resources.dsp <= ZEDBOARD.dsp
    maps = [1 * 32 * 32 + 6 * 14 * 14, 6 * 14 * 14 + 16 * 5 * 5, 16 * 5 * 5 + 10]  # bytes, by hand
    assert made.traffic_bytes == {"feature_maps": sum(maps), "weights": 0}
    assert [group.network.map_bytes for group in made.groups] == maps
    runs = [group.frame_cycles for group in made.groups]
    assert made.interval == made.placement.predict(3).interval == sum(runs)
    assert made.latency == made.placement.predict(1).latency == sum(runs) - 1
    assert [config.name for config in made.configs()] == [group.network.name for group in made.groups]
    with pytest.raises(PlanError, match="has 3 groups, not one"):
        made.configure()


def test_groups_that_share_slices(lenet):
    """9 slices are the least for fc1 to fc3: with 12, hardware of their own is too much for three groups."""
    made = in_slices(lenet, ZEDBOARD, groups="conv1-pool1,conv2-pool2,fc1-fc3", dsp=12)
    used = [group.resources for group in made.groups]
    assert sum(one.dsp for one in used) > 12
    assert made.resources.dsp == max(one.dsp for one in used)
    assert made.resources.lut == sum(one.lut for one in used)
    with pytest.raises(PlanError, match=r"cannot be built yet: it has 3 groups that have to share the board"):
        made.configs()


def most(made: plan.Plan) -> int:
    """Slices of the dearest group."""
    return max(group.resources.dsp for group in made.groups)


def test_fewest_slices_in_turn(lenet):
    """The least of each group, or what an interval needs; one slice less for the dearest would be too few."""
    cut = {"groups": "conv1-pool2,fc1-fc3", "objective": "dsp"}
    least = in_slices(lenet, ZEDBOARD, **cut)
    assert most(least) <= 3 * 3  # a multiplier and two slices of a requantiser for each of fc1, fc2 and fc3
    assert least.resources.dsp == sum(group.resources.dsp for group in least.groups)
    soonest = in_slices(lenet, ZEDBOARD, groups=cut["groups"])
    limit = 4 * soonest.interval
    made = in_slices(lenet, ZEDBOARD, interval=limit, **cut)
    assert made.interval <= limit
    assert most(least) < most(made) < most(soonest)
    assert in_slices(lenet, ZEDBOARD, groups=cut["groups"], dsp=most(made) - 1).interval > limit
    with pytest.raises(PlanError, match="the nearest has"):
        in_slices(lenet, ZEDBOARD, interval=soonest.interval // 2, **cut)


def test_weights_are_loaded_where_they_do_not_fit_together(lenet):
    """fc1 to fc3 have 58,920 weights, all of it 61,470: with 14 block RAMs only fc1's group fits."""
    text = "conv1-pool2,fc1,fc2-fc3"
    ample = in_slices(lenet, ZEDBOARD, groups=text)
    scarce = in_slices(lenet, replace(ZEDBOARD, bram36=15), groups=text)
    assert not ample.placement.loads_weights
    assert scarce.placement.loads_weights
    assert scarce.traffic_bytes["weights"] == 61_470 == lenet.weight_bytes
    transfer = [scarce.board.transfer_cycles(group.network.weight_bytes) for group in scarce.groups]
    assert transfer == [60, 1126, 257]  # 2,550, 48,000 and 10,920 bytes at 42.64 bytes a cycle
    runs = [group.frame_cycles for group in scarce.groups]
    assert scarce.interval == sum(runs) + sum(transfer)
    assert scarce.latency == sum(runs) + sum(transfer[1:]) - 1
    document = json.loads(plan.write(scarce))
    kinds = {layer["weights"] for group in document["groups"] for layer in group["layers"]}
    assert kinds == {"stream", None}  # pools have none


NETWORKS_OF_GROUPS = networks(min_layers=2, max_layers=3)


@settings(max_examples=5)
@given(network=NETWORKS_OF_GROUPS, data=st.data())
def test_groups_run_as_planned(network, data):
    """Each group by itself, fed with what the one before leaves: the golden model's values in the planned cycles."""
    check_groups(network, data)


@pytest.mark.long
@settings(max_examples=26)
@given(network=NETWORKS_OF_GROUPS, data=st.data())
def test_groups_of_many_run_as_planned(network, data):
    check_groups(network, data)


def check_groups(network: Network, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(network.layers) - 1), min_size=1)))
    edges = [0, *cuts, len(network.layers)]
    names = [layer.name for layer in network.layers]
    text = ",".join(f"{names[a]}-{names[b - 1]}" if b - a > 1 else names[a] for a, b in pairwise(edges))
    with left_out_if(FEW_SLICES):
        made = in_slices(network, ZEDBOARD, groups=text, dsp=data.draw(st.integers(20, 120)))
    frames = frames_for(network, 1, 0)
    for group in made.groups:
        trace = simulate(group.config, frames)
        frames = from_beats(group.config.output, trace.words).astype(group.network.output.type.dtype)
        np.testing.assert_array_equal(frames, golden.run(group.network, frames_before(network, group)))
        assert trace.times[-1] - trace.taken[0] + 1 == group.frame_cycles


def frames_before(network: Network, group: Group) -> np.ndarray:
    """What the golden model says comes into the group."""
    frames = frames_for(network, 1, 0)
    begin = network.layers.index(group.network.layers[0])
    return golden.run(network.part(0, begin), frames) if begin else frames


@pytest.mark.parametrize("objective", ["interval", "traffic", "dsp"])
def test_cut_against_every_grouping(lenet, objective):
    """Five slices are too few for one group: of the 63 other groupings none is better, but for what estimates miss."""
    made = in_slices(lenet, ZEDBOARD, dsp=5, objective=objective)
    task = Task(lenet, ZEDBOARD, Goal(objective=objective, dsp=5))
    groups: dict[tuple[int, int], Group | Refusal] = {}
    for begin in range(7):
        for end in range(begin + 1, 8):
            groups[begin, end] = best_group(task, begin, end, in_turn=True)
    figures = {
        "interval": lambda one: one.interval,
        "traffic": lambda one: sum(one.traffic_bytes.values()),
        "dsp": lambda one: one.resources.dsp,
    }
    figure, values = figures[objective], []
    for cuts in range(1, 1 << 6):
        edges = [0, *(cut for cut in range(1, 7) if cuts >> (cut - 1) & 1), 7]
        chosen = [groups[span] for span in pairwise(edges)]
        if not any(isinstance(group, Refusal) for group in chosen):
            values.append(figure(plan_of(task, tuple(chosen))))
    assert figure(made) <= min(values) * (1.02 if objective == "interval" else 1)


@cases_in_the_long_run(20)
@given(network=networks(max_layers=4), data=st.data())
def test_written_and_read(network, data):
    """A plan of any kind, from its JSON."""
    with left_out_if(FEW_SLICES):
        made = in_slices(
            network,
            ZEDBOARD,
            dsp=data.draw(st.integers(3, 100)),
            objective=data.draw(st.sampled_from(["interval", "dsp", "traffic"])),
            macs_per_dsp=data.draw(st.sampled_from([1, 2, "auto"])),
        )
    again = plan.read(plan.write(made), network, ZEDBOARD)
    assert plan.write(again) == plan.write(made)
    assert [group.layers for group in again.groups] == [group.layers for group in made.groups]


def test_groups_that_share_few_slices_still_do_when_read(lenet):
    """The board's 220 would hold them side by side."""
    made = in_slices(lenet, ZEDBOARD, dsp=5)
    assert made.obstacle is not None
    assert made.resources.dsp <= 5
    again = plan.read(plan.write(made), lenet, ZEDBOARD)
    assert (again.resources, again.obstacle, again.dsp) == (made.resources, made.obstacle, 5)
    document = json.loads(plan.write(made))
    del document["dsp"]
    assert plan.read(json.dumps(document), lenet, ZEDBOARD).obstacle is None
    for wrong, why in ((0, "dsp must be at least 1, not 0"), ("5", "dsp must be an integer")):
        with pytest.raises(PlanError, match=why):
            plan.read(json.dumps(document | {"dsp": wrong}), lenet, ZEDBOARD)
    with pytest.raises(PlanError, match="but 1 may be used on zedboard: lower the unroll or allow more"):
        plan.read(json.dumps(document | {"dsp": 1}), lenet, ZEDBOARD)


def test_a_group_without_slices(lenet):
    """A pool by itself beside a layer that gets them all."""
    for dsp in range(2, 9):
        made = in_slices(lenet.part(0, 2), ZEDBOARD, groups="conv1,pool1", dsp=dsp)
        assert [group.resources.dsp for group in made.groups][1] == 0


def test_weights_moved_by_hand(lenet):
    """conv1's weights from LUTs to block RAM, in the plan's JSON."""
    made = in_slices(lenet, ZEDBOARD)
    document = json.loads(plan.write(made))
    first = document["groups"][0]["layers"][0]
    assert first["weights"] == "lut"
    first["weights"] = "block"
    moved = plan.read(json.dumps(document), lenet, ZEDBOARD)
    assert moved.resources.bram36 > made.resources.bram36
    assert moved.resources.lut < made.resources.lut
    assert json.loads(plan.write(moved))["groups"][0]["layers"][0]["weights"] == "block"
    first["weights"] = "flash"
    with pytest.raises(PlanError, match=r"plan layer conv1: weights must be .lut., .block. or .stream., not .flash."):
        plan.read(json.dumps(document), lenet, ZEDBOARD)


# Two multiply-adds a slice.


def test_packing_halves_the_slices(lenet):
    """At one interval: half the multipliers, but for odd numbers of output channels at once."""
    one = in_slices(lenet, ZEDBOARD, objective="dsp", interval=10_000)
    two = in_slices(lenet, ZEDBOARD, objective="dsp", interval=10_000, macs_per_dsp=2)
    multipliers = [
        sum(
            layer.compute.multipliers
            for layer in made.configure().layers
            if layer.compute.window.taps and hasattr(layer.compute, "multipliers")
        )
        for made in (one, two)
    ]
    assert multipliers[1] <= 0.6 * multipliers[0]
    for layer, config in zip(two.layers, two.configure().layers, strict=True):
        if layer.kind == "conv":
            assert layer.macs_per_dsp == min(2, layer.tm)
            assert config.compute.multipliers == layer.tn * -(-layer.tm // 2) * layer.tk * layer.tp
    assert "*" not in table(one)
    assert "*: two MACs per DSP slice" in table(two)


def test_a_weight_too_large(lenet):
    """-128 takes a slice of its own: its layer is planned with one multiply-add a slice, and named."""
    layer = lenet.layers[2]
    assert isinstance(layer, Conv)
    weights = layer.weights.copy()
    weights[3, 2, 1, 0] = -128
    layers = (*lenet.layers[:2], replace(layer, weights=weights), *lenet.layers[3:])
    made = in_slices(Network(name="lenet", layers=layers), ZEDBOARD, macs_per_dsp=2)
    assert made.layers[2].macs_per_dsp == 1
    assert {made.layers[number].macs_per_dsp for number in (0, 4)} == {2}
    assert made.notes[0] == "one multiply-add a slice, for weights below -127 or more than 8 bits: conv2"
    assert made.notes[0] in table(made)


def test_a_weight_of_minus_128_in_wide_slices(lenet):
    """A slice with an operand of 27 bits packs -128, too: as many slices as without it, in chains of seven."""
    layer = lenet.layers[2]
    assert isinstance(layer, Conv)
    weights = layer.weights.copy()
    weights[3, 2, 1, 0] = -128
    layers = (*lenet.layers[:2], replace(layer, weights=weights), *lenet.layers[3:])
    plain, made = (in_slices(each, KV260, macs_per_dsp=2) for each in (lenet, Network(name="lenet", layers=layers)))
    assert [plan.macs_per_dsp for plan in plain.layers if plan.kind == "conv"] == ["2-wide"] * 5
    assert made.layers[2].macs_per_dsp == "2-full"
    assert not any("one multiply-add a slice" in note for note in made.notes)
    assert made.resources.dsp == plain.resources.dsp
    assert made.interval == plain.interval
    chains = [plan.configure().layers[2].compute.chains.longest for plan in (plain, made)]
    assert chains == [16, 7]


def test_sixteen_bits_take_a_slice_each():
    """No two multiply-adds a slice, and the interval of 8 bits with one."""
    wide = network.load("lenet5,int16")
    for macs in (2, "auto"):
        made = in_slices(wide, ZEDBOARD, macs_per_dsp=macs)
        assert {layer.macs_per_dsp for layer in made.layers} == {1}
        assert "*" not in table(made).replace(made.notes[0] if made.notes else "", "")
        assert made.interval == in_slices(wide, ZEDBOARD).interval
    note = "one multiply-add a slice, for weights below -127 or more than 8 bits: conv1, conv2, fc1, fc2, fc3"
    assert in_slices(wide, ZEDBOARD, macs_per_dsp=2).notes[0] == note


def test_sixteen_bits_take_the_same_cycles():
    """A layer with the same factors; the requantiser alone takes a few cycles more."""
    narrow, wide = (in_slices(network.load(f"vgg16:3@24x32,{kind}"), VC709, dsp=500) for kind in ("int8", "int16"))
    assert narrow.interval == wide.interval
    assert [layer.cycles for layer in narrow.configure().layers] == [layer.cycles for layer in wide.configure().layers]


def test_auto_packs_where_it_helps(lenet):
    assert in_slices(lenet, ZEDBOARD, macs_per_dsp="auto").interval < in_slices(lenet, ZEDBOARD).interval
    slow = replace(ZEDBOARD, memory_gb_s=1000.0)
    example = network.load("decoilfnet-example")
    widest = in_slices(example, slow, macs_per_dsp="auto")
    assert widest.interval == interval([*map_works(example)], [unroll_of(layer) for layer in widest.layers])


def map_works(network: Network):
    return Task(network, ZEDBOARD, Goal(objective="interval", dsp=1)).works


def unroll_of(layer: plan.LayerPlan):
    from hwgen.templates.work import Unroll

    return Unroll(layer.tn, layer.tm, layer.tk, layer.tp)
