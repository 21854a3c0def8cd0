"""The bus wrapper's files: its Verilog, and what software must know of its registers and streams."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from hwgen.emit.verilog import Config, error_ports, input_ports, output_ports
from hwgen.gateware.bus import registers as description
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.bus.shell import EndConfig, ShellConfig, ends_of

#: The description of registers and streams in a result folder.
REGISTERS = "registers.json"

_ACCESS = {
    "r": "read",
    "rw": "read, write",
    "w1c": "read; writing a 1 clears a bit",
    "w1s": "writing a 1 does it; reads as 0",
    "w": "each write is taken; reads as 0",
}


_STRING_OR_COMMENT = re.compile(rb'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def module(top: str) -> str:
    """Name of the wrapper of a module: without two underscores side by side, which Verilator writes otherwise."""
    return f"{top.rstrip('_')}_axi"


def build_hash(contents: Mapping[str, bytes]) -> int:
    """Return 64 bits that tell a design from others, from its files by name; comments of Verilog don't count."""
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        circuit = _without_comments(content) if name.endswith(".v") else content
        digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(circuit).digest())
    return int.from_bytes(digest.digest()[:8], "big")


def _without_comments(verilog: bytes) -> bytes:
    """Return Verilog with a single space for each comment and each run of white space."""
    code = _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith(b'"') else b" ", verilog)
    return b" ".join(code.split())


def shell_of(config: Config, contents: Mapping[str, bytes] | None = None) -> ShellConfig:
    """The shell of an accelerator; ``contents``: the accelerator's files by name, for the build hash.

    Raises
    ------
    ConfigError
        If it has more streams than there are registers for.
    """
    return ShellConfig(
        inputs=ends_of(input_ports(config), "s_axis"),
        outputs=ends_of(output_ports(config), "m_axis"),
        build_hash=build_hash(contents) if contents else 0,
        weights=getattr(config, "loader", None) is not None,
        error_ports=tuple(error_ports(config)),
    )


def driver() -> bytes:
    """The Python driver, which is the same for all designs."""
    return resources.files("hwgen.emit").joinpath("driver.py").read_bytes()


def describe(end: EndConfig) -> str:
    """A stream of the bus in a line."""
    beat, words = end.port.beat, end.words
    kind = f"{'signed' if beat.signed else 'unsigned'} {beat.bits}-bit values of {_count(end.value_bytes, 'byte')}"
    return (
        f"{8 * end.width} bits, {_count(words.max_values, 'value')} a word; a frame is {end.beats.values:,} {kind}, in "
        f"{_count(words.count, 'word')}"
    )


def speed(end: EndConfig, interval: int) -> str:
    """Whether a stream is wide enough for an interval of so many cycles."""
    if end.is_free:
        return "no cycle"
    if end.words.count <= interval:
        return f"none on average ({end.words.count:,} words in {interval:,} cycles), but a beat is more than a word"
    return f"the interval is {end.words.count:,} cycles at least, in place of {interval:,}"


def to_json(shell: ShellConfig, name: str) -> dict[str, Any]:
    """The contents of ``registers.json``."""
    return {
        "module": name,
        "build_hash": f"0x{shell.build_hash:016x}",
        "bytes": description.SPACE_BYTES,
        "inputs": [stream(end) for end in shell.inputs],
        "outputs": [stream(end) for end in shell.outputs],
        "registers": description.to_json(shell.registers),
    }


def stream(end: EndConfig) -> dict[str, Any]:
    """A stream of the bus as ``registers.json`` has it: its widths, and how its frames lie in memory."""
    beat, order = end.port.beat, end.port.order
    firsts = (columns.start for columns in order.beat_columns(beat.pixels))
    return {
        "name": end.name,
        "port": end.port.name,
        "bytes": end.width,
        "beat_bytes": end.beats.max_values * end.value_bytes,
        "is_free": end.is_free,
        "value_bytes": end.value_bytes,
        "value_bits": beat.bits,
        "signed": beat.signed,
        "frame_bytes": end.frame_bytes,
        "frame_words": end.words.count,
        "layout": {
            "channels": beat.channels,
            "height": beat.height,
            "width": beat.width,
            "pixels": beat.pixels,
            "folds": [[channels.start, channels.stop] for channels in beat.fold_channels],
            "rows": [list(span) for span in order.rows],
            "columns": [[*span, first] for span, first in zip(order.columns, firsts, strict=True)],
        },
    }


def _constants(shell: BusShellConfig) -> Iterable[tuple[str, int, str]]:
    """Name, value and comment of each constant that software may want."""
    yield "BUILD_HASH", shell.build_hash, "what BUILD_HASH_HIGH and BUILD_HASH_LOW must say"
    for end in (*shell.inputs, *shell.outputs):
        yield f"{end.name.upper()}_FRAME_BYTES", end.frame_bytes, f"bytes of a frame on {end.name}"
    for register in shell.registers:
        yield register.name, register.offset, f"{register.about} ({_ACCESS[register.access]})"
        for each in register.fields:
            if each.name != "VALUE":
                yield f"{register.name}_{each.name}", each.mask, each.about
    registers = {register.name: register for register in shell.registers}
    yield "IDENTITY_IS", registers["IDENTITY"].reset, "what IDENTITY must say"
    yield "VERSION_MAJOR_IS", registers["VERSION"]["MAJOR"].reset, "the VERSION_MAJOR that this file goes with"


def c_header(shell: BusShellConfig, top: str) -> str:
    """Offsets of registers in bytes, masks of their fields, and sizes of frames, for C."""
    prefix = top.upper()
    guard = f"{prefix}_REGISTERS_H"
    lines = [
        f"/* Registers of {module(top)}, written by hwgen: offsets in bytes, masks of fields. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(
            f"#define {prefix}_{name} 0x{value:x}{'ull' if value >> 32 else 'u'} /* {about} */"
            for name, value, about in _constants(shell)
        ),
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def python_constants(shell: BusShellConfig, top: str) -> str:
    """The same for Python."""
    lines = [
        f'"""Registers of {module(top)}, written by hwgen: offsets in bytes, masks of fields."""',
        "",
        *(f'{name} = 0x{value:X}\n"""{about[:1].upper()}{about[1:]}."""' for name, value, about in _constants(shell)),
    ]
    return "\n".join(lines) + "\n"


def table(registers: Sequence[Register]) -> list[str]:
    """Registers as a table in Markdown."""
    rows = ["| offset | register | bits | access | what it is |", "| --- | --- | --- | --- | --- |"]
    for register in registers:
        rows.append(
            f"| `0x{register.offset:03x}` | `{register.name}` | | {_ACCESS[register.access]} | {register.about} |"
        )
        rows += [
            f"| | `{each.name}` | {_bits(each.low, each.bits)} | | {each.about} |"
            for each in register.fields
            if each.name != "VALUE"
        ]
    return rows


def _bits(low: int, count: int) -> str:
    return str(low) if count == 1 else f"{low + count - 1}:{low}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
