"""Unrolling: published optima, every small case against brute force, messages."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layer_works import chains, conv, every, joined, module, pool, works

from hwgen.templates.unroll import by_cost, choices, cycles, interval, least_text
from hwgen.templates.work import LayerWork, Unroll


def multipliers(work: LayerWork, unroll: Unroll) -> int:
    if work.channelwise:
        return unroll.tn * unroll.tk * unroll.tp if work.weighted else 0
    return unroll.tn * unroll.tm * unroll.tk * unroll.tp


def with_requantisers(work: LayerWork, unroll: Unroll) -> int:
    """Two more slices for each channel finished a cycle."""
    if not work.weighted:
        return 0
    folds = -(-work.taps // unroll.tk) * (1 if work.channelwise else -(-work.channels // work.groups // unroll.tn))
    return multipliers(work, unroll) + 2 * -(-unroll.tm // folds) * unroll.tp


VGG7 = [
    conv("conv1_1", 3, 64, 224),
    conv("conv1_2", 64, 64, 224),
    pool("pool1", 64, 112, 224),
    conv("conv2_1", 64, 128, 112),
    conv("conv2_2", 128, 128, 112),
    pool("pool2", 128, 56, 112),
    conv("conv3_1", 128, 256, 56),
]
VGG16 = [
    *VGG7,
    conv("conv3_2", 256, 256, 56),
    conv("conv3_3", 256, 256, 56),
    pool("pool3", 256, 28, 56),
    conv("conv4_1", 256, 512, 28),
    conv("conv4_2", 512, 512, 28),
    conv("conv4_3", 512, 512, 28),
    pool("pool4", 512, 14, 28),
    conv("conv5_1", 512, 512, 14),
    conv("conv5_2", 512, 512, 14),
    conv("conv5_3", 512, 512, 14),
    pool("pool5", 512, 7, 14),
]
# LeCun et al. 1998 with its layers fully connected in depth: 32 x 32 input, 5 x 5 windows, 416,520 MACs.
LENET5 = [
    conv("conv1", 1, 6, 28, 25, 32),
    pool("pool1", 6, 14, 28),
    conv("conv2", 6, 16, 10, 25, 14),
    pool("pool2", 16, 5, 10),
    conv("conv3", 16, 120, 1, 25, 5),
    conv("fc1", 120, 84, 1, 1),
    conv("fc2", 84, 10, 1, 1),
]
CIFAR_VGG6 = [
    conv("conv1_1", 3, 32, 32),
    conv("conv1_2", 32, 32, 32),
    pool("pool1", 32, 16, 32),
    conv("conv2_1", 32, 64, 16),
    conv("conv2_2", 64, 64, 16),
    pool("pool2", 64, 8, 16),
    conv("conv3_1", 64, 128, 8),
    conv("conv3_2", 128, 128, 8),
    pool("pool3", 128, 4, 8),
    conv("fc", 128, 10, 1, 16, 4),
]


def macs(works) -> int:
    return sum(w.height * w.width * w.channels * w.outputs * w.taps for w in works if not w.channelwise)


def test_macs():
    """The layer lists are those whose optima are known."""
    assert macs(VGG7) == 5_635_768_320
    assert macs(VGG16) == 15_346_630_656
    assert macs(LENET5) == 416_520
    assert macs(CIFAR_VGG6) == 38_653_952


def solve(works, budget, cost):
    """Factors of the least interval within the budget, then of the least total; ``None`` if nothing fits."""
    found = by_cost(works, cost).limited(budget).fastest_within()
    return None if found is None else list(found[1].unrolls)


def divisors(cost):
    """The family whose taps a cycle divide the kernel."""
    return lambda work, unroll: np.where(work.taps % unroll.tk == 0, cost(work, unroll), 10**9)


def one_pixel(cost):
    """The family of one output pixel a cycle."""
    return lambda work, unroll: cost(work, unroll) + (0 if unroll.tp == 1 else 10**9)


@pytest.mark.parametrize(
    ("works", "budget", "cycles", "used"),
    [
        (VGG7, 2907, 2_007_040, 2853),
        (VGG7, 3600, 1_605_632, 3510),
        (VGG7, 220, 25_690_112, 220),
        (VGG7[:-1], 220, 22_880_256, None),
        (LENET5, 220, 2_352, None),
        (CIFAR_VGG6, 220, 184_320, None),
    ],
)
def test_optima(works, budget, cycles, used):
    """Optima of one engine a layer, ``ceil`` folds, taps by divisors, one pixel a cycle, one MAC a slice."""
    unrolls = solve(works, budget, divisors(one_pixel(multipliers)))
    assert interval(works, unrolls) == cycles
    total = sum(map(multipliers, works, unrolls))
    assert total <= budget
    assert used is None or total == used
    assert all(unroll.tp == 1 for unroll in unrolls)
    free = solve(works, budget, multipliers)
    assert interval(works, free) <= cycles
    assert sum(map(multipliers, works, free)) <= budget


@pytest.mark.parametrize(
    ("works", "budget", "cycles"),
    [
        (VGG7, 2907, 2_007_040),
        (VGG7, 3600, 1_605_632),
        (VGG7, 220, 25_690_112),
        (VGG7[:-1], 220, 22_020_096),
        (CIFAR_VGG6, 220, 184_320),
    ],
)
def test_optima_with_pixels(works, budget, cycles):
    """The same with up to 16 pixels a cycle."""
    assert interval(works, solve(works, budget, divisors(multipliers))) == cycles


def test_divisors_only_is_worse():
    """With channel counts divided evenly VGG-16's first seven layers take 2,408,448 cycles in 2907 slices."""

    def only_divisors(work, unroll):
        even = (work.channels % unroll.tn == 0) & (work.outputs % unroll.tm == 0)
        return np.where(even, multipliers(work, unroll), 10**9)

    unrolls = solve(VGG7, 2907, divisors(one_pixel(only_divisors)))
    assert interval(VGG7, unrolls) == 2_408_448
    assert sum(map(multipliers, VGG7, unrolls)) == 2340


def test_fast():
    start = time.process_time()
    solve(VGG16, 3600, with_requantisers)
    assert time.process_time() - start < 1


def luts(work, unroll):
    """As documented: 30 for each activation and each sum, 18 for each chain that is added to a sum."""
    if not work.weighted:
        return unroll.tn * unroll.tp * (unroll.tk * 20 + 40)
    activations = unroll.tn * unroll.tk
    joins = ((unroll.tk if work.channelwise else activations) - 1) // 16
    return unroll.tp * (30 * activations + 30 * unroll.tm + 18 * unroll.tm * joins)


def rank(cost, work, unroll):
    """The documented preference."""
    return cost(work, unroll), luts(work, unroll), unroll.tn, unroll.tm, unroll.tp


def slow_cycles(work: LayerWork, unroll: Unroll, source: int) -> int:
    """By the loops: every window's output folds, tap folds and input folds; every input row's beats."""
    groups = 1 if work.channelwise else work.groups
    tap_folds = len(range(0, work.taps, unroll.tk))
    tn_folds = len(range(0, work.channels // groups, unroll.tn))
    tm_folds = len(range(0, work.outputs // groups, unroll.tm))
    steps = work.height * len(range(0, work.width, unroll.tp))
    walk = steps * tap_folds * (tn_folds if work.channelwise else groups * tm_folds * tn_folds)
    return max(walk, work.input_height * len(range(0, work.input_width, source)) * groups * tn_folds)


def brute_force(layers, budget, cost):
    """Every chain of factors, layer by layer: the least interval, total, LUTs, ranks."""
    ways = [(0, 0, 0, (), ())]  # interval, total, LUTs, ranks, factors
    for number, work in enumerate(layers):
        options = every(work, pixels=16)
        best: dict[tuple, tuple] = {}
        for count, total, fabric, ranks, factors in ways:
            for unroll in options:
                source = factors[-1].tp if number else unroll.tp
                after = (
                    max(count, slow_cycles(work, unroll, source)),
                    total + cost(work, unroll),
                    fabric + luts(work, unroll),
                    (*ranks, rank(cost, work, unroll)),
                    (*factors, unroll),
                )
                if after[1] <= budget:
                    state = (unroll.tp, after[0], after[1])
                    best[state] = min(best.get(state, after), after, key=lambda way: way[:4])
        ways = list(best.values())
    return min(ways, key=lambda way: way[:4], default=None)


@settings(max_examples=100)
@given(
    chains(),
    st.integers(0, 120),
    st.sampled_from([multipliers, with_requantisers]),
)
def test_brute_force(layers, budget, cost):
    """Every combination of factors, on small layers: interval, total, LUTs, and the preference."""
    best = brute_force(layers, budget, cost)
    unrolls = solve(layers, budget, cost)
    assert (unrolls is None) == (best is None)
    assume(unrolls is not None)
    assert interval(layers, unrolls) == best[0]
    assert sum(map(cost, layers, unrolls)) == best[1]
    assert sum(map(luts, layers, unrolls)) == best[2]
    assert tuple(unrolls) == best[4]


@pytest.mark.parametrize("most", [4, 6, 11, 30])
def test_brute_force_of_branches(most):
    """All pixels that layers may have: given these, each is as cheap as it can be by itself."""
    layers = module(2, 4)

    def least(work: LayerWork, pixels: int, source: int) -> tuple[int, int]:
        fast = [each for each in every(work, pixels=4) if each.tp == pixels and cycles(work, each, source) <= most]
        return min(((multipliers(work, each), luts(work, each)) for each in fast), default=(10**9, 0))

    table = {(work.name, tp, of): least(work, tp, of) for work in layers for tp, of in product(range(1, 5), repeat=2)}
    best = min(
        tuple(
            map(
                sum,
                zip(
                    table["in", begin, begin],
                    table["first0", one, begin],
                    table["first1", two, begin],
                    table["second0", end, one],
                    table["second1", end, two],
                    table["join", end, end],
                    strict=True,
                ),
            )
        )
        for begin, one, two, end in product(range(1, 5), repeat=4)
    )
    found = by_cost(layers, multipliers).cheapest(most)
    assert found is not None
    assert (found.cost, found.luts) == best < (10**9, 0)


def test_many_branches():
    """Branches that meet are alike, and one after the other is followed: their combinations are not all looked at."""
    start = time.process_time()
    assert by_cost(module(8, 16), multipliers).cheapest(40) is not None
    assert time.process_time() - start < 5


@settings(max_examples=60)
@given(layers=joined(), most=st.integers(2, 40))
def test_brute_force_of_a_join(layers, most):
    """The cheapest of all factors with which what is joined has as many pixels."""
    options = [every(work, pixels=16) for work in layers]
    best = None
    for tp in range(1, layers[0].width + 1):
        # A layer that is joined computes as many pixels as the join, so that each is as cheap as it can be by itself.
        ways = []
        for work, unrolls in zip(layers, options, strict=True):
            fast = [each for each in unrolls if each.tp == tp and slow_cycles(work, each, tp) <= most]
            ways.append(min(((multipliers(work, each), luts(work, each)) for each in fast), default=None))
        if None not in ways:
            total = tuple(map(sum, zip(*ways, strict=True)))
            best = min(best or total, total)
    found = by_cost(layers, multipliers).cheapest(most)
    assert (found and (found.cost, found.luts)) == best
    assert found is None or len({unroll.tp for unroll in found.unrolls}) == 1


@given(works(0), st.sampled_from([multipliers, with_requantisers]))
def test_choices_are_the_front(work, cost):
    """Cycles and cost of the choices are those of the front over all factors."""
    found = {(choice.cycles, choice.cost) for choice in choices(work, cost)}
    all_ = {(cycles(work, unroll), cost(work, unroll)) for unroll in every(work)}
    front = {
        one for one in all_ if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in all_)
    }
    assert front <= found <= all_


@given(
    works(0).flatmap(lambda work: st.tuples(st.just(work), st.sampled_from(every(work, pixels=16)))), st.integers(1, 9)
)
def test_cycles_by_loops(drawn, source):
    work, unroll = drawn
    assert cycles(work, unroll, source) == slow_cycles(work, unroll, source)


def test_cycles():
    """By hand: strides and pools are bound by their input."""
    assert cycles(conv("c", 3, 64, 10), Unroll(3, 5, 3)) == 100 * 1 * 13 * 3
    assert cycles(conv("c", 3, 64, 10), Unroll(3, 5, 4, 3)) == 10 * 4 * 1 * 13 * 3
    assert cycles(conv("c", 3, 4, 5, input_side=10), Unroll(2, 4, 9)) == 100 * 2
    assert cycles(conv("c", 3, 4, 5, input_side=10), Unroll(2, 4, 9), 3) == 10 * 4 * 2
    assert cycles(conv("c", 8, 6, 4, groups=2), Unroll(3, 2, 9)) == 16 * 2 * 2 * 2
    assert cycles(pool("p", 5, 5, 10), Unroll(2, 2, 4)) == 100 * 3
    assert cycles(pool("p", 5, 5, 10), Unroll(2, 2, 1)) == 25 * 3 * 4
    assert cycles(pool("p", 5, 5, 7), Unroll(5, 5, 2)) == 50


def test_preference():
    """Of 36 multipliers, 9 activations for 4 sums rather than 36 for one; pools do no more than they must."""
    layers = [conv("conv", 4, 4, 10), pool("pool", 4, 5, 10)]
    assert solve(layers, 36, multipliers) == [Unroll(1, 4, 9), Unroll(1, 1, 1)]


def test_least_text():
    assert solve(LENET5, 4, multipliers) is None
    text = "the least is 5 (conv1 1, conv2 1, conv3 1, fc1 1, fc2 1)"
    assert least_text(by_cost(LENET5, multipliers)) == text
