"""Catalogue of proof obligations: which kinds each class of component has, and the obligations of a whole design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig
from hwgen.gateware.average import FloatSumConfig, SumConfig
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.repack import RepackConfig
from hwgen.gateware.bus.shell import ShellConfig
from hwgen.gateware.channel_table import ChannelTableConfig
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
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.pyramid.reuse import PyramidReuseBufferConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig
from hwgen.prove import (
    bus,
    bus_wrapper,
    checksums,
    constant_sums,
    contracts,
    credits,
    dots,
    elementwise,
    engine_bursts,
    engine_check,
    engine_core,
    engine_drain,
    engine_elementwise,
    engine_fetch,
    engine_load,
    engine_maps,
    engine_port,
    engine_steps,
    engine_store,
    engine_units,
    engine_wires,
    float_sums,
    guarding,
    loading,
    occupancy,
    pooling,
    products,
    progress,
    pyramids,
    queues,
    repacking,
    requantisation,
    resets,
    reuse,
    scaling,
    streams,
    sums,
    thresholds,
    tiles,
    timing,
    tokens,
    weight_words,
    whole_maps,
    windows,
    wiring,
)
from hwgen.prove.modules import VerilogModule, modules_of
from hwgen.prove.obligation import Obligation
from hwgen.prove.queues import QueueConfig
from hwgen.prove.site import Site

__all__ = ["CATALOGUE", "PARTS", "Kind", "obligations", "of_component", "sites"]

Kind = Callable[[Any, Site], list[Obligation]]
"""Type of a kind of obligation: ``kind(config, site)`` returns those of the component that is emitted at a site."""

#: Kinds of obligations by class of configuration. An addition is a new file and a line here.
CATALOGUE: dict[type, tuple[Kind, ...]] = {
    GuardConfig: (
        streams.obligations,
        guarding.tokens_of_guard,
        guarding.progress_of_guard,
        resets.obligations,
    ),
    FifoConfig: (
        streams.obligations,
        occupancy.of_fifo,
        tokens.of_fifo,
        progress.of_fifo,
        timing.of_fifo,
        resets.obligations,
    ),
    JoinConfig: (tokens.of_join, progress.of_join, resets.obligations),
    RegroupConfig: (
        streams.obligations,
        occupancy.of_regroup,
        tokens.of_regroup,
        progress.of_regroup,
        timing.of_regroup,
        resets.obligations,
    ),
    RepackConfig: (streams.obligations, repacking.obligations, resets.obligations),
    UnloadConfig: (occupancy.of_unload, tokens.of_unload, timing.of_unload, resets.obligations),
    LoaderConfig: (loading.of_loader, resets.obligations),
    DistributeConfig: (loading.of_distribute, resets.obligations),
    LineBufferConfig: (windows.of_line_buffer, resets.obligations),
    PyramidBufferConfig: (tiles.of_tile_buffer, resets.obligations),
    PyramidReuseBufferConfig: (streams.obligations, reuse.of_reuse_buffer, resets.obligations),
    **dict.fromkeys(
        (LayerConfig, PyramidLayerConfig),
        (
            wiring.of_layer,
            contracts.of_layer,
            credits.obligations,
            products.of_layer,
            dots.of_layer,
            sums.of_layer,
            constant_sums.of_layer,
            weight_words.of_layer,
            requantisation.of_layer,
            thresholds.of_layer,
            tokens.of_last_stage,
            resets.obligations,
            resets.of_arithmetic,
        ),
    ),
    pyramids.WindowUnit: (pyramids.of_window, resets.obligations),
    CollectLayerConfig: (wiring.of_layer,),
    ReorderLayerConfig: (wiring.of_layer,),
    RunningScaleLayerConfig: (wiring.of_layer,),
    MaxPoolConfig: (pooling.of_max_pool,),
    SumConfig: (pooling.of_sum,),
    FloatSumConfig: (float_sums.of_float_sum,),
    FloatJoinConfig: (float_sums.of_float_join,),
    RunningSumConfig: (pooling.of_running_sum,),
    WholeMapConfig: (whole_maps.of_whole_map, resets.obligations),
    TableSumConfig: (elementwise.of_table_sum,),
    ProductConfig: (elementwise.of_product,),
    ExtremeConfig: (elementwise.of_extreme,),
    RecodeConfig: (elementwise.of_recode,),
    ChannelTableConfig: (elementwise.of_channel_table,),
    AcceleratorConfig: (wiring.of_accelerator,),
    BankConfig: (bus.of_bank, resets.obligations),
    ShellConfig: (bus.of_shell, resets.obligations),
    bus_wrapper.WrapperUnit: (bus_wrapper.obligations,),
    QueueConfig: (queues.obligations, resets.obligations),
    EngineDesign: (engine_wires.of_engine, resets.obligations),
    ScaleConfig: (scaling.of_scale, resets.obligations),
    BoundConfig: (scaling.of_bound, resets.obligations),
    MapProductConfig: (engine_elementwise.of_map_product, resets.obligations),
    TableAddConfig: (engine_elementwise.of_table_add, resets.obligations),
    MemorySideConfig: (engine_wires.of_memory_side, resets.obligations),
    engine_units.PortUnit: (engine_port.of_port, resets.obligations),
    engine_units.FetchUnit: (engine_fetch.of_fetch, resets.obligations),
    engine_fetch.PartQueueUnit: (engine_fetch.of_part_queue, resets.obligations),
    engine_units.LoadUnit: (engine_load.of_load, resets.obligations),
    engine_units.StoreUnit: (engine_store.of_store, resets.obligations),
    engine_check.CheckUnit: (engine_check.of_check, resets.obligations),
    CoreConfig: (engine_core.of_core, resets.obligations),
    StepsConfig: (engine_steps.of_steps, resets.obligations),
    DrainWalkConfig: (engine_drain.of_drain, resets.obligations),
    checksums.ChecksumUnit: (checksums.of_checksum, resets.obligations),
    MapMemoryConfig: (engine_maps.of_map_memory, resets.obligations),
    engine_units.BurstUnit: (engine_bursts.of_bursts, resets.obligations),
}

#: Components inside of a component, by its class of configuration: a function that returns them by instance.
PARTS: dict[type, Callable[[Any], Mapping[str, Any]]] = {
    AcceleratorConfig: wiring.accelerator_parts,
    LayerConfig: lambda layer: layer.components,
    PyramidLayerConfig: pyramids.layer_parts,
    pyramids.WindowUnit: pyramids.window_parts,
    ShellConfig: bus.shell_parts,
    bus_wrapper.WrapperUnit: bus_wrapper.wrapper_parts,
    EngineShellConfig: lambda shell: {"registers": shell.bank},
    EngineDesign: engine_units.engine_parts,
    FinishConfig: engine_elementwise.finish_parts,
    MemorySideConfig: engine_units.memory_side_parts,
    CoreConfig: engine_core.core_parts,
    LoaderConfig: lambda _: {"crc": checksums.ChecksumUnit(PART_BITS)},
    engine_check.CheckUnit: lambda _: {"crc": checksums.ChecksumUnit(WORD_BITS)},
    MapMemoryConfig: engine_maps.map_memory_parts,
    engine_units.PortUnit: engine_port.port_parts,
    engine_units.FetchUnit: engine_fetch.fetch_parts,
    engine_units.LoadUnit: engine_units.unit_parts,
    engine_units.StoreUnit: engine_store.store_parts,
}


def of_component(config: Any, site: Site) -> list[Obligation]:
    """Return the obligations of one component, without those of the components inside."""
    kinds = next((CATALOGUE[base] for base in type(config).__mro__ if base in CATALOGUE), ())
    return [obligation for kind in kinds for obligation in kind(config, site)]


def obligations(config: Any, top: str, verilog: str) -> list[Obligation]:
    """Return all obligations of a design.

    Parameters
    ----------
    config : AcceleratorConfig or other configuration
        Configuration of the design.
    top : str
        Name of the top module.
    verilog : str
        Text of the emitted Verilog file.
    """
    obligations = []
    for part, site in sites(config, top, modules_of(verilog)):
        obligations += of_component(part, site)
    return obligations


def sites(config: Any, top: str, modules: Mapping[str, VerilogModule]) -> Iterator[tuple[Any, Site]]:
    """Yield the configuration and the site of each component of a design that has a module of its own.

    ``modules`` are the modules of the emitted Verilog, and ``top`` is the name of the top module.
    """
    yield from _inside(config, Site("", modules[top], modules))


def _inside(config: Any, site: Site) -> Iterator[tuple[Any, Site]]:
    """Yield a component's configuration and site, and those of the components inside."""
    yield config, site
    parts = next((PARTS[base] for base in type(config).__mro__ if base in PARTS), None)
    for name, part in (parts(config) if parts else {}).items():
        if (inner := site.inner(name)) is not None:
            yield from _inside(part, inner)
