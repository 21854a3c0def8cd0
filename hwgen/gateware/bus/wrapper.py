"""The module that a board takes in: a circuit in its shell, with ports by the names that Vivado infers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth import ClockDomain, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.gateware.bus.base import BusShellConfig


class Wrapper(wiring.Component):
    """The shell and the circuit in one module, clocked by ``aclk``.

    Parameters
    ----------
    config : BusShellConfig
        Configuration of the shell.
    top : str
        The circuit's module, which is not part of this one.

    Members
    -------
    aclk, aresetn : In(1)
        Clock; reset, synchronous, active low.
    s_axi_control_awaddr ... : In, Out
        The registers, and the other buses of the shell, each by its name and that of the signal.
    interrupt : Out(1)
        High until it is cleared.

    Each shell has a subclass of its own, whose docstring heads the wrapper's Verilog.
    """

    def __init__(self, config: BusShellConfig, top: str):
        self._config, self._top, self._shell = config, top, config.component()
        super().__init__(config.ports)
        for name, entries in config.parameters.items():
            # The parameters of a bus stand at one of its ports, with the bus's name.
            is_port = name in config.ports
            port, named = (name, {}) if is_port else (f"{name}_awaddr", {"XIL_INTERFACENAME": name})
            text = ", ".join(f"{key} {value}" for key, value in {**named, **entries}.items())
            getattr(self, port).attrs["X_INTERFACE_PARAMETER"] = text

    def _bus(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, direction and the shell's signal of each port of a bus."""
        for path, member, value in self._shell.signature.flatten(self._shell):
            if name := self._config.port(path):
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
        m.submodules[self._config.circuit] = Instance(self._top, **shell.connections(domain))
        return m
