"""Multiplication of a requantiser's sums by scale factors, in DSP slices or in LUTs, and the rounding offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from amaranth import Cat, Const, Module, Mux, Value, signed

from hwgen.devices import MultiplierSlice
from hwgen.gateware.arithmetic.slice_chain import slice_cascade
from hwgen.gateware.channels import Beats
from hwgen.gateware.cost import Cost, constant_adder_luts
from hwgen.gateware.lookup import delayed_unless_constant, named, registers
from hwgen.gateware.product_rows import ProductRows, extended
from hwgen.gateware.requantisation.output_rounding import OutputRounding
from hwgen.gateware.requantisation.recipe import ScalingPart
from hwgen.gateware.rounding import signed_bits


@dataclass(frozen=True)
class ScaledProducts(ScalingPart):
    """Requantiser's multiplier of biased sums by scale factors, which also adds the rounding offset."""

    rounding: OutputRounding

    @cached_property
    def bits(self) -> int:
        """Width in bits (signed) that holds every scaled product, with and without the rounding offset."""
        offset, half = self.rounding.offset, 1 << (self.recipe.operand_bits - 1)
        products = []
        for operands, left, factor in zip(self.ranges.operands, self.recipe.left, self.recipe.factor, strict=True):
            smallest, largest = operands
            products.append(max(smallest << left, -half) * factor)
            products.append(min(largest << left, half - 1) * factor)
        return signed_bits(min(products) + offset, max(products) + offset, *products)

    @property
    def _included_offset(self) -> int | None:
        """Rounding offset, an integer, that the first addition includes; ``None`` if it is added elsewhere."""
        return self.rounding.offset if self.rounding.offset_stage == "slice" else None

    @cached_property
    def rows(self) -> ProductRows:
        """`ProductRows` of the scaling multipliers if they are built from LUTs."""
        return ProductRows(
            operand_bits=self.recipe.operand_bits,
            factor_bits=max(self.recipe.factor).bit_length(),
            offset=self._included_offset,
            product_bits=self.bits,
            unused_bits=self.rounding.unused_bits,
        )

    @property
    def _piece(self) -> int:
        """Number of bits of a divided operand that one DSP slice multiplies."""
        return self.recipe.multiplier_slice.cascade_shift

    @property
    def _in_luts(self) -> bool:
        """Whether LUTs multiply the sums by their scale factors."""
        return self.recipe.pieces > 0 and not self.recipe.in_slices

    @property
    def cycles(self) -> int:
        """Cycles from the operands of the scaling multiplier to the product with the rounding offset."""
        pieces = self.recipe.pieces
        multiply = self.rows.latency if self._in_luts else pieces + (pieces > 0)
        return multiply + (self.rounding.offset_stage == "late")

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        """Dictionary: table name (`Recipe.factor_name`) to a list, per lane, of tuples with a factor per beat."""
        recipe = self.recipe
        if not recipe.split_factor:
            return {recipe.factor_name(0): self.parameters.table(recipe.factor)}
        return {
            recipe.factor_name(piece): self.parameters.table(
                [(factor >> (piece * self._piece)) % (1 << self._piece) for factor in recipe.factor]
            )
            for piece in range(recipe.pieces // recipe.operand_pieces)
        }

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of all products per beat, as Yosys maps them; shifts and small products need none."""
        recipe, tables, total = self.recipe, self.tables, 0
        for operand_piece, factor_piece in recipe.steps if recipe.in_slices else ():
            bits = recipe.operand_piece_bits(operand_piece)
            columns = tables[recipe.factor_name(factor_piece)]
            total += sum(_takes_slice(self.parameters.multiplier_slice, bits, column) for column in columns)
        return total * self.parameters.pixels

    def count(self, cost: Cost, *, has_table: bool) -> None:
        """Add to ``cost`` the LUTs and flip-flops of the scaled products, without tables and DSP slices."""
        recipe, unused_bits = self.recipe, self.rounding.unused_bits
        cost.lut += self.values * recipe.operand_bits * (has_table and not recipe.pieces)
        for column in self.tables["factor"] if self._in_luts else ():
            self.rows.count(cost, column, self.parameters.pixels)
        for step, (pieces, later) in enumerate(pairwise(recipe.steps)):
            if sum(later) > sum(pieces):
                low = min(self._piece, max(0, (sum(pieces) + 1) * self._piece - unused_bits))
                cost.delay(self.values * low, recipe.pieces - 1 - step)
        if recipe.in_slices:
            self._count_slices(cost)
        if self.rounding.offset_stage == "late":
            # Bits below the half pass the adder unchanged. Without ties, no logic reads them.
            cost.ff += self.values * (self.bits - unused_bits)
            cost.lut += self.values * constant_adder_luts(self.rounding.offset, self.bits)

    def _count_slices(self, cost: Cost) -> None:
        """Add registers and adders of products and sums to ``cost`` if the family's DSP slices lack them."""
        recipe, bits = self.recipe, 0
        factor_bits = max(recipe.factor).bit_length()
        for step, (operand_piece, _) in enumerate(recipe.steps):
            width = recipe.operand_piece_bits(operand_piece)
            product = width + min(factor_bits, self._piece if recipe.split_factor else factor_bits)
            shifted = step and sum(recipe.steps[step]) > sum(recipe.steps[step - 1])
            bits = max(product, bits - self._piece * bool(shifted)) + 1
            cost.in_slices(self.values * (product + bits + step * width), self.values * bits)

    def add_to(self, m: Module, beats: Beats, operands: list[list[Value]], cycle: int) -> list[Value]:
        """Add the scaling multipliers; return a list with each lane's product plus rounding offset.

        ``operands`` are grouped by step of the cascade. Step ``n``'s are valid ``n`` cycles after ``cycle``.
        """
        values = self._products(m, beats, operands, cycle)
        if self.rounding.offset_stage != "late":
            return values
        offset = self.rounding.offset
        zeros = (offset & -offset).bit_length() - 1
        values = [extended(value, zeros + 1) for value in values]
        upper = [named(value[zeros:].as_signed() + (offset >> zeros), "upper_product") for value in values]
        moved = [Cat(value[:zeros], high).as_signed() for value, high in zip(values, upper, strict=True)]
        return registers(m, "product_with_offset", moved, signed(self.bits))

    def _products(self, m: Module, beats: Beats, operands: list[list[Value]], cycle: int) -> list[Value]:
        recipe = self.recipe
        factors = {name: beats.read(name, cycle + step) for name, step in recipe.factor_reads.items()}
        if recipe.in_slices:
            return [
                self._add_cascade(m, lane, values, {name: of_lanes[lane] for name, of_lanes in factors.items()})
                for lane, values in enumerate(zip(*operands, strict=True))
            ]
        pairs = list(zip(operands[0], factors["factor"], strict=True))
        if self._in_luts:
            return [self.rows.multiply(m, lane, *pair) for lane, pair in enumerate(pairs)]
        return [Mux(factor, value, 0) if 0 in recipe.factor else value for value, factor in pairs]

    def _add_cascade(self, m: Module, lane: int, operands: Sequence[Value], factors: dict[str, Value]) -> Value:
        """Add the cascade of DSP slices that computes a lane's product, one cycle per slice; return the product.

        ``factors`` are by table, as of the first step.
        """
        names = f"product_{lane}_{{}}", f"partial_product_{lane}_{{}}", f"product_low_{lane}_{{}}"
        pairs, total = self._cascade_factors(m, lane, operands, factors), Const(self._included_offset or 0)
        product, _ = slice_cascade(m, names, self.recipe.steps, pairs, total, self._piece)
        return product[: self.bits].as_signed()

    def _cascade_factors(
        self, m: Module, lane: int, operands: Sequence[Value], factors: dict[str, Value]
    ) -> Iterator[tuple[Value, Value]]:
        """Yield the pieces of the clamped sum and of the factor that each DSP slice of a lane's cascade multiplies."""
        recipe = self.recipe
        for step, (operand_piece, factor_piece) in enumerate(recipe.steps):
            left, width = operands[step], recipe.operand_piece_bits(operand_piece)
            if width < recipe.operand_bits:
                start = operand_piece * self._piece
                top = start + width == recipe.operand_bits
                left = left[start:].as_signed() if top else left[start : start + width]
            name = recipe.factor_name(factor_piece)
            waited = step - recipe.factor_reads[name]
            yield left, delayed_unless_constant(m, f"factor_{lane}_{step}", factors[name], waited)


def _takes_slice(multiplier_slice: MultiplierSlice, operand_bits: int, factors: Sequence[int]) -> bool:
    """Return whether Yosys maps a product with the possible ``factors`` to a DSP slice instead of LUTs."""
    bits = max(factors).bit_length()
    if len(set(factors)) == 1 and bits:
        bits -= (factors[0] & -factors[0]).bit_length() - 1  # trailing zeros of a constant are wiring
    return multiplier_slice.multiplies(operand_bits, bits)
