"""From accumulators to the next layer's values: bias, scale, zero point, saturation.

The product is exact, so it may be rearranged freely as long as every output stays the same. Before there is
any hardware the configuration looks for the cheapest arrangement (`RequantiseConfig.recipe`):

- Channels with different shifts get one common shift: what a shift lacks goes into the significand while the
  multiplier has bits to spare, and only the rest into a barrel shifter.
- Accumulators that saturate anyway are clamped before the multiplier where that saves a DSP slice.
- Rounding is "add a half and cut". The correction that makes ties even is built only if a tie can occur between
  the two bounds; with a significand of many odd digits none can.
- The half and the zero point come in through the C port of the first DSP slice.

Where DSP slices are scarcer than LUTs the product may be made of these instead (``products_in``): two bits of the
factor choose a row each, and a tree of registered adders joins the rows, with the half and the zero point among them.

Outputs of 8 bits are rounded twice, as ONNX Runtime does it: to float32, then to an integer. The product need not be
rounded for that. Between ``n`` and ``n + 1`` float32 has steps of ``2**(e - 23)``, with ``e = floor(log2(n + 1/2))``,
and ``n + 1/2`` is one of them, so that a product within half a step of it becomes the tie ``n + 1/2``, the ends of that
band included: there the second significand that float32 has to choose from is odd. (Below 1/2 steps are half as wide,
but what lies there gives 0 either way.) So only products next to ties need a correction, to the even neighbour. What
float32 does to sums of ``2**24`` and more is done before the multiplier. Both are built only if some sum asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from itertools import count, repeat
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import memory, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import (
    Cost,
    Resources,
    constant_adder_luts,
    counter_bits,
    mux_luts,
    trailing_zeros,
    varying_columns,
)
from hwgen.gateware.lookup import bits_for_range, delayed, place, rom_attributes
from hwgen.gateware.ports import read_port
from hwgen.gateware.stream import channels_layout, pipeline_ports

#: Bits of a significand: those of a float32.
SIGNIFICAND_BITS = 24
#: A DSP48E1 multiplies 25 by 18 bits, both signed, adds 48, and hands its sum on shifted right by 17.
WIDE_PORT, NARROW_PORT, SUM_BITS = 25, 18, 48
PIECE = NARROW_PORT - 1
#: LUTs of a lane for products next to ties: about 9 find them, 8 add what is due.
_BESIDE_TIES = 17


@lru_cache(maxsize=1 << 17)
def _ends(
    sums: tuple[int, int], significand: int, shift: int, outputs: tuple[int, int], float32: bool
) -> tuple[int, int]:
    """The part of ``sums`` whose scaled values lie between ``outputs``, and one more at each end where there is one.

    Kept, as planning makes many configurations of the same layer.
    """

    def scaled(total: int) -> int:
        return scale_sum(total, significand, shift, float32)

    every = range(sums[0], sums[1] + 1)
    first = every[max(bisect_right(every, outputs[0], key=scaled) - 1, 0)]
    last = every[min(bisect_left(every, outputs[1], key=scaled), len(every) - 1)]
    return min(first, last), max(first, last)


def round_half_even(value: int, shift: int) -> int:
    """``value / 2**shift`` to the nearest integer, ties to even."""
    if shift <= 0:
        return value << -shift
    result = (value + (1 << (shift - 1))) >> shift
    tie = value % (1 << shift) == 1 << (shift - 1)
    return result & ~1 if tie else result


def to_float32(value: int) -> int:
    """``value`` rounded to 24 significant bits, ties to even."""
    excess = max(0, abs(value).bit_length() - SIGNIFICAND_BITS)
    return round_half_even(value, excess) << excess


def scale_sum(total: int, significand: int, shift: int, float32: bool) -> int:
    """``total * significand / 2**shift`` to the nearest integer, ties to even.

    With ``float32`` the sum and the product are rounded to 24 significant bits before.
    """
    product = to_float32(to_float32(total) * significand) if float32 else total * significand
    return round_half_even(product, shift)


@dataclass(frozen=True, kw_only=True)
class _Bands:
    """Which products next to ties there are.

    ``beside`` a tie, where float32 gives another output; and exactly at the end of a band, ``above`` a tie that is
    rounded down or ``below`` one that is rounded up.
    """

    beside: bool = False
    above: bool = False
    below: bool = False

    def __or__(self, other: _Bands) -> _Bands:
        return _Bands(
            beside=self.beside or other.beside, above=self.above or other.above, below=self.below or other.below
        )


@lru_cache(maxsize=1 << 17)
def _bands(sums: tuple[int, int], factor: int, shift: int, outputs: tuple[int, int]) -> _Bands:
    """The products of integers from ``sums[0]`` to ``sums[1]`` with ``factor / 2**shift`` that lie next to ties.

    Ties between two of the integers from ``outputs[0]`` to ``outputs[1]`` are looked at, one after the other.
    """
    least, most = sums
    if max(-least, most) * factor <= 1 << SIGNIFICAND_BITS or shift < 1:
        return _Bands()  # float32 holds every product
    beside = above = below = False
    for upper in range(outputs[0] + 1, outputs[1] + 1):
        tie = (2 * upper - 1) << (shift - 1)
        place = shift + abs(2 * upper - 1).bit_length() - 2 - SIGNIFICAND_BITS
        if place < 0:
            continue
        if upper % 2:
            total, end = tie // factor + 1, tie + (1 << place)
            inside, ends = total * factor <= end, end // factor
        else:
            total, end = -(-tie // factor) - 1, tie - (1 << place)
            inside, ends = total * factor >= end, -(-end // factor)
        beside |= inside and least <= total <= most
        if ends * factor == end and least <= ends <= most:
            above |= bool(upper % 2)
            below |= not upper % 2
    return _Bands(beside=beside, above=above, below=below)


def signed_bits(*values: int) -> int:
    """The narrowest two's complement width that holds all ``values``."""
    return max((value if value >= 0 else ~value).bit_length() for value in values) + 1


@dataclass(frozen=True, kw_only=True)
class ChannelsConfig(ABC):
    """What `AddBiasConfig` and `RequantiseConfig` share: the channels, their beats, and tables of parameters.

    ``tables_in`` says where these lie, in ``lut`` or ``block`` RAM; by the number of beats if not given.
    """

    lanes: int
    accumulator_bits: int
    bias: tuple[int, ...]
    beats: tuple[tuple[int, ...], ...]
    pixels: int = 1
    tables_in: str | None = None

    def __post_init__(self) -> None:
        for name in ("lanes", "accumulator_bits", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.tables_in not in (None, "lut", "block"):
            raise ConfigError(f"tables_in must be 'lut', 'block' or None, not {self.tables_in!r}")
        if not self.beats:
            raise ConfigError(f"beats must not be empty, not {self.beats!r}")
        if not all(1 <= len(beat) <= self.lanes for beat in self.beats):
            raise ConfigError(f"beats must carry between 1 and {self.lanes} channels each, not {self.beats!r}")
        if sorted(channel for beat in self.beats for channel in beat) != list(range(self.channels)):
            raise ConfigError(
                f"beats must carry each of the {self.channels} channels that have a bias once, not {self.beats!r}"
            )

    @property
    def channels(self) -> int:
        return len(self.bias)

    @property
    def accumulator(self) -> Shape:
        return signed(self.accumulator_bits)

    @property
    @abstractmethod
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        """By parameter and lane: the value in each beat."""

    def table(self, values: Sequence[int]) -> list[tuple[int, ...]]:
        """``values`` by channel, rearranged by lane and beat. A lane a beat leaves out repeats another value."""
        lanes = []
        for lane in range(self.lanes):
            column = [values[beat[lane]] if lane < len(beat) else None for beat in self.beats]
            filler = next((value for value in column if value is not None), 0)
            lanes.append(tuple(filler if value is None else value for value in column))
        return lanes

    @property
    def present(self) -> list[tuple[int, ...]]:
        """By lane: whether each beat carries a channel there."""
        return [tuple(int(lane < len(beat)) for beat in self.beats) for lane in range(self.lanes)]

    @property
    def tables_in_block_ram(self) -> bool:
        """Whether the tables lie in block RAM, behind whose output registers their values come a cycle later."""
        return (self.tables_in or place(len(self.beats))) == "block"

    @property
    def memory_bits(self) -> int:
        """Bits of the tables; those that hold one value only are constants and take none."""
        return sum(
            len(column) * _shape(column).width
            for table in self.tables.values()
            for column in table
            if len(set(column)) > 1
        )

    def _count_table(self, cost: Cost, name: str) -> bool:
        """A table of parameters: its memory. Returns whether it has one."""
        varying = [column for column in self.tables[name] if len(set(column)) > 1]
        columns: list[int] = []
        for values in () if self.tables_in_block_ram else varying:
            width = _shape(values).width
            columns += varying_columns([value % (1 << width) for value in values], width)
        if varying:
            width = sum(_shape(values).width for values in varying)
            cost.rom(columns, len(self.beats), width, block=self.tables_in_block_ram)
        return bool(varying)


@dataclass(frozen=True, kw_only=True)
class AddBiasConfig(ChannelsConfig):
    """Accumulator plus bias, for layers whose accumulators leave as they are (ConvInteger).

    Parameters
    ----------
    lanes : int
        Channels a beat.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : tuple of int
        By channel, the input's zero point folded in.
    beats : tuple of tuple of int
        The channels each beat of a pixel carries, lowest lane first.
    pixels : int
        Neighbouring pixels a beat; a channel's values for all of them lie side by side.
    bits : int
        Width of the output, signed. The sum wraps, as ONNX's int32 does.

    Raises
    ------
    ConfigError
        If a width is not positive or the beats don't carry every channel once.
    """

    bits: int = 32

    #: DSP slices.
    multipliers = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")

    @property
    def output(self) -> Shape:
        return signed(self.bits)

    @property
    def latency(self) -> int:
        """Cycles from a beat to its sum."""
        return 2 + self.tables_in_block_ram

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        return {"bias": self.table(self.bias), "present": self.present}

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        sums = self.lanes * self.pixels
        beat = counter_bits(len(self.beats))
        # Bits of an output above the sum's are its sign, once.
        total = max(signed_bits(*self.bias), self.accumulator_bits) + 1
        cost.ff += beat + self.latency + sums * (self.accumulator_bits + min(total, self.bits))
        cost.ff += sums * self.accumulator_bits * self.tables_in_block_ram
        cost.lut += beat + sums * self.accumulator_bits
        for name in ("bias", "present"):
            self._count_table(cost, name)
        return cost.resources

    def component(self) -> AddBias:
        return AddBias(self)


@dataclass(frozen=True)
class _Addend:
    """An addend of a product with a constant: how it is made, its lowest place and its width (0: the offset).

    ``luts`` make it of its ``terms``, each of which begins so many bits above it.
    """

    made: tuple[Any, ...]
    place: int
    width: int
    luts: int = 0
    terms: tuple[tuple[_Addend, int], ...] = ()

    def need(self, first: int, needed: dict[tuple[Any, ...], tuple[_Addend, int]]) -> None:
        """Note the first bits that are needed of this addend, if it is from ``first`` on, and of what it is made of."""
        if self.made in needed and needed[self.made][1] <= first:
            return
        needed[self.made] = self, first
        begin = max(above for _, above in self.terms) if self.terms else 0
        for term, above in self.terms:
            # A carry chain begins where the upper term does; the bits below pass by.
            term.need(max(min(first, begin) - above, 0), needed)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a requantiser computes ``(acc + bias) * scale``: ``clamp((acc + bias) << left) * factor / 2**shift``.

    ``left`` and ``factor`` are by channel. ``pieces`` DSP slices multiply; with ``split_factor`` each takes
    17 bits of the factor, otherwise 17 bits of the clamped sum. With no piece every factor is 0 or 1.
    ``operand_bits`` is the clamped sum's signed width; ``clamp`` tells whether it is clamped at all.
    """

    shift: int
    left: tuple[int, ...]
    factor: tuple[int, ...]
    pieces: int
    split_factor: bool
    clamp: bool
    operand_bits: int


@dataclass(frozen=True, kw_only=True)
class RequantiseConfig(ChannelsConfig):
    """``clip(round_half_even((acc + bias) * significand / 2**shift) + zero_point, low, high)``, by channel.

    With ``float32`` both the sum and its product are first rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    lanes : int
        Channels a beat.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : tuple of int
        By channel, the input's zero point folded in.
    significand : tuple of int
        By channel, from 1 to ``2**24 - 1``.
    shift : tuple of int
        By channel, 0 or more.
    zero_point, low, high : int
        Of the output; ``low`` and ``high`` within its type.
    bits, signed : int, bool
        Shape of an output.
    float32 : bool
        Whether to round to float32 on the way. An output has at most 8 bits then.
    products_in : str
        What multiplies: ``dsp`` slices, or ``lut``.
    fraction : int
        Bits of the bias below an accumulator's lowest one: the sum is ``(acc << fraction) + bias``.
    beats : tuple of tuple of int
        The channels each beat of a pixel carries, lowest lane first.
    pixels : int
        Neighbouring pixels a beat; a channel's values for all of them lie side by side.

    Raises
    ------
    ConfigError
        If a number is out of range, or the tuples don't fit each other.
    """

    significand: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool
    float32: bool = False
    products_in: str = "dsp"
    fraction: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
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
        least, most = self._bounds
        for name in ("zero_point", "low", "high"):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be between {least} and {most}, not {getattr(self, name)!r}")
        if self.low > self.high:
            raise ConfigError(f"low must be at most high ({self.high}), not {self.low!r}")

    @property
    def output(self) -> Shape:
        return Shape(self.bits, self.signed)

    @property
    def _bounds(self) -> tuple[int, int]:
        least = -(1 << (self.bits - 1)) if self.signed else 0
        return least, least + (1 << self.bits) - 1

    def compute(self, channel: int, accumulator: int) -> int:
        """The output for one accumulator, as defined (the hardware is arranged otherwise)."""
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], self.float32)
        return min(max(scaled + self.zero_point, self.low), self.high)

    # What matters of each channel.

    def _sums(self, channel: int) -> tuple[int, int]:
        """Least and greatest accumulator + bias."""
        half = 1 << (self.accumulator_bits - 1)
        return self.bias[channel] - (half << self.fraction), self.bias[channel] + ((half - 1) << self.fraction)

    @property
    def outputs(self) -> tuple[int, int]:
        """The bounds, counted from the zero point."""
        return self.low - self.zero_point, self.high - self.zero_point

    @cached_property
    def _useful_sums(self) -> tuple[tuple[int, int], ...]:
        """By channel: the sums between which the output still changes; any sum beyond may be clamped to them."""
        sums = map(self._sums, range(self.channels))
        return tuple(map(_ends, sums, self.significand, self.shift, repeat(self.outputs), repeat(self.float32)))

    @cached_property
    def rounded_bits(self) -> int:
        """How many bits more than 24 a sum has for which it matters that float32 rounds it; 0 if none has."""
        if not self.float32:
            return 0
        most = max(abs(end) for ends in self._useful_sums for end in ends)
        return max(0, (most - 1).bit_length() - SIGNIFICAND_BITS)

    def _round(self, total: int) -> int:
        """A sum as it meets the multiplier."""
        excess = min(self.rounded_bits, max(0, abs(total).bit_length() - SIGNIFICAND_BITS))
        return round_half_even(total, excess) << excess

    @cached_property
    def _operands(self) -> tuple[tuple[int, int], ...]:
        """By channel: least and greatest sum that meets the multiplier."""
        sums = map(self._sums, range(self.channels))
        return tuple((self._round(least), self._round(most)) for least, most in sums)

    @cached_property
    def _useful(self) -> tuple[tuple[int, int], ...]:
        """`_useful_sums` as they meet the multiplier."""
        return tuple((self._round(least), self._round(most)) for least, most in self._useful_sums)

    @cached_property
    def _scales(self) -> tuple[tuple[int, int], ...]:
        """By channel: an odd factor and a shift (which may be negative), or (0, 0) if every product rounds to 0."""
        scales = []
        for channel, (factor, shift) in enumerate(zip(self.significand, self.shift, strict=True)):
            greatest = max(abs(total) for total in self._operands[channel])
            if 2 * greatest * factor <= 1 << shift:
                scales.append((0, 0))
            elif factor > 1 << (shift + self.bits + 1):  # any sum but 0 saturates
                scales.append((1, -self.bits - 1))
            else:
                zeros = (factor & -factor).bit_length() - 1
                scales.append((factor >> zeros, shift - zeros))
        return tuple(scales)

    @cached_property
    def ties(self) -> bool:
        """Whether some sum lies exactly between two outputs."""
        for (factor, shift), (least, most) in zip(self._scales, self._useful, strict=True):
            if factor and shift > 0:
                # An odd factor keeps the trailing zeros: odd multiples of half a step, and no others.
                half = 1 << (shift - 1)
                first = -(-least // half)
                if (first | 1) * half <= most:
                    return True
        return False

    @cached_property
    def bands(self) -> _Bands:
        """Which products of all channels lie next to ties, where float32 takes them for ties."""
        found = _Bands()
        if self.float32:
            for (factor, shift), operands in zip(self._scales, self._operands, strict=True):
                found |= _bands(operands, factor, shift, self.outputs)
        return found

    @property
    def beside_ties(self) -> bool:
        """Whether products next to ties are corrected: those of some sum give another output in float32."""
        return self.bands.beside

    @cached_property
    def recipe(self) -> Recipe:
        """The arrangement with the fewest DSP slices, then the least shifting, then no clamp, then whole operands.

        A slice that multiplies the whole sum adds the bias in its pre-adder. Of LUTs the narrowest operands are best,
        which a clamp is worth that saves more than a bit.
        """
        if self.products_in == "lut" and not (recipes := list(self._recipes(0))):
            recipes = self._recipes(1, in_slices=False)
            return min(recipes, key=lambda recipe: (max(recipe.left), recipe.operand_bits + 2 * recipe.clamp))
        for pieces in count():
            recipes = list(self._recipes(pieces))
            if recipes:
                return min(recipes, key=lambda recipe: (max(recipe.left), recipe.clamp, not recipe.split_factor))
        raise AssertionError("unreachable")

    def _recipes(self, pieces: int, *, in_slices: bool = True) -> Iterator[Recipe]:
        common = max(1, *(shift for factor, shift in self._scales if factor), 1)
        missing = [common - shift if factor else 0 for factor, shift in self._scales]
        # Which operand is cut into pieces; the other must fit the wide port.
        geometries = [
            (False, SIGNIFICAND_BITS, pieces * PIECE + 1),
            (True, pieces * PIECE, WIDE_PORT),
        ]
        if pieces == 0 or not in_slices:
            geometries = [(False, SIGNIFICAND_BITS if pieces else 1, None)]
        for split_factor, factor_bits, most_bits in geometries:
            spare = [factor_bits - factor.bit_length() for factor, _ in self._scales]
            if min(spare) < 0:
                continue
            into = [min(pair) for pair in zip(missing, spare, strict=True)]
            left = [all_ - part for all_, part in zip(missing, into, strict=True)]
            factors = [factor << part for (factor, _), part in zip(self._scales, into, strict=True)]
            for clamp in (False, True):
                ends = self._useful if clamp else self._operands
                bits = max(
                    signed_bits(least << shift, most << shift) for (least, most), shift in zip(ends, left, strict=True)
                )
                if most_bits is None or bits <= most_bits:
                    yield Recipe(
                        shift=common,
                        left=tuple(left),
                        factor=tuple(factors),
                        pieces=pieces,
                        split_factor=split_factor,
                        clamp=clamp,
                        operand_bits=bits,
                    )

    # The arithmetic after the multiplier.

    @property
    def aligned_bits(self) -> int:
        """``k > 0`` if an output is ``k`` bits counted from ``low`` and the rest of it is constant; 0 if not."""
        bits = (self.high - self.low).bit_length()
        full = self.high - self.low == (1 << bits) - 1
        return bits if full and (bits == self.bits or self.low % (1 << bits) == 0) else 0

    @property
    def zero(self) -> int:
        """The zero point, counted from ``low`` if that is aligned."""
        return self.zero_point - (self.low if self.aligned_bits else 0)

    @property
    def ties_down(self) -> bool:
        """Ties are first rounded down and then, if odd, up; otherwise the other way round.

        Either way the correction of exact ties writes the lowest bit alone: to 1 where an odd zero point is counted
        in, to 0 where it is even. Where products beside ties are corrected, too, this moves the ends of the bands by
        one place: the ones above ties become products that need no comparison of all their bits.
        """
        if self.beside_ties:
            return self.bands.above and not self.bands.below
        return self.ties and self.zero % 2 == 1

    @cached_property
    def offset(self) -> int:
        """Half a step and the zero point, in the scale of the product; no zero point if that is added later."""
        zero = 0 if self.beside_ties else self.zero
        return ((2 * zero + 1) << (self.recipe.shift - 1)) - self.ties_down

    @property
    def whole_bits(self) -> int:
        """Width of a rounded product before products beside ties are corrected, signed; larger ones saturate."""
        least, most = self.outputs
        return signed_bits(least - 1, most + 1)

    @property
    def offset_place(self) -> str:
        """Where the offset is added: in the "bias", the "slice", or "late" (in fabric, after the product)."""
        recipe = self.recipe
        if recipe.pieces == 0:
            return "late" if any(recipe.left) or 0 in recipe.factor or self.rounded_bits else "bias"
        return "slice" if signed_bits(self.offset) < SUM_BITS else "late"

    @cached_property
    def product_bits(self) -> int:
        """Width of the product, with and without the offset, signed."""
        recipe = self.recipe
        half = 1 << (recipe.operand_bits - 1)
        products = []
        for channel, (left, factor) in enumerate(zip(recipe.left, recipe.factor, strict=True)):
            least, most = self._operands[channel]
            products.append(max(least << left, -half) * factor)
            products.append(min(most << left, half - 1) * factor)
        return signed_bits(min(products) + self.offset, max(products) + self.offset, *products)

    @property
    def sum_bits(self) -> int:
        """Width of accumulator + bias, signed."""
        early = self.offset if self.offset_place == "bias" else 0
        return signed_bits(*(end + early for channel in range(self.channels) for end in self._sums(channel)))

    @property
    def rounded_sum_bits(self) -> int:
        """Width of accumulator + bias after float32 has rounded it, signed."""
        return signed_bits(*(end for pair in self._operands for end in pair)) if self.rounded_bits else self.sum_bits

    @cached_property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        recipe = self.recipe
        early = self.offset if self.offset_place == "bias" else 0
        tables = {
            "bias": self.table([bias + early for bias in self.bias]),
            "left": self.table(recipe.left),
            "present": self.present,
        }
        if recipe.split_factor:
            for piece in range(recipe.pieces):
                tables[f"factor_{piece}"] = self.table(
                    [(factor >> (piece * PIECE)) % (1 << PIECE) for factor in recipe.factor]
                )
        else:
            tables["factor"] = self.table(recipe.factor)
        return tables

    # Cost.

    @property
    def latency(self) -> int:
        """Cycles from a beat to its outputs."""
        recipe, multiply = self.recipe, self.product_cycles
        early = 2 + self.tables_in_block_ram + 2 * (self.rounded_bits > 0) + any(recipe.left) + recipe.clamp
        return early + multiply + (self.offset_place == "late") + self.beside_ties + 1

    @property
    def in_slices(self) -> bool:
        """Whether DSP slices multiply."""
        return self.recipe.pieces > 0 and self.products_in == "dsp"

    @property
    def rows(self) -> int:
        """Rows that a product in LUTs is added up of, one for two bits of the factor."""
        return -(-max(self.recipe.factor).bit_length() // 2)

    @property
    def product_cycles(self) -> int:
        """Cycles from an operand to its product."""
        if self.in_slices or not self.recipe.pieces:
            return self.recipe.pieces + (self.recipe.pieces > 0)
        return 1 + len(self.row_tree)

    @property
    def multipliers(self) -> int:
        """DSP slices, as Yosys counts them: wiring and tiny products take none."""
        if not self.in_slices:
            return 0
        recipe = self.recipe
        total = 0
        for piece in range(recipe.pieces):
            top = piece == recipe.pieces - 1
            bits = recipe.operand_bits if recipe.split_factor else recipe.operand_bits - piece * PIECE if top else PIECE
            table = self.tables[f"factor_{piece}" if recipe.split_factor else "factor"]
            total += sum(_takes_slice(bits, column) for column in table)
        return total * self.pixels

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(dsp=self.multipliers)
        recipe = self.recipe
        sums = self.lanes * self.pixels
        # Beats are counted where something depends on them.
        varies = any(len(set(column)) > 1 for table in self.tables.values() for column in table)
        beat = counter_bits(len(self.beats)) * varies
        cost.ff += beat + self.latency
        cost.lut += beat
        late = self.tables_in_block_ram
        cycle, latest = self._count_operands(cost)
        if recipe.split_factor and recipe.pieces:
            for piece in range(recipe.pieces):
                if self._count_table(cost, f"factor_{piece}"):
                    latest = max(latest, cycle + piece)
        elif self._count_table(cost, "factor"):
            latest = max(latest, cycle)
            cost.lut += sums * recipe.operand_bits * (not recipe.pieces)
        if recipe.pieces and not self.in_slices:
            self._count_rows(cost)
        cycle += self.product_cycles
        for piece in range(recipe.pieces - 1):
            low = min(PIECE, max(0, (piece + 1) * PIECE - self._unused_bits))
            cost.delay(sums * low, recipe.pieces - 1 - piece)
        if self.offset_place == "late":
            # Bits below the half that is added pass by; without ties they are not looked at any more.
            cost.ff += sums * (self.product_bits - self._unused_bits)
            cost.lut += sums * constant_adder_luts(self.offset, self.product_bits)
            cycle += 1
        if self.beside_ties:
            # The whole number, what is due and what saturates; the comparison, and an adder for what is due.
            cost.ff += sums * (self.whole_bits + 1 + (self.low < self.zero_point))
            cost.lut += sums * _BESIDE_TIES
            cycle += 1
        if self._count_table(cost, "present"):
            latest = max(latest, cycle)
        cost.ff += beat * (latest - 1 - late)
        bits = (self.high - self.low).bit_length()
        cost.ff += sums * bits
        # A LUT for each bit looks at the bit, the sign, and up to three bits above; more of them take one of their own.
        cost.lut += sums * (bits + (self.product_bits - recipe.shift - bits > 4))
        return cost.resources

    def component(self) -> Requantise:
        return Requantise(self)

    def _count_rows(self, cost: Cost) -> None:
        """Count products in LUTs: rows, and the trees that add them up; of a constant factor what differs of them."""
        bits, unused = self.recipe.operand_bits, self._unused_bits
        registers = sum(width for level in self.row_tree for width in self._row_registers(level))
        # The lowest bits of a product pass by, and where nothing looks at them they are none.
        registers -= sum(min(unused, 2 << level) for level in range(len(self.row_tree) + 1))
        luts_saved, registers_saved = self._offset_saved
        registers -= registers_saved
        adders = sum(max(added - 1, 0) for level in self.row_tree for *_, added in level) - luts_saved
        for column in self.tables["factor"]:
            if len(set(column)) == 1:
                luts, constant_registers = self._constant_rows(column[0])
                cost.ff += self.pixels * constant_registers
                cost.lut += self.pixels * luts
            else:
                cost.ff += self.pixels * (self.rows * (bits + 2) + registers)
                cost.lut += self.pixels * (self._row_luts(column) + adders)

    def _row_luts(self, factors: Sequence[int]) -> int:
        """Return the LUTs of all rows of a factor that varies: carry chains, and operands that a bit of it gates.

        A chain adds the operand gated by the row's lower bit to twice the one gated by the upper bit, which its LUTs
        gate themselves. Synthesis makes one of equal chains, and of operands gated by bits that are always equal.
        """
        bits, none, every = self.recipe.operand_bits, 0, (1 << len(factors)) - 1
        columns = [
            sum((factor >> place & 1) << number for number, factor in enumerate(factors))
            for place in range(2 * self.rows)
        ]
        gated, chains = set(), set()
        for low, high in zip(columns[::2], columns[1::2], strict=True):
            if none in (low, high):
                gated.add(low or high)
            else:
                gated.add(low)
                chains.add((low, high))
        # The lowest bit of a chain is the gated operand itself, and the highest one has a LUT for its sign.
        varying = sum(every not in chain for chain in chains)
        return bits * (len(gated - {none, every}) + len(chains)) + varying

    @property
    def _offset_saved(self) -> tuple[int, int]:
        """LUTs and registers that a row tree does not take, as the offset that comes in is constant."""
        if self.offset_place != "slice":
            return 0, 0
        # It waits, as the last of an odd number of addends, until it has a partner.
        count, level = self.rows + 1, 0
        while count % 2:
            count, level = (count + 1) // 2, level + 1
        low, width, added = self.row_tree[level][-1]
        place = low + width - added
        luts = added - 1 - constant_adder_luts(self.offset >> place, added)
        # The sum has its lowest bits of the offset, which are 0, and the next adder begins above them.
        zeros, count, waits = min(place, trailing_zeros(self.offset)), count // 2, 1
        while count > 1 and count % 2:
            count, waits = (count + 1) // 2, waits + 1
        return luts + zeros * (count > 1), zeros * waits

    def _constant_rows(self, factor: int) -> tuple[int, int]:
        """Return the LUTs and registers of a product with a constant.

        Rows that are 0 are none. Synthesis makes one of equal rows and of equal sums on a level of the tree, wherever
        they begin: an addend is known by how it is made, and by the place where it begins.
        """
        bits = self.recipe.operand_bits
        addends: list[_Addend | None] = []
        for row in range(self.rows):
            pair = factor >> 2 * row & 3
            place, triple = 2 * row + (pair == 2), pair == 3
            addends.append(_Addend(("row", triple), place, bits + 2 * triple, luts=bits * triple) if pair else None)
        if self.offset_place == "slice":
            addends.append(_Addend(("offset",), 0, 0))
        while len(addends) > 1:
            pairs = [(*addends[first : first + 2], None)[:2] for first in range(0, len(addends), 2)]
            addends = [self._constant_sum(*pair) for pair in pairs]
        (last,) = addends
        assert last is not None
        needed: dict[tuple[Any, ...], tuple[_Addend, int]] = {}
        last.need(max(0, self._unused_bits - last.place), needed)
        luts = sum(addend.luts for addend, _ in needed.values())
        return luts, sum(addend.width - first for addend, first in needed.values())

    def _constant_sum(self, lower: _Addend | None, upper: _Addend | None) -> _Addend | None:
        """Return what two addends, either of which may be 0, become in a level of the tree."""
        if lower is None or upper is None:
            one = lower or upper
            return one and (replace(one, made=("wait", one.made), luts=0, terms=((one, 0),)) if one.width else one)
        if not upper.width:  # the offset
            top = min(lower.place + lower.width + 1, self.product_bits)
            luts = constant_adder_luts(self.offset >> lower.place, top - lower.place)
            place = min(lower.place, trailing_zeros(self.offset))
            made, terms = ("offset", lower.made, lower.place), ((lower, lower.place - place),)
            return _Addend(made, place, top - place, luts=luts, terms=terms)
        if lower.place > upper.place:
            lower, upper = upper, lower
        most = max(lower.place + lower.width, upper.place + upper.width)
        top, apart = min(most + 1, self.product_bits), upper.place - lower.place
        return _Addend(
            ("sum", lower.made, upper.made, apart),
            lower.place,
            top - lower.place,
            luts=min(most, top) - upper.place,  # both signs are above that: one LUT tells the last two bits
            terms=((lower, 0), (upper, apart)),
        )

    @staticmethod
    def _row_registers(level: Sequence[tuple[int, int, int]]) -> Iterator[int]:
        """Registers of a level of the tree; the offset has none as long as it waits for a row."""
        for number, (low, width, added) in enumerate(level):
            yield width if added or low or not number else 0

    @cached_property
    def row_tree(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """By level of the tree, its sums: place of the lowest bit, width, and bits of the adder; 0 where there is none.

        Rows begin two places apart; the offset, if it comes in here, is the last addend.
        """
        addends = [(2 * row, self.recipe.operand_bits + 2) for row in range(self.rows)]
        if self.offset_place == "slice":
            addends.append((0, signed_bits(self.offset)))
        levels = []
        while len(addends) > 1:
            level = []
            for number in range(0, len(addends), 2):
                pair = addends[number : number + 2]
                low, high = min(place for place, _ in pair), max(place for place, _ in pair)
                top = min(max(place + width for place, width in pair) + len(pair) - 1, self.product_bits)
                level.append((low, top - low, (top - high) * (len(pair) - 1)))
            addends = [(place, width) for place, width, _ in level]
            levels.append(tuple(level))
        return tuple(levels)

    def _count_operands(self, cost: Cost) -> tuple[int, int]:
        """From accumulators to what meets the multiplier, which takes the last register into its slice.

        Returns the cycle in which the factor is read, and the last one in which another table is.
        """
        recipe = self.recipe
        sums = self.lanes * self.pixels
        moves, rounds, in_slice = any(recipe.left), self.rounded_bits > 0, self.in_slices
        late = self.tables_in_block_ram
        cycle, latest = 2 + late, 1 + late
        # Each slice of a split factor adds the bias in its pre-adder.
        pre_adders = in_slice and recipe.split_factor and not (moves or recipe.clamp or rounds)
        if self._count_table(cost, "bias") and pre_adders and late:
            cost.ff += sums * signed_bits(*self.bias) * (recipe.pieces - 1)
        # Sums wait for their bias; a slice takes but the last register.
        cost.ff += sums * self.accumulator_bits * late
        if pre_adders:
            return cycle, latest
        cost.ff += sums * self.accumulator_bits
        for column in self.tables["bias"]:
            bits = self.sum_bits - self.fraction - 1  # the sign takes the last carry
            constant = len(set(column)) == 1
            cost.lut += self.pixels * (constant_adder_luts(column[0] >> self.fraction, bits) if constant else bits)
        last = "clamp" if recipe.clamp else "shift" if moves else "rounded" if rounds else "sum"
        if not (in_slice and last == "sum"):
            cost.ff += sums * self.sum_bits
        if rounds:
            # Which bits go, and then they do; beside them the sum waits for a cycle.
            cost.ff += sums * (self.rounded_bits + 1 + self.sum_bits)
            cost.lut += sums * (3 * self.rounded_bits + self.rounded_sum_bits)
            if not (in_slice and last == "rounded"):
                cost.ff += sums * self.rounded_sum_bits
            cycle += 2
        if moves:
            bits = self.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
            if self._count_table(cost, "left"):
                latest = cycle
            if not (in_slice and last == "shift"):
                cost.ff += sums * bits
            cost.lut += sums * bits * mux_luts(len(set(recipe.left)))
            cycle += 1
        if recipe.clamp:
            if not in_slice:
                cost.ff += sums * recipe.operand_bits
            cost.lut += sums * recipe.operand_bits
            cycle += 1
        return cycle, latest

    @property
    def _unused_bits(self) -> int:
        """Bits of the product, from the lowest one, at which nothing looks."""
        if self.beside_ties:
            ends = self.bands.above and self.bands.below
            return 0 if ends else max(0, self.recipe.shift - SIGNIFICAND_BITS - 1)
        return 0 if self.ties else self.recipe.shift


def _takes_slice(operand_bits: int, factors: Sequence[int]) -> bool:
    """Whether a product with one of ``factors`` is worth a DSP slice: Yosys leaves 1 x n bits and less than 9 bits."""
    bits = max(factors).bit_length()
    if len(set(factors)) == 1 and bits:
        bits -= (factors[0] & -factors[0]).bit_length() - 1  # a constant's zeros at the end are wiring
    return bits > 1 and operand_bits + bits > 8


def _pack(fields: Sequence[tuple[int, int]]) -> int:
    """One word of (value, width) fields, the first in the lowest bits."""
    word = start = 0
    for value, width in fields:
        word |= value % (1 << width) << start
        start += width
    return word


def _shape(values: Sequence[int]) -> Shape:
    return bits_for_range(min(values), max(values))


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """A rounded product in registers: ``whole + round_up``. It saturates if ``is_beyond``: ``whole`` is too narrow."""

    whole: Value
    round_up: Value
    negative: Value
    is_beyond: Value


class Beats:
    """The valid bit and the number of the beat, at any cycle after the input, and the tables read with it."""

    def __init__(self, m: Module, config: ChannelsConfig, valid: Value):
        self._m, self._config = m, config
        self._valid = [valid]
        last = len(config.beats) - 1
        number = Signal(range(last + 1), name="beat_index")
        with m.If(valid):
            m.d.sync += number.eq(Mux(number == last, 0, number + 1))
        self._numbers: list[Value] = [number]

    def valid(self, cycle: int) -> Value:
        for stage in range(len(self._valid), cycle + 1):
            self._valid.append(delayed(self._m, f"valid_{stage}", self._valid[-1], 1, reset_less=False))
        return self._valid[cycle]

    def number(self, cycle: int) -> Value:
        """The number of the beat that came ``cycle`` cycles ago."""
        for stage in range(len(self._numbers), cycle + 1):
            self._numbers.append(delayed(self._m, f"beat_index_{stage}", self._numbers[-1], 1))
        return self._numbers[cycle]

    def read(self, name: str, cycle: int) -> list[Value]:
        """By value of a beat: the parameter for the beat that is ``cycle`` cycles behind the input.

        From 1 on; from 2 on where tables lie in block RAM, which is too slow for what follows and is read into its
        output registers.
        """
        m, table = self._m, self._config.tables[name]
        varying = [lane for lane, column in enumerate(table) if len(set(column)) > 1]
        values: list[Value] = [Const(column[0], _shape(column)) for column in table]
        if not varying:
            return self._by_pixel(values)
        late = int(self._config.tables_in_block_ram)
        words = [
            _pack([(table[lane][beat], _shape(table[lane]).width) for lane in varying]) for beat in range(len(table[0]))
        ]
        width = sum(_shape(table[lane]).width for lane in varying)
        m.submodules[name] = rom = memory.Memory(
            shape=width, depth=len(words), init=words, attrs=rom_attributes(len(words), self._config.tables_in)
        )
        port = read_port(rom)
        m.d.comb += port.addr.eq(self.number(cycle - late - 1))
        entry = delayed(m, f"{name}_entry", port.data, late)
        start = 0
        for lane in varying:
            shape = _shape(table[lane])
            value = entry[start : start + shape.width]
            values[lane] = value.as_signed() if shape.signed else value
            start += shape.width
        return self._by_pixel(values)

    def _by_pixel(self, values: list[Value]) -> list[Value]:
        """A channel's for each of its pixels."""
        return [value for value in values for _ in range(self._config.pixels)]


def _shifted(value: Value, places: int) -> Value:
    return value.shift_left(places) if places else value


def _values(port: Any) -> list[Value]:
    """All values of a beat, each treated alike: the pixels of a channel side by side, lowest lane first."""
    return [value for channel in port.payload for value in channel]


class AddBias(wiring.Component):
    """Adds each channel's bias to its accumulator.

    Parameters
    ----------
    config : AddBiasConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Their sums; lanes without a channel are 0.

    Latency and throughput
        A beat a cycle; it leaves ``config.latency`` cycles after it came, and never stalls. The first beat after
        reset is a pixel's first.
    """

    def __init__(self, config: AddBiasConfig):
        self._config = config
        shapes = (config.accumulator, config.output)
        super().__init__(pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes)))

    @property
    def config(self) -> AddBiasConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        beats = Beats(m, config, self.i.valid)
        cycle = config.latency - 1
        biases, present = beats.read("bias", cycle), beats.read("present", cycle)
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        for number, (value, output) in enumerate(zip(_values(self.i), _values(self.o), strict=True)):
            accumulator = delayed(m, f"accumulator_{number}", value, cycle)
            total = Signal(config.output, name=f"sum_{number}", reset_less=True)
            m.d.sync += total.eq(Mux(present[number], accumulator + biases[number], 0))
            m.d.comb += output.eq(total)
        return m


class Requantise(wiring.Component):
    """Scales accumulators, rounds to nearest even, adds the zero point, saturates.

    Parameters
    ----------
    config : RequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Their outputs; lanes without a channel are 0.

    Latency and throughput
        A beat a cycle; it leaves ``config.latency`` cycles after it came, and never stalls. The first beat after
        reset is a pixel's first.

    Number range
        Every accumulator of ``accumulator_bits`` bits gives the result that ``config.compute`` defines; nothing
        overflows in between.

    Stages: the accumulator meets its bias (2 cycles, 3 where tables lie in block RAM); it is rounded to 24 bits where
    float32 does that (2), shifted and clamped where the recipe says so (1 each); with ``n`` DSP slices the product
    takes ``n + 1``, of LUTs ``config.product_cycles``; the offset 1 if it is late; products next to ties 1 where they
    are corrected; bounds 1.
    """

    def __init__(self, config: RequantiseConfig):
        self._config = config
        shapes = (config.accumulator, config.output)
        super().__init__(pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes)))

    @property
    def config(self) -> RequantiseConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, recipe = self.config, self.config.recipe
        beats = Beats(m, config, self.i.valid)
        cycle = 1 + config.tables_in_block_ram
        biases = beats.read("bias", cycle)
        accumulators = [delayed(m, f"accumulator_{lane}", value, cycle) for lane, value in enumerate(_values(self.i))]

        def sums(delay: int) -> list[Value]:
            """Accumulators with bias, ``delay`` cycles late. Each delay has adders of its own."""
            late = [
                _shifted(delayed(m, f"accumulator_{lane}_delayed", accumulator, delay), config.fraction)
                + _delayed(m, f"bias_{lane}_delayed", bias, delay)
                for lane, (accumulator, bias) in enumerate(zip(accumulators, biases, strict=True))
            ]
            return self._registers(m, f"sum_{delay}" if delay else "sum", late, signed(config.sum_bits))

        values = sums(0)
        cycle += 1
        if config.rounded_bits:
            values = self._rounded_sums(m, values)
            cycle += 2
        if any(recipe.left):
            lefts = beats.read("left", cycle)
            bits = config.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
            shifted = [value << left for value, left in zip(values, lefts, strict=True)]
            values = self._registers(m, "shifted", shifted, signed(bits))
            cycle += 1
        if recipe.clamp:
            clamped = [_clamp(value, recipe.operand_bits) for value in values]
            values = self._registers(m, "clamped", clamped, signed(recipe.operand_bits))
            cycle += 1
        operands = [values]
        for piece in range(1, recipe.pieces):
            # Yosys 0.66 takes a sum that several slices multiply into the pre-adder of one and leaves the others
            # without, so each slice gets an adder of its own: its pre-adder, which costs nothing.
            own = recipe.split_factor and not (any(recipe.left) or recipe.clamp or config.rounded_bits)
            late = [delayed(m, f"operand_{lane}_{piece}", value, piece) for lane, value in enumerate(values)]
            operands.append(sums(piece) if own else late)
        values = self._multiply(m, beats, operands, cycle)
        cycle += config.product_cycles
        if config.offset_place == "late":
            zeros = (config.offset & -config.offset).bit_length() - 1
            step = config.offset >> zeros
            values = [_extended(value, zeros + 1) for value in values]
            moved = [Cat(value[:zeros], value[zeros:].as_signed() + step).as_signed() for value in values]
            values = self._registers(m, "product_with_offset", moved, signed(config.product_bits))
            cycle += 1
        if config.beside_ties:
            bounded = [self._bound_even(self._to_even(m, lane, value)) for lane, value in enumerate(values)]
            cycle += 1
        else:
            bounded = [self._bound(value) for value in values]
        present = beats.read("present", cycle)
        bounded = [Mux(here, value, 0) for value, here in zip(bounded, present, strict=True)]
        outputs = self._registers(m, "output", bounded, config.output)
        m.d.comb += self.o.valid.eq(beats.valid(cycle + 1))
        m.d.comb += [place.eq(output) for place, output in zip(_values(self.o), outputs, strict=True)]
        return m

    def _registers(self, m: Module, name: str, values: Sequence[Value], shape: Shape) -> list[Value]:
        registers = [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(len(values))]
        m.d.sync += [register.eq(value) for register, value in zip(registers, values, strict=True)]
        return list(registers)

    def _multiply(self, m: Module, beats: Beats, operands: list[list[Value]], cycle: int) -> list[Value]:
        """Products (and the offset, if it comes in here) of operands: by piece, valid ``piece`` cycles after ``cycle``.

        The pieces of a product form a cascade, one cycle apart: each slice adds its piece to the sum before it
        shifted right by 17; the 17 bits shifted out are final.
        """
        config, recipe = self.config, self.config.recipe
        pieces = range(recipe.pieces)
        if recipe.split_factor:
            factors = [beats.read(f"factor_{piece}", cycle + piece) for piece in pieces]
        else:
            factors = [beats.read("factor", cycle)]
        if not pieces:
            masked = 0 in recipe.factor
            return [Mux(f, value, 0) if masked else value for f, value in zip(factors[0], operands[0], strict=True)]
        if not config.in_slices:
            pairs = zip(operands[0], factors[0], strict=True)
            return [self._multiply_in_luts(m, lane, value, factor) for lane, (value, factor) in enumerate(pairs)]

        products = []
        for lane in range(config.lanes * config.pixels):
            total: Value = Const(config.offset if config.offset_place == "slice" else 0)
            done = []
            for piece in pieces:
                top = piece == recipe.pieces - 1
                left = operands[piece][lane]
                if recipe.split_factor:
                    right = factors[piece][lane]
                else:
                    start = piece * PIECE
                    left = left[start:].as_signed() if top else left[start : start + PIECE]
                    right = _delayed(m, f"factor_{lane}_{piece}", factors[0][lane], piece)
                product = delayed(m, f"product_{lane}_{piece}", left * right, 1)
                total = delayed(m, f"partial_product_{lane}_{piece}", product + total, 1)
                if not top:
                    low = _extended(total, PIECE)[:PIECE]
                    done.append(delayed(m, f"product_low_{lane}_{piece}", low, recipe.pieces - 1 - piece))
                    total = total >> PIECE
            products.append(Cat(*done, total)[: config.product_bits].as_signed())
        return products

    def _multiply_in_luts(self, m: Module, lane: int, value: Value, factor: Value) -> Value:
        """The product (and the offset, if it comes in here), added up of rows; ``product_cycles`` later."""
        config = self.config
        addends: list[tuple[int, Value]] = []  # each with the place of its lowest bit
        for row in range(config.rows):
            ones, twos = (Mux(factor[bit : bit + 1], value, 0) for bit in (2 * row, 2 * row + 1))
            total = Signal(signed(len(value) + 2), name=f"row_{lane}_{row}", reset_less=True)
            m.d.sync += total.eq(ones + (twos << 1))
            addends.append((2 * row, total))
        if config.offset_place == "slice":
            addends.append((0, Const(config.offset, signed(signed_bits(config.offset)))))
        for level, joined in enumerate(config.row_tree):
            following = []
            for number, (low, width, _) in enumerate(joined):
                total = _extended(self._add_rows(addends[2 * number : 2 * number + 2]), width)[:width].as_signed()
                if not isinstance(total, Const):
                    # With a reset: what passes by is no shift register, which would be too slow in front of an adder.
                    total = delayed(m, f"row_sum_{lane}_{level}_{number}", total, 1, reset_less=False)
                following.append((low, total))
            addends = following
        ((_, total),) = addends
        return _extended(total, config.product_bits)[: config.product_bits].as_signed()

    @staticmethod
    def _add_rows(pair: list[tuple[int, Value]]) -> Value:
        """The sum of one or two rows; bits below the other row's lowest one pass by."""
        (low, lower), *rest = sorted(pair, key=lambda row: row[0])
        if not rest:
            return lower
        ((high, upper),) = rest
        below = high - low
        lower = _extended(lower, below + 1)
        return Cat(lower[:below], lower[below:].as_signed() + upper).as_signed()

    def _rounded_sums(self, m: Module, values: Sequence[Value]) -> list[Value]:
        """Sums rounded to 24 significant bits, ties to even, as far as `rounded_bits` asks for it; 2 cycles.

        Where ``j`` bits go, half of their range less one is added, and one more if the lowest bit that stays is set.
        """
        config = self.config
        rounded = []
        for lane, value in enumerate(values):
            longer, odd = [], Const(0, 1)
            for j in range(1, config.rounded_bits + 1):  # at least j bits go
                above = value[SIGNIFICAND_BITS + j - 1 :]
                longer.append(above.any() & ~above.all())
                odd = Mux(longer[-1], value[j], odd)
            gone = delayed(m, f"dropped_bits_{lane}", Cat(longer), 1)
            odd = delayed(m, f"lowest_bit_{lane}", odd, 1)
            late = delayed(m, f"sum_{lane}_delayed", value, 1)
            total = (Cat(1, late).as_signed() + Cat(odd, gone[1:]))[1:]
            rounded.append(Cat(total[: len(gone)] & ~gone, total[len(gone) :]).as_signed())
        return self._registers(m, "rounded", rounded, signed(config.rounded_sum_bits))

    def _to_even(self, m: Module, lane: int, value: Value) -> _Rounded:
        """A product with offset, cut; odd ones next to a tie are made even.

        Where the fraction is next to 0 the even neighbour is the one below, where it is next to 1 the one above. Next
        to them means that all its bits from the weight of ``2**(e - 24)`` up are equal. ``2**e`` is the weight of the
        highest bit of the tie's magnitude, ``e = -1`` that of 1/2.
        """
        config, shift = self.config, self.config.recipe.shift
        least, most = config.outputs
        value = _extended(value, shift + config.whole_bits + 1)
        whole, sign = value[shift:], value[-1] if least < 0 else Const(0, 1)

        def fraction(weight: int) -> Value:
            place = shift + weight - SIGNIFICAND_BITS
            # Where ties are rounded down first, a product lies less than its last bit below what it was.
            return value[place] if place >= 0 else Const(config.ties_down, 1)

        up = fraction(SIGNIFICAND_BITS - 1)
        highest = (2 * max(most, -least) - 1).bit_length() - 2
        # The odd product's lowest bit belongs to the tie's magnitude only if the tie lies on the far side of it.
        magnitude = [(whole[weight] if weight else up) ^ sign for weight in range(highest + 1)]
        equal = [fraction(weight) == up for weight in range(-1, SIGNIFICAND_BITS - 1)]
        pairs = list(zip(magnitude, equal, strict=False))
        enough = reduce(or_, _carry(pairs)) if pairs else Const(1)
        near = enough & Cat(equal[len(pairs) :]).all()
        if config.bands.above and config.bands.below:
            near |= self._at_end(magnitude, [fraction(weight) for weight in range(-1, SIGNIFICAND_BITS)], value)
        near &= whole[0]
        low, beyond = whole[: config.whole_bits - 1], whole[config.whole_bits - 1 :]
        parts = {
            "whole": Cat(low[0] & ~(near & ~up), low[1:]),
            "round_up": near & up,
            "negative": sign,
            "is_beyond": beyond.any() & ~beyond.all(),
        }
        if least >= 0:  # what is negative gives the same as 0
            parts = {name: Mux(whole[-1], 0, part) for name, part in parts.items()}
        return _Rounded(**{name: delayed(m, f"{name}_{lane}", part, 1) for name, part in parts.items()})

    def _at_end(self, magnitude: Sequence[Value], bits: Sequence[Value], value: Value) -> Value:
        """Whether the fraction is ``2**(e - 24)``; ``bits`` are its first ones, the last of them the highest."""
        chosen = Const(1)
        wanted: list[Value] = []
        for bit in reversed(magnitude):
            wanted.insert(0, chosen & bit)
            chosen = chosen & ~bit
        wanted.insert(0, chosen)
        first = Cat(bits) == Cat(wanted)
        return first & ~value[: max(0, self.config.recipe.shift - len(bits))].any()

    def _bound_even(self, value: _Rounded) -> Value:
        """The output for a rounded product: add the zero point and what is still due, saturate."""
        config = self.config
        bits, (least, _) = config.aligned_bits, config.outputs
        low, high = (0, (1 << bits) - 1) if bits else (config.low, config.high)
        whole = Cat(value.whole, value.negative).as_signed()
        total = whole + value.round_up
        if config.zero:
            zero = Const(config.zero, signed(config.bits + 2))
            total = (Cat(1, whole).as_signed() + Cat(value.round_up, zero).as_signed())[1:].as_signed()
        below, above = (total[-1], total[bits:].any()) if bits else (total < low, total > high)
        inside = Mux(value.is_beyond | above, high, total[:bits] if bits else total)
        if least:  # else nothing lies below: what is negative was made 0
            inside = Mux(Mux(value.is_beyond, value.negative, below), low, inside)
        return self._from_low(inside) if bits else inside

    def _from_low(self, inside: Value) -> Value:
        """What is counted from ``low``, if that is aligned, as an output."""
        config = self.config
        low, bits = config.low, config.aligned_bits
        return Cat(inside[:bits] ^ (low % (1 << bits)), Const(low >> bits, signed(config.bits + 1)))

    def _bound(self, value: Value) -> Value:
        """The output for a product with offset: cut the fraction, make ties even, saturate."""
        config = self.config
        shift, bits = config.recipe.shift, config.aligned_bits
        value = _extended(value, shift + bits + 1)
        rounded = value[shift:].as_signed()
        whole = rounded
        if config.ties:
            fraction = value[:shift]
            tie = fraction.all() if config.ties_down else ~fraction.any()
            whole = Cat(Mux(tie, int(config.ties_down), rounded[0]), rounded[1:]).as_signed()
        if bits:
            # Counted from ``low``: the sign says too little, the bits above say too much. Neither sees the correction,
            # which writes the lowest bit alone.
            inside = Mux(rounded[-1], 0, Mux(rounded[bits:].any(), (1 << bits) - 1, whole[:bits]))
            return self._from_low(inside)
        # The correction makes an odd value even, counted from the zero point: a bound must not miss that.
        if config.ties_down:
            below, above = rounded < config.low, rounded >= config.high
        else:
            below, above = rounded <= config.low, rounded > config.high
        return Mux(below, config.low, Mux(above, config.high, whole))


def _delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """``value``, so many cycles later; a constant stays one (a register that starts at 0 would not)."""
    return value if isinstance(value, Const) else delayed(m, name, value, cycles)


def _extended(value: Value, bits: int) -> Value:
    """``value``, at least ``bits`` bits wide, signed."""
    sign = value[-1] if value.shape().signed else Const(0)
    return Cat(value, sign.replicate(max(0, bits - len(value), not value.shape().signed))).as_signed()


def _clamp(value: Value, bits: int) -> Value:
    """``value`` in the range of a signed integer of ``bits`` bits."""
    sign, fits = value[-1], (value[bits - 1 :].all() | ~value[bits - 1 :].any())
    return Mux(fits, value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


def _carry(steps: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """Of ``(generate, propagate)``, the lowest first: whether all of them together generate a carry, or pass one on."""
    if len(steps) == 1:
        return steps[0]
    half = len(steps) // 2
    (low_generates, low_passes), (generates, passes) = _carry(steps[:half]), _carry(steps[half:])
    return generates | (passes & low_generates), passes & low_passes
