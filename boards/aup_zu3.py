"""Amaranth platform of the Real Digital AUP-ZU3 (XCZU3EG). Pins from its Reference Manual, appendix A."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import LEDResources, SwitchResources


class AUPZU3Platform(XilinxPlatform):
    """Platform of the AUP-ZU3: 100 MHz differential clock, eight white LEDs, eight switches."""

    device = "xczu3eg"
    package = "sfvc784"
    speed = "2-e"
    default_clk = "clk100"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk100", 0, DiffPairs("D7", "D6", dir="i"), Clock(100e6), Attrs(IOSTANDARD="LVDS")),
        *LEDResources(pins="AF5 AE7 AH2 AE5 AH1 AE4 AG1 AF2", attrs=Attrs(IOSTANDARD="LVCMOS12")),
        *SwitchResources(pins="AB1 AF1 AE3 AC2 AC1 AD6 AD1 AD2", attrs=Attrs(IOSTANDARD="LVCMOS12")),
    ]
    connectors = []  # noqa: RUF012
