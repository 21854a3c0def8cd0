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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

from hwgen.blocking import count, energy
from hwgen.blocking.energy import CoDesign, Hierarchy
from hwgen.blocking.lattice import EXACT, MIRRORED, Lattice
from hwgen.blocking.nest import BlockedLoop, Nest
from hwgen.blocking.paths import Path, cheapest_path
from hwgen.blocking.priced import PricedBlocking, evaluate
from hwgen.blocking.prices import BlockPrices
from hwgen.blocking.problem import DIMS, OPERANDS, Problem
from hwgen.errors import PlanError


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
        choices = [replace(hierarchy, homed=False, homes=homes) for homes in _homes(problem, hierarchy.limit)]
        blockings = [search(problem, choice, **options) for choice in choices]
        least = min(blockings, key=lambda blocking: blocking.energy)
        return replace(least, bound=min(blocking.bound for blocking in blockings))
    lattice = Lattice(problem, {**dict.fromkeys(DIMS, 1), **(base or {})}, pair)
    blocking = _search_blocking(lattice, hierarchy, first, width, within)
    if blocking is None:
        raise PlanError(f"{problem.name}: no blocking of it fits the memories")
    return _ragged(lattice, hierarchy, blocking, first, width, within) if ragged else blocking


def _search_blocking(
    lattice: Lattice, hierarchy: Hierarchy, first: int, width: int, within: float, below: float = inf
) -> PricedBlocking | None:
    """Return the `PricedBlocking` of least energy below ``below`` (pJ) on a hierarchy; ``None`` if none."""
    floor, limited = 0.0, frozenset[str]()
    while True:
        blocking = _refined(lattice, BlockPrices(hierarchy, lattice, limited), first, width, within, below)
        if blocking is None:
            return None
        # a blocking that exceeds a limit still gives a lower bound of the energy
        floor = max(floor, blocking.bound)
        if not (exceeded := _exceeded(hierarchy, blocking)):
            return replace(blocking, bound=floor)
        limited |= exceeded


def _ragged(
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


def _homes(problem: Problem, limit: int) -> list[tuple[str, ...]]:
    """Return a list of all sets of operands (input, weights, output) whose whole arrays fit on chip together."""
    sets = [chosen for size in range(len(OPERANDS) + 1) for chosen in combinations(OPERANDS, size)]
    return [
        chosen
        for chosen in sets
        if all(problem.home(operand) for operand in chosen)
        and sum(problem.home(operand) for operand in chosen) * energy.WORD_BYTES <= limit
    ]


def _exceeded(hierarchy: Hierarchy, blocking: PricedBlocking) -> frozenset[str]:
    """Return a set of names of the limits of co-designed memories (``levels``, ``room``) that a blocking exceeds."""
    if not isinstance(hierarchy, CoDesign):
        return frozenset()
    counts = [sum(buffer.operand == operand for buffer in blocking.buffers) for operand in OPERANDS]
    beyond = {
        "levels": max(counts) > hierarchy.levels,
        "room": blocking.on_chip + blocking.whole_array_bytes > hierarchy.limit,
    }
    return frozenset(name for name, exceeded in beyond.items() if exceeded)


def _refined(
    lattice: Lattice, prices: BlockPrices, first: int, width: int, within: float, below: float
) -> PricedBlocking | None:
    """Return a `PricedBlocking` below ``below`` (pJ) from a rough, then maybe a thorough search, or ``None``."""
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
