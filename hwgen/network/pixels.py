"""Raw 8-bit pixels as inputs of a model, and the floats that image preprocessing makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hwgen.errors import InputError

#: Values that a float of a white pixel can have.
_RANGES = (1, 255)


@dataclass(frozen=True)
class Pixels:
    """Preprocessing of raw 8-bit pixels (0 to 255) at a model's input: mean, deviation and range.

    The model reads ``(pixel / 255 - mean) / deviation`` in float32, as torchvision's ``ToTensor`` and ``Normalize`` do.

    Parameters
    ----------
    mean, deviation : tuple of float
        Mean and standard deviation of each channel, or one for all channels, rounded to float32.
    range : int
        Float of a white pixel before mean and deviation are applied: 1, or 255 for ``(pixel - mean) / deviation``.

    Raises
    ------
    InputError
        If a mean is not finite in float32, a deviation is not positive and finite, or the range is neither 1 nor 255.
        If a pixel divided by a deviation is beyond float32.
    """

    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    range: int = 1

    def __post_init__(self) -> None:
        for name in ("mean", "deviation"):
            values = getattr(self, name)
            rounded = [_float32(value) for value in values] if isinstance(values, tuple | list) else []
            is_right = rounded and all(map(math.isfinite, rounded))
            if not is_right or (name == "deviation" and min(rounded) <= 0):
                wanted = "positive numbers" if name == "deviation" else "finite numbers"
                raise InputError(
                    f"{name} must be a tuple of {wanted} of float32, one for all channels or one for each, not "
                    f"{values!r}"
                )
            object.__setattr__(self, name, tuple(rounded))
        if isinstance(self.range, bool) or self.range not in _RANGES:
            raise InputError(f"range of pixels must be 1 or 255, not {self.range!r}")
        largest = max(self.range, *map(abs, self.mean)) / min(self.deviation)
        if 2 * largest > float(np.finfo(np.float32).max):
            raise InputError(f"mean and deviation give floats beyond float32: {self.mean!r}, {self.deviation!r}")

    def check_channels(self, count: int, where: str, last: int | None = None) -> None:
        """Raise InputError if the number of means or deviations is neither 1 nor an input's number of channels.

        Parameters
        ----------
        count : int
            Number of channels, the size of the input's first axis after the batch.
        where : str
            Beginning of messages.
        last : int, optional
            Size of the input's last axis, where some models have the channels.

        Raises
        ------
        InputError
            With the text ``where`` at its beginning.
        """
        for name in ("mean", "deviation"):
            if len(getattr(self, name)) not in (1, count):
                given = len(getattr(self, name))
                turned = "; if its last axis holds the channels, give one for all, or export them first"
                raise InputError(
                    f"{where} has {count} channels: give one {name} for all or {count} of them, not {given}"
                    f"{turned if given == last else ''}"
                )

    def floats(self) -> np.ndarray:
        """Return the model's float32 input for each pixel value: ``(channels, 256)``, or ``(1, 256)`` if equal."""
        pixels = np.arange(256, dtype=np.float32)
        if self.range == 1:
            pixels = pixels / np.float32(255)
        mean, deviation = (np.array(values, np.float32)[:, None] for values in (self.mean, self.deviation))
        return (pixels - mean) / deviation


def _float32(value: object) -> float:
    """Return a number rounded to float32; NaN for any other value, infinity for a number beyond float32."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(value)))
    except OverflowError:
        return math.inf
