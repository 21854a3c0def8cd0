"""Search for the best fusion group that computes products both in DSP slices and in LUTs, within a budget of each.

The search for unroll factors is exact under the LUTs that the planner estimates. The composed group states its LUTs
more precisely. The difference corrects the budget, and the search is repeated. Before it begins, a lower bound of the
LUTs of any plan tells whether one can fit (`surely_exceeds`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from hwgen.boards import Board
from hwgen.options import DSP
from hwgen.printable import counted
from hwgen.templates.base import MAX_LUTS, Group, Refusal, Task, Template, attempt
from hwgen.templates.compose import input_formats
from hwgen.templates.search import EXACT_UNROLLINGS, GroupSearch, layer_plan
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import Search, Unrolling, by_cost, factor_grid, interval
from hwgen.templates.work import LayerWork, Unroll

#: Maximum number of searches; each has a budget of LUTs that the previous search's group has corrected.
MAX_CORRECTIONS = 6

#: Share of the LUTs above which unused LUTs are a reason to try shorter intervals, and about how many are tried.
MAX_UNUSED, MAX_SHORTER = 0.125, 16

#: Minimum share of a group's price (DSP slices and LUTs) that another group of the same interval must save to be
#: chosen.
MIN_SAVING = 0.05

#: Approximate number of unrollings, besides the fastest one, that a search for a low latency starts from.
STARTS = 3

#: Share of the budget of LUTs that is left for buffers, and that an estimate may leave unused.
SLACK = 0.01


@dataclass(frozen=True)
class MixedSearch(GroupSearch):
    """Search for one fusion group's unroll factors and buffers, with products computed both in DSP slices and in LUTs.

    Parameters
    ----------
    other_luts : int
        Number of LUTs of the composed group beyond those that the search for unroll factors counts.
    kept_luts : int
        Number of LUTs of the budget that are kept free.
    """

    other_luts: int = 0
    kept_luts: int = 0

    @property
    def board(self) -> Board:
        board = self.task.board
        return board.limited(lut=("--lut", min(self.goal.lut, board.lut) - self.kept_luts))

    @cached_property
    def mixed(self) -> Search:
        """Search for the fusion group's unroll factors with products in DSP slices and in LUTs, within both budgets."""
        search = self.task.two_prices.part(self.begin, self.end)
        return search.under(self.task.budget(self.board.lut - self.other_luts))

    @property
    def min_luts(self) -> int:
        return self._smallest_group(self.mixed.fewest_luts).resources.lut

    def best(self) -> Group | Refusal:
        search, min_other = self._with_other_luts()
        group = search._group_within_luts()
        if isinstance(group, Refusal) or self.goal.objective in ("latency", "dsp"):
            return group
        return self._cheaper_group(self._faster_group(group, min_other))

    def _cheaper_group(self, group: Group) -> Group:
        """Return a fusion `Group` of equal cycles per frame and clearly lower price (slices, LUTs), or else ``group``.

        By the rule for LUTs a group of few slices can seem too dear. Groups for higher prices are therefore configured.
        """
        price, own = self._group_price(group), self.task.budget(0).slice_price
        for unrolling in self._fitting_unrollings(group.slowest_cycles, self.board.lut, (4 * own, MAX_LUTS))[:1]:
            if self._price_in_luts(unrolling) < (1 - MIN_SAVING) * price:
                cheaper = self._group_of_factors(unrolling)
                if not isinstance(cheaper, Refusal) and self._interval(cheaper) <= self._interval(group):
                    return min(group, cheaper, key=self._group_price)
        return group

    def _faster_group(self, group: Group, min_other: int) -> Group:
        """Return a faster `Group`, missed as the search overestimates LUTs, or ``group`` if there is none.

        The estimate is off by other LUTs for other factors, ``min_other`` or more. If many LUTs are left, factors at
        some shorter intervals are therefore composed, the shortest first, until some fit.
        """
        if group.resources.lut > (1 - MAX_UNUSED) * self.board.lut:
            return group
        intervals, own = self.mixed.intervals, self.task.budget(0).slice_price
        prices = (0, own // 4, own, 4 * own)
        begin, end = self.mixed.first_index(self._min_interval), bisect_left(intervals, self._interval(group))
        for cycles in intervals[begin : end : max((end - begin) // MAX_SHORTER, 1)]:
            for unrolling in self._fitting_unrollings(cycles, self.board.lut - min_other, prices):
                faster = self._group_of_factors(unrolling)
                if not isinstance(faster, Refusal) and self._interval(faster) < self._interval(group):
                    return faster
        return group

    def _fitting_unrollings(self, cycles: int, luts: int, prices: Sequence[int]) -> list[Unrolling]:
        """Return a list of each `Unrolling` up to ``cycles`` per frame whose configured group fits, cheapest first.

        They are the cheapest within ``luts`` estimated LUTs, for several ``prices`` of a DSP slice in LUTs.
        """
        own = self.task.budget(luts)
        found = (self.mixed.under(replace(own, slice_price=price)).cheapest(cycles) for price in prices)
        fitting = {unrolling.unrolls: unrolling for unrolling in found if unrolling is not None}.values()
        return sorted(filter(self._fits_board, fitting), key=self._price_in_luts)

    def _price_in_luts(self, unrolling: Unrolling) -> int:
        """Return the price in LUTs (DSP slices converted) of a group with given unroll factors and smallest buffers."""
        return self._group_price(self._smallest_group(unrolling))

    def _group_price(self, group: Group) -> int:
        return self.task.budget(0).price(int(group.resources.dsp), group.resources.lut)

    def _group_within_luts(self) -> Group | Refusal:
        """Return the best `Group` (plan's objective) whose LUTs fit once its buffers are sized, or a `Refusal`."""
        search = self
        group: Group | Refusal = Refusal("no group was tried")
        for count in range(MAX_CORRECTIONS):
            unrolling = search.best_factors()
            group = unrolling if isinstance(unrolling, Refusal) else search._group_of_factors(unrolling)
            if not isinstance(group, Refusal) or isinstance(unrolling, Refusal):
                return group
            if group.resource != "LUTs":
                return search._with_moves(group)
            # Other factors can have other LUTs in excess. Twice as many are left each time.
            excess = int(group.needed) - self.board.lut
            search = replace(search, other_luts=search.other_luts + (excess << count))
        return search._with_moves(group)

    def _with_other_luts(self) -> tuple[MixedSearch, int]:
        """Return a pair: this search with `other_luts` (LUTs its estimate misses) found by trials, and their minimum.

        The groups that are configured as trials have the smallest buffers. A small share of the LUTs is left for larger
        buffers. The number of other LUTs is bracketed: with too few of them the group is too large, with too many it
        wastes LUTs.
        """
        tolerance = int(SLACK * self.board.lut)
        too_few, enough, other = 0, self.board.lut, tolerance
        min_other = self.board.lut
        for _ in range(MAX_CORRECTIONS):
            search = replace(self, other_luts=other)
            unrolling = search.best_factors()
            if isinstance(unrolling, Refusal):
                enough = other
            else:
                luts = search._smallest_group(unrolling).resources.lut + tolerance
                unused = self.board.lut - other - unrolling.luts  # because no factors use it
                too_few, enough = (too_few, other) if luts <= self.board.lut else (other, enough)
                min_other = min(min_other, luts - unrolling.luts)
                if enough == other and luts + unused >= self.board.lut - tolerance:
                    return search, min_other
                other = luts - unrolling.luts
            if not too_few < other < enough:
                other = (too_few + enough) // 2
            if enough - too_few <= tolerance:
                break
        return replace(self, other_luts=enough), min_other

    def _fastest(self, search: Search) -> Unrolling | Refusal:
        fastest = self.mixed.fastest_within(self._min_interval)
        return self._too_few() if fastest is None else fastest[1]

    def _fewest(self, search: Search) -> Unrolling | Refusal:
        limit = self.goal.interval
        unrolling = self.mixed.cheapest(self.mixed.intervals[-1] if limit is None else limit)
        return self._too_few() if unrolling is None else unrolling

    def _too_few(self) -> Refusal:
        """Return a `Refusal`: no unroll factors of the fusion group are within both budgets."""
        budgets = f"{counted(self.goal.dsp, 'DSP slice')} and {self.board.lut:,} LUTs"
        return Refusal(f"no unrolling fits {budgets} with products in LUTs", "LUTs")

    def refusal(self, in_slices: Refusal) -> Refusal:
        """Return a `Refusal` that says why a fusion group fits no plan: ``in_slices``, or what LUT products would need.

        If DSP slices run out, or the interval is too long, it names what suffices with products in LUTs.
        """
        if in_slices.resource == "DSP slices":
            return self._too_few_slices_for(in_slices)
        if self.goal.interval is not None and not in_slices.over_budget:
            return self._too_slow(self.goal.interval, in_slices)
        return in_slices

    def _too_few_slices_for(self, in_slices: Refusal) -> Refusal:
        """Return a `Refusal` with the fewest DSP slices that are enough if products use LUTs."""
        aim = self.task.aiming(objective="dsp", interval=None, dsp=self.task.board.dsp)
        fewest = replace(self, task=aim).best_factors()
        if isinstance(fewest, Refusal) or self._slices(fewest) >= in_slices.needed:
            return in_slices
        slices, budget = self._slices(fewest), counted(self.goal.dsp, "DSP slice")
        return Refusal(
            f"no unrolling fits {budget}: the least is {slices}, with products in LUTs", "DSP slices", slices
        )

    def _too_slow(self, limit: int, in_slices: Refusal) -> Refusal:
        """Return a `Refusal` with the shortest possible interval (cycles per frame) if products use LUTs."""
        fastest = replace(self, task=self.task.aiming(objective="interval", interval=None)).best()
        if isinstance(fastest, Refusal):
            return in_slices
        budgets = f"within {counted(self.goal.dsp, 'DSP slice')} and {self.board.lut:,} LUTs"
        return Refusal(
            f"no plan has an interval of at most {limit:,} cycles {budgets}: the nearest has {fastest.slowest_cycles:,}"
        )

    def fewest_luts_refusal(self, refusal: Refusal) -> Refusal:
        """Return a `Refusal` with the fewest LUTs, or cycles per frame, that are possible; else ``refusal``.

        Its number of LUTs is about the smallest that suffices for the group. If the group fits, its interval is too
        long.
        """
        if refusal.resource != "LUTs":
            return refusal
        lack = self._refusal(self.mixed.fewest_luts)
        if lack is None and self.goal.interval is not None:
            return self._too_slow(self.goal.interval, refusal)
        return lack or refusal

    def _slices(self, unrolling: Unrolling) -> int:
        return int(unrolling.cost)

    def _with_moves(self, refusal: Refusal) -> Group | Refusal:
        """Return the `Group` of shortest interval with memories moved out of block RAM as needed, or a `Refusal`.

        If the factors with the fewest DSP slices lack block RAM as well, no other factors are tried.
        """
        moved = replace(self, moves_memories=True)
        lack = moved.min_lack()
        return lack if lack is not None and lack.resource == refusal.resource else moved._slower_group(refusal)

    def _fits_board(self, unrolling: Unrolling) -> bool:
        """Return whether the fusion group with given unroll factors fits, with LUTs to spare for larger buffers."""
        return GroupSearch._fits_board(replace(self, kept_luts=int(2 * SLACK * self.board.lut)), unrolling)

    def _searches(self, refusal: Refusal) -> Sequence[Search]:
        return (self.mixed,)

    def _lower_latency(self, fastest: Unrolling) -> Unrolling:
        """Speed up layers with spare DSP slices and LUTs; return the `Unrolling` of lowest latency found.

        Both resources count as one cost, with the weights that bound the shortest interval. The factors that are found
        are then divided between slices and LUTs again.
        """
        cycles = interval(self.mixed.works, fastest.unrolls)
        weights, prices = self.mixed.weights(cycles), self.task.prices
        search = by_cost(
            self.mixed.works,
            lambda work, unroll: prices.weighted(work, unroll, weights.slices, weights.luts),
        )
        start = search.cheapest(cycles)
        candidates = [fastest]
        for share in range(1, MAX_CORRECTIONS if start is not None else 1):
            assert start is not None
            # What is left is for lanes that can't be divided.
            budget = weights.limit * (1 - SLACK * share * (share + 1) / 2)
            climbed = self._climbed_unrollings(search, start, budget, STARTS)[:EXACT_UNROLLINGS]
            divided = [self.mixed.divided(unrolling.unrolls) for unrolling in climbed]
            candidates += [divisible for divisible in divided if divisible is not None and not self._refusal(divisible)]
            if len(candidates) > 1:
                break
        return min(candidates, key=lambda unrolling: (self._exact_latency(unrolling), unrolling.order))


def best_in_rows(task: Task, begin: int, end: int, in_turn: bool, template: Template) -> Group | Refusal:
    """Return the best `Group` (plan's objective) of layers ``begin`` to ``end - 1`` that works by rows, or a `Refusal`.

    It computes products in the resources that the goal asks for. Groups that run in turn multiply in DSP slices only.
    The group with the shortest interval is among the candidates for the lowest latency.
    """
    group = _best_by_objective(task, begin, end, in_turn, template)
    if in_turn or isinstance(group, Refusal) or task.goal.objective != "latency":
        return group
    fastest = _best_by_objective(task.aiming(objective="interval"), begin, end, in_turn, template)
    return fastest if not isinstance(fastest, Refusal) and fastest.steady.latency < group.steady.latency else group


def _best_by_objective(task: Task, begin: int, end: int, in_turn: bool, template: Template) -> Group | Refusal:
    """Return the best `Group` of layers ``begin`` to ``end - 1`` by the plan's objective only, or a `Refusal`."""
    in_slices = GroupSearch(task.in_slices, begin, end, in_turn, template)
    if in_turn or task.goal.multipliers == DSP:
        return in_slices.best()
    mixed = MixedSearch(task, begin, end, in_turn, template)
    group = mixed.best()
    if not isinstance(group, Refusal):
        return group
    if task.goal.needs_luts:
        return mixed.fewest_luts_refusal(group)
    group = in_slices.best()
    return mixed.refusal(group) if isinstance(group, Refusal) else group


#: Maximum numbers of products per cycle of unroll factors that are configured to find the fewest LUTs: in general, and
#: if each cycle reads all channels of a pixel. Further lanes and taps take more LUTs than the counters and accumulators
#: of their folds.
MAX_PRODUCTS, MAX_WHOLE = 4, 16

#: Share of the LUTs of `_fewest_luts` that every plan takes. Several pixels per cycle save a few LUTs of a FIFO.
SURE_SHARE = 0.97


def surely_exceeds(task: Task, luts: int) -> bool:
    """Return whether a task's layers take more than ``luts`` LUTs in every plan that stores the weights on the chip.

    Each layer has hardware of its own in every grouping, and in a pyramid it takes more LUTs, for its tiles.
    """
    stages = [stage_of(layer, task.board.family) for layer in task.network.layers]
    layers = list(zip(stages, task.works, strict=True))
    if sum(_fewest_luts(task, *layer, (1, 1), unknown=luts) for layer in layers) <= luts:
        return False  # at once if LUTs are not scarce: other factors can only take fewer
    fewest = (_fewest_luts(task, *layer, (MAX_PRODUCTS, MAX_WHOLE), unknown=0) for layer in layers)
    return any(SURE_SHARE * count > luts for count in accumulate(fewest))


def _fewest_luts(task: Task, stage: Stage[Any], work: LayerWork, most: tuple[int, int], unknown: int) -> int:
    """Return a low estimate of a layer's LUTs: the least over some small unroll factors, with small buffers.

    ``most`` limits the factors' products per cycle, in general and if each cycle reads all channels of a pixel. The
    products are in DSP slices or in LUTs, as the goal allows. The result is ``unknown`` if no factors can be built.
    """
    in_slices = not (work.weighted and task.goal.needs_luts)
    in_luts = bool(stage.lut_multipliers) and task.goal.multipliers != DSP
    unrolls, min_taps = [], work.taps if work.whole_windows else 1
    for tn, tm, tk in zip(*(axis.tolist() for axis in factor_grid(work)), strict=True):
        if tn * tm * tk <= most[tn == work.group_channels] * min_taps:
            unrolls += [Unroll(tn, tm, tk)] * in_slices + [Unroll(tn, tm, tk, lut_lanes=tm)] * in_luts
    luts = (attempt(_luts, task, stage, unroll) for unroll in unrolls)
    return min((count for count in luts if not isinstance(count, Refusal)), default=unknown)


def _luts(task: Task, stage: Stage[Any], unroll: Unroll) -> int:
    """Return a layer's LUTs with given unroll factors, the smallest FIFO, and the line buffer rows of fewest LUTs."""
    plan = layer_plan(stage, unroll, 1, task.multipliers[stage.op.name])
    config = stage.layer(plan, input_formats(stage, plan, [1] * len(stage.op.inputs)), [None])
    # The memory of a line buffer depends on its rows.
    rows = range(stage.min_rows, plan.line_rows + 1) if stage.has_line_buffer else ()
    saved = (config.window.resources.lut - replace(config.window, rows=count).resources.lut for count in rows)
    return config.resources.lut - max(saved, default=0)
