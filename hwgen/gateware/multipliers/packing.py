"""Base class of multipliers that compute several products in one DSP slice, in separate fields of its result.

A unit multiplies packed weights, ``sum(w[i] << i * lane_shift)``, by packed activations, ``sum(a[j] << j *
pixel_shift)``. The product is the sum of all ``(w[i] * a[j]) << (i * lane_shift + j * pixel_shift)``. A field begins at
each of these shifts. Fields are signed. A negative field borrows from the field above it, so that the upper field lacks
the carry that is the highest bit of the lower field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from amaranth import Cat, Const, Shape, Signal, Value

from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier, Operands

#: Maximum width of an activation and of a weight of a `BytePair`, in bits.
LARGEST_BITS = 8

#: Minimum width of the upper of two packed operands, in bits.
MIN_UPPER_BITS = 3


def peak(shape: Shape) -> int:
    """Return the largest magnitude of an integer of the given Amaranth shape."""
    return 1 << (shape.width - 1) if shape.signed else (1 << shape.width) - 1


class PackedFields(Multiplier):
    """Base class of multipliers whose DSP slices multiply ``lanes`` packed weights by ``pixels`` packed activations.

    At most two weights and two activations are packed.
    """

    carries = True
    lane_shift: ClassVar[int] = 0
    """Distance between the fields of two weights in a DSP slice's result, in bits."""
    pixel_shift: ClassVar[int] = 0
    """Distance between the fields of two activations in a DSP slice's result, in bits."""
    slice_bits: ClassVar[int] = 0
    """Required width in bits of a DSP slice's wide operand, if only wide slices have room for the fields; else 0."""
    max_units: ClassVar[int]
    """Maximum number of DSP slices in a chain, for operands of any width."""

    @property
    def field_distance(self) -> int:
        """Distance between the lowest bits of neighbouring product fields in a DSP slice's result, in bits."""
        return self.pixel_shift or self.lane_shift

    @property
    def shifts(self) -> list[int]:
        return [
            lane * self.lane_shift + pixel * self.pixel_shift
            for lane in range(self.lanes)
            for pixel in range(self.pixels)
        ]

    def longest_chain(self, chain: int, operand: Shape, weight_bits: int) -> int:
        largest = max(map(abs, self.weight_range(weight_bits))) * peak(operand)
        return max(min(chain, self.max_units, ((1 << (self.field_distance - 1)) - 1) // largest), 1)

    # Activations

    @property
    def port_bits(self) -> int:
        return self.slice_bits or max(self.lane_shift, self.pixel_shift) + MIN_UPPER_BITS

    def packed(self, activations: Sequence[Value]) -> Value:
        if len(activations) == 1:
            return activations[0]
        lower, upper = activations
        distance = self.pixel_shift - len(lower)
        if not lower.shape().signed:
            return Cat(lower, Const(0, distance), upper)
        return Cat(lower, lower[-1].replicate(distance), upper + lower[-1:].as_signed()).as_signed()

    def packed_shape(self, operand: Shape) -> Shape:
        if self.pixels == 1:
            return operand
        return Shape(self.pixel_shift + operand.width + operand.signed, operand.signed)

    # Weights

    def upper_bits(self, operands: Operands) -> int:
        """Return the width in bits of the upper weight's field in a memory word of two packed weights.

        The field holds the upper weight, less one if the lower weight is negative.
        """
        return operands.weight_bits + (operands.weight_range[0] - 1 < -1 << (operands.weight_bits - 1))

    def unit_bits(self, operands: Operands) -> int:
        return operands.weight_bits + (self.upper_bits(operands) if self.lanes == 2 else 0)

    def stored(self, weights: np.ndarray, operands: Operands) -> np.ndarray:
        """Return an array of words that pack two channels' weights; the upper is one less if the lower is negative.

        The upper field is ``((w1 << lane_shift) + w0) >> lane_shift``.
        """
        if self.lanes == 1:
            return super().stored(weights, operands)
        lower_mask, upper_mask = (1 << operands.weight_bits) - 1, (1 << self.upper_bits(operands)) - 1
        lower, upper = weights
        return (lower & lower_mask) | ((upper - (lower < 0)) & upper_mask) << operands.weight_bits

    def spread(self, stored: Value, weight_bits: int) -> Value:
        if self.lanes == 1:
            return super().spread(stored, weight_bits)
        lower, upper = stored[:weight_bits], stored[weight_bits:]
        return Cat(lower, lower[-1].replicate(self.lane_shift - len(lower)), upper).as_signed()

    def representative(self, operands: Operands) -> tuple[int, int]:
        """Return the widest weight range, a pair, with packed fields as wide as for ``operands``."""
        _, largest = self.weight_range(operands.weight_bits)
        unit_peak = operands.positions * peak(operands.activation)
        largest = min(largest, ((1 << self.field_bits(operands) - 1) - 2) // unit_peak)
        if self.upper_bits(operands) > operands.weight_bits:
            return max(-1 << (operands.weight_bits - 1), operands.weight_range[0]), largest
        return -largest, largest

    # Products and their sums

    def spread_bits(self, operands: Operands) -> int:
        return self.lane_shift + self.upper_bits(operands) if self.lanes == 2 else operands.weight_bits

    def product_bits(self, operands: Operands) -> int:
        shape = self.packed_shape(operands.activation)
        return self.spread_bits(operands) + shape.width + (not shape.signed)

    def chain_bits(self, operands: Operands, sum_bits: int) -> int:
        return self.shifts[-1] + self.field_bits(operands)

    def field_bits(self, operands: Operands) -> int:
        largest = max(map(abs, operands.weight_range)) * peak(operands.activation)
        # One bit more, because upper sums lack their carries.
        return 1 + (operands.positions * largest + 1).bit_length()

    def split(self, sums: Sequence[Signal], operands: Operands) -> list[tuple[list[Value], list[Value]]]:
        bits = self.field_bits(operands)
        return [
            (
                [value[shift : shift + bits].as_signed() for value in sums],
                [value[shift - 1] for value in sums] if shift else [],
            )
            for shift in self.shifts
        ]


class BytePair(PackedFields):
    """Base class of multipliers that compute two products of 8-bit operands per DSP slice; activations are signed."""

    largest_weight: ClassVar[int] = 127
    """Integer maximum magnitude of a weight: 127, or 128 if the packed operand has a bit for -128."""
    mark = "*"
    legend = "*: two MACs per DSP slice"
    detail = ", two multiply-adds each"

    @property
    def fallback(self) -> Multiplier:
        return DspSlice()

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        low, high = weight_range
        return -self.largest_weight <= low and high < 128 and activation_bits <= LARGEST_BITS

    def reason(self, channelwise: bool) -> str:
        return "weights below -127 or more than 8 bits" if self.largest_weight == 127 else "more than 8 bits"

    def check(self, demand: Demand) -> None:
        operands = demand.operands
        for name, bits in (("activations", operands.activation.width), ("weights", operands.weight_bits)):
            if bits > LARGEST_BITS:
                raise self.refused(f"where {name} have more than {LARGEST_BITS} bits (these have {bits})")
        worst = max(*operands.weight_range, key=abs)
        if abs(worst) > self.largest_weight:
            where = f"with weight {worst} of {demand.locate(worst)}"
            span = f"{-self.largest_weight} to {self.largest_weight}"
            raise ConfigError(f"macs_per_dsp can't be {self.name} {where}: it packs weights from {span}")

    def refused(self, where: str, why: str = "") -> ConfigError:
        """Return a `ConfigError`: a convolution needs ``macs_per_dsp`` 1 under condition ``where``, with a reason."""
        return ConfigError(f"macs_per_dsp must be 1 {where}, not {self.name}{': ' * bool(why)}{why}")

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        low, high = super().weight_range(weight_bits)
        return max(low, -self.largest_weight), high

    def offset(self, activation: Shape) -> int:
        return 0 if activation.signed else 1 << (activation.width - 1)

    def operand(self, activation: Shape) -> Shape:
        return Shape(activation.width, signed=True)
