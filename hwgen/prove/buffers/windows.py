"""Obligations ``occupancy``, ``tokens`` and ``bits`` of line buffers: every window reads the pixels that it covers.

The observer marks one word of one frame: ``Tn`` channels of one pixel. It counts the steps of the walk itself, from
``start`` alone, and computes from the counts which pixel each tap is. A tap that is the marked pixel must have the
marked word, and a tap in the padding must have the padding's value. Since any word of any frame can be the marked one,
every tap of every window is right. `ring` has the invariants, which ``occupancy`` proves and ``tokens``
assumes.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.obligations.expressions import choice
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import counter
from hwgen.obligations.site import Site, bits_for
from hwgen.obligations.streams import bits_of_values
from hwgen.prove.buffers.ring import Invariants, frame_range
from hwgen.prove.buffers.taps import delays, has_tap, tap_asserts, token_beat, token_words

__all__ = ["of_line_buffer"]


def of_line_buffer(config: LineBufferConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a line buffer; empty if its banks are in pieces."""
    if config.pieces > 1:
        return []
    values = config.pixels * config.taps * config.input.lanes * config.input.bits
    bits = bits_of_values(site, config.input.bits, config.input.data_bits, values)
    return [*_obligations(config, site), bits]


#: Counters of the walk over windows, from the outermost to the innermost.
_WALK = ("row", "column", "output_fold", "tap_fold", "inner")


def _obligations(config: LineBufferConfig, site: Site) -> list[Obligation]:
    latency = config.latency
    invariants = Invariants(config, site)

    def is_present(stage: int, window: int, tap: int) -> str:
        return _is_present(config, stage, window, tap)

    def is_marked(stage: int, window: int, tap: int) -> str:
        return _is_marked(config, stage, window, tap)

    taps = [(window, tap) for window in range(config.pixels) for tap in range(config.taps)]
    asserts = {
        "a step reads only pixels that were stored": " & ".join(
            f"!(has_step_0 & {is_marked(0, *tap)} & {is_present(0, *tap)}) | (stored >= 1)" for tap in taps
        ),
        **tap_asserts(config, latency, is_present, is_marked, lambda *tap: _is_padding(config, *tap)),
    }
    marked = [f"({is_present(latency, *tap)} & {is_marked(latency, *tap)})" for tap in taps]
    shared: dict[str, Any] = {
        "rules": {
            "the marked word is in the map": (
                f"(y < {config.input.height}) & (x < {config.input.width}) & (z < {config.input.folds})"
            )
        },
        "observer": (*_writer(config), *_reader(config), *_mark(config)),
        "drives": {"i__payload": token_beat(config.input)},
        "run": _run(config),
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
        # pixels follow the end of their window by `LineBufferConfig.release_delay` cycles, two of which are
        # ``release_1`` and ``release_2``.
        invariants.obligation(
            "schedule",
            f"A fold starts in the first cycle with room after the fold before, {config.write_delay} cycle after the "
            f"last pixel that its window needs; a beat is taken in the first cycle in which it fits, "
            f"{config.release_delay} cycles after windows have released their pixels.",
            asserts={
                "folds start in time": (
                    "start == (room & (tap_fold_0 == 0) & (inner_0 == 0) & ((output_fold_0 != 0) | (lead >= need)))"
                ),
                "beats are taken in time": (
                    f"i__ready == ($signed({config.rows * config.input.width}) + release_before - release_1 - "
                    "release_2 - lead - next_beat >= 0)"
                ),
            },
            cover="start & (output_fold_0 == 0)",
            **shared,
        ),
    ]


def _run(config: LineBufferConfig) -> dict[str, str]:
    """Return the inputs of a run in which the marked word is the first one of the first window, and nothing stalls."""
    positions = []
    for axis, padding in enumerate(config.padding[:2]):
        taps = (tap * config.dilation[axis] - padding for tap in range(config.kernel[axis]))
        positions.append(next((position for position in taps if position >= 0), 0))
    row, column = positions
    return {"mark": "1'b1", "y": str(row), "x": str(column), "z": "0", "i__valid": "1'b1", "room": "1'b1"}


def _writer(config: LineBufferConfig) -> list[str]:
    """Return lines of an observer that count the beats that are taken, and find the beat of the marked word."""
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
        f"wire [{source.lanes - 1}:0] came = {choice('pixel', token_words(config))};",
    ]


def _reader(config: LineBufferConfig) -> list[str]:
    """Return lines of an observer that count the steps, and delay the counts as the line buffer delays its steps."""
    counts = (config.output_height, config.row_steps, config.output_folds, config.tap_folds, config.group_folds)
    moves = [*(f"{name}_0_ends" for name in _WALK[1:]), "has_step_0"]
    walk = [counter(f"{name}_0", count, move) for name, count, move in zip(_WALK, counts, moves, strict=True)]
    lines = [f"reg {bits_for(count - 1)} {name}_0 = 0;" for name, count in zip(_WALK, counts, strict=True)]
    lines.append("wire has_step_0 = start | (tap_fold_0 != 0) | (inner_0 != 0);")
    for count_lines in reversed(walk):
        lines += count_lines[1:]
    lines += delays(dict(zip(_WALK, counts, strict=True)), config.latency)
    return lines


def _mark(config: LineBufferConfig) -> list[str]:
    """Return lines of an observer that mark a word when it comes, and say when its frame is the one that is read."""
    count = f"reg signed {frame_range(config)}"
    return [
        "wire mark = $anyseq;",
        f"{count} stored = 0; {count} ahead = 0; reg was_marked = 0;",
        f"reg [{config.input.lanes - 1}:0] word;",
        "wire marks = mark & comes & !was_marked;",
        "always @(posedge clk) stored <= rst ? 0 : stored + $signed({1'b0, comes}) - $signed({1'b0, row_0_ends});",
        "always @(posedge clk) was_marked <= !rst & (was_marked | marks);",
        "always @(posedge clk) if (marks) word <= came;",
        "always @(posedge clk) ahead <= marks ? stored - $signed({1'b0, row_0_ends}) : "
        "ahead - $signed({1'b0, row_0_ends & (ahead >= 0)});",
        "wire is_open_0 = was_marked & (ahead == 0);",
        *(
            f"reg is_open_{stage} = 0; always @(posedge clk) is_open_{stage} <= !rst & is_open_{stage - 1};"
            for stage in range(1, config.latency + 1)
        ),
    ]


def _positions(config: LineBufferConfig, stage: int, window: int, tap: int) -> tuple[str, str]:
    """Return a tap's row and column of the map, each plus `_before`, in a stage of the pipeline.

    The expressions are unsigned. A negative padding crops the map: its rows or columns are added, not subtracted.
    """
    (down, across), (below, beside) = config.stride, config.dilation
    top, left, _, _ = config.padding
    offsets = [taps[tap] if tap < len(taps) else (0, 0) for taps in config.step_taps]
    row = choice(f"tap_fold_{stage}", [i * below for i, _ in offsets])
    column = choice(f"tap_fold_{stage}", [j * beside for _, j in offsets])
    return (
        f"32'd{max(0, -top)} + row_{stage} * {down} + {row}",
        f"32'd{max(0, -left) + window * across} + column_{stage} * {across * config.pixels} + {column}",
    )


def _before(config: LineBufferConfig) -> tuple[int, int]:
    """Return the number of padding rows above the map, and of padding columns before it; 0 where it is cropped."""
    top, left, _, _ = config.padding
    return max(0, top), max(0, left)


def _is_marked(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return whether a tap is the marked word."""
    row, column = _positions(config, stage, window, tap)
    above, beside = _before(config)
    group = choice(
        f"output_fold_{stage}",
        [fold // config.group_output_folds * config.group_folds for fold in range(config.output_folds)],
    )
    return f"({row} == 32'd{above} + y) & ({column} == 32'd{beside} + x) & (32'd0 + {group} + inner_{stage} == z)"


def _is_present(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return whether a step has the tap, and the output map has the window."""
    present = has_tap(config, stage, tap)
    if config.output_width % config.pixels and window >= config.output_width % config.pixels:
        present = f"({present} & (column_{stage} != {config.row_steps - 1}))"
    return present


def _is_padding(config: LineBufferConfig, stage: int, window: int, tap: int) -> str:
    """Return whether a tap is outside of the map, or the step has no such tap."""
    row, column = _positions(config, stage, window, tap)
    (above, beside), source = _before(config), config.input

    def outside(position: str, before: int, size: int) -> str:
        return f"(({position} < {before}) | ({position} >= {size + before}))"

    beyond = f"{outside(row, above, source.height)} | {outside(column, beside, source.width)}"
    missing = choice(f"tap_fold_{stage}", [f"1'b{int(tap >= len(taps))}" for taps in config.step_taps])
    window_there = "1'b1"
    if config.output_width % config.pixels and window >= config.output_width % config.pixels:
        window_there = f"(column_{stage} != {config.row_steps - 1})"
    return f"({missing} | ({window_there} & ({beyond})))"
