"""Descriptions of a bus wrapper's registers and streams: ``registers.json``, C and Python constants, and tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hwgen.gateware.bus import registers as description
from hwgen.gateware.bus.base import BusShellConfig
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.bus.shell import BusStreamConfig, ShellConfig, ends_of
from hwgen.gateware.circuit_ports import Config, device_of, error_ports, input_ports, output_ports

#: Name of the description of registers and streams in a result folder.
REGISTERS = "registers.json"

_ACCESS = {
    "r": "read",
    "rw": "read, write",
    "w1c": "read; writing a 1 clears a bit",
    "w1s": "writing a 1 triggers the action; reads as 0",
    "w": "write; reads as 0",
}

_STRING_OR_COMMENT = re.compile(rb'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def module(top: str) -> str:
    """Return the name of the bus wrapper around the Verilog module ``top``, such as ``digits_axi``.

    The name has no two underscores in a row, which Verilator would replace.
    """
    return f"{top.rstrip('_')}_axi"


def build_hash(contents: Mapping[str, bytes]) -> int:
    """Return a 64-bit hash of a design's Verilog and memory files, given by name.

    Comments in Verilog do not change the hash.
    """
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        circuit = _without_comments(content) if name.endswith(".v") else content
        digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(circuit).digest())
    return int.from_bytes(digest.digest()[:8], "big")


def _without_comments(verilog: bytes) -> bytes:
    """Return Verilog code (bytes) with each comment and run of white space replaced by one space."""
    code = _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith(b'"') else b" ", verilog)
    return b" ".join(code.split())


def shell_of(config: Config, contents: Mapping[str, bytes] | None = None) -> ShellConfig:
    """Return the `ShellConfig` of an accelerator's bus wrapper: its AXI4-Streams, build hash and registers.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator.
    contents : mapping of str to bytes, optional
        Files of the accelerator by name, for the build hash. Without files the hash is 0.

    Raises
    ------
    ConfigError
        If the accelerator has more streams than the register map has registers for.
    """
    ends = ends_of(input_ports(config), "s_axis"), ends_of(output_ports(config), "m_axis")
    inputs, outputs = (tuple(replace(end, device=device_of(config)) for end in each) for each in ends)
    return ShellConfig(
        device=device_of(config),
        inputs=inputs,
        outputs=outputs,
        build_hash=build_hash(contents) if contents else 0,
        weights=getattr(config, "loader", None) is not None,
        error_ports=tuple(error_ports(config)),
    )


def describe(end: BusStreamConfig) -> str:
    """Return a line of text about a bus wrapper's stream: width, values per word, frame size."""
    beat, words = end.port.beat, end.words
    values = f"{'signed' if beat.signed else 'unsigned'} {beat.bits}-bit values of {_count(end.value_bytes, 'byte')}"
    return (
        f"{8 * end.width} bits, {_count(words.max_values, 'value')} per word; a frame has {end.beats.values:,} "
        f"{values} in {_count(words.count, 'word')}"
    )


def bus_cycles_text(end: BusStreamConfig, interval: int) -> str:
    """Return a phrase for ``report.md``: how many cycles a stream's bus adds to the initiation interval.

    ``interval`` is the initiation interval without the bus, in cycles.
    """
    if end.is_free:
        return "no cycle"
    if end.words.count <= interval:
        return f"none on average ({end.words.count:,} words in {interval:,} cycles), but a beat is more than a word"
    return f"the interval is at least {end.words.count:,} cycles instead of {interval:,}"


def to_json(shell: ShellConfig, name: str) -> dict[str, Any]:
    """Return a dictionary, the contents of ``registers.json``, for an accelerator with wrapper module ``name``."""
    return {
        "module": name,
        "build_hash": f"0x{shell.build_hash:016x}",
        "bytes": description.SPACE_BYTES,
        "inputs": [stream(end) for end in shell.inputs],
        "outputs": [stream(end) for end in shell.outputs],
        "registers": description.to_json(shell.registers),
    }


def stream(end: BusStreamConfig) -> dict[str, Any]:
    """Return a dictionary, a stream's entry in ``registers.json``: widths, and a frame's memory layout."""
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
    """Yield (name, value, comment) of each constant about registers and streams, for C and Python programs."""
    yield "BUILD_HASH", shell.build_hash, "expected value of BUILD_HASH_HIGH and BUILD_HASH_LOW"
    for end in (*shell.inputs, *shell.outputs):
        yield f"{end.name.upper()}_FRAME_BYTES", end.frame_bytes, f"size of a frame on {end.name}, in bytes"
        yield (
            f"{end.name.upper()}_STRIDE_BYTES",
            end.stride_bytes,
            f"distance of a packet's frames on {end.name}, in bytes",
        )
    for register in shell.registers:
        yield register.name, register.offset, f"{register.about} ({_ACCESS[register.access]})"
        for field in register.fields:
            if field.name != "VALUE":
                yield f"{register.name}_{field.name}", field.mask, field.about
    registers = {register.name: register for register in shell.registers}
    yield "IDENTITY_IS", registers["IDENTITY"].reset, "expected value of IDENTITY"
    yield "VERSION_MAJOR_IS", registers["VERSION"]["MAJOR"].reset, "VERSION_MAJOR of this register map"


def c_header(shell: BusShellConfig, top: str) -> str:
    """Return the C header ``TOP_registers.h``: register offsets in bytes, masks of fields, and frame sizes."""
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
    """Return the Python module ``TOP_registers.py``: register offsets in bytes, masks of fields, and frame sizes."""
    lines = [
        f'"""Registers of {module(top)}, written by hwgen: offsets in bytes, masks of fields."""',
        "",
        *(f'{name} = 0x{value:X}\n"""{about[:1].upper()}{about[1:]}."""' for name, value, about in _constants(shell)),
    ]
    return "\n".join(lines) + "\n"


def register_table(registers: Sequence[Register]) -> list[str]:
    """Return a list of the lines of a Markdown table of a bus wrapper's registers and their fields."""
    rows = ["| offset | register | bits | access | meaning |", "| --- | --- | --- | --- | --- |"]
    for register in registers:
        rows.append(
            f"| `0x{register.offset:03x}` | `{register.name}` | | {_ACCESS[register.access]} | {register.about} |"
        )
        rows += [
            f"| | `{field.name}` | {_bits(field.low, field.bits)} | | {field.about} |"
            for field in register.fields
            if field.name != "VALUE"
        ]
    return rows


def _bits(low: int, count: int) -> str:
    """Return the bit range of a register field as text: ``HIGH:LOW``, or the index of a single bit."""
    return str(low) if count == 1 else f"{low + count - 1}:{low}"


def _count(count: int, noun: str) -> str:
    """Return a count with its noun as text, in the plural unless the count is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
