"""What modules that a board takes in have in common: ports by the names that Vivado infers, a shell, an instance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from amaranth import ClockDomain, Instance, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

#: What ports begin with on the register bus.
CONTROL = "s_axi_control"


def port_of(prefixes: Mapping[str, str], path: Sequence[str | int]) -> str:
    """The port of a bus that a signal of the shell goes to; empty for other signals.

    ``prefixes`` has what the ports of each bus begin with, by the bus's name in the shell.
    """
    return f"{prefixes[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in prefixes else ""


def ports_of(signature: wiring.Signature, prefixes: Mapping[str, str]) -> dict[str, wiring.Member]:
    """Ports of the module around a shell with this signature, by their names, in order."""
    members: dict[str, wiring.Member] = {"aclk": In(1), "aresetn": In(1)}
    for path, member in signature.members.flatten():
        if name := port_of(prefixes, path):
            members[name] = member.flow(Shape.cast(member.shape).width)
    return members | {"interrupt": Out(1)}


class BusModule(wiring.Component):
    """A shell and what it is around, in one module, clocked by ``aclk``.

    Parameters
    ----------
    shell : Component
        Has ``interrupt``, and the buses that ``prefixes`` names.
    inner, top : str
        Names of the instance in it, and of that one's module, which is not part of this one.
    prefixes : mapping
        As `port_of` has them.
    """

    def __init__(self, shell: wiring.Component, inner: str, top: str, prefixes: Mapping[str, str]):
        self._shell: Any = shell
        self._inner, self._top, self._prefixes = inner, top, prefixes
        super().__init__(ports_of(shell.signature, prefixes))

    def _bus(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, direction and the shell's signal of each port of a bus."""
        for path, member, value in self._shell.signature.flatten(self._shell):
            if name := port_of(self._prefixes, path):
                yield name, member.flow, value

    def elaborate(self, platform):
        m = Module()
        # What is inside shares the clock's own signal: one that is assigned from it would change a moment later.
        m.domains.sync = domain = ClockDomain("sync")
        domain.clk = self.aclk
        m.d.comb += domain.rst.eq(~self.aresetn)
        m.submodules.shell = shell = self._shell
        for name, flow, value in self._bus():
            port = getattr(self, name)
            m.d.comb += value.eq(port) if flow is In else port.eq(value)
        m.d.comb += self.interrupt.eq(shell.interrupt)
        m.submodules[self._inner] = Instance(self._top, **self._connections(domain))
        return m

    @abstractmethod
    def _connections(self, domain: ClockDomain) -> dict[str, Any]:
        """The instance's ports, by the names that they have in Verilog."""
