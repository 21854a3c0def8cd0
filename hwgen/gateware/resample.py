"""Resampling of a feature map: each output row and column is read at an index of the input, through a ring of rows.

The indices are constants, so that a Resize to nearest neighbours and a Pad that repeats or reflects pixels are one
circuit. For a linear Resize, each step also reads the next row and the next column (`ResampleConfig.pairs`).

The ring is filled row by row. An output row starts when all rows that it reads are stored. A stored row is overwritten
after the last output row that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import bits_for_range, delayed, dense_table, look_up, named, ram, read_port, write_port
from hwgen.gateware.nest import Interleaving, Loop, Place
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class ResampleConfig(OneMapConfig):
    """Configuration of a reader that outputs the pixels of a map at constant row and column indices.

    Parameters
    ----------
    input : BeatFormat
        Format of the input, with one pixel per beat.
    source_rows, source_columns : tuple of int
        Index of the input row of each output row, and of the input column of each output column.
    pairs : tuple of bool
        Whether a step reads the next row as well, and the next column. There is none after the last one, which is then
        read twice.
    row_phases, column_phases : tuple of int
        Number that accompanies the pixels of each output row, and of each output column; empty without ``pairs``.

    Raises
    ------
    ConfigError
        If beats hold several pixels, an index is outside the map, or the numbers of phases and indices differ.
    """

    source_rows: tuple[int, ...]
    source_columns: tuple[int, ...]
    pairs: tuple[bool, bool] = (False, False)
    row_phases: tuple[int, ...] = ()
    column_phases: tuple[int, ...] = ()

    #: Minimum cycles from the transfer of an input row's last beat to the first read of the row.
    write_delay = 1
    #: Minimum cycles from the last read of an output row to the first beat that overwrites an input row that it read.
    release_delay = 3

    def __post_init__(self) -> None:
        source = self.input
        if source.pixels != 1:
            raise ConfigError(f"input.pixels must be 1, not {source.pixels!r}")
        for name, indices, size in (
            ("source_rows", self.source_rows, source.height),
            ("source_columns", self.source_columns, source.width),
        ):
            if not indices or min(indices) < 0 or max(indices) >= size:
                raise ConfigError(f"{name} must have one or more indices from 0 to {size - 1}, not {indices!r}")
        for name, phases, indices in (
            ("row_phases", self.row_phases, self.source_rows),
            ("column_phases", self.column_phases, self.source_columns),
        ):
            if (count := len(indices) * self.is_linear) != len(phases):
                raise ConfigError(f"{name} must have {count} numbers for {len(indices)} indices, not {len(phases)}")

    @property
    def is_linear(self) -> bool:
        """Whether a cycle outputs four pixels and two interpolation phases (linear Resize) instead of one pixel."""
        return any(self.pairs)

    @property
    def latency(self) -> int:
        """Cycles from a step, the start of a read from the row memory, to the pixels on port ``o``."""
        return 5 + self.is_linear

    @property
    def lanes(self) -> int:
        """Number of channels that resampling outputs per cycle: as many as an input beat has lanes."""
        return self.input.lanes

    @property
    def output_height(self) -> int:
        return len(self.source_rows)

    @property
    def output_width(self) -> int:
        return len(self.source_columns)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Tuple by output row: number of a frame's first input rows that must be stored before it starts.

        The last entry is for the first output row of the next frame.
        """
        height = self.input.height
        ends = list(accumulate((min(row + self.pairs[0], height - 1) + 1 for row in self.source_rows), max))
        return (*ends, height + ends[0])

    @cached_property
    def released(self) -> tuple[int, ...]:
        """Tuple by output row: number of a frame's first input rows that neither it nor later ones read.

        The last entry is for the first output row of the next frame.
        """
        begins = [*accumulate(reversed(self.source_rows), min)][::-1]
        return (*begins, self.input.height + begins[0])

    @cached_property
    def ring_rows(self) -> int:
        """Number of input rows that the ring buffer (circular row memory) stores.

        The rows that an output row reads, and at least one more that is written meanwhile. If an output row reads
        rows far apart, as after a reflected border, all that the next output row needs is written meanwhile.
        """
        held = max(end - begin for begin, end in zip(self.released, self.needed, strict=True))
        ahead = max(end - begin for begin, end in zip(self.released, self.needed[1:], strict=False))
        rows = max(held + 1, min(ahead, 2 * held))
        return rows + rows % self.row_banks

    @property
    def row_banks(self) -> int:
        """Number of banks of memory among which the rows of the ring are divided: two if two rows are read at once."""
        return 1 + self.pairs[0]

    @property
    def column_banks(self) -> int:
        """Number of banks of memory among which the columns are divided: two if two columns are read at once."""
        return 1 + self.pairs[1]

    @property
    def row_words(self) -> int:
        """Number of words, of one beat each, that an input row takes in one memory bank."""
        return -(-self.input.width // self.column_banks) * self.input.folds

    @property
    def bank_depth(self) -> int:
        """Number of words in each memory bank; a word stores a beat."""
        return self.ring_rows // self.row_banks * self.row_words

    @property
    def output_row_steps(self) -> int:
        """Number of cycles (steps) that read an output row."""
        return self.output_width * self.input.folds

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of an output cycle: a pixel ``operand[lane][0]``; linear Resize: four pixels, two phases.

        The pixels ``taps[tap][lane]`` are two of the first row, then two of the next row.
        """
        if not self.is_linear:
            return data.StructLayout({"operand": channels_layout(self.input.shape, self.lanes, 1)})
        return data.StructLayout(
            {
                "taps": data.ArrayLayout(data.ArrayLayout(self.input.shape, self.lanes), 4),
                "row_phase": range(max(self.row_phases) + 1),
                "column_phase": range(max(self.column_phases) + 1),
            }
        )

    @cached_property
    def row_layout(self) -> data.StructLayout:
        """Amaranth layout of an output row's table entry: growth of row counts, ring buffer move, flag and phase.

        At the row's end, ``needed`` and ``released`` are the growth of these counts, and the reader moves on by
        ``slots`` rows in the ring. ``clamped``: there is no next row.
        """
        growths = {
            name: max(_growth(counts)) for name, counts in (("needed", self.needed), ("released", self.released))
        }
        return data.StructLayout(
            {
                **{name: range(growth + 1) for name, growth in growths.items()},
                "slots": range(self.ring_rows),
                "clamped": int(self.pairs[0]),
                "phase": range(max(self.row_phases, default=0) + 1),
            }
        )

    @cached_property
    def column_layout(self) -> data.StructLayout:
        """Layout of an output column's table entry: word offset in its row of a memory bank, bank, flag, and phase.

        ``clamped``: there is no next column.
        """
        return data.StructLayout(
            {
                "word": range(self.row_words),
                "bank": range(self.column_banks),
                "clamped": int(self.pairs[1]),
                "phase": range(max(self.column_phases, default=0) + 1),
            }
        )

    @cached_property
    def row_table(self) -> tuple[int, ...]:
        """Tuple of contents of the constant table of output rows: one word per row, with the layout ``row_layout``."""
        moves = _growth((*self.source_rows, self.input.height + self.source_rows[0]))
        return tuple(
            _packed(
                self.row_layout,
                needed=needed,
                released=released,
                slots=move % self.ring_rows,
                clamped=self.pairs[0] and row == self.input.height - 1,
                phase=phase,
            )
            for needed, released, move, row, phase in zip(
                _growth(self.needed),
                _growth(self.released),
                moves,
                self.source_rows,
                self.row_phases or (0,) * len(self.source_rows),
                strict=True,
            )
        )

    @cached_property
    def column_table(self) -> tuple[int, ...]:
        """Tuple of words in the constant table of output columns: one per column, laid out as ``column_layout``."""
        return tuple(
            _packed(
                self.column_layout,
                word=column // self.column_banks * self.input.folds,
                bank=column % self.column_banks,
                clamped=self.pairs[1] and column == self.input.width - 1,
                phase=phase,
            )
            for column, phase in zip(
                self.source_columns, self.column_phases or (0,) * len(self.source_columns), strict=True
            )
        )

    @cached_property
    def margin_range(self) -> tuple[int, int]:
        """Smallest and largest difference of input rows stored and needed for the next output row, a pair."""
        spare = max(begin - end for begin, end in zip(self.released, self.needed, strict=True))
        return -max(self.needed[0], *_growth(self.needed)), self.ring_rows + max(spare, 0)

    @cached_property
    def space_range(self) -> tuple[int, int]:
        """Smallest and largest value of the counter of free rows in the ring buffer, as a pair."""
        skipped = max(begin - end for begin, end in zip(self.released[1:], self.needed, strict=False))
        return -1, self.ring_rows - 1 + max(skipped, self.released[0], 0)

    @cached_property
    def resources(self) -> Resources:
        cost, source = Cost(self.device), self.input
        banks = self.row_banks * self.column_banks
        cost.ram(source.data_bits, self.bank_depth, copies=banks)
        for words, layout in (
            (self.row_table, self.row_layout),
            (self.column_table, self.column_layout),
        ):
            cost.table(words, layout.size)
        flow = sum(bits_for_range(*ends).width for ends in (self.margin_range, self.space_range))
        cost.registers(flow, 2)
        cost.counter(
            source.folds, source.width, len(self.source_rows), len(self.source_columns), self.ring_rows, self.ring_rows
        )
        cost.registers(counter_bits(self.bank_depth) * (1 + self.row_banks + banks), 0.4)
        cost.ff += source.data_bits * (1 + (4 + banks if self.is_linear else 1)) + banks + self.latency
        # A tap is one of four words by two bits, one LUT per bit; of two words by two bits, one LUT per bit as well.
        cost.lut += 4 * source.data_bits * self.is_linear + 6
        phases = (max(phases, default=0) + 1 for phases in (self.row_phases, self.column_phases))
        cost.delay(sum(map(counter_bits, phases)), 5 * self.is_linear)
        return cost.resources

    def component(self) -> ResampleUnit:
        return ResampleUnit(self)


def _growth(counts: Sequence[int]) -> list[int]:
    """Return a list of the differences between successive ``counts``, one fewer than there are counts."""
    return [after - before for before, after in pairwise(counts)]


def _packed(layout: data.StructLayout, **fields: int) -> int:
    """Return the values of a structure's fields, packed into one integer according to its layout."""
    return sum(int(value) << layout[name].offset for name, value in fields.items())


class ResampleUnit(ConfiguredComponent[ResampleConfig]):
    """Component that stores a map's rows in a ring buffer, and reads pixels at constant indices in output order.

    Parameters
    ----------
    config : ResampleConfig

    Members
    -------
    i, room, fold, start, o
        As in `Join` with one input.

    Latency and throughput
        One beat per cycle on each side. An output row starts ``config.write_delay`` cycles after the last beat of the
        rows that it and the output rows before it need. A beat of a row is accepted ``config.release_delay`` cycles
        after the last step of the output row that releases the ring's row that it overwrites.
    """

    def __init__(self, config: ResampleConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        row = Loop("row_index", range(config.output_height))
        column = Loop("column_index", range(config.output_width))
        fold = Loop("fold", range(config.output_folds), index=self.fold)
        row_ends = column.step(m, fold.step(m, self.start))
        row.step(m, row_ends)
        entry = _entry(m, config.device, "row_table", config.row_layout, config.row_table, row.index)
        # The entry is one cycle late. A row of one step needs it at once.
        growth = entry
        if config.output_row_steps == 1:
            at_once = dense_table(m, "row_growth", row.index, config.row_table)
            growth = data.View(config.row_layout, Cat(at_once, Const(0, config.row_layout.size - len(at_once))))
        slot = self._elaborate_slot(m, row_ends, growth.slots)
        written = self._elaborate_flow(m, row_ends, growth)
        banks = self._elaborate_writer(m, written)
        self._elaborate_fetch(m, slot, column.index, entry, banks)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m

    def _elaborate_slot(self, m: Module, row_ends: Value, moves: Value) -> Signal:
        """Add and return the register (`Signal`) with the index of the ring buffer row that is read."""
        rows = self.config.ring_rows
        slot = Signal(range(rows), name="read_slot_index", init=self.config.source_rows[0] % rows)
        ahead = named(slot + moves, "read_slot_ahead")
        with m.If(row_ends):
            m.d.sync += slot.eq(Mux(ahead >= rows, ahead - rows, ahead))
        return slot

    def _elaborate_flow(self, m: Module, row_ends: Value, growth: data.View) -> Signal:
        """Count stored and free rows, which start output rows and accept beats; return the signal ``row_written``.

        The caller must drive it high in the cycle that completes an input row.
        """
        config = self.config
        written = Signal(name="row_written")
        margin = Signal(bits_for_range(*config.margin_range), name="margin", init=-config.needed[0])
        first_space = config.ring_rows + config.released[0] - 1
        space = Signal(bits_for_range(*config.space_range), name="space", init=first_space)
        released = Signal.like(growth.released, name="released_rows")
        m.d.sync += [
            released.eq(Mux(row_ends, growth.released, 0)),
            margin.eq(margin + written - Mux(row_ends, growth.needed, 0)),
            space.eq(space + delayed(m, "released_rows", released, 1, reset_less=False) - written),
        ]
        # The sign bits replace comparisons.
        m.d.comb += [self.start.eq(self.room & ~margin[-1]), self.i.ready.eq(~space[-1])]
        return written

    def _elaborate_writer(self, m: Module, written: Signal) -> dict[tuple[int, int], tuple[Signal, Value]]:
        """Add writer and memory banks; return a dict from (row bank, column bank) to a pair: read address and data."""
        config, source = self.config, self.config.input
        taken = named(self.i.valid & self.i.ready, "input_transfer")
        fold, column = Loop("write_fold_index", range(source.folds)), Loop("write_column_index", range(source.width))
        slot = Loop("write_slot_index", range(config.ring_rows))
        columns = Interleaving(config.column_banks, source.folds)
        pixel_place = columns.register("write", range(config.row_words))
        pixel_ends = fold.step(m, taken)
        row_ends = column.step(m, pixel_ends)
        slot.step(m, row_ends)
        m.d.comb += written.eq(row_ends)
        with m.If(pixel_ends):
            m.d.sync += pixel_place.eq(columns.ahead(pixel_place, 1).unless(column.is_last, columns.place_of(0)))
        starts = [index // config.row_banks * config.row_words for index in range(config.ring_rows)]
        address = Signal(range(config.bank_depth), name="write_address", reset_less=True)
        word = Signal(source.data_bits, name="write_word", reset_less=True)
        base = dense_table(m, "write_slot_address", slot.index, starts)
        m.d.sync += [address.eq(base + pixel_place.word + fold.index), word.eq(self.i.payload.data)]
        return {
            (row, side): self._elaborate_bank(m, (row, side), taken, slot, pixel_place, address, word)
            for row in range(config.row_banks)
            for side in range(config.column_banks)
        }

    def _elaborate_bank(
        self,
        m: Module,
        bank: tuple[int, int],
        taken: Value,
        slot: Loop,
        pixel_place: Place,
        address: Signal,
        word: Signal,
    ) -> tuple[Signal, Value]:
        """Add one memory bank, which stores beats of its rows and columns; return a pair: read address and data."""
        config, (row, side) = self.config, bank
        depth, name = config.bank_depth, f"bank_{row}_{side}"
        m.submodules[name] = words = ram(config.device, config.input.data_bits, depth)
        write, read = write_port(words), read_port(words)
        here = taken & (pixel_place.bank == side)
        if config.row_banks == 2:
            here &= slot.index[0] == row
        read_address = Signal(range(depth), name=f"{name}_read_address", reset_less=True)
        m.d.sync += write.en.eq(here)
        m.d.comb += [write.addr.eq(address), write.data.eq(word), read.addr.eq(read_address)]
        return read_address, read.data

    def _slot_addresses(self, row_bank: int) -> list[int]:
        """Return a list: each ring buffer row's first address in a bank (the next row's if that is stored there)."""
        config = self.config
        rows, banks = config.ring_rows, config.row_banks
        slots = ((slot + (banks == 2 and slot % 2 != row_bank)) % rows for slot in range(rows))
        return [slot // banks * config.row_words for slot in slots]

    def _elaborate_fetch(
        self,
        m: Module,
        slot: Value,
        column: Value,
        entry: data.View,
        banks: dict[tuple[int, int], tuple[Signal, Value]],
    ) -> None:
        """Add the read pipeline: column table, bank addresses, memory words, and choice of each tap's bank."""
        config = self.config
        place = _entry(m, config.device, "column_table", config.column_layout, config.column_table, column)
        fold = delayed(m, "fold", self.fold, 1)
        place_2 = data.View(config.column_layout, delayed(m, "column_entry", Value.cast(place), 1))
        for row in range(config.row_banks):
            starts = dense_table(m, f"read_slot_address_{row}", slot, self._slot_addresses(row))
            start = Signal(range(config.bank_depth), name=f"read_row_{row}", reset_less=True)
            m.d.sync += start.eq(delayed(m, f"read_slot_address_{row}", starts, 1) + fold)
            for side in range(config.column_banks):
                # An even bank has the next column in its next word, if the column is odd.
                ahead = Mux(place_2.bank, config.input.folds, 0) if config.column_banks == 2 and side == 0 else 0
                m.d.sync += banks[row, side][0].eq(start + place_2.word + ahead)
        words = [delayed(m, f"bank_word_{index}", word, 1) for index, (_, word) in enumerate(banks.values())]
        if not config.is_linear:
            m.d.comb += Value.cast(self.o.payload.operand).eq(words[0])
            return
        # The words pass the memories' output registers five cycles after the step.
        flags = data.View(config.row_layout, delayed(m, "row_entry", Value.cast(entry), 4))
        places = data.View(config.column_layout, delayed(m, "column_entry_read", Value.cast(place_2), 3))
        row_bank = delayed(m, "read_slot_bank", slot[0], 5)
        for tap in range(4):
            sides = [places.bank ^ ~places.clamped if tap % 2 else places.bank] * config.pairs[1]
            sides += [row_bank ^ ~flags.clamped if tap // 2 else row_bank] * config.pairs[0]
            register = Signal(config.input.data_bits, name=f"tap_{tap}", reset_less=True)
            with m.Switch(Cat(*sides)):
                for number, word in enumerate(words):
                    with m.Case(number):
                        m.d.sync += register.eq(word)
            m.d.comb += Value.cast(self.o.payload.taps[tap]).eq(register)
        m.d.comb += [
            self.o.payload.row_phase.eq(delayed(m, "row_phase", flags.phase, 1)),
            self.o.payload.column_phase.eq(delayed(m, "column_phase", places.phase, 1)),
        ]


def _entry(
    m: Module, device: Device, name: str, layout: data.StructLayout, words: Sequence[int], index: Value
) -> data.View:
    """Add a constant table of structures in LUT RAM, and return the entry at ``index``, one cycle later."""
    return data.View(layout, look_up(m, device, name, unsigned(max(layout.size, 1)), words, index)[: layout.size])


@dataclass(frozen=True, kw_only=True)
class ResampleLayerConfig(JoinLayerConfig):
    """Configuration of a layer that reads a map at constant indices, with a `ResampleConfig` as its ``window``.

    Parameters and errors are as in `LayerConfig`.
    """

    @property
    def resample(self) -> Any:
        """`ResampleConfig` of the component that reads the layer's input."""
        return self.window

    @property
    def cycles(self) -> int:
        return max(super().cycles, self.beats_in)
