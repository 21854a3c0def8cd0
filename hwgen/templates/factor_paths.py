"""Choice of unroll factors for all layers of a group, as a path in a graph, within budgets of DSP slices and LUTs.

A state between two steps is the output pixels per cycle of each layer that is still to be read (`Pixels`). An edge is a
choice of the next layer's pixels, with the Pareto front of the layer's costs.

Lower bounds keep the fronts of totals short. For any weights of the two resources, the minimum weighted cost of the
remaining layers is known exactly, by dynamic programming in the opposite direction (Lagrangian relaxation). A total is
dropped if its weighted cost with this minimum exceeds the weighted budgets. Almost all intervals are thus decided
without fronts, and no solution is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import inf
from typing import Any

import numpy as np

from hwgen.templates.work import LayerWork, Unroll

#: Relative rounding error of weighted sums of costs.
ROUNDING = 1e-9

#: Number of bits of any total of LUTs.
BITS = 32

#: Maximum number of partial paths that a quick search keeps for a state.
MAX_LABELS = 48

#: Maximum number of weights that are tried to bound a cost. The bound of the last weights is mostly the best one.
MAX_WEIGHTS = 24


Pixels = tuple[int, ...]
"""Type of a search's state: a tuple of ``Tp`` (output pixels per cycle) per layer whose output is still to be read."""


@dataclass(frozen=True)
class AddedLayer:
    """Step of a search for unroll factors: the layer that it adds, the layers read by it, and those still to be read.

    Positions are indices of layers in the state (`Pixels`).

    Parameters
    ----------
    index : int
        Index of the layer that is added. Steps of equal positions are equal.
    source : int
        Position of the layer that it reads first; -1 if there is none.
    equal : tuple of int
        Positions of the layers that must have the same ``Tp``.
    read_later : tuple of int
        Positions of the layers that are still to be read afterwards, the added layer last.
    """

    index: int = field(compare=False)
    source: int
    equal: tuple[int, ...]
    read_later: tuple[int, ...]


class LayerOrder:
    """Order for a search to add a fusion group's layers, and the layers whose outputs later ones read, per step.

    Parameters
    ----------
    works : sequence of LayerWork
    """

    def __init__(self, works: Sequence[LayerWork]):
        self.works = tuple(works)

    @cached_property
    def steps(self) -> list[AddedLayer]:
        """List of the search's steps (`AddedLayer`), one per layer, in the search's order."""
        entries, unread, done = [], [], set()
        for index in self.order:
            before = index - self.works[index].back[0]
            source = unread.index(before) if before in unread else -1
            equal = tuple(at for at, layer in enumerate(unread) if self._alike[layer] == self._alike[index])
            done.add(index)
            unread.append(index)
            read_later = tuple(at for at, layer in enumerate(unread) if not self._readers[layer] <= done)
            entries.append(AddedLayer(index, source, equal, read_later))
            unread = [unread[position] for position in read_later]
        return entries

    @cached_property
    def order(self) -> list[int]:
        """List of layer indices in the order of the search, which keeps few layers still to be read at a time."""
        count = len(self.works)
        if all(readers <= {index + 1} for index, readers in enumerate(self._readers)):
            return list(range(count))
        before = [{index - back for back in work.back if back <= index} for index, work in enumerate(self.works)]
        order: list[int] = []
        done: set[int] = set()
        unread: list[int] = []

        def states_after(index: int) -> int:
            """Return the number of independent ``Tp`` among the layers still to be read after adding ``index``."""
            known = {*done, index}
            return len({self._alike[layer] for layer in (*unread, index) if not self._readers[layer] <= known})

        while len(order) < count:
            ready = [index for index in range(count) if index not in done and before[index] <= done]
            order.append(min(ready, key=lambda index: (states_after(index), index)))
            done.add(order[-1])
            unread = [layer for layer in (*unread, order[-1]) if not self._readers[layer] <= done]
        return order

    @cached_property
    def _alike(self) -> list[int]:
        """List by layer: index of the first layer whose ``Tp`` must equal the layer's, as a join reads both maps.

        Branches that meet are known to be equal before they meet, so that few combinations are examined.
        """
        first = list(range(len(self.works)))
        for index, work in enumerate(self.works):
            met = {first[index], *(first[index - back] for back in work.back[: work.direct_inputs] if back <= index)}
            first = [min(met) if layer in met else layer for layer in first]
        return first

    @cached_property
    def _readers(self) -> list[set[int]]:
        """List by layer index: the set of the indices of the layers that read the layer's output."""
        readers: list[set[int]] = [set() for _ in self.works]
        for index, work in enumerate(self.works):
            for back in work.back:
                if back <= index:
                    readers[index - back].add(index)
        return readers


class FactorTable(ABC):
    """Base class of tables of one layer's unroll factors with the same ``Tp``, with costs and cycles."""

    tp: int
    cycles: np.ndarray
    """Array, by choice of unroll factors in the table: cycles per frame to compute all output pixels."""
    beat_counts: np.ndarray
    """Array of distinct numbers of input beats per group of neighbouring pixels, ascending."""

    @abstractmethod
    def front(self, max_cycles: int, max_beats: int) -> FactorFront:
        """Return the `FactorFront` of choices with at most ``max_cycles`` per frame, ``max_beats`` per pixel group.

        ``max_beats`` counts beats per group of neighbouring pixels.
        """

    @abstractmethod
    def unroll(self, choice: int, lut_lanes: int) -> Unroll:
        """Return the `Unroll` factors of a choice, with its multiplier and ``lut_lanes`` channels in LUTs."""

    def rank(self, choice: int) -> tuple[Any, ...]:
        """Return, as a tuple, a choice's sort key among choices of equal cost, smallest first."""
        return ()


@dataclass(frozen=True)
class Budget:
    """Limits of DSP slices and LUTs in a search of unroll factors, with a price of each for the total cost.

    Parameters
    ----------
    slices, luts : float
        Maximum number of DSP slices and of LUTs. With an infinite number of LUTs, slices are the only budget.
    slice_price : int
        Weight of a slice in the cost.
    lut_price : int or complex
        Weight of a LUT in the cost. With ``1j``, LUTs count only among equal numbers of slices, because NumPy compares
        the real parts of complex numbers first.
    """

    slices: float
    luts: float
    slice_price: int
    lut_price: Any = 1

    def fits(self, slices: int, luts: int) -> bool:
        """Return whether numbers of DSP slices and LUTs are both within the budget."""
        return slices <= self.slices and luts <= self.luts

    @property
    def is_single(self) -> bool:
        """Whether only DSP slices are limited; the cheapest unroll factors are then within the budget if any are."""
        return self.luts == inf

    @property
    def searched(self) -> Budget:
        """`Budget` of a search for the cheapest factors: this one, but without a DSP limit if LUTs are unlimited."""
        return replace(self, slices=inf) if self.is_single else self

    @property
    def weights(self) -> CostWeights:
        """Price of a DSP slice and price of a LUT as `CostWeights`, without a limit."""
        return CostWeights(self.slice_price, self.lut_price)

    def price(self, slices: int, luts: int) -> Any:
        """Return the cost of numbers of DSP slices and LUTs at the budget's prices."""
        return self.slice_price * slices + self.lut_price * luts


@dataclass(frozen=True)
class FactorFront:
    """Pareto front of one layer's unroll factors, as arrays over its points: DSP slices ascending, LUTs descending."""

    slices: np.ndarray
    luts: np.ndarray
    choices: np.ndarray
    """Array, by point: index in the layer's `FactorTable` of its unroll factors."""
    lut_lanes: np.ndarray
    """Array, by point: number of output channels whose products are computed in LUTs."""


def pareto(slices: np.ndarray, luts: np.ndarray) -> np.ndarray:
    """Return an array of indices of the Pareto-optimal points, not matched or beaten in both costs, by slices."""
    order = np.argsort((slices << BITS) + luts)
    sorted_luts = luts[order]
    min_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_luts)[:-1]))
    return order[sorted_luts < min_before]


@dataclass(frozen=True)
class FactorLevel:
    """Level of a search graph, for one layer: edges between states (`Pixels`), each with a Pareto front.

    Parameters
    ----------
    begins, ends : array
        Index of the state before, and after, each edge.
    fronts : array
        Index of each edge's front.
    slices, luts : array
        Costs of the points of all fronts, one front after the other.
    offsets : array
        Index of each front's first point, and the number of all points.
    num_states : int
        Number of states after the step.
    pairs : sequence of (`FactorTable`, `FactorFront`)
        Table and front of each index of a front.
    """

    begins: np.ndarray
    ends: np.ndarray
    fronts: np.ndarray
    slices: np.ndarray
    luts: np.ndarray
    offsets: np.ndarray
    num_states: int
    pairs: Sequence[tuple[FactorTable, FactorFront]]

    @classmethod
    def single(cls, table: FactorTable, front: FactorFront) -> FactorLevel:
        """Return a `FactorLevel` of the search graph with one edge (choice), whose costs are the front ``front``."""
        edge = np.zeros(1, int)
        offsets = np.array([0, len(front.slices)])
        return cls(edge, edge, edge, front.slices, front.luts, offsets, 1, [(table, front)])

    def min_cost(self, weights: CostWeights) -> np.ndarray:
        """Return an array with the lowest weighted cost of each edge (choice of factors) of the level."""
        costs = weights.of(self.slices, self.luts)
        return np.minimum.reduceat(costs, self.offsets[:-1])[self.fronts]

    def preference(self, edge: int) -> tuple[Any, ...]:
        """Return a sort key (a tuple) for edges (choices) of equal cost, preferred first: rank of the first point."""
        table, front = self.pairs[self.fronts[edge]]
        return table.rank(front.choices[0].item())

    def point(self, edge: int, weights: CostWeights) -> int:
        """Return the index of the point with the lowest weighted cost in the Pareto front of an edge (choice)."""
        front = self.pairs[self.fronts[edge]][1]
        return int(np.argmin(weights.of(front.slices, front.luts)))


@dataclass(frozen=True)
class CostWeights:
    """Weight of a DSP slice, weight of a LUT, and the maximum weighted cost that a solution may have."""

    slices: float
    luts: Any
    limit: float = np.inf

    def of(self, slices: Any, luts: Any) -> Any:
        """Return the weighted cost of numbers of DSP slices and LUTs, which can be arrays."""
        return self.slices * slices + self.luts * luts


@dataclass(frozen=True)
class FactorPath:
    """Solution: for each layer, an edge and a point of its Pareto front; and the total DSP slices, LUTs."""

    points: tuple[tuple[int, int], ...]
    slices: int
    luts: int


class FactorGraph:
    """Graph of a search for one interval (cycles per frame), a level per layer; a path chooses unroll factors."""

    def __init__(self, levels: Sequence[FactorLevel]):
        self.levels = levels
        self._ahead: dict[tuple[float, float], list[np.ndarray]] = {}

    def remaining(self, weights: CostWeights) -> list[np.ndarray]:
        """Return a list by level of arrays by state: the lowest weighted cost of that level and all later ones."""
        key = weights.slices, weights.luts
        if key not in self._ahead:
            ahead = [np.zeros(1)]
            for before, level in zip(
                [1, *(level.num_states for level in self.levels)][-2::-1], self.levels[::-1], strict=True
            ):
                totals = level.min_cost(weights) + ahead[-1][level.ends]
                costs = np.full(before, np.inf, totals.dtype)
                np.minimum.at(costs, level.begins, totals)
                ahead.append(costs)
            self._ahead[key] = ahead[::-1]
        return self._ahead[key]

    def best(self, weights: CostWeights) -> FactorPath:
        """Return the `FactorPath` of lowest weighted cost; ties go to preferred choices in the first layers."""
        ahead = self.remaining(weights)
        state, slices, luts = 0, 0, 0
        points: list[tuple[int, int]] = []
        for level, costs in zip(self.levels, ahead[1:], strict=True):
            edges = np.flatnonzero(level.begins == state)
            totals = level.min_cost(weights)[edges] + costs[level.ends[edges]]
            edge: int = min(edges[totals == totals.min()].tolist(), key=level.preference)
            point = level.point(edge, weights)
            front = level.pairs[level.fronts[edge]][1]
            slices, luts = slices + front.slices[point].item(), luts + front.luts[point].item()
            points.append((edge, point))
            state = int(level.ends[edge])
        return FactorPath(tuple(points), slices, luts)

    def min_cost(self, weights: CostWeights) -> Any:
        """Return the lowest weighted cost, a float, of any path through the graph; infinity if there is none."""
        return self.remaining(weights)[0][0].real.item()

    def within(
        self, bounds: Sequence[CostWeights], price: CostWeights, max_labels: int | None = None
    ) -> FactorPath | None:
        """Return the `FactorPath` of lowest price that keeps all limits of weighted costs; ``None`` if none does.

        Parameters
        ----------
        max_labels : int, optional
            Maximum number of partial paths that are kept for a state. With it the search is quick, but not exact.
        """
        fronts = {0: _Labels(np.zeros(1, int), np.zeros(1, int), np.zeros((1, 3), int))}
        history: list[dict[int, _Labels]] = [fronts]
        for index, level in enumerate(self.levels):
            fronts = self._next_labels(index, level, fronts, bounds)
            if max_labels is not None:
                fronts = {end: labels.few(max_labels, bounds[-1]) for end, labels in fronts.items()}
            history.append(fronts)
        if 0 not in fronts:
            return None
        return self._traced(history, int(np.argmin(price.of(fronts[0].slices, fronts[0].luts))))

    def _next_labels(
        self, index: int, level: FactorLevel, fronts: Mapping[int, _Labels], bounds: Sequence[CostWeights]
    ) -> dict[int, _Labels]:
        """Return a dictionary of partial paths (labels: cost so far) by state after a level, from those before it."""
        usable = np.isin(level.begins, list(fronts))
        ahead = [self.remaining(weights)[index + 1] for weights in bounds]
        for weights, costs in zip(bounds, ahead, strict=True):
            reached = np.full(int(level.begins.max()) + 1, np.inf)
            for state, labels in fronts.items():
                if state < len(reached):
                    reached[state] = weights.of(labels.slices, labels.luts).min()
            usable &= reached[level.begins] + level.min_cost(weights) + costs[level.ends] <= weights.limit
        extended: dict[int, list[_Labels]] = {}
        for edge in np.flatnonzero(usable).tolist():
            front, end = level.pairs[level.fronts[edge]][1], int(level.ends[edge])
            limits = [(weights, weights.limit - costs[end]) for weights, costs in zip(bounds, ahead, strict=True)]
            labels = fronts[int(level.begins[edge])].extended(front, edge, limits)
            if len(labels.slices):
                extended.setdefault(end, []).append(labels)
        return {end: _Labels.joined(parts) for end, parts in extended.items()}

    def _traced(self, history: Sequence[Mapping[int, _Labels]], label: int) -> FactorPath:
        """Return the `FactorPath` (choices by layer) that ends in a label of the last state, via ``history``."""
        state, points = 0, []
        total = history[-1][0]
        slices, luts = int(total.slices[label]), int(total.luts[label])
        for level, fronts in zip(self.levels[::-1], history[:0:-1], strict=True):
            label, edge, point = fronts[state].origins[label].tolist()
            points.append((edge, point))
            state = int(level.begins[edge])
        return FactorPath(tuple(points[::-1]), slices, luts)


@dataclass(frozen=True)
class _Labels:
    """Partial paths (labels) that end in one state, as arrays: DSP slices, LUTs, and last step.

    An origin has three indices: previous label, edge, and point of the edge's front.
    """

    slices: np.ndarray
    luts: np.ndarray
    origins: np.ndarray

    def extended(self, front: FactorFront, edge: int, limits: Sequence[tuple[CostWeights, float]]) -> _Labels:
        """Return `_Labels` (costs of partial paths) that go on with a point of an edge's front, within limits.

        Each limit is the maximum of a weighted cost.
        """
        slices, luts = np.add.outer(self.slices, front.slices), np.add.outer(self.luts, front.luts)
        fitting = np.ones(slices.shape, bool)
        for weights, limit in limits:
            fitting &= weights.of(slices, luts) <= limit
        before, point = np.nonzero(fitting)
        origins = np.stack((before, np.full(len(before), edge), point), axis=1)
        return _Labels(slices[fitting], luts[fitting], origins)

    def _select(self, chosen: np.ndarray) -> _Labels:
        return _Labels(self.slices[chosen], self.luts[chosen], self.origins[chosen])

    def few(self, count: int, weights: CostWeights) -> _Labels:
        """Return at most ``count`` `_Labels` (costs of partial paths): the cheapest per DSP slice range."""
        if len(self.slices) <= count:
            return self
        costs = weights.of(self.slices, self.luts)
        ranges = np.array_split(np.arange(len(costs)), count)
        return self._select(np.array([indices[np.argmin(costs[indices])] for indices in ranges]))

    @staticmethod
    def joined(parts: Sequence[_Labels]) -> _Labels:
        """Return the Pareto-optimal `_Labels` (costs of partial paths) among several sets for one state."""
        slices, luts, origins = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("slices", "luts", "origins")
        )
        return _Labels(slices, luts, origins)._select(pareto(slices, luts))


@dataclass(frozen=True)
class PixelStates:
    """Edges between states (`Pixels`) of one step of the search, the same for all cycles per frame.

    Parameters
    ----------
    states : tuple of Pixels
        States after the step.
    begins, ends : array
        Index of the state before, and after, each edge.
    sources : array
        Index in ``different`` of each edge.
    different : list of (int, int)
        Distinct pairs: an edge's index of the layer's ``Tp``, and its pixels per input beat.
    """

    states: tuple[Pixels, ...]
    begins: np.ndarray
    ends: np.ndarray
    sources: np.ndarray
    different: list[tuple[int, int]]

    @classmethod
    @lru_cache(maxsize=256)  # parts of a network have steps in common
    def of(cls, step: AddedLayer, before: tuple[Pixels, ...], factors: tuple[int, ...]) -> PixelStates:
        """Return `PixelStates`: a step's edges from the states ``before`` it, per ``Tp`` (``factors``) of its layer."""
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
        return cls(tuple(states), begins, ends, sources, list(different))

    def level(self, work: LayerWork, tables: Sequence[FactorTable], max_cycles: int) -> FactorLevel | None:
        """Return the step's `FactorLevel` for intervals up to ``max_cycles`` per frame; ``None`` without edges."""
        pairs: dict[tuple[int, int], int] = {}
        fronts: list[tuple[FactorTable, FactorFront]] = []
        front_of = np.full(len(self.different), -1)
        for edge, (option, source) in enumerate(self.different):
            table, limit = tables[option], max_cycles // work.input_steps(source)
            limit_class = int(table.beat_counts.searchsorted(limit, "right"))
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
        return FactorLevel(
            begins=self.begins[usable],
            ends=self.ends[usable],
            fronts=of_edges[usable],
            slices=np.concatenate([front.slices for _, front in fronts]),
            luts=np.concatenate([front.luts for _, front in fronts]),
            offsets=np.cumsum([0, *(len(front.slices) for _, front in fronts)]),
            num_states=len(self.states),
            pairs=fronts,
        )


def feasible(graph: FactorGraph, budget: Budget) -> tuple[FactorPath | None, list[CostWeights]]:
    """Return a pair: a `FactorPath` within both budgets, or ``None``, and the `CostWeights` that bound all such paths.

    The weights of slices and LUTs are moved towards the weights with the highest lower bound. Mostly a path on the way
    is within the budgets, or a bound exceeds them. Otherwise, the paths within the bounds are searched.
    """
    scale = budget.slices + 1, budget.luts + 1
    bounds = [
        bound(budget, 1 / scale[0], ROUNDING / scale[1]),
        bound(budget, ROUNDING / scale[0], 1 / scale[1]),
    ]
    few_slices, few_luts = (
        graph.best(weights) if graph.min_cost(weights) <= weights.limit else None for weights in bounds
    )
    if few_slices is None or few_luts is None:
        return None, bounds
    for path in (few_slices, few_luts):
        if budget.fits(path.slices, path.luts):
            return path, bounds
    if few_slices.slices > budget.slices or few_luts.luts > budget.luts:
        return None, bounds
    for _ in range(MAX_WEIGHTS):
        # With these weights, both paths cost the same: few_slices has too many LUTs, few_luts too many slices.
        weights = bound(budget, few_slices.luts - few_luts.luts, few_luts.slices - few_slices.slices)
        if graph.min_cost(weights) > weights.limit:
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


def bound(budget: Budget, slices: float, luts: float) -> CostWeights:
    """Return weights of DSP slices and LUTs (`CostWeights`) whose limit is the budget's weighted sum."""
    limit = slices * budget.slices + luts * budget.luts
    return CostWeights(slices, luts, limit * (1 + ROUNDING))


def cheapest(graph: FactorGraph, budget: Budget) -> FactorPath | None:
    """Return the path (`FactorPath`) with the lowest price within both budgets; ``None`` if no path is within them."""
    price = budget.weights
    path = graph.best(price)
    if budget.fits(path.slices, path.luts):
        return path
    best, bounds = feasible(graph, budget)
    if best is None:
        return None
    limits = []
    for slices, luts, limit in ((1, 0, budget.slices), (0, 1, budget.luts)):
        weights, best = _priced(graph, budget, best, path, CostWeights(slices, luts, limit))
        limits.append(weights)
    for max_labels in (MAX_LABELS, None):
        known_price = budget.price(best.slices, best.luts)
        priced = [replace(weights, limit=(known_price + weights.limit) * (1 + ROUNDING)) for weights in limits]
        best = graph.within([*bounds[:2], bounds[-1], *priced], price, max_labels) or best
    return best


def _priced(
    graph: FactorGraph, budget: Budget, best: FactorPath, cheap: FactorPath, limited: CostWeights
) -> tuple[CostWeights, FactorPath]:
    """Return a pair: `CostWeights` that bound prices of paths within one budget, and the cheapest path seen in both.

    The weights are the prices, plus the multiple that raises the bound most of the resource that ``limited`` weighs.
    Their limit is the maximum excess of the weighted cost of a path within the budget over its price.

    Parameters
    ----------
    best : FactorPath
        Path within both budgets.
    cheap : FactorPath
        Path with the lowest price.
    """

    def used(path: FactorPath) -> float:
        return limited.slices * path.slices + limited.luts * path.luts

    def price(path: FactorPath) -> int:
        return budget.price(path.slices, path.luts)

    weights = CostWeights(budget.slice_price, budget.lut_price, 0.0)
    within, beyond = best, cheap
    for _ in range(MAX_WEIGHTS if used(cheap) > limited.limit else 0):
        if used(beyond) <= used(within) or price(within) <= price(beyond):
            break
        factor = (price(within) - price(beyond)) / (used(beyond) - used(within))
        weights = CostWeights(
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
