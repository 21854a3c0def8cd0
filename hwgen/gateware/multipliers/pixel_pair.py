"""Multiplier with two products per DSP slice and cycle: two neighbouring pixels by the weight that they share.

The product ``w * ((x1 << 16) + x0)`` contains both products. Depthwise convolutions use it, because no two of their
output channels share an activation.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.gateware.multipliers.multiplier import Demand
from hwgen.gateware.multipliers.packing import BytePair


@dataclass(frozen=True)
class PixelPair(BytePair):
    """Multiplier that uses each DSP slice for two products of 8-bit operands, for two neighbouring output pixels.

    Both activations take 25 bits, the wider operand of the slice. A chain sums two products of 8-bit operands:
    ``2 * 127 * 128 < 2**15``.
    """

    name = "2-pixels"
    pixels = 2
    pixel_shift = 16
    max_units = 16

    def check(self, demand: Demand) -> None:
        super().check(demand)
        if demand.pixels < self.pixels:
            raise self.refused("with one pixel", "two pixels share a slice")
