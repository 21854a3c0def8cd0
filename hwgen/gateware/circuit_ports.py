"""Stream ports of the configuration of an accelerator, or of another component with an accelerator's streams."""

from __future__ import annotations

from typing import Protocol

from hwgen.devices import DEFAULT, Device
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.stream import BeatFormat, Order, Port

__all__ = ["Config", "device_of", "error_ports", "input_ports", "output_ports", "tied_ports"]


class Config(Protocol):
    """Protocol of the configuration of an accelerator, or of another component with an accelerator's stream ports."""

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
    """Return the output streams of an accelerator's configuration: all that it lists, or the single stream ``o``."""
    return getattr(config, "output_ports", None) or (Port("o", config.output, config.output_order),)


def input_ports(config: Config) -> tuple[Port, ...]:
    """Return the input streams of an accelerator's configuration: all that it lists, or the single stream ``i``."""
    return getattr(config, "input_ports", None) or (Port("i", config.input, config.input_order),)


def device_of(config: Config) -> Device:
    """Return the device family of an accelerator's configuration, or the default one of another component."""
    return getattr(config, "device", DEFAULT)


def error_ports(config: Config) -> tuple[str, ...]:
    """Return the names of an accelerator's ports that report frames of a wrong length: one per input, or none."""
    return getattr(config, "error_ports", ())


def tied_ports(config: Config) -> dict[str, int]:
    """Return an accelerator's ports that load weights, with their widths in bits.

    They stay 0 while frames are computed. The result is empty if the weights are constants.
    """
    if getattr(config, "loader", None) is None:
        return {}
    return {"weights__payload": PART_BITS + 1, "weights__valid": 1, "weights_state__clear": 1}
