"""Obligations (properties to prove) of modules that only connect instances: each port has the stated source.

``wires`` reads the netlist. It fails for a port without a rule, so that no connection is left out. ``logic`` states the
values of the ports that are not wires, over the ports of instances whose outputs are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwgen.obligations.obligation import Obligation, Site


def domain_wires(site: Site) -> dict[str, str]:
    """Return a dict from an instance's clock or reset port to the module's port that must drive it."""
    wires, own = {}, site.module
    for instance, module in own.instances.items():
        inner = site.modules.get(module)
        resets = inner.resets if inner is not None else ()
        for port in own.connections[instance]:
            if port in ("clk", "aclk"):
                wires[f"{instance}.{port}"] = own.clock
            elif port in resets:
                wires[f"{instance}.{port}"] = port
    return wires


def has_port(site: Site, port: str) -> bool:
    """Return whether a port of the module, or of an instance in it (``INSTANCE.PORT``), was emitted."""
    instance, _, name = port.rpartition(".")
    return name in (site.module.connections.get(instance, {}) if instance else site.module.ports)


def composition(
    site: Site,
    statement: str,
    wires: Mapping[str, str],
    rules: Mapping[str, str],
    *,
    others: Sequence[str] = (),
    **fields: Any,
) -> list[Obligation]:
    """Return a list of obligations: each port of each instance in a module has the stated wire or expression.

    Parameters
    ----------
    site : Site
        The module, whose instances are all cut.
    statement : str
        Statement of the wires, in words.
    wires : mapping of str to str
        Ports, by a port that must be the same wire. Ports of instances are ``INSTANCE.PORT``.
    rules : mapping of str to str
        Verilog expressions over ports, by the port whose value they state.
    others : sequence of str, optional
        Ports whose value obligations of other kinds state.
    **fields
        Fields of the obligation ``logic``.
    """
    structure = {"composition": {"wires": dict(wires), "logic": [*rules, *others]}}
    obligations = [site.obligation("wires", statement, methods=("structure",), structure=structure)]
    return [*obligations, logic(site, rules, **fields)] if rules else obligations


def wired(site: Site, statement: str, wires: Mapping[str, str], kind: str = "wires") -> Obligation:
    """Return the proof `Obligation` that each port in ``wires`` is the same net as the port it maps to."""
    return site.obligation(kind, statement, methods=("structure",), structure={"wires": dict(wires)})


def logic(
    site: Site, rules: Mapping[str, str], *, cover: str = "", observer: Sequence[str] = (), **fields: Any
) -> Obligation:
    """Return the `Obligation` (property to prove) that ports equal their Verilog expressions in ``rules``.

    The cover is by default that a rule's value is not 0.
    """
    reached = cover or " | ".join(f"(({value}) != 0)" for value in rules.values())
    return site.obligation(
        "logic",
        "Every value between instances and at ports that is more than a wire equals its expression.",
        methods=("pdr",),
        # A search for a run needs a register.
        observer=("reg has_begun = 0;", "always @(posedge clk) has_begun <= 1;", *observer),
        asserts={f"{port} is {value}": f"{port} == ({value})" for port, value in rules.items()},
        cover=f"has_begun & ({reached})",
        **fields,
    )
