"""The search for the best group: unroll factors by objective, within the budgets, and the buffers that they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from hwgen.gateware.multipliers import PLAIN, Multiplier
from hwgen.gateware.multiply import CHAIN
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.schedule.buffers import ample_rows, size_buffers
from hwgen.schedule.solve import Schedule
from hwgen.templates import moves as memory_moves
from hwgen.templates.base import Group, Template
from hwgen.templates.budget import shortage
from hwgen.templates.latency import estimate_latency
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.refusal import Refusal
from hwgen.templates.stage import Stage
from hwgen.templates.task import Goal, Task
from hwgen.templates.unroll import Rank, Search, Way, interval, least_text
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Ways whose buffers are sized in vain before another price is tried.
MOST_SIZED = 3

#: Ways whose latency is estimated, from the least interval upward; and those of them that are scheduled exactly.
LATENCY_WAYS, EXACT_WAYS = 8, 3

#: Share of the latency that a faster layer must gain, for the whole budget of slices.
LEAST_GAIN = 0.05


@dataclass(frozen=True)
class GroupSearch:
    """The search for one group's unroll factors and buffers, under one template.

    What is said here holds for groups that are computed row by row; other templates refine it.
    """

    task: Task
    begin: int
    end: int
    in_turn: bool
    template: Template
    tables_in: str | None = None
    """Memory of the channels' parameters; ``lut`` where block RAM is short."""
    moves: bool = False
    """Whether memories go into LUTs where block RAM runs out."""
    most: int | None = None
    """Maximum interval of the search, in cycles."""

    @property
    def network(self) -> Network:
        """Network of the group's layers."""
        return self.task.part(self.begin, self.end)

    @property
    def goal(self) -> Goal:
        """Goal of the plan."""
        return self.task.goal

    @property
    def search(self) -> Search:
        """Search for the group's unroll factors, at the cost of DSP slices."""
        return self.task.search.part(self.begin, self.end)

    @property
    def priced(self) -> list[Search]:
        """Searches for the group's unroll factors, at the cost of DSP slices and block RAM together."""
        return [search.part(self.begin, self.end) for search in self.task.priced]

    def make(self, layers: tuple[LayerPlan, ...]) -> Group:
        """The group with these choices."""
        return Group(network=self.network, layers=layers, template=self.template)

    def best(self) -> Group | Refusal:
        """Return the best group that fits."""
        way = self.quick()
        if isinstance(way, Refusal):
            return way
        group = self._of(way)
        if not isinstance(group, Refusal):
            return group
        if self.in_turn:
            return self._slower(group)
        if group.resource != "BRAM36":
            return replace(self, moves=True)._slower(group)
        return self._with_moves(group)

    def _with_moves(self, refusal: Refusal) -> Group | Refusal:
        """Return the best group with memories in LUTs, or without, if that is as good.

        Nothing of what fits without is moved, and of what doesn't as little as will do.

        Parameters
        ----------
        refusal : Refusal
            Why the best group by DSP slices alone does not fit.
        """
        moved = replace(self, moves=True)._first_or_slower(refusal)
        if isinstance(moved, Refusal):
            return self._slower(refusal)
        most = moved.slowest if self.goal.objective in ("interval", "traffic") else None
        plain = replace(self, most=most)._slower(refusal)
        return moved if isinstance(plain, Refusal) or self._worth(moved) < self._worth(plain) else plain

    def _worth(self, group: Group) -> int:
        """Return the objective's value of a group, of which less is better."""
        if self.goal.objective == "latency":
            return group.steady.latency
        return group.resources.dsp if self.goal.objective == "dsp" else group.slowest

    def _first_or_slower(self, refusal: Refusal) -> Group | Refusal:
        """Return the best group by DSP slices alone, or else the best that fits; ``refusal``: of a better one."""
        group = self.first()
        return self._slower(refusal) if isinstance(group, Refusal) else group

    def _slower(self, refusal: Refusal) -> Group | Refusal:
        """Return the best group that fits where the best one by DSP slices was refused."""
        if refusal.resource == "BRAM36" and self.tables_in is None and not self.moves:
            group = replace(self, tables_in="lut")._first_or_slower(refusal)
            if not isinstance(group, Refusal):  # logic did not run out
                return group
        # The price of block RAM changes nothing where it is logic that runs out.
        prices = (self.search, *(self.priced if refusal.resource == "BRAM36" else ()))
        tried = (self.within(search) for search in prices)
        found = [group for group in tried if group is not None]
        if not found:
            return self.least_refusal(refusal)
        return min(found, key=lambda group: (group.slowest, group.resources.dsp))

    def first(self) -> Group | Refusal:
        """Return the best group by DSP slices alone, if the rest of the board suffices for it."""
        way = self.quick()
        return way if isinstance(way, Refusal) else self._of(way)

    def _of(self, way: Way) -> Group | Refusal:
        """Return the group of the best way by DSP slices, made soon where the objective wants that."""
        soon = self.goal.objective == "latency" or (self.in_turn and self.goal.objective != "dsp")
        if soon and self._lack(way) is None:
            way = self._soonest(way)
        if (refusal := self._lack(way)) is not None:
            return refusal
        group = self._sized(way)
        return shortage(group.resources, self.task.board, self.goal.dsp) or group

    def quick(self) -> Way | Refusal:
        """Return the best way by DSP slices alone: of the least interval, or of the fewest slices."""
        return self._fewest(self.search) if self.goal.objective == "dsp" else self._fastest(self.search)

    def within(self, search: Search) -> Group | None:
        """The first group that fits all of the board, with each interval's cheapest way in ``search``.

        Block RAM need not fall as the interval grows, so intervals are tried one after the other, some per cent apart:
        from the least upward, or for the fewest slices from the longest downward.
        """
        sized, before = 0, None
        for cycles in self._steps(search):
            way = search.cheapest(cycles)
            if way is None or way.unrolls == before or not self._fits(way):
                continue
            before = way.unrolls
            group, sized = self._sized(way), sized + 1
            if shortage(group.resources, self.task.board, self.goal.dsp) is None:
                return group
            if sized == MOST_SIZED:  # rows or FIFOs beyond the least are too many
                break
        return None

    def _steps(self, search: Search) -> list[int]:
        """Intervals to be tried, in order."""
        goal = self.goal
        fewest = goal.objective == "dsp"
        found = search.fastest(lambda way: self._slices(way) <= goal.dsp, self._floor)
        if found is None:
            return []
        last = goal.interval if fewest and goal.interval is not None and not self.in_turn else search.intervals[-1]
        if self.most is not None:
            last = min(last, self.most)
        steps, cycles = [], found[0]
        while cycles < last:
            steps.append(cycles)
            cycles = ceil(cycles * (1.02 if cycles < 4 * found[0] else 1.25))
        steps.append(last)
        return steps[::-1] if fewest else steps

    def _slices(self, way: Way) -> int:
        return sum(int(self.task.slices(*choice)) for choice in zip(self.works, way.unrolls, strict=True))

    @property
    def _floor(self) -> int:
        """Cycles a frame that the maps take over the boundary: being faster gains nothing."""
        return self.task.board.transfer_cycles(self.network.map_bytes)

    def _fewest(self, search: Search) -> Way | Refusal:
        limit = None if self.in_turn else self.goal.interval
        way = search.cheapest_of_all if limit is None else search.cheapest(limit)
        if way is not None and self._slices(way) <= self.goal.dsp:
            return way
        nearest = search.fastest(lambda way: self._slices(way) <= self.goal.dsp)
        if nearest is None:
            return self._too_few_slices(search)
        return Refusal(
            f"no plan has an interval of at most {limit:,} cycles within {self.goal.dsp} DSP slices: the nearest has "
            f"{nearest[0]:,}"
        )

    def _fastest(self, search: Search) -> Way | Refusal:
        found = search.fastest_within(self.goal.dsp, self._floor)
        return self._too_few_slices(search) if found is None else found[1]

    def _too_few_slices(self, search: Search) -> Refusal:
        reason = f"no unrolling fits {self.goal.dsp} DSP slices: {least_text(search)}"
        return Refusal(reason, "DSP slices", search.cheapest_of_all.cost)

    def least_refusal(self, refusal: Refusal) -> Refusal:
        """Return ``refusal``, or that of the fewest slices if it needs less of the same."""
        least = self.least_lack()
        if least is not None and least.resource == refusal.resource and least.needed < refusal.needed:
            return least
        return refusal

    def may_fit(self) -> bool:
        """Whether the fewest slices, or the fastest way within the slices, fit with the least buffers."""
        if self.least_lack() is None:
            return True
        way = self.quick()
        return not isinstance(way, Refusal) and self._lack(way) is None

    def least_lack(self) -> Refusal | None:
        """Return a refusal if the cheapest factors, with the smallest buffers, exceed the board; else ``None``."""
        return self._lack(self.search.cheapest_of_all)

    def _soonest(self, fastest: Way) -> Way:
        """The least latency found: slices that the interval leaves over make fills and drains shorter.

        From several intervals on, one layer after the other is made faster where the estimate says that it helps
        most; the best few are scheduled exactly, and so is the plain choice of the least interval. (A group in turn is
        one of many, and its frames come alone: the estimate decides.)
        """
        search = self.search
        windows = [layer.window for layer in self.network.layers]
        if self.in_turn:
            return climb(search, windows, fastest, self.goal.dsp, self._floor)[1]
        ways = self._slower_ways(search, fastest)
        found = [climb(search, windows, way, self.goal.dsp, 0) for way in ways]
        found.sort(key=lambda entry: (entry[0], entry[1].order))
        ways = [fastest, *(way for _, way in found[:EXACT_WAYS])]
        return min(ways, key=lambda way: (self._exact_latency(way), way.order))

    def _slower_ways(self, search: Search, fastest: Way) -> Iterator[Way]:
        """The fastest way, and some with somewhat longer intervals, whose slices may do more elsewhere."""
        yield fastest
        cycles = interval(search.works, fastest.unrolls)
        slower = [count for count in search.intervals if cycles < count <= 1.2 * cycles]
        seen = {fastest.unrolls}
        for count in slower[:: max(len(slower) // LATENCY_WAYS, 1)]:
            way = search.cheapest(count)
            if way is not None and way.unrolls not in seen:
                seen.add(way.unrolls)
                yield way

    def _exact_latency(self, way: Way) -> int:
        config = self.make(self._layers(way)).config
        return Schedule(config, 1, depths=[None] * len(config.links)).cycles.latency

    def _lack(self, way: Way) -> Refusal | None:
        """Return a refusal if the factors, with the smallest buffers, exceed the board; else ``None``."""
        layers = self._layers(way)
        rows = [self.template.stage(layer).least_rows for layer in self.network.layers]
        group = self.make(with_buffers(layers, rows, [layer.fifo_depths for layer in layers]))
        group = memory_moves.moved(group, self.task.board) if self.moves else group
        return shortage(group.resources, self.task.board, self.goal.dsp)

    def _fits(self, way: Way) -> bool:
        """Whether the way fits with the least buffers; what its weights alone exceed costs no composing."""
        weights = sum(self.task.weight_bram36(*choice) for choice in zip(self.works, way.unrolls, strict=True))
        board = self.task.board
        memories = board.family.memories
        room = board.bram36 + (board.lut * memories.lut_bits / memories.block_bits if self.moves else 0)
        if self._slices(way) > self.goal.dsp or weights > room:
            return False
        return self._lack(way) is None

    @property
    def works(self) -> Sequence[LayerWork]:
        """Work of each layer of the group."""
        return self.search.works

    def _layers(self, way: Way) -> tuple[LayerPlan, ...]:
        """Return the layers' plans for the factors, with ample buffers."""
        network = self.network
        multipliers = [self.task.multipliers[layer.name] for layer in network.layers]
        pixels = {layer.name: unroll.tp for layer, unroll in zip(network.layers, way.unrolls, strict=True)}
        readers = [
            len(network.readers[layer.name]) + len(network.output_indices(layer.name)) for layer in network.layers
        ]
        stages = [self.template.stage(layer) for layer in network.layers]
        # An input of the group has its reader's pixels.
        chosen = zip(network.edges, way.unrolls, strict=True)
        sources = [pixels.get(edges[0], unroll.tp) for edges, unroll in chosen]
        plans = map(layer_plan, stages, way.unrolls, sources, multipliers, readers)
        return tuple(
            replace(plan, tables_in=self.tables_in, requantise_in="lut" if plan.name in self.goal.in_luts else "dsp")
            for plan in plans
        )

    def _sized(self, way: Way) -> Group:
        """Return the group of the factors, with the buffer sizes that the exact schedule determines."""
        layers = self._layers(way)
        group = self._buffered(layers)
        while self.moves:
            moved = memory_moves.moved(group, self.task.board)
            if memory_moves.latencies(moved) == memory_moves.latencies(group):
                return moved
            # With other latencies other FIFOs will do; where those lie is found anew.
            group = self._buffered(tuple(replace(layer, fifos_in=()) for layer in moved.layers))
        return group

    def _buffered(self, layers: tuple[LayerPlan, ...]) -> Group:
        rows, depths = size_buffers(self.make(layers).config, 1 if self.in_turn else None)
        return self.make(with_buffers(layers, rows, depths))


def climb(search: Search, windows: list[Window], way: Way, budget: int, floor: int) -> tuple[float, Way]:
    """Make layers faster, the most gain first, while slices are left and it is worth them; with the latency estimated.

    ``floor``: cycles that the transfers take anyhow.
    """
    works = search.works
    best = max(estimate_latency(works, windows, way.unrolls), floor)
    while True:
        gains = []
        for number, unroll, rank in _faster(search, way, budget - way.cost):
            unrolls = (*way.unrolls[:number], unroll, *way.unrolls[number + 1 :])
            latency = max(estimate_latency(works, windows, unrolls), floor)
            work, before = works[number], way.unrolls[number]
            extra = rank[0] - way.ranks[number][0] + _pool_slices(work, unroll) - _pool_slices(work, before)
            if budget * (best - latency) > LEAST_GAIN * best * max(extra, 1):
                ranks = (*way.ranks[:number], rank, *way.ranks[number + 1 :])
                gains.append(((best - latency) / max(extra, 1), latency, replace(way, unrolls=unrolls, ranks=ranks)))
        if not gains:
            return best, way
        _, best, way = max(gains, key=lambda gain: gain[0])
        way = replace(way, cost=sum(rank[0] for rank in way.ranks))


def _pool_slices(work: LayerWork, unroll: Unroll) -> float:
    """Return the LUTs of a pool's taps (comparators, or rounded additions) in DSP slices, 100 LUTs per slice."""
    return 0 if work.weighted else (1.7 if work.whole_windows else 0.14) * unroll.tn * unroll.tk * unroll.tp


def _faster(search: Search, way: Way, left: float) -> Iterable[tuple[int, Unroll, Rank]]:
    """Yield, for each layer, the next few faster choices of equal ``Tp``, and the fastest one, within the slices."""
    for number, (work, unroll, rank) in enumerate(zip(search.works, way.unrolls, way.ranks, strict=True)):
        options = next(options for options in search.options(number) if options.tp == unroll.tp)
        now = work.output_steps(unroll.tp) * work.pixel_cycles(unroll)
        usable = (options.cost <= rank[0] + left) & (options.cycles < now) & (options.beats <= work.beats(unroll))
        places = np.flatnonzero(usable)
        if len(places):
            places = places[np.argsort(-options.cycles[places], kind="stable")]
            for index in {*places[:4].tolist(), int(places[-1])}:
                yield number, options.unroll(index), options.rank(index)


def layer_plan(
    stage: Stage[Any], unroll: Unroll, source: int, multiplier: Multiplier = PLAIN, readers: int = 1
) -> LayerPlan:
    """A layer's choices with ample buffers.

    Parameters
    ----------
    source : int
        Pixels of an input beat.
    multiplier : Multiplier
        Multiplier of the layer, where it has enough output channels at once.
    readers : int
        Layers that take the output, or whatever is behind the group.
    """
    layer = stage.op
    folds = stage.groups * ceil_div(layer.input.channels // stage.groups, unroll.tn)
    return LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=unroll.tn,
        tm=unroll.tm,
        tk=unroll.tk,
        tp=unroll.tp,
        chain=CHAIN,
        line_rows=ample_rows(layer.window, ceil_div(layer.input.width, source), folds) if stage.has_rows else 0,
        fifo_depths=(unroll.tm,) * readers,  # at least one fold's beats; sized later
        macs_per_dsp=multiplier.for_lanes(unroll.tm).name,
    )
