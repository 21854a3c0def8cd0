"""Exact integer model of ONNX Runtime's rounding in requantisation, and analysis of where float32 rounding matters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache

#: Number of bits of a float32's significand.
SIGNIFICAND_BITS = 24


@lru_cache(maxsize=1 << 17)
def useful_sums(
    sums: tuple[int, int], significand: int, shift: int, outputs: tuple[int, int], float32: bool
) -> tuple[int, int]:
    """Return a pair: highest of ``sums`` that scales to ``outputs[0]`` or less, lowest to ``outputs[1]`` or more.

    If none does, it is an end of ``sums``. Results are cached, because planning makes many configurations of the
    same layer.
    """

    def scaled(total: int) -> int:
        return scale_sum(total, significand, shift, float32)

    every = range(sums[0], sums[1] + 1)
    first = every[max(bisect_right(every, outputs[0], key=scaled) - 1, 0)]
    last = every[min(bisect_left(every, outputs[1], key=scaled), len(every) - 1)]
    return min(first, last), max(first, last)


def round_half_even(value: int, shift: int) -> int:
    """Return the integer ``value`` divided by ``2**shift`` and rounded to the nearest integer, ties to even."""
    if shift <= 0:
        return value << -shift
    result = (value + (1 << (shift - 1))) >> shift
    tie = value % (1 << shift) == 1 << (shift - 1)
    return result & ~1 if tie else result


def to_float32(value: int) -> int:
    """Return the integer ``value`` rounded to float32's 24 significant bits, ties to even, as an integer."""
    excess = max(0, abs(value).bit_length() - SIGNIFICAND_BITS)
    return round_half_even(value, excess) << excess


def scale_sum(total: int, significand: int, shift: int, float32: bool) -> int:
    """Return the sum ``total * significand / 2**shift``, rounded to the nearest integer, ties to even.

    With ``float32``, the sum and the product are first rounded to 24 significant bits.
    """
    product = to_float32(to_float32(total) * significand) if float32 else total * significand
    return round_half_even(product, shift)


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Three booleans for a set of products: whether any lies in a band around a tie, or exactly at an end of one.

    A tie lies halfway between two integers. A band is the range that float32 rounds to a tie.

    Parameters
    ----------
    beside : bool
        Whether a product is in a band, where float32 gives another output.
    above, below : bool
        Whether a product is exactly at the end of a band: above a tie that is rounded down, or below a tie that is
        rounded up.
    """

    beside: bool = False
    above: bool = False
    below: bool = False

    def __or__(self, other: Bands) -> Bands:
        return Bands(
            beside=self.beside or other.beside, above=self.above or other.above, below=self.below or other.below
        )


@lru_cache(maxsize=1 << 17)
def tie_bands(sums: tuple[int, int], factor: int, shift: int, outputs: tuple[int, int]) -> Bands:
    """Return flags (`Bands`): some scaled sum is so near a tie that float32 rounds it there, or at that limit.

    A tie is the middle between two integers. The products are the integers from ``sums[0]`` to ``sums[1]`` times
    ``factor / 2**shift``. All ties between two integers from ``outputs[0]`` to ``outputs[1]`` are examined.
    """
    lowest, highest = sums
    if max(-lowest, highest) * factor <= 1 << SIGNIFICAND_BITS or shift < 1:
        return Bands()  # float32 holds every product
    beside = above = below = False
    for upper in range(outputs[0] + 1, outputs[1] + 1):
        tie = (2 * upper - 1) << (shift - 1)
        half_step_bit = shift + abs(2 * upper - 1).bit_length() - 2 - SIGNIFICAND_BITS
        if half_step_bit < 0:
            continue
        if upper % 2:
            total, end = tie // factor + 1, tie + (1 << half_step_bit)
            inside, ends = total * factor <= end, end // factor
        else:
            total, end = -(-tie // factor) - 1, tie - (1 << half_step_bit)
            inside, ends = total * factor >= end, -(-end // factor)
        beside |= inside and lowest <= total <= highest
        if ends * factor == end and lowest <= ends <= highest:
            above |= bool(upper % 2)
            below |= not upper % 2
    return Bands(beside=beside, above=above, below=below)


def signed_bits(*values: int) -> int:
    """Return the smallest two's complement width, in bits, that represents all ``values``."""
    return max((value if value >= 0 else ~value).bit_length() for value in values) + 1
