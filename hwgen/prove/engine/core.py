"""Obligations of an engine's compute core: the beats of each job, the slots of sums, and delays between its parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth.lib.data import Field

from hwgen.gateware.engine.array import Array, control_layout, sum_latency
from hwgen.gateware.engine.config import LANES, EngineConfig, numbered
from hwgen.gateware.engine.core import CoreConfig, words_latency
from hwgen.gateware.engine.drain import DrainWalkConfig, note_layout
from hwgen.gateware.engine.job import COUNT_BITS, Compute
from hwgen.gateware.engine.lanes import Lanes
from hwgen.gateware.engine.steps import StepsConfig, step_layout
from hwgen.gateware.engine.weight_buffer import WeightBuffer
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site, bits_for
from hwgen.prove.engine.beats import beats_of_jobs
from hwgen.prove.engine.steps import field_wires
from hwgen.prove.engine.wires import of_core_wires

__all__ = ["core_parts", "of_core"]


def core_parts(config: CoreConfig) -> dict[str, Any]:
    """Return the sequencers of an engine's compute core, by instance."""
    return {"steps": StepsConfig(engine=config.engine), "drains": DrainWalkConfig(engine=config.engine)}


def of_core(config: CoreConfig, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's compute core: wires of jobs, delays, slots of sums, and beats of jobs."""
    engine = config.engine
    return [
        *of_core_wires(config, site),
        _delays(engine, site),
        *_operands(engine, site),
        _slots(engine, site),
        beats_of_jobs(engine, site),
    ]


def _step(engine: EngineConfig, site: Site) -> tuple[dict[str, str], dict[str, str]]:
    """Return the Verilog expression of each field of a step, and the signals of the sequencer that have them."""
    steps, layout = site.part("steps"), step_layout(engine)
    carriers = steps.carriers("step", layout)
    return steps.fields("step", layout), {each.name: f"steps.{each.name}" for each in carriers}


def _shift(name: str, length: int, first: str) -> list[str]:
    """Return lines of Verilog that delay a bit ``first`` by ``length`` cycles. Bit n of ``NAME`` is n + 1 old."""
    return [
        f"reg [{length - 1}:0] {name} = 0;",
        f"always @(posedge clk) {name} <= rst ? 0 : {{{name}[{length - 2}:0], {first}}};",
    ]


def _delays(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that steps, ends of jobs, complete groups and beats come a fixed number of cycles later."""
    words, drain = words_latency(engine), Array.DRAIN_LATENCY
    step, seen_step = _step(engine, site)
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
            *_shift("model_complete", complete, f"step_valid & {step['complete']}"),
            *_shift("model_beat", drain, "drain_valid & !array_yields"),
            f"reg [{COUNT_BITS - 1}:0] jobs = 0;",
            f"always @(posedge clk) jobs <= rst ? 0 : jobs + model_end[{words - 2}];",
        ),
        sees={
            "step_valid": "steps.valid",
            "step_ended": "steps.ended",
            **seen_step,
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


def _operands(engine: EngineConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the values that accompany steps and beats; none with several cores.

    Registers of these values have no reset. So they are compared after as many cycles as they take.
    """
    if engine.has_cores:
        return []
    words, job = words_latency(engine), Compute.layout(engine.variant)
    step, seen_step = _step(engine, site)
    fields = step | {name: _bits("step_job", dict(job)[name]) for name in ("channelwise", "maximum", "pad")}
    control = f"{{{', '.join(fields[str(name)] for name, _ in reversed(list(control_layout(engine))))}}}"
    sums = LANES * engine.beat_words * engine.sum_bits
    delayed = {
        "control": (words, control_layout(engine).size, control, "array_control", "a step's control word"),
        "weights": (
            words + 1 - WeightBuffer.LATENCY,
            dict(step_layout(engine))["weights"].width,
            step["weights"],
            "weights_step",
            "the address of a step's weights",
        ),
        "inside": (
            words + 1 - Lanes.INSIDE_LATENCY,
            engine.pixels,
            "lanes_inside",
            "array_inside",
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
    longest = max(cycles for cycles, *_ in delayed.values())
    observer = [f"reg {bits_for(longest)} age = 0;", f"always @(posedge clk) age <= age + (age != {longest});"]
    for name, (cycles, width, value, *_) in delayed.items():
        stages = [value, *(f"old_{name}_{cycle}" for cycle in range(1, cycles + 1))]
        observer += [
            f"reg [{width - 1}:0] {new}; always @(posedge clk) {new} <= {old};" for old, new in pairwise(stages)
        ]
    return [
        site.obligation(
            "contract",
            f"The control word of a step comes {words} cycles after it, and its weights' address, its lanes and the "
            "note of a beat as many as they must; the sums of a beat are the array's.",
            methods=("induction", "pdr"),
            observer=tuple(observer),
            sees={
                **seen_step,
                "step_job": "steps.job",
                "array_control": "array.control",
                "array_inside": "array.inside_",
                "lanes_inside": "lanes.inside_",
                "weights_step": "weights.step",
                "array_sums": "array.sums",
                "note_1": "note_1",
            },
            asserts={
                **{
                    f"{text} comes in time": f"(age < {cycles}) | ({port} == old_{name}_{cycles})"
                    for name, (cycles, _, _, port, text) in delayed.items()
                },
                "sums are those of the array": f"beats__payload[{sums - 1}:0] == array_sums",
            },
            cover=f"age == {longest}",
            structure={"cycles": longest},
            free_memories=True,
        )
    ]


def _bits(payload: str, field: Field) -> str:
    """Return the Verilog expression of a field in a payload."""
    return f"{payload}[{field.offset + field.width - 1}:{field.offset}]"


def _slots(engine: EngineConfig, site: Site) -> Obligation:
    """Return the obligation that each slot in use is opened, complete on its way, complete, or being drained.

    A chain of counters has the complete groups up to each register, so that each invariant compares two neighbours.
    """
    delay = words_latency(engine) + sum_latency(engine) - 2
    stages = [f"group_complete_{cycle}" for cycle in range(1, delay)]
    flags = [f"is_complete_{cycle}" for cycle in range(1, delay)] + ["drain_complete"]
    count, (step, seen_step) = bits_for(2 * max(engine.slots, delay)), _step(engine, site)
    observer = [
        f"reg {count} open = 0;",
        *field_wires(Compute.layout(engine.variant), ("first",), "job", "job"),
        f"wire complete_now = {step['complete']};",
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
            **seen_step,
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
