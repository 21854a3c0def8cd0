"""Conversion of any Amaranth component to Verilog and memory files; equal components give equal files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any

from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.hdl import _nir  # type: ignore[attr-defined]  # not in the stubs
from amaranth.lib import wiring

from hwgen import printable
from hwgen.devices import DEFAULT, Device
from hwgen.progress import tell
from hwgen.verilog import parts, rtlil
from hwgen.verilog.faces import Elaborated, components, faces, outputs
from hwgen.verilog.memories import WriterPlatform, memory_files, placeholder
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import named_modules


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
