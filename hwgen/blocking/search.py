"""Search for a layer's blocking with the least memory energy, over all loop orders and block sizes.

**The space.** A nest grows from the datapath's block to the whole layer, one loop at a time: a path through the lattice
of extents. Any order and any number of loops per dimension is such a path. Each operand also has buffers. A loop that
doesn't index an operand is a reason for a buffer inside it (Yang, section 3.2). Inputs can have a buffer at any
position, because windows overlap, and a buffer can hold any whole array. The words that a buffer fetches depend only on
the extents at its position and at the end of the loops that it spans, and so does its price.

**The search** is dynamic programming with dominance, and exact. For each point of the lattice it keeps all partial
blockings (labels) that no other label dominates. The criteria are the energy so far, the accesses that each operand
must still serve, the levels and the room used. A label is dropped if its lower bound cannot beat the best known
blocking. The bound charges each operand an access to a buffer as large as its present block, and every element once
from the top. If a point has more than ``width`` labels, the worst are dropped too. The smallest of their bounds becomes
`PricedBlocking.bound`: no blocking of the space is better.

Blocks divide the layer's extents; sizes can be rounded up before (`Problem.padded`). With ``ragged``, blocks of rows,
columns and channels can also have the smallest size for any number of blocks. Each holds whole inner blocks, except at
the layer's edge. A block at the edge that holds a single inner block lets it stay where others are fetched again. How
often this happens depends on the path. Therefore one search assumes that it always does (`Lattice.optimistic`), which
gives the bound. Another search assumes that it never does, for blockings that can beat the first result.
`hwgen.blocking.count` counts every result again, and must agree.

The search is a shortest path through the lattice (`cheapest_path`), whose labels grow loop by loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, pairwise
from math import inf

import numpy as np

from hwgen.blocking import count, energy
from hwgen.blocking.energy import CoDesign, Hierarchy, Shared
from hwgen.blocking.lattice import EXACT, MIRRORED, Lattice
from hwgen.blocking.priced import PricedBlocking, evaluate
from hwgen.blocking.prices import BlockPrices
from hwgen.blocking.problem import DIMS, OPERANDS, BlockedLoop, Nest, Problem, indexes
from hwgen.errors import PlanError


@dataclass
class Labels:
    """Batch of partial blockings (inner loops with buffers) in a shortest-path search, one per row of arrays.

    Parameters
    ----------
    point : int32
        Flat index of the point.
    spent : float64
        Energy so far, in pJ.
    served : float64, 3 columns
        Accesses that each operand must still serve.
    closed : bool, 3 columns
        Whether an operand's last buffer is complete; otherwise the buffer also spans the next loops.
    level : int8, 3 columns
        Next level that each operand may use.
    used : float64
        Words used in each shared resource.
    parent, action : int32
        Index of the label that this label extends (-1: none), and the buffers added with the extension. An action has
        one byte per operand, level + 1. Of two mirrored points only one is kept; bit `MIRRORED` marks a label that was
        mirrored.
    """

    point: np.ndarray
    spent: np.ndarray
    served: np.ndarray
    closed: np.ndarray
    level: np.ndarray
    used: np.ndarray
    parent: np.ndarray
    action: np.ndarray

    def take(self, rows: np.ndarray) -> Labels:
        """Return `Labels`: a batch of the partial blockings in the given rows."""
        return Labels(*(getattr(self, column.name)[rows] for column in fields(self)))

    def __len__(self) -> int:
        return len(self.point)

    @staticmethod
    def join(batches: Sequence[Labels]) -> Labels:
        """Return `Labels`: one batch with all partial blockings of several batches."""
        return Labels(
            *(np.concatenate([getattr(batch, column.name) for batch in batches]) for column in fields(Labels))
        )


Path = list[tuple[int, int]]
"""Type of a search's path to a blocking: lattice points (block sizes) with codes of the buffers added there."""


class Trail:
    """Store of all partial blockings that a search has extended, to trace a solution back to its start.

    ``parent`` of each partial blocking is the index of the blocking that it extends.
    """

    def __init__(self) -> None:
        self._batches: list[Labels] = []
        self._starts = [0]

    def add(self, labels: Labels) -> int:
        """Store a batch of partial blockings, and return the index of the batch's first row among all stored rows."""
        self._batches.append(labels)
        self._starts.append(self._starts[-1] + len(labels))
        return self._starts[-2]

    def back(self, labels: Labels, row: int) -> Path:
        """Return the path, first step to last, to the partial blocking in row ``row`` of ``labels``."""
        steps = [(int(labels.point[row]), int(labels.action[row]))]
        while (label := int(labels.parent[row])) >= 0:
            batch = bisect_right(self._starts, label) - 1
            labels, row = self._batches[batch], label - self._starts[batch]
            steps.append((int(labels.point[row]), int(labels.action[row])))
        return steps[::-1]


def undominated(labels: Labels, bounds: np.ndarray, width: int, limited: frozenset[str]) -> tuple[Labels, float]:
    """Return a pair: Pareto-optimal `Labels` of a batch, at most ``width`` per lattice point; bound (pJ) of the rest.

    The second result is the least energy bound of the blockings dropped because of ``width``, infinite if none is.
    """
    figures = np.column_stack([labels.spent, labels.served, labels.closed])
    if "levels" in limited:
        figures = np.column_stack([figures, labels.level])
    if "room" in limited:
        figures = np.column_stack([figures, labels.used])
    order = np.lexsort((*figures.T[::-1], labels.point))
    figures, point = figures[order], labels.point[order]
    new = np.ones(len(order), bool)
    new[1:] = (figures[1:] != figures[:-1]).any(axis=1) | (point[1:] != point[:-1])
    order, figures, point = order[new], figures[new], point[new]
    edges = np.concatenate([[0], np.flatnonzero(point[1:] != point[:-1]) + 1, [len(point)]])
    kept, missed = [], inf
    for begin, stop in pairwise(edges):
        rows = begin + _pareto_rows(figures[begin:stop])
        if len(rows) > width:
            worst = np.argsort(bounds[order[rows]], kind="stable")
            missed = min(missed, float(bounds[order[rows[worst[width]]]]))
            rows = rows[worst[:width]]
        kept.append(order[rows])
    return labels.take(np.concatenate(kept)), missed


def _pareto_rows(figures: np.ndarray, chunk: int = 256) -> np.ndarray:
    """Return an array of the indices of the Pareto-optimal rows of ``figures``, a matrix of costs (less is better).

    Rows are sorted and distinct.
    """
    if len(figures) < 2:
        return np.arange(len(figures))
    figures = figures[:, np.ptp(figures, axis=0) > 0].astype(np.float64)
    kept = np.zeros(0, np.int64)
    for begin in range(0, len(figures), chunk):
        rows = np.arange(begin, min(begin + chunk, len(figures)))
        rows = rows[~_dominated(figures[rows], figures[kept])]
        inside = figures[rows]
        dominated = np.tri(len(rows), k=-1, dtype=bool)
        for column in inside.T[1:]:  # the first column is sorted
            dominated &= column[None, :] <= column[:, None]
        # a dominated row can stay in the comparison: whatever dominates it also dominates what it dominates
        kept = np.concatenate([kept, rows[~dominated.any(axis=1)]])
    return kept


def _dominated(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return a boolean array: for each row of costs in ``rows``, whether a row of ``kept`` is nowhere larger.

    No row of ``kept`` sorts after ``rows``.
    """
    result = np.zeros(len(rows), bool)
    for begin in range(0, len(kept), 1024):
        some = kept[begin : begin + 1024]
        left = np.flatnonzero(~result)
        below = np.ones((len(left), len(some)), bool)
        for column in range(1, rows.shape[1]):
            below &= some[None, :, column] <= rows[left, column][:, None]
        result[left] = below.any(axis=1)
    return result


def cheapest_path(lattice: Lattice, prices: BlockPrices, width: int, limit: float) -> tuple[float, float, Path | None]:
    """Return, as a triple, (energy, lower bound, path) of the blocking with the least energy, below ``limit`` pJ.

    The lower bound covers all partial blockings that were dropped because of ``width``. Without a blocking below
    ``limit``, the energy is infinite and the path is ``None``.
    """
    served = lattice.datapath_words[None, :].copy()
    served[0, 2] += lattice.problem.output_words  # a datapath also reads the zeros that sums begin with
    labels = Labels(
        point=np.zeros(1, np.int32),
        spent=np.zeros(1),
        served=served,
        closed=np.ones((1, 3), bool),
        level=np.zeros((1, 3), np.int8),
        used=np.zeros((1, len(prices.limits))),
        parent=np.full(1, -1, np.int32),
        action=np.zeros(1, np.int32),
    )
    trail = Trail()
    waiting = {0: [labels]}  # labels that are not extended yet, by rank
    missed = inf
    while (rank := min(waiting)) < lattice.ranks[-1]:
        labels = Labels.join(waiting.pop(rank))
        bounds = energy_bounds(lattice, prices, labels)
        labels, bounds = labels.take(alive := np.flatnonzero(bounds < limit)), bounds[alive]
        if len(labels):
            labels, dropped = undominated(labels, bounds, width, prices.limited)
            missed = min(missed, dropped)
            first_label = trail.add(labels)
            for grown, following in lattice.growths:
                for grown_labels in expand(lattice, prices, grown, following, labels):
                    grown_labels.parent += first_label
                    _sort_in(waiting, grown_labels, lattice.ranks[grown_labels.point])
        if not waiting:
            return inf, missed, None
    labels = Labels.join(waiting[rank])
    labels = at_end(lattice, prices, labels, trail.add(labels))
    return _cheapest_complete(prices, trail, labels, limit, missed)


def _sort_in(waiting: dict[int, list[Labels]], labels: Labels, ranks: np.ndarray) -> None:
    """Add partial loop blockings to the search's queues, which are keyed by the rank of the block extents."""
    for rank in np.unique(ranks).tolist():
        same = ranks == rank
        waiting.setdefault(rank, []).append(labels if same.all() else labels.take(np.flatnonzero(same)))


def expand(
    lattice: Lattice, prices: BlockPrices, grown: tuple[str, ...], following: np.ndarray, labels: Labels
) -> list[Labels]:
    """Return a list of batches (`Labels`): partial blockings with one more loop, with and without new buffers.

    Windows overlap, so an input buffer can be useful anywhere. An output buffer at the datapath saves reading zeros. If
    blocks can stay at an edge, any buffer can be useful.
    """
    target = following[labels.point]
    rows = np.flatnonzero(target >= 0)
    if not len(rows):
        return []
    here = labels.point[rows]
    labels = _extend_by_loop(lattice, labels.take(rows), target[rows], rows)
    for index, operand in enumerate(OPERANDS):
        spans = not indexes(operand, grown[0])
        at_datapath = not here.any()  # all points of a rank; the first point is alone in its rank
        useless = operand == "weights" or (operand == "output" and not at_datapath)
        if not spans and useless and not lattice.optimistic:
            labels.closed[:, index] = True
            continue
        fill = lattice.fill[index][labels.point if spans else here]
        closed = labels.closed[:, index].copy()
        useful = closed & (labels.served[:, index] > fill)
        if spans:
            labels.served[:, index] = np.where(closed, labels.served[:, index], fill)
        else:
            labels.closed[:, index] = True
        labels, here = _extend_by_buffer(lattice, prices, labels, here, index, useful, fill, spans)
    return [labels]


def at_end(lattice: Lattice, prices: BlockPrices, labels: Labels, first: int) -> Labels:
    """Return `Labels`: complete blockings with optional buffers for operands' whole arrays, in all combinations.

    The blocking in the first row of ``labels`` has the index ``first`` in the trail.
    """
    labels = labels.take(np.arange(len(labels)))
    labels.parent[:] = first + np.arange(len(labels))
    labels.action[:] = 0
    here = labels.point
    for index in range(len(OPERANDS)):
        fill = lattice.fill[index][here]
        useful = labels.closed[:, index] & (labels.served[:, index] > fill)
        labels, here = _extend_by_buffer(lattice, prices, labels, here, index, useful, fill, False)
    return labels


def _extend_by_buffer(
    lattice: Lattice,
    prices: BlockPrices,
    labels: Labels,
    here: np.ndarray,
    index: int,
    useful: np.ndarray,
    fill: np.ndarray,
    spans: bool,
) -> tuple[Labels, np.ndarray]:
    """Return a pair: `Labels`, also with one more buffer of an operand if ``useful`` and it fits; their lattice points.

    The buffer is at ``here`` and reads ``fill`` words. With ``spans`` it also spans the next loop.
    """
    room = lattice.room[index][here].astype(float)
    batches, points = [labels], [here]
    for level, free in prices.options(index, labels.level[:, index]):
        cost = prices.table[index][level][here]
        able = useful & free & (cost < inf)
        resource = level if isinstance(prices.hierarchy, Shared) else 0
        if len(prices.limits) and "room" in prices.limited:
            able &= labels.used[:, resource] + room <= prices.limits[resource]
        chosen = np.flatnonzero(able)
        placed = labels.take(chosen)
        placed.spent += placed.served[:, index] * cost[chosen]
        placed.served[:, index] = fill[chosen]
        placed.closed[:, index] = not spans
        placed.level[:, index] = level + ("levels" in prices.limited)
        placed.action += (level + 1) << (8 * index)
        if len(prices.limits):
            placed.used[:, resource] += room[chosen]
        batches.append(placed)
        points.append(here[chosen])
    return Labels.join(batches), np.concatenate(points)


def _extend_by_loop(lattice: Lattice, labels: Labels, point: np.ndarray, rows: np.ndarray) -> Labels:
    """Return `Labels`: partial blockings extended by one more loop, with their new lattice points (block extents).

    Of two mirrored points the first is used.
    """
    mirrored = np.zeros(len(rows), bool)
    if lattice.mirror is not None:
        mirrored = lattice.mirror[point] < point
        point = np.where(mirrored, lattice.mirror[point], point)
    action = mirrored.astype(np.int32) << MIRRORED
    return replace(labels, point=point.astype(np.int32), parent=rows.astype(np.int32), action=action)


def energy_bounds(lattice: Lattice, prices: BlockPrices, labels: Labels) -> np.ndarray:
    """Return an array of lower bounds (pJ), per partial blocking, on the energy of its completions.

    An operand still needs an access to a buffer as large as its present block, and every element once from the top; or
    all accesses go to the top. A buffer that spans the next loops does not need this, but only one kind of loop is
    next.
    """
    closed, spanning = [], []
    for index in range(len(OPERANDS)):
        whole = prices.arrays[index] * prices.last[index]
        cost = prices.cheapest[index][labels.level[:, index], labels.point]
        served = labels.served[:, index]
        with np.errstate(invalid="ignore"):
            later = np.where(served > 0, served * cost, 0) + whole
        closed.append(np.minimum(served * prices.last[index], later))
        spanning.append(np.where(labels.closed[:, index], closed[-1], whole))
    best = np.full(len(labels), inf)
    for grown, following in lattice.growths:
        rest = sum(
            closed[index] if indexes(operand, grown[0]) else spanning[index] for index, operand in enumerate(OPERANDS)
        )
        best = np.minimum(best, np.where(following[labels.point] >= 0, rest, inf))
    return labels.spent + best


def _cheapest_complete(
    prices: BlockPrices, trail: Trail, labels: Labels, limit: float, missed: float
) -> tuple[float, float, Path | None]:
    """Return a triple: energy, lower bound and path of the cheapest blocking; path ``None`` above ``limit``."""
    best, chosen = limit, -1
    if len(labels):
        cost = labels.spent + labels.served @ np.array(prices.last)
        winner = int(np.argmin(cost))
        if cost[winner] < best:
            best, chosen = float(cost[winner]), winner
    return (inf, missed, None) if chosen < 0 else (best, missed, trail.back(labels, chosen))


def search(
    problem: Problem,
    hierarchy: Hierarchy,
    *,
    base: Mapping[str, int] | None = None,
    pair: bool = False,
    ragged: bool = False,
    width: int = 4000,
    first: int = 12,
    within: float = 0.0,
) -> PricedBlocking:
    """Return the `PricedBlocking` (loops, block sizes, buffers) of least energy on a memory hierarchy.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    hierarchy : Hierarchy
        Memories for the buffers.
    base : mapping
        Block of the datapath: extents that it computes at once (``{"C": 16, "K": 16}``); 1 by default.
    pair : bool
        Whether the window's two loops are one loop.
    ragged : bool
        Whether blocks need not divide the layer: several times slower, and without a datapath's block much more.
    width : int
        Largest number of labels per point.
    first : int
        Largest number of labels per point in a first, rough search, which gives the energy to beat.
    within : float
        Relative improvement that is not worth a further search (0.01: 1 %).

    Raises
    ------
    PlanError
        If the hierarchy can't hold a single block of the datapath.
    ConfigError
        If a size is not a multiple of the datapath's.
    """
    if isinstance(hierarchy, CoDesign) and hierarchy.homed:
        options = {"base": base, "pair": pair, "ragged": ragged, "width": width, "first": first}
        choices = [replace(hierarchy, homed=False, homes=homes) for homes in _home_sets(problem, hierarchy.limit)]
        blockings = [search(problem, choice, **options) for choice in choices]
        least = min(blockings, key=lambda blocking: blocking.energy)
        return replace(least, bound=min(blocking.bound for blocking in blockings))
    lattice = Lattice(problem, {**dict.fromkeys(DIMS, 1), **(base or {})}, pair)
    blocking = _search_blocking(lattice, hierarchy, first, width, within)
    if blocking is None:
        raise PlanError(f"{problem.name}: no blocking of it fits the memories")
    return _ragged_blocking(lattice, hierarchy, blocking, first, width, within) if ragged else blocking


def _search_blocking(
    lattice: Lattice, hierarchy: Hierarchy, first: int, width: int, within: float, below: float = inf
) -> PricedBlocking | None:
    """Return the `PricedBlocking` of least energy on a hierarchy; ``None`` if none has less than ``below`` pJ."""
    floor, limited = 0.0, frozenset[str]()
    while True:
        blocking = _refined_blocking(lattice, BlockPrices(hierarchy, lattice, limited), first, width, within, below)
        if blocking is None:
            return None
        # a blocking that exceeds a limit still gives a lower bound of the energy
        floor = max(floor, blocking.bound)
        if not (exceeded := _exceeded_limits(hierarchy, blocking)):
            return replace(blocking, bound=floor)
        limited |= exceeded


def _ragged_blocking(
    lattice: Lattice, hierarchy: Hierarchy, whole: PricedBlocking, first: int, width: int, within: float
) -> PricedBlocking:
    """Return the `PricedBlocking` of least energy with any block sizes, given the best one whose sizes divide."""
    fewest = _search_blocking(replace(lattice, ragged=True, optimistic=True), hierarchy, first, width, within)
    bound = 0.0 if fewest is None else fewest.bound
    best = whole if fewest is None or whole.energy <= fewest.energy * (1 + EXACT) else fewest
    best = replace(best, bound=min(best.energy, bound))
    if best.gap > max(within, 2 * EXACT):
        below = best.energy * (1 - EXACT)
        better = _search_blocking(replace(lattice, ragged=True), hierarchy, first, width, within, below)
        best = best if better is None else replace(better, bound=min(better.energy, bound))
    return best


def _home_sets(problem: Problem, limit: int) -> list[tuple[str, ...]]:
    """Return a list of all sets of operands (input, weights, output) whose whole arrays fit on chip together."""
    sets = [chosen for size in range(len(OPERANDS) + 1) for chosen in combinations(OPERANDS, size)]
    return [
        chosen
        for chosen in sets
        if all(problem.home(operand) for operand in chosen)
        and sum(problem.home(operand) for operand in chosen) * energy.WORD_BYTES <= limit
    ]


def _exceeded_limits(hierarchy: Hierarchy, blocking: PricedBlocking) -> frozenset[str]:
    """Return a set of names of the limits of co-designed memories (``levels``, ``room``) that a blocking exceeds."""
    if not isinstance(hierarchy, CoDesign):
        return frozenset()
    counts = [sum(buffer.operand == operand for buffer in blocking.buffers) for operand in OPERANDS]
    beyond = {
        "levels": max(counts) > hierarchy.levels,
        "room": blocking.on_chip + blocking.whole_array_bytes > hierarchy.limit,
    }
    return frozenset(name for name, exceeded in beyond.items() if exceeded)


def _refined_blocking(
    lattice: Lattice, prices: BlockPrices, first: int, width: int, within: float, below: float
) -> PricedBlocking | None:
    """Return a `PricedBlocking` from a rough, then maybe a thorough search; ``None`` if none has under ``below`` pJ."""
    best, bound, path = cheapest_path(lattice, prices, first, below)
    if bound < min(best, below) * (1 - within):
        limit = min(best, below) * (1 - within)
        energy_found, missed, better = cheapest_path(lattice, prices, width, limit)
        bound = min(energy_found, missed, limit)
        if energy_found < best:
            best, path = energy_found, better
    return None if path is None else _blocking_of_path(lattice, prices, path, best, min(best, bound))


def _blocking_of_path(lattice: Lattice, prices: BlockPrices, path: Path, best: float, bound: float) -> PricedBlocking:
    loops = [BlockedLoop(dim, lattice.base[dim]) for dim in DIMS if lattice.base[dim] > 1]
    inside = len(loops)
    placed: list[tuple[str, int, int]] = []
    mirrored = False
    for (here, _), (target, action) in pairwise(path):
        before = lattice.extents(here, mirrored)
        mirrored ^= bool(action >> MIRRORED)
        after = lattice.extents(target, mirrored)
        action &= (1 << MIRRORED) - 1
        grown = [dim for dim in DIMS if before[dim] != after[dim]]
        if not action and len(grown) == 1 and len(loops) > inside and loops[-1].dim == grown[0]:
            loops.pop()  # two steps of one dimension with nothing between them are one loop
        for index, operand in enumerate(OPERANDS):
            level = action >> (8 * index) & 255
            if level:
                taken = sum(name == operand for name, _, _ in placed)
                placed.append((operand, len(loops), taken if isinstance(prices.hierarchy, CoDesign) else level - 1))
        loops += [BlockedLoop(dim, after[dim]) for dim in grown]
    nest = Nest(lattice.problem, tuple(loops))
    buffers = []
    for operand, position, level in placed:
        words = count.capacity(nest.problem, operand, nest.tile(position))
        memory = prices.hierarchy.memory(operand, level, energy.WORD_BYTES * words)
        buffers.append((operand, position, memory.name, memory.energy))
    tops = dict(zip(OPERANDS, prices.last, strict=True))
    blocking = evaluate(nest, buffers, inside=inside, tops=tops, bound=bound)
    if isinstance(prices.hierarchy, CoDesign):
        blocking = replace(blocking, homes=prices.hierarchy.homes)
    # The search's result is checked against the exact energy. A search that assumes the fewest fetches gives a lower
    # bound, one that assumes all fetches an upper bound. If all blocks divide the layer, both are equal.
    is_lower, is_upper = lattice.optimistic or not lattice.ragged, not lattice.optimistic
    if (is_lower and blocking.energy < best * (1 - EXACT)) or (is_upper and blocking.energy > best * (1 + EXACT)):
        raise AssertionError(f"{nest}: found {best}, counted {blocking.energy}")
    return blocking
