"""Amaranth platform of the Avnet ZedBoard (XC7Z020).

The pins of the programmable logic are from the ZedBoard Hardware User's Guide. Banks 34 and 35 (buttons and switches)
use the adjustable supply, 1.8 V as delivered.
"""

from __future__ import annotations

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources, SwitchResources


class ZedBoardPlatform(XilinxPlatform):
    """Platform of the ZedBoard: 100 MHz oscillator, eight LEDs, five buttons, eight switches."""

    device = "xc7z020"
    package = "clg484"
    speed = "1"
    default_clk = "clk100"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk100", 0, Pins("Y9", dir="i"), Clock(100e6), Attrs(IOSTANDARD="LVCMOS33")),
        *LEDResources(pins="T22 T21 U22 U21 V22 W22 U19 U14", attrs=Attrs(IOSTANDARD="LVCMOS33")),
        # centre, down, left, right, up
        *ButtonResources(pins="P16 R16 N15 R18 T18", attrs=Attrs(IOSTANDARD="LVCMOS18")),
        *SwitchResources(pins="F22 G22 H22 F21 H19 H18 H17 M15", attrs=Attrs(IOSTANDARD="LVCMOS18")),
    ]
    connectors = []  # noqa: RUF012
