"""Circuits that follow from a configuration alone: written once, they can be used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from amaranth.lib import wiring

AnyConfig = TypeVar("AnyConfig")


class Part(wiring.Component, Generic[AnyConfig]):
    """A component whose circuit follows from its class and its configuration, and from nothing else.

    It has registers, all in the domain ``sync``, no memories, and no components inside. So a platform may put what it
    has of such a circuit in its place, by a method ``get_part(part)``, as ``get_memory(memory)`` does for Amaranth's.

    Parameters
    ----------
    config : dataclass
        As `hwgen.digest` takes it.
    ports : dict of str to Member
    """

    def __init__(self, config: AnyConfig, ports: Mapping[str, wiring.Member]):
        self._config = config
        super().__init__(dict(ports))

    @property
    def config(self) -> AnyConfig:
        return self._config

    def elaborate(self, platform: Any) -> Any:
        return platform.get_part(self) if hasattr(platform, "get_part") else self.circuit()

    def circuit(self) -> Any:
        """The circuit: a module."""
        raise NotImplementedError
