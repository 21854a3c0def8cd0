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
depends on the way, so the search takes it as always (`_Lattice.least`), which gives the bound, and as never for what
may be better than the first one found. Results are counted anew, by `hwgen.blocking.count`, and must agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations, pairwise
from math import inf

import numpy as np

from hwgen.blocking import count, energy
from hwgen.blocking.count import input_axes
from hwgen.blocking.nest import Loop, Nest
from hwgen.blocking.problem import DIMS, OPERANDS, Problem, indexes
from hwgen.blocking.tiling import Tiling, distinct, divisors
from hwgen.errors import ConfigError, PlanError

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
        Whether an operand's whole array may live on chip, and never be in DRAM; which, is searched.
    homes : tuple of str
        Operands whose arrays do.
    """

    limit: int
    levels: int = 4
    widths: Mapping[str, int]
    homed: bool = False
    homes: tuple[str, ...] = ()
    top: float = energy.DRAM


MIRRORED = 24
"""The bit of an action that exchanges rows and columns."""

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
    tops : dict
        pJ of each of these accesses.
    energy : float
        pJ of all memory accesses.
    bound : float
        No blocking in the search's space takes less; 0 where nothing was searched.
    homes : tuple of str
        Operands whose whole array lives on chip; their accesses in ``top`` go there.
    """

    nest: Nest
    buffers: tuple[Buffer, ...]
    top: dict[str, int]
    tops: dict[str, float]
    energy: float
    bound: float
    homes: tuple[str, ...] = ()

    @property
    def per_mac(self) -> float:
        return self.energy / self.nest.problem.macs

    @property
    def gap(self) -> float:
        """By what part of it the best blocking may at most be better."""
        return max(0.0, 1 - self.bound / self.energy)

    @property
    def searched(self) -> bool:
        """Whether ``bound`` says anything: a blocking that was only evaluated has none."""
        return self.bound > 0

    def behind(self, operand: str) -> float:
        """pJ of all accesses behind the last buffer: to DRAM, or to the array at home."""
        return self.top[operand] * self.tops[operand]

    @property
    def on_chip(self) -> int:
        """Bytes of all buffers."""
        return energy.WORD_BYTES * sum(buffer.words for buffer in self.buffers)

    @property
    def at_home(self) -> int:
        """Bytes of whole arrays that live on chip."""
        return energy.WORD_BYTES * sum(self.nest.problem.home(operand) for operand in self.homes)


def datapath_accesses(nest: Nest, position: int) -> dict[str, int]:
    """Words that a datapath takes which computes the loops inside ``position`` at once; outputs both ways."""
    words = {operand: count.loads(nest, operand, position, scope=0) for operand in OPERANDS}
    return {**words, "output": 2 * words["output"]}


@dataclass(frozen=True)
class _Lattice:
    """Extents of blocks, and what operands take and fetch there."""

    problem: Problem
    base: Mapping[str, int]
    pair: bool
    ragged: bool = False
    least: bool = False

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        sizes = {}
        for dim in DIMS:
            size, start = self.problem.size(dim), self.base[dim]
            if size % start:
                raise ConfigError(f"{self.problem.name}: {dim}={size} must be a multiple of the datapath's {start}")
            factors = {*divisors(size // start)}
            if self.ragged and dim in RAGGED:
                factors.update(distinct(size // start))
            sizes[dim] = [start * factor for factor in sorted(factors)]
            if self.pair and dim in ("Fw", "Fh"):
                sizes[dim] = sorted({start, size})
        return sizes

    @cached_property
    def tiling(self) -> Tiling:
        return Tiling(self.problem, self.sizes)

    @cached_property
    def room(self) -> list[np.ndarray]:
        return [np.broadcast_to(self.tiling.room(operand), self.tiling.shape).ravel() for operand in OPERANDS]

    @cached_property
    def fill(self) -> list[np.ndarray]:
        """Words that a buffer takes in, and outputs give back, if loops that don't index it end at these extents.

        With ``least`` no more than that: all that may stay at the edge is taken once.
        """
        fills = []
        for operand in OPERANDS:
            words = self.tiling.once(operand)
            times = np.ones((1,) * len(DIMS), np.int64)
            for dim in DIMS:
                if not indexes(operand, dim):
                    times = times * self.tiling.blocks[dim]
            fill = words * times
            if self.least and self.edged:
                fill = fill - self._staying(operand) * words * (times - 1)
            if operand == "output":
                fill = 2 * fill - self.problem.output_words
            fills.append(np.broadcast_to(fill.astype(float), self.tiling.shape).ravel())
        return fills

    @cached_property
    def edges(self) -> dict[str, list[int]]:
        """Of each size the last block's, if that may be all that the last one of a larger size holds; else 0."""
        edges = {}
        for dim in DIMS:
            total, sizes = self.problem.size(dim), self.sizes[dim]
            left = [
                [total % larger for larger in sizes if larger > size and larger % size == 0 and total % larger <= size]
                for size in sizes
            ]
            edges[dim] = [max(own, default=0) for own in left]
        return edges

    @property
    def edged(self) -> bool:
        return any(map(any, self.edges.values()))

    def _staying(self, operand: str) -> np.ndarray:
        """The part of an operand's words, at most, in blocks that are alone at an edge; broadcasts over `DIMS`."""
        share = np.zeros((1,) * len(DIMS))
        for dim in DIMS:
            if indexes(operand, dim) and not (operand == "input" and dim != "C"):
                share = np.maximum(share, self.tiling.along(dim, self.edges[dim]) / self.problem.size(dim))
        if operand == "input":
            for dims in input_axes(self.problem):
                last = self.tiling.input_block(dims, dict(zip(self.sizes[dims[0]], self.edges[dims[0]], strict=True)))
                share = np.maximum(share, last / np.maximum(1, self.tiling.axis_words(dims, None)))
        return np.minimum(share * (1 + EXACT), 1)

    @cached_property
    def taken(self) -> np.ndarray:
        """Words that the datapath takes and gives."""
        return np.array([fill[0] for fill in replace(self, least=False).fill])

    @cached_property
    def steps(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
        """Loops that may be added: the dimensions that grow, and for each point the next one, or -1.

        A loop takes the extent of its dimension to the next one that holds whole blocks, or all of them: by a prime
        factor, where all blocks divide.
        """
        places = np.indices(self.tiling.shape).reshape(len(DIMS), -1)
        strides = [int(np.prod(self.tiling.shape[axis + 1 :])) for axis in range(len(DIMS))]
        here = np.arange(places.shape[1])
        found = []
        for axis, dim in enumerate(DIMS):
            if self.pair and dim in ("Fw", "Fh"):
                continue
            for following in _followers(self.sizes[dim]):
                there = np.array(following)[places[axis]]
                found.append(((dim,), np.where(there < 0, -1, here + (there - places[axis]) * strides[axis])))
        window = [axis for axis, dim in enumerate(DIMS) if dim in ("Fw", "Fh") and len(self.sizes[dim]) > 1]
        if self.pair and window:
            # the window goes as one: both of its sides are whole, or none is
            inside = np.all([places[axis] == 0 for axis in window], axis=0)
            there = here + sum((len(self.sizes[DIMS[axis]]) - 1) * strides[axis] for axis in window)
            found.append((tuple(DIMS[axis] for axis in window), np.where(inside, there, -1)))
        return found

    @cached_property
    def ranks(self) -> np.ndarray:
        """Of each point, larger than those of all points before it: of its extents, added up."""
        ranks = np.zeros(self.tiling.shape, np.int32)
        for dim in DIMS:
            own = [0] * len(self.sizes[dim])
            for here, places in enumerate(zip(*_followers(self.sizes[dim]), strict=True)):
                for there in places:
                    if there >= 0:
                        own[there] = max(own[there], own[here] + 1)
            ranks = ranks + self.tiling.along(dim, own)
        return ranks.ravel()

    @cached_property
    def mirror(self) -> np.ndarray | None:
        """Each point with rows and columns exchanged, if that changes nothing but the names."""
        p = self.problem
        rows = (p.Y, p.Fh, p.stride[0], p.pad[0], p.height, self.base["Y"], self.base["Fh"])
        if rows != (p.X, p.Fw, p.stride[1], p.pad[1], p.width, self.base["X"], self.base["Fw"]):
            return None
        places = np.arange(int(np.prod(self.tiling.shape))).reshape(self.tiling.shape)
        return places.transpose([DIMS.index(dim) for dim in ("Y", "X", "C", "K", "Fh", "Fw")]).ravel()

    def extents(self, point: int) -> dict[str, int]:
        return self.tiling.tile(point)


RAGGED = ("X", "Y", "C", "K")
"""Dimensions whose blocks need not divide, if that is wanted; the window's always do."""


def _followers(sizes: Sequence[int]) -> list[list[int]]:
    """The places of ``sizes`` that may follow each of them, with none between, or -1: a list for each factor by which
    they are larger, and one for the last, which may hold a part of a block."""
    last = len(sizes) - 1
    found: dict[int, list[int]] = {}
    for here, size in enumerate(sizes):
        holding = [place for place in range(here + 1, last + 1) if place == last or sizes[place] % size == 0]
        for place in holding:
            if not any(sizes[place] % sizes[inner] == 0 or place == last for inner in holding if inner < place):
                factor = sizes[place] // size if sizes[place] % size == 0 else 0
                found.setdefault(factor, [-1] * len(sizes))[here] = place
    return [found[factor] for factor in sorted(found)]


class _Prices:
    """Where a buffer may lie, and what that costs, for one hierarchy."""

    def __init__(self, hierarchy: Hierarchy, lattice: _Lattice, limited: frozenset[str] = frozenset()) -> None:
        """``limited``: what co-designed memories are held to, of their number of ``levels`` and their ``room`` in all.

        Each of these makes the search much longer, and often what is found without keeps them.
        """
        self.hierarchy, self.lattice = hierarchy, lattice
        self.limited = limited if isinstance(hierarchy, CoDesign) else frozenset(("levels", "room"))
        self.limits = np.zeros(0)
        if isinstance(hierarchy, CoDesign):
            at_home = sum(lattice.problem.home(operand) for operand in hierarchy.homes)
            self.limits = np.array([hierarchy.limit / energy.WORD_BYTES - at_home])
        elif isinstance(hierarchy, Shared):
            self.limits = np.array([memory.size / energy.WORD_BYTES for memory in hierarchy.memories])
        self.arrays = [float(fill[-1]) for fill in lattice.fill]
        self.table = [self._table(operand, room) for operand, room in zip(OPERANDS, lattice.room, strict=True)]
        # behind an operand's last buffer: DRAM, or its array at home on chip
        self.last = [_behind(hierarchy, lattice.problem, operand) for operand in OPERANDS]

    def _table(self, operand: str, rooms: np.ndarray) -> np.ndarray:
        """pJ an access by level and room; infinite where it doesn't fit."""
        hierarchy = self.hierarchy
        if isinstance(hierarchy, CoDesign):
            sizes = np.maximum(rooms, 1) * energy.WORD_BYTES
            cost = energy.accesses(sizes.astype(float), hierarchy.widths[operand])
            cost = np.where(sizes > hierarchy.limit, inf, cost)
            return np.broadcast_to(cost, (hierarchy.levels if "levels" in self.limited else 1, rooms.size))
        memories = hierarchy.memories if isinstance(hierarchy, Shared) else hierarchy.memories[operand]
        fits = [rooms * energy.WORD_BYTES <= memory.size for memory in memories]
        costs = [np.where(fit, memory.energy, inf) for fit, memory in zip(fits, memories, strict=True)]
        return np.array(costs).reshape(len(memories), rooms.size)

    @cached_property
    def cheapest(self) -> list[np.ndarray]:
        """The least pJ an access of a buffer at each level or further out; with no level left infinite."""
        result = []
        for table in self.table:
            least = np.minimum.accumulate(table[::-1], axis=0)[::-1]
            result.append(np.concatenate([least, np.full((1, table.shape[1]), inf)]))
        return result

    def options(self, operand: int, levels: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Levels that a buffer may take, and which labels may take them, by the next level that each is free to use."""
        if isinstance(self.hierarchy, CoDesign):  # all levels cost the same: the next one will do
            return [(level, levels == level) for level in range(len(self.table[operand]))]
        return [(level, levels <= level) for level in range(len(self.table[operand]))]


@dataclass
class _Labels:
    """Ways to get to points of the lattice; arrays of one row each.

    Parameters
    ----------
    point : int32
        Flat index of the point.
    spent : float64
        pJ so far.
    served : float64, 3 columns
        Accesses that each operand still has to serve.
    closed : bool, 3 columns
        Whether an operand's last buffer is behind; otherwise it still spans the loops that come.
    level : int8, 3 columns
        The next level that each operand may use.
    used : float64
        Words taken in each shared resource.
    parent, action : int32
        Number of the label that this one comes from (-1: none), and buffers placed on the way: a byte for each operand,
        level + 1. Of two points that are each other's mirror image only one is kept; `MIRRORED` says that the label was
        mirrored to get there.
    """

    point: np.ndarray
    spent: np.ndarray
    served: np.ndarray
    closed: np.ndarray
    level: np.ndarray
    used: np.ndarray
    parent: np.ndarray
    action: np.ndarray

    def take(self, rows: np.ndarray) -> _Labels:
        return _Labels(*(getattr(self, column.name)[rows] for column in fields(self)))

    def __len__(self) -> int:
        return len(self.point)

    @staticmethod
    def join(parts: Sequence[_Labels]) -> _Labels:
        return _Labels(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(_Labels)))


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
    lattice = _Lattice(problem, {**dict.fromkeys(DIMS, 1), **(base or {})}, pair)
    found = _best(lattice, hierarchy, first, width, within)
    if found is None:
        raise PlanError(f"{problem.name}: no blocking of it fits the memories")
    return _ragged(lattice, hierarchy, found, first, width, within) if ragged else found


def _best(
    lattice: _Lattice, hierarchy: Hierarchy, first: int, width: int, within: float, below: float = inf
) -> Found | None:
    """The best blocking of less energy than ``below``."""
    floor, limited = 0.0, frozenset[str]()
    while True:
        found = _refined(lattice, _Prices(hierarchy, lattice, limited), first, width, within, below)
        if found is None:
            return None
        # what comes out beyond a limit that was left out is a bound still
        floor = max(floor, found.bound)
        if not (exceeded := _exceeded(hierarchy, found)):
            return replace(found, bound=floor)
        limited |= exceeded


def _ragged(lattice: _Lattice, hierarchy: Hierarchy, whole: Found, first: int, width: int, within: float) -> Found:
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


def _behind(hierarchy: Hierarchy, problem: Problem, operand: str) -> float:
    """pJ of an access behind an operand's last buffer."""
    if isinstance(hierarchy, CoDesign) and operand in hierarchy.homes:
        return energy.access(problem.home(operand) * energy.WORD_BYTES, hierarchy.widths[operand])
    return hierarchy.top


def _exceeded(hierarchy: Hierarchy, found: Found) -> frozenset[str]:
    """Limits of co-designed memories that a blocking found without them is beyond."""
    if not isinstance(hierarchy, CoDesign):
        return frozenset()
    counts = [sum(buffer.operand == operand for buffer in found.buffers) for operand in OPERANDS]
    beyond = {"levels": max(counts) > hierarchy.levels, "room": found.on_chip + found.at_home > hierarchy.limit}
    return frozenset(name for name, exceeded in beyond.items() if exceeded)


def _refined(lattice: _Lattice, prices: _Prices, first: int, width: int, within: float, below: float) -> Found | None:
    """A rough search for less than ``below``, then a thorough one for what beats it."""
    best, bound, path = _run(lattice, prices, first, below)
    if bound < min(best, below) * (1 - within):
        limit = min(best, below) * (1 - within)
        found, missed, better = _run(lattice, prices, width, limit)
        bound = min(found, missed, limit)
        if found < best:
            best, path = found, better
    return None if path is None else _found(lattice, prices, path, best, min(best, bound))


EXACT = 1e-9
"""Part by which two energies may differ that are the same."""

_Path = list[tuple[int, int]]
"""Points from the first to the last, each with the action of the step there."""


def _run(lattice: _Lattice, prices: _Prices, width: int, limit: float) -> tuple[float, float, _Path | None]:
    """The best energy below ``limit``, a bound on what was dropped for ``width``, and the path to the best."""
    served = lattice.taken[None, :].copy()
    served[0, 2] += lattice.problem.output_words  # a datapath reads zeros, too
    labels = _Labels(
        point=np.zeros(1, np.int32),
        spent=np.zeros(1),
        served=served,
        closed=np.ones((1, 3), bool),
        level=np.zeros((1, 3), np.int8),
        used=np.zeros((1, len(prices.limits))),
        parent=np.full(1, -1, np.int32),
        action=np.zeros(1, np.int32),
    )
    trail = _Trail()
    waiting = {0: [labels]}  # by rank
    missed = inf
    while (rank := min(waiting)) < lattice.ranks[-1]:
        labels = _Labels.join(waiting.pop(rank))
        bounds = _bounds(lattice, prices, labels)
        labels, bounds = labels.take(alive := np.flatnonzero(bounds < limit)), bounds[alive]
        if len(labels):
            labels, dropped = _kept(labels, bounds, width, prices.limited)
            missed = min(missed, dropped)
            number = trail.add(labels)
            for grown, following in lattice.steps:
                for part in _expand(lattice, prices, grown, following, labels):
                    part.parent += number
                    _sort_in(waiting, part, lattice.ranks[part.point])
        if not waiting:
            return inf, missed, None
    labels = _Labels.join(waiting[rank])
    labels = _at_end(lattice, prices, labels, trail.add(labels))
    return _finish(prices, trail, labels, limit, missed)


def _sort_in(waiting: dict[int, list[_Labels]], labels: _Labels, ranks: np.ndarray) -> None:
    """Put each label to those of its rank."""
    for rank in np.unique(ranks).tolist():
        same = ranks == rank
        waiting.setdefault(rank, []).append(labels if same.all() else labels.take(np.flatnonzero(same)))


class _Trail:
    """All labels that others come from, numbered."""

    def __init__(self) -> None:
        self._parts: list[_Labels] = []
        self._starts = [0]

    def add(self, labels: _Labels) -> int:
        """The number of the first of ``labels``."""
        self._parts.append(labels)
        self._starts.append(self._starts[-1] + len(labels))
        return self._starts[-2]

    def back(self, labels: _Labels, row: int) -> _Path:
        """How the label in ``row`` came about."""
        steps = [(int(labels.point[row]), int(labels.action[row]))]
        while (number := int(labels.parent[row])) >= 0:
            part = bisect_right(self._starts, number) - 1
            labels, row = self._parts[part], number - self._starts[part]
            steps.append((int(labels.point[row]), int(labels.action[row])))
        return steps[::-1]


def _kept(labels: _Labels, bounds: np.ndarray, width: int, limited: frozenset[str]) -> tuple[_Labels, float]:
    """The labels that none beats at their point, at most ``width`` a point; and the least bound of those left out."""
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
        rows = begin + _front(figures[begin:stop])
        if len(rows) > width:
            worst = np.argsort(bounds[order[rows]], kind="stable")
            missed = min(missed, float(bounds[order[rows[worst[width]]]]))
            rows = rows[worst[:width]]
        kept.append(order[rows])
    return labels.take(np.concatenate(kept)), missed


def _front(figures: np.ndarray, chunk: int = 256) -> np.ndarray:
    """Indices of the rows that no other one beats: rows are sorted, and all different."""
    if len(figures) < 2:
        return np.arange(len(figures))
    figures = figures[:, np.ptp(figures, axis=0) > 0].astype(np.float64)
    kept = np.zeros(0, np.int64)
    for begin in range(0, len(figures), chunk):
        rows = np.arange(begin, min(begin + chunk, len(figures)))
        rows = rows[~_beaten(figures[rows], figures[kept])]
        inside = figures[rows]
        beaten = np.tri(len(rows), k=-1, dtype=bool)
        for column in inside.T[1:]:  # the first one is sorted
            beaten &= column[None, :] <= column[:, None]
        # a row that is itself beaten still beats what it beats: whatever beats it does so, too
        kept = np.concatenate([kept, rows[~beaten.any(axis=1)]])
    return kept


def _beaten(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Whether some row of ``kept``, none of which is behind ``rows``, is nowhere above each of ``rows``."""
    result = np.zeros(len(rows), bool)
    for begin in range(0, len(kept), 1024):
        some = kept[begin : begin + 1024]
        left = np.flatnonzero(~result)
        below = np.ones((len(left), len(some)), bool)
        for column in range(1, rows.shape[1]):
            below &= some[None, :, column] <= rows[left, column][:, None]
        result[left] = below.any(axis=1)
    return result


def _expand(
    lattice: _Lattice, prices: _Prices, grown: tuple[str, ...], following: np.ndarray, labels: _Labels
) -> list[_Labels]:
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


def _at_end(lattice: _Lattice, prices: _Prices, labels: _Labels, first: int) -> _Labels:
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
    lattice: _Lattice,
    prices: _Prices,
    labels: _Labels,
    here: np.ndarray,
    index: int,
    useful: np.ndarray,
    fill: np.ndarray,
    spans: bool,
) -> tuple[_Labels, np.ndarray]:
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
    return _Labels.join(parts), np.concatenate(places)


def _moved(lattice: _Lattice, labels: _Labels, point: np.ndarray, rows: np.ndarray) -> _Labels:
    """``labels``, which come from ``rows``, at their next points: of two mirror images the first one."""
    mirrored = np.zeros(len(rows), bool)
    if lattice.mirror is not None:
        mirrored = lattice.mirror[point] < point
        point = np.where(mirrored, lattice.mirror[point], point)
    action = mirrored.astype(np.int32) << MIRRORED
    return replace(labels, point=point.astype(np.int32), parent=rows.astype(np.int32), action=action)


def _bounds(lattice: _Lattice, prices: _Prices, labels: _Labels) -> np.ndarray:
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
    prices: _Prices, trail: _Trail, labels: _Labels, limit: float, missed: float
) -> tuple[float, float, _Path | None]:
    """The cheapest label of the whole layer."""
    best, chosen = limit, -1
    if len(labels):
        cost = labels.spent + labels.served @ np.array(prices.last)
        place = int(np.argmin(cost))
        if cost[place] < best:
            best, chosen = float(cost[place]), place
    return (inf, missed, None) if chosen < 0 else (best, missed, trail.back(labels, chosen))


def _found(lattice: _Lattice, prices: _Prices, path: _Path, best: float, bound: float) -> Found:
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

    ``inside``: the datapath computes so many loops at once. ``tops``: pJ an access to the memory behind the last buffer
    of each operand, DRAM if not given. Every access to a buffer is one by the buffer inside it, or by the datapath.
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
    costs = {operand: tops[operand] if tops else energy.DRAM for operand in OPERANDS}
    total += sum(top[operand] * costs[operand] for operand in OPERANDS)
    return Found(nest=nest, buffers=tuple(result), top=top, tops=costs, energy=total, bound=bound)
