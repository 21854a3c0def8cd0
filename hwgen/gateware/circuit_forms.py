"""Base classes of components that are built once for all instances, or have two circuits: for simulation and synthesis.

A `Part` is built once for all instances. The others have two circuits of the same function in one Verilog module.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from amaranth import Module

from hwgen.devices import Device
from hwgen.gateware.component import AnyConfig, ConfiguredComponent


class Part(ConfiguredComponent[AnyConfig]):
    """Base class of components whose circuit follows from class and configuration; equal ones share one circuit.

    The component has registers in the domain ``sync`` only, no memories, and no submodules. A platform can replace the
    circuit by one that it already has, with a method ``get_part(part)``, like ``get_memory(memory)`` of Amaranth.

    Parameters
    ----------
    config : dataclass
        Configuration that `hwgen.digest` can digest.
    ports : dict of str to Member
        Members of the component's signature.
    """

    def elaborate(self, platform: Any) -> Any:
        return platform.get_part(self) if hasattr(platform, "get_part") else self.circuit()

    @abstractmethod
    def circuit(self) -> Any:
        """Return the circuit of the component, as a new Amaranth module."""


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
    """Name of a platform's optional method that writes the component's Verilog module in place of Amaranth."""

    @property
    @abstractmethod
    def module_name(self) -> str:
        """Name of the component's Verilog module, unique to this component class and configuration."""

    def elaborate(self, platform: Any) -> Any:
        write = getattr(platform, self.platform_method, None)
        return self.circuit() if write is None else write(self)

    @abstractmethod
    def circuit(self) -> Module:
        """Return the component's circuit, as a new Amaranth module."""


class Primitive(TwoCircuits[AnyConfig]):
    """Base class of components built from a device family's cells in synthesis, from an Amaranth circuit in simulation.

    Both are in one Verilog module. The component is combinational, or has registers without reset in the domain
    ``sync`` (``has_clock``).

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    platform_method = "get_primitive"
    has_clock: ClassVar[bool] = False
    """Whether the component has registers, and its Verilog module therefore has the port ``clk``."""

    @abstractmethod
    def cells(self, device: Device) -> list[str]:
        """Return a list of Verilog statements that instantiate a device's cells as the circuit, or an empty list."""


class Modelled(TwoCircuits[AnyConfig]):
    """Base class of components that Verilog simulators replace by a model with the same outputs and latency.

    Both are in one Verilog module. Synthesis takes the component's circuit. Amaranth's simulator takes it too, and is
    therefore independent of the model. The model's outputs equal the circuit's as soon as they depend only on inputs:
    both have the same latency, and neither has a state.

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module. Its ``repr`` states all that the circuit
        depends on.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    platform_method = "get_modelled"

    @abstractmethod
    def model(self) -> Module:
        """Return the model that replaces the circuit in Verilog simulators, as a new Amaranth module in ``sync``."""
