"""Circuit that computes a convolution's sums of products, from activations and weight words to accumulators.

Chains of multiply-adds use DSP slices, and trees add the chains' sums. Output channels whose products are in LUTs
have dot products instead (`LutMultiplier`), which arrive together with the sums of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In

from hwgen.devices import SliceOperand, SliceTerm
from hwgen.gateware.arithmetic.slice_chain import SliceChainConfig
from hwgen.gateware.circuit_forms import Part
from hwgen.gateware.convolution.parts import ConvolutionParts
from hwgen.gateware.convolution.sum_pipeline import LAST_LEVEL
from hwgen.gateware.lookup import delayed, delayed_apart, delayed_fast, named, registered
from hwgen.gateware.lut_products import LutProductsConfig
from hwgen.gateware.multipliers import Multiplier
from hwgen.gateware.stream import at_pixel, channels_layout, pipeline_ports

Operands = dict[tuple[int, int], Value]
"""Type of a map from (chain, position in the chain) to the activation operand there, delayed for its position."""


def _at_pixels(config: ConvolutionParts, name: str, group: tuple[int, ...]) -> str:
    """Return ``name`` with a suffix of pixel indices, as ``NAME_pixels_0_1``; without one if beats hold one pixel."""
    if len(group) == 1:
        return at_pixel(name, group[0], config.window.pixels)
    return f"{name}_pixels_{'_'.join(map(str, group))}"


def chain_name(config: ConvolutionParts, unit: tuple[int, ...], group: tuple[int, ...], chain: int) -> str:
    """Return the Verilog instance name of a chain of DSP slices, from output lanes ``unit``, pixels and chain index."""
    lanes = "_".join(map(str, unit))
    return f"{_at_pixels(config, f'lane_{lanes}', group)}_chain_{chain}"


def dots_name(config: ConvolutionParts, lanes: tuple[int, ...], pixel: int) -> str:
    """Return the Verilog instance name of the module of some output lanes' dot products in LUTs, at one pixel."""
    return f"products_{at_pixel(f'lane_{lanes[0]}', pixel, config.window.pixels)}"


class ProductSums:
    """Builder of a convolution's multipliers, adder trees and accumulators, in a module that has the weight words.

    Parameters
    ----------
    config : ConvolutionParts
        Configuration of the convolution.
    i, o : stream
        Steps of the line buffer, and the sums.
    words : sequence of Value
        Weight word of each chain position.
    """

    def __init__(self, config: ConvolutionParts, i: Any, o: Any, words: Sequence[Value]):
        self.config, self.i, self.o, self.words = config, i, o, words
        self._values: dict[tuple[int, int, int], Signal] = {}
        self._operands: dict[tuple[tuple[int, ...], int, bool, bool], Operands] = {}
        self._weights: dict[tuple[int, Multiplier, int, int], Value] = {}
        self._words: dict[int, Any] = {}
        self._delay_lines: dict[str, list[Value]] = {}
        self._counter: Value | None = None

    def add_to(self, m: Module) -> None:
        """Add the multipliers, adder trees and accumulators of the convolution to a module."""
        config = self.config
        self._elaborate_operands(m)
        is_first = self._elaborate_control(m)
        for lane, pixel, total, carries in self._add_sums(m, is_first):
            name = at_pixel(f"lane_{lane}", pixel, config.window.pixels)
            if config.pipeline.has_accumulators:
                accumulator = Signal(signed(config.sum_bits), name=f"{name}_accumulator", reset_less=True)
                m.d.sync += accumulator.eq(_add(Mux(is_first, 0, accumulator), total, carries))
                total = accumulator
            m.d.comb += self.o.payload[lane][pixel].eq(total)

    def _elaborate_operands(self, m: Module) -> None:
        """Add the signals of the DSP slices' operands to a module: first activations, then weights by position."""
        config = self.config
        for group in config.units.pixel_groups if config.units.in_slices else ():
            for own in range(config.operand_sets):
                self._activations(m, group, own, False)
        for position in range(config.chains.positions):
            for index, unit in enumerate(config.units.in_slices):
                for chain in config.chains.at(position):
                    for group in config.units.pixel_groups:
                        self._weight(m, index, config.units.slice_multiplier(unit, group), position, chain)

    def _elaborate_control(self, m: Module) -> Value:
        """Delay the first, last and valid flags, drive the output's ``valid``; return a bit: a sum begins.

        The flag of the first step is delayed for the slices or for the accumulators in LUTs.
        """
        config = self.config
        valid = delayed(m, "valid", self.i.valid, config.pipeline.to_sum, reset_less=False)
        cycles = config.chains.positions if config.pipeline.accumulates_in_slices else config.pipeline.to_sum
        first = delayed(m, "is_first_step", self.i.payload.first, cycles)
        last = delayed(m, "is_last_step", self.i.payload.last, config.pipeline.to_sum)
        done = Signal(name="fold_end")
        m.d.sync += done.eq(valid & last)
        if not config.pipeline.has_accumulators:
            m.d.comb += self.o.valid.eq(done)
            return first
        first_next = delayed_fast(m, "is_first_step_delayed", first, 1)
        done_next = Signal(name="sum_valid")
        m.d.sync += done_next.eq(done)
        m.d.comb += self.o.valid.eq(done_next)
        return first_next

    def _add_sums(self, m: Module, is_first: Value) -> Iterator[tuple[int, int, Value, list[Value]]]:
        """Yield (lane, pixel, a cycle's sum of products, carries still to add) for each sum, and add its circuit.

        If slices accumulate, the sum includes the products of earlier cycles.
        """
        config = self.config
        for index, unit in enumerate(config.units.in_slices):
            for group in config.units.pixel_groups:
                yield from self._add_unit_sums(m, index, unit, group, is_first)
        for pixel in range(config.window.pixels):
            for lanes in config.dots.blocks:
                yield from self._add_lut_sums(m, lanes, pixel)

    # Output channels in DSP slices

    def _add_unit_sums(
        self, m: Module, index: int, unit: tuple[int, ...], group: tuple[int, ...], is_first: Value
    ) -> Iterator[tuple[int, int, Value, list[Value]]]:
        """Yield (lane, pixel, sum, carries still to add) of one multiplier unit; add its DSP chains and adder trees.

        A unit serves the output lanes ``unit`` at the pixels ``group``.
        """
        config = self.config
        multiplier = config.units.slice_multiplier(unit, group)
        activations = self._activations(m, group, unit[0] % config.operand_sets, False)
        sums = [
            self._elaborate_chain(
                m, multiplier, activations, index, chain, chain_name(config, unit, group, chain), is_first
            )
            for chain in range(config.chains.count)
        ]
        fields = multiplier.split(sums, config.units.operands)
        products = [(lane, pixel) for lane in unit for pixel in group]
        for (lane, pixel), (values, carries) in zip(products, fields, strict=True):
            lane_name = at_pixel(f"lane_{lane}", pixel, config.window.pixels)
            if config.kinds.whole:
                total, left = self._elaborate_window_tree(m, values, carries, lane, lane_name), []
            else:
                total, left = self._elaborate_tree(m, values, carries, lane_name)
            wait = config.pipeline.to_sum - config.pipeline.slices_to_sum
            total = delayed_apart(m, f"{lane_name}_total", total, wait)
            left = [delayed_apart(m, f"{lane_name}_last_carry", carry, wait) for carry in left]
            yield lane, pixel, total, left

    def _elaborate_chain(
        self,
        m: Module,
        multiplier: Multiplier,
        activations: Operands,
        unit: int,
        chain: int,
        name: str,
        is_first: Value,
    ) -> Signal:
        """Add one chain of multiply-adds, of instantiated or inferred DSP slices; return the signal with its sum."""
        config = self.config
        product_bits = multiplier.product_bits(config.units.operands)
        sum_bits = max(multiplier.chain_bits(config.units.operands, config.sum_bits), product_bits)
        terms = [
            (position, activations[chain, position], self._weight(m, unit, multiplier, position, chain))
            for position in range(config.chains.positions)
            if (chain, position) in activations
        ]
        if not config.pipeline.instantiated:
            return multiplier.chain(m, terms, product_bits, sum_bits, name)
        slices = SliceChainConfig(
            terms=tuple(
                SliceTerm(
                    activation=_slice_operand(activation, config.pipeline.activation_registers(position)),
                    weight=_slice_operand(weight, config.pipeline.weight_registers(position)),
                )
                for position, activation, weight in terms
            ),
            sum_bits=config.sum_bits
            if config.pipeline.accumulates_in_slices
            else min(product_bits + (len(terms) - 1).bit_length(), sum_bits),
            accumulates=config.pipeline.accumulates_in_slices,
        )
        return slices.add_to(m, [(activation, weight) for _, activation, weight in terms], name, is_first)

    # Output channels in LUTs

    def _add_lut_sums(
        self, m: Module, lanes: tuple[int, ...], pixel: int
    ) -> Iterator[tuple[int, int, Value, list[Value]]]:
        """Yield (lane, pixel, sum, no carries) for dot products in LUTs of the output lanes ``lanes`` at one pixel."""
        config = self.config
        multiplier = config.kinds.in_luts
        activations = self._activations(m, (pixel,), lanes[0] % config.operand_sets, True)
        for joined in config.dots.modules(lanes):
            weights = [
                [self._weight(m, unit, multiplier, position, chain) for chain, position in activations]
                for unit in (config.units.lanes.index((lane,)) for lane in joined if multiplier.stores_weights)
            ]
            products = LutProductsConfig(multiplier, config.dots.products(joined))
            names = [at_pixel(f"lane_{lane}", pixel, config.window.pixels) for lane in joined]
            sums = products.add_to(m, [*activations.values()], weights, self._step(m), dots_name(config, joined, pixel))
            wait = config.pipeline.to_sum - products.latency
            for lane, name, total in zip(joined, names, sums, strict=True):
                yield lane, pixel, delayed_apart(m, f"{name}_total", total, wait), []

    def _step(self, m: Module) -> Value:
        """Return the cycle counter that selects constant weights in LUTs; 0 if weights are stored or always equal.

        It is aligned to the chains' first position.
        """
        config = self.config
        if config.kinds.in_luts.stores_weights or config.rom_depth == 1:
            return Const(0)
        if self._counter is None:
            step = Signal(range(config.rom_depth), name="step")
            with m.If(self.i.valid):
                m.d.sync += step.eq(Mux(step == config.rom_depth - 1, 0, step + 1))
            self._counter = delayed(m, "step_delayed", step, 1)
        return self._counter

    # Operands

    def _activations(self, m: Module, group: tuple[int, ...], own: int, in_luts: bool) -> Operands:
        """Return the activation operands (`Operands`) by (chain, position in it), each delayed for its position.

        ``own`` is the output lane if the walk is channelwise. Otherwise all lanes have the same operands. The last
        registers are inside of slices that are instantiated.
        """
        config = self.config
        wait = 1 if in_luts or not config.kinds.whole else 0
        key = group, own, bool(wait), in_luts and config.pipeline.instantiated
        if key not in self._operands:
            self._operands[key] = operands = {}
            for position, chain, lane in config.chains.terms:
                cycles = position + wait - (0 if in_luts else config.pipeline.activation_registers(position))
                operands[chain, position] = self._delay_activation(m, self._activation(m, group, own, lane), cycles)
        return self._operands[key]

    def _delay_activation(self, m: Module, value: Signal, cycles: int) -> Value:
        """Return an activation, delayed by ``cycles``; instantiated DSP slices and LUTs share its delay line."""
        if not self.config.pipeline.instantiated:
            return delayed(m, value.name, value, cycles)
        line = self._delay_lines.setdefault(value.name, [value])
        while len(line) <= cycles:
            register = registered(m, f"{value.name}_{len(line)}", line[-1], value.shape())
            line.append(register)
        return line[cycles]

    def _activation(self, m: Module, group: tuple[int, ...], own: int, lane: int) -> Signal:
        """Return one multiplier's activation operand: a tap's activations of a group of pixels, packed in one value."""
        tap, channel = self._tap_and_channel(own, lane)
        values = [self._pixel_activation(m, pixel, own, lane) for pixel in group]
        if len(values) == 1:
            return values[0]
        packed = self.config.kinds.in_slices.packed(values)
        value = Signal(packed.shape(), name=_at_pixels(self.config, f"activations_{tap}_{channel}", group))
        m.d.comb += value.eq(packed)
        return value

    def _pixel_activation(self, m: Module, pixel: int, own: int, lane: int) -> Signal:
        """Return the signal of a product's activation at one pixel, less the multiplier's offset."""
        config = self.config
        if (pixel, own, lane) not in self._values:
            tap, channel = self._tap_and_channel(own, lane)
            name = at_pixel(f"activation_{tap}_{channel}", pixel, config.window.pixels)
            value = Signal(config.kinds.operand, name=name)
            tapped = self.i.payload.taps[pixel][tap][channel]
            if config.kinds.offset:  # half of the range, so that only the highest bit is inverted
                tapped = tapped ^ abs(config.kinds.offset)
            m.d.comb += value.eq(tapped)
            self._values[pixel, own, lane] = value
        return self._values[pixel, own, lane]

    def _tap_and_channel(self, own: int, lane: int) -> tuple[int, int]:
        """Return a pair: the indices of the tap and of the channel, in port ``i``'s payload, that a product reads."""
        window = self.config.window
        return (lane, own) if window.channelwise else divmod(lane, window.input.lanes)

    def _weight(self, m: Module, unit: int, multiplier: Multiplier, position: int, chain: int) -> Value:
        """Return a multiplier's weight operand: a field of its chain position's weight word, delayed to fit.

        A weight operand is delayed like the multiplier's activation operand, by registers inside of slices that are
        instantiated.
        """
        config = self.config
        key = unit, multiplier, position, chain
        if key not in self._weights:
            chains = config.chains.at(position)
            stored = self._word(m, position, len(chains))[unit * len(chains) + chains.index(chain)]
            weight = multiplier.spread(stored, config.weight_bits)
            # For block RAM or UltraRAM, its output register. Yosys cannot infer that register. It absorbs this one into
            # the DSP slice that reads it. If LUTs read it, it is not part of a shift register.
            in_slice = multiplier.slices > 0
            if not (in_slice and config.pipeline.instantiated):
                registers = config.pipeline.weight_registers(position)
                weight = delayed(m, f"weight_{position}_{unit}_{chain}", weight, registers, reset_less=in_slice)
            self._weights[key] = weight
        return self._weights[key]

    def _word(self, m: Module, position: int, chains: int) -> Any:
        """Return the weight word of a chain position, with a field of weights for every unit and chain."""
        if position not in self._words:
            word = Signal(self._word_layout(chains), name=f"weight_{position}")
            m.d.comb += word.as_value().eq(self.words[position])
            self._words[position] = word
        return self._words[position]

    def _word_layout(self, chains: int) -> data.Layout:
        """Return the layout of a chain position's weight word: a field of packed weights for every unit and chain."""
        start, fields = 0, {}
        for bits in self.config.units.weight_bits:
            for _ in range(chains):
                fields[len(fields)] = data.Field(Shape(bits), start)
                start += bits
        return data.FlexibleLayout(start, fields)

    # Adder trees

    def _elaborate_tree(
        self, m: Module, sums: list[Value], carries: list[Value], name: str
    ) -> tuple[Value, list[Value]]:
        """Add an output lane's registered adder tree over chain sums and carries; return, as a pair, sum, carries left.

        Returns
        -------
        tuple of (Value, list of Value)
            The total, and the carry that remains for the accumulator, if there is one.
        """
        config = self.config
        if carries and not config.accumulates:
            *carries, last = carries
            sums = [*sums, Cat(last, Const(0)).as_signed()]
        for level in range(config.pipeline.tree_levels):
            sums, carries = self._elaborate_level(m, sums, carries, level, config.sum_bits, name)
        (total,) = sums
        return total, carries

    def _elaborate_window_tree(self, m: Module, sums: list[Value], carries: list[Value], lane: int, name: str) -> Value:
        """Add an output lane's adder tree in a layer that computes a window per cycle; return the sum plus bias.

        The levels have registered adders of two values. The last level adds up to `LAST_LEVEL` values by carry-save
        adders. The adders have the carries as further inputs.
        """
        config = self.config
        bits = min(config.whole_bits[lane], config.sum_bits)
        bias = [Const(config.bias[lane] if config.bias else 0, signed(config.sum_bits))]
        for level in range(config.pipeline.tree_levels - 1):
            if len(sums) % 2:  # where the bias needs no further level
                sums, bias = [*sums, *bias], []
            sums, carries = self._elaborate_level(m, sums, carries, level, bits, name)
        sums += bias
        assert len(carries) < len(sums) <= LAST_LEVEL
        return registered(m, f"{name}_sum", _add(*self._save_carries(m, sums, carries, bits, name)), signed(bits))

    def _elaborate_level(
        self, m: Module, values: list[Value], carries: list[Value], level: int, bits: int, name: str
    ) -> tuple[list[Value], list[Value]]:
        """Add one registered level of an adder tree; return the pairs' sums, and carries not yet added.

        The sums are at most ``bits`` wide.
        """
        following: list[Value] = []
        for first in range(0, len(values), 2):
            pair = values[first : first + 2]
            width = min(max(len(value) for value in pair) + len(pair) - 1, bits)
            total = Signal(signed(width), name=f"{name}_tree_{level}_{first // 2}", reset_less=True)
            if len(pair) == 2:
                m.d.sync += total.eq(_add(pair[0], pair[1], carries[:1]))
                carries = carries[1:]
            else:
                m.d.sync += total.eq(pair[0])
            following.append(total)
        kept = [delayed(m, f"{name}_carry_{level}_{index}", carry, 1) for index, carry in enumerate(carries)]
        return following, kept

    def _save_carries(
        self, m: Module, values: list[Value], carries: list[Value], bits: int, name: str
    ) -> tuple[Value, Value, list[Value]]:
        """Return a triple (two values, carries), by carry-save adders: equal in sum to all given values and carries.

        The sum is modulo ``2**bits``.
        """
        rows = []
        for index, value in enumerate(values):
            rows.append(Signal(signed(bits), name=f"{name}_row_{index}"))
            m.d.comb += rows[-1].eq(value)
        while len(rows) > 2:
            a, b, c, *rest = rows
            index = len(values)
            values = [*values, a, b]
            row = Signal(signed(bits), name=f"{name}_row_{index}")
            saved = Signal(signed(bits), name=f"{name}_row_{index + 1}")
            taken, carries = (carries[0], carries[1:]) if carries else (Const(0, 1), carries)
            m.d.comb += [row.eq(a ^ b ^ c), saved.eq(Cat(taken, (a & b) | (a & c) | (b & c)))]
            rows = [row, saved, *rest]
        return rows[0], rows[1], carries


class Chains(Part[ConvolutionParts]):
    """Reusable component of a convolution: multipliers, adder trees and accumulators, without weight memories.

    Parameters
    ----------
    config : ConvolutionParts
        Configuration from `MultiplyConfig.circuit`. It must not compute whole windows: widths then depend on the
        weights.

    Members
    -------
    i : In(stream, always ready)
        Steps of the line buffer.
    word_0, word_1, .. : In
        Weight word of each chain position, delayed as the activations of the position. A word of block RAM or UltraRAM
        is one cycle earlier.
    o : Out(stream, always ready)
        ``Tm x Tp`` sums, ``[lane][pixel]``, once per fold.

    Latency and throughput, Number range
        As in `Multiply`.
    """

    def __init__(self, config: ConvolutionParts):
        results = channels_layout(config.result, config.lanes, config.window.pixels)
        words = {f"word_{position}": In(width) for position, width in enumerate(config.weight_words.rom_widths)}
        super().__init__(config, {**pipeline_ports(config.window.step_layout, results), **words})

    @property
    def words(self) -> list[Signal]:
        """List of input ports (signals) of the weight words, one for each position of the chains of multiply-adds."""
        return [getattr(self, f"word_{position}") for position in range(len(self.config.weight_words.rom_widths))]

    def circuit(self):
        """Return an Amaranth module with the multipliers, adder trees and accumulators."""
        m = Module()
        ProductSums(self.config, self.i, self.o, self.words).add_to(m)
        return m


def _slice_operand(value: Value, registers: int) -> SliceOperand:
    """Return a `SliceOperand`: a DSP slice operand's width in bits, sign, and input registers in the slice."""
    shape = value.shape()
    return SliceOperand(bits=shape.width, signed=shape.signed, registers=registers)


def _add(one: Value, other: Value, carries: list[Value]) -> Value:
    """Return the sum of two signed values and a carry bit, by one addition; ``carries`` holds at most one carry.

    The carry becomes bit 0 of both operands. The sum of both is 0 in bit 0, with a carry into bit 1 if they are 1::

          one[n]   ..  one[1]    one[0]    carry
        + other[n] ..  other[1]  other[0]  carry
        = sum[n]   ..  sum[1]    sum[0]    0

    The sum without its lowest bit is the result, from one addition of two operands. For an addition of three operands
    Yosys sometimes uses two LUTs per bit.
    """
    if not carries:
        return one + other
    (carry,) = carries
    total = named(Cat(carry, one).as_signed() + Cat(carry, other).as_signed(), "sum_with_carry")
    return total[1:].as_signed()
