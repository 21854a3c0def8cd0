"""Convolution layer of a quantised network, with its golden model. Gemm and MatMul are convolutions as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hwgen.errors import ConfigError
from hwgen.network.maps import Rule, Window, signed_bits
from hwgen.network.ops.op import Op

_LOADED_BITS = (2, 4, 8, 9)
"""Tuple of allowed widths of weights that hardware loads at run time, in bits.

They are the widths of the integer types, and of unsigned 8 bits less the zero point.
"""
_BLOCK = 1 << 21
"""Number of values that the golden convolution processes at once (im2col matrix or weights): 16 MiB of float64."""


def channel_sums(weights: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the sum of ``function(weights)`` over the weights of each output channel, int64 ``(M,)``.

    ``function`` is applied to some channels at a time, so that all weights are never copied.
    """
    step = max(_BLOCK // weights[0].size, 1)
    blocks = (weights[begin : begin + step] for begin in range(0, len(weights), step))
    return np.concatenate([function(block).sum(axis=(1, 2, 3)) for block in blocks])


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv(Op):
    """Convolution layer (ONNX Conv: cross-correlation) of a quantised network.

    Accumulator = sum of ``w * (x - x_zero_point)`` + bias; padding counts as ``x_zero_point``.

    Parameters
    ----------
    weights : ndarray
        ``(M, C // groups, Kh, Kw)``, zero point subtracted (up to 9 bits signed of 8-bit weights, 17 of 16-bit
        ones). int64; int16 or int32 of a layer whose weights would take hundreds of megabytes.
    bias : ndarray
        Bias of the model, int64 ``(M,)``. The input's zero point is *not* folded into it.
    requantisation : Requantisation or Thresholds or None
        Rule that turns accumulators into outputs; ``None`` if the accumulators are the outputs (ConvInteger).
    groups : int
        Number of independent groups of channels.
    fraction : int
        Number of fractional bits of the bias. Sums are multiplied by ``2**fraction`` before the bias is added, and the
        requantisation's factors are for the result. Always 0 if the accumulators are the outputs.
    loaded : bool
        Whether the hardware loads weights, biases and scales at run time. These are then the initial ones.
    loaded_bits : int
        Width of a weight in existing hardware that loads weights, in bits. These weights can need more bits.
    """

    weights: np.ndarray
    bias: np.ndarray
    requantisation: Rule | None
    groups: int = 1
    fraction: int = 0
    loaded: bool = False
    loaded_bits: int = 2

    kind = "conv"
    loadable = True
    operators = ("Conv",)
    channels_first = True

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        # Broadcast zeros take no memory.
        weights = np.broadcast_to(np.int64(0), (outputs, channels // groups, *window.kernel))
        bias = np.broadcast_to(np.int64(0), (outputs,))
        return {"weights": weights, "bias": bias, "requantisation": None, "groups": groups}

    @property
    def dense(self) -> bool:
        whole = self.window.kernel == self.window.extent == self.input.shape[1:]
        return whole and self.output.shape[1:] == (1, 1)

    @property
    def weight_count(self) -> int:
        return self.weights.size

    @cached_property
    def weight_bits(self) -> int:
        """Width of the widest weight, in bits; if weights are loaded at run time, the width of their type."""
        bits = max(signed_bits(*self.weight_range), 2)
        if not self.loaded:
            return bits
        return max(next(width for width in (*_LOADED_BITS, bits) if width >= bits), self.loaded_bits)

    @cached_property
    def weight_range(self) -> tuple[int, int]:
        """Minimum and maximum weight of this convolution, a pair of integers."""
        return int(self.weights.min()), int(self.weights.max())

    @cached_property
    def signed_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of int64 arrays ``(M,)``: sum of positive, and sum of negative weights per output channel."""
        positive = channel_sums(self.weights, lambda weights: np.maximum(weights, 0))
        return positive, self.weights.sum(axis=(1, 2, 3)) - positive

    @property
    def product_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of int64 arrays ``(M,)``: minimum and maximum sum of an output channel's products, for any input map."""
        positive, negative = self.signed_sums
        below, above = (end - self.input.zero_point for end in self.input.type.ends)
        return positive * below + negative * above, positive * above + negative * below

    @cached_property
    def folded_bias(self) -> np.ndarray:
        """Bias with the input's zero point folded in, int64 ``(M,)``.

        It is ``bias - 2**fraction * x_zero_point * sum(w)``.
        """
        return self.bias - (self.input.zero_point * self.weights.sum(axis=(1, 2, 3)) << self.fraction)

    @property
    def accumulator_bound(self) -> int:
        """Upper bound on the magnitude of all accumulators and their partial sums, an integer."""
        reach = self.input.type.reach(self.input.zero_point)
        weights = int(channel_sums(self.weights, np.abs).max())
        return (weights * reach << self.fraction) + int(np.abs(self.bias).max())

    @property
    def pad_value(self) -> int:
        return self.input.zero_point

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        """Return the golden output of the convolution for one frame: integers ``(M, H, W)`` of the output's type.

        The convolution is a matrix product over im2col columns, a block of output rows at a time, in float64: exact as
        long as no partial sum can reach 2**53, which is checked from the weights. Slower int64 steps in beyond that.
        """
        bound = self._checked_bound()
        # Integers that float64 holds exactly, each partial sum included; the bias joins in int64.
        exact = np.float64 if bound < 1 << 53 else np.int64
        padded = self._padded(maps[0])
        columns = self.output.width
        per_group, outputs = self.weights.shape[1], len(self.weights) // self.groups
        taps = per_group * self.taps
        block = max(1, _BLOCK // (taps * columns))
        result = np.empty(self.output.shape, self.output.type.dtype)
        for group in range(self.groups):
            channels = padded[group * per_group : (group + 1) * per_group]
            filters = slice(group * outputs, (group + 1) * outputs)
            weights = self.weights[filters].reshape(outputs, taps).astype(exact)
            for first in range(0, self.output.height, block):
                last = min(first + block, self.output.height)
                accumulators = (weights @ self._im2col(channels, first, last, exact)).astype(np.int64)
                accumulators <<= self.fraction
                accumulators += self.bias[filters, None]
                if self.requantisation is not None:
                    accumulators = self.requantisation.of(filters).outputs(accumulators, bound)
                result[filters, first:last] = accumulators.reshape(outputs, last - first, columns)
        return result

    def _checked_bound(self) -> int:
        """Return a bound on accumulators; refuse one over 61 bits (requantised), or over the output's type."""
        bound = self.accumulator_bound
        bits = 64 if self.requantisation is None else 61
        if bound >= 1 << (bits - 1):
            raise ConfigError(f"{self.name}: accumulators must fit {bits} bits, not reach {bound}")
        if self.requantisation is None and self.fraction:
            raise ConfigError(f"{self.name}: fraction must be 0 where accumulators leave, not {self.fraction}")
        if self.requantisation is None and bound > self.output.type.maximum:
            raise ConfigError(f"{self.name}: accumulators must fit the output's {self.output.type}, not reach {bound}")
        return bound

    def _im2col(self, padded: np.ndarray, first: int, last: int, exact: type) -> np.ndarray:
        """Return the input windows of some output rows, less the zero point, as an im2col matrix ``(taps, pixels)``.

        The rows are ``first`` to ``last``.
        """
        extent, (down, right), columns = self.window.extent, self.window.stride, self.output.width
        band = padded[:, first * down : (last - 1) * down + extent[0]].astype(exact)
        band -= self.input.zero_point
        below, beside = self.window.dilation
        windows = sliding_window_view(band, extent, axis=(1, 2))[:, ::down, ::right, ::below, ::beside]
        return windows[:, :, :columns].transpose(0, 3, 4, 1, 2).reshape(-1, (last - first) * columns)
