"""Arithmetic of QONNX's Trunc, which drops the lowest bits of integers, for example of an average pool's sums.

A Trunc takes reals that are integers ``k`` times a scale. Without zero points it computes

    y = rounding(k / 2**shift)      output = y * output scale

Version 1 states the widths of input and output, whose difference is the shift, and keeps the scale. Version 2 states an
output scale instead, and clips ``y`` to the output's width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_UNSIGNED = {"DOWN": "FLOOR", "UP": "CEIL"}
"""Dictionary from QONNX's rounding modes DOWN and UP to the mode that equals each for numbers of 0 or more."""
_HALVES = {"HALF_UP": 1, "HALF_DOWN": -1, "HALF_EVEN": 0, "ROUND": 0}
"""Dictionary by mode of rounding to nearest: direction (1 up, -1 down, 0 to even) of positive halves."""
_MAX_SHIFT = 16
"""Maximum number of bits that a Trunc may drop."""


def offset_to_even(mode: str, grid_step: float, *, negative: bool) -> float | None:
    """Return the number to add so that rounding to even acts like rounding mode ``mode``; ``None`` if none does.

    The rounded numbers are multiples of ``grid_step``, which is below 1. The offset is an odd multiple of its half, so
    that no sum is a tie. The result is ``None`` if there is no such offset. With ``negative``, there can be numbers
    below 0.
    """
    mode = mode if negative else _UNSIGNED.get(mode, mode)
    if mode in ("FLOOR", "CEIL"):
        return (1 if mode == "CEIL" else -1) * (1 - grid_step) / 2
    direction = _HALVES.get(mode)
    return None if direction is None or (negative and direction) else direction * grid_step / 2


@dataclass(frozen=True)
class Truncation:
    """Parameters of a QONNX Trunc node: scales, number of dropped bits, rounding mode and output limits.

    Parameters
    ----------
    scale, output_scale : float32
        Scales of the input and output integers.
    shift : int
        Number of bits that are dropped.
    mode : str
        Rounding mode, as QONNX names it.
    limits : tuple of int or None
        Lowest and highest output integer; ``None`` if the node does not clip.
    """

    scale: np.float32
    output_scale: np.float32
    shift: int
    mode: str
    limits: tuple[int, int] | None

    @property
    def fits(self) -> bool:
        """Whether the number of dropped bits is one that can be built."""
        return 0 <= self.shift <= _MAX_SHIFT

    def offset(self, *, negative: bool) -> float | None:
        """Return the offset so that ``(k + offset) / 2**shift``, rounded to even, is ``k`` truncated; ``None`` if none.

        It is a multiple of a half, so that no integer meets a tie that the mode rounds in another direction. With
        ``negative``, ``k`` can be below 0.
        """
        offset = offset_to_even(self.mode, 2.0**-self.shift, negative=negative and self.shift > 0)
        return None if offset is None else offset * 2**self.shift if self.shift else 0.0

    def outputs(self, integers: np.ndarray, rounding: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return an array with the Trunc's output integers for input integers ``k``, by the function ``rounding``."""
        outputs = rounding(integers / 2.0**self.shift)
        return outputs if self.limits is None else np.clip(outputs, *self.limits)

    @property
    def weight(self) -> np.float32:
        """Factor (float32) from the Trunc's real input values to its real outputs, apart from the rounding."""
        return np.float32(float(self.output_scale) / (float(self.scale) * 2.0**self.shift))
