"""Verilog modules with two forms, one for simulation and one for synthesis, which the macro ``SYNTHESIS`` selects.

Synthesis tools define this Verilog macro. A primitive has a behavioural form and a
form in a family's cells; a `Modelled` component has a model and its circuit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from amaranth import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.back import rtlil as rtlil_of_amaranth  # type: ignore[attr-defined]  # not in the stubs
from amaranth.hdl import Fragment
from amaranth.lib.wiring import In

from hwgen.devices import Device
from hwgen.gateware.circuit_forms import Modelled, Primitive
from hwgen.gateware.component import ConfiguredComponent
from hwgen.verilog import kept
from hwgen.verilog.faces import face, outputs
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.rtlil import parse

_MARK = "hwgen-primitive-"

#: Pattern of a Verilog output port that is a register, with an optional value at power-up.
_OUTPUT_REGISTER = re.compile(r"^( +output )reg( +[^=]*?\w)(?: = [^,/]*?)?(?=,|$|  //)")


class PrimitivePlatform:
    """Amaranth platform that collects a design's primitives: components with a form in device cells.

    Parameters
    ----------
    device : Device
        Device family whose cells the primitives can use.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.primitives: dict[str, str] = {}
        """Dictionary by the module's name without the design's name: Verilog module of each primitive."""

    def get_primitive(self, this: Primitive[Any]) -> Any:
        """Return an Amaranth instance of a primitive (a component with a form in device cells); collect its Verilog."""
        name = this.module_name
        if name not in self.primitives:
            self.primitives[name] = text_of(this, self.device)
        return _instance(this, name, **({"i_clk": ClockSignal()} if this.has_clock else {}))

    def get_modelled(self, this: Modelled[Any]) -> Any:
        """Return an Amaranth instance of a component with a simulation model; collect its Verilog module."""
        if this.module_name not in self.primitives:
            files = kept.written((repr(this.config), self.device.name), lambda: _modelled_files(this, self.device))
            self.primitives |= json.loads(files[_MODULES])
        return _instance(this, this.module_name, i_clk=ClockSignal(), i_rst=ResetSignal())


def text_of(primitive: Primitive[Any], device: Device) -> str:
    """Return a primitive's Verilog text: the simulation form, and a form in the device's cells if there is one."""
    _, writer = behaviour(primitive)
    lines = writer.lines()
    body = lines.index(");") + 1
    front, behavioural = lines[:body], lines[body:-1]
    if (cells := primitive.cells(device)) and primitive.has_clock:
        # Two modules, because an output can be a register of one and a wire of the other.
        wires = [_OUTPUT_REGISTER.sub(r"\1wire\2", line) for line in front]
        return "\n".join(["`ifdef SYNTHESIS", *wires, "", *cells, "endmodule", "`else", *lines, "`endif"])
    if cells:
        behavioural = ["", "`ifdef SYNTHESIS", *cells, "`else", *behavioural[1:], "`endif"]
    return "\n".join([*front, *behavioural, "endmodule"])


def behaviour(primitive: Primitive[Any]) -> tuple[str, ModuleText]:
    """Return a pair for a primitive's form without device cells: RTLIL text, and the module's Verilog writer."""
    name = primitive.module_name
    fragment = Fragment.get(primitive, None)
    ports = [(port, signal, None) for port, (_, signal) in _ports(primitive).items()]
    if primitive.has_clock:
        clock: Any = ClockDomain("sync", reset_less=True)
        fragment.add_domains(clock)
        ports = [("clk", clock.clk, None), *ports]
    design = parse(text := rtlil_of_amaranth.convert(fragment, name, ports=ports))
    outside = face(design[name], f"{_MARK}{name}", primitive)
    return text, ModuleText(netlist(design[name], design, {}), outside, {})


def _instance(component: ConfiguredComponent[Any], name: str, **clocks: Any) -> Instance:
    """Return an Amaranth `Instance` of the module of a primitive, or of a component with a simulation model."""
    ports: dict[str, Any] = {f"{direction}_{port}": signal for port, (direction, signal) in _ports(component).items()}
    return Instance(f"{_MARK}{name}", **clocks, **ports)


_MODULES = "modules.json"


def _modelled_files(component: Modelled[Any], device: Device) -> dict[str, bytes]:
    """Return a dict with a JSON file (bytes by name): Verilog of a component with a simulation model and primitives."""
    platform = PrimitivePlatform(device)
    circuit, model = (form(component, make(), platform)[1].lines() for make in (component.circuit, component.model))
    text = "\n".join(["`ifdef SYNTHESIS", *circuit, "`else", *model, "`endif"])
    return {_MODULES: json.dumps({**platform.primitives, component.module_name: text}).encode()}


def form(component: Modelled[Any], circuit: Module, platform: PrimitivePlatform) -> tuple[str, ModuleText]:
    """Return a pair for one form (model or circuit) of a component's module: RTLIL text, and Verilog writer."""
    name = component.module_name
    clock: Any = ClockDomain("sync")
    circuit.domains.sync = clock
    clocks = [("clk", clock.clk, None), ("rst", clock.rst, None)]
    ports = [*clocks, *((port, signal, None) for port, (_, signal) in _ports(component).items())]
    fragment = Fragment.get(circuit, platform)
    design = parse(text := rtlil_of_amaranth.convert(fragment, name, platform, ports=ports))
    outside = face(design[name], f"{_MARK}{name}", component)
    return text, ModuleText(netlist(design[name], design, outputs(fragment)), outside, {}, part=True)


def _ports(primitive: ConfiguredComponent[Any]) -> dict[str, tuple[str, Any]]:
    """Return a dictionary of pairs (``i`` or ``o``, Amaranth signal), one per port of a component, by port name."""
    return {
        "__".join(map(str, path)): ("i" if member.flow == In else "o", Value.cast(value))
        for path, member, value in primitive.signature.flatten(primitive)
    }


def named_modules(text: str, primitives: Mapping[str, str], name: str, taken: Iterable[str]) -> str:
    """Return a design's Verilog with the modules of its primitives appended, named ``DESIGN_PRIMITIVE``.

    Parameters
    ----------
    text : str
        Verilog of the other modules, with instances of the primitives.
    primitives : mapping of str to str
        Texts of the modules, from `PrimitivePlatform`.
    name : str
        Name of the design.
    taken : iterable of str
        Names of the design's other modules.
    """
    used = {*taken}
    names = {}
    for primitive in primitives:
        names[primitive] = f"{name}_{primitive}"
        while names[primitive] in used:
            names[primitive] += "_"
    whole = "\n\n".join([text, *primitives.values()])
    return re.sub(rf"{_MARK}(\w+)", lambda match: names[match[1]], whole)
