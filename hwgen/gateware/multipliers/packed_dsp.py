"""Multiplier with two products per DSP slice and cycle: one activation by the weights of two output channels.

The product ``((w1 << 17) + w0) * x`` contains both products. A chain sums at most four such products to ``p``. The
lower sum is ``p[16:0]``, signed. The upper sum is ``p >> 17`` plus the carry ``p[16]``. The carries are inputs of the
tree's adders and of the accumulator, where they cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.gateware.multipliers.multiplier import Demand
from hwgen.gateware.multipliers.packing import BytePair


@dataclass(frozen=True)
class PackedDspSlice(BytePair):
    """Multiplier that uses each DSP slice for two products of 8-bit operands, for two neighbouring output channels."""

    name = 2
    lanes = 2
    lane_shift = 17
    max_units = 4  # 4 * 127 * 128 < 2**16
    computes_windows = True

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        return super().accepts(weight_range, activation_bits, channelwise) and not channelwise

    def reason(self, channelwise: bool) -> str:
        return "depthwise convolutions" if channelwise else super().reason(channelwise)

    def check(self, demand: Demand) -> None:
        super().check(demand)
        if demand.lanes < self.lanes:
            raise self.refused("with one lane", "two output channels share a slice")
        if demand.channelwise:
            raise self.refused("in a channelwise walk", "no two outputs share an activation")
