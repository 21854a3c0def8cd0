"""Amaranth platform of the Xilinx VC707 (XC7VX485T). Pins from UG885, and for PCI Express from LiteX-Boards."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources, SwitchResources


class VC707Platform(XilinxPlatform):
    """Platform of the VC707: 200 MHz differential clock, reset, PCI Express, 8 LEDs, 5 buttons, 8 switches."""

    device = "xc7vx485t"
    package = "ffg1761"
    speed = "2"
    default_clk = "clk200"
    default_rst = "rst"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk200", 0, DiffPairs("E19", "E18", dir="i"), Clock(200e6), Attrs(IOSTANDARD="LVDS")),
        Resource("rst", 0, Pins("AV40", dir="i"), Attrs(IOSTANDARD="LVCMOS18")),  # active high
        *LEDResources(pins="AM39 AN39 AR37 AT37 AR35 AP41 AP42 AU39", attrs=Attrs(IOSTANDARD="LVCMOS18")),
        # centre, south, west, east, north
        *ButtonResources(pins="AV39 AP40 AW40 AU38 AR40", attrs=Attrs(IOSTANDARD="LVCMOS18")),
        *SwitchResources(pins="AV30 AY33 BA31 BA32 AW30 AY30 BA30 BB31", attrs=Attrs(IOSTANDARD="LVCMOS18")),
        Resource(
            "pcie",
            0,
            Subsignal("rst", PinsN("AV35", dir="i"), Attrs(IOSTANDARD="LVCMOS18")),
            Subsignal("clk", DiffPairs("AB8", "AB7", dir="i")),
            Subsignal("rx", DiffPairs("Y4 AA6 AB4 AC6 AD4 AE6 AF4 AG6", "Y3 AA5 AB3 AC5 AD3 AE5 AF3 AG5", dir="i")),
            Subsignal("tx", DiffPairs("W2 AA2 AC2 AE2 AG2 AH4 AJ2 AK4", "W1 AA1 AC1 AE1 AG1 AH3 AJ1 AK3", dir="o")),
        ),
    ]
    connectors = []  # noqa: RUF012
