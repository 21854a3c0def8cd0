"""Obligations of reuse buffers: every tile leaves whole, with the right beats of the map, kept ones included.

The observer walks over the beats of all tiles, row by row. A new beat of a tile is one that comes in, and a beat that
windows need leaves. So the walk says which beat of the map each transfer must be. The observer marks one beat of one
frame when it comes in: any row, any column, any channels. Each later beat that leaves and that is the same one, in this
tile or in a neighbour, must have the marked values. `hwgen.prove.buffers.bands` has the invariants.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from hwgen.gateware.pyramid.reuse import PyramidReuseBufferConfig
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site, bits_for
from hwgen.obligations.streams import bits_of_values
from hwgen.prove.buffers.bands import POSITION, Bands, Walk, walk_of
from hwgen.prove.buffers.taps import token_beat

__all__ = ["of_reuse_buffer"]


def of_reuse_buffer(config: PyramidReuseBufferConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a reuse buffer, without those of its output stream."""
    return [*_obligations(config, site), bits_of_values(site, config.input.bits, *[config.input.data_bits] * 2)]


def _obligations(config: PyramidReuseBufferConfig, site: Site) -> list[Obligation]:
    bands = Bands(config, site)
    marked, is_kept = _first_read(config)
    source = config.input
    rules = {
        "the marked beat is one of the map": (
            f"(n_mark_row < {_beats(walk_of(config.row_cuts))}) & "
            f"(n_mark_column < {_beats(walk_of(config.column_cuts))}) & (n_mark_fold < {source.folds})"
        )
    }
    shared: dict[str, Any] = {
        "rules": rules,
        "observer": _declarations(config, bands),
        "moves": _moves(bands),
        "drives": {"i__payload": token_beat(config.input)},
        "cover": f"o__valid & is_open_3 & is_mark_3{' & !is_new_3' * is_kept}",
        "run": {"mark": "1'b1", "i__valid": "1'b1", "o__ready": "1'b1"}
        | {f"mark_{name}": str(value) for name, value in zip(("row", "column", "fold"), marked, strict=True)},
    }
    asserts = {
        "a beat is taken for each new beat of a tile": "(i__valid & i__ready) == (steps & is_new_2)",
        "a beat is offered for each beat of a tile that windows need": "o__valid == (is_full & is_used_3)",
        "a beat that leaves has come in": "!(o__valid & is_mark_3) | has_come_3",
        "a beat that leaves is the beat of the map in its place": (
            f"!(o__valid & is_open_3 & is_mark_3) | (o__payload[{source.data_bits - 1}:0] == {bands.word})"
        ),
        "last marks the last beat of a frame": f"!o__valid | (o__payload[{source.data_bits}] == is_last_3)",
    }
    return [
        bands.obligation(
            "occupancy",
            "A kept beat is read where it is stored, and no beat is overwritten that a later tile needs.",
            **shared,
        ),
        bands.obligation(
            "tokens",
            "Each tile leaves whole: every beat that windows need once, in order, new or kept, with all its values.",
            invariants=bands.values,
            asserts=asserts,
            **shared,
        ),
        bands.obligation(
            "schedule",
            f"A beat of a tile passes in each cycle in which the register is free, kept ones without waiting, from "
            f"{config.start} cycles after a reset on; a new beat is offered {config.latency} cycle after its transfer.",
            asserts={
                "beats are taken in time": "i__ready == (has_2 & is_new_2 & (!is_full | leaves))",
                "beats are offered in time": "o__valid == (is_full & is_used_3)",
            },
            **shared,
        ),
    ]


def _walks(config: PyramidReuseBufferConfig) -> dict[str, Walk]:
    """Return the beats of successive tiles along both axes."""
    return {"row": walk_of(config.row_cuts), "column": walk_of(config.column_cuts)}


def _beats(walk: Walk) -> int:
    """Return the number of different beats along an axis."""
    return walk.bases[-1] + walk.sizes[-1]


def _declarations(config: PyramidReuseBufferConfig, bands: Bands) -> Iterator[str]:
    """Yield lines that declare the marked beat, and the position of the beat in each stage."""
    source, walks = config.input, _walks(config)
    bits = source.lanes * source.pixels
    yield f"wire [{bits - 1}:0] token = $anyseq;"
    yield "wire token_last = $anyseq;"
    yield "wire mark = $anyseq;"
    largest = {"row": _beats(walks["row"]) - 1, "column": _beats(walks["column"]) - 1, "fold": source.folds - 1}
    for name, value in largest.items():
        yield f"wire {bits_for(value)} mark_{name} = $anyconst;"
    yield f"reg [{bits - 1}:0] word;"
    yield "reg was_marked = 0; reg is_full = 0; reg has_come_2 = 0; reg has_come_3 = 0;"
    counts = {
        "row_span": len(walks["row"].sizes),
        "column_span": len(walks["column"].sizes),
        "row": max(walks["row"].sizes),
        "column": max(walks["column"].sizes),
        "fold": source.folds,
    }
    for stage in bands.stages:
        yield f"reg has_{stage} = 0;" if stage else "wire has_0 = 1'b1;"
        if stage > 1:
            yield f"reg is_open_{stage} = 0;"
        for name in POSITION:
            yield f"reg {bits_for(counts[name] - 1)} {name}_{stage} = 0;"


def _moves(bands: Bands) -> Iterator[str]:
    """Yield lines that move the walk: one beat of a tile into the register, wherever the streams permit it."""
    for stage in bands.stages:
        inner = f"fold_ends_{stage}"
        yield f"wire [31:0] next_fold_{stage} = {inner} ? 0 : fold_{stage} + 1;"
        for name, ends in (
            ("column", "column_ends"),
            ("row", "row_ends"),
            ("column_span", "column_span_ends"),
            ("row_span", "row_span_ends"),
        ):
            yield f"wire [31:0] next_{name}_{stage} = {ends}_{stage} ? 0 : {name}_{stage} + {inner};"
            inner = f"{ends}_{stage}"
    yield "wire leaves = is_full & (o__ready | !is_used_3);"
    yield "wire steps = has_2 & (!is_full | leaves) & (!is_new_2 | i__valid);"
    yield "wire advances = steps | !has_2;"
    yield "wire comes = i__valid & i__ready & is_mark_2 & is_new_2;"
    yield "wire marks = mark & comes & !was_marked;"
    yield "always @(posedge clk) is_full <= !rst & (steps | (is_full & !leaves));"
    yield "always @(posedge clk) was_marked <= !rst & (was_marked | marks);"
    yield "always @(posedge clk) if (marks) word <= token;"
    for flag, sets in (("has_come", "comes"), ("is_open", "marks")):
        yield f"wire {flag}_then = {flag}_2 | {sets};"
        yield f"always @(posedge clk) {flag}_2 <= !rst & (steps ? {flag}_then & !row_span_ends_2 : {flag}_2);"
        yield f"always @(posedge clk) {flag}_3 <= !rst & (steps ? {flag}_then : {flag}_3);"
    for stage in bands.stages[4:]:
        yield (f"always @(posedge clk) is_open_{stage} <= !rst & (advances ? is_open_{stage - 1} : is_open_{stage});")
    for name in POSITION:
        yield f"always @(posedge clk) {name}_0 <= rst ? 0 : advances ? next_{name}_0 : {name}_0;"
    for stage in bands.stages[1:]:
        yield f"always @(posedge clk) has_{stage} <= !rst & (advances ? has_{stage - 1} : has_{stage});"
        for name in POSITION:
            yield f"always @(posedge clk) if (advances) {name}_{stage} <= {name}_{stage - 1};"


def _first_read(config: PyramidReuseBufferConfig) -> tuple[tuple[int, int, int], bool]:
    """Return the numbers of the first beat that leaves as a kept one, and whether there is one.

    If none is kept, the numbers are those of the first beat that leaves.
    """
    rows, columns = walk_of(config.row_cuts), walk_of(config.column_cuts)
    first_used: tuple[int, int, int] | None = None
    for row_tile, column_tile in product(range(len(rows.sizes)), range(len(columns.sizes))):
        for row, column in product(
            range(rows.unused[row_tile], rows.sizes[row_tile]),
            range(columns.unused[column_tile], columns.sizes[column_tile]),
        ):
            numbers = (rows.bases[row_tile] + row, columns.bases[column_tile] + column, 0)
            if row < rows.kept[row_tile] or column < columns.kept[column_tile]:
                return numbers, True
            first_used = first_used or numbers
    assert first_used is not None  # windows need a beat of the map
    return first_used, False
