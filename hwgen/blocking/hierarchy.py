"""Memory hierarchies for the search of a layer's loop blocking: private, shared, or designed with the blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.blocking import energy

__all__ = ["CoDesign", "Hierarchy", "Memory", "Private", "Shared"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of an accelerator's hierarchy: name, size in bytes, and energy per word access in pJ."""

    name: str
    size: int
    energy: float


@dataclass(frozen=True, kw_only=True)
class Private:
    """Memory hierarchy in which input, weights and output each have memories of their own, small to large."""

    memories: Mapping[str, Sequence[Memory]]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Memory hierarchy whose memories hold buffers of input, weights and output together, small to large.

    Buffers are packed from the inside out.
    """

    memories: Sequence[Memory]
    top: float = energy.DRAM


@dataclass(frozen=True, kw_only=True)
class CoDesign:
    """Memories to be designed together with the blocking: one memory per buffer, at most ``limit`` bytes in all.

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
