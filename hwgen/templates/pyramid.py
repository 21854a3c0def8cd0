"""Pyramids: a group is computed tile by tile, with what neighbouring tiles share kept or computed again (Alwani 2015).

The tile of the group's output is the tip of the pyramid. `hwgen.templates.pyramid_tiles` derives the tile of each layer
from the tip, and `hwgen.templates.tips` lists the tips that a search tries.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.spans import Axis
from hwgen.network.graph import Network
from hwgen.network.maps import MOST_SIDE
from hwgen.network.ops import Op
from hwgen.options import OVERLAPS, PYRAMID, RECOMPUTE, REUSE
from hwgen.templates.base import Group, Template
from hwgen.templates.compose import compose
from hwgen.templates.fields import field, read_input_pixels
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.search import GroupSearch
from hwgen.templates.stage import Stage
from hwgen.templates.stages import IN_TILES, stage_of
from hwgen.templates.task import Task, lanes_out
from hwgen.templates.tips import INPUT_PIXELS, PyramidWork, most, tips
from hwgen.templates.unroll import Search, Way, interval
from hwgen.templates.work import LayerWork, ceil_div

#: Overlaps that are tried, the one that is wanted most first.
TRIED_OVERLAPS = (REUSE, RECOMPUTE)


@dataclass(frozen=True, kw_only=True)
class Pyramid(Template):
    """A group that is computed pyramid by pyramid.

    Parameters
    ----------
    tile : tuple of int
        Rows and columns of a pyramid's tip, its part of the group's output.
    overlap : str
        What becomes of what neighbouring pyramids share; see `hwgen.templates.pyramid_tiles`.
    pixels : int
        Neighbouring pixels of a beat of the group's input.
    """

    tile: tuple[int, int]
    overlap: str
    pixels: int = 1

    name = PYRAMID

    def tiles(self, network: Network) -> list[tuple[Axis, Axis]]:
        """Rows and columns of each layer's tiles.

        Raises
        ------
        PlanError
            As `hwgen.templates.pyramid_tiles.axes`.
        """
        return axes(network.layers, self.tile, self.overlap)

    def configure(self, network: Network, layers: Sequence[LayerPlan]) -> AcceleratorConfig:
        return in_tiles(compose(network, layers, self.pixels, self.stage), self.tiles(network))

    @classmethod
    def stage(cls, op: Op) -> Stage[Any]:
        return stage_of(op, IN_TILES)

    def input_pixels(self, network: Network) -> tuple[int, ...]:
        rows, columns = self.tiles(network)[0]
        return (rows.pixels * columns.pixels,)

    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        return {"tile": list(self.tile), "overlap": self.overlap, "input_pixels": self.pixels}

    @classmethod
    def read(cls, document: dict[str, Any], network: Network, layers: Sequence[LayerPlan]) -> Pyramid:
        tile = field(document, "tile", list, "plan group")
        if len(tile) != 2 or not all(type(size) is int and 1 <= size <= MOST_SIDE for size in tile):
            raise PlanError(
                f"plan group: tile must be two integers from 1 to {MOST_SIDE:,}, rows and columns, not "
                f"{json.dumps(tile)[:40]}"
            )
        check_chain(network, network.name)
        pixels = read_input_pixels(document, network, layers)
        overlap = field(document, "overlap", str, "plan group")
        if several := next((layer for layer in layers if layer.tp != 1), None):
            raise PlanError(f"plan layer {several.name}: unroll pixels must be 1 in a pyramid, not {several.tp}")
        if lies := next((layer for layer in layers if layer.line_in is not None), None):
            raise PlanError(f"plan layer {lies.name}: line_memory must be null in a pyramid, not {lies.line_in!r}")
        return cls(tile=(tile[0], tile[1]), overlap=overlap, pixels=pixels)

    def summary(self, group: Group) -> list[str]:
        layers, (rows, columns) = group.layers, self.tile
        wide = f", {self.pixels} pixels a beat of the input" if self.pixels > 1 else ""
        return [
            f"pyramids ({layers[0].name} to {layers[-1].name}): tip {rows}x{columns}, {self.overlap}{wide}; "
            f"{pyramid_cycles(group.config):,} cycles each"
        ]

    def is_moot(self, network: Network, option: str) -> bool:
        """An overlap is, where the tiles are the same whatever becomes of what pyramids share."""
        tiles = self.tiles(network)
        return option == "overlap" and all(axes(network.layers, self.tile, kind) == tiles for kind in OVERLAPS)

    @classmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        """See `Template.search`: with reuse, if that fits."""
        check_chain(task.part(begin, end), task.network.name)
        for layer in task.network.layers[begin:end]:
            cls.stage(layer)  # that of some kinds doesn't come tile by tile
        preferred, *others = (task.goal.overlap,) if task.goal.overlap else TRIED_OVERLAPS
        group = _best(task, begin, end, in_turn, preferred)
        for overlap in others:
            if isinstance(group, Refusal):
                group = _best(task, begin, end, in_turn, overlap)
        return group


def check_chain(network: Network, name: str) -> None:
    """Refuse layers that branch, or have several inputs or outputs; ``name`` is that of all the network.

    Raises
    ------
    PlanError
        Naming the inputs or outputs, or the first layer that joins maps.
    """
    if (count := len(network.output_layers)) > 1:
        names = ", ".join(network.output_names)
        raise PlanError(f"{name} has {count} outputs ({names}); a group of pyramids gives one only")
    if (count := len(network.inputs)) > 1:
        names = ", ".join(network.input_names)
        raise PlanError(f"{name} has {count} inputs ({names}); a group of pyramids takes one only")
    if (join := next((layer for layer in network.layers if len(layer.inputs) > 1), None)) is not None:
        edges = network.edges[network.layers.index(join)]
        sources = " and ".join(edge or "the input" for edge in edges)
        raise PlanError(
            f"{join.name} joins {sources}: pyramids are built of chains of layers only; leave out the template, tile "
            "and overlap, and groups are computed row by row"
        )


def pyramid_cycles(config: AcceleratorConfig) -> int:
    """Cycles that a pyramid inside the map takes in the layer that is slowest at it."""
    return max(layer.pyramid_cycles or 0 for layer in config.layers)


def in_tiles(config: AcceleratorConfig, tiles: Sequence[tuple[Axis, Axis]]) -> AcceleratorConfig:
    """The accelerator of a group that is computed pyramid by pyramid, from the one that computes it row by row.

    Arithmetic, FIFOs and beats stay; tiles and reuse buffers take the place of the line buffers.

    Raises
    ------
    ConfigError
        If the tiles are not those of the layers, a layer computes several pixels at once, or tiles that keep something
        don't come in whole beats.
    """
    layers = []
    for layer, (rows, columns) in zip(config.layers, tiles, strict=True):
        parts = {part.name: getattr(layer, part.name) for part in fields(layer)}
        tile = PyramidBufferConfig(window=layer.window, rows=rows, columns=columns)
        layers.append(PyramidLayerConfig(**parts, tiles=tile))
    return replace(config, layers=tuple(layers))


@dataclass(frozen=True)
class PyramidSearch(GroupSearch):
    """The search for one group of pyramids with this tip, overlap and input.

    Layers are balanced inside the map, or with ``in_all`` by what they do in a frame.
    """

    template: Pyramid
    in_all: bool = False

    @cached_property
    def search(self) -> Search:
        return Search(self.works, self.task.slices)

    @cached_property
    def priced(self) -> list[Search]:
        return self.task.price(self.works)

    @cached_property
    def works(self) -> list[LayerWork]:
        plain = [self.task.work(self.template.stage(layer)) for layer in self.network.layers]
        works = [
            (tiled.in_all if self.in_all else tiled.inside)(work, self._pyramids)
            for work, tiled in zip(plain, self._each, strict=True)
        ]
        # So that a layer can hand pixels on faster than it makes them; behind the last one nothing is kept.
        return [*(replace(work, least_steps=2) for work in works[:-1]), works[-1]]

    @cached_property
    def _pyramids(self) -> int:
        """Tips of a frame, or how many inside the map its pyramids are worth."""
        last = self.network.output
        tips = ceil_div(last.height, self.template.tile[0]) * ceil_div(last.width, self.template.tile[1])
        return tips if self.in_all else max(tips, *(tiled.worth for tiled in self._each))

    @cached_property
    def _each(self) -> list[PyramidWork]:
        return [PyramidWork(tiles, 1 if number else self.template.pixels) for number, tiles in enumerate(self._tiles)]

    def estimate(self, way: Way) -> int:
        """Cycles of a frame: of each pyramid, those of its slowest layer."""
        layers = zip(self._each, self.works, way.unrolls, strict=True)
        return int(np.max([tiled.cycles(work, unroll) for tiled, work, unroll in layers], axis=0).sum())

    @cached_property
    def _tiles(self) -> list[tuple[Axis, Axis]]:
        return self.template.tiles(self.network)

    def _layers(self, way: Way) -> tuple[LayerPlan, ...]:
        """With ample FIFOs. There are no line buffers; the rows of a window stand for them."""
        return tuple(
            replace(plan, line_rows=min(layer.window.extent[0], layer.input.height), fifo_lanes=lanes)
            for plan, layer, lanes in zip(super()._layers(way), self.network.layers, self._lanes(way), strict=True)
        )

    def _fastest(self, search: Search) -> Way | Refusal:
        """One after the other from the least that slices alone allow: those for wider FIFOs don't fall steadily."""
        found = search.fastest_within(self.goal.dsp, self._floor)
        if found is None:
            return self._too_few_slices(search)
        for cycles in search.intervals[bisect_left(search.intervals, found[0]) :]:
            way = search.cheapest(cycles)
            if way is not None and self._slices(way) <= self.goal.dsp:
                return way
        return self._too_few_slices(search)

    def _slices(self, way: Way) -> int:
        """With those of requantisers for wider FIFOs."""
        more = 0
        for work, unroll, lanes in zip(self.works, way.unrolls, self._lanes(way), strict=True):
            if lanes is not None:
                more += int(self.task.finish_slices(work, unroll)) * (lanes - int(lanes_out(work, unroll)))
        return super()._slices(way) + more

    def _lanes(self, way: Way) -> list[int | None]:
        """Channels of a FIFO's beat, where a pixel must leave faster than its layer makes it.

        While pixels that were kept come into a tile, new ones wait; they have to come in faster afterwards.
        """
        works, unrolls = self.works, way.unrolls
        cycles = interval(works, unrolls) // self._pyramids
        result: list[int | None] = []
        for number, (rows, columns) in enumerate(self._tiles[1:]):
            work, unroll = works[number], unrolls[number]
            folds, new = int(works[number + 1].beats(unrolls[number + 1])), most(rows, "new") * most(columns, "new")
            left = cycles - (most(rows, "size") * most(columns, "size") - new) * folds
            beats = max(left // new, folds) // int(work.output_folds(unroll))  # of an output fold
            wanted = ceil_div(unroll.tm, max(beats, 1))
            result.append(wanted if wanted > int(lanes_out(work, unroll)) else None)
        return [*result, None]

    def _soonest(self, fastest: Way) -> Way:
        """Latency is all but the interval where one frame is many pyramids."""
        return fastest


def _best(task: Task, begin: int, end: int, in_turn: bool, overlap: str) -> Group | Refusal:
    """Return the best group of pyramids with this overlap: of the tips that fit, that of the least interval."""
    goal, shapes = task.goal, task.network.layers[begin:end]
    worth_trying = [goal.tile] if goal.tile else tips(shapes, overlap, goal.products)
    if isinstance(worth_trying, Refusal):
        return worth_trying
    *larger, least = (Pyramid(tile=tip, overlap=overlap) for tip in worth_trying)
    for template in larger:
        group = attempt(_with_tip, task, begin, end, in_turn, template)
        if not isinstance(group, Refusal) or group.resource == "DSP slices":
            return group
    # Slower unrolling, which takes long to search, only where no smaller memory is left to try.
    return attempt(_with_tip, task, begin, end, in_turn, least, slower=True)


def _with_tip(
    task: Task, begin: int, end: int, in_turn: bool, template: Pyramid, slower: bool = False
) -> Group | Refusal:
    """Return the best group of pyramids with this tip; with ``slower`` unrolling, too, where the best is too large."""
    search = _with_input(task, begin, end, in_turn, template)
    if isinstance(search, Refusal):
        return search
    return search.best() if slower else search.first()


def _with_input(task: Task, begin: int, end: int, in_turn: bool, template: Pyramid) -> PyramidSearch | Refusal:
    """Return the search with as many pixels a beat of the input as serve the objective, by DSP slices alone."""
    found: list[tuple[float, int, bool, PyramidSearch, Way]] = []
    refusal: Refusal | None = None
    few = task.goal.objective == "dsp"
    for in_all, pixels in product((False, True), INPUT_PIXELS):
        choice = PyramidSearch(task, begin, end, in_turn, replace(template, pixels=pixels), in_all=in_all)
        if pixels > choice.network.input.width:
            continue
        try:
            way = choice.quick()
        except ConfigError:  # tiles don't begin at beats of so many pixels
            continue
        if isinstance(way, Refusal):
            refusal = way
            continue
        cost = way.cost if few else interval(choice.works, way.unrolls)
        found.append((cost, pixels, in_all, choice, way))
    if not found:
        assert refusal is not None
        return refusal
    # Of each balance the fewest pixels; then what is faster, all pyramids counted as they are.
    best = [
        min((one for one in found if one[2] == in_all), default=None, key=lambda one: one[:2])
        for in_all in (False, True)
    ]
    return min(filter(None, best), key=lambda one: (one[0] if few else 0, one[3].estimate(one[4])))[3]
