"""The module that a board takes in: an accelerator in its shell, with ports by the names that Vivado infers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth import ClockDomain, Const, Instance, Module, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.bus.shell import Shell, ShellConfig, signature_of

#: What ports begin with on the register bus.
CONTROL = "s_axi_control"


def _port(shell: ShellConfig, path: Sequence[str | int]) -> str:
    """The port of a bus that a signal of the shell goes to; empty for other signals."""
    prefixes = {"control": CONTROL} | {end.name: end.name for end in (*shell.inputs, *shell.outputs)}
    return f"{prefixes[str(path[0])]}_{path[1]}" if len(path) == 2 and path[0] in prefixes else ""


def ports(shell: ShellConfig) -> dict[str, wiring.Member]:
    """Ports of a wrapper by their names, in order."""
    members: dict[str, wiring.Member] = {"aclk": In(1), "aresetn": In(1)}
    for path, member in signature_of(shell).members.flatten():
        if name := _port(shell, path):
            members[name] = member.flow(Shape.cast(member.shape).width)
    return members | {"interrupt": Out(1)}


def parameters(shell: ShellConfig) -> dict[str, dict[str, str]]:
    """What Vivado should know of the clock, the reset and the interrupt (UG994, Common Internal Bus Interfaces)."""
    busses = ":".join([*(end.name for end in (*shell.inputs, *shell.outputs)), CONTROL])
    return {
        "aclk": {"ASSOCIATED_BUSIF": busses, "ASSOCIATED_RESET": "aresetn"},
        "aresetn": {"POLARITY": "ACTIVE_LOW"},
        "interrupt": {"SENSITIVITY": "LEVEL_HIGH"},
    }


class Wrapper(wiring.Component):
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
        self._top, self._error_ports = top, error_ports
        self._shell: Any = Shell(shell)
        super().__init__(ports(shell))
        for name, entries in parameters(shell).items():
            text = ", ".join(f"{key} {value}" for key, value in entries.items())
            getattr(self, name).attrs["X_INTERFACE_PARAMETER"] = text

    def _bus(self) -> Iterator[tuple[str, Any, Any]]:
        """Name, direction and the shell's signal of each port of a bus."""
        shell = self._shell
        for path, member, value in shell.signature.flatten(shell):
            if name := _port(shell.config, path):
                yield name, member.flow, value

    def elaborate(self, platform):
        m = Module()
        # The accelerator shares the clock's own signal: one that is assigned from it would change a moment later.
        m.domains.sync = domain = ClockDomain("sync")
        domain.clk = self.aclk
        m.d.comb += domain.rst.eq(~self.aresetn)
        m.submodules.shell = shell = self._shell
        for name, flow, value in self._bus():
            port = getattr(self, name)
            m.d.comb += value.eq(port) if flow is In else port.eq(value)
        m.d.comb += self.interrupt.eq(shell.interrupt)
        m.submodules.accelerator = Instance(self._top, **self._connections(domain))
        return m

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
