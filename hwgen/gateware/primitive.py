"""Base class of combinational circuits that a device family can build from its own cells, such as LUTs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from amaranth import Module

from hwgen.devices import Device
from hwgen.gateware.component import AnyConfig, ConfiguredComponent

__all__ = ["Primitive"]


class Primitive(ConfiguredComponent[AnyConfig]):
    """Base class of combinational components whose Verilog module has a second form, in cells of a device family.

    Simulators take the behavioural form, which is the component's Amaranth circuit. Synthesis takes the cells. A
    platform can write the module itself, with a method ``get_primitive(primitive)``.

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    @property
    @abstractmethod
    def module_name(self) -> str:
        """Name of the component's Verilog module, which no other configuration of any primitive has."""

    def elaborate(self, platform: Any) -> Any:
        return platform.get_primitive(self) if hasattr(platform, "get_primitive") else self.circuit()

    @abstractmethod
    def circuit(self) -> Module:
        """Build the component's behavioural circuit, as a new Amaranth module."""

    @abstractmethod
    def cells(self, device: Device) -> list[str]:
        """Return the Verilog statements of the circuit in a family's cells; empty if the family has none for it."""
