"""Catalogue of proof obligations: which kinds each class of component has, and the obligations of a whole design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.pyramid.pyramid_layer import PyramidLayerConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.unload import UnloadConfig
from hwgen.prove import (
    contracts,
    credits,
    occupancy,
    products,
    progress,
    requantisation,
    streams,
    tokens,
    windows,
    wiring,
)
from hwgen.prove.modules import VerilogModule, modules_of
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["CATALOGUE", "Kind", "obligations", "of_component", "sites"]

Kind = Callable[[Any, Site], list[Obligation]]
"""Type of a kind of obligation: ``kind(config, site)`` returns those of the component that is emitted at a site."""

#: Kinds of obligations by class of configuration. An addition is a new file and a line here.
CATALOGUE: dict[type, tuple[Kind, ...]] = {
    GuardConfig: (streams.obligations, tokens.of_guard, progress.of_guard),
    FifoConfig: (streams.obligations, occupancy.of_fifo, tokens.of_fifo, progress.of_fifo),
    JoinConfig: (tokens.of_join, progress.of_join),
    RegroupConfig: (streams.obligations, occupancy.of_regroup, tokens.of_regroup, progress.of_regroup),
    UnloadConfig: (occupancy.of_unload, tokens.of_unload),
    LineBufferConfig: (windows.of_line_buffer,),
    LayerConfig: (wiring.of_layer, contracts.of_layer, credits.obligations, products.of_layer, requantisation.of_layer),
    CollectLayerConfig: (wiring.of_layer,),
    PyramidLayerConfig: (wiring.of_layer,),
    ReorderLayerConfig: (wiring.of_layer,),
    RunningScaleLayerConfig: (wiring.of_layer,),
    AcceleratorConfig: (wiring.of_accelerator,),
}


def of_component(config: Any, site: Site) -> list[Obligation]:
    """Return the obligations of one component, without those of the components inside."""
    kinds = next((CATALOGUE[base] for base in type(config).__mro__ if base in CATALOGUE), ())
    return [obligation for kind in kinds for obligation in kind(config, site)]


def obligations(config: AcceleratorConfig, top: str, verilog: str) -> list[Obligation]:
    """Return all obligations of an accelerator.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator.
    top : str
        Name of the top module.
    verilog : str
        Text of the emitted Verilog file.
    """
    found = []
    for part, site in sites(config, top, modules_of(verilog)):
        found += of_component(part, site)
    return found


def sites(config: AcceleratorConfig, top: str, modules: Mapping[str, VerilogModule]) -> Iterator[tuple[Any, Site]]:
    """Yield the configuration and the place of each component of an accelerator that has a module of its own.

    ``modules`` are the modules of the emitted Verilog, and ``top`` is the name of the top module.
    """
    whole = Site("", modules[top], modules)
    yield config, whole
    for part, name in zip((*config.layers, *config.guards), wiring.layer_names(config), strict=True):
        if (site := whole.inner(name)) is None:
            continue
        yield part, site
        for inner, component in getattr(part, "components", {}).items():
            if (inside := site.inner(inner)) is not None:
                yield component, inside
