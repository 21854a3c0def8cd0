"""Obligations of an engine's load unit: its requests, and the jobs that they wait for."""

from __future__ import annotations

from hwgen.gateware.engine.job import Load
from hwgen.prove import engine_deal
from hwgen.prove.engine_units import LoadUnit, box_stays, field_bits, kept_streams, requests_inside
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["of_load"]


def of_load(unit: LoadUnit, site: Site) -> list[Obligation]:
    """Return the obligations of an engine's load unit: its stream of requests, and their boundaries."""
    part = dict(Load.layout(unit.engine.variant))
    flags = {"has_map": "x_blocks", "has_weights": "w_steps", "has_parameters": "p_words"}
    flags = {flag: name for flag, name in flags.items() if site.has(flag)}  # a map memory has maps alone
    known = [f"({flag} == ({field_bits('part__payload', part, name)} != 0))" for flag, name in flags.items()]
    held_part = {"the boxes of a part are known while it waits": f"!has_part | (part_waits & {' & '.join(known)})"}
    signals = {name: name for name in ("has_part", *flags)}
    dealt = engine_deal.of_deal(unit.engine, site)
    return [*kept_streams(unit, site), box_stays(site, signals, held_part), requests_inside(unit.engine, site), *dealt]
