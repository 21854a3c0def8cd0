"""Memory banks that store a line buffer's ring of image rows, and the writer that fills them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from hwgen.gateware.cost import Cost, counter_bits, trailing_zeros
from hwgen.gateware.lookup import dense_table, named
from hwgen.gateware.nest import Interleaving, Loop, Place, banks_apart
from hwgen.gateware.pieces import WritePort, count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.windows.window_parameters import WindowParameters


@dataclass(frozen=True)
class RingBank:
    """Signals of one memory bank of a line buffer: write port, read address and word; and its row and column."""

    row: int
    column: int
    write: WritePort
    address: Signal
    word: Value


@dataclass(frozen=True)
class RingBanks:
    """Memory banks of a line buffer's ring of rows; pixels accessed in one cycle are in different banks.

    Column ``x`` of the map is in column bank ``x mod columns``. If a patch has more than one row, every ring row has
    banks of its own.
    """

    parameters: WindowParameters

    @property
    def rows(self) -> int:
        """Number of rows of memory banks: one per stored image row if a cycle reads several rows, otherwise 1."""
        return self.parameters.rows if self.parameters.patches.size[0] > 1 else 1

    @cached_property
    def columns(self) -> int:
        """Number of memory banks per row; an image row's columns are interleaved among them."""
        return banks_apart(self.parameters.patches.read_columns, self.parameters.input.pixels)

    @property
    def count(self) -> int:
        """Number of memory banks of the line buffer."""
        return self.rows * self.columns

    @property
    def interleaving(self) -> Interleaving:
        """`Interleaving`: mapping from an image column to a column bank and the first word of its pixel."""
        return Interleaving(self.columns, self.parameters.input.folds)

    @property
    def row_words(self) -> int:
        """Number of words of one bank that an image row occupies."""
        return -(-self.parameters.input.width // self.columns) * self.parameters.input.folds

    @property
    def depth(self) -> int:
        """Number of words per memory bank; a word stores ``Tn`` channels of one pixel."""
        return self.row_words * self.parameters.rows // self.rows

    @property
    def memory(self) -> str:
        """RAM that stores the banks: ``lut``, ``block`` or ``ultra``, chosen by ``memory_in`` or by depth."""
        return self.parameters.memory_in or self.parameters.memories.default_ram(self.depth)

    @property
    def pieces(self) -> int:
        """Number of memories that make up each bank, so that multiplexers of deep banks stay fast."""
        parameters = self.parameters
        return len(piece_words(parameters.device, parameters.word_bits, self.depth, parameters.memory_in))

    @cached_property
    def registers_words(self) -> bool:
        """Whether read words pass an output register of the RAM: always in UltraRAM, in block RAM if LUTs follow.

        Words of block RAM pass it if more than one LUT per bit follows the memory.
        """
        if self.memory == "ultra":
            return True
        parameters = self.parameters
        blocks, _ = parameters.memories.stacked(parameters.word_bits, self.depth)
        banks = self.rows if self.rows > 1 else self.columns
        padded = self.rows == 1 and parameters.padded
        return self.memory == "block" and blocks * banks + padded > parameters.device.logic.mux_ways

    @property
    def rotates_rows(self) -> bool:
        """Whether windows can start in any row of the ring (circular memory), so that rows must be sorted."""
        parameters = self.parameters
        frame = parameters.input.height - (parameters.output_height - 1) * parameters.stride[0]
        return any(rows % parameters.rows for rows in (parameters.stride[0], frame, parameters.patches.advance[0]))

    def count_memories(self, cost: Cost) -> None:
        """Add to ``cost`` the memories of all banks of the line buffer."""
        for _ in range(self.count):
            count_pieces(cost, self.parameters.word_bits, self.depth, self.parameters.memory_in)

    def add_to(self, m: Module) -> list[RingBank]:
        """Add the memories of all banks to a module; return, as a list, a `RingBank` per bank, row by row."""
        return [self._add_bank(m, row, column) for row in range(self.rows) for column in range(self.columns)]

    def _add_bank(self, m: Module, row: int, column: int) -> RingBank:
        """Add one memory bank of the line buffer, and return a `RingBank`: its signals.

        A bank of many block RAMs is in pieces, because its multiplexer would be slow.
        """
        write, address, word = memory_in_pieces(
            m,
            self.parameters.device,
            f"bank_{row}_{column}",
            width=self.parameters.word_bits,
            depth=self.depth,
            registered=self.registers_words,
            where=self.parameters.memory_in,
        )
        return RingBank(row, column, write, address, word)


@dataclass(frozen=True)
class WrittenPixels:
    """Signals of a line buffer's writer: number of pixels completed in this cycle, and number in the next beats.

    Both are 0 unless this cycle stores the last channels of its pixels. The next beats carry the next pixels.
    """

    written: Value
    upcoming: Value


@dataclass(frozen=True)
class RingWriter:
    """Writer of a line buffer, which stores the ``Tp`` pixels of a beat in different banks in one cycle."""

    parameters: WindowParameters
    banks: RingBanks

    @property
    def counter_ff(self) -> int:
        """Number of flip-flops of the counters in the line buffer's writer."""
        source, banks = self.parameters.input, self.banks.columns
        moves_rows = self.banks.rows == 1 and self.parameters.rows > 1
        total = counter_bits(source.row_steps) + counter_bits(source.folds) + counter_bits(self.parameters.rows)
        if source.pixels % banks:
            total += counter_bits(banks)
        word_step = source.folds * (1 if source.pixels % banks else source.pixels // banks)
        if moves_rows:
            word_step = gcd(word_step, self.banks.row_words)
        if moves_rows or self.banks.row_words > source.folds:
            total += max(0, counter_bits(self.banks.depth) - trailing_zeros(word_step))
        return total

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the write data multiplexers of the banks; the data of a bank that is not written is 0."""
        columns = self.banks.columns
        if columns > 1:
            selects = columns // gcd(columns, self.parameters.input.pixels) > 1
            cost.lut += columns * self.parameters.word_bits * selects

    def add_to(self, m: Module, source: wiring.PureInterface, banks: list[RingBank]) -> WrittenPixels:
        """Add the writer that stores the beats of ``source`` in the banks; return `WrittenPixels`: its pixel counts."""
        parameters, ring = self.parameters, self.banks
        folds, pixels, steps = parameters.input.folds, parameters.input.pixels, parameters.input.row_steps
        taken = Signal(name="input_transfer")
        m.d.comb += taken.eq(source.valid & source.ready)
        fold, step = Loop("write_fold_index", range(folds)), Loop("write_step_index", range(steps))
        slot = Loop("write_slot_index", range(parameters.rows))
        # The place of the beat's first column in fold 0.
        first_column = ring.interleaving.register("write", range(ring.depth))
        step_ends = fold.step(m, taken)
        row_ends = step.step(m, step_ends)
        slot.step(m, row_ends)
        # The fold index in the next word step is a counter as well, so that an address needs one addition.
        ahead = Signal(range(folds, 2 * folds), name="write_fold_index_next_word", init=folds)
        with m.If(taken):
            m.d.sync += ahead.eq(Mux(fold.is_last, folds, ahead + 1))
        with m.If(step_ends):
            m.d.sync += first_column.eq(ring.interleaving.ahead(first_column, pixels))
        with m.If(row_ends):
            m.d.sync += first_column.eq(Place(Const(0), Const(0)))
            if ring.rows == 1:
                starts = [(index + 1) % parameters.rows * ring.row_words for index in range(parameters.rows)]
                m.d.sync += first_column.word.eq(dense_table(m, "next_write_row_address", slot.index, starts))

        values = source.payload.data
        with m.Switch(first_column.bank):
            for first in range(ring.columns):
                with m.Case(first):
                    for bank in banks:
                        pixel = (bank.column - first) % ring.columns
                        m.d.comb += bank.write.addr.eq(
                            first_column.word + (ahead if bank.column < first else fold.index)
                        )
                        if pixel < pixels:
                            in_last = pixel < parameters.input.last_pixels
                            here = named(taken if in_last else taken & ~step.is_last, "is_pixel_written")
                            m.d.comb += [
                                bank.write.data.eq(Cat(lane[pixel] for lane in values)),
                                bank.write.en.eq(here if ring.rows == 1 else here & (slot.index == bank.row)),
                            ]
        return self._add_counts(m, step, step_ends)

    def _add_counts(self, m: Module, step: Loop, step_ends: Value) -> WrittenPixels:
        """Return counts (`WrittenPixels`) of the pixels in the current beats, and in the beats that follow."""
        source = self.parameters.input
        pixels, short = source.pixels, source.last_pixels
        count = Signal(range(pixels + 1), name="write_pixels")  # pixels of the current step
        m.d.comb += count.eq(Mux(step.is_last, short, pixels))
        written = named(Mux(step_ends, count, 0), "written_pixels")
        if short == pixels or source.row_steps == 1:
            return WrittenPixels(written, written)
        following = Signal(range(pixels + 1), name="next_write_pixels")
        m.d.comb += following.eq(Mux(step.index == source.row_steps - 2, short, pixels))
        return WrittenPixels(written, upcoming=Mux(step_ends, following, 0))
