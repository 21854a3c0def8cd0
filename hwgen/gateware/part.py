"""Base class of reusable circuits, which depend on nothing but their class and configuration."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from hwgen.gateware.component import AnyConfig, ConfiguredComponent


class Part(ConfiguredComponent[AnyConfig]):
    """Base class of components whose circuit depends only on class and configuration: equal parts are built once.

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
        """Build the circuit of the component, as a new Amaranth module."""
