"""Tables of the energy per access (pJ) of a buffer of every block size, for the search on one memory hierarchy."""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np

from hwgen.blocking import energy
from hwgen.blocking.energy import CoDesign, Hierarchy, Shared
from hwgen.blocking.lattice import Lattice
from hwgen.blocking.problem import OPERANDS, Problem


class BlockPrices:
    """Energy per access (pJ) of a buffer, in tables by operand, memory level and lattice point."""

    def __init__(self, hierarchy: Hierarchy, lattice: Lattice, limited: frozenset[str] = frozenset()) -> None:
        """Compute the energy per access (pJ) of every possible buffer (block size and memory level).

        ``limited`` holds the limits that co-designed memories must keep during the search.

        The limits are the number of ``levels`` and the ``room`` in all. Each makes the search much slower, and often
        the result of a search without it keeps the limit.
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
        # memory outside an operand's last buffer: DRAM, or the whole array on chip
        self.last = [_memory_energy(hierarchy, lattice.problem, operand) for operand in OPERANDS]

    def _table(self, operand: str, rooms: np.ndarray) -> np.ndarray:
        """Return an array of energies per access (pJ), by memory level and buffer size; infinite if too large."""
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
        """List of arrays, one per operand: least energy (pJ) of an access to a buffer at a memory level or further out.

        The energy beyond the last level is infinite.
        """
        result = []
        for table in self.table:
            cheapest_table = np.minimum.accumulate(table[::-1], axis=0)[::-1]
            result.append(np.concatenate([cheapest_table, np.full((1, table.shape[1]), inf)]))
        return result

    def options(self, operand: int, levels: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return a list of memory levels for one more buffer, each with a mask of the partial blockings it is open to.

        ``levels`` holds the next free level of each label.
        """
        if isinstance(self.hierarchy, CoDesign):  # all levels cost the same, so the next level is sufficient
            return [(level, levels == level) for level in range(len(self.table[operand]))]
        return [(level, levels <= level) for level in range(len(self.table[operand]))]


def _memory_energy(hierarchy: Hierarchy, problem: Problem, operand: str) -> float:
    """Return the energy (pJ) of an access to an operand's outermost memory: DRAM, or its whole array on chip."""
    if isinstance(hierarchy, CoDesign) and operand in hierarchy.homes:
        return energy.access(problem.home(operand) * energy.WORD_BYTES, hierarchy.widths[operand])
    return hierarchy.top
