"""Channels picked from those of a map, in any order: parts of a split, shuffles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Window
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(Op):
    """Output channel ``j`` is input channel ``index[j]``: type, scale and zero point pass through.

    Parameters
    ----------
    index : tuple of int
        An input channel for each output channel; some may be missing, others stand there several times.

    Raises
    ------
    ConfigError
        If an index is no channel of the input, there are not as many as output channels, or there is a window.
    """

    index: tuple[int, ...]

    kind = "select"
    operators = ("Split", "Slice", "Gather")
    selects = keeps_type = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.index) != self.outputs or not all(0 <= channel < self.channels for channel in self.index):
            raise ConfigError(
                f"{self.name}: index must be {self.outputs} of the channels 0 to {self.channels - 1}, not {self.index}"
            )
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that selects channels must have no window, not {self.window}")

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        return {"index": tuple(channel % channels for channel in range(outputs))}

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (*super().geometry, self.index)

    @property
    def pad_value(self) -> int:
        """Nothing is read beyond the map."""
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0][list(self.index)]
