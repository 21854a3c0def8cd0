"""Catalogue of an engine's proof obligations: which kinds each class of component has, and the parts of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig
from hwgen.gateware.bus.engine_shell import EngineShellConfig
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
from hwgen.prove import checksums, resets, wiring
from hwgen.prove.engine import (
    bursts,
    check,
    core,
    drain,
    fetch,
    load,
    maps,
    port,
    scaling,
    steps,
    store,
    two_maps,
    units,
    wires,
)

__all__ = ["ENGINE_KINDS", "ENGINE_PARTS"]

#: Kinds of obligations by class of configuration. An addition is a new file and a line here.
ENGINE_KINDS: dict[type, tuple[Kind, ...]] = {
    EngineDesign: (wires.of_engine, resets.obligations),
    ScaleConfig: (scaling.of_scale, resets.obligations),
    BoundConfig: (scaling.of_bound, resets.obligations),
    MapProductConfig: (two_maps.of_map_product, resets.obligations),
    TableAddConfig: (two_maps.of_table_add, resets.obligations),
    MemorySideConfig: (wires.of_memory_side, resets.obligations),
    units.PortUnit: (port.of_port, resets.obligations),
    units.FetchUnit: (fetch.of_fetch, resets.obligations),
    fetch.PartQueueUnit: (fetch.of_part_queue, resets.obligations),
    units.LoadUnit: (load.of_load, resets.obligations),
    units.StoreUnit: (store.of_store, resets.obligations),
    check.CheckUnit: (check.of_check, wiring.of_domain, resets.obligations),
    CoreConfig: (core.of_core, resets.obligations),
    StepsConfig: (steps.of_steps, resets.obligations),
    DrainWalkConfig: (drain.of_drain, resets.obligations),
    MapMemoryConfig: (maps.of_map_memory, wiring.of_domain, resets.obligations),
    units.BurstUnit: (bursts.of_bursts, resets.obligations),
}

#: Components inside of a component, by its class of configuration: a function that returns them by instance.
ENGINE_PARTS: dict[type, Callable[[Any], Mapping[str, Any]]] = {
    EngineShellConfig: lambda shell: {"registers": shell.bank},
    EngineDesign: units.engine_parts,
    FinishConfig: two_maps.finish_parts,
    MemorySideConfig: units.memory_side_parts,
    CoreConfig: core.core_parts,
    check.CheckUnit: lambda _: {"crc": checksums.ChecksumUnit(WORD_BITS)},
    MapMemoryConfig: maps.map_memory_parts,
    units.PortUnit: port.port_parts,
    units.FetchUnit: fetch.fetch_parts,
    units.LoadUnit: units.unit_parts,
    units.StoreUnit: store.store_parts,
}
