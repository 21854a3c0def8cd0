"""Amaranth's netlist of each module of a design, and the names by which the emitted Verilog calls its signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amaranth import DomainRenamer, Instance, Module, Signal, Value
from amaranth.back import rtlil as rtlil_of_amaranth
from amaranth.lib import memory, wiring

from hwgen.devices import Device
from hwgen.gateware.modelled import Modelled
from hwgen.gateware.part import Part
from hwgen.gateware.primitive import Primitive
from hwgen.verilog import parts, primitives, rtlil
from hwgen.verilog.faces import Elaborated, components, faces, outputs
from hwgen.verilog.memories import WriterPlatform
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import PrimitivePlatform


@dataclass(frozen=True)
class Names:
    """Verilog names of an RTLIL module's wires (ports and registers among them), memories and instances."""

    wires: Mapping[str, str]
    memories: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: ModuleText) -> Names:
        """Return the names that a module's writer chose. It chooses the last of them while it writes."""
        text.lines()
        return cls(text.names, text.memories, text.cells)


class Recorder(PrimitivePlatform):
    """Platform that also records the primitives and components with a model, by the name of their instances' module."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.circuits: dict[str, Primitive[Any] | Modelled[Any]] = {}

    def get_primitive(self, this: Primitive[Any]) -> Any:
        made = super().get_primitive(this)
        if isinstance(made, Instance):
            self.circuits[made.type] = this
        return made

    def get_modelled(self, this: Modelled[Any]) -> Any:
        made = super().get_modelled(this)
        self.circuits[made.type] = this
        return made


class DesignRecorder(Recorder, WriterPlatform):
    """Platform of the Verilog writer that also records large memories, each an instance of a module of its own."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.memories: dict[str, memory.Memory] = {}

    def get_memory(self, this: memory.Memory) -> Any:
        made = super().get_memory(this)
        if isinstance(made, Instance):
            made.type = f"memory-{len(self.memories)}"
            self.memories[made.type] = this
        return made


@dataclass
class Gold:
    """Amaranth's netlists of a design's modules, with the names that the Verilog writer gives to their parts.

    Parameters
    ----------
    top : str
        Name of the top module.
    texts : list of str
        RTLIL of the modules.
    names : dict of str to Names
        Names in Verilog, by the module's name in RTLIL.
    circuits : dict of str to str
        Name of the module that synthesis reads, by the name of the module that simulators read, where both differ.
    """

    top: str
    texts: list[str] = field(default_factory=list)
    names: dict[str, Names] = field(default_factory=dict)
    circuits: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, component: wiring.Component, top: str, device: Device) -> Gold:
        """Return Amaranth's netlists of a component, which the Verilog writer writes as the module ``top``."""
        self = cls(top)
        platform = DesignRecorder(top, component, device)
        elaborated = Elaborated(component)
        text = rtlil_of_amaranth.convert(elaborated, top, platform)
        design = rtlil.parse(text)
        separate = parts.written(design, platform.parts, device)
        outside = faces(design, components(elaborated.fragment, top), separate)
        drivers = outputs(elaborated.fragment)
        self.texts.append(text)
        for name, module in design.items():
            self.names[name] = Names.of(ModuleText(netlist(module, design, drivers), outside[name], outside))
        recorder = Recorder(device)
        for name, part in platform.parts.items():
            self._add_part(name, part, separate[name].name, recorder)
        for name, large in platform.memories.items():
            self._add_memory(name, large)
        recorder.circuits |= platform.circuits
        self._add_circuits(recorder)
        return self

    def _add_part(self, name: str, part: Part[Any], instance: str, recorder: Recorder) -> None:
        text, _, writer = parts.text_of(part, instance, recorder)
        self.texts.append(_renamed(text, instance, name))
        self.names[name] = Names.of(writer)

    def _add_memory(self, name: str, large: memory.Memory) -> None:
        """Add a large memory, whose ports have the names that the writer's module gives them."""
        ports = []
        for side, members in (("r", large.read_ports), ("w", large.write_ports)):
            for index, port in enumerate(members):
                fields = {"addr": port.addr, "data": port.data, "en": port.en}
                ports += [(f"{side}{index}_{key}", Value.cast(value), None) for key, value in fields.items()]
        signals = [port for port in ports if isinstance(port[1], Signal)]
        (domain,) = {port.domain for port in (*large.read_ports, *large.write_ports)} - {"comb"}
        around = Module()
        around.submodules.memory = DomainRenamer({domain: "sync"})(large)
        text = rtlil_of_amaranth.convert(around, name, ports=signals)
        self.texts.append(text)
        module = rtlil.parse(text)[name]
        ports_of_module = {wire: wire.removeprefix("\\") for wire, port in module.wires.items() if port.port}
        self.names[name] = Names(ports_of_module, dict.fromkeys(module.memories, "memory"))

    def _add_circuits(self, recorder: Recorder) -> None:
        """Add primitives, and both circuits of components with a model."""
        done: set[str] = set()
        while left := recorder.circuits.keys() - done:
            name = min(left)
            done.add(name)
            this = recorder.circuits[name]
            if isinstance(this, Primitive):
                self._add_circuit(name, *primitives.behaviour(this))
                continue
            self.circuits[name] = f"{name}-circuit"
            self._add_circuit(name, *primitives.form(this, this.model(), recorder))
            self._add_circuit(self.circuits[name], *primitives.form(this, this.circuit(), recorder))

    def _add_circuit(self, name: str, text: str, writer: ModuleText) -> None:
        self.texts.append(_renamed(text, next(iter(rtlil.parse(text))), name))
        self.names[name] = Names.of(writer)


def _renamed(text: str, old: str, new: str) -> str:
    """Return RTLIL with another name of the module ``old``."""
    renamed, count = re.subn(rf"^module \\{re.escape(old)}$", lambda match: f"module \\{new}", text, flags=re.MULTILINE)
    assert count == 1, old
    return renamed
