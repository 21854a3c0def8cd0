"""Layers that crop a map, or pad it with a constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Window
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Crop(Op):
    """Layer that crops a map, and keeps every ``stride``-th row and column. Type, scale and zero point pass through.

    The window has one tap. Its padding is 0 or negative; a negative padding removes rows or columns at that side.

    Raises
    ------
    ConfigError
        If the window has several taps, or a padding is positive.
    """

    kind = "crop"
    operators = ("Slice", "Split")
    channelwise = True
    selects = keeps_type = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: the window must be 1x1, not {self.window.kernel}")
        if self.selects and max(self.window.padding) > 0:
            raise ConfigError(f"{self.name}: padding of a crop must be 0 or less, not {self.window.padding}")

    @property
    def pad_value(self) -> int:
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        top, left, bottom, right = (max(pad, 0) for pad in self.window.padding)
        padded = np.pad(maps[0], ((0, 0), (top, bottom), (left, right)), constant_values=self.pad_value)
        # Cropping comes last: it can remove more rows or columns than the map has, and then some of the padding.
        top, left, bottom, right = (max(-pad, 0) for pad in self.window.padding)
        inner = padded[:, top : padded.shape[1] - bottom, left : padded.shape[2] - right]
        return inner[:, :: self.window.stride[0], :: self.window.stride[1]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pad(Crop):
    """Layer that surrounds a map with constant padding. A negative padding removes rows or columns at that side.

    Parameters
    ----------
    value : int
        Integer value of the padding.

    Raises
    ------
    ConfigError
        If the value is out of the range of the map's type.
    """

    value: int

    kind = "pad"
    operators = ("Pad",)
    selects = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input.type.minimum <= self.value <= self.input.type.maximum:
            raise ConfigError(f"{self.name}: value must be {self.input.type}, not {self.value}")

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        return {"value": 0}

    @property
    def pad_value(self) -> int:
        return self.value
