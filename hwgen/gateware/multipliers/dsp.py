"""Multiplier with one product per DSP slice and cycle, whose products are summed along a cascade of slices."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Shape

from hwgen.gateware.multipliers.multiplier import Demand, Multiplier

#: Maximum width of both operands together, in bits, of a product that synthesis builds from LUTs.
SOFT_BITS = 8


@dataclass(frozen=True)
class DspSlice(Multiplier):
    """Multiplier that uses each DSP slice for one product per cycle, with activations and weights of any width."""

    name = 1

    def check(self, demand: Demand) -> None:
        """Accept every convolution, because one product per DSP slice supports operands of any width."""

    def is_soft(self, operand: Shape, weight_bits: int) -> bool:
        return operand.width + weight_bits <= SOFT_BITS
