"""Obligation ``wires`` of a convolution's arithmetic: its steps, weights and sums are those of the chains inside.

``sum`` states what the chains compute from their own ports. Here these ports are the arithmetic's: a chain gets the
step that the window sends, and each sum leaves at its place. ``weights`` states the words that the chains get.
"""

from __future__ import annotations

from hwgen.gateware.multiply import MultiplyConfig
from hwgen.obligations.composition import composition, domain_wires
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site

__all__ = ["of_convolution"]


def of_convolution(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return the obligation that a convolution's steps and sums are those of its component `Chains`, if it has one.

    Words of weights that can be loaded are left out: no obligation states them.
    """
    if not config.has_chains:
        return []
    wires = domain_wires(site)
    for port in ("i__payload", "i__valid"):
        wires[f"chains.{port}"] = port
    for port in ("o__payload", "o__valid"):
        wires[port] = f"chains.{port}"
    if config.loaded:
        statement = "Steps and sums of the convolution are those of its chains."
        return [site.obligation("wires", statement, methods=("structure",), structure={"wires": wires})]
    statement = "Steps, weights and sums of the convolution are those of its chains, and no port is left out."
    words = [f"chains.{name}" for name in site.part("chains").module.ports if name.startswith("word_")]
    reads = [f"{name}.{port}" for name in site.memories for port in site.module.connections[name] if port != "clk"]
    return composition(site, statement, wires, {}, others=(*words, *reads))
