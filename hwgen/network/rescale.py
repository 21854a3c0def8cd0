"""From float32 scales to integers: significands and shifts, and quantised values."""

from __future__ import annotations

import itertools

import numpy as np

from hwgen.network.float32 import Label, qlinear_add
from hwgen.network.onnx.values import Addend
from hwgen.network.requantise import Requantisation, requantise

MOST_BIAS = (1 << 47) - 1
"""Of a bias that is rounded to steps of x_scale * w_scale: with 16 bits a usual one may not fit int32."""
RARELY = 200
"""Of so many integers of more than 8 bits one may differ, by 1, from what float32 makes of it."""
_BLOCK = 1 << 22
"""Integers of all channels that are compared at once."""


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


def fit_table(
    values: np.ndarray,
    offsets: np.ndarray,
    wanted: np.ndarray,
    x_scale: float,
    y_scale: float,
    output: tuple[int, int, int],
    bits: int,
) -> tuple[np.ndarray, int] | None:
    """What makes ``wanted`` of all integers that a map may hold: weights, biases, factors and a zero point.

    ``clip(round((w * x + b) * significand / 2**shift) + zero)`` is compared with ``wanted`` for many weights ``w``;
    ``b`` is the offset in steps of ``w``, rarely one more or less, and the factor is moved where ``wanted`` asks for
    it. Where ``wanted`` rounds ties to odd numbers, as QLinearAdd does with odd zero points, a zero point one less or
    more, and sums that make up for it, do the same. With up to 8 bits all integers must agree. Float32, in which
    ``wanted`` was computed, is too coarse for more: then one in 200 may differ by 1.

    Parameters
    ----------
    values : ndarray
        The integers without their zero point, int64.
    offsets : ndarray
        What is added to all of them, float64 (n,), in units of which ``x_scale`` are a step.
    wanted : ndarray
        int64 (n, integers).
    x_scale, y_scale : float
    output : tuple of int
        Zero point, least and greatest output.
    bits : int
        Of the wider one of the two types.

    Returns
    -------
    tuple or None
        Weights, biases, significands and shifts, int64 (4, n), and the zero point to add; ``None`` if nothing does.
    """
    zero, low, high = output
    for less in (0, 1 if zero > 0 else -1):  # which stays within the type
        moved = offsets + less * y_scale
        found = _fit(values, moved, wanted, x_scale, y_scale, (zero - less, low, high), bits)
        if found is not None:
            return found, zero - less
    return None


def _fit(
    values: np.ndarray,
    offsets: np.ndarray,
    wanted: np.ndarray,
    x_scale: float,
    y_scale: float,
    output: tuple[int, int, int],
    bits: int,
) -> np.ndarray | None:
    """As `fit_table`, with the zero point in ``output`` and no other."""
    zero, low, high = output
    wide = bits > 8
    # An offset is a multiple of 1 / w of a step.
    weights = itertools.chain([1], range((1 << 15) - 1, (1 << 15) - 64, -1)) if wide else range(1, 256)
    weights = tuple(weights)
    limit = MOST_BIAS if wide else (1 << 31) - 1
    found = np.zeros((4, len(offsets)), np.int64)
    rows = max(1, _BLOCK // len(values))
    for begin in range(0, len(offsets), rows):
        left = np.arange(begin, min(begin + rows, len(offsets)))
        for weight, more in itertools.product(weights, (0, 1, -1)):
            targets = wanted[left]
            # Without the clip, outputs ask for products between these.
            least = np.where(targets == low, -np.inf, targets - zero - 0.5)
            most = np.where(targets == high, np.inf, targets - zero + 0.5)
            bias = np.clip(np.rint(offsets[left] / x_scale * weight) + more, -limit - 1, limit).astype(np.int64)
            sums = weight * values + bias[:, None]
            bound = int(np.abs(sums).max())
            factor = _fitting_factor(sums, least, most, x_scale / weight / y_scale)
            significand, shift = multiplier(factor, bound)
            rule = Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high)
            wrong = np.abs(requantise(sums, rule, bound) - targets)
            right = (wrong.max(axis=1) <= wide) & (np.count_nonzero(wrong, axis=1) * RARELY <= wide * len(values))
            found[:, left[right]] = np.stack((np.full(len(left), weight), bias, significand, shift))[:, right]
            left = left[~right]
            if not len(left):
                break
        else:
            return None
    return found


def _fitting_factor(sums: np.ndarray, least: np.ndarray, most: np.ndarray, nominal: float) -> np.ndarray:
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


def add_constant(
    values: np.ndarray,
    label: tuple[np.float32, int],
    addend: Addend,
    scale: np.float32,
    zero: int,
) -> np.ndarray | None:
    """What ONNX Runtime's QLinearAdd makes of a map and a constant: integers before they saturate, int64 (n, integers).

    See `hwgen.network.float32.qlinear_add`; its ``a`` is the map where the constant is spread over several values.

    Parameters
    ----------
    values : ndarray
        The integers of the map, as they are.
    label : tuple
        The map's scale and zero point.
    addend : Addend
        n values.
    scale : float32
    zero : int
        Of the output.

    Returns
    -------
    ndarray or None
        ``None`` where a result leaves int32, in which that kernel wraps.
    """
    here = values[None], Label(float(label[0]), label[1])
    other = addend.values[:, None], Label(float(addend.scale), addend.zero)
    first, second = (other, here) if addend.first else (here, other)
    result = qlinear_add(*first, *second, Label(float(scale), zero))
    return np.rint(result).astype(np.int64) if (np.abs(result) < 2.0**31).all() else None
