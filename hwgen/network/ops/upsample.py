"""Layer that upsamples a map to nearest neighbours: every pixel is repeated along rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Upsample(Op):
    """Layer that upsamples a map to nearest neighbours, by whole factors. Type, scale and zero point pass through.

    Parameters
    ----------
    factors : tuple of int
        Numbers of repetitions of each row, and of each column.

    Raises
    ------
    ConfigError
        If a factor is not positive, the window is not 1x1, or the output has another size.
    """

    factors: tuple[int, int]

    kind = "upsample"
    operators = ("Resize", "Upsample")
    channels_first = True
    channelwise = True
    selects = keeps_type = True

    def __post_init__(self) -> None:
        if min(self.factors) < 1 or self.taps != 1:
            raise ConfigError(f"{self.name}: factors must be positive, and the window 1x1, not {self.factors}")
        super().__post_init__()

    @property
    def output_size(self) -> tuple[int, int]:
        return self.input.height * self.factors[0], self.input.width * self.factors[1]

    @property
    def pad_value(self) -> int:
        """Value of the padding around the map, which no output depends on, because the window is 1x1."""
        return self.input.type.minimum

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        return begin // self.factors[axis], -(-end // self.factors[axis])

    def pace(self, input_index: int, axis: int) -> Fraction:
        return Fraction(1, self.factors[axis])

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0].repeat(self.factors[0], axis=1).repeat(self.factors[1], axis=2)
