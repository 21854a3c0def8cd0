"""The module that a board takes in: an engine in its shell, with ports by the names that Vivado infers."""

from __future__ import annotations

from typing import Any

from amaranth import ClockDomain, Const, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hwgen.gateware.bus.engine_shell import EngineShell, EngineShellConfig, signature_of
from hwgen.gateware.bus.module import CONTROL, BusModule, ports_of
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES

#: What ports begin with on the bus to memory.
MEMORY = "m_axi_mem"
_PREFIXES = {"control": CONTROL, "mem": MEMORY}


def ports(shell: EngineShellConfig) -> dict[str, wiring.Member]:
    """Ports of a wrapper by their names, in order."""
    return ports_of(signature_of(shell), _PREFIXES)


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


class EngineWrapper(BusModule):
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
        super().__init__(EngineShell(shell), "engine", top, _PREFIXES)
        for name, entries in parameters(shell).items():
            # Of a bus it stands at one of its ports, with the bus's name.
            port, named = (f"{name}_awaddr", {"XIL_INTERFACENAME": name}) if name == MEMORY else (name, {})
            text = ", ".join(f"{key} {value}" for key, value in {**named, **entries}.items())
            getattr(self, port).attrs["X_INTERFACE_PARAMETER"] = text

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
