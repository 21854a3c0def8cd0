"""Addition of accumulator and bias in a requantiser, with rounding to float32, left shift, and clamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth import Cat, Const, Module, Mux, Value, signed

from hwgen.gateware.channels import Beats
from hwgen.gateware.cost import Cost, constant_adder_luts
from hwgen.gateware.lookup import delayed, delayed_unless_constant, named, registers
from hwgen.gateware.requantisation.output_rounding import OutputRounding
from hwgen.gateware.requantisation.recipe import ScalingPart
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits


@dataclass(frozen=True)
class BiasedSums(ScalingPart):
    """Requantiser's adder of accumulators and biases, with rounding, left shift and clamp before the multiplier."""

    rounding: OutputRounding

    @property
    def _contained_offset(self) -> int:
        """Integer rounding offset that is added to the biases: 0 unless `OutputRounding.offset_stage` is "bias"."""
        return self.rounding.offset if self.rounding.offset_stage == "bias" else 0

    @property
    def bits(self) -> int:
        """Width in bits (signed) of accumulator plus bias, with the rounding offset that the bias may include."""
        return signed_bits(*(end + self._contained_offset for ends in self.ranges.sums for end in ends))

    @property
    def rounded_bits(self) -> int:
        """Width in bits (signed) of accumulator plus bias, after rounding to float32 if the requantiser does so."""
        return signed_bits(*(end for ends in self.ranges.operands for end in ends)) if self._rounds else self.bits

    @property
    def _shifted_bits(self) -> int:
        """Width in bits (signed) of accumulator plus bias after the left shift."""
        return self.rounded_bits + max(self.recipe.left) if self.recipe.clamp else self.recipe.operand_bits

    @property
    def _rounds(self) -> bool:
        """Whether sums are rounded to float32 before the product."""
        return self.ranges.rounded_bits > 0

    @property
    def has_pre_adders(self) -> bool:
        """Whether the pre-adder of each DSP slice adds the bias to the accumulator."""
        is_changed = any(self.recipe.left) or self.recipe.clamp or self._rounds
        return self.parameters.multiplier_slice.has_pre_adder and self.recipe.split_factor and not is_changed

    @property
    def cycles(self) -> int:
        """Cycles from a beat of accumulators to the operands of the scaling multiplier."""
        recipe = self.recipe
        return 2 + self.parameters.tables_in_block_ram + 2 * self._rounds + any(recipe.left) + recipe.clamp

    @property
    def reads(self) -> dict[str, int]:
        """Dictionary from table (``bias``, ``left``) to the cycles from a beat of accumulators to the table's entry."""
        left = {"left": self.cycles - self.recipe.clamp - 1} if any(self.recipe.left) else {}
        return {"bias": 1 + self.parameters.tables_in_block_ram, **left}

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        """Dictionary: table (``bias``, ``left`` shift) to a list, per lane, of tuples with an integer per beat."""
        biases = [bias + self._contained_offset for bias in self.parameters.bias]
        return {"bias": self.parameters.table(biases), "left": self.parameters.table(self.recipe.left)}

    def count(self, cost: Cost, *, has_bias_table: bool) -> None:
        """Add to ``cost`` the LUTs and flip-flops from accumulators to scaling operands, without the tables.

        A slice contains the last register of its operand.
        """
        parameters, recipe, in_slices = self.parameters, self.recipe, self.recipe.in_slices
        values, registered = self.values, parameters.tables_in_block_ram
        # Sums wait for their bias.
        cost.ff += values * parameters.accumulator_bits * registered
        if self.has_pre_adders:
            cost.ff += values * signed_bits(*parameters.bias) * (recipe.pieces - 1) * (has_bias_table and registered)
            return
        cost.in_slices(values * recipe.operand_bits * in_slices)
        cost.ff += values * parameters.accumulator_bits
        for column in self.tables["bias"]:
            bits = self.bits - parameters.fraction - 1  # the sign is the last carry
            constant = len(set(column)) == 1
            cost.lut += parameters.pixels * (
                constant_adder_luts(column[0] >> parameters.fraction, bits) if constant else bits
            )
        stages = [self.bits]  # widths of the registers of each stage
        if self._rounds:
            # Registers of the bits to drop, and of the sum; then the rounding.
            cost.ff += values * (self.ranges.rounded_bits + 1 + self.bits)
            cost.lut += values * (3 * self.ranges.rounded_bits + self.rounded_bits)
            stages.append(self.rounded_bits)
        if any(recipe.left):
            cost.multiplexer(values * self._shifted_bits, len(set(recipe.left)))
            stages.append(self._shifted_bits)
        if recipe.clamp:
            cost.lut += values * recipe.operand_bits
            stages.append(recipe.operand_bits)
        cost.ff += values * (sum(stages) - stages[-1] * in_slices)

    def add_to(self, m: Module, beats: Beats, values: Sequence[Value]) -> list[list[Value]]:
        """Add the sums of a beat's accumulators and biases; return nested lists of operands by DSP slice and lane.

        A slice's operands are valid one cycle after the previous slice's in the cascade, the first ones after `cycles`.
        """
        recipe, cycle = self.recipe, self.reads["bias"]
        biases = beats.read("bias", cycle)
        accumulators = [delayed(m, f"accumulator_{lane}", value, cycle) for lane, value in enumerate(values)]
        values = self._add_sums(m, accumulators, biases, 0)
        if self._rounds:
            values = self._add_rounding(m, values)
        if any(recipe.left):
            lefts = beats.read("left", self.reads["left"])
            shifted = [named(value << left, "shifted_sum") for value, left in zip(values, lefts, strict=True)]
            values = registers(m, "shifted", shifted, signed(self._shifted_bits))
        if recipe.clamp:
            clamped = [_clamp(value, recipe.operand_bits) for value in values]
            values = registers(m, "clamped", clamped, signed(recipe.operand_bits))
        operands = [list(values)]
        for piece in range(1, recipe.pieces):
            # If several slices multiply one sum, Yosys 0.66 moves the adder into one slice's pre-adder, and the other
            # slices have none. A separate adder per slice uses each pre-adder, at no cost.
            delayed_values = [delayed(m, f"operand_{lane}_{piece}", value, piece) for lane, value in enumerate(values)]
            own = self.has_pre_adders
            operands.append(self._add_sums(m, accumulators, biases, piece) if own else delayed_values)
        return operands

    def _add_sums(self, m: Module, accumulators: list[Value], biases: list[Value], delay: int) -> list[Value]:
        """Add adders of all lanes' accumulators and biases; return a list of sums, ``delay`` extra cycles later."""
        fraction, sums = self.parameters.fraction, []
        for lane, (accumulator, bias) in enumerate(zip(accumulators, biases, strict=True)):
            value = delayed(m, f"accumulator_{lane}_delayed", accumulator, delay)
            value = value.shift_left(fraction) if fraction else value
            sums.append(named(value + delayed_unless_constant(m, f"bias_{lane}_delayed", bias, delay), "biased_sum"))
        return registers(m, f"sum_{delay}" if delay else "sum", sums, signed(self.bits))

    def _add_rounding(self, m: Module, values: Sequence[Value]) -> list[Value]:
        """Add the rounding of all lanes' sums to 24 significant bits, ties to even; return a list, 2 cycles later.

        At most `SumRanges.rounded_bits` bits are dropped. To drop ``j`` bits, half of their range minus one is added,
        plus the lowest kept bit.
        """
        rounded = []
        for lane, value in enumerate(values):
            longer, odd = [], Const(0, 1)
            for j in range(1, self.ranges.rounded_bits + 1):  # at least j bits are dropped
                above = value[SIGNIFICAND_BITS + j - 1 :]
                longer.append(above.any() & ~above.all())
                odd = Mux(longer[-1], value[j], odd)
            dropped = delayed(m, f"dropped_bits_{lane}", Cat(longer), 1)
            odd = delayed(m, f"lowest_bit_{lane}", odd, 1)
            exact = delayed(m, f"sum_{lane}_delayed", value, 1)
            total = (Cat(1, exact).as_signed() + Cat(odd, dropped[1:]))[1:]
            rounded.append(Cat(total[: len(dropped)] & ~dropped, total[len(dropped) :]).as_signed())
        return registers(m, "rounded", rounded, signed(self.rounded_bits))


def _clamp(value: Value, bits: int) -> Value:
    """Return ``value`` saturated to a signed integer of ``bits`` bits."""
    sign, fits = value[-1], (value[bits - 1 :].all() | ~value[bits - 1 :].any())
    return Mux(fits, value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()
