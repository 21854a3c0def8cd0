"""Depth-concatenated line buffer: stores image rows, outputs the taps of every window (DeCoILFNet, III-A and III-B).

The buffer is a ring of ``rows`` image rows. A writer fills the ring in raster order. A reader walks over the windows
and reads ``patch`` taps per cycle directly from the memory. So a window needs no window buffer, and padding, row ends
and frame ends cost no cycle. Two signed counters control the flow:

- ``margin``: number of pixels written beyond those that the next window needs. A window can start unless ``margin`` is
  negative.
- ``space``: number of pixels that can be written before a pixel is overwritten that a window of its frame needs, less
  the pixels of the next beat. The next beat is taken unless ``space`` is negative.

The memory is divided into banks, so that pixels that are read or written together are in different banks. Column ``x``
is in column bank ``x mod column_banks``. If a patch has more than one row, every ring row has banks of its own.

With a dilation, the number of column banks is the smallest that separates the columns which are read together. In most
cases it equals the number of these columns: in a patch of three taps with dilation 2, columns 0, 2 and 4 are in banks
0, 2 and 1 of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd

import numpy as np
from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import (
    Cost,
    Resources,
    counter_bits,
    table_bits,
    trailing_zeros,
    uncommon,
)
from hwgen.gateware.lookup import bits_for_range, delayed, delayed_fast, dense_table, registered, sparse_table
from hwgen.gateware.naming import named
from hwgen.gateware.nest import Interleaving, Loop, Place
from hwgen.gateware.pieces import WritePort, count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.stream import BeatFormat, at_pixel


@dataclass(frozen=True, kw_only=True)
class WindowSteps:
    """Tables of a line buffer's flow control: growth of a count of needed or released pixels from window to window.

    The count is that of needed or of released pixels. The windows are groups of ``Tp`` neighbouring windows, the row
    steps. Every window at the end of an output row has an entry of its own. Inside a row, the growth is the entry of
    the row step times the entry of the row, which is 1 or 0.

    Parameters
    ----------
    ends : tuple of int
        Growth at the last row step, for each output row.
    columns : tuple of int
        Growth inside rows, for each row step but the last.
    counts : tuple of int
        Factor of ``columns`` for each output row: 1 if the count grows inside the row, otherwise 0.
    """

    ends: tuple[int, ...]
    columns: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, ends: tuple[int, ...], columns: tuple[int, ...], counts: tuple[int, ...]) -> WindowSteps:
        """Return a `WindowSteps` of the given tables, cached so that equal tables share one object.

        A row can have 65,535 entries.
        """
        return cls(ends=ends, columns=columns, counts=counts)

    @cached_property
    def uncommon(self) -> int:
        """Number of flow-control table entries that differ from their table's most frequent value.

        Each of these entries costs a comparator.
        """
        return sum(map(uncommon, (self.ends, self.columns, self.counts if self.columns else ())))

    @cached_property
    def bits(self) -> int:
        """Number of flip-flops of a register for one growth (an entry of ``ends`` or ``columns``, or 0)."""
        return table_bits({0, *self.ends, *self.columns})


@dataclass(frozen=True, kw_only=True)
class LineBufferConfig(OnDevice):
    """Configuration of a line buffer: its ring of image rows, and the order in which it outputs window taps.

    Parameters
    ----------
    input : BeatFormat
        Input stream, whose ``lanes`` are ``Tn``.
    kernel, stride : tuple of int
        Vertical and horizontal size of the kernel, and stride, in pixels.
    padding : tuple of int
        Padding at the top, left, bottom and right, in pixels. A negative padding crops rows or columns of the map.
    pad_value : int
        Value of a tap in the padding.
    taps : int
        Number of taps that are read in one cycle, ``Tk``; at most the kernel's taps.
    output_folds : int
        Number of walks over every window, each for ``Tm`` output channels: ``ceil(M / groups / Tm)`` for each of the
        input's groups. In a ``channelwise`` walk it is the number of input folds.
    channelwise : bool
        Whether every lane keeps its channel, as in pooling: output fold ``f`` reads only input fold ``f``.
    rows : int
        Number of rows that the ring stores; at least the rows that a window covers.
    pixels : int
        Number of neighbouring windows that are walked at once, ``Tp``.
    dilation : tuple of int
        Rows and columns from one tap of a window to the next.
    inside : bool
        Whether a step has a flag for every tap that is high if the tap is inside the map.
    memory_in : str, optional
        RAM that stores the banks, ``lut``, ``block`` or ``ultra``. If not given, the depth of a bank decides. The
        latency is one cycle shorter with LUT RAM where words of block RAM would pass its output registers. Words of
        UltraRAM always pass its output registers.

    Raises
    ------
    ConfigError
        If no window fits, ``taps`` exceeds the kernel, ``rows`` do not hold a window, or the chosen RAM cannot store a
        bank; or if ``inside`` is set without padding, or with fewer taps than the kernel's.
    """

    input: BeatFormat
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    pad_value: int
    taps: int
    output_folds: int
    channelwise: bool
    rows: int
    pixels: int = 1
    dilation: tuple[int, int] = (1, 1)
    inside: bool = False
    memory_in: str | None = None

    #: Cycles from the transfer of a pixel's last beat to the start of the window that waits for the pixel.
    write_delay = 1
    #: Cycles from the last step of a window to the first beat that can overwrite pixels of the window.
    release_delay = 3

    def __post_init__(self) -> None:
        kernel_taps = self.kernel[0] * self.kernel[1]
        if min(*self.kernel, *self.stride) < 1:
            raise ConfigError(f"kernel and stride must be positive, not {self.kernel!r} and {self.stride!r}")
        if min(self.dilation) < 1:
            raise ConfigError(f"dilation must be positive, not {self.dilation!r}")
        if not 1 <= self.taps <= kernel_taps:
            raise ConfigError(f"taps must be between 1 and the kernel's {kernel_taps}, not {self.taps!r}")
        if not 1 <= self.pixels <= max(self.output_width, 1):
            raise ConfigError(f"pixels must be between 1 and the {self.output_width} of a row, not {self.pixels!r}")
        if self.rows < self.min_rows:
            raise ConfigError(f"rows must be at least the {self.min_rows} of a window, not {self.rows!r}")
        if min(self.output_height, self.output_width) < 1:
            raise ConfigError(
                f"input and padding must hold at least one {self.extent[0]} x {self.extent[1]} window, "
                f"not {self.input.height} x {self.input.width} with {self.padding!r}"
            )
        if self.output_folds < 1 or self.output_folds % self.groups:
            wanted = "integer" if self.groups == 1 else f"multiple of the {self.groups} groups"
            raise ConfigError(f"output_folds must be a positive {wanted}, not {self.output_folds!r}")
        if self.channelwise and self.group_output_folds > 1:
            raise ConfigError(f"output_folds must be {self.input.folds} for channelwise, not {self.output_folds!r}")
        smallest, largest = self.input.value_range
        if not smallest <= self.pad_value <= largest:
            raise ConfigError(f"pad_value must be a value of the input's type, not {self.pad_value!r}")
        if self.inside and (self.taps != kernel_taps or not self.padded):
            raise ConfigError("inside must be False without padding, and where a step has not all taps of the kernel")
        self.memories.check_ram("memory_in", self.memory_in, self.bank_depth)

    @property
    def extent(self) -> tuple[int, int]:
        """Number of rows and of columns that a window covers, from its first tap to its last, dilation included."""
        (height, width), (below, beside) = self.kernel, self.dilation
        return (height - 1) * below + 1, (width - 1) * beside + 1

    @property
    def padded(self) -> bool:
        """Whether a window can reach beyond the map, into the padding."""
        return max(self.padding) > 0

    @property
    def last_pixels(self) -> int:
        """Number of pixels in the last input beat of a map row."""
        return self.input.width - (self.input.row_steps - 1) * self.input.pixels

    @property
    def skipped(self) -> int:
        """Number of pixels of a frame's first rows that no window reads, as a negative top padding crops the rows.

        They are released before the frame begins.
        """
        return max(-self.padding[0], 0) * self.input.width

    @property
    def min_rows(self) -> int:
        """Minimum of ``rows``, the image rows in the line buffer: the rows of one window, at most the map's."""
        return min(self.extent[0], self.input.height)

    @property
    def output_height(self) -> int:
        """Height of the output map, in pixels: number of window rows."""
        top, _, bottom, _ = self.padding
        return (self.input.height + top + bottom - self.extent[0]) // self.stride[0] + 1

    @property
    def output_width(self) -> int:
        """Width of the output map, in pixels: number of windows per output row."""
        _, left, _, right = self.padding
        return (self.input.width + left + right - self.extent[1]) // self.stride[1] + 1

    @property
    def row_steps(self) -> int:
        """Number of groups of ``Tp`` neighbouring windows in an output row: ``ceil(W_out / Tp)``."""
        return -(-self.output_width // self.pixels)

    @property
    def windows(self) -> int:
        """Number of groups of ``Tp`` neighbouring windows per frame."""
        return self.output_height * self.row_steps

    @property
    def groups(self) -> int:
        """Number of channel groups: an output fold (``Tm`` output channels) reads only its own group's input channels.

        With two groups, six input folds and four output folds, output folds 0 and 1 read input folds 0 to 2, and output
        folds 2 and 3 read input folds 3 to 5. In a channelwise walk every input fold is a group.
        """
        return self.input.folds if self.channelwise else self.input.groups

    @property
    def group_folds(self) -> int:
        """Number of input folds, sets of ``Tn`` input channels, in a channel group.

        An output fold reads all of them.
        """
        return self.input.folds // self.groups

    @property
    def group_output_folds(self) -> int:
        """Number of output folds, passes over ``Tm`` output channels, in a channel group.

        All of them read the same input folds.
        """
        return self.output_folds // self.groups

    @cached_property
    def patch(self) -> tuple[int, int]:
        """Number of rows and of columns of the patch of taps that is read in one cycle, with as few rows as possible.

        If patches of ``taps`` taps tile the kernel, a patch has just these taps. Otherwise the patch is the whole
        window, and multiplexers behind the memory select the taps of a step.
        """
        height, width = self.kernel
        columns = next((c for c in range(min(self.taps, width), 0, -1) if _divides(c, self.taps, width, height)), None)
        return self.kernel if columns is None else (self.taps // columns, columns)

    @property
    def chooses(self) -> bool:
        """Whether more taps are read per cycle than are used, so that multiplexers select the taps of each cycle."""
        return self.patch[0] * self.patch[1] > self.taps

    @cached_property
    def step_taps(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Kernel taps (row, column) that are output together, one tuple for each of the cycles that read a window.

        The cycles are in the order of the walk. The last entry, or tap fold, can have fewer taps.
        """
        height, width = self.kernel
        if self.chooses:
            taps = [(i, j) for i in range(height) for j in range(width)]
            return tuple(tuple(taps[first : first + self.taps]) for first in range(0, len(taps), self.taps))
        rows, columns = self.patch
        return tuple(
            tuple((top + i, left + j) for i in range(rows) for j in range(columns))
            for top in range(0, height, rows)
            for left in range(0, width, columns)
        )

    @property
    def tap_folds(self) -> int:
        """Number of cycles that read all taps of a window, for ``Tn`` input channels: ``ceil(Kh * Kw / Tk)``."""
        return len(self.step_taps)

    @property
    def steps(self) -> int:
        """Cycles of an output fold, in which all operands of ``Tm`` output channels are read."""
        return self.tap_folds * self.group_folds

    @property
    def window_cycles(self) -> int:
        """Cycles in which the operands of ``Tp`` windows are read, over all output channels."""
        return self.steps * self.output_folds

    @property
    def patch_advance(self) -> tuple[int, int]:
        """Distance between neighbouring patches of taps within a window: in rows, and in columns."""
        return self.patch[0] * self.dilation[0], self.patch[1] * self.dilation[1]

    @property
    def patch_rows(self) -> range:
        """Image rows that are read in one cycle for one patch of taps, relative to the patch's first row."""
        return range(0, self.patch_advance[0], self.dilation[0])

    @property
    def patch_columns(self) -> range:
        """Image columns that are read in one cycle for one patch of taps, relative to the patch's first column."""
        return range(0, self.patch_advance[1], self.dilation[1])

    @cached_property
    def read_columns(self) -> Sequence[int]:
        """Image columns that are read in one cycle for ``Tp`` windows together, relative to the first column read.

        Without a dilation, all columns from the first to the last are read.
        """
        columns = self.used_columns
        return range(columns[-1] + 1) if self.dilation[1] == 1 else columns

    @cached_property
    def used_columns(self) -> Sequence[int]:
        """Image columns that contain taps, among the ``read_columns`` of a cycle; synthesis removes the others."""
        lefts = range(0, self.pixels * self.stride[1], self.stride[1])
        return sorted({left + column for left in lefts for column in self.patch_columns})

    @property
    def row_banks(self) -> int:
        """Number of rows of memory banks: one per stored image row if several rows are read at once, else 1."""
        return self.rows if self.patch[0] > 1 else 1

    @property
    def column_banks(self) -> int:
        """Number of memory banks among which a row's columns are divided, so that several are accessed at once."""
        return banks_apart(self.read_columns, self.input.pixels)

    @property
    def column_interleaving(self) -> Interleaving:
        """Interleaving of a row's columns among the column banks."""
        return Interleaving(self.column_banks, self.input.folds)

    @property
    def row_words(self) -> int:
        """Number of memory words that one image row takes in one bank of the line buffer."""
        return -(-self.input.width // self.column_banks) * self.input.folds

    @property
    def bank_depth(self) -> int:
        """Number of words in one memory bank of the line buffer. A word stores ``Tn`` channels of one pixel."""
        return self.row_words * self.rows // self.row_banks

    @property
    def memory(self) -> str:
        """RAM that stores the line buffer's banks, ``lut``, ``block`` or ``ultra``: ``memory_in``, or by depth."""
        return self.memory_in or self.memories.default_ram(self.bank_depth)

    @property
    def pieces(self) -> int:
        """Number of memories into which each bank is divided, so that multiplexers of deep banks stay fast."""
        return len(piece_words(self.device, self.word_bits, self.bank_depth, self.memory_in))

    @cached_property
    def registers_words(self) -> bool:
        """Whether words pass output registers of the RAM, which UltraRAM always has, because its words are late.

        Words of block RAM pass them if more than one LUT per bit follows the memory.
        """
        if self.memory == "ultra":
            return True
        blocks, _ = self.memories.stacked(self.word_bits, self.bank_depth)
        banks = self.row_banks if self.row_banks > 1 else self.column_banks
        padded = self.row_banks == 1 and self.padded
        return self.memory == "block" and blocks * banks + padded > self.device.logic.mux_ways

    @property
    def word_stage(self) -> int:
        """Cycles from the issue of a read until its words reach the multiplexers that sort them by column."""
        return 3 + (self.row_banks > 1 or self.registers_words)

    @property
    def word_bits(self) -> int:
        """Width in bits of a word of the line buffer: ``Tn`` channels of one pixel."""
        return self.input.lanes * self.input.bits

    @property
    def latency(self) -> int:
        """Cycles from the issue of a read of window taps until the taps are on ``o``."""
        return self.word_stage + 1 + self.chooses

    @property
    def pad_word(self) -> Value:
        """Amaranth constant for a pixel in the padding: a word of ``Tn`` channels with the value ``pad_value``."""
        return Cat(Const(self.pad_value, self.input.shape) for _ in range(self.input.lanes))

    @property
    def first_space(self) -> int:
        """Initial value of the free-space counter: pixels that fit before the first window, less those of one beat."""
        return self.rows * self.input.width + self.skipped - min(self.input.pixels, self.input.width)

    @property
    def space_range(self) -> tuple[int, int]:
        """Smallest and largest value of the line buffer's free-space counter, in pixels."""
        largest = self.rows * self.input.width + self.skipped + self.input.frame_pixels - self.last_pixels
        return -min(self.input.pixels, self.input.width), largest

    def needed(self, row: int, step: int) -> int:
        """Return how many first pixels of a frame must be stored before group ``step`` of windows in ``row`` begins."""
        bottom = min(max(row * self.stride[0] - self.padding[0] + self.extent[0] - 1, 0), self.input.height - 1)
        return bottom * self.input.width + self._last_columns[step] + 1

    @property
    def _last_columns(self) -> tuple[int, ...]:
        """Map column of the last pixel that is needed by each group of ``Tp`` windows along an output row."""
        # Windows that begin right of the map need no pixel of the map.
        begins = (self.input.width - 1 + self.padding[1]) // self.stride[1]
        last, offset = min(self.output_width - 1, begins), self.extent[1] - 1 - self.padding[1]
        return _columns(self.row_steps, self.pixels, last, self.stride[1], offset, self.input.width - 1)

    @property
    def _dropped_pixels(self) -> tuple[int, ...]:
        """Number of first pixels of a map row that later windows do not need, after each group of ``Tp`` windows."""
        last, offset = self.row_steps * self.pixels, self.stride[1] - self.padding[1]
        return _columns(self.row_steps, self.pixels, last, self.stride[1], offset, self.input.width)

    def released(self, row: int, step: int) -> int:
        """Return how many first pixels of a frame can be overwritten after group ``step`` of windows in ``row``.

        No later window needs these pixels. After the last window of the frame, the skipped pixels of the next frame are
        included.
        """
        height, width = self.input.height, self.input.width
        top = row * self.stride[0] - self.padding[0]
        if step == self.row_steps - 1:
            if row == self.output_height - 1:
                return height * width + self.skipped
            return min(max(top + self.stride[0], 0), height) * width
        if top + self.stride[0] <= 0 or top >= height:
            return min(max(top, 0), height) * width
        return max(top, 0) * width + self._dropped_pixels[step]

    @cached_property
    def need_steps(self) -> WindowSteps:
        """Growth, from each window to the next, of the number of pixels that must be stored before a window starts.

        The next frame follows the last window of a frame.
        """
        rows, last = range(self.output_height), self.row_steps - 1
        ends = [self.needed(row + 1, 0) - self.needed(row, last) for row in rows[:-1]]
        ends.append(self.input.frame_pixels + self.needed(0, 0) - self.needed(rows[-1], last))
        columns = _growth(self._last_columns)
        return WindowSteps.of(tuple(ends), columns, (int(any(columns)),) * len(rows))

    @cached_property
    def release_steps(self) -> WindowSteps:
        """Growth, at the end of each window, of the number of a frame's pixels that can be overwritten."""
        rows, last = range(self.output_height), self.row_steps - 1
        befores = [self.skipped, *(self.released(row, last) for row in rows[:-1])]
        ends = tuple(
            self.released(row, last) - (self.released(row, last - 1) if last else before)
            for row, before in zip(rows, befores, strict=True)
        )
        # The count grows inside a row, unless the next row begins at map row 0 or above, or this row below the map.
        tops = [row * self.stride[0] - self.padding[0] for row in rows]
        counts = [int(top + self.stride[0] > 0 and top < self.input.height) for top in tops]
        columns = (0,) * last
        if last and any(counts):
            row = counts.index(1)
            first = max(tops[row], 0) * self.input.width + self._dropped_pixels[0] - befores[row]
            columns = (first, *_growth(self._dropped_pixels)[: last - 1])
        grows = any(columns)
        return WindowSteps.of(ends, columns, tuple(count * grows for count in counts))

    @property
    def step_layout(self) -> data.StructLayout:
        """Layout of a cycle's output: ``taps[window][tap][lane]``, and flags of an output fold's first and last cycle.

        If ``inside`` is set, a step also has the flags ``inside[window][tap]``.
        """
        taps = data.ArrayLayout(data.ArrayLayout(self.input.shape, self.input.lanes), self.taps)
        inside = {"inside": data.ArrayLayout(data.ArrayLayout(1, self.taps), self.pixels)} if self.inside else {}
        return data.StructLayout({"taps": data.ArrayLayout(taps, self.pixels), "first": 1, "last": 1, **inside})

    @property
    def rotates_rows(self) -> bool:
        """Whether windows begin in different rows of the ring of image rows, so that multiplexers sort the rows."""
        frame = self.input.height - (self.output_height - 1) * self.stride[0]
        return any(rows % self.rows for rows in (self.stride[0], frame, self.patch_advance[0]))

    @property
    def choice_luts(self) -> int:
        """Number of LUTs, per bit of a word and per window, that select a cycle's taps from all taps that are read."""
        counts = (sum(tap < len(taps) for taps in self.step_taps) for tap in range(self.taps))
        return sum(map(self.device.logic.mux_luts, counts))

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        row_banks, column_banks, word = self.row_banks, self.column_banks, self.word_bits
        patch_rows, reads = self.patch[0], len(self.used_columns)
        for _ in range(row_banks * column_banks):
            count_pieces(cost, word, self.bank_depth, self.memory_in)

        # The data path behind the memories.
        if self.registers_words:
            cost.ff += row_banks * column_banks * self.pieces * word
            cost.multiplexer(row_banks * column_banks * word, self.pieces)
        elif row_banks > 1:
            cost.ff += patch_rows * column_banks * word
        if row_banks > 1 and self.rotates_rows:
            # A multiplexer of seven inputs takes two LUTs, with selects that are decoded once for all multiplexers. If
            # seven rows are read at once, Yosys keeps the selects, and a multiplexer takes three LUTs. With a dilation,
            # Yosys keeps some of the selects.
            mux_luts = 3 if row_banks == patch_rows == 7 else cost.logic.mux_luts(row_banks)
            kept = 0.5 if row_banks in (7, 8) and self.dilation[0] > 1 and mux_luts == 2 else 0
            cost.luts(patch_rows * column_banks * word * (mux_luts + kept))
        cost.ff += patch_rows * reads * word
        cost.luts(patch_rows * reads * word * cost.logic.rotation(column_banks, padded=self.padded))
        if self.chooses:
            cost.ff += self.pixels * self.taps * word
            cost.luts(self.pixels * word * self.choice_luts)
        # The data path in front of the memories. The write data of a bank that is not written is 0.
        if column_banks > 1:
            cost.lut += column_banks * word * (column_banks // gcd(column_banks, self.input.pixels) > 1)

        # Control.
        counters = self._counter_ff
        cost.ff += counters + 2 * counter_bits(self.pieces) * row_banks * column_banks
        if column_banks > 1:
            cost.delay(counter_bits(column_banks), self.word_stage)
        if row_banks > 1 and self.rotates_rows:
            cost.delay(counter_bits(self.rows), 3)
            cost.ff += counter_bits(self.rows) * self.registers_words
        if self.padded:
            cost.delay(patch_rows * reads, self.word_stage)
            cost.ff += patch_rows * reads * self.inside
        if self.chooses:
            cost.delay(counter_bits(self.tap_folds), self.latency - 1)
        cost.ff += self.latency
        cost.delay(2, self.latency)
        cost.lut += self._control_lut(counters)
        return cost.resources

    def component(self) -> LineBuffer:
        return LineBuffer(self)

    def _control_lut(self, counters: int) -> float:
        """Return the estimated LUTs of the line buffer's control logic: counters, tables and write enables.

        ``counters`` is the number of the counters' registers. The factors were fitted to results of Yosys.
        """
        width, banks = max(1, counter_bits(self.bank_depth)), self.column_banks
        entries = self.need_steps.uncommon + self.release_steps.uncommon
        if banks == self.row_banks == 1:
            total = 1.26 * (counters - width) + 0.64 * width + 0.6 * entries + 20.6 * self.padded
            return total + 3.2 * (self.rows > 1) + 3.3 * self.tap_folds * self.chooses
        total = 1.33 * (counters - banks * width) + 0.7 * banks * width + 2.6 * entries
        if banks > 1:
            # If every beat begins in the same bank, all banks share an address and need no multiplexer of pixels.
            total += 4 * banks if self.input.pixels % banks else -0.35 * (banks - 1) * width
        if self.padded:
            total += 2.4 * self.patch[0] * len(self.used_columns)
        if self.row_banks == 1:
            total += 3.6 * min(self.rows, 4)
        if self.chooses:
            total += 3.3 * self.tap_folds
        return total

    @property
    def _counter_ff(self) -> int:
        """Number of flip-flops of all counters of the line buffer."""
        return self._writer_ff + self._flow_ff + self._walk_ff + self._address_ff

    @property
    def _writer_ff(self) -> int:
        source, banks = self.input, self.column_banks
        total = counter_bits(source.row_steps) + counter_bits(source.folds) + counter_bits(self.rows)
        if source.pixels % banks:
            total += counter_bits(banks)
        word_step = source.folds * (1 if source.pixels % banks else source.pixels // banks)
        if self.row_banks == 1 and self.rows > 1:
            word_step = gcd(word_step, self.row_words)
        if self.row_words > source.folds or (self.row_banks == 1 and self.rows > 1):
            total += max(0, counter_bits(self.bank_depth) - trailing_zeros(word_step))
        return total

    @property
    def _flow_ff(self) -> int:
        source, capacity = self.input, self.rows * self.input.width
        limit = 2 * source.frame_pixels + capacity + self.skipped
        total = bits_for_range(-limit, limit).width
        total += bits_for_range(*self.space_range).width
        total += 2 * self.release_steps.bits
        return total + self.need_steps.bits if self.window_cycles > 1 else total

    @property
    def _walk_ff(self) -> int:
        total = 0
        for windows, stride, padding in (
            (self.output_height, self.stride[0], self.padding[0]),
            (self.row_steps, self.stride[1] * self.pixels, self.padding[1]),
        ):
            if windows > 1:
                total += bits_for_range(-padding, (windows - 1) * stride - padding).width - trailing_zeros(stride)
        total += counter_bits(self.output_folds) + counter_bits(self.group_folds)
        total += counter_bits(self.extent[1]) - trailing_zeros(self.dilation[1])
        rounds = self.tap_folds if self.chooses else self.kernel[0] // self.patch[0]
        total += counter_bits(rounds)
        if not self.chooses and rounds > 1 and self.padded:
            total += counter_bits(self.extent[0]) - trailing_zeros(self.dilation[0])
        return total

    @property
    def _address_ff(self) -> int:
        folds, banks, width = self.input.folds, self.column_banks, max(1, counter_bits(self.bank_depth))
        total = counter_bits(folds)
        if self.groups > 1:
            total += counter_bits(folds) + counter_bits(self.group_output_folds)
        total += 2 * (width - trailing_zeros(folds))
        if banks > 1:
            total += 2 * counter_bits(banks)
        if self.rotates_rows:
            total += 2 * counter_bits(self.rows)
        total += width + banks * width
        # A bank can read a word further ahead in its memory. The maximum of these words has ``ahead`` bits.
        ahead = max(1, ((banks - 1 + self.read_columns[-1]) // banks).bit_length())
        if folds & (folds - 1):
            return total + banks * (counter_bits(folds) + ahead)
        # The sums of all banks share all bits but the highest.
        return total + counter_bits(folds) + banks * ahead - 1


@lru_cache(maxsize=64)
def _columns(steps: int, pixels: int, last: int, stride: int, offset: int, limit: int) -> tuple[int, ...]:
    """Return the map column ``n * stride + offset`` of the last window ``n`` of each group of ``pixels`` windows.

    ``n`` is at most ``last``. Columns are clipped to 0 .. ``limit``. The result is cached, because a search for unroll
    factors makes thousands of configurations that differ only in lanes and folds.
    """
    windows = np.minimum(np.arange(1, steps + 1) * pixels - 1, last)
    return tuple(np.clip(windows * stride + offset, 0, limit).tolist())


@lru_cache(maxsize=64)
def _growth(positions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the differences of neighbouring ``positions``, one fewer than there are positions."""
    return tuple(np.diff(positions).tolist())


def walk_ports(config: LineBufferConfig) -> dict[str, wiring.Member]:
    """Return the ports, by name, of a component that outputs the windows of a feature map, such as `LineBuffer`."""
    return {
        "i": In(config.input.signature),
        "room": In(1),
        "fold": Out(range(config.output_folds)),
        "start": Out(1),
        "o": Out(stream.Signature(config.step_layout, always_ready=True)),
    }


@dataclass(frozen=True)
class _Bank:
    """Signals of one memory bank of the line buffer, with its row and column: write port, read address, read word."""

    row: int
    column: int
    write: WritePort
    address: Signal
    word: Value


@dataclass(frozen=True)
class _Writer:
    """Signals of the line buffer's writer: numbers of pixels completed in this cycle, and of pixels in the next beats.

    Both are 0 unless this cycle stores the last channels of its pixels. The next beats carry the next pixels.
    """

    written: Value
    upcoming: Value


#: Type of a dictionary of words, each of one pixel, by row and column of a patch or by row and column bank.
_Pixels = dict[tuple[int, int], Value]


def _divides(columns: int, taps: int, width: int, height: int) -> bool:
    """Return whether rectangles of ``taps`` taps, ``columns`` wide, tile a ``height x width`` kernel."""
    return taps % columns == 0 and width % columns == 0 and height % (taps // columns) == 0


def banks_apart(offsets: Sequence[int], minimum: int = 1) -> int:
    """Return the smallest number of memory banks that stores pixels at different ``offsets`` in different banks.

    A pixel at position ``x`` is in bank ``x`` modulo the number of banks. The result is at least ``minimum``.
    """
    banks = max(len(offsets), minimum)
    while len({offset % banks for offset in offsets}) < len(offsets):
        banks += 1
    return banks


class _Walk:
    """Counters of the line buffer's reader: position in the loops over windows, taps and channels, and addresses.

    All signals describe one step and are valid in the cycle in which ``stepping`` is high.
    """

    def __init__(self, m: Module, config: LineBufferConfig, room: Value):
        self._m, self._config = m, config
        rows_on, columns_on = config.patch_advance
        tops = range(self.top_of(0), self.top_of(config.output_height), config.stride[0])
        lefts = range(self.left_of(0), self.left_of(config.row_steps), config.stride[1] * config.pixels)
        across = range(0, config.kernel[1] * config.dilation[1], columns_on)
        # The walk goes over tap folds, or over rows of patches.
        num_rounds = config.tap_folds if config.chooses else config.kernel[0] // config.patch[0]
        patch_row = Signal(range(config.extent[0]), name="patch_row_offset")
        patch_column = Signal(range(config.extent[1]), name="patch_column_offset")

        rows, row_windows = Loop("window_top_row", tops), Loop("window_left_column", lefts)
        folds = Loop("output_fold_index", range(config.output_folds))
        rounds = Loop("tap_fold_index" if config.chooses else "patch_row_index", range(num_rounds))
        patches = Loop("patch_column_offset", across, index=patch_column)
        inner = Loop("inner_fold_index", range(config.group_folds))  # the input fold within the group
        self.top, self.left, self.fold, self.round = rows.index, row_windows.index, folds.index, rounds.index
        self.row_ends = row_windows.is_last

        self.window_ready = Signal(name="window_ready")
        self.first = Signal(name="is_first_step")
        self.last = Signal(name="is_last_step")
        self.stepping = Signal(name="step_valid")
        self.start = Signal(name="fold_start")
        self.window_starts = Signal(name="window_start")
        m.d.comb += [
            self.first.eq((inner.index == 0) & (patch_column == 0) & (self.round == 0)),
            self.last.eq(inner.is_last & patches.is_last & rounds.is_last),
            self.start.eq(self.first & room & ((self.fold != 0) | self.window_ready)),
            self.stepping.eq(self.start | ~self.first),
            self.window_starts.eq(self.start & (self.fold == 0)),
        ]
        inner_ends = inner.step(m, self.stepping)
        across_ends = patches.step(m, inner_ends)
        fold_ends = rounds.step(m, across_ends)
        self.window_ends = folds.step(m, fold_ends)
        rows.step(m, row_windows.step(m, self.window_ends))
        if not config.chooses:
            with m.If(across_ends):
                m.d.sync += patch_row.eq(Mux(rounds.is_last, 0, patch_row + rows_on))

        self._count_input_folds(inner, fold_ends, folds.is_last)
        self._count_columns(inner_ends, patches.is_last)
        self._count_slots(across_ends, fold_ends, rows.is_last)
        self.inside = self._inside_flags(patch_row, patch_column)

    def top_of(self, row: int) -> int:
        """Return the image row of the top of the windows in output row ``row``; negative in the padding."""
        return row * self._config.stride[0] - self._config.padding[0]

    def left_of(self, step: int) -> int:
        """Return the image column of the left edge of group ``step`` of ``Tp`` windows; negative in the padding."""
        return step * self._config.pixels * self._config.stride[1] - self._config.padding[1]

    def _count_input_folds(self, inner: Loop, fold_ends: Value, window_last: Value) -> None:
        """Add the counter ``input_fold``: the set of ``Tn`` input channels that is read, over all channel groups."""
        m, config = self._m, self._config
        self.input_fold = Signal(range(config.input.folds), name="input_fold_index")
        _, restart = group_first_folds(m, config, fold_ends, window_last)
        with m.If(self.stepping):
            m.d.sync += self.input_fold.eq(Mux(inner.is_last, restart, self.input_fold + 1))

    def _count_columns(self, inner_ends: Value, across_last: Value) -> None:
        """Add counters of the place, bank and word address, of the leftmost column that is read."""
        m, config = self._m, self._config
        columns, left = config.column_interleaving, self.left_of(0)
        width = max(1, (config.bank_depth - 1).bit_length())
        window, self.column = columns.register("window", width, left), columns.register("patch", width, left)
        following = columns.register("next_window", width)
        m.d.comb += following.eq(window)
        with m.If(self.window_ends):
            moved = columns.ahead(window, config.stride[1] * config.pixels)
            m.d.comb += following.eq(moved.unless(self.row_ends, columns.place_of(left)))
        m.d.sync += window.eq(following)
        with m.If(inner_ends):
            moved = columns.ahead(self.column, config.patch_advance[1])
            m.d.sync += self.column.eq(moved.unless(across_last, following))

    def _count_slots(self, across_ends: Value, fold_ends: Value, last_row: Value) -> None:
        """Add the counter ``slot``: the index, in the ring of image rows, of the top row that is read."""
        m, config = self._m, self._config
        slots = config.rows

        def ahead(name: str, slot: Value, rows: int) -> Value:
            return dense_table(m, name, slot, [(index + rows) % slots for index in range(slots)])

        frame_rows = config.input.height - (config.output_height - 1) * config.stride[0]
        top_slot = Signal(range(slots), name="window_slot_index", init=self.top_of(0) % slots)
        self.slot = Signal(range(slots), name="patch_slot_index", init=self.top_of(0) % slots)
        next_top = Signal(range(slots), name="next_window_slot_index")
        m.d.comb += next_top.eq(top_slot)
        with m.If(self.window_ends & self.row_ends):
            m.d.comb += next_top.eq(
                Mux(
                    last_row,
                    ahead("next_frame_slot_index", top_slot, frame_rows),
                    ahead("next_row_slot_index", top_slot, config.stride[0]),
                )
            )
        m.d.sync += top_slot.eq(next_top)
        with m.If(fold_ends):
            m.d.sync += self.slot.eq(next_top)
        if not config.chooses:
            with m.Elif(across_ends):
                m.d.sync += self.slot.eq(ahead("next_patch_slot_index", self.slot, config.patch_advance[0]))

    def _inside_flags(self, patch_row: Value, patch_column: Value) -> Value | None:
        """Add comparators that flag, a cycle later, which pixels read are inside the map; ``None`` without padding."""
        m, config = self._m, self._config
        if not config.padded:
            return None

        def inside(name: str, first: Value, size: int, offsets: Sequence[int]) -> list[Value]:
            # A register separates the carry chain of the sum from the carry chains of its comparisons.
            first_1 = registered(m, f"{name}_1", first, first.shape())
            return [named((first_1 >= -offset) & (first_1 < size - offset), "is_inside") for offset in offsets]

        rows = inside("patch_top_row", self.top + patch_row, config.input.height, config.patch_rows)
        columns = inside("patch_left_column", self.left + patch_column, config.input.width, config.read_columns)
        return Cat(named(row & column, "is_pixel_inside") for row in rows for column in columns)


def group_first_folds(m: Module, config: LineBufferConfig, fold_ends: Value, window_last: Value) -> tuple[Value, Value]:
    """Add counters of the channel groups; return the group's first input fold, now and in the next cycle.

    Parameters
    ----------
    m : Module
    config : LineBufferConfig
        Configuration of the windows.
    fold_ends : Value
        Whether an output fold ends in this cycle.
    window_last : Value
        Whether the current output fold is the last one of its window.
    """
    if config.groups == 1:
        return Const(0), Const(0)
    first = Signal(range(config.input.folds), name="group_first_fold")
    following = Signal(range(config.input.folds), name="next_group_first_fold")
    member = Loop("group_output_fold_index", range(config.group_output_folds))
    m.d.comb += following.eq(first)
    with m.If(member.step(m, fold_ends)):
        m.d.comb += following.eq(Mux(window_last, 0, first + config.group_folds))
    m.d.sync += first.eq(following)
    return first, following


class LineBuffer(ConfiguredComponent[LineBufferConfig]):
    """Line buffer: a ring of image rows, and the counters that output the taps of all windows in raster order.

    The windows are walked in raster order. For every window, the outer loop goes over the output folds, the middle loop
    over the patches of the window, and the inner loop over the input folds. A step takes one cycle, without a pause
    inside an output fold.

    Parameters
    ----------
    config : LineBufferConfig
        Configuration of the line buffer.

    Members
    -------
    i : In(stream)
        Input feature map. Its ``last`` is ignored, because the line buffer counts the pixels.
    room : In(1)
        High if the next output fold can start.
    fold : Out
        Index of the output fold that starts next.
    start : Out(1)
        High in the cycle in which an output fold starts.
    o : Out(stream, always ready)
        Steps.

    Latency and throughput
        An output fold takes ``config.steps`` cycles. Its first step is on ``o`` ``config.latency`` cycles after
        ``start``. A window starts at least ``config.write_delay`` cycles after the transfer of the last pixel that the
        window needs. A pixel is taken at least ``config.release_delay`` cycles after the last step of the last window
        that needs the overwritten pixel. A row is released from left to right.
    """

    def __init__(self, config: LineBufferConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        banks = self._elaborate_banks(m)
        writer = self._elaborate_writer(m, banks)
        walk = _Walk(m, self.config, self.room)
        m.d.comb += [self.start.eq(walk.start), self.fold.eq(walk.fold)]
        self._elaborate_flow(m, walk, writer)
        self._elaborate_fetch(m, walk, banks)
        return m

    def _elaborate_banks(self, m: Module) -> list[_Bank]:
        """Add the memories of all banks of the line buffer, and return their signals in a flat list, by row."""
        rows, columns = range(self.config.row_banks), range(self.config.column_banks)
        return [self._elaborate_bank(m, row, column) for row in rows for column in columns]

    def _elaborate_bank(self, m: Module, row: int, column: int) -> _Bank:
        """Add one memory bank of the line buffer, and return its signals.

        A bank of many block RAMs is in pieces, because its multiplexer would be slow.
        """
        config = self.config
        write, address, word = memory_in_pieces(
            m,
            config.device,
            f"bank_{row}_{column}",
            width=config.word_bits,
            depth=config.bank_depth,
            registered=config.registers_words,
            where=config.memory_in,
        )
        return _Bank(row, column, write, address, word)

    def _elaborate_writer(self, m: Module, banks: list[_Bank]) -> _Writer:
        """Add the writer, which stores a beat's pixels in successive banks per cycle, and return its pixel counts."""
        config = self.config
        folds, pixels, steps = config.input.folds, config.input.pixels, config.input.row_steps
        short = config.last_pixels
        taken = Signal(name="input_transfer")
        m.d.comb += taken.eq(self.i.valid & self.i.ready)
        fold, step = Loop("write_fold_index", range(folds)), Loop("write_step_index", range(steps))
        slot = Loop("write_slot_index", range(config.rows))
        # The place of the beat's first column in fold 0.
        first_column = config.column_interleaving.register("write", range(config.bank_depth))
        step_ends = fold.step(m, taken)
        row_ends = step.step(m, step_ends)
        slot.step(m, row_ends)
        # The fold index in the next word step is a counter as well, so that an address needs one addition.
        ahead = Signal(range(folds, 2 * folds), name="write_fold_index_next_word", init=folds)
        with m.If(taken):
            m.d.sync += ahead.eq(Mux(fold.is_last, folds, ahead + 1))
        with m.If(step_ends):
            m.d.sync += first_column.eq(config.column_interleaving.ahead(first_column, pixels))
        with m.If(row_ends):
            m.d.sync += first_column.eq(Place(Const(0), Const(0)))
            if config.row_banks == 1:
                starts = [(index + 1) % config.rows * config.row_words for index in range(config.rows)]
                m.d.sync += first_column.word.eq(dense_table(m, "next_write_row_address", slot.index, starts))

        values = self.i.payload.data
        with m.Switch(first_column.bank):
            for first in range(config.column_banks):
                with m.Case(first):
                    for bank in banks:
                        pixel = (bank.column - first) % config.column_banks
                        m.d.comb += bank.write.addr.eq(
                            first_column.word + (ahead if bank.column < first else fold.index)
                        )
                        if pixel < pixels:
                            here = named(taken if pixel < short else taken & ~step.is_last, "is_pixel_written")
                            m.d.comb += [
                                bank.write.data.eq(Cat(lane[pixel] for lane in values)),
                                bank.write.en.eq(here if config.row_banks == 1 else here & (slot.index == bank.row)),
                            ]
        count = Signal(range(pixels + 1), name="write_pixels")  # pixels of the current step
        m.d.comb += count.eq(Mux(step.is_last, short, pixels))
        written = named(Mux(step_ends, count, 0), "written_pixels")
        if short == pixels or steps == 1:
            return _Writer(written, written)
        following = Signal(range(pixels + 1), name="next_write_pixels")
        m.d.comb += following.eq(Mux(step.index == steps - 2, short, pixels))
        return _Writer(written, upcoming=Mux(step_ends, following, 0))

    def _elaborate_flow(self, m: Module, walk: _Walk, writer: _Writer) -> None:
        """Add the pixel counters ``margin`` and ``space``, which decide when windows start and beats are taken."""
        config = self.config
        need = self._by_window(walk, config.need_steps)
        limit = 2 * config.input.frame_pixels + config.rows * config.input.width + config.skipped
        margin = Signal(bits_for_range(-limit, limit), name="margin", init=-config.needed(0, 0))
        used = Signal.like(need, name="used_pixels")
        # The next window reads the margin two or more cycles later, so that a register fits, unless a window takes one
        # cycle.
        domain = m.d.sync if config.window_cycles > 1 else m.d.comb
        domain += used.eq(Mux(walk.window_starts, need, 0))
        m.d.sync += margin.eq(margin + writer.written - used)
        # The sign bit replaces a comparison, which would be a second carry chain on the path that starts windows.
        m.d.comb += walk.window_ready.eq(~margin[-1])

        released = Signal(range(config.input.frame_pixels + config.skipped + 1), name="released_pixels")
        m.d.sync += released.eq(Mux(walk.window_ends, self._by_window(walk, config.release_steps), 0))
        released = delayed(m, "released_pixels", released, config.release_delay - 2, reset_less=False)
        # ``space`` is already less by the pixels of the next beat, so that its sign bit shows whether the beat fits. A
        # comparison would be a second carry chain on the path to ``margin``.
        space = Signal(bits_for_range(*config.space_range), name="space", init=config.first_space)
        m.d.sync += space.eq(space + released - writer.upcoming)
        m.d.comb += self.i.ready.eq(~space[-1])

    def _by_window(self, walk: _Walk, steps: WindowSteps) -> Value:
        """Add table logic, and return the growth of a pixel count, from ``steps``, at the window that is being read."""
        at_end = sparse_table(walk.top, {walk.top_of(row): value for row, value in enumerate(steps.ends)})
        if not steps.columns:
            return at_end
        columns = {walk.left_of(step): value for step, value in enumerate(steps.columns)}
        counts = {walk.top_of(row): value for row, value in enumerate(steps.counts)}
        in_row = Mux(sparse_table(walk.top, counts), sparse_table(walk.left, columns), 0)
        return named(Mux(walk.row_ends, at_end, in_row), "steps_to_next_window")

    def _elaborate_fetch(self, m: Module, walk: _Walk, banks: list[_Bank]) -> None:
        """Add the reader's pipeline from memory to taps: addresses, memories, sorting of banks, padding."""
        config = self.config
        outputs = {(bank.row, bank.column): bank.word for bank in banks}

        # Stage 1 computes the word of row and column and the offset of the fold; stage 2 adds both; stage 3 is the
        # memory.
        width = max(1, (config.bank_depth - 1).bit_length())
        base: Value = walk.column.word
        if config.row_banks == 1:
            slots = [slot * config.row_words for slot in range(config.rows)]
            base = base + dense_table(m, "patch_slot_address", walk.slot, slots)
        base_1 = registered(m, "patch_address_1", base, width)
        for column in range(config.column_banks):
            ahead = config.column_interleaving.words_ahead(walk.column.bank, column, config.read_columns)
            fold_1 = registered(m, f"fold_offset_{column}_1", walk.input_fold + ahead, width)
            address = registered(m, f"read_address_{column}", base_1 + fold_1, width)
            for bank in banks:
                if bank.column == column:
                    m.d.comb += bank.address.eq(address)

        rows = self._rotate_rows(m, walk, outputs)
        pixels = self._rotate_columns(m, walk, rows)
        taps = self._choose(m, walk, pixels)
        for window, values in zip(self.o.payload.taps, taps, strict=True):
            m.d.comb += [tap.as_value().eq(value) for tap, value in zip(window, values, strict=True)]
        m.d.comb += [
            self.o.valid.eq(delayed(m, "valid", walk.stepping, config.latency, reset_less=False)),
            self.o.payload.first.eq(delayed(m, "is_first_step", walk.first, config.latency)),
            self.o.payload.last.eq(delayed(m, "is_last_step", walk.last, config.latency)),
        ]

    def _rotate_rows(self, m: Module, walk: _Walk, outputs: _Pixels) -> _Pixels:
        """Add the pipeline stage that sorts the row banks' words by row of the patch, and return the sorted words.

        Keys are (row of the patch, column bank). The stage exists only where every ring row has its own banks. Words
        that pass the output registers of block RAM are one cycle later, and the rotation is then part of the next
        stage.
        """
        config = self.config
        columns, banks = range(config.column_banks), config.row_banks
        if banks == 1:  # one bank stores all rows; if a patch has several rows, the ring has one row
            return {(row, column): outputs[0, column] for row in range(config.patch[0]) for column in columns}
        if config.registers_words:
            slot = delayed_fast(m, "patch_slot_index", walk.slot, 4)
        else:
            slot = delayed(m, "patch_slot_index", walk.slot, 3)
        rotated: _Pixels = {}
        for row, below in enumerate(config.patch_rows):
            for column in columns:
                word = Signal(config.word_bits, name=f"patch_row_{row}_{column}_selected")
                turn(m, word, slot, below, [outputs[bank, column] for bank in range(banks)])
                delay = int(not config.registers_words)
                rotated[row, column] = delayed(m, f"patch_row_{row}_{column}", word, delay)
        return rotated

    def _rotate_columns(self, m: Module, walk: _Walk, rows: _Pixels) -> _Pixels:
        """Add the stage that sorts the column banks' words by column and pads them; return words by row and column."""
        config = self.config
        stage = config.word_stage
        banks = config.column_banks
        phase = delayed(m, "patch_bank_index", walk.column.bank, stage)
        inside = None if walk.inside is None else delayed(m, "pixels_inside", walk.inside, stage - 1)
        if config.inside and inside is not None:
            inside_next = delayed(m, "taps_inside", inside, 1)
            columns = config.read_columns
            for window, bits in enumerate(self.o.payload.inside):
                for tap, (i, j) in enumerate(config.step_taps[0]):
                    column = columns.index(window * config.stride[1] + j * config.dilation[1])
                    m.d.comb += bits[tap].eq(inside_next[i * len(columns) + column])
        pad = config.pad_word
        pixels: _Pixels = {}
        for row in range(config.patch[0]):
            for index, column in enumerate(config.read_columns):
                value = Signal(config.word_bits, name=f"pixel_{row}_{column}")
                if banks == 1:
                    m.d.comb += value.eq(rows[row, 0])
                else:
                    turn(m, value, phase, column, [rows[row, bank] for bank in range(banks)])
                if inside is not None:
                    value = Mux(inside[row * len(config.read_columns) + index], value, pad)
                pixels[row, column] = registered(m, f"pixel_{row}_{column}_padded", value, config.word_bits)
        return pixels

    def _choose(self, m: Module, walk: _Walk, pixels: _Pixels) -> list[list[Value]]:
        """Add multiplexers of taps if a cycle reads more than it outputs; return a list of output taps per window."""
        config = self.config
        columns = config.patch_columns
        patch = list(product(range(config.patch[0]), range(len(columns))))
        tap_fold = delayed(m, "tap_fold_index", walk.round, config.latency - 1) if config.chooses else Const(0)
        chosen = []
        for window in range(config.pixels):
            left = window * config.stride[1]
            chosen.append(
                choose_taps(m, config, window, tap_fold, {(i, j): pixels[i, left + columns[j]] for i, j in patch})
            )
        return chosen


def turn(m: Module, result: Signal, phase: Value, offset: int, banks: Sequence[Value]) -> None:
    """Drive ``result`` with the word of the bank ``offset`` after bank ``phase``, counted cyclically."""
    with m.Switch(phase):
        for first in range(len(banks)):
            with m.Case(first):
                m.d.comb += result.eq(banks[(first + offset) % len(banks)])


def choose_taps(m: Module, config: LineBufferConfig, window: int, tap_fold: Value, pixels: _Pixels) -> list[Value]:
    """Return the taps of one of neighbouring windows, from the pixels that were read, by row and column of the patch.

    If more pixels are read than a step uses, one more stage selects the taps.
    """
    if not config.chooses:
        return list(pixels.values())
    chosen: list[Value] = []
    for tap in range(config.taps):
        register = registered(m, at_pixel(f"tap_{tap}", window, config.pixels), config.pad_word, config.word_bits)
        with m.Switch(tap_fold):
            for index, taps in enumerate(config.step_taps):
                if tap < len(taps):
                    with m.Case(index):
                        m.d.sync += register.eq(pixels[taps[tap]])
        chosen.append(register)
    return chosen
