"""Requantisation of accumulators to a layer's output type: bias, scale, rounding, zero point and saturation.

The product is exact, so operations can be rearranged as long as every output stays equal. The configuration searches
for the cheapest arrangement before any hardware exists (`RequantiseConfig.recipe`):

- Channels with different shifts share one common shift. The difference goes into the significand while the multiplier
  has spare bits, and the rest into a barrel shifter.
- Accumulators that saturate anyway are clamped before the multiplier, if this saves a DSP slice.
- Rounding adds one half and truncates. The correction of ties to even exists only if a tie can occur between the two
  bounds. With a significand of many odd digits, no tie can occur.
- The C port of the first DSP slice adds the half and the zero point.

If DSP slices are scarcer than LUTs, LUTs can compute the product (``products_in``). Two bits of the factor select one
row, and a pipelined adder tree adds the rows, the half and the zero point.

Outputs of 8 bits are rounded twice, as in ONNX Runtime: to float32, then to an integer. The hardware does not round the
product to float32. Between ``n`` and ``n + 1``, float32 numbers have a distance of ``2**(e - 23)``, with
``e = floor(log2(n + 1/2))``. The tie ``n + 1/2`` is one of these numbers. A product within half this distance of the
tie therefore becomes the tie. The ends of this band are included: the other candidate there has an odd significand.
Below 1/2, the distance is half as large, but the output is 0 in both cases. Only products in a band need a
correction, to the even neighbour. Sums of ``2**24`` and more are rounded to float32 before the multiplier. Both
corrections exist only if some sum needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from itertools import count, pairwise, product, repeat
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed

from hwgen.devices import MultiplierSlice
from hwgen.errors import ConfigError
from hwgen.gateware.channels import Beats, ChannelsComponent, ChannelsConfig, beat_values
from hwgen.gateware.cost import (
    Cost,
    Resources,
    constant_adder_luts,
    counter_bits,
)
from hwgen.gateware.lookup import delayed
from hwgen.gateware.naming import named
from hwgen.gateware.product_rows import ProductRows, extended
from hwgen.gateware.rounding import (
    SIGNIFICAND_BITS,
    Bands,
    round_half_even,
    scale_sum,
    signed_bits,
    tie_bands,
    useful_sums,
)

#: Number of operand bits that one DSP slice multiplies where an operand is divided among a cascade of slices.
PIECE = 17
#: Number of LUTs per lane for products next to ties: about 9 detect them, and 8 add the correction.
_BESIDE_TIES = 17


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Parameters of a requantiser's scaling in hardware: ``clamp((acc + bias) << left) * factor / 2**shift``.

    Parameters
    ----------
    shift : int
        Right shift of the product, in bits, equal for all channels.
    left : tuple of int
        Left shift of each channel's sum, in bits.
    factor : tuple of int
        Factor of each channel. Without pieces, every factor is 0 or 1.
    pieces : int
        Number of DSP slices per product.
    split_factor : bool
        Whether each slice multiplies 17 bits of the factor. Otherwise each slice multiplies 17 bits of the clamped sum.
    operand_pieces : int
        Number of pieces of 17 bits of the clamped sum if the factor is divided as well; otherwise 1.
    clamp : bool
        Whether sums are clamped.
    operand_bits : int
        Width of the clamped sum, signed.
    """

    shift: int
    left: tuple[int, ...]
    factor: tuple[int, ...]
    pieces: int
    split_factor: bool
    clamp: bool
    operand_bits: int
    operand_pieces: int = 1

    @property
    def steps(self) -> list[tuple[int, int]]:
        """Indices of the pieces of sum and factor that each slice multiplies, in the order of the cascade."""
        if not self.split_factor:
            return [(piece, 0) for piece in range(self.pieces)]
        pieces = product(range(self.operand_pieces), range(self.pieces // self.operand_pieces))
        return sorted(pieces, key=sum)

    def operand_piece_bits(self, piece: int) -> int:
        """Return the width of a piece of the clamped sum, in bits. The highest piece is signed."""
        pieces = self.operand_pieces if self.split_factor else self.pieces
        return self.operand_bits - piece * PIECE if piece == pieces - 1 else PIECE


#: Fields of a `RequantiseConfig` on which its recipe does not depend.
_LAYOUT = {"lanes", "beats", "pixels", "tables_in"}

#: Recipes by the type of the configuration and its other fields, and their largest number.
_recipes: dict[tuple[Any, ...], Recipe] = {}
MAX_RECIPES = 1 << 10


@dataclass(frozen=True, kw_only=True)
class RequantiseConfig(ChannelsConfig):
    """Configuration of a requantiser: ``clip(round((acc + bias) * significand / 2**shift) + zero_point, low, high)``.

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
        lowest, highest = self._bounds
        for name in ("zero_point", "low", "high"):
            if not lowest <= getattr(self, name) <= highest:
                raise ConfigError(f"{name} must be between {lowest} and {highest}, not {getattr(self, name)!r}")
        if self.low > self.high:
            raise ConfigError(f"low must be at most high ({self.high}), not {self.low!r}")

    @property
    def output(self) -> Shape:
        """Amaranth shape of one requantised output."""
        return Shape(self.bits, self.signed)

    @property
    def _bounds(self) -> tuple[int, int]:
        lowest = -(1 << (self.bits - 1)) if self.signed else 0
        return lowest, lowest + (1 << self.bits) - 1

    def compute(self, channel: int, accumulator: int) -> int:
        """Return the requantised output for one accumulator of a channel, by the definition of requantisation.

        The hardware uses another arrangement.
        """
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], self.float32)
        return min(max(scaled + self.zero_point, self.low), self.high)

    # Ranges of each channel.

    def _sums(self, channel: int) -> tuple[int, int]:
        """Return the smallest and largest possible sum of a channel's accumulator and bias."""
        half = 1 << (self.accumulator_bits - 1)
        return self.bias[channel] - (half << self.fraction), self.bias[channel] + ((half - 1) << self.fraction)

    @property
    def outputs(self) -> tuple[int, int]:
        """Smallest and largest output of the requantiser, relative to the zero point."""
        return self.low - self.zero_point, self.high - self.zero_point

    @cached_property
    def _useful_sums(self) -> tuple[tuple[int, int], ...]:
        """Range of sums of accumulator and bias, by channel, outside of which the output is saturated.

        Sums outside can be clamped to this range.
        """
        sums = map(self._sums, range(self.channels))
        return tuple(map(useful_sums, sums, self.significand, self.shift, repeat(self.outputs), repeat(self.float32)))

    @cached_property
    def rounded_bits(self) -> int:
        """Largest number of low bits that float32 rounding drops from a sum, if this can change an output; otherwise 0.

        Sums of more than 24 bits are rounded.
        """
        if not self.float32:
            return 0
        largest = max(abs(end) for ends in self._useful_sums for end in ends)
        return max(0, (largest - 1).bit_length() - SIGNIFICAND_BITS)

    def _round(self, total: int) -> int:
        """Round a sum of accumulator and bias to float32's 24 bits, as far as outputs depend on the rounding.

        The result is the input of the multiplier.
        """
        excess = min(self.rounded_bits, max(0, abs(total).bit_length() - SIGNIFICAND_BITS))
        return round_half_even(total, excess) << excess

    @cached_property
    def _operands(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest input of the scaling multiplier for each channel, without a clamp."""
        sums = map(self._sums, range(self.channels))
        return tuple((self._round(smallest), self._round(largest)) for smallest, largest in sums)

    @cached_property
    def _useful(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest input of the scaling multiplier for each channel, if saturating sums are clamped."""
        return tuple((self._round(smallest), self._round(largest)) for smallest, largest in self._useful_sums)

    @cached_property
    def _scales(self) -> tuple[tuple[int, int], ...]:
        """Scale of each channel as an odd factor and a shift, or (0, 0) if all its products are rounded to 0.

        A shift can be negative.
        """
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
        """Whether some scaled sum is a tie: exactly the middle between two integer outputs."""
        for (factor, shift), (smallest, largest) in zip(self._scales, self._useful, strict=True):
            if factor and shift > 0:
                # An odd factor preserves trailing zeros. So ties are exactly the odd multiples of half a step.
                half = 1 << (shift - 1)
                first = -(-smallest // half)
                if (first | 1) * half <= largest:
                    return True
        return False

    @cached_property
    def bands(self) -> Bands:
        """Flags: whether products are in ranges (bands) that float32 rounds to an output tie, or at the bands' ends."""
        bands = Bands()
        if self.float32:
            for (factor, shift), operands in zip(self._scales, self._operands, strict=True):
                bands |= tie_bands(operands, factor, shift, self.outputs)
        return bands

    @property
    def beside_ties(self) -> bool:
        """Whether hardware corrects products close to ties, because rounding to float32 changes some of the outputs."""
        return self.bands.beside

    @cached_property
    def recipe(self) -> Recipe:
        """Cheapest hardware arrangement of the scaling, in DSP slices and LUTs, with exactly the same outputs.

        With DSP slices, the criteria are, in order: few slices, small left shifts, no clamp, whole operands. A slice
        that multiplies the whole sum can add the bias in its pre-adder. With LUTs, narrow operands are best. A clamp is
        used if it saves more than one bit.
        """
        # The search for a plan asks for many widths of the beats.
        key = type(self), *(getattr(self, each.name) for each in fields(self) if each.name not in _LAYOUT)
        if key not in _recipes:
            if len(_recipes) == MAX_RECIPES:
                _recipes.clear()
            _recipes[key] = self._cheapest_recipe()
        return _recipes[key]

    def _cheapest_recipe(self) -> Recipe:
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
        # The flag selects the operand that is divided into pieces. The other operand must fit the wide port, or is
        # divided into pieces, too.
        wide_bits = self.multiplier_slice.wide_bits
        geometries: list[tuple[bool, int, int | None, int]] = [
            (False, min(SIGNIFICAND_BITS, wide_bits - 1), pieces * PIECE + 1, 1),
            (True, pieces * PIECE, wide_bits, 1),
        ]
        if wide_bits <= SIGNIFICAND_BITS:
            shares = (share for share in range(2, pieces) if pieces % share == 0)
            geometries += [(True, pieces // share * PIECE, share * PIECE + 1, share) for share in shares]
        if pieces == 0 or not in_slices:
            geometries = [(False, SIGNIFICAND_BITS if pieces else 1, None, 1)]
        for split_factor, factor_bits, max_bits, operand_pieces in geometries:
            spare = [factor_bits - factor.bit_length() for factor, _ in self._scales]
            if min(spare) < 0:
                continue
            into = [min(pair) for pair in zip(missing, spare, strict=True)]
            left = [total - into_factor for total, into_factor in zip(missing, into, strict=True)]
            factors = [factor << into_factor for (factor, _), into_factor in zip(self._scales, into, strict=True)]
            for clamp in (False, True):
                ends = self._useful if clamp else self._operands
                bits = max(
                    signed_bits(smallest << shift, largest << shift)
                    for (smallest, largest), shift in zip(ends, left, strict=True)
                )
                if max_bits is None or bits <= max_bits:
                    yield Recipe(
                        shift=common,
                        left=tuple(left),
                        factor=tuple(factors),
                        pieces=pieces,
                        split_factor=split_factor,
                        clamp=clamp,
                        operand_bits=bits,
                        operand_pieces=operand_pieces,
                    )

    # Arithmetic behind the multiplier.

    @property
    def aligned_bits(self) -> int:
        """Number of varying output bits if ``low`` .. ``high`` is an aligned power of two or the whole type; else 0.

        The other output bits are then constant.
        """
        bits = (self.high - self.low).bit_length()
        full = self.high - self.low == (1 << bits) - 1
        return bits if full and (bits == self.bits or self.low % (1 << bits) == 0) else 0

    @property
    def zero(self) -> int:
        """Zero point as the hardware adds it: relative to ``low`` if `aligned_bits` is not 0, otherwise unchanged."""
        return self.zero_point - (self.low if self.aligned_bits else 0)

    @property
    def ties_down(self) -> bool:
        """Whether ties are first rounded down, then corrected upwards if odd, instead of the other way round.

        In both cases, the correction of exact ties changes only the lowest bit: to 1 if the added zero point is odd, to
        0 if it is even. If products beside ties are corrected too, this choice moves the ends of the bands by one unit.
        The ends above ties then become products that need no comparison of all their bits.
        """
        if self.beside_ties:
            return self.bands.above and not self.bands.below
        return self.ties and self.zero % 2 == 1

    @cached_property
    def offset(self) -> int:
        """Constant added to the product: half a step for rounding plus the zero point, in the scale of the product.

        The zero point is missing if it is added later.
        """
        zero = 0 if self.beside_ties else self.zero
        return ((2 * zero + 1) << (self.recipe.shift - 1)) - self.ties_down

    @property
    def whole_bits(self) -> int:
        """Width in bits of a rounded product before the correction of near ties, signed. Larger products saturate."""
        smallest, largest = self.outputs
        return signed_bits(smallest - 1, largest + 1)

    @property
    def offset_stage(self) -> str:
        """Place where the rounding offset is added: the "bias", the DSP "slice", or "late", behind the product."""
        recipe = self.recipe
        if recipe.pieces == 0:
            return "late" if any(recipe.left) or 0 in recipe.factor or self.rounded_bits else "bias"
        return "slice" if signed_bits(self.offset) < self.multiplier_slice.sum_bits else "late"

    @cached_property
    def product_bits(self) -> int:
        """Width in bits, signed, that holds every scaled product both with and without the rounding offset."""
        recipe = self.recipe
        half = 1 << (recipe.operand_bits - 1)
        products = []
        for channel, (left, factor) in enumerate(zip(recipe.left, recipe.factor, strict=True)):
            smallest, largest = self._operands[channel]
            products.append(max(smallest << left, -half) * factor)
            products.append(min(largest << left, half - 1) * factor)
        return signed_bits(min(products) + self.offset, max(products) + self.offset, *products)

    @property
    def sum_bits(self) -> int:
        """Width in bits, signed, of the sum of accumulator and bias, with the rounding offset if the bias holds it."""
        early = self.offset if self.offset_stage == "bias" else 0
        return signed_bits(*(end + early for channel in range(self.channels) for end in self._sums(channel)))

    @property
    def rounded_sum_bits(self) -> int:
        """Width in bits of the sum of accumulator and bias after its rounding to float32, signed."""
        return signed_bits(*(end for pair in self._operands for end in pair)) if self.rounded_bits else self.sum_bits

    @cached_property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        recipe = self.recipe
        early = self.offset if self.offset_stage == "bias" else 0
        tables = {
            "bias": self.table([bias + early for bias in self.bias]),
            "left": self.table(recipe.left),
            "present": self.present,
        }
        if recipe.split_factor:
            for piece in range(recipe.pieces // recipe.operand_pieces):
                tables[f"factor_{piece}"] = self.table(
                    [(factor >> (piece * PIECE)) % (1 << PIECE) for factor in recipe.factor]
                )
        else:
            tables["factor"] = self.table(recipe.factor)
        return tables

    # Resources.

    @property
    def latency(self) -> int:
        """Cycles from a beat of accumulators to the beat of requantised outputs."""
        recipe, multiply = self.recipe, self.product_cycles
        early = 2 + self.tables_in_block_ram + 2 * (self.rounded_bits > 0) + any(recipe.left) + recipe.clamp
        return early + multiply + (self.offset_stage == "late") + self.beside_ties + 1

    @property
    def in_slices(self) -> bool:
        """Whether DSP slices, not LUTs, multiply the sums by their scales."""
        return self.recipe.pieces > 0 and self.products_in == "dsp"

    @cached_property
    def product_rows(self) -> ProductRows:
        """Configuration of the multipliers in LUTs that multiply sums by scales, if ``products_in`` is ``lut``."""
        return ProductRows(
            operand_bits=self.recipe.operand_bits,
            factor_bits=max(self.recipe.factor).bit_length(),
            offset=self.offset if self.offset_stage == "slice" else None,
            product_bits=self.product_bits,
            unused_bits=self._unused_bits,
        )

    @property
    def product_cycles(self) -> int:
        """Cycles from the input of the scaling multiplier to its product; 0 if shifts alone scale all sums."""
        if self.in_slices or not self.recipe.pieces:
            return self.recipe.pieces + (self.recipe.pieces > 0)
        return self.product_rows.latency

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the requantiser, as Yosys counts them. Shifts and small products need none."""
        if not self.in_slices:
            return 0
        recipe = self.recipe
        total = 0
        for operand_piece, factor_piece in recipe.steps:
            bits = recipe.operand_piece_bits(operand_piece)
            table = self.tables[f"factor_{factor_piece}" if recipe.split_factor else "factor"]
            total += sum(_takes_slice(self.multiplier_slice, bits, column) for column in table)
        return total * self.pixels

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device, dsp=self.multipliers)
        recipe = self.recipe
        sums = self.lanes * self.pixels
        beat = counter_bits(len(self.beats)) * self.has_index
        cost.ff += beat + self.latency
        cost.lut += beat
        registered = self.tables_in_block_ram
        cycle, latest = self._count_operands(cost)
        if recipe.split_factor and recipe.pieces:
            first_steps = {factor_piece: step for step, (_, factor_piece) in reversed([*enumerate(recipe.steps)])}
            for piece, step in first_steps.items():
                if self._count_table(cost, f"factor_{piece}"):
                    latest = max(latest, cycle + step)
        elif self._count_table(cost, "factor"):
            latest = max(latest, cycle)
            cost.lut += sums * recipe.operand_bits * (not recipe.pieces)
        if recipe.pieces and not self.in_slices:
            for column in self.tables["factor"]:
                self.product_rows.count(cost, column, self.pixels)
        cycle += self.product_cycles
        for step, (pieces, later) in enumerate(pairwise(recipe.steps)):
            if sum(later) > sum(pieces):
                low = min(PIECE, max(0, (sum(pieces) + 1) * PIECE - self._unused_bits))
                cost.delay(sums * low, recipe.pieces - 1 - step)
        if self.in_slices:
            self._count_slices(cost)
        if self.offset_stage == "late":
            # Bits below the half pass the adder unchanged. Without ties, no logic reads them.
            cost.ff += sums * (self.product_bits - self._unused_bits)
            cost.lut += sums * constant_adder_luts(self.offset, self.product_bits)
            cycle += 1
        if self.beside_ties:
            # Registers of the whole part, the correction and the saturation. LUTs of the comparison and the
            # correction's adder.
            cost.ff += sums * (self.whole_bits + 1 + (self.low < self.zero_point))
            cost.lut += sums * _BESIDE_TIES
            cycle += 1
        if self._count_table(cost, "present"):
            latest = max(latest, cycle)
        cost.ff += beat * (latest - 1 - registered)
        bits = (self.high - self.low).bit_length()
        cost.ff += sums * bits
        # One LUT per bit reads the bit, the sign, and up to three bits above. More bits need one more LUT.
        cost.lut += sums * (bits + (self.product_bits - recipe.shift - bits > 4))
        cost.known = cost.lut  # adders and comparisons take a LUT per bit in each family
        return cost.resources

    def _count_slices(self, cost: Cost) -> None:
        """Add to ``cost`` the registers and adders that DSP slices contain: products, sums, and delayed operands."""
        recipe, sums = self.recipe, self.lanes * self.pixels
        factor_bits = max(recipe.factor).bit_length()
        bits = 0
        for step, (operand_piece, _) in enumerate(recipe.steps):
            width = recipe.operand_piece_bits(operand_piece)
            product = width + min(factor_bits, PIECE if recipe.split_factor else factor_bits)
            shifted = step and sum(recipe.steps[step]) > sum(recipe.steps[step - 1])
            bits = max(product, bits - PIECE * bool(shifted)) + 1
            cost.in_slices(sums * (product + bits + step * width), sums * bits)

    @property
    def has_pre_adders(self) -> bool:
        """Whether each slice adds the bias to the sum in front of its multiplier."""
        recipe = self.recipe
        is_changed = any(recipe.left) or recipe.clamp or self.rounded_bits > 0
        return self.multiplier_slice.has_pre_adder and recipe.split_factor and not is_changed

    def component(self) -> Requantise:
        return Requantise(self)

    def _count_operands(self, cost: Cost) -> tuple[int, int]:
        """Add to ``cost`` the resources from accumulators to scaling multiplier; return cycles of table reads.

        A slice contains the last register. Return the cycle in which the factor is read, and the last cycle in which
        another table is read.
        """
        recipe = self.recipe
        sums = self.lanes * self.pixels
        moves, rounds, in_slice = any(recipe.left), self.rounded_bits > 0, self.in_slices
        registered = self.tables_in_block_ram
        cycle, latest = 2 + registered, 1 + registered
        # With a split factor, each slice adds the bias in its pre-adder.
        pre_adders = in_slice and self.has_pre_adders
        if self._count_table(cost, "bias") and pre_adders and registered:
            cost.ff += sums * signed_bits(*self.bias) * (recipe.pieces - 1)
        if in_slice and not pre_adders:
            cost.in_slices(sums * recipe.operand_bits)
        # Sums wait for their bias. A slice contains only the last register.
        cost.ff += sums * self.accumulator_bits * registered
        if pre_adders:
            return cycle, latest
        cost.ff += sums * self.accumulator_bits
        for column in self.tables["bias"]:
            bits = self.sum_bits - self.fraction - 1  # the sign is the last carry
            constant = len(set(column)) == 1
            cost.lut += self.pixels * (constant_adder_luts(column[0] >> self.fraction, bits) if constant else bits)
        last = "clamp" if recipe.clamp else "shift" if moves else "rounded" if rounds else "sum"
        if not (in_slice and last == "sum"):
            cost.ff += sums * self.sum_bits
        if rounds:
            # Registers of the bits to drop, and of the sum beside them; then the rounding.
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
            cost.multiplexer(sums * bits, len(set(recipe.left)))
            cycle += 1
        if recipe.clamp:
            if not in_slice:
                cost.ff += sums * recipe.operand_bits
            cost.lut += sums * recipe.operand_bits
            cycle += 1
        return cycle, latest

    @property
    def _unused_bits(self) -> int:
        """Number of low bits of the scaled product that no logic reads, because rounding does not depend on them."""
        if self.beside_ties:
            ends = self.bands.above and self.bands.below
            return 0 if ends else max(0, self.recipe.shift - SIGNIFICAND_BITS - 1)
        return 0 if self.ties else self.recipe.shift


def _takes_slice(multiplier_slice: MultiplierSlice, operand_bits: int, factors: Sequence[int]) -> bool:
    """Return whether Yosys builds a product with the possible ``factors`` from a DSP slice, not from LUTs."""
    bits = max(factors).bit_length()
    if len(set(factors)) == 1 and bits:
        bits -= (factors[0] & -factors[0]).bit_length() - 1  # trailing zeros of a constant are wiring
    return multiplier_slice.multiplies(operand_bits, bits)


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """Registered signals of a rounded product ``whole + round_up``, with flags for its sign and its overflow.

    If ``is_beyond``, ``whole`` is too narrow for the product, and the output saturates.
    """

    whole: Value
    round_up: Value
    negative: Value
    is_beyond: Value


def _shifted(value: Value, bits: int) -> Value:
    return value.shift_left(bits) if bits else value


class Requantise(ChannelsComponent[RequantiseConfig]):
    """Component that requantises accumulators: scales them, rounds to nearest even, adds the zero point, saturates.

    Parameters
    ----------
    config : RequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Outputs. Lanes without a channel are 0.

    Latency and throughput
        One beat per cycle, with a latency of ``config.latency`` cycles. Never stalls. The first beat after a reset is
        the first beat of a pixel.

    Number range
        Every accumulator of ``accumulator_bits`` bits has the result that ``config.compute`` defines. No intermediate
        value overflows.

    Stages:

    =====================================  ==============================================
    stage                                  cycles
    =====================================  ==============================================
    addition of the bias                   2, or 3 if the tables are in block RAM
    rounding of the sum to 24 bits         2, if needed
    left shift                             1, if the recipe has one
    clamp                                  1, if the recipe has one
    product in ``n`` DSP slices            ``n + 1``
    product in LUTs                        ``config.product_cycles``
    late offset                            1, if the offset is added late
    correction of products next to ties    1, if needed
    bounds                                 1
    =====================================  ==============================================
    """

    def elaborate(self, platform):
        m = Module()
        config, recipe = self.config, self.config.recipe
        beats = Beats(m, config, self.i.valid)
        cycle = 1 + config.tables_in_block_ram
        biases = beats.read("bias", cycle)
        accumulators = [
            delayed(m, f"accumulator_{lane}", value, cycle) for lane, value in enumerate(beat_values(self.i))
        ]

        def sums(delay: int) -> list[Value]:
            """Add adders of all lanes' accumulators and biases, and return the sums, ``delay`` cycles after the first.

            Each delay has its own adders.
            """
            delayed_sums = [
                named(
                    _shifted(delayed(m, f"accumulator_{lane}_delayed", accumulator, delay), config.fraction)
                    + _delayed(m, f"bias_{lane}_delayed", bias, delay),
                    "biased_sum",
                )
                for lane, (accumulator, bias) in enumerate(zip(accumulators, biases, strict=True))
            ]
            return self._registers(m, f"sum_{delay}" if delay else "sum", delayed_sums, signed(config.sum_bits))

        values = sums(0)
        cycle += 1
        if config.rounded_bits:
            values = self._rounded_sums(m, values)
            cycle += 2
        if any(recipe.left):
            lefts = beats.read("left", cycle)
            bits = config.rounded_sum_bits + max(recipe.left) if recipe.clamp else recipe.operand_bits
            shifted = [named(value << left, "shifted_sum") for value, left in zip(values, lefts, strict=True)]
            values = self._registers(m, "shifted", shifted, signed(bits))
            cycle += 1
        if recipe.clamp:
            clamped = [_clamp(value, recipe.operand_bits) for value in values]
            values = self._registers(m, "clamped", clamped, signed(recipe.operand_bits))
            cycle += 1
        operands = [values]
        for piece in range(1, recipe.pieces):
            # If several slices multiply one sum, Yosys 0.66 moves the adder into one slice's pre-adder, and the other
            # slices have none. A separate adder per slice uses each pre-adder, at no cost.
            own = config.has_pre_adders
            delayed_values = [delayed(m, f"operand_{lane}_{piece}", value, piece) for lane, value in enumerate(values)]
            operands.append(sums(piece) if own else delayed_values)
        values = self._multiply(m, beats, operands, cycle)
        cycle += config.product_cycles
        if config.offset_stage == "late":
            zeros = (config.offset & -config.offset).bit_length() - 1
            step = config.offset >> zeros
            values = [extended(value, zeros + 1) for value in values]
            upper = [named(value[zeros:].as_signed() + step, "upper_product") for value in values]
            moved = [Cat(value[:zeros], high).as_signed() for value, high in zip(values, upper, strict=True)]
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
        m.d.comb += [port.eq(output) for port, output in zip(beat_values(self.o), outputs, strict=True)]
        return m

    def _registers(self, m: Module, name: str, values: Sequence[Value], shape: Shape) -> list[Value]:
        registers = [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(len(values))]
        m.d.sync += [register.eq(value) for register, value in zip(registers, values, strict=True)]
        return list(registers)

    def _multiply(self, m: Module, beats: Beats, operands: list[list[Value]], cycle: int) -> list[Value]:
        """Add the scaling multipliers, and return their products by lane, with the offset if the DSP slice adds it.

        ``operands`` are grouped by step of the cascade. The values of a step are valid so many cycles after ``cycle``.
        The slices of a product form a cascade, one cycle apart. Each slice adds the product of its pieces to the
        previous sum. Where the product has a larger weight, the sum is shifted right by 17 bits. The 17 dropped bits
        are final.
        """
        config, recipe = self.config, self.config.recipe
        factors: dict[int, tuple[int, list[Value]]] = {}  # first step that reads each piece, and its values by lane
        if recipe.split_factor:
            for step, (_, piece) in enumerate(recipe.steps):
                if piece not in factors:
                    factors[piece] = step, beats.read(f"factor_{piece}", cycle + step)
        else:
            factors[0] = 0, beats.read("factor", cycle)
        if not recipe.pieces:
            masked, values = 0 in recipe.factor, factors[0][1]
            return [Mux(f, value, 0) if masked else value for f, value in zip(values, operands[0], strict=True)]
        if not config.in_slices:
            pairs = zip(operands[0], factors[0][1], strict=True)
            return [config.product_rows.multiply(m, lane, *pair) for lane, pair in enumerate(pairs)]

        products = []
        for lane in range(config.lanes * config.pixels):
            total: Value = Const(config.offset if config.offset_stage == "slice" else 0)
            done = []
            for step, (operand_piece, factor_piece) in enumerate(recipe.steps):
                left = operands[step][lane]
                if recipe.operand_piece_bits(operand_piece) < recipe.operand_bits:
                    start, width = operand_piece * PIECE, recipe.operand_piece_bits(operand_piece)
                    top = start + width == recipe.operand_bits
                    left = left[start:].as_signed() if top else left[start : start + PIECE]
                first, values = factors[factor_piece]
                right = _delayed(m, f"factor_{lane}_{step}", values[lane], step - first)
                product = delayed(m, f"product_{lane}_{step}", left * right, 1)
                total = delayed(m, f"partial_product_{lane}_{step}", product + total, 1)
                later = recipe.steps[step + 1 : step + 2]
                if later and sum(later[0]) > operand_piece + factor_piece:
                    low = extended(total, PIECE)[:PIECE]
                    done.append(delayed(m, f"product_low_{lane}_{step}", low, recipe.pieces - 1 - step))
                    total = named(total >> PIECE, "remaining_product")
            products.append(Cat(*done, total)[: config.product_bits].as_signed())
        return products

    def _rounded_sums(self, m: Module, values: Sequence[Value]) -> list[Value]:
        """Add the rounding of all lanes' sums to 24 significant bits, ties to even, and return the sums 2 cycles later.

        At most `rounded_bits` bits are dropped. To drop ``j`` bits, half of their range minus one is added, plus the
        lowest kept bit.
        """
        config = self.config
        rounded = []
        for lane, value in enumerate(values):
            longer, odd = [], Const(0, 1)
            for j in range(1, config.rounded_bits + 1):  # at least j bits are dropped
                above = value[SIGNIFICAND_BITS + j - 1 :]
                longer.append(above.any() & ~above.all())
                odd = Mux(longer[-1], value[j], odd)
            dropped = delayed(m, f"dropped_bits_{lane}", Cat(longer), 1)
            odd = delayed(m, f"lowest_bit_{lane}", odd, 1)
            exact = delayed(m, f"sum_{lane}_delayed", value, 1)
            total = (Cat(1, exact).as_signed() + Cat(odd, dropped[1:]))[1:]
            rounded.append(Cat(total[: len(dropped)] & ~dropped, total[len(dropped) :]).as_signed())
        return self._registers(m, "rounded", rounded, signed(config.rounded_sum_bits))

    def _to_even(self, m: Module, lane: int, value: Value) -> _Rounded:
        """Add the rounding of a product to an integer, the even one if near a tie; return it in registered signals.

        The offset is already added, so that the fraction is truncated. If the fraction is next to 0, the even neighbour
        is below; if it is next to 1, the even neighbour is above. The fraction is next to 0 or 1 if all of its bits
        from weight ``2**(e - 24)`` upwards are equal. ``2**e`` is the weight of the highest bit of the tie's magnitude;
        for 1/2, ``e`` is -1.
        """
        config, shift = self.config, self.config.recipe.shift
        lowest, largest = config.outputs
        value = extended(value, shift + config.whole_bits + 1)
        whole, sign = value[shift:], value[-1] if lowest < 0 else Const(0, 1)

        def fraction(weight: int) -> Value:
            bit = shift + weight - SIGNIFICAND_BITS
            # If ties are first rounded down, products count as just below their value: all lower bits are ones.
            return value[bit] if bit >= 0 else Const(config.ties_down, 1)

        up = fraction(SIGNIFICAND_BITS - 1)
        highest = (2 * max(largest, -lowest) - 1).bit_length() - 2
        # The lowest bit of the odd product belongs to the tie's magnitude only if the tie is farther from 0.
        magnitude = [(whole[weight] if weight else up) ^ sign for weight in range(highest + 1)]
        equal = [named(fraction(weight) == up, "is_bit_equal") for weight in range(-1, SIGNIFICAND_BITS - 1)]
        pairs = list(zip(magnitude, equal, strict=False))
        enough = named(reduce(or_, _carry(pairs)), "is_magnitude_enough") if pairs else Const(1)
        near = enough & Cat(equal[len(pairs) :]).all()
        if config.bands.above and config.bands.below:
            near |= self._at_end(magnitude, [fraction(weight) for weight in range(-1, SIGNIFICAND_BITS)], value)
        near &= whole[0]
        low, beyond = whole[: config.whole_bits - 1], whole[config.whole_bits - 1 :]
        fields = {
            "whole": Cat(low[0] & ~(near & ~up), low[1:]),
            "round_up": near & up,
            "negative": sign,
            "is_beyond": beyond.any() & ~beyond.all(),
        }
        if lowest >= 0:  # negative products and 0 have the same output
            fields = {name: Mux(whole[-1], 0, field) for name, field in fields.items()}
        return _Rounded(**{name: delayed(m, f"{name}_{lane}", field, 1) for name, field in fields.items()})

    def _at_end(self, magnitude: Sequence[Value], bits: Sequence[Value], value: Value) -> Value:
        """Return a signal of whether a product is exactly as far from a tie as float32 still rounds to the tie.

        The tie is one of two integers.
        The fraction is then ``2**(e - 24)``. ``bits`` are its highest bits, with the lowest first.
        """
        chosen = Const(1)
        wanted: list[Value] = []
        for bit in reversed(magnitude):
            wanted.insert(0, chosen & bit)
            chosen = chosen & ~bit
        wanted.insert(0, chosen)
        first = Cat(bits) == Cat(wanted)
        return first & ~value[: max(0, self.config.recipe.shift - len(bits))].any()

    def _bound_even(self, value: _Rounded) -> Value:
        """Return the output for a rounded product: add the correction and the zero point, and saturate."""
        config = self.config
        bits, (lowest, _) = config.aligned_bits, config.outputs
        low, high = (0, (1 << bits) - 1) if bits else (config.low, config.high)
        whole = Cat(value.whole, value.negative).as_signed()
        total = named(whole + value.round_up, "rounded_value")
        if config.zero:
            zero = Const(config.zero, signed(config.bits + 2))
            total = named(Cat(1, whole).as_signed() + Cat(value.round_up, zero).as_signed(), "rounded_value")
            total = total[1:].as_signed()
        below, above = (total[-1], total[bits:].any()) if bits else (total < low, total > high)
        inside = named(Mux(value.is_beyond | above, high, total[:bits] if bits else total), "value_below_limit")
        if lowest:  # otherwise no product is below: negative products are already 0
            inside = Mux(Mux(value.is_beyond, value.negative, below), low, inside)
        return self._from_low(inside) if bits else inside

    def _from_low(self, inside: Value) -> Value:
        """Convert an output's value relative to ``low`` to the output itself, in the output's type.

        The output bits above ``aligned_bits`` are constant.
        """
        config = self.config
        low, bits = config.low, config.aligned_bits
        return Cat(inside[:bits] ^ (low % (1 << bits)), Const(low >> bits, signed(config.bits + 1)))

    def _bound(self, value: Value) -> Value:
        """Return the output for a product that includes the rounding offset: truncate, make ties even, saturate."""
        config = self.config
        shift, bits = config.recipe.shift, config.aligned_bits
        value = extended(value, shift + bits + 1)
        rounded = value[shift:].as_signed()
        whole = rounded
        if config.ties:
            fraction = value[:shift]
            tie = fraction.all() if config.ties_down else ~fraction.any()
            whole = Cat(Mux(tie, int(config.ties_down), rounded[0]), rounded[1:]).as_signed()
        if bits:
            # Relative to ``low``: a set sign means too small, set bits above mean too large. Neither depends on the
            # correction, which changes only the lowest bit.
            inside = named(
                Mux(rounded[-1], 0, Mux(rounded[bits:].any(), (1 << bits) - 1, whole[:bits])), "clamped_value"
            )
            return self._from_low(inside)
        # The correction makes an odd value even, relative to the zero point. The comparisons take it into account.
        if config.ties_down:
            below, above = rounded < config.low, rounded >= config.high
        else:
            below, above = rounded <= config.low, rounded > config.high
        return Mux(below, config.low, Mux(above, config.high, whole))


def _delayed(m: Module, name: str, value: Value, cycles: int) -> Value:
    """Delay ``value`` by ``cycles`` cycles; a constant is returned unchanged, without registers.

    A register of a constant would start at 0.
    """
    return value if isinstance(value, Const) else delayed(m, name, value, cycles)


def _clamp(value: Value, bits: int) -> Value:
    """Clamp ``value`` to the range of a signed integer of ``bits`` bits, and return the signed result."""
    sign, fits = value[-1], (value[bits - 1 :].all() | ~value[bits - 1 :].any())
    return Mux(fits, value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


def _carry(steps: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """Return whether a carry chain of ``(generate, propagate)`` bits generates a carry, and whether it propagates one.

    The lowest pair is first.
    """
    if len(steps) == 1:
        return steps[0]
    half = len(steps) // 2
    (low_generates, low_passes), (generates, passes) = _carry(steps[:half]), _carry(steps[half:])
    return named(generates | (passes & low_generates), "carry"), named(passes & low_passes, "carry_passes")
