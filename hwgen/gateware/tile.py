"""The tiles of a layer's input on chip, and the walk over their windows (Alwani 2015, section 3.4; listing 3.4).

Two tiles are held: one is filled while the windows of the other are read. Both lie in the same memories, a half each.
A pixel's place is counted from where the tile's first window begins, so that window ``n`` of a tile always begins at
``n S``; places in the padding stay unwritten, and what is read there is replaced. Tiles at the borders of the map are
smaller; they are walked only as far as they have windows.

Rows and columns are dealt out to as many banks as a patch has rows and columns, so that any patch is read in one
cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.lookup import delayed, ram_attributes, sparse_table
from hwgen.gateware.spans import Axis, Span

#: Tiles held: one that is filled and one that is read.
HALVES = 2


@dataclass(frozen=True, kw_only=True)
class TileBufferConfig:
    """Geometry of a layer's tiles and of the walk over their windows.

    Parameters
    ----------
    window : LineBufferConfig
        The layer's windows over the whole map, and what of them is read in a step. Its ``rows`` don't matter here.
    rows, columns : Axis
        The tiles.

    Raises
    ------
    ConfigError
        If the axes are not the window's, or windows are walked side by side.
    """

    window: LineBufferConfig
    rows: Axis
    columns: Axis

    #: Cycles from a tile's last beat being taken to the start of its first window.
    write_delay = 1
    #: Cycles from the last step of a tile to the first beat that may overwrite it.
    release_delay = 3

    def __post_init__(self) -> None:
        window = self.window
        if window.pixels != 1 or window.input.pixels != 1:
            raise ConfigError(
                f"pixels must be 1 in a pyramid, not {window.pixels!r} of the window and {window.input.pixels!r} of "
                "the input"
            )
        for name, axis, size, place in (
            ("rows", self.rows, window.input.height, 0),
            ("columns", self.columns, window.input.width, 1),
        ):
            wanted = (size, window.kernel[place], window.stride[place], window.padding[place])
            there = (axis.size, axis.kernel, axis.stride, axis.padding)
            if there != wanted:
                raise ConfigError(
                    f"{name} must have the window's size, kernel, stride and padding {wanted}, not {there}"
                )

    @property
    def row_banks(self) -> int:
        return self.window.patch[0]

    @property
    def column_banks(self) -> int:
        return self.window.patch[1]

    @property
    def row_words(self) -> int:
        """Words one row of a tile takes in one bank."""
        return -(-self.columns.tile // self.column_banks) * self.window.input.folds

    @property
    def half_depth(self) -> int:
        """Words of one tile in one bank; a word is one beat."""
        return -(-self.rows.tile // self.row_banks) * self.row_words

    @property
    def bank_depth(self) -> int:
        return HALVES * self.half_depth

    @property
    def memory_bits(self) -> int:
        return self.row_banks * self.column_banks * self.bank_depth * self.window.word_bits

    @property
    def latency(self) -> int:
        """Cycles from a step being issued to its taps being on ``o``."""
        return 4 + (self.row_banks > 1) + self.window.chooses

    @property
    def windows(self) -> int:
        """Windows a frame; more than the map's where they are computed again, fewer where no later layer needs them."""
        return self.rows.windows * self.columns.windows

    @cached_property
    def tiles(self) -> tuple[tuple[Span, Span], ...]:
        """The pyramids that have a window, in order."""
        return tuple((row, column) for row in self.rows.walks for column in self.columns.walks)

    @cached_property
    def fills(self) -> tuple[int, ...]:
        """Beats of each of them; 0 where all windows lie in the padding."""
        rows, columns = self.rows, self.columns
        return tuple(
            len(rows.used(row)) * len(columns.used(column)) * self.window.input.folds for row, column in self.tiles
        )

    @cached_property
    def walks(self) -> tuple[int, ...]:
        """Cycles that the windows of each take."""
        return tuple(row.windows * column.windows * self.window.window_cycles for row, column in self.tiles)


class _Fill:
    """One axis of the writer: its place in the tile, by bank and word."""

    def __init__(self, axis: Axis, name: str, banks: int, pitch: int):
        """``pitch``: words from a pixel to the next one in the same bank."""
        spans = axis.walks
        begins = [max(0, -axis.origin(span)) for span in spans]  # padding before the map has places, but no pixels
        self._counts = [len(axis.used(span)) for span in spans]
        self._begins = [begin if count else 0 for begin, count in zip(begins, self._counts, strict=True)]
        self._banks, self._pitch, self._count = banks, pitch, len(spans)
        self.empty = min(self._counts) == 0
        words = (axis.tile // banks + 1) * pitch
        self.span = Signal(range(len(spans)), name=f"write_{name}_span")
        self.following = Signal(range(len(spans)), name=f"write_{name}_following")
        self.pixel = Signal(range(max(self._counts) + 1), name=f"write_{name}")
        self.phase = Signal(range(banks), name=f"write_{name}_phase", init=self._begins[0] % banks)
        self.word = Signal(range(words + 1), name=f"write_{name}_word", init=self._begins[0] // banks * pitch)
        count = sparse_table(self.span, dict(enumerate(self._counts)))
        self.ends = self.pixel + 1 == count
        self.none = (count == 0) if self.empty else Const(0, 1)
        self.spans_end = self.span == len(spans) - 1

    def elaborate(self, m: Module, *, step: Value, restart: Value, step_span: Value) -> None:
        """``step``: to the next pixel; ``restart``: to the first of the span, which is the next one's if
        ``step_span``."""
        m.d.comb += self.following.eq(self.span)
        with m.If(step_span):
            m.d.comb += self.following.eq(Mux(self.spans_end, 0, self.span + 1))
        m.d.sync += self.span.eq(self.following)
        with m.If(restart):
            begins = dict(enumerate(self._begins))
            m.d.sync += [
                self.pixel.eq(0),
                self.phase.eq(sparse_table(self.following, {n: begin % self._banks for n, begin in begins.items()})),
                self.word.eq(
                    sparse_table(self.following, {n: begin // self._banks * self._pitch for n, begin in begins.items()})
                ),
            ]
        with m.Elif(step):
            wraps = self.phase == self._banks - 1
            m.d.sync += [
                self.pixel.eq(self.pixel + 1),
                self.phase.eq(Mux(wraps, 0, self.phase + 1)),
                self.word.eq(self.word + Mux(wraps, self._pitch, 0)),
            ]


class _Place:
    """One axis of the reader: the window in its tile, the patch in its window, by bank and word."""

    def __init__(self, m: Module, axis: Axis, name: str, banks: int, pitch: int):
        self._m, self._axis, self._banks, self._pitch = m, axis, banks, pitch
        words = (axis.tile // banks + 1) * pitch
        self.span = Signal(range(len(axis.walks)), name=f"{name}_span")
        self.window = Signal(range(max(span.windows for span in axis.walks)), name=f"{name}_window")
        self.first = Signal(range(axis.tile), name=f"{name}_first")  # pixel at which the window begins
        self.phase = Signal(range(banks), name=f"{name}_phase")  # the same modulo the banks
        self.word = Signal(range(words + 1), name=f"{name}_word")
        self.patch = Signal(range(axis.kernel), name=f"{name}_patch")  # pixels of the window before the patch
        self.patch_word = Signal(range(-(-axis.kernel // banks) * pitch), name=f"{name}_patch_word")
        self.ends = self.window == self._table([span.windows - 1 for span in axis.walks])
        self.spans_end = self.span == len(axis.walks) - 1
        self.patch_ends = self.patch == axis.kernel - banks

    def _table(self, values: list[int]) -> Value:
        return sparse_table(self.span, dict(enumerate(values)))

    def elaborate(self, *, patch: Value, window: Value, restart: Value, span: Value) -> None:
        """To the next patch, the next window, the first window of the tile, the next tile."""
        m = self._m
        with m.If(patch):
            m.d.sync += [
                self.patch.eq(Mux(self.patch_ends, 0, self.patch + self._banks)),
                self.patch_word.eq(Mux(self.patch_ends, 0, self.patch_word + self._pitch)),
            ]
        with m.If(restart):
            m.d.sync += [self.window.eq(0), self.first.eq(0), self.phase.eq(0), self.word.eq(0)]
        with m.Elif(window):
            words, turn = divmod(self._axis.stride, self._banks)
            wraps = self.phase + turn >= self._banks
            m.d.sync += [
                self.window.eq(self.window + 1),
                self.first.eq(self.first + self._axis.stride),
                self.phase.eq(Mux(wraps, self.phase + turn - self._banks, self.phase + turn)),
                self.word.eq(self.word + Mux(wraps, (words + 1) * self._pitch, words * self._pitch)),
            ]
        with m.If(span):
            m.d.sync += self.span.eq(Mux(self.spans_end, 0, self.span + 1))

    def inside(self, count: int) -> list[Value] | None:
        """For each of ``count`` pixels of the patch: it lies in the map. ``None`` if all of them always do."""
        axis = self._axis
        begins = [max(0, -axis.origin(span)) for span in axis.walks]
        ends = [span.end - axis.origin(span) for span in axis.walks]
        needs = [(span.windows - 1) * axis.stride + axis.kernel for span in axis.walks]
        if not any(begins) and all(need <= end for need, end in zip(needs, ends, strict=True)):
            return None
        ends = [max(end, 0) for end in ends]
        # Beyond what a tile holds nothing is ever read: ends of tiles inside the map may all be alike.
        ends = [axis.tile if need <= end else end for need, end in zip(needs, ends, strict=True)]
        pixels = [self.first + self.patch + number for number in range(count)]
        return [(pixel >= self._table(begins)) & (pixel < self._table(ends)) for pixel in pixels]


class _InputFold:
    """The input fold of a step, counted over all groups; an output fold sees those of its group."""

    def __init__(self, m: Module, window: LineBufferConfig, *, step: Value, fold_ends: Value, window_last: Value):
        self.inner = Signal(range(window.group_folds), name="inner_fold")
        self.ends = self.inner == window.group_folds - 1
        self.value: Value = self.inner
        with m.If(step):
            m.d.sync += self.inner.eq(Mux(self.ends, 0, self.inner + 1))
        if window.groups > 1:
            first = Signal(range(window.input.folds), name="group_first")
            member = Signal(range(window.fold_folds), name="group_member")  # output fold within the group
            group_ends = member == window.fold_folds - 1
            with m.If(fold_ends):
                m.d.sync += member.eq(Mux(group_ends, 0, member + 1))
                with m.If(group_ends):
                    m.d.sync += first.eq(Mux(window_last, 0, first + window.group_folds))
            self.value = first + self.inner


class TileBuffer(wiring.Component):
    """Two tiles, and the walk over their windows; its ports are a line buffer's.

    For each window of a tile, row by row: output folds outside, then the patches of the window, input folds innermost.

    Parameters
    ----------
    config : TileBufferConfig

    Members
    -------
    i : In(stream)
        The tiles: of each pyramid that has a window, the pixels they need, row by row. ``last`` is not read.
    room : In(1)
        The next output fold may start.
    fold : Out
        Number of the output fold that starts next.
    start : Out(1)
        High in the cycle in which it does.
    o : Out(stream, always ready)
        The steps.

    Latency and throughput
        A fold takes ``config.window.steps`` cycles, without a pause between the windows and tiles that are there; its
        first step is on ``o`` ``config.latency`` cycles after ``start``. The first window of a tile starts at the
        earliest ``config.write_delay`` cycles after the tile's last beat was taken; the first beat of a tile is taken
        at the earliest ``config.release_delay`` cycles after the last step of the tile before the one before. A tile
        without a pixel takes a cycle in which nothing is taken; before the first beat of a frame one in which that is
        offered.
    """

    def __init__(self, config: TileBufferConfig):
        self._config = config
        window = config.window
        super().__init__(
            {
                "i": In(window.input.signature),
                "room": In(1),
                "fold": Out(range(window.output_folds)),
                "start": Out(1),
                "o": Out(stream.Signature(window.step_layout, always_ready=True)),
            }
        )

    @property
    def config(self) -> TileBufferConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        filled = Signal()  # a tile is complete
        emptied = Signal()  # the last step of one is issued
        held = Signal(range(HALVES + 1))  # tiles complete, or read until just now
        there = Signal(range(HALVES + 1))  # tiles complete
        released = delayed(m, "released", emptied, config.release_delay - 1, reset_less=False)
        m.d.sync += [held.eq(held + filled - released), there.eq(there + filled - emptied)]

        banks = {}
        for row in range(config.row_banks):
            for column in range(config.column_banks):
                storage = memory.Memory(
                    shape=config.window.word_bits,
                    depth=config.bank_depth,
                    init=[],
                    attrs=ram_attributes(config.bank_depth),
                )
                m.submodules[f"bank_{row}_{column}"] = storage
                banks[row, column] = storage.write_port(), storage.read_port()
        m.d.comb += filled.eq(
            self._elaborate_writer(m, {place: write for place, (write, _) in banks.items()}, held != HALVES)
        )
        m.d.comb += emptied.eq(
            self._elaborate_reader(m, {place: read for place, (_, read) in banks.items()}, there != 0)
        )
        return m

    def _elaborate_writer(self, m: Module, ports: dict, free: Value) -> Value:
        """Beats to their places. Returns whether a tile is complete with this cycle."""
        config = self.config
        folds = config.window.input.folds
        fold = Signal(range(folds), name="write_fold")
        half = Signal(name="write_half")
        row = _Fill(config.rows, "row", config.row_banks, config.row_words)
        column = _Fill(config.columns, "column", config.column_banks, folds)
        none = Signal(name="write_none")
        taken = Signal(name="write")
        pixel_ends = Signal(name="write_pixel_ends")
        row_ends = Signal(name="write_row_ends")
        tile_ends = Signal(name="write_tile_ends")
        skips = Signal(name="write_skips")
        begun = Signal(name="write_begun")  # a beat of the frame was taken
        m.d.comb += [
            none.eq(row.none | column.none),
            # What lies in the padding before a frame waits for the frame.
            skips.eq(free & none & (begun | self.i.valid)),
            self.i.ready.eq(free & ~none),
            taken.eq(self.i.valid & self.i.ready),
            pixel_ends.eq(taken & (fold == folds - 1)),
            row_ends.eq(pixel_ends & column.ends),
            tile_ends.eq((row_ends & row.ends) | skips),
        ]
        with m.If(taken):
            m.d.sync += fold.eq(Mux(pixel_ends, 0, fold + 1))
        with m.If(tile_ends):
            m.d.sync += half.eq(~half)
        with m.If(tile_ends & row.spans_end & column.spans_end):
            m.d.sync += begun.eq(0)
        with m.Elif(taken):
            m.d.sync += begun.eq(1)
        column.elaborate(m, step=pixel_ends, restart=row_ends | tile_ends, step_span=tile_ends)
        row.elaborate(m, step=row_ends, restart=tile_ends, step_span=tile_ends & column.spans_end)
        address = Signal(range(config.bank_depth), name="write_address")
        m.d.comb += address.eq(row.word + column.word + fold + Mux(half, config.half_depth, 0))
        for (bank_row, bank_column), port in ports.items():
            m.d.comb += [
                port.addr.eq(address),
                port.data.eq(self.i.payload.data),
                port.en.eq(taken & (row.phase == bank_row) & (column.phase == bank_column)),
            ]
        return tile_ends

    def _elaborate_reader(self, m: Module, ports: dict, there: Value) -> Value:
        """The walk and the reading pipeline. Returns whether this cycle's step is a tile's last."""
        config, window = self.config, self.config.window
        folds = window.input.folds
        row = _Place(m, config.rows, "row", config.row_banks, config.row_words)
        column = _Place(m, config.columns, "column", config.column_banks, folds)
        turn = Signal(range(window.tap_folds))
        half = Signal(name="read_half")
        idle = Signal(init=1)  # between two output folds
        stepping, fold_ends, window_ends, row_ends, tile_ends = (
            Signal(name=name) for name in ("stepping", "fold_ends", "window_ends", "row_ends", "tile_ends")
        )
        window_last = self.fold == window.output_folds - 1
        folds_in = _InputFold(m, window, step=stepping, fold_ends=fold_ends, window_last=window_last)
        taps_end = stepping & folds_in.ends
        last = folds_in.ends & (turn == window.tap_folds - 1)
        m.d.comb += [
            self.start.eq(idle & self.room & there),
            stepping.eq(self.start | ~idle),
            fold_ends.eq(stepping & last),
            window_ends.eq(fold_ends & window_last),
            row_ends.eq(window_ends & column.ends),
            tile_ends.eq(row_ends & row.ends),
        ]
        with m.If(stepping):
            m.d.sync += idle.eq(last)
        with m.If(taps_end):
            m.d.sync += turn.eq(Mux(last, 0, turn + 1))
        with m.If(fold_ends):
            m.d.sync += self.fold.eq(Mux(window_last, 0, self.fold + 1))
        with m.If(tile_ends):
            m.d.sync += half.eq(~half)
        next_patch = Const(0) if window.chooses else taps_end
        column.elaborate(patch=next_patch, window=window_ends, restart=row_ends, span=tile_ends)
        row.elaborate(
            patch=next_patch & column.patch_ends,
            window=row_ends,
            restart=tile_ends,
            span=tile_ends & column.spans_end,
        )
        self._elaborate_addresses(m, ports, row, column, folds_in.value + Mux(half, config.half_depth, 0))
        pixels = self._elaborate_rotation(m, ports, row, column)
        self._elaborate_taps(m, pixels, turn)
        m.d.comb += [
            self.o.valid.eq(delayed(m, "valid", stepping, config.latency, reset_less=False)),
            self.o.payload.first.eq(delayed(m, "first", idle, config.latency)),
            self.o.payload.last.eq(delayed(m, "last", last, config.latency)),
        ]
        return tile_ends

    def _elaborate_addresses(self, m: Module, ports: dict, row: _Place, column: _Place, offset: Value) -> None:
        """Stage 1: sums by axis; stage 2: addresses."""
        config = self.config
        shape = range(config.bank_depth)
        offset_1 = Signal(shape, name="offset_1", reset_less=True)
        m.d.sync += offset_1.eq(offset)

        def words(place: _Place, name: str, banks: int, pitch: int) -> list[Signal]:
            """The word, before the phase a pitch further on."""
            result = []
            for bank in range(banks):
                word = Signal(shape, name=f"{name}_{bank}_1", reset_less=True)
                m.d.sync += word.eq(place.word + place.patch_word + Mux(bank < place.phase, pitch, 0))
                result.append(word)
            return result

        rows = words(row, "row_word", config.row_banks, config.row_words)
        columns = words(column, "column_word", config.column_banks, config.window.input.folds)
        for (bank_row, bank_column), port in ports.items():
            address = Signal(shape, name=f"address_{bank_row}_{bank_column}", reset_less=True)
            m.d.sync += address.eq(rows[bank_row] + columns[bank_column] + offset_1)
            m.d.comb += port.addr.eq(address)

    def _elaborate_rotation(self, m: Module, ports: dict, row: _Place, column: _Place) -> dict:
        """From banks to places in the patch; what lies in the padding is replaced."""
        config, window = self.config, self.config.window
        values = {place: port.data for place, port in ports.items()}
        stage = 3
        if config.row_banks > 1:
            phase = delayed(m, "row_phase", row.phase, stage)
            values = {
                place: self._turned(m, f"row_{place[0]}_{place[1]}", phase, place[0], banks)
                for place in values
                for banks in [[values[bank, place[1]] for bank in range(config.row_banks)]]
            }
            values = {place: delayed(m, f"row_{place[0]}_{place[1]}", value, 1) for place, value in values.items()}
            stage += 1
        phase = delayed(m, "column_phase", column.phase, stage)
        inside = self._inside(m, row, column, stage)
        pad = self._pad()
        pixels = {}
        for place in values:
            banks = [values[place[0], bank] for bank in range(config.column_banks)]
            value = self._turned(m, f"column_{place[0]}_{place[1]}", phase, place[1], banks)
            if inside is not None:
                value = Mux(inside[place[0] * window.patch[1] + place[1]], value, pad)
            register = Signal(window.word_bits, name=f"pixel_{place[0]}_{place[1]}", reset_less=True)
            m.d.sync += register.eq(value)
            pixels[place] = register
        return pixels

    def _pad(self) -> Value:
        window = self.config.window
        return Cat(Const(window.pad_value, window.input.shape) for _ in range(window.input.lanes))

    @staticmethod
    def _turned(m: Module, name: str, phase: Value, number: int, banks: list[Value]) -> Value:
        """Of ``banks`` the one that is ``number`` after ``phase``."""
        if len(banks) == 1:
            return banks[0]
        result = Signal(banks[0].shape(), name=f"{name}_turned")
        with m.Switch(phase):
            for first in range(len(banks)):
                with m.Case(first):
                    m.d.comb += result.eq(banks[(first + number) % len(banks)])
        return result

    def _inside(self, m: Module, row: _Place, column: _Place, stage: int) -> Value | None:
        """A bit for each pixel of the patch: it lies in the map. ``None`` if there is no padding in any tile."""
        height, width = self.config.window.patch
        rows, columns = row.inside(height), column.inside(width)
        if rows is None and columns is None:
            return None
        rows, columns = rows or [Const(1, 1)] * height, columns or [Const(1, 1)] * width
        # By axis through the pipeline: as many bits as rows and columns, not as pixels.
        ahead_rows = delayed(m, "inside_rows", Cat(rows), stage)
        ahead_columns = delayed(m, "inside_columns", Cat(columns), stage)
        return Cat(ahead_rows[i] & ahead_columns[j] for i in range(height) for j in range(width))

    def _elaborate_taps(self, m: Module, pixels: dict, turn: Value) -> None:
        """The taps of the step; one more stage where a patch has more than are used."""
        window = self.config.window
        taps = list(pixels.values())
        if window.chooses:
            turn = delayed(m, "turn", turn, self.config.latency - 1)
            taps = []
            for tap in range(window.taps):
                register = Signal(window.word_bits, name=f"tap_{tap}", reset_less=True)
                m.d.sync += register.eq(self._pad())
                with m.Switch(turn):
                    for number, places in enumerate(window.step_taps):
                        if tap < len(places):
                            with m.Case(number):
                                m.d.sync += register.eq(pixels[places[tap]])
                taps.append(register)
        for number, value in enumerate(taps):
            m.d.comb += self.o.payload.taps[number].as_value().eq(value)
