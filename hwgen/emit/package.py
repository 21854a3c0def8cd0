"""The script that makes an IP of a result: ``package_ip.tcl`` for Vivado."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources

from amaranth.lib.wiring import Out

from hwgen.emit import wrapper
from hwgen.gateware.bus import engine_wrapper
from hwgen.gateware.bus import wrapper as stream_wrapper
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.engine_wrapper import MEMORY
from hwgen.gateware.bus.module import CONTROL
from hwgen.gateware.bus.registers import SPACE_BYTES, Access
from hwgen.gateware.bus.shell import ShellConfig

__all__ = ["NAME", "script", "word"]

#: The script in a result folder.
NAME = "package_ip.tcl"

_IDENTITY = {"vendor": "hwgen", "library": "user", "version": "1.0"}
#: Revisions are integers; those of Vivado's own tools have up to ten digits.
_REVISION_BITS = 31
_SOURCES = (".v", ".mem")
#: IP-XACT has a word for each access (IEEE 1685-2009, accessType), but none for what clearing by ones does.
_ACCESS: Mapping[Access, str] = {
    "r": "read-only",
    "rw": "read-write",
    "w1c": "read-write",
    "w1s": "write-only",
    "w": "write-only",
}
#: Ports that are an interface by themselves: its type, mode and signal.
_SINGLE = {
    "aclk": ("signal:clock", "slave", "CLK"),
    "aresetn": ("signal:reset", "slave", "RST"),
    "interrupt": ("signal:interrupt", "master", "INTERRUPT"),
}


def script(shell: ShellConfig | EngineShellConfig, top: str, part: str, names: Iterable[str]) -> bytes:
    """``package_ip.tcl``: what the design is, then how Vivado packages it.

    Parameters
    ----------
    shell : ShellConfig or EngineShellConfig
        Of the bus wrapper.
    top : str
        The module of the accelerator, or of the engine.
    part : str
        The device, as Vivado calls it; empty if there is none yet.
    names : iterable of str
        Files of the module, its wrapper and what software needs: Verilog and memories become sources.
    """
    names = sorted(names)
    name = wrapper.module(top)
    what = "programmable engine" if isinstance(shell, EngineShellConfig) else f"accelerator {top}"
    values = {
        "top": name,
        "part": part,
        **_IDENTITY,
        "revision": str(shell.build_hash % (1 << _REVISION_BITS)),
        "description": f"The {what}, written by hwgen; build hash 0x{shell.build_hash:016x}",
        "control": CONTROL,
        "bytes": str(SPACE_BYTES),
    }
    lists = {
        "sources": [[each] for each in names if each.endswith(_SOURCES)],
        "software": [[each] for each in names if not each.endswith(_SOURCES)],
        "interfaces": list(_interfaces(shell)),
        "spaces": list(_spaces(shell)),
        "registers": list(_registers(shell)),
    }
    about = {
        "sources": "of the IP",
        "software": "what goes with it",
        "interfaces": "name, type, mode, the port of each signal, parameters",
        "spaces": "that masters reach: name of the interface, bytes, bits of its data",
        "registers": "name, offset, access, what it is; name, lowest bit, bits and meaning of each field",
    }
    lines = [
        f"# {NAME}: written by hwgen. Do not edit: it is written anew with {top}.v, which it goes with.",
        f"# Makes an IP of {name} in the folder ip beside this file, of IP-XACT for Vivado:",
        "#",
        f"#     vivado -mode batch -source {NAME} [-tclargs --part PART]",
        "",
        *(f"set {key} {word(value)}" for key, value in values.items()),
    ]
    for key, rows in lists.items():
        lines += ["", f"# {about[key]}", f"set {key} {{", *(f"    {' '.join(map(word, row))}" for row in rows), "}"]
    body = resources.files("hwgen.emit").joinpath(NAME).read_text(encoding="utf-8")
    return ("\n".join(lines) + "\n\n" + body).encode()


def _interfaces(shell: ShellConfig | EngineShellConfig) -> Iterator[Sequence[str | Sequence[str]]]:
    """Name, type, mode, signals with their ports, and parameters with their values, of each interface."""
    if isinstance(shell, EngineShellConfig):
        given, members = engine_wrapper.parameters(shell), engine_wrapper.ports(shell)
    else:
        given, members = stream_wrapper.parameters(shell), stream_wrapper.ports(shell)
    masters = {MEMORY, *(end.name for end in shell.outputs)}
    busses: dict[str, list[str]] = {}
    for port in members:
        if port not in _SINGLE:
            name, signal = port.rsplit("_", 1)
            busses.setdefault(name, []).extend((signal.upper(), port))
    for name, signals in busses.items():
        kind = "interface:aximm" if name in (CONTROL, MEMORY) else "interface:axis"
        yield name, kind, "master" if name in masters else "slave", signals, _flat(given.get(name, {}))
    for port, (kind, mode, signal) in _SINGLE.items():
        assert (members[port].flow is Out) == (mode == "master")
        yield port, kind, mode, [signal, port], _flat(given[port])


def _spaces(shell: ShellConfig | EngineShellConfig) -> Iterator[Sequence[str]]:
    """Name of the interface, bytes and bits of its data, of each space of addresses that a master reaches."""
    if isinstance(shell, EngineShellConfig):
        yield MEMORY, str(1 << shell.memory.address_bits), str(8 * shell.memory.data_bytes)


def _registers(shell: ShellConfig | EngineShellConfig) -> Iterator[Sequence[str | Sequence[str]]]:
    """Name, offset, access and meaning of each register, with name, lowest bit, bits and meaning of its fields."""
    for register in shell.registers:
        fields = [
            text
            for each in register.fields
            if each.name != "VALUE"
            for text in (each.name, str(each.low), str(each.bits), each.about)
        ]
        yield register.name, f"0x{register.offset:03x}", _ACCESS[register.access], register.about, fields


def _flat(entries: Mapping[str, str]) -> list[str]:
    return [text for entry in entries.items() for text in entry]


def word(value: str | Sequence[str]) -> str:
    """Text, or a list of texts, as a word of Tcl that stands for just that."""
    if not isinstance(value, str):
        return f"{{{' '.join(map(word, value))}}}"
    text = value.encode("ascii", "replace").decode()
    if re.fullmatch(r"[\w./:-]+", text):
        return text
    if re.fullmatch(r"[^{}\\\x00-\x1f\x7f]*", text):
        return f"{{{text}}}"
    return "".join(each if re.match(r"[\w./:-]", each) else _escaped(each) for each in text)


def _escaped(each: str) -> str:
    return f"\\{each}" if each.isprintable() else f"\\u{ord(each):04x}"
