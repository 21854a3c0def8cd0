"""Network: a directed graph of integer layers, which can be cut into fusion groups (layers computed together).

All quantisation is resolved to integers: zero points are subtracted from weights, scales are significands and shifts,
and fused activations are bounds. The only floats are scales of operators that ONNX Runtime computes in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import Any

from hwgen.errors import ConfigError, InputError, ModelError
from hwgen.network.ends import Host, InputEnd, OutputEnd
from hwgen.network.floats import FloatLayer
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Copy, Op

INPUT = ""
"""Name of the graph edge from a network's only input to the layers that read it.

Every other edge has the name of its source layer.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Directed graph of integer layers in topological order, with its inputs, outputs and host operators.

    Each layer reads outputs of earlier layers, or inputs of the network.

    Parameters
    ----------
    name : str
        Name of the network.
    layers : tuple of Op
        Layers, each after all layers that it reads.
    edges : tuple of tuple of str, optional
        Edges that enter each layer, in the order of its inputs. An edge has the name of its source layer, or is one of
        ``inputs``. By default the network is a chain: each layer reads the previous layer.
    inputs : tuple of str, optional
        Edges from the network's inputs, in order. With several inputs, none has the name of a layer.
    outputs : tuple of str, optional
        Layers that give the network's outputs, in order. Other layers can read them, and a layer can give several
        outputs. By default the last layer.
    left_out : tuple of str
        Parts of the model that are not in the network, with reasons, as texts.
    warnings : tuple of str
        Suspicious properties of the model, as texts.
    in_floats : tuple of FloatLayer
        Layers that ONNX Runtime computes in float32. Its values can differ from theirs.
    host : Host, optional
        Part of the model that runs on the host; ``None`` if there is no model around the layers.

    Raises
    ------
    ConfigError
        If there is no layer, names are not unique, an edge has no earlier source or another map than its reader
        expects, an output has no layer, or an input or a layer's output is not used.
    """

    name: str
    layers: tuple[Op, ...]
    edges: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = (INPUT,)
    outputs: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    in_floats: tuple[FloatLayer, ...] = ()
    host: Host | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError(f"{self.name}: a network must have at least one layer, not 0")
        names = [layer.name for layer in self.layers]
        if len({*names, *self.inputs}) != len(names) + len(self.inputs):
            raise ConfigError(f"{self.name}: names of layers and inputs must be unique, not {[*self.inputs, *names]}")
        if not self.edges:
            object.__setattr__(self, "edges", tuple((name,) for name in (self.inputs[0], *names[:-1])))
        if len(self.edges) != len(names):
            raise ConfigError(f"{self.name}: edges must be given for each of {len(names)} layers, not {self.edges}")
        self._check_edges()
        if unknown := [name for name in self.output_layers if name not in names]:
            raise ConfigError(f"{self.name}: outputs must be given by layers, not by {unknown[0]!r}")
        unread = [name for name in names if not self.readers[name] and not self.output_indices(name)]
        if unread:
            raise ConfigError(f"{self.name}: {unread[0]} must be read by a layer, or give an output (as the last does)")
        if self.host is not None and len(self.host.taken) != len(self.inputs):
            raise ConfigError(f"{self.name}: inputs must be {len(self.host.taken)}, as the host has, not {self.inputs}")
        if self.host is not None and len(self.host.outputs) != len(self.output_layers):
            raise ConfigError(
                f"{self.name}: outputs must be {len(self.host.outputs)}, as the host has, not {self.outputs}"
            )

    def _check_edges(self) -> None:
        taken_by = {edge for edges in self.edges for edge in edges}
        if unread := [edge for edge in self.inputs if edge not in taken_by]:
            raise ConfigError(f"{self.name}: a layer must take input {unread[0] or 'input'}")
        maps = dict(zip(self.inputs, self.input_maps, strict=True))
        for layer, edges in zip(self.layers, self.edges, strict=True):
            if len(edges) != len(layer.inputs):
                raise ConfigError(f"{self.name}: {layer.name} must take {len(layer.inputs)} edges, not {len(edges)}")
            for edge, taken in zip(edges, layer.inputs, strict=True):
                if edge not in maps:
                    raise ConfigError(f"{self.name}: {layer.name} must take a layer before it, not {edge!r}")
                if maps[edge] != taken:
                    given = f"{edge}'s output" if edge not in self.inputs else f"input {edge}" if edge else "the input"
                    raise ConfigError(f"{self.name}: {layer.name} must take {given} {maps[edge]}, not {taken}")
            maps[layer.name] = layer.output

    @property
    def input(self) -> FeatureMap:
        """Feature map (`FeatureMap`: shape, integer type) of the network's only input; an error if there are several.

        Raises
        ------
        ConfigError
            If the network has several inputs.
        """
        if len(self.inputs) > 1:
            names = ", ".join(self.inputs)
            raise ConfigError(f"{self.name}: has {len(self.inputs)} inputs ({names}), where one is needed")
        return self.input_maps[0]

    @cached_property
    def input_maps(self) -> tuple[FeatureMap, ...]:
        """Tuple of the `FeatureMap` (shape, integer type) of each network input, in input order."""
        maps: dict[str, FeatureMap] = {}
        for layer, edges in zip(self.layers, self.edges, strict=True):
            for edge, taken in zip(edges, layer.inputs, strict=False):
                maps.setdefault(edge, taken)
        return tuple(maps[edge] for edge in self.inputs)

    @cached_property
    def maps(self) -> dict[str, FeatureMap]:
        """Dictionary of the `FeatureMap` on each edge of the graph (network input or layer output), by edge name."""
        maps = dict(zip(self.inputs, self.input_maps, strict=True))
        return maps | {layer.name: layer.output for layer in self.layers}

    @cached_property
    def ends(self) -> Host:
        """Host's part of the ONNX model (`Host`); for a network without a model, only its own inputs and outputs."""
        if self.host is not None:
            return self.host
        several = len(self.output_layers) > 1
        return Host(
            inputs=tuple(
                InputEnd(name=name, shape=source.shape)
                for name, source in zip(self.input_names, self.input_maps, strict=True)
            ),
            outputs=tuple(
                OutputEnd(name=name, tensor=name if several else "output", shape=result.shape)
                for name, result in zip(self.output_names, self.output_maps, strict=True)
            ),
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the network's inputs, a tuple: as in the ONNX model, or else of the graph's edges."""
        if self.host is not None:
            return tuple(end.name for end in self.host.taken)
        return tuple(edge or "input" for edge in self.inputs)

    @property
    def output(self) -> FeatureMap:
        """Feature map (`FeatureMap`: shape, integer type) of the network's only output; an error if there are several.

        Raises
        ------
        ConfigError
            If the network has several outputs.
        """
        if len(self.output_layers) > 1:
            names = ", ".join(self.output_names)
            raise ConfigError(f"{self.name}: has {len(self.output_layers)} outputs ({names}), where one is needed")
        return self.output_maps[0]

    @property
    def output_layers(self) -> tuple[str, ...]:
        """Names of the layers that compute the network's outputs, a tuple in output order."""
        return self.outputs or (self.layers[-1].name,)

    @cached_property
    def output_maps(self) -> tuple[FeatureMap, ...]:
        """Tuple of the `FeatureMap` (shape, integer type) of each network output, in output order."""
        return tuple(self.maps[name] for name in self.output_layers)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Tuple of unique names of the network's outputs: the ONNX model's names, or otherwise the layers' names."""
        if self.host is not None:
            return tuple(end.name for end in self.host.outputs)
        unique: list[str] = []
        for name in self.output_layers:
            numbered = (f"{name}_{suffix}" for suffix in count(2))
            unique.append(next(new for new in chain([name], numbered) if new not in unique))
        return tuple(unique)

    def output_indices(self, name: str) -> tuple[int, ...]:
        """Return a tuple of the indices of the network outputs that the layer ``name`` computes."""
        return tuple(index for index, layer in enumerate(self.output_layers) if layer == name)

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Dictionary from each map's name (of its layer, or of a network input) to a tuple of the names of its readers.

        A layer that reads a map twice is listed twice.
        """
        readers: dict[str, tuple[str, ...]] = dict.fromkeys((*self.inputs, *(layer.name for layer in self.layers)), ())
        for layer, edges in zip(self.layers, self.edges, strict=True):
            for edge in edges:
                readers[edge] = (*readers[edge], layer.name)
        return readers

    def with_inputs_read_once(self) -> Network:
        """Return the `Network` with a `Copy` layer after each network input that several layers read.

        An input stream has one reader; a layer's output can have several.
        """
        network = self
        for edge in self.inputs:
            if len(self.readers[edge]) > 1:
                copy = network._copy_of(edge)
                edges = tuple(tuple(copy.name if name == edge else name for name in taken) for taken in network.edges)
                network = replace(network, layers=(copy, *network.layers), edges=((edge,), *edges))
        return network

    def copy_at(self, cut: int) -> Copy | None:
        """Return a `Copy` layer for the only map that crosses a cut, if several layers read it; otherwise ``None``.

        The copy is not a layer of this network, but the first layer of every `part` that begins at the cut: the input
        of a group is a stream with one reader. No layer has its name.

        Parameters
        ----------
        cut : int
            Number of layers before the cut.
        """
        edge = self.crossing(cut)[0]
        return None if len(self.readers[edge]) == 1 else self._copy_of(edge)

    def _copy_of(self, edge: str) -> Copy:
        """Return a `Copy` layer for the map on an edge of the graph, with a name that no other layer has."""
        names, wanted = {layer.name for layer in self.layers}, f"{edge}_copy" if edge else "input"
        name = next(
            name for name in (wanted, *(f"{wanted}_{n}" for n in range(1, len(names) + 2))) if name not in names
        )
        copied = self.maps[edge]
        return Copy(name=name, input=copied, output=copied, window=Window(kernel=(1, 1)))

    def crossing(self, cut: int) -> tuple[str, ...]:
        """Return a tuple of names of the maps that cross a cut: made before layer ``cut``, and read at or after it."""
        names = (*self.inputs, *(layer.name for layer in self.layers[:cut]))
        return tuple(name for name in names if self._last_readers[name] >= cut)

    @cached_property
    def _last_readers(self) -> dict[str, int]:
        """Dictionary by map name: index of the last layer that reads the map; number of layers for an output."""
        ends = {edge: index for index, edges in enumerate(self.edges) for edge in edges}
        return ends | dict.fromkeys(self.output_layers, len(self.layers))

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Tuple of the possible cuts of the network, where a single map crosses, each as a number of layers before it.

        A single map crosses a cut, so that each side has one input map and one output map. It is the output of the
        layer right before the cut; all other layers before the cut are its ancestors, because every output is read.
        Therefore the cuts do not depend on the topological order: a set of layers that contains its ancestors and has
        one crossing map comes first in every such order. A chain can be cut after each layer. A copy of the input,
        which computes nothing, has no cut after it, nor has a network with several inputs or outputs any cut.
        """
        first, *others = self.inputs
        if len(self.output_layers) > 1 or others:
            return ()
        cuts, last = [], self._last_readers[first]  # index of the last reader of all maps but the latest one
        for cut, layer in enumerate(self.layers[:-1], start=1):
            if last < cut and (cut > 1 or not layer.copies):
                cuts.append(cut)
            last = max(last, self._last_readers[layer.name])
        return tuple(cuts)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Tuple of numbers of layers before each possible boundary of fusion groups: 0, each of ``cuts``, and all."""
        return (0, *self.cuts, len(self.layers))

    @property
    def is_chain(self) -> bool:
        """Whether the network is a chain: each layer reads only the previous one, and the last one gives the output."""
        if self.output_layers != (self.layers[-1].name,):
            return False
        return self.edges == tuple((name,) for name in (self.inputs[0], *(layer.name for layer in self.layers[:-1])))

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates of all layers per frame."""
        return sum(layer.macs for layer in self.layers)

    @property
    def weight_count(self) -> int:
        """Number of weights of all layers, without biases."""
        return sum(layer.weight_count for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """Size of the weights of all layers, in bytes; each weight takes whole bytes."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def map_bytes(self) -> int:
        """Bytes per frame of the network's input and output maps together, without the maps between its layers."""
        return sum(end.values * end.type.dtype.itemsize for end in (*self.input_maps, *self.output_maps))

    @property
    def geometry(self) -> tuple[Any, ...]:
        """Tuple (hashable key) of all layers' shapes, equal for networks that differ in names, weights and scales.

        The keys of two networks of the same shape are equal.
        """
        return tuple(layer.geometry for layer in self.layers)

    def part(self, begin: int, end: int) -> Network:
        """Return a `Network` of the layers ``begin`` to ``end - 1``; both numbers must be among `boundaries`.

        If these are all layers, this network itself. If several of the layers read the map that crosses the first cut,
        a copy of it is the first layer (`copy_at`).

        Raises
        ------
        ConfigError
            If the network can't be cut there. The message names the maps that cross.
        """
        if (begin, end) == (0, len(self.layers)):
            return self
        for cut in (begin, end):
            if cut not in self.boundaries:
                raise ConfigError(self.uncut_text(cut))
        layers = self.layers[begin:end]
        source = self.crossing(begin)[0]
        edges = tuple(tuple(INPUT if edge == source else edge for edge in edges) for edges in self.edges[begin:end])
        name = f"{self.name}-{layers[0].name}-{layers[-1].name}"
        copy = self.copy_at(begin)
        if copy is not None:
            layers = (copy, *layers)
            edges = ((INPUT,), *(tuple(edge or copy.name for edge in edges) for edges in edges))
        return Network(name=name, layers=layers, edges=edges)

    def uncut_text(self, cut: int) -> str:
        """Return an error message: why no cut is possible after the first ``cut`` layers, and where one is."""
        crossing, layers = self.crossing(cut), self.layers
        maps = f"the maps of {', '.join(edge or 'the input' for edge in crossing)}"
        before, behind = [end for end in self.cuts if end < cut], [end for end in self.boundaries[1:] if end > cut]
        ends = [layers[end - 1].name for end in (*before[-1:], *behind[:1])]
        return (
            f"{self.name} can't be cut between {layers[cut - 1].name} and {layers[cut].name}: {maps} would cross the "
            f"cut, but only one map may; cut after {' or '.join(ends)}"
        )

    def first(self, count: int) -> Network:
        """Return a `Network`: the first ``count`` layers as a network of the same name.

        Raises
        ------
        InputError
            If there are fewer layers, ``count`` is not positive, or several maps would cross the cut.
        """
        if not 1 <= count <= len(self.layers):
            raise InputError(f"{self.name} has {len(self.layers)} layers; the first must be 1 to that, not {count}")
        if count not in self.boundaries:
            raise InputError(self.uncut_text(count))
        part = self.part(0, count)
        return part if part is self else replace(part, name=self.name)

    def before_dense(self) -> Network:
        """Return a `Network`: the layers of a chain before its first fully connected layer, as a network.

        ``left_out`` names the others.

        Raises
        ------
        ModelError
            If the first layer is fully connected.
        """
        dense = next((index for index, layer in enumerate(self.layers) if layer.dense), len(self.layers))
        if dense == 0:
            raise ModelError(f"{self.name}: no convolution or pool to plan: the first layer is fully connected")
        if dense == len(self.layers):
            return self
        why = f"{self.layers[dense].name} and what follows: fully connected"
        kept = {"layers": self.layers[:dense], "edges": self.edges[:dense], "outputs": ()}
        return replace(self, **kept, left_out=(why, *self.left_out))
