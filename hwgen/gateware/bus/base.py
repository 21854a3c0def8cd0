"""Base of the bus shells, which connect a circuit to the buses of a board, and names of their ports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from amaranth import ClockDomain, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Resources

#: Name of the register bus: the first part of its ports' names.
CONTROL = "s_axi_control"


class BusStream(Protocol):
    """A stream of frames on the bus."""

    @property
    def name(self) -> str:
        """Name of the stream: the first part of its ports' names."""
        ...

    @property
    def width(self) -> int:
        """Number of bytes in a word."""
        ...

    @property
    def frame_bytes(self) -> int:
        """Number of bytes in a frame."""
        ...


@dataclass(frozen=True, kw_only=True)
class Space:
    """Address space of a bus master: the master's name, the size in bytes, and the width of its data in bits."""

    name: str
    bytes: int
    bits: int


class BusShellConfig(ABC):
    """Configuration of a bus shell, the logic between a circuit and the buses of a board."""

    circuit: ClassVar[str]
    """Name of the circuit's instance beside the shell, and noun for the circuit in texts."""
    inputs: Sequence[BusStream]
    outputs: Sequence[BusStream]
    build_hash: int
    """Identity of the design, 64 bits."""

    @abstractmethod
    def title(self, top: str) -> str:
        """Return a title of the circuit for people; its module is ``top``."""

    @property
    @abstractmethod
    def registers(self) -> tuple[Register, ...]:
        """Registers of the map, sorted by byte offset."""

    @property
    def bank(self) -> BankConfig:
        """Configuration of the component that implements the registers."""
        return BankConfig(registers=self.registers)

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """Resources of the shell, without the circuit's."""

    @property
    @abstractmethod
    def signature(self) -> wiring.Signature:
        """Signature of the shell's component, on both sides."""

    @property
    @abstractmethod
    def prefixes(self) -> Mapping[str, str]:
        """Name of each bus by its name in the signature."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Mapping[str, str]]:
        """Parameters of interfaces for Vivado, by the interface's name (UG994, Common Internal Bus Interfaces)."""

    @property
    def spaces(self) -> tuple[Space, ...]:
        """Address spaces that the circuit reads and writes as a bus master."""
        return ()

    @property
    def ports(self) -> dict[str, wiring.Member]:
        """Ports of the wrapper by their names, in order."""
        members: dict[str, wiring.Member] = {"aclk": In(1), "aresetn": In(1)}
        for path, member in self.signature.members.flatten():
            if name := self.port(path):
                members[name] = member.flow(Shape.cast(member.shape).width)
        return members | {"interrupt": Out(1)}

    def port(self, path: Sequence[str | int]) -> str:
        """Return the name of the wrapper's port for a signal of the shell; empty if the signal is not part of a bus."""
        return f"{self.prefixes[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in self.prefixes else ""

    @abstractmethod
    def component(self) -> BusShell:
        """Return the hardware."""

    @abstractmethod
    def wrapper(self, top: str) -> wiring.Component:
        """Return the wrapper module for a board, around a circuit whose module is ``top``."""


AnyShellConfig = TypeVar("AnyShellConfig", bound=BusShellConfig)


class BusShell(ConfiguredComponent[AnyShellConfig]):
    """Component of a bus shell: registers, and the logic between the circuit and the buses."""

    interrupt: Any

    def __init__(self, config: AnyShellConfig):
        super().__init__(config, config.signature)

    @abstractmethod
    def elaborate(self, platform: Any) -> Module:
        """Return the circuit."""

    @abstractmethod
    def connections(self, domain: ClockDomain) -> dict[str, Any]:
        """Return the ports of the circuit's instance, by the names that they have in Verilog."""
