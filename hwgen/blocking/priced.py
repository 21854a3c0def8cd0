"""Energy of all memory accesses of blocked loop nests with buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.blocking import count, energy
from hwgen.blocking.problem import OPERANDS, Nest


@dataclass(frozen=True, kw_only=True)
class PricedBuffer:
    """One operand's buffer in a blocked loop nest: memory's name, words to hold, pJ per access, number of accesses.

    Parameters
    ----------
    operand : str
        Operand that the buffer holds.
    position : int
        Position of the buffer in the nest.
    words : int
        Words that the buffer must hold.
    memory : str
        Name of the memory that holds the buffer.
    energy : float
        Energy per access, in pJ.
    accesses : int
        Number of accesses by the next inner buffer, or by the datapath.
    """

    operand: str
    position: int
    words: int
    memory: str
    energy: float
    accesses: int


@dataclass(frozen=True, kw_only=True)
class PricedBlocking:
    """Blocked loop nest with its buffers, and the energy (pJ) of all its memory accesses.

    Parameters
    ----------
    nest : Nest
        Loops of the blocking.
    buffers : tuple of PricedBuffer
        Buffers by operand, inner to outer.
    top : dict
        Number of accesses of each operand to DRAM.
    tops : dict
        Energy of each of these accesses, in pJ.
    energy : float
        Energy of all memory accesses, in pJ.
    bound : float
        Lower bound of the energy of all blockings in the search's space, in pJ; 0 without a search.
    homes : tuple of str
        Operands whose whole arrays are stored on chip; their accesses in ``top`` go there.
    """

    nest: Nest
    buffers: tuple[PricedBuffer, ...]
    top: dict[str, int]
    tops: dict[str, float]
    energy: float
    bound: float
    homes: tuple[str, ...] = ()

    @property
    def per_mac(self) -> float:
        """Memory energy per multiply-add, in pJ, a float."""
        return self.energy / self.nest.problem.macs

    @property
    def gap(self) -> float:
        """Largest possible saving by another blocking, as a share (0 to 1) of this blocking's energy."""
        return max(0.0, 1 - self.bound / self.energy)

    @property
    def searched(self) -> bool:
        """Whether the blocking comes from a search, and therefore has a lower bound on the energy."""
        return self.bound > 0

    def outermost_energy(self, operand: str) -> float:
        """Return the energy (pJ) of an operand's accesses to its outermost memory: DRAM, or a whole array on chip."""
        return self.top[operand] * self.tops[operand]

    @property
    def on_chip(self) -> int:
        """Total size of the blocking's on-chip buffers, in bytes; whole arrays on chip do not count."""
        return energy.WORD_BYTES * sum(buffer.words for buffer in self.buffers)

    @property
    def whole_array_bytes(self) -> int:
        """Total size in bytes of the arrays (input, weights, output) stored on chip as a whole, not in DRAM."""
        return energy.WORD_BYTES * sum(self.nest.problem.home(operand) for operand in self.homes)


def datapath_accesses(nest: Nest, position: int) -> dict[str, int]:
    """Return a dict by operand: words that a datapath moves per layer, with loops inside ``position`` in parallel.

    These are the loops of the nest inside ``position``. Outputs count in both directions.
    """
    words = {operand: count.loads(nest, operand, position, scope=0) for operand in OPERANDS}
    return {**words, "output": 2 * words["output"]}


def evaluate(
    nest: Nest,
    buffers: Sequence[tuple[str, int, str, float]],
    *,
    inside: int = 0,
    tops: Mapping[str, float] | None = None,
    bound: float = 0.0,
) -> PricedBlocking:
    """Return a `PricedBlocking`: a loop nest with given buffers and the energy (pJ) of its memory accesses.

    Every access to a buffer is an access by the next inner buffer, or by the datapath.

    Parameters
    ----------
    nest : Nest
        Loops of the blocking.
    buffers : sequence of tuple
        Operand, position, memory, and pJ per access of each buffer.
    inside : int
        Number of inner loops that the datapath computes at once.
    tops : mapping, optional
        Energy, in pJ, of an access to the memory outside the last buffer of each operand; DRAM by default.
    bound : float
        Lower bound of the energy, in pJ.
    """
    top, result = datapath_accesses(nest, inside), []
    for operand in OPERANDS:
        own = sorted((position, memory, cost) for name, position, memory, cost in buffers if name == operand)
        entries = count.traffic(nest, {operand: [position for position, _, _ in own]})[operand]
        for (position, memory, cost), entry in zip(own, entries, strict=True):
            result.append(
                PricedBuffer(
                    operand=operand,
                    position=position,
                    words=entry.capacity,
                    memory=memory,
                    energy=cost,
                    accesses=top[operand],
                )
            )
            top[operand] = entry.words
    total = sum(buffer.accesses * buffer.energy for buffer in result)
    costs = {operand: tops[operand] if tops else energy.DRAM for operand in OPERANDS}
    total += sum(top[operand] * costs[operand] for operand in OPERANDS)
    return PricedBlocking(nest=nest, buffers=tuple(result), top=top, tops=costs, energy=total, bound=bound)
