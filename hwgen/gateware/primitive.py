"""Base class of combinational circuits that a device family can build from its own cells, such as LUTs."""

from __future__ import annotations

from abc import abstractmethod

from hwgen.devices import Device
from hwgen.gateware.component import AnyConfig
from hwgen.gateware.two_circuits import TwoCircuits

__all__ = ["Primitive"]


class Primitive(TwoCircuits[AnyConfig]):
    """Base class of combinational components whose Verilog module has a second form, in cells of a device family.

    Simulators take the behavioural form, which is the component's Amaranth circuit. Synthesis takes the cells.

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    platform_method = "get_primitive"

    @abstractmethod
    def cells(self, device: Device) -> list[str]:
        """Return the Verilog statements of the circuit in a family's cells; empty if the family has none for it."""
