"""Cost of a convolution's arithmetic: products, adder trees, accumulators, weight memories and delay lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hwgen.gateware.convolution.parts import ConvolutionParts
from hwgen.gateware.cost import Cost, Resources, constant_adder_luts, counter_bits, varying_columns
from hwgen.gateware.multipliers import Multiplier

#: Measured LUTs per bit of the last level of an adder tree, by its number of addends, bias included; for layers that
#: compute a whole window per cycle.
_LAST_LEVEL_LUTS = {2: 0.5, 3: 1.9, 4: 2.8, 5: 5.6}


class MultiplyCost:
    """Counter of the FPGA resources of a convolution's arithmetic; `resources` returns the total.

    Parameters
    ----------
    config : ConvolutionParts
        Configuration of the convolution.
    """

    def __init__(self, config: ConvolutionParts):
        self._config, self._units, self._sums = config, config.units, config.pipeline
        hard = config.units.slice_kinds.total() - config.units.num_soft
        self._cost = Cost(config.device, dsp=config.units.slices_of(hard))

    def resources(self) -> Resources:
        """Return the FPGA `Resources` of the convolution's whole arithmetic, weight memories included."""
        cost, config, sums = self._cost, self._config, self._sums
        self._count_products(self._units.num_soft)
        self._count_memories()
        cost.ff += sums.to_sum + 1 + 2 * sums.has_accumulators
        cost.delay(1, sums.to_sum)  # the flag of the last step
        positions = config.chains.positions
        if config.accumulates:
            cost.delay(1, positions if sums.accumulates_in_slices else sums.to_sum)  # the flag of the first step
        operands = config.operand_sets * config.products * config.window.pixels
        cost.lut += operands * bool(config.kinds.offset)  # an inverter per operand
        if config.kinds.whole:
            self._count_whole()
        else:
            self._count_slices()
        self._count_inside()
        for lanes in config.dots.blocks:
            self._count_dots(lanes)
        return cost.resources

    # Products

    @property
    def _adders(self) -> Iterator[tuple[int, int, int]]:
        """Iterator of triples, one per adder of a channel's chains: products in the sum, position, width of the sum."""
        chains, sums = self._config.chains, self._sums
        for terms in chains.lengths:
            for term in range(terms):
                yield term + 1, chains.positions - terms + term, sums.width_of(sums.product_bits, term + 1)

    def _count_products(self, units: int) -> None:
        """Add the LUTs of products that synthesis builds from LUTs, and of their chains, for ``units`` units.

        A DSP slice includes all of these.
        """
        cost = self._cost
        for terms, _, width in self._adders if units else ():
            cost.ff += units * (self._sums.product_bits + width)
            cost.lut += units * (width * (terms > 1) + self._product_luts)

    @property
    def _product_luts(self) -> float:
        """Measured number of LUTs per product of activation and weight, from both widths in bits.

        It is one LUT per bit if a LUT reads both operands, and fewer for a constant weight.
        """
        operand, weight = self._config.kinds.operand.width, self._config.weight_bits
        if self._config.rom_depth == 1:
            return 0.65 * (operand + weight)
        return {7: 12.0, 8: 1.6 * operand * weight}.get(operand + weight, operand + weight)

    def _count_inside(self) -> None:
        """Add registers of operands, products and sums, and adders, to the cost if the DSP slices lack them."""
        cost, config, units = self._cost, self._config, self._units
        sums = units.slice_kinds.total()
        operand_bits = config.operand_sets * config.window.pixels * config.kinds.operand.width
        for terms, position, width in self._adders:
            cost.in_slices(sums * (self._sums.product_bits + width), sums * width * (terms > 1))
            cost.in_slices(operand_bits * min(position + 1, 2))
            cost.in_slices(len(units.in_slices) * config.weight_bits * config.weights_in_blocks)

    def _count_dots(self, lanes: tuple[int, ...]) -> None:
        """Add the LUTs and FFs of dot products in LUTs for output lanes, all pixels, with their accumulators."""
        cost, config, multiplier = self._cost, self._config, self._config.kinds.in_luts
        one, dots = Cost(config.device), config.dots.products(lanes)
        multiplier.count(one, dots)
        pixels = config.window.pixels
        cost.products(pixels * one.lut, multiplier.lut4_ratio)
        cost.ff += pixels * one.ff
        registers = sum(count * self._sums.weight_registers(position) for position, count in enumerate(dots.terms))
        cost.ff += len(lanes) * registers * multiplier.unit_bits(self._units.operands)
        cost.delay_apart(pixels * sum(dots.sum_bits), self._sums.to_sum - config.dots.latency(lanes))
        if self._sums.has_accumulators:
            self._count_accumulators(pixels * len(lanes), max(dots.sum_bits))

    # Memories and delay lines

    def _count_memories(self) -> None:
        """Add to the cost the weight memories, their address registers, and the delay lines of activations."""
        cost, config, memories = self._cost, self._config, self._config.weight_words
        depth, ram = config.rom_depth, config.weight_memory
        for position, width in enumerate(memories.rom_widths):
            self._count_activations(config.operand_sets * len(config.chains.at(position)), position)
            if config.weights_joined:
                self._count_wait(width, position)
            elif config.loaded and ram == "lut":
                cost.ram(width, depth, "lut")
                cost.ff -= width * (depth == 1)  # a memory of one word is its own output register
            elif ram == "lut":
                columns = varying_columns(memories.position_words[position], width)
                cost.rom(columns, depth, width, block=False, registered=not self._sums.reads_at_once)
        enabled = config.weights_in_blocks
        for width in memories.block_widths if enabled else ():
            if ram == "ultra":
                cost.ram(width, depth, "ultra")
            else:
                cost.rom((), depth, width, block=True)
        address, count = counter_bits(depth), len(memories.widths)
        cost.lut += 1.2 * address + enabled
        if config.loaded and enabled:
            # The held address is the first delayed one as well. All memories are read in every cycle.
            cost.ff += address * max(2, count) + 1
            cost.lut += address + 2
        else:
            cost.ff += (address + enabled) * count

    def _count_activations(self, operands: int, position: int) -> None:
        """Add the delay registers of activations at ``position`` of multiply-add chains: ``operands`` per pixel.

        A DSP slice absorbs two registers, except of operands that products in LUTs read as well.
        """
        cost, config, units, operand = self._cost, self._config, self._units, self._config.kinds.operand
        absorbed = max(position - 1 - config.kinds.whole, 0)
        single, pixels = config.window.pixels, config.kinds.in_slices.pixels
        if config.slice_lanes and pixels > 1:
            pairs = sum(len(group) == pixels for group in units.pixel_groups)
            single -= pairs * pixels
            cost.delay(operands * pairs * pixels * operand.width, absorbed)
            cost.lut += operands * pairs * (operand.width * operand.signed)
        if config.lut_lanes:
            cost.delay(operands * config.window.pixels * operand.width, position + 1)
        else:
            cost.delay(operands * single * operand.width, absorbed)

    def _count_wait(self, width: int, position: int) -> None:
        """Add the flip-flops that delay the weights of a chain position if one joint memory stores all weights.

        The last register belongs to the DSP slice. If only one slice reads the weights, or slices are instantiated, the
        register before belongs to the slice as well.
        """
        one_reader = self._config.kinds.in_slices.lanes == self._config.window.pixels == 1
        self._cost.delay(width, max(position - (one_reader or self._sums.instantiated), 0))

    # Adder trees and accumulators

    def _sums_of(self, multiplier: Multiplier, index: int) -> tuple[list[int], int]:
        """Return a pair: list of widths (bits) of an output lane's chain sums, and number of carries to be added.

        Chains of packed DSP slices leave one carry each to be added. ``index`` is the index of the lane in its unit.
        """
        bits, chains = multiplier.field_bits(self._units.operands), self._config.chains.count
        if bits is None:
            return self._sums.chain_widths, 0
        return [bits] * chains, chains * (multiplier.carries and index > 0)

    def _count_slices(self) -> None:
        """Add the LUTs and FFs of adder trees and accumulators for the output lanes in DSP slices."""
        units = self._units
        sums = Counter(
            (len(unit), len(group), index)
            for unit in units.in_slices
            for group in units.pixel_groups
            for index in range(len(unit) * len(group))
        )
        for (lanes, pixels, index), count in sorted(sums.items()):
            self._count_sums(count, *self._sums_of(units.slice_multiplier(range(lanes), range(pixels)), index))

    def _count_sums(self, sums: int, widths: list[int], carries: int) -> None:
        """Add the LUTs and FFs of ``sums`` equal adder trees over chain sums, and of their accumulators.

        Parameters
        ----------
        sums : int
            Number of trees.
        widths : list of int
            Width of each chain's sum, in bits.
        carries : int
            Number of carries that the adders of a tree have as inputs.
        """
        cost, pipeline = self._cost, self._sums
        if carries and not self._config.accumulates:
            carries -= 1
            widths = [*widths, 2]
        levels_waited = 0
        for level in range(pipeline.tree_levels):
            levels_waited = cost.tree_delay(sums * widths[-1], len(widths), levels_waited)
            taken = min(carries, len(widths) // 2)
            cost.delay(sums * taken, level)
            carries -= taken
            added, following = pipeline.add_pairs(widths)
            cost.registers(sums * sum(added))
            if self._config.kinds.in_slices.carries:
                # If a sum is wider than its addends, its highest bit is a carry and takes no LUT.
                pairs = zip(added, widths[::2], widths[1::2], strict=False)
                cost.lut -= sums * sum(width > max(pair) for width, *pair in pairs)
            widths = following
        cost.delay(sums * widths[0], levels_waited)
        cost.delay(sums * carries, pipeline.tree_levels)
        cost.delay_apart(sums * (widths[0] + carries), pipeline.to_sum - pipeline.slices_to_sum)
        if pipeline.has_accumulators:
            self._count_accumulators(sums, widths[0])

    def _count_accumulators(self, sums: int, addend_bits: int) -> None:
        """Add the LUTs and FFs of ``sums`` accumulators whose addends have ``addend_bits`` bits."""
        # The adder's LUTs include the multiplexer of 0 and the accumulator only if the other operand is narrower.
        sum_bits = self._config.sum_bits
        self._cost.registers(sums * sum_bits, 2 if addend_bits == sum_bits else 1)

    def _count_whole(self) -> None:
        """Add to the cost the adder trees of lanes in DSP slices, in a layer that computes a window per cycle."""
        config, pipeline = self._config, self._sums
        for unit, multiplier in zip(self._units.in_slices, self._units.multipliers, strict=False):
            for index, lane in enumerate(unit):
                self._count_whole_sums(lane, *self._sums_of(multiplier, index))
                wait = pipeline.to_sum - pipeline.slices_to_sum
                self._cost.delay_apart(config.window.pixels * config.whole_bits[lane], wait)

    def _count_whole_sums(self, lane: int, widths: list[int], carries: int) -> None:
        """Add to the cost the adder tree of one output lane, in a layer that computes a window per cycle."""
        cost, config, levels = self._cost, self._config, self._sums.tree_levels - 1
        pixels = config.window.pixels
        bits = min(config.whole_bits[lane], config.sum_bits)
        bias = config.bias[lane] if config.bias else 0
        has_bias = False
        registers = 0  # registers that the last value has passed, the register of its sum included
        for level in range(levels):
            *pairs, last = [widths[first : first + 2] for first in range(0, len(widths), 2)]
            passes_by = len(last) == 1 and has_bias
            with_bias = len(last) == 1 and not has_bias
            has_bias |= with_bias
            taken = min(len(widths) // 2 + with_bias, carries)
            cost.delay(pixels * taken, level)
            carries -= taken
            if not passes_by:
                cost.shift_register(pixels * last[-1], registers)
            registers = registers + 1 if passes_by else 1
            cost.lut += pixels * sum(max(pair) for pair in pairs)
            sums = [min(max(pair) + 1, bits) for pair in pairs]
            if len(last) == 2:
                cost.lut += pixels * max(last)
                sums.append(min(max(last) + 1, bits))
            elif with_bias and bias:
                cost.lut += pixels * bits / 2
                sums.append(bits)
            else:
                sums += last
            cost.ff += pixels * sum(sums)
            widths = sums
        cost.shift_register(pixels * widths[-1], registers)
        cost.delay(pixels * carries, levels)
        cost.ff += pixels * bits
        if len(widths) == 1 and not has_bias:
            # An adder of a constant has inverters where the constant has ones. Its carry input is free.
            cost.lut += pixels * constant_adder_luts(bias, bits)
        else:
            cost.lut += pixels * bits * _LAST_LEVEL_LUTS[len(widths) + (not has_bias)]
