"""Networks for planning: the shapes of their convolutions and pools, without weights and without quantising.

Exploration asks how layers may be grouped and tiled, for which sizes are enough. Shapes come from three places: the
tables below (networks of the papers), an ONNX file or one of the ``light`` models of the onnx package
(`hwgen.network.onnx_shapes`), or a `Network` that is there already. Fully connected layers end a chain: each output
depends on the whole map, so that fusing and tiling gain nothing. What is left out is named.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hwgen.errors import ConfigError, InputError, ModelError
from hwgen.network.graph import Conv, Network, Window

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
        If no window fits, or the groups don't divide the channels.
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
    layers = [
        LayerShape(
            name=layer.name,
            kind=layer.kind,
            channels=layer.input.channels,
            outputs=layer.output.channels,
            height=layer.input.height,
            width=layer.input.width,
            window=layer.window,
            groups=layer.groups if isinstance(layer, Conv) else 1,
        )
        for layer in network.layers
    ]
    return until_dense(network.name, layers)


def until_dense(name: str, layers: Sequence[LayerShape], left_out: Iterable[str] = ()) -> NetworkShape:
    """The layers before the first fully connected one; raises ModelError if there are none."""
    count = next((index for index, layer in enumerate(layers) if layer.dense), len(layers))
    if not count:
        raise ModelError(f"{name}: no convolution or pool to plan: the first layer is fully connected")
    dense = [f"{layer.name} and what follows: fully connected" for layer in layers[count : count + 1]]
    return NetworkShape(name=name, layers=tuple(layers[:count]), left_out=(*dense, *left_out))


# The networks of the papers.


@dataclass(frozen=True)
class _Spec:
    name: str
    outputs: int  # 0: a pool
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1


@dataclass(frozen=True)
class _Table:
    description: str
    input: tuple[int, int, int]
    layers: tuple[_Spec, ...]


def _conv(name: str, outputs: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1) -> _Spec:
    return _Spec(name, outputs, kernel, stride, padding, groups)


def _pool(name: str, kernel: int = 2, stride: int = 2, padding: int = 0) -> _Spec:
    return _Spec(name, 0, kernel, stride, padding)


def _vgg(*blocks: int) -> tuple[_Spec, ...]:
    """VGG with so many 3x3 convolutions in each block; a 2x2 pool ends it (Simonyan and Zisserman, table 1)."""
    layers = []
    for block, (count, outputs) in enumerate(zip(blocks, (64, 128, 256, 512, 512), strict=True), start=1):
        layers += [_conv(f"conv{block}_{index}", outputs, 3, padding=1) for index in range(1, count + 1)]
        layers.append(_pool(f"pool{block}"))
    return tuple(layers)


def _alexnet(sets: int) -> tuple[_Spec, ...]:
    """AlexNet; with one set, the half that one of its two GPUs computed."""
    half = 2 // sets
    groups = sets
    return (
        _conv("conv1", 96 // half, 11, stride=4),
        _pool("pool1", 3),
        _conv("conv2", 256 // half, 5, padding=2, groups=groups),
        _pool("pool2", 3),
        _conv("conv3", 384 // half, 3, padding=1),
        _conv("conv4", 384 // half, 3, padding=1, groups=groups),
        _conv("conv5", 256 // half, 3, padding=1, groups=groups),
        _pool("pool5", 3),
    )


_TABLES = {
    "alexnet": _Table("AlexNet, both sets: 5 convolutions, 3 pools; 227x227x3 input", (3, 227, 227), _alexnet(2)),
    "alexnet-set": _Table(
        "AlexNet's first two convolutions and pools, one of the two sets; 227x227x3 input",
        (3, 227, 227),
        _alexnet(1)[:4],
    ),
    "vgg11": _Table("VGG-11 (A): 8 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(1, 1, 2, 2, 2)),
    "vgg16": _Table("VGG-16 (D): 13 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(2, 2, 3, 3, 3)),
    "vgg19": _Table("VGG-19 (E): 16 convolutions, 5 pools; 224x224x3 input", (3, 224, 224), _vgg(2, 2, 4, 4, 4)),
    "zfnet": _Table(
        "ZFNet: 5 convolutions, 3 pools; 224x224x3 input",
        (3, 224, 224),
        (
            _conv("conv1", 96, 7, stride=2, padding=1),
            _pool("pool1", 3, padding=1),
            _conv("conv2", 256, 5, stride=2),
            _pool("pool2", 3, padding=1),
            _conv("conv3", 384, 3, padding=1),
            _conv("conv4", 384, 3, padding=1),
            _conv("conv5", 256, 3, padding=1),
            _pool("pool5", 3),
        ),
    ),
    "decoilfnet-four": _Table(
        "DeCoILFNet's own network (Table III): 4 convolutions of 64 filters; 224x224x3 input",
        (3, 224, 224),
        tuple(_conv(f"conv1_{index}", 64, 3, padding=1) for index in range(1, 5)),
    ),
    "flownets": _Table(
        "FlowNetS, contracting part: 10 convolutions; 384x512x6 input",
        (6, 384, 512),
        (
            _conv("conv1", 64, 7, 2, 3),
            _conv("conv2", 128, 5, 2, 2),
            _conv("conv3", 256, 5, 2, 2),
            _conv("conv3_1", 256, 3, 1, 1),
            _conv("conv4", 512, 3, 2, 1),
            _conv("conv4_1", 512, 3, 1, 1),
            _conv("conv5", 512, 3, 2, 1),
            _conv("conv5_1", 512, 3, 1, 1),
            _conv("conv6", 1024, 3, 2, 1),
            _conv("conv6_1", 1024, 3, 1, 1),
        ),
    ),
    "speed-sign": _Table(
        "Peemen's speed-sign network: 3 convolutions (the second with all connections); 720x1280x1 input",
        (1, 720, 1280),
        (_conv("conv1", 6, 6, 2), _conv("conv2", 16, 6, 2), _conv("conv3", 80, 5, groups=2)),
    ),
}


def names() -> list[tuple[str, str]]:
    """Name and description of every network that comes with shapes: tables, then the onnx package's light models."""
    from hwgen.network import onnx_shapes

    tables = [(name, table.description) for name, table in _TABLES.items()]
    return tables + [(name, "from the onnx package: its linear parts") for name in onnx_shapes.light_names()]


def load(source: str | os.PathLike[str]) -> NetworkShape:
    """The shape of an ``.onnx`` file, of a network in the tables or of any other built-in network.

    A table's name may carry a prefix and a size, as in ``vgg16:7@64x64``; a light model's (``light_resnet50``) may
    carry ``:part2``, the second of its linear parts.

    Raises
    ------
    ModelError
        For a model that can't be read or planned, or an unknown name.
    """
    from hwgen.network import onnx_shapes

    path, name = Path(source), str(source)
    if not isinstance(source, str) or path.suffix.lower() == ".onnx" or os.sep in name:
        if path.suffix.lower() != ".onnx":
            raise ModelError(f"{path}: a model must be an .onnx file or a built-in network's name")
        return onnx_shapes.read(path)
    base, *_ = re.split("[:@]", name, maxsplit=1)
    if base in _TABLES:
        return _from_table(base, name)
    if base in onnx_shapes.light_names():
        return onnx_shapes.light(name)

    from hwgen.network import builtin

    if base in dict(builtin.names()):
        return of(builtin.load(name))
    known = [*_TABLES, *dict(builtin.names()), *onnx_shapes.light_names()]
    near = difflib.get_close_matches(base, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise ModelError(f"unknown model {name!r}: neither an .onnx file nor a built-in network; {hint}")


def _from_table(base: str, name: str) -> NetworkShape:
    match = re.fullmatch(r"(?::(\d{1,9}))?(?:@(\d{1,9})x(\d{1,9}))?", name[len(base) :])
    if not match:
        raise ModelError(f"{name}: a built-in name must be NAME[:LAYERS][@HEIGHTxWIDTH], as in {base}:2@64x64")
    table = _TABLES[base]
    count, height, width = (None if group is None else int(group) for group in match.groups())
    if count is not None and not 1 <= count <= len(table.layers):
        raise ModelError(f"{name}: {base} has {len(table.layers)} layers; a prefix must be 1 to that, not {count}")
    channels, rows, columns = table.input
    size = (rows, columns) if height is None or width is None else (height, width)
    try:
        return NetworkShape(name=name, layers=_chain(table.layers[:count], channels, size))
    except ConfigError as error:
        raise ModelError(f"{name}: {error}") from None


def _chain(specs: Iterable[_Spec], channels: int, size: tuple[int, int]) -> tuple[LayerShape, ...]:
    layers: list[LayerShape] = []
    for spec in specs:
        layer = LayerShape(
            name=spec.name,
            kind="conv" if spec.outputs else "maxpool",
            channels=channels,
            outputs=spec.outputs or channels,
            height=size[0],
            width=size[1],
            window=Window(
                kernel=(spec.kernel, spec.kernel),
                stride=(spec.stride, spec.stride),
                padding=(spec.padding, spec.padding, spec.padding, spec.padding),
            ),
            groups=spec.groups,
        )
        channels, size = layer.outputs, (layer.output_height, layer.output_width)
        layers.append(layer)
    return tuple(layers)
