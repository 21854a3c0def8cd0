"""Unfolded layout of an input map: the values of several kernel taps are channels of one stored pixel.

A step of the array adds four channels of one tap. A first layer with 1, 3 or 6 channels therefore leaves multipliers
idle. The host writes the input map into memory in any case, in blocks of 8 channels. If it writes the rows and some
columns of each window as channels of one pixel, all multipliers have work. AlexNet's first layer (3 channels, 11 x 11
taps, stride 4) becomes a layer of 132 channels with 1 x 3 taps: 11 rows and 4 columns of 3 channels. The last of the
three taps needs 3 columns only, the first 99 channels. With a job for the first 104 channels and one for the others,
which has two taps, a pixel group takes 92 steps in place of 121.

A layer that the memory port bounds is better off with as many rows as the stride. With 3 x 3 taps, a stride of 2 and 3
channels, 2 x 2 pixels are then 12 channels, in 2 words, and the layer has 2 x 2 taps. Three rows and two columns are 18
channels, in 3 words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hwgen.fields import entry
from hwgen.network.graph import Network
from hwgen.network.maps import MAX_SIDE, FeatureMap, IntegerType, Window
from hwgen.network.ops import Conv
from hwgen.program.layout import offset

#: Check of a size or a distance in rows or columns: from 1 to `MAX_SIDE`.
_SIDE = {"minimum": 1, "maximum": MAX_SIDE}


@dataclass(frozen=True, kw_only=True)
class Unfold:
    """Unfolded layout of an input map: how many neighbouring rows and columns become channels of one pixel.

    Channel ``(column * rows + row) * C + c`` of the unfolded pixel ``(y, x)`` is the value of channel ``c`` in row
    ``y * row_step + row - top`` and column ``x * column_step + column - left``. Outside of the map it is the zero
    point.

    Parameters
    ----------
    rows, columns : int
        Number of neighbouring rows, and of columns, that are channels of one pixel.
    row_step, column_step : int
        Distance in rows, and in columns, between neighbouring unfolded pixels.
    top, left : int
        Number of rows above the map, and of columns to its left, that the first unfolded pixel includes.
    height, width : int
        Height and width of the unfolded map, in pixels.
    outside : int
        Byte that memory stores for a value outside of the map, from 0 to 255.
    """

    rows: int = entry(**_SIDE)
    columns: int = entry(**_SIDE)
    row_step: int = entry(**_SIDE)
    column_step: int = entry(**_SIDE)
    top: int = entry(minimum=0, maximum=MAX_SIDE)
    left: int = entry(minimum=0, maximum=MAX_SIDE)
    height: int = entry(**_SIDE)
    width: int = entry(**_SIDE)
    outside: int = entry(minimum=0, maximum=255)

    def map(self, source: FeatureMap) -> FeatureMap:
        """Return the `FeatureMap` (type, sizes) that a map becomes when it is stored unfolded."""
        channels = self.rows * self.columns * source.channels
        return replace(source, channels=channels, height=self.height, width=self.width)

    def apply(self, frame: np.ndarray, integer_type: IntegerType) -> np.ndarray:
        """Return an array: the values ``(C, H, W)`` of a feature map, rearranged as the unfolded map's values."""
        height, width = frame.shape[1:]
        row = np.arange(self.height)[:, None] * self.row_step + np.arange(self.rows) - self.top
        column = np.arange(self.width)[:, None] * self.column_step + np.arange(self.columns) - self.left
        is_inside = ((row >= 0) & (row < height))[:, :, None, None] & ((column >= 0) & (column < width))
        row, column = np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)
        outside = (self.outside ^ 128) - 128 + offset(integer_type)
        values = np.where(is_inside, frame[:, row[:, :, None, None], column], outside)
        whole = values.transpose(4, 2, 0, 1, 3).reshape(-1, self.height, self.width)
        return whole.astype(frame.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnfoldedConv(Conv):
    """Convolution whose input map is stored with neighbouring rows and columns as channels of one pixel (unfolded).

    Parameters
    ----------
    unfold : Unfold
        Layout of the input map.
    last_channels : int
        Number of channels that the last kernel column reads. The weights of its other channels are 0.
    """

    unfold: Unfold
    last_channels: int


def unfold_options(layer: Conv) -> list[Unfold]:
    """Return a list of each `Unfold` layout of a convolution's input that may save cycles, few columns first.

    A pixel has all kernel rows of a window, or as many rows as the stride. In the second case no row is stored twice,
    so that a map with few channels takes fewer words. Columns are unfolded in multiples of the stride, so that windows
    begin at an unfolded pixel. Each layout has another number of taps.
    """
    window = layer.window
    if layer.groups > 1 or window.dilation != (1, 1) or window.kernel == (1, 1):
        return []
    (kernel_rows, kernel_columns), (row_step, step), output = window.kernel, window.stride, layer.output
    counts = {-(-kernel_columns // width): width for width in range(-(-kernel_columns // step) * step, 0, -step)}
    return [
        Unfold(
            rows=rows,
            columns=(columns := min(width, kernel_columns)),
            row_step=row_step,
            column_step=step,
            top=window.padding[0],
            left=window.padding[1],
            height=output.height + -(-kernel_rows // rows) - 1,
            width=output.width + (taps - 1) * (columns // step),
            outside=layer.pad_value - offset(layer.input.type) & 255,
        )
        for rows in ([row_step] if row_step < kernel_rows else []) + [kernel_rows]
        for taps, width in sorted(counts.items(), reverse=True)
        if (rows, width) != (1, 1)
    ]


def unfoldable(network: Network) -> dict[str, tuple[str, Conv]]:
    """Return a dict by convolution's name of (input name, `Conv`), for network inputs that only this layer reads."""
    layers = {layer.name: layer for layer in network.layers}
    found = {}
    for edge in network.inputs:
        names = network.readers[edge]
        if len(names) == 1 and type(layer := layers[names[0]]) is Conv:
            found[layer.name] = edge, layer
    return found


def unfolds_of(network: Network) -> dict[str, Unfold]:
    """Return a dictionary by name of the `Unfold` layout of each input of a network that is stored unfolded."""
    layers = zip(network.layers, network.edges, strict=True)
    return {edge: layer.unfold for layer, (edge, *_) in layers if isinstance(layer, UnfoldedConv)}


def unfolded(network: Network, layouts: Mapping[str, Unfold]) -> Network:
    """Return a `Network`: a copy of a network whose convolutions named in ``layouts`` read unfolded input maps."""
    layers = tuple(
        unfolded_conv(layer, layouts[layer.name]) if isinstance(layer, Conv) and layer.name in layouts else layer
        for layer in network.layers
    )
    return replace(network, layers=layers, edges=network.edges, outputs=network.output_layers) if layouts else network


def unfolded_conv(layer: Conv, unfold: Unfold) -> UnfoldedConv:
    """Return a `UnfoldedConv`: convolution of an unfolded map that gives the same outputs as the given convolution."""
    maps, channels, rows, columns = layer.weights.shape
    tap_rows, taps = -(-rows // unfold.rows), -(-columns // unfold.columns)
    tap_distance = unfold.columns // unfold.column_step if taps > 1 else 1
    whole = np.zeros((maps, channels, tap_rows * unfold.rows, taps * unfold.columns), layer.weights.dtype)
    whole[:, :, :rows, :columns] = layer.weights
    # Axes: map, channel, tap row, row of a tap, tap column, column of a tap.
    by_tap = whole.reshape(maps, channels, tap_rows, unfold.rows, taps, unfold.columns)
    weights = by_tap.transpose(0, 5, 3, 1, 2, 4).reshape(maps, -1, tap_rows, taps)
    last_columns = columns - (taps - 1) * unfold.columns
    return UnfoldedConv(
        name=layer.name,
        input=unfold.map(layer.input),
        output=layer.output,
        window=Window(kernel=(tap_rows, taps), dilation=(1, tap_distance)),
        weights=weights,
        bias=layer.bias,
        requantisation=layer.requantisation,
        fraction=layer.fraction,
        loaded=layer.loaded,
        loaded_bits=layer.loaded_bits,
        unfold=unfold,
        last_channels=last_columns * unfold.rows * channels,
    )
