"""Catalogue of an engine's proof obligations: which kinds each class of component has, and the parts of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hwgen.gateware import checksum_proof
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine import (
    bursts_proof,
    check_proof,
    core_proof,
    drain_proof,
    engine_proof,
    fetch_proof,
    load_proof,
    map_memory_proof,
    port_proof,
    steps_proof,
    store_proof,
    units_proof,
)
from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.core import CoreConfig
from hwgen.gateware.engine.drain import DrainWalkConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.finish import FinishConfig
from hwgen.gateware.engine.job import WORD_BITS
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.map_product import MapProductConfig
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.gateware.engine.steps import StepsConfig
from hwgen.obligations.site import Kind
from hwgen.prove import resets, wiring
from hwgen.prove.engine import scaling, two_maps

__all__ = ["ENGINE_KINDS", "ENGINE_PARTS"]

#: Kinds of obligations by class of configuration. An addition is a new file and a line here.
ENGINE_KINDS: dict[type, tuple[Kind, ...]] = {
    EngineDesign: (engine_proof.of_engine, resets.obligations),
    ScaleConfig: (scaling.of_scale, resets.obligations),
    BoundConfig: (scaling.of_bound, resets.obligations),
    MapProductConfig: (two_maps.of_map_product, resets.obligations),
    TableAddConfig: (two_maps.of_table_add, resets.obligations),
    MemorySideConfig: (engine_proof.of_memory_side, resets.obligations),
    units_proof.PortUnit: (port_proof.obligations, resets.obligations),
    units_proof.FetchUnit: (fetch_proof.obligations, resets.obligations),
    fetch_proof.PartQueueUnit: (fetch_proof.of_part_queue, resets.obligations),
    units_proof.LoadUnit: (load_proof.obligations, resets.obligations),
    units_proof.StoreUnit: (store_proof.obligations, resets.obligations),
    check_proof.CheckUnit: (check_proof.obligations, wiring.of_domain, resets.obligations),
    CoreConfig: (core_proof.obligations, resets.obligations),
    StepsConfig: (steps_proof.obligations, resets.obligations),
    DrainWalkConfig: (drain_proof.obligations, resets.obligations),
    MapMemoryConfig: (map_memory_proof.obligations, wiring.of_domain, resets.obligations),
    units_proof.BurstUnit: (bursts_proof.obligations, resets.obligations),
}

#: Components inside of a component, by its class of configuration: a function that returns them by instance.
ENGINE_PARTS: dict[type, Callable[[Any], Mapping[str, Any]]] = {
    EngineShellConfig: lambda shell: {"registers": shell.bank},
    EngineDesign: units_proof.engine_parts,
    FinishConfig: two_maps.finish_parts,
    MemorySideConfig: units_proof.memory_side_parts,
    CoreConfig: core_proof.core_parts,
    check_proof.CheckUnit: lambda _: {"crc": checksum_proof.ChecksumUnit(WORD_BITS)},
    MapMemoryConfig: map_memory_proof.map_memory_parts,
    units_proof.PortUnit: port_proof.port_parts,
    units_proof.FetchUnit: fetch_proof.fetch_parts,
    units_proof.LoadUnit: units_proof.unit_parts,
    units_proof.StoreUnit: store_proof.store_parts,
}
