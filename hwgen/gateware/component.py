"""Base classes of all gateware: Amaranth component with a configuration object, configuration with a device family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from amaranth.lib import wiring

from hwgen import frozen
from hwgen.devices import DEFAULT, Device, Memories

AnyConfig = TypeVar("AnyConfig")


class ForDevice(ABC):
    """Base class of component configurations that know the FPGA device family that the component is built for."""

    @property
    @abstractmethod
    def device(self) -> Device:
        """FPGA device family, a `Device`, which decides the component's circuit and cost."""

    @property
    def memories(self) -> Memories:
        """`Memories` of the device family: sizes of block RAM and LUT RAM, and rules for memories built from them."""
        return self.device.memories


@dataclass(frozen=True, kw_only=True)
class OnDevice(ForDevice):
    """Base class of component configurations whose FPGA device family is a constructor argument, ``device``.

    Parameters
    ----------
    device : Device
        Device family. A plan gives its board's; the default serves components that are used on their own.
    """

    device: Device = field(default=DEFAULT, repr=False, metadata=frozen.never_digested())


class HasWindow(ForDevice):
    """Base class of arithmetic configurations with a ``window`` (line buffer, say), whose device family they have."""

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
        """Frozen configuration that the component is built from."""
        return self._config

    @abstractmethod
    def elaborate(self, platform: Any) -> Any:
        """Return the component's circuit as an Amaranth module."""
