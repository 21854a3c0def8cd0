"""DSP slice that makes one product in a cycle; slices are joined by their cascade."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Shape

from hwgen.gateware.multipliers.multiplier import Demand, Multiplier

__all__ = ["DspSlice"]

#: Bits of both operands together, up to which synthesis makes a product of LUTs.
SOFT_BITS = 8


@dataclass(frozen=True)
class DspSlice(Multiplier):
    """DSP slice with one product. It takes all activations and weights."""

    name = 1

    def check(self, demand: Demand) -> None:
        """Refuse nothing."""

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        half = 1 << (weight_bits - 1)
        return -half, half - 1

    def is_soft(self, operand: Shape, weight_bits: int) -> bool:
        return operand.width + weight_bits <= SOFT_BITS
