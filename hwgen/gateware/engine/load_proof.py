"""Obligations of an engine's load unit: its requests, and the jobs that they wait for."""

from __future__ import annotations

from hwgen.gateware.engine.bursts import box_burst
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Load
from hwgen.gateware.engine.load import LoadUnit
from hwgen.gateware.engine.port import Target, read_layout, tag_layout
from hwgen.gateware.engine.steps_proof import field_wires
from hwgen.gateware.engine.units_proof import (
    ADDRESSES,
    LoadUnitConfig,
    box_stays,
    field_bits,
    kept_streams,
    requests_inside,
    unit_parts,
)
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Proofs, Site, own

__all__ = ["PROOFS", "obligations"]


def obligations(unit: LoadUnitConfig, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's load unit: its requests, their boundaries, and what they wait for."""
    part = dict(Load.layout(unit.engine.variant))
    flags = {"has_map": "x_blocks", "has_weights": "w_steps", "has_parameters": "p_words"}
    flags = {flag: name for flag, name in flags.items() if site.has(flag)}  # a map memory has maps alone
    known = [f"({flag} == ({field_bits('part__payload', part, name)} != 0))" for flag, name in flags.items()]
    held_part = {"the boxes of a part are known while it waits": f"!has_part | (part_waits & {' & '.join(known)})"}
    return [
        *kept_streams(unit, site),
        box_stays(site, own("has_part", *flags), held_part),
        requests_inside(unit.engine, site),
        _waits(unit, site),
        *_deal(unit.engine, site),
    ]


def _waits(unit: LoadUnitConfig, site: Site) -> Obligation:
    """Return the obligation that a burst is requested only when the jobs that its part waits for are done.

    So no operand is read before it is stored, and no buffer word is overwritten that a job still needs. If there is
    another load unit, a map also waits until that one has loaded all earlier jobs.
    """
    part = dict(Load.layout(unit.engine.variant))
    has_other = site.has("others_loaded")
    counters = ("computed", "stored", *(("others_loaded",) if has_other else ()))

    def allowed(payload: str, suffix: str) -> str:
        """Return the Verilog expression that a part's jobs are done, by counters whose names end in ``suffix``."""
        rules = [f"({field_bits(payload, part, f'wait_{name}')} <= {name}{suffix})" for name in ("computed", "stored")]
        if has_other:
            rules.append(f"(({field_bits(payload, part, 'x_blocks')} == 0) | (num_parts <= others_loaded{suffix}))")
        return " & ".join(rules)

    return site.obligation(
        "contract",
        "A burst is requested only when the jobs that its part waits for are computed and stored.",
        methods=("induction", "pdr"),
        observer=(
            *streams.waits(site, "part", "request"),
            *(
                f"reg [{COUNT_BITS - 1}:0] {name}_was = 0; always @(posedge clk) {name}_was <= rst ? 0 : {name};"
                for name in counters
            ),
            f"reg [{COUNT_BITS - 1}:0] num_parts = 0;",
            "always @(posedge clk) num_parts <= rst ? 0 : num_parts + (part__valid & part__ready);",
            "wire took = burst_valid & burst_ready; reg was_allowed = 0;",
            f"always @(posedge clk) was_allowed <= !rst & took & {allowed('part__payload', '')};",
        ),
        sees={
            "burst_valid": "bursts.o__valid",
            "burst_ready": "bursts.o__ready",
            "conditions_met": "conditions_met",
            **({"job_index": "job_index"} if has_other else {}),
        },
        assumes={
            **streams.rules("part"),
            **{f"{name} never falls": f"{name} >= {name}_was" for name in counters},
        },
        invariants={
            "what a part waits for was done a cycle ago": (
                f"!conditions_met | (part_waits & {allowed('part_was', '_was')})"
            ),
            **({"parts are counted": "job_index == num_parts"} if has_other else {}),
        },
        asserts={"a request is of a part whose jobs are done": "!request__valid | request_waits | was_allowed"},
        cover=f"was_allowed & ({field_bits('part_was', part, 'wait_computed')} == 2)",
        keeps=("bursts",),
        free_memories=True,
    )


def _deal(engine: EngineConfig, site: Site) -> list[Obligation]:
    """Return the obligation that blocks are dealt to the members of a team in turn, and teams follow each other.

    Core c is member ``c % members`` of team ``c // members``. A box that is not dealt goes to all members, and a box
    without teams to all cores. None for an engine of one core.
    """
    if not engine.has_cores:
        return []
    part, burst, request = Load.layout(engine.variant), dict(box_burst(engine)), dict(read_layout(engine))
    tag, base = dict(tag_layout(engine)), request["tag"].offset
    flag = {name: f"burst[{burst[name].offset}]" for name in ("new_row", "new_block", "new_team", "new_box", "last")}
    low = base + tag["cores"].offset
    names = (
        "members",
        "x_dealt",
        "p_dealt",
        "w_blocks",
        "x_teams",
        "x_blocks",
        "w_steps",
        "p_words",
        "addend",
        "tables",
    )
    is_map = f"((target == {Target.MAP.value}) | (target == {Target.ADDEND.value}))"
    is_weights = f"(target == {Target.WEIGHTS.value})"
    cores = [
        f"((!has_teams_now | (({core} >> part_members) == team)) & "
        f"(!is_dealt_now | (({core} & last_member_now) == member)))"
        for core in range(engine.cores)
    ]
    inputs = site.streams("input")
    width = (engine.cores - 1).bit_length()
    observer = (
        *streams.waits(site, *inputs),
        *field_wires(part, names, "part__payload", "part"),
        "wire took = burst_valid & burst_ready;",
        f"wire is_dealt_now = {is_map} ? part_x_dealt : {is_weights} ? (part_w_blocks != 0) : part_p_dealt;",
        f"wire has_teams_now = {is_map} & (part_x_teams != 0);",
        f"wire [7:0] last_member_now = ((8'd1 << part_members) - 8'd1) & {(1 << width) - 1};",
        f"reg [{width - 1}:0] team_was; reg [{width - 1}:0] member_was;",
        f"wire [{width - 1}:0] team = {flag['new_box']} ? 0 : {flag['new_team']} ? next_team : team_was;",
        f"wire [{width - 1}:0] member = {flag['new_team']} ? 0 : {flag['new_block']} & is_dealt_now ? "
        "next_member : member_was;",
        f"wire [{width - 1}:0] next_team = team_was + 1;",
        f"wire [{width - 1}:0] next_member = member_was == last_member_now ? 0 : member_was + 1;",
        "always @(posedge clk) if (took) begin team_was <= team; member_was <= member; end",
        f"reg [{engine.cores - 1}:0] cores; reg was_taken = 0;",
        f"always @(posedge clk) begin was_taken <= took & !rst; cores <= {{{', '.join(reversed(cores))}}}; end",
        "reg has_begun = 0; always @(posedge clk) has_begun <= !rst & (has_begun | took);",
    )
    return [
        site.obligation(
            "tokens",
            "Blocks are dealt to the members of a team in turn, from the first one on, and teams follow each other.",
            methods=("pdr",),
            observer=observer,
            sees={
                "burst": "bursts.o__payload",
                "burst_valid": "bursts.o__valid",
                "burst_ready": "bursts.o__ready",
                "state": "bursts.fsm_state",
                "flags": "bursts.new_flags",
                "is_new_team": "bursts.is_new_team",
                **own(
                    "target", "has_part", "has_map", "has_weights", "has_parameters", "is_dealt", "has_teams",
                    "last_member", "team_after", "member_after",
                ),
                "seen_team": "team",
                "seen_member": "member",
            },
            assumes={
                **streams.rules(*inputs),
                "a team has at most all cores": f"!part__valid | (part_members <= {width})",
            },
            invariants={
                "the boxes of a part are known while it waits": (
                    "!has_part | (part_waits & (has_map == (part_x_blocks != 0)) & "
                    "(has_weights == (part_w_steps != 0)) & (has_parameters == (part_p_words != 0)))"
                ),
                "bursts are of a part": "(state <= 2) & ((state == 0) | has_part)",
                "the present box is known": (
                    "(state != 2) | ((is_dealt == is_dealt_now) & (has_teams == has_teams_now) & "
                    f"(last_member == last_member_now[{width - 1}:0]))"
                ),
                "a box begins with a team": "(state == 0) | !flags[2] | is_new_team",
                "a box has a burst before the next ones": "has_begun | (state == 0) | flags[2]",
                "the present team and member are known": (
                    "!has_begun | ((seen_team == team_was) & (seen_member == member_was))"
                ),
                "the next team and member are known": (
                    "(state != 2) | flags[2] | ((team_after == next_team) & (member_after == next_member))"
                ),
            },
            asserts={
                "a burst goes to its cores": (
                    f"!was_taken | (request__payload[{low + engine.cores - 1}:{low}] == cores)"
                ),
            },
            cover=f"was_taken & (cores == {1 << (engine.cores - 1)})",
            keeps=("bursts",),
            free_memories=True,
        )
    ]  # fmt: skip


PROOFS = {
    LoadUnitConfig: Proofs((obligations,), unit_parts, {"": ADDRESSES}, (LoadUnit,)),
}
