"""Pool layers: maximum pools, and average pools with the results of ONNX Runtime's integer kernels.

Averages of windows are computed in float32, averages of whole maps in integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hwgen.errors import ConfigError
from hwgen.network.maps import Requantisation, Window, requantise
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxPool(Op):
    """Max pool layer: the maximum of each channel over each window.

    Padding has the minimum of the input type. Type and zero point pass through.
    """

    kind = "maxpool"
    operators = ("MaxPool",)
    channels_first = True
    channelwise = True
    selects = keeps_type = True

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        padded = self._padded(maps[0])
        (kernel_rows, kernel_columns), (down, right) = self.window.kernel, self.window.stride
        below, beside = self.window.dilation
        rows, columns = self.output.height, self.output.width
        result = np.full(self.output.shape, self.pad_value, self.output.type.dtype)
        for y in range(0, kernel_rows * below, below):
            for x in range(0, kernel_columns * beside, beside):
                tap = padded[:, y : y + (rows - 1) * down + 1 : down, x : x + (columns - 1) * right + 1 : right]
                np.maximum(result, tap, out=result)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class AveragePool(Op):
    """Average pool layer over a window (QLinearAveragePool).

    The real values ``x_scale * (x - x_zero_point)`` are added in float32, tap by tap in row-major order. The sum is
    divided by the number of values, then by ``y_scale``. The output's zero point is added before the result is rounded
    to an integer, ties to even. Every step rounds to float32. The order of the steps decides which values are ties, so
    no formula on the integer sum gives the same results.

    Parameters
    ----------
    x_scale, y_scale : float
        Scales of input and output, float32 numbers.
    include_padding : bool
        Whether the sum is divided by the number of all taps, instead of the taps inside of the map (ONNX
        ``count_include_pad``).

    Raises
    ------
    ConfigError
        If a scale is not positive, a window is entirely in the padding or dilated, or a sum exceeds float32.
    """

    x_scale: float
    y_scale: float
    include_padding: bool

    kind = "averagepool"
    operators = ("AveragePool", "QLinearAveragePool")
    channels_first = True
    channelwise = True

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return parameters if is_type else None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("x_scale", "y_scale"):
            scale = getattr(self, name)
            if not 0 < scale < np.inf or float(np.float32(scale)) != scale:
                raise ConfigError(f"{self.name}: {name} must be a positive float32 number, not {scale!r}")
        if self.window.dilation != (1, 1):
            raise ConfigError(f"{self.name}: the dilation of an average pool must be 1x1, not {self.window.dilation}")
        if not self._taps_inside.all():
            raise ConfigError(f"{self.name}: each window must hold a pixel of the map, not only padding")
        if not self.taps * self.reach * self.x_scale <= np.finfo(np.float32).max:
            raise ConfigError(f"{self.name}: sums must be finite in float32, not with input scale {self.x_scale:g}")

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        return {"x_scale": 1.0, "y_scale": 1.0, "include_padding": True}

    @property
    def pad_value(self) -> int:
        return self.input.zero_point

    @property
    def reach(self) -> int:
        """Maximum magnitude of an input integer less its zero point."""
        return self.input.type.reach(self.input.zero_point)

    @cached_property
    def _taps_inside(self) -> np.ndarray:
        """Number of taps of each output pixel's window that are inside the map, int64 ``(H, W)``."""
        spans = [[self.needed(axis, n, n + 1) for n in range(self.output.shape[1 + axis])] for axis in (0, 1)]
        rows, columns = (np.array([end - begin for begin, end in axis]) for axis in spans)
        return rows[:, None] * columns

    @cached_property
    def counts(self) -> np.ndarray:
        """Divisor of each output pixel's window sum, int64 ``(H, W)``: number of taps inside the map, or of all."""
        return np.full_like(self._taps_inside, self.taps) if self.include_padding else self._taps_inside

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        """Return the golden output of the average pool for one frame: integers ``(C, H, W)`` of the output's type."""
        zero = self.input.zero_point
        padded = (self._padded(maps[0]).astype(np.int64) - zero).astype(np.float32) * np.float32(self.x_scale)
        (kernel_rows, kernel_columns), (down, right) = self.window.kernel, self.window.stride
        rows, columns = self.output.height, self.output.width
        total = np.zeros(self.output.shape, np.float32)
        for y in range(kernel_rows):
            for x in range(kernel_columns):
                total += padded[:, y : y + (rows - 1) * down + 1 : down, x : x + (columns - 1) * right + 1 : right]
        return self.rounded(total, self.counts)

    def rounded(self, total: np.ndarray, count: np.ndarray | int) -> np.ndarray:
        """Return the average pool's output integers for float32 window sums, each of ``count`` values."""
        kind = self.output.type
        with np.errstate(over="ignore"):
            quotient = total / np.asarray(count, np.float32) / np.float32(self.y_scale)
            result = np.rint(quotient + np.float32(self.output.zero_point))
        return np.clip(result, kind.minimum, kind.maximum).astype(kind.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class SumPool(Op):
    """Pool layer that requantises the integer sum of each channel in each window.

    Parameters
    ----------
    requantisation : Requantisation
        Rule for the sum of ``x - x_zero_point``. Its factor contains the division of an average. Padding counts as 0.
    """

    requantisation: Requantisation

    kind = "sumpool"
    operators = ()
    channels_first = True
    channelwise = True
    loaded = False

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        rule = replace(parameters["requantisation"], low=low, high=high)
        return {**parameters, "requantisation": rule}

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        one = np.full(outputs, 1 << 23)
        shift = np.full(outputs, 23 + window.taps.bit_length())
        rule = Requantisation(significand=one, shift=shift, zero_point=0, low=0, high=255, float32=True)
        return {"requantisation": rule}

    @property
    def pad_value(self) -> int:
        return self.input.zero_point

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        """Return the golden output of the pool for one frame: integers ``(C, H, W)`` of the output's type."""
        kind, zero = self.input.type, self.input.zero_point
        padded = self._padded(maps[0]).astype(np.int64) - zero
        down, right = self.window.stride
        views = sliding_window_view(padded, self.window.extent, axis=(1, 2))[:, ::down, ::right]
        below, beside = self.window.dilation
        sums = views[..., ::below, ::beside].sum(axis=(3, 4))[:, : self.output.height, : self.output.width]
        outputs = requantise(sums.reshape(self.channels, -1), self.requantisation, self.taps * kind.reach(zero))
        return outputs.reshape(self.output.shape).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class GlobalAveragePool(SumPool):
    """Global average pool layer (QLinearGlobalAveragePool): the integer sum of each channel's map, requantised.

    Parameters
    ----------
    requantisation : Requantisation
        Rule for the sum of ``x - x_zero_point``. Its factor contains the division by the number of pixels.
    loaded : bool
        Whether the hardware loads scales at run time. These are then the initial ones.

    Raises
    ------
    ConfigError
        If the window is not the map.
    """

    loaded: bool = False

    kind = "globalaveragepool"
    loadable = True
    operators = ("GlobalAveragePool", "QLinearGlobalAveragePool")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window.kernel != self.input.shape[1:] or any(self.window.padding):
            raise ConfigError(f"{self.name}: the window must be the map, not {self.window}")
