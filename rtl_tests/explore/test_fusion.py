"""Fronts over all groupings, and pyramids' storage and traffic: against listing, the papers' integers, brute force."""

import time
from itertools import pairwise, product
from math import prod

import pytest
from chains import ALEXNET, VGG_11, chains, conv, minimal, pool
from hypothesis import given, settings
from hypothesis import strategies as st
from papers import engines, fused, thesis

from hwgen.errors import InputError
from hwgen.explore import fusion, pyramid
from hwgen.network import shapes
from hwgen.templates.unroll import UnrollChoice
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
        [UnrollChoice(cycles, dsp, Unroll(1, 1, index)) for index, (cycles, dsp) in enumerate(minimal(layer), start=1)]
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
    with pytest.raises(InputError, match="groups must hold each of 3 layers once and in order, as "):
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


ALEXNET_PYRAMID = shapes.load("alexnet-set").layers
VGG19 = shapes.load("vgg19").layers


def square(pairs):
    pairs = list(pairs)
    assert all(a == b for a, b in pairs)
    return [a for a, _ in pairs]


def test_alexnets_pyramid():
    levels = thesis.back_map(ALEXNET_PYRAMID)
    assert square(level.advance for level in levels) == [16, 4, 2, 2]
    assert square(level.tile for level in levels) == [67, 15, 7, 3]
    assert square(level.first for level in levels) == [51, 11, 7, 3]


def test_a_larger_tip():
    # by hand: two 3x3 convolutions widen 4x6 by 2 each
    layers = (conv("a", 1, 1, 16, padding=1), conv("b", 1, 1, 16, padding=1))
    first, second = thesis.back_map(layers, (4, 6))
    assert (second.tile, second.advance, second.first) == ((6, 8), (4, 6), (6, 8))
    assert (first.tile, first.advance, first.first) == ((8, 10), (4, 6), (7, 9))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (ALEXNET_PYRAMID, 17_215),
        (VGG19[:11], 179_568),
        (VGG19, 378_368),
        (shapes.load("vgg16:7").layers, 88_920),
        (shapes.load("alexnet").layers, 65_887),
    ],
)
def test_reuse_storage_as_the_tool_counts(layers, words):
    assert pyramid.reuse_words(layers) == words


def test_reuse_storage_as_the_implementation_counts():
    assert thesis.implementation_words(ALEXNET_PYRAMID) == 48 * (55 + 11) + 48 * 4 * (31 + 7) + 128 * (27 + 3) == 14_304
    assert thesis.implementation_words(shapes.load("vgg16:7").layers) * 4 == 361.5 * 1024


def test_a_pool_without_overlap_keeps_nothing():
    assert pyramid.reuse_words([pool("p", 64, 112)]) == 0
    assert pyramid.reuse_words([pool("p", 1, 9, kernel=1, stride=2)]) == 0


def test_reuse_storage_by_hand():
    # conv a: 2 (3-1) (10 + 2); conv b keeps nothing below the pool's step of 2: 3 (3-1) (8 + 2); pool: 0
    layers = (conv("a", 2, 3, 10), conv("b", 3, 4, 8), pool("p", 4, 6))
    assert pyramid.reuse_words(layers) == 2 * 2 * (10 + 2) + 3 * 2 * (8 + 2)
    assert pyramid.reuse_words(layers, (3, 3)) == 2 * 2 * (10 + 6) + 3 * 2 * (8 + 6)


def test_recomputation_in_alexnet():
    work = pyramid.recomputation(ALEXNET_PYRAMID)
    assert work.multiplications == 164_682_000
    assert work.extra_multiplications == 678_243_456
    assert work.extra_additions == 668_777_472


def test_recomputation_in_vgg():
    work = pyramid.recomputation(VGG19)
    assert work.multiplications == 19_508_428_800
    assert work.extra_multiplications == 470_962_158_336
    assert work.extra_additions == 418_633_029_632
    assert pyramid.recomputation(VGG19[:19]).extra_multiplications == 1_354_831_983_360


def needed(layers, axis, rows):
    """Rows of every layer's input, first layer first, then ``rows``, that the output rows ``rows`` depend on."""
    result = [set(rows)]
    for layer in reversed(layers):
        size = (layer.height, layer.width)[axis]
        window = layer.window
        taps = [tap * window.dilation[axis] for tap in range(window.kernel[axis])]
        rows = {row * window.stride[axis] + tap - window.padding[axis] for row in rows for tap in taps}
        rows = range(min(rows), max(rows) + 1) if rows else ()  # pyramids are solid
        rows = {row for row in rows if 0 <= row < size}
        result.append(rows)
    return result[::-1]


@pytest.mark.long
@settings(max_examples=200)
@given(chains(), st.integers(1, 3), st.integers(1, 3))
def test_recomputation_counted_one_by_one(layers, tall, wide):
    last = layers[-1]
    tip = (min(tall, last.output_height), min(wide, last.output_width))
    sums = []
    for axis, (size, step) in enumerate(zip((last.output_height, last.output_width), tip, strict=True)):
        pyramids = [needed(layers, axis, range(begin, min(begin + step, size))) for begin in range(0, size, step)]
        sums.append([sum(map(len, level)) for level in zip(*pyramids, strict=True)])
    work = pyramid.recomputation(layers, tip)
    assert work.input_words == layers[0].channels * sums[0][0] * sums[1][0]
    assert work.multiplications == sum(layer.macs for layer in layers)
    done = [
        layer.weight_count * rows * columns
        for layer, rows, columns in zip(layers, sums[0][1:], sums[1][1:], strict=True)
    ]
    assert work.multiplications + work.extra_multiplications == sum(done)
    more = [(count - layer.macs) // layer.taps * (layer.taps - 1) for count, layer in zip(done, layers, strict=True)]
    assert work.extra_additions == sum(more)


@given(chains())
def test_tiles_hold_what_an_inner_pyramid_needs(layers):
    """The tile of (3.1) is the span of what one output depends on in a map without edges."""
    for axis in (0, 1):
        span = 1
        low = 0
        for layer, level in zip(reversed(layers), reversed(thesis.back_map(layers)), strict=True):
            kernel, stride, dilation = (
                part[axis] for part in (layer.window.kernel, layer.window.stride, layer.window.dilation)
            )
            taps = {row * stride + tap * dilation for row in (low, low + span - 1) for tap in range(kernel)}
            low, span = min(taps), max(taps) - min(taps) + 1
            assert level.tile[axis] == span
        assert level.advance[axis] == prod(layer.window.stride[axis] for layer in layers)


@given(chains())
def test_a_layer_alone_recomputes_nothing(layers):
    work = pyramid.recomputation(layers[:1])
    assert (work.extra_multiplications, work.extra_additions) == (0, 0)


@given(chains())
def test_one_pyramid_shares_nothing_with_others(layers):
    last = layers[-1]
    work = pyramid.recomputation(layers, (last.output_height, last.output_width))
    assert work.extra_multiplications <= 0  # less than nothing where rows at the end are in no window


def test_traffic():
    assert pyramid.map_traffic([VGG19[:11]]) == 351_232
    assert pyramid.map_traffic([shapes.load("vgg16:7").layers]) == 953_344
    assert pyramid.map_traffic([[layer] for layer in VGG19[:11]]) == 28_449_792


@pytest.mark.parametrize(
    ("layers", "tip", "message"),
    [
        ([], (1, 1), "a pyramid must have at least one layer, not 0"),
        (ALEXNET_PYRAMID, (0, 1), "a pyramid's tip must be between 1x1 and pool2's 13x13, not 0x1"),
        (ALEXNET_PYRAMID, (1, 14), "a pyramid's tip must be between 1x1 and pool2's 13x13, not 1x14"),
        (ALEXNET_PYRAMID[::2], (1, 1), "a pyramid's layers must follow each other: conv2 does not take conv1's map"),
    ],
)
@pytest.mark.parametrize("function", [thesis.back_map, pyramid.recomputation, pyramid.reuse_words])
def test_refusals(function, layers, tip, message):
    with pytest.raises(InputError) as refused:
        function(layers, tip)
    assert str(refused.value) == message


@settings(max_examples=30)
@given(chains())
def test_groups_with_a_common_end_at_once(layers):
    last = layers[-1]
    tip = (min(2, last.output_height), last.output_width)
    tails = [layers[begin:] for begin in range(len(layers))]
    assert pyramid.reuse_words_of_tails(layers, tip) == [pyramid.reuse_words(tail, tip) for tail in tails]
    assert pyramid.recomputation_of_tails(layers, tip) == [pyramid.recomputation(tail, tip) for tail in tails]
