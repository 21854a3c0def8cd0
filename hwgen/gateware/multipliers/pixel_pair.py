"""Multiplier with two products per DSP slice and cycle: of two neighbouring pixels, by the weight that they share.

The product ``w * ((x1 << 16) + x0)`` contains both products. Depthwise convolutions use it, because no two of their
output channels share an activation.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Shape

from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier
from hwgen.gateware.multipliers.packing import PackedFields

__all__ = ["PixelPair"]

#: Maximum magnitude of a weight, and maximum width of an activation and of a weight, in bits.
LARGEST_WEIGHT, LARGEST_BITS = 127, 8


@dataclass(frozen=True)
class PixelPair(PackedFields):
    """Multiplier that uses each DSP slice for two products of 8-bit operands, for two neighbouring output pixels.

    Both activations take 25 bits, the wider operand of the slice. A chain sums two products of 8-bit operands:
    ``2 * 127 * 128 < 2**15``.
    """

    name = "2-pixels"
    pixels = 2
    pixel_shift = 16
    most_units = 16
    mark = "*"
    legend = "*: two multiply-adds a slice"
    detail = ", two multiply-adds each"

    @property
    def fallback(self) -> Multiplier:
        return DspSlice()

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        return max(map(abs, weight_range)) <= LARGEST_WEIGHT and activation_bits <= LARGEST_BITS

    def reason(self, channelwise: bool) -> str:
        return "weights below -127 or more than 8 bits"

    def check(self, demand: Demand) -> None:
        bits = max(demand.operands.activation.width, demand.operands.weight_bits)
        if bits > LARGEST_BITS:
            raise ConfigError(
                f"macs_per_dsp must be 1 where operands have more than {LARGEST_BITS} bits (these have {bits}), "
                f"not {self.name!r}"
            )
        worst = max(*demand.operands.weight_range, key=abs)
        if abs(worst) > LARGEST_WEIGHT:
            raise ConfigError(
                f"macs_per_dsp must be 1 with weight {worst} of {demand.locate(worst)}, not {self.name!r}: only "
                f"weights from -{LARGEST_WEIGHT} to {LARGEST_WEIGHT} take two MACs a DSP"
            )
        if demand.pixels < self.pixels:
            raise ConfigError(f"macs_per_dsp must be 1 with one pixel, not {self.name!r}: two pixels share a slice")

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        half = 1 << (weight_bits - 1)
        return max(-half, -LARGEST_WEIGHT), half - 1

    def offset(self, activation: Shape) -> int:
        return 0 if activation.signed else 1 << (activation.width - 1)

    def operand(self, activation: Shape) -> Shape:
        return Shape(activation.width, signed=True)
