"""Base class of components with a second circuit for simulators, a model with the same outputs."""

from __future__ import annotations

from abc import abstractmethod

from amaranth import Module

from hwgen.gateware.component import AnyConfig
from hwgen.gateware.two_circuits import TwoCircuits

__all__ = ["Modelled"]


class Modelled(TwoCircuits[AnyConfig]):
    """Base class of components whose Verilog module has a second form, a model, which simulators take.

    Synthesis takes the component's circuit. So does Amaranth's simulator, and a simulation in Amaranth is therefore
    independent of the model. The model's outputs equal the circuit's from the cycle on in which they depend only on
    inputs: both have the same latency, and neither has a state.

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
        """Build the component's circuit for simulators, as a new Amaranth module with the domain ``sync``."""
