"""Feature maps, their integers, and the windows that slide over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError


def signed_bits(low: int, high: int) -> int:
    """Bits of a two's complement number that holds ``low`` to ``high``."""
    return 1 + max(high, -low - 1, 0).bit_length()


@dataclass(frozen=True, kw_only=True)
class IntegerType:
    """A two's complement or unsigned integer of ``bits`` bits."""

    bits: int
    signed: bool

    @property
    def minimum(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    @property
    def dtype(self) -> np.dtype:
        """The smallest NumPy type that holds it."""
        width = next(w for w in (8, 16, 32, 64) if w >= self.bits)
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    def narrowed(self, *values: int) -> IntegerType:
        """The narrowest type of the same sign that holds ``values``, of 2 bits at least."""
        low, high = min(values), max(values)
        bits = signed_bits(low, high) if self.signed else high.bit_length()
        return IntegerType(bits=max(bits, 2), signed=self.signed)

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


INT8 = IntegerType(bits=8, signed=True)
UINT8 = IntegerType(bits=8, signed=False)
INT16 = IntegerType(bits=16, signed=True)
UINT16 = IntegerType(bits=16, signed=False)
INT32 = IntegerType(bits=32, signed=True)

MOST_SIDE = 65_535
"""Channels, rows and columns of a map, padding included: what 16 bits count."""
MOST_PIXELS = 1 << 24
"""Rows times columns of a map, padding included (4,096 x 4,096): the exact schedule lists them one by one."""
MOST_WEIGHTS = 1 << 28
"""Of a network: 2 GiB in the golden model, twice VGG-16 with its classifier."""


def check_map(what: str, channels: int, height: int, width: int) -> None:
    """Refuse maps beyond `MOST_SIDE` and `MOST_PIXELS`.

    Raises
    ------
    ConfigError
        ``what`` starts its message.
    """
    size = f"{channels} x {height} x {width} (channels, rows, columns)"
    if max(channels, height, width) > MOST_SIDE:
        raise ConfigError(f"{what} must have at most {MOST_SIDE:,} channels, rows and columns, not {size}")
    if height * width > MOST_PIXELS:
        raise ConfigError(f"{what} must have at most {MOST_PIXELS:,} pixels, not {height * width:,}: {size}")


def check_window(what: str, window: Window, channels: int, height: int, width: int) -> None:
    """Refuse windows over maps that are too large with their padding, and numbers beyond `MOST_SIDE`.

    Raises
    ------
    ConfigError
        ``what`` starts its message.
    """
    top, left, bottom, right = window.padding
    check_map(f"{what}: the padded map", channels, height + top + bottom, width + left + right)
    if max(*window.kernel, *window.stride) > MOST_SIDE:
        raise ConfigError(
            f"{what}: kernel and strides must be at most {MOST_SIDE:,}, not {window.kernel}, {window.stride}"
        )
    if min(window.dilation) < 1 or max(window.dilation) > MOST_SIDE:
        raise ConfigError(f"{what}: dilations must be between 1 and {MOST_SIDE:,}, not {window.dilation}")


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """One layer's input or output, ``channels x height x width`` integers.

    ``zero_point`` is the integer that stands for zero; ``scale`` is the size of one step (float32, ``None``
    where the model gives none). Only the host uses ``scale``: to quantise float inputs.
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
        return self.channels, self.height, self.width

    @property
    def values(self) -> int:
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width} {self.type}"


def covered(taps: int, dilation: int) -> int:
    """Pixels from the first of so many taps to the last, one ``dilation`` apart, both included."""
    return (taps - 1) * dilation + 1


@dataclass(frozen=True, kw_only=True)
class Window:
    """Kernel, stride, zero padding and dilation of a sliding window; pairs are (vertical, horizontal).

    ``kernel`` counts taps, and ``dilation`` is the distance from one tap to the next: a 3 x 3 kernel with dilation 2
    covers 5 x 5 pixels, of which it reads 9. ``padding`` is (top, left, bottom, right) as in ONNX. ``ceil_mode`` and
    ``auto_pad`` are resolved before: what they add is part of the padding.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that a window covers, from its first tap to its last."""
        return covered(self.kernel[0], self.dilation[0]), covered(self.kernel[1], self.dilation[1])

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of windows over a ``height x width`` map (0 or less: no window fits)."""
        top, left, bottom, right = self.padding
        rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1
        columns = (width + left + right - self.extent[1]) // self.stride[1] + 1
        return rows, columns

    def reach(self, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """The rows (axis 0) or columns that windows ``begin`` to ``end`` cover, beyond the map too.

        Both are half-open intervals of integers, or of arrays of them.
        """
        before = self.padding[axis]
        return begin * self.stride[axis] - before, (end - 1) * self.stride[axis] - before + self.extent[axis]
