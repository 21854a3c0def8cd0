"""What shells between a circuit and the buses of a board have in common, and how ports on these buses are called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from amaranth import ClockDomain, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.registers import Register
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
        """Bytes of a word."""
        ...

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        ...


@dataclass(frozen=True, kw_only=True)
class Space:
    """Addresses that a master of the bus reaches: the master's name, their number in bytes, and bits of its data."""

    name: str
    bytes: int
    bits: int


class BusShellConfig(ABC):
    """Configuration of a shell: what stands between a circuit and the buses of a board."""

    circuit: ClassVar[str]
    """Name of the circuit's instance beside the shell, and the word for it."""
    inputs: Sequence[BusStream]
    outputs: Sequence[BusStream]
    build_hash: int
    """64 bits that tell this design from others."""

    @abstractmethod
    def title(self, top: str) -> str:
        """Return what a circuit is whose module is ``top``, for people."""

    @property
    @abstractmethod
    def registers(self) -> tuple[Register, ...]:
        """Registers of the map, sorted by byte offset."""

    @property
    def bank(self) -> BankConfig:
        """Registers as a component."""
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
        """Memory that the circuit reads and writes by itself."""
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
        """Return the port of a bus that a signal of the shell goes to; an empty name for other signals."""
        return f"{self.prefixes[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in self.prefixes else ""

    @abstractmethod
    def component(self) -> BusShell:
        """Return the hardware."""

    @abstractmethod
    def wrapper(self, top: str) -> wiring.Component:
        """Return the module that a board takes in, around a circuit whose module is ``top``."""


class BusShell(wiring.Component):
    """A shell's hardware: registers, and what lies between the circuit and the buses."""

    interrupt: Any

    @abstractmethod
    def elaborate(self, platform: Any) -> Module:
        """Return the circuit."""

    @abstractmethod
    def connections(self, domain: ClockDomain) -> dict[str, Any]:
        """Return the ports of the circuit's instance, by the names that they have in Verilog."""
