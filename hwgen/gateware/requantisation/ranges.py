"""Parameters of a requantiser, and the ranges of its sums of accumulator and bias per channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

from hwgen.devices import MultiplierSlice
from hwgen.errors import ConfigError
from hwgen.gateware.channels import ScaledChannelsConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, Bands, round_half_even, scale_sum, tie_bands, useful_sums


@dataclass(frozen=True, kw_only=True)
class RequantiseParameters(ScaledChannelsConfig):
    """Parameters of a requantiser, ``clip(round((acc + bias) * significand / 2**shift) + zero_point, low, high)``.

    Rounding is to the nearest integer, ties to even. Each channel has its own bias, significand and shift. With
    ``float32``, the sum and its product are first rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    lanes : int
        Number of channels per beat.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : tuple of int
        Bias of each channel, with the correction for the input's zero point.
    significand : tuple of int
        Significand of each channel's scale, from 1 to ``2**24 - 1``.
    shift : tuple of int
        Right shift of each channel, in bits, at least 0.
    zero_point, low, high : int
        Zero point and bounds of the output, within its type.
    bits, signed : int, bool
        Type of an output.
    float32 : bool
        Whether sum and product are rounded to float32. Outputs then have at most 8 bits.
    products_in : str
        Multiplier: ``dsp`` slices, or ``lut``.
    fraction : int
        Number of fraction bits of the bias: the sum is ``(acc << fraction) + bias``.
    beats : tuple of tuple of int
        Channels of each beat of a pixel, lane 0 first.
    pixels : int
        Number of neighbouring pixels per beat. The values of a channel for these pixels are neighbours.

    Raises
    ------
    ConfigError
        If a number is out of range, or the lengths of the tuples do not fit each other.
    """

    float32: bool = False
    products_in: str = "dsp"
    fraction: int = 0
    #: The device's DSP slice, which digests of designs include.
    multiplier_slice: MultiplierSlice = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "multiplier_slice", self.device.multiplier_slice)
        if self.products_in not in ("dsp", "lut"):
            raise ConfigError(f"products_in must be 'dsp' or 'lut', not {self.products_in!r}")
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")
        if self.fraction < 0:
            raise ConfigError(f"fraction must not be negative, not {self.fraction!r}")
        if self.float32 and self.bits > 8:
            raise ConfigError(f"bits must be at most 8 with float32, not {self.bits!r}")
        for name in ("significand", "shift"):
            if len(getattr(self, name)) != self.channels:
                raise ConfigError(
                    f"{name} must have one entry for each of {self.channels} channels, not {getattr(self, name)!r}"
                )
        if not all(1 <= value < 1 << SIGNIFICAND_BITS for value in self.significand):
            raise ConfigError(f"significand must be between 1 and 2**24 - 1, not {self.significand!r}")
        if min(self.shift) < 0:
            raise ConfigError(f"shift must not be negative, not {self.shift!r}")
        self._check_outputs()
        if self.low > self.high:
            raise ConfigError(f"low must be at most high ({self.high}), not {self.low!r}")

    def compute(self, channel: int, accumulator: int) -> int:
        """Return a channel's requantised output for one accumulator, computed in Python by the definition.

        The hardware uses another arrangement.
        """
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], self.float32)
        return min(max(scaled + self.zero_point, self.low), self.high)

    @property
    def outputs(self) -> tuple[int, int]:
        """Smallest and largest output of the requantiser minus the zero point, a pair of integers."""
        return self.low - self.zero_point, self.high - self.zero_point


@dataclass(frozen=True)
class SumRanges:
    """Ranges of a requantiser's sums of accumulator and bias, and the scales and ties that follow from them."""

    parameters: RequantiseParameters

    @cached_property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs: smallest and largest possible sum of a channel's accumulator and bias, by channel."""
        half = 1 << (self.parameters.accumulator_bits - 1)
        lowest, highest = -half << self.parameters.fraction, half - 1 << self.parameters.fraction
        return tuple((bias + lowest, bias + highest) for bias in self.parameters.bias)

    @cached_property
    def _useful_sums(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs, per channel: range of accumulator plus bias beyond which the output stays at its bound.

        Sums outside of it can be clamped to it.
        """
        given = self.parameters
        outputs, float32 = repeat(given.outputs), repeat(given.float32)
        return tuple(map(useful_sums, self.sums, given.significand, given.shift, outputs, float32))

    @cached_property
    def rounded_bits(self) -> int:
        """Maximum number of low bits that float32 rounding drops from a sum; 0 if it never changes an output.

        Only sums of more than 24 bits are rounded.
        """
        if not self.parameters.float32:
            return 0
        largest = max(abs(end) for ends in self._useful_sums for end in ends)
        return max(0, (largest - 1).bit_length() - SIGNIFICAND_BITS)

    def _round_ranges(self, sums: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Return a tuple of ranges of sums with both ends rounded to float32, unless rounding never changes an output.

        They are the ranges of the scaling multiplier's operands.
        """

        def rounded(total: int) -> int:
            excess = min(self.rounded_bits, max(0, abs(total).bit_length() - SIGNIFICAND_BITS))
            return round_half_even(total, excess) << excess

        return tuple((rounded(smallest), rounded(largest)) for smallest, largest in sums)

    @cached_property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs of integers: smallest and largest scaling operand per channel, sums not clamped."""
        return self._round_ranges(self.sums)

    @cached_property
    def useful(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs of integers: smallest and largest scaling operand per channel, saturating sums clamped."""
        return self._round_ranges(self._useful_sums)

    @cached_property
    def scales(self) -> tuple[tuple[int, int], ...]:
        """Tuple of each channel's scale as (odd factor, right shift); (0, 0) if its products are rounded to 0.

        A shift can be negative.
        """
        scales, given = [], self.parameters
        for factor, shift, operands in zip(given.significand, given.shift, self.operands, strict=True):
            if 2 * max(map(abs, operands)) * factor <= 1 << shift:
                scales.append((0, 0))
            elif factor > 1 << (shift + given.bits + 1):  # any sum but 0 saturates
                scales.append((1, -given.bits - 1))
            else:
                zeros = (factor & -factor).bit_length() - 1
                scales.append((factor >> zeros, shift - zeros))
        return tuple(scales)

    @cached_property
    def ties(self) -> bool:
        """Whether some scaled sum can lie exactly halfway between two integer outputs."""
        for (factor, shift), (smallest, largest) in zip(self.scales, self.useful, strict=True):
            if factor and shift > 0:
                # An odd factor preserves trailing zeros, so that ties are exactly the odd multiples of half a step.
                half = 1 << (shift - 1)
                first = -(-smallest // half)
                if (first | 1) * half <= largest:
                    return True
        return False

    @cached_property
    def bands(self) -> Bands:
        """`Bands`, three flags: some product rounds to a tie in float32, or is at that limit above or below it."""
        bands = Bands()
        if self.parameters.float32:
            for (factor, shift), operands in zip(self.scales, self.operands, strict=True):
                bands |= tie_bands(operands, factor, shift, self.parameters.outputs)
        return bands
