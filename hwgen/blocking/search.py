"""The best blocking of a layer for a memory hierarchy, over all orders and all blocks that divide, or also others.

**The space.** A nest grows from the datapath's block to the whole layer, one loop at a time: a path through the lattice
of extents. Any order and any number of loops a dimension is such a path. Beside it, each operand has buffers: a loop
that doesn't index an operand is a reason for a buffer inside it (Yang, section 3.2), inputs may have one at any
place, because windows overlap, and any array may lie in one as a whole. What a buffer fetches depends on the extents
where it is placed and where the loops that it spans end, and on nothing in between; so does its price.

**The search** keeps, for each point of the lattice, all ways to get there (labels) that no other way beats in energy so
far, in the accesses that each operand still has to serve, in levels and in room used: dynamic programming with
dominance, exact. A label that can't beat the best blocking known is dropped: what each operand still costs at least is
the access to a buffer as large as its block is now, and every element once from the top. With more labels at a point
than ``width`` the worst are dropped, and the smallest of their bounds is what the result states as `Found.bound`: no
blocking of this space is better.

Blocks divide the layer's extents; sizes may be rounded up before (`Problem.padded`). With ``ragged``, blocks of rows,
columns and channels may also have the smallest size for any number of blocks; each holds whole inner ones, save at the
layer's edge. A block at the edge that holds but one inner one lets it stay where others are fetched again. How often
depends on the way, so the search takes it as always (`Lattice.least`), which gives the bound, and as never for what
may be better than the first one found. Results are counted anew, by `hwgen.blocking.count`, and must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

from hwgen.blocking import count, energy
from hwgen.blocking.hierarchy import CoDesign, Hierarchy, Shared
from hwgen.blocking.labels import Path
from hwgen.blocking.lattice import EXACT, MIRRORED, Lattice
from hwgen.blocking.nest import Loop, Nest
from hwgen.blocking.paths import cheapest_path
from hwgen.blocking.priced import Found, evaluate
from hwgen.blocking.prices import Prices
from hwgen.blocking.problem import DIMS, OPERANDS, Problem
from hwgen.errors import PlanError

__all__ = ["search"]


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
) -> Found:
    """The blocking of ``problem`` with the least memory energy.

    Parameters
    ----------
    base : mapping
        The datapath's block: extents that it computes at once (``{"C": 16, "K": 16}``); 1 where nothing is said.
    pair : bool
        Walk the window's two loops as one.
    ragged : bool
        Try blocks that don't divide, too: several times slower, and without a datapath's block much more.
    width : int
        Most labels at a point.
    first : int
        Most labels in a first, rough search, which gives the energy to be beaten.
    within : float
        Don't look for what is better by no more than this part (0.01: 1 %).

    Raises
    ------
    PlanError
        If the hierarchy can't hold a single block of the datapath.
    ConfigError
        If a size is not a multiple of the datapath's.
    """
    if isinstance(hierarchy, CoDesign) and hierarchy.homed:
        each = [
            search(
                problem,
                replace(hierarchy, homed=False, homes=homes),
                base=base,
                pair=pair,
                ragged=ragged,
                width=width,
                first=first,
            )
            for homes in _homes(problem, hierarchy.limit)
        ]
        return replace(min(each, key=lambda found: found.energy), bound=min(found.bound for found in each))
    lattice = Lattice(problem, {**dict.fromkeys(DIMS, 1), **(base or {})}, pair)
    found = _best(lattice, hierarchy, first, width, within)
    if found is None:
        raise PlanError(f"{problem.name}: no blocking of it fits the memories")
    return _ragged(lattice, hierarchy, found, first, width, within) if ragged else found


def _best(
    lattice: Lattice, hierarchy: Hierarchy, first: int, width: int, within: float, below: float = inf
) -> Found | None:
    """The best blocking of less energy than ``below``."""
    floor, limited = 0.0, frozenset[str]()
    while True:
        found = _refined(lattice, Prices(hierarchy, lattice, limited), first, width, within, below)
        if found is None:
            return None
        # what comes out beyond a limit that was left out is a bound still
        floor = max(floor, found.bound)
        if not (exceeded := _exceeded(hierarchy, found)):
            return replace(found, bound=floor)
        limited |= exceeded


def _ragged(lattice: Lattice, hierarchy: Hierarchy, whole: Found, first: int, width: int, within: float) -> Found:
    """What blocks that don't divide can better in ``whole``, the best of those that do."""
    fewest = _best(replace(lattice, ragged=True, least=True), hierarchy, first, width, within)
    bound = 0.0 if fewest is None else fewest.bound
    best = whole if fewest is None or whole.energy <= fewest.energy * (1 + EXACT) else fewest
    best = replace(best, bound=min(best.energy, bound))
    if best.gap > max(within, 2 * EXACT):
        below = best.energy * (1 - EXACT)
        better = _best(replace(lattice, ragged=True), hierarchy, first, width, within, below)
        best = best if better is None else replace(better, bound=min(better.energy, bound))
    return best


def _homes(problem: Problem, limit: int) -> list[tuple[str, ...]]:
    """All sets of arrays that fit on chip together."""
    sets = [chosen for number in range(len(OPERANDS) + 1) for chosen in combinations(OPERANDS, number)]
    return [
        chosen
        for chosen in sets
        if all(problem.home(operand) for operand in chosen)
        and sum(problem.home(operand) for operand in chosen) * energy.WORD_BYTES <= limit
    ]


def _exceeded(hierarchy: Hierarchy, found: Found) -> frozenset[str]:
    """Limits of co-designed memories that a blocking found without them is beyond."""
    if not isinstance(hierarchy, CoDesign):
        return frozenset()
    counts = [sum(buffer.operand == operand for buffer in found.buffers) for operand in OPERANDS]
    beyond = {"levels": max(counts) > hierarchy.levels, "room": found.on_chip + found.at_home > hierarchy.limit}
    return frozenset(name for name, exceeded in beyond.items() if exceeded)


def _refined(lattice: Lattice, prices: Prices, first: int, width: int, within: float, below: float) -> Found | None:
    """A rough search for less than ``below``, then a thorough one for what beats it."""
    best, bound, path = cheapest_path(lattice, prices, first, below)
    if bound < min(best, below) * (1 - within):
        limit = min(best, below) * (1 - within)
        found, missed, better = cheapest_path(lattice, prices, width, limit)
        bound = min(found, missed, limit)
        if found < best:
            best, path = found, better
    return None if path is None else _found(lattice, prices, path, best, min(best, bound))


def _found(lattice: Lattice, prices: Prices, path: Path, best: float, bound: float) -> Found:
    loops = [Loop(dim, lattice.base[dim]) for dim in DIMS if lattice.base[dim] > 1]
    inside = len(loops)
    placed: list[tuple[str, int, int]] = []
    mirrored = False
    for (here, _), (there, action) in pairwise(path):
        before = lattice.extents(lattice.mirror[here] if mirrored and lattice.mirror is not None else here)
        mirrored ^= bool(action >> MIRRORED)
        after = lattice.extents(lattice.mirror[there] if mirrored and lattice.mirror is not None else there)
        action &= (1 << MIRRORED) - 1
        grown = [dim for dim in DIMS if before[dim] != after[dim]]
        if not action and len(grown) == 1 and len(loops) > inside and loops[-1].dim == grown[0]:
            loops.pop()  # two steps of one dimension with nothing between them are one loop
        for index, operand in enumerate(OPERANDS):
            level = action >> (8 * index) & 255
            if level:
                taken = sum(name == operand for name, _, _ in placed)
                placed.append((operand, len(loops), taken if isinstance(prices.hierarchy, CoDesign) else level - 1))
        loops += [Loop(dim, after[dim]) for dim in grown]
    nest = Nest(lattice.problem, tuple(loops))
    buffers = [
        (
            operand,
            position,
            *_memory(prices, operand, level, count.capacity(nest.problem, operand, nest.tile(position))),
        )
        for operand, position, level in placed
    ]
    tops = dict(zip(OPERANDS, prices.last, strict=True))
    found = evaluate(nest, buffers, inside=inside, tops=tops, bound=bound)
    if isinstance(prices.hierarchy, CoDesign):
        found = replace(found, homes=prices.hierarchy.homes)
    # At least that much with the fewest fetches that may be, at most with all of them; exactly where blocks divide.
    least, most = lattice.least or not lattice.ragged, not lattice.least
    if (least and found.energy < best * (1 - EXACT)) or (most and found.energy > best * (1 + EXACT)):
        raise AssertionError(f"{nest}: found {best}, counted {found.energy}")
    return found


def _memory(prices: Prices, operand: str, level: int, words: int) -> tuple[str, float]:
    hierarchy = prices.hierarchy
    if isinstance(hierarchy, CoDesign):
        size = words * energy.WORD_BYTES
        return f"{operand}{level}", energy.access(size, hierarchy.widths[operand])
    memories = hierarchy.memories if isinstance(hierarchy, Shared) else hierarchy.memories[operand]
    return memories[level].name, memories[level].energy
