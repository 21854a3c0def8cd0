"""Layer that interpolates linearly between the pixels of a map (ONNX Resize with mode linear)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Requantisation, requantise
from hwgen.network.ops.moves import Resample
from hwgen.network.ops.op import with_clipped_ends

MAX_FLOAT_PARTS = 16
"""Maximum number of subdivisions of a pixel along an axis for an `Interpolate` layer that computes floats."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Interpolate(Resample):
    """Layer that interpolates linearly between rows and columns of a map, and quantises the result.

    An output pixel lies between the input rows ``rows[y]`` and ``rows[y] + 1``. The weight of the latter is
    ``row_weights[y] / axis_parts[0]``. Behind the last row, both rows are the last one. The same holds for columns.

    Parameters
    ----------
    row_weights, column_weights : tuple of int
        Weight of the next row for each output row, and of the next column for each output column.
    axis_parts : tuple of int
        Number of parts of a row and of a column that the weights count.
    x_scale, y_scale : float
        Scales of input and output, float32 numbers.
    low, high : int
        Bounds of the output.
    in_floats : bool
        Whether the weighted sum is ONNX Runtime's: the real values of the four pixels times their weights, added in
        float32 in row-major order, each product and sum rounded. Otherwise it is the exact sum of integers.
    truncated : bool
        Whether the exact sum is one of the integers as they are, rounded towards 0: ONNX Runtime's kernel for integers.
    requantisation : Requantisation or None
        Rule for the exact sum of fixed-point numbers, whose factor contains the division by the parts. Scales do not
        matter then.

    Raises
    ------
    ConfigError
        If a weight is not from 0 to ``axis_parts``, or ``in_floats`` with parts that are not a power of two up to 16.
    """

    row_weights: tuple[int, ...]
    column_weights: tuple[int, ...]
    axis_parts: tuple[int, int]
    x_scale: float
    y_scale: float
    low: int
    high: int
    in_floats: bool
    truncated: bool = False
    requantisation: Requantisation | None = None

    kind = "interpolate"
    shaped_by = ("row_weights", "column_weights", "axis_parts")
    operators = ("Resize", "Upsample")
    channels_first = True
    selects = keeps_type = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for weights, indices, num_parts in zip(
            (self.row_weights, self.column_weights), (self.rows, self.columns), self.axis_parts, strict=True
        ):
            if len(weights) != len(indices):
                raise ConfigError(
                    f"{self.name}: weights must have one entry per index ({len(indices)}), not {len(weights)}"
                )
            if min(weights) < 0 or max(weights) > num_parts:
                raise ConfigError(
                    f"{self.name}: weights must be from 0 to {num_parts}, not {min(weights)} to {max(weights)}"
                )
            if self.in_floats and (num_parts & (num_parts - 1) or num_parts > MAX_FLOAT_PARTS):
                raise ConfigError(
                    f"{self.name}: axis_parts must be a power of two up to {MAX_FLOAT_PARTS}, not {num_parts}"
                )

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return with_clipped_ends(parameters, low, high) if parameters.get("requantisation") is None else None

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        first, last = super().covered(input_index, axis, begin, end)
        return first, np.minimum(last + 1, (self.height, self.width)[axis])

    @property
    def offset(self) -> int:
        """Input integer that is subtracted before the weighted sum, so that it counts as 0."""
        return 0 if self.truncated else self.input.zero_point

    @property
    def terms(self) -> np.ndarray:
        """Float32 value that each integer of the input's type represents, as an array, ascending."""
        integer_type = self.input.type
        integers = np.arange(integer_type.minimum, integer_type.maximum + 1) - self.input.zero_point
        return integers.astype(np.float32) * np.float32(self.x_scale)

    @property
    def ties(self) -> float:
        """Share (0 to 1) of sums exactly halfway between two integers, for equal scales and random input integers."""
        if self.x_scale != self.y_scale:
            return 0.0
        parts, share = self.axis_parts[0] * self.axis_parts[1], 0.0
        rows, columns = (
            Counter(gcd(weight, count) for weight in weights)
            for weights, count in zip((self.row_weights, self.column_weights), self.axis_parts, strict=True)
        )
        for row, many in rows.items():
            for column, more in columns.items():
                # The weights of a step have the divisor row * column, so that sums are multiples of it.
                sums = parts // (row * column)
                share += many * more / sums * (sums % 2 == 0)
        return share / (len(self.rows) * len(self.columns))

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        frame = maps[0].astype(np.int64)
        values = self.terms[frame - self.input.type.minimum] if self.in_floats else frame - self.offset
        dtype = values.dtype.type
        total = np.zeros((self.channels, *self.output_size), dtype)
        down, right = (
            [(parts - np.array(weights)).astype(dtype), np.array(weights).astype(dtype)]
            for weights, parts in zip((self.row_weights, self.column_weights), self.axis_parts, strict=True)
        )
        unit = dtype(1 / (self.axis_parts[0] * self.axis_parts[1])) if self.in_floats else dtype(1)
        for below in (0, 1):
            rows = values[:, np.minimum(np.array(self.rows) + below, self.height - 1)]
            for beside in (0, 1):
                tap = rows[:, :, np.minimum(np.array(self.columns) + beside, self.width - 1)]
                total += down[below][:, None] * right[beside] * unit * tap
        return self.rounded(total).astype(self.output.type.dtype)

    def rounded(self, sums: np.ndarray) -> np.ndarray:
        """Return output integers (int64) for weighted sums, of float32 values if ``in_floats``, else of integers."""
        if self.requantisation is not None:
            bound = max(-self.input.type.minimum, self.input.type.maximum) * self.axis_parts[0] * self.axis_parts[1]
            return requantise(sums.reshape(self.channels, -1), self.requantisation, bound).reshape(sums.shape)
        if self.in_floats:
            steps = sums.astype(np.float32) / np.float32(self.y_scale)
        else:
            steps = sums * (self.x_scale / self.y_scale) / (self.axis_parts[0] * self.axis_parts[1])
        if self.truncated:
            return np.clip(np.trunc(steps).astype(np.int64), self.low, self.high)
        return np.clip(np.rint(steps).astype(np.int64) + self.output.zero_point, self.low, self.high)
