"""Base class of components with a second circuit for simulators, a model with the same outputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from amaranth import Module

from hwgen.gateware.component import AnyConfig, ConfiguredComponent

__all__ = ["Modelled"]


class Modelled(ConfiguredComponent[AnyConfig]):
    """Base class of components whose Verilog module has a second form, a model, which simulators take.

    Synthesis takes the component's circuit. So does Amaranth's simulator, and a simulation in Amaranth is therefore
    independent of the model. The model's outputs equal the circuit's from the cycle on in which they depend only on
    inputs: both have the same latency, and neither has a state.

    A platform can write the module itself, with a method ``get_modelled(component)``.

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module. Its ``repr`` states all that the circuit
        depends on.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    @property
    @abstractmethod
    def module_name(self) -> str:
        """Name of the component's Verilog module, which no other configuration of any component has."""

    def elaborate(self, platform: Any) -> Any:
        return platform.get_modelled(self) if hasattr(platform, "get_modelled") else self.circuit()

    @abstractmethod
    def circuit(self) -> Module:
        """Build the component's circuit for synthesis, as a new Amaranth module with the domain ``sync``."""

    @abstractmethod
    def model(self) -> Module:
        """Build the component's circuit for simulators, as a new Amaranth module with the domain ``sync``."""
