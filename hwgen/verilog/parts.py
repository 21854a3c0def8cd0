"""Parts of a design (`hwgen.gateware.part`), each written by itself and kept: where it is found again it costs nothing.

In the design an instance stands for each, of a module that is written apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from amaranth import ClockSignal, Instance, ResetSignal, Signal, Value
from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.lib.wiring import In

from hwgen.gateware.part import Part
from hwgen.verilog import kept
from hwgen.verilog.faces import Apart, face
from hwgen.verilog.module_text import Face, ModuleText, base
from hwgen.verilog.netlist import netlist
from hwgen.verilog.rtlil import Design, parse

__all__ = ["Written", "instance", "text_of", "written"]

_TEXT, _PORTS = "part.v", "ports.json"


@dataclass(frozen=True, kw_only=True)
class Written(Apart):
    """A part's module; ``text`` is its Verilog behind its name."""

    text: str

    def module(self, outside: Face) -> str:
        """All of its Verilog."""
        return "\n".join([*(f"// {line}".rstrip() for line in outside.head), f"module {outside.name}{self.text}"])


def instance(part: Part[Any], kind: str) -> Instance:
    """What stands for a part in a design, under a name that no module has."""
    ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
    for name, (direction, value) in _ports(part).items():
        ports[f"{direction}_{name}"] = value
    return Instance(kind, **ports)


def written(
    design: Design, parts: Mapping[str, Part[Any]], told: Callable[[int], None] = lambda number: None
) -> dict[str, Written]:
    """The modules of a design's parts by the kinds of their instances, from the cache if they were written before.

    ``told`` is told how many there are so far, before each.

    Raises
    ------
    ToolError
        If Verilog can't be written of one of their operators.
    """
    found = {}
    for module in design.values():
        for cell in module.cells:
            if (part := parts.get(cell.kind[1:])) is not None:
                told(len(found))
                name = base(cell.name)
                files = _kept(part, name)
                found[cell.kind[1:]] = Written(
                    inside=module.name,
                    name=name,
                    component=part,
                    ports=tuple(json.loads(files[_PORTS])),
                    text=files[_TEXT].decode(),
                )
    return found


def _ports(part: Part[Any]) -> dict[str, tuple[str, Any]]:
    """Direction, ``i`` or ``o``, and signal of each port; what is always ready or valid has none."""
    found = {}
    for path, member, value in part.signature.flatten(part):
        signal = Value.cast(value)
        if isinstance(signal, Signal):
            found["__".join(map(str, path))] = "i" if member.flow == In else "o", signal
    return found


def _kept(part: Part[Any], name: str) -> dict[str, bytes]:
    """`_files`, from the cache if they were written before."""
    write = partial(_files, part, name)
    if type(part).__module__.partition(".")[0] != "hwgen":  # nobody knows whether it changed
        return write()
    return kept.written((type(part), part.config, name), write)


def _files(part: Part[Any], name: str) -> dict[str, bytes]:
    """The module of a part whose instances have that name, and its ports."""
    _, outside, writer = text_of(part, name)
    (begin, *lines) = writer.lines()
    text = "\n".join([begin.removeprefix(f"module {outside.name}"), *lines])
    return {_TEXT: text.encode(), _PORTS: json.dumps(list(outside.ports.values())).encode()}


def text_of(part: Part[Any], name: str) -> tuple[str, Face, ModuleText]:
    """RTLIL of a part whose instances have that name, what it is called from outside, and what writes it as Verilog."""
    ports = [(port, signal, None) for port, (_, signal) in _ports(part).items()]
    design = parse(text := rtlil_of_amaranth.convert(part, name, ports=ports))
    module = design[name]
    outside = replace(face(module, name, part), head=())
    if len(design) > 1 or module.memories or "clk" not in outside.ports.values():
        raise AssertionError(f"{type(part).__name__} has memories or components inside, or no registers: it is no part")
    return text, outside, ModuleText(netlist(module, design, {}), outside, {}, part=True)
