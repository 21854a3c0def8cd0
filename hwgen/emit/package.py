"""Writer of ``package_ip.tcl``, the script with which Vivado packages a design as an IP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from hwgen.emit.ip import ACCESS, LIBRARY, VENDOR, VERSION, fields_of, ip_of
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import Register

__all__ = ["NAME", "script", "word"]

#: Name of the IP-packaging script in a result folder.
NAME = "package_ip.tcl"


def script(shell: BusShellConfig, top: str, part: str, names: Iterable[str]) -> bytes:
    """Return the contents of ``package_ip.tcl``, the script with which Vivado packages a design as an IP.

    It sets variables that describe the IP; then follow commands that are equal for all designs.

    Parameters
    ----------
    shell : BusShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the circuit's module, which the wrapper instantiates.
    part : str
        Vivado's name of the device. If it is empty, the user names the device when the script is run.
    names : iterable of str
        Names of the files of the IP. Verilog and memory files become sources, all others files for software.
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
        "sources": [[name] for name in ip.sources],
        "software": [[name] for name in ip.software],
        "interfaces": [
            [bus.name, bus.bus_type, bus.mode, _flat(bus.ports), _flat(bus.parameters)] for bus in ip.interfaces
        ],
        "spaces": [[space.name, str(space.bytes), str(space.bits)] for space in ip.spaces],
        "registers": [_register(register) for register in ip.registers],
    }
    about = {
        "sources": "Verilog and memory files of the IP",
        "software": "files for drivers, which are copied into the IP",
        "interfaces": "bus interfaces: name, type, mode, port of each signal, parameters",
        "spaces": "address spaces of the masters: name of the interface, size in bytes, data width in bits",
        "registers": "registers: name, offset, access, meaning; of each field name, lowest bit, width, meaning",
    }
    lines = [
        f"# {NAME}: written by hwgen. Do not edit: every build writes it together with {top}.v.",
        f"# Packages {ip.name} as an IP (IP-XACT) for Vivado, in the folder ip beside this file:",
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
    """Return a hardware register and its fields as a list for Tcl.

    The list has name, offset, access and meaning, and name, lowest bit, width and meaning of each field.
    """
    fields = [
        text for field in fields_of(register) for text in (field.name, str(field.low), str(field.bits), field.about)
    ]
    return [register.name, f"0x{register.offset:03x}", ACCESS[register.access], register.about, fields]


def _flat(entries: Mapping[str, str]) -> list[str]:
    """Return the keys and values of a mapping as one list for Tcl, each key in front of its value."""
    return [text for entry in entries.items() for text in entry]


def word(value: str | Sequence[str]) -> str:
    """Return a text, or a list of texts, as one word of Tcl, quoted so that Tcl substitutes nothing in it."""
    if not isinstance(value, str):
        return f"{{{' '.join(map(word, value))}}}"
    text = value.encode("ascii", "replace").decode()
    if re.fullmatch(r"[\w./:-]+", text):
        return text
    if re.fullmatch(r"[^{}\\\x00-\x1f\x7f]*", text):
        return f"{{{text}}}"
    return "".join(char if re.match(r"[\w./:-]", char) else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """Return the Tcl escape sequence for a character."""
    return f"\\{char}" if char.isprintable() else f"\\u{ord(char):04x}"
