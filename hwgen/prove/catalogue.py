"""Catalogue of proofs: what each component class has to prove, and all obligations of a design."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from hwgen.gateware import (
    checksum_proof,
    elementwise_proof,
    fifo_proof,
    fixed_point_proof,
    float_sums_proof,
    guard_proof,
    join_proof,
    layer_proof,
    line_buffer_proof,
    multiply_proof,
    pooling_proof,
    regroup_proof,
    unload_proof,
    upsample_proof,
    whole_map_proof,
    wiring_proof,
)
from hwgen.gateware.arithmetic import scale_proof
from hwgen.gateware.bus import (
    engine_shell_proof,
    lite_proof,
    memory_ports_proof,
    repack_proof,
    shell_proof,
    wrapper_proof,
)
from hwgen.gateware.engine import (
    bursts_proof,
    check_proof,
    core_proof,
    drain_proof,
    engine_proof,
    fetch_proof,
    finish_proof,
    fixed_unit_proof,
    load_proof,
    map_memory_proof,
    port_proof,
    queue_proof,
    steps_proof,
    store_proof,
)
from hwgen.gateware.load import distribute_proof, loader_proof
from hwgen.gateware.pyramid import buffer_proof, pyramid_layer_proof, reuse_proof
from hwgen.gateware.serial import link_proof
from hwgen.obligations import obligation as documents
from hwgen.obligations import resets
from hwgen.obligations.modules import VerilogModule, modules_of
from hwgen.obligations.obligation import Obligation, Proofs, Site

#: Dictionary from class of configuration to its `Proofs`. To add some, write a file with ``PROOFS``, and a line here.
CATALOGUE: dict[type, Proofs] = {
    **guard_proof.PROOFS,
    **fifo_proof.PROOFS,
    **join_proof.PROOFS,
    **upsample_proof.PROOFS,
    **regroup_proof.PROOFS,
    **repack_proof.PROOFS,
    **unload_proof.PROOFS,
    **loader_proof.PROOFS,
    **distribute_proof.PROOFS,
    **line_buffer_proof.PROOFS,
    **buffer_proof.PROOFS,
    **reuse_proof.PROOFS,
    **layer_proof.PROOFS,
    **pyramid_layer_proof.PROOFS,
    **multiply_proof.PROOFS,
    **wiring_proof.PROOFS,
    **pooling_proof.PROOFS,
    **float_sums_proof.PROOFS,
    **whole_map_proof.PROOFS,
    **elementwise_proof.PROOFS,
    **fixed_point_proof.PROOFS,
    **lite_proof.PROOFS,
    **shell_proof.PROOFS,
    **engine_shell_proof.PROOFS,
    **memory_ports_proof.PROOFS,
    **wrapper_proof.PROOFS,
    **link_proof.PROOFS,
    **queue_proof.PROOFS,
    **checksum_proof.PROOFS,
    **engine_proof.PROOFS,
    **scale_proof.PROOFS,
    **finish_proof.PROOFS,
    **fixed_unit_proof.PROOFS,
    **port_proof.PROOFS,
    **fetch_proof.PROOFS,
    **load_proof.PROOFS,
    **store_proof.PROOFS,
    **check_proof.PROOFS,
    **core_proof.PROOFS,
    **steps_proof.PROOFS,
    **drain_proof.PROOFS,
    **map_memory_proof.PROOFS,
    **bursts_proof.PROOFS,
}


def proofs_of(configuration: type) -> Proofs:
    """Return the `Proofs` of a configuration's class: its own, or the nearest base class's, or else an empty one."""
    return next((CATALOGUE[base] for base in configuration.__mro__ if base in CATALOGUE), Proofs())


def of_component(config: Any, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of one component itself; components inside it add none."""
    proofs = proofs_of(type(config))
    kinds = (*proofs.kinds, resets.obligations) if proofs.kinds and proofs.resets else proofs.kinds
    return [obligation for kind in kinds for obligation in kind(config, site)]


def reasons_of(config: Any, site: Site) -> dict[str, str]:
    """Return a dict by path or ``PATH:PORT``: why a component, part of it or port has no functional property."""
    stated = proofs_of(type(config)).reasons
    texts = stated(config, site) if callable(stated) else stated
    names = ["", *site.all_instances]
    names += [f":{port}" for port in site.module.ports]
    names += [f"{name}:{port}" for name, ports in site.module.connections.items() for port in ports]
    return {
        f"{site.path}{'.' if site.path and name and not name.startswith(':') else ''}{name}": text
        for pattern, text in texts.items()
        for name in names
        if text and fnmatchcase(name, pattern) and name.count(".") == pattern.count(".")
    }


def obligations(config: Any, top: str, verilog: str) -> list[Obligation]:
    """Return a list of each proof `Obligation` of a design, from its configuration and its emitted Verilog.

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
    """Return ``TOP.proofs.json`` as bytes: a design's obligations, and why some instances have no property.

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
    """Yield (configuration, `Site`) of each component of a design that has its own Verilog module.

    ``modules`` are the modules of the emitted Verilog, and ``top`` is the name of the top module.
    """
    yield from _inner_components(config, Site("", modules[top], modules))


def _inner_components(config: Any, site: Site) -> Iterator[tuple[Any, Site]]:
    """Yield (configuration, `Site`) of a component, and of all components inside it that have proofs."""
    yield config, site
    for name, part in proofs_of(type(config)).components(config).items():
        if (inner := site.inner(name)) is not None:
            yield from _inner_components(part, inner)
