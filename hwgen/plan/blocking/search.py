"""The best blocking of a layer for a memory hierarchy, over all orders and all blocks that divide.

**The space.** A nest grows from the datapath's block to the whole layer, one loop at a time: a path through the lattice of
extents. Any order and any number of loops a dimension is such a path. Beside it, each operand has buffers: a loop that doesn't
index an operand is a reason for a buffer inside it (Yang, section 3.2), and inputs may have one at any place, because windows
overlap. What a buffer fetches depends on the extents where it is placed and where the loops that it spans end, and on nothing
in between; so does its price.

**The search** keeps, for each point of the lattice, all ways to get there (labels) that no other way beats in energy so far, in
the accesses that each operand still has to serve, in levels and in room used: dynamic programming with dominance, exact. A
label that can't beat the best blocking known is dropped: what each operand still costs at least is the access to a buffer as
large as its block is now, and every element once from the top. With more labels at a point than ``width`` the worst are
dropped, and the smallest of their bounds is what the result states as `Found.bound`: no blocking of this space is better.

Blocks divide the layer's extents; sizes may be rounded up before (`Problem.padded`). Results are counted anew, by
`hwgen.plan.blocking.count`, and must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf, prod

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.plan.blocking import count, energy
from hwgen.plan.blocking.nest import Loop, Nest
from hwgen.plan.blocking.problem import DIMS, OPERANDS, Problem, indexes
from hwgen.plan.blocking.tiling import Tiling, divisors

__all__ = ["Buffer", "CoDesign", "Found", "Memory", "Private", "Shared", "datapath_accesses", "evaluate", "search"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A memory of the hierarchy: its size in bytes, and what a word's access costs."""

    name: str
    size: int
    energy: float


@dataclass(frozen=True, kw_only=True)
class Private:
    """Memories that each operand has to itself, small to large."""

    memories: Mapping[str, Sequence[Memory]]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Memories that all operands share, small to large. Buffers are packed from the inside out."""

    memories: Sequence[Memory]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class CoDesign:
    """Memories made to measure: every buffer its own, all together at most ``limit`` bytes.

    Parameters
    ----------
    limit : int
        Bytes on chip.
    levels : int
        Most buffers of an operand.
    widths : mapping
        Word length of each operand's memories, in bits.
    homed : bool
        Whether an operand's whole array may live on chip, and never be in DRAM.
    """

    limit: int
    levels: int = 4
    widths: Mapping[str, int]
    homed: bool = False
    top: float = energy.DRAM


Hierarchy = Private | Shared | CoDesign


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A buffer of a found blocking.

    Parameters
    ----------
    operand : str
    position : int
        In the nest.
    words : int
        What it must hold.
    memory : str
        Where it lies.
    energy : float
        pJ an access.
    accesses : int
        By the buffer inside it, or by the datapath.
    """

    operand: str
    position: int
    words: int
    memory: str
    energy: float
    accesses: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """A blocking and its energy.

    Parameters
    ----------
    buffers : tuple of Buffer
        By operand, inner to outer.
    top : dict
        Accesses of each operand to DRAM.
    energy : float
        pJ of all memory accesses.
    bound : float
        No blocking in the search's space takes less.
    """

    nest: Nest
    buffers: tuple[Buffer, ...]
    top: dict[str, int]
    energy: float
    bound: float

    @property
    def per_mac(self) -> float:
        return self.energy / self.nest.problem.macs

    @property
    def gap(self) -> float:
        """By what part of it the best blocking may at most be better."""
        return max(0.0, 1 - self.bound / self.energy)

    @property
    def on_chip(self) -> int:
        """Bytes of all buffers."""
        return energy.WORD_BYTES * sum(buffer.words for buffer in self.buffers)


def datapath_accesses(nest: Nest, position: int) -> dict[str, int]:
    """Words that a datapath takes which computes the loops inside ``position`` at once; outputs both ways."""
    words = {operand: count.loads(nest, operand, position, scope=0) for operand in OPERANDS}
    return {**words, "output": 2 * words["output"]}


@dataclass(frozen=True)
class _Lattice:
    """Extents that divide a problem's, and what operands take and fetch there."""

    problem: Problem
    base: Mapping[str, int]
    pair: bool

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        sizes = {}
        for dim in DIMS:
            size, start = self.problem.size(dim), self.base[dim]
            if size % start:
                raise ConfigError(f"{self.problem.name}: {dim}={size} must be a multiple of the datapath's {start}")
            sizes[dim] = [start * factor for factor in divisors(size // start)]
            if self.pair and dim in ("Fw", "Fh"):
                sizes[dim] = sorted({start, size})
        return sizes

    @cached_property
    def tiling(self) -> Tiling:
        return Tiling(self.problem, self.sizes)

    @cached_property
    def room(self) -> list[np.ndarray]:
        return [np.broadcast_to(self.tiling.room(operand), self.tiling.shape) for operand in OPERANDS]

    @cached_property
    def fill(self) -> list[np.ndarray]:
        """Words that a buffer takes in, and outputs give back, if loops that don't index it end at these extents."""
        fills = []
        for operand in OPERANDS:
            words = self.tiling.once(operand)
            for dim in DIMS:
                if not indexes(operand, dim):
                    words = words * self.tiling.blocks[dim]
            if operand == "output":
                words = 2 * words - self.problem.output_words
            fills.append(np.broadcast_to(words.astype(float), self.tiling.shape))
        return fills

    def points(self) -> list[tuple[int, ...]]:
        """All extents, as indices into `sizes`, every one behind those inside it."""
        every = product(*(range(len(self.sizes[dim])) for dim in DIMS))
        if self.pair:
            places = [DIMS.index(dim) for dim in ("Fw", "Fh")]
            ends = [len(self.sizes[DIMS[place]]) - 1 for place in places]
            # the window goes as one: both of its sides are whole, or none is
            every = (
                point
                for point in every
                if len({point[place] == end for place, end in zip(places, ends, strict=True) if end}) < 2
            )
        return sorted(every, key=lambda point: prod(self.extent(point, axis) for axis in range(len(DIMS))))

    def extent(self, point: tuple[int, ...], axis: int) -> int:
        return self.sizes[DIMS[axis]][point[axis]]

    def steps(self, point: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
        """The next points, one prime factor of one dimension further, and the dimensions that grow."""
        found = []
        for axis, dim in enumerate(DIMS):
            if self.pair and dim in ("Fw", "Fh"):
                continue
            here = self.extent(point, axis)
            for place in range(point[axis] + 1, len(self.sizes[dim])):
                factor, rest = divmod(self.sizes[dim][place], here)
                if rest == 0 and all(factor % smaller for smaller in range(2, factor)):
                    found.append(((*point[:axis], place, *point[axis + 1 :]), (dim,)))
        if self.pair:
            whole = list(point)
            for dim in ("Fw", "Fh"):
                whole[DIMS.index(dim)] = len(self.sizes[dim]) - 1
            if tuple(whole) != point:
                grown = tuple(dim for axis, dim in enumerate(DIMS) if whole[axis] != point[axis])
                found.append((tuple(whole), grown))
        return found


class _Prices:
    """Where a buffer may lie, and what that costs, for one hierarchy."""

    def __init__(self, hierarchy: Hierarchy, lattice: _Lattice) -> None:
        self.hierarchy = hierarchy
        self.lattice = lattice
        self.top = hierarchy.top
        self.resources = 0
        self.limits = np.zeros(0)
        if isinstance(hierarchy, CoDesign):
            self.resources, self.limits = 1, np.array([hierarchy.limit / energy.WORD_BYTES])
        elif isinstance(hierarchy, Shared):
            self.resources = len(hierarchy.memories)
            self.limits = np.array([memory.size / energy.WORD_BYTES for memory in hierarchy.memories])
        self.arrays = [float(fill[-1, -1, -1, -1, -1, -1]) for fill in lattice.fill]
        whole = [int(room[-1, -1, -1, -1, -1, -1]) for room in lattice.room]
        self.whole = whole
        self.table = [
            self._table(operand, lattice.room[index].ravel()).reshape((-1, *lattice.tiling.shape))
            for index, operand in enumerate(OPERANDS)
        ]
        self.home = [inf] * len(OPERANDS)
        if isinstance(hierarchy, CoDesign) and hierarchy.homed:
            for index, operand in enumerate(OPERANDS):
                size = whole[index] * energy.WORD_BYTES
                if 0 < size <= hierarchy.limit:
                    self.home[index] = energy.access(size, hierarchy.widths[operand])
        self.last = [min(self.top, home) for home in self.home]

    def _table(self, operand: str, rooms: np.ndarray) -> np.ndarray:
        """pJ an access by level and room; infinite where it doesn't fit."""
        hierarchy = self.hierarchy
        if isinstance(hierarchy, CoDesign):
            sizes = np.maximum(rooms, 1) * energy.WORD_BYTES
            cost = energy.accesses(sizes.astype(float), hierarchy.widths[operand])
            cost = np.where(sizes > hierarchy.limit, inf, cost)
            return np.broadcast_to(cost, (hierarchy.levels, rooms.size)).copy()
        memories = hierarchy.memories if isinstance(hierarchy, Shared) else hierarchy.memories[operand]
        fits = [rooms * energy.WORD_BYTES <= memory.size for memory in memories]
        return np.array(
            [np.where(fit, memory.energy, inf) for fit, memory in zip(fits, memories, strict=True)]
        ).reshape(len(memories), rooms.size)

    @cached_property
    def cheapest(self) -> list[np.ndarray]:
        """The least pJ an access of a buffer at each level or further out, with no level left: infinite."""
        result = []
        for table in self.table:
            least = np.minimum.accumulate(table[::-1], axis=0)[::-1]
            result.append(np.concatenate([least, np.full((1, *table.shape[1:]), inf)]))
        return result

    def options(self, operand: int, point: tuple[int, ...]) -> list[tuple[int, float, int | None]]:
        """Levels where a buffer at ``point`` may lie, with pJ an access and the resource that it takes."""
        table = self.table[operand][(slice(None), *point)]
        shared = isinstance(self.hierarchy, Shared)
        resource = [level if shared else 0 for level in range(len(table))]
        return [
            (level, float(cost), resource[level] if self.resources else None)
            for level, cost in enumerate(table)
            if cost < inf
        ]


# Columns of a label: energy so far; accesses that each operand still has to serve; whether its last buffer is closed (1) or
# still spans the loops that come (0); the next level that it may use; room used in each resource.
_E, _A, _C, _L, _U = 0, 1, 4, 7, 10


def search(
    problem: Problem,
    hierarchy: Hierarchy,
    *,
    base: Mapping[str, int] | None = None,
    pair: bool = False,
    width: int = 4000,
    first: int = 24,
    within: float = 0.0,
) -> Found:
    """The blocking of ``problem`` with the least memory energy.

    Parameters
    ----------
    base : mapping
        The datapath's block: extents that it computes at once (``{"C": 16, "K": 16}``); 1 where nothing is said.
    pair : bool
        Walk the window's two loops as one.
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
    lattice = _Lattice(problem, {**dict.fromkeys(DIMS, 1), **(base or {})}, pair)
    prices = _Prices(hierarchy, lattice)
    rough = _run(lattice, prices, first, inf)
    best, bound, path = rough
    if bound < best * (1 - within):
        limit = best * (1 - within)
        found, missed, better = _run(lattice, prices, width, limit)
        bound = min(found, missed, limit)
        if found < best:
            best, path = found, better
    return _found(lattice, prices, path, best, min(best, bound))


@dataclass
class _Trail:
    """How each label came about: its parent, the point it stands at, and the buffers placed on the way there."""

    parents: list[np.ndarray]
    actions: list[np.ndarray]
    points: list[tuple[tuple[int, ...], int]]
    count: int = 0

    def add(self, point: tuple[int, ...], parents: np.ndarray, actions: np.ndarray) -> np.ndarray:
        names = np.arange(self.count, self.count + len(parents))
        self.points.append((point, self.count))
        self.parents.append(parents)
        self.actions.append(actions)
        self.count += len(parents)
        return names

    def walk(self, label: int) -> list[tuple[tuple[int, ...], int]]:
        """Points from the first to that of ``label``, each with the action of the step that led there."""
        parents, actions = np.concatenate(self.parents), np.concatenate(self.actions)
        begins = [begin for _, begin in self.points]
        trail = []
        while label >= 0:
            index = int(np.searchsorted(begins, label, side="right")) - 1
            trail.append((self.points[index][0], int(actions[label])))
            label = int(parents[label])
        return trail[::-1]


Path = tuple[list[tuple[tuple[int, ...], int]], tuple[bool, ...]]


def _run(lattice: _Lattice, prices: _Prices, width: int, limit: float) -> tuple[float, float, Path]:
    """The best energy below ``limit``, a bound on what was dropped for ``width``, and the path to the best."""
    points = lattice.points()
    start, end = points[0], points[-1]
    trail = _Trail([], [], [])
    label = np.zeros((1, _U + prices.resources))
    label[0, _A : _A + 3] = [fill[start] for fill in lattice.fill]
    label[0, _A + 2] += lattice.problem.output_words  # a datapath reads zeros, too
    label[0, _C : _C + 3] = 1
    waiting = {start: [(label, np.array([-1]), np.array([0]))]}
    missed = inf
    for point in points:
        if point not in waiting:
            continue
        parts = waiting.pop(point)
        labels, parents, actions = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        if point == end:
            return _finish(prices, trail, labels, parents, actions, limit, missed)
        bounds = _bounds(lattice, prices, point, labels)
        alive = np.flatnonzero(bounds < limit)
        alive = alive[_front(labels[alive])]
        if len(alive) > width:
            order = np.argsort(bounds[alive], kind="stable")
            missed = min(missed, float(bounds[alive[order[width]]]))
            alive = np.sort(alive[order[:width]])
        if not len(alive):
            continue
        names = trail.add(point, parents[alive], actions[alive])
        for following, grown in lattice.steps(point):
            children = _expand(lattice, prices, point, following, grown, labels[alive], names)
            waiting.setdefault(following, []).append(children)
    return inf, missed, ([], ())


def _expand(
    lattice: _Lattice,
    prices: _Prices,
    point: tuple[int, ...],
    following: tuple[int, ...],
    grown: tuple[str, ...],
    labels: np.ndarray,
    names: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All labels that a loop makes of ``labels``: with or without a buffer inside it, for each operand."""
    labels, actions = labels.copy(), np.zeros(len(labels), np.int64)
    for index, operand in enumerate(OPERANDS):
        spans = not indexes(operand, grown[0])
        if not spans and operand != "input":
            labels[:, _C + index] = 1
            continue
        fill = lattice.fill[index][following if spans else point]
        closed = labels[:, _C + index] == 1
        useful = np.flatnonzero(closed & (labels[:, _A + index] > fill))
        if spans:
            labels[~closed, _A + index] = fill
        else:
            labels[~closed, _C + index] = 1
        made = [(labels, names, actions)]
        room = float(lattice.room[index][point])
        for level, cost, resource in prices.options(index, point) if len(useful) else ():
            able = useful[labels[useful, _L + index] <= level]
            if resource is not None:
                able = able[labels[able, _U + resource] + room <= prices.limits[resource]]
            if not len(able):
                continue
            placed = labels[able]
            placed[:, _E] += placed[:, _A + index] * cost
            placed[:, _A + index] = fill
            placed[:, _C + index] = 0 if spans else 1
            placed[:, _L + index] = level + 1
            if resource is not None:
                placed[:, _U + resource] += room
            made.append((placed, names[able], actions[able] + ((level + 1) << (8 * index))))
        labels, names, actions = (np.concatenate(pieces) for pieces in zip(*made, strict=True))
    return labels, names, actions


def _bounds(lattice: _Lattice, prices: _Prices, point: tuple[int, ...], labels: np.ndarray) -> np.ndarray:
    """What each label costs in the end at least."""
    closed, spanning = [], []
    for index in range(len(OPERANDS)):
        whole = prices.arrays[index] * prices.last[index]
        levels = labels[:, _L + index].astype(np.int64)
        cost = prices.cheapest[index][(levels, *point)]
        served = labels[:, _A + index]
        later = np.where(np.isfinite(cost), served * np.where(np.isfinite(cost), cost, 0) + whole, inf)
        closed.append(np.minimum(served * prices.last[index], later))
        spanning.append(np.where(labels[:, _C + index] == 0, whole, closed[-1]))
    best = np.full(len(labels), inf)
    for dim in DIMS:
        axis = DIMS.index(dim)
        if point[axis] + 1 < len(lattice.sizes[dim]):
            rest = sum(
                closed[index] if indexes(operand, dim) else spanning[index] for index, operand in enumerate(OPERANDS)
            )
            best = np.minimum(best, rest)
    return labels[:, _E] + best


def _front(labels: np.ndarray, chunk: int = 256) -> np.ndarray:
    """Indices of the labels that no other one beats in nothing worse; of equal ones the first."""
    if len(labels) < 2:
        return np.arange(len(labels))
    varied = labels[:, np.ptp(labels, axis=0) > 0]
    if not varied.shape[1]:
        return np.arange(1)
    order = np.lexsort(varied.T[::-1])
    varied = varied[order]
    kept = np.zeros(0, np.int64)
    for begin in range(0, len(varied), chunk):
        rows = np.arange(begin, min(begin + chunk, len(varied)))
        rows = rows[~_beaten(varied[rows], varied[kept])]
        inside = varied[rows]
        beaten = (inside[None, :, :] <= inside[:, None, :]).all(axis=2)
        beaten &= np.tri(len(rows), k=-1, dtype=bool)
        # a label that is itself beaten still beats what it beats: whatever beats it does so, too
        kept = np.concatenate([kept, rows[~beaten.any(axis=1)]])
    return np.sort(order[kept])


def _beaten(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Whether some label of ``kept`` is nowhere above each of ``rows``."""
    result = np.zeros(len(rows), bool)
    for begin in range(0, len(kept), 1024):
        some = kept[begin : begin + 1024]
        left = np.flatnonzero(~result)
        result[left] = (some[None, :, :] <= rows[left][:, None, :]).all(axis=2).any(axis=1)
    return result


def _finish(
    prices: _Prices,
    trail: _Trail,
    labels: np.ndarray,
    parents: np.ndarray,
    actions: np.ndarray,
    limit: float,
    missed: float,
) -> tuple[float, float, Path]:
    """The cheapest label of the whole layer, each operand's array in DRAM or at home on chip."""
    best, chosen, homes = limit, -1, (False,) * len(OPERANDS)
    for choice in product((False, True), repeat=len(OPERANDS)):
        if any(home and prices.home[index] == inf for index, home in enumerate(choice)):
            continue
        cost, room = labels[:, _E].copy(), 0.0
        for index, home in enumerate(choice):
            cost += labels[:, _A + index] * (prices.home[index] if home else prices.top)
            room += prices.whole[index] if home else 0
        if any(choice):
            cost[labels[:, _U] + room > prices.limits[0]] = inf
        place = int(np.argmin(cost))
        if cost[place] < best:
            best, chosen, homes = float(cost[place]), place, choice
    if chosen < 0:
        return inf, missed, ([], ())
    end = tuple(len(prices.lattice.sizes[dim]) - 1 for dim in DIMS)
    name = trail.add(end, parents[chosen : chosen + 1], actions[chosen : chosen + 1])
    return best, missed, (trail.walk(int(name[0])), homes)


def _found(lattice: _Lattice, prices: _Prices, path: Path, best: float, bound: float) -> Found:
    points, homes = path
    if not points:
        raise PlanError(f"{lattice.problem.name}: no blocking of it fits the memories")
    loops = [Loop(dim, lattice.base[dim]) for dim in DIMS if lattice.base[dim] > 1]
    inside = len(loops)
    placed: list[tuple[str, int, int]] = []
    for (here, _), (there, action) in zip(points, points[1:], strict=False):
        grown = [dim for axis, dim in enumerate(DIMS) if here[axis] != there[axis]]
        if not action and len(grown) == 1 and len(loops) > inside and loops[-1].dim == grown[0]:
            loops.pop()  # two steps of one dimension with nothing between them are one loop
        for index, operand in enumerate(OPERANDS):
            level = action >> (8 * index) & 255
            if level:
                placed.append((operand, len(loops), level - 1))
        loops += [Loop(dim, lattice.sizes[dim][there[DIMS.index(dim)]]) for dim in grown]
    nest = Nest(lattice.problem, tuple(loops))
    buffers = [
        (operand, position, *_memory(prices, operand, level, count.capacity(nest.problem, operand, nest.tile(position))))
        for operand, position, level in placed
    ]
    tops = {
        operand: prices.home[index] if homes[index] else prices.top for index, operand in enumerate(OPERANDS)
    }
    found = evaluate(nest, buffers, inside=inside, tops=tops, bound=bound)
    if not np.isclose(found.energy, best, rtol=1e-9):
        raise AssertionError(f"{nest}: found {best}, counted {found.energy}")
    return found


def _memory(prices: _Prices, operand: str, level: int, words: int) -> tuple[str, float]:
    hierarchy = prices.hierarchy
    if isinstance(hierarchy, CoDesign):
        size = words * energy.WORD_BYTES
        return f"{operand}{level}", energy.access(size, hierarchy.widths[operand])
    memories = hierarchy.memories if isinstance(hierarchy, Shared) else hierarchy.memories[operand]
    return memories[level].name, memories[level].energy


def evaluate(
    nest: Nest,
    buffers: Sequence[tuple[str, int, str, float]],
    *,
    inside: int = 0,
    tops: Mapping[str, float] | None = None,
    bound: float = 0.0,
) -> Found:
    """The energy of a nest with buffers (operand, position, memory, pJ an access), counted by `count`.

    ``inside``: the datapath computes so many loops at once. ``tops``: pJ an access to the memory behind the last buffer of
    each operand, DRAM if not given. Every access to a buffer is one by the buffer inside it, or by the datapath.
    """
    positions = {operand: sorted(place for name, place, _, _ in buffers if name == operand) for operand in OPERANDS}
    moved = count.traffic(nest, positions)
    accesses = {operand: [datapath_accesses(nest, inside)[operand]] for operand in OPERANDS}
    result = []
    for operand in OPERANDS:
        accesses[operand] += [entry.words for entry in moved[operand]]
        own = sorted((place, memory, cost) for name, place, memory, cost in buffers if name == operand)
        for (place, memory, cost), entry, taken in zip(own, moved[operand], accesses[operand], strict=False):
            result.append(
                Buffer(
                    operand=operand, position=place, words=entry.capacity, memory=memory, energy=cost, accesses=taken
                )
            )
    top = {operand: taken[-1] for operand, taken in accesses.items()}
    total = sum(buffer.accesses * buffer.energy for buffer in result)
    total += sum(top[operand] * (tops[operand] if tops else energy.DRAM) for operand in OPERANDS)
    return Found(nest=nest, buffers=tuple(result), top=top, energy=total, bound=bound)
