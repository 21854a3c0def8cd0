"""Obligations of an engine's burst generator: streams, boundaries, and the walk of a box of memory words."""

from __future__ import annotations

from hwgen.gateware.engine.bursts import Bursts, box_burst, box_layout, run_layout
from hwgen.gateware.engine.units_proof import BurstUnitConfig, field_bits, kept_streams
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Proofs, Site, own

__all__ = ["PROOFS", "obligations"]


def obligations(unit: BurstUnitConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a burst generator: its streams, and the boundaries that no burst crosses."""
    config = unit.engine
    run = dict(run_layout(config))
    address, words = (field_bits("o__payload", run, name) for name in ("address", "words"))
    low = f"o__payload[{(config.burst_words - 1).bit_length() - 1}:0]"
    obligations = [
        *kept_streams(unit, site),
        site.obligation(
            "bus",
            f"No burst crosses a multiple of {config.burst_words} words.",
            methods=("pdr",),
            observer=streams.waits(site, "i"),
            assumes=streams.rules("i"),
            asserts={"a burst is inside": f"!o__valid | (32'd0 + {low} + {words} <= {config.burst_words})"},
            cover="o__valid & !o__ready",
        ),
    ]
    return obligations if config.has_cores else [*obligations, _walk(unit, site, address, words)]


def _walk(unit: BurstUnitConfig, site: Site, address: str, words: str) -> Obligation:
    """Return the obligation that the bursts of a box have its words, row by row and block by block."""
    box, burst = dict(box_layout(unit.engine)), dict(box_burst(unit.engine))
    names = ("address", "row_stride", "block_stride", "words", "rows", "blocks")
    fields = {name: f"box_{name}" for name in names}
    widths = {name: box[name].width for name in names}
    flag = {name: f"o__payload[{burst[name].offset}]" for name in ("new_row", "new_block", "new_box", "last")}
    observer = [
        *(
            f"wire [{widths[name] - 1}:0] {alias} = {field_bits('i__payload', box, name)};"
            for name, alias in fields.items()
        ),
        "wire is_empty = box_blocks == 0;",
        "reg is_walking = 0; reg is_row = 1; reg is_block = 1;",
        f"reg [{widths['address'] - 1}:0] next, row, block;",
        f"reg [{widths['words'] - 1}:0] words_left; reg [{widths['rows'] - 1}:0] rows_left;",
        f"reg [{widths['blocks'] - 1}:0] blocks_left;",
        f"wire [{widths['address'] - 1}:0] now = is_walking ? next : box_address;",
        f"wire [{widths['address'] - 1}:0] now_row = is_walking ? row : box_address;",
        f"wire [{widths['address'] - 1}:0] now_block = is_walking ? block : box_address;",
        f"wire [{widths['words'] - 1}:0] now_words = is_walking ? words_left : is_empty ? 0 : box_words;",
        f"wire [{widths['rows'] - 1}:0] now_rows = is_walking ? rows_left : is_empty ? 1 : box_rows;",
        f"wire [{widths['blocks'] - 1}:0] now_blocks = is_walking ? blocks_left : is_empty ? 1 : box_blocks;",
        f"wire ends_row = {words} == now_words;",
        "wire ends_block = ends_row & (now_rows == 1);",
        "wire ends_box = ends_block & (now_blocks == 1);",
        "always @(posedge clk) begin",
        "    if (o__valid & o__ready) begin",
        "        is_walking <= !ends_box; is_row <= ends_row; is_block <= ends_block;",
        "        next <= ends_block ? now_block + box_block_stride : ends_row ? now_row + box_row_stride :",
        f"            now + {words};",
        "        row <= ends_block ? now_block + box_block_stride : ends_row ? now_row + box_row_stride : now_row;",
        "        block <= ends_block ? now_block + box_block_stride : now_block;",
        f"        words_left <= ends_row ? box_words : now_words - {words};",
        "        rows_left <= ends_block ? box_rows : ends_row ? now_rows - 1 : now_rows;",
        "        blocks_left <= ends_block ? now_blocks - 1 : now_blocks;",
        "    end",
        "    if (rst) begin is_walking <= 0; is_row <= 1; is_block <= 1; end",
        "end",
        *streams.waits(site, "i"),
    ]
    registers = {
        **own("burst_address", "row_address", "block_address", "burst_words", "end_flags", "new_flags"),
        **{f"left_{name}": f"{name}_left" for name in ("words", "rows", "blocks")},
        **{f"next_{name}": f"next_{name}_address" for name in ("row", "block")},
    }
    burst_words = unit.engine.burst_words
    boundary = f"(32'd{burst_words} - now[{(burst_words - 1).bit_length() - 1}:0])"
    return site.obligation(
        "tokens",
        "The bursts of a box have each of its words once: rows in order, and blocks in order.",
        methods=("induction", "pdr"),
        observer=tuple(observer),
        sees={**registers, "state": "fsm_state"},
        invariants={
            "the state is one of three": "state <= 2",
            "a box is offered while it is walked": "(state == 0) ? !is_walking : i_waits",
            "the present burst is known": (
                "(state == 0) | ((burst_address == now) & (row_address == now_row) & (block_address == now_block) & "
                "(left_words == now_words) & (left_rows == now_rows) & (left_blocks == now_blocks) & "
                "(new_flags == {!is_walking, is_block, is_row}))"
            ),
            "the present burst is measured": (
                f"(state != 2) | ((burst_words == (now_words <= {boundary} ? now_words : {boundary})) & "
                f"(end_flags == {{now_blocks == 1, now_rows == 1, now_words <= {boundary}}}) & "
                "(next_row == now_row + box_row_stride) & (next_block == now_block + box_block_stride))"
            ),
            "no row or block is left out": "!is_walking | is_empty | ((rows_left != 0) & (blocks_left != 0))",
            "a walk without words ends at once": "!is_walking | !is_empty",
            "a walk begins with a row and a block": "is_walking | (is_row & is_block)",
        },
        assumes={**streams.rules("i"), "a box has rows": "!i__valid | is_empty | (box_rows != 0)"},
        asserts={
            "a burst begins where the one before ended": f"!o__valid | ({address} == now)",
            "a burst has words of one row": f"!o__valid | ({words} <= now_words)",
            "flags mark first bursts": (
                f"!o__valid | (({flag['new_row']} == is_row) & ({flag['new_block']} == is_block) & "
                f"({flag['new_box']} == !is_walking))"
            ),
            "last marks the end of the box": f"!o__valid | ({flag['last']} == ends_box)",
            "a box is taken with its last burst": "(i__valid & i__ready) == (o__valid & o__ready & ends_box)",
        },
        cover="o__valid & o__ready & ends_box & is_walking",
    )


PROOFS = {BurstUnitConfig: Proofs((obligations,), others=(Bursts,))}
