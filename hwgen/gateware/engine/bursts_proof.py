"""Proof obligations of the engine's burst generator: streams, AXI boundaries, and the order of a memory box's words."""

from __future__ import annotations

from hwgen.gateware.engine.bursts import Bursts, box_burst_layout, box_layout, run_layout
from hwgen.gateware.engine.units_proof import BurstUnitConfig, kept_streams
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits, field_wires
from hwgen.obligations.observers import kept, register


def obligations(unit: BurstUnitConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of a burst generator: streams, burst boundaries and, with one core, word order."""
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
    return obligations if config.has_cores else [*obligations, _burst_order(unit, site, address, words)]


def _burst_order(unit: BurstUnitConfig, site: Site, address: str, words: str) -> Obligation:
    """Return the `Obligation` that a memory region's (box's) bursts have each word once: rows in order, then blocks."""
    box, burst, moves = box_layout(unit.engine), box_burst_layout(unit.engine), "(o__valid & o__ready)"
    new_row, new_block, new_box, last = (
        field_bits("o__payload", burst, name) for name in ("new_row", "new_block", "new_box", "last")
    )
    address_bits, words_bits, rows_bits, blocks_bits = (
        box[name].width for name in ("address", "words", "rows", "blocks")
    )
    after = "ends_block ? now_block + box_block_stride : ends_row ? now_row + box_row_stride :"
    observer = [
        *field_wires(box, ("address", "row_stride", "block_stride", "words", "rows", "blocks"), "i__payload", "box"),
        "wire is_empty = box_blocks == 0;",
        f"wire [{address_bits - 1}:0] now = is_walking ? next : box_address;",
        f"wire [{address_bits - 1}:0] now_row = is_walking ? row : box_address;",
        f"wire [{address_bits - 1}:0] now_block = is_walking ? block : box_address;",
        f"wire [{words_bits - 1}:0] now_words = is_walking ? due_words : is_empty ? 0 : box_words;",
        f"wire [{rows_bits - 1}:0] now_rows = is_walking ? due_rows : is_empty ? 1 : box_rows;",
        f"wire [{blocks_bits - 1}:0] now_blocks = is_walking ? due_blocks : is_empty ? 1 : box_blocks;",
        f"wire ends_row = {words} == now_words;",
        "wire ends_block = ends_row & (now_rows == 1);",
        "wire ends_box = ends_block & (now_blocks == 1);",
        *register("is_walking", f"{moves} ? !ends_box : is_walking"),
        *register("is_row", f"{moves} ? ends_row : is_row", init=1),
        *register("is_block", f"{moves} ? ends_block : is_block", init=1),
        *kept("next", address_bits, f"{after} now + {words}", moves),
        *kept("row", address_bits, f"{after} now_row", moves),
        *kept("block", address_bits, "ends_block ? now_block + box_block_stride : now_block", moves),
        *kept("due_words", words_bits, f"ends_row ? box_words : now_words - {words}", moves),
        *kept("due_rows", rows_bits, "ends_block ? box_rows : ends_row ? now_rows - 1 : now_rows", moves),
        *kept("due_blocks", blocks_bits, "ends_block ? now_blocks - 1 : now_blocks", moves),
        *streams.waits(site, "i"),
    ]
    burst_words = unit.engine.burst_words
    boundary = f"(32'd{burst_words} - now[{(burst_words - 1).bit_length() - 1}:0])"
    return site.obligation(
        "tokens",
        "The bursts of a box have each of its words once: rows in order, and blocks in order.",
        observer=tuple(observer),
        invariants={
            "the state is one of three": "fsm_state <= 2",
            "a box is valid while it is walked": "(fsm_state == 0) ? !is_walking : i_waits",
            "the current burst is known": (
                "(fsm_state == 0) | ((burst_address == now) & (row_address == now_row) & "
                "(block_address == now_block) & (words_left == now_words) & (rows_left == now_rows) & "
                "(blocks_left == now_blocks) & (new_flags == {!is_walking, is_block, is_row}))"
            ),
            "the current burst is measured": (
                f"(fsm_state != 2) | ((burst_words == (now_words <= {boundary} ? now_words : {boundary})) & "
                f"(end_flags == {{now_blocks == 1, now_rows == 1, now_words <= {boundary}}}) & "
                "(next_row_address == now_row + box_row_stride) & (next_block_address == now_block + box_block_stride))"
            ),
            "no row or block is left out": "!is_walking | is_empty | ((due_rows != 0) & (due_blocks != 0))",
            "a walk without words ends at once": "!is_walking | !is_empty",
            "a walk begins with a row and a block": "is_walking | (is_row & is_block)",
        },
        assumes={**streams.rules("i"), "a box has rows": "!i__valid | is_empty | (box_rows != 0)"},
        asserts={
            "a burst begins where the previous one ended": f"!o__valid | ({address} == now)",
            "a burst has words of one row": f"!o__valid | ({words} <= now_words)",
            "flags mark first bursts": (
                f"!o__valid | (({new_row} == is_row) & ({new_block} == is_block) & ({new_box} == !is_walking))"
            ),
            "last marks the end of the box": f"!o__valid | ({last} == ends_box)",
            "a box is accepted with its last burst": f"(i__valid & i__ready) == ({moves} & ends_box)",
        },
        cover="o__valid & o__ready & ends_box & is_walking",
    )


PROOFS = {BurstUnitConfig: Proofs((obligations,), others=(Bursts,))}
