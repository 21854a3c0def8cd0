"""Average pools on the engine as requantised sums of windows, refused unless every result equals ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, product

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import AveragePool
from hwgen.program.factors import Factors, StepFunctions, fit

#: Half a unit in the last place of float32, relative to the value, plus 1 % for products of errors.
_HALF_STEP = 1.01 * 2.0**-24
_ROUNDED = "--averages rounded would work, with averages that differ from ONNX Runtime's by at most 1"
#: Largest weight of all taps of a window.
_MOST_WEIGHT = 127
#: Largest window, in taps, for which the extreme float32 sums of each integer sum are computed.
_MOST_TAPS = 81


@dataclass(frozen=True)
class DivisorRegion:
    """Part of an average pool's output whose windows have equal divisors: rows, columns, divisor."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    count: int


def regions(op: AveragePool) -> list[DivisorRegion]:
    """Return the parts of an average pool's output with equal divisors, row by row: one if padding counts.

    Padding has the value 0, as other taps can have.
    """
    if op.include_padding:
        return [DivisorRegion((0, op.output.height), (0, op.output.width), op.taps)]
    spans = []
    for axis in (0, 1):
        sizes = [end - begin for begin, end in (op.needed(axis, at, at + 1) for at in range(op.output.shape[1 + axis]))]
        spans.append([*_runs(sizes)])
    return [DivisorRegion(rows, columns, down * across) for (rows, down), (columns, across) in product(*spans)]


def _runs(sizes: list[int]) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the half-open intervals of equal neighbouring numbers, each with its number."""
    begin = 0
    for size, group in groupby(sizes):
        end = begin + len([*group])
        yield (begin, end), size
        begin = end


def average_factors(op: AveragePool, count: int) -> tuple[int, Factors]:
    """Return the weight of all taps, and the engine's factors from their sum, above zero points, to the output.

    ONNX Runtime adds real values in float32, tap by tap. Where the rounded sum can fall on either side of a tie,
    depending on the order of the values, no function of the integers' sum gives ONNX Runtime's output.

    Parameters
    ----------
    op : AveragePool
    count : int
        Number of values of a window, by which their sum is divided.

    Raises
    ------
    ModelError
        If the order of additions decides some output, or no factors give ONNX Runtime's output for all sums.
    """
    low, high = (end - op.input.zero_point for end in (op.input.type.minimum, op.input.type.maximum))
    sums = np.arange(count * low, count * high + 1)
    outputs = op.rounded(sums.astype(np.float32) * np.float32(op.x_scale), count).astype(np.int64)
    unsure = _depends_on_order(op, sums, (low, high), count)
    if unsure.any() and count <= _MOST_TAPS:
        least, most = (op.rounded(total, count).astype(np.int64) for total in _extreme_totals(op, count, low, high))
        outputs, unsure = least, least != most
    if unsure.any():
        raise ModelError(
            f"{op.name}: the average of windows with a sum of {int(sums[unsure][0])} above zero points lies so near a "
            f"tie that the order of additions in ONNX Runtime decides; the engine adds integers; {_ROUNDED}; a scale "
            "of the output that is not the input's, or --template stream, would work too"
        )
    ratio = op.x_scale / (count * op.y_scale)
    guess = Factors.of_ratio(np.array([np.float32(ratio)]), op.output.zero_point)
    factors = fit(StepFunctions.of_table(sums[None], outputs[None]), guess, op.output.type)
    weighted = _weighted(sums, outputs, ratio, op.output) if factors is None else (1, factors)
    if weighted is None:
        raise ModelError(
            f"{op.name}: no factor of the engine rounds the averages at scales {op.x_scale:g} and {op.y_scale:g} as "
            f"ONNX Runtime does; {f'{_ROUNDED}; ' if np.frexp(op.x_scale)[0] != 0.5 else ''}use --template stream"
        )
    return weighted


def _weighted(sums: np.ndarray, outputs: np.ndarray, ratio: float, output: FeatureMap) -> tuple[int, Factors] | None:
    """Return a weight above 1, and factors, that give the outputs of all sums; ``None`` if there are none.

    Where averages are ties, a product must be one, too, after its rounding to float32. Each weight has another factor
    with another rounding. A zero point that differs by 1 rounds ties to the other side.
    """
    for weight, shift in product(range(3, _MOST_WEIGHT + 1, 2), (0, 1, -1)):
        zero_point, factor = output.zero_point + shift, np.array([np.float32(ratio / weight)])
        if output.type.minimum <= zero_point <= output.type.maximum:
            factors = Factors.of_ratio(factor, zero_point, np.array([-shift * round(weight / ratio)]))
            if not StepFunctions.of_table(weight * sums[None], outputs[None]).wrong(factors)[0]:
                return weight, factors
    return None


def _extreme_totals(op: AveragePool, count: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest float32 sum of windows with each integer sum, over all values of the window.

    A float32 addition increases with its operands. So the least sum of one more tap is that of a least sum.
    """
    terms = np.arange(low, high + 1).astype(np.float32) * np.float32(op.x_scale)
    extremes = []
    for pick, worst in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        total = terms
        for _ in range(count - 1):
            longer = np.full(len(total) + len(terms) - 1, worst, np.float32)
            for index, term in enumerate(terms):
                part = longer[index : index + len(total)]
                pick(part, total + term, out=part)
            total = longer
        extremes.append(total)
    return extremes[0], extremes[1]


def _depends_on_order(op: AveragePool, sums: np.ndarray, ends: tuple[int, int], count: int) -> np.ndarray:
    """Return, for each sum of a window, whether the order of ONNX Runtime's additions may change the pool's output.

    ``sums`` are the integer sums of windows of ``count`` values. A value, less the zero point, is an integer from
    ``ends[0]`` to ``ends[1]``.
    """
    low, high = ends
    mantissa = int(np.frexp(np.float32(op.x_scale))[0] * (1 << SIGNIFICAND_BITS))
    bits = SIGNIFICAND_BITS - ((mantissa & -mantissa).bit_length() - 1)
    if bits + int(np.abs(sums).max()).bit_length() <= SIGNIFICAND_BITS:
        return np.zeros(len(sums), bool)  # no sum is rounded
    partial_range = np.maximum(sums - count * low, 0), np.minimum(sums - count * high, 0)  # sum of some of the taps
    max_partial = np.maximum(np.minimum(partial_range[0], count * high), -np.maximum(partial_range[1], count * low))
    magnitudes = np.minimum(
        sums - 2 * count * min(low, 0), 2 * count * max(high, 0) - sums
    )  # bound on the sum of magnitudes
    step = op.x_scale / (count * op.y_scale)
    values = sums * step + op.output.zero_point
    error = _HALF_STEP * ((magnitudes + count * max_partial + 2 * np.abs(sums)) * step + np.abs(values) + 1)
    integer_type = op.output.type
    inside = (values > integer_type.minimum - 1) & (values < integer_type.maximum + 1)
    return inside & (np.abs(values - np.floor(values) - 0.5) <= error)
