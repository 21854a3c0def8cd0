"""Base class of a convolution's multipliers, which multiply activations by weights and sum products along a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from amaranth import Module, Shape, Signal, Value, signed

_COUNTS = {2: "two", 3: "three", 4: "four"}


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Operands of a convolution: shape of activations, and width and range of weights.

    Parameters
    ----------
    activation : Shape
        Shape of an activation, after the multiplier's offset is subtracted.
    weight_bits : int
        Width of a weight, two's complement, in bits.
    weight_range : tuple of int
        Smallest and largest weight.
    positions : int
        Number of products that the longest chain sums.
    weights_nonzero : bool, optional
        Whether no weight is 0, neither a stored weight nor a weight that can be loaded.
    """

    activation: Shape
    weight_bits: int
    weight_range: tuple[int, int]
    positions: int
    weights_nonzero: bool = False


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Properties of a convolution that decide whether a multiplier can compute its products.

    Parameters
    ----------
    operands : Operands
        Shapes and ranges of activations and weights.
    lanes, pixels : int
        Number of output channels, and of neighbouring output pixels, that are computed at once.
    channelwise : bool
        Whether every output channel reads an input channel of its own (depthwise convolution).
    locate : callable
        Function from a weight to the output channel, input channel and tap of its first occurrence, as text.
    """

    operands: Operands
    lanes: int
    pixels: int
    channelwise: bool
    locate: Callable[[int], str]


@dataclass(frozen=True)
class Multiplier(ABC):
    """Base class of a convolution's multipliers: their operands, their chains of sums, and their cost in DSP slices.

    A *unit* computes one product per cycle for each of ``lanes`` output channels and ``pixels`` neighbouring pixels.

    The output channels share the activations of the pixels, and the pixels share the weights. Units form chains: every
    unit adds its product to the previous unit's sum, one cycle later. At the end of a chain, `split` separates the
    sums of the output channels and pixels.
    """

    name: ClassVar[int | str]
    """Value of ``macs_per_dsp`` in plans and options that selects the multiplier."""
    lanes: ClassVar[int] = 1
    """Number of output channels per multiplier unit, whose products share an activation."""
    pixels: ClassVar[int] = 1
    """Number of neighbouring output pixels per multiplier unit, whose products share a weight."""
    slices: ClassVar[int] = 1
    """Number of DSP slices in a multiplier unit, which computes one product per output channel and cycle."""
    carries: ClassVar[bool] = False
    """Whether sums of chains lack a carry bit, which `split` returns separately and the caller must add later."""
    computes_windows: ClassVar[bool] = False
    """Whether, with this multiplier, a layer with constant weights sums a whole window in one tree of adders."""
    stores_weights: ClassVar[bool] = True
    """Whether the multiplier reads weights from a memory; otherwise they are constants in its logic."""
    mark: ClassVar[str] = ""
    """Sign printed after a layer's number of multipliers in the plan's table, for example ``*``."""
    legend: ClassVar[str] = ""
    """Line printed below the plan's table to explain `mark`, for example "*: two MACs per DSP slice"."""
    detail: ClassVar[str] = ""
    """Text printed after the number of multipliers in the report, for example ", two multiply-adds each"."""

    @property
    def fallback(self) -> Multiplier:
        """Multiplier to use instead for layers that this multiplier cannot compute; itself if it computes all."""
        return self

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        """Return whether the multiplier can compute a layer with this weight range and activation width.

        The layer computes ``lanes`` output channels at once. ``channelwise`` is true for a depthwise convolution.
        """
        return True

    def reason(self, channelwise: bool) -> str:
        """Return a noun phrase for the plan's notes: why a layer uses the `fallback` multiplier; empty if none does."""
        return ""

    def for_size(self, lanes: int, pixels: int) -> Multiplier:
        """Return this `Multiplier` if ``lanes`` output channels and ``pixels`` pixels at once fill one of its units.

        Otherwise return a `fallback` that they fill.
        """
        fills = lanes >= self.lanes and pixels >= self.pixels
        return self if fills else self.fallback.for_size(lanes, pixels)

    def for_rest(self, lanes: int, pixels: int) -> Multiplier:
        """Return the `Multiplier` of a layer's last unit, which gets ``lanes`` output channels and ``pixels`` pixels.

        The last unit can have fewer of them than the layer's other units, and packs its operands at the same distances.
        """
        return self.for_size(lanes, pixels)

    @abstractmethod
    def check(self, demand: Demand) -> None:
        """Raise ConfigError for a convolution that the multiplier cannot compute.

        Raises
        ------
        ConfigError
            If the convolution has other operands, or fewer output channels at once, than the multiplier needs.
        """

    def too_few(self, lanes: int, pixels: int, lut_lanes: int = 0) -> str:
        """Return the error message for a plan whose output channels and pixels at once are too few to fill a unit.

        ``lanes`` output channels are in DSP slices, and ``lut_lanes`` further ones in LUTs.
        """
        must = f"macs_per_dsp must be {self.for_size(lanes, pixels).name}"
        if lanes < self.lanes:
            out = f"unroll out {lanes + lut_lanes}{f' and lut_lanes {lut_lanes}' if lut_lanes else ''}"
            return f"{must} with {out}, not {self.name}: {_COUNTS[self.lanes]} output channels share a slice"
        return f"{must} with unroll pixels {pixels}, not {self.name}: {_COUNTS[self.pixels]} pixels share a slice"

    # Operands

    @property
    def shifts(self) -> list[int]:
        """List of the bit positions where products begin in a unit's result, ordered by weight, then by activation."""
        return [0]

    @property
    def port_bits(self) -> int:
        """Minimum width in bits of a DSP slice's wide port, to pack several operands there; 0 without packing."""
        return 0

    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        """Return the smallest and the largest supported weight of ``weight_bits`` bits, a pair of integers."""
        half = 1 << (weight_bits - 1)
        return -half, half - 1

    def offset(self, activation: Shape) -> int:
        """Return the value to subtract from activations before the product: 0, or plus or minus half their range."""
        return 0

    def operand(self, activation: Shape) -> Shape:
        """Return the Amaranth shape of an activation as it is multiplied, after the offset is subtracted."""
        return activation

    def is_soft(self, operand: Shape, weight_bits: int) -> bool:
        """Return whether synthesis builds products of operands of these widths from LUTs instead of DSP slices."""
        return self.slices == 0

    def packed(self, activations: Sequence[Value]) -> Value:
        """Return a unit's activation operand: its pixels' activations, packed into one value."""
        (activation,) = activations
        return activation

    def packed_shape(self, operand: Shape) -> Shape:
        """Return the Amaranth shape of a unit's packed activations, each of shape ``operand``."""
        return operand

    # Weights

    def unit_bits(self, operands: Operands) -> int:
        """Return the number of bits that the weights of one multiplier unit take in the weight memory."""
        return operands.weight_bits

    def stored(self, weights: np.ndarray, operands: Operands) -> np.ndarray:
        """Return a unit's weights as an array of memory words, shaped like one output channel's weights.

        ``weights`` has an array of weights, of any shape, for each output channel of the unit. The result has this
        shape.
        """
        (lane,) = weights
        return lane & ((1 << operands.weight_bits) - 1)

    def spread(self, stored: Value, weight_bits: int) -> Value:
        """Return a unit's weight operand, decoded from a word of the weight memory."""
        return stored.as_signed()

    def representative(self, operands: Operands) -> tuple[int, int]:
        """Return the widest weight range (lowest, highest) with the same circuit as ``operands``, to compare."""
        return self.weight_range(operands.weight_bits)

    # Chains

    def longest_chain(self, chain: int, operand: Shape, weight_bits: int) -> int:
        """Return the maximum number of multiplier units in a chain, if the plan allows ``chain`` units.

        ``operand`` is the shape of an activation operand, and ``weight_bits`` the width of a weight.
        """
        return chain

    def chain_cycles(self, positions: int) -> int:
        """Return the latency of a chain of ``positions`` multiplier units, minus one cycle.

        The latency counts from the operands of the first unit to the sum of the last unit.
        """
        return positions

    def spread_bits(self, operands: Operands) -> int:
        """Return the width of the weight operand that `spread` returns, in bits."""
        return operands.weight_bits

    def product_bits(self, operands: Operands) -> int:
        """Return the width of a multiplier unit's product, in bits."""
        operand = operands.activation
        return operands.weight_bits + operand.width + (not operand.signed)

    def chain_bits(self, operands: Operands, sum_bits: int) -> int:
        """Return the maximum width, in bits, of sums along a chain, if each output channel's sum fits ``sum_bits``."""
        return sum_bits

    def chain(
        self, m: Module, terms: Sequence[tuple[int, Value, Value]], product_bits: int, sum_bits: int, name: str
    ) -> Signal:
        """Add a chain of multiplier units to a module, and return the signal with the sum of their products.

        Every unit has a register for its product and a register for its sum with the previous unit:
        ``product <= activation * weight``, ``sum <= previous sum + product``.

        Parameters
        ----------
        m : Module
            Module that gets the chain.
        terms : sequence of (int, Value, Value)
            Position, activation operand and weight operand of every unit. The operands of a position arrive one cycle
            after the previous position's.
        product_bits, sum_bits : int
            Width of a product, and maximum width of a sum, in bits.
        name : str
            Prefix of signal names.
        """
        total = None
        for count, (position, activation, weight) in enumerate(terms):
            product = Signal(signed(product_bits), name=f"{name}_{position}_product", reset_less=True)
            width = min(product_bits + count.bit_length(), sum_bits)
            partial = Signal(signed(width), name=f"{name}_{position}_sum", reset_less=True)
            m.d.sync += product.eq(activation * weight)
            m.d.sync += partial.eq(product if total is None else total + product)
            total = partial
        assert total is not None
        return total

    def field_bits(self, operands: Operands) -> int | None:
        """Return the width in bits of one product's field in a chain's sum; ``None`` if a unit has one product."""
        return None

    def split(self, sums: Sequence[Signal], operands: Operands) -> list[tuple[list[Value], list[Value]]]:
        """Separate chains' sums by product; return, per product, a list of sums and a list of missing carries.

        The first output channel's products with each pixel come first, then the next output channel's.
        """
        return [([*sums], [])]
