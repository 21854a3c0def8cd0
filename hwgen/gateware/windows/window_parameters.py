"""Parameters of a line buffer: the windows that it reads from a feature map, their order, and the stored rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from amaranth import Cat, Const, Value
from amaranth.lib import data

from hwgen.gateware.component import OnDevice
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.windows.tap_patches import TapPatches
from hwgen.gateware.windows.window_grid import WindowGrid

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
