"""Multipliers with several products per DSP slice whose wide operand has 27 bits, such as DSP48E2 of UltraScale+.

Fields that are further apart hold sums of more products, so that fewer chains end in adders of LUTs:

| packing | distance in 25 bits | products per chain | distance in 27 bits | products per chain |
| --- | --- | --- | --- | --- |
| two weights of 8 bits | 17 | 4 | 19 | 16 |
| two weights of 8 bits, -128 among them | | | 18 | 7 |
| two activations of 8 bits | 16 | 2 | 18 | 8 |
| two activations of 8 bits, weights of -128 | | | 18 | 7 |
| two weights, two activations of 4 bits | 10 | 4 | 11 | 8 |

Two weights of -127 to 127 take ``19 + 8`` bits: the upper one, less a borrow of the lower one, is at least -128. With
-128 the upper one, less a borrow, can be -129. It then has 9 bits, and the two take ``18 + 9`` bits. Two activations
are in the same case.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.gateware.multipliers.multiplier import Multiplier
from hwgen.gateware.multipliers.packed_dsp import PackedDspSlice
from hwgen.gateware.multipliers.pixel_pair import PixelPair
from hwgen.gateware.multipliers.quad_dsp import QuadDspSlice

#: Width of the slices' wide operand, in bits (UG579, figure 2-1).
WIDE_BITS = 27


@dataclass(frozen=True)
class WidePair(PackedDspSlice):
    """Multiplier that uses each 27-bit DSP slice for two products of 8-bit operands, for two output channels.

    A chain sums 16 products: ``16 * 127 * 128 < 2**18``.
    """

    name = "2-wide"
    slice_bits = WIDE_BITS
    lane_shift = 19
    max_units = 16

    @property
    def fallback(self) -> Multiplier:
        return FullPair()

    def reason(self, channelwise: bool) -> str:
        return FullPair().reason(channelwise)


@dataclass(frozen=True)
class FullPair(PackedDspSlice):
    """Multiplier of two 8-bit products per 27-bit DSP slice, for two output channels, with weights down to -128.

    The two output channels are neighbours and share the activation. A chain sums seven products: ``7 * 128 * 128 <
    2**17``.
    """

    name = "2-full"
    slice_bits = WIDE_BITS
    lane_shift = 18
    max_units = 16
    largest_weight = 128

    @property
    def fallback(self) -> Multiplier:
        return PackedDspSlice()


@dataclass(frozen=True)
class WidePixelPair(PixelPair):
    """Multiplier that uses each 27-bit DSP slice for two products of 8-bit operands, for two neighbouring pixels.

    A chain sums eight products of 8-bit operands: ``8 * 127 * 128 < 2**17``.
    """

    name = "2-pixels-wide"
    slice_bits = WIDE_BITS
    pixel_shift = 18

    @property
    def fallback(self) -> Multiplier:
        return FullPixelPair()

    def reason(self, channelwise: bool) -> str:
        return FullPixelPair().reason(channelwise)


@dataclass(frozen=True)
class FullPixelPair(PixelPair):
    """Multiplier of two 8-bit products per 27-bit DSP slice, for two output pixels, with weights down to -128.

    The two output pixels are neighbours and share the weight. A chain sums seven products: ``7 * 128 * 128 < 2**17``.
    """

    name = "2-pixels-full"
    slice_bits = WIDE_BITS
    pixel_shift = 18
    largest_weight = 128

    @property
    def fallback(self) -> Multiplier:
        return PixelPair()


@dataclass(frozen=True)
class WideQuad(QuadDspSlice):
    """Multiplier that uses each 27-bit DSP slice for four products of 4-bit operands: two channels by two pixels.

    A chain sums eight products of 4-bit operands: ``8 * 8 * 15 < 2**10``.
    """

    name = "4-wide"
    slice_bits = WIDE_BITS
    lane_shift = 22
    pixel_shift = 11

    @property
    def pair(self) -> PackedDspSlice:
        return WidePair()

    @property
    def pixel_pair(self) -> PixelPair:
        return WidePixelPair()

    @property
    def one_lane(self) -> Multiplier:
        return _WideOneLane()


@dataclass(frozen=True)
class _WideOneLane(WideQuad):
    """Multiplier of one output channel by two pixels per 27-bit DSP slice, for the last of an odd number."""

    lanes = 1
    lane_shift = 0
