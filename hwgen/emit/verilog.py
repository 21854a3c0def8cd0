"""From an Amaranth component to Verilog and memory files, the same bytes each time.

Memories of more than ``LARGE`` bits don't go into the text row by row (which takes minutes and gigabytes): the
``get_memory()`` hook of Amaranth puts an instance of a small Verilog module there, which reads its contents by
``$readmemh``. The modules follow the templates from which Vivado and Yosys infer block and distributed RAM.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, cast

from amaranth import ClockSignal, Const, Elaboratable, Instance, Shape, ShapeCastable
from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.hdl import Fragment
from amaranth.lib import memory, wiring

from hwgen import printable
from hwgen.emit import kept, parts, rtlil
from hwgen.emit.faces import components, faces, outputs
from hwgen.emit.module_text import ModuleText
from hwgen.emit.netlist import netlist
from hwgen.errors import InputError
from hwgen.gateware.load.store import PART_BITS
from hwgen.gateware.names import identifier, unique
from hwgen.gateware.part import Part
from hwgen.gateware.stream import BeatFormat, Order, Port
from hwgen.progress import tell

LARGE = 4096
"""Bits above which a memory becomes a module of its own."""


class Config(Protocol):
    """What is asked of a configuration: an accelerator's, or that of anything with its ports."""

    @property
    def name(self) -> str: ...

    @property
    def input(self) -> BeatFormat: ...

    @property
    def output(self) -> BeatFormat: ...

    @property
    def input_order(self) -> Order: ...

    @property
    def output_order(self) -> Order: ...


def output_ports(config: Config) -> tuple[Port, ...]:
    """The streams that leave: an accelerator's, or ``o`` alone."""
    return getattr(config, "output_ports", None) or (Port("o", config.output, config.output_order),)


def input_ports(config: Config) -> tuple[Port, ...]:
    """The streams that enter: an accelerator's, or ``i`` alone."""
    return getattr(config, "input_ports", None) or (Port("i", config.input, config.input_order),)


def error_ports(config: Config) -> tuple[str, ...]:
    """The ports on which wrong frames are told of: an accelerator's, one an input, or none."""
    return getattr(config, "error_ports", ())


def tied_ports(config: Config) -> dict[str, int]:
    """Inputs that stay 0 while frames go through, and their bits: those by which weights are loaded, or none."""
    if getattr(config, "loader", None) is None:
        return {}
    return {"weights__payload": PART_BITS + 1, "weights__valid": 1, "weights_state__clear": 1}


Factory = Callable[..., wiring.Component]
"""Makes the component: ``factory(config)``, or ``factory(config, taps=True)``."""


def accelerator(config: Config, *, component: Factory | None = None, taps: bool = False) -> wiring.Component:
    """The component of a configuration: ``Accelerator`` unless another factory is given."""
    factory = component
    if factory is None:
        from hwgen.gateware.accelerator import Accelerator

        factory = cast(Factory, Accelerator)
    return factory(config, taps=True) if taps else factory(config)


def files(
    config: Config,
    *,
    component: Factory | None = None,
    taps: bool = False,
    top: str | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> dict[str, bytes]:
    """Verilog and memory files of an accelerator, from the cache if they were written before.

    Parameters
    ----------
    config : AcceleratorConfig
        Or the configuration of ``component``.
    component : callable, optional
        Makes another component with the same ports.
    taps : bool
        With the outputs that let every layer be watched.
    top : str, optional
        The top module, an identifier; ``identifier(config.name)`` if not given.
    say : callable
        Told if they are written now.

    Returns
    -------
    dict of str to bytes
        ``TOP.v`` first, then the memory files by name.

    Raises
    ------
    ToolError
        If Verilog can't be written of one of its operators.
    """
    top = top or identifier(config.name)
    head = [
        f"Accelerator of {_on_one_line(config.name)}, written by hwgen. Do not edit: it is written anew from the model "
        "and the plan.",
        "All ports are plain vectors; values travel as in two's complement where a stream is signed.",
        *(line for port in (*input_ports(config), *output_ports(config)) for line in _describe(port)),
    ]

    def write() -> dict[str, bytes]:
        return convert(accelerator(config, component=component, taps=taps), top, head="\n".join(head))

    if component is not None:  # not hwgen's own: nobody knows whether it changed
        say(kept.STEP)
        return write()
    return kept.written((config, taps, top), write, say=say)


def write(config: Config, directory: str | Path, *, component: Factory | None = None, taps: bool = False) -> list[Path]:
    """Write what ``files`` gives into a folder, which is made if it is missing; unchanged files keep their time.

    Raises
    ------
    InputError
        If the folder can't be written.
    ToolError
        If Verilog can't be written of one of its operators.
    """
    return write_files(files(config, component=component, taps=taps), directory)


def write_files(contents: Mapping[str, bytes], directory: str | Path) -> list[Path]:
    """Write files whose contents changed, and leave the others alone."""
    directory = Path(directory)
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            path = directory / name
            paths.append(path)
            with suppress(FileNotFoundError):
                if path.read_bytes() == content:
                    continue
            path.write_bytes(content)
    except OSError as error:
        raise InputError(f"output folder {directory} can't be written: {error.strerror or error}") from error
    return paths


def convert(component: wiring.Component, name: str, *, head: str = "") -> dict[str, bytes]:
    """Verilog and memory files of any component; ``head`` becomes the comment at the top.

    Raises
    ------
    ToolError
        If it has an operator that Verilog can't be written of.
    """
    platform = _Platform(name, component)
    with _no_collection():
        tell(what := f"{name}: writing the Verilog")
        elaborated = _Elaborated(component)
        design = rtlil.parse(rtlil_of_amaranth.convert(elaborated, name, platform))
        count = len(platform.parts) + len(design)
        apart = parts.written(design, platform.parts, lambda number: tell(what, number, count, "module"))
        outside = faces(design, components(elaborated.fragment, name), apart)
        drivers = outputs(elaborated.fragment)
        modules = []
        for number, module in enumerate(design.values()):
            tell(what, len(apart) + number, count, "module")
            text = ModuleText(netlist(module, design, drivers), outside[module.name], outside)
            modules.append("\n".join(text.lines()))
            modules += [part.module(outside[kind]) for kind, part in apart.items() if part.inside == module.name]
    names = _files(design, platform)
    comment = "".join(f"// {line}".rstrip() + "\n" for line in head.splitlines())
    result = (
        "\n\n".join([comment.rstrip("\n"), *modules, *(text.strip("\n") for text in platform.modules.values())]) + "\n"
    )
    for number, file in names.items():
        result = result.replace(f'"{_placeholder(number)}"', f'"{file}"')
    files = {
        f"{name}.v": printable.text(result.lstrip("\n")).encode(errors="backslashreplace")
    }  # names of files need not be UTF-8
    for number, file in sorted(names.items(), key=lambda item: item[1]):
        files[file] = platform.contents[number]
    return files


class _Elaborated(Elaboratable):
    """A component whose fragment is kept when it is elaborated; all else about it is the component's own."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component
        self.fragment: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)

    def elaborate(self, platform: Any) -> Fragment:
        self.fragment = Fragment.get(self._component, platform)
        return self.fragment


def _on_one_line(name: str) -> str:
    """Return a user's name with escapes for what can't be printed: behind an end of a line a comment would end."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def _describe(of: Port) -> list[str]:
    port, beat, order = of.name, of.beat, of.order
    kind = f"{'signed' if beat.signed else 'unsigned'} {beat.bits}-bit values"
    travels = "row-major" if order == beat.raster else "rectangle by rectangle, each row-major"
    return [
        f"{port}: {beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), {kind}, {travels}; "
        f"{beat.lanes} {'channels' if beat.lanes > 1 else 'channel'} a beat",
        f"   (lowest in the lowest bits, zero past the last channel), {beat.folds} "
        f"{'beats' if beat.folds > 1 else 'beat'} a pixel; top bit of {port}__payload: last beat of the frame.",
    ]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection: a third faster on large designs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Memories


class _Platform:
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
            ports["p_INIT"] = _placeholder(number)
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


def _placeholder(number: int) -> str:
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


def _files(design: rtlil.Design, platform: _Platform) -> dict[int, str]:
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
