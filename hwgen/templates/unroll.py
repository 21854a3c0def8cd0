"""Exact search for the unroll factors of a group's layers: the shortest interval that a number of multipliers allows.

Each layer is a stage of its own. So the interval is the slowest layer's, and the multipliers add up. Neighbours are
coupled in one point only: a layer reads as many pixels per beat as the previous layer computes per cycle. For a given
interval, dynamic programming from layer to layer finds the cheapest choices. Its state is the pixels per beat of all
maps that are still to be read (one map in a chain). The total cost only falls as the interval grows, so bisection over
the possible cycle counts finds the shortest interval within the budget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, ClassVar, Self

import numpy as np

from hwgen.templates.sweep import Pixels, Sweep
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Maximum number of combinations of output pixels per cycle in the search for a first bound, if layers join many maps.
MOST_COMBINATIONS = 64

#: Relative rounding error of sums of costs.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Choice:
    """Unroll factors of one layer, with their cycles per frame and their cost in multipliers."""

    cycles: int
    cost: int
    unroll: Unroll


#: Sort key of a choice, smallest first: its cost, its LUTs by `fabric`, ``Tn``, ``Tm`` and ``Tp``.
Rank = tuple[float, int, int, int, int]

#: Function that returns the multipliers of a layer with given unroll factors. ``tn``, ``tm`` and ``tk`` can be arrays.
#: The cost must not fall when a factor grows and the number of folds stays.
Cost = Callable[[LayerWork, Unroll], Any]


def fabric(work: LayerWork, unroll: Unroll) -> Any:
    """Return a rough number of a layer's LUTs that depend on unroll factors, to choose where multipliers are equal.

    A convolution reads, pads and delays its ``Tn Tk`` activations, accumulates and unloads its ``Tm`` sums, and adds up
    the chains of each sum. A pool has comparators, and a constant number of LUTs per channel. The LUTs of weights are
    omitted, because the number of multipliers determines them. Factors can be arrays.
    """
    return work.walk.luts(work, unroll)


def cycles(work: LayerWork, unroll: Unroll, source: int = 1) -> int:
    """Return a layer's cycles per frame: those of its output pixels or input beats, whichever are more.

    ``source`` is the number of pixels of an input beat.
    """
    return max(
        work.output_steps(unroll.tp) * work.pixel_cycles(unroll),
        work.input_steps(source) * work.beats(unroll),
    )


def interval(works: Sequence[LayerWork], unrolls: Sequence[Unroll]) -> int:
    """Return the cycles per frame of the slowest layer. A group input has as many pixels per beat as its reader."""
    pixels = [unroll.tp for unroll in unrolls]
    sources = [pixels[work.source(index)] for index, work in enumerate(works)]
    return max(cycles(*chosen) for chosen in zip(works, unrolls, sources, strict=True))


@dataclass(frozen=True)
class _Fast:
    """Choices of one layer's unroll factors that take at most a given number of cycles."""

    index: np.ndarray
    """Indices of the choices in the layer's `_Options`, rising."""
    fewest_beats: np.ndarray
    """Fewest beats per step of input pixels of each choice and the choices preferred to it (running minimum)."""
    least_cost: float
    """Lowest cost of a choice; infinite if there is none."""


@dataclass(frozen=True)
class _Options:
    """Choices of a layer's unroll factors with the same ``Tp``, the preferred first: by cost, then as in `choices`."""

    work: LayerWork
    tp: int
    tn: np.ndarray
    tm: np.ndarray
    tk: np.ndarray
    cost: np.ndarray
    cycles: np.ndarray
    """Cycles of all windows of a frame, for each choice."""
    beats: np.ndarray
    """Number of beats per step of input pixels, for each choice."""
    _ranks: dict[int, Rank] = field(default_factory=dict, compare=False, repr=False)
    """Cache of `rank`, by index of the choice."""
    _fast: dict[int, _Fast] = field(default_factory=dict, compare=False, repr=False)
    """Cache of the last result of `within`."""

    def within(self, max_cycles: int) -> _Fast:
        """Return the choices that take at most ``max_cycles`` cycles."""
        if max_cycles not in self._fast:
            self._fast.clear()
            index = np.flatnonzero(self.cycles <= max_cycles)
            cost = self.cost[index].min().item() if len(index) else inf
            self._fast[max_cycles] = _Fast(index, np.minimum.accumulate(self.beats[index]), cost)
        return self._fast[max_cycles]

    def unroll(self, index: int) -> Unroll:
        return Unroll(int(self.tn[index]), int(self.tm[index]), int(self.tk[index]), self.tp)

    def rank(self, index: int) -> Rank:
        if index not in self._ranks:
            unroll = self.unroll(index)
            self._ranks[index] = self.cost[index].item(), fabric(self.work, unroll), unroll.tn, unroll.tm, unroll.tp
        return self._ranks[index]


def factor_grid(work: LayerWork) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``Tn``, ``Tm`` and ``Tk`` of all choices of a layer, each the smallest value for its number of folds."""
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
    return tn, tm, tk


def _options(work: LayerWork, cost: Cost, pixels: Sequence[int]) -> list[_Options]:
    """Return a layer's Pareto fronts of choices by rank, cycles and input beats, one for each ``Tp`` in ``pixels``."""
    tn, tm, tk = factor_grid(work)
    wanted = np.lexsort((tm, tn, fabric(work, Unroll(tn, tm, tk))))  # type: ignore[arg-type]
    tn, tm, tk = tn[wanted], tm[wanted], tk[wanted]
    unroll = Unroll(tn, tm, tk)  # type: ignore[arg-type]
    walk, beats = np.asarray(work.pixel_cycles(unroll)), np.asarray(work.beats(unroll))
    by_cycles = np.lexsort((walk, beats))
    run = np.cumsum(np.diff(beats[by_cycles], prepend=beats[by_cycles[:1]]) != 0)
    tables = []
    for tp in pixels:
        costs = np.broadcast_to(cost(work, Unroll(tn, tm, tk, tp)), tn.shape)  # type: ignore[arg-type]
        order = np.argsort(costs, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        # Among choices of equal beats and no more cycles, only a better rank is kept. Ranks of successive runs of equal
        # beats are shifted below each other, so that a single running minimum serves all runs.
        height = rank[by_cycles] - run * len(rank)
        kept = np.sort(rank[by_cycles[height <= np.minimum.accumulate(height)]])
        index = order[kept]
        tables.append(
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
    return tables


def choices(work: LayerWork, cost: Cost) -> list[Choice]:
    """Return a layer's Pareto front of unroll factors by cycles and cost, for one output pixel per cycle.

    Cycles rise. A choice beats another if it takes no more cycles and fewer multipliers. With equal multipliers, the
    choice with fewer LUTs (`fabric`) wins, then the choice with fewer lanes. ``Tn``, ``Tm`` and ``Tk`` are the smallest
    values for their number of folds.
    """
    (options,) = _options(work, cost, [1])
    count = np.maximum(options.cycles, options.beats * work.input_steps(1))
    order = np.argsort(count, kind="stable")  # options are sorted by rank
    front: list[Choice] = []
    best_rank = len(order)
    for index in order.tolist():
        if index < best_rank:
            best_rank = index
            front.append(Choice(int(count[index]), int(options.cost[index]), options.unroll(index)))
    return front


@dataclass(frozen=True)
class Unrolling:
    """Unroll factors of all layers of a group, with their total cost and LUTs.

    `order` compares the cost, then the LUTs by `fabric`, then the layers' ranks.
    """

    cost: float
    luts: int
    ranks: tuple[Rank, ...]
    unrolls: tuple[Unroll, ...]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key, smallest first: cost, LUTs, ranks of the layers."""
        return self.cost, self.luts, self.ranks


class _Longer:
    """Candidate `Unrolling` of some layers and one more; its ranks and factors are joined only if it is the best."""

    __slots__ = ("_before", "_index", "_options", "_order", "_rank", "cost", "luts")

    def __init__(self, before: Unrolling, options: _Options, index: int, order: Sequence[int]):
        self._before, self._options, self._index, self._order = before, options, index, order
        self._rank = options.rank(index)
        self.cost, self.luts = before.cost + self._rank[0], before.luts + self._rank[1]

    def is_before(self, other: _Longer) -> bool:
        """Return whether this candidate precedes another candidate for the same layers, by `Unrolling.order`."""
        if self.cost != other.cost:
            return self.cost < other.cost
        if self.luts != other.luts:
            return self.luts < other.luts
        return self._ranks < other._ranks

    @property
    def _ranks(self) -> tuple[Rank, ...]:
        """Ranks of the layers, by index of layer."""
        return in_order(self._order, (*self._before.ranks, self._rank))

    @property
    def unrolling(self) -> Unrolling:
        """Candidate as an `Unrolling`, with its layers in the order in which they were added."""
        before = self._before
        unroll = self._options.unroll(self._index)
        return Unrolling(self.cost, self.luts, (*before.ranks, self._rank), (*before.unrolls, unroll))


def in_order(order: Sequence[int], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``values`` of layers that were added in ``order``, sorted by index of layer."""
    return tuple(value for _, value in sorted(zip(order, values, strict=False), key=lambda entry: entry[0]))


class FactorSearch(ABC):
    """Base class of searches over all unroll factors of a group's layers.

    Parameters
    ----------
    works : sequence of LayerWork
    copies : mapping of int to LayerWork, optional
        Layer that stands for the previous layer at the front of a part, by index of the part's first layer.
    """

    def __init__(self, works: Sequence[LayerWork], copies: Mapping[int, LayerWork] | None = None):
        self._all, self._begin, self._end = tuple(works), 0, len(works)
        self._copies = copies or {}
        self._counts: dict[tuple[LayerWork, bool, Pixels], np.ndarray] = {}

    def part(self, begin: int, end: int) -> Self:
        """Return the search for the layers ``begin`` to ``end`` alone; both searches share their caches."""
        other = copy(self)
        other._begin, other._end = begin, end
        for name in self._of_a_part:
            vars(other).pop(name, None)
        return other

    _of_a_part: ClassVar[tuple[str, ...]] = ("works", "intervals", "sweep")
    """Names of the cached properties that depend on the part."""

    @cached_property
    def works(self) -> tuple[LayerWork, ...]:
        """Work of each layer of this part, after the copy at its front, if there is one."""
        front = self._copies.get(self._begin)
        return (*(() if front is None else (front,)), *self._all[self._begin : self._end])

    @cached_property
    def sweep(self) -> Sweep:
        """Order in which the search adds the layers of this part."""
        return Sweep(self.works)

    @cached_property
    def intervals(self) -> list[int]:
        """All cycles per frame that some layer of this part can take, sorted: the possible intervals."""
        return np.unique(np.concatenate([self._layer_intervals(index) for index in range(len(self.works))])).tolist()

    def _layer_intervals(self, index: int) -> np.ndarray:
        """Return the cycles per frame that a layer, given by its index in this part, can take; sorted."""
        work, source = self.works[index], self.works[index].source(index)
        sources = tuple(pixel_factors(self.works[source], self.works[source].source(source) == source))
        key = work, source == index, sources
        if key not in self._counts:
            counts = []
            for cycles, beats in self._cycles_and_beats(index):
                counts.append(cycles)
                counts += [np.unique(beats) * work.input_steps(pixels) for pixels in sources]
            self._counts[key] = np.unique(np.concatenate(counts))
        return self._counts[key]

    @abstractmethod
    def _cycles_and_beats(self, index: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Yield, for each ``Tp`` of a layer, the cycles per frame and the input beats per step of its choices."""

    @abstractmethod
    def cheapest(self, max_cycles: int) -> Unrolling | None:
        """Return the cheapest unroll factors with an interval up to ``max_cycles``, or ``None`` if there are none."""

    def fastest(self, fits: Callable[[Unrolling], bool], floor: int = 0) -> tuple[int, Unrolling] | None:
        """Return the shortest interval from ``floor`` on whose cheapest factors fit, and these factors; else ``None``.

        ``fits`` must not turn false as the interval grows.
        """

        def is_good(max_cycles: int) -> bool:
            unrolling = self.cheapest(max_cycles)
            return unrolling is not None and fits(unrolling)

        # `True` sorts after `False`: the first interval that fits.
        return self._at(bisect_left(self.intervals, True, self.first(floor), key=is_good))

    def first(self, floor: int) -> int:
        """Return the index of the shortest interval that is not below ``floor``, or of the last one."""
        return min(bisect_left(self.intervals, floor), len(self.intervals) - 1)

    def _at(self, index: int) -> tuple[int, Unrolling] | None:
        """Return the interval of an index and its cheapest factors; ``None`` behind the last index."""
        if index == len(self.intervals):
            return None
        unrolling = self.cheapest(self.intervals[index])
        assert unrolling is not None
        return self.intervals[index], unrolling


class Search(FactorSearch):
    """Search over all unroll factors of a group's layers under one cost.

    Parameters
    ----------
    works : sequence of LayerWork
    cost : Cost
    copies : mapping of int to LayerWork, optional
        Layer that stands for the previous layer at the front of a part, by index of the part's first layer.
    """

    _of_a_part = (*FactorSearch._of_a_part, "_layer_fronts")

    def __init__(self, works: Sequence[LayerWork], cost: Cost, copies: Mapping[int, LayerWork] | None = None):
        super().__init__(works, copies)
        self._cost = cost
        self._tables: dict[tuple[LayerWork, bool], list[_Options]] = {}
        self._fronts: dict[tuple[LayerWork, bool], tuple[np.ndarray, np.ndarray]] = {}
        self._unrollings: dict[tuple[int, int, int], Unrolling | None] = {}

    def options(self, index: int) -> list[_Options]:
        """Return the choices for a layer, by its index in this part, as one table per number of pixels per cycle."""
        return self._options(self.works[index], first=self.works[index].source(index) == index)

    def alone(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the cycles that a layer can take as the first of a group, rising, and the lowest cost within each."""
        return self._front(self._all[index], first=True)

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
            self._tables[key] = _options(work, self._cost, pixel_factors(work, first))
        return self._tables[key]

    def _cycles_and_beats(self, index: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        return ((options.cycles, options.beats) for options in self.options(index))

    def cheapest(self, max_cycles: int, budget: float = inf) -> Unrolling | None:
        """Return the cheapest unroll factors with an interval up to ``max_cycles``, or ``None`` above ``budget``."""
        key = self._begin, self._end, max_cycles
        if key not in self._unrollings:
            unrolling = self._cheapest(max_cycles, budget)
            if unrolling is None and budget < inf:
                return None
            self._unrollings[key] = unrolling
        unrolling = self._unrollings[key]
        return None if unrolling is None or unrolling.cost > budget else unrolling

    def _cheapest(self, max_cycles: int, budget: float) -> Unrolling | None:
        """Search for the result of `cheapest`, which caches the result.

        With many combinations, a search over a few of them gives a bound first. The exact search then skips all
        combinations that certainly cost more.
        """
        least_costs = [
            min(options.within(max_cycles).least_cost for options in self.options(index)) for index in self.sweep.order
        ]
        rest = [0.0, *accumulate(reversed(least_costs))][::-1]
        if rest[0] == inf:
            return None
        unrolling, is_exact = self._best_unrolling(max_cycles, rest, budget, MOST_COMBINATIONS)
        if not is_exact:
            unrolling, _ = self._best_unrolling(
                max_cycles, rest, budget if unrolling is None else unrolling.cost * (1 + ROUNDING), None
            )
        if unrolling is None:
            return None
        ranks, unrolls = (in_order(self.sweep.order, values) for values in (unrolling.ranks, unrolling.unrolls))
        return Unrolling(unrolling.cost, unrolling.luts, ranks, unrolls)

    def _best_unrolling(
        self, max_cycles: int, remaining_costs: Sequence[float], bound: float, max_kept: int | None
    ) -> tuple[Unrolling | None, bool]:
        """Return the cheapest factors within a bound, in the sweep's order, and whether the search is exact.

        The search adds one layer after the other. It keeps the best factors for each combination of ``Tp`` of the
        layers that are still to be read, because later layers depend on these ``Tp`` only.

        Parameters
        ----------
        max_cycles : int
            Maximum interval.
        remaining_costs : sequence of float
            Lower bound of the cost of all layers from each one on, in the sweep's order.
        bound : float
            Maximum cost.
        max_kept : int, optional
            Maximum number of combinations of ``Tp`` that are kept; by default all, and the search is exact.
        """
        unrollings: dict[Pixels, Unrolling] = {(): Unrolling(0, 0, (), ())}
        is_exact = True
        for count, step in enumerate(self.sweep.steps):
            work = self.works[step.index]
            best: dict[Pixels, _Longer] = {}
            for options in self.options(step.index):
                tp = options.tp
                fitting = [
                    (pixels, unrolling)
                    for pixels, unrolling in unrollings.items()
                    if all(pixels[index] == tp for index in step.equal)
                ]
                fast = options.within(max_cycles)
                if not len(fast.index) or not fitting:
                    continue
                # The first choice, which is the best one, whose input beats also fit into the interval.
                limits = [
                    max_cycles // work.input_steps(pixels[step.source] if step.source >= 0 else tp)
                    for pixels, _ in fitting
                ]
                first_choices = np.searchsorted(-fast.fewest_beats, np.negative(limits))
                for choice, (pixels, unrolling) in zip(first_choices.tolist(), fitting, strict=True):
                    if choice == len(fast.index):
                        continue
                    longer = _Longer(unrolling, options, int(fast.index[choice]), self.sweep.order)
                    if longer.cost + remaining_costs[count + 1] > bound:
                        continue
                    known = (*pixels, tp)
                    still_read = tuple([known[index] for index in step.read_later])
                    if still_read not in best or longer.is_before(best[still_read]):
                        best[still_read] = longer
            if max_kept is not None and len(best) > max_kept:
                best = dict(sorted(best.items(), key=lambda entry: (entry[1].cost, entry[1].luts))[:max_kept])
                is_exact = False
            unrollings = {still_read: longer.unrolling for still_read, longer in best.items()}
        return min(unrollings.values(), key=lambda unrolling: unrolling.order, default=None), is_exact

    def fastest_within(self, budget: float, floor: int = 0) -> tuple[int, Unrolling] | None:
        """Return the shortest interval from ``floor`` on whose cheapest factors are within ``budget``, and the factors.

        ``None`` if no interval fits. The interval at which a lower bound of the cost meets the budget is mostly a few
        steps below the result. So the search doubles its steps from there, and then bisects.
        """
        intervals = self.intervals
        low = bisect_left(
            intervals, True, self.first(floor), key=lambda max_cycles: self._least_cost(max_cycles) <= budget
        )
        high, step = low, 1
        while high < len(intervals) and self.cheapest(intervals[high], budget) is None:
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, len(intervals))
        return self._at(
            bisect_left(
                intervals, True, low, high, key=lambda max_cycles: self.cheapest(max_cycles, budget) is not None
            )
        )

    def _least_cost(self, max_cycles: int) -> float:
        """Return a lower bound of the cost within ``max_cycles`` cycles: the sum of each layer's lowest cost."""
        total = 0.0
        for cycles, cost in self._layer_fronts:
            count = cycles.searchsorted(max_cycles, side="right")
            total += cost[count - 1] if count else inf
        return total

    @cached_property
    def _layer_fronts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Cycles per frame that each layer can take, rising, and the lowest cost within each (`alone`)."""
        return [self._front(work, work.source(index) == index) for index, work in enumerate(self.works)]

    @property
    def cheapest_of_all(self) -> Unrolling:
        """Cheapest unroll factors of this part's layers at any interval."""
        unrolling = self.cheapest(self.intervals[-1])
        assert unrolling is not None
        return unrolling


def least_text(search: Search) -> str:
    """Return the cost of the cheapest choices, layer by layer, as a clause of a message."""
    ranks = search.cheapest_of_all.ranks
    parts = ", ".join(f"{work.name} {rank[0]}" for work, rank in zip(search.works, ranks, strict=True) if rank[0])
    return f"the least is {sum(rank[0] for rank in ranks)} ({parts})"


def pixel_factors(work: LayerWork, first: bool) -> list[int]:
    """Return a layer's candidate ``Tp``: the smallest for each number of output steps.

    If the layer is the first, input steps count, too.
    """
    factors: dict[tuple[int, int], int] = {}
    for tp in range(1, min(work.most_pixels, work.width) + 1):
        factors.setdefault((work.output_steps(tp), work.input_steps(tp) if first else 0), tp)
    return list(factors.values())


def least_factors(channels: int) -> list[int]:
    """Return, for each possible number of folds of ``channels``, the smallest unroll factor that gives it."""
    return sorted({ceil_div(channels, folds) for folds in range(1, channels + 1)})
