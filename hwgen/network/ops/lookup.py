"""Functions of one value: what becomes of each integer of a map is listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import UINT8, IntegerType, Window
from hwgen.network.ops.join import MOST_BITS
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup(Op):
    """Each output is the table's entry of the input at the same place.

    Parameters
    ----------
    table : ndarray
        int64 ``(channels or 1, 2**bits)``: for each channel, or for all of them, the output of each value that the
        input's type has, from the least to the greatest.

    Raises
    ------
    ConfigError
        If there is a window, input or output have more than 8 bits or differ in their channels, or the table has not
        an output for each value.
    """

    table: np.ndarray

    kind = "lookup"
    operators = ("Sigmoid", "QLinearSigmoid", "QLinearLeakyRelu")
    channelwise = True

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return {**parameters, "table": np.clip(parameters["table"], low, high)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that looks values up must have no window, not {self.window}")
        if self.input.channels != self.output.channels:
            raise ConfigError(f"{self.name}: output must have {self.input.channels} channels, not {self.output}")
        if max(each.type.bits for each in (self.input, self.output)) > MOST_BITS:
            raise ConfigError(f"{self.name}: values must have at most {MOST_BITS} bits, not {self.input}")
        values = 1 << self.input.type.bits
        if self.table.shape not in {(1, values), (self.input.channels, values)}:
            raise ConfigError(
                f"{self.name}: table must have {values} outputs for all channels or for each of {self.input.channels}, "
                f"not the shape {self.table.shape}"
            )
        kind = self.output.type
        if self.table.min() < kind.minimum or self.table.max() > kind.maximum:
            raise ConfigError(f"{self.name}: table must hold values of {kind}")

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        return {"table": np.arange(UINT8.minimum, UINT8.maximum + 1)[None]}

    @classmethod
    def narrowed(cls, parameters: dict[str, Any], before: IntegerType, kind: IntegerType) -> dict[str, Any]:
        """The table's entries of the narrower type's values."""
        first = kind.minimum - before.minimum
        return {**parameters, "table": parameters["table"][:, first : first + (1 << kind.bits)]}

    @property
    def pad_value(self) -> int:
        """Nothing is read beyond the map."""
        return self.input.type.minimum

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        places = maps[0].astype(np.int64) - self.input.type.minimum
        rows = np.arange(len(self.table))[:, None, None]
        return self.table[rows, places].astype(self.output.type.dtype)
