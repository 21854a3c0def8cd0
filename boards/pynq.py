"""Amaranth platform of the PYNQ-Z1 (Digilent) and PYNQ-Z2 (TUL), both with an XC7Z020.

The pins of the programmable logic are from the boards' reference manuals and master constraints. Both boards have the
same pins.
"""

from __future__ import annotations

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources, RGBLEDResource, SwitchResources

_IO = Attrs(IOSTANDARD="LVCMOS33")


class PynqPlatform(XilinxPlatform):
    """Platform of the PYNQ-Z1 and PYNQ-Z2: 125 MHz clock of the Ethernet PHY, LEDs, buttons, switches.

    It has four LEDs, two coloured LEDs, four buttons and two switches.
    """

    device = "xc7z020"
    package = "clg400"
    speed = "1"
    default_clk = "clk125"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk125", 0, Pins("H16", dir="i"), Clock(125e6), _IO),
        *LEDResources(pins="R14 P14 N16 M14", attrs=_IO),
        RGBLEDResource(0, r="N15", g="G17", b="L15", attrs=_IO),
        RGBLEDResource(1, r="M15", g="L14", b="G14", attrs=_IO),
        *ButtonResources(pins="D19 D20 L20 L19", attrs=_IO),
        *SwitchResources(pins="M20 M19", attrs=_IO),
    ]
    connectors = []  # noqa: RUF012
