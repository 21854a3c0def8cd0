"""Multiplier with two products per DSP slice and cycle: of one activation, by the weights of two output channels.

The product ``((w1 << 17) + w0) * x`` contains both products. A chain sums at most four such products to ``p``. The
lower sum is ``p[16:0]``, signed. The upper sum is ``p >> 17`` plus the carry ``p[16]``. The carries are inputs of the
tree's adders and of the accumulator, where they cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Shape

from hwgen.devices.xilinx7 import DSP48E1
from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier
from hwgen.gateware.multipliers.packing import PackedFields

__all__ = ["PackedDspSlice"]

#: Maximum magnitude of a weight, and maximum width of an activation and of a weight, in bits.
LARGEST_WEIGHT, LARGEST_BITS = 127, 8


@dataclass(frozen=True)
class PackedDspSlice(PackedFields):
    """Multiplier that uses each DSP slice for two products of 8-bit operands, for two neighbouring output channels."""

    name = 2
    lanes = 2
    lane_shift = DSP48E1.cascade_shift
    most_units = 4  # 4 * 127 * 128 < 2**16
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
