"""Energy per memory access by memory size, and memory hierarchies for the blocking search.

The energies are from Yang (section 3.4 and Table 3). Between the sizes of the table, the logarithm of the energy is
interpolated over the logarithm of the size, for each word length. Below 1 KB the slope from 1 to 2 KB continues. Above
1 MB the mean slope of the column continues, and a memory above 16 MB is DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log2

import numpy as np

from hwgen.errors import ConfigError

WORD_BYTES = 2
"""Size of a word in the energy model, in bytes (16 bits, as in Yang's paper)."""

WIDTHS = (64, 128, 256, 512)
"""Tuple of word widths of on-chip memories in the energy table, in bits: its columns."""

DRAM = 320.0
"""Energy of a DRAM access, in pJ per 16 bits."""

SRAM_LIMIT = 16 << 20
"""Maximum size of an SRAM, in bytes; accesses to a larger memory cost as much as to DRAM."""

TABLE = {
    1: (1.20, 0.93, 0.69, 0.57),
    2: (1.54, 1.37, 0.91, 0.68),
    4: (2.11, 1.68, 1.34, 0.90),
    8: (3.19, 2.71, 2.21, 1.33),
    16: (4.36, 3.57, 2.66, 2.19),
    32: (5.82, 4.80, 3.52, 2.64),
    64: (8.10, 7.51, 5.79, 4.67),
    128: (11.66, 11.50, 8.46, 6.15),
    256: (15.60, 15.51, 13.09, 8.99),
    512: (23.37, 23.24, 17.93, 15.76),
    1024: (36.32, 32.81, 28.88, 25.22),
}
"""Dictionary by memory size (KB) of SRAM access energies (pJ per 16 bits), one per word length: Yang's Table 3."""


def access(size: float, width: int) -> float:
    """Return the energy in pJ of an access to 16 bits in a memory of ``size`` bytes with words of ``width`` bits.

    Raises
    ------
    ConfigError
        If the size is not positive, or the width is not one of `WIDTHS`.
    """
    return float(accesses(np.array([size], float), width)[0])


def accesses(sizes: np.ndarray, width: int) -> np.ndarray:
    """Return an array of energies in pJ per 16 bits, of accesses to memories of ``sizes`` bytes."""
    if width not in WIDTHS:
        raise ConfigError(f"a memory's word length must be one of {', '.join(map(str, WIDTHS))} bits, not {width}")
    if np.any(sizes <= 0):
        raise ConfigError(f"a memory's size must be positive, not {np.min(sizes)} bytes")
    column = WIDTHS.index(width)
    energies = [row[column] for row in TABLE.values()]
    grid, values = np.log2(list(TABLE)), np.log(energies)
    log_size = np.log2(sizes / 1024)
    below = values[0] + log_size * (values[1] - values[0])
    above = values[-1] + (log_size - grid[-1]) * log(energies[-1] / energies[0]) / log2(max(TABLE))
    result = np.exp(
        np.where(log_size < 0, below, np.where(log_size > grid[-1], above, np.interp(log_size, grid, values)))
    )
    return np.where(sizes > SRAM_LIMIT, DRAM, result)


@dataclass(frozen=True, kw_only=True)
class MemoryLevel:
    """Memory in an accelerator's hierarchy: its name, its size in bytes, its energy per word access in pJ."""

    name: str
    size: int
    energy: float

    @classmethod
    def sized(cls, name: str, size: int, width: int) -> MemoryLevel:
        """Return a `MemoryLevel` of ``size`` bytes and ``width``-bit words, with the table's energy per access."""
        return cls(name=name, size=size, energy=access(size, width))


@dataclass(frozen=True, kw_only=True)
class Private:
    """Memory hierarchy with separate memories for input, weights and output, each from small to large."""

    memories: Mapping[str, Sequence[MemoryLevel]]
    top: float = DRAM

    def memory(self, operand: str, level: int, size: int) -> MemoryLevel:
        """Return the `MemoryLevel` that holds an operand's buffer at a level; ``size`` (bytes) doesn't matter."""
        return self.memories[operand][level]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Memory hierarchy whose memories, from small to large, are shared by the buffers of input, weights and output.

    Buffers are packed from the inside out.
    """

    memories: Sequence[MemoryLevel]
    top: float = DRAM

    def memory(self, operand: str, level: int, size: int) -> MemoryLevel:
        """Return the `MemoryLevel` that holds any operand's buffer at a level; ``size`` (bytes) doesn't matter."""
        return self.memories[level]


@dataclass(frozen=True, kw_only=True)
class CoDesign:
    """Memory hierarchy designed with the blocking: a memory per buffer, at most ``limit`` bytes in all.

    Parameters
    ----------
    limit : int
        Bytes of on-chip memory.
    levels : int
        Largest number of buffers per operand.
    widths : mapping
        Word length of each operand's memories, in bits.
    homed : bool
        Whether an operand's whole array may be stored on chip and never in DRAM. The search chooses the operands.
    homes : tuple of str
        Operands whose whole arrays are stored on chip.
    """

    limit: int
    levels: int = 4
    widths: Mapping[str, int]
    homed: bool = False
    homes: tuple[str, ...] = ()
    top: float = DRAM

    def memory(self, operand: str, level: int, size: int) -> MemoryLevel:
        """Return a `MemoryLevel`: a new memory of exactly ``size`` bytes for an operand's buffer at a level."""
        return MemoryLevel.sized(f"{operand}{level}", size, self.widths[operand])


Hierarchy = Private | Shared | CoDesign
