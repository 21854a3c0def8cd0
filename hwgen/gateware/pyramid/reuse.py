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
from hwgen.gateware.cost import Cost, Resources, counter_bits, trailing_zeros, uncommon
from hwgen.gateware.lookup import ram_attributes, sparse_table
from hwgen.gateware.naming import named
from hwgen.gateware.ports import read_port, write_port
from hwgen.gateware.pyramid.spans import Axis, Cut
from hwgen.gateware.stream import BeatFormat

#: Beats between a beat that is looked up and the one that was written last: so many are on their way.
IN_FLIGHT = 3


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

    @property
    def distance(self) -> int:
        """From a beat that is kept to one that wants it: so many beats at least, 0 if none is kept."""
        folds = self.input.folds
        distances = []
        if self.right_depth:  # the beats of a row that are kept are read in the same order
            distances.append(min(cut.kept for cut in self.column_cuts if cut.kept) * folds)
        if self.bottom_depth:  # and so are the rows
            rows = min(cut.kept for cut in self.row_cuts if cut.kept)
            distances.append(rows * min(cut.size for cut in self.column_cuts) * folds)
        return min(distances, default=0)

    #: Cycles from a beat being taken to its being offered.
    latency = 1
    #: Cycles from a reset to the first that a beat may be taken in.
    start = IN_FLIGHT - 1

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        width = self.input.data_bits
        depths = [depth for depth in (self.right_depth, self.bottom_depth) if depth]
        for depth in depths:
            cost.ram(width, depth)
        # The last beat, and a word of each band; where a beat may want what is still on its way, the beats that bring
        # it. And the choice of all these.
        near = bool(depths) and self.distance <= IN_FLIGHT
        cost.ff += width * (1 + len(depths) + (IN_FLIGHT - 1) * near) + IN_FLIGHT * len(depths) * near
        cost.lut += width * len(depths) * (1 + near)
        control = self._counter_ff
        cost.ff += control
        cost.lut += 1.54 * control + 0.23 * self._table_entries + 2.8
        return cost.resources

    def component(self) -> ReuseBuffer:
        return ReuseBuffer(self)

    @property
    def _table_entries(self) -> int:
        """Entries of the tables by span that are not the commonest value."""
        total = 0
        for cuts in (self.row_cuts, self.column_cuts):
            total += sum(uncommon(getattr(cut, name) for cut in cuts) for name in ("size", "kept", "unused"))
            total += uncommon(after.kept and after.first - cut.first for cut, after in pairwise(cuts))
        return total

    @property
    def _counter_ff(self) -> int:
        """Registers of the counters."""
        folds = self.input.folds
        total = counter_bits(folds) + 6
        for cuts in (self.row_cuts, self.column_cuts):
            total += counter_bits(len(cuts)) + counter_bits(max(cut.size for cut in cuts))
        if self.right_depth:
            along = counter_bits(max(cut.size for cut in self.column_cuts) * folds)
            total += 1 + counter_bits(self.right_depth + 1) - trailing_zeros(self.right_pitch) + 2 * along
            total += 4 + 2 * counter_bits(self.right_depth)
        if self.bottom_depth:
            across = counter_bits(self.bottom_depth + 1) - trailing_zeros(self.bottom_pitch)
            along = counter_bits(self.bottom_pitch + 1)
            total += 1 + 2 * across + 2 * along - trailing_zeros(folds)
            total += 4 + 2 * counter_bits(self.bottom_depth)
        return total


class _Position:
    """Where in the tiles of one axis a beat lies: the number of its span, and its own in the span.

    The tables have few entries that differ: spans inside the map are alike.
    """

    def __init__(self, cuts: tuple[Cut, ...], name: str):
        self._cuts = cuts
        self.span = Signal(range(len(cuts)), name=f"{name}_span_index")
        self.beat = Signal(range(max(cut.size for cut in cuts)), name=f"{name}_index")
        self.ends = named(self.beat == self._table([cut.size - 1 for cut in cuts]), "is_span_end")
        self.spans_end = named(self.span == len(cuts) - 1, "is_last_span")
        self.old = self._below([cut.kept for cut in cuts])
        self._advances = self._keeps()
        self.passes = self._below(self._advances)
        self.unused = self._below([cut.unused for cut in cuts])
        self.last_used = self.span == max(number for number, cut in enumerate(cuts) if cut.used)
        self.next_is_last = named(self.span == max(len(cuts) - 2, 0), "is_span_before_last")

    def _keeps(self) -> list[int]:
        """By span: its first beat that the next one needs too."""
        keeps = [
            (after.first - cut.first) // cut.pixels if after.kept else cut.size for cut, after in pairwise(self._cuts)
        ]
        return [*keeps, self._cuts[-1].size]

    def first_of_second(self, folds: int) -> int:
        """From where the first span begins to where the second does, if there is one; ``folds`` beats a place."""
        return self._advances[0] * folds if len(self._cuts) > 1 else 0

    def advance_next(self, folds: int) -> Value:
        """The same from the next span to the one behind it."""
        return self._table([beats * folds for beats in (*self._advances[1:], self._advances[0])])

    def _table(self, values: list[int]) -> Value:
        return sparse_table(self.span, dict(enumerate(values)))

    def _below(self, limits: list[int]) -> Value:
        """Whether the beat comes before its span's limit."""
        if not any(limits):
            return Const(0, 1)
        return named(self.beat < self._table(limits), "is_below_limit")

    def step(self, m: Module) -> None:
        """To the next beat; at the end of the span back to the first."""
        m.d.sync += self.beat.eq(Mux(self.ends, 0, self.beat + 1))

    def step_span(self, m: Module) -> None:
        m.d.sync += self.span.eq(Mux(self.spans_end, 0, self.span + 1))


def _along(m: Module, name: str, value: Value, moves: Value, *, reset_less: bool = True) -> list[Value]:
    """What belongs to a beat, stage by stage: where it is looked up, read, at the entry, and in the register."""
    values = [value]
    for stage in range(1, IN_FLIGHT + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        with m.If(moves):
            m.d.sync += register.eq(values[-1])
        values.append(register)
    return values


class _Band:
    """A memory that is read at one place and written at another while beats go by.

    A word is looked up two beats before the one that may want it stands at the entry: there it comes from the memory's
    output register. Where it may be what a beat in flight has yet to write, ``from_beat`` tells of the beat at the
    entry which one before it that is.
    """

    def __init__(self, m: Module, name: str, width: int, depth: int):
        self._m, self._name = m, name
        storage = memory.Memory(shape=width, depth=depth, init=[], attrs=ram_attributes(depth))
        m.submodules[name] = storage
        self._write, self._read = write_port(storage), read_port(storage)
        self.word = Signal(width, name=f"{name}_word", reset_less=True)
        self.from_beat: list[Value] = []

    def connect(
        self, *, moves: Value, leaves: Value, value: Value, near: bool, read: Value, write: Value, stores: Value
    ) -> None:
        """With ``moves`` a beat that reads at ``read`` and, if ``stores``, writes at ``write`` is looked up.

        ``value`` of the beat in the register is written when it ``leaves``; ``near``: it may be wanted soon after.
        """
        m, name = self._m, self._name
        stored = _along(m, f"{name}_write_enable", stores, moves, reset_less=False)
        written = _along(m, f"{name}_write_address", Value.cast(write)[: len(self._write.addr)], moves)
        m.d.comb += [
            self._read.en.eq(moves),
            self._read.addr.eq(read),
            self._write.en.eq(leaves & stored[-1]),
            self._write.addr.eq(written[-1]),
            self._write.data.eq(value),
        ]
        with m.If(moves):
            m.d.sync += self.word.eq(self._read.data)
        if near:
            for before in range(1, IN_FLIGHT + 1):
                hit = stored[before] & (written[before] == self._read.addr)
                self.from_beat.append(_along(m, f"{name}_is_from_beat_{before}", hit, moves)[-2])


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
        One beat of a tile a cycle, kept or new, across tiles and frames; none in the first ``config.start`` of all. A
        new one is offered ``config.latency`` cycles after it was taken.
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
        fold = Signal(range(config.input.folds), name="fold_index")

        # A beat is looked up, read, stands at the entry, and is offered from the register.
        moves = Signal(name="pipeline_advance")  # all of them by one stage
        step = Signal(name="register_load")  # a beat of the tile enters the register
        leaves = Signal(name="register_release")
        full = Signal(name="is_register_full")
        value = Signal(config.input.data_bits, name="register_beat", reset_less=True)
        at_entry = _along(m, "has_beat", Const(1), moves, reset_less=False)[-2]
        comes_in = _along(m, "is_input", named(~row.old & ~column.old, "is_new_pixel"), moves)[-2]
        emits = _along(m, "is_output", ~row.unused & ~column.unused, moves)[-1]
        m.d.comb += [
            leaves.eq(full & (self.o.ready | ~emits)),
            self.i.ready.eq(at_entry & comes_in & (~full | leaves)),
            step.eq(at_entry & (~full | leaves) & (~comes_in | self.i.valid)),
            moves.eq(step | ~at_entry),
            self.o.valid.eq(full & emits),
        ]
        pixel_ends = Signal(name="pixel_end")
        row_ends = Signal(name="row_end")
        tile_ends = Signal(name="tile_end")
        m.d.comb += [
            pixel_ends.eq(moves & (fold == config.input.folds - 1)),
            row_ends.eq(pixel_ends & column.ends),
            tile_ends.eq(row_ends & row.ends),
        ]
        with m.If(moves):
            m.d.sync += fold.eq(Mux(pixel_ends, 0, fold + 1))
        with m.If(step):
            m.d.sync += full.eq(1)
        with m.Elif(leaves):
            m.d.sync += full.eq(0)
        with m.If(pixel_ends):
            column.step(m)
        with m.If(row_ends):
            row.step(m)
        with m.If(tile_ends):
            column.step_span(m)
            with m.If(column.spans_end):
                row.step_span(m)

        last = _along(m, "is_last_beat", tile_ends & row.last_used & column.last_used, moves)[-1]
        m.d.comb += [self.o.payload.data.eq(value), self.o.payload.last.eq(last)]
        bands = []
        if config.bottom_depth:
            old_row = _along(m, "is_kept_row", row.old, moves)[-2]
            bands.append((old_row, *self._elaborate_bottom(m, row, column, moves, row_ends, tile_ends)))
        if config.right_depth:
            bands.append((~comes_in, *self._elaborate_right(m, row, column, moves, row_ends, tile_ends)))
        near = config.distance <= IN_FLIGHT
        for _, band, places in bands:
            band.connect(moves=moves, leaves=leaves, value=value, near=near, **places)
        chosen = Signal.like(value, name="selected_beat")
        m.d.comb += chosen.eq(self.i.payload.data)
        before = [value, *_along(m, "earlier_beat", value, moves)[1:IN_FLIGHT]] if near else []
        for wanted, band, _ in reversed(bands):
            with m.If(wanted):
                m.d.comb += chosen.eq(band.word)
                for hit, beat in reversed(list(zip(band.from_beat, before, strict=False))):
                    with m.If(hit):
                        m.d.comb += chosen.eq(beat)
        with m.If(step):
            m.d.sync += value.eq(chosen)
        return m

    def _elaborate_right(self, m, row, column, step, row_ends, tile_ends) -> tuple[_Band, dict[str, Value]]:
        """Kept columns of new rows, by row of the pyramid; the first kept column first."""
        config = self.config
        base = Signal(range(config.right_depth + 1), name="right_row_address")
        read = Signal(range(max(cut.size for cut in config.column_cuts) * config.input.folds), name="right_read_offset")
        write = Signal(read.shape(), name="right_write_offset")
        with m.If(step):
            m.d.sync += read.eq(Mux(row_ends, 0, read + 1))
            with m.If(row_ends):
                m.d.sync += write.eq(0)
            with m.Elif(~column.passes):
                m.d.sync += write.eq(write + 1)
        with m.If(row_ends & ~row.old):
            m.d.sync += base.eq(Mux(tile_ends, 0, base + config.right_pitch))
        band = _Band(m, "right", config.input.data_bits, config.right_depth)
        return band, {"read": base + read, "write": base + write, "stores": ~row.old & ~column.passes}

    def _elaborate_bottom(self, m, row, column, step, row_ends, tile_ends) -> tuple[_Band, dict[str, Value]]:
        """Kept rows, the first kept row first; each as wide as the map."""
        config = self.config
        pitch = config.bottom_pitch
        first = Signal(range(pitch + 1), name="bottom_tile_offset")  # beat of the tile's first column
        place = Signal(range(pitch + 1), name="bottom_column_offset")
        read = Signal(range(config.bottom_depth + 1), name="bottom_read_row_address")
        write = Signal(range(config.bottom_depth + 1), name="bottom_write_row_address")
        # Of the next tile, so that a tile's end waits for no sum.
        folds = config.input.folds
        following = Signal(range(pitch + 1), name="next_bottom_tile_offset", init=column.first_of_second(folds))
        with m.If(tile_ends):
            m.d.sync += [
                first.eq(following),
                following.eq(Mux(column.next_is_last, 0, following + column.advance_next(folds))),
            ]
        with m.If(step):
            m.d.sync += place.eq(Mux(row_ends, Mux(tile_ends, following, first), place + 1))
        with m.If(tile_ends):
            m.d.sync += [read.eq(0), write.eq(0)]
        with m.Elif(row_ends):
            with m.If(row.old):
                m.d.sync += read.eq(read + pitch)
            with m.If(~row.passes):
                m.d.sync += write.eq(write + pitch)
        band = _Band(m, "bottom", config.input.data_bits, config.bottom_depth)
        return band, {"read": read + place, "write": write + place, "stores": ~row.passes & column.passes}
