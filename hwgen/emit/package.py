"""The script that makes an IP of a result: ``package_ip.tcl`` for Vivado."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from hwgen.emit.ip import ACCESS, LIBRARY, VENDOR, VERSION, fields_of, ip_of
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import Register

__all__ = ["NAME", "script", "word"]

#: The script in a result folder.
NAME = "package_ip.tcl"


def script(shell: BusShellConfig, top: str, part: str, names: Iterable[str]) -> bytes:
    """``package_ip.tcl``: what the design is, then how Vivado packages it.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        The module of the circuit in it.
    part : str
        The device, as Vivado calls it; empty if there is none yet.
    names : iterable of str
        Files of the module, its wrapper and what software needs: Verilog and memories become sources.
    """
    ip = ip_of(shell, top, names)
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
    lists = {
        "sources": [[each] for each in ip.sources],
        "software": [[each] for each in ip.software],
        "interfaces": [
            [each.name, each.kind, each.mode, _flat(each.ports), _flat(each.parameters)] for each in ip.interfaces
        ],
        "spaces": [[each.name, str(each.bytes), str(each.bits)] for each in ip.spaces],
        "registers": [_register(each) for each in ip.registers],
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
        f"# Makes an IP of {ip.name} in the folder ip beside this file, of IP-XACT for Vivado:",
        "#",
        f"#     vivado -mode batch -source {NAME} [-tclargs --part PART]",
        "",
        *(f"set {key} {word(value)}" for key, value in values.items()),
    ]
    for key, rows in lists.items():
        lines += ["", f"# {about[key]}", f"set {key} {{", *(f"    {' '.join(map(word, row))}" for row in rows), "}"]
    body = resources.files("hwgen.emit").joinpath(NAME).read_text(encoding="utf-8")
    return ("\n".join(lines) + "\n\n" + body).encode()


def _register(register: Register) -> list[str | list[str]]:
    """Name, offset, access and meaning, and name, lowest bit, bits and meaning of its fields."""
    fields = [text for each in fields_of(register) for text in (each.name, str(each.low), str(each.bits), each.about)]
    return [register.name, f"0x{register.offset:03x}", ACCESS[register.access], register.about, fields]


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
