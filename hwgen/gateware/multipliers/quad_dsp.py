"""Multiplier with four products of 4-bit operands per DSP slice and cycle: two output channels by two pixels.

The product ``((w1 << 20) + w0) * ((a1 << 10) + a0)`` contains all four, each in a field of 10 bits. Activations are
unsigned, because these need no adder to be packed. A chain sums four such products, ``4 * 8 * 15 < 2**9``, or more
products of fewer bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Shape

from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier
from hwgen.gateware.multipliers.packed_dsp import PackedDspSlice
from hwgen.gateware.multipliers.packing import PackedFields
from hwgen.gateware.multipliers.pixel_pair import PixelPair

#: Maximum width of an activation and of a weight of a `QuadDspSlice`, in bits.
LARGEST_BITS = 4


@dataclass(frozen=True)
class QuadDspSlice(PackedFields):
    """Multiplier that uses each DSP slice for four products of 4-bit operands: two output channels by two pixels."""

    name = 4
    lanes = 2
    pixels = 2
    lane_shift = 20
    pixel_shift = 10
    max_units = 16
    mark = "**"
    legend = "**: four MACs per DSP slice"
    detail = ", four multiply-adds each"

    @property
    def pair(self) -> PackedDspSlice:
        """`PackedDspSlice`: multiplier of two output channels by one pixel per slice, for slices of the same width."""
        return PackedDspSlice()

    @property
    def pixel_pair(self) -> PixelPair:
        """`PixelPair`: multiplier of one output channel by two pixels per slice of the same width, 8-bit operands."""
        return PixelPair()

    @property
    def one_lane(self) -> Multiplier:
        """Multiplier of one output channel by two pixels per DSP slice, at this multiplier's ``pixel_shift``."""
        return _OneLane()

    @property
    def fallback(self) -> Multiplier:
        return self.pair

    def for_size(self, lanes: int, pixels: int) -> Multiplier:
        if lanes >= self.lanes:
            return self if pixels >= self.pixels else self.pair
        return self.pixel_pair if pixels >= self.pixels else DspSlice()

    def for_rest(self, lanes: int, pixels: int) -> Multiplier:
        return self.one_lane if lanes == 1 and pixels >= self.pixels else self.for_size(lanes, pixels)

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        half = 1 << (LARGEST_BITS - 1)
        fits = -half <= weight_range[0] and weight_range[1] < half and activation_bits <= LARGEST_BITS
        return fits and not channelwise

    def reason(self, channelwise: bool) -> str:
        return "depthwise convolutions" if channelwise else "more than 4 bits"

    def check(self, demand: Demand) -> None:
        bits = max(demand.operands.activation.width, demand.operands.weight_bits)
        if bits > LARGEST_BITS:
            where = f"where operands have more than {LARGEST_BITS} bits (these have {bits})"
            raise ConfigError(f"macs_per_dsp must be {self._alternatives(demand)} {where}, not {self.name}")
        if demand.channelwise:
            why = "no two outputs share an activation"
            others = self._alternatives(demand)
            raise ConfigError(f"macs_per_dsp must be {others} in a channelwise walk, not {self.name}: {why}")
        if self.for_size(demand.lanes, demand.pixels) is not self:
            raise ConfigError(self.too_few(demand.lanes, demand.pixels))

    def _alternatives(self, demand: Demand) -> str:
        """Return the names of the DSP multipliers that can compute a convolution instead, for example ``1 or 2``."""
        weights, bits = demand.operands.weight_range, demand.operands.activation.width
        others = DspSlice(), self.pair, self.pixel_pair
        *names, last = (str(other.name) for other in others if other.accepts(weights, bits, demand.channelwise))
        return f"{', '.join(names)} or {last}" if names else last

    def offset(self, activation: Shape) -> int:
        return -(1 << (activation.width - 1)) if activation.signed else 0

    def operand(self, activation: Shape) -> Shape:
        return Shape(activation.width, signed=False)


@dataclass(frozen=True)
class _OneLane(QuadDspSlice):
    """Multiplier of one output channel by two pixels per DSP slice, for the last of an odd number of channels."""

    lanes = 1
    lane_shift = 0
