"""Base class of all layers: maps, numbers of MACs and weights, which inputs an output needs, and the golden model.

An operator is a subclass of `Op`, and answers the questions of golden model, planner and importer. Therefore no other
code tests which operator a layer has. Each template has its own registry of hardware, by the operator's class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import MAX_SIDE, UINT8, FeatureMap, IntegerType, Window, check_window


@dataclass(frozen=True, kw_only=True, eq=False)
class Op(ABC):
    """Base class of a network's layers: input maps, an output map, and a sliding window over the input.

    Parameters
    ----------
    name : str
        Name of the layer in the model, unique in the network.
    input, output : FeatureMap
        Input map (the first one of several), and output map.
    window : Window
        Kernel, stride, padding and dilation.

    Raises
    ------
    ConfigError
        If the window gives an output of another size, or a map is too large.
    """

    name: str
    input: FeatureMap
    output: FeatureMap
    window: Window

    kind: ClassVar[str]
    """Name of the layer's operator in plans, tables and messages, for example ``conv``."""
    operators: ClassVar[tuple[str, ...]]
    """Tuple of names of ONNX operators that this layer class computes: the float one first, then integer ones."""
    channelwise: ClassVar[bool] = False
    """Whether each output channel depends only on the input channel of the same index."""
    selects: ClassVar[bool] = False
    """Whether each output value is one of the input values (as in a max pool), so that the type and scale stay."""
    keeps_type: ClassVar[bool] = False
    """Whether the output map has the input map's type, scale and zero point.

    True for `selects`, and for constant padding.
    """
    copies: ClassVar[bool] = False
    """Whether the output map equals the input map, value by value."""
    channels_first: ClassVar[bool] = False
    """Whether the layer's ONNX operators require the channels as the second dimension of their input."""
    valuewise: ClassVar[bool] = False
    """Whether each output value depends only on the input values at the same pixel and channel."""
    concatenates: ClassVar[bool] = False
    """Whether the output map holds the channels of the input maps, one map after the other."""
    in_fixed_point: ClassVar[bool] = False
    """Whether the layer computes in fixed point what ONNX Runtime computes in float32, before one quantiser."""
    shaped_by: ClassVar[tuple[str, ...]] = ()
    """Tuple of names of the layer's own parameters that are part of its `geometry`."""
    loadable: ClassVar[bool] = False
    """Whether this kind of layer can load its constants at run time, as its parameter ``loaded`` then chooses."""
    loaded = False
    """Whether the hardware loads the layer's constants at run time."""
    groups = 1
    """Number of independent groups of channels (ONNX ``group``)."""

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
        """Return an `Op` with only its sizes known, for planning: with uint8 maps, and zeros for all weights.

        Parameters
        ----------
        channels, outputs : int
            Numbers of input and output channels, over all groups.
        height, width : int
            Height and width of the input map without padding, in pixels.

        Raises
        ------
        ConfigError
            If no window fits, the groups don't divide the channels, or a map is too large.
        """
        if min(channels, outputs, height, width, groups) < 1:
            raise ConfigError(
                f"{name}: channels, outputs, height, width and groups must be positive, not {channels}, {outputs}, "
                f"{height}, "
                f"{width} and {groups}"
            )
        check_window(name, window, channels, height, width)
        if outputs > MAX_SIDE:
            raise ConfigError(f"{name}: a map must have at most {MAX_SIDE:,} channels, not {outputs:,}")
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
        """Return a dict of placeholder constructor parameters for this class, if only a layer's sizes are known."""
        return {}

    @classmethod
    def narrowed(cls, parameters: dict[str, Any], before: IntegerType, kind: IntegerType) -> dict[str, Any]:
        """Return a dict of constructor parameters, made for input type ``before``, for the narrower ``kind``."""
        return parameters

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        """Return a dict of constructor parameters so that the layer also clips outputs; ``None`` if this class can't.

        Parameters
        ----------
        low, high : int
            Minimum and maximum of the outputs.
        is_type : bool
            Whether the bounds are the range of an integer type.
        """
        return None

    @property
    def output_size(self) -> tuple[int, int]:
        """Pair: height and width of the output map in pixels, computed from the input map and the window."""
        return self.window.output_size(self.input.height, self.input.width)

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        """Tuple of the `FeatureMap` (shape, integer type) of each input of the layer, in order."""
        return (self.input,)

    @property
    def channels(self) -> int:
        """Number of input channels."""
        return self.input.channels

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.output.channels

    @property
    def height(self) -> int:
        """Number of rows of the input map."""
        return self.input.height

    @property
    def width(self) -> int:
        """Number of columns of the input map."""
        return self.input.width

    @property
    def output_height(self) -> int:
        """Number of rows of the output map."""
        return self.output.height

    @property
    def output_width(self) -> int:
        """Number of columns of the output map."""
        return self.output.width

    @property
    def taps(self) -> int:
        """Number of kernel taps, ``Kh * Kw``."""
        return self.window.taps

    @property
    def input_words(self) -> int:
        """Number of values in the input map."""
        return self.input.values

    @property
    def output_words(self) -> int:
        """Number of values in the output map."""
        return self.output.values

    @property
    def geometry(self) -> tuple[Any, ...]:
        """Tuple (hashable key) of the layer's shape, equal for layers that differ in name, weights and scales.

        The keys of two layers of the same shape are equal.
        """
        own = (getattr(self, name) for name in self.shaped_by)
        return self.kind, self.input.shape, self.output.shape, self.window, self.groups, *own

    @property
    def dense(self) -> bool:
        """Whether the layer is fully connected: every output depends on the whole input map."""
        return False

    @property
    def by_channel(self) -> bool:
        """Whether a `valuewise` layer's function differs from channel to channel."""
        return False

    @property
    def weight_count(self) -> int:
        """Number of the layer's weights, without biases."""
        return 0

    @property
    def weight_bits(self) -> int:
        """Width of the layer's widest weight in two's complement, in bits; 0 without weights."""
        return 0

    @property
    def weight_bytes(self) -> int:
        """Size of all weights of the layer, in bytes; each weight takes whole bytes."""
        return self.weight_count * -(-self.weight_bits // 8)

    @property
    def macs(self) -> int:
        """Number of the layer's multiply-accumulates per frame, padding included."""
        return self.weight_count * self.output_height * self.output_width

    @property
    def pad_value(self) -> int:
        """Integer value of the padding around the layer's input map; without a window no output depends on it."""
        return self.input.type.minimum

    @abstractmethod
    def compute(self, *maps: np.ndarray) -> np.ndarray:
        """Return the layer's golden output for one frame, ``(M, H, W)`` of the output's type.

        Parameters
        ----------
        maps : ndarray
            One map ``(C, H, W)`` for each input.

        Raises
        ------
        ConfigError
            If sums can exceed the range of exact sums.
        """

    def needed(self, axis: int, begin: int, end: int) -> tuple[int, int]:
        """Return the half-open range (a pair) of map rows (axis 0) or columns (1) that outputs ``begin:end`` read.

        Both intervals are half-open. Outputs whose windows are entirely in the padding need an empty interval.
        """
        limit = self.input.shape[1 + axis]
        first, last = self.covered(0, axis, begin, end)
        return min(max(first, 0), limit), min(max(last, 0), limit)

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """Return the half-open range (a pair) of rows (axis 0) or columns (1), with padding, that ``begin:end`` read.

        Both intervals are half-open, of integers or integer arrays. Rows and columns of the padding are included.
        """
        return self.window.reach(axis, begin, end)

    def holds_unchanged(self, input_index: int) -> bool:
        """Return whether the output of a layer that `concatenates` contains the integers of an input unchanged."""
        return False

    def pace(self, input_index: int, axis: int) -> Fraction:
        """Return the input rows (axis 0) or columns (1) per output row or column, a `Fraction`; 0 if each needs all."""
        return Fraction(self.window.stride[axis])

    def _padded(self, frame: np.ndarray) -> np.ndarray:
        """Return a frame ``(C, H, W)`` of the input map with the window's padding around it."""
        top, left, bottom, right = self.window.padding
        return np.pad(frame, ((0, 0), (top, bottom), (left, right)), constant_values=self.pad_value)


def with_clipped_ends(parameters: dict[str, Any], low: int, high: int) -> dict[str, Any]:
    """Return a dict of a layer's constructor parameters with output bounds ``low`` and ``high`` clipped further."""
    return {**parameters, **{end: min(max(parameters[end], low), high) for end in ("low", "high")}}
