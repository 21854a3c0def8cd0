"""One layer of a pyramid accelerator: reuse buffer and tiles, in front of what a layer has behind its line buffer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from hwgen.errors import ConfigError
from hwgen.gateware.layer import ComponentConfig, LayerConfig
from hwgen.gateware.line_buffer import walk_ports
from hwgen.gateware.pyramid.buffer import PyramidBuffer, PyramidBufferConfig
from hwgen.gateware.pyramid.reuse import ReuseBuffer, ReuseBufferConfig
from hwgen.gateware.pyramid.timing import HALVES, Pyramid, tiles_of, walk_tiles
from hwgen.gateware.stream import Order


@dataclass(frozen=True, kw_only=True)
class PyramidLayerConfig(LayerConfig):
    """The hardware of one layer that works tile by tile.

    Parameters
    ----------
    tiles : PyramidBufferConfig
        In place of the line buffer; of the same window.

    Raises
    ------
    ConfigError
        If the parts don't fit each other.
    """

    tiles: PyramidBufferConfig

    rows_alike = False
    has_line_buffer = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tiles.window != self.window:
            raise ConfigError(f"{self.name}: tiles.window must be the layer's {self.window}, not {self.tiles.window}")

    @cached_property
    def reuse(self) -> ReuseBufferConfig:
        """What is kept of the input."""
        return ReuseBufferConfig(input=self.window.input, rows=self.tiles.rows, columns=self.tiles.columns)

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
            tuple((span.window, span.window + span.windows) for span in axis.walks)
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
    def least_rows(self) -> int:
        """``window.rows`` themselves: no buffer has them."""
        return self.window.rows

    @property
    def pipeline_latency(self) -> int:
        return super().pipeline_latency - self.window.latency + self.tiles.latency

    @cached_property
    def pyramids(self) -> tuple[Pyramid, ...]:
        """The pyramids of a frame, in order."""
        folds = self.window.input.folds
        result, begin = [], 0
        for row in self.tiles.rows.cut(1):
            for column in self.tiles.columns.cut(self.window.input.pixels):
                beats = row.size * column.size * folds
                unused = (row.unused * column.size + column.unused) * folds
                filled, windows = bool(row.used and column.used), row.span.windows * column.span.windows
                result.append(Pyramid(begin, beats, unused * filled, filled, windows))
                begin += beats
        return tuple(result)

    def walk_ends(self, frames: int) -> list[int]:
        """The cycle of each tile's last step if neither neighbour makes the layer wait; 0: a first beat is offered."""
        tiles = tiles_of(self.pyramids, self.window.window_cycles) * frames
        each = len(tiles) // frames
        later = [number // each * self.reuse.cycles for number in range(len(tiles))]
        steps = [
            tile._replace(first=tile.first + before, last=tile.last + before)
            for tile, before in zip(tiles, later, strict=True)
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
        """Cycles after a reset before the first beat can be taken."""
        return self.reuse.start if self.reuse.needed else 0

    @property
    def pyramid_cycles(self) -> int:
        """Cycles that the largest pyramid takes, when others follow it: its tile to pass, or its windows to walk."""
        window = self.window.window_cycles
        return max(max(pyramid.beats, pyramid.windows * window) for pyramid in self.pyramids)

    @cached_property
    def cycles(self) -> int:
        """Cycles a frame takes when neither neighbour makes the layer wait."""
        ends = self.walk_ends(4)
        count = len(self.tiles.tiles)
        return ends[-1] - ends[-1 - count]


class PyramidWindow(wiring.Component):
    """What a line buffer is to a streaming layer: new pixels in, the steps of all windows out.

    Parameters
    ----------
    config : PyramidLayerConfig

    Members
    -------
    i : In(stream)
        What is new in each pyramid.
    room, fold, start, o
        As `PyramidBuffer`'s.
    """

    def __init__(self, config: PyramidLayerConfig):
        self._config = config
        super().__init__(walk_ports(config.window))

    @property
    def config(self) -> PyramidLayerConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        m.submodules.tiles = tiles = PyramidBuffer(self.config.tiles)
        if self.config.reuse.needed:
            m.submodules.reuse = reuse = ReuseBuffer(self.config.reuse)
            connect(m, window=wiring.flipped(self.i), reuse=reuse.i)
            connect(m, reuse=reuse.o, tiles=tiles.i)
        else:
            connect(m, window=wiring.flipped(self.i), tiles=tiles.i)
        connect(m, tiles=tiles.o, window=wiring.flipped(self.o))
        m.d.comb += [tiles.room.eq(self.room), self.fold.eq(tiles.fold), self.start.eq(tiles.start)]
        return m
