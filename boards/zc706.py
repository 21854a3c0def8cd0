"""Amaranth platform of the Xilinx ZC706 (XC7Z045). Pins of the programmable logic from UG954."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Pins, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources, SwitchResources

# The banks have different supplies: 1.5 V beside the memory module, 2.5 V (VADJ as delivered) elsewhere.
_LOW, _HIGH = Attrs(IOSTANDARD="LVCMOS15"), Attrs(IOSTANDARD="LVCMOS25")


class ZC706Platform(XilinxPlatform):
    """Platform of the ZC706: 200 MHz differential clock, reset button, four LEDs, three buttons, four switches."""

    device = "xc7z045"
    package = "ffg900"
    speed = "2"
    default_clk = "clk200"
    default_rst = "rst"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk200", 0, DiffPairs("H9", "G9", dir="i"), Clock(200e6), Attrs(IOSTANDARD="LVDS")),
        Resource("rst", 0, Pins("A8", dir="i"), _LOW),  # active high
        # left, centre, right, and one above these three
        *LEDResources(pins={0: "Y21", 2: "W21"}, attrs=_HIGH),
        *LEDResources(pins={1: "G2", 3: "A17"}, attrs=_LOW),
        # left, centre, right
        *ButtonResources(pins={0: "AK25", 2: "R27"}, attrs=_HIGH),
        *ButtonResources(pins={1: "K15"}, attrs=_LOW),
        *SwitchResources(pins="AB17 AC16 AC17 AJ13", attrs=_HIGH),
    ]
    connectors = []  # noqa: RUF012
