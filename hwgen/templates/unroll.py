"""Unroll factors for the layers of a group: the least interval that a number of multipliers allows.

Each layer is a stage of its own, so the interval is that of the slowest and the multipliers add up. Neighbours share
but one thing: a layer takes as many pixels a beat as the one before finishes at once. So for a given interval the
cheapest choices are found exactly by dynamic programming from layer to layer, over the pixels a beat of the maps that
are still to be read (in a chain that is one); and as their total only falls as the interval grows, the least interval
that fits the budget is found by bisection over the cycle counts that occur.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Combinations of output pixels a cycle that are followed for a first bound, where layers join many maps.
MOST_COMBINATIONS = 64

#: Part of a cost by which sums of it may differ when they are rounded.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Choice:
    """Unroll factors of one layer, with what they take: cycles a frame and multipliers."""

    cycles: int
    cost: int
    unroll: Unroll


#: Cost of a choice, LUTs as `fabric` says, ``Tn``, ``Tm`` and ``Tp``: less is better.
Rank = tuple[float, int, int, int, int]

#: Multipliers that a layer takes with the given factors. ``tn``, ``tm`` and ``tk`` may be arrays, all choices at once.
#: Must not fall when a factor grows and the folds stay.
Cost = Callable[[LayerWork, Unroll], Any]


def fabric(work: LayerWork, unroll: Unroll) -> Any:
    """LUTs that depend on the factors, roughly: to choose among factors that take as many multipliers.

    Of a convolution: each of its ``Tn Tk`` activations is read, padded and delayed, each of its ``Tm`` sums accumulated
    and unloaded, and the chains of each sum are added up. Of a pool: comparators, and what each channel takes anyhow.
    The weights' own LUTs are left out, as the number of multipliers says it all about them. Factors may be arrays.
    """
    return work.walk.luts(work, unroll)


def cycles(work: LayerWork, unroll: Unroll, source: int = 1) -> int:
    """Cycles a frame: as many as the multiply-adds take, or as the input has beats, if those are more.

    ``source``: pixels of an input beat.
    """
    return max(
        work.output_steps(unroll.tp) * work.pixel_cycles(unroll),
        work.input_steps(source) * work.beats(unroll),
    )


def interval(works: Sequence[LayerWork], unrolls: Sequence[Unroll]) -> int:
    """Cycles a frame of all layers: the slowest one's. An input of the group has its reader's pixels a beat."""
    pixels = [unroll.tp for unroll in unrolls]
    sources = [pixels[work.source(number)] for number, work in enumerate(works)]
    return max(cycles(*chosen) for chosen in zip(works, unrolls, sources, strict=True))


@dataclass(frozen=True)
class _Fast:
    """Choices of one layer that are fast enough."""

    index: np.ndarray
    """Their numbers, rising."""
    fewest_beats: np.ndarray
    """The fewest input beats of each and of those before it."""
    least_cost: float
    """The least cost of any; infinite if there is none."""


@dataclass(frozen=True)
class _Options:
    """Choices of one layer with the same ``Tp``, the most wanted first: of the least cost, then as `choices` says."""

    work: LayerWork
    tp: int
    tn: np.ndarray
    tm: np.ndarray
    tk: np.ndarray
    cost: np.ndarray
    cycles: np.ndarray
    """Of the walk over all windows."""
    beats: np.ndarray
    """For each step of input pixels."""
    _ranks: dict[int, Rank] = field(default_factory=dict, compare=False, repr=False)
    """Ranks that were asked for before."""
    _fast: dict[int, _Fast] = field(default_factory=dict, compare=False, repr=False)
    """The choices that are fast enough, by the cycles that were asked for last."""

    def within(self, most: int) -> _Fast:
        """Return the choices that take at most so many cycles."""
        if most not in self._fast:
            self._fast.clear()
            index = np.flatnonzero(self.cycles <= most)
            cost = self.cost[index].min().item() if len(index) else inf
            self._fast[most] = _Fast(index, np.minimum.accumulate(self.beats[index]), cost)
        return self._fast[most]

    def unroll(self, index: int) -> Unroll:
        return Unroll(int(self.tn[index]), int(self.tm[index]), int(self.tk[index]), self.tp)

    def rank(self, index: int) -> Rank:
        if index not in self._ranks:
            unroll = self.unroll(index)
            self._ranks[index] = self.cost[index].item(), fabric(self.work, unroll), unroll.tn, unroll.tm, unroll.tp
        return self._ranks[index]


def _options(work: LayerWork, cost: Cost, pixels: Sequence[int]) -> list[_Options]:
    """For each number of output pixels a cycle: the choices that none beats in rank, cycles and input beats at once."""
    by_folds: dict[int, int] = {}
    for tk in range(work.taps if work.whole_windows else 1, work.taps + 1):
        by_folds.setdefault(ceil_div(work.taps, tk), tk)
    tn, tk = np.array(least_factors(work.group_channels)), np.array(list(by_folds.values()))
    if work.channelwise:
        tn, tk = (grid.ravel() for grid in np.meshgrid(tn, tk))
        tm = tn
    else:
        tn, tm, tk = (grid.ravel() for grid in np.meshgrid(tn, np.array(least_factors(work.group_outputs)), tk))
    slow = work.steps(Unroll(tn, tm, tk)) >= work.least_steps  # type: ignore[arg-type]
    if slow.any():
        tn, tm, tk = tn[slow], tm[slow], tk[slow]
    wanted = np.lexsort((tm, tn, fabric(work, Unroll(tn, tm, tk))))  # type: ignore[arg-type]
    tn, tm, tk = tn[wanted], tm[wanted], tk[wanted]
    unroll = Unroll(tn, tm, tk)  # type: ignore[arg-type]
    walk, beats = np.asarray(work.pixel_cycles(unroll)), np.asarray(work.beats(unroll))
    by_cycles = np.lexsort((walk, beats))
    run = np.cumsum(np.diff(beats[by_cycles], prepend=beats[by_cycles[:1]]) != 0)
    found = []
    for tp in pixels:
        costs = np.broadcast_to(cost(work, Unroll(tn, tm, tk, tp)), tn.shape)  # type: ignore[arg-type]
        order = np.argsort(costs, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        # With as many beats and no more cycles, only a better rank is worth keeping. Runs of equal beats lie one below
        # the other, so one minimum goes over all.
        height = rank[by_cycles] - run * len(rank)
        kept = np.sort(rank[by_cycles[height <= np.minimum.accumulate(height)]])
        index = order[kept]
        found.append(
            _Options(
                work=work,
                tp=tp,
                tn=tn[index],
                tm=tm[index],
                tk=tk[index],
                cost=costs[index],
                cycles=walk[index] * work.output_steps(tp),
                beats=beats[index],
            )
        )
    return found


def choices(work: LayerWork, cost: Cost) -> list[Choice]:
    """Every choice of one output pixel a cycle that no other one beats, by rising cycles.

    One choice beats another if it takes no more cycles and fewer multipliers; with equally many, if it takes fewer
    LUTs as `fabric` says; then, if it has fewer lanes. ``Tn``, ``Tm`` and ``Tk`` take the least value for each number
    of folds.
    """
    (options,) = _options(work, cost, [1])
    count = np.maximum(options.cycles, options.beats * work.input_steps(1))
    order = np.argsort(count, kind="stable")  # options come by rank
    front: list[Choice] = []
    best = len(order)
    for index in order.tolist():
        if index < best:
            best = index
            front.append(Choice(int(count[index]), int(options.cost[index]), options.unroll(index)))
    return front


@dataclass(frozen=True)
class Way:
    """Unroll factors of the layers of a group, with what they take in all.

    Ways compare by their cost, then by their LUTs as `fabric` says, then layer by layer.
    """

    cost: float
    luts: int
    ranks: tuple[Rank, ...]
    unrolls: tuple[Unroll, ...]

    @property
    def order(self) -> tuple[Any, ...]:
        return self.cost, self.luts, self.ranks


class _Longer:
    """A way with a choice for one more layer, whose ranks and factors are put together only if it is the best."""

    __slots__ = ("_before", "_index", "_options", "_order", "_rank", "cost", "luts")

    def __init__(self, before: Way, options: _Options, index: int, order: Sequence[int]):
        self._before, self._options, self._index, self._order = before, options, index, order
        self._rank = options.rank(index)
        self.cost, self.luts = before.cost + self._rank[0], before.luts + self._rank[1]

    def is_before(self, other: _Longer) -> bool:
        """Whether the way is less than another one of the same layers, by `Way.order`."""
        if self.cost != other.cost:
            return self.cost < other.cost
        if self.luts != other.luts:
            return self.luts < other.luts
        return self._ranks < other._ranks

    @property
    def _ranks(self) -> tuple[Rank, ...]:
        """The ranks in the order of the layers' numbers."""
        return _in_order(self._order, (*self._before.ranks, self._rank))

    @property
    def way(self) -> Way:
        """The longer way, its layers in the order in which they were added."""
        before = self._before
        unroll = self._options.unroll(self._index)
        return Way(self.cost, self.luts, (*before.ranks, self._rank), (*before.unrolls, unroll))


def _in_order(order: Sequence[int], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``values`` of layers that were added in ``order``, by the layers' numbers."""
    return tuple(value for _, value in sorted(zip(order, values, strict=False), key=lambda entry: entry[0]))


Pixels = tuple[int, ...]
"""Output pixels that each layer computes in a cycle, of those layers that others have still to read."""


class Search:
    """Every choice of unroll factors for the layers of a group under one cost.

    Parameters
    ----------
    works : sequence of LayerWork
    cost : Cost
    copies : mapping of int to LayerWork, optional
        Layers in front of a part, by the number of the layer with which it begins: they stand for the one before it.
    """

    def __init__(self, works: Sequence[LayerWork], cost: Cost, copies: Mapping[int, LayerWork] | None = None):
        self._all, self._begin, self._end = tuple(works), 0, len(works)
        self._cost, self._copies = cost, copies or {}
        self._tables: dict[tuple[LayerWork, bool], list[_Options]] = {}
        self._fronts: dict[tuple[LayerWork, bool], tuple[np.ndarray, np.ndarray]] = {}
        self._counts: dict[tuple[LayerWork, bool, Pixels], np.ndarray] = {}
        self._ways: dict[tuple[int, int, int], Way | None] = {}

    def part(self, begin: int, end: int) -> Search:
        """The same for the layers ``begin`` to ``end`` alone; what both know is computed once."""
        other = object.__new__(Search)
        other.__dict__.update(self.__dict__)
        other._begin, other._end = begin, end
        for name in ("works", "intervals", "_readers", "_alike", "_order", "_sweep", "_layer_fronts"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def works(self) -> tuple[LayerWork, ...]:
        copy = self._copies.get(self._begin)
        return (*(() if copy is None else (copy,)), *self._all[self._begin : self._end])

    def options(self, number: int) -> list[_Options]:
        """Of layer ``number`` of this part."""
        return self._options(self.works[number], first=self.works[number].source(number) == number)

    def alone(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cycles, rising, and the least cost within them, of layer ``number`` where a group begins with it."""
        return self._front(self._all[number], first=True)

    def _front(self, work: LayerWork, first: bool) -> tuple[np.ndarray, np.ndarray]:
        key = work, first
        if key not in self._fronts:
            options = self._options(work, first)
            cycles, cost = (np.concatenate([getattr(of, name) for of in options]) for name in ("cycles", "cost"))
            order = np.argsort(cycles, kind="stable")
            self._fronts[key] = cycles[order], np.minimum.accumulate(cost[order])
        return self._fronts[key]

    def _options(self, work: LayerWork, first: bool) -> list[_Options]:
        key = work, first
        if key not in self._tables:
            self._tables[key] = _options(work, self._cost, _pixel_factors(work, first))
        return self._tables[key]

    @cached_property
    def intervals(self) -> list[int]:
        """All cycle counts that a layer may come to, sorted."""
        return np.unique(np.concatenate([self._layer_intervals(number) for number in range(len(self.works))])).tolist()

    def _layer_intervals(self, number: int) -> np.ndarray:
        """Return the cycle counts that layer ``number`` of this part may come to, sorted."""
        work, source = self.works[number], self.works[number].source(number)
        sources = tuple(options.tp for options in self.options(source))
        key = work, source == number, sources
        if key not in self._counts:
            counts = []
            for options in self.options(number):
                counts.append(options.cycles)
                counts += [np.unique(options.beats) * work.input_steps(pixels) for pixels in sources]
            self._counts[key] = np.unique(np.concatenate(counts))
        return self._counts[key]

    def cheapest(self, most: int, budget: float = inf) -> Way | None:
        """The best way whose interval is at most ``most`` cycles; ``None`` if there is none that costs ``budget``."""
        key = self._begin, self._end, most
        if key not in self._ways:
            way = self._cheapest(most, budget)
            if way is None and budget < inf:
                return None
            self._ways[key] = way
        way = self._ways[key]
        return None if way is None or way.cost > budget else way

    def _cheapest(self, most: int, budget: float) -> Way | None:
        """The same, not looked up.

        Where there are many combinations, the best of a few is found first: all that cost more for sure are left out.
        """
        least = [min(options.within(most).least_cost for options in self.options(number)) for number in self._order]
        rest = [0.0, *accumulate(reversed(least))][::-1]
        if rest[0] == inf:
            return None
        way, is_exact = self._best_way(most, rest, budget, MOST_COMBINATIONS)
        if not is_exact:
            way, _ = self._best_way(most, rest, budget if way is None else way.cost * (1 + ROUNDING), None)
        if way is None:
            return None
        ranks, unrolls = (_in_order(self._order, values) for values in (way.ranks, way.unrolls))
        return Way(way.cost, way.luts, ranks, unrolls)

    def _best_way(self, most: int, rest: Sequence[float], bound: float, kept: int | None) -> tuple[Way | None, bool]:
        """The best way that costs at most ``bound``, its layers in `_order`; and whether ``kept`` left out none.

        One layer after the other, the best way for each ``Tp`` of the layers that others have still to read: what
        follows depends on nothing else.

        Parameters
        ----------
        rest : sequence of float
            What the layers cost at least from each on.
        kept : int, optional
            Number of combinations of ``Tp`` that are followed at most.
        """
        ways: dict[Pixels, Way] = {(): Way(0, 0, (), ())}
        is_exact = True
        for step, (number, source, equal, read_later) in enumerate(self._sweep):
            work = self.works[number]
            best: dict[Pixels, _Longer] = {}
            for options in self.options(number):
                tp = options.tp
                fitting = [(pixels, way) for pixels, way in ways.items() if all(pixels[place] == tp for place in equal)]
                fast = options.within(most)
                if not len(fast.index) or not fitting:
                    continue
                # The first, so the best, whose input beats don't take longer either.
                limits = [most // work.input_steps(pixels[source] if source >= 0 else tp) for pixels, _ in fitting]
                places = np.searchsorted(-fast.fewest_beats, np.negative(limits))
                for place, (pixels, way) in zip(places.tolist(), fitting, strict=True):
                    if place == len(fast.index):
                        continue
                    longer = _Longer(way, options, int(fast.index[place]), self._order)
                    if longer.cost + rest[step + 1] > bound:
                        continue
                    known = (*pixels, tp)
                    left = tuple([known[place] for place in read_later])
                    if left not in best or longer.is_before(best[left]):
                        best[left] = longer
            if kept is not None and len(best) > kept:
                best = dict(sorted(best.items(), key=lambda entry: (entry[1].cost, entry[1].luts))[:kept])
                is_exact = False
            ways = {left: longer.way for left, longer in best.items()}
        return min(ways.values(), key=lambda way: way.order, default=None), is_exact

    @cached_property
    def _sweep(self) -> list[tuple[int, int, list[int], list[int]]]:
        """For each layer in `_order` its number, and places in the ``Tp`` of layers that were still to be read.

        The place of its source (-1 if there is none), those of layers that must have its own ``Tp``, and those that are
        still to be read behind it, its own the last.
        """
        found, unread, done = [], [], set()
        for number in self._order:
            before = number - self.works[number].back[0]
            source = unread.index(before) if before in unread else -1
            equal = [place for place, layer in enumerate(unread) if self._alike[layer] == self._alike[number]]
            done.add(number)
            unread.append(number)
            later = [place for place, layer in enumerate(unread) if not self._readers[layer] <= done]
            found.append((number, source, equal, later))
            unread = [unread[place] for place in later]
        return found

    @cached_property
    def _order(self) -> list[int]:
        """The layers in an order in which as few as can be, by greed, are still to be read in between."""
        count = len(self.works)
        if all(readers <= {number + 1} for number, readers in enumerate(self._readers)):
            return list(range(count))
        before = [{number - back for back in work.back if back <= number} for number, work in enumerate(self.works)]
        order: list[int] = []
        done: set[int] = set()
        unread: list[int] = []

        def behind(number: int) -> int:
            """How many layers of different ``Tp`` are still to be read behind a layer."""
            known = {*done, number}
            return len({self._alike[layer] for layer in (*unread, number) if not self._readers[layer] <= known})

        while len(order) < count:
            ready = [number for number in range(count) if number not in done and before[number] <= done]
            order.append(min(ready, key=lambda number: (behind(number), number)))
            done.add(order[-1])
            unread = [layer for layer in (*unread, order[-1]) if not self._readers[layer] <= done]
        return order

    @cached_property
    def _alike(self) -> list[int]:
        """For each layer the first one that must compute as many pixels a cycle, as the same layers join their maps.

        Branches that meet are known to be alike before they do, so that few combinations are looked at.
        """
        first = list(range(len(self.works)))
        for number, work in enumerate(self.works):
            met = {first[number], *(first[number - back] for back in work.back[: work.in_step] if back <= number)}
            first = [min(met) if layer in met else layer for layer in first]
        return first

    @cached_property
    def _readers(self) -> list[set[int]]:
        """For each layer those that read it."""
        readers: list[set[int]] = [set() for _ in self.works]
        for number, work in enumerate(self.works):
            for back in work.back:
                if back <= number:
                    readers[number - back].add(number)
        return readers

    def fastest(self, fits: Callable[[Way], bool], floor: int = 0) -> tuple[int, Way] | None:
        """The least interval, not below ``floor``, whose best way ``fits``, and that way; ``None`` if none does.

        ``fits`` must not turn false as the interval grows.
        """

        def good(most: int) -> bool:
            way = self.cheapest(most)
            return way is not None and fits(way)

        # `True` sorts after `False`: the first interval that fits.
        return self._at(bisect_left(self.intervals, True, self._first(floor), key=good))

    def fastest_within(self, budget: float, floor: int = 0) -> tuple[int, Way] | None:
        """Return the least interval, not below ``floor``, whose best way costs at most ``budget``, and that way.

        ``None`` if there is none. A lower bound of the cost is within the budget at an interval mostly a few steps
        below the one that is sought. So these steps double, and the rest is bisection.
        """
        intervals = self.intervals
        low = bisect_left(intervals, True, self._first(floor), key=lambda most: self._least_cost(most) <= budget)
        high, step = low, 1
        while high < len(intervals) and self.cheapest(intervals[high], budget) is None:
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, len(intervals))
        return self._at(
            bisect_left(intervals, True, low, high, key=lambda most: self.cheapest(most, budget) is not None)
        )

    def _first(self, floor: int) -> int:
        """Return the index of the least interval that is not below ``floor``, or of the last."""
        return min(bisect_left(self.intervals, floor), len(self.intervals) - 1)

    def _at(self, index: int) -> tuple[int, Way] | None:
        """Return the interval of an index and its best way; ``None`` behind the last."""
        if index == len(self.intervals):
            return None
        way = self.cheapest(self.intervals[index])
        assert way is not None
        return self.intervals[index], way

    def _least_cost(self, most: int) -> float:
        """Return a lower bound of the cost within ``most`` cycles: each layer by itself."""
        total = 0.0
        for cycles, cost in self._layer_fronts:
            count = cycles.searchsorted(most, side="right")
            total += cost[count - 1] if count else inf
        return total

    @cached_property
    def _layer_fronts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each layer what `alone` returns."""
        return [self._front(work, work.source(number) == number) for number, work in enumerate(self.works)]

    @property
    def least(self) -> Way:
        """The cheapest way of all."""
        way = self.cheapest(self.intervals[-1])
        assert way is not None
        return way


def least_text(search: Search) -> str:
    """What the cheapest choices take, layer by layer, for a message."""
    ranks = search.least.ranks
    parts = ", ".join(f"{work.name} {rank[0]}" for work, rank in zip(search.works, ranks, strict=True) if rank[0])
    return f"the least is {sum(rank[0] for rank in ranks)} ({parts})"


def _pixel_factors(work: LayerWork, first: bool) -> list[int]:
    """The least ``Tp`` for each number of output steps; and of input steps, where the input has ``Tp`` too."""
    found: dict[tuple[int, int], int] = {}
    for tp in range(1, min(work.most_pixels, work.width) + 1):
        found.setdefault((work.output_steps(tp), work.input_steps(tp) if first else 0), tp)
    return list(found.values())


def least_factors(channels: int) -> list[int]:
    """For each possible number of folds of ``channels``, the least factor that gives it."""
    return sorted({ceil_div(channels, folds) for folds in range(1, channels + 1)})
