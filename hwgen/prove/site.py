"""Site of a component in an emitted design: the module that was written for it, and the instances inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hwgen.prove.modules import SYNTHESIS, VerilogModule
from hwgen.prove.obligation import Obligation

__all__ = ["Kind", "Site", "bits_for"]


@dataclass(frozen=True)
class Site:
    """Instance of an emitted module in a design.

    Parameters
    ----------
    path : str
        Path of the instance, such as ``conv1.fifo``; empty for the top module.
    module : VerilogModule
        Module of the instance.
    modules : mapping of str to VerilogModule
        All modules of the design, by name.
    """

    path: str
    module: VerilogModule
    modules: Mapping[str, VerilogModule]

    def inner(self, instance: str) -> Site | None:
        """Return the site of an instance inside; ``None`` if the component is wires only, and has no module."""
        instance = self.instance(instance)
        name = self.module.instances.get(instance)
        path = f"{self.path}.{instance}" if self.path else instance
        return None if name is None else Site(path, self.modules[name], self.modules)

    def part(self, instance: str) -> Site:
        """Return the site of an instance inside, which must have a module."""
        inner = self.inner(instance)
        assert inner is not None, instance
        return inner

    def instance(self, name: str) -> str:
        """Return the emitted name of an instance, which has a number if a signal has the name, too."""
        module = f"{self.module.name}_{name}"
        renamed = (other for other, kind in self.module.instances.items() if kind == module)
        return name if name in self.module.instances else next(renamed, name)

    def has(self, *names: str) -> bool:
        """Return whether the module has all of these ports or signals; those that are never read are not written."""
        return all(name in self.module.ports or name in self.module.signals for name in names)

    def unnamed_port(self, width: int, direction: str = "output") -> str:
        """Return the port for some fields of a structure, which has no name of its own; empty if it is not unique.

        The emitted module has one port for the fields that registers drive, and others for the rest.

        Parameters
        ----------
        width : int
            Width of the fields, in bits.
        direction : str, optional
            ``output`` or ``input``.
        """
        names = [
            name
            for name, port in self.module.ports.items()
            if re.fullmatch(r"port(_\d+)?", name) and (port.direction, port.width) == (direction, width)
        ]
        return names[0] if len(names) == 1 else ""

    def streams(self, direction: str) -> list[str]:
        """Return the names of the module's stream ports with back-pressure, of direction ``input`` or ``output``."""
        ports = self.module.ports
        names = [name.removesuffix("__valid") for name in ports if name.endswith("__valid")]
        return [name for name in names if f"{name}__ready" in ports and ports[f"{name}__valid"].direction == direction]

    @property
    def circuit(self) -> Site:
        """Site of the text for synthesis, if the module has another text for simulation; otherwise this site."""
        return Site(self.path, self.modules.get(f"{self.module.name}{SYNTHESIS}", self.module), self.modules)

    @property
    def all_instances(self) -> tuple[str, ...]:
        """Paths of all instances inside the module, also of those inside of instances."""
        paths: list[str] = []
        for instance, name in self.module.instances.items():
            if name in self.modules:
                inner = Site(instance, self.modules[name], self.modules)
                paths += [instance, *(f"{instance}.{path}" for path in inner.all_instances)]
        return tuple(paths)

    @property
    def memories(self) -> tuple[str, ...]:
        """Names of the instances of memories, which have modules with Verilog parameters."""
        instances = self.module.instances.items()
        return tuple(name for name, module in instances if self.modules[module].has_parameters)

    def obligation(self, kind: str, statement: str, **fields: Any) -> Obligation:
        """Return an obligation of this module. ``fields`` are fields of `Obligation`."""
        return Obligation(kind=kind, module=self.module.name, path=self.path, statement=statement, **fields)


def bits_for(largest: int) -> str:
    """Return the Verilog range of a register that counts up to ``largest``."""
    return f"[{max(1, largest.bit_length()) - 1}:0]"


Kind = Callable[[Any, Site], list[Obligation]]
"""Type of a kind of obligation: ``kind(config, site)`` returns those of the component that is emitted at a site."""
