"""Obligation of a load unit on an engine of several cores: each burst goes to the cores that its box is meant for."""

from __future__ import annotations

from hwgen.gateware.engine.bursts import box_burst
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Load
from hwgen.gateware.engine.port import Target, read_layout, tag_layout
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site
from hwgen.prove.engine.steps import field_wires

__all__ = ["of_deal"]


def of_deal(engine: EngineConfig, site: Site) -> list[Obligation]:
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
                "target": "target",
                **{
                    name: name
                    for name in (
                        "has_part", "has_map", "has_weights", "has_parameters", "is_dealt", "has_teams",
                        "last_member", "team_after", "member_after",
                    )
                },
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
