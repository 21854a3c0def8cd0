"""What every kind of layer has: its maps, its work, the part of its input that a part of its output needs, its values.

A kind of layer is a subclass of `Op`. It says what the golden model, the planner and the importer ask of it, so that
nothing else in the project asks which kind a layer is. What a template makes of it in hardware is found by its class in
the template's own registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import MOST_SIDE, UINT8, FeatureMap, IntegerType, Window, check_window


@dataclass(frozen=True, kw_only=True, eq=False)
class Op(ABC):
    """A layer: what it takes, what it gives, and the window that slides over its input.

    Parameters
    ----------
    name : str
        From the model; unique in the network.
    input, output : FeatureMap
    window : Window

    Raises
    ------
    ConfigError
        If the output is not of the size that the window gives, or a map is too large.
    """

    name: str
    input: FeatureMap
    output: FeatureMap
    window: Window

    kind: ClassVar[str]
    """Its name in plans, tables and messages."""
    operators: ClassVar[tuple[str, ...]]
    """The ONNX operators that compute it: the one in float first, then those between integers."""
    channelwise: ClassVar[bool] = False
    """Whether each output channel depends on the input channel of the same number alone."""
    selects: ClassVar[bool] = False
    """Whether each output is one of the inputs: their type, scale, zero point and bounds pass through."""
    keeps_type: ClassVar[bool] = False
    """Whether the output has the input's type, scale and zero point: of what selects, and of constants around a map."""
    copies: ClassVar[bool] = False
    """Whether the output is the input, as it is."""
    channels_first: ClassVar[bool] = False
    """Whether its operators want the channels behind the batch, and so decide how an input's dimensions lie."""
    groups = 1
    """Groups of channels that have nothing in common (ONNX ``group``)."""

    def __post_init__(self) -> None:
        check_window(self.name, self.window, *self.input.shape)
        rows, columns = self.output_size
        if (rows, columns) != (self.output.height, self.output.width) or min(rows, columns) < 1:
            raise ConfigError(
                f"{self.name}: output must be {rows} x {columns} pixels, not {self.output.height} x {self.output.width}"
            )

    @classmethod
    def shaped(
        cls, *, name: str, channels: int, outputs: int, height: int, width: int, window: Window, groups: int = 1
    ) -> Op:
        """A layer of which nothing is known but its sizes, which are enough to plan with: uint8 maps, no weights.

        Parameters
        ----------
        channels, outputs : int
            Channels of the input and of the output map, of all groups together.
        height, width : int
            Of the input map, without padding.

        Raises
        ------
        ConfigError
            If no window fits, the groups don't divide the channels, or a map is too large.
        """
        if min(channels, outputs, height, width, groups) < 1:
            raise ConfigError(f"{name}: channels, sizes and groups must be positive")
        check_window(name, window, channels, height, width)
        if outputs > MOST_SIDE:
            raise ConfigError(f"{name}: a map must have at most {MOST_SIDE:,} channels, not {outputs:,}")
        if channels % groups or outputs % groups:
            raise ConfigError(
                f"{name}: {channels} input and {outputs} output channels must be multiples of {groups} groups"
            )
        if cls.channelwise and channels != outputs:
            raise ConfigError(f"{name}: a pool must keep its {channels} channels, not give {outputs}")
        rows, columns = window.output_size(height, width)
        if min(rows, columns) < 1:
            extent = "x".join(map(str, window.extent))
            raise ConfigError(f"{name}: a {height} x {width} map is too small for its {extent} window")
        return cls(
            name=name,
            input=FeatureMap(channels=channels, height=height, width=width, type=UINT8),
            output=FeatureMap(channels=outputs, height=rows, width=columns, type=UINT8),
            window=window,
            **cls._unknown(channels, outputs, window, groups),
        )

    @classmethod
    def _unknown(cls, channels: int, outputs: int, window: Window, groups: int) -> dict[str, Any]:
        """The parameters of `shaped` that this kind has beyond every layer's."""
        return {}

    @classmethod
    def narrowed(cls, parameters: dict[str, Any], before: IntegerType, kind: IntegerType) -> dict[str, Any]:
        """The parameters of a layer whose input has the type ``kind``, which ``before`` holds, for which they are."""
        return parameters

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        """Return the parameters of a layer whose outputs are clipped; ``None`` if the kind can't clip them.

        Parameters
        ----------
        low, high : int
            Bounds of the outputs.
        is_type : bool
            Whether the bounds are those of the narrowest type that holds the outputs.
        """
        return None

    @property
    def output_size(self) -> tuple[int, int]:
        """Rows and columns that leave, by the input's."""
        return self.window.output_size(self.input.height, self.input.width)

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        """All maps that the layer takes, in order."""
        return (self.input,)

    @property
    def channels(self) -> int:
        return self.input.channels

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.output.channels

    @property
    def height(self) -> int:
        return self.input.height

    @property
    def width(self) -> int:
        return self.input.width

    @property
    def output_height(self) -> int:
        return self.output.height

    @property
    def output_width(self) -> int:
        return self.output.width

    @property
    def taps(self) -> int:
        """Pixels of the kernel, ``Kh * Kw``."""
        return self.window.taps

    @property
    def input_words(self) -> int:
        return self.input.values

    @property
    def output_words(self) -> int:
        return self.output.values

    @property
    def geometry(self) -> tuple[Any, ...]:
        """All that is known without weights and integers, but for the name: equal for two layers of the same shape."""
        return self.kind, self.input.shape, self.output.shape, self.window, self.groups

    @property
    def dense(self) -> bool:
        """Whether every output depends on the whole input map: a fully connected layer."""
        return False

    @property
    def weight_count(self) -> int:
        """Weights, biases not counted."""
        return 0

    @property
    def weight_bits(self) -> int:
        """Bits of the widest weight, two's complement; 0 without weights."""
        return 0

    @property
    def weight_bytes(self) -> int:
        """All weights once, in whole bytes each."""
        return self.weight_count * -(-self.weight_bits // 8)

    @property
    def macs(self) -> int:
        """Multiplications in one frame, padding included."""
        return self.weight_count * self.output_height * self.output_width

    @property
    @abstractmethod
    def pad_value(self) -> int:
        """What a window reads beyond the map."""

    @abstractmethod
    def compute(self, *maps: np.ndarray) -> np.ndarray:
        """The golden model: one frame, of each input a map ``(C, H, W)``, to ``(M, H, W)`` of the output's type.

        Raises
        ------
        ConfigError
            If sums may leave the numbers in which they are exact.
        """

    def needed(self, axis: int, begin: int, end: int) -> tuple[int, int]:
        """The rows (axis 0) or columns of the input that outputs ``begin`` to ``end`` need, clipped to the map.

        Both are half-open intervals. Outputs whose windows lie in the padding wholly need none.
        """
        limit = self.input.shape[1 + axis]
        first, last = self.covered(0, axis, begin, end)
        return min(max(first, 0), limit), min(max(last, 0), limit)

    def covered(self, place: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """The rows (axis 0) or columns of input ``place`` that outputs ``begin`` to ``end`` cover, beyond the map too.

        Both are half-open intervals of integers, or of arrays of them.
        """
        return self.window.reach(axis, begin, end)

    def pace(self, place: int, axis: int) -> Fraction:
        """Rows (axis 0) or columns of input ``place`` from one output to the next; 0 where each needs all of it."""
        return Fraction(self.window.stride[axis])

    def _padded(self, frame: np.ndarray) -> np.ndarray:
        """A frame with its padding."""
        top, left, bottom, right = self.window.padding
        return np.pad(frame, ((0, 0), (top, bottom), (left, right)), constant_values=self.pad_value)


def with_clipped_ends(parameters: dict[str, Any], low: int, high: int) -> dict[str, Any]:
    """Return a layer's parameters with its own bounds, ``low`` and ``high``, clipped."""
    return {**parameters, **{end: min(max(parameters[end], low), high) for end in ("low", "high")}}
