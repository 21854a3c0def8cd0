"""Contents of a design's Vivado IP, for its IP-XACT description and for the script that packages it."""

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
#: IP-XACT's word for each kind of register access (IEEE 1685-2009, accessType). The element modifiedWriteValue states
#: what writing ones does.
ACCESS: Mapping[Access, str] = {
    "r": "read-only",
    "rw": "read-write",
    "w1c": "read-write",
    "w1s": "write-only",
    "w": "write-only",
}

#: Number of bits of an IP's revision. Vivado reads it as an integer of at most ten digits.
_REVISION_BITS = 31
#: Endings of the files that are sources of a Vivado IP.
_SOURCES = (".v", ".mem")
#: Ports of an IP that are an interface on their own, with the interface's type, mode and signal.
_SINGLE = {
    "aclk": ("signal:clock", "slave", "CLK"),
    "aresetn": ("signal:reset", "slave", "RST"),
    "interrupt": ("signal:interrupt", "master", "INTERRUPT"),
}


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Description of an interface of a Vivado IP: the module's ports that form one bus, clock, reset or interrupt.

    Parameters
    ----------
    name : str
        Name of the interface, the prefix of its ports.
    bus_type : str
        Library and name of the interface's type in Vivado: ``interface:axis``, ``signal:clock``.
    mode : str
        Role of the IP on the interface, ``master`` or ``slave``.
    ports : mapping
        Name of each port, by the name of its signal in the bus type.
    parameters : mapping
        Parameters of the interface for Vivado, such as the clock that it belongs to.
    """

    name: str
    bus_type: str
    mode: str
    ports: Mapping[str, str]
    parameters: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Ip:
    """Description of a bus wrapper as a Vivado IP: files, ports, interfaces and registers.

    Parameters
    ----------
    name : str
        Name of the wrapper's module.
    description : str
        Sentence that describes the IP.
    revision : int
        Revision of the IP, taken from the build hash. Vivado sees a changed design as another revision.
    sources : tuple of str
        Names of the Verilog and memory files, sorted.
    software : tuple of str
        Names of the files that drivers need, sorted.
    ports : mapping
        Direction and width in bits of each port of the module, in order.
    interfaces : tuple of Interface
        Interfaces of the IP. Every port belongs to one of them.
    spaces : tuple of Space
        Address spaces that the IP reads and writes as a master.
    registers : tuple of Register
        Registers of the IP, which the interface `control` reaches.
    control : str
        Name of the interface to the registers.
    bytes : int
        Size of the register space, in bytes.
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
    """Return the description of a bus wrapper as a Vivado IP.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the circuit's module, which the wrapper instantiates.
    names : iterable of str
        Names of the files of the IP. Verilog and memory files become sources, all others files for software.
    """
    names = sorted(names)
    return Ip(
        name=wrapper.module(top),
        description=f"The {shell.title(top)}, written by hwgen; build hash 0x{shell.build_hash:016x}",
        revision=shell.build_hash % (1 << _REVISION_BITS),
        sources=tuple(name for name in names if name.endswith(_SOURCES)),
        software=tuple(name for name in names if not name.endswith(_SOURCES)),
        ports=shell.ports,
        interfaces=tuple(_interfaces(shell)),
        spaces=shell.spaces,
        registers=tuple(shell.registers),
    )


def fields_of(register: Register) -> tuple[Field, ...]:
    """Return the fields of a hardware register, without a field that spans the whole register."""
    return tuple(field for field in register.fields if field.name != "VALUE")


def _interfaces(shell: BusShellConfig) -> Iterator[Interface]:
    """Yield the bus, clock, reset and interrupt interfaces of a bus wrapper.

    A bus consists of the ports with the same prefix.
    """
    parameters, members = shell.parameters, shell.ports
    memories = {space.name for space in shell.spaces}
    masters = {*memories, *(end.name for end in shell.outputs)}
    buses: dict[str, dict[str, str]] = {}
    for port in members:
        if port not in _SINGLE:
            name, signal = port.rsplit("_", 1)
            buses.setdefault(name, {})[signal.upper()] = port
    for name, ports in buses.items():
        bus_type = "interface:aximm" if name in (CONTROL, *memories) else "interface:axis"
        mode = "master" if name in masters else "slave"
        yield Interface(name=name, bus_type=bus_type, mode=mode, ports=ports, parameters=parameters.get(name, {}))
    for port, (bus_type, mode, signal) in _SINGLE.items():
        assert (members[port].flow is Out) == (mode == "master")
        yield Interface(name=port, bus_type=bus_type, mode=mode, ports={signal: port}, parameters=parameters[port])
