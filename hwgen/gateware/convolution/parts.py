"""Configuration of a convolution's arithmetic with all its sub-configurations, each made from those that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hwgen.gateware.convolution.multiplier_units import ChainLayout, MultiplierKinds, MultiplierUnits
from hwgen.gateware.convolution.parameters import ConvolutionParameters
from hwgen.gateware.convolution.sum_pipeline import LutDots, SumPipeline
from hwgen.gateware.convolution.weight_memories import WeightMemories


@dataclass(frozen=True, kw_only=True)
class ConvolutionParts(ConvolutionParameters):
    """Parameters of a convolution's arithmetic, with the sub-configurations that follow from them."""

    @cached_property
    def kinds(self) -> MultiplierKinds:
        """`MultiplierKinds` that the convolution uses, with their operands, and the chains of multiply-adds."""
        return MultiplierKinds(self)

    @property
    def chains(self) -> ChainLayout:
        """`ChainLayout`: division of an output channel's products among chains of multiply-adds."""
        return self.kinds.chains

    @cached_property
    def units(self) -> MultiplierUnits:
        """`MultiplierUnits` of the convolution, and the output channels and pixels that each serves."""
        return MultiplierUnits(self, self.kinds)

    @cached_property
    def dots(self) -> LutDots:
        """`LutDots`: layout of the dot products that are built from LUTs, for the output lanes not in DSP slices."""
        return LutDots(self, self.kinds)

    @cached_property
    def pipeline(self) -> SumPipeline:
        """Pipeline (`SumPipeline`) from operands to sums: bit widths, registers and cycles of each stage."""
        return SumPipeline(self, self.kinds, self.units, self.dots)

    @cached_property
    def weight_words(self) -> WeightMemories:
        """Weight memories (`WeightMemories`) of the convolution: their widths and words."""
        return WeightMemories(self, self.units)
