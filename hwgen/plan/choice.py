"""One fusion group on a board: unroll factors by objective, within the budgets, and the buffers that they need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import ceil, inf
from typing import Any, NoReturn

import numpy as np

from hwgen.boards import Board
from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.block_ram import BRAM36_BITS
from hwgen.gateware.multiply import PACKED_CHAIN, packable
from hwgen.gateware.pyramid.spans import Axis
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.ops import Conv, Op
from hwgen.plan.compose import input_format, layer_config
from hwgen.plan.latency import estimate_latency
from hwgen.plan.memory import weight_block_rams
from hwgen.plan.plan import (
    PYRAMID,
    STREAM,
    Group,
    LayerPlan,
    OverBudgetError,
    Plan,
    Tiling,
    check_budget,
    with_buffers,
)
from hwgen.plan.tiles import RECOMPUTE, REUSE, axes
from hwgen.plan.tips import INPUT_PIXELS, PyramidWork, most, tips
from hwgen.plan.unroll import LayerWork, Rank, Search, Unroll, Way, ceil_div, interval, least_text
from hwgen.schedule.buffers import ample_rows, size_buffers
from hwgen.schedule.solve import Schedule

#: DSP slices in a chain at most: longer ones cost latency and outgrow a DSP column.
CHAIN = 16

#: DSP slices that a block RAM is worth, tried in turn where block RAM runs out.
BRAM_PRICES = (0.25, 1, 4, 16)

#: Ways whose buffers are sized in vain before another price is tried.
MOST_SIZED = 3

#: Overlaps of pyramids, the one that is wanted most first.
OVERLAPS = (REUSE, RECOMPUTE)

#: Ways whose latency is estimated, from the least interval upward; and those of them that are scheduled exactly.
LATENCY_WAYS, EXACT_WAYS = 8, 3

#: Share of the latency that a faster layer must gain, for the whole budget of slices.
LEAST_GAIN = 0.05


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is asked of a plan.

    Parameters
    ----------
    objective : str
        ``interval``, ``latency``, ``traffic`` or ``dsp``: what to make small.
    dsp : int
        DSP slices that may be used.
    interval : int, optional
        With ``dsp``: cycles between frames at most.
    macs_per_dsp : int
        Multiply-adds that a slice may do in a cycle; 2 where weights and activations allow it.
    template : str, optional
        ``stream`` or ``pyramid``: how all groups are built. By default row by row, where that fits.
    tile : tuple of int, optional
        Rows and columns of a pyramid's tip.
    overlap : str, optional
        Of neighbouring pyramids, as in `hwgen.plan.tiles`.
    """

    objective: str
    dsp: int
    interval: int | None = None
    macs_per_dsp: int = 1
    template: str | None = None
    tile: tuple[int, int] | None = None
    overlap: str | None = None

    @property
    def products(self) -> int:
        """Multiply-adds a cycle at most."""
        return self.dsp * self.macs_per_dsp


class Chooser:
    """Plans groups of a network's layers, each by itself.

    Parameters
    ----------
    network : Network
    board : Board
    goal : Goal
    """

    def __init__(self, network: Network, board: Board, goal: Goal):
        self.network, self.board, self.goal = network, board, goal
        self.macs = [goal.macs_per_dsp if can_pack(layer) else 1 for layer in network.layers]
        self.works = [
            work_of(layer, CHAIN if macs == 1 else PACKED_CHAIN)
            for layer, macs in zip(network.layers, self.macs, strict=True)
        ]
        self._packs = {layer.name: macs for layer, macs in zip(network.layers, self.macs, strict=True)}
        self._layers = {layer.name: layer for layer in network.layers}

    def aiming(self, **changes: Any) -> Chooser:
        """The same for another goal, but for ``macs_per_dsp``; what both know is computed once."""
        other = copy(self)
        other.goal = replace(self.goal, **changes)
        return other

    @cached_property
    def search(self) -> Search:
        """By DSP slices."""
        return Search(self.works, self.slices)

    def slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """DSP slices of a layer, with those of its requantiser; factors may be arrays.

        Never too few; too many where some of a requantiser's lanes get by with smaller factors than others.
        """
        multipliers = 0 if work.depthwise else unroll.tn * ceil_div(unroll.tm, self._packs[work.name]) * unroll.tk
        return unroll.tp * (multipliers + self.requantiser_slices(work) * lanes_out(work, unroll))

    def requantiser_slices(self, work: LayerWork) -> int:
        """DSP slices of a layer's requantiser for each channel that it finishes a cycle."""
        return requantiser_slices(self._layers[work.name])

    def bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Block RAM of a layer's weights; factors may be arrays."""
        layer = self._layers[work.name]
        if not layer.weight_count:
            return 0
        return weight_block_rams(
            unroll.tn * unroll.tk, unroll.tm * layer.weight_bits, work.chain, np.asarray(work.walk(unroll))
        )

    @cached_property
    def priced(self) -> list[Search]:
        """By DSP slices and block RAM together."""
        return self.price(self.works)

    def price(self, works: Sequence[LayerWork]) -> list[Search]:
        """Searches by DSP slices and block RAM together, at several prices."""

        def search(price: float) -> Search:
            return Search(works, lambda *choice: self.slices(*choice) + price * self.bram36(*choice))

        return [search(price) for price in BRAM_PRICES]

    def group(self, begin: int, end: int, *, in_turn: bool = False) -> Group:
        """The best group of the layers ``begin`` to ``end``.

        Parameters
        ----------
        in_turn : bool
            Other groups run before and after it: its time is one frame's.

        Raises
        ------
        OverBudgetError
            If nothing fits, naming what runs out.
        """
        check_weights(self.network.layers[begin:end], self.board)
        if self.goal.template == PYRAMID:
            return self._in_pyramids(begin, end, in_turn)
        try:
            return _Choice(self, begin, end, in_turn).best()
        except OverBudgetError as error:
            if self.goal.template == STREAM or error.resource == "DSP slices":
                raise
            try:
                return self._in_pyramids(begin, end, in_turn)
            except PlanError:
                raise error from None

    def _in_pyramids(self, begin: int, end: int, in_turn: bool) -> Group:
        """The best group that is computed pyramid by pyramid: with reuse, if that fits.

        Raises
        ------
        PlanError
            If none fits, or the tile is none of the group's output.
        """
        overlaps = (self.goal.overlap,) if self.goal.overlap else OVERLAPS
        for overlap in overlaps:
            try:
                return _tiled_best(self, begin, end, in_turn, overlap)
            except PlanError:
                if overlap == overlaps[-1]:
                    raise
        raise AssertionError("the last overlap returns or raises")

    def promise(self) -> float:
        """What one group would come to if DSP slices were all it took: the least interval, or the fewest slices."""
        if self.goal.objective == "dsp":
            limit = self.goal.interval
            way = self.search.least if limit is None else self.search.cheapest(limit)
            return inf if way is None else way.cost
        found = self.search.fastest(lambda way: way.cost <= self.goal.dsp)
        return inf if found is None else found[0]

    def quick(self, begin: int, end: int) -> Way:
        """The best way for the layers ``begin`` to ``end`` by DSP slices alone.

        Raises
        ------
        OverBudgetError
            If the slices don't suffice, or the weights can't fit whatever the unrolling.
        """
        check_weights(self.network.layers[begin:end], self.board)
        return _Choice(self, begin, end, True).quick()

    def may_fit(self, count: int) -> bool:
        """Whether the first ``count`` layers as one group, row by row, fit with the fewest slices or at their fastest.

        With the least buffers; mostly they then fit with those that they need, too.
        """
        try:
            check_weights(self.network.layers[:count], self.board)
            return _Choice(self, 0, count, False).may_fit()
        except PlanError:
            return False

    def plan(self, groups: tuple[Group, ...], notes: tuple[str, ...] = ()) -> Plan:
        """The plan of these groups; see `Plan` for what is raised."""
        return Plan(network=self.network, board=self.board, groups=groups, dsp=self.goal.dsp, notes=notes)


def check_weights(layers: Sequence[Op], board: Board) -> None:
    """Refuse at once what no unrolling can mend: more weights than all memory of the device holds.

    Raises
    ------
    OverBudgetError
    """
    check_weight_bits(weights_of(layers), board)


def weights_of(layers: Sequence[Op]) -> list[tuple[str, int]]:
    """Name and bits of all weights of each layer that has any."""
    return [(layer.name, layer.weight_count * layer.weight_bits) for layer in layers if layer.weight_count]


def check_weight_bits(weights: Sequence[tuple[str, int]], board: Board) -> None:
    """The same by names and bits of layers.

    Raises
    ------
    OverBudgetError
    """
    bits = sum(count for _, count in weights)
    needed = -(-bits // BRAM36_BITS)
    if bits > board.bram36 * BRAM36_BITS + board.lut * 64:
        raise OverBudgetError(
            f"{_names(name for name, _ in weights)}: weights need {needed:,} BRAM36, but {board.name} ({board.device}) "
            f"has {board.bram36:,}",
            "BRAM36",
            needed,
        )


@dataclass(frozen=True)
class _Choice:
    """The choice for one group that is computed row by row."""

    chooser: Chooser
    begin: int
    end: int
    in_turn: bool

    @property
    def network(self) -> Network:
        return self.chooser.network.part(self.begin, self.end)

    @property
    def goal(self) -> Goal:
        return self.chooser.goal

    @property
    def search(self) -> Search:
        """By DSP slices."""
        return self.chooser.search.part(self.begin, self.end)

    @property
    def priced(self) -> list[Search]:
        """By DSP slices and block RAM together."""
        return [search.part(self.begin, self.end) for search in self.chooser.priced]

    def make(self, layers: tuple[LayerPlan, ...]) -> Group:
        """The group with these choices."""
        return Group(network=self.network, layers=layers)

    def best(self) -> Group:
        """The best group that fits.

        Raises
        ------
        OverBudgetError
            If none does.
        """
        group, refusal = self.first()
        if group is not None:
            return group
        assert refusal is not None
        # The price of block RAM changes nothing where it is logic that runs out.
        prices = (self.search, *(self.priced if refusal.resource == "BRAM36" else ()))
        tried = (self.within(search) for search in prices)
        found = [group for group in tried if group is not None]
        if not found:
            raise self.least_refusal(refusal)
        return min(found, key=lambda group: (group.slowest, group.resources.dsp))

    def first(self) -> tuple[Group | None, OverBudgetError | None]:
        """The best group by DSP slices alone; or what of the rest of the board it exceeds."""
        way = self.quick()
        soon = self.goal.objective == "latency" or (self.in_turn and self.goal.objective != "dsp")
        if soon and self._lack(way) is None:
            way = self._soonest(way)
        if (refusal := self._lack(way)) is not None:
            return None, refusal
        group = self._sized(way)
        try:
            check_budget(group.resources, self.chooser.board, self.goal.dsp)
        except OverBudgetError as error:
            return None, error
        return group, None

    def quick(self) -> Way:
        """The best way by DSP slices alone: of the least interval, or of the fewest slices."""
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
            try:
                check_budget(group.resources, self.chooser.board, self.goal.dsp)
                return group
            except OverBudgetError:  # by rows or FIFOs beyond the least
                if sized == MOST_SIZED:
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
        steps, cycles = [], found[0]
        while cycles < last:
            steps.append(cycles)
            cycles = ceil(cycles * (1.02 if cycles < 4 * found[0] else 1.25))
        steps.append(last)
        return steps[::-1] if fewest else steps

    def _slices(self, way: Way) -> int:
        return sum(int(self.chooser.slices(*choice)) for choice in zip(self.works, way.unrolls, strict=True))

    @property
    def _floor(self) -> int:
        """Cycles a frame that the maps take over the boundary: being faster gains nothing."""
        return self.chooser.board.transfer_cycles(self.network.map_bytes)

    def _fewest(self, search: Search) -> Way:
        limit = None if self.in_turn else self.goal.interval
        way = search.least if limit is None else search.cheapest(limit)
        if way is not None and self._slices(way) <= self.goal.dsp:
            return way
        nearest = search.fastest(lambda way: self._slices(way) <= self.goal.dsp)
        if nearest is None:
            self._refuse_slices(search)
        raise PlanError(
            f"no plan has an interval of at most {limit:,} cycles within {self.goal.dsp} DSP slices: the nearest has "
            f"{nearest[0]:,}"
        )

    def _fastest(self, search: Search) -> Way:
        found = search.fastest(lambda way: self._slices(way) <= self.goal.dsp, self._floor)
        if found is None:
            self._refuse_slices(search)
        return found[1]

    def _refuse_slices(self, search: Search) -> NoReturn:
        raise OverBudgetError(
            f"no unrolling fits {self.goal.dsp} DSP slices: {least_text(search)}", "DSP slices", search.least.cost
        )

    def least_refusal(self, refusal: OverBudgetError) -> OverBudgetError:
        """``refusal``, or that of the fewest slices if it needs less of the same."""
        least = self.least_lack()
        if least is not None and least.resource == refusal.resource and least.needed < refusal.needed:
            return least
        return refusal

    def may_fit(self) -> bool:
        """Whether the fewest slices, or the fastest way within the slices, fit with the least buffers."""
        return self.least_lack() is None or self._lack(self.quick()) is None

    def least_lack(self) -> OverBudgetError | None:
        """What of the board the fewest slices with the least buffers exceed."""
        return self._lack(self.search.least)

    def _soonest(self, fastest: Way) -> Way:
        """The least latency found: slices that the interval leaves over make fills and drains shorter.

        From several intervals on, one layer after the other is made faster where the estimate says that it helps
        most; the best few are scheduled exactly, and so is the plain choice of the least interval. (A group in turn is
        one of many, and its frames come alone: the estimate decides.)
        """
        search = self.search
        windows = [layer.window for layer in self.network.layers]
        if self.in_turn:
            return _climb(search, windows, fastest, self.goal.dsp, self._floor)[1]
        ways = self._slower_ways(search, fastest)
        found = [_climb(search, windows, way, self.goal.dsp, 0) for way in ways]
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
        return Schedule(config, 1, depths=[None] * len(config.layers)).cycles.latency

    def _lack(self, way: Way) -> OverBudgetError | None:
        """What of the board the way exceeds with the least buffers."""
        layers = self._layers(way)
        rows = [min(layer.window.kernel[0], layer.input.height) for layer in self.network.layers]
        group = self.make(with_buffers(layers, rows, [layer.tm for layer in layers]))
        try:
            check_budget(group.resources, self.chooser.board, self.goal.dsp)
        except OverBudgetError as error:
            return error
        return None

    def _fits(self, way: Way) -> bool:
        """Whether the way fits with the least buffers; what its weights alone exceed costs no composing."""
        weights = sum(float(self.chooser.bram36(*choice)) for choice in zip(self.works, way.unrolls, strict=True))
        if self._slices(way) > self.goal.dsp or weights > self.chooser.board.bram36:
            return False
        return self._lack(way) is None

    @property
    def works(self) -> list[LayerWork]:
        return self.chooser.works[self.begin : self.end]

    def _layers(self, way: Way) -> tuple[LayerPlan, ...]:
        """With ample buffers."""
        sources = [unroll.tp for unroll in (*way.unrolls[:1], *way.unrolls)]
        macs = self.chooser.macs[self.begin : self.end]
        return tuple(
            layer_plan(*choice) for choice in zip(self.network.layers, way.unrolls, sources, macs, strict=False)
        )

    def _sized(self, way: Way) -> Group:
        """With the buffers that the exact schedule asks for."""
        layers = self._layers(way)
        rows, depths = size_buffers(self.make(layers).config, 1 if self.in_turn else None)
        return self.make(with_buffers(layers, rows, depths))


@dataclass(frozen=True)
class _PyramidChoice(_Choice):
    """The choice for one group that is computed pyramid by pyramid.

    Layers are balanced inside the map, or with ``in_all`` by what they do in a frame.
    """

    tiling: Tiling
    in_all: bool = False

    @cached_property
    def search(self) -> Search:
        return Search(self.works, self.chooser.slices)

    @cached_property
    def priced(self) -> list[Search]:
        return self.chooser.price(self.works)

    def make(self, layers: tuple[LayerPlan, ...]) -> Group:
        return Group(network=self.network, layers=layers, tiling=self.tiling)

    @cached_property
    def works(self) -> list[LayerWork]:
        plain, each = self.chooser.works[self.begin : self.end], self._each
        works = [
            (tiled.in_all if self.in_all else tiled.inside)(work, self._pyramids)
            for work, tiled in zip(plain, each, strict=True)
        ]
        # So that a layer can hand pixels on faster than it makes them; behind the last one nothing is kept.
        return [*(replace(work, least_steps=2) for work in works[:-1]), works[-1]]

    @cached_property
    def _pyramids(self) -> int:
        """Tips of a frame, or how many inside the map its pyramids are worth."""
        last = self.network.output
        tips = ceil_div(last.height, self.tiling.tile[0]) * ceil_div(last.width, self.tiling.tile[1])
        return tips if self.in_all else max(tips, *(tiled.worth for tiled in self._each))

    @cached_property
    def _each(self) -> list[PyramidWork]:
        return [PyramidWork(tiles, 1 if number else self.tiling.pixels) for number, tiles in enumerate(self._tiles)]

    def estimate(self, way: Way) -> int:
        """Cycles of a frame: of each pyramid, those of its slowest layer."""
        layers = zip(self._each, self.works, way.unrolls, strict=True)
        return int(np.max([tiled.cycles(work, unroll) for tiled, work, unroll in layers], axis=0).sum())

    @cached_property
    def _tiles(self) -> list[tuple[Axis, Axis]]:
        return axes(self.network.layers, self.tiling.tile, self.tiling.overlap)

    def _layers(self, way: Way) -> tuple[LayerPlan, ...]:
        """With ample FIFOs. There are no line buffers; the rows of a window stand for them."""
        return tuple(
            replace(plan, line_rows=min(layer.window.kernel[0], layer.input.height), fifo_lanes=lanes)
            for plan, layer, lanes in zip(super()._layers(way), self.network.layers, self._lanes(way), strict=True)
        )

    def _fastest(self, search: Search) -> Way:
        """One after the other from the least that slices alone allow: those for wider FIFOs don't fall steadily."""
        found = search.fastest(lambda way: way.cost <= self.goal.dsp, self._floor)
        if found is None:
            self._refuse_slices(search)
        for cycles in search.intervals[bisect_left(search.intervals, found[0]) :]:
            way = search.cheapest(cycles)
            if way is not None and self._slices(way) <= self.goal.dsp:
                return way
        return self._refuse_slices(search)

    def _slices(self, way: Way) -> int:
        """With those of requantisers for wider FIFOs."""
        more = 0
        for work, unroll, lanes in zip(self.works, way.unrolls, self._lanes(way), strict=True):
            if lanes is not None:
                more += self.chooser.requantiser_slices(work) * (lanes - int(lanes_out(work, unroll)))
        return super()._slices(way) + more

    def _lanes(self, way: Way) -> list[int | None]:
        """Channels of a FIFO's beat, where a pixel must leave faster than its layer makes it.

        While pixels that were kept come into a tile, new ones wait; they have to come in faster afterwards.
        """
        works, unrolls = self.works, way.unrolls
        cycles = interval(works, unrolls) // self._pyramids
        result: list[int | None] = []
        for number, (rows, columns) in enumerate(self._tiles[1:]):
            work, unroll = works[number], unrolls[number]
            folds, new = int(works[number + 1].beats(unrolls[number + 1])), most(rows, "new") * most(columns, "new")
            left = cycles - (most(rows, "size") * most(columns, "size") - new) * folds
            beats = max(left // new, folds) // int(work.output_folds(unroll))  # of an output fold
            wanted = ceil_div(unroll.tm, max(beats, 1))
            result.append(wanted if wanted > int(lanes_out(work, unroll)) else None)
        return [*result, None]

    def _soonest(self, fastest: Way) -> Way:
        """Latency is all but the interval where one frame is many pyramids."""
        return fastest


def _tiled_best(chooser: Chooser, begin: int, end: int, in_turn: bool, overlap: str) -> Group:
    """The best group of pyramids with this overlap: of the tips that fit, the one that promises the least interval.

    Raises
    ------
    PlanError
        If none fits, or the tile that is asked for is none.
    """
    goal = chooser.goal
    shapes = chooser.network.layers[begin:end]
    worth_trying = [goal.tile] if goal.tile else tips(shapes, overlap, goal.products)
    for tip in worth_trying:
        last = tip == worth_trying[-1]
        try:
            choice = _with_tip(chooser, begin, end, in_turn, Tiling(tile=tip, overlap=overlap))
            # Slower unrolling, which takes long to search, only where no smaller memory is left to try.
            group, refusal = (choice.best(), None) if last else choice.first()
        except PlanError as error:
            if last or (isinstance(error, OverBudgetError) and error.resource == "DSP slices"):
                raise
            continue
        if group is not None:
            return group
        assert refusal is not None
        if refusal.resource == "DSP slices":
            raise refusal
    raise AssertionError("the last tip returns or raises")


def _with_tip(chooser: Chooser, begin: int, end: int, in_turn: bool, tiling: Tiling) -> _PyramidChoice:
    """With as many pixels a beat of the input as serve the objective, by DSP slices alone.

    Raises
    ------
    PlanError
        If the slices don't suffice, or no interval is short enough, whatever the beats.
    """
    found: list[tuple[float, int, bool, _PyramidChoice, Way]] = []
    refusal: PlanError | None = None
    few = chooser.goal.objective == "dsp"
    for in_all, pixels in product((False, True), INPUT_PIXELS):
        choice = _PyramidChoice(chooser, begin, end, in_turn, replace(tiling, pixels=pixels), in_all)
        if pixels > choice.network.input.width:
            continue
        try:
            way = choice.quick()
        except ConfigError:  # tiles don't begin at beats of so many pixels
            continue
        except PlanError as error:
            refusal = error
            continue
        cost = way.cost if few else interval(choice.works, way.unrolls)
        found.append((cost, pixels, in_all, choice, way))
    if not found:
        assert refusal is not None
        raise refusal
    # Of each balance the fewest pixels; then what is faster, all pyramids counted as they are.
    best = [
        min((one for one in found if one[2] == in_all), default=None, key=lambda one: one[:2])
        for in_all in (False, True)
    ]
    return min(filter(None, best), key=lambda one: (one[0] if few else 0, one[3].estimate(one[4])))[3]


def _climb(search: Search, windows: list[Window], way: Way, budget: int, floor: int) -> tuple[float, Way]:
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
    """What a pool's comparators are worth in DSP slices, at 100 LUTs each."""
    return 0.14 * unroll.tn * unroll.tk * unroll.tp if work.depthwise else 0


def _faster(search: Search, way: Way, left: float) -> Iterable[tuple[int, Unroll, Rank]]:
    """For each layer the next few choices with as many pixels that are faster, and the fastest, within the slices."""
    for number, (work, unroll, rank) in enumerate(zip(search.works, way.unrolls, way.ranks, strict=True)):
        options = next(options for options in search.options(number) if options.tp == unroll.tp)
        now = work.output_steps(unroll.tp) * work.walk(unroll)
        usable = (options.cost <= rank[0] + left) & (options.cycles < now) & (options.beats <= work.beats(unroll))
        places = np.flatnonzero(usable)
        if len(places):
            places = places[np.argsort(-options.cycles[places], kind="stable")]
            for index in {*places[:4].tolist(), int(places[-1])}:
                yield number, options.unroll(index), options.rank(index)


def lanes_out(work: LayerWork, unroll: Unroll) -> Any:
    """``r``: channels a cycle that a layer finishes, ``ceil(Tm / cycles of an output fold)``."""
    return ceil_div(unroll.tm, work.steps(unroll))


def can_pack(layer: Op) -> bool:
    """Whether a slice can do two of the layer's multiply-adds in a cycle."""
    if not isinstance(layer, Conv):
        return False
    return packable(*layer.weight_range, layer.input.type.bits)


def work_of(layer: Op, chain: int = CHAIN) -> LayerWork:
    """What the unroll search knows of a layer; ``chain``: slices in a chain at most."""
    return LayerWork(
        name=layer.name,
        channels=layer.input.channels,
        outputs=layer.output.channels,
        groups=layer.groups,
        height=layer.output.height,
        width=layer.output.width,
        input_height=layer.input.height,
        input_width=layer.input.width,
        taps=layer.window.taps,
        depthwise=layer.channelwise,
        chain=chain,
    )


def layer_plan(layer: Op, unroll: Unroll, source: int, macs_per_dsp: int = 1) -> LayerPlan:
    """A layer's choices with ample buffers.

    Parameters
    ----------
    source : int
        Pixels of an input beat.
    macs_per_dsp : int
        Multiply-adds that a slice may do in a cycle; a single output channel has no partner.
    """
    groups = layer.groups
    folds = groups * ceil_div(layer.input.channels // groups, unroll.tn)
    return LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=unroll.tn,
        tm=unroll.tm,
        tk=unroll.tk,
        tp=unroll.tp,
        chain=CHAIN,
        line_rows=ample_rows(layer.window, ceil_div(layer.input.width, source), folds),
        fifo_depth=unroll.tm,  # at least one fold's beats; sized later
        macs_per_dsp=min(macs_per_dsp, unroll.tm),
    )


@cache
def requantiser_slices(layer: Op) -> int:
    """DSP slices of the requantiser for each channel it finishes a cycle: those of the dearest."""
    if not isinstance(layer, Conv) or layer.requantisation is None:
        return 0
    single = LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=1,
        tm=1,
        tk=1,
        chain=CHAIN,
        line_rows=layer.window.kernel[0],
        fifo_depth=1,
    )
    requantise = layer_config(layer, single, input_format(layer, single, 1), None).finish
    assert isinstance(requantise, RequantiseConfig)
    return replace(requantise, lanes=1).multipliers


def _names(layers: Iterable[str]) -> str:
    names = list(layers)
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
