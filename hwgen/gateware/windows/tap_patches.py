"""Patches of a kernel's taps: which taps a line buffer reads in one cycle, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hwgen.devices import Logic


@dataclass(frozen=True)
class TapPatches:
    """Patches (taps read in one cycle) of ``Tp`` neighbouring windows: their size, order and offsets.

    Each patch is read in one cycle.

    Parameters
    ----------
    kernel, dilation : tuple of int
        Rows and columns of the kernel, and from one tap to the next.
    taps : int
        Number of taps that are output per cycle, ``Tk``.
    pixels : int
        Number of neighbouring windows that are read together, ``Tp``.
    stride : int
        Columns from one window to the next.
    """

    kernel: tuple[int, int]
    dilation: tuple[int, int]
    taps: int
    pixels: int
    stride: int

    @cached_property
    def size(self) -> tuple[int, int]:
        """Pair: rows and columns of the patch of taps that is read per cycle, with as few rows as possible.

        If patches of ``taps`` taps tile the kernel, a patch has just these taps. Otherwise the patch is the whole
        window, and multiplexers after the memory select the taps that a cycle outputs.
        """
        height, width = self.kernel
        for columns in range(min(self.taps, width), 0, -1):
            if self.taps % columns == width % columns == 0 and height % (self.taps // columns) == 0:
                return self.taps // columns, columns
        return self.kernel

    @property
    def chooses(self) -> bool:
        """Whether a cycle reads more taps than it outputs, so that multiplexers select the taps."""
        return self.size[0] * self.size[1] > self.taps

    @cached_property
    def step_taps(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Kernel taps as (row, column) that are output together: a tuple for each cycle of reading a window.

        The entries are in the order of the reads. The last one can have fewer taps.
        """
        height, width = self.kernel
        if self.chooses:
            taps = [(i, j) for i in range(height) for j in range(width)]
            return tuple(tuple(taps[first : first + self.taps]) for first in range(0, len(taps), self.taps))
        rows, columns = self.size
        return tuple(
            tuple((top + i, left + j) for i in range(rows) for j in range(columns))
            for top in range(0, height, rows)
            for left in range(0, width, columns)
        )

    @property
    def rounds(self) -> int:
        """Number of outer iterations that read a window: tap folds if taps are selected, else rows of patches."""
        return len(self.step_taps) if self.chooses else self.kernel[0] // self.size[0]

    @property
    def advance(self) -> tuple[int, int]:
        """Distance between neighbouring patches of taps, a pair: image rows, image columns."""
        return self.size[0] * self.dilation[0], self.size[1] * self.dilation[1]

    @property
    def rows(self) -> range:
        """Offsets of the image rows that a patch of taps reads, from its first row, as a range."""
        return range(0, self.advance[0], self.dilation[0])

    @property
    def columns(self) -> range:
        """Offsets of the image columns that a patch of taps reads, from its first column, as a range."""
        return range(0, self.advance[1], self.dilation[1])

    @cached_property
    def read_columns(self) -> Sequence[int]:
        """Sequence of offsets of the image columns that a cycle reads for all ``Tp`` windows, from the first column.

        Without a dilation, all columns from the first to the last are read.
        """
        columns = self.used_columns
        return range(columns[-1] + 1) if self.dilation[1] == 1 else columns

    @cached_property
    def used_columns(self) -> Sequence[int]:
        """Sequence of offsets of the image columns with taps among ``read_columns``; synthesis drops the others."""
        lefts = range(0, self.pixels * self.stride, self.stride)
        return sorted({left + column for left in lefts for column in self.columns})

    def choice_luts(self, logic: Logic) -> int:
        """Return the LUTs (per word bit and window) of the multiplexers that select a cycle's taps."""
        counts = (sum(tap < len(taps) for taps in self.step_taps) for tap in range(self.taps))
        return sum(map(logic.mux_luts, counts))
