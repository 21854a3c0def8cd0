"""Shapes of an ONNX model's convolution and pool layers, float or quantised, for exploration without weights.

A model is cut into its linear parts. A part is a chain of convolutions and pools that are each read only by the next
one, with nothing but pointwise operators in between. Fully connected layers count only on request, as convolutions with
the whole map. The first part in the graph's order is planned, unless another one is requested. The plan names the
operator that ends the part, and the operators that are left out as if they cost nothing.

`whole` and `whole_of` return a model that branches as a graph. The graph holds sums, products, concatenations and
upsampling, too, up to the fully connected layers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import onnx

from hwgen.errors import ConfigError, ModelError
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.onnx.check import check
from hwgen.network.onnx.file import DOMAINS, attribute
from hwgen.network.onnx.file import read as read_model
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import CONVOLUTIONS, POINTWISE, PRODUCTS, Effect, with_effect
from hwgen.network.onnx.windows import window_of
from hwgen.network.ops import JOINS, POOLS, Concat, Conv, Mul, Op, Upsample
from hwgen.network.zoo import tables

_WINDOWED: dict[str, type[Op]] = {**dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), Conv), **POOLS}
"""Dictionary of layer classes with a sliding window over one map, by the ONNX operators that they are made of."""
_FLATTENING = {"Flatten", "Reshape", "Squeeze"}
"""Set of names of ONNX operators that can flatten a map before a fully connected layer."""
_FREE = {"Relu", "Clip", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear"}
"""Set of names of the ONNX operators that cost nothing in hardware."""
_POINTWISE = with_effect(*POINTWISE, Effect.QUANTISER, Effect.SAME) | {"BatchNormalization", "LRN"}
"""Set of names of ONNX operators that keep the position of every pixel, and are left out of a chain of layers.

An operator on two operands counts if one of them is constant.
"""


@cache
def _light_folder() -> Path | None:
    """Return the folder of the onnx package's ``light`` test models (without weights); ``None`` if it is missing."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return folder if folder.is_dir() else None


@cache
def light_names() -> tuple[str, ...]:
    """Return a tuple of names of the onnx package's ``light`` test models without weights, as ``light_vgg19``.

    They are published graphs. Each constant has its shape, and one number as the value of all its elements.
    """
    folder = _light_folder()
    return () if folder is None else tuple(sorted(path.stem for path in folder.glob("light_*.onnx")))


def light(name: str, *, dense: bool = False) -> Network:
    """Return the `Network`, without weights, of a linear part of an onnx test model, as ``light_resnet50:part3``.

    ``light_resnet50`` is its first part. The bits of activations and weights can follow (``,int16``); the shapes are
    the same.

    Raises
    ------
    ModelError
        If the name is wrong, or the model has no such part.
    """
    base, _, suffix = tables.precision(name)[0].partition(":")
    match = re.fullmatch(r"part(\d{1,4})", suffix or "part1")
    if match is None or base not in light_names():
        raise ModelError(f"{name}: a light model's name must be NAME or NAME:partN, as in light_resnet50:part2")
    model = light_model(base)
    return _part(_graph(model, base, dense), base if not suffix else name, int(match[1]), dense)


def light_model(base: str) -> onnx.ModelProto:
    """Return one of the onnx package's ``light`` test models: a published graph without weights.

    Raises
    ------
    ModelError
        If the installed onnx package has no light model of this name.
    """
    folder = _light_folder()
    if folder is None or base not in light_names():
        raise ModelError(f"{base}: the installed onnx package has no light model of this name")
    return read_model(folder / f"{base}.onnx")


def read(path: Path, *, dense: bool = False) -> Network:
    """Read the model in ``path``; return a `Network`: its first chain of convolutions and pools, without weights.

    Raises
    ------
    ModelError
        If the file can't be read, or the model has no convolution or pool.
    """
    return _part(_graph(read_model(path), str(path), dense), path.stem, 1, dense)


def of(model: onnx.ModelProto, name: str, *, dense: bool = False) -> Network:
    """Return a `Network`: the first chain of convolutions and pools of an ONNX model as a network without weights.

    Raises
    ------
    ModelError
        If the model is not valid, or has no convolution or pool.
    """
    return _part(_graph(model, name, dense), name, 1, dense)


def whole(path: Path) -> Network:
    """Read the model in the file ``path``; return a `Network` of its layers, with branches but without weights.

    The result is the first linear part if the graph is a chain, or contains an operator that is not known here.

    Raises
    ------
    ModelError
        If the file can't be read, or the model has no convolution or pool.
    """
    return _load_network(_graph(read_model(path), str(path), False), path.stem)


def whole_of(model: onnx.ModelProto, name: str) -> Network:
    """Return a `Network`: the layers of an ONNX model, with branches, as a network without weights."""
    return _load_network(_graph(model, name, False), name)


def _load_network(graph: _Graph, name: str) -> Network:
    """Return the `Network` of a model: with branches if all layers are known, otherwise its first chain only."""
    network = graph.joined(name)
    return _part(graph, name, 1, False) if network is None or network.is_chain else network


def _part(graph: _Graph, name: str, part_number: int, dense: bool) -> Network:
    """Return a `Network`: chain number ``part_number`` (from 1) of a model's convolutions and pools as a network."""
    linear_parts = _parts_with_layers(graph)
    if not 1 <= part_number <= len(linear_parts):
        raise ModelError(
            f"{name}: the model has {len(linear_parts)} linear parts; the part must be 1 to that, not {part_number}"
        )
    part = linear_parts[part_number - 1]
    left_out = [f"{', '.join(part.ignored)}: planned as if free"] if part.ignored else []
    left_out += [part.end] if part.end else []
    others = [other for index, other in enumerate(linear_parts, start=1) if index != part_number]
    if others:
        layers = sum(len(other.layers) for other in others)
        left_out.append(f"{len(others)} other linear parts with {layers} convolutions and pools")
    whole = Network(name=name, layers=part.layers, left_out=tuple(left_out))
    return whole if dense else whole.before_dense()


@dataclass(frozen=True)
class _Part:
    """Chain of convolutions and pools in an ONNX graph, with operators left out, and the reason why it ends."""

    layers: tuple[Op, ...]
    ignored: tuple[str, ...]
    end: str


def _graph(model: onnx.ModelProto, where: str, dense: bool) -> _Graph:
    """Check an ONNX model, and return its `_Graph`, which finds the layers."""
    check(model, where)
    return _Graph(GraphIndex(model), where, dense)


def _parts_with_layers(graph: _Graph) -> list[_Part]:
    """Return a list of the chains of convolutions and pools of a graph, without chains that have no layers."""
    chains = graph.linear_parts()
    with_layers = [part for part in chains if part.layers]
    if not with_layers:
        why = "".join(f"; {part.end}" for part in chains[:1])
        raise ModelError(f"{graph.where}: no convolution or pool to plan{why}")
    return with_layers


class _Graph:
    """ONNX model's graph, searched for layers (convolutions, pools), as chains or with branches."""

    def __init__(self, index: GraphIndex, where: str, dense: bool) -> None:
        self.index, self.where, self._dense = index, where, dense
        self.variable = index.with_dependents(index.inputs)
        """Set of names of the tensors that depend on an input of the model."""
        self._pools = 0

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return a tensor's shape (a tuple) with the batch, 0 for unknown sizes; empty if the rank is unknown."""
        return self.index.shapes.of(tensor).shape or ()

    def linear_parts(self) -> list[_Part]:
        """Return a list of every chain of convolutions and pools, in the graph's order.

        The ``end`` of a chain without layers gives the reason.
        """
        done: set[str] = set()
        chains = []
        for node in self.index.nodes:
            if not self._has_window(node) or node.output[0] in done:
                continue
            chains.append(self._chain_from(node, done))
        return chains

    def joined(self, name: str) -> Network | None:
        """Return a `Network`: the layers between the model's input and its only last map as a network with branches.

        The result is ``None`` if there are several last maps, or no layer. All nodes after an operator that is not a
        known layer, such as a fully connected layer, are left out.
        """
        graph = _BranchedNetwork(self)
        for node in self.index.nodes:
            graph.add(node)
        return graph.network(name)

    def _has_window(self, node: onnx.NodeProto) -> bool:
        """Return whether an ONNX node becomes a layer with a sliding window: a convolution or pool."""
        return node.op_type in _WINDOWED and bool(node.input) and node.input[0] in self.variable

    def _chain_from(self, node: onnx.NodeProto, done: set[str]) -> _Part:
        """Return a `_Part`: the chain of convolutions and pools that begins with ``node``."""
        layers: list[Op] = []
        ignored: list[str] = []
        shape = self.shape(node.input[0])
        current: onnx.NodeProto = node
        while True:
            if self._has_window(current):
                done.add(current.output[0])
                layer = self._layer(current, shape)
                if isinstance(layer, str):
                    return _Part(tuple(layers), tuple(ignored), f"{_described(current)}: {layer}")
                layers.append(layer)
                shape = (1, layer.outputs, layer.output_height, layer.output_width)
            elif self._is_fully_connected(current, shape):
                done.add(current.output[0])
                layers.append(layer := self._fully_connected_layer(current, shape))
                shape = (1, layer.outputs, 1, 1)
            elif self._flattens(current, shape):
                pass
            elif current.op_type not in _FREE:
                ignored.append(_described(current))
            consumers = self.index.readers(current.output[0])
            if not consumers:
                return _Part(tuple(layers), tuple(ignored), "")
            if len(consumers) > 1:
                end = f"a fork after {_described(current)} into " + ", ".join(map(_described, consumers))
                return _Part(tuple(layers), tuple(ignored), end)
            current = consumers[0]
            operands = [name for name in current.input if name in self.variable]
            if len(operands) > 1:
                return _Part(tuple(layers), tuple(ignored), f"{_described(current)}: joins {len(operands)} branches")
            dense = self._is_fully_connected(current, shape) or self._flattens(current, shape)
            if not self._has_window(current) and not dense and current.op_type not in _POINTWISE:
                return _Part(tuple(layers), tuple(ignored), f"{_described(current)} and what follows")

    def _flattens(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> bool:
        """Return whether an ONNX node flattens a map of ``shape`` into one row, before a fully connected layer."""
        after = self.shape(node.output[0])
        one_row = len(after) == 2 and after[1] == prod(shape[1:])
        return self._dense and node.op_type in _FLATTENING and one_row

    def _is_fully_connected(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> bool:
        """Return whether an ONNX node is a fully connected layer that follows a map of ``shape``."""
        return self._dense and node.op_type in PRODUCTS and self._matrix_sizes(node)[:1] == (prod(shape[1:]),)

    def _matrix_sizes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """Return a pair of a matrix product's numbers of inputs and outputs; an empty tuple if no constant matrix.

        The result is empty as well if the other operand is a constant, or the size of the matrix is not known.
        """
        position = PRODUCTS[node.op_type]
        if node.domain not in DOMAINS or len(node.input) <= position:
            return ()
        if node.input[0] not in self.variable or node.input[position] in self.variable:
            return ()
        weights = self.shape(node.input[position])
        if len(weights) != 2 or 0 in weights:
            return ()
        return weights[::-1] if attribute(node, "transB", 0) else weights

    def _fully_connected_layer(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> Op:
        """Return an `Op` without weights for a fully connected ONNX node: a convolution over the whole map."""
        return Conv.shaped(
            name=_name(node, node.input[PRODUCTS[node.op_type]]),
            channels=shape[1],
            outputs=self._matrix_sizes(node)[1],
            height=shape[2],
            width=shape[3],
            window=Window(kernel=(shape[2], shape[3])),
        )

    def _layer(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> Op | str:
        """Return a convolution or pool node as a layer without weights, or a text that says why it can't be planned."""
        if len(shape) != 4 or min(shape[1:]) < 1:
            return f"its input's shape {shape} is not (batch, channels, height, width) with fixed sizes"
        _, channels, height, width = shape
        if node.op_type in POOLS:
            self._pools += 1
            name, outputs, groups = f"pool{self._pools}", channels, 1
            whole = (height, width) if "Global" in node.op_type else ()
            kernel = tuple(attribute(node, "kernel_shape", whole))
        else:
            position = CONVOLUTIONS[node.op_type]
            weights = self.shape(node.input[position])
            kernel = tuple(attribute(node, "kernel_shape", weights[2:]))
            outputs = weights[0] if len(weights) == 4 else (*self.shape(node.output[0]), 0, 0)[1]
            groups = attribute(node, "group", 1)
            name = node.input[position]
        name = _name(node, name)
        if len(kernel) != 2 or outputs < 1:
            return "its kernel or its outputs are not known from the model"
        numbers = (*kernel, *attribute(node, "strides", ()), *attribute(node, "dilations", ()), groups)
        if min(numbers) < 1 or min(attribute(node, "pads", (0,))) < 0:
            return "kernel, strides, dilations and groups must be positive, and padding 0 or more"
        try:
            window = window_of(node, kernel, (height, width))
        except ConfigError as error:
            raise ModelError(f"{self.where}: {error}") from None
        try:
            return _WINDOWED[node.op_type].shaped(
                name=name,
                channels=channels,
                outputs=outputs,
                height=height,
                width=width,
                window=window,
                groups=groups,
            )
        except ConfigError as error:  # the operator class can't have these sizes
            return str(error).removeprefix(f"{name}: ")


class _BranchedNetwork:
    """Network with branches that is built up layer by layer from ONNX nodes."""

    def __init__(self, graph: _Graph) -> None:
        self._graph = graph
        self._edges: dict[str, str] = dict.fromkeys(graph.index.inputs[:1], INPUT)
        self._layers: list[Op] = []
        self._taken: list[tuple[str, ...]] = []
        self._ignored: list[str] = []
        self._left_out: list[str] = []

    def add(self, node: onnx.NodeProto) -> None:
        """Add the layer of an ONNX node, or note that the node is left out."""
        operands = [name for name in node.input if name in self._graph.variable]
        if not operands or any(name not in self._edges for name in operands):
            return  # a constant, or a node after an operator that is left out
        if node.op_type in Mul.operators:  # a map of one pixel, broadcast to the other, must be second
            operands.sort(key=lambda name: prod(self._graph.shape(name)[2:]), reverse=True)
        if len(operands) == 1 and node.op_type in _POINTWISE and not self._graph._has_window(node):
            self._edges[node.output[0]] = self._edges[operands[0]]
            if node.op_type not in _FREE:
                self._ignored.append(_described(node))
            return
        layer = self._layer(node, operands)
        if isinstance(layer, str):
            self._left_out.append(layer)
            return
        self._layers.append(layer)
        self._taken.append(tuple(self._edges[name] for name in operands))
        self._edges[node.output[0]] = layer.name

    def _layer(self, node: onnx.NodeProto, operands: list[str]) -> Op | str:
        """Return an ONNX node as a layer, or a text that says why it and all nodes after it are left out."""
        graph, shape = self._graph, self._graph.shape(operands[0])
        if graph._has_window(node):
            layer = graph._layer(node, shape)
            return f"{_described(node)}: {layer}" if isinstance(layer, str) else layer
        if node.op_type in PRODUCTS:
            return f"{_name(node, node.output[0])} and what follows: fully connected"
        maps = [_map(graph.shape(name)) for name in operands]
        known = [map_ for map_ in maps if map_ is not None]
        if len(known) == len(maps) and (made := _join_layer(node, known, graph.shape(node.output[0]))) is not None:
            return made
        return f"{_described(node)} and what follows"

    def network(self, name: str) -> Network | None:
        """Return the finished `Network`; ``None`` if it has several last maps or inputs, or equal layer names."""
        read = {edge for edges in self._taken for edge in edges}
        ends = [layer.name for layer in self._layers if layer.name not in read]
        unique = len({layer.name for layer in self._layers}) == len(self._layers)
        if len(ends) != 1 or len(self._graph.index.inputs) != 1 or not unique:
            return None
        left_out = [f"{', '.join(self._ignored)}: planned as if free"] if self._ignored else []
        layers, edges = tuple(self._layers), tuple(self._taken)
        try:
            return Network(name=name, layers=layers, edges=edges, left_out=(*left_out, *self._left_out))
        except ConfigError:  # shapes that don't agree
            return None


def _map(shape: tuple[int, ...]) -> FeatureMap | None:
    """Return a uint8 `FeatureMap` of the shape ``(batch, channels, height, width)``; ``None`` for other shapes."""
    if len(shape) != 4 or min(shape[1:]) < 1:
        return None
    return FeatureMap(channels=shape[1], height=shape[2], width=shape[3], type=UINT8)


def _join_layer(node: onnx.NodeProto, maps: list[FeatureMap], result: tuple[int, ...]) -> Op | None:
    """Return the `Op` of an ONNX node without a window, such as a sum; ``None`` if none gives the shape ``result``."""
    name = _name(node, node.output[0])
    after = _map(result)
    if after is None:
        return None
    try:
        if node.op_type in Upsample.operators and attribute(node, "mode", b"nearest") == b"nearest" and len(maps) == 1:
            factors = after.height // maps[0].height, after.width // maps[0].width
            return Upsample(name=name, input=maps[0], output=after, window=Window(kernel=(1, 1)), factors=factors)
        layer_class = next((layer_class for layer_class in JOINS if node.op_type in layer_class.operators), None)
        if layer_class is None or (layer_class is Concat and attribute(node, "axis", 1) not in (1, -3)):
            return None
        layer = layer_class.of_maps(name, maps)
    except ConfigError:
        return None
    return layer if layer.output == after else None


def _name(node: onnx.NodeProto, otherwise: str) -> str:
    """Return an ONNX node's own name if it has a real one, else ``otherwise`` without its prefix and suffix."""
    if re.fullmatch(r"(n\d+)?", node.name) is None:
        return node.name.lstrip("/")
    return re.sub(r"^gpu_0/|_w_0$", "", otherwise)


def _described(node: onnx.NodeProto) -> str:
    """Return an ONNX node's operator and name as text, such as ``Conv conv1``."""
    name = node.name or next(filter(None, node.output), "")
    return f"{node.op_type} {name}".strip()
