"""Pipeline that sums a convolution's products: chains of multiply-adds, adder trees and accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hwgen.devices import SliceOperand, SliceTerm
from hwgen.gateware.arithmetic.slice_chain import MAX_REGISTERS
from hwgen.gateware.convolution.multiplier_units import MultiplierKinds, MultiplierUnits
from hwgen.gateware.convolution.parameters import ConvolutionParameters
from hwgen.gateware.multipliers import DotProducts, Multiplier
from hwgen.gateware.multipliers.packing import peak

#: Maximum number of values that the last tree level adds in a cycle, in a layer that computes whole windows.
LAST_LEVEL = 5


@dataclass(frozen=True)
class LutDots:
    """Dot products in LUTs of a convolution: the modules that compute them, and their latency."""

    parameters: ConvolutionParameters
    kinds: MultiplierKinds

    @cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Tuples of output lanes in LUTs that share activations: all such lanes, or one tuple per lane if depthwise."""
        lanes = range(self.parameters.slice_lanes, self.parameters.lanes)
        if self.parameters.window.channelwise:
            return tuple((lane,) for lane in lanes)
        return (tuple(lanes),) if lanes else ()

    def modules(self, lanes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return a tuple of the output lanes in each Verilog module of dot products for ``lanes``: all, or one each."""
        if self.kinds.in_luts.shares_adders:
            return (lanes,)
        return tuple((lane,) for lane in lanes)

    def products(self, lanes: Sequence[int]) -> DotProducts:
        """Return `DotProducts`: the description of the dot products in LUTs of output lanes that share activations."""
        parameters, chains = self.parameters, self.kinds.chains
        weight_range = self.kinds.in_luts.weight_range(parameters.weight_bits)
        bits, bias = [parameters.sum_bits] * len(lanes), ()
        if self.kinds.whole:
            bits = [min(parameters.whole_bits[lane], parameters.sum_bits) for lane in lanes]
            bias = tuple(parameters.bias[lane] for lane in lanes) if parameters.bias else ()
        elif parameters.accumulates:
            # Enough for every sum of the products of one cycle.
            largest = chains.products * max(map(abs, weight_range)) * peak(self.kinds.operand)
            bits = [min(parameters.sum_bits, largest.bit_length() + 1)] * len(lanes)
        return DotProducts(
            device=parameters.device,
            operand=self.kinds.operand,
            weight_bits=parameters.weight_bits,
            weight_range=weight_range,
            terms=tuple(len(chains.at(position)) for position in range(chains.positions)),
            sum_bits=tuple(bits),
            constants=None if self.kinds.in_luts.stores_weights else tuple(map(self._constants, lanes)),
            bias=bias,
        )

    def _constants(self, lane: int) -> tuple[tuple[int, ...], ...]:
        """Return an output lane's weights, a tuple per product (by chain position) with one weight per step (cycle)."""
        size, values = self.parameters.output_weights, self.parameters.weights.values
        steps = []
        for outputs in self.parameters.fold_outputs:
            channel = outputs[lane]
            for step in self.parameters.weight_indices:
                steps.append([0 if channel is None or i is None else int(values[channel * size + i]) for i in step])
        return tuple(zip(*steps, strict=True))

    @cached_property
    def cycles(self) -> int:
        """Maximum number of cycles from operands to sums of dot products in LUTs; 0 without such dot products.

        A register precedes the operands.
        """
        return max(map(self.latency, self.blocks), default=0)

    def latency(self, lanes: tuple[int, ...]) -> int:
        """Return the number of cycles from the operands to the sums of the output lanes ``lanes``."""
        return max(self.kinds.in_luts.latency(self.products(module)) for module in self.modules(lanes))


@dataclass(frozen=True)
class SumPipeline:
    """Registers, bit widths and cycles of a convolution's chains, adder trees and accumulators."""

    parameters: ConvolutionParameters
    kinds: MultiplierKinds
    units: MultiplierUnits
    dots: LutDots

    # Chains

    @cached_property
    def instantiated(self) -> bool:
        """Whether chains of DSP slices are instantiated (`SliceChain`) instead of inferred by synthesis."""
        chains = self.parameters.device.multiplier_slice.chains
        if chains is None or not self.parameters.slice_lanes or self.units.num_soft:
            return False
        return all(
            chains.fits(self._term(kind), kind.chain_bits(self.units.operands, self.parameters.sum_bits))
            for kind in self.units.slice_kinds
        )

    def _term(self, multiplier: Multiplier) -> SliceTerm:
        """Return a `SliceTerm`: widths in bits of activation and weight in a DSP slice without operand registers."""
        shape = multiplier.packed_shape(self.kinds.operand)
        return SliceTerm(
            activation=SliceOperand(bits=shape.width, signed=shape.signed, registers=0),
            weight=SliceOperand(bits=multiplier.spread_bits(self.units.operands), signed=True, registers=0),
        )

    def activation_registers(self, position: int) -> int:
        """Return the number of registers inside a DSP slice, before its activation input, at a chain position.

        It is 0 for slices that are not instantiated, because synthesis finds their registers.
        """
        return min(position + (not self.kinds.whole), MAX_REGISTERS) if self.instantiated else 0

    def weight_registers(self, position: int) -> int:
        """Return the number of registers between a chain position's weight word and its multipliers.

        One is the output register of block RAM, or of weights in LUTs if slices are instantiated, which then absorb
        the register. Words of joined memories are delayed, by one more register of the slices.
        """
        if self.parameters.weights_in_blocks:
            return 1 + (self.instantiated and self.parameters.weights_joined and position > 0)
        return int(self.reads_at_once)

    @property
    def reads_at_once(self) -> bool:
        """Whether LUT memories return a weight word in its address's cycle, without an output register."""
        return self.instantiated and not self.parameters.loaded and not self.parameters.weights_in_blocks

    @property
    def product_bits(self) -> int:
        """Width in bits of a product of an activation and a weight."""
        return self.kinds.operand.width + self.parameters.weight_bits

    def width_of(self, product_bits: int, terms: int) -> int:
        """Return the width in bits of the sum of a chain's first ``terms`` products, at most the accumulator's."""
        return min(product_bits + (terms - 1).bit_length(), max(self.parameters.sum_bits, product_bits))

    # Trees and accumulators

    @property
    def tree_levels(self) -> int:
        """Number of levels of the adder tree that sums an output channel's chains."""
        chains = self.kinds.chains.count
        if self.kinds.whole:
            levels, values = 1, chains + 1
            while values > LAST_LEVEL:
                levels, values = levels + 1, -(-values // 2)
            return levels
        # Each chain's carry needs an adder with a carry input. The tree has one adder less than the number of chains,
        # and the accumulator is a further adder. Without an accumulator, the last carry is a value of its own.
        left_over = self.kinds.in_slices.carries and not self.parameters.accumulates
        return (chains + left_over - 1).bit_length()

    @cached_property
    def accumulates_in_slices(self) -> bool:
        """Whether the last DSP slice of each chain accumulates, instead of an adder in LUTs.

        Sums of packed products do not fit their fields. The tree then adds accumulated sums, which are wider. This must
        not take more LUTs than the accumulator.
        """
        parameters, chains = self.parameters, self.parameters.device.multiplier_slice.chains
        if chains is None or not (parameters.accumulates and self.instantiated and chains.accumulates):
            return False
        if self.kinds.in_slices.carries or parameters.lut_lanes:
            return False
        return self._tree_bits(self._widths_of(True)) <= self._tree_bits(self._widths_of(False)) + parameters.sum_bits

    @property
    def has_accumulators(self) -> bool:
        """Whether adders in LUTs accumulate an output's sums over several cycles."""
        return self.parameters.accumulates and not self.accumulates_in_slices

    @property
    def chain_widths(self) -> list[int]:
        """List of widths in bits of the sums at the ends of a channel's chains, for products without DSP packing."""
        return self._widths_of(self.accumulates_in_slices)

    def _widths_of(self, accumulated: bool) -> list[int]:
        product = self.product_bits + (not self.kinds.operand.signed)
        bits = self.parameters.sum_bits
        return [bits if accumulated else self.width_of(product, terms) for terms in self.kinds.chains.lengths]

    def _tree_bits(self, widths: list[int]) -> int:
        """Return the total width in bits of all adders in a tree that sums values of ``widths`` bits."""
        bits = 0
        while len(widths) > 1:
            added, widths = self.add_pairs(widths)
            bits += sum(added)
        return bits

    def add_pairs(self, widths: list[int]) -> tuple[list[int], list[int]]:
        """Return a pair of lists: widths in bits of an adder tree level's sums, and of the next level's addends."""
        pairs = zip(widths[::2], widths[1::2], strict=False)
        added = [min(max(pair) + 1, self.parameters.sum_bits) for pair in pairs]
        return added, [*added, *(min(width, self.parameters.sum_bits) for width in widths[2 * len(added) :])]

    # Cycles

    @cached_property
    def to_sum(self) -> int:
        """Cycles from operands to the sum of the products of one cycle, before the accumulator."""
        return max(self.slices_to_sum if self.parameters.slice_lanes else 0, self.dots.cycles)

    @property
    def slices_to_sum(self) -> int:
        """Cycles from a cycle's operands to the sum of their products in DSP slices."""
        chain = self.kinds.in_slices.chain_cycles(self.kinds.chains.positions)
        return (not self.kinds.whole) + chain + self.tree_levels
