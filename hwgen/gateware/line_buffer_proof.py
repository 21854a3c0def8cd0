"""Proof obligations of line buffers, ``occupancy``, ``tokens`` and ``bits``: every window has the pixels it covers.

The observer marks one word of one frame: ``Tn`` channels of one pixel. It counts the steps of the walk itself, from
``start`` only, and computes from the counts which pixel each tap is. A tap that is the marked pixel must have the
marked word, and a tap in the padding must have the padding's value. Since any word of any frame can be the marked one,
every tap of every window is right. ``occupancy`` proves the `LineBufferInvariants`, and ``tokens`` assumes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hwgen.gateware import window_proof
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, choice
from hwgen.obligations.observers import counter, register
from hwgen.obligations.streams import bits_of_values


def obligations(config: LineBufferConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of a line buffer; empty if each of its banks consists of several memories."""
    if config.banks.pieces > 1:
        return []
    values = config.pixels * config.taps * config.input.lanes * config.input.bits
    bits = bits_of_values(site, config.input.bits, config.input.data_bits, values)
    return [*_obligations(config, site), bits]


def _loop_counts(config: LineBufferConfig) -> window_proof.Counts:
    """Return the iteration counts of a line buffer reader's nested loops, by Verilog name, rows (outermost) first."""
    counts = {
        "row_0": config.output_height,
        "column_0": config.grid.row_steps,
        "output_fold_0": config.output_folds,
        "tap_fold_0": config.tap_folds,
        "inner_0": config.group_folds,
    }
    return {name: (count, "") for name, count in counts.items()}


def _obligations(config: LineBufferConfig, site: Site) -> list[Obligation]:
    latency = config.latency
    invariants = LineBufferInvariants(config, site)
    is_present, is_marked = partial(_is_present, config), partial(_is_marked, config)
    taps = [(window, tap) for window in range(config.pixels) for tap in range(config.taps)]
    asserts = {
        "a step reads only pixels that were stored": " & ".join(
            f"!(has_step_0 & {is_marked(0, *tap)} & {is_present(0, *tap)}) | (stored >= 1)" for tap in taps
        ),
        **window_proof.tap_asserts(config, latency, is_present, is_marked, partial(_is_padding, config)),
    }
    marked = [f"({is_present(latency, *tap)} & {is_marked(latency, *tap)})" for tap in taps]
    shared: dict[str, Any] = {
        "rules": {
            "the marked word is in the map": (
                f"(y < {config.input.height}) & (x < {config.input.width}) & (z < {config.input.folds})"
            )
        },
        "observer": (*_writer_lines(config), *window_proof.steps(_loop_counts(config), latency), *_mark_lines(config)),
        "drives": {"i__payload": window_proof.token_beat(config.input)},
        "run": _example_run(config),
    }
    return [
        invariants.obligation(
            "occupancy",
            "A window starts when its pixels are stored, and no pixel that a window needs is overwritten.",
            cover="is_due & (ahead == 0) & output_fold_0_ends",
            **shared,
        ),
        invariants.obligation(
            "tokens",
            "Every tap of every window is the pixel that it covers, or the padding's value.",
            asserts=asserts,
            cover=f"o__valid & is_open_{latency} & ({' | '.join(marked)})",
            structure={"cycles": latency + 1},
            **shared,
        ),
        # The counts of the observer follow transfers by a cycle, which is `LineBufferConfig.write_delay`. Released
        # pixels follow the end of their window by `LineBufferConfig.release_delay` cycles. Two of these cycles are
        # ``release_1`` and ``release_2``.
        invariants.obligation(
            "schedule",
            f"A fold starts in the first cycle with room after the previous fold, {config.write_delay} cycle after the "
            f"last pixel that its window needs; a beat is accepted in the first cycle that has room for it, "
            f"{config.release_delay} cycles after windows have released their pixels.",
            asserts={
                "folds start in time": (
                    "start == (room & (tap_fold_0 == 0) & (inner_0 == 0) & ((output_fold_0 != 0) | (lead >= need)))"
                ),
                "beats are accepted in time": (
                    f"i__ready == ($signed({config.rows * config.input.width}) + release_before - release_1 - "
                    "release_2 - lead - next_beat >= 0)"
                ),
            },
            cover="start & (output_fold_0 == 0)",
            **shared,
        ),
    ]


def _example_run(config: LineBufferConfig) -> dict[str, str]:
    """Return a dict from input signal to value: a run without stalls that marks the first window's first word."""
    positions = []
    for axis, padding in enumerate(config.padding[:2]):
        taps = (tap * config.dilation[axis] - padding for tap in range(config.kernel[axis]))
        positions.append(next((position for position in taps if position >= 0), 0))
    row, column = positions
    return {"mark": "1'b1", "y": str(row), "x": str(column), "z": "0", "i__valid": "1'b1", "room": "1'b1"}


def _writer_lines(config: LineBufferConfig) -> list[str]:
    """Return a list of Verilog lines that count a line buffer's accepted beats and flag the beat of the marked word."""
    source = config.input
    pixel = choice("x", [column % source.pixels for column in range(source.width)])
    step = choice("x", [column // source.pixels for column in range(source.width)])
    return [
        f"wire [{source.lanes * source.pixels - 1}:0] token = $anyseq;",
        "wire token_last = $anyseq;",
        f"wire {bits_for(source.height - 1)} y = $anyconst;",
        f"wire {bits_for(source.width - 1)} x = $anyconst;",
        f"wire {bits_for(source.folds - 1)} z = $anyconst;",
        f"wire {bits_for(source.pixels - 1)} pixel = {pixel};",
        "wire taken = i__valid & i__ready;",
        *counter("in_fold", source.folds, "taken"),
        *counter("in_step", source.row_steps, "in_fold_ends"),
        *counter("in_row", source.height, "in_step_ends"),
        f"wire comes = taken & (in_row == y) & (in_step == {step}) & (in_fold == z);",
        f"wire [{source.lanes - 1}:0] came = {choice('pixel', window_proof.token_words(config))};",
    ]


def _mark_lines(config: LineBufferConfig) -> list[str]:
    """Return a list of Verilog lines that mark any one input word, and count frames until its own is read."""
    count = f"reg signed {frame_range(config)}"
    return [
        f"{count} stored = 0; {count} ahead = 0;",
        *window_proof.word_marks(config, config.latency),
        "always @(posedge clk) stored <= rst ? 0 : stored + $signed({1'b0, comes}) - $signed({1'b0, row_0_ends});",
        "always @(posedge clk) ahead <= marks ? stored - $signed({1'b0, row_0_ends}) : "
        "ahead - $signed({1'b0, row_0_ends & (ahead >= 0)});",
    ]


def _tap_position(config: LineBufferConfig, stage: int, window: int, tap: int) -> tuple[str, str]:
    """Return a pair: the Verilog expressions of a tap's row and column in the padded map, in pipeline stage ``stage``.

    The expressions are unsigned. A negative padding crops the map: its rows or columns are added, not subtracted.
    """
    (down, across), (below, beside) = config.stride, config.dilation
    top, left, _, _ = config.padding
    offsets = [taps[tap] if tap < len(taps) else (0, 0) for taps in config.patches.step_taps]
    row = choice(f"tap_fold_{stage}", [i * below for i, _ in offsets])
    column = choice(f"tap_fold_{stage}", [j * beside for _, j in offsets])
    return (
        f"32'd{max(0, -top)} + row_{stage} * {down} + {row}",
        f"32'd{max(0, -left) + window * across} + column_{stage} * {across * config.pixels} + {column}",
    )


def _padding_before(config: LineBufferConfig) -> tuple[int, int]:
    """Return a pair: numbers of padding rows above the map and of columns left of it; 0 if the map is cropped."""
    top, left, _, _ = config.padding
    return max(0, top), max(0, left)


def _is_marked(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return the Verilog condition that a tap in pipeline stage ``stage`` is the proof's marked word."""
    row, column = _tap_position(config, stage, window, tap)
    above, left = _padding_before(config)
    group = choice(
        f"output_fold_{stage}",
        [fold // config.group_output_folds * config.group_folds for fold in range(config.output_folds)],
    )
    return f"({row} == 32'd{above} + y) & ({column} == 32'd{left} + x) & (32'd0 + {group} + inner_{stage} == z)"


def _is_present(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return the Verilog condition that stage ``stage`` reads this tap of a window, and the map has the window."""
    present = window_proof.has_tap(config, stage, tap)
    if config.output_width % config.pixels and window >= config.output_width % config.pixels:
        present = f"({present} & (column_{stage} != {config.grid.row_steps - 1}))"
    return present


def _is_padding(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return the Verilog condition that a tap in stage ``stage`` is padding, or does not exist."""
    row, column = _tap_position(config, stage, window, tap)
    (above, left), source = _padding_before(config), config.input

    def outside(position: str, before: int, size: int) -> str:
        return f"(({position} < {before}) | ({position} >= {size + before}))"

    beyond = f"{outside(row, above, source.height)} | {outside(column, left, source.width)}"
    missing = choice(f"tap_fold_{stage}", [f"1'b{int(tap >= len(taps))}" for taps in config.patches.step_taps])
    window_there = "1'b1"
    if config.output_width % config.pixels and window >= config.output_width % config.pixels:
        window_there = f"(column_{stage} != {config.grid.row_steps - 1})"
    return f"({missing} | ({window_there} & ({beyond})))"


def max_frames(config: LineBufferConfig) -> int:
    """Return the maximum number of frames that a line buffer's writer can be ahead of its reader."""
    source = config.input
    return -(-(config.rows * source.width + config.grid.skipped) // source.frame_pixels) + 1


def frame_range(config: LineBufferConfig) -> str:
    """Return the Verilog range (such as ``[3:0]``) of a signed counter that reaches up to `max_frames` + 2."""
    return f"[{(max_frames(config) + 2).bit_length()}:0]"


class LineBufferInvariants(window_proof.WindowFacts):
    """Invariants of a line buffer: its counters as functions of the beats and cycles that an observer counts.

    Names without ``its_`` are the observer's: ``in_row``, ``in_step`` and ``in_fold`` of the next beat, ``row_0``,
    ``column_0``, ``output_fold_0``, ``tap_fold_0`` and ``inner_0`` of the next step, the marked word's ``y``, ``x`` and
    ``z``. Names with ``its_`` are the line buffer's.
    """

    def __init__(self, config: LineBufferConfig, site: Site) -> None:
        source = config.input
        self._max_frames = max_frames(config)
        largest = (self._max_frames + 3) * source.frame_pixels + config.rows * source.width + config.grid.skipped
        super().__init__(site, max(largest, 2 * config.banks.depth, 4 * config.rows + 4).bit_length() + 2)
        self._config = config
        self._state_counts()
        self._state_writer()
        self._state_reader()
        self._state_ring_rows()
        self._state_flow()
        self._state_marked_word()
        self._state_memory()

    def _table_by_window(self, name: str, entries: Sequence[int]) -> None:
        """Add a Verilog wire with a table's entry, one integer per window, for the current window.

        The entry is the sum of the row's first entry and of the difference from it. Rows with the same differences
        share a table of them by column, so that no table has an entry per window: Yosys could not read its expression.
        """
        width = self._config.grid.row_steps
        rows = [entries[start : start + width] for start in range(0, len(entries), width)]
        differences = [tuple(entry - row[0] for entry in row) for row in rows]
        tables = {of_row: f"{name}_by_column_{index}" for index, of_row in enumerate(dict.fromkeys(differences))}
        for of_row, table in tables.items():
            self._table(table, "column_0", of_row)
        self._table(f"{name}_by_row", "row_0", [row[0] for row in rows])
        self._wire(name, f"{name}_by_row + {choice('row_0', [tables[of_row] for of_row in differences])}")

    def _state_counts(self) -> None:
        """Define the writer's lead over the reader in frames and pixels, and state all counts' ranges."""
        config, source = self._config, self._config.input
        for name in ("in_row", "in_step", "in_fold", *_loop_counts(config), "y", "x", "z"):
            self._wire(f"n_{name}", f"$signed({{1'b0, {name}}})")
        self.observer += [
            f"reg signed {frame_range(config)} frames = 0;",
            "always @(posedge clk) frames <= rst ? 0 : "
            "frames + $signed({1'b0, in_row_ends}) - $signed({1'b0, row_0_ends});",
        ]
        self._wire(
            "lead",
            f"frames * {self._number(source.frame_pixels)} + n_in_row * {self._number(source.width)} + "
            f"n_in_step * {self._number(source.pixels)}",
        )
        self._table("next_beat", "in_step", [source.pixels] * (source.row_steps - 1) + [source.last_pixels])
        self._table("x_step", "x", [column // source.pixels for column in range(source.width)])
        self.observer += [
            "wire is_beyond = (n_in_step > x_step) | ((n_in_step == x_step) & (in_fold > z));",
            "wire is_past = (in_row > y) | ((in_row == y) & is_beyond);",
        ]
        beats = {"in_row": (source.height, ""), "in_step": (source.row_steps, ""), "in_fold": (source.folds, "")}
        self.facts["counts are in their ranges"] = window_proof.in_range({**beats, **_loop_counts(config)})
        self.facts["frames are counted"] = f"(frames >= -1) & (frames <= {self._max_frames})"
        self.facts["stored words are counted"] = "stored == frames + $signed({1'b0, is_past})"

    def _state_writer(self) -> None:
        """Add invariants of the writer's counters: the next beat of a row, and its ring row, bank and address."""
        config, source = self._config, self._config.input
        banks, rows = config.banks.columns, config.rows
        starts = [step * source.pixels for step in range(source.row_steps)]
        self.observer += [
            f"reg {bits_for(rows - 1)} in_slot = 0;",
            f"wire is_last_slot = in_slot == {rows - 1};",
            "always @(posedge clk) in_slot <= rst ? 0 : !in_step_ends ? in_slot : is_last_slot ? 0 : in_slot + 1;",
        ]
        self._wire("n_in_slot", "$signed({1'b0, in_slot})")
        self._table("in_bank", "in_step", [start % banks for start in starts])
        self._table("in_word", "in_step", [start // banks * source.folds for start in starts])
        self._fact("write_step_index", "n_in_step")
        self._fact("write_fold_index", "n_in_fold")
        self._fact("write_fold_index_next_word", f"n_in_fold + {self._number(source.folds)}")
        self._fact("write_slot_index", "n_in_slot")
        self._fact("write_bank_index", "in_bank")
        row = f" + n_in_slot * {self._number(config.banks.row_words)}" if config.banks.rows == 1 else ""
        self._fact("write_word_address", f"in_word{row}")

    def _state_reader(self) -> None:
        """Add invariants of the reader's counters: position, bank and address of the next step's window and patch."""
        config, source = self._config, self._config.input
        banks, folds = config.banks.columns, source.folds
        self._state_steps(config)
        for signal, expression in {
            "window_top_row": f"n_row_0 * {self._number(config.stride[0])} - {self._number(config.padding[0])}",
            "window_left_column": (
                f"n_column_0 * {self._number(config.stride[1] * config.pixels)} - {self._number(config.padding[1])}"
            ),
        }.items():
            self._fact(signal, expression)
        beside = [column for _, column in window_proof.patch_offsets(config)]
        lefts = [step * config.pixels * config.stride[1] - config.padding[1] for step in range(config.grid.row_steps)]

        def by_left(name: str, value: Callable[[int], int]) -> None:
            """Add wires ``window_NAME`` and ``patch_NAME``, ``value`` of a window's or patch's left column."""
            self._table(f"window_{name}", "column_0", [value(left) for left in lefts])
            options = [
                choice("column_0", [self._number(value(left + offset)) for left in lefts])
                for offset in sorted(set(beside))
            ]
            entries = [options[sorted(set(beside)).index(offset)] for offset in beside]
            self._wire(f"patch_{name}", choice("tap_fold_0", entries))

        by_left("bank", lambda column: column % banks)
        by_left("word", lambda column: column // banks * folds)
        for part in ("window", "patch"):
            self._fact(f"{part}_bank_index", f"{part}_bank")
            self._fact(f"{part}_word_address", f"{part}_word")

    def _state_ring_rows(self) -> None:
        """Add invariants that map each buffer row to the map row it holds, in the reader's and writer's frame."""
        config, source = self._config, self._config.input
        rows = config.rows
        ahead = source.height % rows
        self.observer += [
            f"reg {bits_for(2 * rows)} first_slot = 0;",
            f"always @(posedge clk) first_slot <= rst ? 0 : !row_0_ends ? first_slot : "
            f"first_slot + {ahead} >= {rows} ? first_slot + {ahead} - {rows} : first_slot + {ahead};",
        ]
        self._wire("n_first_slot", "$signed({1'b0, first_slot})")
        tops = [row * config.stride[0] - config.padding[0] for row in range(config.output_height)]
        self._table("top_slot", "row_0", [top % rows for top in tops])
        self._modulo("window_slot", "n_first_slot + top_slot", rows, 2)
        self._table(
            "down_slot", "down", [offset % rows for offset in range((config.kernel[0] - 1) * config.dilation[0] + 1)]
        )
        self._modulo("patch_slot", "window_slot + down_slot", rows, 2)
        self._fact("window_slot_index", "window_slot")
        self._fact("patch_slot_index", "patch_slot")
        self._table("row_slot", "in_row", [row % rows for row in range(source.height)])
        frames = range(-1, self._max_frames + 1)
        self._table("frame_slot", "frames + 1", [frame * source.height % rows for frame in frames])
        self._modulo("write_slot", "n_first_slot + row_slot + frame_slot", rows, 3)
        self.facts["rows are written in a circle"] = (
            f"(n_in_slot == write_slot) & (first_slot < {rows}) & (in_slot < {rows})"
        )

    def _state_flow(self) -> None:
        """Add invariants of the counters ``margin`` and ``space``: no window starts, and no beat enters, too early."""
        config, source, grid = self._config, self._config.input, self._config.grid
        needs = grid.needed(*grid.windows).ravel().tolist()
        released = grid.released(*grid.windows).ravel().tolist()
        frame = source.frame_pixels
        self._table_by_window("need", needs)
        self._table_by_window("need_next", [*needs[1:], frame + needs[0]])
        self._table_by_window("need_before", [needs[-1] - frame, *needs[:-1]])
        self._table_by_window("release_before", [grid.skipped, *released[:-1]])
        self._table_by_window("release_after", released)
        width = f"reg signed [{self._bits - 1}:0]"
        self.observer += [
            "wire is_running = (output_fold_0 != 0) | (tap_fold_0 != 0) | (inner_0 != 0);",
            *register("is_new", "start & !is_running"),
            f"{width} release_1 = 0; {width} release_2 = 0;",
            "always @(posedge clk) release_1 <= rst ? 0 : output_fold_0_ends ? release_after - release_before : 0;",
            "always @(posedge clk) release_2 <= rst ? 0 : release_1;",
        ]
        needed = "lead - need"
        if config.window_cycles > 1:
            needed = "lead - ((is_running & !is_new) ? need_next : need)"
            self._fact("used_pixels", "is_new ? need_next - need : 0")
            self.facts["a window that is new in its second cycle has not ended"] = "!is_new | is_running"
        self._fact("released_pixels", "release_1")
        self._fact("released_pixels_1", "release_2")
        if self._site.has("margin"):
            self.sees["its_margin"] = "margin"
            self.facts["margin follows from the counts"] = f"$signed(its_margin) == {needed}"
        if self._site.has("space"):
            self.sees["its_space"] = "space"
            capacity = self._number(config.rows * source.width)
            self.facts["space follows from the counts"] = (
                f"$signed(its_space) == {capacity} + release_before - release_1 - release_2 - lead - next_beat"
            )
            self.facts["a beat is accepted only if it fits"] = (
                "($signed(its_space) >= 0) | ((in_fold == 0) & ($signed(its_space) >= -next_beat))"
            )
        self.facts["a window has all of its pixels"] = "lead >= (is_running ? need : need_before)"
        largest_release = self._number(frame + grid.skipped)
        self.facts["releases are at most a frame"] = " & ".join(
            f"(release_{stage} >= 0) & (release_{stage} <= {largest_release})" for stage in (1, 2)
        )

    def _state_marked_word(self) -> None:
        """Add invariants of the buffer row with the proof's marked word, and until when it is stored."""
        config, source = self._config, self._config.input
        rows = config.rows
        self.observer += [
            f"reg {bits_for(rows - 1)} mark_slot = 0;",
            "always @(posedge clk) if (marks) mark_slot <= in_slot;",
            "wire is_due = was_marked & (ahead >= 0);",
        ]
        self._wire("n_mark_slot", "$signed({1'b0, mark_slot})")
        self._wire("rows_since", f"(frames - ahead) * {self._number(source.height)} + n_in_row - n_y")
        self.observer.append(
            f"wire is_kept = is_due & ((rows_since < {self._number(rows)}) | "
            f"((rows_since == {self._number(rows)}) & !is_beyond));"
        )
        self._table("y_slot", "y", [row % rows for row in range(source.height)])
        frames = range(self._max_frames + 1)
        self._table("ahead_slot", "ahead", [frame * source.height % rows for frame in frames])
        self._modulo("stored_slot", "n_first_slot + ahead_slot + y_slot", rows, 3)
        self._modulo("since_slot", "n_mark_slot + rows_since", rows, 2)
        self.facts["the marked word came"] = "!is_due | (rows_since > 0) | ((rows_since == 0) & is_beyond)"
        self.facts["the marked word is in its ring row"] = (
            f"!is_due | ((n_mark_slot == stored_slot) & (mark_slot < {rows}) & (ahead <= {self._max_frames}))"
        )
        self.facts["rows follow the marked word in a circle"] = (
            f"!is_due | (rows_since > {self._number(rows)}) | (n_in_slot == (rows_since == {self._number(rows)} ? "
            "n_mark_slot : since_slot))"
        )

    def _state_memory(self) -> None:
        """Add the invariant that the memory has the marked word at its address until it is overwritten."""
        config, source = self._config, self._config.input
        banks, bits = config.banks.columns, source.bits
        self._table("mark_bank", "x", [column % banks for column in range(source.width)])
        self._table("mark_word", "x", [column // banks * source.folds for column in range(source.width)])
        row = f" + n_mark_slot * {self._number(config.banks.row_words)}" if config.banks.rows == 1 else ""
        self._wire("mark_address", f"mark_word + n_z{row}")
        word = ", ".join(f"{{{bits}{{word[{lane}]}}}}" for lane in reversed(range(source.lanes)))
        same = []
        for bank_row in range(config.banks.rows):
            for column in range(banks):
                probed = self._probe(f"bank_{bank_row}_{column}", config.banks.depth, config.word_bits, "mark_address")
                here = f"(mark_bank == {column})"
                if config.banks.rows > 1:
                    here += f" & (mark_slot == {bank_row})"
                same.append(f"(!({here}) | ({probed} == {{{word}}}))")
        self.facts["the memory has the marked word until it is overwritten"] = f"!is_kept | ({' & '.join(same)})"


PROOFS = {LineBufferConfig: Proofs((obligations,), reasons=window_proof.IN_PIECES)}
