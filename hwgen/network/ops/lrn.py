"""Local response normalisation (LRN) across channels, in float32 and in ONNX Runtime's order of operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.ops.op import Op, with_clipped_ends

#: Number of float32 bases, starting at a threshold of LRN (`Falls`), where an output may not have dropped yet.
RIPPLE = 32

#: Number of significant bits of a float32 number.
_SIGNIFICAND_BITS = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """Sum under LRN's power: ``bias + alpha / size * (sum of squares)`` over a window of channels, in float32.

    ONNX Runtime computes a running sum. From one channel to the next, it adds the term that enters the window, and
    subtracts the term that leaves it. Each step rounds to float32.

    Parameters
    ----------
    bias : float
        Constant term, a positive float32 number.
    size : int
        Number of channels in a window, odd: as many before a channel as after it.
    channels : int
        Number of channels of the map. Windows have no terms beyond the map.
    terms : ndarray
        Term of an integer, by its distance from the zero point, float32 ``(magnitudes,)``.

    Raises
    ------
    ConfigError
        If the size is even, the bias is not a positive float32 number, or the roundings of many channels could make the
        scale zero.
    """

    bias: float
    size: int
    channels: int
    terms: np.ndarray

    def __post_init__(self) -> None:
        if self.size < 1 or self.size % 2 == 0:
            raise ConfigError(f"size must be odd and positive, not {self.size!r}")
        if not 0 < self.bias < np.inf or float(np.float32(self.bias)) != self.bias:
            raise ConfigError(f"bias must be a positive float32 number, not {self.bias!r}")
        if not np.isfinite(self.max_sum) or not self.bias > self._error:
            raise ConfigError(
                f"bias {self.bias:g} must be more than float32 may lose while it adds up terms of up to "
                f"{self.terms.max():g}: {self._error:g}"
            )

    @property
    def half(self) -> int:
        """Number of channels in LRN's window on each side of its middle channel."""
        return self.size // 2

    @property
    def unit(self) -> float:
        """Distance between neighbouring float32 numbers at LRN's bias."""
        return float(np.spacing(np.float32(self.bias)))

    @cached_property
    def steps(self) -> np.ndarray:
        """Terms of LRN's sum as int64 multiples of the float32 spacing at the bias, by input distance from zero point.

        They are used only if the sum is `steady`.
        """
        return np.rint(self.terms.astype(np.float64) / self.unit).astype(np.int64)

    @cached_property
    def steady(self) -> bool:
        """Whether LRN's running sum is rounded per term independently of the sum, so that order is irrelevant.

        All sums then have the same unit as the bias, and no term is halfway between two multiples of the unit. Then
        every term is rounded independently of the sum, and the subtracted value equals the added value. The scale is
        the bias plus the ``steps`` of the window, whatever the channels before.
        """
        units = self.terms.astype(np.float64) / self.unit
        # In floats, because terms of large scales can exceed 64 bits in units.
        largest = round(self.bias / self.unit) + min(self.size + 1, self.channels) * float(np.rint(units.max()))
        return largest < 1 << _SIGNIFICAND_BITS and not (np.abs(units - np.floor(units)) == 0.5).any()

    @property
    def max_sum(self) -> float:
        """Maximum exact value, a float, of LRN's running sum, which holds one term more than the window has.

        A term is added before another one is subtracted.
        """
        return self.bias + min(self.size + 1, self.channels) * float(self.terms.max())

    @property
    def _error(self) -> float:
        """Bound (float) on the float32 error of LRN's running sum over a pixel's channels; 0 if it is `steady`."""
        unit = float(np.spacing(np.float32(self.max_sum * (1 + 2.0**-20))))
        return 0.0 if self.steady else (2 * self.channels + self.size) * unit / 2

    @cached_property
    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of arrays of float32 bits: lowest and highest sum under LRN's power, by distance from zero point.

        Both arrays are int64. The input is the middle of its window, so its term is part of the base.
        """
        others = min(self.size, self.channels) - 1
        if self.steady:
            least = to_bits(np.float32(self.bias)) + self.steps
            return least, least + others * int(self.steps.max())
        middle, terms = self.bias + self.terms.astype(np.float64), float(self.terms.max())
        least, most = (
            ends.astype(np.float32) for ends in (middle - self._error, middle + others * terms + self._error)
        )
        return to_bits(np.nextafter(least, np.float32(0))), to_bits(np.nextafter(most, np.float32(np.inf)))

    @property
    def max_running_sum(self) -> int:
        """Upper bound on LRN's running sum, including rounding errors: the bits of a float32, as an integer."""
        return int(to_bits(np.nextafter(np.float32(self.max_sum + self._error), np.float32(np.inf))))

    def of(self, magnitudes: np.ndarray) -> np.ndarray:
        """Return the base of LRN's power, float32 ``(C, H, W)``, for a frame of distances from the zero point."""
        terms = self.terms[magnitudes]
        scales = np.empty_like(terms)
        total = np.full(terms.shape[1:], self.bias, np.float32)
        for entering in terms[: self.half]:
            total += entering
        for channel in range(len(terms)):
            if channel + self.half < len(terms):
                total += terms[channel + self.half]
            if channel > self.half:
                total -= terms[channel - self.half - 1]
            scales[channel] = total
        return scales


@dataclass(frozen=True, kw_only=True, eq=False)
class Falls:
    """Values of LRN's sum where the output falls by one LSB, for each distance of the input from its zero point.

    The base of the power is the *scale* (`Scale`), a threshold a *fall*, and the magnitude an input's distance from its
    zero point. An output's distance from its zero point decreases as the scale grows. Scales are given as bits of
    float32 numbers, which have the order of the numbers.

    Parameters
    ----------
    last_distance : ndarray
        Distance at the maximum scale, int64 ``(magnitudes,)``.
    first : ndarray
        Index of each magnitude's first fall, int64 ``(magnitudes + 1,)``: magnitude ``v`` has the falls ``first[v]`` to
        ``first[v + 1]``.
    at : ndarray
        Scale of each fall; at larger scales the distance is one less, int64 ``(falls,)``; increasing in each magnitude.
    ripples : ndarray
        Exceptions after each fall, int64 ``(falls,)``: with bit ``d`` set, the distance is not one less at scale
        ``at + d``, because ONNX Runtime's power is greater there than at the scale before.

    Raises
    ------
    ConfigError
        If two falls of a magnitude are less than `RIPPLE` scales apart.
    """

    last_distance: np.ndarray
    first: np.ndarray
    at: np.ndarray
    ripples: np.ndarray

    def __post_init__(self) -> None:
        if (np.diff(self.at)[np.diff(self.owner) == 0] < RIPPLE).any():
            raise ConfigError(f"falls of a magnitude must lie {RIPPLE} scales apart")

    @property
    def count(self) -> np.ndarray:
        """Number of falls (thresholds of LRN's sum) for each input distance from the zero point, as an array."""
        return np.diff(self.first)

    @property
    def owner(self) -> np.ndarray:
        """Input magnitude (distance from the zero point) that each threshold of LRN's base belongs to, as an array."""
        return np.repeat(np.arange(len(self.last_distance)), self.count)

    def of(self, magnitudes: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return LRN's output distances from the zero point, int64, for input distances and sums ``scale``."""
        bits = to_bits(scale)
        behind = np.searchsorted(self._ordered, magnitudes.astype(np.int64) << 32 | bits, side="right")
        fallen = behind - self.first[magnitudes]
        distances = self.last_distance[magnitudes] + self.count[magnitudes] - fallen
        if not len(self.at):
            return distances
        last = np.maximum(behind - 1, 0)
        since = bits - self.at[last]
        ripples = (fallen > 0) & (since < RIPPLE) & (self.ripples[last] >> np.clip(since, 0, RIPPLE) & 1 == 1)
        return distances + ripples

    @cached_property
    def _ordered(self) -> np.ndarray:
        """Sorted int64 keys of all thresholds of LRN's sum: input distance in the upper half, sum in the lower."""
        return self.owner << 32 | self.at


@dataclass(frozen=True, kw_only=True, eq=False)
class LRN(Op):
    """Local response normalisation layer (ONNX LRN), which divides by a power of a sum of squares over channels.

    With ``x`` and ``y`` the real values, ``y = x * (bias + alpha / size * sum of x**2) ** -beta`` (Krizhevsky et al.,
    2012, section 3.3), the sum over a window of ``size`` channels.

    Parameters
    ----------
    scale : Scale
        Running sum with its bias.
    falls : Falls
        Power, product and requantisation, as thresholds of the scale.
    low, high : int
        Minimum and maximum of the output.

    Raises
    ------
    ConfigError
        If the window is not 1x1, input and output have different channels, a type has more than 8 bits, or a magnitude
        has no term or no falls.
    """

    scale: Scale
    falls: Falls
    low: int
    high: int

    kind = "lrn"
    operators = ("LRN",)
    channels_first = True

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return with_clipped_ends(parameters, low, high)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1 or self.input.channels != self.output.channels:
            raise ConfigError(f"{self.name}: output must have the input's size, {self.input}, not {self.output}")
        if max(side.type.bits for side in (self.input, self.output)) > MAX_BITS:
            raise ConfigError(f"{self.name}: values must have at most {MAX_BITS} bits, not {self.input}")
        wanted = magnitudes(self.input.type.minimum, self.input.type.maximum, self.input.zero_point)
        for what, table in (("terms", self.scale.terms), ("falls", self.falls.last_distance)):
            if len(table) < wanted:
                raise ConfigError(f"{self.name}: {what} must have one entry per magnitude ({wanted}), not {len(table)}")
        if self.scale.channels != self.channels:
            raise ConfigError(f"{self.name}: scale must have {self.channels} channels, not {self.scale.channels}")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        values = maps[0].astype(np.int64) - self.input.zero_point
        sizes = np.abs(values)
        distances = self.falls.of(sizes, self.scale.of(sizes))
        outputs = self.output.zero_point + np.where(values < 0, -distances, distances)
        return np.clip(outputs, self.low, self.high).astype(self.output.type.dtype)


def magnitudes(minimum: int, maximum: int, zero: int) -> int:
    """Return how many distances from the zero point integers from minimum to maximum can have."""
    return max(maximum - zero, zero - minimum) + 1


def to_bits(numbers: np.ndarray | np.float32) -> np.ndarray:
    """Return the bit patterns of positive float32 numbers, as int64."""
    return np.asarray(numbers, np.float32).view(np.int32).astype(np.int64)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """Return the float32 numbers that have the bit patterns ``bits``."""
    return bits.astype(np.int32).view(np.float32)
