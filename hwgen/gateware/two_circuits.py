"""Base class of components with two circuits of the same function, both of which their Verilog module holds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from amaranth import Module

from hwgen.gateware.component import AnyConfig, ConfiguredComponent

__all__ = ["TwoCircuits"]


class TwoCircuits(ConfiguredComponent[AnyConfig]):
    """Base class of components with two circuits, one for synthesis and one for simulators, in one Verilog module.

    A platform can write the module itself, with the method named by ``platform_method``. Without such a platform, as in
    Amaranth's simulator, the component is its `circuit`.

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    platform_method: ClassVar[str]
    """Name of the method of a platform that writes the module, given the component."""

    @property
    @abstractmethod
    def module_name(self) -> str:
        """Name of the component's Verilog module, which no other configuration of any component has."""

    def elaborate(self, platform: Any) -> Any:
        write = getattr(platform, self.platform_method, None)
        return self.circuit() if write is None else write(self)

    @abstractmethod
    def circuit(self) -> Module:
        """Build the component's circuit, as a new Amaranth module."""
