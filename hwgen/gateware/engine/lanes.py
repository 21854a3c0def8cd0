"""Lane addressing of the engine: the window of each lane's output pixel, and its map buffer address in each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import EngineConfig, numbered
from hwgen.gateware.engine.job import Compute
from hwgen.gateware.engine.steps import step_layout
from hwgen.gateware.lookup import delayed, named

#: Width in bits of the signed row and column indices of convolution windows and kernel taps.
INDEX_BITS = 16


@dataclass(frozen=True, kw_only=True)
class LaneAddressingConfig:
    """Configuration of the engine's lane addressing (`LaneAddressing`), with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        word = counter_bits(engine.map_words)
        # Per lane: row, column and word in group 0 and in the current group, and an address. Then the walk and the tap.
        cost.ff = engine.pixels * (100 + 3 * word) + 218 + 10 * word
        cost.lut = engine.pixels * (135 + 4 * word) + 215 + 5 * word  # as measured
        if engine.has_cores:  # rows of each core's taps: positions and comparisons per lane, and the team's distance
            cost.ff += (engine.cores - 1) * engine.pixels * (INDEX_BITS + 1) + 41 * engine.cores
            cost.lut += (engine.cores - 1) * engine.pixels * 3 * INDEX_BITS // 2
            cost.lut += engine.cores * (114 + 25 * counter_bits(engine.cores)) // 2
        return cost.resources

    def component(self) -> LaneAddressing:
        return LaneAddressing(self.engine)


class LaneAddressing(ConfiguredComponent[EngineConfig]):
    """Lane addressing of the engine: computes, per cycle, which map buffer word each lane (output pixel) reads.

    It tracks the row, column and word of each lane's window, and of the tap in the window.

    There is one lane per bank. Lane ``k`` has the pixel whose window begins ``k`` banks after the group's first window
    (docs/reference/engine.md). The addresses of a step follow without a stall. Rows and words are computed one cycle
    after columns, because they depend on whether a row ended.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    walk : In(1)
        Pulse that starts the computation of the first windows of ``next_job``, one pixel per cycle. The windows of the
        previous job must not be needed any more, except for a fold that begins in this cycle.
    walked : Out(1)
        Whether the last window is being computed, or all are.
    next_job : In(Compute)
        Job whose first windows are computed.
    step, job : In
        Step of this cycle, and its job.
    rest : Out(range(pixels))
        Bank of lane 0, `LATENCY` cycles after the step.
    words : Out(array of ``pixels`` addresses)
        Word address of each lane, together with ``rest``.
    inside : Out(pixels)
        Whether each lane's tap is inside of the box, one cycle after ``rest``. With several cores: ``inside_0``,
        ``inside_1`` and so on.
    """

    #: Cycles from a step (one cycle of the array's work) at the input to its map buffer addresses at the output.
    LATENCY = 3
    #: Cycles from a step at the input to the output ``inside``: which lanes' taps are inside the map, not padding.
    INSIDE_LATENCY = 4

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "walk": In(1),
                "walked": Out(1),
                "next_job": In(Compute.layout(config.variant)),
                "step": In(step_layout(config)),
                "job": In(Compute.layout(config.variant)),
                "rest": Out(range(config.pixels)),
                "words": Out(data.ArrayLayout(range(config.map_words), config.pixels)),
                **{name: Out(config.pixels) for name in numbered(config, "inside")},
            },
        )

    def elaborate(self, platform):
        m = Module()
        lanes = range(self._config.pixels)
        word = range(self._config.map_words)
        # Window of each lane's pixel in group 0, and in the current group.
        first = [
            [Signal(shape, name=f"first_{name}_{lane}", reset_less=True) for lane in lanes]
            for name, shape in (("column_index", INDEX_BITS), ("row_index", INDEX_BITS), ("word_address", word))
        ]
        columns, rows, words = [
            [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in lanes]
            for name, shape in (("column_index", INDEX_BITS), ("row_index", INDEX_BITS), ("word_address", word))
        ]
        self._elaborate_walk(m, first)
        self._elaborate_advance(m, first, columns, rows, words)
        self._elaborate_words(m, words)
        self._elaborate_inside(m, columns, rows)
        return m

    def _elaborate_walk(self, m: Module, first: list[list[Signal]]) -> None:
        """Compute each lane's window position in a job's first pixel group (a pixel per lane), a lane per cycle.

        Pixel ``i`` belongs to lane ``stride * i % pixels``.

        Rows and words are computed one cycle after columns.
        """
        pixels, job = self._config.pixels, self.next_job
        left = Signal(range(pixels + 1), name="pixels_left")
        lane = Signal(range(pixels), name="walk_lane_index", reset_less=True)
        column, row = (
            Signal(INDEX_BITS, name="walk_column_index", reset_less=True),
            Signal(INDEX_BITS, name="walk_row_index", reset_less=True),
        )
        word = Signal(range(self._config.map_words), name="walk_word_address", reset_less=True)
        back = Signal(signed(INDEX_BITS + 1), name="walk_wrap_offset", reset_less=True)
        wrapped, turned = (
            Signal(signed(INDEX_BITS + 1), name="wrapped_walk_column"),
            Signal(signed(len(lane) + 2), name="wrapped_walk_lane"),
        )
        ended_row, ended_turn = (
            Signal(name="walk_row_end", reset_less=True),
            Signal(name="walk_lane_wrap", reset_less=True),
        )
        m.d.comb += [
            self.walked.eq(left <= 1),
            wrapped.eq(column + back),
            turned.eq(lane + job.stride - pixels),
        ]
        m.d.sync += [
            back.eq(job.stride - job.columns),
            column.eq(Mux(wrapped >= 0, wrapped, column + job.stride)),
            lane.eq(Mux(turned >= 0, turned, lane + job.stride)),
            ended_row.eq(wrapped >= 0),
            ended_turn.eq(turned >= 0),
            row.eq(row + Mux(ended_row, job.stride, 0)),
            word.eq(word + ended_turn + Mux(ended_row, job.wrap_words, 0)),
        ]
        with m.If(self.walk):
            m.d.sync += [left.eq(pixels), column.eq(0), lane.eq(0)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(delayed(m, "walk", self.walk, 1)):
            m.d.sync += [row.eq(0), word.eq(0)]
        walking = left != 0
        for registers, value, delay in zip(first, (column, row, word), (0, 1, 1), strict=True):
            enable = delayed(m, f"{value.name}_write", walking, delay)
            target = delayed(m, f"{value.name}_lane", lane, delay)
            for index, register in enumerate(registers):
                with m.If(enable & (target == index)):
                    m.d.sync += register.eq(value)

    def _elaborate_advance(self, m: Module, first, columns, rows, words) -> None:
        """Add registers of each lane's window position, which step to the next pixel group (a pixel per lane).

        Columns follow one cycle after the step, rows and words two cycles.
        """
        job, bits = self.job, INDEX_BITS
        begins_fold = delayed(m, "fold_start", self.step.fold, 1)
        begins = delayed(m, "group_advance", self.step.group, 1)
        back = Signal(signed(bits + 1), name="group_wrap_offset", reset_less=True)
        # Advance of a lane that stays in its row, and of a lane that ends its row; for the step one cycle ago.
        row_moves = [Signal(bits, name=f"row_advance_{end}", reset_less=True) for end in range(2)]
        word_moves = [Signal(words[0].shape(), name=f"word_advance_{end}", reset_less=True) for end in range(2)]
        m.d.sync += [
            back.eq(job.group_columns - job.columns),
            row_moves[0].eq(job.group_rows),
            row_moves[1].eq(job.group_rows + job.stride),
            word_moves[0].eq(job.group_words),
            word_moves[1].eq(job.group_words + job.wrap_words),
        ]
        for lane in range(self._config.pixels):
            wrapped = Signal(signed(bits + 1), name=f"wrapped_column_{lane}")
            ended = Signal(name=f"row_end_{lane}", reset_less=True)
            m.d.comb += wrapped.eq(columns[lane] + back)
            m.d.sync += ended.eq(wrapped >= 0)
            with m.If(self.step.fold):
                m.d.sync += columns[lane].eq(first[0][lane])
            with m.Elif(self.step.group):
                m.d.sync += columns[lane].eq(Mux(wrapped >= 0, wrapped, columns[lane] + job.group_columns))
            for current, start, moves in ((rows, first[1], row_moves), (words, first[2], word_moves)):
                with m.If(begins_fold):
                    m.d.sync += current[lane].eq(start[lane])
                with m.Elif(begins):
                    m.d.sync += current[lane].eq(current[lane] + Mux(ended, moves[1], moves[0]))

    def _elaborate_words(self, m: Module, words: list[Signal]) -> None:
        """Add each lane's map buffer address: its window's word, plus the tap's offset, plus the bank's carry."""
        config, step, job = self._config, self.step, self.job
        rest = Signal(range(config.pixels), name="tap_bank", reset_less=True)
        row_rest = Signal.like(rest, name="tap_row_bank")
        base, move = Signal.like(rest, name="tap_bank_before"), Signal.like(rest, name="tap_bank_advance")
        turned = Signal(signed(len(rest) + 2), name="wrapped_tap_bank")
        carry = Signal(name="tap_bank_carry", reset_less=True)
        m.d.comb += [
            base.eq(Mux(step.row, row_rest, rest)),
            move.eq(Mux(step.row, job.row_rest, job.column_rest)),
            turned.eq(base + move - config.pixels),
        ]
        moved = named(Mux(turned >= 0, turned, base + move), "moved_bank")
        with m.If(step.block):
            m.d.sync += [rest.eq(job.start_rest), row_rest.eq(job.start_rest), carry.eq(0)]
        with m.Elif(step.row):
            m.d.sync += [rest.eq(moved), row_rest.eq(moved), carry.eq(turned >= 0)]
        with m.Elif(step.tap):
            m.d.sync += [rest.eq(moved), carry.eq(turned >= 0)]
        word, row_word, block_word = [
            Signal(words[0].shape(), name=name, reset_less=True)
            for name in ("tap_address", "tap_row_address", "tap_block_address")
        ]
        begins = {name: delayed(m, f"{name}_start", step[name], 1) for name in ("group", "block", "row", "tap")}
        plane, by_row = [delayed(m, name, job[name][: len(word)], 1) for name in ("plane", "row_words")]
        by_column = delayed(m, "column_words", job.column_words, 1)
        start = Signal.like(word, name="fold_address", reset_less=True)
        with m.If(step.job):
            m.d.sync += start.eq(job.start_words)
        with m.Elif(step.fold & job.channelwise):
            m.d.sync += start.eq(start + job.plane)
        moved_word = Signal.like(word, name="next_tap_address")
        with m.If(begins["group"]):
            m.d.comb += moved_word.eq(start)
            m.d.sync += block_word.eq(moved_word)
        with m.Elif(begins["block"]):
            m.d.comb += moved_word.eq(block_word + plane)
            m.d.sync += block_word.eq(moved_word)
        with m.Elif(begins["row"]):
            m.d.comb += moved_word.eq(row_word + by_row + carry)
        with m.Else():
            m.d.comb += moved_word.eq(word + by_column + carry)
        with m.If(begins["row"]):
            m.d.sync += row_word.eq(moved_word)
        with m.If(begins["tap"]):
            m.d.sync += word.eq(moved_word)
        tap_rest = delayed(m, "tap_bank_delayed", rest, 1)
        m.d.comb += self.rest.eq(delayed(m, "tap_bank_out", tap_rest, 1))
        for lane in range(config.pixels):
            address = Signal(words[0].shape(), name=f"read_address_{lane}", reset_less=True)
            m.d.sync += address.eq(words[lane] + word + (tap_rest >= config.pixels - lane))
            m.d.comb += self.words[lane].eq(address)

    def _elaborate_inside(self, m: Module, columns: list[Signal], rows: list[Signal]) -> None:
        """Add comparisons that give, per lane, a bit: the kernel tap is inside the map, not in the padding.

        Rows are compared one cycle after columns.
        """
        step, job = self.step, self.job
        taps = {}
        for name, begins_axis, ages, moves in (
            ("column", step.row, step.tap, job.dilation_columns),
            ("row", step.block, step.row, job.dilation_rows),
        ):
            tap = Signal(signed(INDEX_BITS), name=f"tap_{name}", reset_less=True)
            with m.If(begins_axis):
                m.d.sync += tap.eq(job[f"origin_{name}"])
            with m.Elif(ages):
                m.d.sync += tap.eq(tap + moves)
            taps[name] = tap
        limits = {
            "column": delayed(m, "input_columns", job.in_columns, 2),
            "row": delayed(m, "input_rows", job.in_rows, 3),
        }

        def is_inside(name: str, place: str, window: Signal, tap: Value) -> Signal:
            # Unsigned: a negative position is greater than any limit.
            position = Signal(INDEX_BITS, name=f"{name}_position_{place}", reset_less=True)
            inside = Signal(name=f"{name}_is_inside_{place}", reset_less=True)
            m.d.sync += [position.eq(window + tap), inside.eq(position < limits[name])]
            return inside

        in_columns = []
        for lane, window in enumerate(columns):
            inside = is_inside("column", str(lane), window, taps["column"])
            in_columns.append(delayed(m, f"column_is_inside_{lane}_delayed", inside, 1))
        row_taps = self._elaborate_row_taps(m, taps["row"])
        for core, (port, tap) in enumerate(zip(numbered(self._config, "inside"), row_taps, strict=True)):
            for lane, window in enumerate(rows):
                place = f"{core}_{lane}" if self._config.has_cores else str(lane)
                m.d.comb += getattr(self, port)[lane].eq(in_columns[lane] & is_inside("row", place, window, tap))

    def _elaborate_row_taps(self, m: Module, tap: Signal) -> list[Value]:
        """Return a list by core of kernel tap rows, one cycle after ``tap``, the tap row of the first team of cores.

        Rows of team (group of cores) ``t`` are ``t * row_advance`` below. The products are computed from the next job,
        and selected in the cycle of a job's first step.
        """
        if not self._config.has_cores:
            return [delayed(m, "tap_row_delayed", tap, 1)]
        cores, advance = range(self._config.cores), self.next_job.row_advance
        few: list[Value] = [Const(0)]
        for count in range(1, 4):
            few.append(Signal(signed(INDEX_BITS), name=f"row_advance_times_{count}", reset_less=True))
            m.d.sync += few[count].eq(_times(advance, count))
        advances = []
        for team in cores:
            many = Signal(signed(INDEX_BITS), name=f"team_{team}_row_advance", reset_less=True)
            m.d.sync += many.eq(few[team % 4] + (few[team // 4] << 2))
            advances.append(many)
        row_taps = []
        for core in cores:
            own = Signal(signed(INDEX_BITS), name=f"core_{core}_row_advance", reset_less=True)
            with m.If(self.step.job):
                options = Array(advances[core >> bits] for bits in range(core.bit_length() + 1))
                m.d.sync += own.eq(options[self.job.members])
            row_tap = Signal(signed(INDEX_BITS), name=f"core_{core}_tap_row", reset_less=True)
            m.d.sync += row_tap.eq(tap + own)
            row_taps.append(row_tap)
        return row_taps


def _times(value: Value, count: int) -> Value:
    """Return ``value`` multiplied by 1, 2 or 3 (``count``), with shifts and additions instead of a DSP slice."""
    return {1: value, 2: value << 1, 3: value + (value << 1)}[count]
