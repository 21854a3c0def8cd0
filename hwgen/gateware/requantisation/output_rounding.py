"""Rounding of a requantiser's scaled products to outputs: rounding offset, ties to even, zero point and saturation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from amaranth import Cat, Const, Module, Mux, Value, signed

from hwgen.gateware.cost import Cost
from hwgen.gateware.lookup import delayed, named
from hwgen.gateware.product_rows import extended
from hwgen.gateware.requantisation.recipe import ScalingPart
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits

#: Number of LUTs per lane that correct products next to ties: about 9 detect them, and 8 add the correction.
_BESIDE_TIES = 17


@dataclass(frozen=True)
class OutputRounding(ScalingPart):
    """Requantiser's last part: rounds scaled products to integers, adds the zero point, and saturates."""

    @property
    def aligned_bits(self) -> int:
        """Number of varying output bits if ``low`` to ``high`` are all values or an aligned block of ``2**n``; else 0.

        The other output bits are then constant.
        """
        low, high = self.parameters.low, self.parameters.high
        bits = (high - low).bit_length()
        full = high - low == (1 << bits) - 1
        return bits if full and (bits == self.parameters.bits or low % (1 << bits) == 0) else 0

    @property
    def zero(self) -> int:
        """Zero point as the circuit adds it, an integer: relative to ``low`` if `aligned_bits` is not 0."""
        return self.parameters.zero_point - (self.parameters.low if self.aligned_bits else 0)

    @property
    def ties_down(self) -> bool:
        """Whether ties round down first and odd results are then corrected upwards, not the other way round.

        In both cases, the correction of exact ties changes only the lowest bit: to 1 if the added zero point is odd, to
        0 if it is even. If products close to ties are corrected, this choice moves the ends of the bands by one unit.
        The ends above ties then become products that need no comparison of all their bits.
        """
        bands = self.ranges.bands
        if bands.beside:
            return bands.above and not bands.below
        return self.ranges.ties and self.zero % 2 == 1

    @cached_property
    def offset(self) -> int:
        """Integer added to scaled products: half an output step plus the zero point, in the products' scale.

        It lacks the zero point if that is added later.
        """
        zero = 0 if self.ranges.bands.beside else self.zero
        return ((2 * zero + 1) << (self.recipe.shift - 1)) - self.ties_down

    @property
    def whole_bits(self) -> int:
        """Width in bits (signed) of a rounded product before near ties are corrected; larger ones saturate."""
        smallest, largest = self.parameters.outputs
        return signed_bits(smallest - 1, largest + 1)

    @property
    def offset_stage(self) -> str:
        """Stage that adds the rounding offset: the "bias", the DSP "slice", or "late", after the product."""
        recipe = self.recipe
        if recipe.pieces == 0:
            return "late" if any(recipe.left) or 0 in recipe.factor or self.ranges.rounded_bits else "bias"
        return "slice" if signed_bits(self.offset) < self.parameters.multiplier_slice.sum_bits else "late"

    @property
    def unused_bits(self) -> int:
        """Number of low bits of a scaled product that cannot change the rounded output."""
        bands = self.ranges.bands
        if bands.beside:
            return 0 if bands.above and bands.below else max(0, self.recipe.shift - SIGNIFICAND_BITS - 1)
        return 0 if self.ranges.ties else self.recipe.shift

    @property
    def cycles(self) -> int:
        """Cycles from a scaled product, rounding offset included, to the output."""
        return 1 + self.ranges.bands.beside

    def count(self, cost: Cost, product_bits: int) -> None:
        """Add to ``cost`` the LUTs and flip-flops that round products of ``product_bits`` bits to outputs."""
        given, values = self.parameters, self.values
        bits = (given.high - given.low).bit_length()
        if self.ranges.bands.beside:
            # Registers of the whole part, the correction and the saturation. LUTs of the comparison and the
            # correction's adder.
            cost.ff += values * (self.whole_bits + 1 + (given.low < given.zero_point))
            cost.lut += values * _BESIDE_TIES
        cost.ff += values * bits
        # One LUT per bit reads the bit, the sign, and up to three bits above. More bits need one more LUT.
        cost.lut += values * (bits + (product_bits - self.recipe.shift - bits > 4))

    def add_to(self, m: Module, values: Sequence[Value]) -> list[Value]:
        """Add the rounding and saturation of all lanes' products; return a list of unregistered outputs."""
        if self.ranges.bands.beside:
            return [self._bound_even(self._to_even(m, lane, value)) for lane, value in enumerate(values)]
        return [self._bound(value) for value in values]

    def _to_even(self, m: Module, lane: int, value: Value) -> _Rounded:
        """Add a product's rounding to an integer, to even if near a tie; return a `_Rounded`: its registered signals.

        The offset is already added, so that the fraction is truncated. If the fraction is next to 0, the even neighbour
        is below; if it is next to 1, the even neighbour is above. The fraction is next to 0 or 1 if all of its bits
        from weight ``2**(e - 24)`` upwards are equal. ``2**e`` is the weight of the highest bit of the tie's magnitude;
        for 1/2, ``e`` is -1.
        """
        shift, bands = self.recipe.shift, self.ranges.bands
        lowest, largest = self.parameters.outputs
        value = extended(value, shift + self.whole_bits + 1)
        whole, sign = value[shift:], value[-1] if lowest < 0 else Const(0, 1)

        def fraction(weight: int) -> Value:
            bit = shift + weight - SIGNIFICAND_BITS
            # If ties are first rounded down, products count as just below their value: all lower bits are ones.
            return value[bit] if bit >= 0 else Const(self.ties_down, 1)

        up = fraction(SIGNIFICAND_BITS - 1)
        highest = (2 * max(largest, -lowest) - 1).bit_length() - 2
        # The lowest bit of the odd product belongs to the tie's magnitude only if the tie is farther from 0.
        magnitude = [(whole[weight] if weight else up) ^ sign for weight in range(highest + 1)]
        equal = [named(fraction(weight) == up, "is_bit_equal") for weight in range(-1, SIGNIFICAND_BITS - 1)]
        pairs = list(zip(magnitude, equal, strict=False))
        enough = named(reduce(or_, _carry(pairs)), "is_magnitude_enough") if pairs else Const(1)
        near = enough & Cat(equal[len(pairs) :]).all()
        if bands.above and bands.below:
            near |= self._at_end(magnitude, [fraction(weight) for weight in range(-1, SIGNIFICAND_BITS)], value)
        near &= whole[0]
        low, beyond = whole[: self.whole_bits - 1], whole[self.whole_bits - 1 :]
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
        """Return a bit: the product is exactly as far from a tie as float32 still rounds to the tie.

        The fraction is then ``2**(e - 24)``. ``bits`` are its highest bits, with the lowest first.
        """
        chosen = Const(1)
        wanted: list[Value] = []
        for bit in reversed(magnitude):
            wanted.insert(0, chosen & bit)
            chosen = chosen & ~bit
        wanted.insert(0, chosen)
        first = Cat(bits) == Cat(wanted)
        return first & ~value[: max(0, self.recipe.shift - len(bits))].any()

    def _bound_even(self, value: _Rounded) -> Value:
        """Return the output for a rounded product: with the correction and the zero point added, saturated."""
        bits, (lowest, _) = self.aligned_bits, self.parameters.outputs
        low, high = (0, (1 << bits) - 1) if bits else (self.parameters.low, self.parameters.high)
        whole = Cat(value.whole, value.negative).as_signed()
        total = named(whole + value.round_up, "rounded_value")
        if self.zero:
            zero = Const(self.zero, signed(self.parameters.bits + 2))
            total = named(Cat(1, whole).as_signed() + Cat(value.round_up, zero).as_signed(), "rounded_value")
            total = total[1:].as_signed()
        below, above = (total[-1], total[bits:].any()) if bits else (total < low, total > high)
        inside = named(Mux(value.is_beyond | above, high, total[:bits] if bits else total), "value_below_limit")
        if lowest:  # otherwise no product is below: negative products are already 0
            inside = Mux(Mux(value.is_beyond, value.negative, below), low, inside)
        return self._from_low(inside) if bits else inside

    def _from_low(self, inside: Value) -> Value:
        """Return the output, in its own type, from a value that counts from the lower bound ``low``.

        The output bits above ``aligned_bits`` are constant.
        """
        low, bits = self.parameters.low, self.aligned_bits
        return Cat(inside[:bits] ^ (low % (1 << bits)), Const(low >> bits, signed(self.parameters.bits + 1)))

    def _bound(self, value: Value) -> Value:
        """Return the output for a product that includes the rounding offset: truncated, ties made even, saturated."""
        shift, bits = self.recipe.shift, self.aligned_bits
        low, high = self.parameters.low, self.parameters.high
        value = extended(value, shift + bits + 1)
        rounded = value[shift:].as_signed()
        whole = rounded
        if self.ranges.ties:
            fraction = value[:shift]
            tie = fraction.all() if self.ties_down else ~fraction.any()
            whole = Cat(Mux(tie, int(self.ties_down), rounded[0]), rounded[1:]).as_signed()
        if bits:
            # Relative to ``low``: a set sign means too small, set bits above mean too large. Neither depends on the
            # correction, which changes only the lowest bit.
            inside = named(
                Mux(rounded[-1], 0, Mux(rounded[bits:].any(), (1 << bits) - 1, whole[:bits])), "clamped_value"
            )
            return self._from_low(inside)
        # The correction makes an odd value even, relative to the zero point. The comparisons take it into account.
        below, above = (rounded < low, rounded >= high) if self.ties_down else (rounded <= low, rounded > high)
        return Mux(below, low, Mux(above, high, whole))


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """Registered signals of a rounded product: integer part, whether to add 1, sign, and overflow.

    The product is ``whole + round_up``. If ``is_beyond``, ``whole`` is too narrow for it, and the output saturates.
    """

    whole: Value
    round_up: Value
    negative: Value
    is_beyond: Value


def _carry(steps: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """Return a pair: the generate and propagate signals of a whole carry chain, from ``(generate, propagate)`` per bit.

    The lowest pair is first.
    """
    if len(steps) == 1:
        return steps[0]
    half = len(steps) // 2
    (low_generates, low_passes), (generates, passes) = _carry(steps[:half]), _carry(steps[half:])
    return named(generates | (passes & low_generates), "carry"), named(passes & low_passes, "carry_passes")
