"""Base class of multipliers in LUTs, which compute the dot products of several output channels without DSP slices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from amaranth import Const, Module, Shape, Signal, Value, signed

from hwgen.gateware.component import OnDevice
from hwgen.gateware.cost import Cost
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier, Operands

Terms = Sequence[Sequence[Value]]
"""Operands of a dot product as Amaranth values, indexed by position in the chain, then by term at the position."""


@dataclass(frozen=True, kw_only=True)
class DotProducts(OnDevice):
    """Description of dot products of shared activations with several output channels' weights, in one cycle.

    The terms of a dot product are spread over *positions*. The operands of a position arrive one cycle after the
    previous position's, as in a chain of DSP slices.

    Parameters
    ----------
    operand : Shape
        Shape of an activation, after the multiplier's offset is subtracted.
    weight_bits : int
        Width of a weight, two's complement, in bits.
    weight_range : tuple of int
        Smallest and largest weight.
    terms : tuple of int
        Number of terms at each position.
    sum_bits : tuple of int
        Width of each output channel's sum, in bits. Sums wrap at this width.
    constants : tuple of tuple of tuple of int, optional
        Constant weights by output channel, term and step of the convolution; a layer that computes whole windows has
        one step. Terms are ordered by position. ``None`` if the weights are loaded at run time.
    bias : tuple of int
        Constant that is added to each output channel's sum; empty for none.
    """

    operand: Shape
    weight_bits: int
    weight_range: tuple[int, int]
    terms: tuple[int, ...]
    sum_bits: tuple[int, ...]
    constants: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    bias: tuple[int, ...] = ()

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return len(self.sum_bits)

    @property
    def operand_range(self) -> tuple[int, int]:
        """Smallest and largest activation after the offset is subtracted, a pair of integers."""
        bits = self.operand.width
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.operand.signed else (0, (1 << bits) - 1)

    @property
    def products(self) -> int:
        """Total number of products that all output channels compute per cycle."""
        return self.channels * sum(self.terms)


class DotOperands(NamedTuple):
    """Signals that a circuit of dot products reads, and the names that it gives its own.

    Parameters
    ----------
    activations : sequence of sequence of Value
        Operands by position and term. They come from registers.
    weights : sequence of sequence of sequence of Value
        Weights by output channel, position and term, signed; empty if the multiplier does not store weights.
    names : sequence of str
        Prefix of the signal names of each output channel.
    step : Value
        Index of the step whose operands of the first position arrive in this cycle; only if the multiplier has
        constants of several steps.
    """

    activations: Terms
    weights: Sequence[Terms]
    names: Sequence[str]
    step: Value = Const(0, 1)


class LutMultiplier(Multiplier):
    """Base class of multipliers that build the products and the adders of dot products from LUTs.

    A unit serves one output channel. Dot products of the same activations are computed together, so that they can share
    terms.
    """

    lanes = 1
    slices = 0
    shares_terms: ClassVar[bool] = False
    """Whether products take fewer LUTs each with more output channels, which then share partial sums."""
    shares_adders: ClassVar[bool] = True
    """Whether output channels share more than registers; otherwise, each channel has a module of its own.

    Synthesis merges equal registers of several modules, but not their adders in cells of the family.
    """

    lut4_ratio: ClassVar[float] = 2.2
    """Number of 4-input LUTs for each 6-input LUT, in Yosys netlists of products and their adder trees."""

    def check(self, demand: Demand) -> None:
        """Raise no error, because multipliers in LUTs can compute every convolution."""

    def offset(self, activation: Shape) -> int:
        return 0 if activation.signed else 1 << (activation.width - 1)

    def operand(self, activation: Shape) -> Shape:
        return Shape(activation.width, signed=True)

    def unit_bits(self, operands: Operands) -> int:
        return operands.weight_bits if self.stores_weights else 0

    def weight_shape(self, dots: DotProducts) -> Shape:
        """Return the Amaranth shape of a weight operand that `spread` decodes from the weight memory."""
        return signed(dots.weight_bits)

    def factor(self, weight: Value) -> Value:
        """Return the signed number that a weight operand encodes, as an Amaranth value."""
        return weight

    @abstractmethod
    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        """Return whether the multiplier supports operands of these widths and ranges, and constants per step.

        Parameters
        ----------
        operands : Operands
            Shapes and ranges of activations, before an offset is subtracted, and of weights.
        constant_steps : int or None
            Number of constants that each weight can be, one for each step of the convolution; ``None`` if weights are
            loaded at run time.
        """

    @abstractmethod
    def latency(self, dots: DotProducts) -> int:
        """Return the cycles from the operands of the first position to the registered sums of all output channels."""

    @abstractmethod
    def sums(self, m: Module, dots: DotProducts, operands: DotOperands) -> list[Signal]:
        """Add the circuit of the dot products to a module; return a list: each output channel's registered sum."""

    @abstractmethod
    def count(self, cost: Cost, dots: DotProducts) -> None:
        """Add to ``cost`` the LUTs and flip-flops of the circuit that `sums` adds."""
