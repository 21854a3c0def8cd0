"""Blockings with their buffers and the energy of all accesses, counted by `hwgen.blocking.count`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.blocking import count, energy
from hwgen.blocking.nest import Nest
from hwgen.blocking.problem import OPERANDS

__all__ = ["Buffer", "Found", "datapath_accesses", "evaluate"]


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
