"""Layer of a pyramid accelerator: a reuse buffer and a tile buffer replace the line buffer of a streaming layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.layer import ComponentConfig, LayerConfig
from hwgen.gateware.line_buffer import walk_ports
from hwgen.gateware.pyramid.buffer import PyramidBuffer, PyramidBufferConfig
from hwgen.gateware.pyramid.reuse import PyramidReuseBuffer, PyramidReuseBufferConfig
from hwgen.gateware.pyramid.timing import HALVES, PyramidShare, tiles_of, walk_tiles
from hwgen.gateware.stream import Order


@dataclass(frozen=True, kw_only=True)
class PyramidLayerConfig(LayerConfig):
    """Configuration of a layer that is computed tile by tile, in a pyramid accelerator (fused layers per tile).

    Parameters
    ----------
    tiles : PyramidBufferConfig
        Tile buffer, which replaces the line buffer. It must have the layer's window.

    Raises
    ------
    ConfigError
        If the components do not fit each other.
    """

    tiles: PyramidBufferConfig

    rows_alike = False
    has_line_buffer = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tiles.window != self.window:
            raise ConfigError(f"{self.name}: tiles.window must be the layer's {self.window}, not {self.tiles.window}")

    @cached_property
    def reuse(self) -> PyramidReuseBufferConfig:
        """`PyramidReuseBufferConfig` of the buffer that keeps the input pixels that neighbouring tiles share."""
        return PyramidReuseBufferConfig(
            device=self.device, input=self.window.input, rows=self.tiles.rows, columns=self.tiles.columns
        )

    @property
    def walk(self) -> dict[str, ComponentConfig]:
        return {**({"reuse": self.reuse} if self.reuse.needed else {}), "tiles": self.tiles}

    def walk_component(self) -> PyramidWindow:
        return PyramidWindow(self)

    @property
    def input_order(self) -> Order:
        rows, columns = (
            tuple((span.fresh, span.end) for span in axis.spans if span.new)
            for axis in (self.tiles.rows, self.tiles.columns)
        )
        pixels = self.window.input.pixels
        grids = tuple(cut.first % pixels for cut in self.tiles.columns.cut(pixels) if cut.span.new)
        return Order(rows=rows, columns=columns, grids=grids if any(grids) else ())

    @property
    def output_order(self) -> Order:
        rows, columns = (
            tuple((span.window, span.window + span.windows) for span in axis.walked)
            for axis in (self.tiles.rows, self.tiles.columns)
        )
        return Order(rows=rows, columns=columns)

    @property
    def windows(self) -> int:
        return self.tiles.windows

    @property
    def beats_in(self) -> int:
        return self.reuse.beats_in

    @property
    def min_rows(self) -> int:
        """Smallest number of line buffer rows for the planner to try: as configured; no line buffer is built."""
        return self.window.rows

    @property
    def walk_latency(self) -> int:
        return self.tiles.latency

    @cached_property
    def pyramids(self) -> tuple[PyramidShare, ...]:
        """Tuple of the layer's `PyramidShare` of each tile of the fused layers: its input tile's beats, and windows."""
        folds = self.window.input.folds
        result, begin = [], 0
        for row in self.tiles.rows.cut(1):
            for column in self.tiles.columns.cut(self.window.input.pixels):
                beats = row.size * column.size * folds
                unused = (row.unused * column.size + column.unused) * folds
                filled, windows = bool(row.used and column.used), row.span.windows * column.span.windows
                result.append(PyramidShare(begin, beats, unused * filled, filled, windows))
                begin += beats
        return tuple(result)

    def walk_ends(self, frames: int) -> list[int]:
        """Return a list with the cycle of each tile's last window read, over ``frames`` frames, if undisturbed.

        The first beat is valid in cycle 0.
        """
        tiles = tiles_of(self.pyramids, self.window.window_cycles) * frames
        num_tiles = len(tiles) // frames
        delays = [tile_index // num_tiles * self.reuse.cycles for tile_index in range(len(tiles))]
        steps = [
            tile._replace(first=tile.first + delay, last=tile.last + delay)
            for tile, delay in zip(tiles, delays, strict=True)
        ]
        never = -steps[-1].last - self.tiles.release_delay
        _, _, ends = walk_tiles(
            steps,
            [(never, never, never)] * len(steps),
            lag=self.reuse.latency if self.reuse.needed else 0,
            complete=never,
            ends=[never] * HALVES,
            write_delay=self.tiles.write_delay,
            release_delay=self.tiles.release_delay,
        )
        return ends

    @property
    def start_up(self) -> int:
        """Minimum number of cycles from a reset to the first transfer of an input beat of the layer."""
        return self.reuse.start if self.reuse.needed else 0

    @property
    def pyramid_cycles(self) -> int:
        """Largest number of cycles per tile of this layer: the longer of filling it and reading its windows."""
        window = self.window.window_cycles
        return max(max(pyramid.beats, pyramid.windows * window) for pyramid in self.pyramids)

    @cached_property
    def cycles(self) -> int:
        """Number of cycles per frame of this layer, if neither neighbouring layer delays it."""
        ends = self.walk_ends(4)
        count = len(self.tiles.tiles)
        return ends[-1] - ends[-1 - count]


class PyramidWindow(ConfiguredComponent[PyramidLayerConfig]):
    """Window generator of a layer computed tile by tile: accepts new pixels, outputs the taps of all windows.

    It replaces a line buffer.

    Parameters
    ----------
    config : PyramidLayerConfig

    Members
    -------
    i : In(stream)
        New pixels of each pyramid.
    room, fold, start, o
        As in `PyramidBuffer`.
    """

    def __init__(self, config: PyramidLayerConfig):
        super().__init__(config, walk_ports(config.window))

    def elaborate(self, platform):
        m = Module()
        m.submodules.tiles = tiles = PyramidBuffer(self.config.tiles)
        if self.config.reuse.needed:
            m.submodules.reuse = reuse = PyramidReuseBuffer(self.config.reuse)
            connect(m, window=wiring.flipped(self.i), reuse=reuse.i)
            connect(m, reuse=reuse.o, tiles=tiles.i)
        else:
            connect(m, window=wiring.flipped(self.i), tiles=tiles.i)
        connect(m, tiles=tiles.o, window=wiring.flipped(self.o))
        m.d.comb += [tiles.room.eq(self.room), self.fold.eq(tiles.fold), self.start.eq(tiles.start)]
        return m
