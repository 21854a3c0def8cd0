"""The search under budgets of DSP slices and LUTs, against an integer program over all choices with the same costs."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import pytest
from counted import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_works import chains, conv, every, joined, module, pool
from ortools.sat.python import cp_model

from hwgen.gateware.multipliers import MULTIPLIERS
from hwgen.templates.factor_paths import Budget
from hwgen.templates.two_prices import Form, Prices, Terms, by_prices
from hwgen.templates.unroll import interval
from hwgen.templates.work import LayerWork, Unroll, ceil_div, lanes_out

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
            for back in work.back[: work.in_step]:
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


def test_fast():
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
