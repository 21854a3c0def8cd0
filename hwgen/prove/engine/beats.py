"""Obligation ``tokens`` of an engine's compute core: the beats of each job, with their lanes, addresses and flags.

The observer counts the position of the present beat: the blocks and pixels that are left, the block in its fold, the
pixel in its fold, and the pixel in its group. Each invariant states a register of the drain controller as a function
of this position. So each one holds after a clock edge if all of them held before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.lib import data

from hwgen.gateware.engine.array import select_layout
from hwgen.gateware.engine.config import STRIDES, EngineConfig
from hwgen.gateware.engine.drain import ONE_WORD_FLAGS, note_layout
from hwgen.gateware.engine.job import Drain
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site, bits_for
from hwgen.prove.engine.steps import field_wires

__all__ = ["beats_of_jobs"]

#: Fields of a note that are fields of its job.
_CONSTANTS = (
    "zero_point", "low", "high", "add", "a_zero_point", "a_low", "a_high", "table", "pool", "columns", "multiply",
)  # fmt: skip
#: Fields of a job that its beats depend on, besides `_CONSTANTS`.
_SIZES = ("blocks", "pixels", "p_base", "o_base", "o_plane", "channelwise", "a_base", "one_pixel")


def beats_of_jobs(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that the beats of a job have each of its blocks and pixels once, with their addresses."""
    note: Mapping[Any, data.Field] = dict(note_layout(engine))
    wanted = _wanted(engine)
    seen, parameter = _seen(engine, site, note)
    return site.obligation(
        "tokens",
        "The beats of each job have its blocks and pixels once, in order, with their lanes and addresses; then the "
        "next job.",
        methods=("induction", "pdr"),
        observer=(*_jobs(engine), *_position(engine), *_addresses(engine), *_lanes(engine), *_sent(engine, wanted)),
        sees=seen,
        assumes={"a stride is from 1 to 4, as the check says": f"!group_start | ({_is_stride('next_stride')})"},
        invariants={
            **_job_facts(engine),
            **_position_facts(engine),
            **_address_facts(engine, parameter),
            **_lane_facts(engine),
        },
        asserts={
            "a job begins when all beats of the job before left": (
                "!job_start | (has_pending & (!is_walking | (selected & ends_job)))"
            ),
            "an empty job is passed between others": "!job_skip | (has_pending & !is_walking)",
            "a group is released with its last beat": "released == (selected & ends_group)",
            "beats are of a job": "!selected | is_walking",
            **_lane_claims(engine),
            **{
                f"a beat has the {name} of its block and pixel": f"!sent_valid | (sent_{name} == want_{name})"
                for name in wanted
            },
        },
        cover="sent_valid & want_last & want_fold_end & (want_parameter == 3)",
        keeps=("drains",),
        free_memories=True,
    )


def _seen(engine: EngineConfig, site: Site, note: Mapping[Any, data.Field]) -> tuple[dict[str, str], str]:
    """Return what the observer sees, and the Verilog expression of the present beat's parameter address."""
    names = {
        "job_start": "job_start",
        "job_skip": "job_skip",
        "selected": "beat_selected",
        "released": "release_",
        "drain_valid": "valid",
        "choice": "select",
        "seen_job": "job",
        "next_job": "next_job",
        "seen_blocks": "blocks_left",
        "is_last_fold": "is_last_fold",
        "pixel_index": "pixel_index",
        "pixels_left": "pixels_left",
        "has_pixels": "has_pixels",
        "is_last_pixel": "is_last_pixel",
        "is_first_pixel": "is_first_pixel",
        "is_ready": "is_next_job_ready",
        "is_empty": "is_next_job_empty",
        "is_single": "is_next_job_one_beat",
        "group_start": "group_start",
        "stride": "group_stride",
        "pixel_address": "pixel_address",
        "pixel_addend": "pixel_addend_address",
        "next_fold": "next_fold_address",
        "next_fold_addend": "next_fold_addend_address",
        "fold_parameter": "fold_parameter",
        "below": "next_block_address",
        "below_addend": "next_block_addend_address",
    }
    if engine.blocks > 1:
        names |= {"fold_blocks": "fold_blocks", "blocks_left": "pixel_blocks_left"}
    if engine.beat_words > 1:
        names |= {"one_word": "has_one_word", "is_last_beat": "is_last_beat_of_group"}
    drains, layout = site.part("drains"), note_layout(engine)
    names |= {carrier.name: carrier.name for carrier in drains.carriers("note", layout)}
    seen = {alias: f"drains.{name}" for alias, name in names.items()}
    seen |= {"next_stride": "drains.strides_data", "note_1": "note_1", "sent_valid": "beat_valid_1"}
    return seen, drains.fields("note", layout)["parameter"]


def _bits_of(payload: str, field: data.Field) -> str:
    """Return the Verilog expression of a field in a payload."""
    return f"{payload}[{field.offset + field.width - 1}:{field.offset}]"


def _jobs(engine: EngineConfig) -> list[str]:
    """Return lines of an observer that keep the job that waits, and the job whose beats leave."""
    drain = Drain.layout(engine.variant)
    names = (*_CONSTANTS, *_SIZES)
    return [
        "reg has_pending = 0;",
        f"reg [{drain.size - 1}:0] pending; reg [{drain.size - 1}:0] present;",
        "wire takes = drain__valid & drain__ready;",
        "always @(posedge clk) has_pending <= !rst & (takes | (has_pending & !(job_start | job_skip)));",
        "always @(posedge clk) begin if (takes) pending <= drain__payload; if (job_start) present <= pending; end",
        *field_wires(drain, names, "present", "now"),
        *field_wires(drain, names, "pending", "next"),
        *(f"wire {job}_alone = {_has_one_word(engine, job)};" for job in ("now", "next")),
    ]


def _has_one_word(engine: EngineConfig, job: str) -> str:
    """Return the Verilog expression that the beats of a job have one pixel each."""
    return " | ".join(f"{job}_{flag}" for flag in ONE_WORD_FLAGS) if engine.beat_words > 1 else "1'b1"


def _position(engine: EngineConfig) -> list[str]:
    """Return lines of an observer that count the position of the present beat.

    ``blocks`` and ``pixels`` are the numbers of blocks and of pixels that are left, with the present ones. ``width`` is
    the number of blocks of the fold, and ``block`` the index in it. ``pixel`` is the index of the first pixel in its
    fold, ``index`` that in its group, and ``turn`` counts the beats of the fold's first block. A beat has ``size``
    pixels, unless its fold ends.
    """
    lanes, words = engine.pixels, engine.beat_words
    return [
        f"wire [4:0] now_width = now_channelwise ? 5'd1 : 5'd{engine.blocks};",
        "reg is_walking = 0; reg [4:0] blocks = 0; reg [13:0] pixels = 0; reg [4:0] block = 0;",
        "reg [4:0] fold_block = 0; reg [13:0] pixel = 0; reg [13:0] turn = 0; reg [7:0] index = 0;",
        "wire [4:0] width = blocks < now_width ? blocks : now_width;",
        f"wire [7:0] size = now_alone ? 8'd1 : index + 8'd{words} > 8'd{lanes} ? 8'd{lanes} - index : 8'd{words};",
        "wire is_last = pixels <= {6'd0, size};",
        "wire ends_pixel = block + 5'd1 == width;",
        "wire ends_fold = ends_pixel & is_last;",
        "wire ends_job = ends_fold & (blocks == width);",
        f"wire ends_group = ends_pixel & (is_last | (index + size == 8'd{lanes}));",
        "always @(posedge clk) begin",
        "    if (selected) begin",
        "        block <= ends_pixel ? 0 : block + 1;",
        "        if (ends_pixel) begin",
        "            pixels <= ends_fold ? now_pixels : pixels - size; pixel <= ends_fold ? 0 : pixel + size;",
        "            turn <= ends_fold ? 0 : turn + 1; index <= ends_group ? 0 : index + size;",
        "        end",
        "        if (ends_fold) begin blocks <= blocks - width; fold_block <= fold_block + width; end",
        "    end",
        "    if (job_start) begin",
        "        blocks <= next_blocks; pixels <= next_pixels; block <= 0; fold_block <= 0;",
        "        pixel <= 0; turn <= 0; index <= 0;",
        "    end",
        "    is_walking <= !rst & (job_start | (is_walking & !(selected & ends_job)));",
        "end",
    ]


def _addresses(engine: EngineConfig) -> list[str]:
    """Return lines of an observer with the addresses of the first pixel of each block of the fold.

    ``output_N`` and ``addend_N`` are those of block ``N``. They are kept in registers, of which neighbours are a plane
    apart, because solvers are slow with products.
    """
    lines = [
        "wire [15:0] plane = now_one_pixel ? 16'd1 : {2'd0, now_pixels};",
        "wire [15:0] next_plane = next_one_pixel ? 16'd1 : {2'd0, next_pixels};",
        "wire [15:0] beat_pixel = {2'd0, pixel}; wire [15:0] addend_pixel = now_one_pixel ? 16'd0 : {2'd0, turn};",
    ]
    for name, base, now_plane, next_plane in (
        ("output", "next_o_base", "now_o_plane", "next_o_plane"),
        ("addend", "next_a_base", "plane", "next_plane"),
    ):
        lines.append(f"wire [15:0] {name}_below = {_by_block('width', name, engine.blocks)};")
        for index in range(engine.blocks + 1):
            lines += [
                f"reg [15:0] {name}_{index};",
                "always @(posedge clk)",
                f"    if (job_start) {name}_{index} <= {base} + 16'd{index} * {next_plane};",
                f"    else if (selected & ends_fold) {name}_{index} <= {name}_below + 16'd{index} * {now_plane};",
            ]
    return lines


def _by_block(index: str, name: str, blocks: int) -> str:
    """Return the Verilog expression of the address of the block at an index, from 0 to ``blocks``."""
    return " : ".join([*(f"{index} == {block} ? {name}_{block}" for block in range(blocks)), f"{name}_{blocks}"])


def _lanes(engine: EngineConfig) -> list[str]:
    """Return lines of an observer with the lane of each pixel of the present beat: ``stride * index % pixels``."""
    lanes, words = engine.pixels, engine.beat_words
    fields: Mapping[Any, data.Field] = dict(select_layout(engine))
    base, bits = fields["lanes"].offset, max(1, (lanes - 1).bit_length())
    lines = []
    for word in range(words):
        products = " : ".join(f"stride == {stride} ? at_{word} * 10'd{stride}" for stride in STRIDES[1:])
        lines += [
            f"wire [9:0] at_{word} = index + {word}; wire [9:0] product_{word} = {products} : at_{word};",
            f"wire [{bits - 1}:0] lane_{word} = product_{word} % {lanes};",
            f"wire [{bits - 1}:0] seen_lane_{word} = choice[{base + bits * word + bits - 1}:{base + bits * word}];",
        ]
    if engine.blocks > 1:
        lines.append(f"wire {bits_for(engine.blocks - 1)} seen_block = {_bits_of('choice', fields['block'])};")
    return lines


def _wanted(engine: EngineConfig) -> dict[str, str]:
    """Return the Verilog expression of each field of the present beat's note."""
    blocks, words = engine.blocks, engine.beat_words
    present = {"present": " | ".join(f"((pixels > {n}) & (size > {n})) << {n}" for n in range(words))}
    return {
        "address": f"({_by_block('block', 'output', blocks)}) + beat_pixel",
        "addend": f"({_by_block('block', 'addend', blocks)}) + addend_pixel",
        "parameter": "now_p_base + fold_block + block",
        "pixel_end": "ends_pixel",
        "fold_end": "ends_fold",
        "last": "ends_job",
        **{name: f"now_{name}" for name in _CONSTANTS},
        **(present if words > 1 else {}),
    }


def _sent(engine: EngineConfig, wanted: Mapping[str, str]) -> list[str]:
    """Return lines of an observer with the note that left a cycle ago, and its fields as they must be."""
    layout = note_layout(engine)
    fields: Mapping[Any, data.Field] = dict(layout)
    return [
        *field_wires(layout, list(fields), "note_1", "sent"),
        *(
            f"reg [{fields[name].width - 1}:0] want_{name}; always @(posedge clk) want_{name} <= {value};"
            for name, value in wanted.items()
        ),
    ]


def _job_facts(engine: EngineConfig) -> dict[str, str]:
    """Return invariants of the registers of jobs: what is known of a part follows a cycle after the part."""
    facts = {
        "a part waits in its register": "(has_pending == !drain__ready) & (!has_pending | (next_job == pending))",
        "a part that can start is known": (
            "!is_ready | (has_pending & (is_empty == ((next_blocks == 0) | (next_pixels == 0))) & "
            f"(is_single == (next_pixels <= (next_alone ? 1 : {engine.beat_words}))))"
        ),
        "the present job is known": (
            "(has_pixels == is_walking) & (!drain_valid | is_walking) & (!is_walking | ((seen_job == present) & "
            "(now_blocks != 0) & (now_pixels != 0)))"
        ),
    }
    if engine.beat_words > 1:
        facts["the present job's beats are known"] = "!is_walking | (one_word == now_alone)"
    return facts


def _position_facts(engine: EngineConfig) -> dict[str, str]:
    """Return invariants of the counters: each is the observer's, and between groups a group has not begun."""
    lanes, words = engine.pixels, engine.beat_words
    inside = "(blocks != 0) & (32'd0 + blocks + fold_block == now_blocks) & (block < width) & (pixels != 0)"
    counted = {
        "blocks are counted": "(seen_blocks == blocks) & (is_last_fold == (blocks == width))",
        "pixels are counted": (
            "(pixels_left == pixels) & (is_last_pixel == is_last) & (is_first_pixel == (pixel == 0)) & "
            "((pixel == 0) == (turn == 0)) & (turn <= pixel)"
        ),
    }
    if engine.blocks > 1:
        counted["blocks of a pixel are counted"] = "(fold_blocks == width) & (blocks_left == width - block)"
    beat = "pixel_index == index"
    if words > 1:  # pixels of a group begin with a whole beat
        shift = words.bit_length() - 1
        beat = (
            f"(pixel_index == (now_alone ? index : index >> {shift})) & (is_last_beat == (index + size == {lanes})) & "
            f"(now_alone | (index[{shift - 1}:0] == 0))"
        )
    counted["pixels of a group are counted"] = (
        f"(index < {lanes}) & (drain_valid ? ({beat}) : ((index == 0) & (block == 0)))"
    )
    return {
        "positions are inside the job": f"!is_walking | ({inside} & (32'd0 + pixels + pixel == now_pixels))",
        **{fact: f"!is_walking | ({expression})" for fact, expression in counted.items()},
    }


def _address_facts(engine: EngineConfig, parameter: str) -> dict[str, str]:
    """Return invariants of the addresses: those of a pixel, of the block below, and of the next fold."""
    blocks = engine.blocks
    facts = {"parameters are counted": f"(fold_parameter == now_p_base + fold_block) & ({parameter} == "
             "now_p_base + fold_block + block)"}  # fmt: skip
    for name, first, below, following, move, now_plane in (
        ("output", "pixel_address", "below", "next_fold", "beat_pixel", "now_o_plane"),
        ("addend", "pixel_addend", "below_addend", "next_fold_addend", "addend_pixel", "plane"),
    ):
        facts |= {
            f"{name} addresses of block {index + 1} are a plane behind those before": (
                f"{name}_{index + 1} == {name}_{index} + {now_plane}"
            )
            for index in range(blocks)
        }
        after = _by_block("(block + 5'd1)", name, blocks)
        # A fold that ends with its first beat reads no address of a pixel.
        facts[f"{name} addresses of a pixel are counted"] = f"((pixel == 0) & is_last) | ({first} == {name}_0 + {move})"
        facts[f"{name} addresses of the block below are counted"] = f"{below} == ({after}) + {move}"
        facts[f"{name} addresses of the next fold are known behind the first pixel"] = (
            f"(pixel == 0) | ({following} == {name}_below)"
        )
    return {fact: f"!is_walking | ({expression})" for fact, expression in facts.items()}


def _is_stride(name: str) -> str:
    return f"({name} >= 1) & ({name} <= {STRIDES[-1]})"


def _lane_facts(engine: EngineConfig) -> dict[str, str]:
    """Return invariants of the selection: a group's stride is possible, and its lanes follow it."""
    return {"a group has a stride": f"!drain_valid | ({_is_stride('stride')})"}


def _lane_claims(engine: EngineConfig) -> dict[str, str]:
    """Return claims of the selection: the lane of each pixel that the beat has, and its block."""
    claims = {
        f"a selection has the lane of its pixel {word}": f"!drain_valid | (seen_lane_{word} == lane_{word})"
        for word in range(engine.beat_words)
    }
    if engine.blocks > 1:
        claims["a selection has its block"] = "!drain_valid | (seen_block == block)"
    return claims
