"""Amaranth platform of the AMD ZCU104 (XCZU7EV). Pins from UG1267."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources


class ZCU104Platform(XilinxPlatform):
    """Platform of the ZCU104: 125 MHz differential clock, four LEDs, four buttons."""

    device = "xczu7ev"
    package = "ffvc1156"
    speed = "2-e"
    default_clk = "clk125"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk125", 0, DiffPairs("F23", "E23", dir="i"), Clock(125e6), Attrs(IOSTANDARD="LVDS")),
        *LEDResources(pins="D5 D6 A5 B5", attrs=Attrs(IOSTANDARD="LVCMOS33")),
        *ButtonResources(pins="B4 C4 B3 C3", attrs=Attrs(IOSTANDARD="LVCMOS33")),
    ]
    connectors = []  # noqa: RUF012
