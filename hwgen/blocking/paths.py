"""The cheapest path through the lattice of extents, by dynamic programming.

Labels grow loop by loop. One is dropped if another beats it, or if its bound is no better than the best known energy.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from hwgen.blocking.hierarchy import Shared
from hwgen.blocking.labels import Labels, Path, Trail, unbeaten
from hwgen.blocking.lattice import MIRRORED, Lattice
from hwgen.blocking.prices import Prices
from hwgen.blocking.problem import OPERANDS, indexes

__all__ = ["at_end", "cheapest_path", "expand", "least_energies"]


def cheapest_path(lattice: Lattice, prices: Prices, width: int, limit: float) -> tuple[float, float, Path | None]:
    """The best energy below ``limit``, a bound on what was dropped for ``width``, and the path to the best."""
    served = lattice.taken[None, :].copy()
    served[0, 2] += lattice.problem.output_words  # a datapath reads zeros, too
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
    waiting = {0: [labels]}  # by rank
    missed = inf
    while (rank := min(waiting)) < lattice.ranks[-1]:
        labels = Labels.join(waiting.pop(rank))
        bounds = least_energies(lattice, prices, labels)
        labels, bounds = labels.take(alive := np.flatnonzero(bounds < limit)), bounds[alive]
        if len(labels):
            labels, dropped = unbeaten(labels, bounds, width, prices.limited)
            missed = min(missed, dropped)
            number = trail.add(labels)
            for grown, following in lattice.steps:
                for part in expand(lattice, prices, grown, following, labels):
                    part.parent += number
                    _sort_in(waiting, part, lattice.ranks[part.point])
        if not waiting:
            return inf, missed, None
    labels = Labels.join(waiting[rank])
    labels = at_end(lattice, prices, labels, trail.add(labels))
    return _finish(prices, trail, labels, limit, missed)


def _sort_in(waiting: dict[int, list[Labels]], labels: Labels, ranks: np.ndarray) -> None:
    """Put each label to those of its rank."""
    for rank in np.unique(ranks).tolist():
        same = ranks == rank
        waiting.setdefault(rank, []).append(labels if same.all() else labels.take(np.flatnonzero(same)))


def expand(
    lattice: Lattice, prices: Prices, grown: tuple[str, ...], following: np.ndarray, labels: Labels
) -> list[Labels]:
    """All labels that a loop makes of ``labels``: with or without a buffer inside it, for each operand.

    Windows overlap, so inputs may have one anywhere. One of outputs at the datapath saves reading zeros. Where blocks
    may stay at an edge, any buffer may be good for something.
    """
    there = following[labels.point]
    rows = np.flatnonzero(there >= 0)
    if not len(rows):
        return []
    here = labels.point[rows]
    labels = _moved(lattice, labels.take(rows), there[rows], rows)
    for index, operand in enumerate(OPERANDS):
        spans = not indexes(operand, grown[0])
        at_datapath = not here.any()  # all points of a rank; the first one is alone in its
        useless = operand == "weights" or (operand == "output" and not at_datapath)
        if not spans and useless and not lattice.least:
            labels.closed[:, index] = True
            continue
        fill = lattice.fill[index][labels.point if spans else here]
        closed = labels.closed[:, index].copy()
        useful = closed & (labels.served[:, index] > fill)
        if spans:
            labels.served[:, index] = np.where(closed, labels.served[:, index], fill)
        else:
            labels.closed[:, index] = True
        labels, here = _placed(lattice, prices, labels, here, index, useful, fill, spans)
    return [labels]


def at_end(lattice: Lattice, prices: Prices, labels: Labels, first: int) -> Labels:
    """``labels``, ``first`` of the trail, with or without a buffer of each whole array."""
    labels = labels.take(np.arange(len(labels)))
    labels.parent[:] = first + np.arange(len(labels))
    labels.action[:] = 0
    here = labels.point
    for index in range(len(OPERANDS)):
        fill = lattice.fill[index][here]
        useful = labels.closed[:, index] & (labels.served[:, index] > fill)
        labels, here = _placed(lattice, prices, labels, here, index, useful, fill, False)
    return labels


def _placed(
    lattice: Lattice,
    prices: Prices,
    labels: Labels,
    here: np.ndarray,
    index: int,
    useful: np.ndarray,
    fill: np.ndarray,
    spans: bool,
) -> tuple[Labels, np.ndarray]:
    """``labels`` and their points, and those with a buffer of one operand at ``here`` where that is ``useful``.

    It takes in ``fill`` words, and spans the loop that comes, or not.
    """
    room = lattice.room[index][here].astype(float)
    parts, places = [labels], [here]
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
        parts.append(placed)
        places.append(here[chosen])
    return Labels.join(parts), np.concatenate(places)


def _moved(lattice: Lattice, labels: Labels, point: np.ndarray, rows: np.ndarray) -> Labels:
    """``labels``, which come from ``rows``, at their next points: of two mirror images the first one."""
    mirrored = np.zeros(len(rows), bool)
    if lattice.mirror is not None:
        mirrored = lattice.mirror[point] < point
        point = np.where(mirrored, lattice.mirror[point], point)
    action = mirrored.astype(np.int32) << MIRRORED
    return replace(labels, point=point.astype(np.int32), parent=rows.astype(np.int32), action=action)


def least_energies(lattice: Lattice, prices: Prices, labels: Labels) -> np.ndarray:
    """What each label costs in the end at least.

    An operand still takes an access to a buffer as large as its block is now, and every element once from the top; or
    all accesses go there. A buffer that spans the loops that come may do without, but only one kind of loop comes next.
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
    for grown, following in lattice.steps:
        rest = sum(
            closed[index] if indexes(operand, grown[0]) else spanning[index] for index, operand in enumerate(OPERANDS)
        )
        best = np.minimum(best, np.where(following[labels.point] >= 0, rest, inf))
    return labels.spent + best


def _finish(
    prices: Prices, trail: Trail, labels: Labels, limit: float, missed: float
) -> tuple[float, float, Path | None]:
    """The cheapest label of the whole layer."""
    best, chosen = limit, -1
    if len(labels):
        cost = labels.spent + labels.served @ np.array(prices.last)
        place = int(np.argmin(cost))
        if cost[place] < best:
            best, chosen = float(cost[place]), place
    return (inf, missed, None) if chosen < 0 else (best, missed, trail.back(labels, chosen))
