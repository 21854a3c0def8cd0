"""From float32 scales to integers: significands and shifts, and quantised values."""

from __future__ import annotations

import numpy as np

from hwgen.network.graph import IntegerType


def multiplier(factor: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Significands (24 bits) and shifts of float32 ``factor``, for accumulators of magnitude ``bound`` at most.

    From 2**18 on, every accumulator but 0 saturates any output of up to 16 bits: such factors become 2**18.
    Shifts end where every accumulator gives 0.
    """
    fraction, exponent = np.frexp(np.minimum(factor.astype(np.float64), 2.0**18))
    significand = np.ldexp(fraction, 24).astype(np.int64)
    shift = np.where(significand == 0, 1 << 16, 24 - exponent.astype(np.int64))
    significand = np.where(significand == 0, 1 << 23, significand)
    # |bound * significand| < 2**(bits + 24): a shift by one bit more leaves less than a half.
    return significand, np.minimum(shift, bound.bit_length() + 25)


def fitting_factor(sums: np.ndarray, least: np.ndarray, most: np.ndarray, nominal: float) -> np.ndarray:
    """float32 factors, one a row, with which ``sums`` lie between ``least`` and ``most`` if any do.

    ``nominal`` where that is such a factor, else the middle of those that are.
    """
    positive = np.maximum(sums, 1)
    negative = np.minimum(sums, -1)
    low = np.where(sums > 0, least / positive, np.where(sums < 0, most / negative, -np.inf)).max(axis=1)
    high = np.where(sums > 0, most / positive, np.where(sums < 0, least / negative, np.inf)).min(axis=1)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high) & (low > 0)
    inside = (low < nominal) & (nominal < high)
    middle = np.where(bounded, low, nominal) / 2 + np.where(bounded, high, nominal) / 2
    return np.where(inside, nominal, middle).astype(np.float32)


def quantize_linear(values: np.ndarray, scale: np.float32, zero: int, kind: IntegerType) -> np.ndarray:
    """ONNX QuantizeLinear of float32 ``values``, as int64."""
    steps = np.rint(values / scale).astype(np.float64)
    return np.clip(steps + zero, kind.minimum, kind.maximum).astype(np.int64)
