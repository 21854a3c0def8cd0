"""Reuse buffers: on-chip storage of the input pixels that neighbouring tiles share (Alwani 2015, section 3.4.1).

The module implements listings 3.2 and 3.3. Two bands of every input tile of a layer are kept. The right columns are
kept for the next pyramid. The bottom rows are kept for the next row of pyramids, in the full width of the map. The next
tile consists of both bands and of the new pixels, in raster order:

====================  ====================  ====================
pixel of the tile     in kept columns       in new columns
====================  ====================  ====================
in a kept row         bottom band           bottom band
in a new row          right band            new pixel
====================  ====================  ====================

The buffer stores a pixel that passes through it. The right band stores the pixel while the next pyramid needs its
column. The bottom band stores the pixel if the next row of pyramids needs its row. A stored pixel overwrites a pixel
that has already been read for the same tile, or that is not needed any more. The bands are therefore exactly as large
as the pixels to keep.

A beat of several pixels is stored as a whole: it counts as kept if one of its pixels is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits, num_uncommon, trailing_zeros
from hwgen.gateware.lookup import named, ram, read_port, sparse_table, write_port
from hwgen.gateware.nest import Loop
from hwgen.gateware.pyramid.spans import Cut, TiledAxis
from hwgen.gateware.stream import BeatFormat

#: Number of beats in the reuse buffer's pipeline that are not yet written to memory when a kept beat is read.
IN_FLIGHT = 3


@dataclass(frozen=True, kw_only=True)
class PyramidReuseBufferConfig(OnDevice):
    """Configuration of `PyramidReuseBuffer`, which keeps a layer's input pixels that neighbouring tiles share.

    Parameters
    ----------
    input : BeatFormat
        Format of the map's beats.
    rows, columns : TiledAxis
        Spans of rows and columns of the tiles.

    Raises
    ------
    ConfigError
        If the axes do not match the map; if rows are kept and columns are new in more than one pyramid; or if tiles
        that keep columns of each other do not consist of whole beats.
    """

    input: BeatFormat
    rows: TiledAxis
    columns: TiledAxis

    def __post_init__(self) -> None:
        if (self.rows.size, self.columns.size) != (self.input.height, self.input.width):
            raise ConfigError(
                f"rows and columns must equal the map's, {self.input.height} x {self.input.width}, "
                f"not {self.rows.size!r} x {self.columns.size!r}"
            )
        if self.rows.kept and self.columns.overlaps:
            raise ConfigError("columns must not come in twice where rows are kept: what is kept of them would be lost")
        self.columns.cut(self.input.pixels)

    @cached_property
    def row_cuts(self) -> tuple[Cut, ...]:
        """Ranges of map rows (`Cut` tuple) that successive input tiles cover, with rows kept from the previous tile."""
        return tuple(cut for cut in self.rows.cut(1) if cut.size)

    @cached_property
    def column_cuts(self) -> tuple[Cut, ...]:
        """Ranges of map columns (`Cut` tuple), in beats, that successive input tiles cover, with the kept columns."""
        return tuple(cut for cut in self.columns.cut(self.input.pixels) if cut.size)

    @property
    def needed(self) -> bool:
        """Whether the layer needs a reuse buffer, to keep beats for later tiles or drop beats that no window needs."""
        return any(cut.kept or cut.unused for cut in self.row_cuts + self.column_cuts)

    @property
    def bottom_words(self) -> int:
        """Number of values in the rows kept for the next row of tiles (bottom band): ``N (K - S) W``."""
        return self.input.channels * self.rows.kept * self.input.width

    @property
    def right_words(self) -> int:
        """Number of values in the columns kept for the next tile to the right (right band).

        These are ``N (K - S)`` for each new row of a pyramid.
        """
        return self.input.channels * self.columns.kept * self.rows.new

    @property
    def words(self) -> int:
        """Number of values that the reuse buffer keeps, as Alwani's exploration tool counts them (2015, Fig. 4.1).

        A beat of several pixels is stored as a whole. Only its kept pixels count here.
        """
        return self.bottom_words + self.right_words

    @property
    def bottom_depth(self) -> int:
        """Depth, as a number of beats, of the memory for rows kept for the next row of tiles (bottom band)."""
        return self.rows.kept * self.bottom_pitch

    @property
    def bottom_pitch(self) -> int:
        """Number of beats per row in the memory for rows that are kept for the next row of tiles.

        The columns of the map after the last tile are included.
        """
        behind = self.input.width - self.column_cuts[-1].span.end
        steps = sum(cut.new for cut in self.column_cuts) - (-behind // self.input.pixels)
        return steps * self.input.folds

    @property
    def right_depth(self) -> int:
        """Depth, as a number of beats, of the memory for columns kept for the next tile (right band)."""
        return self.rows.new * self.right_pitch

    @property
    def right_pitch(self) -> int:
        """Number of beats per row in the memory for columns that are kept for the next tile."""
        return max(cut.kept for cut in self.column_cuts) * self.input.folds

    @property
    def memory_bits(self) -> int:
        """Number of memory bits of the reuse buffer, for kept rows and kept columns, as whole beats."""
        return (self.bottom_depth + self.right_depth) * self.input.data_bits

    @property
    def beats_in(self) -> int:
        """Number of beats per frame that the reuse buffer receives: the new pixels of all tiles."""
        return self.rows.pixels * sum(cut.new for cut in self.column_cuts) * self.input.folds

    @cached_property
    def beats_out(self) -> int:
        """Number of beats per frame that the reuse buffer sends: all tiles' beats that windows need."""
        rows, columns = (sum(cut.used for cut in cuts) for cuts in (self.row_cuts, self.column_cuts))
        return rows * columns * self.input.folds

    @property
    def cycles(self) -> int:
        """Cycles per frame of the reuse buffer without stalls: one for each beat of each tile, kept or new."""
        rows, columns = (sum(cut.size for cut in cuts) for cuts in (self.row_cuts, self.column_cuts))
        return rows * columns * self.input.folds

    @property
    def distance(self) -> int:
        """Minimum number of beats between the storage of a kept beat and its read for a later tile.

        It is 0 if no beat is kept.
        """
        folds = self.input.folds
        distances = []
        if self.right_depth:  # the kept beats of a row are read in order of writing
            distances.append(min(cut.kept for cut in self.column_cuts if cut.kept) * folds)
        if self.bottom_depth:  # the kept rows are read in order of writing
            rows = min(cut.kept for cut in self.row_cuts if cut.kept)
            distances.append(rows * min(cut.size for cut in self.column_cuts) * folds)
        return min(distances, default=0)

    #: Latency in cycles, from the transfer of a new beat at the input to its first valid cycle at the output.
    latency = 1
    #: Minimum number of cycles from a reset to the first transfer of an input beat.
    start = IN_FLIGHT - 1

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        width = self.input.data_bits
        depths = [depth for depth in (self.right_depth, self.bottom_depth) if depth]
        for depth in depths:
            cost.ram(width, depth)
        # The last beat, and a word of each band. If a beat can read a beat in flight, also registers of the beats in
        # flight, and the multiplexer of these sources.
        near = bool(depths) and self.distance <= IN_FLIGHT
        cost.ff += width * (1 + len(depths) + (IN_FLIGHT - 1) * near) + IN_FLIGHT * len(depths) * near
        cost.lut += width * len(depths) * (1 + near)
        control = self._counter_ff
        cost.ff += control
        cost.lut += 1.54 * control + 0.23 * self._table_entries + 2.8
        return cost.resources

    def component(self) -> PyramidReuseBuffer:
        return PyramidReuseBuffer(self)

    @property
    def _table_entries(self) -> int:
        """Number of entries in the tables of tile sizes that differ from their table's commonest value."""
        total = 0
        for cuts in (self.row_cuts, self.column_cuts):
            total += sum(num_uncommon(getattr(cut, name) for cut in cuts) for name in ("size", "kept", "unused"))
            total += num_uncommon(after.kept and after.first - cut.first for cut, after in pairwise(cuts))
        return total

    @property
    def _counter_ff(self) -> int:
        """Number of flip-flops in the reuse buffer's position counters and address registers."""
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
    """Counters of the addressed beat on one axis: index of its tile, and index of the beat in the tile.

    The tables have few different entries, because spans inside the map are equal.
    """

    def __init__(self, cuts: tuple[Cut, ...], name: str):
        self._cuts = cuts
        self.span = Loop(f"{name}_span_index", range(len(cuts)))
        last_beat = self._table([cut.size - 1 for cut in cuts])
        self.beat = Loop(f"{name}_index", range(max(cut.size for cut in cuts)), last=last_beat)
        self.old = self._is_below_limit([cut.kept for cut in cuts])
        self._advances = self._first_kept_beats()
        self.passes = self._is_below_limit(self._advances)
        self.unused = self._is_below_limit([cut.unused for cut in cuts])
        self.last_used = self.span.index == max(span_index for span_index, cut in enumerate(cuts) if cut.used)
        self.next_is_last = named(self.span.index == max(len(cuts) - 2, 0), "is_span_before_last")

    def _first_kept_beats(self) -> list[int]:
        """Return a list: per tile, the index in it of the first beat that the next tile keeps; its size if none."""
        keeps = [
            (after.first - cut.first) // cut.pixels if after.kept else cut.size for cut, after in pairwise(self._cuts)
        ]
        return [*keeps, self._cuts[-1].size]

    def second_tile_offset(self, folds: int) -> int:
        """Return the distance in beats on this axis from the first tile to the second; 0 if there is only one.

        ``folds`` is the number of beats per pixel.
        """
        return self._advances[0] * folds if len(self._cuts) > 1 else 0

    def advance_next(self, folds: int) -> Value:
        """Return the distance in beats from the next tile's start to its successor's on this axis, as a signal."""
        return self._table([beats * folds for beats in (*self._advances[1:], self._advances[0])])

    def _table(self, values: list[int]) -> Value:
        return sparse_table(self.span.index, dict(enumerate(values)))

    def _is_below_limit(self, limits: list[int]) -> Value:
        """Return a bit: the beat's index in its tile is below this tile's entry of ``limits``."""
        if not any(limits):
            return Const(0, 1)
        return named(self.beat.index < self._table(limits), "is_below_limit")


def _delay_by_stage(m: Module, name: str, value: Value, moves: Value, *, reset_less: bool = True) -> list[Value]:
    """Add registers that delay ``value`` along a pipeline that advances with ``moves``; return a list, by stage.

    The stages are: address (``value`` itself), memory read, entry, output register.
    """
    values = [value]
    for stage in range(1, IN_FLIGHT + 1):
        register = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
        with m.If(moves):
            m.d.sync += register.eq(values[-1])
        values.append(register)
    return values


class _Band:
    """Memory of a reuse buffer for kept rows or columns (a band), with its read register and forwarding flags.

    A word is addressed two beats before its reader reaches the entry, and is then in the memory's output register. If a
    beat in flight still has to write this word, ``from_beat`` tells the beat at the entry which beat has the word.
    """

    def __init__(self, m: Module, device: Device, name: str, width: int, depth: int):
        self._m, self._name = m, name
        storage = ram(device, width, depth)
        m.submodules[name] = storage
        self._write, self._read = write_port(storage), read_port(storage)
        self.word = Signal(width, name=f"{name}_word", reset_less=True)
        self.from_beat: list[Value] = []

    def connect(
        self, *, moves: Value, leaves: Value, value: Value, near: bool, read: Value, write: Value, stores: Value
    ) -> None:
        """Connect the band's memory to the pipeline; if ``near``, add flags that forward words not yet written.

        Parameters
        ----------
        moves : Value
            Whether the pipeline advances, and a beat is addressed.
        leaves : Value
            Whether the beat in the output register leaves, and is written.
        value : Value
            Beat in the output register.
        near : bool
            Whether a beat can read a beat that is still in flight.
        read, write : Value
            Read address and write address of the addressed beat.
        stores : Value
            Whether the addressed beat must be stored.
        """
        m, name = self._m, self._name
        stored = _delay_by_stage(m, f"{name}_write_enable", stores, moves, reset_less=False)
        written = _delay_by_stage(m, f"{name}_write_address", Value.cast(write)[: len(self._write.addr)], moves)
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
                self.from_beat.append(_delay_by_stage(m, f"{name}_is_from_beat_{before}", hit, moves)[-2])


class PyramidReuseBuffer(ConfiguredComponent[PyramidReuseBufferConfig]):
    """Reuse buffer of a layer's input: receives new pixels, adds pixels kept from earlier tiles, sends whole tiles.

    Parameters
    ----------
    config : PyramidReuseBufferConfig

    Members
    -------
    i : In(stream)
        New pixels of each pyramid, row by row. A pyramid without new pixels has no beat. ``last`` is ignored; beats are
        counted.
    o : Out(stream)
        Beats of each pyramid's tile that windows need, row by row. ``last`` marks the last beat of a frame. A pyramid
        without windows has no beat.

    Latency and throughput
        One beat of a tile per cycle, kept or new, across tiles and frames. No beat is accepted in the first
        ``config.start`` cycles after a reset. A new beat is valid at the output ``config.latency`` cycles after its
        transfer.
    """

    def __init__(self, config: PyramidReuseBufferConfig):
        super().__init__(config, {"i": In(config.input.signature), "o": Out(config.input.signature)})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        row, column = _Position(config.row_cuts, "row"), _Position(config.column_cuts, "column")
        fold = Loop("fold_index", range(config.input.folds))

        # Pipeline stages of a beat: address, memory read, entry, output register.
        moves = Signal(name="pipeline_advance")  # all stages advance
        step = Signal(name="register_load")  # a beat of the tile enters the output register
        leaves = Signal(name="register_release")
        full = Signal(name="is_register_full")
        value = Signal(config.input.data_bits, name="register_beat", reset_less=True)
        at_entry = _delay_by_stage(m, "has_beat", Const(1), moves, reset_less=False)[-2]
        comes_in = _delay_by_stage(m, "is_input", named(~row.old & ~column.old, "is_new_pixel"), moves)[-2]
        emits = _delay_by_stage(m, "is_output", ~row.unused & ~column.unused, moves)[-1]
        m.d.comb += [
            leaves.eq(full & (self.o.ready | ~emits)),
            self.i.ready.eq(at_entry & comes_in & (~full | leaves)),
            step.eq(at_entry & (~full | leaves) & (~comes_in | self.i.valid)),
            moves.eq(step | ~at_entry),
            self.o.valid.eq(full & emits),
        ]
        row_ends = column.beat.step(m, fold.step(m, moves))
        tile_ends = row.beat.step(m, row_ends)
        row.span.step(m, column.span.step(m, tile_ends))
        with m.If(step):
            m.d.sync += full.eq(1)
        with m.Elif(leaves):
            m.d.sync += full.eq(0)

        last = _delay_by_stage(m, "is_last_beat", tile_ends & row.last_used & column.last_used, moves)[-1]
        m.d.comb += [self.o.payload.data.eq(value), self.o.payload.last.eq(last)]
        bands = []
        if config.bottom_depth:
            old_row = _delay_by_stage(m, "is_kept_row", row.old, moves)[-2]
            bands.append((old_row, *self._elaborate_bottom(m, row, column, moves, row_ends, tile_ends)))
        if config.right_depth:
            bands.append((~comes_in, *self._elaborate_right(m, row, column, moves, row_ends, tile_ends)))
        near = config.distance <= IN_FLIGHT
        for _, band, addresses in bands:
            band.connect(moves=moves, leaves=leaves, value=value, near=near, **addresses)
        chosen = Signal.like(value, name="selected_beat")
        m.d.comb += chosen.eq(self.i.payload.data)
        before = [value, *_delay_by_stage(m, "earlier_beat", value, moves)[1:IN_FLIGHT]] if near else []
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
        """Add the memory of columns kept for the next tile; return its `_Band`, and arguments of `_Band.connect`.

        The band stores the kept columns of each new row of a pyramid, the first column first. The arguments are its
        addresses and write condition.
        """
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
        band = _Band(m, config.device, "right", config.input.data_bits, config.right_depth)
        return band, {"read": base + read, "write": base + write, "stores": ~row.old & ~column.passes}

    def _elaborate_bottom(self, m, row, column, step, row_ends, tile_ends) -> tuple[_Band, dict[str, Value]]:
        """Add the memory of rows kept for the next tiles; return its `_Band`, and arguments of `_Band.connect`.

        The band stores the kept rows in the map's full width, the first row first. The arguments are its addresses and
        write condition.
        """
        config = self.config
        pitch = config.bottom_pitch
        first = Signal(range(pitch + 1), name="bottom_tile_offset")  # offset of the tile's first column
        column_offset = Signal(range(pitch + 1), name="bottom_column_offset")
        read = Signal(range(config.bottom_depth + 1), name="bottom_read_row_address")
        write = Signal(range(config.bottom_depth + 1), name="bottom_write_row_address")
        # Offset of the next tile, in a register so that no adder is on the path of a tile's end.
        folds = config.input.folds
        following = Signal(range(pitch + 1), name="next_bottom_tile_offset", init=column.second_tile_offset(folds))
        with m.If(tile_ends):
            m.d.sync += [
                first.eq(following),
                following.eq(Mux(column.next_is_last, 0, following + column.advance_next(folds))),
            ]
        with m.If(step):
            m.d.sync += column_offset.eq(Mux(row_ends, Mux(tile_ends, following, first), column_offset + 1))
        with m.If(tile_ends):
            m.d.sync += [read.eq(0), write.eq(0)]
        with m.Elif(row_ends):
            with m.If(row.old):
                m.d.sync += read.eq(read + pitch)
            with m.If(~row.passes):
                m.d.sync += write.eq(write + pitch)
        band = _Band(m, config.device, "bottom", config.input.data_bits, config.bottom_depth)
        return band, {
            "read": read + column_offset,
            "write": write + column_offset,
            "stores": ~row.passes & column.passes,
        }
