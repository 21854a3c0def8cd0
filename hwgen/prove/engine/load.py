"""Obligations of an engine's load unit: its requests, and the jobs that they wait for."""

from __future__ import annotations

from hwgen.gateware.engine.job import COUNT_BITS, Load
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site
from hwgen.prove.engine import deal
from hwgen.prove.engine.units import LoadUnit, box_stays, field_bits, kept_streams, requests_inside

__all__ = ["of_load"]


def of_load(unit: LoadUnit, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's load unit: its requests, their boundaries, and what they wait for."""
    part = dict(Load.layout(unit.engine.variant))
    flags = {"has_map": "x_blocks", "has_weights": "w_steps", "has_parameters": "p_words"}
    flags = {flag: name for flag, name in flags.items() if site.has(flag)}  # a map memory has maps alone
    known = [f"({flag} == ({field_bits('part__payload', part, name)} != 0))" for flag, name in flags.items()]
    held_part = {"the boxes of a part are known while it waits": f"!has_part | (part_waits & {' & '.join(known)})"}
    signals = {name: name for name in ("has_part", *flags)}
    dealt = deal.of_deal(unit.engine, site)
    return [
        *kept_streams(unit, site),
        box_stays(site, signals, held_part),
        requests_inside(unit.engine, site),
        _waits(unit, site),
        *dealt,
    ]


def _waits(unit: LoadUnit, site: Site) -> Obligation:
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
