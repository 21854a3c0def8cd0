"""Layers that rearrange the pixels or channels of a map: crop, pad, select, repeat, and move channels into pixels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Crop(Op):
    """Layer that crops a map, and keeps every ``stride``-th row and column. Type, scale and zero point pass through.

    The window has one tap. Its padding is 0 or negative; a negative padding removes rows or columns at that side.

    Raises
    ------
    ConfigError
        If the window has several taps, or a padding is positive.
    """

    kind = "crop"
    operators = ("Slice", "Split")
    channelwise = True
    selects = keeps_type = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: the window must be 1x1, not {self.window.kernel}")
        if self.selects and max(self.window.padding) > 0:
            raise ConfigError(f"{self.name}: padding of a crop must be 0 or less, not {self.window.padding}")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        top, left, bottom, right = (max(pad, 0) for pad in self.window.padding)
        padded = np.pad(maps[0], ((0, 0), (top, bottom), (left, right)), constant_values=self.pad_value)
        # Cropping comes last: it can remove more rows or columns than the map has, and then some of the padding.
        top, left, bottom, right = (max(-pad, 0) for pad in self.window.padding)
        inner = padded[:, top : padded.shape[1] - bottom, left : padded.shape[2] - right]
        return inner[:, :: self.window.stride[0], :: self.window.stride[1]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pad(Crop):
    """Layer that pads a map with a constant (ONNX Pad). A negative padding removes rows or columns at that side.

    Parameters
    ----------
    value : int
        Integer value of the padding.

    Raises
    ------
    ConfigError
        If the value is out of the range of the map's type.
    """

    value: int

    kind = "pad"
    operators = ("Pad",)
    selects = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input.type.minimum <= self.value <= self.input.type.maximum:
            raise ConfigError(f"{self.name}: value must be {self.input.type}, not {self.value}")

    @property
    def pad_value(self) -> int:
        return self.value


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(Op):
    """Layer that selects channels of a map: output channel ``j`` is input channel ``index[j]``.

    Type, scale and zero point pass through.

    Parameters
    ----------
    index : tuple of int
        Input channel of each output channel. Channels can be missing or repeated.

    Raises
    ------
    ConfigError
        If an index is not an input channel, the number of indices differs from the output channels, or the window is
        not 1x1.
    """

    index: tuple[int, ...]

    kind = "select"
    operators = ("Split", "Slice", "Gather")
    shaped_by = ("index",)
    selects = keeps_type = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.index) != self.outputs or not all(0 <= channel < self.channels for channel in self.index):
            raise ConfigError(
                f"{self.name}: index must be {self.outputs} of the channels 0 to {self.channels - 1}, not {self.index}"
            )
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that selects channels must have no window, not {self.window}")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0][list(self.index)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Upsample(Op):
    """Layer that upsamples a map by whole factors, by repeating rows and columns (nearest neighbour).

    Type, scale and zero point pass through.

    Parameters
    ----------
    factors : tuple of int
        Numbers of repetitions of each row, and of each column.

    Raises
    ------
    ConfigError
        If a factor is not positive, the window is not 1x1, or the output has another size.
    """

    factors: tuple[int, int]

    kind = "upsample"
    operators = ("Resize", "Upsample")
    channels_first = True
    channelwise = True
    selects = keeps_type = True

    def __post_init__(self) -> None:
        if min(self.factors) < 1 or self.taps != 1:
            raise ConfigError(f"{self.name}: factors must be positive, and the window 1x1, not {self.factors}")
        super().__post_init__()

    @property
    def output_size(self) -> tuple[int, int]:
        return self.input.height * self.factors[0], self.input.width * self.factors[1]

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        return begin // self.factors[axis], -(-end // self.factors[axis])

    def pace(self, input_index: int, axis: int) -> Fraction:
        return Fraction(1, self.factors[axis])

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0].repeat(self.factors[0], axis=1).repeat(self.factors[1], axis=2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Resample(Op):
    """Layer that resamples a map: each output row and column copies an input row and column from a constant list.

    Type, scale and zero point pass through.

    It is a Resize to nearest neighbours by factors that are not whole, a Pad that repeats or reflects pixels, or a
    selection of rows and columns in any order.

    Parameters
    ----------
    rows, columns : tuple of int
        Index of the input row of each output row, and of the input column of each output column.

    Raises
    ------
    ConfigError
        If an index is outside the map, the window is not 1x1, or the output has another size.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    kind = "resample"
    operators = ("Resize", "Upsample", "Pad")
    channelwise = True
    shaped_by = ("rows", "columns")
    selects = keeps_type = True

    def __post_init__(self) -> None:
        for name, size, indices in (("rows", self.height, self.rows), ("columns", self.width, self.columns)):
            if not indices or min(indices) < 0 or max(indices) >= size:
                raise ConfigError(
                    f"{self.name}: {name} must have one or more indices from 0 to {size - 1}, not {indices}"
                )
            if self.taps != 1:
                raise ConfigError(f"{self.name}: the window must be 1x1, not {self.window}")
        super().__post_init__()

    @property
    def output_size(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        indices = np.array((self.rows, self.columns)[axis])
        # Reflected rows do not rise: all rows up to the last one that any earlier output reads, and so on, are covered.
        firsts, lasts = np.minimum.accumulate(indices[::-1])[::-1], np.maximum.accumulate(indices)
        ends = np.clip(begin, 0, indices.size - 1), np.clip(np.asarray(end) - 1, 0, indices.size - 1)
        return firsts[ends[0]], lasts[ends[1]] + 1

    def pace(self, input_index: int, axis: int) -> Fraction:
        return Fraction((self.height, self.width)[axis], self.output_size[axis])

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0][:, list(self.rows)][:, :, list(self.columns)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Blocks(Op):
    """Base class of DepthToSpace and SpaceToDepth: a pixel's channels become a block of pixels, or the reverse.

    Type, scale and zero point pass through.

    Parameters
    ----------
    blocks : tuple of int
        Height and width of a block, in pixels. A block on one side is one pixel on the other side.

    Raises
    ------
    ConfigError
        If a block is empty, the window is not 1x1, or the numbers of channels do not fit the blocks.
    """

    blocks: tuple[int, int]

    shaped_by = ("blocks",)
    selects = keeps_type = True
    to_space: ClassVar[bool]
    """Whether the layer turns a pixel into a block of pixels; otherwise it turns a block into a pixel."""

    def __post_init__(self) -> None:
        if min(self.blocks) < 1 or self.taps != 1:
            raise ConfigError(f"{self.name}: blocks must be positive, and the window 1x1, not {self.blocks}")
        super().__post_init__()
        deep, shallow = (self.input, self.output) if self.to_space else (self.output, self.input)
        if deep.channels != shallow.channels * self.count:
            raise ConfigError(
                f"{self.name}: {self.count} pixels of {shallow.channels} channels must be one of as many, "
                f"not of {deep.channels}"
            )

    @property
    def count(self) -> int:
        """Number of pixels in a block, which one pixel becomes (DepthToSpace) or which become one (SpaceToDepth)."""
        return self.blocks[0] * self.blocks[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthToSpace(_Blocks):
    """DepthToSpace layer, mode DCR: each pixel becomes a block of pixels, row by row, of successive channels."""

    kind = "depthtospace"
    operators = ("DepthToSpace",)
    channels_first = True
    to_space = True

    @property
    def output_size(self) -> tuple[int, int]:
        return self.height * self.blocks[0], self.width * self.blocks[1]

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        return begin // self.blocks[axis], -(-end // self.blocks[axis])

    def pace(self, input_index: int, axis: int) -> Fraction:
        return Fraction(1, self.blocks[axis])

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        parted = maps[0].reshape(*self.blocks, self.outputs, self.height, self.width)
        return parted.transpose(2, 3, 0, 4, 1).reshape(self.output.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceToDepth(_Blocks):
    """SpaceToDepth layer: each block of pixels becomes one pixel, with the channels of all its pixels, row by row."""

    kind = "spacetodepth"
    operators = ("SpaceToDepth",)
    channels_first = True
    to_space = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.height % self.blocks[0] or self.width % self.blocks[1]:
            rows, columns = self.blocks
            raise ConfigError(
                f"{self.name}: height and width must be multiples of the block's {rows} x {columns} pixels, not "
                f"{self.height} x {self.width}"
            )

    @property
    def output_size(self) -> tuple[int, int]:
        return self.height // self.blocks[0], self.width // self.blocks[1]

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        return begin * self.blocks[axis], end * self.blocks[axis]

    def pace(self, input_index: int, axis: int) -> Fraction:
        return Fraction(self.blocks[axis])

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        (down, right), (_, rows, columns) = self.blocks, self.output.shape
        parted = maps[0].reshape(self.channels, rows, down, columns, right)
        return parted.transpose(2, 4, 0, 1, 3).reshape(self.output.shape)
