"""Parameters of a line buffer: the windows that it reads from a feature map, their order, and the stored rows.

`TapPatches` says which taps of a kernel are read in one cycle, and in which order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from amaranth import Cat, Const, Value
from amaranth.lib import data

from hwgen.devices import Logic
from hwgen.gateware.component import OnDevice
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.windows.window_grid import WindowGrid


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


#: Cached constructor of `WindowGrid`, whose tables can have 65,535 entries. A search for unroll factors makes thousands
#: of configurations with the same grid, which differ only in lanes and folds.
_grid_of = lru_cache(maxsize=64)(WindowGrid)


@dataclass(frozen=True, kw_only=True)
class WindowParameters(OnDevice):
    """Parameters of a line buffer: stored image rows, windows, and the output order of their taps.

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
        latency is one cycle shorter with LUT RAM if words of block RAM would pass its output registers. Words of
        UltraRAM always pass its output registers.
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

    @cached_property
    def grid(self) -> WindowGrid:
        """`WindowGrid`: positions of the windows in the feature map, and the pixels that each needs and releases."""
        return _grid_of((self.input.height, self.input.width), self.extent, self.stride, self.padding, self.pixels)

    @cached_property
    def patches(self) -> TapPatches:
        """`TapPatches`: the patches of kernel taps that the line buffer reads, one in each cycle."""
        return TapPatches(self.kernel, self.dilation, self.taps, self.pixels, self.stride[1])

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that a window covers, dilation included, as a pair."""
        (height, width), (below, beside) = self.kernel, self.dilation
        return (height - 1) * below + 1, (width - 1) * beside + 1

    @property
    def padded(self) -> bool:
        """Whether a window can reach beyond the map, into the padding."""
        return max(self.padding) > 0

    @property
    def output_height(self) -> int:
        """Height of the output map, in pixels: number of window rows."""
        return self.grid.output_size[0]

    @property
    def output_width(self) -> int:
        """Width of the output map, in pixels: number of windows per output row."""
        return self.grid.output_size[1]

    @property
    def windows(self) -> int:
        """Number of groups of ``Tp`` neighbouring windows per frame."""
        return self.output_height * self.grid.row_steps

    @property
    def groups(self) -> int:
        """Number of channel groups, whose output channels read only their own group's input channels.

        With two groups, six input folds (sets of ``Tn`` channels) and four output folds (sets of ``Tm``), output folds
        0 and 1 read input folds 0 to 2, and output folds 2 and 3 read input folds 3 to 5. In a channelwise walk every
        input fold is a group.
        """
        return self.input.folds if self.channelwise else self.input.groups

    @property
    def group_folds(self) -> int:
        """Number of input folds (sets of ``Tn`` input channels) per channel group.

        An output fold reads all of them.
        """
        return self.input.folds // self.groups

    @property
    def group_output_folds(self) -> int:
        """Number of output folds (passes over ``Tm`` output channels) per channel group.

        All of them read the same input folds.
        """
        return self.output_folds // self.groups

    @property
    def tap_folds(self) -> int:
        """Cycles that read all taps of a window for ``Tn`` input channels: ``ceil(Kh * Kw / Tk)``."""
        return len(self.patches.step_taps)

    @property
    def steps(self) -> int:
        """Cycles per window that read all activations for ``Tm`` output channels: tap folds times input folds."""
        return self.tap_folds * self.group_folds

    @property
    def window_cycles(self) -> int:
        """Cycles that read all activations of ``Tp`` neighbouring windows, for all output channels."""
        return self.steps * self.output_folds

    @property
    def word_bits(self) -> int:
        """Width in bits of a word of the line buffer: ``Tn`` channels of one pixel."""
        return self.input.lanes * self.input.bits

    @property
    def pad_word(self) -> Value:
        """Amaranth `Value` of a pixel in the padding, a constant: a word of ``Tn`` channels of value ``pad_value``."""
        return Cat(Const(self.pad_value, self.input.shape) for _ in range(self.input.lanes))

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of the line buffer's output: ``taps[window][tap][lane]``, and flags ``first`` and ``last``.

        The flags mark the first and the last cycle of an output fold. If ``inside`` is set, there are also the flags
        ``inside[window][tap]``.
        """
        taps = data.ArrayLayout(data.ArrayLayout(self.input.shape, self.input.lanes), self.taps)
        inside = {"inside": data.ArrayLayout(data.ArrayLayout(1, self.taps), self.pixels)} if self.inside else {}
        return data.StructLayout({"taps": data.ArrayLayout(taps, self.pixels), "first": 1, "last": 1, **inside})
