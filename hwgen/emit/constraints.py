"""Writer of constraint files for Vivado (XDC): timing of a design out of context, and pins of PCI Express."""

from __future__ import annotations

from typing import Any

#: Share of the clock period that the circuits around a design take before its inputs, and after its outputs.
_NEIGHBOURS = 0.25
#: Period in ns of the reference clock that a PC sends on the connector (PCI Express Card Electromechanical
#: Specification: 100 MHz).
_REFERENCE_NS = 10
#: Ports of the block design, by the part of the platform's resource. A pair of pins has ``{}`` for its side, p or n.
_PORTS = {"rst": "pcie_reset_n", "clk": "pcie_clock_clk_{}", "rx": "pcie_rx{}", "tx": "pcie_tx{}"}


def timing(top: str, module: str, clock_mhz: float) -> bytes:
    """Return the XDC file (bytes) for the timing of a design out of context, without pads and without other circuits.

    It fits both modules: the circuit ``top`` with its clock ``clk``, and the bus wrapper ``module`` with ``aclk``.

    Parameters
    ----------
    top, module : str
        Names of the circuit's module and of its bus wrapper's.
    clock_mhz : float
        Frequency of the clock, in MHz.
    """
    period = 1e3 / clock_mhz
    others = "[get_ports -filter {DIRECTION == %s && NAME != aclk && NAME != clk}]"
    lines = [
        f"# Timing of {module}, or of {top}, out of context. Written by hwgen. Do not edit: every build writes it.",
        "#",
        f"#     read_xdc {top}_ooc.xdc",
        f"#     synth_design -mode out_of_context -top {module} -part PART",
        "",
        f"create_clock -name clock -period {period:.3f} [get_ports -quiet {{aclk clk}}]",
        f"# Other circuits take {_NEIGHBOURS:.0%} of the period before the inputs, and as much after the outputs.",
        f"set_input_delay -clock clock {_NEIGHBOURS * period:.3f} {others % 'IN'}",
        f"set_output_delay -clock clock {_NEIGHBOURS * period:.3f} {others % 'OUT'}",
    ]
    return ("\n".join(lines) + "\n").encode()


def lanes(platform: Any, resource: str) -> int:
    """Return the number of lanes of a PCI Express connector, which an Amaranth platform has as ``resource``."""
    return next(len(part.ios[0].p.names) for part in platform.resources[resource, 0].ios if part.name == "rx")


def pins(platform: Any, resource: str) -> bytes:
    """Return the XDC file (bytes) with the pins of PCI Express, which an Amaranth platform has as ``resource``."""
    lines = ["# Pins of the PCI Express connector. Written by hwgen. Do not edit: every build writes it."]
    for part in platform.resources[resource, 0].ios:
        wires, port = part.ios[0], _PORTS[part.name]
        sides = [(wires.p, "p"), (wires.n, "n")] if hasattr(wires, "p") else [(wires, "")]
        for side, name in sides:
            indices = [f"[{index}]" for index in range(len(side.names))] if len(side.names) > 1 else ["*"]
            for pin, index in zip(side.names, indices, strict=True):
                lines.append(f"set_property PACKAGE_PIN {pin} [get_ports {{{port.format(name)}{index}}}]")
        lines += [
            f"set_property {name} {value} [get_ports {{{port.format('p')}*}}]" for name, value in part.attrs.items()
        ]
    # As in the example design of XDMA: a pull-up on the reset, which is asynchronous (PG195, Constraining the Core).
    lines += [
        f"set_property PULLUP true [get_ports {{{_PORTS['rst']}*}}]",
        f"set_false_path -from [get_ports {{{_PORTS['rst']}*}}]",
        f"create_clock -name pcie_clock -period {_REFERENCE_NS} [get_ports {{{_PORTS['clk'].format('p')}*}}]",
    ]
    return ("\n".join(lines) + "\n").encode()
