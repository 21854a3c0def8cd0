"""Base class of circuits that a device family can build from its own cells, such as LUTs and DSP slices."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from hwgen.devices import Device
from hwgen.gateware.component import AnyConfig
from hwgen.gateware.two_circuits import TwoCircuits

__all__ = ["Primitive"]


class Primitive(TwoCircuits[AnyConfig]):
    """Base class of components whose Verilog module has a second form, in cells of a device family.

    Simulators take the behavioural form, which is the component's Amaranth circuit. Synthesis takes the cells. The
    component is combinational, or has registers without reset in the domain ``sync`` (``has_clock``).

    Parameters
    ----------
    config : dataclass
        Configuration of the component; equal configurations share a module.
    ports : dict of str to Member
        Members of the component's signature, all of them values.
    """

    platform_method = "get_primitive"
    has_clock: ClassVar[bool] = False
    """Whether the component has registers, so that its module has the port ``clk``."""

    @abstractmethod
    def cells(self, device: Device) -> list[str]:
        """Return the Verilog statements of the circuit in a family's cells; empty if the family has none for it."""
