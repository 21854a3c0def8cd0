"""Base classes of all gateware: an Amaranth component with a configuration object, and configurations on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from amaranth.lib import wiring

from hwgen import frozen
from hwgen.devices import DEFAULT, Device, Memories

__all__ = ["AnyConfig", "ConfiguredComponent", "ForDevice", "HasWindow", "OnDevice"]

AnyConfig = TypeVar("AnyConfig")


class ForDevice(ABC):
    """Base class of configurations that know the device family that their hardware is for."""

    @property
    @abstractmethod
    def device(self) -> Device:
        """Device family, which decides circuit and cost."""

    @property
    def memories(self) -> Memories:
        """Memories of the device family."""
        return self.device.memories


@dataclass(frozen=True, kw_only=True)
class OnDevice(ForDevice):
    """Base class of configurations that are given their device family.

    Parameters
    ----------
    device : Device
        Device family. A plan gives that of its board; the default serves components that are used on their own.
    """

    device: Device = field(default=DEFAULT, repr=False, metadata=frozen.never_digested())


class HasWindow(ForDevice):
    """Base class of configurations that are for the device family of their ``window``."""

    window: Any
    #: Noun phrase for the layer's operation, in the head of its Verilog module.
    operation: ClassVar[str] = "layer"

    @property
    def device(self) -> Device:
        return self.window.device


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
