"""Search for requantisation factors and biases that let the engine give wanted outputs for all integer sums.

The engine computes ``rint(float32(float32(sum + bias) * factor)) + zero_point``, and ONNX Runtime rounds some layers
otherwise: average pools, for example, which are sums of windows here. Both outputs increase with the sum. They are
therefore equal for all sums if they are equal at the two sums on either side of each step of the output, and another
factor or bias may move every step to its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, product

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.network.maps import FeatureMap, IntegerType, Requantisation, Rule, requantise
from hwgen.network.ops import AveragePool
from hwgen.program.layout import MAX_SHIFT

#: Bound on the magnitude of the integer sums of a layer, biases included.
_BOUND = 1 << 33
#: Bound on the magnitude of biases that are tried: the engine's have 32 bits, with the input's zero point folded in.
_MAX_BIAS = 1 << 30
#: Number of biases that are tried on either side of the fitted bias.
_BIASES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class StepFunctions:
    """Thresholds of step functions from integer sums to outputs, one rising function per output channel.

    Parameters
    ----------
    below : ndarray
        Largest sum whose output is less than ``outputs[k]``, int64 ``(M, K)``.
    above : ndarray
        Smallest sum whose output is ``outputs[k]`` or more, int64 ``(M, K)``.
    outputs : ndarray
        Consecutive output integers, int64 ``(K,)``.
    has_below, has_above : ndarray
        Whether there is such a sum, bool ``(M, K)``.
    """

    below: np.ndarray
    above: np.ndarray
    outputs: np.ndarray
    has_below: np.ndarray
    has_above: np.ndarray

    @classmethod
    def of_table(cls, sums: np.ndarray, table: np.ndarray) -> StepFunctions:
        """Return `StepFunctions`: thresholds of outputs ``table`` ``(M, n)`` for sums, both increasing."""
        low, high = int(table.min()), int(table.max())
        outputs = np.arange(low + 1, high + 1)
        sums = np.broadcast_to(sums, table.shape)
        first = np.stack([np.searchsorted(row, outputs, side="left") for row in table]).reshape(len(table), -1)
        last = table.shape[1] - 1
        return cls(
            below=np.take_along_axis(sums, np.maximum(first - 1, 0), 1),
            above=np.take_along_axis(sums, np.minimum(first, last), 1),
            outputs=outputs,
            has_below=first > 0,
            has_above=first <= last,
        )

    @classmethod
    def of_rule(cls, rule: Rule, low: int, high: int, limit: np.ndarray) -> StepFunctions:
        """Return `StepFunctions`: thresholds of a requantisation's outputs, for sums up to magnitude ``limit`` (M,)."""
        outputs = np.arange(low + 1, high + 1)
        max_sums = np.broadcast_to(limit[:, None], (len(limit), len(outputs)))
        # Outputs are too small at ``before``, and large enough at ``above``.
        before, above = -max_sums - 1, max_sums + 1
        while (above - before > 1).any():
            middle = (before + above) // 2
            reached = rule.outputs(np.clip(middle, -max_sums, max_sums), int(limit.max())) >= outputs
            above, before = np.where(reached, middle, above), np.where(reached, before, middle)
        return cls(
            below=np.maximum(above - 1, -max_sums),
            above=np.minimum(above, max_sums),
            outputs=outputs,
            has_below=above > -max_sums,
            has_above=above <= max_sums,
        )

    def before_bias(self, bias: np.ndarray, fraction: int) -> StepFunctions:
        """Return `StepFunctions` of sums ``s``, given that these functions are of ``(s << fraction) + bias``."""
        above = -((bias[:, None] - self.above) >> fraction)
        below = (self.below - bias[:, None]) >> fraction
        return replace(self, above=above, below=below)

    def channel(self, index: int) -> StepFunctions:
        """Return `StepFunctions`: the thresholds of one output channel only."""
        only = slice(index, index + 1)
        return replace(
            self,
            below=self.below[only],
            above=self.above[only],
            has_below=self.has_below[only],
            has_above=self.has_above[only],
        )

    def differ(self, factors: Factors) -> np.ndarray:
        """Return a boolean array ``(M,)``: whether, with ``factors``, the engine gives another output for some sum."""
        rule = Requantisation(
            significand=factors.significand,
            shift=factors.shift,
            zero_point=factors.zero_point,
            low=-_BOUND,
            high=_BOUND,
            float32=True,
        )
        bias = factors.bias[:, None]
        above = requantise(self.above + bias, rule, _BOUND) < self.outputs
        below = requantise(self.below + bias, rule, _BOUND) >= self.outputs
        return np.asarray(((above & self.has_above) | (below & self.has_below)).any(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """Requantisation parameters of the engine: significand, shift and bias per output channel, and zero point.

    ``bias`` is added to the sums that `StepFunctions` counts.
    """

    significand: np.ndarray
    shift: np.ndarray
    bias: np.ndarray
    zero_point: int

    @classmethod
    def of_ratio(cls, ratio: np.ndarray, zero_point: int, bias: np.ndarray | None = None) -> Factors:
        """Return the `Factors` for real ratios ``(M,)`` of outputs to sums, rounded to float32."""
        mantissa, exponent = np.frexp(ratio.astype(np.float32).astype(np.float64))
        return cls(
            significand=np.rint(np.ldexp(mantissa, SIGNIFICAND_BITS)).astype(np.int64),
            shift=SIGNIFICAND_BITS - exponent.astype(np.int64),
            bias=np.zeros(len(ratio), np.int64) if bias is None else bias,
            zero_point=zero_point,
        )

    @property
    def ratio(self) -> np.ndarray:
        """Real ratios of outputs to sums, float64 ``(M,)``."""
        return np.ldexp(self.significand.astype(np.float64), -np.minimum(self.shift, 1 << 10))

    def with_channel(self, index: int, other: Factors) -> Factors:
        """Return a copy of these `Factors` whose channel ``index`` is replaced by the only channel of ``other``."""
        values = {name: getattr(self, name).copy() for name in ("significand", "shift", "bias")}
        for name, array in values.items():
            array[index] = getattr(other, name)[0]
        return replace(self, **values)


def fit(steps: StepFunctions, guess: Factors, output_type: IntegerType) -> Factors | None:
    """Return requantisation `Factors` near ``guess`` that give the outputs of ``steps``; ``None`` if none are found.

    All channels have the same zero point, an integer of ``output_type``. Another zero point, with another bias, rounds
    ties otherwise: by an odd number to the other side; with the least one, a slightly larger factor rounds all ties up.
    A single function is tried with every zero point, because each moves the steps by another fraction of a sum.
    """
    zero_points = [guess.zero_point + shift for shift in (0, 1, -1)]
    zero_points += [output_type.minimum, output_type.minimum + 1, output_type.maximum, output_type.maximum - 1]
    if len(steps.above) == 1:
        zero_points += range(output_type.minimum, output_type.maximum + 1)
    for zero_point in dict.fromkeys(zero_points):
        if not output_type.minimum <= zero_point <= output_type.maximum:
            continue
        moved = np.rint((guess.zero_point - zero_point) / guess.ratio)
        if np.abs(moved).max(initial=0) >= _MAX_BIAS:
            continue
        bias = guess.bias + moved.astype(np.int64)
        factors: Factors | None = replace(guess, bias=bias, zero_point=zero_point)
        is_possible = (guess.shift >= 0) & (guess.shift <= MAX_SHIFT)
        for index in np.flatnonzero(steps.differ(factors) | ~is_possible).tolist():
            found = _fit_channel(steps.channel(index), factors, index)
            factors = None if found is None or factors is None else factors.with_channel(index, found)
            if factors is None:
                break
        if factors is not None:
            return factors
    return None


def _fit_channel(steps: StepFunctions, guess: Factors | None, index: int) -> Factors | None:
    """Return `Factors` that give the outputs of one channel, ``index`` of ``guess``; ``None`` if none are found."""
    assert guess is not None
    for bias in _biases(steps, guess, index):
        for ratio in _ratios(steps, bias, guess.zero_point):
            if ratio <= 0:
                continue
            factors = Factors.of_ratio(np.array([ratio]), guess.zero_point, np.array([bias]))
            if 0 <= factors.shift[0] <= MAX_SHIFT and not steps.differ(factors)[0]:
                return factors
    return None


def _biases(steps: StepFunctions, guess: Factors, index: int) -> Iterator[int]:
    """Yield candidate biases of one channel: the guess, then integers near a straight line fitted to its thresholds."""
    yield int(guess.bias[index])
    both = (steps.has_below & steps.has_above)[0]
    if both.sum() < 2:
        both = (steps.has_below | steps.has_above)[0]
    middles = (steps.below + steps.above)[0, both] / 2
    heights = steps.outputs[both] - guess.zero_point - 0.5
    if len(middles) > 1 and np.ptp(middles):
        slope, offset = np.polyfit(middles, heights, 1)
        if slope > 0 and abs(offset / slope) < _MAX_BIAS:
            center = round(offset / slope)
            for distance in range(_BIASES):
                yield from dict.fromkeys((center + distance, center - distance))


def _ratios(steps: StepFunctions, bias: int, zero_point: int) -> Iterator[float]:
    """Yield candidate ratios (output per sum) that put each threshold of a channel where it must be, for a bias."""
    heights = steps.outputs - zero_point - 0.5
    lower_end, upper_end = 0.0, np.inf
    for sums, present, is_above in (
        (steps.above[0] + bias, steps.has_above[0], True),
        (steps.below[0] + bias, steps.has_below[0], False),
    ):
        sums, wanted = sums[present], heights[present]
        if ((wanted > 0) if is_above else (wanted < 0))[sums == 0].any():
            return
        quotients, positive = wanted[sums != 0] / sums[sums != 0], sums[sums != 0] > 0
        lower = quotients[positive == is_above]
        upper = quotients[positive != is_above]
        lower_end, upper_end = max(lower_end, lower.max(initial=0.0)), min(upper_end, upper.min(initial=np.inf))
    if lower_end > upper_end * (1 + 2.0**-22) or upper_end <= 0:
        return
    if not np.isfinite(upper_end):
        upper_end = 2 * lower_end or 1.0
    middle = np.float32((lower_end + upper_end) / 2)
    yield float(middle)
    for end in (np.float32(lower_end), np.float32(upper_end)):
        ratio = np.nextafter(np.nextafter(end, np.float32(0)), np.float32(0))
        for _ in range(5):
            yield float(ratio)
            ratio = np.nextafter(ratio, np.float32(np.inf))


#: Half a unit in the last place of float32, relative to the value, plus 1 % for products of errors.
_HALF_STEP = 1.01 * 2.0**-24
_ROUNDED = "--averages rounded would work, with averages that differ from ONNX Runtime's by at most 1"
#: Largest common weight of a window's taps that is tried for an average pool.
_MAX_WEIGHT = 127
#: Largest window of an average pool, in taps, whose smallest and largest float32 sums are computed.
_MAX_TAPS = 81


@dataclass(frozen=True)
class DivisorRegion:
    """Rectangle of an average pool's output where all windows have the same divisor ``count``."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    count: int


def divisor_regions(op: AveragePool) -> list[DivisorRegion]:
    """Return a list of `DivisorRegion` rectangles of an average pool's output, by row: one if padding counts.

    Padding has the value 0, as other taps can have.
    """
    if op.include_padding:
        return [DivisorRegion((0, op.output.height), (0, op.output.width), op.taps)]
    spans = []
    for axis in (0, 1):
        sizes = [end - begin for begin, end in (op.needed(axis, at, at + 1) for at in range(op.output.shape[1 + axis]))]
        spans.append([*_equal_runs(sizes)])
    return [DivisorRegion(rows, columns, down * across) for (rows, down), (columns, across) in product(*spans)]


def _equal_runs(sizes: list[int]) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield ((begin, end), number) for each run of equal neighbouring numbers."""
    begin = 0
    for size, group in groupby(sizes):
        end = begin + len([*group])
        yield (begin, end), size
        begin = end


@lru_cache(maxsize=1024)
def average_factors(op: AveragePool, count: int) -> tuple[int, Factors]:
    """Return a pair: a common weight of an average pool's taps, and `Factors` that requantise the sum exactly.

    ONNX Runtime adds real values in float32, tap by tap. If the rounded sum can fall on either side of a tie,
    depending on the order of the values, no function of the integers' sum gives ONNX Runtime's output.

    Parameters
    ----------
    op : AveragePool
    count : int
        Number of values of a window, which divides their sum.

    Raises
    ------
    ModelError
        If the order of additions decides some output, or no factors give ONNX Runtime's output for all sums.
    """
    low, high = (end - op.input.zero_point for end in (op.input.type.minimum, op.input.type.maximum))
    sums = np.arange(count * low, count * high + 1)
    outputs = op.rounded(sums.astype(np.float32) * np.float32(op.x_scale), count).astype(np.int64)
    unsure = _depends_on_order(op, sums, (low, high), count)
    if unsure.any() and count <= _MAX_TAPS:
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
    """Return a pair: a weight above 1 for all taps, and `Factors` exact for all sums; ``None`` if none found are.

    If averages are ties, a product must be one, too, after its rounding to float32. Each weight has another factor
    with another rounding. A zero point that differs by 1 rounds ties to the other side.
    """
    for weight, shift in product(range(3, _MAX_WEIGHT + 1, 2), (0, 1, -1)):
        zero_point, factor = output.zero_point + shift, np.array([np.float32(ratio / weight)])
        if output.type.minimum <= zero_point <= output.type.maximum:
            factors = Factors.of_ratio(factor, zero_point, np.array([-shift * round(weight / ratio)]))
            is_possible = 0 <= factors.shift[0] <= MAX_SHIFT
            if is_possible and not StepFunctions.of_table(weight * sums[None], outputs[None]).differ(factors)[0]:
                return weight, factors
    return None


def _extreme_totals(op: AveragePool, count: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays by integer sum: smallest and largest float32 sum of a window, over all value orders.

    A float32 addition increases with its operands. The smallest sum with one more tap therefore extends a smallest sum.
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
    """Return a boolean array by integer sum: whether the order of ONNX Runtime's additions may change the output.

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
