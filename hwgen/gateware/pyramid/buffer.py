"""Tile buffer of a layer in a pyramid accelerator (fused layers, tile by tile): stores input tiles, reads windows.

See Alwani 2015, section 3.4 and listing 3.4. The buffer stores two tiles in the two halves of its memories. One tile is
filled while the windows of the other are read. Position 0 is the first pixel of the tile's first window. Window ``n``
of a tile therefore always begins at position ``n S``. Positions in the padding are never written; their values are
replaced when they are read. Tiles at the borders of the map have fewer windows.

Rows and columns are interleaved over banks. There are at least as many banks as a patch has rows and columns, so any
patch is read in one cycle. Columns have more banks if a beat holds more pixels. Both have more banks if two taps of a
dilated kernel would otherwise share a bank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, Signal, Value

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, HasWindow
from hwgen.gateware.cost import Cost, Resources, counter_bits, table_bits, trailing_zeros
from hwgen.gateware.line_buffer import LineBufferConfig, walk_ports
from hwgen.gateware.lookup import bits_for_range, delayed, delayed_fast, named, registered, sparse_table
from hwgen.gateware.nest import Interleaving, Loop, banks_apart
from hwgen.gateware.pieces import count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.pyramid.spans import Cut, Span, TiledAxis
from hwgen.gateware.pyramid.timing import HALVES
from hwgen.gateware.windows.patch_reader import bank_word, choose_taps
from hwgen.gateware.windows.window_walk import group_first_folds


@dataclass(frozen=True, kw_only=True)
class PyramidBufferConfig(HasWindow):
    """Configuration of `PyramidBuffer`, which stores a layer's input tiles and reads their convolution windows.

    Parameters
    ----------
    window : LineBufferConfig
        Windows of the layer over the whole map, and the patch that each step reads. The buffer has no ring of rows, so
        ``rows`` is ignored.
    rows, columns : TiledAxis
        Spans of rows and columns of the tiles.

    Raises
    ------
    ConfigError
        If the axes do not match the window; if several windows are walked side by side; or if tiles that keep columns
        of each other do not consist of whole beats.
    """

    window: LineBufferConfig
    rows: TiledAxis
    columns: TiledAxis

    #: Cycles from the transfer of a tile's last beat to the start of the tile's first window.
    write_delay = 1
    #: Cycles from the last read of a tile's windows to the transfer of the first beat that can overwrite the tile.
    release_delay = 3

    def __post_init__(self) -> None:
        window = self.window
        if window.pixels != 1:
            raise ConfigError(f"window.pixels must be 1 in a pyramid, not {window.pixels!r}")
        for name, axis, size, dimension in (
            ("rows", self.rows, window.input.height, 0),
            ("columns", self.columns, window.input.width, 1),
        ):
            expected = (size, window.extent[dimension], window.stride[dimension], window.padding[dimension])
            actual = (axis.size, axis.extent, axis.stride, axis.padding)
            if actual != expected:
                raise ConfigError(
                    f"{name} must have the window's size, extent, stride and padding {expected}, not {actual}"
                )
        self.columns.cut(window.input.pixels)

    @cached_property
    def row_cuts(self) -> tuple[Cut, ...]:
        """Ranges of map rows (`Cut` tuple) that successive input tiles with windows cover, kept rows included."""
        return tuple(cut for cut in self.rows.cut(1) if cut.span.windows)

    @cached_property
    def column_cuts(self) -> tuple[Cut, ...]:
        """Ranges of map columns (`Cut` tuple) that successive input tiles with windows cover, kept columns included."""
        return tuple(cut for cut in self.columns.cut(self.window.input.pixels) if cut.span.windows)

    @property
    def row_banks(self) -> int:
        """Number of memory banks over which the rows of a tile are interleaved."""
        return banks_apart(self.window.patches.rows)

    @property
    def column_banks(self) -> int:
        """Number of memory banks over which the columns of a tile are interleaved."""
        return banks_apart(self.window.patches.columns, self.window.input.pixels)

    @property
    def row_words(self) -> int:
        """Number of words (``Tn`` channels of a pixel) of one tile row in one memory bank of the tile buffer."""
        return -(-self.columns.tile // self.column_banks) * self.window.input.folds

    @property
    def half_depth(self) -> int:
        """Number of words (``Tn`` channels of a pixel) of one tile in one memory bank of the tile buffer."""
        return -(-self.rows.tile // self.row_banks) * self.row_words

    @property
    def bank_depth(self) -> int:
        """Depth, as a number of words, of one memory bank of the tile buffer, which stores two tiles."""
        return HALVES * self.half_depth

    @property
    def row_interleaving(self) -> Interleaving:
        """`Interleaving`: mapping of a tile's row index to a memory bank and a word address in it."""
        return Interleaving(self.row_banks, self.row_words)

    @property
    def column_interleaving(self) -> Interleaving:
        """`Interleaving`: mapping of a tile's column index to a memory bank and a word address in it."""
        return Interleaving(self.column_banks, self.window.input.folds)

    def phase_bits(self, axis: int) -> int:
        """Return the width in bits of the index of the bank where a window begins, of row (0) or column banks (1).

        The width is 0 if all windows begin in the first bank.
        """
        window, banks = self.window, (self.row_banks, self.column_banks)[axis]
        several = window.patches.size[axis] < window.kernel[axis]
        moves = window.stride[axis] % banks or (several and window.patches.advance[axis] % banks)
        return (banks - 1).bit_length() if moves else 0

    @cached_property
    def registers_words(self) -> bool:
        """Whether the tile buffer's block RAMs use output registers: only if several LUT levels follow them."""
        axis = 0 if self.row_banks > 1 else 1
        ways = (self.row_banks, self.column_banks)[axis] if self.phase_bits(axis) else 1
        num_memories, _ = self.memories.stacked(self.window.word_bits, self.bank_depth)
        return self.bank_depth > self.memories.lut_depth and num_memories * ways > self.device.logic.mux_ways

    @property
    def pieces(self) -> int:
        """Number of memories that make up one bank of the tile buffer, each with a part of the addresses."""
        return len(piece_words(self.device, self.window.word_bits, self.bank_depth))

    @property
    def latency(self) -> int:
        """Latency in cycles, from a step (the read of some taps of a window) to its taps at the output ``o``."""
        return 4 + (self.row_banks > 1 or self.registers_words) + self.window.patches.chooses

    @property
    def windows(self) -> int:
        """Number of convolution windows that the tile buffer reads per frame, over all tiles.

        It exceeds the number of windows of the map if pyramids compute windows again. It is smaller if no later layer
        needs some windows.
        """
        return self.rows.windows * self.columns.windows

    @cached_property
    def tiles(self) -> tuple[tuple[Span, Span], ...]:
        """Tuple of (row range, column range) `Span` pairs of the input tiles that have windows, in raster order."""
        return tuple((row, column) for row in self.rows.walked for column in self.columns.walked)

    @cached_property
    def fill_beats(self) -> tuple[int, ...]:
        """Tuple: number of input beats stored per tile that has windows; 0 for a tile that lies in the padding."""
        folds = self.window.input.folds
        return tuple(row.used * column.used * folds for row in self.row_cuts for column in self.column_cuts)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        window, word = self.window, self.window.word_bits
        row_phase, column_phase = self.phase_bits(0), self.phase_bits(1)
        turned = self.column_banks if column_phase else 1
        banks = self.row_banks * self.column_banks
        for _ in range(banks):
            count_pieces(cost, word, self.bank_depth)
        # Data path after the memories. Registers insert padding by their reset.
        stage = 3
        if self.row_banks > 1 or self.registers_words:
            rows = self.row_banks * self.pieces if self.registers_words else window.patches.size[0]
            cost.ff += rows * self.column_banks * word + 2 * banks * counter_bits(self.pieces)
            cost.multiplexer(banks * word, self.pieces)
            stage += 1
        if self.row_banks > 1:
            cost.multiplexer(window.patches.size[0] * self.column_banks * word * bool(row_phase), self.row_banks)
            cost.delay(row_phase, 3)
            cost.ff += row_phase * self.registers_words
        cost.delay(column_phase, stage)
        pixels = window.patches.size[0] * window.patches.size[1]
        cost.ff += pixels * (word + window.inside)
        cost.luts(pixels * word * (1.5 if turned == 4 else cost.logic.rotation(turned, padded=False)))
        if window.patches.chooses:
            cost.ff += window.taps * word
            cost.luts(word * window.patches.choice_luts(cost.logic))
            cost.delay(counter_bits(window.tap_folds), self.latency - 1)
        cost.ff += self.latency
        cost.delay(2, self.latency)
        # Control. Banks whose phase is constant share one read address.
        ports, address = (self.row_banks if row_phase else 1) * turned, counter_bits(self.bank_depth)
        control = self._counter_ff
        cost.ff += control + ports * address
        cost.lut += 1.15 * control + 1.3 * ports * address
        # Before the memories: selection of the pixel of a beat that a bank stores.
        cost.multiplexer(self.column_banks * word, min(self._fill_phases, window.input.pixels))
        return cost.resources

    def component(self) -> PyramidBuffer:
        return PyramidBuffer(self)

    @property
    def _fill_phases(self) -> int:
        """Number of column banks that can hold the first pixel of some input beat."""
        banks, pixels = self.column_banks, self.window.input.pixels
        begins = _first_beat_positions(self.columns, tuple(cut for cut in self.column_cuts if cut.used))
        return len({(begin + beat * pixels) % banks for begin in begins for beat in range(banks)})

    @property
    def _counter_ff(self) -> int:
        """Number of flip-flops in the tile buffer's counters, without the read address registers."""
        window, folds = self.window, self.window.input.folds
        total = 2 * HALVES + 5 + 2 * counter_bits(folds)
        total += counter_bits(window.tap_folds) + counter_bits(window.output_folds)
        if window.groups > 1:
            total += counter_bits(folds) - trailing_zeros(window.group_folds) + counter_bits(window.group_output_folds)
        total += not all(self.fill_beats)
        total += counter_bits(folds) + 1
        return total + self._axis_ff(0) + self._axis_ff(1)

    def _axis_ff(self, axis_index: int) -> int:
        """Return the number of flip-flops in the tile buffer's row counters (0) or column counters (1)."""
        axis, cuts = (self.rows, self.columns)[axis_index], (self.row_cuts, self.column_cuts)[axis_index]
        banks, patch = (self.row_banks, self.column_banks)[axis_index], self.window.patches.size[axis_index]
        pitch, base = ((self.row_words, self.half_depth), (self.window.input.folds, 0))[axis_index]
        # Writer.
        words = counter_bits(base + ((axis.tile + cuts[0].pixels) // banks + 1) * pitch + 1) - trailing_zeros(pitch)
        total = counter_bits(len(cuts)) + counter_bits(max(cut.used for cut in cuts))
        total += words * (2 if cuts[0].pixels > 1 else 1)
        if cuts[0].pixels % banks or any(begin % banks for begin in _first_beat_positions(axis, cuts)):
            total += counter_bits(banks)
        # Walk.
        words = counter_bits((axis.tile // banks + 1) * pitch + 1) - trailing_zeros(pitch)
        phase = self.phase_bits(axis_index)
        total += counter_bits(len(axis.walked)) + counter_bits(max(s.windows for s in axis.walked)) + words + phase
        if patch < self.window.kernel[axis_index]:
            total += words + phase + counter_bits(axis.extent) - trailing_zeros(self.window.patches.advance[axis_index])
        total += (banks if phase else 1) * min(words + 1, counter_bits(self.bank_depth) - trailing_zeros(pitch))
        if limits := _map_limits(axis):
            total += counter_bits(axis.tile) - trailing_zeros(axis.stride) + 3 * counter_bits(axis.tile + 1) + 2
            total += patch * (2 if self.row_banks > 1 else 1)
            total += sum(map(table_bits, limits))
        return total


def _first_beat_positions(axis: TiledAxis, cuts: tuple[Cut, ...]) -> list[int]:
    """Return a list: by tile, the position in the tile (rows or columns) of the first pixel of its first needed beat.

    Position 0 is the first pixel of the tile's first window, which can be in the padding. The result is negative if
    the beat begins before this pixel.
    """
    return [cut.first + cut.unused * cut.pixels - axis.origin(cut.span) if cut.used else 0 for cut in cuts]


def _map_limits(axis: TiledAxis) -> tuple[list[int], list[int]] | None:
    """Return two lists, by tile: position in the tile where the map begins, and where it ends; ``None`` if unpadded.

    The positions count from the first pixel of the tile's first window. If the map ends after the last pixel that the
    tile's windows read, the entry is the end of the tile. The entries of all spans inside the map are then equal.
    """
    begins = [max(0, -axis.origin(span)) for span in axis.walked]
    ends = [span.end - axis.origin(span) for span in axis.walked]
    needs = [(span.windows - 1) * axis.stride + axis.extent for span in axis.walked]
    if not any(begins) and all(need <= end for need, end in zip(needs, ends, strict=True)):
        return None
    return (
        [min(begin, axis.tile) for begin in begins],
        [axis.tile if need <= end else max(end, 0) for need, end in zip(needs, ends, strict=True)],
    )


class _WriteAddress:
    """Write address registers of a tile buffer for rows or columns: bank and word of a beat's lowest pixel.

    A beat of several pixels can begin before its tile, or end after it. Pixels outside of the tile are not written.
    """

    def __init__(self, axis: TiledAxis, cuts: tuple[Cut, ...], name: str, banks: Interleaving, base: int = 0):
        """Create the registers of the tile buffer's write address for rows or columns.

        Parameters
        ----------
        axis : TiledAxis
            Spans of the tiles.
        cuts : tuple of Cut
            Spans that have windows, in beats.
        name : str
            ``row`` or ``column``.
        banks : Interleaving
            Banks of the rows or columns.
        base : int
            Word address of the second half's tile.
        """
        self._tile, self._pixels, self._banks, self._base = axis.tile, cuts[0].pixels, banks, base
        self._counts = [cut.used for cut in cuts]
        self._begins = _first_beat_positions(axis, cuts)
        self._first_words = [begin // banks.banks * banks.pitch for begin in self._begins]
        last_word = base + ((axis.tile + self._pixels) // banks.banks + 1) * banks.pitch
        self.span = Loop(f"write_{name}_span_index", range(len(cuts)))
        self.following = Signal(range(len(cuts)), name=f"next_write_{name}_span_index")
        last_beat = _span_table(self.span.index, [max(count - 1, 0) for count in self._counts])
        self.beat = Loop(f"write_{name}_index", range(max(self._counts)), last=last_beat)
        self.place = banks.register(f"write_{name}", bits_for_range(min(self._first_words), last_word), self._begins[0])
        # The word address plus one pitch, without an adder before the memory. Beats of one pixel do not need it.
        self.following_word: Value = self.place.word
        if self._pixels > 1:
            self.following_word = Signal(
                bits_for_range(0, last_word + banks.pitch),
                name=f"write_{name}_word_address_ahead",
                init=self._first_words[0] + banks.pitch,
            )
        self.none = _span_table(self.span.index, [int(not count) for count in self._counts])

    def elaborate(
        self, m: Module, *, step: Value, restart: Value, step_span: Value, other_half: Value | None = None
    ) -> None:
        """Add the logic that moves the write address to the next beat, the tile's first beat, or the next tile.

        Parameters
        ----------
        m : Module
        step : Value
            Whether to advance by one beat.
        restart : Value
            Whether to return to the first beat of the span.
        step_span : Value
            Whether to advance to the next span.
        other_half : Value, optional
            Whether the next span's tile is in the second half, which begins at word ``base``.
        """
        m.d.comb += self.following.eq(Mux(step_span, self.span.following, self.span.index))
        m.d.sync += self.span.index.eq(self.following)
        word = Signal(self.place.word.shape(), name=f"next_{self.place.word.name}")
        m.d.comb += word.eq(self.place.word)
        with m.If(restart):
            first = _span_table(self.following, self._first_words)
            if other_half is not None:  # a multiplexer instead of an adder, because this path is long
                second = _span_table(self.following, [first + self._base for first in self._first_words])
                first = named(Mux(other_half, second, first), "first_word_address")
            m.d.comb += word.eq(first)
            banks = self._banks.banks
            m.d.sync += self.place.bank.eq(_span_table(self.following, [begin % banks for begin in self._begins]))
            m.d.sync += self.beat.index.eq(0)
        with m.Elif(step):
            ahead = self._banks.ahead(self.place, self._pixels)
            m.d.comb += word.eq(ahead.word)
            m.d.sync += [self.beat.index.eq(self.beat.index + 1), self.place.bank.eq(ahead.bank)]
        m.d.sync += self.place.word.eq(word)
        if self.following_word is not self.place.word:
            m.d.sync += self.following_word.eq(word + self._banks.pitch)

    def writes(self, lane: int) -> Value:
        """Return a bit: the pixel ``lane`` of the current input beat lies in the tile and is written."""
        before = [begin + lane < 0 for begin in self._begins]
        behind = [
            begin + (count - 1) * self._pixels + lane >= self._tile
            for begin, count in zip(self._begins, self._counts, strict=True)
        ]
        result: Value = Const(1, 1)
        if any(before):
            result = ~((self.beat.index == 0) & _span_table(self.span.index, [int(outside) for outside in before]))
        if any(behind):
            result = result & ~(self.beat.is_last & _span_table(self.span.index, [int(outside) for outside in behind]))
        return result


def _span_table(index: Value, entries: list[int]) -> Value:
    """Return a `Value`: entry ``index`` of a constant table with one entry per tile on an axis, most of them equal."""
    return sparse_table(index, dict(enumerate(entries)))


class _ReadAddress:
    """Read address registers of a tile buffer for one axis: bank and word of the first pixel read in a step."""

    def __init__(self, m: Module, axis: TiledAxis, name: str, offsets: range, banks: Interleaving):
        """Create the registers of the tile buffer's read address for rows or columns.

        Parameters
        ----------
        m : Module
        axis : TiledAxis
            Spans of the tiles.
        name : str
            ``row`` or ``column``.
        offsets : range
            Offsets of the pixels of a patch from its first pixel.
        banks : Interleaving
            Banks of the rows or columns.
        """
        self._m, self._axis, self._name = m, axis, name
        self._offsets, self._banks = offsets, banks
        self._several = offsets[-1] < axis.extent - 1  # whether a window has several patches
        self._words = range((axis.tile // banks.banks + 1) * banks.pitch + 1)
        self.span = Loop(f"{name}_span_index", range(len(axis.walked)))
        windows = [span.windows for span in axis.walked]
        last_window = _span_table(self.span.index, [count - 1 for count in windows])
        self.window = Loop(f"{name}_window_index", range(max(windows)), last=last_window)
        self.first = Signal(range(axis.tile), name=f"window_first_{name}")  # first pixel of the window
        offset = Signal(range(axis.extent), name=f"patch_{name}_offset")  # offset of the patch in the window
        self.patch = Loop(offset.name, range(0, axis.extent - offsets[-1], offsets.stop), index=offset)
        # Places of the first pixels of the window and of the patch.
        self._window_place = self.place = banks.register(f"window_{name}", self._words)
        if self._several:
            self.place = banks.register(f"patch_{name}", self._words)

    def elaborate(self, *, patch: Value, window: Value, span: Value) -> None:
        """Add the logic that moves the read address to the window's next patch, the next window, or the next tile.

        A patch is the pixels that one step reads.

        Parameters
        ----------
        patch : Value
            Whether to advance to the next patch of the window.
        window : Value
            Whether to advance to the next window. ``patch`` must be set as well.
        span : Value
            Whether to advance to the next span.
        """
        m, stride = self._m, self._axis.stride
        following = self._banks.register(f"next_window_{self._name}", self._words)
        m.d.comb += following.eq(self._window_place)
        with m.If(self.window.step(m, window)):
            m.d.comb += following.eq(self._banks.place_of(0))
            m.d.sync += self.first.eq(0)
        with m.Elif(window):
            m.d.comb += following.eq(self._banks.ahead(self._window_place, stride))
            m.d.sync += self.first.eq(self.first + stride)
        m.d.sync += self._window_place.eq(following)
        if self._several:
            with m.If(self.patch.step(m, patch)):
                m.d.sync += self.place.eq(following)
            with m.Elif(patch):
                m.d.sync += self.place.eq(self._banks.ahead(self.place, self._offsets.stop))
        self.span.step(m, span)

    #: Latency in cycles, from a step to its bits of `inside`, which mark pixels inside the map.
    inside_delay = 3

    def inside(self) -> Value | None:
        """Return bits, one per row (or column) read at once: inside the map; ``None`` without padding.

        The result is ``None`` if all rows or columns that windows read are inside the map.
        """
        axis = self._axis
        if (limits := _map_limits(axis)) is None:
            return None
        begins, ends = limits
        # One addition per cycle. The positions of the patch's pixels then differ by constants only.
        position, begin, end, since, until = (
            Signal(bits_for_range(-axis.tile if signed else 0, axis.tile), name=f"{self._name}_{name}", reset_less=True)
            for name, signed in (
                ("patch_position", 0),
                ("map_begin", 0),
                ("map_end", 0),
                ("distance_from_begin", 1),
                ("distance_to_end", 1),
            )
        )
        result = Signal(len(self._offsets), name=f"{self._name}_inside", reset_less=True)
        self._m.d.sync += [
            position.eq(self.first + self.patch.index),
            begin.eq(_span_table(self.span.index, begins)),
            end.eq(_span_table(self.span.index, ends)),
            since.eq(position - begin),
            until.eq(end - position),
            result.eq(Cat((since >= -offset) & (until > offset) for offset in self._offsets)),
        ]
        return result


class PyramidBuffer(ConfiguredComponent[PyramidBufferConfig]):
    """Double buffer of a layer's input tiles: fills one tile while it reads the other tile's windows.

    Its ports equal the ports of a line buffer. Windows of a tile are read row by row. The loop order of a window is:
    output folds, patches, input folds (innermost).

    Parameters
    ----------
    config : PyramidBufferConfig

    Members
    -------
    i : In(stream)
        Beats of the tiles, row by row: for each pyramid that has a window, the beats that its windows need. ``last`` is
        ignored.
    room : In(1)
        Whether the next output fold can start.
    fold : Out
        Index of the output fold that starts next.
    start : Out(1)
        Pulse: an output fold starts.
    o : Out(stream, always ready)
        Taps of the steps.

    Latency and throughput
        One input beat and one step per cycle, across windows and tiles. An output fold takes ``config.window.steps``
        cycles. Its first step is on ``o`` ``config.latency`` cycles after ``start``. Limits:

        ====================================  ================================================================
        event                                 earliest cycle
        ====================================  ================================================================
        first window of a tile starts         ``config.write_delay`` cycles after the tile is complete
        first beat of a tile is accepted      the cycle after the previous tile is complete, and
                                              ``config.release_delay`` cycles after the last step of the tile
                                              before the previous tile
        tile is complete                      the cycle when its last beat is accepted
        tile in the padding is complete       the cycle when its first beat could be accepted, if it had beats
        tile in the padding, before all       the first such cycle when the frame's first beat is valid. The beat
        beats of its frame, is complete       is not accepted in this cycle
        ====================================  ================================================================

        `hwgen.gateware.pyramid.timing` shows how tiles delay each other.
    """

    def __init__(self, config: PyramidBufferConfig):
        super().__init__(config, walk_ports(config.window))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        filled = Signal(name="tile_filled")  # a tile becomes complete
        emptied = Signal(name="tile_emptied")  # the last step of a tile is issued
        held = Signal(range(HALVES + 1), name="held_tiles")  # number of halves that cannot be overwritten yet
        ready = Signal(range(HALVES + 1), name="complete_tiles")  # number of complete tiles that still have steps
        released = delayed(m, "tile_release", emptied, config.release_delay - 1, reset_less=False)
        m.d.sync += [held.eq(held + filled - released), ready.eq(ready + filled - emptied)]

        banks = {}
        for row in range(config.row_banks):
            for column in range(config.column_banks):
                banks[row, column] = memory_in_pieces(
                    m,
                    config.device,
                    f"bank_{row}_{column}",
                    width=config.window.word_bits,
                    depth=config.bank_depth,
                    registered=config.registers_words,
                )
        m.d.comb += filled.eq(
            self._elaborate_writer(m, {bank: write for bank, (write, _, _) in banks.items()}, held != HALVES)
        )
        m.d.comb += emptied.eq(
            self._elaborate_reader(m, {bank: read for bank, (_, *read) in banks.items()}, ready != 0)
        )
        return m

    def _elaborate_writer(self, m: Module, ports: dict, free: Value) -> Value:
        """Add the writer of input beats into the banks; return a bit: a tile becomes complete."""
        config = self.config
        folds = config.window.input.folds
        fold = Loop("write_fold_index", range(folds))
        half = Signal(name="write_half_index")
        row = _WriteAddress(config.rows, config.row_cuts, "row", config.row_interleaving, config.half_depth)
        column = _WriteAddress(config.columns, config.column_cuts, "column", config.column_interleaving)
        none = Signal(name="is_write_tile_empty")
        taken = Signal(name="input_transfer")
        step_ends = fold.step(m, taken)
        row_ends = Signal(name="write_row_end")
        tile_ends = Signal(name="write_tile_end")
        skips = Signal(name="write_tile_skip")
        begun = Signal(name="is_frame_begun")  # a beat of the frame has been taken
        m.d.comb += [
            none.eq(row.none | column.none),
            # A tile in the padding at the start of a frame waits for the frame's first beat.
            skips.eq(free & none & (begun | self.i.valid)),
            self.i.ready.eq(free & ~none),
            taken.eq(self.i.valid & self.i.ready),
            row_ends.eq(step_ends & column.beat.is_last),
            tile_ends.eq((row_ends & row.beat.is_last) | skips),
        ]
        with m.If(tile_ends):
            m.d.sync += half.eq(~half)
        with m.If(tile_ends & row.span.is_last & column.span.is_last):
            m.d.sync += begun.eq(0)
        with m.Elif(taken):
            m.d.sync += begun.eq(1)
        column.elaborate(m, step=step_ends, restart=row_ends | tile_ends, step_span=tile_ends)
        row.elaborate(
            m,
            step=row_ends,
            restart=tile_ends,
            step_span=tile_ends & column.span.is_last,
            other_half=~half,
        )
        self._elaborate_writes(m, ports, row, column, fold.index, taken)
        return tile_ends

    def _elaborate_writes(
        self, m: Module, ports: dict, row: _WriteAddress, column: _WriteAddress, fold: Value, taken: Value
    ) -> None:
        """Drive the memory banks' write ports; the pixels of a beat go to consecutive column banks."""
        source = self.config.window.input
        pixels = range(source.pixels)
        words = [Cat(lane[pixel] for lane in self.i.payload.data) for pixel in pixels]
        writes = [taken & column.writes(pixel) for pixel in pixels]
        here = Signal(range(self.config.bank_depth), name="write_address")
        behind = Signal(here.shape(), name="write_address_ahead")  # address in the banks below the beat's first bank
        m.d.comb += [
            here.eq(row.place.word + column.place.word + fold),
            behind.eq(row.place.word + column.following_word + fold),
        ]
        for port in ports.values():
            m.d.comb += [port.addr.eq(here), port.data.eq(words[0])]
        with m.Switch(column.place.bank):
            for first in range(self.config.column_banks):
                with m.Case(first):
                    for (bank_row, bank_column), port in ports.items():
                        pixel = (bank_column - first) % self.config.column_banks
                        if pixel >= source.pixels:
                            continue
                        m.d.comb += port.en.eq(writes[pixel] & (row.place.bank == bank_row))
                        if pixel:
                            m.d.comb += port.data.eq(words[pixel])
                        if bank_column < first:
                            m.d.comb += port.addr.eq(behind)

    def _elaborate_reader(self, m: Module, ports: dict, has_tile: Value) -> Value:
        """Add the reader of complete tiles' windows; return a bit: a tile's last step (read) is issued."""
        config, window = self.config, self.config.window
        row = _ReadAddress(m, config.rows, "row", window.patches.rows, config.row_interleaving)
        column = _ReadAddress(m, config.columns, "column", window.patches.columns, config.column_interleaving)
        tap_folds = Loop("tap_fold_index", range(window.tap_folds))
        folds = Loop("output_fold", range(window.output_folds), index=self.fold)
        inner = Loop("inner_fold_index", range(window.group_folds))
        half = Signal(name="read_half_index")
        idle = Signal(name="is_idle", init=1)  # no output fold is active
        stepping, row_ends, tile_ends = (Signal(name=name) for name in ("step_valid", "row_end", "tile_end"))
        last = named(inner.is_last & tap_folds.is_last, "is_last_step")
        taps_end = inner.step(m, stepping)
        fold_ends = tap_folds.step(m, taps_end)
        window_ends = folds.step(m, fold_ends)
        m.d.comb += [
            self.start.eq(idle & self.room & has_tile),
            stepping.eq(self.start | ~idle),
            row_ends.eq(window_ends & column.window.is_last),
            tile_ends.eq(row_ends & row.window.is_last),
        ]
        with m.If(stepping):
            m.d.sync += idle.eq(last)
        with m.If(tile_ends):
            m.d.sync += half.eq(~half)
        column.elaborate(patch=taps_end, window=window_ends, span=tile_ends)
        row.elaborate(patch=taps_end & column.patch.is_last, window=row_ends, span=tile_ends & column.span.is_last)
        first, _ = group_first_folds(m, window, fold_ends, folds.is_last)
        input_fold = inner.index if window.groups == 1 else first + inner.index
        self._elaborate_addresses(m, ports, row, column, input_fold + Mux(half, config.half_depth, 0))
        pixels = self._elaborate_rotation(m, ports, row, column)
        self._elaborate_taps(m, pixels, tap_folds.index)
        m.d.comb += [
            self.o.valid.eq(delayed(m, "valid", stepping, config.latency, reset_less=False)),
            self.o.payload.first.eq(delayed(m, "is_first_step", idle, config.latency)),
            self.o.payload.last.eq(delayed(m, "is_last_step", last, config.latency)),
        ]
        return tile_ends

    def _elaborate_addresses(
        self, m: Module, ports: dict, row: _ReadAddress, column: _ReadAddress, offset: Value
    ) -> None:
        """Add the read addresses of all banks: stage 1 per axis, stage 2 the sum of both and the fold's offset."""
        config = self.config
        shape = range(config.bank_depth)
        offset_1 = registered(m, "fold_offset_1", offset, shape)

        def words(position: _ReadAddress, name: str, offsets: range, banks: Interleaving) -> list[Signal]:
            """Return a list: for each bank along one axis, the word address to read, registered.

            A patch begins in the bank of its place. Banks below this one hold its last pixels, one pitch further on.
            """
            result = []
            for bank in range(banks.banks):
                word = Signal(shape, name=f"{name}_{bank}_1", reset_less=True)
                m.d.sync += word.eq(position.place.word + banks.words_ahead(position.place.bank, bank, offsets))
                result.append(word)
            return result

        window = config.window
        rows = words(row, "row_word_address", window.patches.rows, config.row_interleaving)
        columns = words(column, "column_word_address", window.patches.columns, config.column_interleaving)
        for (bank_row, bank_column), (read, _) in ports.items():
            address = registered(
                m, f"read_address_{bank_row}_{bank_column}", rows[bank_row] + columns[bank_column] + offset_1, shape
            )
            m.d.comb += read.eq(address)

    def _elaborate_rotation(self, m: Module, ports: dict, row: _ReadAddress, column: _ReadAddress) -> dict:
        """Select each pixel of a step from its bank; return a dict, (row, column) in the patch to registered pixel.

        Row and column count within the patch. Pixels in the padding are replaced.
        """
        config, window = self.config, self.config.window
        values = {bank: word for bank, (_, word) in ports.items()}
        stage = 3 + config.registers_words
        if config.row_banks > 1:
            phase = delayed_fast(m, "patch_row_bank_index", row.place.bank, stage)
            values = {
                (patch_row, column): bank_word(m, f"patch_row_{patch_row}_{column}_selected", phase, offset, banks)
                for patch_row, offset in enumerate(window.patches.rows)
                for column in range(config.column_banks)
                for banks in [[values[bank, column] for bank in range(config.row_banks)]]
            }  # by row of the patch and by column bank
            if not config.registers_words:
                values = {
                    indices: delayed(m, f"patch_row_{indices[0]}_{indices[1]}", value, 1)
                    for indices, value in values.items()
                }
                stage += 1
        phase = delayed(m, "patch_column_bank_index", column.place.bank, stage)
        inside = self._inside_bits(m, row, column, stage)
        if window.inside:
            delayed_inside = Const(-1, window.taps) if inside is None else delayed(m, "taps_inside", inside, 1)
            m.d.comb += self.o.payload.inside.eq(delayed_inside)
        pad = self.config.window.pad_word
        pixels = {}
        height, width = window.patches.size
        for i, j in [(i, j) for i in range(height) for j in range(width)]:
            value = values[i, 0]
            if config.column_banks > 1:
                banks = [values[i, bank] for bank in range(config.column_banks)]
                value = bank_word(m, f"patch_pixel_{i}_{j}_selected", phase, window.patches.columns[j], banks)
            if inside is not None:
                value = Mux(inside[i * width + j], value, pad)
            pixels[i, j] = registered(m, f"pixel_{i}_{j}", value, window.word_bits)
        return pixels

    def _inside_bits(self, m: Module, row: _ReadAddress, column: _ReadAddress, stage: int) -> Value | None:
        """Return a `Value`: per pixel of one read, row by row, a bit: inside the map; ``None`` without padding."""
        height, width = self.config.window.patches.size
        rows, columns = row.inside(), column.inside()
        if rows is None and columns is None:
            return None
        # The bits of rows and columns are delayed, which are fewer than the bits of pixels.
        rows, columns = (
            Const(-1, size)
            if inside is None
            else delayed(m, f"{name}_inside", inside, stage - _ReadAddress.inside_delay)
            for name, inside, size in (("rows", rows, height), ("columns", columns, width))
        )
        return Cat(rows[i] & columns[j] for i in range(height) for j in range(width))

    def _elaborate_taps(self, m: Module, pixels: dict, tap_fold: Value) -> None:
        """Drive the output ``o`` with the kernel taps of a step, selected from the pixels that it reads."""
        window = self.config.window
        if window.patches.chooses:
            tap_fold = delayed(m, "tap_fold_index", tap_fold, self.config.latency - 1)
        taps = choose_taps(m, window, 0, tap_fold, pixels)
        for tap, value in zip(self.o.payload.taps[0], taps, strict=True):
            m.d.comb += tap.as_value().eq(value)
