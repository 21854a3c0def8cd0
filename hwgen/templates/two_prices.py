"""Exact search for unroll factors under two budgets: DSP slices, and LUTs, which can multiply as well.

Each layer divides its ``Tm`` output channels between multipliers in DSP slices and multipliers in LUTs. For a given
interval, a layer with a given ``Tp`` has a Pareto front of points, each a number of slices and a number of LUTs. The
search combines the fronts from layer to layer, as `hwgen.templates.unroll.Search` does with one cost. It keeps, for
each state (`Pixels`), the Pareto front of the totals.

Lower bounds keep these fronts short. For any weights of the two resources, the weighted cost that the remaining layers
need at least is known exactly, by dynamic programming in the opposite direction (Lagrangian relaxation). A total whose
weighted cost exceeds the weighted budgets in this way is dropped. So almost all intervals are decided without fronts,
and no solution is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.gateware.multipliers import Multiplier
from hwgen.templates.sweep import Pixels, Step
from hwgen.templates.unroll import FactorSearch, Unrolling, factor_grid, in_order, pixel_factors
from hwgen.templates.work import LUT_WORDS, LayerWork, Unroll, ceil_div

#: Relative rounding error of weighted sums of costs.
ROUNDING = 1e-9

#: Number of bits of any total of LUTs.
BITS = 32

#: Maximum number of partial paths that a quick search keeps for a state.
MAX_LABELS = 48

#: Maximum number of weights that are tried to bound a cost. The bound of the last weights is mostly the best one.
MOST_WEIGHTS = 24


@dataclass(frozen=True)
class Form:
    """Division of a layer's products between multipliers in DSP slices and multipliers in LUTs.

    Parameters
    ----------
    multiplier : Multiplier, optional
        Multiplier in DSP slices; ``None`` for a layer without weights.
    in_slices, in_luts : bool
        Whether products may be computed in DSP slices, and in LUTs.
    """

    multiplier: Multiplier | None = None
    in_slices: bool = True
    in_luts: bool = False

    @property
    def lanes(self) -> int:
        """Number of output channels that share a DSP slice."""
        return 1 if self.multiplier is None else self.multiplier.lanes


@dataclass(frozen=True)
class Terms:
    """Terms of the costs of a layer's choices, integers or arrays with an entry per choice.

    A choice makes the products of ``lut_lanes`` output channels in LUTs. The other channels take ``units`` multiplier
    units in slices per product. Both cost ``units * unit_slices`` slices and ``lut_lanes * lane_luts`` LUTs, and the
    slices and LUTs of all other parts of the layer.

    Parameters
    ----------
    unit_slices : array
        DSP slices of the multiplier units of the output channels that share slices.
    finish_slices, lut_finish_slices : array
        DSP slices of the layer's finish behind sums of DSP slices, and behind sums of LUTs. A layer with both has the
        larger number.
    lane_luts : array
        LUTs of the products of an output channel.
    luts : array
        All other LUTs of the layer.
    """

    unit_slices: Any
    finish_slices: Any
    lut_finish_slices: Any
    lane_luts: Any
    luts: Any


class Prices(ABC):
    """Base class of the costs of layers in DSP slices and LUTs.

    In a layer with given ``Tn``, ``Tk`` and `Form`, no cost may fall as ``Tm`` grows, except where ``Tm`` reaches the
    lanes of the form's multiplier, or the words of the weight memories fall to one of `LUT_WORDS`.
    """

    @abstractmethod
    def forms(self, work: LayerWork) -> Sequence[Form]:
        """Return the forms among which a layer can choose."""

    @abstractmethod
    def terms(self, work: LayerWork, unroll: Unroll, form: Form) -> Terms:
        """Return the terms of a layer's costs, rounded to integers; ``tn``, ``tm`` and ``tk`` can be arrays."""


@dataclass(frozen=True)
class Budget:
    """Numbers of DSP slices and of LUTs that may be used, and the cost that is minimised within them.

    Parameters
    ----------
    slices, luts : int
        Maximum number of DSP slices and of LUTs.
    slice_price, lut_price : int
        Weights of a slice and of a LUT in the cost.
    """

    slices: int
    luts: int
    slice_price: int
    lut_price: int = 1

    def fits(self, slices: int, luts: int) -> bool:
        """Return whether both numbers are within the budget."""
        return slices <= self.slices and luts <= self.luts

    def price(self, slices: int, luts: int) -> int:
        """Return the cost of some slices and LUTs."""
        return self.slice_price * slices + self.lut_price * luts


@dataclass(frozen=True)
class _Front:
    """Pareto front of a layer's costs: slices rise and LUTs fall from point to point."""

    slices: np.ndarray
    luts: np.ndarray
    choices: np.ndarray
    """Index of each point's choice in its `_Table`."""
    lut_lanes: np.ndarray
    """Number of output channels of each point whose products are computed in LUTs."""


class _Table:
    """Choices of a layer with one ``Tp``, for all forms, ordered by form, ``Tn`` and ``Tk``, then by ``Tm``."""

    def __init__(self, work: LayerWork, tp: int, prices: Prices, most_slices: int):
        self.work, self.tp, self.forms = work, tp, prices.forms(work)
        self._most_slices = most_slices
        tn, tm, tk = factor_grid(work)
        order = np.lexsort((tm, tk, tn))
        tn, tm, tk = tn[order], tm[order], tk[order]
        unroll = Unroll(tn, tm, tk, tp)  # type: ignore[arg-type]
        depth = np.broadcast_to(np.asarray(work.pixel_cycles(unroll)), tn.shape)
        row = np.cumsum((np.diff(tn, prepend=0) != 0) | (np.diff(tk, prepend=0) != 0))
        count = len(self.forms)
        self.tn, self.tm, self.tk, depth = (np.tile(values, count) for values in (tn, tm, tk, depth))
        self.form = np.repeat(np.arange(count), len(tn))
        self._row = np.tile(row, count) + self.form * (row[-1] + 1)
        self.cycles = depth * work.output_steps(tp)
        self.beats = np.tile(np.broadcast_to(np.asarray(work.beats(unroll)), tn.shape), count)
        self.different_beats = np.unique(self.beats)
        terms = [prices.terms(work, unroll, form) for form in self.forms]
        self._terms = Terms(
            *(
                np.concatenate([np.broadcast_to(np.asarray(getattr(term, name)), tn.shape) for term in terms])
                for name in Terms.__dataclass_fields__
            )
        )
        self._lanes = np.repeat([form.lanes for form in self.forms], len(tn))
        units = ceil_div(self.tm, self._lanes)
        self._fewest_units = np.where(np.repeat([form.in_luts for form in self.forms], len(tn)), 0, units)
        self._most_units = np.where(np.repeat([form.in_slices for form in self.forms], len(tn)), units, 0)
        # Costs rise with Tm within each of these classes. Every row of a class begins at its smallest Tm.
        self._classes = [np.ones(len(depth), bool), self.tm >= self._lanes, *(depth <= bound for bound in LUT_WORDS)]
        self._fronts: dict[bytes, _Front] = {}

    def front(self, max_cycles: int, max_beats: int) -> _Front:
        """Return the front of the choices with at most these cycles per frame and beats per step of input pixels."""
        usable = (self.cycles <= max_cycles) & (self.beats <= max_beats)
        first = np.zeros(len(usable), bool)
        for in_class in self._classes:
            chosen = usable & in_class
            first |= chosen & ~np.concatenate(([False], chosen[:-1] & (self._row[1:] == self._row[:-1])))
        key = np.packbits(first).tobytes()
        if key not in self._fronts:
            self._fronts[key] = self._front(np.flatnonzero(first))
        return self._fronts[key]

    def _front(self, choices: np.ndarray) -> _Front:
        """Return the front of the given choices, with all divisions of their output channels."""
        fewest = self._fewest_units[choices]
        counts = self._most_units[choices] - fewest + 1
        entry = np.repeat(np.arange(len(choices)), counts)
        units = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts) + fewest[entry]
        choice = choices[entry]
        lut_lanes = self.tm[choice] - np.minimum(units * self._lanes[choice], self.tm[choice])
        terms = self._terms
        finish = np.maximum(
            np.where(units > 0, terms.finish_slices[choice], 0),
            np.where(lut_lanes > 0, terms.lut_finish_slices[choice], 0),
        )
        slices = units * terms.unit_slices[choice] + finish
        luts = lut_lanes * terms.lane_luts[choice] + terms.luts[choice]
        fitting = np.flatnonzero(slices <= self._most_slices)
        kept = fitting[_pareto(slices[fitting], luts[fitting])]
        return _Front(slices[kept], luts[kept], choice[kept], lut_lanes[kept])

    def division(self, unroll: Unroll) -> _Front:
        """Return the front of all divisions of the given unroll factors."""
        chosen = (self.tn == unroll.tn) & (self.tm == unroll.tm) & (self.tk == unroll.tk)
        return self._front(np.flatnonzero(chosen))

    def unroll(self, choice: int, lut_lanes: int) -> Unroll:
        """Return the unroll factors of a choice, with its division of output channels and its multiplier."""
        multiplier = self.forms[self.form[choice]].multiplier
        name = None if multiplier is None else multiplier.name
        return Unroll(
            int(self.tn[choice]), int(self.tm[choice]), int(self.tk[choice]), self.tp, lut_lanes, macs_per_dsp=name
        )


def _pareto(slices: np.ndarray, luts: np.ndarray) -> np.ndarray:
    """Return the indices of the points that no other point matches or beats in both costs, by rising slices."""
    order = np.argsort((slices << BITS) + luts)
    sorted_luts = luts[order]
    least_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_luts)[:-1]))
    return order[sorted_luts < least_before]


@dataclass(frozen=True)
class _Level:
    """Step of the search at one interval: its edges, each from one state of `Pixels` to another, and their fronts.

    Parameters
    ----------
    begins, ends : array
        Index of the state before, and behind, each edge.
    fronts : array
        Index of each edge's front.
    slices, luts : array
        Costs of the points of all fronts, one front after the other.
    offsets : array
        Index of each front's first point, and the number of all points.
    num_states : int
        Number of states behind the step.
    pairs : sequence of (`_Table`, `_Front`)
        Table and front of each index of a front.
    """

    begins: np.ndarray
    ends: np.ndarray
    fronts: np.ndarray
    slices: np.ndarray
    luts: np.ndarray
    offsets: np.ndarray
    num_states: int
    pairs: Sequence[tuple[_Table, _Front]]

    @classmethod
    def single(cls, table: _Table, front: _Front) -> _Level:
        """Return a level with one edge between single states."""
        edge = np.zeros(1, int)
        offsets = np.array([0, len(front.slices)])
        return cls(edge, edge, edge, front.slices, front.luts, offsets, 1, [(table, front)])

    def least(self, weights: Weights) -> np.ndarray:
        """Return the lowest weighted cost of each edge."""
        costs = weights.of(self.slices, self.luts)
        return np.minimum.reduceat(costs, self.offsets[:-1])[self.fronts]

    def point(self, edge: int, weights: Weights) -> int:
        """Return the index, in the edge's front, of the point with the lowest weighted cost."""
        front = self.pairs[self.fronts[edge]][1]
        return int(np.argmin(weights.of(front.slices, front.luts)))


@dataclass(frozen=True)
class Weights:
    """Weights of a slice and of a LUT in a cost that bounds a solution, and the maximum of this cost."""

    slices: float
    luts: float
    limit: float = np.inf

    def of(self, slices: Any, luts: Any) -> Any:
        """Return the weighted cost of slices and LUTs, which can be arrays."""
        return self.slices * slices + self.luts * luts


@dataclass(frozen=True)
class _Path:
    """Solution of the search: an edge and a point of its front for each level, and the total costs."""

    points: tuple[tuple[int, int], ...]
    slices: int
    luts: int


class _Graph:
    """Levels of the search at one interval, and paths through them that begin and end in the only state."""

    def __init__(self, levels: Sequence[_Level]):
        self.levels = levels
        self._ahead: dict[tuple[float, float], list[np.ndarray]] = {}

    def remaining(self, weights: Weights) -> list[np.ndarray]:
        """Return, for each level and state in front of it, the lowest weighted cost of the levels from there on."""
        key = weights.slices, weights.luts
        if key not in self._ahead:
            ahead = [np.zeros(1)]
            for before, level in zip(
                [1, *(level.num_states for level in self.levels)][-2::-1], self.levels[::-1], strict=True
            ):
                costs = np.full(before, np.inf)
                np.minimum.at(costs, level.begins, level.least(weights) + ahead[-1][level.ends])
                ahead.append(costs)
            self._ahead[key] = ahead[::-1]
        return self._ahead[key]

    def best(self, weights: Weights) -> _Path:
        """Return the path with the lowest weighted cost."""
        ahead = self.remaining(weights)
        state, slices, luts, points = 0, 0, 0, []
        for level, costs in zip(self.levels, ahead[1:], strict=True):
            edges = np.flatnonzero(level.begins == state)
            edge = int(edges[np.argmin(level.least(weights)[edges] + costs[level.ends[edges]])])
            point = level.point(edge, weights)
            front = level.pairs[level.fronts[edge]][1]
            slices, luts = slices + int(front.slices[point]), luts + int(front.luts[point])
            points.append((edge, point))
            state = int(level.ends[edge])
        return _Path(tuple(points), slices, luts)

    def least(self, weights: Weights) -> float:
        """Return the lowest weighted cost of a path; infinite if there is no path."""
        return float(self.remaining(weights)[0][0])

    def within(self, bounds: Sequence[Weights], price: Weights, max_labels: int | None = None) -> _Path | None:
        """Return the path with the lowest price that meets all bounds; ``None`` if there is none.

        Parameters
        ----------
        max_labels : int, optional
            Maximum number of partial paths that are kept for a state. With it the search is quick, but not exact.
        """
        fronts = {0: _Labels(np.zeros(1, int), np.zeros(1, int), np.zeros((1, 3), int))}
        history: list[dict[int, _Labels]] = [fronts]
        for index, level in enumerate(self.levels):
            fronts = self._next(index, level, fronts, bounds)
            if max_labels is not None:
                fronts = {end: labels.few(max_labels, bounds[-1]) for end, labels in fronts.items()}
            history.append(fronts)
        if 0 not in fronts:
            return None
        return self._traced(history, int(np.argmin(price.of(fronts[0].slices, fronts[0].luts))))

    def _next(
        self, index: int, level: _Level, fronts: Mapping[int, _Labels], bounds: Sequence[Weights]
    ) -> dict[int, _Labels]:
        """Return the labels of each state behind a level, from the labels in front of it."""
        usable = np.isin(level.begins, list(fronts))
        ahead = [self.remaining(weights)[index + 1] for weights in bounds]
        for weights, costs in zip(bounds, ahead, strict=True):
            reached = np.full(int(level.begins.max()) + 1, np.inf)
            for state, labels in fronts.items():
                if state < len(reached):
                    reached[state] = weights.of(labels.slices, labels.luts).min()
            usable &= reached[level.begins] + level.least(weights) + costs[level.ends] <= weights.limit
        extended: dict[int, list[_Labels]] = {}
        for edge in np.flatnonzero(usable).tolist():
            front, end = level.pairs[level.fronts[edge]][1], int(level.ends[edge])
            limits = [(weights, weights.limit - costs[end]) for weights, costs in zip(bounds, ahead, strict=True)]
            labels = fronts[int(level.begins[edge])].extended(front, edge, limits)
            if len(labels.slices):
                extended.setdefault(end, []).append(labels)
        return {end: _Labels.joined(parts) for end, parts in extended.items()}

    def _traced(self, history: Sequence[Mapping[int, _Labels]], label: int) -> _Path:
        """Return the path of a label of the last state."""
        state, points = 0, []
        total = history[-1][0]
        slices, luts = int(total.slices[label]), int(total.luts[label])
        for level, fronts in zip(self.levels[::-1], history[:0:-1], strict=True):
            label, edge, point = fronts[state].origins[label].tolist()
            points.append((edge, point))
            state = int(level.begins[edge])
        return _Path(tuple(points[::-1]), slices, luts)


@dataclass(frozen=True)
class _Labels:
    """Total costs of partial paths that end in one state, and their origins.

    An origin has the index of the label before, of the edge and of the point of the edge's front.
    """

    slices: np.ndarray
    luts: np.ndarray
    origins: np.ndarray

    def extended(self, front: _Front, edge: int, limits: Sequence[tuple[Weights, float]]) -> _Labels:
        """Return the labels of all partial paths that continue with a point of a front, within limits.

        Each limit is the maximum of a weighted cost.
        """
        slices, luts = np.add.outer(self.slices, front.slices), np.add.outer(self.luts, front.luts)
        fitting = np.ones(slices.shape, bool)
        for weights, limit in limits:
            fitting &= weights.of(slices, luts) <= limit
        before, point = np.nonzero(fitting)
        origins = np.stack((before, np.full(len(before), edge), point), axis=1)
        return _Labels(slices[fitting], luts[fitting], origins)

    def _of(self, chosen: np.ndarray) -> _Labels:
        return _Labels(self.slices[chosen], self.luts[chosen], self.origins[chosen])

    def few(self, count: int, weights: Weights) -> _Labels:
        """Return at most ``count`` labels: those with the lowest weighted cost in as many ranges of slices."""
        if len(self.slices) <= count:
            return self
        costs = weights.of(self.slices, self.luts)
        ranges = np.array_split(np.arange(len(costs)), count)
        return self._of(np.array([indices[np.argmin(costs[indices])] for indices in ranges]))

    @staticmethod
    def joined(parts: Sequence[_Labels]) -> _Labels:
        """Return the Pareto front of several sets of labels."""
        slices, luts, origins = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("slices", "luts", "origins")
        )
        return _Labels(slices, luts, origins)._of(_pareto(slices, luts))


class TwoPriceSearch(FactorSearch):
    """Search over all unroll factors of a group's layers, and divisions between DSP slices and LUTs, under two budgets.

    Parameters
    ----------
    works : sequence of LayerWork
    prices : Prices
    budget : Budget
    copies : mapping of int to LayerWork, optional
        Layer that stands for the previous layer at the front of a part, by index of the part's first layer.
    """

    _of_a_part = (*FactorSearch._of_a_part, "_steps")

    def __init__(
        self,
        works: Sequence[LayerWork],
        prices: Prices,
        budget: Budget,
        copies: Mapping[int, LayerWork] | None = None,
    ):
        super().__init__(works, copies)
        self.prices, self.budget = prices, budget
        self._tables: dict[tuple[LayerWork, bool, int], list[_Table]] = {}
        self._unrollings: dict[tuple[int, int, int, Budget], Unrolling | None] = {}
        self._last_fastest: dict[tuple[int, int], int] = {}
        """Index of the shortest interval of the last `fastest_within` of each part."""

    def under(self, budget: Budget) -> TwoPriceSearch:
        """Return this search under another budget; both searches share their caches."""
        other = copy(self)
        other.budget = budget
        other._steps = self._steps  # slow, and needed by any use of either search
        return other

    def _tables_of(self, index: int) -> list[_Table]:
        """Return the choices of a layer, by its index in this part, one table for each ``Tp``."""
        work = self.works[index]
        first = work.source(index) == index
        key = work, first, self.budget.slices
        if key not in self._tables:
            pixels = pixel_factors(work, first)
            self._tables[key] = [_Table(work, tp, self.prices, self.budget.slices) for tp in pixels]
        return self._tables[key]

    def _cycles_and_beats(self, index: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        return ((np.unique(table.cycles), table.different_beats) for table in self._tables_of(index))

    @cached_property
    def _steps(self) -> list[_States]:
        """Edges between the states of each step, for any interval."""
        states: list[Pixels] = [()]
        steps = []
        for step in self.sweep.steps:
            steps.append(_States.of(step, states, [table.tp for table in self._tables_of(step.index)]))
            states = steps[-1].states
        return steps

    def _graph(self, max_cycles: int) -> _Graph | None:
        """Return the levels of the search at an interval; ``None`` if some layer has no choice at all."""
        levels = []
        for step, states in zip(self.sweep.steps, self._steps, strict=True):
            level = states.level(self.works[step.index], self._tables_of(step.index), max_cycles)
            if level is None:
                return None
            levels.append(level)
        graph = _Graph(levels)
        return graph if graph.least(Weights(1, 1)) < np.inf else None

    def fastest_within(self, floor: int = 0) -> tuple[int, Unrolling] | None:
        """Return the shortest interval from ``floor`` on within the budgets, and its cheapest factors, or ``None``."""
        low, high = self.first(floor), len(self.intervals)
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
        return self._at(index)

    def fastest(self, fits: Callable[[Unrolling], bool], floor: int = 0) -> tuple[int, Unrolling] | None:
        fastest = self.fastest_within(floor)
        return fastest if fastest is None or fits(fastest[1]) else super().fastest(fits, floor)

    def _is_feasible(self, max_cycles: int) -> bool:
        """Return whether some factors with an interval up to ``max_cycles`` are within both budgets."""
        graph = self._graph(max_cycles)
        return graph is not None and _feasible(graph, self.budget)[0] is not None

    def cheapest(self, max_cycles: int) -> Unrolling | None:
        """Return the cheapest factors within the budgets and an interval up to ``max_cycles``; else ``None``.

        Cost is the price of slices and LUTs by the `Budget`.
        """
        key = self._begin, self._end, max_cycles, self.budget
        if key not in self._unrollings:
            graph = self._graph(max_cycles)
            path = None if graph is None else _cheapest(graph, self.budget)
            self._unrollings[key] = None if graph is None or path is None else self._unrolling(graph, path)
        return self._unrollings[key]

    @property
    def fewest_luts(self) -> Unrolling:
        """Unroll factors with the fewest LUTs at the longest interval."""
        graph = self._graph(self.intervals[-1])
        assert graph is not None
        return self._unrolling(graph, graph.best(Weights(ROUNDING, 1)))

    def divided(self, unrolls: Sequence[Unroll]) -> Unrolling | None:
        """Return given factors with the cheapest division between slices and LUTs, or ``None`` above the budgets."""
        levels = []
        for index in self.sweep.order:
            unroll = unrolls[index]
            table = next(table for table in self._tables_of(index) if table.tp == unroll.tp)
            levels.append(_Level.single(table, table.division(unroll)))
        graph = _Graph(levels)
        path = _cheapest(graph, self.budget)
        return None if path is None else self._unrolling(graph, path)

    def weights(self, max_cycles: int) -> Weights:
        """Return weights of both resources, and the weighted budgets, as they limit an interval of ``max_cycles``.

        The weighted budgets are about the number of DSP slices, with LUTs by the price of a slice.
        """
        graph, budget = self._graph(max_cycles), self.budget
        assert graph is not None
        *_, last = bounds = _feasible(graph, budget)[1]
        if len(bounds) == 2:  # one resource suffices
            last = _bound(graph, budget, 1 / (budget.slices + 1), 1 / (budget.luts + 1))
        scale = (budget.slices + budget.luts / budget.slice_price) / last.limit
        return Weights(last.slices * scale, last.luts * scale, last.limit * scale)

    def _unrolling(self, graph: _Graph, path: _Path) -> Unrolling:
        unrolls, ranks = [], []
        for level, (edge, point) in zip(graph.levels, path.points, strict=True):
            table, front = level.pairs[level.fronts[edge]]
            unroll = table.unroll(int(front.choices[point]), int(front.lut_lanes[point]))
            unrolls.append(unroll)
            ranks.append((int(front.slices[point]), int(front.luts[point]), unroll.tn, unroll.tm, unroll.tp))
        order = self.sweep.order
        return Unrolling(path.slices, path.luts, in_order(order, tuple(ranks)), in_order(order, tuple(unrolls)))


@dataclass(frozen=True)
class _States:
    """Edges of one step between states of `Pixels`, for any interval.

    Parameters
    ----------
    states : list of Pixels
        States behind the step.
    begins, ends : array
        Index of the state before, and behind, each edge.
    sources : array
        Index in ``different`` of each edge.
    different : list of (int, int)
        Index of the layer's ``Tp``, and pixels per input beat, of all edges, each pair once.
    """

    states: list[Pixels]
    begins: np.ndarray
    ends: np.ndarray
    sources: np.ndarray
    different: list[tuple[int, int]]

    @classmethod
    def of(cls, step: Step, before: Sequence[Pixels], factors: Sequence[int]) -> _States:
        """Return the edges of a step from the states ``before`` it, for all ``Tp`` of its layer in ``factors``."""
        states: dict[Pixels, int] = {}
        different: dict[tuple[int, int], int] = {}
        edges = []
        for option, tp in enumerate(factors):
            for begin, pixels in enumerate(before):
                if any(pixels[position] != tp for position in step.equal):
                    continue
                known = (*pixels, tp)
                end = states.setdefault(tuple(known[position] for position in step.read_later), len(states))
                pair = option, pixels[step.source] if step.source >= 0 else tp
                edges.append((begin, end, different.setdefault(pair, len(different))))
        begins, ends, sources = np.array(edges, int).reshape(-1, 3).T
        return cls(list(states), begins, ends, sources, list(different))

    def level(self, work: LayerWork, tables: Sequence[_Table], max_cycles: int) -> _Level | None:
        """Return the step's level at an interval, without edges that have no choice; ``None`` if no edge has one."""
        pairs: dict[tuple[int, int], int] = {}
        fronts: list[tuple[_Table, _Front]] = []
        front_of = np.full(len(self.different), -1)
        for edge, (option, source) in enumerate(self.different):
            table, limit = tables[option], max_cycles // work.input_steps(source)
            limit_class = int(np.searchsorted(table.different_beats, limit, side="right"))
            if (option, limit_class) not in pairs:
                front = table.front(max_cycles, limit) if limit_class else None
                pairs[option, limit_class] = -1
                if front is not None and len(front.slices):
                    pairs[option, limit_class] = len(fronts)
                    fronts.append((table, front))
            front_of[edge] = pairs[option, limit_class]
        if not fronts:
            return None
        of_edges = front_of[self.sources]
        usable = of_edges >= 0
        return _Level(
            begins=self.begins[usable],
            ends=self.ends[usable],
            fronts=of_edges[usable],
            slices=np.concatenate([front.slices for _, front in fronts]),
            luts=np.concatenate([front.luts for _, front in fronts]),
            offsets=np.cumsum([0, *(len(front.slices) for _, front in fronts)]),
            num_states=len(self.states),
            pairs=fronts,
        )


def _feasible(graph: _Graph, budget: Budget) -> tuple[_Path | None, list[Weights]]:
    """Return some path within both budgets, or ``None`` if there is none, and bounds that all such paths meet.

    The weights of slices and LUTs are moved towards those with the highest lower bound. Mostly a path on the way is
    within the budgets, or a bound exceeds them. Else the paths within the bounds are searched.
    """
    scale = budget.slices + 1, budget.luts + 1
    bounds = [
        _bound(graph, budget, 1 / scale[0], ROUNDING / scale[1]),
        _bound(graph, budget, ROUNDING / scale[0], 1 / scale[1]),
    ]
    few_slices, few_luts = (
        graph.best(weights) if graph.least(weights) <= weights.limit else None for weights in bounds
    )
    if few_slices is None or few_luts is None:
        return None, bounds
    for path in (few_slices, few_luts):
        if budget.fits(path.slices, path.luts):
            return path, bounds
    if few_slices.slices > budget.slices or few_luts.luts > budget.luts:
        return None, bounds
    for _ in range(MOST_WEIGHTS):
        # Weights for which both paths cost the same: few_slices has too many LUTs, few_luts too many slices.
        weights = _bound(graph, budget, few_slices.luts - few_luts.luts, few_luts.slices - few_slices.slices)
        if graph.least(weights) > weights.limit:
            return None, bounds
        bounds.append(weights)
        path = graph.best(weights)
        if budget.fits(path.slices, path.luts):
            return path, bounds
        if weights.of(path.slices, path.luts) >= weights.of(few_luts.slices, few_luts.luts) * (1 - ROUNDING):
            break
        if path.slices > budget.slices:
            few_luts = path
        else:
            few_slices = path
    best = [*bounds[:2], bounds[-1]]
    return graph.within(best, bounds[-1], MAX_LABELS) or graph.within(best, bounds[-1]), bounds


def _bound(graph: _Graph, budget: Budget, slices: float, luts: float) -> Weights:
    """Return weights with the weighted budgets as their limit."""
    limit = slices * budget.slices + luts * budget.luts
    return Weights(slices, luts, limit * (1 + ROUNDING))


def _cheapest(graph: _Graph, budget: Budget) -> _Path | None:
    """Return the path with the lowest price within both budgets; ``None`` if no path is within them."""
    price = Weights(budget.slice_price, budget.lut_price)
    path = graph.best(price)
    if budget.fits(path.slices, path.luts):
        return path
    best, bounds = _feasible(graph, budget)
    if best is None:
        return None
    limits = []
    for slices, luts, limit in ((1, 0, budget.slices), (0, 1, budget.luts)):
        weights, best = _priced(graph, budget, best, path, Weights(slices, luts, limit))
        limits.append(weights)
    for max_labels in (MAX_LABELS, None):
        known_price = budget.price(best.slices, best.luts)
        priced = [replace(weights, limit=(known_price + weights.limit) * (1 + ROUNDING)) for weights in limits]
        best = graph.within([*bounds[:2], bounds[-1], *priced], price, max_labels) or best
    return best


def _priced(graph: _Graph, budget: Budget, best: _Path, cheap: _Path, limited: Weights) -> tuple[Weights, _Path]:
    """Return weights that bound the price of a path within one budget, and the cheapest path within both on the way.

    The weights are the prices, plus the multiple that raises the bound most of the resource that ``limited`` weighs.
    Their limit is the amount by which the weighted cost of a path within the budget may exceed its price.

    Parameters
    ----------
    best : _Path
        Path within both budgets.
    cheap : _Path
        Path with the lowest price.
    """

    def used(path: _Path) -> float:
        return limited.slices * path.slices + limited.luts * path.luts

    def price(path: _Path) -> int:
        return budget.price(path.slices, path.luts)

    weights = Weights(budget.slice_price, budget.lut_price, 0.0)
    within, beyond = best, cheap
    for _ in range(MOST_WEIGHTS if used(cheap) > limited.limit else 0):
        if used(beyond) <= used(within) or price(within) <= price(beyond):
            break
        factor = (price(within) - price(beyond)) / (used(beyond) - used(within))
        weights = Weights(
            budget.slice_price + factor * limited.slices,
            budget.lut_price + factor * limited.luts,
            factor * limited.limit,
        )
        path = graph.best(weights)
        if budget.fits(path.slices, path.luts) and price(path) < price(best):
            best = path
        if price(path) + factor * used(path) >= (price(beyond) + factor * used(beyond)) * (1 - ROUNDING):
            break
        if used(path) > limited.limit:
            beyond = path
        else:
            within = path
    return weights, best
