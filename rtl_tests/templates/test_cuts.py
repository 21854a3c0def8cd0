"""Where networks that branch may be cut, and plans of pyramids: values and cycles are those of the hardware."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from accelerators import frames_for, from_beats, networks, simulate
from counted import cases_in_the_long_run
from graphs import graphs
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from referees import by_integer_kernels
from refusals import FEW_SLICES, LARGE_TILE, NOTHING_TO_DO, left_out_if, refusals_in

from hwgen import boards, network, plan
from hwgen import simulate as run
from hwgen import simulate as simulation
from hwgen.errors import ConfigError, InputError, PlanError
from hwgen.network import golden, load, shapes
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap, IntegerType, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv
from hwgen.network.quantise import quantise
from hwgen.network.zoo.drawing import Drawing
from hwgen.options import OVERLAPS
from hwgen.plan import grouping
from hwgen.plan.choose import best_group, plan_of
from hwgen.simulate import check
from hwgen.templates.base import Goal, OverBudgetError, Refusal, Task
from hwgen.templates.pyramid import PyramidTemplate, pyramid_cycles, tips
from hwgen.templates.pyramid_tiles import axes

ZEDBOARD, VC709 = boards.load("zedboard"), boards.load("vc709")


# Where a network may be cut.


def one_map_crosses(network: Network) -> set[frozenset[str]]:
    """All sets of layers, some but not all, that take nothing from the others and give them one map, by listing."""
    names = [layer.name for layer in network.layers]
    found = set()
    for count in range(1, len(names)):
        for inside in map(set, combinations(names, count)):
            taken = zip(names, network.edges, strict=True)
            if any(name in inside and not {*edges} <= {INPUT, *inside} for name, edges in taken):
                continue
            taken = zip(names, network.edges, strict=True)
            crossing = {edge for name, edges in taken if name not in inside for edge in edges} & {INPUT, *inside}
            if len(crossing) == 1 and (count > 1 or network.layers[0].kind != "copy"):
                found.add(frozenset(inside))
    return found


@settings(max_examples=60)
@given(network=graphs(max_steps=3))
def test_cuts_against_every_set_of_layers(network):
    names = [layer.name for layer in network.layers]
    if len(names) <= 12:
        assert {frozenset(names[:place]) for place in network.cuts} == one_map_crosses(network)
    assert network.boundaries == (0, *network.cuts, len(names))
    for place in range(1, len(names)):
        copied = place == 1 and network.layers[0].kind == "copy"
        assert (len(network.crossing(place)) == 1 and not copied) == (place in network.cuts)


@settings(max_examples=26)
@given(network=graphs(max_steps=4), data=st.data(), seed=st.integers(0, 99))
def test_parts_compute_what_the_network_does(network, data, seed):
    """One after the other, each fed with what the one before leaves; each takes its input once."""
    inner = data.draw(st.sets(st.sampled_from(network.cuts))) if network.cuts else set()
    frames = expected = frames_for(network, 2, seed)
    expected = golden.run(network, frames)
    names = []
    for begin, end in pairwise((0, *sorted(inner), len(network.layers))):
        part = network.part(begin, end)
        assert len(part.readers[INPUT]) == 1
        frames = golden.run(part, frames)
        names += [layer.name for layer in part.layers]
    np.testing.assert_array_equal(frames, expected)
    assert len(set(names)) == len(names)
    copies = [name for name in names if name not in {layer.name for layer in network.layers}]
    assert len(copies) == sum(len(network.readers[network.crossing(place)[0]]) > 1 for place in inner)


@pytest.fixture(scope="module")
def resnet8():
    return load("resnet8")


def test_cuts_of_resnet8(resnet8):
    """Before and behind each stack; a stack, whose input has two readers, begins with a copy of it."""
    assert [resnet8.layers[place - 1].name for place in resnet8.cuts] == [
        *("conv", "stack1_add", "stack2_add", "stack3_add", "pool")
    ]
    part = resnet8.part(4, 8)
    assert part.edges[0] == (INPUT,)
    assert part.readers["stack1_add_copy"] == ("stack2_conv1", "stack2_short")
    assert [layer.name for layer in part.layers] == ["stack1_add_copy", *(layer.name for layer in resnet8.layers[4:8])]
    with pytest.raises(ConfigError, match=r"^resnet8 can't be cut between stack1_conv1 and stack1_conv2: "):
        resnet8.part(0, 2)
    assert len(resnet8.first(4).layers) == 4
    with pytest.raises(
        InputError, match=r"the maps of conv, stack1_conv1 would cross the cut, but only one map may; cut after conv "
    ):
        resnet8.first(2)


def test_a_copy_under_a_free_name(resnet8):
    taken = replace(resnet8.layers[1], name="conv_copy")
    edges = tuple(tuple("conv_copy" if edge == "stack1_conv1" else edge for edge in each) for each in resnet8.edges)
    network = replace(resnet8, layers=(resnet8.layers[0], taken, *resnet8.layers[2:]), edges=edges)
    assert network.part(1, 13).layers[0].name == "conv_copy_1"


# Plans.


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            "conv-stack1_conv1,stack1_conv2-dense",
            "groups: resnet8 can't be cut between stack1_conv1 and stack1_conv2: the maps of conv, stack1_conv1 would "
            "cross the cut, but only one map may; cut after conv or stack1_add",
        ),
        (
            "conv-stack1_add,stack2_conv1-stack3_conv2,stack3_add-dense",
            "groups: resnet8 can't be cut between stack3_conv2 and stack3_add: the maps of ",
        ),
    ],
)
def test_groups_where_several_maps_cross(resnet8, groups, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        plan.make(resnet8, ZEDBOARD, groups=groups)


def test_in_turn_where_nothing_can_be_cut():
    def draw(net: Drawing) -> str:
        return net.add("add", net.conv("conv", "image", 2, 3), "image")

    with pytest.raises(PlanError, match=r"^in_turn needs two groups, but whole can't be cut: more than one "):
        plan.make(drawn("whole", draw, cut_input=True), ZEDBOARD, in_turn=True)


def drawn(name: str, draw, shape=(2, 8, 8), *, cut_input: bool = False) -> Network:
    network, _ = with_model(name, draw, shape)
    if cut_input:  # without the copy in front, which is no layer that a group may end with
        assert network.layers[0].kind == "copy"
    return network


def with_model(name: str, draw, shape=(2, 8, 8)):
    drawing = Drawing(name, shape)
    images = np.random.default_rng(0).uniform(-1, 1, (8, *shape)).astype(np.float32)
    model = quantise(drawing.model(draw(drawing)), images, name, 8)
    return to_network(model, name), model


def residual(net: Drawing) -> str:
    """A convolution, a block with a shortcut, one with a convolution in it, and a product by a pixel."""
    first = net.conv("stem", "image", 3, 3)
    here = net.conv("b1", net.conv("a1", first, 3, 3), 3, 3, relu=None)
    here = net.add("add1", here, first, relu=True)
    short = net.conv("short", here, 4, 1, 2, padding=0, relu=None)
    here = net.add("add2", net.conv("b2", net.conv("a2", here, 4, 3, 2), 4, 3, relu=None), short, relu=True)
    return net.conv("last", net.multiply("scale", here, net.average("all", here)), 2, 1, relu=None)


TWO, THREE = "stem-add1,short-last", "stem,a1-add1,short-last"


@pytest.fixture(scope="module")
def small():
    return with_model("small", residual)


@pytest.mark.long
@pytest.mark.parametrize(
    ("groups", "in_turn"),
    [
        (TWO, False),
        pytest.param(THREE, True, marks=pytest.mark.long),
        pytest.param(TWO, True, marks=pytest.mark.long),
        pytest.param(THREE, False, marks=pytest.mark.long),
    ],
)
def test_groups_in_verilator(small, groups, in_turn):
    """Side by side, and each with all slices: ONNX Runtime's values in every frame, and the cycles of the plan."""
    network, model = small
    slow = replace(VC709, memory_gb_s=0.05)  # four cycles a byte, so that no group is worth more than a few slices
    made = plan.make(network, slow, groups=groups, in_turn=in_turn, dsp=300 if in_turn else 60)
    assert made.obstacle is None
    assert len(made.groups) == groups.count(",") + 1
    assert made.resources.dsp == sum(group.resources.dsp for group in made.groups)
    frames = frames_for(network, 3, 5)
    result = run.run_groups(made.configs(), frames, run.Options(simulator="verilator"))
    expected = golden.run(network, frames)
    np.testing.assert_array_equal(result.outputs, expected)
    reals = (frames.astype(np.float32) - network.input.zero_point) * np.float32(network.input.scale)
    referee, _ = by_integer_kernels(model, reals)
    label = network.output
    np.testing.assert_array_equal((expected.astype(np.float32) - label.zero_point) * np.float32(label.scale), referee)
    predicted = made.placement.predict(3)
    assert (result.latency, result.interval) == (predicted.latency, predicted.interval)
    maps = [group.network.map_bytes for group in made.groups]
    assert made.traffic_bytes["feature_maps"] == sum(maps)
    assert result.read_bytes + result.written_bytes == 3 * sum(maps)


@pytest.mark.long
def test_a_fault_behind_a_copy_is_located(small):
    """A copy in front of a group is no layer of the network: what is watched is numbered without it."""
    network, _ = small
    configs = plan.make(network, VC709, groups=TWO, dsp=60, multipliers="dsp").configs()
    layer = network.layers[[layer.name for layer in network.layers].index("a2")]
    wrong = replace(layer, bias=layer.bias + (1 << 20))
    layers = tuple(wrong if each is layer else each for each in network.layers)
    other = replace(network, layers=layers)
    frames = frames_for(network, 1, 5)
    outputs, expected = golden.run(network, frames), golden.run(other, frames)
    found = check.locate(configs, other, frames, [outputs], [expected], simulator="amaranth")
    assert found is not None
    assert found.layer == "a2"


@cases_in_the_long_run(4)
@given(network=graphs(max_steps=4, max_side=4).filter(lambda network: network.cuts), data=st.data())
def test_groups_of_graphs_run_as_planned(network, data):
    """Each group by itself, fed with what the one before leaves: the golden model's values in the planned cycles."""
    cuts = sorted(data.draw(st.sets(st.sampled_from(network.cuts), min_size=1, max_size=2)))
    spans = list(pairwise((0, *cuts, len(network.layers))))
    text = plan_text(network, spans)
    made = plan.make(network, VC709, groups=text, dsp=400, multipliers="dsp")
    again = plan.read(plan.write(made), network, VC709)
    assert plan.write(again) == plan.write(made)
    frames = frames_for(network, 1, 0)
    for (_, end), group in zip(spans, again.groups, strict=True):
        trace = simulate(group.config, frames)
        output = group.network.output
        frames = from_beats(group.config.output, trace.words).astype(output.type.dtype)
        expected = golden.run(network.part(0, end), frames_for(network, 1, 0))
        np.testing.assert_array_equal(frames, expected)
        assert trace.times[-1] - trace.taken[0] + 1 == group.frame_cycles


def plan_text(network: Network, spans) -> str:
    names = [layer.name for layer in network.layers]
    return ",".join(names[a] if b - a == 1 else f"{names[a]}-{names[b - 1]}" for a, b in spans)


@pytest.mark.parametrize("objective", ["interval", "traffic", "dsp"])
def test_cut_against_every_grouping(small, objective):
    """Few slices are too few for one group: of all other groupings none is better, but for what estimates miss."""
    network, _ = small
    made = plan.make(network, ZEDBOARD, dsp=12, multipliers="dsp", objective=objective)
    assert len(made.groups) > 1
    task = Task(network, ZEDBOARD, Goal(objective=objective, dsp=12))
    groups = {}
    for span in combinations(network.boundaries, 2):
        groups[span] = best_group(task, *span, in_turn=True)
    figures = {
        "interval": lambda one: one.interval,
        "traffic": lambda one: sum(one.traffic_bytes.values()),
        "dsp": lambda one: one.resources.dsp,
    }
    figure, values = figures[objective], []
    for count in range(1, len(network.cuts) + 1):
        for cuts in combinations(network.cuts, count):
            chosen = [groups[span] for span in pairwise((0, *cuts, len(network.layers)))]
            if not any(isinstance(group, Refusal) for group in chosen):
                values.append(figure(plan_of(task, tuple(chosen))))
    assert len(values) > 1
    assert figure(made) <= min(values) * (1.02 if objective == "interval" else 1)


def test_fastest_grouping(small):
    """`faster` says of all groupings the one with the least sum of estimates; `_shortest` against listing."""
    network, _ = small
    rng = np.random.default_rng(0)
    for _ in range(20):
        costs = {span: float(rng.integers(1, 20)) for span in combinations(network.boundaries, 2)}
        listed = [
            sum(costs[span] for span in pairwise((0, *cuts, len(network.layers))))
            for count in range(len(network.cuts) + 1)
            for cuts in combinations(network.cuts, count)
        ]
        cost, path = grouping._fewest_cycles(network.boundaries, costs)
        assert cost == min(listed) == sum(costs[span] for span in path)


def test_a_stack_that_does_not_fit_even_alone(resnet8):
    with pytest.raises(
        PlanError,
        match=r"^stack3_conv1 to stack3_add, which can't be cut, do not fit zedboard: no unrolling ",
    ) as refused:
        plan.make(resnet8, ZEDBOARD, dsp=5, multipliers="dsp")
    assert "stack3_conv1 to stack3_add needs at least 9" in str(refused.value)


def test_groups_that_share_slices(small):
    """Too few slices for all of it: planned in groups that share them, and written and read."""
    network, _ = small
    made = plan.make(network, ZEDBOARD, dsp=12, multipliers="dsp")
    assert made.notes[0].startswith("no single group was found that fits: no unrolling fits 12 DSP slices: the least ")
    assert made.resources.dsp <= 12
    assert "groups that have to share the board" in str(made.obstacle)
    again = plan.read(plan.write(made), network, ZEDBOARD)
    assert plan.write(again) == plan.write(made)
    assert (again.obstacle, again.interval) == (made.obstacle, made.interval)


@pytest.mark.long
def test_groups_in_turn_of_resnet8(resnet8):
    """Too few slices for all of it: planned in groups that share them, and written and read."""
    made = plan.make(resnet8, ZEDBOARD, dsp=20, multipliers="dsp")
    assert made.notes[0].startswith("no single group was found that fits: no unrolling fits 20 DSP slices: the least ")
    assert made.resources.dsp <= 20
    assert "groups that have to share the board" in str(made.obstacle)
    assert [group.network.layers[-1].name for group in made.groups][-1] == "dense"
    again = plan.read(plan.write(made), resnet8, ZEDBOARD)
    assert plan.write(again) == plan.write(made)
    assert (again.obstacle, again.interval) == (made.obstacle, made.interval)


def test_plans_that_cut_where_several_maps_cross(small):
    network, _ = small
    made = plan.make(network, VC709, groups=TWO, dsp=60, multipliers="dsp")
    document = json.loads(plan.write(made))
    first, second = document["groups"]
    second["layers"] = second["layers"][1:]
    with pytest.raises(PlanError, match=r"^plan group of short lacks add1_copy, its first layer$"):
        plan.read(json.dumps(document), network, VC709)
    first["layers"].append(second["layers"].pop(0))
    with pytest.raises(PlanError, match=r"^plan can't work: small can't be cut between short and a2: the maps of "):
        plan.read(json.dumps(document), network, VC709)


def chain_and_branch(net: Drawing) -> str:
    here = net.max_pool("pool", net.conv("two", net.conv("one", "image", 4, 3), 2, 3), 2, 2)
    return net.add("add", net.conv("side", here, 2, 3), here)


@pytest.mark.long
def test_a_chain_in_pyramids_beside_a_branch_in_streams():
    """A plan of both, written, read and simulated; and that the branch in pyramids is refused by name."""
    network = drawn("mixed", chain_and_branch, (2, 8, 16))
    task = Task(network, ZEDBOARD, Goal(objective="interval", dsp=30, template="pyramid", tile=(2, 4)))
    groups = best_group(task, 0, 3, in_turn=True), best_group(task.aiming(template=None, tile=None), 3, 5, in_turn=True)
    made = plan.read(plan.write(plan_of(task.aiming(dsp=60), groups)), network, ZEDBOARD)
    assert [group.template.name for group in made.groups] == ["pyramid", "stream"]
    assert [group.config for group in made.groups] == [group.config for group in groups]
    assert made.obstacle is None
    frames = frames_for(network, 1, 0)
    result = run.run_groups(made.configs(), frames, run.Options(simulator="amaranth"))
    np.testing.assert_array_equal(result.outputs, golden.run(network, frames))
    assert result.latency == made.placement.predict(1).latency
    with pytest.raises(PlanError, match=r"^add joins side and pool_copy, but pyramids compute chains of layers only: "):
        plan.make(network, ZEDBOARD, groups="one-pool,side-add", template="pyramid")


@pytest.mark.long
def test_a_chain_that_fits_in_pyramids_only():
    """Rows of 1,024 pixels are too long for the block RAM: the chain is computed in pyramids by itself, as is said."""
    network = drawn("mixed", chain_and_branch, (4, 8, 1024))
    text, options = "one-pool,side-add", {"dsp": 12, "objective": "dsp"}
    least = plan.make(network, ZEDBOARD, groups=text, template="stream", **options)
    scarce = replace(ZEDBOARD, bram36=int(least.groups[0].resources.bram36) // 2)
    with pytest.raises(OverBudgetError, match="BRAM36"):
        plan.make(network, scarce, groups=text, template="stream", **options)
    made = plan.make(network, scarce, groups=text, **options)
    assert [group.template.name for group in made.groups] == ["pyramid", "stream"]


BOARD_OF_PYRAMIDS = boards.load("zedboard")


@cases_in_the_long_run(8)
@given(network=networks(max_layers=3), data=st.data())
def test_as_planned(network, data):
    """Values, cycles, bytes of off-chip maps; and again from the plan's JSON."""
    tile = data.draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)))
    overlap = data.draw(st.sampled_from([None, *OVERLAPS]))
    steering = {"template": "pyramid", "tile": tile, "overlap": overlap, "dsp": data.draw(st.integers(4, 100))}
    with left_out_if(FEW_SLICES, LARGE_TILE, NOTHING_TO_DO):
        made = plan.make(network, BOARD_OF_PYRAMIDS, **steering)
    assume(len(made.groups) == 1)  # or too few slices for all layers at once
    (group,) = made.groups
    assert group.template.name == "pyramid"
    assert tile is None or group.template.tile == tile
    assert overlap is None or group.template.overlap == overlap
    again = plan.read(plan.write(made), network, BOARD_OF_PYRAMIDS)
    assert again.groups[0].template == group.template
    assert again.layers == made.layers
    frames = frames_for(network, 3, 0)
    run = simulation.run(again.configure(), frames, simulation.Options(simulator="amaranth"))
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
    made = plan.make(net, BOARD_OF_PYRAMIDS, dsp=60, template="pyramid", tile=(2, 2), overlap="reuse", groups=groups)
    configs = made.configs()
    assert len(configs) == 2
    assert all(config.start_up for config in configs)
    frames = frames_for(net, 4, 0)
    run = simulation.run_groups(configs, frames, simulation.Options(simulator="amaranth"))
    np.testing.assert_array_equal(run.outputs, golden.run(net, frames))
    predicted = made.placement.predict(4)
    assert (run.latency, run.interval) == (predicted.latency, predicted.interval)


@pytest.mark.long
def test_pyramids_where_rows_do_not_fit():
    """A wide map's rows need block RAM that a small board hasn't got; tiles that are computed again don't."""
    net = network.load("vgg16:2@8x224")
    small = replace(BOARD_OF_PYRAMIDS, bram36=10)
    rows = plan.make(net, BOARD_OF_PYRAMIDS, dsp=60, multipliers="dsp")
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


@pytest.mark.parametrize(("steering", "why"), refusals_in("cuts_steering_that_can_not_work.txt"))
def test_steering_that_can_not_work(steering, why):
    with pytest.raises(PlanError, match=why):
        plan.make(network.load("vgg16:3@16x16"), BOARD_OF_PYRAMIDS, **steering)


@pytest.fixture(scope="module")
def planned() -> tuple[Network, str]:
    net = network.load("vgg16:3@16x16")
    return net, plan.write(plan.make(net, BOARD_OF_PYRAMIDS, template="pyramid", tile=(2, 2)))


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
        plan.read(json.dumps(document), net, BOARD_OF_PYRAMIDS)


@pytest.mark.long
@pytest.mark.parametrize(("interval", "tile"), [(300_000, None), (200_000, (3, 3))])
def test_fewest_slices(interval, tile):
    """What the least interval shows to be possible is not refused."""
    net = network.load("alexnet:4@67x67")
    made = plan.make(net, BOARD_OF_PYRAMIDS, overlap="reload", tile=tile, objective="dsp", interval=interval)
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
    made = plan.make(net, BOARD_OF_PYRAMIDS, template="pyramid", overlap="reload")
    assert made.groups[0].template.pixels == 2
    assert plan.read(plan.write(made), net, BOARD_OF_PYRAMIDS).groups[0].template == made.groups[0].template


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
    assert group.template == PyramidTemplate(tile=(1, 1), overlap="reuse", pixels=pixels)
    assert pyramid_cycles(group.config) <= most
    assert sum(layer.reuse.words for layer in group.config.layers) == 29_327
    assert made.interval < cycles
    assert made.traffic_bytes == {"feature_maps": 3 * 227 * 227 + 256 * 13 * 13, "weights": 0}
