"""Base class of all gateware components: an Amaranth component with a configuration object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from amaranth.lib import wiring

__all__ = ["AnyConfig", "ConfiguredComponent"]

AnyConfig = TypeVar("AnyConfig")


class ConfiguredComponent(wiring.Component, ABC, Generic[AnyConfig]):
    """Base class of Amaranth components that are built from a frozen configuration object.

    Parameters
    ----------
    config : dataclass
        Configuration that validates itself and knows the component's latency and cost.
    ports : dict of str to Member, or Signature
        Signature of the component, or its members.
    """

    def __init__(self, config: AnyConfig, ports: Mapping[str, wiring.Member] | wiring.Signature):
        self._config = config
        super().__init__(ports)

    @property
    def config(self) -> AnyConfig:
        """Frozen configuration from which the component is built."""
        return self._config

    @abstractmethod
    def elaborate(self, platform: Any) -> Any:
        """Return the component's circuit as an Amaranth module."""
