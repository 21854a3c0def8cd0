"""Maximum pool layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxPool(Op):
    """Layer that computes the maximum of each channel in each window.

    Padding has the minimum of the input type. Type and zero point pass through.
    """

    kind = "maxpool"
    operators = ("MaxPool",)
    channels_first = True
    channelwise = True
    selects = keeps_type = True

    @property
    def pad_value(self) -> int:
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        padded = self._padded(maps[0])
        (kernel_rows, kernel_columns), (down, right) = self.window.kernel, self.window.stride
        below, beside = self.window.dilation
        rows, columns = self.output.height, self.output.width
        result = np.full(self.output.shape, self.pad_value, self.output.type.dtype)
        for y in range(0, kernel_rows * below, below):
            for x in range(0, kernel_columns * beside, beside):
                tap = padded[:, y : y + (rows - 1) * down + 1 : down, x : x + (columns - 1) * right + 1 : right]
                np.maximum(result, tap, out=result)
        return result
