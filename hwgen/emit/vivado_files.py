"""Writer of the files for Vivado: IP description, IP packaging script, and project script.

`Ip` describes a bus wrapper as an IP once. ``component.xml`` describes it to Vivado's IP catalogue, in IP-XACT (IEEE
1685-2009, with the extensions that Vivado reads): ``component.xml.j2`` has the elements in the order of the schema,
because Vivado refuses any other order. ``package_ip.tcl`` lets Vivado package an equal IP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hwgen.boards import Board
from hwgen.devices.flow import ProjectHost
from hwgen.emit import constraints, wrapper
from hwgen.emit.texts import rendered, text
from hwgen.gateware.bus.base import CONTROL, AddressSpace, BusShellConfig, BusStream
from hwgen.gateware.bus.registers import REGISTER_BYTES, SPACE_BYTES, Access, Field, Register

#: Name of the IP-XACT description in a result folder. Vivado searches for files with this name.
COMPONENT = "component.xml"
#: Name of the IP-packaging script in a result folder.
PACKAGING = "package_ip.tcl"
#: Name of the Vivado project script in a result folder.
PROJECT = "project.tcl"

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

#: IP-XACT's modifiedWriteValue for each register access that does not store the ones that are written.
_MODIFIED_WRITE: Mapping[Access, str] = {"w1c": "oneToClear", "w1s": "oneToSet"}
#: IP-XACT's fileType of each file ending (IEEE 1685-2009). Other files are described by their ending.
_FILE_TYPES = {"v": "verilogSource", "c": "cSource", "h": "cSource"}


@dataclass(frozen=True)
class _View:
    """View of an IP in Vivado's catalogue: its name, its tool, and whether it lists the sources."""

    name: str
    environment: str
    has_sources: bool


_VIEWS = (
    _View("xilinx_anylanguagesynthesis", ":vivado.xilinx.com:synthesis", has_sources=True),
    _View("xilinx_anylanguagebehavioralsimulation", ":vivado.xilinx.com:simulation", has_sources=True),
    _View("xilinx_miscfiles", ":vivado.xilinx.com:misc.files", has_sources=False),
)

#: Endings of the files that a driver does not need in addition to the bitstream.
_NOT_FOR_DRIVERS = (".v", ".mem", ".h", ".c", ".tcl")


@dataclass(frozen=True, kw_only=True)
class Interface:
    """Interface of a Vivado IP: the ports of the module that make up a bus, clock, reset or interrupt.

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
    top, name : str
        Names of the circuit's module, and of its wrapper's.
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
    spaces : tuple of AddressSpace
        Address spaces that the IP reads and writes as a master.
    registers : tuple of Register
        Registers of the IP, which the interface `control` reaches.
    control : str
        Name of the interface to the registers.
    bytes : int
        Size of the register space, in bytes.
    """

    top: str
    name: str
    description: str
    revision: int
    sources: tuple[str, ...]
    software: tuple[str, ...]
    ports: Mapping[str, wiring.Member]
    interfaces: tuple[Interface, ...]
    spaces: tuple[AddressSpace, ...]
    registers: tuple[Register, ...]
    control: str = CONTROL
    bytes: int = SPACE_BYTES


def ip_of(shell: BusShellConfig, top: str, names: Iterable[str]) -> Ip:
    """Return an `Ip`: a circuit's bus wrapper described for Vivado by its files, ports, interfaces and registers.

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
        top=top,
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


def _fields_of(register: Register) -> tuple[Field, ...]:
    """Return a tuple of each `Field` of a hardware register, but none if one field spans the whole register."""
    return tuple(field for field in register.fields if field.name != "VALUE")


def _interfaces(shell: BusShellConfig) -> Iterator[Interface]:
    """Yield each bus, clock, reset and interrupt `Interface` of a bus wrapper.

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


def component(ip: Ip, families: Iterable[str]) -> bytes:
    """Return ``component.xml`` as bytes, the IP-XACT description of an IP.

    The IP equals the IP that `packaging` makes.

    Parameters
    ----------
    ip : Ip
        Description of the bus wrapper as an IP.
    families : iterable of str
        Vivado's names of the device families that the IP supports.
    """
    return rendered(
        COMPONENT,
        ip=ip,
        vendor=VENDOR,
        library=LIBRARY,
        version=VERSION,
        families=families,
        views=_VIEWS,
        access=ACCESS,
        modified_write=_MODIFIED_WRITE,
        file_types=_FILE_TYPES,
        fields_of=_fields_of,
        register_bits=8 * REGISTER_BYTES,
        Out=Out,
    ).encode()


def packaging(ip: Ip, part: str) -> bytes:
    """Return the bytes of ``package_ip.tcl``, the script that packages a design as an IP in Vivado.

    It sets variables that describe the IP; then follow commands that are equal for all designs.

    Parameters
    ----------
    ip : Ip
        Description of the bus wrapper as an IP.
    part : str
        Vivado's name of the device. If it is empty, the user names the device when the script is run.
    """
    comment = [
        f"{PACKAGING}: written by hwgen. Do not edit: every build writes it together with {ip.top}.v.",
        f"Packages {ip.name} as an IP (IP-XACT) for Vivado, in the folder ip next to this file:",
        "",
        f"    vivado -mode batch -source {PACKAGING} [-tclargs --part PART]",
    ]
    values = {
        "top": ip.name,
        "part": part,
        "vendor": VENDOR,
        "library": LIBRARY,
        "version": VERSION,
        "revision": str(ip.revision),
        "description": ip.description,
        "control": ip.control,
        "bytes": str(ip.bytes),
    }
    lists: _TclLists = {
        "sources": ("Verilog and memory files of the IP", [[name] for name in ip.sources]),
        "software": ("files for drivers, which are copied into the IP", [[name] for name in ip.software]),
        "interfaces": (
            "bus interfaces: name, type, mode, port of each signal, parameters",
            [[bus.name, bus.bus_type, bus.mode, _flat(bus.ports), _flat(bus.parameters)] for bus in ip.interfaces],
        ),
        "spaces": (
            "address spaces of the masters: name of the interface, size in bytes, data width in bits",
            [[space.name, str(space.bytes), str(space.bits)] for space in ip.spaces],
        ),
        "registers": (
            "registers: name, offset, access, meaning, then for each field name, lowest bit, width, meaning",
            [_register(register) for register in ip.registers],
        ),
    }
    return (_tcl_head(comment, values, lists) + "\n\n" + text(PACKAGING)).encode()


def _register(register: Register) -> list[str | list[str]]:
    """Return a hardware register as a list for Tcl: name, offset, access, meaning, and the list of its fields.

    Each field has a name, its lowest bit, a width and a meaning.
    """
    fields = [
        text for field in _fields_of(register) for text in (field.name, str(field.low), str(field.bits), field.about)
    ]
    return [register.name, f"0x{register.offset:03x}", ACCESS[register.access], register.about, fields]


def _flat(entries: Mapping[str, str]) -> list[str]:
    """Return a mapping as one flat list of strings for Tcl: key, value, key, value .."""
    return [text for entry in entries.items() for text in entry]


def tcl_word(value: str | Sequence[str]) -> str:
    """Return a string, or a list of strings, quoted as one word of Tcl, so that Tcl substitutes nothing in it."""
    if not isinstance(value, str):
        return f"{{{' '.join(map(tcl_word, value))}}}"
    text = value.encode("ascii", "replace").decode()
    if re.fullmatch(r"[\w./:-]+", text):
        return text
    if re.fullmatch(r"[^{}\\\x00-\x1f\x7f]*", text):
        return f"{{{text}}}"
    return "".join(char if re.match(r"[\w./:-]", char) else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """Return the Tcl escape sequence for a character."""
    return f"\\{char}" if char.isprintable() else f"\\u{ord(char):04x}"


def project(shell: BusShellConfig, top: str, board: Board | None, names: Iterable[str]) -> dict[str, bytes]:
    """Return ``project.tcl`` for Vivado, a dict of bytes by file name; empty if the board can't have a project.

    The board must have a host, which connects all streams and moves frames of their size. Without a processing system,
    an engine needs a memory that the board's file names.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the circuit's module, which the wrapper instantiates.
    board : Board, optional
        Board of the plan.
    names : iterable of str
        Names of the files of the IP: Verilog, memory files, and the files that drivers need.
    """
    host = None if board is None else board.host
    if board is None or host is None or not host.can_carry(len(shell.inputs), len(shell.outputs)):
        return {}
    if any(end.frame_bytes >= host.max_frame_bytes for end in (*shell.inputs, *shell.outputs)):
        return {}
    if host.resource and shell.spaces and not board.memory_interface:
        return {}
    files, values = {}, host.script_values
    if host.resource:
        platform = board.platform_class()
        files[f"{top}_{host.resource}.xdc"] = constraints.pins(platform, host.resource)
        values |= {"lanes": str(constraints.lanes(platform, host.resource)), "pcie_block": board.pcie_block}
        values["memory_interface"] = board.memory_interface
    head = _project_head(shell, top, board, host, values, {"constraints": sorted(files), "driver_files": sorted(names)})
    parts = [head, host.project_script(), text(PROJECT)]
    return files | {PROJECT: "\n\n".join(part.rstrip("\n") for part in parts).encode() + b"\n"}


def _project_head(
    shell: BusShellConfig,
    top: str,
    board: Board,
    host: ProjectHost,
    values: Mapping[str, str],
    names: Mapping[str, Sequence[str]],
) -> str:
    """Return the head of ``project.tcl`` as text: a comment, and variables that describe the design.

    ``values`` has the host's variables, and ``names`` lists of files by variable.
    """
    module = wrapper.module(top)
    parts = host.project_parts(has_streams=bool(shell.inputs or shell.outputs))
    comment = [
        f"{PROJECT}: written by hwgen. Do not edit: every build writes it together with {top}.v.",
        f"Makes a Vivado project of {module} on {tcl_word(board.name)} in the folder project next to this file, with",
        f"{parts} and the IP of {PACKAGING}. Then makes the bitstream.",
        "",
        f"    vivado -mode batch -source {PROJECT} [-tclargs [--jobs N] [--to design|bitstream]]",
    ]
    values = {
        "name": top,
        "module": module,
        "inner": shell.circuit,
        "board": board.name,
        "board_part": board.part,
        "mhz": f"{board.clock_mhz:.12g}",
        "build_hash": f"0x{shell.build_hash:016x}",
        **values,
    }
    lists: _TclLists = {
        "board_files": ("Vivado's names of the board files, as patterns", [[name] for name in board.board_parts]),
        "senders": (
            "input streams of the accelerator: name, width in bits",
            map(_stream, shell.inputs),
        ),
        "receivers": (
            "output streams of the accelerator: name, width in bits",
            map(_stream, shell.outputs),
        ),
        "masters": ("AXI masters of the IP to memory", [[space.name] for space in shell.spaces]),
        "constraints": ("files of the pins", [[name] for name in names["constraints"]]),
        "driver_files": (
            "files that a driver needs in addition to the bitstream",
            [[name] for name in names["driver_files"] if not name.endswith(_NOT_FOR_DRIVERS)],
        ),
    }
    return _tcl_head(comment, values, lists)


_TclLists = Mapping[str, tuple[str, Iterable[Sequence[str | Sequence[str]]]]]
"""Type of list variables for a Tcl script: by variable name, a comment and the list's rows."""


def _tcl_head(comment: Iterable[str], values: Mapping[str, str], lists: _TclLists) -> str:
    """Return the head of a Tcl script as text: a comment, variables and lists that describe the design."""
    lines = [*(f"# {line}".rstrip() for line in comment), ""]
    lines += [f"set {key} {tcl_word(value)}" for key, value in values.items()]
    for key, (about, rows) in lists.items():
        lines += ["", f"# {about}", f"set {key} {{", *(f"    {' '.join(map(tcl_word, row))}" for row in rows), "}"]
    return "\n".join(lines)


def _stream(stream: BusStream) -> list[str]:
    """Return a list of the name and the width in bits of an AXI4-Stream, for ``project.tcl``."""
    return [stream.name, str(8 * stream.width)]
