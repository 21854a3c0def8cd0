"""Layer that maps each integer of up to 8 bits by a lookup table, one for all channels or one per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import IntegerType
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.ops.op import Op


@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup(Op):
    """Layer that replaces each integer of a map by its entry in a table, for example for a Sigmoid.

    Parameters
    ----------
    table : ndarray
        Outputs for all values of the input's type, in ascending order: int64 ``(channels, 2**bits)``, or
        ``(1, 2**bits)`` for all channels.

    Raises
    ------
    ConfigError
        If the window is not 1x1, input or output have more than 8 bits or different numbers of channels, or the table
        has another shape.
    """

    table: np.ndarray

    kind = "lookup"
    operators = ("Sigmoid", "QLinearSigmoid", "QLinearLeakyRelu")
    channelwise = valuewise = True

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return {**parameters, "table": np.clip(parameters["table"], low, high)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that looks values up must have no window, not {self.window}")
        if self.input.channels != self.output.channels:
            raise ConfigError(f"{self.name}: output must have {self.input.channels} channels, not {self.output}")
        if max(side.type.bits for side in (self.input, self.output)) > MAX_BITS:
            raise ConfigError(f"{self.name}: values must have at most {MAX_BITS} bits, not {self.input}")
        values = 1 << self.input.type.bits
        if self.table.shape not in {(1, values), (self.input.channels, values)}:
            raise ConfigError(
                f"{self.name}: table must have {values} outputs for all channels or for each of {self.input.channels}, "
                f"not the shape {self.table.shape}"
            )
        kind = self.output.type
        if self.table.min() < kind.minimum or self.table.max() > kind.maximum:
            raise ConfigError(
                f"{self.name}: table must hold values of {kind}, not {self.table.min()} to {self.table.max()}"
            )

    @property
    def by_channel(self) -> bool:
        return len(self.table) > 1

    @classmethod
    def narrowed(cls, parameters: dict[str, Any], before: IntegerType, kind: IntegerType) -> dict[str, Any]:
        """Return a dict of constructor parameters for the narrower input type ``kind``, with a shorter table.

        The table keeps the entries for the values of this type.
        """
        first = kind.minimum - before.minimum
        return {**parameters, "table": parameters["table"][:, first : first + (1 << kind.bits)]}

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        columns = maps[0].astype(np.int64) - self.input.type.minimum
        rows = np.arange(len(self.table))[:, None, None]
        return self.table[rows, columns].astype(self.output.type.dtype)
