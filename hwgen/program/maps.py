"""Which maps lie in memory, and where: copies and parts of concatenations lie in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwgen.gateware.engine.config import LANES
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Concat, Copy, Op
from hwgen.program.layout import WORD, blocks
from hwgen.program.passes import joined

#: Every region of memory begins at a multiple of this, where a burst must end.
ALIGNMENT = 4096


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a map lies in memory: ``blocks`` times ``height`` rows of ``width`` words, from a byte address on."""

    address: int
    blocks: int
    height: int
    width: int

    @property
    def row_bytes(self) -> int:
        return self.width * WORD

    @property
    def block_bytes(self) -> int:
        return self.height * self.row_bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return self.blocks * self.block_bytes

    def at(self, block: int, row: int, column: int) -> int:
        """A word's address."""
        return self.address + block * self.block_bytes + row * self.row_bytes + column * WORD

    def part(self, first: int, count: int) -> Place:
        """Some of its blocks."""
        return replace(self, address=self.at(first, 0, 0), blocks=count)


@dataclass(frozen=True)
class Step:
    """A layer and those behind it that are computed on its way out; the edges that each takes; and which of those that
    the first one takes lie in its output already."""

    ops: tuple[Op, ...]
    takes: tuple[tuple[str, ...], ...]
    inside: tuple[bool, ...]

    @property
    def edges(self) -> tuple[str, ...]:
        """Of the maps that it reads."""
        made = {op.name for op in self.ops}
        return tuple(edge for edges in self.takes for edge in edges if edge not in made)

    @property
    def name(self) -> str:
        """Of the edge that leaves."""
        return self.ops[-1].name

    @property
    def output(self) -> FeatureMap:
        return self.ops[-1].output


def steps(network: Network) -> tuple[Step, ...]:
    """The layers that compute, in order."""
    inside, found = _inside(network), dict[str, Step]()
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if isinstance(layer, Copy):
            continue
        alone = {edge for edge in edges if network.readers[edge] == (layer.name,) and not network.places(edge)}
        before = [step for name, step in found.items() if name in alone and joined(step.ops, layer)]
        if before:  # of two maps that are added the one that comes last
            del found[before[-1].name]
            found[layer.name] = _with(before[-1], layer, edges)
        else:
            inner = tuple(inside.get(edge, ("", 0))[0] == layer.name for edge in edges)
            found[layer.name] = Step((layer,), (edges,), inner)
    return tuple(found.values())


def _with(step: Step, layer: Op, edges: tuple[str, ...]) -> Step:
    """A step with a layer on its way out, which takes these edges."""
    return replace(step, ops=(*step.ops, layer), takes=(*step.takes, edges))


def roots(network: Network) -> dict[str, tuple[str, int]]:
    """For each edge the map in memory that it is a part of, and its first block there."""
    inside, copies = _inside(network), {}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if isinstance(layer, Copy):
            copies[layer.name] = edges[0]

    def root(edge: str) -> tuple[str, int]:
        if edge in copies:
            return root(copies[edge])
        if edge not in inside:
            return edge, 0
        outer, first = root(inside[edge][0])
        return outer, first + inside[edge][1]

    return {edge: root(edge) for edge in (INPUT, *(layer.name for layer in network.layers))}


def _inside(network: Network) -> dict[str, tuple[str, int]]:
    """Edges whose maps are computed into that of a concatenation, with their first block there.

    Such a map goes into one concatenation, as it is, on whole blocks.
    """
    copies = {layer.name for layer in network.layers if isinstance(layer, Copy)}
    found: dict[str, tuple[str, int]] = {}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        if not isinstance(layer, Concat):
            continue
        first = 0
        for edge, source, table in zip(edges, layer.inputs, layer.tables, strict=True):
            kind = source.type
            same = kind == layer.output.type and np.array_equal(table, np.arange(kind.minimum, kind.maximum + 1))
            if same and first % LANES == 0 and edge not in found and edge not in copies and edge != INPUT:
                found[edge] = layer.name, first // LANES
            first += source.channels
    return found


def places(
    network: Network, address: int, order: Sequence[Sequence[Step]], *, kept: bool = False
) -> tuple[dict[str, Place], int]:
    """A place for each map, from an address on, and where they end.

    The input and the outputs have places of their own. Others share them, unless they are to be ``kept``: a map takes
    the first gap among those that are still to be read when it begins. ``order`` has steps that are computed at the
    same time side by side.
    """
    where = roots(network)
    maps = {INPUT: network.input, **{layer.name: layer.output for layer in network.layers}}
    begins: dict[str, int] = {INPUT: 0}
    ends: dict[str, int] = {}
    for number, those in enumerate(order):
        for step in those:
            begins.setdefault(where[step.name][0], number)
            ends |= {where[edge][0]: number for edge in (*step.edges, step.name)}
    fixed = {*begins} if kept else {INPUT, *(where[name][0] for name in network.output_layers)}
    found: dict[str, Place] = {}
    for name in sorted(begins, key=lambda name: (name not in fixed, begins[name])):
        alive = [place for each, place in found.items() if each in fixed or ends[each] >= begins[name]]
        found[name] = _first_gap(_place(maps[name], address), alive)
    end = max(place.address + place.size for place in found.values())
    return _parts(where, maps, found), aligned(end)


def _parts(
    where: Mapping[str, tuple[str, int]], maps: Mapping[str, FeatureMap], found: Mapping[str, Place]
) -> dict[str, Place]:
    """Of all edges that lie in memory."""
    return {
        edge: found[root].part(first, blocks(maps[edge].channels))
        for edge, (root, first) in where.items()
        if root in found
    }


def aligned(address: int) -> int:
    """The next address at which a region may begin."""
    return -(-address // ALIGNMENT) * ALIGNMENT


def _place(source: FeatureMap, address: int) -> Place:
    return Place(address=address, blocks=blocks(source.channels), height=source.height, width=source.width)


def _first_gap(place: Place, alive: Sequence[Place]) -> Place:
    """The place moved behind others until it overlaps none."""
    for each in sorted(alive, key=lambda each: each.address):
        if place.address + place.size <= each.address:
            break
        place = replace(place, address=max(place.address, aligned(each.address + each.size)))
    return place
