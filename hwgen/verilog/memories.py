"""Memories as Verilog modules of their own, and the files that hold their contents.

Memories of more than `LARGE` bits don't go into the text row by row (which takes minutes and gigabytes): the
``get_memory()`` hook of Amaranth puts an instance of a small Verilog module there, which reads its contents by
``$readmemh``. The modules follow the templates from which Vivado and Yosys infer block and distributed RAM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from amaranth import ClockSignal, Const, Instance, Shape, ShapeCastable
from amaranth.lib import memory, wiring

from hwgen.gateware.names import identifier, unique
from hwgen.gateware.part import Part
from hwgen.verilog import parts
from hwgen.verilog.rtlil import Design

__all__ = ["LARGE", "WriterPlatform", "memory_files", "placeholder"]

LARGE = 4096
"""Bits above which a memory becomes a module of its own."""


class WriterPlatform:
    """Stands in for a platform while Verilog is written, and gathers the large memories and the parts."""

    def __init__(self, name: str, top: wiring.Component) -> None:
        self.name = name
        self.top = top
        self.modules: dict[str, str] = {}
        self.contents: dict[int, bytes] = {}
        self.parts: dict[str, Part[Any]] = {}

    def get_part(self, this: Part[Any]) -> Any:
        """An instance for a part, which is written by itself."""
        if this is self.top:
            return this.circuit()
        kind = f"hwgen-part-{len(self.parts)}"
        self.parts[kind] = this
        return parts.instance(this, kind)

    def get_memory(self, this: memory.Memory) -> Any:
        """An instance for a large memory; what Amaranth makes of it for others."""
        width = Shape.cast(this.shape).width
        domains = {port.domain for port in (*this.read_ports, *this.write_ports)} - {"comb"}
        plain = not any(port.transparent_for for port in this.read_ports)
        if width * this.depth <= LARGE or this.depth < 2 or len(domains) != 1 or not plain:
            return this.elaborate(None)
        content = _content(this, width)
        module = self._module(this, initialised=content is not None)
        ports: dict[str, Any] = {"p_WIDTH": width, "p_DEPTH": this.depth, "i_clk": ClockSignal(domains.pop())}
        if content is not None:
            number = len(self.contents)
            self.contents[number] = content
            ports["p_INIT"] = placeholder(number)
        for number, port in enumerate(this.read_ports):
            ports[f"i_r{number}_addr"] = port.addr
            ports[f"o_r{number}_data"] = _plain(port.data)
            if port.domain != "comb":
                ports[f"i_r{number}_en"] = port.en
        for number, port in enumerate(this.write_ports):
            ports[f"p_W{number}_PARTS"] = len(port.en)
            ports[f"i_w{number}_addr"] = port.addr
            ports[f"i_w{number}_data"] = _plain(port.data)
            ports[f"i_w{number}_en"] = port.en
        return Instance(module, **ports)

    def _module(self, this: memory.Memory, *, initialised: bool) -> str:
        """Name of the module with these ports and attributes; written when it is first asked for."""
        reads = ["comb" if port.domain == "comb" else "sync" for port in this.read_ports]
        attributes = {str(key): value for key, value in sorted(this.attrs.items())}
        parts = [self.name, "ram" if this.write_ports else "rom", *(str(v) for v in dict.fromkeys(attributes.values()))]
        if reads != ["sync"]:
            parts.append("".join(f"{reads.count(kind)}{kind}" for kind in ("sync", "comb") if kind in reads) or "none")
        if len(this.write_ports) > 1:
            parts.append(f"{len(this.write_ports)}w")
        if this.write_ports and initialised:
            parts.append("init")
        elif not this.write_ports and not initialised:
            parts.append("zero")
        name = identifier("_".join(parts))
        text = _memory_module(name, reads, len(this.write_ports), attributes, initialised=initialised)
        while self.modules.setdefault(name, text) != text:  # another with the same summary of attributes
            name += "_"
            text = _memory_module(name, reads, len(this.write_ports), attributes, initialised=initialised)
        return name


def _plain(value: Any) -> Any:
    return value if not hasattr(value, "as_value") else value.as_value()


def placeholder(number: int) -> str:
    return f"hwgen-memory-{number}"


def _number(parameter: object) -> int | None:
    """Of a memory's contents, if that is what a parameter stands for."""
    match = re.fullmatch(r"hwgen-memory-(\d+)", str(parameter))
    return int(match[1]) if match else None


def _content(this: memory.Memory, width: int) -> bytes | None:
    """Rows in hexadecimal, one a line; None when all are zero."""
    shape = this.shape
    mask = (1 << width) - 1
    if isinstance(shape, ShapeCastable):
        rows = [Const.cast(shape.const(row)).value & mask for row in this.init]
    else:
        rows = [int(row) & mask for row in this.init]
    if not any(rows):
        return None
    digits = -(-width // 4)
    return "".join(f"{row:0{digits}x}\n" for row in rows).encode()


def _memory_module(
    name: str, reads: list[str], writes: int, attributes: Mapping[str, Any], *, initialised: bool
) -> str:
    parameters = ["WIDTH = 1", "DEPTH = 2"] + [f"W{number}_PARTS = 1" for number in range(writes)]
    if initialised:
        parameters.append('INIT = ""')
    ports = ["input  wire clk"]
    body = []
    quoted = ", ".join(
        f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {int(value)}" for key, value in attributes.items()
    )
    if quoted:
        body.append(f"    (* {quoted} *)")
    body += ["    reg [WIDTH-1:0] memory [0:DEPTH-1];", ""]
    if initialised:
        # Yosys also reads the module as it stands, without a file.
        body += [
            "    generate",
            '        if (INIT != "") begin : contents',
            "            initial $readmemh(INIT, memory);",
        ]
        body += ["        end", "    endgenerate", ""]
    else:
        body += [
            "    // A device's memories begin with zeros anyway, and synthesis would take this loop row by row.",
            "`ifndef SYNTHESIS",
            "    integer row;",
            "    initial for (row = 0; row < DEPTH; row = row + 1) memory[row] = {WIDTH{1'b0}};",
            "`endif",
            "",
        ]
    for number, kind in enumerate(reads):
        port = f"r{number}"
        ports += [f"input  wire [$clog2(DEPTH)-1:0] {port}_addr"]
        if kind == "comb":
            ports += [f"output wire [WIDTH-1:0] {port}_data"]
            body += [f"    assign {port}_data = memory[{port}_addr];", ""]
        else:
            ports += [f"input  wire {port}_en", f"output reg  [WIDTH-1:0] {port}_data"]
            body += ["    always @(posedge clk)", f"        if ({port}_en) {port}_data <= memory[{port}_addr];", ""]
    for number in range(writes):
        port, parts = f"w{number}", f"W{number}_PARTS"
        ports += [
            f"input  wire [$clog2(DEPTH)-1:0] {port}_addr",
            f"input  wire [{parts}-1:0] {port}_en",
            f"input  wire [WIDTH-1:0] {port}_data",
        ]
        part = f"[{port}_part*(WIDTH/{parts}) +: WIDTH/{parts}]"
        body += [
            f"    integer {port}_part;",
            "    always @(posedge clk)",
            f"        for ({port}_part = 0; {port}_part < {parts}; {port}_part = {port}_part + 1)",
            f"            if ({port}_en[{port}_part]) memory[{port}_addr]{part} <= {port}_data{part};",
            "",
        ]
    lines = [
        "",
        "// A read gives the word as it was before a write in the same cycle.",
        f"module {name} #(",
        ",\n".join(f"    parameter {parameter}" for parameter in parameters),
        ") (",
        ",\n".join(f"    {port}" for port in ports),
        ");",
        *body[:-1],
        "endmodule",
    ]
    return "\n".join(lines)


def memory_files(design: Design, platform: WriterPlatform) -> dict[int, str]:
    """What each memory file is called: as the module and the instance that read it."""
    paths = {}
    for module in design.values():
        for cell in module.cells:
            number = _number(cell.parameters.get("INIT"))
            if number is not None:
                paths[number] = re.sub(r"\$\d+|[^\w.-]", "", f"{module.name}.{cell.name}")
    if set(paths) != set(platform.contents):
        raise AssertionError("a memory of the design was not found in its Verilog")
    return dict(zip(paths, (f"{name}.mem" for name in unique(paths.values())), strict=True))
