"""Hierarchies of memories that a blocking is searched for: given ones (private or shared), and ones made to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.blocking import energy

__all__ = ["CoDesign", "Hierarchy", "Memory", "Private", "Shared"]


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


Hierarchy = Private | Shared | CoDesign
