"""Requantisation of accumulators to a layer's output type: bias, scale, rounding, zero point and saturation.

The product is exact, so operations can be rearranged as long as every output stays equal. The configuration searches
for the cheapest arrangement before any hardware exists (`hwgen.gateware.requantisation.recipe`):

- Channels with different shifts share one common shift. The difference goes into the significand while the multiplier
  has spare bits, and the rest into a barrel shifter.
- Accumulators that saturate anyway are clamped before the multiplier, if this saves a DSP slice.
- Rounding adds one half and truncates. The correction of ties to even exists only if a tie can occur between the two
  bounds. With a significand of many odd digits, no tie can occur.
- The C port of the first DSP slice adds the half and the zero point.

If DSP slices are scarcer than LUTs, LUTs can compute the product (``products_in``). Two bits of the factor select one
row, and a pipelined adder tree adds the rows, the half and the zero point.

Outputs of 8 bits are rounded twice, as in ONNX Runtime: to float32, then to an integer. The hardware does not round the
product to float32. Between ``n`` and ``n + 1``, float32 numbers have a distance of ``2**(e - 23)``, with
``e = floor(log2(n + 1/2))``. The tie ``n + 1/2`` is one of these numbers. A product within half this distance of the
tie therefore becomes the tie. The ends of this band are included: the other candidate there has an odd significand.
Below 1/2, the distance is half as large, but the output is 0 in both cases. Only products in a band need a
correction, to the even neighbour. Sums of ``2**24`` and more are rounded to float32 before the multiplier. Both
corrections exist only if some sum needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux

from hwgen.gateware.channels import Beats, ChannelsComponent, beat_values
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import registers
from hwgen.gateware.requantisation.biased_sums import BiasedSums
from hwgen.gateware.requantisation.output_rounding import OutputRounding
from hwgen.gateware.requantisation.ranges import RequantiseParameters, SumRanges
from hwgen.gateware.requantisation.recipe import Recipe, cheapest_recipe
from hwgen.gateware.requantisation.scaled_products import ScaledProducts


@dataclass(frozen=True, kw_only=True)
class RequantiseConfig(RequantiseParameters):
    """Configuration of a requantiser: ``clip(round((acc + bias) * significand / 2**shift) + zero_point, low, high)``.

    Rounding is to the nearest integer, ties to even. `RequantiseParameters` describes the parameters.
    """

    @cached_property
    def ranges(self) -> SumRanges:
        """Sum ranges (`SumRanges`) per channel: accumulator plus bias, and the scales and ties that follow."""
        return SumRanges(self)

    @cached_property
    def recipe(self) -> Recipe:
        """`Recipe`: shifts, clamp and multiplier that compute the scaling exactly, with the fewest DSP slices."""
        return cheapest_recipe(self, self.ranges)

    @cached_property
    def rounding(self) -> OutputRounding:
        """`OutputRounding`: the requantiser's last part, which rounds products to outputs and saturates them."""
        return OutputRounding(self, self.ranges, self.recipe)

    @cached_property
    def sums(self) -> BiasedSums:
        """`BiasedSums`: the requantiser's first part, which adds biases to accumulators."""
        return BiasedSums(self, self.ranges, self.recipe, self.rounding)

    @cached_property
    def products(self) -> ScaledProducts:
        """`ScaledProducts`: the requantiser's multipliers, which scale the biased sums by the channels' factors."""
        return ScaledProducts(self, self.ranges, self.recipe, self.rounding)

    @cached_property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        return {**self.sums.tables, "present": self.present, **self.products.tables}

    @property
    def latency(self) -> int:
        """Cycles from a beat of accumulators to the beat of requantised outputs."""
        return self.sums.cycles + self.products.cycles + self.rounding.cycles

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the requantiser, as Yosys counts them; 0 if LUTs compute the products."""
        return self.products.multipliers

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device, dsp=self.multipliers)
        beat = counter_bits(len(self.beats)) * self.needs_beat_index
        cost.ff += beat + self.latency
        cost.lut += beat
        factors = {name: self.sums.cycles + step for name, step in self.recipe.factor_reads.items()}
        reads = {**self.sums.reads, **factors, "present": self.latency - 1}
        varying = {name: cycle for name, cycle in reads.items() if self._add_table_cost(cost, name)}
        cost.ff += beat * (max([reads["bias"], *varying.values()]) - reads["bias"])
        self.sums.count(cost, has_bias_table="bias" in varying)
        self.products.count(cost, has_table="factor" in varying)
        self.rounding.count(cost, self.products.bits)
        cost.known = cost.lut  # adders and comparisons take a LUT per bit in each family
        return cost.resources

    def component(self) -> Requantise:
        return Requantise(self)


class Requantise(ChannelsComponent[RequantiseConfig]):
    """Component that requantises accumulators: scales them, rounds to nearest even, adds the zero point, saturates.

    Parameters
    ----------
    config : RequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Outputs. Lanes without a channel are 0.

    Latency and throughput
        One beat per cycle, with a latency of ``config.latency`` cycles. Never stalls. The first beat after a reset is
        the first beat of a pixel.

    Number range
        Every accumulator of ``accumulator_bits`` bits has the result that ``config.compute`` defines. No intermediate
        value overflows.

    Stages:

    =====================================  ==============================================
    stage                                  cycles
    =====================================  ==============================================
    addition of the bias                   2, or 3 if the tables are in block RAM
    rounding of the sum to 24 bits         2, if needed
    left shift                             1, if the recipe has one
    clamp                                  1, if the recipe has one
    product in ``n`` DSP slices            ``n + 1``
    product in LUTs                        ``config.products.cycles``
    late offset                            1, if the offset is added late
    correction of products next to ties    1, if needed
    bounds                                 1
    =====================================  ==============================================
    """

    def elaborate(self, platform):
        m, config = Module(), self.config
        beats = Beats(m, config, self.i.valid)
        operands = config.sums.add_to(m, beats, beat_values(self.i))
        products = config.products.add_to(m, beats, operands, config.sums.cycles)
        bounded = config.rounding.add_to(m, products)
        present = beats.read("present", config.latency - 1)
        bounded = [Mux(here, value, 0) for value, here in zip(bounded, present, strict=True)]
        outputs = registers(m, "output", bounded, config.output)
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        m.d.comb += [port.eq(output) for port, output in zip(beat_values(self.o), outputs, strict=True)]
        return m
