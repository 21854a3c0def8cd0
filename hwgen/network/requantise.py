"""Requantisation: conversion of a layer's accumulators to output integers, by a factor or by thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


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
