"""Exact search for unroll factors of a fusion group's layers, with the fewest cycles per frame that resources allow.

Each layer has its own hardware. The interval is therefore the slowest layer's, and the resources add up. Neighbours are
coupled in one point only: a layer reads as many pixels per beat as the previous layer computes per cycle. For a given
interval, dynamic programming from layer to layer finds the cheapest choices. Its state is the pixels per beat of all
maps that are still to be read (one map in a chain). The total cost only falls as the interval grows, so bisection over
the possible cycle counts finds the shortest interval within the budget.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from hwgen.templates import factor_paths
from hwgen.templates.work import LayerWork, Unroll, ceil_div


@dataclass(frozen=True)
class UnrollChoice:
    """Unroll factors of one layer, with their cycles per frame and their cost (DSP slices)."""

    cycles: int
    cost: int
    unroll: Unroll


#: Type of a choice's sort key, smallest first: its cost, its LUTs by `rough_luts`, ``Tn``, ``Tm`` and ``Tp``.
Rank = tuple[float, int, int, int, int]

#: Type of a function that returns the multipliers of a layer with given unroll factors. ``tn``, ``tm`` and ``tk`` can
#: be arrays. The cost must not fall when a factor grows and the number of folds stays.
Cost = Callable[[LayerWork, Unroll], Any]

#: Type of a function that returns the choices of a layer within a budget, as a table for each of the given ``Tp``.
Tables = Callable[[LayerWork, Sequence[int], factor_paths.Budget], Sequence[Any]]


def rough_luts(work: LayerWork, unroll: Unroll) -> Any:
    """Return a rough number of a layer's LUTs that depend on unroll factors, an array if the factors are arrays.

    A convolution reads, pads and delays its ``Tn Tk`` activations, accumulates and unloads its ``Tm`` sums, and adds up
    the chains of each sum. A pool has comparators, and a constant number of LUTs per channel. The LUTs of weights are
    omitted, because the number of multipliers determines them. Factors can be arrays.
    """
    return work.order.luts(work, unroll)


def cycles(work: LayerWork, unroll: Unroll, source: int = 1) -> int:
    """Return a layer's cycles per frame, for its output pixels or for its input beats, whichever take longer.

    ``source`` is the number of pixels of an input beat.
    """
    return max(
        work.output_steps(unroll.tp) * work.pixel_cycles(unroll),
        work.input_steps(source) * work.beats(unroll),
    )


def interval(works: Sequence[LayerWork], unrolls: Sequence[Unroll]) -> int:
    """Return the cycles per frame of a fusion group's slowest layer, given the work and unroll factors of all layers.

    A group input has as many pixels per beat as its reader.
    """
    pixels = [unroll.tp for unroll in unrolls]
    sources = [pixels[work.source(index)] for index, work in enumerate(works)]
    return max(cycles(*chosen) for chosen in zip(works, unrolls, sources, strict=True))


@dataclass(frozen=True)
class _Options(factor_paths.FactorTable):
    """Table of one layer's unroll factors with the same ``Tp``, and their costs, preferred ones first."""

    tp: int
    tn: np.ndarray
    tm: np.ndarray
    tk: np.ndarray
    cost: np.ndarray
    luts: np.ndarray
    """Array, by choice of unroll factors: estimated LUTs (`rough_luts`)."""
    cycles: np.ndarray
    beats: np.ndarray
    """Array, by choice of unroll factors: input beats with all channels of a group of neighbouring pixels."""

    @cached_property
    def beat_counts(self) -> np.ndarray:
        return np.unique(self.beats)

    def front(self, max_cycles: int, max_beats: int) -> factor_paths.FactorFront:
        fitting = (self.cycles <= max_cycles) & (self.beats <= max_beats)
        first = int(fitting.argmax())
        end = first + int(fitting[first])
        return factor_paths.FactorFront(
            self.cost[first:end], self.luts[first:end], np.arange(first, end), np.zeros(end - first, int)
        )

    def unroll(self, choice: int, lut_lanes: int = 0) -> Unroll:
        return Unroll(int(self.tn[choice]), int(self.tm[choice]), int(self.tk[choice]), self.tp)

    def rank(self, choice: int) -> Rank:
        factors = int(self.tn[choice]), int(self.tm[choice]), self.tp
        return self.cost[choice].item(), self.luts[choice].item(), *factors


def factor_grid(work: LayerWork) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a triple of arrays: candidate ``Tn``, ``Tm``, ``Tk``, each the smallest for its number of passes."""
    by_folds: dict[int, int] = {}
    for tk in range(work.taps if work.whole_windows else 1, work.taps + 1):
        by_folds.setdefault(ceil_div(work.taps, tk), tk)
    tn, tk = np.array(min_factors(work.group_channels)), np.array(list(by_folds.values()))
    if work.channelwise:
        tn, tk = (grid.ravel() for grid in np.meshgrid(tn, tk))
        tm = tn
    else:
        tn, tm, tk = (grid.ravel() for grid in np.meshgrid(tn, np.array(min_factors(work.group_outputs)), tk))
    slow = work.fold_cycles(Unroll(tn, tm, tk)) >= work.min_steps  # type: ignore[arg-type]
    if slow.any():
        tn, tm, tk = tn[slow], tm[slow], tk[slow]
    return tn, tm, tk


def _options(work: LayerWork, cost: Cost, pixels: Sequence[int]) -> list[_Options]:
    """Return, as a list, a layer's Pareto-optimal unroll factors (cost, cycles, input beats), one table per ``Tp``."""
    tn, tm, tk = factor_grid(work)
    wanted = np.lexsort((tm, tn, rough_luts(work, Unroll(tn, tm, tk))))  # type: ignore[arg-type]
    tn, tm, tk = tn[wanted], tm[wanted], tk[wanted]
    unroll = Unroll(tn, tm, tk)  # type: ignore[arg-type]
    walk, beats = np.asarray(work.pixel_cycles(unroll)), np.asarray(work.beats(unroll))
    by_cycles = np.lexsort((walk, beats))
    run = np.cumsum(np.diff(beats[by_cycles], prepend=beats[by_cycles[:1]]) != 0)
    tables = []
    for tp in pixels:
        unroll = Unroll(tn, tm, tk, tp)  # type: ignore[arg-type]
        costs, luts = (np.broadcast_to(count(work, unroll), tn.shape) for count in (cost, rough_luts))
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
                tp=tp,
                tn=tn[index],
                tm=tm[index],
                tk=tk[index],
                cost=costs[index],
                luts=luts[index],
                cycles=walk[index] * work.output_steps(tp),
                beats=beats[index],
            )
        )
    return tables


def choices(work: LayerWork, cost: Cost) -> list[UnrollChoice]:
    """Return a list of each Pareto-optimal `UnrollChoice` of a layer at one pixel per cycle, by rising cycles.

    A choice beats another if it takes no more cycles and fewer multipliers. With equal multipliers, the choice with
    fewer LUTs (`rough_luts`) wins, then the choice with fewer lanes. ``Tn``, ``Tm`` and ``Tk`` are the smallest values
    for their number of folds.
    """
    (options,) = _options(work, cost, [1])
    count = np.maximum(options.cycles, options.beats * work.input_steps(1))
    order = np.argsort(count, kind="stable")  # options are sorted by rank
    front: list[UnrollChoice] = []
    best_rank = len(order)
    for index in order.tolist():
        if index < best_rank:
            best_rank = index
            front.append(UnrollChoice(int(count[index]), int(options.cost[index]), options.unroll(index)))
    return front


@dataclass(frozen=True)
class Unrolling:
    """Unroll factors of all layers of a fusion group, with their total cost and estimated LUTs.

    `order` compares the cost, then the LUTs by `rough_luts`, then the layers' ranks.
    """

    cost: float
    luts: int
    ranks: tuple[Rank, ...]
    unrolls: tuple[Unroll, ...]

    @property
    def order(self) -> tuple[Any, ...]:
        """Tuple that sorts unrollings, the best first: cost, LUTs, costs of the layers."""
        return self.cost, self.luts, self.ranks


def by_layer(order: Sequence[int], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a tuple of ``values``, given in the ``order`` of layer indices, sorted by layer index."""
    return tuple(value for _, value in sorted(zip(order, values, strict=False), key=lambda entry: entry[0]))


class Search:
    """Search over all unroll factors of a fusion group's layers, within a budget of DSP slices, and maybe of LUTs.

    Parameters
    ----------
    works : sequence of LayerWork
    tables : Tables
        Function that returns a layer's choices.
    budget : Budget
    copies : mapping of int to LayerWork, optional
        Layer that stands for the previous layer as the first of a part, by index of the part's first layer.
    """

    def __init__(
        self,
        works: Sequence[LayerWork],
        tables: Tables,
        budget: factor_paths.Budget,
        copies: Mapping[int, LayerWork] | None = None,
    ):
        self._all, self._begin, self._end = tuple(works), 0, len(works)
        self._make_tables, self.budget = tables, budget
        self._copies = copies or {}
        self._counts: dict[tuple[LayerWork, bool, factor_paths.Pixels], np.ndarray] = {}
        self._tables: dict[tuple[LayerWork, bool, float], Sequence[Any]] = {}
        self._fronts: dict[tuple[LayerWork, bool], tuple[np.ndarray, np.ndarray]] = {}
        self._unrollings: dict[tuple[int, int, int, factor_paths.Budget], Unrolling | None] = {}
        self._last_fastest: dict[tuple[int, int], int] = {}
        """Dictionary by part (begin, end): index of the interval (cycles) that `fastest_within` last returned."""

    def part(self, begin: int, end: int) -> Search:
        """Return a `Search` over only layers ``begin`` to ``end - 1`` of a group, which shares this one's caches."""
        other = copy(self)
        other._begin, other._end = begin, end
        for name in ("works", "intervals", "layer_order", "_steps", "_layer_fronts"):
            vars(other).pop(name, None)
        return other

    def under(self, budget: factor_paths.Budget) -> Search:
        """Return a `Search`: a copy of this search under another budget; both searches share their caches."""
        other = copy(self)
        other.budget = budget
        other._steps = self._steps  # slow, and needed by any use of either search
        return other

    def limited(self, slices: float) -> Search:
        """Return a copy of this `Search` with a budget of ``slices`` units of cost, usually DSP slices."""
        return self.under(replace(self.budget, slices=slices))

    @cached_property
    def works(self) -> tuple[LayerWork, ...]:
        """Tuple of each layer's `LayerWork` (sizes, order), maybe after a layer's that copies the group's input."""
        front = self._copies.get(self._begin)
        return (*(() if front is None else (front,)), *self._all[self._begin : self._end])

    @cached_property
    def layer_order(self) -> factor_paths.LayerOrder:
        """`LayerOrder` of the search's steps, one per layer."""
        return factor_paths.LayerOrder(self.works)

    @cached_property
    def intervals(self) -> list[int]:
        """Ascending list of all possible intervals: the cycles per frame that some layer can take."""
        return np.unique(np.concatenate([self._layer_intervals(index) for index in range(len(self.works))])).tolist()

    def _layer_intervals(self, index: int) -> np.ndarray:
        """Return an array of the cycles per frame that a layer, given by its index, can take, in ascending order."""
        work, source = self.works[index], self.works[index].source(index)
        sources = tuple(pixel_factors(self.works[source], self.works[source].source(source) == source))
        key = work, source == index, sources
        if key not in self._counts:
            counts = []
            for table in self.tables(index):
                counts.append(table.cycles)
                counts += [table.beat_counts * work.input_steps(pixels) for pixels in sources]
            self._counts[key] = np.unique(np.concatenate(counts))
        return self._counts[key]

    def tables(self, index: int) -> Sequence[Any]:
        """Return layer ``index``'s choices of unroll factors, a sequence of tables, one per ``Tp`` (pixels at once)."""
        return self._tables_of(self.works[index], first=self.works[index].source(index) == index)

    def _tables_of(self, work: LayerWork, first: bool) -> Sequence[Any]:
        key = work, first, self.budget.searched.slices
        if key not in self._tables:
            self._tables[key] = self._make_tables(work, pixel_factors(work, first), self.budget)
        return self._tables[key]

    def first_layer_front(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a pair of arrays for a first layer: possible cycles per frame, and the lowest cost within each."""
        return self._cost_front(self._all[index], first=True)

    def _cost_front(self, work: LayerWork, first: bool) -> tuple[np.ndarray, np.ndarray]:
        key = work, first
        if key not in self._fronts:
            tables = self._tables_of(work, first)
            cycles, cost = (np.concatenate([getattr(of, name) for of in tables]) for name in ("cycles", "cost"))
            order = np.argsort(cycles, kind="stable")
            self._fronts[key] = cycles[order], np.minimum.accumulate(cost[order])
        return self._fronts[key]

    @cached_property
    def _steps(self) -> list[factor_paths.PixelStates]:
        """List of `PixelStates` per search step: edges between states (pixels per cycle of unread maps)."""
        states: tuple[factor_paths.Pixels, ...] = ((),)
        steps = []
        for step in self.layer_order.steps:
            steps.append(
                factor_paths.PixelStates.of(step, states, tuple(table.tp for table in self.tables(step.index)))
            )
            states = steps[-1].states
        return steps

    def _graph(self, max_cycles: int) -> factor_paths.FactorGraph | None:
        """Return the `FactorGraph` of choices of at most ``max_cycles`` per frame; ``None`` if it has no path."""
        levels = []
        for step, states in zip(self.layer_order.steps, self._steps, strict=True):
            level = states.level(self.works[step.index], self.tables(step.index), max_cycles)
            if level is None:
                return None
            levels.append(level)
        graph = factor_paths.FactorGraph(levels)
        return graph if graph.min_cost(self.budget.weights) < inf else None

    def cheapest(self, max_cycles: int) -> Unrolling | None:
        """Return the cheapest `Unrolling` within the budgets and ``max_cycles`` per frame; ``None`` if none is.

        Cost is the price of slices and LUTs by the `Budget`.
        """
        budget = self.budget.searched
        key = self._begin, self._end, max_cycles, budget
        if key not in self._unrollings:
            graph = self._graph(max_cycles)
            path = None if graph is None else factor_paths.cheapest(graph, budget)
            self._unrollings[key] = None if graph is None or path is None else self._unrolling(graph, path)
        unrolling = self._unrollings[key]
        return None if unrolling is None or unrolling.cost > self.budget.slices else unrolling

    @property
    def cheapest_of_all(self) -> Unrolling:
        """Cheapest `Unrolling` (unroll factors) of the layers at any interval (cycles per frame)."""
        unrolling = self.cheapest(self.intervals[-1])
        assert unrolling is not None
        return unrolling

    def fastest_within(self, floor: int = 0) -> tuple[int, Unrolling] | None:
        """Return a pair: shortest interval (``floor`` cycles or more) in the budgets, and factors; ``None`` if none is.

        The factors are the cheapest at that interval.
        """
        low, high = self.first_index(floor), len(self.intervals)
        part, step = (self._begin, self._end), 1
        index = self._last_fastest.get(part)
        # Budgets that differ little have intervals that differ little.
        while index is not None and low <= index < high:
            if self._is_feasible(self.intervals[index]):
                high, index = index, index - step
            else:
                low, index = index + 1, index + step
            step *= 2
        index = bisect_left(self.intervals, True, low, high, key=self._is_feasible)
        self._last_fastest[part] = index
        return self._factors_at(index)

    def _is_feasible(self, max_cycles: int) -> bool:
        """Return whether some unroll factors with an interval up to ``max_cycles`` are within the budgets."""
        if self.budget.is_single:
            return self.cheapest(max_cycles) is not None
        graph = self._graph(max_cycles)
        return graph is not None and factor_paths.feasible(graph, self.budget)[0] is not None

    def fastest(self, fits: Callable[[Unrolling], bool], floor: int = 0) -> tuple[int, Unrolling] | None:
        """Return a pair: shortest interval (from ``floor`` cycles) whose cheapest factors fit, and these; or ``None``.

        The result is ``None`` if no interval's factors fit. ``fits`` must not turn false as the interval grows.
        """

        def is_good(max_cycles: int) -> bool:
            unrolling = self.cheapest(max_cycles)
            return unrolling is not None and fits(unrolling)

        # `True` sorts after `False`: the first interval that fits.
        return self._factors_at(bisect_left(self.intervals, True, self.first_index(floor), key=is_good))

    def first_index(self, floor: int) -> int:
        """Return the index in `intervals` of the shortest interval of at least ``floor`` cycles, or the last index."""
        return min(bisect_left(self.intervals, floor), len(self.intervals) - 1)

    def _factors_at(self, index: int) -> tuple[int, Unrolling] | None:
        """Return a pair: `intervals` at ``index`` (cycles), and its cheapest `Unrolling`; ``None`` past the end."""
        if index == len(self.intervals):
            return None
        unrolling = self.cheapest(self.intervals[index])
        assert unrolling is not None
        return self.intervals[index], unrolling

    @property
    def fewest_luts(self) -> Unrolling:
        """`Unrolling` (unroll factors) with the fewest LUTs, without any limit on the cycles per frame."""
        graph = self._graph(self.intervals[-1])
        assert graph is not None
        return self._unrolling(graph, graph.best(factor_paths.CostWeights(factor_paths.ROUNDING, 1)))

    def divided(self, unrolls: Sequence[Unroll]) -> Unrolling | None:
        """Return the `Unrolling` that divides products most cheaply between DSP slices and LUTs; ``None`` if none."""
        levels = []
        for index in self.layer_order.order:
            unroll = unrolls[index]
            table = next(table for table in self.tables(index) if table.tp == unroll.tp)
            levels.append(factor_paths.FactorLevel.single(table, table.division(unroll)))
        graph = factor_paths.FactorGraph(levels)
        path = factor_paths.cheapest(graph, self.budget)
        return None if path is None else self._unrolling(graph, path)

    def weights(self, max_cycles: int) -> factor_paths.CostWeights:
        """Return `CostWeights` of DSP slices and LUTs whose limit decides if ``max_cycles`` per frame is possible.

        The limit is about the number of DSP slices, with LUTs by the price of a slice.
        """
        graph, budget = self._graph(max_cycles), self.budget
        assert graph is not None
        *_, last = bounds = factor_paths.feasible(graph, budget)[1]
        if len(bounds) == 2:  # one resource suffices
            last = factor_paths.bound(budget, 1 / (budget.slices + 1), 1 / (budget.luts + 1))
        scale = (budget.slices + budget.luts / budget.slice_price) / last.limit
        return factor_paths.CostWeights(last.slices * scale, last.luts * scale, last.limit * scale)

    def _unrolling(self, graph: factor_paths.FactorGraph, path: factor_paths.FactorPath) -> Unrolling:
        unrolls, ranks = [], []
        for level, (edge, point) in zip(graph.levels, path.points, strict=True):
            table, front = level.pairs[level.fronts[edge]]
            unroll = table.unroll(int(front.choices[point]), int(front.lut_lanes[point]))
            unrolls.append(unroll)
            ranks.append((front.slices[point].item(), front.luts[point].item(), unroll.tn, unroll.tm, unroll.tp))
        order = self.layer_order.order
        return Unrolling(path.slices, path.luts, by_layer(order, tuple(ranks)), by_layer(order, tuple(unrolls)))


def by_cost(works: Sequence[LayerWork], cost: Cost, copies: Mapping[int, LayerWork] | None = None) -> Search:
    """Return a `Search` for the unroll factors of lowest ``cost`` (a function), then of fewest estimated LUTs."""
    return Search(
        works, lambda work, pixels, budget: _options(work, cost, pixels), factor_paths.Budget(inf, inf, 1, 1j), copies
    )


def min_text(search: Search) -> str:
    """Return a clause for messages: lowest cost of a search's layers, in total and layer by layer."""
    ranks = search.cheapest_of_all.ranks
    parts = ", ".join(f"{work.name} {rank[0]}" for work, rank in zip(search.works, ranks, strict=True) if rank[0])
    return f"the least is {sum(rank[0] for rank in ranks)} ({parts})"


def pixel_factors(work: LayerWork, first: bool) -> list[int]:
    """Return, as a list, a layer's candidate ``Tp``, the smallest for each number of pixel groups per frame.

    If the layer is the first, groups of input pixels count, too.
    """
    factors: dict[tuple[int, int], int] = {}
    for tp in range(1, min(work.max_pixels, work.width) + 1):
        factors.setdefault((work.output_steps(tp), work.input_steps(tp) if first else 0), tp)
    return list(factors.values())


def min_factors(channels: int) -> list[int]:
    """Return a list of unroll factors, ascending: the smallest for each possible number of passes over ``channels``."""
    return sorted({ceil_div(channels, folds) for folds in range(1, channels + 1)})
