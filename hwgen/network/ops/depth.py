"""DepthToSpace and SpaceToDepth layers, which rearrange the channels of a pixel into a block of pixels, or back."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Window
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class _Blocks(Op):
    """Base class of layers that rearrange the channels of one pixel into a block of pixels, or back.

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

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        return {"blocks": (1, 1)}

    @property
    def count(self) -> int:
        """Number of pixels in a block, which one pixel becomes (DepthToSpace) or which become one (SpaceToDepth)."""
        return self.blocks[0] * self.blocks[1]

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (*super().geometry, self.blocks)

    @property
    def pad_value(self) -> int:
        """Value of the padding around the map, which no output depends on, because the window is 1x1."""
        return self.input.type.minimum


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
            raise ConfigError(f"{self.name}: a map of {self.height} x {self.width} must be whole blocks {self.blocks}")

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
