"""Amaranth platform of the Avnet Ultra96-V2 (XCZU3EG).

Pins: Avnet's constraints of the Ultra96-V2. The logic has no oscillator of its own. A design adds the clock domain
``sync`` with a clock of the processing system.
"""

from __future__ import annotations

from amaranth.build import Attrs
from amaranth.vendor import XilinxPlatform
from amaranth_boards.resources import LEDResources


class Ultra96Platform(XilinxPlatform):
    """Platform of the Ultra96-V2: the two LEDs beside the radio."""

    device = "xczu3eg"
    package = "sbva484"
    speed = "1-i"
    resources = [  # noqa: RUF012 (the base class asks for a plain list)
        *LEDResources(pins="A9 B9", attrs=Attrs(IOSTANDARD="LVCMOS18")),
    ]
    connectors = []  # noqa: RUF012
