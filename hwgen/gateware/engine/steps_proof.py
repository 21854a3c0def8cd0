"""Proof obligations of the engine's step sequencer: each job has its steps once, in order; slots never overflow.

The order of a job's steps is folds, groups, blocks, kernel rows, kernel columns, halves (`Compute`).
"""

from __future__ import annotations

from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Compute
from hwgen.gateware.engine.steps import StepSequencer, StepSequencerConfig, step_layout
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_wires
from hwgen.obligations.observers import balance, kept, patience, register
from hwgen.obligations.streams import no_path

#: Names of the flags in `step_layout` that say which loops begin, in the bit order of the proof, highest first.
_FLAGS = ("resume", "zero", "tap", "row", "block", "group", "fold", "job")


def job_queue(width: int, begins: str) -> list[str]:
    """Return a list of observer lines (Verilog) with a unit's waiting job (``pending``) and current job (``present``).

    ``pending`` was accepted and has not begun, and ``has_pending`` says whether there is one. ``present`` began last.

    Parameters
    ----------
    width : int
        Width of a job's part, in bits.
    begins : str
        Verilog expression that the pending part begins.
    """
    return [
        "wire takes = jobs__valid & jobs__ready;",
        *register("has_pending", f"takes | (has_pending & !({begins}))"),
        *kept("pending", width, "jobs__payload", "takes"),
        *kept("present", width, "pending", begins),
    ]


def ready_path(site: Site) -> Obligation:
    """Return the `Obligation` that no combinational path leads from a job part's valid or payload to ``ready``."""
    offered = ["jobs__valid", "jobs__payload"]
    return no_path(site, "the offer of a job's part to jobs.ready", offered, ["jobs__ready"])


def obligations(config: StepSequencerConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of the step sequencer: use of slots, order of steps, and progress."""
    engine = config.engine
    return [ready_path(site), _slots(engine, site), *_step_order(engine, site), _progress(engine, site)]


def _slot_lines(engine: EngineConfig) -> tuple[list[str], dict[str, str]]:
    """Return a pair: observer lines (Verilog) that count slots (stored sums) in use; assumptions on their release."""
    return balance("used", engine.slots + 1, "slot_open", "release_"), {
        "a slot that is released is in use": "!release_ | (used != 0)"
    }


def _slots(engine: EngineConfig, site: Site) -> Obligation:
    lines, rules = _slot_lines(engine)
    return site.obligation(
        "occupancy",
        f"At most {engine.slots} slots are in use, all are counted, and each group that begins sums has its own.",
        observer=tuple(lines),
        assumes=rules,
        asserts={
            "slots are counted": "used_slots == used",
            "there are enough slots": f"used <= {engine.slots}",
            "a group begins sums only if a slot is free": f"!slot_open | (used < {engine.slots})",
        },
        cover=f"used == {engine.slots}",
    )


def _step_order(engine: EngineConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that each job's steps come once, in order, with right weights and slots."""
    step_fields, step = dict(step_layout(engine)), site.fields("step", step_layout(engine))
    layout = Compute.layout(engine.variant)
    loops = ("groups", "first", "last", "channelwise", "kernel_rows", "kernel_columns", "channels", "w_base", "folds")
    weights, slot = step_fields["weights"], step_fields["slot"]
    newest = (1 << slot.width) - 1  # slot before the first one
    flags = ", ".join(step[name] for name in _FLAGS)
    observer = [
        *job_queue(layout.size, "job_start"),
        *field_wires(layout, loops, "present", "now"),
        *field_wires(layout, loops, "pending", "next"),
        f"wire [{weights.width - 1}:0] step_weights = {step['weights']};",
        f"wire [{slot.width - 1}:0] step_slot = {step['slot']};",
        *(f"wire step_{name} = {step[name]};" for name in ("half", "ends", "complete")),
        f"wire [16:0] whole = 17'd0 + now_channels + {LANES - 1};",
        "wire [13:0] num_blocks = whole[16:3];",
        f"wire has_two = whole[2:0] >= {CHAIN};",
        "wire is_empty = next_groups == 0;",
        # Position of the current step: its group and fold begin with the sequencer's groups, the rest is counted.
        "reg [7:0] group = 0; reg [7:0] fold = 0; reg [13:0] block = 0; reg [7:0] row = 0; reg [7:0] column = 0;",
        "reg half = 0; reg is_walking = 0; reg is_new_fold = 0; reg is_new_job = 0;",
        f"reg [{weights.width - 1}:0] weight = 0; reg [{weights.width - 1}:0] fold_weight = 0;",
        f"reg [{slot.width - 1}:0] slot = {newest}; reg [{slot.width - 1}:0] opened; reg has_opened = 0;",
        "wire ends_half = now_channelwise | half | ((block + 14'd1 == num_blocks) & !has_two);",
        "wire last_column = ends_half & (column + 8'd1 == now_kernel_columns);",
        "wire last_row = last_column & (row + 8'd1 == now_kernel_rows);",
        "wire last_step = last_row & (block + 14'd1 == num_blocks);",
        "wire last_group = group + 8'd1 == now_groups;",
        "wire last_fold = fold + 8'd1 == now_folds;",
        "wire begins = (job_start & !is_empty) | next_group_start;",
        "wire starts_sums = job_start ? next_first : now_first;",
        f"wire [{slot.width - 1}:0] next_slot = job_start & !next_first ? opened : slot + 1;",
        "always @(posedge clk) begin",
        "    if (valid) begin",
        "        half <= !ends_half;",
        "        if (ends_half) column <= last_column ? 0 : column + 1;",
        "        if (last_column) row <= last_row ? 0 : row + 1;",
        "        if (last_row) block <= last_step ? 0 : block + 1;",
        "        weight <= weight + 1;",
        "        is_new_fold <= 0; is_new_job <= 0;",
        "    end",
        "    if (next_group_start) begin",
        "        group <= last_group ? 0 : group + 1;",
        "        if (last_group) begin fold <= fold + 1; fold_weight <= weight + valid; is_new_fold <= 1; end",
        "        else weight <= fold_weight;",
        "    end",
        "    if (job_start) begin",
        "        group <= 0; fold <= 0; weight <= next_w_base; fold_weight <= next_w_base;",
        "        is_new_fold <= !is_empty; is_new_job <= !is_empty;",
        "    end",
        "    if (begins) begin",
        "        slot <= next_slot; half <= 0; column <= 0; row <= 0; block <= 0;",
        "        if (job_start & next_first) begin opened <= next_slot; has_opened <= 1; end",
        "    end",
        "    is_walking <= job_start ? !is_empty : is_walking & !(valid & last_step & last_group & last_fold);",
        "    if (rst) begin is_walking <= 0; is_new_fold <= 0; is_new_job <= 0; has_opened <= 0; end",
        f"    if (rst) slot <= {newest};",
        "end",
        *register("was_passed", "job_start & is_empty"),
        "wire is_first_step = (column == 0) & (row == 0) & (block == 0) & !half;",
    ]
    is_known = (
        "(is_next_job_empty == is_empty) & (is_empty | ((next_job_blocks == pending_whole[16:3]) & "
        "(next_job_last_half == (pending_whole[2:0] >= 4)) & (is_next_job_one_fold == (next_folds == 1)) & "
        "(next_job_is_single == {pending_whole[16:3] == 1, next_kernel_rows == 1, next_kernel_columns == 1}) & "
        "(next_job_slots[0] == ((next_groups == 1) & (next_folds == 1)))))"
    )
    observer.append(f"wire [16:0] pending_whole = 17'd0 + next_channels + {LANES - 1};")
    has_sizes = " & ".join(f"(next_{name} != 0)" for name in ("kernel_rows", "kernel_columns", "channels", "folds"))
    return [
        site.obligation(
            "tokens",
            "Each job has its steps once, in the order of its loops, with their weights and slots; then the next job.",
            observer=tuple(observer),
            assumes={
                "a job that computes has sizes, as the check says": f"!has_pending | is_empty | ({has_sizes})",
                "a job continues sums after a job that began some": (
                    "!has_pending | is_empty | next_first | has_opened"
                ),
            },
            invariants={
                "a part waits": "(has_pending == !jobs__ready) & (!has_pending | (next_job == pending))",
                "a part that can start is known": f"!is_next_job_ready | (has_pending & {is_known})",
                "the current job is known": (
                    "!is_walking | ((job == present) & (now_groups != 0) & (now_kernel_rows != 0) & "
                    "(now_kernel_columns != 0) & (now_channels != 0) & (now_folds != 0) & "
                    "(job_blocks == num_blocks) & (last_half == has_two) & "
                    "(job_is_single == {num_blocks == 1, now_kernel_rows == 1, now_kernel_columns == 1}) & "
                    "(job_slots[0] == ((now_groups == 1) & (now_folds == 1))))"
                ),
                "positions are inside the job": (
                    "!is_walking | ((group < now_groups) & (fold < now_folds) & (column < now_kernel_columns) & "
                    "(row < now_kernel_rows) & (block < num_blocks))"
                ),
                "groups and folds are counted": (
                    "is_walking ? ((groups_left == now_groups - 8'd1 - group) & (folds_left == now_folds - fold) & "
                    "(is_last_fold == last_fold)) : ((groups_left == 0) & is_last_fold)"
                ),
                "steps are of jobs": "!valid | is_walking",
                "a group waits before it begins": (
                    "valid | (!is_new_fold & !is_new_job & (!is_walking | (is_first_step & !(last_group & last_fold))))"
                ),
                "loops are counted": (
                    "!valid | ((columns_left == now_kernel_columns - column) & (rows_left == now_kernel_rows - row) & "
                    "(blocks_left == num_blocks - block) & (is_last == {block + 14'd1 == num_blocks, "
                    "row + 8'd1 == now_kernel_rows, column + 8'd1 == now_kernel_columns}))"
                ),
                "weights are counted": ("!is_walking | ((fold_weights == fold_weight) & (step_weights == weight))"),
                "slots follow each other": (
                    f"(next_slot_index == ((slot + 1) & {newest})) & (!has_opened | (first_slot_index == opened))"
                ),
            },
            asserts={
                "a job begins when all steps of the previous job have been made": (
                    "!job_start | (has_pending & (!is_walking | (valid & last_step & last_group & last_fold)))"
                ),
                "a group begins when all steps of the group before were made": (
                    "!next_group_start | (is_walking & !job_start & (!valid | last_step) & !(last_group & last_fold))"
                ),
                "each step is the next one": (
                    "!valid | ((step_half == half) & (step_ends == last_step) & (step_weights == weight) & "
                    "(step_slot == slot) & (step_complete == (last_step & now_last)))"
                ),
                "flags mark what begins": (
                    f"!valid | ({{{flags}}} == {{is_first_step & !now_first & !((now_groups == 1) & (now_folds == 1)), "
                    "is_first_step & now_first, !half, !half & (column == 0), "
                    "!half & (column == 0) & (row == 0), is_first_step, is_new_fold, is_new_job})"
                ),
                "a job ends once": "ended == (was_passed | (valid & last_step & last_group & last_fold))",
            },
            cover="valid & last_step & !last_group & (now_groups == 2)",
        )
    ]


def _progress(engine: EngineConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a job or pixel group that can start waits at most `FETCH` cycles."""
    lines, rules = _slot_lines(engine)
    bound = StepSequencer.FETCH
    return site.obligation(
        "progress",
        f"While a job is loaded and a slot is free, at most {bound} cycles pass without a step or another job.",
        methods=("pdr",),
        observer=(
            *lines,
            *register("begun", "begun + job_start", COUNT_BITS),
            "wire can_start = (!jobs__ready & walked & (loaded != begun)) | has_more_groups;",
            *patience(f"can_start & !valid & !job_start & !walk & (used < {engine.slots})", bound),
        ),
        assumes=rules,
        invariants={
            "slots are counted": f"(used_slots == used) & (used <= {engine.slots})",
            "jobs are counted": "started_jobs == begun",
        },
        asserts={"something starts in time": f"!is_idle | (idle < {bound})"},
        cover="idle == 1",
    )


PROOFS = {StepSequencerConfig: Proofs((obligations,), others=(StepSequencer,))}
