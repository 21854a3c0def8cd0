"""Memory hierarchies that a blocking is searched for: given memories (private or shared), and co-designed memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.blocking import energy

__all__ = ["CoDesign", "Hierarchy", "Memory", "Private", "Shared"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of a hierarchy: its size in bytes, and the energy of a word's access in pJ."""

    name: str
    size: int
    energy: float


@dataclass(frozen=True, kw_only=True)
class Private:
    """Hierarchy in which each operand has its own memories, small to large."""

    memories: Mapping[str, Sequence[Memory]]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Hierarchy of memories that all operands share, small to large. Buffers are packed from the inside out."""

    memories: Sequence[Memory]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class CoDesign:
    """Hierarchy of co-designed memories: every buffer has its own memory, all together at most ``limit`` bytes.

    Parameters
    ----------
    limit : int
        Bytes of on-chip memory.
    levels : int
        Largest number of buffers per operand.
    widths : mapping
        Word length of each operand's memories, in bits.
    homed : bool
        Whether an operand's whole array may be stored on chip and never in DRAM. The search decides for which operands.
    homes : tuple of str
        Operands whose whole arrays are stored on chip.
    """

    limit: int
    levels: int = 4
    widths: Mapping[str, int]
    homed: bool = False
    homes: tuple[str, ...] = ()
    top: float = energy.DRAM


Hierarchy = Private | Shared | CoDesign
