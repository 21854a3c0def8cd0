"""Multiplier with two products per DSP slice and cycle: of one activation, by the weights of two output channels.

The product ``((w1 << 17) + w0) * x`` contains both products. A chain sums at most four such products to ``p``. The
lower sum is ``p[16:0]``, signed. The upper sum is ``p >> 17`` plus the carry ``p[16]``. The carries are inputs of the
tree's adders and of the accumulator, where they cost nothing.
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

#: Distance between the lowest bits of the two products in a DSP slice's result, in bits.
FIELD = DSP48E1.cascade_shift
#: Maximum number of products that a chain sums before the split: ``4 * 127 * 128 < 2**(FIELD - 1)``.
LONGEST_CHAIN = 4
#: Maximum magnitude of a weight, and maximum width of an activation and of a weight, in bits.
LARGEST_WEIGHT, LARGEST_BITS = 127, 8


@dataclass(frozen=True)
class PackedDspSlice(Multiplier):
    """Multiplier that uses each DSP slice for two products of 8-bit operands, for two neighbouring output channels."""

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
        smallest, largest = weight_range
        fits = smallest >= -LARGEST_WEIGHT and largest <= LARGEST_WEIGHT and activation_bits <= LARGEST_BITS
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
        """Return the width of the upper weight's field in a memory word of two packed weights, in bits.

        The field holds the upper weight, less one if the lower weight is negative.
        """
        return operands.weight_bits + (operands.weight_range[0] - 1 < -1 << (operands.weight_bits - 1))

    def unit_bits(self, operands: Operands) -> int:
        return operands.weight_bits + self.upper_bits(operands)

    def stored(self, weights: Sequence[Sequence[int]], operands: Operands) -> list[int]:
        """Pack weights of two output channels in memory words, the upper weight less one if the lower is negative.

        The upper field is ``((w1 << 17) + w0) >> 17``.
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
        """Return the widest weight range with the same packed widths (`field_bits`, `upper_bits`) as ``operands``."""
        _, largest = self.weight_range(operands.weight_bits)
        unit_peak = operands.positions << (operands.activation.width - 1)
        largest = min(largest, ((1 << self.field_bits(operands) - 1) - 2) // unit_peak)
        if self.upper_bits(operands) > operands.weight_bits:
            return max(-1 << (operands.weight_bits - 1), operands.weight_range[0]), largest
        return -largest, largest

    def longest_chain(self, chain: int) -> int:
        return min(chain, LONGEST_CHAIN)

    def product_bits(self, operands: Operands) -> int:
        return FIELD + self.upper_bits(operands) + operands.activation.width

    def chain_bits(self, operands: Operands, sum_bits: int) -> int:
        return FIELD + self.field_bits(operands)

    def field_bits(self, operands: Operands) -> int:
        peak = max(map(abs, operands.weight_range))
        # One bit more, because the upper sum lacks its carry.
        return 1 + (operands.positions * (peak << (operands.activation.width - 1)) + 1).bit_length()

    def split(self, sums: Sequence[Signal], operands: Operands) -> list[tuple[list[Value], list[Value]]]:
        bits = self.field_bits(operands)
        lower: list[Value] = [value[:bits].as_signed() for value in sums]
        upper: list[Value] = [value[FIELD : FIELD + bits].as_signed() for value in sums]
        return [(lower, []), (upper, [value[FIELD - 1] for value in sums])]
