"""Base classes of the bus shells, which connect an accelerator or an engine to the AXI buses of a board."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from amaranth import ClockDomain, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.lite import BankConfig
from hwgen.gateware.bus.registers import Register
from hwgen.gateware.component import ConfiguredComponent, ForDevice
from hwgen.gateware.cost import Resources

#: Name of a bus wrapper's AXI4-Lite register bus, and prefix of the names of its ports.
CONTROL = "s_axi_control"


class BusStream(Protocol):
    """Protocol of the description of an AXI4-Stream that carries frames: name, word size and frame size."""

    @property
    def name(self) -> str:
        """Name of the AXI4-Stream, and prefix of its port names, for example ``s_axis``."""
        ...

    @property
    def width(self) -> int:
        """Number of bytes in a word of the AXI4-Stream."""
        ...

    @property
    def frame_bytes(self) -> int:
        """Number of bytes per frame on the AXI4-Stream, without the padding of the last word."""
        ...

    @property
    def stride_bytes(self) -> int:
        """Number of bytes from the start of one frame in a packet to the next: whole words, padding included."""
        ...


@dataclass(frozen=True, kw_only=True)
class AddressSpace:
    """Address space that a bus master of the design accesses: name of the master, size in bytes, data width in bits."""

    name: str
    bytes: int
    bits: int


class BusShellConfig(ForDevice):
    """Base class of configurations of bus shells: the logic between an accelerator or engine and a board's buses."""

    circuit: ClassVar[str]
    """Name of the wrapped circuit in its instance and in texts: ``accelerator`` or ``engine``."""
    inputs: Sequence[BusStream]
    """Sequence of `BusStream` objects: AXI4-Streams that carry frames to the wrapped circuit; engine: none."""
    outputs: Sequence[BusStream]
    """Sequence of `BusStream` objects: AXI4-Streams that carry frames from the wrapped circuit; engine: none."""
    build_hash: int
    """Build hash of the design, in a register: an integer, a 64-bit digest of the Verilog and the memory files."""

    @abstractmethod
    def title(self, top: str) -> str:
        """Return a heading that names the wrapped circuit: ``accelerator TOP`` or ``programmable engine``."""

    @property
    @abstractmethod
    def registers(self) -> tuple[Register, ...]:
        """Tuple of each `Register` of the shell's AXI4-Lite register map, sorted by byte offset."""

    @property
    def bank(self) -> BankConfig:
        """`BankConfig` of the register bank, the component that implements the shell's registers on AXI4-Lite."""
        return BankConfig(device=self.device, registers=self.registers)

    @property
    @abstractmethod
    def resources(self) -> Resources:
        """`Resources` (LUTs, FFs, DSPs, block RAM) of the bus shell without the accelerator or engine in it."""

    @property
    @abstractmethod
    def signature(self) -> wiring.Signature:
        """Amaranth signature of the shell's component: the board's buses, and the ports of the wrapped circuit."""

    @property
    @abstractmethod
    def prefixes(self) -> Mapping[str, str]:
        """Mapping from each bus's name in the shell's signature to the prefix of its Verilog ports (``s_axis``)."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Mapping[str, str]]:
        """Mapping from a bus's or port's name to its Vivado interface parameters, a mapping from key to text.

        UG994, Common Internal Bus Interfaces, lists them.
        """

    @property
    def spaces(self) -> tuple[AddressSpace, ...]:
        """Tuple of each `AddressSpace` that the wrapped circuit accesses as a bus master; empty by default."""
        return ()

    @property
    def ports(self) -> dict[str, wiring.Member]:
        """Dictionary of the wrapper's Verilog ports (Amaranth members) by name: clock, reset, buses, interrupt."""
        members: dict[str, wiring.Member] = {"aclk": In(1), "aresetn": In(1)}
        for path, member in self.signature.members.flatten():
            if name := self.port(path):
                members[name] = member.flow(Shape.cast(member.shape).width)
        return members | {"interrupt": Out(1)}

    def port(self, path: Sequence[str | int]) -> str:
        """Return the wrapper's port name (``s_axis_tdata``) for a signal's path in the shell; empty if on no bus."""
        return f"{self.prefixes[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in self.prefixes else ""

    @abstractmethod
    def component(self) -> BusShell:
        """Return a new `BusShell` of this configuration, an Amaranth component."""

    @abstractmethod
    def wrapper(self, top: str) -> wiring.Component:
        """Return the bus wrapper, an Amaranth component with the shell and an instance of Verilog module ``top``."""


AnyShellConfig = TypeVar("AnyShellConfig", bound=BusShellConfig)


class BusShell(ConfiguredComponent[AnyShellConfig]):
    """Base class of bus shells: registers, and the logic between the wrapped circuit and the board's buses."""

    interrupt: Any

    def __init__(self, config: AnyShellConfig):
        super().__init__(config, config.signature)

    @abstractmethod
    def elaborate(self, platform: Any) -> Module:
        """Return the bus shell's logic as an Amaranth module."""

    @abstractmethod
    def connections(self, domain: ClockDomain) -> dict[str, Any]:
        """Return a dict of the wrapped circuit's ports: signals by argument of Amaranth's `Instance`, as ``i_clk``."""
