"""Verilog and memory files of any Amaranth component, the same bytes each time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth import Elaboratable
from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.hdl import Fragment
from amaranth.lib import wiring

from hwgen import printable
from hwgen.progress import tell
from hwgen.verilog import parts, rtlil
from hwgen.verilog.faces import components, faces, outputs
from hwgen.verilog.memories import WriterPlatform, memory_files, placeholder
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist

__all__ = ["convert"]


def convert(component: wiring.Component, name: str, *, head: str = "") -> dict[str, bytes]:
    """Verilog and memory files of any component; ``head`` becomes the comment at the top.

    Raises
    ------
    ToolError
        If it has an operator that Verilog can't be written of.
    """
    platform = WriterPlatform(name, component)
    with _no_collection():
        tell(what := f"{name}: writing the Verilog")
        elaborated = Elaborated(component)
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
    names = memory_files(design, platform)
    comment = "".join(f"// {line}".rstrip() + "\n" for line in head.splitlines())
    result = (
        "\n\n".join([comment.rstrip("\n"), *modules, *(text.strip("\n") for text in platform.modules.values())]) + "\n"
    )
    for number, file in names.items():
        result = result.replace(f'"{placeholder(number)}"', f'"{file}"')
    files = {
        f"{name}.v": printable.text(result.lstrip("\n")).encode(errors="backslashreplace")
    }  # names of files need not be UTF-8
    for number, file in sorted(names.items(), key=lambda item: item[1]):
        files[file] = platform.contents[number]
    return files


class Elaborated(Elaboratable):
    """A component whose fragment is kept when it is elaborated; all else about it is the component's own."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component
        self.fragment: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)

    def elaborate(self, platform: Any) -> Fragment:
        self.fragment = Fragment.get(self._component, platform)
        return self.fragment


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
