"""Parts of the arithmetic of a convolution, each made from the parameters and the parts that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hwgen.gateware.convolution.multiplier_units import ChainLayout, MultiplierKinds, MultiplierUnits
from hwgen.gateware.convolution.parameters import ConvolutionParameters
from hwgen.gateware.convolution.sum_pipeline import LutDots, SumPipeline
from hwgen.gateware.convolution.weight_memories import WeightMemories


@dataclass(frozen=True, kw_only=True)
class ConvolutionParts(ConvolutionParameters):
    """Parameters of the arithmetic of a convolution with its parts, which know what follows from the parameters."""

    @cached_property
    def kinds(self) -> MultiplierKinds:
        """Kinds of multipliers with their operands, and the chains of multiply-adds."""
        return MultiplierKinds(self)

    @property
    def chains(self) -> ChainLayout:
        """Chains of multiply-adds, among which products are divided."""
        return self.kinds.chains

    @cached_property
    def units(self) -> MultiplierUnits:
        """Units of multipliers, among which output channels and pixels are divided."""
        return MultiplierUnits(self, self.kinds)

    @cached_property
    def dots(self) -> LutDots:
        """Dot products in LUTs."""
        return LutDots(self, self.kinds)

    @cached_property
    def pipeline(self) -> SumPipeline:
        """Pipeline from operands to sums: widths, registers and cycles."""
        return SumPipeline(self, self.kinds, self.units, self.dots)

    @cached_property
    def weight_words(self) -> WeightMemories:
        """Weight memories and their words."""
        return WeightMemories(self, self.units)
