"""Depth-concatenated line buffer: pixels in, the taps of every window out (DeCoILFNet, sections III-A and III-B).

The buffer is a ring of ``rows`` image rows. A writer fills it in raster order; a reader walks the windows and
reads ``patch`` taps a cycle straight from the memory, so a window needs no registers of its own and padding, row
ends and frame ends cost no cycle. Two signed counters decide everything:

- ``margin``: pixels written beyond those the next window needs; a window may start unless it is negative.
- ``space``: pixels that may still be written before a pixel is overwritten that a window of its frame needs.

Memory is split into banks so that the taps of one patch never meet in one bank: ``patch`` columns side by side
(column ``x`` in bank ``x mod patch columns``) and, where a patch is higher than one row, a bank for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import bits_for_range, delayed, dense_table, sparse_table
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class LineBufferConfig:
    """Geometry of a line buffer and of the walk over its windows.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in; its ``lanes`` are ``Tn``.
    kernel, stride : tuple of int
        Vertical, horizontal.
    padding : tuple of int
        Top, left, bottom, right.
    pad_value : int
        What a tap in the padding reads as.
    taps : int
        ``Tk``: taps read in one cycle, a divisor of the kernel's.
    output_folds : int
        How often each window is walked (``ceil(M / Tm)``); for a ``depthwise`` walk the input's own folds.
    depthwise : bool
        Input fold ``f`` belongs to output fold ``f`` alone (pooling).
    rows : int
        Rows the ring holds, at least the kernel's.

    Raises
    ------
    ConfigError
        If no window fits, the taps don't divide the kernel, or the rows don't hold a window.
    """

    input: BeatFormat
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    pad_value: int
    taps: int
    output_folds: int
    depthwise: bool
    rows: int

    #: Cycles from a pixel's last beat being taken to the start of the window that waits for it.
    write_delay = 1
    #: Cycles from the last step of a window to the first beat that may overwrite what it read.
    release_delay = 3

    def __post_init__(self) -> None:
        kernel_taps = self.kernel[0] * self.kernel[1]
        if min(*self.kernel, *self.stride) < 1:
            raise ConfigError(f"kernel and stride must be positive, not {self.kernel!r} and {self.stride!r}")
        if min(self.padding) < 0:
            raise ConfigError(f"padding must not be negative, not {self.padding!r}")
        if self.taps < 1 or kernel_taps % self.taps:
            raise ConfigError(f"taps must be a divisor of the kernel's {kernel_taps}, not {self.taps!r}")
        if self.rows < self.kernel[0] and self.rows < self.input.height:
            raise ConfigError(f"rows must be at least the kernel's {self.kernel[0]}, not {self.rows!r}")
        if min(self.output_height, self.output_width) < 1:
            raise ConfigError(
                f"input and padding must hold at least one {self.kernel[0]} x {self.kernel[1]} window, "
                f"not {self.input.height} x {self.input.width} with {self.padding!r}"
            )
        if self.output_folds < 1 or (self.depthwise and self.output_folds != self.input.folds):
            raise ConfigError(
                f"output_folds must be positive, and {self.input.folds} for depthwise, not {self.output_folds!r}"
            )
        least = -(1 << (self.input.bits - 1)) if self.input.signed else 0
        if not 0 <= self.pad_value - least < 1 << self.input.bits:
            raise ConfigError(f"pad_value must be a value of the input's type, not {self.pad_value!r}")

    @property
    def output_height(self) -> int:
        top, _, bottom, _ = self.padding
        return (self.input.height + top + bottom - self.kernel[0]) // self.stride[0] + 1

    @property
    def output_width(self) -> int:
        _, left, _, right = self.padding
        return (self.input.width + left + right - self.kernel[1]) // self.stride[1] + 1

    @property
    def windows(self) -> int:
        """Windows a frame."""
        return self.output_height * self.output_width

    @cached_property
    def patch(self) -> tuple[int, int]:
        """Rows and columns of the taps that are read in one cycle; as few rows as the taps allow."""
        columns = gcd(self.taps, self.kernel[1])
        while self.kernel[0] % (self.taps // columns):
            columns = max(c for c in range(1, columns) if self.taps % c == 0 and self.kernel[1] % c == 0)
        return self.taps // columns, columns

    @cached_property
    def patches(self) -> tuple[tuple[int, int], ...]:
        """Top left tap (row, column) of each patch, in the order they are read."""
        height, width = self.patch
        return tuple((i, j) for i in range(0, self.kernel[0], height) for j in range(0, self.kernel[1], width))

    @property
    def tap_folds(self) -> int:
        return len(self.patches)

    @property
    def steps(self) -> int:
        """Cycles an output fold takes."""
        return self.tap_folds * (1 if self.depthwise else self.input.folds)

    @property
    def window_cycles(self) -> int:
        """Cycles a window takes."""
        return self.steps * self.output_folds

    @property
    def row_banks(self) -> int:
        return self.rows if self.patch[0] > 1 else 1

    @property
    def column_banks(self) -> int:
        return self.patch[1]

    @property
    def row_words(self) -> int:
        """Words one image row takes in one bank."""
        return -(-self.input.width // self.column_banks) * self.input.folds

    @property
    def bank_depth(self) -> int:
        """Words of one bank; a word is one beat."""
        return self.row_words * self.rows // self.row_banks

    @property
    def memory_bits(self) -> int:
        return self.row_banks * self.column_banks * self.bank_depth * self.input.data_bits

    @property
    def latency(self) -> int:
        """Cycles from a step being issued to its taps being on ``o``."""
        return 4 + (self.row_banks > 1)

    def needed(self, row: int, column: int) -> int:
        """Pixels of the frame that must be written before window (``row``, ``column``) starts."""
        bottom = min(max(row * self.stride[0] - self.padding[0] + self.kernel[0] - 1, 0), self.input.height - 1)
        right = min(max(column * self.stride[1] - self.padding[1] + self.kernel[1] - 1, 0), self.input.width - 1)
        return bottom * self.input.width + right + 1

    def released(self, row: int, column: int) -> int:
        """Leading pixels of the frame that no window after (``row``, ``column``) needs."""
        height, width = self.input.height, self.input.width
        top = row * self.stride[0] - self.padding[0]
        if column == self.output_width - 1:
            return (
                height * width if row == self.output_height - 1 else min(max(top + self.stride[0], 0), height) * width
            )
        if top + self.stride[0] <= 0 or top >= height:
            return min(max(top, 0), height) * width
        left = min(max((column + 1) * self.stride[1] - self.padding[1], 0), width)
        return max(top, 0) * width + left

    @property
    def need_steps(self) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        """How ``needed`` grows from a window to the next: by (row, column) inside a row, by row at its end.

        The last row's end counts the frame: the next window is the next frame's first.
        """
        last = (self.output_height - 1, self.output_width - 1)

        def step(row: int, column: int) -> int:
            if (row, column) == last:
                return self.input.pixels + self.needed(0, 0) - self.needed(*last)
            after = (row, column + 1) if column < last[1] else (row + 1, 0)
            return self.needed(*after) - self.needed(row, column)

        return self._steps(step)

    @property
    def release_steps(self) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        """How ``released`` grows with each window, in the same two tables."""

        def step(row: int, column: int) -> int:
            if (row, column) == (0, 0):
                return self.released(0, 0)
            before = (row, column - 1) if column else (row - 1, self.output_width - 1)
            return self.released(row, column) - self.released(*before)

        return self._steps(step)

    def _steps(self, step: Callable[[int, int], int]) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
        rows, last = range(self.output_height), self.output_width - 1
        inside = {(row, column): step(row, column) for row in rows for column in range(last)}
        return inside, {row: step(row, last) for row in rows}

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``taps`` pixels of ``Tn`` channels, patch in row-major order, and its place in the fold."""
        pixel = data.ArrayLayout(self.input.shape, self.input.lanes)
        return data.StructLayout({"taps": data.ArrayLayout(pixel, self.taps), "first": 1, "last": 1})


class _Walk:
    """The reader's counters: where in which window it is, and what that means for addresses.

    Everything here belongs to one step; it is used in the cycle in which ``stepping`` is high.
    """

    def __init__(self, m: Module, config: LineBufferConfig, room: Value):
        self._m, self._config = m, config
        folds = config.input.folds
        patch_rows, patch_columns = config.patch
        last_row, last_column = config.output_height - 1, config.output_width - 1

        self.window_ready = Signal()
        self.top = self._position("top", [self.top_of(row) for row in range(last_row + 1)])
        self.left = self._position("left", [self.left_of(column) for column in range(last_column + 1)])
        self.fold = Signal(range(config.output_folds), name="output_fold")
        patch_row = Signal(range(config.kernel[0]))
        patch_column = Signal(range(config.kernel[1]))
        inner = Signal(range(1 if config.depthwise else folds))  # input fold

        inner_ends = inner == (0 if config.depthwise else folds - 1)
        across_ends = inner_ends & (patch_column == config.kernel[1] - patch_columns)
        self.first = Signal()
        self.last = Signal()
        self.stepping = Signal()
        self.start = Signal()
        self.window_starts = Signal()
        self.window_ends = Signal()
        self.row_ends = Signal()
        fold_ends = Signal()
        window_last = Signal()
        frame_ends = Signal()
        m.d.comb += [
            self.first.eq((inner == 0) & (patch_column == 0) & (patch_row == 0)),
            self.last.eq(across_ends & (patch_row == config.kernel[0] - patch_rows)),
            self.start.eq(self.first & room & ((self.fold != 0) | self.window_ready)),
            self.stepping.eq(self.start | ~self.first),
            window_last.eq(self.fold == config.output_folds - 1),
            fold_ends.eq(self.stepping & self.last),
            self.window_starts.eq(self.start & (self.fold == 0)),
            self.window_ends.eq(fold_ends & window_last),
            self.row_ends.eq(self.left == self.left_of(last_column)),
            frame_ends.eq(self.row_ends & (self.top == self.top_of(last_row))),
        ]

        with m.If(self.stepping):
            m.d.sync += inner.eq(Mux(inner_ends, 0, inner + 1))
            with m.If(inner_ends):
                m.d.sync += patch_column.eq(Mux(across_ends, 0, patch_column + patch_columns))
            with m.If(across_ends):
                m.d.sync += patch_row.eq(Mux(self.last, 0, patch_row + patch_rows))
        with m.If(fold_ends):
            m.d.sync += self.fold.eq(Mux(window_last, 0, self.fold + 1))
        with m.If(self.window_ends):
            m.d.sync += self.left.eq(Mux(self.row_ends, self.left_of(0), self.left + config.stride[1]))
            with m.If(self.row_ends):
                m.d.sync += self.top.eq(Mux(frame_ends, self.top_of(0), self.top + config.stride[0]))

        self._count_words(across_ends, fold_ends, window_last)
        self._count_columns()
        self._count_slots(across_ends, fold_ends, frame_ends)
        self.inside = self._inside(patch_row, patch_column)

    def top_of(self, row: int) -> int:
        """Image row of the top of the windows in output row ``row``."""
        return row * self._config.stride[0] - self._config.padding[0]

    def left_of(self, column: int) -> int:
        """Image column of the left of the windows in output column ``column``."""
        return column * self._config.stride[1] - self._config.padding[1]

    def _position(self, name: str, values: list[int]) -> Signal:
        return Signal(bits_for_range(values[0], values[-1]), name=name, init=values[0])

    def _count_words(self, across_ends: Value, fold_ends: Value, window_last: Value) -> None:
        """``step_word``: words from the window's first in its patch row to the step's."""
        m, config = self._m, self._config
        folds = config.input.folds
        across = config.kernel[1] // config.patch[1] * folds
        self.step_word = Signal(range(across))
        if config.depthwise:
            following = Signal(range(folds))
            m.d.comb += following.eq(Mux(fold_ends, Mux(window_last, 0, self.fold + 1), self.fold))
            ahead, restart = folds, following
        else:
            ahead, restart = 1, Const(0)
        with m.If(self.stepping):
            m.d.sync += self.step_word.eq(Mux(across_ends, restart, self.step_word + ahead))

    def _count_columns(self) -> None:
        """``phase``: the window's left column modulo the banks; ``window_word``: the word of that column."""
        m, config = self._m, self._config
        banks, folds, stride = config.column_banks, config.input.folds, config.stride[1]
        first_word, first_phase = divmod(self.left_of(0), banks)
        width = max(1, (config.bank_depth - 1).bit_length())
        self.window_word = Signal(width, init=first_word * folds % (1 << width))
        self.phase = Signal(range(banks), init=first_phase)
        ahead, turn = divmod(stride, banks)
        wraps = self.phase + turn >= banks
        with m.If(self.window_ends):
            with m.If(self.row_ends):
                m.d.sync += [self.window_word.eq(self.window_word.init), self.phase.eq(first_phase)]
            with m.Else():
                m.d.sync += [
                    self.window_word.eq(self.window_word + Mux(wraps, (ahead + 1) * folds, ahead * folds)),
                    self.phase.eq(Mux(wraps, self.phase + turn - banks, self.phase + turn)),
                ]

    def _count_slots(self, across_ends: Value, fold_ends: Value, frame_ends: Value) -> None:
        """``slot``: the ring slot of the patch's top row."""
        m, config = self._m, self._config
        slots = config.rows

        def ahead(name: str, slot: Value, rows: int) -> Value:
            return dense_table(m, name, slot, [(number + rows) % slots for number in range(slots)])

        frame_rows = config.input.height - (config.output_height - 1) * config.stride[0]
        top_slot = Signal(range(slots), init=self.top_of(0) % slots)
        self.slot = Signal(range(slots), init=self.top_of(0) % slots)
        next_top = Signal(range(slots))
        m.d.comb += next_top.eq(top_slot)
        with m.If(self.window_ends & self.row_ends):
            m.d.comb += next_top.eq(
                Mux(
                    frame_ends,
                    ahead("frame_slot", top_slot, frame_rows),
                    ahead("row_slot", top_slot, config.stride[0]),
                )
            )
        m.d.sync += top_slot.eq(next_top)
        with m.If(fold_ends):
            m.d.sync += self.slot.eq(next_top)
        with m.Elif(self.stepping & across_ends):
            m.d.sync += self.slot.eq(ahead("patch_slot", self.slot, config.patch[0]))

    def _inside(self, patch_row: Value, patch_column: Value) -> Value | None:
        """A bit a tap of the patch: it lies in the map, not in the padding. ``None`` without padding."""
        config = self._config
        if not any(config.padding):
            return None
        rows = [self.top + patch_row + row for row in range(config.patch[0])]
        columns = [self.left + patch_column + column for column in range(config.patch[1])]
        row_inside = [(row >= 0) & (row < config.input.height) for row in rows]
        column_inside = [(column >= 0) & (column < config.input.width) for column in columns]
        return Cat(row & column for row in row_inside for column in column_inside)


class LineBuffer(wiring.Component):
    """Ring of image rows, and the walk over its windows.

    For each output pixel in raster order, output folds go outside, then the patches of the window, input folds
    innermost: one step a cycle, without a pause inside an output fold.

    Parameters
    ----------
    config : LineBufferConfig

    Members
    -------
    i : In(stream)
        The feature map; ``last`` is counted, not read.
    room : In(1)
        The next output fold may start.
    fold : Out
        Number of the output fold that starts next.
    start : Out(1)
        High in the cycle in which it does.
    o : Out(stream, always ready)
        The steps.

    Latency and throughput
        A fold takes ``config.steps`` cycles; its first step is on ``o`` ``config.latency`` cycles after ``start``.
        A window starts at the earliest ``config.write_delay`` cycles after the last pixel it needs was taken. A pixel
        is taken at the earliest ``config.release_delay`` cycles after the last step of the last window that
        needs what it overwrites (in raster order: a row is given back from the left).
    """

    def __init__(self, config: LineBufferConfig):
        self._config = config
        super().__init__(
            {
                "i": In(config.input.signature),
                "room": In(1),
                "fold": Out(range(config.output_folds)),
                "start": Out(1),
                "o": Out(stream.Signature(config.step_layout, always_ready=True)),
            }
        )

    @property
    def config(self) -> LineBufferConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        banks = self._elaborate_banks(m)
        pixel_written = self._elaborate_writer(m, banks)
        self._elaborate_reader(m, banks, pixel_written)
        return m

    def _elaborate_banks(self, m: Module):
        """Write and read ports of the memories, by row bank and column bank."""
        config = self.config
        banks = []
        for row in range(config.row_banks):
            for column in range(config.column_banks):
                bank = memory.Memory(shape=config.input.data_bits, depth=config.bank_depth, init=[])
                m.submodules[f"bank_{row}_{column}"] = bank
                banks.append((row, column, bank.write_port(), bank.read_port()))
        return banks

    def _elaborate_writer(self, m: Module, banks) -> Signal:
        config = self.config
        folds, width = config.input.folds, config.input.width
        taken = Signal(name="write")
        pixel_ends = Signal(name="write_pixel_ends")
        row_ends = Signal(name="write_row_ends")
        column = Signal(range(width), name="write_column")
        phase = Signal(range(config.column_banks), name="write_phase")  # column mod column banks
        slot = Signal(range(config.rows), name="write_slot")
        fold = Signal(range(folds), name="write_fold")
        word = Signal(range(config.bank_depth), name="write_word")  # of the pixel's first beat
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            pixel_ends.eq(taken & (fold == folds - 1)),
            row_ends.eq(pixel_ends & (column == width - 1)),
        ]
        with m.If(taken):
            m.d.sync += fold.eq(Mux(pixel_ends, 0, fold + 1))
        with m.If(pixel_ends):
            m.d.sync += column.eq(Mux(row_ends, 0, column + 1))
            with m.If(row_ends | (phase == config.column_banks - 1)):
                m.d.sync += [phase.eq(0), word.eq(word + folds)]
            with m.Else():
                m.d.sync += phase.eq(phase + 1)
        with m.If(row_ends):
            m.d.sync += slot.eq(Mux(slot == config.rows - 1, 0, slot + 1))
            if config.row_banks > 1:
                m.d.sync += word.eq(0)
            else:
                with m.If(slot == config.rows - 1):
                    m.d.sync += word.eq(0)
        for bank_row, bank_column, write, _ in banks:
            m.d.comb += [
                write.addr.eq(word + fold),
                write.data.eq(self.i.payload.data.as_value()),
                write.en.eq(taken & (phase == bank_column) & (Const(1) if config.row_banks == 1 else slot == bank_row)),
            ]
        return pixel_ends

    def _elaborate_reader(self, m: Module, banks, pixel_written: Signal) -> None:
        walk = _Walk(m, self.config, self.room)
        m.d.comb += [self.start.eq(walk.start), self.fold.eq(walk.fold)]
        self._elaborate_flow(m, walk, pixel_written)
        self._elaborate_fetch(m, walk, banks)

    def _elaborate_flow(self, m: Module, walk: _Walk, pixel_written: Signal) -> None:
        """``margin`` and ``space``."""
        config = self.config
        need = self._by_window(walk, *config.need_steps)
        most = 2 * config.input.pixels + config.rows * config.input.width
        margin = Signal(bits_for_range(-most, most), init=-config.needed(0, 0))
        m.d.sync += margin.eq(margin + pixel_written - Mux(walk.window_starts, need, 0))
        m.d.comb += walk.window_ready.eq(margin >= 0)

        released = Signal(range(config.input.pixels + 1))
        m.d.sync += released.eq(Mux(walk.window_ends, self._by_window(walk, *config.release_steps), 0))
        released = delayed(m, "released", released, config.release_delay - 2, reset_less=False)
        capacity = config.rows * config.input.width
        space = Signal(range(capacity + config.input.pixels + 1), init=capacity)
        m.d.sync += space.eq(space + released - pixel_written)
        m.d.comb += self.i.ready.eq(space != 0)

    def _by_window(self, walk: _Walk, inside: dict[tuple[int, int], int], ends: dict[int, int]) -> Value:
        """Look up what belongs to the window the walk is at."""
        at_end = sparse_table(walk.top, {walk.top_of(row): value for row, value in ends.items()})
        if not inside:
            return at_end
        # Rows differ only in whether they count at all.
        columns = {walk.left_of(column): value for (_, column), value in inside.items() if value}
        columns = {walk.left_of(column): 0 for _, column in inside} | columns
        counts = {walk.top_of(row): 0 for row, _ in inside}
        counts |= {walk.top_of(row): 1 for (row, _), value in inside.items() if value}
        in_row = Mux(sparse_table(walk.top, counts), sparse_table(walk.left, columns), 0)
        return Mux(walk.row_ends, at_end, in_row)

    def _elaborate_fetch(self, m: Module, walk: _Walk, banks) -> None:
        """Addresses, memory, rotation of the banks to the taps, padding: the reading pipeline."""
        config = self.config
        patch_rows, patch_columns = config.patch
        row_banks, column_banks = config.row_banks, config.column_banks

        # Stage 1: the row's and the window's words, and the step's within them; stage 2: the sum.
        bank_width = max(1, (config.bank_depth - 1).bit_length())
        base = walk.window_word
        if row_banks == 1:
            slots = [slot * config.row_words for slot in range(config.rows)]
            base = base + dense_table(m, "slot_word", walk.slot, slots)
        base_1 = Signal(bank_width, reset_less=True)
        m.d.sync += base_1.eq(base)
        for column in range(column_banks):
            step_1 = Signal(bank_width, name=f"step_{column}_1", reset_less=True)
            beyond = Mux(column < walk.phase, config.input.folds, 0) if column_banks > 1 else Const(0)
            m.d.sync += step_1.eq(walk.step_word + beyond)
            address = Signal(bank_width, name=f"address_{column}", reset_less=True)
            m.d.sync += address.eq(base_1 + step_1)
            for _, bank_column, _, read in banks:
                if bank_column == column:
                    m.d.comb += read.addr.eq(address)

        # Stage 3: the memory. Then the row rotation, the column rotation and the padding.
        outputs = {(row, column): read.data for row, column, _, read in banks}
        if row_banks > 1:
            slot = delayed(m, "slot", walk.slot, 3)
            picked = {}
            for row in range(patch_rows):
                for column in range(column_banks):
                    register = Signal(config.input.data_bits, name=f"row_{row}_{column}", reset_less=True)
                    with m.Switch(slot):
                        for first in range(row_banks):
                            with m.Case(first):
                                m.d.sync += register.eq(outputs[(first + row) % row_banks, column])
                    picked[row, column] = register
            outputs = picked
        else:  # one bank holds every row; where a patch has several, the ring has but one
            outputs = {(row, column): outputs[0, column] for row in range(patch_rows) for column in range(column_banks)}
        phase = delayed(m, "phase", walk.phase, config.latency - 1) if column_banks > 1 else None
        inside = None if walk.inside is None else delayed(m, "inside", walk.inside, config.latency - 1)
        pad = Const(config.pad_value, config.input.shape)
        for row in range(patch_rows):
            for column in range(patch_columns):
                tap = row * patch_columns + column
                value = Signal(config.input.data_bits, name=f"tap_{tap}")
                if phase is None:
                    m.d.comb += value.eq(outputs[row, column])
                else:
                    with m.Switch(phase):
                        for first in range(column_banks):
                            with m.Case(first):
                                m.d.comb += value.eq(outputs[row, (first + column) % column_banks])
                register = Signal(config.input.data_bits, name=f"tap_{tap}_masked", reset_less=True)
                if inside is None:
                    m.d.sync += register.eq(value)
                else:
                    pixel = Cat(pad for _ in range(config.input.lanes))
                    m.d.sync += register.eq(Mux(inside[tap], value, pixel))
                m.d.comb += self.o.payload.taps[tap].as_value().eq(register)
        m.d.comb += [
            self.o.valid.eq(delayed(m, "valid", walk.stepping, config.latency, reset_less=False)),
            self.o.payload.first.eq(delayed(m, "first", walk.first, config.latency)),
            self.o.payload.last.eq(delayed(m, "last", walk.last, config.latency)),
        ]
