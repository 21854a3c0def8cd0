"""Read order of a line buffer: nested counters of windows, channels and taps, and the addresses they point to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Signal, Value

from hwgen.gateware.cost import counter_bits, trailing_zeros
from hwgen.gateware.lookup import bits_for_range, dense_table, named, registered
from hwgen.gateware.nest import Loop
from hwgen.gateware.windows.ring_banks import RingBanks
from hwgen.gateware.windows.window_parameters import WindowParameters


@dataclass(frozen=True)
class WalkCounters:
    """Number of flip-flops of the counters of a `WindowWalk`, a line buffer's read order."""

    parameters: WindowParameters
    banks: RingBanks

    @property
    def position_ff(self) -> int:
        """Number of flip-flops of a line buffer's read counters of windows, folds and taps."""
        parameters, patches, total = self.parameters, self.parameters.patches, 0
        for positions, stride in (
            (parameters.grid.tops, parameters.stride[0]),
            (parameters.grid.lefts, parameters.stride[1] * parameters.pixels),
        ):
            if len(positions) > 1:
                total += bits_for_range(positions[0], positions[-1]).width - trailing_zeros(stride)
        total += counter_bits(parameters.output_folds) + counter_bits(parameters.group_folds)
        total += counter_bits(parameters.extent[1]) - trailing_zeros(parameters.dilation[1])
        total += counter_bits(patches.rounds)
        if not patches.chooses and patches.rounds > 1 and parameters.padded:
            total += counter_bits(parameters.extent[0]) - trailing_zeros(parameters.dilation[0])
        return total

    @property
    def address_ff(self) -> int:
        """Number of flip-flops of a line buffer's counters of input folds and banks, and of its read addresses."""
        parameters, banks = self.parameters, self.banks.columns
        folds, width = parameters.input.folds, max(1, counter_bits(self.banks.depth))
        total = counter_bits(folds)
        if parameters.groups > 1:
            total += counter_bits(folds) + counter_bits(parameters.group_output_folds)
        total += 2 * (width - trailing_zeros(folds))
        if banks > 1:
            total += 2 * counter_bits(banks)
        if self.banks.rotates_rows:
            total += 2 * counter_bits(parameters.rows)
        total += width + banks * width
        # A bank can read a word further ahead in its memory. The maximum of these words has ``ahead`` bits.
        ahead = max(1, ((banks - 1 + parameters.patches.read_columns[-1]) // banks).bit_length())
        if folds & (folds - 1):
            return total + banks * (counter_bits(folds) + ahead)
        # The sums of all banks share all bits but the highest.
        return total + counter_bits(folds) + banks * ahead - 1


class WindowWalk:
    """Counters of a line buffer's reader: position in the loops over windows, output folds, taps and input folds.

    All signals describe the reads of one cycle and are valid while ``stepping`` is high.
    """

    def __init__(self, m: Module, parameters: WindowParameters, banks: RingBanks, room: Value):
        self._m, self._parameters, self._banks = m, parameters, banks
        patches = parameters.patches
        rows_on, columns_on = patches.advance
        across = range(0, parameters.kernel[1] * parameters.dilation[1], columns_on)
        patch_row = Signal(range(parameters.extent[0]), name="patch_row_offset")
        patch_column = Signal(range(parameters.extent[1]), name="patch_column_offset")

        rows = Loop("window_top_row", parameters.grid.tops)
        row_windows = Loop("window_left_column", parameters.grid.lefts)
        folds = Loop("output_fold_index", range(parameters.output_folds))
        rounds = Loop("tap_fold_index" if patches.chooses else "patch_row_index", range(patches.rounds))
        across_patches = Loop("patch_column_offset", across, index=patch_column)
        inner = Loop("inner_fold_index", range(parameters.group_folds))  # the input fold within the group
        self.top, self.left, self.fold, self.round = rows.index, row_windows.index, folds.index, rounds.index
        self.row_ends = row_windows.is_last

        self.window_ready = Signal(name="window_ready")
        self.first = Signal(name="is_first_step")
        self.last = Signal(name="is_last_step")
        self.stepping = Signal(name="step_valid")
        self.start = Signal(name="fold_start")
        self.window_starts = Signal(name="window_start")
        m.d.comb += [
            self.first.eq((inner.index == 0) & (patch_column == 0) & (self.round == 0)),
            self.last.eq(inner.is_last & across_patches.is_last & rounds.is_last),
            self.start.eq(self.first & room & ((self.fold != 0) | self.window_ready)),
            self.stepping.eq(self.start | ~self.first),
            self.window_starts.eq(self.start & (self.fold == 0)),
        ]
        inner_ends = inner.step(m, self.stepping)
        across_ends = across_patches.step(m, inner_ends)
        fold_ends = rounds.step(m, across_ends)
        self.window_ends = folds.step(m, fold_ends)
        rows.step(m, row_windows.step(m, self.window_ends))
        if not patches.chooses:
            with m.If(across_ends):
                m.d.sync += patch_row.eq(Mux(rounds.is_last, 0, patch_row + rows_on))

        self._count_input_folds(inner, fold_ends, folds.is_last)
        self._count_columns(inner_ends, across_patches.is_last)
        self._count_slots(across_ends, fold_ends, rows.is_last)
        self.inside = self._inside_flags(patch_row, patch_column)

    def _count_input_folds(self, inner: Loop, fold_ends: Value, window_last: Value) -> None:
        """Add the counter ``input_fold``: which ``Tn`` input channels are read, counted over all channel groups."""
        m, parameters = self._m, self._parameters
        self.input_fold = Signal(range(parameters.input.folds), name="input_fold_index")
        _, restart = group_first_folds(m, parameters, fold_ends, window_last)
        with m.If(self.stepping):
            m.d.sync += self.input_fold.eq(Mux(inner.is_last, restart, self.input_fold + 1))

    def _count_columns(self, inner_ends: Value, across_last: Value) -> None:
        """Add counters that hold the bank and the word address of the leftmost column to read."""
        m, parameters = self._m, self._parameters
        columns, lefts = self._banks.interleaving, parameters.grid.lefts
        width = max(1, (self._banks.depth - 1).bit_length())
        window, self.column = columns.register("window", width, lefts[0]), columns.register("patch", width, lefts[0])
        following = columns.register("next_window", width)
        m.d.comb += following.eq(window)
        with m.If(self.window_ends):
            moved = columns.ahead(window, lefts.step)
            m.d.comb += following.eq(moved.unless(self.row_ends, columns.place_of(lefts[0])))
        m.d.sync += window.eq(following)
        with m.If(inner_ends):
            moved = columns.ahead(self.column, parameters.patches.advance[1])
            m.d.sync += self.column.eq(moved.unless(across_last, following))

    def _count_slots(self, across_ends: Value, fold_ends: Value, last_row: Value) -> None:
        """Add the counter ``slot``: index in the row ring (circular memory) of the patch's top image row."""
        m, parameters = self._m, self._parameters
        slots, tops = parameters.rows, parameters.grid.tops

        def ahead(name: str, slot: Value, rows: int) -> Value:
            return dense_table(m, name, slot, [(index + rows) % slots for index in range(slots)])

        frame_rows = parameters.input.height - (parameters.output_height - 1) * tops.step
        top_slot = Signal(range(slots), name="window_slot_index", init=tops[0] % slots)
        self.slot = Signal(range(slots), name="patch_slot_index", init=tops[0] % slots)
        next_top = Signal(range(slots), name="next_window_slot_index")
        m.d.comb += next_top.eq(top_slot)
        with m.If(self.window_ends & self.row_ends):
            m.d.comb += next_top.eq(
                Mux(
                    last_row,
                    ahead("next_frame_slot_index", top_slot, frame_rows),
                    ahead("next_row_slot_index", top_slot, tops.step),
                )
            )
        m.d.sync += top_slot.eq(next_top)
        with m.If(fold_ends):
            m.d.sync += self.slot.eq(next_top)
        if not parameters.patches.chooses:
            with m.Elif(across_ends):
                m.d.sync += self.slot.eq(ahead("next_patch_slot_index", self.slot, parameters.patches.advance[0]))

    def _inside_flags(self, patch_row: Value, patch_column: Value) -> Value | None:
        """Return, a cycle later, a bit per pixel read: inside the map; ``None`` without padding."""
        m, parameters = self._m, self._parameters
        if not parameters.padded:
            return None

        def inside(name: str, first: Value, size: int, offsets: Sequence[int]) -> list[Value]:
            # A register separates the carry chain of the sum from the carry chains of its comparisons.
            first_1 = registered(m, f"{name}_1", first, first.shape())
            return [named((first_1 >= -offset) & (first_1 < size - offset), "is_inside") for offset in offsets]

        source, patches = parameters.input, parameters.patches
        rows = inside("patch_top_row", self.top + patch_row, source.height, patches.rows)
        columns = inside("patch_left_column", self.left + patch_column, source.width, patches.read_columns)
        return Cat(named(row & column, "is_pixel_inside") for row in rows for column in columns)


def group_first_folds(
    m: Module, parameters: WindowParameters, fold_ends: Value, window_last: Value
) -> tuple[Value, Value]:
    """Add counters of channel groups; return, as a pair, each group's first input fold (``Tn`` channels), now and next.

    Parameters
    ----------
    m : Module
    parameters : WindowParameters
        Parameters of the windows.
    fold_ends : Value
        Whether an output fold ends in this cycle.
    window_last : Value
        Whether the current output fold is the last one of its window.
    """
    if parameters.groups == 1:
        return Const(0), Const(0)
    first = Signal(range(parameters.input.folds), name="group_first_fold")
    following = Signal(range(parameters.input.folds), name="next_group_first_fold")
    member = Loop("group_output_fold_index", range(parameters.group_output_folds))
    m.d.comb += following.eq(first)
    with m.If(member.step(m, fold_ends)):
        m.d.comb += following.eq(Mux(window_last, 0, first + parameters.group_folds))
    m.d.sync += first.eq(following)
    return first, following
