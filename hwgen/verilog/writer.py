"""Conversion of any Amaranth component to Verilog and memory files; equal components give equal files.

Writing a memory of more than `LARGE` bits row by row takes minutes and gigabytes. Amaranth's ``get_memory()`` hook
therefore returns an instance of a small Verilog module, which reads its contents with ``$readmemh``. The modules follow
the templates that Vivado and Yosys recognise as block RAM and distributed RAM.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any

from amaranth import ClockSignal, Const, Instance, Shape, ShapeCastable
from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.hdl import _nir  # type: ignore[attr-defined]  # not in the stubs
from amaranth.lib import memory, wiring

from hwgen import printable
from hwgen.devices import DEFAULT, Device
from hwgen.gateware.circuit_forms import Part, Primitive
from hwgen.gateware.names import identifier, unique
from hwgen.progress import tell
from hwgen.verilog import parts, rtlil
from hwgen.verilog.faces import Elaborated, components, faces, outputs
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import PrimitivePlatform, named_modules
from hwgen.verilog.rtlil import Design

LARGE = 4096
"""Maximum size in bits of a memory that is written row by row; larger memories become modules of their own."""


class WriterPlatform(PrimitivePlatform):
    """Amaranth platform that collects a design's large memories, separately written parts, and primitives."""

    def __init__(self, name: str, top: wiring.Component, device: Device) -> None:
        super().__init__(device)
        self.name = name
        self.top = top
        self.modules: dict[str, str] = {}
        self.contents: dict[int, bytes] = {}
        self.parts: dict[str, Part[Any]] = {}

    def get_part(self, this: Part[Any]) -> Any:
        """Return an Amaranth instance of a `Part`, a submodule whose Verilog is written separately and cached."""
        if this is self.top:
            return this.circuit()
        cell_type = f"hwgen-part-{len(self.parts)}"
        self.parts[cell_type] = this
        return parts.instance(this, cell_type)

    def get_primitive(self, this: Primitive[Any]) -> Any:
        return this.circuit() if this is self.top else super().get_primitive(this)

    def get_memory(self, this: memory.Memory) -> Any:
        """Return an Amaranth instance of a Verilog module for a large memory; elaborate any other memory as usual.

        Amaranth elaborates all other memories itself.
        """
        width = Shape.cast(this.shape).width
        domains = {port.domain for port in (*this.read_ports, *this.write_ports)} - {"comb"}
        plain = not any(port.transparent_for for port in this.read_ports)
        if width * this.depth <= LARGE or this.depth < 2 or len(domains) != 1 or not plain:
            return this.elaborate(None)
        content = _content(this, width)
        module = self._module(this, initialised=content is not None)
        ports: dict[str, Any] = {"p_WIDTH": width, "p_DEPTH": this.depth, "i_clk": ClockSignal(domains.pop())}
        if content is not None:
            file_index = len(self.contents)
            self.contents[file_index] = content
            ports["p_INIT"] = placeholder(file_index)
        for index, port in enumerate(this.read_ports):
            ports[f"i_r{index}_addr"] = port.addr
            ports[f"o_r{index}_data"] = _as_value(port.data)
            if port.domain != "comb":
                ports[f"i_r{index}_en"] = port.en
        for index, port in enumerate(this.write_ports):
            ports[f"p_W{index}_PARTS"] = len(port.en)
            ports[f"i_w{index}_addr"] = port.addr
            ports[f"i_w{index}_data"] = _as_value(port.data)
            ports[f"i_w{index}_en"] = port.en
        return Instance(module, **ports)

    def _module(self, this: memory.Memory, *, initialised: bool) -> str:
        """Return the name of the Verilog module for a memory; the module is written unless an equal one exists."""
        reads = ["comb" if port.domain == "comb" else "sync" for port in this.read_ports]
        attributes = {str(key): value for key, value in sorted(this.attrs.items())}
        words = [self.name, "ram" if this.write_ports else "rom", *(str(v) for v in dict.fromkeys(attributes.values()))]
        if reads != ["sync"]:
            counts = "".join(f"{reads.count(domain)}{domain}" for domain in ("sync", "comb") if domain in reads)
            words.append(counts or "none")
        if len(this.write_ports) > 1:
            words.append(f"{len(this.write_ports)}w")
        if this.write_ports and initialised:
            words.append("init")
        elif not this.write_ports and not initialised:
            words.append("zero")
        name = identifier("_".join(words))
        text = _memory_module(name, reads, len(this.write_ports), attributes, initialised=initialised)
        while self.modules.setdefault(name, text) != text:  # another module has the same name
            name += "_"
            text = _memory_module(name, reads, len(this.write_ports), attributes, initialised=initialised)
        return name


def _as_value(value: Any) -> Any:
    return value if not hasattr(value, "as_value") else value.as_value()


def placeholder(file_index: int) -> str:
    """Return the text that stands for a memory file's name until the file is named."""
    return f"hwgen-memory-{file_index}"


def _file_index(parameter: object) -> int | None:
    """Return the index of the memory file that a placeholder text stands for; ``None`` for any other text."""
    match = re.fullmatch(r"hwgen-memory-(\d+)", str(parameter))
    return int(match[1]) if match else None


def _content(this: memory.Memory, width: int) -> bytes | None:
    """Return a memory's initial rows as bytes, in hexadecimal, one per line; ``None`` if all rows are zero."""
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
    """Return the Verilog text of a memory module with given ports, and with width and depth as parameters.

    Parameters
    ----------
    name : str
        Name of the module.
    reads : list of str
        Domain of each read port, ``sync`` or ``comb``.
    writes : int
        Number of write ports.
    attributes : mapping
        Attributes for synthesis.
    initialised : bool
        Whether the memory reads its contents from a file.
    """
    parameters = ["WIDTH = 1", "DEPTH = 2"] + [f"W{index}_PARTS = 1" for index in range(writes)]
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
        # Yosys also reads the module without parameters, and then needs a module without a file.
        body += [
            "    generate",
            '        if (INIT != "") begin : contents',
            "            initial $readmemh(INIT, memory);",
        ]
        body += ["        end", "    endgenerate", ""]
    else:
        body += [
            "    // Memories of a device begin with zeros. The loop is for simulation: synthesis would unroll it.",
            "`ifndef SYNTHESIS",
            "    integer row;",
            "    initial for (row = 0; row < DEPTH; row = row + 1) memory[row] = {WIDTH{1'b0}};",
            "`endif",
            "",
        ]
    for index, domain in enumerate(reads):
        port = f"r{index}"
        ports += [f"input  wire [$clog2(DEPTH)-1:0] {port}_addr"]
        if domain == "comb":
            ports += [f"output wire [WIDTH-1:0] {port}_data"]
            body += [f"    assign {port}_data = memory[{port}_addr];", ""]
        else:
            ports += [f"input  wire {port}_en", f"output reg  [WIDTH-1:0] {port}_data"]
            body += ["    always @(posedge clk)", f"        if ({port}_en) {port}_data <= memory[{port}_addr];", ""]
    for index in range(writes):
        port, num_slices = f"w{index}", f"W{index}_PARTS"
        ports += [
            f"input  wire [$clog2(DEPTH)-1:0] {port}_addr",
            f"input  wire [{num_slices}-1:0] {port}_en",
            f"input  wire [WIDTH-1:0] {port}_data",
        ]
        bits = f"[{port}_part*(WIDTH/{num_slices}) +: WIDTH/{num_slices}]"
        body += [
            f"    integer {port}_part;",
            "    always @(posedge clk)",
            f"        for ({port}_part = 0; {port}_part < {num_slices}; {port}_part = {port}_part + 1)",
            f"            if ({port}_en[{port}_part]) memory[{port}_addr]{bits} <= {port}_data{bits};",
            "",
        ]
    lines = [
        "",
        "// A read returns the old word if the same cycle writes the word.",
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
    """Return a dict from memory-file index to file name (``module.instance.mem``), one name per memory content."""
    paths = {}
    for module in design.values():
        for cell in module.cells:
            file_index = _file_index(cell.parameters.get("INIT"))
            if file_index is not None:
                paths[file_index] = re.sub(r"\$\d+|[^\w.-]", "", f"{module.name}.{cell.name}")
    if set(paths) != set(platform.contents):
        raise AssertionError("a memory of the design was not found in its Verilog")
    return dict(zip(paths, (f"{name}.mem" for name in unique(paths.values())), strict=True))


def convert(component: wiring.Component, name: str, *, head: str = "", device: Device = DEFAULT) -> dict[str, bytes]:
    """Return, as a dictionary, an Amaranth component as Verilog and memory files: bytes by file name.

    Parameters
    ----------
    component : Component
        Component to write.
    name : str
        Name of the top module. The Verilog is ``NAME.v``.
    head : str
        Text of the comment at the start of the Verilog.
    device : Device
        Device family whose cells the design's primitives can use (`hwgen.verilog.primitives`).

    Raises
    ------
    ToolError
        If one of the component's operators can't be written as Verilog.
    """
    platform = WriterPlatform(name, component, device)
    with _no_collection(), checked_by_cell():
        tell(what := f"{name}: writing the Verilog")
        elaborated = Elaborated(component)
        design = rtlil.parse(rtlil_of_amaranth.convert(elaborated, name, platform))
        count = len(platform.parts) + len(design)
        separate = parts.written(design, platform.parts, device, lambda done: tell(what, done, count, "module"))
        outside = faces(design, components(elaborated.fragment, name), separate)
        drivers = outputs(elaborated.fragment)
        modules = []
        for index, module in enumerate(design.values()):
            tell(what, len(separate) + index, count, "module")
            text = ModuleText(netlist(module, design, drivers), outside[module.name], outside)
            modules.append("\n".join(text.lines()))
            modules += [part.module(outside[cell]) for cell, part in separate.items() if part.inside == module.name]
    names = memory_files(design, platform)
    comment = "".join(f"// {line}".rstrip() + "\n" for line in head.splitlines())
    result = (
        "\n\n".join([comment.rstrip("\n"), *modules, *(text.strip("\n") for text in platform.modules.values())]) + "\n"
    )
    for file_index, file in names.items():
        result = result.replace(f'"{placeholder(file_index)}"', f'"{file}"')
    primitives = {**platform.primitives}
    for part in separate.values():
        primitives |= part.primitives
    taken = [*(face.name for face in outside.values()), *platform.modules]
    result = named_modules(result.rstrip("\n"), primitives, name, taken) + "\n"
    files = {
        f"{name}.v": printable.text(result.lstrip("\n")).encode(errors="backslashreplace")
    }  # the name of a file can have bytes that are not UTF-8
    for file_index, file in sorted(names.items(), key=lambda item: item[1]):
        files[file] = platform.contents[file_index]
    return files


@contextmanager
def _no_collection() -> Iterator[None]:
    """Context manager that disables garbage collection in its block; large designs then take a third less time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


#: Tuple of classes of Amaranth's netlist cells without a combinational path from an input to an output. Amaranth treats
#: instances as such cells.
_PATHLESS = (_nir.Top, _nir.FlipFlop, _nir.SyncReadPort, _nir.Instance)


@contextmanager
def checked_by_cell() -> Iterator[None]:
    """Context manager that makes Amaranth check for combinational cycles by cells, which is faster than by bits.

    The cells of a netlist form a graph, and a netlist whose graph of cells has no cycle has no cycle of bits either.
    Amaranth's own check, which follows each bit and takes much longer, decides the rest, such as a signal whose bits
    depend on each other in order. Amaranth raises the same exception for the same netlists.
    """
    netlists: Any = _nir.Netlist
    by_bit = netlists.check_comb_cycles

    def check(netlist: Any) -> None:
        if _has_cycle(netlist):
            by_bit(netlist)

    netlists.check_comb_cycles = check
    try:
        yield
    finally:
        netlists.check_comb_cycles = by_bit


def _has_cycle(netlist: Any) -> bool:
    """Return whether combinational cells of a netlist, or connected signals, depend on each other in a cycle.

    The nodes of the graph are cells, by their index starting at 0, and nets that no cell drives directly, by their
    negative number. Constants count as outputs of cell 0, the top, which has no inputs here.
    """
    inputs: dict[int, set[int]] = {net: {_node(source)} for net, source in netlist.connections.items()}
    for index, cell in enumerate(netlist.cells):
        if not isinstance(cell, _PATHLESS):
            inputs[index] = {_node(net) for net in cell.input_nets()}
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError:
        return True
    return False


def _node(net: Any) -> int:
    """Return the graph node that drives a net: a cell's index, or the net's negative number if it is connected late."""
    return net if net.is_late else net >> 16
