"""Circuit that multiplies biased accumulators by a scale factor, significand and shift, that is set at run time.

A lane of a requantiser with run-time parameters is a `ScaleUnit`, followed by a
`hwgen.gateware.arithmetic.bound.Bound`::

    clip(rint(float32(float32(sum + bias) * significand / 2**shift)) + zero_point, low, high)

`hwgen.gateware.requantise` computes the same function with constants. `ScaleUnit` computes in floating point:

1. ``sum + bias`` is shifted left until its two highest bits differ, and rounded to 24 bits, ties to even. The result
   is a sign and a normalised mantissa of 24 bits.
2. Mantissa times significand is an exact product of 48 bits. A DSP48E1 multiplies 17 bits of the significand. The other
   7 bits are recoded to four digits from -2 to 2 (Booth; MacSorley 1961). Each digit is a row that LUTs add.
3. The exponent determines which bits of the product are whole. Outputs have 8 bits, so only 11 positions matter. A
   product above these positions saturates. A product below them is less than 1/2.
4. Rounding the product to float32 changes the output only next to ties (see `hwgen.gateware.requantise`). Such a
   product is at most half a float32 step below an odd integer plus 1/2, or above an even integer plus 1/2. It counts as
   the tie. The bits between the half and half a step are then all ones, or all zeros. The product is normalised, so
   half a step is at one of two positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.lookup import delayed, named, registered
from hwgen.gateware.rounding import SIGNIFICAND_BITS

BIAS_BITS, SHIFT_BITS = 32, 8
#: Number of low bits of the significand that LUTs multiply. The other 17 fit the narrow operand of a DSP slice.
_LUT_BITS = 7
_PRODUCT_BITS = 2 * SIGNIFICAND_BITS
#: Width of the sum of an accumulator and its bias, without sign, in bits.
_TOTAL_BITS = 32
#: Number of product bits, from the highest one down, that can have the weight 1/2. If the bit of weight 1/2 lies lower,
#: the output saturates. If it lies higher, the output is 0.
PLACES = 10
#: Index of the lowest product bit that can have the weight 1/2.
_UPPER = _PRODUCT_BITS - PLACES
#: Value of ``shift`` plus the sum's left shift that gives product bit ``_UPPER`` the weight 1/2. Without a left
#: shift, the mantissa's lowest bit has the weight ``2**8``.
_FIRST_PLACE = _UPPER + 1 + _TOTAL_BITS - SIGNIFICAND_BITS


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(OnDevice):
    """Configuration of `ScaleUnit`, the circuit that scales accumulators by factors that are known only at run time.

    Parameters
    ----------
    sum_bits : int
        Width of a sum, signed: at most 32.

    Raises
    ------
    ConfigError
        If the width is out of range.
    """

    sum_bits: int = 32

    #: Cycles from the input of a sum to the input of its significand and shift.
    scale_cycle = 4
    #: Cycles from the input of a sum to its scaled and rounded result.
    latency = 10

    def __post_init__(self) -> None:
        if not 1 <= self.sum_bits <= _TOTAL_BITS:
            raise ConfigError(f"sum_bits must be from 1 to {_TOTAL_BITS}, not {self.sum_bits!r}")

    @cached_property
    def resources(self) -> Resources:
        """`Resources` of one `ScaleUnit`, as measured with Yosys: one DSP slice, LUTs and flip-flops.

        Only one adder depends on a width, ``sum_bits``.
        """
        return Cost(self.device, dsp=1, lut=332, ff=307).resources

    def component(self) -> ScaleUnit:
        return ScaleUnit(self)


class ScaleUnit(ConfiguredComponent[ScaleConfig]):
    """Scaler that outputs ``rint(float32(float32(sum + bias) * significand / 2**shift))`` as two numbers to be added.

    Parameters
    ----------
    config : ScaleConfig

    Members
    -------
    sum, bias : In
        Two's complement numbers.
    significand, shift : In
        Scale, ``config.scale_cycle`` cycles after its sum. The significand is from ``2**23`` to ``2**24 - 1``.
    whole, carry : Out
        Result ``whole + carry``, if the result is from -255 to 255. Otherwise any number beyond this range with the
        result's sign.

    Latency and throughput
        One sum per cycle, with a latency of ``config.latency`` cycles. Never stalls.
    """

    def __init__(self, config: ScaleConfig):
        super().__init__(
            config,
            {
                "sum": In(signed(config.sum_bits)),
                "bias": In(signed(BIAS_BITS)),
                "significand": In(SIGNIFICAND_BITS),
                "shift": In(SHIFT_BITS),
                "whole": Out(signed(PLACES + 1)),
                "carry": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        sign, shifted, rounded = self._elaborate_mantissa(m)  # 4 cycles after the sum
        # Rounding can carry to 2**24, where only the highest bit is set. Only a sum of 0 has no bit set.
        mantissa = Cat(
            rounded[: SIGNIFICAND_BITS - 1], named(rounded[SIGNIFICAND_BITS - 1 :].any(), "mantissa_top_bit")
        )
        product = self._elaborate_product(m, mantissa)
        fraction_bits, beyond = self._elaborate_fraction_bits(m, shifted, rounded[SIGNIFICAND_BITS])
        whole, up = self._elaborate_rounding(m, product, fraction_bits, beyond)
        sign = delayed(m, "sign", sign, 6)
        m.d.comb += self.whole.eq((whole ^ sign.replicate(len(whole) + 1)).as_signed())
        m.d.comb += self.carry.eq(up ^ sign)
        return m

    def _elaborate_mantissa(self, m: Module) -> tuple[Value, Value, Value]:
        """Add the normalisation of ``sum + bias``; return a triple: sign, left shift, rounded 25-bit mantissa."""
        total = registered(m, "biased_sum", self.sum + self.bias, signed(_TOTAL_BITS + 1))
        value, sign, shifts = total[:_TOTAL_BITS], total[-1], []
        for index, step in enumerate((8, 2)):
            value, sign, by = _normalise(m, f"normalised_{index}", value, sign, step)
            # These registers have a reset: a shift register would be too slow before the adder.
            waiting = [
                delayed(m, f"shift_{index}_{pending}", by, 1, reset_less=False) for pending, by in enumerate(shifts)
            ]
            shifts = [by, *waiting]
        # The last step, and rounding. A negative value is negated on the way: it is inverted, and 1 is added.
        last = named(value[-1] == sign, "is_last_digit_sign")
        value = named(Mux(last, value << 1, value)[:_TOTAL_BITS], "normalised_value")
        spare = _TOTAL_BITS - SIGNIFICAND_BITS
        up = value[spare - 1] & (value[: spare - 1].any() | value[spare])
        rounded = Signal(SIGNIFICAND_BITS + 1, name="rounded_mantissa", reset_less=True)
        kept = value[spare:] ^ sign.replicate(SIGNIFICAND_BITS)
        m.d.sync += rounded.eq((Cat(1, kept) + (up ^ sign))[1:])
        by = Signal(5, name="left_shift")
        m.d.sync += by.eq(Cat(last, *shifts))
        return delayed(m, "mantissa_sign", sign, 1), by, rounded

    def _elaborate_product(self, m: Module, mantissa: Value) -> Value:
        """Add the multiplier of the sum's mantissa by the scale's significand; return the 48-bit product.

        The product comes 4 cycles after its operands. Digit ``k`` of the low bits, from -2 to 2, has the weight
        ``4**k``. A negative row is inverted, and is therefore one too small until a carry corrects it in the addition
        of the next row.
        """
        digits = Cat(Const(0, 1), self.significand[:_LUT_BITS], Const(0, 1))
        total, done = _row(mantissa, digits[:3]), []
        factor = delayed(m, "significand_high", self.significand[_LUT_BITS:], 1)
        for digit in range(1, _DIGITS):
            row = _row(mantissa, digits[2 * digit : 2 * digit + 3])
            before = Cat(Const(1, 1), total).as_signed() + Cat(digits[2 * digit], Const(0, 2), row).as_signed()
            named(before, "row_sum_with_carry")
            rows = registered(m, f"row_sum_{digit}", before >> 1, signed(SIGNIFICAND_BITS + 5))
            if digit < _DIGITS - 1:
                done.append(delayed(m, f"product_low_{digit}", rows[:2], _DIGITS - digit))
                total = named(rows >> 2, "remaining_sum")
                mantissa = delayed(m, f"mantissa_{digit}", mantissa, 1)
                digits = delayed(m, f"digits_{digit}", digits, 1, reset_less=digit < _DIGITS - 2)
            if digit == 1:
                slice_mantissa = mantissa
        beside = _LUT_BITS - 2 * len(done)
        product = delayed(
            m,
            "product",
            delayed(m, "slice_mantissa", slice_mantissa, 1) * delayed(m, "slice_significand", factor, 1),
            1,
        )
        upper = registered(m, "product_high", product + rows[beside:-1], _PRODUCT_BITS - _LUT_BITS)
        return Cat(*done, delayed(m, "product_low_last", rows[:beside], 1), upper)

    def _elaborate_fraction_bits(self, m: Module, shifted: Value, carried: Value) -> tuple[Value, Value]:
        """Add the product's right shift; return a pair: the shift in bits, and a bit that the result saturates.

        The shift, at most 10, moves the bit of weight 1/2 to bit 0 of the ten highest bits of the product. Both results
        are available 4 cycles later.
        """
        fraction_bits = Signal(signed(SHIFT_BITS + 2), name="fraction_places", reset_less=True)
        m.d.sync += fraction_bits.eq(
            (Cat(Const(1, 1), self.shift) + Cat(~carried, shifted - _FIRST_PLACE - 1).as_signed()) >> 1
        )
        bounded = registered(m, "bounded_places", Mux(fraction_bits > PLACES, PLACES, fraction_bits), range(PLACES + 1))
        beyond = delayed(m, "is_beyond", fraction_bits[-1], 1)
        return delayed(m, "bounded_places", bounded, 2), delayed(m, "is_beyond_delayed", beyond, 2)

    def _elaborate_rounding(
        self, m: Module, product: Value, fraction_bits: Value, beyond: Value
    ) -> tuple[Value, Value]:
        """Add rounding of the scaled product; return a pair, 2 cycles later: its integer part and a bit to add."""
        upper, lower = product[_UPPER:], product[:_UPPER]
        # Bits below the half and above half a float32 step: bits that are always there, and bits that depend on the
        # shift.
        step = SIGNIFICAND_BITS - 1
        between = [*lower[step + 1 :]]
        between_ones = [*between, *(upper[bit] | (fraction_bits <= bit) for bit in range(PLACES - 1))]
        between_bits = [*between, *(upper[bit] & (fraction_bits > bit) for bit in range(PLACES - 1))]
        kept = delayed(m, "shifted_product", upper >> fraction_bits, 1)
        ones = _register_all_ones(m, "fraction_ones", between_ones)
        zeros = _register_all_ones(m, "fraction_zeros", [~bit for bit in between_bits])
        below = _register_all_ones(m, "low_zeros", [~bit for bit in lower[: step - 1]])
        at_step, under_step = delayed(m, "step_bit", lower[step], 1), delayed(m, "half_step_bit", lower[step - 1], 1)
        top = delayed(m, "product_top_bit", upper[-1], 1)
        beyond = delayed(m, "is_saturated", beyond & upper[-2:].any(), 1)
        above_even = zeros & Mux(top, ~at_step | (~under_step & below), ~at_step & (~under_step | below))
        below_odd = ones & at_step & (top | under_step)
        half, odd = kept[0], kept[1]
        up = Mux(half, odd | ~above_even, odd & below_odd)
        whole = Cat(kept[1:-1], kept[-1] | beyond)
        return delayed(m, "whole", whole, 1), delayed(m, "round_up", up, 1)


#: Number of Booth digits, each from -2 to 2, that represent the significand's low bits.
_DIGITS = _LUT_BITS // 2 + 1


def _normalise(m: Module, name: str, value: Value, sign: Value, step: int) -> tuple[Value, Value, Value]:
    """Add a shift left by 0 to 3 times ``step`` bits that drops only copies of ``sign``; return value, sign and steps.

    Return the shifted value, its sign, and the number of steps, all a cycle later.
    """
    same = [named(value[-steps * step :] == sign.replicate(steps * step), "is_only_sign") for steps in (1, 2, 3)]
    by = Cat(named(same[2] | (same[0] & ~same[1]), "is_odd_shift"), same[1])
    width = len(value)
    one, two, three = ((value << steps * step)[:width] for steps in (1, 2, 3))
    result = Mux(by[1], Mux(by[0], three, two), Mux(by[0], one, value))
    return delayed(m, name, result, 1), delayed(m, f"{name}_sign", sign, 1), delayed(m, f"{name}_shift", by, 1)


def _row(mantissa: Value, digit: Value) -> Value:
    """Return a Booth row: mantissa times digit (-2 to 2, three overlapping bits); 1 too small if ``digit[2]``.

    The result is a two's complement number. The caller adds the missing 1.
    """
    one, negative = digit[0] ^ digit[1], digit[2]
    two = (digit[0] == digit[1]) & (digit[1] != digit[2])
    size = named(Mux(one, mantissa, Mux(two, mantissa << 1, 0)), "digit_multiple")
    inverted = named(size[: len(mantissa) + 1] ^ negative.replicate(len(mantissa) + 1), "digit_row")
    return Cat(inverted, negative).as_signed()


def _register_all_ones(m: Module, name: str, bits: Sequence[Value]) -> Value:
    """Return a bit that is 1 if all ``bits`` were 1 a cycle ago; registers hold the ANDs of up to six bits each.

    Each group of six bits has a register.
    """
    groups = [reduce(and_, bits[start : start + 6]) for start in range(0, len(bits), 6)]
    return named(delayed(m, name, Cat(groups), 1).all(), "all_set")
