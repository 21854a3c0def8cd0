"""Unrolling: published optima, every small case against brute force, messages."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.errors import PlanError
from hwgen.plan.unroll import LayerWork, Unroll, choices, cycles, solve


def conv(name, channels, outputs, pixels, taps=9, input_pixels=None, groups=1) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=outputs,
        groups=groups,
        pixels=pixels,
        input_pixels=pixels if input_pixels is None else input_pixels,
        taps=taps,
        depthwise=False,
    )


def pool(name, channels, pixels, input_pixels, taps=4) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=channels,
        groups=1,
        pixels=pixels,
        input_pixels=input_pixels,
        taps=taps,
        depthwise=True,
    )


def multipliers(work: LayerWork, unroll: Unroll) -> int:
    return 0 if work.depthwise else unroll.tn * unroll.tm * unroll.tk


def with_requantisers(work: LayerWork, unroll: Unroll) -> int:
    """Two more slices for each channel finished a cycle."""
    if work.depthwise:
        return 0
    folds = -(-work.channels // work.groups // unroll.tn) * -(-work.taps // unroll.tk)
    return multipliers(work, unroll) + 2 * -(-unroll.tm // folds)


VGG7 = [
    conv("conv1_1", 3, 64, 224**2),
    conv("conv1_2", 64, 64, 224**2),
    pool("pool1", 64, 112**2, 224**2),
    conv("conv2_1", 64, 128, 112**2),
    conv("conv2_2", 128, 128, 112**2),
    pool("pool2", 128, 56**2, 112**2),
    conv("conv3_1", 128, 256, 56**2),
]
VGG16 = [
    *VGG7,
    conv("conv3_2", 256, 256, 56**2),
    conv("conv3_3", 256, 256, 56**2),
    pool("pool3", 256, 28**2, 56**2),
    conv("conv4_1", 256, 512, 28**2),
    conv("conv4_2", 512, 512, 28**2),
    conv("conv4_3", 512, 512, 28**2),
    pool("pool4", 512, 14**2, 28**2),
    conv("conv5_1", 512, 512, 14**2),
    conv("conv5_2", 512, 512, 14**2),
    conv("conv5_3", 512, 512, 14**2),
    pool("pool5", 512, 7**2, 14**2),
]
# LeCun et al. 1998 with its layers fully connected in depth: 32 x 32 input, 5 x 5 windows, 416,520 MACs.
LENET5 = [
    conv("conv1", 1, 6, 28**2, 25, 32**2),
    pool("pool1", 6, 14**2, 28**2),
    conv("conv2", 6, 16, 10**2, 25, 14**2),
    pool("pool2", 16, 5**2, 10**2),
    conv("conv3", 16, 120, 1, 25, 5**2),
    conv("fc1", 120, 84, 1, 1),
    conv("fc2", 84, 10, 1, 1),
]
CIFAR_VGG6 = [
    conv("conv1_1", 3, 32, 32**2),
    conv("conv1_2", 32, 32, 32**2),
    pool("pool1", 32, 16**2, 32**2),
    conv("conv2_1", 32, 64, 16**2),
    conv("conv2_2", 64, 64, 16**2),
    pool("pool2", 64, 8**2, 16**2),
    conv("conv3_1", 64, 128, 8**2),
    conv("conv3_2", 128, 128, 8**2),
    pool("pool3", 128, 4**2, 8**2),
    conv("fc", 128, 10, 1, 16, 4**2),
]


def macs(works) -> int:
    return sum(w.pixels * w.channels * w.outputs * w.taps for w in works if not w.depthwise)


def test_macs():
    """The layer lists are those whose optima are known."""
    assert macs(VGG7) == 5_635_768_320
    assert macs(VGG16) == 15_346_630_656
    assert macs(LENET5) == 416_520
    assert macs(CIFAR_VGG6) == 38_653_952


@pytest.mark.parametrize(
    ("works", "budget", "interval", "used"),
    [
        (VGG7, 2907, 2_007_040, 2853),
        (VGG7, 3600, 1_605_632, 3510),
        (VGG7, 220, 25_690_112, 220),
        (VGG7[:-1], 220, 22_880_256, None),
        (LENET5, 220, 2_352, None),
        (CIFAR_VGG6, 220, 184_320, None),
    ],
)
def test_optima(works, budget, interval, used):
    """Optima of one engine a layer, ``ceil`` folds, one MAC a slice."""
    unrolls = solve(works, budget, multipliers)
    assert max(map(cycles, works, unrolls)) == interval
    total = sum(map(multipliers, works, unrolls))
    assert total <= budget
    assert used is None or total == used


def test_divisors_only_is_worse():
    """With channel counts divided evenly VGG-16's first seven layers take 2,408,448 cycles in 2907 slices."""

    def only_divisors(work, unroll):
        even = work.channels % unroll.tn == 0 and work.outputs % unroll.tm == 0
        return multipliers(work, unroll) if even else 10**9

    unrolls = solve(VGG7, 2907, only_divisors)
    assert max(map(cycles, VGG7, unrolls)) == 2_408_448
    assert sum(map(multipliers, VGG7, unrolls)) == 2340


def test_fast():
    start = time.process_time()
    solve(VGG16, 3600, with_requantisers)
    assert time.process_time() - start < 1


@st.composite
def works(draw, number: int) -> LayerWork:
    groups = draw(st.sampled_from([1, 1, 2]))
    pixels = draw(st.integers(1, 9))
    common = {"name": f"layer{number}", "pixels": pixels, "input_pixels": draw(st.integers(1, 4 * pixels))}
    taps = draw(st.sampled_from([1, 4, 6, 9]))
    if draw(st.booleans()):
        channels = draw(st.integers(1, 6))
        return LayerWork(**common, channels=channels, outputs=channels, groups=1, taps=taps, depthwise=True)
    channels, outputs = (groups * draw(st.integers(1, 6)) for _ in range(2))
    return LayerWork(**common, channels=channels, outputs=outputs, groups=groups, taps=taps, depthwise=False)


def rank(cost, work, unroll):
    """The documented preference."""
    return cost(work, unroll), -unroll.tn * unroll.tk / unroll.tm, unroll.tn, unroll.tm


def every(work: LayerWork, taps_a_cycle=lambda tk: True) -> list[Unroll]:
    groups = 1 if work.depthwise else work.groups
    return [
        Unroll(tn, tm, tk)
        for tk in range(1, work.taps + 1)
        if work.taps % tk == 0 and taps_a_cycle(tk)
        for tn in range(1, work.channels // groups + 1)
        for tm in ([tn] if work.depthwise else range(1, work.outputs // groups + 1))
    ]


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=2).flatmap(lambda ns: st.tuples(*(works(n) for n in ns))),
    st.integers(0, 120),
    st.sampled_from([multipliers, with_requantisers]),
    st.sampled_from([lambda tk: True, lambda tk: tk != 2, lambda tk: tk == 1]),
)
def test_brute_force(layers, budget, cost, taps_a_cycle):
    """Every combination of factors, on small layers."""
    best = min(
        (
            (max(map(cycles, layers, unrolls)), total, [rank(cost, w, u) for w, u in zip(layers, unrolls, strict=True)])
            for unrolls in product(*(every(work, taps_a_cycle) for work in layers))
            if (total := sum(map(cost, layers, unrolls))) <= budget
        ),
        default=None,
    )
    if best is None:
        with pytest.raises(PlanError):
            solve(layers, budget, cost, lambda work, tk: taps_a_cycle(tk))
        return
    unrolls = solve(layers, budget, cost, lambda work, tk: taps_a_cycle(tk))
    assert all(unroll in every(work, taps_a_cycle) for work, unroll in zip(layers, unrolls, strict=True))
    total = sum(map(cost, layers, unrolls))
    assert (max(map(cycles, layers, unrolls)), total) == best[:2]
    # With interval and total fixed each layer is free to take its own best.
    for work, unroll in zip(layers, unrolls, strict=True):
        allowed = [other for other in every(work, taps_a_cycle) if cycles(work, other) <= best[0]]
        assert rank(cost, work, unroll) == min(rank(cost, work, other) for other in allowed)


@given(works(0), st.sampled_from([multipliers, with_requantisers]))
def test_choices_are_the_front(work, cost):
    """Cycles and cost of the choices are those of the front over all factors."""
    found = {(choice.cycles, choice.cost) for choice in choices(work, cost)}
    all_ = {(cycles(work, unroll), cost(work, unroll)) for unroll in every(work)}
    front = {
        one for one in all_ if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in all_)
    }
    assert front <= found <= all_


def test_cycles():
    """By hand: strides and pools are bound by their input."""
    assert cycles(conv("c", 3, 64, 100), Unroll(3, 5, 3)) == 100 * 1 * 13 * 3
    assert cycles(conv("c", 3, 4, 25, input_pixels=100), Unroll(2, 4, 9)) == 100 * 2
    assert cycles(conv("c", 8, 6, 10, groups=2), Unroll(3, 2, 9)) == 10 * 2 * 2 * 2
    assert cycles(pool("p", 5, 25, 100), Unroll(2, 2, 4)) == 100 * 3
    assert cycles(pool("p", 5, 25, 100), Unroll(2, 2, 1)) == 25 * 3 * 4
    assert cycles(pool("p", 5, 25, 50), Unroll(5, 5, 2)) == 50


def test_preference():
    """Long chains before many accumulators; pools take the fewest lanes that keep the interval."""
    layers = [conv("conv", 4, 4, 100), pool("pool", 4, 25, 100)]
    assert solve(layers, 36, multipliers) == [Unroll(4, 1, 9), Unroll(1, 1, 4)]


def test_nothing():
    assert solve([], 0, multipliers) == []


@pytest.mark.parametrize(
    ("layers", "buildable", "message"),
    [
        (LENET5, None, r"no unrolling fits 4 multipliers: the least is 5 \(conv1 1, conv2 1, conv3 1, fc1 1, fc2 1\)"),
        (LENET5, lambda work, tk: tk == 5, r"pool1: none of its 4 taps' divisors can be built as taps a cycle"),
    ],
)
def test_refused(layers, buildable, message):
    with pytest.raises(PlanError, match=message):
        solve(layers, 4, multipliers, buildable)
