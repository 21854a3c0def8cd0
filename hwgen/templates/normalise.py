"""What becomes of local response normalisation: a running sum, and tables from which outputs follow exactly."""

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
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import beat_format
from hwgen.templates.work import LayerWork, SerialWalk, Unroll

#: Leading bits of a scale at most that choose a factor, and bits of a factor behind the point that are tried in turn.
_MOST_FACTOR_BITS, _FRACTIONS = 13, range(6, 17)

#: Beyond any distance.
_FAR = 1 << 20

#: Bits of a float32 number below the leading one; a sum has two more, which decide how it is rounded.
_BELOW, _GUARD = 23, 2


@dataclass(frozen=True)
class Sums:
    """The integers that stand for the terms, and for sums of them."""

    terms: np.ndarray
    """By magnitude, int64."""
    start: int
    least: int
    most: int
    origin: int
    """The bits of the float32 number of the scale that the hardware gives as 0."""


def sums_of(scale: Scale) -> Sums:
    """In units of the bias, from it on, where no sum is rounded; otherwise in quarters of the least sum's unit.

    What a term has below a quarter can't be told apart then, but that it is there, which sets its last bit.
    """
    if scale.steady:
        most = min(scale.size, scale.channels) * int(scale.steps.max())
        return Sums(scale.steps, 0, 0, most, int(to_bits(np.float32(scale.bias))))
    low = int(scale.ranges[0].min())
    least, most = (float(number) for number in from_bits(np.array([low, scale.passed])))
    unit = float(np.spacing(np.float32(least))) / (1 << _GUARD)
    exact = scale.terms.astype(np.float64) / unit
    whole = np.floor(exact).astype(np.int64)
    terms = np.where(exact == whole, whole, whole | 1)
    power = low >> _BELOW << _BELOW  # from there on sums are as long as the least one
    return Sums(terms, round(scale.bias / unit), int(least / unit), int(most / unit), power)


@dataclass(frozen=True)
class Tables:
    """The tables of a `NormaliseConfig`."""

    factors: tuple[int, ...]
    shift: int
    fraction: int
    first: tuple[int, ...]
    falls: Weights
    kinds: Weights
    ripples: tuple[int, ...]


def find_tables(op: LRN, origin: int, bits: int) -> Tables:
    """Tables that give the layer's outputs at every scale that a magnitude can meet, scales of ``bits`` bits.

    Raises
    ------
    PlanError
        If there are none of an acceptable size.
    """
    kind = op.input.type
    count = magnitudes(kind.minimum, kind.maximum, op.input.zero_point)
    falls = _Falls.of(op.falls, count, origin, bits)
    (least, most), limit = op.scale.ranges, _limit(op)
    reach = least[:count] - origin, most[:count] - origin
    for shift in range(bits, max(bits - _MOST_FACTOR_BITS, 0) - 1, -1):
        guesses = _Guesses.of(falls, reach, limit, shift, bits)
        for fraction in _FRACTIONS if guesses.possible else ():
            if (factors := guesses.factors(fraction)) is not None:
                return _tables(falls, guesses, factors, fraction)
    raise PlanError(
        f"{op.name}: no {1 << _MOST_FACTOR_BITS:,} factors say where its outputs change, as they do at "
        f"{len(op.falls.at):,} scales; less of its alpha, or coarser outputs, would help"
    )


def _limit(op: LRN) -> int:
    """The greatest distance of an output from its zero point."""
    zero = op.output.zero_point
    return max(op.high - zero, zero - op.low)


@dataclass(frozen=True)
class _Falls:
    """Those of a layer in the hardware's scales, by magnitude: where they are, and the first scales behind ripples."""

    least: list[int]
    at: list[np.ndarray]
    ends: list[np.ndarray]
    ripples: list[np.ndarray]
    never: int
    """A scale that no sum reaches."""

    @classmethod
    def of(cls, falls: Falls, count: int, origin: int, bits: int) -> _Falls:
        """Those of the first ``count`` magnitudes."""
        # Falls before the first scale have happened.
        before = np.maximum(origin - falls.at, 0)
        never = (1 << bits) - 1
        at = np.minimum(np.maximum(falls.at - origin, 0), never)
        ripples = falls.ripples >> np.minimum(before, RIPPLE)
        lengths = np.array([int(ripple).bit_length() for ripple in ripples], np.int64)
        parts = [np.split(each, falls.first[1:-1])[:count] for each in (at, at + lengths, ripples)]
        return cls(falls.least[:count].tolist(), *parts, never=never)


@dataclass(frozen=True)
class _Guesses:
    """For magnitudes and leading bits of scales that meet: from which ``k`` to which one may be guessed."""

    falls: _Falls
    limit: int
    shift: int
    count: int
    """Factors."""
    magnitude: np.ndarray
    place: np.ndarray
    """The leading bits."""
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, falls: _Falls, reach: tuple[np.ndarray, np.ndarray], limit: int, shift: int, bits: int) -> _Guesses:
        parts = []
        for v, (least, most) in enumerate(zip(*(end.tolist() for end in reach), strict=True)):
            place = np.arange(least >> shift, (most >> shift) + 1)
            begin, end = np.maximum(place << shift, least), np.minimum((place + 1 << shift) - 1, most)
            still = len(falls.at[v]) - np.searchsorted(falls.ends[v], begin, side="right")
            always = len(falls.at[v]) - np.searchsorted(falls.at[v], end, side="right")
            # The distance is one of at most two: k is the lesser; where it is one alone, that or the one below.
            low, high = np.clip(falls.least[v] + still - 1, 0, limit), falls.least[v] + always
            parts.append((np.full_like(place, v), place, low, np.where(high < limit, high, _FAR)))
        return cls(falls, limit, shift, 1 << bits - shift, *map(np.concatenate, zip(*parts, strict=True)))

    @property
    def possible(self) -> bool:
        return bool((self.low <= self.high).all())

    def factors(self, fraction: int) -> np.ndarray | None:
        """Factors with so many bits behind the point, int64; ``None`` if there are none."""
        some = self.magnitude > 0
        v, place = self.magnitude[some], self.place[some]
        low, high = np.zeros(self.count, np.int64), np.full(self.count, np.iinfo(np.int64).max)
        np.maximum.at(low, place, -(-(self.low[some] << fraction) // v))
        np.minimum.at(high, place, ((self.high[some] + 1 << fraction) - 1) // v)
        if (low > high).any():
            return None
        return low


def _tables(falls: _Falls, guesses: _Guesses, factors: np.ndarray, fraction: int) -> Tables:
    """The falls that are asked for with these factors, magnitude by magnitude."""
    k = np.minimum(guesses.magnitude * factors[guesses.place] >> fraction, guesses.limit)
    masks = sorted({0, *(int(ripple) for each in falls.ripples for ripple in each)})
    first: list[int] = []
    at: list[int] = []
    kinds: list[int] = []
    for v, (least, places, ripples) in enumerate(zip(falls.least, falls.at, falls.ripples, strict=True)):
        used = k[guesses.magnitude == v]
        low, high = int(used.min()), int(used.max())
        first.append(len(at) - low)
        for guess in range(low, high + 1):
            number = least + len(places) - (guess + 1)
            if number >= len(places):  # at all scales it is one more
                at.append(falls.never)
                kinds.append(0)
            else:
                at.append(int(places[number]) if number >= 0 else 0)
                kinds.append(masks.index(int(ripples[number])) if number >= 0 else 0)
    return Tables(
        tuple(factors.tolist()), guesses.shift, fraction, tuple(first), Weights(at), Weights(kinds), tuple(masks)
    )


_KNOWN: WeakKeyDictionary[LRN, tuple[Sums, Tables]] = WeakKeyDictionary()
_BLOCK_RAM: WeakKeyDictionary[LRN, float] = WeakKeyDictionary()


class LRNStage(StepStage[LRN]):
    """A channel after the other: its sum, a multiplier, and the falls of the outputs."""

    @property
    def channelwise(self) -> bool:
        """A beat that leaves is a channel, as one that comes in."""
        return True

    @property
    def most_lanes(self) -> tuple[int, int]:
        return 1, 1

    @property
    def work(self) -> dict[str, Any]:
        window = self.window(beat_format(self.op.input, 1))
        return {**super().work, "walk": SerialWalk(window.window_cycles)}

    @property
    def least_finish_slices(self) -> int:
        return int(len(self._known[1].factors) > 1)

    @property
    def _known(self) -> tuple[Sums, Tables]:
        op = self.op
        if op not in _KNOWN:
            sums = sums_of(op.scale)
            bits = _window(op, sums, beat_format(op.input, 1)).scale_bits
            _KNOWN[op] = sums, find_tables(op, sums.origin, bits)
        return _KNOWN[op]

    @property
    def origin(self) -> int:
        """The bits of the float32 number for which the hardware's scale is 0."""
        return self._known[0].origin

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        if self.op not in _BLOCK_RAM:
            _BLOCK_RAM[self.op] = self.compute([beat_format(self.op.input, 1)]).resources.bram36
        return unroll.tp * _BLOCK_RAM[self.op]

    def window(self, source: BeatFormat) -> RunningScaleConfig:
        """How beats are taken."""
        return _window(self.op, self._known[0], source)

    def compute(self, sources: Sequence[BeatFormat]) -> NormaliseConfig:
        op, kind = self.op, self.op.output.type
        (source,), (_, tables) = sources, self._known
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
            bits=kind.bits,
            signed=kind.signed,
        )

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> RunningScaleLayerConfig:
        return self._layer(RunningScaleLayerConfig, self.compute(sources), plan, sinks)


def _window(op: LRN, sums: Sums, source: BeatFormat) -> RunningScaleConfig:
    kind, zero = op.input.type, op.input.zero_point
    terms = sums.terms[np.abs(np.arange(kind.minimum, kind.maximum + 1) - zero)]
    return RunningScaleConfig(
        input=source,
        terms=tuple(terms.tolist()),
        size=op.scale.size,
        start=sums.start,
        lowest=sums.least,
        highest=sums.most,
    )
