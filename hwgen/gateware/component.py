"""Base class of the gateware's components, each of which has a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from amaranth.lib import wiring

__all__ = ["AnyConfig", "ConfiguredComponent"]

AnyConfig = TypeVar("AnyConfig")


class ConfiguredComponent(wiring.Component, Generic[AnyConfig]):
    """Component that is built from a frozen configuration.

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
        """Configuration of the component."""
        return self._config

    def elaborate(self, platform: Any) -> Any:
        """Return the circuit as a module."""
        raise NotImplementedError
