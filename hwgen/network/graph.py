"""A network as hwgen sees it: a graph of integer layers between integer feature maps, and where it may be cut.

Everything quantised is resolved to integers here: weights have their zero point subtracted, scales have
become significand and shift, fused activations have become bounds. Layers hold no float but the scales of average
pools, which ONNX Runtime computes in float32.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from typing import Any

from hwgen.errors import ConfigError, InputError, ModelError
from hwgen.network.ends import Host
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Copy, Op

INPUT = ""
"""The edge that enters a network with one input; every other edge has the name of the layer that it leaves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Layers in topological order: each takes what layers before it give, or the network's input.

    Parameters
    ----------
    name : str
    layers : tuple of Op
    edges : tuple of tuple of str, optional
        For each layer the names of the edges that enter it, in the order of its inputs: those of the layers that they
        leave, or of ``inputs``. If not given, the network is a chain, in which each layer takes the output of the one
        before.
    inputs : tuple of str, optional
        The edges that enter the network, in the inputs' order; where there are several, none is called as a layer.
    outputs : tuple of str, optional
        The layers that give the network's outputs, in the outputs' order; others may read them, too, and one may stand
        there twice. The last layer alone if not given.
    left_out : tuple of str
        What of the model is not in it, and why, for people to read.
    warnings : tuple of str
        What can hardly be meant, for people to read.
    host : Host, optional
        What of the model runs on the host; ``None`` where nothing is known of a model around the layers.

    Raises
    ------
    ConfigError
        If there is no layer, names are not unique, an edge comes from no layer before or is of another map than its
        reader takes, an output is given by no layer, or nothing reads an input or what a layer gives.
    """

    name: str
    layers: tuple[Op, ...]
    edges: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = (INPUT,)
    outputs: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
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
        unread = [name for name in names if not self.readers[name] and not self.places(name)]
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
        """The map of the only input.

        Raises
        ------
        ConfigError
            If there are several.
        """
        if len(self.inputs) > 1:
            names = ", ".join(self.inputs)
            raise ConfigError(f"{self.name}: has {len(self.inputs)} inputs ({names}), where one is needed")
        return self.input_maps[0]

    @cached_property
    def input_maps(self) -> tuple[FeatureMap, ...]:
        """The map of each input."""
        found: dict[str, FeatureMap] = {}
        for layer, edges in zip(self.layers, self.edges, strict=True):
            for edge, taken in zip(edges, layer.inputs, strict=False):
                found.setdefault(edge, taken)
        return tuple(found[edge] for edge in self.inputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input is called: as in the model, otherwise as its edge."""
        if self.host is not None:
            return tuple(end.name for end in self.host.taken)
        return tuple(edge or "input" for edge in self.inputs)

    @property
    def output(self) -> FeatureMap:
        """The map of the only output.

        Raises
        ------
        ConfigError
            If there are several.
        """
        if len(self.output_layers) > 1:
            names = ", ".join(self.output_names)
            raise ConfigError(f"{self.name}: has {len(self.output_layers)} outputs ({names}), where one is needed")
        return self.output_maps[0]

    @property
    def output_layers(self) -> tuple[str, ...]:
        """The layer that gives each output."""
        return self.outputs or (self.layers[-1].name,)

    @cached_property
    def output_maps(self) -> tuple[FeatureMap, ...]:
        """The map of each output."""
        maps = {layer.name: layer.output for layer in self.layers}
        return tuple(maps[name] for name in self.output_layers)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """What each output is called: as in the model, otherwise as its layer; all different."""
        if self.host is not None:
            return tuple(end.name for end in self.host.outputs)
        found: list[str] = []
        for name in self.output_layers:
            numbered = (f"{name}_{number}" for number in count(2))
            found.append(next(new for new in chain([name], numbered) if new not in found))
        return tuple(found)

    def places(self, name: str) -> tuple[int, ...]:
        """Which of the outputs a layer gives."""
        return tuple(place for place, layer in enumerate(self.output_layers) if layer == name)

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """The names of the layers that each edge enters; a layer that takes it twice stands there twice."""
        found: dict[str, tuple[str, ...]] = dict.fromkeys((*self.inputs, *(layer.name for layer in self.layers)), ())
        for layer, edges in zip(self.layers, self.edges, strict=True):
            for edge in edges:
                found[edge] = (*found[edge], layer.name)
        return found

    def with_inputs_read_once(self) -> Network:
        """The same network, with a copy of each input that several layers read, or one twice, for all of these.

        A stream that comes in has one reader; a layer's output may have many.
        """
        network = self
        for edge in self.inputs:
            if len(self.readers[edge]) > 1:
                copy = network._copy_of(edge)
                edges = tuple(tuple(copy.name if each == edge else each for each in taken) for taken in network.edges)
                network = replace(network, layers=(copy, *network.layers), edges=((edge,), *edges))
        return network

    def copy_at(self, place: int) -> Copy | None:
        """The copy of the map that enters the layers from ``place`` on, if several of them read it, or one twice.

        It is no layer of this network, but the first of every `part` that begins there: as the input of a group, a map
        comes in once. Its name is that of no layer.
        """
        edge = self.crossing(place)[0]
        return None if len(self.readers[edge]) == 1 else self._copy_of(edge)

    def _copy_of(self, edge: str) -> Copy:
        """A copy of the map of an edge, under a name that no layer has."""
        names, wanted = {layer.name for layer in self.layers}, f"{edge}_copy" if edge else "input"
        name = next(
            name for name in (wanted, *(f"{wanted}_{n}" for n in range(1, len(names) + 2))) if name not in names
        )
        maps = dict(zip(self.inputs, self.input_maps, strict=True)) | {each.name: each.output for each in self.layers}
        return Copy(name=name, input=maps[edge], output=maps[edge], window=Window(kernel=(1, 1)))

    def crossing(self, place: int) -> tuple[str, ...]:
        """The maps that the first ``place`` layers hand on to the others, by their edges; at 0 the input."""
        names = (*self.inputs, *(layer.name for layer in self.layers[:place]))
        return tuple(name for name in names if self._ends[name] >= place)

    @cached_property
    def _ends(self) -> dict[str, int]:
        """For each edge the last layer that it enters, by its number; what leaves the network is read behind all."""
        ends = {edge: number for number, edges in enumerate(self.edges) for edge in edges}
        return ends | dict.fromkeys(self.output_layers, len(self.layers))

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Where the network may be cut in two: numbers of layers that come before a cut, rising; all, in a chain.

        The layers before a cut hand a single map on to those behind it, so that either side has one input and one
        output map. It is the map of the layer right before the cut, of which all others before are ancestors (what a
        layer gives is read). Hence the cuts don't depend on the order of the layers, but for names: each set of layers
        that holds its ancestors and hands on one map comes first in every topological order. There is no cut behind a
        copy of the input, which computes nothing, and none in a network with several inputs or outputs.
        """
        first, *others = self.inputs
        if len(self.output_layers) > 1 or others:
            return ()
        cuts, last = [], self._ends[first]  # the last reader of all but the latest map
        for place, layer in enumerate(self.layers[:-1], start=1):
            if last < place and (place > 1 or not layer.copies):
                cuts.append(place)
            last = max(last, self._ends[layer.name])
        return tuple(cuts)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Where groups may begin and end: the cuts, and both ends of the network."""
        return (0, *self.cuts, len(self.layers))

    @property
    def is_chain(self) -> bool:
        """Whether each layer takes just the output of the one before, and the last one's output alone leaves."""
        if self.output_layers != (self.layers[-1].name,):
            return False
        return self.edges == tuple((name,) for name in (self.inputs[0], *(layer.name for layer in self.layers[:-1])))

    def is_convex(self, names: Collection[str]) -> bool:
        """Whether no path leaves these layers and comes back: only then can they be computed together."""
        inside = set(names)
        behind: set[str] = set()
        for layer, edges in zip(self.layers, self.edges, strict=True):
            if layer.name in inside:
                if behind.intersection(edges):
                    return False
            elif any(edge in inside or edge in behind for edge in edges):
                behind.add(layer.name)
        return True

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def weight_count(self) -> int:
        return sum(layer.weight_count for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """All weights once, in whole bytes each."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def map_bytes(self) -> int:
        """Of a frame: the inputs and the outputs, once each."""
        return sum(end.values * end.type.dtype.itemsize for end in (*self.input_maps, *self.output_maps))

    @property
    def geometry(self) -> tuple[Any, ...]:
        """The layers without names, weights and integers: equal for two networks of the same shape."""
        return tuple(layer.geometry for layer in self.layers)

    def part(self, begin: int, end: int) -> Network:
        """The layers ``begin`` to ``end`` alone, between two cuts; the network itself if that is all.

        A map that several of them take comes in once: behind a cut a copy of it is their first layer (`copy_at`).

        Raises
        ------
        ConfigError
            If the network can't be cut there; names the maps that cross.
        """
        if (begin, end) == (0, len(self.layers)):
            return self
        for place in (begin, end):
            if place not in self.boundaries:
                raise ConfigError(self.uncut_text(place))
        layers = self.layers[begin:end]
        source = self.crossing(begin)[0]
        edges = tuple(tuple(INPUT if edge == source else edge for edge in edges) for edges in self.edges[begin:end])
        name = f"{self.name}-{layers[0].name}-{layers[-1].name}"
        copy = self.copy_at(begin)
        if copy is not None:
            layers = (copy, *layers)
            edges = ((INPUT,), *(tuple(edge or copy.name for edge in edges) for edges in edges))
        return Network(name=name, layers=layers, edges=edges)

    def uncut_text(self, place: int) -> str:
        """Why the network can't be cut behind its first ``place`` layers, and where it can, for people."""
        crossing, layers = self.crossing(place), self.layers
        maps = f"the maps of {', '.join(edge or 'the input' for edge in crossing)}"
        ends = [layers[max(cuts) - 1].name for cuts in [[cut for cut in self.cuts if cut < place]] if cuts]
        ends += [layers[cut - 1].name for cut in self.boundaries[1:] if cut > place][:1]
        return (
            f"{self.name} can't be cut between {layers[place - 1].name} and {layers[place].name}: {maps} would cross, "
            f"where one may; cut behind {' or '.join(ends)}"
        )

    def first(self, count: int) -> Network:
        """The first ``count`` layers, under the same name.

        Raises
        ------
        InputError
            If there are not so many, ``count`` is not positive, or more than one map leaves them.
        """
        if not 1 <= count <= len(self.layers):
            raise InputError(f"{self.name} has {len(self.layers)} layers; the first must be 1 to that, not {count}")
        if count not in self.boundaries:
            raise InputError(self.uncut_text(count))
        part = self.part(0, count)
        return part if part is self else replace(part, name=self.name)

    def before_dense(self) -> Network:
        """The layers of a chain before the first fully connected one; what is left out is named.

        Raises
        ------
        ModelError
            If that is the very first.
        """
        dense = next((number for number, layer in enumerate(self.layers) if layer.dense), len(self.layers))
        if dense == 0:
            raise ModelError(f"{self.name}: no convolution or pool to plan: the first layer is fully connected")
        if dense == len(self.layers):
            return self
        why = f"{self.layers[dense].name} and what follows: fully connected"
        kept = {"layers": self.layers[:dense], "edges": self.edges[:dense], "outputs": ()}
        return replace(self, **kept, left_out=(why, *self.left_out))
