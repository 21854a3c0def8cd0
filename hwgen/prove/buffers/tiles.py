"""Obligations of tile buffers: every window of every tile reads the pixels that it covers, and no tile is overwritten.

As for line buffers (`windows`), the observer marks one word, and computes from its own counts of beats and
steps which pixel each tap is. A tile without beats, which is in the padding, becomes complete in the first cycle in
which it could be filled. The observer counts these tiles in the cycles that `PyramidBuffer` states.
`halves` has the invariants, which ``occupancy`` proves and ``tokens`` assumes.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.spans import Axis
from hwgen.gateware.pyramid.timing import HALVES
from hwgen.obligations.expressions import choice
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import counter
from hwgen.obligations.site import Site, bits_for
from hwgen.obligations.streams import bits_of_values
from hwgen.prove.buffers.halves import PASSED, Halves, first_beats, released
from hwgen.prove.buffers.taps import delays, has_tap, tap_asserts, token_beat, token_words

__all__ = ["of_tile_buffer"]


def of_tile_buffer(config: PyramidBufferConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a tile buffer; empty if its banks are in pieces."""
    if config.pieces > 1:
        return []
    source = config.window.input
    values = config.window.taps * source.lanes * source.bits
    return [*_obligations(config, site), bits_of_values(site, source.bits, source.data_bits, values)]


def _obligations(config: PyramidBufferConfig, site: Site) -> list[Obligation]:
    window, latency = config.window, config.latency
    halves = Halves(config, site)

    def is_present(stage: int, index: int, tap: int) -> str:
        return has_tap(window, stage, tap)

    def is_marked(stage: int, index: int, tap: int) -> str:
        return _is_marked(config, stage, tap)

    def is_padding(stage: int, index: int, tap: int) -> str:
        return _is_padding(config, stage, tap)

    reads = [f"({is_present(0, 0, tap)} & {is_marked(0, 0, tap)})" for tap in range(window.taps)]
    marked = [f"({is_present(latency, 0, tap)} & {is_marked(latency, 0, tap)})" for tap in range(window.taps)]
    asserts = {
        "a step reads only pixels that were stored": f"!(has_step_0 & ({' | '.join(reads)})) | (stored >= 1)",
        **tap_asserts(window, latency, is_present, is_marked, is_padding),
    }
    shared: dict[str, Any] = {
        "rules": {"the marked word is in the map, under the windows of its tile": _in_map(config)},
        "observer": (*_marks(config), *_reader(config), *_writer(config)),
        "drives": {"i__payload": token_beat(window.input)},
    }
    return [
        halves.obligation(
            "occupancy",
            "A window starts when its tile is complete, and no tile is overwritten while a window needs it.",
            cover="is_kept & (ahead == 0) & start",
            **shared,
        ),
        halves.obligation(
            "tokens",
            "Every tap of every window of every tile is the pixel that it covers, or the padding's value.",
            asserts=asserts,
            cover=f"o__valid & is_open_{latency} & ({' | '.join(marked)})",
            structure={"cycles": latency + 1},
            **shared,
        ),
        halves.obligation(
            "schedule",
            f"A fold starts in the first cycle with room after the fold before, {config.write_delay} cycle after its "
            f"tile is complete; a beat is taken in the first cycle in which a half is free, {config.release_delay} "
            "cycles after the last step of the tile that was in it.",
            asserts={
                "folds start in time": "start == (room & (tap_fold_0 == 0) & (inner_0 == 0) & (complete != 0))",
                "beats are taken in time": "i__ready == (is_free & !is_none)",
            },
            cover="start & (output_fold_0 == 0) & (complete == 1)",
            **shared,
        ),
    ]


def _in_map(config: PyramidBufferConfig) -> str:
    """Return the rule that the marked word is a pixel of the map that windows of its tile can cover."""
    rules = []
    for axis, position, span in ((config.rows, "p", "mark_row_span"), (config.columns, "q", "mark_column_span")):
        origins = [axis.origin(walk) for walk in axis.walks]
        lowest = [max(0, -origin) for origin in origins]
        ends = [
            min((walk.windows - 1) * axis.stride + axis.extent, axis.size - origin)
            for walk, origin in zip(axis.walks, origins, strict=True)
        ]
        rules += [
            f"({span} < {len(axis.walks)})",
            f"({position} >= {choice(span, lowest)})",
            f"({choice(span, [max(end, 0) for end in ends])} > {position})",
        ]
    return " & ".join([*rules, f"(z < {config.window.input.folds})"])


def _marks(config: PyramidBufferConfig) -> list[str]:
    """Return lines that choose the marked word: its tile, its position in the tile, and its beat."""
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


def _reader(config: PyramidBufferConfig) -> list[str]:
    """Return lines that count the steps tile by tile, and delay the counts as the tile buffer delays its steps."""
    window, latency = config.window, config.latency
    rows, columns = config.rows.walks, config.columns.walks
    walk = {
        "row_span": (len(rows), ""),
        "column_span": (len(columns), ""),
        "row": _windows_of(config.rows, "row_span_0"),
        "column": _windows_of(config.columns, "column_span_0"),
        "output_fold": (window.output_folds, ""),
        "tap_fold": (window.tap_folds, ""),
        "inner": (window.group_folds, ""),
    }
    names = list(walk)
    moves = [*(f"{name}_0_ends" for name in names[1:]), "has_step_0"]
    counters = [
        counter(f"{name}_0", count, move, last) for (name, (count, last)), move in zip(walk.items(), moves, strict=True)
    ]
    lines = [f"reg {bits_for(count - 1)} {name}_0 = 0;" for name, (count, _) in walk.items()]
    lines.append("wire has_step_0 = start | (tap_fold_0 != 0) | (inner_0 != 0);")
    for count_lines in reversed(counters):
        lines += count_lines[1:]
    lines.append("wire tile_ends = row_0_ends;")
    for cycles in range(1, config.release_delay):
        before = f"release_{cycles - 1}" if cycles > 1 else "tile_ends"
        lines += [
            f"reg release_{cycles} = 0;",
            f"always @(posedge clk) release_{cycles} <= !rst & {before};",
        ]
    return [*lines, *delays({name: count for name, (count, _) in walk.items()}, latency)]


def _windows_of(axis: Axis, span: str) -> tuple[int, str]:
    """Return the largest number of windows of a tile along an axis, and the index of a tile's last one."""
    return max(walk.windows for walk in axis.walks), choice(span, [walk.windows - 1 for walk in axis.walks])


def _writer(config: PyramidBufferConfig) -> list[str]:
    """Return lines that count the beats that are taken and the tiles that are complete, and mark a word."""
    source = config.window.input
    rows, columns = config.row_cuts, config.column_cuts
    none = [
        f"({choice(span, [int(not cut.used) for cut in cuts])} != 0)"
        for span, cuts in (("in_row_span", rows), ("in_column_span", columns))
    ]
    last_row = choice("in_row_span", [max(cut.used - 1, 0) for cut in rows])
    last_step = choice("in_column_span", [max(cut.used - 1, 0) for cut in columns])
    small = "signed [3:0]"
    return [
        f"reg {small} complete = 0; reg begun = 0; reg write_half = 0; reg read_half = 0;",
        f"wire is_free = complete + {released(config)} != {HALVES};",
        f"reg {bits_for(len(rows) - 1)} in_row_span = 0; reg {bits_for(len(columns) - 1)} in_column_span = 0;",
        f"wire is_none = {' | '.join(none)};",
        "wire taken = i__valid & i__ready;",
        "wire skips = is_none & is_free & (begun | i__valid);",
        *counter("in_fold", source.folds, "taken"),
        *counter("in_step", max(cut.used for cut in columns), "in_fold_ends", last_step),
        *counter("in_row", max(cut.used for cut in rows), "in_step_ends", last_row),
        "wire fills = in_row_ends | skips;",
        *counter("in_column_span", len(columns), "fills")[1:],
        *counter("in_row_span", len(rows), "in_column_span_ends")[1:],
        "always @(posedge clk) begun <= !rst & !in_row_span_ends & (begun | taken);",
        "always @(posedge clk) write_half <= !rst & (write_half ^ fills);",
        "always @(posedge clk) read_half <= !rst & (read_half ^ tile_ends);",
        "wire signed [1:0] filled = $signed({1'b0, fills}); wire signed [1:0] ended = $signed({1'b0, tile_ends});",
        "always @(posedge clk) complete <= rst ? 0 : complete + filled - ended;",
        "wire is_mark_tile_in = (in_row_span == mark_row_span) & (in_column_span == mark_column_span);",
        "wire is_mark_tile_out = (row_span_0 == mark_row_span) & (column_span_0 == mark_column_span);",
        "wire comes = taken & is_mark_tile_in & (in_row == mark_row) & (in_step == mark_step) & (in_fold == z);",
        f"wire [{source.lanes - 1}:0] came = {choice('column_lane', token_words(config.window))};",
        "wire mark = $anyseq;",
        f"reg {small} stored = 0; reg {small} ahead = 0; reg {small} since = 0;",
        "reg was_marked = 0; reg mark_half = 0;",
        f"reg [{source.lanes - 1}:0] word;",
        "wire marks = mark & comes & !was_marked;",
        "always @(posedge clk) stored <= rst ? 0 : stored + $signed({1'b0, comes}) - "
        "$signed({1'b0, tile_ends & is_mark_tile_out});",
        "always @(posedge clk) was_marked <= !rst & (was_marked | marks);",
        "always @(posedge clk) if (marks) begin word <= came; mark_half <= write_half; end",
        "always @(posedge clk) ahead <= rst ? 0 : marks ? complete - ended : "
        f"ahead == -{PASSED} ? ahead : ahead - ended;",
        f"always @(posedge clk) since <= rst ? 0 : marks ? filled : since == {PASSED} ? since : since + filled;",
        "wire is_open_0 = was_marked & (ahead == 0);",
        *(
            f"reg is_open_{stage} = 0; always @(posedge clk) is_open_{stage} <= !rst & is_open_{stage - 1};"
            for stage in range(1, config.latency + 1)
        ),
    ]


def _positions(config: PyramidBufferConfig, stage: int, tap: int) -> tuple[str, str]:
    """Return a tap's row and column, from the first pixel of the tile's first window, in a stage of the pipeline."""
    window = config.window
    offsets = [taps[tap] if tap < len(taps) else (0, 0) for taps in window.step_taps]
    row = choice(f"tap_fold_{stage}", [i * window.dilation[0] for i, _ in offsets])
    column = choice(f"tap_fold_{stage}", [j * window.dilation[1] for _, j in offsets])
    return (
        f"32'd0 + row_{stage} * {window.stride[0]} + {row}",
        f"32'd0 + column_{stage} * {window.stride[1]} + {column}",
    )


def _is_marked(config: PyramidBufferConfig, stage: int, tap: int) -> str:
    """Return whether a tap is the marked word of a tile like the marked one."""
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
    """Return whether a tap is outside of the map, or the step has no such tap."""
    row, column = _positions(config, stage, tap)

    def outside(position: str, axis: Axis, span: str) -> str:
        """Return whether a position in a tile is outside of the map. The tile begins at ``origin`` of the map."""
        before = max(0, *(-axis.origin(walk) for walk in axis.walks))
        origin = choice(span, [axis.origin(walk) + before for walk in axis.walks])
        moved = f"(32'd0 + {position} + {origin})"
        return f"(({moved} < {before}) | ({moved} >= {before + axis.size}))"

    beyond = [
        outside(row, config.rows, f"row_span_{stage}"),
        outside(column, config.columns, f"column_span_{stage}"),
    ]
    return f"(!{has_tap(config.window, stage, tap)} | {' | '.join(beyond)})"
