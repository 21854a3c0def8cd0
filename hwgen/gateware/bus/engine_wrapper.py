"""The module that a board takes in: an engine in its shell, with ports by the names that Vivado infers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth import ClockDomain, Const, Instance, Module, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.engine_shell import EngineShell, EngineShellConfig, signature_of
from hwgen.gateware.bus.wrapper import CONTROL
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES

#: What ports begin with on the bus to memory.
MEMORY = "m_axi_mem"
_PREFIXES = {"control": CONTROL, "mem": MEMORY}


def _port(path: Sequence[str | int]) -> str:
    """The port of a bus that a signal of the shell goes to; empty for other signals."""
    return f"{_PREFIXES[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in _PREFIXES else ""


def ports(shell: EngineShellConfig) -> dict[str, wiring.Member]:
    """Ports of a wrapper by their names, in order."""
    members: dict[str, wiring.Member] = {"aclk": In(1), "aresetn": In(1)}
    for path, member in signature_of(shell).members.flatten():
        if name := _port(path):
            members[name] = member.flow(Shape.cast(member.shape).width)
    return members | {"interrupt": Out(1)}


def parameters(shell: EngineShellConfig) -> dict[str, dict[str, str]]:
    """What Vivado should know of interfaces, by their names (UG994, Common Internal Bus Interfaces; PG373, Advanced
    Settings Parameters)."""
    engine = shell.engine
    return {
        "aclk": {"ASSOCIATED_BUSIF": f"{MEMORY}:{CONTROL}", "ASSOCIATED_RESET": "aresetn"},
        "aresetn": {"POLARITY": "ACTIVE_LOW"},
        MEMORY: {
            # Beats of a word on a bus of two.
            "SUPPORTS_NARROW_BURST": str(int(engine.bus_bytes > LANES)),
            "MAX_BURST_LENGTH": str(MAX_BEATS),
            "NUM_READ_OUTSTANDING": str(engine.outstanding),
            "NUM_WRITE_OUTSTANDING": str(engine.outstanding),
        },
        "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
    }


class EngineWrapper(wiring.Component):
    """The shell and the engine in one module, clocked by ``aclk``.

    Parameters
    ----------
    shell : EngineShellConfig
    top : str
        The engine's module, which is not part of this one.

    Members
    -------
    aclk, aresetn : In(1)
        Clock; reset, synchronous, active low.
    s_axi_control_awaddr ... : In, Out
        The registers.
    m_axi_mem_awaddr ... : In, Out
        To memory.
    interrupt : Out(1)
        High until it is cleared.
    """

    def __init__(self, shell: EngineShellConfig, top: str):
        self._top = top
        self._shell: Any = EngineShell(shell)
        super().__init__(ports(shell))
        for name, entries in parameters(shell).items():
            # Of a bus it stands at one of its ports, with the bus's name.
            port, named = (f"{name}_awaddr", {"XIL_INTERFACENAME": name}) if name == MEMORY else (name, {})
            text = ", ".join(f"{key} {value}" for key, value in {**named, **entries}.items())
            getattr(self, port).attrs["X_INTERFACE_PARAMETER"] = text

    def _bus(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, direction and the shell's signal of each port of a bus."""
        for path, member, value in self._shell.signature.flatten(self._shell):
            if name := _port(path):
                yield name, member.flow, value

    def elaborate(self, platform):
        m = Module()
        # The engine shares the clock's own signal: one that is assigned from it would change a moment later.
        m.domains.sync = domain = ClockDomain("sync")
        domain.clk = self.aclk
        m.d.comb += domain.rst.eq(~self.aresetn)
        m.submodules.shell = shell = self._shell
        for name, flow, value in self._bus():
            port = getattr(self, name)
            m.d.comb += value.eq(port) if flow is In else port.eq(value)
        m.d.comb += self.interrupt.eq(shell.interrupt)
        m.submodules.engine = Instance(self._top, **self._connections(domain))
        return m

    def _connections(self, domain: ClockDomain) -> dict[str, Any]:
        """The engine's ports, by the names that they have in Verilog."""
        shell = self._shell
        found = {
            "i_clk": domain.clk,
            "i_rst": domain.rst,
            "i_program_base": Const(0, 32),
            **{f"i_{name}": getattr(shell, name) for name in ("start", "stop", "pace")},
            "o_done": shell.done,
            "o_error": shell.error.as_value(),
        }
        for name, member in shell.config.memory.members.items():
            value = Value.cast(getattr(shell.m_axi, name))
            found[f"{'o' if member.flow is Out else 'i'}_m_axi__{name}"] = value
        return found
