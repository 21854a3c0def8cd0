"""Verilog of `Part` components: submodules that are written separately, and reused from a cache by other designs.

The design has an instance of each part's module. A part that equals another design's comes from the cache.
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

from hwgen.devices import Device
from hwgen.gateware.circuit_forms import Part
from hwgen.verilog import kept
from hwgen.verilog.faces import Elaborated, SeparateModule, face, outputs
from hwgen.verilog.module_text import Face, ModuleText, base
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import PrimitivePlatform
from hwgen.verilog.rtlil import Design, parse

_TEXT, _PORTS, _PRIMITIVES = "part.v", "ports.json", "primitives.json"


@dataclass(frozen=True, kw_only=True)
class Written(SeparateModule):
    """Verilog module of a `Part` (a submodule whose Verilog is cached), finished but for name and comment.

    Parameters
    ----------
    text : str
        Verilog of the module after the module's name.
    primitives : mapping of str to str
        Verilog of the primitives that the module instantiates, by name (`PrimitivePlatform`).
    """

    text: str
    primitives: Mapping[str, str]

    def module(self, outside: Face) -> str:
        """Return the complete Verilog of the part's module, with the name and comment lines of ``outside``."""
        return "\n".join([*(f"// {line}".rstrip() for line in outside.head), f"module {outside.name}{self.text}"])


def instance(part: Part[Any], cell_type: str) -> Instance:
    """Return an Amaranth `Instance` of a `Part`, a submodule whose Verilog is written separately.

    ``cell_type`` is a name that no module of the design has.
    """
    ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
    for name, (direction, value) in _ports(part).items():
        ports[f"{direction}_{name}"] = value
    return Instance(cell_type, **ports)


def written(
    design: Design,
    design_parts: Mapping[str, Part[Any]],
    device: Device,
    tick: Callable[[int], None] = lambda count: None,
) -> dict[str, Written]:
    """Return a dict by cell type of a design's `Part` modules (with cached Verilog), written now if not cached.

    Parameters
    ----------
    design : Design
        Modules of the design, with an instance of each part.
    design_parts : mapping of str to Part
        Parts by the cell type of their instances. The result has the same keys.
    device : Device
        Device family whose cells the parts' primitives can use.
    tick : callable
        Receiver of the number of written parts, before each part.

    Raises
    ------
    ToolError
        If one of a part's operators can't be written as Verilog.
    """
    modules: dict[str, Written] = {}
    for module in design.values():
        for cell in module.cells:
            if (part := design_parts.get(cell.kind[1:])) is not None:
                tick(len(modules))
                name = base(cell.name)
                files = _part_files(part, name, device)
                modules[cell.kind[1:]] = Written(
                    inside=module.name,
                    name=name,
                    component=part,
                    ports=tuple(json.loads(files[_PORTS])),
                    text=files[_TEXT].decode(),
                    primitives=json.loads(files[_PRIMITIVES]),
                )
    return modules


def _ports(part: Part[Any]) -> dict[str, tuple[str, Any]]:
    """Return a dictionary of pairs (``i`` or ``o``, Amaranth signal), one per port of a `Part` component, by port name.

    Constants, such as a ready signal that is always high, are not ports.
    """
    ports = {}
    for path, member, value in part.signature.flatten(part):
        signal = Value.cast(value)
        if isinstance(signal, Signal):
            ports["__".join(map(str, path))] = "i" if member.flow == In else "o", signal
    return ports


def ports_of(part: Part[Any]) -> list[tuple[str, Any, None]]:
    """Return, as a list, a `Part` component's ports for Amaranth's RTLIL writer, as tuples (name, signal, ``None``)."""
    return [(port, signal, None) for port, (_, signal) in _ports(part).items()]


def _part_files(part: Part[Any], name: str, device: Device) -> dict[str, bytes]:
    """Return a dict of Verilog cache files (bytes by name) of a `Part` submodule, written now if the cache has none."""
    write = partial(_files, part, name, device)
    if type(part).__module__.partition(".")[0] != "hwgen":  # the cache can't know whether the class changed
        return write()
    return kept.written((type(part), part.config, name, device.name), write)


def _files(part: Part[Any], name: str, device: Device) -> dict[str, bytes]:
    """Return, as a dict, a `Part` submodule's cache files as bytes by name: Verilog body, port names, and primitives.

    ``name`` is the name of its instances.
    """
    platform = PrimitivePlatform(device)
    _, outside, writer = text_of(part, name, platform)
    (begin, *lines) = writer.lines()
    text = "\n".join([begin.removeprefix(f"module {outside.name}"), *lines])
    return {
        _TEXT: text.encode(),
        _PORTS: json.dumps(list(outside.ports.values())).encode(),
        _PRIMITIVES: json.dumps(platform.primitives).encode(),
    }


def text_of(part: Part[Any], name: str, platform: PrimitivePlatform | None = None) -> tuple[str, Face, ModuleText]:
    """Return a tuple for a `Part` submodule: its RTLIL text, its `Face` (name, ports), and its Verilog writer.

    ``name`` is the name of its instances. The platform receives the primitives of the part; without a platform the
    part must have none.
    """
    elaborated = Elaborated(part)
    design = parse(text := rtlil_of_amaranth.convert(elaborated, name, platform, ports=ports_of(part)))
    module = design[name]
    outside = replace(face(module, name, part), head=())
    if len(design) > 1 or module.memories or "clk" not in outside.ports.values():
        raise AssertionError(f"{type(part).__name__} is not a part: it has memories, components or no registers")
    net = netlist(module, design, outputs(elaborated.fragment))
    return text, outside, ModuleText(net, outside, {}, part=True)
