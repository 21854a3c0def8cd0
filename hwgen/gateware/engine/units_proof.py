"""Proof obligations that units of the engine's memory side share: rules of streams and of AXI4 bursts.

Arm IHI 0022, chapters A2 and A3: no burst crosses a boundary of 4 KiB or has more than 256 beats. Requests of the units
keep the boundary; the port passes them on unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hwgen.gateware.engine.axi import BORDER_BYTES, MAX_BEATS
from hwgen.gateware.engine.bursts import request_layout
from hwgen.gateware.engine.check_proof import CheckUnit
from hwgen.gateware.engine.config import LANES, EngineConfig, numbered
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.obligations import streams
from hwgen.obligations.obligation import Obligation, Site, field_bits
from hwgen.obligations.streams import held

#: Reason, shown in proof reports, why no property covers the buffer addresses of loaded words.
ADDRESSES = "where it writes words in the buffers is simulated"


@dataclass(frozen=True)
class Unit:
    """Base class of the proofs' configurations of the engine's memory side units: each holds the `EngineConfig`."""

    engine: EngineConfig


class PortUnitConfig(Unit):
    """Configuration of the engine's memory port (`MemoryPort`) for its proofs: the engine's configuration."""


class FetchUnitConfig(Unit):
    """Configuration of the unit that fetches jobs (`FetchUnit`) for its proofs: the engine's configuration."""


class LoadUnitConfig(Unit):
    """Configuration of the unit that loads operands (`LoadUnit`) for its proofs: the engine's configuration."""


class BurstUnitConfig(Unit):
    """Configuration of the burst generator (`Bursts`) for its proofs: the engine's configuration."""


@dataclass(frozen=True)
class StoreUnitConfig(Unit):
    """Configuration of the store unit for its proofs: the engine's, and the output buffer's read latency in cycles."""

    read_latency: int


def engine_parts(design: EngineDesign) -> dict[str, Any]:
    """Return, as a dictionary by instance name, the configurations of an engine's components that have proofs."""
    finishes = dict.fromkeys(numbered(design.engine, "finish"), design.finish)
    return {"memory_side": design.memory_side, "core": design.core, **finishes}


def memory_side_parts(config: MemorySideConfig) -> dict[str, Any]:
    """Return, as a dict by instance name, the configurations of the engine's memory side units that have proofs."""
    engine = config.engine
    kept = {"load_kept": LoadUnitConfig(engine.row_engine), "map_memory": MapMemoryConfig(engine=engine)}
    return {
        "port": PortUnitConfig(engine),
        "fetch": FetchUnitConfig(engine),
        "load": LoadUnitConfig(engine),
        "store": StoreUnitConfig(engine, config.read_latency),
        "check": CheckUnit(engine),
        **(kept if engine.has_map_memory else {}),
    }


def unit_parts(unit: Unit) -> dict[str, Any]:
    """Return a dict by instance name: the configuration of a unit's only component with proofs, the burst generator."""
    return {"bursts": BurstUnitConfig(unit.engine)}


def kept_streams(unit: Unit, site: Site, without: str = "") -> list[Obligation]:
    """Return a list of obligations: a unit's output streams are stable until accepted; its instances are kept."""
    kept = tuple(site.module.instances)
    return [replace(rule, keeps=kept) for rule in streams.of_streams(unit, site, without)]


def within_boundary(config: EngineConfig, payload: str) -> str:
    """Return the Verilog expression that a request (`request_layout`) has at most 256 beats, within 4 KiB."""
    fields = request_layout(config)
    beats, address = field_bits(payload, fields, "beats"), f"{payload}[{(BORDER_BYTES // LANES).bit_length() - 2}:0]"
    narrow = f"(32'd0 + {address} * {LANES} + {beats} * {min(LANES, config.bus_bytes)} <= {BORDER_BYTES})"
    ends = narrow
    if config.bus_words > 1:
        start = f"(({address} >> {config.lane_bits}) << {config.lane_bits})"
        wide = f"(32'd0 + {start} * {LANES} + {beats} * {config.bus_bytes} <= {BORDER_BYTES})"
        ends = f"({payload}[{fields['wide'].offset}] ? {wide} : {narrow})"
    return f"(({beats} == 0) | (({beats} <= {MAX_BEATS}) & {ends}))"


def box_stays(site: Site, invariants: Mapping[str, str]) -> Obligation:
    """Return the `Obligation` that a unit holds a memory region (box) at its burst generator until it is accepted."""
    bursts = site.part("bursts").module
    lines, facts = held("box", "bursts.i__valid", "bursts.i__ready", {"box": bursts.ports["i__payload"].width})
    inputs = site.streams("input")
    return site.obligation(
        "stream",
        "A box stays as it is until the burst generator has walked it.",
        observer=(*lines, *streams.waits(site, *inputs)),
        sees={"box": "bursts.i__payload"},
        assumes=streams.rules(*inputs),
        invariants=invariants,
        asserts=facts,
        cover="box_waits & bursts.i__valid",
        keeps=("bursts",),
        free_memories=True,
    )


def requests_inside(config: EngineConfig, site: Site, **fields: Any) -> Obligation:
    """Return the proof `Obligation` that a unit's burst requests cross no 4 KiB boundary and have at most 256 beats."""
    inputs = site.streams("input")
    return site.obligation(
        "bus",
        "No requested burst crosses a boundary of 4 KiB, or has more than 256 beats.",
        methods=("pdr",),
        observer=streams.waits(site, *inputs),
        assumes=streams.rules(*inputs),
        asserts={
            "a request is inside 4 KiB": f"!request__valid | {within_boundary(config, 'request__payload')}",
        },
        cover="request__valid & !request__ready",
        keeps=tuple(site.module.instances),
        free_memories=True,
        **fields,
    )
