"""Descriptions of feature maps, integer types and sliding windows with their size limits, and requantisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """Rule by output channel: ``clip(round_half_even(acc * significand / 2**shift) + zero_point, low, high)``.

    ``significand`` (24 bits, in ``[2**23, 2**24)``) and ``shift`` (0 or more) are int64 arrays with one entry per
    output channel. Together they are the float32 number ``x_scale * w_scale / y_scale``. ``low`` and ``high`` are the
    bounds after the zero point is added: the range of the output type, or narrower with a fused Relu or Clip.

    With ``float32``, the accumulator is rounded to float32 before the product, and the product before it is rounded to
    an integer, as in ONNX Runtime's integer kernels. All roundings are to nearest, ties to even. Without ``float32``,
    the product is exact.
    """

    significand: np.ndarray
    shift: np.ndarray
    zero_point: int
    low: int
    high: int
    float32: bool = False

    def of(self, channels: slice) -> Requantisation:
        """Return the `Requantisation` rule restricted to the output channels ``channels`` (a slice)."""
        return replace(self, significand=self.significand[channels], shift=self.shift[channels])

    def outputs(self, accumulators: np.ndarray, bound: int) -> np.ndarray:
        """Return the int64 output integers ``(M, n)`` for accumulators ``(M, n)`` of magnitudes up to ``bound``."""
        return requantise(accumulators, self, bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """Requantisation rule by thresholds: the output is ``low`` plus how many thresholds the accumulator reaches.

    Parameters
    ----------
    first : ndarray
        Smallest accumulator with at least each output from ``low + 1`` to ``high``, ascending, int64 ``(M, outputs)``.
    low, high : int
        Smallest and largest output.
    """

    first: np.ndarray
    low: int
    high: int

    def of(self, channels: slice) -> Thresholds:
        """Return `Thresholds`: the threshold rule restricted to the output channels ``channels`` (a slice)."""
        return replace(self, first=self.first[channels])

    def outputs(self, accumulators: np.ndarray, bound: int) -> np.ndarray:
        """Return the int64 output integers ``(M, n)`` for accumulators ``(M, n)``; ``bound`` does not matter."""
        counts = [np.searchsorted(row, sums, side="right") for row, sums in zip(self.first, accumulators, strict=True)]
        return np.stack(counts).astype(np.int64) + self.low


Rule = Requantisation | Thresholds
"""Type of the rules that convert accumulators to output integers: a factor, or thresholds."""


def requantise(accumulators: np.ndarray, requantisation: Requantisation, bound: int) -> np.ndarray:
    """Requantise integer accumulators ``(M, n)`` of ``M`` output channels: return the int64 output integers ``(M, n)``.

    ``bound`` is an upper bound on the magnitude of the accumulators, below 2**60. Outputs have at most 32 bits.
    """
    significand, shift = requantisation.significand[:, None], requantisation.shift[:, None]
    if requantisation.float32:
        # Products are below 2**84. If the factor is below float32's minimum normal number, they are far below 1/2.
        factor = np.ldexp(significand.astype(np.float32), -np.minimum(shift, 1 << 10).astype(np.int32))
        product = np.rint(accumulators.astype(np.float32) * factor)
        reach = np.float32(1 << 33)  # beyond any output
        quotient = np.clip(product, -reach, reach).astype(np.int64)
    elif bound << 24 < 1 << 61:
        quotient = _round_quotient(accumulators * significand, shift)
    else:
        # Products exceed int64. With a shift below 24 the factor is at least 1, so that clamped values saturate anyway.
        clamped = np.clip(accumulators, -(1 << 33), 1 << 33)
        quotient = np.where(
            shift < 24,
            _round_quotient(clamped * significand, np.minimum(shift, 23)),
            _rounded_in_halves(accumulators, significand, np.maximum(shift, 24)),
        )
    quotient += requantisation.zero_point
    return np.clip(quotient, requantisation.low, requantisation.high, out=quotient)


def _round_quotient(product: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return ``product / 2**shift``, rounded to the nearest integer, ties to even, for int64 products below 2**61."""
    shift = np.minimum(shift, 62)  # gives 0 for every product
    quotient = product >> shift
    product -= quotient << shift
    # Twice the remainder is compared with the divisor: if greater, round up; if equal, round to even.
    product <<= 1
    product += quotient & 1
    quotient += product > (np.ones_like(shift) << shift)
    return quotient


def _rounded_in_halves(accumulators: np.ndarray, significand: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return ``accumulators * significand / 2**shift`` rounded half to even, where products exceed int64.

    The shifts are 24 or more. A product is ``upper * 2**24 + lower``. Below the highest bit of ``lower``, only whether
    any bit is set matters.
    """
    lower = (accumulators & 0xFFFFFF) * significand
    upper = (accumulators >> 24) * significand + (lower >> 24)
    # Whether any bit of ``lower`` below its highest bit is set.
    more = (lower & 0x7FFFFF) != 0
    shift = np.minimum(shift - 24, 61)  # gives 0 for every product
    quotient = upper >> shift
    twice = ((upper - (quotient << shift)) << 1) + (lower >> 23 & 1)
    divisor = np.ones_like(shift) << shift
    quotient += (twice > divisor) | ((twice == divisor) & (more | (quotient & 1 == 1)))
    return quotient
