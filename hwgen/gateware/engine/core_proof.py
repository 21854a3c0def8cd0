"""Proof obligations of the engine's compute core: output beats of each job, slots of sums, and delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.lib import data

from hwgen.gateware.engine.array import Array, control_layout, select_layout, sum_latency
from hwgen.gateware.engine.config import LANES, STRIDES, EngineConfig, numbered
from hwgen.gateware.engine.core import Core, CoreConfig, words_latency
from hwgen.gateware.engine.drain import ONE_WORD_FLAGS, DrainControllerConfig, note_layout
from hwgen.gateware.engine.engine_proof import of_core_wires
from hwgen.gateware.engine.job import COUNT_BITS, Compute, Drain
from hwgen.gateware.engine.lanes import LaneAddressing
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer
from hwgen.gateware.engine.steps import StepSequencerConfig, step_layout
from hwgen.gateware.engine.weight_buffer import WeightBuffer
from hwgen.gateware.engine.writes import BankAlignment
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for, field_bits, field_wires
from hwgen.obligations.observers import balance, delayed, register


def core_parts(config: CoreConfig) -> dict[str, Any]:
    """Return a dictionary of the configurations of the compute core's components that have proofs, by instance name."""
    return {"steps": StepSequencerConfig(engine=config.engine), "drains": DrainControllerConfig(engine=config.engine)}


def obligations(config: CoreConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the compute core: wires, delays, slots of partial sums, and output beats."""
    engine = config.engine
    return [
        *of_core_wires(config, site),
        _delays(engine, site),
        *_operands(engine, site),
        _slots(engine, site),
        _beats_of_jobs(engine, site),
    ]


def _step_fields(engine: EngineConfig, site: Site) -> dict[str, str]:
    """Return a dict of Verilog expressions by field name: the step sequencer's output (`step_layout`)."""
    return {name: f"steps.{bits}" for name, bits in site.part("steps").fields("step", step_layout(engine)).items()}


def _delays(engine: EngineConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that valid flags of steps, job ends, groups and beats arrive with fixed delays."""
    words, drain = words_latency(engine), Array.DRAIN_LATENCY
    step = _step_fields(engine, site)
    complete = words + sum_latency(engine) - 2
    array = numbered(engine, "array")[0]
    beats = numbered(engine, "beats")[0]
    return site.obligation(
        "contract",
        f"A step reaches the array {words} cycles later, and a job that ends counts as computed then; a complete group "
        f"can be drained after {complete} cycles, and a selection leaves after {drain}.",
        methods=("pdr",),
        observer=(
            *delayed("step", 1, "steps.valid", words, resets=True),
            *delayed("end", 1, "steps.ended", words - 1, resets=True),
            *delayed("complete", 1, f"steps.valid & {step['complete']}", complete, resets=True),
            *delayed("beat", 1, f"drains.valid & !{array}.yields", drain, resets=True),
            *register("jobs", "jobs + end_was", COUNT_BITS),
        ),
        asserts={
            "a step comes in time": f"{array}.valid == step_was",
            "a computed job is counted": "computed == jobs",
            "a complete group comes in time": "drains.complete == complete_was",
            "a beat leaves in time": f"{beats}__valid == beat_was",
        },
        cover=f"drains.complete & {beats}__valid & {array}.valid",
        free_memories=True,
    )


def _operands(engine: EngineConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that data of steps and beats arrive with fixed delays, empty for several cores.

    Registers of these data have no reset, so they are compared only after their delay.
    """
    if engine.has_cores:
        return []
    words, job = words_latency(engine), Compute.layout(engine.variant)
    step = _step_fields(engine, site)
    fields = step | {name: field_bits("steps.job", job, name) for name in ("channelwise", "maximum", "pad")}
    control = f"{{{', '.join(fields[str(name)] for name, _ in reversed(list(control_layout(engine))))}}}"
    sums = LANES * engine.beat_words * engine.sum_bits
    values = {
        "control": (words, control_layout(engine).size, control, "array.control", "a step's control word"),
        "weights": (
            words + 1 - WeightBuffer.LATENCY,
            step_layout(engine)["weights"].width,
            step["weights"],
            "weights.step",
            "the address of a step's weights",
        ),
        "inside": (
            words + 1 - LaneAddressing.INSIDE_LATENCY,
            engine.pixels,
            "lanes.inside_",
            "array.inside_",
            "which lanes are inside the map",
        ),
        "note": (
            Array.DRAIN_LATENCY - 1,
            note_layout(engine).size,
            "note_1",
            f"beats__payload[{sums + note_layout(engine).size - 1}:{sums}]",
            "the note of a beat",
        ),
    }
    longest = max(cycles for cycles, *_ in values.values())
    observer = [f"reg {bits_for(longest)} age = 0;", f"always @(posedge clk) age <= age + (age != {longest});"]
    for name, (cycles, width, value, *_) in values.items():
        observer += delayed(f"old_{name}", width, value, cycles)
    return [
        site.obligation(
            "contract",
            f"The control word of a step comes {words} cycles after it, and its weights' address, its lanes and the "
            "note of a beat as many as they must; the sums of a beat are the array's.",
            observer=tuple(observer),
            asserts={
                **{
                    f"{text} comes in time": f"(age < {cycles}) | ({port} == old_{name}_was)"
                    for name, (cycles, _, _, port, text) in values.items()
                },
                "sums equal the array's": f"beats__payload[{sums - 1}:0] == array.sums",
            },
            cover=f"age == {longest}",
            structure={"cycles": longest},
            free_memories=True,
        )
    ]


def _slots(engine: EngineConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each slot (partial sums of one pixel per lane) in use belongs to one pixel group.

    The group is open, complete on its way to the drain controller, complete, or being drained. A chain of counters
    counts complete groups up to each register, so that each invariant compares two neighbours.
    """
    delay = words_latency(engine) + sum_latency(engine) - 2
    flags = [f"group_complete_{cycle}" for cycle in range(1, delay)] + ["drains.complete"]
    largest = 2 * max(engine.slots, delay)
    observer = [
        *field_wires(Compute.layout(engine.variant), ("first",), "steps.job", "job"),
        f"wire completes = steps.valid & {_step_fields(engine, site)['complete']};",
        *balance("open", largest, "steps.slot_open", "completes"),
    ]
    for index, flag in enumerate(flags):
        observer += balance(f"up_to_{index}", largest, "completes", flag)
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
        observer=tuple(observer),
        assumes={
            "a job completes sums that were opened": "!completes | job_first | (open != 0)",
        },
        invariants={
            **chain,
            "a group that begins sums has a slot": "!(steps.valid & job_first) | (open != 0)",
            "every used slot has a group": (
                f"32'd0 + steps.used_slots == 32'd0 + open + up_to_{last} + drains.complete_groups + drains.valid"
            ),
        },
        asserts={
            "there are enough slots": f"steps.used_slots <= {engine.slots}",
            "a slot that is released is in use": "!drains.release_ | (steps.used_slots != 0)",
            "a complete group has a slot": (
                f"!drains.complete | (drains.complete_groups + drains.valid < {engine.slots})"
            ),
        },
        cover="drains.release_ & (drains.complete_groups != 0)",
        keeps=("steps", "drains"),
        free_memories=True,
    )


#: Names of the control fields of an output beat (`note_layout`) that are copies of fields of the job's drain part.
_JOB_FIELDS = (
    "zero_point", "low", "high", "add", "a_zero_point", "a_low", "a_high", "table", "pool", "columns", "multiply",
)  # fmt: skip
#: Names of further fields of a job's drain part that determine its output beats: sizes, addresses and flags.
_SIZE_FIELDS = ("blocks", "pixels", "p_base", "o_base", "o_plane", "channelwise", "a_base", "one_pixel")


def _beats_of_jobs(engine: EngineConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a job's output beats have each pixel and block of 8 maps once, in order."""
    wanted, drains = _expected_fields(engine), site.part("drains")
    parameter = f"drains.{drains.fields('note', note_layout(engine))['parameter']}"
    return site.obligation(
        "tokens",
        "The beats of each job have its blocks and pixels once, in order, with their lanes and addresses; then the "
        "next job.",
        observer=(*_jobs(engine), *_position(engine), *_addresses(engine), *_lanes(engine), *_sent(engine, wanted)),
        within="drains",
        assumes={"a stride is from 1 to 4, as the check says": f"!group_start | ({_is_stride('strides_data')})"},
        invariants={
            **_job_facts(engine),
            **_position_facts(engine),
            **_address_facts(engine, parameter),
            **_lane_facts(engine),
        },
        asserts={
            "a job begins when all beats of the previous job have left": (
                "!job_start | (has_pending & (!is_walking | (beat_selected & ends_job)))"
            ),
            "an empty job is passed between others": "!job_skip | (has_pending & !is_walking)",
            "a group is released with its last beat": "release_ == (beat_selected & ends_group)",
            "beats are of a job": "!beat_selected | is_walking",
            **_lane_claims(engine),
            **{
                f"a beat has the {name} of its block and pixel": f"!beat_valid_1 | (sent_{name} == want_{name})"
                for name in wanted
            },
        },
        cover="beat_valid_1 & want_last & want_fold_end & (want_parameter == 3)",
        keeps=("drains",),
        free_memories=True,
    )


def _jobs(engine: EngineConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that store the drain fields of the waiting and the current job."""
    drain = Drain.layout(engine.variant)
    names = (*_JOB_FIELDS, *_SIZE_FIELDS)
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
    """Return the Verilog condition that output beats of the job ``job`` (a wire prefix) have only one pixel each."""
    return " | ".join(f"{job}_{flag}" for flag in ONE_WORD_FLAGS) if engine.beat_words > 1 else "1'b1"


def _position(engine: EngineConfig) -> list[str]:
    """Return a list of observer lines (Verilog) that count the pixels and blocks of 8 maps of the job's output beats.

    ``blocks`` and ``pixels`` are the numbers of blocks and pixels that are left, with the current ones. ``width`` is
    the number of blocks of the fold, and ``block`` the index in it. ``pixel`` is the index of the first pixel in its
    fold, ``index`` its index in the group, and ``turn`` counts the beats of the fold's first block. A beat has ``size``
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
        "    if (beat_selected) begin",
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
        "    is_walking <= !rst & (job_start | (is_walking & !(beat_selected & ends_job)));",
        "end",
    ]


def _addresses(engine: EngineConfig) -> list[str]:
    """Return a list of observer lines (Verilog): output and addend addresses of each 8 maps' first pixel in a fold.

    ``output_N`` and ``addend_N`` are the addresses for block ``N``. Neighbouring registers are a plane apart; solvers
    are slow with products.
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
                f"    else if (beat_selected & ends_fold) {name}_{index} <= {name}_below + 16'd{index} * {now_plane};",
            ]
    return lines


def _by_block(index: str, name: str, blocks: int) -> str:
    """Return the Verilog expression that selects ``NAME_0`` to ``NAME_BLOCKS``, a register per block, by ``index``."""
    return " : ".join([*(f"{index} == {block} ? {name}_{block}" for block in range(blocks)), f"{name}_{blocks}"])


def _lanes(engine: EngineConfig) -> list[str]:
    """Return a list of observer lines (Verilog): each pixel's expected lane, and the lane that the array selects.

    The expected lane is ``stride * index % pixels``.
    """
    lanes, words = engine.pixels, engine.beat_words
    fields: Mapping[Any, data.Field] = dict(select_layout(engine))
    base, bits = fields["lanes"].offset, max(1, (lanes - 1).bit_length())
    lines = []
    for word in range(words):
        products = " : ".join(f"group_stride == {stride} ? at_{word} * 10'd{stride}" for stride in STRIDES[1:])
        lines += [
            f"wire [9:0] at_{word} = index + {word}; wire [9:0] product_{word} = {products} : at_{word};",
            f"wire [{bits - 1}:0] lane_{word} = product_{word} % {lanes};",
            f"wire [{bits - 1}:0] seen_lane_{word} = select[{base + bits * word + bits - 1}:{base + bits * word}];",
        ]
    if engine.blocks > 1:
        lines.append(f"wire {bits_for(engine.blocks - 1)} seen_block = {field_bits('drains.select', fields, 'block')};")
    return lines


def _expected_fields(engine: EngineConfig) -> dict[str, str]:
    """Return a dict of Verilog expressions by control field: its expected value in the current beat."""
    blocks, words = engine.blocks, engine.beat_words
    present = {"present": " | ".join(f"((pixels > {n}) & (size > {n})) << {n}" for n in range(words))}
    return {
        "address": f"({_by_block('block', 'output', blocks)}) + beat_pixel",
        "addend": f"({_by_block('block', 'addend', blocks)}) + addend_pixel",
        "parameter": "now_p_base + fold_block + block",
        "pixel_end": "ends_pixel",
        "fold_end": "ends_fold",
        "last": "ends_job",
        **{name: f"now_{name}" for name in _JOB_FIELDS},
        **(present if words > 1 else {}),
    }


def _sent(engine: EngineConfig, wanted: Mapping[str, str]) -> list[str]:
    """Return a list of observer lines (Verilog): the last beat's control fields, sent and expected (``want_NAME``)."""
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
    """Return a dict of invariants (Verilog by name): the drain controller's job registers equal the observer's jobs."""
    facts = {
        "a part waits in its register": "(has_pending == !drain__ready) & (!has_pending | (next_job == pending))",
        "a part that can start is known": (
            "!is_next_job_ready | (has_pending & (is_next_job_empty == ((next_blocks == 0) | (next_pixels == 0))) & "
            f"(is_next_job_one_beat == (next_pixels <= (next_alone ? 1 : {engine.beat_words}))))"
        ),
        "the current job is known": (
            "(has_pixels == is_walking) & (!valid | is_walking) & (!is_walking | ((drains.job == present) & "
            "(now_blocks != 0) & (now_pixels != 0)))"
        ),
    }
    if engine.beat_words > 1:
        facts["the current job's beats are known"] = "!is_walking | (has_one_word == now_alone)"
    return facts


def _position_facts(engine: EngineConfig) -> dict[str, str]:
    """Return a dict of invariants (Verilog): the drain controller's counters match the observer's."""
    lanes, words = engine.pixels, engine.beat_words
    inside = "(blocks != 0) & (32'd0 + blocks + fold_block == now_blocks) & (block < width) & (pixels != 0)"
    counted = {
        "blocks are counted": "(drains.blocks_left == blocks) & (is_last_fold == (blocks == width))",
        "pixels are counted": (
            "(pixels_left == pixels) & (is_last_pixel == is_last) & (is_first_pixel == (pixel == 0)) & "
            "((pixel == 0) == (turn == 0)) & (turn <= pixel)"
        ),
    }
    if engine.blocks > 1:
        counted["blocks of a pixel are counted"] = "(fold_blocks == width) & (pixel_blocks_left == width - block)"
    beat = "pixel_index == index"
    if words > 1:  # pixels of a group begin with a whole beat
        shift = words.bit_length() - 1
        beat = (
            f"(pixel_index == (now_alone ? index : index >> {shift})) & (now_alone | (index[{shift - 1}:0] == 0)) & "
            f"(is_last_beat_of_group == (index + size == {lanes}))"
        )
    counted["pixels of a group are counted"] = f"(index < {lanes}) & (valid ? ({beat}) : ((index == 0) & (block == 0)))"
    return {
        "positions are inside the job": f"!is_walking | ({inside} & (32'd0 + pixels + pixel == now_pixels))",
        **{fact: f"!is_walking | ({expression})" for fact, expression in counted.items()},
    }


def _address_facts(engine: EngineConfig, parameter: str) -> dict[str, str]:
    """Return a dict of invariants (Verilog) on the drain controller's addresses: pixel, block, fold, parameters."""
    blocks = engine.blocks
    facts = {"parameters are counted": f"(fold_parameter == now_p_base + fold_block) & ({parameter} == "
             "now_p_base + fold_block + block)"}  # fmt: skip
    for name, first, below, following, move, now_plane in (
        ("output", "pixel", "next_block", "next_fold", "beat_pixel", "now_o_plane"),
        ("addend", "pixel_addend", "next_block_addend", "next_fold_addend", "addend_pixel", "plane"),
    ):
        facts |= {
            f"{name} addresses of block {index + 1} are one plane after the previous ones": (
                f"{name}_{index + 1} == {name}_{index} + {now_plane}"
            )
            for index in range(blocks)
        }
        after = _by_block("(block + 5'd1)", name, blocks)
        # A fold that ends with its first beat reads no address of a pixel.
        facts[f"{name} addresses of a pixel are counted"] = (
            f"((pixel == 0) & is_last) | ({first}_address == {name}_0 + {move})"
        )
        facts[f"{name} addresses of the block below are counted"] = f"{below}_address == ({after}) + {move}"
        facts[f"{name} addresses of the next fold are known after the first pixel"] = (
            f"(pixel == 0) | ({following}_address == {name}_below)"
        )
    return {fact: f"!is_walking | ({expression})" for fact, expression in facts.items()}


def _is_stride(name: str) -> str:
    return f"({name} >= 1) & ({name} <= {STRIDES[-1]})"


def _lane_facts(engine: EngineConfig) -> dict[str, str]:
    """Return a dict with the invariant that the stride (lanes between pixels) of the current group is 1 to 4."""
    return {"a group has a stride": f"!valid | ({_is_stride('group_stride')})"}


def _lane_claims(engine: EngineConfig) -> dict[str, str]:
    """Return a dict of assertions, by name, that each sum selection has its pixel's lane and its block of 8 maps."""
    claims = {
        f"a selection has the lane of its pixel {word}": f"!valid | (seen_lane_{word} == lane_{word})"
        for word in range(engine.beat_words)
    }
    if engine.blocks > 1:
        claims["a selection has its block"] = "!valid | (seen_block == block)"
    return claims


def _reasons(config: CoreConfig, _site: Site) -> Mapping[str, str]:
    """Return a dict from instance name to text: why components of the compute core have no functional property."""
    return {
        "": "connections of several cores are proved in part" if config.engine.has_cores else "",
        "lanes": "which lanes compute a pixel is simulated",
        "maps": "the buffer of maps, with its banks, is simulated",
        "weights": "the buffer of weights, with its banks, is simulated",
        "array": "the array's products and sums are simulated",
    }


PROOFS = {
    CoreConfig: Proofs(
        (obligations,),
        core_parts,
        _reasons,
        (Core, Array, LaneAddressing, ReuseBuffer, WeightBuffer, BankAlignment),
    )
}
