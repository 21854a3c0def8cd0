"""DSP slice that makes two products in a cycle, of one activation with the weights of two output channels.

``((w1 << 17) + w0) * x`` holds both products. After at most four of them ``p[16:0]`` is the lower sum, signed, and
``p >> 17`` plus the carry ``p[16]`` the upper one. The carries enter the adders of the tree and the accumulator, which
take a carry for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth import Cat, Shape, Signal, Value

from hwgen.devices.xilinx7 import DSP48E1
from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier, Operands

__all__ = ["PackedDspSlice"]

#: Distance of the two products in a slice, in bits.
FIELD = DSP48E1.cascade_shift
#: Largest number of products that are summed before they are split: ``4 * 127 * 128 < 2**(FIELD - 1)``.
LONGEST_CHAIN = 4
#: Largest magnitude of a weight, and largest width of an activation and a weight.
LARGEST_WEIGHT, LARGEST_BITS = 127, 8


@dataclass(frozen=True)
class PackedDspSlice(Multiplier):
    """DSP slice with two products, of 8 bits, for neighbouring output channels."""

    name = 2
    lanes = 2
    carries = True
    computes_windows = True
    mark = "*"
    legend = "*: two multiply-adds a slice"
    detail = ", two multiply-adds each"

    @property
    def fallback(self) -> Multiplier:
        return DspSlice()

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        least, greatest = weight_range
        fits = least >= -LARGEST_WEIGHT and greatest <= LARGEST_WEIGHT and activation_bits <= LARGEST_BITS
        return fits and not channelwise

    def reason(self, channelwise: bool) -> str:
        return "depthwise convolutions" if channelwise else "weights below -127 or more than 8 bits"

    def check(self, demand: Demand) -> None:
        operands = demand.operands
        bits, must = operands.activation.width, "macs_per_dsp must be 1"
        if bits > LARGEST_BITS:
            raise ConfigError(f"{must} where activations have more than {LARGEST_BITS} bits (these have {bits}), not 2")
        if operands.weight_bits > LARGEST_BITS:
            raise ConfigError(
                f"{must} where weights have more than {LARGEST_BITS} bits (these have {operands.weight_bits}), not 2"
            )
        worst = max(*operands.weight_range, key=abs)
        if abs(worst) > LARGEST_WEIGHT:
            raise ConfigError(
                f"{must} with weight {worst} of {demand.locate(worst)}, not 2: it takes one MAC a DSP, only weights "
                f"from -{LARGEST_WEIGHT} to {LARGEST_WEIGHT} take two"
            )
        if demand.lanes < self.lanes:
            raise ConfigError(f"{must} with one lane, not 2: two output channels share a slice")
        if demand.channelwise:
            raise ConfigError(f"{must} in a channelwise walk, not 2: no two outputs share an activation")

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        half = 1 << (weight_bits - 1)
        return max(-half, -LARGEST_WEIGHT), half - 1

    def offset(self, activation: Shape) -> int:
        return 0 if activation.signed else 1 << (activation.width - 1)

    def operand(self, activation: Shape) -> Shape:
        return Shape(activation.width, signed=True)

    def upper_bits(self, operands: Operands) -> int:
        """Return the width of the upper weight as it is stored: one less than it is where the lower is negative."""
        return operands.weight_bits + (operands.weight_range[0] - 1 < -1 << (operands.weight_bits - 1))

    def unit_bits(self, operands: Operands) -> int:
        return operands.weight_bits + self.upper_bits(operands)

    def stored(self, weights: Sequence[Sequence[int]], operands: Operands) -> list[int]:
        """Return both weights side by side, the upper one less one if the lower one is negative.

        These are the bits of ``(w1 << 17) + w0`` from bit 17 on.
        """
        lower_mask, upper_mask = (1 << operands.weight_bits) - 1, (1 << self.upper_bits(operands)) - 1
        return [
            (lower & lower_mask) | ((upper - (lower < 0)) & upper_mask) << operands.weight_bits
            for lower, upper in zip(*weights, strict=True)
        ]

    def spread(self, stored: Value, weight_bits: int) -> Value:
        lower, upper = stored[:weight_bits], stored[weight_bits:]
        return Cat(lower, lower[-1].replicate(FIELD - len(lower)), upper).as_signed()

    def representative(self, operands: Operands) -> tuple[int, int]:
        """Return the weights farthest apart with as many ``field_bits`` and ``upper_bits``."""
        _, greatest = self.weight_range(operands.weight_bits)
        of_one = operands.positions << (operands.activation.width - 1)
        greatest = min(greatest, ((1 << self.field_bits(operands) - 1) - 2) // of_one)
        if self.upper_bits(operands) > operands.weight_bits:
            return max(-1 << (operands.weight_bits - 1), operands.weight_range[0]), greatest
        return -greatest, greatest

    def longest_chain(self, chain: int) -> int:
        return min(chain, LONGEST_CHAIN)

    def product_bits(self, operands: Operands) -> int:
        return FIELD + self.upper_bits(operands) + operands.activation.width

    def chain_bits(self, operands: Operands, sum_bits: int) -> int:
        return FIELD + self.field_bits(operands)

    def field_bits(self, operands: Operands) -> int:
        peak = max(map(abs, operands.weight_range))
        # One more, as the upper one lacks its carry.
        return 1 + (operands.positions * (peak << (operands.activation.width - 1)) + 1).bit_length()

    def split(self, sums: Sequence[Signal], operands: Operands) -> list[tuple[list[Value], list[Value]]]:
        bits = self.field_bits(operands)
        lower: list[Value] = [value[:bits].as_signed() for value in sums]
        upper: list[Value] = [value[FIELD : FIELD + bits].as_signed() for value in sums]
        return [(lower, []), (upper, [value[FIELD - 1] for value in sums])]
