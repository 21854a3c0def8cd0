"""Depth-concatenated line buffer: pixels in, the taps of every window out (DeCoILFNet, sections III-A and III-B).

The buffer is a ring of ``rows`` image rows. A writer fills it in raster order; a reader walks the windows and
reads ``patch`` taps a cycle straight from the memory, so a window needs no registers of its own and padding, row
ends and frame ends cost no cycle. Two signed counters decide everything:

- ``margin``: pixels written beyond those the next window needs; a window may start unless it is negative.
- ``space``: pixels that may still be written before a pixel is overwritten that a window of its frame needs, less
  those of the beat that comes in next; that beat is taken unless ``space`` is negative.

Memory is split into banks so that pixels read or written together never meet in one bank: column ``x`` lies in
column bank ``x mod column_banks``, and where a patch is higher than one row, each ring row has banks of its own.

The taps of a window may lie apart (dilation). Then as many column banks are taken as part the columns that are read
together, which mostly is no more than there are such columns: of a patch of three taps with dilation 2, columns 0, 2
and 4 lie in banks 0, 2 and 1 of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np
from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import (
    LOGIC,
    Cost,
    Resources,
    counter_bits,
    table_bits,
    trailing_zeros,
    uncommon,
)
from hwgen.gateware.lookup import (
    MEMORIES,
    bits_for_range,
    check_memory,
    default_memory,
    delayed,
    delayed_fast,
    dense_table,
    sparse_table,
)
from hwgen.gateware.naming import named
from hwgen.gateware.pieces import LUT_WAYS, WritePort, count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.stream import BeatFormat, at_pixel


@dataclass(frozen=True, kw_only=True)
class WindowSteps:
    """How a count of pixels grows from window to window, in three small tables.

    The windows that end an output row each have an entry of their own. Inside a row windows advance alike in every row
    that counts at all, so there the growth is a column's entry times 1 or 0 for the row.

    Parameters
    ----------
    ends : tuple of int
        By output row: at its last row step.
    columns : tuple of int
        By row step but the last: in rows that count.
    counts : tuple of int
        By output row: 1 if it counts, else 0.
    """

    ends: tuple[int, ...]
    columns: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, ends: tuple[int, ...], columns: tuple[int, ...], counts: tuple[int, ...]) -> WindowSteps:
        """Return the tables, shared by all configurations that have the same ones: a row may have 65,535 entries."""
        return cls(ends=ends, columns=columns, counts=counts)

    @cached_property
    def uncommon(self) -> int:
        """Entries that are not their table's commonest value; each costs a comparison."""
        return sum(map(uncommon, (self.ends, self.columns, self.counts if self.columns else ())))

    @cached_property
    def bits(self) -> int:
        """Registers that hold the growth of a window."""
        return table_bits({0, *self.ends, *self.columns})


@dataclass(frozen=True, kw_only=True)
class LineBufferConfig:
    """Geometry of a line buffer and of the walk over its windows.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in; its ``lanes`` are ``Tn``.
    kernel, stride : tuple of int
        Vertical, horizontal.
    padding : tuple of int
        Top, left, bottom, right; where it is negative, so many rows or columns of the map are in no window.
    pad_value : int
        What a tap in the padding reads as.
    taps : int
        ``Tk``: taps read in one cycle, at most the kernel's.
    output_folds : int
        How often each window is walked, for ``Tm`` output channels each time: ``ceil(M / groups / Tm)`` times for each
        of the input's groups. A ``channelwise`` walk goes once over each of the input's folds.
    channelwise : bool
        Each lane keeps its channel, as in pooling: output fold ``f`` sees input fold ``f`` alone.
    rows : int
        Rows the ring holds, at least those that a window covers.
    pixels : int
        ``Tp``: neighbouring windows walked at once.
    dilation : tuple of int
        Rows and columns from one tap of a window to the next.
    inside : bool
        A step says of each tap whether it lies in the map, not in the padding.
    memory_in : str, optional
        Where the banks lie, in ``lut`` or ``block`` RAM; by their depth if not given. Words come a cycle sooner from
        LUT RAM where those of block RAM go into its output registers.

    Raises
    ------
    ConfigError
        If no window fits, there are more taps than the kernel has, the rows don't hold a window, ``inside`` is asked
        for without padding or for parts of windows, or the RAM that is asked for can't hold a bank.
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

    #: Cycles from a pixel's last beat being taken to the start of the window that waits for it.
    write_delay = 1
    #: Cycles from the last step of a window to the first beat that may overwrite what it read.
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
        if self.rows < self.least_rows:
            raise ConfigError(f"rows must be at least the {self.least_rows} of a window, not {self.rows!r}")
        if min(self.output_height, self.output_width) < 1:
            raise ConfigError(
                f"input and padding must hold at least one {self.extent[0]} x {self.extent[1]} window, "
                f"not {self.input.height} x {self.input.width} with {self.padding!r}"
            )
        if self.output_folds < 1 or self.output_folds % self.groups:
            number = "integer" if self.groups == 1 else f"multiple of the {self.groups} groups"
            raise ConfigError(f"output_folds must be a positive {number}, not {self.output_folds!r}")
        if self.channelwise and self.group_output_folds > 1:
            raise ConfigError(f"output_folds must be {self.input.folds} for channelwise, not {self.output_folds!r}")
        least, most = self.input.value_range
        if not least <= self.pad_value <= most:
            raise ConfigError(f"pad_value must be a value of the input's type, not {self.pad_value!r}")
        if self.inside and (self.taps != kernel_taps or not self.padded):
            raise ConfigError("inside must be False without padding, and where a step has not all taps of the kernel")
        check_memory("memory_in", self.memory_in, self.bank_depth)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that a window covers, from its first tap to its last."""
        (height, width), (below, beside) = self.kernel, self.dilation
        return (height - 1) * below + 1, (width - 1) * beside + 1

    @property
    def padded(self) -> bool:
        """Whether a window may reach beyond the map."""
        return max(self.padding) > 0

    @property
    def last_pixels(self) -> int:
        """Pixels of a row's last beat."""
        return self.input.width - (self.input.row_steps - 1) * self.input.pixels

    @property
    def skipped(self) -> int:
        """Pixels of a frame's first rows, if these are in no window: they are given back before the frame begins."""
        return max(-self.padding[0], 0) * self.input.width

    @property
    def least_rows(self) -> int:
        """The fewest ``rows`` that hold a window."""
        return min(self.extent[0], self.input.height)

    @property
    def output_height(self) -> int:
        top, _, bottom, _ = self.padding
        return (self.input.height + top + bottom - self.extent[0]) // self.stride[0] + 1

    @property
    def output_width(self) -> int:
        _, left, _, right = self.padding
        return (self.input.width + left + right - self.extent[1]) // self.stride[1] + 1

    @property
    def row_steps(self) -> int:
        """Groups of windows walked at once in an output row: ``ceil(W_out / Tp)``."""
        return -(-self.output_width // self.pixels)

    @property
    def windows(self) -> int:
        """Groups of windows a frame."""
        return self.output_height * self.row_steps

    @property
    def groups(self) -> int:
        """Groups of channels: an output fold sees the input folds of its own group, and no others.

        With two groups, six input folds and four output folds, output folds 0 and 1 see input folds 0 to 2, and output
        folds 2 and 3 see input folds 3 to 5. In a channelwise walk each input fold is a group.
        """
        return self.input.folds if self.channelwise else self.input.groups

    @property
    def group_folds(self) -> int:
        """Input folds of a group: those that an output fold sees."""
        return self.input.folds // self.groups

    @property
    def group_output_folds(self) -> int:
        """Output folds of a group: they see the same input folds."""
        return self.output_folds // self.groups

    @cached_property
    def patch(self) -> tuple[int, int]:
        """Rows and columns of taps that are read in one cycle; as few rows as the taps allow.

        If the taps divide the kernel there is such a patch of just as many; otherwise it is the whole window, and
        the taps are chosen behind the memory.
        """
        height, width = self.kernel
        columns = next((c for c in range(min(self.taps, width), 0, -1) if _divides(c, self.taps, width, height)), None)
        return self.kernel if columns is None else (self.taps // columns, columns)

    @property
    def chooses(self) -> bool:
        """Whether a patch has more taps than are used in one cycle."""
        return self.patch[0] * self.patch[1] > self.taps

    @cached_property
    def step_taps(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Taps (row, column) of each tap fold, in the order they are walked; the last fold may have fewer."""
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
        """``ceil(Kh * Kw / Tk)``."""
        return len(self.step_taps)

    @property
    def steps(self) -> int:
        """Cycles an output fold takes."""
        return self.tap_folds * self.group_folds

    @property
    def window_cycles(self) -> int:
        """Cycles that the windows walked at once take."""
        return self.steps * self.output_folds

    @property
    def patch_advance(self) -> tuple[int, int]:
        """Rows and columns from a patch of a window to the next one below and beside it."""
        return self.patch[0] * self.dilation[0], self.patch[1] * self.dilation[1]

    @property
    def patch_rows(self) -> range:
        """Rows read in one cycle, counted from the patch's first."""
        return range(0, self.patch_advance[0], self.dilation[0])

    @property
    def patch_columns(self) -> range:
        """Columns read in one cycle for one window, counted from the patch's first."""
        return range(0, self.patch_advance[1], self.dilation[1])

    @cached_property
    def read_columns(self) -> Sequence[int]:
        """Columns read in one cycle for the patches of ``Tp`` windows, counted from the first; all in between too if
        taps are neighbours."""
        columns = self.used_columns
        return range(columns[-1] + 1) if self.dilation[1] == 1 else columns

    @cached_property
    def used_columns(self) -> Sequence[int]:
        """Columns read in one cycle that taps come from; synthesis leaves out what is read in between."""
        lefts = range(0, self.pixels * self.stride[1], self.stride[1])
        return sorted({left + column for left in lefts for column in self.patch_columns})

    @property
    def row_banks(self) -> int:
        return self.rows if self.patch[0] > 1 else 1

    @property
    def column_banks(self) -> int:
        return banks_apart(self.read_columns, self.input.pixels)

    @property
    def row_words(self) -> int:
        """Words one image row takes in one bank."""
        return -(-self.input.width // self.column_banks) * self.input.folds

    @property
    def bank_depth(self) -> int:
        """Words of one bank; a word is one beat."""
        return self.row_words * self.rows // self.row_banks

    @property
    def in_block_ram(self) -> bool:
        """Whether the banks lie in block RAM."""
        return (self.memory_in or default_memory(self.bank_depth)) == "block"

    @property
    def pieces(self) -> int:
        """Memories that a bank is made of."""
        return len(piece_words(self.word_bits, self.bank_depth, self.memory_in))

    @cached_property
    def registers_words(self) -> bool:
        """Whether words go from block RAM into its output registers: where more than one LUT would follow it."""
        number, _ = MEMORIES.stacked(self.word_bits, self.bank_depth)
        ways = self.row_banks if self.row_banks > 1 else self.column_banks
        padded = self.row_banks == 1 and self.padded
        return self.in_block_ram and number * ways + padded > LUT_WAYS

    @property
    def word_stage(self) -> int:
        """Cycles from a step being issued to its words being there for columns to be chosen."""
        return 3 + (self.row_banks > 1 or self.registers_words)

    @property
    def memory_bits(self) -> int:
        return self.row_banks * self.column_banks * self.bank_depth * self.word_bits

    @property
    def word_bits(self) -> int:
        """Width of a word: ``Tn`` channels of one pixel."""
        return self.input.lanes * self.input.bits

    @property
    def latency(self) -> int:
        """Cycles from a step being issued to its taps being on ``o``."""
        return self.word_stage + 1 + self.chooses

    @property
    def pad_word(self) -> Value:
        """``Tn`` channels of a pixel in the padding."""
        return Cat(Const(self.pad_value, self.input.shape) for _ in range(self.input.lanes))

    @property
    def first_space(self) -> int:
        """Pixels that may be written before the first frame, less those of its first beat."""
        return self.rows * self.input.width + self.skipped - min(self.input.pixels, self.input.width)

    @property
    def space_range(self) -> tuple[int, int]:
        """The least and the greatest number of pixels that may be written, less those of the next beat."""
        most = self.rows * self.input.width + self.skipped + self.input.frame_pixels - self.last_pixels
        return -min(self.input.pixels, self.input.width), most

    def needed(self, row: int, step: int) -> int:
        """Pixels of the frame that must be written before the windows of ``row`` and row step ``step`` start."""
        bottom = min(max(row * self.stride[0] - self.padding[0] + self.extent[0] - 1, 0), self.input.height - 1)
        return bottom * self.input.width + self._rights[step] + 1

    @property
    def _rights(self) -> tuple[int, ...]:
        """Column of the last pixel of the map that the windows of each row step need."""
        # Windows that begin right of the map need nothing of it.
        begins = (self.input.width - 1 + self.padding[1]) // self.stride[1]
        last, offset = min(self.output_width - 1, begins), self.extent[1] - 1 - self.padding[1]
        return _columns(self.row_steps, self.pixels, last, self.stride[1], offset, self.input.width - 1)

    @property
    def _lefts(self) -> tuple[int, ...]:
        """Leading pixels of a row that no window behind each row step needs."""
        last, offset = self.row_steps * self.pixels, self.stride[1] - self.padding[1]
        return _columns(self.row_steps, self.pixels, last, self.stride[1], offset, self.input.width)

    def released(self, row: int, step: int) -> int:
        """Leading pixels of the frame that no window after those of (``row``, ``step``) needs; behind the last one also
        those of the next frame that none needs."""
        height, width = self.input.height, self.input.width
        top = row * self.stride[0] - self.padding[0]
        if step == self.row_steps - 1:
            if row == self.output_height - 1:
                return height * width + self.skipped
            return min(max(top + self.stride[0], 0), height) * width
        if top + self.stride[0] <= 0 or top >= height:
            return min(max(top, 0), height) * width
        return max(top, 0) * width + self._lefts[step]

    @cached_property
    def need_steps(self) -> WindowSteps:
        """How ``needed`` grows from a window to the next; the last window of a frame is followed by the next frame's
        first."""
        rows, last = range(self.output_height), self.row_steps - 1
        ends = [self.needed(row + 1, 0) - self.needed(row, last) for row in rows[:-1]]
        ends.append(self.input.frame_pixels + self.needed(0, 0) - self.needed(rows[-1], last))
        columns = _growth(self._rights)
        return WindowSteps.of(tuple(ends), columns, (int(any(columns)),) * len(rows))

    @cached_property
    def release_steps(self) -> WindowSteps:
        """How ``released`` grows with each window."""
        rows, last = range(self.output_height), self.row_steps - 1
        befores = [self.skipped, *(self.released(row, last) for row in rows[:-1])]
        ends = tuple(
            self.released(row, last) - (self.released(row, last - 1) if last else before)
            for row, before in zip(rows, befores, strict=True)
        )
        # Rows count that begin in the map, or above it if the next ones don't.
        tops = [row * self.stride[0] - self.padding[0] for row in rows]
        counts = [int(top + self.stride[0] > 0 and top < self.input.height) for top in tops]
        columns = (0,) * last
        if last and any(counts):
            row = counts.index(1)
            first = max(tops[row], 0) * self.input.width + self._lefts[0] - befores[row]
            columns = (first, *_growth(self._lefts)[: last - 1])
        grows = any(columns)
        return WindowSteps.of(ends, columns, tuple(count * grows for count in counts))

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``taps[window][tap][lane]``, and its place in the fold; ``inside[window][tap]`` if asked for."""
        taps = data.ArrayLayout(data.ArrayLayout(self.input.shape, self.input.lanes), self.taps)
        inside = {"inside": data.ArrayLayout(data.ArrayLayout(1, self.taps), self.pixels)} if self.inside else {}
        return data.StructLayout({"taps": data.ArrayLayout(taps, self.pixels), "first": 1, "last": 1, **inside})

    @property
    def turns(self) -> bool:
        """Whether patches begin in different rows of the ring, so that the rows' banks must be turned."""
        frame = self.input.height - (self.output_height - 1) * self.stride[0]
        return any(rows % self.rows for rows in (self.stride[0], frame, self.patch_advance[0]))

    @property
    def choice_luts(self) -> int:
        """LUTs a bit of a word that choose the taps of a window, where a patch has more than are used."""
        return sum(LOGIC.mux_luts(sum(tap < len(taps) for taps in self.step_taps)) for tap in range(self.taps))

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        row_banks, column_banks, word = self.row_banks, self.column_banks, self.word_bits
        patch_rows, reads = self.patch[0], len(self.used_columns)
        for _ in range(row_banks * column_banks):
            count_pieces(cost, word, self.bank_depth, self.memory_in)

        # Data path behind the memories.
        if self.registers_words:
            cost.ff += row_banks * column_banks * self.pieces * word
            cost.lut += row_banks * column_banks * word * LOGIC.mux_luts(self.pieces)
        elif row_banks > 1:
            cost.ff += patch_rows * column_banks * word
        if row_banks > 1 and self.turns:
            # Multiplexers of seven ways take two LUTs with selects that are decoded for all of them; where seven rows
            # are read at once Yosys keeps the selects, and takes three. Of rows that lie apart it keeps some.
            ways = 3 if row_banks == patch_rows == 7 else LOGIC.mux_luts(row_banks)
            kept = 0.5 if row_banks in (7, 8) and self.dilation[0] > 1 and ways == 2 else 0
            cost.lut += patch_rows * column_banks * word * (ways + kept)
        cost.ff += patch_rows * reads * word
        cost.lut += patch_rows * reads * word * LOGIC.rotation(column_banks, padded=self.padded)
        if self.chooses:
            cost.ff += self.pixels * self.taps * word
            cost.lut += self.pixels * word * self.choice_luts
        # Data path in front of them: a bank that gets nothing in this cycle is given zeros.
        if column_banks > 1:
            cost.lut += column_banks * word * (column_banks // gcd(column_banks, self.input.pixels) > 1)

        # Control.
        counters = self._counter_ff
        cost.ff += counters + 2 * counter_bits(self.pieces) * row_banks * column_banks
        if column_banks > 1:
            cost.delay(counter_bits(column_banks), self.word_stage)
        if row_banks > 1 and self.turns:
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
        """LUTs of counters with so many registers, tables and write enables: fitted."""
        width, banks = max(1, counter_bits(self.bank_depth)), self.column_banks
        entries = self.need_steps.uncommon + self.release_steps.uncommon
        if banks == self.row_banks == 1:
            total = 1.26 * (counters - width) + 0.64 * width + 0.6 * entries + 20.6 * self.padded
            return total + 3.2 * (self.rows > 1) + 3.3 * self.tap_folds * self.chooses
        total = 1.33 * (counters - banks * width) + 0.7 * banks * width + 2.6 * entries
        if banks > 1:
            # Where rows are written from the same bank on, all banks have one address, and no choice of pixels.
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
        """Registers of the counters."""
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
        most = 2 * source.frame_pixels + capacity + self.skipped
        total = bits_for_range(-most, most).width
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
        turns = self.tap_folds if self.chooses else self.kernel[0] // self.patch[0]
        total += counter_bits(turns)
        if not self.chooses and turns > 1 and self.padded:
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
        if self.turns:
            total += 2 * counter_bits(self.rows)
        total += width + banks * width
        # Words that a bank may be ahead; of bits where taps are neighbours, it is one.
        ahead = max(1, ((banks - 1 + self.read_columns[-1]) // banks).bit_length())
        if folds & (folds - 1):
            return total + banks * (counter_bits(folds) + ahead)
        # The banks' sums have all bits but the highest in common.
        return total + counter_bits(folds) + banks * ahead - 1


@lru_cache(maxsize=64)
def _columns(steps: int, pixels: int, last: int, stride: int, offset: int, most: int) -> tuple[int, ...]:
    """Return the column, within 0 to ``most``, that belongs to the last window of each row step.

    Window ``n`` has the column ``min(n, last) * stride + offset``. Configurations that differ in nothing but lanes and
    folds share the result, as a search for unroll factors asks for thousands of them.
    """
    windows = np.minimum(np.arange(1, steps + 1) * pixels - 1, last)
    return tuple(np.clip(windows * stride + offset, 0, most).tolist())


@lru_cache(maxsize=64)
def _growth(positions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the difference of each position from the one before it."""
    return tuple(np.diff(positions).tolist())


def walk_ports(config: LineBufferConfig) -> dict[str, wiring.Member]:
    """The ports of what takes a feature map and walks its windows; `LineBuffer` describes them."""
    return {
        "i": In(config.input.signature),
        "room": In(1),
        "fold": Out(range(config.output_folds)),
        "start": Out(1),
        "o": Out(stream.Signature(config.step_layout, always_ready=True)),
    }


@dataclass(frozen=True)
class _Bank:
    """One or several memories, and their place among the banks; ``word`` is what lies at ``address``, as it is read."""

    row: int
    column: int
    write: WritePort
    address: Signal
    word: Value


@dataclass(frozen=True)
class _Writer:
    """Pixels written in this cycle, and then pixels of the step that follows the one that is complete; 0 otherwise."""

    written: Value
    upcoming: Value


#: Pixels (``word_bits`` wide) by row and column.
_Pixels = dict[tuple[int, int], Value]


def _divides(columns: int, taps: int, width: int, height: int) -> bool:
    """Whether patches of ``taps`` taps, ``columns`` wide, tile a ``height x width`` kernel."""
    return taps % columns == 0 and width % columns == 0 and height % (taps // columns) == 0


def banks_apart(places: Sequence[int], least: int = 1) -> int:
    """The fewest banks, ``least`` or more, in which pixels at these places along an axis never meet."""
    banks = max(len(places), least)
    while len({place % banks for place in places}) < len(places):
        banks += 1
    return banks


def words_ahead(phase: Value, bank: int, places: Sequence[int], banks: int, pitch: int) -> Value:
    """How many words beyond that of a pixel in bank ``phase`` a bank is read, if it holds one that lies at one of these
    places from there; ``pitch`` is the words from a pixel to the next one in the same bank."""
    if places[-1] < banks:
        return named(Mux(bank < phase, pitch, 0), "words_ahead")
    words = {}
    for first in range(banks):
        turns = (((first + place) // banks, (first + place) % banks) for place in places)
        words[first] = next((turn * pitch for turn, there in turns if there == bank), 0)
    return sparse_table(phase, words)


def _wraps(phase: Value, turn: int, banks: int) -> Value:
    """Whether ``phase + turn`` is ``banks`` or more; looked up, as what depends on it has a carry chain already."""
    return sparse_table(phase, {number: int(number + turn >= banks) for number in range(banks)})


class _Walk:
    """The reader's counters: where in which window it is, and what that means for addresses.

    Everything here belongs to one step; it is used in the cycle in which ``stepping`` is high.
    """

    def __init__(self, m: Module, config: LineBufferConfig, room: Value):
        self._m, self._config = m, config
        rows_on, columns_on = config.patch_advance
        last_row, last_step = config.output_height - 1, config.row_steps - 1
        turns = config.tap_folds if config.chooses else config.kernel[0] // config.patch[0]

        self.window_ready = Signal(name="window_ready")
        self.top = self._position("window_top_row", [self.top_of(row) for row in range(last_row + 1)])
        self.left = self._position("window_left_column", [self.left_of(step) for step in range(last_step + 1)])
        self.fold = Signal(range(config.output_folds), name="output_fold_index")
        self.turn = Signal(
            range(turns), name="tap_fold_index" if config.chooses else "patch_row_index"
        )  # of patch rows; where the taps are chosen, the tap fold
        patch_row = Signal(range(config.extent[0]), name="patch_row_offset")
        patch_column = Signal(range(config.extent[1]), name="patch_column_offset")
        inner = Signal(range(config.group_folds), name="inner_fold_index")  # input fold within the group

        inner_ends = named(inner == config.group_folds - 1, "is_inner_end")
        across_ends = named(
            inner_ends & (patch_column == config.kernel[1] * config.dilation[1] - columns_on), "is_across_end"
        )
        self.first = Signal(name="is_first_step")
        self.last = Signal(name="is_last_step")
        self.stepping = Signal(name="step_valid")
        self.start = Signal(name="fold_start")
        self.window_starts = Signal(name="window_start")
        self.window_ends = Signal(name="window_end")
        self.row_ends = Signal(name="is_row_end")
        fold_ends = Signal(name="fold_end")
        window_last = Signal(name="is_last_fold")
        frame_ends = Signal(name="is_frame_end")
        m.d.comb += [
            self.first.eq((inner == 0) & (patch_column == 0) & (self.turn == 0)),
            self.last.eq(across_ends & (self.turn == turns - 1)),
            self.start.eq(self.first & room & ((self.fold != 0) | self.window_ready)),
            self.stepping.eq(self.start | ~self.first),
            window_last.eq(self.fold == config.output_folds - 1),
            fold_ends.eq(self.stepping & self.last),
            self.window_starts.eq(self.start & (self.fold == 0)),
            self.window_ends.eq(fold_ends & window_last),
            self.row_ends.eq(self.left == self.left_of(last_step)),
            frame_ends.eq(self.row_ends & (self.top == self.top_of(last_row))),
        ]

        with m.If(self.stepping):
            m.d.sync += inner.eq(Mux(inner_ends, 0, inner + 1))
            with m.If(inner_ends):
                m.d.sync += patch_column.eq(Mux(across_ends, 0, patch_column + columns_on))
            with m.If(across_ends):
                m.d.sync += self.turn.eq(Mux(self.last, 0, self.turn + 1))
                if not config.chooses:
                    m.d.sync += patch_row.eq(Mux(self.last, 0, patch_row + rows_on))
        with m.If(fold_ends):
            m.d.sync += self.fold.eq(Mux(window_last, 0, self.fold + 1))
        with m.If(self.window_ends):
            ahead = config.stride[1] * config.pixels
            m.d.sync += self.left.eq(Mux(self.row_ends, self.left_of(0), self.left + ahead))
            with m.If(self.row_ends):
                m.d.sync += self.top.eq(Mux(frame_ends, self.top_of(0), self.top + config.stride[0]))

        self._count_input_folds(inner_ends, fold_ends, window_last)
        self._count_columns(inner_ends, across_ends)
        self._count_slots(across_ends, fold_ends, frame_ends)
        self.inside = self._inside(patch_row, patch_column)

    def top_of(self, row: int) -> int:
        """Image row of the top of the windows in output row ``row``."""
        return row * self._config.stride[0] - self._config.padding[0]

    def left_of(self, step: int) -> int:
        """Image column of the left of the first window in row step ``step``."""
        return step * self._config.pixels * self._config.stride[1] - self._config.padding[1]

    def _position(self, name: str, values: list[int]) -> Signal:
        return Signal(bits_for_range(values[0], values[-1]), name=name, init=values[0])

    def _count_input_folds(self, inner_ends: Value, fold_ends: Value, window_last: Value) -> None:
        """``input_fold``: the input fold of the step, counted over all groups."""
        m, config = self._m, self._config
        self.input_fold = Signal(range(config.input.folds), name="input_fold_index")
        if config.groups == 1:
            restart: Value = Const(0)
        else:
            first = Signal(range(config.input.folds), name="group_first_fold")
            following = Signal(range(config.input.folds), name="next_group_first_fold")
            member = Signal(
                range(config.group_output_folds), name="group_output_fold_index"
            )  # output fold within the group
            group_ends = member == config.group_output_folds - 1
            m.d.comb += following.eq(first)
            with m.If(fold_ends):
                m.d.sync += member.eq(Mux(group_ends, 0, member + 1))
                with m.If(group_ends):
                    m.d.comb += following.eq(Mux(window_last, 0, first + config.group_folds))
            m.d.sync += first.eq(following)
            restart = following
        with m.If(self.stepping):
            m.d.sync += self.input_fold.eq(Mux(inner_ends, restart, self.input_fold + 1))

    def _count_columns(self, inner_ends: Value, across_ends: Value) -> None:
        """``phase``: the patch's left column modulo the banks; ``column_word``: the word of that column's pixel."""
        m, config = self._m, self._config
        banks, folds = config.column_banks, config.input.folds
        first_word, first_phase = divmod(self.left_of(0), banks)
        width = max(1, (config.bank_depth - 1).bit_length())
        first_word = first_word * folds % (1 << width)

        def counters(name: str) -> tuple[Signal, Signal]:
            word = Signal(width, name=f"{name}_word_address", init=first_word)
            return word, Signal(range(banks), name=f"{name}_bank_index", init=first_phase)

        def ahead(word: Value, phase: Value, columns: int) -> tuple[Value, Value]:
            words, turn = divmod(columns, banks)
            wraps = _wraps(phase, turn, banks)
            return (
                word + Mux(wraps, (words + 1) * folds, words * folds),
                named(Mux(wraps, phase + turn - banks, phase + turn), "bank_phase_ahead"),
            )

        window_word, window_phase = counters("window")
        self.column_word, self.phase = counters("patch")
        next_word = Signal(width, name="next_window_word_address")
        next_phase = Signal(range(banks), name="next_window_bank_index")
        m.d.comb += [next_word.eq(window_word), next_phase.eq(window_phase)]
        with m.If(self.window_ends):
            word, phase = ahead(window_word, window_phase, config.stride[1] * config.pixels)
            m.d.comb += [
                next_word.eq(Mux(self.row_ends, first_word, word)),
                next_phase.eq(Mux(self.row_ends, first_phase, phase)),
            ]
        m.d.sync += [window_word.eq(next_word), window_phase.eq(next_phase)]
        with m.If(self.stepping & inner_ends):
            word, phase = ahead(self.column_word, self.phase, config.patch_advance[1])
            m.d.sync += [
                self.column_word.eq(Mux(across_ends, next_word, word)),
                self.phase.eq(Mux(across_ends, next_phase, phase)),
            ]

    def _count_slots(self, across_ends: Value, fold_ends: Value, frame_ends: Value) -> None:
        """``slot``: the ring slot of the patch's top row."""
        m, config = self._m, self._config
        slots = config.rows

        def ahead(name: str, slot: Value, rows: int) -> Value:
            return dense_table(m, name, slot, [(number + rows) % slots for number in range(slots)])

        frame_rows = config.input.height - (config.output_height - 1) * config.stride[0]
        top_slot = Signal(range(slots), name="window_slot_index", init=self.top_of(0) % slots)
        self.slot = Signal(range(slots), name="patch_slot_index", init=self.top_of(0) % slots)
        next_top = Signal(range(slots), name="next_window_slot_index")
        m.d.comb += next_top.eq(top_slot)
        with m.If(self.window_ends & self.row_ends):
            m.d.comb += next_top.eq(
                Mux(
                    frame_ends,
                    ahead("next_frame_slot_index", top_slot, frame_rows),
                    ahead("next_row_slot_index", top_slot, config.stride[0]),
                )
            )
        m.d.sync += top_slot.eq(next_top)
        with m.If(fold_ends):
            m.d.sync += self.slot.eq(next_top)
        if not config.chooses:
            with m.Elif(self.stepping & across_ends):
                m.d.sync += self.slot.eq(ahead("next_patch_slot_index", self.slot, config.patch_advance[0]))

    def _inside(self, patch_row: Value, patch_column: Value) -> Value | None:
        """A bit for each row and column read, a cycle later: it lies in the map, not in the padding. ``None`` without
        padding."""
        m, config = self._m, self._config
        if not config.padded:
            return None

        def inside(name: str, first: Value, size: int, places: Sequence[int]) -> list[Value]:
            # The sum and its comparisons, a carry chain each, are parted by a register.
            first_1 = Signal(first.shape(), name=f"{name}_1", reset_less=True)
            m.d.sync += first_1.eq(first)
            return [named((first_1 >= -number) & (first_1 < size - number), "is_inside") for number in places]

        rows = inside("patch_top_row", self.top + patch_row, config.input.height, config.patch_rows)
        columns = inside("patch_left_column", self.left + patch_column, config.input.width, config.read_columns)
        return Cat(named(row & column, "is_pixel_inside") for row in rows for column in columns)


class LineBuffer(wiring.Component):
    """Ring of image rows, and the walk over its windows.

    For each output pixel in raster order, output folds go outside, then the patches of the window, input folds
    innermost: one step a cycle, without a pause inside an output fold.

    Parameters
    ----------
    config : LineBufferConfig

    Members
    -------
    i : In(stream)
        The feature map; ``last`` is counted, not read.
    room : In(1)
        The next output fold may start.
    fold : Out
        Number of the output fold that starts next.
    start : Out(1)
        High in the cycle in which it does.
    o : Out(stream, always ready)
        The steps.

    Latency and throughput
        A fold takes ``config.steps`` cycles; its first step is on ``o`` ``config.latency`` cycles after ``start``.
        A window starts at the earliest ``config.write_delay`` cycles after the last pixel it needs was taken. A pixel
        is taken at the earliest ``config.release_delay`` cycles after the last step of the last window that
        needs what it overwrites (in raster order: a row is given back from the left).
    """

    def __init__(self, config: LineBufferConfig):
        self._config = config
        super().__init__(walk_ports(config))

    @property
    def config(self) -> LineBufferConfig:
        return self._config

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
        """The memories."""
        places = [(row, column) for row in range(self.config.row_banks) for column in range(self.config.column_banks)]
        return [self._elaborate_bank(m, *place) for place in places]

    def _elaborate_bank(self, m: Module, row: int, column: int) -> _Bank:
        """A bank; in pieces if it is so deep that choosing among its block RAMs would take long."""
        config = self.config
        write, address, word = memory_in_pieces(
            m,
            f"bank_{row}_{column}",
            width=config.word_bits,
            depth=config.bank_depth,
            registered=config.registers_words,
            where=config.memory_in,
        )
        return _Bank(row, column, write, address, word)

    def _elaborate_writer(self, m: Module, banks: list[_Bank]) -> _Writer:
        """Pixels come in row-major order, ``input.pixels`` at once, and go round the column banks."""
        config = self.config
        folds, pixels, steps = config.input.folds, config.input.pixels, config.input.row_steps
        short = config.last_pixels
        taken = Signal(name="input_transfer")
        step_ends = Signal(name="write_step_end")
        row_last = Signal(name="is_last_write_step")
        row_ends = Signal(name="write_row_end")
        step = Signal(range(steps), name="write_step_index")
        phase = Signal(range(config.column_banks), name="write_bank_index")  # first column mod column banks
        slot = Signal(range(config.rows), name="write_slot_index")
        fold = Signal(range(folds), name="write_fold_index")
        word = Signal(range(config.bank_depth), name="write_word_address")  # of the first column, fold 0
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            step_ends.eq(taken & (fold == folds - 1)),
            row_last.eq(step == steps - 1),
            row_ends.eq(step_ends & row_last),
        ]
        # Beside the fold the same one word step on, so that an address is one sum.
        ahead = Signal(range(folds, 2 * folds), name="write_fold_index_next_word", init=folds)
        with m.If(taken):
            m.d.sync += [
                fold.eq(Mux(step_ends, 0, fold + 1)),
                ahead.eq(Mux(step_ends, folds, ahead + 1)),
            ]
        with m.If(step_ends):
            words, turn = divmod(pixels, config.column_banks)
            wraps = _wraps(phase, turn, config.column_banks)
            m.d.sync += [
                step.eq(Mux(row_last, 0, step + 1)),
                phase.eq(Mux(wraps, phase + turn - config.column_banks, phase + turn)),
                word.eq(word + Mux(wraps, (words + 1) * folds, words * folds)),
            ]
        with m.If(row_ends):
            m.d.sync += [slot.eq(Mux(slot == config.rows - 1, 0, slot + 1)), phase.eq(0), word.eq(0)]
            if config.row_banks == 1:
                starts = [(number + 1) % config.rows * config.row_words for number in range(config.rows)]
                m.d.sync += word.eq(dense_table(m, "next_write_row_address", slot, starts))

        values = self.i.payload.data
        with m.Switch(phase):
            for first in range(config.column_banks):
                with m.Case(first):
                    for bank in banks:
                        pixel = (bank.column - first) % config.column_banks
                        m.d.comb += bank.write.addr.eq(word + (ahead if bank.column < first else fold))
                        if pixel < pixels:
                            here = named(taken if pixel < short else taken & ~row_last, "is_pixel_written")
                            m.d.comb += [
                                bank.write.data.eq(Cat(lane[pixel] for lane in values)),
                                bank.write.en.eq(here if config.row_banks == 1 else here & (slot == bank.row)),
                            ]
        count = Signal(range(pixels + 1), name="write_pixels")  # in the step that is being written
        m.d.comb += count.eq(Mux(row_last, short, pixels))
        written = named(Mux(step_ends, count, 0), "written_pixels")
        if short == pixels or steps == 1:
            return _Writer(written, written)
        following = Signal(range(pixels + 1), name="next_write_pixels")
        m.d.comb += following.eq(Mux(step == steps - 2, short, pixels))
        return _Writer(written, upcoming=Mux(step_ends, following, 0))

    def _elaborate_flow(self, m: Module, walk: _Walk, writer: _Writer) -> None:
        """``margin`` and ``space``."""
        config = self.config
        need = self._by_window(walk, config.need_steps)
        most = 2 * config.input.frame_pixels + config.rows * config.input.width + config.skipped
        margin = Signal(bits_for_range(-most, most), name="margin", init=-config.needed(0, 0))
        used = Signal.like(need, name="used_pixels")
        # The next window asks for it no sooner than two cycles later, unless windows take but one.
        domain = m.d.sync if config.window_cycles > 1 else m.d.comb
        domain += used.eq(Mux(walk.window_starts, need, 0))
        m.d.sync += margin.eq(margin + writer.written - used)
        # The sign bit, not a comparison: that would be a second carry chain on the path that starts windows.
        m.d.comb += walk.window_ready.eq(~margin[-1])

        released = Signal(range(config.input.frame_pixels + config.skipped + 1), name="released_pixels")
        m.d.sync += released.eq(Mux(walk.window_ends, self._by_window(walk, config.release_steps), 0))
        released = delayed(m, "released_pixels", released, config.release_delay - 2, reset_less=False)
        # The pixels of the beat that comes in next are taken off already, so that the sign bit tells whether there is
        # room for it: a comparison would be a second carry chain on the path from here to ``margin``.
        least, most = config.space_range
        space = Signal(bits_for_range(least, most), name="space", init=config.first_space)
        m.d.sync += space.eq(space + released - writer.upcoming)
        m.d.comb += self.i.ready.eq(~space[-1])

    def _by_window(self, walk: _Walk, steps: WindowSteps) -> Value:
        """Look up what belongs to the window the walk is at."""
        at_end = sparse_table(walk.top, {walk.top_of(row): value for row, value in enumerate(steps.ends)})
        if not steps.columns:
            return at_end
        columns = {walk.left_of(step): value for step, value in enumerate(steps.columns)}
        counts = {walk.top_of(row): value for row, value in enumerate(steps.counts)}
        in_row = Mux(sparse_table(walk.top, counts), sparse_table(walk.left, columns), 0)
        return named(Mux(walk.row_ends, at_end, in_row), "steps_to_next_window")

    def _elaborate_fetch(self, m: Module, walk: _Walk, banks: list[_Bank]) -> None:
        """Addresses, memory, rotation of the banks to the taps, padding: the reading pipeline."""
        config = self.config
        outputs = {(bank.row, bank.column): bank.word for bank in banks}

        # Stage 1: the row's and the column's word, and the fold's; stage 2: the sum; stage 3: the memory.
        width = max(1, (config.bank_depth - 1).bit_length())
        base: Value = walk.column_word
        if config.row_banks == 1:
            slots = [slot * config.row_words for slot in range(config.rows)]
            base = base + dense_table(m, "patch_slot_address", walk.slot, slots)
        base_1 = Signal(width, name="patch_address_1", reset_less=True)
        m.d.sync += base_1.eq(base)
        for column in range(config.column_banks):
            fold_1 = Signal(width, name=f"fold_offset_{column}_1", reset_less=True)
            ahead = words_ahead(walk.phase, column, config.read_columns, config.column_banks, config.input.folds)
            m.d.sync += fold_1.eq(walk.input_fold + ahead)
            address = Signal(width, name=f"read_address_{column}", reset_less=True)
            m.d.sync += address.eq(base_1 + fold_1)
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
        """Stage 4, where each row has its own banks: by row of the patch and column bank.

        Words of block RAM have just come into its output registers; their rows are chosen in the next stage.
        """
        config = self.config
        columns, banks = range(config.column_banks), config.row_banks
        if banks == 1:  # one bank holds every row; where a patch has several, the ring has but one
            return {(row, column): outputs[0, column] for row in range(config.patch[0]) for column in columns}
        late = config.registers_words
        slot = (
            delayed_fast(m, "patch_slot_index", walk.slot, 4) if late else delayed(m, "patch_slot_index", walk.slot, 3)
        )
        rotated: _Pixels = {}
        for row, below in enumerate(config.patch_rows):
            for column in columns:
                turned = Signal(config.word_bits, name=f"patch_row_{row}_{column}_selected")
                with m.Switch(slot):
                    for first in range(banks):
                        with m.Case(first):
                            m.d.comb += turned.eq(outputs[(first + below) % banks, column])
                rotated[row, column] = turned if late else delayed(m, f"patch_row_{row}_{column}", turned, 1)
        return rotated

    def _rotate_columns(self, m: Module, walk: _Walk, rows: _Pixels) -> _Pixels:
        """The next stage: by row and column of the patch, with the padding."""
        config = self.config
        stage = config.word_stage
        banks = config.column_banks
        phase = delayed(m, "patch_bank_index", walk.phase, stage)
        inside = None if walk.inside is None else delayed(m, "pixels_inside", walk.inside, stage - 1)
        if config.inside and inside is not None:
            late = delayed(m, "taps_inside", inside, 1)
            columns = config.read_columns
            for window, bits in enumerate(self.o.payload.inside):
                for tap, (i, j) in enumerate(config.step_taps[0]):
                    column = columns.index(window * config.stride[1] + j * config.dilation[1])
                    m.d.comb += bits[tap].eq(late[i * len(columns) + column])
        pad = config.pad_word
        pixels: _Pixels = {}
        for row in range(config.patch[0]):
            for number, column in enumerate(config.read_columns):
                value = Signal(config.word_bits, name=f"pixel_{row}_{column}")
                if banks == 1:
                    m.d.comb += value.eq(rows[row, 0])
                else:
                    with m.Switch(phase):
                        for first in range(banks):
                            with m.Case(first):
                                m.d.comb += value.eq(rows[row, (first + column) % banks])
                if inside is not None:
                    value = Mux(inside[row * len(config.read_columns) + number], value, pad)
                pixels[row, column] = register = Signal(
                    config.word_bits, name=f"pixel_{row}_{column}_padded", reset_less=True
                )
                m.d.sync += register.eq(value)
        return pixels

    def _choose(self, m: Module, walk: _Walk, pixels: _Pixels) -> list[list[Value]]:
        """Taps of each window, in the order of the step; one more stage where a patch has more than are used."""
        config = self.config
        windows = [column * config.stride[1] for column in range(config.pixels)]
        if not config.chooses:
            patch = [(i, j) for i in range(config.patch[0]) for j in config.patch_columns]
            return [[pixels[i, left + j] for i, j in patch] for left in windows]
        turn = delayed(m, "tap_fold_index", walk.turn, config.latency - 1)
        pad = config.pad_word
        chosen: list[list[Value]] = []
        for window, left in enumerate(windows):
            chosen.append([])
            for tap in range(config.taps):
                register = Signal(config.word_bits, name=at_pixel(f"tap_{tap}", window, config.pixels), reset_less=True)
                m.d.sync += register.eq(pad)
                with m.Switch(turn):
                    for number, taps in enumerate(config.step_taps):
                        if tap < len(taps):
                            i, j = taps[tap]
                            with m.Case(number):
                                m.d.sync += register.eq(pixels[i, left + config.patch_columns[j]])
                chosen[-1].append(register)
        return chosen
