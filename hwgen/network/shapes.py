"""Networks that know only the shapes of their layers, without weights and quantisation, for exploration.

Exploration groups and tiles layers; shapes suffice for it. Shapes come from the tables of built-in networks
(`hwgen.network.zoo.tables`), from an ONNX file, or from a ``light`` model of the onnx package
(`hwgen.network.onnx.model_shapes`). By default, a chain ends before its first fully connected layer: each output
depends on the whole map, so that fusion gains nothing. ``left_out`` names the missing layers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hwgen.errors import ConfigError, ModelError
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.onnx import model_shapes
from hwgen.network.ops import Op
from hwgen.network.zoo import graphs, tables


def names() -> list[tuple[str, str]]:
    """Return a list of (name, description) of every built-in network: chains, branching ones, onnx test models."""
    named = [(name, entry.description) for name, entry in (*tables.TABLES.items(), *graphs.GRAPHS.items())]
    return named + [
        (name, "from the onnx package: the whole graph, or its linear part :partN")
        for name in model_shapes.light_names()
    ]


def load(source: str | os.PathLike[str], *, dense: bool = False) -> Network:
    """Return a `Network` of shapes: a model's first chain of convolutions and pools, up to a dense layer.

    The model is an ``.onnx`` file or a built-in network. With ``dense``, fully connected layers are included, and the
    classifier of a built-in chain. The name of a built-in network can have a prefix and a size, as in
    ``vgg16:7@64x64``. The name of a light model (``light_resnet50``) can end in ``:part2`` for the second of its linear
    parts.

    Raises
    ------
    ModelError
        If a model can't be read or planned, or a name is unknown.
    """
    path, name = Path(source), str(source)
    if not isinstance(source, str) or path.suffix.lower() == ".onnx" or os.sep in name:
        if path.suffix.lower() != ".onnx":
            raise ModelError(f"{path}: a model must be an .onnx file or a built-in network's name")
        return model_shapes.read(path, dense=dense)
    base = tables.base(name)
    if base in tables.TABLES:
        specs, shape = tables.find(name, classifier=dense)
        layers = chain(name, specs, shape)
        count = next((index for index, spec in enumerate(specs) if spec.dense and not dense), len(specs))
        left_out = tuple(f"{layer.name} and what follows: fully connected" for layer in layers[count : count + 1])
        return Network(name=name, layers=layers[:count], left_out=left_out)
    if base in graphs.GRAPHS:
        model, _ = graphs.model(name)
        return model_shapes.of(model, name, dense=dense)
    if base in model_shapes.light_names():
        return model_shapes.light(name, dense=dense)
    raise tables.unknown(name, dict(names()))


def graph(source: str | os.PathLike[str]) -> Network:
    """Return a `Network`: a model up to its fully connected layers, with all branches, as a network of shapes only.

    The source is as for `load`. A model that is a chain, or has unknown operators, is loaded as there.

    Raises
    ------
    ModelError
        If a model can't be read or planned, or a name is unknown.
    """
    path, name = Path(source), str(source)
    if path.suffix.lower() == ".onnx":
        return model_shapes.whole(path)
    if isinstance(source, str) and os.sep not in name and tables.base(name) in graphs.GRAPHS:
        model, _ = graphs.model(name)
        return model_shapes.whole_of(model, name)
    return load(source)


def chain(name: str, specs: Sequence[tables.Spec], shape: tuple[int, int, int]) -> tuple[Op, ...]:
    """Return a tuple of each `Op`, without weights, that a built-in network's table lists, for an input's shape.

    Fully connected layers are convolutions with a window over the whole map.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of the input.

    Raises
    ------
    ModelError
        If the input is too small. The message begins with ``name``.
    """
    channels, *size = shape
    layers: list[Op] = []
    try:
        for spec in specs:
            layer = spec.op.shaped(
                name=spec.name,
                channels=channels,
                outputs=spec.outputs or channels,
                height=size[0],
                width=size[1],
                window=spec.window(size[0], size[1]),
                groups=spec.groups,
            )
            channels, size = layer.outputs, [layer.output_height, layer.output_width]
            layers.append(layer)
    except ConfigError as error:
        minimum = min_size([spec.window(*size) for spec in specs if not spec.dense])
        small = shape[1] < minimum[0] or shape[2] < minimum[1]
        hint = f"; the least input is {minimum[0]}x{minimum[1]}" if small else ""
        raise ModelError(f"{name}: {error}{hint}") from None
    return tuple(layers)


def min_size(windows: Sequence[Window]) -> tuple[int, int]:
    """Return a pair: the minimum height and width of an image that every window of a chain of layers fits into."""
    rows = columns = 1
    for window in reversed(windows):
        top, left, bottom, right = window.padding
        rows = max(1, (rows - 1) * window.stride[0] + window.extent[0] - top - bottom)
        columns = max(1, (columns - 1) * window.stride[1] + window.extent[1] - left - right)
    return rows, columns
