"""Allocation of feature maps in the engine's memory, where copies and concatenated maps share addresses.

Before it, the network is simplified: layers that combine functions of one map become lookups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from hwgen.gateware.engine.config import LANES
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap, Window
from hwgen.network.ops import Lookup, Op
from hwgen.network.ops.join import MAX_BITS
from hwgen.program.layout import WORD, blocks, value_bytes
from hwgen.program.passes import can_fuse, concatenated_in, scratch_maps


@lru_cache(maxsize=16)
def simplified(network: Network) -> Network:
    """Return an equivalent `Network` where each elementwise function of a single map is one `Lookup` layer.

    For example, the product of a map and its sigmoid, each quantised, is such a function, and so are a sum of a map
    with itself, and a lookup of another lookup's output. Functions that differ by channel stay several layers. A lookup
    that no layer reads any more is left out. Other layers keep their names.
    """
    functions = _Functions(network)
    layers, edges = [], []
    for layer, taken in zip(network.layers, network.edges, strict=True):
        layer, taken = functions.simplify(layer, taken)
        layers.append(layer)
        edges.append(taken)
    read = set(network.output_layers)
    kept = []
    for layer, taken in reversed([*zip(layers, edges, strict=True)]):
        if layer.name in read:
            kept.append((layer, taken))
            read.update(taken)
    layers, edges = (tuple(column) for column in zip(*reversed(kept), strict=True))
    return replace(network, layers=layers, edges=edges, outputs=network.output_layers)


class _Functions:
    """Finder of the maps that are elementwise functions of one other map, with the functions as tables."""

    def __init__(self, network: Network) -> None:
        self._maps: dict[str, FeatureMap] = network.maps
        self._tables: dict[str, tuple[str, np.ndarray]] = {}

    def simplify(self, layer: Op, edges: tuple[str, ...]) -> tuple[Op, tuple[str, ...]]:
        """Return a pair: a layer, or a lookup if its output depends on one map's values, and its inputs' names."""
        if layer.valuewise and all(edge in self._tables or self._is_narrow(self._maps[edge]) for edge in edges):
            sources = [self._source(edge) for edge in edges]
            roots = {root for root, _ in sources}
            if len(roots) == 1:
                (root,) = roots
                table = self._table(layer, [table for _, table in sources])
                self._tables[layer.name] = root, table
                if len(table) == 1 and edges != (root,) and self._is_narrow(layer.output):
                    return self._lookup(layer, root, table), (root,)
        return layer, edges

    @staticmethod
    def _is_narrow(feature_map: FeatureMap) -> bool:
        """Return whether a map's integer type has few enough bits for a lookup table with an entry for each value."""
        return feature_map.type.bits <= MAX_BITS

    def _source(self, edge: str) -> tuple[str, np.ndarray]:
        """Return a pair: name of the map that determines a map, and the function as a table ``(1 or C, 2**bits)``."""
        if edge in self._tables:
            return self._tables[edge]
        kind = self._maps[edge].type
        return edge, np.arange(kind.minimum, kind.maximum + 1)[None]

    @staticmethod
    def _table(layer: Op, tables: list[np.ndarray]) -> np.ndarray:
        """Return a layer's outputs as a table of the one map that determines its inputs, int64 ``(n, 2**bits)``.

        ``n`` is 1 if all channels have the same function, otherwise the number of channels.
        """
        channels = layer.output.channels if layer.by_channel else 1
        channels = max(channels, *(len(table) for table in tables))
        frames = [
            np.broadcast_to(table[:, None], (channels, 1, table.shape[1])).astype(source.type.dtype)
            for table, source in zip(tables, layer.inputs, strict=True)
        ]
        return layer.compute(*frames)[:, 0].astype(np.int64)

    def _lookup(self, layer: Op, root: str, table: np.ndarray) -> Lookup:
        """Return the `Lookup` layer with the given table that replaces a layer, reading the map ``root`` directly."""
        source = self._maps[root]
        return Lookup(name=layer.name, input=source, output=layer.output, window=Window(kernel=(1, 1)), table=table)


#: Alignment of every memory region, in bytes. A burst must not cross a multiple of this address.
ALIGNMENT = 4096


@dataclass(frozen=True, kw_only=True)
class MapLocation:
    """Place of a feature map in memory: byte address, sizes (8-channel blocks, rows, columns), and strides.

    Rows are ``row_bytes`` apart, and blocks ``block_bytes``. A map with ``kept_rows`` is in the engine's map memory,
    not in off-chip memory: the whole map, or a ring of so many rows, where row ``y`` is at row ``y % kept_rows``.
    """

    address: int
    blocks: int
    height: int
    width: int
    row_bytes: int
    block_bytes: int
    kept_rows: int = 0

    @classmethod
    def dense(cls, address: int, blocks: int, height: int, width: int, *, kept_rows: int = 0) -> MapLocation:
        """Return the `MapLocation` of a map that is stored without gaps, starting at byte ``address``."""
        row = width * WORD
        return cls(
            address=address,
            blocks=blocks,
            height=height,
            width=width,
            row_bytes=row,
            block_bytes=(kept_rows or height) * row,
            kept_rows=kept_rows,
        )

    @property
    def size(self) -> int:
        """Number of bytes of the map's values, without gaps between rows or blocks."""
        return self.blocks * self.height * self.width * WORD

    @property
    def kept(self) -> bool:
        """Whether the map, or a ring of its rows, is in the engine's map memory."""
        return self.kept_rows > 0

    @property
    def is_ring(self) -> bool:
        """Whether the map memory holds only some rows of the map, so that new rows overwrite older ones."""
        return 0 < self.kept_rows < self.height

    def spans(self, rows: tuple[int, int]) -> list[tuple[int, int]]:
        """Return a list of one or two (begin, end): the interval ``rows``, cut where the ring buffer wraps."""
        border = (rows[0] // self.kept_rows + 1) * self.kept_rows if self.is_ring else rows[1]
        return [rows] if rows[1] <= border else [(rows[0], border), (border, rows[1])]

    @property
    def joins_rows(self) -> bool:
        """Whether consecutive rows of the map are adjacent in memory."""
        return self.row_bytes == self.width * WORD

    def at(self, block: int, row: int, column: int) -> int:
        """Return the byte address of the 8-channel word at a block, row and column of the map."""
        row = row % self.kept_rows if self.kept_rows else row
        return self.address + block * self.block_bytes + row * self.row_bytes + column * WORD

    def part(self, first: int, count: int) -> MapLocation:
        """Return the `MapLocation` of ``count`` 8-channel blocks of the map, starting at block ``first``."""
        return replace(self, address=self.at(first, 0, 0), blocks=count)


class KeptAt(NamedTuple):
    """Place of a map in the map memory: byte address, and number of rows, fewer than the map's if they are a ring."""

    address: int
    rows: int


@dataclass(frozen=True)
class FusedLayer:
    """Layer together with the later layers, such as an addition, that the engine fuses onto its output.

    Parameters
    ----------
    ops : tuple of Op
        Layers, in the order of their computation.
    takes : tuple of tuple of str
        Input edges of each layer.
    inside : tuple of bool
        Whether each input of the first layer is already stored in the first layer's output.
    """

    ops: tuple[Op, ...]
    takes: tuple[tuple[str, ...], ...]
    inside: tuple[bool, ...]

    @property
    def edges(self) -> tuple[str, ...]:
        """Tuple of names of the feature maps that the fused layers read from memory."""
        made = {op.name for op in self.ops}
        return tuple(edge for edges in self.takes for edge in edges if edge not in made)

    @property
    def name(self) -> str:
        """Name of the last fused layer, whose output is written to memory."""
        return self.ops[-1].name

    @property
    def output(self) -> FeatureMap:
        """Feature map (`FeatureMap`) that the last fused layer writes to memory."""
        return self.ops[-1].output

    @property
    def scratch(self) -> tuple[str, ...]:
        """Tuple of names of the scratch maps (intermediate maps in memory) of the first fused layer's passes."""
        return tuple(scratch_maps(self.ops[0]))


def fused_layers(network: Network) -> tuple[FusedLayer, ...]:
    """Return, as a tuple, a network's layers in order, each as a `FusedLayer` with those fused onto its output.

    A `Copy` is not among them.
    """
    network = simplified(network)
    target_of, steps_by_name = _find_joined_maps(network), dict[str, FusedLayer]()
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if layer.copies:
            continue
        single_use = {
            edge for edge in edges if network.readers[edge] == (layer.name,) and not network.output_indices(edge)
        }
        extendable = [step for name, step in steps_by_name.items() if name in single_use and can_fuse(step.ops, layer)]
        if extendable:  # an addition joins the step of its operand that is computed last
            del steps_by_name[extendable[-1].name]
            steps_by_name[layer.name] = _fuse_layer(extendable[-1], layer, edges)
        else:
            steps_by_name[layer.name] = FusedLayer((layer,), (edges,), _stored_inside(layer, edges, target_of))
    return tuple(steps_by_name.values())


def _stored_inside(layer: Op, edges: Sequence[str], target_of: Mapping[str, tuple[str, int]]) -> tuple[bool, ...]:
    """Return a tuple of booleans, one per input of a concatenation: whether the output map already contains it."""
    if not layer.concatenates:
        return (False,) * len(edges)
    place, channels = concatenated_in(layer)
    return tuple(
        target_of.get(edge) == (place, channel // LANES) for edge, channel in zip(edges, channels, strict=True)
    )


def _fuse_layer(step: FusedLayer, layer: Op, edges: tuple[str, ...]) -> FusedLayer:
    """Return a `FusedLayer` with one more layer fused onto its output; ``edges`` names the inputs of ``layer``."""
    return replace(step, ops=(*step.ops, layer), takes=(*step.takes, edges))


def roots(network: Network) -> dict[str, tuple[str, int]]:
    """Return a dict by map name of pairs: stored map that holds it (itself or a concatenation), its first block there.

    The stored map is the map itself, a concatenation, or the scratch map of one. Scratch maps are among the maps.
    """
    network = simplified(network)
    target_of, copy_sources = _find_joined_maps(network), {}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if layer.copies:
            copy_sources[layer.name] = edges[0]

    def root(edge: str) -> tuple[str, int]:
        if edge in copy_sources:
            return root(copy_sources[edge])
        if edge not in target_of:
            return edge, 0
        outer, first_block = root(target_of[edge][0])
        return outer, first_block + target_of[edge][1]

    scratch = (edge for layer in network.layers for edge in scratch_maps(layer))
    return {edge: root(edge) for edge in (*network.maps, *scratch)}


def _find_joined_maps(network: Network) -> dict[str, tuple[str, int]]:
    """Return a dict by name of a map inside a concatenation's map: a pair of that map and the first block of 8 there.

    Such a map enters a single concatenation, unchanged, and begins at a whole block.
    """
    unmoved = {*network.inputs, *(layer.name for layer in network.layers if layer.copies)}
    target_of: dict[str, tuple[str, int]] = {}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if not layer.concatenates:
            continue
        place, channels = concatenated_in(layer)
        for index, (edge, channel) in enumerate(zip(edges, channels, strict=True)):
            is_first = edge not in target_of and edge not in unmoved
            if is_first and channel % LANES == 0 and layer.holds_unchanged(index):
                target_of[edge] = place, channel // LANES
    return target_of


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Number of frames per engine program, and names of the layers computed for all frames at once.

    All other steps are computed before, frame by frame. ``together`` has the names of the steps. With ``by_layer``,
    each layer is computed for all frames before the next layer, so that every frame has maps of its own.
    """

    frames: int = 1
    by_layer: bool = False
    together: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()
    """Set of names of all layers that are computed for all frames at once, fused layers included."""


@dataclass(frozen=True, kw_only=True)
class MapLocations:
    """Memory locations of all feature maps of an engine program, for every frame.

    Parameters
    ----------
    of_frame : tuple of mapping
        Locations of each frame's maps, by edge.
    of_all : mapping
        Locations of the maps whose rows interleave all frames, by edge, for the steps that compute all frames at once.
    end : int
        First byte address after all maps.
    """

    of_frame: tuple[Mapping[str, MapLocation], ...]
    of_all: Mapping[str, MapLocation]
    end: int


def host_map_names(network: Network, root_of: Mapping[str, tuple[str, int]]) -> set[str]:
    """Return a set of the names of the stored feature maps that the host writes (inputs) or reads (outputs)."""
    return {*network.inputs, *(root_of[name][0] for name in network.output_layers)}


def allocate_maps(
    network: Network,
    address: int,
    order: Sequence[Sequence[FusedLayer]],
    *,
    kept: bool = False,
    batch: Batch | None = None,
    kept_maps: Mapping[str, KeptAt] | None = None,
) -> MapLocations:
    """Return memory locations (`MapLocations`) for every feature map of a network, allocated from byte ``address`` up.

    Inputs and outputs have addresses of their own. Other maps share addresses, unless ``kept`` is true: a map is
    stored in the first gap between the maps that are still to be read when its computation begins.

    The frames of each input, and of each output, are stored one after the other. A map that a step for all frames reads
    or writes interleaves rows: row ``y`` of frame ``f`` is row ``y * frames + f``. Any other map has one location,
    which all frames use one after the other.

    Parameters
    ----------
    network : Network
    address : int
        First byte address.
    order : sequence of sequence of FusedLayer
        Groups of steps that are computed at the same time, in order; steps for all frames at once are last.
    kept : bool
        Whether every map keeps its addresses until the end of the run.
    batch : Batch, optional
        Number of frames, and the steps for all frames; by default one frame.
    kept_maps : mapping of str to KeptAt, optional
        Places of the maps that are in the map memory, by the name of the stored map.
    """
    batch, root_of, kept_maps = batch or Batch(), roots(network), kept_maps or {}
    maps, uses = stored_maps(network), lifetimes(network, order, batch)
    host_maps = host_map_names(network, root_of)
    permanent = {*uses} if kept else host_maps
    homes: dict[str, _Home] = {}
    for name in sorted(uses, key=lambda name: (name not in permanent, uses[name].first)):
        alive = [
            home
            for other, home in homes.items()
            if not home.kept_rows and (other in permanent or uses[other].last >= uses[name].first)
        ]
        own = name in host_maps or batch.by_layer
        frames = batch.frames if own or uses[name].interleaved else 1
        begin, kept_rows = kept_maps.get(name, KeptAt(address, 0))
        height = maps[name].height * value_bytes(maps[name].type)
        home = _Home(begin, blocks(maps[name].channels), height, maps[name].width, frames, own, kept_rows)
        homes[name] = home if kept_rows else _first_gap(home, alive)
    end = aligned(max(home.end for home in homes.values() if not home.kept_rows))

    def parts(location_of: Callable[[_Home], MapLocation]) -> dict[str, MapLocation]:
        """Return a dict by map name of memory locations, maps inside a concatenation's map included."""
        return {
            edge: location_of(homes[root]).part(first_block, blocks(maps[edge].channels))
            for edge, (root, first_block) in root_of.items()
            if root in homes
        }

    frames = tuple(parts(partial(_Home.frame, index=index)) for index in range(batch.frames))
    return MapLocations(of_frame=frames, of_all=parts(_Home.of_all), end=end)


def stored_maps(network: Network) -> dict[str, FeatureMap]:
    """Return a dict by name of each `FeatureMap` that layers write or read in memory, scratch maps included."""
    maps = dict(network.maps)
    for layer in network.layers:
        maps |= scratch_maps(layer)
    return maps


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """Lifetime of a map in memory: indices of the layer groups that first write it and that last read it.

    Parameters
    ----------
    first, last : int
        Index of the first and of the last group.
    interleaved : bool
        Whether a step for all frames at once reads or writes the map, so that it interleaves rows.
    reads : int
        Number of times that steps read the map, or a map in it, from memory.
    """

    first: int
    last: int
    interleaved: bool
    reads: int


def lifetimes(network: Network, order: Sequence[Sequence[FusedLayer]], batch: Batch) -> dict[str, Lifetime]:
    """Return a dict by name of all stored maps' lifetimes (`Lifetime`), if layers are computed in ``order``."""
    root_of = roots(network)
    first_use = dict.fromkeys(network.inputs, 0)
    last_use = dict(first_use)
    interleaved: set[str] = set()
    reads: Counter[str] = Counter()
    for group_index, group in enumerate(order):
        for step in group:
            for edge in (step.name, *step.scratch):
                first_use.setdefault(root_of[edge][0], group_index)
            used = {root_of[edge][0] for edge in (*step.edges, *step.scratch, step.name)}
            last_use |= dict.fromkeys(used, group_index)
            reads.update(root_of[edge][0] for edge in (*step.edges, *step.scratch))
            if step.name in batch.together:
                interleaved |= used
    first_use |= dict.fromkeys(interleaved, 0)  # the first frame already writes them
    return {
        name: Lifetime(first=first, last=last_use[name], interleaved=name in interleaved, reads=reads[name])
        for name, first in first_use.items()
    }


@dataclass(frozen=True)
class _Home:
    """Memory region of a feature map: byte address and sizes, for one frame or several.

    A map with ``kept_rows`` is in the map memory, in whole or as a ring of so many rows.
    """

    address: int
    blocks: int
    height: int
    width: int
    frames: int
    one_by_one: bool
    kept_rows: int = 0

    @property
    def frame_bytes(self) -> int:
        """Number of bytes of one frame of the map."""
        return self.blocks * self.height * self.width * WORD

    @property
    def end(self) -> int:
        """Integer byte address after the region of all frames."""
        return self.address + self.frames * self.frame_bytes

    def frame(self, index: int) -> MapLocation:
        """Return the `MapLocation` of one frame's map; all frames share it if the region stores one frame."""
        if self.frames == 1 or self.one_by_one:
            after = index % self.frames * self.frame_bytes
            address = self.address + after
            return MapLocation.dense(address, self.blocks, self.height, self.width, kept_rows=self.kept_rows)
        row = self.width * WORD
        return MapLocation(
            address=self.address + index * row,
            blocks=self.blocks,
            height=self.height,
            width=self.width,
            row_bytes=self.frames * row,
            block_bytes=self.frames * self.height * row,
        )

    def of_all(self) -> MapLocation:
        """Return the memory location (`MapLocation`) of all frames as one tall map, whose rows are the frames' rows.

        Frames that are stored one by one have such a location only if each is one pixel. Otherwise the result is the
        first frame's location.
        """
        if self.frames == 1 or not self.one_by_one:
            return MapLocation.dense(
                self.address, self.blocks, self.frames * self.height, self.width, kept_rows=self.kept_rows
            )
        if (self.height, self.width) != (1, 1):
            return self.frame(0)
        return MapLocation(
            address=self.address,
            blocks=self.blocks,
            height=self.frames,
            width=1,
            row_bytes=self.frame_bytes,
            block_bytes=WORD,
        )


def aligned(address: int) -> int:
    """Return ``address`` rounded up to the 4096-byte alignment of memory regions."""
    return -(-address // ALIGNMENT) * ALIGNMENT


def _first_gap(home: _Home, alive: Sequence[_Home]) -> _Home:
    """Return a `_Home`: a memory region moved to the first aligned address where it overlaps none of ``alive``."""
    for other in sorted(alive, key=lambda other: other.address):
        if home.end <= other.address:
            break
        home = replace(home, address=max(home.address, aligned(other.end)))
    return home
