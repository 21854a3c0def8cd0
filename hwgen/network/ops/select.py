"""Layer that selects channels of a map, in any order, for example an output of a split, or a shuffle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Window
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(Op):
    """Layer that selects channels of a map: output channel ``j`` is input channel ``index[j]``.

    Type, scale and zero point pass through.

    Parameters
    ----------
    index : tuple of int
        Input channel of each output channel. Channels can be missing or repeated.

    Raises
    ------
    ConfigError
        If an index is no input channel, the number of indices differs from the output channels, or the window is not
        1x1.
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
        """Value of the padding around the map, which no output depends on, because the window is 1x1."""
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0][list(self.index)]
