"""What the IP of a result is, for its description in IP-XACT and for the script that packages it in Vivado."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hwgen.emit import wrapper
from hwgen.gateware.bus.base import CONTROL, BusShellConfig, Space
from hwgen.gateware.bus.registers import SPACE_BYTES, Access, Field, Register

__all__ = ["ACCESS", "LIBRARY", "VENDOR", "VERSION", "Interface", "Ip", "fields_of", "ip_of"]

VENDOR, LIBRARY, VERSION = "hwgen", "user", "1.0"
#: IP-XACT has a word for each access (IEEE 1685-2009, accessType), but what clearing by ones does it says elsewhere.
ACCESS: Mapping[Access, str] = {
    "r": "read-only",
    "rw": "read-write",
    "w1c": "read-write",
    "w1s": "write-only",
    "w": "write-only",
}

#: Revisions are integers; those of Vivado's own tools have up to ten digits.
_REVISION_BITS = 31
_SOURCES = (".v", ".mem")
#: Ports that are an interface by themselves: its type, mode and signal.
_SINGLE = {
    "aclk": ("signal:clock", "slave", "CLK"),
    "aresetn": ("signal:reset", "slave", "RST"),
    "interrupt": ("signal:interrupt", "master", "INTERRUPT"),
}


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Ports of the module that belong together.

    Parameters
    ----------
    name : str
    kind : str
        Library and name of its type among Vivado's definitions: ``interface:axis``, ``signal:clock``.
    mode : str
        ``master`` or ``slave``.
    ports : mapping
        The port of each signal, by the signal's name in the type.
    parameters : mapping
        What Vivado should know of it.
    """

    name: str
    kind: str
    mode: str
    ports: Mapping[str, str]
    parameters: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Ip:
    """An IP: a bus wrapper with what belongs to it.

    Parameters
    ----------
    name, description : str
        Its module, and what it is in a sentence.
    revision : int
        From the build hash, so that a design that was built anew is seen to be another.
    sources, software : tuple of str
        Files that it is made of (Verilog, memories), and those that software needs, in order.
    ports : mapping
        Direction and width of each port of the module, in order.
    interfaces : tuple of Interface
        Each port is in one.
    spaces : tuple of Space
    registers : tuple of Register
        Seen through the interface `control`, in `bytes` of addresses.
    """

    name: str
    description: str
    revision: int
    sources: tuple[str, ...]
    software: tuple[str, ...]
    ports: Mapping[str, wiring.Member]
    interfaces: tuple[Interface, ...]
    spaces: tuple[Space, ...]
    registers: tuple[Register, ...]
    control: str = CONTROL
    bytes: int = SPACE_BYTES


def ip_of(shell: BusShellConfig, top: str, names: Iterable[str]) -> Ip:
    """Return the IP of a bus wrapper.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        The module of the circuit in it.
    names : iterable of str
        Files of the module, its wrapper and what software needs: Verilog and memories become sources.
    """
    names = sorted(names)
    return Ip(
        name=wrapper.module(top),
        description=f"The {shell.title(top)}, written by hwgen; build hash 0x{shell.build_hash:016x}",
        revision=shell.build_hash % (1 << _REVISION_BITS),
        sources=tuple(each for each in names if each.endswith(_SOURCES)),
        software=tuple(each for each in names if not each.endswith(_SOURCES)),
        ports=shell.ports,
        interfaces=tuple(_interfaces(shell)),
        spaces=shell.spaces,
        registers=tuple(shell.registers),
    )


def fields_of(register: Register) -> tuple[Field, ...]:
    """Fields of a register but the one that is all of it."""
    return tuple(each for each in register.fields if each.name != "VALUE")


def _interfaces(shell: BusShellConfig) -> Iterator[Interface]:
    given, members = shell.parameters, shell.ports
    memories = {space.name for space in shell.spaces}
    masters = {*memories, *(end.name for end in shell.outputs)}
    busses: dict[str, dict[str, str]] = {}
    for port in members:
        if port not in _SINGLE:
            name, signal = port.rsplit("_", 1)
            busses.setdefault(name, {})[signal.upper()] = port
    for name, ports in busses.items():
        kind = "interface:aximm" if name in (CONTROL, *memories) else "interface:axis"
        mode = "master" if name in masters else "slave"
        yield Interface(name=name, kind=kind, mode=mode, ports=ports, parameters=given.get(name, {}))
    for port, (kind, mode, signal) in _SINGLE.items():
        assert (members[port].flow is Out) == (mode == "master")
        yield Interface(name=port, kind=kind, mode=mode, ports={signal: port}, parameters=given[port])
