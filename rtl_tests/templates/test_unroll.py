"""Unrolling under one or two budgets: published optima, brute force, an integer program, messages."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from counted import counted
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from hwgen.gateware.multipliers import MULTIPLIERS
from hwgen.templates.factor_paths import Budget
from hwgen.templates.two_prices import Form, Prices, Terms, by_prices
from hwgen.templates.unroll import by_cost, choices, cycles, interval, min_text
from hwgen.templates.work import LayerWork, TurnOrder, Unroll, ceil_div, lanes_out


def conv(name, channels, outputs, side, taps=9, input_side=None, groups=1) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=outputs,
        groups=groups,
        height=side,
        width=side,
        input_height=input_side or side,
        input_width=input_side or side,
        taps=taps,
        channelwise=False,
    )


def pool(name, channels, side, input_side, taps=4) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=channels,
        groups=1,
        height=side,
        width=side,
        input_height=input_side,
        input_width=input_side,
        taps=taps,
        channelwise=True,
        weighted=False,
    )


@st.composite
def works(draw, number: int) -> LayerWork:
    groups = draw(st.sampled_from([1, 1, 2]))
    sides = {name: draw(st.integers(1, 4)) for name in ("height", "width")}
    sides |= {f"input_{name}": draw(st.integers(1, 2 * size + 1)) for name, size in sides.items()}
    common = {"name": f"layer{number}", **sides, "taps": draw(st.sampled_from([1, 4, 5, 6, 9]))}
    common |= {"whole_windows": draw(st.sampled_from([False, False, True]))}
    if draw(st.booleans()):
        channels = draw(st.integers(1, 6))
        weighted = draw(st.booleans())
        return LayerWork(**common, channels=channels, outputs=channels, groups=1, channelwise=True, weighted=weighted)
    channels, outputs = (groups * draw(st.integers(1, 5)) for _ in range(2))
    return LayerWork(**common, channels=channels, outputs=outputs, groups=groups, channelwise=False)


@st.composite
def chains(draw) -> list[LayerWork]:
    """One to three layers, each as wide as the one before leaves it."""
    layers = []
    for number in range(draw(st.integers(1, 3))):
        work = draw(works(number))
        if layers:
            work = replace(work, input_width=layers[-1].width, input_height=layers[-1].height)
        layers.append(work)
    return layers


def every(work: LayerWork, pixels=1) -> list[Unroll]:
    """All factors; but of taps that need as many folds only the least, and all taps where windows are taken whole."""
    groups = 1 if work.channelwise else work.groups
    taps = range(1, work.taps + 1)
    taps = [tk for tk in taps if not any(o < tk and -(-work.taps // o) == -(-work.taps // tk) for o in taps)]
    return [
        Unroll(tn, tm, tk, tp)
        for tk in (taps[-1:] if work.whole_windows else taps)
        for tn in range(1, work.channels // groups + 1)
        for tm in ([tn] if work.channelwise else range(1, work.outputs // groups + 1))
        for tp in range(1, min(pixels, work.width) + 1)
    ]


@st.composite
def joined(draw) -> list[LayerWork]:
    """Two layers, one behind the other, and a third that takes both outputs step by step."""
    channels, taps = draw(st.integers(1, 3)), draw(st.tuples(*[st.sampled_from([1, 3])] * 2))
    size = {"height": draw(st.integers(1, 2)), "width": draw(st.integers(1, 5)), "channels": channels}
    size |= {"outputs": channels, "input_height": size["height"], "input_width": size["width"], "groups": 1}
    first, second = (LayerWork(name=f"c{n}", **size, taps=taps[n], channelwise=draw(st.booleans())) for n in (0, 1))
    end = LayerWork(
        **{**size, "name": "end", "taps": 1, "channelwise": True, "weighted": False, "back": (1, 2), "direct_inputs": 2}
    )
    return [first, second, end]


def module(branches: int, width: int) -> list[LayerWork]:
    """Branches of two convolutions each as in an inception module: all first ones, all second ones, a join."""
    size = {"height": 1, "width": width, "input_height": 1, "input_width": width, "groups": 1, "channelwise": False}
    layers = [LayerWork(name="in", **size, channels=2, outputs=2, taps=1)]
    layers += [
        LayerWork(name=f"first{n}", **size, channels=2, outputs=1 + n % 3, taps=1 + n, back=(1 + n,))
        for n in range(branches)
    ]
    layers += [
        LayerWork(name=f"second{n}", **size, channels=1 + n % 3, outputs=2, taps=3 - n % 3, back=(branches,))
        for n in range(branches)
    ]
    join = {"channels": 2 * branches, "outputs": 2 * branches, "channelwise": True, "taps": 1, "weighted": False}
    back = tuple(range(branches, 0, -1))
    return [
        *layers,
        LayerWork(name="join", **{**size, **join}, back=back, direct_inputs=branches, order=TurnOrder((2,) * branches)),
    ]


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
    assert min_text(by_cost(LENET5, multipliers)) == text


MOST = 16
"""Number of output pixels per cycle that layers have at most."""


@dataclass(frozen=True)
class SmallPrices(Prices):
    """Costs of layers whose products take slices, or LUTs: fewer of them where weights are constants."""

    multiplier: int | str
    product_luts: int
    finish: int
    in_slices: bool = True
    in_luts: bool = True

    def forms(self, work):
        if not work.weighted:
            return (Form(),)
        return (Form(MULTIPLIERS[self.multiplier], self.in_slices, self.in_luts),)

    def terms(self, work, unroll, form):
        lanes = unroll.tp * lanes_out(work, unroll)
        luts = unroll.tp * (7 * unroll.tn * unroll.tk + 5 * unroll.tm)
        if not work.weighted:
            return Terms(0, lanes, lanes, 0, luts)
        units = work.products(unroll) * ceil_div(unroll.tp, MULTIPLIERS[self.multiplier].pixels)
        constant = work.pixel_cycles(unroll) <= 4
        each = self.product_luts - (self.product_luts // 2) * constant
        memory = work.products(unroll) * 2 * (~constant if hasattr(constant, "dtype") else not constant)
        return Terms(
            units,
            self.finish * lanes,
            (self.finish + 1) * lanes,
            unroll.tp * work.products(unroll) * each,
            luts + memory * unroll.tm,
        )

    def costs(self, work: LayerWork, unroll: Unroll, lut_lanes: int) -> tuple[int, int]:
        """Slices and LUTs of a layer that divides its output channels, as documented for `Terms`."""
        (form,) = self.forms(work)
        terms = self.terms(work, unroll, form)
        slice_lanes = unroll.tm - lut_lanes
        finish = max(
            terms.finish_slices if slice_lanes else 0,
            terms.lut_finish_slices if lut_lanes else 0,
        )
        slices = ceil_div(slice_lanes, form.lanes) * terms.unit_slices + finish
        return int(slices), int(lut_lanes * terms.lane_luts + terms.luts)

    def divisions(self, work: LayerWork, unroll: Unroll) -> list[int]:
        """Output channels in LUTs that a layer can have."""
        (form,) = self.forms(work)
        if not form.in_luts:
            return [0]
        return [*range(unroll.tm + 1)] if form.in_slices else [unroll.tm]


class Program:
    """Integer program of a group's layers: one choice for each, and the joint maps have equal pixels per cycle."""

    def __init__(self, works: list[LayerWork], prices: SmallPrices, budget: Budget):
        self.model, self.works = cp_model.CpModel(), works
        self.choices = []
        for work in works:
            options = {}
            for unroll in every(work, MOST):
                for lut_lanes in prices.divisions(work, unroll):
                    costs = prices.costs(work, unroll, lut_lanes)
                    if budget.fits(*costs):
                        own = work.output_steps(unroll.tp) * work.pixel_cycles(unroll)
                        options[own, work.beats(unroll), unroll.tp, *costs] = None
            front = [one for one in options if not any(_beats(other, one) for other in options)]
            self.choices.append([(one, self.model.new_bool_var("")) for one in front])
        self.slices, self.luts = (
            sum(one[place] * chosen for layer in self.choices for one, chosen in layer) for place in (3, 4)
        )
        for layer in self.choices:
            self.model.add_exactly_one(chosen for _, chosen in layer)
        self.model.add(self.slices <= budget.slices)
        self.model.add(self.luts <= budget.luts)
        self.interval = self.model.new_int_var(1, 10**6, "interval")
        self._couple()

    def _couple(self):
        pixels = [self._shared(layer, 2) for layer in self.choices]
        beats = [self._shared(layer, 1) for layer in self.choices]
        for index, work in enumerate(self.works):
            self.model.add(self.interval >= sum(one[0] * chosen for one, chosen in self.choices[index]))
            source = work.source(index)
            for (count, with_beats), (tp, with_pixels) in product(beats[index].items(), pixels[source].items()):
                self.model.add(self.interval >= count * work.input_steps(tp)).only_enforce_if(with_beats, with_pixels)
            for back in work.back[: work.direct_inputs]:
                if back <= index:
                    joined_pixels = pixels[index - back]
                    for tp in {*pixels[index], *joined_pixels}:
                        self.model.add(pixels[index].get(tp, 0) == joined_pixels.get(tp, 0))

    def _shared(self, layer, place):
        """For each value of one place of the choices: whether the choice has it."""
        chosen = defaultdict(list)
        for one, variable in layer:
            chosen[one[place]].append(variable)
        shared = {}
        for value, variables in chosen.items():
            shared[value] = self.model.new_bool_var("")
            self.model.add(sum(variables) == shared[value])
        return shared

    def least(self, target) -> int | None:
        """Least value of a target, which is then fixed; ``None`` if nothing is within the budgets."""
        if any(not layer for layer in self.choices):
            return None
        self.model.minimize(target)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL
        value = round(solver.objective_value)
        self.model.add(target <= value)
        return value


def _beats(other, one):
    """Whether a choice of as many pixels is at least as good in all, and not the same."""
    return other != one and other[2] == one[2] and all(a <= b for a, b in zip(other, one, strict=True))


@st.composite
def graphs(draw) -> list[LayerWork]:
    """A few layers one behind the other, a join of two, or branches as in an inception module, and more behind them."""
    works = draw(st.one_of(chains(), chains(), joined(), st.builds(module, st.just(2), st.integers(2, 4))))
    if draw(st.booleans()):
        before = works[-1]
        size = {"height": before.height, "width": before.width}
        size |= {f"input_{name}": length for name, length in size.items()}
        works = [*works, replace(conv("last", 1, draw(st.integers(1, 4)), 1), channels=before.outputs, taps=1, **size)]
    return works


@settings(max_examples=60)
@given(
    works=graphs(),
    multiplier=st.sampled_from([*MULTIPLIERS]),
    product_luts=st.integers(3, 30),
    finish=st.integers(0, 2),
    budgets=st.tuples(st.integers(0, 60), st.integers(50, 2500)),
    resources=st.sampled_from([(True, True)] * 4 + [(True, False), (False, True)]),
    slice_price=st.sampled_from([1, 10, 40]),
)
def check_against_integer_program(works, multiplier, product_luts, finish, budgets, resources, slice_price):
    """No better interval, at this interval no lower price, and no fewer slices."""
    prices = SmallPrices(multiplier, product_luts, finish, *resources)
    budget = Budget(*budgets, slice_price)
    search = by_prices(works, prices, budget)
    found = search.fastest_within()
    program = Program(works, prices, budget)
    assert (found[0] if found else None) == program.least(program.interval)
    if found is not None:
        check_found(works, prices, budget, search, *found)


def check_found(works, prices, budget, search, cycles, unrolling):
    """The factors of the shortest interval have the lowest price, and the fewest slices are found at this interval."""
    program, slice_price = Program(works, prices, budget), budget.slice_price
    program.model.add(program.interval <= cycles)
    check_solution(works, prices, budget, unrolling)
    assert interval(works, unrolling.unrolls) <= cycles
    fewest = search.under(replace(budget, slice_price=1 << 20)).cheapest(cycles)
    assert fewest is not None
    check_solution(works, prices, budget, fewest)
    assert fewest.cost == program.least(program.slices)
    assert fewest.luts == program.least(program.luts)
    priced = Program(works, prices, budget)
    priced.model.add(priced.interval <= cycles)
    assert budget.price(int(unrolling.cost), unrolling.luts) == priced.least(slice_price * priced.slices + priced.luts)


def check_solution(works, prices, budget, unrolling):
    """Costs of an unrolling are those of its factors, layer by layer, and within the budgets."""
    costs = [
        prices.costs(work, unroll, unroll.lut_lanes) for work, unroll in zip(works, unrolling.unrolls, strict=True)
    ]
    assert costs == [rank[:2] for rank in unrolling.ranks]
    assert (unrolling.cost, unrolling.luts) == tuple(map(sum, zip(*costs, strict=True)))
    assert budget.fits(int(unrolling.cost), unrolling.luts)


def test_against_integer_program():
    with counted(check_against_integer_program, 30):
        check_against_integer_program()


@pytest.mark.parametrize(
    ("resources", "slices", "luts", "cycles"),
    [((True, False), 8, 100_000, 32), ((False, True), 4, 128, 16), ((False, True), 4, 127, 32)],
)
def test_a_layer_by_hand(resources, slices, luts, cycles):
    """A convolution of one tap, 4 to 4 channels, on 4 x 4 pixels: 256 products.

    8 slices take 32 cycles. In LUTs, 16 products per cycle are constants of 5 LUTs each, 80 in all. With 7 for each of
    4 activations and 5 for each of 4 sums this is 128. Other factors with 16 products per cycle have more pixels.
    """
    work = replace(conv("conv", 4, 4, 4), taps=1)
    found = by_prices([work], SmallPrices(1, 10, 0, *resources), Budget(slices, luts, 10)).fastest_within()
    assert found is not None
    assert found[0] == cycles or (luts == 127 and 16 < found[0] <= cycles)


def test_two_budgets_fast():
    """VGG-16's first seven layers on XC7VX690T."""
    layers = [
        conv("conv1_1", 3, 64, 224),
        conv("conv1_2", 64, 64, 224),
        pool("pool1", 64, 112, 224),
        conv("conv2_1", 64, 128, 112),
        conv("conv2_2", 128, 128, 112),
        pool("pool2", 128, 56, 112),
        conv("conv3_1", 128, 256, 56),
    ]
    start = time.process_time()
    assert by_prices(layers, SmallPrices(2, 55, 2), Budget(3600, 250_000, 40)).fastest_within() is not None
    assert time.process_time() - start < 5
