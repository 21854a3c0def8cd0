"""Obligations of an engine's compute core: the beats of each job, the slots of sums, and delays between its parts."""

from __future__ import annotations

from typing import Any

from amaranth.lib import data

from hwgen.gateware.engine.array import Array, sum_latency
from hwgen.gateware.engine.config import EngineConfig, numbered
from hwgen.gateware.engine.core import CoreConfig, words_latency
from hwgen.gateware.engine.drain import DrainWalkConfig, note_layout
from hwgen.gateware.engine.job import COUNT_BITS, Compute, Drain
from hwgen.gateware.engine.steps import StepsConfig
from hwgen.prove.engine_steps import field_wires
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for

__all__ = ["core_parts", "of_core"]

#: Fields of a note that are fields of its job.
_CONSTANTS = (
    "zero_point", "low", "high", "add", "a_zero_point", "a_low", "a_high", "table", "pool", "columns", "multiply",
)  # fmt: skip


def core_parts(config: CoreConfig) -> dict[str, Any]:
    """Return the sequencers of an engine's compute core, by instance."""
    return {"steps": StepsConfig(engine=config.engine), "drains": DrainWalkConfig(engine=config.engine)}


def of_core(config: CoreConfig, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's compute core: wires of jobs, delays, slots of sums, and beats of jobs."""
    engine = config.engine
    obligations = [_wires(site), _delays(engine, site), _slots(engine, site)]
    return obligations if engine.beat_words > 1 or engine.has_cores else [*obligations, _beats(engine, site)]


def _wires(site: Site) -> Obligation:
    """Return the obligation that the parts of jobs are wires to the sequencers, and that these see the same pulses."""
    wires = {
        f"{port}__{part}": f"{unit}.jobs__{part}"
        for port, unit in (("compute", "steps"), ("drain", "drains"))
        for part in ("valid", "ready", "payload")
    }
    wires |= {"drains.release_": "steps.release_", "drained": "drains.drained"}
    wires |= {name: f"drains.{name}" for name in ("stored", "finished")} | {"loaded": "steps.loaded"}
    return site.obligation(
        "wires",
        "Parts of jobs, counts of jobs, and released slots are wires of the sequencers.",
        methods=("structure",),
        structure={"wires": wires},
    )


def _ends(site: Site) -> str:
    """Return the port of the step sequencer with the flags ``ends`` and ``complete`` of a step."""
    steps = site.inner("steps")
    return steps.unnamed_port(2) if steps is not None else ""


def _bits_of(port: str, field: data.Field) -> str:
    """Return the Verilog expression of a field in a port that has the first fields of a note."""
    return f"{port}[{field.offset + field.width - 1}:{field.offset}]"


def _times(count: str, value: str, bits: int) -> str:
    """Return the Verilog expression of a product of 16 bits with a number of few bits, as a sum."""
    return "(" + " + ".join(f"({count}[{bit}] ? ({value} << {bit}) : 16'd0)" for bit in range(bits)) + ")"


def _shift(name: str, length: int, first: str) -> list[str]:
    """Return lines of Verilog that delay a bit ``first`` by ``length`` cycles. Bit n of ``NAME`` is n + 1 old."""
    return [
        f"reg [{length - 1}:0] {name} = 0;",
        f"always @(posedge clk) {name} <= rst ? 0 : {{{name}[{length - 2}:0], {first}}};",
    ]


def _delays(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that steps, ends of jobs, complete groups and beats come a fixed number of cycles later."""
    words, drain = words_latency(engine), Array.DRAIN_LATENCY
    complete = words + sum_latency(engine) - 2
    array = numbered(engine, "array")[0]
    beats = numbered(engine, "beats")[0]
    return site.obligation(
        "contract",
        f"A step reaches the array {words} cycles later, and a job that ends counts as computed then; a complete group "
        f"can be drained after {complete} cycles, and a selection leaves after {drain}.",
        methods=("pdr",),
        observer=(
            *_shift("model_step", words, "step_valid"),
            *_shift("model_end", words - 1, "step_ended"),
            *_shift("model_complete", complete, "step_valid & ends_port[1]"),
            *_shift("model_beat", drain, "drain_valid & !array_yields"),
            f"reg [{COUNT_BITS - 1}:0] jobs = 0;",
            f"always @(posedge clk) jobs <= rst ? 0 : jobs + model_end[{words - 2}];",
        ),
        sees={
            "step_valid": "steps.valid",
            "step_ended": "steps.ended",
            "ends_port": f"steps.{_ends(site)}",
            "drain_valid": "drains.valid",
            "array_yields": f"{array}.yields",
            "array_valid": f"{array}.valid",
            "drain_complete": "drains.complete",
        },
        asserts={
            "a step comes in time": f"array_valid == model_step[{words - 1}]",
            "a computed job is counted": "computed == jobs",
            "a complete group comes in time": f"drain_complete == model_complete[{complete - 1}]",
            "a beat leaves in time": f"{beats}__valid == model_beat[{drain - 1}]",
        },
        cover=f"drain_complete & {beats}__valid & array_valid",
        free_memories=True,
    )


def _slots(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that each slot in use is opened, complete on its way, complete, or being drained.

    A chain of counters has the complete groups up to each register, so that each invariant compares two neighbours.
    """
    delay = words_latency(engine) + sum_latency(engine) - 2
    stages = [f"group_complete_{cycle}" for cycle in range(1, delay)]
    flags = [f"is_complete_{cycle}" for cycle in range(1, delay)] + ["drain_complete"]
    count, ends = bits_for(2 * max(engine.slots, delay)), _ends(site)
    observer = [
        f"reg {count} open = 0;",
        *field_wires(Compute.layout(engine.variant), ("first",), "job", "job"),
        "wire complete_now = ends_port[1];",
        "wire completes = step_valid & complete_now;",
        "always @(posedge clk) open <= rst ? 0 : open + slot_open - completes;",
        *(f"reg {count} up_to_{index} = 0;" for index in range(len(flags))),
        "always @(posedge clk) begin",
        *(f"    up_to_{index} <= rst ? 0 : up_to_{index} + completes - {flag};" for index, flag in enumerate(flags)),
        "end",
    ]
    chain = {
        f"complete groups up to register {index + 1} are counted": (
            f"up_to_{index} == " + (f"up_to_{index - 1} + {flag}" if index else flag)
        )
        for index, flag in enumerate(flags)
    }
    last = len(flags) - 1
    return site.obligation(
        "credits",
        f"Groups that are opened, complete, or being drained have a slot each, of {engine.slots}; none is lost.",
        methods=("induction", "pdr"),
        observer=tuple(observer),
        sees={
            "step_valid": "steps.valid",
            "ends_port": f"steps.{ends}",
            "slot_open": "steps.slot_open",
            "used_slots": "steps.used_slots",
            "job": "steps.job",
            "drain_valid": "drains.valid",
            "released": "drains.release_",
            "complete_groups": "drains.complete_groups",
            **dict(zip(flags, [*stages, "drains.complete"], strict=True)),
        },
        assumes={
            "a job completes sums that were opened": "!completes | job_first | (open != 0)",
        },
        invariants={
            **chain,
            "a group that begins sums has a slot": "!(step_valid & job_first) | (open != 0)",
            "every used slot has a group": (
                f"32'd0 + used_slots == 32'd0 + open + up_to_{last} + complete_groups + drain_valid"
            ),
        },
        asserts={
            "there are enough slots": f"used_slots <= {engine.slots}",
            "a slot that is released is in use": "!released | (used_slots != 0)",
            "a complete group has a slot": f"!drain_complete | (complete_groups + drain_valid < {engine.slots})",
        },
        cover="released & (complete_groups != 0)",
        keeps=("steps", "drains"),
        free_memories=True,
    )


def _beats(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that the beats of a job have each of its blocks and pixels once, with their addresses."""
    drain, note = Drain.layout(engine.variant), note_layout(engine)
    fields = dict(note)
    names = (
        *_CONSTANTS, "blocks", "pixels", "p_base", "o_base", "o_plane", "channelwise", "a_base", "one_pixel",
    )  # fmt: skip
    last_lane, fold_blocks = engine.pixels - 1, engine.blocks
    bits = fold_blocks.bit_length()
    observer = [
        "reg has_pending = 0;",
        f"reg [{drain.size - 1}:0] pending; reg [{drain.size - 1}:0] present;",
        "wire takes = drain__valid & drain__ready;",
        "wire begins = job_start | job_skip;",
        "always @(posedge clk) has_pending <= !rst & (takes | (has_pending & !begins));",
        "always @(posedge clk) begin if (takes) pending <= drain__payload; if (job_start) present <= pending; end",
        *field_wires(drain, names, "present", "now"),
        *field_wires(drain, names, "pending", "next"),
        f"wire [4:0] now_width = now_channelwise ? 5'd1 : 5'd{fold_blocks};",
        # The present beat: the blocks that are left with this fold, the pixels of the fold, the block in its fold.
        "reg is_walking = 0; reg [4:0] blocks = 0; reg [13:0] pixels = 0; reg [4:0] block = 0;",
        "reg [4:0] fold_block = 0; reg [13:0] pixel = 0; reg [7:0] index = 0;",
        "wire [4:0] width = blocks < now_width ? blocks : now_width;",
        "wire ends_pixel = block + 5'd1 == width;",
        "wire ends_fold = ends_pixel & (pixels == 1);",
        "wire ends_job = ends_fold & (blocks == width);",
        f"wire ends_group = ends_pixel & ((pixels == 1) | (index == {last_lane}));",
        "wire [15:0] plane = now_one_pixel ? 16'd1 : {2'd0, now_pixels};",
        # Addresses are sums over blocks and pixels; products are counted, because solvers are slow with them.
        "reg [15:0] fold_address = 0; reg [15:0] address = 0; reg [15:0] fold_addend = 0; reg [15:0] addend = 0;",
        "wire [15:0] beat_pixel = {2'd0, pixel}; wire [15:0] addend_pixel = now_one_pixel ? 16'd0 : beat_pixel;",
        "always @(posedge clk) begin",
        "    if (selected) begin",
        "        block <= ends_pixel ? 0 : block + 1;",
        "        if (ends_pixel) begin",
        "            pixels <= ends_fold ? now_pixels : pixels - 1; pixel <= ends_fold ? 0 : pixel + 1;",
        "            index <= ends_group ? 0 : index + 1;",
        "        end",
        "        address <= ends_fold ? address + now_o_plane : ends_pixel ? fold_address : address + now_o_plane;",
        "        addend <= ends_fold ? addend + plane : ends_pixel ? fold_addend : addend + plane;",
        "        if (ends_fold) begin",
        "            blocks <= blocks - width; fold_block <= fold_block + width;",
        "            fold_address <= address + now_o_plane; fold_addend <= addend + plane;",
        "        end",
        "    end",
        "    if (job_start) begin",
        "        blocks <= next_blocks; pixels <= next_pixels; block <= 0; fold_block <= 0; pixel <= 0; index <= 0;",
        "        fold_address <= next_o_base; address <= next_o_base;",
        "        fold_addend <= next_a_base; addend <= next_a_base;",
        "    end",
        "    is_walking <= !rst & (job_start | (is_walking & !(selected & ends_job)));",
        "end",
    ]
    was = {
        "address": "address + beat_pixel",
        "addend": "addend + addend_pixel",
        "parameter": "now_p_base + fold_block + block",
        "pixel_end": "ends_pixel",
        "fold_end": "ends_fold",
        "last": "ends_job",
        **{name: f"now_{name}" for name in _CONSTANTS},
    }
    observer += field_wires(note, list(fields), "note_1", "sent")
    for name, value in was.items():
        field = fields[name]
        observer.append(f"reg [{field.width - 1}:0] want_{name}; always @(posedge clk) want_{name} <= {value};")
    sees = {
        "job_start": "drains.job_start",
        "job_skip": "drains.job_skip",
        "selected": "drains.beat_selected",
        "released": "drains.release_",
        "drain_valid": "drains.valid",
        "seen_job": "drains.job",
        "next_job": "drains.next_job",
        "seen_blocks": "drains.blocks_left",
        "is_last_fold": "drains.is_last_fold",
        "pixel_index": "drains.pixel_index",
        "pixels_left": "drains.pixels_left",
        "has_pixels": "drains.has_pixels",
        "is_last_pixel": "drains.is_last_pixel",
        "is_first_pixel": "drains.is_first_pixel",
        "is_ready": "drains.is_next_job_ready",
        "is_empty": "drains.is_next_job_empty",
        "is_single": "drains.is_next_job_one_beat",
        "group_start": "drains.group_start",
        "pixel_address": "drains.pixel_address",
        "pixel_addend": "drains.pixel_addend_address",
        "next_fold": "drains.next_fold_address",
        "next_fold_addend": "drains.next_fold_addend_address",
        "fold_parameter": "drains.fold_parameter",
        "below": "drains.next_block_address",
        "below_addend": "drains.next_block_addend_address",
        "note_1": "note_1",
        "sent_valid": "beat_valid_1",
    }
    drains, parameter, counted = site.inner("drains"), "fold_parameter", []
    if drains is not None and (fields_port := drains.unnamed_port(fields["address"].width + fields["parameter"].width)):
        sees["place"] = f"drains.{fields_port}"
        parameter = _bits_of("place", fields["parameter"])
    if fold_blocks > 1:
        sees |= {"fold_blocks": "drains.fold_blocks", "blocks_left": "drains.pixel_blocks_left"}
        counted = ["(fold_blocks == width)", "(blocks_left == width - block)"]
    return site.obligation(
        "tokens",
        "The beats of each job have its blocks and pixels once, in order, with their addresses; then the next job.",
        methods=("induction", "pdr"),
        observer=tuple(observer),
        sees=sees,
        invariants={
            "a part waits in its register": "(has_pending == !drain__ready) & (!has_pending | (next_job == pending))",
            "a part that can start is known": (
                "!is_ready | (has_pending & (is_empty == ((next_blocks == 0) | (next_pixels == 0))) & "
                "(is_single == (next_pixels <= 1)))"
            ),
            "the present job is known": (
                "(has_pixels == is_walking) & (!drain_valid | is_walking) & (!is_walking | ((seen_job == present) & "
                "(now_blocks != 0) & (now_pixels != 0)))"
            ),
            "positions are inside the job": (
                "!is_walking | ((blocks != 0) & (32'd0 + blocks + fold_block == now_blocks) & (block < width) & "
                "(pixels != 0) & (32'd0 + pixels + pixel == now_pixels))"
            ),
            "blocks and pixels are counted": "!is_walking | ("
            + " & ".join(
                [
                    "(seen_blocks == blocks)",
                    "(is_last_fold == (blocks == width))",
                    "(pixels_left == pixels)",
                    "(is_last_pixel == (pixels == 1))",
                    "(is_first_pixel == (pixel == 0))",
                    *counted,
                ]
            )
            + ")",
            "pixels of a group are counted": (
                f"!is_walking | ((index <= {last_lane}) & (drain_valid ? (pixel_index == index) : "
                "((index == 0) & (block == 0))))"
            ),
            "addresses are counted": (
                "!is_walking | (((now_pixels == 1) | ((pixel_address == fold_address + beat_pixel) & "
                "(pixel_addend == fold_addend + addend_pixel))) & (below == address + beat_pixel + now_o_plane) & "
                "(below_addend == addend + addend_pixel + plane) & (fold_parameter == now_p_base + fold_block) & "
                f"({parameter} == now_p_base + fold_block + block))"
            ),
            "addresses of blocks are sums": (
                f"!is_walking | ((address == fold_address + {_times('block', 'now_o_plane', bits)}) & "
                f"(addend == fold_addend + {_times('block', 'plane', bits)}))"
            ),
            "addresses of the next fold are known behind the first pixel": (
                f"!is_walking | (pixel == 0) | ((next_fold == fold_address + {_times('width', 'now_o_plane', bits)}) & "
                f"(next_fold_addend == fold_addend + {_times('width', 'plane', bits)}))"
            ),
        },
        asserts={
            "a job begins when all beats of the job before left": (
                "!job_start | (has_pending & (!is_walking | (selected & ends_job)))"
            ),
            "an empty job is passed between others": "!job_skip | (has_pending & !is_walking)",
            "a group is released with its last beat": "released == (selected & ends_group)",
            "beats are of a job": "!selected | is_walking",
            **{
                f"a beat has the {name} of its block and pixel": f"!sent_valid | (sent_{name} == want_{name})"
                for name in was
            },
        },
        cover="sent_valid & want_last & want_fold_end & (want_parameter == 3)",
        keeps=("drains",),
        free_memories=True,
    )
