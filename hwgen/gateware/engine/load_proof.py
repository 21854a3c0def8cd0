"""Proof obligations of the engine's load unit: its memory requests, and the jobs that they wait for."""

from __future__ import annotations

from hwgen.gateware.engine.bursts import box_burst_layout
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Load
from hwgen.gateware.engine.load import LoadUnit
from hwgen.gateware.engine.port import Target, read_layout, tag_layout
from hwgen.gateware.engine.units_proof import (
    ADDRESSES,
    LoadUnitConfig,
    box_stays,
    kept_streams,
    requests_inside,
    unit_parts,
)
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits, field_wires
from hwgen.obligations.observers import delayed, register


def obligations(unit: LoadUnitConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of the load unit: streams, burst boundaries, and the jobs that requests wait for."""
    part = dict(Load.layout(unit.engine.variant))
    flags = {"has_map": "x_blocks", "has_weights": "w_steps", "has_parameters": "p_words"}
    flags = {flag: name for flag, name in flags.items() if site.has(flag)}  # the map memory's load unit loads only maps
    known = [f"({flag} == ({field_bits('part__payload', part, name)} != 0))" for flag, name in flags.items()]
    held_part = {"the boxes of a part are known while it waits": f"!has_part | (part_waits & {' & '.join(known)})"}
    return [
        *kept_streams(unit, site),
        box_stays(site, held_part),
        requests_inside(unit.engine, site),
        _burst_waits_for_jobs(unit, site),
        *_dealing(unit.engine, site),
    ]


def _burst_waits_for_jobs(unit: LoadUnitConfig, site: Site) -> Obligation:
    """Return the `Obligation` that a load requests bursts only after the earlier jobs that it depends on are done.

    Therefore no operand is read before it is stored, and no buffer word is overwritten that a job still needs. If there
    is another load unit, a map also waits until that one has loaded all earlier jobs.
    """
    part = dict(Load.layout(unit.engine.variant))
    has_other = site.has("others_loaded")
    counters = ("computed", "stored", *(("others_loaded",) if has_other else ()))

    def allowed(payload: str, suffix: str) -> str:
        """Return the Verilog condition that counters ``NAME<suffix>`` have reached what a load part waits for."""
        rules = [f"({field_bits(payload, part, f'wait_{name}')} <= {name}{suffix})" for name in ("computed", "stored")]
        if has_other:
            rules.append(f"(({field_bits(payload, part, 'x_blocks')} == 0) | (num_parts <= others_loaded{suffix}))")
        return " & ".join(rules)

    return site.obligation(
        "contract",
        "A burst is requested only when the jobs that its part waits for are computed and stored.",
        observer=(
            *streams.waits(site, "part", "request"),
            *(line for name in counters for line in delayed(name, COUNT_BITS, name, 1, resets=True)),
            *register("num_parts", "num_parts + (part__valid & part__ready)", COUNT_BITS),
            "wire took = bursts.o__valid & bursts.o__ready;",
            *register("was_allowed", f"took & {allowed('part__payload', '')}"),
        ),
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


def _dealing(engine: EngineConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` that blocks go round-robin to a team's cores; empty with one core.

    Core c is member ``c % members`` of team ``c // members``. A box that is not dealt goes to all members, and a box
    without teams to all cores.
    """
    if not engine.has_cores:
        return []
    part, burst, request = Load.layout(engine.variant), dict(box_burst_layout(engine)), dict(read_layout(engine))
    tag, base = dict(tag_layout(engine)), request["tag"].offset
    new_block, new_team, new_box = (
        field_bits("bursts.o__payload", burst, name) for name in ("new_block", "new_team", "new_box")
    )
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
        f"((!has_teams_now | (({core} >> part_members) == team_now)) & "
        f"(!is_dealt_now | (({core} & last_member_now) == member_now)))"
        for core in range(engine.cores)
    ]
    inputs = site.streams("input")
    width = (engine.cores - 1).bit_length()
    observer = (
        *streams.waits(site, *inputs),
        *field_wires(part, names, "part__payload", "part"),
        "wire took = bursts.o__valid & bursts.o__ready;",
        f"wire is_dealt_now = {is_map} ? part_x_dealt : {is_weights} ? (part_w_blocks != 0) : part_p_dealt;",
        f"wire has_teams_now = {is_map} & (part_x_teams != 0);",
        f"wire [7:0] last_member_now = ((8'd1 << part_members) - 8'd1) & {(1 << width) - 1};",
        f"reg [{width - 1}:0] team_was; reg [{width - 1}:0] member_was;",
        f"wire [{width - 1}:0] team_now = {new_box} ? 0 : {new_team} ? next_team : team_was;",
        f"wire [{width - 1}:0] member_now = {new_team} ? 0 : {new_block} & is_dealt_now ? next_member : member_was;",
        f"wire [{width - 1}:0] next_team = team_was + 1;",
        f"wire [{width - 1}:0] next_member = member_was == last_member_now ? 0 : member_was + 1;",
        "always @(posedge clk) if (took) begin team_was <= team_now; member_was <= member_now; end",
        *delayed("cores", engine.cores, f"{{{', '.join(reversed(cores))}}}", 1),
        *register("was_taken", "took"),
        *register("has_begun", "has_begun | took"),
    )
    return [
        site.obligation(
            "tokens",
            "Blocks are dealt to the members of a team in turn, starting at the first; teams follow each other.",
            methods=("pdr",),
            observer=observer,
            sees={"state": "bursts.fsm_state", "flags": "bursts.new_flags"},
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
                "a box begins with a team": "(state == 0) | !flags[2] | bursts.is_new_team",
                "a box has a burst before the next ones": "has_begun | (state == 0) | flags[2]",
                "the current team and member are known": (
                    "!has_begun | ((team == team_was) & (member == member_was))"
                ),
                "the next team and member are known": (
                    "(state != 2) | flags[2] | ((team_after == next_team) & (member_after == next_member))"
                ),
            },
            asserts={
                "a burst goes to its cores": (
                    f"!was_taken | (request__payload[{low + engine.cores - 1}:{low}] == cores_was)"
                ),
            },
            cover=f"was_taken & (cores_was == {1 << (engine.cores - 1)})",
            keeps=("bursts",),
            free_memories=True,
        )
    ]  # fmt: skip


PROOFS = {
    LoadUnitConfig: Proofs((obligations,), unit_parts, {"": ADDRESSES}, (LoadUnit,)),
}
