"""Descriptions of feature maps, integer types and sliding windows, with their size limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError


def signed_bits(low: int, high: int) -> int:
    """Return the minimum number of bits of a two's complement type that holds the integers ``low`` to ``high``."""
    return 1 + max(high, -low - 1, 0).bit_length()


@dataclass(frozen=True, kw_only=True)
class IntegerType:
    """Integer type with ``bits`` bits, signed (two's complement) or unsigned."""

    bits: int
    signed: bool

    @property
    def minimum(self) -> int:
        """Minimum value of the integer type."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        """Maximum value of the integer type."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def dtype(self) -> np.dtype:
        """Narrowest NumPy type that holds all values of the integer type."""
        width = next(w for w in (8, 16, 32, 64) if w >= self.bits)
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    @property
    def ends(self) -> tuple[int, int]:
        """Pair: minimum and maximum value of the integer type."""
        return self.minimum, self.maximum

    def reach(self, zero: int) -> int:
        """Return the maximum distance of a value of the integer type from the zero point ``zero``."""
        return max(self.maximum - zero, zero - self.minimum)

    def narrowed(self, *values: int) -> IntegerType:
        """Return the narrowest `IntegerType` of equal signedness that holds ``values``; if signed, 2 bits or more."""
        low, high = min(values), max(values)
        bits = max(signed_bits(low, high), 2) if self.signed else max(high.bit_length(), 1)
        return IntegerType(bits=bits, signed=self.signed)

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


INT8 = IntegerType(bits=8, signed=True)
UINT8 = IntegerType(bits=8, signed=False)
INT16 = IntegerType(bits=16, signed=True)
UINT16 = IntegerType(bits=16, signed=False)
INT32 = IntegerType(bits=32, signed=True)

MAX_SIDE = 65_535
"""Maximum number of channels, rows or columns of a feature map, padding included, for 16-bit counters."""
MAX_PIXELS = 1 << 24
"""Maximum number of pixels of a feature map, padding included (4,096 x 4,096).

The exact schedule has an entry per pixel.
"""
MAX_WEIGHTS = 1 << 28
"""Maximum number of weights in a network: 2 GiB in the golden model, about twice as many as VGG-16 has.

VGG-16 is counted with its classifier.
"""


def check_map(what: str, channels: int, height: int, width: int) -> None:
    """Raise an error for a feature map with over `MAX_SIDE` channels, rows or columns, or over `MAX_PIXELS` pixels.

    Raises
    ------
    ConfigError
        If the map is too large. The message begins with ``what``.
    """
    size = f"{channels} x {height} x {width} (channels, rows, columns)"
    if max(channels, height, width) > MAX_SIDE:
        raise ConfigError(f"{what} must have at most {MAX_SIDE:,} channels, rows and columns, not {size}")
    if height * width > MAX_PIXELS:
        raise ConfigError(f"{what} must have at most {MAX_PIXELS:,} pixels, not {height * width:,}: {size}")


def check_window(what: str, window: Window, channels: int, height: int, width: int) -> None:
    """Raise an error for a sliding window whose padded map is too large, or whose sizes exceed `MAX_SIDE`.

    Raises
    ------
    ConfigError
        If a size is too large, or a dilation not positive. The message begins with ``what``.
    """
    top, left, bottom, right = window.padding
    check_map(f"{what}: the padded map", channels, height + top + bottom, width + left + right)
    if max(*window.kernel, *window.stride) > MAX_SIDE:
        raise ConfigError(
            f"{what}: kernel and strides must be at most {MAX_SIDE:,}, not {window.kernel}, {window.stride}"
        )
    if min(window.dilation) < 1 or max(window.dilation) > MAX_SIDE:
        raise ConfigError(f"{what}: dilations must be between 1 and {MAX_SIDE:,}, not {window.dilation}")


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """Feature map, a layer's input or output: ``channels x height x width`` integers of one type.

    ``zero_point`` is the integer for the real value 0. ``scale`` is the real value of one step (float32; ``None`` if
    the model states none). Only the host uses ``scale``, to quantise float inputs.
    """

    channels: int
    height: int
    width: int
    type: IntegerType
    zero_point: int = 0
    scale: float | None = None

    def __post_init__(self) -> None:
        check_map("a map", self.channels, self.height, self.width)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the feature map, a tuple."""
        return self.channels, self.height, self.width

    @property
    def values(self) -> int:
        """Number of values in the feature map per frame: channels times height times width."""
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width} {self.type}"


def covered(taps: int, dilation: int) -> int:
    """Return how many pixels a dilated kernel spans along an axis: ``(taps - 1) * dilation + 1``."""
    return (taps - 1) * dilation + 1


@dataclass(frozen=True, kw_only=True)
class Window:
    """Sliding window of a layer: kernel size, stride, padding and dilation, each per axis.

    Pairs are (vertical, horizontal).

    ``kernel`` counts taps, and ``dilation`` is the distance between neighbouring taps: a 3 x 3 kernel with dilation 2
    covers 5 x 5 pixels and reads 9 of them. ``padding`` is (top, left, bottom, right), as in ONNX. It includes the
    padding from ``ceil_mode`` and ``auto_pad``.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """Pair: height and width in pixels that the window covers, dilation included."""
        return covered(self.kernel[0], self.dilation[0]), covered(self.kernel[1], self.dilation[1])

    @property
    def taps(self) -> int:
        """Number of kernel taps, ``Kh * Kw``."""
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return a pair: rows and columns of the output for a ``height x width`` input; 0 or less if no window fits."""
        top, left, bottom, right = self.padding
        rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1
        columns = (width + left + right - self.extent[1]) // self.stride[1] + 1
        return rows, columns

    def reach(self, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """Return a half-open range (a pair) of input rows (axis 0) or columns (1) that outputs ``begin:end`` read.

        Both intervals are half-open, of integers or integer arrays. Rows and columns of the padding are included: they
        are negative, or past the map's end.
        """
        before = self.padding[axis]
        return begin * self.stride[axis] - before, (end - 1) * self.stride[axis] - before + self.extent[axis]
