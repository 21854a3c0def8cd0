"""Amaranth platform of the AMD Kria KV260 Vision AI Starter Kit (XCK26).

Pins of the carrier card: AMD's constraints of the KV260. The logic has no oscillator of its own. A design adds the
clock domain ``sync`` with a clock of the processing system.
"""

from __future__ import annotations

from amaranth.build import Attrs, Connector, Pins, Resource
from amaranth.vendor import XilinxPlatform


class KV260Platform(XilinxPlatform):
    """Platform of the KV260: the fan, and a Pmod connector."""

    device = "xck26"
    package = "sfvc784"
    speed = "2LV-c"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("fan", 0, Pins("A12", dir="o"), Attrs(IOSTANDARD="LVCMOS33")),
    ]
    connectors = [  # noqa: RUF012
        Connector("pmod", 0, "H12 E10 D10 C11 - - B10 E12 D11 B11 - -"),  # J2
    ]
