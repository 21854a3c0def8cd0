"""Conversion of float32 factors to significands and shifts, and search for 1x1 convolutions that equal tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from hwgen.network.float32 import Label, qlinear_add
from hwgen.network.maps import Requantisation, requantise
from hwgen.network.onnx.values import Addend, Map

MAX_BIAS = (1 << 47) - 1
"""Maximum magnitude of a layer's integer bias, in accumulator LSBs (``x_scale * w_scale``).

With 16 bits, usual biases can exceed int32.
"""
RARELY = 200
"""Reciprocal of the largest share of a channel's outputs, of over 8 bits, that `fit_table` lets differ by 1."""
_BLOCK = 1 << 22
"""Maximum number of table entries (channels times integers) that `fit_table` compares at once."""
_MAX_SUMS = 1 << 16
"""Maximum number of possible sums that `fit_mean` checks the rounding of."""
_SLACK = 2.0**-22
"""Relative distance from a tie (a half) within which float32's roundings can turn a mean into a tie."""


def multiplier(factor: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of int64 arrays: significands (24 bits) and shifts of float32 factors ``significand / 2**shift``.

    They are for accumulators up to ``bound`` in magnitude. With a factor from 2**18 on, every accumulator except 0
    saturates an output of up to 16 bits. Such factors become 2**18. Shifts are limited to the smallest shift that gives
    0 for every accumulator.
    """
    fraction, exponent = np.frexp(np.minimum(factor.astype(np.float64), 2.0**18))
    significand = np.ldexp(fraction, 24).astype(np.int64)
    shift = np.where(significand == 0, 1 << 16, 24 - exponent.astype(np.int64))
    significand = np.where(significand == 0, 1 << 23, significand)
    # |bound * significand| < 2**(bits + 24): with one more bit of shift, every result is less than a half.
    return significand, np.minimum(shift, bound.bit_length() + 25)


def rule_of(
    factor: np.ndarray, bound: int, ends: tuple[int, int], zero: int = 0, *, float32: bool = False
) -> Requantisation:
    """Return the `Requantisation` rule that multiplies accumulators by a float32 factor per channel.

    Parameters
    ----------
    bound : int
        Maximum magnitude of the accumulators.
    ends : tuple of int
        Lowest and highest output.
    zero : int
        Zero point of the output.
    float32 : bool
        Whether accumulators and products are rounded to float32.
    """
    significand, shift = multiplier(factor, bound)
    low, high = ends
    return Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high, float32=float32)


def quotient(source: Map, count: int) -> Requantisation:
    """Return the `Requantisation` rule that divides sums of ``count`` integers of a map by ``count``, and rounds."""
    factor = np.full(source.channels, 1 / count, np.float32)
    return rule_of(factor, count << source.type.bits, source.type.ends)


def fit_table(
    values: np.ndarray,
    offsets: np.ndarray,
    wanted: np.ndarray,
    x_scale: float,
    y_scale: float,
    output: tuple[int, int, int],
    bits: int,
) -> tuple[np.ndarray, int] | None:
    """Return a 1x1 convolution's constants ``(4, n)`` and zero point that compute a table; ``None`` if none found do.

    The search compares ``clip(round((w * x + b) * significand / 2**shift) + zero)`` with ``wanted`` for many weights
    ``w``. The bias ``b`` is the offset in steps of ``w``, rarely one more or less. The factor is adjusted if ``wanted``
    requires it. If ``wanted`` rounds ties to odd numbers, as QLinearAdd does with odd zero points, a zero point that
    differs by one has the same effect. With up to 8 bits, all outputs must be equal. With more bits, float32 is too
    coarse, and one output in 200 can differ by 1.

    Parameters
    ----------
    values : ndarray
        Integers of the type without their zero point, int64.
    offsets : ndarray
        Offset of each channel, float64 (n,), in real units; ``x_scale`` is the real value of one step.
    wanted : ndarray
        Outputs of each channel for all integers, int64 (n, integers).
    x_scale, y_scale : float
        Scales of input and output.
    output : tuple of int
        Zero point, minimum and maximum of the output.
    bits : int
        Width of the wider type, in bits.

    Returns
    -------
    tuple or None
        Weights, biases, significands and shifts, int64 (4, n), and the zero point; ``None`` if the search fails.
    """
    zero, low, high = output
    for shift in (0, 1 if zero > 0 else -1):  # towards 0, so that the zero point stays in the type
        moved = offsets + shift * y_scale
        table = _fit(values, moved, wanted, x_scale, y_scale, (zero - shift, low, high), bits)
        if table is not None:
            return table, zero - shift
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
    """Return an array of weights, biases, significands and shifts for `fit_table`; ``None`` if there are none."""
    zero, low, high = output
    wide = bits > 8
    # With weight w, offsets are multiples of 1 / w steps.
    weights = itertools.chain([1], range((1 << 15) - 1, (1 << 15) - 64, -1)) if wide else range(1, 256)
    weights = tuple(weights)
    limit = MAX_BIAS if wide else (1 << 31) - 1
    parameters = np.zeros((4, len(offsets)), np.int64)
    rows = max(1, _BLOCK // len(values))
    for begin in range(0, len(offsets), rows):
        left = np.arange(begin, min(begin + rows, len(offsets)))
        for weight, more in itertools.product(weights, (0, 1, -1)):
            targets = wanted[left]
            # Bounds of the products that give the targets as outputs, before saturation.
            lower = np.where(targets == low, -np.inf, targets - zero - 0.5)
            upper = np.where(targets == high, np.inf, targets - zero + 0.5)
            bias = np.clip(np.rint(offsets[left] / x_scale * weight) + more, -limit - 1, limit).astype(np.int64)
            sums = weight * values + bias[:, None]
            bound = int(np.abs(sums).max())
            factor = _fitting_factor(sums, lower, upper, x_scale / weight / y_scale)
            significand, shift = multiplier(factor, bound)
            rule = Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high)
            wrong = np.abs(requantise(sums, rule, bound) - targets)
            right = (wrong.max(axis=1) <= wide) & (np.count_nonzero(wrong, axis=1) * RARELY <= wide * len(values))
            parameters[:, left[right]] = np.stack((np.full(len(left), weight), bias, significand, shift))[:, right]
            left = left[~right]
            if not len(left):
                break
        else:
            return None
    return parameters


def _fitting_factor(sums: np.ndarray, lower: np.ndarray, upper: np.ndarray, nominal: float) -> np.ndarray:
    """Return, per row of ``sums``, a float32 factor that scales every sum to between ``lower`` and ``upper``.

    The factor is ``nominal`` if this is such a factor or none exists, otherwise the middle of the interval of such
    factors.
    """
    positive = np.maximum(sums, 1)
    negative = np.minimum(sums, -1)
    low = np.where(sums > 0, lower / positive, np.where(sums < 0, upper / negative, -np.inf)).max(axis=1)
    high = np.where(sums > 0, upper / positive, np.where(sums < 0, lower / negative, np.inf)).min(axis=1)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high) & (low > 0)
    inside = (low < nominal) & (nominal < high)
    middle = np.where(bounded, low, nominal) / 2 + np.where(bounded, high, nominal) / 2
    return np.where(inside, nominal, middle).astype(np.float32)


@dataclass(frozen=True)
class FittedMean:
    """Exact way to a rounded mean: integers times ``weight`` are summed, and ``rule`` requantises the sum.

    ``ties``: whether means can be halfway between two outputs, as exactly as float32 tells.
    """

    weight: int
    rule: Requantisation
    ties: bool


def fit_mean(
    reach: tuple[int, int],
    count: int,
    scales: tuple[float, float],
    output: tuple[int, int, int],
    channels: int,
) -> FittedMean:
    """Return a `FittedMean` (integer weight, requantisation) that rounds means of all possible sums like float32.

    The sum is rounded once to float32, divided by the count and then by the output's scale. If no rule gives all
    outputs, the result is the rule with the fewest others, which differ by 1.

    Parameters
    ----------
    reach : tuple of int
        Smallest and largest integer, less the zero point.
    count : int
        Number of integers that are averaged.
    scales : tuple of float
        Scales of input and output, float32 numbers.
    output : tuple of int
        Zero point, minimum and maximum of the output.
    channels : int
        Number of channels, which all have the same rule.
    """
    zero, low, high = output
    factor = scales[0] / (scales[1] * count)
    # Beyond some sums the outputs saturate. If very many are left, some of them stand for all.
    first = max(count * reach[0], math.floor((low - zero - 1) / factor))
    last = min(count * reach[1], math.ceil((high - zero + 1) / factor))
    sums = np.unique(np.linspace(first, last, min(last - first + 1, _MAX_SUMS)).astype(np.int64))
    means = (sums * scales[0]).astype(np.float32) / np.float32(count) / np.float32(scales[1])
    wanted = np.clip(np.rint(means).astype(np.int64) + zero, low, high)
    fitted = _fitting_mean(sums, wanted, factor, output, count * max(map(abs, reach)))
    halves = np.abs(sums * factor - np.floor(sums * factor) - 0.5)
    rule = replace(
        fitted.rule,
        significand=np.repeat(fitted.rule.significand, channels),
        shift=np.repeat(fitted.rule.shift, channels),
    )
    return replace(fitted, rule=rule, ties=bool((halves <= np.abs(sums * factor) * _SLACK).any()))


def _fitting_mean(
    sums: np.ndarray, wanted: np.ndarray, factor: float, output: tuple[int, int, int], bound: int
) -> FittedMean:
    """Return a `FittedMean` of one channel such that the fewest sums give an output other than ``wanted``."""
    zero, low, high = output
    lower = np.where(wanted == low, -np.inf, wanted - zero - 0.5)[None]
    upper = np.where(wanted == high, np.inf, wanted - zero + 0.5)[None]
    exact = _fitting_factor(sums[None], lower, upper, factor)
    # Products that are rounded to float32 find halves, if the factor's own rounding is small. Outputs have 8 bits.
    weights = range(1, 128) if high - low < 1 << 8 else ()
    candidates = [(1, exact, False), *((weight, np.array([factor / weight], np.float32), True) for weight in weights)]
    best, fewest = None, len(sums) + 1
    for weight, value, float32 in candidates:
        significand, shift = multiplier(value, bound * weight)
        rule = Requantisation(
            significand=significand, shift=shift, zero_point=zero, low=low, high=high, float32=float32
        )
        wrong = np.count_nonzero(requantise(sums[None] * weight, rule, bound * weight) != wanted)
        if wrong < fewest:
            best, fewest = FittedMean(weight, rule, False), wrong
        if not wrong:
            break
    assert best is not None
    return best


def add_constant(
    values: np.ndarray,
    label: tuple[np.float32, int],
    addend: Addend,
    scale: np.float32,
    zero: int,
) -> np.ndarray | None:
    """Return QLinearAdd's integers for a map plus a constant per channel, before saturation, int64 (n, integers).

    `hwgen.network.float32.qlinear_add` computes them. The map is its ``a`` if the constant is broadcast.

    Parameters
    ----------
    values : ndarray
        Integers of the map, with their zero point.
    label : tuple
        Scale and zero point of the map.
    addend : Addend
        Constant, n values.
    scale : float32
        Scale of the output.
    zero : int
        Zero point of the output.

    Returns
    -------
    ndarray or None
        Integers; ``None`` if a result exceeds int32, where ONNX Runtime's kernel wraps.
    """
    here = values[None], Label(float(label[0]), label[1])
    other = addend.values[:, None], Label(float(addend.scale), addend.zero)
    first, second = (other, here) if addend.first else (here, other)
    result = qlinear_add(*first, *second, Label(float(scale), zero))
    return np.rint(result).astype(np.int64) if (np.abs(result) < 2.0**31).all() else None
