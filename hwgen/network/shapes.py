"""Networks for planning: the shapes of their layers, without weights and without quantising.

Exploration asks how layers may be grouped and tiled, for which sizes are enough. They come from the tables of built-in
networks (`hwgen.network.zoo.tables`), an ONNX file or a ``light`` model of the onnx package
(`hwgen.network.onnx.shapes`). Fully connected layers end a chain, unless they are asked for: each output depends on the
whole map, so that fusing gains nothing. What is left out is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hwgen.errors import ConfigError, ModelError
from hwgen.network.graph import Network
from hwgen.network.maps import Window
from hwgen.network.onnx import shapes as onnx_shapes
from hwgen.network.ops import Op
from hwgen.network.zoo import graphs, tables

__all__ = ["chain", "graph", "least_size", "load", "names"]


def names() -> list[tuple[str, str]]:
    """Name and description of every built-in network: the tables', those that branch, the onnx package's light ones."""
    named = [(name, each.description) for name, each in (*tables.TABLES.items(), *graphs.GRAPHS.items())]
    return named + [
        (name, "from the onnx package: the whole graph, or its linear part :partN")
        for name in onnx_shapes.light_names()
    ]


def load(source: str | os.PathLike[str], *, dense: bool = False) -> Network:
    """The shape of an ``.onnx`` file or of a built-in network, up to its first fully connected layer; or with ``dense``
    beyond, and with the classifier of a table.

    A built-in network's name may carry a prefix and a size, as in ``vgg16:7@64x64``; a light model's
    (``light_resnet50``) may carry ``:part2``, the second of its linear parts.

    Raises
    ------
    ModelError
        For a model that can't be read or planned, or an unknown name.
    """
    path, name = Path(source), str(source)
    if not isinstance(source, str) or path.suffix.lower() == ".onnx" or os.sep in name:
        if path.suffix.lower() != ".onnx":
            raise ModelError(f"{path}: a model must be an .onnx file or a built-in network's name")
        return onnx_shapes.read(path, dense=dense)
    base = tables.base(name)
    if base in tables.TABLES:
        specs, shape = tables.find(name, classifier=dense)
        layers = chain(name, specs, shape)
        count = next((index for index, spec in enumerate(specs) if spec.dense and not dense), len(specs))
        left_out = tuple(f"{layer.name} and what follows: fully connected" for layer in layers[count : count + 1])
        return Network(name=name, layers=layers[:count], left_out=left_out)
    if base in graphs.GRAPHS:
        model, _ = graphs.model(name)
        return onnx_shapes.of(model, name, dense=dense)
    if base in onnx_shapes.light_names():
        return onnx_shapes.light(name, dense=dense)
    raise tables.unknown(name, dict(names()))


def graph(source: str | os.PathLike[str]) -> Network:
    """The same as `load`, but of an ``.onnx`` file or of a built-in network that branches the whole graph, up to its
    fully connected layers, if all kinds of its layers are known.

    Raises
    ------
    ModelError
        As `load`.
    """
    path, name = Path(source), str(source)
    if path.suffix.lower() == ".onnx":
        return onnx_shapes.whole(path)
    if isinstance(source, str) and os.sep not in name and tables.base(name) in graphs.GRAPHS:
        model, _ = graphs.model(name)
        return onnx_shapes.whole_of(model, name)
    return load(source)


def chain(name: str, specs: Sequence[tables.Spec], shape: tuple[int, int, int]) -> tuple[Op, ...]:
    """All layers of a table, dense ones as convolutions with the whole map; ``shape``: channels, rows, columns.

    Raises
    ------
    ModelError
        If the input is too small for them; ``name`` starts the message.
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
        least = least_size([spec.window(*size) for spec in specs if not spec.dense])
        small = shape[1] < least[0] or shape[2] < least[1]
        hint = f"; the least input is {least[0]}x{least[1]}" if small else ""
        raise ModelError(f"{name}: {error}{hint}") from None
    return tuple(layers)


def least_size(windows: Sequence[Window]) -> tuple[int, int]:
    """Rows and columns that an input must have for each of these windows, one after the other, to fit once."""
    rows = columns = 1
    for window in reversed(windows):
        top, left, bottom, right = window.padding
        rows = max(1, (rows - 1) * window.stride[0] + window.extent[0] - top - bottom)
        columns = max(1, (columns - 1) * window.stride[1] + window.extent[1] - left - right)
    return rows, columns
