"""Base class of circuits that depend on their configuration only, and can be reused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from amaranth.lib import wiring

AnyConfig = TypeVar("AnyConfig")


class Part(wiring.Component, ABC, Generic[AnyConfig]):
    """Component whose circuit depends only on its class and its configuration.

    The component has registers in the domain ``sync`` only, no memories, and no submodules. A platform can replace the
    circuit by one that it already has, with a method ``get_part(part)``, like ``get_memory(memory)`` of Amaranth.

    Parameters
    ----------
    config : dataclass
        Configuration that `hwgen.digest` can digest.
    ports : dict of str to Member
        Members of the component's signature.
    """

    def __init__(self, config: AnyConfig, ports: Mapping[str, wiring.Member]):
        self._config = config
        super().__init__(dict(ports))

    @property
    def config(self) -> AnyConfig:
        return self._config

    def elaborate(self, platform: Any) -> Any:
        return platform.get_part(self) if hasattr(platform, "get_part") else self.circuit()

    @abstractmethod
    def circuit(self) -> Any:
        """Return the circuit as a module."""
