"""Search for the best fusion group whose products are computed in DSP slices and in LUTs, under a budget of each.

The search for unroll factors is exact under the LUTs that the planner estimates. The composed group states its LUTs
more precisely. The difference corrects the budget, and the search is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwgen.boards import Board
from hwgen.options import AUTO, DSP
from hwgen.printable import counted
from hwgen.templates.base import Group, Template
from hwgen.templates.refusal import Refusal
from hwgen.templates.search import EXACT_UNROLLINGS, GroupSearch
from hwgen.templates.task import Task
from hwgen.templates.two_prices import TwoPriceSearch
from hwgen.templates.unroll import FactorSearch, Search, Unrolling, interval

#: Maximum number of searches, each with a budget of LUTs that the group of the search before has corrected.
MOST_CORRECTIONS = 6

#: Approximate number of unrollings, slower than the fastest one, from which layers are sped up for a low latency.
STARTS = 3

#: Share of the budget of LUTs that is left for buffers, and that an estimate may leave unused.
SLACK = 0.01


@dataclass(frozen=True)
class MixedSearch(GroupSearch):
    """Search for one group's unroll factors, with its products in DSP slices and LUTs, and for its buffers.

    Parameters
    ----------
    other_luts : int
        Number of LUTs of the composed group beyond those that the search for unroll factors counts.
    """

    other_luts: int = 0

    @property
    def board(self) -> Board:
        return replace(self.task.board, lut=min(self.goal.lut, self.task.board.lut))

    @cached_property
    def mixed(self) -> TwoPriceSearch:
        """Search for the group's unroll factors under the budgets of DSP slices and LUTs."""
        search = self.task.two_prices.part(self.begin, self.end)
        return search.under(self.task.budget(self.board.lut - self.other_luts))

    def best(self) -> Group | Refusal:
        search = self._corrected()
        group: Group | Refusal = Refusal("no group was tried")
        for count in range(MOST_CORRECTIONS):
            unrolling = search.quick()
            group = unrolling if isinstance(unrolling, Refusal) else search._of(unrolling)
            if not isinstance(group, Refusal):
                return group
            if isinstance(unrolling, Refusal):
                return group
            if group.resource != "LUTs":
                return search._with_moves(group)
            # Other factors can have other LUTs in excess. Twice as many are left each time.
            excess = int(group.needed) - self.board.lut
            search = replace(search, other_luts=search.other_luts + (excess << count))
        return search._with_moves(group)

    def _corrected(self) -> MixedSearch:
        """Return this search with the LUTs that the composed group has beyond those that the search counts.

        The composed group has the smallest buffers. A small share of the LUTs is left for larger ones.
        """
        buffers = int(SLACK * self.board.lut)
        search, budget = replace(self, other_luts=buffers), self.board.lut - buffers
        for _ in range(MOST_CORRECTIONS):
            unrolling = search.quick()
            if isinstance(unrolling, Refusal):
                break
            luts = search._smallest(unrolling).resources.lut
            unused = self.board.lut - search.other_luts - unrolling.luts  # because no factors use it
            if luts <= budget and luts + unused >= budget * (1 - SLACK):
                break
            search = replace(search, other_luts=luts - unrolling.luts + buffers)
        return search

    def _fastest(self, search: Search) -> Unrolling | Refusal:
        fastest = self.mixed.fastest_within(self._floor)
        return self._too_few() if fastest is None else fastest[1]

    def _fewest(self, search: Search) -> Unrolling | Refusal:
        limit = self.goal.interval
        unrolling = self.mixed.cheapest(self.mixed.intervals[-1] if limit is None else limit)
        return self._too_few() if unrolling is None else unrolling

    def _too_few(self) -> Refusal:
        """Return the refusal of a group that no unroll factors fit into both budgets."""
        budgets = f"{counted(self.goal.dsp, 'DSP slice')} and {self.board.lut:,} LUTs"
        return Refusal(f"no unrolling fits {budgets} with products in LUTs", "LUTs")

    def _slices(self, unrolling: Unrolling) -> int:
        return int(unrolling.cost)

    def _with_moves(self, refusal: Refusal) -> Group | Refusal:
        """Return the best group with as few memories moved into LUTs as needed, or a refusal.

        If the factors with the fewest DSP slices lack block RAM as well, no other factors are tried.
        """
        moved = replace(self, moves=True)
        least = moved.least_lack()
        return least if least is not None and least.resource == refusal.resource else moved._slower(refusal)

    def _searches(self, refusal: Refusal) -> Sequence[FactorSearch]:
        return (self.mixed,)

    def _soonest(self, fastest: Unrolling) -> Unrolling:
        """Speed up layers with spare slices and LUTs, and return the unroll factors with the lowest latency found.

        Both resources count as one cost, with the weights that bound the shortest interval. The factors that are found
        are then divided between slices and LUTs again.
        """
        cycles = interval(self.mixed.works, fastest.unrolls)
        weights, prices = self.mixed.weights(cycles), self.task.prices
        search = Search(
            self.mixed.works,
            lambda work, unroll: prices.weighted(work, unroll, weights.slices, weights.luts),
        )
        start = search.cheapest(cycles)
        candidates = [fastest]
        for share in range(1, MOST_CORRECTIONS if start is not None else 1):
            assert start is not None
            # What is left is for lanes that can't be divided.
            budget = weights.limit * (1 - SLACK * share * (share + 1) / 2)
            climbed = self._climbed(search, start, budget, STARTS)[:EXACT_UNROLLINGS]
            divided = [self.mixed.divided(unrolling.unrolls) for unrolling in climbed]
            candidates += [divisible for divisible in divided if divisible is not None and not self._lack(divisible)]
            if len(candidates) > 1:
                break
        return min(candidates, key=lambda unrolling: (self._exact_latency(unrolling), unrolling.order))


def best_in_rows(task: Task, begin: int, end: int, in_turn: bool, template: Template) -> Group | Refusal:
    """Return the best group of layers ``begin`` to ``end - 1``, computed row by row, or a refusal.

    Its products are in the resources that the goal asks for. Groups in turn multiply in DSP slices only.
    """
    if in_turn or task.goal.multipliers == DSP:
        return GroupSearch(task, begin, end, in_turn, template).best()
    group = MixedSearch(task, begin, end, in_turn, template).best()
    if isinstance(group, Refusal) and task.goal.multipliers == AUTO:
        return GroupSearch(task, begin, end, in_turn, template).best()
    return group
