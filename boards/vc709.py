"""Amaranth platform of the Xilinx VC709 (XC7VX690T), whose pins are the VC707's except for the clock (UG887)."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Resource

from hwgen.boards.vc707 import VC707Platform


class VC709Platform(VC707Platform):
    """Platform of the VC709: 200 MHz differential clock, reset, PCI Express, 8 LEDs, 5 buttons, 8 switches."""

    device = "xc7vx690t"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk200", 0, DiffPairs("H19", "G18", dir="i"), Clock(200e6), Attrs(IOSTANDARD="DIFF_SSTL15")),
        *(resource for resource in VC707Platform.resources if resource.name != "clk200"),
    ]
