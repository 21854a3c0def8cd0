"""Proof obligations of a bus wrapper's top module: the wires between board buses, bus shell and accelerator or engine.

The shell's signature says what is connected: its buses lead to ports of the wrapper, and its other members to ports of
the circuit that have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.engine_registers import BASE_BITS
from hwgen.gateware.bus.engine_shell import EngineWrapper
from hwgen.gateware.bus.shell import AcceleratorWrapper
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.obligations.composition import composition, domain_wires, has_port
from hwgen.obligations.obligation import Obligation, Proofs, Site

_SHELL = "shell"
#: Constant values at inputs of the wrapped circuit that nothing drives, by port; 0 for all others.
_CONSTANTS = {"weights_state__clear": 1}


@dataclass(frozen=True)
class WrapperUnit:
    """Top module of a bus wrapper as the subject of proofs: the configuration of the bus shell inside it."""

    shell: BusShellConfig


def wrapper_parts(unit: WrapperUnit) -> Mapping[str, BusShellConfig]:
    """Return a mapping from the bus shell's instance name in the wrapper to the `BusShellConfig`."""
    return {_SHELL: unit.shell}


def obligations(unit: WrapperUnit, site: Site) -> list[Obligation]:
    """Return a list of obligations that a wrapper's ports, bus shell and accelerator or engine are wired by name."""
    shell, circuit = unit.shell, unit.shell.circuit
    members = {tuple(map(str, path)): member for path, member in shell.signature.members.flatten()}
    wires, rules = _buses(shell, circuit, members, site)
    for path in members:
        inner, outer = _port(_SHELL, path), _port(circuit, path)
        if path[0] not in shell.prefixes and has_port(site, inner) and has_port(site, outer):
            wires[outer] = inner
    wires |= {port: net for port, net in domain_wires(site).items() if net == site.module.clock}
    wires["interrupt"] = f"{_SHELL}.interrupt"
    rules[f"{_SHELL}.rst"] = "!aresetn"
    by_software = f" | {_SHELL}.reset" if ("reset",) in members else ""
    rules[f"{circuit}.rst"] = f"!aresetn{by_software}"
    for port in _inputs(circuit, site):
        if port not in (*wires, *rules):
            rules[port] = str(_CONSTANTS.get(port.rpartition(".")[2], 0))
    statement = f"Buses are wires of the shell, and streams and signals between the shell and the {circuit} are wires."
    return composition(site, statement, wires, rules, cover=f"{_SHELL}.rst")


def _inputs(instance: str, site: Site) -> list[str]:
    """Return a list of the names ``INSTANCE.PORT`` of all input ports of an instance in the wrapper."""
    inner = site.modules[site.module.instances[instance]]
    return [f"{instance}.{name}" for name, port in inner.ports.items() if port.direction == "input"]


def _port(instance: str, path: Sequence[str]) -> str:
    return f"{instance}.{'__'.join(path)}"


def _buses(
    shell: BusShellConfig, circuit: str, members: Mapping[tuple[str, ...], object], site: Site
) -> tuple[dict[str, str], dict[str, str]]:
    """Return a pair of dicts, by port of the board's buses: wires that drive it, and Verilog expressions that do.

    A signal that the shell passes on unchanged leads to the circuit's bus of the same signals. An address of the
    circuit is within its program, whose page the shell adds. What neither drives is constant: 0, the response OKAY.
    """
    wires, rules = {}, {}
    same = _same_buses(shell, members)
    for path in members:
        if not (port := shell.port(path)):
            continue
        inner, page = _port(_SHELL, path), f"{_SHELL}.{path[-1]}_page"
        passed = _port(circuit, (same[path[0]], *path[1:])) if path[0] in same else ""
        if has_port(site, inner):
            wires[port] = inner
        elif has_port(site, page):
            rules[port] = f"{{{page}, {passed}[{BASE_BITS - 1}:0]}}"
        elif passed and has_port(site, passed):
            wires[port] = passed
        elif port in site.module.ports and site.module.ports[port].direction == "output":
            rules[port] = "0"
        if passed and has_port(site, inner) and has_port(site, passed):
            wires[passed] = inner
    return wires, rules


def _same_buses(shell: BusShellConfig, members: Mapping[tuple[str, ...], object]) -> dict[str, str]:
    """Return a dict by board bus: the circuit's bus with equal signals, which the shell passes on."""
    signals: dict[str, set[tuple[str, ...]]] = {}
    for name, *rest in members:
        signals.setdefault(name, set()).add(tuple(rest))
    return {
        bus: other
        for bus in shell.prefixes
        for other in signals
        if other not in shell.prefixes and signals[other] == signals[bus]
    }


PROOFS = {WrapperUnit: Proofs((obligations,), wrapper_parts, others=(Wrapper, AcceleratorWrapper, EngineWrapper))}
