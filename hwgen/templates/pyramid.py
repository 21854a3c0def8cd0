"""Pyramid template: a fusion group is computed tile by tile of its output; tiles' overlaps are kept or recomputed.

The scheme is Alwani's (2015). The tile of the group's output is the pyramid's tip. `hwgen.templates.pyramid_tiles`
derives the tiles of all layers from the tip. Large tips fetch and compute fewer overlaps; small tips need less memory
on chip. Rows and columns are independent, so a tip's cost is a product of its rows' and its columns' cost, and hundreds
of tips are compared at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from hwgen.devices import Device
from hwgen.errors import ConfigError, PlanError
from hwgen.fields import Entries, Rule
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.spans import TiledAxis
from hwgen.network.graph import Network
from hwgen.network.maps import MAX_SIDE
from hwgen.network.ops import Op
from hwgen.options import OVERLAPS, PYRAMID, RECOMPUTE, REUSE, called
from hwgen.templates.base import Group, Refusal, Task, Template, attempt
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, read_input_pixels
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.search import GroupSearch
from hwgen.templates.stage import Stage
from hwgen.templates.stages import IN_TILES, stage_of
from hwgen.templates.unroll import Search, Unrolling, by_cost, interval
from hwgen.templates.work import LayerWork, Unroll, ceil_div, lanes_out

#: Candidate numbers of pixels per beat of a pyramid group's input.
INPUT_PIXELS = (1, 2, 4, 8)

#: Maximum number of pyramids per frame. More pyramids are slow to schedule and gain little.
MAX_PYRAMIDS = 4096

#: Maximum ratio of a tip's cycles to the fastest tip's cycles if it is preferred because it needs less memory.
SLACK = 1.02

Pair = tuple[int, int]
"""Type of a number of rows and a number of columns."""


@dataclass(frozen=True)
class PyramidWork:
    """Work of a layer for each tile of a frame: numbers of windows and of input beats.

    Parameters
    ----------
    tiles : pair of TiledAxis
        Rows and columns of the layer's tiles.
    pixels : int
        Number of neighbouring pixels of an input beat.

    Raises
    ------
    ConfigError
        If tiles don't begin at whole beats.
    """

    tiles: tuple[TiledAxis, TiledAxis]
    pixels: int

    def __post_init__(self) -> None:
        self.beats  # noqa: B018 (refuses tiles that don't begin at whole beats)

    @cached_property
    def windows(self) -> np.ndarray:
        """Number of the layer's windows in each pyramid (tile), a two-dimensional array by row and column of tiles."""
        rows, columns = ([span.windows for span in axis.spans] for axis in self.tiles)
        return np.outer(rows, columns)

    @cached_property
    def beats(self) -> np.ndarray:
        """Number of beats of the layer's input tile in each pyramid, a two-dimensional array by row and column."""
        rows, columns = self.tiles
        return np.outer([span.size for span in rows.spans], [cut.size for cut in columns.cut(self.pixels)])

    @property
    def full_size_count(self) -> int:
        """Number of full-size pyramids (tiles) whose work equals a frame's, in windows or in beats, whichever are more.

        Pyramids at the border are smaller than pyramids inside the map. A frame of 10 windows in pyramids of 4, 4 and 2
        is worth 3 pyramids of 4.
        """
        return max(ceil_div(int(counts.sum()), int(counts.max())) for counts in (self.windows, self.beats))

    def inside(self, work: LayerWork, pyramids: int) -> LayerWork:
        """Return a layer's `LayerWork` in a frame of ``pyramids`` tiles, all of full size, as inside the map.

        Layers that are balanced by this work have equal speed inside the map.
        """
        return self._work_of(work, pyramids * int(self.windows.max()), pyramids * int(self.beats.max()))

    def in_all(self, work: LayerWork, pyramids: int) -> LayerWork:
        """Return a layer's `LayerWork` in ``pyramids`` full-size tiles, but at least the work in the whole frame.

        Many pyramids of a small map are at its border, and layers are then better balanced over the whole frame.
        """
        bounds = (max(pyramids * int(counts.max()), int(counts.sum())) for counts in (self.windows, self.beats))
        return self._work_of(work, *bounds)

    def cycles(self, work: LayerWork, unroll: Unroll) -> np.ndarray:
        """Return an array of a layer's cycles per pyramid (tile): for its windows, or for its input beats if longer."""
        return np.maximum(self.windows * int(work.pixel_cycles(unroll)), self.beats * int(work.beats(unroll)))

    def _work_of(self, work: LayerWork, windows: int, beats: int) -> LayerWork:
        return replace(work, height=windows, width=1, input_height=beats, input_width=1)


def largest(axis: TiledAxis, what: str) -> int:
    """Return the maximum of the `Span` attribute ``what`` over an axis's tiles, in rows or columns."""
    return max(getattr(span, what) for span in axis.spans)


def tips(layers: Sequence[Op], overlap: str, products: int) -> list[Pair] | Refusal:
    """Return a list of candidate output tiles (rows, columns), ever slower and smaller in memory, or a `Refusal`.

    Each tip is slower and needs less memory than the previous one. The cycles of a frame are the cycles of its
    multiply-adds, or of the transfers of the layer with the most pixels. The memory is the kept bands and two tiles of
    each layer. The first candidate needs the least memory of all tips within `SLACK` of the fastest.

    Parameters
    ----------
    layers : sequence of Op
    overlap : str
        Treatment of pixels that neighbouring pyramids share.
    products : int
        Number of multiply-adds per cycle.
    """
    last = layers[-1]
    columns = _by_size(layers, overlap, last.output_width, 1)
    rows = _by_size(layers, overlap, last.output_height, 0)
    if isinstance(columns, Refusal):
        return columns
    if isinstance(rows, Refusal):
        return rows
    options = []
    for tip in product(rows, columns):
        if ceil_div(last.output_height, tip[0]) * ceil_div(last.output_width, tip[1]) <= MAX_PYRAMIDS:
            tiles = list(zip(rows[tip[0]], columns[tip[1]], strict=True))
            options.append((_cycles(layers, tiles, tip[1], products), _memory(layers, tiles), tip))
    fast = SLACK * min(cycles for cycles, _, _ in options)
    front = [min(((memory, tip) for cycles, memory, tip in options if cycles <= fast))]
    for _, memory, tip in sorted(entry for entry in options if entry[0] > fast):
        if memory < front[-1][0]:
            front.append((memory, tip))
    return [tip for _, tip in front]


def _by_size(layers: Sequence[Op], overlap: str, size: int, axis: int) -> dict[int, list[TiledAxis]] | Refusal:
    """Return, as a dict by output tile size, each layer's tiles (`TiledAxis`) along one axis, or a `Refusal`.

    The sizes cut the output into nearly equal parts. Sizes without a pyramid that can be built are omitted.
    """
    tiles = {tip: attempt(axes, layers, (tip, 1) if axis == 0 else (1, tip), overlap) for tip in _sizes(size)}
    axes_by_size = {
        tip: [pair[axis] for pair in layer_axes]
        for tip, layer_axes in tiles.items()
        if not isinstance(layer_axes, Refusal)
    }
    whole = tiles[size]
    return whole if isinstance(whole, Refusal) and not axes_by_size else axes_by_size


def _sizes(size: int) -> Iterable[int]:
    """Return a list of tile sizes, ascending, about four per doubling, that cut ``size`` into nearly equal parts."""
    sizes, count = set(), 1.0
    while ceil_div(size, int(count)) > 1:
        sizes.add(ceil_div(size, int(count)))
        count *= 1.2
    return sorted({1, size, *sizes})


def _cycles(layers: Sequence[Op], tiles: Sequence[tuple[TiledAxis, TiledAxis]], tip: int, products: int) -> float:
    """Return the estimated cycles per frame of fused layers in given tiles, with input beats as wide as tiles allow."""
    work, passing = 0, 0.0
    for layer, (rows, columns) in zip(layers, tiles, strict=True):
        work += rows.windows * columns.windows * layer.weight_count
        pixels = sum(span.size for span in rows.spans) * sum(span.size for span in columns.spans)
        passing = max(passing, pixels / (gcd(tip * _stride(layers), INPUT_PIXELS[-1]) if layer is layers[0] else 1))
    return max(work / products, passing)


def _stride(layers: Sequence[Op]) -> int:
    """Return the number of columns of a fusion group's input per column of the group's output."""
    return prod(layer.window.stride[1] for layer in layers)


def _memory(layers: Sequence[Op], tiles: Sequence[tuple[TiledAxis, TiledAxis]]) -> int:
    """Return the number of values stored on chip for a tiling: kept bands, and two tiles of each layer."""
    return sum(
        layer.channels * (rows.kept * layer.width + columns.kept * rows.new + 2 * rows.tile * columns.tile)
        for layer, (rows, columns) in zip(layers, tiles, strict=True)
    )


#: Candidate treatments of overlaps, in the order of preference.
TRIED_OVERLAPS = (REUSE, RECOMPUTE)


@dataclass(frozen=True, kw_only=True)
class PyramidTemplate(Template):
    """Template of fusion groups computed in pyramids: tile by tile of the group's output, through all layers.

    Parameters
    ----------
    tile : tuple of int
        Rows and columns of a pyramid's tip, which is a tile of the group's output.
    overlap : str
        Treatment of pixels that neighbouring pyramids share; see `hwgen.templates.pyramid_tiles`.
    pixels : int
        Number of neighbouring pixels of a beat of the group's input.
    """

    tile: tuple[int, int]
    overlap: str
    pixels: int = 1

    name = PYRAMID

    def tiles(self, network: Network) -> list[tuple[TiledAxis, TiledAxis]]:
        """Return a list of pairs of `TiledAxis`, one per layer: its input tiles along rows, and along columns.

        Raises
        ------
        PlanError
            For the tips that `hwgen.templates.pyramid_tiles.axes` refuses.
        """
        return axes(network.layers, self.tile, self.overlap)

    def configure(self, network: Network, layers: Sequence[LayerPlan], device: Device) -> AcceleratorConfig:
        config = compose(network, layers, self.pixels, lambda op: self.stage(op, device))
        return in_tiles(config, self.tiles(network))

    @classmethod
    def stage(cls, op: Op, device: Device) -> Stage[Any]:
        return stage_of(op, device, IN_TILES)

    def input_pixels(self, network: Network) -> tuple[int, ...]:
        rows, columns = self.tiles(network)[0]
        return (rows.pixels * columns.pixels,)

    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        return {"tile": list(self.tile), "overlap": self.overlap, "input_pixels": self.pixels}

    @classmethod
    def read(cls, group: Entries, network: Network, layers: Sequence[LayerPlan]) -> PyramidTemplate:
        tile = group.value("tile", tuple[int, int], Rule(minimum=1, maximum=MAX_SIDE, reason="rows, columns"))
        check_chain(network, network.name)
        pixels, overlap = read_input_pixels(group, network, layers), group.text("overlap")
        if multi_pixel := next((layer for layer in layers if layer.tp != 1), None):
            raise PlanError(
                f"plan layer {multi_pixel.name}: unroll pixels must be 1 in a pyramid, not {multi_pixel.tp}"
            )
        if placed := next((layer for layer in layers if layer.line_in is not None), None):
            raise PlanError(f"plan layer {placed.name}: line_memory must be null in a pyramid, not {placed.line_in!r}")
        return cls(tile=tile, overlap=overlap, pixels=pixels)

    def summary(self, group: Group) -> list[str]:
        layers, (rows, columns) = group.layers, self.tile
        wide = f", {self.pixels} pixels per input beat" if self.pixels > 1 else ""
        return [
            f"pyramids ({layers[0].name} to {layers[-1].name}): tip {rows}x{columns}, {self.overlap}{wide}; "
            f"{pyramid_cycles(group.config):,} cycles each"
        ]

    def is_moot(self, network: Network, option: str) -> bool:
        """Return whether an option has no effect: ``overlap`` has none if all its values give the same tiles."""
        tiles = self.tiles(network)
        return option == "overlap" and all(axes(network.layers, self.tile, overlap) == tiles for overlap in OVERLAPS)

    @classmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        """Return the best `Group` (plan's objective) in pyramids (tiles), or a `Refusal`; overlaps kept if possible."""
        check_chain(task.part(begin, end), task.network.name)
        for layer in task.network.layers[begin:end]:
            cls.stage(layer, task.board.family)  # refuses kinds that can't compute tile by tile
        preferred, *others = (task.goal.overlap,) if task.goal.overlap else TRIED_OVERLAPS
        group = _best_with_overlap(task, begin, end, in_turn, preferred)
        for overlap in others:
            if isinstance(group, Refusal):
                group = _best_with_overlap(task, begin, end, in_turn, overlap)
        return group


def check_chain(network: Network, name: str) -> None:
    """Raise `PlanError` unless a fusion group is a chain of layers with one input and one output.

    Parameters
    ----------
    network : Network
        Network of the group.
    name : str
        Name of the whole network, for messages.

    Raises
    ------
    PlanError
        If it is not a chain. The message names the inputs or outputs, or the first layer that joins maps.
    """
    if (count := len(network.output_layers)) > 1:
        names = ", ".join(network.output_names)
        raise PlanError(f"{name} has {count} outputs ({names}), but a group of pyramids has one: use --template stream")
    if (count := len(network.inputs)) > 1:
        names = ", ".join(network.input_names)
        raise PlanError(f"{name} has {count} inputs ({names}), but a group of pyramids has one: use --template stream")
    if (join := next((layer for layer in network.layers if len(layer.inputs) > 1), None)) is not None:
        edges = network.edges[network.layers.index(join)]
        sources = " and ".join(edge or "the input" for edge in edges)
        raise PlanError(
            f"{join.name} joins {sources}, but pyramids compute chains of layers only: leave out {called('template')}, "
            f"{called('tile')} and {called('overlap')}, and groups are computed row by row"
        )


def pyramid_cycles(config: AcceleratorConfig) -> int:
    """Return the cycles per full-size pyramid (tile) of an accelerator: the slowest layer's."""
    return max(layer.pyramid_cycles or 0 for layer in config.layers)


def in_tiles(config: AcceleratorConfig, tiles: Sequence[tuple[TiledAxis, TiledAxis]]) -> AcceleratorConfig:
    """Return the `AcceleratorConfig` of a fusion group as computed tile by tile, from one that works row by row.

    Arithmetic, FIFOs and beats are unchanged. Tile buffers and reuse buffers replace the line buffers.

    Raises
    ------
    ConfigError
        If the tiles don't fit the layers, a layer computes several pixels per cycle, or a tile with kept pixels isn't a
        whole number of beats.
    """
    layers = []
    for layer, (rows, columns) in zip(config.layers, tiles, strict=True):
        values = {part.name: getattr(layer, part.name) for part in fields(layer)}
        tile = PyramidBufferConfig(window=layer.window, rows=rows, columns=columns)
        layers.append(PyramidLayerConfig(**values, tiles=tile))
    return replace(config, layers=tuple(layers))


@dataclass(frozen=True)
class PyramidSearch(GroupSearch):
    """Search for unroll factors and buffers of a fusion group in pyramids, given output tile, overlap and input beat.

    Layers are balanced by their work per pyramid inside the map or, with ``in_all``, by their work per frame.
    """

    template: PyramidTemplate
    in_all: bool = False

    may_convert_first = False

    @cached_property
    def search(self) -> Search:
        return by_cost(self.works, self.task.slices)

    @cached_property
    def priced(self) -> list[Search]:
        return self.task.price(self.works)

    @cached_property
    def works(self) -> list[LayerWork]:
        untiled = [self.task.work(self.template.stage(layer, self.board.family)) for layer in self.network.layers]
        works = [
            (tiled.in_all if self.in_all else tiled.inside)(work, self._pyramids)
            for work, tiled in zip(untiled, self._tiled_works, strict=True)
        ]
        # With two steps per window, a layer can send pixels faster than it computes them. No layer keeps pixels of the
        # last output, so the last layer needs no second step.
        return [*(replace(work, min_steps=2) for work in works[:-1]), works[-1]]

    @cached_property
    def _pyramids(self) -> int:
        """Number of pyramids (tiles) per frame, or of full-size pyramids of the same total work if larger."""
        last = self.network.output
        tips = ceil_div(last.height, self.template.tile[0]) * ceil_div(last.width, self.template.tile[1])
        return tips if self.in_all else max(tips, *(tiled.full_size_count for tiled in self._tiled_works))

    @cached_property
    def _tiled_works(self) -> list[PyramidWork]:
        return [PyramidWork(tiles, 1 if index else self.template.pixels) for index, tiles in enumerate(self._tiles)]

    def estimate(self, unrolling: Unrolling) -> int:
        """Return the cycles per frame: the slowest layer's cycles in each pyramid (tile), summed over all pyramids."""
        layers = zip(self._tiled_works, self.works, unrolling.unrolls, strict=True)
        return int(np.max([tiled.cycles(work, unroll) for tiled, work, unroll in layers], axis=0).sum())

    @cached_property
    def _tiles(self) -> list[tuple[TiledAxis, TiledAxis]]:
        return self.template.tiles(self.network)

    def _layers(self, unrolling: Unrolling) -> tuple[LayerPlan, ...]:
        """Return a tuple of each layer's `LayerPlan` for given unroll factors, with ample FIFOs, one-window buffers."""
        return tuple(
            replace(plan, line_rows=min(layer.window.extent[0], layer.input.height), fifo_lanes=lanes)
            for plan, layer, lanes in zip(
                super()._layers(unrolling), self.network.layers, self._lanes(unrolling), strict=True
            )
        )

    def _fastest(self, search: Search) -> Unrolling | Refusal:
        """Return the `Unrolling` of fewest cycles per frame within the DSP budget, or a `Refusal` if none fit.

        Intervals are tried one by one upwards from a lower bound, because the slices for wider FIFOs do not fall
        steadily as the interval grows.
        """
        lower_bound = search.limited(self.goal.dsp).fastest_within(self._min_interval)
        if lower_bound is None:
            return self._too_few_slices(search)
        for cycles in search.intervals[bisect_left(search.intervals, lower_bound[0]) :]:
            unrolling = search.cheapest(cycles)
            if unrolling is not None and self._slices(unrolling) <= self.goal.dsp:
                return unrolling
        return self._too_few_slices(search)

    def _slices(self, unrolling: Unrolling) -> int:
        """Return the DSP slices for given unroll factors, with extra requantiser lanes for FIFOs with wider beats."""
        extra_slices = 0
        for work, unroll, lanes in zip(self.works, unrolling.unrolls, self._lanes(unrolling), strict=True):
            if lanes is not None:
                extra_slices += int(self.task.finish_slices(work, unroll)) * (lanes - int(lanes_out(work, unroll)))
        return super()._slices(unrolling) + extra_slices

    def _lanes(self, unrolling: Unrolling) -> list[int | None]:
        """Return a list of the channels per beat of each layer's FIFO; ``None`` where the default is fast enough.

        New pixels wait while kept pixels enter the next layer's tile, and must enter faster afterwards.
        """
        works, unrolls = self.works, unrolling.unrolls
        cycles = interval(works, unrolls) // self._pyramids
        result: list[int | None] = []
        for index, (rows, columns) in enumerate(self._tiles[1:]):
            work, unroll = works[index], unrolls[index]
            folds, new = int(works[index + 1].beats(unrolls[index + 1])), largest(rows, "new") * largest(columns, "new")
            available = cycles - (largest(rows, "size") * largest(columns, "size") - new) * folds
            beats = max(available // new, folds) // int(work.output_folds(unroll))  # beats per output fold
            lanes = ceil_div(unroll.tm, max(beats, 1))
            result.append(lanes if lanes > int(lanes_out(work, unroll)) else None)
        return [*result, None]

    def _lower_latency(self, fastest: Unrolling) -> Unrolling:
        """Return the `Unrolling` ``fastest`` unchanged, as latency is near the interval if a frame has many tiles."""
        return fastest


def _best_with_overlap(task: Task, begin: int, end: int, in_turn: bool, overlap: str) -> Group | Refusal:
    """Return the `Group` of pyramids with the fastest output tile that fits, for one way of overlap, or a `Refusal`."""
    goal, shapes = task.goal, task.network.layers[begin:end]
    worth_trying = [goal.tile] if goal.tile else tips(shapes, overlap, goal.products)
    if isinstance(worth_trying, Refusal):
        return worth_trying
    *larger, smallest = (PyramidTemplate(tile=tip, overlap=overlap) for tip in worth_trying)
    for template in larger:
        group = attempt(_with_tip, task, begin, end, in_turn, template)
        if not isinstance(group, Refusal) or group.resource == "DSP slices":
            return group
    # Smaller unroll factors, whose search takes long, are tried only with the tip that needs the least memory.
    return attempt(_with_tip, task, begin, end, in_turn, smallest, slower=True)


def _with_tip(
    task: Task, begin: int, end: int, in_turn: bool, template: PyramidTemplate, slower: bool = False
) -> Group | Refusal:
    """Return the best `Group` (plan's objective) for an output tile, or `Refusal`; ``slower`` adds longer intervals."""
    search = _with_input(task, begin, end, in_turn, template)
    if isinstance(search, Refusal):
        return search
    return search.best() if slower else search.first()


def _with_input(task: Task, begin: int, end: int, in_turn: bool, template: PyramidTemplate) -> PyramidSearch | Refusal:
    """Return the `PyramidSearch` with the input beat width of fewest cycles (or DSP slices), or a `Refusal`."""
    options: list[tuple[float, int, bool, PyramidSearch, Unrolling]] = []
    refusal: Refusal | None = None
    minimises_cost = task.goal.objective == "dsp"
    for in_all, pixels in product((False, True), INPUT_PIXELS):
        choice = PyramidSearch(task, begin, end, in_turn, replace(template, pixels=pixels), in_all=in_all)
        if pixels > choice.network.input.width:
            continue
        try:
            unrolling = choice.best_factors()
        except ConfigError:  # tiles don't begin at whole beats
            continue
        if isinstance(unrolling, Refusal):
            refusal = unrolling
            continue
        cost = unrolling.cost if minimises_cost else interval(choice.works, unrolling.unrolls)
        options.append((cost, pixels, in_all, choice, unrolling))
    if not options:
        assert refusal is not None
        return refusal
    # The fewest pixels for each balance; then the faster balance, with all pyramids counted at their real size.
    best = [
        min((one for one in options if one[2] == in_all), default=None, key=lambda one: one[:2])
        for in_all in (False, True)
    ]
    return min(filter(None, best), key=lambda one: (one[0] if minimises_cost else 0, one[3].estimate(one[4])))[3]
