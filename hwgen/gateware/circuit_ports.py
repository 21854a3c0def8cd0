"""Stream ports of a component that reads and writes feature maps, such as an accelerator, from its configuration."""

from __future__ import annotations

from typing import Protocol

from hwgen.devices import DEFAULT, Device
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.stream import BeatFormat, Order, Port


class Config(Protocol):
    """Protocol of configurations of components with feature map streams: name, beat formats and pixel orders."""

    @property
    def name(self) -> str: ...

    @property
    def input(self) -> BeatFormat: ...

    @property
    def output(self) -> BeatFormat: ...

    @property
    def input_order(self) -> Order: ...

    @property
    def output_order(self) -> Order: ...


def output_ports(config: Config) -> tuple[Port, ...]:
    """Return a tuple of each output stream `Port` of a configuration: the ports that it lists, or else ``o``."""
    return getattr(config, "output_ports", None) or (Port("o", config.output, config.output_order),)


def input_ports(config: Config) -> tuple[Port, ...]:
    """Return a tuple of each input stream `Port` of a configuration: the ports that it lists, or else ``i``."""
    return getattr(config, "input_ports", None) or (Port("i", config.input, config.input_order),)


def device_of(config: Config) -> Device:
    """Return the FPGA `Device` family of an accelerator's configuration, or the default family if it names none."""
    return getattr(config, "device", DEFAULT)


def error_ports(config: Config) -> tuple[str, ...]:
    """Return a tuple of port names that report frames of wrong length: one per input, or none without guards."""
    return getattr(config, "error_ports", ())


def tied_ports(config: Config) -> dict[str, int]:
    """Return a dict from port name to width in bits: an accelerator's inputs that load weights, to be tied to 0.

    They stay 0 while frames are computed. The result is empty if the weights are constants.
    """
    if getattr(config, "loader", None) is None:
        return {}
    return {"weights__payload": PART_BITS + 1, "weights__valid": 1, "weights_state__clear": 1}
