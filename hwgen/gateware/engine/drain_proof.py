"""Proof obligations of the engine's drain controller: each complete pixel group is drained once, jobs are counted.

That the beats of a job have its blocks and pixels in order is an obligation of the core, which has their notes whole.
"""

from __future__ import annotations

from hwgen.gateware.engine.array import select_layout
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.drain import DrainController, DrainControllerConfig, note_layout
from hwgen.gateware.engine.job import COUNT_BITS, Drain
from hwgen.gateware.engine.steps_proof import job_queue, ready_path
from hwgen.obligations.obligation import Carrier, Obligation, Proofs, Site, bits_for, field_wires
from hwgen.obligations.observers import balance, patience, probed, register
from hwgen.obligations.streams import held

#: Maximum number of drained jobs whose last word has not reached the output buffer yet.
MAX_OUTSTANDING = 255


def obligations(config: DrainControllerConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the drain controller: stream rules, counters, strides of groups, progress."""
    engine = config.engine
    return [
        ready_path(site),
        _selection_holds(engine, site),
        _counts(engine, site),
        _strides(engine, site),
        _progress(engine, site),
    ]


def _selection_holds(engine: EngineConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a selection of sums stays unchanged until the array accepts it."""
    select, note = Carrier("select", 0, select_layout(engine).size), site.carriers("note", note_layout(engine))
    widths = {each.name: each.width for each in (select, *note)}
    lines, facts = held("selection", "valid", "!yields", widths)
    stated = ["the selection stays valid", *(f"{name} stays" for name in widths)]
    return site.obligation(
        "stream",
        "A selection that the array ignores stays as it is.",
        methods=("pdr",),
        observer=tuple(lines),
        asserts=dict(zip(stated, facts.values(), strict=True)),
        cover="selection_waits & valid & !yields",
        free_memories=True,
    )


def _group_lines(engine: EngineConfig) -> tuple[list[str], dict[str, str]]:
    """Return a pair: observer lines (Verilog) that count complete pixel groups; assumption that each has a slot.

    ``waiting`` is the number of complete groups that are not being drained, ``held`` the number of those in slots.
    """
    slots = engine.slots
    lines = [
        *balance("waiting", slots + 1, "complete", "group_start"),
        *balance("held", slots + 1, "complete", "release_"),
    ]
    return lines, {"a group that is complete has a slot": f"!complete | (held < {slots})"}


#: Invariant of the drain controller's counter of complete pixel groups: it equals the observer's count.
_COUNTED = {"groups are counted": "(complete_groups == waiting) & (held == 32'd0 + waiting + valid)"}


def _counts(engine: EngineConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each pixel group and job is drained once, and that no counter overflows."""
    lines, rules = _group_lines(engine)
    width = Drain.layout(engine.variant).size
    begins = "job_start | job_skip"
    return site.obligation(
        "occupancy",
        "Each complete group is drained once, each part is drained or passed once, and no count over- or underflows.",
        observer=(
            *lines,
            *job_queue(width, begins),
            *field_wires(Drain.layout(engine.variant), ("blocks", "pixels"), "pending", "next"),
            "wire is_empty = (next_blocks == 0) | (next_pixels == 0);",
            "wire ends = beat_selected & is_job_end;",
            *balance("outstanding", MAX_OUTSTANDING + 1, "ends", "finished"),
            *register("jobs", f"jobs + (({begins}) & is_empty) + finished", COUNT_BITS),
        ),
        assumes={
            **rules,
            "a job is finished if its last beat left": "!finished | (outstanding != 0)",
            f"at most {MAX_OUTSTANDING} jobs are not finished": (
                f"!ends | finished | (outstanding < {MAX_OUTSTANDING})"
            ),
        },
        invariants={
            **_COUNTED,
            "a part waits in its register": "(has_pending == !jobs__ready) & (!has_pending | (next_job == pending))",
            "a part that can start is known": "!is_next_job_ready | (has_pending & (is_next_job_empty == is_empty))",
            "jobs are counted": "outstanding_jobs == outstanding",
        },
        asserts={
            "no more groups wait than have slots": f"held <= {engine.slots}",
            "a group is drained that is complete": "!group_start | (waiting != 0)",
            "a slot is released with a group's last beat": "!release_ | (valid & !yields & (held != 0))",
            "a part is drained, or passed if it is empty": (
                "(!job_start | (has_pending & !is_empty)) & (!job_skip | (has_pending & is_empty))"
            ),
            "an empty part is passed when all jobs before it are finished": "!job_skip | (outstanding == 0)",
            "drained jobs are counted": "drained == jobs",
        },
        cover=f"(waiting == {engine.slots - 1}) & valid",
        free_memories=True,
    )  # fmt: skip


def _strides(engine: EngineConfig, site: Site) -> Obligation:
    """Return the `Obligation` that a pixel group is drained with the lane stride that was stored at its start.

    The observer follows one arbitrary slot.
    """
    width, probe = bits_for(engine.slots - 1), probed(site, strides=(engine.slots, 3, "mark"))
    return site.obligation(
        "tokens",
        "A group is drained from the slot after the previous group's, with the stride it was opened with.",
        observer=(
            f"wire {width} mark = $anyconst;",
            "reg is_marked = 0; reg [2:0] value; reg is_drained = 0; reg [2:0] drained_value;",
            f"reg {width} following = 0;",
            f"wire {width} slot_now = select{width};",
            "always @(posedge clk) begin",
            "    following <= rst ? 0 : following + group_start;",
            "    if (opens & (slot == mark)) begin is_marked <= 1; value <= stride; end",
            "    if (group_start) begin is_drained <= is_marked & (following == mark); drained_value <= value; end",
            "    if (rst) begin is_marked <= 0; is_drained <= 0; end",
            "end",
            f"reg was_started = 0; reg {width} was_following;",
            "always @(posedge clk) begin was_started <= group_start & !rst; was_following <= following; end",
        ),
        invariants={
            "slots are counted": "next_slot_index == following",
            "the slot has its stride": "!is_marked | (strides_word == value)",
        },
        asserts={
            "a group has the stride of its slot": "!is_drained | (group_stride == drained_value)",
            "groups are in slots in turn": "!was_started | (slot_now == was_following)",
        },
        cover="is_drained & valid & (drained_value == 3)",
        **probe,
    )


def _progress(engine: EngineConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` that a complete pixel group of a job that may be drained is selected in time."""
    lines, rules = _group_lines(engine)
    bound = DrainController.FETCH
    layout = Drain.layout(engine.variant)
    names = ("blocks", "pixels", "wait_stored")
    return site.obligation(
        "progress",
        f"While a complete group has a job that may be drained, at most {bound - 1} cycles pass without a selection.",
        methods=("pdr",),
        observer=(
            *lines,
            *field_wires(layout, names, "next_job", "next"),
            f"wire [{COUNT_BITS - 1}:0] margin = stored - next_wait_stored;",
            "wire can_start = has_more_groups | (!jobs__ready & (next_blocks != 0) & (next_pixels != 0) & "
            f"!margin[{COUNT_BITS - 1}]);",
            *patience("(waiting != 0) & !valid & can_start & !group_start", bound),
        ),
        assumes=rules,
        invariants=_COUNTED,
        asserts={
            "a group is selected in time": f"!is_idle | (idle < {bound - 1})",
        },
        cover="idle == 1",
        free_memories=True,
    )


PROOFS = {DrainControllerConfig: Proofs((obligations,), others=(DrainController,))}
