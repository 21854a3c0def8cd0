"""Base class of bus wrappers: modules around accelerators or engines, whose port names Vivado reads as AXI buses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amaranth import ClockDomain, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.gateware.bus.base import BusShellConfig


class Wrapper(wiring.Component):
    """Base class of bus wrappers: a bus shell, and an accelerator or engine, in one module clocked by ``aclk``.

    Parameters
    ----------
    config : BusShellConfig
        Configuration of the shell.
    top : str
        Name of the circuit's module, which is instantiated but not included.

    Members
    -------
    aclk, aresetn : In(1)
        Clock, and synchronous reset, active low.
    s_axi_control_awaddr ... : In, Out
        Register bus and other buses of the shell. The port name is the bus name followed by the signal name.
    interrupt : Out(1)
        Interrupt, level-sensitive, active high.

    Each shell has its own subclass. The docstring of the subclass heads the wrapper's Verilog.
    """

    def __init__(self, config: BusShellConfig, top: str):
        self._config, self._top, self._shell = config, top, config.component()
        super().__init__(config.ports)
        for name, entries in config.parameters.items():
            # The parameters of a bus are attributes of one of its ports, together with the name of the bus.
            is_port = name in config.ports
            port, named = (name, {}) if is_port else (f"{name}_awaddr", {"XIL_INTERFACENAME": name})
            text = ", ".join(f"{key} {value}" for key, value in {**named, **entries}.items())
            getattr(self, port).attrs["X_INTERFACE_PARAMETER"] = text

    def _bus(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield, for each AXI signal, the wrapper's port name, the port's direction and the shell's signal."""
        for path, member, value in self._shell.signature.flatten(self._shell):
            if name := self._config.port(path):
                yield name, member.flow, value

    def elaborate(self, platform):
        m = Module()
        # The shell uses the port's clock signal itself: a signal assigned from it would change one delta cycle later.
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
