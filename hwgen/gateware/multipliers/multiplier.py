"""Interface of a multiplier: the circuit that multiplies activations by weights and sums the products along a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from amaranth import Module, Shape, Signal, Value, signed

__all__ = ["Demand", "Multiplier", "Operands"]

_COUNTS = {2: "two", 3: "three", 4: "four"}


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Operands of the products along one chain.

    Parameters
    ----------
    activation : Shape
        Shape of an activation, before the multiplier's offset is subtracted.
    weight_bits : int
        Width of a weight, two's complement, in bits.
    weight_range : tuple of int
        Least and greatest weight.
    positions : int
        Number of products that the longest chain sums.
    """

    activation: Shape
    weight_bits: int
    weight_range: tuple[int, int]
    positions: int


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Facts of a convolution that decide whether a multiplier can compute its products.

    Parameters
    ----------
    operands : Operands
        Activations and weights.
    lanes : int
        Number of output channels that are computed at once.
    channelwise : bool
        Whether each output channel reads an input channel of its own (depthwise convolution).
    locate : callable
        Return the output channel, input channel and tap of the first weight of a value, as text.
    """

    operands: Operands
    lanes: int
    channelwise: bool
    locate: Callable[[int], str]


@dataclass(frozen=True)
class Multiplier(ABC):
    """Multiplier of a convolution: a *unit* makes one product for each of ``lanes`` output channels in every cycle.

    All products of a unit have the same activation. Units are chained: the sum of a unit is added by the next one, a
    cycle later. At the end of a chain, `split` gives each output channel its own sum.
    """

    name: ClassVar[int | str]
    """Value of ``macs_per_dsp`` in plans and options that selects the multiplier."""
    lanes: ClassVar[int] = 1
    """Number of output channels that share a unit."""
    slices: ClassVar[int] = 1
    """Number of DSP slices of a unit."""
    carries: ClassVar[bool] = False
    """Whether `split` gives sums that lack a carry, one for each chain."""
    computes_windows: ClassVar[bool] = False
    """Whether a layer whose weights are constants sums a whole window with its bias in one tree of adders."""
    mark: ClassVar[str] = ""
    """Sign behind the number of multipliers in the plan's table."""
    legend: ClassVar[str] = ""
    """Line below the plan's table that explains ``mark``."""
    detail: ClassVar[str] = ""
    """Words behind the number of multipliers in the report."""

    @property
    def fallback(self) -> Multiplier:
        """Multiplier of layers that this one refuses."""
        return self

    def accepts(self, weight_range: tuple[int, int], activation_bits: int, channelwise: bool) -> bool:
        """Return whether the multiplier can compute a layer with at least ``lanes`` output channels at once."""
        return True

    def reason(self, channelwise: bool) -> str:
        """Return why a layer gets `fallback`: a noun phrase, for the plan's notes."""
        return ""

    def for_lanes(self, lanes: int) -> Multiplier:
        """Return the multiplier of a layer or a unit of so many output channels: `fallback` if there are too few."""
        return self if lanes >= self.lanes else self.fallback

    @abstractmethod
    def check(self, demand: Demand) -> None:
        """Refuse a convolution that the multiplier can't compute.

        Raises
        ------
        ConfigError
        """

    def too_few(self, lanes: int) -> str:
        """Return why a plan is refused that has too few output channels at once."""
        must = f"macs_per_dsp must be {self.fallback.name} with unroll out {lanes}"
        return f"{must}, not {self.name}: {_COUNTS[self.lanes]} output channels share a slice"

    # Operands

    @abstractmethod
    def weight_range(self, weight_bits: int) -> tuple[int, int]:
        """Return the least and the greatest weight of ``weight_bits`` bits that the multiplier takes."""

    def offset(self, activation: Shape) -> int:
        """Return what is subtracted from an activation to make it the operand: 0 or half of its range."""
        return 0

    def operand(self, activation: Shape) -> Shape:
        """Return the shape of the operand for an activation."""
        return activation

    def is_soft(self, operand: Shape, weight_bits: int) -> bool:
        """Return whether synthesis builds the products of LUTs, not of DSP slices."""
        return self.slices == 0

    # Weights

    def unit_bits(self, operands: Operands) -> int:
        """Return the width of a unit's weights in memory, in bits."""
        return operands.weight_bits

    def stored(self, weights: Sequence[Sequence[int]], operands: Operands) -> list[int]:
        """Return the words in memory for a unit's weights, given for each of its output channels."""
        (lane,) = weights
        return [weight & ((1 << operands.weight_bits) - 1) for weight in lane]

    def spread(self, stored: Value, weight_bits: int) -> Value:
        """Return the weight operand for a word of memory."""
        return stored.as_signed()

    def representative(self, operands: Operands) -> tuple[int, int]:
        """Return weights that stand for all that give the same circuit: a least and a greatest one."""
        return self.weight_range(operands.weight_bits)

    # Chains

    def longest_chain(self, chain: int) -> int:
        """Return the largest number of units in a chain, where the plan allows ``chain``."""
        return chain

    def chain_cycles(self, positions: int) -> int:
        """Return the cycles from the operands of a chain's first unit to the registered product of its last one."""
        return positions

    def product_bits(self, operands: Operands) -> int:
        """Return the width of a unit's product, in bits."""
        operand = self.operand(operands.activation)
        return operands.weight_bits + operand.width + (not operand.signed)

    def chain_bits(self, operands: Operands, sum_bits: int) -> int:
        """Return the largest width of a sum along a chain, where a lane's sums fit ``sum_bits``."""
        return sum_bits

    def chain(
        self, m: Module, terms: Sequence[tuple[int, Value, Value]], product_bits: int, sum_bits: int, name: str
    ) -> Signal:
        """Add a chain to a module and return its sum.

        Each unit registers its product and the sum of that product and the unit's before: ``product <= a * w`` and
        ``sum <= sum of the unit before + product``.

        Parameters
        ----------
        terms : sequence of (int, Value, Value)
            Position, activation operand and weight operand of each unit. Operands of a position arrive a cycle after
            those of the position before.
        product_bits, sum_bits : int
            Width of a product, and largest width of a sum.
        name : str
            Prefix of the names of signals.
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
        """Return the width of each lane's sum in a chain's; ``None`` where a lane's sum is the chain's."""
        return None

    def split(self, sums: Sequence[Signal], operands: Operands) -> list[tuple[list[Value], list[Value]]]:
        """Return, for each output channel of a unit, its sums in those of the chains, and the carries they lack."""
        return [([*sums], [])]
