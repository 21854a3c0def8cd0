"""Random tiles of random layers and groups, their simulation, and feature maps in tile order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from accelerators import networks, unrolls
from chains import chains
from hypothesis import assume
from hypothesis import strategies as st
from refusals import NOTHING_TO_DO, left_out_if
from testbench import PATIENCE, Trace, channel_lanes, pack, run

from hwgen.devices import DEFAULT
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.reuse import PyramidReuseBufferConfig
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.gateware.stream import BeatFormat
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops import MaxPool, Op
from hwgen.options import OVERLAPS, REUSE
from hwgen.simulate.testbench import patience
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import PyramidTemplate, in_tiles
from hwgen.templates.pyramid_tiles import axes
from hwgen.templates.stage import Stage


def walk_cycles(config: PyramidBufferConfig) -> tuple[int, ...]:
    """Cycles to read all windows of each tile that has windows, without stalls."""
    return tuple(row.windows * column.windows * config.window.window_cycles for row, column in config.tiles)


@st.composite
def tilings(draw, layers: Sequence[Op], overlap: str | None = None) -> list[tuple[TiledAxis, TiledAxis]]:
    """Any tip, often not a divisor of the map."""
    last = layers[-1]
    tip = (
        draw(st.integers(1, min(4, last.output_height))),
        min(draw(st.sampled_from([4, 2, 1, 3, 6])), last.output_width),
    )
    with left_out_if(NOTHING_TO_DO):
        return axes(layers, tip, overlap or draw(st.sampled_from([*OVERLAPS, REUSE])))


def new_lanes(axis: TiledAxis, pixels: int) -> list[list[int | None]] | None:
    """Return the columns in the lanes of each span's new beats, ``None`` in lanes outside; ``None`` if impossible.

    Beats end where a span ends of which the next one keeps something and brings more; otherwise they begin where it
    begins.
    """
    result = []
    spans = [span for span in axis.spans if span.size]
    ends = {id(span) for span, after in pairwise(spans) if after.kept and after.new}
    for span in axis.spans:
        missing: list[int | None] = [None] * (-span.new % pixels)
        columns = list(range(span.fresh, span.end))
        if id(span) in ends and span.kept and missing:
            return None
        result.append(missing + columns if id(span) in ends else columns + missing)
    return result


def widths(columns: TiledAxis) -> st.SearchStrategy[int]:
    """Pixels a beat, of 1 to 4, in which the columns can come in."""
    return st.sampled_from([pixels for pixels in (2, 4, 3, 4, 2, 1) if new_lanes(columns, pixels) is not None])


def whole_lanes(axis: TiledAxis, pixels: int) -> list[list[int | None]]:
    """Return the columns in the lanes of each span's beats, kept and new. Kept beats can begin before the span."""
    result, beats = [], []
    lanes = new_lanes(axis, pixels)
    assert lanes is not None
    for span, new in zip(axis.spans, lanes, strict=True):
        kept = range(span.begin, span.fresh)
        tile = [beat for beat in beats if any(column in kept for column in beat)]
        fresh = [new[first : first + pixels] for first in range(0, len(new), pixels)]
        beats += fresh
        result.append([column for beat in tile + fresh for column in beat])
    return result


def used_lanes(axis: TiledAxis, pixels: int) -> list[list[int | None]]:
    """Return the columns of the beats in `whole_lanes` that windows need, with ``None`` in lanes that none needs."""
    result = []
    for span, lanes in zip(axis.spans, whole_lanes(axis, pixels), strict=True):
        needs = window_pixels(axis, span)
        inside = [column if column in range(needs.start, needs.stop) else None for column in lanes]
        beats = [inside[first : first + pixels] for first in range(0, len(inside), pixels)]
        result.append([column for beat in beats if any(column is not None for column in beat) for column in beat])
    return result


@st.composite
def reuse_buffers(
    draw, max_layers: int = 3, overlap: str | None = REUSE, max_cycles: int = 2500
) -> PyramidReuseBufferConfig:
    """Draw the reuse buffer of any layer of a random group."""
    layers = draw(chains(max_layers))
    number = draw(st.integers(0, len(layers) - 1))
    rows, columns = draw(tilings(layers, overlap))[number]
    layer = layers[number]
    source = BeatFormat(
        channels=layer.channels,
        height=layer.height,
        width=layer.width,
        lanes=draw(st.integers(1, layer.channels // layer.groups)),
        bits=draw(st.integers(2, 9)),
        signed=draw(st.booleans()),
        pixels=draw(widths(columns)),
        groups=layer.groups,
    )
    config = PyramidReuseBufferConfig(input=source, rows=rows, columns=columns)
    assume(config.cycles <= max_cycles)
    return config


def rectangles(rows: TiledAxis, columns: TiledAxis) -> list[tuple[Span, Span]]:
    """Return the row span and column span of each pyramid, in order."""
    return [(row, column) for row in rows.spans for column in columns.spans]


def window_pixels(axis: TiledAxis, span: Span) -> slice:
    """Return the range of the map's pixels under the windows of a span."""
    if not span.windows:
        return slice(0, 0)
    first = span.window * axis.stride - axis.padding
    last = (span.window + span.windows - 1) * axis.stride - axis.padding + axis.extent
    return slice(min(max(first, 0), axis.size), min(max(last, 0), axis.size))


def beats_of(beat: BeatFormat, parts: Sequence[np.ndarray]) -> list[int]:
    """Rectangles ``(C, h, w)`` of a map, in whole beats, as payload bits, row by row, without ``last``."""
    words = []
    for part in parts:
        height, steps = part.shape[1], part.shape[2] // beat.pixels
        values = np.zeros((beat.folds * beat.lanes, height, steps * beat.pixels), np.int64)
        values[channel_lanes(beat)] = part
        values = values.reshape(beat.folds, beat.lanes, height, steps, beat.pixels).transpose(2, 3, 0, 1, 4)
        words += [pack(lanes, beat.bits) for lanes in values.reshape(-1, beat.lanes * beat.pixels).tolist()]
    return words


def new_parts(rows: TiledAxis, columns: TiledAxis, frame: np.ndarray, pixels: int = 1) -> list[np.ndarray]:
    """Return the new input of each pyramid, of a frame ``(C, H, W)``, with noise in lanes outside."""
    all_lanes = new_lanes(columns, pixels)
    assert all_lanes is not None
    return [_part(frame, slice(row.fresh, row.end), lanes) for row in rows.spans for lanes in all_lanes]


def whole_parts(rows: TiledAxis, columns: TiledAxis, frame: np.ndarray, pixels: int = 1) -> list[np.ndarray]:
    """Return the whole tile of each pyramid that has windows, with noise in lanes outside."""
    return [_part(frame, *place) for place in _whole(rows, columns, pixels)]


def whole_masks(rows: TiledAxis, columns: TiledAxis, beat: BeatFormat) -> list[int]:
    """Return a mask of the payload bits that count, for each beat of `whole_parts`."""
    masks = []
    for part, lanes in _whole(rows, columns, beat.pixels):
        for first in range(0, len(lanes), beat.pixels):
            inside = [-(column is not None) for column in lanes[first : first + beat.pixels]]
            masks += [pack(inside * beat.lanes, beat.bits) | 1 << beat.data_bits] * beat.folds
        masks += masks[len(masks) - len(lanes) // beat.pixels * beat.folds :] * (part.stop - part.start - 1)
    return masks


def _whole(rows: TiledAxis, columns: TiledAxis, pixels: int) -> list[tuple[slice, list[int | None]]]:
    places = [(window_pixels(rows, row), lanes) for row in rows.spans for lanes in used_lanes(columns, pixels)]
    return [(part, lanes) for part, lanes in places if part.stop > part.start and lanes]


def _part(frame: np.ndarray, rows: slice, lanes: list[int | None]) -> np.ndarray:
    part = np.random.default_rng(0).integers(0, 1 << 16, (len(frame), rows.stop - rows.start, len(lanes)))
    for lane, column in enumerate(lanes):
        if column is not None:
            part[:, :, lane] = frame[:, rows, column]
    return part


def output_parts(rows: TiledAxis, columns: TiledAxis, frame: np.ndarray) -> list[np.ndarray]:
    """Return the part of a layer's output map ``(C, H, W)`` that each pyramid computes."""
    return [
        frame[:, row.window : row.window + row.windows, column.window : column.window + column.windows]
        for row, column in rectangles(rows, columns)
    ]


@st.composite
def tile_buffers(draw, max_layers: int = 2, most: int = 1200) -> PyramidBufferConfig:
    """Draw the tile buffer of any layer of a random group, with any order of steps."""
    layers = draw(chains(max_layers))
    number = draw(st.integers(0, len(layers) - 1))
    rows, columns = draw(tilings(layers))[number]
    layer = layers[number]
    bits, signed = draw(st.integers(2, 9)), draw(st.booleans())
    source = BeatFormat(
        channels=layer.channels,
        height=layer.height,
        width=layer.width,
        lanes=draw(st.integers(1, layer.channels // layer.groups)),
        bits=bits,
        signed=signed,
        pixels=draw(widths(columns)),
        groups=layer.groups,
    )
    channelwise = layer.groups == 1 and draw(st.booleans())
    low = -(1 << (bits - 1)) if signed else 0
    window = LineBufferConfig(
        input=source,
        kernel=layer.window.kernel,
        stride=layer.window.stride,
        padding=layer.window.padding,
        pad_value=draw(st.integers(low, low + (1 << bits) - 1)),
        taps=draw(st.integers(1, layer.taps)),
        output_folds=source.folds if channelwise else layer.groups * draw(st.integers(1, 3)),
        channelwise=channelwise,
        rows=layer.window.extent[0],
        dilation=layer.window.dilation,
    )
    if any(window.padding) and draw(st.booleans()):
        window = replace(window, taps=layer.taps, inside=True)
    config = PyramidBufferConfig(window=window, rows=rows, columns=columns)
    assume(sum(walk_cycles(config)) <= most)
    assume(sum(config.fill_beats) <= most)
    return config


SEEDS = st.integers(0, 2**32)


def _stage(op: Op) -> Stage:
    """Return the stage of a layer that computes tile by tile on the default device."""
    return PyramidTemplate.stage(op, DEFAULT)


@dataclass(frozen=True, eq=False)
class Case:
    """A network and its accelerator in tiles."""

    network: Network
    config: AcceleratorConfig

    def __repr__(self) -> str:
        lines = [f"network of {self.network.input}"]
        for node, layer in zip(self.network.layers, self.config.layers, strict=True):
            assert isinstance(layer, PyramidLayerConfig)
            lines.append(
                f"  {node.name} {node.window} -> {node.output} groups {layer.window.input.groups} "
                f"Tn {layer.window.input.lanes} Tm {layer.compute.lanes} Tk {layer.window.taps} "
                f"FIFO {layer.fifo_lanes} x {layer.fifo_depths[0]} pixels {layer.window.input.pixels}\n"
                f"    {layer.tiles.rows}\n    {layer.tiles.columns}"
            )
        return "\n".join(lines)

    @property
    def tiles(self) -> list:
        return [(layer.tiles.rows, layer.tiles.columns) for layer in self.config.layers]

    def beats_in(self, frames: np.ndarray) -> list[int]:
        """Each pixel once, in the order in which tiles first need them; ``last`` on a frame's last beat."""
        beat, words = self.config.input, []
        for frame in frames:
            words += beats_of(beat, new_parts(*self.tiles[0], frame, beat.pixels))
            words[-1] |= 1 << beat.data_bits
        return words

    def beats_out(self, frames: np.ndarray) -> list[int]:
        """Return the golden model's output beats in tile order, with ``last`` on a frame's last beat."""
        words = []
        for frame in golden.run(self.network, frames):
            words += beats_of(self.config.output, output_parts(*self.tiles[-1], frame))
            words[-1] |= 1 << self.config.output.data_bits
        return words


@st.composite
def cases(draw, *, max_layers: int, depth: str | None = None, max_cycles: int = 800) -> Case:
    network = draw(networks(max_layers=max_layers))
    tiles = draw(tilings(network.layers))
    plans = [replace(plan, tp=1) for plan in draw(unrolls(network, stage=_stage))]
    pixels = draw(widths(tiles[0][1]))
    config = compose(network, plans, pixels, _stage)
    if (depth or draw(st.sampled_from(["deep", "least"]))) == "least":
        depths = [max(layer.fold_beats) + draw(st.integers(0, 3)) for layer in config.layers]
        plans = [replace(plan, fifo_depths=(depth,)) for plan, depth in zip(plans, depths, strict=True)]
        config = compose(network, plans, pixels, _stage)
    case = Case(network, in_tiles(config, tiles))
    assume(max(layer.cycles for layer in case.config.layers) <= max_cycles)
    return case


def simulate(case: Case, frames: np.ndarray, **options) -> tuple[Trace, list[int]]:
    expected = case.beats_out(frames)
    options.setdefault("patience", max(PATIENCE, patience(case.config)))
    return run(Accelerator(case.config), case.beats_in(frames), len(expected), **options), expected


def pools(tip: tuple[int, int] = (2, 2), overlap: str = REUSE, tk: int = 1, pixels: int = 1) -> Case:
    """Two 3 x 3 pools, stride 1, over 1 x 10 x 10, one tap a cycle, ample buffers."""
    maps = [FeatureMap(channels=1, height=size, width=size, type=UINT8) for size in (10, 8, 6)]
    layers = tuple(
        MaxPool(name=f"pool{n}", input=maps[n], output=maps[n + 1], window=Window(kernel=(3, 3))) for n in range(2)
    )
    network = Network(name="pools", layers=layers)
    plan = LayerPlan(name="pool", kind="maxpool", tn=1, tm=1, tk=tk, chain=1, line_rows=3, fifo_depths=(16,))
    config = compose(network, [replace(plan, name=layer.name) for layer in layers], pixels)
    tiles = axes(layers, tip, overlap)
    return Case(network, in_tiles(config, tiles))
