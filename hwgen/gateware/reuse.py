"""Reuse buffers: what neighbouring pyramids share, kept on chip (Alwani 2015, section 3.4.1, listings 3.2 and 3.3).

Of every tile of a layer's input two bands are kept: the right columns for the next pyramid, and the bottom rows, the
map's whole width of them, for the next row of pyramids. The next tile is put together of both bands and of what
comes in, in raster order:

====================  ====================  ====================
pixel of the tile     in kept columns       in new columns
====================  ====================  ====================
in a kept row         bottom band           bottom band
in a new row          right band            comes in
====================  ====================  ====================

On its way through, a pixel is stored for later: in the right band while the next pyramid needs its column, then in the
bottom band if the next row of pyramids needs its row. What it overwrites there has been read in the same tile or is
not needed any more, so the bands are as large as what must be kept and no larger.

A beat of several pixels passes as a whole: it counts as kept if one of its pixels is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import ram_attributes, sparse_table
from hwgen.gateware.spans import Axis, Cut
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class ReuseBufferConfig:
    """The bands kept of one layer's input.

    Parameters
    ----------
    input : BeatFormat
        A beat of the map.
    rows, columns : Axis
        The tiles.

    Raises
    ------
    ConfigError
        If the axes are not the map's, rows are kept whose columns come in twice, or columns don't come in whole beats
        where some are kept.
    """

    input: BeatFormat
    rows: Axis
    columns: Axis

    def __post_init__(self) -> None:
        if (self.rows.size, self.columns.size) != (self.input.height, self.input.width):
            raise ConfigError(
                f"rows and columns must be those of the {self.input.height} x {self.input.width} map, "
                f"not {self.rows.size!r} x {self.columns.size!r}"
            )
        if self.rows.kept and self.columns.overlaps:
            raise ConfigError("columns must not come in twice where rows are kept: what is kept of them would be lost")
        self.columns.cut(self.input.pixels)

    @cached_property
    def row_cuts(self) -> tuple[Cut, ...]:
        """The rows of the tiles that have any."""
        return tuple(cut for cut in self.rows.cut(1) if cut.size)

    @cached_property
    def column_cuts(self) -> tuple[Cut, ...]:
        """The beats of a row of each tile that has any."""
        return tuple(cut for cut in self.columns.cut(self.input.pixels) if cut.size)

    @property
    def needed(self) -> bool:
        """Whether it does anything: keeps beats, or holds back some that no window needs. If not, a wire does."""
        return any(cut.kept or cut.unused for cut in self.row_cuts + self.column_cuts)

    @property
    def bottom_words(self) -> int:
        """Values in the band at the bottom: ``N (K - S) W``."""
        return self.input.channels * self.rows.kept * self.input.width

    @property
    def right_words(self) -> int:
        """Values in the band at the right: ``N (K - S)`` for each new row of a pyramid."""
        return self.input.channels * self.columns.kept * self.rows.new

    @property
    def words(self) -> int:
        """Values kept, by the accounting of the thesis's exploration tool (Fig. 4.1).

        Beats of several pixels are kept whole; the others of their pixels don't count here.
        """
        return self.bottom_words + self.right_words

    @property
    def bottom_depth(self) -> int:
        """Beats in the band at the bottom."""
        return self.rows.kept * self.bottom_pitch

    @property
    def bottom_pitch(self) -> int:
        """Beats of a row of the map, those behind the last tile included."""
        behind = self.input.width - self.column_cuts[-1].span.end
        steps = sum(cut.new for cut in self.column_cuts) - (-behind // self.input.pixels)
        return steps * self.input.folds

    @property
    def right_depth(self) -> int:
        """Beats in the band at the right."""
        return self.rows.new * self.right_pitch

    @property
    def right_pitch(self) -> int:
        """Beats of a row of the band at the right."""
        return max(cut.kept for cut in self.column_cuts) * self.input.folds

    @property
    def memory_bits(self) -> int:
        """Bits of both bands, all lanes of their beats included."""
        return (self.bottom_depth + self.right_depth) * self.input.data_bits

    @property
    def beats_in(self) -> int:
        """Beats that come in, a frame."""
        return self.rows.pixels * sum(cut.new for cut in self.column_cuts) * self.input.folds

    @cached_property
    def beats_out(self) -> int:
        """Beats that leave, a frame."""
        rows, columns = (sum(cut.used for cut in cuts) for cuts in (self.row_cuts, self.column_cuts))
        return rows * columns * self.input.folds

    @property
    def cycles(self) -> int:
        """Cycles a frame takes when neither end stalls: one for each beat of each tile, kept or new."""
        rows, columns = (sum(cut.size for cut in cuts) for cuts in (self.row_cuts, self.column_cuts))
        return rows * columns * self.input.folds

    #: Cycles from a beat being taken to its being offered.
    latency = 1


class _Position:
    """Where in the tiles of one axis a beat lies: the number of its span, and its own in the span.

    The tables have few entries that differ: spans inside the map are alike.
    """

    def __init__(self, cuts: tuple[Cut, ...], name: str):
        self._cuts = cuts
        self.span = Signal(range(len(cuts)), name=f"{name}_span")
        self.beat = Signal(range(max(cut.size for cut in cuts)), name=name)
        self.ends = self.beat == self._table([cut.size - 1 for cut in cuts])
        self.spans_end = self.span == len(cuts) - 1
        self.old = self._below([cut.kept for cut in cuts])
        self.passes = self._below(self._keeps())
        self.unused = self._below([cut.unused for cut in cuts])
        self.last_used = self.span == max(number for number, cut in enumerate(cuts) if cut.used)
        self.advance = self._table(self._keeps())

    def _keeps(self) -> list[int]:
        """By span: its first beat that the next one needs too."""
        keeps = [
            (after.first - cut.first) // cut.pixels if after.kept else cut.size for cut, after in pairwise(self._cuts)
        ]
        return [*keeps, self._cuts[-1].size]

    def _table(self, values: list[int]) -> Value:
        return sparse_table(self.span, dict(enumerate(values)))

    def _below(self, limits: list[int]) -> Value:
        """Whether the beat comes before its span's limit."""
        if not any(limits):
            return Const(0, 1)
        return self.beat < self._table(limits)

    def step(self, m: Module) -> None:
        """To the next beat; at the end of the span back to the first."""
        m.d.sync += self.beat.eq(Mux(self.ends, 0, self.beat + 1))

    def step_span(self, m: Module) -> None:
        m.d.sync += self.span.eq(Mux(self.spans_end, 0, self.span + 1))


class _Band:
    """A memory that is read at one place and written at another while beats go by.

    A beat may read what the one just before it wrote (the last of one tile, the first of the next): then it gets
    that straight from the register.
    """

    def __init__(self, m: Module, name: str, width: int, depth: int):
        self._m, self._name = m, name
        storage = memory.Memory(shape=width, depth=depth, init=[], attrs=ram_attributes(depth))
        m.submodules[name] = storage
        self._write, self._read = storage.write_port(), storage.read_port()
        self.value = Signal(width, name=f"{name}_value")

    def connect(self, *, enter: Value, read: Value, write: Value, stores: Value, value: Value, leave: Value) -> None:
        """``enter``: a beat that reads at ``read`` and, if ``stores``, writes at ``write`` comes into the pipeline's
        register; ``leave``: it leaves, and its ``value`` is written."""
        m, name = self._m, self._name
        stores_1 = Signal(name=f"{name}_stores_1")
        write_1 = Signal(self._write.addr.shape(), name=f"{name}_write_1", reset_less=True)
        forward = Signal(name=f"{name}_forward")
        forwarded = Signal(self.value.shape(), name=f"{name}_forwarded", reset_less=True)
        m.d.comb += [
            self._read.en.eq(enter),
            self._read.addr.eq(read),
            self._write.en.eq(leave & stores_1),
            self._write.addr.eq(write_1),
            self._write.data.eq(value),
            self.value.eq(Mux(forward, forwarded, self._read.data)),
        ]
        with m.If(enter):
            m.d.sync += [
                stores_1.eq(stores),
                write_1.eq(write),
                forward.eq(self._write.en & (write_1 == self._read.addr)),
                forwarded.eq(value),
            ]


class ReuseBuffer(wiring.Component):
    """New pixels in, whole tiles out.

    Parameters
    ----------
    config : ReuseBufferConfig

    Members
    -------
    i : In(stream)
        What is new in each pyramid, row by row; nothing where that is nothing. ``last`` is counted, not read.
    o : Out(stream)
        The beats of each pyramid's tile that windows need, row by row; ``last`` on the last beat of a frame. No beat
        for a pyramid without a window.

    Latency and throughput
        One beat of a tile a cycle, kept or new, across tiles and frames. A new one is offered ``config.latency`` cycles
        after it was taken.
    """

    def __init__(self, config: ReuseBufferConfig):
        self._config = config
        super().__init__({"i": In(config.input.signature), "o": Out(config.input.signature)})

    @property
    def config(self) -> ReuseBufferConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        row, column = _Position(config.row_cuts, "row"), _Position(config.column_cuts, "column")
        fold = Signal(range(config.input.folds))

        comes_in = Signal()
        step = Signal()  # a beat of the tile enters the register
        leave = Signal()
        full = Signal()
        emits = Signal()  # of the beat in the register
        m.d.comb += [
            comes_in.eq(~row.old & ~column.old),
            leave.eq(full & (self.o.ready | ~emits)),
            self.i.ready.eq(comes_in & (~full | leave)),
            step.eq((~full | leave) & (~comes_in | self.i.valid)),
            self.o.valid.eq(full & emits),
        ]
        pixel_ends = Signal()
        row_ends = Signal()
        tile_ends = Signal()
        m.d.comb += [
            pixel_ends.eq(step & (fold == config.input.folds - 1)),
            row_ends.eq(pixel_ends & column.ends),
            tile_ends.eq(row_ends & row.ends),
        ]
        with m.If(step):
            m.d.sync += [fold.eq(Mux(pixel_ends, 0, fold + 1)), full.eq(1)]
        with m.Elif(leave):
            m.d.sync += full.eq(0)
        with m.If(pixel_ends):
            column.step(m)
        with m.If(row_ends):
            row.step(m)
        with m.If(tile_ends):
            column.step_span(m)
            with m.If(column.spans_end):
                row.step_span(m)

        value = Signal(config.input.data_bits)
        new = Signal(config.input.data_bits, reset_less=True)
        comes_in_1 = Signal(reset_less=True)
        old_row_1 = Signal(reset_less=True)
        last_1 = Signal(reset_less=True)
        with m.If(step):
            m.d.sync += [
                new.eq(self.i.payload.data),
                comes_in_1.eq(comes_in),
                old_row_1.eq(row.old),
                emits.eq(~row.unused & ~column.unused),
                last_1.eq(tile_ends & row.last_used & column.last_used),
            ]
        m.d.comb += [
            value.eq(new),
            self.o.payload.data.eq(value),
            self.o.payload.last.eq(last_1),
        ]
        if config.right_depth:
            right = self._elaborate_right(m, row, column, step, row_ends, tile_ends, value, leave)
            with m.If(~comes_in_1):
                m.d.comb += value.eq(right.value)
        if config.bottom_depth:
            bottom = self._elaborate_bottom(m, row, column, step, row_ends, tile_ends, value, leave)
            with m.If(old_row_1):
                m.d.comb += value.eq(bottom.value)
        return m

    def _elaborate_right(self, m, row, column, step, row_ends, tile_ends, value, leave) -> _Band:
        """Kept columns of new rows, by row of the pyramid; the first kept column first."""
        config = self.config
        base = Signal(range(config.right_depth + 1), name="right_row")
        read = Signal(range(max(cut.size for cut in config.column_cuts) * config.input.folds), name="right_read")
        write = Signal(read.shape(), name="right_write")
        with m.If(step):
            m.d.sync += read.eq(Mux(row_ends, 0, read + 1))
            with m.If(row_ends):
                m.d.sync += write.eq(0)
            with m.Elif(~column.passes):
                m.d.sync += write.eq(write + 1)
        with m.If(row_ends & ~row.old):
            m.d.sync += base.eq(Mux(tile_ends, 0, base + config.right_pitch))
        band = _Band(m, "right", config.input.data_bits, config.right_depth)
        band.connect(
            enter=step,
            read=base + read,
            write=base + write,
            stores=~row.old & ~column.passes,
            value=value,
            leave=leave,
        )
        return band

    def _elaborate_bottom(self, m, row, column, step, row_ends, tile_ends, value, leave) -> _Band:
        """Kept rows, the first kept row first; each as wide as the map."""
        config = self.config
        pitch = config.bottom_pitch
        first = Signal(range(pitch + 1), name="bottom_tile")  # beat of the tile's first column
        place = Signal(range(pitch + 1), name="bottom_column")
        read = Signal(range(config.bottom_depth + 1), name="bottom_read")
        write = Signal(range(config.bottom_depth + 1), name="bottom_write")
        following = Signal(range(pitch + 1), name="bottom_following")
        m.d.comb += following.eq(first)
        with m.If(tile_ends):
            m.d.comb += following.eq(Mux(column.spans_end, 0, first + column.advance * config.input.folds))
            m.d.sync += first.eq(following)
        with m.If(step):
            m.d.sync += place.eq(Mux(row_ends, following, place + 1))
        with m.If(tile_ends):
            m.d.sync += [read.eq(0), write.eq(0)]
        with m.Elif(row_ends):
            with m.If(row.old):
                m.d.sync += read.eq(read + pitch)
            with m.If(~row.passes):
                m.d.sync += write.eq(write + pitch)
        band = _Band(m, "bottom", config.input.data_bits, config.bottom_depth)
        band.connect(
            enter=step,
            read=read + place,
            write=write + place,
            stores=~row.passes & column.passes,
            value=value,
            leave=leave,
        )
        return band
