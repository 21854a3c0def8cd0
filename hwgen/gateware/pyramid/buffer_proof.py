"""Proof obligations of tile buffers: windows read the pixels that they cover, and no tile is overwritten too early.

As for line buffers, the observer marks one word, and computes from its own counts of beats and
steps which pixel each tap is. A tile without beats, which is in the padding, becomes complete in the first cycle
that could fill it. The observer counts these tiles in the cycles that `PyramidBuffer` states.
`TileBufferFacts` has the invariants, which ``occupancy`` proves and ``tokens`` assumes.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware import window_proof
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.spans import Cut, TiledAxis
from hwgen.gateware.pyramid.timing import HALVES
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, choice
from hwgen.obligations.observers import counter, register, stages
from hwgen.obligations.streams import bits_of_values


def obligations(config: PyramidBufferConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of a tile buffer; empty if its banks consist of several memories."""
    if config.pieces > 1:
        return []
    source = config.window.input
    values = config.window.taps * source.lanes * source.bits
    return [*_obligations(config, site), bits_of_values(site, source.bits, source.data_bits, values)]


def _obligations(config: PyramidBufferConfig, site: Site) -> list[Obligation]:
    window, latency = config.window, config.latency
    facts = TileBufferFacts(config, site)

    def is_present(stage: int, index: int, tap: int) -> str:
        return window_proof.has_tap(window, stage, tap)

    def is_marked(stage: int, index: int, tap: int) -> str:
        return _is_marked(config, stage, tap)

    def is_padding(stage: int, index: int, tap: int) -> str:
        return _is_padding(config, stage, tap)

    reads = [f"({is_present(0, 0, tap)} & {is_marked(0, 0, tap)})" for tap in range(window.taps)]
    marked = [f"({is_present(latency, 0, tap)} & {is_marked(latency, 0, tap)})" for tap in range(window.taps)]
    asserts = {
        "a step reads only pixels that were stored": f"!(has_step_0 & ({' | '.join(reads)})) | (stored >= 1)",
        **window_proof.tap_asserts(window, latency, is_present, is_marked, is_padding),
    }
    shared: dict[str, Any] = {
        "rules": {"the marked word is in the map, under the windows of its tile": _in_map(config)},
        "observer": (*_mark_lines(config), *_reader_lines(config), *_writer_lines(config)),
        "drives": {"i__payload": window_proof.token_beat(window.input)},
    }
    return [
        facts.obligation(
            "occupancy",
            "A window starts when its tile is complete, and no tile is overwritten while a window needs it.",
            cover="is_kept & (ahead == 0) & start",
            **shared,
        ),
        facts.obligation(
            "tokens",
            "Every tap of every window of every tile is the pixel that it covers, or the padding's value.",
            asserts=asserts,
            cover=f"o__valid & is_open_{latency} & ({' | '.join(marked)})",
            structure={"cycles": latency + 1},
            **shared,
        ),
        facts.obligation(
            "schedule",
            f"A fold starts in the first cycle with room after the previous fold, {config.write_delay} cycle after its "
            f"tile is complete; a beat is accepted in the first cycle with a free half, {config.release_delay} "
            "cycles after the last step of the tile that was in it.",
            asserts={
                "folds start in time": "start == (room & (tap_fold_0 == 0) & (inner_0 == 0) & (complete != 0))",
                "beats are accepted in time": "i__ready == (is_free & !is_none)",
            },
            cover="start & (output_fold_0 == 0) & (complete == 1)",
            **shared,
        ),
    ]


def _in_map(config: PyramidBufferConfig) -> str:
    """Return the assumption (Verilog) that the proof's marked word, any pixel, can be in its tile's windows."""
    rules = []
    for axis, position, span in ((config.rows, "p", "mark_row_span"), (config.columns, "q", "mark_column_span")):
        origins = [axis.origin(walk) for walk in axis.walked]
        lowest = [max(0, -origin) for origin in origins]
        ends = [
            min((walk.windows - 1) * axis.stride + axis.extent, axis.size - origin)
            for walk, origin in zip(axis.walked, origins, strict=True)
        ]
        rules += [
            f"({span} < {len(axis.walked)})",
            f"({position} >= {choice(span, lowest)})",
            f"({choice(span, [max(end, 0) for end in ends])} > {position})",
        ]
    return " & ".join([*rules, f"(z < {config.window.input.folds})"])


def _mark_lines(config: PyramidBufferConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that choose an arbitrary word to mark: its tile, position and beat."""
    source = config.window.input
    lines = [
        f"wire [{source.lanes * source.pixels - 1}:0] token = $anyseq;",
        "wire token_last = $anyseq;",
        f"wire {bits_for(len(config.row_cuts) - 1)} mark_row_span = $anyconst;",
        f"wire {bits_for(len(config.column_cuts) - 1)} mark_column_span = $anyconst;",
        f"wire {bits_for(config.rows.tile - 1)} p = $anyconst;",
        f"wire {bits_for(config.columns.tile - 1)} q = $anyconst;",
        f"wire {bits_for(source.folds - 1)} z = $anyconst;",
    ]
    for axis, cuts, position, span, name in (
        (config.rows, config.row_cuts, "p", "mark_row_span", "row"),
        (config.columns, config.column_cuts, "q", "mark_column_span", "column"),
    ):
        begins, pixels = first_beats(axis, cuts), cuts[0].pixels
        width = (axis.tile + max(map(abs, begins))).bit_length() + 1
        first = [f"-{width}'sd{-begin}" if begin < 0 else f"{width}'sd{begin}" for begin in begins]
        lines.append(
            f"wire signed [{width - 1}:0] {name}_offset = $signed({{1'b0, {position}}}) - {choice(span, first)};"
        )
        offsets = range(axis.tile - min(begins))
        index = "mark_row" if name == "row" else "mark_step"
        lines += [
            f"wire {bits_for(offsets[-1] // pixels)} {index} = "
            f"{choice(f'{name}_offset', [offset // pixels for offset in offsets])};",
            f"wire {bits_for(pixels - 1)} {name}_lane = {choice(f'{name}_offset', [at % pixels for at in offsets])};",
        ]
    return lines


def _step_loops(config: PyramidBufferConfig) -> window_proof.Counts:
    """Return the loops over all tiles' windows and reads, outermost first: dict, name to (count, last index)."""
    window = config.window
    return {
        "row_span_0": (len(config.rows.walked), ""),
        "column_span_0": (len(config.columns.walked), ""),
        "row_0": _window_loop(config.rows, "row_span_0"),
        "column_0": _window_loop(config.columns, "column_span_0"),
        "output_fold_0": (window.output_folds, ""),
        "tap_fold_0": (window.tap_folds, ""),
        "inner_0": (window.group_folds, ""),
    }


def _reader_lines(config: PyramidBufferConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that count all tiles' steps, and delay a tile's last-step flag."""
    released = stages("release", 1, "tile_ends", config.release_delay - 1, resets=True)
    return [*window_proof.steps(_step_loops(config), config.latency), "wire tile_ends = row_0_ends;", *released]


def _window_loop(axis: TiledAxis, span: str) -> tuple[int, str]:
    """Return a pair: maximum number of windows per tile on an axis, and a tile's last window's index, as Verilog."""
    return max(walk.windows for walk in axis.walked), choice(span, [walk.windows - 1 for walk in axis.walked])


def _beat_loop(cuts: tuple[Cut, ...], span: str) -> tuple[int, str]:
    """Return a pair: maximum number of beats per tile on an axis, and a tile's last beat's index, as Verilog."""
    return max(cut.used for cut in cuts), choice(span, [max(cut.used - 1, 0) for cut in cuts])


def _beat_loops(config: PyramidBufferConfig) -> window_proof.Counts:
    """Return the loops over the input beats of all tiles, outermost first: dict, name to (count, last index)."""
    return {
        "in_row_span": (len(config.row_cuts), ""),
        "in_column_span": (len(config.column_cuts), ""),
        "in_row": _beat_loop(config.row_cuts, "in_row_span"),
        "in_step": _beat_loop(config.column_cuts, "in_column_span"),
        "in_fold": (config.window.input.folds, ""),
    }


def _writer_lines(config: PyramidBufferConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that count accepted beats and complete tiles, and mark a word."""
    source = config.window.input
    rows, columns = config.row_cuts, config.column_cuts
    none = [
        f"({choice(span, [int(not cut.used) for cut in cuts])} != 0)"
        for span, cuts in (("in_row_span", rows), ("in_column_span", columns))
    ]
    moves = ("in_column_span_ends", "fills", "in_step_ends", "in_fold_ends", "taken")
    row_span, column_span, *beat = (
        counter(name, count, move, last)
        for (name, (count, last)), move in zip(_beat_loops(config).items(), moves, strict=True)
    )
    small = "signed [3:0]"
    return [
        f"reg {small} complete = 0;",
        f"wire is_free = complete + {released_tiles(config)} != {HALVES};",
        f"reg {bits_for(len(rows) - 1)} in_row_span = 0; reg {bits_for(len(columns) - 1)} in_column_span = 0;",
        f"wire is_none = {' | '.join(none)};",
        "wire taken = i__valid & i__ready;",
        "wire skips = is_none & is_free & (begun | i__valid);",
        *(line for lines in reversed(beat) for line in lines),
        "wire fills = in_row_ends | skips;",
        *column_span[1:],
        *row_span[1:],
        *register("begun", "!in_row_span_ends & (begun | taken)"),
        *register("write_half", "write_half ^ fills"),
        *register("read_half", "read_half ^ tile_ends"),
        "wire signed [1:0] filled = $signed({1'b0, fills}); wire signed [1:0] ended = $signed({1'b0, tile_ends});",
        "always @(posedge clk) complete <= rst ? 0 : complete + filled - ended;",
        "wire is_mark_tile_in = (in_row_span == mark_row_span) & (in_column_span == mark_column_span);",
        "wire is_mark_tile_out = (row_span_0 == mark_row_span) & (column_span_0 == mark_column_span);",
        "wire comes = taken & is_mark_tile_in & (in_row == mark_row) & (in_step == mark_step) & (in_fold == z);",
        f"wire [{source.lanes - 1}:0] came = {choice('column_lane', window_proof.token_words(config.window))};",
        f"reg {small} stored = 0; reg {small} ahead = 0; reg {small} since = 0; reg mark_half = 0;",
        *window_proof.word_marks(config.window, config.latency),
        "always @(posedge clk) stored <= rst ? 0 : stored + $signed({1'b0, comes}) - "
        "$signed({1'b0, tile_ends & is_mark_tile_out});",
        "always @(posedge clk) if (marks) mark_half <= write_half;",
        "always @(posedge clk) ahead <= rst ? 0 : marks ? complete - ended : "
        f"ahead == -{PASSED} ? ahead : ahead - ended;",
        f"always @(posedge clk) since <= rst ? 0 : marks ? filled : since == {PASSED} ? since : since + filled;",
    ]


def _positions(config: PyramidBufferConfig, stage: int, tap: int) -> tuple[str, str]:
    """Return a pair of Verilog expressions: a tap's row and column in its tile, for the step in a stage."""
    window = config.window
    offsets = [taps[tap] if tap < len(taps) else (0, 0) for taps in window.patches.step_taps]
    row = choice(f"tap_fold_{stage}", [i * window.dilation[0] for i, _ in offsets])
    column = choice(f"tap_fold_{stage}", [j * window.dilation[1] for _, j in offsets])
    return (
        f"32'd0 + row_{stage} * {window.stride[0]} + {row}",
        f"32'd0 + column_{stage} * {window.stride[1]} + {column}",
    )


def _is_marked(config: PyramidBufferConfig, stage: int, tap: int) -> str:
    """Return the Verilog condition that a tap of the step in a pipeline stage is at the marked word's place."""
    window = config.window
    row, column = _positions(config, stage, tap)
    group = choice(
        f"output_fold_{stage}",
        [fold // window.group_output_folds * window.group_folds for fold in range(window.output_folds)],
    )
    return (
        f"(row_span_{stage} == mark_row_span) & (column_span_{stage} == mark_column_span) & ({row} == p) & "
        f"({column} == q) & (32'd0 + {group} + inner_{stage} == z)"
    )


def _is_padding(config: PyramidBufferConfig, stage: int, tap: int) -> str:
    """Return the Verilog condition that a tap lies outside the map, or does not exist in the step."""
    row, column = _positions(config, stage, tap)

    def outside(position: str, axis: TiledAxis, span: str) -> str:
        """Return the Verilog condition that a position in a tile, along one axis, lies outside the map."""
        before = max(0, *(-axis.origin(walk) for walk in axis.walked))
        origin = choice(span, [axis.origin(walk) + before for walk in axis.walked])
        moved = f"(32'd0 + {position} + {origin})"
        return f"(({moved} < {before}) | ({moved} >= {before + axis.size}))"

    beyond = [
        outside(row, config.rows, f"row_span_{stage}"),
        outside(column, config.columns, f"column_span_{stage}"),
    ]
    return f"(!{window_proof.has_tap(config.window, stage, tap)} | {' | '.join(beyond)})"


#: Limit of the observer's counts of tiles before and after the marked one (``ahead``, ``since``), which saturate there.
PASSED = HALVES + 1


def first_beats(axis: TiledAxis, cuts: tuple[Cut, ...]) -> list[int]:
    """Return a list: by tile, the position in the tile (on one axis) of its first beat's first pixel; 0 without beats.

    Position 0 is the first pixel of the tile's first window. The beat can begin before it.
    """
    return [cut.first + cut.unused * cut.pixels - axis.origin(cut.span) if cut.used else 0 for cut in cuts]


def released_tiles(config: PyramidBufferConfig) -> str:
    """Return, in Verilog, the number of tiles whose last window was read less than ``release_delay`` cycles ago."""
    return " + ".join(f"$signed({{1'b0, release_{cycles}}})" for cycles in range(1, config.release_delay))


class TileBufferFacts(window_proof.WindowFacts):
    """Invariants of one tile buffer: its counters as functions of an observer's counts of beats and reads.

    Names without ``its_`` are the observer's. The next beat is in the tile ``in_row_span``, ``in_column_span``, at
    ``in_row``, ``in_step`` and ``in_fold`` of the beats that its windows need. The next step is in the tile
    ``row_span_0``, ``column_span_0``, and so on as in a line buffer. ``row_0`` and ``column_0`` count within the tile.
    The marked word is in the tile ``mark_row_span``, ``mark_column_span``, at the row ``p`` and column ``q`` from the
    first pixel of the tile's first window, in input fold ``z``. Names with ``its_`` are the tile buffer's.
    """

    def __init__(self, config: PyramidBufferConfig, site: Site) -> None:
        axes = (config.rows, config.columns)
        largest = max(
            4 * (config.bank_depth + config.row_words + config.window.input.folds),
            (len(config.row_cuts) + 1) * (len(config.column_cuts) + HALVES + 1),
            *(axis.size + axis.tile + axis.extent + 4 * config.window.input.pixels for axis in axes),
            (config.window.input.folds + 1) * 2,
            config.window.tap_folds * max(config.window.extent),
            config.window.output_folds,
        )
        super().__init__(site, largest.bit_length() + 2)
        self._config = config
        self._add_counts()
        self._state_tiles()
        self._state_writer()
        self._state_reader()
        self._state_mark()
        self._state_memory()

    def _add_counts(self) -> None:
        """Add the observer's counts as signed wires ``n_NAME``, and the invariant of their ranges."""
        counts = {**_beat_loops(self._config), **_step_loops(self._config)}
        for name in (*counts, "mark_row_span", "mark_column_span", "p", "q", "z"):
            self._wire(f"n_{name}", f"$signed({{1'b0, {name}}})")
        self.facts["counts are in their ranges"] = window_proof.in_range(counts)
        self.facts["a tile without beats has none"] = "!is_none | ((in_row == 0) & (in_step == 0) & (in_fold == 0))"

    def _state_tiles(self) -> None:
        """Add invariants of the tiles: how many are complete or held, and which tile is being filled."""
        config = self._config
        self.observer += [
            "wire is_running = (row_0 != 0) | (column_0 != 0) | (output_fold_0 != 0) | (tap_fold_0 != 0) | "
            "(inner_0 != 0);"
        ]
        self._wire("held", f"complete + {released_tiles(config)}")
        self._fact("complete_tiles", "complete")
        self._fact("held_tiles", "held")
        for cycles in range(1, config.release_delay):
            self._fact(f"tile_release_{cycles}", f"$signed({{1'b0, release_{cycles}}})")
        self._fact("is_frame_begun", "$signed({1'b0, begun})")
        for half in ("write", "read"):
            self._fact(f"{half}_half_index", f"$signed({{1'b0, {half}_half}})")
        self.facts["at most two tiles are held"] = f"(complete >= 0) & (held <= {self._number(HALVES)})"
        self.facts["a tile is complete while its windows are read"] = "!(is_running | start) | (complete != 0)"
        self.facts["halves are filled and read in turn"] = "(write_half ^ read_half) == complete[0]"
        tiles, across = len(config.tiles), self._number(len(config.columns.walked))
        self._wire("tile_in", f"n_in_row_span * {across} + n_in_column_span")
        self._wire("tile_out", f"n_row_span_0 * {across} + n_column_span_0")
        self._wire("tile_mark", f"n_mark_row_span * {across} + n_mark_column_span")
        self._modulo("tile_next", f"tile_out + {self._number(1 % tiles)}", tiles, 2)
        self._modulo("tile_after", f"tile_out + {self._number(2 % tiles)}", tiles, 2)
        self._wire("tile_filled", "complete == 0 ? tile_out : complete == 1 ? tile_next : tile_after")
        self.facts["the tile that is filled follows those that are complete"] = "tile_in == tile_filled"

    def _state_writer(self) -> None:
        """Add invariants of the writer's registers: index of the next beat, its tile, memory bank and address."""
        config, window = self._config, self._config.window
        folds, pixels = window.input.folds, window.input.pixels
        for signal, expression in {
            "write_fold_index": "n_in_fold",
            "write_row_span_index": "n_in_row_span",
            "write_column_span_index": "n_in_column_span",
            "write_row_index": "n_in_row",
            "write_column_index": "n_in_step",
        }.items():
            self._fact(signal, expression)

        def writes(name: str, begins: list[int], span: str, index: str, largest: int, step: int, banks: int) -> None:
            """Add wires with the bank (``NAME_bank``) and word (``NAME_word``) of the beat's lowest pixel."""
            self._table(f"{name}_begin", span, begins)
            lowest = min(begins)
            self._wire(f"{name}_from", f"{name}_begin + n_{index} * {self._number(step)} - {self._number(lowest)}")
            positions = range(lowest, max(begins) + (largest + 1) * step)
            self._table(f"{name}_bank", f"{name}_from", [position % banks for position in positions])
            self._table(f"{name}_word", f"{name}_from", [position // banks for position in positions])

        rows, columns = first_beats(config.rows, config.row_cuts), first_beats(config.columns, config.column_cuts)
        beats = [max(cut.used for cut in cuts) for cuts in (config.row_cuts, config.column_cuts)]
        writes("in_row", rows, "in_row_span", "in_row", beats[0], 1, config.row_banks)
        writes("in_column", columns, "in_column_span", "in_step", beats[1], pixels, config.column_banks)
        half = f"(write_half ? {self._number(config.half_depth)} : 0)"
        self._fact("write_row_bank_index", "in_row_bank")
        self._fact("write_column_bank_index", "in_column_bank")
        self._fact("write_row_word_address", f"in_row_word * {self._number(config.row_words)} + {half}")
        self._fact("write_column_word_address", f"in_column_word * {self._number(folds)}")
        self._fact("write_column_word_address_ahead", f"in_column_word * {self._number(folds)} + {self._number(folds)}")

    def _state_reader(self) -> None:
        """Add invariants of the reader's registers: tile, window, folds, banks and addresses of the next step."""
        config, window = self._config, self._config.window
        self._state_steps(window)
        self._wire("window_row", f"n_row_0 * {self._number(window.stride[0])}")
        self._wire("window_column", f"n_column_0 * {self._number(window.stride[1])}")
        for signal, expression in {
            "row_span_index": "n_row_span_0",
            "column_span_index": "n_column_span_0",
            "row_window_index": "n_row_0",
            "column_window_index": "n_column_0",
            "window_first_row": "window_row",
            "window_first_column": "window_column",
        }.items():
            self._fact(signal, expression)
        for name, offset, axis, banks, pitch in (
            ("row", "down", config.rows, config.row_banks, config.row_words),
            ("column", "beside", config.columns, config.column_banks, window.input.folds),
        ):
            for part, position in (("window", f"window_{name}"), ("patch", f"window_{name} + {offset}")):
                self._wire(f"{part}_{name}_at", position)
                self._table(f"{part}_{name}_bank", f"{part}_{name}_at", [at % banks for at in range(axis.tile)])
                self._table(f"{part}_{name}_words", f"{part}_{name}_at", [at // banks for at in range(axis.tile)])
                self._fact(f"{part}_{name}_bank_index", f"{part}_{name}_bank")
                self._fact(f"{part}_{name}_word_address", f"{part}_{name}_words * {self._number(pitch)}")

    def _state_mark(self) -> None:
        """Add invariants of the proof's marked word, any pixel: its arrival, its tile, and how long it is kept."""
        config = self._config
        self.observer += [
            "wire is_beyond = (in_row > mark_row) | ((in_row == mark_row) & ((in_step > mark_step) | "
            "((in_step == mark_step) & (in_fold > z))));",
            f"wire is_kept = was_marked & (ahead + {released_tiles(config)} >= 0);",
        ]
        counted = [
            f"$signed({{1'b0, (complete > {index}) & ({tile} == tile_mark)}})"
            for index, tile in enumerate(("tile_out", "tile_next"))
        ]
        self._wire("expected_stored", f"{' + '.join(counted)} + $signed({{1'b0, (tile_in == tile_mark) & is_beyond}})")
        self.facts["marked words that came are counted"] = "stored == expected_stored"
        self.facts["tiles since the marked one are counted"] = (
            f"(ahead >= -{PASSED}) & (ahead <= {HALVES}) & (!is_kept | (complete == ahead + since)) & (since >= 0) & "
            f"(since <= {PASSED})"
        )
        self.facts["the marked word is in its half"] = "!is_kept | (mark_half == (write_half ^ since[0]))"
        self.facts["the marked word came"] = "!is_kept | (since != 0) | ((tile_in == tile_mark) & is_beyond)"
        self.facts["the marked tile follows those before it"] = (
            "!(was_marked & (ahead >= 0)) | "
            "(tile_mark == (ahead == 0 ? tile_out : ahead == 1 ? tile_next : tile_after))"
        )

    def _state_memory(self) -> None:
        """Add the invariant that memory has the marked word at its address until the word's tile is overwritten."""
        config, window = self._config, self._config.window
        banks = {"row": config.row_banks, "column": config.column_banks}
        for name, axis, position in (("row", config.rows, "p"), ("column", config.columns, "q")):
            offsets = range(axis.tile)
            self._table(f"mark_{name}_bank", position, [offset % banks[name] for offset in offsets])
            self._table(f"mark_{name}_word", position, [offset // banks[name] for offset in offsets])
        self._wire(
            "mark_address",
            f"mark_row_word * {self._number(config.row_words)} + "
            f"mark_column_word * {self._number(window.input.folds)} + n_z + "
            f"(mark_half ? {self._number(config.half_depth)} : 0)",
        )
        same = []
        for row in range(config.row_banks):
            for column in range(config.column_banks):
                memory = f"bank_{row}_{column}"
                if memory not in (*self._site.module.instances, *self._site.module.arrays):  # no window reads it
                    continue
                word = self._probe(memory, config.bank_depth, window.word_bits, "mark_address")
                here = f"(mark_row_bank == {row}) & (mark_column_bank == {column})"
                same.append(f"(!({here}) | ({word} == {{{window_proof.marked_word(window)}}}))")
        self.facts["the memory has the marked word until its tile is overwritten"] = f"!is_kept | ({' & '.join(same)})"


PROOFS = {PyramidBufferConfig: Proofs((obligations,), reasons=window_proof.IN_PIECES)}
