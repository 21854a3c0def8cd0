"""Recipe of a requantiser's scaling: shifts, factors and 17-bit pieces to multiply that take the fewest DSP slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import count, product
from typing import Any

from hwgen.devices import MultiplierSlice
from hwgen.gateware.requantisation.ranges import RequantiseParameters, SumRanges
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Way to compute a scale exactly, ``clamp((acc + bias) << left) * factor / 2**shift``: shifts, factors, pieces.

    Parameters
    ----------
    shift : int
        Right shift of the product, in bits, equal for all channels.
    left : tuple of int
        Left shift of each channel's sum, in bits.
    factor : tuple of int
        Factor of each channel. Without pieces, every factor is 0 or 1.
    pieces : int
        Number of slices per product.
    multiplier_slice : MultiplierSlice
        Slice whose cascade divides operands into pieces.
    in_slices : bool
        Whether DSP slices, not LUTs, multiply.
    split_factor : bool
        Whether each slice multiplies a piece of the factor. Otherwise each multiplies a piece of the clamped sum.
    operand_pieces : int
        Number of pieces of the clamped sum if the factor is divided as well; otherwise 1.
    clamp : bool
        Whether sums are clamped.
    operand_bits : int
        Width of the clamped sum, signed.
    """

    shift: int
    left: tuple[int, ...]
    factor: tuple[int, ...]
    pieces: int
    multiplier_slice: MultiplierSlice
    in_slices: bool
    split_factor: bool
    clamp: bool
    operand_bits: int
    operand_pieces: int = 1

    @property
    def steps(self) -> list[tuple[int, int]]:
        """List of index pairs in cascade order: the pieces of sum and factor that each DSP slice multiplies."""
        if not self.split_factor:
            return [(piece, 0) for piece in range(self.pieces)]
        pieces = product(range(self.operand_pieces), range(self.pieces // self.operand_pieces))
        return sorted(pieces, key=sum)

    def operand_piece_bits(self, piece: int) -> int:
        """Return the width in bits of a piece of the clamped sum; the highest piece is signed."""
        pieces = self.operand_pieces if self.split_factor else self.pieces
        return self.multiplier_slice.piece_bits(self.operand_bits, piece, pieces)

    def factor_name(self, piece: int) -> str:
        """Return the name of the factor table: ``factor``, or ``factor_INDEX`` for a piece of divided factors."""
        return f"factor_{piece}" if self.split_factor else "factor"

    @property
    def factor_reads(self) -> dict[str, int]:
        """Dictionary from factor table name to the index in the cascade of the first DSP slice that reads it."""
        names = [self.factor_name(piece) for _, piece in self.steps] or [self.factor_name(0)]
        return {name: names.index(name) for name in names}


@dataclass(frozen=True)
class ScalingPart:
    """Base class of a requantiser's parts, with its parameters, ranges of sums, and scaling recipe."""

    parameters: RequantiseParameters
    ranges: SumRanges
    recipe: Recipe

    @property
    def values(self) -> int:
        """Number of values per beat, ``lanes * pixels``."""
        return self.parameters.lanes * self.parameters.pixels


#: Names of fields of `RequantiseParameters` that do not change the recipe.
_LAYOUT = {"lanes", "beats", "pixels", "tables_in"}

#: Cache of recipes, by the type of the parameters and the values of their fields that are not in `_LAYOUT`.
_recipes: dict[tuple[Any, ...], Recipe] = {}
#: Maximum number of recipes in the cache.
MAX_RECIPES = 1 << 10


def cheapest_recipe(parameters: RequantiseParameters, ranges: SumRanges) -> Recipe:
    """Return the `Recipe` of a requantiser's scaling with the fewest DSP slices, then smallest left shift; cached.

    With DSP slices, the criteria are, in order: few slices, small left shifts, no clamp, whole operands. A slice that
    multiplies the whole sum can add the bias in its pre-adder. With LUTs, narrow operands are best. A clamp is used if
    it saves more than one bit.
    """
    # The search for a plan asks for many widths of the beats.
    used = (getattr(parameters, each.name) for each in fields(parameters) if each.name not in _LAYOUT)
    key = type(parameters), *used
    if key not in _recipes:
        if len(_recipes) == MAX_RECIPES:
            _recipes.clear()
        _recipes[key] = search_recipe(parameters, ranges)
    return _recipes[key]


def search_recipe(parameters: RequantiseParameters, ranges: SumRanges) -> Recipe:
    """Return the `Recipe` of a requantiser's scaling with the fewest DSP slices, then smallest shift; not cached."""
    wide_bits = parameters.multiplier_slice.wide_bits
    if parameters.products_in == "lut" and not (recipes := list(_candidates(ranges, 0, wide_bits))):
        recipes = _candidates(ranges, 1, None)
        return min(recipes, key=lambda recipe: (max(recipe.left), recipe.operand_bits + 2 * recipe.clamp))
    recipes = next(filter(None, (list(_candidates(ranges, pieces, wide_bits)) for pieces in count())))
    return min(recipes, key=lambda recipe: (max(recipe.left), recipe.clamp, not recipe.split_factor))


def _candidates(ranges: SumRanges, pieces: int, wide_bits: int | None) -> Iterator[Recipe]:
    """Yield each `Recipe` for a requantiser's scaling that uses ``pieces`` DSP slices per product.

    ``wide_bits`` is the width of a slice's wide port, in bits; ``None`` if LUTs multiply.
    """
    multiplier_slice = ranges.parameters.multiplier_slice
    common = max(1, *(shift for factor, shift in ranges.scales if factor), 1)
    missing = [common - shift if factor else 0 for factor, shift in ranges.scales]
    for split_factor, factor_bits, max_bits, operand_pieces in _geometries(
        pieces, wide_bits, multiplier_slice.cascade_shift
    ):
        spare = [factor_bits - factor.bit_length() for factor, _ in ranges.scales]
        if min(spare) < 0:
            continue
        into = [min(pair) for pair in zip(missing, spare, strict=True)]
        left = [total - into_factor for total, into_factor in zip(missing, into, strict=True)]
        factors = [factor << into_factor for (factor, _), into_factor in zip(ranges.scales, into, strict=True)]
        for clamp in (False, True):
            ends = ranges.useful if clamp else ranges.operands
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
                    multiplier_slice=multiplier_slice,
                    in_slices=bool(pieces and wide_bits),
                    split_factor=split_factor,
                    clamp=clamp,
                    operand_bits=bits,
                    operand_pieces=operand_pieces,
                )


def _geometries(pieces: int, wide_bits: int | None, piece: int) -> Iterator[tuple[bool, int, int | None, int]]:
    """Yield ways to divide operands: (factor divided, factor bits, maximum sum bits or ``None``, sum pieces).

    A piece of a divided operand has ``piece`` bits. The operand that is not divided must fit the wide port, or is
    divided into pieces, too.
    """
    if not pieces or wide_bits is None:
        yield False, SIGNIFICAND_BITS if pieces else 1, None, 1
        return
    yield False, min(SIGNIFICAND_BITS, wide_bits - 1), pieces * piece + 1, 1
    yield True, pieces * piece, wide_bits, 1
    for share in range(2, pieces) if wide_bits <= SIGNIFICAND_BITS else ():
        if pieces % share == 0:
            yield True, pieces // share * piece, share * piece + 1, share
