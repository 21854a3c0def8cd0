"""Networks for planning: the shapes of their convolutions and pools, without weights and without quantising.

Exploration asks how layers may be grouped and tiled, for which sizes are enough. Shapes come from three places: the
tables of built-in networks (`hwgen.network.zoo.tables`), an ONNX file or a ``light`` model of the onnx package
(`hwgen.network.onnx.shapes`), or a `Network` that is there already. Fully connected layers end a chain, unless they are
asked for: each output depends on the whole map, so that fusing gains nothing. What is left out is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hwgen.errors import ConfigError, InputError, ModelError
from hwgen.network.graph import MOST_SIDE, Conv, Layer, Network, Window, check_window
from hwgen.network.zoo import tables

__all__ = ["LayerShape", "NetworkShape", "load", "names", "of"]


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """A convolution or a pool, as far as planning goes.

    Parameters
    ----------
    name : str
        Unique in the network.
    kind : str
        ``conv`` or ``maxpool``.
    channels, outputs : int
        Channels of the input and of the output map, of all groups together.
    height, width : int
        Of the input map, without padding.
    window : Window
        Kernel, stride and padding.
    groups : int
        Groups of channels (convolutions).

    Raises
    ------
    ConfigError
        If no window fits, the groups don't divide the channels, or a map is too large.
    """

    name: str
    kind: str
    channels: int
    outputs: int
    height: int
    width: int
    window: Window
    groups: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("conv", "maxpool"):
            raise ConfigError(f"{self.name}: kind must be 'conv' or 'maxpool', not {self.kind!r}")
        if min(self.channels, self.outputs, self.height, self.width, self.groups) < 1:
            raise ConfigError(f"{self.name}: channels, sizes and groups must be positive")
        check_window(self.name, self.window, self.channels, self.height, self.width)
        if self.outputs > MOST_SIDE:
            raise ConfigError(f"{self.name}: a map must have at most {MOST_SIDE:,} channels, not {self.outputs:,}")
        if self.channels % self.groups or self.outputs % self.groups:
            raise ConfigError(
                f"{self.name}: {self.channels} input and {self.outputs} output channels must be multiples of "
                f"{self.groups} groups"
            )
        if self.kind == "maxpool" and self.channels != self.outputs:
            raise ConfigError(f"{self.name}: a pool must keep its {self.channels} channels, not give {self.outputs}")
        if min(self.output_height, self.output_width) < 1:
            kernel = "x".join(map(str, self.window.kernel))
            raise ConfigError(f"{self.name}: a {self.height} x {self.width} map is too small for its {kernel} window")

    @cached_property
    def _output(self) -> tuple[int, int]:
        return self.window.output_size(self.height, self.width)

    @property
    def output_height(self) -> int:
        return self._output[0]

    @property
    def output_width(self) -> int:
        return self._output[1]

    @property
    def taps(self) -> int:
        return self.window.taps

    @property
    def dense(self) -> bool:
        """Whether every output depends on the whole input map: a fully connected layer."""
        return self.kind == "conv" and self._output == (1, 1) and self.window.kernel == (self.height, self.width)

    @property
    def weights(self) -> int:
        """Weights, biases not counted; 0 for a pool."""
        return self.outputs * (self.channels // self.groups) * self.taps if self.kind == "conv" else 0

    @property
    def macs(self) -> int:
        """Multiplications in one frame, padding included; 0 for a pool."""
        return self.weights * self.output_height * self.output_width

    @property
    def input_words(self) -> int:
        return self.channels * self.height * self.width

    @property
    def output_words(self) -> int:
        return self.outputs * self.output_height * self.output_width


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """A chain of layers; ``left_out`` says what of the model is not in it, and why (for people to read)."""

    name: str
    layers: tuple[LayerShape, ...]
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError(f"{self.name}: a network must have at least one layer, not 0")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            given = (before.outputs, before.output_height, before.output_width)
            if given != (after.channels, after.height, after.width):
                raise ConfigError(f"{self.name}: {after.name} must take {before.name}'s {given}")

    def first(self, count: int) -> NetworkShape:
        """The first ``count`` layers.

        Raises
        ------
        InputError
            If there are not so many, or ``count`` is not positive.
        """
        if not 1 <= count <= len(self.layers):
            raise InputError(f"{self.name} has {len(self.layers)} layers; the first must be 1 to that, not {count}")
        return replace(self, layers=self.layers[:count], left_out=self.left_out if count == len(self.layers) else ())

    @property
    def geometry(self) -> tuple[LayerShape, ...]:
        """The layers without their names: equal for two networks of the same shape."""
        return tuple(replace(layer, name="") for layer in self.layers)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)


def of(network: Network) -> NetworkShape:
    """The shape of ``network`` up to its first fully connected layer.

    Raises
    ------
    ModelError
        If that is the very first.
    """
    layers = [of_layer(layer) for layer in network.layers]
    return chained(network.name, layers, network.left_out)


def of_layer(layer: Layer) -> LayerShape:
    """The shape of one layer, fully connected or not."""
    return LayerShape(
        name=layer.name,
        kind=layer.kind,
        channels=layer.input.channels,
        outputs=layer.output.channels,
        height=layer.input.height,
        width=layer.input.width,
        window=layer.window,
        groups=layer.groups if isinstance(layer, Conv) else 1,
    )


def chained(
    name: str, layers: Sequence[LayerShape], left_out: Iterable[str] = (), *, dense: bool = False
) -> NetworkShape:
    """The layers before the first fully connected one, or with ``dense`` all; raises ModelError if there are none."""
    count = next((index for index, layer in enumerate(layers) if layer.dense and not dense), len(layers))
    if not count:
        raise ModelError(f"{name}: no convolution or pool to plan: the first layer is fully connected")
    return NetworkShape(name=name, layers=tuple(layers[:count]), left_out=(*_cut(layers[count:]), *left_out))


def _cut(layers: Sequence[LayerShape]) -> tuple[str, ...]:
    """Why these are left out."""
    return tuple(f"{layer.name} and what follows: fully connected" for layer in layers[:1])


def names() -> list[tuple[str, str]]:
    """Name and description of every built-in network: the tables', then the onnx package's light models."""
    from hwgen.network.onnx import shapes as onnx_shapes

    named = [(name, table.description) for name, table in tables.TABLES.items()]
    return named + [
        (name, "from the onnx package: its first linear part, or :partN") for name in onnx_shapes.light_names()
    ]


def load(source: str | os.PathLike[str], *, dense: bool = False) -> NetworkShape:
    """The shape of an ``.onnx`` file or of a built-in network, up to its first fully connected layer; or with ``dense``
    beyond, and with the classifier of a table.

    A built-in network's name may carry a prefix and a size, as in ``vgg16:7@64x64``; a light model's
    (``light_resnet50``) may carry ``:part2``, the second of its linear parts.

    Raises
    ------
    ModelError
        For a model that can't be read or planned, or an unknown name.
    """
    from hwgen.network.onnx import shapes as onnx_shapes

    path, name = Path(source), str(source)
    if not isinstance(source, str) or path.suffix.lower() == ".onnx" or os.sep in name:
        if path.suffix.lower() != ".onnx":
            raise ModelError(f"{path}: a model must be an .onnx file or a built-in network's name")
        return onnx_shapes.read(path, dense=dense)
    base = tables.base(name)
    if base in tables.TABLES:
        specs, shape = tables.find(name, classifier=dense)
        layers = chain(name, specs, shape)
        count = next((index for index, spec in enumerate(specs) if spec.kind == "dense" and not dense), len(specs))
        return NetworkShape(name=name, layers=layers[:count], left_out=_cut(layers[count:]))
    if base in onnx_shapes.light_names():
        return onnx_shapes.light(name, dense=dense)
    raise tables.unknown(name, dict(names()))


def chain(name: str, specs: Sequence[tables.Spec], shape: tuple[int, int, int]) -> tuple[LayerShape, ...]:
    """All layers of a table, dense ones as convolutions with the whole map; ``shape``: channels, rows, columns.

    Raises
    ------
    ModelError
        If the input is too small for them; ``name`` starts the message.
    """
    channels, *size = shape
    layers: list[LayerShape] = []
    try:
        for spec in specs:
            window = Window(kernel=(size[0], size[1])) if spec.kind == "dense" else _window(spec)
            layer = LayerShape(
                name=spec.name,
                kind="maxpool" if spec.kind == "maxpool" else "conv",
                channels=channels,
                outputs=spec.outputs or channels,
                height=size[0],
                width=size[1],
                window=window,
                groups=spec.groups,
            )
            channels, size = layer.outputs, [layer.output_height, layer.output_width]
            layers.append(layer)
    except ConfigError as error:
        least = least_size([_window(spec) for spec in specs if spec.kind != "dense"])
        small = shape[1] < least[0] or shape[2] < least[1]
        hint = f"; the least input is {least[0]}x{least[1]}" if small else ""
        raise ModelError(f"{name}: {error}{hint}") from None
    return tuple(layers)


def least_size(windows: Sequence[Window]) -> tuple[int, int]:
    """Rows and columns that an input must have for each of these windows, one after the other, to fit once."""
    rows = columns = 1
    for window in reversed(windows):
        top, left, bottom, right = window.padding
        rows = max(1, (rows - 1) * window.stride[0] + window.kernel[0] - top - bottom)
        columns = max(1, (columns - 1) * window.stride[1] + window.kernel[1] - left - right)
    return rows, columns


def _window(spec: tables.Spec) -> Window:
    k, s, p = spec.kernel, spec.stride, spec.padding
    return Window(kernel=(k, k), stride=(s, s), padding=(p, p, p, p))
