"""A network as hwgen sees it: a chain of integer layers between integer feature maps.

Everything quantised is resolved to integers here: weights have their zero point subtracted, scales have
become significand and shift, fused activations have become bounds. Layers hold no float.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hwgen.errors import ConfigError

if TYPE_CHECKING:
    from hwgen.network.host import Host


@dataclass(frozen=True, kw_only=True)
class IntegerType:
    """A two's complement or unsigned integer of ``bits`` bits."""

    bits: int
    signed: bool

    @property
    def minimum(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    @property
    def dtype(self) -> np.dtype:
        """The smallest NumPy type that holds it."""
        width = next(w for w in (8, 16, 32, 64) if w >= self.bits)
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


INT8 = IntegerType(bits=8, signed=True)
UINT8 = IntegerType(bits=8, signed=False)
INT16 = IntegerType(bits=16, signed=True)
UINT16 = IntegerType(bits=16, signed=False)
INT32 = IntegerType(bits=32, signed=True)

MOST_SIDE = 65_535
"""Channels, rows and columns of a map, padding included: what 16 bits count."""
MOST_PIXELS = 1 << 24
"""Rows times columns of a map, padding included (4,096 x 4,096): the exact schedule lists them one by one."""
MOST_WEIGHTS = 1 << 28
"""Of a network: 2 GiB in the golden model, twice VGG-16 with its classifier."""


def check_map(what: str, channels: int, height: int, width: int) -> None:
    """Refuse maps beyond `MOST_SIDE` and `MOST_PIXELS`.

    Raises
    ------
    ConfigError
        ``what`` starts its message.
    """
    size = f"{channels} x {height} x {width} (channels, rows, columns)"
    if max(channels, height, width) > MOST_SIDE:
        raise ConfigError(f"{what} must have at most {MOST_SIDE:,} channels, rows and columns, not {size}")
    if height * width > MOST_PIXELS:
        raise ConfigError(f"{what} must have at most {MOST_PIXELS:,} pixels, not {height * width:,}: {size}")


def check_window(what: str, window: Window, channels: int, height: int, width: int) -> None:
    """Refuse windows over maps that are too large with their padding, and strides beyond `MOST_SIDE`.

    Raises
    ------
    ConfigError
        ``what`` starts its message.
    """
    top, left, bottom, right = window.padding
    check_map(f"{what}: the padded map", channels, height + top + bottom, width + left + right)
    if max(*window.kernel, *window.stride) > MOST_SIDE:
        raise ConfigError(
            f"{what}: kernel and strides must be at most {MOST_SIDE:,}, not {window.kernel}, {window.stride}"
        )


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """One layer's input or output, ``channels x height x width`` integers.

    ``zero_point`` is the integer that stands for zero; ``scale`` is the size of one step (float32, ``None``
    where the model gives none). Only the host uses ``scale``: to quantise float inputs.
    """

    channels: int
    height: int
    width: int
    type: IntegerType
    zero_point: int = 0
    scale: float | None = None

    def __post_init__(self) -> None:
        check_map("a map", self.channels, self.height, self.width)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def values(self) -> int:
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width} {self.type}"


@dataclass(frozen=True, kw_only=True)
class Window:
    """Kernel, stride and zero padding of a sliding window; pairs are (vertical, horizontal).

    ``padding`` is (top, left, bottom, right) as in ONNX. ``ceil_mode`` and ``auto_pad`` are resolved
    before: what they add is part of the padding.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of windows over a ``height x width`` map (0 or less: no window fits)."""
        top, left, bottom, right = self.padding
        rows = (height + top + bottom - self.kernel[0]) // self.stride[0] + 1
        columns = (width + left + right - self.kernel[1]) // self.stride[1] + 1
        return rows, columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """From accumulators to outputs: ``clip(round_half_even(acc * significand / 2**shift) + zero_point)``.

    ``significand`` (24 bits, in ``[2**23, 2**24)``) and ``shift`` (0 or more) are int64 arrays of one entry an
    output channel: together the float32 ``x_scale * w_scale / y_scale``. ``low`` and ``high`` are the bounds
    after the zero point, those of the output type or tighter where a Relu or Clip was fused.

    With ``float32`` the accumulator is rounded to float32 before the product, and the product before it is rounded to
    an integer, as ONNX Runtime's integer kernels do; all roundings are to nearest, ties to even. Without it the
    product is exact.
    """

    significand: np.ndarray
    shift: np.ndarray
    zero_point: int
    low: int
    high: int
    float32: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """What every layer has. ``name`` comes from the model and is unique in the network."""

    name: str
    input: FeatureMap
    output: FeatureMap
    window: Window

    kind = "layer"

    def __post_init__(self) -> None:
        check_window(self.name, self.window, *self.input.shape)
        rows, columns = self.window.output_size(self.input.height, self.input.width)
        if (rows, columns) != (self.output.height, self.output.width) or min(rows, columns) < 1:
            raise ConfigError(
                f"{self.name}: output must be {rows} x {columns} pixels, not {self.output.height} x {self.output.width}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv(Layer):
    """Convolution (ONNX Conv: cross-correlation), also Gemm and MatMul as the convolution they are.

    ``weights`` is int64 ``(M, C // groups, Kh, Kw)``, zero point subtracted (up to 9 bits signed of 8-bit
    weights, 17 of 16-bit ones). ``bias`` is int64 ``(M,)``, as in the model: the input's zero point is *not* folded
    into it. Accumulator = sum of ``w * (x - x_zero_point)`` + bias; padding counts as ``x_zero_point``.
    ``requantisation`` is ``None`` where the accumulators themselves leave (ConvInteger).
    """

    weights: np.ndarray
    bias: np.ndarray
    requantisation: Requantisation | None
    groups: int = 1

    kind = "conv"

    @property
    def macs(self) -> int:
        """Multiplications in one frame, padding included."""
        return self.output.height * self.output.width * self.weights.size

    @cached_property
    def weight_range(self) -> tuple[int, int]:
        """The least and the greatest weight."""
        return int(self.weights.min()), int(self.weights.max())

    @cached_property
    def signed_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each output channel's weights the sum of the positive and that of the negative ones, int64 ``(M,)``."""
        positive = np.maximum(self.weights, 0).sum(axis=(1, 2, 3))
        return positive, self.weights.sum(axis=(1, 2, 3)) - positive

    @cached_property
    def folded_bias(self) -> np.ndarray:
        """Bias when the raw ``x`` is multiplied: ``bias - x_zero_point * sum(w)``, int64 ``(M,)``."""
        return self.bias - self.input.zero_point * self.weights.sum(axis=(1, 2, 3))


@dataclass(frozen=True, kw_only=True, eq=False)
class MaxPool(Layer):
    """Max pooling; padding counts as the input type's minimum. Type and zero point pass through."""

    kind = "maxpool"


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A chain of layers: each one's input is the output of the layer before.

    ``left_out`` says what of the model is not in it, and why; ``warnings`` what can hardly be meant (for people to
    read). ``host`` is what of it runs on the host, ``None`` where nothing is known of a model around the layers.
    """

    name: str
    layers: tuple[Layer, ...]
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    host: Host | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError(f"{self.name}: a network must have at least one layer, not 0")
        names = [layer.name for layer in self.layers]
        if len(set(names)) != len(names):
            raise ConfigError(f"{self.name}: layer names must be unique, not {names}")
        for before, after in pairwise(self.layers):
            if before.output != after.input:
                raise ConfigError(
                    f"{self.name}: {after.name} must take {before.name}'s output {before.output}, not {after.input}"
                )

    @property
    def input(self) -> FeatureMap:
        return self.layers[0].input

    @property
    def output(self) -> FeatureMap:
        return self.layers[-1].output
