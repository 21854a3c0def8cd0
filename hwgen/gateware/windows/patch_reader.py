"""Read pipeline of a line buffer: from pixel addresses, through the memories, to the taps of one cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from hwgen.gateware.cost import Cost, counter_bits
from hwgen.gateware.lookup import delayed, delayed_fast, dense_table, registered
from hwgen.gateware.stream import at_pixel
from hwgen.gateware.windows.ring_banks import RingBank, RingBanks
from hwgen.gateware.windows.window_parameters import WindowParameters
from hwgen.gateware.windows.window_walk import WindowWalk

#: Dictionary from (row, column) in a patch or in the memory banks to a word with ``Tn`` channels of one pixel.
Pixels = dict[tuple[int, int], Value]


@dataclass(frozen=True)
class PatchReader:
    """Read pipeline of a line buffer: addresses, memories, sorting by row and column, padding, choice of taps."""

    parameters: WindowParameters
    banks: RingBanks

    @property
    def word_stage(self) -> int:
        """Cycles from the start of a read until its words reach the multiplexers that sort them by column."""
        return 3 + (self.banks.rows > 1 or self.banks.registers_words)

    @property
    def latency(self) -> int:
        """Cycles from the start of a read of window taps until the line buffer outputs the taps."""
        return self.word_stage + 1 + self.parameters.patches.chooses

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the data path after the memories, and the delays of its control signals."""
        parameters, patches, banks = self.parameters, self.parameters.patches, self.banks
        word, patch_rows, reads = parameters.word_bits, patches.size[0], len(patches.used_columns)
        if banks.registers_words:
            cost.ff += banks.count * banks.pieces * word
            cost.multiplexer(banks.count * word, banks.pieces)
        elif banks.rows > 1:
            cost.ff += patch_rows * banks.columns * word
        if banks.rows > 1 and banks.rotates_rows:
            # A multiplexer of seven inputs takes two LUTs, with selects that are decoded once for all multiplexers. If
            # seven rows are read at once, Yosys keeps the selects, and a multiplexer takes three LUTs. With a dilation,
            # Yosys keeps some of the selects.
            mux_luts = 3 if banks.rows == patch_rows == 7 else cost.logic.mux_luts(banks.rows)
            kept = 0.5 if banks.rows in (7, 8) and parameters.dilation[0] > 1 and mux_luts == 2 else 0
            cost.luts(patch_rows * banks.columns * word * (mux_luts + kept))
            cost.delay(counter_bits(parameters.rows), 3)
            cost.ff += counter_bits(parameters.rows) * banks.registers_words
        cost.ff += patch_rows * reads * word + 2 * counter_bits(banks.pieces) * banks.count
        cost.luts(patch_rows * reads * word * cost.logic.rotation(banks.columns, padded=parameters.padded))
        if banks.columns > 1:
            cost.delay(counter_bits(banks.columns), self.word_stage)
        if parameters.padded:
            cost.delay(patch_rows * reads, self.word_stage)
            cost.ff += patch_rows * reads * parameters.inside
        if patches.chooses:
            cost.ff += parameters.pixels * parameters.taps * word
            cost.luts(parameters.pixels * word * patches.choice_luts(cost.logic))
            cost.delay(counter_bits(parameters.tap_folds), self.latency - 1)
        cost.ff += self.latency
        cost.delay(2, self.latency)

    def add_to(self, m: Module, walk: WindowWalk, banks: list[RingBank], output: wiring.PureInterface) -> None:
        """Add the pipeline that reads the pixels that ``walk`` points to, and drive the stream ``output`` of taps."""
        self._add_addresses(m, walk, banks)
        rows = self._rotate_rows(m, walk, {(bank.row, bank.column): bank.word for bank in banks})
        pixels = self._rotate_columns(m, walk, rows, output)
        taps = self._add_choice(m, walk, pixels)
        for window, values in zip(output.payload.taps, taps, strict=True):
            m.d.comb += [tap.as_value().eq(value) for tap, value in zip(window, values, strict=True)]
        m.d.comb += [
            output.valid.eq(delayed(m, "valid", walk.stepping, self.latency, reset_less=False)),
            output.payload.first.eq(delayed(m, "is_first_step", walk.first, self.latency)),
            output.payload.last.eq(delayed(m, "is_last_step", walk.last, self.latency)),
        ]

    def _add_addresses(self, m: Module, walk: WindowWalk, banks: list[RingBank]) -> None:
        """Add the read addresses of the memory banks, computed in two pipeline stages.

        Stage 1 computes the word of row and column, and the offset of the input fold. Stage 2 adds both. The memory is
        stage 3.
        """
        ring, patches = self.banks, self.parameters.patches
        width = max(1, (ring.depth - 1).bit_length())
        base: Value = walk.column.word
        if ring.rows == 1:
            slots = [slot * ring.row_words for slot in range(self.parameters.rows)]
            base = base + dense_table(m, "patch_slot_address", walk.slot, slots)
        base_1 = registered(m, "patch_address_1", base, width)
        for column in range(ring.columns):
            ahead = ring.interleaving.words_ahead(walk.column.bank, column, patches.read_columns)
            fold_1 = registered(m, f"fold_offset_{column}_1", walk.input_fold + ahead, width)
            address = registered(m, f"read_address_{column}", base_1 + fold_1, width)
            m.d.comb += [bank.address.eq(address) for bank in banks if bank.column == column]

    def _rotate_rows(self, m: Module, walk: WindowWalk, outputs: Pixels) -> Pixels:
        """Sort the row banks' words by row of the patch (taps read at once); return them as `Pixels` by (row, column).

        Keys are (row of the patch, column bank). The stage exists only if every ring row has its own banks. Words
        that pass the output registers of block RAM are one cycle later, and the rotation is then part of the next
        stage.
        """
        patches, banks = self.parameters.patches, self.banks
        if banks.rows == 1:  # one bank stores all rows; if a patch has several rows, the ring has one row
            return {
                (row, column): outputs[0, column] for row in range(patches.size[0]) for column in range(banks.columns)
            }
        if banks.registers_words:
            slot = delayed_fast(m, "patch_slot_index", walk.slot, 4)
        else:
            slot = delayed(m, "patch_slot_index", walk.slot, 3)
        rotated: Pixels = {}
        for row, below in enumerate(patches.rows):
            for column in range(banks.columns):
                words = [outputs[bank, column] for bank in range(banks.rows)]
                word = bank_word(m, f"patch_row_{row}_{column}_selected", slot, below, words)
                delay = int(not banks.registers_words)
                rotated[row, column] = delayed(m, f"patch_row_{row}_{column}", word, delay)
        return rotated

    def _rotate_columns(self, m: Module, walk: WindowWalk, rows: Pixels, output: wiring.PureInterface) -> Pixels:
        """Sort the column banks' words and insert padding; return them as `Pixels` by (row, column) in the patch."""
        parameters, patches = self.parameters, self.parameters.patches
        stage, columns = self.word_stage, patches.read_columns
        phase = delayed(m, "patch_bank_index", walk.column.bank, stage)
        inside = None if walk.inside is None else delayed(m, "pixels_inside", walk.inside, stage - 1)
        if parameters.inside and inside is not None:
            inside_next = delayed(m, "taps_inside", inside, 1)
            for window, bits in enumerate(output.payload.inside):
                for tap, (i, j) in enumerate(patches.step_taps[0]):
                    column = columns.index(window * parameters.stride[1] + j * parameters.dilation[1])
                    m.d.comb += bits[tap].eq(inside_next[i * len(columns) + column])
        pad = parameters.pad_word
        pixels: Pixels = {}
        for row in range(patches.size[0]):
            for index, column in enumerate(columns):
                words = [rows[row, bank] for bank in range(self.banks.columns)]
                value: Value = bank_word(m, f"pixel_{row}_{column}", phase, column, words)
                if inside is not None:
                    value = Mux(inside[row * len(columns) + index], value, pad)
                pixels[row, column] = registered(m, f"pixel_{row}_{column}_padded", value, parameters.word_bits)
        return pixels

    def _add_choice(self, m: Module, walk: WindowWalk, pixels: Pixels) -> list[list[Value]]:
        """Add multiplexers of taps if a cycle reads more than it outputs; return a list of output taps per window."""
        parameters, patches = self.parameters, self.parameters.patches
        patch = list(product(range(patches.size[0]), range(patches.size[1])))
        tap_fold = delayed(m, "tap_fold_index", walk.round, self.latency - 1) if patches.chooses else Const(0)
        chosen = []
        for window in range(parameters.pixels):
            left = window * parameters.stride[1]
            of_window = {(i, j): pixels[i, left + patches.columns[j]] for i, j in patch}
            chosen.append(choose_taps(m, parameters, window, tap_fold, of_window))
        return chosen


def bank_word(m: Module, name: str, phase: Value, offset: int, banks: Sequence[Value]) -> Signal:
    """Add a multiplexer that selects the word of bank ``(phase + offset) % len(banks)``; return its `Signal`."""
    result = Signal(banks[0].shape(), name=name)
    if len(banks) == 1:
        m.d.comb += result.eq(banks[0])
        return result
    with m.Switch(phase):
        for first in range(len(banks)):
            with m.Case(first):
                m.d.comb += result.eq(banks[(first + offset) % len(banks)])
    return result


def choose_taps(m: Module, parameters: WindowParameters, window: int, tap_fold: Value, pixels: Pixels) -> list[Value]:
    """Return the list of taps that the current cycle outputs for window ``window`` of ``Tp`` read together.

    ``pixels`` has the words that were read, by row and column of the patch. If a cycle reads more pixels than it
    outputs, one more pipeline stage selects the taps.
    """
    if not parameters.patches.chooses:
        return list(pixels.values())
    chosen: list[Value] = []
    for tap in range(parameters.taps):
        name = at_pixel(f"tap_{tap}", window, parameters.pixels)
        register = registered(m, name, parameters.pad_word, parameters.word_bits)
        with m.Switch(tap_fold):
            for index, taps in enumerate(parameters.patches.step_taps):
                if tap < len(taps):
                    with m.Case(index):
                        m.d.sync += register.eq(pixels[taps[tap]])
        chosen.append(register)
    return chosen
