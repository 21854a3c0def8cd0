"""Planner's model of local response normalisation (LRN): a running sum, and tables with its exact outputs.

The distance of an output from its zero point falls as the scale (the sum with its bias) grows. A fall is the smallest
scale with a distance one less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.normalise import NormaliseConfig
from hwgen.gateware.running_scale import RunningScaleConfig, RunningScaleLayerConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.weights import Weights
from hwgen.network.ops import LRN
from hwgen.network.ops.lrn import RIPPLE, Falls, Scale, from_bits, magnitudes, to_bits
from hwgen.templates.joins import StepStage
from hwgen.templates.stage import beat_format
from hwgen.templates.work import LayerWork, SerialOrder, Unroll

#: Maximum number of leading bits of an LRN's scale that select a factor, and the candidate fraction bits of a factor.
_MAX_FACTOR_BITS, _FRACTIONS = 13, range(6, 17)

#: Width of a factor as a signed number, in bits, at most: a port of the multiplier has it.
_PORT_BITS = 25

#: Integer above any distance of an output from its zero point.
_FAR = 1 << 20

#: Number of bits of a float32 number below its leading one, and of guard bits of a sum, which decide its rounding.
_BELOW, _GUARD = 23, 2


@dataclass(frozen=True)
class ScaleSums:
    """Integers that hardware sums for an LRN's scale (bias plus squares): terms, start, and range of the sum."""

    terms: np.ndarray
    """Integer that an input adds to the sum, by the input's distance from its zero point (magnitude); int64 array."""
    start: int
    """Initial value of each sum, an integer: the bias, or 0 if the integers count steps above the bias."""
    low: int
    """Smallest integer that a sum of an LRN can be in hardware."""
    high: int
    """Largest integer that a sum of an LRN can be in hardware."""
    origin: int
    """Bits (as an integer) of the float32 scale that the hardware represents as 0."""


def sums_of(scale: Scale) -> ScaleSums:
    """Return `ScaleSums`: the hardware's integers for the float32 terms and sums of LRN's scale (bias plus squares).

    If no sum is rounded, the integers count the scale's steps above the bias. Otherwise they count quarters of the
    smallest sum's last place; the last bit of a term is then set if the term has any fraction below a quarter.
    """
    if scale.steady:
        largest = min(scale.size, scale.channels) * int(scale.steps.max())
        return ScaleSums(scale.steps, 0, 0, largest, int(to_bits(np.float32(scale.bias))))
    low_bits = int(scale.ranges[0].min())
    smallest, largest = (float(bound) for bound in from_bits(np.array([low_bits, scale.max_running_sum])))
    unit = float(np.spacing(np.float32(smallest))) / (1 << _GUARD)
    exact = scale.terms.astype(np.float64) / unit
    whole = np.floor(exact).astype(np.int64)
    terms = np.where(exact == whole, whole, whole | 1)
    power = low_bits >> _BELOW << _BELOW  # sums in this binade are as long as the smallest sum
    return ScaleSums(terms, round(scale.bias / unit), int(smallest / unit), int(largest / unit), power)


@dataclass(frozen=True)
class NormaliseTables:
    """Tables of an LRN's circuit: factors by scale, and thresholds by input distance from zero point."""

    factors: tuple[int, ...]
    shift: int
    fraction: int
    first: tuple[int, ...]
    falls: Weights
    kinds: Weights
    ripples: tuple[int, ...]


def find_tables(op: LRN, origin: int, bits: int) -> NormaliseTables:
    """Return the smallest `NormaliseTables` found that give an LRN's exact outputs for every magnitude and scale.

    Parameters
    ----------
    op : LRN
    origin : int
        Bit pattern of the float32 scale that the hardware represents as 0.
    bits : int
        Number of bits of the hardware's scales.

    Raises
    ------
    PlanError
        If no tables of an acceptable size give the outputs.
    """
    integer_type = op.input.type
    count = magnitudes(integer_type.minimum, integer_type.maximum, op.input.zero_point)
    falls = _Falls.of(op.falls, count, origin, bits)
    (least, most), limit = op.scale.ranges, _limit(op)
    ranges = least[:count] - origin, most[:count] - origin
    for shift in range(bits, max(bits - _MAX_FACTOR_BITS, 0) - 1, -1):
        guesses = _Guesses.of(falls, ranges, limit, shift, bits)
        for fraction in _FRACTIONS if guesses.possible else ():
            if (factors := guesses.factors(fraction)) is not None:
                return _tables(falls, guesses, factors, fraction)
    raise PlanError(
        f"{op.name}: its outputs change at {len(op.falls.at):,} scales, which {1 << _MAX_FACTOR_BITS:,} factors can't "
        "represent; use a smaller alpha, or a larger scale of its output"
    )


def _limit(op: LRN) -> int:
    """Return the largest distance that an output of an LRN can have from its zero point."""
    zero = op.output.zero_point
    return max(op.high - zero, zero - op.low)


@dataclass(frozen=True)
class _Falls:
    """Thresholds of an LRN, by the input's distance from its zero point: scales where the output drops by one.

    ``smallest`` has the distance after all falls, ``at`` the scale of each fall, ``ends`` the first scale after the
    fall's ripples, and ``ripples`` their mask.
    """

    smallest: list[int]
    at: list[np.ndarray]
    ends: list[np.ndarray]
    ripples: list[np.ndarray]
    never: int
    """Integer scale, larger than any sum in hardware, of thresholds that are never reached."""

    @classmethod
    def of(cls, falls: Falls, count: int, origin: int, bits: int) -> _Falls:
        """Return `_Falls`: thresholds of the first ``count`` distances, as scales of ``bits`` bits minus ``origin``."""
        # Falls before the first hardware scale are moved to it.
        before = np.maximum(origin - falls.at, 0)
        never = (1 << bits) - 1
        at = np.minimum(np.maximum(falls.at - origin, 0), never)
        ripples = falls.ripples >> np.minimum(before, RIPPLE)
        lengths = np.array([int(ripple).bit_length() for ripple in ripples], np.int64)
        split = [np.split(values, falls.first[1:-1])[:count] for values in (at, at + lengths, ripples)]
        return cls(falls.last_distance[:count].tolist(), *split, never=never)


@dataclass(frozen=True)
class _Guesses:
    """Allowed estimates of an LRN's output, by the input's distance and the leading bits of the scale.

    A guess ``k`` is permitted from ``low`` to ``high``.
    """

    falls: _Falls
    limit: int
    shift: int
    count: int
    """Number of factors in the LRN's table, one for each value of the scale's leading bits."""
    magnitude: np.ndarray
    leading: np.ndarray
    """Array of leading bits of the scale, which select a factor, per pair of a magnitude and leading bits."""
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, falls: _Falls, ranges: tuple[np.ndarray, np.ndarray], limit: int, shift: int, bits: int) -> _Guesses:
        columns = []
        for magnitude, (least, most) in enumerate(zip(*(end.tolist() for end in ranges), strict=True)):
            leading = np.arange(least >> shift, (most >> shift) + 1)
            begin, end = np.maximum(leading << shift, least), np.minimum((leading + 1 << shift) - 1, most)
            remaining = len(falls.at[magnitude]) - np.searchsorted(falls.ends[magnitude], begin, side="right")
            certain = len(falls.at[magnitude]) - np.searchsorted(falls.at[magnitude], end, side="right")
            # The distance is k or k + 1. If only one distance is possible, k is this distance or the one below.
            low, high = (
                np.clip(falls.smallest[magnitude] + remaining - 1, 0, limit),
                falls.smallest[magnitude] + certain,
            )
            columns.append((np.full_like(leading, magnitude), leading, low, np.where(high < limit, high, _FAR)))
        return cls(falls, limit, shift, 1 << bits - shift, *map(np.concatenate, zip(*columns, strict=True)))

    @property
    def possible(self) -> bool:
        return bool((self.low <= self.high).all())

    def factors(self, fraction: int) -> np.ndarray | None:
        """Return an array of factors by leading bits of the scale; ``None`` if the fraction bits are too few.

        The factors (an int64 array) times magnitudes give permitted guesses.
        """
        nonzero = self.magnitude > 0
        magnitude, leading = self.magnitude[nonzero], self.leading[nonzero]
        low, high = np.zeros(self.count, np.int64), np.full(self.count, np.iinfo(np.int64).max)
        np.maximum.at(low, leading, -(-(self.low[nonzero] << fraction) // magnitude))
        np.minimum.at(high, leading, ((self.high[nonzero] + 1 << fraction) - 1) // magnitude)
        if (low > high).any():
            return None
        return low


def _tables(falls: _Falls, guesses: _Guesses, factors: np.ndarray, fraction: int) -> NormaliseTables:
    """Return the `NormaliseTables` of an LRN's circuit: factors, and thresholds that correct the estimates."""
    k = np.minimum(guesses.magnitude * factors[guesses.leading] >> fraction, guesses.limit)
    masks = sorted({0, *(int(ripple) for ripples in falls.ripples for ripple in ripples)})
    first: list[int] = []
    at: list[int] = []
    kinds: list[int] = []
    for magnitude, (least, scales, ripples) in enumerate(zip(falls.smallest, falls.at, falls.ripples, strict=True)):
        used = k[guesses.magnitude == magnitude]
        low, high = int(used.min()), int(used.max())
        first.append(len(at) - low)
        for guess in range(low, high + 1):
            fall_index = least + len(scales) - (guess + 1)
            if fall_index >= len(scales):  # the distance is guess + 1 at all scales
                at.append(falls.never)
                kinds.append(0)
            else:
                at.append(int(scales[fall_index]) if fall_index >= 0 else 0)
                kinds.append(masks.index(int(ripples[fall_index])) if fall_index >= 0 else 0)
    return NormaliseTables(
        tuple(factors.tolist()), guesses.shift, fraction, tuple(first), Weights(at), Weights(kinds), tuple(masks)
    )


_KNOWN: WeakKeyDictionary[LRN, tuple[ScaleSums, NormaliseTables]] = WeakKeyDictionary()
_BLOCK_RAM: WeakKeyDictionary[LRN, float] = WeakKeyDictionary()


class LRNStage(StepStage[LRN]):
    """Planner's model of an LRN that works channel by channel: running sum, multiplier, memory of thresholds."""

    layer_type = RunningScaleLayerConfig

    @property
    def channelwise(self) -> bool:
        """Whether an output beat has the same channel as an input beat: always true."""
        return True

    @property
    def max_lanes(self) -> tuple[int, int]:
        return 1, 1

    @property
    def port_bits(self) -> int:
        return _PORT_BITS

    @property
    def wide_circuit(self) -> str:
        return "a local response normalisation"

    @property
    def work_fields(self) -> dict[str, Any]:
        window = self.window(beat_format(self.op.input, 1))
        return {**super().work_fields, "order": SerialOrder(window.window_cycles)}

    @property
    def min_finish_slices(self) -> int:
        return int(len(self._sums_and_tables[1].factors) > 1)

    @property
    def _sums_and_tables(self) -> tuple[ScaleSums, NormaliseTables]:
        op = self.op
        if op not in _KNOWN:
            sums = sums_of(op.scale)
            bits = self._window(sums, beat_format(op.input, 1)).scale_bits
            _KNOWN[op] = sums, find_tables(op, sums.origin, bits)
        return _KNOWN[op]

    @property
    def origin(self) -> int:
        """Bits (as an integer) of the float32 scale that the hardware represents as 0."""
        return self._sums_and_tables[0].origin

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        if self.op not in _BLOCK_RAM:
            _BLOCK_RAM[self.op] = self.compute([beat_format(self.op.input, 1)]).resources.bram36
        return unroll.tp * _BLOCK_RAM[self.op]

    def window(self, source: BeatFormat) -> RunningScaleConfig:
        """Return the `RunningScaleConfig` of the circuit that reads input beats and sums up the LRN's scale."""
        return self._window(self._sums_and_tables[0], source)

    def compute(self, sources: Sequence[BeatFormat]) -> NormaliseConfig:
        op, integer_type = self.op, self.op.output.type
        (source,), (_, tables) = sources, self._sums_and_tables
        return NormaliseConfig(
            window=self.window(source),
            zero=op.input.zero_point,
            factors=tables.factors,
            shift=tables.shift,
            fraction=tables.fraction,
            limit=_limit(op),
            first=tables.first,
            falls=tables.falls,
            kinds=tables.kinds,
            ripples=tables.ripples,
            zero_point=op.output.zero_point,
            low=op.low,
            high=op.high,
            bits=integer_type.bits,
            signed=integer_type.signed,
        )

    def _window(self, sums: ScaleSums, source: BeatFormat) -> RunningScaleConfig:
        op, integer_type, zero_point = self.op, self.op.input.type, self.op.input.zero_point
        terms = sums.terms[np.abs(np.arange(integer_type.minimum, integer_type.maximum + 1) - zero_point)]
        return RunningScaleConfig(
            device=self.device,
            input=source,
            terms=tuple(terms.tolist()),
            size=op.scale.size,
            start=sums.start,
            lowest=sums.low,
            highest=sums.high,
        )
