"""Local response normalisation across channels, as ONNX Runtime computes it: in float32, in its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import UINT8, Window
from hwgen.network.ops.join import MOST_BITS
from hwgen.network.ops.op import Op, with_clipped_ends

#: Scales behind a fall, that one included, at which the output may be as before it again.
RIPPLE = 32

#: Significant bits of a float32 number.
_SIGNIFICAND_BITS = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """What LRN raises to a power: ``bias + alpha / size * (sum of squares)`` of a window of channels.

    ONNX Runtime does not add up each window. From one channel to the next it adds the term that comes into the window,
    and subtracts the one that leaves it; each of these is rounded to float32.

    Parameters
    ----------
    bias : float
    size : int
        Channels of a window, odd: as many before a channel as behind it.
    channels : int
        Of the map; there are no terms beyond it.
    terms : ndarray
        float32 ``(magnitudes,)``: the term of an integer by its distance from the zero point.

    Raises
    ------
    ConfigError
        If the size is even, numbers are none, or the roundings of many channels may take the scale to zero.
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
        if not np.isfinite(self.most) or not self.bias > self._error:
            raise ConfigError(
                f"bias {self.bias:g} must be more than float32 may lose while it adds up terms of up to "
                f"{self.terms.max():g}: {self._error:g}"
            )

    @property
    def half(self) -> int:
        """Channels of a window before its middle, and behind it."""
        return self.size // 2

    @property
    def unit(self) -> float:
        """The distance of float32 numbers at the bias."""
        return float(np.spacing(np.float32(self.bias)))

    @cached_property
    def steps(self) -> np.ndarray:
        """The terms in units, rounded to integers, int64 ``(magnitudes,)``; meant where the sum is `steady`."""
        return np.rint(self.terms.astype(np.float64) / self.unit).astype(np.int64)

    @cached_property
    def steady(self) -> bool:
        """Whether all sums have the same units as the bias, and no term is halfway between two of these.

        Then each term is rounded as if it were alone, and what was added is what is subtracted: the scale is the bias
        and the ``steps`` of the window, whatever the channels before.
        """
        units = self.terms.astype(np.float64) / self.unit
        # In floats: terms of large scales have more units than 64 bits count.
        most = round(self.bias / self.unit) + min(self.size + 1, self.channels) * float(np.rint(units.max()))
        return most < 1 << _SIGNIFICAND_BITS and not (np.abs(units - np.floor(units)) == 0.5).any()

    @property
    def most(self) -> float:
        """The greatest sum but for roundings, with a term more than a window has, as one comes in before one leaves."""
        return self.bias + min(self.size + 1, self.channels) * float(self.terms.max())

    @property
    def _error(self) -> float:
        """What roundings can add up to over a pixel: half a unit of the greatest sum for each addition."""
        unit = float(np.spacing(np.float32(self.most * (1 + 2.0**-20))))
        return 0.0 if self.steady else (2 * self.channels + self.size) * unit / 2

    @cached_property
    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """For each magnitude the least and the greatest scale, as bits of float32 numbers, int64 ``(magnitudes,)``.

        The magnitude is its own window's middle, so its term is part of the scale.
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
    def passed(self) -> int:
        """The greatest sum on the way, with a term more than a window has, as bits of a float32 number."""
        return int(to_bits(np.nextafter(np.float32(self.most + self._error), np.float32(np.inf))))

    def of(self, magnitudes: np.ndarray) -> np.ndarray:
        """The scale of each value of a frame, float32 ``(C, H, W)``."""
        terms = self.terms[magnitudes]
        found = np.empty_like(terms)
        total = np.full(terms.shape[1:], self.bias, np.float32)
        for entering in terms[: self.half]:
            total += entering
        for channel in range(len(terms)):
            if channel + self.half < len(terms):
                total += terms[channel + self.half]
            if channel > self.half:
                total -= terms[channel - self.half - 1]
            found[channel] = total
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Falls:
    """The output's distance from its zero point, for each magnitude of the input: it falls as the scale grows.

    Scales are bits of float32 numbers, which rise as the numbers do.

    Parameters
    ----------
    least : ndarray
        int64 ``(magnitudes,)``: at the greatest scale.
    first : ndarray
        int64 ``(magnitudes + 1,)``: the falls of magnitude ``v`` are ``first[v]`` to ``first[v + 1]``.
    at : ndarray
        int64 ``(falls,)``: the scale from which on the distance is one less, rising in each magnitude.
    ripples : ndarray
        int64 ``(falls,)``: bit ``d`` says that it is not at scale ``at + d``, as ONNX Runtime's power there is greater
        than at the scale before.

    Raises
    ------
    ConfigError
        If the falls of a magnitude don't rise by at least `RIPPLE`.
    """

    least: np.ndarray
    first: np.ndarray
    at: np.ndarray
    ripples: np.ndarray

    def __post_init__(self) -> None:
        if (np.diff(self.at)[np.diff(self.owner) == 0] < RIPPLE).any():
            raise ConfigError(f"falls of a magnitude must lie {RIPPLE} scales apart")

    @property
    def count(self) -> np.ndarray:
        """Falls of each magnitude."""
        return np.diff(self.first)

    @property
    def owner(self) -> np.ndarray:
        """The magnitude of each fall."""
        return np.repeat(np.arange(len(self.least)), self.count)

    def of(self, magnitudes: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """The distance of each output from its zero point, int64; ``scale`` as float32 numbers."""
        bits = to_bits(scale)
        behind = np.searchsorted(self._ordered, magnitudes.astype(np.int64) << 32 | bits, side="right")
        fallen = behind - self.first[magnitudes]
        found = self.least[magnitudes] + self.count[magnitudes] - fallen
        if not len(self.at):
            return found
        last = np.maximum(behind - 1, 0)
        since = bits - self.at[last]
        ripples = (fallen > 0) & (since < RIPPLE) & (self.ripples[last] >> np.clip(since, 0, RIPPLE) & 1 == 1)
        return found + ripples

    @cached_property
    def _ordered(self) -> np.ndarray:
        """All falls by magnitude and scale."""
        return self.owner << 32 | self.at


@dataclass(frozen=True, kw_only=True, eq=False)
class LRN(Op):
    """Each value divided by a power of a sum of squares over its neighbours in other channels (ONNX LRN).

    With ``x`` and ``y`` the real values, ``y = x * (bias + alpha / size * sum of x**2) ** -beta`` (Krizhevsky et al.,
    2012, section 3.3), the sum over a window of ``size`` channels.

    Parameters
    ----------
    scale : Scale
        The sum, with its bias.
    falls : Falls
        What the rest comes to.
    low, high : int
        Bounds of the output.

    Raises
    ------
    ConfigError
        If there is a window of pixels, input and output differ in their channels, one has more than 8 bits, or there
        are no terms, or no falls, for some magnitude.
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
            raise ConfigError(f"{self.name}: output must be of the input's size, {self.input}, not {self.output}")
        if max(each.type.bits for each in (self.input, self.output)) > MOST_BITS:
            raise ConfigError(f"{self.name}: values must have at most {MOST_BITS} bits, not {self.input}")
        wanted = magnitudes(self.input.type.minimum, self.input.type.maximum, self.input.zero_point)
        for what, found in (("terms", self.scale.terms), ("falls", self.falls.least)):
            if len(found) < wanted:
                raise ConfigError(f"{self.name}: {what} must be for {wanted} magnitudes, not for {len(found)}")
        if self.scale.channels != self.channels:
            raise ConfigError(f"{self.name}: scale must be of {self.channels} channels, not {self.scale.channels}")

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        count, none = magnitudes(UINT8.minimum, UINT8.maximum, 0), np.zeros(0, np.int64)
        terms = np.zeros(count, np.float32)
        falls = Falls(least=np.arange(count), first=np.zeros(count + 1, np.int64), at=none, ripples=none)
        scale = Scale(bias=1.0, size=5, channels=channels, terms=terms)
        return {"scale": scale, "falls": falls, "low": UINT8.minimum, "high": UINT8.maximum}

    @property
    def pad_value(self) -> int:
        """Nothing is read beyond the map."""
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        values = maps[0].astype(np.int64) - self.input.zero_point
        sizes = np.abs(values)
        distances = self.falls.of(sizes, self.scale.of(sizes))
        outputs = self.output.zero_point + np.where(values < 0, -distances, distances)
        return np.clip(outputs, self.low, self.high).astype(self.output.type.dtype)


def magnitudes(least: int, most: int, zero: int) -> int:
    """How many distances from ``zero`` integers from ``least`` to ``most`` have."""
    return max(most - zero, zero - least) + 1


def to_bits(numbers: np.ndarray | np.float32) -> np.ndarray:
    """The bits of positive float32 numbers, as int64."""
    return np.asarray(numbers, np.float32).view(np.int32).astype(np.int64)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers of some bits."""
    return bits.astype(np.int32).view(np.float32)
