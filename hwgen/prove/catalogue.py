"""Catalogue of proof obligations: which kinds each class of component has, and the obligations of a whole design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hwgen.gateware import (
    checksum_proof,
    credits_proof,
    elementwise_proof,
    fifo_proof,
    float_sums_proof,
    guard_proof,
    join_proof,
    last_stage_proof,
    layer_proof,
    line_buffer_proof,
    lut_products_proof,
    multiply_proof,
    pooling_proof,
    regroup_proof,
    unload_proof,
    upsample_proof,
    weight_words_proof,
    whole_map_proof,
    wiring_proof,
)
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.arithmetic import scale_proof
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import ScaleConfig
from hwgen.gateware.average import FloatSumConfig, SumConfig
from hwgen.gateware.bus import lite_proof, repack_proof, shell_proof, wrapper_proof
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.repack import RepackConfig
from hwgen.gateware.bus.shell import ShellConfig
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.engine import (
    bursts_proof,
    check_proof,
    core_proof,
    drain_proof,
    engine_proof,
    fetch_proof,
    finish_proof,
    load_proof,
    map_memory_proof,
    port_proof,
    queue_proof,
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
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load import distribute_proof, loader_proof
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.pyramid import buffer_proof, pyramid_layer_proof, reuse_proof
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
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig
from hwgen.obligations import obligation as documents
from hwgen.obligations.modules import VerilogModule, modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Kind, Site
from hwgen.obligations.streams import of_streams
from hwgen.prove import resets
from hwgen.prove.coverage import reasons_of

__all__ = ["CATALOGUE", "PARTS", "obligations", "of_component", "proofs", "sites"]

#: Kinds of obligations by class of configuration. An addition is a new file and a line here.
CATALOGUE: dict[type, tuple[Kind, ...]] = {
    GuardConfig: (guard_proof.obligations, resets.obligations),
    FifoConfig: (fifo_proof.obligations, resets.obligations),
    JoinConfig: (join_proof.obligations, resets.obligations),
    UpsampleConfig: (upsample_proof.obligations, resets.obligations),
    RegroupConfig: (regroup_proof.obligations, resets.obligations),
    RepackConfig: (of_streams, repack_proof.obligations, resets.obligations),
    UnloadConfig: (unload_proof.obligations, resets.obligations),
    LoaderConfig: (loader_proof.obligations, wiring_proof.of_domain, resets.obligations),
    DistributeConfig: (distribute_proof.obligations, resets.obligations),
    LineBufferConfig: (line_buffer_proof.obligations, resets.obligations),
    PyramidBufferConfig: (buffer_proof.obligations, resets.obligations),
    PyramidReuseBufferConfig: (of_streams, reuse_proof.obligations, resets.obligations),
    **dict.fromkeys(
        (LayerConfig, PyramidLayerConfig),
        (
            wiring_proof.of_layer,
            layer_proof.of_layer,
            credits_proof.obligations,
            last_stage_proof.of_layer,
            resets.obligations,
            resets.of_arithmetic,
        ),
    ),
    pyramid_layer_proof.WindowUnit: (pyramid_layer_proof.of_window, resets.obligations),
    MultiplyConfig: (
        multiply_proof.connections,
        lut_products_proof.of_convolution,
        multiply_proof.of_convolution,
        weight_words_proof.of_memories,
    ),
    CollectLayerConfig: (wiring_proof.of_layer_streams,),
    ReorderLayerConfig: (wiring_proof.of_layer_streams,),
    RunningScaleLayerConfig: (wiring_proof.of_layer_streams,),
    MaxPoolConfig: (pooling_proof.of_max_pool,),
    SumConfig: (pooling_proof.of_sum,),
    FloatSumConfig: (float_sums_proof.of_float_sum,),
    FloatJoinConfig: (float_sums_proof.of_float_join,),
    RunningSumConfig: (pooling_proof.of_running_sum,),
    WholeMapConfig: (whole_map_proof.obligations, resets.obligations),
    TableSumConfig: (elementwise_proof.of_table_sum,),
    ProductConfig: (elementwise_proof.of_product,),
    ExtremeConfig: (elementwise_proof.of_extreme,),
    RecodeConfig: (elementwise_proof.of_recode,),
    ChannelTableConfig: (elementwise_proof.of_channel_table,),
    AcceleratorConfig: (wiring_proof.of_accelerator,),
    BankConfig: (lite_proof.obligations, resets.obligations),
    ShellConfig: (shell_proof.obligations, resets.obligations),
    wrapper_proof.WrapperUnit: (wrapper_proof.obligations,),
    queue_proof.QueueConfig: (queue_proof.obligations, resets.obligations),
    checksum_proof.ChecksumUnit: (checksum_proof.obligations, resets.obligations),
    EngineDesign: (engine_proof.of_engine, resets.obligations),
    ScaleConfig: (scale_proof.of_scale, resets.obligations),
    BoundConfig: (scale_proof.of_bound, resets.obligations),
    MapProductConfig: (finish_proof.of_map_product, resets.obligations),
    TableAddConfig: (finish_proof.of_table_add, resets.obligations),
    MemorySideConfig: (engine_proof.of_memory_side, resets.obligations),
    units_proof.PortUnitConfig: (port_proof.obligations, resets.obligations),
    units_proof.FetchUnitConfig: (fetch_proof.obligations, resets.obligations),
    fetch_proof.PartQueueUnit: (fetch_proof.of_part_queue, resets.obligations),
    units_proof.LoadUnitConfig: (load_proof.obligations, resets.obligations),
    units_proof.StoreUnitConfig: (store_proof.obligations, resets.obligations),
    check_proof.CheckUnit: (check_proof.obligations, wiring_proof.of_domain, resets.obligations),
    CoreConfig: (core_proof.obligations, resets.obligations),
    StepsConfig: (steps_proof.obligations, resets.obligations),
    DrainWalkConfig: (drain_proof.obligations, resets.obligations),
    MapMemoryConfig: (map_memory_proof.obligations, wiring_proof.of_domain, resets.obligations),
    units_proof.BurstUnitConfig: (bursts_proof.obligations, resets.obligations),
}

#: Components inside of a component, by its class of configuration: a function that returns them by instance.
PARTS: dict[type, Callable[[Any], Mapping[str, Any]]] = {
    AcceleratorConfig: wiring_proof.accelerator_parts,
    LayerConfig: lambda layer: layer.components,
    PyramidLayerConfig: pyramid_layer_proof.layer_parts,
    pyramid_layer_proof.WindowUnit: pyramid_layer_proof.window_parts,
    ShellConfig: shell_proof.shell_parts,
    wrapper_proof.WrapperUnit: wrapper_proof.wrapper_parts,
    LoaderConfig: lambda _: {"crc": checksum_proof.ChecksumUnit(PART_BITS)},
    EngineShellConfig: lambda shell: {"registers": shell.bank},
    EngineDesign: units_proof.engine_parts,
    FinishConfig: finish_proof.finish_parts,
    MemorySideConfig: units_proof.memory_side_parts,
    CoreConfig: core_proof.core_parts,
    check_proof.CheckUnit: lambda _: {"crc": checksum_proof.ChecksumUnit(WORD_BITS)},
    MapMemoryConfig: map_memory_proof.map_memory_parts,
    units_proof.PortUnitConfig: port_proof.port_parts,
    units_proof.FetchUnitConfig: fetch_proof.fetch_parts,
    units_proof.LoadUnitConfig: units_proof.unit_parts,
    units_proof.StoreUnitConfig: store_proof.store_parts,
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


def proofs(config: Any, top: str, verilog: str) -> bytes:
    """Return the contents of ``TOP.proofs.json``: all obligations of a design, and why instances lack a property.

    Parameters
    ----------
    config : AcceleratorConfig or other configuration
        Configuration of the design.
    top : str
        Name of the top module; its file is ``TOP.v``.
    verilog : str
        Text of the emitted Verilog, with all modules that obligations need.
    """
    found = list(sites(config, top, modules_of(verilog)))
    listed = [obligation for part, site in found for obligation in of_component(part, site)]
    reasons = {name: reason for part, site in found for name, reason in reasons_of(part, site).items()}
    return documents.write(f"{top}.v", listed, reasons)


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
