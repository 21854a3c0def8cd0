"""Amaranth platform of the AMD ZCU102 (XCZU9EG). Pins from UG1182."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, DiffPairs, Resource
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import ButtonResources, LEDResources


class ZCU102Platform(XilinxPlatform):
    """Platform of the ZCU102: 125 MHz differential clock, eight LEDs, five buttons."""

    device = "xczu9eg"
    package = "ffvb1156"
    speed = "2-e"
    default_clk = "clk125"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        Resource("clk125", 0, DiffPairs("G21", "F21", dir="i"), Clock(125e6), Attrs(IOSTANDARD="LVDS_25")),
        *LEDResources(pins="AG14 AF13 AE13 AJ14 AJ15 AH13 AH14 AL12", attrs=Attrs(IOSTANDARD="LVCMOS33")),
        # centre, south, west, east, north
        *ButtonResources(pins="AG13 AE15 AF15 AE14 AG15", attrs=Attrs(IOSTANDARD="LVCMOS33")),
    ]
    connectors = []  # noqa: RUF012
