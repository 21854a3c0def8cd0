"""Fronts over all groupings: against listing them, and against the papers' integers."""

from __future__ import annotations

import time
from itertools import pairwise, product

import pytest
from chains import ALEXNET, VGG_11, chains, minimal
from hypothesis import given, settings
from hypothesis import strategies as st
from papers import engines, fused

from hwgen.errors import InputError
from hwgen.explore import fusion, pyramid
from hwgen.network import shapes
from hwgen.templates.unroll import Choice
from hwgen.templates.work import Unroll


def groupings(count):
    for cuts in product((False, True), repeat=count - 1):
        edges = [0, *(index for index, cut in enumerate(cuts, start=1) if cut), count]
        yield tuple(pairwise(edges))


def parts(layers, groups):
    return [layers[begin:end] for begin, end in groups]


@settings(max_examples=100)
@given(chains())
def test_storage_against_traffic_as_listed(layers):
    def costs(groups):
        words = [pyramid.reuse_words(group) for group in parts(layers, groups)]
        return max(words), pyramid.map_traffic(parts(layers, groups))

    points = fusion.storage_traffic(layers)
    found = [(point.storage_words, point.traffic_words) for point in points]
    assert found == minimal(costs(groups) for groups in groupings(len(layers)))
    assert [costs(point.groups) for point in points] == found


@settings(max_examples=100)
@given(chains(), st.data())
def test_dsp_against_traffic_as_listed(layers, data):
    multipliers = data.draw(st.lists(st.integers(0, 5), min_size=len(layers), max_size=len(layers)))

    def costs(groups):
        return max(sum(multipliers[b:e]) for b, e in groups), pyramid.map_traffic(parts(layers, groups))

    points = fusion.dsp_traffic(layers, multipliers)
    found = [(point.dsp, point.traffic_words) for point in points]
    assert found == minimal(costs(groups) for groups in groupings(len(layers)))
    assert [costs(point.groups) for point in points] == found


def overlap_costs(layers, groups, overlap):
    storage, multiplications, traffic = 0, 0, 0
    for group, kind in zip(parts(layers, groups), overlap, strict=True):
        work = pyramid.recomputation(group)
        multiplications += work.multiplications
        traffic += group[-1].output_words
        if kind == "reuse":
            storage = max(storage, pyramid.reuse_words(group))
            traffic += group[0].input_words
        else:
            multiplications += work.extra_multiplications
            traffic += work.input_words
    return storage, multiplications, traffic


@pytest.mark.long
@settings(max_examples=60)
@given(chains(most=5), st.data())
def test_reuse_or_recompute_as_listed(layers, data):
    every = list(groupings(len(layers)))

    def listed(some):
        for groups in some:
            for overlap in product(("reuse", "recompute"), repeat=len(groups)):
                yield overlap_costs(layers, groups, overlap)

    points = fusion.storage_multiplications(layers)
    found = [(point.storage_words, point.multiplications, point.traffic_words) for point in points]
    assert found == minimal(listed(every))
    assert [overlap_costs(layers, point.groups, point.overlap) for point in points] == found

    groups = data.draw(st.sampled_from(every))
    points = fusion.storage_multiplications(layers, groups)
    assert all(point.groups == groups for point in points)
    found = [(point.storage_words, point.multiplications) for point in points]
    assert found == minimal(costs[:2] for costs in listed([groups]))
    assert [overlap_costs(layers, groups, point.overlap)[:2] for point in points] == found


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5), min_size=1, max_size=4)
)
def test_dsp_against_cycles_as_listed(costs):
    choices = [
        [Choice(cycles, dsp, Unroll(1, 1, index)) for index, (cycles, dsp) in enumerate(minimal(layer), start=1)]
        for layer in costs
    ]
    points = fusion.dsp_cycles(choices)
    listed = [(sum(c.cost for c in some), max(c.cycles for c in some)) for some in product(*choices)]
    assert [(point.dsp, point.cycles) for point in points] == minimal(listed)
    for point in points:
        taken = [options[unroll.tk - 1] for options, unroll in zip(choices, point.unroll, strict=True)]
        assert (sum(c.cost for c in taken), max(c.cycles for c in taken)) == (point.dsp, point.cycles)


def test_dsp_against_cycles_of_nothing():
    assert fusion.dsp_cycles([]) == []


# Figures of the papers. KB of 1,024 B, MB of 1,000 KB.


def kilobytes(points):
    return [(round(p.storage_words * 4 / 1024, 2), round(p.traffic_words * 4 / 1_024_000, 3)) for p in points]


def test_fronts_of_the_thesis():
    vgg = fusion.storage_traffic(shapes.load("vgg19").first(11).layers)
    assert kilobytes(vgg) == VGG_11
    words = {(point.storage_words, point.traffic_words) for point in vgg}
    assert {(29_184, 18_816_000), (59_392, 4_365_312), (179_568, 351_232)} <= words
    assert kilobytes(fusion.storage_traffic(shapes.load("alexnet").layers)) == ALEXNET


def test_all_of_vgg_in_seconds():
    layers = shapes.load("vgg19").layers
    begin = time.process_time()
    points = fusion.storage_traffic(layers)
    assert time.process_time() - begin < 10
    assert (points[-1].storage_words, points[-1].traffic_words) == (378_368, 175_616)
    assert points[-1].groups == ((0, 21),)
    assert len(points) == 23


def test_dsp_against_traffic_of_decoilfnet():
    layers = shapes.load("vgg16:7").layers
    points = fusion.dsp_traffic(layers, fused.decoilfnet_multipliers(layers))
    # in units of 224 * 224 words
    assert [(point.dsp, point.traffic_words / 224**2) for point in points] == [(1152, 67), (1755, 35), (2907, 19)]
    assert points[1].groups == ((0, 6), (6, 7))


def test_dsp_against_cycles_of_alexnet():
    """Thesis, Fig. 4.4: about 1,200 cycles at about 3,600 DSP is not reached."""
    points = {point.dsp: point.cycles for point in fused.alexnet_cycles()}
    assert {3460: 1400, 3768: 1210, 3844: 1200}.items() <= points.items()
    assert min(cycles for dsp, cycles in points.items() if dsp <= 3600) == 1400
    assert -(-5 * engines.pyramid_macs(shapes.load("alexnet-set").layers) // 3600) == 1241


@pytest.mark.parametrize(
    "groups", [[], [(0, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)], [(1, 3), (0, 1)], [(0, 0), (0, 3)], [(0, 4)]]
)
def test_groupings_that_are_none(groups):
    layers = shapes.load("vgg16:3").layers
    with pytest.raises(InputError, match="groups must hold each of 3 layers once and in order, not"):
        fusion.storage_multiplications(layers, groups)


def test_multipliers_for_each_layer():
    with pytest.raises(InputError, match="multipliers must be given for each of 3 layers, not for 2"):
        fusion.dsp_traffic(shapes.load("vgg16:3").layers, [1, 2])


def test_pyramids_are_mapped_back_once_for_each_last_layer(monkeypatch):
    """Not for each of the ``l (l + 1) / 2`` groups: deep networks have thousands."""
    mapped = []
    monkeypatch.setattr(pyramid, "_extents", lambda *args, found=pyramid._extents: mapped.append(args) or found(*args))
    layers = shapes.load("vgg19").layers
    fusion.storage_multiplications(layers)
    assert len(mapped) == 2 * len(layers)
