"""Where networks that branch may be cut, and groups of them: plans, values and cycles."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from accelerators import frames_for, from_beats, simulate
from graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from referees import by_integer_kernels

from hwgen import boards, plan
from hwgen import simulate as run
from hwgen.errors import ConfigError, InputError, PlanError
from hwgen.network import golden, load
from hwgen.network.graph import INPUT, Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import quantise
from hwgen.network.zoo.drawing import Drawing
from hwgen.plan import grouping
from hwgen.plan.choose import best_group, plan_of
from hwgen.simulate import check
from hwgen.templates.budget import OverBudgetError
from hwgen.templates.task import Goal, Task

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
@given(network=graphs(most_steps=3))
def test_cuts_against_every_set_of_layers(network):
    names = [layer.name for layer in network.layers]
    if len(names) <= 12:
        assert {frozenset(names[:place]) for place in network.cuts} == one_map_crosses(network)
    assert network.places == (0, *network.cuts, len(names))
    for place in range(1, len(names)):
        copied = place == 1 and network.layers[0].kind == "copy"
        assert (len(network.crossing(place)) == 1 and not copied) == (place in network.cuts)


@settings(max_examples=40)
@given(network=graphs(most_steps=4), data=st.data(), seed=st.integers(0, 99))
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
        InputError, match=r"the maps of conv, stack1_conv1 would cross, where one may; cut behind conv "
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
            "cross, where one may; cut behind conv or stack1_add",
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

    with pytest.raises(
        PlanError, match=r"^in_turn needs two groups, but whole can't be cut: everywhere more than one "
    ):
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
