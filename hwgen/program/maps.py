"""Which maps lie in memory, and where: copies and parts of concatenations lie in others, and those of several frames
side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
    """Where a map lies in memory: ``blocks`` times ``height`` rows of ``width`` words, from a byte address on.

    From a row to the next it is ``row_bytes``, from a block to the next ``block_bytes``.
    """

    address: int
    blocks: int
    height: int
    width: int
    row_bytes: int
    block_bytes: int

    @classmethod
    def dense(cls, address: int, blocks: int, height: int, width: int) -> Place:
        """One without gaps."""
        row = width * WORD
        return cls(address=address, blocks=blocks, height=height, width=width, row_bytes=row, block_bytes=height * row)

    @property
    def size(self) -> int:
        """In bytes, without gaps."""
        return self.blocks * self.height * self.width * WORD

    @property
    def joins_rows(self) -> bool:
        """Whether each row begins where the one before ends."""
        return self.row_bytes == self.width * WORD

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
        alone = {edge for edge in edges if network.readers[edge] == (layer.name,) and not network.output_indices(edge)}
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


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The frames that a program computes, and the steps, by their names, that it takes for all of them at once.

    Other steps come before these, frame by frame.
    """

    frames: int = 1
    together: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()
    """Of these steps all layers."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where maps lie, by their edges: those of each frame, those of all frames as one map for the steps that take them
    so, and where all of them end."""

    of_frame: tuple[Mapping[str, Place], ...]
    of_all: Mapping[str, Place]
    end: int


def at_ends(network: Network, where: Mapping[str, tuple[str, int]]) -> set[str]:
    """Maps in memory that the host writes or reads."""
    return {INPUT, *(where[name][0] for name in network.output_layers)}


def places(
    network: Network,
    address: int,
    order: Sequence[Sequence[Step]],
    *,
    kept: bool = False,
    batch: Batch | None = None,
) -> Places:
    """A place for each map, from an address on.

    The input and the outputs have places of their own. Others share them, unless they are to be ``kept``: a map takes
    the first gap among those that are still to be read when it begins. ``order`` has steps that are computed at the
    same time side by side, those of all frames at once last.

    Of the input and the outputs frames lie one after the other. Maps that steps of all frames read or write have rows
    of all frames in turn: row ``y`` of frame ``f`` is row ``y * frames + f`` of such a map. Others have one place, for
    one frame after the other.
    """
    batch, where = batch or Batch(), roots(network)
    maps = {INPUT: network.input, **{layer.name: layer.output for layer in network.layers}}
    begins: dict[str, int] = {INPUT: 0}
    ends: dict[str, int] = {}
    in_turn: set[str] = set()
    for number, those in enumerate(order):
        for step in those:
            begins.setdefault(where[step.name][0], number)
            used = {where[edge][0] for edge in (*step.edges, step.name)}
            ends |= dict.fromkeys(used, number)
            if step.name in batch.together:
                in_turn |= used
    begins |= dict.fromkeys(in_turn, 0)  # they are there from the first frame on
    outer = at_ends(network, where)
    fixed = {*begins} if kept else outer
    found: dict[str, _Home] = {}
    for name in sorted(begins, key=lambda name: (name not in fixed, begins[name])):
        alive = [home for each, home in found.items() if each in fixed or ends[each] >= begins[name]]
        frames = batch.frames if name in outer | in_turn else 1
        home = _Home(address, blocks(maps[name].channels), maps[name].height, maps[name].width, frames, name in outer)
        found[name] = _first_gap(home, alive)
    end = aligned(max(home.end for home in found.values()))

    def parts(of: Callable[[_Home], Place]) -> dict[str, Place]:
        """Of all edges that lie in memory."""
        return {
            edge: of(found[root]).part(first, blocks(maps[edge].channels))
            for edge, (root, first) in where.items()
            if root in found
        }

    frames = tuple(parts(partial(_Home.frame, number=number)) for number in range(batch.frames))
    return Places(of_frame=frames, of_all=parts(_Home.of_all), end=end)


@dataclass(frozen=True)
class _Home:
    """Where a map of some frames lies: a frame after the other, or their rows in turn."""

    address: int
    blocks: int
    height: int
    width: int
    frames: int
    one_by_one: bool

    @property
    def frame_bytes(self) -> int:
        return self.blocks * self.height * self.width * WORD

    @property
    def end(self) -> int:
        return self.address + self.frames * self.frame_bytes

    def frame(self, number: int) -> Place:
        """That of one frame; of all of them, if there is one place for one after the other."""
        if self.frames == 1 or self.one_by_one:
            after = number % self.frames * self.frame_bytes
            return Place.dense(self.address + after, self.blocks, self.height, self.width)
        row = self.width * WORD
        return Place(
            address=self.address + number * row,
            blocks=self.blocks,
            height=self.height,
            width=self.width,
            row_bytes=self.frames * row,
            block_bytes=self.frames * self.height * row,
        )

    def of_all(self) -> Place:
        """A map with a row of each frame in turn; where that can't be, the first frame's."""
        if self.frames == 1 or not self.one_by_one:
            return Place.dense(self.address, self.blocks, self.frames * self.height, self.width)
        if (self.height, self.width) != (1, 1):
            return self.frame(0)
        return Place(
            address=self.address,
            blocks=self.blocks,
            height=self.frames,
            width=1,
            row_bytes=self.frame_bytes,
            block_bytes=WORD,
        )


def aligned(address: int) -> int:
    """The next address at which a region may begin."""
    return -(-address // ALIGNMENT) * ALIGNMENT


def _first_gap(home: _Home, alive: Sequence[_Home]) -> _Home:
    """It moved behind others until it overlaps none."""
    for each in sorted(alive, key=lambda each: each.address):
        if home.end <= each.address:
            break
        home = replace(home, address=max(home.address, aligned(each.end)))
    return home
