"""The module that a board takes in: an accelerator in its shell, with ports by the names that Vivado infers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import ClockDomain, Const
from amaranth.lib import wiring

from hwgen.gateware.bus.module import CONTROL, BusModule, ports_of
from hwgen.gateware.bus.shell import Shell, ShellConfig, signature_of


def prefixes(shell: ShellConfig) -> dict[str, str]:
    """What the ports of each bus begin with, by the bus's name in the shell."""
    return {"control": CONTROL} | {end.name: end.name for end in (*shell.inputs, *shell.outputs)}


def ports(shell: ShellConfig) -> dict[str, wiring.Member]:
    """Ports of a wrapper by their names, in order."""
    return ports_of(signature_of(shell), prefixes(shell))


def parameters(shell: ShellConfig) -> dict[str, dict[str, str]]:
    """What Vivado should know of the clock, the reset and the interrupt (UG994, Common Internal Bus Interfaces)."""
    busses = ":".join([*(end.name for end in (*shell.inputs, *shell.outputs)), CONTROL])
    return {
        "aclk": {"ASSOCIATED_BUSIF": busses, "ASSOCIATED_RESET": "aresetn"},
        "aresetn": {"POLARITY": "ACTIVE_LOW"},
        "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
    }


class Wrapper(BusModule):
    """The shell and the accelerator in one module, clocked by ``aclk``.

    Parameters
    ----------
    shell : ShellConfig
        Of the accelerator's streams.
    top : str
        The accelerator's module, which is not part of this one.
    error_ports : sequence of str
        On which it tells of wrong frames. The shell has guards of its own, so there are none.

    Members
    -------
    aclk, aresetn : In(1)
        Clock; reset, synchronous, active low.
    s_axis_tdata ... : In, Out
        The shell's streams, each by its name and that of the signal.
    s_axi_control_awaddr ... : In, Out
        Its registers.
    interrupt : Out(1)
        High until it is cleared.
    """

    def __init__(self, shell: ShellConfig, top: str, error_ports: Sequence[str] = ()):
        self._error_ports = error_ports
        super().__init__(Shell(shell), "accelerator", top, prefixes(shell))
        for name, entries in parameters(shell).items():
            text = ", ".join(f"{key} {value}" for key, value in entries.items())
            getattr(self, name).attrs["X_INTERFACE_PARAMETER"] = text

    def _connections(self, domain: ClockDomain) -> dict[str, Any]:
        """The accelerator's ports, by the names that they have in Verilog."""
        shell = self._shell
        found = {"i_clk": domain.clk, "i_rst": domain.rst | shell.reset}
        for ends, forth, back in ((shell.config.inputs, "i", "o"), (shell.config.outputs, "o", "i")):
            for name in (end.port.name for end in ends):
                stream = getattr(shell, name)
                found |= {
                    f"{forth}_{name}__payload": stream.payload.as_value(),
                    f"{forth}_{name}__valid": stream.valid,
                    f"{back}_{name}__ready": stream.ready,
                }
        found |= {f"i_{name}__clear": Const(0, 1) for name in self._error_ports}
        if shell.config.weights:
            words, state = shell.weights, shell.weights_state
            found |= {
                "i_weights__payload": words.payload.as_value(),
                "i_weights__valid": words.valid,
                "o_weights__ready": words.ready,
                "o_weights_state__good": state.good,
                "o_weights_state__error": state.error,
                "i_weights_state__clear": state.clear,
            }
        return found
